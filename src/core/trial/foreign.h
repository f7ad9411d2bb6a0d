/*
 * foreign.h - what a format of another program must offer to be read as a trial.
 * Internal.
 *
 * A format fills the trial with the functions of worker.h, trial_catalogue.h and
 * steps.h: its workers, tensors, steps, an item with the layout SONDE__FOREIGN for each
 * raw value, and a row item for each set of saved statistics. It keeps what it needs
 * besides in trial->foreign. To add one: define its table beside smdebug.c and list it in
 * sonde__trial_foreign_formats.
 */
#ifndef SONDE_TRIAL_FOREIGN_H
#define SONDE_TRIAL_FOREIGN_H

#include "trial/trial_state.h"

struct sonde__trial_foreign {
    const char *expected; /* "the folders of smdebug": what a folder of it contains */
    /* Whether the folder is of this format. */
    bool (*is_one)(const char *path);
    /* Allocates trial->foreign. */
    sonde_err (*open)(sonde_trial *trial, sonde_diag *diag);
    /* Reads what is new. Unreadable parts are noted as damage. */
    sonde_err (*refresh)(sonde_trial *trial, sonde_diag *diag);
    /* The value of an item. view is borrowed until the next call. */
    sonde_err (*value)(sonde_trial *trial, sonde__trial_worker *worker,
                       const sonde__trial_raw_item *item, sonde_view *view,
                       sonde_diag *diag);
    /* The row of a row item, whose statistics were saved in place of a value: NaN where
     * one is not known. Borrowed until the next call. */
    sonde_err (*row)(sonde_trial *trial, sonde__trial_worker *worker, uint32_t row,
                     const sonde__record_stats_row **out, sonde_diag *diag);
    /* Asks the kernel to read bytes of a file soon. */
    void (*ahead)(const sonde_trial *trial, const sonde__trial_worker *worker,
                  const sonde__trial_file *file, uint64_t offset, uint64_t count);
    /* Frees trial->foreign; accepts NULL. */
    void (*close)(void *foreign);
};

/* Every format, then NULL. Defined in smdebug.c. */
extern const sonde__trial_foreign *const sonde__trial_foreign_formats[];

#endif
