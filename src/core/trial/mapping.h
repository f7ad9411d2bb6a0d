/*
 * mapping.h - numbered files by the name they have at the moment, mapped into memory.
 * Internal.
 *
 * A `.part` file becomes a closed one by renaming: its bytes, and so its mappings, stay.
 * A file that grows is mapped again, larger, when bytes after the mapped part are needed;
 * older mappings stay for those who borrowed them.
 */
#ifndef SONDE_TRIAL_MAPPING_H
#define SONDE_TRIAL_MAPPING_H

#include "format/format.h"

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
