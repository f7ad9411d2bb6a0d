/*
 * test_trainer.c - a trainer does what a loop by hand does, to the bit: epochs,
 * evaluation, checkpoints, resuming; it judges, stops and is interrupted.
 */
#include "engine.h"

#include <sonde/nn/job.h>
#include <sonde/nn/dataset.h>
#include <sonde/nn/trainer.h>

#include <ftw.h>
#include <unistd.h>

static char folder[] = "/tmp/sonde-trainer-XXXXXX";
static char data[64], out[64];

static int make_data(void **state)
{
    const sonde_nn_synth_options options = {
        .size = sizeof options, .train = 96, .test = 40};

    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(data, sizeof data, "%s/data", folder);
    (void)snprintf(out, sizeof out, "%s", folder);
    return sonde_nn_synth(data, &options, NULL) == SONDE_OK ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *stat, int kind,
                      struct FTW *where)
{
    (void)stat;
    (void)kind;
    (void)where;
    return remove(path);
}

static int remove_data(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static sonde_nn_job *open_job(const char *options)
{
    char text[512];
    sonde_nn_job *job = NULL;

    (void)snprintf(text, sizeof text,
                   "model: mnist_mlp_small\n"
                   "data: {name: fashion-synth, path: %s}\n"
                   "options: {batch_size: 16, eval_batch_size: 16, %s}\n",
                   data, options);
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    return job;
}

/* --- events ------------------------------------------------------------------------- */

typedef struct seen {
    int begins, epochs, steps, evaluated, checkpoints, findings, acted, stopped, scored;
    int stop_after; /* steps; 0: never */
    double loss;    /* of the last epoch */
    sonde_nn_score score;
} seen;

static void on_begin(void *user, const sonde_nn_trainer_plan *plan)
{
    assert_int_equal(plan->eval_all, 40);
    ((seen *)user)->begins++;
}

static void on_epoch_begin(void *user, const sonde_nn_epoch *epoch)
{
    assert_int_equal(epoch->samples, 96);
    ((seen *)user)->begins++;
}

static sonde_err on_step(void *user, const sonde_nn_step *step, sonde_diag *diag)
{
    (void)diag;
    assert_int_equal(step->call + 1, step->step);
    ((seen *)user)->steps++;
    return SONDE_OK;
}

static sonde_err on_epoch_end(void *user, const sonde_nn_epoch *epoch, sonde_diag *diag)
{
    seen *events = user;

    (void)diag;
    events->epochs++;
    events->loss = epoch->loss;
    events->evaluated += epoch->eval_set != NULL;
    return SONDE_OK;
}

static void on_checkpoint(void *user, const char *path, int64_t step)
{
    assert_int_equal(access(path, F_OK), 0);
    assert_true(step > 0);
    ((seen *)user)->checkpoints++;
}

static void on_finding(void *user, const sonde_finding *finding, int epoch)
{
    assert_true(epoch > 0 && finding->rule != NULL);
    ((seen *)user)->findings++;
}

static void on_acted(void *user, const sonde_finding *finding)
{
    (void)finding;
    ((seen *)user)->acted++;
}

static void on_stopped(void *user, const sonde_request *request, int64_t step)
{
    (void)request;
    (void)step;
    ((seen *)user)->stopped++;
}

static void on_scored(void *user, const sonde_nn_score *score,
                      const sonde_nn_confusion *matrix)
{
    seen *events = user;

    assert_int_equal(sonde_nn_confusion_get_info(matrix).total, score->samples);
    events->scored++;
    events->score = *score;
}

static bool is_interrupted(void *user)
{
    const seen *events = user;

    return events->stop_after > 0 && events->steps >= events->stop_after;
}

static sonde_nn_trainer_options options_of(seen *events)
{
    return (sonde_nn_trainer_options){.size = sizeof(sonde_nn_trainer_options),
                                      .events = {.user = events,
                                                 .begin = on_begin,
                                                 .epoch_begin = on_epoch_begin,
                                                 .step = on_step,
                                                 .epoch_end = on_epoch_end,
                                                 .checkpoint = on_checkpoint,
                                                 .finding = on_finding,
                                                 .acted = on_acted,
                                                 .stopped = on_stopped,
                                                 .scored = on_scored,
                                                 .interrupted = is_interrupted}};
}

/* --- weights ------------------------------------------------------------------------ */

/* Two epochs without a trainer. */
static float *by_hand(void)
{
    sonde_nn_job *job = open_job("epochs: 2");
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_dataset *set = NULL;
    sonde_nn_loader *loader = NULL;
    float *weights = NULL;

    must(sonde_nn_job_build(job, &model, &engine_diag));
    must(sonde_nn_session_create(model, &info->options, &info->optimizer, &session,
                                 &engine_diag));
    must(sonde_nn_job_open_data(job, SONDE_NN_TRAIN, &set, &engine_diag));
    must(sonde_nn_job_loader(job, set, 16, true, &loader, &engine_diag));
    assert_int_equal(sonde_nn_loader_get_info(loader).batch, 16);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        sonde_nn_loader_start_epoch(loader, epoch);
        for (int i = 0; i < 6; i++) {
            const int64_t shape[4] = {16, 1, 28, 28};
            sonde_nn_batch batch;
            sonde_view inputs[2];

            must(sonde_nn_loader_next(loader, &batch, &engine_diag));
            inputs[0] = sonde_view_of(SONDE_F32, 4, shape, batch.data);
            inputs[1] = sonde_view_of(SONDE_I64, 1, shape, NULL);
            memcpy(&inputs[1].data, &batch.labels, sizeof batch.labels);
            must(sonde_nn_session_run(session, inputs, 2, &engine_diag));
        }
    }
    weights = engine_weights(model);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_loader_destroy(loader);
    sonde_nn_dataset_destroy(set);
    sonde_nn_job_destroy(job);
    return weights;
}

static void expect_weights(sonde_nn_model *model, const float *want)
{
    float *weights = engine_weights(model);

    assert_memory_equal(weights, want, engine_weight_count(model) * sizeof *weights);
    free(weights);
}

/* --- tests -------------------------------------------------------------------------- */

static void a_job_trains_as_a_loop_by_hand(void **state)
{
    sonde_nn_job *job = open_job("epochs: 2");
    seen events = {0};
    sonde_nn_trainer_options options = options_of(&events);
    sonde_nn_trainer *trainer = NULL;
    sonde_nn_evaluator *evaluator = NULL;
    sonde_verdict verdict;
    float *weights = by_hand();

    (void)state;
    options.out = out;
    must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
    assert_null(sonde_nn_trainer_get_info(trainer).actions);
    assert_non_null(sonde_nn_trainer_get_info(trainer).rules);
    must(sonde_nn_trainer_run(trainer, &engine_diag));
    expect_weights(sonde_nn_trainer_get_info(trainer).model, weights);
    assert_int_equal(sonde_nn_session_step(sonde_nn_trainer_get_info(trainer).session),
                     12);
    assert_int_equal(events.begins, 3);
    assert_int_equal(events.steps, 12);
    assert_int_equal(events.epochs, 2);
    assert_int_equal(events.evaluated, 2);
    assert_int_equal(events.checkpoints, 2);
    assert_int_equal(events.scored, 1);
    assert_int_equal(events.score.samples, 40);
    assert_null(sonde_nn_trainer_get_info(trainer).stopped);
    assert_true(sonde_nn_trainer_verdict(trainer, &verdict) && verdict.rules > 0);

    /* an evaluation of its own gives the same score */
    must(sonde_nn_evaluator_create(
        job, sonde_nn_trainer_get_info(trainer).model,
        SONDE_OPTIONS(sonde_nn_evaluator, .set = sonde_nn_trainer_get_info(trainer).test),
        &evaluator, &engine_diag));
    must(sonde_nn_evaluator_run(evaluator, &engine_diag));
    assert_true(sonde_nn_evaluator_score(evaluator).loss == events.score.loss);
    assert_true(sonde_nn_evaluator_score(evaluator).accuracy == events.score.accuracy);
    assert_memory_equal(
        sonde_nn_confusion_get_info(sonde_nn_evaluator_score(evaluator).matrix).counts,
        sonde_nn_confusion_get_info(sonde_nn_trainer_get_info(trainer).matrix).counts,
        100 * sizeof(uint64_t));
    sonde_nn_evaluator_destroy(evaluator);
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_job_destroy(job);
    free(weights);
}

/* Interrupted in the middle of an epoch, then resumed from its checkpoint. */
static void a_resumed_run_ends_with_the_same_bits(void **state)
{
    float *weights = by_hand();

    (void)state;
    for (int i = 0; i < 2; i++) {
        sonde_nn_job *job = open_job("epochs: 2");
        seen events = {.stop_after = i == 0 ? 8 : 0};
        sonde_nn_trainer_options options = options_of(&events);
        sonde_nn_trainer *trainer = NULL;

        options.out = out;
        options.resume = i == 0 ? NULL : "";
        must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
        expect_err(i == 0 ? SONDE_EINTERRUPTED : SONDE_OK,
                   sonde_nn_trainer_run(trainer, &engine_diag));
        assert_int_equal(events.steps, i == 0 ? 8 : 4);
        assert_int_equal(events.stopped, i == 0);
        if (i == 1) {
            expect_weights(sonde_nn_trainer_get_info(trainer).model, weights);
        }
        sonde_nn_trainer_destroy(trainer);
        sonde_nn_job_destroy(job);
    }
    free(weights);
}

/* Six steps; the session of a step has the rate of the schedule, which its checkpoint
 * says. */
static void a_schedule_sets_the_learning_rate(void **state)
{
    static const struct {
        const char *options;
        double rate; /* of the last step, as a share of the first */
    } rows[] = {{"schedule: step, schedule_every: 2, gamma: 0.5", 0.25},
                {"warmup: 12", 0.5},
                {"schedule: table, rates: [3=0.5, 5=0.125]", 0.125},
                {"schedule: constant", 1.0}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512], path[128];
        sonde_nn_job *job = NULL;
        seen events = {0};
        sonde_nn_trainer_options options = options_of(&events);
        sonde_nn_trainer *trainer = NULL;
        sonde_nn_checkpoint_info info;

        (void)snprintf(text, sizeof text,
                       "model: mnist_mlp_small\n"
                       "data: {name: fashion-synth, path: %s}\n"
                       "optimizer: {kind: rmsprop, learning_rate: 1, %s}\n"
                       "options: {epochs: 1, batch_size: 16, eval_batch_size: 16}\n"
                       "rules: none\n",
                       data, rows[i].options);
        must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
        options.out = out;
        must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
        must(sonde_nn_trainer_run(trainer, &engine_diag));
        (void)snprintf(path, sizeof path, "%s/checkpoint.safetensors", out);
        must(sonde_nn_checkpoint_describe(path, &info, &engine_diag));
        assert_int_equal(info.step, 6);
        assert_float_equal(info.learning_rate, (float)rows[i].rate, 1e-7F);
        sonde_nn_trainer_destroy(trainer);
        sonde_nn_job_destroy(job);
    }
}

/* Six steps: a group has its own schedule, or its share of the section's; a flag reaches
 * groups that lack the number. */
static void groups_have_schedules_of_their_own(void **state)
{
    static const char text[] =
        "model: mnist_mlp_small\n"
        "data: {name: fashion-synth, path: %s}\n"
        "optimizer:\n"
        "  {kind: sgd, learning_rate: 0.5, schedule: table, rates: [3=0.25], groups: [\n"
        "    {name: head, params: 're:^fc2', learning_rate: 0.4, momentum: 0.5,\n"
        "     schedule: step, schedule_every: 2, gamma: 0.5},\n"
        "    {name: half, params: fc1.weight, learning_rate: 0.2},\n"
        "    {name: rest, params: '*', weight_decay: 0.1}]}\n"
        "options: {epochs: 1, batch_size: 16, eval_batch_size: 16}\n"
        "rules: none\n";
    static const struct {
        const char *name;
        float rate; /* of the last step */
    } rows[] = {{"learningRate___default", 0.25F},
                {"learningRate___head", 0.1F},
                {"learningRate___half", 0.05F},
                {"learningRate___rest", 0.25F}};
    sonde_nn_job *job = NULL;
    seen events = {0};
    sonde_nn_trainer_options options = options_of(&events);
    sonde_nn_trainer *trainer = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_job_group rest;
    char whole[1024];

    (void)state;
    (void)snprintf(whole, sizeof whole, text, data);
    must(sonde_nn_job_parse(whole, strlen(whole), "job", &job, &engine_diag));
    must(sonde_nn_job_set(job, "learning_rate", "1", &engine_diag));
    assert_int_equal(sonde_nn_job_get_info(job)->group_count, 3);
    must(sonde_nn_job_get_group(job, 2, &rest, &engine_diag));
    assert_string_equal(rest.params, "*");
    assert_true(rest.optimizer.learning_rate == 1.0F && !rest.scheduled);
    expect_err(SONDE_ERANGE, sonde_nn_job_get_group(job, 3, &rest, &engine_diag));
    must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
    session = sonde_nn_trainer_get_info(trainer).session;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        must(sonde_nn_session_anchor(session, rows[i].name, rows[i].name,
                                     SONDE_ANCHOR_FINAL, 1, &engine_diag));
    }
    must(sonde_nn_trainer_run(trainer, &engine_diag));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sonde_view view;

        must(sonde_nn_session_anchored(session, rows[i].name, &view, &engine_diag));
        assert_float_equal(*(const float *)view.data, rows[i].rate, 1e-7F);
    }
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_job_destroy(job);
}

static void a_table_that_cannot_be_is_refused(void **state)
{
    sonde_nn_job *job = open_job("epochs: 1");
    seen events = {0};
    sonde_nn_trainer_options options = options_of(&events);
    sonde_nn_trainer *trainer = NULL;

    (void)state;
    must(sonde_nn_job_set(job, "schedule", "table", &engine_diag));
    must(sonde_nn_job_set(job, "rates", "soon", &engine_diag));
    expect_err(SONDE_EINVAL,
               sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
    expect_line("rates: 'soon' (expected STEP=RATE, at most 32)");
    sonde_nn_job_destroy(job);
}

static void a_finding_stops_training(void **state)
{
    sonde_nn_job *job = open_job("epochs: 2");
    seen events = {0};
    const sonde_nn_trainer_options options = options_of(&events);
    sonde_nn_trainer *trainer = NULL;
    sonde_verdict verdict;

    (void)state;
    sonde_nn_job_get_info(job)->optimizer.learning_rate = 1e6F;
    sonde_nn_job_get_info(job)->rules.stop_on.text[0] = "any";
    sonde_nn_job_get_info(job)->rules.stop_on.count = 1;
    must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
    assert_non_null(sonde_nn_trainer_get_info(trainer).actions);
    must(sonde_nn_trainer_run(trainer, &engine_diag));
    assert_non_null(sonde_nn_trainer_get_info(trainer).stopped);
    assert_int_equal(sonde_nn_trainer_get_info(trainer).stopped->by, SONDE_BY_RULE);
    assert_int_equal(events.stopped, 1);
    assert_int_equal(events.scored, 0);
    assert_null(sonde_nn_trainer_get_info(trainer).matrix);
    assert_true(events.steps < 12 && events.findings > 0);
    assert_int_equal(events.acted, events.findings);
    assert_true(sonde_nn_trainer_verdict(trainer, &verdict) && verdict.headline != NULL);
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_job_destroy(job);
}

/* Without a job: a model, a feed, a test loader. */
static void a_model_trains_from_a_feed(void **state)
{
    sonde_nn_job *job = open_job("epochs: 2");
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    seen events = {0};
    sonde_nn_trainer_options options = options_of(&events);
    sonde_nn_model *model = NULL;
    sonde_nn_dataset *train = NULL, *test = NULL;
    sonde_nn_loader *loader = NULL, *test_loader = NULL;
    sonde_nn_feed feed;
    sonde_nn_trainer *trainer = NULL;
    sonde_nn_evaluator *evaluator = NULL;
    sonde_verdict verdict;
    float *weights = by_hand();

    (void)state;
    must(sonde_nn_job_build(job, &model, &engine_diag));
    must(sonde_nn_job_open_data(job, SONDE_NN_TRAIN, &train, &engine_diag));
    must(sonde_nn_job_open_data(job, SONDE_NN_TEST, &test, &engine_diag));
    assert_true(sonde_nn_job_has_test(job));
    must(sonde_nn_job_loader(job, train, 16, true, &loader, &engine_diag));
    must(sonde_nn_job_loader(job, test, 16, false, &test_loader, &engine_diag));
    feed = sonde_nn_loader_feed(loader);
    assert_int_equal(feed.batches, 6);
    options.model = model;
    options.feed = &feed;
    options.session = &info->options;
    options.optimizer = info->optimizer;
    options.epochs = 2;
    options.test = test_loader;
    must(sonde_nn_trainer_create(NULL, &options, &trainer, &engine_diag));
    assert_int_equal(sonde_nn_output_loss(model), 1);
    assert_int_equal(sonde_nn_model_output(model, 1),
                     sonde_nn_model_get_info(model).loss);
    assert_int_equal(sonde_nn_model_output(model, 2), 0);
    must(sonde_nn_trainer_run(trainer, &engine_diag));
    expect_weights(model, weights);
    assert_int_equal(events.evaluated, 0); /* eval_every 0: only at the end */
    assert_int_equal(events.scored, 1);
    assert_false(sonde_nn_trainer_verdict(trainer, &verdict));
    assert_null(sonde_nn_trainer_get_info(trainer).train);
    must(sonde_nn_evaluator_create(
        NULL, model, SONDE_OPTIONS(sonde_nn_evaluator, .loader = test_loader), &evaluator,
        &engine_diag));
    must(sonde_nn_evaluator_run(evaluator, &engine_diag));
    assert_true(sonde_nn_evaluator_score(evaluator).loss == events.score.loss);
    sonde_nn_evaluator_destroy(evaluator);
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_loader_destroy(loader);
    sonde_nn_loader_destroy(test_loader);
    sonde_nn_dataset_destroy(train);
    sonde_nn_dataset_destroy(test);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
    free(weights);
}

static sonde_err no_batch(void *user, sonde_nn_feed_batch *batch, sonde_diag *diag)
{
    (void)user, (void)diag;
    *batch = (sonde_nn_feed_batch){.samples = 0};
    return SONDE_OK;
}

static void options_that_cannot_be_are_refused(void **state)
{
    const sonde_nn_feed good = {.batches = 1, .samples = 1, .next = no_batch};
    const sonde_nn_feed feeds[] = {good, good, good, {.batches = 1}, {.next = no_batch},
                                   good, good};
    sonde_nn_trainer_options options = {.size = sizeof options,
                                        .optimizer = sonde_nn_optimizer_sgd(0.1F, 0.0F)};
    const sonde_hook_options recording = {.size = sizeof recording, .dry_run = true};
    sonde_nn_trainer *trainer = NULL;
    engine_net net;

    (void)state;
    engine_mlp(&net, 3);
    for (int i = 0; i < 7; i++) {
        options.group_count = i == 0 ? 2 : 0;
        options.epochs = i == 1 ? -1 : 0;
        options.eval_every = i == 2 ? -1 : 0;
        options.feed = i == 5 ? NULL : &feeds[i];
        options.model = i == 6 ? NULL : net.model;
        expect_err(SONDE_EINVAL,
                   sonde_nn_trainer_create(NULL, &options, &trainer, &engine_diag));
        assert_null(trainer);
    }
    expect_err(SONDE_EINVAL, sonde_nn_trainer_create(NULL, NULL, &trainer, &engine_diag));
    assert_string_equal(engine_diag.found, "options is NULL"); /* the header's name */
    options.eval_every = 0;
    options.model = net.model;
    options.feed = &good;
    must(sonde_hook_create(&recording, &options.hook, &engine_diag));
    options.resume = "/nowhere/checkpoint.safetensors";
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_trainer_create(NULL, &options, &trainer, &engine_diag));
    must(sonde_hook_close(options.hook, SONDE_RUN_FAILED, NULL, &engine_diag));
    options.hook = NULL; /* it was still the caller's */
    options.resume = NULL;
    must(sonde_nn_trainer_create(NULL, &options, &trainer, &engine_diag));
    must(sonde_nn_trainer_run(trainer, &engine_diag)); /* of no epochs */
    expect_err(SONDE_ESTATE, sonde_nn_trainer_run(trainer, &engine_diag));
    sonde_nn_trainer_destroy(trainer);
    engine_net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_trains_as_a_loop_by_hand),
        cmocka_unit_test(a_resumed_run_ends_with_the_same_bits),
        cmocka_unit_test(a_schedule_sets_the_learning_rate),
        cmocka_unit_test(a_table_that_cannot_be_is_refused),
        cmocka_unit_test(groups_have_schedules_of_their_own),
        cmocka_unit_test(a_finding_stops_training),
        cmocka_unit_test(a_model_trains_from_a_feed),
        cmocka_unit_test(options_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, make_data, remove_data);
}
