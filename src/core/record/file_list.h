/*
 * file_list.h - files.jsonl: the size and the hash of each closed file. Internal; the
 * writer's thread only.
 *
 * A file is read once more when it is closed (measure.h); once it has its final name its
 * line is appended. After a crash the next writer adds the files without a line.
 */
#ifndef SONDE_RECORD_FILE_LIST_H
#define SONDE_RECORD_FILE_LIST_H

#include "record/stream.h"

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
