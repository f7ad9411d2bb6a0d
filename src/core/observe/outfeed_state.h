/*
 * outfeed_state.h - the internals of an outfeed queue: outfeed.c chooses its columns,
 * outfeed_rows.c fills and empties them.
 *
 * Each key has a column in each bank: `rows` slots of one row each. All columns of a bank
 * share head and count:
 *
 *     bank 0   | row | row | row |     free     |      active: the producer fills it
 *     bank 1   | row | row | row | row |              the result of the last dequeue
 *
 * Dequeue returns the active bank to the consumer and activates the other. The row that
 * is being made is written to the slot after the last row of the bank that was active
 * when the row began. If another slot is the next one when the row is complete, the row
 * is copied there. If the oldest row is dropped when a bank is full, the bank is a ring,
 * which dequeue rotates until it begins at slot 0; the row that is being made is then
 * staged in memory of its own.
 */
#ifndef SONDE_OBSERVE_OUTFEED_STATE_H
#define SONDE_OBSERVE_OUTFEED_STATE_H

#include <sonde/error.h>
#include <sonde/outfeed.h>

#include "base/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>

#define SONDE__NO_COLUMN SIZE_MAX

typedef struct sonde__outfeed_column {
    char *tensor; /* resolved name */
    uint32_t id;
    size_t next;        /* another column of this tensor, or SONDE__NO_COLUMN */
    sonde_view value;   /* of one observation; no data */
    size_t value_bytes; /* of one replica */
    size_t row_bytes;   /* of all replicas */
    bool prepared;
    unsigned char *bank[2]; /* rows * row_bytes; [1] NULL with one_thread */
    unsigned char *staged;  /* row_bytes; NULL unless the oldest row is dropped */
    uint64_t *arrived;      /* by replica: the last row that it came in */
} sonde__outfeed_column;

typedef struct sonde__outfeed_request {
    char *tensor; /* NULL: the gradients of all parameters */
    char *key;    /* NULL: the default one */
    sonde_outfeed_gradients gradients;
} sonde__outfeed_request;

/* The row that is being made; only the producer uses it. */
typedef struct sonde__outfeed_row {
    bool open, refused;
    sonde_mode mode;
    int64_t step;
    int part;        /* the micro-batch, if each has a row */
    uint64_t number; /* counts all rows begun, from 1 */
    size_t arrived;  /* values */
    int bank;        /* that holds it; -1: staged */
    int64_t slot;
} sonde__outfeed_row;

struct sonde_outfeed {
    sonde_sink sink; /* first */
    char *name;
    sonde_outfeed_options options; /* except name and filters, which are below */
    sonde_schedule when;
    char **filters;
    size_t filter_count;
    sonde__outfeed_request *requests;
    size_t request_count, request_capacity;

    /* After attach, or after the first prepare: */
    sonde__names keys; /* id i: the key of column i */
    sonde__outfeed_column *columns;
    size_t column_count, column_capacity;
    size_t *by_id; /* first column of each tensor */
    size_t id_capacity;
    sonde_outfed *entries; /* the result of dequeue */
    size_t entry_capacity;
    sonde_call_shape shape;
    size_t prepared; /* columns */

    sonde__outfeed_row row;

    pthread_mutex_t lock;
    pthread_cond_t room, filled; /* put waits for room, wait for filled */
    /* Under the lock: */
    int active;          /* bank */
    int64_t head, count; /* of its rows */
    bool closed;
    uint64_t overflowed; /* rows refused since a dequeue reported it */
    sonde_outfeed_counts counts;
};

/* "outfeed 'name'". Returns buf. */
const char *sonde__outfeed_where(const sonde_outfeed *queue, char *buf, size_t size);

/* Removes all columns. */
void sonde__outfeed_clear(sonde_outfeed *queue);

/* outfeed_rows.c: the sink's functions, and a column's memory. */
void sonde__outfeed_sink_init(sonde_sink *sink);
void sonde__outfeed_free_column(sonde__outfeed_column *column);

#endif
