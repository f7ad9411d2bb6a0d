/*
 * lua_objects.c - what a script works with.
 *
 *     ctx       a table: params, tensors, step, mode, mode_step, any_bad; methods found,
 *               fail, lacked, selects, tensor
 *     tensor    a table: name, role ..., memory; vitals is looked up on access
 *     vitals, seen, values, sketch
 *               userdata without content: they read the data of the current call, and
 *               raise an error if there is none
 */
#include "base/fail.h"
#include "base/macros.h"
#include "rules/lua/lua_rule.h"

#include <math.h>
#include <string.h>

/* --- vital signs -------------------------------------------------------------------- */

/* A number of an object of C. */
typedef struct field {
    const char *name;
    size_t offset;
    bool is_count;
} field;

#define FIELD(type, name, is_count)                                                      \
    {                                                                                    \
#name, offsetof(type, name), is_count                                            \
    }
#define VITAL(name, is_count) FIELD(sonde_vitals, name, is_count)
static const field vitals[] = {
    VITAL(count, true),   VITAL(nan, true),      VITAL(pos_inf, true),
    VITAL(neg_inf, true), VITAL(zero, true),     VITAL(min, false),
    VITAL(max, false),    VITAL(abs_min, false), VITAL(abs_max, false),
    VITAL(mean, false),   VITAL(m2, false),      VITAL(l1, false),
    VITAL(sumsq, false),  VITAL(sum, false),
};
#define COUNTED(name) FIELD(sonde_sketch, name, true)
static const field counts[] = {COUNTED(count), COUNTED(nan), COUNTED(pos_inf),
                               COUNTED(neg_inf), COUNTED(zero)};

/* Pushes the number of that name, if there is one. */
static bool push_number(lua_State *L, const void *object, const char *name,
                        const field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const void *at = (const char *)object + fields[i].offset;

        if (strcmp(fields[i].name, name) == 0) {
            if (fields[i].is_count) {
                lua_pushinteger(L, (lua_Integer) * (const uint64_t *)at);
            } else {
                lua_pushnumber(L, *(const double *)at);
            }
            return true;
        }
    }
    return false;
}

/* Computed from them, over the finite elements; NaN if there is none. */
static const char *const derived[] = {"finite", "nonfinite", "variance", "std",
                                      "rms",    "l2",        "abs_mean"};

static void push_derived(lua_State *L, const sonde_vitals *v, size_t which)
{
    const uint64_t bad = v->nan + v->pos_inf + v->neg_inf;
    const double n = (double)(v->count - bad);
    const double values[] = {n,
                             (double)bad,
                             v->m2 / n,
                             sqrt(v->m2 / n),
                             sqrt(v->sumsq / n),
                             sqrt(v->sumsq),
                             v->l1 / n};

    if (which < 2) {
        lua_pushinteger(L, (lua_Integer)values[which]);
    } else {
        lua_pushnumber(L, values[which]);
    }
}

static int no_vital(lua_State *L, const char *key)
{
    const char *names[SONDE_COUNT_OF(vitals) + SONDE_COUNT_OF(derived)];
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(vitals); i++) {
        names[count++] = vitals[i].name;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(derived); i++) {
        names[count++] = derived[i];
    }
    const char *nearest = sonde_diag_nearest(key, names, count);
    return luaL_error(L, "no vital sign is called '%s' (expected %s)", key,
                      nearest != NULL ? nearest : "mean, max, rms ...");
}

/* The vital signs of the object's tensor; NULL if it was not seen at this step. */
static const sonde_vitals *vitals_of(const lua_rule *script, lua_Integer index)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(script->run, &count);

    return script->stepping && index >= 1 && (size_t)index <= count
               ? tensors[index - 1].vitals
               : NULL;
}

static int vitals_index(lua_State *L)
{
    const lua_Integer *index = luaL_checkudata(L, 1, "sonde.vitals");
    const char *key = luaL_checkstring(L, 2);
    const sonde_vitals *v = vitals_of(lua_rule_of(L), *index);

    if (v == NULL) {
        return luaL_error(L, "vital signs are only valid during the step they belong to");
    }
    if (push_number(L, v, key, vitals, SONDE_COUNT_OF(vitals))) {
        return 1;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(derived); i++) {
        if (strcmp(derived[i], key) == 0) {
            push_derived(L, v, i);
            return 1;
        }
    }
    return no_vital(L, key);
}

/* --- tensors ------------------------------------------------------------------------ */

lua_Integer lua_tensor_index(lua_State *L, int argument)
{
    lua_Integer index = 0;

    if (lua_istable(L, argument)) {
        lua_pushliteral(L, "index");
        if (lua_rawget(L, argument) == LUA_TNUMBER) {
            index = lua_tointeger(L, -1);
        }
        lua_pop(L, 1);
    }
    return index;
}

static int tensor_lookup(lua_State *L)
{
    const lua_rule *script = lua_rule_of(L);
    const lua_Integer index = lua_tensor_index(L, 1);

    if (lua_type(L, 2) != LUA_TSTRING || strcmp(lua_tostring(L, 2), "vitals") != 0 ||
        vitals_of(script, index) == NULL) {
        lua_pushnil(L);
        return 1;
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->vitals);
    lua_rawgeti(L, -1, index);
    return 1;
}

static void set_text(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

static void push_shape(lua_State *L, int rank, const int64_t *shape)
{
    lua_createtable(L, rank, 0);
    for (int i = 0; i < rank; i++) {
        lua_pushinteger(L, shape[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

void lua_push_tensor(lua_rule *script, const sonde_tensor_info *info, uint32_t id)
{
    lua_State *L = script->state;

    lua_createtable(L, 0, 14);
    set_text(L, "name", info->name);
    set_text(L, "module", info->module);
    set_text(L, "op", info->op);
    set_text(L, "note", info->note);
    set_text(L, "role", sonde_role_name(info->role));
    set_text(L, "pass", sonde_pass_name(info->pass));
    set_text(L, "dtype", sonde_dtype_name(info->dtype));
    push_shape(L, info->rank, info->shape);
    lua_setfield(L, -2, "shape");
    lua_pushinteger(L, id);
    lua_setfield(L, -2, "id");
    if (info->same_as != id) {
        set_text(L, "same_as", sonde_rule_info(script->run, info->same_as)->name);
    }
    lua_newtable(L);
    lua_setfield(L, -2, "memory");
    luaL_setmetatable(L, "sonde.tensor");
}

void lua_adopt_tensor(lua_rule *script, size_t i, int need)
{
    lua_State *L = script->state;
    const lua_Integer index = (lua_Integer)i + 1;
    lua_Integer *vitals_at = NULL;

    lua_pushinteger(L, index);
    lua_setfield(L, -2, "index");
    lua_pushinteger(L, need + 1);
    lua_setfield(L, -2, "need");
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->tensors);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, index);
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->vitals);
    vitals_at = lua_newuserdatauv(L, sizeof *vitals_at, 0);
    *vitals_at = index;
    luaL_setmetatable(L, "sonde.vitals");
    lua_rawseti(L, -2, index);
    lua_pop(L, 3);
}

void lua_push_own_tensor(lua_rule *script, size_t i)
{
    lua_rawgeti(script->state, LUA_REGISTRYINDEX, script->tensors);
    lua_rawgeti(script->state, -1, (lua_Integer)i + 1);
    lua_remove(script->state, -2);
}

/* --- values and sketches ------------------------------------------------------------ */

static const sonde_observation *observed(lua_State *L)
{
    const sonde_observation *observation = lua_rule_of(L)->observed;

    if (observation == NULL) {
        (void)luaL_error(L, "the arguments of observe are only valid while it runs");
    }
    return observation;
}

/* Element i of a view, in row-major order. */
static const void *element(const sonde_view *view, int64_t i)
{
    int64_t index[SONDE_MAX_DIMS] = {0};

    for (int axis = view->rank - 1; axis >= 0; axis--) {
        index[axis] = i % view->shape[axis];
        i /= view->shape[axis];
    }
    return sonde_view_at(view, index);
}

static void push_element(lua_State *L, const sonde_view *view, int64_t i)
{
    const void *spot = element(view, i);

    if (view->dtype == SONDE_I64 || view->dtype == SONDE_U64) {
        int64_t value = 0;

        memcpy(&value, spot, sizeof value);
        lua_pushinteger(L, value);
    } else if (sonde_dtype_is_float(view->dtype)) {
        lua_pushnumber(L, sonde_element_get(view->dtype, spot));
    } else {
        lua_pushinteger(L, (lua_Integer)sonde_element_get(view->dtype, spot));
    }
}

/* values[i]: the elements in row-major order, from 1. */
static int values_index(lua_State *L)
{
    const sonde_view *view = observed(L)->view;
    const lua_Integer i = luaL_checkinteger(L, 2);
    const int64_t count = view != NULL ? sonde_view_count(view) : 0;

    if (i < 1 || i > count) {
        return luaL_error(L, "values[%I] is out of range (there are %I)", i,
                          (lua_Integer)count);
    }
    push_element(L, view, i - 1);
    return 1;
}

static int values_length(lua_State *L)
{
    const sonde_view *view = observed(L)->view;

    lua_pushinteger(L, view != NULL ? sonde_view_count(view) : 0);
    return 1;
}

static int sketch_quantile(lua_State *L)
{
    const sonde_sketch *sketch = observed(L)->sketch;

    if (sketch == NULL) {
        return luaL_error(L, "no sketch was seen");
    }
    lua_pushnumber(L, sonde_sketch_quantile(sketch, luaL_checknumber(L, 2)));
    return 1;
}

static int sketch_index(lua_State *L)
{
    const sonde_sketch *sketch = observed(L)->sketch;
    const char *key = luaL_checkstring(L, 2);

    if (strcmp(key, "quantile") == 0) {
        lua_pushcfunction(L, sketch_quantile);
        return 1;
    }
    if (sketch == NULL) {
        return luaL_error(L, "no sketch was seen");
    }
    if (push_number(L, sketch, key, counts, SONDE_COUNT_OF(counts))) {
        return 1;
    }
    return luaL_error(L,
                      "a sketch has no '%s' (expected quantile, count, zero, nan, "
                      "pos_inf or neg_inf)",
                      key);
}

/* Fields of `observation`; nil for those that it does not have. */
static int seen_index(lua_State *L)
{
    const lua_rule *script = lua_rule_of(L);
    const sonde_observation *observation = observed(L);
    const char *key = luaL_checkstring(L, 2);

    lua_pushnil(L);
    if (strcmp(key, "values") == 0) {
        if (observation->view != NULL) {
            lua_rawgeti(L, LUA_REGISTRYINDEX, script->values);
        }
    } else if (strcmp(key, "shape") == 0) {
        if (observation->view != NULL) {
            push_shape(L, observation->view->rank, observation->view->shape);
        }
    } else if (strcmp(key, "sketch") == 0) {
        if (observation->sketch != NULL) {
            lua_rawgeti(L, LUA_REGISTRYINDEX, script->sketch);
        }
    } else if (strcmp(key, "hash") == 0) {
        if (observation->hash != 0) {
            lua_pushinteger(L, (lua_Integer)observation->hash);
        }
    } else if (strcmp(key, "micro_batch") == 0) {
        lua_pushinteger(L, observation->at.micro_batch);
    } else if (strcmp(key, "replica") == 0) {
        lua_pushinteger(L, observation->at.replica);
    } else {
        return luaL_error(L,
                          "seen has no field '%s' (expected values, shape, "
                          "sketch, hash, micro_batch or replica)",
                          key);
    }
    return 1;
}

/* --- ctx ---------------------------------------------------------------------------- */

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

static size_t found_tensor(lua_State *L, const lua_rule *script)
{
    size_t count = 0;

    (void)sonde_rule_tensors(script->run, &count);
    if (lua_getfield(L, 2, "tensor") == LUA_TNIL) {
        return SONDE_RULE_WHOLE_RUN;
    }
    const lua_Integer index = lua_tensor_index(L, lua_gettop(L));
    if (index < 1 || (size_t)index > count) {
        (void)luaL_error(L, "found: tensor is not in ctx.tensors");
    }
    return (size_t)index - 1;
}

/* Keeps a text that findings borrow. */
static void keep(const lua_rule *script, const char *text)
{
    lua_State *L = script->state;

    lua_rawgeti(L, LUA_REGISTRYINDEX, script->kept);
    lua_pushstring(L, text);
    (void)luaL_ref(L, -2);
    lua_pop(L, 1);
}

/* The line that found is given; file NULL: none. */
static sonde_place found_place(lua_State *L)
{
    sonde_place place = {NULL, 0};
    const int type = lua_getfield(L, 2, "place"); /* stays on the stack */

    if (type == LUA_TNIL) {
        return place;
    }
    if (type != LUA_TTABLE || lua_getfield(L, -1, "file") != LUA_TSTRING ||
        lua_getfield(L, -2, "line") != LUA_TNUMBER) {
        (void)luaL_error(L, "found: place is no place of a program");
    }
    place.line = (int)lua_tointeger(L, -1);
    place.file = lua_tostring(L, -2);
    return place;
}

/* The name of the tensor of a finding with a line; "": none. */
static const char *found_name(lua_State *L)
{
    if (lua_getfield(L, 2, "tensor") == LUA_TTABLE) {
        (void)lua_getfield(L, -1, "name");
    }
    return lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
}

/* ctx:found{tensor =, place =, severity =, statistic =, value =, threshold =, message =,
 * advice =} */
static int context_found(lua_State *L)
{
    const lua_rule *script = lua_rule_of(L);
    const char *statistic = NULL, *message = NULL, *advice = NULL;
    sonde_severity severity = SONDE_SEVERITY_WARNING;
    double value = 0, threshold = 0;

    if (!script->may_find) {
        return luaL_error(L,
                          "found may only be called in observe, program, step, idle and "
                          "finish");
    }
    luaL_checktype(L, 2, LUA_TTABLE);
    const sonde_place place = found_place(L);
    const char *name = place.file != NULL ? found_name(L) : NULL;
    const size_t tensor = name == NULL ? found_tensor(L, script) : SONDE_RULE_WHOLE_RUN;
    severity = found_severity(L);
    statistic = found_text(L, "statistic", NULL);
    message = found_text(L, "message", NULL);
    advice = found_text(L, "advice", script->rule.advice);
    value = found_number(L, "value");
    threshold = found_number(L, "threshold");
    const bool first = name != NULL
                           ? sonde_rule_found_at(script->run, name, place, severity,
                                                 statistic, value, threshold)
                           : sonde_rule_found(script->run, tensor, severity, statistic,
                                              value, threshold);
    if (first) {
        sonde_rule_say(script->run, advice != script->rule.advice ? advice : NULL, "%s",
                       message);
        keep(script, statistic);
        keep(script, advice);
    }
    lua_pushboolean(L, first);
    return 1;
}

/* ctx:fail(text): the rule cannot continue. */
static int context_fail(lua_State *L)
{
    return luaL_error(L, "%s", luaL_checkstring(L, 2));
}

/* ctx:lacked(text): evidence that was missing. */
static int context_lacked(lua_State *L)
{
    sonde_rule_lacked(lua_rule_of(L)->run, "%s", luaL_checkstring(L, 2));
    return 0;
}

/* ctx:selects(tensor): whether parameters select it, and whether any is given. */
static int context_selects(lua_State *L)
{
    const lua_rule *script = lua_rule_of(L);
    bool given = false;

    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "id");
    lua_pushboolean(
        L, sonde_rule_selected(script->run, (uint32_t)luaL_checkinteger(L, -1), &given));
    lua_pushboolean(L, given);
    return 2;
}

/* ctx:tensor(name): one of ctx.tensors, or nil. */
static int context_tensor(lua_State *L)
{
    lua_rule *script = lua_rule_of(L);
    const size_t i = sonde_rule_find(script->run, "", luaL_checkstring(L, 2));

    if (i == SIZE_MAX) {
        lua_pushnil(L);
    } else {
        lua_push_own_tensor(script, i);
    }
    return 1;
}

void lua_context_update(lua_rule *script)
{
    lua_State *L = script->state;
    const sonde_coordinate *place = sonde_rule_at(script->run);

    lua_rawgeti(L, LUA_REGISTRYINDEX, script->context);
    lua_pushinteger(L, place->global_step);
    lua_setfield(L, -2, "step");
    lua_pushinteger(L, place->mode_step);
    lua_setfield(L, -2, "mode_step");
    lua_pushstring(L, sonde_mode_name(place->mode));
    lua_setfield(L, -2, "mode");
    lua_pushboolean(L, sonde_rule_any_bad(script->run));
    lua_setfield(L, -2, "any_bad");
    lua_pop(L, 1);
}

static void create_context(lua_rule *script)
{
    static const luaL_Reg methods[] = {
        {"found", context_found},   {"fail", context_fail},
        {"lacked", context_lacked}, {"selects", context_selects},
        {"tensor", context_tensor}, {NULL, NULL}};
    lua_State *L = script->state;

    lua_newtable(L);
    script->kept = luaL_ref(L, LUA_REGISTRYINDEX);
    luaL_newlib(L, methods);
    lua_rawgeti(L, LUA_REGISTRYINDEX, script->tensors);
    lua_setfield(L, -2, "tensors");
    script->context = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* --- making ------------------------------------------------------------------------- */

static void make_metatable(lua_State *L, const char *name, const luaL_Reg *functions)
{
    (void)luaL_newmetatable(L, name);
    luaL_setfuncs(L, functions, 0);
    lua_pushboolean(L, 0); /* scripts do not see it */
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

static int make_object(lua_State *L, const char *name)
{
    (void)lua_newuserdatauv(L, 1, 0);
    luaL_setmetatable(L, name);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

static int make_list(lua_State *L)
{
    lua_newtable(L);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

void lua_objects_create(lua_rule *script)
{
    static const luaL_Reg vitals_methods[] = {{"__index", vitals_index}, {NULL, NULL}},
                          tensor_methods[] = {{"__index", tensor_lookup}, {NULL, NULL}},
                          values_methods[] = {{"__index", values_index},
                                              {"__len", values_length},
                                              {NULL, NULL}},
                          sketch_methods[] = {{"__index", sketch_index}, {NULL, NULL}},
                          seen_methods[] = {{"__index", seen_index}, {NULL, NULL}};
    lua_State *L = script->state;

    make_metatable(L, "sonde.vitals", vitals_methods);
    make_metatable(L, "sonde.tensor", tensor_methods);
    make_metatable(L, "sonde.values", values_methods);
    make_metatable(L, "sonde.sketch", sketch_methods);
    make_metatable(L, "sonde.seen", seen_methods);
    script->values = make_object(L, "sonde.values");
    script->sketch = make_object(L, "sonde.sketch");
    script->seen = make_object(L, "sonde.seen");
    script->tensors = make_list(L);
    script->vitals = make_list(L);
    create_context(script);
}
