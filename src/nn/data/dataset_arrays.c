/*
 * dataset_arrays.c - named arrays as a data set: NumPy's files and safetensors.
 *
 * An array that is contiguous, aligned and of the wanted dtype is used where it is mapped;
 * any other is copied.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = SONDE__DATA_PATH, NAME_SIZE = 256 };

static const char *const input_names[] = {"x",      "X",      "data",  "input",
                                          "inputs", "images", "image", "features"};
static const char *const target_names[] = {"y",       "Y",     "target",
                                           "targets", "label", "labels"};
static const char *const endings[] = {".npz", ".safetensors"};

/* --- files ---------------------------------------------------------------------------- */

static bool find_split_file(const char *folder, sonde_nn_split split,
                            char path[PATH_SIZE])
{
    return sonde__data_find_split(folder, split, endings, SONDE_COUNT_OF(endings), path);
}

/* Whether a folder has an array by one of the names that are looked for. */
static bool has_npy(const char *folder)
{
    static const char *const before[] = {"", "", "train_"};
    static const char *const after[] = {"", "_train", ""};
    char path[PATH_SIZE];

    for (size_t i = 0; i < SONDE_COUNT_OF(input_names); i++) {
        for (size_t k = 0; k < SONDE_COUNT_OF(before); k++) {
            const int length = snprintf(path, PATH_SIZE, "%s/%s%s%s.npy", folder,
                                        before[k], input_names[i], after[k]);

            if (length > 0 && length < PATH_SIZE && sonde__data_is_file(path)) {
                return true;
            }
        }
    }
    return false;
}

bool sonde__data_has_arrays(const char *path)
{
    char file[PATH_SIZE];

    return sonde__data_is_arrays(path) || find_split_file(path, SONDE_NN_TRAIN, file) ||
           find_split_file(path, SONDE_NN_TEST, file) || has_npy(path);
}

/* --- arrays --------------------------------------------------------------------------- */

/* The array of a name for the split; NULL: none. *whole: it holds both. */
static const sonde_view *find_array(const sonde__data_opening *o, const char *name,
                                    bool *whole)
{
    const char *split = sonde__data_split_names[o->options->split];
    char both[NAME_SIZE];
    const sonde_view *view = NULL;

    for (int i = 0; i < 2 && view == NULL && !o->split_files; i++) {
        (void)snprintf(both, sizeof both, "%.200s_%.20s", i == 0 ? name : split,
                       i == 0 ? split : name);
        view = sonde__data_arrays_find(o->set->arrays, both);
    }
    *whole = view == NULL && !o->split_files;
    return view != NULL ? view : sonde__data_arrays_find(o->set->arrays, name);
}

static sonde_err fail_missing(const sonde__data_opening *o, const char *name)
{
    const size_t count = sonde__data_arrays_count(o->set->arrays);
    char all[200] = "";

    for (size_t i = 0; i < count; i++) {
        const size_t used = strlen(all);

        (void)snprintf(all + used, sizeof all - used, "%s%.60s", i > 0 ? ", " : "",
                       sonde__data_arrays_name(o->set->arrays, i));
    }
    return sonde__fail(o->diag, SONDE_ENOTFOUND, o->path, count > 0 ? all : "an array",
                       "no array '%s'", name);
}

/* The first of names that there is; names has count entries. */
static const char *find_name(const sonde__data_opening *o, const char *const *names,
                             size_t count)
{
    bool whole = false;

    for (size_t i = 0; i < count; i++) {
        if (find_array(o, names[i], &whole) != NULL) {
            return names[i];
        }
    }
    return NULL;
}

/* Says that array `name` has as many samples as the data. */
static sonde_err check_count(const sonde__data_opening *o, const char *name,
                             const sonde_view *view)
{
    const int64_t count = o->set->traits.count;
    char text[96], expected[64];

    if (view->rank > 0 && view->shape[0] == count) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "%" PRId64 " samples, as the data", count);
    return sonde__fail(o->diag, SONDE_ESHAPE, o->path, expected, "'%s' has shape %s",
                       name,
                       sonde_shape_text(view->rank, view->shape, text, sizeof text));
}

/* Contiguous elements of the dtype: the array's, or a new block in *owned. */
static sonde_err have_elements(const sonde__data_opening *o, const sonde_view *view,
                               sonde_dtype dtype, sonde_view *out, void **owned)
{
    const size_t size = sonde_dtype_size(dtype);
    size_t bytes = 0;
    sonde_err err = SONDE_OK;

    if (view->dtype == dtype && sonde_view_is_contiguous(view) &&
        (uintptr_t)view->data % size == 0) {
        *out = *view;
        return SONDE_OK;
    }
    if (!sonde__mul((size_t)sonde_view_count(view), size, &bytes)) {
        return sonde__fail_nomem(o->diag, "an array");
    }
    *owned = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    if (*owned == NULL) {
        return sonde__fail_nomem(o->diag, "an array");
    }
    *out = sonde_view_of(dtype, view->rank, view->shape, *owned);
    err = sonde_view_copy(out, view, o->diag);
    if (err != SONDE_OK) {
        sonde__free(*owned);
        *owned = NULL;
    }
    return err;
}

/* (N) as (N, 1). */
static sonde_view at_least_two(const sonde_view *view)
{
    sonde_view wide = *view;

    if (wide.rank == 1) {
        wide.rank = 2;
        wide.shape[1] = 1;
        wide.stride[1] = 1;
    }
    return wide;
}

static sonde_err refuse_rank(const sonde__data_opening *o, const char *name,
                             const sonde_view *view)
{
    char text[96];

    return sonde__fail(o->diag, SONDE_ESHAPE, o->path, "(N), (N, F) to (N, C, H, W)",
                       "'%s' has shape %s", name,
                       sonde_shape_text(view->rank, view->shape, text, sizeof text));
}

static sonde_err refuse_dtype(const sonde__data_opening *o, const char *name,
                              const sonde_view *view, const char *expected)
{
    return sonde__fail(o->diag, SONDE_EDTYPE, o->path, expected, "'%s' is %s", name,
                       sonde_dtype_name(view->dtype));
}

/* The first input. */
static sonde_err add_data(sonde__data_opening *o, const char *name)
{
    const sonde_view *view = find_array(o, name, &o->whole);
    sonde_dtype dtype = SONDE_F32;
    sonde_view wide, data;
    sonde_err err = SONDE_OK;

    if (view == NULL) {
        return fail_missing(o, name);
    }
    if (view->rank < 1 || view->rank > 1 + SONDE_NN_SAMPLE_DIMS) {
        return refuse_rank(o, name, view);
    }
    if (sonde_dtype_is_complex(view->dtype)) {
        return refuse_dtype(o, name, view, "real numbers");
    }
    if (o->options->ids[0]) {
        dtype = SONDE_I64;
    } else if (view->dtype == SONDE_U8) {
        dtype = SONDE_U8;
    }
    wide = at_least_two(view);
    SONDE__TRY(have_elements(o, &wide, dtype, &data, &o->set->owned_data));
    o->set->traits.ready = dtype != SONDE_U8;
    err = sonde__dataset_set_data(o->set, &data, o->path, o->diag);
    if (err == SONDE_OK && o->options->matrices && data.rank == 3) {
        o->set->traits.rank = 2;
        memcpy(o->set->traits.shape, data.shape + 1, 2 * sizeof *data.shape);
    }
    return err;
}

/* An array that is a further input, or the target of numbers. */
static sonde_err add_field(sonde__data_opening *o, const char *name,
                           const sonde_view *view, sonde_dtype dtype)
{
    const size_t k = o->set->traits.field_count;
    sonde_view wide, data;

    if (view->rank < 1 || view->rank > 1 + SONDE_NN_SAMPLE_DIMS) {
        return refuse_rank(o, name, view);
    }
    SONDE__TRY(check_count(o, name, view));
    if (k == SONDE_NN_FIELDS || sonde_dtype_is_complex(view->dtype)) {
        return refuse_dtype(o, name, view,
                            k == SONDE_NN_FIELDS ? "fewer inputs" : "real numbers");
    }
    wide = at_least_two(view);
    SONDE__TRY(have_elements(o, &wide, dtype, &data, &o->set->owned_fields[k]));
    return sonde__dataset_add_field(o->set, name, &data, o->diag);
}

/* The classes, one a sample or one a position. */
static sonde_err add_classes(sonde__data_opening *o, const char *name,
                             const sonde_view *view)
{
    sonde_nn_dataset *set = o->set;
    const bool one = view->rank == 1 || (view->rank == 2 && view->shape[1] == 1);
    void *owned = NULL;
    sonde_view labels;
    SONDE__TRY(check_count(o, name, view));
    if (sonde_dtype_is_float(view->dtype) || sonde_dtype_is_complex(view->dtype)) {
        return refuse_dtype(o, name, view,
                            "classes: integers; or a loss with target: values");
    }
    SONDE__TRY(have_elements(o, view, SONDE_I64, &labels, &owned));
    set->owned_labels = owned;
    set->labels = labels.data;
    set->traits.label_length = one ? 0 : sonde_view_count(view) / view->shape[0];
    return sonde__dataset_set_all_classes(set, sonde_view_count(view), o->path, o->diag);
}

static sonde_err add_target(sonde__data_opening *o)
{
    const char *asked = o->options->target;
    const char *name =
        asked != NULL ? asked : find_name(o, target_names, SONDE_COUNT_OF(target_names));
    bool whole = false;
    sonde_err err = SONDE_OK;

    if (name == NULL || name[0] == '\0') {
        return SONDE_OK; /* no target */
    }
    const sonde_view *view = find_array(o, name, &whole);
    if (view == NULL) {
        return fail_missing(o, name);
    }
    if (!o->options->numbers) {
        return add_classes(o, name, view);
    }
    err = add_field(o, name, view, SONDE_F32);
    o->set->traits.has_target = true;
    return err;
}

static sonde_err add_all(sonde__data_opening *o)
{
    const sonde_nn_dataset_options *options = o->options;
    const char *first = options->input_count > 0
                            ? options->inputs[0]
                            : find_name(o, input_names, SONDE_COUNT_OF(input_names));
    sonde_err err = SONDE_OK;

    if (first == NULL && sonde__data_arrays_count(o->set->arrays) == 1) {
        first = sonde__data_arrays_name(o->set->arrays, 0);
    }
    err = add_data(o, first != NULL ? first : input_names[0]);
    for (size_t i = 1; i < options->input_count && err == SONDE_OK; i++) {
        bool whole = false;
        const sonde_view *view = find_array(o, options->inputs[i], &whole);

        err = view == NULL ? fail_missing(o, options->inputs[i])
                           : add_field(o, options->inputs[i], view,
                                       options->ids[i] ? SONDE_I64 : SONDE_F32);
    }
    return err != SONDE_OK ? err : add_target(o);
}

/* --- the whole ------------------------------------------------------------------------ */

sonde_err sonde__data_open_arrays(sonde__data_opening *o)
{
    char file[PATH_SIZE];

    if (o->options->input_count > SONDE_NN_FIELDS) {
        return sonde__fail(o->diag, SONDE_EINVAL, "arrays", "at most 6 inputs",
                           "%zu inputs", o->options->input_count);
    }
    if (sonde__data_is_folder(o->path) &&
        (find_split_file(o->path, SONDE_NN_TRAIN, file) ||
         find_split_file(o->path, SONDE_NN_TEST, file))) {
        o->split_files = true;
        if (!find_split_file(o->path, o->options->split, file)) {
            return sonde__fail(o->diag, SONDE_ENOTFOUND, o->path, "both splits",
                               "no file %s.npz or %s.safetensors",
                               sonde__data_split_names[o->options->split],
                               sonde__data_split_names[o->options->split]);
        }
    } else {
        (void)snprintf(file, sizeof file, "%s", o->path);
    }
    SONDE__TRY(sonde__dataset_set_source(o->set, file, o->diag));
    SONDE__TRY(sonde__data_arrays_open(file, &o->set->arrays, o->diag));
    return add_all(o);
}
