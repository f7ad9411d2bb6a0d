/*
 * csv.h - a CSV table (RFC 4180) in memory as a grid of strings.
 *
 * A cell may be in quotes; two quotes in it are one, and it may hold line ends. Blanks
 * around a cell without quotes are dropped, as are empty lines and a byte order mark. Cells
 * become strings within the text: a cell costs a pointer.
 */
#ifndef SONDE_NN_DATA_CSV_H
#define SONDE_NN_DATA_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

enum { SONDE__CSV_WHERE = 220 };

typedef struct sonde__data_csv {
    const char *name; /* borrowed; for diagnostics */
    char *text;       /* owned; size bytes, and one more */
    size_t size;
    char **cells;         /* (rows, columns); the first row is the header */
    size_t rows, columns; /* the header among them */
    size_t cell_count, cell_capacity;
    int64_t *lines; /* (rows): where each begins, from 1 */
    size_t line_capacity;
} sonde__data_csv;

/*
 * Finds the cells of csv->text. delimiter 0: a comma, or a semicolon if the first line has
 * one and no comma. SONDE_EFORMAT: text that is not UTF-8, a zero byte, a quote without an
 * end, records of different lengths; diag has the line and the column.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_csv_parse(sonde__data_csv *csv,
                                                        char delimiter, sonde_diag *diag);
/* Frees the text too. A zeroed one is fine. */
SONDE_API void sonde__data_csv_fini(sonde__data_csv *csv);

/* Whether the cell was in quotes. */
static inline bool sonde__data_csv_quoted(const sonde__data_csv *csv, const char *cell)
{
    return cell > csv->text && cell[-1] == '"';
}

/* "table.csv:3: column 2 (y)", columns from 1; name may be NULL. Returns out. */
const char *sonde__data_csv_where(const sonde__data_csv *csv, int64_t line, size_t column,
                                  const char *name, char out[SONDE__CSV_WHERE]);

#endif
