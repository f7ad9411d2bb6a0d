/*
 * dump.c - graphs and plans as text, for people.
 */
#include "nn/compile/compile.h"

#include <string.h>

static const char *const layout_names[] = {"plain", "lanes", "panels", "any"};
static const char *const place_names[] = {"arena", "input",  "parameter",
                                          "state", "buffer", "number"};

static void dump_value(const sonde__op_graph *graph, sonde__op_value value, FILE *stream)
{
    const sonde__graph_node_value *node = &graph->values[value];
    char shape[96];

    if (value == 0) {
        (void)fputs("-", stream);
        return;
    }
    (void)fprintf(stream, "%%%u", value);
    if (node->name != NULL) {
        (void)fprintf(stream, " %s", node->name);
    }
    (void)fprintf(
        stream, " %s%s", sonde_dtype_name(node->shape.dtype),
        sonde_shape_text(node->shape.rank, node->shape.dim, shape, sizeof shape));
}

void sonde__plan_dump_graph(const sonde__op_graph *graph, FILE *stream)
{
    for (size_t v = 1; v < graph->value_count; v++) {
        if (graph->values[v].source != SONDE__FROM_OP) {
            (void)fprintf(stream, "%s ", place_names[graph->values[v].source]);
            dump_value(graph, (sonde__op_value)v, stream);
            (void)fputc('\n', stream);
        }
    }
    for (size_t i = 0; i < graph->op_count; i++) {
        const sonde__graph_node_op *op = &graph->ops[i];

        if (op->kind == NULL) {
            continue;
        }
        for (int k = 0; k < op->out_count; k++) {
            (void)fputs(k > 0 ? ", " : "", stream);
            dump_value(graph, op->out[k], stream);
        }
        (void)fprintf(stream, " = %s(", op->kind->name);
        for (int k = 0; k < op->in_count; k++) {
            (void)fprintf(stream, op->in[k] != 0 ? "%s%%%u" : "%s-", k > 0 ? ", " : "",
                          op->in[k]);
        }
        (void)fprintf(stream, ")  # %s\n", sonde_pass_name(op->pass));
    }
}

static void dump_buffer(const sonde__plan *plan, int index, FILE *stream)
{
    const sonde__plan_buffer *buffer = index >= 0 ? &plan->buffers[index] : NULL;

    if (buffer == NULL) {
        (void)fputs(" -", stream);
    } else if (buffer->place == SONDE__IN_ARENA) {
        (void)fprintf(stream, " %%%u@%zu+%zu:%s", buffer->value, buffer->offset,
                      buffer->bytes, layout_names[buffer->layout]);
    } else {
        (void)fprintf(stream, " %%%u@%s%d:%s", buffer->value, place_names[buffer->place],
                      buffer->index, layout_names[buffer->layout]);
    }
}

void sonde__plan_dump_plan(const sonde__plan *plan, FILE *stream)
{
    (void)fprintf(
        stream, "arena %zu bytes, largest live set %zu, state %zu, threads %d\n",
        plan->arena_bytes, plan->largest_live, plan->state_bytes, plan->threads);
    for (size_t i = 0; i < plan->step_count; i++) {
        const sonde__plan_step *step = &plan->steps[i];

        (void)fprintf(stream, "%3zu%s %s/%s x%d  in", i,
                      i >= plan->micro_steps ? " (update)" : "", step->kind->name,
                      step->kernel->name, step->parts);
        for (int k = 0; k < step->call.in_count; k++) {
            dump_buffer(plan, step->in_buffer[k], stream);
        }
        (void)fputs("  out", stream);
        for (int k = 0; k < step->call.out_count; k++) {
            dump_buffer(plan, step->out_buffer[k], stream);
        }
        (void)fprintf(stream, "  taps %d\n", step->showing_count);
    }
}
