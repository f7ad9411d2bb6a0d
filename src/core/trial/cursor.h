/*
 * cursor.h - what tests see of a cursor. Internal.
 */
#ifndef SONDE_TRIAL_CURSOR_H
#define SONDE_TRIAL_CURSOR_H

#include <sonde/trial.h>

/* Bytes that a cursor has asked the kernel to read ahead. */
SONDE_API uint64_t sonde__trial_cursor_fetched(const sonde_trial_cursor *cursor);

#endif
