/*
 * pool_kernels.c - max pooling and its gradient over LANES, for any window.
 *
 * The gradient goes over the windows in order and adds to dx, or, where no two windows
 * overlap, stores. Where windows tile the image exactly, dx is not cleared first.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/lanes.h"

/* --- shapes ------------------------------------------------------------------------- */

typedef struct pool_geometry {
    int64_t planes; /* blocks * channels */
    int64_t h, w, oh, ow;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
} pool_geometry;

static pool_geometry pool_geometry_of(const sonde__op_shape *x, const sonde__op_shape *y,
                                      const sonde__op_attrs *attrs)
{
    pool_geometry g = {.planes = lanes_blocks(x->dim[0]) * x->dim[1],
                       .h = x->dim[2],
                       .w = x->dim[3],
                       .oh = y->dim[2],
                       .ow = y->dim[3]};

    for (int d = 0; d < 2; d++) {
        g.kernel[d] = attrs->window.kernel[d];
        g.stride[d] = attrs->window.stride[d];
        g.padding[d] = attrs->window.padding[d];
        g.dilation[d] = attrs->window.dilation[d];
    }
    return g;
}

/* Elements *first ... *last - 1 of window i along dimension d lie in the image, the one
 * at place 0 of the window at *start. */
static void window_range(const pool_geometry *g, int d, int64_t i, int64_t *start,
                         int64_t *first, int64_t *last)
{
    const int64_t extent = d == 0 ? g->h : g->w, step = g->dilation[d];

    *start = i * g->stride[d] - g->padding[d];
    *first = 0;
    *last = g->kernel[d];
    while (*first < *last && *start + *first * step < 0) {
        ++*first;
    }
    while (*last > *first && *start + (*last - 1) * step >= extent) {
        --*last;
    }
}

/* One window: where it begins in the plane, and which of its elements count. */
typedef struct pool_window {
    int64_t at; /* of element (0, 0), in floats from the plane; may lie outside */
    int64_t first[2], last[2];
} pool_window;

/* Of the pool, and of its gradient. */
static pool_geometry pool_geometry_at(const sonde__op_call *call)
{
    return pool_geometry_of(&call->in[0].shape, &call->out[0].shape, call->attrs);
}

static pool_geometry grad_geometry(const sonde__op_call *call)
{
    return pool_geometry_of(&call->out[0].shape, &call->in[0].shape, call->attrs);
}

static int pool_parts_of(const pool_geometry *g, int max)
{
    const double elements = (double)(g->planes * g->oh * g->ow) * LANES;

    return lanes_parts(4.0 * elements * (double)(g->kernel[0] * g->kernel[1]), g->planes,
                       max);
}

/* Calls `each` for every window of a plane; at: where its result lies, in elements. */
typedef void window_fn(const pool_geometry *g, const sonde__op_call *call,
                       const pool_window *window, int64_t plane, int64_t at);

VEC_INLINE void each_window(const pool_geometry *g, const sonde__op_call *call,
                            int64_t plane, window_fn *each)
{
    for (int64_t i = 0; i < g->oh; i++) {
        pool_window window;
        int64_t row, column;

        window_range(g, 0, i, &row, &window.first[0], &window.last[0]);
        for (int64_t j = 0; j < g->ow; j++) {
            window_range(g, 1, j, &column, &window.first[1], &window.last[1]);
            window.at = (row * g->w + column) * LANES;
            each(g, call, &window, plane, ((plane * g->oh + i) * g->ow + j) * LANES);
        }
    }
}

/* --- forward ------------------------------------------------------------------------ */

VEC_INLINE void max_of_window(const pool_geometry *g, const sonde__op_call *call,
                              const pool_window *window, int64_t plane, int64_t at)
{
    const float *const x = lanes_in(call, 0) + plane * g->h * g->w * LANES;
    float *const y = lanes_out(call, 0);
    uint8_t *const index = call->out_count > 1 ? (uint8_t *)call->out[1].data : NULL;

    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        vf max = vf_set1(-__builtin_inff());
        vi winner = {0};
        bool seen = false;

        for (int64_t k = window->first[0]; k < window->last[0]; k++) {
            for (int64_t l = window->first[1]; l < window->last[1]; l++) {
                const int64_t place = k * g->dilation[0] * g->w + l * g->dilation[1];
                const vf v = vf_load(x + (window->at + place * LANES + lane));
                const vi here = vi_set1((int32_t)(k * g->kernel[1] + l));
                const vm wins = vm_beats(v, max);

                max = seen ? vf_pick(wins, v, max) : v;
                winner = seen ? vi_pick(wins, here, winner) : here;
                seen = true;
            }
        }
        if (y != NULL) {
            vf_store(y + at + lane, max);
        }
        if (index != NULL) {
            vi_store_u8(index + at + lane, winner);
        }
    }
}

static bool pool_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, 4);
}

static int pool_parts(const sonde__op_call *call, int max)
{
    const pool_geometry g = pool_geometry_at(call);

    return pool_parts_of(&g, max);
}

/* A part is a range of planes. */
static void pool_run(const sonde__op_call *call, int part, int parts)
{
    const pool_geometry g = pool_geometry_at(call);
    int64_t first, last;

    lanes_split(g.planes, part, parts, &first, &last);
    for (int64_t plane = first; plane < last; plane++) {
        each_window(&g, call, plane, max_of_window);
    }
}

/* --- gradient ----------------------------------------------------------------------- */

VEC_INLINE void spread_window(const pool_geometry *g, const sonde__op_call *call,
                              const pool_window *window, int64_t plane, int64_t at,
                              const bool alone)
{
    const float *const dy = lanes_in(call, 0) + at;
    const uint8_t *const index = (const uint8_t *)call->in[1].data + at;
    float *const dx = lanes_out(call, 0) + plane * g->h * g->w * LANES;

    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        const vf d = vf_load(dy + lane);
        const vi winner = vi_load_u8(index + lane);

        for (int64_t k = window->first[0]; k < window->last[0]; k++) {
            for (int64_t l = window->first[1]; l < window->last[1]; l++) {
                const int64_t place = k * g->dilation[0] * g->w + l * g->dilation[1];
                float *const target = dx + (window->at + place * LANES + lane);
                const vi here = vi_set1((int32_t)(k * g->kernel[1] + l));
                const vf part = vf_keep(vm_equal(winner, here), d);

                vf_store(target, alone ? part : vf_load(target) + part);
            }
        }
    }
}

VEC_INLINE void store_window(const pool_geometry *g, const sonde__op_call *call,
                             const pool_window *window, int64_t plane, int64_t at)
{
    spread_window(g, call, window, plane, at, true);
}

VEC_INLINE void add_window(const pool_geometry *g, const sonde__op_call *call,
                           const pool_window *window, int64_t plane, int64_t at)
{
    spread_window(g, call, window, plane, at, false);
}

static bool grad_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, 4) && lanes_is_f32(&call->out[0].shape, 4);
}

static int grad_parts(const sonde__op_call *call, int max)
{
    const pool_geometry g = grad_geometry(call);

    return pool_parts_of(&g, max);
}

/* A part is a range of planes. */
static void grad_run(const sonde__op_call *call, int part, int parts)
{
    const pool_geometry g = grad_geometry(call);
    bool alone = true, tiled = true;
    int64_t first, last;

    for (int d = 0; d < 2; d++) {
        const int64_t extent = d == 0 ? g.h : g.w, windows = d == 0 ? g.oh : g.ow;

        alone = alone && g.stride[d] > (g.kernel[d] - 1) * g.dilation[d];
        tiled = tiled && g.stride[d] == g.kernel[d] && g.dilation[d] == 1 &&
                g.padding[d] == 0 && windows * g.stride[d] == extent;
    }
    lanes_split(g.planes, part, parts, &first, &last);
    for (int64_t plane = first; plane < last; plane++) {
        if (!tiled) {
            memset(lanes_out(call, 0) + plane * g.h * g.w * LANES, 0,
                   (size_t)(g.h * g.w) * LANES * sizeof(float));
        }
        if (alone) {
            each_window(&g, call, plane, store_window);
        } else {
            each_window(&g, call, plane, add_window);
        }
    }
}

SONDE__ISA_KERNEL(max_pool2d, "lanes", pool_accepts, (SONDE__LANES),
                  (SONDE__LANES, SONDE__LANES), pool_run, .parts = pool_parts)
SONDE__ISA_KERNEL(max_pool2d_grad, "lanes", grad_accepts, (SONDE__LANES, SONDE__LANES),
                  (SONDE__LANES), grad_run, .parts = grad_parts)
