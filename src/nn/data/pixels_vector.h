/*
 * pixels_vector.h - the body of the kernels that compute. Included once by each of the
 * per-ISA files, whose flags decide the width of its vectors; they all have fused
 * multiply-add.
 */
#include "nn/data/pixels.h"

static inline void affine_vector(const sonde__affine *affine, const uint8_t *restrict in,
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
