/*
 * program_masks.c - SoftmaxMisuse, by the program: masks of padding that hide the tokens and
 * leave the padding.
 *
 * A mask is a comparison of tokens, which an embedding with padding_idx reads, with that
 * index. Fires when
 *     masked_fill    writes at least FAR below 0 where tokens are;
 *     attention      of nn.MultiheadAttention gets a mask that is true where tokens are, and
 *                    leaves these out;
 *     scaled_dot_product_attention
 *                    gets a mask that is true where padding is, and keeps that.
 */
#include "rules/builtin/program_walk.h"

#include <math.h>
#include <string.h>

#define VIEWS SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " detach index expand"
#define FAR 1e3

/* Where a mask is true. */
typedef enum meaning { UNKNOWN = 0, TOKENS = 1, PADDING = -1 } meaning;

/* Whether an embedding reads a value, or another shape of it, and `number` is its padding. */
static bool is_padding(const sonde_program *program, int tokens, double number)
{
    (void)sonde__builtin_walk_up(program, &tokens, VIEWS);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        int read = sonde__builtin_walk_operand(node, 0);

        if (read >= 0 && sonde__builtin_walk_is(node->op, "embedding") &&
            sonde_attribute_number(node->attributes, "padding_idx", -1.0) == number) {
            (void)sonde__builtin_walk_up(program, &read, VIEWS);
            if (read == tokens) {
                return true;
            }
        }
    }
    return false;
}

/* made: the comparison that a mask is, at last. */
static meaning mask_of(const sonde_program *program, int value,
                       const sonde_program_node **made)
{
    bool turned = false;

    for (size_t left = program->node_count; left > 0; left--) {
        const sonde_program_node *maker = sonde__builtin_walk_up(program, &value, VIEWS);

        if (maker == NULL || maker->input_count > 1) {
            return UNKNOWN;
        }
        const double number =
            sonde_attribute_number(maker->attributes, "scalar", (double)NAN);
        const bool equal = sonde__builtin_walk_is(maker->op, "eq"),
                   unequal = sonde__builtin_walk_is(maker->op, "ne");
        value = sonde__builtin_walk_first(maker);
        if (value >= 0 && (equal || unequal) && is_padding(program, value, number)) {
            *made = maker;
            return turned == equal ? TOKENS : PADDING;
        }
        if (value < 0 || !(sonde__builtin_walk_is(maker->op, "logical_not bitwise_not") ||
                           ((equal || unequal) && (number == 0.0 || number == 1.0)))) {
            return UNKNOWN;
        }
        turned = turned != !((equal && number == 1.0) || (unequal && number == 0.0));
    }
    return UNKNOWN;
}

/* Whether masked_fill writes what softmax makes 0 of. */
static bool fills_far_below(const sonde_program_node *node)
{
    return strncmp(sonde_attribute_text(node->attributes, "value"), "-inf", 4) == 0 ||
           sonde_attribute_number(node->attributes, "value", 0.0) <= -FAR;
}

/* The operand that is an inverted mask; -1: there is none. *made: what compares. */
static int find_inverted(const sonde_program *program, const sonde_program_node *node,
                         const sonde_program_node **made)
{
    const bool fills = sonde__builtin_walk_is(node->op, "masked_fill"),
               heads = sonde__builtin_walk_is(node->op, "multi_head_attention_forward"),
               scaled = sonde__builtin_walk_is(node->op, "scaled_dot_product_attention");

    if (!(fills && fills_far_below(node)) && !heads && !scaled) {
        return -1;
    }
    for (size_t i = fills ? 1 : 3; i < node->input_count; i++) {
        const int value = node->inputs[i];

        if (value >= 0 && program->values[value].dtype == SONDE_BOOL) {
            const meaning is = mask_of(program, value, made);

            if (is == TOKENS ? !scaled : is == PADDING && scaled) {
                return value;
            }
        }
    }
    return -1;
}

void sonde__builtin_mask_program(sonde_rule_run *run, const sonde_program *program,
                                 const bool *used)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i], *made = NULL;
        sonde__builtin_text line, at;

        if (node->output_count == 0 || !used[node->outputs[0]] ||
            find_inverted(program, node, &made) < 0) {
            continue;
        }
        const double padding = sonde_attribute_number(made->attributes, "scalar", 0.0);
        if (sonde_rule_found_at(
                run, sonde__builtin_walk_tensor(program, node->outputs[0], -1),
                made->place, SONDE_SEVERITY_ERROR, "padding", padding, -1.0)) {
            sonde_rule_say(
                run, "Invert the mask.",
                "The mask of %s%s hides the tokens and leaves the padding: "
                "%s%s compares tokens with %g, their padding.",
                node->op, sonde__builtin_walk_line(program, node->place, &at), made->op,
                sonde__builtin_walk_line(program, made->place, &line), padding);
        }
    }
}
