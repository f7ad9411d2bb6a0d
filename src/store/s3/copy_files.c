/*
 * copy_files.c - the files of a copy, and the list of its objects; see copy.h.
 */
#include "store/s3/copy.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_AHEAD ((uint64_t)8 << 20)

enum { MOST_BARE = 60 /* seconds from making a copy to locking it */ };

const char *sonde__s3_copy_path(const sonde__s3_copy *copy, const char *name, char *path)
{
    (void)snprintf(path, SONDE__S3_PATH, "%s/run/%s", copy->folder, name);
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

/* Removes the copy at path if its reader is dead. */
static void remove_left(const char *path)
{
    struct stat about = {0};
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_mtime < time(NULL) - MOST_BARE &&
        flock(fd, LOCK_EX | LOCK_NB) == 0) {
        sonde__s3_remove_all(path);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

sonde_err sonde__s3_copy_hold(sonde__s3_copy *copy, sonde_diag *diag)
{
    const char *slash = strrchr(copy->folder, '/');
    const int root_length = slash != NULL ? (int)(slash - copy->folder) : 0;
    char path[SONDE__S3_PATH];

    copy->held = open(copy->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy->held < 0 || flock(copy->held, LOCK_SH) != 0) {
        return sonde__fail_errno(diag, copy->folder, "cannot be used");
    }
    sonde__s3_make_way(sonde__s3_copy_path(copy, "", path));
    (void)snprintf(path, sizeof path, "%.*s", root_length, copy->folder);
    DIR *root = opendir(path);
    for (const struct dirent *entry = NULL;
         root != NULL && (entry = readdir(root)) != NULL;) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%.*s/%s", root_length, copy->folder,
                           entry->d_name);
            remove_left(path);
        }
    }
    if (root != NULL) {
        (void)closedir(root);
    }
    return SONDE_OK;
}

/* Writes a file by renaming: a reader sees the old one or the new one. */
sonde_err sonde__s3_copy_write(const sonde__s3_copy *copy, const char *name,
                               const void *bytes, size_t size, sonde_diag *diag)
{
    char path[SONDE__S3_PATH], part[SONDE__S3_PATH];

    (void)sonde__s3_copy_path(copy, name, path);
    sonde__s3_make_way(path);
    if ((size_t)snprintf(part, sizeof part, "%s.new", path) >= sizeof part) {
        return sonde__fail(diag, SONDE_EINVAL, path, "a shorter name", "too long");
    }
    FILE *stream = fopen(part, "we");
    bool done = stream != NULL && (size == 0 || fwrite(bytes, 1, size, stream) == size);
    done = stream != NULL && fclose(stream) == 0 && done;
    return done && rename(part, path) == 0
               ? SONDE_OK
               : sonde__fail_errno(diag, path, "cannot be written");
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
    (void)snprintf(item->etag, sizeof item->etag, "%s", object->etag);
    item->size = object->size;
    item->lazy = lazy;
    item->stale = true;
    return SONDE_OK;
}

/* --- blocks ------------------------------------------------------------------------- */

static sonde_err write_at(const char *path, const sonde_text *body, uint64_t offset,
                          sonde_diag *diag)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t done = 0;

    while (fd >= 0 && done < body->length) {
        const ssize_t n =
            pwrite(fd, body->data + done, body->length - done, (off_t)(offset + done));

        if (n < 0 && errno != EINTR) {
            break;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    const sonde_err err = fd >= 0 && done == body->length
                              ? SONDE_OK
                              : sonde__fail_errno(diag, path, "cannot be written");
    if (fd >= 0) {
        (void)close(fd);
    }
    return err;
}

/* Fetches blocks [first, end), all of them missing, in one request. */
static sonde_err bring_blocks(const sonde__s3_copy *copy, sonde__s3_line *line,
                              sonde__s3_copied *item, uint64_t first, uint64_t end,
                              sonde_diag *diag)
{
    const uint64_t offset = first * SONDE__S3_BLOCK;
    const size_t count = (size_t)(SONDE_MIN(end * SONDE__S3_BLOCK, item->size) - offset);
    char where[256], path[SONDE__S3_PATH];
    sonde_text body = {0};
    sonde__s3_object object = {.size = 0};
    sonde_err err = sonde__s3_get(copy->bucket, line, item->name, offset, count, &body,
                                  &object, diag);

    if (err == SONDE_OK && (body.length != count || object.size != item->size)) {
        err = sonde__fail(diag, SONDE_EIO,
                          sonde__s3_where(copy->bucket, item->name, where, sizeof where),
                          NULL, "changed: %" PRIu64 " bytes, which were %" PRIu64,
                          object.size, item->size);
    }
    SONDE__TRY_DONE(err);
    SONDE__TRY_DONE(
        write_at(sonde__s3_copy_path(copy, item->name, path), &body, offset, diag));
    memset(item->blocks + first, 1, (size_t)(end - first));

done:
    sonde_text_fini(&body);
    return err;
}

sonde_err sonde__s3_copy_make_sparse(const sonde__s3_copy *copy, sonde__s3_line *line,
                                     sonde__s3_copied *item, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];

    sonde__s3_make_way(sonde__s3_copy_path(copy, item->name, path));
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const bool made = fd >= 0 && ftruncate(fd, (off_t)item->size) == 0;
    const sonde_err err =
        made ? SONDE_OK : sonde__fail_errno(diag, path, "cannot be made");
    if (fd >= 0) {
        (void)close(fd);
    }
    SONDE__TRY(err);
    sonde__free(item->blocks);
    item->blocks = sonde__calloc(1, (size_t)(item->size / SONDE__S3_BLOCK) + 1);
    if (item->blocks == NULL) {
        return sonde__fail_nomem(diag, item->name);
    }
    return item->size > 0 ? bring_blocks(copy, line, item, 0, 1, diag) : SONDE_OK;
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
    uint64_t block = offset / SONDE__S3_BLOCK;

    if (item->blocks == NULL || offset >= item->size) {
        return SONDE_OK;
    }
    uint64_t end = count > item->size - offset ? item->size : offset + count;
    uint64_t last = (end + SONDE__S3_BLOCK - 1) / SONDE__S3_BLOCK;
    if (memchr(item->blocks + block, 0, (size_t)(last - block)) == NULL) {
        return SONDE_OK;
    }
    end = read_ahead(copy, item, offset, end);
    last = (end + SONDE__S3_BLOCK - 1) / SONDE__S3_BLOCK;
    while (block < last) {
        uint64_t stop = block;

        while (stop < last && stop - block < most && item->blocks[stop] == 0) {
            stop++;
        }
        if (stop > block) {
            SONDE__TRY(bring_blocks(copy, &copy->line, item, block, stop, diag));
        }
        block = SONDE_MAX(stop, block + 1);
    }
    return SONDE_OK;
}
