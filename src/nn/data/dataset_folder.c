/*
 * dataset_folder.c - a folder of images, one sub-folder a class.
 *
 * Opening lists and sorts, and reads every image's header. Headers are looked for in the
 * first 64 KB of a file, and in all of it if they do not end there.
 */
#include "nn/data/dataset.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { HEAD = 64 * 1024 };

/* A growing list of names, sorted when complete. */
typedef struct name_list {
    char **names;
    size_t count, capacity;
} name_list;

static void fini_list(name_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        sonde__free(list->names[i]);
    }
    sonde__free(list->names);
    *list = (name_list){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
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

    return dot != NULL && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 ||
                           strcasecmp(dot, ".jpeg") == 0);
}

/* Adds the name if it is what is looked for: a folder, or an image file. */
static sonde_err consider(const char *path, const char *name, bool folders,
                          name_list *list, sonde_diag *diag)
{
    struct stat status;
    char *full = join(path, name);
    bool wanted = false;

    if (full == NULL) {
        return sonde__fail_nomem(diag, "file names");
    }
    wanted = stat(full, &status) == 0 &&
             (folders ? S_ISDIR(status.st_mode)
                      : S_ISREG(status.st_mode) && is_image_name(name));
    sonde__free(full);
    if (!wanted) {
        return SONDE_OK;
    }
    if (!sonde__reserve(&list->names, &list->capacity, list->count + 1,
                        sizeof *list->names)) {
        return sonde__fail_nomem(diag, "file names");
    }
    list->names[list->count] = sonde__strdup(name);
    if (list->names[list->count] == NULL) {
        return sonde__fail_nomem(diag, "file names");
    }
    list->count++;
    return SONDE_OK;
}

static sonde_err list_folder(const char *path, bool folders, name_list *list,
                             sonde_diag *diag)
{
    DIR *dir = opendir(path);
    sonde_err err = SONDE_OK;
    const struct dirent *entry = NULL;

    if (dir == NULL) {
        return sonde__fail_errno(diag, path, "cannot open the folder");
    }
    errno = 0;
    while (err == SONDE_OK && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            err = consider(path, entry->d_name, folders, list, diag);
        }
        errno = 0;
    }
    if (err == SONDE_OK && errno != 0) {
        err = sonde__fail_errno(diag, path, "cannot read the folder");
    }
    (void)closedir(dir);
    if (err == SONDE_OK && list->count > 0) {
        qsort(list->names, list->count, sizeof *list->names, by_name);
    }
    return err;
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
    err = sonde__data_file_read(path, all, size, &bytes.size, diag);
    if (err == SONDE_OK) {
        err = sonde__data_image_probe(&bytes, info, diag);
    }
    sonde__free(all);
    return err;
}

/* The set so far, with one more file: takes path. */
static sonde_err add_file(sonde_nn_dataset *set, char *path, unsigned char *head,
                          sonde_diag *diag)
{
    const size_t n = (size_t)set->traits.count;
    const int64_t label = set->traits.classes - 1;
    sonde__data_image_file file = {.path = path};
    size_t size = 0;
    sonde_err err = sonde__data_file_size(path, &size, diag);

    if (err == SONDE_OK) {
        err = probe(path, size, head, &file.info, diag);
    }
    if (err == SONDE_OK &&
        (!sonde__reserve(&set->files, &set->file_capacity, n + 1, sizeof *set->files) ||
         !sonde__reserve(&set->owned_labels, &set->label_capacity, n + 1,
                         sizeof *set->owned_labels))) {
        err = sonde__fail_nomem(diag, "a list of images");
    }
    if (err != SONDE_OK) {
        sonde__free(path);
        return err;
    }
    set->files[n] = file;
    set->owned_labels[n] = label;
    set->traits.count++;
    set->file_bytes = SONDE_MAX(set->file_bytes, size);
    return SONDE_OK;
}

static sonde_err add_class(sonde_nn_dataset *set, const char *folder, const char *name,
                           unsigned char *head, sonde_diag *diag)
{
    name_list files = {0};
    char *path = join(folder, name);
    sonde_err err = path != NULL ? sonde__dataset_add_name(set, name, diag)
                                 : sonde__fail_nomem(diag, "file names");

    if (err == SONDE_OK) {
        err = list_folder(path, false, &files, diag);
    }
    if (err == SONDE_OK && files.count == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, "*.png, *.jpg or *.jpeg",
                          "this class has no images");
    }
    for (size_t i = 0; err == SONDE_OK && i < files.count; i++) {
        char *file = join(path, files.names[i]);

        err = file != NULL ? add_file(set, file, head, diag)
                           : sonde__fail_nomem(diag, "file names");
    }
    fini_list(&files);
    sonde__free(path);
    return err;
}

/* The largest of everything, and whether there is more than one of anything. */
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

static sonde_err fill(sonde_nn_dataset *set, const char *path, unsigned char *head,
                      sonde_diag *diag)
{
    name_list classes = {0};
    sonde_err err = sonde__dataset_set_source(set, path, diag);

    if (err == SONDE_OK) {
        err = list_folder(path, true, &classes, diag);
    }
    if (err == SONDE_OK && classes.count == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, "one folder of images a class",
                          "has no sub-folders");
    }
    for (size_t i = 0; err == SONDE_OK && i < classes.count; i++) {
        err = add_class(set, path, classes.names[i], head, diag);
    }
    fini_list(&classes);
    if (err == SONDE_OK) {
        settle_shape(set);
    }
    return err;
}

sonde_err sonde_nn_dataset_open_folder(const char *path, sonde_nn_dataset **out,
                                       sonde_diag *diag)
{
    sonde_nn_dataset *set = sonde__calloc(1, sizeof *set);
    unsigned char *head = sonde__malloc(HEAD);
    sonde_err err = set != NULL && head != NULL ? fill(set, path, head, diag)
                                                : sonde__fail_nomem(diag, "a data set");

    sonde__free(head);
    if (err != SONDE_OK) {
        sonde_nn_dataset_destroy(set);
        return err;
    }
    *out = set;
    return SONDE_OK;
}
