/*
 * lua_context.c - ctx, through which a script asks and says: a table with params, tensors, step,
 * mode, mode_step and any_bad, and these methods.
 */
#include "rule_host/lua_rule.h"

#include <string.h>

static const char *found_text(lua_State *L, const char *key, const char *otherwise)
{
    const int type = lua_getfield(L, 2, key); /* stays on the stack: the text lives on */

    if (type == LUA_TNIL && otherwise != NULL) {
        return otherwise;
    }
    if (type != LUA_TSTRING) {
        (void)luaL_error(L, "found: %s is %s (expected a text)", key,
                         type == LUA_TNIL ? "missing" : luaL_typename(L, -1));
    }
    return lua_tostring(L, -1);
}

static double found_number(lua_State *L, const char *key)
{
    if (lua_getfield(L, 2, key) != LUA_TNUMBER) {
        (void)luaL_error(L, "found: %s is %s (expected a number)", key,
                         lua_isnil(L, -1) ? "missing" : luaL_typename(L, -1));
    }
    return lua_tonumber(L, -1);
}

static sonde_severity found_severity(lua_State *L)
{
    const char *text = found_text(L, "severity", "warning");

    for (int i = SONDE_SEVERITY_NOTE; i <= SONDE_SEVERITY_ERROR; i++) {
        if (strcmp(sonde_severity_name((sonde_severity)i), text) == 0) {
            return (sonde_severity)i;
        }
    }
    return (sonde_severity)luaL_error(
        L, "found: severity '%s' (expected note, warning or error)", text);
}

static size_t found_tensor(lua_State *L, const lua_rule *of)
{
    size_t count = 0;
    lua_Integer index = 0;

    (void)sonde_rule_tensors(of->run, &count);
    if (lua_getfield(L, 2, "tensor") == LUA_TNIL) {
        return SONDE_RULE_WHOLE_RUN;
    }
    index = lua_tensor_index(L, lua_gettop(L));
    if (index < 1 || (size_t)index > count) {
        (void)luaL_error(L, "found: tensor is none of ctx.tensors");
    }
    return (size_t)index - 1;
}

/* Findings borrow these texts: they stay. */
static void keep(const lua_rule *of, const char *text)
{
    lua_State *L = of->state;

    lua_rawgeti(L, LUA_REGISTRYINDEX, of->kept);
    lua_pushstring(L, text);
    (void)luaL_ref(L, -2);
    lua_pop(L, 1);
}

/* ctx:found{tensor =, severity =, statistic =, value =, threshold =, message =, advice =} */
static int context_found(lua_State *L)
{
    const lua_rule *of = lua_rule_of(L);
    size_t tensor = 0;
    const char *statistic = NULL, *message = NULL, *advice = NULL;
    sonde_severity severity = SONDE_SEVERITY_WARNING;
    double value = 0, threshold = 0;
    bool first = false;

    if (!of->may_find) {
        return luaL_error(L, "found is for observe, step, idle and finish");
    }
    luaL_checktype(L, 2, LUA_TTABLE);
    tensor = found_tensor(L, of);
    severity = found_severity(L);
    statistic = found_text(L, "statistic", NULL);
    message = found_text(L, "message", NULL);
    advice = found_text(L, "advice", of->rule.advice);
    value = found_number(L, "value");
    threshold = found_number(L, "threshold");
    first = sonde_rule_found(of->run, tensor, severity, statistic, value, threshold);
    if (first) {
        sonde_rule_say(of->run, advice != of->rule.advice ? advice : NULL, "%s", message);
        keep(of, statistic);
        keep(of, advice);
    }
    lua_pushboolean(L, first);
    return 1;
}

/* ctx:fail(text): the rule cannot go on. */
static int context_fail(lua_State *L)
{
    return luaL_error(L, "%s", luaL_checkstring(L, 2));
}

/* ctx:lacked(text): what of the evidence was missing. */
static int context_lacked(lua_State *L)
{
    sonde_rule_lacked(lua_rule_of(L)->run, "%s", luaL_checkstring(L, 2));
    return 0;
}

/* ctx:selects(tensor): whether the parameters do; and whether any was given. */
static int context_selects(lua_State *L)
{
    const lua_rule *of = lua_rule_of(L);
    bool given = false;

    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "id");
    lua_pushboolean(
        L, sonde_rule_selected(of->run, (uint32_t)luaL_checkinteger(L, -1), &given));
    lua_pushboolean(L, given);
    return 2;
}

/* ctx:tensor(name): one of ctx.tensors, or nil. */
static int context_tensor(lua_State *L)
{
    lua_rule *of = lua_rule_of(L);
    const size_t i = sonde_rule_find(of->run, "", luaL_checkstring(L, 2));

    if (i == SIZE_MAX) {
        lua_pushnil(L);
    } else {
        lua_push_own_tensor(of, i);
    }
    return 1;
}

void lua_context_update(lua_rule *of)
{
    lua_State *L = of->state;
    const sonde_coordinate *at = sonde_rule_at(of->run);

    lua_rawgeti(L, LUA_REGISTRYINDEX, of->context);
    lua_pushinteger(L, at->global_step);
    lua_setfield(L, -2, "step");
    lua_pushinteger(L, at->mode_step);
    lua_setfield(L, -2, "mode_step");
    lua_pushstring(L, sonde_mode_name(at->mode));
    lua_setfield(L, -2, "mode");
    lua_pushboolean(L, sonde_rule_any_bad(of->run));
    lua_setfield(L, -2, "any_bad");
    lua_pop(L, 1);
}

void lua_context_create(lua_rule *of)
{
    static const luaL_Reg methods[] = {
        {"found", context_found},   {"fail", context_fail},
        {"lacked", context_lacked}, {"selects", context_selects},
        {"tensor", context_tensor}, {NULL, NULL}};
    lua_State *L = of->state;

    lua_newtable(L);
    of->kept = luaL_ref(L, LUA_REGISTRYINDEX);
    luaL_newlib(L, methods);
    lua_rawgeti(L, LUA_REGISTRYINDEX, of->tensors);
    lua_setfield(L, -2, "tensors");
    of->context = luaL_ref(L, LUA_REGISTRYINDEX);
}
