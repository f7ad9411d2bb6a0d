/*
 * backend.c - a run in a folder of this machine: folders, small files, the lock,
 * and files written from front to back.
 *
 * Appended bytes are remembered as pieces and written by one pwritev: they go from the
 * ring to the kernel without a copy. A large amount bypasses the page cache instead
 * (bulk.h), from the first block that begins in it to the last one that ends in it: that
 * runs at the speed of the disk and does not wait for the kernel to free pages. Space is
 * reserved before, so that several writes can be in flight; sync gives the rest back.
 * File systems without direct writes get ordinary ones.
 *
 *     | file so far ..| head |  block  |  block  |  block  | rest |
 *                      pwritev       direct                 pwrite
 */
#include "record/backend.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/whole_file.h"
#include "record/bulk.h"
#include <sonde/log.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <sonde/error.h>
#include <time.h>

enum { NAME_ROOM = 192 /* after the path: "/w0000/" and the longest name */ };

typedef struct local_folder {
    sonde__record_backend backend; /* first */
    char *path;
    char *name, *other; /* room for the path and any name of a run */
    size_t room;
    int lock;
    sonde__record_bulk *bulk;     /* after the first bulk; used by one file at a time */
    bool (*has_room)(void *user); /* NULL: always */
    void *room_user;
} local_folder;

#define SLOW 5.0 /* seconds; a sync on a busy disk */

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
    local_folder *home;
    int fd;
    int count;            /* of pieces */
    struct iovec *pieces; /* PIECES */
    int direct;           /* a descriptor past the page cache; -1: none */
    bool no_direct;       /* and there never will be one */
    bool bulk;            /* since the last settle */
    uint64_t head;        /* bytes to come before the bulk's first block */
    uint64_t promised;    /* the end of what was put in bulk */
    uint64_t aside;       /* the file's length with the space set aside; 0: none is */
    bool unsure;          /* a sync has failed: what is on the disk is not known */
} local_file;

/* The path of a name, in buffer, which is home->name or home->other. */
static const char *path_of(const local_folder *home, char *buffer, const char *name)
{
    (void)snprintf(buffer, home->room, "%s%s%s", home->path, name[0] != '\0' ? "/" : "",
                   name);
    return buffer;
}

static void destroy(sonde__record_backend *backend)
{
    local_folder *home = (local_folder *)backend;

    if (home == NULL) {
        return;
    }
    if (home->lock >= 0) { /* as unlock */
        (void)close(home->lock);
    }
    sonde__record_bulk_destroy(home->bulk);
    sonde__free(home->path);
    sonde__free(home->name);
    sonde__free(home->other);
    sonde__free(home);
}

/* --- folders ---------------------------------------------------------------------- */

/* Creates the parents of path, which is modified and restored. */
static int make_way(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const int failed = mkdir(path, 0777) != 0 ? errno : 0;

        *slash = '/';
        if (failed != 0 && failed != EEXIST) {
            return failed;
        }
    }
    return 0;
}

static int make_folder(sonde__record_backend *backend, const char *name, bool *made)
{
    local_folder *home = (local_folder *)backend;
    int failed = 0, attempts = 0;
    struct stat about;

    (void)path_of(home, home->name, name);
    do {
        failed = name[0] == '\0' ? make_way(home->name) : 0;
        if (failed == 0 && mkdir(home->name, 0777) != 0) {
            failed = errno;
        }
    } while (sonde__record_try_again(&attempts, failed));
    *made = failed == 0;
    if (failed == EEXIST) {
        failed = stat(home->name, &about) != 0 ? errno
                 : S_ISDIR(about.st_mode)      ? 0
                                               : ENOTDIR;
    }
    return failed;
}

static int remove_folder(sonde__record_backend *backend, const char *name)
{
    local_folder *home = (local_folder *)backend;

    return rmdir(path_of(home, home->name, name)) != 0 ? errno : 0;
}

static int list(sonde__record_backend *backend, const char *name,
                sonde__record_backend_seen seen, void *user)
{
    local_folder *home = (local_folder *)backend;
    DIR *folder = NULL;
    struct dirent *entry = NULL;
    int failed = 0, attempts = 0;

    do {
        folder = opendir(path_of(home, home->name, name));
        failed = folder == NULL ? errno : 0;
    } while (sonde__record_try_again(&attempts, failed));
    if (folder == NULL) {
        return failed;
    }
    for (errno = 0; (entry = readdir(folder)) != NULL; errno = 0) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            seen(user, entry->d_name);
        }
    }
    failed = errno;
    (void)closedir(folder);
    return failed;
}

static const char *place(sonde__record_backend *backend, const char *name)
{
    local_folder *home = (local_folder *)backend;

    return path_of(home, home->name, name);
}

static int lock_folder(sonde__record_backend *backend, const char *name)
{
    local_folder *home = (local_folder *)backend;
    char file[NAME_ROOM];
    int failed = 0, attempts = 0;

    (void)snprintf(file, sizeof file, "%s/lock", name);
    do {
        home->lock =
            open(path_of(home, home->name, file), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        failed = home->lock < 0 ? errno : 0;
    } while (sonde__record_try_again(&attempts, failed));
    if (failed != 0) {
        return failed;
    }
    if (flock(home->lock, LOCK_EX | LOCK_NB) == 0) {
        return 0;
    }
    failed = errno == EWOULDBLOCK ? EBUSY : errno;
    (void)close(home->lock);
    home->lock = -1;
    if (failed == ENOLCK || failed == ENOSYS || failed == EOPNOTSUPP) {
        sonde_log(SONDE_LOG_WARNING, "record",
                  "%s: its file system has no locks: a second writer is not noticed",
                  home->path);
        return 0;
    }
    return failed;
}

static void unlock(sonde__record_backend *backend)
{
    local_folder *home = (local_folder *)backend;

    if (home->lock >= 0) {
        (void)close(home->lock);
        home->lock = -1;
    }
}

/* --- small files ------------------------------------------------------------------ */

/* True if the file at path is that one. A network's answer can be lost: then a rename or
 * a link that was done is repeated, and fails. */
static bool is_file(const char *path, const struct stat *that)
{
    struct stat about;

    return stat(path, &about) == 0 && about.st_dev == that->st_dev &&
           about.st_ino == that->st_ino;
}

static int replace_now(local_folder *home, const char *name, const void *bytes,
                       size_t size, bool once, bool sync)
{
    static atomic_uint number; /* recorders of one process may write the same file */
    const char *const final = path_of(home, home->name, name);
    struct stat about;
    int failed = 0, fd = -1;

    (void)snprintf(home->other, home->room, "%s.%ld-%u.tmp", final, (long)getpid(),
                   atomic_fetch_add(&number, 1));
    fd = open(home->other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errno;
    }
    failed = sonde__write_all(fd, bytes, size) ? 0 : errno;
    if (failed == 0 && sync && fsync(fd) != 0) {
        failed = errno;
    }
    if (close(fd) != 0 && failed == 0) {
        failed = errno;
    }
    if (failed == 0 && once) {
        failed = link(home->other, final) != 0 ? errno : 0;
        if (failed != 0 && stat(home->other, &about) == 0 && is_file(final, &about)) {
            failed = 0;
        }
        (void)unlink(home->other);
    } else if (failed == 0 && rename(home->other, final) != 0) {
        failed = errno;
    }
    if (failed != 0) {
        (void)unlink(home->other);
    }
    return failed;
}

static int replace(sonde__record_backend *backend, const char *name, const void *bytes,
                   size_t size, bool once, bool sync)
{
    int failed = 0, attempts = 0;

    do {
        failed = replace_now((local_folder *)backend, name, bytes, size, once, sync);
    } while (sonde__record_try_again(&attempts, failed));
    return failed;
}

static int load_now(local_folder *home, const char *name, char **bytes, size_t *size)
{
    const int fd = open(path_of(home, home->name, name), O_RDONLY | O_CLOEXEC);
    struct stat about;
    size_t got = 0;

    if (fd < 0) {
        return errno;
    }
    int failed = fstat(fd, &about) != 0 ? errno : S_ISREG(about.st_mode) ? 0 : EINVAL;
    char *block = failed == 0 ? sonde__malloc((size_t)about.st_size + 1) : NULL;
    if (failed == 0 && block == NULL) {
        failed = ENOMEM;
    }
    while (failed == 0 && got < (size_t)about.st_size) {
        const ssize_t n = read(fd, block + got, (size_t)about.st_size - got);

        if (n < 0 && errno != EINTR) {
            failed = errno;
        } else if (n == 0) {
            break;
        }
        got += (size_t)SONDE_MAX(n, 0);
    }
    (void)close(fd);
    if (failed != 0) {
        sonde__free(block);
        return failed;
    }
    block[got] = '\0';
    *bytes = block;
    *size = got;
    return 0;
}

static int load(sonde__record_backend *backend, const char *name, char **bytes,
                size_t *size)
{
    int failed = 0, attempts = 0;

    do {
        failed = load_now((local_folder *)backend, name, bytes, size);
    } while (sonde__record_try_again(&attempts, failed));
    return failed;
}

static int remove_file(sonde__record_backend *backend, const char *name)
{
    local_folder *home = (local_folder *)backend;
    int failed = 0, attempts = 0;

    do {
        failed = unlink(path_of(home, home->name, name)) != 0 ? errno : 0;
    } while (sonde__record_try_again(&attempts, failed));
    return failed;
}

/* --- opening files ---------------------------------------------------------------- */

static int open_file(local_folder *home, const char *name, int flags,
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
        file->fd =
            open(path_of(home, home->name, name), O_RDWR | O_CLOEXEC | flags, 0666);
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

static int create_file(sonde__record_backend *backend, const char *name,
                       sonde__record_file **out)
{
    return open_file((local_folder *)backend, name, O_CREAT | O_EXCL, out);
}

static int reopen_file(sonde__record_backend *backend, const char *name,
                       sonde__record_file **out)
{
    int failed = 0, attempts = 0;

    do {
        failed = open_file((local_folder *)backend, name, 0, out);
    } while (sonde__record_try_again(&attempts, failed));
    return failed;
}

static int write_at(sonde__record_file *base, uint64_t offset, const void *bytes,
                    size_t size)
{
    const local_file *file = (const local_file *)base;
    const unsigned char *next = bytes;

    while (size > 0) {
        const ssize_t written = pwrite(file->fd, next, size, (off_t)offset);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return written < 0 ? errno : EIO;
        }
        next += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return 0;
}

/* --- bulk ------------------------------------------------------------------------- */

/* Starts a bulk; false if the file cannot bypass the page cache. */
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

/* Reserves space for the bulk and some more; a full disk shows when writing. */
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

/* Ends a bulk, whose head is written. */
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
        failed = write_at(&file->file, good, rest, left);
        file->file.end += failed == 0 ? left : 0;
    }
    return failed;
}

/* --- pieces ----------------------------------------------------------------------- */

/* All pieces to the end. Some may be written when it fails. */
static int write_pieces(local_file *file)
{
    struct iovec *piece = file->pieces;
    int left = file->count, failed = 0;

    while (left > 0 && failed == 0) {
        ssize_t written = pwritev(file->fd, piece, left, (off_t)file->file.end);

        if (written < 0) {
            failed = errno == EINTR ? 0 : errno;
            continue;
        }
        if (written == 0) {
            failed = EIO;
        }
        file->file.end += (uint64_t)written;
        while (left > 0 && (size_t)written >= piece->iov_len) {
            written -= (ssize_t)piece->iov_len;
            piece++;
            left--;
        }
        if (left > 0) {
            piece->iov_base = (unsigned char *)piece->iov_base + written;
            piece->iov_len -= (size_t)written;
        }
    }
    file->count = 0;
    return failed;
}

static int append_piece(local_file *file, const void *bytes, size_t size)
{
    struct iovec *const last = &file->pieces[SONDE_MAX(file->count, 1) - 1];
    unsigned char *const start = (unsigned char *)(uintptr_t)bytes; /* only read */

    if (file->count > 0 && (unsigned char *)last->iov_base + last->iov_len == start) {
        last->iov_len += size;
        return 0;
    }
    if (file->count == PIECES) {
        SONDE__TRY_ERRNO(write_pieces(file));
    }
    file->pieces[file->count++] = (struct iovec){start, size};
    return 0;
}

static int append(sonde__record_file *base, const void *bytes, size_t size)
{
    local_file *file = (local_file *)base;

    if (size == 0) {
        return 0;
    }
    if (!base->small && file->home->has_room != NULL &&
        !file->home->has_room(file->home->room_user)) {
        return ENOSPC;
    }
    if (!file->bulk && base->in_bulk && file->count == 0) {
        (void)begin_bulk(file);
    }
    return file->bulk ? append_bulk(file, bytes, size) : append_piece(file, bytes, size);
}

static int settle(sonde__record_file *base)
{
    local_file *file = (local_file *)base;
    const int failed = write_pieces(file);
    int bulk_failed = 0;

    if (file->bulk) {
        const uint64_t end = base->end;

        bulk_failed = end_bulk(file);
        if (failed != 0) { /* without the head there is a hole */
            base->end = end;
        }
    }
    return failed != 0 ? failed : bulk_failed;
}

/* --- at places -------------------------------------------------------------------- */

static int read_at(sonde__record_file *base, uint64_t offset, void *bytes, size_t size,
                   size_t *got)
{
    const local_file *file = (const local_file *)base;
    unsigned char *block = bytes;

    *got = 0;
    while (*got < size) {
        const ssize_t n =
            pread(file->fd, block + *got, size - *got, (off_t)(offset + *got));

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

static int truncate_file(sonde__record_file *base, uint64_t size)
{
    local_file *file = (local_file *)base;

    if (ftruncate(file->fd, (off_t)size) != 0) {
        return errno;
    }
    file->aside = 0;
    base->end = size;
    return 0;
}

/* After a failed sync the kernel takes the pages for clean, and the next sync succeeds
 * without writing them: all bytes are written again. */
static int write_again(local_file *file)
{
    enum { PIECE = 1024 * 1024 };
    char *const piece = sonde__malloc(PIECE);
    size_t got = 1;
    int failed = piece == NULL ? ENOMEM : 0;

    for (uint64_t at = 0; failed == 0 && got > 0; at += got) {
        failed = read_at(&file->file, at, piece, PIECE, &got);
        if (failed == 0) {
            failed = write_at(&file->file, at, piece, got);
        }
    }
    sonde__free(piece);
    return failed;
}

static int sync_file(sonde__record_file *base)
{
    local_file *file = (local_file *)base;

    if (file->aside > 0) { /* the space that was not needed */
        SONDE__TRY_ERRNO(truncate_file(base, base->end));
    }
    if (file->unsure) {
        SONDE__TRY_ERRNO(write_again(file));
    }
    file->unsure = fdatasync(file->fd) != 0;
    return file->unsure ? errno : 0;
}

/* Starts writing the blocks, so that the next commit of the file system's journal, for
 * any file, includes them. */
static void begin_sync(sonde__record_file *base)
{
    (void)sync_file_range(((local_file *)base)->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static int publish(sonde__record_file *base, const char *old_name, const char *new_name)
{
    const local_file *file = (const local_file *)base;
    local_folder *home = file->home;
    struct stat about;

    (void)path_of(home, home->name, old_name);
    (void)path_of(home, home->other, new_name);
    const int failed = rename(home->name, home->other) != 0 ? errno : 0;
    return failed != 0 && fstat(file->fd, &about) == 0 && is_file(home->other, &about)
               ? 0
               : failed;
}

static bool is_lost(sonde__record_file *base)
{
    struct stat about;

    return fstat(((const local_file *)base)->fd, &about) == 0 && about.st_nlink == 0;
}

static void close_file(sonde__record_file *base)
{
    local_file *file = (local_file *)base;

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

/* --- the backend ------------------------------------------------------------------ */

sonde_err sonde__record_backend_local(const char *path, sonde__record_backend **out,
                                      sonde_diag *diag)
{
    static const sonde__record_backend_ops ops = {
        .destroy = destroy,
        .make_folder = make_folder,
        .remove_folder = remove_folder,
        .list = list,
        .replace = replace,
        .load = load,
        .remove = remove_file,
        .place = place,
        .lock = lock_folder,
        .unlock = unlock,
        .create = create_file,
        .open = reopen_file,
        .append = append,
        .settle = settle,
        .write_at = write_at,
        .read_at = read_at,
        .truncate = truncate_file,
        .sync = sync_file,
        .begin_sync = begin_sync,
        .publish = publish,
        .is_lost = is_lost,
        .close = close_file,
    };
    local_folder *home = sonde__calloc(1, sizeof *home);

    if (home == NULL) {
        return sonde__fail_nomem(diag, "a folder for the run");
    }
    home->backend.ops = &ops;
    home->backend.slow = SLOW;
    home->lock = -1;
    home->room = strlen(path) + NAME_ROOM;
    home->path = sonde__strdup(path);
    for (size_t n = strlen(path); home->path != NULL && n > 1 && path[n - 1] == '/';
         n--) {
        home->path[n - 1] = '\0';
    }
    home->name = sonde__malloc(home->room);
    home->other = sonde__malloc(home->room);
    if (home->path == NULL || home->name == NULL || home->other == NULL) {
        destroy(&home->backend);
        return sonde__fail_nomem(diag, "a folder for the run");
    }
    *out = &home->backend;
    return SONDE_OK;
}

void sonde__record_backend_limit(sonde__record_backend *backend,
                                 bool (*has_room)(void *user), void *user)
{
    local_folder *home = (local_folder *)backend;

    home->has_room = has_room;
    home->room_user = user;
}
