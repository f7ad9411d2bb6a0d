/*
 * smdebug.h - a directory of smdebug's as a trial: what a trial calls, what the reader
 * keeps, and the records of event files. Internal.
 *
 * The reader fills the trial with the functions of trial_state.h and items.h: its workers, tensors, steps, an item with the layout SONDE__FOREIGN for each
 * raw value, and a row item for each set of saved statistics.
 *
 *     u64 length | u32 masked CRC32C of these 8 bytes | payload | u32 footer
 *
 * The payload is a protobuf `Event` whose summary has one value: a tag (the tensor's
 * name) and a TensorProto with its bytes in tensor_content. smdebug's own files have a
 * constant where TFRecord has the payload's checksum; both are accepted.
 */
#ifndef SONDE_TRIAL_SMDEBUG_H
#define SONDE_TRIAL_SMDEBUG_H

#include "trial/trial_state.h"

#include <sonde/error.h>
#include <sonde/tensor.h>

#include <stddef.h>
#include <stdint.h>

/* --- what a trial calls ------------------------------------------------------------- */

/* Whether a folder is one of smdebug's. */
bool sonde__smdebug_is_one(const char *path);
/* Allocates trial->smdebug. */
sonde_err sonde__smdebug_open(sonde_trial *trial, sonde_diag *diag);
/* Reads what is new. Unreadable parts are noted as damage. */
sonde_err sonde__smdebug_refresh(sonde_trial *trial, sonde_diag *diag);
/* The value of an item. view is borrowed until the next call. */
sonde_err sonde__smdebug_value(sonde_trial *trial, sonde__trial_worker *worker,
                               const sonde__trial_raw_item *item, sonde_view *view,
                               sonde_diag *diag);
/* The row of a row item, whose statistics were saved in place of a value: NaN where one is
 * not known. Borrowed until the next call. */
sonde_err sonde__smdebug_row(sonde_trial *trial, sonde__trial_worker *worker,
                             uint32_t row, const sonde__record_stats_row **out,
                             sonde_diag *diag);
/* Asks the kernel to read bytes of a file soon. */
void sonde__smdebug_ahead(const sonde_trial *trial, const sonde__trial_worker *worker,
                          const sonde__trial_file *file, uint64_t offset, uint64_t count);
/* Frees trial->smdebug; accepts NULL. */
void sonde__smdebug_close(sonde__smdebug *smdebug);

/* --- what the reader keeps ---------------------------------------------------------- */

enum {
    SONDE__SMDEBUG_WORKER = 200,   /* bytes of a worker's name, its NUL included */
    SONDE__SMDEBUG_REDUCTIONS = 18 /* smdebug's: nine, and each of absolute values */
};

/* An index file in the list of those to read. */
typedef struct sonde__smdebug_index_file {
    int64_t step;
    char worker[SONDE__SMDEBUG_WORKER];
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

/* trial->smdebug. */
struct sonde__smdebug {
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
};

/* "min", "abs_max", "l2" ..., as in smdebug/reductions/<name>/<tensor>. */
extern const char *const sonde__smdebug_reductions[SONDE__SMDEBUG_REDUCTIONS];

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

/* --- records of event files --------------------------------------------------------- */

/* The checksum of Castagnoli's polynomial. About a nanosecond a byte. */
SONDE_API uint32_t sonde__smdebug_crc32c(const void *bytes, size_t size);
/* As TFRecord stores it. */
SONDE_API uint32_t sonde__smdebug_masked_crc32c(const void *bytes, size_t size);

/* Checks that the bytes are exactly one record, its length and its checksums; *payload
 * points into them. title is for diagnostics. */
SONDE_CHECKED sonde_err sonde__smdebug_event_unwrap(const unsigned char *bytes,
                                                    size_t size, const char *title,
                                                    const unsigned char **payload,
                                                    size_t *payload_size,
                                                    sonde_diag *diag);
/* When a record was made, in ns since 1970, from its first bytes; 0: they do not say. */
enum { SONDE__SMDEBUG_EVENT_HEAD = 21 };
int64_t sonde__smdebug_event_time(const unsigned char head[SONDE__SMDEBUG_EVENT_HEAD]);
/* The tensor with a tag in an event, as a view into the payload. SONDE_EUNSUPPORTED: it
 * has a dtype that Sonde does not have, or more than 8 dimensions. */
SONDE_API SONDE_CHECKED sonde_err
sonde__smdebug_event_tensor(const unsigned char *payload, size_t size, const char *tag,
                            const char *title, sonde_view *view, sonde_diag *diag);

#endif
