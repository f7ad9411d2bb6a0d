/*
 * test_onnx_out.c - what is written as ONNX: every layer of the table, and layers with other
 * keys, written, read again and run.
 *
 * With SONDE_ONNX_OUT in the environment every file is kept in that folder beside
 * NAME.safetensors, the inputs x0, x1 ... and the output y, for tests/python/test_onnx.py.
 */
#include "alloc_failure.h"
#include "engine.h"
#include "base/macros.h"
#include "nn/graph/graph.h"
#include "nn/layer_rows.h"

#include <sonde/nn/job.h>
#include <sonde/nn/onnx.h>
#include <sonde/safetensors.h>

#include <math.h>
#include <unistd.h>

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
    sonde_view found, y;

    sonde_nn_options_init(&options);
    options.batch_size = BATCH;
    must(sonde_nn_inference_session(model, &options, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_run(session, inputs, count, &engine_diag));
    must(sonde_nn_session_output(session, 0, &found, &engine_diag));
    y = new_view(found.dtype, found.rank, found.shape);
    must(sonde_view_copy(&y, &found, &engine_diag));
    sonde_nn_session_destroy(session);
    return y;
}

/* --- comparing ---------------------------------------------------------------------------- */

static double element(const sonde_view *view, int64_t i)
{
    return view->dtype == SONDE_F32    ? (double)((const float *)view->data)[i]
           : view->dtype == SONDE_I64  ? (double)((const int64_t *)view->data)[i]
           : view->dtype == SONDE_BOOL ? (double)((const uint8_t *)view->data)[i]
                                       : (double)NAN;
}

/* Sums in another order, and exp(x) - 1 for expm1(x): some 1e-6 of the largest. */
static void expect_same(const char *name, const sonde_view *found,
                        const sonde_view *wanted)
{
    double most = 1.0;

    if (!sonde_view_same_shape(found, wanted)) {
        fail_msg("%s: another shape after reading", name);
    }
    for (int64_t i = 0; i < sonde_view_count(wanted); i++) {
        const double b = element(wanted, i);

        most = isfinite(b) != 0 ? fmax(most, fabs(b)) : most;
    }
    for (int64_t i = 0; i < sonde_view_count(wanted); i++) {
        const double a = element(found, i), b = element(wanted, i);

        if (!(fabs(a - b) <= 1e-5 * most || (isnan(a) && isnan(b)) || a == b)) {
            fail_msg("%s: element %lld is %.9g after reading, %.9g before", name,
                     (long long)i, a, b);
        }
    }
}

static void keep(const char *folder, const char *name, const char *onnx, const tensors *t)
{
    sonde_named_view named[MOST_INPUTS + 1];
    char names[MOST_INPUTS][8], path[PATH];

    for (size_t i = 0; i < t->count; i++) {
        (void)snprintf(names[i], sizeof names[i], "x%zu", i);
        named[i] = (sonde_named_view){names[i], t->inputs[i]};
    }
    named[t->count] = (sonde_named_view){"y", t->y};
    (void)snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    must(sonde_safetensors_write(path, named, t->count + 1, NULL, 0, &engine_diag));
    (void)snprintf(path, sizeof path, "%s/%s.onnx", folder, name);
    assert_int_equal(rename(onnx, path), 0);
}

/* Writes the model; false if it cannot be written. Reads it again, unless `out_alone`, and
 * compares. */
static bool write_and_read(const char *name, sonde_nn_model *model, const tensors *t,
                           bool out_alone)
{
    const char *folder = getenv("SONDE_ONNX_OUT");
    char path[] = "/tmp/sonde-onnx-XXXXXX.onnx";
    const int fd = mkstemps(path, 5);
    sonde_nn_model *again = NULL;
    sonde_err err = SONDE_OK;
    sonde_view y;

    assert_true(fd >= 0);
    (void)close(fd);
    err = sonde_nn_onnx_save(model, path, &engine_diag);
    if (err == SONDE_OK && !out_alone) {
        err = sonde_nn_onnx_load(path, NULL, &again, NULL, &engine_diag);
        if (err != SONDE_OK) {
            fail_msg("%s: %s: %s", name, engine_diag.where, engine_diag.found);
        }
        y = run_model(again, t->inputs, sonde_nn_model_input_count(again));
        expect_same(name, &y, &t->y);
        free(y.data);
        sonde_nn_model_destroy(again);
    }
    if (err == SONDE_OK && folder != NULL) {
        keep(folder, name, path, t);
    }
    (void)unlink(path);
    return err == SONDE_OK;
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

static bool is_listed(const char *name, const char *const *list)
{
    for (size_t i = 0; list[i] != NULL; i++) {
        if (strcmp(list[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void every_layer_is_written(void **state)
{
    static const char *const refused[] = {"ctc_loss", NULL};
    static const char *const out_alone[] = {"index_select", "index_add", NULL};

    (void)state;
    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        const sonde__op_layer *row = sonde__op_layers[i];
        sonde_nn_model *model = NULL;
        tensors t;
        bool written = false;

        must(sonde_nn_model_create(&model, &engine_diag));
        sonde_nn_output(model, layer_row_build(model, row));
        must(sonde_nn_model_status(model, &engine_diag));
        sonde_nn_model_initialise(model, 3);
        if (is_listed(row->name, refused)) {
            expect_err(SONDE_EUNSUPPORTED,
                       sonde_nn_onnx_save(model, "/tmp/none.onnx", &engine_diag));
            sonde_nn_model_destroy(model);
            continue;
        }
        t = make_tensors(model, sonde_nn_model_input_count(model));
        written = write_and_read(row->name, model, &t, is_listed(row->name, out_alone));
        if (!written) {
            fail_msg("%s: %s", row->name, engine_diag.found);
        }
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
     "conv2d: {name: l, out: 6, kernel: [3, 2], stride: 2, padding: 1, dilation: 2, groups: 2}"},
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
    {"group_plain", "x: [4, 5]", "group_norm: {name: l, groups: 2, affine: false}"},
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

static void other_keys_are_written(void **state)
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
        t = make_tensors(model, sonde_nn_model_input_count(model) - 1);
        if (!write_and_read(v->name, model, &t, strcmp(v->name, "up_scaled") == 0)) {
            fail_msg("%s: %s", v->name, engine_diag.found);
        }
        free_tensors(&t);
        sonde_nn_model_destroy(model);
        sonde_nn_job_destroy(job);
    }
}

static void without_memory(void **state)
{
    static const char text[] = "model: {inputs: {x: [5, 6]}, layers: [{lstm: {name: l, "
                               "hidden_size: 3}}, {flatten: {}}, {linear: {name: f, out: "
                               "2}}], loss: cross_entropy}";
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    char path[] = "/tmp/sonde-onnx-XXXXXX.onnx";
    const int fd = mkstemps(path, 5);
    sonde_err err = SONDE_ENOMEM;

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    for (size_t n = 0; err != SONDE_OK; n++) {
        alloc_failure_begin(n);
        err = sonde_nn_onnx_save(model, path, &engine_diag);
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
    }
    (void)unlink(path);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_is_written),
        cmocka_unit_test(other_keys_are_written),
        cmocka_unit_test(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
