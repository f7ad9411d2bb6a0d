/*
 * actions_state.h - actions, their queue and their jobs.
 *
 *     actions.c       which findings an action is for; log, stop and checkpoint
 *     action_jobs.c   commands and webhooks, and the thread that runs them
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
    char *
        rule; /* the rule whose findings it is for; NULL: findings of severity least or above */
    sonde_severity least;
    sonde__names did; /* rules that it ran for */
} sonde__action;

enum { SONDE__JOB_JSON = 8192, SONDE__JOB_FIELDS = 8, SONDE__JOB_FIELD = 640 };

/* A slow action with copies of the finding. */
typedef struct sonde__action_job {
    const sonde__action *action;
    double due; /* the earliest time for it */
    int tried;
    size_t length;
    char what[160]; /* for the log: "ExplodingTensor at step 412" */
    char json[SONDE__JOB_JSON];
    char fields[SONDE__JOB_FIELDS][SONDE__JOB_FIELD]; /* "SONDE_FINDING_RULE=..." */
} sonde__action_job;

enum { SONDE__JOB_SAID = 256 }; /* bytes of what happened, for the log */

typedef enum sonde__action_job_end {
    SONDE__JOB_DONE,
    SONDE__JOB_AGAIN,
    SONDE__JOB_FAILED
} sonde__action_job_end;

typedef struct sonde__actions_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job was added or is done, or the end; monotonic clock */
    pthread_t thread;
    bool made, started;
    sonde__action_job *jobs[SONDE_ACTIONS_QUEUE]; /* under lock */
    size_t count;
    bool busy;           /* the thread runs a job */
    bool logged;         /* a full queue was reported */
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

/* --- action_jobs.c ------------------------------------------------------------------ */

sonde_err sonde__actions_queue_init(sonde__actions_queue *queue, sonde_diag *diag);
void sonde__actions_queue_fini(sonde_actions *actions);
/* Starts the thread if it does not run yet. */
sonde_err sonde__actions_queue_start(sonde_actions *actions, sonde_diag *diag);
/* Takes the job. If the queue is full, the job is dropped and counted as lost, and the
 * first one is logged. */
void sonde__actions_queue_put(sonde_actions *actions, sonde__action_job *job);
/* Seconds before the next try of a job that was tried so often. The backoff doubles with
 * each try and varies by a factor of 0.5 ... 1.5, so that many trainers that lost the same
 * server do not return at once. */
SONDE_API double sonde__action_wait(double backoff, int tried, uint64_t seed);
/* SONDE_EINVAL unless it is a URL of http or https. */
sonde_err sonde__action_check_url(const char *url, sonde_diag *diag);

#endif
