/*
 * actions.h - what is done about a finding: log, stop, checkpoint, run a command, POST it.
 *
 *     create; add "stop", "error=checkpoint", "VanishingGradient=webhook:https://..." ...;
 *     take, for every finding that is new (sonde_rules_on_finding); finish; destroy
 *
 * An action is done once for each rule that it is for, unless options.each. A log line, a stop and a
 * checkpoint are done at once; commands and webhooks on a thread of the actions' own, started
 * when the first is added, from a queue that holds QUEUE of them: whoever trains never waits. What
 * was done, and what failed, is logged (<sonde/log.h>, room "actions") and counted.
 *
 * take, finish and get_stats: one thread.
 */
#ifndef SONDE_ACTIONS_H
#define SONDE_ACTIONS_H

#include <sonde/control.h>
#include <sonde/rules.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SONDE_ACTIONS_QUEUE = 64, SONDE_ACTIONS_MOST = 64 };

typedef struct sonde_actions sonde_actions;

typedef struct sonde_actions_options {
    /* Where stop and checkpoint go: to a run loop of this process (borrowed until destroy), or to
     * the run of that folder (copied). Both NULL: nowhere, and adding them fails. */
    sonde_control *control;
    const char *run;
    bool each;              /* for every finding, not once for a rule */
    double command_seconds; /* until a command is killed; 0: 60 */
    double webhook_seconds; /* for each try; 0: 10 */
    int webhook_tries;      /* 0: 5 */
    double
        backoff_seconds; /* before the second try, then doubled, each times 0.5 ... 1.5;
                               0: 0.5 */
} sonde_actions_options;

/* options are copied, NULL: defaults. */
SONDE_API SONDE_CHECKED sonde_err sonde_actions_create(
    const sonde_actions_options *options, sonde_actions **out, sonde_diag *diag);
/* Gives up what is not done. NULL is fine. */
SONDE_API void sonde_actions_destroy(sonde_actions *actions);

/*
 * Adds one, "[WHEN=]ACTION".
 *
 * WHEN is the name of a rule, or the least severity: note (or any; the default), warning, error.
 * ACTION is
 *     log             a line in the log
 *     stop            the run ends after its step, with a checkpoint; end.json says why
 *     checkpoint      the run saves one after its step
 *     command:TEXT    /bin/sh -c TEXT, the finding as JSON on its standard input and its fields in
 *                     SONDE_FINDING_ID, _RULE, _SEVERITY, _TENSOR, _STEP, _VALUE, _THRESHOLD,
 *                     _MESSAGE; its standard output is standard error; no other file is open
 *     webhook:URL     the JSON is POSTed (http or https); anything but a status of 2xx failed.
 *                     No answer, 408, 429 and 5xx are tried again; redirects are not followed
 * SONDE_EINVAL for what is none of these, SONDE_EUNSUPPORTED for a webhook without libcurl.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_actions_add(sonde_actions *actions,
                                                    const char *text, sonde_diag *diag);
/* SONDE_ENOTFOUND if one is for a rule that is not among these. */
SONDE_API SONDE_CHECKED sonde_err sonde_actions_check(const sonde_actions *actions,
                                                      const sonde_rules *rules,
                                                      sonde_diag *diag);
SONDE_API size_t sonde_actions_count(const sonde_actions *actions);

SONDE_API void sonde_actions_take(sonde_actions *actions, const sonde_finding *finding);

/* Waits until all is done; what is not after seconds is given up and counted as lost. True if
 * nothing was. */
SONDE_API bool sonde_actions_finish(sonde_actions *actions, double seconds);

typedef struct sonde_actions_stats {
    uint64_t done;   /* of all kinds */
    uint64_t failed; /* refused, timed out, ended with another status than 0 */
    uint64_t tries;  /* of webhooks, failed ones counted in */
    uint64_t lost;   /* the queue was full, or the end came first */
} sonde_actions_stats;
SONDE_API void sonde_actions_get_stats(sonde_actions *actions,
                                       sonde_actions_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
