/*
 * builtin.h - how a built-in rule is written: its row, its parameters, the tensors that it
 * chooses, and arithmetic on what they hold.
 *
 * A rule is a row sonde__builtin_<name> in a file rule_<name>.c, where rules of one family
 * may stand together. The build finds it there: no table lists it. A comment says exactly
 * when the rule fires.
 *
 * What is found is reported with terms (rules/suspicion.h): of what is sure,
 * SONDE__SURE(ERROR); else the rule's own, by the course of training.
 */
#ifndef SONDE_RULES_BUILTIN_BUILTIN_H
#define SONDE_RULES_BUILTIN_BUILTIN_H

#include <sonde/rule.h>

#include "rules/suspicion.h"
#include "tensor/convert.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__TRAIN = 1U << SONDE_MODE_TRAIN };

/* --- a row -------------------------------------------------------------------------- */

/* The first fields of a row: its name, the type of its state, and the arrays type_params
 * and type_needs. */
#define SONDE__RULE(rule_name, type)                                                     \
    .abi = SONDE_RULE_ABI, .name = (rule_name), .state_size = sizeof(type),              \
    SONDE_RULE_PARAMS(type##_params), SONDE_RULE_NEEDS(type##_needs)

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
#define SONDE__WHEN(...)                                                                 \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }
#define SONDE__EACH_STEP SONDE__WHEN(.every = 1)
#define SONDE__OFTEN SONDE_RULE_LOOKS
#define SONDE__SELDOM SONDE__WHEN(.first = 20, .every = 50)
/* For full vital signs of parameters and gradients, and for values that keep a trace of
 * the steps before, as moments of the optimizer do. */
#define SONDE__AT_TIMES SONDE__WHEN(.first = 20, .every = 20)
/* For gradients of activations: what is wrong with them shows in those of parameters. */
#define SONDE__RARELY SONDE__WHEN(.first = 20, .every = 100)
/* For rules that compare a step with the one before, and with those before that. */
#define SONDE__IN_PAIRS SONDE__WHEN(.first = 20, .every = 100, .row = 2, .row_every = 100)
#define SONDE__IN_ROWS SONDE__WHEN(.first = 20, .every = 100, .row = 6, .row_every = 100)
/* For rules that count comparisons from the start of a run. */
#define SONDE__CLOSELY SONDE__WHEN(.first = 50, .every = 20)

/* --- a rule's tensors --------------------------------------------------------------- */

static inline size_t sonde__builtin_count(sonde_rule_run *run)
{
    size_t count = 0;

    (void)sonde_rule_tensors(run, &count);
    return count;
}

static inline sonde_rule_tensor *sonde__builtin_tensors(sonde_rule_run *run)
{
    size_t count = 0;

    return sonde_rule_tensors(run, &count);
}

static inline sonde_rule_tensor *sonde__builtin_end(sonde_rule_run *run)
{
    const size_t count = sonde__builtin_count(run);

    return count > 0 ? sonde__builtin_tensors(run) + count : NULL;
}

static inline size_t sonde__builtin_index(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    return (size_t)(t - sonde__builtin_tensors(run));
}

static inline sonde_rule_tensor *sonde__builtin_at(sonde_rule_run *run, size_t i)
{
    return sonde__builtin_tensors(run) + i;
}

/* The vital signs of a tensor at this step; NULL if there are none, and for SIZE_MAX. */
static inline const sonde_vitals *sonde__builtin_seen_at(sonde_rule_run *run, size_t i)
{
    return i != SIZE_MAX ? sonde__builtin_tensors(run)[i].vitals : NULL;
}

/* A loop over the rule's tensors; over those of one need; over those of them that were
 * seen at this step; over those of them with elements, all of which are finite. Pointers
 * to tensors last until the next bind. */
#define SONDE__EACH(run, t)                                                              \
    for (sonde_rule_tensor *t = sonde__builtin_tensors(run),                             \
                           *t##_end = sonde__builtin_end(run);                           \
         t < t##_end; t++)
#define SONDE__EACH_OF(run, t, wanted)                                                   \
    SONDE__EACH (run, t)                                                                 \
        if (t->need == (wanted))
#define SONDE__EACH_SEEN(run, t, wanted)                                                 \
    SONDE__EACH (run, t)                                                                 \
        if (t->need == (wanted) && t->vitals != NULL)
#define SONDE__EACH_FINITE(run, t, wanted)                                               \
    SONDE__EACH (run, t)                                                                 \
        if (t->need == (wanted) && sonde__builtin_is_finite(t->vitals))

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

/* Of at most so many elements. */
bool sonde__builtin_is_small(const sonde_tensor_info *info, int64_t most);

/* A batch as the session gets it. */
static inline bool sonde__builtin_is_input(const sonde_tensor_info *info, uint32_t id)
{
    return info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE &&
           sonde__builtin_is_own(info, id);
}

/* Whether its name says that it is a target or a label. */
bool sonde__builtin_is_target(const sonde_tensor_info *info);

/* The activation that a tensor goes into, "relu", "tanh" ..., by its name (relu1_input_0)
 * or, for a module's input, by the op of that module's output; NULL if none is known.
 * Cost: one pass over the catalogue. */
const char *sonde__builtin_goes_into(const sonde_rule_run *run,
                                     const sonde_tensor_info *info);

/* Whether a weight is the table of an embedding, by the op of its module's output or by a
 * word of its name. Cost: one pass over the catalogue. */
bool sonde__builtin_is_table(const sonde_rule_run *run, const sonde_tensor_info *info);
/* Whether a weight belongs to a normalization or scales channels, in the same way. */
bool sonde__builtin_is_scale(const sonde_rule_run *run, const sonde_tensor_info *info);

/* Whether a name is that of the recurrent weight of the reverse direction of PyTorch's
 * bidirectional layers, or of its gradient: where only the last output is read, that direction
 * has taken one step from a state of 0, and this gradient is exactly 0. */
bool sonde__builtin_is_reverse_recurrence(const char *name);

/* The parameter that a gradient, an update or an optimizer's value belongs to, by the
 * names that Sonde, smdebug and PyTorch give: Gradient___w, gradient/w, w.grad,
 * Accl1___w, w.exp_avg ... text is NULL if the name has none of these forms. */
typedef struct sonde__builtin_span {
    const char *text;
    size_t length;
} sonde__builtin_span;
sonde__builtin_span sonde__builtin_parameter_of(const char *name);
/* To each tensor of need `whole` belongs one of need `part`: the first one of that
 * parameter that passes `fits` (NULL: any). */
typedef struct sonde__builtin_link {
    int whole, part;
    size_t
        offset; /* in the memory of the whole: a size_t, the index of the part, or SIZE_MAX */
    bool (*fits)(const sonde_tensor_info *info);
} sonde__builtin_link;
/* For step: true if tensors were added since *linked, which is then the number of them;
 * sets the links anew. */
bool sonde__builtin_relink(sonde_rule_run *run, size_t *linked,
                           const sonde__builtin_link *links, size_t count);

/* Whether one of the words stands in a text, in capitals or not. */
bool sonde__builtin_has_word(const char *text, const char *const *words, size_t count);
bool sonde__builtin_same_shape(const sonde_tensor_info *a, const sonde_tensor_info *b);

/* --- tensors that a rule wants ------------------------------------------------------ */

/* sonde_rule.wants: the first need that has the tensor's role, of tensors that are no
 * alias; what the first parameter, an expression, selects. */
int sonde__builtin_wants_role(sonde_rule_run *run, const sonde_tensor_info *info,
                              uint32_t id);
int sonde__builtin_wants_matched(sonde_rule_run *run, const sonde_tensor_info *info,
                                 uint32_t id);

/* The two parameters with which users choose tensors; type is the rule's state. */
#define SONDE__CHOSEN(type)                                                              \
    SONDE__COLLECTIONS(type, collection_names, NULL,                                     \
                       "comma-separated list of collections"),                           \
        SONDE__REGEX(type, tensor_regex, NULL,                                           \
                     "comma-separated regular expressions that select tensors")
/* For wants of rules with these parameters: 0 for a tensor that the user has chosen or,
 * if he has chosen none, for one with `otherwise`. */
int sonde__builtin_wants_chosen(sonde_rule_run *run, uint32_t id, bool otherwise);
/* The same for rules that look at all tensors, or at all weights, by default. */
int sonde__builtin_wants_any(sonde_rule_run *run, const sonde_tensor_info *info,
                             uint32_t id);
int sonde__builtin_wants_weight(sonde_rule_run *run, const sonde_tensor_info *info,
                                uint32_t id);

/* Whether a loss is the only one of the run, or the total of others by its name, and not
 * one of several: parts of a sum and the losses of two players need not fall, and what
 * they do says little by itself. Losses whose names begin with val, eval or test are not
 * counted. Cost: one pass over the catalogue. */
bool sonde__builtin_is_whole_loss(const sonde_rule_run *run, uint32_t id);

/* --- rules of smdebug --------------------------------------------------------------- */

/* The parameter of rules that judge otherwise than smdebug documents; type is the rule's
 * state. */
#define SONDE__SMDEBUG(type)                                                             \
    SONDE__FLAG(type, smdebug, "false", "judge exactly as smdebug documents the rule")
/* For init: true if the user has set that parameter, or any of the parameters `theirs`,
 * which smdebug has, and none of `ours`; both are comma-separated names. */
bool sonde__builtin_as_smdebug(sonde_rule_run *run, const char *theirs, const char *ours);

/* --- while judging ------------------------------------------------------------------ */

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

/* --- arithmetic on vital signs ------------------------------------------------------ */

static inline uint64_t sonde__builtin_finite(const sonde_vitals *v)
{
    return v->count - v->nan - v->pos_inf - v->neg_inf;
}

/* NaN and infinities. */
static inline uint64_t sonde__builtin_bad(const sonde_vitals *v)
{
    return v->nan + v->pos_inf + v->neg_inf;
}

static inline uint64_t sonde__builtin_nonzero(const sonde_vitals *v)
{
    return sonde__builtin_finite(v) - v->zero;
}

/* sqrt of the mean square of the finite elements; 0 if there is none. */
static inline double sonde__builtin_rms(const sonde_vitals *v)
{
    const uint64_t n = sonde__builtin_finite(v);

    return n > 0 ? sqrt(v->sumsq / (double)n) : 0.0;
}

/* Of the population of finite elements; 0 if there is none. */
static inline double sonde__builtin_variance(const sonde_vitals *v)
{
    const uint64_t n = sonde__builtin_finite(v);

    return n > 0 ? v->m2 / (double)n : 0.0;
}

/* Whether there are vital signs, of elements that are all finite; of which any is. */
static inline bool sonde__builtin_is_finite(const sonde_vitals *v)
{
    return v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0;
}

static inline bool sonde__builtin_has_finite(const sonde_vitals *v)
{
    return v != NULL && sonde__builtin_finite(v) > 0;
}

/* True if all counts, extremes and sums are equal to the bit. */
static inline bool sonde__builtin_same_vitals(const sonde_vitals *a,
                                              const sonde_vitals *b)
{
    return a->count == b->count && a->nan == b->nan && a->pos_inf == b->pos_inf &&
           a->neg_inf == b->neg_inf && a->zero == b->zero && a->min == b->min &&
           a->max == b->max && a->l1 == b->l1 && a->sumsq == b->sumsq && a->sum == b->sum;
}

/* |w - w'| from below, by the vital signs of w and w'. */
double sonde__builtin_least_change(const sonde_vitals *now, const sonde_vitals *before);

/* The loss of the step, among tensors of a need: that of the run, else the first one; of
 * finite ones alone, or of all. NULL: there is none. */
const sonde_vitals *sonde__builtin_loss_of(sonde_rule_run *run, int need, bool finite);

/* --- elements of raw values --------------------------------------------------------- */

/* Reads a view row-major, a chunk at a time:
 *
 *     sonde__builtin_reader reader = sonde__builtin_read(view);
 *     for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0;) ...
 */
typedef struct sonde__builtin_reader {
    sonde__tensor_cursor cursor;
    sonde_dtype dtype;
} sonde__builtin_reader;
enum { SONDE__CHUNK = 256 };
sonde__builtin_reader sonde__builtin_read(const sonde_view *view);
/* Returns how many elements it stored; 0 at the end. */
size_t sonde__builtin_next(sonde__builtin_reader *reader, double values[SONDE__CHUNK]);
/* Stores at most `most` elements, the same places for every view of a shape: evenly
 * spread over a contiguous view, else the first ones. Returns how many. Cost: that many
 * loads. */
size_t sonde__builtin_sample(const sonde_view *view, size_t most, double *out);
/* The same of a raw value that is the first of its step; 0 of any other evidence. */
size_t sonde__builtin_sample_first(const sonde_observation *observation, size_t most,
                                   double *out);

/* --- recent values ------------------------------------------------------------------ */

enum { SONDE__RECENT = 32 };

/* The last values of a number; the oldest is overwritten. */
typedef struct sonde__builtin_recent {
    double value[SONDE__RECENT];
    int64_t count; /* taken so far */
} sonde__builtin_recent;

void sonde__builtin_recent_take(sonde__builtin_recent *recent, double value);
/* Of the values that are kept; 0 if there is none. part is below 1. */
double sonde__builtin_recent_quantile(const sonde__builtin_recent *recent, double part);
double sonde__builtin_recent_median(const sonde__builtin_recent *recent);
/* Of the last `most` of them; NaN if there is none. */
double sonde__builtin_recent_mean(const sonde__builtin_recent *recent, int64_t most);
/* Whether factor times the median is below value. Sorts nothing. */
bool sonde__builtin_recent_exceeds(const sonde__builtin_recent *recent, double factor,
                                   double value);

/* Values in a row, of which the mean is taken. */
typedef struct sonde__builtin_window {
    double sum, sumsq;
    int64_t count;
    double mean, error; /* of the last whole window, and the standard error of that */
} sonde__builtin_window;
/* True if that ends a window of so many values; the next one begins. */
bool sonde__builtin_window_take(sonde__builtin_window *window, double value,
                                int64_t size);

/* Ascending. */
void sonde__builtin_sort(double *values, size_t count);

#endif
