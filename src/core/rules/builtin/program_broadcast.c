/*
 * program_broadcast.c - LossBroadcast, by the program: operands whose shapes differ in the
 * number of dimensions, so that the result has more elements than either.
 *
 * Judged are losses of PyTorch's that broadcast, also (n, 1) with (1, n), and arithmetic
 * outside of the model's modules of which the objective is made: of as many values that need
 * gradients as of others, predictions and targets. In arithmetic, an operand that the program
 * has given more dimensions itself (unsqueeze, an index of None, reshape) says that all pairs
 * are meant, except where the mean or the sum of all products is taken: it is the product of
 * two means, and nobody means that.
 */
#include "rules/builtin/program_walk.h"
#include "rules/context.h"

#include "base/memory.h"
#include "base/number.h"

#define LOSSES                                                                           \
    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss gaussian_nll_loss"
#define ARITHMETIC "sub mul add div"
#define SHAPED "unsqueeze index reshape expand"

static int64_t count_of(const sonde_program_value *value)
{
    int64_t count = 1;

    for (int d = 0; d < value->rank; d++) {
        count *= value->shape[d];
    }
    return count;
}

static int64_t size_from_end(const sonde_program_value *value, int d)
{
    return d < value->rank ? value->shape[value->rank - 1 - d] : 1;
}

/* The shape that two shapes have together; false: they do not fit. */
static bool broadcast_together(const sonde_program_value *a, const sonde_program_value *b,
                               sonde_program_value *out)
{
    *out = (sonde_program_value){.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int d = 0; d < out->rank; d++) {
        const int64_t x = size_from_end(a, d), y = size_from_end(b, d);

        if (x != y && x != 1 && y != 1) {
            return false;
        }
        out->shape[out->rank - 1 - d] = x == 1 ? y : x;
    }
    return true;
}

/* Whether the program has given a value more dimensions itself. */
static bool is_shaped(const sonde_program *program, int value)
{
    const sonde_program_node *maker =
        sonde__builtin_walk_up(program, &value, "contiguous to clone detach");

    return maker != NULL && sonde__builtin_walk_is(maker->op, SHAPED) &&
           sonde__builtin_walk_first(maker) >= 0 &&
           program->values[sonde__builtin_walk_first(maker)].rank <
               program->values[value].rank;
}

/* The only operation that reads a value; NULL: there are none or several. */
static const sonde_program_node *find_reader(const sonde_program *program, int value)
{
    const sonde_program_node *reader = NULL;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        for (size_t k = 0; k < node->input_count; k++) {
            if (node->inputs[k] == value) {
                if (reader != NULL) {
                    return NULL;
                }
                reader = node;
            }
        }
    }
    return reader;
}

/* Whether products become nothing but their mean or sum. */
static bool is_averaged(const sonde_program *program, const sonde_program_node *product)
{
    const sonde_program_node *reader = sonde__builtin_walk_is(product->op, "mul")
                                           ? find_reader(program, product->outputs[0])
                                           : NULL;

    while (reader != NULL && reader->output_count > 0 &&
           sonde__builtin_walk_is(reader->op, "neg to contiguous clone")) {
        reader = find_reader(program, reader->outputs[0]);
    }
    return reader != NULL && sonde__builtin_walk_is(reader->op, "mean sum") &&
           sonde_attribute_text(reader->attributes, "dim")[0] == '\0';
}

static void report(sonde_rule_run *run, const sonde_program *program,
                   const sonde_program_node *node, const sonde_program_value *whole)
{
    const int a = node->inputs[0], b = node->inputs[1];
    const bool learned = program->values[a].requires_grad;
    const int about = learned ? a : b;
    const int64_t most = count_of(&program->values[a]) > count_of(&program->values[b])
                             ? count_of(&program->values[a])
                             : count_of(&program->values[b]);
    sonde__builtin_text first, second, line;
    char shape[SONDE__WALK_TEXT];

    if (sonde_rule_found_at(run,
                            sonde__builtin_walk_tensor(program, about, node->outputs[0]),
                            node->place, SONDE_SEVERITY_ERROR, "pairs",
                            (double)count_of(whole), (double)most)) {
        sonde_rule_say(
            run, "Give both the same shape, with squeeze or unsqueeze.",
            "%s%s of %s and %s broadcasts to %s: each of %lld values meets each of %lld "
            "instead of its own.",
            node->op, sonde__builtin_walk_line(program, node->place, &line),
            sonde__builtin_walk_shape(program, a, &first),
            sonde__builtin_walk_shape(program, b, &second),
            sonde_shape_text(whole->rank, whole->shape, shape, sizeof shape),
            (long long)count_of(&program->values[a]),
            (long long)count_of(&program->values[b]));
    }
}

/* Whether an operation belongs to the loss, not to a layer of the model. */
static bool is_of_loss(const sonde_program *program, const sonde_program_node *node)
{
    return node->module < 0 ||
           sonde__strcasestr(program->modules[node->module].kind, "loss") != NULL ||
           sonde__strcasestr(program->modules[node->module].kind, "criterion") != NULL;
}

static void judge(sonde_rule_run *run, const sonde_program *program,
                  const sonde_program_node *node)
{
    const bool loss = sonde__builtin_walk_is(node->op, LOSSES);
    const int a = sonde__builtin_walk_operand(node, 0),
              b = sonde__builtin_walk_operand(node, 1);
    sonde_program_value whole;

    if (a < 0 || b < 0 ||
        (!loss &&
         !(sonde__builtin_walk_is(node->op, ARITHMETIC) && is_of_loss(program, node)))) {
        return;
    }
    const sonde_program_value *x = &program->values[a], *y = &program->values[b];
    if ((x->rank == y->rank && !loss) || x->rank == 0 || y->rank == 0 ||
        !broadcast_together(x, y, &whole) || count_of(&whole) <= count_of(x) ||
        count_of(&whole) <= count_of(y) ||
        (!loss && (x->requires_grad == y->requires_grad || count_of(x) != count_of(y) ||
                   ((is_shaped(program, a) || is_shaped(program, b)) &&
                    !is_averaged(program, node))))) {
        return;
    }
    report(run, program, node, &whole);
}

void sonde__builtin_broadcast_program(sonde_rule_run *run, const sonde_program *program)
{
    bool *marks = sonde__builtin_walk_marks(run, program);

    if (marks == NULL || !sonde__builtin_walk_objectives(program, marks)) {
        sonde__free(marks);
        return;
    }
    sonde__rule_judged_program(run);
    sonde__builtin_walk_above(program, marks, false);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count > 0 && marks[node->outputs[0]] &&
            program->values[node->outputs[0]].requires_grad) {
            judge(run, program, node);
        }
    }
    sonde__free(marks);
}
