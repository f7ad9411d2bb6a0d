/*
 * backend.h - where a run is stored, behind one interface. Internal.
 *
 * Names are relative to the run's folder, with '/' between parts ("w0000/state.json").
 * A backend holds no threads and is used by one at a time.
 *
 * A file is written from front to back: append any number of times, then settle. Between
 * the two the bytes are borrowed. After settle every reader can see them (not: they are
 * synced); file->end is the length that is sure to be good, which after a failure may be
 * less than was appended, and what is appended next begins there. A store that keeps
 * objects whole may collect what is appended and put it on publish or close: then it
 * becomes visible only there, and the order of publish and close of two files is the order
 * in which they appear.
 *
 * Functions that return int return 0 or an errno.
 */
#ifndef SONDE_RECORD_BACKEND_H
#define SONDE_RECORD_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

typedef struct sonde__record_backend sonde__record_backend;
typedef struct sonde__record_file sonde__record_file;

typedef void (*sonde__record_backend_seen)(void *user, const char *name);

typedef struct sonde__record_backend_ops {
    /* Also releases the lock. */
    void (*destroy)(sonde__record_backend *backend);
    /* "" is the run's folder itself, made with what leads to it. *made: whether it was
     * there before. */
    int (*make_folder)(sonde__record_backend *backend, const char *name, bool *made);
    int (*remove_folder)(sonde__record_backend *backend, const char *name);
    /* Calls seen for everything in a folder. */
    int (*list)(sonde__record_backend *backend, const char *name,
                sonde__record_backend_seen seen, void *user);
    /* A small file, whole, in place of what was there; with once EEXIST if there was
     * anything. sync: also safe from a loss of power. */
    int (*replace)(sonde__record_backend *backend, const char *name, const void *bytes,
                   size_t size, bool once, bool sync);
    /* A whole file as a new block with a NUL behind it, freed with sonde__free. */
    int (*load)(sonde__record_backend *backend, const char *name, char **bytes,
                size_t *size);
    int (*remove)(sonde__record_backend *backend, const char *name);
    /* Nobody else may write that folder until destroy: EBUSY if somebody does. */
    int (*lock)(sonde__record_backend *backend, const char *folder);
    /* A new file (EEXIST), or one that is there, to be continued; its end is its size. */
    int (*create)(sonde__record_backend *backend, const char *name,
                  sonde__record_file **out);
    int (*open)(sonde__record_backend *backend, const char *name,
                sonde__record_file **out);

    int (*append)(sonde__record_file *file, const void *bytes, size_t size);
    int (*settle)(sonde__record_file *file);
    /* Bytes before the end. Nothing may be waiting to settle. */
    int (*write_at)(sonde__record_file *file, uint64_t offset, const void *bytes,
                    size_t size);
    /* *got is less than size only at the end of the file. */
    int (*read_at)(sonde__record_file *file, uint64_t offset, void *bytes, size_t size,
                   size_t *got);
    int (*truncate)(sonde__record_file *file, uint64_t size);
    int (*sync)(sonde__record_file *file);
    /* A sync of the file will follow: one of another file in between may do both at once. */
    void (*begin_sync)(sonde__record_file *file);
    /* Gives the file, created or opened as from, its final name. */
    int (*publish)(sonde__record_file *file, const char *old_name, const char *new_name);
    /* Whether nobody can find the file any more. */
    bool (*is_lost)(sonde__record_file *file);
    /* Takes the file; NULL is fine. */
    void (*close)(sonde__record_file *file);
} sonde__record_backend_ops;

struct sonde__record_backend {
    const sonde__record_backend_ops *ops;
};

struct sonde__record_file {
    const sonde__record_backend_ops *ops;
    uint64_t end; /* of what is settled */
    bool in_bulk; /* a hint, set by the writer: much is coming at once */
};

/* A folder of this machine. path is copied. */
SONDE_API SONDE_CHECKED sonde_err sonde__record_backend_local(const char *path,
                                                              sonde__record_backend **out,
                                                              sonde_diag *diag);

#endif
