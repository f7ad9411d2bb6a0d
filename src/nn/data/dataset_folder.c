/*
 * dataset_folder.c - images as data sets: a folder with one sub-folder a class, the same for
 * each split, or one image.
 *
 * Opening a folder lists and sorts it and reads every image's header: from the first 64
 * KB of a file, and from all of it if the header does not end there.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "nn/data/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* === a folder of images ============================================================= */

enum { HEAD = 64 * 1024, PATH_SIZE = SONDE__DATA_PATH };

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

    if (partial && !sonde__data_is_folder(path)) {
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
    traits->scratch =
        SONDE__DATA_ROUND(set->file_bytes + 1) + 2 * SONDE__DATA_ROUND(set->sample_bytes);
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
    if (other != NULL && sonde__data_is_folder(other)) {
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

static sonde_err open_folder(sonde__data_opening *o, const char *path, const char *other)
{
    unsigned char *head = sonde__malloc(HEAD);
    const sonde_err err = head != NULL ? fill(o->set, path, other, head, o->diag)
                                       : sonde__fail_nomem(o->diag, "a data set");

    sonde__free(head);
    return err;
}

sonde_err sonde__data_open_folder(sonde__data_opening *o)
{
    return open_folder(o, o->path, NULL);
}

/* Whether path has the folder of a split; fills its path in. */
static bool has_folder(const char *path, sonde_nn_split split, char part[PATH_SIZE])
{
    const int length =
        snprintf(part, PATH_SIZE, "%s/%s", path, sonde__data_split_names[split]);

    return length < PATH_SIZE && sonde__data_is_folder(part);
}

bool sonde__data_has_split(const char *path)
{
    char part[PATH_SIZE];

    return has_folder(path, SONDE_NN_TRAIN, part) ||
           has_folder(path, SONDE_NN_TEST, part);
}

sonde_err sonde__data_open_split(sonde__data_opening *o)
{
    const sonde_nn_split split = o->options->split;
    char part[PATH_SIZE], other[PATH_SIZE];

    if (!has_folder(o->path, split, part)) {
        return sonde__fail(o->diag, SONDE_ENOTFOUND, o->path, "train and test",
                           "has no folder '%s'", sonde__data_split_names[split]);
    }
    (void)has_folder(o->path, split == SONDE_NN_TRAIN ? SONDE_NN_TEST : SONDE_NN_TRAIN,
                     other);
    return open_folder(o, part, other);
}

/* === an image ======================================================================= */

bool sonde__data_is_image(const char *path)
{
    return is_image_name(path) && !sonde__data_is_folder(path);
}

/* The image becomes the data: a set in memory. */
static sonde_err take_image(sonde_nn_dataset *set, void *scratch, sonde_diag *diag)
{
    sonde_nn_sample image;
    SONDE__TRY(sonde_nn_dataset_get(set, 0, scratch, &image, diag));
    set->data = image.data;
    sonde__free(set->files[0].path);
    sonde__free(set->files);
    set->files = NULL;
    set->traits.scratch = 0;
    return SONDE_OK;
}

sonde_err sonde__data_open_image(sonde__data_opening *o)
{
    sonde_nn_dataset *set = o->set;
    unsigned char *head = sonde__malloc(HEAD);
    char *path = sonde__strdup(o->path);
    sonde_err err = sonde__dataset_set_source(set, o->path, o->diag);

    if (head == NULL || path == NULL || err != SONDE_OK) {
        sonde__free(path);
        err = sonde__fail_nomem(o->diag, "a data set");
    } else {
        err = add_file(set, path, head, o->diag);
    }
    sonde__free(head);
    if (err != SONDE_OK) {
        return err;
    }
    settle_shape(set);
    set->labels = NULL;
    set->traits.has_labels = false;
    set->owned_data = sonde__malloc_aligned(SONDE__ALIGN, set->traits.scratch);
    return set->owned_data != NULL ? take_image(set, set->owned_data, o->diag)
                                   : sonde__fail_nomem(o->diag, "an image");
}
