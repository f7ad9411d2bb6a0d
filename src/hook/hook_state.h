/*
 * hook_state.h - a hook from inside.
 *
 *     collections.c  collections and what they include
 *     save.c         their schedules and reductions; settle ends configuration
 *     members.c      which tensors are in which collections: a mask for each tensor
 *     hook.c         the life of a hook, opening the run
 *     steps.c        steps, the gate, record, scalars
 *     deliver.c      out to the recorder; what when_nan holds back until the end of a step
 *     attach.c       taps on somebody's observer
 *     roles.c        the role of a tensor by its name
 *     load.c, file.c, smdebug.c   configuration files, Sonde's and smdebug's
 *     told.c         the configuration as JSON, for run.json
 *
 * A collection is a bit. At a step the collections that are due form a mask (due_sets), and
 * a tensor is wanted if its own mask meets it:
 *
 *     member[t]    collections that t is in
 *     watch[t][m]  collections of which when_nan looks at t in mode m
 *     nan_sets[m]  collections that have a when_nan in mode m: they may be saved at any step
 *     tripped      those of them that have seen a NaN or an infinity at this step
 */
#ifndef SONDE_HOOK_HOOK_STATE_H
#define SONDE_HOOK_HOOK_STATE_H

#include <sonde/error.h>
#include <sonde/hook.h>

#include "base/yaml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SONDE__MOST_COLLECTIONS = 64,
    SONDE__DIGEST = 17,
    SONDE__VITAL_ALWAYS = 1, /* bits of sonde__hook_tensor.vital: at every step */
    SONDE__VITAL_EVERY = 2   /* at each training step that vitals_every divides */
};

/* A selector of a collection, as somebody gave it. */
typedef struct sonde__choice {
    sonde_selector *what;
    char *module; /* whose inputs or outputs it selects; NULL: what it says itself */
    bool exclude;
    bool matched; /* ever */
    bool told;    /* that it matches nothing */
} sonde__choice;

typedef struct sonde__choices {
    sonde__choice *items;
    size_t count, capacity;
} sonde__choices;

/* A sonde_save_config of our own: its steps are ascending, its pointers ours. */
typedef struct sonde__save_layer {
    sonde_save_config config;
    int64_t *steps;
    char *when_nan;
} sonde__save_layer;

/* [0]: of all modes; [1 + mode]: of one. */
typedef sonde__save_layer sonde__save_layers[1 + SONDE_MODE_COUNT];

typedef struct sonde__collection {
    char *name;
    bool saved;
    bool asked; /* by somebody, not by default: to be warned about if it is empty */
    bool reduces;
    sonde_reduction_config reductions;
    sonde__choices choices;
    sonde__save_layers layers;
    /* From settle on: */
    unsigned how;                             /* SONDE_HOW_ bits */
    sonde_schedule when[SONDE_MODE_COUNT];    /* steps point into layers */
    sonde__choice when_nan[SONDE_MODE_COUNT]; /* what NULL: none */
} sonde__collection;

/* What is known of a tensor, by the hook's id. */
typedef struct sonde__hook_tensor {
    uint64_t member;
    uint64_t watch[SONDE_MODE_COUNT];
    int64_t step;                 /* global, of what follows */
    uint32_t count;               /* values that step has had */
    int32_t micro_batch, replica; /* of the last one */
    uint8_t vital;
    uint8_t done; /* SONDE_HOW_ bits of that value that are recorded */
} sonde__hook_tensor;

/* A value held back until the end of the step, in case a when_nan wants it. */
typedef struct sonde__held {
    uint32_t id;
    sonde_coordinate at;
    uint64_t sets;   /* collections that may want it */
    unsigned done;   /* SONDE_HOW_ bits that are recorded already */
    size_t offset;   /* of its bytes */
    sonde_view view; /* contiguous; data is set when it is let go */
} sonde__held;

typedef struct sonde__holding {
    sonde__held *items;
    size_t count, capacity;
    unsigned char *bytes;
    size_t used, size;
    bool failed; /* memory was out; said once */
} sonde__holding;

/* What the array of due tensors was filled for. */
typedef struct sonde__filling {
    bool valid, any;
    sonde_mode mode;
    uint64_t sets;
    unsigned vital;
} sonde__filling;

/* A scalar that was given before the first step. */
typedef struct sonde__early {
    uint32_t id;
    double value;
} sonde__early;

/* What a hook calls of a recorder; tests put their own here. */
typedef struct sonde__recorder_calls {
    sonde_err (*create)(const sonde_recorder_options *options,
                        const sonde_catalogue *catalogue, sonde_recorder **out,
                        sonde_diag *diag);
    sonde_err (*close)(sonde_recorder *recorder, sonde_run_end reason, const char *text,
                       sonde_diag *diag);
    sonde_err (*expect)(sonde_recorder *recorder, uint32_t id, sonde_diag *diag);
    sonde_err (*collections)(sonde_recorder *recorder, uint32_t id,
                             const char *const *names, size_t count, sonde_diag *diag);
    void (*put)(sonde_recorder *recorder, uint32_t id, const sonde_coordinate *at,
                const sonde_view *view);
    void (*put_vitals)(sonde_recorder *recorder, uint32_t id, const sonde_coordinate *at,
                       const sonde_vitals *vitals);
    void (*put_sketch)(sonde_recorder *recorder, uint32_t id, const sonde_coordinate *at,
                       const sonde_sketch *sketch);
    void (*end_step)(sonde_recorder *recorder, const sonde_coordinate *at);
    void (*next)(const sonde_recorder *recorder, int64_t next[SONDE_MODE_COUNT]);
} sonde__recorder_calls;

typedef struct sonde__attachment sonde__attachment;

struct sonde_hook {
    sonde_hook_gate gate;
    sonde_hook_options options; /* its strings are in texts */
    char *texts[7];
    const sonde__recorder_calls *calls;
    /* configuration */
    sonde__collection collections[SONDE__MOST_COLLECTIONS];
    size_t collection_count;
    sonde__save_layers layers;
    bool reduces;
    sonde_reduction_config reductions;
    bool settled;
    bool resolved; /* tensors have their masks; those that are added get them at once */
    /* the run */
    sonde_catalogue *catalogue;
    sonde_recorder *recorder; /* NULL: not open, or a dry run */
    bool open;
    sonde__attachment *attachments; /* newest first */
    char graph[SONDE__DIGEST];      /* of what was attached first; "" */
    sonde__hook_tensor *tensors;
    uint8_t *due, *zeros; /* by id; gate.due is one of them */
    size_t tensor_capacity;
    /* steps */
    sonde_mode mode;
    int64_t next_global, next_step[SONDE_MODE_COUNT];
    int64_t next_due[SONDE_MODE_COUNT];
    sonde_coordinate at; /* of the step that is on, or of the last one */
    bool stepping, begun;
    uint64_t due_sets, tripped, nan_sets[SONDE_MODE_COUNT];
    unsigned vital, vital_due; /* SONDE__VITAL_ bits: of all tensors; due at this step */
    sonde__filling filled;
    sonde__holding held;
    sonde__early *early;
    size_t early_count, early_capacity;
    sonde_sketch *sketch; /* scratch; made by settle if a collection wants sketches */
    uint64_t values, bytes, rows, sketches; /* handed out; for a dry run's summary */
};

/* --- collections.c ---------------------------------------------------------------- */

SONDE_API extern const char *const sonde__builtin_collections[]; /* NULL-terminated */
/* NULL if there is none of that name. */
SONDE_API sonde__collection *sonde__hook_find(sonde_hook *hook, const char *name);
/* SONDE_ESTATE once configuration has ended. */
sonde_err sonde__hook_check_open(const sonde_hook *hook, const char *what,
                                 sonde_diag *diag);
/* A collection that has been added, of a hook that may still be configured; somebody asks
 * for it. */
sonde_err sonde__hook_find_open(sonde_hook *hook, const char *name,
                                sonde__collection **out, sonde_diag *diag);
/* As sonde_hook_add_collection; asked: by somebody. */
sonde_err sonde__hook_add(sonde_hook *hook, const char *name, bool asked,
                          sonde_diag *diag);
/* The whole pattern is one regular expression; commas in it are its own. */
sonde_err sonde__hook_include_regex(sonde_hook *hook, const char *collection,
                                    const char *pattern, sonde_diag *diag);
void sonde__hook_forget_config(sonde_hook *hook);

/* --- save.c ----------------------------------------------------------------------- */

void sonde__unset_layers(sonde__save_layers layers);
void sonde__forget_layers(sonde__save_layers layers);
/* Ends configuration: every collection's schedules, reductions and when_nan. */
sonde_err sonde__hook_settle(sonde_hook *hook, sonde_diag *diag);
/* What settle would find wrong, without ending anything; *at (may be NULL) is the collection
 * that it is wrong with. */
sonde_err sonde__hook_check(const sonde_hook *hook, const sonde__collection **at,
                            sonde_diag *diag);
/* Whether any schedule was given for mode global. */
bool sonde__hook_says_global(const sonde_hook *hook);

/* --- members.c -------------------------------------------------------------------- */

/*
 * Sets member, watch and vital of the tensors of a catalogue from an id on; tensors has an
 * entry for each, zeroed. first: unknown names are errors, and what matches nothing is warned
 * about.
 */
sonde_err sonde__hook_members(sonde_hook *hook, const sonde_catalogue *catalogue,
                              uint32_t from, bool first, sonde__hook_tensor *tensors,
                              sonde_diag *diag);
/* At the end: what never matched anything and was not yet told. */
void sonde__hook_warn_unmatched(sonde_hook *hook);

/* --- hook.c ----------------------------------------------------------------------- */

/* Declares in the hook's own catalogue, with the masks that *of has (from members), and
 * tells the recorder if the run is open. */
sonde_err sonde__hook_add_tensor(sonde_hook *hook, const sonde_tensor_info *info,
                                 const sonde__hook_tensor *of, uint32_t *id,
                                 sonde_diag *diag);
/* The id of exactly that name, or SONDE_NO_TENSOR. */
uint32_t sonde__hook_tensor_named(const sonde_hook *hook, const char *name);
/* Before the run is open; calls are borrowed. */
SONDE_API void sonde__hook_set_recorder(sonde_hook *hook,
                                        const sonde__recorder_calls *calls);
extern const sonde__recorder_calls sonde__recorder_itself; /* calls.c */

/* --- steps.c ---------------------------------------------------------------------- */

/* Tensors were added: what is due is found again, at this step too. */
void sonde__hook_look_again(sonde_hook *hook);

/* --- deliver.c -------------------------------------------------------------------- */

/* Union of how over a mask of collections. */
unsigned sonde__hook_how(const sonde_hook *hook, uint64_t sets);
/* Hands a value to the recorder as how says. vitals and sketch may be NULL: then they are
 * computed where how has them. */
void sonde__hook_emit(sonde_hook *hook, uint32_t id, const sonde_coordinate *at,
                      const sonde_view *view, const sonde_vitals *vitals,
                      const sonde_sketch *sketch, unsigned how);
/* Makes room for that much, so that holding allocates nothing. */
sonde_err sonde__hook_reserve(sonde_hook *hook, size_t values, size_t bytes,
                              sonde_diag *diag);
/* Bytes that a value of so many takes while it is held. */
size_t sonde__hook_held_size(size_t bytes);
/* Keeps a copy until the end of the step. */
void sonde__hook_hold(sonde_hook *hook, uint32_t id, const sonde_coordinate *at,
                      const sonde_view *view, uint64_t sets, unsigned done);
/* These collections are wanted after all: lets go what is held for them. */
void sonde__hook_trip(sonde_hook *hook, uint64_t sets);

/* --- attach.c --------------------------------------------------------------------- */

void sonde__hook_detach_all(sonde_hook *hook);

/* --- roles.c ---------------------------------------------------------------------- */

SONDE_API sonde_role sonde__role_by_name(const char *name);

/* --- reductions.c ----------------------------------------------------------------- */

/*
 * Adds what a name of a reduction asks for: those of <sonde/reduction.h>, and histogram and
 * quantiles, which are the sketch. Unknown: SONDE_EINVAL with the nearest.
 */
sonde_err sonde__reduction_add(const char *name, sonde_reduction_config *to,
                               sonde_diag *diag);
/* The same of a list with commas. */
sonde_err sonde__reductions_parse(const char *text, sonde_reduction_config *to,
                                  sonde_diag *diag);

/* --- file.c, load.c, smdebug.c ---------------------------------------------------- */

/* SONDE_EINVAL if the outermost map has a key that is none of ours. */
sonde_err sonde__hook_check_keys(const sonde__yaml_reader *reader,
                                 const sonde__yaml *root);
/* Configures a new hook by a tree. */
sonde_err sonde__hook_read(const sonde__yaml_reader *reader, const sonde__yaml *root,
                           sonde_hook *hook);
/* Where a reader stands: what is wrong with a node is told with its line. */
sonde_err sonde__hook_fail_at(const sonde__yaml_reader *reader, const sonde__yaml *node,
                              const sonde_diag *inner);
/* What of options was given wins over what a file says. */
void sonde__hook_options_over(sonde_hook_options *said, const sonde_hook_options *given);
/* Steps as a number, a list, or a text "1,2,3"; *steps is new. */
sonde_err sonde__hook_read_steps(const sonde__yaml_reader *reader,
                                 const sonde__yaml *node, int64_t **steps, size_t *count);
/* Whether a tree is smdebug's configuration, and the hook that it describes. */
bool sonde__is_smdebug(const sonde__yaml *root);
sonde_err sonde__hook_from_smdebug(const sonde__yaml_reader *reader,
                                   const sonde__yaml *root,
                                   const sonde_hook_options *options, sonde_hook **out);

/* --- told.c ----------------------------------------------------------------------- */

/* The configuration as a JSON object, to be freed with free(); NULL if memory is out. After
 * settle. */
char *sonde__hook_tell(const sonde_hook *hook);
/* 16 hexadecimal digits of all names, ops, roles and dtypes and of the shapes of parameters:
 * the same for every batch size. */
void sonde__hook_digest(const sonde_catalogue *catalogue, char digest[SONDE__DIGEST]);

#endif
