/*
 * copy_evict.c - keeps the copies of this machine below SONDE_S3_CACHE_BYTES: the copies
 * that were opened longest ago are emptied first; see copy.h.
 *
 * A reader holds a shared lock of its copy's folder. A copy is emptied under an exclusive
 * lock, so never one that is in use; its folder stays, for a reader that waits for the
 * lock.
 */
#include "store/s3/copy.h"
#include "base/memory.h"
#include "base/point.h"
#include "store/s3/profile.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_CACHE (10.0 * 1024.0 * 1024.0 * 1024.0)

typedef struct old_copy {
    char name[64];
    struct timespec used;
    uint64_t bytes;
} old_copy;

typedef struct copy_list {
    old_copy *copies;
    size_t count, capacity;
} copy_list;

static int in_order(const void *left, const void *right)
{
    const old_copy *a = left, *b = right;

    if (a->used.tv_sec != b->used.tv_sec) {
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    }
    if (a->used.tv_nsec != b->used.tv_nsec) {
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* Bytes on disk of a folder and what is in it; files that vanish do not count. */
static uint64_t size_of(const char *path)
{
    char inside[SONDE__S3_PATH];
    struct stat about;
    uint64_t bytes = 0;
    const struct dirent *entry = NULL;
    DIR *folder = opendir(path);

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const bool self =
            strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;

        if (self ||
            (size_t)snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) >=
                sizeof inside ||
            lstat(inside, &about) != 0) {
            continue;
        }
        bytes +=
            S_ISDIR(about.st_mode) ? size_of(inside) : (uint64_t)about.st_blocks * 512;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return bytes;
}

/* Adds a copy to the list; what has no lock file is none. */
static void add(copy_list *list, const char *root, const char *name)
{
    char path[SONDE__S3_PATH];
    struct stat about;
    old_copy *copy = NULL;

    if (strlen(name) >= sizeof copy->name ||
        (size_t)snprintf(path, sizeof path, "%s/%s/lock", root, name) >= sizeof path ||
        stat(path, &about) != 0 ||
        !sonde__reserve(&list->copies, &list->capacity, list->count + 1,
                        sizeof *list->copies)) {
        return;
    }
    copy = &list->copies[list->count++];
    (void)snprintf(copy->name, sizeof copy->name, "%s", name);
    copy->used = about.st_mtim;
    path[strlen(path) - strlen("/lock")] = '\0';
    copy->bytes = size_of(path);
}

/* Empties a copy that no reader has open. */
static bool empty(const char *root, const old_copy *copy)
{
    static const char *const parts[] = {"run", "have", "objects"};
    char path[SONDE__S3_PATH];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", root, copy->name) >= sizeof path) {
        return false;
    }
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    for (size_t i = 0; free && i < sizeof parts / sizeof *parts; i++) {
        if ((size_t)snprintf(path, sizeof path, "%s/%s/%s", root, copy->name, parts[i]) <
            sizeof path) {
            sonde__s3_remove_all(path);
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return free;
}

static double most_bytes(void)
{
    const char *text = sonde__s3_variable("SONDE_S3_CACHE_BYTES");
    char *end = NULL;
    const double value = text != NULL ? sonde__strtod(text, &end) : -1.0;

    return text != NULL && end != text && value >= 0.0 ? value : MOST_CACHE;
}

void sonde__s3_copy_evict(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    const double most = most_bytes();
    char root[SONDE__S3_PATH / 2];
    const struct dirent *entry = NULL;
    copy_list list = {0};
    double bytes = 0.0;

    if (slash == NULL || (size_t)(slash - folder) >= sizeof root) {
        return;
    }
    memcpy(root, folder, (size_t)(slash - folder));
    root[slash - folder] = '\0';
    DIR *all = opendir(root);
    while (all != NULL && (entry = readdir(all)) != NULL) {
        if (entry->d_name[0] != '.') {
            add(&list, root, entry->d_name);
        }
    }
    if (all != NULL) {
        (void)closedir(all);
    }
    for (size_t i = 0; i < list.count; i++) {
        bytes += (double)list.copies[i].bytes;
    }
    if (list.count > 0) {
        qsort(list.copies, list.count, sizeof *list.copies, in_order);
    }
    for (size_t i = 0; i < list.count && bytes > most; i++) {
        bytes -= empty(root, &list.copies[i]) ? (double)list.copies[i].bytes : 0.0;
    }
    sonde__free(list.copies);
}
