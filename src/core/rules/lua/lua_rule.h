/*
 * lua_rule.h - a rule that is a script.
 *
 *     lua_load.c      the table that the script returns becomes a sonde_rule
 *     lua_limits.c    a Lua state with its limits
 *     lua_script.c    the functions of that row, and the table that libsonde uses
 *     lua_objects.c   ctx, tensors, vital signs, values and sketches
 *     lua_program.c   programs, as tables
 *
 * A script is run once to read its row, and once more for each rule at work, which has a
 * Lua state of its own. So one rule cannot disturb another.
 *
 * A failure in Lua, also of memory, leaves by longjmp. So everything runs inside lua_run,
 * and code there holds nothing that only C would free.
 */
#ifndef SONDE_RULES_LUA_LUA_RULE_H
#define SONDE_RULES_LUA_LUA_RULE_H

#include "rules/rule_file.h"

#include <lauxlib.h>
#include <locale.h>
#include <lua.h>

typedef enum lua_function {
    LUA_RULE_INIT,
    LUA_RULE_WANTS,
    LUA_RULE_OBSERVE,
    LUA_RULE_PROGRAM,
    LUA_RULE_STEP,
    LUA_RULE_IDLE,
    LUA_RULE_FINISH,
    LUA_RULE_FUNCTIONS
} lua_function;

typedef struct lua_limits {
    size_t used, most;        /* bytes */
    int instructions, left;   /* of a call */
    double seconds, deadline; /* of processor time: of a call; on the thread's clock */
    size_t printed;           /* bytes */
    char fault[64];
    bool late, starved; /* the call ran out of time; the program out of memory */
} lua_limits;

typedef struct lua_rule {
    sonde_rule rule; /* first */
    sonde_rule_param params[SONDE__RULE_MOST];
    sonde_rule_need needs[SONDE__RULE_MOST];
    char *text; /* of the script */
    size_t size;
    sonde_rule_limits wanted;
    lua_State *state;
    lua_limits limits;
    locale_t locale; /* "C", while the script runs */
    char path[256];
    char name[56]; /* of the file, as in error messages before the line number */
    int functions[LUA_RULE_FUNCTIONS];                        /* references; LUA_NOREF */
    int context, tensors, vitals, seen, values, sketch, kept; /* references */
    sonde_rule_run *run;                                      /* at work */
    const sonde_observation *observed;                        /* while observe runs */
    bool stepping; /* vital signs are those of the step */
    bool may_find;
} lua_rule;

/* The state of a rule at work. Its parameters follow, LUA_RULE_FIELD bytes each. */
typedef struct lua_work {
    lua_rule *script; /* its own */
} lua_work;

enum { LUA_RULE_FIELD = 8 };

/* --- lua_limits.c ------------------------------------------------------------------- */

sonde_err lua_state_create(lua_rule *script, sonde_diag *diag);
void lua_state_destroy(lua_rule *script);
lua_rule *lua_rule_of(lua_State *L);
/* Runs work with arg as its only argument, a light userdata. Returns NULL on success,
 * else the error, valid until the next run. */
const char *lua_run(lua_rule *script, lua_CFunction work, void *arg);

/* --- lua_load.c --------------------------------------------------------------------- */

/* Fills diag with an error of lua_run before the rule is at work: "NAME:12: what" becomes
 * "PATH:12" and "what". */
sonde_err lua_rule_fail(const lua_rule *script, const char *text, sonde_diag *diag);
/* Runs the script in a new Lua state. path and text are copied. */
sonde_err lua_rule_open(const char *text, size_t size, const char *path,
                        const sonde_rule_limits *limits, lua_rule **out,
                        sonde_diag *diag);
void lua_rule_close(lua_rule *script); /* accepts NULL */

/* --- lua_objects.c: inside lua_run only --------------------------------------------- */

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

/* --- lua_program.c: inside lua_run only --------------------------------------------- */

void lua_push_program(lua_State *L, const sonde_program *program);

#endif
