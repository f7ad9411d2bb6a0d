/*
 * PoorWeightInitialization - the signal grows out of bounds, or dies, on its way through the
 * layers, from the very first steps.
 *
 * Looks at the first `steps` observed training steps and fires at the last of them (or at the end of
 * the run) when
 *     growth   the variance of a layer's activation inputs was, at all of them, more than
 *              `threshold` times that of the layer before; or less than 1 / threshold^2 of it:
 *              PyTorch's default initialisation shrinks it by some 6 a layer, and that trains;
 *     stuck    the loss moved by less than 0.01 % of itself within `patience` steps, and some
 *              gradient's values lie within distribution_range of each other.
 *
 * Evidence: vital signs of the tensors that activation_inputs_regex selects, of losses and of
 * gradients. A range from least to largest stands for that from the 5th to the 95th percentile,
 * which is never larger.
 */
#include "rules/builtin.h"

enum { INPUTS = 0, LOSSES = 1, GRADIENTS = 2, REGEX = 0 };

typedef struct poor {
    const char *activation_inputs_regex;
    double threshold, distribution_range;
    int64_t patience, steps, seen;
    bool done, narrow; /* some gradient is narrow at this step */
} poor;

typedef struct memory {
    double variance; /* at this step */
    int64_t looked, grew, shrank;
    double worst; /* ratio to the layer before, the least extreme of the steps */
    double loss;
    int64_t still; /* steps on end without a change of the loss */
} memory;

static const sonde_rule_param params[] = {
    {"activation_inputs_regex", SONDE_RULE_REGEX, ".*relu_input", 0, 0,
     "expressions that select inputs of activations",
     offsetof(poor, activation_inputs_regex), false},
    {"threshold", SONDE_RULE_REAL, "10.0", 1, 1e300,
     "times that the variance may grow from layer to layer", offsetof(poor, threshold),
     false},
    {"distribution_range", SONDE_RULE_REAL, "0.001", 0, 1e300,
     "range of a gradient that is too narrow", offsetof(poor, distribution_range), false},
    {"patience", SONDE_RULE_COUNT, "5", 1, 1e9, "steps at which the loss does not move",
     offsetof(poor, patience), false},
    {"steps", SONDE_RULE_COUNT, "10", 1, 1e9, "observed steps from the start",
     offsetof(poor, steps), false},
};
static const sonde_rule_need needs[] = {
    {"inputs of activations", SONDE_HOW_VITALS, false, false},
    {"losses", SONDE_HOW_VITALS, true, false},
    {"vital signs of gradients", SONDE_HOW_VITALS, true, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    return sonde_rule_matches(run, REGEX, id) && info->pass != SONDE_PASS_BACKWARD
               ? INPUTS
           : !sonde__is_own(info, id)      ? SONDE_RULE_IGNORE
           : info->role == SONDE_ROLE_LOSS ? LOSSES
           : sonde__is_gradient(info)      ? GRADIENTS
                                           : SONDE_RULE_IGNORE;
}

/* The variance of each layer against that of the one before. */
static void compare_layers(const poor *state, sonde_rule_tensor *tensors, size_t count)
{
    double before = 0.0;

    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;
        double ratio = 1.0;

        if (tensors[i].need != INPUTS || v == NULL || sonde__finite(v) == 0) {
            continue;
        }
        of->variance = sonde__variance(v);
        if (before > 0.0) {
            ratio = of->variance / before;
            of->grew += ratio > state->threshold;
            of->shrank += ratio < 1.0 / (state->threshold * state->threshold);
            if (of->looked++ == 0 || fabs(log(ratio)) < fabs(log(of->worst))) {
                of->worst = ratio;
            }
        }
        before = of->variance;
    }
}

static void judge_layers(sonde_rule_run *run, const sonde_rule_tensor *tensors,
                         size_t count)
{
    const poor *state = sonde_rule_state(run);

    for (size_t i = 0; i < count; i++) {
        const memory *of = tensors[i].memory;
        const bool grew = of->looked > 0 && of->grew == of->looked;
        const bool shrank = of->looked > 0 && of->shrank == of->looked;

        if (tensors[i].need == INPUTS && (grew || shrank) &&
            sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "variance_ratio", of->worst,
                             grew ? state->threshold
                                  : 1.0 / (state->threshold * state->threshold))) {
            sonde_rule_say(
                run, NULL,
                "Its variance is %.3g times that of the layer before, at each of "
                "the first %lld steps.",
                of->worst, (long long)of->looked);
        }
    }
}

static void judge_loss(sonde_rule_run *run, size_t i, memory *of, double loss)
{
    const poor *state = sonde_rule_state(run);
    const bool still = state->seen > 1 && fabs(loss - of->loss) < 1e-4 * fabs(of->loss);

    of->still = still && state->narrow ? of->still + 1 : 0;
    of->loss =
        of->still > 0 ? of->loss : loss; /* that of the first step of the stretch */
    if (of->still >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "steps_unmoved", (double)of->still,
                         (double)state->patience)) {
        sonde_rule_say(run, NULL,
                       "The loss stands still at %.5g, and gradients are within %g.",
                       loss, state->distribution_range);
    }
}

static void step(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->done) {
        return;
    }
    state->seen++;
    state->narrow = false;
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        state->narrow = state->narrow || (tensors[i].need == GRADIENTS && v != NULL &&
                                          v->count > 1 && sonde__bad(v) == 0 &&
                                          v->max - v->min < state->distribution_range);
    }
    compare_layers(state, tensors, count);
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == LOSSES && v != NULL && sonde__finite(v) > 0) {
            judge_loss(run, i, tensors[i].memory, v->mean);
        }
    }
    if (state->seen >= state->steps) {
        judge_layers(run, tensors, count);
        state->done = true;
    }
}

static void finish(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (!state->done && state->seen > 0) {
        judge_layers(run, tensors, count);
    }
}

const sonde_rule sonde__poor_weight_initialization = {
    .abi = SONDE_RULE_ABI,
    .name = "PoorWeightInitialization",
    .summary = "the signal explodes or dies on its way through the layers from the start",
    .condition =
        "At the first `steps` steps the variance of activation inputs grows by more than "
        "`threshold` from a layer to the next, or shrinks by more than its square; or "
        "the loss stands still for `patience` steps while a gradient is narrower than "
        "`distribution_range`.",
    .advice = "Initialise weights with a variance of about 2 / inputs (He) or 1 / inputs "
              "(LeCun), or normalise between the layers.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(poor),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .step = step,
    .finish = finish,
};
