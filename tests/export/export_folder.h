/*
 * export_folder.h - a folder for files that are written, and what was written, for the
 * tests of exports.
 */
#ifndef SONDE_TESTS_EXPORT_FOLDER_H
#define SONDE_TESTS_EXPORT_FOLDER_H

#include "cmocka_all.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-export-XXXXXX");
    return mkdtemp(folder) == NULL;
}

/* Files in the folder; removes them if asked. */
static inline int count_files(bool remove_them)
{
    DIR *dir = opendir(folder);
    int count = 0;

    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[512];

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        count++;
        if (remove_them) {
            assert_int_equal(remove(path), 0);
        }
    }
    (void)closedir(dir);
    return count;
}

static inline int remove_folder(void **state)
{
    (void)state;
    (void)count_files(true);
    return rmdir(folder);
}

static inline const char *in_folder(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A whole file; its size in *size. */
static inline unsigned char *slurp(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    (void)fclose(file);
    return bytes;
}

static inline uint64_t number(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, at, bytes);
    return value;
}

#endif
