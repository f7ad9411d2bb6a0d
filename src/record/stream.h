/*
 * stream.h - the numbered files that are a head and items behind it: vital signs, sketches
 * and steps; and the catalogue, which has neither head nor number. Internal; the writer's
 * thread only.
 *
 * Items are copied by add; commit puts them into the file, which it opens if need be; close
 * completes the head and gives the file its name. A commit that failed may be repeated.
 */
#ifndef SONDE_RECORD_STREAM_H
#define SONDE_RECORD_STREAM_H

#include "record/backend.h"
#include "record/format.h"

#include <sonde/text.h>

typedef struct sonde__record_stream {
    sonde__record_backend *backend; /* borrowed */
    char folder[SONDE__FILE_NAME];
    sonde__record_file_kind kind; /* SONDE__FILE_OTHER: the catalogue */
    uint64_t number;              /* of the file that is open, or will be next */
    sonde__record_file *file;
    uint64_t end;   /* of the items that are in it */
    uint64_t items; /* that are in it */
    double opened;
    sonde_text waiting; /* items that are not */
} sonde__record_stream;

SONDE_API void sonde__record_stream_init(sonde__record_stream *stream,
                                         sonde__record_backend *backend,
                                         const char *folder,
                                         sonde__record_file_kind kind);
/* Leaves a .part as it is. */
SONDE_API void sonde__record_stream_fini(sonde__record_stream *stream);
/* False if memory is out; then nothing was added. */
SONDE_API bool sonde__record_stream_add(sonde__record_stream *stream, const void *item,
                                        size_t size);
/* *gained: items that came into the file, also when it fails. */
SONDE_API int sonde__record_stream_commit(sonde__record_stream *stream, uint64_t *gained);
/* Forgets the items that are in no file; how many. */
SONDE_API uint64_t sonde__record_stream_drop(sonde__record_stream *stream);
/* May be repeated when it fails. Nothing may be waiting. */
SONDE_API int sonde__record_stream_close(sonde__record_stream *stream);
/* Forgets a file that nobody can find any more; the next number is the same. */
SONDE_API void sonde__record_stream_abandon(sonde__record_stream *stream);

#endif
