/*
 * store.h - runs in an object store, s3://bucket/prefix, as folders of this machine.
 * Internal.
 *
 *                   reader                                writer
 *     store   -- copy: what is needed --> folder    folder -- spool: whole files --> store
 *
 * A copy holds the small files of a run whole, and the parts of its segments that have
 * been read; it is removed when it closes. A spool is the folder of a run while
 * it is written: closed files are sent to the store and removed, in an order in which no
 * reader finds a step before its data.
 *
 * The code of both is a shared object, sonde/sonde-s3.so beside libsonde, which is loaded
 * at the first address of a store. Any thread; one copy or spool, one thread at a time.
 */
#ifndef SONDE_STORE_STORE_H
#define SONDE_STORE_STORE_H

#include <sonde/error.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__STORE_PATH = 1024 };

/* Whether path is an address: it begins with a scheme and ://, or with s3: in any case.
 * Only s3://bucket/prefix can be opened; the others are errors that say so. */
bool sonde__store_is_address(const char *path);

/* --- reading ------------------------------------------------------------------------ */

typedef struct sonde__store_copy sonde__store_copy;

/* Copies what a reader needs to open the run. SONDE_ENOTFOUND: there is none. */
sonde_err sonde__store_copy_open(const char *url, sonde__store_copy **out,
                                 sonde_diag *diag);
/* The folder of the run; borrowed. */
const char *sonde__store_copy_folder(const sonde__store_copy *copy);
/* The folder of an open copy of the run at url; NULL: none is open. Borrowed until it is
 * closed. */
const char *sonde__store_copy_at(const char *url);
/* Copies what the writer has added. */
sonde_err sonde__store_copy_refresh(sonde__store_copy *copy, sonde_diag *diag);
/* NULL is fine. */
void sonde__store_copy_close(sonde__store_copy *copy);
/* Fetches bytes of a file of an open copy; count UINT64_MAX: all. Any other path:
 * SONDE_OK at once. Called before the bytes are read. */
sonde_err sonde__store_fetch(const char *path, uint64_t offset, uint64_t count,
                             sonde_diag *diag);
/* Whether sonde__store_fetch may do anything; costs one load. */
bool sonde__store_has_copies(void);
/* Sends a changed file of an open copy to the store; any other path: SONDE_OK. */
sonde_err sonde__store_send(const char *path, sonde_diag *diag);

/* Called with the name of each folder directly below an address. */
typedef void sonde__store_seen(void *user, const char *name);
sonde_err sonde__store_folders(const char *url, sonde__store_seen *seen, void *user,
                               sonde_diag *diag);
/* Appends to an object of a run. */
sonde_err sonde__store_append(const char *url, const char *name, const void *bytes,
                              size_t size, sonde_diag *diag);
/* Whether there is such an object. */
SONDE_API sonde_err sonde__store_exists(const char *url, const char *name, bool *exists,
                                        sonde_diag *diag);

/* --- writing ------------------------------------------------------------------------ */

typedef struct sonde__store_spool sonde__store_spool;

/* Requests to the store have time limits of their own; a system call on a file has none. */
typedef struct sonde__store_progress {
    atomic_int asking;      /* requests under way */
    _Atomic uint64_t turns; /* their begins and ends */
} sonde__store_progress;

typedef struct sonde__store_writer {
    int rank, world;
    bool resumes; /* the run at the address, if there is one */
    bool sends;   /* with resumes: only what a dead process left on this machine */
    sonde__store_progress *progress; /* of opening; NULL: is not of interest */
} sonde__store_writer;

/* A spool on this machine; endpoint: AWS_ENDPOINT_URL of its writer, or "". */
typedef void sonde__store_spool_seen(void *user, const char *url, const char *folder,
                                     const char *endpoint);
/* Calls seen for each spool that has not been sent whole. */
sonde_err sonde__store_spools(sonde__store_spool_seen *seen, void *user,
                              sonde_diag *diag);

/* The folder in which the run at url is written; new, freed with sonde__free. */
SONDE_API sonde_err sonde__store_spool_folder(const char *url, char **out,
                                              sonde_diag *diag);
/* Prepares that folder. SONDE_EEXIST: there is a run, and writer does not resume it. */
sonde_err sonde__store_spool_open(const char *url, const sonde__store_writer *writer,
                                  sonde__store_spool **out, sonde_diag *diag);
const char *sonde__store_spool_path(const sonde__store_spool *spool);
/* Starts sending, once the writer has made run.json. */
SONDE_API sonde_err sonde__store_spool_start(sonde__store_spool *spool, const char *run,
                                             size_t size, sonde_diag *diag);
/* Whether the spool may grow. Any thread. */
bool sonde__store_spool_has_room(const sonde__store_spool *spool);
/* Waits until everything is sent, and removes the folder. SONDE_EIO: something is left.
 */
sonde_err sonde__store_spool_finish(sonde__store_spool *spool, sonde_diag *diag);
/* Stops sending; what is not sent stays in the folder. NULL is fine. */
SONDE_API void sonde__store_spool_close(sonde__store_spool *spool);

/* --- what the object has ------------------------------------------------------------ */

/* folder: that of a copy or spool, with run/ in it; it exists. */
typedef struct sonde__store_ops {
    sonde_err (*copy_open)(const char *url, const char *folder, void **out,
                           sonde_diag *diag);
    sonde_err (*copy_refresh)(void *copy, sonde_diag *diag);
    sonde_err (*copy_fetch)(void *copy, const char *name, uint64_t offset, uint64_t count,
                            sonde_diag *diag);
    sonde_err (*copy_send)(void *copy, const char *name, sonde_diag *diag);
    void (*copy_close)(void *copy);
    sonde_err (*spool_open)(const char *url, const char *folder,
                            const sonde__store_writer *writer, void **out,
                            sonde_diag *diag);
    sonde_err (*spool_start)(void *spool, const char *run, size_t size, sonde_diag *diag);
    bool (*spool_has_room)(const void *spool);
    sonde_err (*spool_finish)(void *spool, sonde_diag *diag);
    void (*spool_close)(void *spool);
    sonde_err (*folders)(const char *url, sonde__store_seen *seen, void *user,
                         sonde_diag *diag);
    sonde_err (*append)(const char *url, const char *name, const void *bytes, size_t size,
                        sonde_diag *diag);
    sonde_err (*exists)(const char *url, const char *name, bool *exists,
                        sonde_diag *diag);
} sonde__store_ops;

#endif
