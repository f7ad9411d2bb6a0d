/*
 * trial_files.h - reading files that a writer may be appending to, and notes of what is
 * damaged. Internal.
 *
 * Small files are read whole, text files line by line, numbered files one after another.
 * No file stays open between two refreshes, so a run with many workers needs few
 * descriptors; seeing that a file has not grown costs one stat.
 */
#ifndef SONDE_TRIAL_TRIAL_FILES_H
#define SONDE_TRIAL_TRIAL_FILES_H

#include "format/format.h"
#include <stdbool.h>
#include <sonde/error.h>
#include <stddef.h>
#include <stdint.h>

/* --- damage ------------------------------------------------------------------------ */

/* The list of what could not be read of a run. Internal.
 *
 * A file of a million damaged lines must not make a million strings: the first five of
 * each file and the first 256 of a run are kept as text, the others are counted. Noting
 * never fails: without memory a note is only counted. `where` is a path relative to the
 * run. */

typedef struct sonde__trial_damage_list {
    char **lines;
    size_t count, capacity;
    uint64_t more;    /* notes beyond those kept */
    uint64_t damaged; /* notes of damage, and of torn ends */
    uint64_t torn;
    void (*report)(void *user, const char *text); /* called with every note, or NULL */
    void *user;
} sonde__trial_damage_list;

void sonde__trial_damage_fini(sonde__trial_damage_list *list);
void sonde__trial_damage(sonde__trial_damage_list *list, const char *where,
                         const char *found, ...) SONDE_PRINTF(3, 4);
/* Notes the torn end of a file. */
void sonde__trial_torn(sonde__trial_damage_list *list, const char *where,
                       const char *found, ...) SONDE_PRINTF(3, 4);
/* Whether damage was noted there. Costs a look at each note kept. */
bool sonde__trial_damage_has(const sonde__trial_damage_list *list, const char *where);
/* Notes one of possibly very many defects in a file. *bad counts them; the flush
 * afterwards notes how many were not kept and sets it to 0. */
void sonde__trial_damage_in(sonde__trial_damage_list *list, uint32_t *bad,
                            const char *where, const char *found, ...) SONDE_PRINTF(4, 5);
void sonde__trial_damage_flush(sonde__trial_damage_list *list, uint32_t *bad,
                               const char *where);

/* --- mapping ----------------------------------------------------------------------- */

/* Numbered files by the name they have at the moment, mapped into memory.
 * Internal.
 *
 * A `.part` file becomes a closed one by renaming: its bytes, and so its mappings, stay.
 * A file that grows is mapped again, larger, when bytes after the mapped part are needed;
 * older mappings stay for those who borrowed them. */

typedef struct sonde__trial_mapping {
    const unsigned char *base;
    size_t size;
    uint64_t node; /* inode */
    struct sonde__trial_mapping *before;
} sonde__trial_mapping;

/* A segment, a file of statistics, sketches or steps; or a file of a foreign format. */
typedef struct sonde__trial_file {
    uint64_t number;
    uint64_t head;     /* bytes before the data; 0: not known yet */
    uint64_t size;     /* of the whole file, at the last look */
    uint32_t first;    /* statistics: the number of the first row */
    bool closed;       /* it has the name of a closed file */
    bool broken;       /* nothing in it can be found */
    bool looked;       /* rows and records: read as a file that grows no more */
    uint64_t question; /* of the trial, when size was last seen */
    char *name;        /* foreign formats: if the number does not give it; else NULL */
    sonde__trial_mapping *mapping;
} sonde__trial_file;

/* The files of one kind of one worker. */
typedef struct sonde__trial_file_list {
    const char *folder; /* borrowed: the worker's path */
    sonde__record_file_kind kind;
    sonde__trial_file *items;
    size_t count, capacity;
} sonde__trial_file_list;

void sonde__trial_file_list_fini(sonde__trial_file_list *list);
/* The file of a number: the last one, or a new one after it. NULL: out of memory.
 * Borrowed until the next call. */
sonde__trial_file *sonde__trial_file_numbered(sonde__trial_file_list *list,
                                              uint64_t number);
/* Opens a file under its present name, which goes to path (SONDE__PATH bytes). -1:
 * errno. */
int sonde__trial_file_open(const sonde__trial_file_list *list, sonde__trial_file *file,
                           char *path);
/*
 * Maps bytes [offset, offset + count) of a file; borrowed until the list is finished.
 * question: the trial's; a file is looked at once for each. SONDE_EFORMAT: it is shorter.
 */
sonde_err sonde__trial_file_map(const sonde__trial_file_list *list,
                                sonde__trial_file *file, uint64_t question,
                                uint64_t offset, uint64_t count,
                                const unsigned char **bytes, sonde_diag *diag);
/* Asks the kernel to read those bytes soon. */
void sonde__trial_file_ahead(const sonde__trial_file_list *list, sonde__trial_file *file,
                             uint64_t question, uint64_t offset, uint64_t count);

enum { SONDE__PATH = 4096 };

/* FOLDER/NAME to path, which has SONDE__PATH bytes. Returns path. */
const char *sonde__trial_path(const char *folder, const char *name, char *path);
/* Reads up to most bytes, fewer at the end of the file. Retries after interruptions. */
sonde_err sonde__trial_read_at(int fd, void *bytes, size_t most, uint64_t offset,
                               size_t *count, const char *path, sonde_diag *diag);

/* --- small files ------------------------------------------------------------------ */

/* A buffer that keeps its memory between uses. */
typedef struct sonde__trial_scratch {
    unsigned char *bytes;
    size_t capacity;
} sonde__trial_scratch;

/* Makes room for size bytes; what it held is lost. False: out of memory. */
bool sonde__trial_scratch_reserve(sonde__trial_scratch *scratch, size_t size);
/* Reads a whole file of at most 64 MiB into buffer and appends a NUL. SONDE_ENOTFOUND:
 * there is none. */
sonde_err sonde__trial_read_small(sonde__trial_scratch *buffer, const char *path,
                                  size_t *size, sonde_diag *diag);

/* --- files that grow -------------------------------------------------------------- */

/* How far a file, or a series of numbered files, has been read. */
typedef struct sonde__trial_progress {
    uint64_t number;   /* of the file being read */
    bool begun;        /* there is one */
    uint64_t offset;   /* read in it */
    uint64_t line;     /* text files: lines read in it */
    uint64_t pieces;   /* text files: number of reads so far */
    uint64_t size;     /* of the file at the last look */
    uint32_t bad;      /* defects in it so far: see damage, above */
    bool end_reported; /* its torn end was noted */
    uint64_t *listed;  /* numbers found when the trial was opened, ascending */
    size_t listed_count, listed_capacity, listed_at;
} sonde__trial_progress;

void sonde__trial_progress_fini(sonde__trial_progress *progress);

/* Called with each complete line, without its newline; it may change the text. Any error
 * stops reading, and the line is read again the next time; SONDE_EBUSY is not noted. */
typedef sonde_err sonde__trial_line_fn(void *user, char *text, size_t length);
/* Reads the lines that were appended to a file since the last call. *found: the file
 * exists. A file that cannot be read is noted as damage; the only error is
 * SONDE_ENOMEM. */
sonde_err sonde__trial_read_lines(sonde__trial_damage_list *damage,
                                  sonde__trial_progress *progress, const char *path,
                                  const char *where, sonde__trial_line_fn *line,
                                  void *user, bool *found, sonde_diag *diag);
/* Notes the torn end of a file that nobody appends to any more, once. */
void sonde__trial_progress_end(sonde__trial_damage_list *damage,
                               sonde__trial_progress *progress, const char *where);

/* --- numbered files --------------------------------------------------------------- */

/* Adds the number of a file found when the trial is opened; sort comes after the last.
 * False: out of memory. */
bool sonde__trial_progress_list(sonde__trial_progress *progress, uint64_t number);
void sonde__trial_progress_sort(sonde__trial_progress *progress);
/* Whether the folder has the file, under either of its names: a recovery removes listed
 * ones that hold nothing. */
bool sonde__trial_has_file(const char *folder, sonde__record_file_kind kind,
                           uint64_t number);
/* Whether a file follows the one being read, and its number. Ask before reading that
 * one to its end: it has stopped growing if the answer is yes. */
bool sonde__trial_progress_peek(const char *folder, const sonde__trial_progress *progress,
                                sonde__record_file_kind kind, uint64_t *next);
/* Moves on to file next. Notes missing files and a torn end of the previous one. */
void sonde__trial_progress_move(sonde__trial_damage_list *damage, const char *worker,
                                sonde__trial_progress *progress,
                                sonde__record_file_kind kind, uint64_t next);

#endif
