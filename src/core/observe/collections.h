/*
 * collections.h - a configuration: collections of tensors, with the schedule and the
 * reductions of each.
 *
 *     collections.c       collections and their selectors
 *     saving.c            schedules and reductions; settle ends configuration
 *     collections_file.c  a configuration from a tree of YAML or JSON
 *                         and as JSON
 *
 * Order of calls: add, include, save and so on; settle; members for each catalogue;
 * forget. A hook (hook/) makes taps of it. Each collection is a bit of these masks:
 *
 *     member    collections that the tensor is in
 *     watch[m]  collections whose when_nan looks at the tensor in mode m
 *     vital     whether its vital signs are recorded in any case, and how often
 */
#ifndef SONDE_OBSERVE_COLLECTIONS_H
#define SONDE_OBSERVE_COLLECTIONS_H

#include <sonde/error.h>
#include <sonde/schedule.h>
#include <sonde/tap.h>

#include "base/yaml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SONDE__MOST_COLLECTIONS = 64,
    SONDE__DIGEST = 17,
    SONDE__VITAL_ALWAYS = 1, /* losses: at every step, if the program does not say */
    SONDE__VITAL_EVERY = 2,  /* at each step of training that vitals_every divides */
    SONDE__VITAL_LOOKS = 4,  /* when the default rules look */
    SONDE__VITAL_RAW = 8,    /* the raw value when they need it */
    SONDE__VITAL_NAMED = 16  /* an alias of a tensor at which rules look: its name */
};

/* A selector of a collection, as the user gave it. */
typedef struct sonde__observe_choice {
    sonde_selector *what;
    char *module; /* whose inputs or outputs it selects; NULL: no module */
    bool exclude;
    bool matched; /* ever */
    bool warned;  /* the user was warned that it matches nothing */
} sonde__observe_choice;

typedef struct sonde__observe_choices {
    sonde__observe_choice *items;
    size_t count, capacity;
} sonde__observe_choices;

/* A copy of a sonde_save_config: ascending steps, memory of its own. */
typedef struct sonde__observe_save_layer {
    sonde_save_config config;
    int64_t *steps;
    char *when_nan;
} sonde__observe_save_layer;

/* [0]: of all modes; [1 + mode]: of one. */
typedef sonde__observe_save_layer sonde__observe_save_layers[1 + SONDE_MODE_COUNT];

typedef struct sonde__observe_collection {
    char *name;
    bool saved;
    bool asked; /* the user added it: an empty one gives a warning */
    bool reduces;
    sonde_reduction_config reductions;
    sonde__observe_choices choices;
    sonde__observe_save_layers layers;
    /* From settle on: */
    unsigned how;                                     /* SONDE_HOW_ bits */
    sonde_schedule when[SONDE_MODE_COUNT];            /* steps point into layers */
    sonde__observe_choice when_nan[SONDE_MODE_COUNT]; /* what NULL: none */
} sonde__observe_collection;

typedef struct sonde__observe_setup {
    sonde__observe_collection collections[SONDE__MOST_COLLECTIONS];
    size_t collection_count;
    sonde__observe_save_layers layers;
    bool reduces;
    sonde_reduction_config reductions;
    int64_t vitals_every;
    bool looks;      /* vitals_every is not given: the schedule of the default rules */
    bool configured; /* the user chose the values to save; no others are saved */
    bool no_vitals;
    bool others; /* the program's own tensors have vital signs as those of weights */
    bool settled;
    uint64_t nan_sets[SONDE_MODE_COUNT]; /* collections with a when_nan in the mode */
} sonde__observe_setup;

/* The masks of a tensor. */
typedef struct sonde__observe_member {
    uint64_t member;
    uint64_t watch[SONDE_MODE_COUNT];
    uint8_t vital;
} sonde__observe_member;

/* --- collections.c ---------------------------------------------------------------- */

extern const char *const sonde__observe_builtin_collections[]; /* NULL-terminated */
/* NULL if there is none of that name. */
SONDE_API sonde__observe_collection *
sonde__observe_find_collection(sonde__observe_setup *setup, const char *name);
/* SONDE_ESTATE once configuration has ended. */
sonde_err sonde__observe_check_open(const sonde__observe_setup *setup, const char *what,
                                    sonde_diag *diag);
/* A collection that has been added, of a configuration that is still open. */
sonde_err sonde__observe_find_open(sonde__observe_setup *setup, const char *name,
                                   sonde__observe_collection **out, sonde_diag *diag);
/* A collection that is saved; asked: by the user. */
sonde_err sonde__observe_add(sonde__observe_setup *setup, const char *name, bool asked,
                             sonde_diag *diag);
/* Configure a collection, as a file does; exported for tests. */
SONDE_API sonde_err sonde__observe_add_asked(sonde__observe_setup *setup,
                                             const char *name, sonde_diag *diag);
SONDE_API sonde_err sonde__observe_remove_collection(sonde__observe_setup *setup,
                                                     const char *name, sonde_diag *diag);
SONDE_API sonde_err sonde__observe_include(sonde__observe_setup *setup,
                                           const char *collection, const char *selector,
                                           sonde_diag *diag);
SONDE_API sonde_err sonde__observe_exclude(sonde__observe_setup *setup,
                                           const char *collection, const char *selector,
                                           sonde_diag *diag);
SONDE_API sonde_err sonde__observe_add_module(sonde__observe_setup *setup,
                                              const char *collection, const char *module,
                                              bool inputs, bool outputs,
                                              sonde_diag *diag);
/* The whole pattern is one regular expression; commas in it are its own. */
sonde_err sonde__observe_include_regex(sonde__observe_setup *setup,
                                       const char *collection, const char *pattern,
                                       sonde_diag *diag);
void sonde__observe_forget(sonde__observe_setup *setup);

/* --- saving.c --------------------------------------------------------------------- */

void sonde__observe_unset_layers(sonde__observe_save_layers layers);
void sonde__observe_forget_layers(sonde__observe_save_layers layers);
/* The schedule of all modes (mode -1) or of one, for the hook (collection NULL) or for a
 * collection; and the reductions. */
SONDE_API sonde_err sonde__observe_save(sonde__observe_setup *setup,
                                        const char *collection, int mode,
                                        const sonde_save_config *save, sonde_diag *diag);
SONDE_API sonde_err sonde__observe_reduce(sonde__observe_setup *setup,
                                          const char *collection,
                                          const sonde_reduction_config *reductions,
                                          sonde_diag *diag);
/* Ends configuration: every collection's schedules, reductions and when_nan. */
sonde_err sonde__observe_settle(sonde__observe_setup *setup, sonde_diag *diag);
/* Makes the checks of settle; *wrong (may be NULL) is the faulty collection. filled: a
 * collection without includes is an error; else the program may fill it yet. */
sonde_err sonde__observe_check(const sonde__observe_setup *setup, bool filled,
                               const sonde__observe_collection **wrong, sonde_diag *diag);
/* Whether any schedule was given for mode global. */
bool sonde__observe_says_global(const sonde__observe_setup *setup);
/*
 * Adds a reduction by name: those of <sonde/reduction.h>, and histogram and quantiles,
 * which need the sketch. An unknown name: SONDE_EINVAL with the nearest one.
 */
sonde_err sonde__observe_reduction_add(const char *name, sonde_reduction_config *config,
                                       sonde_diag *diag);
/* The same for a comma-separated list. */
sonde_err sonde__observe_reductions_parse(const char *text,
                                          sonde_reduction_config *config,
                                          sonde_diag *diag);

/* SONDE__VITAL_ bits of a tensor: EVERY holds if vitals_every is given, else LOOKS. */
SONDE_API unsigned sonde__observe_vital(const sonde_tensor_info *info);

/*
 * The masks of the tensors first_id ... end_id - 1 of a catalogue; members has an entry
 * for each id, zeroed. first: unknown names are errors, and a selector that matches
 * nothing gives a warning.
 */
sonde_err sonde__observe_members(sonde__observe_setup *setup,
                                 const sonde_catalogue *catalogue, uint32_t first_id,
                                 uint32_t end_id, bool first,
                                 sonde__observe_member *members, sonde_diag *diag);
/* At the end: warns of selectors that never matched and were not warned of before. */
void sonde__observe_warn_unmatched(sonde__observe_setup *setup);

/* --- collections_file.c ----------------------------------------------------------- */

/* SONDE_EINVAL if the outermost map has a key that is not a hook's; options: those of the
 * run are allowed. */
sonde_err sonde__observe_check_keys(const sonde__yaml_reader *reader,
                                    const sonde__yaml *root, bool options);
/* Configures by a tree. */
sonde_err sonde__observe_read(const sonde__yaml_reader *reader, const sonde__yaml *root,
                              sonde__observe_setup *setup);
/* The error of a call about a node, with the node's line. */
sonde_err sonde__observe_fail_at(const sonde__yaml_reader *reader,
                                 const sonde__yaml *node, const sonde_diag *inner);
/* A selector as a text or a list of texts under a key, e.g. when_nan; new, or NULL if the
 * key is missing. */
sonde_err sonde__observe_read_selector(const sonde__yaml_reader *reader,
                                       const sonde__yaml *map, const char *key,
                                       char **out);
/* Steps as a number, a list, or a text "1,2,3"; *steps is new. */
sonde_err sonde__observe_read_steps(const sonde__yaml_reader *reader,
                                    const sonde__yaml *node, int64_t **steps,
                                    size_t *count);

/* --- collections_file.c: JSON ----------------------------------------------------- */

/* The configuration as a JSON object, to be freed with free(); NULL if memory is out.
 * After settle. */
SONDE_API char *sonde__observe_setup_json(const sonde__observe_setup *setup);
/* 16 hexadecimal digits of all names, ops, roles and dtypes and of the shapes of
 * parameters: the same for every batch size. */
void sonde__observe_digest(const sonde_catalogue *catalogue, char digest[SONDE__DIGEST]);

#endif
