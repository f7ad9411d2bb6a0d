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
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/labels.h"
#include "rules/suspicion.h"
#include "base/point.h"

#include <math.h>
#include <string.h>

#define DEFAULT_REGEX ".*relu_input"
#define LOUD 100.0

#define GAIN 100.0

enum {
    INPUTS = 0,
    LOSSES = 1,
    GRADIENTS = 2,
    WEIGHTS = 3,
    DATA = 4,
    REGEX = 0,
    FIRST = 2,
    ELEMENTS = 16,
    LATE = 40,
    LOSSES_AVERAGED = 5
};
/* What follows from the first steps alone. */
static const sonde__rule_terms at_first = {SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, NOTE)};
static const sonde__rule_terms dying = {SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, ERROR)};
static const sonde__rule_terms loud_weights = {
    SONDE__TERMS(NOTE, WARNING, WARNING, NOTE, NOTE)};
/* The loss is the same to its last digit. */
static const sonde__rule_terms same_loss = {
    SONDE__TERMS(NOTHING, ERROR, ERROR, ERROR, ERROR)};
#define FELL 0.9
#define CONSTANT 1e-7
#define MOVED 2e-4

typedef struct poor {
    const char *activation_inputs_regex;
    double threshold, distribution_range;
    int64_t patience, steps;
    int64_t seen, heard; /* steps with inputs of activations; with a loss */
    bool narrow;         /* some gradient is narrow at this step */
    bool looked;         /* at the weights of the first step */
    bool dying;          /* some layer does, at the first steps */
    double first_loss;   /* mean of the first ones */
    double last_loss;    /* mean of the last ones, decaying */
    int64_t losses;      /* steps with a finite one, whatever the rest */
    bool whole;          /* one of them is the loss of the run */
} poor;

typedef struct tensor_memory {
    double variance; /* at this step */
    bool scores;     /* the input of the loss */
    int64_t looked, grew, shrank;
    double worst; /* ratio to the previous layer, the least extreme of the steps */
    double loss;
    int64_t still; /* steps in a row without a change of the loss */
    double moved;  /* the largest change in them, relative */
    bool stuck;    /* it stood still for `patience` steps, nearly */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REGEX(poor, activation_inputs_regex, DEFAULT_REGEX,
                 "regular expressions that select inputs of activations"),
    SONDE__REAL(poor, threshold, "10.0", 1, 1e300,
                "largest acceptable growth of the variance from layer to layer"),
    SONDE__REAL(poor, distribution_range, "0.001", 0, 1e300,
                "smallest acceptable range of a gradient's values"),
    SONDE__COUNT(poor, patience, "5", 1, 1e9, "steps at which the loss does not change"),
    SONDE__COUNT(poor, steps, "10", 1, 1e9,
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
    const poor *state = sonde_rule_state(run);
    const bool usual = strcmp(state->activation_inputs_regex, DEFAULT_REGEX) == 0;
    const bool scores = sonde__builtin_looks_like_predictions(info) && info->rank == 2 &&
                        info->shape[1] > 1;

    return (sonde_rule_matches(run, REGEX, id) ||
            (usual && (scores || sonde__builtin_goes_into(run, info) != NULL))) &&
                   info->pass != SONDE_PASS_BACKWARD &&
                   sonde_dtype_is_float(info->dtype) &&
                   info->role != SONDE_ROLE_ACTIVATION_GRADIENT
               ? INPUTS
           : !sonde__builtin_is_own(info, id)                   ? SONDE_RULE_IGNORE
           : info->role == SONDE_ROLE_LOSS                      ? LOSSES
           : sonde__builtin_is_gradient(info)                   ? GRADIENTS
           : info->role == SONDE_ROLE_WEIGHT && info->rank >= 2 ? WEIGHTS
           : is_data(info)                                      ? DATA
                                                                : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *tensor = &sonde__builtin_tensors(run)[i];

    (void)diag;
    ((tensor_memory *)tensor->memory)->scores =
        sonde__builtin_looks_like_predictions(sonde_rule_info(run, tensor->id));
    return SONDE_OK;
}

/* Compares the variance of each layer with that of the previous one. True if any was
 * seen. */
static bool compare_layers(const poor *state, sonde_rule_tensor *tensors, size_t count)
{
    double before = 0.0;
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].need == DATA ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_bad(v) == 0 && v->count > 0) {
            before = fmax(before, sonde__builtin_variance(v));
        }
    }
    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;
        double ratio = 1.0;

        if (tensors[i].need != INPUTS || v == NULL || sonde__builtin_finite(v) == 0) {
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

/* Reports layers that grow (grown) or die. */
static void judge_layers(sonde_rule_run *run, const sonde_rule_tensor *tensors,
                         size_t count, bool grown)
{
    const poor *state = sonde_rule_state(run);
    const double most =
        grown ? state->threshold : 1.0 / (state->threshold * state->threshold);
    const sonde_severity severity =
        (state->whole || state->losses == 0) && !sonde__rule_loss_is_free(run)
            ? SONDE_SEVERITY_ERROR
            : SONDE_SEVERITY_NOTE;

    for (size_t i = 0; i < count; i++) {
        const tensor_memory *memory = tensors[i].memory;

        if (tensors[i].need == INPUTS && memory->looked > 0 &&
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

static void report_stuck(sonde_rule_run *run, size_t i, const tensor_memory *memory,
                         double loss, bool sure)
{
    const poor *state = sonde_rule_state(run);
    const double steps = fmax((double)memory->still, (double)state->patience);
    const double least = (double)state->patience;

    if (sure ? sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "steps_unmoved", steps,
                                least)
             : sonde__rule_suspect(run, i, &same_loss, "steps_unmoved", steps, least)) {
        sonde_rule_say(run, NULL,
                       "The loss does not change (%.5g), and the values of a gradient "
                       "lie within %g.",
                       loss, state->distribution_range);
    }
}

static void judge_loss(sonde_rule_run *run, size_t i, tensor_memory *memory, double loss)
{
    const poor *state = sonde_rule_state(run);
    const bool still =
        state->heard > 1 && fabs(loss - memory->loss) < 1e-4 * fabs(memory->loss);

    memory->still = still && state->narrow ? memory->still + 1 : 0;
    memory->moved = memory->still > 0
                        ? fmax(memory->moved, fabs(loss - memory->loss) /
                                                  fmax(fabs(memory->loss), 1e-300))
                        : 0.0;
    memory->loss =
        memory->still > 0 ? memory->loss : loss; /* of the first step of the streak */
    memory->stuck = memory->stuck || memory->still >= state->patience;
    if (memory->still >= state->patience && memory->moved < CONSTANT) {
        report_stuck(run, i, memory, loss, false);
    }
}

static void judge_losses(sonde_rule_run *run, const sonde_rule_tensor *tensors,
                         size_t count)
{
    poor *state = sonde_rule_state(run);
    bool any = false;

    state->narrow = false;
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        any = any || (tensors[i].need == LOSSES && v != NULL);
        state->narrow = state->narrow || (tensors[i].need == GRADIENTS && v != NULL &&
                                          v->count > 1 && sonde__builtin_bad(v) == 0 &&
                                          v->max - v->min < state->distribution_range);
    }
    state->heard += any;
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == LOSSES && v != NULL && sonde__builtin_finite(v) > 0) {
            judge_loss(run, i, tensors[i].memory, v->mean);
        }
    }
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
        const sonde_vitals *v = tensors[i].need == WEIGHTS ? tensors[i].vitals : NULL;

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

/* Takes the mean of the losses of this step. */
static void take_loss(poor *state, sonde_rule_run *run, const sonde_rule_tensor *tensors,
                      size_t count)
{
    double sum = 0.0, losses = 0.0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].need == LOSSES ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_finite(v) > 0) {
            const bool whole =
                sonde__builtin_loss_kind(run, tensors[i].id) == SONDE__LOSS_WHOLE;

            state->whole = state->whole || whole;
            sum = whole ? v->mean : sum + v->mean;
            losses = whole ? 1.0 : losses + 1.0;
        }
    }
    if (losses > 0.0) {
        const double loss = sum / losses;
        const double n = fmin((double)++state->losses, LOSSES_AVERAGED);

        if (state->losses <= LOSSES_AVERAGED) {
            state->first_loss += (loss - state->first_loss) / n;
        }
        state->last_loss += (loss - state->last_loss) / n;
    }
}

/* Reports the layers that die, unless the network learns all the same. */
static void judge_death(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const double fall = state->first_loss - state->last_loss;

    state->dying = false;
    if (state->losses <= LOSSES_AVERAGED ||
        fall < (1.0 - FELL) * fabs(state->first_loss)) {
        judge_layers(run, tensors, count, false);
    }
}

/* Reports losses that stood still at first and have not moved since. */
static void judge_stuck(sonde_rule_run *run)
{
    const poor *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const tensor_memory *memory = tensors[i].memory;

        if (tensors[i].need == LOSSES && memory->stuck &&
            fabs(state->last_loss - state->first_loss) <
                MOVED * fabs(state->first_loss)) {
            report_stuck(run, i, memory, state->last_loss, true);
        }
    }
}

/* A loss that was the same at first has moved. */
static void withdraw_moved(sonde_rule_run *run, const sonde_rule_tensor *tensors,
                           size_t count)
{
    const double first = ((const poor *)sonde_rule_state(run))->first_loss;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].need == LOSSES ? tensors[i].vitals : NULL;

        if (v != NULL && sonde__builtin_bad(v) == 0 &&
            fabs(v->mean - first) > MOVED * fabs(first)) {
            sonde__rule_withdraw(run, i);
        }
    }
}

static void step(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (!state->looked && sonde_rule_at(run)->mode_step == 0) {
        judge_weights(run, tensors, count);
    }
    state->looked = true;
    if (state->heard < state->steps) {
        judge_losses(run, tensors, count);
    }
    if (state->seen < state->steps && compare_layers(state, tensors, count)) {
        state->seen++;
        if (state->seen == FIRST) {
            judge_layers(run, tensors, count, true);
        }
        state->dying = state->seen == state->steps;
    }
    take_loss(state, run, tensors, count);
    withdraw_moved(run, tensors, count);
    if (state->dying && (state->losses == 0 || state->losses >= LATE)) {
        judge_death(run);
    }
    if (state->losses == LATE) {
        judge_stuck(run);
    }
}

static void finish(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->seen > 0 && state->seen < state->steps) {
        judge_layers(run, tensors, count, true);
        judge_death(run);
    } else if (state->dying) {
        judge_death(run);
    }
    if (state->losses < LATE) {
        judge_stuck(run);
    }
}

const sonde_rule sonde__builtin_poor_weight_initialization = {
    SONDE__RULE("PoorWeightInitialization", poor),
    .summary = "the signal explodes or dies in the layers of the untrained network",
    .condition =
        "At the first steps, the variance of activation inputs grows from one layer to the next by more than a factor of `threshold`, to more than 100, or shrinks by more than its square at each of `steps` while the loss does not fall within 40 (a note where there are several losses); or at the first step half of the weights multiply the variance of their inputs by more than 100; or the loss does not change for `patience` steps while a gradient's values lie within `distribution_range`. The first two of these wait for training: notes where training goes well or no loss is seen.",
    .advice = "Initialise weights with a variance of about 2 / inputs (He) or 1 / inputs "
              "(LeCun), or normalise between layers.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .step = step,
    .finish = finish,
};
