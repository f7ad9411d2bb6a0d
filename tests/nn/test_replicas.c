/*
 * test_replicas.c - replicas compute what the same micro-batches give one after the other,
 * the same bits on any number of threads, observed or not, and are observed in one order.
 * tsan: yes
 */
#include "engine.h"

#include "base/macros.h"
#include "nn/ops/ops.h"

#include <math.h>
#include <unistd.h>

/* --- the op ------------------------------------------------------------------------- */

static void a_sum_over_replicas_has_one_order(void **state)
{
    enum { REPLICAS = 5, COUNT = 5003 };
    static float values[REPLICAS][COUNT], sum[COUNT];
    const sonde__op_attrs attrs = {.replicas = {.count = REPLICAS}};
    const sonde__op_shape shape = {.dtype = SONDE_F32, .rank = 1, .dim = {COUNT}};
    const sonde__op_kernel *kernel = NULL;
    const void *replicas[REPLICAS];
    sonde__op_call call = {
        .attrs = &attrs, .in_count = 1, .out_count = 1, .replicas = replicas};

    (void)state;
    for (int r = 0; r < REPLICAS; r++) {
        replicas[r] = values[r];
        for (int i = 0; i < COUNT; i++) {
            values[r][i] = sonde__uniform(3, (uint64_t)r, (uint64_t)i) - 0.5F;
        }
    }
    values[3][COUNT - 1] = NAN;
    values[2][7] = INFINITY;
    call.in[0] = (sonde__operand){shape, SONDE__PLAIN, values[0]};
    call.out[0] = (sonde__operand){shape, SONDE__PLAIN, sum};
    for (size_t n = 0;
         (kernel = sonde__op_kernel_of(&sonde__op_replica_sum, NULL, n)) != NULL; n++) {
        for (int parts = 1; parts <= (kernel->parts != NULL ? 3 : 1); parts++) {
            memset(sum, 0xFF, sizeof sum);
            for (int part = 0; part < parts; part++) {
                kernel->run(&call, part, parts);
            }
            for (int i = 0; i + 1 < COUNT; i++) {
                const float want =
                    (((values[0][i] + values[1][i]) + values[2][i]) + values[3][i]) +
                    values[4][i];

                assert_memory_equal(&sum[i], &want, sizeof want);
            }
            assert_true(isnan(sum[COUNT - 1]) && isinf(sum[7]));
        }
    }
}

/* --- sessions ----------------------------------------------------------------------- */

static void drop(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {40}, .classes = 10, .batch = batch};
    x = engine_inputs(net, &target);
    x = sonde_nn_linear(net->model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 64));
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_layer(net->model, "dropout", "drop", &x, 1, NULL, 0);
    x = sonde_nn_linear(net->model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target, NULL));
}

static void norm(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {40}, .classes = 10, .batch = batch};
    x = engine_inputs(net, &target);
    x = sonde_nn_linear(net->model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 16));
    x = sonde_nn_layer(net->model, "batch_norm", "bn", &x, 1, NULL, 0);
    x = sonde_nn_linear(net->model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target, NULL));
}

typedef struct how {
    engine_builder build;
    sonde_nn_optimizer optimizer;
    int iterations, accumulation, replicas, threads;
    bool sum;
    unsigned observed; /* SONDE_HOW_ bits of a tap on everything; 0: none */
    int every;         /* its schedule; 0: always */
} how;

typedef struct job {
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session;
} job;

static void open_job(job *j, const how *h)
{
    const sonde_schedule when =
        h->every > 0 ? sonde_schedule_every(h->every) : sonde_schedule_every(1);
    sonde_nn_options options;

    h->build(&j->net, 6);
    engine_sink_init(&j->sink, (h->observed & SONDE_HOW_RAW) != 0);
    sonde_nn_options_init(&options);
    options.device_iterations = h->iterations;
    options.gradient_accumulation = h->accumulation;
    options.replicas = h->replicas;
    options.threads = h->threads;
    options.reduction = h->sum ? SONDE_NN_REDUCTION_SUM : SONDE_NN_REDUCTION_MEAN;
    must(sonde_nn_session_create(j->net.model, &options, &h->optimizer, &j->session,
                                 &engine_diag));
    if (h->observed != 0) {
        must(sonde_nn_session_tap(j->session, "*", &when, h->observed, &j->sink.sink,
                                  &engine_diag));
    }
}

static void close_job(job *j)
{
    sonde_nn_session_destroy(j->session);
    engine_sink_fini(&j->sink);
    engine_net_fini(&j->net);
}

enum { CALLS = 5 };

/* The weights after a few calls. loss: of the last. */
static float *train(const how *h, double *loss, size_t *count)
{
    float *weights = NULL;
    job j;

    open_job(&j, h);
    for (int i = 0; i < CALLS; i++) {
        engine_train(&j.net, j.session, (uint64_t)i);
    }
    must(sonde_nn_session_loss(j.session, loss, &engine_diag));
    *count = engine_weight_count(j.net.model);
    weights = engine_weights(j.net.model);
    close_job(&j);
    return weights;
}

static void expect_same(const how *a, const how *b)
{
    double loss_a = 0.0, loss_b = 0.0;
    size_t count = 0;
    float *weights_a = train(a, &loss_a, &count);
    float *weights_b = train(b, &loss_b, &count);

    assert_same_bits(weights_a, weights_b, count);
    /* sums of float32 in float64: the order of a few dozen is worth an ulp */
    assert_true(fabs(loss_a - loss_b) <= 1e-15 * fabs(loss_a));
    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(weights_a[i]));
    }
    free(weights_a);
    free(weights_b);
}

static const engine_builder networks[] = {engine_cnn, engine_mlp, engine_branches, drop,
                                          norm};

/* With G = 1 the replicas' gradients are added in the order in which they would be
 * accumulated: bit for bit, dropout's draws included. */
static void replicas_equal_accumulation(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(networks); i++) {
        for (int replicas = 2; replicas <= 5; replicas += 3) {
            how one = {.build = networks[i],
                       .optimizer =
                           i % 2 == 0 ? sonde_nn_optimizer_sgd(0.05F, 0.9F)
                                      : sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F),
                       .iterations = 2,
                       .accumulation = replicas,
                       .replicas = 1,
                       .sum = i == 2};
            how many = one;

            one.optimizer.clip_norm = many.optimizer.clip_norm = i == 1 ? 0.1F : 0.0F;
            many.accumulation = 1;
            many.replicas = replicas;
            expect_same(&one, &many);
        }
    }
}

/* With G > 1 only the order of additions differs: each replica adds up its own. */
static void accumulating_replicas_differ_by_rounding(void **state)
{
    how one = {.build = engine_cnn,
               .optimizer = sonde_nn_optimizer_sgd(0.05F, 0.9F),
               .iterations = 1,
               .accumulation = 6,
               .replicas = 1};
    how many = one;
    double loss_a = 0.0, loss_b = 0.0;
    size_t count = 0;
    float *a = NULL, *b = NULL;

    (void)state;
    many.accumulation = 3;
    many.replicas = 2;
    a = train(&one, &loss_a, &count);
    b = train(&many, &loss_b, &count);
    for (size_t i = 0; i < count; i++) {
        assert_true(fabsf(a[i] - b[i]) <= 1e-6F + 1e-5F * fabsf(a[i]));
    }
    free(a);
    free(b);
}

static void threads_and_looking_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(networks); i++) {
        how alone = {.build = networks[i],
                     .optimizer = sonde_nn_optimizer_sgd(0.05F, 0.9F),
                     .iterations = 2,
                     .accumulation = 1 + (int)(i % 2),
                     .replicas = 3,
                     .threads = 1};

        for (int threads = 1; threads <= 7; threads += 3) {
            how other = alone;

            other.threads = threads;
            expect_same(&alone, &other);
            other.observed = SONDE_HOW_RAW | SONDE_HOW_VITALS;
            expect_same(&alone, &other);
            other.observed = SONDE_HOW_VITALS;
            other.every = 3;
            expect_same(&alone, &other);
        }
    }
}

/* --- observed ----------------------------------------------------------------------- */

static void observe(const how *h, job *j)
{
    open_job(j, h);
    for (int i = 0; i < CALLS; i++) {
        engine_train(&j->net, j->session, (uint64_t)i);
    }
}

/* The same values in the same order, however many threads there are. */
static void replicas_are_observed_in_one_order(void **state)
{
    how h = {.build = norm,
             .optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F),
             .iterations = 2,
             .accumulation = 2,
             .replicas = 3,
             .threads = 1,
             .observed = SONDE_HOW_RAW | SONDE_HOW_VITALS};
    job one, many;

    (void)state;
    observe(&h, &one);
    h.threads = 4;
    observe(&h, &many);
    assert_int_equal(one.sink.count, many.sink.count);
    for (size_t i = 0; i < one.sink.count; i++) {
        const engine_seen *a = &one.sink.seen[i], *b = &many.sink.seen[i];

        assert_string_equal(a->name, b->name);
        assert_int_equal(a->at.mode_step, b->at.mode_step);
        assert_int_equal(a->at.micro_batch, b->at.micro_batch);
        assert_int_equal(a->at.replica, b->at.replica);
        assert_memory_equal(a->data, b->data,
                            (size_t)a->count * sonde_dtype_size(a->info.dtype));
        assert_memory_equal(&a->vitals, &b->vitals, sizeof a->vitals);
    }
    close_job(&one);
    close_job(&many);
}

static int count_seen(const engine_sink *sink, const char *name, int64_t step,
                      unsigned *replicas)
{
    int count = 0;

    *replicas = 0;
    for (size_t i = 0; i < sink->count; i++) {
        if (strcmp(sink->seen[i].name, name) == 0 && sink->seen[i].at.mode_step == step) {
            *replicas |= 1U << (unsigned)sink->seen[i].at.replica;
            count++;
        }
    }
    return count;
}

static void what_replicas_share_is_observed_once(void **state)
{
    static const struct {
        const char *name;
        int count;
        unsigned replicas;
    } want[] = {{"fc1.weight", 2, 1},         {"UpdatedVar___fc1.weight", 1, 1},
                {"Accl1___fc1.weight", 1, 1}, {"FinalReducedGradient___fc1.weight", 1, 1},
                {"Accum___fc1.weight", 6, 7}, {"Gradient___fc1.weight", 6, 7},
                {"bn.running_mean", 6, 7},    {"input", 6, 7},
                {"fc1_output_0", 6, 7}};
    const how h = {.build = norm,
                   .optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F),
                   .iterations = 1,
                   .accumulation = 2,
                   .replicas = 3,
                   .observed = SONDE_HOW_RAW};
    unsigned replicas = 0;
    job j;

    (void)state;
    observe(&h, &j);
    for (size_t i = 0; i < SONDE_COUNT_OF(want); i++) {
        const int count = count_seen(&j.sink, want[i].name, 2, &replicas);

        if (count != want[i].count || replicas != want[i].replicas) {
            fail_msg("%s: %d values, replicas %x", want[i].name, count, replicas);
        }
    }
    close_job(&j);
}

/* Replicas begin a step with the running statistics of the first, which are the model's;
 * a value of them is the first's of the step before, moved by the replica's own batch. */
static void running_statistics_are_those_of_the_first(void **state)
{
    const how h = {.build = norm,
                   .optimizer = sonde_nn_optimizer_sgd(0.0F, 0.0F),
                   .iterations = 1,
                   .accumulation = 1,
                   .replicas = 2,
                   .observed = SONDE_HOW_RAW};
    const how first = {.build = norm,
                       .optimizer = sonde_nn_optimizer_sgd(0.0F, 0.0F),
                       .iterations = 1,
                       .accumulation = 1,
                       .replicas = 1,
                       .observed = SONDE_HOW_RAW};
    engine_batch batch;
    job two, one;
    bool differ = false;

    (void)state;
    open_job(&two, &h);
    open_job(&one, &first);
    for (int i = 0; i < CALLS; i++) {
        engine_train(&two.net, two.session, (uint64_t)i);
        engine_batch_init(&batch, &one.net, 12, (uint64_t)i);
        batch.views[0].shape[0] = batch.views[1].shape[0] = 6; /* of the first replica */
        must(sonde_nn_session_run(one.session, batch.views, 2, &engine_diag));
        engine_batch_fini(&batch);
    }
    for (int i = 0; i < CALLS; i++) {
        const engine_seen *want = engine_find(&one.sink, "bn.running_mean", i, 0);
        const engine_seen *have = engine_find(&two.sink, "bn.running_mean", i, 0);
        unsigned replicas = 0;

        assert_int_equal(have->at.replica, 0);
        assert_memory_equal(want->data, have->data, 16 * sizeof(float));
        assert_int_equal(count_seen(&two.sink, "bn.running_mean", i, &replicas), 2);
        for (size_t k = 0; k < two.sink.count; k++) {
            const engine_seen *seen = &two.sink.seen[k];

            differ = differ || (strcmp(seen->name, "bn.running_mean") == 0 &&
                                seen->at.mode_step == i && seen->at.replica == 1 &&
                                memcmp(seen->data, have->data, 16 * sizeof(float)) != 0);
        }
    }
    assert_true(differ);
    close_job(&two);
    close_job(&one);
}

/* --- outputs, anchors --------------------------------------------------------------- */

static void outputs_and_anchors_have_a_place_for_each_replica(void **state)
{
    sonde_nn_options options;
    sonde_nn_session *session = NULL;
    engine_batch batch;
    engine_net net;
    sonde_view wide, narrow, weight;
    float *want = NULL;

    (void)state;
    engine_mlp(&net, 4);
    engine_batch_init(&batch, &net, 4 * 2 * 3, 11);
    sonde_nn_options_init(&options);
    options.device_iterations = 6;
    must(sonde_nn_session_create(net.model, &options, NULL, &session, &engine_diag));
    must(sonde_nn_session_run(session, batch.views, 1, &engine_diag));
    must(sonde_nn_session_output(session, 0, &narrow, &engine_diag));
    want = malloc((size_t)sonde_view_count(&narrow) * sizeof *want);
    assert_non_null(want);
    memcpy(want, narrow.data, (size_t)sonde_view_count(&narrow) * sizeof *want);
    sonde_nn_session_destroy(session);
    options.device_iterations = 2;
    options.replicas = 3;
    must(sonde_nn_session_create(net.model, &options, NULL, &session, &engine_diag));
    must(sonde_nn_session_anchor(session, "last", "fc2_output_0", SONDE_ANCHOR_FINAL, 0,
                                 &engine_diag));
    must(sonde_nn_session_anchor(session, "bias", "fc2.bias", SONDE_ANCHOR_FINAL, 0,
                                 &engine_diag));
    must(sonde_nn_session_run(session, batch.views, 1, &engine_diag));
    must(sonde_nn_session_output(session, 0, &wide, &engine_diag));
    assert_int_equal(wide.shape[0], 2 * 3 * 4);
    assert_same_bits((const float *)wide.data, want, sonde_view_count(&wide));
    must(sonde_nn_session_anchored(session, "last", &wide, &engine_diag));
    assert_int_equal(wide.shape[0], 3 * 4);
    assert_same_bits((const float *)wide.data, want + 3 * 4 * 4, 3 * 4 * 4);
    must(sonde_nn_session_anchored(session, "bias", &weight, &engine_diag));
    assert_int_equal(weight.shape[0], 3 * 4);
    for (int r = 0; r < 3; r++) {
        assert_same_bits((const float *)weight.data + 4 * r,
                         engine_parameter(net.model, "fc2.bias", NULL), 4);
    }
    free(want);
    engine_batch_fini(&batch);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

/* --- looking again, checkpoints, refusals ------------------------------------------- */

/* A loss that is NaN in one replica: all look again, and see what they see when observed
 * at every step. */
static sonde_err attach_when_bad(void *user, const sonde_catalogue *catalogue,
                                 sonde_observer *observer, sonde_diag *diag)
{
    sonde_selector *all = NULL;
    sonde_tap tap = {.how = SONDE_HOW_VITALS, .where = user, .when_bad = true};
    sonde_err err = sonde_selector_create("*", &all, diag);

    (void)catalogue;
    if (err != SONDE_OK) {
        return err;
    }
    tap.what = all;
    tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(1000);
    err = sonde_observer_add(observer, &tap, NULL, diag);
    sonde_selector_destroy(all);
    return err;
}

static void a_bad_loss_of_one_replica_is_looked_into(void **state)
{
    for (int threads = 1; threads <= 2; threads++) {
        const how h = {.build = engine_cnn,
                       .optimizer = sonde_nn_optimizer_sgd(0.01F, 0.0F),
                       .iterations = 1,
                       .accumulation = 1,
                       .replicas = 2,
                       .threads = threads};
        engine_batch batch;
        unsigned replicas = 0;
        job j;

        (void)state;
        open_job(&j, &h);
        must(sonde_nn_session_set(j.session,
                                  SONDE_OPTIONS(sonde_nn_session,
                                                .attach = attach_when_bad,
                                                .user = &j.sink.sink),
                                  &engine_diag));
        engine_train(&j.net, j.session, 0);
        engine_sink_clear(&j.sink);
        engine_batch_init(&batch, &j.net, 12, 1);
        batch.samples[12 * 12 * 7] = NAN; /* of replica 1 */
        must(sonde_nn_session_run(j.session, batch.views, 2, &engine_diag));
        engine_batch_fini(&batch);
        assert_int_equal(count_seen(&j.sink, "conv1_output_0", 1, &replicas), 2);
        assert_int_equal(replicas, 3);
        for (size_t i = 0; i < j.sink.count; i++) {
            const engine_seen *seen = &j.sink.seen[i];

            if (strcmp(seen->name, "conv1_output_0") == 0) {
                assert_int_equal(seen->vitals.nan > 0, seen->at.replica == 1);
            }
        }
        close_job(&j);
    }
}

static void a_resumed_run_equals_an_uninterrupted_one(void **state)
{
    static const char path[] = "test_replicas.safetensors";

    (void)state;
    for (size_t i = 3; i < SONDE_COUNT_OF(networks); i++) {
        const how h = {.build = networks[i],
                       .optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F),
                       .iterations = 2,
                       .accumulation = 2,
                       .replicas = 2,
                       .observed = SONDE_HOW_RAW};
        sonde_nn_checkpoint_info info;
        job whole, broken;

        open_job(&whole, &h);
        open_job(&broken, &h);
        for (int k = 0; k < 4; k++) {
            if (k == 2) {
                must(sonde_nn_session_save(broken.session, path, &engine_diag));
                close_job(&broken);
                open_job(&broken, &h);
                must(sonde_nn_session_load(broken.session, path, &engine_diag));
                engine_sink_clear(&whole.sink);
            }
            engine_train(&whole.net, whole.session, (uint64_t)k);
            engine_train(&broken.net, broken.session, (uint64_t)k);
        }
        must(sonde_nn_checkpoint_describe(path, &info, &engine_diag));
        assert_int_equal(info.replicas, 2);
        (void)unlink(path);
        assert_int_equal(whole.sink.count, broken.sink.count);
        for (size_t k = 0; k < broken.sink.count; k++) {
            const engine_seen *a = &whole.sink.seen[k], *b = &broken.sink.seen[k];

            assert_string_equal(a->name, b->name);
            assert_memory_equal(a->data, b->data,
                                (size_t)a->count * sonde_dtype_size(a->info.dtype));
        }
        close_job(&whole);
        close_job(&broken);
    }
}

static void what_cannot_be_is_refused(void **state)
{
    const struct {
        int replicas, accumulation;
        const char *want;
    } bad[] = {
        {0, 1, "replicas: 0 (expected 1 to 1024)"},
        {1025, 1, "replicas: 1025 (expected 1 to 1024)"},
        {1024, 1 << 22,
         "device_iterations: 4294967296 (expected at most 2147483647 micro-batches a "
         "call)"}};
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    engine_batch batch;
    engine_net net;

    (void)state;
    engine_mlp(&net, 4);
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        sonde_nn_options_init(&options);
        options.replicas = bad[i].replicas;
        options.gradient_accumulation = bad[i].accumulation;
        must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                     &engine_diag));
        expect_err(SONDE_EINVAL, sonde_nn_session_compile(session, &engine_diag));
        expect_line(bad[i].want);
        sonde_nn_session_destroy(session);
    }
    sonde_nn_options_init(&options);
    options.replicas = 3;
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    engine_batch_init(&batch, &net, 4 * 3 - 1, 1); /* does not divide */
    expect_err(SONDE_ESHAPE, sonde_nn_session_run(session, batch.views, 2, &engine_diag));
    expect_line("input: shape mismatch: got (11, 24) (expected (12, 24): batch_size 4 of "
                "device_iterations 1, gradient_accumulation 1, replicas 3)");
    engine_batch_fini(&batch);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_over_replicas_has_one_order),
        cmocka_unit_test(replicas_equal_accumulation),
        cmocka_unit_test(accumulating_replicas_differ_by_rounding),
        cmocka_unit_test(threads_and_looking_change_no_bit),
        cmocka_unit_test(replicas_are_observed_in_one_order),
        cmocka_unit_test(what_replicas_share_is_observed_once),
        cmocka_unit_test(running_statistics_are_those_of_the_first),
        cmocka_unit_test(outputs_and_anchors_have_a_place_for_each_replica),
        cmocka_unit_test(a_bad_loss_of_one_replica_is_looked_into),
        cmocka_unit_test(a_resumed_run_equals_an_uninterrupted_one),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
