/*
 * parquet.h - tables in Apache Parquet's format, in memory.
 *
 *     err = sonde__data_parquet_open(&file, bytes, size, name, diag);
 *     for each column of file.columns: name, text, refusal
 *     err = sonde__data_parquet_read(&file, column, take, user, diag);
 *     sonde__data_parquet_close(&file);
 *
 * Flat columns are read: numbers of all physical types but INT96, decimals, float16, and
 * texts. Pages of versions 1 and 2; not packed, or by Snappy, gzip or Zstandard; plain,
 * dictionary, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY and
 * BYTE_STREAM_SPLIT. A column that is nested, encrypted or of another type has a refusal;
 * the others can be read beside it. Indices, statistics and Bloom filters are ignored.
 * (parquet-format 2.10, parquet.thrift and Encodings.md.)
 */
#ifndef SONDE_NN_DATA_PARQUET_H
#define SONDE_NN_DATA_PARQUET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

/* Physical types, by their numbers in the format. */
typedef enum sonde__data_parquet_type {
    SONDE__PARQUET_BOOLEAN = 0,
    SONDE__PARQUET_INT32 = 1,
    SONDE__PARQUET_INT64 = 2,
    SONDE__PARQUET_INT96 = 3,
    SONDE__PARQUET_FLOAT = 4,
    SONDE__PARQUET_DOUBLE = 5,
    SONDE__PARQUET_BYTES = 6,
    SONDE__PARQUET_FIXED = 7, /* bytes of one length */
    SONDE__PARQUET_TYPES
} sonde__data_parquet_type;

typedef struct sonde__data_parquet_column {
    char *name;          /* of the top level */
    const char *refusal; /* why it cannot be read, "is nested"; NULL: it can */
    bool text;           /* else numbers */
    /* how its values become numbers or texts */
    sonde__data_parquet_type type;
    size_t length; /* bytes of SONDE__PARQUET_FIXED */
    bool optional, is_unsigned, decimal, half;
    int scale;   /* of a decimal */
    size_t leaf; /* its chunk in each row group */
} sonde__data_parquet_column;

/* The pages of a column in a row group. */
typedef struct sonde__data_parquet_chunk {
    sonde__data_parquet_type type;
    int codec;
    bool outside, encrypted; /* in another file; without its key */
    size_t start, size;
    int64_t values;
} sonde__data_parquet_chunk;

typedef struct sonde__data_parquet {
    const unsigned char *bytes; /* borrowed */
    size_t size;
    const char *name; /* borrowed; for diagnostics */
    sonde__data_parquet_column *columns;
    size_t count, capacity;
    size_t leaves;                     /* columns of the deepest level */
    sonde__data_parquet_chunk *chunks; /* (groups, leaves) */
    int64_t *group_rows;               /* (groups) */
    size_t groups;
    int64_t rows;
} sonde__data_parquet;

/* One value: a number, or bytes that end with a NUL, which they do not hold otherwise. */
typedef struct sonde__data_parquet_value {
    bool missing;
    double number;
    const char *text;
} sonde__data_parquet_value;

typedef sonde_err sonde__data_parquet_take(void *user, int64_t row,
                                           const sonde__data_parquet_value *value,
                                           sonde_diag *diag);

/* Reads the columns and the places of the pages. SONDE_EFORMAT: no Parquet, or damaged.
 * SONDE_EUNSUPPORTED: the footer is encrypted. After an error close is allowed. */
SONDE_API SONDE_CHECKED sonde_err sonde__data_parquet_open(sonde__data_parquet *file,
                                                           const void *bytes, size_t size,
                                                           const char *name,
                                                           sonde_diag *diag);
SONDE_API void sonde__data_parquet_close(sonde__data_parquet *file);

/* Passes the values of a column, row by row. SONDE_EFORMAT: damaged pages, or text that is
 * not UTF-8. SONDE_EUNSUPPORTED: its refusal, or a codec or an encoding. An error of take
 * ends it. Cost: memory for one page, unpacked, and 24 bytes a value of it. */
SONDE_API SONDE_CHECKED sonde_err
sonde__data_parquet_read(const sonde__data_parquet *file, size_t column,
                         sonde__data_parquet_take *take, void *user, sonde_diag *diag);

#endif
