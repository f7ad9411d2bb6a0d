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
    const sonde__op_attrs attrs = {.p = p, .stream = 3};
    const sonde__op_shape shape = {.dtype = SONDE_F32, .rank = 1, .dim = {COUNT}};
    float copy[COUNT];
    const sonde__op_kernel *kernel = sonde__op_kernel_of(kind, NULL, 0);
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

/* --- in attention ----------------------------------------------------------------------- */

enum { TIMES = 24, HEADS = 2, WIDTH = 6, BATCH = 3 };
enum {
    ROW = HEADS * WIDTH,
    INPUT = BATCH * TIMES * ROW,
    SQUARES = BATCH * HEADS * TIMES * TIMES
};

static const sonde__op_draw in_training = {.seed = 7, .micro_batch = 2, .training = true};

/* y and weights of a kernel of Attention over one operand as query, key and value. */
static void attend(const sonde__op_kernel *kernel, const float *x, int parts, float *y,
                   float *weights)
{
    static float scratch[1 << 20] __attribute__((aligned(64)));
    const sonde__op_attrs attrs = {.attention = {.heads = HEADS}, .p = 0.4F, .stream = 9};
    const sonde__op_shape rows = {
        .dtype = SONDE_F32, .rank = 3, .dim = {BATCH, TIMES, ROW}};
    const sonde__op_shape square = {
        .dtype = SONDE_F32, .rank = 4, .dim = {BATCH, HEADS, TIMES, TIMES}};
    float copy[INPUT];
    sonde__op_call call = {
        .attrs = &attrs, .in_count = 3, .out_count = 2, .draw = &in_training};

    memcpy(copy, x, sizeof copy);
    for (int i = 0; i < 3; i++) {
        call.in[i] = (sonde__operand){rows, SONDE__PLAIN, copy};
    }
    call.out[0] = (sonde__operand){rows, SONDE__PLAIN, y};
    call.out[1] = (sonde__operand){square, SONDE__PLAIN, weights};
    call.scratch = scratch;
    assert_true(kernel->scratch == NULL ||
                kernel->scratch(&call, parts) <= sizeof scratch);
    for (int part = 0; part < parts; part++) {
        kernel->run(&call, part, parts);
    }
}

/* The sum of y over dy is the loss; its gradients by all three, added up. */
static void attend_back(const sonde__op_kernel *kernel, const float *x,
                        const float *weights, int parts, const float *dy, float *dx)
{
    static float scratch[1 << 20] __attribute__((aligned(64))), ds[SQUARES], d[3][INPUT];
    const sonde__op_attrs attrs = {.attention = {.heads = HEADS}, .p = 0.4F, .stream = 9};
    const sonde__op_shape rows = {
        .dtype = SONDE_F32, .rank = 3, .dim = {BATCH, TIMES, ROW}};
    const sonde__op_shape square = {
        .dtype = SONDE_F32, .rank = 4, .dim = {BATCH, HEADS, TIMES, TIMES}};
    float copy[INPUT], copy_dy[INPUT], p[SQUARES];
    sonde__op_call call = {
        .attrs = &attrs, .in_count = 5, .out_count = 4, .draw = &in_training};

    memcpy(copy, x, sizeof copy);
    memcpy(copy_dy, dy, sizeof copy_dy);
    memcpy(p, weights, sizeof p);
    call.in[0] = (sonde__operand){rows, SONDE__PLAIN, copy_dy};
    call.in[1] = (sonde__operand){square, SONDE__PLAIN, p};
    for (int i = 0; i < 3; i++) {
        call.in[2 + i] = (sonde__operand){rows, SONDE__PLAIN, copy};
        call.out[i] = (sonde__operand){rows, SONDE__PLAIN, d[i]};
    }
    call.out[3] = (sonde__operand){square, SONDE__PLAIN, ds};
    call.scratch = scratch;
    assert_true(kernel->scratch == NULL ||
                kernel->scratch(&call, parts) <= sizeof scratch);
    for (int part = 0; part < parts; part++) {
        kernel->run(&call, part, parts);
    }
    for (int i = 0; i < INPUT; i++) {
        dx[i] = d[0][i] + d[1][i] + d[2][i];
    }
}

/* The kernels agree, whatever the parts; the gradient is what the loss does. */
static void attention_drops_weights(void **state)
{
    static float x[INPUT], dy[INPUT], y[3][INPUT], dx[3][INPUT], weights[3][SQUARES];
    const sonde__op_kind *kind = kind_named("Attention"),
                         *grad = kind_named("AttentionGrad");

    (void)state;
    for (int i = 0; i < INPUT; i++) {
        x[i] = (float)((i * 37 + i / 7) % 101) / 101.0F - 0.5F;
        dy[i] = (float)((i * 53 + i / 5) % 97) / 97.0F - 0.5F;
    }
    for (int way = 0; way < 3; way++) { /* fast in one part and in three, reference */
        const int parts = way == 1 ? 3 : 1;
        const size_t k = way == 2 ? 1 : 0;

        attend(sonde__op_kernel_of(kind, NULL, k), x, parts, y[way], weights[way]);
        attend_back(sonde__op_kernel_of(grad, NULL, k), x, weights[way], parts, dy,
                    dx[way]);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    for (int i = 0; i < INPUT; i++) {
        assert_float_equal(y[0][i], y[2][i], 1e-5F);
        assert_float_equal(dx[0][i], dx[2][i], 1e-5F);
    }
    for (int i = 0; i < INPUT; i += 17) {
        double loss[2] = {0.0, 0.0};
        const float before = x[i];

        for (int side = 0; side < 2; side++) {
            x[i] = before + (side == 0 ? 1e-2F : -1e-2F);
            attend(&kind->reference, x, 1, y[1], weights[1]);
            for (int k = 0; k < INPUT; k++) {
                loss[side] += (double)y[1][k] * (double)dy[k];
            }
        }
        x[i] = before;
        /* float32 outputs: 72 of them with errors of 3e-8 by 0.02; and h^2 */
        assert_true(fabs((loss[0] - loss[1]) / 2e-2 - (double)dx[2][i]) < 2e-4);
    }
}

/* --- in sessions ------------------------------------------------------------------------ */

static void build(engine_net *net)
{
    const sonde_nn_setting half = {.key = "p", .values = {0.5}};
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {300}, .classes = 10, .batch = 48};
    x = engine_inputs(net, &target);
    x = sonde_nn_layer(net->model, "dropout", "drop1", &x, 1, &half, 1);
    x = sonde_nn_linear(net->model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 256));
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_layer(net->model, "dropout", "drop2", &x, 1, NULL, 0);
    x = sonde_nn_linear(net->model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target, NULL));
}

typedef struct how {
    int threads;
    bool observed, resumed;
    uint64_t seed;
} how;

static void open_session(engine_net *net, const how *h, engine_sink *sink,
                         sonde_nn_session **session)
{
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.random_seed = h->seed;
    options.device_iterations = 2;
    options.gradient_accumulation = 2;
    options.threads = h->threads;
    must(sonde_nn_session_create(net->model, &options, &sgd, session, &engine_diag));
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
        cmocka_unit_test(attention_drops_weights),
        cmocka_unit_test(bits_depend_on_the_seed_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
