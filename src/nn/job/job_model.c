/*
 * job_model.c - the model section of a job: its inputs, its layers, its loss.
 */
#include "nn/job/job_layers.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <string.h>

/* The keys dtype and target. */
static sonde_err read_input_keys(const sonde__job_builder *b, const sonde__yaml *model,
                                 sonde_nn_job_info *info)
{
    const char *dtype = "float32";
    size_t rank = 0;
    sonde_err err = sonde__yaml_text(&b->reader, model, "dtype", &dtype);

    if (err != SONDE_OK) {
        return err;
    }
    info->input_dtype = strcmp(dtype, "int64") == 0 ? SONDE_I64 : SONDE_F32;
    if (info->input_dtype == SONDE_F32 && strcmp(dtype, "float32") != 0) {
        return sonde__yaml_fail(&b->reader, sonde__yaml_get(model, "dtype"), SONDE_EINVAL,
                                "float32, or int64 for tokens", "dtype '%s'", dtype);
    }
    err = sonde__yaml_ints(&b->reader, model, "target", info->target_shape,
                           SONDE_MAX_DIMS - 1, &rank);
    info->target_rank = (int)rank;
    if (err != SONDE_OK || rank == 0) {
        return err;
    }
    if (info->target != SONDE_NN_TARGET_CLASS) {
        return sonde__yaml_fail(&b->reader, sonde__yaml_get(model, "target"),
                                SONDE_EINVAL, "nll or cross_entropy",
                                "a target of several classes for another loss");
    }
    info->target = SONDE_NN_TARGET_TOKENS;
    return SONDE_OK;
}

/* Samples and targets, one of each: compile instantiates the graph with the session's
 * batch size. */
static sonde_err build_inputs(sonde__job_builder *b, const sonde__yaml *model,
                              const sonde_nn_job_info *info, sonde_nn_value *target)
{
    const bool labels = info->target != SONDE_NN_TARGET_INPUT;
    int64_t shape[SONDE_MAX_DIMS] = {1};
    size_t rank = 0;
    sonde_err err = sonde__yaml_ints(&b->reader, model, "input", shape + 1,
                                     SONDE_MAX_DIMS - 1, &rank);

    if (err != SONDE_OK) {
        return err;
    }
    if (rank == 0) {
        err = sonde__yaml_fail(&b->reader, model, SONDE_EINVAL, "input: [1, 28, 28]",
                               "the model says no shape of its input");
    }
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__job_remember(
        b, "input", sonde_nn_input(b->model, info->input_dtype, (int)rank + 1, shape));
    memcpy(shape + 1, info->target_shape, sizeof shape - sizeof *shape);
    *target =
        labels ? sonde_nn_input(b->model, SONDE_I64, info->target_rank + 1, shape) : 0;
    if (err != SONDE_OK) {
        return err;
    }
    return sonde__job_check_layer(b, model);
}

/* What a reader of the job wants to know of its model. */
static sonde_err describe(const sonde__job_builder *b, sonde_nn_job_info *info,
                          const sonde__yaml *model)
{
    const int64_t *shape = NULL;
    int rank = 0;

    shape = sonde_nn_value_shape(b->model, b->values[0].value, &rank);
    info->sample_rank = rank - 1;
    memcpy(info->sample_shape, shape + 1, (size_t)(rank - 1) * sizeof *shape);
    shape = sonde_nn_value_shape(b->model, b->current, &rank);
    info->classes = 0;
    if (info->target == SONDE_NN_TARGET_INPUT || info->target == SONDE_NN_TARGET_NUMBER) {
        return SONDE_OK;
    }
    if (info->target == SONDE_NN_TARGET_TOKENS) {
        info->class_axis = b->class_axis < 0 ? b->class_axis + rank : b->class_axis;
        info->classes = shape[info->class_axis];
        return SONDE_OK;
    }
    info->class_axis = 1;
    if (rank != 2) {
        return sonde__yaml_fail(&b->reader, model, SONDE_ESHAPE, "(N, classes)",
                                "the last layer's output has %d dimensions", rank);
    }
    info->classes = shape[1];
    return SONDE_OK;
}

static sonde_err build_model(sonde__job_builder *b, const sonde__yaml *model,
                             sonde_nn_job_info *info)
{
    static const char *const keys[] = {"input", "layers", "loss", "dtype", "target"};
    const sonde__yaml *loss = NULL;
    sonde_nn_value target = 0;
    sonde_err err = sonde__yaml_check_keys(&b->reader, model, keys, SONDE_COUNT_OF(keys));

    if (err != SONDE_OK) {
        return err;
    }
    loss = sonde__yaml_get(model, "loss");
    if (loss != NULL) {
        err = sonde__job_read_target(&b->reader, loss, &info->target);
        if (err != SONDE_OK) {
            return err;
        }
    }
    err = read_input_keys(b, model, info);
    if (err != SONDE_OK) {
        return err;
    }
    err = build_inputs(b, model, info, &target);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__job_build_layers(b, model);
    if (err != SONDE_OK) {
        return err;
    }
    sonde_nn_output(b->model, b->current);
    if (loss == NULL) {
        return sonde__yaml_fail(&b->reader, model, SONDE_EINVAL,
                                "loss: cross_entropy, nll, mse_loss ...",
                                "the model says no loss");
    }
    err = sonde__job_build_loss(&b->reader, loss, b->model,
                                &(sonde__job_compared){.output = b->current,
                                                       .sample = b->values[0].value,
                                                       .labels = target,
                                                       .target = info->target},
                                &b->class_axis);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__job_check_layer(b, loss);
    if (err != SONDE_OK) {
        return err;
    }
    return describe(b, info, model);
}

sonde_err sonde__job_build(const sonde_nn_job *job, sonde_nn_job_info *info,
                           sonde_nn_model **out, sonde_diag *diag)
{
    const char *name = job->builtin != NULL ? job->info.model_name : job->name;
    sonde__job_builder b = {.reader = {name, diag}, .one_sample = job->info.one_sample};
    sonde_err err = sonde_nn_model_create(&b.model, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = build_model(&b, job->model, info);
    sonde__free(b.values);
    if (err != SONDE_OK) {
        sonde_nn_model_destroy(b.model);
        return err;
    }
    sonde_nn_model_initialise(b.model, info->seed);
    *out = b.model;
    return SONDE_OK;
}

sonde_err sonde_nn_job_build(const sonde_nn_job *job, sonde_nn_model **out,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, out);
    sonde_nn_job_info info = job->info;

    return sonde__job_build(job, &info, out, diag);
}
