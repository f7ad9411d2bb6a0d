/*
 * pixels_kernels.c - see pixels.h. With fused multiply-add the results are computed;
 * without it they are looked up.
 */
#include "base/isa.h"
#include "nn/data/pixels.h"

static void look_up(const sonde__data_affine *affine, const uint8_t *in, size_t count,
                    float *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = affine->table[in[i]];
    }
}

#ifdef __FMA__

static inline void compute(const sonde__data_affine *affine, const uint8_t *restrict in,
                           size_t count, float *restrict out)
{
    const float mean = affine->mean, std = affine->std, inverse = affine->inverse_std;

    for (size_t i = 0; i < count; i++) {
        const float x = (float)in[i];
        const float q = x * (1.0f / 255.0f);
        const float unit =
            __builtin_fmaf(__builtin_fmaf(-q, 255.0f, x), 1.0f / 255.0f, q);
        const float d = unit - mean;
        const float r = d * inverse;

        out[i] = __builtin_fmaf(__builtin_fmaf(-r, std, d), inverse, r);
    }
}

void ISA(sonde__data_affine)(const sonde__data_affine *affine, const uint8_t *in,
                             size_t count, float *out)
{
    if (affine->exact) {
        compute(affine, in, count, out);
    } else {
        look_up(affine, in, count, out);
    }
}

#else

void ISA(sonde__data_affine)(const sonde__data_affine *affine, const uint8_t *in,
                             size_t count, float *out)
{
    look_up(affine, in, count, out);
}

#endif
