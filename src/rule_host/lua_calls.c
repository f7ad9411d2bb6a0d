/*
 * lua_calls.c - the functions of a row: each calls the script's function of that name.
 *
 * An error of the script switches the rule off, with the script's line in the finding.
 */
#include "rule_host/lua_rule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is handed through lua_run. */
typedef struct job {
    lua_function function;
    const sonde_tensor_info *info;
    uint32_t id;
    size_t tensor;
    double seconds;
    int need;
} job;

static lua_rule *rule_of(sonde_rule_run *run)
{
    lua_rule *of = NULL;

    memcpy(&of, &run->rule, sizeof(void *)); /* its first member */
    of->run = run;
    return of;
}

/* True if all went well. */
static bool run_job(lua_rule *of, lua_CFunction work, job *what)
{
    const char *failed = lua_run(of, work, what);

    if (failed != NULL) {
        sonde_rule_fail(of->run, "%s", failed);
    }
    return failed == NULL;
}

/* --- beginning -------------------------------------------------------------------- */

/* Pushes the value of a parameter; nil if it has none. */
static void push_param(lua_State *L, const lua_rule *of, size_t i)
{
    const sonde_rule_param *param = &of->params[i];
    const char *field = (const char *)of->run->state + param->offset;

    if (param->kind == SONDE_RULE_REAL) {
        double value = 0;

        memcpy(&value, field, sizeof value);
        if (isnan(value)) {
            lua_pushnil(L);
        } else {
            lua_pushnumber(L, value);
        }
    } else if (param->kind == SONDE_RULE_COUNT) {
        int64_t value = 0;

        memcpy(&value, field, sizeof value);
        if (value == INT64_MIN) {
            lua_pushnil(L);
        } else {
            lua_pushinteger(L, value);
        }
    } else if (param->kind == SONDE_RULE_FLAG) {
        lua_pushboolean(L, field[0] != 0);
    } else {
        lua_pushstring(L, of->run->texts[i]); /* nil for NULL */
    }
}

/* Pushes the script's function and ctx; false if it has none. */
static bool push_function(lua_State *L, lua_rule *of, lua_function function)
{
    if (of->functions[function] == LUA_NOREF) {
        return false;
    }
    lua_context_update(of);
    lua_rawgeti(L, LUA_REGISTRYINDEX, of->functions[function]);
    lua_rawgeti(L, LUA_REGISTRYINDEX, of->context);
    return true;
}

static int do_init(lua_State *L)
{
    lua_rule *of = lua_rule_of(L);

    lua_rawgeti(L, LUA_REGISTRYINDEX, of->context);
    lua_createtable(L, 0, (int)of->rule.param_count);
    for (size_t i = 0; i < of->rule.param_count; i++) {
        push_param(L, of, i);
        lua_setfield(L, -2, of->params[i].name);
    }
    lua_setfield(L, -2, "params");
    if (push_function(L, of, LUA_RULE_INIT)) {
        lua_call(L, 1, 0);
    }
    return 0;
}

static sonde_err call_init(sonde_rule_run *run, sonde_diag *diag)
{
    lua_rule *of = rule_of(run);
    job what = {.function = LUA_RULE_INIT};
    const char *failed = lua_run(of, do_init, &what);

    return failed == NULL ? SONDE_OK : lua_rule_fail(of, failed, diag);
}

/* --- tensors ---------------------------------------------------------------------- */

/* What wants returned, on top, as the index of a need. */
static int take_need(lua_State *L, const lua_rule *of, const char *name)
{
    const lua_Integer count = (lua_Integer)of->rule.need_count;

    if (lua_isboolean(L, -1) || lua_isnil(L, -1)) {
        return lua_toboolean(L, -1) ? 0 : SONDE_RULE_IGNORE;
    }
    if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1 ||
        lua_tointeger(L, -1) > count) {
        (void)luaL_error(L,
                         "wants returned %s for '%s' (expected true, false or a "
                         "number from 1 to %d)",
                         luaL_tolstring(L, -1, NULL), name, (int)count);
    }
    return (int)lua_tointeger(L, -1) - 1;
}

static int do_wants(lua_State *L)
{
    lua_rule *of = lua_rule_of(L);
    job *what = lua_touserdata(L, 1);
    bool given = false;

    lua_push_tensor(of, what->info, what->id);
    if (push_function(L, of, LUA_RULE_WANTS)) {
        lua_pushvalue(L, -3);
        lua_call(L, 2, 1);
        what->need = take_need(L, of, what->info->name);
        lua_pop(L, 1);
    } else {
        what->need = sonde_rule_selected(of->run, what->id, &given) && given
                         ? 0
                         : SONDE_RULE_IGNORE;
    }
    if (what->need != SONDE_RULE_IGNORE) {
        size_t count = 0;

        (void)sonde_rule_tensors(of->run, &count);
        lua_adopt_tensor(of, count, what->need);
    }
    return 0;
}

static int call_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    job what = {
        .function = LUA_RULE_WANTS, .info = info, .id = id, .need = SONDE_RULE_IGNORE};

    return !run->failed && run_job(rule_of(run), do_wants, &what) ? what.need
                                                                  : SONDE_RULE_IGNORE;
}

/* --- steps ------------------------------------------------------------------------ */

static int do_observe(lua_State *L)
{
    lua_rule *of = lua_rule_of(L);
    const job *what = lua_touserdata(L, 1);

    if (push_function(L, of, LUA_RULE_OBSERVE)) {
        lua_push_own_tensor(of, what->tensor);
        lua_rawgeti(L, LUA_REGISTRYINDEX, of->seen);
        lua_call(L, 3, 0);
    }
    return 0;
}

static void call_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                         const sonde_observation *observation)
{
    lua_rule *of = rule_of(run);
    size_t count = 0;
    job what = {.function = LUA_RULE_OBSERVE,
                .tensor = (size_t)(tensor - sonde_rule_tensors(run, &count))};

    of->observed = observation;
    of->may_find = true;
    (void)run_job(of, do_observe, &what);
    of->may_find = false;
    of->observed = NULL;
}

static int do_call(lua_State *L)
{
    const job *what = lua_touserdata(L, 1);

    if (push_function(L, lua_rule_of(L), what->function)) {
        if (what->function == LUA_RULE_IDLE) {
            lua_pushnumber(L, what->seconds);
        }
        lua_call(L, what->function == LUA_RULE_IDLE ? 2 : 1, 0);
    }
    return 0;
}

static void call(sonde_rule_run *run, lua_function function, double seconds)
{
    lua_rule *of = rule_of(run);
    job what = {.function = function, .seconds = seconds};

    of->may_find = true;
    of->stepping = function == LUA_RULE_STEP;
    (void)run_job(of, do_call, &what);
    of->stepping = false;
    of->may_find = false;
}

static void call_step(sonde_rule_run *run)
{
    call(run, LUA_RULE_STEP, 0);
}

static void call_idle(sonde_rule_run *run, double seconds)
{
    call(run, LUA_RULE_IDLE, seconds);
}

static void call_finish(sonde_rule_run *run)
{
    call(run, LUA_RULE_FINISH, 0);
}

void lua_rule_functions(lua_rule *of)
{
    of->rule.init = call_init;
    of->rule.wants = call_wants;
    of->rule.observe = of->functions[LUA_RULE_OBSERVE] != LUA_NOREF ? call_observe : NULL;
    of->rule.step = of->functions[LUA_RULE_STEP] != LUA_NOREF ? call_step : NULL;
    of->rule.idle = of->functions[LUA_RULE_IDLE] != LUA_NOREF ? call_idle : NULL;
    of->rule.finish = of->functions[LUA_RULE_FINISH] != LUA_NOREF ? call_finish : NULL;
}
