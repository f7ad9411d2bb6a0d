/*
 * outfeed.h - queues that carry all values of tensors out of a run, not only the latest.
 *
 * An outfeed queue is the sink of its own taps. Every step (or micro-batch) puts one
 * row into it, a value for each key; dequeue returns all rows since the last dequeue,
 * stacked: key "fc1_output_0" of shape (32, 10) and 500 rows is (500, 32, 10).
 *
 *     create; add, add, add_gradients ...         tensors and their keys
 *     attach                                      to the observer of the producer
 *     step, step, step ...; dequeue; table        and again
 *
 * A key gets in if it contains any of the filters, or if there are no filters. A tensor
 * that does not get in is not observed and costs nothing.
 *
 * Memory is allocated when the observer is bound: rows * bytes of a row, twice, because
 * the producer continues while the consumer reads; once with the option one_thread.
 * After that nothing is allocated. Cost of a value: one copy (two if the oldest rows are
 * dropped); of a row: a lock taken twice.
 *
 * One producing thread, and one other that calls dequeue, wait, counts and close.
 */
#ifndef SONDE_OUTFEED_H
#define SONDE_OUTFEED_H

#include <sonde/options.h>
#include <sonde/observer.h>
#include <sonde/print.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a row that has no room is treated. Losses are counted, and the first is logged. */
typedef enum sonde_outfeed_full {
    SONDE_OUTFEED_BLOCK = 0,       /* the producer waits for room, or for close */
    SONDE_OUTFEED_DROP_OLDEST = 1, /* the oldest row in the queue is dropped */
    SONDE_OUTFEED_ERROR = 2        /* the row is lost, and the next dequeue fails */
} sonde_outfeed_full;

typedef enum sonde_outfeed_per {
    SONDE_OUTFEED_STEP = 0,       /* a row a step: each tensor's last micro-batch */
    SONDE_OUTFEED_MICRO_BATCH = 1 /* a row a micro-batch */
} sonde_outfeed_per;

typedef struct sonde_outfeed_options {
    size_t size;      /* sizeof(sonde_outfeed_options) */
    const char *name; /* in messages; NULL: "outfeed". Copied */
    int64_t rows;     /* that fit; at least 1 */
    sonde_outfeed_full when_full;
    sonde_outfeed_per per;
    const char *const *filters; /* copied; texts, case counts */
    size_t filter_count;        /* 0: every key gets in */
    const sonde_schedule *when; /* NULL: every step. Of every mode; copied, its steps are
                                   borrowed until attach */
    bool
        one_thread; /* the producer is the consumer: half the memory, and a dequeued batch
                        is valid until the next step. Not with BLOCK */
} sonde_outfeed_options;

typedef struct sonde_outfeed sonde_outfeed;

/* An invalid option: SONDE_EINVAL naming the field. */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_create(
    const sonde_outfeed_options *options, sonde_outfeed **out, sonde_diag *diag);
/* After the observer that it is attached to. Accepts NULL. */
SONDE_API void sonde_outfeed_destroy(sonde_outfeed *queue);

/* --- its keys, before attach -------------------------------------------------------- */

/*
 * Adds a tensor, by its name, under a key. key NULL: the tensor's name; for gradients
 * (`Gradient___X`, `Accum___X`), `X_grad`. Keys come in the order of adding. A
 * tensor may have several. attach returns the errors of unknown
 * tensors and of keys that two tensors would have.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_add(sonde_outfeed *queue,
                                                    const char *tensor, const char *key,
                                                    sonde_diag *diag);

typedef enum sonde_outfeed_gradients {
    /* Of every micro-batch, before it is accumulated: `Gradient___W`. For a queue with a
     * row a micro-batch. */
    SONDE_OUTFEED_AFTER_COMPUTE = 0,
    /* The gradient that the update uses: the sum over the step's micro-batches,
     * `Accum___W`, or without accumulation the gradient. For a queue with a row a step.
     * An update that takes the mean divides this by their number. */
    SONDE_OUTFEED_BEFORE_APPLY = 1
} sonde_outfeed_gradients;

/* The gradients of all parameters, the last parameter's first, as `W_grad`. A queue whose
 * rows do not fit the mode: SONDE_EINVAL. */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_add_gradients(
    sonde_outfeed *queue, sonde_outfeed_gradients mode, sonde_diag *diag);

/*
 * Resolves the added tensors against the catalogue and taps those that pass the filters;
 * if none does, a warning is logged. Before the observer is bound. Attaching again, to
 * another observer, starts afresh. An unknown tensor: SONDE_ENOTFOUND with the nearest
 * names.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_attach(sonde_outfeed *queue,
                                                       const sonde_catalogue *catalogue,
                                                       sonde_observer *observer,
                                                       sonde_diag *diag);

/* --- taking ----------------------------------------------------------------------- */

typedef struct sonde_outfed {
    const char *key;
    sonde_view
        value; /* (rows, shape of the tensor); with R > 1 replicas (rows, R, shape) */
} sonde_outfed;

typedef struct sonde_outfeed_batch {
    const sonde_outfed *entries; /* in the order of adding */
    size_t count;                /* of keys; 0: nothing ever gets in */
    int64_t rows;                /* since the last dequeue; 0: none */
} sonde_outfeed_batch;

/*
 * Takes all rows, without waiting. *out is borrowed until the next dequeue (or, with
 * one_thread, the next step); values are contiguous. If rows were lost to
 * SONDE_OUTFEED_ERROR: SONDE_ERANGE once, with their number; the next call returns the
 * rows that fit. Cost: a lock; after rows were dropped, moving the rest.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_dequeue(sonde_outfeed *queue,
                                                        sonde_outfeed_batch *out,
                                                        sonde_diag *diag);
/*
 * Waits until the queue has this many rows, or is full: SONDE_OK. SONDE_ETIMEOUT after so
 * many seconds (negative: never); SONDE_EEND once the queue is closed and has fewer.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_wait(sonde_outfeed *queue, int64_t rows,
                                                     double seconds);
/* Ends the queue, from either side: no more rows get in. A producer that waits
 * continues, and the rows it puts from now on are lost and counted. */
SONDE_API void sonde_outfeed_close(sonde_outfeed *queue);

typedef struct sonde_outfeed_counts {
    uint64_t put;     /* rows that got in */
    uint64_t taken;   /* of them dequeued */
    uint64_t dropped; /* of them thrown away as the oldest */
    uint64_t refused; /* rows that found the queue full or closed */
    uint64_t partial; /* rows lost because a tensor was missing or had another shape */
} sonde_outfeed_counts;
SONDE_API sonde_outfeed_counts sonde_outfeed_get_counts(sonde_outfeed *queue);

/* --- the table -------------------------------------------------------------------- */

/*
 * Appends the table for the end of an epoch (counted from 1), starting with an empty
 * line:
 *
 *     Gradients callback
 *     key: fc1.bias_grad shape: (125, 128)
 *     Epoch 3 - Summary Stats
 *     Index Name               Mean         Std          Minimum      Maximum      NaNs    infs
 *     0     fc1.bias_grad      -0.000663    0.021037     -0.108830    0.111534     False   False
 *
 * or, if the batch has no key or no row, `No data enqueued`. Statistics are over all
 * rows; std is that of the population; a NaN makes all four NaN. Columns are 5, longest
 * key + 5, 12, 12, 12, 12, 7 and 7 wide, to the left, one blank between. Cost: one pass
 * over the batch.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_table(const sonde_outfeed_batch *batch,
                                                      const char *title, int epoch,
                                                      sonde_text *text);

#ifdef __cplusplus
}
#endif

#endif
