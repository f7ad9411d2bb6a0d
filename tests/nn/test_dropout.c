/*
 * test_dropout.c - what dropout draws: its share, the same in forward and gradient, anew in
 * every micro-batch, by seed; the same bits on several threads, observed, and resumed; and
 * nothing in inference. tsan: yes
 */
#include "engine.h"

#include "nn/ops/ops.h"

#include <math.h>
#include <unistd.h>

enum { COUNT = 40000 };

/* --- the op ----------------------------------------------------------------------------- */

static const sonde__op_kind *kind_named(const char *name)
{
    size_t i = 0;

    while (strcmp(sonde__op_kinds[i]->name, name) != 0) {
        i++;
    }
    return sonde__op_kinds[i];
}

static void draw(const sonde__op_kind *kind, const sonde__op_draw *how, float p,
                 const float *x, float *y)
{
    const sonde__op_attrs attrs = {.number = {p}, .stream = 3};
    const sonde__op_shape shape = {.dtype = SONDE_F32, .rank = 1, .dim = {COUNT}};
    float copy[COUNT];
    const sonde__op_kernel *kernel = kind->kernels()[0];
    sonde__op_call call = {.attrs = &attrs, .in_count = 1, .out_count = 1, .draw = how};

    memcpy(copy, x, sizeof copy);
    call.in[0] = (sonde__operand){shape, SONDE__PLAIN, copy};
    call.out[0] = (sonde__operand){shape, SONDE__PLAIN, y};
    for (int part = 0; part < 3; part++) {
        kernel->run(&call, part, 3);
    }
}

static void a_share_is_dropped_and_the_rest_scaled(void **state)
{
    static float x[COUNT], y[COUNT], dx[COUNT], other[COUNT];
    sonde__op_draw how = {.seed = 7, .micro_batch = 5, .training = true};
    const sonde__op_kind *forward = kind_named("Dropout");
    int kept = 0, same = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        x[i] = 1.0F;
    }
    x[11] = NAN;
    draw(forward, &how, 0.25F, x, y);
    draw(kind_named("DropoutGrad"), &how, 0.25F, x, dx);
    assert_memory_equal(y, dx, sizeof y);
    assert_true(isnan(y[11]));
    for (int i = 0; i < COUNT; i++) {
        assert_true(i == 11 || y[i] == 0.0F || y[i] == 1.0F / 0.75F);
        kept += y[i] > 0.0F;
    }
    /* a binomial count: 4 standard deviations are 4 sqrt(40000 0.25 0.75) = 347 */
    assert_in_range(kept, 30000 - 347, 30000 + 347);
    how.micro_batch = 6;
    draw(forward, &how, 0.25F, x, other);
    for (int i = 0; i < COUNT; i++) {
        same += y[i] == other[i];
    }
    assert_in_range(same, 25000 - 400, 25000 + 400); /* 0.75^2 + 0.25^2 of them */
    draw(forward, &how, 1.0F, x, y);
    for (int i = 0; i < COUNT; i++) {
        assert_true(i == 11 ? isnan(y[i]) : y[i] == 0.0F);
    }
    how.training = false;
    draw(forward, &how, 0.25F, x, y);
    assert_memory_equal(y, x, sizeof x);
}

/* --- in sessions ------------------------------------------------------------------------ */

static void build(engine_net *net)
{
    const sonde_nn_setting half = {.key = "p", .values = {0.5}};
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {300}, .classes = 10, .batch = 48};
    x = engine_inputs(net, &target);
    x = sonde_nn_layer(net->model, "dropout", "drop1", &x, 1, &half, 1);
    x = sonde_nn_linear(net->model, "fc1", x, SONDE_OPTIONS(sonde_nn_linear, .out = 256));
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_layer(net->model, "dropout", "drop2", &x, 1, NULL, 0);
    x = sonde_nn_linear(net->model, "fc2", x, SONDE_OPTIONS(sonde_nn_linear, .out = 10));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target));
}

typedef struct how {
    int threads;
    bool observed, resumed;
    uint64_t seed;
} how;

static void open_session(engine_net *net, const how *h, engine_sink *sink,
                         sonde_nn_session **session)
{
    const sonde_schedule always = sonde_schedule_always();
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.random_seed = h->seed;
    options.device_iterations = 2;
    options.gradient_accumulation = 2;
    options.threads = h->threads;
    must(sonde_nn_training_session(net->model, &options, &sgd, session, &engine_diag));
    if (h->observed) {
        must(sonde_nn_session_tap(*session, "*", &always, SONDE_HOW_RAW, &sink->sink,
                                  &engine_diag));
    }
}

/* The weights after four calls; with `resumed` the last two are of another session. */
static float *train(how h)
{
    static const char path[] = "test_dropout.safetensors";
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session = NULL;
    float *weights = NULL;

    build(&net);
    engine_sink_init(&sink, false);
    open_session(&net, &h, &sink, &session);
    for (int i = 0; i < 4; i++) {
        if (h.resumed && i == 2) {
            must(sonde_nn_session_save(session, path, &engine_diag));
            sonde_nn_session_destroy(session);
            open_session(&net, &h, &sink, &session);
            must(sonde_nn_session_load(session, path, &engine_diag));
            (void)unlink(path);
        }
        engine_train(&net, session, (uint64_t)i);
    }
    weights = engine_weights(net.model);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
    return weights;
}

static void bits_depend_on_the_seed_alone(void **state)
{
    enum { WEIGHTS = 300 * 256 + 256 + 256 * 10 + 10 };
    static const how same[] = {{1, false, false, 3},
                               {2, false, false, 3},
                               {1, true, false, 3},
                               {2, true, false, 3},
                               {1, false, true, 3}};
    float *want = train((how){1, false, false, 3});
    float *other = train((how){1, false, false, 4});

    (void)state;
    assert_memory_not_equal(want, other, WEIGHTS * sizeof *want);
    free(other);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        float *have = train(same[i]);

        assert_same_bits(have, want, WEIGHTS);
        free(have);
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_dropped_and_the_rest_scaled),
        cmocka_unit_test(bits_depend_on_the_seed_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
