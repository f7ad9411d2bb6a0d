/*
 * image.c - images by their bytes: kind, limits, loading.
 */
#include "nn/data/image.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 8, WHOLE_MAX = 1 << 27 }; /* pixels: 11585 squared */

sonde_err sonde__data_image_sides(const char *name, unsigned long width,
                                  unsigned long height, sonde_diag *diag)
{
    if (width == 0 || height == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, name, NULL,
                           "an image of no size: %lu x %lu", width, height);
    }
    if (width > SONDE_NN_IMAGE_SIDE_MAX || height > SONDE_NN_IMAGE_SIDE_MAX ||
        width * height > WHOLE_MAX) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, name,
                           "sides up to 16384, up to 134217728 pixels",
                           "image is %lu x %lu", width, height);
    }
    return SONDE_OK;
}

/* pixels NULL: the header only. */
static sonde_err decode(const sonde__data_bytes *bytes, sonde__data_image_info *info,
                        uint8_t *pixels, sonde_diag *diag)
{
    static const unsigned char png[MAGIC] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    unsigned char first[MAGIC] = {0};

    if (bytes->size > 0) {
        memcpy(first, bytes->data, SONDE_MIN(bytes->size, (size_t)MAGIC));
    }
    if (memcmp(first, png, MAGIC) == 0) {
        return sonde__data_png_decode(bytes, info, pixels, diag);
    }
    if (first[0] == 0xFF && first[1] == 0xD8 && first[2] == 0xFF) {
        return sonde__data_jpeg_decode(bytes, info, pixels, diag);
    }
    return sonde__fail(diag, SONDE_EFORMAT, bytes->name, "a PNG or JPEG image",
                       "begins with %02x %02x %02x %02x, %zu bytes", first[0], first[1],
                       first[2], first[3], bytes->size);
}

sonde_err sonde__data_image_probe(const sonde__data_bytes *bytes,
                                  sonde__data_image_info *info, sonde_diag *diag)
{
    return decode(bytes, info, NULL, diag);
}

size_t sonde__data_image_size(const sonde__data_image_info *info)
{
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width;
}

sonde_err sonde__data_image_read(const sonde__data_bytes *bytes,
                                 const sonde__data_image_info *info, uint8_t *pixels,
                                 sonde_diag *diag)
{
    sonde__data_image_info now = {0};
    sonde_err err = decode(bytes, &now, NULL, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (now.channels != info->channels || now.height != info->height ||
        now.width != info->width) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "%d x %d, %d channels", info->width,
                       info->height, info->channels);
        return sonde__fail(diag, SONDE_EFORMAT, bytes->name, expected,
                           "has changed to %d x %d, %d channels", now.width, now.height,
                           now.channels);
    }
    return decode(bytes, &now, pixels, diag);
}

void sonde__data_image_planar(const sonde__data_image_info *info, const uint8_t *pixels,
                              uint8_t *out)
{
    const size_t plane = (size_t)info->height * (size_t)info->width;
    const size_t channels = (size_t)info->channels;

    if (channels == 1) {
        memcpy(out, pixels, plane);
        return;
    }
    for (size_t i = 0; i < plane; i++) {
        for (size_t c = 0; c < channels; c++) {
            out[c * plane + i] = pixels[i * channels + c];
        }
    }
}

/* --- files -------------------------------------------------------------------------- */

sonde_err sonde__data_file_size(const char *path, size_t *size, sonde_diag *diag)
{
    struct stat status;

    if (stat(path, &status) != 0) {
        return sonde__fail_errno(diag, path, "cannot open");
    }
    if (!S_ISREG(status.st_mode)) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a file", "%s",
                           S_ISDIR(status.st_mode) ? "is a folder" : "is not a file");
    }
    *size = (size_t)status.st_size;
    return SONDE_OK;
}

sonde_err sonde__data_file_read(const char *path, void *room, size_t capacity,
                                size_t *size, sonde_diag *diag)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *to = room;
    size_t done = 0;
    ssize_t got = 1;

    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot open");
    }
    while (done < capacity && got > 0) {
        do {
            got = read(fd, to + done, capacity - done);
        } while (got < 0 && errno == EINTR);
        done += got > 0 ? (size_t)got : 0;
    }
    if (got < 0) {
        const sonde_err err = sonde__fail_errno(diag, path, "cannot read");

        (void)close(fd);
        return err;
    }
    (void)close(fd);
    *size = done;
    return SONDE_OK;
}

/* --- whole images ------------------------------------------------------------------- */

sonde_err sonde_nn_image_parse(const void *bytes, size_t size, const char *name,
                               sonde_nn_image *out, sonde_diag *diag)
{
    const sonde__data_bytes all = {bytes, size, name};
    sonde__data_image_info info = {0};
    uint8_t *rows = NULL, *planar = NULL;
    sonde_err err = sonde__data_image_probe(&all, &info, diag);

    if (err != SONDE_OK) {
        return err;
    }
    rows = sonde__malloc(sonde__data_image_size(&info));
    planar = rows == NULL         ? NULL
             : info.channels == 1 ? rows
                                  : sonde__malloc(sonde__data_image_size(&info));
    if (planar == NULL) {
        err = sonde__fail_nomem(diag, "an image");
        goto error;
    }
    err = sonde__data_image_read(&all, &info, rows, diag);
    if (err != SONDE_OK) {
        goto error;
    }
    if (planar != rows) {
        sonde__data_image_planar(&info, rows, planar);
        sonde__free(rows);
    }
    *out = (sonde_nn_image){info.channels, info.height, info.width, planar};
    return SONDE_OK;

error:
    if (planar != rows) {
        sonde__free(planar);
    }
    sonde__free(rows);
    return err;
}

sonde_err sonde_nn_image_load(const char *path, sonde_nn_image *out, sonde_diag *diag)
{
    size_t size = 0;
    void *bytes = NULL;
    sonde_err err = sonde__data_file_size(path, &size, diag);

    if (err != SONDE_OK) {
        return err;
    }
    bytes = sonde__malloc(size);
    if (bytes == NULL) {
        return sonde__fail_nomem(diag, "an image file");
    }
    err = sonde__data_file_read(path, bytes, size, &size, diag);
    if (err == SONDE_OK) {
        err = sonde_nn_image_parse(bytes, size, path, out, diag);
    }
    sonde__free(bytes);
    return err;
}

void sonde_nn_image_fini(sonde_nn_image *image)
{
    sonde__free(image->pixels);
    *image = (sonde_nn_image){0};
}

sonde_view sonde_nn_image_view(const sonde_nn_image *image)
{
    const int64_t shape[3] = {image->channels, image->height, image->width};

    return sonde_view_of(SONDE_U8, 3, shape, image->pixels);
}
