/*
 * header.h - the JSON header of a safetensors file whose tensors come one by one, in room
 * that was set aside for it. Internal.
 *
 * begin, then for every value add; keep when what was added so far is certain, or drop to
 * forget what came since; finish makes the bytes that go to the start of the file. Keys
 * are kept apart by a set of their hashes: one that was there gets "#1" behind it, and so
 * on. Cost of add: some 150 ns.
 */
#ifndef SONDE_RECORD_HEADER_H
#define SONDE_RECORD_HEADER_H

#include "record/format.h"

enum {
    SONDE__HEADER_LENGTH = 8,            /* bytes that hold the header's length */
    SONDE__HEADER_PAGE = 4096,           /* data begin at a multiple of it */
    SONDE__HEADER_MOST = 8 * 1024 * 1024 /* room for the header, at most */
};

typedef struct sonde__record_header {
    char *text;    /* length, JSON without its last brace */
    size_t used;   /* of text, length included */
    size_t room;   /* on disk: where data begin */
    size_t kept;   /* what used was at the last keep */
    uint64_t *set; /* open addressing: hashes of keys, 0 is empty */
    size_t slots;
    size_t *order; /* slots in the order of adding, since the last keep */
    size_t added, most_added;
} sonde__record_header;

/* most_added: values between two keeps. */
SONDE_API sonde_err sonde__record_header_init(sonde__record_header *header,
                                              size_t most_added);
SONDE_API void sonde__record_header_fini(sonde__record_header *header);
/* The room that headers of so many values of so many bytes each should get, in pages. */
SONDE_API size_t sonde__record_header_room(size_t values, size_t entry);
/* A new header in room bytes (as above). */
SONDE_API sonde_err sonde__record_header_begin(sonde__record_header *header, size_t room,
                                               int rank);
/* The entry of a value; name as it stands within quotes in JSON. False, and nothing
 * changed, if it does not fit. */
SONDE_API bool sonde__record_header_add(sonde__record_header *header,
                                        const sonde__record_index_line *line,
                                        const char *name);
/* Bytes that belong to no value that is known. */
SONDE_API bool sonde__record_header_add_gap(sonde__record_header *header, uint64_t offset,
                                            uint64_t bytes);
SONDE_API void sonde__record_header_keep(sonde__record_header *header);
/* Forgets all but the first count of the values since the last keep; used is what it was
 * after them. */
SONDE_API void sonde__record_header_drop(sonde__record_header *header, size_t count,
                                         size_t used);
/* Ends the header: room bytes from text on. */
SONDE_API void sonde__record_header_finish(sonde__record_header *header);
/* The bytes that stand there until then: the length, and blanks. */
SONDE_API void sonde__record_header_blank(const sonde__record_header *header,
                                          char *bytes);

#endif
