/*
 * data_output.c - see data_output.h.
 */
#include "nn/data/data_output.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sonde_err sonde__data_output_open(sonde__data_output *output, const char *path, bool gzip,
                                  sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *output = (sonde__data_output){.file = {.fd = -1}};
    err = sonde__whole_open(&output->file, path, diag);
    if (err != SONDE_OK || !gzip) {
        return err;
    }
    const int own = dup(output->file.fd);
    output->gzip = own >= 0 ? gzdopen(own, "wb1") : NULL;
    if (output->gzip == NULL) {
        err = own < 0 ? sonde__fail_errno(diag, path, "cannot be written")
                      : sonde__fail_nomem(diag, "gzip");
        (void)close(own);
        sonde__whole_close(&output->file);
        return err;
    }
    (void)gzbuffer(output->gzip, 256 * 1024);
    return SONDE_OK;
}

static bool put_gzipped(gzFile file, const char *bytes, size_t size)
{
    while (size > 0) {
        const size_t step = SONDE_MIN(size, (size_t)1 << 28);

        if (gzwrite(file, bytes, (unsigned)step) != (int)step) {
            return false;
        }
        bytes += step;
        size -= step;
    }
    return true;
}

sonde_err sonde__data_output_write(sonde__data_output *output, const void *bytes,
                                   size_t size, sonde_diag *diag)
{
    if (output->gzip == NULL) {
        (void)sonde__whole_write(&output->file, bytes, size);
        return sonde__whole_status(&output->file, diag);
    }
    return put_gzipped(output->gzip, bytes, size)
               ? SONDE_OK
               : sonde__fail_errno(diag, output->file.path, "cannot be written");
}

sonde_err sonde__data_output_commit(sonde__data_output *output, sonde_diag *diag)
{
    const bool good = output->gzip == NULL || gzclose(output->gzip) == Z_OK;

    output->gzip = NULL;
    return good ? sonde__whole_commit(&output->file, SONDE__REPLACE, diag)
                : sonde__fail_errno(diag, output->file.path, "cannot be written");
}

void sonde__data_output_close(sonde__data_output *output)
{
    if (output->gzip != NULL) {
        (void)gzclose(output->gzip);
        output->gzip = NULL;
    }
    sonde__whole_close(&output->file);
}

sonde_err sonde__data_make_folders(const char *path, sonde_diag *diag)
{
    char *copy = sonde__strdup(path);
    sonde_err err = SONDE_OK;

    if (copy == NULL) {
        return sonde__fail_nomem(diag, "a folder name");
    }
    for (char *place = copy + 1; copy[0] != '\0'; place++) {
        const char end = *place;

        if (end != '/' && end != '\0') {
            continue;
        }
        *place = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) {
            err = sonde__fail_errno(diag, copy, "cannot make the folder");
            goto done;
        }
        *place = end;
        if (end == '\0') {
            goto done;
        }
    }

done:
    sonde__free(copy);
    return err;
}
