/*
 * export_npz.h - NumPy's .npz: a zip file of .npy files, stored as they are. Internal.
 *
 *     local header | name | (zip64 sizes) | .npy head | elements     one an array
 *     ...
 *     central directory: a record an array
 *     (zip64 end and its locator) | end
 *
 * Sizes, offsets and counts that the old fields cannot hold are in zip64 fields. Times are
 * 1980-01-01, so the same arrays give the same bytes. bfloat16, which NumPy has not, is
 * widened to float32: the same numbers.
 */
#ifndef SONDE_EXPORT_EXPORT_NPZ_H
#define SONDE_EXPORT_EXPORT_NPZ_H

#include "export/export_file.h"

#include <sonde/tensor.h>

typedef struct sonde__export_npz_file {
    sonde__export_out_file file;
    sonde__export_crc crc;
    unsigned char *central; /* the directory so far */
    size_t central_size, central_capacity;
    uint64_t count;
    uint64_t limit; /* sizes and offsets from here on take zip64: 2^32 - 1 */
} sonde__export_npz_file;

SONDE_API sonde_err sonde__export_npz_open(sonde__export_npz_file *npz, const char *path,
                                           sonde_diag *diag);
/* An array; name is without ".npy". Names must differ: that is the caller's to see to. */
SONDE_API sonde_err sonde__export_npz_add(sonde__export_npz_file *npz, const char *name,
                                          const sonde_view *view, sonde_diag *diag);
/* Publishes; whatever it returns, what the npz has is freed. */
SONDE_API sonde_err sonde__export_npz_close(sonde__export_npz_file *npz,
                                            sonde_diag *diag);
SONDE_API void sonde__export_npz_abandon(sonde__export_npz_file *npz);

#endif
