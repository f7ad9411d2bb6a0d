/*
 * message.h - the messages in a recorder's ring. Internal.
 *
 * Every message is a block of the ring; the block's kind gives its struct. Ids are the
 * producer's; the writer maps them to the file's.
 */
#ifndef SONDE_RECORD_MESSAGE_H
#define SONDE_RECORD_MESSAGE_H

#include "record/format.h"
#include "record/ring.h"

typedef enum sonde__record_message_kind {
    SONDE__MESSAGE_VALUE = 1,  /* sonde__record_value_message */
    SONDE__MESSAGE_VITALS = 2, /* sonde__record_vitals_message */
    SONDE__MESSAGE_SKETCH = 3, /* sonde__record_sketch_message */
    SONDE__MESSAGE_TENSOR = 4, /* sonde__record_tensor_message */
    SONDE__MESSAGE_END = 5     /* sonde__record_end_message */
} sonde__record_message_kind;

typedef struct sonde__record_value_message {
    sonde__record_block block;
    sonde__record_index_line
        line;  /* all but offset and hash; tensor is the producer's id */
    void *far; /* NULL, or the bytes of a large value, freed by the reader */
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

#endif
