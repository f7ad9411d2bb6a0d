/*
 * transform.c - making transforms, and composing a list of them.
 *
 * Composing walks the list once with the kind and the largest shape of what flows
 * through, checks each transform against it, fuses to_float with a normalise behind it,
 * and finds how much scratch a run needs.
 */
#include "nn/data/pipeline.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/resize.h"

#include <sonde/nn/image.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

sonde_nn_transform sonde_nn_to_float(void)
{
    return (sonde_nn_transform){.kind = SONDE_NN_TO_FLOAT};
}

sonde_nn_transform sonde_nn_normalise(int channels, const float *mean, const float *std)
{
    sonde_nn_transform transform = {.kind = SONDE_NN_NORMALISE};

    transform.channels = SONDE_MIN(channels, (int)SONDE_NN_TRANSFORM_CHANNELS);
    for (int c = 0; c < transform.channels; c++) {
        transform.mean[c] = mean[c];
        transform.std[c] = std[c];
    }
    return transform;
}

sonde_nn_transform sonde_nn_resize(int height, int width, sonde_nn_filter filter)
{
    return (sonde_nn_transform){
        .kind = SONDE_NN_RESIZE, .height = height, .width = width, .filter = filter};
}

sonde_nn_transform sonde_nn_greyscale(void)
{
    return (sonde_nn_transform){.kind = SONDE_NN_GREYSCALE};
}

sonde_nn_transform sonde_nn_rgb(void)
{
    return (sonde_nn_transform){.kind = SONDE_NN_RGB};
}

sonde_nn_transform sonde_nn_invert(void)
{
    return (sonde_nn_transform){.kind = SONDE_NN_INVERT};
}

sonde_nn_transform sonde_nn_invert_if_light(int threshold)
{
    return (sonde_nn_transform){.kind = SONDE_NN_INVERT_IF_LIGHT, .threshold = threshold};
}

sonde_nn_transform sonde_nn_centre_crop(int height, int width)
{
    return (sonde_nn_transform){
        .kind = SONDE_NN_CENTRE_CROP, .height = height, .width = width};
}

sonde_nn_transform sonde_nn_random_crop(int height, int width, int padding)
{
    return (sonde_nn_transform){.kind = SONDE_NN_RANDOM_CROP,
                                .height = height,
                                .width = width,
                                .padding = padding};
}

sonde_nn_transform sonde_nn_flip(float probability)
{
    return (sonde_nn_transform){.kind = SONDE_NN_FLIP, .probability = probability};
}

enum { SIDE_MAX = 1 << 30 }; /* of any array: sides are int from here on */

/* --- composing ---------------------------------------------------------------------- */

static const char *const names[] = {
    "to_float", "normalise",       "resize",      "greyscale",   "rgb",
    "invert",   "invert_if_light", "centre_crop", "random_crop", "flip",
};

/* What flows through the list at one place. */
typedef struct sample_flow {
    sonde_dtype dtype;
    int rank;
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* the largest */
    bool varied_size, varied_channels;
    char where[64]; /* "transform 2 (resize)" */
    sonde_diag *diag;
} sample_flow;

static size_t flow_bytes(const sample_flow *flow)
{
    size_t bytes = sonde_dtype_size(flow->dtype);

    for (int i = 0; i < flow->rank; i++) {
        bytes *= (size_t)flow->shape[i];
    }
    return bytes;
}

static sonde_err want_image(const sample_flow *flow)
{
    char text[96];

    if (flow->rank != 3) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "images (C, H, W)",
                           "samples have shape %s",
                           sonde_shape_text(flow->rank, flow->shape, text, sizeof text));
    }
    return SONDE_OK;
}

static sonde_err want_bytes(const sample_flow *flow)
{
    const sonde_err err = want_image(flow);

    if (err == SONDE_OK && flow->dtype != SONDE_U8) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where,
                           "uint8: before to_float", "works on bytes, not on %s",
                           sonde_dtype_name(flow->dtype));
    }
    return err;
}

static sonde_err want_sides(const sample_flow *flow, const sonde_nn_transform *transform)
{
    if (transform->height < 1 || transform->width < 1 ||
        transform->height > SONDE_NN_IMAGE_SIDE_MAX ||
        transform->width > SONDE_NN_IMAGE_SIDE_MAX || transform->padding < 0 ||
        transform->padding > SONDE_NN_IMAGE_SIDE_MAX) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "sides of 1 to 16384",
                           "%d x %d, padding %d", transform->height, transform->width,
                           transform->padding);
    }
    return SONDE_OK;
}

static sonde_err flow_normalise(sample_flow *flow, const sonde_nn_transform *transform)
{
    const int64_t channels = flow->rank == 3 ? flow->shape[0] : 1;

    if (flow->dtype != SONDE_F32) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "to_float before it",
                           "works on float32, not on %s", sonde_dtype_name(flow->dtype));
    }
    if (transform->channels != 1 &&
        (transform->channels != channels || flow->varied_channels)) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where,
                           "one mean and std, or one for each channel",
                           "%d means for %d channels", transform->channels,
                           (int)channels);
    }
    for (int c = 0; c < transform->channels; c++) {
        if (!isfinite(transform->mean[c]) || !isfinite(transform->std[c]) ||
            transform->std[c] == 0.0f) {
            return sonde__fail(flow->diag, SONDE_EINVAL, flow->where,
                               "finite numbers, std not 0", "mean %g, std %g",
                               (double)transform->mean[c], (double)transform->std[c]);
        }
    }
    return SONDE_OK;
}

static sonde_err flow_crop(sample_flow *flow, const sonde_nn_transform *transform)
{
    const int64_t extra = 2 * (int64_t)transform->padding;
    sonde_err err = want_image(flow);

    if (err == SONDE_OK) {
        err = want_sides(flow, transform);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (flow->shape[1] + extra < transform->height ||
        flow->shape[2] + extra < transform->width) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "a larger image",
                           "%d x %d out of %d x %d", transform->height, transform->width,
                           (int)(flow->shape[1] + extra), (int)(flow->shape[2] + extra));
    }
    flow->shape[1] = transform->height;
    flow->shape[2] = transform->width;
    flow->varied_size = false;
    return SONDE_OK;
}

static sonde_err flow_resize(sample_flow *flow, const sonde_nn_transform *transform,
                             size_t *bytes)
{
    sonde_err err = want_bytes(flow);

    if (err == SONDE_OK) {
        err = want_sides(flow, transform);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (transform->filter != SONDE_NN_BILINEAR && transform->filter != SONDE_NN_BICUBIC) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "bilinear or bicubic",
                           "filter %d", (int)transform->filter);
    }
    *bytes =
        SONDE_MAX(*bytes, sonde__data_resize_scratch(&(sonde__data_resize){
                              (int)flow->shape[1], (int)flow->shape[2], transform->height,
                              transform->width, transform->filter}));
    flow->shape[1] = transform->height;
    flow->shape[2] = transform->width;
    flow->varied_size = false;
    return SONDE_OK;
}

static sonde_err flow_channels(sample_flow *flow, int64_t channels)
{
    const sonde_err err = want_bytes(flow);

    if (err == SONDE_OK && flow->shape[0] != 1 && flow->shape[0] != 3) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "1 or 3 channels",
                           "images have %d channels", (int)flow->shape[0]);
    }
    flow->shape[0] = channels;
    flow->varied_channels = false;
    return err;
}

static sonde_err flow_invert_if_light(sample_flow *flow)
{
    const sonde_err err = want_bytes(flow);

    if (err == SONDE_OK && (flow->shape[0] != 1 || flow->varied_channels)) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "greyscale before it",
                           "looks at grey images");
    }
    if (err == SONDE_OK && (flow->shape[1] < 2 || flow->shape[2] < 2)) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "at least 2 x 2",
                           "images have no pixel (1, 1)");
    }
    return err;
}

static sonde_err flow_flip(const sample_flow *flow, const sonde_nn_transform *transform)
{
    if (!(transform->probability >= 0.0f && transform->probability <= 1.0f)) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "0 to 1",
                           "probability %g", (double)transform->probability);
    }
    return want_image(flow);
}

static sonde_err flow_through(sample_flow *flow, const sonde_nn_transform *transform,
                              size_t *resize_bytes)
{
    switch (transform->kind) {
    case SONDE_NN_TO_FLOAT:
        flow->dtype = SONDE_F32;
        return SONDE_OK;
    case SONDE_NN_NORMALISE:
        return flow_normalise(flow, transform);
    case SONDE_NN_RESIZE:
        return flow_resize(flow, transform, resize_bytes);
    case SONDE_NN_GREYSCALE:
        return flow_channels(flow, 1);
    case SONDE_NN_RGB:
        return flow_channels(flow, 3);
    case SONDE_NN_INVERT:
        return want_bytes(flow);
    case SONDE_NN_INVERT_IF_LIGHT:
        return flow_invert_if_light(flow);
    case SONDE_NN_CENTRE_CROP:
    case SONDE_NN_RANDOM_CROP:
        return flow_crop(flow, transform);
    case SONDE_NN_FLIP:
        return flow_flip(flow, transform);
    }
    return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, NULL, "unknown kind %d",
                       (int)transform->kind);
}

/* Appends one transform, or melts a normalise into the to_float before it. */
static void append(sonde_nn_pipeline *pipeline, const sonde_nn_transform *transform,
                   uint64_t place)
{
    sonde__data_step *last =
        pipeline->count > 0 ? &pipeline->steps[pipeline->count - 1] : NULL;

    if (transform->kind == SONDE_NN_NORMALISE && last != NULL &&
        last->transform.kind == SONDE_NN_TO_FLOAT && !last->fused &&
        pipeline->in_dtype == SONDE_U8) {
        last->fused = true;
        last->transform.channels = transform->channels;
        memcpy(last->transform.mean, transform->mean, sizeof transform->mean);
        memcpy(last->transform.std, transform->std, sizeof transform->std);
        return;
    }
    pipeline->steps[pipeline->count++] =
        (sonde__data_step){.transform = *transform, .place = place};
}

/* Tables for every to_float; a plain one is normalising with mean 0, std 1. */
static sonde_err make_tables(sonde_nn_pipeline *pipeline, sonde_diag *diag)
{
    size_t used = 0;

    pipeline->kernel = sonde__data_affine_kernel();
    pipeline->affines = sonde__calloc(pipeline->count * SONDE_NN_TRANSFORM_CHANNELS,
                                      sizeof *pipeline->affines);
    if (pipeline->affines == NULL) {
        return sonde__fail_nomem(diag, "a transform pipeline");
    }
    for (size_t i = 0; i < pipeline->count; i++) {
        sonde__data_step *step = &pipeline->steps[i];

        if (step->transform.kind != SONDE_NN_TO_FLOAT) {
            continue;
        }
        step->affine = pipeline->affines + used;
        step->affines = step->fused ? step->transform.channels : 1;
        for (int c = 0; c < step->affines; c++) {
            sonde__data_affine_init(&step->affine[c],
                                    step->fused ? step->transform.mean[c] : 0.0f,
                                    step->fused ? step->transform.std[c] : 1.0f);
        }
        used += (size_t)step->affines;
    }
    return SONDE_OK;
}

static sonde_err compose(sonde_nn_pipeline *pipeline, const sonde_nn_transform *list,
                         size_t count, const sonde_nn_dataset_traits *traits,
                         sonde_diag *diag)
{
    sample_flow flow = {.dtype = traits->dtype,
                        .rank = traits->rank,
                        .varied_size = traits->varied_size,
                        .varied_channels = traits->varied_channels,
                        .diag = diag};

    pipeline->in_dtype = traits->dtype;
    memcpy(flow.shape, traits->shape, sizeof flow.shape);
    for (int i = 0; i < flow.rank; i++) {
        if (flow.shape[i] > SIDE_MAX) {
            return sonde__fail(diag, SONDE_EUNSUPPORTED, traits->source,
                               "at most 1073741824", "a sample has %lld elements a side",
                               (long long)flow.shape[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        const size_t kind = (size_t)list[i].kind;
        sonde_err err = SONDE_OK;

        (void)snprintf(flow.where, sizeof flow.where, "transform %zu (%s)", i + 1,
                       kind < SONDE_COUNT_OF(names) ? names[kind] : "?");
        err = flow_through(&flow, &list[i], &pipeline->resize_bytes);
        if (err != SONDE_OK) {
            return err;
        }
        append(pipeline, &list[i], i + 1);
        pipeline->buffer_bytes = SONDE_MAX(pipeline->buffer_bytes, flow_bytes(&flow));
    }
    if (flow.varied_size || flow.varied_channels) {
        return sonde__fail(diag, SONDE_ESHAPE, traits->source,
                           flow.varied_size ? "a resize or a crop" : "greyscale or rgb",
                           "images differ in %s, and no transform makes them alike",
                           flow.varied_size ? "size" : "channels");
    }
    pipeline->out_dtype = flow.dtype;
    pipeline->rank = flow.rank;
    memcpy(pipeline->out_shape, flow.shape, sizeof flow.shape);
    pipeline->out_bytes = flow_bytes(&flow);
    return make_tables(pipeline, diag);
}

sonde_err sonde_nn_pipeline_create(const sonde_nn_transform *list, size_t count,
                                   const sonde_nn_dataset_traits *traits,
                                   sonde_nn_pipeline **out, sonde_diag *diag)
{
    sonde_nn_pipeline *pipeline = NULL;
    sonde_err err = SONDE_OK;

    if (count > SONDE_NN_TRANSFORMS_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, "transforms", "at most 16",
                           "%zu transforms", count);
    }
    pipeline = sonde__calloc(1, sizeof *pipeline);
    if (pipeline == NULL) {
        return sonde__fail_nomem(diag, "a transform pipeline");
    }
    err = compose(pipeline, list, count, traits, diag);
    if (err != SONDE_OK) {
        sonde_nn_pipeline_destroy(pipeline);
        return err;
    }
    *out = pipeline;
    return SONDE_OK;
}

void sonde_nn_pipeline_destroy(sonde_nn_pipeline *pipeline)
{
    if (pipeline != NULL) {
        sonde__free(pipeline->affines);
        sonde__free(pipeline);
    }
}

sonde_dtype sonde_nn_pipeline_dtype(const sonde_nn_pipeline *pipeline)
{
    return pipeline->out_dtype;
}

int sonde_nn_pipeline_shape(const sonde_nn_pipeline *pipeline,
                            int64_t shape[SONDE_NN_SAMPLE_DIMS])
{
    memcpy(shape, pipeline->out_shape, sizeof pipeline->out_shape);
    return pipeline->rank;
}

size_t sonde_nn_pipeline_bytes(const sonde_nn_pipeline *pipeline)
{
    return pipeline->out_bytes;
}
