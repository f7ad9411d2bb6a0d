/*
 * rule_rounds.c - rules about rounds: training steps and the evaluation that follows them.
 */
#include "rules/builtin/builtin.h"

#include "base/macros.h"

/* --- rounds -------------------------------------------------------------------------- */

/*
 *     train train train | eval eval | train train | eval ...
 *                                   ^ a round ends: its two means are known
 */
typedef struct phases {
    double train, eval, eval_sq; /* sums of this round; of squares */
    int64_t trained, evaluated;
    double train_mean, eval_mean; /* of the round that has ended */
    double eval_error; /* the standard error of eval_mean; 0 if it is of one loss */
    int64_t rounds;
} phases;

/* True if that ends a round. */
static bool phases_end(phases *its)
{
    if (its->trained == 0 || its->evaluated == 0) {
        return false;
    }
    its->train_mean = its->train / (double)its->trained;
    its->eval_mean = its->eval / (double)its->evaluated;
    its->eval_error =
        sqrt(fmax(its->eval_sq / (double)its->evaluated - its->eval_mean * its->eval_mean,
                  0.0) /
             (double)SONDE_MAX(its->evaluated - 1, 1));
    its->rounds++;
    its->train = its->eval = its->eval_sq = 0.0;
    its->trained = its->evaluated = 0;
    return true;
}

/* Takes a loss of the current step. True if a round ended with the step before. */
static bool phases_take(phases *its, const sonde_coordinate *where, double loss)
{
    bool ended = false;

    if (where->mode == SONDE_MODE_TRAIN) {
        ended = its->evaluated > 0 && phases_end(its);
        its->train += loss;
        its->trained++;
    } else if (where->mode == SONDE_MODE_EVAL) {
        its->eval += loss;
        its->eval_sq += loss * loss;
        its->evaluated++;
    }
    return ended;
}

/* Takes the losses of a step, whose memories begin with phases; calls judge for each round
 * that has ended. */
static void take_losses(sonde_rule_run *run,
                        void (*judge)(sonde_rule_run *run, const sonde_rule_tensor *t))
{
    SONDE__EACH_FINITE (run, t, 0) {
        if (phases_take(t->memory, sonde_rule_at(run), t->vitals->mean)) {
            judge(run, t);
        }
    }
}

/* The end of the run. needed: rounds that the rule needs. */
static void end_rounds(sonde_rule_run *run,
                       void (*judge)(sonde_rule_run *run, const sonde_rule_tensor *t),
                       int64_t needed)
{
    int64_t rounds = 0;

    SONDE__EACH (run, t) {
        phases *its = t->memory;

        if (phases_end(its)) {
            judge(run, t);
        }
        rounds = SONDE_MAX(rounds, its->rounds);
    }
    if (rounds == 0) {
        sonde_rule_lacked(run, "no losses of both training and evaluation were recorded");
    } else if (rounds < needed) {
        sonde_rule_lacked(run,
                          "%lld of the %lld evaluations between training that it needs",
                          (long long)rounds, (long long)needed);
    }
}

/* --- Overfit ----------------------------------------------------------------------- */

/*
 * Overfit - evaluation gets worse while training gets better.
 *
 * A round is a sequence of training steps and the evaluation that follows it. Fires when
 * for `patience` rounds in a row
 *     (mean evaluation loss - mean training loss) / mean training loss > ratio_threshold
 * and, unless rising is 0 or the rule judges as smdebug's, the means over CALM rounds show
 *     evaluation above its least so far by that share and by more than SWINGS times the
 *         fluctuation of evaluations (before MANY rounds, when this is hardly known, also
 *         by more than ERRORS standard errors of the difference, from the losses of an
 *         evaluation), and
 *     training below its value at that time by that share.
 * A network that is better on its training data but still improves on the rest is
 * healthy. A single evaluation proves little: small sets and large steps make it
 * fluctuate.
 *
 * Evidence: vital signs of losses, in training and evaluation steps.
 */

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

typedef struct overfit_memory {
    phases phases;                               /* first */
    double train[CALM], eval[CALM], error[CALM]; /* of the last rounds, by number */
    calm now, best; /* best: with the least evaluation loss; round 0: none yet */
    double step;    /* from the previous evaluation to the last */
    double swing;   /* mean distance of turns */
    int64_t bad;
} overfit_memory;

static const sonde_rule_param overfit_params[] = {
    SONDE__REGEX(overfit, tensor_regex, NULL,
                 "regular expressions that select losses (default: the loss tensors)"),
    SONDE__COUNT(overfit, start_step, "0", 0, 1e18, "first global step to judge"),
    SONDE__COUNT(overfit, patience, "1", 1, 1e9,
                 "number of rounds in a row above the threshold"),
    SONDE__REAL(overfit, ratio_threshold, "0.1", 0, 1e9,
                "largest acceptable relative excess of the evaluation loss"),
    SONDE__REAL(
        overfit, rising, "0.05", 0, 1e9,
        "required relative rise of the evaluation loss above its best and fall of the training loss; 0: none"),
    SONDE__SMDEBUG(overfit),
};
static const sonde_rule_need overfit_needs[] = {
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
static void take_swing(overfit_memory *memory, double before, double eval)
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
static void take_round(overfit_memory *memory)
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
static bool is_rising(const overfit *state, const overfit_memory *memory)
{
    const calm *now = &memory->now, *best = &memory->best;

    return best->round > 0 && now->eval > best->eval * (1.0 + state->rising) &&
           now->eval - best->eval > SWINGS * memory->swing &&
           (now->round >= MANY ||
            now->eval - best->eval > ERRORS * hypot(now->error, best->error)) &&
           now->train < best->train * (1.0 - state->rising);
}

static void overfit_judge(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const overfit *state = sonde_rule_state(run);
    overfit_memory *memory = t->memory;
    const double train = memory->phases.train_mean, eval = memory->phases.eval_mean;
    const double ratio = (eval - train) / train;

    take_round(memory);
    const bool rising = state->rising <= 0.0 || is_rising(state, memory);
    if (memory->now.round >= CALM &&
        (memory->best.round == 0 || memory->now.eval < memory->best.eval)) {
        memory->best = memory->now;
    }
    memory->bad =
        train > 0.0 && ratio > state->ratio_threshold && rising ? memory->bad + 1 : 0;
    if (memory->bad < state->patience) {
        return;
    }
    if (state->rising > 0.0) {
        sonde__rule_report(
            run, t, SONDE__SURE(WARNING), "loss_ratio", ratio, state->ratio_threshold,
            NULL,
            "At evaluation %lld the evaluation loss is %.4g and the training loss %.4g; "
            "at evaluation %lld they were about %.4g and %.4g: what the network has "
            "learned since then holds for the training data only.",
            (long long)memory->now.round, eval, train,
            (long long)memory->best.round - CALM / 2, memory->best.eval,
            memory->best.train);
    } else {
        sonde__rule_report(
            run, t, SONDE__SURE(WARNING), "loss_ratio", ratio, state->ratio_threshold,
            NULL,
            "At evaluation %lld the mean evaluation loss is %.4g and the mean training "
            "loss %.4g.",
            (long long)memory->now.round, eval, train);
    }
}

static void overfit_step(sonde_rule_run *run)
{
    const overfit *state = sonde_rule_state(run);

    if (sonde_rule_at(run)->global_step >= state->start_step) {
        take_losses(run, overfit_judge);
    }
}

static void overfit_finish(sonde_rule_run *run)
{
    const overfit *state = sonde_rule_state(run);

    end_rounds(run, overfit_judge, state->rising > 0.0 ? CALM + 1 : state->patience);
}

const sonde_rule sonde__builtin_overfit = {
    SONDE__RULE("Overfit", overfit),
    .summary = "evaluation gets worse while training gets better",
    .condition =
        "The mean evaluation loss exceeds the mean training loss by more than `ratio_threshold` for `patience` rounds. "
        "In addition, the evaluation loss averaged over three rounds is `rising` above its best, by more than it fluctuates from round to round and by three standard errors, while the training loss is lower by as much. "
        "With `smdebug` (implied by `ratio_threshold` or `patience` without `rising`), the first condition suffices.",
    .advice = "Keep the weights of the best evaluation; use more data, augmentation, "
              "dropout or weight decay, or a smaller network.",
    .modes = SONDE__TRAIN | 1U << SONDE_MODE_EVAL,
    .tensor_size = sizeof(overfit_memory),
    .init = init,
    .wants = wants,
    .step = overfit_step,
    .finish = overfit_finish,
};

/* --- Overtraining ------------------------------------------------------------------ */

/*
 * Overtraining - training continues without improvement.
 *
 * A round is a sequence of training steps and the evaluation that follows it. Fires when
 * the mean evaluation loss has not improved by more than delta for patience_validation
 * rounds, or the mean training loss for patience_train rounds while evaluation does not
 * improve either; and these are at least half of all rounds: training that has converged
 * goes on for a while, until its program stops it.
 *
 * Evidence: vital signs of losses, in training and evaluation steps.
 */

typedef struct overtraining {
    int64_t patience_train, patience_validation;
    double delta;
} overtraining;

typedef struct overtraining_memory {
    phases phases; /* first */
    double best_train, best_eval;
    int64_t stale_train, stale_eval; /* rounds without improvement */
} overtraining_memory;

static const sonde_rule_param overtraining_params[] = {
    SONDE__COUNT(overtraining, patience_train, "5", 1, 1e9,
                 "number of rounds without improvement of the training loss"),
    SONDE__COUNT(overtraining, patience_validation, "10", 1, 1e9,
                 "number of rounds without improvement of the evaluation loss"),
    SONDE__REAL(overtraining, delta, "0.01", 0, 1e9,
                "smallest decrease that counts as an improvement"),
};
static const sonde_rule_need overtraining_needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static void improve(double *best, int64_t *stale, double now, double delta, bool first)
{
    if (first || now < *best - delta) {
        *best = now;
        *stale = 0;
    } else {
        (*stale)++;
    }
}

static void overtraining_judge(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const overtraining *state = sonde_rule_state(run);
    overtraining_memory *memory = t->memory;
    const bool first = memory->phases.rounds == 1;

    improve(&memory->best_train, &memory->stale_train, memory->phases.train_mean,
            state->delta, first);
    improve(&memory->best_eval, &memory->stale_eval, memory->phases.eval_mean,
            state->delta, first);
    const bool train = memory->stale_train >= state->patience_train &&
                       memory->stale_eval >= state->patience_train;
    const int64_t stale = train ? memory->stale_train : memory->stale_eval;
    const int64_t patience = train ? state->patience_train : state->patience_validation;
    if (stale >= patience && 2 * stale >= memory->phases.rounds) {
        sonde__rule_report(
            run, t, SONDE__SURE(NOTE), "rounds", (double)stale, (double)patience, NULL,
            "For %lld rounds the %s loss has not improved by %.3g on its best (%.4g).",
            (long long)stale, train ? "training" : "evaluation", state->delta,
            train ? memory->best_train : memory->best_eval);
    }
}

static void overtraining_step(sonde_rule_run *run)
{
    take_losses(run, overtraining_judge);
}

static void overtraining_finish(sonde_rule_run *run)
{
    const overtraining *state = sonde_rule_state(run);

    end_rounds(run, overtraining_judge,
               SONDE_MIN(state->patience_train, state->patience_validation) + 1);
}

const sonde_rule sonde__builtin_overtraining = {
    SONDE__RULE("Overtraining", overtraining),
    .summary = "training continues without improvement",
    .condition =
        "The mean evaluation loss has not improved by more than `delta` for `patience_validation` rounds, or neither loss has for `patience_train` rounds, and these are at least half of all rounds.",
    .advice = "Stop here, or lower the learning rate.",
    .modes = SONDE__TRAIN | 1U << SONDE_MODE_EVAL,
    .tensor_size = sizeof(overtraining_memory),
    .wants = sonde__builtin_wants_role,
    .step = overtraining_step,
    .finish = overtraining_finish,
};
