/*
 * input.h - bytes from a file or from memory, unzipped if they are gzipped.
 *
 * Order of calls: open or of_memory, any number of read and at_end, close. Keeps one 64
 * KB buffer; a gzip file of one member is unpacked at once by libdeflate, in half the
 * time of zlib. Reading past the end, and data that zlib rejects, is an error that names
 * the file and the offset in it.
 */
#ifndef SONDE_NN_DATA_INPUT_H
#define SONDE_NN_DATA_INPUT_H

#define ZLIB_CONST
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include <sonde/error.h>

enum { SONDE__INPUT_BUFFER = 64 * 1024 };

typedef struct sonde__data_input {
    const char *name;            /* borrowed; the path, for diagnostics */
    int fd;                      /* -1: bytes come from memory */
    const unsigned char *memory; /* the rest of it */
    size_t memory_left;
    uint64_t size;  /* of the file */
    uint64_t taken; /* bytes of it read into the buffer */
    uint64_t given; /* bytes of content returned */
    unsigned char *buffer;
    const unsigned char *next; /* in the buffer */
    size_t left;
    unsigned char *unpacked; /* the whole content, if unpacked at once */
    bool gzip, stream_open, stream_over;
    z_stream stream;
} sonde__data_input;

sonde_err sonde__data_input_open(sonde__data_input *input, const char *path,
                                 sonde_diag *diag);
sonde_err sonde__data_input_of_memory(sonde__data_input *input, const void *bytes,
                                      size_t size, const char *name, sonde_diag *diag);
void sonde__data_input_close(sonde__data_input *input);

/* Before the first read: do not unzip. */
void sonde__data_input_raw(sonde__data_input *input);
/* Reads exactly size bytes; what names them in the error if they are missing. */
sonde_err sonde__data_input_read(sonde__data_input *input, void *out, size_t size,
                                 const char *what, sonde_diag *diag);
/* Reads up to size bytes; *got 0 at the end. */
sonde_err sonde__data_input_read_some(sonde__data_input *input, void *out, size_t size,
                                      size_t *got, sonde_diag *diag);
/* SONDE_EFORMAT: bytes follow. */
sonde_err sonde__data_input_at_end(sonde__data_input *input, sonde_diag *diag);
/* True if the file can hold that many more bytes of content (deflate packs at most about
 * 1032 : 1): check it before allocating memory by the sizes in a header. */
bool sonde__data_input_may_hold(const sonde__data_input *input, uint64_t bytes);

#endif
