/*
 * actions_state.h - actions from inside.
 *
 *     actions.c          what an action is for, and whether it is its turn; the quick kinds
 *     actions_queue.c    jobs of the slow kinds, and the thread that does them
 *     actions_command.c  a shell with the finding on its standard input
 *     actions_webhook.c  one POST
 */
#ifndef SONDE_RULES_ACTIONS_ACTIONS_STATE_H
#define SONDE_RULES_ACTIONS_ACTIONS_STATE_H

#include <sonde/error.h>
#include <sonde/actions.h>

#include "base/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <pthread.h>
#include <stdatomic.h>

typedef enum sonde__action_kind {
    SONDE__ACTION_LOG,
    SONDE__ACTION_STOP,
    SONDE__ACTION_CHECKPOINT,
    SONDE__ACTION_COMMAND,
    SONDE__ACTION_WEBHOOK
} sonde__action_kind;

typedef struct sonde__action {
    sonde__action_kind kind;
    char *text; /* the command, the URL; else NULL */
    char *rule; /* whose findings it is for; NULL: of severity least and above */
    sonde_severity least;
    sonde__names did; /* rules that it was done for */
} sonde__action;

enum { SONDE__JOB_JSON = 8192, SONDE__JOB_FIELDS = 8, SONDE__JOB_FIELD = 640 };

/* A slow action to be done: copies, so that the finding may go. */
typedef struct sonde__action_job {
    const sonde__action *action;
    double due; /* not before */
    int tried;
    size_t length;
    char what[160]; /* for the log: "ExplodingTensor at step 412" */
    char json[SONDE__JOB_JSON];
    char fields[SONDE__JOB_FIELDS][SONDE__JOB_FIELD]; /* "SONDE_FINDING_RULE=..." */
} sonde__action_job;

typedef enum sonde__action_job_end {
    SONDE__JOB_DONE,
    SONDE__JOB_AGAIN,
    SONDE__JOB_FAILED
} sonde__action_job_end;

typedef struct sonde__actions_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job, the end, or one job fewer; on the monotonic clock */
    pthread_t thread;
    bool made, started;
    sonde__action_job *jobs[SONDE_ACTIONS_QUEUE]; /* under lock */
    size_t count;
    bool busy;           /* the thread has one in hand */
    bool told;           /* that it is full */
    atomic_bool give_up; /* read by jobs at work */
} sonde__actions_queue;

struct sonde_actions {
    sonde_actions_options options; /* run: a copy */
    char *run;
    sonde__action items[SONDE_ACTIONS_MOST];
    size_t count;
    sonde__actions_queue queue;
    atomic_uint_fast64_t done, failed, tries, lost;
};

/* --- actions_queue.c -------------------------------------------------------------- */

sonde_err sonde__actions_queue_init(sonde__actions_queue *queue, sonde_diag *diag);
void sonde__actions_queue_fini(sonde_actions *actions);
/* Starts the thread if it is not there. */
sonde_err sonde__actions_queue_start(sonde_actions *actions, sonde_diag *diag);
/* Takes the job. A full queue: it is lost, counted, and told the first time. */
void sonde__actions_queue_put(sonde_actions *actions, sonde__action_job *job);
/* Whether the end has come: jobs at work ask. */
bool sonde__actions_given_up(const sonde_actions *actions);

/* --- the slow kinds: on the thread; say what happened in `said` ---------------------- */

enum { SONDE__JOB_SAID = 256 };
sonde__action_job_end sonde__action_command(const sonde_actions *actions,
                                            const sonde__action_job *job,
                                            char said[SONDE__JOB_SAID]);
sonde__action_job_end sonde__action_webhook(const sonde_actions *actions,
                                            const sonde__action_job *job,
                                            char said[SONDE__JOB_SAID]);
/* SONDE_EINVAL for what is no URL of http or https. */
sonde_err sonde__action_webhook_check(const char *url, sonde_diag *diag);

#endif
