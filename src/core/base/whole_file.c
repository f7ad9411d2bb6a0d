/*
 * whole_file.c - see whole_file.h.
 */
#include "base/whole_file.h"
#include "base/fail.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sonde/error.h>

enum {
    ATTEMPTS = 100,
#if defined(SONDE_STRESS) && SONDE_STRESS
    BUFFER = 23
#else
    BUFFER = 256 * 1024
#endif
};

/* --- names ------------------------------------------------------------------------ */

/* Makes the file or folder of the first free name in path's folder. Returns its
 * descriptor (0 of a folder), or -1: see errno. */
static int make_beside(const char *path, bool folder, char *name, size_t size)
{
    static atomic_uint serial; /* names must differ, in no particular order */
    size_t length = strlen(path);
    int made = -1;

    while (length > 1 && path[length - 1] == '/') {
        length--; /* of a folder; beside it, not in it */
    }
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    for (int attempt = 0; attempt < ATTEMPTS && made < 0; attempt++) {
        const unsigned number =
            atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed);

        (void)snprintf(name, size, "%.*s.sonde-%ld-%u.tmp", (int)length, path,
                       (long)getpid(), number);
        made = folder ? mkdir(name, 0777)
                      : open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (made < 0 && errno != EEXIST) {
            break;
        }
    }
    return made;
}

static size_t room_beside(const char *path)
{
    return strlen(path) + 64;
}

sonde_err sonde__folder_beside(const char *path, char **out, sonde_diag *diag)
{
    const size_t size = room_beside(path);
    char *name = sonde__malloc(size);

    if (name == NULL) {
        return sonde__fail_nomem(diag, "a file name");
    }
    if (make_beside(path, true, name, size) < 0) {
        const sonde_err err = sonde__fail_errno(diag, path, "cannot be written");

        sonde__free(name);
        return err;
    }
    *out = name;
    return SONDE_OK;
}

sonde_err sonde__check_home(const char *path, sonde_diag *diag)
{
    if (path[0] == '~' && (path[1] == '/' || path[1] == '\0')) {
        const char *home = getenv("HOME");
        char expected[256];

        (void)snprintf(expected, sizeof expected,
                       "%.80s%.60s, or ./%.60s for a folder of that name",
                       home != NULL && home[0] == '/' ? home : "your home folder and ",
                       path + 1, path);
        return sonde__fail(diag, SONDE_EINVAL, path, expected, "'~' is not expanded");
    }
    return SONDE_OK;
}

/* The file that a link leads to; otherwise path. */
static char *follow(const char *path)
{
    struct stat about;
    char *file = NULL, *copy = NULL;

    if (lstat(path, &about) != 0 || !S_ISLNK(about.st_mode)) {
        return sonde__strdup(path);
    }
    file = realpath(path, NULL);
    copy = sonde__strdup(file != NULL ? file : path);
    free(file);
    return copy;
}

/* --- publishing ------------------------------------------------------------------- */

/* So that the rename survives a power loss, where the file system can. */
static void sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL
                       ? sonde__strdup(".")
                       : sonde__strndup(path, slash == path ? 1 : (size_t)(slash - path));
    const int fd = folder == NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    sonde__free(folder);
}

static int rename_keeping(const char *temporary, const char *path)
{
    struct stat about;
    const int code = renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE);

    if (code == 0 || (errno != EINVAL && errno != ENOSYS)) {
        return code;
    }
    if (lstat(path, &about) == 0) { /* a file system without */
        errno = EEXIST;
        return -1;
    }
    return rename(temporary, path);
}

sonde_err sonde__publish(const char *temporary, const char *path, sonde__at_place place,
                         sonde_diag *diag)
{
    const int code =
        place == SONDE__KEEP ? rename_keeping(temporary, path) : rename(temporary, path);

    if (code != 0) {
        return sonde__fail_errno(diag, path, "cannot be put in place");
    }
    sync_folder_of(path);
    return SONDE_OK;
}

/* --- files ------------------------------------------------------------------------ */

bool sonde__write_all(int fd, const void *bytes, size_t n)
{
    const char *next = bytes;

    while (n > 0) {
        const ssize_t done = write(fd, next, n);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? EIO : errno;
            return false;
        }
        next += done;
        n -= (size_t)done;
    }
    return true;
}

static sonde_err open_file(sonde__whole_file *file, const char *path, sonde_diag *diag)
{
    struct stat about;
    SONDE__TRY(sonde__check_home(path, diag));
    file->path = follow(path);
    if (file->path == NULL) {
        return sonde__fail_nomem(diag, "a file name");
    }
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) {
        file->fd = open(path, O_WRONLY | O_CLOEXEC);
    } else {
        const size_t size = room_beside(file->path);

        file->temporary = sonde__malloc(size);
        if (file->temporary == NULL) {
            return sonde__fail_nomem(diag, "a file name");
        }
        file->fd = make_beside(file->path, false, file->temporary, size);
    }
    return file->fd >= 0 ? SONDE_OK : sonde__fail_errno(diag, path, "cannot be written");
}

sonde_err sonde__whole_open(sonde__whole_file *file, const char *path, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *file = (sonde__whole_file){.fd = -1};
    err = open_file(file, path, diag);
    if (err != SONDE_OK) {
        sonde__whole_close(file);
    }
    return err;
}

static void write_out(sonde__whole_file *file, const void *bytes, size_t n)
{
    if (file->error == 0 && !sonde__write_all(file->fd, bytes, n)) {
        file->error = errno;
    }
}

static void flush(sonde__whole_file *file)
{
    write_out(file, file->buffer, file->used);
    file->used = 0;
}

bool sonde__whole_write(sonde__whole_file *file, const void *bytes, size_t n)
{
    file->written += n;
    if (n > BUFFER - file->used) {
        flush(file);
    }
    if (n >= BUFFER) {
        write_out(file, bytes, n);
        return file->error == 0;
    }
    if (file->buffer == NULL) {
        file->buffer = sonde__malloc(BUFFER);
        if (file->buffer == NULL) {
            file->error = file->error == 0 ? ENOMEM : file->error;
            return false;
        }
    }
    if (n > 0) {
        memcpy(file->buffer + file->used, bytes, n);
        file->used += n;
    }
    return file->error == 0;
}

sonde_err sonde__whole_status(const sonde__whole_file *file, sonde_diag *diag)
{
    if (file->error == 0) {
        return SONDE_OK;
    }
    errno = file->error;
    return sonde__fail_errno(diag, file->path, "cannot be written");
}

sonde_err sonde__whole_commit(sonde__whole_file *file, sonde__at_place place,
                              sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    flush(file);
    if (file->error == 0 && file->temporary != NULL && fsync(file->fd) != 0) {
        file->error = errno;
    }
    if (close(file->fd) != 0 && file->error == 0) {
        file->error = errno;
    }
    file->fd = -1;
    err = sonde__whole_status(file, diag);
    if (file->temporary == NULL) {
        return err;
    }
    err =
        err != SONDE_OK ? err : sonde__publish(file->temporary, file->path, place, diag);
    if (err != SONDE_OK) {
        (void)unlink(file->temporary);
    }
    sonde__free(file->temporary); /* it has the other name now, or none */
    file->temporary = NULL;
    return err;
}

void sonde__whole_close(sonde__whole_file *file)
{
    if (file->path != NULL && file->fd >= 0) {
        (void)close(file->fd);
        if (file->temporary != NULL) {
            (void)unlink(file->temporary);
        }
    }
    sonde__free(file->temporary);
    sonde__free(file->path);
    sonde__free(file->buffer);
    *file = (sonde__whole_file){.fd = -1};
}

sonde_err sonde__whole_put(const char *path, const void *bytes, size_t n,
                           sonde_diag *diag)
{
    sonde__whole_file file;
    sonde_err err = sonde__whole_open(&file, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    (void)sonde__whole_write(&file, bytes, n); /* commit returns its error */
    err = sonde__whole_commit(&file, SONDE__REPLACE, diag);
    sonde__whole_close(&file);
    return err;
}
