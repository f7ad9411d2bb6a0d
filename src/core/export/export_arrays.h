/*
 * export_arrays.h - raw values as .npz and as one safetensors file. Internal.
 *
 * NumPy's .npz is a zip file of uncompressed .npy files:
 *
 *     local header | name | (zip64 sizes) | .npy head | elements     one an array
 *     ...
 *     central directory: a record an array
 *     (zip64 end and its locator) | end
 *
 * Sizes, offsets and counts that the old fields cannot hold are in zip64 fields. Times
 * are 1980-01-01, so the same arrays give the same bytes. bfloat16, which NumPy lacks, is
 * widened to float32: the same numbers.
 */
#ifndef SONDE_EXPORT_EXPORT_ARRAYS_H
#define SONDE_EXPORT_EXPORT_ARRAYS_H

#include "export/export_file.h"
#include "export/export_walk.h"

#include <sonde/tensor.h>

/* Writes the raw values asked for. */
sonde_err sonde__export_npz(sonde__export *work, const char *path, sonde_diag *diag);
sonde_err sonde__export_safetensors(sonde__export *work, const char *path,
                                    sonde_diag *diag);

/* --- an npz file ------------------------------------------------------------------ */

typedef struct sonde__export_npz_file {
    sonde__whole_file file;
    sonde__export_crc crc;
    unsigned char *central; /* the directory so far */
    size_t central_size, central_capacity;
    uint64_t count;
    uint64_t limit; /* sizes and offsets from here on take zip64: 2^32 - 1 */
} sonde__export_npz_file;

SONDE_API sonde_err sonde__export_npz_open(sonde__export_npz_file *npz, const char *path,
                                           sonde_diag *diag);
/* Adds an array; name is without ".npy" and must be new, which is not checked. */
SONDE_API sonde_err sonde__export_npz_add(sonde__export_npz_file *npz, const char *name,
                                          const sonde_view *view, sonde_diag *diag);
/* Publishes the file. Frees the memory of npz, whatever it returns. */
SONDE_API sonde_err sonde__export_npz_close(sonde__export_npz_file *npz,
                                            sonde_diag *diag);
SONDE_API void sonde__export_npz_abandon(sonde__export_npz_file *npz);

#endif
