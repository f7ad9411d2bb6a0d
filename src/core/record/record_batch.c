/*
 * record_batch.c - one batch of the writer's thread: messages taken from the ring, their
 * bytes into the files, files closed, records lost.
 */
#include "base/fail.h"
#include "record/writer.h"
#include "base/macros.h"
#include "base/memory.h"
#include "record/record_tensors.h"

#include <errno.h>
#include <string.h>

#define SOON 0.1 /* seconds from closing a file to the next state.json */

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
    BATCH_SHARE = 8, /* of the ring: what is lost with a batch after a long fault */
    SMALL = 2048 /* bytes of a value that is copied, so that a write has fewer pieces */
};

uint64_t sonde__record_lost(const sonde__record_writer *writer)
{
    return atomic_load_explicit(&writer->counters.disk_full, memory_order_relaxed) +
           atomic_load_explicit(&writer->counters.io_error, memory_order_relaxed);
}

/* --- losses ----------------------------------------------------------------------- */

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    (void)atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void sonde__record_lose(sonde__record_writer *writer, uint64_t n, int fault)
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
        atomic_store_explicit(&writer->far_away, false, memory_order_release);
    }
}

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

    if (scratch->size - scratch->used >= n) {
        return TAKEN;
    }
    if (scratch->used > 0) {
        return LEFT_BATCH;
    }
    unsigned char *larger = sonde__malloc(n);
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

    if (writer->compressor.context != NULL) {
        sonde__record_compress(&writer->compressor, &writer->tensors.tensors[id], scratch,
                               bytes, line, &packed);
    }
    if (packed != NULL || line->bytes >= SMALL) {
        return packed != NULL ? packed : bytes;
    }
    void *copy = scratch->start + scratch->used;
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
    const char *const name = writer->tensors.names.text[id];
    sonde__record_index_line line = message->line;
    sonde__record_segment_added added = SONDE__ADDED;
    taken room = TAKEN;

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

/* Adds an item to the batch of a stream. */
static taken take_item(sonde__record_writer *writer, int stream, const void *item,
                       size_t size, int *fault)
{
    sonde__record_stream *const taking = &writer->streams[stream];

    if (!sonde__record_stream_add(taking, item, size)) {
        *fault = ENOMEM;
        return LEFT_FAULT;
    }
    return taking->waiting.length >= BATCH_ITEMS ? TAKEN_LAST : TAKEN;
}

static taken take_vitals(sonde__record_writer *writer,
                         sonde__record_vitals_message *message, int *fault)
{
    sonde__record_stats_row row = message->row;

    row.tensor = sonde__record_tensors_find(&writer->tensors, row.tensor);
    row.check = sonde__record_stats_check(&row);
    return take_item(writer, SONDE__STREAM_ROWS, &row, sizeof row, fault);
}

static taken take_sketch(sonde__record_writer *writer,
                         sonde__record_sketch_message *message, int *fault)
{
    sonde__record_sketch_record *const record = &message->record;
    const uint32_t producers = record->tensor;

    /* the message is ours until it is released */
    record->tensor = sonde__record_tensors_find(&writer->tensors, producers);
    record->check = 0;
    record->check = sonde__record_sketch_check(record);
    const taken what =
        take_item(writer, SONDE__STREAM_SKETCHES, record, record->length, fault);
    record->tensor = producers;
    return what;
}

static taken take_end(sonde__record_writer *writer,
                      const sonde__record_end_message *message, int *fault)
{
    sonde__record_step_row row = message->row;

    row.check = sonde__record_step_check(&row);
    const taken what = take_item(writer, SONDE__STREAM_STEPS, &row, sizeof row, fault);
    writer->newest =
        what != LEFT_FAULT ? SONDE_MAX(writer->newest, row.step) : writer->newest;
    return what;
}

/* Adds a tensor, and notes its id beside the ring. */
static int add_tensor(sonde__record_writer *writer,
                      const sonde__record_tensor_message *message)
{
    const int failed = sonde__record_tensors_add(&writer->tensors, message);

    return failed != 0 ? failed
                       : sonde__record_ring_set_id(
                             writer->ring, message->id,
                             sonde__record_tensors_find(&writer->tensors, message->id));
}

/* True if the message is in the files already: recovery reads it a second time. */
static bool is_written(sonde__record_writer *writer, const sonde__record_block *block)
{
    const int mark = sonde__record_mark_of(block->kind);

    if (mark == SONDE__MARKS || writer->written[mark] == 0) {
        return false;
    }
    writer->written[mark]--;
    return true;
}

/* True if the message is a record of a tensor whose line was refused. */
static bool is_nameless(const sonde__record_writer *writer,
                        const sonde__record_block *block)
{
    const void *const message = block;
    uint32_t id = SONDE_NO_TENSOR;

    switch (block->kind) {
    case SONDE__MESSAGE_VALUE:
        id = ((const sonde__record_value_message *)message)->line.tensor;
        break;
    case SONDE__MESSAGE_VITALS:
        id = ((const sonde__record_vitals_message *)message)->row.tensor;
        break;
    case SONDE__MESSAGE_SKETCH:
        id = ((const sonde__record_sketch_message *)message)->record.tensor;
        break;
    default:
        return false;
    }
    return sonde__record_tensors_find(&writer->tensors, id) == SONDE_NO_TENSOR;
}

static taken take(sonde__record_writer *writer, sonde__record_block *block, int *fault)
{
    void *const message = block;

    if (is_nameless(writer, block)) { /* is in no file: not among the written ones */
        sonde__record_lose(writer, 1, EIO);
        if (block->kind == SONDE__MESSAGE_VALUE) {
            free_far(writer, ((sonde__record_value_message *)message)->far);
        }
        return TAKEN;
    }
    if (is_written(writer, block)) {
        return TAKEN;
    }
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
    case SONDE__MESSAGE_KINDS:
    default:
        *fault = add_tensor(writer, message);
        return *fault == 0 ? TAKEN : LEFT_FAULT;
    }
}

/* Takes messages; *any: true if there were any. */
sonde__record_filled sonde__record_fill_batch(sonde__record_writer *writer, bool *any,
                                              int *fault)
{
    sonde__record_file *const data = writer->segment.data;
    sonde__record_block *block = NULL;

    *any = false;
    if (data != NULL) {
        data->in_bulk = sonde__record_ring_fill(writer->ring) >= BULK;
    }
    while ((block = sonde__record_ring_next(writer->ring)) != NULL) {
        const uint64_t position = writer->ring->read - block->size;
        taken what = LEFT_BATCH;

        if (!writer->pending || position - sonde__record_ring_tail(writer->ring) <
                                    writer->ring->size / BATCH_SHARE) {
            what = take(writer, block, fault);
        }

        if (what == TAKEN || what == TAKEN_LAST) {
            *any = writer->pending = true;
        } else {
            sonde__record_ring_back(writer->ring, block);
        }
        switch (what) {
        case TAKEN:
            break;
        case LEFT_ROTATE:
            return SONDE__FILLED_ROTATE;
        case LEFT_FAULT:
            return SONDE__FILLED_FAULT;
        case TAKEN_LAST:
        case LEFT_BATCH:
        default:
            return SONDE__FILLED_BATCH;
        }
    }
    return SONDE__FILLED_ALL;
}

static uint64_t both(const _Atomic uint64_t *now, const _Atomic uint64_t *before)
{
    return atomic_load_explicit(now, memory_order_relaxed) +
           atomic_load_explicit(before, memory_order_relaxed);
}

/* --- into the files --------------------------------------------------------------- */

sonde__record_checkpoint sonde__record_take_checkpoint(const sonde__record_writer *writer)
{
    const sonde__record_segment *const segment = &writer->segment;
    sonde__record_checkpoint mark = {
        .number = {[SONDE__MARK_VALUES] = segment->number},
        .items = {[SONDE__MARK_VALUES] =
                      sonde__record_segment_is_open(segment) ? segment->values : 0},
        .disk_full = both(&writer->counters.disk_full, &writer->before.disk_full),
        .io_error = both(&writer->counters.io_error, &writer->before.io_error),
    };

    for (int i = 0; i < SONDE__STREAMS; i++) {
        const sonde__record_stream *const stream = &writer->streams[i];

        mark.number[SONDE__MARK_ROWS + i] = stream->number;
        mark.items[SONDE__MARK_ROWS + i] = stream->file != NULL ? stream->items : 0;
    }
    memcpy(mark.written, writer->written, sizeof mark.written);
    return mark;
}

void sonde__record_checkpoint_batch(sonde__record_writer *writer)
{
    if (sonde__record_ring_is_kept(writer->ring)) {
        sonde__record_checkpoint mark = sonde__record_take_checkpoint(writer);

        sonde__record_ring_mark(writer->ring, &mark);
    }
}

static void release(sonde__record_writer *writer)
{
    writer->pending = false;
    writer->scratch.used = 0;
    sonde__record_checkpoint_batch(writer);
    free_far(writer, writer->far); /* a process that is killed now reads it no more */
    writer->far = NULL;
    sonde__record_ring_release(writer->ring);
}

static int commit_stream(sonde__record_writer *writer, int stream)
{
    uint64_t gained = 0;
    const int failed = sonde__record_stream_commit(&writer->streams[stream], &gained);

    count(&writer->counters.items[stream], gained);
    return failed;
}

/* A step is complete when all its records are in the files: its end comes last. */
static int commit_records(sonde__record_writer *writer)
{
    sonde__record_segment_gain gain = {0};
    SONDE__TRY_ERRNO(commit_stream(writer, SONDE__STREAM_ROWS));
    SONDE__TRY_ERRNO(commit_stream(writer, SONDE__STREAM_SKETCHES));
    const int failed = sonde__record_segment_commit(&writer->segment, &gain);
    count(&writer->counters.records, gain.values);
    count(&writer->counters.bytes, gain.payload);
    return failed != 0 ? failed : commit_stream(writer, SONDE__STREAM_STEPS);
}

int sonde__record_commit_batch(sonde__record_writer *writer)
{
    uint64_t gained = 0;
    int failed = sonde__record_stream_commit(&writer->tensors.catalogue, &gained);

    if (!writer->pending && failed == 0) {
        writer->scratch.used = 0;
        return 0;
    }
    writer->changed = true;
    if (failed == 0) {
        failed = commit_records(writer);
    }
    if (failed == 0) {
        atomic_store_explicit(&writer->counters.last_step, writer->newest,
                              memory_order_relaxed);
        release(writer);
    }
    return failed;
}

/* --- losing ----------------------------------------------------------------------- */

void sonde__record_drop_batch(sonde__record_writer *writer)
{
    if (!writer->pending) {
        return;
    }
    sonde__record_lose(
        writer,
        sonde__record_stream_drop(&writer->streams[SONDE__STREAM_ROWS]) +
            sonde__record_stream_drop(&writer->streams[SONDE__STREAM_SKETCHES]) +
            sonde__record_segment_drop(&writer->segment),
        writer->fault);
    (void)sonde__record_stream_drop(&writer->streams[SONDE__STREAM_STEPS]);
    writer->newest =
        atomic_load_explicit(&writer->counters.last_step, memory_order_relaxed);
    release(writer);
}

bool sonde__record_drop_next(sonde__record_writer *writer)
{
    sonde__record_block *const block = sonde__record_ring_next(writer->ring);
    void *const message = block, *far = NULL;

    if (block == NULL) {
        return false;
    }
    switch ((sonde__record_message_kind)block->kind) {
    case SONDE__MESSAGE_VALUE:
        far = ((sonde__record_value_message *)message)->far;
        sonde__record_lose(writer, 1, writer->fault);
        break;
    case SONDE__MESSAGE_VITALS:
    case SONDE__MESSAGE_SKETCH:
        sonde__record_lose(writer, 1, writer->fault);
        break;
    case SONDE__MESSAGE_TENSOR: /* needs memory alone, and no second chance comes */
        (void)add_tensor(writer, message);
        break;
    case SONDE__MESSAGE_END:
    case SONDE__MESSAGE_KINDS:
    default:
        break;
    }
    sonde__record_checkpoint_batch(writer);
    free_far(writer, far);
    sonde__record_ring_release(writer->ring);
    return true;
}

/* --- closing files ---------------------------------------------------------------- */

static int rotate_streams(sonde__record_writer *writer, bool all, double old, bool *any)
{
    for (int i = 0; i < SONDE__STREAMS; i++) {
        sonde__record_stream *const stream = &writer->streams[i];
        sonde__record_listed line;

        if (stream->file == NULL ||
            !(all || stream->opened <= old || stream->end >= writer->segment_bytes)) {
            continue;
        }
        if (!sonde__record_file_list_reserve(&writer->files, 1)) {
            return ENOMEM;
        }
        SONDE__TRY_ERRNO(sonde__record_stream_close(stream, &line));
        sonde__record_file_list_put(&writer->files, &line);
        *any = true;
    }
    return 0;
}

static int rotate_segment(sonde__record_writer *writer, bool all, double old, bool *any)
{
    sonde__record_segment *const segment = &writer->segment;
    sonde__record_listed data, index;

    if (!sonde__record_segment_is_open(segment) ||
        !(all || writer->rotating || segment->opened <= old)) {
        return 0;
    }
    if (!sonde__record_file_list_reserve(&writer->files, 2)) {
        return ENOMEM;
    }
    SONDE__TRY_ERRNO(sonde__record_segment_close(segment, &data, &index));
    sonde__record_file_list_put(&writer->files, &data);
    sonde__record_file_list_put(&writer->files, &index);
    *any = true;
    return 0;
}

int sonde__record_rotate(sonde__record_writer *writer, bool all, double now)
{
    const double old = now - writer->segment_seconds;
    bool any = false;
    SONDE__TRY_ERRNO(rotate_streams(writer, all, old, &any));
    SONDE__TRY_ERRNO(rotate_segment(writer, all, old, &any));
    writer->rotating = false;
    const int failed = all ? sonde__record_file_list_end(&writer->files)
                           : sonde__record_file_list_commit(&writer->files);
    if (failed == 0 && any) {
        writer->changed = true;
        writer->look_at = SONDE_MIN(writer->look_at, now + SOON);
    }
    return failed;
}

/* --- all of it --------------------------------------------------------------------- */

int sonde__record_work(sonde__record_writer *writer, double now, bool *any)
{
    sonde__record_filled got = SONDE__FILLED_ALL;
    int failed = 0, fault = 0;

    if (writer->pending) {
        failed = sonde__record_commit_batch(writer);
    }
    if (failed == 0) {
        failed = sonde__record_rotate(writer, false, now);
    }
    if (failed != 0) {
        return failed;
    }
    got = sonde__record_fill_batch(writer, any, &fault);
    failed = sonde__record_commit_batch(writer);
    writer->rotating = got == SONDE__FILLED_ROTATE;
    *any = *any || writer->rotating;
    if (failed == 0 && got == SONDE__FILLED_FAULT) {
        failed = fault;
    }
    return failed;
}
