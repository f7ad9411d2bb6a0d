/*
 * copy.h - the copy of a run of a store in a folder of this machine. Internal.
 *
 *     <folder>/objects      the books: etag, size and name of every object that is here
 *     <folder>/have/NAME    a bit for each block of a lazy object that is here
 *     <folder>/run/...      the files; segments are sparse
 *     <folder>/lock         one process at a time changes the copy
 */
#ifndef SONDE_S3_COPY_H
#define SONDE_S3_COPY_H

#include "s3/objects.h"

typedef struct sonde__s3_copied {
    char *name;
    char etag[SONDE__S3_ETAG];
    uint64_t size;
    bool lazy, stale;    /* stale: another version is in the store */
    unsigned char *bits; /* mapped; NULL: not yet */
} sonde__s3_copied;

typedef struct sonde__s3_copy {
    sonde__s3_bucket *bucket;
    sonde__s3_line line;
    char *folder;
    int lock;                /* descriptor */
    sonde__s3_copied *items; /* by name */
    size_t count, capacity;
    bool opened, foreign; /* foreign: not a run of Sonde's */
    bool smdebug;         /* but a directory of smdebug's */
    bool dirty;           /* the books on disk are old */
    int world;
    char **workers; /* "w0000" */
    size_t worker_count, worker_capacity;
    double failing_since;  /* 0: it is not */
    size_t last;           /* item read last, */
    uint64_t last_end;     /* up to here, */
    uint64_t ahead;        /* and as much more next time */
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

/* "<folder>/<part>/<name>" to path. */
const char *sonde__s3_copy_path(const sonde__s3_copy *copy, const char *part,
                                const char *name, char *path);
/* Reads the books; items whose files are gone are left out. */
sonde_err sonde__s3_copy_load(sonde__s3_copy *copy, sonde_diag *diag);
sonde_err sonde__s3_copy_save(const sonde__s3_copy *copy, sonde_diag *diag);
/* NULL: not here. */
sonde__s3_copied *sonde__s3_copy_find(const sonde__s3_copy *copy, const char *name);
/* Notes an object of a list; it is stale if its bytes are not here. */
sonde_err sonde__s3_copy_note(sonde__s3_copy *copy, const sonde__s3_object *object,
                              bool lazy, sonde_diag *diag);
/* Writes a file whole, by renaming. */
sonde_err sonde__s3_copy_write(const sonde__s3_copy *copy, const char *name,
                               const void *bytes, size_t size, sonde_diag *diag);
/* Makes the sparse file of a lazy object, with its first block. */
sonde_err sonde__s3_copy_make_sparse(const sonde__s3_copy *copy, sonde__s3_line *line,
                                     sonde__s3_copied *item, sonde_diag *diag);
/* Brings the blocks of bytes [offset, offset + count) in, and some more after them. */
sonde_err sonde__s3_copy_bring(sonde__s3_copy *copy, sonde__s3_copied *item,
                               uint64_t offset, uint64_t count, sonde_diag *diag);
/* Forgets and removes everything: another run is at the address. */
void sonde__s3_copy_wipe(sonde__s3_copy *copy);
/* Removes a folder and what is in it. */
void sonde__s3_remove_all(const char *path);
/* Creates the folders above a path. */
void sonde__s3_make_way(const char *path);

#endif
