/*
 * export_file.c - see export_file.h.
 */
#include "trial/export_file.h"

#include "tensor/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTEMPTS = 100 };
#if defined(SONDE_STRESS) && SONDE_STRESS
enum { BUFFER = 23 };
#else
enum { BUFFER = 256 * 1024 };
#endif

/* --- places ----------------------------------------------------------------------- */

sonde_err sonde__out_free_place(const char *path, sonde_diag *diag)
{
    struct stat status;

    if (path[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "output", "a path", "an empty name");
    }
    if (lstat(path, &status) == 0) {
        return sonde__fail(diag, SONDE_EEXIST, path, "a path where nothing is",
                           "exists already");
    }
    if (errno != ENOENT) {
        return sonde__fail_errno(diag, path, "cannot be created");
    }
    return SONDE_OK;
}

/* "path.PID-N.tmp": makes the file or folder of the first such name that is free. */
static sonde_err make_beside(const char *path, bool folder, char **name, int *fd,
                             sonde_diag *diag)
{
    static atomic_uint serial; /* names must differ, in no particular order */
    size_t length = strlen(path);
    size_t size = 0;
    char *temporary = NULL;
    int made = -1;

    while (length > 1 && path[length - 1] == '/') {
        length--; /* of a folder; beside it, not in it */
    }
    size = length + 64;
    temporary = sonde__malloc(size);
    if (temporary == NULL) {
        return sonde__fail_nomem(diag, "a file name");
    }
    for (int attempt = 0; attempt < ATTEMPTS && made < 0; attempt++) {
        (void)snprintf(temporary, size, "%.*s.%ld-%u.tmp", (int)length, path,
                       (long)getpid(),
                       atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed));
        made = folder ? mkdir(temporary, 0777)
                      : open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (made < 0 && errno != EEXIST) {
            break;
        }
    }
    if (made < 0) {
        const sonde_err err = sonde__fail_errno(diag, path, "cannot be created");

        sonde__free(temporary);
        return err;
    }
    *name = temporary;
    *fd = made;
    return SONDE_OK;
}

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

sonde_err sonde__out_publish(const char *temporary, const char *path, sonde_diag *diag)
{
    int code = renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE);

    if (code != 0 && (errno == EINVAL || errno == ENOSYS)) { /* a file system without */
        const sonde_err err = sonde__out_free_place(path, diag);

        if (err != SONDE_OK) {
            return err;
        }
        code = rename(temporary, path);
    }
    if (code != 0) {
        return sonde__fail_errno(diag, path, "cannot be put in place");
    }
    sync_folder_of(path);
    return SONDE_OK;
}

sonde_err sonde__out_folder(const char *path, char **temporary, sonde_diag *diag)
{
    int unused = 0;
    const sonde_err err = sonde__out_free_place(path, diag);

    return err == SONDE_OK ? make_beside(path, true, temporary, &unused, diag) : err;
}

static int remove_one(const char *path, const struct stat *status, int kind,
                      struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void sonde__out_remove_folder(const char *temporary)
{
    (void)nftw(temporary, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- one file --------------------------------------------------------------------- */

sonde_err sonde__out_open(sonde__out_file *file, const char *path, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *file = (sonde__out_file){.fd = -1};
    err = sonde__out_free_place(path, diag);
    if (err != SONDE_OK) {
        return err;
    }
    file->path = sonde__strdup(path);
    file->buffer = sonde__malloc(BUFFER);
    if (file->path == NULL || file->buffer == NULL) {
        err = sonde__fail_nomem(diag, "a write buffer");
    }
    if (err == SONDE_OK) {
        err = make_beside(path, false, &file->temporary, &file->fd, diag);
    }
    if (err != SONDE_OK) {
        sonde__out_abandon(file);
    }
    return err;
}

static void write_all(sonde__out_file *file, const unsigned char *bytes, size_t n)
{
    while (n > 0 && file->error == 0) {
        const ssize_t done = write(file->fd, bytes, n);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            file->error = done == 0 ? EIO : errno;
            return;
        }
        bytes += done;
        n -= (size_t)done;
    }
}

static void flush(sonde__out_file *file)
{
    write_all(file, file->buffer, file->used);
    file->used = 0;
}

void sonde__out_put(sonde__out_file *file, const void *bytes, size_t n)
{
    file->written += n;
    if (n > BUFFER - file->used) {
        flush(file);
    }
    if (n >= BUFFER) {
        write_all(file, bytes, n);
    } else if (n > 0) {
        memcpy(file->buffer + file->used, bytes, n);
        file->used += n;
    }
}

void sonde__out_text(sonde__out_file *file, const char *text)
{
    sonde__out_put(file, text, strlen(text));
}

void sonde__out_view(sonde__out_file *file, const sonde_view *view)
{
    _Alignas(8) unsigned char gathered[8192];
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    sonde__cursor cursor;
    size_t n = 0;

    if (sonde_view_is_contiguous(view)) { /* also where it is not aligned */
        sonde__out_put(file, view->data, (size_t)sonde_view_count(view) * size);
        return;
    }
    sonde__cursor_init(&cursor, view);
    while ((n = sonde__cursor_take(&cursor, sizeof gathered / size, gathered,
                                   &elements)) > 0) {
        sonde__out_put(file, elements, n * size);
    }
}

void sonde__out_patch(sonde__out_file *file, uint64_t at, const void *bytes, size_t n)
{
    flush(file);
    if (file->error == 0 && pwrite(file->fd, bytes, n, (off_t)at) != (ssize_t)n) {
        file->error = errno != 0 ? errno : EIO;
    }
}

sonde_err sonde__out_status(const sonde__out_file *file, sonde_diag *diag)
{
    if (file->error == 0) {
        return SONDE_OK;
    }
    errno = file->error;
    return sonde__fail_errno(diag, file->path, "cannot be written");
}

void sonde__out_abandon(sonde__out_file *file)
{
    if (file->fd >= 0 && file->temporary != NULL) {
        (void)close(file->fd);
    }
    if (file->temporary != NULL) {
        (void)unlink(file->temporary);
    }
    sonde__free(file->path);
    sonde__free(file->temporary);
    sonde__free(file->buffer);
    *file = (sonde__out_file){.fd = -1};
}

sonde_err sonde__out_close(sonde__out_file *file, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    flush(file);
    if (file->error == 0 && fsync(file->fd) != 0) {
        file->error = errno;
    }
    if (close(file->fd) != 0 && file->error == 0) {
        file->error = errno;
    }
    file->fd = -1;
    err = sonde__out_status(file, diag);
    if (err == SONDE_OK) {
        err = sonde__out_publish(file->temporary, file->path, diag);
    }
    if (err == SONDE_OK) {
        sonde__free(file->temporary); /* it has the other name now */
        file->temporary = NULL;
    }
    sonde__out_abandon(file);
    return err;
}
