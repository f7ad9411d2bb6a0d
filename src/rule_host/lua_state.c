/*
 * lua_state.c - Lua with walls: no way to files, programs or bytecode; nothing that differs from
 * run to run; bounded memory and instructions.
 *
 * What runs in C without passing the count of instructions, matching patterns above all, ends
 * with the host's time limit.
 */
#include "rule_host/lua_rule.h"
#include "base/fail.h"
#include "base/macros.h"

#include <lualib.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- memory ----------------------------------------------------------------------- */

static void *allocate(void *user, void *block, size_t old_size, size_t size)
{
    lua_rule *of = user;
    const size_t before = block != NULL ? old_size : 0;
    void *moved = NULL;

    if (size == 0) {
        free(block);
        of->used -= before;
        return NULL;
    }
    if (size > before && size - before > of->most - of->used) {
        return NULL;
    }
    moved = realloc(block, size);
    if (moved != NULL) {
        of->used += size - before;
    }
    return moved;
}

/* --- the library ------------------------------------------------------------------ */

/* pairs in the order of keys: Lua's own is another in every process. */
static const char prelude[] =
    "local next, type, sort, rawget = next, type, table.sort, rawget\n"
    "local function before(a, b)\n"
    "    local of_a, of_b = type(a), type(b)\n"
    "    if of_a ~= of_b then return of_a < of_b end\n"
    "    if of_a == 'number' or of_a == 'string' then return a < b end\n"
    "    if of_a == 'boolean' then return not a and b end\n"
    "    if of_a ~= 'table' then return false end\n"
    "    return (rawget(a, 'index') or 0) < (rawget(b, 'index') or 0)\n"
    "end\n"
    "function pairs(of)\n"
    "    local keys, n, i = {}, 0, 0\n"
    "    for key in next, of do n = n + 1; keys[n] = key end\n"
    "    sort(keys, before)\n"
    "    return function()\n"
    "        while i < n do\n"
    "            i = i + 1\n"
    "            local value = of[keys[i]]\n"
    "            if value ~= nil then return keys[i], value end\n"
    "        end\n"
    "    end, of\n"
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
    lua_pushnil(L); /* the libraries themselves, found again by their names */
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    return 0;
}

/* --- running ---------------------------------------------------------------------- */

lua_rule *lua_rule_of(lua_State *L)
{
    lua_rule *of = NULL;

    memcpy(&of, lua_getextraspace(L), sizeof(void *));
    return of;
}

/* From here on every instruction is one too many, so that no pcall goes on. */
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

const char *lua_run(lua_rule *of, lua_CFunction work, void *arg)
{
    lua_State *L = of->state;
    int failed = 0;

    lua_settop(L, 0);
    lua_pushcfunction(L, work);
    lua_pushlightuserdata(L, arg);
    lua_sethook(L, too_many, LUA_MASKCOUNT, of->instructions);
    failed = lua_pcall(L, 1, 0, 0);
    lua_sethook(L, NULL, 0, 0);
    if (failed == LUA_OK) {
        return NULL;
    }
    if (failed == LUA_ERRMEM) {
        return "it needs more memory than it may have";
    }
    return lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1)
                                          : "an error that is no text";
}

sonde_err lua_state_create(lua_rule *of, const sonde_rule_limits *limits,
                           sonde_diag *diag)
{
    const char *failed = NULL;

    of->most = (size_t)SONDE_MIN(limits->memory, SIZE_MAX / 2);
    of->instructions = (int)SONDE_MIN(limits->instructions, (uint64_t)INT_MAX);
    of->state = lua_newstate(allocate, of);
    if (of->state == NULL) {
        return sonde__fail_nomem(diag, of->path);
    }
    memcpy(lua_getextraspace(of->state), &of, sizeof(void *));
    failed = lua_run(of, open_libraries, NULL);
    return failed == NULL
               ? SONDE_OK
               : sonde__fail(diag, SONDE_ENOMEM, of->path, "more memory", "%s", failed);
}

void lua_state_destroy(lua_rule *of)
{
    if (of->state != NULL) {
        lua_close(of->state);
    }
    of->state = NULL;
}
