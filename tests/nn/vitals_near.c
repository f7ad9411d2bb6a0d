/* vitals_near.c - the helpers that vitals_near.h declares. */
#include "nn/vitals_near.h"

bool vitals_near(const sonde_vitals *a, const sonde_vitals *b)
{
    const double l1 = 1e-13 * a->l1, sumsq = 1e-13 * a->sumsq;
    const double n = (double)a->count + (a->count == 0);

    return memcmp(a, b, offsetof(sonde_vitals, mean)) == 0 &&
           fabs(a->mean - b->mean) <= l1 / n && fabs(a->m2 - b->m2) <= 64 * sumsq &&
           fabs(a->l1 - b->l1) <= l1 && fabs(a->sumsq - b->sumsq) <= sumsq &&
           fabs(a->sum - b->sum) <= l1;
}

sonde_vitals vitals_in_lanes(sonde_dtype dtype, int64_t samples, int64_t inner,
                             const void *data)
{
    const size_t size = sonde_dtype_size(dtype);
    const int64_t count = samples * inner;
    unsigned char *lanes = malloc((size_t)count * size + 1), *to = lanes;
    const sonde_view view = sonde_view_of(dtype, 1, &count, lanes);
    sonde_vitals vitals;

    for (int64_t block = 0; lanes != NULL && block < samples; block += 16) {
        for (int64_t k = 0; k < inner; k++) {
            for (int64_t n = block; n < SONDE_MIN(block + 16, samples); n++) {
                memcpy(to, (const char *)data + (size_t)(n * inner + k) * size, size);
                to += size;
            }
        }
    }
    sonde_vitals_of(&view, &vitals);
    free(lanes);
    return vitals;
}

sonde_vitals vitals_and_zeros(sonde_vitals vitals, int64_t count)
{
    sonde_vitals zeros = {.count = (uint64_t)count - vitals.count};

    zeros.zero = zeros.count;
    sonde_vitals_merge(&vitals, &zeros);
    return vitals;
}
