/*
 * trial_open.h - opening a trial to verify it. Internal.
 */
#ifndef SONDE_TRIAL_TRIAL_OPEN_H
#define SONDE_TRIAL_TRIAL_OPEN_H

#include <sonde/trial.h>

/* sonde_trial_open that calls report with all damage as it is found, and reads superseded
 * records too. */
sonde_err sonde__trial_open_all(const char *path,
                                void (*report)(void *user, const char *text), void *user,
                                sonde_trial **out, sonde_diag *diag);

#endif
