/*
 * softmax_kernels.c - softmax and log-softmax over LANES, their gradients, and the negative
 * log-likelihood.
 *
 *   softmax      y = exp(x - m) / s           dx = y (dy - sum dy y)
 *   log-softmax  y = x - m - log s            dx = dy - exp(y) sum dy
 *
 * with m = max x and s = sum exp(x - m) along the axis, summed in order in float32. Each lane is
 * a sample, so a line of any axis but the first is a column of vectors. A line of the first
 * axis, the batch, is one column of every sample block: whole blocks are added up lane by lane,
 * then the lanes in their order, then the valid lanes of the last block.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/lanes.h"

/* Line i begins at line_start(i); its vectors lie step floats apart. */
typedef struct lines {
    int64_t count, length, step;
    int64_t whole; /* along the batch: vectors whose lanes are all valid */
    int rest;      /* and valid lanes of the one after them */
} lines;

static lines lines_of(const sonde__op_shape *shape, int axis)
{
    lines l = {
        .count = lanes_blocks(shape->dim[0]), .length = shape->dim[axis], .step = LANES};

    for (int i = 1; i < shape->rank; i++) {
        l.count *= i == axis ? 1 : shape->dim[i];
        l.step *= i > axis ? shape->dim[i] : 1;
    }
    if (axis == 0) {
        l.count = l.step / LANES;
        l.length = lanes_blocks(shape->dim[0]);
        l.whole = shape->dim[0] / LANES;
        l.rest = (int)(shape->dim[0] % LANES);
    }
    return l;
}

static int64_t line_start(const lines *l, int64_t line)
{
    const int64_t inner = l->step / LANES;

    return (line / inner * l->length * inner + line % inner) * LANES;
}

/* --- maxima and sums ---------------------------------------------------------------- */

typedef enum line_op { SOFTMAX, LOG_SOFTMAX, SOFTMAX_GRAD, LOG_SOFTMAX_GRAD } line_op;

VEC_INLINE vf max_of_vectors(const float *x, int64_t count, int64_t step)
{
    vf max = vf_set1(-__builtin_inff());

    for (int64_t i = 0; i < count; i++) {
        max = vf_max(max, vf_load(x + i * step));
    }
    return max;
}

/* NaN wins, as in a comparison chain that NaN breaks. */
static float max_of_batch(const float *x, const lines *l)
{
    float lanes[LANES], max = -__builtin_inff();

    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        vf_store(lanes + lane, max_of_vectors(x + lane, l->whole, l->step));
    }
    for (int lane = 0; lane < LANES + l->rest; lane++) {
        const float value =
            lane < LANES ? lanes[lane] : x[l->whole * l->step + lane - LANES];

        max = value > max || value != value ? value : max;
    }
    return max;
}

/* sum and what a vector gives; the exponentials of softmax are kept in y. */
VEC_INLINE vf add_term(const line_op op, const bool batch, const float *a, const float *b,
                       vf max, float *y, vf sum)
{
    const vf value = vf_load(a);

    if (op == SOFTMAX_GRAD) {
        return batch ? sum + vf_rounded(value * vf_load(b))
                     : vf_fma(value, vf_load(b), sum);
    }
    if (op == LOG_SOFTMAX_GRAD) {
        return sum + value;
    }
    const vf e = vf_exp(value - max);

    if (op == SOFTMAX) {
        vf_store(y, e);
    }
    return sum + e;
}

VEC_INLINE vf sum_of_vectors(const line_op op, const bool batch, const float *a,
                             const float *b, int64_t count, int64_t step, vf max,
                             float *y)
{
    vf sum = {0};

    for (int64_t i = 0; i < count; i++) {
        sum = add_term(op, batch, a + i * step, b + i * step, max, y + i * step, sum);
    }
    return sum;
}

VEC_INLINE float sum_of_batch(const line_op op, const float *a, const float *b,
                              const lines *l, vf max, float *y)
{
    const int64_t last = l->whole * l->step;
    float lanes[2 * LANES], sum = 0.0F;

    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        vf_store(lanes + lane, sum_of_vectors(op, true, a + lane, b + lane, l->whole,
                                              l->step, max, y + lane));
        if (l->rest > 0) {
            vf_store(lanes + LANES + lane,
                     add_term(op, true, a + last + lane, b + last + lane, max,
                              y + last + lane, (vf){0}));
        }
    }
    for (int lane = 0; lane < LANES + l->rest; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

/* --- lines -------------------------------------------------------------------------- */

/* One vector of the result. */
VEC_INLINE vf result_of(const line_op op, const bool batch, const float *a,
                        const float *b, vf max, vf sum, const float *y)
{
    switch (op) {
    case SOFTMAX:
        return vf_load(y) / sum;
    case LOG_SOFTMAX:
        return vf_load(a) - max - sum;
    case SOFTMAX_GRAD:
        return vf_load(b) * (vf_load(a) - sum);
    case LOG_SOFTMAX_GRAD:
        break;
    }
    const vf share = vf_exp(vf_load(b)) * sum;

    return vf_load(a) - (batch ? vf_rounded(share) : share);
}

/* The results of `lanes` lanes of every vector. */
VEC_INLINE void put_results(const line_op op, const bool batch, const float *a,
                            const float *b, const lines *l, const int lanes, vf max,
                            vf sum, float *y)
{
    const int64_t count = l->length, step = l->step;

    sum = op == LOG_SOFTMAX ? vf_log(sum) : sum;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t at = i * step; at < i * step + lanes; at += VF_WIDTH) {
            vf_store(y + at, result_of(op, batch, a + at, b + at, max, sum, y + at));
        }
    }
}

/* a: x or dy; b: y of a gradient. */
VEC_INLINE void run_line(const line_op op, const bool batch, const float *a,
                         const float *b, const lines *l, float *y)
{
    const bool finds_max = op == SOFTMAX || op == LOG_SOFTMAX;
    vf max = {0};

    if (batch) {
        max = finds_max ? vf_set1(max_of_batch(a, l)) : max;
        put_results(op, true, a, b, l, LANES, max,
                    vf_set1(sum_of_batch(op, a, b, l, max, y)), y);
        return;
    }
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        max = finds_max ? max_of_vectors(a + lane, l->length, l->step) : max;
        put_results(op, false, a + lane, b + lane, l, VF_WIDTH, max,
                    sum_of_vectors(op, false, a + lane, b + lane, l->length, l->step, max,
                                   y + lane),
                    y + lane);
    }
}

static bool line_accepts(const sonde__op_call *call)
{
    const int axis = call->attrs->along.axis;

    return lanes_is_f32(&call->in[0].shape, -1) && axis >= 1 &&
           axis < call->in[0].shape.rank && call->in[0].shape.dim[axis] >= 1;
}

static bool batch_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, -1) && call->attrs->along.axis == 0 &&
           call->in[0].shape.rank >= 2;
}

static int line_parts(const sonde__op_call *call, int max)
{
    const lines l = lines_of(&call->in[0].shape, call->attrs->along.axis);

    return lanes_parts(30.0 * LANES * (double)(l.count * l.length), l.count, max);
}

/* A part is a range of lines. */
VEC_INLINE void run_lines(const line_op op, const bool batch, const sonde__op_call *call,
                          int part, int parts)
{
    const lines l = lines_of(&call->in[0].shape, call->attrs->along.axis);
    const float *const a = lanes_in(call, 0);
    const float *const b = lanes_in(call, 1) == NULL ? a : lanes_in(call, 1);
    int64_t first, last;

    lanes_split(l.count, part, parts, &first, &last);
    for (int64_t line = first; line < last; line++) {
        const int64_t at = line_start(&l, line);

        run_line(op, batch, a + at, b + at, &l, lanes_out(call, 0) + at);
    }
}

#define LINE_KERNEL(op, kernel, label, takes, which, batch)                              \
    static void kernel##_run(const sonde__op_call *call, int part, int parts)            \
    {                                                                                    \
        run_lines(which, batch, call, part, parts);                                      \
    }                                                                                    \
    SONDE__ISA_KERNEL(kernel, label, takes, (SONDE__LANES, SONDE__LANES),                \
                      (SONDE__LANES), kernel##_run, .parts = line_parts)
#define LINE_KERNELS(op, which)                                                          \
    LINE_KERNEL(op, op, "lanes", line_accepts, which, false)                             \
    LINE_KERNEL(op, op##_batch, "lanes, batch", batch_accepts, which, true)

LINE_KERNELS(softmax, SOFTMAX)
LINE_KERNELS(log_softmax, LOG_SOFTMAX)
LINE_KERNELS(softmax_grad, SOFTMAX_GRAD)
LINE_KERNELS(log_softmax_grad, LOG_SOFTMAX_GRAD)

/* --- negative log-likelihood -------------------------------------------------------- */

/*
 *   loss = - sum over n of logp[n, target[n]]       (divided by N for the mean)
 *   dlogp[n, c] = c == target[n] ? - dloss : 0      (likewise)
 *
 * Summed over samples in order, in double, as the reference does it. A target outside
 * 0 ... C - 1 reads nothing: the loss is NaN, and so is its sample's gradient. Lanes that
 * hold no sample get no gradient. There is one part.
 */

/* logp (N, C) LANES, target i64 PLAIN */
static bool nll_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, 2);
}

static void nll_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t samples = call->in[0].shape.dim[0], classes = call->in[0].shape.dim[1];
    const int64_t *const target = call->in[1].data;
    const float *const logp = call->in[0].data;
    double loss = 0.0;

    (void)part, (void)parts;
    for (int64_t n = 0; n < samples; n++) {
        const bool in_range = target[n] >= 0 && target[n] < classes;
        const int64_t block = n / LANES, lane = n % LANES;

        loss -= in_range ? (double)logp[(block * classes + target[n]) * LANES + lane]
                         : __builtin_nan("");
    }
    *(float *)call->out[0].data =
        (float)(call->attrs->loss.mean ? loss / (double)samples : loss);
}

/* dloss f32 PLAIN, target i64 PLAIN, dlogp (N, C) LANES */
static bool nll_grad_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->out[0].shape, 2);
}

static void nll_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *const shape = &call->out[0].shape;
    const int64_t samples = shape->dim[0], classes = shape->dim[1];
    const int64_t *const target = call->in[1].data;
    const double dloss = (double)*(const float *)call->in[0].data;
    const float step =
        (float)(call->attrs->loss.mean ? -dloss / (double)samples : -dloss);
    float *const dlogp = call->out[0].data;

    (void)part, (void)parts;
    memset(dlogp, 0, (size_t)(lanes_blocks(samples) * classes) * LANES * sizeof(float));
    for (int64_t n = 0; n < samples; n++) {
        float *const result = dlogp + n / LANES * classes * LANES + n % LANES;

        if (target[n] >= 0 && target[n] < classes) {
            result[target[n] * LANES] = step;
            continue;
        }
        for (int64_t c = 0; c < classes; c++) {
            result[c * LANES] = __builtin_nanf("");
        }
    }
}

SONDE__ISA_KERNEL(nll, "lanes", nll_accepts, (SONDE__LANES), (SONDE__PLAIN), nll_run,
                  .parts = NULL)
SONDE__ISA_KERNEL(nll_grad, "lanes", nll_grad_accepts, (SONDE__PLAIN), (SONDE__LANES),
                  nll_grad_run, .parts = NULL)
