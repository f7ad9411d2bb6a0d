/*
 * test_job_rules.c - a job's section `rules`; and where a hook's run goes.
 */
#include "engine.h"

#include <sonde/nn/job.h>

static void a_job_says_who_judges(void **state)
{
    static const char text[] = "model: fashion_cnn\n"
                               "rules: {judge: [NonFinite], every: 5, stop_on: error}\n";
    sonde_nn_job *job = NULL;
    const sonde_nn_job_rules *rules = NULL;

    (void)state;
    must(sonde_nn_job_parse(text, sizeof text - 1, "job", &job, &engine_diag));
    rules = &sonde_nn_job_get_info(job)->rules;
    assert_int_equal(rules->judge.count, 1);
    assert_string_equal(rules->judge.text[0], "NonFinite");
    assert_int_equal(rules->every, 5);
    assert_int_equal(rules->stop_on.count, 1);
    assert_int_equal(rules->on_finding.count, 0);
    assert_false(rules->none || rules->each);
    sonde_nn_job_destroy(job);
}

static void a_hook_tells_where_its_run_goes(void **state)
{
    sonde_hook_options options = {.size = sizeof options,
                                  .record =
                                      SONDE_OPTIONS(sonde_recorder, .path = "some/run")};
    sonde_hook *hook = NULL;

    (void)state;
    must(sonde_hook_create(&options, &hook, &engine_diag));
    assert_string_equal(sonde_hook_path(hook), "some/run");
    must(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &engine_diag));
    options.dry_run = true;
    must(sonde_hook_create(&options, &hook, &engine_diag));
    assert_null(sonde_hook_path(hook));
    must(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &engine_diag));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_says_who_judges),
        cmocka_unit_test(a_hook_tells_where_its_run_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
