/*
 * poor_layers.c - PoorWeightInitialization: the variance grows or dies from layer to layer.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/poor.h"
#include "rules/suspicion.h"

#include <math.h>

#define LOUD 100.0
/* What follows from the first steps alone. */
static const sonde__rule_terms at_first = {SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, NOTE)};
static const sonde__rule_terms dying = {SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, ERROR)};

bool sonde__builtin_poor_compare_layers(const sonde__builtin_poor *state,
                                        sonde_rule_tensor *tensors, size_t count)
{
    double before = 0.0;
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v =
            tensors[i].need == SONDE__POOR_DATA ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_bad(v) == 0 && v->count > 0) {
            before = fmax(before, sonde__builtin_variance(v));
        }
    }
    for (size_t i = 0; i < count; i++) {
        sonde__builtin_poor_memory *memory = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;
        double ratio = 1.0;

        if (tensors[i].need != SONDE__POOR_INPUTS || v == NULL ||
            sonde__builtin_finite(v) == 0) {
            continue;
        }
        memory->variance = sonde__builtin_variance(v);
        if (before > 0.0) {
            ratio = memory->variance / before;
            memory->grew += ratio > state->threshold && memory->variance > LOUD;
            memory->shrank += !memory->scores && ratio > 0.0 &&
                              ratio < 1.0 / (state->threshold * state->threshold);
            if (memory->looked++ == 0 || fabs(log(ratio)) < fabs(log(memory->worst))) {
                memory->worst = ratio;
            }
        }
        before = memory->variance;
        any = true;
    }
    return any;
}

void sonde__builtin_poor_judge_layers(sonde_rule_run *run,
                                      const sonde_rule_tensor *tensors, size_t count,
                                      bool grown)
{
    const sonde__builtin_poor *state = sonde_rule_state(run);
    const double most =
        grown ? state->threshold : 1.0 / (state->threshold * state->threshold);
    const sonde_severity severity =
        (state->whole || state->losses == 0) && !sonde__rule_loss_is_free(run)
            ? SONDE_SEVERITY_ERROR
            : SONDE_SEVERITY_NOTE;

    for (size_t i = 0; i < count; i++) {
        const sonde__builtin_poor_memory *memory = tensors[i].memory;

        if (tensors[i].need == SONDE__POOR_INPUTS && memory->looked > 0 &&
            (grown ? memory->grew : memory->shrank) == memory->looked &&
            (grown || severity != SONDE_SEVERITY_NOTE
                 ? sonde__rule_suspect(run, i, grown ? &at_first : &dying,
                                       "variance_ratio", memory->worst, most)
                 : sonde_rule_found(run, i, severity, "variance_ratio", memory->worst,
                                    most))) {
            sonde_rule_say(run, NULL,
                           "Its variance is %.3g times that of the previous layer at "
                           "each of the first %lld steps.",
                           memory->worst, (long long)memory->looked);
        }
    }
}
