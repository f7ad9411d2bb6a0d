/*
 * input.c - see input.h. Consecutive gzip members are one content, as for gunzip; any
 * other bytes after a member are an error.
 */
#include "nn/data/input.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GZIP_0 = 0x1F, GZIP_1 = 0x8B, DEFLATE_RATIO = 1032, LEAST_MEMBER = 18 };

/* Puts more bytes of the file into the empty buffer; leaves it empty at the end. */
static sonde_err refill(sonde__data_input *input, sonde_diag *diag)
{
    ssize_t got = 0;

    if (input->fd < 0) {
        const size_t n = SONDE_MIN(input->memory_left, (size_t)SONDE__INPUT_BUFFER);

        input->next = input->memory;
        input->left = n;
        input->memory += n;
        input->memory_left -= n;
        input->taken += n;
        return SONDE_OK;
    }
    do {
        got = read(input->fd, input->buffer, SONDE__INPUT_BUFFER);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return sonde__fail_errno(diag, input->name, "cannot read");
    }
    input->next = input->buffer;
    input->left = (size_t)got;
    input->taken += (uint64_t)got;
    return SONDE_OK;
}

static uint64_t offset(const sonde__data_input *input)
{
    return input->taken - input->left;
}

/* True if offsets count the unpacked content. */
static bool is_content(const sonde__data_input *input)
{
    return input->gzip || input->unpacked != NULL;
}

static sonde_err gzip_failed(const sonde__data_input *input, const char *why,
                             sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EFORMAT, input->name, NULL,
                       "corrupt gzip stream at byte %" PRIu64 " of %" PRIu64 ": %s",
                       offset(input), input->size, why);
}

/* Looks at the first two bytes. */
static sonde_err begin(sonde__data_input *input, sonde_diag *diag)
{
    SONDE__TRY(refill(input, diag));
    input->gzip =
        input->left >= 2 && input->next[0] == GZIP_0 && input->next[1] == GZIP_1;
    if (input->gzip) {
        if (inflateInit2(&input->stream, 16 + MAX_WBITS) != Z_OK) {
            return sonde__fail_nomem(diag, "gzip");
        }
        input->stream_open = true;
    }
    return SONDE_OK;
}

sonde_err sonde__data_input_open(sonde__data_input *input, const char *path,
                                 sonde_diag *diag)
{
    struct stat status;
    sonde_err err = SONDE_OK;

    *input = (sonde__data_input){.name = path, .fd = -1};
    input->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0 || fstat(input->fd, &status) != 0) {
        err = sonde__fail_errno(diag, path, "cannot open");
    } else if (!S_ISREG(status.st_mode)) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, "a file", "%s",
                          S_ISDIR(status.st_mode) ? "is a folder" : "is not a file");
    } else {
        input->size = (uint64_t)status.st_size;
        input->buffer = sonde__malloc(SONDE__INPUT_BUFFER);
        err = input->buffer != NULL ? begin(input, diag)
                                    : sonde__fail_nomem(diag, "an input buffer");
    }
    if (err != SONDE_OK) {
        sonde__data_input_close(input);
    }
    return err;
}

sonde_err sonde__data_input_of_memory(sonde__data_input *input, const void *bytes,
                                      size_t size, const char *name, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *input = (sonde__data_input){
        .name = name, .fd = -1, .memory = bytes, .memory_left = size, .size = size};
    err = begin(input, diag);
    if (err != SONDE_OK) {
        sonde__data_input_close(input);
    }
    return err;
}

void sonde__data_input_close(sonde__data_input *input)
{
    if (input->stream_open) {
        (void)inflateEnd(&input->stream);
    }
    if (input->fd >= 0) {
        (void)close(input->fd);
    }
    sonde__free(input->buffer);
    sonde__free(input->unpacked);
    *input = (sonde__data_input){.fd = -1};
}

void sonde__data_input_raw(sonde__data_input *input)
{
    input->gzip = false;
}

/* Unpacks a member of `size` bytes, whose last bytes give the size of its content. NULL:
 * zlib must do it, or report the fault. */
static unsigned char *unpack(const unsigned char *packed, size_t size, size_t *length)
{
    struct libdeflate_decompressor *const decompressor = libdeflate_alloc_decompressor();
    const size_t says = (size_t)packed[size - 4] | (size_t)packed[size - 3] << 8 |
                        (size_t)packed[size - 2] << 16 | (size_t)packed[size - 1] << 24;
    unsigned char *content = NULL;
    size_t taken = 0;

    if (decompressor != NULL && says > 0 && says / DEFLATE_RATIO <= size) {
        content = sonde__malloc(says);
    }
    if (content != NULL &&
        (libdeflate_gzip_decompress_ex(decompressor, packed, size, content, says, &taken,
                                       length) != LIBDEFLATE_SUCCESS ||
         taken != size)) {
        sonde__free(content);
        content = NULL;
    }
    libdeflate_free_decompressor(decompressor);
    return content;
}

/* Before the first read of a gzip file: unpacks its whole content if it is one member. */
static void unpack_at_once(sonde__data_input *input)
{
    const size_t size = (size_t)input->size;
    size_t length = 0;
    void *const packed = input->fd < 0 || input->given > 0 || size < LEAST_MEMBER
                             ? MAP_FAILED
                             : mmap(NULL, size, PROT_READ, MAP_PRIVATE, input->fd, 0);

    if (packed == MAP_FAILED) {
        return;
    }
    input->unpacked = unpack(packed, size, &length);
    (void)munmap(packed, size);
    if (input->unpacked != NULL) {
        (void)close(input->fd);
        input->fd = -1;
        input->gzip = false;
        input->memory = input->unpacked;
        input->memory_left = length;
        input->size = length;
        input->left = input->taken = 0;
    }
}

/* Between gzip members: true if another one follows. */
static sonde_err next_member(sonde__data_input *input, sonde_diag *diag)
{
    if (input->left == 0) {
        SONDE__TRY(refill(input, diag));
    }
    if (input->left == 0) {
        return SONDE_OK;
    }
    if (input->next[0] != GZIP_0) {
        return sonde__fail(diag, SONDE_EFORMAT, input->name, "the end of the file",
                           "foreign bytes after the gzip stream, at byte %" PRIu64
                           " of %" PRIu64,
                           offset(input), input->size);
    }
    (void)inflateReset(&input->stream);
    input->stream_over = false;
    return SONDE_OK;
}

/* One step of zlib towards out, at most size bytes; *got 0 at the end of the content. */
static sonde_err inflate_some(sonde__data_input *input, unsigned char *out, size_t size,
                              size_t *got, sonde_diag *diag)
{
    const uInt room = (uInt)SONDE_MIN(size, (size_t)(UINT_MAX / 2));

    for (*got = 0; *got == 0;) {
        sonde_err err = input->left == 0 ? refill(input, diag) : SONDE_OK;
        int code = Z_OK;

        if (err != SONDE_OK) {
            return err;
        }
        if (input->stream_over) {
            err = next_member(input, diag);
        }
        if (err != SONDE_OK || input->stream_over) {
            return err;
        }
        if (input->left == 0) {
            return gzip_failed(input, "it ends too early", diag);
        }
        input->stream.next_in = input->next;
        input->stream.avail_in = (uInt)input->left;
        input->stream.next_out = out;
        input->stream.avail_out = room;
        code = inflate(&input->stream, Z_NO_FLUSH);
        input->next = input->stream.next_in;
        input->left = input->stream.avail_in;
        *got = room - input->stream.avail_out;
        if (code == Z_MEM_ERROR) {
            return sonde__fail_nomem(diag, "gzip");
        }
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
            return gzip_failed(input, input->stream.msg ? input->stream.msg : "not gzip",
                               diag);
        }
        input->stream_over = code == Z_STREAM_END;
    }
    return SONDE_OK;
}

/* Plain bytes: the buffer's first, then straight into out. */
static sonde_err copy_some(sonde__data_input *input, unsigned char *out, size_t size,
                           size_t *got, sonde_diag *diag)
{
    const sonde_err err = input->left == 0 ? refill(input, diag) : SONDE_OK;

    *got = 0;
    if (err != SONDE_OK) {
        return err;
    }
    *got = SONDE_MIN(size, input->left);
    if (*got > 0) {
        memcpy(out, input->next, *got);
    }
    input->next += *got;
    input->left -= *got;
    return SONDE_OK;
}

sonde_err sonde__data_input_read_some(sonde__data_input *input, void *out, size_t size,
                                      size_t *got, sonde_diag *diag)
{
    unsigned char *to = out;
    size_t done = 0, step = 1;

    if (input->gzip && input->given == 0) {
        unpack_at_once(input);
    }

    while (done < size && step > 0) {
        const sonde_err err =
            input->gzip ? inflate_some(input, to + done, size - done, &step, diag)
                        : copy_some(input, to + done, size - done, &step, diag);

        if (err != SONDE_OK) {
            return err;
        }
        done += step;
        input->given += step;
    }
    *got = done;
    return SONDE_OK;
}

sonde_err sonde__data_input_read(sonde__data_input *input, void *out, size_t size,
                                 const char *what, sonde_diag *diag)
{
    const uint64_t start = input->given;
    size_t got = 0;
    SONDE__TRY(sonde__data_input_read_some(input, out, size, &got, diag));
    if (got < size) {
        char expected[96];

        (void)snprintf(expected, sizeof expected, "%" PRIu64 " bytes up to the end of %s",
                       start + size, what);
        return sonde__fail(diag, SONDE_EFORMAT, input->name, expected,
                           "truncated: ends at byte %" PRIu64 "%s", input->given,
                           is_content(input) ? " of its content" : "");
    }
    return SONDE_OK;
}

sonde_err sonde__data_input_at_end(sonde__data_input *input, sonde_diag *diag)
{
    const uint64_t end = input->given;
    unsigned char byte = 0;
    size_t got = 0;
    SONDE__TRY(sonde__data_input_read_some(input, &byte, 1, &got, diag));
    if (got > 0) {
        return sonde__fail(diag, SONDE_EFORMAT, input->name, "the end of the file",
                           "foreign bytes after the data, from byte %" PRIu64 "%s", end,
                           is_content(input) ? " of its content" : "");
    }
    return SONDE_OK;
}

bool sonde__data_input_may_hold(const sonde__data_input *input, uint64_t bytes)
{
    const uint64_t rest = input->size - offset(input);

    if (!input->gzip) {
        return bytes <= rest;
    }
    return bytes / DEFLATE_RATIO <= input->size + SONDE__INPUT_BUFFER;
}
