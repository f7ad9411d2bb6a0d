/*
 * loader.h - batches, prepared ahead of their use.
 *
 *     create                                  workers start epoch 0 at once
 *     for every epoch:  start_epoch(e)
 *         while next() returns a batch with count > 0:  use it until the following next()
 *     destroy                                 joins the workers
 *
 * A loader takes the samples of a data set in order, or shuffled by (seed, epoch), runs a
 * transform pipeline on each and returns batches of fixed size. A batch here is the
 * combined batch of a static plan, micro-batch B x device iterations D x accumulation G x
 * replicas R; sample b of micro-batch k is the (k B + b)-th, so samples are consecutive.
 *
 * Workers fill a ring of buffers, several batches at a time, and start the next epoch
 * while the last batches of this one are in use. Their number changes only the time: with
 * 0, next makes each batch itself. A batch that is ready is handed over without a lock.
 *
 * Several processes: each of world ranks takes one contiguous block of the (shuffled)
 * order. A block has batch * floor(count / (batch * world)) samples; in odd epochs all
 * blocks start later by the number of samples left over, so every sample is used. With
 * keep_last, the first count mod world ranks have one sample more.
 *
 * After create nothing is allocated (except by libpng and libjpeg). One thread uses a
 * loader.
 */
#ifndef SONDE_NN_LOADER_H
#define SONDE_NN_LOADER_H

#include <sonde/options.h>
#include <sonde/nn/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* === transforms ====================================================================== */

/*
 * Transforms of samples between the data set and the network.
 *
 * A list of transforms is composed once, for the samples of a data set, into a pipeline
 * that is then run for every sample. The usual list,
 *
 *     const sonde_nn_transform list[] = {
 *         {.kind = SONDE_NN_TO_FLOAT},                                       x / 255
 *         {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {0.5f}, .std = {0.5f}},
 *     };
 *
 * becomes a single vectorized pass whose results equal three float32 operations a pixel
 * bit for bit. Results never depend on the instruction set.
 *
 * Images are (C, H, W). grayscale, rgb, resize, invert and invert_if_light take uint8 and
 * so come before to_float; crops and flips take both. Random transforms draw from (seed,
 * epoch, index of the sample, place in the list), so results do not depend on the number
 * of workers or the order in which samples are made.
 */

typedef enum sonde_nn_transform_kind {
    /* uint8 to float32: x / 255. float32 is unchanged. */
    SONDE_NN_TO_FLOAT = 0,
    /* (x - mean) / std, by channel; a single entry applies to every channel. Composing
     * rejects std 0 and non-finite values. */
    SONDE_NN_NORMALIZE = 1,
    /*
     * To height x width, at any aspect ratio. For a smaller size the filter's support grows
     * with the factor, so every source pixel counts (no aliasing); weights are fixed-point
     * with 22 bits and every pass rounds to uint8. Same results as the resize of Python's
     * Pillow, whose default is bicubic (a = -0.5; R. Keys, 1981).
     */
    SONDE_NN_RESIZE = 2,
    /* RGB to luma, 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601-2), in 16 bit fixed-point. */
    SONDE_NN_GRAYSCALE = 3,
    SONDE_NN_RGB = 4,    /* gray to three equal channels */
    SONDE_NN_INVERT = 5, /* 255 - x */
    /* Inverts if the pixel in row 1, column 1 of the (gray) image is above threshold: a light
     * background becomes dark, as in Fashion-MNIST. */
    SONDE_NN_INVERT_IF_LIGHT = 6,
    /* The middle height x width; SONDE_ESHAPE when composing if the image is smaller. */
    SONDE_NN_CENTER_CROP = 7,
    /* height x width at a random place, after padding every side with zeros. */
    SONDE_NN_RANDOM_CROP = 8,
    SONDE_NN_FLIP = 9,          /* mirrors left to right, with this probability */
    SONDE_NN_FLIP_VERTICAL = 10 /* mirrors top to bottom */
} sonde_nn_transform_kind;

typedef enum sonde_nn_filter {
    SONDE_NN_BILINEAR = 0,
    SONDE_NN_BICUBIC = 1
} sonde_nn_filter;

enum { SONDE_NN_TRANSFORM_CHANNELS = 4, SONDE_NN_TRANSFORMS_MAX = 16 };

/* Plain values: {.kind = SONDE_NN_FLIP, .probability = 0.5f}. */
typedef struct sonde_nn_transform {
    sonde_nn_transform_kind kind;
    int height, width, padding; /* resize, crops */
    sonde_nn_filter filter;     /* resize */
    float probability;          /* flips */
    int threshold;              /* invert_if_light */
    int channels; /* normalize: entries of mean and std, 1 to SONDE_NN_TRANSFORM_CHANNELS */
    float mean[SONDE_NN_TRANSFORM_CHANNELS];
    float std[SONDE_NN_TRANSFORM_CHANNELS];
} sonde_nn_transform;

/* A composed list. Immutable: any number of threads may run it, each with its scratch. */
typedef struct sonde_nn_pipeline sonde_nn_pipeline;

/*
 * Composes count transforms (0 to SONDE_NN_TRANSFORMS_MAX) for the samples of a data set.
 * SONDE_EINVAL: too many, invalid values or order. SONDE_ESHAPE: the images do not fit, or vary and no transform
 * gives them one shape. diag names the transform.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_pipeline_create(
    const sonde_nn_transform *list, size_t count, const sonde_nn_dataset_traits *traits,
    sonde_nn_pipeline **out, sonde_diag *diag);
SONDE_API void sonde_nn_pipeline_destroy(sonde_nn_pipeline *pipeline);

typedef struct sonde_nn_pipeline_info {
    sonde_dtype dtype; /* of its results, as rank and shape */
    int rank;
    int64_t shape[SONDE_NN_SAMPLE_DIMS];
    size_t bytes;   /* of one result */
    size_t scratch; /* that run needs, aligned to 16 */
} sonde_nn_pipeline_info;

SONDE_API sonde_nn_pipeline_info
sonde_nn_pipeline_get_info(const sonde_nn_pipeline *pipeline);
/*
 * Runs it over one sample of that data set into out, which holds bytes of its info. index is
 * the sample's. SONDE_ESHAPE: a varied sample is too small for a crop. Nothing is
 * allocated.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_pipeline_run(const sonde_nn_pipeline *pipeline,
                                                        const sonde_nn_sample *sample,
                                                        uint64_t seed, uint64_t epoch,
                                                        int64_t index, void *scratch,
                                                        void *out, sonde_diag *diag);

typedef struct sonde_nn_loader sonde_nn_loader;

typedef struct sonde_nn_loader_options {
    size_t size;   /* sizeof(sonde_nn_loader_options) */
    int64_t batch; /* combined batch B D G R; at least 1 */
    bool shuffle;
    uint64_t seed;    /* for the order and for random transforms */
    bool keep_last;   /* return a last, smaller batch; false: it is dropped */
    int workers;      /* threads, at most 1024; 0: none */
    int64_t prefetch; /* batches made ahead; 0: about 2 MB of them */
    int rank, world;  /* this process, and their number; world 0 is 1 */
    const sonde_nn_transform *transforms; /* copied */
    size_t transform_count;
} sonde_nn_loader_options;

/* Borrowed until the following next, start_epoch or destroy. */
typedef struct sonde_nn_batch {
    void *data;              /* (count, C, H, W) of loader dtype; may be written to */
    const int64_t *labels;   /* (count), or (count, label_length) */
    const uint32_t *indices; /* (count): indices into the data set */
    int64_t count;        /* 0: the epoch is over; below the batch size: the last one */
    int64_t number;       /* of the batch in its epoch */
    int64_t label_length; /* labels of a sample, one a position; 0: one of the sample */
    const void *fields[SONDE_NN_FIELDS]; /* (count, ...) each, of the data set's fields */
} sonde_nn_batch;

/*
 * set is borrowed until destroy. SONDE_EINVAL: invalid options. SONDE_ERANGE: too few
 * samples for one batch a rank, or more than 2^32 - 1. SONDE_EIO: no thread can be
 * started. Also the errors of sonde_nn_pipeline_create.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_loader_create(
    const sonde_nn_dataset *set, const sonde_nn_loader_options *options,
    sonde_nn_loader **out, sonde_diag *diag);
/* Stops and joins the workers. NULL is fine. */
SONDE_API void sonde_nn_loader_destroy(sonde_nn_loader *loader);

/*
 * Makes the next batch the first of this epoch. Batches made ahead are used if the epoch
 * is the expected one (0 at first, e + 1 after the end of e), and discarded for any other
 * epoch and in the middle of one. Calling it again before next does nothing.
 */
SONDE_API void sonde_nn_loader_start_epoch(sonde_nn_loader *loader, uint64_t epoch);
/*
 * The next batch; at the end of the epoch a batch with count 0 on every call until
 * start_epoch. An error in making a batch (a corrupt image) is returned in that batch's
 * place and on every call until start_epoch.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_loader_next(sonde_nn_loader *loader,
                                                       sonde_nn_batch *out,
                                                       sonde_diag *diag);

typedef struct sonde_nn_loader_info {
    const sonde_nn_dataset_traits
        *traits;              /* of the data set; borrowed until it is destroyed */
    int64_t batch;            /* samples of a whole batch */
    int64_t batches, samples; /* of one epoch of this rank */
    sonde_dtype dtype;        /* of one sample in a batch, as the rest */
    int rank;
    int64_t shape[SONDE_NN_SAMPLE_DIMS];
} sonde_nn_loader_info;

SONDE_API sonde_nn_loader_info sonde_nn_loader_get_info(const sonde_nn_loader *loader);

/* Counters since create. */
typedef struct sonde_nn_loader_stats {
    uint64_t batches; /* handed over */
    uint64_t waits;   /* times next had to wait for a worker */
    double waited;    /* seconds of those waits; without workers, of making batches */
    uint64_t idle;    /* times a worker found the ring full */
} sonde_nn_loader_stats;

SONDE_API sonde_nn_loader_stats sonde_nn_loader_get_stats(const sonde_nn_loader *loader);

#ifdef __cplusplus
}
#endif

#endif
