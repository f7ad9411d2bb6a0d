/*
 * The section `record` of a job.
 */
#include "nn/engine.h"
#include "base/macros.h"

#include <sonde/nn/job.h>

static const char with[] = "model: fashion_cnn\n"
                           "record:\n"
                           "  path: runs/first\n"
                           "  collections: {biases: {save: false}}\n";

static void a_job_makes_its_hook(void **state)
{
    const sonde_hook_options over = {.size = sizeof over, .dry_run = true};
    sonde_nn_job *job = NULL;
    sonde_hook *hook = NULL;

    (void)state;
    must(sonde_nn_job_parse(with, strlen(with), "job", &job, &engine_diag));
    assert_true(sonde_nn_job_get_info(job)->records);
    must(sonde_nn_job_hook(job, NULL, &hook, &engine_diag));
    must(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &engine_diag));
    must(sonde_nn_job_hook(job, &over, &hook, &engine_diag)); /* and another */
    must(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &engine_diag));
    sonde_nn_job_destroy(job);

    must(sonde_nn_job_builtin("mnist_mlp", &job, &engine_diag));
    assert_false(sonde_nn_job_get_info(job)->records);
    expect_err(SONDE_EINVAL, sonde_nn_job_hook(job, NULL, &hook, &engine_diag));
    expect_line("hook: path: no path for the run (expected a folder, or dry_run)");
    must(sonde_nn_job_hook(job, &over, &hook, &engine_diag));
    must(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &engine_diag));
    sonde_nn_job_destroy(job);
}

static void mistakes_have_the_jobs_lines(void **state)
{
    static const struct {
        const char *text, *line;
    } mistakes[] = {
        {"model: fashion_cnn\nrecord:\n  save_al: true\n",
         "job:3: unknown key 'save_al' (expected save_all)"},
        {"model: fashion_cnn\nrecord: here\n",
         "job:2: the configuration is not a map (expected keys and values)"},
        {"model: fashion_cnn\nrecord:\n  collections:\n    x: {}\n",
         "job:4: x: the collection includes nothing (expected a selector or a module to "
         "include, or a built-in name)"},
        {"model: fashion_cnn\nrecrod: {}\n",
         "job:2: unknown key 'recrod' (expected record)"}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(mistakes); i++) {
        sonde_nn_job *job = NULL;

        expect_err(SONDE_EINVAL,
                   sonde_nn_job_parse(mistakes[i].text, strlen(mistakes[i].text), "job",
                                      &job, &engine_diag));
        expect_line(mistakes[i].line);
        assert_null(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_makes_its_hook),
        cmocka_unit_test(mistakes_have_the_jobs_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
