/*
 * program.c - the state of a compilation: its start, its groups, its names, its listing.
 *
 * A program's life: from a model's forward graph on.
 *
 * Which group of the optimizer a parameter belongs to: the first whose selector
 * has its name, else the default.
 *
 * The catalogue: every named value that is computed, fed or kept, and its
 * aliases.
 *
 * Graphs and plans as text, for people.
 */
#include "nn/compile/compile.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/selector.h>
#include <string.h>

/* === program ======================================================================== */

static sonde_err check_purpose(const sonde__plan_program *program, sonde_diag *diag)
{
    const sonde__op_graph *graph = &program->graph;

    if (program->optimizer != NULL && graph->loss == 0) {
        return sonde__fail(diag, SONDE_ESTATE, "model", "one call of sonde_nn_loss",
                           "it has no loss to train by");
    }
    if (program->optimizer == NULL && graph->output_count == 0) {
        return sonde__fail(diag, SONDE_ESTATE, "model", "a call of sonde_nn_output",
                           "it has no output to infer");
    }
    return SONDE_OK;
}

/* The batch size that the inputs were declared with. */
static int64_t built_batch(const sonde__op_graph *graph)
{
    return graph->input_count > 0 ? graph->values[graph->inputs[0]].shape.dim[0] : 0;
}

sonde_err sonde__plan_program_init(sonde__plan_program *program,
                                   const sonde_nn_model *model,
                                   const sonde_nn_options *options,
                                   const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    sonde_err err = sonde_nn_model_status(model, diag);

    *program =
        (sonde__plan_program){.model = model, .options = options, .optimizer = optimizer};
    if (err != SONDE_OK) {
        return err;
    }
    program->batch_size =
        options->batch_size > 0 ? options->batch_size : built_batch(&model->graph);
    SONDE__TRY(sonde__graph_instantiate(&model->graph, program->batch_size,
                                        optimizer != NULL, &program->graph, diag));
    SONDE__TRY(check_purpose(program, diag));
    sonde__plan_autocast(program);
    if (program->graph.err != SONDE_OK) {
        if (diag != NULL) {
            *diag = program->graph.diag;
        }
        return program->graph.err;
    }
    program->forward_values = program->graph.value_count;
    program->micro_ops = SIZE_MAX;
    program->gradient_of =
        sonde__calloc(program->forward_values, sizeof *program->gradient_of);
    program->trained = sonde__calloc(model->param_count, sizeof *program->trained);
    program->group_of = sonde__calloc(model->param_count, sizeof *program->group_of);
    if (program->gradient_of == NULL || program->trained == NULL ||
        program->group_of == NULL) {
        return sonde__fail_nomem(diag, "compiling");
    }
    for (size_t i = 0; i < model->param_count; i++) {
        program->trained[i].param = model->params[i].value;
    }
    return SONDE_OK;
}

void sonde__plan_program_fini(sonde__plan_program *program)
{
    sonde__graph_fini(&program->graph);
    sonde__free(program->gradient_of);
    sonde__free(program->trained);
    sonde__free(program->group_of);
    *program = (sonde__plan_program){0};
}

/* === group ========================================================================== */

/* The model's parameters as a catalogue that selectors read; ids are their numbers. */
static sonde_err list_parameters(const sonde_nn_model *model, sonde_catalogue **out,
                                 sonde_diag *diag)
{
    sonde_catalogue *catalogue = NULL;
    sonde_err err = sonde_catalogue_create(&catalogue, diag);

    for (size_t i = 0; err == SONDE_OK && i < model->param_count; i++) {
        const sonde__graph_node_value *value =
            &model->graph.values[model->params[i].value];
        sonde_tensor_info info = {.name = value->name,
                                  .module = value->module,
                                  .role = value->role,
                                  .dtype = value->shape.dtype,
                                  .rank = value->shape.rank,
                                  .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        for (int d = 0; d < info.rank; d++) {
            info.shape[d] = value->shape.dim[d];
        }
        err = sonde_catalogue_declare(catalogue, &info, &id, diag);
    }
    if (err != SONDE_OK) {
        sonde_catalogue_destroy(catalogue);
        return err;
    }
    *out = catalogue;
    return SONDE_OK;
}

/* Gives a group the parameters that its selector has and no group before it. */
static sonde_err take_group(sonde__plan_program *program,
                            const sonde_catalogue *parameters, int group,
                            sonde_diag *diag)
{
    const sonde_nn_group *given = &program->groups[group - 1];
    sonde_selector *selector = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_err err = sonde_selector_create(given->params, &selector, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde_selector_resolve(selector, parameters, &ids, &count, diag);
    sonde_selector_destroy(selector);
    if (err != SONDE_OK) {
        return err;
    }
    for (size_t i = 0; i < count; i++) {
        int *taken = &program->group_of[ids[i]];

        *taken = *taken == 0 ? group : *taken;
    }
    sonde_release(ids);
    return count > 0 ? SONDE_OK
                     : sonde__fail(diag, SONDE_ENOTFOUND, given->name,
                                   "a selector of parameters",
                                   "no parameter is named '%s'", given->params);
}

sonde_err sonde__plan_take_groups(sonde__plan_program *program,
                                  const sonde_nn_group *groups, size_t count,
                                  sonde_diag *diag)
{
    sonde_catalogue *parameters = NULL;
    sonde_err err = SONDE_OK;

    if (count == 0) {
        return SONDE_OK;
    }
    SONDE__TRY(list_parameters(program->model, &parameters, diag));
    program->groups = groups;
    program->group_count = count;
    for (int i = 1; err == SONDE_OK && i <= (int)count; i++) {
        err = take_group(program, parameters, i, diag);
    }
    sonde_catalogue_destroy(parameters);
    return err;
}

const sonde_nn_optimizer *sonde__plan_optimizer(const sonde__plan_program *program,
                                                int group)
{
    return group == 0 ? program->optimizer : &program->groups[group - 1].optimizer;
}

/* === name =========================================================================== */

static bool is_computed(const sonde__op_graph *graph, sonde__op_value value)
{
    return graph->values[value].source != SONDE__FROM_OP ||
           sonde__plan_producer(graph, value) != SIZE_MAX;
}

static sonde_err declare(sonde_catalogue *catalogue, const sonde__op_graph *graph,
                         sonde__op_value value, const char *name, const char *module,
                         sonde_role role, uint32_t same_as, uint32_t *id,
                         sonde_diag *diag)
{
    const sonde__graph_node_value *node = &graph->values[value];
    sonde_tensor_info info = {.name = name,
                              .module = module,
                              .op = node->op,
                              .role = role,
                              .pass = node->pass,
                              .dtype = node->shape.dtype,
                              .rank = node->shape.rank,
                              .same_as = same_as,
                              .shared = node->source == SONDE__FROM_PARAM ||
                                        node->source == SONDE__FROM_STATE ||
                                        node->pass == SONDE_PASS_UPDATE,
                              .note = node->note};

    for (int i = 0; i < node->shape.rank; i++) {
        info.shape[i] = node->shape.dim[i];
    }
    return sonde_catalogue_declare(catalogue, &info, id, diag);
}

/* Whether anything that a module computes has a name: else the module itself was pruned.
 */
static bool module_lives(const sonde__op_graph *graph, const uint32_t *id_of,
                         const char *module)
{
    for (sonde__op_value v = 1; v < graph->value_count; v++) {
        const sonde__graph_node_value *value = &graph->values[v];

        if (id_of[v] != SONDE_NO_TENSOR && value->source == SONDE__FROM_OP &&
            strcmp(value->module, module) == 0) {
            return true;
        }
    }
    return false;
}

/* A module's input, and the gradient of it if there is one. */
static sonde_err declare_alias(const sonde__plan_program *program,
                               sonde_catalogue *catalogue,
                               const sonde__graph_alias_entry *alias,
                               const uint32_t *id_of, sonde_diag *diag)
{
    const sonde__op_graph *graph = &program->graph;
    const sonde__op_value gradient =
        alias->value < program->forward_values ? program->gradient_of[alias->value] : 0;
    char name[560];
    uint32_t id = 0;
    sonde_err err = SONDE_OK;

    if (id_of[alias->value] == SONDE_NO_TENSOR ||
        !module_lives(graph, id_of, alias->module)) {
        return SONDE_OK;
    }
    err = declare(catalogue, graph, alias->value, alias->name, alias->module, alias->role,
                  id_of[alias->value], &id, diag);
    if (err != SONDE_OK || gradient == 0 || id_of[gradient] == SONDE_NO_TENSOR) {
        return err;
    }
    (void)snprintf(name, sizeof name, "Gradient___%s", alias->name);
    return declare(catalogue, graph, gradient, name, alias->module,
                   SONDE_ROLE_ACTIVATION_GRADIENT, id_of[gradient], &id, diag);
}

sonde_err sonde__pass_name(const sonde__plan_program *program, sonde_catalogue *catalogue,
                           uint32_t *id_of, sonde_diag *diag)
{
    const sonde__op_graph *graph = &program->graph;

    for (sonde__op_value v = 0; v < graph->value_count; v++) {
        const sonde__graph_node_value *value = &graph->values[v];

        id_of[v] = SONDE_NO_TENSOR;
        if (value->name == NULL || !is_computed(graph, v)) {
            continue;
        }
        SONDE__TRY(declare(catalogue, graph, v, value->name, value->module, value->role,
                           SONDE_NO_TENSOR, &id_of[v], diag));
    }
    for (size_t i = 0; i < graph->alias_count; i++) {
        SONDE__TRY(declare_alias(program, catalogue, &graph->aliases[i], id_of, diag));
    }
    return SONDE_OK;
}

/* === dump =========================================================================== */

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
