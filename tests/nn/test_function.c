/*
 * test_function.c - networks of given values: tensors in the caller's memory, shared ones,
 * names of modules, the numbers of the same layers, prints to a stream, and what is refused.
 */
#include "engine.h"

#include <sonde/nn/model.h>

enum { BATCH = 4, FEATURES = 6, CLASSES = 3 };

typedef struct given {
    sonde_nn_model *model;
    _Alignas(64) float weight[CLASSES * FEATURES];
    _Alignas(64) float bias[CLASSES];
} given;

static sonde_nn_value call(sonde_nn_model *model, const char *module, const char *kind,
                           sonde_nn_value a, sonde_nn_value b, sonde_nn_value c)
{
    const sonde_nn_value in[3] = {a, b, c};

    return sonde_nn_function(model, module, kind, in,
                             a == 0   ? 0
                             : b == 0 ? 1
                             : c == 0 ? 2
                                      : 3,
                             NULL, 0);
}

static sonde_view view(float *data, int rank, int64_t first)
{
    return sonde_view_of(SONDE_F32, rank, (const int64_t[]){first, FEATURES}, data);
}

/* relu(x wᵀ + b), log-softmax, nll; with a print of the first. */
static void build(given *net, bool prints)
{
    const sonde_view weight = view(net->weight, 2, CLASSES),
                     bias = view(net->bias, 1, CLASSES);
    const sonde_nn_setting dim = {.key = "dim", .values = {1}};
    sonde_nn_value x = 0, target = 0, loss = 0;

    memset(net, 0, sizeof *net);
    for (int i = 0; i < CLASSES * FEATURES; i++) {
        net->weight[i] = (float)(i % 5) * 0.25F - 0.5F;
    }
    must(sonde_nn_model_create(&net->model, &engine_diag));
    x = sonde_nn_input(net->model, SONDE_F32, 2, (const int64_t[]){BATCH, FEATURES});
    target = sonde_nn_input(net->model, SONDE_I64, 1, (const int64_t[]){BATCH});
    x = call(net->model, "top.fc", "linear", x,
             sonde_nn_tensor(net->model, "top.fc.weight", SONDE_ROLE_WEIGHT, &weight),
             sonde_nn_tensor(net->model, "top.fc.bias", SONDE_ROLE_BIAS, &bias));
    sonde_nn_module_output(net->model, "top.fc", x);
    sonde_nn_module_output(net->model, "top", x);
    x = call(net->model, "", "relu", x, 0, 0);
    if (prints) {
        x = sonde_nn_print(net->model, x, "seen", false, NULL);
    }
    sonde_nn_output(net->model, x);
    x = sonde_nn_function(net->model, "", "log_softmax", &x, 1, &dim, 1);
    loss = call(net->model, "loss", "nll", x, target, 0);
    sonde_nn_module_output(net->model, "loss", loss);
    sonde_nn_loss(net->model, loss);
    must(sonde_nn_model_status(net->model, &engine_diag));
}

static void run_step(sonde_nn_session *session)
{
    float samples[BATCH * FEATURES];
    int64_t targets[BATCH] = {0, 1, 2, 0};
    sonde_view in[2] = {
        sonde_view_of(SONDE_F32, 2, (const int64_t[]){BATCH, FEATURES}, samples),
        sonde_view_of(SONDE_I64, 1, (const int64_t[]){BATCH}, targets)};

    for (int i = 0; i < BATCH * FEATURES; i++) {
        samples[i] = (float)(i % 7) * 0.5F - 1.0F;
    }
    must(sonde_nn_session_run(session, in, 2, &engine_diag));
}

/* The same network of layers, with its own weights made equal. */
static sonde_nn_model *of_layers(void)
{
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0, target = 0;

    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, (const int64_t[]){BATCH, FEATURES});
    target = sonde_nn_input(model, SONDE_I64, 1, (const int64_t[]){BATCH});
    x = sonde_nn_relu(
        model, NULL,
        sonde_nn_linear(model, "fc", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = CLASSES)));
    sonde_nn_output(model, x);
    sonde_nn_loss(model,
                  sonde_nn_nll_loss(model, "loss",
                                    sonde_nn_log_softmax(model, NULL, x, 1), target));
    for (int i = 0; i < CLASSES * FEATURES; i++) {
        ((float *)sonde_nn_parameter(model, 0).view.data)[i] =
            (float)(i % 5) * 0.25F - 0.5F;
    }
    memset(sonde_nn_parameter(model, 1).view.data, 0, CLASSES * sizeof(float));
    return model;
}

static void a_step_trains_the_callers_memory_as_layers_do(void **state)
{
    given net;
    sonde_nn_model *layers = of_layers();
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.5F, 0.0F);
    sonde_nn_session *session = NULL;

    (void)state;
    build(&net, false);
    sonde_nn_model_initialize(net.model, 3); /* the caller's numbers stay */
    assert_true(net.weight[1] == -0.25F);
    must(sonde_nn_session_create(net.model, NULL, &sgd, &session, &engine_diag));
    run_step(session);
    sonde_nn_session_destroy(session);
    must(sonde_nn_session_create(layers, NULL, &sgd, &session, &engine_diag));
    run_step(session);
    sonde_nn_session_destroy(session);
    assert_memory_equal(net.weight, sonde_nn_parameter(layers, 0).view.data,
                        sizeof net.weight);
    assert_memory_equal(net.bias, sonde_nn_parameter(layers, 1).view.data,
                        sizeof net.bias);
    sonde_nn_model_destroy(layers);
    sonde_nn_model_destroy(net.model);
}

/* The old memory is not read again: a step of a new session, and save, use the new one. */
static void a_tensor_can_move(void **state)
{
    _Alignas(64) float elsewhere[CLASSES * FEATURES];
    given net;
    sonde_view memory = view(elsewhere, 2, CLASSES);
    sonde_nn_session *session = NULL;

    (void)state;
    build(&net, false);
    memcpy(elsewhere, net.weight, sizeof elsewhere);
    must(sonde_nn_tensor_move(net.model, "top.fc.weight", &memory, &engine_diag));
    memset(net.weight, 0xff, sizeof net.weight);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    run_step(session);
    assert_true(elsewhere[1] != -0.25F && elsewhere[1] > -1.0F);
    sonde_nn_session_destroy(session);
    expect_err(SONDE_EINVAL,
               sonde_nn_tensor_move(net.model, "weight", &memory, &engine_diag));
    expect_err(SONDE_EINVAL,
               sonde_nn_tensor_move(net.model, "top.fc.weight", NULL, &engine_diag));
    memory.data = elsewhere + 1;
    expect_err(SONDE_EINVAL,
               sonde_nn_tensor_move(net.model, "top.fc.weight", &memory, &engine_diag));
    memory.shape[0] = 1;
    expect_err(SONDE_ESHAPE,
               sonde_nn_tensor_move(net.model, "top.fc.weight", &memory, &engine_diag));
    sonde_nn_model_destroy(net.model);
}

static void values_have_the_names_of_modules(void **state)
{
    static const char *const names[] = {
        "top.fc_output_0", "top_output_0",  "Gradient___top_output_0",
        "Relu:0",          "loss_output_0", "Gradient___top.fc.bias"};
    given net;
    sonde_nn_session *session = NULL;

    (void)state;
    build(&net, false);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint32_t id = 0;

        must(sonde_catalogue_find(sonde_nn_session_catalogue(session), names[i], &id,
                                  &engine_diag));
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(net.model);
}

static void prints_go_to_the_stream(void **state)
{
    given net;
    sonde_nn_session *session = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    (void)state;
    assert_non_null(stream);
    build(&net, true);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .prints = stream),
                              &engine_diag));
    run_step(session);
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set(session,
                                    SONDE_OPTIONS(sonde_nn_session, .prints = stderr),
                                    &engine_diag));
    sonde_nn_session_destroy(session);
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(strncmp(text, "seen: ", 6), 0);
    free(text);
    sonde_nn_model_destroy(net.model);
}

/* A model with one input, in which a call must fail with this line. */
static void refuse(const char *line, const char *kind, size_t count,
                   const sonde_nn_setting *setting)
{
    sonde_nn_model *model = NULL;
    sonde_nn_value in[2] = {0, 0};

    must(sonde_nn_model_create(&model, &engine_diag));
    in[0] = sonde_nn_input(model, SONDE_F32, 2, (const int64_t[]){BATCH, FEATURES});
    in[1] = in[0];
    assert_int_equal(
        sonde_nn_function(model, "m", kind, in, count, setting, setting != NULL ? 1 : 0),
        0);
    expect_err(SONDE_EINVAL, sonde_nn_model_status(model, &engine_diag));
    expect_line(line);
    sonde_nn_model_destroy(model);
}

static void what_cannot_be_is_refused(void **state)
{
    static _Alignas(64) float data[FEATURES + 1];
    const sonde_view shifted = view(data + 1, 1, FEATURES);
    const sonde_nn_setting axis = {.key = "dim", .values = {2}},
                           key = {.key = "dim", .values = {1}};
    sonde_nn_model *model = NULL;

    (void)state;
    refuse("m: unknown function 'warp' (expected a function of function.h)", "warp", 1,
           NULL);
    refuse("linear: 1 values (expected 2 to 3)", "linear", 1, NULL);
    refuse("m/Reduce: axis 2 of a tensor of rank 2 (expected -2 to 1)", "sum", 1, &axis);
    refuse("m: relu has no key 'dim'", "relu", 1, &key);
    must(sonde_nn_model_create(&model, &engine_diag));
    assert_int_equal(sonde_nn_tensor(model, "w", SONDE_ROLE_WEIGHT, &shifted), 0);
    expect_err(SONDE_EINVAL, sonde_nn_model_status(model, &engine_diag));
    expect_line("w: a weight of float32 (expected memory aligned to 64 bytes)");
    sonde_nn_model_destroy(model);
    sonde_nn_module_output(NULL, "m", 1);
    assert_int_equal(sonde_nn_tensor(NULL, "w", SONDE_ROLE_WEIGHT, &shifted), 0);
    assert_int_equal(sonde_nn_function(NULL, "m", "relu", NULL, 0, NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_trains_the_callers_memory_as_layers_do),
        cmocka_unit_test(a_tensor_can_move),
        cmocka_unit_test(values_have_the_names_of_modules),
        cmocka_unit_test(prints_go_to_the_stream),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
