/*
 * image.h - PNG and JPEG files as arrays of bytes.
 *
 * Pixels are uint8, planar: (channels, height, width), channels 1 (grey) or 3 (red,
 * green, blue). Other files are converted: palettes are looked up, 1, 2 and 4 bits are
 * widened, 16 bits are scaled to 8, alpha is dropped. CMYK JPEGs are not supported. The
 * first bytes of a file, not its name, decide its kind.
 *
 * Threads: calls share nothing; any number may run at once.
 */
#ifndef SONDE_NN_IMAGE_H
#define SONDE_NN_IMAGE_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SONDE_NN_IMAGE_SIDE_MAX = 16384 }; /* pixels; larger images are refused */

typedef struct sonde_nn_image {
    int channels, height, width;
    uint8_t *pixels; /* (channels, height, width); owned, freed by fini */
} sonde_nn_image;

/*
 * Reads an image. SONDE_EFORMAT: no PNG or JPEG, truncated or corrupt.
 * SONDE_EUNSUPPORTED: a CMYK JPEG or a side over the limit.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_image_load(const char *path,
                                                      sonde_nn_image *out,
                                                      sonde_diag *diag);
/* The same from memory; diag shows name instead of a path. bytes is borrowed for the
 * call. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_image_parse(const void *bytes, size_t size,
                                                       const char *name,
                                                       sonde_nn_image *out,
                                                       sonde_diag *diag);
/* Frees the pixels and zeroes the struct; {0} is fine. */
SONDE_API void sonde_nn_image_fini(sonde_nn_image *image);
/* A (channels, height, width) view of the pixels; borrowed until fini. */
SONDE_API sonde_view sonde_nn_image_view(const sonde_nn_image *image);

/* Writes an 8 bit grey or RGB PNG: to a temporary file, then renamed. SONDE_EINVAL: another
 * number of channels than 1 and 3, or a side below 1. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_image_write_png(const char *path,
                                                           const sonde_nn_image *image,
                                                           sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
