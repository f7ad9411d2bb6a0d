/*
 * message.h - what travels through a recorder's ring. Internal.
 *
 * Every message is a block of the ring; its kind says which struct it is. Ids are the
 * producer's; the writer turns them into the file's.
 */
#ifndef SONDE_RECORD_MESSAGE_H
#define SONDE_RECORD_MESSAGE_H

#include "record/format.h"
#include "record/ring.h"

typedef enum sonde__message_kind {
    SONDE__MESSAGE_VALUE = 1,  /* sonde__value_message */
    SONDE__MESSAGE_VITALS = 2, /* sonde__vitals_message */
    SONDE__MESSAGE_SKETCH = 3, /* sonde__sketch_message */
    SONDE__MESSAGE_TENSOR = 4, /* sonde__tensor_message */
    SONDE__MESSAGE_END = 5     /* sonde__end_message */
} sonde__message_kind;

typedef struct sonde__value_message {
    sonde__block block;
    sonde__index_line line; /* all but offset and hash; tensor is the producer's id */
    void *far;              /* NULL, or the bytes, freed by the reader: they are many */
    _Alignas(SONDE__RING_LINE) unsigned char bytes[];
} sonde__value_message;

typedef struct sonde__vitals_message {
    sonde__block block;
    sonde__stats_row row; /* check is not set yet */
} sonde__vitals_message;

typedef struct sonde__sketch_message {
    sonde__block block;
    sonde__sketch_record record; /* its bins behind it; check is not set yet */
} sonde__sketch_message;

typedef struct sonde__end_message {
    sonde__block block;
    sonde__step_row row; /* check is not set yet */
} sonde__end_message;

/* A tensor's line of the catalogue, before the first value of it. */
typedef struct sonde__tensor_message {
    sonde__block block;
    uint32_t id;
    uint32_t same_as; /* the producer's id of the tensor that an alias is one of, or id */
    sonde_role role;
    sonde_pass pass;
    sonde_dtype dtype;
    int rank;
    int64_t shape[SONDE_MAX_DIMS];
    uint32_t collections;
    uint32_t length; /* of the text: name, module, op, note, then the collections, each
                        with its NUL */
    char text[];
} sonde__tensor_message;

#endif
