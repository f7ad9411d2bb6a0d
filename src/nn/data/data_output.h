/*
 * data_output.h - files that appear whole or not at all (see base/whole_file.h), gzipped
 * on request.
 */
#ifndef SONDE_NN_DATA_DATA_OUTPUT_H
#define SONDE_NN_DATA_DATA_OUTPUT_H

#include "base/whole_file.h"

#include <zlib.h>

typedef struct sonde__data_output {
    sonde__whole_file file;
    gzFile gzip; /* over its own descriptor; NULL: not gzipped */
} sonde__data_output;

sonde_err sonde__data_output_open(sonde__data_output *output, const char *path, bool gzip,
                                  sonde_diag *diag);
sonde_err sonde__data_output_write(sonde__data_output *output, const void *bytes,
                                   size_t size, sonde_diag *diag);
/* Completes the file and puts it in place. The caller must still call close. */
sonde_err sonde__data_output_commit(sonde__data_output *output, sonde_diag *diag);
void sonde__data_output_close(sonde__data_output *output);

/* mkdir -p. */
sonde_err sonde__data_make_folders(const char *path, sonde_diag *diag);

#endif
