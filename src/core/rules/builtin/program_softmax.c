/*
 * program_softmax.c - SoftmaxMisuse, by the program: what a loss expects, and what it gets.
 *
 *     cross_entropy                      scores: no softmax, sigmoid
 *     binary_cross_entropy_with_logits   scores: no sigmoid, softmax
 *     binary_cross_entropy               probabilities: no sigmoid of a sigmoid
 *     nll_loss, kl_div                   log-probabilities: log_softmax, along the classes
 *
 * The operation that made the input is found upward through views and operations that
 * change no element; log_softmax before cross_entropy changes nothing. What is made by
 * arithmetic (a difference, a product, a logarithm) is not judged before nll_loss. Scores of
 * pairs, (n, n) with a target for each row that the program makes itself, may be normalized
 * along either dimension. In attention, the product of scores, softmax and values, softmax
 * must run along the dimension that the product sums over. gather and a division by sums must
 * take the dimension that softmax ran along, which is not that of the samples of a
 * convolution's outputs. Elsewhere, log_softmax and the
 * difference of values and their logsumexp, which torch.distributions computes of logits,
 * must not get what softmax made.
 */
#include "rules/builtin/program_walk.h"
#include "rules/context.h"

#include "base/memory.h"

#include <math.h>

#define SQUASHERS "softmax softmin sigmoid gumbel_softmax"
#define THROUGH SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " index cat stack expand add"
#define SHAPES SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN
#define SCORES                                                                           \
    "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d "            \
    "conv_transpose3d batch_norm layer_norm group_norm instance_norm relu relu6 "        \
    "leaky_relu elu gelu silu mish tanh softplus hardtanh"
#define LAYERS "linear bilinear conv1d conv2d conv3d"
#define LOSSES                                                                           \
    "cross_entropy nll_loss kl_div binary_cross_entropy "                                \
    "binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss"

/* A loss and its input. */
typedef struct use {
    const sonde_program *program;
    const sonde_program_node *node;
    int scores, targets; /* values */
    int classes;         /* the dimension of scores */
} use;

/* Adding a small number, to take a logarithm, changes nothing; adding anything else does. */
static bool adds(const sonde_program_node *node)
{
    const double number = sonde_attribute_number(node->attributes, "scalar", 1.0);

    return sonde__builtin_walk_is(node->op, "add") && fabs(number) > 1e-2;
}

static const sonde_program_node *made_by(const sonde_program *program, int *value)
{
    const sonde_program_node *maker = sonde__builtin_walk_maker(program, *value);

    for (size_t left = program->node_count; maker != NULL && left > 0 && !adds(maker);
         left--) {
        const int before = sonde__builtin_walk_first(maker);

        if (before < 0 || !sonde__builtin_walk_is(maker->op, THROUGH)) {
            break;
        }
        *value = before;
        maker = sonde__builtin_walk_maker(program, before);
    }
    return maker;
}

/* Whether an operation gets what a linear layer or a convolution makes. */
static bool is_of_layer(const sonde_program *program, const sonde_program_node *node)
{
    int value = sonde__builtin_walk_first(node);
    const sonde_program_node *maker = sonde__builtin_walk_up(program, &value, SHAPES);

    return maker != NULL && sonde__builtin_walk_is(maker->op, LAYERS);
}

/* --- twice, and not at all ---------------------------------------------------------- */

static bool found(sonde_rule_run *run, const use *input, sonde_place place,
                  const char *statistic, double value, double threshold)
{
    return sonde_rule_found_at(run,
                               sonde__builtin_walk_tensor(input->program, input->scores,
                                                          input->node->outputs[0]),
                               place, SONDE_SEVERITY_ERROR, statistic, value, threshold);
}

/* maker: it makes numbers of 0 ... 1 that the loss takes for scores. */
static void report_twice(sonde_rule_run *run, const use *input,
                         const sonde_program_node *maker)
{
    const bool pairs =
        sonde__builtin_walk_is(input->node->op, "binary_cross_entropy_with_logits");
    const sonde_program_value *scores = &input->program->values[input->scores];
    const double count =
        input->classes >= 0 ? (double)scores->shape[input->classes] : 2.0;
    const double floor =
        pairs ? log1p(exp(-1.0)) : log1p(fmax(count - 1.0, 0.0) * exp(-1.0));
    sonde__builtin_text made, lost;

    if (found(run, input, maker->place, "loss_floor", floor, 0.0)) {
        sonde_rule_say(
            run, "Pass the scores themselves to the loss.",
            "%s%s makes numbers of 0 to 1, and %s%s applies %s to them again: the loss of a "
            "sample cannot fall below %.4g.",
            maker->op, sonde__builtin_walk_line(input->program, maker->place, &made),
            input->node->op,
            sonde__builtin_walk_line(input->program, input->node->place, &lost),
            pairs ? "the sigmoid" : "softmax", floor);
    }
}

static void report_missing(sonde_rule_run *run, const use *input,
                           const sonde_program_node *maker, const char *instead)
{
    sonde__builtin_text made, lost;

    if (found(run, input, maker->place, "log_probabilities", 0.0, 1.0)) {
        sonde_rule_say(
            run, instead, "%s%s expects log-probabilities, but gets the result of %s%s.",
            input->node->op,
            sonde__builtin_walk_line(input->program, input->node->place, &lost),
            maker->op, sonde__builtin_walk_line(input->program, maker->place, &made));
    }
}

/* --- the dimension ------------------------------------------------------------------ */

/* Whether targets are made in the step, one for each row of square scores. */
static bool are_pairs(const use *input)
{
    const sonde_program *program = input->program;
    const sonde_program_value *scores = &program->values[input->scores];
    int targets = input->targets;

    if (scores->rank != 2 || scores->shape[0] != scores->shape[1] || targets < 0) {
        return false;
    }
    const sonde_program_node *maker =
        sonde__builtin_walk_up(program, &targets, SHAPES " cat add");
    return maker != NULL || program->values[targets].kind == SONDE_VALUE_CONSTANT;
}

/* Whether no operation from there to the loss changes a shape. */
static bool keeps_shape(const use *input, int normalized)
{
    int value = input->scores;

    (void)sonde__builtin_walk_up(input->program, &value, SONDE__WALK_PLAIN " log");
    return value == normalized;
}

/* softmax makes `normalized`, which becomes the input of the loss. */
static void judge_dim(sonde_rule_run *run, const use *input,
                      const sonde_program_node *softmax, int normalized)
{
    const sonde_program_value *values = input->program->values;
    const sonde_program_value *scores = &values[input->scores],
                              *made = &values[normalized];
    const int dim = sonde__builtin_walk_dim(softmax, made->rank);
    sonde__builtin_text shape, line, lost;

    if (dim < 0 || input->classes < 0 || are_pairs(input)) {
        return;
    }
    const bool wrong = keeps_shape(input, normalized)
                           ? dim != input->classes
                           : made->shape[dim] != scores->shape[input->classes];
    int walked = input->scores;
    (void)sonde__builtin_walk_up(input->program, &walked, SHAPES " log");
    if (!wrong || walked != normalized) {
        return; /* or elements were chosen on the way */
    }
    if (found(run, input, softmax->place, "dim", (double)dim, (double)input->classes)) {
        sonde_rule_say(
            run, "Apply softmax along the dimension of the classes.",
            "%s%s runs along dimension %d of %s, %lld values, but %s%s takes %lld classes "
            "along dimension %d: the scores of a sample depend on other samples.",
            softmax->op, sonde__builtin_walk_line(input->program, softmax->place, &line),
            dim, sonde__builtin_walk_shape(input->program, normalized, &shape),
            (long long)made->shape[dim], input->node->op,
            sonde__builtin_walk_line(input->program, input->node->place, &lost),
            (long long)scores->shape[input->classes], input->classes);
    }
}

/* --- losses ------------------------------------------------------------------------- */

/* Whether a normalizer gets what another one has made; that one is reported. */
static bool judge_nested(sonde_rule_run *run, const use *input,
                         const sonde_program_node *normalizer)
{
    int value = sonde__builtin_walk_first(normalizer);
    const sonde_program_node *inner = made_by(input->program, &value);

    if (inner == NULL || !sonde__builtin_walk_is(inner->op, SQUASHERS)) {
        return false;
    }
    report_twice(run, input, inner);
    return true;
}

/* relu before a loss of scores: none is negative. Of cross_entropy, that is a poor head that
 * learns; of binary_cross_entropy_with_logits, no probability is below one half. */
static void report_positive(sonde_rule_run *run, const use *input,
                            const sonde_program_node *maker)
{
    const bool classes = input->classes >= 0;
    sonde__builtin_text made, lost;

    if (sonde_rule_found_at(run,
                            sonde__builtin_walk_tensor(input->program, input->scores,
                                                       input->node->outputs[0]),
                            maker->place,
                            classes ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_ERROR,
                            "score", 0.0, -1.0)) {
        sonde_rule_say(
            run, "Leave out the activation after the last layer.",
            "%s%s makes the scores of %s%s: none is negative%s.", maker->op,
            sonde__builtin_walk_line(input->program, maker->place, &made),
            input->node->op,
            sonde__builtin_walk_line(input->program, input->node->place, &lost),
            classes ? ", and a class whose score is 0 learns nothing"
                    : ", so that no probability is below one half");
    }
}

/* For losses of scores: cross_entropy, binary_cross_entropy_with_logits. */
static void judge_scores(sonde_rule_run *run, const use *input)
{
    int value = input->scores;
    const sonde_program_node *maker = made_by(input->program, &value);

    int straight = input->scores;
    const sonde_program_node *last =
        sonde__builtin_walk_up(input->program, &straight, SHAPES);
    if (last != NULL && sonde__builtin_walk_is(last->op, "relu relu6") &&
        last->output_count > 0 && is_of_layer(input->program, last)) {
        report_positive(run, input, last);
        return;
    }
    if (maker == NULL) {
        return;
    }
    if (sonde__builtin_walk_is(maker->op, SQUASHERS " logsigmoid") &&
        !(sonde__builtin_walk_is(maker->op, "logsigmoid") && input->classes >= 0)) {
        report_twice(run, input, maker);
    } else if (sonde__builtin_walk_is(maker->op, "log_softmax") &&
               !judge_nested(run, input, maker)) {
        judge_dim(run, input, maker, value);
    }
}

/* For losses of log-probabilities: nll_loss, kl_div. */
static void judge_logs(sonde_rule_run *run, const use *input)
{
    int value = input->scores;
    const sonde_program_node *maker = made_by(input->program, &value);

    if (maker == NULL) {
        return;
    }
    if (sonde__builtin_walk_is(maker->op, SQUASHERS " " SCORES)) {
        report_missing(
            run, input, maker,
            sonde__builtin_walk_is(maker->op, SQUASHERS)
                ? "Take log_softmax instead, or pass the scores to cross_entropy."
                : "Apply log_softmax first, or use cross_entropy.");
        return;
    }
    if (sonde__builtin_walk_is(maker->op, "log")) {
        value = sonde__builtin_walk_first(maker);
        maker = made_by(input->program, &value);
    }
    if (maker != NULL && sonde__builtin_walk_is(maker->op, "softmax log_softmax") &&
        !judge_nested(run, input, maker)) {
        judge_dim(run, input, maker, value);
    }
}

/* cross_entropy of scores of one class is 0. */
static bool judge_one_class(sonde_rule_run *run, const use *input)
{
    sonde__builtin_text line, shape;

    if (!sonde__builtin_walk_is(input->node->op, "cross_entropy") ||
        input->program->values[input->scores].shape[input->classes] != 1) {
        return false;
    }
    if (found(run, input, input->node->place, "classes", 1.0, 2.0)) {
        sonde_rule_say(
            run,
            "Use binary_cross_entropy_with_logits for one output, or give the last "
            "layer two.",
            "%s%s gets scores %s, of one class: its softmax is always 1, the loss 0.",
            input->node->op,
            sonde__builtin_walk_line(input->program, input->node->place, &line),
            sonde__builtin_walk_shape(input->program, input->scores, &shape));
    }
    return true;
}

/* Softmax of one value is 1, whatever that value is. Whether it is so, which is reported. */
static bool judge_single(sonde_rule_run *run, const use *input)
{
    const sonde_program *program = input->program;
    int value = input->scores;
    const sonde_program_node *maker = made_by(program, &value);
    sonde__builtin_text line, shape;

    if (maker == NULL || !sonde__builtin_walk_is(maker->op, "softmax log_softmax")) {
        return false;
    }
    const int dim = sonde__builtin_walk_dim(maker, program->values[value].rank);
    if (dim < 0 || program->values[value].shape[dim] != 1) {
        return false;
    }
    if (found(run, input, maker->place, "values", 1.0, 2.0)) {
        sonde_rule_say(run, "Use a sigmoid for one output.",
                       "%s%s runs over a single value, dimension %d of %s: its result is "
                       "always %d, and no gradient passes.",
                       maker->op, sonde__builtin_walk_line(program, maker->place, &line),
                       dim, sonde__builtin_walk_shape(program, value, &shape),
                       sonde__builtin_walk_is(maker->op, "softmax") ? 1 : 0);
    }
    return true;
}

/* For binary_cross_entropy, of probabilities: a sigmoid of a sigmoid is 0.5 to 0.73. */
static void judge_probabilities(sonde_rule_run *run, const use *input)
{
    int value = input->scores;
    const sonde_program_node *outer = made_by(input->program, &value);
    int before = outer != NULL && sonde__builtin_walk_is(outer->op, "sigmoid")
                     ? sonde__builtin_walk_first(outer)
                     : -1;
    const sonde_program_node *inner =
        before >= 0 ? made_by(input->program, &before) : NULL;
    sonde__builtin_text made, again;

    if (inner != NULL && sonde__builtin_walk_is(inner->op, SQUASHERS) &&
        found(run, input, inner->place, "probability", 0.5, 0.0)) {
        sonde_rule_say(
            run, "Apply the sigmoid once.",
            "%s%s makes numbers of 0 to 1, and sigmoid%s is applied to them again: no "
            "probability lies outside of 0.5 to 0.73.",
            inner->op, sonde__builtin_walk_line(input->program, inner->place, &made),
            sonde__builtin_walk_line(input->program, outer->place, &again));
    }
}

static void judge_loss(sonde_rule_run *run, const sonde_program *program,
                       const sonde_program_node *node)
{
    use input = {.program = program,
                 .node = node,
                 .scores = sonde__builtin_walk_operand(node, 0),
                 .targets = sonde__builtin_walk_operand(node, 1),
                 .classes = -1};

    if (input.scores < 0) {
        return;
    }
    const sonde_program_value *scores = &program->values[input.scores];
    if (sonde__builtin_walk_is(node->op, "cross_entropy nll_loss")) {
        input.classes = scores->rank >= 2 ? 1 : 0;
    }
    if (scores->rank > 0 &&
        ((sonde__builtin_walk_is(node->op, LOSSES) && judge_single(run, &input)) ||
         judge_one_class(run, &input))) {
        return;
    }
    if (sonde__builtin_walk_is(node->op,
                               "cross_entropy binary_cross_entropy_with_logits")) {
        judge_scores(run, &input);
    } else if (sonde__builtin_walk_is(node->op, "nll_loss kl_div")) {
        judge_logs(run, &input);
    } else if (sonde__builtin_walk_is(node->op, "binary_cross_entropy")) {
        judge_probabilities(run, &input);
    }
}

/* --- in the middle ------------------------------------------------------------------- */

/* Whether a value, or a view of it, weights others: a product reads it. */
static bool is_weight(const sonde_program *program, int value)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        for (size_t k = 0; k < node->input_count &&
                           sonde__builtin_walk_is(node->op, "matmul mul einsum baddbmm");
             k++) {
            int read = node->inputs[k];

            (void)sonde__builtin_walk_up(program, &read, SHAPES " expand");
            if (read == value) {
                return true;
            }
        }
    }
    return false;
}

/* Softmax over a single value of what a layer makes is 1, whatever follows. */
static void judge_alone(sonde_rule_run *run, const sonde_program *program,
                        const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_first(node), output = node->outputs[0];
    const int rank = value >= 0 ? program->values[value].rank : 0;
    const int dim = rank >= 2 ? sonde__builtin_walk_dim(node, rank) : -1;
    sonde__builtin_text line, shape;

    if (dim < 0 || program->values[value].shape[dim] != 1 ||
        !is_of_layer(program, node) || is_weight(program, output)) {
        return;
    }
    if (sonde_rule_found_at(run, sonde__builtin_walk_tensor(program, output, -1),
                            node->place, SONDE_SEVERITY_ERROR, "values", 1.0, 2.0)) {
        sonde_rule_say(run, "Apply it along the dimension of the classes or actions.",
                       "%s%s runs over a single value, dimension %d of %s: its result is "
                       "always %d, and no gradient passes.",
                       node->op, sonde__builtin_walk_line(program, node->place, &line),
                       dim, sonde__builtin_walk_shape(program, value, &shape),
                       sonde__builtin_walk_is(node->op, "softmax") ? 1 : 0);
    }
}

/* Whether a loss gets what a normalizer makes: it is judged there. */
static bool is_judged(const sonde_program *program, const sonde_program_node *normalizer)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        int value = sonde__builtin_walk_operand(node, 0);

        if (value >= 0 && sonde__builtin_walk_is(node->op, LOSSES) &&
            made_by(program, &value) == normalizer) {
            return true;
        }
    }
    return false;
}

/* Whether an operation takes the logarithms of shares: log_softmax, or x - logsumexp(x). */
static bool normalizes(const sonde_program *program, const sonde_program_node *node)
{
    const sonde_program_node *whole =
        sonde__builtin_walk_maker(program, sonde__builtin_walk_operand(node, 1));

    return sonde__builtin_walk_is(node->op, "log_softmax") ||
           (sonde__builtin_walk_is(node->op, "sub") && whole != NULL &&
            sonde__builtin_walk_is(whole->op, "logsumexp") &&
            sonde__builtin_walk_first(whole) == sonde__builtin_walk_first(node));
}

/* Shares that are taken for scores, outside of a loss. */
static void judge_again(sonde_rule_run *run, const sonde_program *program,
                        const sonde_program_node *node)
{
    int value = sonde__builtin_walk_first(node);
    const sonde_program_node *inner = sonde__builtin_walk_up(program, &value, SHAPES);
    sonde__builtin_text made, again;

    if (inner == NULL || !sonde__builtin_walk_is(inner->op, "softmax") ||
        !normalizes(program, node) || is_judged(program, node)) {
        return;
    }
    if (sonde_rule_found_at(run, sonde__builtin_walk_tensor(program, value, -1),
                            inner->place, SONDE_SEVERITY_ERROR, "twice", 2.0, 1.0)) {
        sonde_rule_say(
            run, "Pass the scores themselves, or say that these are probabilities.",
            "softmax%s makes probabilities, and %s%s takes them for scores and "
            "normalizes them again: no probability comes near 0 or 1.",
            sonde__builtin_walk_line(program, inner->place, &made),
            sonde__builtin_walk_is(node->op, "sub") ? "logsumexp" : node->op,
            sonde__builtin_walk_line(program, node->place, &again));
    }
}

/* --- attention ---------------------------------------------------------------------- */

#define BETWEEN "to clone dropout contiguous masked_fill add where mul div identity"

/* Whether softmax was applied to a product, which may have been masked and scaled. */
static bool is_of_product(const sonde_program *program, const sonde_program_node *softmax)
{
    int value = sonde__builtin_walk_first(softmax);
    const sonde_program_node *maker = sonde__builtin_walk_up(program, &value, BETWEEN);

    return maker != NULL && sonde__builtin_walk_is(maker->op, "matmul baddbmm");
}

/* A product of weights, which softmax made, with values. */
static void judge_product(sonde_rule_run *run, const sonde_program *program,
                          const sonde_program_node *product, sonde_place *said)
{
    int value = sonde__builtin_walk_operand(product, 0);
    const sonde_program_node *softmax =
        sonde__builtin_walk_up(program, &value, "to clone dropout contiguous identity");

    if (softmax == NULL || !sonde__builtin_walk_is(softmax->op, "softmax") ||
        program->values[value].rank < 3 || !is_of_product(program, softmax)) {
        return;
    }
    const int rank = program->values[value].rank;
    const int dim = sonde__builtin_walk_dim(softmax, rank);
    sonde__builtin_text line, shape;

    if (dim >= 0 && dim != rank - 1 &&
        !sonde__builtin_walk_is_said(said, softmax->place) &&
        sonde_rule_found_at(run, sonde__builtin_walk_tensor(program, value, -1),
                            softmax->place, SONDE_SEVERITY_WARNING, "dim", (double)dim,
                            (double)(rank - 1))) {
        sonde_rule_say(
            run, "Apply softmax along the last dimension, that of the keys.",
            "softmax runs along dimension %d of %s, but the product%s sums over "
            "the last one: the weights of a query do not add up to 1.",
            dim, sonde__builtin_walk_shape(program, value, &shape),
            sonde__builtin_walk_line(program, product->place, &line));
    }
}

/* --- dimensions elsewhere ------------------------------------------------------------- */

/* The softmax that makes a value, or its logarithm, and its dimension; NULL: none does. */
static const sonde_program_node *find_softmax(const sonde_program *program, int value,
                                              int *dim)
{
    const int rank = value >= 0 ? program->values[value].rank : 0;
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_PLAIN " log add");

    if (made == NULL || !sonde__builtin_walk_is(made->op, "softmax log_softmax")) {
        return NULL;
    }
    *dim = sonde__builtin_walk_dim(made, rank);
    return *dim >= 0 ? made : NULL;
}

static void report_dim(sonde_rule_run *run, const sonde_program *program,
                       const sonde_program_node *softmax, int dim, int right,
                       const sonde_program_node *reader, const char *does)
{
    sonde__builtin_text shape, line, at;

    if (sonde_rule_found_at(
            run, sonde__builtin_walk_tensor(program, softmax->outputs[0], -1),
            softmax->place, SONDE_SEVERITY_ERROR, "dim", (double)dim, (double)right)) {
        sonde_rule_say(
            run, "Apply softmax along the dimension of the classes or actions.",
            "%s%s runs along dimension %d of %s, but %s%s %s dimension %d.", softmax->op,
            sonde__builtin_walk_line(program, softmax->place, &line), dim,
            sonde__builtin_walk_shape(program, softmax->outputs[0], &shape), reader->op,
            sonde__builtin_walk_line(program, reader->place, &at), does, right);
    }
}

/* gather takes one of the probabilities of a sample, along another dimension than softmax. */
static void judge_gather(sonde_rule_run *run, const sonde_program *program,
                         const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_operand(node, 0),
              places = sonde__builtin_walk_operand(node, 1);
    const int rank = value >= 0 ? program->values[value].rank : 0;
    const int along = rank >= 2 ? sonde__builtin_walk_dim(node, rank) : -1;
    int dim = -1;
    const sonde_program_node *softmax =
        along >= 0 && places >= 0 && program->values[places].rank == rank
            ? find_softmax(program, value, &dim)
            : NULL;

    if (softmax != NULL && dim != along && program->values[places].shape[along] == 1 &&
        program->values[value].shape[along] > 1) {
        report_dim(run, program, softmax, dim, along, node, "chooses along");
    }
}

/* Probabilities are divided by their sums along another dimension, as torch.distributions
 * does with them. */
static void judge_sum(sonde_rule_run *run, const sonde_program *program,
                      const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_operand(node, 0);
    const sonde_program_node *sum =
        sonde__builtin_walk_maker(program, sonde__builtin_walk_operand(node, 1));
    const int rank = value >= 0 ? program->values[value].rank : 0;
    int dim = -1;

    if (rank < 2 || sum == NULL || !sonde__builtin_walk_is(sum->op, "sum") ||
        sonde__builtin_walk_first(sum) != value) {
        return;
    }
    const sonde_program_node *softmax = find_softmax(program, value, &dim);
    const int along = sonde__builtin_walk_dim(sum, rank);
    if (softmax != NULL && along >= 0 && dim != along &&
        program->values[value].shape[along] > 1) {
        report_dim(run, program, softmax, dim, along, node, "divides by sums along");
    }
}

/* Softmax over the samples of what a convolution makes. */
static void judge_images(sonde_rule_run *run, const sonde_program *program,
                         const sonde_program_node *node)
{
    int value = sonde__builtin_walk_first(node);
    const int rank = value >= 0 ? program->values[value].rank : 0;
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_PLAIN);
    const bool batched =
        made != NULL &&
        ((rank == 3 && sonde__builtin_walk_is(made->op, "conv1d conv_transpose1d")) ||
         (rank == 4 && sonde__builtin_walk_is(made->op, "conv2d conv_transpose2d")) ||
         (rank == 5 && sonde__builtin_walk_is(made->op, "conv3d conv_transpose3d")));

    if (batched && sonde__builtin_walk_dim(node, rank) == 0 &&
        program->values[value].shape[1] > 1) {
        report_dim(run, program, node, 0, 1, made, "makes classes along");
    }
}

/* --- the rule ----------------------------------------------------------------------- */

void sonde__builtin_softmax_program(sonde_rule_run *run, const sonde_program *program)
{
    bool *marks = sonde__builtin_walk_marks(run, program);
    sonde_place said = {NULL, 0};

    if (marks == NULL || !sonde__builtin_walk_objectives(program, marks)) {
        sonde__free(marks);
        return;
    }
    sonde__rule_judged_program(run);
    sonde__builtin_walk_above(program, marks, false);
    sonde__builtin_mask_program(run, program, marks);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count == 0 || !marks[node->outputs[0]] ||
            !program->values[node->outputs[0]].requires_grad) {
            continue;
        }
        if (sonde__builtin_walk_is(node->op, "matmul")) {
            judge_product(run, program, node, &said);
        } else if (sonde__builtin_walk_is(node->op, "softmax log_softmax")) {
            judge_alone(run, program, node);
            judge_images(run, program, node);
            judge_again(run, program, node);
        } else if (sonde__builtin_walk_is(node->op, "sub")) {
            judge_again(run, program, node);
        } else if (sonde__builtin_walk_is(node->op, "index")) {
            judge_gather(run, program, node);
        } else if (sonde__builtin_walk_is(node->op, "div")) {
            judge_sum(run, program, node);
        } else {
            judge_loss(run, program, node);
        }
    }
    sonde__free(marks);
}
