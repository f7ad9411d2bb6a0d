/*
 * dtype.c - the table of dtypes, single elements, and the two 16-bit float formats.
 *
 * Whole runs of elements are converted in convert.c.
 */
#include "tensor/convert.h"

#include <sonde/tensor.h>

#include <assert.h>
#include <string.h>
#include <strings.h>

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

sonde_err sonde_dtype_parse(const char *text, sonde_dtype *dtype, sonde_diag *diag)
{
    const char *names[SONDE_DTYPE_COUNT];
    const char *nearest = NULL;

    for (size_t i = 0; i < SONDE_DTYPE_COUNT; i++) {
        if (strcasecmp(text, dtypes[i].name) == 0 ||
            strcasecmp(text, dtypes[i].short_name) == 0) {
            *dtype = (sonde_dtype)i;
            return SONDE_OK;
        }
        names[i] = dtypes[i].name;
    }
    nearest = sonde__nearest(text, names, SONDE_DTYPE_COUNT);
    return sonde__fail(diag, SONDE_EINVAL, "dtype",
                       nearest != NULL
                           ? nearest
                           : "bool, uint8 ... uint64, int8 ... int64, float16, "
                             "bfloat16, float32 or float64",
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
float sonde_f16_to_f32(uint16_t bits)
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

uint16_t sonde_f32_to_f16(float value)
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
float sonde_bf16_to_f32(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t sonde_f32_to_bf16(float value)
{
    const uint32_t bits = bits_of(value);

    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
        return (uint16_t)(bits >> 16 | 0x40U);
    }
    return (uint16_t)round_off(bits, 16);
}

/* --- single elements -------------------------------------------------------------- */

double sonde_element_get(sonde_dtype dtype, const void *element)
{
    double value = 0.0;
    _Alignas(8) unsigned char aligned[8];

    assert(sonde_dtype_size(dtype) > 0);
    memcpy(aligned, element, sonde_dtype_size(dtype));
    sonde__load_f64(dtype, aligned, 1, &value);
    return value;
}

void sonde_element_set(sonde_dtype dtype, void *element, double value)
{
    _Alignas(8) unsigned char aligned[8];

    assert(sonde_dtype_size(dtype) > 0);
    sonde__store_f64(dtype, &value, 1, aligned);
    memcpy(element, aligned, sonde_dtype_size(dtype));
}
