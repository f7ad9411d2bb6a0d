/*
 * test_outfeed_session.c - outfeed queues on a session: gradients before and after
 * accumulation, activations, and that looking changes nothing.
 */
#include "alloc_failure.h"
#include "base/fail.h"
#include "nn/engine.h"

#include <sonde/outfeed.h>

enum { D = 3, G = 4, BATCH = 8 };

typedef struct trial {
    engine_net net;
    sonde_nn_session *session;
    sonde_outfeed *micro, *applied, *activations;
} trial;

static sonde_outfeed *make_queue(sonde_outfeed_per per, const char *const *filters,
                                 size_t filter_count)
{
    const sonde_outfeed_options options = {.size = sizeof options,
                                           .rows = 2 * D * G,
                                           .when_full = SONDE_OUTFEED_ERROR,
                                           .per = per,
                                           .filters = filters,
                                           .filter_count = filter_count};
    sonde_outfeed *queue = NULL;

    must(sonde_outfeed_create(&options, &queue, &engine_diag));
    return queue;
}

static void open_trial(trial *t, int accumulation, bool observed,
                       const char *const *filters, size_t filter_count)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F);
    sonde_nn_options options;

    *t = (trial){0};
    sonde_nn_options_init(&options);
    options.gradient_accumulation = accumulation;
    options.device_iterations = D;
    engine_mlp(&t->net, BATCH);
    must(
        sonde_nn_session_create(t->net.model, &options, &sgd, &t->session, &engine_diag));
    if (!observed) {
        return;
    }
    t->micro = make_queue(SONDE_OUTFEED_MICRO_BATCH, filters, filter_count);
    t->applied = make_queue(SONDE_OUTFEED_STEP, filters, filter_count);
    t->activations = make_queue(SONDE_OUTFEED_MICRO_BATCH, NULL, 0);
    must(
        sonde_outfeed_add_gradients(t->micro, SONDE_OUTFEED_AFTER_COMPUTE, &engine_diag));
    must(sonde_outfeed_add_gradients(t->applied, SONDE_OUTFEED_BEFORE_APPLY,
                                     &engine_diag));
    must(sonde_outfeed_add(t->activations, "relu1_output", "acts", &engine_diag));
    must(sonde_nn_session_set(
        t->session, SONDE_OPTIONS(sonde_nn_session, .outfeed = t->micro), &engine_diag));
    must(sonde_nn_session_set(t->session,
                              SONDE_OPTIONS(sonde_nn_session, .outfeed = t->applied),
                              &engine_diag));
    must(sonde_nn_session_set(t->session,
                              SONDE_OPTIONS(sonde_nn_session, .outfeed = t->activations),
                              &engine_diag));
}

static void close_trial(trial *t)
{
    sonde_nn_session_destroy(t->session);
    sonde_outfeed_destroy(t->micro);
    sonde_outfeed_destroy(t->applied);
    sonde_outfeed_destroy(t->activations);
    engine_net_fini(&t->net);
}

static sonde_outfeed_batch take(sonde_outfeed *queue)
{
    sonde_outfeed_batch batch = {0};

    must(sonde_outfeed_dequeue(queue, &batch, &engine_diag));
    return batch;
}

static void expect_entry(const sonde_outfed *entry, const char *key, const char *want)
{
    char text[128];

    assert_string_equal(entry->key, key);
    assert_string_equal(
        sonde_shape_text(entry->value.rank, entry->value.shape, text, sizeof text), want);
}

/* What is applied is the sum, in order, of what the micro-batches gave: to the bit. */
static void expect_sums(const sonde_outfed *micro, const sonde_outfed *applied,
                        int accumulation)
{
    const float *parts = micro->value.data, *sums = applied->value.data;
    const int64_t rows = applied->value.shape[0];
    const int64_t count = sonde_view_count(&applied->value) / rows;

    assert_int_equal(micro->value.shape[0], rows * accumulation);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < count; i++) {
            float sum = 0.0F;

            for (int g = 0; g < accumulation; g++) {
                sum += parts[(row * accumulation + g) * count + i];
            }
            assert_same_bits(&sum, &sums[row * count + i], 1);
        }
    }
}

static void accumulated_gradients_are_the_sums(void **state)
{
    static const char *const keys[] = {"fc2.bias_grad", "fc2.weight_grad",
                                       "fc1.bias_grad", "fc1.weight_grad"};
    static const char *const micro_shapes[] = {"(24, 4)", "(24, 4, 32)", "(24, 32)",
                                               "(24, 32, 24)"};
    static const char *const applied_shapes[] = {"(6, 4)", "(6, 4, 32)", "(6, 32)",
                                                 "(6, 32, 24)"};
    sonde_outfeed_batch micro, applied, acts;
    trial t;

    (void)state;
    open_trial(&t, G, true, NULL, 0);
    engine_train(&t.net, t.session, 1);
    engine_train(&t.net, t.session, 2);
    micro = take(t.micro);
    applied = take(t.applied);
    acts = take(t.activations);
    assert_int_equal(micro.count, 4);
    assert_int_equal(applied.count, 4);
    for (size_t i = 0; i < 4; i++) {
        expect_entry(&micro.entries[i], keys[i], micro_shapes[i]);
        expect_entry(&applied.entries[i], keys[i], applied_shapes[i]);
        expect_sums(&micro.entries[i], &applied.entries[i], G);
    }
    assert_int_equal(acts.count, 1);
    expect_entry(&acts.entries[0], "acts", "(24, 8, 32)");
    close_trial(&t);
}

static void without_accumulation_both_are_equal(void **state)
{
    sonde_outfeed_batch micro, applied;
    trial t;

    (void)state;
    open_trial(&t, 1, true, NULL, 0);
    engine_train(&t.net, t.session, 1);
    micro = take(t.micro);
    applied = take(t.applied);
    expect_entry(&applied.entries[3], "fc1.weight_grad", "(3, 32, 24)");
    for (size_t i = 0; i < 4; i++) {
        expect_sums(&micro.entries[i], &applied.entries[i], 1);
    }
    close_trial(&t);
}

static void filters_choose_layers(void **state)
{
    static const char *const filters[] = {"fc1"};
    sonde_outfeed_batch micro;
    trial t;

    (void)state;
    open_trial(&t, G, true, filters, 1);
    engine_train(&t.net, t.session, 1);
    micro = take(t.micro);
    assert_int_equal(micro.count, 2);
    expect_entry(&micro.entries[0], "fc1.bias_grad", "(12, 32)");
    expect_entry(&micro.entries[1], "fc1.weight_grad", "(12, 32, 24)");
    close_trial(&t);
}

static void looking_changes_nothing_and_allocates_nothing(void **state)
{
    float *seen = NULL, *unseen = NULL;
    size_t count = 0;

    (void)state;
    for (int observed = 0; observed < 2; observed++) {
        engine_batch batch;
        trial t;

        open_trial(&t, G, observed == 1, NULL, 0);
        must(sonde_nn_session_compile(t.session, &engine_diag));
        engine_batch_init(&batch, &t.net, (int64_t)BATCH * D * G, 5);
        for (int i = 0; i < 2; i++) {
            sonde_err err = SONDE_OK;

            alloc_failure_begin(0);
            err = sonde_nn_session_run(t.session, batch.views, 2, NULL);
            (void)alloc_failure_end();
            assert_int_equal(err, SONDE_OK);
            assert_int_equal(alloc_failure_count, 0);
        }
        engine_batch_fini(&batch);
        count = engine_weight_count(t.net.model);
        *(observed == 1 ? &seen : &unseen) = engine_weights(t.net.model);
        if (observed == 1) {
            assert_int_equal(take(t.micro).rows, 2 * D * G);
        }
        close_trial(&t);
    }
    assert_same_bits(seen, unseen, count);
    free(seen);
    free(unseen);
}

/* A mistake is compile's error, and can be put right: the queue is attached anew. */
static void mistakes_are_found_by_compile(void **state)
{
    sonde_outfeed *queue = make_queue(SONDE_OUTFEED_STEP, NULL, 0), *good = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    engine_net net;

    (void)state;
    engine_mlp(&net, BATCH);
    must(sonde_nn_session_create(net.model, NULL, NULL, &session, &engine_diag));
    must(sonde_outfeed_add_gradients(queue, SONDE_OUTFEED_BEFORE_APPLY, &engine_diag));
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .outfeed = queue),
                              &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_nn_session_compile(session, &engine_diag));
    expect_line(
        "outfeed 'outfeed': no parameter has a gradient (expected parameters that are trained)");
    sonde_nn_session_destroy(session);
    sonde_outfeed_destroy(queue);

    must(sonde_nn_session_create(net.model, NULL, NULL, &session, &engine_diag));
    good = make_queue(SONDE_OUTFEED_STEP, NULL, 0);
    must(sonde_outfeed_add(good, "relu1_output", NULL, &engine_diag));
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .outfeed = good),
                              &engine_diag));
    sonde_nn_options_init(&options);
    options.output_mode = SONDE_ANCHOR_EVERYN;
    options.output_period = 7;
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .options = &options), &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_session_compile(session, &engine_diag));
    sonde_nn_options_init(&options);
    options.batch_size = 2;
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .options = &options), &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set(session,
                                    SONDE_OPTIONS(sonde_nn_session, .outfeed = good),
                                    &engine_diag));
    {
        engine_batch batch;

        engine_batch_init(&batch, &net, 2, 3);
        must(sonde_nn_session_run(session, batch.views, 1, &engine_diag));
        engine_batch_fini(&batch);
    }
    expect_entry(&take(good).entries[0], "relu1_output_0", "(1, 2, 32)");
    sonde_nn_session_destroy(session);
    sonde_outfeed_destroy(good);
    engine_net_fini(&net);
}

/* Whatever attaches itself is asked once, with what it needs. */
static sonde_err attach_tap(void *user, const sonde_catalogue *catalogue,
                            sonde_observer *observer, sonde_diag *diag)
{
    int *calls = user;

    ++*calls;
    assert_non_null(observer);
    assert_true(sonde_catalogue_count(catalogue) > 10);
    return *calls > 1 ? SONDE_OK
                      : sonde__fail(diag, SONDE_EBUSY, "attach", NULL, "not now");
}

static void anything_may_attach(void **state)
{
    sonde_nn_session *session = NULL;
    engine_net net;
    int calls = 0;

    (void)state;
    engine_mlp(&net, BATCH);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .attach = attach_tap, .user = &calls),
        &engine_diag));
    expect_err(SONDE_EBUSY, sonde_nn_session_compile(session, &engine_diag));
    expect_line("attach: not now");
    must(sonde_nn_session_compile(session, &engine_diag));
    assert_int_equal(calls, 2);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulated_gradients_are_the_sums),
        cmocka_unit_test(without_accumulation_both_are_equal),
        cmocka_unit_test(filters_choose_layers),
        cmocka_unit_test(looking_changes_nothing_and_allocates_nothing),
        cmocka_unit_test(mistakes_are_found_by_compile),
        cmocka_unit_test(anything_may_attach),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
