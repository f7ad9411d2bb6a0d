/*
 * lua_rule.h - a rule that is a script.
 *
 *     lua_load.c      the table that the script returns becomes a sonde_rule
 *     lua_script.c    the Lua state with its limits, and the functions of that row
 *     lua_objects.c   ctx, tensors, vital signs, values and sketches
 *
 * A failure in Lua, also of memory, leaves by longjmp. So everything runs inside lua_run,
 * and code there holds nothing that only C would free.
 */
#ifndef SONDE_RULE_HOST_LUA_RULE_H
#define SONDE_RULE_HOST_LUA_RULE_H

#include "rule_host/host.h"

#include <lauxlib.h>
#include <lua.h>

enum { LUA_RULE_MOST = 64, LUA_RULE_FIELD = 8 /* bytes of a parameter in the state */ };

typedef enum lua_function {
    LUA_RULE_INIT,
    LUA_RULE_WANTS,
    LUA_RULE_OBSERVE,
    LUA_RULE_STEP,
    LUA_RULE_IDLE,
    LUA_RULE_FINISH,
    LUA_RULE_FUNCTIONS
} lua_function;

typedef struct lua_rule {
    sonde_rule rule; /* first */
    sonde_rule_param params[LUA_RULE_MOST];
    sonde_rule_need needs[LUA_RULE_MOST];
    lua_State *state;
    size_t used, most; /* bytes */
    int instructions;
    char path[256];
    char name[56]; /* of the file, as in error messages before the line number */
    int functions[LUA_RULE_FUNCTIONS];                        /* references; LUA_NOREF */
    int context, tensors, vitals, seen, values, sketch, kept; /* references */
    sonde_rule_run *run;                                      /* at work */
    const sonde_observation *observed;                        /* while observe runs */
    bool stepping; /* vital signs are those of the step */
    bool may_find;
} lua_rule;

/* --- lua_script.c ------------------------------------------------------------------- */

sonde_err lua_state_create(lua_rule *script, const sonde_rule_limits *limits,
                           sonde_diag *diag);
void lua_state_destroy(lua_rule *script);
lua_rule *lua_rule_of(lua_State *L);
/* Runs work with arg as its only argument, a light userdata. Returns NULL on success,
 * else the error, valid until the next run. */
const char *lua_run(lua_rule *script, lua_CFunction work, void *arg);

/* --- lua_load.c --------------------------------------------------------------------- */

/* Fills diag with an error of lua_run before the rule is at work: "NAME:12: what" becomes
 * "PATH:12" and "what". */
sonde_err lua_rule_fail(const lua_rule *script, const char *text, sonde_diag *diag);

void lua_rule_functions(lua_rule *script);

/* --- lua_objects.c: inside lua_run only --------------------------------------------- */

void lua_context_create(lua_rule *script);
/* Updates ctx.step, mode, mode_step and any_bad. */
void lua_context_update(lua_rule *script);

/* Makes the metatables and ctx. */
void lua_objects_create(lua_rule *script);
/* The index of the rule's tensor at that argument, from 1; 0 if it is none. */
lua_Integer lua_tensor_index(lua_State *L, int argument);
/* Pushes a new object for a tensor that is not the rule's yet. */
void lua_push_tensor(lua_rule *script, const sonde_tensor_info *info, uint32_t id);
/* Makes the object on top tensor i and pops it. */
void lua_adopt_tensor(lua_rule *script, size_t i, int need);
void lua_push_own_tensor(lua_rule *script, size_t i);

#endif
