/*
 * table_parquet.c - the columns of tables in Parquet; see table_state.h.
 *
 * A column that cannot be read is an error only if it is asked for. The column that pandas
 * makes of a table's index has no name here.
 */
#include "base/fail.h"
#include "nn/data/parquet.h"
#include "nn/data/table_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static sonde_err open_file(const sonde__data_table *t, int which,
                           sonde__data_parquet *file)
{
    const char *bytes = t->texts[which] != NULL ? t->texts[which] : "";

    return sonde__data_parquet_open(file, bytes, t->sizes[which], t->files[which],
                                    t->diag);
}

static const char *column_name(const sonde__data_parquet_column *column)
{
    static const char index[] = "__index_level_";

    return strncmp(column->name, index, sizeof index - 1) == 0 ? "" : column->name;
}

static sonde_err add_column(sonde__data_table *t, const sonde__data_parquet *file,
                            size_t i)
{
    const char *name = column_name(&file->columns[i]);
    sonde_err err = SONDE_OK;

    if (sonde__data_table_find_column(t, name) != SIZE_MAX) {
        return sonde__fail(t->diag, SONDE_EFORMAT, file->name, "different names",
                           "a second column '%.80s'", name);
    }
    err = sonde__data_table_add_column(t, name);
    if (err == SONDE_OK) {
        t->columns[i].numbers = !file->columns[i].text;
        t->columns[i].refusal = file->columns[i].refusal;
    }
    return err;
}

/* Column i of the second table is that of the first. */
static sonde_err check_column(const sonde__data_table *t, const sonde__data_parquet *file,
                              size_t i)
{
    const sonde__data_parquet_column *column = &file->columns[i];

    if (i >= t->count || strcmp(t->columns[i].name, column_name(column)) != 0) {
        return sonde__fail(t->diag, SONDE_ESHAPE, file->name,
                           "the columns of the training table", "column '%.80s'",
                           column->name);
    }
    if (column->refusal == NULL && t->columns[i].numbers == column->text) {
        return sonde__fail(t->diag, SONDE_EDTYPE, file->name,
                           column->text ? "numbers, as in the training table"
                                        : "texts, as in the training table",
                           "column '%.80s'", column->name);
    }
    return SONDE_OK;
}

static sonde_err survey_parquet(sonde__data_table *t, int which)
{
    sonde__data_parquet file;
    sonde_err err = open_file(t, which, &file);

    for (size_t i = 0; i < file.count && err == SONDE_OK; i++) {
        err = which == 0 ? add_column(t, &file, i) : check_column(t, &file, i);
    }
    if (err == SONDE_OK && file.count < t->count) {
        err = sonde__fail(t->diag, SONDE_ESHAPE, file.name,
                          "the columns of the training table", "no column '%.80s'",
                          t->columns[file.count].name);
    }
    t->counts[which] = file.rows;
    sonde__data_parquet_close(&file);
    return err;
}

/* --- values ------------------------------------------------------------------------- */

typedef struct taking {
    sonde__data_table *table;
    sonde__data_table_column *column;
    const char *file;
    int64_t first; /* the row of the table that is the file's first */
    bool target;
} taking;

static sonde_err fail_value(const taking *taken, int64_t row, const char *expected,
                            const char *found, sonde_diag *diag)
{
    char where[200];

    (void)snprintf(where, sizeof where, "%.120s: row %" PRId64 ", column '%.40s'",
                   taken->file, row, taken->column->name);
    return sonde__fail(diag, SONDE_EFORMAT, where, expected, "%s", found);
}

/* NaN is missing, as in CSV. */
static sonde_err take_value(void *user, int64_t row,
                            const sonde__data_parquet_value *found, sonde_diag *diag)
{
    const taking *taken = user;
    double value = found->missing ? (double)NAN : found->number;

    if (taken->target && (found->missing || isnan(found->number))) {
        return fail_value(taken, row, "a value", "the target is missing", diag);
    }
    if (isinf(value)) {
        return fail_value(taken, row, "a finite number", value > 0.0 ? "inf" : "-inf",
                          diag);
    }
    if (!taken->column->numbers && !found->missing) {
        SONDE__TRY(sonde__data_table_text_value(taken->table, taken->column, found->text,
                                                &value));
    }
    taken->column->values[taken->first + row] = value;
    return SONDE_OK;
}

static sonde_err read_column(sonde__data_table *t, const sonde__data_parquet *file,
                             int which, size_t i)
{
    taking taken = {.table = t,
                    .column = &t->columns[i],
                    .file = file->name,
                    .first = which == 1 ? t->counts[0] : 0,
                    .target = i == t->target};

    if (taken.target && t->options->numbers && file->columns[i].text) {
        return sonde__fail(t->diag, SONDE_EDTYPE, file->name,
                           "a column of numbers, or a loss of classes",
                           "target '%.80s' is text", taken.column->name);
    }
    return sonde__data_parquet_read(file, i, take_value, &taken, t->diag);
}

static sonde_err read_parquet(sonde__data_table *t, int which)
{
    sonde__data_parquet file;
    sonde_err err = open_file(t, which, &file);

    for (size_t i = 0; i < file.count && err == SONDE_OK; i++) {
        if (t->columns[i].values != NULL) {
            err = read_column(t, &file, which, i);
        }
    }
    sonde__data_parquet_close(&file);
    return err;
}

const sonde__data_table_format sonde__data_table_parquet = {
    .survey = survey_parquet, .values = read_parquet, .raw = true};
