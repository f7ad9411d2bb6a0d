/*
 * input.c - see files.h.
 */
#include "nn/data/files.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <sonde/nn/dataset.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFLATE_RATIO = 1032, LEAST_ROOM = 4096 };

static bool is_gzip(const unsigned char *bytes, size_t size)
{
    return size >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

/* Room for more bytes of content, and one more. */
static bool reserve(sonde__data_input *input, size_t more)
{
    return more < SIZE_MAX - input->size - 1 &&
           sonde__reserve(&input->bytes, &input->capacity, input->size + more + 1, 1);
}

/* Appends the member at packed; *taken are its bytes. The last bytes of a file give the size
 * of a single member's content. */
static sonde_err add_member(sonde__data_input *input,
                            struct libdeflate_decompressor *decompressor,
                            const unsigned char *packed, size_t size, size_t *taken,
                            enum libdeflate_result *result, sonde_diag *diag)
{
    const unsigned char *end = packed + size;
    const size_t claimed = size < 18 ? 0
                                     : (size_t)end[-4] | (size_t)end[-3] << 8 |
                                           (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
    const size_t most = size * DEFLATE_RATIO + LEAST_ROOM;

    *result = LIBDEFLATE_INSUFFICIENT_SPACE;
    for (size_t room = SONDE_MIN(claimed, most);
         *result == LIBDEFLATE_INSUFFICIENT_SPACE && room <= most;
         room = SONDE_MAX(2 * room, (size_t)LEAST_ROOM)) {
        size_t length = 0;

        if (!reserve(input, room)) {
            return sonde__fail_nomem(diag, "unzipped data");
        }
        *result = libdeflate_gzip_decompress_ex(
            decompressor, packed, size, input->bytes + input->size, room, taken, &length);
        input->size += *result == LIBDEFLATE_SUCCESS ? length : 0;
    }
    return SONDE_OK;
}

static sonde_err unzip(sonde__data_input *input, const unsigned char *packed, size_t size,
                       sonde_diag *diag)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    enum libdeflate_result result = LIBDEFLATE_SUCCESS;
    size_t place = 0, taken = 0;
    sonde_err err =
        decompressor != NULL ? SONDE_OK : sonde__fail_nomem(diag, "unzipped data");

    input->unzipped = true;
    for (; err == SONDE_OK && place < size; place += taken) {
        if (!is_gzip(packed + place, size - place)) {
            err = sonde__fail(diag, SONDE_EFORMAT, input->name, "the end of the file",
                              "foreign bytes after the gzip stream, at byte %zu of %zu",
                              place, size);
            break;
        }
        err = add_member(input, decompressor, packed + place, size - place, &taken,
                         &result, diag);
        if (err == SONDE_OK && result != LIBDEFLATE_SUCCESS) {
            err =
                sonde__fail(diag, SONDE_EFORMAT, input->name, NULL,
                            "corrupt gzip stream at byte %zu of %zu: it is cut short, or "
                            "damaged",
                            place, size);
        }
    }
    libdeflate_free_decompressor(decompressor);
    return err;
}

/* Takes bytes over into input, which is empty. */
static sonde_err take(sonde__data_input *input, const unsigned char *bytes, size_t size,
                      bool raw, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (!raw && is_gzip(bytes, size)) {
        err = unzip(input, bytes, size, diag);
    } else if (!reserve(input, size)) {
        err = sonde__fail_nomem(diag, "the content of a file");
    } else if (size > 0) {
        memcpy(input->bytes, bytes, size);
        input->size = size;
    }
    if (err != SONDE_OK) {
        sonde__data_input_fini(input);
    }
    return err;
}

sonde_err sonde__data_input_copy(sonde__data_input *input, const void *bytes, size_t size,
                                 const char *name, sonde_diag *diag)
{
    *input = (sonde__data_input){.name = name};
    return take(input, bytes, size, false, diag);
}

sonde_err sonde__data_input_read(sonde__data_input *input, const char *path, bool raw,
                                 sonde_diag *diag)
{
    struct stat status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    sonde_err err = SONDE_OK;

    *input = (sonde__data_input){.name = path};
    if (fd < 0 || fstat(fd, &status) != 0) {
        err = sonde__fail_errno(diag, path, "cannot open");
    } else if (!S_ISREG(status.st_mode)) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, "a file", "%s",
                          S_ISDIR(status.st_mode) ? "is a folder" : "is not a file");
    } else {
        const size_t size = (size_t)status.st_size;
        void *map = size > 0 ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;

        err = map == MAP_FAILED ? sonde__fail_errno(diag, path, "cannot read")
                                : take(input, map, size, raw, diag);
        if (map != MAP_FAILED && map != NULL) {
            (void)munmap(map, size);
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return err;
}

void sonde__data_input_fini(sonde__data_input *input)
{
    sonde__free(input->bytes);
    *input = (sonde__data_input){.name = NULL};
}

/* --- writing -------------------------------------------------------------------------- */

sonde_err sonde__data_write(const char *path, const void *bytes, size_t size, bool gzip,
                            sonde_diag *diag)
{
    if (!gzip) {
        return sonde__whole_put(path, bytes, size, diag);
    }
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(1);
    const size_t bound = libdeflate_gzip_compress_bound(compressor, size);
    unsigned char *packed = sonde__malloc(bound);
    sonde_err err = SONDE_OK;

    if (compressor == NULL || packed == NULL) {
        err = sonde__fail_nomem(diag, "gzip");
    } else {
        err = sonde__whole_put(
            path, packed,
            libdeflate_gzip_compress(compressor, bytes, size, packed, bound), diag);
    }
    libdeflate_free_compressor(compressor);
    sonde__free(packed);
    return err;
}

sonde_err sonde__data_make_folders(const char *path, sonde_diag *diag)
{
    char *copy = sonde__strdup(path);

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
            const sonde_err err = sonde__fail_errno(diag, copy, "cannot make the folder");

            sonde__free(copy);
            return err;
        }
        if (end == '\0') {
            break;
        }
        *place = end;
    }
    sonde__free(copy);
    return SONDE_OK;
}

/* --- the cache ------------------------------------------------------------------------- */

sonde_err sonde_nn_data_cache(const char *name, char *path, size_t size, sonde_diag *diag)
{
    SONDE__NEEDS(diag, name, path);
    static const struct {
        const char *variable, *folder;
    } bases[] = {
        {"SONDE_CACHE", ""}, {"XDG_CACHE_HOME", "/sonde"}, {"HOME", "/.cache/sonde"}};

    for (size_t i = 0; i < SONDE_COUNT_OF(bases); i++) {
        const char *base = getenv(bases[i].variable);
        int length = 0;

        if (base == NULL || base[0] == '\0') {
            continue;
        }
        length = snprintf(NULL, 0, "%s%s/data/%s", base, bases[i].folder, name);
        if ((size_t)length >= size) {
            return sonde__fail(diag, SONDE_EINVAL, bases[i].variable, "a shorter path",
                               "the path of the cache has %d letters", length);
        }
        (void)snprintf(path, size, "%s%s/data/%s", base, bases[i].folder, name);
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, name, "one of them",
                       "none of SONDE_CACHE, XDG_CACHE_HOME and HOME is set");
}
