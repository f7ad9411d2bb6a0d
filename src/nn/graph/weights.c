/*
 * weights.c - a model's parameters: drawing them, saving them, loading them.
 */
#include "nn/graph/layer.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/random.h"

#include <sonde/safetensors.h>

#include <string.h>

void sonde__graph_param_draw(sonde__graph_param *param, uint64_t seed, size_t stream)
{
    for (size_t i = 0; i < param->count; i++) {
        param->data[i] =
            param->bound > 0.0F
                ? (2.0F * sonde__uniform(seed, stream, i) - 1.0F) * param->bound
                : param->constant;
    }
}

void sonde_nn_model_initialise(sonde_nn_model *model, uint64_t seed)
{
    for (size_t i = 0; i < model->param_count; i++) {
        sonde__graph_param_draw(&model->params[i], seed, i);
    }
}

size_t sonde_nn_parameter_count(const sonde_nn_model *model)
{
    return model->param_count;
}

const char *sonde_nn_parameter_name(const sonde_nn_model *model, size_t i)
{
    return model->graph.values[model->params[i].value].name;
}

sonde_view sonde_nn_parameter_view(const sonde_nn_model *model, size_t i)
{
    const sonde__op_shape *shape =
        sonde__op_value_shape(&model->graph, model->params[i].value);

    return sonde_view_of(shape->dtype, shape->rank, shape->dim, model->params[i].data);
}

void sonde_nn_parameter_leave_out(sonde_nn_model *model, size_t i, bool left_out)
{
    model->params[i].left_out = left_out;
}

sonde_err sonde_nn_model_save(const sonde_nn_model *model, const char *path,
                              sonde_diag *diag)
{
    static const sonde_metadata format = {"format",
                                          "pt"}; /* the value torch's own writer uses */
    sonde_named_view *named = sonde__calloc(model->param_count, sizeof *named);
    sonde_err err = SONDE_OK;

    if (named == NULL) {
        return sonde__fail_nomem(diag, "the list of parameters");
    }
    for (size_t i = 0; i < model->param_count; i++) {
        named[i].name = sonde_nn_parameter_name(model, i);
        named[i].view = sonde_nn_parameter_view(model, i);
    }
    err = sonde_safetensors_write(path, named, model->param_count, &format, 1, diag);
    sonde__free(named);
    return err;
}

/* Whether the file has exactly the model's parameters. */
static sonde_err check_names(const sonde_nn_model *model, const sonde_safetensors *file,
                             const char *path, sonde_diag *diag)
{
    char found[96], expected[96];

    for (size_t i = 0; i < model->param_count; i++) {
        const sonde_view want = sonde_nn_parameter_view(model, i);
        const sonde_view *have =
            sonde_safetensors_find(file, sonde_nn_parameter_name(model, i));

        if (have == NULL) {
            return sonde__fail(diag, SONDE_ENOTFOUND, path, NULL, "it has no tensor '%s'",
                               sonde_nn_parameter_name(model, i));
        }
        if (!sonde_view_same_shape(&want, have)) {
            (void)sonde_shape_text(have->rank, have->shape, found, sizeof found);
            (void)sonde_shape_text(want.rank, want.shape, expected, sizeof expected);
            return sonde__fail(diag, SONDE_ESHAPE, path, expected, "tensor '%s' is %s",
                               sonde_nn_parameter_name(model, i), found);
        }
    }
    for (size_t i = 0; i < sonde_safetensors_count(file); i++) {
        const char *name = sonde_safetensors_name(file, i);
        bool known = false;

        for (size_t j = 0; j < model->param_count && !known; j++) {
            known = strcmp(name, sonde_nn_parameter_name(model, j)) == 0;
        }
        if (!known) {
            return sonde__fail(diag, SONDE_EINVAL, path, NULL,
                               "tensor '%s' is no parameter of this model", name);
        }
    }
    return SONDE_OK;
}

sonde_err sonde_nn_model_load(sonde_nn_model *model, const char *path, sonde_diag *diag)
{
    sonde_safetensors *file = NULL;
    sonde_err err = sonde_safetensors_open(path, &file, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = check_names(model, file, path, diag);
    for (size_t i = 0; err == SONDE_OK && i < model->param_count; i++) {
        const sonde_view to = sonde_nn_parameter_view(model, i);

        err = sonde_view_copy(
            &to, sonde_safetensors_find(file, sonde_nn_parameter_name(model, i)), diag);
    }
    sonde_safetensors_destroy(file);
    return err;
}
