/*
 * test_job.c - jobs: the built-in ones, what sections and keys mean, JSON, layers with
 * from; and every mistake with its line and the nearest key.
 */
#include "nn/job/job.h"
#include "engine.h"
#include "base/macros.h"

#include <sonde/nn/job.h>

#include <unistd.h>

static sonde_nn_job *parse(const char *text)
{
    sonde_nn_job *job = NULL;

    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    return job;
}

/* --- built-in jobs ------------------------------------------------------------------ */

static void built_in_jobs_build(void **state)
{
    static const struct {
        const char *name, *data;
        int epochs;
        int64_t batch, eval_batch, parameters;
        float rate, momentum, mean, std;
    } rows[] = {
        /* 5*9+5 + 12*5*25+12 + 24 + 100*972+100 + 1010 */
        {"fashion_cnn", "fashion-mnist", 5, 16, 32, 99896, 0.001F, 0.9F, 0.5F, 0.5F},
        {"mnist_mlp", "mnist", 1, 1000, 1000, 284310, 0.01F, 0.0F, 0.5F, 0.5F},
        {"mnist_mlp_small", "mnist", 3, 32, 32, 235146, 0.01F, 0.0F, 0.0F, 1.0F},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        sonde_nn_job *job = NULL;
        const sonde_nn_job_info *info = NULL;
        sonde_nn_model *model = NULL;

        assert_string_equal(sonde_nn_job_builtin_name(i), rows[i].name);
        assert_non_null(strstr(sonde__job_builtin_text(rows[i].name), "layers:"));
        must(sonde_nn_job_builtin(rows[i].name, &job, &engine_diag));
        info = sonde_nn_job_get_info(job);
        assert_string_equal(info->data_name, rows[i].data);
        assert_string_equal(info->data_path, "");
        assert_int_equal(info->epochs, rows[i].epochs);
        assert_int_equal(info->options.batch_size, rows[i].batch);
        assert_int_equal(info->eval_batch_size, rows[i].eval_batch);
        assert_int_equal(info->classes, 10);
        assert_int_equal(info->sample_rank, 3);
        assert_memory_equal(info->sample_shape, ((const int64_t[]){1, 28, 28}),
                            3 * sizeof(int64_t));
        assert_int_equal(info->optimizer.kind, SONDE_NN_SGD);
        assert_true(info->optimizer.learning_rate == rows[i].rate);
        assert_true(info->optimizer.momentum == rows[i].momentum);
        assert_true(info->mean == rows[i].mean && info->std == rows[i].std);
        assert_int_equal(sonde_nn_job_get_info(job)->tap_count, 0);
        must(sonde_nn_job_build(job, &model, &engine_diag));
        assert_int_equal(engine_weight_count(model), rows[i].parameters);
        sonde_nn_model_destroy(model);
        sonde_nn_job_destroy(job);
    }
}

/* 256 64 + 64 64 + 2 (12 64 64 + 13 64) + 2 64 + 64 256 */
static void the_language_model_builds(void **state)
{
    sonde_nn_job *job = NULL;
    const sonde_nn_job_info *info = NULL;
    sonde_nn_model *model = NULL;

    (void)state;
    must(sonde_nn_job_builtin("gpt", &job, &engine_diag));
    info = sonde_nn_job_get_info(job);
    assert_int_equal(info->target, SONDE_NN_TARGET_TOKENS);
    assert_int_equal(info->input_dtype, SONDE_I64);
    assert_int_equal(info->classes, 256);
    assert_int_equal(info->class_axis, 2);
    must(sonde_nn_job_build(job, &model, &engine_diag));
    assert_int_equal(engine_weight_count(model), 136960);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
    assert_string_equal(sonde_nn_job_builtin_name(3), "gpt");
    assert_string_equal(sonde_nn_job_builtin_name(4), "lstm");
    assert_string_equal(sonde_nn_job_builtin_name(5), "resnet18");
    assert_string_equal(sonde_nn_job_builtin_name(6), "autoencoder");
    assert_null(sonde_nn_job_builtin_name(7));
}

/* torchvision's resnet18 of one channel, ten classes and a first kernel of 3; and the
 * autoencoder: 80 + 1,168 + 25,120 + 25,872 + 2,056 + 129. */
static void networks_of_images_build(void **state)
{
    static const struct {
        const char *name;
        size_t count;
        sonde_nn_job_target target;
    } rows[] = {{"resnet18", 11172810, SONDE_NN_TARGET_CLASS},
                {"autoencoder", 54425, SONDE_NN_TARGET_INPUT}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        sonde_nn_job *job = NULL;
        sonde_nn_model *model = NULL;

        must(sonde_nn_job_builtin(rows[i].name, &job, &engine_diag));
        assert_int_equal(sonde_nn_job_get_info(job)->target, rows[i].target);
        must(sonde_nn_job_build(job, &model, &engine_diag));
        assert_int_equal(engine_weight_count(model), rows[i].count);
        sonde_nn_model_destroy(model);
        sonde_nn_job_destroy(job);
    }
}

static void an_unknown_built_in_job_lists_the_known(void **state)
{
    sonde_nn_job *job = NULL;

    (void)state;
    expect_err(SONDE_ENOTFOUND, sonde_nn_job_builtin("fashion_cmm", &job, &engine_diag));
    expect_line("fashion_cmm: no built-in model (expected fashion_cnn, autoencoder, "
                "gpt, lstm, mnist_mlp, mnist_mlp_small or resnet18)");
    must(sonde_nn_job_builtin("fashion-cnn", &job, &engine_diag)); /* - for _ */
    sonde_nn_job_destroy(job);
    sonde_nn_job_destroy(NULL);
}

/* --- meaning ------------------------------------------------------------------------ */

static void a_job_replaces_single_values_of_a_built_in_one(void **state)
{
    sonde_nn_job *job = parse("model: fashion_cnn\n"
                              "data: {path: /data/mine, std: 0.25, validation: 0.125}\n"
                              "optimizer: {learning_rate: 0.5}\n"
                              "options: {epochs: 9, seed: 4}\n");
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);

    (void)state;
    assert_string_equal(info->model_name, "fashion_cnn");
    assert_string_equal(info->data_name, "fashion-mnist");
    assert_string_equal(info->data_path, "/data/mine");
    assert_true(info->mean == 0.5F && info->std == 0.25F);
    assert_true(info->optimizer.learning_rate == 0.5F &&
                info->optimizer.momentum == 0.9F);
    assert_int_equal(info->epochs, 9);
    assert_int_equal(info->options.batch_size, 16);
    assert_int_equal(info->eval_every, 1);
    assert_int_equal(info->eval_samples, 1024);
    assert_true(info->validation == 0.125F);
    assert_int_equal(info->seed, 4);
    sonde_nn_job_destroy(job);
}

static const char whole[] =
    "model:\n"
    "  input: [2, 8, 8]\n"
    "  layers:\n"
    "    - conv2d: {name: conv1, out_channels: 4, kernel_size: 3, padding: 1}\n"
    "    - relu: {name: relu1}\n"
    "    - conv2d: {name: conv2, out_channels: 4, kernel_size: [3, 1], stride: 1, padding: [1, 0],\n"
    "               dilation: 1, groups: 2, bias: false}\n"
    "    - add: {name: sum, from: [relu1, conv2]}\n"
    "    - mul: {from: [sum, conv1]}\n"
    "    - group_norm: {name: norm, num_groups: 2, eps: 0.1, affine: false}\n"
    "    - max_pool2d: {kernel_size: 2, stride: [2, 1]}\n"
    "    - softmax: {dim: -1}\n"
    "    - reshape: {shape: [0, -1]}\n"
    "    - relu\n"
    "    - linear: {name: fc, out_features: 6, bias: false}\n"
    "    - log_softmax\n"
    "    - flatten: {start_dim: 1}\n"
    "  loss: {nll: {name: cost}}\n"
    "data: fashion-mnist\n"
    "optimizer: {kind: adamw, learning_rate: 0.1, weight_decay: 0.2, beta1: 0.3, beta2: "
    "0.4,\n"
    "            eps: 0.5}\n"
    "options: {epochs: 3, batch_size: 7, eval_batch_size: 11, eval_every: 2,\n"
    "          eval_samples: 12, seed: 5, device_iterations: 2,\n"
    "          gradientAccumulation: 3, replicas: 2, threads: 1, reduction: sum}\n"
    "observe:\n"
    "  - {tensors: 'Gradient___fc.weight', every: 5, start: 10, end: 100, print: true}\n"
    "  - tensors: '@loss'\n";

static void every_key_is_read(void **state)
{
    sonde_nn_job *job = parse(whole);
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    const sonde_nn_optimizer *o = &info->optimizer;
    const sonde_nn_job_tap *tap = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    static const char *const there[] = {
        "conv1_output_0", "relu1_output_0", "sum_output_0", "sum_input_1", "Mul:0",
        "norm_output_0",  "MaxPool2d:0",    "Softmax:0",    "Reshape:0",   "Relu:0",
        "fc.weight",      "LogSoftmax:0",   "cost_output_0"};

    (void)state;
    assert_string_equal(info->data_name, "fashion-mnist");
    assert_int_equal(o->kind, SONDE_NN_ADAMW);
    assert_true(o->learning_rate == 0.1F && o->weight_decay == 0.2F && o->beta1 == 0.3F &&
                o->beta2 == 0.4F && o->eps == 0.5F);
    assert_int_equal(info->epochs, 3);
    assert_int_equal(info->options.batch_size, 7);
    assert_int_equal(info->eval_batch_size, 11);
    assert_int_equal(info->eval_every, 2);
    assert_int_equal(info->eval_samples, 12);
    assert_int_equal(info->seed, 5);
    assert_int_equal(info->options.device_iterations, 2);
    assert_int_equal(info->options.gradient_accumulation, 3);
    assert_int_equal(info->options.replicas, 2);
    assert_int_equal(info->options.threads, 1);
    assert_int_equal(info->options.reduction, SONDE_NN_REDUCTION_SUM);
    assert_int_equal(info->classes, 6);
    assert_int_equal(sonde_nn_job_get_info(job)->tap_count, 2);
    tap = &sonde_nn_job_get_info(job)->taps[0];
    assert_string_equal(tap->tensors, "Gradient___fc.weight");
    assert_true(tap->every == 5 && tap->start == 10 && tap->end == 100);
    tap = &sonde_nn_job_get_info(job)->taps[1];
    assert_string_equal(tap->tensors, "@loss");
    assert_true(tap->every == 1 && tap->start == 0 && tap->end == 0);
    must(sonde_nn_job_build(job, &model, &engine_diag));
    must(sonde_nn_session_create(model, &info->options, o, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    for (size_t i = 0; i < SONDE_COUNT_OF(there); i++) {
        uint32_t id = 0;

        must(sonde_catalogue_find(sonde_nn_session_catalogue(session), there[i], &id,
                                  &engine_diag));
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

static void json_is_a_job_too(void **state)
{
    sonde_nn_job *job =
        parse("{\"model\": {\"input\": [4],\n"
              "  \"layers\": [{\"linear\": {\"name\": \"fc\", \"out_features\": 3}}],\n"
              "  \"loss\": \"cross_entropy\"},\n"
              " \"optimizer\": {\"kind\": \"sgd\", \"momentum\": 0.5,\n"
              "   \"nesterov\": true},\n"
              " \"options\": {\"batch_size\": 2}}\n");
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);

    (void)state;
    assert_int_equal(info->options.batch_size, 2);
    assert_int_equal(info->classes, 3);
    assert_true(info->optimizer.nesterov && info->optimizer.momentum == 0.5F);
    sonde_nn_job_destroy(job);
}

/* `from` reaches back, to the input too; a name that stands twice is the later one. */
static void from_names_the_layer_to_read(void **state)
{
    sonde_nn_job *job =
        parse("model:\n"
              "  input: [4]\n"
              "  layers:\n"
              "    - linear: {name: fc, out_features: 4}\n"
              "    - relu: {name: r}\n"
              "    - linear: {name: other, out_features: 4, from: input}\n"
              "    - add: {name: s, from: [r, input]}\n"
              "    - mul: {name: p, from: [s, other]}\n"
              "  loss: cross_entropy\n"
              "options: {batch_size: 1}\n");
    float sample[4] = {1, -2, 3, -4};
    const sonde_view input = sonde_view_of(SONDE_F32, 2, (const int64_t[]){1, 4}, sample);
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_view out;

    (void)state;
    must(sonde_nn_job_build(job, &model, &engine_diag));
    for (int i = 0; i < 16; i++) { /* fc the unit matrix, other twice that */
        engine_parameter(model, "fc.weight", NULL)[i] = i % 5 == 0 ? 1.0F : 0.0F;
        engine_parameter(model, "other.weight", NULL)[i] = i % 5 == 0 ? 2.0F : 0.0F;
        engine_parameter(model, "fc.bias", NULL)[i % 4] = 0.0F;
        engine_parameter(model, "other.bias", NULL)[i % 4] = 0.0F;
    }
    must(sonde_nn_session_create(model, NULL, NULL, &session, &engine_diag));
    must(sonde_nn_session_run(session, &input, 1, &engine_diag));
    must(sonde_nn_session_output(session, 0, &out, &engine_diag));
    for (int i = 0; i < 4; i++) {
        const float relu = sample[i] > 0.0F ? sample[i] : 0.0F;

        assert_true(((const float *)out.data)[i] ==
                    (relu + sample[i]) * 2.0F * sample[i]);
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

static void a_job_is_read_from_a_file(void **state)
{
    char path[] = "/tmp/sonde-job-XXXXXX";
    const int handle = mkstemp(path);
    sonde_nn_job *job = NULL;

    (void)state;
    assert_true(handle >= 0);
    assert_int_equal(write(handle, whole, sizeof whole - 1), sizeof whole - 1);
    assert_int_equal(close(handle), 0);
    must(sonde_nn_job_load(path, &job, &engine_diag));
    sonde_nn_job_destroy(job);
    assert_int_equal(truncate(path, 2 << 20), 0);
    expect_err(SONDE_EINVAL, sonde_nn_job_load(path, &job, &engine_diag));
    assert_string_equal(engine_diag.found, "the job is too long");
    assert_int_equal(unlink(path), 0);
    expect_err(SONDE_ENOTFOUND, sonde_nn_job_load(path, &job, &engine_diag));
    assert_string_equal(engine_diag.where, path);
    expect_err(SONDE_EIO, sonde_nn_job_load("/tmp", &job, &engine_diag));
}

/* --- mistakes ----------------------------------------------------------------------- */

static void refuse(const char *text, sonde_err err, const char *want, int line)
{
    sonde_nn_job *job = NULL;

    expect_err(err, sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    assert_null(job);
    engine_expect_line(want, __FILE__, line);
}
#define refused(text, err, want) refuse(text, err, want, __LINE__)

/* A job of the layers given, which begin on line 4. */
static void refuse_layers(const char *layers, sonde_err err, const char *want, int line)
{
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "model:\n  input: [2, 8, 8]\n  layers:\n%s\n  loss: cross_entropy\n",
                   layers);
    refuse(text, err, want, line);
}
#define layers_refused(layers, err, want) refuse_layers(layers, err, want, __LINE__)

#define MLP                                                                              \
    "model: {input: [4], layers: [linear: {name: fc, out_features: 3}], loss: cross_entropy}\n"

static void what_is_no_yaml_is_refused(void **state)
{
    (void)state;
    refused("", SONDE_EFORMAT, "job:1: the file is empty (expected keys and values)");
    refused("model: [1, 2\n", SONDE_EFORMAT,
            "job:2: did not find expected ',' or ']' (expected YAML or JSON)");
    refused("model:\n\t- a\n", SONDE_EFORMAT,
            "job:2: found character that cannot start any token (expected YAML or JSON)");
    refused("model: fashion_cnn\n---\nmodel: fashion_cnn\n", SONDE_EINVAL,
            "job:2: a second document begins (expected one document)");
    refused("model: &a fashion_cnn\ndata: *a\n", SONDE_EINVAL,
            "job:2: anchors and aliases are not read (expected values written out)");
    refused("model: fashion_cnn\nmodel: mnist_mlp\n", SONDE_EINVAL,
            "job:2: a key appears twice (expected each key once)");
    refused("[1]: 2\n", SONDE_EFORMAT,
            "job:1: a key that is no scalar (expected a word)");
    refused("model: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", SONDE_EINVAL,
            "job:1: nested too deep (expected at most 16 levels)");
    refused("fashion_cnn\n", SONDE_EINVAL,
            "job:1: the job has no model (expected model: a name or layers)");
    refused("modl: mnist_mlp\n", SONDE_EINVAL,
            "job:1: unknown key 'modl' (expected model)");
    refused("- model\n", SONDE_EINVAL,
            "job:1: the job has no model (expected model: a name or layers)");
}

static void misspelt_keys_are_told_the_nearest(void **state)
{
    static const char strange[] = "model:\n  input: [4]\n  layers:\n    - xyzzyxyzzy\n"
                                  "    - relu\n    - plughplugh\n  loss: nll\n";
    sonde_nn_job *job = NULL;

    (void)state;
    refused(MLP "optimiser: {kind: sgd}\n", SONDE_EINVAL,
            "job:2: unknown key 'optimiser' (expected optimizer)");
    refused(MLP "data: {name: mnist,\n  meen: 0.5}\n", SONDE_EINVAL,
            "job:3: unknown key 'meen' (expected mean)");
    refused(MLP "optimizer: {learing_rate: 0.5}\n", SONDE_EINVAL,
            "job:2: unknown key 'learing_rate' (expected learning_rate)");
    refused(MLP "options:\n  batchsize: 5\n", SONDE_EINVAL,
            "job:3: unknown key 'batchsize' (expected batch_size)");
    refused(
        MLP "options: {xyzzy: 5}\n", SONDE_EINVAL,
        "job:2: unknown key 'xyzzy' (expected one of epochs, batch_size, "
        "eval_batch_size, eval_every, eval_samples, seed, device_iterations, "
        "gradient_accumulation, replicas, execution, reduction, floating_point_exceptions, "
        "dtype, loader_workers, threads, plan_cache)");
    refused(MLP "options: {execution: sideways}\n", SONDE_EINVAL,
            "job:2: execution is 'sideways' (expected pipelined, sharded or sequential)");
    refused(
        "model:\n  input: [4]\n  layers:\n    - block\n    - linear: {out_features: 2}\n"
        "  loss: nll\n",
        SONDE_EINVAL, "job:4: block: a block without name (expected a name)");
    refused(MLP "options: {replicas: 2,\n  replicationFactor: 2}\n", SONDE_EINVAL,
            "job:3: replicationFactor is replicas, which is given too (expected one of "
            "them)");
    refused(MLP "observe:\n  - {tensors: a, evry: 5}\n", SONDE_EINVAL,
            "job:3: unknown key 'evry' (expected every)");
    refused("model:\n  inptu: [4]\n  layers: [relu]\n  loss: nll\n", SONDE_EINVAL,
            "job:2: unknown key 'inptu' (expected input)");
    layers_refused("    - conv2: {out: 3}", SONDE_EINVAL,
                   "job:4: unknown layer 'conv2' (expected conv2d)");
    layers_refused("    - conv2d: {name: c, kernel_sice: 3}", SONDE_EINVAL,
                   "job:4: unknown key 'kernel_sice' (expected kernel_size)");
    layers_refused("    - relu\n    - flaten", SONDE_EINVAL,
                   "job:5: unknown layer 'flaten' (expected flatten)");
    layers_refused(
        "    - relu\n    - conv2: {out: 5}\n    - flatten\n    - flaten", SONDE_EINVAL,
        "job:5: unknown layer 'conv2', line 7 'flaten' (expected conv2d, flatten)");
    expect_err(SONDE_EINVAL,
               sonde_nn_job_parse(strange, strlen(strange), "job", &job, &engine_diag));
    assert_string_equal(engine_diag.found,
                        "unknown layer 'xyzzyxyzzy', line 6 'plughplugh'");
    assert_memory_equal(engine_diag.expected, "print, block, layers, ", 22);
    refused(MLP "optimizer: {lr: 0.5}\n", SONDE_EINVAL,
            "job:2: unknown key 'lr' (expected learning_rate)");
    layers_refused("    - relu: {axis: 1}", SONDE_EINVAL,
                   "job:4: unknown key 'axis' (expected one of name, from, dtype)");
    refused(
        "model: {input: [4], layers: [linear: {name: fc, out_features: 3}], loss: {nil: {}}}\n",
        SONDE_EINVAL, "job:1: unknown loss 'nil' (expected nll)");
    refused(
        "model: {input: [4], layers: [linear: {name: fc, out_features: 3}], loss: mse}\n",
        SONDE_EINVAL,
        "job:1: unknown loss 'mse' (expected cross_entropy, nll, mse_loss, l1_loss, "
        "smooth_l1_loss, huber_loss, binary_cross_entropy, "
        "binary_cross_entropy_with_logits, soft_margin_loss, kl_div, "
        "poisson_nll_loss, hinge_embedding_loss)");
    refused("model: fashion_cmm\n", SONDE_ENOTFOUND,
            "job:1: unknown model 'fashion_cmm' (expected fashion_cnn, autoencoder, "
            "gpt, lstm, mnist_mlp, mnist_mlp_small or resnet18)");
}

static void values_that_cannot_be_are_refused(void **state)
{
    (void)state;
    refused(MLP "options: {epochs: many}\n", SONDE_EINVAL,
            "job:2: epochs is 'many' (expected a whole number from 0 to 1000000)");
    refused(MLP "options: {batch_size: 0}\n", SONDE_EINVAL,
            "job:2: batch_size is '0' (expected a whole number from 1 to 1048576)");
    refused(MLP "options: {batch_size: 99999999999999999999}\n", SONDE_EINVAL,
            "job:2: batch_size is '99999999999999999999' (expected a whole number from 1 "
            "to 1048576)");
    refused(MLP "options: {threads: [1]}\n", SONDE_EINVAL,
            "job:2: 'threads' is a list (expected a whole number)");
    refused(MLP "options: {reduction: max}\n", SONDE_EINVAL,
            "job:2: reduction is 'max' (expected mean or sum)");
    refused(MLP "options: 5\n", SONDE_EINVAL, "job:2: 5 (expected keys and values)");
    refused(
        MLP "optimizer: {kind: lion}\n", SONDE_EINVAL,
        "job:2: kind is 'lion' (expected sgd, adam, adamw, rmsprop, adagrad or lamb)");
    refused(MLP "optimizer: {learning_rate: fast}\n", SONDE_EINVAL,
            "job:2: learning_rate is 'fast' (expected a finite number)");
    refused(MLP "optimizer: {learning_rate: -1}\n", SONDE_EINVAL,
            "job:2: learning_rate is -1 (expected a finite number >= 0)");
    refused(MLP "optimizer: {learning_rate: .inf}\n", SONDE_EINVAL,
            "job:2: learning_rate is '.inf' (expected a finite number)");
    refused(MLP "optimizer: {kind: adam,\n  groups: [{name: a, lr: 1}]}\n", SONDE_EINVAL,
            "job:3: unknown key 'lr' (expected learning_rate)");
    refused(MLP "optimizer: {groups: [{name: a}]}\n", SONDE_EINVAL,
            "job:2: a group lacks params (expected name, and params: a selector of "
            "parameters)");
    refused(MLP "optimizer: {groups: [{name: a, params: b, clip_norm: 1}]}\n",
            SONDE_EINVAL,
            "job:2: clip_norm is one for all groups (expected it in the section "
            "optimizer)");
    refused(MLP "optimizer: {groups: [{name: a, params: b, learning_rate: .nan}]}\n",
            SONDE_EINVAL, "job:2: learning_rate is '.nan' (expected a finite number)");
    refused(MLP "optimizer: {groups: 3}\n", SONDE_EINVAL,
            "job:2: groups is no list (expected a list of at most 64 groups)");
    refused(MLP "optimizer: {nesterov: true}\n", SONDE_EINVAL,
            "job:2: nesterov is momentum 0, dampening 0 (expected momentum > 0 and "
            "dampening 0)");
    refused(MLP "optimizer: {nesterov: maybe}\n", SONDE_EINVAL,
            "job:2: nesterov is 'maybe' (expected true or false)");
    refused(MLP "data: {std: 0}\n", SONDE_EINVAL,
            "job:2: std is 0 (expected a number from 1e-30)");
    refused(MLP "data: {name: {a: b}}\n", SONDE_EINVAL,
            "job:2: 'name' is a map (expected a text)");
    refused(MLP "data: [mnist]\n", SONDE_EINVAL,
            "job:2: 'data' is a list (expected keys and values)");
    refused(MLP "observe: all\n", SONDE_EINVAL,
            "job:2: observe is not a list (expected a list)");
    refused(MLP "observe:\n  - {every: 3}\n", SONDE_EINVAL,
            "job:3: an entry of observe has no tensors (expected tensors: a selector)");
    refused(
        MLP "observe:\n  - {tensors: '@loss', print: false}\n", SONDE_EINVAL,
        "job:3: print is false (expected true: use the section record to save without "
        "printing)");
    refused(
        MLP "observe: [{tensors: a, every: 0}]\n", SONDE_EINVAL,
        "job:2: every is '0' (expected a whole number from 1 to 9223372036854775807)");
    refused(MLP "observe: [loss]\n", SONDE_EINVAL,
            "job:2: loss (expected keys and values)");
}

static void models_that_cannot_be_are_refused(void **state)
{
    (void)state;
    refused("data: mnist\n", SONDE_EINVAL,
            "job:1: the job has no model (expected model: a name or layers)");
    refused("model: {layers: [relu], loss: nll}\n", SONDE_EINVAL,
            "job:1: the model has no input shape (expected input: [1, 28, 28])");
    refused(
        "model: {input: [4], loss: nll}\n", SONDE_EINVAL,
        "job:1: the model has no layers (expected layers: a list of 1 to 4096 layers)");
    refused(
        "model: {input: [4], layers: [], loss: nll}\n", SONDE_EINVAL,
        "job:1: the model has no layers (expected layers: a list of 1 to 4096 layers)");
    refused("model: {input: [4], layers: [relu]}\n", SONDE_EINVAL,
            "job:1: the model has no loss (expected loss: cross_entropy, nll, "
            "mse_loss ...)");
    refused("model: {input: [0], layers: [relu], loss: nll}\n", SONDE_ESHAPE,
            "job:1: input: dimension 1 is 0 (expected at least 1)");
    refused("model: {input: [1, 1, 1, 1, 1, 1, 1, 1], layers: [relu], loss: nll}\n",
            SONDE_EINVAL,
            "job:1: input is too long or no list (expected a number or a short list)");
    layers_refused("    - [relu, relu]", SONDE_EINVAL,
                   "job:4: not a layer (expected one layer: {its options})");
    layers_refused("    - relu:\n      softmax:", SONDE_EINVAL,
                   "job:4: not a layer (expected one layer: {its options})");
    layers_refused("    - relu: 5", SONDE_EINVAL, "job:4: 5 (expected keys and values)");
    layers_refused("    - relu\n    - add", SONDE_EINVAL,
                   "job:5: the layer needs two inputs (expected from: [a, b])");
    layers_refused("    - relu: {name: a}\n    - add: {from: [a]}", SONDE_EINVAL,
                   "job:5: the layer needs two inputs (expected from: [a, b])");
    layers_refused("    - relu: {name: a}\n    - mul: {from: [a, b]}", SONDE_ENOTFOUND,
                   "job:5: from 'b' (expected the name of a layer before it, or input)");
    layers_refused(
        "    - relu: {from: later}\n    - relu: {name: later}", SONDE_ENOTFOUND,
        "job:4: from 'later' (expected the name of a layer before it, or input)");
    layers_refused(
        "    - relu: {from: [input]}", SONDE_ENOTFOUND,
        "job:4: from 'a list' (expected the name of a layer before it, or input)");
    layers_refused("    - relu\n    - linear: {name: fc, out_features: 3}", SONDE_ESHAPE,
                   "job:6: loss/Nll: input is float32 (1, 2, 8, 3) (expected "
                   "log-probabilities (N, C))");
    layers_refused(
        "    - flatten\n    - linear: {out_features: 3}", SONDE_EINVAL,
        "job:5: linear: a layer with parameters (weight) needs a name (expected a "
        "name)");
    layers_refused(
        "    - batch_norm", SONDE_EINVAL,
        "job:4: batch_norm: a layer with parameters (weight) needs a name (expected a "
        "name)");
    layers_refused("    - flatten\n    - linear: {name: fc}", SONDE_EINVAL,
                   "job:5: fc: linear lacks a key (expected out_features)");
    layers_refused("    - conv2d: {name: c, out_channels: 3, kernel_size: [1, 2, 3]}",
                   SONDE_EINVAL, "job:4: c: kernel_size has 3 numbers");
    layers_refused("    - conv2d: {name: c, out_channels: 3, kernel_size: 3, groups: 0}",
                   SONDE_EINVAL,
                   "job:4: c: groups is 0 (expected a whole number from 1 to 16777216)");
    layers_refused("    - conv2d: {name: c, out_channels: 3, kernel_size: 9}",
                   SONDE_ESHAPE,
                   "job:4: c/Conv2d: kernel spans 9 in height (expected at most the "
                   "padded input's 8)");
    layers_refused("    - softmax: {dim: 4}", SONDE_EINVAL,
                   "job:4: Softmax: axis 4 of a tensor of rank 4 (expected -4 to 3)");
    layers_refused(
        "    - relu: {name: a.b}", SONDE_EINVAL,
        "job:4: a.b: not a name for a layer (expected letters, digits, _ and -)");
    layers_refused("    - relu", SONDE_ESHAPE,
                   "job:5: loss/Nll: input is float32 (1, 2, 8, 8) (expected "
                   "log-probabilities (N, C))");
}

static void prints_that_cannot_be_are_refused(void **state)
{
    (void)state;
    layers_refused("    - print: {name: x, gradient: 3}", SONDE_EINVAL,
                   "job:4: gradient is '3' (expected true or false)");
    layers_refused("    - print: {name: x, digits: 18}", SONDE_EINVAL,
                   "job:4: digits is '18' (expected a whole number from 0 to 17)");
    layers_refused("    - print: {name: x, float_format: exact}", SONDE_EINVAL,
                   "job:4: float_format is 'exact' (expected auto, fixed, scientific or "
                   "none)");
    layers_refused("    - print: {name: x, separator: 'much too long'}", SONDE_EINVAL,
                   "job:4: separator is 'much too long' (expected at most 7 characters)");
    layers_refused("    - print: {name: x, edge_item: 1}", SONDE_EINVAL,
                   "job:4: unknown key 'edge_item' (expected edge_items)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_jobs_build),
        cmocka_unit_test(the_language_model_builds),
        cmocka_unit_test(networks_of_images_build),
        cmocka_unit_test(an_unknown_built_in_job_lists_the_known),
        cmocka_unit_test(a_job_replaces_single_values_of_a_built_in_one),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(json_is_a_job_too),
        cmocka_unit_test(from_names_the_layer_to_read),
        cmocka_unit_test(a_job_is_read_from_a_file),
        cmocka_unit_test(what_is_no_yaml_is_refused),
        cmocka_unit_test(misspelt_keys_are_told_the_nearest),
        cmocka_unit_test(values_that_cannot_be_are_refused),
        cmocka_unit_test(models_that_cannot_be_are_refused),
        cmocka_unit_test(prints_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
