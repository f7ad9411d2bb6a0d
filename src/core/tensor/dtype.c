/*
 * dtype.c - the table of dtypes, and conversions of 16-bit and 8-bit floats.
 */
#include "tensor/convert.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"
#include <sonde/tensor.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* --- dtype ------------------------------------------------------------------------- */

/* The table of dtypes, single elements, and the narrow float formats.
 *
 * Whole runs of elements are converted in convert.c. */

typedef struct dtype_row {
    const char *name;
    const char *short_name; /* what safetensors calls it */
    size_t size;
    bool is_float;
} dtype_row;

static const dtype_row dtypes[SONDE_DTYPE_COUNT] = {
    [SONDE_BOOL] = {"bool", "BOOL", 1, false},
    [SONDE_U8] = {"uint8", "U8", 1, false},
    [SONDE_I8] = {"int8", "I8", 1, false},
    [SONDE_U16] = {"uint16", "U16", 2, false},
    [SONDE_I16] = {"int16", "I16", 2, false},
    [SONDE_U32] = {"uint32", "U32", 4, false},
    [SONDE_I32] = {"int32", "I32", 4, false},
    [SONDE_U64] = {"uint64", "U64", 8, false},
    [SONDE_I64] = {"int64", "I64", 8, false},
    [SONDE_F16] = {"float16", "F16", 2, true},
    [SONDE_BF16] = {"bfloat16", "BF16", 2, true},
    [SONDE_F32] = {"float32", "F32", 4, true},
    [SONDE_F64] = {"float64", "F64", 8, true},
    [SONDE_F8_E4M3] = {"float8_e4m3fn", "F8_E4M3", 1, true},
    [SONDE_F8_E5M2] = {"float8_e5m2", "F8_E5M2", 1, true},
    [SONDE_C64] = {"complex64", "C64", 8, false},
    [SONDE_C128] = {"complex128", "C128", 16, false},
};

static const dtype_row *find_row(sonde_dtype dtype)
{
    const size_t i = (size_t)dtype;

    return i < SONDE_DTYPE_COUNT ? &dtypes[i] : NULL;
}

size_t sonde_dtype_size(sonde_dtype dtype)
{
    const dtype_row *row = find_row(dtype);

    return row != NULL ? row->size : 0;
}

const char *sonde_dtype_name(sonde_dtype dtype)
{
    const dtype_row *row = find_row(dtype);

    return row != NULL ? row->name : "?";
}

const char *sonde__dtype_short_name(sonde_dtype dtype)
{
    const dtype_row *row = find_row(dtype);

    return row != NULL ? row->short_name : "?";
}

bool sonde__dtype_of_short_name(const char *text, sonde_dtype *dtype)
{
    for (size_t i = 0; i < SONDE_DTYPE_COUNT; i++) {
        if (strcmp(text, dtypes[i].short_name) == 0) {
            *dtype = (sonde_dtype)i;
            return true;
        }
    }
    return false;
}

bool sonde_dtype_is_float(sonde_dtype dtype)
{
    const dtype_row *row = find_row(dtype);

    return row != NULL && row->is_float;
}

bool sonde_dtype_is_complex(sonde_dtype dtype)
{
    return dtype == SONDE_C64 || dtype == SONDE_C128;
}

sonde_dtype sonde__dtype_part(sonde_dtype dtype)
{
    return dtype == SONDE_C64 ? SONDE_F32 : dtype == SONDE_C128 ? SONDE_F64 : dtype;
}

sonde_err sonde_dtype_parse(const char *text, sonde_dtype *dtype, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, dtype);
    const char *names[SONDE_DTYPE_COUNT];

    for (size_t i = 0; i < SONDE_DTYPE_COUNT; i++) {
        if (sonde__strcasecmp(text, dtypes[i].name) == 0 ||
            sonde__strcasecmp(text, dtypes[i].short_name) == 0) {
            *dtype = (sonde_dtype)i;
            return SONDE_OK;
        }
        names[i] = dtypes[i].name;
    }
    const char *nearest = sonde_diag_nearest(text, names, SONDE_DTYPE_COUNT);
    return sonde__fail(diag, SONDE_EINVAL, "dtype",
                       nearest != NULL
                           ? nearest
                           : "bool, uint8 ... uint64, int8 ... int64, float16, "
                             "bfloat16, float32, float64, float8_e4m3fn, "
                             "float8_e5m2, complex64 or complex128",
                       "unknown dtype '%s'", text);
}

/* --- 16-bit floats ---------------------------------------------------------------- */

static uint32_t bits_of(float value)
{
    uint32_t bits = 0;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value = 0.0F;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* binary16: 1 sign, 5 exponent (bias 15), 10 mantissa. A signalling NaN comes out quiet,
 * as from the processor's own conversion. */
float sonde__dtype_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000U) << 16;
    const uint32_t exponent = bits >> 10 & 31U, mantissa = bits & 0x3FFU;

    if (exponent == 31) {
        const uint32_t quiet = mantissa != 0 ? 0x400000U : 0;

        return float_of(sign | 0x7F800000U | quiet | mantissa << 13);
    }
    if (exponent == 0) { /* mantissa * 2^-24, exact in float32 */
        const float size = (float)mantissa * 0x1p-24F;

        return sign != 0 ? -size : size;
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Drops the low bits of value, rounding to nearest, ties to even. 1 <= drop <= 31. */
static uint32_t round_off(uint32_t value, uint32_t drop)
{
    const uint32_t half = 1U << (drop - 1);

    return (value + (half - 1) + (value >> drop & 1U)) >> drop;
}

uint16_t sonde__dtype_f32_to_f16(float value)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7FFFFFFFU;
    const uint32_t sign = bits >> 16 & 0x8000U;

    if (size > 0x7F800000U) { /* NaN: its upper payload, quiet */
        return (uint16_t)(sign | 0x7E00U | (size >> 13 & 0x3FFU));
    }
    if (size >= 0x477FF000U) { /* 65520, half way to 2^16, and beyond */
        return (uint16_t)(sign | 0x7C00U);
    }
    if (size < 0x38800000U) { /* below 2^-14: a multiple of 2^-24 */
        const uint32_t exponent = size >> 23;
        const uint32_t mantissa = (size & 0x7FFFFFU) | 0x800000U;

        if (exponent < 102) { /* below half of 2^-24 */
            return (uint16_t)sign;
        }
        return (uint16_t)(sign | round_off(mantissa, 126 - exponent));
    }
    return (uint16_t)(sign | round_off(size - (112U << 23), 13));
}

/* bfloat16: the upper half of a float32. */
float sonde__dtype_bf16_to_f32(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t sonde__dtype_f32_to_bf16(float value)
{
    const uint32_t bits = bits_of(value);

    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
        return (uint16_t)(bits >> 16 | 0x40U);
    }
    return (uint16_t)round_off(bits, 16);
}

/* --- 8-bit floats ----------------------------------------------------------------- */

/* 1 sign, 4 exponent (bias 7), 3 mantissa; all ones except the sign is NaN, and there
 * is no infinity, so that the largest is 1.75 * 2^8. */
float sonde__dtype_f8_e4m3_to_f32(uint8_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x80U) << 24;
    const uint32_t exponent = bits >> 3 & 15U, mantissa = bits & 7U;

    if ((bits & 0x7FU) == 0x7FU) {
        return float_of(sign | 0x7FC00000U);
    }
    if (exponent == 0) { /* mantissa * 2^-9 */
        const float size = (float)mantissa * 0x1p-9F;

        return sign != 0 ? -size : size;
    }
    return float_of(sign | (exponent + 120) << 23 | mantissa << 20);
}

uint8_t sonde__dtype_f32_to_f8_e4m3(float value)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7FFFFFFFU;
    const uint32_t sign = bits >> 24 & 0x80U;

    if (size >
        0x43E80000U) { /* beyond 464, half way from 448 to what would be next; NaN */
        return (uint8_t)(sign | 0x7FU);
    }
    if (size < 0x3C800000U) { /* below 2^-6: a multiple of 2^-9 */
        const uint32_t exponent = size >> 23;
        const uint32_t mantissa = (size & 0x7FFFFFU) | 0x800000U;

        if (exponent < 117) { /* below half of 2^-9 */
            return (uint8_t)sign;
        }
        return (uint8_t)(sign | round_off(mantissa, 141 - exponent));
    }
    return (uint8_t)(sign | round_off(size - (120U << 23), 20));
}

/* 1 sign, 5 exponent, 2 mantissa: the upper half of a binary16. */
float sonde__dtype_f8_e5m2_to_f32(uint8_t bits)
{
    return sonde__dtype_f16_to_f32((uint16_t)(bits << 8));
}

uint8_t sonde__dtype_f32_to_f8_e5m2(float value)
{
    const uint32_t bits = bits_of(value), size = bits & 0x7FFFFFFFU;
    const uint32_t sign = bits >> 24 & 0x80U;

    if (size > 0x7F800000U) {
        return (uint8_t)(sign | 0x7FU);
    }
    if (size >= 0x47700000U) { /* 61440, half way from 57344 to 2^16, and beyond */
        return (uint8_t)(sign | 0x7CU);
    }
    if (size < 0x38800000U) { /* below 2^-14: a multiple of 2^-16 */
        const uint32_t exponent = size >> 23;
        const uint32_t mantissa = (size & 0x7FFFFFU) | 0x800000U;

        if (exponent < 110) { /* below half of 2^-16 */
            return (uint8_t)sign;
        }
        return (uint8_t)(sign | round_off(mantissa, 134 - exponent));
    }
    return (uint8_t)(sign | round_off(size - (112U << 23), 21));
}
