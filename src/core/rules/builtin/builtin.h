/*
 * builtin.h - how a built-in rule is written.
 *
 * A rule is one file, rule_<name>.c, which defines sonde__builtin_<name>. The build finds
 * it there: no table lists it. Its comment says exactly when the rule fires.
 *
 *     builtin.h          a rule's row, its parameters, the tensors that it chooses
 *     builtin_vitals.h   arithmetic on vital signs
 *     builtin_values.h   elements of raw values
 *     labels.h  series.h  units.h    helpers that a few rules share
 */
#ifndef SONDE_RULES_BUILTIN_BUILTIN_H
#define SONDE_RULES_BUILTIN_BUILTIN_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__TRAIN = 1U << SONDE_MODE_TRAIN };

/* --- a row -------------------------------------------------------------------------- */

/* The first fields of a row: its name, the type of its state, the file's `params` and
 * `needs`. */
#define SONDE__RULE(rule_name, type)                                                     \
    .abi = SONDE_RULE_ABI, .name = (rule_name), .state_size = sizeof(type),              \
    SONDE_RULE_PARAMS(params), SONDE_RULE_NEEDS(needs)

/* A parameter that has the name of its field in the state. */
#define SONDE__PARAM(type, field, kind, initial, least, most, help)                      \
    {                                                                                    \
#field, kind, initial, least, most, help, offsetof(type, field), false           \
    }
#define SONDE__REAL(type, field, initial, least, most, help)                             \
    SONDE__PARAM(type, field, SONDE_RULE_REAL, initial, least, most, help)
#define SONDE__COUNT(type, field, initial, least, most, help)                            \
    SONDE__PARAM(type, field, SONDE_RULE_COUNT, initial, least, most, help)
#define SONDE__FLAG(type, field, initial, help)                                          \
    SONDE__PARAM(type, field, SONDE_RULE_FLAG, initial, 0, 0, help)
#define SONDE__TEXT(type, field, initial, help)                                          \
    SONDE__PARAM(type, field, SONDE_RULE_TEXT, initial, 0, 0, help)
#define SONDE__REGEX(type, field, initial, help)                                         \
    SONDE__PARAM(type, field, SONDE_RULE_REGEX, initial, 0, 0, help)
#define SONDE__COLLECTIONS(type, field, initial, help)                                   \
    SONDE__PARAM(type, field, SONDE_RULE_COLLECTIONS, initial, 0, 0, help)

/* --- needs -------------------------------------------------------------------------- */

/* Of sonde_rule_need.roles. */
enum {
    SONDE__WEIGHTS = 1U << SONDE_ROLE_WEIGHT,
    SONDE__PARAMETERS = SONDE__WEIGHTS | 1U << SONDE_ROLE_BIAS,
    SONDE__BUFFERS = 1U << SONDE_ROLE_BUFFER,
    SONDE__GRADIENTS = 1U << SONDE_ROLE_GRADIENT,
    SONDE__UPDATES = 1U << SONDE_ROLE_UPDATE,
    SONDE__STATE = 1U << SONDE_ROLE_OPTIMIZER,
    SONDE__LOSSES = 1U << SONDE_ROLE_LOSS,
    SONDE__INPUTS = 1U << SONDE_ROLE_INPUT,
    SONDE__OUTPUTS = 1U << SONDE_ROLE_OUTPUT,
    SONDE__ACTIVATIONS = SONDE__INPUTS | SONDE__OUTPUTS | 1U << SONDE_ROLE_ACTIVATION,
    SONDE__NUMBERS = 1U << SONDE_ROLE_SCALAR | 1U << SONDE_ROLE_OTHER,
    SONDE__BACKWARD = 1U << SONDE_ROLE_ACTIVATION_GRADIENT,
    SONDE__NOT_BACKWARD = ((1U << SONDE_ROLE_COUNT) - 1U) & ~(unsigned)SONDE__BACKWARD,
    SONDE__ANY = 0
};

/* Of sonde_rule_need.when. A look at every tensor costs about half a step: seldom is for
 * what large tensors are examined for, often for parameters, gradients and few numbers. */
#define SONDE__EACH_STEP                                                                 \
    {                                                                                    \
        .every = 1                                                                       \
    }
#define SONDE__OFTEN SONDE_RULE_LOOKS
#define SONDE__SELDOM                                                                    \
    {                                                                                    \
        .first = 20, .every = 50                                                         \
    }
/* For full vital signs of parameters and gradients, and for values that keep a trace of
 * the steps before, as moments of the optimiser do. */
#define SONDE__AT_TIMES                                                                  \
    {                                                                                    \
        .first = 20, .every = 20                                                         \
    }
/* For gradients of activations: what is wrong with them shows in those of parameters. */
#define SONDE__RARELY                                                                    \
    {                                                                                    \
        .first = 20, .every = 100                                                        \
    }
/* For rules that compare a step with the one before, and with those before that. */
#define SONDE__IN_PAIRS                                                                  \
    {                                                                                    \
        .first = 20, .every = 100, .row = 2, .row_every = 100                            \
    }
/* For rules that count comparisons from the start of a run. */
#define SONDE__CLOSELY                                                                   \
    {                                                                                    \
        .first = 50, .every = 20                                                         \
    }
#define SONDE__IN_ROWS                                                                   \
    {                                                                                    \
        .first = 20, .every = 100, .row = 6, .row_every = 100                            \
    }

/* --- a rule's tensors --------------------------------------------------------------- */

static inline sonde_rule_tensor *sonde__builtin_tensors(sonde_rule_run *run)
{
    size_t count = 0;

    return sonde_rule_tensors(run, &count);
}

static inline size_t sonde__builtin_count(sonde_rule_run *run)
{
    size_t count = 0;

    (void)sonde_rule_tensors(run, &count);
    return count;
}

/* A loop over the indices of the rule's tensors; over those of one need; over those of
 * them that were seen at this step. */
#define SONDE__EACH(run, i)                                                              \
    for (size_t i = 0, i##_end = sonde__builtin_count(run); i < i##_end; i++)
#define SONDE__EACH_OF(run, tensors, i, wanted)                                          \
    SONDE__EACH (run, i)                                                                 \
        if ((tensors)[i].need == (wanted))
#define SONDE__EACH_SEEN(run, tensors, i, wanted)                                        \
    SONDE__EACH (run, i)                                                                 \
        if ((tensors)[i].need == (wanted) && (tensors)[i].vitals != NULL)

/* --- tensors by what they are ------------------------------------------------------- */

/* False for an alias: another name of a value that is declared under its own. */
static inline bool sonde__builtin_is_own(const sonde_tensor_info *info, uint32_t id)
{
    return info->same_as == id;
}

static inline bool sonde__builtin_is_loss(const sonde_tensor_info *info, uint32_t id)
{
    return info->role == SONDE_ROLE_LOSS && sonde__builtin_is_own(info, id);
}

static inline bool sonde__builtin_is_parameter(const sonde_tensor_info *info)
{
    return info->role == SONDE_ROLE_WEIGHT || info->role == SONDE_ROLE_BIAS;
}

/* Of at most so many elements. */
bool sonde__builtin_is_small(const sonde_tensor_info *info, int64_t most);

/* A gradient of a parameter as it is applied: Accum___w where gradients are accumulated,
 * else Gradient___w. */
static inline bool sonde__builtin_is_gradient(const sonde_tensor_info *info)
{
    return info->role == SONDE_ROLE_GRADIENT;
}

/* A batch as the session gets it, of floating point. */
static inline bool sonde__builtin_is_input(const sonde_tensor_info *info, uint32_t id)
{
    return info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE &&
           sonde__builtin_is_own(info, id) && sonde_dtype_is_float(info->dtype);
}

/* Whether a tensor may hold -Inf on purpose: a mask of attention, scores that are
 * masked, a logarithm of 0. */
static inline bool sonde__builtin_may_be_masked(const sonde_tensor_info *info)
{
    return info->role == SONDE_ROLE_OUTPUT || info->role == SONDE_ROLE_ACTIVATION ||
           info->role == SONDE_ROLE_INPUT || info->role == SONDE_ROLE_BUFFER ||
           info->role == SONDE_ROLE_OTHER;
}

/* A buffer that is infinite by construction, such as the bound of a constraint: it holds
 * infinities, and no NaN, from the first step on, and always as many. *infinite: of the
 * tensor, 0 at first; started: an earlier step was judged. Call it whenever the tensor
 * holds such a value. */
bool sonde__builtin_is_given(const sonde_tensor_info *info, const sonde_vitals *v,
                             bool started, uint64_t *infinite);

/* True if the last word of the name, after dots and underscores, begins with "bias". */
bool sonde__builtin_is_bias(const sonde_tensor_info *info);
/* The activation that a tensor goes into, "relu", "tanh" ..., by its name (relu1_input_0)
 * or, for a module's input, by the op of that module's output; NULL if none is known.
 * Cost: one pass over the catalogue. */
const char *sonde__builtin_goes_into(const sonde_rule_run *run,
                                     const sonde_tensor_info *info);

/* Whether a weight is the table of an embedding, by the op of its module's output or by a
 * word of its name. Cost: one pass over the catalogue. */
bool sonde__builtin_is_table(const sonde_rule_run *run, const sonde_tensor_info *info);
/* Whether a weight belongs to a normalisation or scales channels, in the same way. */
bool sonde__builtin_is_scale(const sonde_rule_run *run, const sonde_tensor_info *info);
/* Whether a buffer holds the statistics of a batch normalisation, by its name. */
bool sonde__builtin_is_statistic(const sonde_tensor_info *info);

/* Whether gradients of this step are not finite, and everything else is, parameters
 * included: the update was skipped, as a scaler of mixed precision does on purpose. MAYBE:
 * no parameter is seen at this step. */
typedef enum sonde__builtin_skip {
    SONDE__SKIP_NO,
    SONDE__SKIP_MAYBE,
    SONDE__SKIP_YES
} sonde__builtin_skip;
sonde__builtin_skip sonde__builtin_was_skipped(sonde_rule_run *run);
/* sonde_rule_found of values that are not finite: a note where the update was skipped, a
 * suspicion where it may have been, else an error. */
bool sonde__builtin_found_bad(sonde_rule_run *run, size_t i, sonde__builtin_skip skip,
                              double bad);

/* The parameter that a gradient, an update or an optimiser's value belongs to, by the
 * names that Sonde, smdebug and PyTorch give: Gradient___w, gradient/w, w.grad,
 * Accl1___w, w.exp_avg ... text is NULL if the name has none of these forms. */
typedef struct sonde__builtin_span {
    const char *text;
    size_t length;
} sonde__builtin_span;
sonde__builtin_span sonde__builtin_parameter_of(const char *name);
/* For every tensor of need `parameters`: sets the size_t at `offset` of its memory to the
 * index of the first tensor of need `parts` that belongs to it and passes `fits` (NULL:
 * any), or SIZE_MAX. Call it in step whenever the number of tensors has grown. */
void sonde__builtin_link(sonde_rule_run *run, int parameters, int parts,
                         bool (*fits)(const sonde_tensor_info *info), size_t offset);

/* --- tensors that a rule wants ------------------------------------------------------ */

/* sonde_rule.wants: the first need that has the tensor's role, of tensors that are no
 * alias; what the first parameter, an expression, selects. */
int sonde__builtin_wants_role(sonde_rule_run *run, const sonde_tensor_info *info,
                              uint32_t id);
int sonde__builtin_wants_matched(sonde_rule_run *run, const sonde_tensor_info *info,
                                 uint32_t id);

/* The two parameters with which users choose tensors; type is the rule's state. */
#define SONDE__CHOSEN(type)                                                              \
    SONDE__COLLECTIONS(type, collection_names, NULL, "comma-separated collections"),     \
        SONDE__REGEX(type, tensor_regex, NULL,                                           \
                     "comma-separated expressions that select tensors")
/* For wants of rules with these parameters: 0 for a tensor that the user has chosen or,
 * if he has chosen none, for one with `otherwise`. */
int sonde__builtin_wants_chosen(sonde_rule_run *run, uint32_t id, bool otherwise);
/* The same for rules that look at all tensors, or at all weights, by default. */
int sonde__builtin_wants_any(sonde_rule_run *run, const sonde_tensor_info *info,
                             uint32_t id);
int sonde__builtin_wants_weight(sonde_rule_run *run, const sonde_tensor_info *info,
                                uint32_t id);

/* What a loss is to its run. Parts of a sum and the losses of two players need not fall,
 * and what they do says little by itself. */
typedef enum sonde__builtin_loss {
    SONDE__LOSS_WHOLE, /* the only loss of the run, or the total of others by its name */
    SONDE__LOSS_PART   /* one of several */
} sonde__builtin_loss;
/* Losses whose names begin with val, eval or test are not counted. Cost: one pass over
 * the catalogue. */
sonde__builtin_loss sonde__builtin_loss_kind(const sonde_rule_run *run, uint32_t id);

/* --- rules of smdebug --------------------------------------------------------------- */

/* The parameter of rules that judge otherwise than smdebug documents; type is the rule's
 * state. */
#define SONDE__SMDEBUG(type)                                                             \
    SONDE__FLAG(type, smdebug, "false", "judge exactly as smdebug documents the rule")
/* For init: true if the user has set that parameter, or any of the parameters `theirs`,
 * which smdebug has, and none of `ours`; both are comma-separated names. */
bool sonde__builtin_as_smdebug(sonde_rule_run *run, const char *theirs, const char *ours);
/* For bind: true if the trial has vital signs of the tensor, with elements that are not
 * 0, from before the first step that is judged. */
bool sonde__builtin_was_nonzero(const sonde_rule_run *run, uint32_t id);

/* --- while judging ------------------------------------------------------------------ */

/* The index of one of the rule's tensors, for sonde_rule_found. */
static inline size_t sonde__builtin_index(sonde_rule_run *run,
                                          const sonde_rule_tensor *tensor)
{
    return (size_t)(tensor - sonde__builtin_tensors(run));
}

/* Frees the block that the pointer at this offset of each tensor's memory holds. */
void sonde__builtin_free_each(sonde_rule_run *run, size_t offset);

/* Steps of the mode since the one that *last stands for; 0 if there was none. *last then
 * stands for this step. For rules that compare a value with the previous one, which may
 * be many steps old. */
static inline int64_t sonde__builtin_steps_since(const sonde_rule_run *run, int64_t *last)
{
    const int64_t now = sonde_rule_at(run)->mode_step + 1;
    const int64_t since = *last > 0 && now > *last ? now - *last : 0;

    *last = now;
    return since;
}

/* "1 of 8 values is NaN", "3 of 8 values are NaN, 1 is +Inf": of vital signs with such
 * values. Returns text. */
enum { SONDE__BAD_TEXT = 128 };
const char *sonde__builtin_bad_text(const sonde_vitals *v, char text[SONDE__BAD_TEXT]);

/* "Workers 0 and 1 have the same batch.", or of replicas of one worker or of two. */
void sonde__builtin_say_replicas(sonde_rule_run *run, int a, int b, const char *what);

/* Ascending. */
void sonde__builtin_sort(double *values, size_t count);

#endif
