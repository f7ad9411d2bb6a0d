/*
 * autocast.c - products in bfloat16 or float16, the rest in float32, as torch.autocast.
 *
 * Parameters stay float32. By sonde__op_halves:
 *
 *   MADE      a product (linear, convolution, matmul ...) rounds its operands as it reads
 *             them and its output as it stores it. One that the session returns, or trains
 *             by, is float32.
 *   KEPT      works on 16 bits where all of its inputs are of that dtype
 *   LED       works on 16 bits where its first input is; the others are float32
 *   others    get float32: Float32___X is X as float32
 *
 * A layer's dtype comes before the session's. Gradients follow: the gradient of a value
 * has its dtype, that of a parameter is float32.
 */
#include "nn/compile/compile.h"
#include "base/cpu.h"
#include "base/memory.h"

#include <sonde/log.h>

enum { TO_FLOAT = 0 }; /* of cast.c */

typedef struct autocast_work {
    sonde__op_graph *graph;
    sonde_dtype dtype;
    sonde__op_value *wide; /* by value of the forward graph: its cast; 0: none */
} autocast_work;

static bool is_returned(const sonde__op_graph *graph, sonde__op_value value)
{
    for (size_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] == value) {
            return true;
        }
    }
    return graph->loss == value;
}

/* Whether all inputs with numbers of floats are of `dtype` or of `other`. */
static bool all_inputs(const sonde__op_graph *graph, const sonde__graph_node_op *op,
                       sonde_dtype dtype, sonde_dtype other)
{
    bool any = false;

    for (int i = 0; i < op->in_count; i++) {
        const sonde_dtype found = sonde__op_value_shape(graph, op->in[i])->dtype;

        if (op->in[i] == 0 || !sonde_dtype_is_float(found)) {
            continue;
        }
        if (found != dtype && found != other) {
            return false;
        }
        any = true;
    }
    return any;
}

static sonde__op_value widened(autocast_work *work, sonde__op_value value)
{
    const sonde__op_attrs attrs = {.cast = {.to = TO_FLOAT}};
    sonde__op_graph *graph = work->graph;
    sonde__op_value *known = &work->wide[value];

    if (*known == 0) {
        *known = sonde__op_emit(graph, &sonde__op_cast, &attrs, &value, 1);
    }
    if (*known != 0 && graph->values[value].name != NULL &&
        graph->values[*known].name == NULL) {
        graph->values[*known].name =
            sonde__graph_string(graph, "Float32___%s", graph->values[value].name);
    }
    return *known;
}

static void widen_inputs(autocast_work *work, sonde__graph_node_op *op, int first)
{
    for (int i = first; i < op->in_count; i++) {
        const sonde_dtype dtype = sonde__op_value_shape(work->graph, op->in[i])->dtype;

        if (op->in[i] != 0 && sonde__op_is_half(dtype)) {
            op->in[i] = widened(work, op->in[i]);
        }
    }
}

static void cast_op(autocast_work *work, sonde__graph_node_op op)
{
    sonde__op_graph *graph = work->graph;
    const sonde_dtype dtype = op.given.half != 0 ? op.given.half : work->dtype;
    const sonde_dtype half = sonde__op_is_half(dtype) ? dtype : 0;
    const sonde__op_halves halves = op.kind->halves;
    const bool returned = is_returned(graph, op.out[0]);
    const bool makes = halves == SONDE__HALVES_MADE && half != 0 &&
                       all_inputs(graph, &op, SONDE_F32, half);
    const bool keeps = halves == SONDE__HALVES_KEPT && !returned && half != 0 &&
                       all_inputs(graph, &op, half, half);
    const bool leads = halves == SONDE__HALVES_LED && !returned && half != 0 &&
                       sonde__op_value_shape(graph, op.in[0])->dtype == half;

    graph->module = op.module;
    graph->pass = op.pass;
    graph->stage = op.stage;
    if (!makes && !keeps && op.kind != &sonde__op_cast) {
        widen_inputs(work, &op, leads ? 1 : 0);
    }
    op.given.half = op.attrs.half = makes ? half : 0;
    op.given.wide = op.attrs.wide = makes && returned;
    (void)sonde__graph_append(graph, &op);
}

void sonde__plan_autocast(sonde__plan_program *program)
{
    static const sonde_dtype dtypes[] = {[SONDE_NN_FLOAT32] = SONDE_F32,
                                         [SONDE_NN_BFLOAT16] = SONDE_BF16,
                                         [SONDE_NN_FLOAT16] = SONDE_F16};
    sonde__op_graph *graph = &program->graph;
    sonde__graph_node_op *ops = graph->ops;
    const size_t count = graph->op_count, values = graph->value_count;
    autocast_work work = {.graph = graph, .dtype = dtypes[program->options->dtype]};
    bool any = sonde__op_is_half(work.dtype);

    for (size_t i = 0; i < count; i++) {
        any = any || ops[i].given.half != 0 ||
              (ops[i].kind == &sonde__op_cast &&
               sonde__op_is_half(graph->values[ops[i].out[0]].shape.dtype));
    }
    for (size_t i = 0; i < graph->input_count; i++) {
        any = any || sonde__op_is_half(graph->values[graph->inputs[i]].shape.dtype);
    }
    if (!any) {
        return;
    }
    work.wide = sonde__calloc(values, sizeof *work.wide);
    if (work.wide == NULL) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
        return;
    }
    graph->ops = NULL;
    graph->op_count = graph->op_capacity = 0;
    for (size_t i = 0; i < count && graph->err == SONDE_OK; i++) {
        cast_op(&work, ops[i]);
    }
    sonde_log(SONDE_LOG_INFO, "compile",
              "products of bfloat16 run on %s, of float16 on float32 units",
              sonde__half_name());
    graph->module = sonde__graph_string(graph, "%s", "");
    sonde__free(ops);
    sonde__free(work.wide);
}
