/*
 * table_csv.c - the columns of tables in CSV; see table_state.h.
 *
 * The text is read twice: first to learn which columns are numbers, then for the values.
 * A column is numbers if all its cells are, but for missing ones; else its texts are
 * categories.
 */
#include "base/fail.h"
#include "base/point.h"
#include "nn/data/csv.h"
#include "nn/data/table_state.h"

#include <math.h>
#include <string.h>

static sonde_err open_csv(const sonde__data_table *t, int which, sonde__data_csv *csv)
{
    const bool tabs = sonde__data_table_ends_with(t->files[which], ".tsv") ||
                      sonde__data_table_ends_with(t->files[which], ".tsv.gz");

    return sonde__data_csv_open(csv, t->texts[which], t->sizes[which], t->files[which],
                                tabs ? '\t' : '\0', t->diag);
}

/* --- the first reading -------------------------------------------------------------- */

static sonde_err add_column(sonde__data_table *t, const sonde__data_csv *csv)
{
    for (size_t i = 0; i < t->count; i++) {
        if (csv->size > 0 && strcmp(t->columns[i].name, csv->cell) == 0) {
            return sonde__data_csv_fail(csv, SONDE_EFORMAT, NULL, "different names",
                                        t->diag, "a second column '%.80s'", csv->cell);
        }
    }
    return sonde__data_table_add_column(t, csv->cell);
}

/* The header of the first file makes the columns; that of the second is the same. */
static sonde_err read_header(sonde__data_table *t, int which, sonde__data_csv *csv)
{
    bool more = false, last = false;

    for (size_t i = 0; !last; i++) {
        sonde_err err = sonde__data_csv_next(csv, &more, t->diag);

        if (err != SONDE_OK) {
            return err;
        }
        if (!more) {
            return sonde__fail(t->diag, SONDE_EFORMAT, t->files[which],
                               "a line with the names of the columns",
                               "the table is empty");
        }
        last = csv->last;
        if (which == 0) {
            err = add_column(t, csv);
        } else if (i >= t->count || strcmp(t->columns[i].name, csv->cell) != 0 ||
                   (last && i + 1 != t->count)) {
            err = sonde__data_csv_fail(csv, SONDE_ESHAPE, NULL,
                                       "the columns of the training table", t->diag,
                                       "column '%.80s'", csv->cell);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

/* A cell of column i must be there, and the record must end with the last column. */
static sonde_err check_cell(const sonde__data_table *t, const sonde__data_csv *csv,
                            size_t i)
{
    if (csv->last == (i + 1 == t->count)) {
        return SONDE_OK;
    }
    return sonde__data_csv_fail(csv, SONDE_EFORMAT, NULL, "as many as the header has",
                                t->diag, csv->last ? "only %zu cells" : "more than %zu",
                                i + 1);
}

/* Whether the cell is a number beyond the finite ones: inf, -Infinity, 1e999. */
static bool is_infinite(const sonde__data_csv *csv)
{
    char *end = NULL;

    return csv->size > 0 && isinf(sonde__strtod(csv->cell, &end)) && *end == '\0';
}

/* Finds which columns are numbers, and counts rows. An infinite one is a mistake among
 * numbers, which the second reading reports, and a text among texts. */
static sonde_err survey_csv(sonde__data_table *t, int which)
{
    sonde__data_csv csv;
    bool more = true;
    size_t i = 0;
    double number = 0.0;
    sonde_err err = open_csv(t, which, &csv);

    if (err == SONDE_OK) {
        err = read_header(t, which, &csv);
    }
    while (err == SONDE_OK) {
        err = sonde__data_csv_next(&csv, &more, t->diag);
        if (err != SONDE_OK || !more) {
            break;
        }
        err = check_cell(t, &csv, i);
        t->columns[i].numbers =
            t->columns[i].numbers &&
            (sonde__data_csv_missing(&csv) || sonde__data_csv_number(&csv, &number) ||
             is_infinite(&csv));
        t->counts[which] += csv.last ? 1 : 0;
        i = csv.last ? 0 : i + 1;
    }
    sonde__data_csv_close(&csv);
    return err;
}

/* --- the second reading ------------------------------------------------------------- */

static sonde_err take_cell(sonde__data_table *t, const sonde__data_csv *csv, size_t i,
                           int64_t row)
{
    sonde__data_table_column *column = &t->columns[i];
    double value = (double)NAN;

    if (sonde__data_csv_missing(csv)) {
        if (i == t->target) {
            return sonde__data_csv_fail(csv, SONDE_EFORMAT, column->name, "a value",
                                        t->diag, "the target is missing");
        }
    } else if (column->numbers || (i == t->target && t->options->numbers)) {
        if (!sonde__data_csv_number(csv, &value)) {
            return sonde__data_csv_fail(csv, SONDE_EFORMAT, column->name,
                                        "a finite number", t->diag, "'%.80s'", csv->cell);
        }
    } else {
        SONDE__TRY(sonde__data_table_text_value(t, column, csv->cell, &value));
    }
    column->values[row] = value;
    return SONDE_OK;
}

static sonde_err read_csv(sonde__data_table *t, int which)
{
    sonde__data_csv csv;
    bool more = true;
    size_t i = 0, header = t->count;
    int64_t row = which == 1 ? t->counts[0] : 0;
    sonde_err err = open_csv(t, which, &csv);

    while (err == SONDE_OK) {
        err = sonde__data_csv_next(&csv, &more, t->diag);
        if (err != SONDE_OK || !more) {
            break;
        }
        if (header > 0) {
            header--;
            continue;
        }
        if (t->columns[i].values != NULL) {
            err = take_cell(t, &csv, i, row);
        }
        row += csv.last ? 1 : 0;
        i = csv.last ? 0 : i + 1;
    }
    sonde__data_csv_close(&csv);
    return err;
}

const sonde__data_table_format sonde__data_table_csv = {.survey = survey_csv,
                                                        .values = read_csv};
