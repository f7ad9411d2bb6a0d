/*
 * smdebug_state.h - what the files that read smdebug's directories share. Internal.
 */
#ifndef SONDE_IMPORT_SMDEBUG_STATE_H
#define SONDE_IMPORT_SMDEBUG_STATE_H

#include "trial/trial_state.h"

enum { SONDE__SMDEBUG_NAME = 200 }; /* of a worker, its NUL included */

/* An index file that was listed. */
typedef struct sonde__import_smdebug_file {
    int64_t step;
    bool read; /* by an earlier refresh */
    char worker[SONDE__SMDEBUG_NAME];
} sonde__import_smdebug_file;

struct sonde__import_smdebug {
    sonde__import_smdebug_file *files;
    size_t file_count, file_capacity;
    int64_t first_folder; /* of index/: the ones before it hold nothing new */
    uint32_t collected;   /* tensors that are in their collections */
    bool has_collections, no_collections; /* found; that there are none was told */
};

/* Whether a worker's index of a step has been read. */
bool sonde__import_smdebug_has_read(const sonde_trial *trial,
                                    const sonde__trial_worker *worker, int64_t step);
sonde_err sonde__import_smdebug_read_index(sonde_trial *trial,
                                           sonde__trial_worker *worker, int64_t step,
                                           sonde_diag *diag);
/* Collections of the tensors that have come since the last time. */
sonde_err sonde__import_smdebug_read_collections(sonde_trial *trial, sonde_diag *diag);

#endif
