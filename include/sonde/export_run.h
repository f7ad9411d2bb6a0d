/*
 * export_run.h - writing a run in the formats of other tools.
 *
 *     tensorboard   a folder for `tensorboard --logdir`: scalars and histograms
 *     npz           raw values, for numpy.load
 *     safetensors   raw values in one file
 *     csv, jsonl    statistics, a row for each step of each tensor; or raw values
 *
 *     sonde_export_options options = sonde_export_options_default();
 *     err = sonde_trial_export(trial, SONDE_EXPORT_NPZ, "run.npz", &options, NULL,
 *                              &diag);
 *
 * The output appears whole or not at all, and never replaces anything. Damaged values are
 * left out, counted and reported; all others are exported.
 *
 * Names in npz and safetensors are those in the run's segments (docs/format.md):
 * `0000000100/train/conv1.weight`, or `...@1.0` for another micro-batch or replica. In a
 * run of several workers the worker's folder comes first: `w0001/0000000100/...`.
 *
 * Raw values in csv have one line for each element: step, mode, mode_step, worker, time,
 * tensor, micro_batch, replica, index (row-major) and value, with the fewest digits that
 * give the element back; a complex number is 1.5-2j. In jsonl they are one object for
 * each value, with dtype, shape and values (row-major); a complex number is [re, im].
 * numpy has no float8: npz contains such values as their codes, in uint8.
 *
 * Statistics are merged over the micro-batches and replicas of a step, for each worker
 * separately.
 *
 * Threads: those of the trial (<sonde/trial.h>).
 */
#ifndef SONDE_EXPORT_RUN_H
#define SONDE_EXPORT_RUN_H

#include <sonde/options.h>
#include <sonde/print.h>
#include <sonde/trial.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_export_kind {
    SONDE_EXPORT_TENSORBOARD = 0,
    SONDE_EXPORT_NPZ = 1,
    SONDE_EXPORT_SAFETENSORS = 2,
    SONDE_EXPORT_CSV = 3,
    SONDE_EXPORT_JSONL = 4
} sonde_export_kind;
/* Their names, in words. */
#define SONDE_EXPORT_NAMES "tensorboard, npz, safetensors, csv or jsonl"
/* Parses one of the names, in any case.
 * SONDE_EINVAL: another text; the diagnostic lists them. */
SONDE_API SONDE_CHECKED sonde_err sonde_export_kind_parse(const char *text,
                                                          sonde_export_kind *kind,
                                                          sonde_diag *diag);

typedef struct sonde_export_options {
    size_t size;         /* sizeof(sonde_export_options) */
    const uint32_t *ids; /* of the trial's catalogue; borrowed; NULL: all */
    size_t id_count;
    sonde_mode mode;    /* only steps of this mode; SONDE_MODE_GLOBAL: of all modes */
    int64_t begin, end; /* steps begin ... end - 1, counted in mode; end 0: no end */
    int worker;         /* a rank; -1: all */
    const sonde_reduction
        *stats; /* for scalars and rows; borrowed; NULL: the usual ones */
    size_t stat_count;
    bool values;      /* csv and jsonl: raw values instead of statistics */
    int64_t elements; /* with values: at most the first so many of each; 0: all */
    /* Called now and then, unless NULL; false stops with SONDE_EINTERRUPTED. done of
     * total values or tensors have been examined; 0 of 0: not known. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    /* Called with one line for each value left out, unless NULL. */
    void (*report_line)(void *user, const char *text);
    void *user;
} sonde_export_options;
/* All values of a run: mode global, no end, worker -1, and otherwise 0 and NULL. */
static inline sonde_export_options sonde_export_options_default(void)
{
    sonde_export_options options = {sizeof(sonde_export_options),
                                    NULL,
                                    0,
                                    SONDE_MODE_GLOBAL,
                                    0,
                                    0,
                                    -1,
                                    NULL,
                                    0,
                                    false,
                                    0,
                                    NULL,
                                    NULL,
                                    NULL};

    return options;
}

typedef struct sonde_export_report {
    uint64_t tensors;    /* tensors with at least one value */
    uint64_t values;     /* raw values */
    uint64_t rows;       /* csv and jsonl */
    uint64_t scalars;    /* tensorboard */
    uint64_t histograms; /* tensorboard */
    uint64_t left_out;   /* values that could not be read */
} sonde_export_report;

/*
 * Writes what has been read of a trial to path. report may be NULL. The usual statistics
 * are mean, std, min, max, l2 and nonfinite for tensorboard, and all of them for csv and
 * jsonl.
 *
 * In TensorBoard each mode (of each worker, if there are several) is a run, with the
 * steps of the mode and their wall times. A tensor of one element is a scalar under its
 * own name; statistics are `<tensor>/<statistic>`; each step with a sketch or a raw value
 * has a histogram.
 *
 * SONDE_EEXIST: something is at path. SONDE_ENOTFOUND: nothing of this was recorded, or
 * the folder of path does not exist. SONDE_ERANGE: an id is not in the catalogue.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_export(
    sonde_trial *trial, sonde_export_kind kind, const char *path,
    const sonde_export_options *options, sonde_export_report *report, sonde_diag *diag);

/* --- rows ------------------------------------------------------------------------- */

/* The reductions of a tensor at a step. Borrowed during the call. */
typedef struct sonde_export_row {
    uint32_t id; /* of the trial's catalogue */
    const char *tensor;
    int worker;
    int64_t step; /* global */
    sonde_mode mode;
    int64_t mode_step;
    int64_t time; /* when the worker ended the step: ns since 1970, UTC; 0: not known */
    const sonde_vitals *vitals; /* NULL if only a sketch was saved */
    const sonde_reduced
        *values; /* in the order of options.stats; how 0: nothing saved answers it */
} sonde_export_row;
/* Any error ends the walk and becomes its result; diag is that of the walk. */
typedef sonde_err sonde_export_row_fn(void *user, const sonde_export_row *row,
                                      sonde_diag *diag);

/*
 * Calls row for each row: by tensor in the order of ids, by worker, by ascending step. A
 * step has a row if vital signs or a raw value were saved, or a sketch if a quantile is
 * asked for. The usual statistics are all of them. first: with worker -1, use only the
 * first worker that has the tensor. Finding nothing is no error.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_rows(sonde_trial *trial,
                                                   const sonde_export_options *options,
                                                   bool first, sonde_export_row_fn *row,
                                                   void *user, sonde_diag *diag);

/*
 * Appends a row as a line of csv or jsonl; row NULL appends the header line of csv.
 * Columns are step, mode, mode_step, worker, time (seconds since 1970, UTC), tensor, and
 * the statistics. Numbers are as short as they can be read back exactly; NaN and
 * infinities are nan, inf and -inf in csv, and the strings "NaN", "Infinity" and
 * "-Infinity" in JSON, which has no such numbers. A hash is 16 hexadecimal digits, in
 * JSON a string. What is not known is empty in csv and null in JSON. SONDE_EINVAL:
 * another kind.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_export_row_text(
    sonde_export_kind kind, const sonde_export_row *row, const sonde_reduction *stats,
    size_t stat_count, sonde_text *text, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
