/*
 * test_layers.c - layers by name: every row of the table builds, trains and is on the page;
 * what is refused; the same layers in jobs.
 *
 * FIX_DOCS=1 writes the table of docs/jobs.md.
 */
#include "engine.h"
#include "base/macros.h"
#include "nn/layer_rows.h"

#include <sonde/nn/job.h>

#include <math.h>

/* --- building --------------------------------------------------------------------------- */

static void every_row_builds(void **state)
{
    (void)state;
    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        const sonde__op_layer *row = sonde__op_layers[i];
        sonde_nn_model *model = NULL;

        must(sonde_nn_model_create(&model, &engine_diag));
        assert_int_not_equal(layer_row_build(model, row), 0);
        must(sonde_nn_model_status(model, &engine_diag));
        sonde_nn_model_destroy(model);
        assert_ptr_equal(sonde__op_find_layer(row->name), row); /* names are unique */
        assert_non_null(row->help);
    }
}

/* --- in 16 bits ------------------------------------------------------------------------- */

/* The row between a linear layer, whose output is of 16 bits, and a loss. */
static sonde_err train_row(const sonde__op_layer *row, sonde_nn_float dtype)
{
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    sonde_nn_value in[LAYER_ROW_INPUTS] = {0}, compared[2];
    sonde_nn_session *session = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_options options;
    sonde_err err = SONDE_OK;

    must(sonde_nn_model_create(&model, &engine_diag));
    layer_row_inputs(model, row, in);
    for (int i = 0; i < row->inputs; i++) {
        static const char *const names[] = {"a", "b", "c", "d"};
        const sonde__op_shape *x = layer_row_input(row, i);

        if (x->dtype == SONDE_F32 && x->rank > 1) {
            in[i] = sonde_nn_linear(
                model, names[i], in[i],
                SONDE_OPTIONS(sonde_nn_linear, .out_features = x->dim[x->rank - 1]));
        }
    }
    compared[0] = compared[1] = layer_row_build_on(model, row, in);
    must(sonde_nn_model_status(model, &engine_diag));
    sonde_nn_loss(model, sonde_nn_layer(model, "mse_loss", "loss", compared, 2, NULL, 0));
    sonde_nn_options_init(&options);
    options.dtype = dtype;
    options.batch_size = (int)layer_row_input(row, 0)->dim[0];
    err = sonde_nn_session_create(model, &options, &sgd, &session, &engine_diag);
    err = err != SONDE_OK ? err : sonde_nn_session_compile(session, &engine_diag);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    return err;
}

static void every_row_that_trains_does_so_in_16_bits(void **state)
{
    size_t others = 0;

    (void)state;
    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        const sonde__op_layer *row = sonde__op_layers[i];

        if (train_row(row, SONDE_NN_FLOAT32) != SONDE_OK) {
            others++; /* its output is no float, or its batch another dimension */
            continue;
        }
        for (int d = SONDE_NN_BFLOAT16; d <= SONDE_NN_FLOAT16; d++) {
            if (train_row(row, (sonde_nn_float)d) != SONDE_OK) {
                fail_msg("%s: %s: %s", row->name, engine_diag.where, engine_diag.found);
            }
        }
    }
    assert_int_equal(others, 10); /* six comparisons, three orders, ctc_loss */
}

/* --- refusals --------------------------------------------------------------------------- */

typedef struct refusal {
    const char *kind;
    size_t inputs;
    sonde_nn_setting setting; /* key NULL: none */
    const char *line;
} refusal;

static void mistakes_are_told(void **state)
{
    static const refusal rows[] = {
        {"gelu_", 1, {.key = NULL}, "a: unknown layer 'gelu_' (expected gelu)"},
        {"zzzzzzzz", 1, {.key = NULL}, "a: unknown layer 'zzzzzzzz'"},
        {"gelu", 2, {.key = NULL}, "a: gelu with 2 inputs (expected 1)"},
        {"gelu", 0, {.key = NULL}, "a: gelu with 0 inputs (expected 1)"},
        {"gelu", 1, {.key = "alpha"}, "a: gelu has no key 'alpha'"},
        {"gelu", 1, {.key = "approximate"}, "a: approximate has 1 numbers"},
        {"gelu",
         1,
         {.key = "approximate", .word = "x"},
         "a: approximate is 'x' (expected none, tanh)"},
        {"elu", 1, {.key = "alpha", .word = "x"}, "a: alpha is 'x' (expected a number)"},
        {"elu", 1, {.key = "alpha", .count = 2}, "a: alpha has 2 numbers"},
        {"softshrink",
         1,
         {.key = "lambd", .values = {-1.0}},
         "a: lambd is -1 (expected 0 to inf)"},
        {"softshrink",
         1,
         {.key = "lambd", .values = {NAN}},
         "a: lambd is nan (expected 0 to inf)"},
        {"threshold",
         1,
         {.key = "value"},
         "a: threshold lacks a key (expected threshold)"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        sonde_nn_model *model = NULL;
        sonde_nn_value in[2] = {0, 0};

        must(sonde_nn_model_create(&model, &engine_diag));
        in[0] = in[1] = sonde_nn_input(model, SONDE_F32, 2, (int64_t[]){4, 8});
        assert_int_equal(sonde_nn_layer(model, rows[i].kind, "a", in, rows[i].inputs,
                                        &rows[i].setting,
                                        rows[i].setting.key != NULL ? 1 : 0),
                         0);
        expect_err(SONDE_EINVAL, sonde_nn_model_status(model, &engine_diag));
        expect_line(rows[i].line);
        sonde_nn_model_destroy(model);
    }
}

static void null_is_refused(void **state)
{
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0;

    (void)state;
    assert_int_equal(sonde_nn_layer(NULL, "gelu", "a", &x, 1, NULL, 0), 0);
    for (int what = 0; what < 5; what++) {
        must(sonde_nn_model_create(&model, &engine_diag));
        x = sonde_nn_input(model, SONDE_F32, 2, (int64_t[]){4, 8});
        x = what == 3 ? 0 : what == 4 ? UINT32_MAX : x;
        assert_int_equal(sonde_nn_layer(model, what == 0 ? NULL : "gelu", "a",
                                        what == 1 ? NULL : &x, 1, NULL,
                                        what == 2 ? 1 : 0),
                         0);
        expect_err(SONDE_EINVAL, sonde_nn_model_status(model, &engine_diag));
        sonde_nn_model_destroy(model);
    }
}

/* --- in jobs ---------------------------------------------------------------------------- */

static void jobs_have_them(void **state)
{
    static const char text[] = "model:\n"
                               "  input: [6]\n"
                               "  layers:\n"
                               "    - linear: {name: fc1, out_features: 5}\n"
                               "    - gelu: {name: act, approximate: tanh}\n"
                               "    - silu\n"
                               "    - layer_norm: {name: norm, normalized_shape: 5}\n"
                               "    - dropout: {p: 0.1}\n"
                               "    - leaky_relu: {negative_slope: 0.2}\n"
                               "    - linear: {name: fc2, out_features: 3}\n"
                               "  loss: cross_entropy\n";
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;

    (void)state;
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    assert_int_equal(sonde_nn_model_get_info(model).parameter_count, 6);
    assert_string_equal(sonde_nn_parameter(model, 2).name, "norm.weight");
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

/* Borders, windows, places; and a linear layer over the last dimension of four. */
static void jobs_have_images_and_places(void **state)
{
    static const char text[] =
        "model:\n"
        "  input: [2, 6, 8]\n"
        "  layers:\n"
        "    - pad: {pad: [1, 1], mode: reflect}\n"
        "    - interpolate: {scale_factor: 2, mode: bilinear}\n"
        "    - conv_transpose2d: {name: up, out_channels: 3, kernel_size: 2, stride: 2}\n"
        "    - adaptive_max_pool2d: {output_size: [5, 7]}\n"
        "    - linear: {name: fc1, out_features: 6}\n"
        "    - topk: {k: 4}\n"
        "    - reshape: {shape: [-1, 15, 4]}\n"
        "    - conv1d: {name: conv, out_channels: 4, kernel_size: 3}\n"
        "    - max_pool1d: {kernel_size: 2}\n"
        "    - flatten\n"
        "    - glu\n"
        "    - linear: {name: fc2, out_features: 3}\n"
        "  loss: cross_entropy\n";
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;

    (void)state;
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    assert_int_equal(sonde_nn_model_get_info(model).parameter_count, 8);
    assert_string_equal(sonde_nn_parameter(model, 0).name, "up.weight");
    assert_string_equal(sonde_nn_parameter(model, 2).name, "fc1.weight");
    assert_int_equal(sonde_nn_parameter(model, 2).view.shape[1], 7);
    assert_int_equal(sonde_nn_parameter(model, 6).view.shape[1], 2);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

/* ResNet-18 with a first convolution of 3 x 3 has 11,173,962 parameters for three channels
 * and 10 classes, and 1,152 fewer for one channel; 20 norms have 3 buffers each. */
static void resnet18_is_a_job(void **state)
{
    char path[512];
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    int64_t parameters = 0;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/../examples/resnet18.yaml",
                   getenv("SONDE_TEST_DIR"));
    must(sonde_nn_job_load(path, &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;

        parameters += sonde_view_count(&view);
    }
    assert_int_equal(parameters, 11173962 - 1152);
    assert_int_equal(sonde_nn_model_get_info(model).buffer_count, 20 * 3);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

/* --- the page --------------------------------------------------------------------------- */

static void add_key(char *line, size_t size, const sonde__op_field *field, bool first)
{
    const size_t length = strlen(line);
    char fallback[64] = "";

    if (field->kind == SONDE__FIELD_WORD) {
        (void)snprintf(fallback, sizeof fallback, " (%s", field->words[0]);
        for (int i = 1; i < (int)SONDE_COUNT_OF(field->words) && field->words[i] != NULL;
             i++) {
            const size_t at = strlen(fallback);

            (void)snprintf(fallback + at, sizeof fallback - at, ", %s", field->words[i]);
        }
        (void)strncat(fallback, ")", sizeof fallback - strlen(fallback) - 1);
    } else if (field->fallback_text != NULL) {
        (void)snprintf(fallback, sizeof fallback, " (%s)", field->fallback_text);
    } else if (field->kind == SONDE__FIELD_FLAG) {
        (void)snprintf(fallback, sizeof fallback, " (%s)",
                       field->fallback != 0.0 ? "true" : "false");
    } else if (isfinite(field->fallback)) {
        (void)snprintf(fallback, sizeof fallback, " (%g)", field->fallback);
    }
    (void)snprintf(line + length, size - length, "%s%s%s", first ? "" : ", ", field->key,
                   fallback);
}

static char *table_of_layers(void)
{
    static char table[32768];
    size_t length = 0;

    table[0] = '\0';
    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        const sonde__op_layer *row = sonde__op_layers[i];
        char keys[256] = "", inputs[24];

        (void)snprintf(inputs, sizeof inputs, row->optional > 0 ? "%d to %d" : "%d",
                       row->inputs, row->inputs + row->optional);

        for (int k = 0; k < sonde__op_field_count(row); k++) {
            add_key(keys, sizeof keys, &row->fields[k], k == 0);
        }
        length += (size_t)snprintf(table + length, sizeof table - length,
                                   "| %s | %s | %s%s| %s |\n", row->name, inputs, keys,
                                   keys[0] != '\0' ? " " : "", row->help);
        assert_true(length < sizeof table);
    }
    return table;
}

/* The page with the table in place of the one that it has; the caller frees it. */
static char *page_with_table(const char *page, const char *table)
{
    static const char mark[] = "<!-- layers -->\n"
                               "| layer | inputs | keys | output |\n|---|---|---|---|\n";
    const char *start = strstr(page, mark);
    const char *rest = NULL;
    char *made = NULL;
    const size_t size = strlen(page) + strlen(table) + 1;

    assert_non_null(start);
    start += strlen(mark);
    rest = strstr(start, "\n\n");
    rest = *start == '|' && rest != NULL ? rest + 1 : start;
    made = malloc(size);
    assert_non_null(made);
    (void)snprintf(made, size, "%.*s%s%s", (int)(start - page), page, table, rest);
    return made;
}

static void the_page_has_the_table(void **state)
{
    char path[512], *page = NULL, *wanted = NULL;
    FILE *file = NULL;
    size_t length = 0;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/../docs/jobs.md", getenv("SONDE_TEST_DIR"));
    file = fopen(path, "r");
    assert_non_null(file);
    page = calloc(1, 1 << 18);
    assert_non_null(page);
    length = fread(page, 1, (1 << 18) - 1, file);
    assert_in_range(length, 1, (1 << 18) - 2);
    (void)fclose(file);
    wanted = page_with_table(page, table_of_layers());
    if (getenv("FIX_DOCS") != NULL) {
        file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(wanted, file) >= 0);
        (void)fclose(file);
    } else {
        assert_string_equal(page, wanted); /* else: FIX_DOCS=1 tests_nn test_layers */
    }
    free(page);
    free(wanted);
}

/* A group of layers, several times, and one in another. */
static void jobs_have_groups(void **state)
{
    static const char text[] =
        "model:\n"
        "  input: [4]\n"
        "  layers:\n"
        "    - layers:\n"
        "        name: h\n"
        "        times: 2\n"
        "        layers:\n"
        "          - linear: {name: fc, out_features: 4}\n"
        "          - layers: {name: 0, from: input, layers: [{linear: {name: in, out_features: 4}}]}\n"
        "          - add: {name: sum, from: [fc, input]}\n"
        "    - linear: {name: out, out_features: 3}\n"
        "  loss: cross_entropy\n";
    static const char *const names[] = {
        "h.0.fc.weight", "h.0.fc.bias", "h.0.0.in.weight", "h.0.0.in.bias",
        "h.1.fc.weight", "h.1.fc.bias", "h.1.0.in.weight", "h.1.0.in.bias",
        "out.weight",    "out.bias"};
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;

    (void)state;
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    assert_int_equal(sonde_nn_model_get_info(model).parameter_count,
                     SONDE_COUNT_OF(names));
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        assert_string_equal(sonde_nn_parameter(model, i).name, names[i]);
    }
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

static void mistakes_of_groups(void **state)
{
    static const char *const rows[][2] = {
        {"- linaer: {name: a, out: 2}\n"
         "    - layers: {name: g, layers: [gellu]}\n",
         "job:4: unknown layer 'linaer', line 5 'gellu' (expected linear, gelu)"},
        {"- layers: {layers: [relu]}\n",
         "job:4: layers in a group without a name (expected name: NAME)"},
        {"- layers: {name: g}\n",
         "job:4: the model has no layers (expected layers: a list of 1 to 4096 layers)"},
        {"- layers: {name: g, times: 0, layers: [relu]}\n",
         "job:4: times is '0' (expected a whole number from 1 to 4096)"},
        {"- layers: {name: g, times: 4000, layers: [relu, relu]}\n",
         "job:4: more layers than that, all repeats counted (expected at most 4096)"},
        {"- layers: {name: g, dtype: bfloat16, layers: [relu]}\n",
         "job:4: unknown key 'dtype' (expected one of name, from, times, layers)"},
        {"- layers: {name: g, layers: [{relu: {name: r}}]}\n"
         "    - add: {from: [r, input]}\n",
         "job:5: from 'r' (expected the name of a layer before it, or input)"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        char text[512];
        sonde_nn_job *job = NULL;

        (void)snprintf(text, sizeof text,
                       "model:\n  input: [4]\n  layers:\n    %s  loss: "
                       "cross_entropy\n",
                       rows[i][0]);
        assert_int_not_equal(
            sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag), SONDE_OK);
        expect_line(rows[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_builds),
        cmocka_unit_test(every_row_that_trains_does_so_in_16_bits),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(jobs_have_them),
        cmocka_unit_test(jobs_have_groups),
        cmocka_unit_test(mistakes_of_groups),
        cmocka_unit_test(jobs_have_images_and_places),
        cmocka_unit_test(resnet18_is_a_job),
        cmocka_unit_test(the_page_has_the_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
