/*
 * accumulate.c - loops over runs of elements, one per width; see accumulate.h.
 */
#include "observe/accumulate.h"

#include "tensor/convert.h"

enum { CHUNK = 1024 /* elements */ };

#define ADD_RUN(type)                                                                    \
    do {                                                                                 \
        type *sums = sum;                                                                \
        const type *more = elements;                                                     \
        for (size_t i = 0; i < n; i++) {                                                 \
            sums[i] = (type)(sums[i] + more[i]);                                         \
        }                                                                                \
    } while (0)

static void add_f16(uint16_t *sum, const uint16_t *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] = sonde__dtype_f32_to_f16(sonde__dtype_f16_to_f32(sum[i]) +
                                         sonde__dtype_f16_to_f32(elements[i]));
    }
}

static void add_bf16(uint16_t *sum, const uint16_t *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] = sonde__dtype_f32_to_bf16(sonde__dtype_bf16_to_f32(sum[i]) +
                                          sonde__dtype_bf16_to_f32(elements[i]));
    }
}

static void add_e4m3(uint8_t *sum, const uint8_t *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] = sonde__dtype_f32_to_f8_e4m3(sonde__dtype_f8_e4m3_to_f32(sum[i]) +
                                             sonde__dtype_f8_e4m3_to_f32(elements[i]));
    }
}

static void add_e5m2(uint8_t *sum, const uint8_t *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] = sonde__dtype_f32_to_f8_e5m2(sonde__dtype_f8_e5m2_to_f32(sum[i]) +
                                             sonde__dtype_f8_e5m2_to_f32(elements[i]));
    }
}

static void add_run(sonde_dtype dtype, void *sum, const void *elements, size_t n)
{
    switch (dtype) {
    case SONDE_BOOL:
    case SONDE_U8:
    case SONDE_I8: /* two's complement wraps as unsigned does */
        ADD_RUN(uint8_t);
        break;
    case SONDE_U16:
    case SONDE_I16:
        ADD_RUN(uint16_t);
        break;
    case SONDE_U32:
    case SONDE_I32:
        ADD_RUN(uint32_t);
        break;
    case SONDE_U64:
    case SONDE_I64:
        ADD_RUN(uint64_t);
        break;
    case SONDE_F16:
        add_f16(sum, elements, n);
        break;
    case SONDE_BF16:
        add_bf16(sum, elements, n);
        break;
    case SONDE_F8_E4M3:
        add_e4m3(sum, elements, n);
        break;
    case SONDE_F8_E5M2:
        add_e5m2(sum, elements, n);
        break;
    case SONDE_C64:
        n *= 2; /* part by part */
        ADD_RUN(float);
        break;
    case SONDE_F32:
        ADD_RUN(float);
        break;
    case SONDE_C128:
        n *= 2;
        ADD_RUN(double);
        break;
    case SONDE_F64:
        ADD_RUN(double);
        break;
    }
}

void sonde__observe_accumulate(void *sum, const sonde_view *view)
{
    unsigned char *sums = sum;
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    _Alignas(SONDE__ELEMENT) unsigned char room[CHUNK * SONDE__ELEMENT];

    sonde__tensor_cursor_init(&cursor, view);
    for (size_t n = sonde__tensor_cursor_take(&cursor, CHUNK, room, &elements); n > 0;
         n = sonde__tensor_cursor_take(&cursor, CHUNK, room, &elements)) {
        add_run(view->dtype, sums, elements, n);
        sums += n * cursor.size;
    }
}

static void divide_eighths(sonde_dtype dtype, uint8_t *values, int64_t count,
                           float divisor)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] = dtype == SONDE_F8_E4M3
                        ? sonde__dtype_f32_to_f8_e4m3(
                              sonde__dtype_f8_e4m3_to_f32(values[i]) / divisor)
                        : sonde__dtype_f32_to_f8_e5m2(
                              sonde__dtype_f8_e5m2_to_f32(values[i]) / divisor);
    }
}

static void divide_halves(sonde_dtype dtype, uint16_t *values, int64_t count,
                          float divisor)
{
    for (int64_t i = 0; i < count; i++) {
        values[i] =
            dtype == SONDE_F16
                ? sonde__dtype_f32_to_f16(sonde__dtype_f16_to_f32(values[i]) / divisor)
                : sonde__dtype_f32_to_bf16(sonde__dtype_bf16_to_f32(values[i]) / divisor);
    }
}

void sonde__observe_divide(sonde_dtype dtype, void *values, int64_t count,
                           int64_t divisor)
{
    float *singles = values;
    double *doubles = values;

    count *= sonde_dtype_is_complex(dtype) ? 2 : 1;
    dtype = sonde__dtype_part(dtype);
    if (dtype == SONDE_F8_E4M3 || dtype == SONDE_F8_E5M2) {
        divide_eighths(dtype, values, count, (float)divisor);
    }
    if (dtype == SONDE_F16 || dtype == SONDE_BF16) {
        divide_halves(dtype, values, count, (float)divisor);
    }
    for (int64_t i = 0; i < count && dtype == SONDE_F32; i++) {
        singles[i] /= (float)divisor;
    }
    for (int64_t i = 0; i < count && dtype == SONDE_F64; i++) {
        doubles[i] /= (double)divisor;
    }
}
