/*
 * job_onnx.c - a job whose model is an ONNX file.
 *
 *     model: net.onnx
 *     model: {onnx: net.onnx, input: [3, 224, 224], loss: {cross_entropy: {label_smoothing: 0.1}}}
 *
 * A relative path begins at the job's folder. `input` is needed where the file leaves
 * dimensions open besides the batch. Without a loss it is nll if the file ends with
 * LogSoftmax, else cross_entropy.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "nn/graph/graph.h"
#include "nn/graph/layer.h"
#include "nn/job/job.h"

#include <sonde/nn/onnx.h>

#include <stdio.h>
#include <string.h>

bool sonde__job_is_onnx(const char *text)
{
    static const char ending[] = ".onnx";
    const size_t length = strlen(text), tail = sizeof ending - 1;

    return length > tail && strcmp(text + length - tail, ending) == 0;
}

/* The file's path, new. */
static char *path_of(const sonde_nn_job *job)
{
    const char *slash = strrchr(job->name, '/');
    const size_t folder =
        slash != NULL && job->onnx[0] != '/' ? (size_t)(slash - job->name) + 1 : 0;
    const size_t length = strlen(job->onnx);
    char *path = sonde__malloc(folder + length + 1);

    if (path != NULL) {
        memcpy(path, job->name, folder);
        memcpy(path + folder, job->onnx, length + 1);
    }
    return path;
}

static sonde_err read_input(const sonde__yaml_reader *reader, const sonde_nn_job *job,
                            sonde_nn_onnx_options *options)
{
    size_t rank = 0;
    sonde_err err = SONDE_OK;

    if (job->model->kind != SONDE__YAML_MAP) {
        return SONDE_OK;
    }
    err = sonde__yaml_ints(reader, job->model, "input", options->shape,
                           SONDE_MAX_DIMS - 1, &rank);
    options->rank = (int)rank;
    return err;
}

static sonde_err check_model(const sonde_nn_model *model, const char *path,
                             const sonde_nn_onnx_info *info, bool own_loss,
                             sonde_diag *diag)
{
    if (sonde_nn_model_input_count(model) > SONDE_NN_FIELDS - 1) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, "at most 5",
                           "a model of %zu inputs", sonde_nn_model_input_count(model));
    }
    if (!own_loss && (strcmp(info->last_op, "Softmax") == 0 ||
                      strcmp(info->last_op, "Sigmoid") == 0)) {
        return sonde__fail(diag, SONDE_EINVAL, path,
                           "logits or log-probabilities, or a job with `loss`",
                           "the model ends with %s", info->last_op);
    }
    return SONDE_OK;
}

sonde_err sonde__job_describe_inputs(const sonde_nn_job *job, const sonde_nn_model *model,
                                     size_t count, sonde_nn_job_info *info,
                                     sonde_diag *diag)
{
    info->input_count = count;
    for (size_t i = 0; i < count; i++) {
        const sonde__op_value value = model->graph.inputs[i];
        const sonde__op_shape *shape = sonde__graph_shape(model, value);
        const char *name = job->input_names[i];
        sonde_nn_field *field = &info->inputs[i];

        *field = (sonde_nn_field){.name = name != NULL ? name
                                          : count == 1 ? "input"
                                                       : model->graph.values[value].name,
                                  .dtype = shape->dtype,
                                  .rank = shape->rank - 1};
        if (count > 1 && field->rank > SONDE_NN_SAMPLE_DIMS) {
            return sonde__fail(
                diag, SONDE_EUNSUPPORTED, job->name, "at most 3 besides the batch",
                "the input '%s' has %d dimensions", field->name, field->rank);
        }
        memcpy(field->shape, shape->dim + 1, sizeof field->shape);
    }
    info->input_dtype = info->inputs[0].dtype;
    return SONDE_OK;
}

sonde_err sonde__job_open_onnx(const sonde__yaml_reader *reader, const sonde_nn_job *job,
                               sonde_nn_model **out, const char **loss)
{
    sonde_nn_onnx_options options = {.size = sizeof options, .one_output = true};
    sonde_nn_onnx_info info = {0};
    sonde_nn_model *model = NULL;
    char *path = path_of(job);
    sonde_err err = path != NULL ? read_input(reader, job, &options)
                                 : sonde__fail_nomem(reader->diag, "a job");

    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(sonde_nn_onnx_load(path, &options, &model, &info, reader->diag));
    err = check_model(model, path, &info, sonde__yaml_get(job->model, "loss") != NULL,
                      reader->diag);
    if (err != SONDE_OK) {
        sonde_nn_model_destroy(model);
        goto done;
    }
    *loss = strcmp(info.last_op, "LogSoftmax") == 0 ? "nll" : "cross_entropy";
    *out = model;

done:
    sonde__free(path);
    return err;
}
