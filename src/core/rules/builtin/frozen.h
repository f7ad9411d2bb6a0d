/*
 * frozen.h - what the findings of FrozenParameter have in common:
 *
 *     rule_frozen_parameter.c   alone: a parameter has a gradient and does not change;
 *                               idle: no parameter changes
 *     frozen_cut_off.c          cut off: a weight never had a gradient
 *     frozen_program.c          by the program: who holds, uses and reaches parameters
 *
 * A comparison is of a tensor with its last observed value, by all its vital signs, to the
 * bit.
 */
#ifndef SONDE_RULES_BUILTIN_FROZEN_H
#define SONDE_RULES_BUILTIN_FROZEN_H

#include "rules/builtin/builtin.h"

/* The needs. */
enum {
    SONDE__FROZEN_PARAMETERS,
    SONDE__FROZEN_GRADIENTS,
    SONDE__FROZEN_STATE,
    SONDE__FROZEN_LOSSES
};

typedef struct sonde__builtin_frozen {
    int64_t patience, idle;
    size_t linked;               /* number of tensors when parameters were linked */
    int64_t compared, changed;   /* comparisons; of them, with any change */
    int64_t idle_now, idle_most; /* comparisons in a row without a change */
    size_t weights, still;       /* weights; of them, those that never changed */
    size_t fresh;                /* of these, those that are as they were drawn */
    const sonde_rule_tensor
        *first_moving; /* the first parameter that did, of this step */
    bool looked;       /* for weights that are cut off */
    bool explained;    /* why no parameter changes, by the program */
    bool pulls;        /* a gradient of a parameter has been seen */
    int64_t led;       /* first comparisons at which gradients were seen */
    int64_t bare;  /* last comparisons in a row without a change and without gradients */
    bool reported; /* idle, of parameter: */
    size_t idlest;
    double largest; /* |element| of all gradients so far */
    double resting; /* the same, at the first step of this rest */
    int64_t looks;  /* with a program in force */
} sonde__builtin_frozen;

/* Of a tensor. */
typedef struct sonde__builtin_frozen_memory {
    size_t gradient, state; /* of a parameter: indices of its tensors */
    sonde_vitals before;
    bool has_before, same;
    bool meant;              /* it may be frozen on purpose */
    bool told;               /* reported by the program */
    bool held, stepped;      /* an optimizer held it in a program; and stepped there */
    bool cut;                /* it was reported as cut off */
    bool moved, pulled;      /* has ever changed; its gradient was ever not 0 */
    int64_t steps;           /* comparisons in a row at which it was the same */
    int64_t rest, rest_most; /* the same, whatever its gradient; the most that ended */
    int64_t last;            /* step of the last comparison */
} sonde__builtin_frozen_memory;

static inline bool sonde__builtin_frozen_is_weight(const sonde_rule_run *run,
                                                   const sonde_rule_tensor *t)
{
    return t->need == SONDE__FROZEN_PARAMETERS && sonde_rule_info(run, t->id)->rank >= 2;
}

/* What the program of a training step says of a parameter; NULL: nothing. */
const sonde_program_parameter *sonde__builtin_frozen_known(const sonde_rule_run *run,
                                                           const sonde_rule_tensor *t);
/* Counts the weights that never changed, and finds the first parameter that did. */
void sonde__builtin_frozen_survey(sonde_rule_run *run);
/* Reports the weights that are cut off; once. */
void sonde__builtin_frozen_judge_cut_off(sonde_rule_run *run);
/* sonde_rule.program; and its part of each step, once gradients are known. */
void sonde__builtin_frozen_program(sonde_rule_run *run, const sonde_program *program);
void sonde__builtin_frozen_judge_program(sonde_rule_run *run);
/* Findings of weights that are trained by now are resolved. */
void sonde__builtin_frozen_resolve(sonde_rule_run *run);

#endif
