/*
 * recorder.h - records tensors in a run directory (docs/format.md).
 *
 * What a hook (<sonde/hook.h>) records with: options of the run, how it ended, and what a
 * crashed writer left. A value is copied into a ring in memory and the call returns; one
 * thread of the recorder writes, hashes and syncs.
 *
 *     producer --put--> ring --writer thread--> segment, statistics, sketches, steps
 *
 * A fault in recording never stops the producer: a full disk or a missing folder is
 * logged once and retried after 1, 2, 4 ... 128 ms. The records wait in the ring, and
 * raw values that find no room in it hold up the producer (when_full); after wait_seconds
 * records are lost and counted by cause; closing the hook reports them.
 *
 * A value costs a memcpy and about 10 ns. Memory is allocated only for values larger than
 * a quarter of the ring, and for tensors beyond the 65,536th that are declared after the
 * first step.
 */
#ifndef SONDE_RECORDER_H
#define SONDE_RECORDER_H

#include <sonde/options.h>
#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What put does when the ring is full. */
typedef enum sonde_when_full {
    SONDE_WHEN_FULL_DEFAULT = 0, /* raw values wait; statistics are dropped and counted */
    SONDE_WHEN_FULL_WAIT = 1,
    SONDE_WHEN_FULL_DROP = 2
} sonde_when_full;

/* Values of resume_step. */
enum {
    SONDE_RESUME_BEHIND = 0, /* after the last complete step */
    SONDE_RESUME_ANEW = -1   /* at the first step */
};

/* Value of resume: the run in the folder, whatever its id; a new run if there is none. */
#define SONDE_RESUME_ANY "any"

typedef struct sonde_recorder_options {
    size_t size;      /* sizeof(sonde_recorder_options) */
    const char *path; /* of the run; a new path or an empty folder */
    int rank, world;  /* of this worker; 0 and 1 (or 0) for a single one */
    /* Resumes an existing run: its id, or SONDE_RESUME_ANY; NULL starts a new run. The
     * run continues at resume_step of resume_mode (of SONDE_MODE_GLOBAL: a global step),
     * the step of the checkpoint. Records of that step and later ones stay in the files
     * and are superseded: readers ignore them. */
    const char *resume;
    sonde_mode resume_mode;
    int64_t resume_step; /* or SONDE_RESUME_ */
    /* 0: 64 MiB. Any size is raised to four times the largest tensor of the catalogue,
     * up to 256 MiB; a larger value is copied to a block of its own, one at a time. */
    size_t ring_bytes;
    size_t segment_bytes;   /* 0: 64 MiB */
    double segment_seconds; /* 0: 30 s */
    sonde_when_full when_full;
    /* How long records wait for a disk that fails or hangs before they are lost, and how
     * long create (5 s longer) and close wait without progress; 0: 30 s; INFINITY: for
     * ever. */
    double wait_seconds;
    bool compress;       /* zstd level 1, bytes shuffled where that helps */
    const char *program; /* these four go to run.json; NULL: omitted */
    const char *model;
    const char *graph;
    const char *save; /* a JSON object */
} sonde_recorder_options;

/* How a run ended; in end.json. */
typedef enum sonde_run_end {
    SONDE_RUN_FINISHED = 0,
    SONDE_RUN_INTERRUPTED = 1,
    SONDE_RUN_FAILED = 2,
    SONDE_RUN_STOPPED_BY_RULE = 3
} sonde_run_end;

/* Writes the records that a dead writer of a worker left in its ring (docs/format.md)
 * into the files of the run, which otherwise stays as it is. Trials, and recorders that
 * resume, do so themselves. *records: how many there were. SONDE_EBUSY: the writer is
 * alive. With the address of a store: also sends what the worker left on this machine;
 * SONDE_ENOTFOUND: there is nothing. */
SONDE_API SONDE_CHECKED sonde_err sonde_recorder_recover(const char *path, int rank,
                                                         uint64_t *records,
                                                         sonde_diag *diag);

/* What a worker has left on this machine of a run at the address of a store. */
typedef struct sonde_spool {
    const char *path;     /* the address */
    const char *folder;   /* of this machine */
    const char *endpoint; /* AWS_ENDPOINT_URL of the writer; "": none */
    int rank;
    uint64_t files, bytes; /* that are not in the store */
    bool in_use;           /* the writer is alive */
} sonde_spool;

typedef void sonde_spool_seen(void *user, const sonde_spool *spool);
/* Calls seen for each worker. spool is borrowed for the call. */
SONDE_API SONDE_CHECKED sonde_err sonde_recorder_spools(sonde_spool_seen *seen,
                                                        void *user, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
