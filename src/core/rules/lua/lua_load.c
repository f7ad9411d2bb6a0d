/*
 * lua_load.c - a script is run once; the table that it returns is a rule.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "rules/lua/lua_rule.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const function_names[LUA_RULE_FUNCTIONS] = {
    "init", "wants", "observe", "program", "step", "idle", "finish"};

/* --- fields ------------------------------------------------------------------------- */

/* Checks that the table on top has no other fields than these. what: "a rule". */
static void check_fields(lua_State *L, const char *what, const char *const *known,
                         size_t count)
{
    lua_pushnil(L);
    while (lua_next(L, -2) != 0) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        const char *nearest = NULL;
        bool found = false;

        for (size_t i = 0; i < count && key != NULL && !found; i++) {
            found = strcmp(known[i], key) == 0;
        }
        if (!found) {
            nearest = key != NULL ? sonde_diag_nearest(key, known, count) : NULL;
            (void)luaL_error(L, "%s has no field '%s'%s%s%s", what,
                             key != NULL ? key : luaL_typename(L, -2),
                             nearest != NULL ? " (expected " : "",
                             nearest != NULL ? nearest : "", nearest != NULL ? ")" : "");
        }
        lua_pop(L, 1);
    }
}

/* A text that lives as long as the Lua state. */
static const char *kept_text(lua_State *L)
{
    const char *text = lua_tostring(L, -1);

    lua_pushvalue(L, -1);
    (void)luaL_ref(L, LUA_REGISTRYINDEX);
    return text;
}

static const char *text_field(lua_State *L, const char *what, const char *key, bool must)
{
    const char *text = NULL;

    if (lua_getfield(L, -1, key) == LUA_TSTRING) {
        if (lua_rawlen(L, -1) != strlen(lua_tostring(L, -1))) {
            (void)luaL_error(L, "%s: %s holds a zero byte", what, key);
        }
        text = kept_text(L);
    } else if (must || !lua_isnil(L, -1)) {
        (void)luaL_error(L, "%s: %s is %s (expected a text)", what, key,
                         lua_isnil(L, -1) ? "missing" : luaL_typename(L, -1));
    }
    lua_pop(L, 1);
    return text;
}

/* Pushes a field of that type, or nil. */
static void push_field(lua_State *L, const char *what, const char *key, int type,
                       const char *expected)
{
    if (lua_getfield(L, -1, key) != LUA_TNIL && lua_type(L, -1) != type) {
        (void)luaL_error(L, "%s: %s is a %s (expected %s)", what, key,
                         luaL_typename(L, -1), expected);
    }
}

static bool flag_field(lua_State *L, const char *what, const char *key)
{
    push_field(L, what, key, LUA_TBOOLEAN, "true or false");
    const bool flag = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return flag;
}

static double number_field(lua_State *L, const char *what, const char *key)
{
    push_field(L, what, key, LUA_TNUMBER, "a number");
    const double number = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return number;
}

typedef void read_entry(lua_State *L, lua_rule *script, const char *what, size_t i);

/* Reads a list of tables, which may be missing. Returns its length. */
static size_t read_list(lua_State *L, lua_rule *script, const char *key, read_entry *read)
{
    size_t count = 0;

    if (lua_getfield(L, -1, key) != LUA_TNIL) {
        if (!lua_istable(L, -1)) {
            (void)luaL_error(L, "%s is a %s (expected a list of tables)", key,
                             luaL_typename(L, -1));
        }
        count = lua_rawlen(L, -1);
    }
    if (count > SONDE__RULE_MOST) {
        (void)luaL_error(L, "%d entries in %s (expected at most %d)", (int)count, key,
                         SONDE__RULE_MOST);
    }
    for (size_t i = 0; i < count; i++) {
        char what[96];

        (void)snprintf(what, sizeof what, "%s[%zu]", key, i + 1);
        if (lua_rawgeti(L, -1, (lua_Integer)i + 1) != LUA_TTABLE) {
            (void)luaL_error(L, "%s is a %s (expected a table)", what,
                             luaL_typename(L, -1));
        }
        read(L, script, what, i);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return count;
}

/* The index of the text on top among names; an error if it is none of them. */
static size_t one_of(lua_State *L, const char *what, const char *const *names,
                     size_t count)
{
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?";
    luaL_Buffer all;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    luaL_buffinit(L, &all);
    for (size_t i = 0; i < count; i++) {
        luaL_addstring(&all, i > 0 ? ", " : "");
        luaL_addstring(&all, names[i]);
    }
    luaL_pushresult(&all);
    return (size_t)luaL_error(L, "%s '%s' (expected one of %s)", what, text,
                              lua_tostring(L, -1));
}

/* A bit for the name on top, or for each of a list of names; 0 for nil. */
static unsigned bits_of(lua_State *L, const char *what, const char *const *names,
                        size_t count)
{
    unsigned bits = 0;

    if (lua_isnil(L, -1)) {
        return 0;
    }
    if (!lua_istable(L, -1)) {
        return 1U << one_of(L, what, names, count);
    }
    for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
        bits |= 1U << one_of(L, what, names, count);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return bits;
}

/* --- parameters --------------------------------------------------------------------- */

/* A number as a user would write it: the shortest text that is read back as the same. */
static const char *number_text(lua_State *L, double value)
{
    char text[40];

    for (int digits = 6; digits <= 17; digits++) {
        (void)sonde__snprintf(text, sizeof text, "%.*g", digits, value);
        if (sonde__strtod(text, NULL) == value) {
            break;
        }
    }
    lua_pushstring(L, text);
    return lua_tostring(L, -1);
}

/* Reads the default on top; sets kind and text. */
static void read_default(lua_State *L, const char *what, sonde_rule_param *param)
{
    switch (lua_type(L, -1)) {
    case LUA_TNIL:
        return;
    case LUA_TBOOLEAN:
        param->kind = SONDE_RULE_FLAG;
        param->initial = lua_toboolean(L, -1) ? "true" : "false";
        return;
    case LUA_TNUMBER:
        param->kind = lua_isinteger(L, -1) ? SONDE_RULE_COUNT : SONDE_RULE_REAL;
        if (param->kind == SONDE_RULE_COUNT) {
            lua_pushfstring(L, "%I", lua_tointeger(L, -1));
        } else {
            (void)number_text(L, lua_tonumber(L, -1));
        }
        break;
    case LUA_TSTRING:
        param->kind = SONDE_RULE_TEXT;
        lua_pushvalue(L, -1);
        break;
    default:
        (void)luaL_error(L, "%s: default is a %s (expected a number, text or boolean)",
                         what, luaL_typename(L, -1));
    }
    param->initial = kept_text(L);
    lua_pop(L, 1);
}

static void read_param(lua_State *L, lua_rule *script, const char *what, size_t i)
{
    static const char *const fields[] = {"name", "kind", "default", "least",
                                         "most", "help", "required"};
    static const char *const kinds[] = {"real", "count", "flag",
                                        "text", "regex", "collections"};
    sonde_rule_param *param = &script->params[i];

    check_fields(L, what, fields, SONDE_COUNT_OF(fields));
    param->name = text_field(L, what, "name", true);
    param->help = text_field(L, what, "help", true);
    param->least = number_field(L, what, "least");
    param->most = number_field(L, what, "most");
    param->required = flag_field(L, what, "required");
    param->offset = sizeof(lua_work) + i * LUA_RULE_FIELD;
    param->kind = SONDE_RULE_TEXT;
    lua_getfield(L, -1, "default");
    read_default(L, what, param);
    lua_pop(L, 1);
    if (lua_getfield(L, -1, "kind") != LUA_TNIL) {
        param->kind = (sonde_rule_kind)one_of(L, "kind", kinds, SONDE_COUNT_OF(kinds));
    }
    lua_pop(L, 1);
}

/* --- needs -------------------------------------------------------------------------- */

/* A number of steps; 0 if the field is missing. */
static int64_t steps_field(lua_State *L, const char *what, const char *key)
{
    const double steps = number_field(L, what, key);

    if (!(steps >= 0.0 && steps <= 1e15)) {
        (void)luaL_error(L, "%s: %s is %f (expected steps, 0 or more)", what, key, steps);
    }
    return (int64_t)steps;
}

static void read_need(lua_State *L, lua_rule *script, const char *what, size_t i)
{
    static const char *const hows[] = {"values", "vitals", "sketch", "hash"};
    static const char *const fields[] = {"what",  "how", "optional", "every",
                                         "first", "row", "row_every"};
    sonde_rule_need *need = &script->needs[i];

    check_fields(L, what, fields, SONDE_COUNT_OF(fields));
    need->what = text_field(L, what, "what", true);
    need->optional = flag_field(L, what, "optional");
    need->when.every = steps_field(L, what, "every");
    need->when.first = steps_field(L, what, "first");
    need->when.row = steps_field(L, what, "row");
    need->when.row_every = steps_field(L, what, "row_every");
    need->how = lua_getfield(L, -1, "how") == LUA_TNIL
                    ? SONDE_HOW_VITALS
                    : bits_of(L, "how", hows, SONDE_COUNT_OF(hows));
    lua_pop(L, 1);
}

/* --- the table ---------------------------------------------------------------------- */

static void read_functions(lua_State *L, lua_rule *script)
{
    for (size_t i = 0; i < LUA_RULE_FUNCTIONS; i++) {
        const int type = lua_getfield(L, -1, function_names[i]);

        if (type != LUA_TFUNCTION && type != LUA_TNIL) {
            (void)luaL_error(L, "%s is a %s (expected a function)", function_names[i],
                             luaL_typename(L, -1));
        }
        script->functions[i] = LUA_NOREF;
        if (type == LUA_TFUNCTION) {
            script->functions[i] = luaL_ref(L, LUA_REGISTRYINDEX);
        } else {
            lua_pop(L, 1);
        }
    }
}

static void check_wants(lua_State *L, const lua_rule *script)
{
    bool selects = script->functions[LUA_RULE_WANTS] != LUA_NOREF;

    for (size_t i = 0; i < script->rule.param_count && !selects; i++) {
        selects = script->params[i].kind == SONDE_RULE_REGEX ||
                  script->params[i].kind == SONDE_RULE_COLLECTIONS;
    }
    if (!selects) {
        (void)luaL_error(L, "it selects no tensors (expected a function wants, or a "
                            "parameter with kind = \"regex\" or \"collections\")");
    }
}

static void read_rule(lua_State *L, lua_rule *script)
{
    static const char *const fields[] = {
        "name",  "summary", "condition", "advice",       "params",
        "needs", "modes",   "init",      "by_name_only", "wants",
        "step",  "observe", "idle",      "finish",       "program"};
    static const char *const modes[] = {"train", "eval", "predict"};
    sonde_rule *rule = &script->rule;

    check_fields(L, "a rule", fields, SONDE_COUNT_OF(fields));
    rule->name = text_field(L, "rule", "name", true);
    rule->summary = text_field(L, "rule", "summary", true);
    rule->condition = text_field(L, "rule", "condition", true);
    rule->advice = text_field(L, "rule", "advice", true);
    rule->by_name_only = flag_field(L, "rule", "by_name_only");
    lua_getfield(L, -1, "modes");
    rule->modes = bits_of(L, "mode", modes, SONDE_COUNT_OF(modes));
    lua_pop(L, 1);
    rule->param_count = read_list(L, script, "params", read_param);
    rule->need_count = read_list(L, script, "needs", read_need);
    read_functions(L, script);
    if (rule->need_count > 0) {
        check_wants(L, script);
    } else if (script->functions[LUA_RULE_PROGRAM] == LUA_NOREF) {
        (void)luaL_error(L, "it has no needs (expected needs = {{what = \"...\"}}, or a "
                            "function program)");
    }
}

static int load_script(lua_State *L)
{
    lua_rule *script = lua_rule_of(L);

    lua_pushfstring(L, "@%s", script->name);
    if (luaL_loadbufferx(L, script->text, script->size, lua_tostring(L, -1), "t") !=
        LUA_OK) {
        return lua_error(L);
    }
    lua_call(L, 0, 1);
    if (!lua_istable(L, -1)) {
        return luaL_error(L, "the script returns %s (expected a rule: a table)",
                          lua_isnil(L, -1) ? "nothing" : luaL_typename(L, -1));
    }
    read_rule(L, script);
    lua_objects_create(script);
    return 0;
}

sonde_err lua_rule_fail(const lua_rule *script, const char *text, sonde_diag *diag)
{
    const size_t length = strlen(script->name);
    char where[320];
    size_t digits = 0;

    (void)snprintf(where, sizeof where, "%s", script->path);
    if (strncmp(text, script->name, length) == 0 && text[length] == ':') {
        digits = strspn(text + length + 1, "0123456789");
    }
    if (digits > 0 && text[length + 1 + digits] == ':') {
        (void)snprintf(where, sizeof where, "%s:%.*s", script->path, (int)digits,
                       text + length + 1);
        text += length + digits + 2;
        text += strspn(text, " ");
    }
    return sonde__fail(diag, script->limits.starved ? SONDE_ENOMEM : SONDE_EINVAL, where,
                       NULL, "%s", text);
}

void lua_rule_close(lua_rule *script)
{
    if (script == NULL) {
        return;
    }
    lua_state_destroy(script);
    sonde__free(script->text);
    sonde__free(script);
}

sonde_err lua_rule_open(const char *text, size_t size, const char *path,
                        const sonde_rule_limits *limits, lua_rule **out, sonde_diag *diag)
{
    const char *slash = strrchr(path, '/');
    lua_rule *script = sonde__calloc(1, sizeof *script);

    if (script == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    (void)snprintf(script->path, sizeof script->path, "%s", path);
    (void)snprintf(script->name, sizeof script->name, "%s",
                   slash != NULL ? slash + 1 : path);
    script->wanted = *limits;
    script->size = size;
    script->text = sonde__malloc(size);
    sonde_err err = sonde__fail_nomem(diag, path);

    if (script->text != NULL) {
        memcpy(script->text, text, size);
        err = lua_state_create(script, diag);
    }
    if (err == SONDE_OK) {
        const char *failed = lua_run(script, load_script, NULL);

        err = failed != NULL ? lua_rule_fail(script, failed, diag) : SONDE_OK;
    }
    if (err != SONDE_OK) {
        lua_rule_close(script);
        return err;
    }
    script->rule.abi = SONDE_RULE_ABI;
    script->rule.params = script->params;
    script->rule.needs = script->needs;
    script->rule.state_size =
        sizeof(lua_work) + script->rule.param_count * LUA_RULE_FIELD;
    *out = script;
    return SONDE_OK;
}
