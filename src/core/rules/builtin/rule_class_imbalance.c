/*
 * ClassImbalance - some classes are far more frequent than others, or are hardly ever
 * recognized.
 *
 * The rule checks after each `samples` labels, or after per_class labels for each class
 * if that is more. Fires when
 *     frequency   the most frequent class has more than threshold_imbalance times the
 *                 samples of the least frequent class that occurs, by `sure` standard
 *                 deviations of both counts (a count of n has about sqrt n); or only one
 *                 class occurs; or
 *     mistakes    at `patience` checks in a row, more than threshold_misprediction of the
 *                 samples of one class are misclassified, while the error over all
 *                 classes is below half of that and has not fallen by a tenth: a network
 *                 that still learns takes up its classes one by one. Needs predictions; or
 *     order       after ORDERED steps with at least BATCH labels, and DRAWN labels beyond
 *                 the first ones of these, the entropy of the labels of a step is on
 *                 average below SORTED of that of all labels: a batch holds hardly more
 *                 than one class, so the data are not shuffled.
 * One class is certain earlier where the same input comes again and again (it is all
 * data), and after CERTAIN labels of a class other than 0, or of more than two: the
 * rare one of two may be missing by chance.
 * Labels that the program makes itself are not judged for frequency where the scores are
 * products of features, those of pairs: the right one has the same place in each row. The
 * frequencies of tokens are not judged: labels of scores that were (batch, length, classes),
 * or that are as many as an embedding has rows.
 * A difference in frequency is a note if several classes occur, which is resolved if training
 * goes well: many data have it (faults, words), and the loss may weight classes. A misclassified class is a note if it has fewer
 * than a third of the samples of an even share. With smdebug, both are warnings.
 *
 * Actions and what players tell apart are no classes: nothing is judged if the program shows
 * or declares that losses need not fall.
 *
 * Labels are the tensors that labels_regex selects, else an integer input. Predictions
 * are those that predictions_regex selects, else the input of the loss. In tensors of
 * several dimensions the class is the index of the largest score along the second one.
 * Evidence: raw values; labels at every step.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/labels.h"
#include "rules/builtin/program_walk.h"

#include "base/macros.h"

#include <string.h>

enum { ORDERED = 10, BATCH = 4, DRAWN = 70, CERTAIN = 100, SAME = 3 };
#define SORTED 0.2
/* Many data have it: no doubt where training goes well. */
SONDE__TERMS(uneven, NOTE, NOTE, NOTE, NOTE, NOTE);
#define LEAST_ENTROPY 0.5 /* of labels whose order can be judged */

typedef struct imbalance {
    const char *labels_regex, *predictions_regex;
    double threshold_imbalance, threshold_misprediction, sure;
    int64_t samples, per_class;
    bool argmax, smdebug;
    sonde__builtin_labels labels, guesses; /* of this step */
    int64_t steps, drawn;                  /* with at least BATCH labels; DRAWN */
    double within;                         /* sum of their entropies */
    int64_t every[SONDE__CLASSES];         /* labels of these steps */
    int32_t classes;                       /* above the largest label so far */
    int64_t seen, seen_guesses, patience;
    int64_t missed[SONDE__CLASSES]; /* checks in a row */
    double wrong_before;            /* share of all when the first streak began */
    int64_t count[SONDE__CLASSES], guessed[SONDE__CLASSES], wrong[SONDE__CLASSES];
} imbalance;

static const sonde_rule_param imbalance_params[] = {
    SONDE__REGEX(imbalance, labels_regex, ".*labels",
                 "regular expressions that select labels"),
    SONDE__REGEX(imbalance, predictions_regex, ".*predictions",
                 "regular expressions that select predictions"),
    SONDE__REAL(imbalance, threshold_imbalance, "10", 1, 1e300,
                "largest acceptable ratio of the most to the least frequent class"),
    SONDE__REAL(imbalance, threshold_misprediction, "0.7", 0, 1,
                "largest acceptable share of misclassified samples of a class"),
    SONDE__COUNT(imbalance, samples, "500", 1, 1e12,
                 "number of labels to count before each check"),
    SONDE__COUNT(imbalance, patience, "20", 1, 1e9,
                 "number of checks in a row at which a class must be misclassified"),
    SONDE__REAL(imbalance, sure, "2", 0, 100,
                "standard deviations of both counts by which the ratio must exceed "
                "threshold_imbalance"),
    SONDE__COUNT(imbalance, per_class, "40", 0, 1e9,
                 "number of labels per occurring class before frequencies are judged"),
    SONDE__FLAG(imbalance, argmax, "false",
                "accepted and ignored: the shape tells whether predictions are scores"),
    SONDE__SMDEBUG(imbalance),
};
static const sonde_rule_need imbalance_needs[] = {
    {"labels", SONDE_HOW_RAW, false, SONDE__INPUTS, SONDE__EACH_STEP},
    {"predictions", SONDE_HOW_RAW, true, SONDE__ACTIVATIONS, SONDE__OFTEN}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    imbalance *state = sonde_rule_state(run);

    (void)diag;
    state->smdebug = sonde__builtin_as_smdebug(
        run, "samples,threshold_imbalance,threshold_misprediction",
        "patience,sure,per_class");
    if (state->smdebug) {
        state->sure = 0.0;
        state->per_class = 0;
        state->patience = 1;
    }
    return SONDE_OK;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    imbalance *state = sonde_rule_state(run);
    const bool labels = tensor->need == SONDE__LABELS;

    if (labels && !sonde_dtype_is_float(observation->view->dtype) &&
        observation->view->rank >= 2 && observation->view->shape[1] > 1) {
        return; /* tokens or pixels */
    }
    sonde__builtin_labels_take(run, labels ? &state->labels : &state->guesses,
                               observation->view);
}

/* Classes that occur. */
static int64_t count_classes(const int64_t *count)
{
    int64_t classes = 0;

    for (int c = 0; c < SONDE__CLASSES; c++) {
        classes += count[c] > 0;
    }
    return classes;
}

/* --- the program ---------------------------------------------------------------------- */

/* The loss that has labels; NULL: none is known. */
static const sonde_program_loss *find_loss(const sonde_program *program)
{
    for (size_t i = 0; program != NULL && i < program->loss_count; i++) {
        const sonde_program_loss *loss = &program->losses[i];

        if (loss->node >= 0 && loss->predictions >= 0 && loss->targets >= 0 &&
            !sonde_dtype_is_float(program->values[loss->targets].dtype)) {
            return loss;
        }
    }
    return NULL;
}

/* Whether labels are places of pairs, which the program knows beforehand. */
static bool are_places(const sonde_program *program, const sonde_program_loss *loss)
{
    int labels = loss->targets, scores = loss->predictions;
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &labels, SONDE__WALK_VIEWS " to");
    const sonde_program_node *scored = sonde__builtin_walk_up(
        program, &scores, SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " div mul cat");

    return (made != NULL || program->values[labels].kind == SONDE_VALUE_CONSTANT) &&
           scored != NULL && sonde__builtin_walk_is(scored->op, "matmul einsum sum");
}

/* Whether the classes are tokens: as many as an embedding has rows, or one for each place of
 * a sequence. */
static bool are_tokens(const sonde_program *program, const sonde_program_loss *loss)
{
    int scores = loss->predictions;
    const int last = program->values[scores].rank - 1;
    const int64_t classes = last >= 0 ? program->values[scores].shape[last] : 0;

    (void)sonde__builtin_walk_up(program, &scores, SONDE__WALK_VIEWS " to log_softmax");
    if (program->values[scores].rank >= 3) {
        return true;
    }
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const int table = sonde__builtin_walk_operand(node, 1);

        if (sonde__builtin_walk_is(node->op, "embedding") && table >= 0 &&
            program->values[table].rank == 2 &&
            program->values[table].shape[0] == classes) {
            return true;
        }
    }
    return false;
}

/* Reports at the labels of the loss and its line, where the program shows them. True: sonde_rule_say
 * must follow. */
static bool found(sonde_rule_run *run, sonde_severity severity, const char *statistic,
                  double value, double threshold)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const sonde_program_loss *loss = find_loss(program);

    if (loss == NULL) {
        return sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, severity, statistic, value,
                                threshold);
    }
    return sonde_rule_found_at(
        run, sonde__builtin_walk_tensor(program, loss->targets, loss->value),
        program->nodes[loss->node].place, severity, statistic, value, threshold);
}

/* The labels of a loss, as they are observed; NULL: unknown. */
static const sonde_rule_tensor *labels_of(sonde_rule_run *run,
                                          const sonde_program *program,
                                          const sonde_program_loss *loss)
{
    const char *name =
        loss != NULL ? sonde__builtin_walk_tensor(program, loss->targets, loss->value)
                     : "";

    SONDE__EACH (run, t) {
        if (name[0] != '\0' && strcmp(sonde_rule_info(run, t->id)->name, name) == 0) {
            return t;
        }
    }
    return NULL;
}

/* Only one class occurs. */
static void report_one(sonde_rule_run *run, const imbalance *state, int class)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const sonde_program_loss *loss = find_loss(program);
    sonde__builtin_text line = {""};

    if ((loss == NULL || !are_places(program, loss)) &&
        found(run, SONDE_SEVERITY_WARNING, "imbalance", (double)INFINITY,
              state->threshold_imbalance)) {
        sonde_rule_say(run, "Shuffle the data, and check how labels are read.",
                       "All %lld labels%s%s%s are of class %d: only one class occurs.",
                       (long long)state->seen, loss != NULL ? " of " : "",
                       loss != NULL ? program->nodes[loss->node].op : "",
                       loss != NULL
                           ? sonde__builtin_walk_line(
                                 program, program->nodes[loss->node].place, &line)
                           : "",
                       class);
    }
}

static double entropy(const int64_t *count, int32_t classes)
{
    double all = 0.0, sum = 0.0;

    for (int32_t c = 0; c < classes; c++) {
        all += (double)count[c];
    }
    for (int32_t c = 0; c < classes; c++) {
        sum += count[c] > 0 ? (double)count[c] * log(all / (double)count[c]) : 0.0;
    }
    return all > 0.0 ? sum / all : 0.0;
}

/* Whether there are enough batches to judge their order. */
static bool has_order(const imbalance *state)
{
    return state->steps >= ORDERED && state->drawn >= DRAWN;
}

/* Whether batches may hold one class each, as far as is known: then that is judged first. */
static bool may_be_ordered(const imbalance *state)
{
    const double all = entropy(state->every, state->classes);

    return !state->smdebug && state->steps > 0 && !has_order(state) &&
           all > LEAST_ENTROPY && state->within / (double)state->steps < 0.5 * all;
}

static void judge_frequency(sonde_rule_run *run, const imbalance *state)
{
    int most = -1, least = -1;
    const int64_t classes = count_classes(state->count);
    const bool one = classes == 1;

    for (int c = 0; c < SONDE__CLASSES; c++) {
        if (state->count[c] > 0) {
            most = most < 0 || state->count[c] > state->count[most] ? c : most;
            least = least < 0 || state->count[c] < state->count[least] ? c : least;
        }
    }
    if (classes == 0 || (!one && may_be_ordered(state))) {
        return;
    }
    if (one) {
        report_one(run, state, most);
        return;
    }
    const double m = (double)state->count[most], l = (double)state->count[least];
    const double sure = (m - state->sure * sqrt(m)) / (l + state->sure * sqrt(l));

    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const sonde_program_loss *loss = find_loss(program);

    if (sure > state->threshold_imbalance &&
        (state->smdebug || loss == NULL || !are_tokens(program, loss))) {
        sonde__rule_report(run, labels_of(run, program, loss),
                           state->smdebug ? SONDE__SURE(WARNING) : &uneven, "imbalance",
                           m / l, state->threshold_imbalance, NULL,
                           "Of %lld labels, %lld are of class %d and %lld of class %d.",
                           (long long)state->seen, (long long)state->count[most], most,
                           (long long)state->count[least], least);
    }
}

/* Whether class c has less than a third of an even share of `all` samples. */
static bool is_rare(const imbalance *state, int c, int64_t all)
{
    return !state->smdebug && 3 * count_classes(state->guessed) * state->guessed[c] < all;
}

static void judge_mistakes(sonde_rule_run *run, imbalance *state)
{
    int64_t all = 0, wrong = 0;

    for (int c = 0; c < SONDE__CLASSES; c++) {
        all += state->guessed[c];
        wrong += state->wrong[c];
    }
    if (all == 0) {
        return;
    }
    const double share_wrong = (double)wrong / (double)all;
    const bool learns =
        !state->smdebug && (share_wrong < 0.9 * state->wrong_before ||
                            share_wrong >= 0.5 * state->threshold_misprediction);
    if (learns) {
        memset(state->missed, 0, sizeof state->missed);
        state->wrong_before = share_wrong;
    }
    for (int c = 0; c < SONDE__CLASSES; c++) {
        const double share = state->guessed[c] >= (state->smdebug ? 1 : 10)
                                 ? (double)state->wrong[c] / (double)state->guessed[c]
                                 : 0.0;

        state->missed[c] =
            share > state->threshold_misprediction ? state->missed[c] + 1 : 0;
        if (state->missed[c] >= state->patience) {
            sonde__rule_report(
                run, NULL,
                is_rare(state, c, all) ? SONDE__SURE(NOTE) : SONDE__SURE(WARNING),
                "misprediction", share, state->threshold_misprediction, NULL,
                "%.3g %% of the samples of class %d are misclassified (%.3g "
                "%% of all samples), and this does not improve.",
                100.0 * share, c, 100.0 * share_wrong);
        }
    }
}

/* Compares the labels of this step with those of all steps. */
static void judge_order(sonde_rule_run *run)
{
    imbalance *state = sonde_rule_state(run);
    int64_t now[SONDE__CLASSES];

    if (state->smdebug || state->labels.count < BATCH) {
        return;
    }
    for (size_t i = 0; i < state->labels.count; i++) {
        const int32_t c = state->labels.value[i];

        state->classes =
            c < SONDE__CLASSES ? SONDE_MAX(state->classes, c + 1) : state->classes;
    }
    memset(now, 0, (size_t)state->classes * sizeof *now);
    for (size_t i = 0; i < state->labels.count; i++) {
        const int32_t c = state->labels.value[i];

        if (c >= 0 && c < SONDE__CLASSES) {
            now[c]++;
            state->every[c]++;
        }
    }
    state->within += entropy(now, state->classes);
    state->drawn += (int64_t)state->labels.count - 1;
    state->steps++;
    if (!has_order(state)) {
        return;
    }
    const double within = state->within / (double)state->steps;
    if (within > SORTED * 1.001 * log((double)state->classes)) {
        return; /* n classes have at most the entropy log n */
    }
    const double all = entropy(state->every, state->classes);
    if (all > LEAST_ENTROPY && within < SORTED * all &&
        found(run, SONDE_SEVERITY_WARNING, "entropy", within, SORTED * all)) {
        sonde_rule_say(run, "Shuffle the data.",
                       "Batches hold hardly more than one class each: the entropy of "
                       "their labels is %.3g, that of all labels %.3g.",
                       within, all);
    }
}

/* One class of so few labels: they are the data, or it is not the frequent one of two. */
static void judge_one(sonde_rule_run *run, const imbalance *state)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const sonde_program_loss *loss = find_loss(program);
    int class = 0;

    if (state->smdebug || loss == NULL || count_classes(state->count) != 1) {
        return;
    }
    while (state->count[class] == 0) {
        class ++;
    }
    const sonde_program_value *scores = &program->values[loss->predictions];
    const int64_t classes = scores->rank >= 2 ? scores->shape[1] : 2;
    if (sonde_attribute_number(program->facts, "input_repeats", 0.0) >= SAME ||
        (state->seen >= CERTAIN && state->steps >= ORDERED &&
         (class > 0 || classes > 2))) {
        report_one(run, state, class);
    }
}

static void step(sonde_rule_run *run)
{
    imbalance *state = sonde_rule_state(run);

    if (!state->smdebug && sonde__rule_loss_may_rise(run)) {
        state->labels.count = state->guesses.count = 0;
        return;
    }
    const bool pairs = state->labels.count == state->guesses.count;

    for (size_t i = 0; i < state->labels.count; i++) {
        const int32_t c = state->labels.value[i];

        if (c >= 0 && c < SONDE__CLASSES) {
            state->count[c]++;
            state->seen++;
            state->guessed[c] += pairs;
            state->seen_guesses += pairs;
            state->wrong[c] += pairs && state->guesses.value[i] != c;
        }
    }
    judge_order(run);
    judge_one(run, state);
    state->labels.count = state->guesses.count = 0;
    if (state->seen >= state->samples &&
        state->seen >= state->per_class * count_classes(state->count)) {
        judge_frequency(run, state);
        memset(state->count, 0, sizeof state->count);
        state->seen = 0;
    }
    if (state->seen_guesses >= state->samples) {
        judge_mistakes(run, state);
        memset(state->guessed, 0, sizeof state->guessed);
        memset(state->wrong, 0, sizeof state->wrong);
        state->seen_guesses = 0;
    }
}

static void destroy(sonde_rule_run *run)
{
    imbalance *state = sonde_rule_state(run);

    sonde__builtin_labels_free(&state->labels);
    sonde__builtin_labels_free(&state->guesses);
}

const sonde_rule sonde__builtin_class_imbalance = {
    SONDE__RULE("ClassImbalance", imbalance),
    .summary = "some classes are far more frequent than others, or are never recognized",
    .condition =
        "Any of these holds: (1) among `samples` labels, the most frequent class is clearly more than `threshold_imbalance` times as frequent as the least frequent one; "
        "(2) at `patience` such checks in a row, more than `threshold_misprediction` of a class is misclassified, while most other classes are not; "
        "(3) batches contain hardly more than one class each; (4) only one class occurs. "
        "(1) is a note if several classes occur, and (2) is a note if the class is rare. "
        "With `smdebug` (implied if only `samples` or a threshold is set), the rule fires when, after any `samples` labels, the ratio itself or the misclassified share of any class is above its threshold.",
    .advice = "Weight the classes in the loss, or sample the rare ones more often.",
    .modes = SONDE__TRAIN,
    .init = init,
    .wants = sonde__builtin_wants_classes,
    .observe = observe,
    .program = sonde__builtin_free_losses,
    .step = step,
    .destroy = destroy,
};
