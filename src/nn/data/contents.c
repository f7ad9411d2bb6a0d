/*
 * contents.c - what is in a table, or in a file of arrays: names, kinds and statistics.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "nn/data/dataset.h"
#include "nn/data/dataset_table.h"
#include "nn/data/files.h"

#include <sonde/stats.h>

#include <math.h>
#include <string.h>

static sonde_nn_part *add_part(sonde_nn_contents *contents, const char *name)
{

    if (!sonde__reserve(&contents->parts, &contents->capacity, contents->count + 1,
                        sizeof *contents->parts)) {
        return NULL;
    }
    sonde_nn_part *part = &contents->parts[contents->count];
    *part = (sonde_nn_part){.name = sonde__strdup(name)};
    contents->count += part->name != NULL ? 1 : 0;
    return part->name != NULL ? part : NULL;
}

/* --- tables ------------------------------------------------------------------------- */

static void measure(const double *values, int64_t rows, sonde_nn_part *part)
{
    double sum = 0.0, squares = 0.0;
    int64_t present = 0;

    part->minimum = (double)INFINITY;
    part->maximum = -(double)INFINITY;
    for (int64_t i = 0; i < rows; i++) {
        present += isnan(values[i]) ? 0 : 1;
        sum += isnan(values[i]) ? 0.0 : values[i];
        part->minimum = fmin(part->minimum, values[i]);
        part->maximum = fmax(part->maximum, values[i]);
    }
    part->missing = rows - present;
    part->mean = sum / (double)present; /* NaN: there is none */
    for (int64_t i = 0; i < rows; i++) {
        const double off = values[i] - part->mean;

        squares += isnan(off) ? 0.0 : off * off;
    }
    part->std = sqrt(squares / (double)present);
    if (present == 0) {
        part->mean = part->std = part->minimum = part->maximum = (double)NAN;
    }
}

/* Different texts among the rows. */
static sonde_err count_texts(const double *values, int64_t rows, size_t texts,
                             sonde_nn_part *part, sonde_diag *diag)
{
    bool *seen = sonde__calloc(texts, sizeof *seen);

    if (seen == NULL) {
        return sonde__fail_nomem(diag, "the texts of a column");
    }
    for (int64_t i = 0; i < rows; i++) {
        if (isnan(values[i])) {
            part->missing++;
        } else if (!seen[(size_t)values[i]]) {
            seen[(size_t)values[i]] = true;
            part->different++;
        }
    }
    sonde__free(seen);
    return SONDE_OK;
}

static sonde_err list_columns(sonde__data_table *table, sonde_nn_split split,
                              sonde_nn_contents *contents, sonde_diag *diag)
{
    const bool second = split == SONDE_NN_TEST && table->paths[1][0] != '\0';
    const int64_t first = second ? table->counts[0] : 0;
    const int64_t rows = table->counts[second ? 1 : 0];

    for (size_t i = 0; i < table->count; i++) {
        const sonde__data_column *column = &table->columns[i];
        sonde_nn_part *part = add_part(contents, column->name);

        if (part == NULL) {
            return sonde__fail_nomem(diag, "the contents of a table");
        }
        part->kind = column->numbers ? SONDE_NN_PART_NUMBERS : SONDE_NN_PART_TEXTS;
        part->rank = 1;
        part->shape[0] = rows;
        SONDE__TRY(sonde__data_table_values(table, i, false, false));
        if (column->numbers) {
            measure(column->values + first, rows, part);
        } else {
            SONDE__TRY(count_texts(column->values + first, rows, column->texts.count,
                                   part, diag));
        }
    }
    return SONDE_OK;
}

/* --- arrays ------------------------------------------------------------------------- */

/* The statistics of an array, by a float32 copy of it. */
static sonde_err measure_array(const sonde_view *view, sonde_nn_part *part,
                               sonde_diag *diag)
{
    size_t bytes = 0;
    sonde_view copy;
    sonde_vitals vitals;
    float *values = NULL;
    sonde_err err = SONDE_OK;

    if (sonde__mul((size_t)sonde_view_count(view), sizeof *values, &bytes)) {
        values = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    }
    if (values == NULL) {
        return sonde__fail_nomem(diag, "a copy of an array");
    }
    copy = sonde_view_of(SONDE_F32, view->rank, view->shape, values);
    err = sonde_view_copy(&copy, view, diag);
    if (err == SONDE_OK) {
        sonde_vitals_of(&copy, &vitals);
        part->missing = (int64_t)sonde_vitals_get(&vitals, SONDE_STAT_NAN);
        part->mean = sonde_vitals_get(&vitals, SONDE_STAT_MEAN);
        part->std = sonde_vitals_get(&vitals, SONDE_STAT_STD);
        part->minimum = sonde_vitals_get(&vitals, SONDE_STAT_MIN);
        part->maximum = sonde_vitals_get(&vitals, SONDE_STAT_MAX);
    }
    sonde__free(values);
    return err;
}

static sonde_err list_arrays(const char *path, sonde_nn_contents *contents,
                             sonde_diag *diag)
{
    sonde__data_arrays *arrays = NULL;
    sonde_err err = sonde__data_arrays_open(path, &arrays, diag);

    for (size_t i = 0; err == SONDE_OK && i < sonde__data_arrays_count(arrays); i++) {
        const sonde_view *view = sonde__data_arrays_view(arrays, i);
        sonde_nn_part *part = add_part(contents, sonde__data_arrays_name(arrays, i));

        if (part == NULL) {
            err = sonde__fail_nomem(diag, "the contents of a file");
            break;
        }
        part->kind = SONDE_NN_PART_ARRAY;
        part->dtype = view->dtype;
        part->rank = view->rank;
        memcpy(part->shape, view->shape, sizeof part->shape);
        err = measure_array(view, part, diag);
    }
    sonde__data_arrays_destroy(arrays);
    return err;
}

/* --- all ---------------------------------------------------------------------------- */

sonde_err sonde_nn_contents_open(const char *path, sonde_nn_split split,
                                 sonde_nn_contents **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    sonde_nn_contents *contents = sonde__calloc(1, sizeof *contents);
    sonde__data_table *table = sonde__calloc(1, sizeof *table);
    sonde_err err = SONDE_OK;

    if (contents == NULL || table == NULL) {
        err = sonde__fail_nomem(diag, "the contents of a file");
    } else if (!sonde__data_is_table(path)) {
        err = list_arrays(path, contents, diag);
    } else {
        err = sonde__data_table_read(table, path, diag);
        err = err == SONDE_OK ? list_columns(table, split, contents, diag) : err;
        sonde__data_table_fini(table);
    }
    sonde__free(table);
    if (err != SONDE_OK) {
        sonde_nn_contents_destroy(contents);
        return err;
    }
    *out = contents;
    return SONDE_OK;
}

void sonde_nn_contents_destroy(sonde_nn_contents *contents)
{
    if (contents == NULL) {
        return;
    }
    for (size_t i = 0; i < contents->count; i++) {
        sonde__free(contents->parts[i].name);
    }
    sonde__free(contents->parts);
    sonde__free(contents);
}
