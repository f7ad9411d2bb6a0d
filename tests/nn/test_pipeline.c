/*
 * test_pipeline.c - stages of a network on threads of their own compute what one thread
 * computes, bit for bit, and are observed in the same order. tsan: yes
 */
#include "engine.h"

#include "base/macros.h"

#include <math.h>

/* Three blocks, a skip from the first to the last, a normalization with running statistics
 * and dropout in the middle, a tied layer. */
static void build(engine_net *net, int64_t batch, bool blocks)
{
    sonde_nn_value x = 0, target = 0, skip = 0;
    sonde_nn_model *m = NULL;

    *net = (engine_net){.rank = 1, .sample = {40}, .classes = 10, .batch = batch};
    x = engine_inputs(net, &target);
    m = net->model;
    if (blocks) {
        sonde_nn_begin_block(m, "first");
    }
    x = sonde_nn_linear(m, "fc1", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 32));
    skip = sonde_nn_relu(m, "relu1", x);
    if (blocks) {
        sonde_nn_begin_block(m, "second");
    }
    x = sonde_nn_linear(m, "tied", skip,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 32));
    x = sonde_nn_layer(m, "batch_norm", "bn", &x, 1, NULL, 0);
    x = sonde_nn_layer(m, "dropout", "drop", &x, 1, NULL, 0);
    if (blocks) {
        sonde_nn_begin_block(m, "third");
    }
    x = sonde_nn_linear(m, "tied", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 32));
    x = sonde_nn_add(m, "sum", x, skip);
    x = sonde_nn_linear(m, "fc2", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    engine_finish(net, x, sonde_nn_cross_entropy(m, "loss", x, target, NULL));
}

typedef struct how {
    bool blocks, when_bad;
    sonde_nn_execution execution;
    int accumulation, threads;
    int replicas; /* 0: 1 */
    unsigned observed;
} how;

typedef struct job {
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session;
} job;

/* A tap that looks only at steps with NaN. */
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

static void open_job(job *j, const how *h)
{
    const sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
    sonde_nn_options options;

    build(&j->net, 6, h->blocks);
    engine_sink_init(&j->sink, (h->observed & SONDE_HOW_RAW) != 0);
    sonde_nn_options_init(&options);
    options.execution = h->execution;
    options.device_iterations = 2;
    options.gradient_accumulation = h->accumulation;
    options.threads = h->threads;
    options.replicas = h->replicas > 0 ? h->replicas : 1;
    must(sonde_nn_session_create(j->net.model, &options, &adam, &j->session,
                                 &engine_diag));
    if (h->observed != 0) {
        engine_tap_all(j->session, h->observed, &j->sink);
    }
    if (h->when_bad) {
        must(sonde_nn_session_set(j->session,
                                  SONDE_OPTIONS(sonde_nn_session,
                                                .attach = attach_when_bad,
                                                .user = &j->sink.sink),
                                  &engine_diag));
    }
}

static void close_job(job *j)
{
    sonde_nn_session_destroy(j->session);
    engine_sink_fini(&j->sink);
    engine_net_fini(&j->net);
}

enum { CALLS = 8 };

static void train(const how *h, job *j)
{
    sonde_nn_session_info info;

    open_job(j, h);
    for (int i = 0; i < CALLS; i++) {
        engine_train(&j->net, j->session, (uint64_t)i);
    }
    must(sonde_nn_session_describe(j->session, &info, &engine_diag));
    if (h->blocks && h->replicas <= 1) {
        assert_int_equal(info.threads, h->threads >= 3 ? 3 : 1);
    } else if (h->blocks && h->threads >= 3 * h->replicas) {
        assert_int_equal(info.threads, 3 * h->replicas);
    }
}

/* Weights, running statistics and the loss. */
static void expect_same_results(const job *a, const job *b)
{
    const size_t count = engine_weight_count(a->net.model);
    float *weights_a = engine_weights(a->net.model);
    float *weights_b = engine_weights(b->net.model);
    double loss_a = 0.0, loss_b = 0.0;

    assert_same_bits(weights_a, weights_b, count);
    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(weights_a[i]));
    }
    must(sonde_nn_session_loss(a->session, &loss_a, &engine_diag));
    must(sonde_nn_session_loss(b->session, &loss_b, &engine_diag));
    assert_memory_equal(&loss_a, &loss_b, sizeof loss_a);
    for (size_t i = 0; i < sonde_nn_model_get_info(a->net.model).buffer_count; i++) {
        const sonde_view va = sonde_nn_buffer(a->net.model, i).view;
        const sonde_view vb = sonde_nn_buffer(b->net.model, i).view;

        assert_memory_equal(va.data, vb.data,
                            (size_t)sonde_view_count(&va) * sonde_dtype_size(va.dtype));
    }
    free(weights_a);
    free(weights_b);
}

static void stages_compute_what_one_thread_does(void **state)
{
    static const sonde_nn_execution executions[] = {SONDE_NN_PIPELINED, SONDE_NN_SHARDED};

    (void)state;
    for (int accumulation = 3; accumulation <= 7; accumulation += 2) {
        const how plain = {.accumulation = accumulation, .threads = 1};
        job want;

        train(&plain, &want);
        for (size_t e = 0; e < SONDE_COUNT_OF(executions); e++) {
            for (int threads = 1; threads <= 4; threads += 3) {
                how h = {.blocks = true,
                         .execution = executions[e],
                         .accumulation = accumulation,
                         .threads = threads};
                job have;

                train(&h, &have);
                expect_same_results(&want, &have);
                close_job(&have);
                h.observed = SONDE_HOW_RAW | SONDE_HOW_VITALS;
                train(&h, &have);
                expect_same_results(&want, &have);
                close_job(&have);
            }
        }
        close_job(&want);
    }
}

/* Each replica has a pipeline of its own, if there are threads for all stages. */
static void replicas_have_stages(void **state)
{
    static const sonde_nn_execution executions[] = {SONDE_NN_PIPELINED, SONDE_NN_SHARDED};
    static const int threads[] = {1, 2, 6};

    (void)state;
    for (size_t e = 0; e < SONDE_COUNT_OF(executions); e++) {
        const int accumulation = executions[e] == SONDE_NN_SHARDED ? 1 : 4;
        const how plain = {.accumulation = accumulation, .threads = 1, .replicas = 2};
        job want;

        train(&plain, &want);
        for (size_t t = 0; t < SONDE_COUNT_OF(threads); t++) {
            how h = {.blocks = true,
                     .execution = executions[e],
                     .accumulation = accumulation,
                     .threads = threads[t],
                     .replicas = 2};
            job have;

            train(&h, &have);
            expect_same_results(&want, &have);
            close_job(&have);
            h.observed = SONDE_HOW_RAW | SONDE_HOW_VITALS;
            train(&h, &have);
            expect_same_results(&want, &have);
            close_job(&have);
        }
        close_job(&want);
    }
}

static void expect_one_order(int replicas)
{
    how h = {.blocks = true,
             .accumulation = 4,
             .threads = 1,
             .replicas = replicas,
             .observed = SONDE_HOW_RAW | SONDE_HOW_VITALS};
    job one, many;
    bool stages[3] = {false, false, false};

    train(&h, &one);
    h.threads = 4 * replicas;
    train(&h, &many);
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
        stages[0] = stages[0] || strcmp(a->name, "Gradient___fc1.weight") == 0;
        stages[1] = stages[1] || strcmp(a->name, "bn_output_0") == 0;
        stages[2] = stages[2] || strcmp(a->name, "Gradient___fc2_output_0") == 0;
    }
    assert_true(stages[0] && stages[1] && stages[2]);
    close_job(&one);
    close_job(&many);
}

static void stages_are_observed_in_one_order(void **state)
{
    (void)state;
    expect_one_order(1);
    expect_one_order(2);
}

/* One thread observes the rest of the step too. */
static void a_bad_loss_in_a_pipeline_is_looked_into(void **state)
{
    for (int threads = 1; threads <= 4; threads += 3) {
        const how h = {
            .blocks = true, .accumulation = 4, .threads = threads, .when_bad = true};
        engine_batch batch;
        int seen = 0;
        job j;

        (void)state;
        open_job(&j, &h);
        engine_train(&j.net, j.session, 0);
        engine_sink_clear(&j.sink);
        engine_batch_init(&batch, &j.net, 6 * 4 * 2, 1);
        batch.samples[40 * 6 * 2 + 3] = NAN; /* of micro-batch 2 */
        must(sonde_nn_session_run(j.session, batch.views, 2, &engine_diag));
        engine_batch_fini(&batch);
        for (size_t i = 0; i < j.sink.count; i++) {
            if (strcmp(j.sink.seen[i].name, "fc1_output_0") == 0 &&
                j.sink.seen[i].at.mode_step == 2) {
                assert_int_equal(j.sink.seen[i].at.micro_batch, 2 + seen);
                assert_int_equal(j.sink.seen[i].vitals.nan > 0, seen == 0);
                seen++;
            }
        }
        assert_in_range(seen, 1, threads == 1 ? 2 : 1);
        close_job(&j);
    }
}

/* Micro-batch 2 of the second replica; the first one's is looked at beside it. */
static void a_bad_loss_of_a_replica_in_a_pipeline_is_looked_into(void **state)
{
    const how h = {
        .blocks = true, .accumulation = 4, .threads = 6, .replicas = 2, .when_bad = true};
    engine_batch batch;
    bool seen[2] = {false, false};
    job j;

    (void)state;
    open_job(&j, &h);
    engine_train(&j.net, j.session, 0);
    engine_sink_clear(&j.sink);
    engine_batch_init(&batch, &j.net, 6 * 4 * 2 * 2, 1);
    batch.samples[40 * 6 * (2 * 2 + 1) + 3] = NAN;
    must(sonde_nn_session_run(j.session, batch.views, 2, &engine_diag));
    engine_batch_fini(&batch);
    for (size_t i = 0; i < j.sink.count; i++) {
        const engine_seen *s = &j.sink.seen[i];

        if (strcmp(s->name, "fc1_output_0") == 0 && s->at.mode_step == 2) {
            assert_int_equal(s->at.micro_batch, 2);
            assert_int_equal(s->vitals.nan > 0, s->at.replica == 1);
            assert_false(seen[s->at.replica]);
            seen[s->at.replica] = true;
        }
    }
    assert_true(seen[0] && seen[1]);
    close_job(&j);
}

/* --- refusals ----------------------------------------------------------------------- */

static void refused(sonde_nn_model *model, const sonde_nn_options *options, sonde_err err,
                    const char *want)
{
    sonde_nn_session *session = NULL;

    must(sonde_nn_session_create(model, options, &engine_sgd, &session, &engine_diag));
    expect_err(err, sonde_nn_session_compile(session, &engine_diag));
    expect_line(want);
    sonde_nn_session_destroy(session);
}

static void taken(sonde_nn_model *model, const sonde_nn_options *options)
{
    sonde_nn_session *session = NULL;

    must(sonde_nn_session_create(model, options, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    sonde_nn_session_destroy(session);
}

/* Two blocks, the second empty or asked for again. */
static void build_odd(engine_net *net, bool empty)
{
    sonde_nn_value x = 0, y = 0, target = 0;
    sonde_nn_model *m = NULL;

    *net = (engine_net){.rank = 1, .sample = {8}, .classes = 4, .batch = 2};
    x = engine_inputs(net, &target);
    m = net->model;
    sonde_nn_begin_block(m, "a");
    x = sonde_nn_linear(m, "fc1", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    sonde_nn_begin_block(m, "b");
    y = sonde_nn_relu(m, "relu", x);
    sonde_nn_begin_block(m, "a");
    x = sonde_nn_relu(m, "other", empty ? x : y);
    engine_finish(net, x, sonde_nn_cross_entropy(m, "loss", x, target, NULL));
}

static void what_cannot_be_a_pipeline_is_refused(void **state)
{
    sonde_nn_options options;
    engine_net net;

    (void)state;
    build(&net, 2, true);
    sonde_nn_options_init(&options);
    options.gradient_accumulation = 2;
    refused(net.model, &options, SONDE_EINVAL,
            "gradient_accumulation: 2 (expected at least 3, the stages of a pipeline)");
    options.execution = SONDE_NN_SHARDED;
    taken(net.model, &options);
    options.execution = SONDE_NN_SEQUENTIAL;
    options.replicas = 2;
    taken(net.model, &options);
    options.execution = SONDE_NN_PIPELINED;
    refused(net.model, &options, SONDE_EINVAL,
            "gradient_accumulation: 2 (expected at least 3, the stages of a pipeline)");
    options.replicas = 1;
    options.execution = (sonde_nn_execution)9;
    refused(net.model, &options, SONDE_EINVAL,
            "execution: 9 (expected pipelined (0), sharded (1) or sequential (2))");
    engine_net_fini(&net);
    sonde_nn_options_init(&options);
    options.gradient_accumulation = 4;
    build_odd(&net, true);
    refused(net.model, &options, SONDE_EINVAL,
            "b: nothing reaches this block (expected layers that lead to the loss)");
    engine_net_fini(&net);
    build_odd(&net, false);
    refused(net.model, &options, SONDE_EINVAL,
            "a: it reads what block b makes later (expected blocks in the order of their "
            "layers)");
    options.execution = SONDE_NN_SEQUENTIAL;
    taken(net.model, &options);
    engine_net_fini(&net);
    must(sonde_nn_model_create(&net.model, &engine_diag));
    sonde_nn_begin_block(net.model, "");
    expect_err(SONDE_EINVAL, sonde_nn_model_status(net.model, &engine_diag));
    expect_line("block: a block without name (expected a name)");
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_compute_what_one_thread_does),
        cmocka_unit_test(replicas_have_stages),
        cmocka_unit_test(stages_are_observed_in_one_order),
        cmocka_unit_test(a_bad_loss_in_a_pipeline_is_looked_into),
        cmocka_unit_test(a_bad_loss_of_a_replica_in_a_pipeline_is_looked_into),
        cmocka_unit_test(what_cannot_be_a_pipeline_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
