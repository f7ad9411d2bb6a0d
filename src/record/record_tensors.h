/*
 * tensors.h - the tensors of a worker's files: their ids there, their names, the catalogue.
 * Internal; the writer's thread only.
 *
 * The file's ids count from 0 as tensors are first met; the producer's are mapped to them.
 * A run that is continued knows its tensors already, by name.
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
    /* How its values are best compressed, and how many are stored so before that is looked
     * at again (compress.c). */
    sonde__record_packing packing;
    unsigned until_trial;
} sonde__record_tensor;

typedef struct sonde__record_tensors {
    sonde__names names; /* id in the file -> name, as within quotes in JSON */
    sonde__record_tensor *tensors;
    size_t capacity;
    uint32_t *map; /* by the producer's id: the file's, or SONDE_NO_TENSOR */
    size_t mapped, map_capacity;
    sonde_text lines; /* of the whole catalogue, should its file get lost */
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
/* A tensor met for the first time: gets an id, and a line that waits to be committed. A
 * line longer than the format allows is refused: 0, and the tensor has no id. Returns 0 or
 * ENOMEM, and then nothing has changed. */
SONDE_API int sonde__record_tensors_add(sonde__record_tensors *tensors,
                                        const sonde__record_tensor_message *message);
/* Of a run that is continued: the catalogue as it is in the file. A last line that is cut
 * off is taken out. */
SONDE_API SONDE_CHECKED sonde_err sonde__record_tensors_restore(
    sonde__record_tensors *tensors, const char *where, sonde_diag *diag);
/* The catalogue's file is gone: all of it waits again. */
SONDE_API void sonde__record_tensors_abandon(sonde__record_tensors *tensors);

#endif
