/*
 * generations.h - writers that resumed a worker's files, and what they supersede. Internal.
 *
 * Each writer has files of its own. A line of generations.jsonl, written before them, gives
 * the number of its first file of each kind and its first global step. In the files of a
 * writer, the steps from the first step of any later writer on are superseded: those not read
 * yet are skipped (sonde__trial_counts), those already read are removed, and followers learn
 * of it through trial->cuts.
 */
#ifndef SONDE_TRIAL_GENERATIONS_H
#define SONDE_TRIAL_GENERATIONS_H

#include "trial/trial_state.h"

/* Reads new lines and removes what they supersede. */
sonde_err sonde__trial_generations_read(sonde_trial *trial, sonde__trial_worker *worker,
                                        sonde_diag *diag);
/* Sets worker->limit for a file that is about to be read. */
void sonde__trial_worker_limit(sonde__trial_worker *worker, sonde__record_file_kind kind,
                               uint64_t number);
/* Whether a record of that file at a global step is to be taken; counts it if superseded. */
bool sonde__trial_counts(const sonde_trial *trial, sonde__trial_worker *worker,
                         int64_t global);

#endif
