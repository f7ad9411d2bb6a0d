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

/* --- measure ----------------------------------------------------------------------- */

/* The line of a file in files.jsonl. Internal. */

/* Sets all of line for a complete file that is or becomes a closed one. The hash of a
 * segment covers its head, since its values have hashes of their own; covered 0: it has
 * no whole head. Costs a reading of the covered bytes. Returns an errno. */
int sonde__record_measure(sonde__record_file *file, sonde__record_file_kind kind,
                          uint64_t number, sonde__record_listed *line);

/* --- file list --------------------------------------------------------------------- */

/* The size and the hash of each closed file, in files.jsonl. Internal; the
 * writer's thread only.
 *
 * A file is read once more when it is closed (above); once it has its final name its
 * line is appended. After a crash the next writer adds the files without a line. */

typedef struct sonde__record_file_list {
    sonde__record_stream lines;
    uint64_t count;                   /* lines in the file */
    uint64_t next[SONDE__FILE_OTHER]; /* by kind: one more than the last number listed */
    uint64_t catalogue, generations;  /* bytes of these that are listed */
} sonde__record_file_list;

void sonde__record_file_list_init(sonde__record_file_list *list,
                                  sonde__record_backend *backend, const char *folder);
void sonde__record_file_list_fini(sonde__record_file_list *list);
/* For a resumed run: reads the list and removes a truncated last line. Returns an
 * errno. */
int sonde__record_file_list_restore(sonde__record_file_list *list);
/* Makes room for lines, so that put cannot fail. False: out of memory. */
bool sonde__record_file_list_reserve(sonde__record_file_list *list, size_t lines);
/* Adds the line of a file; commit writes it. */
void sonde__record_file_list_put(sonde__record_file_list *list,
                                 const sonde__record_listed *line);
/* Measures and adds the closed files of a kind that have no line and whose numbers are
 * below end. May be repeated after a failure, as the next two. Returns an errno. */
int sonde__record_file_list_add(sonde__record_file_list *list,
                                sonde__record_file_kind kind, uint64_t end);
/* Lists the catalogue and the generations as they are now, and syncs the list. */
int sonde__record_file_list_end(sonde__record_file_list *list);
/* Writes the lines added. */
int sonde__record_file_list_commit(sonde__record_file_list *list);

#endif
