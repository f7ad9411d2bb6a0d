/*
 * builtin.h - the built-in rules, and what they share. Each rule is a file; its header says
 * when it fires.
 */
#ifndef SONDE_RULES_BUILTIN_BUILTIN_H
#define SONDE_RULES_BUILTIN_BUILTIN_H

#include <sonde/rule.h>

#include "tensor/convert.h"

#include <math.h>

#define SONDE__COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
enum { SONDE__TRAIN = 1U << SONDE_MODE_TRAIN };

/* --- statistics ------------------------------------------------------------------- */

static inline uint64_t sonde__builtin_finite(const sonde_vitals *v)
{
    return v->count - v->nan - v->pos_inf - v->neg_inf;
}

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

static inline double sonde__builtin_variance(const sonde_vitals *v)
{
    const uint64_t n = sonde__builtin_finite(v);

    return n > 0 ? v->m2 / (double)n : 0.0;
}

/* Whether two sets of vital signs are those of the same values, as far as they can tell: all
 * counts, extremes and sums alike to the bit. */
static inline bool sonde__builtin_same_vitals(const sonde_vitals *a,
                                              const sonde_vitals *b)
{
    return a->count == b->count && a->nan == b->nan && a->pos_inf == b->pos_inf &&
           a->neg_inf == b->neg_inf && a->zero == b->zero && a->min == b->min &&
           a->max == b->max && a->l1 == b->l1 && a->sumsq == b->sumsq && a->sum == b->sum;
}

/* --- raw values -------------------------------------------------------------------- */

/* A raw value's elements as doubles, row-major, a chunk at a time. */
typedef struct sonde__builtin_reader {
    sonde__tensor_cursor cursor;
    sonde_dtype dtype;
} sonde__builtin_reader;
enum { SONDE__CHUNK = 256 };
void sonde__builtin_reader_init(sonde__builtin_reader *reader, const sonde_view *view);
/* How many were put to room; 0 at the end. */
size_t sonde__builtin_reader_take(sonde__builtin_reader *reader,
                                  double room[SONDE__CHUNK]);
/* At most `most` elements, the same places of every view of a shape: evenly spread over a
 * contiguous view, else the first ones. Returns how many. Cost: of as many loads. */
size_t sonde__builtin_sample(const sonde_view *view, size_t most, double *out);

/* --- tensors ---------------------------------------------------------------------- */

/* A gradient of a parameter as it is applied: Accum___w where gradients are accumulated, else
 * Gradient___w. Both have the role; whoever wants one of a parameter asks here. */
bool sonde__builtin_is_gradient(const sonde_tensor_info *info);
/* What a gradient, an update or an optimiser's value is of, by the names that Sonde, smdebug and
 * PyTorch give: Gradient___w, gradient/w, w.grad, Accl1___w, w.exp_avg ... text NULL: of nothing
 * that is known. */
typedef struct sonde__builtin_span {
    const char *text;
    size_t length;
} sonde__builtin_span;
sonde__builtin_span sonde__builtin_parameter_of(const char *name);
/* For every tensor of need `from` (parameters): the size_t at `offset` of its memory becomes the
 * index of the first tensor of need `to` that is of it and passes `fits` (NULL: any), SIZE_MAX
 * without. For step, whenever the number of tensors has grown. */
void sonde__builtin_link(sonde_rule_run *run, int from, int to,
                         bool (*fits)(const sonde_tensor_info *info), size_t offset);
/* Whether a tensor is what goes into an activation ("relu", any case), by its name: relu1_input_0. */
bool sonde__builtin_is_input_of(const char *name, const char *activation);
/* The activation that a tensor goes into, "relu", "tanh" ..., by its name or, of a module's input,
 * by the op of that module's output; NULL if it is not known to go into one. Cost: one look at the
 * catalogue. */
const char *sonde__builtin_goes_into(const sonde_rule_run *run,
                                     const sonde_tensor_info *info);
/* A value of its own, not another name of one. */
static inline bool sonde__builtin_is_own(const sonde_tensor_info *info, uint32_t id)
{
    return info->same_as == id;
}
/* Whether a name's last word (behind dots and underscores) begins so. */
bool sonde__builtin_is_bias(const sonde_tensor_info *info);

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
int sonde__builtin_wants_chosen(sonde_rule_run *run, uint32_t id, bool otherwise);
/* For init of rules that have to be told. */
sonde_err sonde__builtin_need_choice(const char *rule, const char *collection_names,
                                     const char *tensor_regex, sonde_diag *diag);

/* Training steps, or those of another mode, from the one that *last stands for (0 at first) to
 * this one, which it stands for then; 0 if there was none. Rules that compare a value with the one
 * before ask: it may be that of many steps ago. */
static inline int64_t sonde__builtin_steps_since(const sonde_rule_run *run, int64_t *last)
{
    const int64_t now = sonde_rule_at(run)->mode_step + 1;
    const int64_t since = *last > 0 && now > *last ? now - *last : 0;

    *last = now;
    return since;
}

/* --- the rules -------------------------------------------------------------------- */

extern const sonde_rule sonde__builtin_all_zero, sonde__builtin_check_input_images,
    sonde__builtin_class_imbalance, sonde__builtin_confusion, sonde__builtin_dead_relu,
    sonde__builtin_dtype_changed, sonde__builtin_duplicate_batch,
    sonde__builtin_eval_nondeterminism, sonde__builtin_exploding_tensor,
    sonde__builtin_feature_importance, sonde__builtin_frozen_parameter,
    sonde__builtin_gradient_spike, sonde__builtin_input_range, sonde__builtin_label_noise,
    sonde__builtin_loss_not_decreasing, sonde__builtin_loss_spike,
    sonde__builtin_missing_zero_grad, sonde__builtin_nlp_sequence_ratio,
    sonde__builtin_non_finite, sonde__builtin_optimizer_state, sonde__builtin_overfit,
    sonde__builtin_overtraining, sonde__builtin_poor_weight_initialization,
    sonde__builtin_replica_divergence, sonde__builtin_saturated_activation,
    sonde__builtin_similar_across_runs, sonde__builtin_softmax_misuse,
    sonde__builtin_stalled_training, sonde__builtin_symmetric_units,
    sonde__builtin_tensor_variance, sonde__builtin_tree_depth,
    sonde__builtin_unchanged_tensor, sonde__builtin_unfrozen_parameter,
    sonde__builtin_update_spike, sonde__builtin_vanishing_gradient,
    sonde__builtin_weight_update_ratio;

#endif
