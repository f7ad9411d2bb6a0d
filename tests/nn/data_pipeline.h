/*
 * data_pipeline.h - composing and running a list of transforms in a test.
 */
#ifndef SONDE_TESTS_NN_DATA_PIPELINE_H
#define SONDE_TESTS_NN_DATA_PIPELINE_H

#include "nn/data_files.h"

#include <sonde/nn/loader.h>

enum { MOST = 4096 }; /* bytes of a result */

static inline const sonde_nn_dataset_traits *traits_of(sonde_dtype dtype, int64_t c,
                                                       int64_t h, int64_t w)
{
    static sonde_nn_dataset_traits traits;

    traits = (sonde_nn_dataset_traits){
        .count = 1, .dtype = dtype, .rank = 3, .shape = {c, h, w}, .source = "test"};
    return &traits;
}

/* Composes and runs a list over one sample; out holds MOST bytes. */
static inline void run(const sonde_nn_transform *list, size_t count,
                       const sonde_nn_dataset_traits *traits, const void *in,
                       uint64_t seed, uint64_t epoch, int64_t index, void *out)
{
    sonde_nn_sample sample = {.data = in};
    sonde_nn_pipeline *pipeline = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];
    void *scratch = NULL;

    memcpy(sample.shape, traits->shape, sizeof sample.shape);
    if (sonde_nn_pipeline_create(list, count, traits, &pipeline, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    assert_in_range(sonde_nn_pipeline_get_info(pipeline).bytes, 1, MOST);
    scratch = malloc(sonde_nn_pipeline_get_info(pipeline).scratch + 1);
    assert_int_equal(
        sonde_nn_pipeline_run(pipeline, &sample, seed, epoch, index, scratch, out, NULL),
        SONDE_OK);
    free(scratch);
    sonde_nn_pipeline_destroy(pipeline);
}

#endif
