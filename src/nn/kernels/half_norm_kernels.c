/*
 * half_norm_kernels.c - batch normalisation and its gradient over PLAIN operands of bfloat16
 * or float16: chunks become float32 in cache, as batch_norm_kernels.c has it over LANES.
 * Parameters and statistics are float32.
 *
 * A part is a range of channels, so no sum is divided among threads. Sums run in float32
 * over chunks of at most 1024 numbers, VF_WIDTH chains each, and in double from chunk to
 * chunk.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/half_gemm.h"
#include "nn/kernels/half_ops.h"
#include "nn/kernels/vec.h"

#include <math.h>

enum { CHUNK = 1024 };

typedef struct layout {
    int64_t samples, channels, inner; /* inner: elements of a channel of a sample */
} layout;

static layout layout_of(const sonde__op_shape *x)
{
    layout n = {x->dim[0], x->dim[1], 1};

    for (int d = 2; d < x->rank; d++) {
        n.inner *= x->dim[d];
    }
    return n;
}

static float number_of(const sonde__op_call *call, int operand, int64_t c, float fallback)
{
    const float *const data = operand < call->in_count ? call->in[operand].data : NULL;

    return data != NULL ? data[c] : fallback;
}

static void put(const sonde__operand *out, int64_t c, double value)
{
    if (out->data != NULL) {
        ((float *)out->data)[c] = (float)value;
    }
}

/* --- sums --------------------------------------------------------------------------- */

typedef enum term {
    VALUE,    /* a - center */
    SQUARE,   /* (a - center)^2 */
    GRADIENT, /* b; and b (a - center) */
} term;

static double sum_of(vf a, vf b)
{
    float lanes[VF_WIDTH];
    double sum = 0.0;

    vf_store(lanes, a + b);
    for (int i = 0; i < VF_WIDTH; i++) {
        sum += (double)lanes[i];
    }
    return sum;
}

/* Adds a chunk to first and, for GRADIENT, second. */
VEC_INLINE void sum_chunk(const term what, const float *a, const float *b, int64_t count,
                          float center, double *first, double *second)
{
    const vf centers = vf_set1(center);
    vf s[2] = {{0}, {0}}, t[2] = {{0}, {0}};
    int64_t i = 0;

    for (; i + 2 * VF_WIDTH <= count; i += 2 * VF_WIDTH) {
        VEC_EACH (k, 2) {
            const vf d = vf_load(a + i + k * VF_WIDTH) - centers;

            if (what == VALUE) {
                s[k] += d;
            } else if (what == SQUARE) {
                s[k] = vf_fma(d, d, s[k]);
            } else {
                const vf g = vf_load(b + i + k * VF_WIDTH);

                s[k] += g;
                t[k] = vf_fma(g, d, t[k]);
            }
        }
    }
    for (; i < count; i++) {
        const double d = (double)(a[i] - center);

        *first += what == VALUE ? d : what == SQUARE ? d * d : (double)b[i];
        *second += what == GRADIENT ? (double)b[i] * d : 0.0;
    }
    *first += sum_of(s[0], s[1]);
    if (what == GRADIENT) {
        *second += sum_of(t[0], t[1]);
    }
}

/* Over a channel of all samples. */
VEC_INLINE void sum_channel(const term what, const sonde__operand *x,
                            const sonde__operand *dy, const layout *n, int64_t c,
                            float center, double *first, double *second)
{
    float a[CHUNK], b[CHUNK];

    for (int64_t s = 0; s < n->samples; s++) {
        const int64_t start = (s * n->channels + c) * n->inner;

        for (int64_t i = 0; i < n->inner; i += CHUNK) {
            const int64_t count = SONDE_MIN(n->inner - i, (int64_t)CHUNK);

            half_load(x, start + i, count, a);
            if (what == GRADIENT) {
                half_load(dy, start + i, count, b);
            }
            sum_chunk(what, a, b, count, center, first, second);
        }
    }
}

/* The mean is that of the differences to the first element, added to it. */
static void find_moments(const sonde__operand *x, const layout *n, int64_t c, float *mean,
                         float *var)
{
    const double count = (double)(n->samples * n->inner);
    double sum = 0.0, squares = 0.0, unused = 0.0;
    float first = 0.0F;

    half_load(x, c * n->inner, 1, &first);
    first = isfinite(first) ? first : 0.0F;
    sum_channel(VALUE, x, NULL, n, c, first, &sum, &unused);
    *mean = (float)((double)first + sum / count);
    sum_channel(SQUARE, x, NULL, n, c, *mean, &squares, &unused);
    *var = (float)(squares / count);
}

/* --- forward ------------------------------------------------------------------------ */

/* y = (x - mean) scale + bias of a chunk, in place. */
static void normalise(float *x, int64_t count, float mean, float scale, float bias)
{
    const vf center = vf_set1(mean), by = vf_set1(scale), add = vf_set1(bias);
    int64_t i = 0;

    for (; i + VF_WIDTH <= count; i += VF_WIDTH) {
        vf_store(x + i, vf_fma(vf_load(x + i) - center, by, add));
    }
    for (; i < count; i++) {
        x[i] = (x[i] - mean) * scale + bias;
    }
}

static void finish_channel(const sonde__op_call *call, const layout *n, int64_t c,
                           float mean, float scale, float bias)
{
    const sonde__operand *const relu = call->out_count > 3 ? &call->out[3] : NULL;
    float x[CHUNK];

    for (int64_t s = 0; s < n->samples; s++) {
        const int64_t start = (s * n->channels + c) * n->inner;

        for (int64_t i = 0; i < n->inner; i += CHUNK) {
            const int64_t count = SONDE_MIN(n->inner - i, (int64_t)CHUNK);

            half_load(&call->in[0], start + i, count, x);
            normalise(x, count, mean, scale, bias);
            half_store(x, count, &call->out[0], start + i);
            for (int64_t k = 0; relu != NULL && k < count; k++) {
                x[k] = x[k] < 0.0F ? 0.0F : x[k];
            }
            if (relu != NULL) {
                half_store(x, count, relu, start + i);
            }
        }
    }
}

void ISA(sonde__kernel_half_norm)(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_attrs *const attrs = call->attrs;
    const layout n = layout_of(&call->in[0].shape);
    const bool given = attrs->norm.track && !attrs->training;
    const int running = attrs->norm.affine ? 3 : 1;

    for (int64_t c = n.channels * part / parts; c < n.channels * (part + 1) / parts;
         c++) {
        const float weight = attrs->norm.affine ? number_of(call, 1, c, 1.0F) : 1.0F;
        const float bias = attrs->norm.affine ? number_of(call, 2, c, 0.0F) : 0.0F;
        float mean = 0.0F, var = 0.0F, rstd = 0.0F;

        if (given) {
            mean = number_of(call, running, c, 0.0F);
            var = number_of(call, running + 1, c, 1.0F);
        } else {
            find_moments(&call->in[0], &n, c, &mean, &var);
        }
        put(&call->out[1], c, (double)mean);
        put(&call->out[2], c, (double)var);
        rstd = (float)(1.0 / sqrt((double)var + (double)attrs->norm.eps));
        finish_channel(call, &n, c, mean, rstd * weight, bias);
    }
}

/* --- gradient ----------------------------------------------------------------------- */

/* dx = scale dy + slope (x - mean) + offset, into dy. */
static void spread(float *dy, const float *x, int64_t count, float mean, float scale,
                   float slope, float offset)
{
    const vf center = vf_set1(mean), a = vf_set1(scale), b = vf_set1(slope);
    const vf add = vf_set1(offset);
    int64_t i = 0;

    for (; i + VF_WIDTH <= count; i += VF_WIDTH) {
        const vf d = vf_load(x + i) - center;

        vf_store(dy + i, vf_fma(vf_load(dy + i), a, vf_fma(d, b, add)));
    }
    for (; i < count; i++) {
        dy[i] = dy[i] * scale + ((x[i] - mean) * slope + offset);
    }
}

static void grad_channel(const sonde__op_call *call, const layout *n, int64_t c)
{
    const sonde__operand *const dy = &call->in[0], *const x = &call->in[1];
    const double count = (double)(n->samples * n->inner);
    const float mean = number_of(call, 2, c, 0.0F);
    const double weight = (double)number_of(call, 4, c, 1.0F);
    const double rstd =
        1.0 / sqrt((double)number_of(call, 3, c, 1.0F) + (double)call->attrs->norm.eps);
    double sum = 0.0, with_z = 0.0;
    float g[CHUNK], a[CHUNK];

    sum_channel(GRADIENT, x, dy, n, c, mean, &sum, &with_z);
    with_z *= rstd;
    for (int64_t s = 0; s < n->samples && call->out[0].data != NULL; s++) {
        const int64_t start = (s * n->channels + c) * n->inner;

        for (int64_t i = 0; i < n->inner; i += CHUNK) {
            const int64_t taken = SONDE_MIN(n->inner - i, (int64_t)CHUNK);

            half_load(dy, start + i, taken, g);
            half_load(x, start + i, taken, a);
            spread(g, a, taken, mean, (float)(weight * rstd),
                   (float)(-weight * rstd * rstd * with_z / count),
                   (float)(-weight * rstd * sum / count));
            half_store(g, taken, &call->out[0], start + i);
        }
    }
    put(&call->out[1], c, with_z);
    put(&call->out[2], c, sum);
}

void ISA(sonde__kernel_half_norm_grad)(const sonde__op_call *call, int part, int parts)
{
    const layout n = layout_of(&call->in[1].shape);

    for (int64_t c = n.channels * part / parts; c < n.channels * (part + 1) / parts;
         c++) {
        grad_channel(call, &n, c);
    }
}
