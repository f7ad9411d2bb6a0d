/*
 * phases.c - mean losses of stretches of training and of evaluation.
 */
#include "rules/builtin/phases.h"

bool sonde__builtin_phases_end(sonde__builtin_phases *phases)
{
    if (phases->trained == 0 || phases->evaluated == 0) {
        return false;
    }
    phases->train_mean = phases->train / (double)phases->trained;
    phases->eval_mean = phases->eval / (double)phases->evaluated;
    phases->rounds++;
    phases->train = phases->eval = 0.0;
    phases->trained = phases->evaluated = 0;
    return true;
}

bool sonde__builtin_phases_take(sonde__builtin_phases *phases, const sonde_coordinate *at,
                                double loss)
{
    bool ended = false;

    if (at->mode == SONDE_MODE_TRAIN) {
        ended = phases->evaluated > 0 && sonde__builtin_phases_end(phases);
        phases->train += loss;
        phases->trained++;
    } else if (at->mode == SONDE_MODE_EVAL) {
        phases->eval += loss;
        phases->evaluated++;
    }
    return ended;
}

void sonde__builtin_phases_lacked(sonde_rule_run *run, int64_t rounds, int64_t least)
{
    if (rounds == 0) {
        sonde_rule_lacked(run, "no losses of both training and evaluation were recorded");
    } else if (rounds < least) {
        sonde_rule_lacked(run,
                          "%lld of the %lld evaluations between training that it takes",
                          (long long)rounds, (long long)least);
    }
}
