/*
 * job_model.c - the model section of a job: its inputs, its layers, its loss.
 */
#include "nn/job/job_layers.h"
#include "base/macros.h"
#include "base/memory.h"

#include <string.h>

static sonde_err build_loss(job_builder *b, const sonde__yaml *section,
                            sonde_nn_value target)
{
    static const char *const kinds[] = {"nll", "cross_entropy"};
    static const char *const keys[] = {"name"};
    const char *name = "loss";
    bool entropy = false;
    sonde_err err = SONDE_OK;

    if (section->kind == SONDE__YAML_SCALAR) {
        entropy = strcmp(section->text, kinds[1]) == 0;
        if (!entropy && strcmp(section->text, kinds[0]) != 0) {
            return sonde__yaml_fail(&b->reader, section, SONDE_EINVAL,
                                    "nll or cross_entropy", "unknown loss '%s'",
                                    section->text);
        }
    } else {
        err = sonde__yaml_check_keys(&b->reader, section, kinds, 2);
        if (err == SONDE_OK && section->count != 1) {
            err = sonde__yaml_fail(&b->reader, section, SONDE_EINVAL, "one loss",
                                   "%zu losses", section->count);
        }
        if (err == SONDE_OK) {
            err = sonde__yaml_check_keys(&b->reader, section->children[0], keys, 1);
        }
        if (err == SONDE_OK) {
            err = sonde__yaml_text(&b->reader, section->children[0], "name", &name);
            entropy = strcmp(section->children[0]->key, kinds[1]) == 0;
        }
    }
    if (err != SONDE_OK) {
        return err;
    }
    sonde_nn_loss(b->model,
                  entropy ? sonde_nn_cross_entropy(b->model, name, b->current, target)
                          : sonde_nn_nll_loss(b->model, name, b->current, target));
    return sonde__job_check(b, section);
}

/* Samples and targets, one of each: compile instantiates the graph with the session's
 * batch size. */
static sonde_err build_inputs(job_builder *b, const sonde__yaml *model,
                              sonde_nn_value *target)
{
    int64_t shape[SONDE_MAX_DIMS] = {1};
    size_t rank = 0;
    sonde_err err = sonde__yaml_ints(&b->reader, model, "input", shape + 1,
                                     SONDE_MAX_DIMS - 1, &rank);

    if (err == SONDE_OK && rank == 0) {
        err = sonde__yaml_fail(&b->reader, model, SONDE_EINVAL, "input: [1, 28, 28]",
                               "the model says no shape of its input");
    }
    if (err == SONDE_OK) {
        err = sonde__job_remember(
            b, "input", sonde_nn_input(b->model, SONDE_F32, (int)rank + 1, shape));
        *target = sonde_nn_input(b->model, SONDE_I64, 1, shape);
    }
    return err == SONDE_OK ? sonde__job_check(b, model) : err;
}

/* What a reader of the job wants to know of its model. */
static sonde_err describe(const job_builder *b, sonde_nn_job_info *info,
                          const sonde__yaml *model)
{
    const int64_t *shape = NULL;
    int rank = 0;

    shape = sonde_nn_value_shape(b->model, b->values[0].value, &rank);
    info->sample_rank = rank - 1;
    memcpy(info->sample_shape, shape + 1, (size_t)(rank - 1) * sizeof *shape);
    shape = sonde_nn_value_shape(b->model, b->current, &rank);
    if (rank != 2) {
        return sonde__yaml_fail(&b->reader, model, SONDE_ESHAPE, "(N, classes)",
                                "the last layer's output has %d dimensions", rank);
    }
    info->classes = shape[1];
    return SONDE_OK;
}

static sonde_err build_model(job_builder *b, const sonde__yaml *model,
                             sonde_nn_job_info *info)
{
    static const char *const keys[] = {"input", "layers", "loss"};
    const sonde__yaml *loss = NULL;
    sonde_nn_value target = 0;
    sonde_err err = sonde__yaml_check_keys(&b->reader, model, keys, SONDE_COUNT_OF(keys));

    err = err == SONDE_OK ? build_inputs(b, model, &target) : err;
    err = err == SONDE_OK ? sonde__job_layers(b, model) : err;
    if (err != SONDE_OK) {
        return err;
    }
    sonde_nn_output(b->model, b->current);
    loss = sonde__yaml_get(model, "loss");
    if (loss == NULL) {
        return sonde__yaml_fail(&b->reader, model, SONDE_EINVAL,
                                "loss: nll or cross_entropy", "the model says no loss");
    }
    err = build_loss(b, loss, target);
    return err == SONDE_OK ? describe(b, info, model) : err;
}

sonde_err sonde__job_build(const sonde_nn_job *job, sonde_nn_job_info *info,
                           sonde_nn_model **out, sonde_diag *diag)
{
    const char *name = job->builtin != NULL ? job->info.model_name : job->name;
    job_builder b = {.reader = {name, diag}};
    sonde_err err = sonde_nn_model_create(&b.model, diag);

    if (err == SONDE_OK) {
        err = build_model(&b, job->model, info);
    }
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
    sonde_nn_job_info info = job->info;

    return sonde__job_build(job, &info, out, diag);
}
