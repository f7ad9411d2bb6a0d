/*
 * loader.h - batches, made ahead of the one who needs them.
 *
 *     create                                  workers begin with epoch 0 at once
 *     for every epoch:  start_epoch(e)
 *         while next() gives a batch with count > 0:  use it until the following next()
 *     destroy                                 joins the workers
 *
 * A loader takes the samples of a data set in order, or shuffled by (seed, epoch), puts
 * each through a transform pipeline and hands over batches of fixed size. A batch here is
 * the combined batch of a static plan, micro-batch B x device iterations D x accumulation
 * G x replicas R; sample b of micro-batch k is the (k B + b)-th: simply consecutive.
 *
 * Workers fill a ring of buffers, several batches at a time, and go on with the first
 * batches of the next epoch while the last of this one are in use. Their number changes
 * nothing but the time: 0 makes every batch when it is asked for. When nobody waits, a
 * batch is handed over without a lock.
 *
 * Several processes: each of world ranks takes one contiguous block of the (shuffled)
 * order. With drop_last a block has combined * floor(count / (combined * world)) samples,
 * and in odd epochs all blocks begin later by the samples left over, so that none is
 * always left out. Without, the first count mod world ranks have one sample more.
 *
 * After create nothing is allocated (libpng and libjpeg apart). One thread uses a loader.
 */
#ifndef SONDE_NN_LOADER_H
#define SONDE_NN_LOADER_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/transform.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_loader sonde_nn_loader;

typedef struct sonde_nn_loader_options {
    int64_t batch; /* combined batch B D G R; at least 1 */
    bool shuffle;
    uint64_t seed;    /* of the order and of random transforms */
    bool keep_last;   /* hand over a last, smaller batch; if not, it is dropped */
    int workers;      /* threads; 0: none */
    int64_t prefetch; /* batches made ahead; 0: chosen, about 2 MB */
    int rank, world;  /* this process of how many; world 0 is 1 */
    const sonde_nn_transform *transforms; /* copied */
    size_t transform_count;
} sonde_nn_loader_options;

/* Borrowed until the following next, start_epoch or destroy. */
typedef struct sonde_nn_batch {
    void *data;              /* (count, C, H, W) of loader dtype; may be written to */
    const int64_t *labels;   /* (count) */
    const uint32_t *indices; /* (count): which samples of the data set */
    int64_t count;  /* 0: the epoch is over; below the batch size: the last one */
    int64_t number; /* of the batch in its epoch */
} sonde_nn_batch;

/*
 * set is borrowed until destroy. SONDE_EINVAL for options that cannot be, SONDE_ERANGE if
 * there are too few samples for one batch a rank, or more than 2^32 - 1; and the errors
 * of sonde_nn_pipeline_create. SONDE_EIO if no thread can be started.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_loader_create(
    const sonde_nn_dataset *set, const sonde_nn_loader_options *options,
    sonde_nn_loader **out, sonde_diag *diag);
/* Stops and joins the workers. NULL is fine. */
SONDE_API void sonde_nn_loader_destroy(sonde_nn_loader *loader);

/*
 * The next batch is the first of this epoch. In its turn (e + 1 after the end of e, or 0
 * at first) batches made ahead are used; any other epoch, or a break-off in the middle,
 * throws them away and starts afresh. Calling it again before next does nothing.
 */
SONDE_API void sonde_nn_loader_start_epoch(sonde_nn_loader *loader, uint64_t epoch);
/*
 * The next batch; at the end of the epoch one with count 0, again and again until
 * start_epoch. An error in making a batch (a corrupt image) is returned when its turn has
 * come, and again until start_epoch.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_loader_next(sonde_nn_loader *loader,
                                                       sonde_nn_batch *out,
                                                       sonde_diag *diag);

/* Batches and samples of one epoch of this rank. */
SONDE_API int64_t sonde_nn_loader_batches(const sonde_nn_loader *loader);
SONDE_API int64_t sonde_nn_loader_samples(const sonde_nn_loader *loader);
/* Samples of a whole batch. */
SONDE_API int64_t sonde_nn_loader_batch(const sonde_nn_loader *loader);
/* Of one sample in a batch. */
SONDE_API sonde_dtype sonde_nn_loader_dtype(const sonde_nn_loader *loader);
SONDE_API int sonde_nn_loader_shape(const sonde_nn_loader *loader,
                                    int64_t shape[SONDE_NN_SAMPLE_DIMS]); /* the rank */

/* Where time went, since create. */
typedef struct sonde_nn_loader_stats {
    uint64_t batches; /* handed over */
    uint64_t waits;   /* times next had to wait for a worker */
    double waited;    /* seconds in those waits; without workers, seconds of making */
    uint64_t idle;    /* times a worker found the ring full */
} sonde_nn_loader_stats;

SONDE_API sonde_nn_loader_stats sonde_nn_loader_get_stats(const sonde_nn_loader *loader);

#ifdef __cplusplus
}
#endif

#endif
