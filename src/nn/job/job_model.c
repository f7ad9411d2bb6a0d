/*
 * job_model.c - the model section of a job: its inputs, its layers or its ONNX file, its
 * loss.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/graph/graph.h"
#include "nn/job/job_layers.h"

#include <stdio.h>
#include <string.h>

typedef struct model_builder {
    sonde__yaml_reader reader;
    sonde_nn_model *model;
    sonde_nn_value inputs[SONDE_NN_FIELDS]; /* the first is the sample */
    sonde_nn_value sample, labels, output;  /* labels 0: the target is the sample */
    int class_axis;                         /* of the loss */
} model_builder;

/* The model's own error, with the line of the section. */
static sonde_err check_status(const model_builder *b, const sonde__yaml *section)
{
    sonde_diag diag = {0};
    const sonde_err err = sonde_nn_model_status(b->model, &diag);

    if (err != SONDE_OK) {
        return sonde__yaml_fail(&b->reader, section, err, diag.expected, "%s: %s",
                                diag.where, diag.found);
    }
    return SONDE_OK;
}

/* --- inputs ------------------------------------------------------------------------- */

/* The key dtype. */
static sonde_err read_dtype(const model_builder *b, const sonde__yaml *section,
                            sonde_dtype *out)
{
    const char *dtype = "float32";
    SONDE__TRY(sonde__yaml_text(&b->reader, section, "dtype", &dtype));
    *out = strcmp(dtype, "int64") == 0 ? SONDE_I64 : SONDE_F32;
    if (*out == SONDE_F32 && strcmp(dtype, "float32") != 0) {
        return sonde__yaml_fail(&b->reader, sonde__yaml_get(section, "dtype"),
                                SONDE_EINVAL, "float32, or int64 for tokens",
                                "dtype '%s'", dtype);
    }
    return SONDE_OK;
}

/* The key target. */
static sonde_err read_positions(const model_builder *b, const sonde__yaml *section,
                                sonde_nn_job_info *info)
{
    size_t rank = 0;
    const sonde_err err = sonde__yaml_ints(&b->reader, section, "target",
                                           info->target_shape, SONDE_MAX_DIMS - 1, &rank);

    info->target_rank = (int)rank;
    if (err != SONDE_OK || rank == 0) {
        return err;
    }
    if (info->target != SONDE_NN_TARGET_CLASS) {
        return sonde__yaml_fail(&b->reader, sonde__yaml_get(section, "target"),
                                SONDE_EINVAL, "nll or cross_entropy",
                                "a target of several classes for another loss");
    }
    info->target = SONDE_NN_TARGET_TOKENS;
    return SONDE_OK;
}

/* The target of numbers, which has the output's shape. */
static void add_values(model_builder *b, sonde_nn_job_info *info)
{
    int rank = 0;
    const int64_t *output = sonde_nn_value_shape(b->model, b->output, &rank);

    if (output == NULL) {
        return;
    }
    info->target_rank = rank - 1;
    for (int i = 1; i < rank; i++) {
        info->target_shape[i - 1] = output[i];
    }
    b->labels = sonde_nn_input(b->model, SONDE_F32, rank, output);
}

/* The labels, of the sample's batch: compile instantiates the graph with the session's. */
static void add_labels(model_builder *b, sonde_nn_job_info *info)
{
    int64_t shape[SONDE_MAX_DIMS] = {0};
    const int64_t *sample = sonde_nn_value_shape(b->model, b->sample, NULL);

    if (info->target == SONDE_NN_TARGET_INPUT || sample == NULL) {
        return;
    }
    if (info->target == SONDE_NN_TARGET_VALUES) {
        add_values(b, info);
        return;
    }
    shape[0] = sample[0];
    memcpy(shape + 1, info->target_shape, sizeof shape - sizeof *shape);
    b->labels = sonde_nn_input(b->model, SONDE_I64, info->target_rank + 1, shape);
}

/* A shape after that of the batch; section[key] holds it. */
static sonde_err read_shape(const model_builder *b, const sonde__yaml *section,
                            const char *key, sonde_nn_field *field)
{
    int64_t shape[SONDE_MAX_DIMS - 1] = {0};
    size_t rank = 0;
    const sonde_err err =
        sonde__yaml_ints(&b->reader, section, key, shape, SONDE_MAX_DIMS - 1, &rank);

    field->rank = (int)rank;
    if (err == SONDE_OK && rank > SONDE_NN_SAMPLE_DIMS) {
        return sonde__yaml_fail(&b->reader, sonde__yaml_get(section, key), SONDE_EINVAL,
                                "at most 3", "an input of %zu dimensions", rank);
    }
    memcpy(field->shape, shape, sizeof field->shape);
    return err;
}

/* name: [2, 3], or name: {shape: [2, 3], dtype: int64}. */
static sonde_err read_input(const model_builder *b, const sonde__yaml *section,
                            const sonde__yaml *entry, sonde_nn_field *field)
{
    static const char *const keys[] = {"shape", "dtype"};
    sonde_err err = SONDE_OK;

    field->name = entry->key;
    field->dtype = SONDE_F32;
    if (entry->kind != SONDE__YAML_MAP) {
        err = read_shape(b, section, entry->key, field);
    } else {
        err = sonde__yaml_check_keys(&b->reader, entry, keys, SONDE_COUNT_OF(keys));
        if (err == SONDE_OK) {
            err = read_shape(b, entry, "shape", field);
        }
        if (err == SONDE_OK) {
            err = read_dtype(b, entry, &field->dtype);
        }
    }
    if (err == SONDE_OK && field->rank == 0) {
        return sonde__yaml_fail(&b->reader, entry, SONDE_EINVAL, "a shape: [2, 3]",
                                "input '%s' has no shape", entry->key);
    }
    return err;
}

/* The key inputs: a map of names. */
static sonde_err read_inputs(const model_builder *b, const sonde__yaml *section,
                             sonde_nn_job_info *info)
{
    if (section->kind != SONDE__YAML_MAP || section->count == 0 ||
        section->count > SONDE_NN_FIELDS - 1) {
        return sonde__yaml_fail(&b->reader, section, SONDE_EINVAL,
                                "inputs: {first: [3], second: [2, 4]}, at most 5",
                                "inputs is not a map of names, or has too many");
    }
    info->input_count = section->count;
    for (size_t i = 0; i < section->count; i++) {
        const sonde_err err =
            read_input(b, section, section->children[i], &info->inputs[i]);

        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

/* The key input: a shape. */
static sonde_err read_one_input(const model_builder *b, const sonde__yaml *section,
                                int64_t shape[SONDE_MAX_DIMS], size_t *rank)
{
    const sonde_err err = sonde__yaml_ints(&b->reader, section, "input", shape + 1,
                                           SONDE_MAX_DIMS - 1, rank);

    if (err == SONDE_OK && *rank == 0) {
        return sonde__yaml_fail(&b->reader, section, SONDE_EINVAL, "input: [1, 28, 28]",
                                "the model has no input shape");
    }
    return err;
}

/* The inputs that a sample fills. */
static sonde_err add_samples(model_builder *b, const sonde__yaml *section,
                             sonde_nn_job_info *info)
{
    const sonde__yaml *several = sonde__yaml_get(section, "inputs");
    int64_t shape[SONDE_MAX_DIMS] = {1};
    size_t rank = 0;
    sonde_err err = SONDE_OK;

    if (several == NULL) {
        SONDE__TRY(read_one_input(b, section, shape, &rank));
        b->inputs[0] = sonde_nn_input(b->model, info->input_dtype, (int)rank + 1, shape);
    } else if (sonde__yaml_get(section, "input") != NULL ||
               sonde__yaml_get(section, "dtype") != NULL) {
        return sonde__yaml_fail(&b->reader, several, SONDE_EINVAL, "inputs alone",
                                "a model with inputs has no input and no dtype");
    } else {
        err = read_inputs(b, several, info);
    }
    for (size_t i = 0; several != NULL && i < info->input_count && err == SONDE_OK; i++) {
        const sonde_nn_field *field = &info->inputs[i];

        memcpy(shape + 1, field->shape, sizeof field->shape);
        b->inputs[i] = sonde_nn_input(b->model, field->dtype, field->rank + 1, shape);
        info->input_dtype = info->inputs[0].dtype;
    }
    b->sample = b->inputs[0];
    return err;
}

/* --- the network -------------------------------------------------------------------- */

/* The keys of layers. */
static sonde_err build_layers(model_builder *b, const sonde_nn_job *job,
                              sonde_nn_job_info *info)
{
    static const char *const keys[] = {"input", "inputs", "layers",
                                       "loss",  "dtype",  "target"};
    sonde__job_builder layers = {.reader = b->reader, .one_sample = job->info.one_sample};
    sonde_err err =
        sonde__yaml_check_keys(&b->reader, job->model, keys, SONDE_COUNT_OF(keys));

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(read_dtype(b, job->model, &info->input_dtype));
    SONDE__TRY(sonde_nn_model_create(&b->model, b->reader.diag));
    info->input_count = 1;
    info->inputs[0].name = "input";
    SONDE__TRY(add_samples(b, job->model, info));
    if (info->target != SONDE_NN_TARGET_VALUES) { /* else after the output */
        add_labels(b, info);
    }
    SONDE__TRY(check_status(b, job->model));
    layers.model = b->model;
    for (size_t i = 0; i < info->input_count && err == SONDE_OK; i++) {
        err = sonde__job_remember(&layers, info->inputs[i].name, b->inputs[i]);
    }
    if (err == SONDE_OK) {
        layers.current = b->sample;
        err = sonde__job_build_layers(&layers, job->model);
    }
    b->output = layers.current;
    sonde__free(layers.values);
    if (err == SONDE_OK && info->target == SONDE_NN_TARGET_VALUES) {
        add_labels(b, info);
    }
    sonde_nn_output(b->model, b->output);
    return err;
}

/* The network of an ONNX file; *loss: the one that fits it. */
static sonde_err open_onnx(model_builder *b, const sonde_nn_job *job,
                           sonde_nn_job_info *info, const char **loss)
{
    static const char *const keys[] = {"onnx", "input", "loss", "target"};
    sonde_err err = SONDE_OK;

    if (job->model->kind == SONDE__YAML_MAP) {
        err = sonde__yaml_check_keys(&b->reader, job->model, keys, SONDE_COUNT_OF(keys));
    }
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__job_open_onnx(&b->reader, job, &b->model, loss);
    if (err != SONDE_OK || b->model == NULL) {
        return err;
    }
    SONDE__TRY(sonde__job_describe_inputs(job, b->model, b->model->graph.input_count,
                                          info, b->reader.diag));
    b->sample = b->model->graph.inputs[0];
    b->output = sonde_nn_model_output(b->model, 0);
    add_labels(b, info);
    return check_status(b, job->model);
}

/* --- the whole ---------------------------------------------------------------------- */

/* What a reader of the job wants to know of its model. */
static sonde_err describe(const model_builder *b, sonde_nn_job_info *info,
                          const sonde__yaml *model)
{
    const sonde__op_shape *sample = sonde__graph_shape(b->model, b->sample);
    const sonde__op_shape *output = sonde__graph_shape(b->model, b->output);
    const int rank = output->rank;

    info->sample_rank = sample->rank - 1;
    memcpy(info->sample_shape, sample->dim + 1, sizeof sample->dim - sizeof *sample->dim);
    info->inputs[0].dtype = info->input_dtype;
    info->inputs[0].rank = info->sample_rank;
    memcpy(info->inputs[0].shape, info->sample_shape, sizeof info->inputs[0].shape);
    info->classes = 0;
    if (info->target == SONDE_NN_TARGET_INPUT || info->target == SONDE_NN_TARGET_NUMBER ||
        info->target == SONDE_NN_TARGET_VALUES) {
        return SONDE_OK;
    }
    if (info->target == SONDE_NN_TARGET_TOKENS) {
        info->class_axis = b->class_axis < 0 ? b->class_axis + rank : b->class_axis;
        info->classes = output->dim[info->class_axis];
        return SONDE_OK;
    }
    info->class_axis = 1;
    if (rank != 2) {
        return sonde__yaml_fail(&b->reader, model, SONDE_ESHAPE,
                                "(N, classes): a layer flatten before the last linear",
                                "the last layer's output has %d dimensions", rank);
    }
    info->classes = output->dim[1];
    return SONDE_OK;
}

static sonde_err add_loss(model_builder *b, const sonde_nn_job *job,
                          const sonde__yaml *loss, const sonde_nn_job_info *info)
{
    const sonde_err err = sonde__job_build_loss(
        &b->reader, loss, b->model,
        &(sonde__job_compared){.output = b->output,
                               .sample = b->sample,
                               .labels = b->labels,
                               .target = info->target,
                               .balanced = job->balanced,
                               .balanced_count = job->balanced_count},
        &b->class_axis);

    return err != SONDE_OK ? err : check_status(b, loss->line > 0 ? loss : job->model);
}

static sonde_err build_model(model_builder *b, const sonde_nn_job *job,
                             sonde_nn_job_info *info)
{
    const sonde__yaml *loss = sonde__yaml_get(job->model, "loss");
    const char *fitting = NULL;
    char word[16] = "";
    const sonde__yaml standard = {.kind = SONDE__YAML_SCALAR, .text = word};
    sonde_err err =
        loss != NULL ? sonde__job_read_target(&b->reader, loss, &info->target) : SONDE_OK;

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(job->model->kind == SONDE__YAML_MAP ? read_positions(b, job->model, info)
                                                   : SONDE_OK);
    SONDE__TRY(job->onnx != NULL ? open_onnx(b, job, info, &fitting)
                                 : build_layers(b, job, info));
    if (loss == NULL && fitting == NULL) {
        return sonde__yaml_fail(&b->reader, job->model, SONDE_EINVAL,
                                "loss: cross_entropy, nll, mse_loss ...",
                                "the model has no loss");
    }
    if (fitting != NULL) {
        (void)snprintf(word, sizeof word, "%s", fitting);
    }
    err = add_loss(b, job, loss != NULL ? loss : &standard, info);
    return err != SONDE_OK ? err : describe(b, info, job->model);
}

sonde_err sonde__job_build(const sonde_nn_job *job, sonde_nn_job_info *info,
                           sonde_nn_model **out, sonde_diag *diag)
{
    const char *name = job->builtin != NULL ? job->info.model_name : job->name;
    model_builder b = {.reader = {name, diag}};
    sonde_err err = sonde__job_tokens_write(job, diag);

    if (err == SONDE_OK && job->plan != NULL) {
        return sonde__job_build_plan(job, info, out, diag);
    }
    if (err == SONDE_OK) {
        err = build_model(&b, job, info);
    }
    if (err != SONDE_OK) {
        sonde_nn_model_destroy(b.model);
        return err;
    }
    sonde_nn_model_initialize(b.model, info->seed);
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
