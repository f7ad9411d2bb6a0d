/*
 * test_autodiff.c - gradients through whole networks against finite differences, and
 * under their names.
 *
 * For every parameter p and random directions u of elements +-1: (L(p + h u) - L(p - h
 * u)) / 2h against the sum of u times the observed gradient. L is the interpreter's, in
 * double, so h can be 1e-6 and the kinks of ReLU and max-pool are hardly ever met. The
 * engine's floats are good to some 1e-5 of the sum of magnitudes, and 1e-4 is allowed.
 */
#include "interpreter.h"
#include "base/macros.h"
#include "base/random.h"

enum { SEEDS = 4, DIRECTIONS = 3 };

typedef struct part {
    sonde_nn_model *m;
    sonde_nn_value x;      /* (batch, 4, 7, 6) */
    sonde_nn_value target; /* (batch), of 3 classes */
    uint64_t seed;
} part;

static int64_t pick(const part *p, uint64_t stream, int64_t least, int64_t most)
{
    return least +
           (int64_t)sonde__below(p->seed, 100 + stream, 0, (uint64_t)(most - least + 1));
}

static sonde_nn_value conv(const part *p, const char *name, sonde_nn_value x, int64_t out)
{
    return sonde_nn_conv2d(p->m, name, x,
                           SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = out,
                                         .kernel_size = {3}, .padding = {1, 1}));
}

/* Any (N, ...) to class scores and their loss. */
static sonde_nn_value head(const part *p, sonde_nn_value x)
{
    x = sonde_nn_flatten(p->m, NULL, x, 1);
    x = sonde_nn_linear(p->m, "head", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 3));
    return sonde_nn_cross_entropy(p->m, "loss", x, p->target, NULL);
}

static sonde_nn_value strides_and_groups(const part *p)
{
    sonde_nn_value x = p->x;

    x = sonde_nn_conv2d(
        p->m, "a", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 2 * pick(p, 1, 1, 3),
                      .kernel_size = {pick(p, 2, 1, 3), 2},
                      .stride = {pick(p, 3, 1, 2), pick(p, 4, 1, 2)},
                      .padding = {pick(p, 5, 0, 2), 1}, .dilation = {1, pick(p, 6, 1, 2)},
                      .groups = 2, .no_bias = pick(p, 7, 0, 1) == 1));
    x = sonde_nn_relu(p->m, NULL, x);
    x = sonde_nn_conv2d(p->m, "b", x,
                        SONDE_OPTIONS(sonde_nn_conv2d,
                                      .out_channels = 2 * pick(p, 1, 1, 3),
                                      .kernel_size = {2}, .padding = {1, 1},
                                      .groups = 2 * pick(p, 1, 1, 3)));
    return head(p, x);
}

static sonde_nn_value pools(const part *p)
{
    const sonde_nn_pool2d_options overlapping = {.size = sizeof overlapping,
                                                 .kernel_size = {3, 2},
                                                 .stride = {2, 1},
                                                 .padding = {1, 1},
                                                 .dilation = {1, 2}};
    sonde_nn_value x = conv(p, "a", p->x, 3), y = 0;

    y = sonde_nn_max_pool2d(p->m, "p1", x, &overlapping);
    x = sonde_nn_max_pool2d(p->m, "p2", x,
                            SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {2, 2}));
    x = engine_reduce(p->m, "sum", NULL, x, (const int[]){2, 3}, 2, true);
    return head(p, engine_mul(p->m, NULL, x, y));
}

static sonde_nn_value the_fused_chain(const part *p)
{
    sonde_nn_value x = conv(p, "a", p->x, 5);

    x = sonde_nn_relu(p->m, "r", x);
    x = sonde_nn_max_pool2d(p->m, "p", x,
                            SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {2, 2}));
    x = conv(p, "b", x, 4);
    x = sonde_nn_relu(p->m, "r", x);
    x = sonde_nn_flatten(p->m, NULL, x, 1);
    x = sonde_nn_linear(p->m, "c", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 19));
    return head(p, sonde_nn_relu(p->m, "r", x));
}

/* The values inside a chain that could be fused are used elsewhere too. */
static sonde_nn_value a_chain_with_branches(const part *p)
{
    sonde_nn_value a = conv(p, "a", p->x, 5), r = sonde_nn_relu(p->m, "r", a);
    sonde_nn_value q = sonde_nn_max_pool2d(
        p->m, "p", r, SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {2, 2}));
    sonde_nn_value s =
        engine_reduce(p->m, "mean", NULL, r, (const int[]){-1, -2}, 2, true);

    q = sonde_nn_add(p->m, NULL, q, s);
    q = sonde_nn_add(p->m, NULL, q,
                     engine_reduce(p->m, "mean", NULL, a, (const int[]){2, 3}, 2, true));
    return head(p, q);
}

static sonde_nn_value norms(const part *p)
{
    sonde_nn_value x = conv(p, "a", p->x, 6);

    x = sonde_nn_group_norm(
        p->m, "n1", x,
        SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = pick(p, 1, 1, 3)));
    x = conv(p, "b", x, 4);
    x = sonde_nn_group_norm(p->m, "n2", x,
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 2,
                                          .eps = 0.1F, .no_affine = true));
    return head(p, x);
}

static sonde_nn_value softmaxes(const part *p)
{
    const int axis = (int)pick(p, 1, -4, 3), other = (int)pick(p, 2, -4, 3);
    sonde_nn_value x = conv(p, "a", p->x, 3);

    x = sonde_nn_softmax(p->m, NULL, x, axis);
    x = conv(p, "b", x, 3);
    x = sonde_nn_log_softmax(p->m, NULL, x, other);
    return head(p, x);
}

/* The loss of the gradient histogram: log-softmax over the batch. */
static sonde_nn_value softmax_over_the_batch(const part *p)
{
    sonde_nn_value x = sonde_nn_flatten(p->m, NULL, p->x, 1);

    x = sonde_nn_linear(p->m, "a", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 8));
    x = sonde_nn_relu(p->m, NULL, x);
    x = sonde_nn_linear(
        p->m, "b", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 3, .no_bias = true));
    x = sonde_nn_log_softmax(p->m, NULL, x, (int)pick(p, 1, 0, 1));
    return sonde_nn_nll_loss(p->m, "loss", x, p->target);
}

static sonde_nn_value sums_and_products(const part *p)
{
    sonde_nn_value a = conv(p, "a", p->x, 4), b = conv(p, "b", a, 4), c = 0;

    c = sonde_nn_add(p->m, "sum", a, b);
    c = engine_mul(p->m, NULL, c, a);
    c = engine_mul(p->m, NULL, c, c);
    c = sonde_nn_add(p->m, NULL, c, c);
    c = sonde_nn_add(p->m, NULL, c,
                     engine_reduce(p->m, "mean", NULL, b, (const int[]){0, 2}, 2,
                                   true)); /* (1,4,1,6) */
    c = engine_mul(p->m, NULL,
                   engine_reduce(p->m, "sum", NULL, a, (const int[]){0, 1}, 2, false),
                   c); /* (7,6) */
    return engine_reduce(p->m, "mean", "loss", c, NULL, 0, false);
}

static sonde_nn_value shapes(const part *p)
{
    sonde_nn_value x = conv(p, "a", p->x, 4);

    x = engine_permute(p->m, NULL, x, (const int[]){2, 0, 3, 1}); /* (7, N, 6, 4) */
    x = sonde_nn_reshape(p->m, NULL, x, 3, (const int64_t[]){7, -1, 8});
    x = engine_reduce(p->m, "sum", NULL, x, (const int[]){-3}, 1, false); /* (3 N, 8) */
    x = sonde_nn_linear(p->m, "b", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    x = sonde_nn_relu(p->m, NULL, x);
    x = sonde_nn_linear(p->m, "c", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    x = sonde_nn_reshape(p->m, NULL, x, 2, (const int64_t[]){-1, 6});
    return head(p, x);
}

static sonde_nn_value modules_called_again(const part *p)
{
    sonde_nn_value x = conv(p, "a", p->x, 4);

    x = sonde_nn_relu(p->m, "r", x);
    x = conv(p, "a", x, 4);
    x = sonde_nn_relu(p->m, "r", x);
    x = sonde_nn_add(p->m, NULL, conv(p, "a", x, 4), x);
    x = sonde_nn_group_norm(p->m, "n", x,
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 2));
    x = sonde_nn_group_norm(p->m, "n", x,
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 2));
    x = engine_reduce(p->m, "mean", NULL, x, (const int[]){2, 3}, 2, false);
    x = sonde_nn_linear(p->m, "fc", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    x = sonde_nn_relu(p->m, "r", x);
    return head(p, sonde_nn_linear(p->m, "fc", x,
                                   SONDE_OPTIONS(sonde_nn_linear, .out_features = 4)));
}

typedef sonde_nn_value (*maker)(const part *p);

/* --- differences -------------------------------------------------------------------- */

typedef struct network {
    engine_net net;
    engine_batch batch;
} network;

static void build(network *w, maker make, uint64_t seed)
{
    part p = {.seed = seed};

    w->net = (engine_net){.rank = 3, .sample = {4, 7, 6}, .classes = 3};
    w->net.batch = pick(&p, 0, 1, 18);
    p.x = engine_inputs(&w->net, &p.target);
    p.m = w->net.model;
    sonde_nn_loss(p.m, make(&p));
    must(sonde_nn_model_status(p.m, &engine_diag));
    sonde_nn_model_initialize(p.m, seed);
    engine_batch_init(&w->batch, &w->net, w->net.batch, seed);
}

static void network_fini(network *w)
{
    engine_batch_fini(&w->batch);
    engine_net_fini(&w->net);
}

static size_t input_count(maker make)
{
    return make == sums_and_products ? 1 : 2; /* that loss has no target */
}

/* (L(p + h u) - L(p - h u)) / 2h, by the interpreter. */
static double quotient(const interpreter *in, sonde__op_value param, uint64_t direction)
{
    const double h = 1e-6;
    const size_t count = interpreter_count(in, param);
    double loss[2] = {0.0, 0.0};

    for (int side = 0; side < 2; side++) {
        const double step = side == 0 ? h : -h;

        for (size_t i = 0; i < count; i++) {
            in->values[param][i] +=
                sonde__uniform(77, direction, i) < 0.5F ? step : -step;
        }
        interpreter_run(in);
        loss[side] = in->values[in->graph->loss][0];
        for (size_t i = 0; i < count; i++) {
            in->values[param][i] -=
                sonde__uniform(77, direction, i) < 0.5F ? step : -step;
        }
    }
    return (loss[0] - loss[1]) / (2.0 * h);
}

static void expect_gradient(const interpreter *in, size_t which, const float *gradient,
                            const char *label)
{
    const sonde__op_value param = in->model->params[which].value;
    const size_t count = interpreter_count(in, param);

    for (uint64_t k = 0; k < DIRECTIONS; k++) {
        const double want = quotient(in, param, k);
        double have = 0.0, size = 0.0;

        for (size_t i = 0; i < count; i++) {
            have += sonde__uniform(77, k, i) < 0.5F ? (double)gradient[i]
                                                    : -(double)gradient[i];
            size += fabs((double)gradient[i]);
        }
        if (!(fabs(want - have) < 1e-4 * (0.1 + size))) {
            fail_msg("%s, %s: %.7f, not %.7f", label, in->graph->values[param].name, have,
                     want);
        }
    }
}

/* The loss, and the gradients observed of every parameter. */
static void expect_gradients(maker make, const char *label)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        network w;
        interpreter in;
        engine_sink sink;
        sonde_nn_session *session = NULL;
        sonde_view loss;
        char name[200];

        build(&w, make, seed);
        interpreter_init(&in, w.net.model, w.batch.views);
        engine_sink_init(&sink, true);
        must(sonde_nn_session_create(w.net.model, NULL, &engine_sgd, &session,
                                     &engine_diag));
        engine_tap_all(session, SONDE_HOW_RAW, &sink);
        must(sonde_nn_session_run(session, w.batch.views, input_count(make),
                                  &engine_diag));
        must(sonde_nn_session_output(session, 0, &loss, &engine_diag));
        interpreter_run(&in);
        assert_true(
            fabs((double)*(const float *)loss.data - in.values[in.graph->loss][0]) <
            1e-5 * (1.0 + fabs(in.values[in.graph->loss][0])));
        for (size_t i = 0; i < sonde_nn_model_get_info(w.net.model).parameter_count;
             i++) {
            (void)snprintf(name, sizeof name, "Gradient___%s",
                           sonde_nn_parameter(w.net.model, i).name);
            expect_gradient(&in, i, engine_find(&sink, name, 0, 0)->data, label);
        }
        sonde_nn_session_destroy(session);
        engine_sink_fini(&sink);
        interpreter_fini(&in);
        network_fini(&w);
    }
}

#define gradient_test(maker)                                                             \
    static void gradients_of_##maker(void **state)                                       \
    {                                                                                    \
        (void)state;                                                                     \
        expect_gradients(maker, #maker);                                                 \
    }
gradient_test(strides_and_groups) gradient_test(pools) gradient_test(the_fused_chain)
    gradient_test(a_chain_with_branches) gradient_test(norms) gradient_test(softmaxes)
        gradient_test(softmax_over_the_batch) gradient_test(sums_and_products)
            gradient_test(shapes) gradient_test(modules_called_again)

    /* --- names
       ---------------------------------------------------------------------------------------
     */

    /* Every forward value between a parameter and the loss has a gradient under its name,
     * of its shape; also where several values have the same gradient (a sum hands its own
     * on). */
    static void every_value_before_the_loss_has_a_gradient(void **state)
{
    static const maker makers[] = {strides_and_groups,
                                   pools,
                                   the_fused_chain,
                                   a_chain_with_branches,
                                   norms,
                                   softmaxes,
                                   softmax_over_the_batch,
                                   sums_and_products,
                                   shapes,
                                   modules_called_again};

    (void)state;
    for (size_t k = 0; k < SONDE_COUNT_OF(makers); k++) {
        network w;
        sonde_nn_session *session = NULL;
        const sonde_catalogue *catalogue = NULL;

        build(&w, makers[k], 1);
        must(sonde_nn_session_create(w.net.model, NULL, &engine_sgd, &session,
                                     &engine_diag));
        must(sonde_nn_session_compile(session, &engine_diag));
        catalogue = sonde_nn_session_catalogue(session);
        for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
            const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id),
                                    *gradient = NULL;
            const bool index = strstr(info->name, "Index") != NULL ||
                               strstr(info->name, "Mean:") != NULL ||
                               strstr(info->name, "Rstd:") != NULL;
            char name[200];
            uint32_t found = 0;

            if (info->pass != SONDE_PASS_FORWARD || index ||
                strncmp(info->name, "Gradient___", 11) == 0) {
                continue;
            }
            if (makers[k] == softmax_over_the_batch &&
                strcmp(sonde_catalogue_info(catalogue, info->same_as)->name,
                       "Reshape:0") == 0) {
                continue; /* of the input itself, before any parameter */
            }
            (void)snprintf(name, sizeof name, "Gradient___%s", info->name);
            must(sonde_catalogue_find(catalogue, name, &found, &engine_diag));
            gradient = sonde_catalogue_info(catalogue, found);
            assert_int_equal(gradient->rank, info->rank);
            assert_memory_equal(gradient->shape, info->shape,
                                (size_t)info->rank * sizeof *info->shape);
            assert_int_equal(gradient->pass, SONDE_PASS_BACKWARD);
        }
        sonde_nn_session_destroy(session);
        network_fini(&w);
    }
}

static void a_sum_hands_its_gradient_on(void **state)
{
    network w;
    engine_sink sink;
    sonde_nn_session *session = NULL;
    const engine_seen *sum = NULL, *b = NULL, *loss = NULL;

    (void)state;
    build(&w, sums_and_products, 1);
    engine_sink_init(&sink, true);
    must(sonde_nn_session_create(w.net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_tap(session, "Gradient___*", &(sonde_schedule){.every = 1},
                              SONDE_HOW_RAW, &sink.sink, &engine_diag));
    must(sonde_nn_session_run(session, w.batch.views, 1, &engine_diag));
    sum = engine_find(&sink, "Gradient___sum_output_0", 0, 0);
    b = engine_find(&sink, "Gradient___sum_input_1", 0, 0);
    loss = engine_find(&sink, "Gradient___loss_output_0", 0, 0);
    assert_int_equal(sum->count, b->count);
    assert_true(*(const float *)loss->data == 1.0F);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    network_fini(&w);
}

/* A parameter that the loss does not depend on has no gradient and is not changed. */
static void what_the_loss_does_not_need_stays(void **state)
{
    const int64_t shape[2] = {4, 3};
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_value x = 0, a = 0, b = 0;
    float numbers[12] = {1, 2, 3}, *unused = NULL;
    float was[6];
    const sonde_view input = sonde_view_of(SONDE_F32, 2, shape, numbers);
    uint32_t id = 0;

    (void)state;
    must(sonde_nn_model_create(&model, &engine_diag));
    x = sonde_nn_input(model, SONDE_F32, 2, shape);
    a = sonde_nn_linear(model, "used", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    b = sonde_nn_linear(model, "shown", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    (void)sonde_nn_linear(model, "unused", x,
                          SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    sonde_nn_output(model, b);
    sonde_nn_loss(model, engine_reduce(model, "sum", "loss", a, NULL, 0, false));
    must(sonde_nn_session_create(
        model, NULL, &(sonde_nn_optimizer){.learning_rate = 1.0F, .weight_decay = 0.5F},
        &session, &engine_diag));
    unused = engine_parameter(model, "shown.weight", NULL);
    memcpy(was, unused, sizeof was);
    must(sonde_nn_session_run(session, &input, 1, &engine_diag));
    assert_same_bits(was, unused, 6);
    must(sonde_catalogue_find(sonde_nn_session_catalogue(session), "shown.weight", &id,
                              &engine_diag));
    expect_err(SONDE_ENOTFOUND,
               sonde_catalogue_find(sonde_nn_session_catalogue(session),
                                    "Gradient___shown.weight", &id, &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_catalogue_find(sonde_nn_session_catalogue(session),
                                                     "unused.weight", &id, &engine_diag));
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_strides_and_groups),
        cmocka_unit_test(gradients_of_pools),
        cmocka_unit_test(gradients_of_the_fused_chain),
        cmocka_unit_test(gradients_of_a_chain_with_branches),
        cmocka_unit_test(gradients_of_norms),
        cmocka_unit_test(gradients_of_softmaxes),
        cmocka_unit_test(gradients_of_softmax_over_the_batch),
        cmocka_unit_test(gradients_of_sums_and_products),
        cmocka_unit_test(gradients_of_shapes),
        cmocka_unit_test(gradients_of_modules_called_again),
        cmocka_unit_test(every_value_before_the_loss_has_a_gradient),
        cmocka_unit_test(a_sum_hands_its_gradient_on),
        cmocka_unit_test(what_the_loss_does_not_need_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
