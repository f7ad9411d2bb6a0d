/*
 * A hook on sessions of Sonde's engine: what is recorded there, steps over several
 * sessions, when_nan where values cannot be looked at again, and that weights do not
 * notice.
 */
#include "capture/journal.h"

#include "nn/engine.h"

#include <math.h>

static sonde_nn_session *train_session(engine_net *net, const sonde_nn_options *options,
                                       sonde_hook *hook)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    sonde_nn_session *session = NULL;

    must(sonde_nn_session_create(net->model, options, &sgd, &session, &engine_diag));
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .hook = hook),
                              &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    return session;
}

static void train(const engine_net *net, sonde_nn_session *session, int calls)
{
    for (int i = 0; i < calls; i++) {
        engine_train(net, session, (uint64_t)i);
    }
}

static void infer(const engine_net *net, sonde_nn_session *session, int calls)
{
    engine_batch batch;

    engine_batch_init(&batch, net, net->batch, 3);
    for (int i = 0; i < calls; i++) {
        must(sonde_nn_session_run(session, batch.views, 1, &engine_diag));
    }
    engine_batch_fini(&batch);
}

/* What a kind of entry of a tensor was at a step; the test fails if it is not there
 * once. */
static const journal_entry *entry_of(const char *name, char kind, int64_t global_step)
{
    const journal_entry *found = NULL;

    for (size_t i = 0; i < journal.count; i++) {
        const journal_entry *entry = &journal.entries[i];

        if (entry->kind == kind && entry->at.global_step == global_step && kind != 'e' &&
            strcmp(sonde_catalogue_info(journal.catalogue, entry->id)->name, name) == 0) {
            assert_null(found);
            found = entry;
        }
    }
    assert_non_null(found);
    return found;
}

/* Puts a number in place of a parameter's first. Returns what was there. */
static float poke(const engine_net *net, const char *name, float value)
{
    float *data = engine_parameter(net->model, name, NULL), kept = 0.0F;

    if (data != NULL) {
        kept = data[0];
        data[0] = value;
    }
    return kept;
}

static void test_defaults(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .vitals_every = 10));
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    save(hook, NULL, -1, every(20));
    engine_mlp(&net, 8);
    session = train_session(&net, NULL, hook);
    assert_false(hook->open); /* nothing before the first step */
    train(&net, session, 41);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 20 40 ");
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "0 10 20 30 40 ");
    assert_steps("UpdatedVar___fc1.weight", 'v', SONDE_MODE_TRAIN, "0 10 20 30 40 ");
    assert_steps("UpdatedVar___fc1.weight", 'r', SONDE_MODE_TRAIN, "");
    assert_steps("Gradient___fc2.bias", 'r', SONDE_MODE_TRAIN, "0 20 40 ");
    assert_int_equal(journal_count('e'), 41);
    assert_int_equal(journal_count('v'), 41 + 5 * 12); /* 4 parameters, 3 of each */
    assert_steps("program/train", 'r', SONDE_MODE_TRAIN, "0 ");
    assert_int_equal(journal_count('r'), 3 * (4 + 4 + 1) + 1);
    assert_string_equal(journal.log, "");
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    finish(hook);
}

/* Raw once and every reduction, by whatever collection. */
static void test_union(void **state)
{
    const sonde_reduction_config sketch = {.histogram = true, .stats = 1U};
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .vitals_every = 10));
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    save(hook, NULL, -1, every(2));
    include(hook, "mine", "fc1.weight");
    save(hook, "mine", -1, every(3));
    assert_int_equal(sonde__observe_reduce(&hook->setup, "mine", &sketch, NULL),
                     SONDE_OK);
    include(hook, "again", "*.weight, relu1_output");
    save(hook, "again", -1, every(3));
    engine_mlp(&net, 8);
    session = train_session(&net, NULL, hook);
    train(&net, session, 7);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 2 3 4 6 ");
    assert_steps("fc1.weight", 's', SONDE_MODE_TRAIN, "0 3 6 ");
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "0 3 6 ");
    assert_steps("relu1_output_0", 'r', SONDE_MODE_TRAIN, "0 3 6 ");
    for (size_t i = 0; i < journal.count; i++) {
        if (journal.entries[i].kind == 'r' &&
            strcmp(sonde_catalogue_info(journal.catalogue, journal.entries[i].id)->name,
                   "fc1.weight") == 0) {
            assert_string_equal(collections_by_id(hook, journal.entries[i].id),
                                "weights,mine,again");
        }
    }
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    finish(hook);
}

/* Train, evaluate, train, evaluate in a session of its own, predict: one run. */
static void test_sessions(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    sonde_nn_session *training = NULL, *inference = NULL;
    sonde_nn_options options;
    engine_net net;
    uint64_t steps[3] = {0};

    (void)state;
    save(hook, NULL, -1, every(2));
    include(hook, "scores", "fc2_output");
    include(hook, "gone", "Gradient___fc1.weight"); /* unknown to the others */
    engine_mlp(&net, 4);
    sonde_nn_options_init(&options);
    options.device_iterations = 2;
    training = train_session(&net, &options, hook);
    train(&net, training, 2); /* steps 0 ... 3 */
    for (int i = 0; i < 3; i++) {
        must(sonde_nn_session_create(net.model, NULL, NULL, &inference, &engine_diag));
        must(sonde_nn_session_set(
            inference, SONDE_OPTIONS(sonde_nn_session, .hook = hook), &engine_diag));
        if (i == 2) {
            must(sonde_nn_session_set(
                inference, SONDE_OPTIONS(sonde_nn_session, .mode = SONDE_MODE_PREDICT),
                &engine_diag));
        }
        infer(&net, inference, 3); /* 4 5 6; 9 10 11; 12 13 14 */
        sonde_nn_session_destroy(inference);
        if (i == 0) {
            train(&net, training, 1); /* 7, 8 */
        }
    }
    assert_steps("fc2_output_0", 'r', SONDE_MODE_TRAIN, "0 2 4 ");
    assert_steps("fc2_output_0", 'r', SONDE_MODE_EVAL, "0 2 4 ");
    assert_steps("fc2_output_0", 'r', SONDE_MODE_PREDICT, "0 2 ");
    assert_steps("Gradient___fc1.weight", 'r', SONDE_MODE_EVAL, "");
    (void)entry_of("fc2_output_0", 'r', 10); /* eval's fifth */
    assert_int_equal(entry_of("fc2_output_0", 'r', 10)->at.mode_step, 4);
    for (size_t i = 0, step = 0; i < journal.count; i++) {
        if (journal.entries[i].kind == 'e') {
            assert_int_equal(journal.entries[i].at.global_step, step++);
            steps[journal.entries[i].at.mode]++;
        }
    }
    assert_int_equal(steps[0], 6);
    assert_int_equal(steps[1], 6);
    assert_int_equal(steps[2], 3);
    must(sonde_hook_scalar(hook, "accuracy", 0.5, &engine_diag));
    assert_int_equal(entry_of("scalar/accuracy", 'r', 14)->at.mode, SONDE_MODE_PREDICT);
    assert_int_equal(begin_step(hook, &engine_diag), SONDE_ESTATE);
    assert_string_equal(journal.log, "");
    sonde_nn_session_destroy(training);
    engine_net_fini(&net);
    finish(hook);
}

/* A training session that goes on from a checkpoint has its own step numbers. */
static void test_resumed(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    char path[] = "/tmp/sonde-hook-XXXXXX";
    const int file = mkstemp(path);
    sonde_nn_session *session = NULL;
    engine_net net;

    (void)state;
    assert_true(file >= 0);
    save(hook, NULL, -1, every(4));
    engine_mlp(&net, 4);
    session = train_session(&net, NULL, NULL);
    train(&net, session, 6);
    must(sonde_nn_session_save(session, path, &engine_diag));
    sonde_nn_session_destroy(session);
    session = train_session(&net, NULL, hook);
    must(sonde_nn_session_load(session, path, &engine_diag));
    train(&net, session, 3); /* 6 7 8 */
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "8 ");
    assert_int_equal(entry_of("fc1.weight", 'r', 2)->at.mode_step, 8);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    finish(hook);
    assert_int_equal(remove(path), 0);
}

/* Micro-batches: each is held, and let go, on its own. */
static void test_when_nan(void **state)
{
    const sonde_reduction_config means = {.stats = 1U << SONDE_STAT_MEAN};
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    sonde_save_config nan = every(5);
    sonde_nn_options options;
    sonde_nn_session *session = NULL;
    engine_net net;
    float kept = 0.0F;

    (void)state;
    nan.when_nan = "@gradients";
    include(hook, "seen", "relu1_output, fc1.weight");
    save(hook, "seen", -1, nan);
    include(hook, "reduced", "fc2_output");
    nan.when_nan = "loss_output";
    save(hook, "reduced", -1, nan);
    assert_int_equal(sonde__observe_reduce(&hook->setup, "reduced", &means, NULL),
                     SONDE_OK);
    engine_mlp(&net, 4);
    sonde_nn_options_init(&options);
    options.gradient_accumulation = 2;
    session = train_session(&net, &options, hook);
    train(&net, session, 3);
    assert_steps("relu1_output_0", 'r', SONDE_MODE_TRAIN, "0 0 ");
    kept = poke(&net, "fc2.weight", INFINITY); /* the loss is NaN, and so are gradients */
    train(&net, session, 1);
    assert_steps("relu1_output_0", 'r', SONDE_MODE_TRAIN, "0 0 3 3 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 0 3 3 ");
    assert_steps("fc2_output_0", 'r', SONDE_MODE_TRAIN, "");
    assert_steps("fc2_output_0", 'v', SONDE_MODE_TRAIN, "0 0 3 3 ");
    (void)poke(&net, "fc2.weight", kept);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    finish(hook);
}

/* A value that is let go is what it was when it was held, not what the arena has since.
 */
static void test_held_values(void **state)
{
    sonde_hook *hooks[2] = {NULL};
    double values[2];

    (void)state;
    for (int k = 0; k < 2; k++) {
        sonde_save_config config = every(k == 0 ? 1 : 1000);
        sonde_nn_session *session = NULL;
        engine_net net;

        assert_int_equal(journal_reset(NULL), 0);
        hooks[k] = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
        config.when_nan = k == 0 ? NULL : "@losses";
        include(hooks[k], "seen", "conv1_output, Gradient___conv1.weight");
        save(hooks[k], "seen", -1, config);
        engine_cnn(&net, 4);
        session = train_session(&net, NULL, hooks[k]);
        train(&net, session, 1);
        (void)poke(&net, "fc2.bias", NAN);
        train(&net, session, 1);
        values[k] = entry_of("conv1_output_0", 'r', 1)->value;
        (void)entry_of("Gradient___conv1.weight", 'r', 1);
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
        finish(hooks[k]);
    }
    assert_true(values[0] == values[1] && values[0] != 0.0);
}

/* Promise 1: the bits of the weights are those of a run that nobody watches. */
static void test_bits(void **state)
{
    float *weights[4] = {NULL};
    size_t count = 0;

    (void)state;
    for (int k = 0; k < 4; k++) {
        const sonde_hook_options options = {
            .size = sizeof options, .save_all = k > 1, .vitals_every = 1};
        sonde_hook *hook = k > 0 ? hook_of(&options) : NULL;
        sonde_save_config config = every(1);
        sonde_nn_session *session = NULL;
        engine_net net;

        config.when_nan = k == 3 ? "@all" : NULL;
        if (hook != NULL) {
            save(hook, NULL, -1, config);
        }
        engine_cnn(&net, 4);
        session = train_session(&net, NULL, hook);
        train(&net, session, 20);
        weights[k] = engine_weights(net.model);
        count = engine_weight_count(net.model);
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
        if (hook != NULL) {
            assert_true(journal_count('r') > 20 * (k > 1 ? 60U : 20U));
            finish(hook);
            assert_int_equal(journal_reset(NULL), 0);
        }
    }
    for (int k = 1; k < 4; k++) {
        assert_same_bits(weights[k], weights[0], count);
    }
    for (int k = 0; k < 4; k++) {
        free(weights[k]);
    }
}

static void test_refusals(void **state)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.0F);
    sonde_hook *hook = hook_of(NULL);
    sonde_nn_session *session = NULL;
    engine_batch batch;
    engine_net net;

    (void)state;
    include(hook, "mine", "fc1.wieght");
    engine_mlp(&net, 4);
    must(sonde_nn_session_create(net.model, NULL, &sgd, &session, &engine_diag));
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .hook = hook),
                              &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_nn_session_compile(session, &engine_diag));
    assert_non_null(strstr(engine_diag.expected, "fc1.weight"));
    sonde_nn_session_destroy(session);
    must(sonde_nn_session_create(net.model, NULL, &sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set(
                   session, SONDE_OPTIONS(sonde_nn_session, .hook = hook), &engine_diag));
    sonde_nn_session_destroy(session);
    must(close_loop(hook));

    hook = hook_of(SONDE_OPTIONS(
        sonde_hook, .record = SONDE_OPTIONS(sonde_recorder, .path = REFUSED)));
    session = train_session(&net, NULL, hook);
    engine_batch_init(&batch, &net, 4, 1);
    expect_err(SONDE_EEXIST, sonde_nn_session_run(session, batch.views, 2, &engine_diag));
    assert_int_equal(sonde_nn_session_step(session), 0);
    engine_batch_fini(&batch);
    sonde_nn_session_destroy(session);
    must(close_loop(hook));

    hook = hook_of(NULL);
    expect_err(SONDE_EINVAL,
               sonde_hook_attach(hook, NULL, SONDE_MODE_GLOBAL, NULL, &engine_diag));
    must(close_loop(hook));
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_defaults, journal_reset),
        cmocka_unit_test_setup(test_union, journal_reset),
        cmocka_unit_test_setup(test_sessions, journal_reset),
        cmocka_unit_test_setup(test_resumed, journal_reset),
        cmocka_unit_test_setup(test_when_nan, journal_reset),
        cmocka_unit_test_setup(test_held_values, journal_reset),
        cmocka_unit_test_setup(test_bits, journal_reset),
        cmocka_unit_test_setup(test_refusals, journal_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
