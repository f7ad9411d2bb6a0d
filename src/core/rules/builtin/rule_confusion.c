/*
 * Confusion - classes are confused with each other.
 *
 * c[i][j] counts the samples of class j that are predicted as class i, over all steps of
 * evaluation, or over all steps of a program without modes. At the end of the run, fires
 * when
 *     c[i][i] / sum_j c[j][j] < min_diag / classes    for a class i, or
 *     c[j][i] / sum_j c[j][i] > max_off_diag          for classes i and j.
 *
 * Finds labels and predictions like ClassImbalance. Opt-in, since only the user knows
 * which quality is sufficient. Evidence: raw values.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/labels.h"

enum { MOST = 128 };

typedef struct confusion {
    const char *labels, *predictions, *labels_collection, *predictions_collection;
    double min_diag, max_off_diag;
    int64_t category_no;
    sonde__builtin_labels truth, guesses; /* of this step */
    int64_t taken[MOST][MOST];            /* [predicted class][class] */
    int64_t seen;
    int classes;
} confusion;

static const sonde_rule_param confusion_params[] = {
    SONDE__REGEX(confusion, labels, ".*labels", "regular expressions that select labels"),
    SONDE__REGEX(confusion, predictions, ".*predictions",
                 "regular expressions that select predictions"),
    SONDE__COLLECTIONS(confusion, labels_collection, NULL,
                       "comma-separated list of collections of labels"),
    SONDE__COLLECTIONS(confusion, predictions_collection, NULL,
                       "comma-separated list of collections of predictions"),
    SONDE__COUNT(confusion, category_no, NULL, 2, MOST,
                 "number of classes (default: the classes that occur)"),
    SONDE__REAL(confusion, min_diag, "0.9", 0, 1,
                "smallest acceptable share of a class, relative to an even distribution"),
    SONDE__REAL(confusion, max_off_diag, "0.1", 0, 1,
                "largest acceptable share of a class that is predicted as another"),
};
static const sonde_rule_need confusion_needs[] = {
    {"labels", SONDE_HOW_RAW, false, SONDE__ANY, SONDE__EACH_STEP},
    {"predictions", SONDE_HOW_RAW, false, SONDE__ANY, SONDE__EACH_STEP}};

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    confusion *state = sonde_rule_state(run);

    sonde__builtin_labels_take(
        run, tensor->need == SONDE__LABELS ? &state->truth : &state->guesses,
        observation->view);
}

static void step(sonde_rule_run *run)
{
    confusion *state = sonde_rule_state(run);

    for (size_t i = 0;
         i < state->truth.count && state->truth.count == state->guesses.count; i++) {
        const int32_t is = state->truth.value[i], guess = state->guesses.value[i];

        if (is >= 0 && is < MOST && guess >= 0 && guess < MOST) {
            state->taken[guess][is]++;
            state->seen++;
            state->classes = is >= state->classes ? is + 1 : state->classes;
            state->classes = guess >= state->classes ? guess + 1 : state->classes;
        }
    }
    state->truth.count = state->guesses.count = 0;
}

static void judge(sonde_rule_run *run, const confusion *state, int classes)
{
    int64_t right = 0;

    for (int c = 0; c < classes; c++) {
        right += state->taken[c][c];
    }
    for (int c = 0; c < classes; c++) {
        const double share =
            right > 0 ? (double)state->taken[c][c] * classes / (double)right : 0.0;
        int64_t all = 0;

        for (int j = 0; j < classes; j++) {
            all += state->taken[j][c];
        }
        for (int j = 0; j < classes && all > 0; j++) {
            const double off = j == c ? 0.0 : (double)state->taken[j][c] / (double)all;

            if (off > state->max_off_diag) {
                sonde__rule_report(
                    run, NULL, SONDE__SURE(WARNING), "off_diagonal", off,
                    state->max_off_diag, NULL,
                    "%.3g %% of the samples of class %d are predicted as class %d.",
                    100.0 * off, c, j);
            }
        }
        if (share < state->min_diag) {
            sonde__rule_report(
                run, NULL, SONDE__SURE(WARNING), "diagonal", share, state->min_diag, NULL,
                "Among the correct predictions, class %d has only %.3g times "
                "an even share.",
                c, share);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    const confusion *state = sonde_rule_state(run);

    if (state->seen == 0) {
        sonde_rule_lacked(run,
                          "no labels with predictions were recorded during evaluation");
        return;
    }
    judge(run, state,
          state->category_no > 0 ? (int)state->category_no
          : state->classes > 2   ? state->classes
                                 : 2);
}

static void destroy(sonde_rule_run *run)
{
    confusion *state = sonde_rule_state(run);

    sonde__builtin_labels_free(&state->truth);
    sonde__builtin_labels_free(&state->guesses);
}

const sonde_rule sonde__builtin_confusion = {
    SONDE__RULE("Confusion", confusion),
    .summary = "classes are confused with each other",
    .condition = "At the end of the run, a class has less than `min_diag` times an even "
                 "share of the correct predictions in evaluation, or more than "
                 "`max_off_diag` of a class is predicted as another class.",
    .advice = "Inspect samples of both classes: they may be mislabeled or need other "
              "features.",
    .modes = 1U << SONDE_MODE_EVAL | 1U << SONDE_MODE_GLOBAL,
    .by_name_only = true,
    .wants = sonde__builtin_wants_classes,
    .observe = observe,
    .step = step,
    .finish = finish,
    .destroy = destroy,
};
