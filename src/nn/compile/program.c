/*
 * program.c - a program's life: from a model's forward graph on.
 */
#include "nn/compile/compile.h"
#include "base/fail.h"
#include "base/memory.h"

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
