/*
 * builtin_values.h - the elements of raw values, as doubles.
 */
#ifndef SONDE_RULES_BUILTIN_BUILTIN_VALUES_H
#define SONDE_RULES_BUILTIN_BUILTIN_VALUES_H

#include <sonde/tensor.h>

#include "tensor/convert.h"

#include <stddef.h>

/* Reads a view row-major, a chunk at a time. */
typedef struct sonde__builtin_reader {
    sonde__tensor_cursor cursor;
    sonde_dtype dtype;
} sonde__builtin_reader;
enum { SONDE__CHUNK = 256 };
void sonde__builtin_reader_init(sonde__builtin_reader *reader, const sonde_view *view);
/* Returns how many elements it stored; 0 at the end. */
size_t sonde__builtin_reader_take(sonde__builtin_reader *reader,
                                  double values[SONDE__CHUNK]);
/* Stores at most `most` elements, the same places for every view of a shape: evenly
 * spread over a contiguous view, else the first ones. Returns how many. Cost: that many
 * loads. */
size_t sonde__builtin_sample(const sonde_view *view, size_t most, double *out);

#endif
