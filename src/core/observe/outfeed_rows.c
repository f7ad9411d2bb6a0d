/*
 * outfeed_rows.c - the rows of an outfeed queue: the producer makes them; the consumer
 * takes them, waits for them and closes the queue.
 *
 * The producer holds the lock when a row begins, to find its slot, and when a row is
 * complete, to publish it. It copies values without the lock.
 */
#include <sonde/log.h>

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "observe/outfeed_state.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STAGED = -1 /* a row's bank */ };

/* --- preparing -------------------------------------------------------------------- */

const char *sonde__outfeed_where(const sonde_outfeed *queue, char *buf, size_t size)
{
    (void)snprintf(buf, size, "outfeed '%.200s'", queue->name);
    return buf;
}

static void free_memory(sonde__outfeed_column *column)
{
    sonde__free(column->bank[0]);
    sonde__free(column->bank[1]);
    sonde__free(column->staged);
    sonde__free(column->arrived);
    column->bank[0] = NULL;
    column->bank[1] = NULL;
    column->staged = NULL;
    column->arrived = NULL;
    column->prepared = false;
}

void sonde__outfeed_free_column(sonde__outfeed_column *column)
{
    free_memory(column);
    sonde__free(column->tensor);
    column->tensor = NULL;
}

static sonde_err check_column(const sonde_outfeed *queue, const sonde_tensor_info *info,
                              const sonde_call_shape *shape, sonde_diag *diag)
{
    const int leading = shape->replicas > 1 ? 2 : 1;
    char where[256];

    (void)sonde__outfeed_where(queue, where, sizeof where);
    if (info->rank + leading > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, where, "at most 8 dimensions",
                           "'%.200s' of rank %d, stacked", info->name, info->rank);
    }
    if (info->pass == SONDE_PASS_UPDATE && shape->micro_batches > 1 &&
        queue->options.per == SONDE_OUTFEED_MICRO_BATCH) {
        return sonde__fail(diag, SONDE_EINVAL, where, "a queue with a row a step",
                           "'%.200s' comes once a step, a row every micro-batch",
                           info->name);
    }
    return SONDE_OK;
}

static sonde_err allocate(const sonde_outfeed *queue, sonde__outfeed_column *column,
                          int replicas, sonde_diag *diag)
{
    const size_t rows = (size_t)queue->options.rows;
    const bool two = !queue->options.one_thread;
    const bool stages = queue->options.when_full == SONDE_OUTFEED_DROP_OLDEST;
    char where[256];

    (void)sonde__outfeed_where(queue, where, sizeof where);
    column->value_bytes =
        (size_t)sonde_view_count(&column->value) * sonde_dtype_size(column->value.dtype);
    if (!sonde__mul(column->value_bytes, (size_t)replicas, &column->row_bytes)) {
        return sonde__fail_nomem(diag, where);
    }
    column->bank[0] = sonde__calloc(rows, column->row_bytes);
    column->bank[1] = two ? sonde__calloc(rows, column->row_bytes) : NULL;
    column->staged = stages ? sonde__malloc(column->row_bytes) : NULL;
    column->arrived = sonde__calloc((size_t)replicas, sizeof *column->arrived);
    if (column->bank[0] == NULL || (two && column->bank[1] == NULL) ||
        (stages && column->staged == NULL) || column->arrived == NULL) {
        free_memory(column);
        return sonde__fail_nomem(diag, where);
    }
    return SONDE_OK;
}

/* Allocates a column again if its shape or the call's differs from before. */
static sonde_err prepare_column(sonde_outfeed *queue, sonde__outfeed_column *column,
                                const sonde_tensor_info *info,
                                const sonde_call_shape *shape, sonde_diag *diag)
{
    const sonde_view value = sonde_view_of(info->dtype, info->rank, info->shape, NULL);

    if (column->prepared && column->value.dtype == value.dtype &&
        sonde_view_same_shape(&column->value, &value) &&
        queue->shape.replicas == shape->replicas) {
        return SONDE_OK;
    }
    if (column->prepared) {
        free_memory(column);
        queue->prepared--;
    }
    column->value = value;
    SONDE__TRY(allocate(queue, column, shape->replicas, diag));
    column->prepared = true;
    queue->prepared++;
    return SONDE_OK;
}

static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    sonde_outfeed *queue = (sonde_outfeed *)sink;
    sonde_err err = SONDE_OK;

    (void)how;
    SONDE__TRY_GO(check_column(queue, info, shape, diag));
    for (size_t i = queue->by_id[id]; i != SONDE__NO_COLUMN; i = queue->columns[i].next) {
        SONDE__TRY_GO(prepare_column(queue, &queue->columns[i], info, shape, diag));
    }
error:
    (void)pthread_mutex_lock(&queue->lock);
    queue->shape = *shape;
    queue->row.open = false;
    queue->head = 0;
    queue->count = 0;
    (void)pthread_mutex_unlock(&queue->lock);
    return err;
}

/* --- a row ------------------------------------------------------------------------ */

static void report_loss(const sonde_outfeed *queue, uint64_t before,
                        sonde_log_level level, const char *what)
{
    if (before == 0) {
        sonde_log(level, "observe", "outfeed '%s': %s", queue->name, what);
    }
}

static void lose_partial(sonde_outfeed *queue)
{
    queue->row.open = false;
    (void)pthread_mutex_lock(&queue->lock);
    const uint64_t before = queue->counts.partial++;
    (void)pthread_mutex_unlock(&queue->lock);
    report_loss(queue, before, SONDE_LOG_ERROR,
                "a row is lost: not all of its tensors came in their shapes");
}

/* Counts a refused row. The caller holds the lock. Returns the previous count. */
static uint64_t refuse(sonde_outfeed *queue)
{
    queue->overflowed +=
        queue->options.when_full == SONDE_OUTFEED_ERROR && !queue->closed;
    return queue->counts.refused++;
}

/* The micro-batch of a row; 0 if the queue has one row a step. */
static int part_of(const sonde_outfeed *queue, const sonde_coordinate *place)
{
    return queue->options.per == SONDE_OUTFEED_STEP ? 0 : place->micro_batch;
}

/* Finds the place of a new row, and waits for one if the queue is set to wait. */
static void begin_row(sonde_outfeed *queue, const sonde_coordinate *place)
{
    const sonde_outfeed_full when_full = queue->options.when_full;
    sonde__outfeed_row *row = &queue->row;
    uint64_t before = 1;

    row->open = true;
    row->mode = place->mode;
    row->step = place->mode_step;
    row->part = part_of(queue, place);
    row->number++;
    row->arrived = 0;
    (void)pthread_mutex_lock(&queue->lock);
    while (when_full == SONDE_OUTFEED_BLOCK && queue->count == queue->options.rows &&
           !queue->closed) {
        (void)pthread_cond_wait(&queue->room, &queue->lock);
    }
    row->refused = queue->closed || (when_full == SONDE_OUTFEED_ERROR &&
                                     queue->count == queue->options.rows);
    if (row->refused) {
        before = refuse(queue);
    }
    row->bank = when_full == SONDE_OUTFEED_DROP_OLDEST ? STAGED : queue->active;
    row->slot = queue->count;
    (void)pthread_mutex_unlock(&queue->lock);
    if (row->refused) {
        report_loss(queue, before, SONDE_LOG_ERROR,
                    "a row is lost: it is full or closed");
    }
}

static unsigned char *row_of(const sonde__outfeed_column *column, int bank, int64_t slot)
{
    return bank == STAGED ? column->staged
                          : column->bank[bank] + (size_t)slot * column->row_bytes;
}

/* Adds the row to the active bank. Under the lock; false if it is closed. */
static bool place_row(sonde_outfeed *queue, bool *dropped)
{
    const sonde__outfeed_row *row = &queue->row;
    const int64_t rows = queue->options.rows;

    if (queue->closed) {
        return false;
    }
    if (queue->count == rows) { /* only where the oldest is dropped */
        *dropped = queue->counts.dropped++ == 0;
        queue->head = (queue->head + 1) % rows;
        queue->count--;
    }
    const int64_t slot = (queue->head + queue->count) % rows;
    if (row->bank != queue->active || row->slot != slot) {
        for (size_t i = 0; i < queue->column_count; i++) {
            const sonde__outfeed_column *column = &queue->columns[i];

            memcpy(row_of(column, queue->active, slot),
                   row_of(column, row->bank, row->slot), column->row_bytes);
        }
    }
    queue->count++;
    queue->counts.put++;
    return true;
}

static void end_row(sonde_outfeed *queue)
{
    sonde__outfeed_row *row = &queue->row;
    const size_t wanted = queue->column_count * (size_t)queue->shape.replicas;
    bool placed = false, dropped = false;
    uint64_t before = 1;

    if (!row->open || row->refused) {
        row->open = false;
        return;
    }
    if (row->arrived != wanted) {
        lose_partial(queue);
        return;
    }
    row->open = false;
    (void)pthread_mutex_lock(&queue->lock);
    placed = place_row(queue, &dropped);
    if (!placed) {
        before = refuse(queue);
    }
    (void)pthread_cond_signal(&queue->filled);
    (void)pthread_mutex_unlock(&queue->lock);
    if (!placed) {
        report_loss(queue, before, SONDE_LOG_ERROR, "a row is lost: it is closed");
    } else if (dropped) {
        report_loss(queue, 0, SONDE_LOG_WARNING, "it is full: the oldest row is dropped");
    }
}

/* --- as a sink -------------------------------------------------------------------- */

/* A row is incomplete if its step did not end it. */
static void begin_call(sonde_sink *sink)
{
    sonde_outfeed *queue = (sonde_outfeed *)sink;

    if (queue->row.open) {
        lose_partial(queue);
    }
}

/* Ends the row of another micro-batch, begins one where there is none. */
static void turn_to(sonde_outfeed *queue, const sonde_coordinate *place)
{
    sonde__outfeed_row *row = &queue->row;

    if (row->open && (row->mode != place->mode || row->step != place->mode_step)) {
        lose_partial(queue); /* of a step that was broken off */
    }
    if (row->open && row->part != part_of(queue, place)) {
        end_row(queue);
    }
    if (!row->open) {
        begin_row(queue, place);
    }
}

static void take_replica(sonde_outfeed *queue, sonde__outfeed_column *column,
                         const sonde_observation *observation, int r)
{
    const sonde__outfeed_row *row = &queue->row;
    sonde_view room = column->value;

    if (r < 0 || r >= queue->shape.replicas || !column->prepared) {
        return;
    }
    room.data = row_of(column, row->bank, row->slot) + (size_t)r * column->value_bytes;
    if (observation->view->dtype != room.dtype ||
        sonde_view_copy(&room, observation->view, NULL) != SONDE_OK) {
        return;
    }
    if (column->arrived[r] != row->number) {
        column->arrived[r] = row->number;
        queue->row.arrived++;
    }
}

/* What replicas share is the value of each. */
static void take(sonde_outfeed *queue, sonde__outfeed_column *column,
                 const sonde_observation *observation)
{
    if (!observation->info->shared) {
        take_replica(queue, column, observation, observation->at.replica);
    }
    for (int r = 0; observation->info->shared && r < queue->shape.replicas; r++) {
        take_replica(queue, column, observation, r);
    }
}

/* Whether a row a step leaves out this micro-batch, which is not the last. */
static bool is_early(const sonde_outfeed *queue, const sonde_observation *observation)
{
    return queue->options.per == SONDE_OUTFEED_STEP &&
           observation->info->pass != SONDE_PASS_UPDATE && /* which comes once */
           observation->at.micro_batch + 1 < queue->shape.micro_batches;
}

static void put(sonde_sink *sink, const sonde_observation *observation)
{
    sonde_outfeed *queue = (sonde_outfeed *)sink;

    if (observation->id >= queue->id_capacity ||
        queue->by_id[observation->id] == SONDE__NO_COLUMN ||
        is_early(queue, observation)) {
        return;
    }
    turn_to(queue, &observation->at);
    for (size_t i = queue->by_id[observation->id];
         i != SONDE__NO_COLUMN && !queue->row.refused; i = queue->columns[i].next) {
        take(queue, &queue->columns[i], observation);
    }
}

static void end_step(sonde_sink *sink, const sonde_coordinate *place)
{
    (void)place;
    end_row((sonde_outfeed *)sink);
}

void sonde__outfeed_sink_init(sonde_sink *sink)
{
    *sink = (sonde_sink){
        .prepare = prepare, .begin_call = begin_call, .put = put, .end_step = end_step};
}

/* --- taking ----------------------------------------------------------------------- */

static void swap_bytes(unsigned char *a, unsigned char *b, size_t count)
{
    unsigned char kept[4096];

    while (count > 0) {
        const size_t n = SONDE_MIN(count, sizeof kept);

        memcpy(kept, a, n);
        memcpy(a, b, n);
        memcpy(b, kept, n);
        a += n;
        b += n;
        count -= n;
    }
}

/* Rows from ... to - 1 in the opposite order. */
static void reverse(unsigned char *data, size_t row_bytes, int64_t value, int64_t field)
{
    for (field--; value < field; value++, field--) {
        swap_bytes(data + (size_t)value * row_bytes, data + (size_t)field * row_bytes,
                   row_bytes);
    }
}

/* Turns a full ring so that the row at head comes first. */
static void turn_ring(unsigned char *data, size_t row_bytes, int64_t rows, int64_t head)
{
    reverse(data, row_bytes, 0, head);
    reverse(data, row_bytes, head, rows);
    reverse(data, row_bytes, 0, rows);
}

static sonde_view stacked(const sonde_outfeed *queue, const sonde__outfeed_column *column,
                          int bank, int64_t rows)
{
    int64_t shape[SONDE_MAX_DIMS] = {rows};
    int rank = 1;

    if (queue->shape.replicas > 1) {
        shape[rank++] = queue->shape.replicas;
    }
    for (int i = 0; i < column->value.rank; i++) {
        shape[rank++] = column->value.shape[i];
    }
    return sonde_view_of(column->value.dtype, rank, shape, column->bank[bank]);
}

sonde_err sonde_outfeed_dequeue(sonde_outfeed *queue, sonde_outfeed_batch *out,
                                sonde_diag *diag)
{
    SONDE__NEEDS(diag, queue, out);
    char where[256], expected[64];
    int64_t rows = 0, head = 0;

    (void)pthread_mutex_lock(&queue->lock);
    const uint64_t lost = queue->overflowed;
    queue->overflowed = 0;
    const int bank = queue->active;
    if (lost == 0) {
        rows = queue->count;
        head = queue->head;
        queue->count = 0;
        queue->head = 0;
        queue->active = rows > 0 && !queue->options.one_thread ? 1 - bank : bank;
        queue->counts.taken += (uint64_t)rows;
        (void)pthread_cond_signal(&queue->room);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (lost > 0) {
        (void)snprintf(expected, sizeof expected, "at most %lld rows between dequeues",
                       (long long)queue->options.rows);
        return sonde__fail(
            diag, SONDE_ERANGE, sonde__outfeed_where(queue, where, sizeof where),
            expected, "it was full, and %llu rows are lost", (unsigned long long)lost);
    }
    for (size_t i = 0; i < queue->prepared; i++) {
        const sonde__outfeed_column *column = &queue->columns[i];

        if (head > 0) {
            turn_ring(column->bank[bank], column->row_bytes, rows, head);
        }
        queue->entries[i].key = queue->keys.text[i];
        queue->entries[i].value = stacked(queue, column, bank, rows);
    }
    *out = (sonde_outfeed_batch){queue->entries, queue->prepared, rows};
    return SONDE_OK;
}

/* now + seconds on the steady clock, at most some thirty years. */
static struct timespec deadline_in(double seconds)
{
    const double most = 1e9; /* some thirty years */
    const double wait = seconds < most ? seconds : most;
    struct timespec end = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)floor(wait);
    end.tv_nsec += (long)((wait - floor(wait)) * 1e9);
    if (end.tv_nsec >= 1000000000L) {
        end.tv_nsec -= 1000000000L;
        end.tv_sec++;
    }
    return end;
}

sonde_err sonde_outfeed_wait(sonde_outfeed *queue, int64_t rows, double seconds)
{
    SONDE__NEEDS(NULL, queue);
    if (isnan(seconds)) {
        return SONDE_EINVAL;
    }
    const bool forever = seconds < 0.0;
    const struct timespec until = deadline_in(forever ? 0.0 : seconds);
    sonde_err err = SONDE_OK;
    int late = 0;

    rows = SONDE_MIN(rows, queue->options.rows); /* more there never are */
    (void)pthread_mutex_lock(&queue->lock);
    while (queue->count < rows && !queue->closed && late != ETIMEDOUT) {
        late = forever ? pthread_cond_wait(&queue->filled, &queue->lock)
                       : pthread_cond_timedwait(&queue->filled, &queue->lock, &until);
    }
    if (queue->count < rows) {
        err = queue->closed ? SONDE_EEND : SONDE_ETIMEOUT;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return err;
}

void sonde_outfeed_close(sonde_outfeed *queue)
{
    if (queue == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    (void)pthread_cond_broadcast(&queue->room);
    (void)pthread_cond_broadcast(&queue->filled);
    (void)pthread_mutex_unlock(&queue->lock);
}

sonde_outfeed_counts sonde_outfeed_get_counts(sonde_outfeed *queue)
{
    if (queue == NULL) {
        return (sonde_outfeed_counts){0};
    }
    sonde_outfeed_counts counts;

    (void)pthread_mutex_lock(&queue->lock);
    counts = queue->counts;
    (void)pthread_mutex_unlock(&queue->lock);
    return counts;
}
