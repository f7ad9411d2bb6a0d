/*
 * name.c - the catalogue: every named value that is computed, fed or kept, and its
 * aliases.
 */
#include "nn/compile/compile.h"
#include "base/fail.h"

#include <string.h>

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
