/*
 * norm_lanes.h - sums over the pixels of channels, and the normalisation of pixels: what
 * the kernels of group and batch normalisation share. For kernel files, see lanes.h.
 *
 * Sums run in float32 over stretches of at most 512 pixels, four at a time, and in double
 * from stretch to stretch; no sum crosses lanes.
 */
#ifndef SONDE_NN_KERNELS_NORM_LANES_H
#define SONDE_NN_KERNELS_NORM_LANES_H

#include "base/macros.h"
#include "nn/kernels/lanes.h"

enum { STRETCH = 512 };

/* --- sums over pixels --------------------------------------------------------------- */

/* What a pixel adds to one or two sums. */
typedef enum term {
    VALUE,    /* a - center */
    SQUARE,   /* (a - center)^2 */
    GRADIENT, /* b; and b (a - center) */
} term;

/* One chunk of lanes over at most STRETCH pixels; into first[VF_WIDTH] and, for GRADIENT,
 * second[VF_WIDTH]. */
VEC_INLINE void sum_stretch(const term what, const float *a, const float *b,
                            int64_t pixels, vf center, float *first, float *second)
{
    vf s[4] = {{0}}, t[4] = {{0}};

    for (; pixels >= 4; pixels -= 4) {
        VEC_EACH (i, 4) {
            const vf v = vf_load(a + i * LANES);

            if (what == VALUE) {
                s[i] += v - center;
            } else if (what == SQUARE) {
                const vf d = v - center;

                s[i] = vf_fma(d, d, s[i]);
            } else {
                const vf d = vf_load(b + i * LANES);

                s[i] += d;
                t[i] = vf_fma(d, v - center, t[i]);
            }
        }
        a += 4 * LANES;
        b += what == GRADIENT ? 4 * LANES : 0;
    }
    for (int64_t i = 0; i < pixels; i++) {
        const vf v = vf_load(a + i * LANES);

        if (what == VALUE) {
            s[0] += v - center;
        } else if (what == SQUARE) {
            const vf d = v - center;

            s[0] = vf_fma(d, d, s[0]);
        } else {
            const vf d = vf_load(b + i * LANES);

            s[0] += d;
            t[0] = vf_fma(d, v - center, t[0]);
        }
    }
    vf_store(first, (s[0] + s[1]) + (s[2] + s[3]));
    if (what == GRADIENT) {
        vf_store(second, (t[0] + t[1]) + (t[2] + t[3]));
    }
}

/* All lanes of `pixels` pixels, added to first and second (used by GRADIENT alone). */
VEC_INLINE void sum_pixels(const term what, const float *a, const float *b,
                           int64_t pixels, const float *center, double first[LANES],
                           double second[LANES])
{
    for (int64_t i = 0; i < pixels; i += STRETCH) {
        const int64_t count = SONDE_MIN(pixels - i, (int64_t)STRETCH);
        float s[LANES], t[LANES];

        for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
            sum_stretch(what, a + i * LANES + lane,
                        what == GRADIENT ? b + i * LANES + lane : NULL, count,
                        vf_load(center + lane), s + lane, t + lane);
        }
        for (int lane = 0; lane < LANES; lane++) {
            first[lane] += (double)s[lane];
        }
        for (int lane = 0; lane < LANES && what == GRADIENT; lane++) {
            second[lane] += (double)t[lane];
        }
    }
}

/* --- over pixels ---------------------------------------------------------------------- */

/* y = (x - mean) rstd gamma + beta, mean and rstd a number a lane. */
VEC_INLINE void normalise(const float *x, int64_t pixels, const float *mean,
                          const float *rstd, float gamma, float beta, float *y)
{
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        const vf center = vf_load(mean + lane), add = vf_set1(beta);
        const vf scale = vf_load(rstd + lane) * vf_set1(gamma);

        for (int64_t i = 0; i < pixels; i++) {
            const vf d = vf_load(x + i * LANES + lane) - center;

            vf_store(y + i * LANES + lane, vf_fma(d, scale, add));
        }
    }
}

/* dx = scale dy + slope (x - mean) + offset, each of these a number a lane. */
VEC_INLINE void spread(const float *dy, const float *x, int64_t pixels, const float *mean,
                       const float *scale, const float *slope, const float *offset,
                       float *dx)
{
    for (int lane = 0; lane < LANES; lane += VF_WIDTH) {
        const vf center = vf_load(mean + lane), a = vf_load(scale + lane);
        const vf b = vf_load(slope + lane), c = vf_load(offset + lane);

        for (int64_t i = 0; i < pixels; i++) {
            const vf d = vf_load(x + i * LANES + lane) - center;

            vf_store(dx + i * LANES + lane,
                     vf_fma(vf_load(dy + i * LANES + lane), a, vf_fma(d, b, c)));
        }
    }
}

#endif
