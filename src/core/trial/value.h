/*
 * value.h - from an item to what it stands for: a value, a row or a sketch. Internal.
 *
 * Bytes are mapped, unpacked if they are compressed, and checked.
 */
#ifndef SONDE_TRIAL_VALUE_H
#define SONDE_TRIAL_VALUE_H

#include "trial/trial_state.h"

/* A raw value whose hash is right. The view is borrowed as sonde_trial_value says. */
sonde_err sonde__trial_load_value(sonde_trial *trial, sonde__trial_worker *worker,
                                  const sonde__trial_raw_item *item, sonde_view *view,
                                  sonde_diag *diag);

/* Rows first ... end - 1 of a worker, mapped; zeroed: none. For one query, in which
 * each file is looked at once. */
typedef struct sonde__trial_rows {
    const sonde__record_stats_row *rows;
    uint32_t first, end;
} sonde__trial_rows;
/* A row, borrowed until the trial closes; rows is moved to it if need be. */
sonde_err sonde__trial_load_row(sonde_trial *trial, sonde__trial_worker *worker,
                                uint32_t row, sonde__trial_rows *rows,
                                const sonde__record_stats_row **out, sonde_diag *diag);
sonde_err sonde__trial_load_sketch(const sonde_trial *trial, sonde__trial_worker *worker,
                                   const sonde__trial_sketch_item *item,
                                   sonde_sketch *sketch, sonde_diag *diag);

#endif
