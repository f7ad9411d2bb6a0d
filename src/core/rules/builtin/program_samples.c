/* program_samples.c - see program_samples.h. */
#include "rules/builtin/program_samples.h"

#include "rules/builtin/program_walk.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef sonde__builtin_samples samples_of;

#define REDUCTIONS                                                                       \
    "sum mean max min std var norm argmax argmin logsumexp prod median any all"
#define RESHAPES "reshape squeeze unsqueeze contiguous"
#define RECURRENT "lstm gru rnn_tanh rnn_relu"

static const samples_of lost = {.kind = SONDE__SAMPLES_LOST};

static samples_of along(int dim, bool sure)
{
    return (samples_of){
        .kind = SONDE__SAMPLES_ALONG, .dim = dim, .outer = 1, .inner = 1, .sure = sure};
}

static samples_of cut_by(int node, bool sure, bool moved)
{
    return (samples_of){
        .kind = SONDE__SAMPLES_CUT, .node = node, .sure = sure, .moved = moved};
}

/* --- inputs --------------------------------------------------------------------------- */

const sonde_program_loss *sonde__builtin_samples_loss(const sonde_program *program)
{
    for (size_t i = 0; i < program->loss_count; i++) {
        if (program->losses[i].predictions >= 0 && program->losses[i].targets >= 0) {
            return &program->losses[i];
        }
    }
    return NULL;
}

/* The last batch of a loader that came before the step; NULL: there is none. */
static const sonde_program_event *find_batch(const sonde_program *program)
{
    const sonde_program_event *found = NULL;

    for (size_t i = 0; i < program->event_count; i++) {
        found =
            program->events[i].kind == SONDE_EVENT_BATCH ? &program->events[i] : found;
    }
    return found;
}

bool sonde__builtin_samples_are_shuffled(const sonde_program *program)
{
    const sonde_program_event *batch = find_batch(program);

    return batch != NULL &&
           strstr(sonde_attribute_text(batch->attributes, "sampler"), "Random") != NULL;
}

/* Whether the labels are compared with an input. */
static bool is_followed(const sonde_program *program, const sonde_program_value *row)
{
    const char *input = sonde_attribute_text(program->facts, "labels_input");

    return strcmp(row->tensor, input[0] != '\0' ? input : "input_ids") == 0;
}

/* The dimension of an input that has as many places as there are targets, or as the loader
 * has samples in a batch. */
static samples_of anchor(const sonde_program *program, int value)
{
    const sonde_program_value *row = &program->values[value];
    const sonde_program_loss *loss = sonde__builtin_samples_loss(program);
    const sonde_program_value *targets =
        loss != NULL ? &program->values[loss->targets] : NULL;
    const sonde_program_event *batch = find_batch(program);
    const double loaded =
        batch != NULL ? sonde_attribute_number(batch->attributes, "batch_size", 0.0)
                      : 0.0;

    if (row->rank == 0 || row->shape[0] < 1) {
        return lost;
    }
    const bool two = row->rank >= 2 && row->shape[0] != row->shape[1];
    if (two && loaded >= 2.0 && (double)row->shape[0] == loaded) {
        return along(0, true);
    }
    if (two && loaded >= 2.0 && (double)row->shape[1] == loaded && row->rank <= 3) {
        return along(1, true);
    }
    if (two && row->rank == 2 && is_followed(program, row) &&
        isfinite(sonde_attribute_number(program->facts, "labels_shift", (double)NAN))) {
        return along(0, true); /* labels follow along the other dimension */
    }
    const bool has = targets != NULL && targets->rank > 0;
    const bool first = has && targets->shape[0] == row->shape[0],
               second = has && row->rank >= 2 && targets->shape[0] == row->shape[1];
    if (row->rank >= 4 || (row->rank == 2 && sonde_dtype_is_float(row->dtype))) {
        return row->shape[0] > 1 ? along(0, first) : lost;
    }
    if (row->rank == 1) {
        return lost; /* it may be the steps of a sequence, or the features of a sample */
    }
    const bool flat =
        has && (targets->rank == 1 || targets->shape[1] != row->shape[1]); /* no steps */
    if (first && !second && flat && row->shape[0] > 1) {
        return along(0, row->shape[1] > 1);
    }
    if (second && !first && row->shape[1] > 1 &&
        (targets->rank == 1 || targets->rank < row->rank)) {
        return along(1, true);
    }
    return lost;
}

/* --- shapes --------------------------------------------------------------------------- */

/* Elements of a step along a dimension. */
static int64_t stride_of(const sonde_program_value *row, int dim)
{
    int64_t stride = 1;

    for (int d = dim + 1; d < row->rank; d++) {
        stride *= row->shape[d];
    }
    return stride;
}

/* Whether an operation stacks as many values as there are targets: samples. */
static bool stacks_samples(const sonde_program *program, const sonde_program_node *node)
{
    const sonde_program_loss *loss = sonde__builtin_samples_loss(program);
    const sonde_program_value *targets =
        loss != NULL ? &program->values[loss->targets] : NULL;

    return sonde__builtin_walk_is(node->op, "stack") && targets != NULL &&
           targets->rank > 0 && targets->shape[0] > 1 &&
           node->input_count == (size_t)targets->shape[0] &&
           sonde_attribute_number(node->attributes, "dim", 0.0) == 0.0;
}

/* The samples are at places [low, high) of the digits of a flat index. */
static samples_of reshaped(const sonde_program_value *before, samples_of from,
                           const sonde_program_value *after, int node)
{
    const int64_t low = from.inner * stride_of(before, from.dim);
    const int64_t count = before->shape[from.dim] / (from.outer * from.inner);
    const int64_t high = low * count;
    bool at_top = false, as_many = false, even = true;

    for (int d = 0; d < after->rank; d++) {
        const int64_t step = stride_of(after, d);
        const int64_t whole = step * after->shape[d];

        if (low % step == 0 && whole % high == 0 && after->shape[d] > 1) {
            from.dim = d;
            from.inner = low / step;
            from.outer = whole / high;
            return from;
        }
        at_top = at_top || whole == high;
        as_many = as_many || after->shape[d] == count;
        if (step > low && step < high) {
            even = even && step % low == 0 && high % step == 0;
        }
    }
    bool at_bottom = low == 1;
    for (int d = 0; d < after->rank; d++) {
        at_bottom = at_bottom || stride_of(after, d) == low;
    }
    /* groups of whole samples, one by one, are meant */
    const bool groups = even && at_top && (at_bottom || !as_many);
    return count < 2 || groups ? lost : cut_by(node, from.sure, false);
}

/* Element i of an attribute that is a list, "[2, 0, 1]", or a number. */
static int listed(const char *text, int i, int otherwise)
{
    text += *text == '[';
    for (; i > 0 && text != NULL; i--) {
        text = strchr(text, ',');
        text = text != NULL ? text + 1 : NULL;
    }
    char *end = NULL;
    const long number = text != NULL ? strtol(text, &end, 10) : 0;
    return text != NULL && end != text ? (int)number : otherwise;
}

static int from_start(int dim, int rank)
{
    return dim < 0 ? dim + rank : dim;
}

/* Where dimension `dim` is after a transposition; -1: unknown. */
static int transposed(const sonde_program_node *node, int rank, int dim)
{
    const char *dims = sonde_attribute_text(node->attributes, "dims");
    const double a = sonde_attribute_number(node->attributes, "dim0", (double)NAN),
                 b = sonde_attribute_number(node->attributes, "dim1", (double)NAN);

    for (int d = 0; d < rank && dims[0] != '\0'; d++) {
        if (from_start(listed(dims, d, SONDE_MAX_DIMS), rank) == dim) {
            return d;
        }
    }
    if (isfinite(a) && isfinite(b)) {
        const int first = from_start((int)a, rank), second = from_start((int)b, rank);

        return dim == first ? second : dim == second ? first : dim;
    }
    return rank == 2 && node->attributes.count == 0 ? 1 - dim : -1;
}

/* Whether the reduced dimensions have `dim`; *before: how many are before it. */
static bool reduces(const sonde_program_node *node, int rank, int dim, int *before)
{
    const char *text = sonde_attribute_text(node->attributes, "dim");
    bool has = text[0] == '\0';

    *before = 0;
    for (int i = 0; i < rank; i++) {
        const int one = from_start(listed(text, i, SONDE_MAX_DIMS), rank);

        if (text[0] == '\0' || one >= rank) {
            break;
        }
        has = has || one == dim;
        *before += one < dim;
    }
    return has;
}

static bool is_along(const samples_of *states, int value)
{
    return value >= 0 && states[value].kind == SONDE__SAMPLES_ALONG;
}

bool sonde__builtin_samples_is_over(const sonde_program *program,
                                    const sonde__builtin_samples *samples,
                                    const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_first(node);
    int before = 0;

    return is_along(samples, value) &&
           sonde_attribute_text(node->attributes, "dim")[0] != '\0' &&
           program->values[value].shape[samples[value].dim] > 1 &&
           reduces(node, program->values[value].rank, samples[value].dim, &before);
}

/* --- operations ------------------------------------------------------------------------ */

/* A program and what is known of its values. */
typedef struct walk {
    const sonde_program *program;
    samples_of *states;
} walk;

/* Of operands that are joined element by element. */
static samples_of joined(const walk *w, const sonde_program_node *node, int output)
{
    const sonde_program_value *out = &w->program->values[output];
    samples_of found = lost;

    for (size_t i = 0; i < node->input_count; i++) {
        const int value = node->inputs[i];

        if (!is_along(w->states, value)) {
            continue;
        }
        const sonde_program_value *in = &w->program->values[value];
        samples_of one = w->states[value];
        const int dim = one.dim + out->rank - in->rank;
        if (dim < 0 || in->shape[one.dim] != out->shape[dim] ||
            (found.kind == SONDE__SAMPLES_ALONG && found.dim != dim)) {
            return lost;
        }
        one.dim = dim;
        one.sure = one.sure || (found.kind == SONDE__SAMPLES_ALONG && found.sure);
        found = one;
    }
    return found;
}

static samples_of reduced(const walk *w, const sonde_program_node *node, int value,
                          int output)
{
    const sonde_program_value *in = &w->program->values[value],
                              *out = &w->program->values[output];
    samples_of state = w->states[value];
    int before = 0;

    if (reduces(node, in->rank, state.dim, &before)) { /* of all samples together */
        return state.outer == 1 && state.inner == 1
                   ? (samples_of){.kind = SONDE__SAMPLES_NONE}
                   : lost;
    }
    state.dim -= out->rank < in->rank ? before : 0;
    return state.dim < out->rank &&
                   in->shape[w->states[value].dim] == out->shape[state.dim]
               ? state
               : lost;
}

/* Parts of a value: other dimensions are shorter or gone. */
static samples_of part_of(const walk *w, int value, int output)
{
    const sonde_program_value *in = &w->program->values[value],
                              *out = &w->program->values[output];
    samples_of state = w->states[value];
    int found = -1;

    if (out->rank >= in->rank) {
        return out->rank == in->rank && out->shape[state.dim] == in->shape[state.dim]
                   ? state
                   : lost;
    }
    for (int gone = 0; gone < in->rank && out->rank + 1 == in->rank; gone++) {
        bool fits = true;

        for (int d = 0; d < out->rank; d++) {
            fits = fits && out->shape[d] <= in->shape[d + (d >= gone)];
        }
        const int dim = state.dim - (state.dim > gone);
        if (gone != state.dim && fits && out->shape[dim] == in->shape[state.dim]) {
            found = found < 0 || found == dim ? dim : SONDE_MAX_DIMS;
        } else if (gone == state.dim && fits) {
            bool same = true;

            for (int d = 0; d < out->rank; d++) {
                same = same && out->shape[d] == in->shape[d + (d >= gone)];
            }
            found = same ? SONDE_MAX_DIMS : found;
        }
    }
    state.dim = found;
    return found >= 0 && found < SONDE_MAX_DIMS ? state : lost;
}

static samples_of multiplied(const walk *w, const sonde_program_node *node, int output)
{
    const int a = sonde__builtin_walk_operand(node, 0),
              b = sonde__builtin_walk_operand(node, 1);
    const sonde_program_value *out = &w->program->values[output];
    samples_of found = lost;

    if (a < 0 || b < 0) {
        return lost;
    }
    for (int i = 0; i < 2; i++) {
        const int value = i == 0 ? a : b;
        const sonde_program_value *in = &w->program->values[value];
        samples_of one = w->states[value];

        if (!is_along(w->states, value)) {
            continue;
        }
        const int summed = i == 0 || in->rank < 2 ? in->rank - 1 : in->rank - 2;
        const int dim = one.dim + out->rank - in->rank;
        if (one.dim == summed || dim < 0 || in->shape[one.dim] != out->shape[dim] ||
            (found.kind == SONDE__SAMPLES_ALONG && found.dim != dim)) {
            return lost;
        }
        one.dim = dim;
        found = one;
    }
    return found;
}

static bool is_batch_first(const sonde_program *program, const sonde_program_node *node)
{
    return node->module >= 0 &&
           sonde_attribute_number(program->modules[node->module].attributes,
                                  "batch_first", 0.0) > 0.0;
}

/* k: which output. */
static samples_of recurred(const walk *w, const sonde_program_node *node, int value,
                           size_t k)
{
    const sonde_program_value *in = &w->program->values[value];
    samples_of state = w->states[value];
    const int steps = in->rank == 3 && is_batch_first(w->program, node) ? 1 : 0;

    if (state.dim == steps) {
        return cut_by((int)(node - w->program->nodes), state.sure, true);
    }
    if (k > 0) {
        state.dim = in->rank == 3 ? 1 : 0; /* the last states: (layers, samples, units) */
    }
    return in->rank == 3 && state.dim != 2 ? state : lost;
}

/* Layers whose first operand must have its samples at certain dimensions: others are
 * features, channels or places. */
static samples_of layered(const walk *w, const sonde_program_node *node, int value,
                          int output)
{
    const samples_of state = w->states[value];
    const int rank = w->program->values[value].rank;
    const bool linear = sonde__builtin_walk_is(node->op, "linear");
    const bool heads = sonde__builtin_walk_is(node->op, "multi_head_attention_forward");
    const bool mixes = linear  ? state.dim == rank - 1
                       : heads ? state.dim == 0 && rank == 3
                               : state.dim > 0;

    if (heads && rank != 3) {
        return lost;
    }
    if (mixes) {
        return state.outer == 1 && state.inner == 1
                   ? cut_by((int)(node - w->program->nodes), state.sure, true)
                   : lost;
    }
    return w->program->values[output].rank == rank ? state : lost;
}

static samples_of stacked(const walk *w, const sonde_program_node *node, int output)
{
    const int rank = w->program->values[output].rank;
    const int at =
        from_start((int)sonde_attribute_number(node->attributes, "dim", 0.0), rank);
    samples_of found = lost;

    for (size_t i = 0; i < node->input_count; i++) {
        if (is_along(w->states, node->inputs[i])) {
            samples_of one = w->states[node->inputs[i]];

            one.dim += at <= one.dim;
            if (found.kind == SONDE__SAMPLES_ALONG && found.dim != one.dim) {
                return lost;
            }
            found = one;
        }
    }
    return found;
}

static samples_of concatenated(const walk *w, const sonde_program_node *node, int output)
{
    samples_of found = lost;

    for (size_t i = 0; i < node->input_count; i++) {
        const int value = node->inputs[i];

        if (is_along(w->states, value)) {
            if ((found.kind == SONDE__SAMPLES_ALONG &&
                 found.dim != w->states[value].dim) ||
                w->program->values[value].rank != w->program->values[output].rank) {
                return lost;
            }
            found = w->states[value];
        }
    }
    if (found.kind == SONDE__SAMPLES_ALONG) {
        const int value = sonde__builtin_walk_first(node);

        if (w->program->values[value].shape[found.dim] !=
            w->program->values[output].shape[found.dim]) {
            found.outer = found.inner = 1; /* more samples */
        }
    }
    return found;
}

/* Output k of an operation of which an operand is ALONG; value: the first such. */
static samples_of made_of(const walk *w, const sonde_program_node *node, int value,
                          size_t k)
{
    const int output = node->outputs[k];
    const sonde_program_value *in = &w->program->values[value],
                              *out = &w->program->values[output];
    const int number = (int)(node - w->program->nodes);
    samples_of state = w->states[value];

    if (sonde__builtin_walk_is(node->op, RESHAPES)) {
        return reshaped(in, state, out, number);
    }
    if (sonde__builtin_walk_is(node->op, "transpose")) {
        state.dim = transposed(node, in->rank, state.dim);
        return state.dim >= 0 && out->shape[state.dim] == in->shape[w->states[value].dim]
                   ? state
                   : lost;
    }
    if (sonde__builtin_walk_is(node->op, REDUCTIONS) && node->input_count == 1) {
        return reduced(w, node, value, output);
    }
    if (sonde__builtin_walk_is(node->op, RECURRENT)) {
        return value == node->inputs[0] ? recurred(w, node, value, k) : lost;
    }
    if (sonde__builtin_walk_is(node->op, "linear conv1d conv2d conv3d conv_transpose1d "
                                         "conv_transpose2d conv_transpose3d "
                                         "multi_head_attention_forward")) {
        return k == 0 && value == node->inputs[0] ? layered(w, node, value, output)
                                                  : lost;
    }
    if (sonde__builtin_walk_is(node->op, "matmul")) {
        return multiplied(w, node, output);
    }
    if (sonde__builtin_walk_is(node->op, "cat")) {
        return concatenated(w, node, output);
    }
    if (sonde__builtin_walk_is(node->op, "stack")) {
        return stacked(w, node, output);
    }
    if (sonde__builtin_walk_is(node->op, "embedding one_hot")) {
        return value == node->inputs[0] && out->rank == in->rank + 1 ? state : lost;
    }
    if (sonde__builtin_walk_is(node->op, "index split chunk") ||
        strstr(node->op, "pool") != NULL) {
        return part_of(w, value, output);
    }
    return joined(w, node, output);
}

/* Whether a reshape takes a cut back: elements are where they were. */
static bool is_back(const walk *w, const sonde_program_node *node, samples_of state)
{
    const int before = sonde__builtin_walk_first(&w->program->nodes[state.node]);

    return sonde__builtin_walk_is(node->op, RESHAPES) && !state.moved && before >= 0 &&
           sonde__builtin_walk_same_shape(&w->program->values[before],
                                          &w->program->values[node->outputs[0]]);
}

static samples_of follow(const walk *w, const sonde_program_node *node, size_t k)
{
    int first = -1;
    bool unknown = false;

    for (size_t i = 0; i < node->input_count; i++) {
        const int value = node->inputs[i];
        samples_of state = value >= 0 ? w->states[value] : (samples_of){.kind = 0};

        if (state.kind == SONDE__SAMPLES_CUT) {
            if (is_back(w, node, state)) {
                return w
                    ->states[sonde__builtin_walk_first(&w->program->nodes[state.node])];
            }
            state.moved =
                state.moved || sonde__builtin_walk_is(node->op, "transpose index matmul");
            return state;
        }
        unknown = unknown || state.kind == SONDE__SAMPLES_LOST;
        first = first < 0 && state.kind == SONDE__SAMPLES_ALONG ? value : first;
    }
    return unknown      ? lost
           : first >= 0 ? made_of(w, node, first, k)
                        : (samples_of){.kind = SONDE__SAMPLES_NONE};
}

sonde__builtin_samples *sonde__builtin_samples_follow(sonde_rule_run *run,
                                                      const sonde_program *program)
{
    walk w = {.program = program,
              .states = sonde__calloc(program->value_count + 1, sizeof *w.states)};

    if (w.states == NULL) {
        sonde_rule_fail(run, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < program->value_count; i++) {
        if (program->values[i].kind == SONDE_VALUE_INPUT) {
            w.states[i] = anchor(program, (int)i);
        }
    }
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        for (size_t k = 0; k < node->output_count; k++) {
            const int output = node->outputs[k];

            w.states[output] = follow(&w, node, k);
            if (w.states[output].kind == SONDE__SAMPLES_LOST &&
                stacks_samples(program, node)) {
                w.states[output] = along(0, true);
            } else if (w.states[output].kind == SONDE__SAMPLES_LOST &&
                       strncmp(program->values[output].tensor, "input", 5) == 0) {
                w.states[output] = anchor(program, output);
            }
        }
    }
    return w.states;
}
