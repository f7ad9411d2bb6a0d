/*
 * job_onnx.c - ONNX files by way of Python, and a job whose model is one.
 *
 *     model: net.onnx
 *     model: {onnx: net.onnx, input: [3, 224, 224], loss: {cross_entropy: {label_smoothing: 0.1}}}
 *
 * In: sonde.onnx translates the file into a plan, a temporary file, whose text is "batch
 * opset last_op". Out: it reads the description of a model, and its weights beside it.
 *
 * A relative path of a job begins at the job's folder. `input` is needed where the file
 * leaves dimensions open besides the batch. Without a loss it is nll if the file ends with
 * LogSoftmax, else cross_entropy.
 */
#include "base/fail.h"
#include "base/options.h"
#include "base/memory.h"
#include "base/python_run.h"
#include "base/whole_file.h"
#include "nn/graph/graph.h"
#include "nn/graph/layer.h"
#include "nn/job/job.h"

#include <sonde/nn/model.h>
#include <sonde/nn/onnx.h>
#include <sonde/nn/plan.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- files by way of Python ----------------------------------------------------------- */

/* A new empty file for what is handed over. */
static sonde_err make_file(char *path, size_t size, sonde_diag *diag)
{
    const char *folder = getenv("TMPDIR");

    (void)snprintf(path, size, "%s/sonde-onnx-XXXXXX",
                   folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    const int file = mkstemp(path);

    if (file < 0) {
        return sonde__fail_errno(diag, path, "cannot make a temporary file");
    }
    (void)close(file);
    return SONDE_OK;
}

static sonde_err load_plan(const char *path, const sonde_nn_onnx_options *options,
                           sonde_nn_plan **out, sonde_diag *diag)
{
    char target[1024], shape[SONDE_MAX_DIMS * 24] = "";
    size_t used = 0;

    for (int i = 0; i < options->rank && i < SONDE_MAX_DIMS; i++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64,
                                 i > 0 ? "," : "", options->shape[i]);
    }
    SONDE__TRY(make_file(target, sizeof target, diag));
    sonde_err err = sonde__python_run(
        "onnx",
        (const char *const[]){"plan", path, target, options->one_output ? "one" : "all",
                              shape, NULL},
        diag);

    if (err == SONDE_OK) {
        err = sonde_nn_plan_load(target, out, diag);
    }
    (void)unlink(target);
    return err;
}

static sonde_err read_info(const sonde_nn_plan *plan, sonde_nn_onnx_info *info,
                           sonde_diag *diag)
{
    sonde_nn_plan_info saved;

    SONDE__TRY(sonde_nn_plan_describe(plan, &saved, diag));
    *info = (sonde_nn_onnx_info){0};
    return sscanf(saved.text, "%" SCNd64 " %" SCNd64 " %31s", &info->batch, &info->opset,
                  info->last_op) >= 2
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EFORMAT, "sonde.onnx", "batch, opset, op",
                             "a plan of '%s'", saved.text);
}

sonde_err sonde_nn_onnx_load(const char *path, const sonde_nn_onnx_options *options,
                             sonde_nn_model **out, sonde_nn_onnx_info *info,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    sonde_nn_onnx_options own;
    sonde_nn_onnx_info read = {0};
    sonde_nn_plan *plan = NULL;

    SONDE__TAKE(sonde_nn_onnx_options, &own, options, diag);
    SONDE__TRY(load_plan(path, &own, &plan, diag));
    sonde_err err = read_info(plan, &read, diag);

    if (err == SONDE_OK) {
        err = sonde_nn_plan_model(plan, 0, out, diag);
    }
    if (err == SONDE_OK && info != NULL) {
        *info = read;
    }
    sonde_nn_plan_destroy(plan);
    return err;
}

sonde_err sonde_nn_onnx_save(const sonde_nn_model *model, const char *path,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, model, path);
    char graph[1024], weights[1024 + 16];
    sonde_text text = {0};
    sonde_err err = sonde_nn_model_describe(model, &text, diag);

    if (err == SONDE_OK) {
        err = make_file(graph, sizeof graph, diag);
    }
    if (err != SONDE_OK) {
        sonde_text_fini(&text);
        return err;
    }
    (void)snprintf(weights, sizeof weights, "%s.safetensors", graph);
    SONDE__TRY_DONE(sonde__whole_put(graph, text.data, text.length, diag));
    SONDE__TRY_DONE(sonde_nn_model_save(model, weights, diag));
    err = sonde__python_run(
        "onnx", (const char *const[]){"write", graph, weights, path, NULL}, diag);

done:
    (void)unlink(graph);
    (void)unlink(weights);
    sonde_text_fini(&text);
    return err;
}

/* --- jobs ------------------------------------------------------------------------------ */

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
    if (sonde_nn_model_get_info(model).input_count > SONDE_NN_FIELDS - 1) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, "at most 5",
                           "a model of %zu inputs",
                           sonde_nn_model_get_info(model).input_count);
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

sonde_err sonde__job_translate_onnx(const sonde__yaml_reader *reader, sonde_nn_job *job)
{
    sonde_nn_onnx_options options = {.size = sizeof options, .one_output = true};

    SONDE__TRY(read_input(reader, job, &options));
    char *path = path_of(job);

    if (path == NULL) {
        return sonde__fail_nomem(reader->diag, "a job");
    }
    const sonde_err err = load_plan(path, &options, &job->translated, reader->diag);

    sonde__free(path);
    return err;
}

sonde_err sonde__job_open_onnx(const sonde__yaml_reader *reader, const sonde_nn_job *job,
                               sonde_nn_model **out, const char **loss)
{
    sonde_nn_onnx_info info = {0};
    sonde_nn_model *model = NULL;

    SONDE__TRY(read_info(job->translated, &info, reader->diag));
    SONDE__TRY(sonde_nn_plan_model(job->translated, 0, &model, reader->diag));
    const sonde_err err =
        check_model(model, job->onnx, &info, sonde__yaml_get(job->model, "loss") != NULL,
                    reader->diag);

    if (err != SONDE_OK) {
        sonde_nn_model_destroy(model);
        return err;
    }
    *loss = strcmp(info.last_op, "LogSoftmax") == 0 ? "nll" : "cross_entropy";
    *out = model;
    return SONDE_OK;
}
