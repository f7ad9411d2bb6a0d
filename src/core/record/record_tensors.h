/*
 * record_tensors.h - the tensors of a worker's files: ids, names, the catalogue,
 * the compression of values.
 * Internal; the writer's thread only.
 *
 * A file's ids count from 0 in order of arrival; the producer's ids are mapped to them. A
 * resumed run has its tensors already, by name.
 */
#ifndef SONDE_RECORD_RECORD_TENSORS_H
#define SONDE_RECORD_RECORD_TENSORS_H

#include "base/names.h"
#include "format/format.h"
#include "record/ring.h"
#include "record/stream.h"
#include <sonde/error.h>
#include <stddef.h>
#include <stdint.h>
#include <sonde/export.h>

/* --- messages in a recorder's ring -------------------------------------------------- */

typedef enum sonde__record_message_kind {
    SONDE__MESSAGE_VALUE = 1,  /* sonde__record_value_message */
    SONDE__MESSAGE_VITALS = 2, /* sonde__record_vitals_message */
    SONDE__MESSAGE_SKETCH = 3, /* sonde__record_sketch_message */
    SONDE__MESSAGE_TENSOR = 4, /* sonde__record_tensor_message */
    SONDE__MESSAGE_END = 5,    /* sonde__record_end_message */
    SONDE__MESSAGE_KINDS = 6
} sonde__record_message_kind;

/* The mark that counts messages of a kind; SONDE__MARKS: none does. */
static inline int sonde__record_mark_of(uint32_t kind)
{
    return kind >= SONDE__MESSAGE_VALUE && kind <= SONDE__MESSAGE_SKETCH ? (int)kind - 1
           : kind == SONDE__MESSAGE_END ? SONDE__MARK_STEPS
                                        : SONDE__MARKS;
}

typedef struct sonde__record_value_message {
    sonde__record_block block;
    sonde__record_index_line
        line;  /* all but offset and hash; tensor is the producer's id */
    void *far; /* NULL, or the bytes of a large value, beside the ring */
    _Alignas(SONDE__RING_LINE) unsigned char bytes[];
} sonde__record_value_message;

typedef struct sonde__record_vitals_message {
    sonde__record_block block;
    sonde__record_stats_row row; /* check is not set yet */
} sonde__record_vitals_message;

typedef struct sonde__record_sketch_message {
    sonde__record_block block;
    sonde__record_sketch_record record; /* followed by its bins; check is not set yet */
} sonde__record_sketch_message;

typedef struct sonde__record_end_message {
    sonde__record_block block;
    sonde__record_step_row row; /* check is not set yet */
} sonde__record_end_message;

/* A tensor's line of the catalogue, sent before its first value. */
typedef struct sonde__record_tensor_message {
    sonde__record_block block;
    uint32_t id;
    uint32_t same_as; /* of an alias: the producer's id of its tensor; else id */
    sonde_role role;
    sonde_pass pass;
    sonde_dtype dtype;
    int rank;
    int64_t shape[SONDE_MAX_DIMS];
    uint32_t collections;
    uint32_t length; /* of the text: name, module, op, note, then the collections, each
                        with its NUL */
    char text[];
} sonde__record_tensor_message;

typedef struct sonde__record_tensor {
    /* The best packing of its values, and how many are stored so before the next trial. */
    sonde__record_packing packing;
    unsigned until_trial;
} sonde__record_tensor;

typedef struct sonde__record_tensors {
    sonde__names names; /* id in the file -> name, escaped as in JSON */
    sonde__record_tensor *tensors;
    size_t capacity;
    uint32_t *map; /* by the producer's id: the file's, or SONDE_NO_TENSOR */
    size_t mapped, map_capacity;
    sonde_text lines; /* the whole catalogue, in case its file is lost */
    sonde__record_stream catalogue;
} sonde__record_tensors;

void sonde__record_tensors_init(sonde__record_tensors *tensors,
                                sonde__record_backend *backend, const char *folder);
void sonde__record_tensors_fini(sonde__record_tensors *tensors);
/* The file's id of a producer's; SONDE_NO_TENSOR if it has none. */
static inline uint32_t sonde__record_tensors_find(const sonde__record_tensors *tensors,
                                                  uint32_t id)
{
    return id < tensors->mapped ? tensors->map[id] : SONDE_NO_TENSOR;
}
/* Adds a tensor: an id, and a line that the next commit writes. A line longer than the
 * format allows is refused: 0, and the tensor has no id. Returns 0, or ENOMEM with
 * nothing changed. */
int sonde__record_tensors_add(sonde__record_tensors *tensors,
                              const sonde__record_tensor_message *message);
/* Sets the file's id of a producer's. False if memory runs out. */
bool sonde__record_tensors_map(sonde__record_tensors *tensors, uint32_t id,
                               uint32_t value);
/* For a resumed run: reads the catalogue from its file and removes a truncated last
 * line. */
SONDE_CHECKED sonde_err sonde__record_tensors_restore(sonde__record_tensors *tensors,
                                                      const char *where,
                                                      sonde_diag *diag);
/* The catalogue's file is lost: the next commit writes all of it again. */
void sonde__record_tensors_abandon(sonde__record_tensors *tensors);

/* --- compress ---------------------------------------------------------------------- */

/* Compression of values. Internal; the writer's thread only.
 *
 * zstd at level 1, with the bytes in order or shuffled (the first bytes of all elements,
 * then the second ...). Shuffling helps dense floats and hurts sparse ones, so for each
 * tensor both are tried now and then and the better one is used in between. If neither
 * saves a sixteenth, values are stored uncompressed. */

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

/* --- digest ------------------------------------------------------------------------ */

/* XXH3 (64 bits, seed 0) of a block, with the widest vectors available.
 * Internal. */

uint64_t sonde__record_digest(const void *bytes, size_t size);

/* The same, one for each instruction set. */
uint64_t sonde__record_digest_generic(const void *bytes, size_t size);
uint64_t sonde__record_digest_avx2(const void *bytes, size_t size);
uint64_t sonde__record_digest_avx512(const void *bytes, size_t size);

#endif
