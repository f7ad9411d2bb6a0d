/*
 * pixels.c - choosing a kernel and proving it against the table. Compiled without fused
 * multiply-add, so the table is what three float32 operations give.
 */
#include "nn/data/pixels.h"
#include "base/cpu.h"
#include "base/macros.h"

#include <string.h>

sonde__data_affine_fn *sonde__data_affine_kernel(void)
{
#if defined(__x86_64__)
    switch (sonde__cpu_isa()) {
    case SONDE__AVX512:
        return sonde__data_affine_avx512;
    case SONDE__AVX2:
        return sonde__data_affine_avx2;
    case SONDE__GENERIC:
        break;
    }
#endif
    return sonde__data_affine_generic;
}

static bool same_bits(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x = 0, y = 0;

        memcpy(&x, &a[i], sizeof x);
        memcpy(&y, &b[i], sizeof y);
        if (x != y) {
            return false;
        }
    }
    return true;
}

void sonde__data_affine_init(sonde__data_affine *affine, float mean, float std)
{
    uint8_t bytes[256];
    float computed[256];

    affine->mean = mean;
    affine->std = std;
    affine->inverse_std = 1.0f / std;
    for (int i = 0; i < 256; i++) {
        const float unit = (float)i / 255.0f;
        const float centered = unit - mean;

        affine->table[i] = centered / std;
        bytes[i] = (uint8_t)i;
    }
    affine->exact = true;
    sonde__data_affine_kernel()(affine, bytes, sizeof bytes, computed);
    affine->exact = same_bits(computed, affine->table, SONDE_COUNT_OF(computed));
}
