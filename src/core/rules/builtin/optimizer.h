/*
 * optimizer.h - what the findings of OptimizerState have in common.
 *
 *     rule_optimizer_state.c   the tensors of each parameter, and the bound
 *     optimizer_moments.c      sign, counter, betas: of one parameter
 *     optimizer_epsilon.c      epsilon: of all small parameters
 */
#ifndef SONDE_RULES_BUILTIN_OPTIMIZER_H
#define SONDE_RULES_BUILTIN_OPTIMIZER_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The needs. */
enum {
    SONDE__OPTIMIZER_PARAMETERS,
    SONDE__OPTIMIZER_GRADIENTS,
    SONDE__OPTIMIZER_STATE,
    SONDE__OPTIMIZER_SMALL_PARAMETERS,
    SONDE__OPTIMIZER_LOSSES
};
enum { SONDE__OPTIMIZER_SMALL = 512 };
enum { SONDE__OPTIMIZER_FEW = 4 };
#define SONDE__OPTIMIZER_LARGEST 1e4

typedef struct sonde__builtin_optimizer {
    int64_t patience;
    size_t linked;
    int64_t drowned; /* looks in a row at which epsilon is above all gradients */
    size_t beyond;   /* parameters beyond the bound at this step */
    bool other;      /* most of them have been */
} sonde__builtin_optimizer;

typedef struct sonde__builtin_optimizer_memory {
    size_t g, m, v, t; /* of a parameter: indices */
    double sum_m, sum_v, step;
    int64_t last;
    bool has_before;
    int64_t stuck, swapped, beyond; /* steps in a row */
    double beta1, beta2;            /* as solved at the last of these */
    float *before;       /* of a small parameter: SONDE__OPTIMIZER_SMALL elements */
    int64_t before_step; /* mode_step + 1 of these; 0: none */
    double change;       /* rms(w - w') of this step; NaN: not known */
} sonde__builtin_optimizer_memory;

/* What the small parameters of a step have in common. */
typedef struct sonde__builtin_optimizer_scale {
    size_t count, largest;        /* of them; the one with the largest gradient */
    double least_by, most_by;     /* rms(w - w') / rms(m) */
    double least_root, most_root; /* sqrt(mean v) */
    double most_change;           /* rms(w - w') / rms(w) */
} sonde__builtin_optimizer_scale;

void sonde__builtin_optimizer_take_scale(sonde__builtin_optimizer_scale *all, size_t i,
                                         const sonde__builtin_optimizer_memory *memory,
                                         const sonde_vitals *w, const sonde_vitals *m,
                                         const sonde_vitals *v);
void sonde__builtin_optimizer_judge_epsilon(sonde_rule_run *run,
                                            const sonde__builtin_optimizer_scale *all);
/* Whether m is beyond the bound of the file header. */
bool sonde__builtin_optimizer_exceeds(const sonde_vitals *m, const sonde_vitals *v);
void sonde__builtin_optimizer_judge_values(sonde_rule_run *run,
                                           const sonde__builtin_optimizer_memory *memory,
                                           const sonde_vitals *m, const sonde_vitals *v);
void sonde__builtin_optimizer_judge_counter(sonde_rule_run *run,
                                            sonde__builtin_optimizer_memory *memory,
                                            const sonde_vitals *m, const sonde_vitals *t);
void sonde__builtin_optimizer_judge_betas(sonde_rule_run *run,
                                          sonde__builtin_optimizer_memory *memory,
                                          const sonde_vitals *g, const sonde_vitals *m,
                                          const sonde_vitals *v);

#endif
