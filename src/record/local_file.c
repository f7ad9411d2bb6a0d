/*
 * local_file.c - a file that is written from front to back.
 *
 * What is appended is remembered as pieces and written by one pwritev; the bytes go from
 * the ring to the kernel without a copy in between. Much at once goes past the page cache
 * instead, from the first block that begins in it to the last that ends in it (bulk.h):
 * that is as fast as the disk, and does not wait for the kernel to make room. Space is set
 * aside before, so that the writes can be in flight together; a sync gives it back. File
 * systems that cannot do it are written as ever.
 *
 *     | file so far ..| head |  block  |  block  |  block  | rest |
 *                      pwritev       direct                 pwrite
 */
#include "record/local.h"

#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
#if defined(SONDE_STRESS)
    PIECES = 3,
#else
    PIECES = 1024, /* IOV_MAX of Linux */
#endif
    AHEAD = 64 * 1024 * 1024 /* bytes that space is set aside for */
};

typedef struct local_file {
    sonde__record_file file; /* first */
    sonde__record_local *home;
    int fd;
    int count;            /* of pieces */
    struct iovec *pieces; /* PIECES */
    int direct;           /* a descriptor past the page cache; -1: none */
    bool no_direct;       /* and there never will be one */
    bool bulk;            /* since the last settle */
    uint64_t head;        /* bytes to come before the bulk's first block */
    uint64_t promised;    /* the end of what was put in bulk */
    uint64_t aside;       /* the file's length with the space set aside; 0: none is */
} local_file;

static int open_file(sonde__record_local *home, const char *name, int flags,
                     sonde__record_file **out)
{
    local_file *file = sonde__calloc(1, sizeof *file);
    struct stat about = {0};
    int failed = 0;

    if (file == NULL) {
        return ENOMEM;
    }
    file->file.ops = home->backend.ops;
    file->home = home;
    file->fd = file->direct = -1;
    file->pieces = sonde__calloc(PIECES, sizeof *file->pieces);
    if (file->pieces == NULL) {
        failed = ENOMEM;
    } else {
        file->fd = open(sonde__record_local_path(home, home->name, name),
                        O_RDWR | O_CLOEXEC | flags, 0666);
        failed = file->fd < 0 || fstat(file->fd, &about) != 0 ? errno : 0;
    }
    if (failed != 0) {
        file->file.ops->close(&file->file);
        return failed;
    }
    file->file.end = (uint64_t)about.st_size;
    *out = &file->file;
    return 0;
}

int sonde__record_local_create(sonde__record_backend *backend, const char *name,
                               sonde__record_file **out)
{
    return open_file((sonde__record_local *)backend, name, O_CREAT | O_EXCL, out);
}

int sonde__record_local_open(sonde__record_backend *backend, const char *name,
                             sonde__record_file **out)
{
    return open_file((sonde__record_local *)backend, name, 0, out);
}

/* --- bulk ------------------------------------------------------------------------- */

/* Whether what comes now can go past the page cache. */
static bool begin_bulk(local_file *file)
{
    const uint64_t end = file->file.end;
    const uint64_t block = SONDE__BULK_BLOCK;
    char path[64];

    if (file->no_direct) {
        return false;
    }
    if (file->home->bulk == NULL) {
        file->home->bulk = sonde__record_bulk_create();
    }
    if (file->direct < 0) {
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
        file->direct = open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
    }
    if (file->home->bulk == NULL || file->direct < 0) {
        file->no_direct = true;
        return false;
    }
    file->head = (block - end % block) % block;
    file->bulk = true;
    file->promised = end + file->head;
    sonde__record_bulk_begin(file->home->bulk, file->direct, end + file->head);
    return true;
}

/* Space for what is put, and some; where there is none, writing will tell. */
static void set_aside(local_file *file)
{
    if (file->promised > file->aside) {
        const uint64_t begin = SONDE_MAX(file->aside, file->file.end);

        file->aside = file->promised + AHEAD;
        if (fallocate(file->fd, 0, (off_t)begin, (off_t)(file->aside - begin)) != 0) {
            file->aside = UINT64_MAX; /* not again */
        }
    }
}

static int append_piece(local_file *file, const void *bytes, size_t size);

static int append_bulk(local_file *file, const void *bytes, size_t size)
{
    const size_t before = (size_t)SONDE_MIN(file->head, size);
    int failed = 0;

    if (before > 0) {
        failed = append_piece(file, bytes, before);
        file->head -= before;
    }
    if (failed == 0 && size > before) {
        file->promised += size - before;
        set_aside(file);
        sonde__record_bulk_put(file->home->bulk, (const unsigned char *)bytes + before,
                               size - before);
    }
    return failed;
}

/* What was put past the page cache, behind the head, which is written. */
static int end_bulk(local_file *file)
{
    const void *rest = NULL;
    size_t left = 0;
    uint64_t good = 0;
    int failed = sonde__record_bulk_end(file->home->bulk, &good, &rest, &left);

    file->bulk = false;
    if (file->head == 0) {
        file->file.end = good;
    }
    if (failed == EINVAL) { /* a file system that takes no direct writes after all */
        file->no_direct = true;
    }
    if (failed == 0 && left > 0) {
        failed = sonde__record_local_write_at(&file->file, good, rest, left);
        file->file.end += failed == 0 ? left : 0;
    }
    return failed;
}

/* --- pieces ----------------------------------------------------------------------- */

/* All pieces to the end. Some may be written when it fails. */
static int write_pieces(local_file *file)
{
    struct iovec *at = file->pieces;
    int left = file->count, failed = 0;

    while (left > 0 && failed == 0) {
        ssize_t written = pwritev(file->fd, at, left, (off_t)file->file.end);

        if (written < 0) {
            failed = errno == EINTR ? 0 : errno;
            continue;
        }
        if (written == 0) {
            failed = EIO;
        }
        file->file.end += (uint64_t)written;
        while (left > 0 && (size_t)written >= at->iov_len) {
            written -= (ssize_t)at->iov_len;
            at++;
            left--;
        }
        if (left > 0) {
            at->iov_base = (unsigned char *)at->iov_base + written;
            at->iov_len -= (size_t)written;
        }
    }
    file->count = 0;
    return failed;
}

static int append_piece(local_file *file, const void *bytes, size_t size)
{
    struct iovec *const last = &file->pieces[SONDE_MAX(file->count, 1) - 1];
    unsigned char *const from = (unsigned char *)(uintptr_t)bytes; /* only read */

    if (file->count > 0 && (unsigned char *)last->iov_base + last->iov_len == from) {
        last->iov_len += size;
        return 0;
    }
    if (file->count == PIECES) {
        const int failed = write_pieces(file);

        if (failed != 0) {
            return failed;
        }
    }
    file->pieces[file->count++] = (struct iovec){from, size};
    return 0;
}

int sonde__record_local_append(sonde__record_file *of, const void *bytes, size_t size)
{
    local_file *file = (local_file *)of;

    if (size == 0) {
        return 0;
    }
    if (!file->bulk && of->in_bulk && file->count == 0) {
        (void)begin_bulk(file);
    }
    return file->bulk ? append_bulk(file, bytes, size) : append_piece(file, bytes, size);
}

int sonde__record_local_settle(sonde__record_file *of)
{
    local_file *file = (local_file *)of;
    const int failed = write_pieces(file);
    int bulk_failed = 0;

    if (file->bulk) {
        const uint64_t end = of->end;

        bulk_failed = end_bulk(file);
        if (failed != 0) { /* without the head there is a hole */
            of->end = end;
        }
    }
    return failed != 0 ? failed : bulk_failed;
}

/* --- at places -------------------------------------------------------------------- */

int sonde__record_local_write_at(sonde__record_file *of, uint64_t at, const void *bytes,
                                 size_t size)
{
    const local_file *file = (const local_file *)of;
    const unsigned char *from = bytes;

    while (size > 0) {
        const ssize_t written = pwrite(file->fd, from, size, (off_t)at);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return written < 0 ? errno : EIO;
        }
        from += written;
        at += (uint64_t)written;
        size -= (size_t)written;
    }
    return 0;
}

int sonde__record_local_read_at(sonde__record_file *of, uint64_t at, void *bytes,
                                size_t size, size_t *got)
{
    const local_file *file = (const local_file *)of;
    unsigned char *to = bytes;

    *got = 0;
    while (*got < size) {
        const ssize_t n = pread(file->fd, to + *got, size - *got, (off_t)(at + *got));

        if (n < 0 && errno != EINTR) {
            return errno;
        }
        if (n == 0) {
            break;
        }
        *got += (size_t)SONDE_MAX(n, 0);
    }
    return 0;
}

int sonde__record_local_truncate(sonde__record_file *of, uint64_t size)
{
    local_file *file = (local_file *)of;

    if (ftruncate(file->fd, (off_t)size) != 0) {
        return errno;
    }
    file->aside = 0;
    of->end = size;
    return 0;
}

int sonde__record_local_sync(sonde__record_file *of)
{
    local_file *file = (local_file *)of;

    if (file->aside > 0) { /* the space that was not needed */
        const int failed = sonde__record_local_truncate(of, of->end);

        if (failed != 0) {
            return failed;
        }
    }
    return fdatasync(file->fd) != 0 ? errno : 0;
}

/* The blocks are found now, so that the next commit of the file system's journal, whoever
 * waits for it, has them. */
void sonde__record_local_begin_sync(sonde__record_file *of)
{
    (void)sync_file_range(((local_file *)of)->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

int sonde__record_local_publish(sonde__record_file *of, const char *from, const char *to)
{
    const local_file *file = (const local_file *)of;
    sonde__record_local *home = file->home;

    (void)sonde__record_local_path(home, home->name, from);
    return rename(home->name, sonde__record_local_path(home, home->other, to)) != 0
               ? errno
               : 0;
}

bool sonde__record_local_is_lost(sonde__record_file *of)
{
    struct stat about;

    return fstat(((const local_file *)of)->fd, &about) == 0 && about.st_nlink == 0;
}

void sonde__record_local_close(sonde__record_file *of)
{
    local_file *file = (local_file *)of;

    if (file == NULL) {
        return;
    }
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    if (file->direct >= 0) {
        (void)close(file->direct);
    }
    sonde__free(file->pieces);
    sonde__free(file);
}
