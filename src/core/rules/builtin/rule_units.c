/*
 * rule_units.c - rules about units of a layer that no longer react: DeadRelu and
 * SaturatedActivation.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/units.h"
#include "rules/context.h"

#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"

#include <float.h>
#include <string.h>

/* --- what both rules do --------------------------------------------------------------- */

/* The parameters of both, and those of SaturatedActivation alone. */
typedef struct unit_rule {
    const char *tensor_regex;
    double threshold_inactivity, threshold_layer;
    int64_t patience;
    const char *collection_names;
    double threshold_tanh_min, threshold_tanh_max, threshold_sigmoid_min,
        threshold_sigmoid_max, slope;
} unit_rule;

/* The memory of a tensor. */
typedef struct tensor_memory {
    sonde__builtin_units units;
    double low, high;    /* the range */
    int64_t all_outside; /* steps in a row */
    bool by_unit;        /* raw values were seen */
    bool parts;          /* steps have several micro-batches, or replicas */
    int64_t flat;        /* of an output of SaturatedActivation: steps in a row */
    bool reacted;        /* ... and it has not been flat at all steps so far */
    bool sigmoid;
} tensor_memory;

/* Takes the end of a step. all: vital signs show that no value is in the range. Returns the
 * percentage of units that have lain outside; negative: unknown. Clears a suspicion. */
static double end_step(sonde_rule_run *run, const sonde_rule_tensor *t, bool known,
                       bool all)
{
    const unit_rule *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    double share =
        sonde__builtin_units_end(&memory->units, 100.0 - state->threshold_inactivity,
                                 state->threshold_layer, state->patience);

    memory->by_unit = memory->by_unit || share >= 0.0;
    if (known) {
        memory->all_outside = all ? memory->all_outside + 1 : 0;
        share = memory->all_outside >= state->patience         ? 100.0
                : memory->all_outside == 0 && !memory->by_unit ? 0.0
                                                               : share;
    }
    if (share >= 0.0 && share <= state->threshold_layer) {
        sonde__rule_clear(run, t);
    }
    return share;
}

static void destroy(sonde_rule_run *run)
{
    SONDE__EACH (run, t) {
        sonde__builtin_units_free(&((tensor_memory *)t->memory)->units);
    }
}

/* --- DeadRelu ------------------------------------------------------------------------ */

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

#define RELUS ".*relu_output"
#define MOST_DEAD 90.0
enum { DEAD_REGEX = 0, DEAD_OUTPUTS = 0, DEAD_LOSSES = 1, DEAD_LASTING = 10 };
SONDE__TERMS(most_dead, NOTE, ERROR, ERROR, NOTE, ERROR, .looks = DEAD_LASTING);
SONDE__TERMS(half_dead, NOTE, NOTE, NOTE, NOTE, NOTE, .looks = DEAD_LASTING);

static const sonde_rule_param unit_rule_params[] = {
    SONDE__REGEX(unit_rule, tensor_regex, RELUS,
                 "regular expressions that select outputs of ReLUs"),
    SONDE__REAL(unit_rule, threshold_inactivity, "1.0", 0, 100,
                "a unit is inactive if at most this percentage of samples activates it"),
    SONDE__REAL(unit_rule, threshold_layer, "50", 0, 100,
                "largest acceptable percentage of inactive units in a layer"),
    SONDE__COUNT(unit_rule, patience, "3", 1, 1e9,
                 "number of observed steps in a row with too many such units"),
};
static const sonde_rule_need unit_rule_needs[] = {
    {"outputs of ReLUs", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, SONDE__ACTIVATIONS,
     SONDE__SELDOM},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static int wants_relu(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const unit_rule *state = sonde_rule_state(run);
    const bool by_op = strcmp(state->tensor_regex, RELUS) == 0 &&
                       sonde__strcasecmp(info->op, "relu") == 0 &&
                       strstr(info->name, "_input_") == NULL;

    if (info->pass == SONDE_PASS_BACKWARD || !sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return by_op || sonde_rule_matches(run, DEAD_REGEX, id) ? DEAD_OUTPUTS
           : info->role == SONDE_ROLE_LOSS                  ? DEAD_LOSSES
                                                            : SONDE_RULE_IGNORE;
}

static sonde_err bind_relu(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *t = sonde__builtin_at(run, i);
    const sonde_tensor_info *info = sonde_rule_info(run, t->id);
    tensor_memory *memory = t->memory;

    return t->need != DEAD_OUTPUTS ||
                   sonde__builtin_units_make(&memory->units, info->rank, info->shape)
               ? SONDE_OK
               : sonde__fail_nomem(diag, "DeadRelu");
}

/* Whether so few of the outputs are 0 that sonde__builtin_units_end restarts all streaks,
 * whichever units they belong to. By vital signs, which spare a pass over the outputs. */
static bool is_lively(const unit_rule *state, const tensor_memory *memory,
                      const sonde_observation *observation)
{
    const sonde_vitals *v = observation->vitals;

    return v != NULL && !sonde_vitals_are_norms(v) && !memory->parts && v->min >= 0.0 &&
           v->pos_inf + v->neg_inf == 0 && observation->view->rank >= 2 &&
           memory->units.count == observation->view->shape[1] && v->count > 0 &&
           (double)v->zero < 0.99 * (state->threshold_layer / 100.0) *
                                 (1.0 - state->threshold_inactivity / 100.0) *
                                 (double)v->count;
}

static void observe_relu(sonde_rule_run *run, sonde_rule_tensor *tensor,
                         const sonde_observation *observation)
{
    tensor_memory *memory = tensor->memory;

    if (observation->view == NULL || tensor->need != DEAD_OUTPUTS) {
        return;
    }
    memory->parts =
        memory->parts || observation->at.micro_batch > 0 || observation->at.replica > 0;
    if (is_lively(sonde_rule_state(run), memory, observation)) {
        sonde__builtin_units_pass(&memory->units, observation->view);
    } else if (!sonde__builtin_units_take(&memory->units, observation->view, DBL_TRUE_MIN,
                                          DBL_MAX)) {
        sonde_rule_fail(run, "out of memory");
    }
}

static void step_relu(sonde_rule_run *run)
{
    const unit_rule *state = sonde_rule_state(run);

    if (sonde__rule_only_losses(run)) {
        return;
    }
    SONDE__EACH_OF (run, t, DEAD_OUTPUTS) {
        const sonde_vitals *v = t->vitals;
        const double share =
            end_step(run, t, v != NULL, v != NULL && v->count > 0 && v->zero == v->count);

        if (share > state->threshold_layer) {
            sonde__rule_report(
                run, t, share >= MOST_DEAD ? &most_dead : &half_dead, "percent_inactive",
                share, state->threshold_layer, NULL,
                "%.3g %% of its units gave 0 for (nearly) every sample at %lld observed "
                "steps in a row: no gradient flows back through them.",
                share, (long long)state->patience);
        }
    }
}

const sonde_rule sonde__builtin_dead_relu = {
    SONDE__RULE("DeadRelu", unit_rule),
    .summary = "most ReLUs of a layer give 0 for every input",
    .condition =
        "More than `threshold_layer` % of a layer's units are active for less than `threshold_inactivity` % of the samples, at `patience` observed steps in a row. "
        "The finding waits for training: it is a note if training goes well or less than 90 % of the units are inactive, and is dropped if the units become active.",
    .advice =
        "Lower the learning rate, check for biases far below 0, or use a leaky ReLU.",
    .tensor_size = sizeof(tensor_memory),
    .wants = wants_relu,
    .bind = bind_relu,
    .observe = observe_relu,
    .step = step_relu,
    .destroy = destroy,
};

/* --- SaturatedActivation -------------------------------------------------------------- */

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
 * The finding is a suspicion (rules/suspicion.h), and a note if training goes well: a last
 * layer that separates two classes, or draws black and white pictures, ends there. It does
 * not begin there: a slope that is so small from the first step on is a warning.
 *
 * Judges the inputs that the expressions select (by default those of tanh and sigmoid, by
 * name or by the op of their module's output). Inputs of a sigmoid have the range of
 * sigmoid, others that of tanh. Evidence: raw inputs and vital signs of outputs; vital
 * signs of inputs only show a layer all of whose values are outside.
 */

#define SIGMOIDS ".*tanh_input|.*sigmoid_input"
enum { INPUTS = 0, OUTPUTS = 1, LOSSES = 2, LASTING = 8 };
SONDE__TERMS(flat_units, NOTE, ERROR, ERROR, NOTE, ERROR, .looks = LASTING);
/* From the first step on: no training has led there. */
SONDE__TERMS(flat_at_first, WARNING, ERROR, ERROR, WARNING, ERROR, .looks = 1);

typedef unit_rule saturated;

static const sonde_rule_param saturated_params[] = {
    {"collection_names", SONDE_RULE_COLLECTIONS, NULL, 0, 0,
     "comma-separated list of collections", offsetof(saturated, collection_names), false},
    SONDE__REGEX(saturated, tensor_regex, SIGMOIDS,
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
    SONDE__COUNT(saturated, patience, "3", 1, 1e9,
                 "number of observed steps in a row with too many such units"),
};
static const sonde_rule_need saturated_needs[] = {
    {"inputs of tanh or sigmoid", SONDE_HOW_VITALS | SONDE_HOW_RAW, true,
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
    const bool usual =
        state->collection_names == NULL && strcmp(state->tensor_regex, SIGMOIDS) == 0;

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
    const sonde_rule_tensor *t = sonde__builtin_at(run, i);
    const sonde_tensor_info *info = sonde_rule_info(run, t->id);
    tensor_memory *memory = t->memory;
    const bool sigmoid = sonde__strcasestr(info->name, "sigmoid") != NULL ||
                         sonde__strcasecmp(info->op, "sigmoid") == 0 ||
                         into(run, info, "sigmoid");

    memory->sigmoid = sigmoid;
    memory->low = sigmoid ? state->threshold_sigmoid_min : state->threshold_tanh_min;
    memory->high = sigmoid ? state->threshold_sigmoid_max : state->threshold_tanh_max;
    return t->need != INPUTS ||
                   sonde__builtin_units_make(&memory->units, info->rank, info->shape)
               ? SONDE_OK
               : sonde__fail_nomem(diag, "SaturatedActivation");
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    tensor_memory *memory = tensor->memory;

    if (observation->view != NULL &&
        !sonde__builtin_units_take(&memory->units, observation->view, memory->low,
                                   memory->high)) {
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

static void judge_slope(sonde_rule_run *run, sonde_rule_tensor *t, tensor_memory *memory,
                        const sonde_vitals *v)
{
    const saturated *state = sonde_rule_state(run);
    const double slope = slope_of(memory, v);

    memory->flat = slope < state->slope ? memory->flat + 1 : 0;
    memory->reacted = memory->reacted || memory->flat == 0 ||
                      (memory->flat == 1 && sonde_rule_at(run)->mode_step > 0);
    if (memory->flat < state->patience) {
        sonde__rule_clear(run, t);
    } else {
        sonde__rule_report(
            run, t, memory->reacted ? &flat_units : &flat_at_first, "mean_slope", slope,
            state->slope, NULL,
            "The mean slope of its units is %.2g times the largest possible%s: "
            "hardly any gradient flows back through them.",
            fmax(slope, 0.0), memory->reacted ? "" : ", from the first step on");
    }
}

static void step(sonde_rule_run *run)
{
    const saturated *state = sonde_rule_state(run);

    if (sonde__rule_only_losses(run)) {
        return;
    }
    SONDE__EACH (run, t) {
        tensor_memory *memory = t->memory;
        const sonde_vitals *v = t->vitals;

        if (t->need != INPUTS) {
            if (v != NULL && t->need == OUTPUTS) {
                judge_slope(run, t, memory, v);
            }
            continue;
        }
        const bool known = sonde__builtin_has_finite(v);
        const bool all = known && (v->min > memory->high || v->max < memory->low ||
                                   v->abs_min > fmax(memory->high, -memory->low));
        const double share = end_step(run, t, known, all);

        if (share > state->threshold_layer) {
            sonde__rule_report(
                run, t, &flat_units, "percent_saturated", share, state->threshold_layer,
                NULL,
                "%.3g %% of its units lay outside %g ... %g at %lld observed steps in a "
                "row: their slope is 0.",
                share, memory->low, memory->high, (long long)state->patience);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    SONDE__EACH (run, t) {
        if (t->need != LOSSES) {
            return;
        }
    }
    sonde_rule_lacked(run, "the run has no inputs of tanh or sigmoid");
}

const sonde_rule sonde__builtin_saturated_activation = {
    SONDE__RULE("SaturatedActivation", saturated),
    .summary = "most tanh or sigmoid units of a layer no longer react",
    .condition =
        "More than `threshold_layer` % of a layer's units have inputs outside the range for all but `threshold_inactivity` % of the samples, at `patience` steps in a row; or the mean slope at the layer's outputs is below `slope` times the largest possible. "
        "The finding waits for training: it is a note if training goes well, or a warning if the slope is so small from the first step on, and is dropped if the units react again.",
    .advice = "Use smaller initial weights, normalize before the activation, or choose "
              "another activation.",
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .finish = finish,
    .destroy = destroy,
};
