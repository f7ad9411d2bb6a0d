/*
 * export.h - an export in progress: its options, the walks over the rows and raw values
 * that it asks for, and the writers of the formats. Internal.
 *
 * Every file appears whole or not at all. npz and TensorBoard are made by Python
 * (sonde/exports.py), from a safetensors file and from JSON lines that are written here.
 */
#ifndef SONDE_EXPORT_EXPORT_H
#define SONDE_EXPORT_EXPORT_H

#include "base/whole_file.h"

#include <sonde/error.h>
#include <sonde/export_run.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sonde__export {
    sonde_trial *trial;
    const sonde_export_options *options;
    sonde_export_report *report;
    bool many_workers;            /* names carry the worker's folder */
    const sonde_reduction *stats; /* of rows and scalars; set by choose */
    size_t stat_count;
    sonde_reduction usual[SONDE_STAT_ENTRIES];
} sonde__export;

/* Chooses the statistics: those of the options, else the usual ones (NULL: all). */
void sonde__export_choose(sonde__export *work, const sonde_stat *usual, size_t count);

/* SONDE_EINVAL or SONDE_ERANGE: the options do not fit this trial. */
sonde_err sonde__export_check(const sonde_trial *trial,
                              const sonde_export_options *options, sonde_diag *diag);
/* Calls options.progress. SONDE_EINTERRUPTED: the caller wants to stop. */
sonde_err sonde__export_progress(const sonde_export_options *options, uint64_t done,
                                 uint64_t total, sonde_diag *diag);
/* What becomes of an error that concerns one value alone: the value is reported and
 * counted, and SONDE_OK returned. Any other error is returned, with why in diag. */
sonde_err sonde__export_leave_out(sonde__export *work, sonde_err err,
                                  const sonde_diag *why, sonde_diag *diag);
/* The folder of a worker's values; "" in a run of one worker. */
const char *sonde__export_worker(const sonde__export *work, int rank);

/* --- walking ---------------------------------------------------------------------- */

/* sonde_trial_rows with the chosen statistics; counts values left out in work->report. */
sonde_err sonde__export_walk(sonde__export *work, bool first, sonde_export_row_fn *row,
                             void *user, sonde_diag *diag);

/* Calls value for every raw value that the options include and that can be read, in order
 * of steps. key, its name in npz and safetensors, and record are borrowed. */
typedef sonde_err sonde__export_value_fn(void *user, const char *key,
                                         const sonde_trial_record *record,
                                         sonde_diag *diag);
sonde_err sonde__export_values(sonde__export *work, sonde__export_value_fn *value,
                               void *user, sonde_diag *diag);

/* --- writing ---------------------------------------------------------------------- */

/* SONDE_EEXIST: anything is at path, even a dangling link. */
sonde_err sonde__export_check_free(const char *path, sonde_diag *diag);
/* The same, and opens the file. A zeroed file, or one that failed to open, may be
 * closed (sonde__whole_close). */
SONDE_API sonde_err sonde__export_open(sonde__whole_file *file, const char *path,
                                       sonde_diag *diag);
/* Publishes the file, or after a failure removes it. Frees its memory. */
SONDE_API sonde_err sonde__export_close(sonde__whole_file *file, sonde_diag *diag);

/* The raw values in one file, in order of the run, or aligned: the wider dtypes first. */
sonde_err sonde__export_safetensors(sonde__export *work, const char *path, bool aligned,
                                    sonde_diag *diag);
/* A line for each row, in CSV or JSON; for TensorBoard JSON with histograms, after a line
 * about the run. */
sonde_err sonde__export_rows(sonde__export *work, sonde_export_kind kind,
                             const char *path, sonde_diag *diag);
/* Raw values as CSV or JSON lines. */
sonde_err sonde__export_elements(sonde__export *work, sonde_export_kind kind,
                                 const char *path, sonde_diag *diag);

#endif
