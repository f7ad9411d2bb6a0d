/*
 * test_print_session.c - prints inside a model: forward in the order of the program,
 * gradients in the opposite one, to stderr; gone, with a warning, if its result is
 * unused what they return.
 */
#include "nn/engine.h"

#include <sonde/log.h>
#include <sonde/nn/job.h>
#include <sonde/print.h>

#include <fcntl.h>
#include <unistd.h>

/* --- stderr, caught --------------------------------------------------------------- */

static char caught[8192];
static FILE *catcher;
static int real_stderr;

static void catch_stderr(void)
{
    catcher = tmpfile();
    assert_non_null(catcher);
    (void)fflush(stderr);
    real_stderr = dup(STDERR_FILENO);
    assert_true(dup2(fileno(catcher), STDERR_FILENO) >= 0);
}

static void release_stderr(void)
{
    size_t length = 0;

    (void)fflush(stderr);
    assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
    (void)close(real_stderr);
    rewind(catcher);
    length = fread(caught, 1, sizeof caught - 1, catcher);
    caught[length] = '\0';
    (void)fclose(catcher);
}

static int warnings;
static char warning[512];

static void keep_warning(void *user, sonde_log_level level, const char *room,
                         const char *message)
{
    (void)user, (void)room;
    if (level == SONDE_LOG_WARNING) {
        warnings++;
        (void)snprintf(warning, sizeof warning, "%s", message);
    }
}

/* --- a model that can be reckoned by hand ----------------------------------------- */

/*
 * x (2, 1), y = w x with w = 3; printed; z = y y; printed; loss = mean z. With x = (1,
 * 2): y = (3, 6), z = (9, 36), dz = (0.5, 0.5), dy = 2 y dz = (3, 6).
 */
typedef struct printed {
    const char *first, *second; /* titles */
    bool gradients;
    const sonde_print_options *options; /* of the first */
    bool use;                           /* what the first returns */
} printed;

static sonde_nn_model *build(const printed *p)
{
    sonde_nn_model *m = NULL;
    sonde_nn_value x = 0, y = 0, z = 0;

    must(sonde_nn_model_create(&m, &engine_diag));
    x = sonde_nn_input(m, SONDE_F32, 2, (const int64_t[]){2, 1});
    y = sonde_nn_linear(
        m, "fc", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 1, .no_bias = true));
    z = sonde_nn_print(m, y, p->first, p->gradients, p->options);
    y = p->use ? z : y;
    z = engine_mul(m, NULL, y, y);
    z = sonde_nn_print(m, z, p->second, p->gradients, NULL);
    sonde_nn_loss(m, engine_reduce(m, "mean", "loss", z, NULL, 0, false));
    must(sonde_nn_model_status(m, &engine_diag));
    *(float *)sonde_nn_parameter(m, 0).view.data = 3.0F; /* fc.weight */
    return m;
}

/* One step (of micro-batches) with a learning rate of 0; what was printed is in caught.
 */
static void train(const printed *p, int micro_batches)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.0F, 0.0F);
    float values[4] = {1.0F, 2.0F, 10.0F, 20.0F};
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    const sonde_view x =
        sonde_view_of(SONDE_F32, 2, (const int64_t[]){2 * micro_batches, 1}, values);

    warnings = 0;
    sonde_log_set_level(SONDE_LOG_WARNING);
    sonde_log_set_sink(keep_warning, NULL);
    model = build(p);
    sonde_nn_options_init(&options);
    options.gradient_accumulation = micro_batches;
    must(sonde_nn_session_create(model, &options, &sgd, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    catch_stderr();
    must(sonde_nn_session_run(session, &x, 1, &engine_diag));
    release_stderr();
    sonde_log_set_sink(NULL, NULL);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

/* --- tests ------------------------------------------------------------------------ */

static void gradients_come_in_the_opposite_order(void **state)
{
    (void)state;
    train(&(printed){.first = "y", .second = "z", .gradients = true, .use = true}, 1);
    assert_string_equal(caught, "y: (\n (3.000)\n (6.000)\n)\n"
                                "z: (\n ( 9.00)\n (36.00)\n)\n"
                                "z_gradient: (\n (0.5000)\n (0.5000)\n)\n"
                                "y_gradient: (\n (3.000)\n (6.000)\n)\n");
    assert_int_equal(warnings, 0);
}

static void every_micro_batch_is_printed(void **state)
{
    (void)state;
    train(&(printed){.first = "y", .second = "z", .use = true}, 2);
    assert_string_equal(caught, "y: (\n (3.000)\n (6.000)\n)\n"
                                "z: (\n ( 9.00)\n (36.00)\n)\n"
                                "y: (\n (30.00)\n (60.00)\n)\n"
                                "z: (\n ( 900)\n (3600)\n)\n");
}

/* Without a title the names of the values stand in its place. */
static void untitled_prints_bear_names(void **state)
{
    (void)state;
    train(&(printed){.second = "", .gradients = true, .use = true}, 1);
    assert_string_equal(caught, "fc_output_0: (\n (3.000)\n (6.000)\n)\n"
                                "Mul:0: (\n ( 9.00)\n (36.00)\n)\n"
                                "Gradient___Mul:0: (\n (0.5000)\n (0.5000)\n)\n"
                                "Gradient___fc_output_0: (\n (3.000)\n (6.000)\n)\n");
}

static void a_print_has_options_of_its_own(void **state)
{
    sonde_print_options options = sonde_print_options_default();

    (void)state;
    options.digits = 3;
    options.float_format = SONDE_FLOAT_SCIENTIFIC;
    options.summarize_threshold = 1;
    options.edge_items = 0;
    (void)snprintf(options.open_bracket, sizeof options.open_bracket, "[");
    (void)snprintf(options.close_bracket, sizeof options.close_bracket, "]");
    train(&(printed){.first = "y", .second = "z", .options = &options, .use = true}, 1);
    assert_string_equal(caught, "y: [\n ...\n]\n"
                                "z: (\n ( 9.00)\n (36.00)\n)\n");
    options.summarize_threshold = 0;
    train(&(printed){.first = "y", .second = "z", .options = &options, .use = true}, 1);
    assert_string_equal(caught, "y: [\n [3.00e+00]\n [6.00e+00]\n]\n"
                                "z: (\n ( 9.00)\n (36.00)\n)\n");
}

/* Every option can be said in a job file, too. */
static void a_job_prints_as_it_says(void **state)
{
    static const char text[] =
        "model:\n"
        "  input: [6]\n"
        "  layers:\n"
        "    - print: {name: seen, gradient: false, summarize_threshold: 11, edge_items: "
        "2,\n"
        "              max_line_width: 22, digits: 2, float_format: SCIENTIFIC,\n"
        "              separator: ' | ', open_bracket: '<', close_bracket: '>'}\n"
        "    - linear: {name: fc, out_features: 3}\n"
        "  loss: cross_entropy\n";
    float values[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const sonde_view x = sonde_view_of(SONDE_F32, 2, (const int64_t[]){2, 6}, values);
    sonde_nn_options options;
    sonde_nn_session *session = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_job *job = NULL;

    (void)state;
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    sonde_nn_options_init(&options);
    options.batch_size = 2;
    must(sonde_nn_session_create(model, &options, NULL, &session, &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    catch_stderr();
    must(sonde_nn_session_run(session, &x, 1, &engine_diag));
    release_stderr();
    assert_string_equal(caught, "seen: <\n"
                                " <1.0e+00 | 2.0e+00 |\n"
                                "   ... | 5.0e+00 |\n"
                                "   6.0e+00>\n"
                                " <7.0e+00 | 8.0e+00 |\n"
                                "   ... | 1.1e+01 |\n"
                                "   1.2e+01>\n"
                                ">\n");
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

static void an_unused_print_goes_with_a_warning(void **state)
{
    (void)state;
    train(&(printed){.first = "y", .second = "z", .gradients = true, .use = false}, 1);
    assert_string_equal(caught, "z: (\n ( 9.00)\n (36.00)\n)\n"
                                "z_gradient: (\n (0.5000)\n (0.5000)\n)\n");
    assert_int_equal(warnings, 1);
    assert_string_equal(warning, "print 'y' is removed: its result is unused");
    /* An untitled one is told apart, too. */
    train(&(printed){.second = "z", .use = false}, 1);
    assert_int_equal(warnings, 1);
    assert_string_equal(warning,
                        "print of 'fc_output_0' is removed: its result is unused");
}

static void options_that_cannot_be_fail_compile(void **state)
{
    sonde_print_options options = sonde_print_options_default();
    sonde_nn_session *session = NULL;
    sonde_nn_model *model = NULL;

    (void)state;
    options.digits = 40;
    model =
        build(&(printed){.first = "y", .second = "z", .use = true, .options = &options});
    must(sonde_nn_session_create(model, NULL, &engine_sgd, &session, &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_session_compile(session, &engine_diag));
    expect_line("digits: 40 (expected 0 to 17)");
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_come_in_the_opposite_order),
        cmocka_unit_test(every_micro_batch_is_printed),
        cmocka_unit_test(untitled_prints_bear_names),
        cmocka_unit_test(a_print_has_options_of_its_own),
        cmocka_unit_test(a_job_prints_as_it_says),
        cmocka_unit_test(an_unused_print_goes_with_a_warning),
        cmocka_unit_test(options_that_cannot_be_fail_compile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
