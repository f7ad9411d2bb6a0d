/*
 * rule.h - what a rule is: for whoever writes one. Who uses rules reads <sonde/rules.h>.
 * docs/own_rules.md writes one in ten minutes.
 *
 * A rule looks at a run step by step and says what is wrong with it. It is a table row
 * (sonde_rule): parameters, what evidence of which tensors it needs, and a few functions over
 * a state of its own. It never asks where the evidence comes from: a recorded run, one that is
 * being written, or the training process itself; so all three give the same findings.
 *
 *     init                          parameters are in the state
 *     wants, bind                   for every tensor that can be observed
 *     for every step that has anything:
 *         observe                   for every raw value or sketch that the rule asked for
 *         step                      vital signs of what was seen are in tensor->vitals
 *     finish, destroy
 *
 * Evidence is taken in the order statistics, sketch, raw values: a rule asks for raw values
 * only where nothing less will do. A step costs each rule a loop over its own tensors.
 *
 * All pointers are borrowed for the call but for state and memory, which live with the run.
 */
#ifndef SONDE_RULE_H
#define SONDE_RULE_H

#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SONDE_RULE_ABI = 1 };

/* How bad what was found is. */
typedef enum sonde_severity {
    SONDE_SEVERITY_NOTE = 0,    /* worth knowing */
    SONDE_SEVERITY_WARNING = 1, /* the run will probably be poor */
    SONDE_SEVERITY_ERROR = 2    /* the run is broken */
} sonde_severity;

/* --- parameters ------------------------------------------------------------------- */

/* The type of the field in the rule's state that a parameter goes to. */
typedef enum sonde_rule_kind {
    SONDE_RULE_REAL = 0,       /* double */
    SONDE_RULE_COUNT = 1,      /* int64_t */
    SONDE_RULE_FLAG = 2,       /* bool: true, false, yes, no, 1, 0 */
    SONDE_RULE_TEXT = 3,       /* const char *, NULL if not given and without default */
    SONDE_RULE_REGEX = 4,      /* the same: expressions by commas that select tensors */
    SONDE_RULE_COLLECTIONS = 5 /* the same: collections by commas */
} sonde_rule_kind;

typedef struct sonde_rule_param {
    const char *name;
    sonde_rule_kind kind;
    const char *initial; /* as a user would write it; NULL: none (a number is then NaN, a
                            count INT64_MIN) */
    double least, most;  /* of a number, both allowed; both 0: any */
    const char *help;
    size_t offset; /* of the field in the state */
    bool required;
} sonde_rule_param;

/* --- evidence --------------------------------------------------------------------- */

/* One kind of tensors that a rule looks at. */
typedef struct sonde_rule_need {
    const char *what; /* "gradients of weights" */
    unsigned how;     /* SONDE_HOW_ bits */
    bool optional;    /* the rule can work without */
    bool
        each_step; /* raw values and hashes too at every step, not at every tenth as where the
                         process judges itself */
} sonde_rule_need;

/* One rule at work. */
typedef struct sonde_rule_run sonde_rule_run;

/* A tensor that a rule looks at. */
typedef struct sonde_rule_tensor {
    uint32_t id; /* of the catalogue */
    int need;    /* index into the rule's needs */
    const sonde_vitals
        *vitals;  /* in step: over all micro-batches and replicas of the step;
                                   NULL if it was not seen */
    void *memory; /* sonde_rule.tensor_size bytes, zeroed at first */
} sonde_rule_tensor;

/* What wants returns for a tensor that is none of the rule's business. */
#define SONDE_RULE_IGNORE (-1)

typedef struct sonde_rule {
    uint32_t abi; /* SONDE_RULE_ABI */
    const char *name;
    const char *summary;   /* one line */
    const char *condition; /* when it fires, exactly, for people */
    const char *advice;    /* what to try, one sentence */
    const sonde_rule_param *params;
    size_t param_count;
    const sonde_rule_need *needs;
    size_t need_count;
    unsigned modes; /* bit i: steps of mode i; 0: all */
    /* Not among those that judge a run when none is named: it needs to be told what. */
    bool by_name_only;
    size_t state_size;  /* of the rule's own; zeroed, then parameters */
    size_t tensor_size; /* for every tensor */

    sonde_err (*init)(sonde_rule_run *run, sonde_diag *diag); /* may be NULL */
    int (*wants)(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id);
    sonde_err (*bind)(sonde_rule_run *run, size_t i, sonde_diag *diag); /* may be NULL */
    /* For raw values, sketches and hashes, those that are NULL or 0 were not seen; vital signs
     * are for step. May be NULL. */
    void (*observe)(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation);
    void (*step)(sonde_rule_run *run); /* may be NULL */
    /* Nothing new has come for so many seconds while a run is followed. May be NULL. */
    void (*idle)(sonde_rule_run *run, double seconds);
    void (*finish)(sonde_rule_run *run); /* at the end of the run; may be NULL */
    void (*destroy)(
        sonde_rule_run *run); /* what the rule itself allocated; may be NULL */
} sonde_rule;

/* The arrays of a row with their lengths: .name = "Mine", SONDE_RULE_PARAMS(params), ... */
#define SONDE_RULE_PARAMS(array)                                                         \
    .params = (array), .param_count = sizeof(array) / sizeof((array)[0])
#define SONDE_RULE_NEEDS(array)                                                          \
    .needs = (array), .need_count = sizeof(array) / sizeof((array)[0])

/* --- a plug-in -------------------------------------------------------------------- */

/*
 * What a shared object with rules exports: SONDE_RULE_PLUGIN(&my_rule, &another) makes it. abi
 * and rule_size stay where they are for ever, so that one of another version can be told.
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

/* --- what a rule can ask ---------------------------------------------------------- */

SONDE_API void *sonde_rule_state(sonde_rule_run *run);
/* The tensors that it wanted, in the order in which they were declared. Borrowed until the
 * next bind; what was at index i stays there. */
SONDE_API sonde_rule_tensor *sonde_rule_tensors(sonde_rule_run *run, size_t *count);
/* Where the step is. */
SONDE_API const sonde_coordinate *sonde_rule_at(const sonde_rule_run *run);
SONDE_API const sonde_tensor_info *sonde_rule_info(const sonde_rule_run *run,
                                                   uint32_t id);
/* Whether the vital signs of any tensor at this step tell of a NaN or an infinity. */
SONDE_API bool sonde_rule_any_bad(const sonde_rule_run *run);
/* Whether the expressions or collections of parameter i (index into params) select the
 * tensor. false if the parameter is not given. */
SONDE_API bool sonde_rule_matches(const sonde_rule_run *run, size_t param, uint32_t id);
/* Whether any parameter selects it; *given (may be NULL): whether any could. */
SONDE_API bool sonde_rule_selected(const sonde_rule_run *run, uint32_t id, bool *given);
/* Index of a tensor of the rule's by its name, prefix and name put together; SIZE_MAX if it
 * has none. For bind. */
SONDE_API size_t sonde_rule_find(sonde_rule_run *run, const char *prefix,
                                 const char *name);

/* --- what a rule can say ---------------------------------------------------------- */

/* For a finding about the run, not about a tensor. */
#define SONDE_RULE_WHOLE_RUN SIZE_MAX

/*
 * The condition holds at this step for tensor i of the rule (or SONDE_RULE_WHOLE_RUN). True
 * for the first time: then sonde_rule_say must follow. Again: the finding that is there is
 * told to have lasted. statistic names what crossed the threshold.
 */
SONDE_API bool sonde_rule_found(sonde_rule_run *run, size_t i, sonde_severity severity,
                                const char *statistic, double value, double threshold);
/* What it means, one sentence; advice NULL: the rule's. */
SONDE_API void sonde_rule_say(sonde_rule_run *run, const char *advice, const char *fmt,
                              ...) SONDE_PRINTF(3, 4);
/* The rule cannot go on (memory is out, an expression that never ends ...): it is switched off, and
 * that is told as a finding about the rule. */
SONDE_API void sonde_rule_fail(sonde_rule_run *run, const char *fmt, ...)
    SONDE_PRINTF(2, 3);
/* What of the evidence was missing or unfit, for --explain; the last one is kept. */
SONDE_API void sonde_rule_lacked(sonde_rule_run *run, const char *fmt, ...)
    SONDE_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
