/*
 * transform.h - transforms of samples between the data set and the network.
 *
 * A list of transforms is composed once, for the samples of a data set, into a pipeline
 * that is then run for every sample. The usual list,
 *
 *     const sonde_nn_transform list[] = {
 *         {.kind = SONDE_NN_TO_FLOAT},                                       x / 255
 *         {.kind = SONDE_NN_NORMALISE, .channels = 1, .mean = {0.5f}, .std = {0.5f}},
 *     };
 *
 * becomes a single vectorised pass whose results equal three float32 operations a pixel
 * bit for bit. Results never depend on the instruction set.
 *
 * Images are (C, H, W). greyscale, rgb, resize, invert and invert_if_light take uint8 and
 * so come before to_float; crops and flips take both. Random transforms draw from (seed,
 * epoch, index of the sample, place in the list), so results do not depend on the number
 * of workers or the order in which samples are made.
 */
#ifndef SONDE_NN_TRANSFORM_H
#define SONDE_NN_TRANSFORM_H

#include <sonde/nn/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_nn_transform_kind {
    /* uint8 to float32: x / 255. float32 is unchanged. */
    SONDE_NN_TO_FLOAT = 0,
    /* (x - mean) / std, by channel; a single entry applies to every channel. Composing
     * rejects std 0 and non-finite values. */
    SONDE_NN_NORMALISE = 1,
    /*
     * To height x width, at any aspect ratio. For a smaller size the filter's support grows
     * with the factor, so every source pixel counts (no aliasing); weights are fixed-point
     * with 22 bits and every pass rounds to uint8. Same results as the resize of Python's
     * Pillow, whose default is bicubic (a = -0.5; R. Keys, 1981).
     */
    SONDE_NN_RESIZE = 2,
    /* RGB to luma, 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601-2), in 16 bit fixed-point. */
    SONDE_NN_GREYSCALE = 3,
    SONDE_NN_RGB = 4,    /* grey to three equal channels */
    SONDE_NN_INVERT = 5, /* 255 - x */
    /* Inverts if the pixel in row 1, column 1 of the (grey) image is above threshold: a light
     * background becomes dark, as in Fashion-MNIST. */
    SONDE_NN_INVERT_IF_LIGHT = 6,
    /* The middle height x width; SONDE_ESHAPE when composing if the image is smaller. */
    SONDE_NN_CENTRE_CROP = 7,
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
    int channels; /* normalise: entries of mean and std, 1 to SONDE_NN_TRANSFORM_CHANNELS */
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

#ifdef __cplusplus
}
#endif

#endif
