/*
 * softmax_batch_kernels.c - softmax and log-softmax over LANES along the first axis, the
 * batch, and their gradients. Equations: softmax_kernels.c.
 *
 * A line of the axis is one column of every sample block: whole blocks are added up lane
 * by lane, then the lanes in their order, then the valid lanes of the last block.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/vmath.h"

/* One column: block b's vector lies at b * step. */
typedef struct column {
    int64_t blocks; /* whole ones */
    int64_t all;    /* and the last one, if it is not whole */
    int64_t step;
    int rest; /* valid lanes of the last block if it is not whole */
} column;

static column column_of(const sonde__op_shape *shape)
{
    column c = {.blocks = shape->dim[0] / LANES,
                .all = lanes_blocks(shape->dim[0]),
                .step = LANES,
                .rest = (int)(shape->dim[0] % LANES)};

    for (int i = 1; i < shape->rank; i++) {
        c.step *= shape->dim[i];
    }
    return c;
}

/* The vectors of a column, by what is to be summed of each. */
typedef enum column_term { TERM_SELF, TERM_EXP, TERM_PRODUCT } column_term;

VEC_INLINE vf term_of(const column_term term, const float *a, const float *b, vf max)
{
    const vf value = vf_load(a);

    return term == TERM_EXP       ? vf_exp(value - max)
           : term == TERM_PRODUCT ? vf_rounded(value * vf_load(b))
                                  : value;
}

VEC_INLINE float sum_column(const column_term term, const float *a, const float *b,
                            const column *c, float max)
{
    float lanes[LANES], tail[LANES], sum = 0.0F;

    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        vf s = {0};

        for (int64_t i = 0; i < c->blocks; i++) {
            s += term_of(term, a + i * c->step + lane, b + i * c->step + lane,
                         vf_set1(max));
        }
        vf_store(lanes + lane, s);
        if (c->rest > 0) {
            vf_store(tail + lane, term_of(term, a + c->blocks * c->step + lane,
                                          b + c->blocks * c->step + lane, vf_set1(max)));
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    for (int lane = 0; lane < c->rest; lane++) {
        sum += tail[lane];
    }
    return sum;
}

/* NaN wins, as in a comparison chain that NaN breaks. */
static float max_column(const float *x, const column *c)
{
    float lanes[LANES], max = -__builtin_inff();

    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        vf m = vf_set1(-__builtin_inff());

        for (int64_t i = 0; i < c->blocks; i++) {
            m = vf_max(m, vf_load(x + i * c->step + lane));
        }
        vf_store(lanes + lane, m);
    }
    for (int lane = 0; lane < LANES; lane++) {
        max = lanes[lane] > max || lanes[lane] != lanes[lane] ? lanes[lane] : max;
    }
    for (int lane = 0; lane < c->rest; lane++) {
        const float value = x[c->blocks * c->step + lane];

        max = value > max || value != value ? value : max;
    }
    return max;
}

static void softmax_column(const float *x, const float *unused, const column *c, float *y)
{
    const vf max = vf_set1(max_column(x, c));
    const vf sum = vf_set1(sum_column(TERM_EXP, x, x, c, max[0]));

    (void)unused;
    for (int64_t i = 0; i < c->all; i++) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            const int64_t offset = i * c->step + lane;

            vf_store(y + offset, vf_exp(vf_load(x + offset) - max) / sum);
        }
    }
}

static void log_softmax_column(const float *x, const float *unused, const column *c,
                               float *y)
{
    const vf max = vf_set1(max_column(x, c));
    const vf sum = vf_log(vf_set1(sum_column(TERM_EXP, x, x, c, max[0])));

    (void)unused;
    for (int64_t i = 0; i < c->all; i++) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            const int64_t offset = i * c->step + lane;

            vf_store(y + offset, vf_load(x + offset) - max - sum);
        }
    }
}

static void softmax_grad_column(const float *dy, const float *y, const column *c,
                                float *dx)
{
    const vf dot = vf_set1(sum_column(TERM_PRODUCT, dy, y, c, 0.0F));

    for (int64_t i = 0; i < c->all; i++) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            const int64_t offset = i * c->step + lane;

            vf_store(dx + offset, vf_load(y + offset) * (vf_load(dy + offset) - dot));
        }
    }
}

static void log_softmax_grad_column(const float *dy, const float *y, const column *c,
                                    float *dx)
{
    const vf sum = vf_set1(sum_column(TERM_SELF, dy, dy, c, 0.0F));

    for (int64_t i = 0; i < c->all; i++) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            const int64_t offset = i * c->step + lane;
            const vf share = vf_rounded(vf_exp(vf_load(y + offset)) * sum);

            vf_store(dx + offset, vf_load(dy + offset) - share);
        }
    }
}

/* --- kernels ------------------------------------------------------------------------ */

typedef void (*column_fn)(const float *a, const float *b, const column *c, float *target);

static bool batch_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, -1) && call->attrs->along.axis == 0 &&
           call->in[0].shape.rank >= 2 && call->in[0].shape.dim[0] >= 1;
}

static int batch_parts(const sonde__op_call *call, int max)
{
    const column c = column_of(&call->in[0].shape);

    return lanes_parts(30.0 * (double)(c.all * c.step), c.step / LANES, max);
}

/* A part is a range of columns. */
static void run_columns(const sonde__op_call *call, column_fn run, int part, int parts)
{
    const column c = column_of(&call->in[0].shape);
    const float *const b = lanes_in(call, 1);
    int64_t first, last;

    lanes_split(c.step / LANES, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        run(lanes_in(call, 0) + i * LANES, b == NULL ? NULL : b + i * LANES, &c,
            lanes_out(call, 0) + i * LANES);
    }
}

#define BATCH_KERNEL(op)                                                                 \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        run_columns(call, op##_column, part, parts);                                     \
    }                                                                                    \
    const sonde__op_kernel ISA(sonde__kernel_##op##_batch) = {                           \
        .name = "lanes, batch",                                                          \
        .accepts = batch_accepts,                                                        \
        .in = {SONDE__LANES, SONDE__LANES},                                              \
        .out = {SONDE__LANES},                                                           \
        .parts = batch_parts,                                                            \
        .run = op##_run};

BATCH_KERNEL(softmax)
BATCH_KERNEL(log_softmax)
BATCH_KERNEL(softmax_grad)
BATCH_KERNEL(log_softmax_grad)
