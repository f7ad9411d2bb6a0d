/*
 * writer.c - the writer's thread: the loop, and faults.
 */
#include "record/writer.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETRY 0.001      /* seconds between the first two attempts at what failed */
#define MOST_RETRY 0.128 /* between the last ones */
#define LOOK 1.0         /* seconds between two checks that the files still exist */
#define BEGIN_NAP 0.02   /* seconds between two checks that begin makes progress */

sonde_err sonde__record_writer_init(sonde__record_writer *writer)
{
    *writer = (sonde__record_writer){.newest = -1};
    atomic_init(&writer->counters.last_step, -1);
    atomic_init(&writer->before.last_step, -1);
    (void)gethostname(writer->host, sizeof writer->host - 1);
    writer->pid = getpid();
    return pthread_mutex_init(&writer->lock, NULL) == 0 &&
                   sonde__clock_condition(&writer->has_begun)
               ? SONDE_OK
               : SONDE_ENOMEM;
}

void sonde__record_writer_fini(sonde__record_writer *writer)
{
    sonde__record_segment_fini(&writer->segment);
    for (int i = 0; i < SONDE__STREAMS; i++) {
        sonde__record_stream_fini(&writer->streams[i]);
    }
    sonde__record_file_list_fini(&writer->files);
    sonde__record_tensors_fini(&writer->tensors);
    sonde__record_compressor_fini(&writer->compressor);
    sonde__free(writer->scratch.start);
    sonde__free(writer->run);
    sonde__free(writer->text);
    if (writer->backend != NULL) {
        writer->backend->ops->destroy(writer->backend);
        writer->backend = NULL;
    }
}

/* --- faults ----------------------------------------------------------------------- */

static bool is_lost(sonde__record_file *file)
{
    return file != NULL && file->ops->is_lost(file);
}

/* Handles removed files: their records are lost, and new files are begun once there is a
 * folder again. */
static void look_for_files(sonde__record_writer *writer)
{
    sonde__record_segment *const segment = &writer->segment;
    sonde__record_counters *const counters = &writer->counters;

    if (is_lost(segment->data) || is_lost(segment->index)) {
        sonde__record_drop_batch(writer);
        sonde__record_lose(writer, segment->values, ENOENT);
        (void)atomic_fetch_sub(&counters->records, segment->values);
        (void)atomic_fetch_sub(&counters->bytes, segment->payload);
        sonde__record_segment_abandon(segment);
        writer->lost_files = true;
    }
    for (int i = 0; i < SONDE__STREAMS; i++) {
        sonde__record_stream *const stream = &writer->streams[i];

        if (!is_lost(stream->file)) {
            continue;
        }
        if (i != SONDE__STREAM_STEPS) { /* a step is no record */
            sonde__record_lose(writer, stream->items, ENOENT);
        }
        (void)atomic_fetch_sub(&counters->items[i], stream->items);
        sonde__record_stream_abandon(stream);
        writer->lost_files = true;
    }
    if (is_lost(writer->tensors.catalogue.file)) {
        sonde__record_tensors_abandon(&writer->tensors);
        writer->lost_files = true;
    }
    if (is_lost(writer->files.lines.file)) {
        sonde__record_stream_abandon(&writer->files.lines);
        writer->lost_files = true;
    }
}

static void begin_fault(sonde__record_writer *writer, int fault, double now)
{
    const bool first = writer->fault == 0;

    writer->retry_wait = first ? RETRY : SONDE_MIN(2 * writer->retry_wait, MOST_RETRY);
    writer->retry_at = now + writer->retry_wait;
    writer->fault = fault;
    if (!first) {
        return;
    }
    writer->fault_since = now;
    writer->lost_before = sonde__record_lost(writer);
    sonde_log(SONDE_LOG_ERROR, "record",
              "%s cannot be written: %s; records wait for %g s, then they are lost",
              writer->folder, strerror(fault), writer->wait_seconds);
}

/* True while a fault may still pass. */
static bool is_patient(const sonde__record_writer *writer, double since, double now)
{
    return now - SONDE_MAX(since, writer->fault_since) < writer->wait_seconds;
}

static void end_fault(sonde__record_writer *writer, double now)
{
    if (writer->fault == 0) {
        return;
    }
    if (writer->lost_files) {
        (void)writer->backend->ops->replace(writer->backend, SONDE__RUN_FILE, writer->run,
                                            writer->run_size, true, false);
        writer->lost_files = false;
    }
    sonde_log(SONDE_LOG_WARNING, "record",
              "recording continues after %.1f s; %llu records were lost",
              now - writer->fault_since,
              (unsigned long long)(sonde__record_lost(writer) - writer->lost_before));
    writer->fault = 0;
    atomic_store_explicit(&writer->gave_up, false, memory_order_release);
}

/* After a fault of wait_seconds, half of the ring holds records. */
static void make_room(sonde__record_writer *writer)
{
    const size_t most = writer->ring->size / 2;

    atomic_store_explicit(&writer->gave_up, true, memory_order_release);
    if (sonde__record_ring_fill(writer->ring) > most) {
        sonde__record_drop_batch(writer);
    }
    while (sonde__record_ring_fill(writer->ring) > most &&
           sonde__record_drop_next(writer)) {
    }
}

/* --- the loop --------------------------------------------------------------------- */

static void keep_house(sonde__record_writer *writer, double now)
{
    if (now >= writer->look_at) {
        writer->look_at = now + LOOK;
        look_for_files(writer);
        if (writer->changed || now >= writer->beat_at) {
            (void)sonde__record_writer_beat(writer, true);
            writer->beat_at = now + SONDE__HEARTBEAT - LOOK;
        }
    }
}

/* The result of an attempt at the work of the thread. */
static void note_attempt(sonde__record_writer *writer, int failed, double now)
{
    sonde__record_writer_note(writer);
    if (failed != 0) {
        begin_fault(writer, failed, now);
    } else {
        end_fault(writer, now);
    }
}

static void pause_for_retry(const sonde__record_writer *writer)
{
    const struct timespec wait = {.tv_nsec = (long)(1e9 * writer->retry_wait)};

    (void)nanosleep(&wait, NULL);
}

/* Everything in the ring is in the files, or it was given up. */
static int close_files(sonde__record_writer *writer)
{
    return sonde__record_rotate(writer, true, sonde__now());
}

static int write_state(sonde__record_writer *writer)
{
    return sonde__record_writer_beat(writer, false);
}

static int write_end(sonde__record_writer *writer)
{
    return writer->ends ? sonde__record_run_end(writer) : 0;
}

/* Closes the files and writes the last ones; each until it succeeds or the time is over.
 */
static void finish(sonde__record_writer *writer, double since)
{
    int (*const parts[])(sonde__record_writer *) = {close_files, write_state, write_end};

    if (writer->fault != 0) { /* the time is over: close what can be closed */
        writer->end_fault = writer->fault;
        sonde__record_ring_leave(
            writer->ring); /* the next open finds the records there */
        sonde__record_drop_batch(writer);
        while (sonde__record_drop_next(writer)) {
        }
    }
    sonde__record_ring_close(writer->ring, (uint32_t)writer->reason);
    for (size_t i = 0; i < SONDE_COUNT_OF(parts); i++) {
        int failed = parts[i](writer);

        while (failed != 0 && is_patient(writer, since, sonde__now())) {
            note_attempt(writer, failed, sonde__now());
            pause_for_retry(writer);
            failed = parts[i](writer);
        }
        if (failed != 0) {
            note_attempt(writer, failed, sonde__now());
            writer->end_fault = writer->end_fault != 0 ? writer->end_fault : failed;
        } else if (writer->end_fault == 0) {
            note_attempt(writer, 0, sonde__now());
        }
    }
    if (writer->end_fault == 0) {
        sonde__record_ring_remove(writer->ring);
    }
}

/* A fault that is over when closing begins loses nothing: the next attempt is at once,
 * and the waits between attempts begin anew. */
static void begin_closing(sonde__record_writer *writer, double now)
{
    writer->retry_at = now;
    writer->retry_wait = RETRY / 2;
}

/* From the ring into the files, until closing. */
static void work(sonde__record_writer *writer)
{
    double closing_since = 0.0;

    for (bool done = false; !done;) {
        const bool closing = atomic_load_explicit(&writer->closing, memory_order_acquire);
        const double now = sonde__now();
        bool any = false;

        if (closing && closing_since <= 0.0) {
            closing_since = now;
            begin_closing(writer, now);
        }
        sonde__record_ring_populate(writer->ring); /* before the producer gets there */
        keep_house(writer, now);
        if (writer->fault == 0 || now >= writer->retry_at) {
            note_attempt(writer, sonde__record_work(writer, now, &any), now);
        }
        if (writer->fault != 0) {
            const bool patient = is_patient(writer, closing_since, now);

            if (!patient && !closing) {
                make_room(writer);
            }
            done = closing && !patient;
            any = false;
        } else {
            done = closing && !any;
        }
        if (!done && !any) {
            sonde__record_ring_sleep(writer->ring,
                                     writer->fault != 0
                                         ? SONDE_MIN(writer->retry_wait, SONDE__RING_NAP)
                                         : SONDE__RING_NAP);
        }
    }
    finish(writer, closing_since);
}

/* Opens the run; false if that is all that the thread does. */
static bool begin(sonde__record_writer *writer)
{
    bool abandoned = false;

    writer->begin_err = writer->begin(writer->user, &writer->begin_diag);
    (void)pthread_mutex_lock(&writer->lock);
    writer->begun = true;
    abandoned = writer->abandoned;
    (void)pthread_cond_signal(&writer->has_begun);
    (void)pthread_mutex_unlock(&writer->lock);
    if (abandoned && writer->begin_err == SONDE_OK && writer->undo != NULL) {
        writer->undo(writer->user);
    }
    return !abandoned && writer->begin_err == SONDE_OK && !writer->only_begins;
}

static void *run(void *user)
{
    sonde__record_writer *const writer = user;

    if (begin(writer)) {
        work(writer);
    }
    if (atomic_exchange(&writer->leaving, SONDE__ENDED) == SONDE__LEFT) {
        writer->left(writer->user);
    }
    return NULL;
}

/* Waits for begin to return. False once it makes no progress for wait_seconds: the thread
 * is left alone. */
static bool wait_for_begin(sonde__record_writer *writer)
{
    const double most = writer->wait_seconds + writer->backend->slow;
    uint64_t done = atomic_load(&writer->done);
    double since = sonde__now();
    bool begun = false;

    (void)pthread_mutex_lock(&writer->lock);
    while (!writer->begun && !writer->abandoned) {
        const struct timespec look = sonde__clock_after(BEGIN_NAP);
        const uint64_t now_done = atomic_load(&writer->done);

        if (now_done != done) {
            done = now_done;
            since = sonde__now();
        }
        writer->abandoned = sonde__now() - since > most;
        if (!writer->abandoned) {
            (void)pthread_cond_timedwait(&writer->has_begun, &writer->lock, &look);
        }
    }
    begun = writer->begun;
    (void)pthread_mutex_unlock(&writer->lock);
    return begun;
}

/* After begin has returned, or has not. */
static sonde_err take_begin(sonde__record_writer *writer, const char *where,
                            bool *is_left, sonde_diag *diag)
{
    const pthread_t thread = writer->thread;
    const double waited = writer->wait_seconds;
    sonde_err err = SONDE_OK;

    if (!wait_for_begin(writer)) {
        err = sonde__fail(diag, SONDE_EIO, where, "a disk that answers",
                          "a system call has hung for %g s", waited);
        if (atomic_exchange(&writer->leaving, SONDE__LEFT) == SONDE__STAYS) {
            (void)pthread_detach(thread);
            *is_left = true;
            return err;
        }
    } else if (writer->begin_err == SONDE_OK && !writer->only_begins) {
        writer->started = true;
        return SONDE_OK;
    } else if (writer->begin_err != SONDE_OK) {
        err = writer->begin_err;
        if (diag != NULL) {
            *diag = writer->begin_diag;
        }
    }
    (void)pthread_join(thread, NULL);
    return err;
}

sonde_err sonde__record_writer_start(sonde__record_writer *writer, const char *where,
                                     bool *is_left, sonde_diag *diag)
{
    sigset_t all, before;

    *is_left = false;

    (void)sigfillset(&all); /* the program handles signals; SIGXFSZ would end it */
    int failed = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failed == 0) {
        failed = pthread_create(&writer->thread, NULL, run, writer);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (failed != 0) {
        return sonde__fail(diag, failed == EAGAIN ? SONDE_ENOMEM : SONDE_EIO,
                           "the recorder", NULL, "no thread can be started: %s",
                           strerror(failed));
    }
    return take_begin(writer, where, is_left, diag);
}

/* Waits until the thread has ended; false if it stands still for longer than wait_seconds
 * beyond its own wait. */
static bool wait_for_end(sonde__record_writer *writer)
{
    const double most = writer->wait_seconds + SONDE__RECORD_STANDSTILL;
    uint64_t done = atomic_load(&writer->done);
    double since = sonde__now();

    while (atomic_load(&writer->leaving) == SONDE__STAYS) {
        const uint64_t now_done = atomic_load(&writer->done);

        if (now_done != done) {
            done = now_done;
            since = sonde__now();
        } else if (sonde__now() - since > most) {
            return false;
        }
        sonde__record_ring_wait(writer->ring, sonde__record_ring_tail(writer->ring));
    }
    return true;
}

bool sonde__record_writer_stop(sonde__record_writer *writer)
{
    const pthread_t thread = writer->thread;

    if (!writer->started) {
        return true;
    }
    atomic_store_explicit(&writer->closing, true, memory_order_release);
    sonde__record_ring_wake(writer->ring);
    if (!wait_for_end(writer) &&
        atomic_exchange(&writer->leaving, SONDE__LEFT) == SONDE__STAYS) {
        (void)pthread_detach(thread);
        return false;
    }
    (void)pthread_join(thread, NULL);
    writer->started = false;
    return true;
}
