/*
 * generations.h - writers that resumed a worker's files, and what they supersede.
 * Internal.
 *
 * Each writer has files of its own. A line of generations.jsonl, written before them,
 * gives the number of its first file of each kind and its first global step. In the files
 * of a writer, the steps from the first step of any later writer on are superseded: those
 * not read yet are skipped (sonde__trial_counts), those already read are removed, and
 * followers learn of it through trial->cuts.
 */
#ifndef SONDE_TRIAL_GENERATIONS_H
#define SONDE_TRIAL_GENERATIONS_H

#include "trial/trial_state.h"

/* Reads new lines and removes what they supersede. */
sonde_err sonde__trial_generations_read(sonde_trial *trial, sonde__trial_worker *worker,
                                        sonde_diag *diag);
/* Reads what is new in the current file of a kind. */
typedef sonde_err sonde__trial_read_fn(sonde_trial *trial, sonde__trial_worker *worker,
                                       sonde__record_file_kind kind, sonde_diag *diag);
/* Reads the numbered files of a kind to their present end, one after another. */
sonde_err sonde__trial_read_files(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde__record_file_kind kind,
                                  sonde__trial_read_fn *read_on, sonde_diag *diag);
/* Whether a record of the current file at a global step is to be taken; counts it if
 * it is superseded. */
bool sonde__trial_counts(const sonde_trial *trial, sonde__trial_worker *worker,
                         int64_t global);

#endif
