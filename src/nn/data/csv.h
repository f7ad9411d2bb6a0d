/*
 * csv.h - the cells of a CSV table (RFC 4180) in memory, one after the other.
 *
 *     err = sonde__data_csv_open(&csv, bytes, size, name, '\0', diag);
 *     while more: err = sonde__data_csv_next(&csv, &more, diag): csv.cell, csv.column ...
 *     sonde__data_csv_close(&csv);
 *
 * A cell may be in quotes; two quotes in it are one, and it may hold line ends. Blanks
 * around a cell without quotes are dropped, as are empty lines and a byte order mark.
 */
#ifndef SONDE_NN_DATA_CSV_H
#define SONDE_NN_DATA_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

typedef struct sonde__data_csv {
    const char *name; /* borrowed; for diagnostics */
    const char *next, *end;
    char delimiter;
    int64_t next_line;
    int next_column;

    /* of the last cell */
    char *cell; /* ends with a NUL */
    size_t size, capacity;
    bool quoted, last; /* the last of its record */
    int64_t line;      /* where it begins, from 1 */
    int column;        /* from 1 */
} sonde__data_csv;

/*
 * bytes are borrowed until close. delimiter 0: a comma, or a semicolon if the first line
 * has one and no comma. SONDE_EFORMAT: text that is not UTF-8, or has a zero byte; diag
 * says the line.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_csv_open(sonde__data_csv *csv,
                                                       const char *bytes, size_t size,
                                                       const char *name, char delimiter,
                                                       sonde_diag *diag);
/* The next cell; *more false: there is none. SONDE_EFORMAT: a quote without an end, or text
 * after one. */
SONDE_API SONDE_CHECKED sonde_err sonde__data_csv_next(sonde__data_csv *csv, bool *more,
                                                       sonde_diag *diag);
SONDE_API void sonde__data_csv_close(sonde__data_csv *csv);

/* The cell as a finite number, with a point in every locale. */
SONDE_API bool sonde__data_csv_number(const sonde__data_csv *csv, double *number);
/* Whether the cell stands for a missing value: empty, NA, N/A, NaN, nan, null, NULL, None, ?
 */
SONDE_API bool sonde__data_csv_missing(const sonde__data_csv *csv);
/* "name:line: column" in diag->where. */
sonde_err sonde__data_csv_fail(const sonde__data_csv *csv, sonde_err err,
                               const char *column, const char *expected, sonde_diag *diag,
                               const char *found, ...) SONDE_PRINTF(6, 7);

#endif
