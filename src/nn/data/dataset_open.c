/*
 * dataset_open.c - data sets from disk: IDX files, an image, a folder of images with one
 * sub-folder a class, and the public sets by name.
 *
 * Opening a folder lists and sorts it and reads every image's header: from the first 64
 * KB of a file, and from all of it if the header does not end there.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/point.h"
#include "nn/data/dataset.h"
#include "nn/data/garments.h"
#include "nn/data/idx.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* === IDX files and a single image =================================================== */

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
    const sonde_view *found = &array->view;
    sonde_view labels;
    char text[96];

    if (found->rank != 1 || sonde_dtype_is_float(found->dtype)) {
        return sonde__fail(diag, SONDE_ESHAPE, path, "one integer a sample",
                           "labels have shape %s, dtype %s",
                           sonde_shape_text(found->rank, found->shape, text, sizeof text),
                           sonde_dtype_name(found->dtype));
    }
    if (found->shape[0] != set->traits.count) {
        (void)snprintf(text, sizeof text, "%" PRId64 ", as many as there are samples",
                       set->traits.count);
        return sonde__fail(diag, SONDE_ESHAPE, path, text, "%" PRId64 " labels",
                           found->shape[0]);
    }
    set->owned_labels =
        sonde__calloc((size_t)set->traits.count, sizeof *set->owned_labels);
    if (set->owned_labels == NULL) {
        return sonde__fail_nomem(diag, "labels");
    }
    labels = sonde_view_of(SONDE_I64, 1, found->shape, set->owned_labels);
    set->labels = set->owned_labels;
    return sonde_view_copy(&labels, found, diag);
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

sonde_err sonde_nn_dataset_open_idx(const char *images, const char *labels,
                                    const sonde_nn_dataset_options *options,
                                    sonde_nn_dataset **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, images, out);
    sonde_nn_dataset *set = sonde__calloc(1, sizeof *set);
    sonde_err err = SONDE_OK;

    if (set == NULL) {
        return sonde__fail_nomem(diag, "a data set");
    }
    SONDE__TRY_GO(sonde__dataset_set_source(set, images, diag));
    SONDE__TRY_GO(read_array(set, images, false, diag));
    if (labels != NULL) {
        SONDE__TRY_GO(read_array(set, labels, true, diag));
    }
    SONDE__TRY_GO(sonde__dataset_set_classes(set, options, labels, diag));
    *out = set;
    return SONDE_OK;

error:
    sonde_nn_dataset_destroy(set);
    return err;
}

sonde_err sonde_nn_dataset_open_image(const char *path, sonde_nn_dataset **out,
                                      sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    sonde_nn_image image = {0};
    SONDE__TRY(sonde_nn_image_load(path, &image, diag));
    const int64_t shape[4] = {1, image.channels, image.height, image.width};
    const sonde_view view = sonde_view_of(SONDE_U8, 4, shape, image.pixels);
    sonde_nn_dataset *set = sonde__calloc(1, sizeof *set);
    sonde_err err = SONDE_OK;

    if (set == NULL) {
        sonde_nn_image_fini(&image);
        return sonde__fail_nomem(diag, "a data set");
    }
    set->owned_data = image.pixels;
    SONDE__TRY_GO(sonde__dataset_set_source(set, path, diag));
    SONDE__TRY_GO(sonde__dataset_set_data(set, &view, path, diag));
    *out = set;
    return SONDE_OK;

error:
    sonde_nn_dataset_destroy(set);
    return err;
}

/* === a folder of images ============================================================= */

enum { HEAD = 64 * 1024, PATH_SIZE = 4096 };

/* Names of a folder's entries, sorted by their bytes. */
typedef struct name_list {
    struct dirent **entries;
    int count;
} name_list;

static void fini_list(name_list *list)
{
    for (int i = 0; i < list->count; i++) {
        free(list->entries[i]);
    }
    free(list->entries);
    *list = (name_list){NULL, 0};
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static char *join(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = sonde__malloc(size);

    if (path != NULL) {
        (void)snprintf(path, size, "%s/%s", folder, name);
    }
    return path;
}

static bool is_image_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL &&
           (sonde__strcasecmp(dot, ".png") == 0 || sonde__strcasecmp(dot, ".jpg") == 0 ||
            sonde__strcasecmp(dot, ".jpeg") == 0);
}

/* Lists the sub-folders, or the image files. */
static sonde_err list_folder(const char *path, bool folders, name_list *list,
                             sonde_diag *diag)
{
    const int found = scandir(path, &list->entries, is_shown, by_name);
    int kept = 0;

    if (found < 0) {
        return sonde__fail_errno(diag, path, "cannot open the folder");
    }
    for (int i = 0; i < found; i++) {
        struct dirent *entry = list->entries[i];
        struct stat status;
        char full[PATH_SIZE];
        const int length = snprintf(full, sizeof full, "%s/%s", path, entry->d_name);

        if (length < PATH_SIZE && stat(full, &status) == 0 &&
            (folders ? S_ISDIR(status.st_mode)
                     : S_ISREG(status.st_mode) && is_image_name(entry->d_name))) {
            list->entries[kept++] = entry;
        } else {
            free(entry);
        }
    }
    list->count = kept;
    return SONDE_OK;
}

/* Reads the header of a file into info; head holds HEAD bytes. */
static sonde_err probe(const char *path, size_t size, unsigned char *head,
                       sonde__data_image_info *info, sonde_diag *diag)
{
    sonde__data_bytes bytes = {head, 0, path};
    unsigned char *all = NULL;
    sonde_err err = sonde__data_file_read(path, head, HEAD, &bytes.size, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__data_image_probe(&bytes, info, diag);
    if (err != SONDE_EFORMAT || size <= HEAD) {
        return err;
    }
    all = sonde__malloc(size);
    if (all == NULL) {
        return sonde__fail_nomem(diag, "an image file");
    }
    bytes.data = all;
    SONDE__TRY_DONE(sonde__data_file_read(path, all, size, &bytes.size, diag));
    err = sonde__data_image_probe(&bytes, info, diag);

done:
    sonde__free(all);
    return err;
}

/* Appends a file to the set. Takes path. */
static sonde_err add_file(sonde_nn_dataset *set, char *path, unsigned char *head,
                          sonde_diag *diag)
{
    const size_t n = (size_t)set->traits.count;
    const int64_t label = set->traits.classes - 1;
    sonde__data_image_file file = {.path = path};
    size_t size = 0;
    sonde_err err = sonde__data_file_size(path, &size, diag);

    if (err != SONDE_OK) {
        goto error;
    }
    SONDE__TRY_GO(probe(path, size, head, &file.info, diag));
    if ((!sonde__reserve(&set->files, &set->file_capacity, n + 1, sizeof *set->files) ||
         !sonde__reserve(&set->owned_labels, &set->label_capacity, n + 1,
                         sizeof *set->owned_labels))) {
        err = sonde__fail_nomem(diag, "a list of images");
    }
    if (err != SONDE_OK) {
        goto error;
    }
    set->files[n] = file;
    set->owned_labels[n] = label;
    set->traits.count++;
    set->file_bytes = SONDE_MAX(set->file_bytes, size);
    return SONDE_OK;

error:
    sonde__free(path);
    return err;
}

/* Adds the images of a class, which has been named; none if the class is missing here and
 * `partial` allows that. */
static sonde_err add_images(sonde_nn_dataset *set, const char *path, bool partial,
                            unsigned char *head, sonde_diag *diag)
{
    name_list files = {0};
    sonde_err err = SONDE_OK;

    if (partial && access(path, F_OK) != 0) {
        return SONDE_OK;
    }
    SONDE__TRY_DONE(list_folder(path, false, &files, diag));
    if (files.count == 0 && !partial) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, "*.png, *.jpg or *.jpeg",
                          "this class has no images");
        goto done;
    }
    for (int i = 0; i < files.count; i++) {
        char *file = join(path, files.entries[i]->d_name);

        SONDE__TRY_DONE(file != NULL ? add_file(set, file, head, diag)
                                     : sonde__fail_nomem(diag, "file names"));
    }

done:
    fini_list(&files);
    return err;
}

static sonde_err add_class(sonde_nn_dataset *set, const char *folder, const char *name,
                           bool partial, unsigned char *head, sonde_diag *diag)
{
    char *path = join(folder, name);
    sonde_err err = path != NULL ? sonde__dataset_add_name(set, name, diag)
                                 : sonde__fail_nomem(diag, "file names");

    if (err == SONDE_OK) {
        err = add_images(set, path, partial, head, diag);
    }
    sonde__free(path);
    return err;
}

/* The largest shape, and whether sizes or channels vary. */
static void settle_shape(sonde_nn_dataset *set)
{
    sonde_nn_dataset_traits *traits = &set->traits;
    const sonde__data_image_info *first = &set->files[0].info;

    traits->rank = 3;
    traits->dtype = SONDE_U8;
    for (int64_t i = 0; i < traits->count; i++) {
        const sonde__data_image_info *info = &set->files[i].info;

        traits->varied_channels |= info->channels != first->channels;
        traits->varied_size |=
            info->height != first->height || info->width != first->width;
        traits->shape[0] = SONDE_MAX(traits->shape[0], info->channels);
        traits->shape[1] = SONDE_MAX(traits->shape[1], info->height);
        traits->shape[2] = SONDE_MAX(traits->shape[2], info->width);
        set->sample_bytes = SONDE_MAX(set->sample_bytes, sonde__data_image_size(info));
    }
    set->labels = set->owned_labels;
    traits->has_labels = true;
}

/* The next class of both lists; NULL: there is none. */
static const char *next_class(const name_list lists[2], int next[2])
{
    const char *names[2] = {NULL, NULL};

    for (int k = 0; k < 2; k++) {
        names[k] = next[k] < lists[k].count ? lists[k].entries[next[k]]->d_name : NULL;
    }
    const int order = names[0] == NULL   ? 1
                      : names[1] == NULL ? -1
                                         : strcmp(names[0], names[1]);

    next[0] += order <= 0 && names[0] != NULL ? 1 : 0;
    next[1] += order >= 0 && names[1] != NULL ? 1 : 0;
    return order <= 0 ? names[0] : names[1];
}

/* The classes are the sub-folders of path and, unless it is NULL or missing, of other. */
static sonde_err fill(sonde_nn_dataset *set, const char *path, const char *other,
                      unsigned char *head, sonde_diag *diag)
{
    name_list lists[2] = {{NULL, 0}, {NULL, 0}};
    int next[2] = {0, 0};
    const char *name = NULL;
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(sonde__dataset_set_source(set, path, diag));
    SONDE__TRY_DONE(list_folder(path, true, &lists[0], diag));
    if (other != NULL && access(other, F_OK) == 0) {
        SONDE__TRY_DONE(list_folder(other, true, &lists[1], diag));
    }
    if (lists[0].count + lists[1].count == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, "one folder of images a class",
                          "has no sub-folders");
        goto done;
    }
    while ((name = next_class(lists, next)) != NULL) {
        SONDE__TRY_DONE(add_class(set, path, name, other != NULL, head, diag));
    }
    if (set->traits.count == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, "*.png, *.jpg or *.jpeg",
                          "no class has images");
        goto done;
    }
    settle_shape(set);

done:
    fini_list(&lists[0]);
    fini_list(&lists[1]);
    return err;
}

static sonde_err open_folder(const char *path, const char *other, sonde_nn_dataset **out,
                             sonde_diag *diag)
{
    sonde_nn_dataset *set = sonde__calloc(1, sizeof *set);
    unsigned char *head = sonde__malloc(HEAD);
    sonde_err err = set != NULL && head != NULL ? fill(set, path, other, head, diag)
                                                : sonde__fail_nomem(diag, "a data set");

    sonde__free(head);
    if (err != SONDE_OK) {
        sonde_nn_dataset_destroy(set);
        return err;
    }
    *out = set;
    return SONDE_OK;
}

sonde_err sonde_nn_dataset_open_folder(const char *path, sonde_nn_dataset **out,
                                       sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    return open_folder(path, NULL, out, diag);
}

static const char *const split_folders[] = {
    [SONDE_NN_TRAIN] = "train", [SONDE_NN_TEST] = "test"};

bool sonde_nn_dataset_has_split(const char *path, sonde_nn_split split)
{
    if (path == NULL || (unsigned)split > SONDE_NN_TEST) {
        return false;
    }
    char *part = join(path, split_folders[split]);
    struct stat status;
    const bool found =
        part != NULL && stat(part, &status) == 0 && S_ISDIR(status.st_mode);

    sonde__free(part);
    return found;
}

sonde_err sonde_nn_dataset_open_split(const char *path, sonde_nn_split split,
                                      sonde_nn_dataset **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    if ((unsigned)split > SONDE_NN_TEST) {
        return sonde__fail(diag, SONDE_EINVAL, path, "a sonde_nn_split", "split %d",
                           (int)split);
    }
    const sonde_nn_split rest = split == SONDE_NN_TRAIN ? SONDE_NN_TEST : SONDE_NN_TRAIN;
    char *part = join(path, split_folders[split]);
    char *other = join(path, split_folders[rest]);
    sonde_err err = SONDE_OK;

    if (part == NULL || other == NULL) {
        err = sonde__fail_nomem(diag, "file names");
    } else if (!sonde_nn_dataset_has_split(path, split)) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, "train and test",
                          "has no folder '%s'", split_folders[split]);
    } else {
        err = open_folder(part, other, out, diag);
    }
    sonde__free(part);
    sonde__free(other);
    return err;
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

sonde_err sonde_nn_data_cache(const char *name, char *path, size_t size, sonde_diag *diag)
{
    SONDE__NEEDS(diag, name, path);
    static const struct {
        const char *variable, *folder;
    } bases[] = {
        {"SONDE_CACHE", ""}, {"XDG_CACHE_HOME", "/sonde"}, {"HOME", "/.cache/sonde"}};

    for (size_t i = 0; i < SONDE_COUNT_OF(bases); i++) {
        const char *base = getenv(bases[i].variable);
        int length = 0;

        if (base == NULL || base[0] == '\0') {
            continue;
        }
        length = snprintf(NULL, 0, "%s%s/data/%s", base, bases[i].folder, name);
        if ((size_t)length >= size) {
            return sonde__fail(diag, SONDE_EINVAL, bases[i].variable, "a shorter path",
                               "the path of the cache has %d letters", length);
        }
        (void)snprintf(path, size, "%s%s/data/%s", base, bases[i].folder, name);
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, name, "one of them",
                       "none of SONDE_CACHE, XDG_CACHE_HOME and HOME is set");
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

        if (length < PATH_SIZE && access(path, F_OK) == 0) {
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

sonde_err sonde_nn_dataset_open_named(const char *name, sonde_nn_split split,
                                      const char *dir, sonde_nn_dataset **out,
                                      sonde_diag *diag)
{
    SONDE__NEEDS(diag, name, out);
    place_search search = {.set = find_known(name, diag),
                           .prefix = split == SONDE_NN_TRAIN ? "train" : "t10k"};
    sonde_nn_dataset_options options = {.size = sizeof options, .classes = CLASSES};
    bool found = false;

    if (search.set == NULL) {
        return SONDE_ENOTFOUND;
    }
    if ((unsigned)split > SONDE_NN_TEST) {
        return sonde__fail(diag, SONDE_EINVAL, name, "a sonde_nn_split", "split %d",
                           (int)split);
    }
    SONDE__TRY(look(&search, dir, &found, diag));
    if (!found && dir != NULL && access(dir, F_OK) != 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND, name, "the folder of the data set",
                           "not found in %s: there is no such folder", dir);
    }
    if (!found) {
        return sonde__fail(
            diag, SONDE_ENOTFOUND, name,
            "the files of 'sonde data fetch' or 'sonde data synth'",
            "not found in %s; try 'sonde data fetch %s' or 'sonde data synth'",
            search.looked[0] ? search.looked : "any place", name);
    }
    options.class_names = search.set->class_names;
    return sonde_nn_dataset_open_idx(search.images, search.labels, &options, out, diag);
}
