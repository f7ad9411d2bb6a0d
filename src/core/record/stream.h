/*
 * stream.h - numbered files of a head and items: vital signs, sketches and steps; and the
 * catalogue and the list of files, which have neither head nor number. Internal; the
 * writer's thread only.
 *
 * add copies items; commit writes them, and opens the file if necessary; close completes
 * the head and renames the file. A failed commit may be repeated.
 */
#ifndef SONDE_RECORD_STREAM_H
#define SONDE_RECORD_STREAM_H

#include "record/backend.h"
#include "format/format.h"

#include <sonde/text.h>

typedef struct sonde__record_stream {
    sonde__record_backend *backend; /* borrowed */
    char folder[SONDE__FILE_NAME];
    sonde__record_file_kind kind; /* SONDE__FILE_OTHER: lines, without a number */
    const char *name;             /* of such a file */
    uint64_t number;              /* of the open file, or of the next one */
    sonde__record_file *file;
    uint64_t end;   /* of the items in the file */
    uint64_t items; /* in the file */
    bool longer;    /* the file has bytes after end */
    double opened;
    sonde_text waiting; /* items not in the file yet */
} sonde__record_stream;

void sonde__record_stream_init(sonde__record_stream *stream,
                               sonde__record_backend *backend, const char *folder,
                               sonde__record_file_kind kind);
/* The same for a file of lines; name is borrowed. */
void sonde__record_stream_init_lines(sonde__record_stream *stream,
                                     sonde__record_backend *backend, const char *folder,
                                     const char *name);
/* An open .part stays as it is. */
void sonde__record_stream_fini(sonde__record_stream *stream);
/* False, with nothing added, if memory runs out. */
bool sonde__record_stream_add(sonde__record_stream *stream, const void *item,
                              size_t size);
/* *gained: items added to the file, also after a failure. */
int sonde__record_stream_commit(sonde__record_stream *stream, uint64_t *gained);
/* Discards items that are not in the file; returns how many. */
uint64_t sonde__record_stream_drop(sonde__record_stream *stream);
/* May be repeated after a failure. No item may be waiting. *line describes the file. */
int sonde__record_stream_close(sonde__record_stream *stream, sonde__record_listed *line);
/* Forgets a file that has been removed; the next number is the same. */
void sonde__record_stream_abandon(sonde__record_stream *stream);

#endif
