/*
 * program_heads.c - BatchMixing, by the program: reshapes that take the heads of attention
 * for positions.
 *
 *     in      (batch, length, heads * size) becomes (batch, heads, length, size), which
 *             a product of attention reads
 *     out     (batch, heads, length, size), or (batch * heads, length, size), which such a
 *             product makes, becomes (batch, length, heads * size)
 *
 * without a transposition between the two: a row then holds parts of several positions. Where
 * there is one head, or one position, or as many of both, nothing is said.
 */
#include "rules/builtin/program_walk.h"

#define PRODUCTS "matmul scaled_dot_product_attention baddbmm"
#define PLAIN SONDE__WALK_PLAIN

/* Whether rows (b, l, h * d) are what is left of heads (b, h, l, d) or (b * h, l, d). */
static bool is_merged(const sonde_program_value *heads, const sonde_program_value *rows)
{
    const int64_t *from = heads->shape, *to = rows->shape;
    const int r = heads->rank;

    if ((r != 3 && r != 4) || rows->rank != 3 || to[0] < 1 || from[r - 1] < 1 ||
        to[2] % from[r - 1] != 0) {
        return false;
    }
    const int64_t count = to[2] / from[r - 1], length = to[1];
    const bool fits = r == 4 ? from[0] == to[0] && from[1] == count
                             : from[0] == to[0] * count && from[0] > to[0];
    return fits && from[r - 2] == length && count > 1 && length > 1 && count != length;
}

/* Whether a product of attention reads a value, or its transposed. */
static bool is_multiplied(const sonde_program *program, int value)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        for (size_t k = 0;
             k < node->input_count && sonde__builtin_walk_is(node->op, PRODUCTS); k++) {
            int read = node->inputs[k];

            while (read >= 0 && read != value) {
                const sonde_program_node *made = sonde__builtin_walk_maker(program, read);

                read = made != NULL && sonde__builtin_walk_is(made->op,
                                                              "transpose mul div " PLAIN)
                           ? sonde__builtin_walk_first(made)
                           : -1;
            }
            if (read == value) {
                return true;
            }
        }
    }
    return false;
}

static void report(sonde_rule_run *run, const sonde_program *program,
                   const sonde_program_node *node, bool merges, sonde_place *said)
{
    sonde__builtin_text line, from, to;

    if (!sonde__builtin_walk_is_said(said, node->place) &&
        sonde_rule_found_at(
            run, sonde__builtin_walk_tensor(program, node->outputs[0], -1), node->place,
            SONDE_SEVERITY_ERROR, merges ? "heads_out" : "heads_in", 1.0, 0.0)) {
        sonde_rule_say(
            run,
            merges ? "Transpose dimensions 1 and 2 first: .transpose(1, 2).reshape(...)."
                   : "Split the last dimension, then transpose: .view(batch, length, "
                     "heads, size).transpose(1, 2).",
            "%s%s turns %s into %s, and heads and positions of attention are not "
            "transposed: a row holds parts of several positions.",
            node->op, sonde__builtin_walk_line(program, node->place, &line),
            sonde__builtin_walk_shape(program, sonde__builtin_walk_first(node), &from),
            sonde__builtin_walk_shape(program, node->outputs[0], &to));
    }
}

static void judge(sonde_rule_run *run, const sonde_program *program,
                  const sonde_program_node *node, sonde_place *said)
{
    int value = sonde__builtin_walk_first(node);
    const int output = node->outputs[0];

    if (value < 0 || !sonde__builtin_walk_is(node->op, "reshape")) {
        return;
    }
    const sonde_program_value *before = &program->values[value],
                              *after = &program->values[output];
    if (is_merged(before, after)) {
        const sonde_program_node *made = sonde__builtin_walk_up(program, &value, PLAIN);

        if (made != NULL && sonde__builtin_walk_is(made->op, PRODUCTS)) {
            report(run, program, node, true, said);
        }
    } else if (after->rank == 4 && is_merged(after, before) &&
               is_multiplied(program, output)) {
        report(run, program, node, false, said);
    }
}

void sonde__builtin_heads_program(sonde_rule_run *run, const sonde_program *program,
                                  const bool *learned)
{
    sonde_place said = {NULL, 0};

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count > 0 && learned[node->outputs[0]]) {
            judge(run, program, node, &said);
        }
    }
}
