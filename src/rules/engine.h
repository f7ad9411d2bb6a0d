/*
 * engine.h - rules at work, from inside.
 *
 * Evidence comes in by tensor and goes to rules by step:
 *
 *     put      slots[id].vitals merged over the micro-batches of the step; raw values and
 *              sketches straight to the rules that asked (users of the slot)
 *     end_step slots are shown to the rules that watch them; step of every rule that is shown
 *              anything
 *
 * A slot is of the step that is on if its stamp is the engine's. What a rule is shown is
 * a pointer to the slot, which stays from step to step as long as the tensor is seen:
 * where the same tensors are seen at every step, showing costs a comparison for each of
 * them, however many rules there are.
 */
#ifndef SONDE_RULES_ENGINE_H
#define SONDE_RULES_ENGINE_H

#include <sonde/error.h>
#include <sonde/rules.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__MESSAGE = 512, SONDE__NO_FINDING = -1 };

/* A finding and the memory behind its texts. */
typedef struct sonde__rule_found {
    sonde_finding finding;
    char *tensor;
    char message[SONDE__MESSAGE];
} sonde__rule_found;

struct sonde_rule_run {
    sonde_rules *rules;
    const sonde_rule *rule;
    void *state;
    char **texts;               /* of parameters: copies */
    sonde_selector **selectors; /* by parameter; NULL where it selects nothing */
    uint8_t **marks;            /* by parameter: a byte a tensor */
    sonde_rule_tensor *tensors;
    int64_t *tensor_findings; /* index of the finding about it in rules->found */
    size_t count, capacity, finding_capacity;
    int64_t run_finding;         /* the finding about the whole run */
    sonde__rule_found *speaking; /* between found and say */
    uint64_t steps;              /* with any evidence */
    bool *seen;                  /* by need: whether there ever was any */
    size_t findings;
    size_t shown; /* tensors that have vital signs just now */
    bool any;     /* raw values and the like at this step */
    bool failed;
    char lacked[SONDE__MESSAGE];
};

/* A rule that wants more of a tensor than vital signs. */
typedef struct sonde__rule_user {
    sonde_rule_run *run;
    size_t tensor; /* index into the run's tensors */
    unsigned how;
} sonde__rule_user;

/* A rule that has a tensor, for whatever need. */
typedef struct sonde__rule_watch {
    sonde_rule_run *run;
    size_t tensor; /* index into the run's tensors */
    int need;
} sonde__rule_watch;

typedef struct sonde__rule_slot {
    sonde_vitals vitals;
    uint64_t stamp;
    unsigned how;
    unsigned modes; /* bits of those in which anybody who watches judges */
    bool shown;     /* those who watch have a pointer to vitals */
    sonde__rule_watch *watch;
    size_t watch_count, watch_capacity;
    sonde__rule_user *users;
    size_t user_count, user_capacity;
} sonde__rule_slot;

typedef struct sonde__rule_attached sonde__rule_attached;

struct sonde_rules {
    sonde_rule_run **runs;
    size_t count, capacity;
    const sonde_catalogue *catalogue;
    bool (*in_collection)(const void *user, uint32_t id, const char *collection);
    const void *collection_user;
    sonde__rule_slot *slots;
    size_t slot_count, slot_capacity;
    uint32_t *now,
        *before; /* ids with vital signs at this step, and those shown; room for all */
    size_t now_count, before_count;
    uint64_t stamp; /* of the step that is on, from 1 */
    int64_t next_global, next_of_mode[SONDE_MODE_COUNT];
    uint64_t steps; /* with any evidence */
    sonde_coordinate at;
    uint64_t bad;       /* NaN and infinities at this step */
    bool any, finished; /* evidence at this step */
    sonde__rule_found **found;
    size_t found_count, found_capacity;
    sonde_finding *copies;
    size_t copy_capacity;
    sonde_on_finding on_finding;
    void *on_user;
    char *folder; /* RUN/findings */
    bool folder_failed;
    sonde_rule_file **files; /* of users' rules */
    size_t file_count, file_capacity;
    void (*close_files)(sonde_rules *rules); /* NULL: no file is open */
    sonde_rule_limits limits;                /* of rules in them */
    sonde_catalogue *own; /* of all that is attached; NULL: nothing is */
    sonde__rule_attached *attached;
};

/* The built-in rules by name, NULL-terminated: made by the build from the files of
 * rules/builtin. */
extern const sonde_rule *const sonde__rule_builtins[];

/* params.c: defaults, then "name=value,..." (may be NULL), into the state. */
sonde_err sonde__rule_read_params(sonde_rule_run *run, const char *text,
                                  sonde_diag *diag);
/* params.c: the selectors of the parameters, and what they mean in the catalogue as it
 * is. */
sonde_err sonde__rule_make_selectors(sonde_rule_run *run, sonde_diag *diag);
sonde_err sonde__rule_mark(sonde_rule_run *run, size_t first, size_t end,
                           sonde_diag *diag);
/* found.c: a finding is told: callback, file. */
void sonde__rules_tell(sonde_rules *rules, sonde__rule_found *found, bool again);
void sonde__rules_free_found(sonde_rules *rules);
/* rules_sink.c */
void sonde__rules_free_attached(sonde_rules *rules);
/* engine.c: a rule at work, half-built or NULL allowed. */
void sonde__rule_run_destroy(sonde_rule_run *run);

#endif
