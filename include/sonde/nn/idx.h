/*
 * idx.h - single arrays in IDX files, the format of MNIST, plain or gzipped.
 *
 *     byte 0, 1   zero
 *     byte 2      dtype: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float32, 0E float64
 *     byte 3      number of dimensions n
 *     then        n sizes, 32 bits, most significant byte first
 *     then        the elements, row-major, most significant byte first
 *
 * (Y. LeCun, "The MNIST database of handwritten digits".) Whether a file is gzipped is
 * seen from its first two bytes, not from its name.
 */
#ifndef SONDE_NN_IDX_H
#define SONDE_NN_IDX_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An array in memory, in the machine's byte order. */
typedef struct sonde_nn_idx sonde_nn_idx;

/*
 * Reads the whole array. SONDE_EFORMAT if the file is no IDX file, ends early, is
 * followed by foreign bytes, or its gzip stream is corrupt (diag names the file and the
 * offset); SONDE_EUNSUPPORTED for more than SONDE_MAX_DIMS dimensions. An array that
 * cannot fit in the file is refused before memory for it is asked for. Cost: one read of
 * the file.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_idx_load(const char *path, sonde_nn_idx **out,
                                                    sonde_diag *diag);
/* The same from memory; name stands in diag for the path. bytes is borrowed for the call.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_idx_parse(const void *bytes, size_t size,
                                                     const char *name, sonde_nn_idx **out,
                                                     sonde_diag *diag);
SONDE_API void sonde_nn_idx_destroy(sonde_nn_idx *array);
/* A contiguous view; borrowed until destroy. */
SONDE_API const sonde_view *sonde_nn_idx_view(const sonde_nn_idx *array);

/*
 * Writes a view as an IDX file, gzipped (level 1: fast) if gzip is set: to a temporary
 * name beside it and renamed when complete, so no half file is ever seen under the name.
 * SONDE_EDTYPE if IDX has no such dtype; SONDE_EINVAL for a scalar or a size over 2^32
 * - 1.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_idx_write(const char *path,
                                                     const sonde_view *view, bool gzip,
                                                     sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
