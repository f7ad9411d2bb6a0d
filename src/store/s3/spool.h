/*
 * spool.h - a run on its way to a store: the folder in which it is written, and the
 * threads that send its files. Internal.
 *
 *     <folder>/sent          exists once run.json is in the store
 *     <folder>               locked while a spool opens, or is removed
 *     <folder>/w0000.lock    a folder that is locked while a process has the spool open
 *     <folder>/address       where it goes: store.c
 *     <folder>/run/...       the run; a numbered file is removed once it is closed and sent
 *
 * A look takes a second at most, and sends in this order:
 *
 *     run.json, generations.jsonl, catalogue.jsonl, findings, checkpoints
 *     by number: segments, each before its index, stats and sketches;
 *         a file of steps once all files are sent that were open when it was closed
 *     files.jsonl
 *     state.json that says "ended", end.json
 *
 * A second thread sends state.json while the run lasts, so that a large file does not
 * delay the heartbeat. In rank 0 it also takes requests to the run, control.jsonl, from
 * the store.
 */
#ifndef SONDE_S3_SPOOL_H
#define SONDE_S3_SPOOL_H

#include "store/s3/objects.h"
#include "storage/store.h"

#include <pthread.h>
#include <time.h>

enum { SONDE__S3_SPOOL_KINDS = 4 };

/* A file of the spool, at one look. */
typedef struct sonde__s3_spooled {
    char name[SONDE__S3_NAME]; /* below the run */
    int kind; /* 0 segment or index, 1 stats, 2 sketch, 3 steps; -1: other */
    int rank; /* its place in the order of sending */
    uint64_t number;
    bool part;
    uint64_t size;
    struct timespec changed;
} sonde__s3_spooled;

/* A file that changes: the version that was sent. */
typedef struct sonde__s3_version {
    char *name;
    uint64_t size;
    struct timespec changed;
} sonde__s3_version;

/* A closed file of steps that waits for the files that were open then. */
typedef struct sonde__s3_barrier {
    uint64_t number;
    bool set;
    int64_t highest[SONDE__S3_SPOOL_KINDS]; /* -1: none */
} sonde__s3_barrier;

typedef struct sonde__s3_spool {
    sonde__s3_bucket *bucket;
    char *folder;
    int held; /* descriptor of "<folder>/w0000.lock", locked while the spool is open */
    char worker[32]; /* "w0000" */
    sonde__store_writer writer;
    int entry;      /* of the folder, locked while the spool opens; -1: it is not */
    bool run_sent;  /* run.json is in the store */
    char **fetched; /* numbered files that the store has; removed at the start */
    size_t fetched_count, fetched_capacity;

    /* the sender's */
    sonde__s3_line line;
    sonde__s3_spooled *files;
    size_t count, capacity;
    sonde__s3_version *versions;
    size_t version_count, version_capacity;
    sonde__s3_barrier *barriers;
    size_t barrier_count, barrier_capacity;
    uint64_t most; /* bytes */
    bool final;    /* the writer had ended before this look */
    bool busy;     /* the last look ended early */
    bool keeps;    /* there are files that the writer could not close */
    char fault[512];
    double outage_since;

    /* the heart's */
    sonde__s3_line beat_line;
    char control_etag[SONDE__S3_ETAG];
    size_t control_seen;

    pthread_t sender, heart;
    bool started, hangs;             /* hangs: threads that are not waited for */
    atomic_int users;                /* the handle and the threads; the last one frees */
    bool failed;                     /* the start failed: the folder is removed */
    atomic_bool full, closing, stop; /* closing: the writer has ended */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int running;               /* threads; guarded by lock */
    bool done;                 /* everything is sent; guarded by lock */
    uint64_t sent;             /* files; guarded by lock */
    uint64_t left, left_bytes; /* guarded by lock */
} sonde__s3_spool;

sonde_err sonde__s3_spool_open(const char *url, const char *folder,
                               const sonde__store_writer *writer, void **out,
                               sonde_diag *diag);
sonde_err sonde__s3_spool_start(void *handle, const char *run, size_t size,
                                sonde_diag *diag);
bool sonde__s3_spool_has_room(const void *handle);
sonde_err sonde__s3_spool_finish(void *handle, sonde_diag *diag);
void sonde__s3_spool_close(void *handle);

/* --- spool_send.c ------------------------------------------------------------------- */

const char *sonde__s3_spool_path(const sonde__s3_spool *spool, const char *name,
                                 char *path);
/* Reads a small file of the run; lines: without an incomplete last line. False: it is
 * gone, or memory ran out. */
bool sonde__s3_spool_read(const sonde__s3_spool *spool, const char *name, bool lines,
                          sonde_text *text);
/* One look: sends the files that are ready. *all: nothing is left. */
sonde_err sonde__s3_spool_send(sonde__s3_spool *spool, bool *all, sonde_diag *diag);
/* Sends state.json if it says running and has changed; takes requests. */
sonde_err sonde__s3_spool_beat(sonde__s3_spool *spool, sonde_diag *diag);
void sonde__s3_spool_forget(sonde__s3_spool *spool);

/* --- spool_place.c: the folder ------------------------------------------------------ */

/* Makes the folder, and locks it, until sonde__s3_spool_entered. SONDE_EBUSY: another
 * process has the spool of this worker open. */
sonde_err sonde__s3_spool_enter(sonde__s3_spool *spool, const char *folder,
                                sonde_diag *diag);
void sonde__s3_spool_entered(sonde__s3_spool *spool);
bool sonde__s3_spool_has(const sonde__s3_spool *spool, const char *name);
/* Writes a small file of the run. */
sonde_err sonde__s3_spool_write(const sonde__s3_spool *spool, const char *name,
                                const void *bytes, size_t size, sonde_diag *diag);
/* Whether an earlier process has sent the run's run.json. */
bool sonde__s3_spool_was_sent(const sonde__s3_spool *spool);
void sonde__s3_spool_mark_sent(const sonde__s3_spool *spool);
/* Removes the run. */
void sonde__s3_spool_wipe(sonde__s3_spool *spool);
/* Removes the worker's files, and the rest if no other worker uses the folder. */
void sonde__s3_spool_clear(sonde__s3_spool *spool);
/* Releases the locks. */
void sonde__s3_spool_leave(sonde__s3_spool *spool);

#endif
