/*
 * cli_findings.h - findings as lines, the verdict, and the actions of a command that
 * judges a run.
 */
#ifndef SONDE_CLI_CLI_FINDINGS_H
#define SONDE_CLI_CLI_FINDINGS_H

#include <sonde/rules.h>
#include <sonde/actions.h>
#include <sonde/nn/trainer.h>

#include <sonde/text.h>

#include "cli/cli.h"

/* --- findings ----------------------------------------------------------------------- */

/* One line: "step 412 (epoch 2): error: ExplodingTensor: fc1.weight (train.py:41): message
 * advice".
 * epoch 0: not known. */
void cli_print_finding(FILE *stream, const sonde_finding *finding, int epoch);
/* The length of a sentence without its full stop, for "%.*s". */
int cli_sentence(const char *text);

/* Adds the value of a rule's parameter, with a backslash before each comma in it. */
void cli_add_value(sonde_text *text, const char *value);

/* The findings of a command, as they come. {0} is a new one. */
typedef struct cli_finding_log {
    bool json;
    struct {
        const char *rule;
        size_t times; /* that it found a cause */
    } spoken[64];
} cli_finding_log;

typedef enum cli_finding_share {
    CLI_FINDING_WHOLE, /* the first few causes of a rule */
    CLI_FINDING_MORE,  /* the first after these: one line for all that come */
    CLI_FINDING_NONE,  /* what follows from a cause: the verdict counts it */
} cli_finding_share;

/* Counts the finding; how much of it is printed. */
cli_finding_share cli_finding_count(cli_finding_log *log, const sonde_finding *finding);
/* The line for all further findings of that kind. */
void cli_print_more(FILE *stream, const sonde_finding *finding, int epoch);

/* Prints a finding: on stdout with json, else on stderr, and of each rule only the first
 * few. Until cli_log_omit_finding(false), the log leaves out its line about a finding that was
 * printed. */
void cli_finding_log_put(cli_finding_log *log, const sonde_finding *finding, int epoch);
/* Events of a trainer: a warning; whether Ctrl-C was pressed. */
void cli_on_warning(void *user, const char *text);
bool cli_is_interrupted(void *user);
/* Room for the text of a verdict. */
enum { CLI_VERDICT_TEXT = 2048 };
/* One line on stdout; nothing without rules. */
void cli_print_verdict(const sonde_nn_trainer *trainer, bool json);

/* --- actions ------------------------------------------------------------------------ */

/* As on the command line; a command has one in its own struct. */
typedef struct cli_acting {
    cli_list on_finding;
    double timeout;
    bool each;
} cli_acting;

/* The actions on the findings of a run in another process; *out stays NULL without any.
 */
sonde_err cli_actions_open(const cli_acting *acting, const char *run, sonde_actions **out,
                           sonde_diag *diag);
/* Waits for actions that are not done and warns of lost ones. NULL is fine. */
void cli_actions_close(sonde_actions *actions);
/* Lets each action log that it was done, unless SONDE_LOG_LEVEL chooses the level. */
void cli_actions_log(void);

#define CLI_ACTING_OPTIONS(values)                                                       \
    {"on-finding",                                                                       \
     0,                                                                                  \
     CLI_LIST,                                                                           \
     "[WHEN=]ACTION",                                                                    \
     "log, stop, checkpoint, command:TEXT or webhook:URL; WHEN is a rule, error, "       \
     "warning or any",                                                                   \
     offsetof(values, acting.on_finding)},                                               \
        {"each",                                                                         \
         0,                                                                              \
         CLI_FLAG,                                                                       \
         NULL,                                                                           \
         "act on every finding, not only on the first of a rule",                        \
         offsetof(values, acting.each)},                                                 \
    {                                                                                    \
        "action-timeout", 0, CLI_REAL, "SECONDS",                                        \
            "limit each command (60) and each try of a webhook (10)",                    \
            offsetof(values, acting.timeout)                                             \
    }

/* How many findings of these rules are in RUN/findings that the rules have not found. */
size_t cli_count_kept(const char *run, sonde_rules *rules);

#endif
