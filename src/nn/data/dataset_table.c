/*
 * dataset_table.c - tables as data sets.
 *
 * Means, spreads and categories come from the training rows alone:
 *
 *     numbers      (x - mean) / spread; a missing one is 0
 *     categories   a 1 in the place of its text, in order of their bytes; a text that the
 *                  training rows lack, or a missing one, is all zeros
 *
 * Python reads Parquet (sonde/data.py): it writes a CSV file to the cache, whose texts are in
 * quotes and whose numbers are not.
 */
#include "nn/data/dataset_table.h"
#include "nn/data/files.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/python_run.h"
#include "nn/data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sonde/stats.h>

enum { CATEGORIES_MAX = 256, PATH_SIZE = SONDE__DATA_PATH };

/* --- files ---------------------------------------------------------------------------- */

static const char *const endings[] = {".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet"};

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), tail = strlen(ending);

    return length > tail && strcmp(path + length - tail, ending) == 0;
}

static bool find_file(const char *folder, sonde_nn_split split, char path[PATH_SIZE])
{
    return sonde__data_find_split(folder, split, endings, SONDE_COUNT_OF(endings), path);
}

bool sonde__data_is_table(const char *path)
{
    char file[PATH_SIZE];

    for (size_t i = 0; i < SONDE_COUNT_OF(endings); i++) {
        if (ends_with(path, endings[i])) {
            return true;
        }
    }
    return find_file(path, SONDE_NN_TRAIN, file);
}

/* The files of the path. */
static sonde_err find_files(sonde__data_table *t)
{
    if (!sonde__data_is_folder(t->path)) {
        (void)snprintf(t->paths[0], PATH_SIZE, "%s", t->path);
        return SONDE_OK;
    }
    const bool train = find_file(t->path, SONDE_NN_TRAIN, t->paths[0]);

    if (!train || !find_file(t->path, SONDE_NN_TEST, t->paths[1])) {
        return sonde__fail(
            t->diag, SONDE_ENOTFOUND, t->path, "train.csv and test.csv, or .parquet",
            "the folder has no table %s", train ? "test.csv" : "train.csv");
    }
    return SONDE_OK;
}

/* The CSV file that Python makes of a Parquet file, once for each state of the file. */
static sonde_err convert_parquet(const char *path, char out[PATH_SIZE], sonde_diag *diag)
{
    struct stat status;
    char folder[PATH_SIZE - 100];

    if (stat(path, &status) != 0) {
        return sonde__fail_errno(diag, path, "cannot open the file");
    }
    SONDE__TRY(sonde_nn_data_cache("tables", folder, sizeof folder, diag));
    SONDE__TRY(sonde__data_make_folders(folder, diag));
    (void)snprintf(out, PATH_SIZE, "%s/%jx-%jx-%jx-%jx.%09ld.csv", folder,
                   (uintmax_t)status.st_dev, (uintmax_t)status.st_ino,
                   (uintmax_t)status.st_size, (uintmax_t)status.st_mtim.tv_sec,
                   status.st_mtim.tv_nsec);
    const char *const arguments[] = {"parquet", path, out, NULL};

    return access(out, R_OK) == 0 ? SONDE_OK : sonde__python_run("data", arguments, diag);
}

static sonde_err read_file(sonde__data_table *t, int which)
{
    const char *path = t->paths[which];
    const bool tabs = ends_with(path, ".tsv") || ends_with(path, ".tsv.gz");
    const bool parquet = ends_with(path, ".parquet");
    char converted[PATH_SIZE];
    sonde__data_csv *csv = &t->files[which];
    sonde__data_input input;

    if (parquet) {
        SONDE__TRY(convert_parquet(path, converted, t->diag));
    }
    csv->name = path;
    t->typed[which] = parquet;
    SONDE__TRY(
        sonde__data_input_read(&input, parquet ? converted : path, false, t->diag));
    csv->text = (char *)input.bytes;
    csv->size = input.size;
    SONDE__TRY(sonde__data_csv_parse(csv, tabs ? '\t' : parquet ? ',' : '\0', t->diag));
    t->counts[which] = (int64_t)csv->rows - 1;
    t->rows += t->counts[which];
    return SONDE_OK;
}

/* --- columns -------------------------------------------------------------------------- */

/* The file of a row, which counts over both. */
static int file_of(const sonde__data_table *t, int64_t row)
{
    return row < t->counts[0] ? 0 : 1;
}

static const char *cell_at(const sonde__data_table *t, int64_t row, size_t column)
{
    const int which = file_of(t, row);
    const size_t place = (size_t)(row - (which == 1 ? t->counts[0] : 0)) + 1;

    return t->files[which].cells[place * t->count + column];
}

/* Whether the cell is text by its quotes. */
static bool is_text(const sonde__data_table *t, int64_t row, const char *cell)
{
    const int which = file_of(t, row);

    return t->typed[which] && sonde__data_csv_quoted(&t->files[which], cell);
}

static bool is_missing(const char *cell)
{
    static const char *const words[] = {"",     "NA",   "N/A",  "NaN", "nan",
                                        "null", "NULL", "None", "?"};

    for (size_t i = 0; i < SONDE_COUNT_OF(words); i++) {
        if (strcmp(cell, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The number of a cell, infinite ones too; false: it is text. */
static bool read_number(const char *cell, double *number)
{
    char *end = NULL;

    *number = sonde__strtod(cell, &end);
    return cell[0] != '\0' && *end == '\0' &&
           (isinf(*number) || strspn(cell, "0123456789+-.eE") == strlen(cell));
}

/* Whether all cells of a column are numbers, but for missing ones. */
static bool is_numbers(const sonde__data_table *t, size_t column)
{
    double number = 0.0;

    for (int64_t row = 0; row < t->rows; row++) {
        const char *cell = cell_at(t, row, column);

        if (is_text(t, row, cell) || (!is_missing(cell) && !read_number(cell, &number))) {
            return false;
        }
    }
    return true;
}

/* The columns of the first header; the second must be the same. */
static sonde_err read_header(sonde__data_table *t)
{
    const sonde__data_csv *first = &t->files[0], *second = &t->files[1];
    char where[SONDE__CSV_WHERE];

    t->columns = sonde__calloc(first->columns, sizeof *t->columns);
    if (t->columns == NULL) {
        return sonde__fail_nomem(t->diag, "a table");
    }
    t->count = first->columns;
    for (size_t i = 0; i < t->count; i++) {
        const char *name = first->cells[i];

        for (size_t k = 0; k < i && name[0] != '\0'; k++) {
            if (strcmp(name, first->cells[k]) == 0) {
                (void)sonde__data_csv_where(first, first->lines[0], i + 1, NULL, where);
                return sonde__fail(t->diag, SONDE_EFORMAT, where, "different names",
                                   "a second column '%.80s'", name);
            }
        }
        if (second->rows > 0 &&
            (i >= second->columns || strcmp(name, second->cells[i]) != 0 ||
             second->columns > t->count)) {
            (void)sonde__data_csv_where(second, second->lines[0], i + 1, NULL, where);
            return sonde__fail(t->diag, SONDE_ESHAPE, where,
                               "the columns of the training table", "not column '%.80s'",
                               name);
        }
        t->columns[i].name = name;
        sonde__names_init(&t->columns[i].texts);
    }
    return SONDE_OK;
}

sonde_err sonde__data_table_read(sonde__data_table *t, const char *path, sonde_diag *diag)
{
    t->path = path;
    t->diag = diag;
    SONDE__TRY(find_files(t));
    for (int i = 0; i < 2 && t->paths[i][0] != '\0'; i++) {
        SONDE__TRY(read_file(t, i));
    }
    SONDE__TRY(read_header(t));
    for (size_t i = 0; i < t->count; i++) {
        t->columns[i].numbers = is_numbers(t, i);
    }
    return SONDE_OK;
}

static sonde_err fail_cell(const sonde__data_table *t, int64_t row, size_t column,
                           const char *expected, const char *found)
{
    const int which = file_of(t, row);
    const sonde__data_csv *csv = &t->files[which];
    const int64_t line = csv->lines[row - (which == 1 ? t->counts[0] : 0) + 1];
    char where[SONDE__CSV_WHERE];

    (void)sonde__data_csv_where(csv, line, column + 1, t->columns[column].name, where);
    return sonde__fail(t->diag, SONDE_EFORMAT, where, expected, "%s", found);
}

sonde_err sonde__data_table_values(sonde__data_table *t, size_t i, bool target,
                                   bool numbers)
{
    sonde__data_column *column = &t->columns[i];

    column->values = sonde__calloc((size_t)t->rows, sizeof(double));
    if (column->values == NULL) {
        return sonde__fail_nomem(t->diag, "a table");
    }
    for (int64_t row = 0; row < t->rows; row++) {
        const char *cell = cell_at(t, row, i);
        double *value = &column->values[row];

        *value = (double)NAN;
        if (is_missing(cell) && (cell[0] == '\0' || !is_text(t, row, cell))) {
            if (target) {
                return fail_cell(t, row, i, "a value", "the target is missing");
            }
        } else if (column->numbers || (target && numbers)) {
            if (!read_number(cell, value) || isinf(*value)) {
                char found[100];

                (void)snprintf(found, sizeof found, "'%.80s'", cell);
                return fail_cell(t, row, i, "a finite number", found);
            }
        } else {
            const uint32_t id = sonde__names_intern(&column->texts, cell);

            if (id == SONDE__NO_NAME) {
                return sonde__fail_nomem(t->diag, "a table");
            }
            *value = (double)id;
        }
    }
    return SONDE_OK;
}

void sonde__data_table_fini(sonde__data_table *t)
{
    for (size_t i = 0; i < t->count; i++) {
        sonde__free(t->columns[i].values);
        sonde__free(t->columns[i].places);
        sonde__names_fini(&t->columns[i].texts);
    }
    sonde__free(t->columns);
    sonde__free(t->training);
    sonde__data_csv_fini(&t->files[0]);
    sonde__data_csv_fini(&t->files[1]);
}

/* --- inputs and target ---------------------------------------------------------------- */

static size_t find_column(const sonde__data_table *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++) {
        if (name[0] != '\0' && strcmp(t->columns[i].name, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static sonde_err fail_column(const sonde__data_table *t, const char *name)
{
    char all[220] = "";

    for (size_t i = 0; i < t->count; i++) {
        const size_t used = strlen(all);

        (void)snprintf(all + used, sizeof all - used, "%s%.40s", i > 0 ? ", " : "",
                       t->columns[i].name);
    }
    return sonde__fail(t->diag, SONDE_ENOTFOUND, t->path, all, "no column '%s'", name);
}

/* *target SIZE_MAX: there is none. */
static sonde_err find_target(const sonde__data_table *t, const char *wanted,
                             size_t *target)
{
    static const char *const names[] = {"y", "Y", "target", "label", "class"};

    *target = SIZE_MAX;
    if (wanted != NULL && wanted[0] == '\0') {
        return SONDE_OK;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(names) && *target == SIZE_MAX; i++) {
        *target = find_column(t, wanted != NULL ? wanted : names[i]);
    }
    return *target != SIZE_MAX ? SONDE_OK
                               : fail_column(t, wanted != NULL ? wanted : "target");
}

/* Reads the values of the inputs: those named, or all columns with a name but the target. */
static sonde_err read_inputs(sonde__data_table *t,
                             const sonde_nn_dataset_options *options, size_t target)
{
    for (size_t i = 0; options->input_count == 0 && i < t->count; i++) {
        if (i != target && t->columns[i].name[0] != '\0') {
            SONDE__TRY(sonde__data_table_values(t, i, false, false));
        }
    }
    for (size_t i = 0; i < options->input_count; i++) {
        const size_t column = find_column(t, options->inputs[i]);

        if (column == SIZE_MAX) {
            return fail_column(t, options->inputs[i]);
        }
        if (t->columns[column].values == NULL) {
            SONDE__TRY(
                sonde__data_table_values(t, column, column == target, options->numbers));
        }
    }
    return SONDE_OK;
}

/* Marks the training rows: those of the first file, or those that are drawn. */
static sonde_err mark_training(sonde__data_table *t,
                               const sonde_nn_dataset_options *options)
{
    const sonde_nn_dataset all = {.traits = {.count = t->rows, .source = t->path}};
    sonde_nn_dataset *test = NULL;

    t->training = sonde__calloc((size_t)t->rows, sizeof *t->training);
    if (t->training == NULL) {
        return sonde__fail_nomem(t->diag, "rows of a table");
    }
    if (t->paths[1][0] != '\0') {
        const int wanted = options->split == SONDE_NN_TEST ? 1 : 0;

        if (t->counts[0] == 0 || t->counts[wanted] == 0) {
            return sonde__fail(t->diag, SONDE_ERANGE, t->paths[wanted],
                               "at least one row", "the table has no rows");
        }
        memset(t->training, true, (size_t)t->counts[0]);
        return SONDE_OK;
    }
    if (t->rows < 2) {
        return sonde__fail(t->diag, SONDE_ERANGE, t->path, "at least 2",
                           "%" PRId64 " rows for two splits", t->rows);
    }
    SONDE__TRY(sonde_nn_dataset_split(&all, sonde__dataset_test_count(options, t->rows),
                                      options->seed, &test, NULL, t->diag));
    memset(t->training, true, (size_t)t->rows);
    for (int64_t i = 0; i < test->traits.count; i++) {
        t->training[test->chosen[i]] = false;
    }
    sonde_nn_dataset_destroy(test);
    return SONDE_OK;
}

/* Mean and spread of the training rows. */
static void measure_numbers(const sonde__data_table *t, sonde__data_column *column)
{
    double sum = 0.0, squares = 0.0;
    int64_t n = 0;

    for (int64_t i = 0; i < t->rows; i++) {
        if (t->training[i] && !isnan(column->values[i])) {
            sum += column->values[i];
            n++;
        }
    }
    column->mean = n > 0 ? sum / (double)n : 0.0;
    for (int64_t i = 0; i < t->rows; i++) {
        const double off = column->values[i] - column->mean;

        squares += t->training[i] && !isnan(off) ? off * off : 0.0;
    }
    column->spread = n > 0 ? sqrt(squares / (double)n) : 0.0;
    column->spread = column->spread > 0.0 ? column->spread : 1.0;
    column->width = 1;
}

/* A text and its id, sorted by the text. */
typedef struct category {
    const char *text;
    size_t id;
} category;

static int by_text(const void *a, const void *b)
{
    return strcmp(((const category *)a)->text, ((const category *)b)->text);
}

/* Gives the texts of the training rows, or of all rows, places in order of their bytes. */
static sonde_err place_texts(const sonde__data_table *t, sonde__data_column *column,
                             bool all)
{
    const size_t texts = column->texts.count;
    category *list = sonde__calloc(texts, sizeof *list);
    size_t used = 0;

    column->places = sonde__calloc(texts, sizeof *column->places);
    if (list == NULL || column->places == NULL) {
        sonde__free(list);
        return sonde__fail_nomem(t->diag, "categories");
    }
    for (int64_t i = 0; i < t->rows; i++) {
        if (!isnan(column->values[i]) && (all || t->training[i])) {
            column->places[(size_t)column->values[i]] = 1;
        }
    }
    for (size_t id = 0; id < texts; id++) {
        if (column->places[id] == 1) {
            list[used++] = (category){column->texts.text[id], id};
        }
        column->places[id] = -1;
    }
    if (used > 0) {
        qsort(list, used, sizeof *list, by_text);
    }
    for (size_t i = 0; i < used; i++) {
        column->places[list[i].id] = (int64_t)i;
    }
    sonde__free(list);
    column->width = (int64_t)used;
    return used <= CATEGORIES_MAX
               ? SONDE_OK
               : sonde__fail(
                     t->diag, SONDE_ERANGE, t->path,
                     "at most 256 categories: name the inputs without this column",
                     "column '%s' has %zu different texts", column->name, used);
}

/* --- the data set --------------------------------------------------------------------- */

/* The inputs of a column, width of them, in one row. */
static void put_inputs(const sonde__data_column *column, double value, bool standardize,
                       float *out)
{
    if (column->numbers) {
        const double number = isnan(value) ? column->mean : value;

        *out = (float)(standardize ? (number - column->mean) / column->spread : number);
        return;
    }
    for (int64_t k = 0; k < column->width; k++) {
        out[k] = !isnan(value) && column->places[(size_t)value] == k ? 1.0F : 0.0F;
    }
}

static sonde_err put_data(sonde__data_table *t, const sonde_nn_dataset_options *options,
                          sonde_nn_dataset *set)
{
    const bool train = options->split == SONDE_NN_TRAIN;
    int64_t shape[2] = {0};
    size_t bytes = 0;

    for (size_t i = 0; i < t->count; i++) {
        sonde__data_column *column = &t->columns[i];

        if (column->values != NULL && column->numbers) {
            measure_numbers(t, column);
        } else if (column->values != NULL) {
            SONDE__TRY(place_texts(t, column, false));
        }
        shape[1] += column->width;
    }
    for (int64_t i = 0; i < t->rows; i++) {
        shape[0] += t->training[i] == train ? 1 : 0;
    }
    if (shape[1] == 0) {
        return sonde__fail(t->diag, SONDE_EINVAL, t->path, "a column besides the target",
                           "the table has no inputs");
    }
    if (sonde__mul((size_t)shape[0], (size_t)shape[1] * sizeof(float), &bytes)) {
        set->owned_data = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    }
    if (set->owned_data == NULL) {
        return sonde__fail_nomem(t->diag, "a table");
    }
    float *out = set->owned_data;
    for (int64_t i = 0; i < t->rows; i++) {
        for (size_t k = 0; k < t->count && t->training[i] == train; k++) {
            if (t->columns[k].values != NULL) {
                put_inputs(&t->columns[k], t->columns[k].values[i],
                           !options->no_standardize, out);
                out += t->columns[k].width;
            }
        }
    }
    const sonde_view data = sonde_view_of(SONDE_F32, 2, shape, set->owned_data);

    set->traits.ready = true;
    return sonde__dataset_set_data(set, &data, t->path, t->diag);
}

/* A target of numbers. */
static sonde_err put_numbers(const sonde__data_table *t, const sonde__data_column *column,
                             bool train, sonde_nn_dataset *set)
{
    const int64_t shape[2] = {set->traits.count, 1};
    float *out = sonde__calloc((size_t)shape[0], sizeof *out);

    if (out == NULL) {
        return sonde__fail_nomem(t->diag, "a target");
    }
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, out);

    set->owned_fields[0] = out;
    for (int64_t i = 0; i < t->rows; i++) {
        if (t->training[i] == train) {
            *out++ = (float)column->values[i];
        }
    }
    set->traits.has_target = true;
    return sonde__dataset_add_field(set, column->name, &view, t->diag);
}

/* The classes of texts have their names. */
static sonde_err name_classes(const sonde__data_table *t,
                              const sonde__data_column *column, sonde_nn_dataset *set)
{
    for (int64_t k = 0; k < column->width; k++) {
        for (size_t id = 0; id < column->texts.count; id++) {
            if (column->places[id] == k) {
                SONDE__TRY(sonde__dataset_add_name(set, column->texts.text[id], t->diag));
            }
        }
    }
    set->traits.has_labels = true;
    return SONDE_OK;
}

/* Texts are classes in order of their bytes; whole numbers are themselves. */
static sonde_err put_classes(const sonde__data_table *t, sonde__data_column *column,
                             bool train, sonde_nn_dataset *set)
{
    if (!column->numbers) {
        sonde__free(column->places);
        SONDE__TRY(place_texts(t, column, true));
    }
    int64_t *out = sonde__calloc((size_t)set->traits.count, sizeof *out);

    if (out == NULL) {
        return sonde__fail_nomem(t->diag, "a target");
    }
    set->labels = set->owned_labels = out;
    for (int64_t i = 0; i < t->rows; i++) {
        const double value = column->values[i];

        if (t->training[i] != train) {
            continue;
        }
        if (column->numbers && !(value >= 0.0 && value < 1e9 && value == floor(value))) {
            return sonde__fail(t->diag, SONDE_ERANGE, t->path,
                               "whole numbers from 0, or a loss with target: values",
                               "class %g in column '%s'", value, column->name);
        }
        *out++ = column->numbers ? (int64_t)value : column->places[(size_t)value];
    }
    return column->numbers
               ? sonde__dataset_set_all_classes(set, set->traits.count, t->path, t->diag)
               : name_classes(t, column, set);
}

static sonde_err fill(sonde__data_table *t, const sonde_nn_dataset_options *options,
                      sonde_nn_dataset *set)
{
    const bool train = options->split == SONDE_NN_TRAIN;
    size_t target = SIZE_MAX;

    SONDE__TRY(sonde__dataset_set_source(
        set, t->paths[!train && t->paths[1][0] != '\0' ? 1 : 0], t->diag));
    SONDE__TRY(find_target(t, options->target, &target));
    SONDE__TRY(read_inputs(t, options, target));
    SONDE__TRY(mark_training(t, options));
    SONDE__TRY(put_data(t, options, set));
    if (target == SIZE_MAX) {
        return SONDE_OK;
    }
    if (t->columns[target].values == NULL) {
        SONDE__TRY(sonde__data_table_values(t, target, true, options->numbers));
    }
    return options->numbers ? put_numbers(t, &t->columns[target], train, set)
                            : put_classes(t, &t->columns[target], train, set);
}

sonde_err sonde__data_open_table(sonde__data_opening *o)
{
    sonde__data_table *t = sonde__calloc(1, sizeof *t);

    if (t == NULL) {
        return sonde__fail_nomem(o->diag, "a data set");
    }
    sonde_err err = sonde__data_table_read(t, o->path, o->diag);

    err = err == SONDE_OK ? fill(t, o->options, o->set) : err;
    sonde__data_table_fini(t);
    sonde__free(t);
    return err;
}
