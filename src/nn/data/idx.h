/*
 * idx.h - single arrays in IDX files, the format of MNIST, plain or gzipped.
 *
 *     byte 0, 1   zero
 *     byte 2      dtype: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float32, 0E float64
 *     byte 3      number of dimensions n
 *     then        n sizes, 32 bits, most significant byte first
 *     then        the elements, row-major, most significant byte first
 *
 * (Y. LeCun, "The MNIST database of handwritten digits".) The first two bytes of a file,
 * not its name, show whether it is gzipped.
 */
#ifndef SONDE_NN_DATA_IDX_H
#define SONDE_NN_DATA_IDX_H

#include <sonde/tensor.h>

/* An array in memory, in the machine's byte order. */
typedef struct sonde__data_idx {
    sonde_view view;
    void *data; /* owned */
} sonde__data_idx;

/*
 * Reads the whole array. SONDE_EFORMAT: no IDX file, truncated, bytes after the array, or
 * a corrupt gzip stream (diag names the file and the offset). SONDE_EUNSUPPORTED: more
 * than SONDE_MAX_DIMS dimensions. An array larger than the file can hold is refused
 * before memory is allocated. Cost: one read of the file.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_idx_load(const char *path,
                                                       sonde__data_idx **out,
                                                       sonde_diag *diag);
/* The same from memory; diag shows name instead of a path. bytes is borrowed for the
 * call. */
SONDE_API SONDE_CHECKED sonde_err sonde__data_idx_parse(const void *bytes, size_t size,
                                                        const char *name,
                                                        sonde__data_idx **out,
                                                        sonde_diag *diag);
SONDE_API void sonde__data_idx_destroy(sonde__data_idx *array);
/* A contiguous view; borrowed until destroy. */
SONDE_API const sonde_view *sonde__data_idx_view(const sonde__data_idx *array);

/*
 * Writes a view as an IDX file, gzipped (level 1: fast) if gzip is set: to a temporary
 * file that is renamed when complete, so a reader never sees a partial file.
 * SONDE_EDTYPE: IDX has no such dtype. SONDE_EINVAL: a scalar, or a size over 2^32 - 1.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_idx_write(const char *path,
                                                        const sonde_view *view, bool gzip,
                                                        sonde_diag *diag);

/* Returns the elements, owned by the caller; the array is empty afterwards. */
void *sonde__data_idx_take(sonde__data_idx *array);

#endif
