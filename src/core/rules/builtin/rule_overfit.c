/*
 * Overfit - evaluation gets worse while training gets better.
 *
 * A round is a sequence of training steps and the evaluation that follows it. Fires when
 * for `patience` rounds in a row
 *     (mean evaluation loss - mean training loss) / mean training loss > ratio_threshold
 * and, unless rising is 0 or the rule judges as smdebug's, of the means of CALM rounds
 *     that of evaluation is above its least so far by that share, by more than SWINGS
 *         times the fluctuation of evaluations (before MANY rounds, when that is hardly
 *         known, also by more than ERRORS standard errors of the difference, by the
 *         losses of an evaluation), and
 *     that of training is below its value then by that share.
 * A network that is better on its training data but still improves on the rest is
 * healthy. A single evaluation proves little: small sets and large steps make it
 * fluctuate.
 *
 * Evidence: vital signs of losses, in training and evaluation steps.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/series.h"

#include "base/macros.h"

#include <math.h>

typedef struct overfit {
    const char *tensor_regex;
    int64_t start_step, patience;
    double ratio_threshold, rising;
    bool smdebug;
} overfit;

enum { CALM = 3, REMEMBERED = 16 };
/* Evaluations that fluctuate at random with a standard deviation of s turn back by 0.57 s
 * on average, and means of three of them lie 0.82 s apart: four turns are nearly three
 * standard deviations. */
#define SWINGS 4.0
#define ERRORS 3.0
enum { MANY = 8 };

/* Means over CALM rounds, the last of which is `round`. */
typedef struct calm {
    double train, eval, error; /* the last is the standard error of eval */
    int64_t round;
} calm;

typedef struct tensor_memory {
    sonde__builtin_phases phases;
    double train[CALM], eval[CALM], error[CALM]; /* of the last rounds, by number */
    calm now, best; /* best: with the least evaluation loss; round 0: none yet */
    double step;    /* from the previous evaluation to the last */
    double swing;   /* mean distance of turns */
    int64_t bad;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REGEX(overfit, tensor_regex, NULL,
                 "regular expressions that select losses (default: the loss tensors)"),
    SONDE__COUNT(overfit, start_step, "0", 0, 1e18, "first global step to judge"),
    SONDE__COUNT(overfit, patience, "1", 1, 1e9, "rounds in a row"),
    SONDE__REAL(overfit, ratio_threshold, "0.1", 0, 1e9,
                "largest acceptable relative excess of the evaluation loss"),
    SONDE__REAL(overfit, rising, "0.05", 0, 1e9,
                "relative rise of the evaluation loss above its best, and fall of the "
                "training loss, that is needed; 0: none"),
    SONDE__SMDEBUG(overfit),
};
static const sonde_rule_need needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    overfit *state = sonde_rule_state(run);

    (void)diag;
    if (sonde__builtin_as_smdebug(run, "ratio_threshold,patience", "rising")) {
        state->rising = 0.0;
    }
    return SONDE_OK;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    return sonde__builtin_wants_chosen(run, id, sonde__builtin_is_loss(info, id));
}

/* The shorter one of two consecutive steps in opposite directions is a swing. */
static void take_swing(tensor_memory *memory, double before, double eval)
{
    const double step = eval - before, last = memory->step;
    const double swing = step * last < 0.0 ? fmin(fabs(step), fabs(last)) : 0.0;
    const double weight = 1.0 / (double)SONDE_MIN(memory->phases.rounds - 2, REMEMBERED);

    memory->step = step;
    if (memory->phases.rounds > 2) {
        memory->swing += weight * (swing - memory->swing);
    }
}

/* Adds the round that has ended to the means. */
static void take_round(tensor_memory *memory)
{
    const int64_t round = memory->phases.rounds;

    if (round > 1) {
        take_swing(memory, memory->eval[(round - 2) % CALM], memory->phases.eval_mean);
    }
    memory->train[(round - 1) % CALM] = memory->phases.train_mean;
    memory->eval[(round - 1) % CALM] = memory->phases.eval_mean;
    memory->error[(round - 1) % CALM] = memory->phases.eval_error;
    memory->now = (calm){.round = round};
    for (int i = 0; i < CALM; i++) {
        memory->now.train += memory->train[i] / CALM;
        memory->now.eval += memory->eval[i] / CALM;
        memory->now.error += memory->error[i] * memory->error[i] / (CALM * CALM);
    }
    memory->now.error = sqrt(memory->now.error);
}

/* True if evaluation is worse than its best, and training better than it was then. */
static bool is_rising(const overfit *state, const tensor_memory *memory)
{
    const calm *now = &memory->now, *best = &memory->best;

    return best->round > 0 && now->eval > best->eval * (1.0 + state->rising) &&
           now->eval - best->eval > SWINGS * memory->swing &&
           (now->round >= MANY ||
            now->eval - best->eval > ERRORS * hypot(now->error, best->error)) &&
           now->train < best->train * (1.0 - state->rising);
}

static void judge(sonde_rule_run *run, size_t i, tensor_memory *memory)
{
    const overfit *state = sonde_rule_state(run);
    const double train = memory->phases.train_mean, eval = memory->phases.eval_mean;
    const double ratio = (eval - train) / train;
    bool rising = state->rising <= 0.0;

    take_round(memory);
    rising = rising || is_rising(state, memory);
    if (memory->now.round >= CALM &&
        (memory->best.round == 0 || memory->now.eval < memory->best.eval)) {
        memory->best = memory->now;
    }
    memory->bad =
        train > 0.0 && ratio > state->ratio_threshold && rising ? memory->bad + 1 : 0;
    if (memory->bad < state->patience ||
        !sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "loss_ratio", ratio,
                          state->ratio_threshold)) {
        return;
    }
    if (state->rising > 0.0) {
        sonde_rule_say(
            run, NULL,
            "At evaluation %lld the evaluation loss is %.4g and the training loss %.4g; "
            "at evaluation %lld they were about %.4g and %.4g: what the network has "
            "learnt since then holds for the training data only.",
            (long long)memory->now.round, eval, train,
            (long long)memory->best.round - CALM / 2, memory->best.eval,
            memory->best.train);
    } else {
        sonde_rule_say(run, NULL,
                       "At evaluation %lld the mean evaluation loss is %.4g and the mean "
                       "training loss %.4g.",
                       (long long)memory->now.round, eval, train);
    }
}

static void step(sonde_rule_run *run)
{
    const overfit *state = sonde_rule_state(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count && at->global_step >= state->start_step; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;

        if (v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0 &&
            sonde__builtin_phases_take(&memory->phases, at, v->mean)) {
            judge(run, i, memory);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    const overfit *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    int64_t rounds = 0;

    SONDE__EACH (run, i) {
        tensor_memory *memory = tensors[i].memory;

        if (sonde__builtin_phases_end(&memory->phases)) {
            judge(run, i, memory);
        }
        rounds = SONDE_MAX(rounds, memory->phases.rounds);
    }
    sonde__builtin_phases_lacked(run, rounds,
                                 state->rising > 0.0 ? CALM + 1 : state->patience);
}

const sonde_rule sonde__builtin_overfit = {
    SONDE__RULE("Overfit", overfit),
    .summary = "evaluation gets worse while training gets better",
    .condition =
        "For `patience` rounds, the mean evaluation loss exceeds the mean "
        "training loss by more than `ratio_threshold`; and averaged over three "
        "rounds it is `rising` above its best, by more than it fluctuates from "
        "round to round and by three standard errors, while the training loss is lower by as much. With `smdebug`, which "
        "`ratio_threshold` or `patience` without `rising` imply: the first "
        "condition alone.",
    .advice = "Keep the weights of the best evaluation; use more data, augmentation, "
              "dropout or weight decay, or a smaller network.",
    .modes = SONDE__TRAIN | 1U << SONDE_MODE_EVAL,
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = wants,
    .step = step,
    .finish = finish,
};
