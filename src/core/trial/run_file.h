/*
 * run_file.h - run.json, end.json and state.json, and what follows from them: the status
 * of a run and the last step that is complete. Internal.
 */
#ifndef SONDE_TRIAL_RUN_FILE_H
#define SONDE_TRIAL_RUN_FILE_H

#include "trial/trial_state.h"

#include <jansson.h>

/* Reads a small file with a JSON object; where: its path in the run. *found: it exists.
 * *object is new, or NULL without a file or if it is damaged, which is noted. */
sonde_err sonde__trial_load_object(sonde_trial *trial, const char *where, bool *found,
                                   json_t **object, sonde_diag *diag);
/* *found: run.json exists. SONDE_EUNSUPPORTED: the run has a newer format. */
sonde_err sonde__trial_run_read(sonde_trial *trial, bool *found, sonde_diag *diag);
sonde_err sonde__trial_end_read(sonde_trial *trial, sonde_diag *diag);
sonde_err sonde__trial_state_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);
/* Sets the status and the last complete step from what has been read. */
void sonde__trial_update_status(sonde_trial *trial);
/* Seconds since 1970 of "2026-01-31T12:00:00.000000Z"; -1 for any other text, and
 * NULL. */
double sonde__trial_seconds(const char *text);

#endif
