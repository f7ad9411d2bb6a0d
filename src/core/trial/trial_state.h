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
#include "trial/trial_files.h"
#include "trial/items.h"

#include <sonde/trial.h>
#include <jansson.h>

typedef struct sonde__smdebug sonde__smdebug;

#define SONDE__NO_TIME 1 /* a step ended at an unknown time */

typedef struct sonde__trial_worker {
    int rank;
    char *name; /* "w0000" */
    char *path; /* of its folder */
    sonde__trial_items items[SONDE_FORM_COUNT];
    sonde__trial_file_list files[SONDE__FILE_OTHER];   /* by kind; of indexes: none */
    sonde__trial_progress progress[SONDE__FILE_OTHER]; /* of segments: only listed */
    sonde__trial_progress catalogue, resumes;
    sonde__trial_progress listed;            /* files.jsonl (listed_files.c) */
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
    sonde__smdebug *smdebug;            /* NULL: a run of Sonde */
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

/* --- listed_files.c ---------------------------------------------------------------- */

/* Writers that resumed a worker's files, and what they supersede.
 *
 * Each writer has files of its own. A line of generations.jsonl, written before them,
 * gives the number of its first file of each kind and its first global step. In the files
 * of a writer, the steps from the first step of any later writer on are superseded: those
 * not read yet are skipped (sonde__trial_counts), those already read are removed, and
 * followers learn of it through trial->cuts. */

/* Reads new lines and removes what they supersede. */
sonde_err sonde__trial_generations_read(sonde_trial *trial, sonde__trial_worker *worker,
                                        sonde_diag *diag);
/* Reads what is new in the current file of a kind. */
typedef sonde_err sonde__trial_read_fn(sonde_trial *trial, sonde__trial_worker *worker,
                                       sonde__record_file_kind kind, sonde_diag *diag);
/* Reads the numbered files of a kind to their present end, one after another. */
sonde_err sonde__trial_read_files(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde__record_file_kind kind,
                                  sonde__trial_read_fn *read_on, sonde_diag *diag);
/* Whether a record of the current file at a global step is to be taken; counts it if
 * it is superseded. */
bool sonde__trial_counts(const sonde_trial *trial, sonde__trial_worker *worker,
                         int64_t global);

/* --- listed_files.c ---------------------------------------------------------------- */

/* The files of a worker against its list of them, files.jsonl.
 *
 * Rows, lines and values have checks of their own. The list finds what these cannot:
 * files that are missing, too short or too long, that come from another run, or whose
 * heads or rows were replaced by other valid ones. What was noted of a file before is not
 * noted again. Runs without a list are not checked. */

/* Reads the new lines of the list and checks the file of each: its size and its hash; of
 * a segment the hash is checked only to verify. After the end of the worker: that the
 * list is complete. Damage is noted; the only error is SONDE_ENOMEM. */
sonde_err sonde__trial_listed_read(sonde_trial *trial, sonde__trial_worker *worker,
                                   sonde_diag *diag);

/* --- row_files.c ------------------------------------------------------------------- */

/* The index files of a worker, read into items. */

/* Reads all new lines. Bad lines are noted as damage; the only error is SONDE_ENOMEM. */
sonde_err sonde__trial_index_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);

/* --- run_file.c -------------------------------------------------------------------- */

/* run.json, end.json and state.json, and what follows from them: the status
 * of a run and the last step that is complete. */

/* Reads a small file with a JSON object; where: its path in the run. *found: it exists.
 * *object is new, or NULL without a file or if it is damaged, which is noted. */
sonde_err sonde__trial_load_object(sonde_trial *trial, const char *where, bool *found,
                                   json_t **object, sonde_diag *diag);
/* *found: run.json exists. SONDE_EUNSUPPORTED: the run has a newer format. */
sonde_err sonde__trial_run_read(sonde_trial *trial, bool *found, sonde_diag *diag);
sonde_err sonde__trial_end_read(sonde_trial *trial, sonde_diag *diag);
sonde_err sonde__trial_state_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);
/* Sets the status and the last complete step from what has been read. */
void sonde__trial_update_status(sonde_trial *trial);
/* Seconds since 1970 of "2026-01-31T12:00:00.000000Z"; -1 for any other text, and
 * NULL. */
double sonde__trial_seconds(const char *text);

/* --- row_files.c ------------------------------------------------------------------- */

/* The binary files of a worker: ended steps, vital signs, sketches.
 *
 * Each is a head and then rows or records, which a writer may be appending to. Damage is
 * noted; the only error is SONDE_ENOMEM. */

sonde_err sonde__trial_step_rows_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag);
sonde_err sonde__trial_stats_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);
sonde_err sonde__trial_sketches_read(sonde_trial *trial, sonde__trial_worker *worker,
                                     sonde_diag *diag);

/* Whether the first size bytes of a file are the head of its kind. *items gets the
 * number of rows that the head gives; a sketch file's head gives none. For the fuzzer. */
SONDE_API bool sonde__trial_head_read(sonde__record_file_kind kind, const char *head,
                                      size_t size, uint64_t *items);

/* --- trial_catalogue.c ---------------------------------------------------------------------- */

/* The workers of a trial: their folders, items and ended steps. */

/* Adds a worker and lists the files in its folder. *out (may be NULL) is borrowed. */
sonde_err sonde__trial_add_worker(sonde_trial *trial, int rank, const char *name,
                                  sonde__trial_worker **out, sonde_diag *diag);
void sonde__trial_worker_destroy(sonde__trial_worker *worker);
/* Adds an item whose tensor, step and range have been checked. */
sonde_err sonde__trial_worker_add(sonde_trial *trial, sonde__trial_worker *worker,
                                  int form, const sonde__trial_item *item,
                                  sonde_diag *diag);

/* --- ended steps ------------------------------------------------------------------ */

/* Notes that the worker ended a step (an index) at a time. A later time for the same
 * step is ignored. False: out of memory. */
bool sonde__trial_worker_ended(sonde_trial *trial, sonde__trial_worker *worker,
                               uint32_t step, int64_t time);
bool sonde__trial_worker_has_ended(const sonde__trial_worker *worker, uint32_t step);
/* When the last worker ended a step, or the one of a rank >= 0; 0: none has, or the
 * time is not known. */
int64_t sonde__trial_ended_at(const sonde_trial *trial, uint32_t step, int rank);
/* Whether all workers have ended a step. */
bool sonde__trial_step_complete(const sonde_trial *trial, const sonde__trial_step *step);

/* --- trial_catalogue.c ------------------------------------------------------------- */

/* The tensors of a trial and their collections.
 *
 * Tensors of several workers with one name are one tensor; role, dtype and shape are
 * those of its first declaration. */

/* Declares a tensor, or finds the one of that name. */
sonde_err sonde__trial_declare(sonde_trial *trial, const sonde_tensor_info *info,
                               uint32_t *tensor, sonde_diag *diag);
/* Whether a tensor has exactly that name. */
bool sonde__trial_known(const sonde_trial *trial, const char *name, uint32_t *tensor);
/* Adds a tensor to a collection. False: out of memory. */
bool sonde__trial_join(sonde_trial *trial, uint32_t tensor, const char *collection);

/* Reads the lines that were appended to a worker's catalogue. */
sonde_err sonde__trial_catalogue_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag);
/*
 * The trial's id of a worker's tensor, whose catalogue line may still have to be read. If
 * there is none, that is noted as damage, and the tensor gets the name that the header of
 * the closed segment gives its value, or else one made of its number. line and segment:
 * of the value, or NULL. *tensor is SONDE__NONE if the number is too large to be meant.
 */
sonde_err sonde__trial_worker_tensor(sonde_trial *trial, sonde__trial_worker *worker,
                                     uint32_t id, const sonde__record_index_line *line,
                                     const sonde__trial_file *segment, uint32_t *tensor,
                                     sonde_diag *diag);

/* --- value.c ----------------------------------------------------------------------- */

/* From an item to what it stands for: a value, a row or a sketch.
 *
 * Bytes are mapped, unpacked if they are compressed, and checked. */

/* A raw value whose hash is right. The view is borrowed as sonde_trial_value says. */
sonde_err sonde__trial_load_value(sonde_trial *trial, sonde__trial_worker *worker,
                                  const sonde__trial_raw_item *item, sonde_view *view,
                                  sonde_diag *diag);

/* Rows first ... end - 1 of a worker, mapped; zeroed: none. For one query, in which
 * each file is looked at once. */
typedef struct sonde__trial_rows {
    const sonde__record_stats_row *rows;
    uint32_t first, end;
} sonde__trial_rows;
/* A row, borrowed until the trial closes; rows is moved to it if need be. */
sonde_err sonde__trial_load_row(sonde_trial *trial, sonde__trial_worker *worker,
                                uint32_t row, sonde__trial_rows *rows,
                                const sonde__record_stats_row **out, sonde_diag *diag);
sonde_err sonde__trial_load_sketch(const sonde_trial *trial, sonde__trial_worker *worker,
                                   const sonde__trial_sketch_item *item,
                                   sonde_sketch *sketch, sonde_diag *diag);

/* --- cursor.c ---------------------------------------------------------------------- */

/* What tests see of a cursor. */

/* Bytes that a cursor has asked the kernel to read ahead. */
SONDE_API uint64_t sonde__trial_cursor_fetched(const sonde_trial_cursor *cursor);

#endif
