/*
 * recorder.h - writes tensors into a run directory (docs/format.md).
 *
 * A recorder is a sink: taps that end in it are recorded. A program without an observer calls
 * put, put_vitals and end_step directly, or better uses a watch (<sonde/watch.h>). In both
 * cases the value is copied into a ring in memory and the call returns; a thread of the
 * recorder writes, hashes and syncs.
 *
 *     producer --put--> ring --writer thread--> segment, statistics, sketches, steps
 *
 * A fault in recording never stops the producer: a full disk, a missing folder and the like are
 * logged once, counted by cause, retried, and reported by stats and close. Configuration errors
 * are errors of create.
 *
 * One producing thread for a recorder. Cost of put: a memcpy and some 10 ns. Nothing is
 * allocated there, but for values larger than a quarter of the ring, and tensors beyond the
 * 65,536th that are declared after create.
 */
#ifndef SONDE_RECORDER_H
#define SONDE_RECORDER_H

#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a put does when the ring is full. */
typedef enum sonde_when_full {
    SONDE_WHEN_FULL_DEFAULT = 0, /* raw values wait, statistics are dropped and counted */
    SONDE_WHEN_FULL_WAIT = 1,
    SONDE_WHEN_FULL_DROP = 2
} sonde_when_full;

/* Of resume_step. */
enum {
    SONDE_RESUME_BEHIND = 0, /* after the last complete step */
    SONDE_RESUME_ANEW = -1   /* at the first step */
};

/* Of resume: the run in the folder, whatever its id; a new one if there is none. */
#define SONDE_RESUME_ANY "any"

typedef struct sonde_recorder_options {
    const char *path; /* of the run; must not exist, or be an empty folder */
    int rank, world;  /* of this worker; 0 and 1 (0 counts as 1) where there is one */
    /* To resume an existing run: its id, or SONDE_RESUME_ANY. NULL: a new run. It resumes at
     * resume_step of resume_mode (with SONDE_MODE_GLOBAL: a global step), the step of the
     * checkpoint. Data of that step and later ones is superseded: it stays in the files, but
     * readers do not see it. */
    const char *resume;
    sonde_mode resume_mode;
    int64_t resume_step; /* or SONDE_RESUME_ */
    /* 0: 64 MiB. At least four times the largest tensor of the catalogue is taken, up to
     * 256 MiB; a larger value goes through memory of its own, one at a time. */
    size_t ring_bytes;
    size_t segment_bytes;   /* 0: 64 MiB */
    double segment_seconds; /* 0: 30 s */
    sonde_when_full when_full;
    bool compress;       /* zstd level 1, shuffled where that helps */
    const char *program; /* these four go to run.json; NULL: left out */
    const char *model;
    const char *graph;
    const char *save; /* a JSON object */
} sonde_recorder_options;

typedef struct sonde_recorder sonde_recorder;

typedef struct sonde_recorder_stats {
    uint64_t records, bytes; /* raw values written, and their bytes before compression */
    uint64_t rows, sketches;
    uint64_t lost_ring_full, lost_disk_full, lost_io_error;
    uint64_t waits;        /* puts that found the ring full and waited */
    double waited_seconds; /* altogether */
    int64_t last_step;     /* global; complete in the files; -1: none */
} sonde_recorder_stats;

/* How a run ended; in end.json. */
typedef enum sonde_run_end {
    SONDE_RUN_FINISHED = 0,
    SONDE_RUN_INTERRUPTED = 1,
    SONDE_RUN_FAILED = 2,
    SONDE_RUN_STOPPED_BY_RULE = 3
} sonde_run_end;

/* Makes the folders, writes run.json and starts the writer. Of several workers the first
 * writes run.json and the others, of the same world, join. options are copied; catalogue is
 * borrowed until close and may grow. A run that is there already: SONDE_EEXIST; a resume id
 * that is not the run's: SONDE_EINVAL; another process that writes it: SONDE_EBUSY. */
SONDE_API SONDE_CHECKED sonde_err sonde_recorder_create(
    const sonde_recorder_options *options, const sonde_catalogue *catalogue,
    sonde_recorder **out, sonde_diag *diag);
/* Drains the ring, closes all files, writes end.json and frees the recorder, whatever it
 * returns: SONDE_EIO if anything was lost, with how much and why. text may be NULL. */
SONDE_API sonde_err sonde_recorder_close(sonde_recorder *recorder, sonde_run_end reason,
                                         const char *text, sonde_diag *diag);

/* For taps. Belongs to the recorder. */
SONDE_API sonde_sink *sonde_recorder_sink(sonde_recorder *recorder);
/* Values of the tensor will come. The catalogue of the run begins with all that are expected
 * when the first value comes, in the order of their ids, which is then that of a trial and of
 * its rules; a tensor that is not is listed when its first value comes. Taps that end in the
 * sink say so of theirs. SONDE_ERANGE, SONDE_ENOMEM. */
SONDE_API SONDE_CHECKED sonde_err sonde_recorder_expect(sonde_recorder *recorder,
                                                        uint32_t id, sonde_diag *diag);
/* The collections a tensor belongs to, for the catalogue's line: before its first put, of one
 * that is expected before any. Copied. */
SONDE_API SONDE_CHECKED sonde_err sonde_recorder_collections(sonde_recorder *recorder,
                                                             uint32_t id,
                                                             const char *const *names,
                                                             size_t count,
                                                             sonde_diag *diag);

/* The value of tensor id of the catalogue; the view may be strided. */
SONDE_API void sonde_recorder_put(sonde_recorder *recorder, uint32_t id,
                                  const sonde_coordinate *at, const sonde_view *view);
SONDE_API void sonde_recorder_put_vitals(sonde_recorder *recorder, uint32_t id,
                                         const sonde_coordinate *at,
                                         const sonde_vitals *vitals);
SONDE_API void sonde_recorder_put_sketch(sonde_recorder *recorder, uint32_t id,
                                         const sonde_coordinate *at,
                                         const sonde_sketch *sketch);
/* Everything of the step has been put: readers see it from now on, with this moment as its
 * time. Cost: a look at the clock and 32 bytes. A step of which nothing was put costs nothing:
 * readers take it for passed when a later one is. (But several workers tell of each, as a step
 * is complete when all of them have passed it.) */
SONDE_API void sonde_recorder_end_step(sonde_recorder *recorder,
                                       const sonde_coordinate *at);
/* Waits until all that was put is in the files (not: synced), or counted as lost; false
 * after seconds. */
SONDE_API bool sonde_recorder_drain(sonde_recorder *recorder, double seconds);
/* The step that each mode begins with; of SONDE_MODE_GLOBAL the global one. 0 of a new run. */
SONDE_API void sonde_recorder_next(const sonde_recorder *recorder,
                                   int64_t next[SONDE_MODE_COUNT]);
SONDE_API void sonde_recorder_get_stats(const sonde_recorder *recorder,
                                        sonde_recorder_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
