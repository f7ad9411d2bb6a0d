/*
 * random.c - Philox4x32-10 and what is drawn from it.
 *
 * Salmon, Moraes, Dror and Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 * The counter is (index, stream), the key is the seed.
 */
#include "base/random.h"

#include <stdint.h>
#include <math.h>

void sonde__philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

float sonde__uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t block[4];

    sonde__philox(seed, stream, index >> 2, block);
    return (float)(block[index & 3] >> 8) * 0x1p-24f;
}

/* 64 random bits times bound, upper half (Lemire 2019). The bias is below bound / 2^64,
 * which no sample of ours can show. */
uint64_t sonde__below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound)
{
    uint32_t block[4];
    uint64_t bits = 0, high = 0, low = 0;

    sonde__philox(seed, stream, index, block);
    bits = (uint64_t)block[1] << 32 | block[0];
    low = (bits & 0xFFFFFFFFu) * (bound & 0xFFFFFFFFu) >> 32;
    high = (bits >> 32) * (bound & 0xFFFFFFFFu);
    low +=
        (high & 0xFFFFFFFFu) + (uint64_t)(uint32_t)((bits & 0xFFFFFFFFu) * (bound >> 32));
    return (bits >> 32) * (bound >> 32) + (high >> 32) +
           ((bits & 0xFFFFFFFFu) * (bound >> 32) >> 32) + (low >> 32);
}

float sonde__normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t block[4];
    double radius = 0.0, angle = 0.0;

    sonde__philox(seed, stream, index, block);
    radius = sqrt(-2.0 * log(((double)block[0] + 1.0) * 0x1p-32));
    angle = 6.283185307179586 * ((double)block[1] * 0x1p-32);
    return (float)(radius * cos(angle));
}

void sonde__permute(uint64_t seed, uint64_t stream, uint32_t count, uint32_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t j = (uint32_t)sonde__below(seed, stream, i, (uint64_t)i + 1);

        out[i] = out[j];
        out[j] = i;
    }
}
