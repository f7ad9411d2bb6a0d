/*
 * compress.h - compression of values. Internal; the writer's thread only.
 *
 * zstd at level 1, with the bytes in order or shuffled (the first bytes of all elements,
 * then the second ...). Shuffling helps dense floats and hurts sparse ones, so for each
 * tensor both are tried now and then and the better one is used in between. If neither
 * saves a sixteenth, values are stored uncompressed.
 */
#ifndef SONDE_RECORD_COMPRESS_H
#define SONDE_RECORD_COMPRESS_H

#include "record/record_tensors.h"

/* Memory of a batch for bytes that are not in the ring, until the batch is in the files.
 */
typedef struct sonde__record_scratch {
    unsigned char *start;
    size_t used, size;
} sonde__record_scratch;

typedef struct sonde__record_compressor {
    void *context; /* zstd's; NULL: values are not compressed */
    unsigned char *shuffled;
    size_t shuffled_size;
} sonde__record_compressor;

sonde_err sonde__record_compressor_init(sonde__record_compressor *compressor);
void sonde__record_compressor_fini(sonde__record_compressor *compressor);
/* Bytes of scratch that packing n bytes may take. */
size_t sonde__record_compressor_bound(size_t n);
/* Compresses a value into scratch, which has room for the bound, and sets *packed,
 * line->bytes and line->packing; *packed is NULL if the value stays as it is. */
void sonde__record_compress(sonde__record_compressor *compressor,
                            sonde__record_tensor *tensor, sonde__record_scratch *scratch,
                            const void *bytes, sonde__record_index_line *line,
                            const void **packed);
/* n elements of size bytes each. */
SONDE_API void sonde__record_shuffle(const void *source, size_t n, size_t size,
                                     void *target);

#endif
