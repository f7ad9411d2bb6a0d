/*
 * zero_grad.h - what the parts of MissingZeroGrad have in common.
 *
 *     rule_missing_zero_grad.c   takes the gradients of each step, and judges
 *     zero_grad_sums.c           whether the last steps look like sums
 */
#ifndef SONDE_RULES_BUILTIN_ZERO_GRAD_H
#define SONDE_RULES_BUILTIN_ZERO_GRAD_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The needs. */
enum {
    SONDE__ZERO_GRAD_GRADIENTS,
    SONDE__ZERO_GRAD_PARAMETERS,
    SONDE__ZERO_GRAD_LARGE_PARAMETERS,
    SONDE__ZERO_GRAD_LOSSES
};
enum { SONDE__ZERO_GRAD_MOST_STEPS = 32 };

/* Of one step, over all parameters. */
typedef struct sonde__builtin_zero_grad_norms {
    double fresh, now, before; /* |f|, |g|, |g'|; squares while they are summed */
    double along;              /* f . f'; then their cosine */
} sonde__builtin_zero_grad_norms;

typedef struct sonde__builtin_zero_grad {
    int64_t patience, pairs;
    int64_t streak; /* steps in a row that count; the last `patience` of them: */
    sonde__builtin_zero_grad_norms last[SONDE__ZERO_GRAD_MOST_STEPS];
    sonde__builtin_zero_grad_norms at; /* this step */
    double fresh_before;
    double largest; /* |g| so far, without the last `patience` steps */
    uint32_t held;  /* bit i: the condition held i steps ago */
    double fresh;   /* the largest |f| / |g'| of the first pairs of the run */
    double single;  /* |f| / |g'| of the first pair */
    double first;   /* |g'| of it */
    int64_t grown;  /* first pairs at which all is one gradient more */
    bool from_start;
    bool paired;
} sonde__builtin_zero_grad;

typedef struct sonde__builtin_zero_grad_memory {
    float *before, *fresh; /* g' and f' */
    size_t count;
    int64_t step; /* of its mode */
    bool has;
    double cosine; /* of f and g' at this step; NAN: there is none */
    double last[SONDE__ZERO_GRAD_MOST_STEPS];
    double l1, sum; /* of a parameter, before */
    int moves;      /* comparisons until it no longer counts as one that changes */
} sonde__builtin_zero_grad_memory;

/* Adds a step to the streak. */
void sonde__builtin_zero_grad_take_step(sonde__builtin_zero_grad *state,
                                        sonde_rule_tensor *tensors, size_t count);
/* The percentage of gradients, among those with values at all of these steps, whose new
 * part does not oppose the sum. */
double sonde__builtin_zero_grad_percent_summed(const sonde__builtin_zero_grad *state,
                                               const sonde_rule_tensor *tensors,
                                               size_t count);
/* Whether the norms and directions of all together are those of sums of fresh gradients.
 * */
bool sonde__builtin_zero_grad_are_sums(const sonde__builtin_zero_grad *state);
/* Whether the sums have left the range of gradients. */
bool sonde__builtin_zero_grad_is_clear(const sonde__builtin_zero_grad *state,
                                       double percent);
bool sonde__builtin_zero_grad_holds_often(uint32_t held);
/* Whether the first gradients of the run hardly differed from each other. */
bool sonde__builtin_zero_grad_is_smooth(const sonde__builtin_zero_grad *state);

#endif
