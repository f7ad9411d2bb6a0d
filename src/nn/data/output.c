/*
 * output.c - see output.h.
 */
#include "nn/data/output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sonde_err sonde__output_open(sonde__output *output, const char *path, bool gzip,
                             sonde_diag *diag)
{
    const size_t size = strlen(path) + 32;

    *output = (sonde__output){.path = path};
    output->temporary = sonde__malloc(size);
    if (output->temporary == NULL) {
        return sonde__fail_nomem(diag, "a file name");
    }
    (void)snprintf(output->temporary, size, "%s.tmp%ld", path, (long)getpid());
    errno = 0;
    if (gzip) {
        output->gzip = gzopen(output->temporary, "wb1");
    } else {
        output->file = fopen(output->temporary, "wb");
    }
    if (output->gzip == NULL && output->file == NULL) {
        const sonde_err err = errno != 0 ? sonde__fail_errno(diag, path, "cannot write")
                                         : sonde__fail_nomem(diag, "gzip");

        sonde__output_close(output);
        return err;
    }
    if (gzip) {
        (void)gzbuffer(output->gzip, 256 * 1024);
    }
    return SONDE_OK;
}

sonde_err sonde__output_write(sonde__output *output, const void *bytes, size_t size,
                              sonde_diag *diag)
{
    const char *from = bytes;

    while (size > 0) {
        const size_t step = SONDE_MIN(size, (size_t)1 << 28);
        const size_t done = output->gzip != NULL
                                ? (size_t)gzwrite(output->gzip, from, (unsigned)step)
                                : fwrite(from, 1, step, output->file);

        if (done != step) {
            return sonde__fail_errno(diag, output->path, "cannot write");
        }
        from += step;
        size -= step;
    }
    return SONDE_OK;
}

sonde_err sonde__output_commit(sonde__output *output, sonde_diag *diag)
{
    bool good = true;

    if (output->gzip != NULL) {
        good = gzclose(output->gzip) == Z_OK;
    } else {
        good = fclose(output->file) == 0;
    }
    output->gzip = NULL;
    output->file = NULL;
    if (!good || rename(output->temporary, output->path) != 0) {
        return sonde__fail_errno(diag, output->path, "cannot write");
    }
    sonde__free(output->temporary);
    output->temporary = NULL;
    return SONDE_OK;
}

void sonde__output_close(sonde__output *output)
{
    if (output->gzip != NULL) {
        (void)gzclose(output->gzip);
    }
    if (output->file != NULL) {
        (void)fclose(output->file);
    }
    if (output->temporary != NULL) {
        (void)unlink(output->temporary);
        sonde__free(output->temporary);
    }
    *output = (sonde__output){0};
}

sonde_err sonde__make_folders(const char *path, sonde_diag *diag)
{
    char *copy = sonde__strdup(path);
    sonde_err err = SONDE_OK;

    if (copy == NULL) {
        return sonde__fail_nomem(diag, "a folder name");
    }
    for (char *at = copy + 1; err == SONDE_OK && copy[0] != '\0'; at++) {
        const char end = *at;

        if (end != '/' && end != '\0') {
            continue;
        }
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) {
            err = sonde__fail_errno(diag, copy, "cannot make the folder");
        }
        *at = end;
        if (end == '\0') {
            break;
        }
    }
    sonde__free(copy);
    return err;
}
