/*
 * action_jobs.c - the slow actions, commands and webhooks, and the thread that runs them.
 *
 * At most SONDE_ACTIONS_QUEUE jobs wait. A job that is to be tried again goes back into
 * the queue with the time of its next try, so a webhook that does not answer delays no
 * other job between its tries.
 *
 * A command is a child of a process with threads: it is started with posix_spawn in a
 * process group of its own (so that a timeout ends all that it started, and Ctrl-C does
 * not reach it), with default signals and no open file but 0, 1 and 2. The finding is on
 * its standard input as JSON.
 *
 * A webhook is one POST by libcurl (base/curl.h).
 */
#include "rules/actions/actions_state.h"
#include "base/clock.h"
#include "base/curl.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/number.h"

#include <sonde/log.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* True once the run has ended and the remaining jobs are dropped. */
static bool given_up(const sonde_actions *actions)
{
    return atomic_load(&actions->queue.give_up);
}

/* --- a command ---------------------------------------------------------------------- */

/* The environment with the fields of the finding; returned new, its strings are borrowed.
 * NULL if out of memory. */
static char **make_environment(const sonde__action_job *job)
{
    size_t count = 0;
    char **made = NULL;

    while (environ[count] != NULL) {
        count++;
    }
    made = sonde__calloc(count + SONDE__JOB_FIELDS + 1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    memcpy(made, environ, count * sizeof *made);
    for (size_t i = 0; i < SONDE__JOB_FIELDS; i++) {
        const char *field = job->fields[i];

        memcpy(&made[count + i], &field, sizeof field); /* posix_spawn changes nothing */
    }
    return made;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int failed = posix_spawnattr_setsigmask(attributes, &none);
    failed = failed != 0 ? failed : posix_spawnattr_setsigdefault(attributes, &all);
    failed = failed != 0 ? failed : posix_spawnattr_setpgroup(attributes, 0);
    return failed != 0 ? failed
                       : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                                  POSIX_SPAWN_SETSIGDEF |
                                                                  POSIX_SPAWN_SETPGROUP);
}

/* Starts the command with `input` as its standard input. Returns 0 or an errno. */
static int start_shell(const sonde__action_job *job, int input, pid_t *child)
{
    char shell[] = "sh", option[] = "-c";
    char *arguments[] = {shell, option, job->action->text, NULL};
    char **environment = make_environment(job);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int failed = environment == NULL ? ENOMEM : posix_spawn_file_actions_init(&files);

    if (failed != 0) {
        sonde__free(environment);
        return failed;
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = posix_spawn_file_actions_adddup2(&files, input, 0);
        failed = failed != 0 ? failed : posix_spawn_file_actions_adddup2(&files, 2, 1);
        failed =
            failed != 0 ? failed : posix_spawn_file_actions_addclosefrom_np(&files, 3);
        failed = failed != 0 ? failed : set_attributes(&attributes);
        failed = failed != 0 ? failed
                             : posix_spawn(child, "/bin/sh", &files, &attributes,
                                           arguments, environment);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    sonde__free(environment);
    return failed;
}

/* Waits for its end; at the deadline, or when jobs are dropped, kills it and sets
 * *killed. *status is that of waitpid; false if other code has collected it. */
static bool wait_for(const sonde_actions *actions, pid_t child, double deadline,
                     int *status, bool *killed)
{
    const struct timespec pause = {0, 5000000};

    *killed = false;
    for (;;) {
        const pid_t got = waitpid(child, status, *killed ? 0 : WNOHANG);

        if (got == child) {
            (void)kill(-child, SIGKILL); /* what it left running in the background */
            return true;
        }
        if (got < 0 && errno != EINTR) {
            return false;
        }
        if (!*killed && (sonde__now() > deadline || given_up(actions))) {
            *killed = true;
            (void)kill(-child, SIGKILL);
        } else if (!*killed) {
            (void)nanosleep(&pause, NULL);
        }
    }
}

/* A finding fits into the buffer of a pipe, and the command need not read it. */
static void write_finding(int pipe, const sonde__action_job *job)
{
    ssize_t done = write(pipe, job->json, job->length);

    if (done == (ssize_t)job->length) {
        done = write(pipe, "\n", 1);
    }
    (void)done;
}

static sonde__action_job_end judge_status(int status, char said[SONDE__JOB_SAID])
{
    if (WIFSIGNALED(status)) {
        (void)snprintf(said, SONDE__JOB_SAID, "ended by signal %d", WTERMSIG(status));
        return SONDE__JOB_FAILED;
    }
    (void)snprintf(said, SONDE__JOB_SAID, "status %d%s", WEXITSTATUS(status),
                   WEXITSTATUS(status) == 127 ? " (not found)" : "");
    return WEXITSTATUS(status) == 0 ? SONDE__JOB_DONE : SONDE__JOB_FAILED;
}

static sonde__action_job_end run_command(const sonde_actions *actions,
                                         const sonde__action_job *job,
                                         char said[SONDE__JOB_SAID])
{
    const double seconds = actions->options.command_seconds;
    const double deadline = sonde__now() + seconds;
    int ends[2], failed = 0, status = 0;
    pid_t child = 0;
    bool killed = false, known = false;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)snprintf(said, SONDE__JOB_SAID, "no pipe: %s", strerror(errno));
        return SONDE__JOB_FAILED;
    }
    (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
    failed = start_shell(job, ends[0], &child);
    (void)close(ends[0]);
    if (failed == 0) {
        write_finding(ends[1], job);
    }
    (void)close(ends[1]);
    if (failed != 0) {
        (void)snprintf(said, SONDE__JOB_SAID, "cannot start: %s", strerror(failed));
        return SONDE__JOB_FAILED;
    }
    known = wait_for(actions, child, deadline, &status, &killed);
    if (killed) {
        (void)sonde__snprintf(said, SONDE__JOB_SAID,
                              given_up(actions) ? "killed at the end of the run"
                                                : "killed after %.3g s",
                              seconds);
        return SONDE__JOB_FAILED;
    }
    if (!known) {
        (void)snprintf(said, SONDE__JOB_SAID, "its status is unknown: %s",
                       strerror(errno));
        return SONDE__JOB_FAILED;
    }
    return judge_status(status, said);
}

/* --- a webhook ---------------------------------------------------------------------- */

enum { HTTP_TIMEOUT = 408, HTTP_TOO_MANY = 429 };

sonde_err sonde__action_check_url(const char *url, sonde_diag *diag)
{
    if (sonde__strncasecmp(url, "http://", 7) != 0 &&
        sonde__strncasecmp(url, "https://", 8) != 0) {
        return sonde__fail(diag, SONDE_EINVAL, "webhook", "http://... or https://...",
                           "'%.200s'", url);
    }
    return sonde__curl_load("webhook", diag) != NULL ? SONDE_OK : SONDE_EUNSUPPORTED;
}

static size_t drop(const char *bytes, size_t size, size_t count, void *user)
{
    (void)bytes;
    (void)user;
    return size * count;
}

/* Returns non-zero to end the transfer. */
static int on_progress(void *user, curl_off_t total, curl_off_t done, curl_off_t up_total,
                       curl_off_t up)
{
    (void)total;
    (void)done;
    (void)up_total;
    (void)up;
    return given_up(user) ? 1 : 0;
}

typedef struct request {
    const sonde__curl *curl;
    CURL *easy;
} request;

#define SET(option, value)                                                               \
    (post->curl->easy_setopt(post->easy, CURLOPT_##option, value) == CURLE_OK)

static bool set_options(const request *post, const sonde_actions *actions,
                        const sonde__action_job *job, const void *headers,
                        const char *message)
{
    const long milliseconds = (long)(1e3 * actions->options.webhook_seconds) + 1;

    return SET(URL, job->action->text) && SET(HTTPHEADER, headers) &&
           SET(POSTFIELDS, job->json) && SET(ERRORBUFFER, message) &&
           SET(XFERINFODATA, actions) && SET(POSTFIELDSIZE, (long)job->length) &&
           SET(TIMEOUT_MS, milliseconds) &&
           SET(PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) &&
           SET(FOLLOWLOCATION, 0L) && SET(NOPROGRESS, 0L) && SET(NOSIGNAL, 1L) &&
           SET(WRITEFUNCTION, drop) && SET(XFERINFOFUNCTION, on_progress);
}

/* The result of an answer. */
static sonde__action_job_end judge_answer(const request *post, long status,
                                          char said[SONDE__JOB_SAID])
{
    const char *place = NULL;

    if (status >= 300 && status < 400) {
        (void)post->curl->easy_getinfo(post->easy, CURLINFO_REDIRECT_URL, &place);
        (void)snprintf(said, SONDE__JOB_SAID,
                       "status %ld, a redirect to %.160s that is not followed", status,
                       place != NULL ? place : "an unknown place");
        return SONDE__JOB_FAILED;
    }
    (void)snprintf(said, SONDE__JOB_SAID, "status %ld", status);
    if (status >= 200 && status < 300) {
        return SONDE__JOB_DONE;
    }
    return status >= 500 || status == HTTP_TIMEOUT || status == HTTP_TOO_MANY
               ? SONDE__JOB_AGAIN
               : SONDE__JOB_FAILED;
}

static sonde__action_job_end run_webhook(const sonde_actions *actions,
                                         const sonde__action_job *job,
                                         char said[SONDE__JOB_SAID])
{
    request post = {.curl = sonde__curl_load("webhook", NULL)};
    char message[CURL_ERROR_SIZE] = "";
    sonde__action_job_end end = SONDE__JOB_FAILED;
    long status = 0;

    (void)snprintf(said, SONDE__JOB_SAID, "out of memory");
    post.easy = post.curl != NULL ? post.curl->easy_init() : NULL;
    if (post.easy == NULL) {
        return end;
    }
    struct curl_slist *headers =
        post.curl->slist_append(NULL, "Content-Type: application/json");
    if (headers != NULL && set_options(&post, actions, job, headers, message)) {
        const CURLcode code = post.curl->easy_perform(post.easy);

        (void)post.curl->easy_getinfo(post.easy, CURLINFO_RESPONSE_CODE, &status);
        if (code == CURLE_OK) {
            end = judge_answer(&post, status, said);
        } else {
            end = SONDE__JOB_AGAIN;
            (void)snprintf(said, SONDE__JOB_SAID, "%s",
                           message[0] != '\0' ? message : post.curl->easy_strerror(code));
        }
    }
    post.curl->slist_free_all(headers);
    post.curl->easy_cleanup(post.easy);
    return end;
}

/* --- the thread --------------------------------------------------------------------- */

static struct timespec at_time(double seconds)
{
    const time_t whole = (time_t)seconds;

    return (struct timespec){whole, (long)(1e9 * (seconds - (double)whole))};
}

/* Takes the oldest job that is due; NULL if none is, and *next is the time of the next
 * one (0: no job). Under lock. */
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

double sonde__action_wait(double backoff, int tried, uint64_t seed)
{
    const double base = backoff * (double)(1U << (unsigned)SONDE_MIN(tried - 1, 16));

    return base * (0.5 + (double)sonde__uniform(seed, 0, (uint64_t)tried));
}

/* Runs the job once. True if it is to be tried again, at job->due. */
static bool work(sonde_actions *actions, sonde__action_job *job)
{
    const bool webhook = job->action->kind == SONDE__ACTION_WEBHOOK;
    const char *kind = webhook ? "webhook" : "command";
    char said[SONDE__JOB_SAID] = "";
    sonde__action_job_end end = SONDE__JOB_FAILED;

    job->tried++;
    if (webhook) {
        (void)atomic_fetch_add(&actions->tries, 1);
        end = run_webhook(actions, job, said);
    } else {
        end = run_command(actions, job, said);
    }
    if (end == SONDE__JOB_DONE) {
        (void)atomic_fetch_add(&actions->done, 1);
        sonde_log(SONDE_LOG_INFO, "actions", "%s '%.200s' for %s: %s", kind,
                  job->action->text, job->what, said);
        return false;
    }
    if (end == SONDE__JOB_AGAIN && job->tried < actions->options.webhook_tries &&
        !given_up(actions)) {
        const double now = sonde__now();

        job->due = now + sonde__action_wait(actions->options.backoff_seconds, job->tried,
                                            (uint64_t)(1e9 * now));
        return true;
    }
    (void)atomic_fetch_add(&actions->failed, 1);
    sonde_log(SONDE_LOG_WARNING, "actions", "%s '%.200s' for %s failed%s: %s", kind,
              job->action->text, job->what, job->tried > 1 ? " repeatedly" : "", said);
    return false;
}

/* Waits for a job that is due. Under lock. */
static sonde__action_job *next_job(sonde__actions_queue *queue)
{
    for (;;) {
        double next = 0.0;

        if (atomic_load(&queue->give_up)) {
            return NULL;
        }
        sonde__action_job *job = take_due(queue, &next);
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
        queue->busy = true;
        (void)pthread_mutex_unlock(&queue->lock);
        const bool again = work(actions, job);
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

    if (queue->started) {
        return SONDE_OK;
    }
    /* the program handles signals; SIGPIPE from a command that does not read must not end
     * it */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&queue->thread, NULL, run_queue, actions);
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
    bool full = false, report = false;

    (void)pthread_mutex_lock(&queue->lock);
    full = queue->count == SONDE_ACTIONS_QUEUE || atomic_load(&queue->give_up);
    if (!full) {
        queue->jobs[queue->count++] = job;
        (void)pthread_cond_broadcast(&queue->changed);
    } else {
        report = !queue->logged;
        queue->logged = true;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (full) {
        (void)atomic_fetch_add(&actions->lost, 1);
        sonde__free(job);
    }
    if (report) {
        sonde_log(SONDE_LOG_WARNING, "actions",
                  "%d commands and webhooks are waiting: further ones are dropped",
                  SONDE_ACTIONS_QUEUE);
    }
}

bool sonde_actions_finish(sonde_actions *actions, double seconds)
{
    if (actions == NULL) {
        return false;
    }
    sonde__actions_queue *queue = &actions->queue;
    const struct timespec until = at_time(sonde__now() + seconds);
    int waited = 0;

    (void)pthread_mutex_lock(&queue->lock);
    while ((queue->count > 0 || queue->busy) && waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
    }
    const size_t left = queue->count;
    for (size_t i = 0; i < left; i++) {
        sonde__free(queue->jobs[i]);
    }
    queue->count = 0;
    if (left > 0 || queue->busy) { /* the job that runs ends as failed */
        atomic_store(&queue->give_up, true);
        (void)pthread_cond_broadcast(&queue->changed);
    }
    while (queue->busy) {
        (void)pthread_cond_wait(&queue->changed, &queue->lock);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (left > 0) {
        (void)atomic_fetch_add(&actions->lost, left);
        sonde_log(SONDE_LOG_WARNING, "actions", "%zu commands and webhooks were dropped",
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
