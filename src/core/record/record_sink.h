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

typedef struct sonde_recorder sonde_recorder;

typedef struct sonde_recorder_stats {
    uint64_t records, bytes; /* raw values written; their bytes before compression */
    uint64_t rows, sketches;
    uint64_t lost_ring_full, lost_disk_full, lost_io_error;
    uint64_t waits;        /* puts that found the ring full and waited */
    double waited_seconds; /* in total */
    int64_t last_step;     /* the last global step complete in the files; -1: none */
} sonde_recorder_stats;

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

/* --- a recorder (recorder.c, put.c) ----------------------------------------------------- */

/* Creates the folders, writes run.json and starts the writer. The first of several
 * workers writes run.json; the others, of the same world, join. options are copied;
 * catalogue is borrowed until close and may grow. SONDE_EEXIST: the path holds a run
 * already; SONDE_EINVAL: the run has another id than resume; SONDE_EBUSY: another
 * process writes it; SONDE_EIO: the disk fails or hangs, and what an earlier writer left
 * is as it was. A forked child records nothing with it; the child may close it. */
SONDE_API SONDE_CHECKED sonde_err sonde__recorder_create(
    const sonde_recorder_options *options, const sonde_catalogue *catalogue,
    sonde_recorder **out, sonde_diag *diag);
/* Drains the ring, closes all files, writes end.json and frees the recorder in any case.
 * What fails is retried for wait_seconds. SONDE_EIO if anything was lost; diag says how
 * much and why. SONDE_EINVAL for an unknown reason: the run is closed as failed. text may
 * be NULL. */
SONDE_API sonde_err sonde__recorder_close(sonde_recorder *recorder, sonde_run_end reason,
                                          const char *text, sonde_diag *diag);
/* The sink for taps; owned by the recorder. */
SONDE_API sonde_sink *sonde__recorder_sink(sonde_recorder *recorder);
/* Records a value of tensor id; any strides. lost_io_error counts what is not valid. */
SONDE_API void sonde__recorder_put(sonde_recorder *recorder, uint32_t id,
                                   const sonde_coordinate *at, const sonde_view *view);
SONDE_API void sonde__recorder_put_vitals(sonde_recorder *recorder, uint32_t id,
                                          const sonde_coordinate *at,
                                          const sonde_vitals *vitals);
SONDE_API void sonde__recorder_put_sketch(sonde_recorder *recorder, uint32_t id,
                                          const sonde_coordinate *at,
                                          const sonde_sketch *sketch);
/* Completes a step: readers see it from now on, with the present time. Costs one reading
 * of the clock and 32 bytes. A step without any put costs nothing: it is complete once a
 * later one is. (With several workers every step is written, because a step is complete
 * when all workers have completed it.) */
SONDE_API void sonde__recorder_end_step(sonde_recorder *recorder,
                                        const sonde_coordinate *at);
/* Waits until every put is in the files (not yet synced) or counted as lost; false when
 * the time is over. */
SONDE_API bool sonde__recorder_drain(sonde_recorder *recorder, double seconds);
SONDE_API void sonde__recorder_get_stats(const sonde_recorder *recorder,
                                         sonde_recorder_stats *stats);

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
