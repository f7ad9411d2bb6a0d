/*
 * export_walk.h - an export in progress: its options, and the walks over the rows and raw
 * values it asks for. Internal.
 */
#ifndef SONDE_EXPORT_EXPORT_WALK_H
#define SONDE_EXPORT_EXPORT_WALK_H

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
/* True for an error that concerns one value alone, which is reported and counted. */
bool sonde__export_left_out(sonde__export *work, sonde_err err, const sonde_diag *why);
/* Whether the options include a step. */
bool sonde__export_has_step(const sonde_export_options *options,
                            const sonde_coordinate *where);

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

#endif
