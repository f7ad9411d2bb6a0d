/*
 * mapping.c - numbered files by the name they have at the moment, and parts of them in
 * memory.
 *
 * A `.part` becomes a closed file by being renamed: the bytes stay, and so does what is
 * mapped of them. One that grows is mapped anew, larger, when something behind the mapped
 * part is asked for; what was mapped before stays for those who have borrowed it.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A part is mapped with this much room to grow into, so that few mappings pile up. */
#define ROOM ((uint64_t)64 << 20)

sonde__trial_file *sonde__trial_file_of(sonde__trial_file_list *list, uint64_t number)
{
    if (list->count > 0 && list->items[list->count - 1].number == number) {
        return &list->items[list->count - 1];
    }
    if (list->count >= SONDE__NONE - 1 ||
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
    *list = (sonde__trial_file_list){0};
}

/* The two names take turns: the file may be renamed between two looks. */
int sonde__trial_file_open(const sonde_trial *trial, const sonde__trial_worker *worker,
                           sonde__record_file_kind kind, sonde__trial_file *file,
                           char *path)
{
    for (int i = 0; i < 3; i++) {
        const bool part = !file->closed && i != 1;
        char name[SONDE__FILE_NAME];
        int fd = -1;

        sonde__record_file_name(name, kind, file->number, part);
        fd = open(sonde__trial_path(trial, worker, name, path),
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
    sonde__trial_mapping *mapping = NULL;
    const uint64_t length = file->closed ? size : size + SONDE_MAX(size, ROOM);
    void *base = NULL;

    mapping = sonde__malloc(sizeof *mapping);
    if (mapping == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    base = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        sonde__free(mapping);
        return sonde__fail_errno(diag, path, "cannot be mapped");
    }
    *mapping = (sonde__trial_mapping){base, (size_t)length, (uint64_t)about->st_ino,
                                      file->mapping};
    file->mapping = mapping;
    return SONDE_OK;
}

/* Whether what is mapped will do, and was looked at since the question was asked. */
static bool is_ready(const sonde_trial *trial, const sonde__trial_file *file,
                     uint64_t offset, uint64_t count)
{
    return file->look == trial->look && file->mapping != NULL &&
           file->mapping->size >= offset && file->size >= offset &&
           SONDE_MIN(file->size, (uint64_t)file->mapping->size) - offset >= count;
}

/*
 * Opens the file to see that it is still as long as it was: what is mapped behind its end
 * cannot be touched without the process being killed.
 */
sonde_err sonde__trial_file_map(const sonde_trial *trial,
                                const sonde__trial_worker *worker,
                                sonde__record_file_kind kind, sonde__trial_file *file,
                                uint64_t offset, uint64_t count,
                                const unsigned char **bytes, sonde_diag *diag)
{
    char path[SONDE__PATH];
    struct stat about = {0};
    uint64_t end = 0;
    sonde_err err = SONDE_OK;
    int fd = -1;

    if (is_ready(trial, file, offset, count)) {
        *bytes = file->mapping->base + offset;
        return SONDE_OK;
    }
    fd = sonde__trial_file_open(trial, worker, kind, file, path);
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
    if (err == SONDE_OK) {
        *bytes = end > 0 ? file->mapping->base + offset : (const unsigned char *)"";
        file->look = trial->look;
        file->size = (uint64_t)about.st_size;
    }
    return err;
}

void sonde__trial_file_ahead(const sonde_trial *trial, const sonde__trial_worker *worker,
                             uint32_t segment, uint64_t offset, uint64_t count)
{
    sonde__trial_file *file = &worker->files[SONDE__RAW].items[segment];
    const unsigned char *bytes = NULL;
    uintptr_t begin = 0;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    if (trial->smdebug != NULL) {
        sonde__trial_smdebug_ahead(trial, worker, file, offset, count);
        return;
    }
    if (sonde__trial_file_map(trial, worker, SONDE__FILE_SEGMENT, file,
                              file->head + offset, count, &bytes, NULL) != SONDE_OK) {
        return; /* whoever reads it will hear why */
    }
    begin = (uintptr_t)bytes / page * page;
    (void)madvise((void *)begin, (size_t)((uintptr_t)bytes + count - begin),
                  MADV_WILLNEED);
}
