/*
 * hosted.h - users' rules seen from the process that judges: their descriptions, and the
 * process that runs one.
 *
 *     user_files.c   files of rules: a host reads one and describes its rules
 *     rule_names.c   rules by name, built in or from a file
 *     hosted.c       the host of a rule, and the functions of the rule's row
 *     wire.c         messages between the two
 *
 * Each rule at work has a host of its own, so it can harm no other rule.
 */
#ifndef SONDE_RULES_USER_HOSTED_H
#define SONDE_RULES_USER_HOSTED_H

#include "base/names.h"
#include "rules/engine.h"
#include "rules/user/wire.h"

#define SONDE__RULE_SECONDS 2.0
#define SONDE__RULE_PATIENCE 10.0 /* times that: the limit in real time */
enum {
    SONDE__RULE_MEMORY = 256 << 20,
    SONDE__RULE_INSTRUCTIONS = 50000000,
    SONDE__RULE_MOST = 64 /* rules of a file; parameters and needs of a rule */
};

/* --- the process -------------------------------------------------------------------- */

typedef struct sonde__user_host sonde__user_host;

/* Starts a host and lets it read the file. *rules is its answer, borrowed until the next
 * one. */
sonde_err sonde__user_host_start(const char *path, const sonde_rule_limits *limits,
                                 sonde__user_host **out, sonde__user_message *rules,
                                 sonde_diag *diag);
sonde__user_wire *sonde__user_host_wire(sonde__user_host *host);
/* Sends the messages that were written and waits for the next one. SONDE_OK also for the
 * messages ERROR and FAILED. */
sonde_err sonde__user_host_ask(sonde__user_host *host, sonde__user_message *answer);
/* Ends the host after one of these functions failed and describes what happened, as the
 * end of a sentence that begins with "it". */
const char *sonde__user_host_fate(sonde__user_host *host, sonde_err err, char *buf,
                                  size_t size);
/* Fills diag from a message ERROR; its place is the file unless the message names
 * another. */
sonde_err sonde__user_host_error(sonde__user_message *message, const char *path,
                                 sonde_diag *diag);
/* Waits a while for the host to end by itself, then ends it. Accepts NULL. */
void sonde__user_host_stop(sonde__user_host *host);

/* --- descriptions ------------------------------------------------------------------- */

/* A rule of a file. The file owns its texts. */
typedef struct sonde__user_hosted {
    sonde_rule rule; /* first */
    const char *path;
    const sonde_rule_limits *limits;
    sonde_rule_param *params;
    sonde_rule_need *needs;
} sonde__user_hosted;

/* The beginning of the state of such a rule; its parameters follow, 8 bytes each. */
typedef struct sonde__user_hosted_state {
    sonde__user_host *host; /* NULL after it has ended */
    sonde__names texts;     /* of findings */
    char *collections;      /* of one tensor, comma-separated */
    size_t capacity;
} sonde__user_hosted_state;

/* Writes a rule's row to a message; reads it back as the row of a hosted rule, whose
 * texts are borrowed from the message. SONDE_EFORMAT if the message is invalid. */
SONDE_API void sonde__user_rule_describe(sonde__user_wire *wire, const sonde_rule *rule);
SONDE_API SONDE_CHECKED sonde_err sonde__user_rule_read(sonde__user_message *message,
                                                        sonde__user_hosted *out);
SONDE_API void sonde__user_hosted_fini(sonde__user_hosted *hosted);
/* Checks that a user's row is complete and valid. */
SONDE_API SONDE_CHECKED sonde_err sonde__user_rule_check(const sonde_rule *rule,
                                                         const char *path,
                                                         sonde_diag *diag);

/* The path that the file was opened with; borrowed. */
const char *sonde__user_file_path(const sonde_rule_file *file);

/* hosted.c: fills in the row's functions. */
void sonde__user_hosted_functions(sonde_rule *rule);

#endif
