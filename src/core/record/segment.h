/*
 * segment.h - the open segment: values, index, and closing both. Internal; the writer's
 * thread only.
 *
 * open, then batches of add, each followed by commit, then close; then open again for the
 * next number.
 *
 * A batch borrows the values' bytes until commit succeeds. A failed commit may be
 * repeated and continues where it stopped; or drop discards the rest of the batch. A
 * line is written to the index only after its bytes are in the data file.
 */
#ifndef SONDE_RECORD_SEGMENT_H
#define SONDE_RECORD_SEGMENT_H

#include "record/backend.h"
#include "format/format.h"

#include <sonde/text.h>

/* --- the header ------------------------------------------------------------------- */

/*
 * The JSON header of a safetensors file whose tensors come one by one, in room reserved
 * at the file's start.
 *
 * begin; then add for every value; keep when the values added so far are certain, or
 * drop to forget those added since the last keep; finish makes the bytes for the start
 * of the file. A set of hashes detects repeated keys; such a key gets "#1" appended, and
 * so on. add costs about 150 ns.
 */
enum {
    SONDE__HEADER_LENGTH = 8,            /* bytes that hold the header's length */
    SONDE__HEADER_PAGE = 4096,           /* data begin at a multiple of it */
    SONDE__HEADER_MOST = 8 * 1024 * 1024 /* room for the header, at most */
};

typedef struct sonde__record_header {
    char *text;  /* length, JSON without its last brace */
    size_t used; /* of text, length included */
    size_t room; /* on disk: where data begin */
    size_t kept; /* what used was at the last keep */
    uint64_t
        *set; /* open addressing: hashes of keys, 0: empty; keys leave in reverse order */
    size_t slots;
    size_t *order; /* slots in the order of adding, since the last keep */
    size_t added, most_added;
} sonde__record_header;

/* most_added: values between two keeps. */
sonde_err sonde__record_header_init(sonde__record_header *header, size_t most_added);
void sonde__record_header_fini(sonde__record_header *header);
/* Bytes to reserve for a header of so many values of so many bytes each; whole pages. */
size_t sonde__record_header_room(size_t values, size_t entry);
/* Starts a header in room bytes (as above). */
sonde_err sonde__record_header_begin(sonde__record_header *header, size_t room, int rank);
/* Adds the entry of a value; name is escaped as in JSON. False, with nothing changed, if
 * it does not fit. */
bool sonde__record_header_add(sonde__record_header *header,
                              const sonde__record_index_line *line, const char *name);
/* Adds an entry for bytes of no known value. */
bool sonde__record_header_add_gap(sonde__record_header *header, uint64_t offset,
                                  uint64_t bytes);
void sonde__record_header_keep(sonde__record_header *header);
/* Forgets all but the first count values since the last keep; used: its value after
 * these. */
void sonde__record_header_drop(sonde__record_header *header, size_t count, size_t used);
/* Ends the header: room bytes at text. */
void sonde__record_header_finish(sonde__record_header *header);
/* The bytes in its place until then: the length, and blanks. */
void sonde__record_header_blank(const sonde__record_header *header, char *bytes);

/* --- the segment ------------------------------------------------------------------ */

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
    size_t header_used; /* after its entry */
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
    bool broken;                    /* pieces of the batch were not taken */
    bool data_longer, index_longer; /* the files have bytes after their good ends */
    sonde_text lines;
} sonde__record_segment;

/* What a commit has added to the files. */
typedef struct sonde__record_segment_gain {
    uint64_t values, payload;
} sonde__record_segment_gain;

sonde_err sonde__record_segment_init(sonde__record_segment *segment,
                                     sonde__record_backend *backend, const char *folder,
                                     int rank);
/* An open .part stays as it is. */
void sonde__record_segment_fini(sonde__record_segment *segment);
static inline bool sonde__record_segment_is_open(const sonde__record_segment *segment)
{
    return segment->data != NULL;
}

/* Creates the files of the next number. size: bytes the segment shall hold; value: bytes
 * of the first value (0: unknown); name: bytes of its name. Returns an errno. */
int sonde__record_segment_open(sonde__record_segment *segment, uint64_t size,
                               uint64_t value, size_t name);

typedef enum sonde__record_segment_added {
    SONDE__ADDED = 0,
    SONDE__BATCH_FULL = 1,  /* commit, and try again */
    SONDE__HEADER_FULL = 2, /* commit, close, open, and try again */
    SONDE__NO_MEMORY = 3
} sonde__record_segment_added;

/* Adds a value and sets line->offset; borrows line->bytes bytes. payload: bytes before
 * compression. name: escaped as in JSON. */
sonde__record_segment_added sonde__record_segment_add(sonde__record_segment *segment,
                                                      sonde__record_index_line *line,
                                                      const void *bytes, uint64_t payload,
                                                      const char *name);
/* Writes the batch. *gain: values that are in the files now, also after a failure. */
int sonde__record_segment_commit(sonde__record_segment *segment,
                                 sonde__record_segment_gain *gain);
/* Discards values that are not in the files; returns how many. */
uint64_t sonde__record_segment_drop(sonde__record_segment *segment);
/* Writes the header, syncs and renames. No batch may be open. May be repeated after a
 * failure. The lines describe the files. */
int sonde__record_segment_close(sonde__record_segment *segment,
                                sonde__record_listed *data_line,
                                sonde__record_listed *index_line);
/* Forgets files that have been removed; the next number is the same. */
void sonde__record_segment_abandon(sonde__record_segment *segment);

#endif
