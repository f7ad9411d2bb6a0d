/*
 * WeightJump - most weights jump in one step.
 *
 * d is |w - w'|2 of a weight from one step to the next, and D the largest d before, over
 * all pairs of steps that were observed. A weight is judged after `least` steps at which it moved. Fires when the
 * median of d / D over the judged weights is above `factor`, and names the weight that
 * jumped most. Loading weights of another time or run causes this, and so does a sudden
 * rise of the learning rate. A schedule that warms up or restarts does not come near: it
 * has moved the weights as far before. If most of d comes from elements that fall to near
 * 0, the weight may be pruned: its d is that of the other elements, which hardly move.
 *
 * If losses are seen, the mean of the next WAIT decides: the finding is an error if it is
 * WORSE above that of the losses before, or not finite, else a note (a rate that was low on
 * purpose, an average of weights).
 *
 * An old copy that is put back once moves the weights less than that, and seldom at a step
 * at which raw values are seen: weight_returns.c recognizes it by the vital signs of a few
 * small parameters at every step. It is an error if the loss is WORSE, nothing if it is as
 * much better (the best weights were restored), else a warning.
 *
 * Evidence: raw weights of consecutive steps, SAMPLE elements of each, evenly spread; vital
 * signs of a few biases and scales; losses.
 */
#include "rules/builtin/weight_returns.h"
#include "rules/context.h"

#include "base/macros.h"

enum {
    WEIGHTS = 0,
    LOSSES = 1,
    FEW = 2,
    SAMPLE = 256,
    MOST_WEIGHTS = 256,
    WAIT = 5,
    BEFORE = 10
};
#define WORSE 0.1
#define PRUNED 0.7 /* of the square of d */
#define NEAR 0.2   /* of an element */

typedef struct weight_jump {
    double factor;
    int64_t least;
    sonde__builtin_recent losses;
    size_t farthest; /* the weight that jumped most, and by how much */
    double most, median;
    double before, after; /* losses: mean before; sum after */
    int64_t waited;       /* losses after the jump; -1: there was none */
    sonde_coordinate at;  /* of the jump */
    int64_t old;          /* the step to which it returned; -1: to none */
    sonde__builtin_returns returns;
} weight_jump;

typedef struct tensor_memory {
    size_t count;
    int64_t last, moves; /* steps at which it moved */
    bool seen;           /* at this step and at the one before */
    double now, largest; /* d */
    float before[SAMPLE];
} tensor_memory;

static const sonde_rule_param weight_jump_params[] = {
    SONDE__REAL(weight_jump, factor, "10", 1, 1e300,
                "largest acceptable multiple of a weight's largest earlier step"),
    SONDE__COUNT(weight_jump, least, "10", 1, 1e9,
                 "number of steps of a weight before it is judged"),
};
static const sonde_rule_need weight_jump_needs[] = {
    {"weights", SONDE_HOW_RAW, false, SONDE__WEIGHTS, SONDE__IN_PAIRS},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP},
    {"small parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__EACH_STEP}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    (void)diag;
    ((weight_jump *)sonde_rule_state(run))->waited = -1;
    return SONDE_OK;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    weight_jump *state = sonde_rule_state(run);
    const bool parameter =
        info->role == SONDE_ROLE_WEIGHT || info->role == SONDE_ROLE_BIAS;

    if (parameter && info->rank == 1 && sonde__builtin_is_own(info, id)) {
        return sonde__builtin_returns_wants(&state->returns, info) ? FEW
                                                                   : SONDE_RULE_IGNORE;
    }
    const int need = sonde__builtin_wants_role(run, info, id);

    return (need == WEIGHTS && info->rank < 2) || need == FEW ? SONDE_RULE_IGNORE : need;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    tensor_memory *memory = tensor->memory;
    double values[SAMPLE], change = 0.0, pruned = 0.0;
    const size_t count = sonde__builtin_sample_first(observation, SAMPLE, values);

    (void)run;
    if (count == 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const double d = values[i] - (double)memory->before[i];

        change += d * d;
        pruned += fabs(values[i]) < NEAR * fabs((double)memory->before[i]) ? d * d : 0.0;
        memory->before[i] = (float)values[i];
    }
    change = pruned > PRUNED * change ? fmax(change - pruned, 0.0) : change;
    memory->now = sqrt(change);
    memory->seen = memory->last > 0 && observation->at.mode_step == memory->last &&
                   count == memory->count && isfinite(memory->now);
    memory->count = count;
    memory->last = observation->at.mode_step + 1;
}

/* Reports that weights are those of an earlier step again. better: the loss is, too. */
static void report_return(sonde_rule_run *run, bool worse, bool better)
{
    const weight_jump *state = sonde_rule_state(run);
    const sonde_rule_tensor *t = sonde__builtin_at(run, state->farthest);

    if (!better) {
        sonde__rule_report(
            run, t, worse ? SONDE__SURE(ERROR) : SONDE__SURE(WARNING), "step",
            state->most, SONDE__RETURNS_FAR,
            "Check what loads or copies weights while the network is trained.",
            "In one step, it and other parameters went back to their values of about "
            "%lld steps before: the step was %.3g times their largest one so far, and "
            "what was learned since is lost.",
            (long long)(state->at.mode_step - state->old), state->most);
        sonde__rule_date(run, t, &state->at);
    }
}

/* Ends the wait after a jump. worse: that is known. */
static void report(sonde_rule_run *run, bool worse)
{
    weight_jump *state = sonde_rule_state(run);
    const double after = state->after / (double)SONDE_MAX(state->waited, 1);
    const double margin = WORSE * fabs(state->before);
    const bool good = !worse && state->waited > 0 && after <= state->before + margin;

    if (state->old >= 0) {
        report_return(run, !good, good && after < state->before - margin);
    } else {
        sonde__rule_report(
            run, sonde__builtin_at(run, state->farthest),
            good ? SONDE__SURE(NOTE) : SONDE__SURE(ERROR), "step", state->most,
            state->factor, NULL,
            "Most weights moved in one step by %.3g times the largest step "
            "that was observed of them before; this one by %.3g times%s.",
            state->median, state->most, good ? ". The loss is as good as before" : "");
        sonde__rule_date(run, sonde__builtin_at(run, state->farthest), &state->at);
    }
    state->waited = -1;
}

/* Takes the loss of the step: of the whole, else the first one. */
static void take_loss(sonde_rule_run *run)
{
    weight_jump *state = sonde_rule_state(run);
    const sonde_vitals *loss = sonde__builtin_loss_of(run, LOSSES, false);

    if (loss == NULL) {
        return;
    }
    const bool bad = sonde__builtin_bad(loss) > 0;
    if (state->waited >= 0) {
        state->after += bad ? 0.0 : loss->mean;
        state->waited++;
        if (bad || state->waited >= WAIT) {
            report(run, bad);
        }
    }
    if (!bad) {
        sonde__builtin_recent_take(&state->losses, loss->mean);
    }
}

static void finish(sonde_rule_run *run)
{
    if (((weight_jump *)sonde_rule_state(run))->waited >= 0) {
        report(run, false);
    }
}

/* Begins the wait after a jump, to the values of step `old` (-1: to others). Without losses
 * it ends at once. */
static void take_jump(sonde_rule_run *run, size_t farthest, double most, double median,
                      int64_t old)
{
    weight_jump *state = sonde_rule_state(run);

    if (state->waited >= 0) {
        return;
    }
    state->farthest = farthest;
    state->most = most;
    state->median = median;
    state->old = old;
    state->before = sonde__builtin_recent_mean(&state->losses, BEFORE);
    state->after = 0.0;
    state->waited = 0;
    state->at = *sonde_rule_at(run);
    if (isnan(state->before)) {
        report(run, true);
    }
}

/* Judges the small parameters, which are seen at every step. */
static void judge_returns(sonde_rule_run *run)
{
    weight_jump *state = sonde_rule_state(run);
    size_t farthest = 0;
    double most = 0.0;
    const int64_t old =
        sonde__builtin_returns_take(run, &state->returns, FEW, &farthest, &most);

    if (old >= 0) {
        take_jump(run, farthest, most, most, old);
    }
}

static void step(sonde_rule_run *run)
{
    const weight_jump *state = sonde_rule_state(run);
    size_t judged = 0, farthest = 0;
    double ratios[MOST_WEIGHTS], most = 0.0;

    take_loss(run);
    judge_returns(run);
    SONDE__EACH_OF (run, t, WEIGHTS) {
        tensor_memory *memory = t->memory;

        if (!memory->seen) {
            continue;
        }
        memory->seen = false;
        if (memory->moves >= state->least && judged < MOST_WEIGHTS) {
            const double ratio = memory->now / memory->largest;

            farthest = ratio > most ? sonde__builtin_index(run, t) : farthest;
            most = fmax(most, ratio);
            ratios[judged++] = ratio;
        }
        memory->moves += memory->now > 0.0;
        memory->largest = fmax(memory->largest, memory->now);
    }
    sonde__builtin_sort(ratios, judged);
    if (judged > 0 && ratios[judged / 2] > state->factor) {
        take_jump(run, farthest, most, ratios[judged / 2], -1);
    }
}

const sonde_rule sonde__builtin_weight_jump = {
    SONDE__RULE("WeightJump", weight_jump),
    .summary = "most weights jump in one step",
    .condition =
        "Most weights move in one step by more than `factor` times their largest observed step before. The finding is a note if the loss is as good afterwards. Or a few small parameters return in one step to the values that they had at least 8 steps before (not to the first ones): an error if the loss is worse afterwards, a warning if it is as good.",
    .advice = "Check whether weights of another checkpoint or run were loaded; else "
              "lower the learning rate.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .init = init,
    .observe = observe,
    .step = step,
    .finish = finish,
};
