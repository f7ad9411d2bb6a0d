/*
 * rule_loss_inputs.c - rules about losses with unexpected inputs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/labels.h"
#include "rules/builtin/program_walk.h"
#include "rules/context.h"

#include "base/memory.h"

#include <string.h>

/* --- LossBroadcast ----------------------------------------------------------------- */

/*
 * LossBroadcast - the loss compares every prediction with every target.
 *
 * p is the input of the loss and y the targets, of n > 1 elements each, one of shape (n)
 * and the other of shape (n, 1). p - y then has the shape (n, n), without an error. Fires
 * when, at `patience` looks in a row, the loss is the mean over all n x n pairs of
 *     (p - y)^2, |p - y|, or the smooth L1 loss of p - y (Huber's, with a bound of 1)
 * to within BROADCAST_CLOSE, and not the mean over the n pairs that belong together. A loss that is
 * neither is not judged: it may remove the dimension itself.
 *
 * Such a loss teaches only the mean of the targets. Batches of more than MOST elements are
 * not judged. Evidence: raw values of the loss's input and of inputs named targets or
 * labels; losses.
 */

enum { PREDICTIONS = 0, TARGETS = 1, BROADCAST_LOSSES = 2, KINDS = 3, MOST = 1024 };
#define BROADCAST_CLOSE 1e-3

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

static const sonde_rule_param broadcast_params[] = {
    SONDE__COUNT(broadcast, patience, "2", 1, 1e9,
                 "number of looks in a row at which the loss is the mean over pairs"),
};
static const sonde_rule_need broadcast_needs[] = {
    {"inputs of the loss", SONDE_HOW_RAW, false, SONDE__ACTIVATIONS, SONDE__OFTEN},
    {"targets", SONDE_HOW_RAW, false, SONDE__INPUTS, SONDE__OFTEN},
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static int broadcast_wants(sonde_rule_run *run, const sonde_tensor_info *info,
                           uint32_t id)
{
    const bool fits =
        sonde_dtype_is_float(info->dtype) && info->rank >= 1 && info->rank <= 2;

    (void)run;
    return sonde__builtin_is_loss(info, id)              ? BROADCAST_LOSSES
           : !fits || !sonde__builtin_is_own(info, id)   ? SONDE_RULE_IGNORE
           : sonde__builtin_looks_like_predictions(info) ? PREDICTIONS
           : sonde__builtin_is_input(info, id) && sonde__builtin_is_target(info)
               ? TARGETS
               : SONDE_RULE_IGNORE;
}

static void broadcast_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                              const sonde_observation *observation)
{
    broadcast *state = sonde_rule_state(run);
    values *to = tensor->need == TARGETS ? &state->targets : &state->predictions;
    const sonde_view *view = observation->view;

    to->seen++;
    to->count = 0;
    if (view == NULL || to->seen > 1 || sonde_view_count(view) > MOST ||
        (view->rank != 1 && !(view->rank == 2 && view->shape[1] == 1))) {
        return;
    }
    to->rank = view->rank;
    to->tensor = sonde__builtin_index(run, tensor);
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

static bool broadcast_is_close(double loss, double expected)
{
    return fabs(loss - expected) < BROADCAST_CLOSE * fabs(expected);
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
        if (broadcast_is_close(loss, pairs[kind] / (double)n)) {
            return false;
        }
        is = is || broadcast_is_close(loss, all[kind] / (double)n / (double)n);
    }
    return is;
}

static void broadcast_judge(sonde_rule_run *run, double loss)
{
    broadcast *state = sonde_rule_state(run);
    const size_t n = state->targets.count;
    const bool column = state->predictions.rank == 2;

    state->held = is_over_all_pairs(state, loss) ? state->held + 1 : 0;
    if (state->held >= state->patience) {
        sonde__rule_report(
            run, sonde__builtin_at(run, state->predictions.tensor), SONDE__SURE(ERROR),
            "pairs", (double)n * (double)n, (double)n, NULL,
            "Its shape is (%zu%s) and that of the targets (%zu%s): broadcasting compares "
            "each of %zu predictions with each of %zu targets.",
            n, column ? ", 1" : "", n, column ? "" : ", 1", n, n);
    }
}

static void broadcast_step(sonde_rule_run *run)
{
    broadcast *state = sonde_rule_state(run);
    values *targets = &state->targets, *predictions = &state->predictions;

    if (targets->count > 1 && targets->count == predictions->count &&
        targets->rank != predictions->rank) {
        SONDE__EACH_FINITE (run, t, BROADCAST_LOSSES) {
            if (t->vitals->count == 1) {
                broadcast_judge(run, t->vitals->mean);
                break;
            }
        }
    }
    targets->count = predictions->count = 0;
    targets->seen = predictions->seen = 0;
}

const sonde_rule sonde__builtin_loss_broadcast = {
    SONDE__RULE("LossBroadcast", broadcast),
    .summary = "the loss compares every prediction with every target",
    .condition =
        "At `patience` looks in a row, predictions and targets have the shapes "
        "(n) and (n, 1), and the loss is the mean over all n x n pairs. Where the program of a step is known: a loss, or arithmetic on the way to it, has operands of different numbers of dimensions, and its result has more elements than either.",
    .advice = "Give predictions and targets the same shape, with squeeze or unsqueeze.",
    .modes = SONDE__TRAIN,
    .wants = broadcast_wants,
    .observe = broadcast_observe,
    .step = broadcast_step,
    .program = sonde__builtin_broadcast_program,
};

/* --- SoftmaxMisuse ----------------------------------------------------------------- */

/*
 * SoftmaxMisuse - the loss of a classifier gets probabilities where it expects scores, or
 * scores where it expects log-probabilities.
 *
 * s (N, C) is the input of the loss, y (N) the labels and L the loss. At `patience` steps
 * in a row that have all three, fires when
 *     twice     the rows of s are probabilities (0 ... 1, with a sum of 1), and L is the
 *               cross-entropy of s as scores, mean of log sum exp s[n] - s[n, y]: softmax
 *               is applied twice, and the loss cannot fall below log(1 + (C - 1) / e); or
 *     missing   L is the mean of -s[n, y], and the exponentials of neither the rows nor
 *               the columns of s add up to 1: softmax is not applied, and the loss has no
 *               lower bound; or
 *     batch     L is the same mean, and the exponentials of the columns add up to 1, those
 *               of the rows do not: softmax runs over the samples of the batch. Such a network can
 *               learn, but its scores depend on the other samples: a warning. Where each
 *               sample is a class of its own, as pairs are in contrastive learning, that
 *               is intended.
 * L must equal that number to within MISUSE_CLOSE, so other losses (weighted, smoothed) do not
 * fire.
 *
 * Finds labels and predictions like ClassImbalance. Evidence: raw values of both; losses.
 */

enum { MISUSE_LOSSES = 2 };
#define MISUSE_CLOSE 1e-3

typedef struct misuse {
    const char *labels_regex, *predictions_regex;
    int64_t patience;
    sonde__builtin_labels labels; /* of this step */
    double *scores;               /* (rows, classes), of this step */
    size_t rows, classes, capacity, tensor;
    int64_t twice, missing, batch; /* steps in a row */
} misuse;

static const sonde_rule_param misuse_params[] = {
    SONDE__REGEX(misuse, labels_regex, ".*labels",
                 "regular expressions that select labels"),
    SONDE__REGEX(misuse, predictions_regex, ".*predictions",
                 "regular expressions that select the input of the loss"),
    SONDE__COUNT(misuse, patience, "2", 1, 1e9,
                 "number of steps in a row at which the loss matches a condition"),
};
static const sonde_rule_need misuse_needs[] = {
    {"labels", SONDE_HOW_RAW, false, SONDE__INPUTS, SONDE__OFTEN},
    {"predictions", SONDE_HOW_RAW, false, SONDE__ACTIVATIONS, SONDE__OFTEN},
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static int misuse_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_looks_like_targets(info, id)
                         ? SONDE__LABELS
                         : sonde__builtin_wants_classes(run, info, id);

    return need != SONDE_RULE_IGNORE          ? need
           : sonde__builtin_is_loss(info, id) ? MISUSE_LOSSES
                                              : SONDE_RULE_IGNORE;
}

static void misuse_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                           const sonde_observation *observation)
{
    misuse *state = sonde_rule_state(run);
    const sonde_view *view = observation->view;
    const size_t count = (size_t)sonde_view_count(view);
    const size_t used = state->rows * state->classes;

    if (tensor->need == SONDE__LABELS) {
        sonde__builtin_labels_take(run, &state->labels, view);
        return;
    }
    if (view->rank != 2 || view->shape[1] < 2 ||
        (state->rows > 0 && state->classes != (size_t)view->shape[1])) {
        return;
    }
    if (!sonde__reserve(&state->scores, &state->capacity, used + count,
                        sizeof *state->scores)) {
        sonde_rule_fail(run, "out of memory");
        return;
    }
    state->tensor = sonde__builtin_index(run, tensor);
    state->classes = (size_t)view->shape[1];
    sonde__builtin_reader reader = sonde__builtin_read(view);
    double *next = state->scores + used, chunk[SONDE__CHUNK];
    for (size_t n = 0; (n = sonde__builtin_next(&reader, chunk)) > 0; next += n) {
        memcpy(next, chunk, n * sizeof *next);
    }
    state->rows += (size_t)view->shape[0];
}

/* log sum exp of n numbers that are `stride` apart. */
static double log_sum(const double *s, size_t n, size_t apart)
{
    double most = s[0], sum = 0.0;

    for (size_t i = 1; i < n; i++) {
        most = fmax(most, s[i * apart]);
    }
    for (size_t i = 0; i < n; i++) {
        sum += exp(s[i * apart] - most);
    }
    return most + log(sum);
}

/* Properties of the scores of a step. */
typedef struct properties {
    double nll, cross_entropy; /* means over the rows */
    bool probabilities;
    bool by_row, by_column; /* exponentials add up to 1 */
    bool pairs;             /* sample i is of class i */
} properties;

/* false: a label is out of range. */
static bool look(const misuse *state, properties *out)
{
    const double n = (double)state->rows;

    *out = (properties){
        .probabilities = true, .by_row = true, .by_column = true, .pairs = true};
    for (size_t i = 0; i < state->rows; i++) {
        const double *s = state->scores + i * state->classes;
        const double log_of = log_sum(s, state->classes, 1);
        const int32_t y = state->labels.value[i];
        double sum = 0.0, least = s[0];

        if (y < 0 || (size_t)y >= state->classes) {
            return false;
        }
        for (size_t c = 0; c < state->classes; c++) {
            sum += s[c];
            least = fmin(least, s[c]);
        }
        out->probabilities =
            out->probabilities && least >= 0.0 && fabs(sum - 1.0) < MISUSE_CLOSE;
        out->by_row = out->by_row && fabs(log_of) < MISUSE_CLOSE;
        out->pairs = out->pairs && (size_t)y == i;
        out->nll -= s[y] / n;
        out->cross_entropy += (log_of - s[y]) / n;
    }
    for (size_t c = 0; c < state->classes && out->by_column; c++) {
        out->by_column =
            fabs(log_sum(state->scores + c, state->rows, state->classes)) < MISUSE_CLOSE;
    }
    return true;
}

static bool misuse_is_close(double loss, double expected)
{
    return fabs(loss - expected) < MISUSE_CLOSE * (1.0 + fabs(loss));
}

static void misuse_judge(sonde_rule_run *run, double loss, const properties *is)
{
    misuse *state = sonde_rule_state(run);
    const sonde_rule_tensor *t = sonde__builtin_at(run, state->tensor);
    const bool entropy = misuse_is_close(loss, is->cross_entropy),
               nll = misuse_is_close(loss, is->nll);
    const bool normalized = is->by_row || is->by_column;

    state->twice = is->probabilities && entropy && !nll ? state->twice + 1 : 0;
    state->missing = !normalized && nll && !entropy ? state->missing + 1 : 0;
    state->batch =
        is->by_column && !is->by_row && nll && !is->pairs ? state->batch + 1 : 0;
    if (state->batch >= state->patience) {
        sonde__rule_report(run, t, SONDE__SURE(WARNING), "loss", loss, is->cross_entropy,
                           "Apply softmax along the dimension of the classes.",
                           "The exponentials of each column add up to 1, those of the "
                           "rows do not: softmax runs over the %zu samples of the batch, "
                           "so the scores of a sample depend on the others.",
                           state->rows);
    }
    if (state->twice >= state->patience) {
        const double floor = log1p((double)(state->classes - 1) * exp(-1.0));

        sonde__rule_report(
            run, t, SONDE__SURE(ERROR), "loss_floor", loss, floor,
            "Pass the scores themselves to the cross-entropy.",
            "These are probabilities already, and the loss applies softmax "
            "again: it cannot fall below %.4g.",
            floor);
    }
    if (state->missing >= state->patience) {
        sonde__rule_report(run, t, SONDE__SURE(ERROR), "loss", loss, is->cross_entropy,
                           "Apply log-softmax first, or use the cross-entropy.",
                           "The loss treats them as log-probabilities, but their "
                           "exponentials do not add up to 1: the loss is %.4g, the "
                           "cross-entropy would be %.4g.",
                           loss, is->cross_entropy);
    }
}

static void misuse_step(sonde_rule_run *run)
{
    misuse *state = sonde_rule_state(run);
    properties is;

    if (state->rows > 1 && state->rows == state->labels.count &&
        !sonde__rule_found_by_program(run)) { /* else the values say the same again */
        SONDE__EACH_FINITE (run, t, MISUSE_LOSSES) {
            if (look(state, &is)) {
                misuse_judge(run, t->vitals->mean, &is);
            }
            break;
        }
    }
    state->rows = state->labels.count = 0;
}

static void destroy(sonde_rule_run *run)
{
    misuse *state = sonde_rule_state(run);

    sonde__builtin_labels_free(&state->labels);
    sonde__free(state->scores);
}

const sonde_rule sonde__builtin_softmax_misuse = {
    SONDE__RULE("SoftmaxMisuse", misuse),
    .summary = "softmax is applied twice, not at all, or over the batch",
    .condition =
        "One of these holds at `patience` steps in a row: (1) the loss is the cross-entropy of values that already are probabilities; "
        "(2) the loss is the mean of -s[label], and the exponentials of the values s do not add up to 1; "
        "(3) the loss is that mean, and the exponentials add up to 1 over the samples of the batch. (3) does not apply if sample i is of class i. "
        "Where the program of a step is known, its operations tell at once: (1) the loss gets what softmax or a sigmoid made; (2) nll_loss or kl_div gets what they made, or the result of a layer; (3) softmax runs along another dimension than that of the classes, or than the one that attention sums over (a warning), or over a single value; (4) logits of a distribution are what softmax made; (5) a mask hides the tokens and leaves the padding of an embedding.",
    .advice = "Pass the loss what it expects: scores or log-probabilities.",
    .modes = SONDE__TRAIN,
    .wants = misuse_wants,
    .observe = misuse_observe,
    .step = misuse_step,
    .destroy = destroy,
    .program = sonde__builtin_softmax_program,
};
