/*
 * SaturatedActivation - most tanh or sigmoid units of a layer no longer react.
 *
 * A unit (a neuron; for images a channel) is saturated at a step if its inputs lie
 * outside threshold_tanh_min ... _max (or threshold_sigmoid_min ... _max) for at least
 * (100 - threshold_inactivity) % of the samples. Fires when, at `patience` observed steps
 * in a row,
 *     inputs    more than threshold_layer % of the units of a layer, the same ones, are
 *               saturated; or
 *     slope     the mean slope of a layer is below `slope` times the largest possible.
 *               With outputs a, the slope of tanh is 1 - mean a^2 and that of sigmoid 4
 *               (mean a - mean a^2). A sigmoid is only judged if outputs lie at both ends
 *               (a mean of 0.1 ... 0.9): outputs that are nearly all 0 may be rare
 *               labels.
 *
 * A suspicion (rules/suspicion.h), a note where training goes well: the last layer of a
 * network that tells two classes apart, or makes black and white pictures, ends there.
 *
 * Judges the inputs that the expressions select (by default those of tanh and sigmoid, by
 * name or by the op of their module's output). Inputs of a sigmoid have the range of
 * sigmoid, others that of tanh. Evidence: raw inputs and vital signs of outputs; vital
 * signs of inputs only show a layer all of whose values are outside.
 */
#include "base/macros.h"
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/units.h"
#include "rules/context.h"
#include "rules/suspicion.h"

#include "base/fail.h"
#include "base/point.h"

#include <math.h>
#include <string.h>

#define DEFAULT_REGEX ".*tanh_input|.*sigmoid_input"
enum { INPUTS = 0, OUTPUTS = 1, LOSSES = 2, LASTING = 8 };
static const sonde__rule_terms flat_units = {
    .looks = LASTING, SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, ERROR)};

typedef struct saturated {
    const char *collection_names, *tensor_regex;
    double threshold_tanh_min, threshold_tanh_max, threshold_sigmoid_min,
        threshold_sigmoid_max;
    double threshold_inactivity, threshold_layer, slope;
    int64_t patience;
} saturated;

typedef struct tensor_memory {
    sonde__builtin_units units;
    double low, high;
    int64_t all_outside; /* steps in a row */
    bool by_unit;        /* raw values were seen */
    int64_t flat;        /* of an output: steps in a row */
    bool sigmoid;
} tensor_memory;

static const sonde_rule_param params[] = {
    {"collection_names", SONDE_RULE_COLLECTIONS, NULL, 0, 0,
     "comma-separated collections", offsetof(saturated, collection_names), false},
    SONDE__REGEX(saturated, tensor_regex, DEFAULT_REGEX,
                 "regular expressions that select inputs of tanh and sigmoid"),
    SONDE__REAL(saturated, threshold_tanh_min, "-9.4999", 0, 0,
                "smallest input at which tanh still reacts"),
    SONDE__REAL(saturated, threshold_tanh_max, "9.4999", 0, 0,
                "largest input at which tanh still reacts"),
    SONDE__REAL(saturated, threshold_sigmoid_min, "-23", 0, 0,
                "smallest input at which sigmoid still reacts"),
    SONDE__REAL(saturated, threshold_sigmoid_max, "16.99999", 0, 0,
                "largest input at which sigmoid still reacts"),
    SONDE__REAL(saturated, threshold_inactivity, "1.0", 0, 100,
                "a unit is saturated if at most this percentage of samples lies inside "
                "the range"),
    SONDE__REAL(saturated, threshold_layer, "50", 0, 100,
                "largest acceptable percentage of saturated units in a layer"),
    SONDE__REAL(saturated, slope, "0.03", 0, 1,
                "smallest acceptable mean slope, relative to the largest possible; 0: do "
                "not check"),
    SONDE__COUNT(saturated, patience, "3", 1, 1e9, "observed steps in a row"),
};
static const sonde_rule_need needs[] = {
    {"inputs of tanh or sigmoid", SONDE_HOW_VITALS | SONDE_HOW_RAW, false,
     SONDE__ACTIVATIONS, SONDE__SELDOM},
    {"outputs of tanh or sigmoid", SONDE_HOW_VITALS, true, SONDE__ACTIVATIONS,
     SONDE__SELDOM},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static bool is_output(const sonde_tensor_info *info)
{
    static const char *const names[] = {"tanh", "sigmoid"};

    if (info->role == SONDE_ROLE_INPUT ||
        sonde__strcasestr(info->name, "_input_") != NULL) {
        return false; /* programs may declare inputs with the op of their module */
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        const char *at = sonde__strcasestr(info->name, names[i]);

        if (sonde__strcasecmp(info->op, names[i]) == 0 ||
            (at != NULL && sonde__strcasestr(at, "_output") != NULL)) {
            return true;
        }
    }
    return false;
}

static bool into(const sonde_rule_run *run, const sonde_tensor_info *info,
                 const char *activation)
{
    const char *name = sonde__builtin_goes_into(run, info);

    return name != NULL && strcmp(name, activation) == 0;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const saturated *state = sonde_rule_state(run);
    const bool usual = state->collection_names == NULL &&
                       strcmp(state->tensor_regex, DEFAULT_REGEX) == 0;

    if (sonde__builtin_is_loss(info, id) && !sonde_rule_selected(run, id, NULL)) {
        return LOSSES;
    }
    if (info->pass == SONDE_PASS_BACKWARD ||
        info->role == SONDE_ROLE_ACTIVATION_GRADIENT ||
        !sonde_dtype_is_float(info->dtype)) {
        return SONDE_RULE_IGNORE;
    }
    if (sonde_rule_selected(run, id, NULL) ||
        (usual && (into(run, info, "tanh") || into(run, info, "sigmoid")))) {
        return INPUTS;
    }
    return usual && sonde__builtin_is_own(info, id) && is_output(info)
               ? OUTPUTS
               : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const saturated *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
    tensor_memory *memory = tensors[i].memory;
    const bool sigmoid = sonde__strcasestr(info->name, "sigmoid") != NULL ||
                         sonde__strcasecmp(info->op, "sigmoid") == 0 ||
                         into(run, info, "sigmoid");

    memory->sigmoid = sigmoid;
    memory->low = sigmoid ? state->threshold_sigmoid_min : state->threshold_tanh_min;
    memory->high = sigmoid ? state->threshold_sigmoid_max : state->threshold_tanh_max;
    return tensors[i].need != INPUTS ||
                   sonde__builtin_units_make(&memory->units, info->rank, info->shape)
               ? SONDE_OK
               : sonde__fail_nomem(diag, "SaturatedActivation");
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    tensor_memory *memory = tensor->memory;

    if (seen->view != NULL && !sonde__builtin_units_take(&memory->units, seen->view,
                                                         memory->low, memory->high)) {
        sonde_rule_fail(run, "out of memory");
    }
}

/* The mean slope relative to the largest possible; 1 if it cannot be judged. */
static double slope_of(const tensor_memory *memory, const sonde_vitals *v)
{
    const double n = (double)sonde__builtin_finite(v), square = v->sumsq / n;

    if (n < 2.0) {
        return 1.0;
    }
    if (!memory->sigmoid) {
        return 1.0 - square;
    }
    return v->mean > 0.1 && v->mean < 0.9 ? 4.0 * (v->mean - square) : 1.0;
}

static void judge_slope(sonde_rule_run *run, size_t i, tensor_memory *memory,
                        const sonde_vitals *v)
{
    const saturated *state = sonde_rule_state(run);
    const double slope = slope_of(memory, v);

    memory->flat = slope < state->slope ? memory->flat + 1 : 0;
    if (memory->flat < state->patience) {
        sonde__rule_clear(run, i);
    } else if (sonde__rule_suspect(run, i, &flat_units, "mean_slope", slope,
                                   state->slope)) {
        sonde_rule_say(run, NULL,
                       "The mean slope of its units is %.2g times the largest possible: "
                       "hardly any gradient flows back through them.",
                       fmax(slope, 0.0));
    }
}

static void step(sonde_rule_run *run)
{
    const saturated *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    if (sonde__rule_only_losses(run)) {
        return;
    }
    SONDE__EACH (run, i) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need != INPUTS) {
            if (v != NULL && tensors[i].need == OUTPUTS) {
                judge_slope(run, i, memory, v);
            }
            continue;
        }
        double share =
            sonde__builtin_units_end(&memory->units, 100.0 - state->threshold_inactivity,
                                     state->threshold_layer, state->patience);

        memory->by_unit = memory->by_unit || share >= 0.0;
        if (v != NULL && sonde__builtin_finite(v) > 0) {
            const bool all = v->min > memory->high || v->max < memory->low ||
                             v->abs_min > fmax(memory->high, -memory->low);

            memory->all_outside = all ? memory->all_outside + 1 : 0;
            share = memory->all_outside >= state->patience         ? 100.0
                    : memory->all_outside == 0 && !memory->by_unit ? 0.0
                                                                   : share;
        }
        if (share >= 0.0 && share <= state->threshold_layer) {
            sonde__rule_clear(run, i);
        } else if (share > state->threshold_layer &&
                   sonde__rule_suspect(run, i, &flat_units, "percent_saturated", share,
                                       state->threshold_layer)) {
            sonde_rule_say(run, NULL,
                           "%.3g %% of its units lay outside %g ... %g at %lld observed "
                           "steps in a row: their slope is 0.",
                           share, memory->low, memory->high, (long long)state->patience);
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

const sonde_rule sonde__builtin_saturated_activation = {
    SONDE__RULE("SaturatedActivation", saturated),
    .summary = "most tanh or sigmoid units of a layer no longer react",
    .condition =
        "At `patience` steps in a row, more than `threshold_layer` % of a layer's units have inputs outside the range for all but `threshold_inactivity` % of the samples; or the mean slope at its outputs is below `slope` times the largest possible. It waits for training: a note where training goes well, nothing where units react again.",
    .advice = "Use smaller initial weights, normalise before the activation, or choose "
              "another activation.",
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
