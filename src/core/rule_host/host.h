/*
 * host.h - the program that runs a user's rule: sonde-rule-host.
 *
 *     host_main.c  prepares the process to run any code
 *     serve.c      messages of <rules/user/wire.h>: an engine of its own, with this one
 *                  rule
 *     plugin.c     rules of a shared object
 *     lua_*.c      rules of a script
 *
 * The rule runs in the same engine as built-in rules, with the same tensors under the
 * same ids and indices, so it can ask and report the same. One process runs one rule.
 */
#ifndef SONDE_RULE_HOST_HOST_H
#define SONDE_RULE_HOST_HOST_H

#include "rules/engine.h"

enum { RULES_MOST = 64 };

/* The rules of a file, and the object that holds them. */
typedef struct rule_source rule_source;
struct rule_source {
    const sonde_rule *rules[RULES_MOST];
    size_t count;
    void (*close)(rule_source *source);
    void *behind;
};

sonde_err plugin_open(const char *path, rule_source *source, sonde_diag *diag);
sonde_err lua_open(const char *path, const sonde_rule_limits *limits, rule_source *source,
                   sonde_diag *diag);
/* The same for a text in memory; path is used in errors. */
sonde_err lua_open_text(const char *text, size_t size, const char *path,
                        const sonde_rule_limits *limits, rule_source *source,
                        sonde_diag *diag);

/* Answers until the other end is closed. Returns the exit status of the process. */
int serve(int fd);

#endif
