/*
 * transform_run.c - a pipeline over one sample.
 *
 * A step reads where the last active one wrote (at first the sample) and writes to the
 * buffer that is not it; the last step writes to out. scratch: | buffer | buffer | what
 * resize needs |
 */
#include "nn/data/pipeline.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/random.h"
#include "nn/data/resize.h"

#include <string.h>

/* The sample as it is after some steps. */
typedef struct sample_state {
    const unsigned char *data;
    sonde_dtype dtype;
    int channels, height, width; /* of rank 1: 1, 1, F */
} sample_state;

static size_t round_up(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

size_t sonde_nn_pipeline_scratch(const sonde_nn_pipeline *pipeline)
{
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

/* height x width from (top, left), which may lie outside: zeros there. */
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

/* What a random step draws: four words for this sample, epoch and place. */
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

/* Whether a step leaves this sample as it is. */
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
    }
    state->data = out;
    return err;
}

static bool is_random(const sonde__data_step *step)
{
    return step->transform.kind == SONDE_NN_RANDOM_CROP ||
           step->transform.kind == SONDE_NN_FLIP;
}

sonde_err sonde_nn_pipeline_run(const sonde_nn_pipeline *pipeline,
                                const sonde_nn_sample *sample, uint64_t seed,
                                uint64_t epoch, int64_t index, void *scratch, void *out,
                                sonde_diag *diag)
{
    unsigned char *buffers = scratch;
    const size_t step_size = round_up(pipeline->buffer_bytes);
    const bool image = pipeline->rank == 3;
    sample_state state = {.data = sample->data,
                          .dtype = pipeline->in_dtype,
                          .channels = image ? (int)sample->shape[0] : 1,
                          .height = image ? (int)sample->shape[1] : 1,
                          .width = (int)sample->shape[image ? 2 : 0]};

    for (size_t i = 0; i < pipeline->count; i++) {
        const sonde__data_step *step = &pipeline->steps[i];
        unsigned char *other = state.data == buffers ? buffers + step_size : buffers;
        void *to = i + 1 == pipeline->count ? out : other;
        random_draw draw = {{0}};
        sonde_err err = SONDE_OK;

        if (is_random(step)) {
            sonde__philox(seed, sonde__data_stream(epoch, step->place), (uint64_t)index,
                          draw.word);
        }
        if (leaves_alone(step, &state, &draw)) {
            continue;
        }
        err = run_step(pipeline, step, &state, &draw, buffers + 2 * step_size, to, diag);
        if (err != SONDE_OK) {
            return err;
        }
    }
    if (state.data != out) {
        memcpy(out, state.data, bytes_of(&state));
    }
    return SONDE_OK;
}
