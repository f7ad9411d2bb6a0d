/*
 * outfeed_state.h - an outfeed queue from inside: outfeed.c and outfeed_attach.c say
 * what it carries, outfeed_rows.c and outfeed_dequeue.c carry it.
 *
 * A key has a column of its own in each bank, `rows` slots of one row each; all columns
 * of a bank share head and count:
 *
 *     bank 0   | row | row | row |     free     |      filled by the producer (active)
 *     bank 1   | row | row | row | row |              read by who dequeued last
 *
 * Dequeue hands the active bank to the consumer and makes the other active. The row that
 * is being made lies behind the rows of the bank that was active when it began, where it
 * is in nobody's way; if that is no longer its place when it is whole, it is copied.
 * Where the oldest row is dropped a bank is a ring, which dequeue turns until it begins
 * at slot 0; so that the row being made is not turned with it, it is staged outside.
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
    size_t value_bytes; /* of it, */
    size_t row_bytes;   /* and of all replicas */
    bool prepared;
    unsigned char *bank[2]; /* rows * row_bytes; [1] NULL with one_thread */
    unsigned char *staged;  /* row_bytes; NULL but where the oldest is dropped */
    uint64_t *arrived;      /* by replica: the last row that it came in */
} sonde__outfeed_column;

typedef struct sonde__outfeed_request {
    char *tensor; /* NULL: the gradients of all parameters */
    char *key;    /* NULL: the default one */
    sonde_outfeed_gradients gradients;
} sonde__outfeed_request;

/* The row that is being made; the producer's own. */
typedef struct sonde__outfeed_row {
    bool open, refused;
    sonde_mode mode;
    int64_t step;
    int part;        /* the micro-batch, where there is a row for each */
    uint64_t number; /* counts all rows begun, from 1 */
    size_t arrived;  /* values */
    int bank;        /* where it lies; -1: staged */
    int64_t slot;
} sonde__outfeed_row;

struct sonde_outfeed {
    sonde_sink sink; /* first */
    char *name;
    sonde_outfeed_options options; /* name and filters are not to be used */
    sonde_schedule when;
    char **filters;
    size_t filter_count;
    sonde__outfeed_request *requests;
    size_t request_count, request_capacity;

    /* From attach, or from the first prepare, on: */
    sonde__names keys; /* of column i the text with id i */
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
    pthread_cond_t room, filled; /* waited for in put, and in wait */
    /* Under the lock: */
    int active;          /* bank */
    int64_t head, count; /* of its rows */
    bool closed;
    uint64_t overflowed; /* rows refused since a dequeue told of it */
    sonde_outfeed_counts counts;
};

/* "outfeed 'name'". Returns buf. */
const char *sonde__outfeed_where(const sonde_outfeed *queue, char *buf, size_t size);

/* Without columns, as after create. */
void sonde__outfeed_clear(sonde_outfeed *queue);

/* outfeed_attach.c: the column of a tapped tensor that attach did not add, if the
 * filters let it in. */
sonde_err sonde__outfeed_adopt(sonde_outfeed *queue, uint32_t id,
                               const sonde_tensor_info *info, sonde_diag *diag);

/* outfeed_rows.c: the sink's functions, and a column's memory. */
void sonde__outfeed_sink_init(sonde_sink *sink);
void sonde__outfeed_free_column(sonde__outfeed_column *column);

#endif
