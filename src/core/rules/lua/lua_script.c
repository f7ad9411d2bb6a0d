/*
 * lua_script.c - a script at work: the functions of the rule's row, each of which calls the
 * script's function of that name. An error in the script switches the rule off; the finding
 * names the script's line.
 */
#include "base/fail.h"
#include "rules/lua/lua_rule.h"

#include <math.h>
#include <string.h>

/* The argument of lua_run. */
typedef struct job {
    lua_function function;
    const sonde_tensor_info *info;
    const sonde_program *program;
    uint32_t id;
    size_t tensor;
    double seconds;
    int need;
} job;

static lua_rule *script_of(sonde_rule_run *run)
{
    return ((lua_work *)sonde_rule_state(run))->script;
}

/* True on success. */
static bool run_job(lua_rule *script, lua_CFunction work, job *what)
{
    const char *failed = lua_run(script, work, what);

    if (failed != NULL) {
        sonde_rule_fail(script->run, "%s", failed);
    }
    return failed == NULL;
}

/* --- beginning ---------------------------------------------------------------------- */

/* Pushes the value of a parameter; nil if it has none. */
static void push_param(lua_State *L, const lua_rule *script, size_t i)
{
    const sonde_rule_param *param = &script->params[i];
    const char *field = (const char *)sonde_rule_state(script->run) + param->offset;

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
        const char *text = NULL;

        memcpy(&text, field, sizeof(void *));
        lua_pushstring(L, text); /* nil for NULL */
    }
}

/* Pushes the script's function and ctx; false if it has none. */
static bool push_function(lua_State *L, lua_rule *script, lua_function function)
{
    if (script->functions[function] == LUA_NOREF) {
        return false;
    }
    lua_context_update(script);
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->functions[function]);
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->context);
    return true;
}

static int do_init(lua_State *L)
{
    lua_rule *script = lua_rule_of(L);

    lua_rawgeti(L, LUA_REGISTRYINDEX, script->context);
    lua_createtable(L, 0, (int)script->rule.param_count);
    for (size_t i = 0; i < script->rule.param_count; i++) {
        push_param(L, script, i);
        lua_setfield(L, -2, script->params[i].name);
    }
    lua_setfield(L, -2, "params");
    if (push_function(L, script, LUA_RULE_INIT)) {
        lua_call(L, 1, 0);
    }
    return 0;
}

static sonde_err call_init(sonde_rule_run *run, sonde_diag *diag)
{
    const lua_rule *row = (const lua_rule *)sonde_rule_row(run); /* its first member */
    lua_work *work = sonde_rule_state(run);

    SONDE__TRY(lua_rule_open(row->text, row->size, row->path, &row->wanted, &work->script,
                             diag));
    work->script->run = run;
    job what = {.function = LUA_RULE_INIT};
    const char *failed = lua_run(work->script, do_init, &what);

    return failed == NULL ? SONDE_OK : lua_rule_fail(work->script, failed, diag);
}

static void call_destroy(sonde_rule_run *run)
{
    lua_rule_close(script_of(run));
}

/* --- tensors ------------------------------------------------------------------------ */

/* The result of wants, on top of the stack, as the index of a need. */
static int take_need(lua_State *L, const lua_rule *script, const char *name)
{
    const lua_Integer count = (lua_Integer)script->rule.need_count;

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
    lua_rule *script = lua_rule_of(L);
    job *what = lua_touserdata(L, 1);
    bool given = false;

    lua_push_tensor(script, what->info, what->id);
    if (push_function(L, script, LUA_RULE_WANTS)) {
        lua_pushvalue(L, -3);
        lua_call(L, 2, 1);
        what->need = take_need(L, script, what->info->name);
        lua_pop(L, 1);
    } else {
        what->need = sonde_rule_selected(script->run, what->id, &given) && given
                         ? 0
                         : SONDE_RULE_IGNORE;
    }
    if (what->need != SONDE_RULE_IGNORE) {
        size_t count = 0;

        (void)sonde_rule_tensors(script->run, &count);
        lua_adopt_tensor(script, count, what->need);
    }
    return 0;
}

static int call_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    job what = {
        .function = LUA_RULE_WANTS, .info = info, .id = id, .need = SONDE_RULE_IGNORE};

    return run_job(script_of(run), do_wants, &what) ? what.need : SONDE_RULE_IGNORE;
}

/* --- steps -------------------------------------------------------------------------- */

static int do_observe(lua_State *L)
{
    lua_rule *script = lua_rule_of(L);
    const job *what = lua_touserdata(L, 1);

    if (push_function(L, script, LUA_RULE_OBSERVE)) {
        lua_push_own_tensor(script, what->tensor);
        lua_rawgeti(L, LUA_REGISTRYINDEX, script->seen);
        lua_call(L, 3, 0);
    }
    return 0;
}

static void call_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                         const sonde_observation *observation)
{
    lua_rule *script = script_of(run);
    size_t count = 0;
    job what = {.function = LUA_RULE_OBSERVE,
                .tensor = (size_t)(tensor - sonde_rule_tensors(run, &count))};

    script->observed = observation;
    script->may_find = true;
    (void)run_job(script, do_observe, &what);
    script->may_find = false;
    script->observed = NULL;
}

static int do_program(lua_State *L)
{
    const job *what = lua_touserdata(L, 1);

    if (push_function(L, lua_rule_of(L), LUA_RULE_PROGRAM)) {
        lua_push_program(L, what->program);
        lua_call(L, 2, 0);
    }
    return 0;
}

static void call_program(sonde_rule_run *run, const sonde_program *program)
{
    lua_rule *script = script_of(run);
    job what = {.function = LUA_RULE_PROGRAM, .program = program};

    script->may_find = true;
    (void)run_job(script, do_program, &what);
    script->may_find = false;
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
    lua_rule *script = script_of(run);
    job what = {.function = function, .seconds = seconds};

    script->may_find = true;
    script->stepping = function == LUA_RULE_STEP;
    (void)run_job(script, do_call, &what);
    script->stepping = false;
    script->may_find = false;
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

static void set_functions(lua_rule *script)
{
    script->rule.init = call_init;
    script->rule.wants = script->rule.need_count > 0 ? call_wants : NULL;
    script->rule.program =
        script->functions[LUA_RULE_PROGRAM] != LUA_NOREF ? call_program : NULL;
    script->rule.observe =
        script->functions[LUA_RULE_OBSERVE] != LUA_NOREF ? call_observe : NULL;
    script->rule.step = script->functions[LUA_RULE_STEP] != LUA_NOREF ? call_step : NULL;
    script->rule.idle = script->functions[LUA_RULE_IDLE] != LUA_NOREF ? call_idle : NULL;
    script->rule.finish =
        script->functions[LUA_RULE_FINISH] != LUA_NOREF ? call_finish : NULL;
    script->rule.destroy = call_destroy;
}

/* --- the object's table ------------------------------------------------------------- */

static sonde_err open_row(const char *text, size_t size, const char *path,
                          const sonde_rule_limits *limits, const sonde_rule **rule,
                          sonde_diag *diag)
{
    lua_rule *script = NULL;
    SONDE__TRY(lua_rule_open(text, size, path, limits, &script, diag));
    set_functions(script);
    *rule = &script->rule;
    return SONDE_OK;
}

static void close_row(const sonde_rule *rule)
{
    lua_rule *script = NULL;

    memcpy(&script, &rule, sizeof(void *)); /* its first member */
    lua_rule_close(script);
}

SONDE_API extern const sonde__rule_scripts sonde__rule_lua;

const sonde__rule_scripts sonde__rule_lua = {open_row, close_row};
