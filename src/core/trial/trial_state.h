/*
 * trial_state.h - a trial and its workers: what has been read of a run. Internal.
 *
 * A refresh reads in an order that keeps a live reader consistent without a lock: first
 * which workers have ended (end.json, state.json), then for each worker the resumes, the
 * ended steps, and only then what was written before those steps (indexes, statistics,
 * sketches); the catalogue whenever a tensor is unknown. So everything of a step that has
 * ended is there, and all data once the run has ended.
 */
#ifndef SONDE_TRIAL_TRIAL_STATE_H
#define SONDE_TRIAL_TRIAL_STATE_H

#include "base/names.h"
#include "storage/store.h"
#include "trial/damage.h"
#include "trial/items.h"
#include "trial/mapping.h"
#include "trial/trial_files.h"

#include <sonde/trial.h>

typedef struct sonde__trial_foreign sonde__trial_foreign;

#define SONDE__NO_TIME 1 /* a step ended at an unknown time */

typedef struct sonde__trial_worker {
    int rank;
    char *name; /* "w0000" */
    char *path; /* of its folder */
    sonde__trial_items items[SONDE__KINDS];
    sonde__trial_file_list files[SONDE__FILE_OTHER];   /* by kind; of indexes: none */
    sonde__trial_progress progress[SONDE__FILE_OTHER]; /* of segments: only listed */
    sonde__trial_progress catalogue, resumes;
    sonde__trial_progress listed;            /* files.jsonl (listed_files.h) */
    uint64_t listed_next[SONDE__FILE_OTHER]; /* by kind: after the last number in it */
    uint64_t listed_catalogue, listed_generations; /* bytes; 0: not in it */
    int64_t file_count; /* lines of it, as state.json counts; -1: there is no list */
    int64_t generation; /* of the writer, as state.json says */
    bool list_checked;
    bool waited;   /* for another process that recovers the ring */
    bool no_end;   /* that end.json is missing was noted */
    bool no_match; /* that its state.json is of another run was noted */
    uint32_t *ids; /* by the worker's id: the trial's id */
    size_t id_count, id_capacity;
    uint32_t *layouts; /* by the trial's id: layout of the last value */
    size_t layout_count, layout_capacity;
    int64_t *ended; /* by index of the step: when it ended; 0: not yet */
    size_t ended_count, ended_capacity;
    int64_t last_ended; /* global step; -1: none */
    sonde__record_generation *generations;
    size_t generation_count, generation_capacity;
    int64_t limit;       /* steps from here on are superseded in the file being read */
    uint64_t superseded; /* records so far */
    uint64_t superseded_steps;
    bool said_ended, crashed;
    double beat;    /* the heartbeat that was read last */
    double beat_at; /* when this reader first saw it, on its own clock */
    bool beats;     /* this reader has seen it grow */
    bool no_state;  /* its state.json is damaged */
    bool no_ring;   /* what a dead writer left in its ring was recovered, or cannot be */
    uint64_t lost;
    int64_t put; /* records that its writers took, as state.json counts; -1: not known */
    uint32_t stats_rows;              /* in all files, damaged ones included */
    bool has_catalogue, no_catalogue; /* it exists; that it does not was noted */
} sonde__trial_worker;

typedef struct sonde__trial_step_list {
    int64_t *steps;
    size_t count, capacity;
    bool valid;
} sonde__trial_step_list;

struct sonde_trial {
    char *path;              /* a folder of this machine */
    char *address;           /* of the run in a store, of which that is a copy; or NULL */
    sonde__store_copy *copy; /* likewise */
    int64_t begin, end;      /* global steps to read; end 0: no end */
    char *id, *program, *model, *created, *end_reason, *end_text;
    char host[256];
    int world;                   /* from run.json; else 1 */
    bool run_sealed, end_sealed; /* run.json and end.json have a checksum */
    double ended_at;             /* seconds since 1970; -1: not known */
    bool ended;
    sonde_run_status status;
    int64_t last_complete; /* global step */
    int64_t *cuts;         /* the global step of every resume found so far */
    size_t cut_count, cut_capacity;
    bool everything;               /* read superseded records too, to verify them */
    sonde__trial_worker **workers; /* by rank */
    size_t worker_count, worker_capacity;
    sonde_catalogue *catalogue;
    sonde__names collections;
    sonde__names members; /* "12/weights": tensor 12 belongs to that collection */
    sonde__trial_steps steps;
    sonde__trial_layouts layouts;
    uint64_t bytes;                                    /* of readable raw values */
    sonde__trial_step_list lists[SONDE_MODE_COUNT][2]; /* complete steps; all steps */
    sonde__trial_damage_list damage;
    sonde__trial_scratch packed, value; /* where values are unpacked */
    sonde__trial_scratch buffer;        /* where files are read */
    const sonde__trial_foreign *format; /* NULL: a run of Sonde */
    void *foreign;                      /* what that format keeps */
    bool changed;                       /* by the current refresh */
    uint64_t question; /* counts queries; a file is looked at once for each */
};

/* Whether a global step is to be read. */
static inline bool sonde__trial_in_range(const sonde_trial *trial, int64_t global)
{
    return global >= trial->begin && (trial->end == 0 || global < trial->end);
}

/* --- opening to verify -------------------------------------------------------------- */

/* sonde_trial_open that calls report with all damage as it is found, and reads superseded
 * records too. */
sonde_err sonde__trial_open_all(const char *path,
                                void (*report)(void *user, const char *text), void *user,
                                sonde_trial **out, sonde_diag *diag);

#endif
