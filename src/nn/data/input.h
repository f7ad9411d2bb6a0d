/*
 * input.h - bytes from a file or from memory, gunzipped on the way if they are gzipped.
 *
 * Order of calls: open or of_memory, then read and at_end as often as wanted, then close.
 * Keeps one 64 KB buffer; a gzip file that is one whole member is unpacked at once, by
 * libdeflate, in half the time that zlib takes. Reading is strict: asking for more than there is, or anything
 * that zlib rejects, is an error that names the file and the offset in it.
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
    const unsigned char *memory; /* what is left of it */
    size_t memory_left;
    uint64_t size;  /* of the file as it lies there */
    uint64_t taken; /* of that, bytes that went into the buffer */
    uint64_t given; /* bytes of content given out */
    unsigned char *buffer;
    const unsigned char *next; /* in the buffer */
    size_t left;
    unsigned char *unpacked; /* the whole content, where it was unpacked at once */
    bool gzip, stream_open, stream_over;
    z_stream stream;
} sonde__data_input;

sonde_err sonde__data_input_open(sonde__data_input *input, const char *path,
                                 sonde_diag *diag);
sonde_err sonde__data_input_of_memory(sonde__data_input *input, const void *bytes,
                                      size_t size, const char *name, sonde_diag *diag);
void sonde__data_input_close(sonde__data_input *input);

/* Before the first read: bytes as they lie there, gzipped or not. */
void sonde__data_input_raw(sonde__data_input *input);
/* Exactly size bytes; what names them in the error when they are not there. */
sonde_err sonde__data_input_read(sonde__data_input *input, void *out, size_t size,
                                 const char *what, sonde_diag *diag);
/* As many as there are, up to size. */
sonde_err sonde__data_input_read_some(sonde__data_input *input, void *out, size_t size,
                                      size_t *got, sonde_diag *diag);
/* SONDE_EFORMAT if anything follows. */
sonde_err sonde__data_input_at_end(sonde__data_input *input, sonde_diag *diag);
/* Whether that many more bytes of content are possible at all (deflate packs at most
 * about 1032 : 1), so that no memory is asked for on the word of a header alone. */
bool sonde__data_input_may_hold(const sonde__data_input *input, uint64_t bytes);

#endif
