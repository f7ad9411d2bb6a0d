/*
 * rule.h - how to write a rule. To use rules, read <sonde/rules.h>; docs/own_rules.md is
 * a tutorial.
 *
 * A rule looks at a run step by step and reports what is wrong with it. It is a table row
 * (sonde_rule): parameters, the evidence that it needs, and a few functions over a state
 * of its own. A rule does not know where the evidence comes from: a recorded run, a run
 * that is being written, or the training process itself. All three give the same
 * findings.
 *
 *     init                          the parameters are in the state
 *     wants, bind                   for every tensor that can be observed
 *     for every step with evidence:
 *         observe                   for every raw value, sketch or hash that the rule needs
 *         program                   if a new one of a mode begins to hold at this step
 *         step                      tensor->vitals points to the vital signs of this
 *                                   step, or to its norms
 *     finish, destroy
 *
 * Prefer norms to vital signs, vital signs to sketches, and sketches to raw values, and
 * look as seldom as the rule can: each need says how seldom. A step costs each rule a loop
 * over its own tensors.
 *
 * All pointers are borrowed for the call, except state and memory, which live as long as
 * the run.
 *
 * Threads: the engine calls a rule on one thread, and a rule calls the engine on that
 * thread only.
 */
#ifndef SONDE_RULE_H
#define SONDE_RULE_H

#include <sonde/program.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SONDE_RULE_ABI = 2 };

/* How bad a finding is. */
typedef enum sonde_severity {
    SONDE_SEVERITY_NOTE = 0,    /* worth knowing */
    SONDE_SEVERITY_WARNING = 1, /* the results will probably be poor */
    SONDE_SEVERITY_ERROR = 2    /* the run is broken */
} sonde_severity;

/* --- parameters --------------------------------------------------------------------- */

/* The type of a parameter's field in the rule's state. */
typedef enum sonde_rule_kind {
    SONDE_RULE_REAL = 0,       /* double */
    SONDE_RULE_COUNT = 1,      /* int64_t */
    SONDE_RULE_FLAG = 2,       /* bool: true, false, yes, no, 1, 0 */
    SONDE_RULE_TEXT = 3,       /* const char *; NULL without value and default */
    SONDE_RULE_REGEX = 4,      /* the same: comma-separated regular expressions */
    SONDE_RULE_COLLECTIONS = 5 /* the same: comma-separated collections */
} sonde_rule_kind;

typedef struct sonde_rule_param {
    const char *name;
    sonde_rule_kind kind;
    const char
        *initial; /* the default, as a user would write it; NULL: none (a real number is
                            then NaN, a count INT64_MIN) */
    double least, most; /* the allowed range of a number; both 0: any */
    const char *help;
    size_t offset; /* of the field in the state */
    bool required;
} sonde_rule_param;

/* --- evidence ----------------------------------------------------------------------- */

/* One kind of evidence that a rule looks at. */
typedef struct sonde_rule_need {
    const char *what; /* "gradients of weights" */
    unsigned how;     /* SONDE_HOW_ bits */
    bool optional;    /* the rule works without it */
    unsigned roles;   /* bit r: it is of tensors of role r; 0: of any role */
    /* How seldom the rule may look: at the first steps of a mode, then at steps at most
     * `every` apart, and in rows of neighboring steps, if it compares a value with the
     * one before. Zeroed: SONDE_RULE_LOOKS. In the training process a tensor is observed
     * as often as its rules need together, and raw values, sketches and hashes are passed
     * to a rule only at the steps of its own. */
    sonde_schedule when;
} sonde_rule_need;

/* When a rule looks that does not say so. */
#define SONDE_RULE_LOOKS                                                                 \
    {                                                                                    \
        .every = 10, .first = 20                                                         \
    }

/* A rule at work: the row with its state and its tensors. */
typedef struct sonde_rule_run sonde_rule_run;

/* A tensor that a rule looks at. */
typedef struct sonde_rule_tensor {
    uint32_t id; /* of the catalogue */
    int need;    /* index into the rule's needs */
    /* In step: over all micro-batches and replicas of the step; NULL if it was not seen.
     * A need of SONDE_HOW_VITALS is shown full vital signs only. One of SONDE_HOW_NORMS is
     * also shown steps that have no more than norms: then the other fields are absent
     * (<sonde/stats.h>). */
    const sonde_vitals *vitals;
    void *memory; /* sonde_rule.tensor_size bytes, zeroed at first */
} sonde_rule_tensor;

/* What wants returns for a tensor that the rule does not look at. */
#define SONDE_RULE_IGNORE (-1)

typedef struct sonde_rule {
    uint32_t abi; /* SONDE_RULE_ABI */
    const char *name;
    const char *summary;   /* one line */
    const char *condition; /* when exactly it fires, for people */
    const char *advice;    /* what to do about it, one sentence */
    const sonde_rule_param *params;
    size_t param_count;
    /* None: step is called at every step of a trial; in a process, at every step of which
     * any rule sees a tensor. With program: at the steps with a new one. */
    const sonde_rule_need *needs;
    size_t need_count;
    unsigned modes; /* bit i: steps of mode i; 0: all. Train includes global where the run
                       has no train steps */
    /* Opt-in: not among the default rules. */
    bool by_name_only;
    size_t state_size;  /* zeroed at first; then the parameters are stored */
    size_t tensor_size; /* of tensor->memory */

    sonde_err (*init)(sonde_rule_run *run, sonde_diag *diag); /* may be NULL */
    /* The index of the need that the tensor answers, or SONDE_RULE_IGNORE. May be NULL if
     * there are no needs. Programs are no tensors here. */
    int (*wants)(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id);
    sonde_err (*bind)(sonde_rule_run *run, size_t i, sonde_diag *diag); /* may be NULL */
    /* Passes raw values, sketches and hashes; NULL or 0 for those that were not seen.
     * Vital signs are passed to step. May be NULL. */
    void (*observe)(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation);
    /* Is called for each new program of a mode that the rule judges, before step. The
     * program lives until the next one of its mode. A rule without needs that has it is
     * called at these steps alone. May be NULL. */
    void (*program)(sonde_rule_run *run, const sonde_program *program);
    void (*step)(sonde_rule_run *run); /* may be NULL */
    /* While a run is followed: seconds since the last new step. May be NULL. */
    void (*idle)(sonde_rule_run *run, double seconds);
    void (*finish)(sonde_rule_run *run); /* at the end of the run; may be NULL */
    /* Frees what the rule allocated itself. May be NULL. */
    void (*destroy)(sonde_rule_run *run);
} sonde_rule;

/* The arrays of a row with their lengths: .name = "Mine", SONDE_RULE_PARAMS(params), ...
 * */
#define SONDE_RULE_PARAMS(array)                                                         \
    .params = (array), .param_count = sizeof(array) / sizeof((array)[0])
#define SONDE_RULE_NEEDS(array)                                                          \
    .needs = (array), .need_count = sizeof(array) / sizeof((array)[0])

/* --- a plug-in ---------------------------------------------------------------------- */

/*
 * The symbol that a shared object with rules exports: SONDE_RULE_PLUGIN(&my_rule,
 * &another) defines it. abi and rule_size keep their places in every version, so that a
 * mismatch is detected.
 */
typedef struct sonde_rule_plugin {
    uint32_t abi;       /* SONDE_RULE_ABI */
    uint32_t rule_size; /* sizeof(sonde_rule) */
    const sonde_rule *const *rules;
    size_t count;
} sonde_rule_plugin;

#define SONDE_RULE_PLUGIN_NAME "sonde_rule_plugin_table"
#ifdef __cplusplus
#define SONDE_RULE_PLUGIN_EXTERN extern "C" __attribute__((visibility("default")))
#else
#define SONDE_RULE_PLUGIN_EXTERN extern __attribute__((visibility("default")))
#endif
#define SONDE_RULE_PLUGIN(...)                                                           \
    static const sonde_rule *const sonde_rules_of_plugin[] = {__VA_ARGS__};              \
    SONDE_RULE_PLUGIN_EXTERN const sonde_rule_plugin sonde_rule_plugin_table;            \
    const sonde_rule_plugin sonde_rule_plugin_table = {                                  \
        SONDE_RULE_ABI, sizeof(sonde_rule), sonde_rules_of_plugin,                       \
        sizeof sonde_rules_of_plugin / sizeof sonde_rules_of_plugin[0]}

/* --- what a rule can read ----------------------------------------------------------- */

SONDE_API void *sonde_rule_state(sonde_rule_run *run);
/* The row by which the rule was added. */
SONDE_API const sonde_rule *sonde_rule_row(const sonde_rule_run *run);
/* The tensors that the rule wants, in the order of their declaration. Borrowed until the
 * next bind; indices do not change. */
SONDE_API sonde_rule_tensor *sonde_rule_tensors(sonde_rule_run *run, size_t *count);
/* The current step. */
SONDE_API const sonde_coordinate *sonde_rule_at(const sonde_rule_run *run);
SONDE_API const sonde_tensor_info *sonde_rule_info(const sonde_rule_run *run,
                                                   uint32_t id);
/* True if vital signs that any rule looks at count a NaN or infinity at this step. */
SONDE_API bool sonde_rule_any_bad(const sonde_rule_run *run);
/* True if the expressions or collections of parameter i (index into params) select the
 * tensor; false if the parameter is not given. */
SONDE_API bool sonde_rule_matches(const sonde_rule_run *run, size_t param, uint32_t id);
/* True if any parameter selects it. Sets *given (may be NULL) if any such parameter is
 * given. */
SONDE_API bool sonde_rule_selected(const sonde_rule_run *run, uint32_t id, bool *given);
/* Index of the rule's tensor that is called prefix followed by name; SIZE_MAX if there is
 * none. For bind. */
SONDE_API size_t sonde_rule_find(sonde_rule_run *run, const char *prefix,
                                 const char *name);

/* The program in force of a mode (SONDE_MODE_GLOBAL: of steps without modes); NULL: none
 * so far. */
SONDE_API const sonde_program *sonde_rule_program(const sonde_rule_run *run,
                                                  sonde_mode mode);

/* --- what a rule can report --------------------------------------------------------- */

/* As the index of a tensor: the finding is about the whole run. */
#define SONDE_RULE_WHOLE_RUN SIZE_MAX

/*
 * The condition holds at this step for tensor i of the rule (or SONDE_RULE_WHOLE_RUN).
 * Returns true the first time: then sonde_rule_say must follow. Later calls extend the
 * existing finding. statistic names the value that crossed the threshold.
 */
SONDE_API bool sonde_rule_found(sonde_rule_run *run, size_t i, sonde_severity severity,
                                const char *statistic, double value, double threshold);
/*
 * The same for a tensor by its name ("": none) and a line of the user's source: there is
 * one finding for each. The line of other findings is looked up in the programs in force.
 */
SONDE_API bool sonde_rule_found_at(sonde_rule_run *run, const char *tensor,
                                   sonde_place place, sonde_severity severity,
                                   const char *statistic, double value, double threshold);
/* The message, one sentence; advice NULL: that of the rule. */
SONDE_API void sonde_rule_say(sonde_rule_run *run, const char *advice, const char *fmt,
                              ...) SONDE_PRINTF(3, 4);
/* The rule cannot continue (out of memory, for example): it is switched off, with a
 * finding about the rule itself. */
SONDE_API void sonde_rule_fail(sonde_rule_run *run, const char *fmt, ...)
    SONDE_PRINTF(2, 3);
/* Evidence that was missing or unusable, for --explain; the last call counts. */
SONDE_API void sonde_rule_lacked(sonde_rule_run *run, const char *fmt, ...)
    SONDE_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
