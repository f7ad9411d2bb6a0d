/*
 * transform.c - composing a list of them, running it over one sample.
 *
 * Composing walks the list once with the dtype and the largest shape at each place,
 * checks each transform against them, fuses to_float with a normalize after it, and finds
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
#include "nn/data/pixels.h"
#include "nn/data/loader_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE_MAX = 1 << 30 }; /* of any array: sides are int from here on */

/* --- composing ---------------------------------------------------------------------- */

/* The samples at one place of the list. */
typedef struct sample_flow {
    sonde_dtype dtype;
    int rank;
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* the largest */
    bool varied_size, varied_channels;
    size_t resize_bytes; /* of scratch */
    char where[64];      /* "transform 2 (resize)" */
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

static sonde_err flow_to_float(sample_flow *flow, const sonde_nn_transform *transform)
{
    (void)transform;
    if (flow->dtype != SONDE_U8 && flow->dtype != SONDE_F32) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "uint8 or float32",
                           "samples are %s", sonde_dtype_name(flow->dtype));
    }
    flow->dtype = SONDE_F32;
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
        transform->height > SONDE__DATA_SIDE_MAX ||
        transform->width > SONDE__DATA_SIDE_MAX || transform->padding < 0 ||
        transform->padding > SONDE__DATA_SIDE_MAX) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "sides of 1 to 16384",
                           "%d x %d, padding %d", transform->height, transform->width,
                           transform->padding);
    }
    return SONDE_OK;
}

static sonde_err flow_normalize(sample_flow *flow, const sonde_nn_transform *transform)
{
    const int64_t channels = flow->rank == 3 ? flow->shape[0] : 1;

    if (flow->dtype != SONDE_F32) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "to_float before it",
                           "works on float32, not on %s", sonde_dtype_name(flow->dtype));
    }
    if (transform->channels < 1 || transform->channels > SONDE_NN_TRANSFORM_CHANNELS) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "1 to 4 means",
                           "%d means", transform->channels);
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

static sonde_err flow_resize(sample_flow *flow, const sonde_nn_transform *transform)
{
    SONDE__TRY(want_bytes(flow));
    SONDE__TRY(want_sides(flow, transform));
    if (transform->filter != SONDE_NN_BILINEAR && transform->filter != SONDE_NN_BICUBIC) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "bilinear or bicubic",
                           "filter %d", (int)transform->filter);
    }
    flow->resize_bytes = SONDE_MAX(
        flow->resize_bytes, sonde__data_resize_scratch(&(sonde__data_resize){
                                (int)flow->shape[1], (int)flow->shape[2],
                                transform->height, transform->width, transform->filter}));
    flow->shape[1] = transform->height;
    flow->shape[2] = transform->width;
    flow->varied_size = false;
    return SONDE_OK;
}

/* To one channel, or to three. */
static sonde_err flow_channels(sample_flow *flow, const sonde_nn_transform *transform)
{
    SONDE__TRY(want_bytes(flow));
    if (flow->shape[0] != 1 && flow->shape[0] != 3) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "1 or 3 channels",
                           "images have %d channels", (int)flow->shape[0]);
    }
    flow->shape[0] = transform->kind == SONDE_NN_RGB ? 3 : 1;
    flow->varied_channels = false;
    return SONDE_OK;
}

static sonde_err flow_invert(sample_flow *flow, const sonde_nn_transform *transform)
{
    SONDE__TRY(want_bytes(flow));
    if (transform->kind == SONDE_NN_INVERT) {
        return SONDE_OK;
    }
    if (flow->shape[0] != 1 || flow->varied_channels) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "grayscale before it",
                           "looks at gray images");
    }
    if (flow->shape[1] < 2 || flow->shape[2] < 2) {
        return sonde__fail(flow->diag, SONDE_ESHAPE, flow->where, "at least 2 x 2",
                           "images have no pixel (1, 1)");
    }
    return SONDE_OK;
}

static sonde_err flow_flip(sample_flow *flow, const sonde_nn_transform *transform)
{
    if (!(transform->probability >= 0.0f && transform->probability <= 1.0f)) {
        return sonde__fail(flow->diag, SONDE_EINVAL, flow->where, "0 to 1",
                           "probability %g", (double)transform->probability);
    }
    return want_image(flow);
}

/* What a sample is after some steps, and the step that runs. */
typedef struct sample_state {
    const unsigned char *data;
    sonde_dtype dtype;
    int channels, height, width; /* 1, 1, all elements if not of rank 3 */
    const sonde_nn_pipeline *pipeline;
    const sonde__data_step *step;
    uint32_t drawn[4]; /* random words for this sample, epoch and step */
    void *scratch;     /* for a resize */
    sonde_diag *diag;
} sample_state;

static sonde_err run_to_float(sample_state *state, void *out);
static sonde_err run_normalize(sample_state *state, void *out);
static sonde_err run_resize(sample_state *state, void *out);
static sonde_err run_grayscale(sample_state *state, void *out);
static sonde_err run_rgb(sample_state *state, void *out);
static sonde_err run_invert(sample_state *state, void *out);
static sonde_err run_crop(sample_state *state, void *out);
static sonde_err run_flip(sample_state *state, void *out);

/* By kind. flow checks a transform and finds what it makes of all samples; run writes a
 * sample to out and moves state->data there, or leaves both alone. */
static const struct {
    const char *name;
    sonde_err (*flow)(sample_flow *flow, const sonde_nn_transform *transform);
    sonde_err (*run)(sample_state *state, void *out);
    bool random;
} kinds[] = {
    [SONDE_NN_TO_FLOAT] = {"to_float", flow_to_float, run_to_float, false},
    [SONDE_NN_NORMALIZE] = {"normalize", flow_normalize, run_normalize, false},
    [SONDE_NN_RESIZE] = {"resize", flow_resize, run_resize, false},
    [SONDE_NN_GRAYSCALE] = {"grayscale", flow_channels, run_grayscale, false},
    [SONDE_NN_RGB] = {"rgb", flow_channels, run_rgb, false},
    [SONDE_NN_INVERT] = {"invert", flow_invert, run_invert, false},
    [SONDE_NN_INVERT_IF_LIGHT] = {"invert_if_light", flow_invert, run_invert, false},
    [SONDE_NN_CENTER_CROP] = {"center_crop", flow_crop, run_crop, false},
    [SONDE_NN_RANDOM_CROP] = {"random_crop", flow_crop, run_crop, true},
    [SONDE_NN_FLIP] = {"flip", flow_flip, run_flip, true},
    [SONDE_NN_FLIP_VERTICAL] = {"flip_vertical", flow_flip, run_flip, true},
};

/* Appends one transform to samples of a dtype, or fuses a normalize into the to_float
 * before it. A to_float of floats is left out. */
static void append(sonde_nn_pipeline *pipeline, const sonde_nn_transform *transform,
                   uint64_t place, sonde_dtype dtype)
{
    if (transform->kind == SONDE_NN_TO_FLOAT && dtype == SONDE_F32) {
        return;
    }
    sonde__data_step *last =
        pipeline->count > 0 ? &pipeline->steps[pipeline->count - 1] : NULL;

    if (transform->kind == SONDE_NN_NORMALIZE && last != NULL &&
        last->transform.kind == SONDE_NN_TO_FLOAT && !last->fused) {
        last->fused = true;
        last->transform.channels = transform->channels;
        memcpy(last->transform.mean, transform->mean, sizeof transform->mean);
        memcpy(last->transform.std, transform->std, sizeof transform->std);
        return;
    }
    pipeline->steps[pipeline->count++] =
        (sonde__data_step){.transform = *transform, .place = place};
}

/* Makes the tables of every to_float; a plain one normalizes with mean 0, std 1. */
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
                       kind < SONDE_COUNT_OF(kinds) ? kinds[kind].name : "?");
        if (kind >= SONDE_COUNT_OF(kinds)) {
            return sonde__fail(diag, SONDE_EINVAL, flow.where, NULL, "unknown kind %zu",
                               kind);
        }
        const sonde_dtype dtype = flow.dtype;
        SONDE__TRY(kinds[kind].flow(&flow, &list[i]));
        append(pipeline, &list[i], i + 1, dtype);
        pipeline->buffer_bytes = SONDE_MAX(pipeline->buffer_bytes, flow_bytes(&flow));
    }
    if (flow.varied_size || flow.varied_channels) {
        return sonde__fail(diag, SONDE_ESHAPE, traits->source,
                           flow.varied_size ? "a resize or a crop" : "grayscale or rgb",
                           "images differ in %s, and no transform makes them alike",
                           flow.varied_size ? "size" : "channels");
    }
    pipeline->resize_bytes = flow.resize_bytes;
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

/* === running ======================================================================== */

static size_t round_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

sonde_nn_pipeline_info sonde_nn_pipeline_get_info(const sonde_nn_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return (sonde_nn_pipeline_info){.rank = 0};
    }
    sonde_nn_pipeline_info info = {.dtype = pipeline->out_dtype,
                                   .rank = pipeline->rank,
                                   .bytes = pipeline->out_bytes,
                                   .scratch = 2 * round_up(pipeline->buffer_bytes) +
                                              pipeline->resize_bytes};

    memcpy(info.shape, pipeline->out_shape, sizeof info.shape);
    return info;
}

static size_t plane_of(const sample_state *state)
{
    return (size_t)state->height * (size_t)state->width;
}

static size_t bytes_of(const sample_state *state)
{
    return (size_t)state->channels * plane_of(state) * sonde_dtype_size(state->dtype);
}

static sonde_err run_to_float(sample_state *state, void *out)
{
    const sonde__data_step *step = state->step;
    const size_t plane = plane_of(state);

    if (step->affines == 1) {
        state->pipeline->kernel(step->affine, state->data,
                                plane * (size_t)state->channels, out);
    } else {
        for (int c = 0; c < state->channels; c++) {
            state->pipeline->kernel(&step->affine[c], state->data + (size_t)c * plane,
                                    plane, (float *)out + (size_t)c * plane);
        }
    }
    state->dtype = SONDE_F32;
    state->data = out;
    return SONDE_OK;
}

static sonde_err run_normalize(sample_state *state, void *out)
{
    const sonde_nn_transform *transform = &state->step->transform;
    const float *in = (const float *)(const void *)state->data;
    const size_t plane = plane_of(state);

    for (int c = 0; c < state->channels; c++) {
        const int entry = transform->channels == 1 ? 0 : c;
        const float mean = transform->mean[entry], std = transform->std[entry];
        float *to = (float *)out + (size_t)c * plane;

        for (size_t i = 0; i < plane; i++) {
            to[i] = (in[(size_t)c * plane + i] - mean) / std;
        }
    }
    state->data = out;
    return SONDE_OK;
}

static sonde_err run_grayscale(sample_state *state, void *out)
{
    const size_t plane = plane_of(state);
    const uint8_t *red = state->data, *green = red + plane, *blue = green + plane;
    uint8_t *to = out;

    for (size_t i = 0; state->channels != 1 && i < plane; i++) {
        to[i] =
            (uint8_t)((red[i] * 19595u + green[i] * 38470u + blue[i] * 7471u + 0x8000u) >>
                      16);
    }
    state->data = state->channels != 1 ? to : state->data;
    state->channels = 1;
    return SONDE_OK;
}

static sonde_err run_rgb(sample_state *state, void *out)
{
    const size_t plane = plane_of(state);

    for (size_t c = 0; state->channels != 3 && c < 3; c++) {
        memcpy((uint8_t *)out + c * plane, state->data, plane);
    }
    state->data = state->channels != 3 ? out : state->data;
    state->channels = 3;
    return SONDE_OK;
}

static sonde_err run_invert(sample_state *state, void *out)
{
    const sonde_nn_transform *transform = &state->step->transform;
    const size_t count = bytes_of(state);
    uint8_t *to = out;

    if (transform->kind == SONDE_NN_INVERT_IF_LIGHT) {
        if (state->height < 2 || state->width < 2) { /* one of images of many sizes */
            return sonde__fail(state->diag, SONDE_ESHAPE, NULL, "at least 2 x 2",
                               "an image of %d x %d has no pixel (1, 1)", state->height,
                               state->width);
        }
        if (state->data[state->width + 1] <= transform->threshold) {
            return SONDE_OK;
        }
    }
    for (size_t i = 0; i < count; i++) {
        to[i] = (uint8_t)(255 - state->data[i]);
    }
    state->data = out;
    return SONDE_OK;
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

/* 0 ... bound - 1; the bias is below bound / 2^32. */
static int below(uint32_t word, int bound)
{
    return (int)((uint64_t)word * (uint64_t)bound >> 32);
}

static sonde_err run_crop(sample_state *state, void *out)
{
    const sonde_nn_transform *t = &state->step->transform;
    const int free_rows = state->height + 2 * t->padding - t->height;
    const int free_columns = state->width + 2 * t->padding - t->width;

    if (free_rows < 0 || free_columns < 0) {
        return sonde__fail(state->diag, SONDE_ESHAPE, NULL, "a larger image",
                           "a crop of %d x %d from an image of %d x %d", t->height,
                           t->width, state->height, state->width);
    }
    if (t->kind == SONDE_NN_CENTER_CROP) {
        crop(state, t, free_rows / 2 - t->padding, free_columns / 2 - t->padding, out);
    } else {
        crop(state, t, below(state->drawn[0], free_rows + 1) - t->padding,
             below(state->drawn[1], free_columns + 1) - t->padding, out);
    }
    state->data = out;
    return SONDE_OK;
}

static sonde_err run_flip(sample_state *state, void *out)
{
    const sonde_nn_transform *t = &state->step->transform;

    if ((float)(state->drawn[0] >> 8) * 0x1p-24f >= t->probability) {
        return SONDE_OK;
    }
    if (t->kind == SONDE_NN_FLIP) {
        flip(state, out);
    } else {
        flip_vertical(state, out);
    }
    state->data = out;
    return SONDE_OK;
}

static sonde_err run_resize(sample_state *state, void *out)
{
    const sonde_nn_transform *t = &state->step->transform;
    const sonde__data_resize sizes = {state->height, state->width, t->height, t->width,
                                      t->filter};

    sonde__data_resize_run(&sizes, state->channels, state->data, state->scratch, out);
    state->height = sizes.out_height;
    state->width = sizes.out_width;
    state->data = out;
    return SONDE_OK;
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
                          .width = (int)sample->shape[image ? 2 : 0],
                          .pipeline = pipeline,
                          .scratch = buffers == NULL ? NULL : buffers + 2 * step_size,
                          .diag = diag};

    for (int i = 1; !image && i < pipeline->rank; i++) {
        state.width *= (int)sample->shape[i];
    }
    for (size_t i = 0; i < pipeline->count; i++) {
        unsigned char *other = state.data == buffers ? buffers + step_size : buffers;

        state.step = &pipeline->steps[i];
        if (kinds[state.step->transform.kind].random) {
            sonde__philox(seed, sonde__data_stream(epoch, state.step->place),
                          (uint64_t)index, state.drawn);
        }
        SONDE__TRY(kinds[state.step->transform.kind].run(
            &state, i + 1 == pipeline->count ? out : other));
    }
    if (state.data != out) {
        memcpy(out, state.data, bytes_of(&state));
    }
    return SONDE_OK;
}
