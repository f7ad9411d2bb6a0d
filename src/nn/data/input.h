/*
 * input.h - files of data in memory: read whole, unzipped if they are gzipped, and written.
 *
 * The first two bytes of a file, not its name, show whether it is gzipped. Consecutive gzip
 * members are one content, as for gunzip.
 */
#ifndef SONDE_NN_DATA_INPUT_H
#define SONDE_NN_DATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include <sonde/error.h>
#include <sonde/nn/fetch.h>

typedef struct sonde__data_input {
    const char *name;     /* borrowed; the path, for diagnostics */
    unsigned char *bytes; /* owned; size of them, and room for one more */
    size_t size, capacity;
    bool unzipped;
} sonde__data_input;

/* Reads all of a file. raw: as it is. SONDE_EFORMAT: no file, a corrupt gzip stream (diag
 * has the place of its member), or other bytes after it. After an error nothing is left to
 * free. */
sonde_err sonde__data_input_read(sonde__data_input *input, const char *path, bool raw,
                                 sonde_diag *diag);
/* The same of bytes in memory, which are copied. */
sonde_err sonde__data_input_copy(sonde__data_input *input, const void *bytes, size_t size,
                                 const char *name, sonde_diag *diag);
void sonde__data_input_fini(sonde__data_input *input);

/* Writes a file, gzipped (level 1: fast) if gzip is set, whole or not at all. */
sonde_err sonde__data_write(const char *path, const void *bytes, size_t size, bool gzip,
                            sonde_diag *diag);
/* Makes a folder and those that it is in; those that exist are fine. */
sonde_err sonde__data_make_folders(const char *path, sonde_diag *diag);

/* fetch.c: a file of an address. */
typedef struct sonde__data_remote_file {
    const char *url;
    const char *sha256; /* 64 hexadecimal digits, or NULL: unchecked */
    bool of_content;    /* the digest is of the unzipped content */
} sonde__data_remote_file;

SONDE_API SONDE_CHECKED sonde_err
sonde__data_fetch_file(const sonde__data_remote_file *file, const char *path,
                       const sonde_nn_fetch_options *options, sonde_diag *diag);

#endif
