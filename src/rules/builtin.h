/*
 * builtin.h - the built-in rules, and what they share. Each rule is a file; its header says
 * when it fires.
 */
#ifndef SONDE_RULES_BUILTIN_H
#define SONDE_RULES_BUILTIN_H

#include <sonde/rule.h>

#include "tensor/convert.h"

#include <math.h>

#define SONDE__COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
enum { SONDE__TRAIN = 1U << SONDE_MODE_TRAIN };

/* --- statistics ------------------------------------------------------------------- */

static inline uint64_t sonde__finite(const sonde_vitals *v)
{
    return v->count - v->nan - v->pos_inf - v->neg_inf;
}

static inline uint64_t sonde__bad(const sonde_vitals *v)
{
    return v->nan + v->pos_inf + v->neg_inf;
}

static inline uint64_t sonde__nonzero(const sonde_vitals *v)
{
    return sonde__finite(v) - v->zero;
}

/* sqrt of the mean square of the finite elements; 0 if there is none. */
static inline double sonde__rms(const sonde_vitals *v)
{
    const uint64_t n = sonde__finite(v);

    return n > 0 ? sqrt(v->sumsq / (double)n) : 0.0;
}

static inline double sonde__variance(const sonde_vitals *v)
{
    const uint64_t n = sonde__finite(v);

    return n > 0 ? v->m2 / (double)n : 0.0;
}

/* Whether two sets of vital signs are those of the same values, as far as they can tell: all
 * counts, extremes and sums alike to the bit. */
static inline bool sonde__same_vitals(const sonde_vitals *a, const sonde_vitals *b)
{
    return a->count == b->count && a->nan == b->nan && a->pos_inf == b->pos_inf &&
           a->neg_inf == b->neg_inf && a->zero == b->zero && a->min == b->min &&
           a->max == b->max && a->l1 == b->l1 && a->sumsq == b->sumsq && a->sum == b->sum;
}

/* --- raw values -------------------------------------------------------------------- */

/* A raw value's elements as doubles, row-major, a chunk at a time. */
typedef struct sonde__reader {
    sonde__cursor cursor;
    sonde_dtype dtype;
} sonde__reader;
enum { SONDE__CHUNK = 256 };
void sonde__reader_init(sonde__reader *reader, const sonde_view *view);
/* How many were put to room; 0 at the end. */
size_t sonde__reader_take(sonde__reader *reader, double room[SONDE__CHUNK]);
/* At most `most` elements, the same places of every view of a shape: evenly spread over a
 * contiguous view, else the first ones. Returns how many. Cost: of as many loads. */
size_t sonde__sample(const sonde_view *view, size_t most, double *out);

/* --- tensors ---------------------------------------------------------------------- */

/* A gradient of a parameter as it is applied: Accum___w where gradients are accumulated, else
 * Gradient___w. Both have the role; whoever wants one of a parameter asks here. */
bool sonde__is_gradient(const sonde_tensor_info *info);
/* What a gradient, an update or an optimiser's value is of, by the names that Sonde, smdebug and
 * PyTorch give: Gradient___w, gradient/w, w.grad, Accl1___w, w.exp_avg ... text NULL: of nothing
 * that is known. */
typedef struct sonde__span {
    const char *text;
    size_t length;
} sonde__span;
sonde__span sonde__parameter_of(const char *name);
/* For every tensor of need `from` (parameters): the size_t at `offset` of its memory becomes the
 * index of the first tensor of need `to` that is of it and passes `fits` (NULL: any), SIZE_MAX
 * without. For step, whenever the number of tensors has grown. */
void sonde__link(sonde_rule_run *run, int from, int to,
                 bool (*fits)(const sonde_tensor_info *info), size_t offset);
/* Whether a tensor is what goes into an activation ("relu", any case), by its name: relu1_input_0. */
bool sonde__is_input_of(const char *name, const char *activation);
/* The activation that a tensor goes into, "relu", "tanh" ..., by its name or, of a module's input,
 * by the op of that module's output; NULL if it is not known to go into one. Cost: one look at the
 * catalogue. */
const char *sonde__goes_into(const sonde_rule_run *run, const sonde_tensor_info *info);
/* A value of its own, not another name of one. */
static inline bool sonde__is_own(const sonde_tensor_info *info, uint32_t id)
{
    return info->same_as == id;
}
/* Whether a name's last word (behind dots and underscores) begins so. */
bool sonde__is_bias(const sonde_tensor_info *info);

/* The two parameters with which users choose tensors; type is the rule's state. */
#define SONDE__CHOSEN(type)                                                              \
    {"collection_names",                                                                 \
     SONDE_RULE_COLLECTIONS,                                                             \
     NULL,                                                                               \
     0,                                                                                  \
     0,                                                                                  \
     "collections to look at, by commas",                                                \
     offsetof(type, collection_names),                                                   \
     false},                                                                             \
    {                                                                                    \
        "tensor_regex", SONDE_RULE_REGEX, NULL, 0, 0,                                    \
            "expressions that select tensors, by commas", offsetof(type, tensor_regex),  \
            false                                                                        \
    }
/* For wants of rules with these parameters: what is chosen, of those that are chosen if
 * none is given. */
int sonde__wants_chosen(sonde_rule_run *run, uint32_t id, bool otherwise);
/* For init of rules that have to be told. */
sonde_err sonde__need_choice(const char *rule, const char *collection_names,
                             const char *tensor_regex, sonde_diag *diag);

/* Training steps, or those of another mode, from the one that *last stands for (0 at first) to
 * this one, which it stands for then; 0 if there was none. Rules that compare a value with the one
 * before ask: it may be that of many steps ago. */
static inline int64_t sonde__steps_since(const sonde_rule_run *run, int64_t *last)
{
    const int64_t now = sonde_rule_at(run)->mode_step + 1;
    const int64_t since = *last > 0 && now > *last ? now - *last : 0;

    *last = now;
    return since;
}

/* --- the rules -------------------------------------------------------------------- */

extern const sonde_rule sonde__all_zero, sonde__check_input_images,
    sonde__class_imbalance, sonde__confusion, sonde__dead_relu, sonde__dtype_changed,
    sonde__duplicate_batch, sonde__eval_nondeterminism, sonde__exploding_tensor,
    sonde__feature_importance, sonde__frozen_parameter, sonde__gradient_spike,
    sonde__input_range, sonde__label_noise, sonde__loss_not_decreasing, sonde__loss_spike,
    sonde__missing_zero_grad, sonde__nlp_sequence_ratio, sonde__non_finite,
    sonde__optimizer_state, sonde__overfit, sonde__overtraining,
    sonde__poor_weight_initialization, sonde__replica_divergence,
    sonde__saturated_activation, sonde__similar_across_runs, sonde__softmax_misuse,
    sonde__stalled_training, sonde__symmetric_units, sonde__tensor_variance,
    sonde__tree_depth, sonde__unchanged_tensor, sonde__unfrozen_parameter,
    sonde__update_spike, sonde__vanishing_gradient, sonde__weight_update_ratio;

#endif
