/*
 * trial_state.h - a trial, its workers and the files they were read from. Internal.
 *
 * Order of reading, which keeps a live reader consistent without a lock: first who has
 * ended (end.json, state.json), then of each worker who went on with it, then the steps that
 * are complete, then what was written before those (indexes, statistics, sketches), and the
 * catalogue whenever an id is not known. So of a step that is said to be complete everything
 * is there, and if the run had ended, so is all.
 */
#ifndef SONDE_TRIAL_TRIAL_STATE_H
#define SONDE_TRIAL_TRIAL_STATE_H

#include "base/names.h"
#include "trial/store.h"

#include <sonde/trial.h>

enum { SONDE__PATH = 4096 };

/* --- files ------------------------------------------------------------------------ */

/* How far the numbered files of a kind have been read; or a single file that grows. */
typedef struct sonde__trial_progress {
    uint64_t number;  /* of the file being read */
    bool begun;       /* there is one */
    uint64_t offset;  /* read in it */
    uint64_t line;    /* of text: lines read in it */
    uint64_t pieces;  /* of text: how often bytes were read */
    uint64_t size;    /* when it was last looked at */
    uint32_t bad;     /* damaged things in it so far */
    bool end_told;    /* its torn end was noted */
    uint64_t *listed; /* numbers seen on opening, ascending */
    size_t listed_count, listed_capacity, listed_at;
} sonde__trial_progress;

/* A part of a file in memory. Those of a file that grew pile up: each is borrowed by the
 * views that were given out of it. */
typedef struct sonde__trial_mapping {
    const unsigned char *base;
    size_t size;
    uint64_t node; /* which file it is */
    struct sonde__trial_mapping *before;
} sonde__trial_mapping;

/* A segment, a statistics file, a sketch file; or an event file of smdebug's. */
typedef struct sonde__trial_file {
    uint64_t number;
    uint64_t head;  /* bytes in front of the data; 0: not known yet */
    uint64_t size;  /* of the whole file, when it was last looked at */
    uint32_t first; /* of a statistics file: the number of its first row */
    bool closed;    /* it has the name of a closed file */
    bool broken;    /* nothing in it can be found */
    bool looked;    /* of one that grows by rows or records: as one that is over */
    uint64_t look;  /* of the trial, when its length was last seen to be size */
    char *name;     /* where it is not told by number; else NULL */
    sonde__trial_mapping *mapping;
} sonde__trial_file;

typedef struct sonde__trial_file_list {
    sonde__trial_file *items;
    size_t count, capacity;
} sonde__trial_file_list;

/* --- workers ---------------------------------------------------------------------- */

typedef struct sonde__trial_worker {
    int rank;
    char *name; /* "w0000" */
    sonde__trial_store stores[SONDE__KINDS];
    sonde__trial_file_list
        files[SONDE__KINDS + 1]; /* segments, statistics, sketches, steps */
    sonde__trial_progress index, stats, sketch, steps, catalogue, resumes;
    sonde__trial_progress segments; /* listed alone */
    uint32_t *ids; /* of the worker's tensors: those of the trial's catalogue */
    size_t id_count, id_capacity;
    uint32_t *guess; /* by tensor of the trial: the form of its last value */
    size_t guess_count, guess_capacity;
    int64_t *ended; /* by the trial's steps: when it ended; 0: it has not */
    size_t ended_count, ended_capacity;
    int64_t last_ended; /* global; -1: none */
    sonde__record_generation *generations;
    size_t generation_count, generation_capacity;
    int64_t limit;       /* of the file that is read: from here on it is superseded */
    uint64_t superseded; /* records that are */
    uint64_t superseded_steps;
    bool said_ended, crashed;
    bool no_state; /* its state.json is damaged */
    uint64_t lost;
    uint32_t stats_rows;              /* of all files, damaged ones too */
    bool has_catalogue, no_catalogue; /* there is one; that there is none was told */
} sonde__trial_worker;

/* --- the trial -------------------------------------------------------------------- */

typedef struct sonde__trial_step_list {
    int64_t *steps;
    size_t count, capacity;
    bool valid;
} sonde__trial_step_list;

/* Files of a worker beside those of its kinds of items; and a time nobody knows. */
enum { SONDE__STEP_FILES = SONDE__KINDS };
#define SONDE__NO_TIME 1

typedef struct sonde__trial_scratch {
    unsigned char *bytes;
    size_t capacity;
} sonde__trial_scratch;

typedef struct sonde__import_smdebug sonde__import_smdebug;

struct sonde_trial {
    char *path;
    int64_t begin, end; /* global steps that are wanted; end 0: no end */
    char *id, *program, *model, *created, *end_reason, *end_text;
    char host[256];
    int world;       /* as run.json says; 1 if it does not */
    double ended_at; /* seconds since 1970; -1: not known */
    bool world_said, ended;
    sonde_run_status status;
    int64_t last_complete; /* global */
    int64_t *cuts;         /* every time that a worker went back: to which global step */
    size_t cut_count, cut_capacity;
    bool everything;               /* what is superseded is read as well, for verify */
    sonde__trial_worker **workers; /* by rank */
    size_t worker_count, worker_capacity;
    sonde_catalogue *catalogue;
    sonde__names collections;
    sonde__names members; /* "12/weights": tensor 12 is in that collection */
    sonde__trial_steps steps;
    sonde__trial_forms forms;
    uint64_t bytes, torn;
    sonde__trial_step_list lists[SONDE_MODE_COUNT][2]; /* complete ones; all */
    char **damage;
    size_t damage_count, damage_capacity;
    uint64_t damage_more; /* beyond what is kept */
    uint64_t damaged;     /* in all */
    void (*told)(void *user, const char *text);
    void *told_user;
    sonde__trial_scratch packed, value; /* where values are put together */
    sonde__trial_scratch buffer;        /* where files are read into */
    sonde__import_smdebug *smdebug;     /* NULL for a run of our own */
    bool changed;                       /* by the refresh that is going on */
    uint64_t
        look; /* files are looked at once for each; every question begins a new one */
};

/* --- damage (damage.c) ------------------------------------------------------------ */

/* Notes one thing; where is relative to the run. Never fails: what does not fit is counted
 * and told as a number. */
void sonde__trial_damage(sonde_trial *trial, const char *where, const char *found, ...)
    SONDE_PRINTF(3, 4);
/* The same for one of possibly very many in a file: the first few of each are noted one by
 * one, the rest as a number by sonde__trial_damage_flush. */
void sonde__trial_damage_in(sonde_trial *trial, sonde__trial_progress *in,
                            const char *where, const char *found, ...) SONDE_PRINTF(4, 5);
void sonde__trial_damage_flush(sonde_trial *trial, sonde__trial_progress *in,
                               const char *where);
/* A torn end of a file. */
void sonde__trial_torn(sonde_trial *trial, const char *where, const char *found, ...)
    SONDE_PRINTF(3, 4);

/* --- files (files.c, mapping.c) --------------------------------------------------- */

/* run/worker/name to path, which has SONDE__PATH bytes; worker may be NULL. Returns path. */
const char *sonde__trial_path(const sonde_trial *trial, const sonde__trial_worker *worker,
                              const char *name, char *path);
/* The same, relative to the run: what damage is told of. */
const char *sonde__trial_where(const sonde__trial_worker *worker, const char *name,
                               char *where);
/* Bytes up to most, or fewer at the end of the file. Retries what was interrupted. */
sonde_err sonde__trial_read_at(int fd, void *bytes, size_t most, uint64_t offset,
                               size_t *count, const char *path, sonde_diag *diag);
/* The whole of a small file, with a NUL behind it, in trial->buffer. SONDE_ENOTFOUND if
 * there is none. */
sonde_err sonde__trial_read_small(sonde_trial *trial, const char *path, size_t *size,
                                  sonde_diag *diag);
bool sonde__trial_scratch_reserve(sonde__trial_scratch *scratch, size_t size);

/* Called with each complete line, without its newline; text may be changed. Anything but
 * SONDE_OK ends the reading, and that line will be read again. */
typedef sonde_err sonde__trial_line_fn(void *user, char *text, size_t length);
/* Reads the lines that have come to a file since the last time. *found: whether it is
 * there. */
sonde_err sonde__trial_read_lines(sonde_trial *trial, sonde__trial_progress *progress,
                                  const char *path, const char *where,
                                  sonde__trial_line_fn *line, void *user, bool *found,
                                  sonde_diag *diag);
/* Notes numbers of files that are there, before reading. */
bool sonde__trial_progress_list(sonde__trial_progress *progress, uint64_t number);
void sonde__trial_progress_sort(sonde__trial_progress *progress);
/* Whether there is a file behind the one being read, and its number. Asked before reading
 * that one to its end: it does not grow any more then. */
bool sonde__trial_progress_peek(const sonde_trial *trial,
                                const sonde__trial_worker *worker,
                                const sonde__trial_progress *progress,
                                sonde__record_file_kind kind, uint64_t *next);
/* To that file. A gap, and a torn end of the one before, are noted; and who writes it is
 * known then. */
sonde_err sonde__trial_progress_move(sonde_trial *trial, sonde__trial_worker *worker,
                                     sonde__trial_progress *progress,
                                     sonde__record_file_kind kind, uint64_t next,
                                     sonde_diag *diag);
/* Notes a torn end of what nobody writes any more, once. */
void sonde__trial_progress_end(sonde_trial *trial, sonde__trial_progress *progress,
                               const char *where);
void sonde__trial_progress_fini(sonde__trial_progress *progress);

/* The file of a number, new if need be; NULL if memory is out. */
sonde__trial_file *sonde__trial_file_of(sonde__trial_file_list *list, uint64_t number);
/* Opens a numbered file under the name that it has at this moment. -1 with errno. */
int sonde__trial_file_open(const sonde_trial *trial, const sonde__trial_worker *worker,
                           sonde__record_file_kind kind, sonde__trial_file *file,
                           char *path);
/* The bytes [offset, offset + count) of a file, mapped until the trial closes. */
sonde_err sonde__trial_file_map(const sonde_trial *trial,
                                const sonde__trial_worker *worker,
                                sonde__record_file_kind kind, sonde__trial_file *file,
                                uint64_t offset, uint64_t count,
                                const unsigned char **bytes, sonde_diag *diag);
/* Tells the kernel that bytes of a segment's data will be wanted soon. */
void sonde__trial_file_ahead(const sonde_trial *trial, const sonde__trial_worker *worker,
                             uint32_t segment, uint64_t offset, uint64_t count);
void sonde__trial_file_list_fini(sonde__trial_file_list *list);

/* --- opening (trial.c) --------------------------------------------------------------- */

/* sonde_trial_open that tells every damage as it is met, and reads what is superseded too. */
sonde_err sonde__trial_open_all(const char *path,
                                void (*told)(void *user, const char *text), void *user,
                                sonde_trial **out, sonde_diag *diag);
/* *out may be NULL. */
sonde_err sonde__trial_add_worker(sonde_trial *trial, int rank, const char *name,
                                  sonde__trial_worker **out, sonde_diag *diag);

/* --- reading a worker (worker.c, index_file.c, ..., generations.c) ------------------- */

sonde_err sonde__trial_worker_create(sonde_trial *trial, int rank, const char *name,
                                     sonde__trial_worker **out, sonde_diag *diag);
void sonde__trial_worker_destroy(sonde__trial_worker *worker);
/* The trial's id of a worker's tensor. One that no catalogue line declares is noted as
 * damage and goes by the name that its value has in its segment, if there is a line and the
 * segment is closed, else by a name made of its number; a number that cannot be meant is
 * SONDE__NONE. line and segment: of a value, else NULL. */
sonde_err sonde__trial_worker_tensor(sonde_trial *trial, sonde__trial_worker *worker,
                                     uint32_t id, const sonde__record_index_line *line,
                                     sonde__trial_file *segment, uint32_t *tensor,
                                     sonde_diag *diag);
/* The name that a closed segment's own header gives the value of a line; new. NULL: none. */
char *sonde__trial_name_in_header(const sonde_trial *trial,
                                  const sonde__trial_worker *worker,
                                  const sonde__trial_file *segment,
                                  const sonde__record_index_line *line);
/* From now on the worker's id is that tensor. False: no memory. */
bool sonde__trial_worker_map(sonde__trial_worker *worker, uint32_t id, uint32_t tensor);
/* Adds an item of a kind, tensor, step and range already checked. */
sonde_err sonde__trial_worker_add(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde__trial_kind kind, const sonde__trial_item *item,
                                  sonde_diag *diag);
/* Declares a tensor or finds it by its name. */
sonde_err sonde__trial_declare(sonde_trial *trial, const sonde_tensor_info *info,
                               uint32_t *tensor, sonde_diag *diag);
/* Whether a tensor has exactly that name. */
bool sonde__trial_known(const sonde_trial *trial, const char *name, uint32_t *tensor);
/* What stands for a membership in trial->members. Returns key. */
enum { SONDE__MEMBER = 512 };
const char *sonde__trial_member_key(uint32_t tensor, const char *collection,
                                    char key[SONDE__MEMBER]);
bool sonde__trial_join(sonde_trial *trial, uint32_t tensor, const char *collection);
/* The worker has ended a step, at that time. False: no memory. */
bool sonde__trial_worker_ended(sonde_trial *trial, sonde__trial_worker *worker,
                               uint32_t step, int64_t time);
bool sonde__trial_worker_has_ended(const sonde__trial_worker *worker, uint32_t step);

sonde_err sonde__trial_catalogue_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag);
/* Who went on with the worker's files. What a new one supersedes goes. */
sonde_err sonde__trial_generations_read(sonde_trial *trial, sonde__trial_worker *worker,
                                        sonde_diag *diag);
/* worker->limit is from now on that of a file. */
void sonde__trial_worker_limit(sonde__trial_worker *worker, sonde__record_file_kind kind,
                               uint64_t number);
/* Whether a record of that global step is to be taken, of the file that is being read. */
bool sonde__trial_counts(const sonde_trial *trial, sonde__trial_worker *worker,
                         int64_t global);
sonde_err sonde__trial_step_rows_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag);
sonde_err sonde__trial_index_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);
sonde_err sonde__trial_stats_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);
sonde_err sonde__trial_sketches_read(sonde_trial *trial, sonde__trial_worker *worker,
                                     sonde_diag *diag);

/* Whether a global step is wanted. */
static inline bool sonde__trial_in_range(const sonde_trial *trial, int64_t global)
{
    return global >= trial->begin && (trial->end == 0 || global < trial->end);
}

/* --- run.json and its like (run_file.c) ------------------------------------------- */

sonde_err sonde__trial_run_read(sonde_trial *trial, bool *found, sonde_diag *diag);
sonde_err sonde__trial_end_read(sonde_trial *trial, sonde_diag *diag);
/* Seconds since 1970 of "2026-01-31T12:00:00.000000Z"; -1 if it (NULL as well) is not of that
 * form. */
double sonde__trial_seconds_of(const char *text);
sonde_err sonde__trial_state_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag);
/* Status and completeness of what has been read. */
void sonde__trial_judge(sonde_trial *trial);
/* Whether a step is complete. */
bool sonde__trial_step_complete(const sonde_trial *trial, const sonde__trial_step *step);

/* --- values (value.c, find.c) ----------------------------------------------------- */

/* Items of one tensor at one step, of one worker. */
typedef struct sonde__trial_found {
    sonde__trial_worker *worker;
    const sonde__trial_store *store;
    const uint32_t *items; /* numbers in the store; borrowed until something is added */
    uint32_t count;
} sonde__trial_found;

/* The item at exactly a place, or all of its micro-batches and replicas if one of them is
 * -1; false if there is none. */
bool sonde__trial_find(const sonde_trial *trial, sonde__trial_kind kind, uint32_t id,
                       const sonde_trial_at *at, sonde__trial_found *found);
/* Whether a worker has, at any step, any of the kinds of how (SONDE_HOW_ bits). */
bool sonde__trial_worker_has(const sonde_trial *trial, int rank, uint32_t id,
                             unsigned how);
/* SONDE_ENOTFOUND that says what there is instead of a kind; or what is wrong with at. */
sonde_err sonde__trial_fail_missing(sonde_trial *trial, sonde__trial_kind kind,
                                    uint32_t id, const sonde_trial_at *at,
                                    sonde_diag *diag);
/* The value of an item, its hash checked. */
sonde_err sonde__trial_value_of(sonde_trial *trial, sonde__trial_worker *worker,
                                const sonde__trial_raw_item *item, sonde_view *view,
                                sonde_diag *diag);
/* Of the values of found, merged in order. */
sonde_err sonde__trial_vitals_of_values(sonde_trial *trial,
                                        const sonde__trial_found *found,
                                        sonde_vitals *vitals, sonde_diag *diag);

/* Mapped rows first ... end - 1 of a worker; zeroed, none. Good for one query: a file is
 * looked at once for it. */
typedef struct sonde__trial_rows {
    const sonde__record_stats_row *rows;
    uint32_t first, end;
} sonde__trial_rows;
sonde_err sonde__trial_row_of(const sonde_trial *trial, sonde__trial_worker *worker,
                              uint32_t row, sonde__trial_rows *rows,
                              const sonde__record_stats_row **out, sonde_diag *diag);
sonde_err sonde__trial_sketch_of(const sonde_trial *trial, sonde__trial_worker *worker,
                                 const sonde__trial_sketch_item *item,
                                 sonde_sketch *sketch, sonde_diag *diag);

/* Bytes that a cursor has told the kernel of: for tests. */
SONDE_API uint64_t sonde__trial_cursor_fetched(const sonde_trial_cursor *cursor);

/* --- smdebug's directories (smdebug.c, smdebug_event.c) ---------------------------- */

/* Whether the folder is one. */
bool sonde__trial_smdebug_is(const sonde_trial *trial);
sonde_err sonde__trial_smdebug_open(sonde_trial *trial, sonde_diag *diag);
sonde_err sonde__trial_smdebug_refresh(sonde_trial *trial, sonde_diag *diag);
void sonde__trial_smdebug_close(sonde__import_smdebug *smdebug);
sonde_err sonde__trial_smdebug_value(sonde_trial *trial, sonde__trial_worker *worker,
                                     const sonde__trial_raw_item *item, sonde_view *view,
                                     sonde_diag *diag);
void sonde__trial_smdebug_ahead(const sonde_trial *trial,
                                const sonde__trial_worker *worker,
                                const sonde__trial_file *file, uint64_t offset,
                                uint64_t count);

/* --- parsers that are fuzzed by themselves ---------------------------------------------- */

/* Whether the first size bytes of a file are the head of its kind, and how many rows it says
 * (of sketches nothing: *items stays). */
SONDE_API bool sonde__trial_head_read(sonde__record_file_kind kind, const char *head,
                                      size_t size, uint64_t *items);

#endif
