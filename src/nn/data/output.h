/*
 * output.h - files that appear whole or not at all.
 *
 * Bytes go to <path>.tmp<pid>; commit gives them their name, close without commit removes
 * them. Gzipped on the way if asked.
 */
#ifndef SONDE_NN_DATA_OUTPUT_H
#define SONDE_NN_DATA_OUTPUT_H

#include "base/base.h"

#include <stdio.h>
#include <zlib.h>

typedef struct sonde__output {
    const char *path; /* borrowed */
    char *temporary;
    FILE *file;
    gzFile gzip; /* owns the descriptor, file is NULL then */
} sonde__output;

sonde_err sonde__output_open(sonde__output *output, const char *path, bool gzip,
                             sonde_diag *diag);
sonde_err sonde__output_write(sonde__output *output, const void *bytes, size_t size,
                              sonde_diag *diag);
/* Closes and renames. The caller calls close afterwards in any case. */
sonde_err sonde__output_commit(sonde__output *output, sonde_diag *diag);
void sonde__output_close(sonde__output *output);

/* mkdir -p. */
sonde_err sonde__make_folders(const char *path, sonde_diag *diag);

#endif
