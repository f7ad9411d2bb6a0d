/*
 * softmax_kernels.c - softmax and log-softmax over LANES along any axis but the first,
 * and their gradients.
 *
 *   softmax      y = exp(x - m) / s           dx = y (dy - sum dy y)
 *   log-softmax  y = x - m - log s            dx = dy - exp(y) sum dy
 *
 * with m = max x and s = sum exp(x - m) along the axis, summed in order in float32. Each
 * lane is a sample, so a line of the axis is a column of vectors.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/vmath.h"

/* Line i begins at start(i), its elements lie step floats apart. */
typedef struct lines {
    int64_t count, length, step;
} lines;

static lines lines_of(const sonde__op_shape *shape, int axis)
{
    lines l = {
        .count = lanes_blocks(shape->dim[0]), .length = shape->dim[axis], .step = LANES};

    for (int i = 1; i < shape->rank; i++) {
        l.count *= i == axis ? 1 : shape->dim[i];
        l.step *= i > axis ? shape->dim[i] : 1;
    }
    return l;
}

static int64_t start_of(const lines *l, int64_t line)
{
    const int64_t inner = l->step / LANES;

    return (line / inner * l->length * inner + line % inner) * LANES;
}

/* --- one line, one chunk of lanes --------------------------------------------------- */

/* m and s */
VEC_INLINE void max_and_sum(const float *x, const lines *l, vf *max, vf *sum)
{
    vf m = vf_load(x), s = {0};

    for (int64_t i = 1; i < l->length; i++) {
        m = vf_max(m, vf_load(x + i * l->step));
    }
    for (int64_t i = 0; i < l->length; i++) {
        s += vf_exp(vf_load(x + i * l->step) - m);
    }
    *max = m;
    *sum = s;
}

static void softmax_line(const float *x, const float *unused, const lines *l, float *y)
{
    vf max, sum = {0};

    (void)unused;
    max = vf_load(x);
    for (int64_t i = 1; i < l->length; i++) {
        max = vf_max(max, vf_load(x + i * l->step));
    }
    for (int64_t i = 0; i < l->length; i++) {
        const vf e = vf_exp(vf_load(x + i * l->step) - max);

        sum += e;
        vf_store(y + i * l->step, e);
    }
    for (int64_t i = 0; i < l->length; i++) {
        vf_store(y + i * l->step, vf_load(y + i * l->step) / sum);
    }
}

static void log_softmax_line(const float *x, const float *unused, const lines *l,
                             float *y)
{
    vf max, sum;

    (void)unused;
    max_and_sum(x, l, &max, &sum);
    sum = vf_log(sum);
    for (int64_t i = 0; i < l->length; i++) {
        vf_store(y + i * l->step, vf_load(x + i * l->step) - max - sum);
    }
}

static void softmax_grad_line(const float *dy, const float *y, const lines *l, float *dx)
{
    vf dot = {0};

    for (int64_t i = 0; i < l->length; i++) {
        dot = vf_fma(vf_load(dy + i * l->step), vf_load(y + i * l->step), dot);
    }
    for (int64_t i = 0; i < l->length; i++) {
        vf_store(dx + i * l->step,
                 vf_load(y + i * l->step) * (vf_load(dy + i * l->step) - dot));
    }
}

static void log_softmax_grad_line(const float *dy, const float *y, const lines *l,
                                  float *dx)
{
    vf sum = {0};

    for (int64_t i = 0; i < l->length; i++) {
        sum += vf_load(dy + i * l->step);
    }
    for (int64_t i = 0; i < l->length; i++) {
        const vf share = vf_exp(vf_load(y + i * l->step)) * sum;

        vf_store(dx + i * l->step, vf_load(dy + i * l->step) - share);
    }
}

/* --- kernels ------------------------------------------------------------------------ */

typedef void (*line_fn)(const float *a, const float *b, const lines *l, float *target);

static bool accepts(const sonde__op_call *call)
{
    const int axis = call->attrs->along.axis;

    return lanes_is_f32(&call->in[0].shape, -1) && axis >= 1 &&
           axis < call->in[0].shape.rank && call->in[0].shape.dim[axis] >= 1;
}

static int line_parts(const sonde__op_call *call, int max)
{
    const lines l = lines_of(&call->in[0].shape, call->attrs->along.axis);

    return lanes_parts(30.0 * LANES * (double)(l.count * l.length), l.count, max);
}

/* A part is a range of lines. */
static void run_lines(const sonde__op_call *call, line_fn run, int part, int parts)
{
    const lines l = lines_of(&call->in[0].shape, call->attrs->along.axis);
    const float *const b = lanes_in(call, 1);
    int64_t first, last;

    lanes_split(l.count, part, parts, &first, &last);
    for (int64_t line = first; line < last; line++) {
        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            const int64_t offset = start_of(&l, line) + lane;

            run(lanes_in(call, 0) + offset, b == NULL ? NULL : b + offset, &l,
                lanes_out(call, 0) + offset);
        }
    }
}

#define LINE_KERNEL(op)                                                                  \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        run_lines(call, op##_line, part, parts);                                         \
    }                                                                                    \
    const sonde__op_kernel ISA(sonde__kernel_##op) = {                                   \
        .name = "lanes",                                                                 \
        .accepts = accepts,                                                              \
        .in = {SONDE__LANES, SONDE__LANES},                                              \
        .out = {SONDE__LANES},                                                           \
        .parts = line_parts,                                                             \
        .run = op##_run};

LINE_KERNEL(softmax)
LINE_KERNEL(log_softmax)
LINE_KERNEL(softmax_grad)
LINE_KERNEL(log_softmax_grad)
