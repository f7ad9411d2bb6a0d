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
 * L must equal that number to within CLOSE, so other losses (weighted, smoothed) do not
 * fire.
 *
 * Finds labels and predictions like ClassImbalance. Evidence: raw values of both; losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/labels.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { LOSSES = 2 };
#define CLOSE 1e-3

typedef struct misuse {
    const char *labels_regex, *predictions_regex;
    int64_t patience;
    sonde__builtin_labels labels; /* of this step */
    double *scores;               /* (rows, classes), of this step */
    size_t rows, classes, capacity, tensor;
    int64_t twice, missing, batch; /* steps in a row */
} misuse;

static const sonde_rule_param params[] = {
    SONDE__REGEX(misuse, labels_regex, ".*labels",
                 "regular expressions that select labels"),
    SONDE__REGEX(misuse, predictions_regex, ".*predictions",
                 "regular expressions that select the input of the loss"),
    SONDE__COUNT(misuse, patience, "2", 1, 1e9, "steps in a row"),
};
static const sonde_rule_need needs[] = {
    {"labels", SONDE_HOW_RAW, false, SONDE__INPUTS, SONDE__OFTEN},
    {"predictions", SONDE_HOW_RAW, false, SONDE__ACTIVATIONS, SONDE__OFTEN},
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_looks_like_targets(info, id)
                         ? SONDE__LABELS
                         : sonde__builtin_wants_classes(run, info, id);

    return need != SONDE_RULE_IGNORE          ? need
           : sonde__builtin_is_loss(info, id) ? LOSSES
                                              : SONDE_RULE_IGNORE;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    misuse *state = sonde_rule_state(run);
    const sonde_view *view = seen->view;
    const size_t count = (size_t)sonde_view_count(view);
    sonde__builtin_reader reader;
    double *next = NULL, chunk[SONDE__CHUNK];
    size_t tensors = 0;

    if (tensor->need == SONDE__LABELS) {
        if (!sonde__builtin_labels_take(&state->labels, view)) {
            sonde_rule_fail(run, "out of memory");
        }
        return;
    }
    if (view->rank != 2 || view->shape[1] < 2 ||
        (state->rows > 0 && state->classes != (size_t)view->shape[1])) {
        return;
    }
    if (!sonde__reserve(&state->scores, &state->capacity,
                        state->rows * state->classes + count, sizeof *state->scores)) {
        sonde_rule_fail(run, "out of memory");
        return;
    }
    state->tensor = (size_t)(tensor - sonde_rule_tensors(run, &tensors));
    state->classes = (size_t)view->shape[1];
    next = state->scores + state->rows * state->classes;
    sonde__builtin_reader_init(&reader, view);
    for (size_t n = sonde__builtin_reader_take(&reader, chunk); n > 0;
         n = sonde__builtin_reader_take(&reader, chunk)) {
        memcpy(next, chunk, n * sizeof *next);
        next += n;
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
            out->probabilities && least >= 0.0 && fabs(sum - 1.0) < CLOSE;
        out->by_row = out->by_row && fabs(log_of) < CLOSE;
        out->pairs = out->pairs && (size_t)y == i;
        out->nll -= s[y] / n;
        out->cross_entropy += (log_of - s[y]) / n;
    }
    for (size_t c = 0; c < state->classes && out->by_column; c++) {
        out->by_column =
            fabs(log_sum(state->scores + c, state->rows, state->classes)) < CLOSE;
    }
    return true;
}

static bool is_close(double loss, double expected)
{
    return fabs(loss - expected) < CLOSE * (1.0 + fabs(loss));
}

static void report_batch(sonde_rule_run *run, double loss, double expected)
{
    const misuse *state = sonde_rule_state(run);

    if (sonde_rule_found(run, state->tensor, SONDE_SEVERITY_WARNING, "loss", loss,
                         expected)) {
        sonde_rule_say(run, "Apply softmax along the dimension of the classes.",
                       "The exponentials of each column add up to 1, those of the rows "
                       "do not: softmax runs over the %zu samples of the batch, so the "
                       "scores of a sample depend on the others.",
                       state->rows);
    }
}

static void judge(sonde_rule_run *run, double loss, const properties *is)
{
    misuse *state = sonde_rule_state(run);
    const bool entropy = is_close(loss, is->cross_entropy), nll = is_close(loss, is->nll);
    const bool normalised = is->by_row || is->by_column;

    state->twice = is->probabilities && entropy && !nll ? state->twice + 1 : 0;
    state->missing = !normalised && nll && !entropy ? state->missing + 1 : 0;
    state->batch =
        is->by_column && !is->by_row && nll && !is->pairs ? state->batch + 1 : 0;
    if (state->batch >= state->patience) {
        report_batch(run, loss, is->cross_entropy);
    }
    if (state->twice >= state->patience &&
        sonde_rule_found(run, state->tensor, SONDE_SEVERITY_ERROR, "loss_floor", loss,
                         log1p((double)(state->classes - 1) * exp(-1.0)))) {
        sonde_rule_say(run, "Pass the scores themselves to the cross-entropy.",
                       "These are probabilities already, and the loss applies softmax "
                       "again: it cannot fall below %.4g.",
                       log1p((double)(state->classes - 1) * exp(-1.0)));
    }
    if (state->missing >= state->patience &&
        sonde_rule_found(run, state->tensor, SONDE_SEVERITY_ERROR, "loss", loss,
                         is->cross_entropy)) {
        sonde_rule_say(
            run, "Apply log-softmax first, or use the cross-entropy.",
            "The loss treats them as log-probabilities, but their exponentials do not "
            "add up to 1: the loss is %.4g, the cross-entropy would be %.4g.",
            loss, is->cross_entropy);
    }
}

static void step(sonde_rule_run *run)
{
    misuse *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    properties is;

    for (size_t i = 0; i < count && state->rows > 1 && state->rows == state->labels.count;
         i++) {
        const sonde_vitals *v = tensors[i].need == LOSSES ? tensors[i].vitals : NULL;

        if (v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0) {
            if (look(state, &is)) {
                judge(run, v->mean, &is);
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
        "At `patience` steps in a row, the loss is the cross-entropy of values "
        "that are probabilities already, or the mean of -s[label] of values "
        "whose exponentials do not add up to 1, or do so over the samples of the "
        "batch, unless sample i is of class i.",
    .advice = "Pass the loss what it expects: scores or log-probabilities.",
    .modes = SONDE__TRAIN,
    .wants = wants,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
