/*
 * pixels_generic.c - the table, for every processor.
 */
#include "nn/data/pixels.h"

void sonde__affine_generic(const sonde__affine *affine, const uint8_t *in, size_t count,
                           float *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = affine->table[in[i]];
    }
}
