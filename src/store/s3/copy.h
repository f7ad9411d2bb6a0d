/*
 * copy.h - the copy of a run of a store in a folder of this machine. Internal.
 *
 *     <folder>          locked by its reader, who removes it; one without a reader is left
 *                       of a reader that died, and removed by the next one
 *     <folder>/run/...  the files; segments are sparse, and fetched in blocks
 */
#ifndef SONDE_S3_COPY_H
#define SONDE_S3_COPY_H

#include "store/s3/objects.h"

typedef struct sonde__s3_copied {
    char *name;
    char etag[SONDE__S3_ETAG];
    uint64_t size;
    bool lazy, stale; /* lazy: fetched in blocks; stale: the store has another version */
    unsigned char *blocks; /* of a lazy one: whether each block is in the copy */
} sonde__s3_copied;

typedef struct sonde__s3_copy {
    sonde__s3_bucket *bucket;
    sonde__s3_line line;
    char *folder;
    int held;                /* descriptor of the folder, locked */
    sonde__s3_copied *items; /* by name */
    size_t count, capacity;
    bool opened, foreign; /* foreign: not a run of Sonde's */
    bool smdebug;         /* a directory of smdebug's */
    int world;
    char **workers; /* "w0000" */
    size_t worker_count, worker_capacity;
    double failing_since;  /* 0: the store answers */
    size_t last;           /* the item that was read last */
    uint64_t last_end;     /* end of that read, with its read-ahead */
    uint64_t ahead;        /* bytes of read-ahead */
    pthread_mutex_t guard; /* of fetch */
} sonde__s3_copy;

sonde_err sonde__s3_copy_open(const char *url, const char *folder, void **out,
                              sonde_diag *diag);
sonde_err sonde__s3_copy_refresh(void *handle, sonde_diag *diag);
sonde_err sonde__s3_copy_fetch(void *handle, const char *name, uint64_t offset,
                               uint64_t count, sonde_diag *diag);
sonde_err sonde__s3_copy_send(void *handle, const char *name, sonde_diag *diag);
void sonde__s3_copy_close(void *handle);

/* --- copy_files.c: what is on this machine ------------------------------------------ */

enum { SONDE__S3_BLOCK = 16 * 1024, SONDE__S3_PATH = 4096 };

/* "<folder>/run/<name>" to path. */
const char *sonde__s3_copy_path(const sonde__s3_copy *copy, const char *name, char *path);
/* NULL: the copy lacks it. */
sonde__s3_copied *sonde__s3_copy_find(const sonde__s3_copy *copy, const char *name);
/* Notes an object of a list; it is stale unless the copy has these bytes. */
sonde_err sonde__s3_copy_note(sonde__s3_copy *copy, const sonde__s3_object *object,
                              bool lazy, sonde_diag *diag);
/* Writes a file whole, by renaming. */
sonde_err sonde__s3_copy_write(const sonde__s3_copy *copy, const char *name,
                               const void *bytes, size_t size, sonde_diag *diag);
/* Makes the sparse file of a lazy object, with its first block. */
sonde_err sonde__s3_copy_make_sparse(const sonde__s3_copy *copy, sonde__s3_line *line,
                                     sonde__s3_copied *item, sonde_diag *diag);
/* Fetches the blocks of bytes [offset, offset + count), and a read-ahead. */
sonde_err sonde__s3_copy_bring(sonde__s3_copy *copy, sonde__s3_copied *item,
                               uint64_t offset, uint64_t count, sonde_diag *diag);
/* Locks the folder, and removes those beside it that nobody has locked for a minute. */
sonde_err sonde__s3_copy_hold(sonde__s3_copy *copy, sonde_diag *diag);
/* Removes a folder and what is in it. */
void sonde__s3_remove_all(const char *path);
/* Creates the folders above a path. */
void sonde__s3_make_way(const char *path);

#endif
