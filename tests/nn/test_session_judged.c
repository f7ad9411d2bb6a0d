/*
 * test_session_judged.c - rules inside a session: what is trained stays the same to the
 * bit; a step gone wrong is named exactly however seldom rules look; nothing is allocated
 * but for a finding; evaluation counts. And what a session does when it is asked to stop
 * or for a checkpoint.
 */
#include "alloc_failure.h"
#include "base/macros.h"
#include "engine.h"

#include <sonde/rules.h>

#include <math.h>
#include <unistd.h>

typedef struct judged {
    engine_net net;
    sonde_nn_session *session;
    sonde_rules *rules;
    int64_t every, raw_every;
} judged;

static sonde_err attach(void *user, const sonde_catalogue *catalogue,
                        sonde_observer *observer, sonde_diag *diag)
{
    const judged *judge = user;

    return sonde_rules_attach(judge->rules, catalogue, observer, judge->every,
                              judge->raw_every, diag);
}

/* rules NULL: nobody judges. D steps a call, G micro-batches. */
static void judged_open(judged *judge, engine_builder build, const char *rules, int D,
                        int G, int threads)
{
    sonde_nn_options options;

    build(&judge->net, 4);
    sonde_nn_options_init(&options);
    options.device_iterations = D;
    options.gradient_accumulation = G;
    options.threads = threads;
    must(sonde_nn_session_create(judge->net.model, &options, &engine_sgd, &judge->session,
                                 &engine_diag));
    if (rules != NULL) {
        must(sonde_rules_create(&judge->rules, &engine_diag));
        must(sonde_rules_add_list(judge->rules, rules, &engine_diag));
        must(sonde_nn_session_set(
            judge->session,
            SONDE_OPTIONS(sonde_nn_session, .attach = attach, .user = judge),
            &engine_diag));
    }
    must(sonde_nn_session_compile(judge->session, &engine_diag));
}

static void judged_close(judged *judge)
{
    sonde_nn_session_destroy(judge->session);
    sonde_rules_destroy(judge->rules);
    engine_net_fini(&judge->net);
}

static void expect_same_weights(const judged *a, const judged *b)
{
    float *want = engine_weights(a->net.model), *have = engine_weights(b->net.model);

    assert_same_bits(have, want, engine_weight_count(a->net.model));
    free(want);
    free(have);
}

static void judging_changes_no_bit(void **state)
{
    static const int loops[][3] = {{1, 1, 1}, {1, 1, 2}, {2, 3, 2}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(loops); i++) {
        for (int64_t every = 1; every <= 3; every += 2) {
            judged bare = {0}, judge = {.every = every, .raw_every = every};

            judged_open(&bare, engine_cnn, NULL, loops[i][0], loops[i][1], loops[i][2]);
            judged_open(&judge, engine_cnn, "default", loops[i][0], loops[i][1],
                        loops[i][2]);
            for (uint64_t step = 0; step < 8; step++) {
                engine_train(&bare.net, bare.session, step);
                engine_train(&judge.net, judge.session, step);
            }
            assert_true(sonde_rules_steps(judge.rules) == 8 * (uint64_t)loops[i][0]);
            expect_same_weights(&bare, &judge);
            judged_close(&bare);
            judged_close(&judge);
        }
    }
}

/* An element of a parameter turns NaN. */
static void spoil(const judged *judge, const char *name)
{
    float *values = engine_parameter(judge->net.model, name, NULL);

    assert_non_null(values);
    if (values != NULL) { /* which gcc does not believe otherwise */
        values[2] = NAN;
    }
}

/* What NonFinite named. */
static sonde_finding the_finding(const judged *judge)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(judge->rules, &count);

    assert_int_equal(count, 1);
    return all[0];
}

/* A weight in the middle turns NaN before a step at which nothing but the loss is due. */
static void a_bad_step_is_looked_at_whole(void **state)
{
    static const int loops[][3] = {{1, 1, 1}, {1, 1, 2}, {1, 2, 2}, {1, 3, 1}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(loops); i++) {
        judged bare = {0}, judge = {.every = 1000, .raw_every = 1000};
        sonde_finding finding;

        judged_open(&bare, engine_cnn, NULL, loops[i][0], loops[i][1], loops[i][2]);
        judged_open(&judge, engine_cnn, "NonFinite", loops[i][0], loops[i][1],
                    loops[i][2]);
        for (uint64_t step = 0; step < 10; step++) {
            if (step == 7) {
                spoil(&bare, "conv2.weight");
                spoil(&judge, "conv2.weight");
            }
            engine_train(&bare.net, bare.session, step);
            engine_train(&judge.net, judge.session, step);
        }
        finding = the_finding(&judge);
        assert_string_equal(finding.tensor, "conv2_output_0");
        assert_int_equal(finding.step, 7);
        expect_same_weights(&bare, &judge);
        judged_close(&bare);
        judged_close(&judge);
    }
}

/* The loss, which was seen before the step was looked at again, is not counted twice. */
static void what_was_seen_is_not_seen_twice(void **state)
{
    judged judge = {.every = 1000, .raw_every = 1000};
    size_t count = 0;
    const sonde_finding *all = NULL;
    bool loss = false;

    (void)state;
    judged_open(&judge, engine_mlp, "ExplodingTensor", 1, 1, 1);
    engine_train(&judge.net, judge.session, 1);
    spoil(&judge, "fc2.bias");
    engine_train(&judge.net, judge.session, 2);
    all = sonde_rules_findings(judge.rules, &count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(all[i].step, 1);
        if (strcmp(all[i].tensor, "loss_output_0") == 0) {
            loss = true;
            assert_non_null(strstr(all[i].message, "1 of 1 values"));
        } else if (strcmp(all[i].tensor, "fc2_output_0") == 0) {
            assert_non_null(strstr(all[i].message, " of 16 values")); /* (4, 4) */
        }
    }
    assert_true(loss);
    assert_true(count > 4); /* the backward pass of that step is looked at as well */
    judged_close(&judge);
}

static void a_step_allocates_nothing(void **state)
{
    judged judge = {.every = 2, .raw_every = 4};
    engine_batch batch;
    size_t before = 0;

    (void)state;
    alloc_failure_begin(SIZE_MAX);
    judged_open(&judge, engine_cnn, "default", 1, 1, 1);
    engine_batch_init(&batch, &judge.net, 4, 1);
    for (int i = 0; i < 20; i++) {
        must(sonde_nn_session_run(judge.session, batch.views, 2, &engine_diag));
    }
    before = alloc_failure_count;
    for (int i = 0; i < 40; i++) {
        must(sonde_nn_session_run(judge.session, batch.views, 2, &engine_diag));
    }
    /* DuplicateBatch has spoken before: the batch is always the same */
    assert_int_equal(alloc_failure_count, before);
    engine_batch_fini(&batch);
    judged_close(&judge);
    assert_int_equal(alloc_failure_end(), 0);
}

/* Evaluation is another session: its steps go on where those of training ended. */
static void evaluation_is_judged_as_well(void **state)
{
    judged judge = {.every = 1, .raw_every = 1};
    sonde_nn_session *eval = NULL;
    engine_batch batch;
    sonde_finding finding;

    (void)state;
    judged_open(&judge, engine_mlp, "NonFinite", 1, 1, 1);
    for (uint64_t i = 0; i < 5; i++) {
        engine_train(&judge.net, judge.session, i);
    }
    must(sonde_nn_session_create(judge.net.model, NULL, NULL, &eval, &engine_diag));
    must(sonde_nn_session_set(
        eval, SONDE_OPTIONS(sonde_nn_session, .attach = attach, .user = &judge),
        &engine_diag));
    engine_batch_init(&batch, &judge.net, 4, 1);
    must(sonde_nn_session_run(eval, batch.views, 1, &engine_diag));
    batch.samples[3] = INFINITY;
    must(sonde_nn_session_run(eval, batch.views, 1, &engine_diag));
    finding = the_finding(&judge);
    assert_int_equal(finding.mode, SONDE_MODE_EVAL);
    assert_int_equal(finding.step, 6);
    assert_int_equal(finding.mode_step, 1);
    assert_string_equal(finding.tensor, "input");
    engine_batch_fini(&batch);
    sonde_nn_session_destroy(eval);
    judged_close(&judge);
}

/* A rule that writes down where it has been: at gradients in training, or at losses
 * elsewhere. */
static sonde_coordinate visited[32];
static size_t visits;

static int wants_gradients(sonde_rule_run *run, const sonde_tensor_info *info,
                           uint32_t id)
{
    (void)run;
    (void)id;
    return info->role == SONDE_ROLE_GRADIENT ? 0 : SONDE_RULE_IGNORE;
}

static int wants_losses(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->role == SONDE_ROLE_LOSS && info->same_as == id ? 0 : SONDE_RULE_IGNORE;
}

static void visit(sonde_rule_run *run)
{
    assert_true(visits < SONDE_COUNT_OF(visited));
    visited[visits++] = *sonde_rule_at(run);
}

/* Two steps of training, five of evaluation in two sessions that take turns, one of
 * training. */
static void run_sessions(int (*wants)(sonde_rule_run *, const sonde_tensor_info *,
                                      uint32_t),
                         unsigned modes)
{
    static const sonde_rule_need needs[] = {{.what = "them", .how = SONDE_HOW_VITALS}};
    const sonde_rule rule = {.abi = SONDE_RULE_ABI,
                             .name = "Visit",
                             .needs = needs,
                             .need_count = 1,
                             .modes = modes,
                             .wants = wants,
                             .step = visit};
    static const int order[] = {0, 1, 0, 0, 1};
    judged judge = {.every = 1, .raw_every = 1};
    sonde_nn_session *evals[2] = {NULL, NULL};
    engine_batch batch;

    visits = 0;
    engine_mlp(&judge.net, 4);
    sonde_nn_output(judge.net.model, sonde_nn_model_get_info(judge.net.model).loss);
    must(sonde_nn_session_create(judge.net.model, NULL, &engine_sgd, &judge.session,
                                 &engine_diag));
    must(sonde_rules_create(&judge.rules, &engine_diag));
    must(sonde_rules_add_rule(judge.rules, &rule, NULL, &engine_diag));
    must(sonde_nn_session_set(
        judge.session, SONDE_OPTIONS(sonde_nn_session, .attach = attach, .user = &judge),
        &engine_diag));
    must(sonde_nn_session_compile(judge.session, &engine_diag));
    for (int i = 0; i < 2; i++) {
        must(sonde_nn_session_create(judge.net.model, NULL, NULL, &evals[i],
                                     &engine_diag));
        must(sonde_nn_session_set(
            evals[i], SONDE_OPTIONS(sonde_nn_session, .attach = attach, .user = &judge),
            &engine_diag));
        must(sonde_nn_session_compile(evals[i], &engine_diag));
    }
    engine_batch_init(&batch, &judge.net, 4, 1);
    for (uint64_t i = 0; i < 2; i++) {
        engine_train(&judge.net, judge.session, i);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(order); i++) {
        must(sonde_nn_session_run(evals[order[i]], batch.views, 2, &engine_diag));
    }
    engine_train(&judge.net, judge.session, 2);
    assert_int_equal(sonde_rules_steps(judge.rules), visits);
    engine_batch_fini(&batch);
    sonde_nn_session_destroy(evals[0]);
    sonde_nn_session_destroy(evals[1]);
    judged_close(&judge);
}

/* Steps are counted as a recorded run counts them, whether a rule looks at all of them or
 * not. */
static void steps_of_all_sessions_are_counted(void **state)
{
    static const int64_t train[][2] = {{0, 0}, {1, 1}, {7, 2}};

    (void)state;
    run_sessions(wants_gradients, 1U << SONDE_MODE_TRAIN);
    assert_int_equal(visits, 3);
    for (size_t i = 0; i < visits; i++) {
        assert_int_equal(visited[i].global_step, train[i][0]);
        assert_int_equal(visited[i].mode_step, train[i][1]);
    }
    run_sessions(wants_losses, 1U << SONDE_MODE_EVAL);
    assert_int_equal(visits, 5);
    for (size_t i = 0; i < visits; i++) {
        assert_int_equal(visited[i].global_step, 2 + (int64_t)i);
        assert_int_equal(visited[i].mode_step, (int64_t)i);
    }
}

/* --- control ------------------------------------------------------------------------ */

static sonde_control *control;

static void stop_on(void *user, const sonde_finding *finding, bool again)
{
    (void)user;
    if (!again) {
        sonde_control_ask(control, SONDE_REQUEST_STOP, SONDE_BY_RULE, finding->rule);
    }
}

static void a_finding_stops_before_the_next_step(void **state)
{
    judged judge = {.every = 1, .raw_every = 1};
    const sonde_request *stopped = NULL;
    engine_batch batch;

    (void)state;
    must(sonde_control_create(NULL, &control, &engine_diag));
    judged_open(&judge, engine_mlp, "NonFinite", 1, 1, 1);
    sonde_rules_on_finding(judge.rules, stop_on, NULL);
    must(sonde_nn_session_attach_control(judge.session, control, NULL, &engine_diag));
    engine_train(&judge.net, judge.session, 1);
    must(sonde_nn_session_heed(judge.session, &engine_diag));
    assert_null(sonde_nn_session_stopped(judge.session));
    engine_batch_init(&batch, &judge.net, 4, 1);
    batch.samples[0] = NAN;
    must(sonde_nn_session_run(judge.session, batch.views, 2, &engine_diag));
    assert_int_equal(sonde_nn_session_step(judge.session), 2);
    for (int i = 0; i < 2; i++) { /* and it stays so */
        expect_err(SONDE_EINTERRUPTED,
                   sonde_nn_session_run(judge.session, batch.views, 2, &engine_diag));
        expect_line("control: NonFinite");
    }
    assert_int_equal(sonde_nn_session_step(judge.session), 2);
    stopped = sonde_nn_session_stopped(judge.session);
    assert_non_null(stopped);
    assert_int_equal(stopped->by, SONDE_BY_RULE);
    must(sonde_nn_session_attach_control(judge.session, NULL, NULL, &engine_diag));
    must(sonde_nn_session_run(judge.session, batch.views, 2, &engine_diag));
    engine_batch_fini(&batch);
    judged_close(&judge);
    sonde_control_destroy(control);
}

static void a_checkpoint_is_saved_between_steps(void **state)
{
    char folder[] = "/tmp/sonde_judged_XXXXXX", inside[64], path[128];
    judged judge = {0}, again = {0};

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(inside, sizeof inside, "%s/checkpoints", folder);
    must(sonde_control_create(NULL, &control, &engine_diag));
    judged_open(&judge, engine_mlp, NULL, 1, 1, 1);
    must(sonde_nn_session_attach_control(judge.session, control, inside, &engine_diag));
    engine_train(&judge.net, judge.session, 1);
    engine_train(&judge.net, judge.session, 2);
    sonde_control_ask(control, SONDE_REQUEST_CHECKPOINT, SONDE_BY_USER, "now");
    must(sonde_nn_session_heed(judge.session, &engine_diag));
    (void)snprintf(path, sizeof path, "%s/step-0000000002.safetensors", inside);
    judged_open(&again, engine_mlp, NULL, 1, 1, 1);
    must(sonde_nn_session_load(again.session, path, &engine_diag));
    expect_same_weights(&judge, &again);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(inside), 0);

    /* a folder that cannot be made stops nothing */
    assert_int_equal(rmdir(folder), 0);
    sonde_control_ask(control, SONDE_REQUEST_CHECKPOINT, SONDE_BY_USER, "now");
    engine_train(&judge.net, judge.session, 3);
    assert_int_equal(sonde_nn_session_step(judge.session), 3);
    judged_close(&judge);
    judged_close(&again);
    sonde_control_destroy(control);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judging_changes_no_bit),
        cmocka_unit_test(a_bad_step_is_looked_at_whole),
        cmocka_unit_test(what_was_seen_is_not_seen_twice),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(evaluation_is_judged_as_well),
        cmocka_unit_test(steps_of_all_sessions_are_counted),
        cmocka_unit_test(a_finding_stops_before_the_next_step),
        cmocka_unit_test(a_checkpoint_is_saved_between_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
