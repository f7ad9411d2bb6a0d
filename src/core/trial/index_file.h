/*
 * index_file.h - the index files of a worker, read into items. Internal.
 */
#ifndef SONDE_TRIAL_INDEX_FILE_H
#define SONDE_TRIAL_INDEX_FILE_H

#include "trial/trial_state.h"

/* Reads all new lines. Bad lines are noted as damage; the only error is SONDE_ENOMEM. */
sonde_err sonde__trial_index_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);

#endif
