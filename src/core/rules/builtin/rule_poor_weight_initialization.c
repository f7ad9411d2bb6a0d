/*
 * PoorWeightInitialization - the signal explodes or vanishes in the layers of the untrained
 * network.
 *
 * Judges the inputs of activations and of the loss, layer by layer, at the first observed
 * training steps. Fires when
 *     growth   at the first two of them, the variance of a layer is more than `threshold`
 *              times that of the previous layer and more than LOUD. (Standard deviations
 *              below ten come from a normalization after a quiet layer; a layer that
 *              keeps the variance of inputs of order one never gets there.) Training
 *              excuses it, unless it is more than FAR times.
 *     death    at all of the first `steps` (or until the end of the run), it is less than
 *              1 / threshold^2 of that of the previous layer, and not 0. (PyTorch's
 *              default initialization shrinks it by about 6 per layer, and that trains.
 *              The input of the loss may start at any size.) A loss is observed until
 *              step LATE: if it has fallen to below FELL of its first values, the layers
 *              work. If there are several losses (two players), none of them decides: the
 *              finding is a note. Else it waits for training from there on.
 *     loud     at the first step of the run, for at least half of the weights, the mean
 *              square times the number of inputs is above GAIN (He's initialization has
 *              2; embeddings, whose root mean square is about 1, are left out, and so are
 *              weights of one value, which are scales or SymmetricUnits'). A program may
 *              show its weights only after the first update: if the next loss is more
 *              than BLOWN times the first or not finite, the update has made them large
 *              (WeightUpdateRatio). The message names both.
 *     layers   instead of loud, where the program of the first step is known: the initial
 *              weights of single layers, or of half of them, in poor_layers.c; else
 *     start    the first loss is far above that of even predictions: poor_start.c.
 *     stuck    the loss changes by less than 0.01 % within `patience` steps, while the
 *              values of a gradient lie within distribution_range of each other. If it
 *              changes at all, it also has to be within 0.02 % of its first values at step
 *              LATE: the rate may rise from 0. If not, it waits for training, and is
 *              withdrawn if the loss moves by more than that.
 * The first layer is compared with the largest of the network's inputs. What the program
 * masks, or adds constants to, is not judged: its variance is not a layer's.
 * A step counts for the layers if it has inputs of activations, and for the loss if it
 * has a loss.
 *
 * Evidence: vital signs of the tensors that activation_inputs_regex selects (by default,
 * the inputs of activations, by name or by the op of their module's output, and the input
 * of the loss), of losses and of gradients. The range from minimum to maximum stands for
 * that from the 5th to the 95th percentile, which is never larger.
 */
#include "rules/builtin/labels.h"
#include "rules/builtin/poor.h"

#include "base/macros.h"

#include <string.h>

enum { INPUTS, LOSSES, GRADIENTS, WEIGHTS, DATA, OUTPUTS }; /* needs */
enum { REGEX = 0, FIRST = 2, AVERAGED = 5, ELEMENTS = 16, LATE = 40 };
#define DEFAULT_REGEX ".*relu_input"
#define GAIN 100.0
#define FELL 0.9
#define LOUD 100.0
#define FAR 1e4 /* growth that no training excuses */
#define BLOWN 100.0
#define CONSTANT 1e-7
#define MOVED 2e-4

typedef struct poor {
    const char *activation_inputs_regex;
    double threshold, distribution_range;
    int64_t patience, steps;
    int64_t seen, heard; /* steps with inputs of activations; with a loss */
    bool narrow;         /* some gradient is narrow at this step */
    bool looked;         /* at the weights of the first step */
    size_t loudest;      /* of these; SIZE_MAX: none is too loud, or it was withdrawn */
    bool dying;          /* some layer does, at the first steps */
    double first_loss;   /* mean of the first ones */
    double last_loss;    /* mean of the last ones, decaying */
    int64_t losses;      /* steps with a finite one, whatever the rest */
    bool whole;          /* one of them is the loss of the run */
} poor;

typedef struct tensor_memory {
    bool scores; /* the input of the loss */
    int64_t looked, grew, shrank;
    double worst; /* ratio to the previous layer, the least extreme of the steps */
    double loss;
    int64_t still; /* steps in a row without a change of the loss */
    double moved;  /* the largest change in them, relative */
    bool stuck;    /* it stood still for `patience` steps, nearly */
} tensor_memory;

SONDE__TERMS(loud_weights, NOTE, WARNING, WARNING, NOTE, NOTE);
/* What follows from the first steps alone. */
SONDE__TERMS(at_first, NOTE, ERROR, ERROR, NOTE, NOTE);
SONDE__TERMS(far_at_first, WARNING, ERROR, ERROR, WARNING, WARNING);
SONDE__TERMS(dying, NOTE, ERROR, ERROR, NOTE, ERROR);
/* The loss is the same to its last digit. */
SONDE__TERMS(same_loss, NOTHING, ERROR, ERROR, ERROR, ERROR);

static const sonde_rule_param poor_params[] = {
    SONDE__REGEX(poor, activation_inputs_regex, DEFAULT_REGEX,
                 "regular expressions that select inputs of activations"),
    SONDE__REAL(poor, threshold, "10.0", 1, 1e300,
                "largest acceptable growth of the variance from layer to layer"),
    SONDE__REAL(poor, distribution_range, "0.001", 0, 1e300,
                "smallest acceptable range of a gradient's values"),
    SONDE__COUNT(poor, patience, "5", 1, 1e9,
                 "number of steps at which the loss must not change"),
    SONDE__COUNT(poor, steps, "10", 1, 1e9,
                 "number of observed steps to judge, from the start"),
};
static const sonde_rule_need poor_needs[] = {
    {"inputs of activations", SONDE_HOW_VITALS, false, SONDE__ACTIVATIONS, SONDE__SELDOM},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP},
    {"gradients", SONDE_HOW_VITALS, true, SONDE__GRADIENTS, SONDE__AT_TIMES},
    {"weights", SONDE_HOW_VITALS, true, SONDE__WEIGHTS, SONDE__AT_TIMES},
    {"inputs", SONDE_HOW_VITALS, true, SONDE__INPUTS, SONDE__OFTEN},
    {"outputs of layers", SONDE_HOW_VITALS, true, SONDE__ACTIVATIONS,
     SONDE__WHEN(.first = 1, .every = 1000000)}};

/* --- the variance grows or dies from layer to layer -------------------------------- */

/* Compares the variance of each layer with that of the previous one. True if any was
 * seen. */
static bool compare_layers(sonde_rule_run *run)
{
    const poor *state = sonde_rule_state(run);
    const sonde_program *program =
        sonde_rule_program(run, (sonde_mode)sonde_rule_at(run)->mode);
    double before = 0.0;
    bool any = false;

    SONDE__EACH_FINITE (run, t, DATA) {
        before = fmax(before, sonde__builtin_variance(t->vitals));
    }
    SONDE__EACH_OF (run, t, INPUTS) {
        tensor_memory *memory = t->memory;

        if (!sonde__builtin_has_finite(t->vitals) ||
            !sonde__builtin_poor_is_of_layer(program,
                                             sonde_rule_info(run, t->id)->name)) {
            continue;
        }
        const double variance = sonde__builtin_variance(t->vitals);
        if (before > 0.0) {
            const double ratio = variance / before;

            memory->grew += ratio > state->threshold && variance > LOUD;
            memory->shrank += !memory->scores && ratio > 0.0 &&
                              ratio < 1.0 / (state->threshold * state->threshold);
            if (memory->looked++ == 0 || fabs(log(ratio)) < fabs(log(memory->worst))) {
                memory->worst = ratio;
            }
        }
        before = variance;
        any = true;
    }
    return any;
}

/* Reports layers that grow (grown) or die. */
static void judge_layers(sonde_rule_run *run, bool grown)
{
    const poor *state = sonde_rule_state(run);
    const sonde_program *program =
        sonde_rule_program(run, (sonde_mode)sonde_rule_at(run)->mode);
    const double most =
        grown ? state->threshold : 1.0 / (state->threshold * state->threshold);
    const bool tells =
        (state->whole || state->losses == 0) && !sonde__rule_loss_is_free(run);

    SONDE__EACH_OF (run, t, INPUTS) {
        const tensor_memory *memory = t->memory;
        const sonde__rule_terms *terms = grown && memory->worst > FAR ? &far_at_first
                                         : grown                      ? &at_first
                                         : tells                      ? &dying
                                                                      : SONDE__SURE(NOTE);

        if (memory->looked > 0 &&
            (grown ? memory->grew : memory->shrank) == memory->looked) {
            char scale[160];

            sonde__builtin_poor_scale(program, sonde_rule_info(run, t->id)->name, scale,
                                      sizeof scale);
            sonde__rule_report(run, t, terms, "variance_ratio", memory->worst, most, NULL,
                               "Its variance is %.3g times that of the previous layer at "
                               "each of the first %lld steps%s.",
                               memory->worst, (long long)memory->looked, scale);
        }
    }
}

/* --- the loss does not change, and a gradient is narrow ---------------------------- */

static void report_stuck(sonde_rule_run *run, const sonde_rule_tensor *t, double loss,
                         const sonde__rule_terms *terms)
{
    const poor *state = sonde_rule_state(run);
    const int64_t still = ((const tensor_memory *)t->memory)->still;

    sonde__rule_report(
        run, t, terms, "steps_unmoved", (double)SONDE_MAX(still, state->patience),
        (double)state->patience, NULL,
        "The loss does not change (%.5g), and the values of a gradient lie "
        "within %g of each other.",
        loss, state->distribution_range);
}

static void judge_loss(sonde_rule_run *run, const sonde_rule_tensor *t, double loss)
{
    const poor *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const double moved = fabs(loss - memory->loss), size = fabs(memory->loss);

    memory->still =
        state->heard > 1 && moved < 1e-4 * size && state->narrow ? memory->still + 1 : 0;
    memory->moved =
        memory->still > 0 ? fmax(memory->moved, moved / fmax(size, 1e-300)) : 0.0;
    memory->loss =
        memory->still > 0 ? memory->loss : loss; /* of the first step of the streak */
    memory->stuck = memory->stuck || memory->still >= state->patience;
    if (memory->still >= state->patience && memory->moved < CONSTANT) {
        report_stuck(run, t, loss, &same_loss);
    }
}

static void judge_losses(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    bool any = false;

    state->narrow = false;
    SONDE__EACH_FINITE (run, t, GRADIENTS) {
        state->narrow = state->narrow ||
                        (t->vitals->count > 1 &&
                         t->vitals->max - t->vitals->min < state->distribution_range);
    }
    SONDE__EACH_SEEN (run, t, LOSSES) {
        state->heard += !any;
        any = true;
        if (sonde__builtin_has_finite(t->vitals)) {
            judge_loss(run, t, t->vitals->mean);
        }
    }
}

/* Takes the mean of the losses of this step. */
static void take_loss(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    double sum = 0.0, losses = 0.0;

    SONDE__EACH_SEEN (run, t, LOSSES) {
        if (sonde__builtin_has_finite(t->vitals)) {
            const bool whole = sonde__builtin_is_whole_loss(run, t->id);

            state->whole = state->whole || whole;
            sum = whole ? t->vitals->mean : sum + t->vitals->mean;
            losses = whole ? 1.0 : losses + 1.0;
        }
    }
    if (losses > 0.0) {
        const double loss = sum / losses;
        const double n = fmin((double)++state->losses, AVERAGED);

        if (state->losses <= AVERAGED) {
            state->first_loss += (loss - state->first_loss) / n;
        }
        state->last_loss += (loss - state->last_loss) / n;
    }
}

/* Reports losses that stood still at first and have not moved since. */
static void judge_stuck(sonde_rule_run *run)
{
    const poor *state = sonde_rule_state(run);
    const double moved = fabs(state->last_loss - state->first_loss);

    SONDE__EACH_OF (run, t, LOSSES) {
        if (((const tensor_memory *)t->memory)->stuck &&
            moved < MOVED * fabs(state->first_loss)) {
            report_stuck(run, t, state->last_loss, SONDE__SURE(ERROR));
        }
    }
}

/* A loss that was the same at first has moved. */
static void withdraw_moved(sonde_rule_run *run)
{
    const double first = ((const poor *)sonde_rule_state(run))->first_loss;

    SONDE__EACH_FINITE (run, t, LOSSES) {
        if (fabs(t->vitals->mean - first) > MOVED * fabs(first)) {
            sonde__rule_withdraw(run, t);
        }
    }
}

/* --- the rule ---------------------------------------------------------------------- */

/* An input of the network that is not a target. */
static bool is_data(const sonde_tensor_info *info, uint32_t id)
{
    return sonde__builtin_is_input(info, id) && sonde_dtype_is_float(info->dtype) &&
           !sonde__builtin_is_target(info);
}

/* What the program may show to be the output of a layer with weights. */
static bool is_layers_output(const sonde_tensor_info *info)
{
    return (info->role == SONDE_ROLE_ACTIVATION || info->role == SONDE_ROLE_OUTPUT) &&
           info->pass != SONDE_PASS_BACKWARD && sonde_dtype_is_float(info->dtype);
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
           : info->role == SONDE_ROLE_GRADIENT                  ? GRADIENTS
           : info->role == SONDE_ROLE_WEIGHT && info->rank >= 2 ? WEIGHTS
           : is_data(info, id)                                  ? DATA
           : is_layers_output(info)                             ? OUTPUTS
                                                                : SONDE_RULE_IGNORE;
}

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    (void)diag;
    ((poor *)sonde_rule_state(run))->loudest = SIZE_MAX;
    return SONDE_OK;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *t = sonde__builtin_at(run, i);

    (void)diag;
    ((tensor_memory *)t->memory)->scores =
        sonde__builtin_looks_like_predictions(sonde_rule_info(run, t->id));
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
static void judge_weights(sonde_rule_run *run)
{
    size_t weights = 0, loud = 0;
    const sonde_rule_tensor *loudest = NULL;
    poor *state = sonde_rule_state(run);
    double most = 0.0;

    SONDE__EACH_FINITE (run, t, WEIGHTS) {
        const double gain = loud_gain(sonde_rule_info(run, t->id), t->vitals);

        weights++;
        loud += gain > 0.0;
        loudest = gain > most ? t : loudest;
        most = fmax(most, gain);
    }
    if (loud > 0 && 2 * loud >= weights) {
        state->loudest = sonde__builtin_index(run, loudest);
        sonde__rule_report(
            run, loudest, &loud_weights, "gain", most, GAIN,
            "Initialize weights with a variance of about 2 / inputs (He) or 1 / inputs "
            "(LeCun). If they were small at first, lower the learning rate.",
            "As seen at the first step, %zu of %zu weights multiply the variance of their "
            "inputs by more than %g, this one by %.3g: the initial weights, or the first "
            "update, are too large.",
            loud, weights, GAIN, most);
    }
}

/* The loss before the first update was sound, and the one after it is not: the weights are
 * too large because of the update. */
static void judge_update(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    bool blown = false, heard = false;

    if (state->loudest == SIZE_MAX || state->losses != 1) {
        return;
    }
    SONDE__EACH_SEEN (run, t, LOSSES) {
        heard = true;
        blown = blown || !sonde__builtin_has_finite(t->vitals) ||
                fabs(t->vitals->mean) > BLOWN * fabs(state->first_loss);
    }
    if (blown) {
        sonde__rule_withdraw(run, sonde__builtin_at(run, state->loudest));
    }
    state->loudest = heard ? SIZE_MAX : state->loudest;
}

/* Reports the layers that die, unless the network learns all the same. */
static void judge_death(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);
    const double fall = state->first_loss - state->last_loss;

    state->dying = false;
    if (state->losses <= AVERAGED || fall < (1.0 - FELL) * fabs(state->first_loss)) {
        judge_layers(run, false);
    }
}

/* Judges the first step of a run. */
static void look_at_first(sonde_rule_run *run)
{
    const sonde_vitals *loss = sonde__builtin_loss_of(run, LOSSES, true);
    sonde__builtin_poor_survey survey;

    if (!sonde__builtin_poor_layers(run, WEIGHTS, &survey)) {
        judge_weights(run);
    } else if (survey.told == 0 && loss != NULL && sonde__builtin_is_finite(loss)) {
        sonde__builtin_poor_start(run, DATA, loss->mean, &survey);
    }
}

static void step(sonde_rule_run *run)
{
    poor *state = sonde_rule_state(run);

    judge_update(run);
    if (!state->looked && sonde_rule_at(run)->mode_step == 0) {
        look_at_first(run);
    }
    state->looked = true;
    if (state->heard < state->steps) {
        judge_losses(run);
    }
    if (state->seen < state->steps && compare_layers(run)) {
        if (++state->seen == FIRST) {
            judge_layers(run, true);
        }
        state->dying = state->seen == state->steps;
    }
    take_loss(run);
    withdraw_moved(run);
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
    const bool early = state->seen > 0 && state->seen < state->steps;

    if (early) {
        judge_layers(run, true);
    }
    if (early || state->dying) {
        judge_death(run);
    }
    if (state->losses < LATE) {
        judge_stuck(run);
    }
}

const sonde_rule sonde__builtin_poor_weight_initialization = {
    SONDE__RULE("PoorWeightInitialization", poor),
    .summary = "the signal explodes or vanishes in the layers of the untrained network",
    .condition =
        "Any of these holds: (1) at the first steps, the variance of activation inputs grows from one layer to the next by more than a factor of `threshold`, to more than 100; "
        "(2) at each of the first `steps` steps, that variance shrinks by more than the square of `threshold`, and the loss does not fall within 40 steps; "
        "(3) at the first step, half of the weights multiply the variance of their inputs by more than 100, and the next loss is not a hundred times the first; "
        "(4) the loss does not change for `patience` steps, and the values of a gradient lie within `distribution_range`. "
        "(5) Instead of (3), where the program of the first step is known: the mean square of a layer's initial weights times its inputs is above 400 and its outputs are five times as large as its inputs; or, in half of the layers, it is above 64 or below 1e-6. Layers whose output is normalized, or goes into a sine, are not judged. Or the root mean square of an embedding is above 30. This is a warning, however training goes. "
        "(6) Else, where the program shows that the only loss is a mean cross-entropy, the first one is above 5 times that of even predictions, and scores are not multiplied by a number. This is a warning, however training goes, unless the last weights are those of an embedding too. "
        "(1) to (3) wait for training: they are notes if training goes well or no loss is observed, except for a growth above 10000. (2) is also a note if there are several losses.",
    .advice = "Initialize weights with a variance of about 2 / inputs (He) or 1 / inputs "
              "(LeCun), or normalize between layers.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = wants,
    .bind = bind,
    .step = step,
    .finish = finish,
};
