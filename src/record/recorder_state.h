/*
 * recorder_state.h - a recorder from inside. Internal.
 *
 *     producer's thread: recorder.c (values), tell.c (tensors), sink.c (for taps)
 *     writer's thread:   everything behind writer
 */
#ifndef SONDE_RECORD_RECORDER_STATE_H
#define SONDE_RECORD_RECORDER_STATE_H

#include "record/record_run.h"
#include "record/record_sink.h"

/* What the writer knows of a tensor. */
enum {
    SONDE__UNKNOWN = 0,
    SONDE__EXPECTED = 1, /* nothing, but values of it will come */
    SONDE__TOLD = 2
};

/* The collections of a tensor: names, each with its NUL. */
typedef struct sonde__record_collected {
    char *text;
    uint32_t count, length;
} sonde__record_collected;

struct sonde_recorder {
    sonde__record_sink sink;
    sonde_recorder_options options; /* strings are ours */
    const sonde_catalogue *catalogue;

    /* The producer's alone: */
    uint8_t *told; /* by id, up to told_count: SONDE__UNKNOWN ... */
    size_t told_count;
    size_t expected;                    /* of them */
    sonde__record_collected *collected; /* by id */
    size_t collected_count, collected_capacity;
    bool complained;
    bool anything;          /* was put since the last end of a step */
    bool has_quiet;         /* nothing was put at the last step that ended, which is */
    sonde_coordinate quiet; /* not told of (yet) */

    /* For whoever asks: */
    _Atomic uint64_t waits;
    _Atomic double waited;

    sonde__record_ring ring;
    sonde__record_writer writer;
};

/* Whether something that finds the ring full waits. */
static inline bool sonde__recorder_waits(const sonde_recorder *recorder, bool raw)
{
    return recorder->options.when_full == SONDE_WHEN_FULL_WAIT ||
           (recorder->options.when_full == SONDE_WHEN_FULL_DEFAULT && raw);
}
/* Room in the ring, waited for if waits; NULL if there is none. */
SONDE_API void *sonde__recorder_reserve(sonde_recorder *recorder, uint32_t kind,
                                        size_t size, bool waits);
/* Something was not recorded. */
SONDE_API void sonde__recorder_lose_full(sonde_recorder *recorder);
SONDE_API void sonde__recorder_refuse(sonde_recorder *recorder, const char *what,
                                      unsigned long id);
/* Tells of the last step, if nothing was put at it. */
SONDE_API void sonde__recorder_end_quiet(sonde_recorder *recorder);
/* Sees to it that the writer knows the tensor, whose id is below the catalogue's count, after
 * those that are expected. False: not now (counted as lost for a full ring), or never (refused). */
SONDE_API bool sonde__recorder_tell(sonde_recorder *recorder, uint32_t id, bool waits);
/* SONDE_OK if a name is not too long. */
SONDE_API sonde_err sonde__recorder_check_name(const char *name, sonde_diag *diag);
/* A recorder on a store of one's own, which is taken, also by a failure. The options are
 * not looked at. */
SONDE_API SONDE_CHECKED sonde_err sonde__recorder_create_on(
    const sonde_recorder_options *options, const sonde_catalogue *catalogue,
    sonde__record_backend *backend, sonde_recorder **out, sonde_diag *diag);

#endif
