/*
 * job_plan.c - the model of a job that was loaded from a plan: its section `model` is the
 * one that job_show.c writes.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"
#include "nn/graph/graph.h"

#include <sonde/nn/plan.h>

#include <stdio.h>
#include <string.h>

bool sonde__job_is_plan(const char *path)
{
    static const char magic[] = {'S', 'O', 'N', 'D', 'E', 'P', 'L', 'N'};
    const size_t length = strlen(path);
    char first[sizeof magic];
    FILE *file = NULL;
    bool is = length > 5 && strcmp(path + length - 5, ".plan") == 0;

    if (!is) {
        file = fopen(path, "rbe");
        is = file != NULL && fread(first, 1, sizeof first, file) == sizeof first &&
             memcmp(first, magic, sizeof magic) == 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return is;
}

/* What the section says of the model that no graph does. */
static sonde_err read_model(const sonde__yaml_reader *reader, const sonde__yaml *section,
                            sonde_nn_job_info *info)
{
    static const char *const keys[] = {"saved",   "target", "positions", "axis",
                                       "classes", "inputs", "tokenizer"};
    int64_t target = 0, axis = 0;
    size_t rank = 0;
    const sonde_err err =
        section->kind == SONDE__YAML_MAP
            ? sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys))
            : sonde__yaml_fail(reader, section, SONDE_EFORMAT,
                               "the section that sonde compile --save writes",
                               "the plan's job has another model");

    SONDE__TRY(err);
    SONDE__TRY(sonde__yaml_text(reader, section, "saved", &info->model_name));
    SONDE__TRY(
        sonde__yaml_int(reader, section, "target", 0, SONDE_NN_TARGET_VALUES, &target));
    SONDE__TRY(sonde__yaml_int(reader, section, "axis", 0, SONDE_MAX_DIMS - 1, &axis));
    SONDE__TRY(sonde__yaml_int(reader, section, "classes", 0, INT32_MAX, &info->classes));
    SONDE__TRY(sonde__yaml_ints(reader, section, "positions", info->target_shape,
                                SONDE_MAX_DIMS - 1, &rank));
    info->target = (sonde_nn_job_target)target;
    info->class_axis = (int)axis;
    info->target_rank = (int)rank;
    return SONDE_OK;
}

/* Of a softmax over the batch, at the end, the input: as job files leave it out. */
static sonde__op_value before_batch_softmax(const sonde__op_graph *graph,
                                            sonde__op_value output)
{
    for (size_t i = 0; i < graph->op_count; i++) {
        const sonde__graph_node_op *op = &graph->ops[i];

        if (op->out[0] == output && op->attrs.along.axis == 0 &&
            (op->kind == &sonde__op_softmax || op->kind == &sonde__op_log_softmax)) {
            return op->in[0];
        }
    }
    return output;
}

/* The inputs, by the names of the key `inputs`; without it there is one. */
static sonde_err read_inputs(const sonde_nn_job *job, const sonde_nn_model *model,
                             sonde_nn_job_info *info, sonde_diag *diag)
{
    const sonde__yaml *names = sonde__yaml_get(job->model, "inputs");
    const size_t count = names != NULL ? names->count : 1;
    bool texts = names == NULL || names->kind == SONDE__YAML_LIST;
    sonde_err err = SONDE_OK;

    for (size_t i = 0; names != NULL && texts && i < count; i++) {
        texts = names->children[i]->kind == SONDE__YAML_SCALAR;
    }
    if (!texts || count < 1 || count > SONDE_NN_FIELDS - 1 ||
        count > model->graph.input_count) {
        return sonde__fail(diag, SONDE_EFORMAT, job->name, NULL,
                           "the plan's job does not fit its model");
    }
    err = sonde__job_describe_inputs(job, model, count, info, diag);
    for (size_t i = 0; names != NULL && err == SONDE_OK && i < count; i++) {
        info->inputs[i].name = names->children[i]->text; /* of the job's own tree */
    }
    return err;
}

sonde_err sonde__job_build_plan(const sonde_nn_job *job, sonde_nn_job_info *info,
                                sonde_nn_model **out, sonde_diag *diag)
{
    const sonde__yaml_reader reader = {job->name, diag};
    sonde_nn_model *model = NULL;
    const sonde__op_shape *sample = NULL, *output = NULL;
    sonde__op_graph *graph = NULL;
    sonde_err err = read_model(&reader, job->model, info);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde_nn_plan_model(job->plan, info->seed, &model, diag));
    graph = &model->graph;
    sample = graph->input_count > 0 ? sonde__graph_shape(model, graph->inputs[0]) : NULL;
    output = sonde__graph_shape(model, sonde_nn_model_output(model, 0));
    if (sample == NULL ||
        (info->classes > 0 && (info->class_axis >= output->rank ||
                               output->dim[info->class_axis] != info->classes))) {
        sonde_nn_model_destroy(model);
        return sonde__fail(diag, SONDE_EFORMAT, job->name, NULL,
                           "the plan's job does not fit its model");
    }
    info->sample_rank = sample->rank - 1;
    memcpy(info->sample_shape, sample->dim + 1, sizeof sample->dim - sizeof *sample->dim);
    err = read_inputs(job, model, info, diag);
    if (err != SONDE_OK) {
        sonde_nn_model_destroy(model);
        return err;
    }
    if (job->info.one_sample && graph->output_count > 0) {
        graph->outputs[0] = before_batch_softmax(graph, graph->outputs[0]);
    }
    *out = model;
    return SONDE_OK;
}
