/*
 * vec_across.h - the part of vec.h that works across lanes: sums and transposes. Included
 * by vec.h, at its end.
 *
 * All sums have one fixed order, a tree of halves, the same on every ISA.
 */
#ifndef SONDE_NN_KERNELS_VEC_ACROSS_H
#define SONDE_NN_KERNELS_VEC_ACROSS_H

#include "nn/kernels/vec.h"

/* The sum of the 16 lanes: i + (i + 8), then + 4, + 2, + 1. */
VEC_INLINE float v16_sum(v16 a)
{
    float part[16];

    v16_store(part, a);
    VEC_UNROLL
    for (int half = 8; half > 0; half /= 2) {
        VEC_UNROLL
        for (int i = 0; i < half; i++) {
            part[i] += part[i + half];
        }
    }
    return part[0];
}

/* Lane i of the result is v16_sum(a[i]), to the bit: 30 shuffles and 15 additions. */
VEC_INLINE v16 v16_sums(const v16 a[16])
{
#if VF_WIDTH == 16
    vf b[8], c[4], d[2];

    VEC_UNROLL
    for (int i = 0; i < 8; i++) {
        b[i] = __builtin_shufflevector(a[i], a[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18,
                                       19, 20, 21, 22, 23) +
               __builtin_shufflevector(a[i], a[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24,
                                       25, 26, 27, 28, 29, 30, 31);
    }
    VEC_UNROLL
    for (int i = 0; i < 4; i++) {
        c[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9,
                                       10, 11, 24, 25, 26, 27) +
               __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13,
                                       14, 15, 28, 29, 30, 31);
    }
    VEC_UNROLL
    for (int i = 0; i < 2; i++) {
        d[i] = __builtin_shufflevector(c[i], c[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9,
                                       24, 25, 12, 13, 28, 29) +
               __builtin_shufflevector(c[i], c[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11,
                                       26, 27, 14, 15, 30, 31);
    }
    return __builtin_shufflevector(d[0], d[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26,
                                   12, 28, 14, 30) +
           __builtin_shufflevector(d[0], d[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27,
                                   13, 29, 15, 31);
#else
    float sum[16];

    for (int i = 0; i < 16; i++) {
        sum[i] = v16_sum(a[i]);
    }
    return v16_load(sum);
#endif
}

/* 4 x 4, 8 x 8 or 16 x 16: element j of row i goes to element i of row j. */
#if VF_WIDTH == 16
VEC_INLINE void vf_transpose(vf r[VF_WIDTH])
{
    vf t[16];

    VEC_UNROLL
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 inside each quarter of four rows */
        const vf a = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21,
                                             8, 24, 9, 25, 12, 28, 13, 29);
        const vf b = __builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23,
                                             10, 26, 11, 27, 14, 30, 15, 31);
        const vf c = __builtin_shufflevector(r[i + 2], r[i + 3], 0, 16, 1, 17, 4, 20, 5,
                                             21, 8, 24, 9, 25, 12, 28, 13, 29);
        const vf d = __builtin_shufflevector(r[i + 2], r[i + 3], 2, 18, 3, 19, 6, 22, 7,
                                             23, 10, 26, 11, 27, 14, 30, 15, 31);

        t[i] = __builtin_shufflevector(a, c, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12,
                                       13, 28, 29);
        t[i + 1] = __builtin_shufflevector(a, c, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26,
                                           27, 14, 15, 30, 31);
        t[i + 2] = __builtin_shufflevector(b, d, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25,
                                           12, 13, 28, 29);
        t[i + 3] = __builtin_shufflevector(b, d, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26,
                                           27, 14, 15, 30, 31);
    }
    VEC_UNROLL
    for (int i = 0; i < 4; i++) { /* 4 x 4 of quarters */
        const vf a = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11, 16,
                                             17, 18, 19, 24, 25, 26, 27);
        const vf b = __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15,
                                             20, 21, 22, 23, 28, 29, 30, 31);
        const vf c = __builtin_shufflevector(t[i + 8], t[i + 12], 0, 1, 2, 3, 8, 9, 10,
                                             11, 16, 17, 18, 19, 24, 25, 26, 27);
        const vf d = __builtin_shufflevector(t[i + 8], t[i + 12], 4, 5, 6, 7, 12, 13, 14,
                                             15, 20, 21, 22, 23, 28, 29, 30, 31);

        r[i] = __builtin_shufflevector(a, c, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24,
                                       25, 26, 27);
        r[i + 4] = __builtin_shufflevector(b, d, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,
                                           24, 25, 26, 27);
        r[i + 8] = __builtin_shufflevector(a, c, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                           23, 28, 29, 30, 31);
        r[i + 12] = __builtin_shufflevector(b, d, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                            23, 28, 29, 30, 31);
    }
}
#elif VF_WIDTH == 8
VEC_INLINE void vf_transpose(vf r[VF_WIDTH])
{
    vf t[8];

    VEC_UNROLL
    for (int i = 0; i < 8; i += 4) { /* 4 x 4 inside each half of four rows */
        const vf a = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        const vf b = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
        const vf c =
            __builtin_shufflevector(r[i + 2], r[i + 3], 0, 8, 1, 9, 4, 12, 5, 13);
        const vf d =
            __builtin_shufflevector(r[i + 2], r[i + 3], 2, 10, 3, 11, 6, 14, 7, 15);

        t[i] = __builtin_shufflevector(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 1] = __builtin_shufflevector(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
        t[i + 2] = __builtin_shufflevector(b, d, 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 3] = __builtin_shufflevector(b, d, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    VEC_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#else
VEC_INLINE void vf_transpose(vf r[VF_WIDTH])
{
    const vf a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const vf b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const vf c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const vf d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);

    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}
#endif

/* to[j * to_stride + i] = from[i * from_stride + j] for i, j in 0 ... 15; no overlap. */
VEC_INLINE void vec_transpose16(const float *from, int64_t from_stride, float *to,
                                int64_t to_stride)
{
    for (int i = 0; i < 16; i += VF_WIDTH) {
        for (int j = 0; j < 16; j += VF_WIDTH) {
            vf r[VF_WIDTH];

            VEC_UNROLL
            for (int k = 0; k < VF_WIDTH; k++) {
                r[k] = vf_load(from + (i + k) * from_stride + j);
            }
            vf_transpose(r);
            VEC_UNROLL
            for (int k = 0; k < VF_WIDTH; k++) {
                vf_store(to + (j + k) * to_stride + i, r[k]);
            }
        }
    }
}

#endif
