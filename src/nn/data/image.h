/*
 * image.h - PNG and JPEG files as arrays of bytes, decoded in two steps, so that the caller
 * provides the memory.
 *
 * Pixels are uint8, of 1 (grey) or 3 channels (red, green, blue). Other files are converted:
 * palettes are looked up, 1, 2 and 4 bits are widened, 16 bits are scaled to 8, alpha is
 * dropped. CMYK JPEGs are not supported. The first bytes of a file, not its name, decide its
 * kind.
 *
 * probe reads the header only; read writes interleaved rows to a given place; planar
 * sorts them by channel.
 */
#ifndef SONDE_NN_DATA_IMAGE_H
#define SONDE_NN_DATA_IMAGE_H

#include <sonde/error.h>
#include <sonde/export.h>

#include <stddef.h>
#include <stdint.h>

enum { SONDE__DATA_SIDE_MAX = 16384 }; /* pixels; larger images are refused */

typedef struct sonde__data_bytes {
    const unsigned char *data;
    size_t size;
    const char *name; /* for diagnostics */
} sonde__data_bytes;

typedef struct sonde__data_image_info {
    int channels, height, width;
} sonde__data_image_info;

SONDE_API sonde_err sonde__data_image_probe(const sonde__data_bytes *bytes,
                                            sonde__data_image_info *info,
                                            sonde_diag *diag);
/* Bytes of such an image's pixels; sides are bounded, so it cannot overflow. */
SONDE_API size_t sonde__data_image_size(const sonde__data_image_info *info);
/* pixels: (height, width, channels). SONDE_EFORMAT: the header differs from info. */
SONDE_API sonde_err sonde__data_image_read(const sonde__data_bytes *bytes,
                                           const sonde__data_image_info *info,
                                           uint8_t *pixels, sonde_diag *diag);
/* (H, W, C) to (C, H, W). */
void sonde__data_image_planar(const sonde__data_image_info *info, const uint8_t *pixels,
                              uint8_t *out);

/* Reads at most capacity bytes of a file into room; *size is their number. */
sonde_err sonde__data_file_read(const char *path, void *room, size_t capacity,
                                size_t *size, sonde_diag *diag);
/* The size of a regular file. */
sonde_err sonde__data_file_size(const char *path, size_t *size, sonde_diag *diag);

#endif
