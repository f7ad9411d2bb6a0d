/*
 * test_description.c - the description of a model as JSON: every layer of the table, and
 * layers with other keys.
 *
 * With SONDE_DESCRIBE_OUT in the environment NAME.json, NAME.weights and NAME.tensors, the
 * inputs x0, x1 ... and the output y, are kept in that folder for tests/python/test_onnx.py.
 */
#include "alloc_failure.h"
#include "engine.h"
#include "base/macros.h"
#include "nn/graph/graph.h"
#include "nn/layer_rows.h"

#include <sonde/nn/model.h>
#include <sonde/nn/job.h>
#include <sonde/safetensors.h>

#include <stdio.h>
#include <string.h>

enum { PATH = 512, MOST_INPUTS = 5, BATCH = 4 };

/* --- running ---------------------------------------------------------------------------- */

typedef struct tensors {
    size_t count;
    sonde_view inputs[MOST_INPUTS];
    sonde_view y;
} tensors;

static sonde_view new_view(sonde_dtype dtype, int rank, const int64_t *shape)
{
    sonde_view view = sonde_view_of(dtype, rank, shape, NULL);

    view.data = calloc((size_t)sonde_view_count(&view) + 1, sonde_dtype_size(dtype));
    assert_non_null(view.data);
    return view;
}

/* Numbers of (0.1, 0.9) and of (-2, 2) in turn; ids from 0 on along the last dimension. */
static void fill_input(sonde_view *view, uint64_t stream)
{
    const int64_t last = view->rank > 0 ? view->shape[view->rank - 1] : 1;

    for (int64_t i = 0; i < sonde_view_count(view); i++) {
        const float u = sonde__uniform(7, stream, (uint64_t)i);

        if (view->dtype == SONDE_I64) {
            ((int64_t *)view->data)[i] = i % last;
        } else {
            ((float *)view->data)[i] = i % 2 == 0 ? 0.1F + 0.8F * u : 4.0F * u - 2.0F;
        }
    }
}

static void free_tensors(tensors *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->inputs[i].data);
    }
    free(t->y.data);
}

/* The output of a model for inputs of `count` tensors. */
static sonde_view run_model(sonde_nn_model *model, const sonde_view *inputs, size_t count)
{
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_view view, y;

    sonde_nn_options_init(&options);
    options.batch_size = BATCH;
    must(sonde_nn_session_create(model, &options, NULL, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_run(session, inputs, count, &engine_diag));
    must(sonde_nn_session_output(session, 0, &view, &engine_diag));
    y = new_view(view.dtype, view.rank, view.shape);
    must(sonde_view_copy(&y, &view, &engine_diag));
    sonde_nn_session_destroy(session);
    return y;
}

/* --- describing ---------------------------------------------------------------------------- */

static void keep(const char *folder, const char *name, const sonde_nn_model *model,
                 const sonde_text *text, const tensors *t)
{
    sonde_named_view named[MOST_INPUTS + 1];
    char names[MOST_INPUTS][8], path[PATH];

    for (size_t i = 0; i < t->count; i++) {
        (void)snprintf(names[i], sizeof names[i], "x%zu", i);
        named[i] = (sonde_named_view){names[i], t->inputs[i]};
    }
    named[t->count] = (sonde_named_view){"y", t->y};
    (void)snprintf(path, sizeof path, "%s/%s.tensors", folder, name);
    must(sonde_safetensors_write(path, named, t->count + 1, NULL, 0, &engine_diag));
    (void)snprintf(path, sizeof path, "%s/%s.weights", folder, name);
    must(sonde_nn_model_save(model, path, &engine_diag));
    (void)snprintf(path, sizeof path, "%s/%s.json", folder, name);
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(text->data, 1, text->length, file), text->length);
    assert_int_equal(fclose(file), 0);
}

/* Describes the model, and checks what every description has. */
static void describe(const char *name, const sonde_nn_model *model, const tensors *t)
{
    const char *folder = getenv("SONDE_DESCRIBE_OUT");
    sonde_text text = {0};

    must(sonde_nn_model_describe(model, &text, &engine_diag));
    size_t ops = 0;

    for (const char *op = text.data; (op = strstr(op, "\"kind\":")) != NULL; op++) {
        ops++;
    }
    if (strncmp(text.data, "{\"values\":[null,{\"name\":", 24) != 0 ||
        ops != model->graph.op_count || text.data[text.length - 1] != '}') {
        fail_msg("%s: %s", name, text.data);
    }
    if (folder != NULL) {
        keep(folder, name, model, &text, t);
    }
    sonde_text_fini(&text);
}

/* Inputs of a model that are floats or ids, and its output. */
static tensors make_tensors(sonde_nn_model *model, size_t count)
{
    tensors t = {.count = count};

    assert_true(count <= MOST_INPUTS);
    for (size_t i = 0; i < count; i++) {
        sonde__op_shape shape = model->graph.values[model->graph.inputs[i]].shape;

        shape.dim[0] = shape.dim[0] == 1 ? BATCH : shape.dim[0];
        t.inputs[i] = new_view(shape.dtype, shape.rank, shape.dim);
        fill_input(&t.inputs[i], i);
    }
    t.y = run_model(model, t.inputs, count);
    return t;
}

/* --- every layer -------------------------------------------------------------------------- */

static void every_layer_is_described(void **state)
{
    (void)state;
    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        const sonde__op_layer *row = sonde__op_layers[i];
        sonde_nn_model *model = NULL;

        if (strcmp(row->name, "ctc_loss") == 0) {
            continue; /* its inputs are no random ids */
        }
        must(sonde_nn_model_create(&model, &engine_diag));
        sonde_nn_output(model, layer_row_build(model, row));
        must(sonde_nn_model_status(model, &engine_diag));
        sonde_nn_model_initialize(model, 3);
        tensors t = make_tensors(model, sonde_nn_model_get_info(model).input_count);

        describe(row->name, model, &t);
        free_tensors(&t);
        sonde_nn_model_destroy(model);
    }
}

/* --- other keys ---------------------------------------------------------------------------- */

/* A job of one input, or of several, and its layers. */
typedef struct variant {
    const char *name, *inputs, *layers;
} variant;

static const variant variants[] = {
    {"pad_reflect", "x: [2, 5, 6]", "pad: {pad: [1, 2, 0, 1], mode: reflect}"},
    {"pad_replicate", "x: [2, 5, 6]", "pad: {pad: [1, 2], mode: replicate}"},
    {"pad_circular", "x: [2, 5, 6]", "pad: {pad: [1, 2], mode: circular}"},
    {"pad_number", "x: [2, 5, 6]", "pad: {pad: [1, -2], value: 0.3}"},
    {"up_nearest", "x: [2, 5, 6]", "interpolate: {scale_factor: 2}"},
    {"up_uneven", "x: [2, 5, 6]", "interpolate: {size: [7, 9]}"},
    {"up_exact", "x: [2, 5, 6]", "interpolate: {size: [7, 9], mode: nearest-exact}"},
    {"up_bilinear", "x: [2, 5, 6]", "interpolate: {size: [7, 9], mode: bilinear}"},
    {"up_scaled", "x: [2, 5, 6]", "interpolate: {scale_factor: 1.7, mode: bilinear}"},
    {"up_corners", "x: [2, 5, 6]",
     "interpolate: {size: [7, 9], mode: bilinear, align_corners: true}"},
    {"up_cubic", "x: [2, 5, 6]", "interpolate: {size: [7, 9], mode: bicubic}"},
    {"up_cubic_corners", "x: [2, 5, 6]",
     "interpolate: {size: [7, 9], mode: bicubic, align_corners: true}"},
    {"adaptive_uneven", "x: [2, 5, 7]", "adaptive_avg_pool2d: {output_size: [2, 3]}"},
    {"adaptive_max_uneven", "x: [2, 5, 7]", "adaptive_max_pool2d: {output_size: [2, 3]}"},
    {"pool_padded", "x: [2, 6, 7]",
     "avg_pool2d: {kernel_size: 3, stride: 2, padding: 1, count_include_pad: false}"},
    {"conv_dilated", "x: [4, 8, 9]",
     "conv2d: {name: l, out_channels: 6, kernel_size: [3, 2], stride: 2, padding: 1, dilation: 2, groups: 2}"},
    {"conv3d_dilated", "x: [4, 42, 5]",
     "reshape: {shape: [-1, 4, 6, 7, 5]}}, {conv3d: {name: l, out_channels: 4, kernel_size: [3, 2, 3], stride: [2, 1, 1], "
     "padding: [1, 0, 1], dilation: [1, 2, 1], groups: 2}"},
    {"up_conv", "x: [4, 5, 6]",
     "conv_transpose2d: {name: l, out_channels: 6, kernel_size: 3, stride: [2, 1], padding: 1, "
     "output_padding: [1, 0], groups: 2}"},
    {"lstm_both", "x: [5, 3]",
     "lstm: {name: l, hidden_size: 4, num_layers: 2, bidirectional: true}"},
    {"lstm_plain", "x: [5, 3]", "lstm: {name: l, hidden_size: 4, bias: false}"},
    {"gru_both", "x: [5, 3]", "gru: {name: l, hidden_size: 4, bidirectional: true}"},
    {"rnn_relu", "x: [5, 3]", "rnn: {name: l, hidden_size: 4, nonlinearity: relu}"},
    {"bag_sum", "x: {shape: [5], dtype: int64}",
     "embedding_bag: {name: l, num_embeddings: 7, embedding_dim: 3, mode: sum, padding_idx: 2}"},
    {"bag_max", "x: {shape: [5], dtype: int64}",
     "embedding_bag: {name: l, num_embeddings: 7, embedding_dim: 3, mode: max, padding_idx: 0}"},
    {"bag_mean", "x: {shape: [5], dtype: int64}",
     "embedding_bag: {name: l, num_embeddings: 7, embedding_dim: 3, padding_idx: 1}"},
    {"attention_causal", "x: [5, 6]",
     "multihead_attention: {name: l, num_heads: 3, is_causal: true, bias: false}"},
    {"attention_mask", "x: [5, 6], m: [1, 1, 5]",
     "relu: {name: s, from: m}}, {to: {name: b, dtype: bool, from: s}}, "
     "{multihead_attention: {name: l, num_heads: 3, from: [x, b]}"},
    {"attention_mask_causal", "x: [5, 6], m: [1, 1, 5]", /* queries without keys */
     "neg: {name: n, from: m}}, {relu: {name: s}}, {to: {name: b, dtype: bool}}, "
     "{multihead_attention: {name: l, num_heads: 3, is_causal: true, from: [x, b]}"},
    {"attention_float_mask", "x: [5, 6], m: [1, 5, 5]",
     "multihead_attention: {name: l, num_heads: 3, from: [x, m]}"},
    {"attention_cross", "x: [5, 6], k: [4, 6], v: [4, 6]",
     "multihead_attention: {name: l, num_heads: 2, from: [x, k, v]}"},
    {"attention_bare", "q: [2, 5, 6], k: [2, 4, 6], v: [2, 4, 3]",
     "scaled_dot_product_attention: {from: [q, k, v]}"},
    {"encoder", "x: [5, 6]",
     "transformer_encoder_layer: {name: l, nhead: 3, dim_feedforward: 8, norm_first: true, "
     "activation: gelu, is_causal: true}"},
    {"group_plain", "x: [4, 5]", "group_norm: {name: l, num_groups: 2, affine: false}"},
    {"batch_plain", "x: [4, 5]", "batch_norm: {name: l, affine: false}"},
    {"batch_untracked", "x: [4, 5]", "batch_norm: {name: l, track_running_stats: false}"},
    {"instance_affine", "x: [4, 5]", "instance_norm: {name: l, affine: true}"},
    {"layer_plain", "x: [4, 5]",
     "layer_norm: {name: l, normalized_shape: [4, 5], elementwise_affine: false}"},
    {"rms_two", "x: [4, 5]", "rms_norm: {name: l, normalized_shape: [4, 5]}"},
    {"prelu_channels", "x: [4, 5]", "prelu: {name: l, num_parameters: 4}"},
    {"gelu_tanh", "x: [6]", "gelu: {approximate: tanh}"},
    {"softplus_steep", "x: [6]", "softplus: {beta: 3, threshold: 2}"},
    {"sort_down", "x: [6]", "sort: {descending: true}"},
    {"smallest", "x: [6]", "topk: {k: 3, largest: false}"},
    {"two", "a: [3], b: [3]", "cat: {from: [a, b], dim: 1}"},
};

static void other_keys_are_described(void **state)
{
    char text[1024];

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(variants); i++) {
        const variant *v = &variants[i];
        sonde_nn_job *job = NULL;
        sonde_nn_model *model = NULL;
        tensors t;

        (void)snprintf(
            text, sizeof text,
            "model: {inputs: {%s}, layers: [{%s}], loss: {mse_loss: {target: values}}}",
            v->inputs, v->layers);
        if (sonde_nn_job_parse(text, strlen(text), v->name, &job, &engine_diag) !=
                SONDE_OK ||
            sonde_nn_job_build(job, &model, &engine_diag) != SONDE_OK) {
            fail_msg("%s: %s", engine_diag.where, engine_diag.found);
        }
        t = make_tensors(model, sonde_nn_model_get_info(model).input_count - 1);
        describe(v->name, model, &t);
        free_tensors(&t);
        sonde_nn_model_destroy(model);
        sonde_nn_job_destroy(job);
    }
}

static void without_memory(void **state)
{
    static const char job_text[] =
        "model: {inputs: {x: [5, 6]}, layers: [{lstm: {name: l, "
        "hidden_size: 3}}, {flatten: {}}], loss: cross_entropy}";
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    sonde_err err = SONDE_ENOMEM;

    (void)state;
    must(sonde_nn_job_parse(job_text, strlen(job_text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    for (size_t n = 0; err != SONDE_OK; n++) {
        sonde_text text = {0};

        alloc_failure_begin(n);
        err = sonde_nn_model_describe(model, &text, &engine_diag);
        sonde_text_fini(&text);
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
    }
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

/* A dimension that depends on the batch is listed, others are not. */
static void batch_is_marked(void **state)
{
    static const int64_t shape[] = {2, 3};
    sonde_nn_model *model = NULL;
    sonde_text text = {0};

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    sonde_nn_output(
        model, sonde_nn_relu(model, "r", sonde_nn_input(model, SONDE_F32, 2, shape)));
    must(sonde_nn_model_describe(model, &text, &engine_diag));
    assert_non_null(strstr(text.data, "\"shape\":[2,3],\"batch\":[0]"));
    assert_non_null(strstr(text.data, "\"kind\":\"Relu\",\"in\":[1],\"out\":[2]"));
    sonde_text_fini(&text);
    sonde_nn_model_destroy(model);
}

/* A value takes a name of the caller's, has further ones, or none. */
static void values_are_named(void **state)
{
    static const int64_t shape[] = {2, 3};
    sonde_nn_model *model = NULL;

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    const sonde_nn_value x = sonde_nn_input(model, SONDE_I64, 2, shape);
    const sonde_nn_value y =
        sonde_nn_function(model, "m", "to", &x, 1,
                          &(sonde_nn_setting){.key = "dtype", .word = "float32"}, 1);

    assert_int_equal(sonde_nn_value_describe(model, x).dtype, SONDE_I64);
    assert_int_equal(sonde_nn_value_describe(model, y).dtype, SONDE_F32);
    assert_string_equal(sonde_nn_value_describe(model, y).name, "m/Cast:0");
    sonde_nn_name_value(model, y, "m", "other", SONDE_ROLE_OUTPUT, true);
    assert_string_equal(sonde_nn_value_describe(model, y).name, "m/Cast:0");
    sonde_nn_name_value(model, y, "m", "cast", SONDE_ROLE_OUTPUT, false);
    assert_string_equal(sonde_nn_value_describe(model, y).name, "cast");
    sonde_nn_name_value(model, y, "m", NULL, SONDE_ROLE_OUTPUT, false);
    assert_null(sonde_nn_value_describe(model, y).name);
    must(sonde_nn_model_status(model, &engine_diag));
    sonde_nn_name_value(model, 99, "m", "gone", SONDE_ROLE_OUTPUT, false);
    expect_err(SONDE_EINVAL, sonde_nn_model_status(model, &engine_diag));
    assert_null(sonde_nn_value_describe(model, 99).name);
    assert_int_equal(sonde_nn_value_describe(NULL, 1).dtype, SONDE_F32);
    sonde_nn_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_is_described),
        cmocka_unit_test(other_keys_are_described),
        cmocka_unit_test(batch_is_marked),
        cmocka_unit_test(values_are_named),
        cmocka_unit_test(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
