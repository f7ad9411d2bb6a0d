/*
 * phases.h - what Overfit and Overtraining share: mean losses of stretches of training and of
 * evaluation, which follow each other.
 *
 *     train train train | eval eval | train train | eval ...
 *                                   ^ a round ends: its two means are known
 */
#ifndef SONDE_RULES_BUILTIN_PHASES_H
#define SONDE_RULES_BUILTIN_PHASES_H

#include <sonde/rule.h>

typedef struct sonde__builtin_phases {
    double train, eval; /* sums of this round */
    int64_t trained, evaluated;
    double train_mean, eval_mean; /* of the round that has ended */
    int64_t rounds;
} sonde__builtin_phases;

/* A loss of the step that the run is at. True: a round has just ended with the step before. */
bool sonde__builtin_phases_take(sonde__builtin_phases *phases, const sonde_coordinate *at,
                                double loss);
/* The end of the run: true if that ends a round. */
bool sonde__builtin_phases_end(sonde__builtin_phases *phases);
/* Says what was missing if no tensor has had as many rounds as the rule cannot do without. */
void sonde__builtin_phases_lacked(sonde_rule_run *run, int64_t rounds, int64_t least);

#endif
