/*
 * pixels_avx2.c - see pixels.h.
 */
#include "nn/data/pixels_vector.h"

void sonde__affine_avx2(const sonde__affine *affine, const uint8_t *in, size_t count,
                        float *out)
{
    if (affine->exact) {
        affine_vector(affine, in, count, out);
    } else {
        sonde__affine_generic(affine, in, count, out);
    }
}
