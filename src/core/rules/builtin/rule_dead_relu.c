/*
 * DeadRelu - most ReLUs of a layer give 0 for every input.
 *
 * A unit (a neuron; for images a channel) is inactive at a step if its outputs are 0 for
 * at least (100 - threshold_inactivity) % of the samples. Fires when more than
 * threshold_layer % of the units of a layer, the same ones, are inactive at `patience`
 * observed steps in a row. A single batch proves nothing: in a sparse layer, other units
 * rest in each batch. The finding is an error from MOST_DEAD % on, where hardly anything
 * passes, and a note below: networks that were trained with a high learning rate can do
 * well with half of their units dead.
 *
 * Judges the tensors that tensor_regex selects; by default outputs of ReLUs, by name or
 * op. Evidence: raw outputs; vital signs alone only show a layer that is entirely 0.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/units.h"
#include "rules/context.h"
#include "rules/suspicion.h"

#include "base/fail.h"
#include "base/point.h"

#include <float.h>
#include <string.h>

#define DEFAULT_REGEX ".*relu_output"

typedef struct dead {
    const char *tensor_regex;
    double threshold_inactivity, threshold_layer;
    int64_t patience;
} dead;

typedef struct tensor_memory {
    sonde__builtin_units units;
    int64_t all_zero; /* steps in a row */
    bool by_unit;     /* raw values were seen */
    bool parts;       /* steps have several micro-batches, or replicas */
} tensor_memory;

enum { REGEX = 0, OUTPUTS = 0, LOSSES = 1, LASTING = 10 };
#define MOST_DEAD 90.0
static const sonde__rule_terms most_dead = {
    .looks = LASTING, SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, ERROR)};
static const sonde__rule_terms half_dead = {.looks = LASTING,
                                            SONDE__TERMS(NOTE, NOTE, NOTE, NOTE, NOTE)};

static const sonde_rule_param params[] = {
    SONDE__REGEX(dead, tensor_regex, DEFAULT_REGEX,
                 "regular expressions that select outputs of ReLUs"),
    SONDE__REAL(dead, threshold_inactivity, "1.0", 0, 100,
                "a unit is inactive if at most this percentage of samples activates it"),
    SONDE__REAL(dead, threshold_layer, "50", 0, 100,
                "largest acceptable percentage of inactive units in a layer"),
    SONDE__COUNT(dead, patience, "3", 1, 1e9, "observed steps in a row"),
};
static const sonde_rule_need needs[] = {
    {"outputs of ReLUs", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, SONDE__ACTIVATIONS,
     SONDE__SELDOM},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const dead *state = sonde_rule_state(run);
    const bool by_op = strcmp(state->tensor_regex, DEFAULT_REGEX) == 0 &&
                       sonde__strcasecmp(info->op, "relu") == 0;

    if (info->pass == SONDE_PASS_BACKWARD || !sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return by_op || sonde_rule_matches(run, REGEX, id) ? OUTPUTS
           : info->role == SONDE_ROLE_LOSS             ? LOSSES
                                                       : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);

    return tensors[i].need != OUTPUTS ||
                   sonde__builtin_units_make(&((tensor_memory *)tensors[i].memory)->units,
                                             info->rank, info->shape)
               ? SONDE_OK
               : sonde__fail_nomem(diag, "DeadRelu");
}

/* Whether so few of the outputs are 0 that sonde__builtin_units_end restarts all streaks,
 * whichever units they belong to. By vital signs, which spare a pass over the outputs. */
static bool is_lively(const dead *state, const tensor_memory *memory,
                      const sonde_observation *seen)
{
    const sonde_vitals *v = seen->vitals;

    return v != NULL && !sonde_vitals_are_norms(v) && !memory->parts && v->min >= 0.0 &&
           v->pos_inf + v->neg_inf == 0 && seen->view->rank >= 2 &&
           memory->units.count == seen->view->shape[1] && v->count > 0 &&
           (double)v->zero < 0.99 * (state->threshold_layer / 100.0) *
                                 (1.0 - state->threshold_inactivity / 100.0) *
                                 (double)v->count;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    tensor_memory *memory = tensor->memory;

    if (seen->view == NULL || tensor->need != OUTPUTS) {
        return;
    }
    memory->parts = memory->parts || seen->at.micro_batch > 0 || seen->at.replica > 0;
    if (is_lively(sonde_rule_state(run), memory, seen)) {
        sonde__builtin_units_pass(&memory->units, seen->view);
    } else if (!sonde__builtin_units_take(&memory->units, seen->view, DBL_TRUE_MIN,
                                          DBL_MAX)) {
        sonde_rule_fail(run, "out of memory");
    }
}

static void step(sonde_rule_run *run)
{
    const dead *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    if (sonde__rule_only_losses(run)) {
        return;
    }
    SONDE__EACH_OF (run, tensors, i, OUTPUTS) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;

        double share =
            sonde__builtin_units_end(&memory->units, 100.0 - state->threshold_inactivity,
                                     state->threshold_layer, state->patience);
        memory->by_unit = memory->by_unit || share >= 0.0;
        if (v != NULL) {
            memory->all_zero =
                v->count > 0 && v->zero == v->count ? memory->all_zero + 1 : 0;
            share = memory->all_zero >= state->patience         ? 100.0
                    : memory->all_zero == 0 && !memory->by_unit ? 0.0
                                                                : share;
        }
        if (share >= 0.0 && share <= state->threshold_layer) {
            sonde__rule_clear(run, i);
        } else if (share > state->threshold_layer &&
                   sonde__rule_suspect(
                       run, i, share >= MOST_DEAD ? &most_dead : &half_dead,
                       "percent_inactive", share, state->threshold_layer)) {
            sonde_rule_say(
                run, NULL,
                "%.3g %% of its units gave 0 for (nearly) every sample at %lld observed "
                "steps in a row: no gradient flows back through them.",
                share, (long long)state->patience);
        }
    }
}

static void destroy(sonde_rule_run *run)
{
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        sonde__builtin_units_free(&((tensor_memory *)tensors[i].memory)->units);
    }
}

const sonde_rule sonde__builtin_dead_relu = {
    SONDE__RULE("DeadRelu", dead),
    .summary = "most ReLUs of a layer give 0 for every input",
    .condition =
        "At `patience` observed steps in a row, more than `threshold_layer` % of a layer's units are active for less than `threshold_inactivity` % of the samples. It waits for training: a note where training goes well or less than 90 % are inactive, nothing where they wake.",
    .advice =
        "Lower the learning rate, check for biases far below 0, or use a leaky ReLU.",
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
