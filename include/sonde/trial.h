/*
 * trial.h - reading a run, while it is being written or later, on this machine or
 * another.
 *
 * Opening reads the indexes but no values; a refresh reads only new data. A value is one
 * extent of one file and is mapped, not copied. <sonde/tap.h> and docs/format.md define
 * steps, modes and completeness. sonde_trial_damage lists damaged parts, which the other
 * functions leave out.
 *
 * When a run is resumed from a global step (<sonde/recorder.h>), earlier records from that
 * step on are superseded: the trial shows the run without them. They stay in the files,
 * sonde_trial_verify checks them, and sonde_run_info counts them. An open trial drops them
 * at its next refresh; sonde_trial_next and sonde_trial_went_back report this to readers
 * beyond that step.
 *
 * One thread at a time for each trial. Several trials may read one run.
 */
#ifndef SONDE_TRIAL_H
#define SONDE_TRIAL_H

#include <sonde/alloc.h>
#include <sonde/options.h>
#include <sonde/catalogue.h>
#include <sonde/program.h>
#include <sonde/reduction.h>
#include <sonde/sketch.h>
#include <sonde/stats.h>
#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_trial sonde_trial;

typedef struct sonde_trial_options {
    size_t size;        /* sizeof(sonde_trial_options) */
    int64_t begin, end; /* global steps begin ... end - 1; end 0: no end */
} sonde_trial_options;

/*
 * Opens a run, or a directory written by smdebug. options may be NULL. A run whose
 * run.json is damaged or missing opens if it has a worker's folder; this is listed as
 * damage. SONDE_ENOTFOUND: no such folder. SONDE_EFORMAT: not a run. SONDE_EUNSUPPORTED:
 * a newer format. SONDE_EINVAL: end is not after begin. Memory: about 60 bytes for each
 * raw value and 30 for each row of vital signs.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_open(const char *path,
                                                   const sonde_trial_options *options,
                                                   sonde_trial **out, sonde_diag *diag);
/* Closes a trial. Accepts NULL. */
SONDE_API void sonde_trial_close(sonde_trial *trial);
/* Reads new data. *changed (may be NULL): whether there was any, or the status changed.
 * Without new data it costs about 10 us for each worker. SONDE_ENOMEM: the data read so
 * far stays, and the next call continues from there. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_refresh(sonde_trial *trial, bool *changed,
                                                      sonde_diag *diag);

/* --- the run ---------------------------------------------------------------------- */

typedef enum sonde_run_status {
    SONDE_RUN_RUNNING = 0,
    SONDE_RUN_ENDED = 1,
    SONDE_RUN_CRASHED = 2 /* its writer crashed; for smdebug, which leaves no sign of its
                             writer: no end was written, and no step for half an hour and
                             for 20 times the usual time between steps */
} sonde_run_status;

typedef struct sonde_run_info {
    const char *path, *id, *program, *model, *created; /* "" if not known */
    const char *end_reason, *end_text;                 /* "" until it has ended */
    sonde_run_status status;
    int world;                 /* number of workers that belong to the run */
    int workers;               /* number of workers found here */
    int64_t last_step;         /* last global step that all workers completed; -1: none */
    uint64_t records;          /* readable raw values */
    uint64_t bytes;            /* of them, uncompressed; smdebug: as stored */
    uint64_t rows;             /* readable rows of vital signs */
    uint64_t sketches;         /* readable sketches */
    uint64_t lost;             /* records that the writer counted as lost */
    bool resumed;              /* a writer resumed it: sonde_trial_resume */
    uint64_t superseded;       /* superseded values, rows and sketches */
    uint64_t superseded_steps; /* superseded step ends */
    int64_t first_time;        /* of the first step, ns since 1970, UTC; 0: not known */
    int64_t last_time;         /* of the last step */
    bool foreign;              /* another program's format: smdebug */
    double seconds;            /* from beginning to end; -1: not known (yet) */
} sonde_run_info;

/* Calls seen with the name of each entry of a folder, or of each folder below
 * s3://bucket/prefix, in alphabetical order; some of them may be runs. Names that start
 * with '.' are left out. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_list_folder(const char *path,
                                                          void (*seen)(void *user,
                                                                       const char *name),
                                                          void *user, sonde_diag *diag);

/* Describes the run; the texts are borrowed until the next refresh or close. */
SONDE_API void sonde_trial_describe(const sonde_trial *trial, sonde_run_info *info);
/* Return the rank of the i-th worker found here, ascending, and its name ("w0000",
 * "worker_0"); -1 and NULL after the last one. */
SONDE_API int sonde_trial_worker(const sonde_trial *trial, size_t i);
SONDE_API const char *sonde_trial_worker_name(const sonde_trial *trial, size_t i);

/* One resume of the run by one worker's writer. */
typedef struct sonde_trial_resumed {
    int worker;
    int64_t step; /* global step it resumed from: the first one it wrote */
    int64_t time; /* when it began: ns since 1970, UTC */
} sonde_trial_resumed;
/* Gets the i-th resume, worker by worker. False: there are fewer. */
SONDE_API bool sonde_trial_resume(const sonde_trial *trial, size_t i,
                                  sonde_trial_resumed *out);
/* Returns whether the run was resumed from an earlier step since the last call with *seen
 * (initially 0). *step: the first global step whose earlier data is superseded. */
SONDE_API bool sonde_trial_went_back(const sonde_trial *trial, size_t *seen,
                                     int64_t *step);
/* Describes the i-th part that could not be read, in one line, borrowed until the trial
 * closes. NULL: there are fewer. */
SONDE_API const char *sonde_trial_damage(const sonde_trial *trial, size_t i);

/* --- tensors ---------------------------------------------------------------------- */

/* The place of a value. step is counted in mode (SONDE_MODE_GLOBAL: a global step).
 * worker -1: the first worker that has a value there. */
typedef struct sonde_trial_at {
    sonde_mode mode;
    int64_t step;
    int worker;
    int micro_batch, replica;
} sonde_trial_at;

/* Returns the tensors of all workers, one for each name, in order of first appearance,
 * borrowed until the next refresh. The functions below use the ids of this catalogue. */
SONDE_API const sonde_catalogue *sonde_trial_catalogue(const sonde_trial *trial);
/* Returns whether a tensor belonged to a collection when it was recorded. */
SONDE_API bool sonde_trial_in_collection(const sonde_trial *trial, uint32_t id,
                                         const char *collection);
/* Returns the name of the i-th collection. NULL: there are fewer. */
SONDE_API const char *sonde_trial_collection(const sonde_trial *trial, size_t i);
/* Returns the saved forms of a tensor at a place, as SONDE_HOW_ bits.
 * Micro-batch or replica -1: any of them. step -1: any step of the mode. */
SONDE_API unsigned sonde_trial_has(sonde_trial *trial, uint32_t id,
                                   const sonde_trial_at *where);

/* --- steps ------------------------------------------------------------------------ */

typedef enum sonde_step_state {
    SONDE_STEP_UNAVAILABLE = 0, /* it has passed and nothing was saved at it */
    SONDE_STEP_AVAILABLE = 1,   /* it is complete */
    SONDE_STEP_NOT_YET = 2      /* it may still come, or be completed */
} sonde_step_state;

/* Returns the saved steps of a mode, ascending, as the mode counts them, borrowed until
 * the next refresh. incomplete: include steps that some workers have not ended. NULL: out
 * of memory. */
SONDE_API const int64_t *sonde_trial_steps(sonde_trial *trial, sonde_mode mode,
                                           bool incomplete, size_t *count);
/* The steps at which a tensor has any of how (SONDE_HOW_ bits; 0: any), ascending.
 * *steps is a new array; free it with sonde_release. SONDE_ERANGE: no such tensor. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_tensor_steps(sonde_trial *trial,
                                                           uint32_t id, sonde_mode mode,
                                                           unsigned how, int64_t **steps,
                                                           size_t *count,
                                                           sonde_diag *diag);
SONDE_API sonde_step_state sonde_trial_has_passed_step(sonde_trial *trial, int64_t step,
                                                       sonde_mode mode);
/* Refreshes until all steps are available. SONDE_ENOTFOUND: nothing was saved at one
 * of them. SONDE_EEND: the run ended before one of them. SONDE_ETIMEOUT: seconds have
 * passed (< 0: no limit). */
SONDE_API SONDE_CHECKED sonde_err
sonde_trial_wait_for_steps(sonde_trial *trial, const int64_t *steps, size_t count,
                           sonde_mode mode, double seconds, sonde_diag *diag);
/* Converts a global step to a step of its mode, and back. False: no such step. */
SONDE_API bool sonde_trial_mode_step(sonde_trial *trial, int64_t global_step,
                                     sonde_mode *mode, int64_t *mode_step);
SONDE_API bool sonde_trial_global_step(sonde_trial *trial, sonde_mode mode,
                                       int64_t mode_step, int64_t *global_step);

/* Gets the time at which a worker ended a step, in ns since 1970, UTC; worker -1: the last
 * worker to end it. False: not ended yet, or not known, as in runs of smdebug. */
SONDE_API bool sonde_trial_step_time(const sonde_trial *trial, sonde_mode mode,
                                     int64_t step, int worker, int64_t *time);

/* --- values ----------------------------------------------------------------------- */

/*
 * Gets the raw value at a place. Its data is read-only, may be unaligned, and is borrowed
 * until the trial closes; if it was compressed or comes from smdebug, only until the next
 * call for a value or record of this trial. SONDE_ENOTFOUND: no value there; the
 * diagnostic names the nearest ones. SONDE_EFORMAT: its bytes do not match their hash.
 * SONDE_EUNSUPPORTED: a dtype that Sonde does not have (strings of smdebug). Cost: a few
 * microseconds plus the hash, if cached.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_value(sonde_trial *trial, uint32_t id,
                                                    const sonde_trial_at *where,
                                                    sonde_view *view, sonde_diag *diag);
/* Gets the hash of the raw value at a place as it was recorded, without reading the value:
 * XXH3 (64 bits) of its row-major bytes. *form: its dtype and shape, without data.
 * Errors are those of sonde_trial_value. SONDE_EUNSUPPORTED: runs of smdebug have none. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_hash(sonde_trial *trial, uint32_t id,
                                                   const sonde_trial_at *where,
                                                   uint64_t *hash, sonde_view *form,
                                                   sonde_diag *diag);
/* Returns whether the value that sonde_trial_value returned last is borrowed until the
 * trial closes: its bytes are mapped, neither compressed nor smdebug's. */
SONDE_API bool sonde_trial_is_mapped(const sonde_trial *trial, const sonde_view *value);
/* Gets vital signs as saved, otherwise computed from the raw value with the same bits,
 * otherwise norms. Micro-batch or replica -1: of all of them, merged in order. Errors are
 * those of sonde_trial_value. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_vitals(sonde_trial *trial, uint32_t id,
                                                     const sonde_trial_at *where,
                                                     sonde_vitals *vitals,
                                                     sonde_diag *diag);
/* Gets a sketch, as sonde_trial_vitals does. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_sketch(sonde_trial *trial, uint32_t id,
                                                     const sonde_trial_at *where,
                                                     sonde_sketch *sketch,
                                                     sonde_diag *diag);

/*
 * Computes a reduction from saved data; out->how is its source. Statistics come from vital
 * signs, otherwise from the raw value with the same bits, otherwise from norms; quantiles
 * from the raw value exactly, otherwise from the sketch; products and hashes from the raw
 * value. Micro-batch or replica -1: of all elements of all of them, in order.
 * SONDE_ENOTFOUND: the data saved there is not sufficient.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_reduce(sonde_trial *trial, uint32_t id,
                                                     const sonde_trial_at *where,
                                                     const sonde_reduction *reduction,
                                                     sonde_reduced *out,
                                                     sonde_diag *diag);

/*
 * Gets the vital signs of a tensor over steps begin ... end - 1 of a mode (end 0: no end),
 * merged over the micro-batches and replicas of a worker (-1: the first that has any),
 * and found at each step as sonde_trial_vitals does. *steps and *vitals are new arrays of
 * *count elements; free each with sonde_release. Damaged steps are left out; up to five
 * of a call are listed as damage, and *diag describes the first although SONDE_OK is
 * returned.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_vitals_series(
    sonde_trial *trial, uint32_t id, sonde_mode mode, int worker, int64_t begin,
    int64_t end, int64_t **steps, sonde_vitals **vitals, size_t *count, sonde_diag *diag);

/*
 * Gets the program in force at a step of a mode, as the mode counts it (-1: the last):
 * that of the last step up to this one that recorded one. *out is new; free it with
 * sonde_program_destroy. SONDE_ENOTFOUND: none is recorded. SONDE_EFORMAT: its text is
 * damaged, or the run declares one of which it has no value.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_program(sonde_trial *trial, sonde_mode mode,
                                                      int64_t step, sonde_program **out,
                                                      sonde_diag *diag);

/* --- all of it, in order ---------------------------------------------------------- */

/*
 * A cursor reads all records in ascending global steps, within a step by worker, and for
 * each worker first vital signs, then norms, raw values and sketches, in the order of
 * writing. It reads ahead from the disk.
 *
 *     while ((err = sonde_trial_next(cursor, &record, &diag)) == SONDE_OK) { ... }
 *     (err is SONDE_EEND)
 *
 * To follow a live run, call sonde_trial_refresh after SONDE_EEND; next then returns the
 * new records. It returns only complete steps. If the run is
 * resumed from a step that was already returned, next returns SONDE_ERESUMED once and
 * continues with that step.
 */
typedef struct sonde_trial_cursor sonde_trial_cursor;

typedef struct sonde_trial_cursor_options {
    size_t size;         /* sizeof(sonde_trial_cursor_options) */
    const uint32_t *ids; /* tensors, copied; NULL: all */
    size_t id_count;
    unsigned how;       /* SONDE_HOW_RAW, _VITALS, _NORMS, _SKETCH; 0: raw values */
    sonde_mode mode;    /* only steps of this mode; SONDE_MODE_GLOBAL: of all modes */
    int64_t begin, end; /* global steps begin ... end - 1; end 0: no end */
    bool incomplete;    /* include incomplete steps at the end */
    size_t ahead;       /* bytes to read ahead; 0: 16 MiB; SIZE_MAX: none */
} sonde_trial_cursor_options;

/* A record is borrowed until the next call of sonde_trial_next; the data of a raw value as
 * sonde_trial_value states. */
typedef struct sonde_trial_record {
    uint32_t id;
    int worker;
    sonde_coordinate at; /* iteration is 0 */
    unsigned how;        /* one SONDE_HOW_ bit: which of the next three is set */
    sonde_view view;
    const sonde_vitals *vitals;
    const sonde_sketch *sketch;
} sonde_trial_record;

/* Creates a cursor. options NULL: the raw values of all modes. The trial must outlive the
 * cursor; it can have any number of cursors. SONDE_ERANGE: an id is not in the
 * catalogue. */
SONDE_API SONDE_CHECKED sonde_err
sonde_trial_cursor_create(sonde_trial *trial, const sonde_trial_cursor_options *options,
                          sonde_trial_cursor **out, sonde_diag *diag);
SONDE_API void sonde_trial_cursor_destroy(sonde_trial_cursor *cursor);
/*
 * Gets the next record. SONDE_EEND: no more (complete) records. SONDE_ERESUMED: the run was
 * resumed; records from the step in the diagnostic on are superseded and come again.
 * SONDE_ENOMEM: the next call returns the same record. Any other error concerns one
 * record, which the diagnostic names; the next call continues after it.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_next(sonde_trial_cursor *cursor,
                                                   sonde_trial_record *record,
                                                   sonde_diag *diag);

/* --- damage ----------------------------------------------------------------------- */

typedef struct sonde_verify_report {
    uint64_t records, bytes; /* raw values with the right hash */
    uint64_t rows, sketches; /* with the right check */
    uint64_t damaged;        /* values, rows, records and lines that are damaged */
    uint64_t torn;           /* lines and extents cut off at the end of a file */
    uint64_t lost;           /* as the writer counted them */
    uint64_t superseded;     /* of those checked, by a resumed writer */
    bool ended, crashed, resumed;
    int64_t last_time; /* of the last step: ns since 1970, UTC; 0: not known */
    bool unchecked; /* the format has no checksums of values: only places and lengths are
                       checked, and that each value can be decoded */
} sonde_verify_report;

/*
 * Checks every hash of a run, which may be in use, and the header of every closed
 * segment against its index. Directories of smdebug have no checksums of values: there,
 * the checksum of each record's length, and that each value can be decoded. report_line
 * (may be NULL) is called with one line for each defect. SONDE_OK also for a damaged
 * run; other errors as sonde_trial_open.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_verify(
    const char *path, sonde_verify_report *report,
    void (*report_line)(void *user, const char *text), void *user, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
