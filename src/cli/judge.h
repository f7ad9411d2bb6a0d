/*
 * judge.h - rules in a command: those that judge what it trains, what is done about a finding,
 * and how findings are printed.
 */
#ifndef SONDE_CLI_JUDGE_H
#define SONDE_CLI_JUDGE_H

#include <sonde/actions.h>
#include <sonde/nn/job.h>
#include <sonde/nn/session.h>

#include "cli/cli.h"

/* --- findings ----------------------------------------------------------------------- */

/* "step 412 (epoch 2)", or "step 412" where epoch is 0; returns buf. */
const char *cli_when_text(int64_t step, int epoch, char buf[64]);
/* One line: "step 412 (epoch 2): error: ExplodingTensor: fc1.weight: message advice". */
void cli_print_finding(FILE *stream, const sonde_finding *finding, int epoch);
/* How much of a sentence stands before its full stop, for "%.*s". */
int cli_sentence(const char *text);

/* --- actions ------------------------------------------------------------------------ */

/* As on the command line; a command has one in its own struct. */
typedef struct cli_acting {
    cli_list on_finding;
    double timeout;
    bool each;
} cli_acting;

/* What is to be done about findings; *out stays NULL if nothing is. stop_on and listed (of a job,
 * may be NULL) are added to what was asked; control or run say where requests go. */
sonde_err cli_actions_open(const cli_acting *asked, const cli_list *stop_on,
                           const sonde_nn_job_rules *listed, sonde_control *control,
                           const char *run, sonde_actions **out, sonde_diag *diag);
/* Waits for what is not done yet; warns of what was lost. NULL is fine. */
void cli_actions_close(sonde_actions *actions);

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
         "act on every finding, not once for a rule",                                    \
         offsetof(values, acting.each)},                                                 \
    {                                                                                    \
        "action-timeout", 0, CLI_REAL, "SECONDS",                                        \
            "a command may take (60), or a try of a webhook (10)",                       \
            offsetof(values, acting.timeout)                                             \
    }

/* --- judging what is trained -------------------------------------------------------- */

typedef struct cli_judging {
    cli_list rules, stop_on;
    int64_t interval;
} cli_judging;

/* Whoever judges a command's own sessions. */
typedef struct cli_judge {
    sonde_rules *rules; /* NULL: nobody */
    sonde_actions *actions;
    sonde_control *control;         /* there, whoever judges */
    int64_t interval, raw_interval; /* in steps; raw 0: ten times as rarely */
    bool json;
    int epoch; /* that is trained, from 1; 0: not told */
    struct {
        const char *rule; /* that spoke, and how often */
        size_t times;
    } spoken[64];
} cli_judge;

/* run: where findings and requests go, or NULL. The judge is closed whatever is returned. */
sonde_err cli_judge_open(const cli_judging *asked, const cli_acting *acting,
                         const sonde_nn_job *job, const char *run, bool json,
                         cli_judge *judge, sonde_diag *diag);
/* Has a session judged, before compile. */
sonde_err cli_judge_attach(cli_judge *judge, sonde_nn_session *session, sonde_diag *diag);
/* Rules say what they can only say now; then one line of what came of it, if anybody judged. */
void cli_judge_verdict(cli_judge *judge);
/* After the sessions. */
void cli_judge_close(cli_judge *judge);

#define CLI_JUDGING_OPTIONS(values)                                                      \
    {"rules",                                                                            \
     0,                                                                                  \
     CLI_LIST,                                                                           \
     "NAME[:PARAM=VALUE],...",                                                           \
     "judge by these rules, not the default ones; none: not at all",                     \
     offsetof(values, judging.rules)},                                                   \
        {"rules-interval",                                                               \
         0,                                                                              \
         CLI_SIZE,                                                                       \
         "N",                                                                            \
         "look at everything at every N-th step (20), at losses at each",                \
         offsetof(values, judging.interval)},                                            \
    {                                                                                    \
        "stop-on", 0, CLI_LIST, "WHAT",                                                  \
            "stop on a finding of rule, error, warning or any",                          \
            offsetof(values, judging.stop_on)                                            \
    }

#endif
