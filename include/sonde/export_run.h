/*
 * export_run.h - a run in the formats of other people's tools.
 *
 *     tensorboard   a folder for `tensorboard --logdir`: scalars and histograms
 *     npz           raw values, for numpy.load
 *     safetensors   raw values in one file
 *     csv, jsonl    statistics, a row for each step of each tensor; or raw values
 *
 *     sonde_export_options options = sonde_export_options_default();
 *     err = sonde_trial_export(trial, SONDE_EXPORT_NPZ, "run.npz", &options, NULL, &diag);
 *
 * What is written appears whole or not at all, and never in place of something. A value
 * that is damaged is left out, counted and told of; all others are exported.
 *
 * Names in npz and safetensors are those of the run's own segments (docs/format.md):
 * `0000000100/train/conv1.weight`, `...@1.0` for another micro-batch or replica; of a run
 * of several workers with the worker's folder before it: `w0001/0000000100/...`.
 *
 * Raw values in csv are a line an element: step, mode, mode_step, worker, tensor,
 * micro_batch, replica, index (in row-major order) and value, with the fewest digits that give
 * the element back; a complex number is 1.5-2j. In jsonl they are an object a value, with
 * dtype, shape and values, the elements in row-major order; a complex number is [re, im].
 * numpy has no float8: in npz such values are their codes, as uint8.
 *
 * Statistics are merged over the micro-batches and replicas of a step, of each worker by
 * itself.
 */
#ifndef SONDE_EXPORT_RUN_H
#define SONDE_EXPORT_RUN_H

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
/* "tensorboard", "npz", "safetensors", "csv", "jsonl", any case. Unknown: SONDE_EINVAL
 * with the list. */
SONDE_API SONDE_CHECKED sonde_err sonde_export_kind_parse(const char *text,
                                                          sonde_export_kind *kind,
                                                          sonde_diag *diag);

typedef struct sonde_export_options {
    const uint32_t *ids; /* of the trial's catalogue; borrowed; NULL: all */
    size_t id_count;
    sonde_mode mode;    /* whose steps; SONDE_MODE_GLOBAL: of all modes */
    int64_t begin, end; /* steps begin ... end - 1 of that mode; end 0: no end */
    int worker;         /* a rank; -1: all */
    const sonde_reduction *stats; /* of scalars and rows; borrowed; NULL: as usual */
    size_t stat_count;
    bool values;      /* csv and jsonl: raw values in place of statistics */
    int64_t elements; /* of values: no more than so many of each, the first; 0: all */
    /* Called now and then, unless NULL; false stops with SONDE_EINTERRUPTED. done and
     * total count what has to be looked at; 0 and 0: no news. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    /* One line for each thing left out, unless NULL. */
    void (*told)(void *user, const char *text);
    void *user;
} sonde_export_options;
/* Everything: mode global, no end, worker -1, the rest 0 and NULL. */
SONDE_API sonde_export_options sonde_export_options_default(void);

typedef struct sonde_export_report {
    uint64_t tensors;    /* of which there was anything */
    uint64_t values;     /* raw ones */
    uint64_t rows;       /* of csv and jsonl */
    uint64_t scalars;    /* of tensorboard */
    uint64_t histograms; /* likewise */
    uint64_t left_out;   /* that could not be read */
} sonde_export_report;

/*
 * Writes a trial, as far as it was read, to path. Usual statistics: of tensorboard mean,
 * std, min, max, l2 and nonfinite; of csv and jsonl all. report may be NULL. A tensor of
 * one element is a scalar under its own name in TensorBoard, statistics are
 * `<tensor>/<statistic>`, a histogram is there for each step with a sketch or a raw value;
 * each mode is a TensorBoard run (each worker's mode, of several workers), its steps those
 * of the mode, its wall times those of the steps.
 *
 * SONDE_EEXIST: something is at path. SONDE_ENOTFOUND: nothing of what was asked for was
 * recorded; or the folder of path does not exist. SONDE_ERANGE: an id that is not in the
 * catalogue.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_export(
    sonde_trial *trial, sonde_export_kind kind, const char *path,
    const sonde_export_options *options, sonde_export_report *report, sonde_diag *diag);

/* --- rows ------------------------------------------------------------------------- */

/* What a tensor is reduced to at a step. Borrowed during the call. */
typedef struct sonde_export_row {
    uint32_t id; /* of the trial's catalogue */
    const char *tensor;
    int worker;
    int64_t step; /* global */
    sonde_mode mode;
    int64_t mode_step;
    int64_t time; /* when the worker ended the step: ns since 1970, UTC; 0: not known */
    const sonde_vitals *vitals;  /* NULL where only a sketch was saved */
    const sonde_reduced *values; /* as options.stats; how 0: what was saved cannot tell */
} sonde_export_row;
/* Anything but SONDE_OK ends the walk with it; diag is that of the walk. */
typedef sonde_err sonde_export_row_fn(void *user, const sonde_export_row *row,
                                      sonde_diag *diag);

/* Calls row for each, tensor by tensor in the order of ids, worker by worker, steps
 * ascending; at each step with vital signs or a raw value, and with a sketch if a quantile is
 * asked for. Usual statistics are all. Here worker -1 is: of each tensor the first worker that
 * has it, if first is set. Nothing found is no error. */
SONDE_API SONDE_CHECKED sonde_err sonde_trial_rows(sonde_trial *trial,
                                                   const sonde_export_options *options,
                                                   bool first, sonde_export_row_fn *row,
                                                   void *user, sonde_diag *diag);

/*
 * Appends a row as a line of csv or jsonl. Its columns are step, mode, mode_step, worker,
 * time (seconds since 1970, UTC; where it is not known nothing in csv, null in jsonl), tensor
 * and the statistics; row NULL appends the head of csv. Numbers are as short as they can be
 * read back exactly. NaN and infinities: nan, inf and -inf in csv; in JSON, which has none,
 * the strings "NaN", "Infinity" and "-Infinity". A hash is 16 hexadecimal digits, a string in
 * JSON; what cannot be told is empty in csv and null in JSON. SONDE_EINVAL: another kind.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_export_row_text(
    sonde_export_kind kind, const sonde_export_row *row, const sonde_reduction *stats,
    size_t stat_count, sonde_text *text, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
