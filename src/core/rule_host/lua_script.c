/*
 * lua_script.c - a script at work: a Lua state with limits, and the functions of the
 * rule's row, each of which calls the script's function of that name.
 *
 * A script has no access to files, programs or bytecode, finds nothing that differs from
 * run to run, and has bounded memory and instructions. C functions of Lua that do not
 * count instructions, pattern matching above all, are ended by the host's time limit. An
 * error in the script switches the rule off; the finding names the script's line.
 */
#include "rule_host/lua_rule.h"
#include "base/fail.h"
#include "base/macros.h"

#include <limits.h>
#include <lualib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory ------------------------------------------------------------------------- */

static void *allocate(void *user, void *block, size_t old_size, size_t size)
{
    lua_rule *script = user;
    const size_t before = block != NULL ? old_size : 0;

    if (size == 0) {
        free(block);
        script->used -= before;
        return NULL;
    }
    if (size > before && size - before > script->most - script->used) {
        return NULL;
    }
    void *moved = realloc(block, size);
    if (moved != NULL) {
        script->used += size - before;
    }
    return moved;
}

/* --- the library -------------------------------------------------------------------- */

/* pairs in the order of keys: the order of Lua's own pairs differs between processes. */
static const char prelude[] =
    "local next, type, sort, rawget = next, type, table.sort, rawget\n"
    "local function before(a, b)\n"
    "    local type_a, type_b = type(a), type(b)\n"
    "    if type_a ~= type_b then return type_a < type_b end\n"
    "    if type_a == 'number' or type_a == 'string' then return a < b end\n"
    "    if type_a == 'boolean' then return not a and b end\n"
    "    if type_a ~= 'table' then return false end\n"
    "    return (rawget(a, 'index') or 0) < (rawget(b, 'index') or 0)\n"
    "end\n"
    "function pairs(given)\n"
    "    local keys, n, i = {}, 0, 0\n"
    "    for key in next, given do n = n + 1; keys[n] = key end\n"
    "    sort(keys, before)\n"
    "    return function()\n"
    "        while i < n do\n"
    "            i = i + 1\n"
    "            local value = given[keys[i]]\n"
    "            if value ~= nil then return keys[i], value end\n"
    "        end\n"
    "    end, given\n"
    "end\n"
    "_G.next = nil\n"
    "math.randomseed(1)\n"
    "math.randomseed = nil\n"
    "string.dump = nil\n"
    "load, loadfile, dofile, collectgarbage, warn = nil\n";

static int open_libraries(lua_State *L)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_MATHLIBNAME, luaopen_math},
                                         {LUA_UTF8LIBNAME, luaopen_utf8}};

    for (size_t i = 0; i < SONDE_COUNT_OF(libraries); i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    if (luaL_loadbufferx(L, prelude, sizeof prelude - 1, "=sonde", "t") != LUA_OK) {
        return lua_error(L);
    }
    lua_call(L, 0, 0);
    lua_pushnil(L); /* scripts cannot reach the libraries by this table */
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    return 0;
}

/* --- running ------------------------------------------------------------------------ */

lua_rule *lua_rule_of(lua_State *L)
{
    lua_rule *script = NULL;

    memcpy(&script, lua_getextraspace(L), sizeof(void *));
    return script;
}

/* From here on every instruction fails, so that no pcall can continue. */
static void too_many(lua_State *L, lua_Debug *where)
{
    (void)where;
    lua_sethook(L, too_many, LUA_MASKCOUNT, 1);
    luaL_where(L, 0);
    lua_pushfstring(L, "more than %d instructions in one call",
                    lua_rule_of(L)->instructions);
    lua_concat(L, 2);
    (void)lua_error(L);
}

const char *lua_run(lua_rule *script, lua_CFunction work, void *arg)
{
    lua_State *L = script->state;

    lua_settop(L, 0);
    lua_pushcfunction(L, work);
    lua_pushlightuserdata(L, arg);
    lua_sethook(L, too_many, LUA_MASKCOUNT, script->instructions);
    const int failed = lua_pcall(L, 1, 0, 0);
    lua_sethook(L, NULL, 0, 0);
    if (failed == LUA_OK) {
        return NULL;
    }
    if (failed == LUA_ERRMEM) {
        return "it exceeds its memory limit";
    }
    return lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1)
                                          : "an error value that is not a text";
}

sonde_err lua_state_create(lua_rule *script, const sonde_rule_limits *limits,
                           sonde_diag *diag)
{
    script->most = (size_t)SONDE_MIN(limits->memory, SIZE_MAX / 2);
    script->instructions = (int)SONDE_MIN(limits->instructions, (uint64_t)INT_MAX);
    script->state = lua_newstate(allocate, script);
    if (script->state == NULL) {
        return sonde__fail_nomem(diag, script->path);
    }
    memcpy(lua_getextraspace(script->state), &script, sizeof(void *));
    const char *failed = lua_run(script, open_libraries, NULL);
    return failed == NULL ? SONDE_OK
                          : sonde__fail(diag, SONDE_ENOMEM, script->path, "more memory",
                                        "%s", failed);
}

void lua_state_destroy(lua_rule *script)
{
    if (script->state != NULL) {
        lua_close(script->state);
    }
    script->state = NULL;
}

/* The argument of lua_run. */
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
    lua_rule *script = NULL;

    memcpy(&script, &run->rule, sizeof(void *)); /* its first member */
    script->run = run;
    return script;
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
    const char *field = (const char *)script->run->state + param->offset;

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
        lua_pushstring(L, script->run->texts[i]); /* nil for NULL */
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
    lua_rule *script = rule_of(run);
    job what = {.function = LUA_RULE_INIT};
    const char *failed = lua_run(script, do_init, &what);

    return failed == NULL ? SONDE_OK : lua_rule_fail(script, failed, diag);
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

    return !run->failed && run_job(rule_of(run), do_wants, &what) ? what.need
                                                                  : SONDE_RULE_IGNORE;
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
    lua_rule *script = rule_of(run);
    size_t count = 0;
    job what = {.function = LUA_RULE_OBSERVE,
                .tensor = (size_t)(tensor - sonde_rule_tensors(run, &count))};

    script->observed = observation;
    script->may_find = true;
    (void)run_job(script, do_observe, &what);
    script->may_find = false;
    script->observed = NULL;
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
    lua_rule *script = rule_of(run);
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

void lua_rule_functions(lua_rule *script)
{
    script->rule.init = call_init;
    script->rule.wants = call_wants;
    script->rule.observe =
        script->functions[LUA_RULE_OBSERVE] != LUA_NOREF ? call_observe : NULL;
    script->rule.step = script->functions[LUA_RULE_STEP] != LUA_NOREF ? call_step : NULL;
    script->rule.idle = script->functions[LUA_RULE_IDLE] != LUA_NOREF ? call_idle : NULL;
    script->rule.finish =
        script->functions[LUA_RULE_FINISH] != LUA_NOREF ? call_finish : NULL;
}
