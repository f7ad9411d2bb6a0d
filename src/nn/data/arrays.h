/*
 * arrays.h - named arrays on disk: a file .npy, .npz or .safetensors, or a folder of .npy
 * files, which are named after them. The files are mapped: an array that is not packed
 * costs no memory. Files must not be truncated while they are open.
 */
#ifndef SONDE_NN_DATA_ARRAYS_H
#define SONDE_NN_DATA_ARRAYS_H

#include <stdbool.h>
#include <stddef.h>

#include <sonde/tensor.h>

typedef struct sonde__data_arrays sonde__data_arrays;

/* Whether a path's ending is .npy, .npz or .safetensors. */
bool sonde__data_is_arrays(const char *path);

/* SONDE_EFORMAT: a damaged file (diag names it). SONDE_ENOTFOUND: a folder without .npy
 * files. */
SONDE_CHECKED sonde_err sonde__data_arrays_open(const char *path,
                                                sonde__data_arrays **out,
                                                sonde_diag *diag);
/* The arrays of an .npz in memory, borrowed until destroy. */
SONDE_API SONDE_CHECKED sonde_err sonde__data_arrays_parse(const void *bytes, size_t size,
                                                           const char *name,
                                                           sonde__data_arrays **out,
                                                           sonde_diag *diag);
/* NULL is fine. */
SONDE_API void sonde__data_arrays_destroy(sonde__data_arrays *arrays);

SONDE_API size_t sonde__data_arrays_count(const sonde__data_arrays *arrays);
/* Borrowed until destroy. Elements may be unaligned, and have any strides. */
SONDE_API const char *sonde__data_arrays_name(const sonde__data_arrays *arrays, size_t i);
SONDE_API const sonde_view *sonde__data_arrays_view(const sonde__data_arrays *arrays,
                                                    size_t i);
/* NULL: there is no such array. */
SONDE_API const sonde_view *sonde__data_arrays_find(const sonde__data_arrays *arrays,
                                                    const char *name);

#endif
