/*
 * actions_queue.c - commands and webhooks wait here, at most SONDE_ACTIONS_QUEUE of them, for one
 * thread. One that is to be tried again goes back with the time before which it must not be, so a
 * webhook that does not answer holds nobody else up between its tries.
 */
#include "rules/actions/actions_state.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"

#include <sonde/log.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- the thread ------------------------------------------------------------------- */

static struct timespec at_time(double seconds)
{
    const time_t whole = (time_t)seconds;

    return (struct timespec){whole, (long)(1e9 * (seconds - (double)whole))};
}

/* The job that has waited longest of those that may be done now; NULL if none, and *next is
 * when the first may be (0: no job at all). Under lock. */
static sonde__action_job *take_due(sonde__actions_queue *queue, double *next)
{
    const double now = sonde__now();

    *next = 0.0;
    for (size_t i = 0; i < queue->count; i++) {
        sonde__action_job *job = queue->jobs[i];

        if (job->due <= now) {
            memmove(&queue->jobs[i], &queue->jobs[i + 1],
                    (queue->count - i - 1) * sizeof(sonde__action_job *));
            queue->count--;
            return job;
        }
        *next = *next <= 0.0 ? job->due : SONDE_MIN(*next, job->due);
    }
    return NULL;
}

/* The backoff doubles with each try, and is drawn between half and one and a half of that,
 * so that many trainers that lost the same server do not come back at once. */
static double again_in(const sonde_actions *actions, const sonde__action_job *job)
{
    const double base = actions->options.backoff_seconds *
                        (double)(1U << (unsigned)SONDE_MIN(job->tried - 1, 16));
    const uint64_t seed = (uint64_t)(1e9 * sonde__now());

    return base * (0.5 + (double)sonde__uniform(seed, 0, (uint64_t)job->tried));
}

/* Does it once. True: it is to be tried again, at job->due. */
static bool work(sonde_actions *actions, sonde__action_job *job)
{
    const bool webhook = job->action->kind == SONDE__ACTION_WEBHOOK;
    const char *kind = webhook ? "webhook" : "command";
    char said[SONDE__JOB_SAID] = "";
    sonde__action_job_end end = SONDE__JOB_FAILED;

    job->tried++;
    if (webhook) {
        (void)atomic_fetch_add(&actions->tries, 1);
        end = sonde__action_webhook(actions, job, said);
    } else {
        end = sonde__action_command(actions, job, said);
    }
    if (end == SONDE__JOB_DONE) {
        (void)atomic_fetch_add(&actions->done, 1);
        sonde_log(SONDE_LOG_INFO, "actions", "%s '%.200s' for %s: %s", kind,
                  job->action->text, job->what, said);
        return false;
    }
    if (end == SONDE__JOB_AGAIN && job->tried < actions->options.webhook_tries &&
        !sonde__actions_given_up(actions)) {
        job->due = sonde__now() + again_in(actions, job);
        return true;
    }
    (void)atomic_fetch_add(&actions->failed, 1);
    sonde_log(SONDE_LOG_WARNING, "actions", "%s '%.200s' for %s failed%s: %s", kind,
              job->action->text, job->what, job->tried > 1 ? " again and again" : "",
              said);
    return false;
}

/* Under lock: waits for something to do. */
static sonde__action_job *next_job(sonde__actions_queue *queue)
{
    for (;;) {
        double next = 0.0;
        sonde__action_job *job = NULL;

        if (atomic_load(&queue->give_up)) {
            return NULL;
        }
        job = take_due(queue, &next);
        if (job != NULL) {
            return job;
        }
        if (next > 0.0) {
            const struct timespec until = at_time(next);

            (void)pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
        } else {
            (void)pthread_cond_wait(&queue->changed, &queue->lock);
        }
    }
}

static void *run_queue(void *user)
{
    sonde_actions *actions = user;
    sonde__actions_queue *queue = &actions->queue;
    sonde__action_job *job = NULL;

    (void)pthread_mutex_lock(&queue->lock);
    while ((job = next_job(queue)) != NULL) {
        bool again = false;

        queue->busy = true;
        (void)pthread_mutex_unlock(&queue->lock);
        again = work(actions, job);
        (void)pthread_mutex_lock(&queue->lock);
        queue->busy = false;
        if (again && queue->count < SONDE_ACTIONS_QUEUE) {
            queue->jobs[queue->count++] = job;
        } else {
            if (again) {
                (void)atomic_fetch_add(&actions->lost, 1);
            }
            sonde__free(job);
        }
        (void)pthread_cond_broadcast(&queue->changed);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* --- from outside ------------------------------------------------------------------ */

sonde_err sonde__actions_queue_init(sonde__actions_queue *queue, sonde_diag *diag)
{
    pthread_condattr_t monotonic;

    if (pthread_condattr_init(&monotonic) != 0) {
        return sonde__fail_nomem(diag, "actions");
    }
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    queue->made = pthread_cond_init(&queue->changed, &monotonic) == 0;
    (void)pthread_condattr_destroy(&monotonic);
    if (queue->made && pthread_mutex_init(&queue->lock, NULL) != 0) {
        (void)pthread_cond_destroy(&queue->changed);
        queue->made = false;
    }
    return queue->made ? SONDE_OK : sonde__fail_nomem(diag, "actions");
}

sonde_err sonde__actions_queue_start(sonde_actions *actions, sonde_diag *diag)
{
    sonde__actions_queue *queue = &actions->queue;
    sigset_t all, before;
    int failed = 0;

    if (queue->started) {
        return SONDE_OK;
    }
    /* signals are the program's; and a command that does not read must not kill it */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&queue->thread, NULL, run_queue, actions);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        return sonde__fail(diag, SONDE_ENOMEM, "actions", NULL,
                           "cannot start a thread: %s", strerror(failed));
    }
    queue->started = true;
    return SONDE_OK;
}

void sonde__actions_queue_put(sonde_actions *actions, sonde__action_job *job)
{
    sonde__actions_queue *queue = &actions->queue;
    bool full = false, tell = false;

    (void)pthread_mutex_lock(&queue->lock);
    full = queue->count == SONDE_ACTIONS_QUEUE || atomic_load(&queue->give_up);
    if (!full) {
        queue->jobs[queue->count++] = job;
        (void)pthread_cond_broadcast(&queue->changed);
    } else {
        tell = !queue->told;
        queue->told = true;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (full) {
        (void)atomic_fetch_add(&actions->lost, 1);
        sonde__free(job);
    }
    if (tell) {
        sonde_log(SONDE_LOG_WARNING, "actions",
                  "%d commands and webhooks are waiting: some are left out",
                  SONDE_ACTIONS_QUEUE);
    }
}

bool sonde__actions_given_up(const sonde_actions *actions)
{
    return atomic_load(&actions->queue.give_up);
}

bool sonde_actions_finish(sonde_actions *actions, double seconds)
{
    sonde__actions_queue *queue = &actions->queue;
    const struct timespec until = at_time(sonde__now() + seconds);
    int waited = 0;
    size_t left = 0;

    (void)pthread_mutex_lock(&queue->lock);
    while ((queue->count > 0 || queue->busy) && waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
    }
    left = queue->count;
    for (size_t i = 0; i < left; i++) {
        sonde__free(queue->jobs[i]);
    }
    queue->count = 0;
    if (left > 0 || queue->busy) { /* what is at work ends as failed */
        atomic_store(&queue->give_up, true);
        (void)pthread_cond_broadcast(&queue->changed);
    }
    while (queue->busy) {
        (void)pthread_cond_wait(&queue->changed, &queue->lock);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (left > 0) {
        (void)atomic_fetch_add(&actions->lost, left);
        sonde_log(SONDE_LOG_WARNING, "actions", "%zu commands and webhooks were given up",
                  left);
    }
    return atomic_load(&actions->lost) == 0 && atomic_load(&actions->failed) == 0;
}

void sonde__actions_queue_fini(sonde_actions *actions)
{
    sonde__actions_queue *queue = &actions->queue;

    if (!queue->made) {
        return;
    }
    (void)pthread_mutex_lock(&queue->lock);
    atomic_store(&queue->give_up, true);
    (void)pthread_cond_broadcast(&queue->changed);
    (void)pthread_mutex_unlock(&queue->lock);
    if (queue->started) {
        (void)pthread_join(queue->thread, NULL);
    }
    for (size_t i = 0; i < queue->count; i++) {
        sonde__free(queue->jobs[i]);
    }
    (void)pthread_cond_destroy(&queue->changed);
    (void)pthread_mutex_destroy(&queue->lock);
}
