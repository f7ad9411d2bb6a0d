/*
 * pipeline.h - the inside of a composed list of transforms.
 */
#ifndef SONDE_NN_DATA_PIPELINE_H
#define SONDE_NN_DATA_PIPELINE_H

#include "nn/data/pixels.h"

#include <sonde/nn/loader.h>

/* One step: a transform, or to_float fused with the normalise after it (affine). */
typedef struct sonde__data_step {
    sonde_nn_transform transform;
    bool fused;                 /* to_float that also normalises */
    sonde__data_affine *affine; /* to_float: one, or one a channel; in the pipeline */
    int affines;
    uint64_t place; /* in the given list, from 1: its stream of random numbers */
} sonde__data_step;

struct sonde_nn_pipeline {
    sonde__data_step steps[SONDE_NN_TRANSFORMS_MAX];
    size_t count;
    sonde__data_affine_fn *kernel;
    sonde_dtype in_dtype, out_dtype;
    int rank;
    int64_t out_shape[SONDE_NN_SAMPLE_DIMS];
    size_t out_bytes;
    size_t buffer_bytes; /* size of each of the two buffers between steps */
    size_t resize_bytes;
    sonde__data_affine *affines; /* owned */
};

/* The stream of random numbers of an epoch: place 0 is the order, p is transform p. */
static inline uint64_t sonde__data_stream(uint64_t epoch, uint64_t place)
{
    return epoch * (SONDE_NN_TRANSFORMS_MAX + 1) + place;
}

#endif
