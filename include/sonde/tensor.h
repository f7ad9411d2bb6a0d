/*
 * tensor.h - dtypes and strided views.
 *
 * A view says where a tensor's elements lie; it owns nothing and is passed by pointer.
 * Shapes and strides are in elements. Sonde is little-endian on disk and on the machines
 * it runs on.
 *
 * Threads: calls share nothing; any number may run at once.
 */
#ifndef SONDE_TENSOR_H
#define SONDE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_dtype {
    SONDE_BOOL = 0,
    SONDE_U8 = 1,
    SONDE_I8 = 2,
    SONDE_U16 = 3,
    SONDE_I16 = 4,
    SONDE_U32 = 5,
    SONDE_I32 = 6,
    SONDE_U64 = 7,
    SONDE_I64 = 8,
    SONDE_F16 = 9,
    SONDE_BF16 = 10,
    SONDE_F32 = 11,
    SONDE_F64 = 12,
    SONDE_F8_E4M3 = 13, /* float8_e4m3fn: no infinities, one NaN of each sign, to 448 */
    SONDE_F8_E5M2 = 14, /* float8_e5m2: the upper half of a float16 */
    SONDE_C64 = 15,     /* two float32: real part, imaginary part */
    SONDE_C128 = 16     /* two float64 */
} sonde_dtype;

enum { SONDE_DTYPE_COUNT = 17, SONDE_MAX_DIMS = 8 };

/* Bytes of one element; 0 for an invalid dtype. */
SONDE_API size_t sonde_dtype_size(sonde_dtype dtype);
/* "float32", "bfloat16", "float8_e4m3fn", "complex64", "int64", "bool": a static string;
 * "?" for an invalid dtype. */
SONDE_API const char *sonde_dtype_name(sonde_dtype dtype);
/* The names above, and those of safetensors ("F32", "BF16", "F8_E4M3", "I64", "BOOL"),
 * any case. "C128" is Sonde's own: safetensors has none. */
SONDE_API SONDE_CHECKED sonde_err sonde_dtype_parse(const char *text, sonde_dtype *dtype,
                                                    sonde_diag *diag);
/* False for complex numbers. */
SONDE_API bool sonde_dtype_is_float(sonde_dtype dtype);
SONDE_API bool sonde_dtype_is_complex(sonde_dtype dtype);

/* Single elements of any dtype, to and from double (int64 beyond 2^53 rounds). A complex
 * number gives its absolute value, as in all reductions to one number; setting one gives
 * a real number. */
SONDE_API double sonde_element_get(sonde_dtype dtype, const void *element);
SONDE_API void sonde_element_set(sonde_dtype dtype, void *element, double value);

typedef struct sonde_view {
    sonde_dtype dtype;
    int rank;                       /* 0 (a scalar) to SONDE_MAX_DIMS */
    int64_t shape[SONDE_MAX_DIMS];  /* each >= 0 */
    int64_t stride[SONDE_MAX_DIMS]; /* elements; may be 0 or negative */
    void *data;                     /* borrowed; the element at index 0, 0, ... */
} sonde_view;

/* A row-major view of data. rank 0 needs no shape. A rank above SONDE_MAX_DIMS, or no
 * shape, gives a view that no function of Sonde accepts. */
SONDE_API sonde_view sonde_view_of(sonde_dtype dtype, int rank, const int64_t *shape,
                                   void *data);
/* Product of the shape; 1 for a scalar. */
SONDE_API int64_t sonde_view_count(const sonde_view *view);
SONDE_API bool sonde_view_is_contiguous(const sonde_view *view);
SONDE_API bool sonde_view_same_shape(const sonde_view *a, const sonde_view *b);
/* The address of one element. index has rank entries; NULL: one is not in range. */
SONDE_API void *sonde_view_at(const sonde_view *view, const int64_t *index);
/*
 * Copies elements, converting where dtypes differ (float to integer truncates and
 * saturates, NaN becomes 0, or true; a complex number keeps its real part, and a real one
 * gets the imaginary part 0). dst and src must not overlap. SONDE_ESHAPE if shapes differ.
 * Cost: memcpy if both are contiguous and of one dtype.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_view_copy(const sonde_view *dst,
                                                  const sonde_view *src,
                                                  sonde_diag *diag);
/* "(16, 5, 26, 26)", "()" for a scalar. Returns buf. */
SONDE_API const char *sonde_shape_text(int rank, const int64_t *shape, char *buf,
                                       size_t size);

#ifdef __cplusplus
}
#endif

#endif
