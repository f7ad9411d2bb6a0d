/*
 * outfeed.h - queues that carry tensors out of a run: values, not only the latest.
 *
 * An outfeed queue is a sink with its own names. Every step (or micro-batch) adds one row, a
 * value for each key; dequeue returns all rows since the last dequeue, stacked: key "fc1_output_0" of shape (32, 10) and 500 rows is (500, 32, 10).
 *
 *     create; add, add, add_gradients ...         tensors and their keys
 *     attach                                      to the observer of the producer
 *     step, step, step ...; dequeue; table        and again
 *
 * Filters select keys: those that contain any of the filters, or, without filters, all. A
 * tensor that is not selected is not observed and costs nothing.
 *
 * Memory is allocated when the observer is bound: rows * bytes of a row, twice, because the
 * producer continues while the consumer reads; once, if both are one thread and the options
 * say so. After that nothing is allocated. Cost of a value: one copy (two where the oldest
 * rows are dropped); of a row: a lock taken twice.
 *
 * One producing thread, and one other that calls dequeue, wait, counts and close.
 */
#ifndef SONDE_OUTFEED_H
#define SONDE_OUTFEED_H

#include <sonde/observer.h>
#include <sonde/print.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to a row for which there is no room. Losses are counted, and the first is
 * logged. */
typedef enum sonde_outfeed_full {
    SONDE_OUTFEED_BLOCK = 0,       /* the producer waits until there is, or close */
    SONDE_OUTFEED_DROP_OLDEST = 1, /* the first of those that wait goes */
    SONDE_OUTFEED_ERROR = 2        /* it is lost, and the next dequeue fails */
} sonde_outfeed_full;

typedef enum sonde_outfeed_per {
    SONDE_OUTFEED_STEP = 0,       /* a row a step: each tensor's last micro-batch */
    SONDE_OUTFEED_MICRO_BATCH = 1 /* a row a micro-batch */
} sonde_outfeed_per;

typedef struct sonde_outfeed_options {
    const char *name; /* in messages; NULL: "outfeed". Copied */
    int64_t rows;     /* that fit; at least 1 */
    sonde_outfeed_full when_full;
    sonde_outfeed_per per;
    const char *const *filters; /* copied; texts, case counts */
    size_t filter_count;        /* 0: every key gets in */
    const sonde_schedule *when; /* NULL: every step. Of every mode; copied, its steps are
                                   borrowed until attach */
    bool
        one_thread; /* the producer is the consumer: half the memory, and what dequeue gave
                        is gone with the next step. Not with BLOCK */
} sonde_outfeed_options;

typedef struct sonde_outfeed sonde_outfeed;

/* Options that cannot be: SONDE_EINVAL naming the field. */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_create(
    const sonde_outfeed_options *options, sonde_outfeed **out, sonde_diag *diag);
/* After the observer that it is attached to. NULL is fine. */
SONDE_API void sonde_outfeed_destroy(sonde_outfeed *queue);

/* --- what it carries, before attach ------------------------------------------------ */

/*
 * A tensor, by its name, under a key. key NULL: the tensor's name, but for gradients
 * (`Gradient___X`, `Accum___X`), which are `X_grad`. Keys come in the order of adding. A
 * tensor may have several. Unknown tensors, and keys that two tensors would have, are found
 * by attach.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_add(sonde_outfeed *queue,
                                                    const char *tensor, const char *key,
                                                    sonde_diag *diag);

typedef enum sonde_outfeed_gradients {
    /* Of every micro-batch, before it is accumulated: `Gradient___W`. For a queue with a
     * row a micro-batch. */
    SONDE_OUTFEED_AFTER_COMPUTE = 0,
    /* What the update is about to use: the sum over the step's micro-batches, `Accum___W`,
     * or without accumulation the gradient. For a queue with a row a step. An update that
     * takes the mean divides this by their number. */
    SONDE_OUTFEED_BEFORE_APPLY = 1
} sonde_outfeed_gradients;

/* The gradients of all parameters, the last parameter's first, as `W_grad`. A queue whose
 * rows do not fit the mode: SONDE_EINVAL. */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_add_gradients(
    sonde_outfeed *queue, sonde_outfeed_gradients mode, sonde_diag *diag);

/*
 * Resolves what was added against the catalogue and taps what passes the filters; nothing
 * that does is logged as a warning. Before the observer is bound. Attaching again, to
 * another observer, begins anew. An unknown tensor: SONDE_ENOTFOUND with the nearest names.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_attach(sonde_outfeed *queue,
                                                       const sonde_catalogue *catalogue,
                                                       sonde_observer *observer,
                                                       sonde_diag *diag);

/* For taps of your own making, of one observer, which may end here too: their tensors come in
 * under their default keys, if the filters say so. All must be due at the same steps: a row
 * has every key. Borrowed. */
SONDE_API sonde_sink *sonde_outfeed_sink(sonde_outfeed *queue);

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
 * Takes what there is, without waiting. *out is borrowed until the next dequeue (or, with
 * one_thread, the next step); values are contiguous. Where rows were lost to
 * SONDE_OUTFEED_ERROR: SONDE_ERANGE once, with their number; the call after it gives the
 * rows that fit. Cost: none but a lock; after rows were dropped, moving what is left.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_dequeue(sonde_outfeed *queue,
                                                        sonde_outfeed_batch *out,
                                                        sonde_diag *diag);
/*
 * Waits until the queue has this many rows: SONDE_OK. SONDE_ETIMEOUT after so many seconds
 * (negative: never); SONDE_EEND once the queue is closed and has fewer.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_wait(sonde_outfeed *queue, int64_t rows,
                                                     double seconds);
/* No more rows get in: from either side. A producer that waits goes on, and what it puts
 * from now on is lost and counted. */
SONDE_API void sonde_outfeed_close(sonde_outfeed *queue);

typedef struct sonde_outfeed_counts {
    uint64_t put;     /* rows that got in */
    uint64_t taken;   /* of them dequeued */
    uint64_t dropped; /* of them thrown away as the oldest */
    uint64_t refused; /* rows that found the queue full or closed */
    uint64_t
        partial; /* rows lost because a tensor did not come, or came in another shape */
} sonde_outfeed_counts;
SONDE_API sonde_outfeed_counts sonde_outfeed_get_counts(sonde_outfeed *queue);

/* --- the table -------------------------------------------------------------------- */

/*
 * Appends what is printed at the end of an epoch (counted from 1), beginning with an empty
 * line:
 *
 *     Gradients callback
 *     key: fc1.bias_grad shape: (125, 128)
 *     Epoch 3 - Summary Stats
 *     Index Name               Mean         Std          Minimum      Maximum      NaNs    infs
 *     0     fc1.bias_grad      -0.000663    0.021037     -0.108830    0.111534     False   False
 *
 * or, where the batch has no key or no row, `No data enqueued`. Statistics are over all
 * rows; std is that of the population; a NaN makes all four NaN. Columns are 5, longest
 * key + 5, 12, 12, 12, 12, 7 and 7 wide, to the left, one blank between. Cost: one pass over
 * the batch.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_outfeed_table(const sonde_outfeed_batch *batch,
                                                      const char *title, int epoch,
                                                      sonde_text *text);

#ifdef __cplusplus
}
#endif

#endif
