/*
 * vanishing.h - what the parts of VanishingGradient have in common.
 *
 *     rule_vanishing_gradient.c   when gradients are too small
 *     vanishing_layers.c          the gradients of one step, from layer to layer
 */
#ifndef SONDE_RULES_BUILTIN_VANISHING_H
#define SONDE_RULES_BUILTIN_VANISHING_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The needs. */
enum { SONDE__VANISHING_GRADIENTS, SONDE__VANISHING_LOSSES };
enum { SONDE__VANISHING_LEAST_LAYERS = 4 };

typedef struct sonde__builtin_vanishing {
    double threshold, relative, profile;
    int64_t patience;
    bool biases, smdebug;
    size_t layers;           /* weights among the tensors */
    double largest;          /* mean |g| of the last step with gradients */
    int64_t last;            /* see sonde__builtin_steps_since */
    double first_loss, loss; /* NaN: none yet */
    bool any, all;           /* a step had gradients; at the last, all had vanished */
    bool bad;         /* no gradient of the last step with gradients is finite ... */
    int64_t bad_from; /* ... since this one */
} sonde__builtin_vanishing;

typedef struct sonde__builtin_vanishing_memory {
    double now;         /* mean |g| at the last step with this gradient */
    int64_t small;      /* observed steps in a row at which it was small */
    double first_small; /* mean at the first of them */
    bool alive;         /* was ever not 0 */
    bool mattered;      /* was ever at least `relative` times the step's largest */
    bool weight, seen, judged;
} sonde__builtin_vanishing_memory;

/* Computes the means of this step. Returns the largest. */
double sonde__builtin_vanishing_take_means(sonde_rule_tensor *tensors, size_t count);
/*
 * Index of the last tensor on the way to the input if gradients vanish on that way, else
 * count. Gradients of weights are declared from output to input or in reverse; they
 * vanish in the direction in which they shrink.
 */
size_t sonde__builtin_vanishing_vanished_on_the_way(const sonde_rule_tensor *tensors,
                                                    size_t count, double share);
/* True if weights before and after tensor i have gradients that are not small, and it
 * never had one itself. */
bool sonde__builtin_vanishing_is_branch(const sonde__builtin_vanishing *state,
                                        const sonde_rule_tensor *tensors, size_t count,
                                        size_t i, double largest);
void sonde__builtin_vanishing_report(sonde_rule_run *run,
                                     const sonde__builtin_vanishing_memory *memory,
                                     double largest, bool on_the_way);

#endif
