/*
 * test_dtype.c - the table of dtypes, 16-bit floats and conversion between all pairs.
 */
#include "cmocka_all.h"

#include "base/cpu.h"
#include "base/macros.h"
#include "tensor/convert.h"
#include "tensor/vitals.h"

#include <sonde/error.h>
#include <sonde/tensor.h>

#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

static uint32_t bits32(float x)
{
    uint32_t bits = 0;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float32(uint32_t bits)
{
    float x = 0.0F;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void dtypes_have_names_and_sizes(void **state)
{
    static const size_t sizes[SONDE_DTYPE_COUNT] = {1, 1, 1, 2, 2, 4, 4, 8, 8,
                                                    2, 2, 4, 8, 1, 1, 8, 16};
    sonde_dtype dtype = SONDE_U8;
    sonde_diag diag = {0};

    (void)state;
    for (int i = 0; i < SONDE_DTYPE_COUNT; i++) {
        const sonde_dtype d = (sonde_dtype)i;

        assert_int_equal(sonde_dtype_size(d), sizes[i]);
        assert_int_equal(sonde_dtype_parse(sonde_dtype_name(d), &dtype, NULL), SONDE_OK);
        assert_int_equal(dtype, d);
        assert_int_equal(sonde_dtype_parse(sonde__dtype_short_name(d), &dtype, NULL),
                         SONDE_OK);
        assert_int_equal(dtype, d);
        assert_int_equal(sonde_dtype_is_float(d), i >= SONDE_F16 && i < SONDE_C64);
        assert_int_equal(sonde_dtype_is_complex(d), i >= SONDE_C64);
    }
    assert_int_equal(sonde_dtype_parse("bf16", &dtype, NULL), SONDE_OK);
    assert_int_equal(dtype, SONDE_BF16);
    assert_int_equal(sonde_dtype_parse("flaot32", &dtype, &diag), SONDE_EINVAL);
    assert_int_equal(dtype, SONDE_BF16);
    assert_string_equal(diag.expected, "float32");
    assert_non_null(strstr(diag.found, "flaot32"));
    assert_int_equal(sonde_dtype_size((sonde_dtype)SONDE_DTYPE_COUNT), 0);
    assert_string_equal(sonde_dtype_name((sonde_dtype)-1), "?");
}

/* The value of a binary16, straight from the standard's definition. */
static double value_of_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;

    if (exponent == 31) {
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return exponent == 0 ? sign * ldexp(mantissa, -24)
                         : sign * ldexp(1024 + mantissa, exponent - 25);
}

static void every_f16_and_bf16_widens_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        const uint16_t bits = (uint16_t)b;
        const float half = sonde__dtype_f16_to_f32(bits),
                    brain = sonde__dtype_bf16_to_f32(bits);
        const double value = value_of_f16(bits);

        if (isnan(value)) {
            assert_true(isnan(half));
            assert_true(isnan(sonde__dtype_f16_to_f32(sonde__dtype_f32_to_f16(half))));
        } else {
            assert_int_equal(bits32(half), bits32((float)value));
            assert_int_equal(sonde__dtype_f32_to_f16(half), bits);
        }
        assert_int_equal(bits32(brain), b << 16);
        if (isnan(brain)) {
            assert_true(isnan(sonde__dtype_bf16_to_f32(sonde__dtype_f32_to_bf16(brain))));
        } else {
            assert_int_equal(sonde__dtype_f32_to_bf16(brain), bits);
        }
    }
}

/* Between two neighbors a: the middle goes to the even one, and a hair to either side of
 * the middle to the nearer one. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x7C00; b++) {
        const float low = sonde__dtype_f16_to_f32((uint16_t)b);
        const float high =
            b + 1 < 0x7C00 ? sonde__dtype_f16_to_f32((uint16_t)(b + 1)) : 65536.0F;
        const float middle = low + (high - low) / 2;
        const uint32_t even = b + (b & 1);

        assert_int_equal(sonde__dtype_f32_to_f16(middle), even);
        assert_int_equal(sonde__dtype_f32_to_f16(nextafterf(middle, 0.0F)), b);
        assert_int_equal(sonde__dtype_f32_to_f16(nextafterf(middle, INFINITY)), b + 1);
        assert_int_equal(sonde__dtype_f32_to_f16(-middle), even | 0x8000);
    }
    for (uint32_t b = 0; b < 0x7F80; b++) {
        const uint32_t middle = b << 16 | 0x8000U;

        assert_int_equal(sonde__dtype_f32_to_bf16(float32(middle)), b + (b & 1));
        assert_int_equal(sonde__dtype_f32_to_bf16(float32(middle - 1)), b);
        assert_int_equal(sonde__dtype_f32_to_bf16(float32(middle + 1)), b + 1);
    }
}

static void vector_widening_is_that_of_single_elements(void **state)
{
    static uint16_t bits[4096];
    static float wide[4096];

    (void)state;
    for (int isa = 0; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__vitals_kernels *kernels = sonde__vitals_kernels_of((sonde__isa)isa);

        for (uint32_t base = 0; base < 65536; base += 4096) {
            for (uint32_t i = 0; i < 4096; i++) {
                bits[i] = (uint16_t)(base + i);
            }
            kernels->widen_f16(bits, 4095, wide);
            for (uint32_t i = 0; i < 4095; i++) {
                assert_int_equal(bits32(wide[i]),
                                 bits32(sonde__dtype_f16_to_f32(bits[i])));
            }
            kernels->widen_bf16(bits, 4093, wide);
            for (uint32_t i = 0; i < 4093; i++) {
                assert_int_equal(bits32(wide[i]), (base + i) << 16);
            }
        }
    }
}

/* A double next to the middle between two neighbors, nearer to it than any float32 can
 * be: rounding it to float32 first would make it the middle, and the result wrong. */
static void doubles_are_rounded_once(void **state)
{
    const double middle = 1.0 + 0x1p-11, hair = 0x1p-50;
    const double bf_middle = 1.0 + 0x1p-8;
    uint16_t half = 0;

    (void)state;
    sonde_element_set(SONDE_F16, &half, middle);
    assert_int_equal(half, 0x3C00);
    sonde_element_set(SONDE_F16, &half, middle + hair);
    assert_int_equal(half, 0x3C01);
    sonde_element_set(SONDE_F16, &half, middle - hair);
    assert_int_equal(half, 0x3C00);
    sonde_element_set(SONDE_F16, &half, 65520.0 - 0x1p-30);
    assert_int_equal(half, 0x7BFF);
    sonde_element_set(SONDE_F16, &half, 0x1p-25 + 0x1p-70); /* half the least subnormal */
    assert_int_equal(half, 1);
    sonde_element_set(SONDE_BF16, &half, bf_middle + hair);
    assert_int_equal(half, 0x3F81);
    sonde_element_set(SONDE_BF16, &half, -1e300);
    assert_int_equal(half, 0xFF80);
    sonde_element_set(SONDE_BF16, &half, 1e-300);
    assert_int_equal(half, 0);
}

static void large_integers_are_rounded_once(void **state)
{
    /* 2^60 + 2^52 is the middle of two bfloat16; one more is above it. */
    const int64_t whole[3] = {(INT64_C(1) << 60) + (INT64_C(1) << 52) + 1,
                              -((INT64_C(1) << 60) + (INT64_C(1) << 52) + 1), INT64_MAX};
    const uint64_t natural[2] = {(UINT64_C(1) << 63) + (UINT64_C(1) << 55) + 1,
                                 UINT64_MAX};
    uint16_t brain[3] = {0};
    float single[3] = {0};

    (void)state;
    sonde__tensor_convert(SONDE_I64, whole, 3, SONDE_BF16, brain);
    assert_int_equal(brain[0], sonde__dtype_f32_to_bf16(0x1.02p60F));
    assert_int_equal(brain[1], sonde__dtype_f32_to_bf16(-0x1.02p60F));
    assert_int_equal(brain[2], sonde__dtype_f32_to_bf16(0x1p63F));
    sonde__tensor_convert(SONDE_U64, natural, 2, SONDE_BF16, brain);
    assert_int_equal(brain[0], sonde__dtype_f32_to_bf16(0x1.02p63F));
    assert_int_equal(brain[1], sonde__dtype_f32_to_bf16(0x1p64F));
    sonde__tensor_convert(SONDE_I64, whole, 3, SONDE_F32, single);
    assert_true(single[2] == 0x1p63F);
}

static double real_part(sonde_dtype dtype, const void *element)
{
    return sonde_element_get(sonde__dtype_part(dtype), element);
}

/* The value of a code, straight from the paper's definition. */
static double of_code(unsigned code, int mantissa_bits, int bias)
{
    const int exponent = (int)(code & 0x7FU) >> mantissa_bits;
    const double fraction =
        (double)(code & ((1U << mantissa_bits) - 1U)) / (double)(1 << mantissa_bits);
    const double size = exponent == 0 ? ldexp(fraction, 1 - bias)
                                      : ldexp(1.0 + fraction, exponent - bias);

    return (code & 0x80U) != 0 ? -size : size;
}

/* All codes there and back; and the middle between two neighbors, which goes to the even
 * one, and what is a little to either side of it. */
static void every_f8_widens_and_comes_back(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        const uint8_t bits = (uint8_t)code;
        const double e4m3 = of_code(code, 3, 7), e5m2 = of_code(code, 2, 15);

        if ((code & 0x7FU) == 0x7FU) {
            assert_true(isnan(sonde__dtype_f8_e4m3_to_f32(bits)));
            assert_int_equal(
                sonde__dtype_f32_to_f8_e4m3(sonde__dtype_f8_e4m3_to_f32(bits)), code);
        } else {
            assert_true((double)sonde__dtype_f8_e4m3_to_f32(bits) == e4m3);
            assert_int_equal(sonde__dtype_f32_to_f8_e4m3((float)e4m3), code);
        }
        if ((code & 0x7CU) == 0x7CU) {
            assert_true((code & 3U) == 0 ? isinf(sonde__dtype_f8_e5m2_to_f32(bits))
                                         : isnan(sonde__dtype_f8_e5m2_to_f32(bits)));
        } else {
            assert_true((double)sonde__dtype_f8_e5m2_to_f32(bits) == e5m2);
            assert_int_equal(sonde__dtype_f32_to_f8_e5m2((float)e5m2), code);
        }
        if ((code & 0x7FU) < 0x7EU) {
            const float middle = (float)((e4m3 + of_code(code + 1, 3, 7)) / 2.0);

            assert_int_equal(sonde__dtype_f32_to_f8_e4m3(middle), code + (code & 1U));
            assert_int_equal(sonde__dtype_f32_to_f8_e4m3(nextafterf(middle, 0.0F)), code);
        }
        if ((code & 0x7FU) < 0x7BU) {
            const float middle = (float)((e5m2 + of_code(code + 1, 2, 15)) / 2.0);

            assert_int_equal(sonde__dtype_f32_to_f8_e5m2(middle), code + (code & 1U));
            assert_int_equal(sonde__dtype_f32_to_f8_e5m2(nextafterf(middle, 0.0F)), code);
        }
    }
    assert_int_equal(sonde__dtype_f32_to_f8_e4m3(464.0F), 0x7E); /* 448 */
    assert_int_equal(sonde__dtype_f32_to_f8_e4m3(nextafterf(464.0F, 1e9F)), 0x7F);
    assert_int_equal(sonde__dtype_f32_to_f8_e4m3(-INFINITY), 0xFF);
    assert_int_equal(sonde__dtype_f32_to_f8_e5m2(61440.0F), 0x7C);
    assert_int_equal(sonde__dtype_f32_to_f8_e5m2(nextafterf(61440.0F, 0.0F)), 0x7B);
    assert_int_equal(sonde__dtype_f32_to_f8_e5m2(-INFINITY), 0xFC);
}

static void complex_numbers_convert(void **state)
{
    const float z[4] = {3.0F, -4.0F, INFINITY, NAN};
    const double huge[2] = {3e300, 4e300};
    double wide[4], size = 0.0;
    float narrow[2];
    int32_t whole[2] = {0};

    (void)state;
    assert_true(sonde_element_get(SONDE_C64, z) == 5.0);
    assert_true(isinf(sonde_element_get(SONDE_C64, z + 2)));
    sonde__tensor_load_f64(SONDE_C128, huge, 1, &size);
    assert_true(fabs(size - 5e300) <= 1e285); /* the last place of 5e300 is 1e284 */
    sonde__tensor_convert(SONDE_C64, z, 2, SONDE_C128, wide);
    assert_true(wide[0] == 3.0 && wide[1] == -4.0 && isinf(wide[2]) && isnan(wide[3]));
    sonde__tensor_convert(SONDE_C128, wide, 1, SONDE_C64, narrow);
    assert_true(narrow[0] == 3.0F && narrow[1] == -4.0F);
    sonde__tensor_convert(SONDE_C64, z, 2, SONDE_I32, whole); /* real parts */
    assert_true(whole[0] == 3 && whole[1] == INT32_MAX);
    sonde__tensor_convert(SONDE_I32, whole, 1, SONDE_C64, narrow);
    assert_true(narrow[0] == 3.0F && narrow[1] == 0.0F);
}

/* Every value that a pair of dtypes shares survives the way there and back. */
static void all_pairs_convert(void **state)
{
    static const double values[] = {0, 1, 2, 100, 112, -1, -100, 0.5, -0.25};

    (void)state;
    for (int f = 0; f < SONDE_DTYPE_COUNT; f++) {
        for (int t = 0; t < SONDE_DTYPE_COUNT; t++) {
            for (size_t v = 0; v < SONDE_COUNT_OF(values); v++) {
                _Alignas(16) unsigned char from[16] = {0}, to[16] = {0};
                double source = 0.0, target = 0.0;

                sonde_element_set((sonde_dtype)f, from, values[v]);
                source = real_part((sonde_dtype)f, from);
                sonde__tensor_convert((sonde_dtype)f, from, 1, (sonde_dtype)t, to);
                target = real_part((sonde_dtype)t, to);
                if (t == SONDE_F8_E4M3 || t == SONDE_F8_E5M2) { /* 100 is rounded */
                    sonde_element_set((sonde_dtype)t, from, source);
                    assert_memory_equal(from, to, 1);
                } else if (t == SONDE_BOOL) {
                    assert_true(target == (source != 0.0 ? 1.0 : 0.0));
                } else if (t >= SONDE_F16) {
                    assert_true(target == source);
                } else if (source < 0.0 && (t == SONDE_U8 || t == SONDE_U16 ||
                                            t == SONDE_U32 || t == SONDE_U64)) {
                    assert_true(target == 0.0);
                } else {
                    assert_true(target == trunc(source));
                }
            }
        }
    }
}

static void what_does_not_fit_saturates(void **state)
{
    static const double values[] = {1e30, -1e30, (double)INFINITY, -(double)INFINITY};
    static const double top[] = {1,          255.0,        127.0,  65535.0, 32767.0,
                                 4294967295, 2147483647.0, 0x1p64, 0x1p63};
    static const double bottom[] = {1, 0,      -128.0, 0, -32768.0, 0, -2147483648.0,
                                    0, -0x1p63};
    const int64_t wide[2] = {1000, -1000};
    const uint64_t natural = UINT64_MAX;
    int64_t signed_max = 0;
    int8_t narrow[2] = {0};
    uint64_t element = 0;

    (void)state;
    for (int t = 0; t <= SONDE_I64; t++) {
        for (size_t v = 0; v < SONDE_COUNT_OF(values); v++) {
            sonde_element_set((sonde_dtype)t, &element, values[v]);
            assert_true(sonde_element_get((sonde_dtype)t, &element) ==
                        (values[v] > 0 ? top[t] : bottom[t]));
        }
        sonde_element_set((sonde_dtype)t, &element, (double)NAN);
        assert_true(sonde_element_get((sonde_dtype)t, &element) ==
                    (t == SONDE_BOOL ? 1.0 : 0.0));
    }
    sonde__tensor_convert(SONDE_I64, wide, 2, SONDE_I8, narrow);
    assert_int_equal(narrow[0], 127);
    assert_int_equal(narrow[1], -128);
    sonde__tensor_convert(SONDE_U64, &natural, 1, SONDE_I64, &signed_max);
    assert_true(signed_max == INT64_MAX);
}

static void nan_stays_nan_in_every_float(void **state)
{
    static const sonde_dtype floats[] = {SONDE_F16, SONDE_BF16,    SONDE_F32,
                                         SONDE_F64, SONDE_F8_E4M3, SONDE_F8_E5M2};
    const float signalling = float32(0x7F800001U);

    (void)state;
    for (size_t f = 0; f < SONDE_COUNT_OF(floats); f++) {
        for (size_t t = 0; t < SONDE_COUNT_OF(floats); t++) {
            uint64_t from = 0, to = 0;

            sonde_element_set(floats[f], &from, (double)NAN);
            sonde__tensor_convert(floats[f], &from, 1, floats[t], &to);
            assert_true(isnan(sonde_element_get(floats[t], &to)));
        }
    }
    assert_true(isnan(sonde__dtype_f16_to_f32(sonde__dtype_f32_to_f16(signalling))));
    assert_true(isnan(sonde__dtype_bf16_to_f32(sonde__dtype_f32_to_bf16(signalling))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(every_f16_and_bf16_widens_and_comes_back),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(vector_widening_is_that_of_single_elements),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(large_integers_are_rounded_once),
        cmocka_unit_test(all_pairs_convert),
        cmocka_unit_test(every_f8_widens_and_comes_back),
        cmocka_unit_test(complex_numbers_convert),
        cmocka_unit_test(what_does_not_fit_saturates),
        cmocka_unit_test(nan_stays_nan_in_every_float),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
