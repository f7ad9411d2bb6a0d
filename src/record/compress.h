/*
 * compress.h - values made smaller, where that helps. Internal; the writer's thread only.
 *
 * zstd at level 1, of the bytes as they are or shuffled (the first bytes of all elements,
 * then the second ...): shuffling makes dense floats smaller and sparse ones larger, so
 * both are tried now and then for each tensor, and the better is used in between. Where
 * neither saves a sixteenth, values are stored as they are.
 */
#ifndef SONDE_RECORD_COMPRESS_H
#define SONDE_RECORD_COMPRESS_H

#include "record/record_tensors.h"

/* Memory that what is not in the ring lies in until a batch is in the files. */
typedef struct sonde__record_scratch {
    unsigned char *start;
    size_t used, size;
} sonde__record_scratch;

typedef struct sonde__record_compressor {
    void *context; /* zstd's; NULL: values are not compressed */
    unsigned char *shuffled;
    size_t shuffled_size;
} sonde__record_compressor;

SONDE_API sonde_err sonde__record_compressor_init(sonde__record_compressor *compressor);
SONDE_API void sonde__record_compressor_fini(sonde__record_compressor *compressor);
/* Bytes of scratch that packing n bytes may take. */
SONDE_API size_t sonde__record_compressor_bound(size_t n);
/* The value's bytes smaller, in scratch, which has room for the bound: *packed and
 * line->bytes and packing say how; or as they are, with *packed NULL. */
SONDE_API void sonde__record_compress(sonde__record_compressor *compressor,
                                      sonde__record_tensor *tensor,
                                      sonde__record_scratch *scratch, const void *bytes,
                                      sonde__record_index_line *line,
                                      const void **packed);
/* n elements of size bytes each. */
SONDE_API void sonde__record_shuffle(const void *source, size_t n, size_t size,
                                     void *target);

#endif
