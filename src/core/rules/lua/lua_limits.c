/*
 * lua_limits.c - a Lua state with limits.
 *
 * A script has no access to files, programs or bytecode, and finds nothing that differs
 * from run to run. A call is limited in instructions and in processor time; the script in
 * memory and in what it prints. The time is looked at every thousand instructions and when
 * the script asks for much memory.
 *
 * A function of Lua's library that is written in C counts as one instruction. Those that
 * could run for ever are limited by their arguments: patterns, string.rep, table.move. A
 * finalizer would run without limits: there is no __gc.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "rules/lua/lua_rule.h"

#include <limits.h>
#include <lualib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    LOOK = 1000,         /* instructions between two looks at the clock */
    LARGE = 1 << 20,     /* bytes: look at the clock */
    PRINT_MOST = 1 << 20 /* bytes that a script may print */
};
#define MATCHES_MOST 1e9 /* ways to match a pattern: some seconds */

static double processor_time(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool is_late(lua_limits *limits)
{
    limits->late = limits->late || processor_time() > limits->deadline;
    return limits->late;
}

/* --- memory ------------------------------------------------------------------------- */

static void *allocate(void *user, void *block, size_t old_size, size_t size)
{
    lua_limits *limits = &((lua_rule *)user)->limits;
    const size_t before = block != NULL ? old_size : 0;

    if (size == 0) {
        sonde__free(block);
        limits->used -= before;
        return NULL;
    }
    if (size > before && (size - before > limits->most - limits->used ||
                          (size - before >= LARGE && is_late(limits)))) {
        return NULL;
    }
    void *moved = sonde__grow(block, before, size);

    if (moved == NULL) {
        limits->starved = size > before;
        return limits->starved ? NULL : block; /* Lua counts on a block that shrinks */
    }
    limits->used += size - before;
    return moved;
}

/* --- the library -------------------------------------------------------------------- */

lua_rule *lua_rule_of(lua_State *L)
{
    lua_rule *script = NULL;

    memcpy(&script, lua_getextraspace(L), sizeof(void *));
    return script;
}

static void write_text(lua_rule *script, const char *text, size_t size)
{
    const size_t before = script->limits.printed;

    script->limits.printed += size;
    if (script->limits.printed <= PRINT_MOST) {
        (void)fwrite(text, 1, size, stderr);
    } else if (before <= PRINT_MOST) {
        script->limits.printed = (size_t)PRINT_MOST + 1;
        (void)fprintf(stderr, "\n%s: it printed more than 1 MB; the rest is dropped\n",
                      script->name);
    }
}

/* print: to standard error, since standard output belongs to the program. */
static int limited_print(lua_State *L)
{
    lua_rule *script = lua_rule_of(L);
    const int count = lua_gettop(L);

    for (int i = 1; i <= count; i++) {
        size_t size = 0;
        const char *text = luaL_tolstring(L, i, &size);

        write_text(script, text, size);
        write_text(script, i < count ? "\t" : "\n", 1);
        lua_pop(L, 1);
    }
    return 0;
}

/* An upper bound of the ways to match a pattern with a text of that length: each
 * repetition, and the start of a match that is not anchored, is at any place behind the
 * one before. */
static double matches(const char *pattern, size_t length, size_t text)
{
    double ways = 1.0, places = 0.0;
    bool in_set = false;

    for (size_t i = 0; i < length; i++) {
        if (pattern[i] == '%') {
            i++;
        } else if (in_set) {
            in_set = pattern[i] != ']';
        } else if (pattern[i] == '[') {
            in_set = true;
            i += i + 1 < length && pattern[i + 1] == '^';
            i += i + 1 < length && pattern[i + 1] == ']';
        } else if (strchr("*+-", pattern[i]) != NULL || (i == 0 && pattern[i] != '^')) {
            places += 1.0;
            ways *= ((double)text + places) / places;
        } else if (pattern[i] == '?') {
            ways *= 2.0;
        }
    }
    return ways;
}

/* check(text, pattern, init, plain), by the library's function on the caller's behalf. */
static int check_pattern(lua_State *L)
{
    size_t text = 0, length = 0;
    const char *pattern = lua_tolstring(L, 2, &length);

    if (pattern == NULL || lua_tolstring(L, 1, &text) == NULL) {
        return 0; /* the library says so */
    }
    const double ways = lua_toboolean(L, 4) ? (double)text * (double)length
                                            : matches(pattern, length, text);

    if (ways > MATCHES_MOST) {
        luaL_where(L, 2);
        lua_pushfstring(L, "a pattern that could match %d bytes in too many ways",
                        (int)SONDE_MIN(text, (size_t)INT_MAX));
        lua_concat(L, 2);
        return lua_error(L);
    }
    return 0;
}

/* pairs in the order of keys: the order of Lua's own pairs differs between processes. */
static const char prelude[] =
    "local next, type, sort, rawget = next, type, table.sort, rawget\n"
    "local error, check = error, ...\n"
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
    "for _, name in ipairs {'find', 'match', 'gmatch', 'gsub'} do\n"
    "    local original, plain = string[name], name == 'find'\n"
    "    string[name] = function(text, pattern, init, flag, ...)\n"
    "        check(text, pattern, init, plain and flag)\n"
    "        return original(text, pattern, init, flag, ...)\n"
    "    end\n"
    "end\n"
    "local rep, move, set = string.rep, table.move, setmetatable\n"
    "function string.rep(text, n, gap)\n"
    "    if text == '' and (gap or '') == '' then return '' end\n"
    "    return rep(text, n, gap)\n"
    "end\n"
    "function table.move(from, first, last, ...)\n"
    "    if first and last and last - first > 1e7 then\n"
    "        error('more than 10000000 elements to move', 2)\n"
    "    end\n"
    "    return move(from, first, last, ...)\n"
    "end\n"
    "function setmetatable(object, meta)\n"
    "    if type(meta) == 'table' and rawget(meta, '__gc') ~= nil then\n"
    "        error('a rule has no finalizers: __gc', 2)\n"
    "    end\n"
    "    return set(object, meta)\n"
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
    lua_register(L, "print", limited_print);
    if (luaL_loadbufferx(L, prelude, sizeof prelude - 1, "=sonde", "t") != LUA_OK) {
        return lua_error(L);
    }
    lua_pushcfunction(L, check_pattern);
    lua_call(L, 1, 0);
    lua_pushnil(L); /* scripts cannot reach the libraries by this table */
    lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    return 0;
}

/* --- running ------------------------------------------------------------------------ */

/* After every LOOK instructions. Once a limit is exceeded every instruction fails, so that
 * no pcall can continue. */
static void look(lua_State *L, lua_Debug *where)
{
    lua_limits *limits = &lua_rule_of(L)->limits;

    (void)where;
    limits->left -= SONDE_MIN(limits->left, LOOK);
    if (limits->left > 0 && !is_late(limits)) {
        if (limits->left < LOOK) { /* the call takes time for each function that is on */
            lua_sethook(L, look, LUA_MASKCOUNT, limits->left);
        }
        return;
    }
    lua_sethook(L, look, LUA_MASKCOUNT, 1);
    luaL_where(L, 0);
    if (limits->late) {
        lua_pushfstring(L, "more than %f s of processor time in one call",
                        limits->seconds);
    } else {
        lua_pushfstring(L, "more than %d instructions in one call", limits->instructions);
    }
    lua_concat(L, 2);
    (void)lua_error(L);
}

const char *lua_run(lua_rule *script, lua_CFunction work, void *arg)
{
    lua_State *L = script->state;
    lua_limits *limits = &script->limits;
    const locale_t before = uselocale(script->locale);

    lua_settop(L, 0);
    lua_pushcfunction(L, work);
    lua_pushlightuserdata(L, arg);
    limits->left = limits->instructions;
    limits->late = false;
    limits->deadline = processor_time() + limits->seconds;
    lua_sethook(L, look, LUA_MASKCOUNT, SONDE_MIN(limits->left, LOOK));
    const int failed = lua_pcall(L, 1, 0, 0);

    limits->deadline = INFINITY;
    lua_sethook(L, NULL, 0, 0);
    (void)uselocale(before);
    if (failed == LUA_OK) {
        return NULL;
    }
    if (failed == LUA_ERRMEM) {
        (void)sonde__snprintf(limits->fault, sizeof limits->fault,
                              "more than %g s of processor time in one call",
                              limits->seconds);
        return limits->late ? limits->fault : "it exceeds its memory limit";
    }
    return lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1)
                                          : "an error value that is not a text";
}

sonde_err lua_state_create(lua_rule *script, sonde_diag *diag)
{
    lua_limits *limits = &script->limits;

    limits->most = (size_t)SONDE_MIN(script->wanted.memory, SIZE_MAX / 2);
    limits->instructions = (int)SONDE_MIN(script->wanted.instructions, (uint64_t)INT_MAX);
    limits->seconds = script->wanted.seconds;
    limits->deadline = INFINITY;
    script->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    script->state = lua_newstate(allocate, script);
    if (script->state == NULL || script->locale == (locale_t)0) {
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
    if (script->locale != (locale_t)0) {
        freelocale(script->locale);
    }
    script->state = NULL;
}
