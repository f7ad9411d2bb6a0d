/*
 * dataset_table.c - tables as data sets; table_csv.c and table_parquet.c read them.
 *
 * Means, spreads and categories come from the training rows alone:
 *
 *     numbers      (x - mean) / spread; a missing one is 0
 *     categories   a 1 in the place of its text, in order of their bytes; a text that the
 *                  training rows lack, or a missing one, is all zeros
 */
#include "base/fail.h"
#include "base/given.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/dataset.h"
#include "nn/data/input.h"
#include "nn/data/parts.h"
#include "nn/data/table_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CATEGORIES_MAX = 256 };

/* --- files ---------------------------------------------------------------------------- */

static const char *const endings[] = {".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet"};

/* The table of a split in a folder. */
static bool find_file(const char *folder, sonde_nn_split split,
                      char path[SONDE__TABLE_PATH])
{
    static const char *const names[] = {"train", "test"};
    struct stat status;

    for (size_t i = 0; i < SONDE_COUNT_OF(endings); i++) {
        const int length = snprintf(path, SONDE__TABLE_PATH, "%s/%s%s", folder,
                                    names[split], endings[i]);

        if (length > 0 && length < SONDE__TABLE_PATH && stat(path, &status) == 0 &&
            S_ISREG(status.st_mode)) {
            return true;
        }
    }
    path[0] = '\0';
    return false;
}

bool sonde_nn_dataset_is_table(const char *path)
{
    char file[SONDE__TABLE_PATH];

    for (size_t i = 0; path != NULL && i < SONDE_COUNT_OF(endings); i++) {
        if (sonde__data_table_ends_with(path, endings[i])) {
            return true;
        }
    }
    return path != NULL && find_file(path, SONDE_NN_TRAIN, file);
}

static sonde_err read_file(sonde__data_table *t, int which)
{
    enum { BLOCK = 64 * 1024 };
    sonde__data_input input;
    size_t got = 0;
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde__data_input_open(&input, t->files[which], t->diag));
    if (t->format->raw) {
        sonde__data_input_raw(&input);
    }
    do {
        if (!sonde__reserve(&t->texts[which], &t->capacities[which],
                            t->sizes[which] + BLOCK, 1)) {
            err = sonde__fail_nomem(t->diag, "a table");
            break;
        }
        err = sonde__data_input_read_some(&input, t->texts[which] + t->sizes[which],
                                          BLOCK, &got, t->diag);
        t->sizes[which] += err == SONDE_OK ? got : 0;
    } while (err == SONDE_OK && got > 0);
    sonde__data_input_close(&input);
    return err;
}

/* --- columns -------------------------------------------------------------------------- */

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

static sonde_err find_target(sonde__data_table *t)
{
    static const char *const names[] = {"y", "Y", "target", "label", "class"};
    const char *asked = t->options->target;

    t->target = SIZE_MAX;
    if (asked != NULL && asked[0] == '\0') {
        return SONDE_OK;
    }
    if (asked != NULL) {
        t->target = sonde__data_table_find_column(t, asked);
    }
    for (size_t i = 0;
         asked == NULL && t->target == SIZE_MAX && i < SONDE_COUNT_OF(names); i++) {
        t->target = sonde__data_table_find_column(t, names[i]);
    }
    return t->target != SIZE_MAX ? SONDE_OK
                                 : fail_column(t, asked != NULL ? asked : "target");
}

/* The inputs: those asked for, or all columns with a name but the target. */
static sonde_err choose_columns(sonde__data_table *t)
{
    const sonde_nn_table_options *options = t->options;
    sonde_err err = SONDE_OK;

    if (t->all) {
        t->target = SIZE_MAX;
        for (size_t i = 0; i < t->count; i++) {
            t->columns[i].used = t->columns[i].refusal == NULL;
        }
        return SONDE_OK;
    }
    err = find_target(t);

    for (size_t i = 0; i < t->count; i++) {
        t->columns[i].used =
            options->input_count == 0 && i != t->target && t->columns[i].name[0] != '\0';
    }
    for (size_t i = 0; i < options->input_count && err == SONDE_OK; i++) {
        const size_t column = sonde__data_table_find_column(t, options->inputs[i]);

        if (column == SIZE_MAX) {
            err = fail_column(t, options->inputs[i]);
        } else {
            t->columns[column].used = true;
        }
    }
    return err;
}

/* Room for the values of the columns that are read. A Parquet file of some bytes may claim
 * any number of rows: what no memory holds is refused before it is touched. */
static sonde_err make_room(sonde__data_table *t)
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double cells = 0.0;

    t->rows = t->counts[0] + t->counts[1];
    for (size_t i = 0; i < t->count; i++) {
        cells += t->columns[i].used || i == t->target ? (double)t->rows : 0.0;
    }
    if (memory > 0.0 && cells * sizeof(double) > memory) {
        return sonde__fail(t->diag, SONDE_ENOMEM, t->path,
                           "columns that fit in this machine's memory",
                           "%" PRId64 " rows", t->rows);
    }
    for (size_t i = 0; i < t->count; i++) {
        if (t->columns[i].used || i == t->target) {
            t->columns[i].values = sonde__calloc((size_t)t->rows, sizeof(double));
            if (t->columns[i].values == NULL) {
                return sonde__fail_nomem(t->diag, "a table");
            }
        }
    }
    return SONDE_OK;
}

static sonde_err read_table(sonde__data_table *t)
{
    const int files = t->files[1][0] != '\0' ? 2 : 1;
    sonde_err err = SONDE_OK;

    for (int i = 0; i < files && err == SONDE_OK; i++) {
        err = read_file(t, i);
        if (err == SONDE_OK) {
            err = t->format->survey(t, i);
        }
    }
    if (err == SONDE_OK) {
        err = choose_columns(t);
    }
    if (err == SONDE_OK) {
        err = make_room(t);
    }
    for (int i = 0; i < files && err == SONDE_OK; i++) {
        err = t->format->values(t, i);
        sonde__free(t->texts[i]);
        t->texts[i] = NULL;
    }
    return err;
}

/* --- splits --------------------------------------------------------------------------- */

/* Rows first ... first + count - 1; NULL: out of memory. */
static int64_t *list_rows(int64_t first, int64_t count)
{
    int64_t *rows = sonde__calloc((size_t)count, sizeof *rows);

    for (int64_t i = 0; rows != NULL && i < count; i++) {
        rows[i] = first + i;
    }
    return rows;
}

/* Takes the rows of a part. */
static void take_rows(sonde_nn_dataset *part, int64_t **rows, int64_t *count)
{
    *rows = part->chosen;
    *count = part->traits.count;
    part->chosen = NULL;
}

static sonde_err draw_rows(sonde__data_table *t)
{
    const sonde__data_draw draw = {t->options->split, t->options->test_share,
                                   t->options->seed};
    const sonde_nn_dataset all = {.traits = {.count = t->rows, .source = t->path}};
    sonde_nn_dataset *test = NULL, *train = NULL;

    if (t->rows < 2) {
        return sonde__fail(t->diag, SONDE_ERANGE, t->path, "at least 2",
                           "%" PRId64 " rows for two splits", t->rows);
    }
    SONDE__TRY(sonde_nn_dataset_split(&all, sonde__dataset_test_count(&draw, t->rows),
                                      draw.seed, &test, &train, t->diag));
    take_rows(train, &t->train, &t->train_count);
    if (draw.split == SONDE_NN_TEST) {
        take_rows(test, &t->wanted, &t->wanted_count);
    }
    sonde_nn_dataset_destroy(test);
    sonde_nn_dataset_destroy(train);
    return SONDE_OK;
}

/* The rows of the training and of the split. */
static sonde_err split_rows(sonde__data_table *t)
{
    const bool test = t->options->split == SONDE_NN_TEST;
    sonde_err err = SONDE_OK;

    if (t->files[1][0] == '\0') {
        err = draw_rows(t);
    } else {
        t->train_count = t->counts[0];
        t->wanted_count = test ? t->counts[1] : 0;
        t->train = list_rows(0, t->train_count);
        t->wanted = test ? list_rows(t->counts[0], t->wanted_count) : NULL;
        if (t->train == NULL || (test && t->wanted == NULL)) {
            err = sonde__fail_nomem(t->diag, "rows of a table");
        }
    }
    if (err == SONDE_OK && (t->train_count == 0 || (test && t->wanted_count == 0))) {
        return sonde__fail(t->diag, SONDE_ERANGE,
                           t->files[test && t->files[1][0] ? 1 : 0], "at least one row",
                           "the table has no rows");
    }
    return err;
}

/* --- what the training rows say ------------------------------------------------------- */

static void measure_numbers(const sonde__data_table *t, sonde__data_table_column *column)
{
    double sum = 0.0, squares = 0.0;
    int64_t n = 0;

    for (int64_t i = 0; i < t->train_count; i++) {
        const double value = column->values[t->train[i]];

        sum += isnan(value) ? 0.0 : value;
        n += isnan(value) ? 0 : 1;
    }
    column->mean = n > 0 ? sum / (double)n : 0.0;
    for (int64_t i = 0; i < t->train_count; i++) {
        const double off = column->values[t->train[i]] - column->mean;

        squares += isnan(off) ? 0.0 : off * off;
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

/* Gives the texts of rows, or all texts with rows NULL, places in order of their bytes. */
static sonde_err place_texts(sonde__data_table *t, sonde__data_table_column *column,
                             const int64_t *rows, int64_t count)
{
    const size_t texts = column->texts.count;
    category *list = sonde__calloc(texts, sizeof *list);
    size_t used = 0;

    column->places = sonde__calloc(texts, sizeof *column->places);
    if (list == NULL || column->places == NULL) {
        sonde__free(list);
        return sonde__fail_nomem(t->diag, "categories");
    }
    for (int64_t i = 0; rows != NULL && i < count; i++) {
        const double id = column->values[rows[i]];

        if (!isnan(id)) {
            column->places[(size_t)id] = 1;
        }
    }
    for (size_t id = 0; id < texts; id++) {
        if (rows == NULL || column->places[id] == 1) {
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

static sonde_err measure(sonde__data_table *t, int64_t *width)
{
    sonde_err err = SONDE_OK;

    *width = 0;
    for (size_t i = 0; i < t->count && err == SONDE_OK; i++) {
        sonde__data_table_column *column = &t->columns[i];

        if (!column->used) {
            continue;
        }
        if (column->numbers) {
            measure_numbers(t, column);
        } else {
            err = place_texts(t, column, t->train, t->train_count);
        }
        *width += column->width;
    }
    if (err == SONDE_OK && *width == 0) {
        return sonde__fail(t->diag, SONDE_EINVAL, t->path, "a column besides the target",
                           "the table has no inputs");
    }
    return err;
}

/* --- the data set --------------------------------------------------------------------- */

/* The inputs of a column, width of them, in one row. */
static void put_inputs(const sonde__data_table *t, const sonde__data_table_column *column,
                       int64_t row, float *out)
{
    const double value = column->values[row];

    if (column->numbers) {
        const double number = isnan(value) ? column->mean : value;

        *out = t->options->no_standardise
                   ? (float)number
                   : (float)((number - column->mean) / column->spread);
        return;
    }
    for (int64_t k = 0; k < column->width; k++) {
        out[k] = !isnan(value) && column->places[(size_t)value] == k ? 1.0F : 0.0F;
    }
}

static sonde_err put_data(const sonde__data_table *t, sonde_nn_dataset *set,
                          int64_t width)
{
    const bool test = t->options->split == SONDE_NN_TEST;
    const int64_t *rows = test ? t->wanted : t->train;
    const int64_t count = test ? t->wanted_count : t->train_count;
    const int64_t shape[2] = {count, width};
    size_t values = 0, bytes = 0;
    float *out = NULL;
    sonde_view data;

    if (!sonde__mul((size_t)count, (size_t)width, &values) ||
        !sonde__mul(values, sizeof *out, &bytes)) {
        return sonde__fail_nomem(t->diag, "a table");
    }
    out = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    if (out == NULL) {
        return sonde__fail_nomem(t->diag, "a table");
    }
    set->owned_data = out;
    for (int64_t i = 0; i < count; i++) {
        for (size_t k = 0; k < t->count; k++) {
            if (t->columns[k].used) {
                put_inputs(t, &t->columns[k], rows[i], out);
                out += t->columns[k].width;
            }
        }
    }
    data = sonde_view_of(SONDE_F32, 2, shape, set->owned_data);
    set->traits.ready = true;
    return sonde__dataset_set_data(set, &data, t->path, t->diag);
}

/* A target of numbers. */
static sonde_err put_numbers(const sonde__data_table *t, sonde_nn_dataset *set,
                             const int64_t *rows)
{
    const sonde__data_table_column *column = &t->columns[t->target];
    const int64_t shape[2] = {set->traits.count, 1};
    float *out = sonde__calloc((size_t)shape[0], sizeof *out);
    sonde_view view;

    if (out == NULL) {
        return sonde__fail_nomem(t->diag, "a target");
    }
    set->owned_fields[0] = out;
    for (int64_t i = 0; i < shape[0]; i++) {
        out[i] = (float)column->values[rows[i]];
    }
    view = sonde_view_of(SONDE_F32, 2, shape, out);
    set->traits.has_target = true;
    return sonde__dataset_add_field(set, column->name, &view, t->diag);
}

/* Texts are classes in order of their bytes, and name them; whole numbers are themselves. */
static sonde_err put_classes(sonde__data_table *t, sonde_nn_dataset *set,
                             const int64_t *rows)
{
    sonde__data_table_column *column = &t->columns[t->target];
    sonde_err err = column->numbers ? SONDE_OK : place_texts(t, column, NULL, 0);

    set->owned_labels =
        sonde__calloc((size_t)set->traits.count, sizeof *set->owned_labels);
    if (set->owned_labels == NULL) {
        return sonde__fail_nomem(t->diag, "a target");
    }
    set->labels = set->owned_labels;
    for (int64_t i = 0; i < set->traits.count && err == SONDE_OK; i++) {
        const double value = column->values[rows[i]];

        if (!column->numbers) {
            set->owned_labels[i] = column->places[(size_t)value];
        } else if (value >= 0.0 && value < 1e9 && value == floor(value)) {
            set->owned_labels[i] = (int64_t)value;
        } else {
            err = sonde__fail(t->diag, SONDE_ERANGE, t->path,
                              "whole numbers from 0, or a loss with target: values",
                              "class %g in column '%s'", value, column->name);
        }
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (column->numbers) {
        return sonde__dataset_set_all_classes(set, set->traits.count, t->path, t->diag);
    }
    set->traits.has_labels = true;
    for (int64_t k = 0; k < column->width && err == SONDE_OK; k++) {
        for (size_t id = 0; id < column->texts.count && err == SONDE_OK; id++) {
            if (column->places[id] == k) {
                err = sonde__dataset_add_name(set, column->texts.text[id], t->diag);
            }
        }
    }
    return err;
}

static void fini(sonde__data_table *t)
{
    for (size_t i = 0; i < t->count; i++) {
        sonde__free(t->columns[i].name);
        sonde__free(t->columns[i].values);
        sonde__free(t->columns[i].places);
        sonde__names_fini(&t->columns[i].texts);
    }
    sonde__free(t->columns);
    sonde__free(t->texts[0]);
    sonde__free(t->texts[1]);
    sonde__free(t->train);
    sonde__free(t->wanted);
}

static sonde_err fill(sonde__data_table *t, sonde_nn_dataset *set)
{
    const bool test = t->options->split == SONDE_NN_TEST;
    int64_t width = 0;
    sonde_err err = sonde__dataset_set_source(
        set, t->files[test && t->files[1][0] != '\0' ? 1 : 0], t->diag);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(read_table(t));
    SONDE__TRY(split_rows(t));
    SONDE__TRY(measure(t, &width));
    err = put_data(t, set, width);
    if (err != SONDE_OK || t->target == SIZE_MAX) {
        return err;
    }
    return t->options->numbers ? put_numbers(t, set, test ? t->wanted : t->train)
                               : put_classes(t, set, test ? t->wanted : t->train);
}

/* The files of a path, and their format. */
static sonde_err find_files(sonde__data_table *t)
{
    struct stat status;

    t->format = &sonde__data_table_csv;
    if (stat(t->path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        (void)snprintf(t->files[0], SONDE__TABLE_PATH, "%s", t->path);
        t->format = sonde__data_table_ends_with(t->path, ".parquet")
                        ? &sonde__data_table_parquet
                        : &sonde__data_table_csv;
        return SONDE_OK;
    }
    if (!find_file(t->path, SONDE_NN_TRAIN, t->files[0]) ||
        !find_file(t->path, SONDE_NN_TEST, t->files[1])) {
        return sonde__fail(t->diag, SONDE_ENOTFOUND, t->path,
                           "train.csv and test.csv, or .parquet",
                           "the folder has no table %s",
                           t->files[0][0] == '\0' ? "train.csv" : "test.csv");
    }
    if (sonde__data_table_ends_with(t->files[0], ".parquet") !=
        sonde__data_table_ends_with(t->files[1], ".parquet")) {
        return sonde__fail(t->diag, SONDE_EUNSUPPORTED, t->files[1],
                           "the format of the training table",
                           "one table is CSV, the other Parquet");
    }
    if (sonde__data_table_ends_with(t->files[0], ".parquet")) {
        t->format = &sonde__data_table_parquet;
    }
    return SONDE_OK;
}

void sonde__data_table_destroy(sonde__data_table *t)
{
    if (t != NULL) {
        fini(t);
    }
    sonde__free(t);
}

sonde_err sonde__data_table_read(const char *path, sonde__data_table **out,
                                 sonde_diag *diag)
{
    static const sonde_nn_table_options options = {.size = sizeof options};
    sonde__data_table *t = sonde__calloc(1, sizeof *t);
    sonde_err err = SONDE_OK;

    if (t == NULL) {
        return sonde__fail_nomem(diag, "a table");
    }
    t->options = &options;
    t->path = path;
    t->diag = diag;
    t->all = true;
    err = find_files(t);
    if (err == SONDE_OK) {
        err = read_table(t);
    }
    if (err != SONDE_OK) {
        sonde__data_table_destroy(t);
        return err;
    }
    *out = t;
    return SONDE_OK;
}

sonde_err sonde_nn_dataset_open_table(const char *path,
                                      const sonde_nn_table_options *given,
                                      sonde_nn_dataset **out, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "path, options, out", path, given, out);
    sonde_nn_table_options options;
    SONDE__TAKE(sonde_nn_table_options, &options, given, diag);
    sonde__data_table *t = sonde__calloc(1, sizeof *t);
    sonde_nn_dataset *set = sonde__calloc(1, sizeof *set);
    sonde_err err = sonde__dataset_check_share(options.test_share, diag);

    if (t == NULL || set == NULL) {
        err = sonde__fail_nomem(diag, "a data set");
        goto error;
    }
    if (err != SONDE_OK) {
        goto error;
    }
    t->options = &options;
    t->path = path;
    t->diag = diag;
    SONDE__TRY_GO(find_files(t));
    SONDE__TRY_GO(fill(t, set));
    sonde__data_table_destroy(t);
    *out = set;
    return SONDE_OK;

error:
    sonde__data_table_destroy(t);
    sonde_nn_dataset_destroy(set);
    return err;
}
