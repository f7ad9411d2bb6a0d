/*
 * dataset_open.c - opens data sets: which kind a path is, arrays in memory, IDX files, and the
 * public sets by name. The other kinds have files of their own.
 */
#include "base/fail.h"
#include "base/options.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/dataset.h"
#include "nn/data/pixels.h"
#include "nn/data/files.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = SONDE__DATA_PATH };

/* === arrays in memory =============================================================== */

static sonde_err check_memory(const sonde_view *data, const sonde_view *labels,
                              sonde_diag *diag)
{
    const char *fault = sonde__tensor_view_fault(data, true);

    if (fault == NULL && labels != NULL) {
        fault = sonde__tensor_view_fault(labels, true);
    }
    if (fault != NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "data and labels", "arrays", "%s", fault);
    }
    if (data->dtype != SONDE_U8 && data->dtype != SONDE_F32) {
        return sonde__fail(diag, SONDE_EDTYPE, "data", "uint8 or float32", "dtype is %s",
                           sonde_dtype_name(data->dtype));
    }
    if (!sonde_view_is_contiguous(data) ||
        (labels != NULL && !sonde_view_is_contiguous(labels))) {
        return sonde__fail(diag, SONDE_EINVAL, "data and labels", "contiguous arrays",
                           "strides are not row-major");
    }
    if (labels != NULL && labels->dtype != SONDE_I64) {
        return sonde__fail(diag, SONDE_EDTYPE, "labels", "int64", "dtype is %s",
                           sonde_dtype_name(labels->dtype));
    }
    if (labels != NULL && (labels->rank != 1 || labels->shape[0] != data->shape[0])) {
        char found[96], expected[32];

        (void)snprintf(expected, sizeof expected, "(%" PRId64 ")", data->shape[0]);
        return sonde__fail(
            diag, SONDE_ESHAPE, "labels", expected, "shape is %s",
            sonde_shape_text(labels->rank, labels->shape, found, sizeof found));
    }
    return SONDE_OK;
}

static sonde_err open_memory(sonde__data_opening *o)
{
    const sonde_nn_dataset_options *options = o->options;

    SONDE__NEEDS_AS(o->diag, "data", options->data);
    SONDE__TRY(sonde__dataset_set_source(o->set, "memory", o->diag));
    SONDE__TRY(check_memory(options->data, options->labels, o->diag));
    SONDE__TRY(sonde__dataset_set_data(o->set, options->data, "data", o->diag));
    o->set->labels = options->labels != NULL ? options->labels->data : NULL;
    return sonde__dataset_set_classes(o->set, options, "labels", o->diag);
}

/* === IDX files ================================================================== */

/* Takes uint8 and float32 elements over; converts others to a new float32 array. */
static sonde_err take_samples(sonde_nn_dataset *set, sonde__data_idx *array,
                              const char *path, sonde_diag *diag)
{
    sonde_view view = array->view;
    size_t bytes = 0;

    if (view.dtype == SONDE_U8 || view.dtype == SONDE_F32) {
        set->owned_data = sonde__data_idx_take(array);
        return sonde__dataset_set_data(set, &view, path, diag);
    }
    if (sonde__mul((size_t)sonde_view_count(&view), sizeof(float), &bytes)) {
        set->owned_data = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    }
    if (set->owned_data == NULL) {
        return sonde__fail_nomem(diag, "float32 samples");
    }
    view = sonde_view_of(SONDE_F32, view.rank, view.shape, set->owned_data);
    SONDE__TRY(sonde_view_copy(&view, &array->view, diag));
    return sonde__dataset_set_data(set, &view, path, diag);
}

static sonde_err take_labels(sonde_nn_dataset *set, const sonde__data_idx *array,
                             const char *path, sonde_diag *diag)
{
    const sonde_view *view = &array->view;
    sonde_view labels;
    char text[96];

    if (view->rank != 1 || sonde_dtype_is_float(view->dtype)) {
        return sonde__fail(diag, SONDE_ESHAPE, path, "one integer a sample",
                           "labels have shape %s, dtype %s",
                           sonde_shape_text(view->rank, view->shape, text, sizeof text),
                           sonde_dtype_name(view->dtype));
    }
    if (view->shape[0] != set->traits.count) {
        (void)snprintf(text, sizeof text, "%" PRId64 ", as many as there are samples",
                       set->traits.count);
        return sonde__fail(diag, SONDE_ESHAPE, path, text, "%" PRId64 " labels",
                           view->shape[0]);
    }
    set->owned_labels =
        sonde__calloc((size_t)set->traits.count, sizeof *set->owned_labels);
    if (set->owned_labels == NULL) {
        return sonde__fail_nomem(diag, "labels");
    }
    labels = sonde_view_of(SONDE_I64, 1, view->shape, set->owned_labels);
    set->labels = set->owned_labels;
    return sonde_view_copy(&labels, view, diag);
}

/* Reads a file into the set: its samples, or its labels. */
static sonde_err read_array(sonde_nn_dataset *set, const char *path, bool labels,
                            sonde_diag *diag)
{
    sonde__data_idx *array = NULL;
    SONDE__TRY(sonde__data_idx_load(path, &array, diag));
    const sonde_err err = labels ? take_labels(set, array, path, diag)
                                 : take_samples(set, array, path, diag);

    sonde__data_idx_destroy(array);
    return err;
}

static sonde_err open_pair(sonde_nn_dataset *set, const char *images, const char *labels,
                           const sonde_nn_dataset_options *options, sonde_diag *diag)
{
    SONDE__TRY(sonde__dataset_set_source(set, images, diag));
    SONDE__TRY(read_array(set, images, false, diag));
    if (labels != NULL) {
        SONDE__TRY(read_array(set, labels, true, diag));
    }
    return sonde__dataset_set_classes(set, options, labels, diag);
}

static sonde_err open_idx(sonde__data_opening *o)
{
    return open_pair(o->set, o->path, o->options->label_path, o->options, o->diag);
}

/* === public sets by name ============================================================ */

enum { CLASSES = SONDE_NN_KNOWN_CLASSES };

static const char *const digits[CLASSES] = {"0", "1", "2", "3", "4",
                                            "5", "6", "7", "8", "9"};

typedef struct known_set {
    const char *name;
    const char *const *class_names;
} known_set;

static const known_set known[] = {
    {"fashion-mnist", sonde__data_garment_names},
    {"mnist", digits},
    {"fashion-synth", sonde__data_garment_names},
};

/* The state of a search for the files of a set. */
typedef struct place_search {
    const known_set *set;
    const char *prefix; /* "train" or "t10k" */
    char looked[320];   /* the places searched, for the error */
    char images[PATH_SIZE], labels[PATH_SIZE];
} place_search;

const char *sonde_nn_dataset_name(size_t index)
{
    return index < SONDE_COUNT_OF(known) ? known[index].name : NULL;
}

const char *const *sonde_nn_dataset_class_names(const char *name)
{
    if (name == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        if (strcmp(known[i].name, name) == 0) {
            return known[i].class_names;
        }
    }
    return NULL;
}

/* NULL with diag filled: there is none. */
static const known_set *find_known(const char *name, sonde_diag *diag)
{
    const char *names[SONDE_COUNT_OF(known)];

    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        names[i] = known[i].name;
        if (strcmp(name, known[i].name) == 0) {
            return &known[i];
        }
    }
    const char *nearest = sonde_diag_nearest(name, names, SONDE_COUNT_OF(names));
    (void)sonde__fail(diag, SONDE_ENOTFOUND, "data set",
                      nearest ? nearest : "fashion-mnist, mnist or fashion-synth",
                      "no data set is called '%s'", name);
    return NULL;
}

/* Finds <folder>/<prefix>-<kind>, with .gz or without; false: neither exists. */
static bool find_file(const char *folder, const char *prefix, const char *kind,
                      char *path)
{
    static const char *const endings[] = {"", ".gz"};

    for (size_t i = 0; i < SONDE_COUNT_OF(endings); i++) {
        const int length =
            snprintf(path, PATH_SIZE, "%s/%s-%s%s", folder, prefix, kind, endings[i]);

        if (length < PATH_SIZE && sonde__data_is_file(path)) {
            return true;
        }
    }
    return false;
}

/* Looks in one folder. *found: both files; one without the other is an error. */
static sonde_err look_in(place_search *search, const char *folder, bool *found,
                         sonde_diag *diag)
{
    const bool images =
        find_file(folder, search->prefix, "images-idx3-ubyte", search->images);
    const bool labels =
        find_file(folder, search->prefix, "labels-idx1-ubyte", search->labels);
    const size_t used = strlen(search->looked);

    (void)snprintf(search->looked + used, sizeof search->looked - used, "%s%s",
                   used > 0 ? ", " : "", folder);
    *found = images && labels;
    if (images != labels) {
        return sonde__fail(diag, SONDE_ENOTFOUND, folder,
                           images ? "labels beside it" : "images beside it",
                           "has only %s", images ? search->images : search->labels);
    }
    return SONDE_OK;
}

/* Looks in all places, in their order. */
static sonde_err look(place_search *search, const char *dir, bool *found,
                      sonde_diag *diag)
{
    const char *data = getenv("SONDE_DATA"), *base = dir != NULL ? dir : data;
    char places[3][PATH_SIZE] = {"", "", ""};

    if (base != NULL && base[0] != '\0') {
        (void)snprintf(places[0], PATH_SIZE, "%s", base);
        (void)snprintf(places[1], PATH_SIZE, "%s/%s", base, search->set->name);
    }
    if (dir == NULL &&
        sonde_nn_data_cache(search->set->name, places[2], PATH_SIZE, NULL) != SONDE_OK) {
        places[2][0] = '\0'; /* there is no cache */
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(places) && !*found; i++) {
        if (places[i][0] != '\0') {
            SONDE__TRY(look_in(search, places[i], found, diag));
        }
    }
    return SONDE_OK;
}

static sonde_err open_named(sonde__data_opening *o)
{
    const char *name = o->options->name, *dir = o->path;
    SONDE__NEEDS_AS(o->diag, "name", name);
    place_search search = {.set = find_known(name, o->diag),
                           .prefix =
                               o->options->split == SONDE_NN_TRAIN ? "train" : "t10k"};
    sonde_nn_dataset_options options = {.size = sizeof options, .classes = CLASSES};
    bool found = false;

    if (search.set == NULL) {
        return SONDE_ENOTFOUND;
    }
    SONDE__TRY(look(&search, dir, &found, o->diag));
    if (!found && dir != NULL && access(dir, F_OK) != 0) {
        return sonde__fail(o->diag, SONDE_ENOTFOUND, name, "the folder of the data set",
                           "not found in %s: there is no such folder", dir);
    }
    if (!found) {
        return sonde__fail(
            o->diag, SONDE_ENOTFOUND, name,
            "the files of 'sonde data fetch' or 'sonde data synth'",
            "not found in %s; try 'sonde data fetch %s' or 'sonde data synth'",
            search.looked[0] ? search.looked : "any place", name);
    }
    options.class_names = search.set->class_names;
    return open_pair(o->set, search.images, search.labels, &options, o->diag);
}

/* === opening ======================================================================== */

static const struct {
    sonde_err (*open)(sonde__data_opening *opening);
    bool path; /* it needs one */
} kinds[] = {
    [SONDE_NN_DATA_NAMED] = {open_named, false},
    [SONDE_NN_DATA_IDX] = {open_idx, true},
    [SONDE_NN_DATA_FOLDER] = {sonde__data_open_folder, true},
    [SONDE_NN_DATA_SPLIT] = {sonde__data_open_split, true},
    [SONDE_NN_DATA_IMAGE] = {sonde__data_open_image, true},
    [SONDE_NN_DATA_TEXT] = {sonde__data_open_text, true},
    [SONDE_NN_DATA_TEXT_SYNTH] = {sonde__data_draw_text, false},
    [SONDE_NN_DATA_ARRAYS] = {sonde__data_open_arrays, true},
    [SONDE_NN_DATA_TABLE] = {sonde__data_open_table, true},
    [SONDE_NN_DATA_MEMORY] = {open_memory, false},
    [SONDE_NN_DATA_SYNTH] = {sonde__data_draw, false},
};

sonde_nn_data_kind sonde_nn_data_kind_at(const char *path)
{
    return path == NULL                   ? SONDE_NN_DATA_ANY
           : sonde__data_has_arrays(path) ? SONDE_NN_DATA_ARRAYS
           : sonde__data_is_table(path)   ? SONDE_NN_DATA_TABLE
           : sonde__data_is_image(path)   ? SONDE_NN_DATA_IMAGE
           : sonde__data_has_split(path)  ? SONDE_NN_DATA_SPLIT
           : sonde__data_is_folder(path)  ? SONDE_NN_DATA_FOLDER
                                          : SONDE_NN_DATA_ANY;
}

static sonde_nn_data_kind choose_kind(const char *path,
                                      const sonde_nn_dataset_options *options)
{
    return options->kind != SONDE_NN_DATA_ANY ? options->kind
           : options->name != NULL            ? SONDE_NN_DATA_NAMED
           : options->data != NULL            ? SONDE_NN_DATA_MEMORY
                                              : sonde_nn_data_kind_at(path);
}

static sonde_err check_options(const sonde_nn_dataset_options *options, sonde_diag *diag)
{
    if ((unsigned)options->split > SONDE_NN_TEST) {
        return sonde__fail(diag, SONDE_EINVAL, "split", "a sonde_nn_split", "split %d",
                           (int)options->split);
    }
    return options->test_share >= 0.0 && options->test_share < 1.0
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINVAL, "test_share", "0 to below 1", "it is %g",
                             options->test_share);
}

sonde_err sonde_nn_dataset_open(const char *path, const sonde_nn_dataset_options *given,
                                sonde_nn_dataset **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_nn_dataset_options options;
    SONDE__TAKE(sonde_nn_dataset_options, &options, given, diag);
    SONDE__TRY(check_options(&options, diag));
    const sonde_nn_data_kind kind = choose_kind(path, &options);

    if ((unsigned)kind >= SONDE_COUNT_OF(kinds) || kinds[kind].open == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, path,
                           "a table, arrays, an image or a folder",
                           "cannot tell what kind of data it is");
    }
    if (kinds[kind].path && path == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "path", "a file or a folder", "no path");
    }
    sonde__data_opening opening = {.path = path, .options = &options, .diag = diag};

    opening.set = sonde__calloc(1, sizeof *opening.set);
    if (opening.set == NULL) {
        return sonde__fail_nomem(diag, "a data set");
    }
    const sonde_err err = kinds[kind].open(&opening);

    if (err != SONDE_OK) {
        sonde_nn_dataset_destroy(opening.set);
        return err;
    }
    if (opening.whole) {
        return sonde__dataset_take_split(opening.set, &options, out, diag);
    }
    *out = opening.set;
    return SONDE_OK;
}
