/*
 * table_state.h - a table while it becomes a data set: columns that a reader of its
 * format fills, and the splits.
 *
 *     survey   of each file: the columns with their kinds, and the number of rows
 *     values   of each file: those of the columns that have room for them
 */
#ifndef SONDE_NN_DATA_TABLE_STATE_H
#define SONDE_NN_DATA_TABLE_STATE_H

#include "base/names.h"

#include <sonde/nn/dataset.h>

enum { SONDE__TABLE_PATH = 4096, SONDE__TABLE_COLUMNS_MAX = 65536 };

typedef struct sonde__data_table_column {
    char *name;
    bool numbers;        /* else categories */
    bool used;           /* it is an input */
    const char *refusal; /* why it cannot be read; NULL: it can */
    sonde__names texts;  /* of categories */
    double *values;      /* (rows): a number, or the id of a text; NaN: missing */
    /* from the training rows */
    double mean, spread;
    int64_t *places; /* (texts): of the category among the inputs; -1: none */
    int64_t width;   /* inputs that it makes */
} sonde__data_table_column;

typedef struct sonde__data_table sonde__data_table;

typedef struct sonde__data_table_format {
    sonde_err (*survey)(sonde__data_table *table, int which);
    sonde_err (*values)(sonde__data_table *table, int which);
    bool raw; /* the file is not unzipped */
} sonde__data_table_format;

struct sonde__data_table {
    const sonde_nn_table_options *options;
    const char *path;
    char files[2][SONDE__TABLE_PATH]; /* of the splits; the second is "" if the first has
                                       * both */
    const sonde__data_table_format *format;
    char *texts[2]; /* the bytes of the files */
    size_t sizes[2], capacities[2];
    int64_t counts[2], rows; /* in the files, and together */
    sonde__data_table_column *columns;
    size_t count, capacity, target; /* target SIZE_MAX: none */
    int64_t *train, *wanted;        /* rows of the training, and of the split */
    int64_t train_count, wanted_count;
    bool all; /* every column is read, and none is the target */
    sonde_diag *diag;
};

/* All columns of a table that can be read. */
sonde_err sonde__data_table_read(const char *path, sonde__data_table **out,
                                 sonde_diag *diag);
void sonde__data_table_destroy(sonde__data_table *table); /* NULL is fine */

extern const sonde__data_table_format sonde__data_table_csv, sonde__data_table_parquet;

bool sonde__data_table_ends_with(const char *path, const char *ending);
/* Appends a column of numbers. */
sonde_err sonde__data_table_add_column(sonde__data_table *table, const char *name);
/* The column with a name, which is not empty; SIZE_MAX: none. */
size_t sonde__data_table_find_column(const sonde__data_table *table, const char *name);
/* The id of a text in a column of categories, as a value. */
sonde_err sonde__data_table_text_value(const sonde__data_table *table,
                                       sonde__data_table_column *column, const char *text,
                                       double *value);

#endif
