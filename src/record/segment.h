/*
 * segment.h - the segment that is being written: values, index, and how both become a
 * closed file. Internal; the writer's thread only.
 *
 * open, then batches of add each followed by commit, then close; then open again for the
 * next number.
 *
 * A batch borrows the values' bytes until commit says OK. A commit that failed may be
 * repeated, and goes on where it stopped; or the batch is dropped, as far as it is not in
 * the files. A line gets into the index only when its bytes are in the data file.
 */
#ifndef SONDE_RECORD_SEGMENT_H
#define SONDE_RECORD_SEGMENT_H

#include "record/backend.h"
#include "record/header.h"

#include <sonde/text.h>

#if defined(SONDE_STRESS)
enum { SONDE__SEGMENT_LINES = 5 };
#else
enum { SONDE__SEGMENT_LINES = 4096 /* of one batch, at most */ };
#endif

/* One line of the batch. */
typedef struct sonde__record_segment_line {
    const void *bytes;
    uint64_t size;      /* as stored */
    uint64_t end;       /* of its bytes, in the data */
    uint64_t payload;   /* bytes before compression */
    size_t text_end;    /* in lines */
    size_t header_used; /* behind its entry */
} sonde__record_segment_line;

typedef struct sonde__record_segment {
    sonde__record_backend *backend; /* borrowed */
    char folder[SONDE__FILE_NAME];
    int rank;
    uint64_t number; /* of the segment that is open, or will be next */
    sonde__record_file *data, *index;
    sonde__record_header header;
    uint64_t end;     /* of the data that lines of the index point to */
    uint64_t staged;  /* of those and the batch's */
    uint64_t values;  /* in the index */
    uint64_t payload; /* bytes of those, before compression */
    uint64_t index_end;
    uint64_t
        last_values; /* of the segment before; its mean value and entry of the header */
    size_t entry_bytes, value_bytes;
    double opened; /* when */

    sonde__record_segment_line *batch; /* SONDE__SEGMENT_LINES */
    size_t count, appended, committed;
    bool broken; /* pieces of the batch were not taken */
    sonde_text lines;
} sonde__record_segment;

/* What has come into the files by a commit. */
typedef struct sonde__record_segment_gain {
    uint64_t values, payload;
} sonde__record_segment_gain;

SONDE_API sonde_err sonde__record_segment_init(sonde__record_segment *segment,
                                               sonde__record_backend *backend,
                                               const char *folder, int rank);
/* Leaves a .part as it is. */
SONDE_API void sonde__record_segment_fini(sonde__record_segment *segment);
static inline bool sonde__record_segment_is_open(const sonde__record_segment *segment)
{
    return segment->data != NULL;
}

/* The files of the next number. size is what the segment shall hold, value that of the
 * first value (0: none is at hand) and name the bytes of its name. Returns an errno;
 * EEXIST if there are files of that number already. */
SONDE_API int sonde__record_segment_open(sonde__record_segment *segment, uint64_t size,
                                         uint64_t value, size_t name);

typedef enum sonde__record_segment_added {
    SONDE__ADDED = 0,
    SONDE__BATCH_FULL = 1,  /* commit, and try again */
    SONDE__HEADER_FULL = 2, /* commit, close, open, and try again */
    SONDE__NO_MEMORY = 3
} sonde__record_segment_added;

/* line->offset is set here; line->bytes are borrowed from bytes. payload: before
 * compression. name: as within quotes in JSON. */
SONDE_API sonde__record_segment_added
sonde__record_segment_add(sonde__record_segment *segment, sonde__record_index_line *line,
                          const void *bytes, uint64_t payload, const char *name);
/* Everything added to the files. *gain is what that brought, also when it fails. */
SONDE_API int sonde__record_segment_commit(sonde__record_segment *segment,
                                           sonde__record_segment_gain *gain);
/* Forgets what is not in the files; how many values that were. */
SONDE_API uint64_t sonde__record_segment_drop(sonde__record_segment *segment);
/* The header in its place, everything synced, the final name. No batch may be open. May be
 * repeated when it fails. */
SONDE_API int sonde__record_segment_close(sonde__record_segment *segment);
/* Forgets files that nobody can find any more; the next number is the same. */
SONDE_API void sonde__record_segment_abandon(sonde__record_segment *segment);

#endif
