/*
 * rows_kernels.c - see rows.h. One source for every instruction set.
 *
 * erf is the rational approximation x P(x^2) / Q(x^2) of Eigen's perf on -4 ... 4, off by
 * some units in the last place; tanh and the logistic function go through exp.
 */
#include "base/isa.h"
#include "nn/kernels/rows.h"
#include "nn/kernels/vec.h"

/* Numbers at x + i, at most VF_WIDTH of the count. */
VEC_INLINE int rest_of(int64_t i, int64_t count)
{
    return count - i < VF_WIDTH ? (int)(count - i) : VF_WIDTH;
}

VEC_INLINE vf load(const float *x, int64_t i, int64_t count)
{
    return count - i >= VF_WIDTH ? vf_load(x + i) : vf_load_n(x + i, (int)(count - i));
}

VEC_INLINE void store(float *x, int64_t i, int64_t count, vf value)
{
    if (count - i >= VF_WIDTH) {
        vf_store(x + i, value);
    } else {
        vf_store_n(x + i, value, (int)(count - i));
    }
}

VEC_INLINE float sum_of(vf a)
{
    float part[VF_WIDTH], sum = 0.0F;

    vf_store(part, a);
    for (int i = 0; i < VF_WIDTH; i++) {
        sum += part[i];
    }
    return sum;
}

/* a with zeros in the lanes from `lanes` on. */
VEC_INLINE vf kept(vf a, int lanes)
{
    float part[VF_WIDTH] = {0};

    if (lanes == VF_WIDTH) {
        return a;
    }
    vf_store(part, a);
    for (int i = lanes; i < VF_WIDTH; i++) {
        part[i] = 0.0F;
    }
    return vf_load(part);
}

static void scale_row(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        store(x, i, count, load(x, i, count) * vf_set1(factor));
    }
}

/* --- softmax -------------------------------------------------------------------------- */

/* NaN if an element is. */
static float max_of(const float *x, int64_t count)
{
    vf max = vf_set1(-__builtin_inff());
    float part[VF_WIDTH], most = -__builtin_inff();
    int64_t i = 0;

    for (; i + VF_WIDTH <= count; i += VF_WIDTH) {
        max = vf_max(max, vf_load(x + i));
    }
    for (; i < count; i++) {
        most = x[i] > most || x[i] != x[i] ? x[i] : most;
        if (most != most) {
            return most;
        }
    }
    vf_store(part, max);
    for (int lane = 0; lane < VF_WIDTH; lane++) {
        if (part[lane] != part[lane]) {
            return part[lane];
        }
        most = part[lane] > most ? part[lane] : most;
    }
    return most;
}

static void softmax_row(const float *x, float *y, int64_t count, bool empty)
{
    const float max = max_of(x, count);
    vf sum = {0};

    if (empty && max == -__builtin_inff()) {
        for (int64_t i = 0; i < count; i++) {
            y[i] = 0.0F;
        }
        return;
    }
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf e = vf_exp(load(x, i, count) - vf_set1(max));

        sum += kept(e, rest_of(i, count));
        store(y, i, count, e);
    }
    sum = vf_set1(sum_of(sum));
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        store(y, i, count, load(y, i, count) / sum);
    }
}

static void softmax_grad_row(const float *dy, const float *y, float *dx, int64_t count)
{
    vf dot = {0};

    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        dot = vf_fma(load(dy, i, count), load(y, i, count), dot);
    }
    dot = vf_set1(sum_of(dot));
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        store(dx, i, count, load(y, i, count) * (load(dy, i, count) - dot));
    }
}

static void log_softmax_row(const float *x, float *y, int64_t count)
{
    const vf max = vf_set1(max_of(x, count));
    vf sum = {0};

    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        sum += kept(vf_exp(load(x, i, count) - max), rest_of(i, count));
    }
    sum = vf_log(vf_set1(sum_of(sum)));
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        store(y, i, count, load(x, i, count) - max - sum);
    }
}

static void log_softmax_grad_row(const float *dy, const float *y, float *dx,
                                 int64_t count)
{
    vf sum = {0};

    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        sum += load(dy, i, count);
    }
    sum = vf_set1(sum_of(sum));
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf share = vf_exp(load(y, i, count)) * sum;

        store(dx, i, count, load(dy, i, count) - share);
    }
}

/* --- layer norm ----------------------------------------------------------------------- */

static void layer_norm_row(const float *x, const float *weight, const float *bias,
                           float eps, float *y, float *mean, float *rstd, int64_t count)
{
    vf sum = {0}, squares = {0};
    float center = 0.0F, spread = 0.0F;

    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        sum += load(x, i, count);
    }
    center = sum_of(sum) / (float)count;
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf d = kept(load(x, i, count) - vf_set1(center), rest_of(i, count));

        squares = vf_fma(d, d, squares);
    }
    spread = 1.0F / __builtin_sqrtf(sum_of(squares) / (float)count + eps);
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        vf z = (load(x, i, count) - vf_set1(center)) * vf_set1(spread);

        z = weight != NULL ? z * load(weight, i, count) : z;
        store(y, i, count, bias != NULL ? z + load(bias, i, count) : z);
    }
    if (mean != NULL) {
        *mean = center;
    }
    if (rstd != NULL) {
        *rstd = spread;
    }
}

static void layer_norm_grad_row(const float *dy, const float *x, const float *weight,
                                float mean, float rstd, float *dx, int64_t count)
{
    vf sum_h = {0}, sum_hz = {0};

    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf z = (load(x, i, count) - vf_set1(mean)) * vf_set1(rstd);
        const vf dyi = load(dy, i, count);
        const vf h = weight != NULL ? dyi * load(weight, i, count) : dyi;

        sum_h += h;
        sum_hz += kept(h * z, rest_of(i, count));
    }
    sum_h = vf_set1(sum_of(sum_h) / (float)count);
    sum_hz = vf_set1(sum_of(sum_hz) / (float)count);
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf z = (load(x, i, count) - vf_set1(mean)) * vf_set1(rstd);
        const vf dyi = load(dy, i, count);
        const vf h = weight != NULL ? dyi * load(weight, i, count) : dyi;

        store(dx, i, count, vf_set1(rstd) * (h - sum_h - z * sum_hz));
    }
}

static void layer_norm_sums_row(const float *dy, const float *x, float mean, float rstd,
                                float *dweight, float *dbias, int64_t count)
{
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf z = (load(x, i, count) - vf_set1(mean)) * vf_set1(rstd);
        const vf dyi = load(dy, i, count);

        store(dweight, i, count, vf_fma(dyi, z, load(dweight, i, count)));
        store(dbias, i, count, load(dbias, i, count) + dyi);
    }
}

/* --- activations ---------------------------------------------------------------------- */

VEC_INLINE vf vf_logistic(vf x)
{
    return vf_set1(1.0F) / (vf_set1(1.0F) + vf_exp(-x));
}

/* 2 / (1 + exp(-2 x)) - 1; near 0, where that loses digits, x - x^3 / 3 + 2 x^5 / 15 */
VEC_INLINE vf vf_tanh(vf x)
{
    const vf wide = vf_set1(2.0F) * vf_logistic(x + x) - vf_set1(1.0F), square = x * x;
    const vf p = vf_fma(square, vf_set1(0.13333334F), vf_set1(-0.33333334F));
    const vf near = vf_fma(x * square, p, x);
    const vi small = (vi)(square < vf_set1(0.0025F));

    return vf_select(small, near, wide);
}

VEC_INLINE vf vf_erf(vf x)
{
    const vf most = vf_set1(4.0F), least = vf_set1(-4.0F);
    const vf bounded =
        vf_select((vi)(x > most), most, vf_select((vi)(x < least), least, x));
    const vf s = bounded * bounded;
    vf p = vf_set1(-2.72614225801306e-10F), q = vf_set1(-1.45660718464996e-05F);

    p = vf_fma(p, s, vf_set1(2.77068142495902e-08F));
    p = vf_fma(p, s, vf_set1(-2.10102402082508e-06F));
    p = vf_fma(p, s, vf_set1(-5.69250639462346e-05F));
    p = vf_fma(p, s, vf_set1(-7.34990630326855e-04F));
    p = vf_fma(p, s, vf_set1(-2.95459980854025e-03F));
    p = vf_fma(p, s, vf_set1(-1.60960333262415e-02F));
    q = vf_fma(q, s, vf_set1(-2.13374055278905e-04F));
    q = vf_fma(q, s, vf_set1(-1.68282697438203e-03F));
    q = vf_fma(q, s, vf_set1(-7.37332916720468e-03F));
    q = vf_fma(q, s, vf_set1(-1.42647390514189e-02F));
    return bounded * p / q;
}

/* tanh's argument in GELU's approximation */
VEC_INLINE vf gelu_inner(vf x)
{
    return vf_set1(0.7978845608F) * vf_fma(x * x * x, vf_set1(0.044715F), x);
}

/* -Inf times what is 0 there is -0 in PyTorch. */
static void gelu_row(const float *x, float *y, bool by_tanh, int64_t count)
{
    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf v = load(x, i, count);
        const vf share =
            by_tanh ? vf_tanh(gelu_inner(v)) : vf_erf(v * vf_set1(0.70710678F));

        store(y, i, count, vf_set1(0.5F) * v * (vf_set1(1.0F) + share));
    }
}

static void gelu_grad_row(const float *dy, const float *x, float *dx, bool by_tanh,
                          int64_t count)
{
    const vf one = vf_set1(1.0F), half = vf_set1(0.5F);

    for (int64_t i = 0; i < count; i += VF_WIDTH) {
        const vf v = load(x, i, count);
        vf slope;

        if (by_tanh) {
            const vf t = vf_tanh(gelu_inner(v));
            const vf inner =
                vf_set1(0.7978845608F) * vf_fma(v * v, vf_set1(3.0F * 0.044715F), one);

            slope = half * (one + t) + half * v * (one - t * t) * inner;
        } else {
            const vf density = vf_exp(-half * v * v) * vf_set1(0.3989422804F);

            slope = vf_fma(v, density, half * (one + vf_erf(v * vf_set1(0.70710678F))));
        }
        store(dx, i, count, load(dy, i, count) * slope);
    }
}

#define POINTWISE_ROW(name, function)                                                    \
    static void name##_row(const float *x, float *y, int64_t count)                      \
    {                                                                                    \
        for (int64_t i = 0; i < count; i += VF_WIDTH) {                                  \
            store(y, i, count, function(load(x, i, count)));                             \
        }                                                                                \
    }

POINTWISE_ROW(exp, vf_exp)
POINTWISE_ROW(log, vf_log)
POINTWISE_ROW(sigmoid, vf_logistic)
POINTWISE_ROW(tanh, vf_tanh)

static void lstm_row(float *gates, const float *last, float *cell, float *h,
                     int64_t units)
{
    for (int64_t j = 0; j < units; j += VF_WIDTH) {
        const vf i = vf_logistic(load(gates, j, units));
        const vf f = vf_logistic(load(gates + units, j, units));
        const vf g = vf_tanh(load(gates + 2 * units, j, units));
        const vf o = vf_logistic(load(gates + 3 * units, j, units));
        const vf before = last != NULL ? load(last, j, units) : (vf){0};
        const vf c = vf_fma(f, before, i * g);

        store(gates, j, units, i);
        store(gates + units, j, units, f);
        store(gates + 2 * units, j, units, g);
        store(gates + 3 * units, j, units, o);
        store(cell, j, units, c);
        store(h, j, units, o * vf_tanh(c));
    }
}

static void store_gate(const sonde__kernel_lstm_step *s, int gate, int64_t j,
                       int64_t units, vf value)
{
    store(s->da + gate * units, j, units, value);
    store(s->dr + gate * units, j, units, value);
}

static void lstm_grad_row(const sonde__kernel_lstm_step *s, int64_t units)
{
    const vf one = vf_set1(1.0F);

    for (int64_t j = 0; j < units; j += VF_WIDTH) {
        const vf i = load(s->y, j, units), f = load(s->y + units, j, units);
        const vf g = load(s->y + 2 * units, j, units),
                 o = load(s->y + 3 * units, j, units);
        const vf t = vf_tanh(load(s->cell, j, units));
        const vf before = s->last != NULL ? load(s->last, j, units) : (vf){0};
        const vf dh = load(s->dy, j, units) + load(s->dh, j, units);
        const vf dc = load(s->dc, j, units) + dh * o * (one - t * t);

        store_gate(s, 0, j, units, dc * g * i * (one - i));
        store_gate(s, 1, j, units, dc * before * f * (one - f));
        store_gate(s, 2, j, units, dc * i * (one - g * g));
        store_gate(s, 3, j, units, dh * t * o * (one - o));
        store(s->dc, j, units, dc * f);
    }
}

const sonde__kernel_row_functions ISA(sonde__kernel_rows) = {
    .scale = scale_row,
    .softmax = softmax_row,
    .softmax_grad = softmax_grad_row,
    .log_softmax = log_softmax_row,
    .log_softmax_grad = log_softmax_grad_row,
    .layer_norm = layer_norm_row,
    .layer_norm_grad = layer_norm_grad_row,
    .layer_norm_sums = layer_norm_sums_row,
    .gelu = gelu_row,
    .gelu_grad = gelu_grad_row,
    .exp = exp_row,
    .log = log_row,
    .sigmoid = sigmoid_row,
    .tanh = tanh_row,
    .lstm = lstm_row,
    .lstm_grad = lstm_grad_row,
};
