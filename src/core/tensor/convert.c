/*
 * convert.c - runs of elements from one dtype to another.
 *
 * A pair of dtypes goes through one of three carriers that hold the source exactly:
 * int64 for bool and the integers but uint64, uint64, and double for the floats and for
 * the real parts of complex numbers. From a carrier to the target there is one rounding
 * (or one saturation), so the result is the nearest. Seventeen loads and three times as
 * many stores stand for all pairs but those of complex numbers, which are converted part
 * by part.
 *
 * Out of range: integers saturate, a NaN becomes integer 0, and bool is whether a value
 * differs from zero (so NaN is true).
 */
#include "tensor/convert.h"
#include "base/cpu.h"
#include "base/macros.h"

#include "tensor/vitals.h"

#include <math.h>
#include <string.h>

typedef void load_fn(const void *in, size_t n, void *out);
typedef void store_fn(const void *in, size_t n, void *out);

/* Source and carrier are the same thing; also serves as a store. */
static void copy_64(const void *in, size_t n, void *out)
{
    memcpy(out, in, n * 8);
}

static void copy_32(const void *in, size_t n, void *out)
{
    memcpy(out, in, n * 4);
}

/* --- loads ------------------------------------------------------------------------ */

#define LOAD(name, type, carrier, expression)                                            \
    static void load_##name(const void *in, size_t n, void *out)                         \
    {                                                                                    \
        const type *source = in;                                                         \
        carrier *target = out;                                                           \
                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                 \
            const type x = source[i];                                                    \
                                                                                         \
            target[i] = (carrier)(expression);                                           \
        }                                                                                \
    }

LOAD(bool_i64, uint8_t, int64_t, x != 0)
LOAD(u8_i64, uint8_t, int64_t, x)
LOAD(i8_i64, int8_t, int64_t, x)
LOAD(u16_i64, uint16_t, int64_t, x)
LOAD(i16_i64, int16_t, int64_t, x)
LOAD(u32_i64, uint32_t, int64_t, x)
LOAD(i32_i64, int32_t, int64_t, x)

LOAD(bool_f64, uint8_t, double, x != 0)
LOAD(u8_f64, uint8_t, double, x)
LOAD(i8_f64, int8_t, double, x)
LOAD(u16_f64, uint16_t, double, x)
LOAD(i16_f64, int16_t, double, x)
LOAD(u32_f64, uint32_t, double, x)
LOAD(i32_f64, int32_t, double, x)
LOAD(u64_f64, uint64_t, double, x)
LOAD(i64_f64, int64_t, double, x)
LOAD(f16_f64, uint16_t, double, sonde__dtype_f16_to_f32(x))
LOAD(bf16_f64, uint16_t, double, sonde__dtype_bf16_to_f32(x))
LOAD(f32_f64, float, double, x)
LOAD(e4m3_f64, uint8_t, double, sonde__dtype_f8_e4m3_to_f32(x))
LOAD(e5m2_f64, uint8_t, double, sonde__dtype_f8_e5m2_to_f32(x))

/* Complex numbers: real parts, and absolute values. */
typedef struct complex_f32 {
    float re, im;
} complex_f32;

typedef struct complex_f64 {
    double re, im;
} complex_f64;

/* As C's cabs: infinite if either part is, whatever the other. Squares of float32 neither
 * overflow nor vanish in double. */
static double size_of_c64(complex_f32 x)
{
    const double re = (double)x.re, im = (double)x.im;

    return isinf(re) || isinf(im) ? (double)INFINITY : sqrt(re * re + im * im);
}

LOAD(c64_real, complex_f32, double, x.re)
LOAD(c128_real, complex_f64, double, x.re)
LOAD(c64_size, complex_f32, double, size_of_c64(x))
LOAD(c128_size, complex_f64, double, hypot(x.re, x.im))

LOAD(bool_f32, uint8_t, float, x != 0)
LOAD(u8_f32, uint8_t, float, x)
LOAD(i8_f32, int8_t, float, x)
LOAD(u16_f32, uint16_t, float, x)
LOAD(i16_f32, int16_t, float, x)
LOAD(e4m3_f32, uint8_t, float, sonde__dtype_f8_e4m3_to_f32(x))
LOAD(e5m2_f32, uint8_t, float, sonde__dtype_f8_e5m2_to_f32(x))

static load_fn *const load_exact[SONDE_DTYPE_COUNT] = {
    [SONDE_BOOL] = load_bool_i64,  [SONDE_U8] = load_u8_i64,
    [SONDE_I8] = load_i8_i64,      [SONDE_U16] = load_u16_i64,
    [SONDE_I16] = load_i16_i64,    [SONDE_U32] = load_u32_i64,
    [SONDE_I32] = load_i32_i64,    [SONDE_U64] = copy_64,
    [SONDE_I64] = copy_64,         [SONDE_F16] = load_f16_f64,
    [SONDE_BF16] = load_bf16_f64,  [SONDE_F32] = load_f32_f64,
    [SONDE_F64] = copy_64,         [SONDE_F8_E4M3] = load_e4m3_f64,
    [SONDE_C64] = load_c64_real,   [SONDE_F8_E5M2] = load_e5m2_f64,
    [SONDE_C128] = load_c128_real,
};

static load_fn *const load_double[SONDE_DTYPE_COUNT] = {
    [SONDE_BOOL] = load_bool_f64,  [SONDE_U8] = load_u8_f64,
    [SONDE_I8] = load_i8_f64,      [SONDE_U16] = load_u16_f64,
    [SONDE_I16] = load_i16_f64,    [SONDE_U32] = load_u32_f64,
    [SONDE_I32] = load_i32_f64,    [SONDE_U64] = load_u64_f64,
    [SONDE_I64] = load_i64_f64,    [SONDE_F16] = load_f16_f64,
    [SONDE_BF16] = load_bf16_f64,  [SONDE_F32] = load_f32_f64,
    [SONDE_F64] = copy_64,         [SONDE_F8_E4M3] = load_e4m3_f64,
    [SONDE_C64] = load_c64_size,   [SONDE_F8_E5M2] = load_e5m2_f64,
    [SONDE_C128] = load_c128_size,
};

/* The two halves have kernels of their own; NULL where float32 does not hold every value.
 */
static load_fn *const load_float[SONDE_DTYPE_COUNT] = {
    [SONDE_BOOL] = load_bool_f32,    [SONDE_U8] = load_u8_f32,
    [SONDE_I8] = load_i8_f32,        [SONDE_U16] = load_u16_f32,
    [SONDE_I16] = load_i16_f32,      [SONDE_F32] = copy_32,
    [SONDE_F8_E4M3] = load_e4m3_f32, [SONDE_F8_E5M2] = load_e5m2_f32,
};

/* --- stores ----------------------------------------------------------------------- */

#define STORE(name, carrier, type, expression)                                           \
    static void store_##name(const void *in, size_t n, void *out)                        \
    {                                                                                    \
        const carrier *source = in;                                                      \
        type *target = out;                                                              \
                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                 \
            const carrier x = source[i];                                                 \
                                                                                         \
            target[i] = (type)(expression);                                              \
        }                                                                                \
    }

/* From int64: x between the limits of the target. From uint64: only the upper one. From
 * double: limits that doubles have exactly; NaN fails every comparison. */
#define CLAMP(low, high) (x < (low) ? (low) : x > (high) ? (high) : x)
#define BELOW(high) (x > (uint64_t)(high) ? (uint64_t)(high) : x)
#define TRUNCATE(type, low, high, low_double, end_double)                                \
    (x >= (end_double) ? (high) : x <= (low_double) ? (low) : x == x ? (type)x : 0)

/*
 * Rounding twice, first to a wider format and then to the target, gives the nearest if
 * the first rounding is to odd: what was lost leaves a one in the last place (Boldo and
 * Melquiond 2008).
 */
static float float_to_odd(double x)
{
    float nearest = (float)x;
    uint32_t bits = 0;

    if ((double)nearest == x || isnan(x)) {
        return nearest;
    }
    memcpy(&bits, &nearest, sizeof bits);
    bits -= fabs((double)nearest) > fabs(x);
    bits |= 1U;
    memcpy(&nearest, &bits, sizeof nearest);
    return nearest;
}

/* The same of an integer's magnitude; 53 bits of 64 are kept. */
static double size_to_odd(uint64_t x)
{
    const uint64_t lost = x & 0x7FFU;

    return (double)(x >> 53 == 0 || lost == 0 ? x : (x ^ lost) | 0x800U);
}

static float i64_to_odd(int64_t x)
{
    return float_to_odd(x < 0 ? -size_to_odd(0 - (uint64_t)x) : size_to_odd((uint64_t)x));
}

STORE(i64_bool, int64_t, uint8_t, x != 0)
STORE(i64_u8, int64_t, uint8_t, CLAMP(0, UINT8_MAX))
STORE(i64_i8, int64_t, int8_t, CLAMP(INT8_MIN, INT8_MAX))
STORE(i64_u16, int64_t, uint16_t, CLAMP(0, UINT16_MAX))
STORE(i64_i16, int64_t, int16_t, CLAMP(INT16_MIN, INT16_MAX))
STORE(i64_u32, int64_t, uint32_t, CLAMP(0, (int64_t)UINT32_MAX))
STORE(i64_i32, int64_t, int32_t, CLAMP(INT32_MIN, INT32_MAX))
STORE(i64_u64, int64_t, uint64_t, x < 0 ? 0 : x)
STORE(i64_f16, int64_t, uint16_t, sonde__dtype_f32_to_f16(i64_to_odd(x)))
STORE(i64_bf16, int64_t, uint16_t, sonde__dtype_f32_to_bf16(i64_to_odd(x)))
STORE(i64_e4m3, int64_t, uint8_t, sonde__dtype_f32_to_f8_e4m3(i64_to_odd(x)))
STORE(i64_e5m2, int64_t, uint8_t, sonde__dtype_f32_to_f8_e5m2(i64_to_odd(x)))
STORE(i64_f32, int64_t, float, x)
STORE(i64_f64, int64_t, double, x)

STORE(u64_bool, uint64_t, uint8_t, x != 0)
STORE(u64_u8, uint64_t, uint8_t, BELOW(UINT8_MAX))
STORE(u64_i8, uint64_t, int8_t, BELOW(INT8_MAX))
STORE(u64_u16, uint64_t, uint16_t, BELOW(UINT16_MAX))
STORE(u64_i16, uint64_t, int16_t, BELOW(INT16_MAX))
STORE(u64_u32, uint64_t, uint32_t, BELOW(UINT32_MAX))
STORE(u64_i32, uint64_t, int32_t, BELOW(INT32_MAX))
STORE(u64_i64, uint64_t, int64_t, BELOW(INT64_MAX))
STORE(u64_f16, uint64_t, uint16_t, sonde__dtype_f32_to_f16(float_to_odd(size_to_odd(x))))
STORE(u64_bf16, uint64_t, uint16_t,
      sonde__dtype_f32_to_bf16(float_to_odd(size_to_odd(x))))
STORE(u64_e4m3, uint64_t, uint8_t,
      sonde__dtype_f32_to_f8_e4m3(float_to_odd(size_to_odd(x))))
STORE(u64_e5m2, uint64_t, uint8_t,
      sonde__dtype_f32_to_f8_e5m2(float_to_odd(size_to_odd(x))))
STORE(u64_f32, uint64_t, float, x)
STORE(u64_f64, uint64_t, double, x)

STORE(f64_bool, double, uint8_t, x != 0.0)
STORE(f64_u8, double, uint8_t, TRUNCATE(uint8_t, 0, UINT8_MAX, 0.0, 0x1p8))
STORE(f64_i8, double, int8_t, TRUNCATE(int8_t, INT8_MIN, INT8_MAX, -0x1p7, 0x1p7))
STORE(f64_u16, double, uint16_t, TRUNCATE(uint16_t, 0, UINT16_MAX, 0.0, 0x1p16))
STORE(f64_i16, double, int16_t, TRUNCATE(int16_t, INT16_MIN, INT16_MAX, -0x1p15, 0x1p15))
STORE(f64_u32, double, uint32_t, TRUNCATE(uint32_t, 0, UINT32_MAX, 0.0, 0x1p32))
STORE(f64_i32, double, int32_t, TRUNCATE(int32_t, INT32_MIN, INT32_MAX, -0x1p31, 0x1p31))
STORE(f64_u64, double, uint64_t, TRUNCATE(uint64_t, 0, UINT64_MAX, 0.0, 0x1p64))
STORE(f64_i64, double, int64_t, TRUNCATE(int64_t, INT64_MIN, INT64_MAX, -0x1p63, 0x1p63))
STORE(f64_f16, double, uint16_t, sonde__dtype_f32_to_f16(float_to_odd(x)))
STORE(f64_bf16, double, uint16_t, sonde__dtype_f32_to_bf16(float_to_odd(x)))
STORE(f64_e4m3, double, uint8_t, sonde__dtype_f32_to_f8_e4m3(float_to_odd(x)))
STORE(f64_e5m2, double, uint8_t, sonde__dtype_f32_to_f8_e5m2(float_to_odd(x)))
STORE(f64_f32, double, float, x)

/* To complex numbers: real ones. */
#define STORE_COMPLEX(name, carrier, type, part)                                         \
    static void store_##name(const void *in, size_t n, void *out)                        \
    {                                                                                    \
        const carrier *source = in;                                                      \
        type *target = out;                                                              \
                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                 \
            target[i] = (type){(part)source[i], 0};                                      \
        }                                                                                \
    }

STORE_COMPLEX(i64_c64, int64_t, complex_f32, float)
STORE_COMPLEX(u64_c64, uint64_t, complex_f32, float)
STORE_COMPLEX(f64_c64, double, complex_f32, float)
STORE_COMPLEX(i64_c128, int64_t, complex_f64, double)
STORE_COMPLEX(u64_c128, uint64_t, complex_f64, double)
STORE_COMPLEX(f64_c128, double, complex_f64, double)

static store_fn *const store_from_i64[SONDE_DTYPE_COUNT] = {
    [SONDE_BOOL] = store_i64_bool, [SONDE_U8] = store_i64_u8,
    [SONDE_I8] = store_i64_i8,     [SONDE_U16] = store_i64_u16,
    [SONDE_I16] = store_i64_i16,   [SONDE_U32] = store_i64_u32,
    [SONDE_I32] = store_i64_i32,   [SONDE_U64] = store_i64_u64,
    [SONDE_I64] = copy_64,         [SONDE_F16] = store_i64_f16,
    [SONDE_BF16] = store_i64_bf16, [SONDE_F32] = store_i64_f32,
    [SONDE_F64] = store_i64_f64,   [SONDE_F8_E4M3] = store_i64_e4m3,
    [SONDE_C64] = store_i64_c64,   [SONDE_F8_E5M2] = store_i64_e5m2,
    [SONDE_C128] = store_i64_c128,
};

static store_fn *const store_from_u64[SONDE_DTYPE_COUNT] = {
    [SONDE_BOOL] = store_u64_bool, [SONDE_U8] = store_u64_u8,
    [SONDE_I8] = store_u64_i8,     [SONDE_U16] = store_u64_u16,
    [SONDE_I16] = store_u64_i16,   [SONDE_U32] = store_u64_u32,
    [SONDE_I32] = store_u64_i32,   [SONDE_U64] = copy_64,
    [SONDE_I64] = store_u64_i64,   [SONDE_F16] = store_u64_f16,
    [SONDE_BF16] = store_u64_bf16, [SONDE_F32] = store_u64_f32,
    [SONDE_F64] = store_u64_f64,   [SONDE_F8_E4M3] = store_u64_e4m3,
    [SONDE_C64] = store_u64_c64,   [SONDE_F8_E5M2] = store_u64_e5m2,
    [SONDE_C128] = store_u64_c128,
};

static store_fn *const store_from_f64[SONDE_DTYPE_COUNT] = {
    [SONDE_BOOL] = store_f64_bool, [SONDE_U8] = store_f64_u8,
    [SONDE_I8] = store_f64_i8,     [SONDE_U16] = store_f64_u16,
    [SONDE_I16] = store_f64_i16,   [SONDE_U32] = store_f64_u32,
    [SONDE_I32] = store_f64_i32,   [SONDE_U64] = store_f64_u64,
    [SONDE_I64] = store_f64_i64,   [SONDE_F16] = store_f64_f16,
    [SONDE_BF16] = store_f64_bf16, [SONDE_F32] = store_f64_f32,
    [SONDE_F64] = copy_64,         [SONDE_F8_E4M3] = store_f64_e4m3,
    [SONDE_C64] = store_f64_c64,   [SONDE_F8_E5M2] = store_f64_e5m2,
    [SONDE_C128] = store_f64_c128,
};

/* --- what others call ------------------------------------------------------------- */

void sonde__tensor_load_f64(sonde_dtype dtype, const void *in, size_t n, double *out)
{
    load_double[dtype](in, n, out);
}

void sonde__tensor_store_f64(sonde_dtype dtype, const double *in, size_t n, void *out)
{
    store_from_f64[dtype](in, n, out);
}

bool sonde__tensor_fits_f32(sonde_dtype dtype)
{
    return load_float[dtype] != NULL || dtype == SONDE_F16 || dtype == SONDE_BF16;
}

void sonde__tensor_load_f32(sonde_dtype dtype, const void *in, size_t n, float *out)
{
    const sonde__vitals_kernels *kernels = sonde__vitals_kernels_of(sonde__cpu_isa());

    if (dtype == SONDE_F16) {
        kernels->widen_f16(in, n, out);
    } else if (dtype == SONDE_BF16) {
        kernels->widen_bf16(in, n, out);
    } else {
        load_float[dtype](in, n, out);
    }
}

void sonde__tensor_convert(sonde_dtype from_dtype, const void *in, size_t n,
                           sonde_dtype to_dtype, void *out)
{
    enum { RUN = 256 };
    union {
        int64_t i64[RUN];
        uint64_t u64[RUN];
        double f64[RUN];
    } carrier;
    const unsigned char *source = in;
    unsigned char *target = out;
    const bool real =
        sonde_dtype_is_float(from_dtype) || sonde_dtype_is_complex(from_dtype);
    store_fn *const store = real                      ? store_from_f64[to_dtype]
                            : from_dtype == SONDE_U64 ? store_from_u64[to_dtype]
                                                      : store_from_i64[to_dtype];

    if (sonde_dtype_is_complex(from_dtype) && sonde_dtype_is_complex(to_dtype)) {
        sonde__tensor_convert(sonde__dtype_part(from_dtype), in, 2 * n,
                              sonde__dtype_part(to_dtype), out);
        return;
    }
    if (to_dtype == SONDE_F32 && sonde__tensor_fits_f32(from_dtype)) {
        sonde__tensor_load_f32(from_dtype, in, n, out);
        return;
    }
    for (size_t i = 0; i < n; i += RUN) {
        const size_t run = SONDE_MIN(n - i, (size_t)RUN);

        load_exact[from_dtype](source + i * sonde_dtype_size(from_dtype), run, &carrier);
        store(&carrier, run, target + i * sonde_dtype_size(to_dtype));
    }
}

/* --- single elements -------------------------------------------------------------- */

double sonde_element_get(sonde_dtype dtype, const void *element)
{
    if (element == NULL || sonde_dtype_size(dtype) == 0) {
        return NAN;
    }
    double value = 0.0;
    _Alignas(SONDE__ELEMENT) unsigned char aligned[SONDE__ELEMENT];

    memcpy(aligned, element, sonde_dtype_size(dtype));
    sonde__tensor_load_f64(dtype, aligned, 1, &value);
    return value;
}

void sonde_element_set(sonde_dtype dtype, void *element, double value)
{
    if (element == NULL || sonde_dtype_size(dtype) == 0) {
        return;
    }
    _Alignas(SONDE__ELEMENT) unsigned char aligned[SONDE__ELEMENT];

    sonde__tensor_store_f64(dtype, &value, 1, aligned);
    memcpy(element, aligned, sonde_dtype_size(dtype));
}

const sonde__vitals_kernels *sonde__vitals_kernels_of(sonde__isa isa)
{
#if defined(__x86_64__)
    if (isa == SONDE__AVX512) {
        return &sonde__vitals_avx512;
    }
    if (isa == SONDE__AVX2) {
        return &sonde__vitals_avx2;
    }
#endif
    (void)isa;
    return &sonde__vitals_generic;
}
