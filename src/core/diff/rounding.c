/*
 * rounding.c - see rounding.h.
 */
#include "diff/rounding.h"
#include "base/macros.h"

#include <math.h>
#include <string.h>

enum { UNKNOWN_TERMS = 1024 };

double sonde__diff_unit(sonde_dtype dtype)
{
    switch (dtype) {
    case SONDE_F64:
    case SONDE_C128:
        return 0x1p-53;
    case SONDE_F32:
    case SONDE_C64:
        return 0x1p-24;
    case SONDE_F16:
        return 0x1p-11;
    case SONDE_BF16:
        return 0x1p-8;
    case SONDE_F8_E4M3:
        return 0x1p-4;
    case SONDE_F8_E5M2:
        return 0x1p-3;
    case SONDE_BOOL:
    case SONDE_U8:
    case SONDE_I8:
    case SONDE_U16:
    case SONDE_I16:
    case SONDE_U32:
    case SONDE_I32:
    case SONDE_U64:
    case SONDE_I64:
    default:
        return 0.0;
    }
}

/* --- programs ------------------------------------------------------------------------ */

static double count_of(const sonde_program *program, int value)
{
    double count = 1.0;

    for (int i = 0; value >= 0 && i < program->values[value].rank; i++) {
        count *= (double)program->values[value].shape[i];
    }
    return count;
}

/* The value of argument i; -1: none. */
static int argument(const sonde_program_node *node, size_t i)
{
    return i < node->input_count ? node->inputs[i] : -1;
}

static double last_of(const sonde_program *program, int value)
{
    const sonde_program_value *const v = value >= 0 ? &program->values[value] : NULL;

    return v != NULL && v->rank > 0 ? (double)v->shape[v->rank - 1] : 1.0;
}

static bool begins(const char *op, const char *word)
{
    return strncmp(op, word, strlen(word)) == 0;
}

/* Terms of the sums of an operation. */
static double terms_of_node(const sonde_program *program, const sonde_program_node *node)
{
    const int input = argument(node, 0);
    const int output = node->output_count > 0 ? node->outputs[0] : -1;
    const double in = count_of(program, input), out = count_of(program, output);
    const int weight = argument(node, 1);

    if (begins(node->op, "conv") && weight >= 0 && program->values[weight].rank > 1) {
        return count_of(program, weight) / (double)program->values[weight].shape[0];
    }
    if (strcmp(node->op, "linear") == 0 || strcmp(node->op, "matmul") == 0) {
        return last_of(program, input);
    }
    if (strcmp(node->op, "scaled_dot_product_attention") == 0) {
        return last_of(program, input) + in / SONDE_MAX(last_of(program, input), 1.0);
    }
    if (strcmp(node->op, "batch_norm") == 0 && input >= 0 &&
        program->values[input].rank > 1) {
        return in / SONDE_MAX((double)program->values[input].shape[1], 1.0);
    }
    if (strcmp(node->op, "lstm") == 0 || strcmp(node->op, "gru") == 0) {
        return last_of(program, input) + last_of(program, output);
    }
    if (in > out) {
        return in / SONDE_MAX(out, 1.0); /* sums, means, losses, pooling */
    }
    return strstr(node->op, "norm") != NULL || strstr(node->op, "softmax") != NULL
               ? last_of(program, input)
               : 1.0;
}

/* The operation that reads a parameter first; NULL: none. */
static const sonde_program_node *reader_of(const sonde_program *program, int value)
{
    for (size_t n = 0; n < program->node_count; n++) {
        for (size_t i = 0; i < program->nodes[n].input_count; i++) {
            if (program->nodes[n].inputs[i] == value) {
                return &program->nodes[n];
            }
        }
    }
    return NULL;
}

/* Positions over which the gradient of a parameter is added: elements of the output of its
 * operation for each of its rows. */
static double terms_of_parameter(const sonde_program *program, int value)
{
    const sonde_program_node *const node = reader_of(program, value);
    const sonde_program_value *const v = &program->values[value];

    if (node == NULL || node->output_count == 0 || v->rank == 0) {
        return UNKNOWN_TERMS;
    }
    return count_of(program, node->outputs[0]) / SONDE_MAX((double)v->shape[0], 1.0);
}

/* "gradient/fc.weight", "Gradient___fc.weight", "update/fc.weight": fc.weight. */
static const char *bare(const char *name)
{
    static const char *const prefixes[] = {"gradient/", "Gradient___", "update/",
                                           "UpdatedVar___"};

    for (size_t i = 0; i < SONDE_COUNT_OF(prefixes); i++) {
        if (begins(name, prefixes[i])) {
            return name + strlen(prefixes[i]);
        }
    }
    return name;
}

double sonde__diff_terms(const sonde_program *program, const sonde_tensor_info *info)
{
    const int value =
        program != NULL ? sonde_program_find(program, bare(info->name)) : -1;
    double terms = UNKNOWN_TERMS;

    if (info->role == SONDE_ROLE_INPUT) {
        return 1.0;
    }
    if (value < 0) {
        return terms;
    }
    if (program->values[value].parameter >= 0) {
        terms = terms_of_parameter(program, value);
    } else if (program->values[value].node >= 0) {
        terms = terms_of_node(program, &program->nodes[program->values[value].node]);
    } else {
        terms = 1.0;
    }
    return SONDE_MAX(terms, 1.0);
}
