/*
 * Gradients that are not finite: told at the exact step by the updates that use them up,
 * however seldom vital signs are due; recorded, and named by the rule NonFinite, in the
 * process and from the run.
 */
#include "capture/journal.h"
#include "base/macros.h"

#include "nn/engine.h"

#include <sonde/rules.h>

#include <ftw.h>
#include <math.h>
#include <unistd.h>

enum { BAD_STEP = 13, STEPS = BAD_STEP + 1 };

static void set_all(const engine_net *net, const char *name, float first, float rest)
{
    size_t count = 0;
    float *data = engine_parameter(net->model, name, &count);

    assert_non_null(data);
    for (size_t i = 0; i < count; i++) {
        data[i] = i < 32 ? first : rest; /* fc2: 32 weights a class */
    }
}

/* An MLP whose forward pass stays finite for samples as large as float32 has them, while
 * the gradient of fc1.weight, and it alone, overflows. */
static void overflowing_mlp(engine_net *net)
{
    engine_mlp(net, 8);
    set_all(net, "fc1.weight", 0.0F, 0.0F);
    set_all(net, "fc1.bias", 1.0F, 1.0F);
    set_all(net, "fc2.weight", 1000.0F, 0.0F);
}

static sonde_nn_session *session_of(const engine_net *net,
                                    const sonde_nn_options *options,
                                    const sonde_nn_optimizer *optimizer)
{
    sonde_nn_session *session = NULL;

    must(sonde_nn_session_create(net->model, options, optimizer, &session, &engine_diag));
    return session;
}

/* One call; value in place of the samples' numbers, unless it is 0. */
static void step_with(const engine_net *net, sonde_nn_session *session, uint64_t seed,
                      float value)
{
    sonde_nn_session_info info;
    engine_batch batch;

    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    engine_batch_init(&batch, net, info.combined_batch, seed);
    for (int64_t i = 0; value != 0.0F && i < sonde_view_count(&batch.views[0]); i++) {
        batch.samples[i] = value;
    }
    must(sonde_nn_session_run(session, batch.views, 2, &engine_diag));
    engine_batch_fini(&batch);
}

static void train(const engine_net *net, sonde_nn_session *session, float value)
{
    for (int i = 0; i < STEPS; i++) {
        step_with(net, session, (uint64_t)i, i == BAD_STEP ? value : 0.0F);
    }
}

/* So tiny that weights times 1e38 are still nothing. */
static sonde_nn_optimizer small_steps(void)
{
    return sonde_nn_optimizer_sgd(1e-44F, 0.9F);
}

static void the_exact_step_is_recorded(void **state)
{
    const sonde_nn_optimizer sgd = small_steps();
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .vitals_every = 10));
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    save(hook, NULL, -1, every(500));
    overflowing_mlp(&net);
    session = session_of(&net, NULL, &sgd);
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .hook = hook),
                              &engine_diag));
    train(&net, session, 1e38F);
    assert_steps("Gradient___fc1.weight", 'v', SONDE_MODE_TRAIN, "0 10 13 ");
    assert_steps("Gradient___fc2.weight", 'v', SONDE_MODE_TRAIN, "0 10 ");
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "0 10 ");
    assert_int_equal(journal_count('e'), STEPS);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    finish(hook);
}

/* At a step at which vital signs are due anyway, and with an interval of 1: once. */
static void nothing_is_recorded_twice(void **state)
{
    const sonde_nn_optimizer sgd = small_steps();
    const struct {
        int64_t interval;
        const char *steps;
    } cases[] = {
        {13, "0 13 "}, {1, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 "}, {5, "0 5 10 13 "}};

    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        const sonde_hook_options options = {.size = sizeof options,
                                            .vitals_every = cases[i].interval};
        sonde_hook *hook = NULL;
        engine_net net;
        sonde_nn_session *session = NULL;

        (void)journal_reset(state);
        hook = hook_of(&options);
        overflowing_mlp(&net);
        session = session_of(&net, NULL, &sgd);
        must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .hook = hook),
                                  &engine_diag));
        train(&net, session, 1e38F);
        assert_steps("Gradient___fc1.weight", 'v', SONDE_MODE_TRAIN, cases[i].steps);
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
        finish(hook);
    }
}

/* Every kernel of updates: convolutions and norms, SGD and Adam, one thread and two,
 * micro- batches, of which the sum is told. */
static void every_gradient_is_told(void **state)
{
    const sonde_nn_optimizer optimizers[] = {
        sonde_nn_optimizer_sgd(0.01F, 0.9F), sonde_nn_optimizer_sgd(0.01F, 0.0F),
        sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.001F)};
    static const char *const params[] = {"conv1.weight", "conv2.bias", "norm.weight",
                                         "fc1.weight", "fc2.bias"};

    for (size_t i = 0; i < 3 * 4; i++) {
        sonde_nn_options options;
        sonde_hook *hook = NULL;
        engine_net net;
        sonde_nn_session *session = NULL;
        char name[64];

        (void)journal_reset(state);
        sonde_nn_options_init(&options);
        options.threads = i / 3 % 2 == 0 ? 1 : 2;
        options.gradient_accumulation = i / 6 == 0 ? 1 : 3;
        hook = hook_of(SONDE_OPTIONS(sonde_hook, .vitals_every = 10));
        engine_cnn(&net, 8);
        session = session_of(&net, &options, &optimizers[i % 3]);
        must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .hook = hook),
                                  &engine_diag));
        train(&net, session, NAN);
        for (size_t p = 0; p < SONDE_COUNT_OF(params); p++) {
            (void)snprintf(name, sizeof name, "%s___%s",
                           options.gradient_accumulation > 1 ? "Accum" : "Gradient",
                           params[p]);
            if (options.gradient_accumulation >
                1) { /* the loss is bad: all is looked at */
                assert_steps(name, 'v', SONDE_MODE_TRAIN, "0 0 0 10 10 10 13 13 13 ");
            } else {
                assert_steps(name, 'v', SONDE_MODE_TRAIN, "0 10 13 ");
            }
        }
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
        finish(hook);
    }
}

static float *weights_after(bool hooked, int threads, bool cnn)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    const sonde_hook_options rare = {
        .size = sizeof rare, .vitals_every = 1000, .dry_run = true};
    sonde_nn_options options;
    sonde_hook *hook = NULL;
    engine_net net;
    sonde_nn_session *session = NULL;
    float *weights = NULL;

    sonde_nn_options_init(&options);
    options.threads = threads;
    if (cnn) {
        engine_cnn(&net, 8);
    } else {
        engine_mlp(&net, 8);
    }
    session = session_of(&net, &options, &sgd);
    if (hooked) {
        hook = hook_of(&rare);
        must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .hook = hook),
                                  &engine_diag));
    }
    train(&net, session, 0.0F);
    weights = engine_weights(net.model);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    if (hooked) {
        finish(hook);
    }
    return weights;
}

static void weights_do_not_notice(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        engine_net net;
        size_t count = 0;
        float *with = weights_after(true, 1 + i % 2, i < 2);
        float *without = weights_after(false, 1 + i % 2, i < 2);

        if (i < 2) {
            engine_cnn(&net, 8);
        } else {
            engine_mlp(&net, 8);
        }
        count = engine_weight_count(net.model);
        engine_net_fini(&net);
        assert_memory_equal(with, without, count * sizeof *with);
        free(with), free(without);
    }
}

/* --- the rule --------------------------------------------------------------------- */

static sonde_err attach_rules(void *user, const sonde_catalogue *catalogue,
                              sonde_observer *observer, sonde_diag *diag)
{
    return sonde_rules_attach(user, catalogue, observer, 10, 0, diag);
}

static sonde_rules *non_finite(void)
{
    sonde_rules *rules = NULL;

    must(sonde_rules_create(&rules, &engine_diag));
    must(sonde_rules_add(rules, "NonFinite", &engine_diag));
    return rules;
}

static void assert_found(sonde_rules *rules)
{
    size_t count = 0;
    const sonde_finding *findings = sonde_rules_findings(rules, &count);

    assert_int_equal(count, 1);
    assert_string_equal(findings[0].tensor, "Gradient___fc1.weight");
    assert_int_equal(findings[0].step, BAD_STEP);
}

static void the_rule_names_it_in_the_process(void **state)
{
    const sonde_nn_optimizer sgd = small_steps();
    sonde_rules *rules = non_finite();
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    overflowing_mlp(&net);
    session = session_of(&net, NULL, &sgd);
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .attach = attach_rules, .user = rules),
        &engine_diag));
    train(&net, session, 1e38F);
    sonde_rules_finish(rules);
    assert_found(rules);
    sonde_nn_session_destroy(session);
    sonde_rules_destroy(rules);
    engine_net_fini(&net);
}

static int remove_entry(const char *path, const struct stat *about, int type,
                        struct FTW *walk)
{
    (void)about, (void)type, (void)walk;
    return remove(path);
}

static void the_rule_names_it_in_the_run(void **state)
{
    const sonde_nn_optimizer sgd = small_steps();
    char folder[] = "/tmp/sonde-bad-XXXXXX", path[64];
    sonde_hook_options options = {.size = sizeof options,
                                  .record = SONDE_OPTIONS(sonde_recorder, .path = path)};
    sonde_rules *rules = non_finite();
    sonde_trial *trial = NULL;
    sonde_hook *hook = NULL;
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    must(sonde_hook_create(&options, &hook, &engine_diag));
    overflowing_mlp(&net);
    session = session_of(&net, NULL, &sgd);
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .hook = hook),
                              &engine_diag));
    train(&net, session, 1e38F);
    sonde_nn_session_destroy(session);
    must(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &engine_diag));
    must(sonde_trial_open(path, NULL, &trial, &engine_diag));
    must(sonde_rules_judge(rules, trial, NULL, &engine_diag));
    assert_found(rules);
    sonde_rules_destroy(rules);
    sonde_trial_close(trial);
    engine_net_fini(&net);
    assert_int_equal(nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_exact_step_is_recorded, journal_reset),
        cmocka_unit_test(nothing_is_recorded_twice),
        cmocka_unit_test(every_gradient_is_told),
        cmocka_unit_test_setup(weights_do_not_notice, journal_reset),
        cmocka_unit_test(the_rule_names_it_in_the_process),
        cmocka_unit_test(the_rule_names_it_in_the_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
