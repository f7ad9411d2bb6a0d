/*
 * arrays.c - see files.h.
 */
#include "nn/data/files.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/safetensors.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct named_array {
    char *name;
    sonde_view view;
    void *owned; /* unpacked bytes, or NULL */
    void *map;   /* of a file of its own, or NULL */
    size_t map_size;
} named_array;

struct sonde__data_arrays {
    named_array *arrays;
    size_t count, capacity;
    void *map; /* of the file that holds all of them, or NULL */
    size_t map_size;
    sonde_safetensors *file;
};

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), tail = strlen(ending);

    return length > tail && strcmp(path + length - tail, ending) == 0;
}

bool sonde__data_is_arrays(const char *path)
{
    return ends_with(path, ".npy") || ends_with(path, ".npz") ||
           ends_with(path, ".safetensors");
}

/* --- files ---------------------------------------------------------------------------- */

/* Maps a file that is not empty, read-only. */
static sonde_err map_file(const char *path, void **map, size_t *size, sonde_diag *diag)
{
    struct stat status;
    sonde_err err = SONDE_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot open the file");
    }
    if (fstat(fd, &status) != 0) {
        err = sonde__fail_errno(diag, path, "cannot read the file");
    } else if (!S_ISREG(status.st_mode) || status.st_size <= 0) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, "an array",
                          S_ISREG(status.st_mode) ? "the file is empty" : "no file");
    } else {
        *size = (size_t)status.st_size;
        *map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (*map == MAP_FAILED) {
            *map = NULL;
            err = sonde__fail_errno(diag, path, "cannot map the file");
        }
    }
    (void)close(fd);
    return err;
}

/* Adds an array whose name has length bytes. */
static sonde_err add(sonde__data_arrays *all, const char *name, size_t length,
                     const sonde_view *view, sonde_diag *diag)
{
    char *copy = sonde__strndup(name, length);

    if (copy == NULL || !sonde__reserve(&all->arrays, &all->capacity, all->count + 1,
                                        sizeof *all->arrays)) {
        sonde__free(copy);
        return sonde__fail_nomem(diag, "a list of arrays");
    }
    all->arrays[all->count++] = (named_array){.name = copy, .view = *view};
    return SONDE_OK;
}

/* One file .npy, called after it. */
static sonde_err add_npy(sonde__data_arrays *all, const char *path, sonde_diag *diag)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    void *map = NULL;
    size_t size = 0;
    sonde_view view;
    sonde_err err = map_file(path, &map, &size, diag);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY_GO(sonde__data_npy_parse(map, size, path, &view, diag));
    SONDE__TRY_GO(add(all, name, strlen(name) - strlen(".npy"), &view, diag));
    all->arrays[all->count - 1].map = map;
    all->arrays[all->count - 1].map_size = size;
    return SONDE_OK;

error:
    (void)munmap(map, size);
    return err;
}

/* A member of an archive, called without its ending. */
static sonde_err add_member(sonde__data_arrays *all, const sonde__data_zip *zip,
                            const sonde__data_zip_member *member, sonde_diag *diag)
{
    const size_t length = strlen(member->name);
    const unsigned char *bytes = NULL;
    void *owned = NULL;
    char where[SONDE__ZIP_NAME + 64];
    sonde_view view;
    sonde_err err = sonde__data_zip_read(zip, member, &bytes, &owned, diag);

    if (err != SONDE_OK) {
        return err;
    }
    (void)snprintf(where, sizeof where, "%.60s: %s", zip->name, member->name);
    SONDE__TRY_GO(sonde__data_npy_parse(bytes, member->size, where, &view, diag));
    SONDE__TRY_GO(add(all, member->name,
                      length - (ends_with(member->name, ".npy") ? 4 : 0), &view, diag));
    all->arrays[all->count - 1].owned = owned;
    return SONDE_OK;

error:
    sonde__free(owned);
    return err;
}

static sonde_err add_archive(sonde__data_arrays *all, const void *bytes, size_t size,
                             const char *name, sonde_diag *diag)
{
    sonde__data_zip zip;
    sonde__data_zip_member member;
    bool more = true;
    SONDE__TRY(sonde__data_zip_open(&zip, bytes, size, name, diag));
    for (;;) {
        SONDE__TRY(sonde__data_zip_next(&zip, &member, &more, diag));
        if (!more) {
            return SONDE_OK;
        }
        SONDE__TRY(add_member(all, &zip, &member, diag));
    }
}

static sonde_err add_safetensors(sonde__data_arrays *all, const char *path,
                                 sonde_diag *diag)
{
    SONDE__TRY(sonde_safetensors_open(path, &all->file, diag));
    for (size_t i = 0; i < sonde_safetensors_count(all->file); i++) {
        const char *name = sonde_safetensors_name(all->file, i);
        const sonde_view *view = sonde_safetensors_view(all->file, i);
        SONDE__TRY(add(all, name, strlen(name), view, diag));
    }
    return SONDE_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named_array *)a)->name, ((const named_array *)b)->name);
}

/* All files .npy of a folder, by name. */
static sonde_err add_folder(sonde__data_arrays *all, const char *path, sonde_diag *diag)
{
    DIR *dir = opendir(path);
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;

    if (dir == NULL) {
        return sonde__fail_errno(diag, path, "cannot open the folder");
    }
    while (err == SONDE_OK && (entry = readdir(dir)) != NULL) {
        char file[4096];
        const int length = snprintf(file, sizeof file, "%s/%s", path, entry->d_name);

        if (entry->d_name[0] != '.' && length > 0 && (size_t)length < sizeof file &&
            ends_with(entry->d_name, ".npy")) {
            err = add_npy(all, file, diag);
        }
    }
    (void)closedir(dir);
    if (err == SONDE_OK && all->count == 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND, path, "*.npy",
                           "the folder has no arrays");
    }
    if (err == SONDE_OK) {
        qsort(all->arrays, all->count, sizeof *all->arrays, by_name);
    }
    return err;
}

/* --- all of them ---------------------------------------------------------------------- */

static sonde_err fill(sonde__data_arrays *all, const char *path, sonde_diag *diag)
{
    if (ends_with(path, ".npy")) {
        return add_npy(all, path, diag);
    }
    if (ends_with(path, ".safetensors")) {
        return add_safetensors(all, path, diag);
    }
    if (!ends_with(path, ".npz")) {
        return add_folder(all, path, diag);
    }
    SONDE__TRY(map_file(path, &all->map, &all->map_size, diag));
    return add_archive(all, all->map, all->map_size, path, diag);
}

/* bytes NULL: of a file or a folder. */
static sonde_err create(const char *name, const void *bytes, size_t size,
                        sonde__data_arrays **out, sonde_diag *diag)
{
    sonde__data_arrays *all = sonde__calloc(1, sizeof *all);

    if (all == NULL) {
        return sonde__fail_nomem(diag, "a list of arrays");
    }
    const sonde_err err =
        bytes != NULL ? add_archive(all, bytes, size, name, diag) : fill(all, name, diag);

    if (err != SONDE_OK) {
        sonde__data_arrays_destroy(all);
        return err;
    }
    *out = all;
    return SONDE_OK;
}

sonde_err sonde__data_arrays_open(const char *path, sonde__data_arrays **out,
                                  sonde_diag *diag)
{
    return create(path, NULL, 0, out, diag);
}

sonde_err sonde__data_arrays_parse(const void *bytes, size_t size, const char *name,
                                   sonde__data_arrays **out, sonde_diag *diag)
{
    return create(name, bytes, size, out, diag);
}

void sonde__data_arrays_destroy(sonde__data_arrays *all)
{
    if (all == NULL) {
        return;
    }
    for (size_t i = 0; i < all->count; i++) {
        sonde__free(all->arrays[i].name);
        sonde__free(all->arrays[i].owned);
        if (all->arrays[i].map != NULL) {
            (void)munmap(all->arrays[i].map, all->arrays[i].map_size);
        }
    }
    if (all->map != NULL) {
        (void)munmap(all->map, all->map_size);
    }
    sonde_safetensors_destroy(all->file);
    sonde__free(all->arrays);
    sonde__free(all);
}

size_t sonde__data_arrays_count(const sonde__data_arrays *all)
{
    return all->count;
}

const char *sonde__data_arrays_name(const sonde__data_arrays *all, size_t i)
{
    return i < all->count ? all->arrays[i].name : NULL;
}

const sonde_view *sonde__data_arrays_view(const sonde__data_arrays *all, size_t i)
{
    return i < all->count ? &all->arrays[i].view : NULL;
}

const sonde_view *sonde__data_arrays_find(const sonde__data_arrays *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++) {
        if (strcmp(all->arrays[i].name, name) == 0) {
            return &all->arrays[i].view;
        }
    }
    return NULL;
}
