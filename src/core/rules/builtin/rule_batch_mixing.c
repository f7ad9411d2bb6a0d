/*
 * BatchMixing - what the network makes of a sample depends on other samples of the batch.
 *
 * Judged is the program of a training step. The dimension that counts the samples is followed
 * from the input on (program_samples.h). Fires when a value of which the objective is made
 * and that gradients flow through
 *     cut        is reshaped so that a row holds parts of several samples, and a layer with
 *                weights reads it before a reshape takes that back;
 *     steps      goes into a recurrent layer whose steps are the samples, or into attention
 *                whose positions are: batch_first is wrong. Where there would be one
 *                sequence alone, only if a loader shuffles the samples;
 *     features   goes into a layer that takes the samples for features, channels or places;
 *     shares     is normalized over the samples, by softmax or by a division by the sum, and
 *                the predictions of a loss are made of it.
 *     turned     is reshaped from (a, b, c) to (b, a, c), say, which was meant to transpose it, and
 *                a layer reads that, or the targets of a loss are not turned;
 *     pooled     is a mean, a sum or the largest over the samples, which a layer reads;
 *     heads      is reshaped so that positions of a sequence mix (program_heads.c);
 *     choice     is chosen by gather along the samples, or by max over them, which was meant
 *                for the dimension of classes or actions.
 * Steps, features, shares and choices are judged only where the targets or the loader show which
 * dimension counts samples. What softmax does right before a loss is SoftmaxMisuse's.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_samples.h"
#include "rules/builtin/program_walk.h"

#include "base/memory.h"

#include <string.h>

#define LAYERS                                                                           \
    "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d "            \
    "conv_transpose3d lstm gru rnn_tanh rnn_relu lstm_cell gru_cell matmul "             \
    "multi_head_attention_forward scaled_dot_product_attention"
#define RESHAPES "reshape squeeze unsqueeze contiguous"
#define RECURRENT "lstm gru rnn_tanh rnn_relu"
#define NORMALIZERS "softmax log_softmax softmin"

typedef struct mixing {
    bool shown;
} mixing;

/* A program with what is known of its values. */
typedef struct mixed {
    const sonde_program *program;
    const sonde__builtin_samples *samples;
    const bool *used;      /* values that the objective is made of */
    const bool *learned;   /* those that its gradients flow through */
    const bool *predicted; /* values that the predictions of a loss are made of */
} mixed;

static const char *tensor_of(const mixed *m, int value, int otherwise)
{
    return sonde__builtin_walk_tensor(m->program, value, otherwise);
}

/* --- cut ------------------------------------------------------------------------------- */

/* A layer reads what a reshape has cut. */
static void report_cut(sonde_rule_run *run, const mixed *m, int cut, int layer)
{
    const sonde_program *program = m->program;
    const sonde_program_node *node = &program->nodes[cut],
                             *reader = &program->nodes[layer];
    const int before = sonde__builtin_walk_first(node), after = node->outputs[0];
    const int dim = m->samples[before].dim;
    sonde__builtin_text from, to, line, at;

    if (sonde_rule_found_at(run, tensor_of(m, after, reader->outputs[0]), node->place,
                            SONDE_SEVERITY_ERROR, "cut", 1.0, 0.0)) {
        sonde_rule_say(
            run,
            "Keep the samples in their dimension: transpose or permute before reshape.",
            "%s%s turns %s, whose dimension %d counts the samples, into %s: a row holds "
            "parts of several samples, and %s%s reads them as one.",
            node->op, sonde__builtin_walk_line(program, node->place, &line),
            sonde__builtin_walk_shape(program, before, &from), dim,
            sonde__builtin_walk_shape(program, after, &to), reader->op,
            sonde__builtin_walk_line(program, reader->place, &at));
    }
}

/* --- layers ---------------------------------------------------------------------------- */

/* Whether there would be a single sequence, which may be so. */
static bool is_one_sequence(const mixed *m, int value)
{
    const sonde_program_value *row = &m->program->values[value];

    return (row->rank == 2 || row->shape[1 - m->samples[value].dim] == 1) &&
           !sonde__builtin_samples_are_shuffled(m->program);
}

static void report_layer(sonde_rule_run *run, const mixed *m, int layer)
{
    const sonde_program *program = m->program;
    const sonde_program_node *node = &program->nodes[layer];
    const int value = node->inputs[0];
    const int dim = m->samples[value].dim;
    const bool attends = sonde__builtin_walk_is(node->op, "multi_head_attention_forward"),
               recurs = sonde__builtin_walk_is(node->op, RECURRENT);
    sonde__builtin_text shape, line;

    if ((attends || recurs) && is_one_sequence(m, value)) {
        return;
    }
    if (sonde_rule_found_at(run, tensor_of(m, node->outputs[0], value), node->place,
                            SONDE_SEVERITY_ERROR, "dim", (double)dim, -1.0)) {
        sonde_rule_say(
            run,
            attends || recurs
                ? "Set batch_first so that it fits the input, or transpose "
                  "the input."
                : "Transpose the input, so that the layer sees one sample at "
                  "a time.",
            "%s%s gets %s, whose dimension %d counts the samples, and takes them for %s.",
            attends ? "attention" : node->op,
            sonde__builtin_walk_line(program, node->place, &line),
            sonde__builtin_walk_shape(program, value, &shape), dim,
            recurs                                       ? "the steps of a sequence"
            : attends                                    ? "the positions of a sequence"
            : sonde__builtin_walk_is(node->op, "linear") ? "features"
                                                         : "channels or places");
    }
}

/* --- shares ---------------------------------------------------------------------------- */

/* The operation that makes the sum over samples that a division divides by: of the numerator,
 * or of its exponential; NULL: it is not so. */
static const sonde_program_node *find_sum(const mixed *m, const sonde_program_node *node)
{
    int value = sonde__builtin_walk_operand(node, 1),
        whole = sonde__builtin_walk_operand(node, 0);
    const sonde_program_node *sum = sonde__builtin_walk_up(
        m->program, &value, "add clamp unsqueeze reshape expand contiguous");

    return sum != NULL && whole >= 0 && sonde__builtin_walk_is(sum->op, "sum") &&
                   sonde__builtin_walk_first(sum) == whole &&
                   sonde__builtin_samples_is_over(m->program, m->samples, sum)
               ? sum
               : NULL;
}

/* Whether a value goes straight into a loss. */
static bool is_scored(const mixed *m, int value)
{
    const sonde_program *program = m->program;

    for (size_t i = 0; i < program->loss_count; i++) {
        int one = program->losses[i].predictions;

        (void)sonde__builtin_walk_up(program, &one,
                                     SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " log");
        if (one == value) {
            return program->losses[i].node >= 0 &&
                   sonde__builtin_walk_is(program->nodes[program->losses[i].node].op,
                                          "cross_entropy nll_loss kl_div");
        }
    }
    return false;
}

static void judge_shares(sonde_rule_run *run, const mixed *m,
                         const sonde_program_node *node)
{
    const sonde_program *program = m->program;
    const sonde_program_loss *loss = sonde__builtin_samples_loss(program);
    const bool divides = sonde__builtin_walk_is(node->op, "div");
    const sonde_program_node *over =
        divides ? find_sum(m, node)
        : sonde__builtin_walk_is(node->op, NORMALIZERS) &&
                sonde__builtin_samples_is_over(program, m->samples, node)
            ? node
            : NULL;
    const int output = node->outputs[0];
    sonde__builtin_text shape, line;

    if (over == NULL || loss == NULL || !m->predicted[output] ||
        m->samples[loss->predictions].kind != SONDE__SAMPLES_ALONG ||
        is_scored(m, output)) {
        return;
    }
    const int value = sonde__builtin_walk_first(over);
    const int dim = m->samples[value].dim;
    if (m->samples[value].sure &&
        sonde_rule_found_at(run, tensor_of(m, output, -1), node->place,
                            SONDE_SEVERITY_ERROR, "dim", (double)dim, -1.0)) {
        sonde_rule_say(run, "Normalize along the dimension of the features.",
                       "%s%s runs over dimension %d of %s, which counts the samples: "
                       "what is made of one depends on the others.",
                       divides ? "The sum that div divides by" : node->op,
                       sonde__builtin_walk_line(program, node->place, &line), dim,
                       sonde__builtin_walk_shape(program, value, &shape));
    }
}

/* --- choices --------------------------------------------------------------------------- */

/* Whether gather takes one value for each sample, out of the dimension of the samples. */
static bool gathers(const mixed *m, const sonde_program_node *node, int dim)
{
    const int value = sonde__builtin_walk_operand(node, 0),
              places = sonde__builtin_walk_operand(node, 1);

    if (places < 0 || !sonde__builtin_walk_is(node->op, "index") || dim != 0 ||
        sonde__builtin_walk_dim(node, 2) != 0 || !m->learned[node->outputs[0]]) {
        return false;
    }
    const sonde_program_value *from = &m->program->values[value],
                              *at = &m->program->values[places];
    return at->rank == 2 && at->shape[0] == from->shape[0] && at->shape[1] == 1 &&
           from->shape[1] > 1;
}

/* Whether the largest of a column is taken of what a module makes. */
static bool takes_largest(const mixed *m, const sonde_program_node *node)
{
    int value = sonde__builtin_walk_first(node);
    const sonde_program_node *made =
        sonde__builtin_walk_up(m->program, &value, "detach " SONDE__WALK_PLAIN);

    return sonde__builtin_walk_is(node->op, "max amax") && node->input_count == 1 &&
           node->module < 0 && made != NULL && made->module >= 0 &&
           sonde__builtin_samples_is_over(m->program, m->samples, node);
}

static void judge_choice(sonde_rule_run *run, const mixed *m,
                         const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_operand(node, 0);
    const sonde_program_value *row = value >= 0 ? &m->program->values[value] : NULL;
    sonde__builtin_text shape, line;

    if (row == NULL || row->rank != 2 || row->shape[0] == row->shape[1] ||
        row->shape[1] < 2 || m->samples[value].kind != SONDE__SAMPLES_ALONG ||
        !m->samples[value].sure) {
        return;
    }
    const int dim = m->samples[value].dim;
    const bool gather = gathers(m, node, dim);
    if ((gather || takes_largest(m, node)) &&
        sonde_rule_found_at(run, tensor_of(m, node->outputs[0], value), node->place,
                            SONDE_SEVERITY_ERROR, gather ? "gather" : "largest",
                            (double)dim, (double)(1 - dim))) {
        sonde_rule_say(run, "Choose along the dimension of the classes or actions.",
                       "%s%s runs along dimension %d of %s, which counts the samples: a "
                       "sample gets the value of another one.",
                       gather ? "gather" : node->op,
                       sonde__builtin_walk_line(m->program, node->place, &line), dim,
                       sonde__builtin_walk_shape(m->program, value, &shape));
    }
}

/* --- turned ---------------------------------------------------------------------------- */

/* Dimensions of more than one place. */
static int wide_dims(const sonde_program_value *row, int64_t wide[SONDE_MAX_DIMS])
{
    int count = 0;

    for (int d = 0; d < row->rank; d++) {
        if (row->shape[d] != 1) {
            wide[count++] = row->shape[d];
        }
    }
    return count;
}

/* Whether a reshape leaves all dimensions as long as they were, in another order. */
static bool is_turned(const sonde_program *program, const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_first(node);
    int64_t from[SONDE_MAX_DIMS] = {0}, to[SONDE_MAX_DIMS] = {0};

    if (value < 0 || !sonde__builtin_walk_is(node->op, "reshape")) {
        return false;
    }
    const int count = wide_dims(&program->values[value], from);
    if (count < 2 || wide_dims(&program->values[node->outputs[0]], to) != count ||
        memcmp(from, to, sizeof from) == 0) {
        return false;
    }
    for (int i = 0; i < count; i++) { /* to is a permutation of from */
        int k = 0;

        while (k < count && to[k] != from[i]) {
            k++;
        }
        if (k == count) {
            return false;
        }
        to[k] = -1;
    }
    return true;
}

/* Whether another reshape has, or had, the order of before again. */
static bool is_taken_back(const sonde_program *program, const sonde_program_node *node)
{
    const sonde_program_value *before = &program->values[sonde__builtin_walk_first(node)],
                              *after = &program->values[node->outputs[0]];

    for (const sonde_program_node *next = program->nodes;
         next < program->nodes + program->node_count; next++) {
        const int value = sonde__builtin_walk_first(next);

        if (value >= 0 && next->output_count > 0 &&
            sonde__builtin_walk_is(next->op, RESHAPES) &&
            sonde__builtin_walk_same_shape(&program->values[value], after) &&
            sonde__builtin_walk_same_shape(&program->values[next->outputs[0]], before)) {
            return true;
        }
    }
    return false;
}

/* Whether a layer reads what is made of a value. marks: room. */
static bool is_read(const mixed *m, int value, bool *marks)
{
    const sonde_program *program = m->program;

    memset(marks, 0, program->value_count * sizeof *marks);
    marks[value] = true;
    sonde__builtin_walk_below(program, marks, false);
    for (size_t i = 0; i < program->node_count; i++) {
        const int first = sonde__builtin_walk_operand(&program->nodes[i], 0);

        if (first >= 0 && marks[first] &&
            sonde__builtin_walk_is(program->nodes[i].op, LAYERS)) {
            return true;
        }
    }
    return false;
}

/* Whether the targets of the loss are turned as well: the pairs are as they were. */
static bool are_targets_turned(const mixed *m, bool *marks)
{
    const sonde_program *program = m->program;
    const sonde_program_loss *loss = sonde__builtin_samples_loss(program);

    memset(marks, 0, program->value_count * sizeof *marks);
    if (loss == NULL) {
        return true; /* nothing is known of pairs */
    }
    marks[loss->targets] = true;
    sonde__builtin_walk_above(program, marks, false);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count > 0 && marks[node->outputs[0]] &&
            is_turned(program, node)) {
            return true;
        }
    }
    return false;
}

/* Whether it matters that a reshape turns. */
static bool is_felt(sonde_rule_run *run, const mixed *m, const sonde_program_node *node)
{
    bool *marks = sonde__builtin_walk_marks(run, m->program);
    const bool felt = marks != NULL &&
                      (is_read(m, node->outputs[0], marks) ||
                       (m->predicted[node->outputs[0]] && !are_targets_turned(m, marks)));

    sonde__free(marks);
    return felt;
}

static void judge_turned(sonde_rule_run *run, const mixed *m,
                         const sonde_program_node *node, sonde_place *said)
{
    const sonde_program *program = m->program;
    sonde__builtin_text from, to, line;

    if (is_turned(program, node) && !is_taken_back(program, node) &&
        is_felt(run, m, node) && !sonde__builtin_walk_is_said(said, node->place) &&
        sonde_rule_found_at(run, tensor_of(m, node->outputs[0], -1), node->place,
                            SONDE_SEVERITY_ERROR, "turned", 1.0, 0.0)) {
        sonde_rule_say(
            run, "Call transpose or permute: reshape and view move no element.",
            "%s%s turns %s into %s as if it transposed: a row now holds parts of several.",
            node->op, sonde__builtin_walk_line(program, node->place, &line),
            sonde__builtin_walk_shape(program, sonde__builtin_walk_first(node), &from),
            sonde__builtin_walk_shape(program, node->outputs[0], &to));
    }
}

/* --- pooled ---------------------------------------------------------------------------- */

static void judge_pooled(sonde_rule_run *run, const mixed *m,
                         const sonde_program_node *node)
{
    const sonde_program *program = m->program;
    const sonde_program_loss *loss = sonde__builtin_samples_loss(program);
    int value = sonde__builtin_walk_operand(node, 0);
    const sonde_program_node *over = sonde__builtin_walk_up(
        program, &value, RESHAPES " expand repeat dropout relu clone");
    sonde__builtin_text shape, line, at;

    if (over == NULL || loss == NULL || !sonde__builtin_walk_is(node->op, "linear") ||
        !sonde__builtin_walk_is(over->op, "mean sum max amax") ||
        !sonde__builtin_samples_is_over(program, m->samples, over)) {
        return;
    }
    const int pooled = sonde__builtin_walk_first(over);
    const sonde_program_value *targets = &program->values[loss->targets];
    const int dim = m->samples[pooled].dim;
    if (m->samples[pooled].sure && targets->rank > 0 &&
        targets->shape[0] == program->values[pooled].shape[dim] &&
        sonde_rule_found_at(run, tensor_of(m, over->outputs[0], node->outputs[0]),
                            over->place, SONDE_SEVERITY_ERROR, "pooled", (double)dim,
                            -1.0)) {
        sonde_rule_say(run, "Pool over the positions of a sample, not over the samples.",
                       "%s%s runs over dimension %d of %s, which counts the samples, and "
                       "%s%s reads the result: all samples look alike to it.",
                       over->op, sonde__builtin_walk_line(program, over->place, &line),
                       dim, sonde__builtin_walk_shape(program, pooled, &shape), node->op,
                       sonde__builtin_walk_line(program, node->place, &at));
    }
}

/* --- the rule -------------------------------------------------------------------------- */

/* The operation that cut what a layer reads; -1: none did. */
static int find_cut(const mixed *m, const sonde_program_node *node)
{
    for (size_t i = 0; i < node->input_count; i++) {
        const int value = node->inputs[i];

        if (value >= 0 && m->samples[value].kind == SONDE__SAMPLES_CUT) {
            return m->samples[value].node;
        }
    }
    return -1;
}

static void judge_node(sonde_rule_run *run, const mixed *m, int number)
{
    const sonde_program_node *node = &m->program->nodes[number];
    const int value = sonde__builtin_walk_operand(node, 0);

    judge_shares(run, m, node);
    judge_pooled(run, m, node);
    if (!sonde__builtin_walk_is(node->op, LAYERS)) {
        return;
    }
    const int cut = find_cut(m, node);
    const sonde__builtin_samples *made = &m->samples[node->outputs[0]];
    if (cut >= 0) {
        if (sonde__builtin_walk_is(m->program->nodes[cut].op, RESHAPES) &&
            !is_turned(m->program, &m->program->nodes[cut])) {
            report_cut(run, m, cut, number);
        }
    } else if (made->kind == SONDE__SAMPLES_CUT && made->node == number && made->sure &&
               value >= 0) {
        report_layer(run, m, number);
    }
}

static void judge_program(sonde_rule_run *run, const mixed *m)
{
    const sonde_program *program = m->program;
    sonde_place said = {NULL, 0};

    sonde__builtin_heads_program(run, program, m->learned);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count > 0 && m->used[node->outputs[0]]) {
            judge_choice(run, m, node);
            judge_turned(run, m, node, &said);
        }
        if (node->output_count > 0 && m->learned[node->outputs[0]]) {
            judge_node(run, m, (int)i);
        }
    }
}

static void judge(sonde_rule_run *run, const sonde_program *program)
{
    mixing *state = sonde_rule_state(run);
    const sonde_program_loss *loss = sonde__builtin_samples_loss(program);

    if (!sonde__builtin_walk_trains(program)) {
        return;
    }
    state->shown = true;
    bool *used = sonde__builtin_walk_marks(run, program),
         *learned = sonde__builtin_walk_marks(run, program),
         *predicted = sonde__builtin_walk_marks(run, program);
    sonde__builtin_samples *samples = sonde__builtin_samples_follow(run, program);
    if (used != NULL && learned != NULL && predicted != NULL && samples != NULL &&
        sonde__builtin_walk_objectives(program, learned)) {
        (void)sonde__builtin_walk_objectives(program, used);
        sonde__builtin_walk_above(program, used, false);
        sonde__builtin_walk_above(program, learned, true);
        if (loss != NULL) {
            predicted[loss->predictions] = true;
            sonde__builtin_walk_above(program, predicted, true);
        }
        judge_program(run, &(mixed){program, samples, used, learned, predicted});
    }
    sonde__free(samples);
    sonde__free(predicted);
    sonde__free(learned);
    sonde__free(used);
}

static void finish(sonde_rule_run *run)
{
    const mixing *state = sonde_rule_state(run);

    if (!state->shown) {
        sonde_rule_lacked(run, "the run has no program of a training step");
    }
}

const sonde_rule sonde__builtin_batch_mixing = {
    .abi = SONDE_RULE_ABI,
    .name = "BatchMixing",
    .summary = "what the network makes of a sample depends on others of the batch",
    .condition =
        "In the program of a training step, one of these holds: (1) a reshape puts parts of several samples into one row, and a layer reads that; "
        "(2) a recurrent layer or attention takes the samples for the steps of a sequence; (3) a layer takes them for features, channels or places; "
        "(4) softmax or a division by a sum normalizes over them, and predictions are made of the result; "
        "(5) gather chooses along them, or max runs over them, and the objective is made of the result; (6) a reshape takes the heads of attention for positions, without a transposition; (7) a reshape gives the dimensions another order, as a transposition would; (8) a linear layer reads a mean, a sum or the largest over the samples.",
    .advice = "Keep the samples apart: look at the shapes before and after this line.",
    .modes = SONDE__TRAIN,
    .state_size = sizeof(mixing),
    .finish = finish,
    .program = judge,
};
