/*
 * smdebug_state.h - what the reader of smdebug's directories keeps. Internal.
 */
#ifndef SONDE_TRIAL_SMDEBUG_STATE_H
#define SONDE_TRIAL_SMDEBUG_STATE_H

#include "trial/trial_state.h"

enum {
    SONDE__IMPORT_WORKER = 200,   /* bytes of a worker's name, its NUL included */
    SONDE__IMPORT_REDUCTIONS = 18 /* smdebug's: nine, and each of absolute values */
};

/* An index file in the list of those to read. */
typedef struct sonde__smdebug_index_file {
    int64_t step;
    char worker[SONDE__IMPORT_WORKER];
} sonde__smdebug_index_file;

/* A record of an event file with a statistic. */
typedef struct sonde__smdebug_record {
    uint64_t offset, bytes;
    uint32_t tensor;  /* whose name is its tag, if it has no reduction */
    int8_t reduction; /* an index of sonde__smdebug_reductions; -1: none */
} sonde__smdebug_record;

/* Consecutive records: the statistics of a tensor at a step. */
typedef struct sonde__smdebug_group {
    size_t first; /* in records */
    uint32_t count;
    uint32_t segment; /* the event file */
    uint32_t tensor;
} sonde__smdebug_group;

/* trial->foreign. */
typedef struct sonde__smdebug_smdebug {
    sonde__smdebug_index_file *files;
    size_t file_count, file_capacity;
    int64_t first_folder; /* of index/: earlier ones contain nothing new */
    uint32_t collected;   /* tensors that are in their collections */
    bool has_collections, no_collections; /* found; that there are none was noted */
    int64_t first_time, last_time; /* of the steps read: ns since 1970; 0: not known */
    sonde__smdebug_record *records;
    size_t record_count, record_capacity;
    sonde__smdebug_group *groups; /* a row item's row */
    size_t group_count, group_capacity;
    sonde__record_stats_row row; /* the statistics loaded last */
} sonde__smdebug_smdebug;

/* "min", "abs_max", "l2" ..., as in smdebug/reductions/<name>/<tensor>. */
extern const char *const sonde__smdebug_reductions[SONDE__IMPORT_REDUCTIONS];

/* --- smdebug_index.c -------------------------------------------------------------- */

/* Reads the index file of a step. A damaged one is noted and counts as read: it is never
 * written again. */
sonde_err sonde__smdebug_read_index(sonde_trial *trial, sonde__trial_worker *worker,
                                    int64_t step, sonde_diag *diag);

/* --- smdebug_values.c ------------------------------------------------------------- */

/* "events/<step>/<step>_<worker>.tfevents" to name (SONDE__PATH); returns name. */
const char *sonde__smdebug_event_name(const sonde__trial_worker *worker, int64_t step,
                                      char *name);
/* When the record there was made: ns since 1970; 0: not known. */
int64_t sonde__smdebug_read_time(const sonde_trial *trial,
                                 const sonde__trial_worker *worker,
                                 const sonde__trial_file *file, uint64_t offset);
/* The tensor of that tag in a record. view is borrowed until the next call. */
sonde_err sonde__smdebug_read_tensor(sonde_trial *trial,
                                     const sonde__trial_worker *worker,
                                     const sonde__trial_file *file, uint64_t offset,
                                     uint64_t bytes, const char *tag, sonde_view *view,
                                     sonde_diag *diag);
/* Of sonde__trial_foreign. */
sonde_err sonde__smdebug_value(sonde_trial *trial, sonde__trial_worker *worker,
                               const sonde__trial_raw_item *item, sonde_view *view,
                               sonde_diag *diag);
sonde_err sonde__smdebug_row(sonde_trial *trial, sonde__trial_worker *worker,
                             uint32_t row, const sonde__record_stats_row **out,
                             sonde_diag *diag);
void sonde__smdebug_ahead(const sonde_trial *trial, const sonde__trial_worker *worker,
                          const sonde__trial_file *file, uint64_t offset, uint64_t count);

#endif
