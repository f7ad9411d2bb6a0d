/*
 * engine.h - rules at work: the engine's structures.
 *
 * Evidence arrives by tensor and is passed to rules by step:
 *
 *     put        merges vital signs over the micro-batches of a step into
 *                slots[id].vitals, norms into slots[id].norms; passes raw values, sketches and hashes at once to the
 *                rules that need them
 *     end_step   shows slots to the rules that watch them, and calls step of every rule
 *                that is shown something
 *
 * A slot belongs to the current step if its stamp equals the engine's. A need of vital
 * signs is shown full ones; a need of norms either, full ones where there are. Rules get a
 * pointer into the slot, which stays from step to step as long as the tensor is seen. So if
 * the same tensors are seen at every step, showing costs one comparison for each tensor,
 * however many rules there are.
 */
#ifndef SONDE_RULES_ENGINE_H
#define SONDE_RULES_ENGINE_H

#include "observe/attach.h"
#include "base/table.h"
#include "rules/context.h"
#include "rules/finding_file.h"
#include "rules/progress.h"
#include "rules/suspicion.h"

#include <sonde/error.h>
#include <sonde/rules.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__MESSAGE = 512 };

/* A finding with the memory of its texts. */
typedef struct sonde__rule_found {
    sonde_finding finding;
    char *tensor, *file; /* file: of its place; NULL: it has none */
    char message[SONDE__MESSAGE];
    sonde_rule_run *run; /* of its rule, and its tensor there */
    size_t index;
    bool kept;    /* it is among the findings; else it is a suspicion that waits */
    bool news;    /* its severity has risen since it was reported */
    bool certain; /* its rule read it in a program, at a line */
    const sonde__rule_terms *terms; /* of a suspicion, also once it is kept; else NULL */
    bool open;      /* it is in `waiting`: its severity is not decided, or may change */
    bool again;     /* an event that was kept, and has happened again */
    bool dismissed; /* training goes well in spite of it: it waits only to be cleared */
    int64_t held;   /* looks at which its condition held */
    int64_t missed; /* the last looks in a row at which it did not */
    int64_t well;   /* verdicts in a row that training goes well, once it is kept */
    sonde__rules_progress_mark mark;
} sonde__rule_found;

/* A parameter's value. */
typedef struct sonde__rule_value {
    char *text;               /* a copy; NULL for numbers and flags */
    sonde_selector *selector; /* NULL: it selects nothing */
    uint8_t *marks;           /* a byte a tensor: whether it is selected; NULL: none is */
    size_t mark_capacity;
    bool given; /* the user set it */
} sonde__rule_value;

/* The first fields are those of a step. */
struct sonde_rule_run {
    sonde_rules *rules;
    const sonde_rule *rule;
    void *state;
    sonde_rule_tensor *tensors;
    size_t count;
    size_t shown;   /* tensors that have vital signs now */
    size_t losses;  /* of these, losses alone by their need */
    uint64_t steps; /* steps with evidence */
    bool any;       /* other evidence at this step */
    bool failed;
    bool *seen;                          /* by need: evidence was seen */
    sonde__rule_value *values;           /* by parameter */
    sonde__rule_found **tensor_findings; /* by tensor; NULL: none */
    size_t capacity, finding_capacity;
    sonde__rule_found *run_finding; /* about the whole run; NULL: none */
    sonde__rule_found **placed;     /* of sonde_rule_found_at */
    size_t placed_count, placed_capacity;
    uint64_t programs;           /* that it was shown */
    bool by_program;             /* one of them was enough to judge by */
    bool reads;                  /* ... at this step */
    sonde__rule_found *speaking; /* between found and say */
    size_t findings;
    char lacked[SONDE__MESSAGE];
};

/* A rule that needs more than the vital signs of a tensor. */
typedef struct sonde__rule_user {
    sonde_rule_run *run;
    size_t tensor; /* index into the run's tensors */
    unsigned how;
    const sonde_schedule *when; /* of its need */
} sonde__rule_user;

/* A rule that looks at a tensor. */
typedef struct sonde__rule_watch {
    sonde_rule_run *run;
    size_t tensor; /* index into the run's tensors */
    int need;
} sonde__rule_watch;

typedef struct sonde__rule_slot {
    sonde_vitals vitals, norms;
    uint64_t stamp;                     /* of the last step with either */
    uint64_t vitals_stamp, norms_stamp; /* with each */
    unsigned how;
    unsigned modes; /* a bit for each mode whose steps a rule that watches it judges */
    uint32_t
        place; /* among the tensors of the step, in the order of their first values */
    uint32_t next_output, last_output; /* see context.h */
    bool late;                         /* declared after the first step */
    const sonde_vitals *shown; /* to the rules that watch: vitals, or norms; or NULL */
    sonde__rule_watch *watch;
    size_t watch_count, watch_capacity;
    sonde__rule_user *users;
    size_t user_count, user_capacity;
} sonde__rule_slot;

typedef struct sonde__rule_attached sonde__rule_attached;
typedef struct sonde__rule_program sonde__rule_program;

struct sonde_rules {
    sonde_rule_run **runs;
    size_t count, capacity;
    const sonde_catalogue *catalogue;
    bool (*in_collection)(const void *user, uint32_t id, const char *collection);
    const void *collection_user;
    sonde__rule_slot *slots;
    size_t slot_count, slot_capacity;
    /* ids with vital signs at this step, and ids shown before; room for all */
    uint32_t *now, *before;
    size_t now_count, before_count;
    uint64_t stamp;                /* of the current step, from 1 */
    sonde__observe_steps next;     /* the next ones, over all attachments */
    uint64_t steps;                /* steps with evidence */
    uint64_t ended;                /* all steps */
    int64_t first_step, last_step; /* global, of these */
    sonde_coordinate at;           /* its mode: the one that the step counts as */
    sonde_mode mode;               /* the mode of the step in the run */
    bool has_training;             /* the run has steps of mode train */
    bool trains;                   /* a step with evidence counted as training */
    uint64_t bad;                  /* NaN and infinities at this step */
    bool any, finished;            /* evidence at this step */
    bool at_every_step;            /* a rule has no needs, and reads no programs */
    sonde_program *programs[SONDE_MODE_COUNT]; /* in force; NULL: none so far */
    sonde__rule_program *waiting_programs;     /* until their step ends */
    sonde__rule_found **found;
    size_t found_count, found_capacity;
    sonde__rule_found **waiting; /* suspicions, and findings whose severity may change */
    size_t waiting_count, waiting_capacity;
    sonde__rules_progress progress;
    size_t reported; /* of these, passed to the callback and the files */
    bool news;       /* one of these has risen since */
    bool forgot;     /* memory ran out for one of these */
    sonde_finding *copies;
    size_t copy_capacity;
    sonde_on_finding on_finding;
    void *on_user;
    char *folder;        /* RUN/findings */
    bool folder_failed;  /* the last line could not be written */
    bool folder_is_copy; /* of a run in a store */
    sonde__rule_finding_files finding_files;
    sonde_rule_file **files; /* of users' rules */
    size_t file_count, file_capacity;
    sonde_rule_limits limits; /* of rules in them */
    sonde_catalogue *own;     /* the tensors of all attachments; NULL: there is none */
    sonde__rule_attached *attached;
    void (*free_attached)(sonde_rules *rules); /* frees them and `own`; NULL: none */
    sonde_trial *trial;                        /* that is judged; NULL: there is none */
    int64_t begin;        /* the first global step of it that is judged */
    sonde__table outputs; /* of modules */
    uint64_t compared;    /* tensors with others, in all: tests count this work */
};

/* The built-in rules by name, NULL-terminated: made by the build from the files of
 * rules/builtin. */
extern const sonde_rule *const sonde__rule_builtins[];

/* engine.c: the mode that a step of this mode counts as, and whether a rule judges steps
 * of it in such a run. Mode global is that of a program without modes: its steps are
 * training, unless the run has steps of mode train. */
sonde_mode sonde__rules_judged_mode(const sonde_rules *rules, sonde_mode mode);
bool sonde__rules_judges(const sonde_rules *rules, const sonde_rule *rule,
                         sonde_mode mode);

/* engine.c: the index of the need that a tensor answers, or SONDE_RULE_IGNORE. */
int sonde__rule_wants(sonde_rule_run *run, uint32_t id);
/* engine.c: the schedule of a need. */
const sonde_schedule *sonde__rules_need_when(const sonde_rule_need *need);
/* looks.c: adds what the rules that watch the slot need of it at steps of a mode. */
void sonde__rules_add_looks(const sonde_rules *rules, const sonde__rule_slot *slot,
                            sonde_mode mode, sonde_rules_looks *looks);
/* looks.c: sonde_rules_default_looks, of rules that judge nothing else. They keep what they
 * know of tensors before `first`: of one catalogue, and from 0 on. */
sonde_err sonde__rules_looks_from(sonde_rules *rules, const sonde_catalogue *catalogue,
                                  uint32_t first, const int64_t *every,
                                  sonde_rules_looks *looks, sonde_diag *diag);
/* looks.c: whether two schedules of rules are the same. */
bool sonde__rules_same_when(const sonde_schedule *a, const sonde_schedule *b);
/* rules_sink.c: sonde_rules_attach; role_every: for sonde__observe_thin, by role, borrowed
 * until the observer's last step; may be NULL. */
sonde_err sonde__rules_attach(sonde_rules *rules, const sonde_catalogue *catalogue,
                              sonde_observer *observer, int64_t every, int64_t raw_every,
                              const int64_t *role_every, sonde_diag *diag);
/* engine.c: sonde__rules_put, but raw values, sketches and hashes go only to the rules
 * that look at this step of its mode. */
void sonde__rules_put_due(sonde_rules *rules, const sonde_observation *observation,
                          int64_t mode_step);

/* params.c: stores the defaults, then "name=value,..." (may be NULL), in the state. */
sonde_err sonde__rule_read_params(sonde_rule_run *run, const char *text,
                                  sonde_diag *diag);
/* params.c: makes the selectors of the parameters; marks the tensors first ... end - 1
 * that they select. */
sonde_err sonde__rule_make_selectors(sonde_rule_run *run, sonde_diag *diag);
sonde_err sonde__rule_mark(sonde_rule_run *run, size_t first, size_t end,
                           sonde_diag *diag);
/* context.c: takes up the slots first ... end - 1 of outputs of modules. False if memory
 * runs out. */
bool sonde__rules_add_outputs(sonde_rules *rules, size_t first, size_t end);
/* findings.c: passes the findings since the last call to the callback and to their files,
 * with their causes: those without one first. */
void sonde__rules_report_new(sonde_rules *rules);
/* findings.c: passes on, once more, those that lasted. */
void sonde__rules_report_again(sonde_rules *rules);
/* finding_order.c: sets the causes of findings, and puts those without one first among the
 * findings since the last report. */
void sonde__rules_set_causes(sonde_rules *rules);
/* finding_order.c: the earliest cause that stands; NULL: no finding stands. */
const sonde_finding *sonde__rules_headline(const sonde_rules *rules);
void sonde__rules_free_found(sonde_rules *rules);
/* findings.c: makes a finding at its place, which is empty, among the findings or, waits,
 * among the suspicions; false if memory runs out. sonde_rule_say must follow. */
bool sonde__rule_make_found(sonde_rule_run *run, size_t i, sonde_severity severity,
                            const char *statistic, double value, double threshold,
                            bool waits);
/* findings.c: the same for a finding of sonde_rule_found_at; the place is copied. */
bool sonde__rule_make_placed(sonde_rule_run *run, const char *tensor, sonde_place place,
                             sonde_severity severity, const char *statistic, double value,
                             double threshold);
/* rules_program.c: a program, which is taken if all is well, is that of its mode from a
 * global step on: the rules read it at the end of that step. */
SONDE_API sonde_err sonde__rules_take_program(sonde_rules *rules, int64_t step,
                                              sonde_program *program, sonde_diag *diag);
/* rules_program.c: whether a program waits for the end of a step up to this one. */
bool sonde__rules_has_program(const sonde_rules *rules, int64_t step);
void sonde__rules_show_programs(sonde_rules *rules, int64_t step);
void sonde__rules_free_programs(sonde_rules *rules);
/* rules_program.c: the line of a tensor by the programs in force, and which of them. */
sonde_place sonde__rules_place_of(const sonde_rules *rules, const char *tensor,
                                  const sonde_program **program);
/* rules_sink.c: sonde__rules_take_program, of the current step of an observer that the
 * rules are attached to; and, at the end of each step, the end of one with a program, if
 * no tap was due. */
sonde_err sonde__rules_program(sonde_rules *rules, const sonde_observer *observer,
                               const sonde_coordinate *at, sonde_program *program,
                               sonde_diag *diag);
void sonde__rules_end_program(sonde_rules *rules, const sonde_observer *observer,
                              const sonde_coordinate *at);
/* findings.c: sonde_rule_say. */
void sonde__rule_vsay(sonde_rule_run *run, const char *advice, const char *fmt,
                      va_list args) SONDE_PRINTF(3, 0);
/* findings.c: adds a suspicion to the findings; false if memory runs out. */
bool sonde__rule_keep_found(sonde_rules *rules, sonde__rule_found *found);
/* findings.c: a finding has that severity from this step on, which is a higher one. */
void sonde__rule_raise(sonde_rules *rules, sonde__rule_found *found,
                       sonde_severity severity);
/* findings.c: the condition of a finding holds at this step, too. */
void sonde__rules_hold_again(const sonde_rules *rules, sonde__rule_found *found);
/* suspicions.c: the losses among new tensors; false if memory runs out. */
bool sonde__rules_add_losses(sonde_rules *rules, size_t first, size_t end);
/* suspicions.c: takes the losses of a training step. */
void sonde__rules_take_losses(sonde_rules *rules);
/* suspicions.c: decides the suspicions that can be decided; ended: all of them. */
void sonde__rules_decide(sonde_rules *rules, bool ended);
/* engine.c: accepts NULL and a half-built run. */
void sonde__rule_run_destroy(sonde_rule_run *run);

/* --- evidence of a source: an observer (rules_sink.c), a trial (trial_source.c) --------- */

/* catalogue is borrowed until destroy and may grow between steps; then call refresh. If
 * in_collection is NULL, the roles are the only collections. */
SONDE_API SONDE_CHECKED sonde_err sonde__rules_begin(
    sonde_rules *rules, const sonde_catalogue *catalogue,
    bool (*in_collection)(const void *user, uint32_t id, const char *collection),
    const void *user, sonde_diag *diag);
/* Takes up the tensors that were declared since. Afterwards wants may return more. */
SONDE_API SONDE_CHECKED sonde_err sonde__rules_refresh(sonde_rules *rules,
                                                       sonde_diag *diag);
/* The SONDE_HOW_ bits of the evidence that rules need of a tensor. */
SONDE_API unsigned sonde__rules_wants(const sonde_rules *rules, uint32_t id);
/* Passes evidence of the step that end_step will end: any of view, vitals, sketch and
 * hash, for each micro-batch and replica. */
SONDE_API void sonde__rules_put(sonde_rules *rules, const sonde_observation *observation);
SONDE_API void sonde__rules_end_step(sonde_rules *rules, const sonde_coordinate *at);
/* The run has not ended, but there was no new step for so many seconds. */
SONDE_API void sonde__rules_idle(sonde_rules *rules, double seconds);

#endif
