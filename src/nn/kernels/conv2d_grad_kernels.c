/*
 * conv2d_grad_kernels.c - the input gradient of a convolution over LANES. Weight
 * gradients: conv2d_weight_kernels.c.
 *
 *   dx[c][i][j] = sum over o, k, l of
 *       w[o][c][k][l] dy[o][(i + p - k d) / s][(j + p - l d) / s]
 *
 * Two ways, chosen by shape alone:
 *
 *   scatter  Stride and dilation 1, kernels 3 or 5 wide. For one row of dx, one or two
 *            channels and a stretch of dy `width` pixels wide, the width + kw - 1 pixels of
 *            dx that it touches stay in registers: every tap of the stretch adds to them,
 *            and nothing is computed that a border cuts off. Pixels that two stretches
 *            touch are carried over through dx itself.
 *   gather   Everything else: the runs of conv2d_lanes.h, with lists of the taps that reach
 *            a pixel.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/kernels/conv2d_lanes.h"
#include "nn/kernels/fast.h"

/* --- scatter ------------------------------------------------------------------------ */

/* A stretch of one row. Lengths in floats. */
typedef struct scatter_job {
    const float *dy;     /* first channel, row and pixel of the stretch */
    const float *weight; /* first output channel, the input channel, first row, tap 0 */
    float *dx;           /* the input channel, the row, where pixel 0 of dy meets tap 0 */
    int64_t outputs, rows; /* channels of dy; rows of the kernel that count */
    int64_t dy_plane, dy_row,
        dx_plane; /* dy_row: back to the row that the next one meets */
    int64_t weight_output, weight_input; /* from channel to channel of the weight */
    int64_t first, last;                 /* pixels of dx, from dx, that exist */
    bool carry;                          /* not the row's first stretch */
} scatter_job;

/* acc: channels * (width + kw - 1) */
VEC_INLINE void scatter_sum(vf *acc, const scatter_job *job, const int kw,
                            const int channels, const int width)
{
    const int span = width + kw - 1;

    for (int64_t o = 0; o < job->outputs; o++) {
        const float *dy = job->dy + o * job->dy_plane;
        const float *weight = job->weight + o * job->weight_output;

        for (int64_t k = 0; k < job->rows; k++) {
#if VF_WIDTH == 16 /* the weights in registers, dy passing */
            vf w[2 * 5];

            VEC_EACH (i, channels * kw) {
                w[i] = vf_set1(weight[i / kw * job->weight_input + i % kw]);
            }
            VEC_EACH (j, width) {
                const vf v = vf_load(dy + j * LANES);

                VEC_EACH (i, channels * kw) {
                    const int index = i / kw * span + j + i % kw;

                    acc[index] = vf_fma(w[i], v, acc[index]);
                }
            }
#else /* one weight in a register, dy loaded anew for each: the compiler is kept from    \
       * holding all of it, for which there are no registers */
            VEC_EACH (i, channels * kw) {
                const vf w = vf_set1(weight[i / kw * job->weight_input + i % kw]);
                const float *again = dy;

                __asm__("" : "+r"(again));
                VEC_EACH (j, width) {
                    const int index = i / kw * span + j + i % kw;

                    acc[index] = vf_fma(w, vf_load(again + j * LANES), acc[index]);
                }
            }
#endif
            dy -= job->dy_row;
            weight += kw;
        }
    }
}

VEC_INLINE void scatter(const scatter_job *job, const int kw, const int channels,
                        const int width)
{
    const int span = width + kw - 1;
    vf acc[26];

    VEC_EACH (i, channels * span) {
        const int offset = i % span;
        const bool begun =
            offset < kw - 1 && job->carry && offset >= job->first && offset < job->last;

        acc[i] = begun ? vf_load(job->dx + i / span * job->dx_plane + offset * LANES)
                       : (vf){0};
    }
    scatter_sum(acc, job, kw, channels, width);
    VEC_EACH (i, channels * span) {
        const int offset = i % span;

        if (offset >= job->first && offset < job->last) {
            vf_store(job->dx + i / span * job->dx_plane + offset * LANES, acc[i]);
        }
    }
}

#define DEFINE_SCATTER(kw, channels, width)                                              \
    static void scatter_##kw##_##channels##_##width(const scatter_job *job)              \
    {                                                                                    \
        scatter(job, kw, channels, width);                                               \
    }
#define LIST_SCATTER(kw, channels, width)                                                \
    [kw / 4][channels - 1][width - 1] = scatter_##kw##_##channels##_##width,

/* X(kw, channels, width) of the functions that there are. */
#if VF_WIDTH == 16 /* channels * (width + 2 kw - 1) + 1 registers of 32 */
#define SCATTERS(X)                                                                      \
    VEC_UP_TO_12(X, 3, 1)                                                                \
    VEC_UP_TO_10(X, 3, 2) VEC_UP_TO_12(X, 5, 1) VEC_UP_TO_6(X, 5, 2)
enum { SCATTER_CHANNELS = 2, SCATTER_WIDTH = 12 };
#else /* width + kw registers of 16 */
#define SCATTERS(X) VEC_UP_TO_9(X, 3, 1) VEC_UP_TO_9(X, 5, 1)
enum { SCATTER_CHANNELS = 1, SCATTER_WIDTH = 9 };
#endif

SCATTERS(DEFINE_SCATTER)

typedef void (*scatter_fn)(const scatter_job *job);

/* By kernel widths 3 and 5, channels and width. */
static const scatter_fn scatters_of[2][SCATTER_CHANNELS][SCATTER_WIDTH] = {
    SCATTERS(LIST_SCATTER)};

/* --- rows --------------------------------------------------------------------------- */

typedef struct input_job {
    conv2d_geometry g;
    const float *dy, *weight;
    float *dx;
    conv2d_tap *taps; /* of the gather: outputs * kh * kw */
} input_job;

static bool scatters(const conv2d_geometry *g)
{
    return g->stride[0] == 1 && g->stride[1] == 1 && g->dilation[0] == 1 &&
           g->dilation[1] == 1 && (g->kernel[1] == 3 || g->kernel[1] == 5);
}

/* Channels c ... c + channels - 1 of row i of a group, from dy, weight and dx of the
 * group. */
static void scatter_row(const conv2d_geometry *g, const float *dy, const float *weight,
                        float *dx, int64_t i, int64_t c, int64_t channels)
{
    /* kernel rows k with 0 <= i + p - k < oh */
    const int64_t first = SONDE_MAX(i + g->padding[0] - g->oh + 1, (int64_t)0);
    const int64_t last = SONDE_MIN(i + g->padding[0] + 1, g->kernel[0]);
    const int64_t kw = g->kernel[1], area = g->kernel[0] * kw;
    const scatter_fn *const functions = scatters_of[kw / 4][channels - 1];
    int64_t max = SCATTER_WIDTH, stretches = 0;

    while (functions[max - 1] == NULL) {
        max--;
    }
    stretches = (g->ow + max - 1) / max;
    for (int64_t s = 0; s < stretches; s++) {
        const int64_t offset = g->ow * s / stretches,
                      width = g->ow * (s + 1) / stretches - offset;
        const int64_t column = offset - g->padding[1];
        scatter_job job = {.dy = dy,
                           .weight = weight + c * area + first * kw,
                           .dx = dx + (c * g->h + i) * g->w * LANES,
                           .outputs = g->o,
                           .rows = SONDE_MAX(last - first, (int64_t)0),
                           .dy_plane = g->oh * g->ow * LANES,
                           .dy_row = g->ow * LANES,
                           .dx_plane = g->h * g->w * LANES,
                           .weight_output = g->taps,
                           .weight_input = area,
                           .first = -column,
                           .last = g->w - column,
                           .carry = s > 0};

        if (job.rows > 0) {
            job.dy += ((i + g->padding[0] - first) * g->ow + offset) * LANES;
        }
        job.dx += column * LANES;
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            functions[width - 1](&job);
            job.dy += VF_WIDTH;
            job.dx += VF_WIDTH;
        }
    }
}

/* Whether tap k, at dilation d, brings a pixel at i + p to an output, and which. */
static bool reaches(const conv2d_geometry *g, int d, int64_t i, int64_t k,
                    int64_t *output)
{
    const int64_t start = i + g->padding[d] - k * g->dilation[d];

    *output = start / g->stride[d];
    return start >= 0 && start % g->stride[d] == 0 && *output < (d == 0 ? g->oh : g->ow);
}

/* Whether pixels i and i + stride along dimension d are reached by the same taps. */
static bool same_taps(const conv2d_geometry *g, int d, int64_t i)
{
    int64_t ignored;

    for (int64_t k = 0; k < g->kernel[d]; k++) {
        if (reaches(g, d, i, k, &ignored) !=
            reaches(g, d, i + g->stride[d], k, &ignored)) {
            return false;
        }
    }
    return true;
}

/* How many pixels i, i + stride, ... before limit are reached by the same taps. */
static int64_t count_same(const conv2d_geometry *g, int d, int64_t i, int64_t limit)
{
    int64_t count = 1;

    for (; i + g->stride[d] < limit && same_taps(g, d, i); i += g->stride[d]) {
        count++;
    }
    return count;
}

/* Lists the taps that reach pixel (i, j), places counted from dy of the group. */
static int64_t list_reaching(const conv2d_geometry *g, int64_t i, int64_t j,
                             conv2d_tap *taps)
{
    int64_t count = 0, row, column;

    for (int64_t o = 0; o < g->o; o++) {
        for (int64_t k = 0; k < g->kernel[0]; k++) {
            for (int64_t l = 0; reaches(g, 0, i, k, &row) && l < g->kernel[1]; l++) {
                if (reaches(g, 1, j, l, &column)) {
                    taps[count++] =
                        (conv2d_tap){.x = ((o * g->oh + row) * g->ow + column) * LANES,
                                     .w = o * g->taps + k * g->kernel[1] + l};
                }
            }
        }
    }
    return count;
}

/* Pixels (i, j), (i, j + stride) ... of rows i, i + stride ..., all reached by the same
 * taps; dy, weight and dx are those of the group. */
static void gather_pixels(const input_job *job, const float *dy, const float *weight,
                          float *dx, int64_t i, int64_t rows, int64_t j, int64_t columns)
{
    const conv2d_geometry *const g = &job->g;
    const conv2d_run run = {
        .x = dy,
        .weight = weight,
        .taps = job->taps,
        .to = {dx + (i * g->w + j) * LANES, NULL, g->h * g->w * LANES},
        .weight_stride = g->kernel[0] * g->kernel[1],
        .tap_count = list_reaching(g, i, j, job->taps),
        .channels = g->c,
        .y_step = g->stride[1] * LANES,
        .y_skip = (g->stride[0] * g->w - columns * g->stride[1]) * LANES,
        .count = rows * columns,
        .columns = columns,
        .x_step = LANES,
        .x_skip = (g->ow - columns) * LANES};

    ISA(sonde__kernel_conv2d_run)(&run);
}

/* Rows first ... last - 1 of a group. */
static void gather_rows(const input_job *job, const float *dy, const float *weight,
                        float *dx, int64_t first, int64_t last)
{
    const conv2d_geometry *const g = &job->g;

    for (int64_t r = first; r < SONDE_MIN(first + g->stride[0], last); r++) {
        for (int64_t i = r, rows; i < last; i += rows * g->stride[0]) {
            rows = count_same(g, 0, i, last);
            for (int64_t c = 0; c < SONDE_MIN(g->stride[1], g->w); c++) {
                for (int64_t j = c, columns; j < g->w; j += columns * g->stride[1]) {
                    columns = count_same(g, 1, j, g->w);
                    gather_pixels(job, dy, weight, dx, i, rows, j, columns);
                }
            }
        }
    }
}

/* --- kernel ------------------------------------------------------------------------- */

/* dy and w in, dx out */
static conv2d_geometry input_geometry(const sonde__op_call *call)
{
    return conv2d_geometry_of(&call->out[0].shape, &call->in[1].shape, call->attrs);
}

static bool input_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(&call->in[1].shape, 4) &&
           lanes_is_f32(&call->out[0].shape, 4);
}

static size_t input_part_size(const conv2d_geometry *g)
{
    const size_t size = (size_t)(g->o * g->kernel[0] * g->kernel[1]) * sizeof(conv2d_tap);

    return scatters(g) ? 0 : lanes_aligned(size);
}

static size_t input_scratch(const sonde__op_call *call, int parts)
{
    const conv2d_geometry g = input_geometry(call);

    return input_part_size(&g) * (size_t)parts;
}

static int input_parts(const sonde__op_call *call, int max)
{
    const conv2d_geometry g = input_geometry(call);

    return lanes_parts(conv2d_operations(&g), g.blocks * g.h, max);
}

/* Rows first ... last - 1 of a block. */
static void input_rows(const input_job *job, int64_t block, int64_t first, int64_t last)
{
    const conv2d_geometry *const g = &job->g;

    for (int64_t group = 0; group < g->groups; group++) {
        const int64_t offset = block * g->groups + group;
        const float *const dy = job->dy + offset * g->o * g->oh * g->ow * LANES;
        const float *const weight = job->weight + group * g->o * g->taps;
        float *const dx = job->dx + offset * g->c * g->h * g->w * LANES;

        if (!scatters(g)) {
            gather_rows(job, dy, weight, dx, first, last);
            continue;
        }
        for (int64_t i = first; i < last; i++) {
            for (int64_t c = 0; c < g->c; c += SCATTER_CHANNELS) {
                scatter_row(g, dy, weight, dx, i, c,
                            SONDE_MIN(g->c - c, (int64_t)SCATTER_CHANNELS));
            }
        }
    }
}

/* A part is a range of rows of dx, counted through all blocks. */
static void input_run(const sonde__op_call *call, int part, int parts)
{
    input_job job = {.g = input_geometry(call),
                     .dy = lanes_in(call, 0),
                     .weight = lanes_in(call, 1),
                     .dx = lanes_out(call, 0)};
    const conv2d_geometry *const g = &job.g;
    int64_t first, last;

    job.taps =
        (conv2d_tap *)(void *)((char *)call->scratch + (size_t)part * input_part_size(g));
    lanes_split(g->blocks * g->h, part, parts, &first, &last);
    while (first < last) {
        const int64_t block = first / g->h, begin = first - block * g->h;
        const int64_t end = SONDE_MIN(g->h, last - block * g->h);

        input_rows(&job, block, begin, end);
        first = block * g->h + end;
    }
}

SONDE__ISA_KERNEL(conv2d_grad_input, "lanes", input_accepts, (SONDE__LANES, SONDE__PLAIN),
                  (SONDE__LANES), input_run, .scratch = input_scratch,
                  .parts = input_parts)
