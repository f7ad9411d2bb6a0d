/*
 * update_ratio.h - what the findings of WeightUpdateRatio have in common.
 *
 *     rule_weight_update_ratio.c   a weight changes by more than its own size, or hardly
 *     update_rates.c               most weights change by so much that training cannot
 *                                  settle, or none enough to learn anything
 *
 * All go by
 *
 *     r = |w - w'|2 / (|w'|2 + epsilon)        w' the value at the last observed step
 *
 * over SAMPLE elements of each weight, evenly spread. Networks that learn have an r of
 * 1e-4 ... 5e-2 a step. If k training steps lie between w' and w, the mean change of a
 * step is at least r / k: findings of large changes use that. And r itself is at least
 * the change of one step: findings of small changes use that. So the rule reports
 * less, not more, where steps are observed seldom.
 *
 * With num_steps, w' is the value at least so many observed steps back (1 by default) and
 * r is the change over so many steps.
 */
#ifndef SONDE_RULES_BUILTIN_UPDATE_RATIO_H
#define SONDE_RULES_BUILTIN_UPDATE_RATIO_H

#include "rules/builtin/builtin.h"

enum {
    SONDE__UPDATE_WEIGHTS = 128, /* of which the median is taken */
    SONDE__UPDATE_ON_END = 3,    /* medians in a row that count as fast */
    SONDE__UPDATE_FIRST = 5      /* losses that are averaged */
};

/* All weights at one step, from raw values. */
typedef struct sonde__builtin_updates {
    double ratios[SONDE__UPDATE_WEIGHTS]; /* tame / steps */
    size_t count;
    double largest;         /* of tame / steps */
    size_t fastest;         /* the tensor that has it */
    double elements;        /* of all of them that were compared */
    double largest_between; /* of tame */
    double across; /* the largest tame without the part of the update that is along -w' */
    double loss;   /* of the step; NaN: none */
    double even;   /* (mean |d|)^2 / mean d^2 of the updates d, a mean of weights */
} sonde__builtin_updates;

typedef struct sonde__builtin_update_fast {
    double medians[SONDE__UPDATE_ON_END]; /* the last ones */
    sonde__builtin_recent losses;
    double base; /* loss before the episode began */
    double first_losses;
    int64_t first_count; /* at most SONDE__UPDATE_FIRST */
    int64_t since;       /* comparisons since the episode began; 0: there is none */
    int64_t above;       /* of these, in a row, above the limit */
    int64_t high;        /* comparisons in a row above twice the limit */
    double most;         /* the largest median of the episode */
    bool early;          /* it began with the run */
    bool divides;        /* ... of an optimizer that divides by the size of gradients */
    int64_t compared;    /* comparisons so far */
    size_t suspect;      /* the weight that changed most in it */
    double suspect_ratio;
} sonde__builtin_update_fast;

typedef struct sonde__builtin_update_look {
    int64_t compared;
    double sum, first_part, last_part, first_loss, last_loss;
} sonde__builtin_update_look;

/* Two looks at the beginning of a run: a short one, and a long one. */
typedef struct sonde__builtin_update_slow {
    sonde__builtin_update_look looks[2];
    sonde__builtin_update_look decayed; /* the short one, without weight decay */
} sonde__builtin_update_slow;

/* The state of the rule. */
typedef struct sonde__builtin_update_ratio {
    int64_t num_steps, patience, small_patience;
    bool smdebug;
    double large_threshold, small_threshold, epsilon, fast, slow;
    sonde__builtin_updates step;
    sonde__builtin_update_fast fast_state;
    sonde__builtin_update_slow slow_state;
    bool from_start, seen; /* whether the run is observed from its first step on */
} sonde__builtin_update_ratio;

/* Judges all weights of a step together. */
void sonde__builtin_update_judge(sonde_rule_run *run);

#endif
