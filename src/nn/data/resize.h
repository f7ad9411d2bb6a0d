/*
 * resize.h - resampling one uint8 plane.
 *
 * Separable: rows first, into a plane of (in height, out width), then columns, each pass
 * rounded to uint8. For a smaller size the filter is widened by the factor. Weights are
 * computed for each call, which costs little compared with applying them.
 */
#ifndef SONDE_NN_DATA_RESIZE_H
#define SONDE_NN_DATA_RESIZE_H

#include <sonde/nn/loader.h>

#include <stddef.h>
#include <stdint.h>

typedef struct sonde__data_resize {
    int in_height, in_width, out_height, out_width;
    sonde_nn_filter filter;
} sonde__data_resize;

/* Bytes of scratch (aligned to 16) for planes up to in_height x in_width. */
size_t sonde__data_resize_scratch(const sonde__data_resize *sizes);
/* planes of (in_height, in_width) to planes of (out_height, out_width). */
void sonde__data_resize_run(const sonde__data_resize *sizes, int planes,
                            const uint8_t *in, void *scratch, uint8_t *out);

#endif
