/*
 * pixels.h - images as arrays of bytes: decoding, resizing, normalizing, drawing. Internal.
 */
#ifndef SONDE_NN_DATA_PIXELS_H
#define SONDE_NN_DATA_PIXELS_H

#include <sonde/error.h>
#include <sonde/export.h>
#include <sonde/nn/dataset.h>
#include <sonde/nn/loader.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* === pixels ======================================================================== */

/*
 * Bytes to normalized floats, one kernel per instruction set.
 *
 * out = ((x / 255) - mean) / std, each operation rounded to float32. The table holds
 * these 256 results. The vector kernels compute instead of looking up: a quotient is x
 * times the reciprocal, corrected once by its remainder (Markstein 1990), which is nearly
 * always the rounded quotient. exact is set only if a run over all 256 bytes gives the
 * table bit for bit; without it every kernel looks up.
 */

typedef struct sonde__data_affine {
    float mean, std;
    float inverse_std;
    bool exact;
    float table[256];
} sonde__data_affine;

typedef void sonde__data_affine_fn(const sonde__data_affine *affine, const uint8_t *in,
                                   size_t count, float *out);

sonde__data_affine_fn sonde__data_affine_generic;
#if defined(__x86_64__)
sonde__data_affine_fn sonde__data_affine_avx2, sonde__data_affine_avx512;
#endif

/* The one for this processor. */
sonde__data_affine_fn *sonde__data_affine_kernel(void);
/* Fills the table and tests the kernel. */
void sonde__data_affine_init(sonde__data_affine *affine, float mean, float std);

/* === resize ======================================================================== */

/*
 * Resampling one uint8 plane.
 *
 * Separable: rows first, into a plane of (in height, out width), then columns, each pass
 * rounded to uint8. For a smaller size the filter is widened by the factor. Weights are
 * computed for each call, which costs little compared with applying them.
 */

typedef struct sonde__data_resize {
    int in_height, in_width, out_height, out_width;
    sonde_nn_filter filter;
} sonde__data_resize;

/* Bytes of scratch (aligned to 16) for planes up to in_height x in_width. */
size_t sonde__data_resize_scratch(const sonde__data_resize *sizes);
/* planes of (in_height, in_width) to planes of (out_height, out_width). */
void sonde__data_resize_run(const sonde__data_resize *sizes, int planes,
                            const uint8_t *in, void *scratch, uint8_t *out);

/* === image ========================================================================= */

/*
 * PNG and JPEG files as arrays of bytes, decoded in two steps, so that the caller
 * provides the memory.
 *
 * Pixels are uint8, of 1 (gray) or 3 channels (red, green, blue). Other files are converted:
 * palettes are looked up, 1, 2 and 4 bits are widened, 16 bits are scaled to 8, alpha is
 * dropped. CMYK JPEGs are not supported. The first bytes of a file, not its name, decide its
 * kind.
 *
 * probe reads the header only; read writes interleaved rows to a given place; planar
 * sorts them by channel.
 */

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

/* === garments ====================================================================== */

/*
 * The ten garments: antialiased outlines on a small gray picture.
 */

enum { SONDE__SIDE = SONDE_NN_SYNTH_SIDE, SONDE__PIXELS = SONDE__SIDE * SONDE__SIDE };

/* By label. */
extern const char *const sonde__data_garment_names[SONDE_NN_SYNTH_CLASSES];

/* The random numbers of one sample, in order. */
typedef struct sonde__data_dice {
    uint64_t seed, stream, next;
    uint32_t block[4];
} sonde__data_dice;

float sonde__data_dice_between(sonde__data_dice *dice, float low, float high);

typedef struct sonde__data_picture {
    float light[SONDE__PIXELS]; /* 0 to 1 */
    float drawn[SONDE__PIXELS]; /* covered part of each pixel */
    float cloth[SONDE__PIXELS]; /* texture: a factor of the brightness */
} sonde__data_picture;

/* Draws a garment of this class: its cut, pose and parts are the dice's. */
void sonde__data_garment_draw(sonde__data_picture *picture, sonde__data_dice *dice,
                              int label, float brightness);

#endif
