/*
 * writer.c - the writer's thread: messages to batches, batches to files, rotation, faults.
 */
#include "record/writer.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "record/digest.h"
#include "record/record_run.h"

#include <sonde/log.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RETRY 0.001      /* seconds between the first two attempts at what failed */
#define MOST_RETRY 0.128 /* between the last ones */
#define SOON 0.1         /* seconds from closing a file to the next state.json */
#define LOOK 1.0         /* seconds between two checks that the files still exist */

#if defined(SONDE_STRESS)
enum { BATCH_BYTES = 30000, BATCH_ITEMS = 500, BULK = 5000 };
#else
enum {
    BATCH_BYTES = 16 * 1024 * 1024, /* of values; a larger one is a batch of its own */
    BATCH_ITEMS = 1024 * 1024,      /* bytes of statistics, of sketches, of steps */
    BULK = 1024 * 1024              /* of values at once, that go past the page cache */
};
#endif
enum {
    SMALL = 2048 /* bytes of a value that is copied, so that a write has fewer pieces */
};

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
    sonde__free(writer->text);
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

/* --- losses ----------------------------------------------------------------------- */

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    (void)atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void lose(sonde__record_writer *writer, uint64_t n, int fault)
{
    const bool full = fault == ENOSPC || fault == EDQUOT || fault == EFBIG;

    count(full ? &writer->counters.disk_full : &writer->counters.io_error, n);
    writer->changed = true;
}

/* --- taking ----------------------------------------------------------------------- */

/* The producer may send the next. */
static void free_far(sonde__record_writer *writer, void *far)
{
    if (far != NULL) {
        sonde__free(far);
        atomic_store_explicit(&writer->far_away, false, memory_order_release);
    }
}

/* Why no more messages were taken. */
typedef enum filled {
    FILLED_ALL,    /* the ring is empty */
    FILLED_BATCH,  /* the batch is full */
    FILLED_ROTATE, /* the next value goes to the next segment */
    FILLED_FAULT   /* errno in *fault */
} filled;

/* The result of taking a message. */
typedef enum taken {
    TAKEN,       /* it is in the batch, or lost */
    TAKEN_LAST,  /* likewise, and the batch is full */
    LEFT_BATCH,  /* the batch is full without it */
    LEFT_ROTATE, /* it belongs to the next segment */
    LEFT_FAULT   /* errno in *fault */
} taken;

/* A segment, open. */
static int need_segment(sonde__record_writer *writer, uint64_t value, size_t name)
{
    int failed = 0;

    if (sonde__record_segment_is_open(&writer->segment)) {
        return 0;
    }
    failed =
        sonde__record_segment_open(&writer->segment, writer->segment_bytes, value, name);
    if (failed == 0) {
        writer->segment.data->in_bulk = sonde__record_ring_fill(writer->ring) >= BULK;
    }
    return failed;
}

/* Room in scratch; TAKEN if there is. What is in use cannot move. */
static taken need_scratch(sonde__record_writer *writer, size_t n, int *fault)
{
    sonde__record_scratch *const scratch = &writer->scratch;
    unsigned char *larger = NULL;

    if (scratch->size - scratch->used >= n) {
        return TAKEN;
    }
    if (scratch->used > 0) {
        return LEFT_BATCH;
    }
    larger = sonde__malloc(n);
    if (larger == NULL) {
        *fault = ENOMEM;
        return LEFT_FAULT;
    }
    sonde__free(scratch->start);
    scratch->start = larger;
    scratch->size = n;
    return TAKEN;
}

/* The bytes to store: compressed; or small ones copied one after the other, large ones in
 * place. */
static const void *place(sonde__record_writer *writer, uint32_t id, const void *bytes,
                         sonde__record_index_line *line)
{
    sonde__record_scratch *const scratch = &writer->scratch;
    const void *packed = NULL;
    void *copy = NULL;

    if (writer->compressor.context != NULL) {
        sonde__record_compress(&writer->compressor, &writer->tensors.tensors[id], scratch,
                               bytes, line, &packed);
    }
    if (packed != NULL || line->bytes >= SMALL) {
        return packed != NULL ? packed : bytes;
    }
    copy = scratch->start + scratch->used;
    memcpy(copy, bytes, (size_t)line->bytes);
    scratch->used += (size_t)line->bytes;
    return copy;
}

/* True if n more bytes exceed the size of a segment. */
static bool is_full(const sonde__record_writer *writer, uint64_t n)
{
    const sonde__record_segment *segment = &writer->segment;

    return sonde__record_segment_is_open(segment) && segment->staged > 0 &&
           segment->staged + n > writer->segment_bytes;
}

static taken take_value(sonde__record_writer *writer,
                        const sonde__record_value_message *message, int *fault)
{
    const uint32_t id =
        sonde__record_tensors_find(&writer->tensors, message->line.tensor);
    const uint64_t payload = message->line.bytes;
    const void *bytes = message->far != NULL ? message->far : message->bytes;
    const char *const name =
        id != SONDE_NO_TENSOR ? writer->tensors.names.text[id] : NULL;
    sonde__record_index_line line = message->line;
    sonde__record_segment_added added = SONDE__ADDED;
    taken room = TAKEN;

    if (name == NULL) { /* its line was refused */
        lose(writer, 1, EIO);
        free_far(writer, message->far);
        return TAKEN;
    }
    if (is_full(writer, payload)) {
        return LEFT_ROTATE;
    }
    *fault = need_segment(writer, payload, strlen(name));
    if (*fault != 0) {
        return LEFT_FAULT;
    }
    room = need_scratch(writer,
                        writer->compressor.context != NULL
                            ? sonde__record_compressor_bound((size_t)payload)
                            : SMALL,
                        fault);
    if (room != TAKEN) {
        return room;
    }
    line.tensor = id;
    line.hash = sonde__record_digest(bytes, (size_t)payload);
    bytes = place(writer, id, bytes, &line);
    added = sonde__record_segment_add(&writer->segment, &line, bytes, payload, name);
    if (added != SONDE__ADDED) {
        *fault = ENOMEM;
        return added == SONDE__BATCH_FULL    ? LEFT_BATCH
               : added == SONDE__HEADER_FULL ? LEFT_ROTATE
                                             : LEFT_FAULT;
    }
    writer->far = message->far;
    return message->far != NULL ||
                   writer->segment.staged - writer->segment.end >= BATCH_BYTES
               ? TAKEN_LAST
               : TAKEN;
}

static taken take_vitals(sonde__record_writer *writer,
                         sonde__record_vitals_message *message, int *fault)
{
    const uint32_t id = sonde__record_tensors_find(&writer->tensors, message->row.tensor);
    sonde__record_stats_row row = message->row;

    if (id == SONDE_NO_TENSOR) {
        lose(writer, 1, EIO);
        return TAKEN;
    }
    row.tensor = id;
    row.check = sonde__record_stats_check(&row);
    if (!sonde__record_stream_add(&writer->stats, &row, sizeof row)) {
        *fault = ENOMEM;
        return LEFT_FAULT;
    }
    return writer->stats.waiting.length >= BATCH_ITEMS ? TAKEN_LAST : TAKEN;
}

static taken take_sketch(sonde__record_writer *writer,
                         sonde__record_sketch_message *message, int *fault)
{
    sonde__record_sketch_record *const record = &message->record;
    const uint32_t producers = record->tensor;
    const uint32_t id = sonde__record_tensors_find(&writer->tensors, producers);
    bool added = false;

    if (id == SONDE_NO_TENSOR) {
        lose(writer, 1, EIO);
        return TAKEN;
    }
    record->tensor = id; /* the message is ours until it is released */
    record->check = 0;
    record->check = sonde__record_sketch_check(record);
    added = sonde__record_stream_add(&writer->sketches, record, record->length);
    record->tensor = producers;
    if (!added) {
        *fault = ENOMEM;
        return LEFT_FAULT;
    }
    return writer->sketches.waiting.length >= BATCH_ITEMS ? TAKEN_LAST : TAKEN;
}

static taken take_end(sonde__record_writer *writer,
                      const sonde__record_end_message *message, int *fault)
{
    sonde__record_step_row row = message->row;

    row.check = sonde__record_step_check(&row);
    if (!sonde__record_stream_add(&writer->steps, &row, sizeof row)) {
        *fault = ENOMEM;
        return LEFT_FAULT;
    }
    writer->newest = SONDE_MAX(writer->newest, row.step);
    return writer->steps.waiting.length >= BATCH_ITEMS ? TAKEN_LAST : TAKEN;
}

static taken take(sonde__record_writer *writer, sonde__record_block *block, int *fault)
{
    void *const message = block;

    switch ((sonde__record_message_kind)block->kind) {
    case SONDE__MESSAGE_VALUE:
        return take_value(writer, message, fault);
    case SONDE__MESSAGE_VITALS:
        return take_vitals(writer, message, fault);
    case SONDE__MESSAGE_SKETCH:
        return take_sketch(writer, message, fault);
    case SONDE__MESSAGE_END:
        return take_end(writer, message, fault);
    case SONDE__MESSAGE_TENSOR:
    default:
        *fault = sonde__record_tensors_add(&writer->tensors, message);
        return *fault == 0 ? TAKEN : LEFT_FAULT;
    }
}

/* Takes messages; *any: true if there were any. */
static filled fill_batch(sonde__record_writer *writer, bool *any, int *fault)
{
    sonde__record_file *const data = writer->segment.data;
    sonde__record_block *block = NULL;

    *any = false;
    if (data != NULL) {
        data->in_bulk = sonde__record_ring_fill(writer->ring) >= BULK;
    }
    while ((block = sonde__record_ring_next(writer->ring)) != NULL) {
        const taken what = take(writer, block, fault);

        if (what == TAKEN || what == TAKEN_LAST) {
            *any = writer->pending = true;
        } else {
            sonde__record_ring_back(writer->ring, block);
        }
        switch (what) {
        case TAKEN:
            break;
        case LEFT_ROTATE:
            return FILLED_ROTATE;
        case LEFT_FAULT:
            return FILLED_FAULT;
        case TAKEN_LAST:
        case LEFT_BATCH:
        default:
            return FILLED_BATCH;
        }
    }
    return FILLED_ALL;
}

/* --- into the files --------------------------------------------------------------- */

static void release(sonde__record_writer *writer)
{
    writer->pending = false;
    writer->scratch.used = 0;
    free_far(writer, writer->far);
    writer->far = NULL;
    sonde__record_ring_release(writer->ring);
}

static int commit_batch(sonde__record_writer *writer)
{
    sonde__record_counters *const counters = &writer->counters;
    sonde__record_segment_gain gain = {0};
    uint64_t gained = 0;
    int failed = sonde__record_stream_commit(&writer->tensors.catalogue, &gained);

    if (!writer->pending && failed == 0) {
        writer->scratch.used = 0;
        return 0;
    }
    if (failed == 0) {
        failed = sonde__record_stream_commit(&writer->stats, &gained);
        count(&counters->rows, gained);
    }
    if (failed == 0) {
        failed = sonde__record_stream_commit(&writer->sketches, &gained);
        count(&counters->sketches, gained);
    }
    if (failed == 0) {
        failed = sonde__record_segment_commit(&writer->segment, &gain);
        count(&counters->records, gain.values);
        count(&counters->bytes, gain.payload);
    }
    if (failed == 0) { /* a step is complete when all its records are in the files */
        failed = sonde__record_stream_commit(&writer->steps, &gained);
    }
    writer->changed = true;
    if (failed == 0) {
        atomic_store_explicit(&counters->last_step, writer->newest, memory_order_relaxed);
        release(writer);
    }
    return failed;
}

/* --- losing ----------------------------------------------------------------------- */

static void drop_batch(sonde__record_writer *writer)
{
    if (!writer->pending) {
        return;
    }
    lose(writer,
         sonde__record_stream_drop(&writer->stats) +
             sonde__record_stream_drop(&writer->sketches) +
             sonde__record_segment_drop(&writer->segment),
         writer->fault);
    (void)sonde__record_stream_drop(&writer->steps);
    writer->newest =
        atomic_load_explicit(&writer->counters.last_step, memory_order_relaxed);
    release(writer);
}

static bool drop_next(sonde__record_writer *writer)
{
    sonde__record_block *const block = sonde__record_ring_next(writer->ring);
    void *const message = block;

    if (block == NULL) {
        return false;
    }
    switch ((sonde__record_message_kind)block->kind) {
    case SONDE__MESSAGE_VALUE:
        free_far(writer, ((sonde__record_value_message *)message)->far);
        lose(writer, 1, writer->fault);
        break;
    case SONDE__MESSAGE_VITALS:
    case SONDE__MESSAGE_SKETCH:
        lose(writer, 1, writer->fault);
        break;
    case SONDE__MESSAGE_TENSOR: /* needs memory alone, and no second chance comes */
        (void)sonde__record_tensors_add(&writer->tensors, message);
        break;
    case SONDE__MESSAGE_END:
    default:
        break;
    }
    sonde__record_ring_release(writer->ring);
    return true;
}

/* --- closing files ---------------------------------------------------------------- */

/* Closes every file if all, else old and full ones. */
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

/* Handles removed files: their records are lost, and new files are begun once there is a
 * folder again. */
static void look_for_files(sonde__record_writer *writer)
{
    sonde__record_segment *const segment = &writer->segment;
    sonde__record_counters *const counters = &writer->counters;

    if (is_lost(segment->data) || is_lost(segment->index)) {
        drop_batch(writer);
        lose(writer, segment->values, ENOENT);
        (void)atomic_fetch_sub(&counters->records, segment->values);
        (void)atomic_fetch_sub(&counters->bytes, segment->payload);
        sonde__record_segment_abandon(segment);
        writer->lost_files = true;
    }
    if (is_lost(writer->stats.file)) {
        lose(writer, writer->stats.items, ENOENT);
        (void)atomic_fetch_sub(&counters->rows, writer->stats.items);
        sonde__record_stream_abandon(&writer->stats);
        writer->lost_files = true;
    }
    if (is_lost(writer->sketches.file)) {
        lose(writer, writer->sketches.items, ENOENT);
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
    const bool first = writer->fault == 0;

    writer->retry_wait = first ? RETRY : SONDE_MIN(2 * writer->retry_wait, MOST_RETRY);
    writer->retry_at = now + writer->retry_wait;
    writer->fault = fault;
    if (!first) {
        return;
    }
    writer->fault_since = now;
    writer->lost_before = lost(writer);
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
              (unsigned long long)(lost(writer) - writer->lost_before));
    writer->fault = 0;
    atomic_store_explicit(&writer->gave_up, false, memory_order_release);
}

/* After a fault of wait_seconds, half of the ring holds records. */
static void make_room(sonde__record_writer *writer)
{
    const size_t most = writer->ring->size / 2;

    atomic_store_explicit(&writer->gave_up, true, memory_order_release);
    if (sonde__record_ring_fill(writer->ring) > most) {
        drop_batch(writer);
    }
    while (sonde__record_ring_fill(writer->ring) > most && drop_next(writer)) {
    }
}

/* --- the loop --------------------------------------------------------------------- */

/* Processes one batch. *any: true if there was work. Returns an errno. */
static int work(sonde__record_writer *writer, double now, bool *any)
{
    filled got = FILLED_ALL;
    int failed = 0, fault = 0;

    if (writer->pending) {
        failed = commit_batch(writer);
    }
    if (failed == 0) {
        failed = rotate(writer, false, now);
    }
    if (failed != 0) {
        return failed;
    }
    got = fill_batch(writer, any, &fault);
    failed = commit_batch(writer);
    writer->rotating = got == FILLED_ROTATE;
    *any = *any || writer->rotating;
    if (failed == 0 && got == FILLED_FAULT) {
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

/* The result of an attempt at the work of the thread. */
static void note_attempt(sonde__record_writer *writer, int failed, double now)
{
    count(&writer->done, 1);
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
    return rotate(writer, true, sonde__now());
}

static int write_state(sonde__record_writer *writer)
{
    return sonde__record_writer_beat(writer, false);
}

static int write_end(sonde__record_writer *writer)
{
    return writer->ends ? sonde__record_run_end(writer) : 0;
}

/* Closes the files and writes the last ones; each until it succeeds or the time is over. */
static void finish(sonde__record_writer *writer, double since)
{
    int (*const parts[])(sonde__record_writer *) = {close_files, write_state, write_end};

    if (writer->fault != 0) { /* the time is over: close what can be closed */
        writer->end_fault = writer->fault;
        drop_batch(writer);
        while (drop_next(writer)) {
        }
    }
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
}

static void *run(void *user)
{
    sonde__record_writer *const writer = user;
    double closing_since = 0.0;

#ifdef MADV_POPULATE_WRITE /* before the producer gets there */
    (void)madvise(writer->ring->base, writer->ring->size, MADV_POPULATE_WRITE);
#endif
    for (bool done = false; !done;) {
        const bool closing = atomic_load_explicit(&writer->closing, memory_order_acquire);
        const double now = sonde__now();
        bool any = false;

        closing_since = closing && closing_since <= 0.0 ? now : closing_since;
        keep_house(writer, now);
        if (writer->fault == 0 || now >= writer->retry_at) {
            note_attempt(writer, work(writer, now, &any), now);
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
    if (atomic_exchange(&writer->leaving, SONDE__ENDED) == SONDE__LEFT) {
        writer->left(writer->user);
    }
    return NULL;
}

sonde_err sonde__record_writer_start(sonde__record_writer *writer, sonde_diag *diag)
{
    sigset_t all, before;
    int failed = 0;

    (void)sigfillset(&all); /* the program handles signals; SIGXFSZ would end it */
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

/* Waits until the thread has ended; false if it stands still for longer than wait_seconds
 * beyond its own wait. */
static bool wait_for_end(sonde__record_writer *writer)
{
    const double most = writer->wait_seconds + 2 * MOST_RETRY;
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
