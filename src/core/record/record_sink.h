/*
 * record_sink.h - the end of taps that record: into a recorder, or, in a dry run,
 * nowhere.
 *
 * An observer shows a value once for each tap that asks for it, one after another. The
 * sink remembers by id what is recorded of the value shown last, so that its raw value,
 * its vital signs and its sketch are each recorded once.
 */
#ifndef SONDE_RECORD_RECORD_SINK_H
#define SONDE_RECORD_RECORD_SINK_H

#include <sonde/recorder.h>

/* The forms in which the last value shown of a tensor is recorded. */
typedef struct sonde__record_shown {
    uint64_t round; /* 0: none */
    int64_t step;
    int micro_batch, replica;
    unsigned how;
} sonde__record_shown;

typedef struct sonde__record_sink {
    sonde_sink sink;            /* first */
    sonde_recorder *recorder;   /* NULL: a dry run, which counts */
    sonde_sink *witness;        /* is given what is recorded as well; NULL: none */
    sonde__record_shown *shown; /* by id */
    size_t shown_count, shown_capacity;
    uint64_t round; /* of begin_call and end_step */
    uint64_t values, bytes, rows, sketches;
} sonde__record_sink;

void sonde__record_sink_init(sonde__record_sink *sink, sonde_recorder *recorder);
void sonde__record_sink_fini(sonde__record_sink *sink);
/* SONDE_HOW_ bits that are recorded of the value of a tensor at a place. */
unsigned sonde__record_sink_done(const sonde__record_sink *sink, uint32_t id,
                                 const sonde_coordinate *where);
/* As put, of a value that the sink knows by another id than the observation has. */
void sonde__record_sink_take(sonde__record_sink *sink, uint32_t id,
                             const sonde_observation *seen);
/* Records the parts that how says of a value that was shown earlier and was held since.
 */
void sonde__record_sink_put(sonde__record_sink *sink,
                            const sonde_observation *observation, unsigned how);

/* --- a recorder of a hook (put.c, recorder.c) -------------------------------------- */

/* Announces values of a tensor. At the first value, all announced tensors are written to
 * the catalogue in the order of their ids, which trials and rules keep; any other tensor
 * is listed at its own first value. Taps that lead to the sink announce their tensors.
 * SONDE_ERANGE, SONDE_ENOMEM. */
SONDE_API SONDE_CHECKED sonde_err sonde__recorder_expect(sonde_recorder *recorder,
                                                         uint32_t id, sonde_diag *diag);
/* The collections of a tensor, for its line of the catalogue. Call before its first put;
 * of an announced tensor, before any put. Copied. */
SONDE_API SONDE_CHECKED sonde_err sonde__recorder_collections(sonde_recorder *recorder,
                                                              uint32_t id,
                                                              const char *const *names,
                                                              size_t count,
                                                              sonde_diag *diag);

/* The first step of each mode, and of SONDE_MODE_GLOBAL the first global step; 0 for a
 * new run. */
SONDE_API void sonde__recorder_next(const sonde_recorder *recorder,
                                    int64_t next[SONDE_MODE_COUNT]);

#endif
