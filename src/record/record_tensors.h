/*
 * record_tensors.h - the tensors of a worker's files: ids, names, the catalogue. Internal; the
 * writer's thread only.
 *
 * A file's ids count from 0 in order of arrival; the producer's ids are mapped to them. A
 * resumed run has its tensors already, by name.
 */
#ifndef SONDE_RECORD_RECORD_TENSORS_H
#define SONDE_RECORD_RECORD_TENSORS_H

#include "base/names.h"
#include "record/message.h"
#include "record/stream.h"

#include <sonde/error.h>

#include <stddef.h>
#include <stdint.h>

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

SONDE_API void sonde__record_tensors_init(sonde__record_tensors *tensors,
                                          sonde__record_backend *backend,
                                          const char *folder);
SONDE_API void sonde__record_tensors_fini(sonde__record_tensors *tensors);
/* The file's id of a producer's; SONDE_NO_TENSOR if it has none. */
static inline uint32_t sonde__record_tensors_find(const sonde__record_tensors *tensors,
                                                  uint32_t id)
{
    return id < tensors->mapped ? tensors->map[id] : SONDE_NO_TENSOR;
}
/* Adds a tensor: an id, and a line that the next commit writes. A line longer than the format
 * allows is refused: 0, and the tensor has no id. Returns 0, or ENOMEM with nothing
 * changed. */
SONDE_API int sonde__record_tensors_add(sonde__record_tensors *tensors,
                                        const sonde__record_tensor_message *message);
/* For a resumed run: reads the catalogue from its file and removes a truncated last line. */
SONDE_API SONDE_CHECKED sonde_err sonde__record_tensors_restore(
    sonde__record_tensors *tensors, const char *where, sonde_diag *diag);
/* The catalogue's file is lost: the next commit writes all of it again. */
SONDE_API void sonde__record_tensors_abandon(sonde__record_tensors *tensors);

#endif
