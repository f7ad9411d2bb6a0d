/*
 * export_walk.h - what the exports share: an export under way. Internal.
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
    const sonde_reduction *stats; /* from choose on: of rows and scalars */
    size_t stat_count;
    sonde_reduction usual[SONDE_STAT_ENTRIES];
} sonde__export;

/* Those of the options, or, if they have none, usual ones; NULL: all. */
void sonde__export_choose(sonde__export *work, const sonde_stat *usual, size_t count);

/* Whether the options can be, for this trial. */
sonde_err sonde__export_check(const sonde_trial *trial,
                              const sonde_export_options *options, sonde_diag *diag);
/* SONDE_EINTERRUPTED if the caller does not want to go on. */
sonde_err sonde__export_go_on(const sonde_export_options *options, uint64_t done,
                              uint64_t total, sonde_diag *diag);
/* Of an error that means that one value cannot be read: tells and returns true. */
bool sonde__export_left_out(sonde__export *work, sonde_err err, const sonde_diag *why);
/* Whether a step is one of those asked for. */
bool sonde__export_has_step(const sonde_export_options *options,
                            const sonde_coordinate *at);

sonde_err sonde__export_npz(sonde__export *work, const char *path, sonde_diag *diag);
sonde_err sonde__export_safetensors(sonde__export *work, const char *path,
                                    sonde_diag *diag);
sonde_err sonde__export_rows(sonde__export *work, sonde_export_kind kind,
                             const char *path, sonde_diag *diag);
/* csv and jsonl with options.values. */
sonde_err sonde__export_elements(sonde__export *work, sonde_export_kind kind,
                                 const char *path, sonde_diag *diag);
sonde_err sonde__export_tensorboard(sonde__export *work, const char *path,
                                    sonde_diag *diag);

/* sonde_trial_rows of what was chosen, counting in work->report what was left out. */
sonde_err sonde__export_walk(sonde__export *work, bool first, sonde_export_row_fn *row,
                             void *user, sonde_diag *diag);

/* --- raw values (export_values.c) ------------------------------------------------- */

/* The key of a value in npz and safetensors, new. NULL: no memory. */
char *sonde__export_key(const sonde__export *work, const sonde_trial_record *record);

/* Calls value for every raw value that is asked for and can be read, in order of steps.
 * key and record are borrowed. */
typedef sonde_err sonde__export_value_fn(void *user, const char *key,
                                         const sonde_trial_record *record,
                                         sonde_diag *diag);
sonde_err sonde__export_values(sonde__export *work, sonde__export_value_fn *value,
                               void *user, sonde_diag *diag);

#endif
