/*
 * vmath.h - exp and log of vectors of float, for kernel files (see vec.h).
 *
 * Argument reduction after Cody and Waite (Software Manual for the Elementary Functions,
 * 1980), minimax polynomials with the coefficients of S. L. Moshier's Cephes library
 * (expf, logf). Largest error: exp 1.01, log 0.83 units in the last place, subnormal
 * arguments and results included; tests/nn/test_kernels_lanes.c holds both to 2. Nothing
 * traps.
 */
#ifndef SONDE_NN_KERNELS_VMATH_H
#define SONDE_NN_KERNELS_VMATH_H

#include "nn/kernels/lanes.h"

VEC_INLINE vf vf_where(vi mask, vf a, vf b)
{
    return vf_select(mask, a, b);
}

/* 2^n, for n in -126 ... 127. */
VEC_INLINE vf vf_power_of_two(vi n)
{
    return (vf)((n + 127) << 23);
}

/*
 * exp: NaN to NaN, -Inf to 0, above 88.73 to +Inf.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two pieces of which the first has few
 * enough bits for n times it to be exact; exp(x) = 2^n exp(r). The factor is applied in
 * two halves, since 2^n alone may be out of range where exp(x) is not.
 */
VEC_INLINE vf vf_exp(vf x)
{
    const vf most = vf_set1(100.0F), least = vf_set1(-110.0F);
    const vf round = vf_set1(12582912.0F); /* 1.5 * 2^23: the sum's last bit is worth 1 */
    const vf bounded =
        vf_where((vi)(x > most), most, vf_where((vi)(x < least), least, x));
    const vf shifted = vf_fma(bounded, vf_set1(1.44269504088896341F), round);
    const vf n = shifted - round;
    const vi whole = (vi)shifted - (vi)round, half = whole >> 1;
    const vf r =
        vf_fma(n, vf_set1(2.12194440e-4F), vf_fma(n, vf_set1(-0.693359375F), bounded));
    vf p = vf_set1(1.9875691500e-4F);

    p = vf_fma(p, r, vf_set1(1.3981999507e-3F));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3F));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2F));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1F));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1F));
    p = vf_fma(p, r * r, r) + vf_set1(1.0F);
    return vf_rounded(p * vf_power_of_two(half)) * vf_power_of_two(whole - half);
}

/*
 * log: of 0 -Inf, of less NaN, of +Inf itself, NaN to NaN.
 *
 * x = 2^n (1 + f) with 1 + f in sqrt(1/2) ... sqrt(2); log(x) = n ln 2 + log(1 + f).
 */
VEC_INLINE vf vf_log(vf x)
{
    const vi special = (vi)(x <= (vf){0}) | ~(vi)(x < vf_set1(__builtin_inff()));
    const vi tiny = (vi)(x < vf_set1(1.17549435e-38F)) & ~special; /* subnormal */
    const vf normal = vf_where(tiny, x * vf_set1(8388608.0F), x);
    const vi bits = (vi)vf_where(special, vf_set1(1.0F), normal);
    const vi above = bits - 0x3f3504f3; /* from the bits of sqrt(1/2) */
    const vi n = (above >> 23) - (tiny & 23);
    const vf f = (vf)((above & 0x007fffff) + 0x3f3504f3) - vf_set1(1.0F);
    const vf e = __builtin_convertvector(n, vf), z = f * f;
    vf p = vf_set1(7.0376836292e-2F), y;

    p = vf_fma(p, f, vf_set1(-1.1514610310e-1F));
    p = vf_fma(p, f, vf_set1(1.1676998740e-1F));
    p = vf_fma(p, f, vf_set1(-1.2420140846e-1F));
    p = vf_fma(p, f, vf_set1(1.4249322787e-1F));
    p = vf_fma(p, f, vf_set1(-1.6668057665e-1F));
    p = vf_fma(p, f, vf_set1(2.0000714765e-1F));
    p = vf_fma(p, f, vf_set1(-2.4999993993e-1F));
    p = vf_fma(p, f, vf_set1(3.3333331174e-1F));
    y = vf_fma(e, vf_set1(-2.12194440e-4F), p * f * z);
    y = vf_fma(z, vf_set1(-0.5F), y);
    y = vf_fma(e, vf_set1(0.693359375F), f + y);
    /* 0 to -Inf, negative to NaN; NaN and +Inf stay, since x + x is x there */
    return vf_where(
        special,
        vf_where((vi)(x == (vf){0}), vf_set1(-__builtin_inff()),
                 vf_where((vi)(x < (vf){0}), vf_set1(__builtin_nanf("")), x + x)),
        y);
}

#endif
