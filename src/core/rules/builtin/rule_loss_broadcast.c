/*
 * LossBroadcast - the loss compares every prediction with every target.
 *
 * p is the input of the loss and y the targets, of n > 1 elements each, one of shape (n)
 * and the other of shape (n, 1). p - y then has the shape (n, n), without an error. Fires
 * when, at `patience` looks in a row, the loss is the mean over all n x n pairs of
 *     (p - y)^2, |p - y|, or the smooth L1 loss of p - y (Huber's, with a bound of 1)
 * to within CLOSE, and not the mean over the n pairs that belong together. A loss that is
 * neither is not judged: it may remove the dimension itself.
 *
 * Such a loss teaches the mean of the targets and nothing else. Judges batches of at most
 * MOST elements. Evidence: raw values of the loss's input and of inputs whose names say
 * that they are targets or labels; losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/labels.h"
#include "base/point.h"

#include <math.h>
#include <string.h>

enum { PREDICTIONS = 0, TARGETS = 1, LOSSES = 2, KINDS = 3, MOST = 1024 };
#define CLOSE 1e-3

/* The values of a tensor at this step. */
typedef struct values {
    double value[MOST];
    size_t count, tensor;
    int rank, seen; /* seen: times at this step */
} values;

typedef struct broadcast {
    int64_t patience, held; /* looks in a row */
    values predictions, targets;
} broadcast;

static const sonde_rule_param params[] = {
    SONDE__COUNT(broadcast, patience, "2", 1, 1e9, "looks in a row"),
};
static const sonde_rule_need needs[] = {
    {"inputs of the loss", SONDE_HOW_RAW, false, SONDE__ACTIVATIONS, SONDE__OFTEN},
    {"targets", SONDE_HOW_RAW, false, SONDE__INPUTS, SONDE__OFTEN},
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    if (info->role == SONDE_ROLE_LOSS) {
        return LOSSES;
    }
    if (!sonde_dtype_is_float(info->dtype) || info->rank < 1 || info->rank > 2) {
        return SONDE_RULE_IGNORE;
    }
    return sonde__builtin_looks_like_predictions(info) ? PREDICTIONS
           : info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE &&
                   (sonde__strcasestr(info->name, "target") != NULL ||
                    sonde__strcasestr(info->name, "label") != NULL)
               ? TARGETS
               : SONDE_RULE_IGNORE;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    broadcast *state = sonde_rule_state(run);
    values *to = tensor->need == TARGETS ? &state->targets : &state->predictions;
    const sonde_view *view = seen->view;
    size_t count = 0;

    to->seen++;
    to->count = 0;
    if (view == NULL || to->seen > 1 || sonde_view_count(view) > MOST ||
        (view->rank != 1 && !(view->rank == 2 && view->shape[1] == 1))) {
        return;
    }
    to->rank = view->rank;
    to->tensor = (size_t)(tensor - sonde_rule_tensors(run, &count));
    to->count = sonde__builtin_sample(view, MOST, to->value);
}

/* Adds the three losses of a difference. */
static void add(double sums[KINDS], double difference)
{
    const double size = fabs(difference);

    sums[0] += difference * difference;
    sums[1] += size;
    sums[2] += size < 1.0 ? 0.5 * difference * difference : size - 0.5;
}

static bool is_close(double loss, double expected)
{
    return fabs(loss - expected) < CLOSE * fabs(expected);
}

/* Whether the loss is a mean over all pairs, and not over those that belong together. */
static bool is_over_all_pairs(const broadcast *state, double loss)
{
    const size_t n = state->targets.count;
    double pairs[KINDS] = {0.0}, all[KINDS] = {0.0};
    bool is = false;

    for (size_t i = 0; i < n; i++) {
        add(pairs, state->predictions.value[i] - state->targets.value[i]);
        for (size_t k = 0; k < n; k++) {
            add(all, state->predictions.value[i] - state->targets.value[k]);
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (is_close(loss, pairs[kind] / (double)n)) {
            return false;
        }
        is = is || is_close(loss, all[kind] / (double)n / (double)n);
    }
    return is;
}

static void judge(sonde_rule_run *run, double loss)
{
    broadcast *state = sonde_rule_state(run);
    const size_t n = state->targets.count;

    state->held = is_over_all_pairs(state, loss) ? state->held + 1 : 0;
    if (state->held >= state->patience &&
        sonde_rule_found(run, state->predictions.tensor, SONDE_SEVERITY_ERROR, "pairs",
                         (double)n * (double)n, (double)n)) {
        const int rank = state->predictions.rank;

        sonde_rule_say(
            run, NULL,
            "Its shape is (%zu%s) and that of the targets (%zu%s): broadcasting "
            "compares each of %zu predictions with each of %zu targets.",
            n, rank == 2 ? ", 1" : "", n, rank == 2 ? "" : ", 1", n, n);
    }
}

static void step(sonde_rule_run *run)
{
    broadcast *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const bool both = state->targets.count > 1 &&
                      state->targets.count == state->predictions.count &&
                      state->targets.rank != state->predictions.rank;

    for (size_t i = 0; i < count && both; i++) {
        const sonde_vitals *v = tensors[i].need == LOSSES ? tensors[i].vitals : NULL;

        if (v != NULL && v->count == 1 && sonde__builtin_bad(v) == 0) {
            judge(run, v->mean);
            break;
        }
    }
    state->targets.count = state->predictions.count = 0;
    state->targets.seen = state->predictions.seen = 0;
}

const sonde_rule sonde__builtin_loss_broadcast = {
    SONDE__RULE("LossBroadcast", broadcast),
    .summary = "the loss compares every prediction with every target",
    .condition = "At `patience` looks in a row, predictions and targets have the shapes "
                 "(n) and (n, 1), and the loss is the mean over all n x n pairs.",
    .advice = "Give predictions and targets the same shape, with squeeze or unsqueeze.",
    .modes = SONDE__TRAIN,
    .wants = wants,
    .observe = observe,
    .step = step,
};
