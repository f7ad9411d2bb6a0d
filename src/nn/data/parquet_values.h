/*
 * parquet_values.h - the encodings of Parquet: bytes of a page to values.
 *
 * Numbers of INT32, INT64, FLOAT, DOUBLE and BOOLEAN become doubles (an int64 beyond 2^53
 * is rounded); BYTES and FIXED become spans of the page's bytes.
 */
#ifndef SONDE_NN_DATA_PARQUET_VALUES_H
#define SONDE_NN_DATA_PARQUET_VALUES_H

#include "nn/data/parquet.h"

/* By their numbers in the format. */
enum {
    SONDE__PARQUET_PLAIN = 0,
    SONDE__PARQUET_PLAIN_DICTIONARY = 2,
    SONDE__PARQUET_RLE = 3,
    SONDE__PARQUET_DELTA_BINARY_PACKED = 5,
    SONDE__PARQUET_DELTA_LENGTH_BYTE_ARRAY = 6,
    SONDE__PARQUET_DELTA_BYTE_ARRAY = 7,
    SONDE__PARQUET_RLE_DICTIONARY = 8,
    SONDE__PARQUET_BYTE_STREAM_SPLIT = 9
};

typedef struct sonde__data_parquet_span {
    const unsigned char *bytes;
    size_t size;
} sonde__data_parquet_span;

/* Zeros to begin with; the memory is used again by the next call. */
typedef struct sonde__data_parquet_values {
    double *numbers;
    sonde__data_parquet_span *spans;
    size_t count, numbers_capacity, spans_capacity;
    unsigned char *built; /* spans may point here */
    size_t built_capacity;
    int64_t *lengths;
    size_t lengths_capacity;
} sonde__data_parquet_values;

void sonde__data_parquet_values_fini(sonde__data_parquet_values *values);

/* Runs of one value, and groups of eight packed values, of width bits each. */
typedef struct sonde__data_parquet_runs {
    const unsigned char *next, *end;
    unsigned width; /* 0 to 32 */
    uint64_t left;  /* of the run */
    bool packed;
    uint32_t value;
    uint64_t bit; /* in a packed run, from next */
} sonde__data_parquet_runs;

/* False: there is none. */
bool sonde__data_parquet_runs_next(sonde__data_parquet_runs *runs, uint32_t *value);

/* count values; spans are borrowed from bytes and from values. dictionary NULL: there is
 * none. SONDE_EFORMAT: the bytes do not hold them. SONDE_EUNSUPPORTED: the encoding, or not
 * of this type. */
SONDE_CHECKED sonde_err sonde__data_parquet_decode(
    const sonde__data_parquet_column *column, int encoding,
    const sonde__data_parquet_span *bytes, const sonde__data_parquet_values *dictionary,
    size_t count, sonde__data_parquet_values *values);

#endif
