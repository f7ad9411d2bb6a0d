/*
 * transform.c - making transforms, composing a list of them, running it over one sample.
 *
 * Composing walks the list once with the dtype and the largest shape at each place,
 * checks each transform against them, fuses to_float with a normalise after it, and finds
 * the scratch that a run needs.
 *
 * Running: a step reads what the last active step wrote (at first the sample) and writes
 * to the other buffer; the last step writes to out. scratch: | buffer | buffer | resize's
 * |
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "nn/data/pipeline.h"
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

    if (mean == NULL || std == NULL) {
        return transform;
    }
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

sonde_nn_transform sonde_nn_flip_vertical(float probability)
{
    return (sonde_nn_transform){.kind = SONDE_NN_FLIP_VERTICAL,
                                .probability = probability};
}

enum { SIDE_MAX = 1 << 30 }; /* of any array: sides are int from here on */

/* --- composing ---------------------------------------------------------------------- */

static const char *const names[] = {
    "to_float",    "normalise", "resize",          "greyscale",
    "rgb",         "invert",    "invert_if_light", "centre_crop",
    "random_crop", "flip",      "flip_vertical",
};

/* The samples at one place of the list. */
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
    SONDE__TRY(want_image(flow));
    if (flow->dtype != SONDE_U8) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where,
                           "uint8: before to_float", "works on bytes, not on %s",
                           sonde_dtype_name(flow->dtype));
    }
    return SONDE_OK;
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
    SONDE__TRY(want_image(flow));
    SONDE__TRY(want_sides(flow, transform));
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
    SONDE__TRY(want_bytes(flow));
    SONDE__TRY(want_sides(flow, transform));
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
    SONDE__TRY(want_bytes(flow));
    if (flow->shape[0] != 1 && flow->shape[0] != 3) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "1 or 3 channels",
                           "images have %d channels", (int)flow->shape[0]);
    }
    flow->shape[0] = channels;
    flow->varied_channels = false;
    return SONDE_OK;
}

static sonde_err flow_invert_if_light(sample_flow *flow)
{
    SONDE__TRY(want_bytes(flow));
    if (flow->shape[0] != 1 || flow->varied_channels) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "greyscale before it",
                           "looks at grey images");
    }
    if (flow->shape[1] < 2 || flow->shape[2] < 2) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "at least 2 x 2",
                           "images have no pixel (1, 1)");
    }
    return SONDE_OK;
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
    case SONDE_NN_FLIP_VERTICAL:
        return flow_flip(flow, transform);
    }
    return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, NULL, "unknown kind %d",
                       (int)transform->kind);
}

/* Appends one transform, or fuses a normalise into the to_float before it. */
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

/* Makes the tables of every to_float; a plain one normalises with mean 0, std 1. */
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

        (void)snprintf(flow.where, sizeof flow.where, "transform %zu (%s)", i + 1,
                       kind < SONDE_COUNT_OF(names) ? names[kind] : "?");
        SONDE__TRY(flow_through(&flow, &list[i], &pipeline->resize_bytes));
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
    SONDE__NEEDS(diag, traits, out);
    if (count > 0) {
        SONDE__NEEDS(diag, list);
    }
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
    if (pipeline == NULL) {
        return SONDE_BOOL;
    }
    return pipeline->out_dtype;
}

int sonde_nn_pipeline_shape(const sonde_nn_pipeline *pipeline,
                            int64_t shape[SONDE_NN_SAMPLE_DIMS])
{
    if (pipeline == NULL || shape == NULL) {
        return 0;
    }
    memcpy(shape, pipeline->out_shape, sizeof pipeline->out_shape);
    return pipeline->rank;
}

size_t sonde_nn_pipeline_bytes(const sonde_nn_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return 0;
    }
    return pipeline->out_bytes;
}

/* === running ======================================================================== */

/* The sample after some steps. */
typedef struct sample_state {
    const unsigned char *data;
    sonde_dtype dtype;
    int channels, height, width; /* 1, 1, all elements if not of rank 3 */
} sample_state;

static size_t round_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

size_t sonde_nn_pipeline_scratch(const sonde_nn_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return 0;
    }
    return 2 * round_up(pipeline->buffer_bytes) + pipeline->resize_bytes;
}

static size_t plane_of(const sample_state *state)
{
    return (size_t)state->height * (size_t)state->width;
}

static size_t bytes_of(const sample_state *state)
{
    return (size_t)state->channels * plane_of(state) * sonde_dtype_size(state->dtype);
}

static void to_float(const sonde_nn_pipeline *pipeline, const sonde__data_step *step,
                     sample_state *state, void *out)
{
    const size_t plane = plane_of(state);

    if (step->affines == 1) {
        pipeline->kernel(step->affine, state->data, plane * (size_t)state->channels, out);
    } else {
        for (int c = 0; c < state->channels; c++) {
            pipeline->kernel(&step->affine[c], state->data + (size_t)c * plane, plane,
                             (float *)out + (size_t)c * plane);
        }
    }
    state->dtype = SONDE_F32;
}

static void normalise(const sonde__data_step *step, const sample_state *state, void *out)
{
    const float *in = (const float *)(const void *)state->data;
    const size_t plane = plane_of(state);

    for (int c = 0; c < state->channels; c++) {
        const int entry = step->transform.channels == 1 ? 0 : c;
        const float mean = step->transform.mean[entry], std = step->transform.std[entry];
        float *to = (float *)out + (size_t)c * plane;

        for (size_t i = 0; i < plane; i++) {
            to[i] = (in[(size_t)c * plane + i] - mean) / std;
        }
    }
}

static void greyscale(sample_state *state, uint8_t *out)
{
    const size_t plane = plane_of(state);
    const uint8_t *red = state->data, *green = red + plane, *blue = green + plane;

    for (size_t i = 0; i < plane; i++) {
        out[i] =
            (uint8_t)((red[i] * 19595u + green[i] * 38470u + blue[i] * 7471u + 0x8000u) >>
                      16);
    }
    state->channels = 1;
}

static void rgb(sample_state *state, uint8_t *out)
{
    const size_t plane = plane_of(state);

    for (size_t c = 0; c < 3; c++) {
        memcpy(out + c * plane, state->data, plane);
    }
    state->channels = 3;
}

static void invert(const sample_state *state, uint8_t *out)
{
    const size_t count = bytes_of(state);

    for (size_t i = 0; i < count; i++) {
        out[i] = (uint8_t)(255 - state->data[i]);
    }
}

/* height x width from (top, left), with zeros outside the image. */
static void crop(sample_state *state, const sonde_nn_transform *transform, int top,
                 int left, unsigned char *out)
{
    const size_t size = sonde_dtype_size(state->dtype);
    const int first = SONDE_MAX(0, -left);
    const int end = SONDE_MIN(transform->width, state->width - left);

    for (int c = 0; c < state->channels; c++) {
        for (int y = 0; y < transform->height; y++) {
            const int from = y + top;
            const unsigned char *row =
                state->data + ((size_t)c * plane_of(state) +
                               (size_t)SONDE_MAX(from, 0) * (size_t)state->width) *
                                  size;

            if (from < 0 || from >= state->height || first >= end) {
                memset(out, 0, (size_t)transform->width * size);
            } else {
                memset(out, 0, (size_t)first * size);
                memcpy(out + (size_t)first * size, row + (size_t)(first + left) * size,
                       (size_t)(end - first) * size);
                memset(out + (size_t)end * size, 0,
                       (size_t)(transform->width - end) * size);
            }
            out += (size_t)transform->width * size;
        }
    }
    state->height = transform->height;
    state->width = transform->width;
}

static void flip(const sample_state *state, unsigned char *out)
{
    const size_t size = sonde_dtype_size(state->dtype), width = (size_t)state->width;
    const size_t rows = (size_t)state->channels * (size_t)state->height;

    for (size_t y = 0; y < rows; y++) {
        for (size_t x = 0; x < width; x++) {
            memcpy(out + (y * width + x) * size,
                   state->data + (y * width + width - 1 - x) * size, size);
        }
    }
}

static void flip_vertical(const sample_state *state, unsigned char *out)
{
    const size_t row = (size_t)state->width * sonde_dtype_size(state->dtype);
    const size_t height = (size_t)state->height;

    for (size_t y = 0; y < (size_t)state->channels * height; y++) {
        const size_t other = y / height * height + (height - 1 - y % height);

        memcpy(out + y * row, state->data + other * row, row);
    }
}

/* Draws four random words for this sample, epoch and place. */
typedef struct random_draw {
    uint32_t word[4];
} random_draw;

/* 0 ... bound - 1; the bias is below bound / 2^32. */
static int below(uint32_t word, int bound)
{
    return (int)((uint64_t)word * (uint64_t)bound >> 32);
}

static sonde_err run_crop(const sonde__data_step *step, sample_state *state,
                          const random_draw *draw, void *out, sonde_diag *diag)
{
    const sonde_nn_transform *t = &step->transform;
    const int free_rows = state->height + 2 * t->padding - t->height;
    const int free_columns = state->width + 2 * t->padding - t->width;

    if (free_rows < 0 || free_columns < 0) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "a larger image",
                           "a crop of %d x %d from an image of %d x %d", t->height,
                           t->width, state->height, state->width);
    }
    if (t->kind == SONDE_NN_CENTRE_CROP) {
        crop(state, t, free_rows / 2, free_columns / 2, out);
    } else {
        crop(state, t, below(draw->word[0], free_rows + 1) - t->padding,
             below(draw->word[1], free_columns + 1) - t->padding, out);
    }
    return SONDE_OK;
}

static void run_resize(const sonde__data_step *step, sample_state *state, void *scratch,
                       void *out)
{
    const sonde__data_resize sizes = {state->height, state->width, step->transform.height,
                                      step->transform.width, step->transform.filter};

    sonde__data_resize_run(&sizes, state->channels, state->data, scratch, out);
    state->height = sizes.out_height;
    state->width = sizes.out_width;
}

/* True if a step does not change this sample. */
static bool leaves_alone(const sonde__data_step *step, const sample_state *state,
                         const random_draw *draw)
{
    switch (step->transform.kind) {
    case SONDE_NN_TO_FLOAT:
        return state->dtype == SONDE_F32;
    case SONDE_NN_GREYSCALE:
        return state->channels == 1;
    case SONDE_NN_RGB:
        return state->channels == 3;
    case SONDE_NN_INVERT_IF_LIGHT:
        return state->data[state->width + 1] <= step->transform.threshold;
    case SONDE_NN_FLIP:
    case SONDE_NN_FLIP_VERTICAL:
        return (float)(draw->word[0] >> 8) * 0x1p-24f >= step->transform.probability;
    case SONDE_NN_NORMALISE:
    case SONDE_NN_RESIZE:
    case SONDE_NN_INVERT:
    case SONDE_NN_CENTRE_CROP:
    case SONDE_NN_RANDOM_CROP:
        break;
    }
    return false;
}

static sonde_err run_step(const sonde_nn_pipeline *pipeline, const sonde__data_step *step,
                          sample_state *state, const random_draw *draw,
                          void *resize_scratch, void *out, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    switch (step->transform.kind) {
    case SONDE_NN_TO_FLOAT:
        to_float(pipeline, step, state, out);
        break;
    case SONDE_NN_NORMALISE:
        normalise(step, state, out);
        break;
    case SONDE_NN_RESIZE:
        run_resize(step, state, resize_scratch, out);
        break;
    case SONDE_NN_GREYSCALE:
        greyscale(state, out);
        break;
    case SONDE_NN_RGB:
        rgb(state, out);
        break;
    case SONDE_NN_INVERT:
    case SONDE_NN_INVERT_IF_LIGHT:
        invert(state, out);
        break;
    case SONDE_NN_CENTRE_CROP:
    case SONDE_NN_RANDOM_CROP:
        err = run_crop(step, state, draw, out, diag);
        break;
    case SONDE_NN_FLIP:
        flip(state, out);
        break;
    case SONDE_NN_FLIP_VERTICAL:
        flip_vertical(state, out);
        break;
    }
    state->data = out;
    return err;
}

static bool is_random(const sonde__data_step *step)
{
    return step->transform.kind == SONDE_NN_RANDOM_CROP ||
           step->transform.kind == SONDE_NN_FLIP ||
           step->transform.kind == SONDE_NN_FLIP_VERTICAL;
}

sonde_err sonde_nn_pipeline_run(const sonde_nn_pipeline *pipeline,
                                const sonde_nn_sample *sample, uint64_t seed,
                                uint64_t epoch, int64_t index, void *scratch, void *out,
                                sonde_diag *diag)
{
    SONDE__NEEDS(diag, pipeline, sample, out);
    unsigned char *buffers = scratch;
    const size_t step_size = round_up(pipeline->buffer_bytes);
    const bool image = pipeline->rank == 3;
    sample_state state = {.data = sample->data,
                          .dtype = pipeline->in_dtype,
                          .channels = image ? (int)sample->shape[0] : 1,
                          .height = image ? (int)sample->shape[1] : 1,
                          .width = (int)sample->shape[image ? 2 : 0]};

    for (int i = 1; !image && i < pipeline->rank; i++) {
        state.width *= (int)sample->shape[i];
    }

    for (size_t i = 0; i < pipeline->count; i++) {
        const sonde__data_step *step = &pipeline->steps[i];
        unsigned char *other = state.data == buffers ? buffers + step_size : buffers;
        void *to = i + 1 == pipeline->count ? out : other;
        random_draw draw = {{0}};

        if (is_random(step)) {
            sonde__philox(seed, sonde__data_stream(epoch, step->place), (uint64_t)index,
                          draw.word);
        }
        if (leaves_alone(step, &state, &draw)) {
            continue;
        }
        SONDE__TRY(
            run_step(pipeline, step, &state, &draw, buffers + 2 * step_size, to, diag));
    }
    if (state.data != out) {
        memcpy(out, state.data, bytes_of(&state));
    }
    return SONDE_OK;
}
