/*
 * worker.h - the workers of a trial: their folders, items and ended steps. Internal.
 */
#ifndef SONDE_TRIAL_WORKER_H
#define SONDE_TRIAL_WORKER_H

#include "trial/trial_state.h"

/* Adds a worker and lists the files in its folder. *out (may be NULL) is borrowed. */
sonde_err sonde__trial_add_worker(sonde_trial *trial, int rank, const char *name,
                                  sonde__trial_worker **out, sonde_diag *diag);
void sonde__trial_worker_destroy(sonde__trial_worker *worker);
/* Adds an item whose tensor, step and range have been checked. */
sonde_err sonde__trial_worker_add(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde__trial_kind kind, const sonde__trial_item *item,
                                  sonde_diag *diag);

/* --- ended steps ------------------------------------------------------------------ */

/* Notes that the worker ended a step (an index) at a time. A later time for the same
 * step is ignored. False: out of memory. */
bool sonde__trial_worker_ended(sonde_trial *trial, sonde__trial_worker *worker,
                               uint32_t step, int64_t time);
bool sonde__trial_worker_has_ended(const sonde__trial_worker *worker, uint32_t step);
/* When the last worker ended a step, or the one of a rank >= 0; 0: none has, or the
 * time is not known. */
int64_t sonde__trial_ended_at(const sonde_trial *trial, uint32_t step, int rank);
/* Whether all workers have ended a step. */
bool sonde__trial_step_complete(const sonde_trial *trial, const sonde__trial_step *step);

#endif
