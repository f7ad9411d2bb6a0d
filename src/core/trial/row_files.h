/*
 * row_files.h - the binary files of a worker: ended steps, vital signs, sketches.
 * Internal.
 *
 * Each is a head and then rows or records, which a writer may be appending to. Damage is
 * noted; the only error is SONDE_ENOMEM.
 */
#ifndef SONDE_TRIAL_ROW_FILES_H
#define SONDE_TRIAL_ROW_FILES_H

#include "trial/trial_state.h"

sonde_err sonde__trial_step_rows_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag);
sonde_err sonde__trial_stats_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);
sonde_err sonde__trial_sketches_read(sonde_trial *trial, sonde__trial_worker *worker,
                                     sonde_diag *diag);

/* Whether the first size bytes of a file are the head of its kind. *items gets the
 * number of rows that the head gives; a sketch file's head gives none. For the fuzzer. */
SONDE_API bool sonde__trial_head_read(sonde__record_file_kind kind, const char *head,
                                      size_t size, uint64_t *items);

#endif
