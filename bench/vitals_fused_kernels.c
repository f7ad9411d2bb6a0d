/*
 * vitals_fused_kernels.h - the loops of vitals_fused.h; the includer defines
 * ISA(fused). The update is written for 16 lanes and left to the compiler to
 * vectorize.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "vitals_fused.h"

#include "tensor/vitals_accum.h"

/* Sum with enough accumulators, in registers, that only loads limit it. */
static void read_all(const float *x, size_t n, float *sum)
{
#if defined(__AVX512F__)
    typedef float vector __attribute__((vector_size(64), aligned(4)));
#elif defined(__AVX2__)
    typedef float vector __attribute__((vector_size(32), aligned(4)));
#else
    typedef float vector __attribute__((vector_size(16), aligned(4)));
#endif
    enum { WIDTH = sizeof(vector) / sizeof(float) };
    const vector *p = (const vector *)x, *end = p + n / WIDTH;
    vector a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};

    for (; p + 8 <= end; p += 8) {
        for (size_t line = 0; line < 8 * sizeof *p; line += 64) { /* as the kernels do */
            __builtin_prefetch((const char *)p + 4 * SONDE__VITALS_BLOCK + line);
        }
        a += p[0];
        b += p[1];
        c += p[2];
        d += p[3];
        e += p[4];
        f += p[5];
        g += p[6];
        h += p[7];
    }
    a += ((b + c) + (d + e)) + ((f + g) + h);
    for (size_t l = 0; l < WIDTH; l++) {
        *sum += a[l];
    }
}

typedef float sixteen __attribute__((vector_size(64), aligned(4)));

/* The new weights are stored, and returned as they are in registers. */
static inline sonde__tensor_v16 update(float *w, float *m, const float *g)
{
    sixteen weights, momenta, gradients;
    sonde__tensor_v16 out;

    memcpy(&weights, w, sizeof weights);
    memcpy(&momenta, m, sizeof momenta);
    memcpy(&gradients, g, sizeof gradients);
    momenta = 0.9F * momenta + gradients;
    weights -= 0.01F * momenta;
    memcpy(m, &momenta, sizeof momenta);
    memcpy(w, &weights, sizeof weights);
    memcpy(&out, &weights, sizeof out);
    return out;
}

static void plain(float *w, float *m, const float *g, size_t n)
{
    for (size_t i = 0; i + 16 <= n; i += 16) {
        (void)update(w + i, m + i, g + i);
    }
}

static void fused(float *w, float *m, const float *g, size_t n, sonde_vitals vitals[2])
{
    sonde_vitals_init(&vitals[0]);
    sonde_vitals_init(&vitals[1]);
    for (size_t start = 0; start < n; start += SONDE__VITALS_BLOCK) {
        const size_t end = SONDE_MIN(n, start + SONDE__VITALS_BLOCK);
        sonde__vacc weights, gradients;
        sonde__vitals_sums sums;

        sonde__vacc_init(&weights);
        sonde__vacc_init(&gradients);
        for (size_t i = start; i + 16 <= end; i += 16) {
            sonde__vacc_add_at(&gradients, g + i);
            sonde__vacc_add(&weights, update(w + i, m + i, g + i));
        }
        sonde__vacc_close(&weights, &sums);
        sonde__vitals_take(&vitals[0], &sums, w + start, end - start);
        sonde__vacc_close(&gradients, &sums);
        sonde__vitals_take(&vitals[1], &sums, g + start, end - start);
    }
}

static void blocked(float *w, float *m, const float *g, size_t n, sonde_vitals vitals[2])
{
    sonde_vitals_init(&vitals[0]);
    sonde_vitals_init(&vitals[1]);
    for (size_t start = 0; start < n; start += SONDE__VITALS_BLOCK) {
        const size_t some = SONDE_MIN(n - start, (size_t)SONDE__VITALS_BLOCK);
        sonde__vitals_sums sums;

        plain(w + start, m + start, g + start, some);
        sonde__vitals_sums_of(w + start, some, &sums);
        sonde__vitals_take(&vitals[0], &sums, w + start, some);
        sonde__vitals_sums_of(g + start, some, &sums);
        sonde__vitals_take(&vitals[1], &sums, g + start, some);
    }
}

static void registers(const float *x, size_t n, sonde_vitals *vitals)
{
    sonde_vitals_init(vitals);
    for (size_t start = 0; start < n; start += SONDE__VITALS_BLOCK) {
        const size_t end = SONDE_MIN(n, start + SONDE__VITALS_BLOCK);
        sonde__vacc acc;
        sonde__vitals_sums sums;

        sonde__vacc_init(&acc);
        for (size_t i = start; i + 16 <= end; i += 16) {
            sonde__vacc_add(&acc, sonde__tensor_v16_load(x + i));
        }
        sonde__vacc_close(&acc, &sums);
        sonde__vitals_take(vitals, &sums, x + start, end - start);
    }
}

const fused_kernels ISA(fused) = {read_all, plain, fused, blocked, registers};
