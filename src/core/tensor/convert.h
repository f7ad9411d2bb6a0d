/*
 * convert.h - runs of elements from one dtype to another, widened ones too, and walking
 * through a view in row-major order. Internal.
 *
 * Elements are aligned for their dtype here; the cursor copies those of unaligned views.
 * Nothing allocates.
 */
#ifndef SONDE_TENSOR_CONVERT_H
#define SONDE_TENSOR_CONVERT_H

#include "base/whole_file.h"
#include <sonde/export.h>
#include <sonde/safetensors.h>
#include <sonde/tensor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SONDE__ELEMENT = 16 /* bytes of the largest, and its alignment */ };

/* --- short floats (dtype.c) ------------------------------------------------------- */

/* IEEE binary16, bfloat16 and float8 (Micikevicius et al. 2022, "FP8 formats for deep
 * learning"); to_* round to nearest even and keep NaN. A value too large for e4m3fn,
 * which has no infinity, becomes NaN; saturating to 448, as newer versions of torch do,
 * would hide it. */
SONDE_API float sonde__dtype_f16_to_f32(uint16_t bits);
SONDE_API uint16_t sonde__dtype_f32_to_f16(float value);
SONDE_API float sonde__dtype_bf16_to_f32(uint16_t bits);
SONDE_API uint16_t sonde__dtype_f32_to_bf16(float value);
SONDE_API float sonde__dtype_f8_e4m3_to_f32(uint8_t bits);
SONDE_API uint8_t sonde__dtype_f32_to_f8_e4m3(float value);
SONDE_API float sonde__dtype_f8_e5m2_to_f32(uint8_t bits);
SONDE_API uint8_t sonde__dtype_f32_to_f8_e5m2(float value);

/* --- runs (convert.c) ------------------------------------------------------------- */

/* "F32", "BF16" ...: the names that safetensors uses. */
SONDE_API const char *sonde__dtype_short_name(sonde_dtype dtype);
/* The dtype that has exactly this short name; false if none has. */
bool sonde__dtype_of_short_name(const char *text, sonde_dtype *dtype);

/* The dtype of the parts of a complex number; any other dtype itself. */
SONDE_API sonde_dtype sonde__dtype_part(sonde_dtype dtype);

/* n elements of any dtype to double (64-bit integers round, complex numbers give their
 * absolute values) and back (see sonde_view_copy for values out of range). */
SONDE_API void sonde__tensor_load_f64(sonde_dtype dtype, const void *in, size_t n,
                                      double *out);
void sonde__tensor_store_f64(sonde_dtype dtype, const double *in, size_t n, void *out);

/* True if every value of dtype is a float32. */
bool sonde__tensor_fits_f32(sonde_dtype dtype);
/* n elements of such a dtype. */
void sonde__tensor_load_f32(sonde_dtype dtype, const void *in, size_t n, float *out);

/* n elements of any dtype to any other, each rounded once. */
SONDE_API void sonde__tensor_convert(sonde_dtype from_dtype, const void *in, size_t n,
                                     sonde_dtype to_dtype, void *out);

/* --- files (safetensors.c) ---------------------------------------------------------- */

/* Writes a view's elements, row-major; whole_status has the error. */
void sonde__tensor_write(sonde__whole_file *file, const sonde_view *view);

/* A file as sonde_safetensors_open reads it, over bytes in memory, borrowed until destroy;
 * name is for diagnostics. */
SONDE_API SONDE_CHECKED sonde_err sonde__safetensors_parse(const void *bytes, size_t size,
                                                           const char *name,
                                                           sonde_safetensors **out,
                                                           sonde_diag *diag);

/* What is wrong with a view whose data is to be read (data: if its data is as well), for
 * a message; NULL if nothing is. */
SONDE_API const char *sonde__tensor_view_fault(const sonde_view *view, bool data);

/* --- walking (view.c) ------------------------------------------------------------- */

/*
 * A view's elements in row-major order. Dimensions that are adjacent in memory are
 * joined. Borrows the view's data.
 */
typedef struct sonde__tensor_cursor {
    unsigned char *at;              /* the next element */
    size_t size;                    /* bytes of one */
    size_t left;                    /* elements to come */
    int rank;                       /* of what is left after joining dimensions; >= 1 */
    int64_t extent[SONDE_MAX_DIMS]; /* elements */
    int64_t stride[SONDE_MAX_DIMS]; /* bytes */
    int64_t index[SONDE_MAX_DIMS];
    bool direct; /* contiguous and aligned: no copy is needed */
} sonde__tensor_cursor;

SONDE_API void sonde__tensor_cursor_init(sonde__tensor_cursor *cursor,
                                         const sonde_view *view);
/* Takes up to most elements and returns how many; *out points to them, in the view
 * itself if it is direct, else in room, which is aligned and holds most. 0 at the end
 * (*out is then unchanged). */
SONDE_API size_t sonde__tensor_cursor_take(sonde__tensor_cursor *cursor, size_t most,
                                           void *room, const void **out);
/* Writes the next n elements; n is at most what is left. */
void sonde__tensor_cursor_put(sonde__tensor_cursor *cursor, const void *elements,
                              size_t n);

/* --- widen ------------------------------------------------------------------------- */

/* Bfloat16 and float16 as float32: for kernel files, which are compiled once per
 * instruction set. NaN keeps its payload. */

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline void widen_bf16(const uint16_t *bits, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t wide = (uint32_t)bits[i] << 16;

        memcpy(out + i, &wide, sizeof wide);
    }
}

static inline void widen_f16(const uint16_t *bits, size_t n, float *out)
{
    size_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i half;

        memcpy(&half, bits + i, sizeof half);
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
    }
#endif
    for (; i < n; i++) {
        out[i] = sonde__dtype_f16_to_f32(bits[i]);
    }
}

#endif
