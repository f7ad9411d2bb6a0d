/*
 * writer.c - the writer's thread: its loop, rotation, faults.
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
#include <sys/mman.h>
#include <unistd.h>

#define RETRY 0.25 /* seconds between two attempts at what failed */
#define SOON 0.1   /* seconds from a file that was closed to the state that says so */
#define LOOK 1.0   /* seconds between two looks at whether the files are still there */

void sonde__record_writer_init(sonde__record_writer *writer)
{
    *writer = (sonde__record_writer){.newest = -1};
    atomic_init(&writer->counters.last_step, -1);
    atomic_init(&writer->before.last_step, -1);
    (void)gethostname(writer->host, sizeof writer->host - 1);
}

void sonde__record_writer_fini(sonde__record_writer *writer)
{
    sonde__record_segment_fini(&writer->segment);
    sonde__record_stream_fini(&writer->stats);
    sonde__record_stream_fini(&writer->sketches);
    sonde__record_stream_fini(&writer->steps);
    sonde__record_tensors_fini(&writer->tensors);
    sonde__record_compressor_fini(&writer->compressor);
    sonde__free(writer->scratch.start);
    sonde__free(writer->far);
    sonde__free(writer->run);
    if (writer->backend != NULL) {
        writer->backend->ops->destroy(writer->backend);
        writer->backend = NULL;
    }
}

static uint64_t lost(const sonde__record_writer *writer)
{
    return atomic_load_explicit(&writer->counters.disk_full, memory_order_relaxed) +
           atomic_load_explicit(&writer->counters.io_error, memory_order_relaxed);
}

/* --- closing files ---------------------------------------------------------------- */

/* Closes every file that is due: all of them if all, else those that are old or full. */
static int rotate(sonde__record_writer *writer, bool all, double now)
{
    sonde__record_segment *const segment = &writer->segment;
    const double old = now - writer->segment_seconds;
    sonde__record_stream *const streams[] = {&writer->stats, &writer->sketches,
                                             &writer->steps};
    bool any = false;
    int failed = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(streams) && failed == 0; i++) {
        sonde__record_stream *const stream = streams[i];

        if (stream->file != NULL &&
            (all || stream->opened <= old || stream->end >= writer->segment_bytes)) {
            failed = sonde__record_stream_close(stream);
            any = true;
        }
    }
    if (failed == 0 && sonde__record_segment_is_open(segment) &&
        (all || writer->rotating || segment->opened <= old)) {
        failed = sonde__record_segment_close(segment);
        any = true;
    }
    if (failed == 0) {
        writer->rotating = false;
    }
    if (failed == 0 && any) {
        writer->changed = true;
        writer->look_at = SONDE_MIN(writer->look_at, now + SOON);
    }
    return failed;
}

/* --- faults ----------------------------------------------------------------------- */

static bool is_lost(sonde__record_file *file)
{
    return file != NULL && file->ops->is_lost(file);
}

/* Somebody has taken the run away. What is in files that nobody can find is lost; when
 * there is a folder again, new files are begun. */
static void look_for_files(sonde__record_writer *writer)
{
    sonde__record_segment *const segment = &writer->segment;
    sonde__record_counters *const counters = &writer->counters;

    if (is_lost(segment->data) || is_lost(segment->index)) {
        sonde__record_batch_drop(writer);
        sonde__record_batch_lose(writer, segment->values, ENOENT);
        (void)atomic_fetch_sub(&counters->records, segment->values);
        (void)atomic_fetch_sub(&counters->bytes, segment->payload);
        sonde__record_segment_abandon(segment);
        writer->lost_files = true;
    }
    if (is_lost(writer->stats.file)) {
        sonde__record_batch_lose(writer, writer->stats.items, ENOENT);
        (void)atomic_fetch_sub(&counters->rows, writer->stats.items);
        sonde__record_stream_abandon(&writer->stats);
        writer->lost_files = true;
    }
    if (is_lost(writer->sketches.file)) {
        sonde__record_batch_lose(writer, writer->sketches.items, ENOENT);
        (void)atomic_fetch_sub(&counters->sketches, writer->sketches.items);
        sonde__record_stream_abandon(&writer->sketches);
        writer->lost_files = true;
    }
    if (is_lost(writer->steps.file)) {
        sonde__record_stream_abandon(&writer->steps);
        writer->lost_files = true;
    }
    if (is_lost(writer->tensors.catalogue.file)) {
        sonde__record_tensors_abandon(&writer->tensors);
        writer->lost_files = true;
    }
}

static void begin_fault(sonde__record_writer *writer, int fault, double now)
{
    writer->retry_at = now + RETRY;
    if (writer->fault != 0) {
        return;
    }
    writer->fault = fault;
    atomic_store_explicit(&writer->faulty, true, memory_order_release);
    writer->fault_since = now;
    writer->lost_before = lost(writer);
    sonde_log(SONDE_LOG_ERROR, "record",
              "%s cannot be written: %s; what comes is kept while there is room in "
              "memory, then lost",
              writer->folder, strerror(fault));
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
              "recording goes on after %.1f s; %llu records were lost",
              now - writer->fault_since,
              (unsigned long long)(lost(writer) - writer->lost_before));
    writer->fault = 0;
    atomic_store_explicit(&writer->faulty, false, memory_order_release);
}

/* While nothing can be written: half of the ring is for what is kept. */
static void make_room(sonde__record_writer *writer)
{
    const size_t most = writer->ring->size / 2;

    if (sonde__record_ring_fill(writer->ring) > most) {
        sonde__record_batch_drop(writer);
    }
    while (sonde__record_ring_fill(writer->ring) > most &&
           sonde__record_batch_drop_next(writer)) {
    }
}

/* --- the loop --------------------------------------------------------------------- */

/* As much as one batch. *any: whether there was anything to do. Returns an errno. */
static int work(sonde__record_writer *writer, double now, bool *any)
{
    sonde__record_filled filled = SONDE__FILLED_ALL;
    int failed = 0, fault = 0;

    if (writer->pending) {
        failed = sonde__record_batch_commit(writer);
    }
    if (failed == 0) {
        failed = rotate(writer, false, now);
    }
    if (failed != 0) {
        return failed;
    }
    filled = sonde__record_batch_fill(writer, any, &fault);
    failed = sonde__record_batch_commit(writer);
    writer->rotating = filled == SONDE__FILLED_ROTATE;
    *any = *any || writer->rotating;
    if (failed == 0 && filled == SONDE__FILLED_FAULT) {
        failed = fault;
    }
    return failed;
}

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

/* What is left when the end has come. */
static void finish(sonde__record_writer *writer)
{
    int failed = writer->fault != 0 ? writer->fault : rotate(writer, true, sonde__now());

    if (failed != 0) {
        begin_fault(writer, failed, sonde__now());
        sonde__record_batch_drop(writer);
        while (sonde__record_batch_drop_next(writer)) {
        }
        (void)rotate(writer, true, sonde__now()); /* what can be closed is closed */
    }
    (void)sonde__record_writer_beat(writer, false);
}

static void *run(void *user)
{
    sonde__record_writer *const writer = user;

#ifdef MADV_POPULATE_WRITE /* before the producer comes there, or not at all */
    (void)madvise(writer->ring->base, writer->ring->size, MADV_POPULATE_WRITE);
#endif
    for (bool done = false; !done;) {
        const bool closing = atomic_load_explicit(&writer->closing, memory_order_acquire);
        const double now = sonde__now();
        bool any = false;
        int failed = 0;

        keep_house(writer, now);
        if (writer->fault == 0 || now >= writer->retry_at || closing) {
            failed = work(writer, now, &any);
            if (failed != 0) {
                begin_fault(writer, failed, now);
            } else {
                end_fault(writer, now);
            }
        }
        if (writer->fault != 0) {
            make_room(writer);
        }
        done = closing && (!any || writer->fault != 0);
        if (!done && (!any || writer->fault != 0)) {
            sonde__record_ring_sleep(writer->ring, SONDE__RING_NAP);
        }
    }
    finish(writer);
    return NULL;
}

sonde_err sonde__record_writer_start(sonde__record_writer *writer, sonde_diag *diag)
{
    sigset_t all, before;
    int failed = 0;

    (void)sigfillset(&all); /* signals are the program's; SIGXFSZ would end it */
    failed = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failed == 0) {
        failed = pthread_create(&writer->thread, NULL, run, writer);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (failed != 0) {
        return sonde__fail(diag, failed == EAGAIN ? SONDE_ENOMEM : SONDE_EIO,
                           "the recorder", NULL, "no thread can be started: %s",
                           strerror(failed));
    }
    writer->started = true;
    return SONDE_OK;
}

void sonde__record_writer_stop(sonde__record_writer *writer)
{
    if (writer->started) {
        atomic_store_explicit(&writer->closing, true, memory_order_release);
        sonde__record_ring_wake(writer->ring);
        (void)pthread_join(writer->thread, NULL);
        writer->started = false;
    }
}
