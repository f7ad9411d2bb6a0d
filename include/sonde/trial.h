/*
 * trial.h - reads a run: while it is written or later, here or on another machine.
 *
 * Opening reads the indexes and no values; refresh reads only what has come since. A value is
 * one extent of one file, mapped. Steps, modes and completeness mean what <sonde/tap.h> and
 * docs/format.md say. What is damaged is told by sonde_trial_damage and left out;
 * everything else can be read.
 *
 * A writer that goes on with a run says at which global step (<sonde/recorder.h>). From there
 * on what was recorded before counts no more: a trial is what the run would be if the
 * abandoned steps had never been. They stay in the files, are checked by verify, and are
 * counted in sonde_run_info. A trial that is open sees it at the next refresh: those steps
 * go, and who had passed them is told (sonde_trial_next, sonde_trial_went_back).
 *
 * One thread at a time for a trial; several trials may read one run.
 */
#ifndef SONDE_TRIAL_H
#define SONDE_TRIAL_H

#include <sonde/catalogue.h>
#include <sonde/reduction.h>
#include <sonde/sketch.h>
#include <sonde/stats.h>
#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_trial sonde_trial;

typedef struct sonde_trial_options {
    int64_t begin, end; /* global steps begin ... end - 1; end 0: no end */
} sonde_trial_options;

/* options may be NULL. Not a run: SONDE_EFORMAT that says what is missing; of a newer
 * format: SONDE_EUNSUPPORTED; no such folder: SONDE_ENOTFOUND; end not behind begin:
 * SONDE_EINVAL. A directory of smdebug's opens as well. A run whose run.json is damaged or
 * gone opens if it has a worker's folder, and tells of it as damage. Memory: some 60 bytes a
 * raw value, 10 a row of vital signs. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_open(const char *path,
                                                   const sonde_trial_options *options,
                                                   sonde_trial **out, sonde_diag *diag);
SONDE_API void sonde_trial_close(sonde_trial *trial);
/* Reads what is new. *changed (may be NULL): whether there was anything, a change of status
 * included. Cost where nothing is: some 10 us a worker. Out of memory: what was read stays,
 * and the next call goes on there. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_refresh(sonde_trial *trial, bool *changed,
                                                      sonde_diag *diag);

/* --- the run ---------------------------------------------------------------------- */

typedef enum sonde_run_status {
    SONDE_RUN_RUNNING = 0,
    SONDE_RUN_ENDED = 1,
    SONDE_RUN_CRASHED = 2 /* its writer is gone and has not said that it ended */
} sonde_run_status;

typedef struct sonde_run_info {
    const char *path, *id, *program, *model, *created; /* "" where not known */
    const char *end_reason, *end_text;                 /* "" until it has ended */
    sonde_run_status status;
    int world;         /* workers that belong to it */
    int workers;       /* of them here */
    int64_t last_step; /* global, the last that is complete for all workers; -1: none */
    uint64_t records, bytes; /* raw values that can be read, and their bytes uncompressed;
                                of smdebug's as they lie in its files */
    uint64_t rows, sketches; /* likewise */
    uint64_t lost;           /* records that the writer says it lost */
    bool resumed;            /* a writer went on with it: sonde_trial_resume */
    uint64_t
        superseded; /* values, vital signs and sketches that do not count therefore */
    uint64_t superseded_steps;     /* ends of steps, likewise */
    int64_t first_time, last_time; /* of the first and last step; 0: not known */
    bool foreign;                  /* smdebug's */
    double seconds; /* from its beginning to its end; -1: not known (yet) */
} sonde_run_info;

/* Borrowed until the next refresh or close. */
SONDE_API void sonde_trial_describe(const sonde_trial *trial, sonde_run_info *info);
/* The rank of the i-th worker that is here, ascending, and what it is called ("w0000",
 * "worker_0"); -1 and NULL when i is behind the last. */
SONDE_API int sonde_trial_worker(const sonde_trial *trial, size_t i);
SONDE_API const char *sonde_trial_worker_name(const sonde_trial *trial, size_t i);
/* The i-th time that a writer went on with the run, worker by worker; false when i is behind
 * the last. */
typedef struct sonde_trial_resumed {
    int worker;
    int64_t step; /* global: the first that it writes */
    int64_t time; /* when it began: ns since 1970, UTC */
} sonde_trial_resumed;
SONDE_API bool sonde_trial_resume(const sonde_trial *trial, size_t i,
                                  sonde_trial_resumed *out);
/* For followers: whether the run went back since the last call with *seen (0 at first), and
 * to which global step: what was seen from there on is superseded. */
SONDE_API bool sonde_trial_went_back(const sonde_trial *trial, size_t *seen,
                                     int64_t *step);
/* What could not be read, one after another: NULL when i is behind the last. */
SONDE_API const char *sonde_trial_damage(const sonde_trial *trial, size_t i);

/* --- tensors ---------------------------------------------------------------------- */

/* Which value: step is of mode (SONDE_MODE_GLOBAL: a global step). worker -1: the first that
 * has one. */
typedef struct sonde_trial_at {
    sonde_mode mode;
    int64_t step;
    int worker;
    int micro_batch, replica;
} sonde_trial_at;

/* All tensors of all workers by name, in order of first appearance; the ids of this
 * catalogue are the ids below. Borrowed until the next refresh. */
SONDE_API const sonde_catalogue *sonde_trial_catalogue(const sonde_trial *trial);
/* Whether the tensor belongs to the collection; collections as recorded. */
SONDE_API bool sonde_trial_in_collection(const sonde_trial *trial, uint32_t id,
                                         const char *collection);
/* The names of the collections, one after another: NULL when i is behind the last. */
SONDE_API const char *sonde_trial_collection(const sonde_trial *trial, size_t i);
/* What there is of a tensor at a step: SONDE_HOW_ bits. Of micro-batch or replica -1: of
 * any. */
SONDE_API unsigned sonde_trial_has(sonde_trial *trial, uint32_t id,
                                   const sonde_trial_at *at);

/* --- steps ------------------------------------------------------------------------ */

typedef enum sonde_step_state {
    SONDE_STEP_UNAVAILABLE = 0, /* passed, and nothing was saved at it */
    SONDE_STEP_AVAILABLE = 1,
    SONDE_STEP_NOT_YET = 2
} sonde_step_state;

/* Steps of a mode with anything saved, ascending: steps within the mode; of
 * SONDE_MODE_GLOBAL global ones. Incomplete ones (not all workers have ended them) only if
 * asked for. Borrowed until the next refresh. */
SONDE_API const int64_t *sonde_trial_steps(sonde_trial *trial, sonde_mode mode,
                                           bool incomplete, size_t *count);
/* Steps at which a tensor has a raw value, vital signs or a sketch (SONDE_HOW_ bits; 0:
 * any); a new array, freed with sonde_trial_free. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_tensor_steps(sonde_trial *trial,
                                                           uint32_t id, sonde_mode mode,
                                                           unsigned how, int64_t **steps,
                                                           size_t *count,
                                                           sonde_diag *diag);
SONDE_API void sonde_trial_free(void *array);
SONDE_API sonde_step_state sonde_trial_has_passed_step(sonde_trial *trial, int64_t step,
                                                       sonde_mode mode);
/* Refreshes until all are available. SONDE_ENOTFOUND: one of them will never be;
 * SONDE_EEND: the run has ended before it; SONDE_ETIMEOUT after seconds (< 0: never). */
SONDE_API SONDE_CHECKED sonde_err
sonde_trial_wait_for_steps(sonde_trial *trial, const int64_t *steps, size_t count,
                           sonde_mode mode, double seconds, sonde_diag *diag);
/* Global step to step of its mode and back; false if there is none. */
SONDE_API bool sonde_trial_mode_step(sonde_trial *trial, int64_t global_step,
                                     sonde_mode *mode, int64_t *mode_step);
SONDE_API bool sonde_trial_global_step(sonde_trial *trial, sonde_mode mode,
                                       int64_t mode_step, int64_t *global_step);

/* When a worker ended a step: ns since 1970, UTC; worker -1: when the last of them did. False:
 * not yet, or nobody knows (of smdebug's). */
SONDE_API bool sonde_trial_step_time(const sonde_trial *trial, sonde_mode mode,
                                     int64_t step, int worker, int64_t *time);

/* --- values ----------------------------------------------------------------------- */

/* A raw value. Borrowed: until the next call for a value or a record of this trial where it
 * was compressed or is smdebug's, else until close; its data is read-only and may be
 * unaligned. None at this step: SONDE_ENOTFOUND that says what there is instead; bytes that
 * do not match their hash: SONDE_EFORMAT; of a dtype that Sonde has not (smdebug's strings):
 * SONDE_EUNSUPPORTED. Cost warm: some microseconds and the hash. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_value(sonde_trial *trial, uint32_t id,
                                                    const sonde_trial_at *at,
                                                    sonde_view *view, sonde_diag *diag);
/* Vital signs: as saved, else computed of the raw value, the same bits. Of micro-batch or
 * replica -1: of all of them, merged in order. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_vitals(sonde_trial *trial, uint32_t id,
                                                     const sonde_trial_at *at,
                                                     sonde_vitals *vitals,
                                                     sonde_diag *diag);
/* Likewise. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_sketch(sonde_trial *trial, uint32_t id,
                                                     const sonde_trial_at *at,
                                                     sonde_sketch *sketch,
                                                     sonde_diag *diag);

/* A reduction, of what was saved that answers it: statistics of vital signs, as saved, else of
 * the raw value, the same bits; quantiles of the raw value exactly, else of the sketch;
 * products and hashes of the raw value. out->how tells which. Of micro-batch or replica -1: of
 * all elements of all of them, in order. SONDE_ENOTFOUND: what was saved at this step, if
 * anything, does not answer it. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_reduce(sonde_trial *trial, uint32_t id,
                                                     const sonde_trial_at *at,
                                                     const sonde_reduction *reduction,
                                                     sonde_reduced *out,
                                                     sonde_diag *diag);

/* The vital signs of a tensor over steps begin ... end - 1 of a mode (end 0: all), merged
 * over micro-batches and replicas of a worker (-1: the first). Of raw values where nothing
 * else was saved. New arrays, freed with sonde_trial_free. A step that is damaged is left out
 * and noted (sonde_trial_damage); then *diag tells of the first of them, though SONDE_OK is
 * returned. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_vitals_series(
    sonde_trial *trial, uint32_t id, sonde_mode mode, int worker, int64_t begin,
    int64_t end, int64_t **steps, sonde_vitals **vitals, size_t *count, sonde_diag *diag);

/* --- all of it, in order ---------------------------------------------------------- */

/*
 * Walks over what was recorded, step by step in ascending global order; within a step by
 * worker, and of a worker vital signs, raw values and sketches as they were written. What
 * comes next is fetched from the disk ahead.
 *
 *     while ((err = sonde_trial_next(cursor, &record, &diag)) == SONDE_OK) { ... }
 *     (err is SONDE_EEND)
 *
 * A run that is live goes on: after SONDE_EEND and sonde_trial_refresh, next returns what
 * has come. Only steps that are complete are walked, so none is met halfway. If a writer went
 * on with the run from a step that was passed, next says so once (SONDE_ERESUMED), and goes
 * on with that step.
 */
typedef struct sonde_trial_cursor sonde_trial_cursor;

typedef struct sonde_trial_cursor_options {
    const uint32_t *ids; /* which tensors, copied; NULL: all */
    size_t id_count;
    unsigned how;       /* SONDE_HOW_RAW, _VITALS, _SKETCH; 0: raw values */
    sonde_mode mode;    /* steps of this mode alone; SONDE_MODE_GLOBAL: of all */
    int64_t begin, end; /* global steps begin ... end - 1; end 0: no end */
    bool incomplete;    /* also the steps at the end that are not complete */
    size_t ahead;       /* bytes to fetch ahead; 0: 16 MiB; SIZE_MAX: none */
} sonde_trial_cursor_options;

/* Borrowed until the next call of next; a raw value's data as sonde_trial_value has it. */
typedef struct sonde_trial_record {
    uint32_t id;
    int worker;
    sonde_coordinate at; /* iteration is 0 */
    unsigned how;        /* one SONDE_HOW_ bit: which of the next three it is */
    sonde_view view;
    const sonde_vitals *vitals;
    const sonde_sketch *sketch;
} sonde_trial_record;

/* options may be NULL. An id that is not in the catalogue: SONDE_ERANGE. The trial must
 * outlive the cursor; a trial has as many cursors as you like. */
SONDE_API SONDE_CHECKED sonde_err
sonde_trial_cursor_create(sonde_trial *trial, const sonde_trial_cursor_options *options,
                          sonde_trial_cursor **out, sonde_diag *diag);
SONDE_API void sonde_trial_cursor_destroy(sonde_trial_cursor *cursor);
/* SONDE_EEND: no more, or no more complete. SONDE_ERESUMED: the run went back; what was
 * returned from the step on that diag names is superseded, and comes again. A record that cannot be read is an error, which
 * names it; the next call goes on behind it. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_next(sonde_trial_cursor *cursor,
                                                   sonde_trial_record *record,
                                                   sonde_diag *diag);

/* --- damage ----------------------------------------------------------------------- */

typedef struct sonde_verify_report {
    uint64_t records, bytes; /* raw values whose hash is right */
    uint64_t rows, sketches; /* whose check is right */
    uint64_t damaged;        /* values, rows, records whose hash is wrong */
    uint64_t torn;           /* lines and extents cut off at the end of a file */
    uint64_t lost;           /* as the writer counted them */
    uint64_t superseded;     /* of those checked: by a writer that went on with the run */
    bool ended, crashed, resumed;
} sonde_verify_report;

/* Checks every hash of a run, whoever writes it, and the header of every closed segment
 * against its index. told (may be NULL) is called with one line for each thing that is not
 * as it should be. SONDE_OK also if there is damage. Of smdebug's directories: the checksum
 * of every record's length, and that every value can be decoded. */
SONDE_API SONDE_CHECKED sonde_err sonde_run_verify(
    const char *path, sonde_verify_report *report,
    void (*told)(void *user, const char *text), void *user, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
