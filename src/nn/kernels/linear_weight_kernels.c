/*
 * linear_weight_kernels.c - gradients of a linear layer's weight and bias in LANES; an update by
 * SGD may consume that of the weight in registers.
 *
 * One panel of x and a chunk of rows of dw at a time, so that operands read repeatedly
 * stay in cache. Threads get rows of dw, the same ones as in a forward op that divides
 * rows, so that a part of w stays in its core's L2.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/linear_tile.h"
#include "nn/kernels/lanes.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK_FLOATS = 160 * 1024,  /* of dy in L2 at once: 640 KB */
    SAMPLE_CHUNK = 2048,        /* terms of a sum in one pass over a tile */
    PANELS_FLOATS = 128 * 1024, /* of x that stay in L2 whole: 512 KB */
};

/* --- weight: A (row, n) at a[n / 16 * a_stride + 16 * row + n % 16] ----------------- */

VEC_INLINE void weight_block(const int rows, const int vecs, const float *a,
                             const float *b, int64_t samples, vf acc[MAX_TILE_ROWS][2])
{
    for (int64_t n = 0; n < samples; n++) {
        vf x[2];

        tile_load_b(vecs, b, VF_WIDTH, x);
        VEC_EACH (r, rows) {
            tile_step(vecs, a[16 * r], x, acc[r]);
        }
        a += 1;
        b += 32;
        TILE_POINTER(a);
        TILE_POINTER(b);
    }
}

/* Prefetches the update's operands while the sum is computed. */
VEC_INLINE void weight_prefetch(const int rows, const int vecs, const tile *t,
                                ptrdiff_t offset)
{
    VEC_EACH (r, rows) {
        VEC_UNROLL
        for (int v = 0; v < vecs; v += 16 / VF_WIDTH) {
            __builtin_prefetch(t->update->w + offset + r * t->c_stride + v * VF_WIDTH, 1);
            __builtin_prefetch(t->update->v + offset + r * t->c_stride + v * VF_WIDTH, 1);
        }
    }
}

/* Whether C holds NaN or infinities. Columns beyond its last are sums of products with
 * 0: they are bad only where others are. */
VEC_INLINE bool weight_is_bad(const int rows, const int vecs, vf acc[MAX_TILE_ROWS][2])
{
    vf seen = {0};

    VEC_TILE (r, rows, v, vecs) {
        seen = vf_see_bad(seen, acc[r][v]);
    }
    return vf_any(seen);
}

/* Row r of C is consumed by SGD with momentum. Returns the new weights. */
VEC_INLINE void weight_update_row(const int vecs, const tile *t, const sgd_rule *rule,
                                  const sgd_arrays *arrays, ptrdiff_t i, const vf acc[2],
                                  vf w[2])
{
    VEC_EACH (v, vecs) {
        const ptrdiff_t k = i + v * VF_WIDTH;
        const int cols = t->cols - v * VF_WIDTH;
        vf speed = tile_load_some(arrays->v + k, cols);

        w[v] = sgd_apply(SGD_MOMENTUM, rule, tile_load_some(arrays->w + k, cols), acc[v],
                         &speed);
        tile_store_some(arrays->w_out + k, w[v], cols);
        tile_store_some(arrays->v_out + k, speed, cols);
    }
}

/* C is consumed by SGD with momentum while it is in registers. Columns beyond its last are 0. */
VEC_INLINE void weight_update(const int rows, const int vecs, const tile *t,
                              ptrdiff_t offset, vf acc[MAX_TILE_ROWS][2])
{
    const sgd_arrays arrays = *t->update;
    const sgd_rule rule = *t->rule;
    vf w[2];

    if (arrays.bad != NULL && weight_is_bad(rows, vecs, acc)) {
        *arrays.bad = 1;
    }
#if VF_WIDTH == 16
    if (t->norms != NULL) {
        sonde__nacc g_sums = t->norms->g, w_sums = t->norms->w;

        VEC_TILE (r, rows, v, vecs) {
            sonde__nacc_add(&g_sums, v, (__m512)acc[r][v]);
        }
        t->norms->g = g_sums;
        VEC_EACH (r, rows) {
            weight_update_row(vecs, t, &rule, &arrays, offset + r * t->c_stride, acc[r],
                              w);
            VEC_EACH (v, vecs) {
                sonde__nacc_add(&w_sums, v, (__m512)w[v]);
            }
        }
        t->norms->w = w_sums;
        return;
    }
#endif
    VEC_EACH (r, rows) {
        weight_update_row(vecs, t, &rule, &arrays, offset + r * t->c_stride, acc[r], w);
    }
}

VEC_INLINE void weight_tile(const int rows, const int vecs, const tile *t, const float *a,
                            const float *b, float *c, int64_t row)
{
    vf acc[MAX_TILE_ROWS][2];
    const float *ahead = t->ahead;
    int64_t left = t->depth;

    tile_init(rows, vecs, false, t, c, t->c_stride, VF_WIDTH, row, acc);
    if (t->update != NULL) {
        weight_prefetch(rows, vecs, t, c - t->c_origin);
    }
    for (; left >= 16; left -= 16) {
        VEC_EACH (r, rows) { /* the next block lies far off */
            __builtin_prefetch(a + t->a_stride + 16 * r);
        }
        if (ahead != NULL) {
            __builtin_prefetch(ahead, 0, 2);
            __builtin_prefetch(ahead + 16, 0, 2);
            __builtin_prefetch(ahead + t->ahead_stride, 0, 2);
            __builtin_prefetch(ahead + t->ahead_stride + 16, 0, 2);
            ahead += 2 * t->ahead_stride;
        }
        weight_block(rows, vecs, a, b, 16, acc);
        a += t->a_stride;
        b += 16 * 32;
    }
    weight_block(rows, vecs, a, b, left, acc);
    if (t->update != NULL) {
        weight_update(rows, vecs, t, c - t->c_origin, acc);
        return;
    }
    VEC_TILE (r, rows, v, vecs) {
        tile_store_some(c + r * t->c_stride + v * VF_WIDTH, acc[r][v],
                        t->cols - v * VF_WIDTH);
    }
}

DEFINE_TILES(weight)

/* --- products ------------------------------------------------------------------------ */

/* dw (rows, cols) = dy^T x */
typedef struct weight_product {
    const float *dy; /* LANES */
    layout_view x;
    int64_t samples, rows, cols;
    float
        *panels; /* scratch of this part, if x is not in PANELS: all of x or one panel */
    bool all;    /* which of them */
    const sgd_rule *rule; /* with momentum and nothing else; dw is then not stored but */
    const sgd_arrays *update; /* updates these; or NULL */
    tile_norms *norms;  /* ... and is added to these, one a group of rows; or NULL */
    row_groups groups;  /* of all rows, if so */
    int64_t group, end; /* of these, those that norms are of */
} weight_product;

static int64_t panel_floats(int64_t samples, int64_t cols)
{
    return samples * ((cols + 31) / 32 * 32);
}

static weight_product weight_product_of(const sonde__operand *dy, const sonde__operand *x,
                                        float *scratch)
{
    const int64_t samples = x->shape.dim[0], cols = x->shape.dim[1];
    const weight_product p = {
        .dy = dy->data,
        .x = {x->data, samples, cols, x->layout},
        .samples = samples,
        .rows = dy->shape.dim[1],
        .cols = cols,
        .panels = scratch,
        .all = panel_floats(samples, cols) <= PANELS_FLOATS,
    };

    return p;
}

/* Floats of scratch a part, if x is not in PANELS. */
static int64_t weight_scratch_floats(const sonde__op_shape *x)
{
    const int64_t all = panel_floats(x->dim[0], x->dim[1]);

    return all <= PANELS_FLOATS ? all
                                : panel_floats(SONDE_MIN(x->dim[0], SAMPLE_CHUNK), 32);
}

/* Samples n ... n + count - 1 of x, columns k ... k + 31, to a panel of count samples. */
static void fill_panel(const weight_product *p, int64_t n, int64_t count, int64_t k,
                       float *panel)
{
    const int64_t width = SONDE_MIN(p->cols - k, 32);
    int64_t stride;

    for (int64_t i = 0; i < count; i += 16) {
        const int samples = (int)SONDE_MIN(count - i, 16);

        for (int64_t j = 0; j < 32; j += 16) {
            const int columns = (int)SONDE_MAX(0, SONDE_MIN(width - j, 16));
            const float *const source =
                columns == 0 ? panel : layout_tile(&p->x, n + i, k + j, &stride);
            float *const target = panel + i * 32 + j;

            if (columns == 0) {
                copy_rows(source, 0, 0, 0, target, 32, samples, 16);
            } else if (p->x.layout == SONDE__LANES) {
                transpose_rows(source, stride, columns, samples, target, 32, samples, 16);
            } else {
                copy_rows(source, stride, samples, columns, target, 32, samples, 16);
            }
        }
    }
}

/* Before the first chunk of rows. */
static void prepare_panels(const weight_product *p)
{
    for (int64_t k = 0; p->x.layout != SONDE__PANELS && p->all && k < p->cols; k += 32) {
        fill_panel(p, 0, p->samples, k, p->panels + k * p->samples);
    }
}

/* The panel of columns k ..., samples n ... n + count - 1. */
static const float *panel_at(const weight_product *p, int64_t n, int64_t count, int64_t k)
{
    if (p->x.layout == SONDE__PANELS) {
        return p->x.data + k * p->samples + n * 32;
    }
    if (p->all) {
        return p->panels + k * p->samples + n * 32;
    }
    fill_panel(p, n, count, k, p->panels);
    return p->panels;
}

static tile_norms *tile_norms_at(tile_norms *norms, int64_t group)
{
#if VF_WIDTH == 16
    return norms == NULL ? NULL : norms + group;
#else
    (void)group;
    return norms;
#endif
}

/* One panel of the rows: c is where element (rows.begin, 0) of dw goes. The next panel's
 * part of a plain x is fetched meanwhile: its rows are too far apart for the processor to
 * guess. */
static void weight_panel(const weight_product *p, tile *t, const stream_span rows,
                         int64_t n, int64_t k, const float *panel, float *c)
{
    const int64_t width = SONDE_MIN(p->cols - k, 32);
    const bool far = p->x.layout == SONDE__PLAIN && !p->all && k + 32 < p->cols;
    const float *const next = far ? p->x.data + n * p->cols + k + 32 : NULL;

    for (int64_t j = 0; j < width; j += TILE_COLS) {
        const bool narrow = VF_WIDTH == 16 && width <= 16;
        const row_groups groups =
            p->norms != NULL
                ? p->groups
                : row_groups_of(rows.end - rows.begin, narrow ? NARROW_ROWS : WIDE_ROWS);
        const int64_t begin = p->norms != NULL ? p->group : 0;
        const int64_t end = p->norms != NULL ? p->end : groups.count;

        t->cols = (int)(width - j);
        for (int64_t g = begin; g < end; g++) {
            const int64_t first =
                row_group_start(&groups, g) - row_group_start(&groups, begin);
            const int64_t count =
                row_group_start(&groups, g + 1) - row_group_start(&groups, g);
            const float *const a = p->dy + n * p->rows + (rows.begin + first) * 16;

            t->ahead = next == NULL
                           ? NULL
                           : next + t->depth * (g - begin) / (end - begin) * p->cols;
            t->norms = tile_norms_at(p->norms, g - begin);
            (narrow ? weight_tiles.narrow[count] : weight_tiles.wide[count])(
                t, a, panel + j, c + first * p->cols + k + j, 0);
        }
    }
}

/* Rows of dw, to c and after it. */
static void weight_rows(const weight_product *p, const stream_span rows, float *c)
{
    tile t = {.a_stride = p->rows * 16,
              .c_stride = p->cols,
              .ahead_stride = p->cols,
              .rule = p->rule,
              .update = p->update,
              .c_origin = p->update == NULL ? NULL : p->update->w_out};

    for (int64_t n = 0; n == 0 || n < p->samples; n += SAMPLE_CHUNK) {
        t.depth = SONDE_MIN(p->samples - n, SAMPLE_CHUNK);
        t.resume = n > 0;
        for (int64_t k = 0; k < p->cols; k += 32) {
            weight_panel(p, &t, rows, n, k, panel_at(p, n, t.depth, k), c);
        }
    }
}

/* The most rows whose dy stays in L2 through all panels. */
static int64_t chunk_rows(int64_t samples)
{
    return SONDE_MAX(4 * WIDE_ROWS,
                     CHUNK_FLOATS / SONDE_MAX(1, SONDE_MIN(samples, SAMPLE_CHUNK)));
}

static size_t grad_weight_scratch_part(const sonde__op_call *call)
{
    return lanes_aligned((size_t)weight_scratch_floats(&call->in[1].shape) *
                         sizeof(float));
}

static size_t grad_weight_scratch(const sonde__op_call *call, int parts)
{
    return grad_weight_scratch_part(call) * (size_t)parts;
}

/* Rows of dw in chunks of at most `most`; element (0, 0) goes to c. */
static void weight_chunks(const weight_product *p, const stream_span mine, int64_t most,
                          float *c)
{
    const row_groups chunks = row_groups_of(mine.end - mine.begin, most);

    if (mine.begin < mine.end) {
        prepare_panels(p);
    }
    for (int64_t i = 0; i < chunks.count; i++) {
        const stream_span rows = {mine.begin + row_group_start(&chunks, i),
                                  mine.begin + row_group_start(&chunks, i + 1)};

        weight_rows(p, rows, c + rows.begin * p->cols);
    }
}

static void grad_weight_run(const sonde__op_call *call, int part, int parts)
{
    const weight_product p =
        weight_product_of(&call->in[0], &call->in[1],
                          scratch_at(call, grad_weight_scratch_part(call), part));

    weight_chunks(&p, stream_share(p.rows, part, parts), chunk_rows(p.samples),
                  call->out[0].data);
}

static int grad_weight_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *dy = &call->in[0].shape, *x = &call->in[1].shape;

    return worth(2 * x->dim[0] * dy->dim[1] * x->dim[1], GRAIN_FLOPS, max);
}

/* --- gradient of the bias ----------------------------------------------------------- */

/* Sums over all lanes of 16 channels at c (count of them exist), the valid lanes only. */
static v16 sum_channels(const float *dy, int64_t samples, int64_t channels, int64_t c,
                        int count)
{
    v16 sum[16];

    for (int i = 0; i < 16; i++) {
        sum[i] = v16_zero();
    }
    for (int64_t n = 0; n < samples; n += 16) {
        const float *const block = dy + n * channels + c * 16;
        const int lanes = (int)SONDE_MIN(samples - n, 16);

        if (lanes == 16 && count == 16) {
            VEC_EACH (i, 16) {
                sum[i] = v16_add(sum[i], v16_load(block + 16 * i));
            }
        } else {
            for (int i = 0; i < count; i++) {
                sum[i] = v16_add(sum[i], v16_load_n(block + 16 * i, lanes));
            }
        }
    }
    return v16_sums(sum);
}

static void channel_sum_run(const sonde__op_call *call, int part, int parts)
{
    const float *const dy = call->in[0].data;
    float *const out = call->out[0].data;
    const int64_t samples = call->in[0].shape.dim[0], channels = call->in[0].shape.dim[1];
    const stream_span mine = stream_share((channels + 15) / 16, part, parts);

    for (int64_t group = mine.begin; group < mine.end; group++) {
        const int count = (int)SONDE_MIN(channels - group * 16, 16);

        v16_store_n(out + group * 16,
                    sum_channels(dy, samples, channels, group * 16, count), count);
    }
}

static int channel_sum_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *dy = &call->in[0].shape;

    return worth(dy->dim[0] * dy->dim[1] * (int64_t)sizeof(float), GRAIN_BYTES, max);
}

static bool accepts_matrix(const sonde__op_call *call)
{
    return stream_f32(call) && call->in[0].shape.rank == 2;
}

#include "nn/kernels/linear_sgd.h"

/* --- kernels ------------------------------------------------------------------------ */

#define GRAD_WEIGHT(suffix, text, layout)                                                \
    SONDE__ISA_KERNEL(linear_grad_weight##suffix, text, stream_f32,                      \
                      (SONDE__LANES, layout), (SONDE__PLAIN), grad_weight_run,           \
                      .scratch = layout == SONDE__PANELS ? NULL : grad_weight_scratch,   \
                      .parts = grad_weight_parts)                                        \
    SONDE__ISA_KERNEL(linear_grad_weight_sgd##suffix, text, stream_f32,                  \
                      (SONDE__PLAIN, SONDE__LANES, layout), (SONDE__PLAIN),              \
                      grad_weight_sgd_run, .scratch = update_scratch,                    \
                      .parts = update_parts, .vitals_out = 7U,                           \
                      .finish = grad_weight_sgd_finish, .again = grad_weight_sgd_again)
GRAD_WEIGHT(_panels, "lanes, x panels", SONDE__PANELS)
GRAD_WEIGHT(, "lanes", SONDE__LANES)
GRAD_WEIGHT(_plain, "lanes, x plain", SONDE__PLAIN)

SONDE__ISA_KERNEL(linear_channel_sum, "lanes", accepts_matrix, (SONDE__LANES),
                  (SONDE__PLAIN), channel_sum_run, .parts = channel_sum_parts)
