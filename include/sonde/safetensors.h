/*
 * safetensors.h - named tensors in one file, in the safetensors format.
 *
 * A file is an 8-byte little-endian header length, a JSON header, and the data; see
 * https://github.com/huggingface/safetensors#format. Every safetensors reader opens files
 * written here, and the reverse. Reading maps the file and copies nothing.
 *
 * Threads: an open file never changes, so any number of threads may read it.
 */
#ifndef SONDE_SAFETENSORS_H
#define SONDE_SAFETENSORS_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- writing ---------------------------------------------------------------------- */

typedef struct sonde_named_view {
    const char *name;
    sonde_view view;
} sonde_named_view;

typedef struct sonde_metadata {
    const char *key;
    const char *value;
} sonde_metadata;

/*
 * Writes tensors, with string metadata (may be NULL, 0) under "__metadata__". Data is in
 * the given order, but wider elements come before narrower ones, so that all data is
 * aligned. The file appears whole or not at all: it is written to a temporary file,
 * synced and renamed; an old file stays until then. Names and metadata are UTF-8.
 * SONDE_EINVAL: a repeated name, the name "__metadata__", text that is not UTF-8, a view
 * without a dtype. SONDE_ENOTFOUND, SONDE_EIO: the folder or the disk. The views are
 * borrowed for the call, and may have any strides.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_safetensors_write(
    const char *path, const sonde_named_view *tensors, size_t count,
    const sonde_metadata *metadata, size_t metadata_count, sonde_diag *diag);

/* --- reading ---------------------------------------------------------------------- */

typedef struct sonde_safetensors sonde_safetensors;

/* Opens a file and checks its header: lengths, dtypes, shapes, and extents within the
 * file without gap or overlap. SONDE_EFORMAT: the file is damaged; SONDE_EUNSUPPORTED: a
 * dtype that Sonde does not have, or more than SONDE_MAX_DIMS dimensions. The file must
 * not be truncated while it is open. */
SONDE_API SONDE_CHECKED sonde_err sonde_safetensors_open(const char *path,
                                                         sonde_safetensors **out,
                                                         sonde_diag *diag);
SONDE_API void sonde_safetensors_destroy(sonde_safetensors *file);

SONDE_API size_t sonde_safetensors_count(const sonde_safetensors *file);
/* Name and view of tensor i, in the file's data order; both borrowed until destroy. The
 * view's data is read-only and may be unaligned for its dtype, which sonde_view_copy,
 * vital signs and sketches accept. NULL if i is out of range. */
SONDE_API const char *sonde_safetensors_name(const sonde_safetensors *file, size_t i);
SONDE_API const sonde_view *sonde_safetensors_view(const sonde_safetensors *file,
                                                   size_t i);
/* NULL if no tensor has that name. */
SONDE_API const sonde_view *sonde_safetensors_find(const sonde_safetensors *file,
                                                   const char *name);
/* NULL if there is no such metadata. */
SONDE_API const char *sonde_safetensors_metadata(const sonde_safetensors *file,
                                                 const char *key);

#ifdef __cplusplus
}
#endif

#endif
