/*
 * test_job_options.c - the table of options: defaults, texts, the environment; and the
 * section `demo`.
 */
#include "engine.h"

#include <sonde/nn/job.h>

static sonde_nn_job *parse(const char *text)
{
    sonde_nn_job *job = NULL;

    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    return job;
}

static void the_table_is_sound(void **state)
{
    const sonde_nn_option *row = NULL, *other = NULL;

    (void)state;
    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        assert_non_null(row->help);
        assert_true(row->offset + row->size <= sizeof(sonde_nn_job_info));
        for (size_t k = 0; k < i; k++) {
            other = sonde_nn_option_at(k);
            assert_string_not_equal(row->name, other->name);
            assert_true(row->offset != other->offset);
            assert_true(row->letter == 0 || row->letter != other->letter);
        }
    }
}

/* Whether a member of the info has the name of the flag, of the key, or of both sections:
 * learning_rate, options.learning_rate, record.every for record_every. */
static bool is_named(const char *member, const char *name)
{
    const char *last = strrchr(member, '.');
    bool same = strlen(member) == strlen(name);

    for (size_t i = 0; same && member[i] != '\0'; i++) {
        same = member[i] == name[i] || (member[i] == '.' && name[i] == '_');
    }
    return same || (last != NULL && strcmp(last + 1, name) == 0);
}

/* One option has one name: the flag is the job's key, with the section before it where the
 * key alone says too little, or the section, whose main value it sets. */
static void an_option_has_one_name(void **state)
{
    const sonde_nn_option *row = NULL;

    (void)state;
    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        const char *key = row->key != NULL ? row->key : row->name;
        char full[96];

        (void)snprintf(full, sizeof full, "%s_%s", row->section, key);
        if (strcmp(row->name, key) != 0 && strcmp(row->name, full) != 0 &&
            strcmp(row->name, row->section) != 0) {
            fail_msg("--%s of %s: %s", row->name, row->section, key);
        }
        if (!is_named(row->field, row->name) && !is_named(row->field, key) &&
            !is_named(row->field, full) &&
            strncmp(row->field, row->name, strlen(row->name)) != 0) {
            fail_msg("--%s of %s: the field %s", row->name, row->section, row->field);
        }
    }
}

static void a_text_sets_an_option(void **state)
{
    sonde_nn_job *job = parse("model: fashion_cnn\nrules: [NonFinite, DeadRelu]\n");
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);

    (void)state;
    assert_int_equal(info->rules.judge.count, 2);
    must(sonde_nn_job_set(job, "batch_size", "7", &engine_diag));
    must(sonde_nn_job_set(job, "seed", "9", &engine_diag));
    must(sonde_nn_job_set(job, "optimizer", "adam", &engine_diag));
    must(sonde_nn_job_set(job, "learning_rate", "0.5", &engine_diag));
    must(sonde_nn_job_set(job, "reduction", "sum", &engine_diag));
    must(sonde_nn_job_set(job, "save_all", "true", &engine_diag));
    must(sonde_nn_job_set(job, "record", "run", &engine_diag));
    must(sonde_nn_job_set(job, "rules", "LossSpike", &engine_diag));
    must(sonde_nn_job_set(job, "stop_on", "error", &engine_diag));
    assert_int_equal(info->options.batch_size, 7);
    assert_true(info->seed == 9 && info->options.random_seed == 9);
    assert_true(info->optimizer.kind == SONDE_NN_ADAM && info->optimizer.beta1 == 0.9F);
    assert_true(info->optimizer.learning_rate == 0.5F);
    assert_int_equal(info->options.reduction, SONDE_NN_REDUCTION_SUM);
    assert_true(info->record.save_all);
    assert_string_equal(info->record.path, "run");
    assert_int_equal(info->rules.judge.count, 1);
    assert_string_equal(info->rules.judge.text[0], "LossSpike");
    assert_int_equal(info->rules.stop_on.count, 1);
    sonde_nn_job_destroy(job);
}

static void rules_none_drops_the_jobs_actions(void **state)
{
    sonde_nn_job *job = parse("model: fashion_cnn\nrules: {stop_on: error}\n");
    const sonde_nn_job_rules *rules = &sonde_nn_job_get_info(job)->rules;

    (void)state;
    must(sonde_nn_job_set(job, "rules", "none", &engine_diag));
    assert_true(rules->none);
    assert_int_equal(rules->judge.count + rules->stop_on.count, 0);
    sonde_nn_job_destroy(job);
}

static void wrong_texts_are_refused(void **state)
{
    sonde_nn_job *job = parse("model: fashion_cnn\n");

    (void)state;
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "epochs", "many", &engine_diag));
    expect_line("epochs: 'many' (expected a whole number from 0 to 1000000)");
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "validation", "1", &engine_diag));
    expect_line("validation: '1' (expected a number from 0 to below 1)");
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "test_share", "0", &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "growth_factor", "0", &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "backoff_factor", "0", &engine_diag));
    expect_line("backoff_factor: '0' (expected a number from 1e-06 to below 1)");
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "std", "0", &engine_diag));
    expect_line("std: '0' (expected a number from 1e-30)");
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "mean", "nan", &engine_diag));
    expect_line("mean: 'nan' (expected a finite number)");
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "optimizer", "lion", &engine_diag));
    expect_line("optimizer: 'lion' (expected sgd, adam, adamw, rmsprop, "
                "adagrad or lamb)");
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "each", "maybe", &engine_diag));
    expect_line("each: 'maybe' (expected true or false)");
    expect_err(SONDE_ENOTFOUND, sonde_nn_job_set(job, "epoch", "1", &engine_diag));
    expect_line("epoch: unknown option (expected an option of a training)");
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "epochs", NULL, &engine_diag));
    sonde_nn_job_destroy(job);
}

static void the_environment_sets_options(void **state)
{
    sonde_nn_job *job = parse("model: fashion_cnn\noptions: {epochs: 2}\n");

    (void)state;
    assert_int_equal(setenv("SONDE_EPOCHS", "4", 1), 0);
    assert_int_equal(setenv("SONDE_EVAL_BATCH_SIZE", "", 1), 0);
    must(sonde_nn_job_set_environment(job, &engine_diag));
    assert_int_equal(sonde_nn_job_get_info(job)->epochs, 4);
    assert_int_equal(sonde_nn_job_get_info(job)->eval_batch_size, 32);
    assert_int_equal(setenv("SONDE_EPOCHS", "few", 1), 0);
    expect_err(SONDE_EINVAL, sonde_nn_job_set_environment(job, &engine_diag));
    expect_line("SONDE_EPOCHS: 'few' (expected a whole number from 0 to 1000000)");
    assert_int_equal(unsetenv("SONDE_EPOCHS") + unsetenv("SONDE_EVAL_BATCH_SIZE"), 0);
    sonde_nn_job_destroy(job);
}

static void a_demo_is_read_and_repaired(void **state)
{
    sonde_nn_job *job = parse("demo:\n"
                              "  what: It fails.\n"
                              "  rule: DeadRelu\n"
                              "  samples: {train: 64, test: 8}\n"
                              "  fault: {gain: 3, alike: true, frozen: fc1}\n"
                              "  fixed:\n"
                              "    optimizer: {learning_rate: 0.25}\n"
                              "    samples: {train: 128}\n"
                              "model: fashion_cnn\n"
                              "optimizer: {learning_rate: 100}\n");
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    const sonde_nn_demo *demo = sonde_nn_job_get_demo(job);

    (void)state;
    assert_string_equal(demo->what, "It fails.");
    assert_string_equal(demo->rule, "DeadRelu");
    assert_null(demo->tensor);
    assert_true(demo->gain == 3.0F && demo->alike && !demo->twice);
    assert_string_equal(demo->frozen, "fc1");
    assert_true(demo->train == 64 && demo->test == 8);
    assert_true(info->optimizer.learning_rate == 100.0F);
    must(sonde_nn_job_fix_demo(job, &engine_diag));
    assert_true(demo->gain == 0.0F && !demo->alike && demo->frozen == NULL);
    assert_true(demo->train == 128 && demo->test == 8);
    assert_true(info->optimizer.learning_rate == 0.25F);
    assert_true(info->optimizer.momentum == 0.9F);
    sonde_nn_job_destroy(job);
    job = parse("model: fashion_cnn\n");
    assert_null(sonde_nn_job_get_demo(job));
    expect_err(SONDE_ESTATE, sonde_nn_job_fix_demo(job, &engine_diag));
    sonde_nn_job_destroy(job);
}

/* What a job prints is read again to the same values, as YAML and as JSON. */
static void printed_options_are_read_again(void **state)
{
    static const char text[] =
        "model: mnist_mlp_small\n"
        "data: {name: fashion-synth, mean: 0.1307}\n"
        "optimizer:\n"
        "  {kind: adamw, learning_rate: 0.003, beta2: 0.95, schedule: cosine,\n"
        "   schedule_end: 0.1, warmup: 7, loss_scaling: 128, groups: [\n"
        "   {name: a, params: 'fc1.*', weight_decay: 0.25},\n"
        "   {name: b, params: 're:^fc2', schedule: table, rates: [1=0.5, 9=0.1]}]}\n"
        "options: {epochs: 3, replicas: 2, seed: 123456789012, execution: sharded,\n"
        "          floating_point_exceptions: true}\n"
        "rules: none\n";
    char *printed[3] = {NULL, NULL, NULL};
    sonde_nn_job *job = NULL;

    (void)state;
    must(sonde_nn_job_parse(text, sizeof text - 1, "job", &job, &engine_diag));
    for (int i = 0; i < 3; i++) {
        const bool json = i == 1;
        size_t size = 0;
        FILE *stream = open_memstream(&printed[i], &size);

        assert_non_null(stream);
        must(sonde_nn_job_print(job, json, stream, &engine_diag));
        assert_int_equal(fclose(stream), 0);
        sonde_nn_job_destroy(job);
        must(sonde_nn_job_parse(printed[i], size, "printed", &job, &engine_diag));
    }
    assert_string_equal(printed[0], printed[2]);
    assert_non_null(strstr(printed[0], "\n  learning_rate: 0.003\n"));
    assert_non_null(strstr(printed[0], "\n  seed: 123456789012\n"));
    assert_non_null(strstr(printed[0], "rules:\n  judge: \"none\"\n"));
    assert_non_null(strstr(printed[1], "\"execution\": \"sharded\""));
    assert_int_equal(sonde_nn_job_get_info(job)->group_count, 2);
    sonde_nn_job_destroy(job);
    for (int i = 0; i < 3; i++) {
        free(printed[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_sound),
        cmocka_unit_test(an_option_has_one_name),
        cmocka_unit_test(a_text_sets_an_option),
        cmocka_unit_test(rules_none_drops_the_jobs_actions),
        cmocka_unit_test(wrong_texts_are_refused),
        cmocka_unit_test(printed_options_are_read_again),
        cmocka_unit_test(the_environment_sets_options),
        cmocka_unit_test(a_demo_is_read_and_repaired),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
