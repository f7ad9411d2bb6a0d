/*
 * actions.h - actions on findings: log, stop, save a checkpoint, run a command, POST a
 * webhook.
 *
 *     create; add "stop", "error=checkpoint", "VanishingGradient=webhook:https://..." ...;
 *     take, for every new finding (sonde_rules_on_finding); finish; destroy
 *
 * An action runs once for each rule that it applies to, unless options.each is set. log,
 * stop and checkpoint run at once. Commands and webhooks run on a thread of their own,
 * which starts when the first one is added, from a queue of SONDE_ACTIONS_QUEUE jobs, so
 * training never waits for them. Successes and failures are logged (<sonde/log.h>, room
 * "actions") and counted.
 *
 * take, finish and get_stats: one thread.
 */
#ifndef SONDE_ACTIONS_H
#define SONDE_ACTIONS_H

#include <sonde/options.h>
#include <sonde/control.h>
#include <sonde/rules.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SONDE_ACTIONS_QUEUE = 64, SONDE_ACTIONS_MOST = 64 };

typedef struct sonde_actions sonde_actions;

typedef struct sonde_actions_options {
    size_t size; /* sizeof(sonde_actions_options) */
    /* The target of stop and checkpoint: a run loop of this process (borrowed until
     * destroy), or the run in a folder (copied). If both are NULL, adding stop or
     * checkpoint fails. */
    sonde_control *control;
    const char *run;
    bool each;              /* run for every finding, not once for a rule */
    double command_seconds; /* until a command is killed; 0: 60 */
    double webhook_seconds; /* for each try; 0: 10 */
    int webhook_tries;      /* 0: 5 */
    /* Before the second try; doubled for each further one, and varied by a factor of 0.5
     * ... 1.5; 0: 0.5. */
    double backoff_seconds;
} sonde_actions_options;

/* options are copied; NULL means defaults. */
SONDE_API SONDE_CHECKED sonde_err sonde_actions_create(
    const sonde_actions_options *options, sonde_actions **out, sonde_diag *diag);
/* Drops jobs that have not finished. Accepts NULL. */
SONDE_API void sonde_actions_destroy(sonde_actions *actions);

/*
 * Adds an action, "[WHEN=]ACTION".
 *
 * WHEN is the name of a rule, or the least severity: note (or any; the default), warning,
 * error. ACTION is
 *     log             a line in the log
 *     stop            ends the run after the current step, with a checkpoint; end.json has the reason
 *     checkpoint      saves a checkpoint after the current step
 *     command:TEXT    /bin/sh -c TEXT, the finding as JSON on its standard input and its fields in
 *                     SONDE_FINDING_ID, _RULE, _SEVERITY, _TENSOR, _STEP, _VALUE, _THRESHOLD,
 *                     _MESSAGE; its standard output is standard error; no other file is open
 *     webhook:URL     POSTs the JSON (http or https); success is a status of 2xx. No answer, 408,
 *                     429 and 5xx are tried again; redirects are not followed
 * SONDE_EINVAL for anything else, SONDE_EUNSUPPORTED for a webhook without libcurl.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_actions_add(sonde_actions *actions,
                                                    const char *text, sonde_diag *diag);
/* SONDE_ENOTFOUND if an action names a rule that is not among these. */
SONDE_API SONDE_CHECKED sonde_err sonde_actions_check(const sonde_actions *actions,
                                                      const sonde_rules *rules,
                                                      sonde_diag *diag);
SONDE_API size_t sonde_actions_count(const sonde_actions *actions);

SONDE_API void sonde_actions_take(sonde_actions *actions, const sonde_finding *finding);

/* Waits until all jobs have finished; drops those that have not after so many seconds and
 * counts them as lost. True if no action failed and none was lost. */
SONDE_API bool sonde_actions_finish(sonde_actions *actions, double seconds);

typedef struct sonde_actions_stats {
    uint64_t done;   /* succeeded, of all kinds */
    uint64_t failed; /* refused, timed out, or a status other than 0 */
    uint64_t tries;  /* of webhooks, including failed ones */
    uint64_t lost;   /* the queue was full, or the run ended first */
} sonde_actions_stats;
SONDE_API void sonde_actions_get_stats(sonde_actions *actions,
                                       sonde_actions_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
