/*
 * mapping.c - see mapping.h.
 */
#include "trial/mapping.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "storage/store.h"
#include "trial/trial_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A part is mapped with this much room to grow into, so that few mappings pile up. */
#define ROOM ((uint64_t)64 << 20)

sonde__trial_file *sonde__trial_file_numbered(sonde__trial_file_list *list,
                                              uint64_t number)
{
    if (list->count > 0 && list->items[list->count - 1].number == number) {
        return &list->items[list->count - 1];
    }
    if (list->count >= UINT32_MAX - 1 ||
        !sonde__reserve(&list->items, &list->capacity, list->count + 1,
                        sizeof *list->items)) {
        return NULL;
    }
    list->items[list->count] = (sonde__trial_file){.number = number};
    return &list->items[list->count++];
}

static void unmap(sonde__trial_mapping *mapping)
{
    while (mapping != NULL) {
        sonde__trial_mapping *before = mapping->before;

        (void)munmap((void *)(uintptr_t)mapping->base, mapping->size);
        sonde__free(mapping);
        mapping = before;
    }
}

void sonde__trial_file_list_fini(sonde__trial_file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        unmap(list->items[i].mapping);
        sonde__free(list->items[i].name);
    }
    sonde__free(list->items);
    list->items = NULL;
    list->count = list->capacity = 0;
}

/* The two names take turns: the file may be renamed between two looks. */
int sonde__trial_file_open(const sonde__trial_file_list *list, sonde__trial_file *file,
                           char *path)
{
    for (int i = 0; i < 3; i++) {
        const bool part = !file->closed && i != 1;
        char name[SONDE__FILE_NAME];
        int fd = -1;

        sonde__record_file_name(name, list->kind, file->number, part);
        fd = open(sonde__trial_path(list->folder, name, path),
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0) {
            file->closed = !part;
            return fd;
        }
        if (errno != ENOENT) {
            return -1;
        }
    }
    return -1;
}

static sonde_err map(sonde__trial_file *file, int fd, const struct stat *about,
                     const char *path, sonde_diag *diag)
{
    const uint64_t size = (uint64_t)about->st_size;
    const uint64_t length = file->closed ? size : size + SONDE_MAX(size, ROOM);

    sonde__trial_mapping *mapping = sonde__malloc(sizeof *mapping);
    if (mapping == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    void *base = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        sonde__free(mapping);
        return sonde__fail_errno(diag, path, "cannot be mapped");
    }
    *mapping = (sonde__trial_mapping){base, (size_t)length, (uint64_t)about->st_ino,
                                      file->mapping};
    file->mapping = mapping;
    return SONDE_OK;
}

/* Whether the mapping suffices, and the file was looked at for this question. */
static bool is_ready(const sonde__trial_file *file, uint64_t question, uint64_t offset,
                     uint64_t count)
{
    return file->question == question && file->mapping != NULL &&
           file->mapping->size >= offset && file->size >= offset &&
           SONDE_MIN(file->size, (uint64_t)file->mapping->size) - offset >= count;
}

/* Brings the bytes in if the file is a copy of one in a store. */
static sonde_err fetch(const sonde__trial_file_list *list, const sonde__trial_file *file,
                       uint64_t offset, uint64_t count, sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH];

    sonde__record_file_name(name, list->kind, file->number, false);
    return sonde__store_fetch(sonde__trial_path(list->folder, name, path), offset, count,
                              diag);
}

/*
 * Opens the file to see that it is still as long as before: touching a mapping beyond the
 * end of its file kills the process.
 */
sonde_err sonde__trial_file_map(const sonde__trial_file_list *list,
                                sonde__trial_file *file, uint64_t question,
                                uint64_t offset, uint64_t count,
                                const unsigned char **bytes, sonde_diag *diag)
{
    char path[SONDE__PATH];
    struct stat about = {0};
    uint64_t end = 0;
    sonde_err err = SONDE_OK;

    if (sonde__store_has_copies()) {
        SONDE__TRY(fetch(list, file, offset, count, diag));
    }
    if (is_ready(file, question, offset, count)) {
        *bytes = file->mapping->base + offset;
        return SONDE_OK;
    }
    const int fd = sonde__trial_file_open(list, file, path);
    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    if (fstat(fd, &about) != 0) {
        err = sonde__fail_errno(diag, path, "cannot be examined");
    } else if (__builtin_add_overflow(offset, count, &end) ||
               end > (uint64_t)about.st_size) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, NULL,
                          "cut off: %lld bytes, where %llu are needed",
                          (long long)about.st_size, (unsigned long long)end);
    } else if (end > 0 && (file->mapping == NULL || file->mapping->size < end ||
                           file->mapping->node != (uint64_t)about.st_ino)) {
        err = map(file, fd, &about, path, diag);
    }
    (void)close(fd);
    if (err != SONDE_OK) {
        return err;
    }
    *bytes = end > 0 ? file->mapping->base + offset : (const unsigned char *)"";
    file->question = question;
    file->size = (uint64_t)about.st_size;
    return SONDE_OK;
}

void sonde__trial_file_ahead(const sonde__trial_file_list *list, sonde__trial_file *file,
                             uint64_t question, uint64_t offset, uint64_t count)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const unsigned char *bytes = NULL;

    if (sonde__trial_file_map(list, file, question, file->head + offset, count, &bytes,
                              NULL) != SONDE_OK) {
        return; /* reading it reports why */
    }
    const uintptr_t begin = (uintptr_t)bytes / page * page;
    (void)madvise((void *)begin, (size_t)((uintptr_t)bytes + count - begin),
                  MADV_WILLNEED);
}
