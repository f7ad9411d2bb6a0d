/*
 * listed_files.h - the files of a worker against its list of them, files.jsonl.
 * Internal.
 *
 * Rows, lines and values have checks of their own. The list finds what these cannot:
 * files that are missing, too short or too long, that come from another run, or whose
 * heads or rows were replaced by other valid ones. What was noted of a file before is not
 * noted again. Runs without a list are not checked.
 */
#ifndef SONDE_TRIAL_LISTED_FILES_H
#define SONDE_TRIAL_LISTED_FILES_H

#include "trial/trial_state.h"

/* Reads the new lines of the list and checks the file of each: its size and its hash; of
 * a segment the hash is checked only to verify. After the end of the worker: that the
 * list is complete. Damage is noted; the only error is SONDE_ENOMEM. */
sonde_err sonde__trial_listed_read(sonde_trial *trial, sonde__trial_worker *worker,
                                   sonde_diag *diag);

#endif
