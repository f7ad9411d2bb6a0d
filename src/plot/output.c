/*
 * output.c - see output.h.
 *
 * The file is first written under a short name of its own in the same folder (process id
 * and a counter, opened exclusively), so two threads and two processes never share one
 * and a long file name never gets longer.
 */
#include "plot/output.h"

#include <sonde/plot.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- kinds -----------------------------------------------------------------------------
 */

sonde_err sonde__plot_kind_of(const char *path, sonde__plot_kind *kind, sonde_diag *diag)
{
    const char *const slash = path != NULL ? strrchr(path, '/') : NULL;
    const char *const name = slash != NULL ? slash + 1 : path;
    const char *const dot = name != NULL ? strrchr(name, '.') : NULL;

    if (name == NULL || name[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, path, "a name that ends in .png or .svg",
                           "no file name for the picture");
    }
    if (dot != NULL && strcasecmp(dot, ".png") == 0) {
        *kind = SONDE__PLOT_PNG;
        return SONDE_OK;
    }
    if (dot != NULL && strcasecmp(dot, ".svg") == 0) {
        *kind = SONDE__PLOT_SVG;
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_EINVAL, path, ".png or .svg", "%s%s%s",
                       dot != NULL ? "pictures of the kind '" : "the name has no ending",
                       dot != NULL ? dot : "", dot != NULL ? "' cannot be written" : "");
}

sonde_err sonde_plot_check_path(const char *path, sonde_diag *diag)
{
    sonde__plot_kind kind = SONDE__PLOT_PNG;

    return sonde__plot_kind_of(path, &kind, diag);
}

/* --- bytes -----------------------------------------------------------------------------
 */

void sonde__bytes_fini(sonde__bytes *bytes)
{
    sonde__free(bytes->data);
    *bytes = (sonde__bytes){0};
}

void sonde__bytes_add(sonde__bytes *bytes, const void *data, size_t size)
{
    if (size == 0 || bytes->full) {
        return;
    }
    if (size > SIZE_MAX - bytes->size ||
        !sonde__reserve(&bytes->data, &bytes->capacity, bytes->size + size, 1)) {
        bytes->full = true;
        return;
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

void sonde__bytes_add_text(sonde__bytes *bytes, const char *text)
{
    sonde__bytes_add(bytes, text, strlen(text));
}

/* --- the file --------------------------------------------------------------------------
 */

/* Opens a new file in path's folder; its name is in temporary. -1: see errno. */
static int open_beside(const char *path, char *temporary, size_t size)
{
    static atomic_uint counter;
    const char *const slash = strrchr(path, '/');
    const int folder = slash != NULL ? (int)(slash - path) + 1 : 0;

    for (int attempt = 0; attempt < 100; attempt++) {
        const unsigned number =
            atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
        int file = -1;

        (void)snprintf(temporary, size, "%.*s.plot-%ld-%u.tmp", folder, path,
                       (long)getpid(), number);
        file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0 || errno != EEXIST) {
            return file;
        }
    }
    return -1;
}

static bool write_all(int file, const unsigned char *data, size_t size)
{
    while (size > 0) {
        const ssize_t done = write(file, data, size);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? EIO : errno;
            return false;
        }
        data += done;
        size -= (size_t)done;
    }
    return true;
}

sonde_err sonde__write_whole(const char *path, const void *data, size_t size,
                             sonde_diag *diag)
{
    const size_t room = strlen(path) + 64;
    char *temporary = sonde__malloc(room);
    sonde_err err = SONDE_OK;
    bool good = false;
    int file = -1;

    if (temporary == NULL) {
        return sonde__fail_nomem(diag, "a file name");
    }
    file = open_beside(path, temporary, room);
    if (file < 0) {
        err = sonde__fail_errno(diag, path, "cannot write");
        sonde__free(temporary);
        return err;
    }
    good = write_all(file, data, size) && fsync(file) == 0;
    if (!good) {
        err = sonde__fail_errno(diag, path, "cannot write");
    }
    if (close(file) != 0 && good) {
        good = false;
        err = sonde__fail_errno(diag, path, "cannot write");
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        err = sonde__fail_errno(diag, path, "cannot write");
    }
    if (!good) {
        (void)unlink(temporary);
    }
    sonde__free(temporary);
    return err;
}
