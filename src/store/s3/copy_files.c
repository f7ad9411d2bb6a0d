/*
 * copy_files.c - the files of a copy, and the list of its objects; see copy.h.
 */
#include "store/s3/copy.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_AHEAD ((uint64_t)8 << 20)

const char *sonde__s3_copy_path(const sonde__s3_copy *copy, const char *part,
                                const char *name, char *path)
{
    (void)snprintf(path, SONDE__S3_PATH, "%s/%s/%s", copy->folder, part, name);
    return path;
}

void sonde__s3_make_way(const char *path)
{
    char copy[SONDE__S3_PATH];

    (void)snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(copy, 0777); /* using it reports why not */
        *slash = '/';
    }
}

static int remove_one(const char *path, const struct stat *about, int kind,
                      struct FTW *depth)
{
    (void)about;
    (void)kind;
    (void)depth;
    (void)remove(path);
    return 0;
}

void sonde__s3_remove_all(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void unmap(sonde__s3_copied *item);

void sonde__s3_copy_wipe(sonde__s3_copy *copy)
{
    static const char *const parts[] = {"run", "have"};
    char path[SONDE__S3_PATH];

    for (size_t i = 0; i < copy->count; i++) {
        unmap(&copy->items[i]);
        sonde__free(copy->items[i].name);
    }
    copy->count = 0;
    copy->dirty = true;
    for (size_t i = 0; i < SONDE_COUNT_OF(parts); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", copy->folder, parts[i]);
        sonde__s3_remove_all(path);
    }
}

/* Writes a file by renaming; a power failure may lose it. */
static sonde_err write_whole(const char *path, const void *bytes, size_t size,
                             sonde_diag *diag)
{
    char part[SONDE__S3_PATH];

    if ((size_t)snprintf(part, sizeof part, "%s.%ld.new", path, (long)getpid()) >=
        sizeof part) {
        return sonde__fail(diag, SONDE_EINVAL, path, "a shorter name", "too long");
    }
    FILE *stream = fopen(part, "we");
    bool done = stream != NULL && (size == 0 || fwrite(bytes, 1, size, stream) == size);
    done = stream != NULL && fclose(stream) == 0 && done;
    if (!done || rename(part, path) != 0) {
        const int failed = errno;

        (void)unlink(part);
        errno = failed;
        return sonde__fail_errno(diag, path, "cannot be written");
    }
    return SONDE_OK;
}

sonde_err sonde__s3_copy_write(const sonde__s3_copy *copy, const char *name,
                               const void *bytes, size_t size, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];

    (void)sonde__s3_copy_path(copy, "run", name, path);
    sonde__s3_make_way(path);
    return write_whole(path, bytes, size, diag);
}

/* --- the list of objects ---------------------------------------------------------------------- */

/* The first item whose name is not less. */
static size_t place_of(const sonde__s3_copy *copy, const char *name)
{
    size_t low = 0, high = copy->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (strcmp(copy->items[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

sonde__s3_copied *sonde__s3_copy_find(const sonde__s3_copy *copy, const char *name)
{
    const size_t place = place_of(copy, name);

    return place < copy->count && strcmp(copy->items[place].name, name) == 0
               ? &copy->items[place]
               : NULL;
}

sonde_err sonde__s3_copy_note(sonde__s3_copy *copy, const sonde__s3_object *object,
                              bool lazy, sonde_diag *diag)
{
    const size_t place = place_of(copy, object->name);
    sonde__s3_copied *item = place < copy->count ? &copy->items[place] : NULL;

    if (item == NULL || strcmp(item->name, object->name) != 0) {
        char *name = sonde__strdup(object->name);

        if (name == NULL || !sonde__reserve(&copy->items, &copy->capacity,
                                            copy->count + 1, sizeof *copy->items)) {
            sonde__free(name);
            return sonde__fail_nomem(diag, object->name);
        }
        item = &copy->items[place];
        memmove(item + 1, item, (copy->count - place) * sizeof *item);
        *item = (sonde__s3_copied){.name = name, .stale = true};
        copy->count++;
    } else if (strcmp(item->etag, object->etag) == 0 && item->size == object->size) {
        return SONDE_OK;
    }
    unmap(item);
    copy->dirty = true;
    (void)snprintf(item->etag, sizeof item->etag, "%s", object->etag);
    item->size = object->size;
    item->lazy = lazy;
    item->stale = true;
    return SONDE_OK;
}

/* A line: etag, size, l or w, name. */
static sonde_err take_line(sonde__s3_copy *copy, const char *line, sonde_diag *diag)
{
    sonde__s3_object object = {.size = 0};
    char path[SONDE__S3_PATH], kind = 0;
    struct stat about;

    if (sscanf(line, "%127s %" SCNu64 " %c %1024[^\n]", object.etag, &object.size, &kind,
               object.name) != 4 ||
        stat(sonde__s3_copy_path(copy, "run", object.name, path), &about) != 0 ||
        (uint64_t)about.st_size != object.size) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__s3_copy_note(copy, &object, kind == 'l', diag));
    sonde__s3_copied *item = sonde__s3_copy_find(copy, object.name);
    if (item != NULL) {
        item->stale = false;
    }
    return SONDE_OK;
}

sonde_err sonde__s3_copy_load(sonde__s3_copy *copy, sonde_diag *diag)
{
    char path[SONDE__S3_PATH], *line = NULL;
    FILE *stream = NULL;
    size_t room = 0;
    sonde_err err = SONDE_OK;

    (void)snprintf(path, sizeof path, "%s/objects", copy->folder);
    stream = fopen(path, "re");
    if (stream == NULL) {
        return SONDE_OK;
    }
    while (getline(&line, &room, stream) >= 0) {
        SONDE__TRY_DONE(take_line(copy, line, diag));
    }

done:
    free(line);
    (void)fclose(stream);
    return err;
}

sonde_err sonde__s3_copy_save(const sonde__s3_copy *copy, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    sonde_text text = {0};
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < copy->count; i++) {
        const sonde__s3_copied *item = &copy->items[i];

        if (!item->stale) {
            sonde_text_format(&text, "%s %" PRIu64 " %c %s\n",
                              item->etag[0] != '\0' ? item->etag : "-", item->size,
                              item->lazy ? 'l' : 'w', item->name);
        }
    }
    (void)snprintf(path, sizeof path, "%s/objects", copy->folder);
    err = text.failed ? sonde__fail_nomem(diag, path)
                      : write_whole(path, text.data, text.length, diag);
    sonde_text_fini(&text);
    return err;
}

/* --- files -------------------------------------------------------------------------- */

static const char *bits_path(const sonde__s3_copy *copy, const sonde__s3_copied *item,
                             char *path)
{
    return sonde__s3_copy_path(copy, "have", item->name, path);
}

static size_t bits_size(const sonde__s3_copied *item)
{
    return (size_t)(item->size / SONDE__S3_BLOCK / 8 + 1);
}

static void unmap(sonde__s3_copied *item)
{
    if (item->bits != NULL) {
        (void)munmap(item->bits, bits_size(item));
        item->bits = NULL;
    }
}

static int make_file(const char *path, uint64_t size)
{
    int fd = -1, failed = 0;

    sonde__s3_make_way(path);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    failed = fd < 0 || ftruncate(fd, (off_t)size) != 0 ? errno : 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return failed;
}

/* --- blocks ------------------------------------------------------------------------- */

static sonde_err map_bits(const sonde__s3_copy *copy, sonde__s3_copied *item,
                          sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    const int fd = open(bits_path(copy, item, path), O_RDWR | O_CLOEXEC);
    struct stat about = {0};
    void *bits = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &about) == 0 && (size_t)about.st_size == bits_size(item)) {
        bits = mmap(NULL, bits_size(item), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (bits == MAP_FAILED) {
        return sonde__fail(diag, SONDE_EIO, path, "the copy as Sonde made it",
                           "cannot be used; remove %s", copy->folder);
    }
    item->bits = bits;
    return SONDE_OK;
}

static bool has_block(const sonde__s3_copied *item, uint64_t block)
{
    return (__atomic_load_n(&item->bits[block / 8], __ATOMIC_ACQUIRE) >> (block % 8) &
            1) != 0;
}

static int write_bytes(int fd, const char *bytes, size_t size, uint64_t offset)
{
    while (size > 0) {
        const ssize_t n = pwrite(fd, bytes, size, (off_t)offset);

        if (n < 0 && errno != EINTR) {
            return errno;
        }
        bytes += n > 0 ? n : 0;
        offset += n > 0 ? (uint64_t)n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static sonde_err write_blocks(const sonde__s3_copy *copy, const sonde__s3_copied *item,
                              const sonde_text *body, uint64_t offset, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    const int fd =
        open(sonde__s3_copy_path(copy, "run", item->name, path), O_WRONLY | O_CLOEXEC);
    const int failed = fd < 0 ? errno : write_bytes(fd, body->data, body->length, offset);

    if (fd >= 0) {
        (void)close(fd);
    }
    errno = failed;
    return failed == 0 ? SONDE_OK : sonde__fail_errno(diag, path, "cannot be written");
}

/* Fetches blocks [first, end), all of them missing, in one request. */
static sonde_err bring_blocks(const sonde__s3_copy *copy, sonde__s3_line *line,
                              sonde__s3_copied *item, uint64_t first, uint64_t end,
                              sonde_diag *diag)
{
    const uint64_t offset = first * SONDE__S3_BLOCK;
    const size_t count = (size_t)(SONDE_MIN(end * SONDE__S3_BLOCK, item->size) - offset);
    char where[256];
    sonde_text body = {0};
    sonde__s3_object object = {.size = 0};
    sonde_err err = sonde__s3_get(copy->bucket, line, item->name, offset, count, &body,
                                  &object, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    if (body.length != count || object.size != item->size) {
        err = sonde__fail(diag, SONDE_EIO,
                          sonde__s3_where(copy->bucket, item->name, where, sizeof where),
                          NULL, "changed: %" PRIu64 " bytes, which were %" PRIu64,
                          object.size, item->size);
        goto done;
    }
    SONDE__TRY_DONE(write_blocks(copy, item, &body, offset, diag));
    for (uint64_t block = first; block < end; block++) {
        (void)__atomic_fetch_or(&item->bits[block / 8],
                                (unsigned char)(1u << (block % 8)), __ATOMIC_RELEASE);
    }

done:
    sonde_text_fini(&body);
    return err;
}

sonde_err sonde__s3_copy_make_sparse(const sonde__s3_copy *copy, sonde__s3_line *line,
                                     sonde__s3_copied *item, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    sonde_err err = SONDE_OK;
    int failed = make_file(bits_path(copy, item, path), bits_size(item));

    if (failed == 0) {
        failed =
            make_file(sonde__s3_copy_path(copy, "run", item->name, path), item->size);
    }
    if (failed != 0) {
        errno = failed;
        return sonde__fail_errno(diag, path, "cannot be made");
    }
    if (item->size == 0) {
        return SONDE_OK;
    }
    SONDE__TRY(map_bits(copy, item, diag));
    err = bring_blocks(copy, line, item, 0, 1, diag);
    unmap(item);
    return err;
}

/* The end of what is fetched: the read-ahead doubles while a reader reads a file onwards,
 * also if it asks for bytes of which some were read ahead. */
static uint64_t read_ahead(sonde__s3_copy *copy, const sonde__s3_copied *item,
                           uint64_t offset, uint64_t end)
{
    const size_t index = (size_t)(item - copy->items);
    const bool onward = index == copy->last && end > copy->last_end &&
                        offset <= copy->last_end + 4 * (uint64_t)SONDE__S3_BLOCK;

    copy->ahead =
        onward ? SONDE_MIN(2 * copy->ahead + 4 * SONDE__S3_BLOCK, MOST_AHEAD) : 0;
    copy->last = index;
    copy->last_end = SONDE_MIN(end + copy->ahead, item->size);
    return copy->last_end;
}

sonde_err sonde__s3_copy_bring(sonde__s3_copy *copy, sonde__s3_copied *item,
                               uint64_t offset, uint64_t count, sonde_diag *diag)
{
    const uint64_t most = SONDE__S3_PART / SONDE__S3_BLOCK;
    uint64_t end = 0, block = offset / SONDE__S3_BLOCK, last = 0;
    bool missing = false;
    sonde_err err = item->bits != NULL ? SONDE_OK : map_bits(copy, item, diag);

    if (err != SONDE_OK || offset >= item->size) {
        return err;
    }
    end = count > item->size - offset ? item->size : offset + count;
    last = (end + SONDE__S3_BLOCK - 1) / SONDE__S3_BLOCK;
    for (uint64_t i = block; i < last && !missing; i++) {
        missing = !has_block(item, i);
    }
    if (!missing) {
        return SONDE_OK;
    }
    end = read_ahead(copy, item, offset, end);
    last = (end + SONDE__S3_BLOCK - 1) / SONDE__S3_BLOCK;
    while (block < last) {
        uint64_t stop = block;

        while (stop < last && stop - block < most && !has_block(item, stop)) {
            stop++;
        }
        if (stop > block) {
            copy->grown = true;
            err = bring_blocks(copy, &copy->line, item, block, stop, diag);
        }
        if (err != SONDE_OK) {
            return err;
        }
        block = SONDE_MAX(stop, block + 1);
    }
    return SONDE_OK;
}
