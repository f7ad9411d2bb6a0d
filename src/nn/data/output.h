/*
 * output.h - files that appear whole or not at all (see base/whole_file.h), gzipped on the
 * way if asked.
 */
#ifndef SONDE_NN_DATA_OUTPUT_H
#define SONDE_NN_DATA_OUTPUT_H

#include "base/whole_file.h"

#include <zlib.h>

typedef struct sonde__output {
    sonde__whole_file file;
    gzFile gzip; /* over a descriptor of its own; NULL: written as it is */
} sonde__output;

sonde_err sonde__output_open(sonde__output *output, const char *path, bool gzip,
                             sonde_diag *diag);
sonde_err sonde__output_write(sonde__output *output, const void *bytes, size_t size,
                              sonde_diag *diag);
/* Closes and puts the file in place. The caller calls close afterwards in any case. */
sonde_err sonde__output_commit(sonde__output *output, sonde_diag *diag);
void sonde__output_close(sonde__output *output);

/* mkdir -p. */
sonde_err sonde__make_folders(const char *path, sonde_diag *diag);

#endif
