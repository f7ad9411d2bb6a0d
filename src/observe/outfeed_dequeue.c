/*
 * outfeed_dequeue.c - the consumer's side of an outfeed queue: taking rows, waiting for them,
 * closing.
 */
#include "observe/outfeed_state.h"
#include "base/fail.h"
#include "base/macros.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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
static void reverse(unsigned char *data, size_t row_bytes, int64_t from, int64_t to)
{
    for (to--; from < to; from++, to--) {
        swap_bytes(data + (size_t)from * row_bytes, data + (size_t)to * row_bytes,
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
    char where[256], expected[64];
    uint64_t lost = 0;
    int64_t rows = 0, head = 0;
    int bank = 0;

    (void)pthread_mutex_lock(&queue->lock);
    lost = queue->overflowed;
    queue->overflowed = 0;
    bank = queue->active;
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

/* now + seconds on the steady clock; far away if that cannot be said. */
static struct timespec deadline_in(double seconds)
{
    const double most = 1e9; /* some thirty years */
    const double wait = seconds < most ? seconds : most;
    struct timespec at = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)floor(wait);
    at.tv_nsec += (long)((wait - floor(wait)) * 1e9);
    if (at.tv_nsec >= 1000000000L) {
        at.tv_nsec -= 1000000000L;
        at.tv_sec++;
    }
    return at;
}

sonde_err sonde_outfeed_wait(sonde_outfeed *queue, int64_t rows, double seconds)
{
    const bool forever = !(seconds >= 0.0);
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
    (void)pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    (void)pthread_cond_broadcast(&queue->room);
    (void)pthread_cond_broadcast(&queue->filled);
    (void)pthread_mutex_unlock(&queue->lock);
}

sonde_outfeed_counts sonde_outfeed_get_counts(sonde_outfeed *queue)
{
    sonde_outfeed_counts counts;

    (void)pthread_mutex_lock(&queue->lock);
    counts = queue->counts;
    (void)pthread_mutex_unlock(&queue->lock);
    return counts;
}
