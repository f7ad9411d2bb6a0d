/*
 * record_tensors.h - the tensors of a worker's files: ids, names, the catalogue.
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

/* --- messages in a recorder's ring -------------------------------------------------- */

typedef enum sonde__record_message_kind {
    SONDE__MESSAGE_VALUE = 1,  /* sonde__record_value_message */
    SONDE__MESSAGE_VITALS = 2, /* sonde__record_vitals_message */
    SONDE__MESSAGE_SKETCH = 3, /* sonde__record_sketch_message */
    SONDE__MESSAGE_TENSOR = 4, /* sonde__record_tensor_message */
    SONDE__MESSAGE_END = 5,    /* sonde__record_end_message */
    SONDE__MESSAGE_KINDS = 6
} sonde__record_message_kind;

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
    /* The best packing of its values, and how many are stored so before the next trial
     * (compress.c). */
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

#endif
