/*
 * TargetMismatch - the targets of a loss are not what it expects.
 *
 * Judged are the losses of the program of a training step. Fires when
 *     range      the targets of the first loss, by the facts of the program, are class
 *                indices without a score, lie outside of what the loss can use, or are all
 *                to be ignored. Binary targets may exceed 0 ... 1 by NOISY: labels that are
 *                made noisy on purpose;
 *     reach      the last operation before a regression loss, relu, sigmoid, tanh or
 *                softmax, cannot give what more than FAR of the range of the targets is;
 *     self       predictions and targets are one value, or views of it;
 *     several    a regression loss compares each target with several predictions, or each
 *                prediction with several targets: an error if the targets are whole
 *                numbers, as class indices are, else a warning: an ensemble may learn from
 *                one target;
 *     classes    scores (n, classes, ...) are reshaped to rows of classes, and the classes
 *                are not the last dimension: a row has scores of several places;
 *     order      scores (a, b, classes) and labels (b, a) are reshaped to rows: the label of
 *                a row belongs to another one.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include "base/macros.h"

#define INDEXED "cross_entropy nll_loss multi_margin_loss"
#define REGRESSIONS "mse_loss l1_loss smooth_l1_loss huber_loss"
#define SIGNS                                                                            \
    "soft_margin_loss hinge_embedding_loss cosine_embedding_loss margin_ranking_loss"
#define SAME SONDE__WALK_VIEWS " to clone detach"
#define ROWS SONDE__WALK_PLAIN " log_softmax softmax log squeeze unsqueeze detach"
#define NOISY 0.3
#define FAR 0.05
#define CLOSE 1e-3

typedef struct mismatch {
    bool shown;
} mismatch;

/* A loss, and the shapes of its operands. */
typedef struct use {
    const sonde_program *program;
    const sonde_program_node *node;
    int about; /* value */
    const sonde_program_value *predictions, *targets;
} use;

/* What targets of a loss may be. */
static const struct {
    const char *loss;
    double least, most;
    const char *advice;
} ranges[] = {
    {"binary_cross_entropy", 0.0, 1.0,
     "Scale the targets to 0 ... 1: (target + 1) / 2 of -1 and 1."},
    {"binary_cross_entropy_with_logits", 0.0, 1.0,
     "Scale the targets to 0 ... 1: (target + 1) / 2 of -1 and 1."},
    {"multilabel_soft_margin_loss", 0.0, 1.0, "Give it 0 and 1 for each class."},
    {"cross_entropy", 0.0, 1.0,
     "Pass class indices, or probabilities: softmax of the teacher's scores."},
    {"kl_div", 0.0, (double)INFINITY,
     "Pass probabilities, or logarithms of them with log_target=True."},
    {"kl_div log_target", -(double)INFINITY, 0.0,
     "Pass log-probabilities, or leave out log_target=True."},
    {"poisson_nll_loss", 0.0, (double)INFINITY, "Pass counts."},
};

static bool found(sonde_rule_run *run, const use *loss, sonde_severity severity,
                  const char *statistic, double value, double threshold)
{
    return sonde_rule_found_at(
        run,
        sonde__builtin_walk_tensor(loss->program, loss->about, loss->node->outputs[0]),
        loss->node->place, severity, statistic, value, threshold);
}

/* --- range ---------------------------------------------------------------------------- */

/* The range of the targets of the first loss; false: it is unknown. */
static bool find_range(const sonde_program *program, bool whole, double *least,
                       double *most)
{
    *least = sonde_attribute_number(program->facts, whole ? "labels_min" : "targets_min",
                                    (double)NAN);
    *most = sonde_attribute_number(program->facts, whole ? "labels_max" : "targets_max",
                                   (double)NAN);
    return isfinite(*least) && isfinite(*most);
}

/* Class indices. */
static void judge_labels(sonde_rule_run *run, const use *loss, double least, double most)
{
    const double ignored =
        sonde_attribute_number(loss->node->attributes, "ignore_index", -100.0);
    const int64_t classes =
        loss->predictions->shape[loss->predictions->rank >= 2 ? 1 : 0];
    const bool below = least < 0.0 && least != ignored;
    sonde__builtin_text line;

    if (least == ignored && most == ignored) {
        if (found(run, loss, SONDE_SEVERITY_ERROR, "labels", 0.0, 1.0)) {
            sonde_rule_say(
                run, "Check how labels are masked, and skip batches without labels.",
                "All labels of a step are %g, the index that %s%s ignores: its loss "
                "is the mean of nothing.",
                ignored, loss->node->op,
                sonde__builtin_walk_line(loss->program, loss->node->place, &line));
        }
    } else if ((below || (most >= (double)classes && most != ignored)) &&
               found(run, loss, SONDE_SEVERITY_ERROR, "label", below ? least : most,
                     (double)(classes - 1))) {
        sonde_rule_say(
            run, "Count classes from 0, and give the last layer an output for each.",
            "%s%s gets labels of %g to %g, and scores of %lld classes: 0 to %lld.",
            loss->node->op,
            sonde__builtin_walk_line(loss->program, loss->node->place, &line), least,
            most, (long long)classes, (long long)(classes - 1));
    }
}

/* Targets of 0 and 1 where -1 and 1 are expected. */
static void judge_signs(sonde_rule_run *run, const use *loss, double least, double most)
{
    sonde__builtin_text line;

    if ((least > CLOSE - 1.0 && least < 1.0 - CLOSE) || most > 1.0 + CLOSE ||
        least < -1.0 - CLOSE) {
        if (found(run, loss, SONDE_SEVERITY_ERROR, "target", least, -1.0)) {
            sonde_rule_say(
                run, "Pass -1 and 1: 2 * target - 1 of 0 and 1.",
                "%s%s expects targets of -1 and 1, and gets %g to %g.", loss->node->op,
                sonde__builtin_walk_line(loss->program, loss->node->place, &line), least,
                most);
        }
    }
}

static void judge_values(sonde_rule_run *run, const use *loss, double least, double most)
{
    const char *op = loss->node->op;
    const bool log =
        sonde_attribute_number(loss->node->attributes, "log_target", 0.0) > 0.0;
    const double room = sonde__builtin_walk_is(op, "binary_cross_entropy "
                                                   "binary_cross_entropy_with_logits")
                            ? NOISY
                            : CLOSE;
    sonde__builtin_text line;

    for (size_t i = 0; i < SONDE_COUNT_OF(ranges); i++) {
        const bool fits = log ? sonde__builtin_walk_is("log_target", ranges[i].loss) &&
                                    sonde__builtin_walk_is(op, ranges[i].loss)
                              : sonde__builtin_walk_is(ranges[i].loss, op);
        const bool below = least < ranges[i].least - room;

        if (fits && (below || most > ranges[i].most + room)) {
            if (found(run, loss, SONDE_SEVERITY_ERROR, "target", below ? least : most,
                      below ? ranges[i].least : ranges[i].most)) {
                sonde_rule_say(
                    run, ranges[i].advice,
                    "%s%s expects targets %s %g%s, and gets %.4g to %.4g.", op,
                    sonde__builtin_walk_line(loss->program, loss->node->place, &line),
                    isinf(ranges[i].least) ? "up to" : "from",
                    isinf(ranges[i].least) ? ranges[i].most : ranges[i].least,
                    isinf(ranges[i].least) || isinf(ranges[i].most) ? "" : " to 1", least,
                    most);
            }
            return;
        }
    }
}

/* By the facts of the program, which are those of the first loss. */
static void judge_range(sonde_rule_run *run, const use *loss)
{
    const bool whole = !sonde_dtype_is_float(loss->targets->dtype);
    double least = 0.0, most = 0.0;

    if (!find_range(loss->program, whole, &least, &most)) {
        return;
    }
    if (sonde__builtin_walk_is(loss->node->op, SIGNS)) {
        judge_signs(run, loss, least, most);
    } else if (whole && sonde__builtin_walk_is(loss->node->op, INDEXED)) {
        judge_labels(run, loss, least, most);
    } else if (!whole) {
        judge_values(run, loss, least, most);
    }
}

/* --- reach ---------------------------------------------------------------------------- */

/* What the last operation before a loss can give. */
static const struct {
    const char *op;
    double least, most;
} reaches[] = {
    {"relu softplus", 0.0, (double)INFINITY},
    {"sigmoid softmax hardsigmoid", 0.0, 1.0},
    {"tanh hardtanh", -1.0, 1.0},
    {"relu6", 0.0, 6.0},
    {"logsigmoid log_softmax", -(double)INFINITY, 0.0},
};

/* For the first loss. */
static void judge_reach(sonde_rule_run *run, const use *loss, int predictions)
{
    double least = 0.0, most = 0.0;
    const sonde_program_node *made = sonde__builtin_walk_up(
        loss->program, &predictions,
        SONDE__WALK_VIEWS " contiguous to clone identity alias dropout");
    sonde__builtin_text line, at;

    if (made == NULL || !find_range(loss->program, false, &least, &most)) {
        return;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(reaches); i++) {
        const double room = FAR * (most - least) + CLOSE;
        const bool below = least < reaches[i].least - room;

        if (sonde__builtin_walk_is(made->op, reaches[i].op) &&
            (below || most > reaches[i].most + room) &&
            found(run, loss, SONDE_SEVERITY_ERROR, "reach", below ? least : most,
                  below ? reaches[i].least : reaches[i].most)) {
            sonde_rule_say(
                run,
                "Leave out the last activation, or scale the targets to what it gives.",
                "%s%s makes predictions %s %g, but %s%s compares them with targets of "
                "%.4g to %.4g.",
                made->op, sonde__builtin_walk_line(loss->program, made->place, &at),
                below ? "from" : "up to", below ? reaches[i].least : reaches[i].most,
                loss->node->op,
                sonde__builtin_walk_line(loss->program, loss->node->place, &line), least,
                most);
        }
    }
}

/* --- self ----------------------------------------------------------------------------- */

/* Whether both operands of a loss are one value, which is reported. */
static bool judge_self(sonde_rule_run *run, const use *loss, int predictions, int targets)
{
    sonde__builtin_text line;

    (void)sonde__builtin_walk_up(loss->program, &predictions, SAME);
    (void)sonde__builtin_walk_up(loss->program, &targets, SAME);
    if (predictions != targets) {
        return false;
    }
    if (found(run, loss, SONDE_SEVERITY_ERROR, "self", 0.0, 1.0)) {
        sonde_rule_say(run, "Pass the targets of the data.",
                       "%s%s compares a value with itself: predictions and targets are "
                       "the same.",
                       loss->node->op,
                       sonde__builtin_walk_line(loss->program, loss->node->place, &line));
    }
    return true;
}

/* --- several -------------------------------------------------------------------------- */

/* Whether the smaller of two shapes is repeated to give the larger one. */
static bool is_repeated(const sonde_program_value *larger,
                        const sonde_program_value *smaller)
{
    for (int d = 0; d < larger->rank; d++) {
        const int64_t a = larger->shape[larger->rank - 1 - d];
        const int64_t b = d < smaller->rank ? smaller->shape[smaller->rank - 1 - d] : 1;

        if (b != a && b != 1) {
            return false;
        }
    }
    return larger->rank >= smaller->rank;
}

static int64_t count_of(const sonde_program_value *value)
{
    int64_t count = 1;

    for (int d = 0; d < value->rank; d++) {
        count *= value->shape[d];
    }
    return count;
}

/* Whether targets were class indices, or are whole numbers. */
static bool are_whole(const use *loss, int targets)
{
    int value = targets;
    const sonde_program_node *made = sonde__builtin_walk_up(
        loss->program, &value, SONDE__WALK_VIEWS " clone detach contiguous");
    const int before = made != NULL && sonde__builtin_walk_is(made->op, "to")
                           ? sonde__builtin_walk_first(made)
                           : -1;

    return (before >= 0 && !sonde_dtype_is_float(loss->program->values[before].dtype)) ||
           sonde_attribute_number(loss->program->facts, "targets_whole", 0.0) > 0.0;
}

static void judge_several(sonde_rule_run *run, const use *loss, int predictions,
                          int targets)
{
    const sonde_program_value *a = loss->predictions, *b = loss->targets;
    const int64_t many = count_of(a), few = count_of(b);
    const bool whole = are_whole(loss, targets);
    sonde__builtin_text line, first, second;

    if (many == few || many <= 1 || few <= 1 ||
        !(many > few ? is_repeated(a, b) : is_repeated(b, a)) ||
        !found(run, loss,
               many > few && whole ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_WARNING,
               "repeated", (double)(many > few ? many / few : few / many), 1.0)) {
        return;
    }
    sonde_rule_say(
        run,
        many > few && whole
            ? "Use cross_entropy for class indices, or give each output its target."
            : "Give both the same shape; expand the smaller one if it is meant.",
        "%s%s compares predictions %s with targets %s: each %s meets %lld %s.",
        loss->node->op, sonde__builtin_walk_line(loss->program, loss->node->place, &line),
        sonde__builtin_walk_shape(loss->program, predictions, &first),
        sonde__builtin_walk_shape(loss->program, targets, &second),
        many > few ? "target" : "prediction",
        (long long)(many > few ? many / few : few / many),
        many > few ? "predictions" : "targets");
}

/* --- rows ----------------------------------------------------------------------------- */

/* The value that was reshaped to the rows of an operand; NULL: none was. *at: where. */
static const sonde_program_value *reshaped(const use *loss, int value, sonde_place *at)
{
    const sonde_program_node *made = sonde__builtin_walk_up(loss->program, &value, ROWS);
    const int before = made != NULL && sonde__builtin_walk_is(made->op, "reshape")
                           ? sonde__builtin_walk_first(made)
                           : -1;

    if (before < 0) {
        return NULL;
    }
    *at = made->place;
    return &loss->program->values[before];
}

static void report_rows(sonde_rule_run *run, const use *loss, sonde_place at,
                        const sonde_program_value *before, const char *advice,
                        const char *says)
{
    char shape[SONDE__WALK_TEXT];
    sonde__builtin_text line;

    if (sonde_rule_found_at(run,
                            sonde__builtin_walk_tensor(loss->program, loss->about,
                                                       loss->node->outputs[0]),
                            at, SONDE_SEVERITY_ERROR, "rows",
                            (double)loss->predictions->shape[0], 0.0)) {
        sonde_rule_say(run, advice, "Scores %s are reshaped to rows of %lld for %s%s: %s",
                       sonde_shape_text(before->rank, before->shape, shape, sizeof shape),
                       (long long)loss->predictions->shape[1], loss->node->op,
                       sonde__builtin_walk_line(loss->program, loss->node->place, &line),
                       says);
    }
}

static void judge_rows(sonde_rule_run *run, const use *loss, int predictions, int targets)
{
    sonde_place scored = {"", 0}, labelled = {"", 0};
    const sonde_program_value *before = reshaped(loss, predictions, &scored);
    const sonde_program_value *labels = reshaped(loss, targets, &labelled);
    const int64_t rows = loss->predictions->shape[0],
                  classes = loss->predictions->shape[1];

    if (before == NULL || before->rank < 3 || loss->predictions->rank != 2) {
        return;
    }
    const int last = before->rank - 1;
    if (before->shape[last] != classes) {
        if (before->shape[1] == classes && before->shape[0] < rows &&
            rows * classes == count_of(before)) {
            report_rows(run, loss, scored, before,
                        "Move the classes to the end first: permute(0, 2, 3, 1).",
                        "a row has values of one class at several places, not of the "
                        "classes at one place.");
        }
    } else if (labels != NULL && labels->rank == 2 && before->rank == 3 &&
               before->shape[0] != before->shape[1] &&
               labels->shape[0] == before->shape[1] &&
               labels->shape[1] == before->shape[0]) {
        report_rows(
            run, loss, scored, before, "Transpose one of them before it is reshaped.",
            "labels have the two dimensions in the other order, so that most rows "
            "get the label of another one.");
    }
}

/* --- the rule ------------------------------------------------------------------------- */

static void judge_loss(sonde_rule_run *run, const sonde_program *program, size_t i)
{
    const sonde_program_loss *row = &program->losses[i];

    if (row->node < 0 || row->predictions < 0 || row->targets < 0) {
        return;
    }
    const use loss = {.program = program,
                      .node = &program->nodes[row->node],
                      .about = row->targets,
                      .predictions = &program->values[row->predictions],
                      .targets = &program->values[row->targets]};
    if (loss.node->output_count == 0 || loss.predictions->rank == 0) {
        return;
    }
    if (judge_self(run, &loss, row->predictions, row->targets)) {
        return;
    }
    if (i == 0) {
        judge_range(run, &loss);
    }
    if (sonde__builtin_walk_is(loss.node->op, REGRESSIONS)) {
        if (i == 0) {
            judge_reach(run, &loss, row->predictions);
        }
        judge_several(run, &loss, row->predictions, row->targets);
    } else if (sonde__builtin_walk_is(loss.node->op, "cross_entropy nll_loss")) {
        judge_rows(run, &loss, row->predictions, row->targets);
    }
}

static void judge(sonde_rule_run *run, const sonde_program *program)
{
    mismatch *state = sonde_rule_state(run);

    if (!sonde__builtin_walk_trains(program)) {
        return;
    }
    state->shown = true;
    for (size_t i = 0; i < program->loss_count; i++) {
        judge_loss(run, program, i);
    }
}

static void finish(sonde_rule_run *run)
{
    const mismatch *state = sonde_rule_state(run);

    if (!state->shown) {
        sonde_rule_lacked(run, "the run has no program of a training step");
    }
}

const sonde_rule sonde__builtin_target_mismatch = {
    .abi = SONDE_RULE_ABI,
    .name = "TargetMismatch",
    .summary = "the targets of a loss are not what it expects",
    .condition =
        "In the program of a training step, one of these holds: (1) labels lie outside of the classes that have scores, targets outside of what the loss can use, or all labels are to be ignored; "
        "(2) a regression loss compares each target with several predictions, or the other way round (an error if the targets are class indices, else a warning); "
        "(3) scores are reshaped to rows that mix classes and places; "
        "(4) scores and labels are reshaped to rows in different orders; "
        "(5) the last activation cannot give what the targets of a regression are; (6) predictions and targets are one value.",
    .advice = "Check the shape and the range of the targets against the loss.",
    .modes = SONDE__TRAIN,
    .state_size = sizeof(mismatch),
    .finish = finish,
    .program = judge,
};
