/*
 * group.c - which group of the optimiser a parameter belongs to: the first whose selector
 * has its name, else the default.
 */
#include "nn/compile/compile.h"
#include "base/fail.h"

#include <sonde/selector.h>

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
