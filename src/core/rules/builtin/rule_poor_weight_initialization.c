/*
 * PoorWeightInitialization - the signal explodes or dies in the layers of the untrained
 * network.
 *
 * Judges the inputs of activations and of the loss, layer by layer, at the first observed
 * training steps. Fires when
 *     growth   at the first two of them, the variance of a layer is more than `threshold`
 *              times that of the previous layer and more than LOUD. (Standard deviations
 *              below ten come from a normalisation after a quiet layer; a layer that
 *              keeps the variance of inputs of order one never gets there.)
 *     death    at all of the first `steps` (or until the end of the run), it is less than
 *              1 / threshold^2 of that of the previous layer, and not 0. (PyTorch's
 *              default initialisation shrinks it by about 6 per layer, and that trains.
 *              The input of the loss may begin as small as it likes.) Where there is a
 *              loss, it is looked at until step LATE: if it has fallen to below FELL of
 *              its first values, the layers have come to life. Where there are several
 *              losses, of two players perhaps, none of them tells: a note. Else it waits
 *              for training from there on.
 *     loud     at the first step of the run, for at least half of the weights, the mean
 *              square times the number of inputs is above GAIN (He's initialisation has
 *              2; embeddings, whose root mean square is about 1, are left out, and so are
 *              weights of one value, which are scales or SymmetricUnits').
 *     stuck    the loss changes by less than 0.01 % within `patience` steps, while the
 *              values of a gradient lie within distribution_range of each other. If it
 *              changes at all, it also has to be within 0.02 % of its first values at step
 *              LATE: the rate may rise from 0. If not, it waits for training, and is
 *              withdrawn if the loss moves by more than that.
 * The first layer is compared with the largest of the network's inputs.
 * A step counts for the layers if it has inputs of activations, and for the loss if it
 * has a loss.
 *
 * Evidence: vital signs of the tensors that activation_inputs_regex selects (by default,
 * the inputs of activations, by name or by the op of their module's output, and the input
 * of the loss), of losses and of gradients. The range from minimum to maximum stands for
 * that from the 5th to the 95th percentile, which is never larger.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/poor.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/labels.h"
#include "rules/suspicion.h"
#include "base/point.h"

#include <math.h>
#include <string.h>

#define DEFAULT_REGEX ".*relu_input"

#define GAIN 100.0

enum { REGEX = 0, FIRST = 2, ELEMENTS = 16, LATE = 40 };
static const sonde__rule_terms loud_weights = {
    SONDE__TERMS(NOTE, WARNING, WARNING, NOTE, NOTE)};
#define FELL 0.9

static const sonde_rule_param params[] = {
    SONDE__REGEX(sonde__builtin_poor, activation_inputs_regex, DEFAULT_REGEX,
                 "regular expressions that select inputs of activations"),
    SONDE__REAL(sonde__builtin_poor, threshold, "10.0", 1, 1e300,
                "largest acceptable growth of the variance from layer to layer"),
    SONDE__REAL(sonde__builtin_poor, distribution_range, "0.001", 0, 1e300,
                "smallest acceptable range of a gradient's values"),
    SONDE__COUNT(sonde__builtin_poor, patience, "5", 1, 1e9,
                 "steps at which the loss does not change"),
    SONDE__COUNT(sonde__builtin_poor, steps, "10", 1, 1e9,
                 "observed steps, from the start, that are judged"),
};
static const sonde_rule_need needs[] = {
    {"inputs of activations", SONDE_HOW_VITALS, false, SONDE__ACTIVATIONS, SONDE__SELDOM},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP},
    {"gradients", SONDE_HOW_VITALS, true, SONDE__GRADIENTS, SONDE__AT_TIMES},
    {"weights", SONDE_HOW_VITALS, true, SONDE__WEIGHTS, SONDE__AT_TIMES},
    {"inputs", SONDE_HOW_VITALS, true, SONDE__INPUTS, SONDE__OFTEN}};

/* An input of the network that is not a target. */
static bool is_data(const sonde_tensor_info *info)
{
    return info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE &&
           sonde_dtype_is_float(info->dtype) &&
           sonde__strcasestr(info->name, "target") == NULL &&
           sonde__strcasestr(info->name, "label") == NULL;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const sonde__builtin_poor *state = sonde_rule_state(run);
    const bool usual = strcmp(state->activation_inputs_regex, DEFAULT_REGEX) == 0;
    const bool scores = sonde__builtin_looks_like_predictions(info) && info->rank == 2 &&
                        info->shape[1] > 1;

    return (sonde_rule_matches(run, REGEX, id) ||
            (usual && (scores || sonde__builtin_goes_into(run, info) != NULL))) &&
                   info->pass != SONDE_PASS_BACKWARD &&
                   sonde_dtype_is_float(info->dtype) &&
                   info->role != SONDE_ROLE_ACTIVATION_GRADIENT
               ? SONDE__POOR_INPUTS
           : !sonde__builtin_is_own(info, id)                   ? SONDE_RULE_IGNORE
           : info->role == SONDE_ROLE_LOSS                      ? SONDE__POOR_LOSSES
           : sonde__builtin_is_gradient(info)                   ? SONDE__POOR_GRADIENTS
           : info->role == SONDE_ROLE_WEIGHT && info->rank >= 2 ? SONDE__POOR_WEIGHTS
           : is_data(info)                                      ? SONDE__POOR_DATA
                                                                : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *tensor = &sonde__builtin_tensors(run)[i];

    (void)diag;
    ((sonde__builtin_poor_memory *)tensor->memory)->scores =
        sonde__builtin_looks_like_predictions(sonde_rule_info(run, tensor->id));
    return SONDE_OK;
}

/* The mean square of a weight times the number of inputs of a unit, if it is too large;
 * else 0. */
static double loud_gain(const sonde_tensor_info *info, const sonde_vitals *v)
{
    const bool one = v->m2 * 1e4 < v->mean * v->mean * (double)v->count; /* value */
    const double gain = v->count >= ELEMENTS && info->shape[0] > 0 && !one
                            ? v->sumsq / (double)info->shape[0]
                            : 0.0;
    const double rms = sonde__builtin_rms(v);

    return gain > GAIN && (rms > 1.5 || rms < 0.7) ? gain : 0.0;
}

/* Reports the loudest weight if at least half of them are too loud. */
static void judge_weights(sonde_rule_run *run, const sonde_rule_tensor *tensors,
                          size_t count)
{
    size_t weights = 0, loud = 0, loudest = 0;
    double most = 0.0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v =
            tensors[i].need == SONDE__POOR_WEIGHTS ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_bad(v) == 0 && v->count > 0) {
            const double gain = loud_gain(sonde_rule_info(run, tensors[i].id), v);

            weights++;
            loud += gain > 0.0;
            loudest = gain > most ? i : loudest;
            most = fmax(most, gain);
        }
    }
    if (loud > 0 && 2 * loud >= weights &&
        sonde__rule_suspect(run, loudest, &loud_weights, "gain", most, GAIN)) {
        sonde_rule_say(run, NULL,
                       "At the first step, %zu of %zu weights multiply the variance of "
                       "their inputs by more than %g, this one by %.3g: initial weights "
                       "are too large.",
                       loud, weights, GAIN, most);
    }
}

/* Reports the layers that die, unless the network learns all the same. */
static void judge_death(sonde_rule_run *run)
{
    sonde__builtin_poor *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const double fall = state->first_loss - state->last_loss;

    state->dying = false;
    if (state->losses <= SONDE__POOR_LOSSES_AVERAGED ||
        fall < (1.0 - FELL) * fabs(state->first_loss)) {
        sonde__builtin_poor_judge_layers(run, tensors, count, false);
    }
}

static void step(sonde_rule_run *run)
{
    sonde__builtin_poor *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (!state->looked && sonde_rule_at(run)->mode_step == 0) {
        judge_weights(run, tensors, count);
    }
    state->looked = true;
    if (state->heard < state->steps) {
        sonde__builtin_poor_judge_losses(run, tensors, count);
    }
    if (state->seen < state->steps &&
        sonde__builtin_poor_compare_layers(state, tensors, count)) {
        state->seen++;
        if (state->seen == FIRST) {
            sonde__builtin_poor_judge_layers(run, tensors, count, true);
        }
        state->dying = state->seen == state->steps;
    }
    sonde__builtin_poor_take_loss(state, run, tensors, count);
    sonde__builtin_poor_withdraw_moved(run, tensors, count);
    if (state->dying && (state->losses == 0 || state->losses >= LATE)) {
        judge_death(run);
    }
    if (state->losses == LATE) {
        sonde__builtin_poor_judge_stuck(run);
    }
}

static void finish(sonde_rule_run *run)
{
    sonde__builtin_poor *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->seen > 0 && state->seen < state->steps) {
        sonde__builtin_poor_judge_layers(run, tensors, count, true);
        judge_death(run);
    } else if (state->dying) {
        judge_death(run);
    }
    if (state->losses < LATE) {
        sonde__builtin_poor_judge_stuck(run);
    }
}

const sonde_rule sonde__builtin_poor_weight_initialization = {
    SONDE__RULE("PoorWeightInitialization", sonde__builtin_poor),
    .summary = "the signal explodes or dies in the layers of the untrained network",
    .condition =
        "At the first steps, the variance of activation inputs grows from one layer to the next by more than a factor of `threshold`, to more than 100, or shrinks by more than its square at each of `steps` while the loss does not fall within 40 (a note where there are several losses); or at the first step half of the weights multiply the variance of their inputs by more than 100; or the loss does not change for `patience` steps while a gradient's values lie within `distribution_range`. The first two of these wait for training: notes where training goes well or no loss is seen.",
    .advice = "Initialise weights with a variance of about 2 / inputs (He) or 1 / inputs "
              "(LeCun), or normalise between layers.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(sonde__builtin_poor_memory),
    .wants = wants,
    .bind = bind,
    .step = step,
    .finish = finish,
};
