/*
 * backend_local.c - a run in a folder of this machine: folders, small files, the lock. The
 * files that are written bit by bit are in local_file.c.
 */
#include "record/local.h"

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <sonde/error.h>

const char *sonde__record_local_path(const sonde__record_local *home, char *to,
                                     const char *name)
{
    (void)snprintf(to, home->room, "%s%s%s", home->path, name[0] != '\0' ? "/" : "",
                   name);
    return to;
}

static void destroy(sonde__record_backend *backend)
{
    sonde__record_local *home = (sonde__record_local *)backend;

    if (home == NULL) {
        return;
    }
    if (home->lock >= 0) {
        (void)close(home->lock);
    }
    sonde__record_bulk_destroy(home->bulk);
    sonde__free(home->path);
    sonde__free(home->name);
    sonde__free(home->other);
    sonde__free(home);
}

/* --- folders ---------------------------------------------------------------------- */

/* The folders that lead to path, which is changed and put back. */
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
    sonde__record_local *home = (sonde__record_local *)backend;
    int failed = 0;
    struct stat about;

    (void)sonde__record_local_path(home, home->name, name);
    if (name[0] == '\0') {
        failed = make_way(home->name);
    }
    if (failed == 0 && mkdir(home->name, 0777) != 0) {
        failed = errno;
    }
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
    sonde__record_local *home = (sonde__record_local *)backend;

    return rmdir(sonde__record_local_path(home, home->name, name)) != 0 ? errno : 0;
}

static int list(sonde__record_backend *backend, const char *name,
                sonde__record_backend_seen seen, void *user)
{
    sonde__record_local *home = (sonde__record_local *)backend;
    DIR *folder = opendir(sonde__record_local_path(home, home->name, name));
    struct dirent *entry = NULL;
    int failed = 0;

    if (folder == NULL) {
        return errno;
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

static int lock_folder(sonde__record_backend *backend, const char *name)
{
    sonde__record_local *home = (sonde__record_local *)backend;
    char file[SONDE__LOCAL_NAME];
    int failed = 0;

    (void)snprintf(file, sizeof file, "%s/lock", name);
    home->lock = open(sonde__record_local_path(home, home->name, file),
                      O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (home->lock < 0) {
        return errno;
    }
    if (flock(home->lock, LOCK_EX | LOCK_NB) != 0) {
        failed = errno == EWOULDBLOCK ? EBUSY : errno;
        (void)close(home->lock);
        home->lock = -1;
    }
    return failed;
}

/* --- small files ------------------------------------------------------------------ */

static int write_all(int fd, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;

    while (size > 0) {
        const ssize_t written = write(fd, from, size);

        if (written < 0 && errno != EINTR) {
            return errno;
        }
        if (written == 0) {
            return EIO;
        }
        from += SONDE_MAX(written, 0);
        size -= (size_t)SONDE_MAX(written, 0);
    }
    return 0;
}

static int replace(sonde__record_backend *backend, const char *name, const void *bytes,
                   size_t size, bool once, bool sync)
{
    sonde__record_local *home = (sonde__record_local *)backend;
    const char *const final = sonde__record_local_path(home, home->name, name);
    int failed = 0, fd = -1;

    (void)snprintf(home->other, home->room, "%s.%ld.tmp", final, (long)getpid());
    fd = open(home->other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errno;
    }
    failed = write_all(fd, bytes, size);
    if (failed == 0 && sync && fsync(fd) != 0) {
        failed = errno;
    }
    if (close(fd) != 0 && failed == 0) {
        failed = errno;
    }
    if (failed == 0 && once) {
        failed = link(home->other, final) != 0 ? errno : 0;
        (void)unlink(home->other);
    } else if (failed == 0 && rename(home->other, final) != 0) {
        failed = errno;
    }
    if (failed != 0) {
        (void)unlink(home->other);
    }
    return failed;
}

static int load(sonde__record_backend *backend, const char *name, char **bytes,
                size_t *size)
{
    sonde__record_local *home = (sonde__record_local *)backend;
    const int fd =
        open(sonde__record_local_path(home, home->name, name), O_RDONLY | O_CLOEXEC);
    struct stat about;
    char *block = NULL;
    size_t got = 0;
    int failed = 0;

    if (fd < 0) {
        return errno;
    }
    failed = fstat(fd, &about) != 0 ? errno : S_ISREG(about.st_mode) ? 0 : EINVAL;
    block = failed == 0 ? sonde__malloc((size_t)about.st_size + 1) : NULL;
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

static int remove_file(sonde__record_backend *backend, const char *name)
{
    sonde__record_local *home = (sonde__record_local *)backend;

    return unlink(sonde__record_local_path(home, home->name, name)) != 0 ? errno : 0;
}

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
        .lock = lock_folder,
        .create = sonde__record_local_create,
        .open = sonde__record_local_open,
        .append = sonde__record_local_append,
        .settle = sonde__record_local_settle,
        .write_at = sonde__record_local_write_at,
        .read_at = sonde__record_local_read_at,
        .truncate = sonde__record_local_truncate,
        .sync = sonde__record_local_sync,
        .begin_sync = sonde__record_local_begin_sync,
        .publish = sonde__record_local_publish,
        .is_lost = sonde__record_local_is_lost,
        .close = sonde__record_local_close,
    };
    sonde__record_local *home = sonde__calloc(1, sizeof *home);

    if (home == NULL) {
        return sonde__fail_nomem(diag, "a folder for the run");
    }
    home->backend.ops = &ops;
    home->lock = -1;
    home->room = strlen(path) + SONDE__LOCAL_NAME;
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
