/*
 * dataset_table.h - a table with the kinds and values of its columns.
 */
#ifndef SONDE_NN_DATA_DATASET_TABLE_H
#define SONDE_NN_DATA_DATASET_TABLE_H

#include "base/names.h"
#include "nn/data/files.h"

#include <sonde/nn/dataset.h>

typedef struct sonde__data_column {
    const char *name;   /* borrowed from the header */
    bool numbers;       /* else categories */
    sonde__names texts; /* of categories */
    double
        *values; /* (rows): a number, or the id of a text; NaN: missing. NULL: unused */
    double mean, spread; /* of the training rows */
    int64_t *places;     /* (texts): of the category among the inputs; -1: none */
    int64_t width;       /* inputs that it makes */
} sonde__data_column;

typedef struct sonde__data_table {
    const char *path;    /* borrowed */
    char paths[2][4096]; /* of the files; the second is "" if one has both splits */
    sonde__data_csv files[2];
    bool typed[2];           /* quoted cells are texts, others numbers: from Parquet */
    int64_t counts[2], rows; /* in the files, and together */
    sonde__data_column *columns;
    size_t count;
    bool *training; /* (rows) */
    sonde_diag *diag;
} sonde__data_table;

/* Reads the files of a path and finds the kinds of the columns. Values are read by values.
 * The table is zeroed; fini frees it, after errors too. */
sonde_err sonde__data_table_read(sonde__data_table *table, const char *path,
                                 sonde_diag *diag);
/* Reads the values of column i. target: no cell may be missing, and with numbers all are
 * numbers. */
sonde_err sonde__data_table_values(sonde__data_table *table, size_t i, bool target,
                                   bool numbers);
void sonde__data_table_fini(sonde__data_table *table);

#endif
