/*
 * spool.c - opening a spool, its threads, and its end; see spool.h.
 */
#include "store/s3/spool.h"
#include "store/s3/profile.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/copy.h"
#include "store/s3/objects.h"

#include <sonde/log.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_SPOOL ((uint64_t)4 << 30)
#define LOOK 0.25      /* seconds between two looks */
#define BEAT 2.0       /* seconds between two heartbeats */
#define LONGEST 30.0   /* seconds between two tries in an outage */
#define PATIENCE 300.0 /* seconds without progress that closing waits */
#define SLOW 5.0       /* seconds that a thread has to stop, unless it hangs */

/* --- closing ------------------------------------------------------------------------ */

static void free_spool(sonde__s3_spool *spool)
{
    sonde__s3_spool_leave(spool);
    sonde__s3_spool_forget(spool);
    for (size_t i = 0; i < spool->fetched_count; i++) {
        sonde__free(spool->fetched[i]);
    }
    sonde__free(spool->fetched);
    sonde__s3_bucket_close(spool->bucket);
    sonde__s3_line_close(&spool->line);
    sonde__s3_line_close(&spool->beat_line);
    (void)pthread_mutex_destroy(&spool->lock);
    (void)pthread_cond_destroy(&spool->moved);
    sonde__free(spool->folder);
    sonde__free(spool);
}

/* The last user frees the spool: the handle, or a thread that is not waited for. */
static void release(sonde__s3_spool *spool)
{
    if (atomic_fetch_sub(&spool->users, 1) == 1) {
        free_spool(spool);
    }
}

/* Waits on moved for a tenth of a second at most; the caller holds the lock. */
static void wait_a_moment(sonde__s3_spool *spool)
{
    const struct timespec until = sonde__clock_after(0.1);

    (void)pthread_cond_timedwait(&spool->moved, &spool->lock, &until);
}

/* Stops the threads. False if one hangs in a system call: both are left alone then. */
static bool stop_threads(sonde__s3_spool *spool)
{
    const double most = sonde__s3_setting("SONDE_S3_STOP_SECONDS", SLOW);
    const double since = sonde__now();

    atomic_store(&spool->stop, true);
    if (!spool->started || spool->hangs) {
        return !spool->hangs;
    }
    (void)pthread_mutex_lock(&spool->lock);
    while (spool->running > 0 && sonde__now() - since < most) {
        wait_a_moment(spool);
    }
    spool->hangs = spool->running > 0;
    (void)pthread_mutex_unlock(&spool->lock);
    if (spool->hangs) {
        (void)pthread_detach(spool->sender);
        (void)pthread_detach(spool->heart);
    } else {
        (void)pthread_join(spool->sender, NULL);
        (void)pthread_join(spool->heart, NULL);
        spool->started = false;
    }
    return !spool->hangs;
}

void sonde__s3_spool_close(void *handle)
{
    sonde__s3_spool *spool = handle;

    if (spool == NULL) {
        return;
    }
    if (stop_threads(spool) && spool->failed) {
        sonde__s3_spool_clear(spool);
    }
    release(spool);
}

/* --- opening ------------------------------------------------------------------------ */

/* Copies a small object of the store into the spool. */
static sonde_err fetch_file(sonde__s3_spool *spool, const char *name, sonde_diag *diag)
{
    sonde_text text = {0};
    sonde_err err =
        sonde__s3_get_small(spool->bucket, &spool->line, name, NULL, &text, NULL, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde__s3_spool_write(spool, name, text.data, text.length, diag);

done:
    sonde_text_fini(&text);
    return err;
}

/* Fetches an object of the run if the spool lacks it, and notes the numbered files. */
static sonde_err take_object(void *user, const sonde__s3_object *object, sonde_diag *diag)
{
    sonde__s3_spool *spool = user;
    const char *base = strrchr(object->name, '/');
    const size_t length = strlen(object->name), end = strlen(".safetensors");
    const bool segment =
        length > end && strcmp(object->name + length - end, ".safetensors") == 0;
    const bool numbered = base != NULL && strchr(base, '-') != NULL;

    if (!sonde__s3_spool_has(spool, object->name)) {
        /* of a segment, the number suffices */
        SONDE__TRY(segment ? sonde__s3_spool_write(spool, object->name, NULL, 0, diag)
                           : fetch_file(spool, object->name, diag));
    }
    if (!numbered) {
        return SONDE_OK;
    }
    if (!sonde__reserve(&spool->fetched, &spool->fetched_capacity,
                        spool->fetched_count + 1, sizeof *spool->fetched) ||
        (spool->fetched[spool->fetched_count] = sonde__strdup(object->name)) == NULL) {
        return sonde__fail_nomem(diag, object->name);
    }
    spool->fetched_count++;
    return SONDE_OK;
}

/* Drops what is left of an earlier process if the store has more generations than the
 * folder: another machine has resumed the run. */
static sonde_err drop_superseded(sonde__s3_spool *spool, sonde_diag *diag)
{
    char name[64], path[SONDE__S3_PATH];
    sonde_text text = {0};
    struct stat about = {0};
    sonde_err err = SONDE_OK;

    (void)snprintf(name, sizeof name, "%s/generations.jsonl", spool->worker);
    err = sonde__s3_get_small(spool->bucket, &spool->line, name, NULL, &text, NULL, diag);
    if (err != SONDE_OK || !sonde__s3_spool_has(spool, spool->worker)) {
        goto done;
    }
    (void)stat(sonde__s3_spool_path(spool, name, path), &about);
    if (text.length > (size_t)about.st_size) {
        sonde_log(SONDE_LOG_WARNING, "s3",
                  "%s was resumed on another machine; the files that this one did not "
                  "send are dropped",
                  spool->bucket->url);
        sonde__s3_remove_all(sonde__s3_spool_path(spool, spool->worker, path));
    }

done:
    sonde_text_fini(&text);
    return err == SONDE_ENOTFOUND ? SONDE_OK : err;
}

/* Fetches what a writer needs to resume the run. */
static sonde_err fetch_past(sonde__s3_spool *spool, sonde_diag *diag)
{
    char start[40];
    SONDE__TRY(drop_superseded(spool, diag));
    (void)snprintf(start, sizeof start, "%s/", spool->worker);
    return sonde__s3_list(spool->bucket, &spool->line, start, "", false, take_object,
                          spool, diag);
}

/* Whether the run at the address is that of the folder. */
static sonde_err compare_ids(const sonde__s3_spool *spool, const sonde_text *run,
                             bool *same, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    bool no_memory[2] = {false, false};
    json_t *here = sonde__json_read_file(sonde__s3_spool_path(spool, "run.json", path),
                                         &no_memory[0]);
    json_t *there = sonde__json_read(run->data, run->length, 0, NULL, &no_memory[1]);
    const char *a = json_string_value(json_object_get(here, "id"));
    const char *b = json_string_value(json_object_get(there, "id"));

    *same = a != NULL && b != NULL && strcmp(a, b) == 0;
    json_decref(here);
    json_decref(there);
    return no_memory[0] || no_memory[1] ? sonde__fail_nomem(diag, spool->bucket->url)
                                        : SONDE_OK;
}

static sonde_err fail_taken(const sonde__s3_spool *spool, sonde_diag *diag)
{
    const bool left = sonde__s3_spool_has(spool, spool->worker);

    return sonde__fail(diag, SONDE_EEXIST, spool->bucket->url, "an address without a run",
                       "a run is there already%s%s",
                       left ? ", of which files are left here: sonde send " : "",
                       left ? spool->bucket->url : "");
}

/* Another run is at the address than the one in the folder. */
static sonde_err drop_other(sonde__s3_spool *spool, sonde_diag *diag)
{
    if (spool->writer.sends) {
        return sonde__fail(diag, SONDE_EEXIST, spool->bucket->url,
                           "the run that was being sent",
                           "another run is there; remove %s", spool->folder);
    }
    sonde_log(SONDE_LOG_WARNING, "s3",
              "%s: another run is at %s; the files that the run before did not "
              "send are dropped",
              spool->folder, spool->bucket->url);
    sonde__s3_spool_wipe(spool);
    return SONDE_OK;
}

static sonde_err exists(const sonde__s3_spool *spool, const char *name, bool *there,
                        sonde_diag *diag)
{

    sonde__s3_begin_asking(spool->line.progress);
    const sonde_err err = sonde__s3_exists(spool->bucket->url, name, there, diag);
    sonde__s3_end_asking(spool->line.progress);
    return err;
}

/* Whether a worker that does not resume may join the run at the address. */
static sonde_err check_free(const sonde__s3_spool *spool, sonde_diag *diag)
{
    const char *url = spool->bucket->url;
    char name[64];
    bool ended = false, written = false;
    SONDE__TRY(exists(spool, "end.json", &ended, diag));
    if (spool->writer.world <= 1 || ended) {
        return fail_taken(spool, diag);
    }
    (void)snprintf(name, sizeof name, "%s/state.json", spool->worker);
    SONDE__TRY(exists(spool, name, &written, diag));
    return written ? sonde__fail(diag, SONDE_EEXIST, url, "a resumed run",
                                 "worker %d has written this run", spool->writer.rank)
                   : SONDE_OK;
}

/* A run is at the address: it is resumed, joined, or an error. */
static sonde_err take_run(sonde__s3_spool *spool, const sonde_text *run, sonde_diag *diag)
{
    const sonde__store_writer *writer = &spool->writer;
    SONDE__TRY(writer->resumes ? SONDE_OK : check_free(spool, diag));
    bool same = true;
    if (sonde__s3_spool_has(spool, "run.json")) {
        SONDE__TRY(compare_ids(spool, run, &same, diag));
    }
    if (!same) {
        SONDE__TRY(drop_other(spool, diag));
    }
    if (!sonde__s3_spool_has(spool, "run.json")) {
        SONDE__TRY(
            sonde__s3_spool_write(spool, "run.json", run->data, run->length, diag));
    }
    spool->run_sent = true;
    return writer->resumes ? fetch_past(spool, diag) : SONDE_OK;
}

/* There is no run at the address. */
static sonde_err begin_run(sonde__s3_spool *spool, bool was_sent, sonde_diag *diag)
{
    const bool left = sonde__s3_spool_has(spool, "run.json");

    if (was_sent && spool->writer.sends) {
        return sonde__fail(
            diag, SONDE_ENOTFOUND, spool->bucket->url, "the run that was being sent",
            "it has been removed from the store; remove %s as well", spool->folder);
    }
    if (was_sent) {
        if (left) {
            sonde_log(SONDE_LOG_WARNING, "s3",
                      "%s: the run of an earlier process has been removed from the "
                      "store; the files that were not sent are dropped",
                      spool->bucket->url);
        }
        sonde__s3_spool_wipe(spool);
        return SONDE_OK;
    }
    if (!spool->writer.resumes && spool->writer.world <= 1 && left) {
        return sonde__fail(diag, SONDE_EEXIST, spool->folder,
                           "sonde send, or no such folder",
                           "holds a run that was never sent to %s", spool->bucket->url);
    }
    return SONDE_OK;
}

static sonde_err look_at_store(sonde__s3_spool *spool, sonde_diag *diag)
{
    sonde_text run = {0};
    sonde_diag why = {0};
    const bool was_sent =
        sonde__s3_spool_was_sent(spool); /* another worker may send it */
    sonde_err err = sonde__s3_get_small(spool->bucket, &spool->line, "run.json", NULL,
                                        &run, NULL, &why);

    if (err == SONDE_OK) {
        err = take_run(spool, &run, diag);
    } else if (sonde__s3_is_missing(err, &why)) {
        err = begin_run(spool, was_sent, diag);
    } else if (diag != NULL) {
        *diag = why;
    }
    sonde_text_fini(&run);
    return err == SONDE_ETIMEOUT ? SONDE_EIO : err;
}

/* How many workers the run in the folder has. */
static sonde_err read_world(sonde__s3_spool *spool, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    bool no_memory = false;
    json_t *run =
        sonde__json_read_file(sonde__s3_spool_path(spool, "run.json", path), &no_memory);
    const json_int_t world = json_integer_value(json_object_get(run, "world"));

    json_decref(run);
    spool->writer.world = (int)SONDE_MAX(world, 1);
    return no_memory ? sonde__fail_nomem(diag, path) : SONDE_OK;
}

static sonde_err set_up(sonde__s3_spool *spool, const char *url, const char *folder,
                        sonde_diag *diag)
{
    SONDE__TRY(sonde__s3_line_open(&spool->line, url, diag));
    SONDE__TRY(sonde__s3_line_open(&spool->beat_line, url, diag));
    spool->line.progress = spool->writer.progress;
    sonde__s3_begin_asking(spool->line.progress); /* for credentials */
    sonde_err err = sonde__s3_bucket_open(url, &spool->line, &spool->bucket, diag);
    sonde__s3_end_asking(spool->line.progress);
    SONDE__TRY(err);
    SONDE__TRY(sonde__s3_spool_enter(spool, folder, diag));
    if (spool->writer.sends) {
        err = read_world(spool, diag);
    }
    if (err == SONDE_OK) {
        err = look_at_store(spool, diag);
    }
    sonde__s3_spool_entered(spool);
    spool->line.progress = NULL; /* of the opening alone */
    return err;
}

sonde_err sonde__s3_spool_open(const char *url, const char *folder,
                               const sonde__store_writer *writer, void **out,
                               sonde_diag *diag)
{
    sonde__s3_spool *spool = sonde__calloc(1, sizeof *spool);
    sonde_err err = SONDE_OK;

    if (spool == NULL) {
        return sonde__fail_nomem(diag, url);
    }
    (void)pthread_mutex_init(&spool->lock, NULL);
    (void)sonde__clock_condition(&spool->moved);
    atomic_init(&spool->users, 1);
    spool->writer = *writer;
    spool->held = spool->entry = -1;
    spool->most = (uint64_t)sonde__s3_setting("SONDE_SPOOL_BYTES", (double)MOST_SPOOL);
    (void)snprintf(spool->worker, sizeof spool->worker, "w%04d", writer->rank);
    err = set_up(spool, url, folder, diag);
    if (err != SONDE_OK) {
        sonde__s3_spool_close(spool);
        return err;
    }
    *out = spool;
    return SONDE_OK;
}

/* --- starting ----------------------------------------------------------------------- */

/* Whether the run at the address is the one that was sent: the answer to the request that
 * made it was lost, and a later try found it there. */
static bool is_sent_run(sonde__s3_spool *spool, const sonde_text *run)
{
    sonde_text there = {0};
    const sonde_err err = sonde__s3_get_small(spool->bucket, &spool->line, "run.json",
                                              NULL, &there, NULL, NULL);
    const bool same = err == SONDE_OK && there.data != NULL && run->data != NULL &&
                      there.length == run->length &&
                      memcmp(there.data, run->data, run->length) == 0;

    sonde_text_fini(&there);
    return same;
}

/* The first of several workers makes the run; the others take its run.json. text NULL:
 * that of the file. */
static sonde_err send_run(sonde__s3_spool *spool, const char *text, size_t size,
                          sonde_diag *diag)
{
    sonde_text run = {0};
    sonde_err err = SONDE_OK;

    if (text != NULL) {
        sonde_text_put(&run, text, size);
    } else if (!sonde__s3_spool_read(spool, "run.json", false, &run) && !run.failed) {
        err = sonde__fail_errno(diag, spool->folder, "run.json cannot be read");
        goto done;
    }
    if (run.failed) {
        err = sonde__fail_nomem(diag, spool->bucket->url);
        goto done;
    }
    err = sonde__s3_put(spool->bucket, &spool->line, "run.json", run.data, run.length,
                        SONDE__S3_CREATE, diag);
    if (err == SONDE_EEXIST && spool->writer.world > 1) {
        err = fetch_file(spool, "run.json", diag);
    } else if (err == SONDE_EEXIST) {
        err = is_sent_run(spool, &run) ? SONDE_OK : fail_taken(spool, diag);
    }

done:
    sonde_text_fini(&run);
    return err == SONDE_ETIMEOUT ? SONDE_EIO : err;
}

static void *send_all(void *user);
static void *beat_on(void *user);

/* A thread counts as a user, and as running, from before it starts. */
static int start_thread(sonde__s3_spool *spool, pthread_t *thread, void *run(void *))
{
    (void)atomic_fetch_add(&spool->users, 1);
    (void)pthread_mutex_lock(&spool->lock);
    spool->running++;
    (void)pthread_mutex_unlock(&spool->lock);
    const int failed = pthread_create(thread, NULL, run, spool);
    if (failed != 0) {
        (void)pthread_mutex_lock(&spool->lock);
        spool->running--;
        (void)pthread_mutex_unlock(&spool->lock);
        (void)atomic_fetch_sub(&spool->users, 1);
    }
    return failed;
}

static void *end_thread(sonde__s3_spool *spool)
{
    (void)pthread_mutex_lock(&spool->lock);
    spool->running--;
    (void)pthread_cond_broadcast(&spool->moved);
    (void)pthread_mutex_unlock(&spool->lock);
    release(spool);
    return NULL;
}

static sonde_err start_threads(sonde__s3_spool *spool, sonde_diag *diag)
{
    sigset_t all, before;
    int failed = 0;

    (void)sigfillset(&all); /* the program handles signals */
    failed = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failed == 0) {
        failed = start_thread(spool, &spool->sender, send_all);
        if (failed == 0) {
            failed = start_thread(spool, &spool->heart, beat_on);
            spool->started = failed == 0;
            if (failed != 0) {
                atomic_store(&spool->stop, true);
                (void)pthread_join(spool->sender, NULL);
            }
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    errno = failed;
    return failed == 0
               ? SONDE_OK
               : sonde__fail_errno(diag, spool->bucket->url, "no thread can be started");
}

/* In the thread of the program: no system call on the spool's folder, which may hang. */
sonde_err sonde__s3_spool_start(void *handle, const char *run, size_t size,
                                sonde_diag *diag)
{
    sonde__s3_spool *spool = handle;
    sonde_text text = {0};
    sonde_err err = SONDE_OK;

    SONDE__TRY_GO(spool->run_sent ? SONDE_OK : send_run(spool, run, size, diag));
    if (spool->writer.rank == 0 && spool->writer.resumes && !spool->writer.sends) {
        SONDE__TRY_GO(sonde__s3_remove(spool->bucket, &spool->line, "end.json", diag));
    }
    if (sonde__s3_get_small(spool->bucket, &spool->beat_line, "control.jsonl",
                            spool->control_etag, &text, NULL, NULL) == SONDE_OK) {
        spool->control_seen = text.length; /* requests to an earlier process */
    }
    sonde_text_fini(&text);
    spool->bucket->stop = &spool->stop;
    return start_threads(spool, diag);

error:
    spool->failed = !spool->writer.resumes;
    return err;
}

bool sonde__s3_spool_has_room(const void *handle)
{
    const sonde__s3_spool *spool = handle;

    return !atomic_load_explicit(&spool->full, memory_order_relaxed);
}

/* --- the threads -------------------------------------------------------------------- */

/* Sleeps until stopped, or until the writer ends. */
static void nap(const sonde__s3_spool *spool, double seconds)
{
    const bool closing = atomic_load(&spool->closing);

    for (; seconds > 0.0 && !atomic_load(&spool->stop) &&
           atomic_load(&spool->closing) == closing;
         seconds -= 0.05) {
        const struct timespec rest = {0, (long)(1e9 * SONDE_MIN(seconds, 0.05))};

        (void)nanosleep(&rest, NULL);
    }
}

static double by_chance(double seconds)
{
    unsigned lot = 0;

    (void)!getrandom(&lot, sizeof lot, GRND_NONBLOCK);
    return seconds * (0.5 + 0.5 * (double)lot / 4294967295.0);
}

static void begin_outage(sonde__s3_spool *spool, const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    (void)sonde_diag_line(diag, line, sizeof line);
    if (spool->outage_since == 0.0) {
        spool->outage_since = sonde__now();
    } else if (strncmp(spool->fault, diag->found, sizeof spool->fault - 1) == 0) {
        return;
    }
    (void)snprintf(spool->fault, sizeof spool->fault, "%s", diag->found);
    sonde_log(SONDE_LOG_ERROR, "s3",
              "%s; the run waits in %s, which may hold %" PRIu64 " MiB", line,
              spool->folder, spool->most >> 20);
}

static void end_outage(sonde__s3_spool *spool)
{
    if (spool->outage_since > 0.0) {
        sonde_log(SONDE_LOG_WARNING, "s3", "%s is written again after %.1f s",
                  spool->bucket->url, sonde__now() - spool->outage_since);
        spool->outage_since = 0.0;
    }
}

/* Before the first file is sent. */
static void begin_sending(sonde__s3_spool *spool)
{
    char path[SONDE__S3_PATH];

    for (size_t i = 0; i < spool->fetched_count; i++) { /* the writer has read them */
        (void)unlink(sonde__s3_spool_path(spool, spool->fetched[i], path));
    }
    sonde__s3_spool_mark_sent(spool);
    if (spool->writer.resumes) {
        (void)snprintf(path, sizeof path, "%s/", spool->worker);
        sonde__s3_abort_uploads(spool->bucket, &spool->line, path);
    }
}

static void *send_all(void *user)
{
    sonde__s3_spool *spool = user;
    double wait = LOOK;

    begin_sending(spool);
    for (bool all = false; !all && !atomic_load(&spool->stop);) {
        sonde_diag diag = {0};
        const sonde_err err = sonde__s3_spool_send(spool, &all, &diag);

        if (err == SONDE_OK) {
            end_outage(spool);
            wait = spool->busy ? 0.0 : LOOK;
        } else if (err != SONDE_EINTERRUPTED) {
            begin_outage(spool, &diag);
            wait = SONDE_MIN(2.0 * SONDE_MAX(wait, LOOK),
                             sonde__s3_setting("SONDE_S3_LONGEST_WAIT", LONGEST));
        }
        (void)pthread_mutex_lock(&spool->lock);
        spool->done = all;
        (void)pthread_cond_broadcast(&spool->moved);
        (void)pthread_mutex_unlock(&spool->lock);
        if (!all) {
            nap(spool, err == SONDE_OK ? wait : by_chance(wait));
        }
    }
    return end_thread(spool);
}

static void *beat_on(void *user)
{
    sonde__s3_spool *spool = user;

    while (!atomic_load(&spool->stop) && !atomic_load(&spool->closing)) {
        (void)sonde__s3_spool_beat(spool, NULL); /* the sender reports an outage */
        nap(spool, BEAT);
    }
    return end_thread(spool);
}

/* --- the end ------------------------------------------------------------------------ */

/* Waits while there is progress. True: all files are sent. */
static bool wait_for_sender(sonde__s3_spool *spool)
{
    const double patience = sonde__s3_setting("SONDE_S3_CLOSE_SECONDS", PATIENCE);
    double since = sonde__now();
    unsigned answered = atomic_load(&spool->bucket->answered);
    bool done = false;

    (void)pthread_mutex_lock(&spool->lock);
    while (!(done = spool->done) && sonde__now() - since < patience) {
        wait_a_moment(spool);
        if (atomic_load(&spool->bucket->answered) != answered) { /* parts count too */
            answered = atomic_load(&spool->bucket->answered);
            since = sonde__now();
        }
    }
    (void)pthread_mutex_unlock(&spool->lock);
    return done;
}

sonde_err sonde__s3_spool_finish(void *handle, sonde_diag *diag)
{
    sonde__s3_spool *spool = handle;

    if (!spool->started) {
        return SONDE_OK;
    }
    atomic_store(&spool->closing, true);
    const bool done = wait_for_sender(spool);
    if (!stop_threads(spool)) {
        return sonde__fail(diag, SONDE_EIO, spool->bucket->url, "a disk that answers",
                           "a system call on its spool hangs; what is not sent is kept "
                           "in %s",
                           spool->folder);
    }
    if (done && spool->keeps) {
        return sonde__fail(diag, SONDE_EIO, spool->bucket->url, NULL,
                           "files that could not be closed are kept in %s",
                           spool->folder);
    }
    if (!done) {
        return sonde__fail(diag, SONDE_EIO, spool->bucket->url,
                           "sonde send, or a resumed run, which sends them",
                           "%" PRIu64 " files of %" PRIu64
                           " bytes are not sent (%.200s); they are kept in %s",
                           spool->left, spool->left_bytes, spool->fault, spool->folder);
    }
    sonde__s3_spool_clear(spool);
    return SONDE_OK;
}
