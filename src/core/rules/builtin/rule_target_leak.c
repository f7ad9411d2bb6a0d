/*
 * TargetLeak - a model is given what it is to predict.
 *
 * Judged is the first loss of the program of a training step, if its labels are the tokens
 * of an input of the model: by the facts of the program, which compare their elements
 * (labels_shift, labels_input), or by the operations that make both of one value. A path leads from
 * the embeddings of these tokens through operations that keep the positions to the scores.
 * Fires when
 *     same      the labels are the tokens at the same positions. An error if attention is
 *               causal or a recurrent layer runs in one direction, which has no use
 *               otherwise; else a note: right for an autoencoder. Tokens that the program
 *               masks after the embedding are not judged;
 *     later     the labels are the next tokens, and attention without a mask, or a
 *               recurrent layer in both directions, leads from later positions to earlier
 *               ones.
 *
 * Floating targets are an input of the model by the operations that make both of one value,
 * or by the fact targets_input. Autoencoders have them, so that it fires only when
 *     noisy      the step makes this input of data and noise: a warning if the model gets
 *                another input (a time, a class), as models of noise do, else a note;
 *     copied     the input is a sequence, what predicts is causal as above and leads from each
 *                position to the same one through no layer with fewer outputs than the
 *                input has features.
 * And when
 *     column     the target of each sample is a column of its input (the fact
 *                targets_column): a note, as first trials learn that on purpose.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include "base/memory.h"

#include <string.h>

#define SAME SONDE__WALK_VIEWS " to clone detach contiguous"
#define HIDES "where masked_fill index_put masked_scatter"
#define RECURRENT "lstm gru rnn_tanh rnn_relu"

typedef struct leak_rule {
    bool shown;
} leak_rule;

/* The labels of a loss that are tokens of an input. */
typedef struct leak {
    const sonde_program *program;
    const sonde_program_loss *loss;
    int source;     /* the value of these tokens, (batch, length) or (length, batch) */
    bool shifted;   /* they are the next ones */
    int64_t length; /* positions */
    bool *marks;    /* values that keep the positions of the tokens */
} leak;

/* --- labels that are tokens ----------------------------------------------------------- */

/* The value that a value is a copy of, or another shape. */
static int origin(const sonde_program *program, int value)
{
    (void)sonde__builtin_walk_up(program, &value, SAME);
    return value;
}

static bool is_embedding(const sonde_program_node *node)
{
    return sonde__builtin_walk_is(node->op, "embedding one_hot") &&
           sonde__builtin_walk_operand(node, 0) >= 0 && node->output_count > 0;
}

/* The value that a slice of value was taken of; -1: it is no slice. */
static int sliced(const sonde_program *program, int value)
{
    const sonde_program_node *made = sonde__builtin_walk_maker(program, value);

    return made != NULL && sonde__builtin_walk_is(made->op, "index") &&
                   made->input_count == 1
               ? origin(program, made->inputs[0])
               : -1;
}

/* Whether tokens and labels are slices of one value that is a position longer. */
static bool find_slices(leak *found, int tokens, int labels)
{
    const sonde_program *program = found->program;
    const int whole = sliced(program, labels);

    if (whole < 0 || sliced(program, tokens) != whole) {
        return false;
    }
    const sonde_program_value *a = &program->values[tokens],
                              *b = &program->values[labels],
                              *all = &program->values[whole];
    if (!sonde__builtin_walk_same_shape(a, b) || a->rank != 2 || all->rank != 2) {
        return false;
    }
    for (int d = 0; d < 2; d++) {
        if (all->shape[d] == a->shape[d] + 1 && all->shape[1 - d] == a->shape[1 - d]) {
            found->length = a->shape[d];
            found->shifted = true;
            return true;
        }
    }
    return false;
}

/* By the operations that make the labels. */
static bool find_by_graph(leak *found)
{
    const sonde_program *program = found->program;
    const int labels = origin(program, found->loss->targets);

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (!is_embedding(node)) {
            continue;
        }
        const int tokens = origin(program, node->inputs[0]);
        const sonde_program_value *value = &program->values[tokens];

        found->source = tokens;
        if (tokens == labels && value->rank == 2) {
            found->length = value->shape[1];
            found->shifted = false;
            return true;
        }
        if (find_slices(found, tokens, labels)) {
            return true;
        }
    }
    return false;
}

/* By the facts, which compare the labels with the integer inputs, (batch, length). */
static bool find_by_facts(leak *found)
{
    const sonde_program *program = found->program;
    const double shift =
        sonde_attribute_number(program->facts, "labels_shift", (double)NAN);
    const sonde_program_value *labels = &program->values[found->loss->targets];
    const char *input = sonde_attribute_text(program->facts, "labels_input");
    const int source =
        sonde_program_find(program, input[0] != '\0' ? input : "input_ids");
    int64_t count = 1;

    if (!isfinite(shift) || source < 0 || program->values[source].rank != 2) {
        return false;
    }
    const int64_t *tokens = program->values[source].shape;
    for (int d = 0; d < labels->rank; d++) {
        count *= labels->shape[d];
    }
    if (count + tokens[0] < tokens[0] * tokens[1]) {
        return false; /* labels of a few positions alone */
    }
    found->source = origin(program, source);
    found->shifted = shift > 0.0;
    found->length = tokens[1];
    return true;
}

/* --- values that keep the positions --------------------------------------------------- */

static bool keeps(const leak *found, int value)
{
    const sonde_program_value *row = &found->program->values[value];
    const sonde_program_value *source = &found->program->values[found->source];

    for (int d = 0; d < row->rank; d++) {
        if (row->shape[d] == found->length ||
            row->shape[d] == source->shape[0] * source->shape[1]) {
            return true;
        }
    }
    return false;
}

/* Whether an operation replaces some of the tokens by others. */
static bool hides(const leak *found, const sonde_program_node *node)
{
    if (found->shifted) {
        return false;
    }
    if (sonde__builtin_walk_is(node->op, "mul") && node->input_count == 2) {
        for (int i = 0; i < 2; i++) {
            if (node->inputs[i] >= 0 && !found->marks[node->inputs[i]] &&
                !found->program->values[node->inputs[i]].requires_grad) {
                return true;
            }
        }
    }
    return sonde__builtin_walk_is(node->op, HIDES);
}

static bool reads_marked(const leak *found, const sonde_program_node *node)
{
    for (size_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] >= 0 && found->marks[node->inputs[i]]) {
            return true;
        }
    }
    return is_embedding(node) && origin(found->program, node->inputs[0]) == found->source;
}

/* Whether an operation takes one position out of several. */
static bool takes_one(const sonde_program *program, const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_first(node);

    return sonde__builtin_walk_is(node->op, "index") && node->input_count == 1 &&
           value >= 0 && sonde_dtype_is_float(program->values[value].dtype) &&
           program->values[node->outputs[0]].rank < program->values[value].rank;
}

static void mark(leak *found)
{
    for (size_t i = 0; i < found->program->node_count; i++) {
        const sonde_program_node *node = &found->program->nodes[i];

        if (!reads_marked(found, node) || hides(found, node)) {
            continue;
        }
        const bool recurs = sonde__builtin_walk_is(node->op, RECURRENT);
        for (size_t k = 0; k < node->output_count; k++) {
            found->marks[node->outputs[k]] = keeps(found, node->outputs[k]) &&
                                             !(recurs && k > 0) &&
                                             !takes_one(found->program, node);
        }
    }
}

/* --- ways from one position to another ------------------------------------------------ */

/* HIDDEN: by a mask that may be one of padding. */
typedef enum way { NONE, OPEN, CAUSAL, HIDDEN } way;

/* A mask of pairs of positions that is the same for all samples. */
static bool is_square(const leak *found, int value)
{
    const sonde_program_value *mask = value >= 0 ? &found->program->values[value] : NULL;

    if (mask == NULL || mask->rank < 2 || mask->shape[mask->rank - 1] != found->length ||
        mask->shape[mask->rank - 2] != found->length) {
        return false;
    }
    for (int d = 0; d < mask->rank - 2; d++) {
        if (mask->shape[d] != 1) {
            return false;
        }
    }
    return true;
}

static way by_mask(const leak *found, const sonde_program_node *node, size_t first)
{
    for (size_t i = first; i < node->input_count; i++) {
        if (is_square(found, node->inputs[i])) {
            return CAUSAL;
        }
    }
    return HIDDEN;
}

/* Attention that is one operation. first: the operand from which on masks may stand; at:
 * the dimension of the positions, from the end. */
static way whole_attention(const leak *found, const sonde_program_node *node,
                           size_t first, int at)
{
    for (size_t i = 0; i < 3; i++) {
        const int value = sonde__builtin_walk_operand(node, i);
        const sonde_program_value *row =
            value >= 0 && found->marks[value] ? &found->program->values[value] : NULL;

        if (row == NULL || row->rank < at ||
            row->shape[row->rank - at] != found->length) {
            return NONE;
        }
    }
    if (sonde_attribute_number(node->attributes, "is_causal", 0.0) > 0.0) {
        return CAUSAL;
    }
    return sonde_attribute_number(node->attributes, "attn_mask", 0.0) > 0.0
               ? by_mask(found, node, first)
               : OPEN;
}

/* The product of softmax, 0, and values, 1. */
static way attention_by_hand(const leak *found, const sonde_program_node *product)
{
    const sonde_program *program = found->program;
    int value = sonde__builtin_walk_operand(product, 0);
    const int values = sonde__builtin_walk_operand(product, 1);
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, "to clone dropout contiguous identity");

    if (made == NULL || values < 0 || !found->marks[values] ||
        !sonde__builtin_walk_is(made->op, "softmax")) {
        return NONE;
    }
    const sonde_program_value *weights = &program->values[value];
    if (weights->rank < 2 || weights->shape[weights->rank - 1] != found->length ||
        weights->shape[weights->rank - 2] != found->length) {
        return NONE;
    }
    value = sonde__builtin_walk_first(made);
    for (size_t left = program->node_count; left > 0; left--) {
        made = sonde__builtin_walk_up(program, &value, "to clone contiguous identity");
        if (made == NULL || !sonde__builtin_walk_is(made->op, "mul div") ||
            made->input_count > 1) {
            break;
        }
        value = sonde__builtin_walk_first(made);
    }
    return made == NULL ? NONE
           : sonde__builtin_walk_is(made->op, "matmul baddbmm einsum")
               ? OPEN
               : by_mask(found, made, 0);
}

/* How an operation leads from one position to others; NONE: it does not, or it is
 * unknown how. */
static way way_of(const leak *found, const sonde_program_node *node)
{
    if (sonde__builtin_walk_is(node->op, "scaled_dot_product_attention")) {
        return whole_attention(found, node, 3, 2);
    }
    if (sonde__builtin_walk_is(node->op, "multi_head_attention_forward")) {
        return whole_attention(found, node, 3, 3);
    }
    if (sonde__builtin_walk_is(node->op, "matmul einsum")) {
        return attention_by_hand(found, node);
    }
    if (sonde__builtin_walk_is(node->op, RECURRENT) && node->module >= 0 &&
        reads_marked(found, node)) {
        return sonde_attribute_number(found->program->modules[node->module].attributes,
                                      "bidirectional", 0.0) > 0.0
                   ? OPEN
                   : CAUSAL;
    }
    return NONE;
}

/* --- floating targets ------------------------------------------------------------------ */

/* The input of the model that floating targets are; -1: none. */
static int find_same_input(const leak *found)
{
    const sonde_program *program = found->program;
    const char *name = sonde_attribute_text(program->facts, "targets_input");
    const int targets = origin(program, found->loss->targets);

    for (size_t i = 0; i < program->value_count; i++) {
        const char *tensor = program->values[i].tensor;

        if (strncmp(tensor, "input", 5) == 0 && (tensor[5] == '\0' || tensor[5] == '/') &&
            (origin(program, (int)i) == targets || strcmp(tensor, name) == 0)) {
            return (int)i;
        }
    }
    return -1;
}

/* Whether operations of the step, outside of modules, make a value of data and noise. */
static bool is_noisy(const sonde_program *program, int value, bool *marks)
{
    bool noise = false, data = false;

    marks[value] = true;
    sonde__builtin_walk_above(program, marks, false);
    for (size_t i = 0; i < program->value_count; i++) {
        const sonde_program_node *made =
            marks[i] ? sonde__builtin_walk_maker(program, (int)i) : NULL;
        const sonde_program_value *row = &program->values[i];

        if (marks[i] && (row->requires_grad || (made != NULL && made->module >= 0))) {
            return false; /* a network makes it */
        }
        noise =
            noise || (made != NULL && sonde__builtin_walk_is(made->op, "randn normal"));
        data = data || (marks[i] && row->kind == SONDE_VALUE_INPUT && row->rank > 0);
    }
    return noise && data;
}

/* Whether the model has more than one input. */
static bool has_another_input(const sonde_program *program)
{
    return sonde_program_find(program, "input/1") >= 0 ||
           sonde_program_find(program, "input_ids") >= 0;
}

/* Whether the predictions are made of a value. */
static bool leads_to_loss(const leak *found, int value, bool *marks)
{
    marks[value] = true;
    sonde__builtin_walk_below(found->program, marks, false);
    return marks[found->loss->predictions];
}

/* Whether a layer on the way that keeps the positions has fewer outputs than the input. */
static bool is_narrow(const leak *found)
{
    const sonde_program *program = found->program;
    const sonde_program_value *source = &program->values[found->source];
    const int64_t width = source->shape[source->rank - 1];

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const int out = node->output_count > 0 ? node->outputs[0] : -1;

        if (out >= 0 && found->marks[out] && program->values[out].rank > 0 &&
            sonde__builtin_walk_is(node->op, "linear " RECURRENT) &&
            program->values[out].shape[program->values[out].rank - 1] < width) {
            return true;
        }
    }
    return false;
}

/* The dimension of the positions of a sequence, by the recurrent layers; -1: they differ. */
static int find_positions(const sonde_program *program)
{
    int found = -1;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (sonde__builtin_walk_is(node->op, RECURRENT) && node->module >= 0) {
            const int dim =
                sonde_attribute_number(program->modules[node->module].attributes,
                                       "batch_first", 0.0) > 0.0;
            if (found >= 0 && found != dim) {
                return -1;
            }
            found = dim;
        }
    }
    return found;
}

/* Whether each position of a sequence leads to the prediction at the same one. */
static bool is_copied(leak *found)
{
    const sonde_program *program = found->program;
    const sonde_program_value *source = &program->values[found->source];
    const int dim = find_positions(program);
    bool causal = false, open = false;

    if (source->rank != 3 || dim < 0 || source->shape[dim] < 2 ||
        source->shape[dim] == source->shape[1 - dim]) {
        return false;
    }
    found->length = source->shape[dim];
    found->marks[found->source] = true;
    mark(found);
    for (size_t i = 0; i < program->node_count; i++) {
        const way leads = way_of(found, &program->nodes[i]);

        causal = causal || leads == CAUSAL;
        open = open || leads == OPEN || leads == HIDDEN;
    }
    return causal && !open && found->marks[found->loss->predictions] && !is_narrow(found);
}

static void report_same_input(sonde_rule_run *run, const leak *found, bool noisy)
{
    const sonde_program *program = found->program;
    const sonde_program_node *loss = &program->nodes[found->loss->node];
    const bool sure = !noisy || has_another_input(program);
    sonde__builtin_text line;

    if (sonde_rule_found_at(
            run,
            sonde__builtin_walk_tensor(program, found->loss->targets, loss->outputs[0]),
            loss->place, sure ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE, "input",
            0.0, 1.0)) {
        sonde_rule_say(
            run,
            noisy
                ? "Compare with what the noise was added to, or with the noise."
                : "Shift the targets by one step, if the model is to predict the next one.",
            "The targets of %s%s are the model's input %s: %s.", loss->op,
            sonde__builtin_walk_line(program, loss->place, &line),
            noisy ? "with its noise" : "at the same positions",
            noisy ? "the model learns to return what it gets"
                  : "a causal model learns to copy each position");
    }
}

static void judge_numbers(sonde_rule_run *run, leak *found)
{
    const sonde_program *program = found->program;
    bool *marks = sonde__builtin_walk_marks(run, program);

    found->source = find_same_input(found);
    found->marks = sonde__builtin_walk_marks(run, program);
    if (found->source >= 0 && marks != NULL && found->marks != NULL &&
        leads_to_loss(found, found->source, marks)) {
        memset(marks, 0, program->value_count * sizeof *marks);
        if (is_noisy(program, found->source, marks)) {
            report_same_input(run, found, true);
        } else if (is_copied(found)) {
            report_same_input(run, found, false);
        }
    }
    sonde__free(found->marks);
    sonde__free(marks);
}

static void judge_column(sonde_rule_run *run, const leak *found)
{
    const sonde_program *program = found->program;
    const sonde_program_node *loss = &program->nodes[found->loss->node];
    const double column =
        sonde_attribute_number(program->facts, "targets_column", (double)NAN);
    sonde__builtin_text line;

    if (isfinite(column) &&
        sonde_rule_found_at(run, "input", loss->place, SONDE_SEVERITY_NOTE, "column",
                            column, -1.0)) {
        sonde_rule_say(run, "Leave this column out of the input.",
                       "Column %.0f of the input has the targets of %s%s: the model gets "
                       "what it is to predict.",
                       column, loss->op,
                       sonde__builtin_walk_line(program, loss->place, &line));
    }
}

/* --- the rule ------------------------------------------------------------------------- */

/* The tokens at the same positions. */
static void judge_same(sonde_rule_run *run, const leak *found)
{
    const sonde_program *program = found->program;
    const sonde_program_node *loss = &program->nodes[found->loss->node];
    bool causal = false, open = false;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->node_count; i++) {
        const way leads = way_of(found, &program->nodes[i]);

        causal = causal || leads == CAUSAL;
        open = open || leads == OPEN || leads == HIDDEN;
    }
    const bool sure = causal && !open;
    if (found->marks[found->loss->predictions] &&
        sonde_rule_found_at(
            run, program->values[found->loss->predictions].tensor, loss->place,
            sure ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE, "shift", 0.0, 1.0)) {
        sonde_rule_say(
            run,
            sure ? "Shift the labels: scores[:, :-1] belong to tokens[:, 1:]."
                 : "This is right for an autoencoder of tokens. Else mask some of the "
                   "tokens, or shift the labels.",
            "The labels of %s%s are the tokens that the model gets at the same positions: "
            "it learns to copy them.",
            loss->op, sonde__builtin_walk_line(program, loss->place, &line));
    }
}

/* The next tokens. */
static void judge_later(sonde_rule_run *run, const leak *found)
{
    const sonde_program *program = found->program;
    const sonde_program_node *loss = &program->nodes[found->loss->node];
    sonde__builtin_text line, at;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (way_of(found, node) != OPEN ||
            !sonde_rule_found_at(
                run, sonde__builtin_walk_tensor(program, node->outputs[0], -1),
                node->place, SONDE_SEVERITY_ERROR, "shift", 1.0, 0.0)) {
            continue;
        }
        const bool recurs = sonde__builtin_walk_is(node->op, RECURRENT);
        sonde_rule_say(
            run,
            recurs ? "Use a layer that runs in one direction."
                   : "Mask later positions: is_causal=True, or a mask made by triu.",
            "The labels of %s%s are the next tokens, and %s%s %s: the model sees what it "
            "is to predict.",
            loss->op, sonde__builtin_walk_line(program, loss->place, &line),
            recurs ? node->op : "attention",
            sonde__builtin_walk_line(program, node->place, &at),
            recurs ? "runs in both directions" : "looks at later positions");
    }
}

static void judge(sonde_rule_run *run, const sonde_program *program)
{
    leak_rule *state = sonde_rule_state(run);
    const sonde_program_loss *loss = program->loss_count > 0 ? &program->losses[0] : NULL;
    leak found = {.program = program, .loss = loss};

    if (!sonde__builtin_walk_trains(program)) {
        return;
    }
    state->shown = true;
    if (loss == NULL || loss->node < 0 || loss->predictions < 0 || loss->targets < 0 ||
        program->nodes[loss->node].output_count == 0) {
        return;
    }
    judge_column(run, &found);
    if (sonde_dtype_is_float(program->values[loss->targets].dtype)) {
        judge_numbers(run, &found);
        return;
    }
    if (!sonde__builtin_walk_is(program->nodes[loss->node].op,
                                "cross_entropy nll_loss") ||
        (!find_by_facts(&found) && !find_by_graph(&found)) || found.length < 2) {
        return;
    }
    found.marks = sonde__builtin_walk_marks(run, program);
    if (found.marks == NULL) {
        return;
    }
    mark(&found);
    if (found.shifted) {
        judge_later(run, &found);
    } else {
        judge_same(run, &found);
    }
    sonde__free(found.marks);
}

static void finish(sonde_rule_run *run)
{
    const leak_rule *state = sonde_rule_state(run);

    if (!state->shown) {
        sonde_rule_lacked(run, "the run has no program of a training step");
    }
}

const sonde_rule sonde__builtin_target_leak = {
    .abi = SONDE_RULE_ABI,
    .name = "TargetLeak",
    .summary = "a model is given what it is to predict",
    .condition =
        "In the program of a training step, the labels of the loss are tokens of the model's input, and a path that keeps positions leads from them to the scores. In addition, one of these holds: "
        "(1) the labels are the tokens at the same positions: an error if the model is causal, else a note; "
        "(2) the labels are the next tokens, and attention or a recurrent layer leads from later positions to earlier ones. "
        "Or floating targets are an input that the step makes of data and noise, or the sequence that a causal model gets at the same positions; or a column of the input has the target of each sample (a note).",
    .advice =
        "Shift the labels by one position, and mask later positions in attention. Take targets out of the input.",
    .modes = SONDE__TRAIN,
    .state_size = sizeof(leak_rule),
    .finish = finish,
    .program = judge,
};
