/*
 * backend.h - the interface of run storage. Internal.
 *
 * Names are relative to the run's folder, with '/' between parts ("w0000/state.json").
 * One thread at a time.
 *
 * A file is written from front to back: append any number of times, then settle. The
 * bytes are borrowed until settle. After settle every reader can see them (they are not
 * synced yet). file->end is the length known to be good: after a failure it may be less
 * than was appended, and the next append begins there. A store of whole objects may
 * collect the appended bytes until publish or close: they become visible only then, in
 * the order of these calls.
 *
 * Functions that return int return 0 or an errno. Those on folders and small files repeat
 * what may pass (sonde__record_try_again); the writer repeats all others.
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
    /* "" is the run's folder itself, created with its parents. *made: true if it is new.
     */
    int (*make_folder)(sonde__record_backend *backend, const char *name, bool *made);
    int (*remove_folder)(sonde__record_backend *backend, const char *name);
    /* Calls seen for everything in a folder. */
    int (*list)(sonde__record_backend *backend, const char *name,
                sonde__record_backend_seen seen, void *user);
    /* Writes a small file whole, replacing an old one; with once EEXIST if there is one.
     * sync: survives a loss of power. */
    int (*replace)(sonde__record_backend *backend, const char *name, const void *bytes,
                   size_t size, bool once, bool sync);
    /* A whole file as a new block, NUL-terminated, freed with sonde__free. */
    int (*load)(sonde__record_backend *backend, const char *name, char **bytes,
                size_t *size);
    int (*remove)(sonde__record_backend *backend, const char *name);
    /* The path on this machine of a file that may be mapped; borrowed until the next
     * call. The op may be NULL: the store has no place for one. */
    const char *(*place)(sonde__record_backend *backend, const char *name);
    /* Locks the folder for writing until destroy; EBUSY if another process holds it. */
    int (*lock)(sonde__record_backend *backend, const char *folder);
    /* In a forked child: gives up its part of the lock, which stays the parent's. */
    void (*unlock)(sonde__record_backend *backend);
    /* Creates a file (EEXIST), or opens an existing one to continue it; end is its size.
     */
    int (*create)(sonde__record_backend *backend, const char *name,
                  sonde__record_file **out);
    int (*open)(sonde__record_backend *backend, const char *name,
                sonde__record_file **out);

    int (*append)(sonde__record_file *file, const void *bytes, size_t size);
    int (*settle)(sonde__record_file *file);
    /* Overwrites bytes before the end. Everything must be settled. */
    int (*write_at)(sonde__record_file *file, uint64_t offset, const void *bytes,
                    size_t size);
    /* *got: bytes read, less than size only at the end of the file. */
    int (*read_at)(sonde__record_file *file, uint64_t offset, void *bytes, size_t size,
                   size_t *got);
    int (*truncate)(sonde__record_file *file, uint64_t size);
    int (*sync)(sonde__record_file *file);
    /* Announces a sync of the file: a sync of another file may then write both. */
    void (*begin_sync)(sonde__record_file *file);
    /* Renames the file to its final name. */
    int (*publish)(sonde__record_file *file, const char *old_name, const char *new_name);
    /* True if the file has been removed from its folder. */
    bool (*is_lost)(sonde__record_file *file);
    /* Takes the file; NULL is fine. */
    void (*close)(sonde__record_file *file);
} sonde__record_backend_ops;

struct sonde__record_backend {
    const sonde__record_backend_ops *ops;
    double slow; /* seconds that a call may take though nothing is wrong */
};

struct sonde__record_file {
    const sonde__record_backend_ops *ops;
    uint64_t end; /* settled bytes */
    bool in_bulk; /* a hint of the writer: a large amount follows */
    bool small;   /* lines beside the data: has_room (below) is not asked */
};

/* True if failed is an error that may pass (EIO and its like), after a wait of 1, 2, 4
 * ... ms; *attempts begins with 0. False after 255 ms in total:
 *
 *     do { failed = ...; } while (sonde__record_try_again(&attempts, failed)); */
bool sonde__record_try_again(int *attempts, int failed);
/* Cuts a file to end, the length that is good. *longer: it failed; the next append begins
 * at end all the same, and the file is to be cut again before it is closed. */
int sonde__record_trim(sonde__record_file *file, uint64_t end, bool *longer);
/* Creates a file; one of the same name, which a failed attempt left, is emptied. */
int sonde__record_claim(sonde__record_backend *backend, const char *name,
                        sonde__record_file **out);

/* Stores in a folder of this machine. path is copied. */
SONDE_API SONDE_CHECKED sonde_err sonde__record_backend_local(const char *path,
                                                              sonde__record_backend **out,
                                                              sonde_diag *diag);
/* Appending to files of a local backend fails with ENOSPC while has_room says no. It is
 * asked by the backend's thread. */
void sonde__record_backend_limit(sonde__record_backend *backend,
                                 bool (*has_room)(void *user), void *user);

#endif
