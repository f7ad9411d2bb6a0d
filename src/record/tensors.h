/*
 * tensors.h - the tensors of a worker's files: their ids there, their names, the catalogue.
 * Internal; the writer's thread only.
 *
 * The file's ids count from 0 as tensors are first met; the producer's are mapped to them.
 * A run that is continued knows its tensors already, by name.
 */
#ifndef SONDE_RECORD_TENSORS_H
#define SONDE_RECORD_TENSORS_H

#include "base/base.h"
#include "record/message.h"
#include "record/stream.h"

typedef struct sonde__tensor {
    /* How its values are best compressed, and how many are stored so before that is looked
     * at again (compress.c). */
    sonde__packing packing;
    unsigned until_trial;
} sonde__tensor;

typedef struct sonde__tensors {
    sonde__names names; /* id in the file -> name, as within quotes in JSON */
    sonde__tensor *tensors;
    size_t capacity;
    uint32_t *map; /* by the producer's id: the file's, or SONDE_NO_TENSOR */
    size_t mapped, map_capacity;
    sonde__text lines; /* of the whole catalogue, should its file get lost */
    sonde__stream catalogue;
} sonde__tensors;

SONDE_API void sonde__tensors_init(sonde__tensors *tensors, sonde__backend *backend,
                                   const char *folder);
SONDE_API void sonde__tensors_fini(sonde__tensors *tensors);
/* The file's id of a producer's; SONDE_NO_TENSOR if it has none. */
static inline uint32_t sonde__tensors_find(const sonde__tensors *tensors, uint32_t id)
{
    return id < tensors->mapped ? tensors->map[id] : SONDE_NO_TENSOR;
}
/* A tensor met for the first time: gets an id, and a line that waits to be committed. A
 * line longer than the format allows is refused: 0, and the tensor has no id. Returns 0 or
 * ENOMEM, and then nothing has changed. */
SONDE_API int sonde__tensors_add(sonde__tensors *tensors,
                                 const sonde__tensor_message *message);
/* Of a run that is continued: the catalogue as it is in the file. A last line that is cut
 * off is taken out. */
SONDE_API SONDE_CHECKED sonde_err sonde__tensors_restore(sonde__tensors *tensors,
                                                         const char *where,
                                                         sonde_diag *diag);
/* The catalogue's file is gone: all of it waits again. */
SONDE_API void sonde__tensors_abandon(sonde__tensors *tensors);

#endif
