/*
 * test_data_table.c - tables in CSV as data sets.
 */
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/job.h>
#include <sonde/nn/trainer.h>

#include <errno.h>
#include <locale.h>
#include <math.h>

static void write_table(const char *name, const char *text)
{
    data_write(data_path(name), text, strlen(text));
}

/* Two files: the split is given. Rows of train have a mean 3 and a spread 1 in a. */
static void write_pair(void)
{
    assert_true(mkdir(data_path("pair"), 0700) == 0 || errno == EEXIST);
    write_table("pair/train.csv", "a,color,,y\n"
                                  "2,red,9,0.5\n"
                                  "4,\"dark, \"\"blue\"\"\",9,1.5\n"
                                  ",red,9,2.5\n");
    write_table("pair/test.csv", "a,color,,y\r\n"
                                 "5,red,7,-1\r\n"
                                 "3,green,7,1e-1\r\n");
}

static void expect_row(const sonde_nn_dataset *set, int64_t row, const float *wanted,
                       int64_t count)
{
    sonde_nn_sample sample;

    must(sonde_nn_dataset_get(set, row, NULL, &sample, &engine_diag));
    for (int64_t i = 0; i < count; i++) {
        const float have = ((const float *)sample.data)[i];

        if (have != wanted[i]) {
            fail_msg("row %d, column %d: %g instead of %g", (int)row, (int)i,
                     (double)have, (double)wanted[i]);
        }
    }
}

/* --- what is read --------------------------------------------------------------------- */

static void the_training_rows_set_the_scale(void **state)
{
    static const float train[3][3] = {{-1, 0, 1}, {1, 1, 0}, {0, 0, 1}};
    static const float test[2][3] = {{2, 0, 1}, {0, 0, 0}};
    sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_TABLE, .numbers = true};
    sonde_nn_dataset *set = NULL;
    const sonde_nn_dataset_traits *traits = NULL;

    (void)state;
    write_pair();
    assert_true(sonde_nn_data_kind_at(data_path("pair")) == SONDE_NN_DATA_TABLE);
    must(sonde_nn_dataset_open(data_path("pair"), &options, &set, &engine_diag));
    traits = sonde_nn_dataset_get_traits(set);
    assert_int_equal(traits->count, 3);
    assert_int_equal(traits->rank, 1);
    assert_int_equal(traits->shape[0], 3); /* a, dark "blue", red */
    assert_true(traits->ready && traits->has_target);
    for (int64_t i = 0; i < 3; i++) {
        expect_row(set, i, train[i], 3);
    }
    sonde_nn_dataset_destroy(set);
    options.split = SONDE_NN_TEST;
    must(sonde_nn_dataset_open(data_path("pair"), &options, &set, &engine_diag));
    for (int64_t i = 0; i < 2; i++) {
        expect_row(set, i, test[i], 3);
    }
    sonde_nn_dataset_destroy(set);
}

static void texts_name_classes(void **state)
{
    static const char *const input = "a";
    sonde_nn_dataset_options options = {.size = sizeof options,
                                        .kind = SONDE_NN_DATA_TABLE,
                                        .inputs = &input,
                                        .input_count = 1,
                                        .target = "color",
                                        .no_standardize = true};
    sonde_nn_dataset *set = NULL;

    (void)state;
    write_pair();
    must(sonde_nn_dataset_open(data_path("pair"), &options, &set, &engine_diag));
    assert_int_equal(sonde_nn_dataset_get_traits(set)->classes, 3); /* of both files */
    assert_string_equal(sonde_nn_dataset_class_name(set, 0), "dark, \"blue\"");
    sonde_nn_dataset_destroy(set);
}

/* In a locale with a decimal comma, numbers still have a point; columns may be parted by
 * semicolons. */
static void locales_change_nothing(void **state)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_TABLE,
                                              .target = "",
                                              .no_standardize = true,
                                              .test_share = 0.5};
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C"};
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample;

    (void)state;
    write_table("semi.csv", "\xEF\xBB\xBF"
                            "b;c\n0.5;1\n\n0.5;1");
    for (size_t i = 0; i < 3; i++) {
        (void)setlocale(LC_ALL, locales[i]); /* where it is installed */
        must(sonde_nn_dataset_open(data_path("semi.csv"), &options, &set, &engine_diag));
        must(sonde_nn_dataset_get(set, 0, NULL, &sample, &engine_diag));
        assert_true(((const float *)sample.data)[0] == 0.5F);
        sonde_nn_dataset_destroy(set);
    }
}

/* Every row is in one of the splits; the scale is that of the training rows. */
static void a_split_is_drawn(void **state)
{
    sonde_nn_dataset_options options = {.size = sizeof options,
                                        .kind = SONDE_NN_DATA_TABLE,
                                        .target = "y",
                                        .test_share = 0.25,
                                        .seed = 3};
    char text[2000] = "x,y\n";
    int64_t counts[40] = {0};
    double sum = 0.0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%d,%d\n", i * i,
                       i);
    }
    write_table("squares.tsv", text);
    write_table("squares.csv", text);
    for (int split = 0; split < 2; split++) {
        sonde_nn_dataset *set = NULL;

        options.split = (sonde_nn_split)split;
        must(sonde_nn_dataset_open(data_path("squares.csv"), &options, &set,
                                   &engine_diag));
        assert_int_equal(sonde_nn_dataset_get_traits(set)->count, split == 0 ? 30 : 10);
        for (int64_t i = 0; i < sonde_nn_dataset_get_traits(set)->count; i++) {
            sonde_nn_sample sample;

            must(sonde_nn_dataset_get(set, i, NULL, &sample, &engine_diag));
            counts[sample.label]++;
            sum += split == 0 ? (double)*(const float *)sample.data : 0.0;
        }
        sonde_nn_dataset_destroy(set);
    }
    for (int i = 0; i < 40; i++) {
        assert_int_equal(counts[i], 1);
    }
    assert_true(fabs(sum) < 1e-4);
}

/* --- mistakes ------------------------------------------------------------------------- */

static void expect_refused(const char *text, const char *target, sonde_err wanted,
                           const char *line)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_TABLE,
                                              .target = target,
                                              .numbers = true};
    char expected[512];
    sonde_nn_dataset *set = NULL;

    write_table("bad.csv", text);
    engine_diag = (sonde_diag){0};
    expect_err(wanted,
               sonde_nn_dataset_open(data_path("bad.csv"), &options, &set, &engine_diag));
    (void)snprintf(expected, sizeof expected, "%s/bad.csv%s", data_folder, line);
    expect_line(expected);
}

static void mistakes_have_a_line_and_a_column(void **state)
{
    (void)state;
    expect_refused("", "y", SONDE_EFORMAT,
                   ": the table is empty (expected a line with the names of the "
                   "columns)");
    expect_refused("x,y\n1,2\n3\n", "y", SONDE_EFORMAT,
                   ":3: column 1: only 1 cells (expected as many as the header has)");
    expect_refused("x,y\n1,2,3\n", "y", SONDE_EFORMAT,
                   ":2: column 2: more than 2 (expected as many as the header has)");
    expect_refused("x,y\n1,\"2\n", "y", SONDE_EFORMAT,
                   ":2: column 2: a quote without an end (expected a second quote)");
    expect_refused("x,y\n1,\xC3(\n", "y", SONDE_EFORMAT,
                   ":2:3: byte 0xc3 is no character (expected UTF-8)");
    expect_refused("x,y\n1,2\n\n3,NA\n", "y", SONDE_EFORMAT,
                   ":4: column 2 (y): the target is missing (expected a value)");
    expect_refused("x,y\n1,2\n3,1e999\n", "y", SONDE_EFORMAT,
                   ":3: column 2 (y): '1e999' (expected a finite number)");
    expect_refused("x,y\n1,2\n-inf,3\n4,5\n", "y", SONDE_EFORMAT,
                   ":3: column 1 (x): '-inf' (expected a finite number)");
    expect_refused("x,y\n1,2\n1e999,3\n4,5\n", "y", SONDE_EFORMAT,
                   ":3: column 1 (x): '1e999' (expected a finite number)");
    expect_refused("x,x\n1,2\n", "x", SONDE_EFORMAT,
                   ":1: column 2: a second column 'x' (expected different names)");
    expect_refused("x,y\n1,2\n3,4\n", "z", SONDE_ENOTFOUND,
                   ": no column 'z' (expected x, y)");
    expect_refused("y\n1\n2\n", "y", SONDE_EINVAL,
                   ": the table has no inputs (expected a column besides the target)");
    expect_refused("x,y\n1,2\n", "y", SONDE_ERANGE,
                   ": 1 rows for two splits (expected at least 2)");
}

static void a_column_of_names_is_refused(void **state)
{
    const size_t size = 64 * 1024;
    char *text = calloc(1, size);
    size_t used = 0;

    (void)state;
    assert_non_null(text);
    used = (size_t)snprintf(text, size, "name,y\n");
    for (int i = 0; i < 400; i++) {
        used += (size_t)snprintf(text + used, size - used, "n%d,1\n", i);
    }
    expect_refused(text, "y", SONDE_ERANGE,
                   ": column 'name' has 360 different texts (expected at most 256 "
                   "categories: name the inputs without this column)");
    free(text);
}

static sonde_err open_pair(void *user)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_TABLE,
                                              .target = user,
                                              .split = SONDE_NN_TEST};
    char path[DATA_PATH];
    sonde_nn_dataset *set = NULL;
    sonde_err err = SONDE_OK;

    (void)snprintf(path, sizeof path, "%s/pair", data_folder);
    err = sonde_nn_dataset_open(path, &options, &set, NULL);
    sonde_nn_dataset_destroy(set);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    char target[] = "color";

    (void)state;
    write_pair();
    assert_true(data_fail_allocations(open_pair, target) > 20);
}

/* --- training ------------------------------------------------------------------------- */

static void a_job_learns_a_table(void **state)
{
    static const char job_text[] = "model:\n"
                                   "  input: [4]\n"
                                   "  layers:\n"
                                   "    - linear: {name: fc, out_features: 1}\n"
                                   "  loss: {mse_loss: {target: values}}\n"
                                   "data: {target: price}\n"
                                   "optimizer: {kind: adam, learning_rate: 0.1}\n"
                                   "rules: none\n"
                                   "options: {epochs: 60, batch_size: 10}\n";
    static const char *const colors[] = {"red", "green", "blue"};
    static char path[DATA_PATH];
    const sonde_nn_trainer_options options = {.size = sizeof options,
                                              .no_evaluation = true};
    FILE *file = NULL;
    sonde_nn_trainer *trainer = NULL;
    sonde_nn_job *job = NULL;
    double loss = 1.0;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/prices.csv", data_folder);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = -1; i < 200; i++) {
        assert_true((i < 0 ? fprintf(file, "size,color,price\n")
                           : fprintf(file, "%d,%s,%d\n", i % 13, colors[i % 3],
                                     i % 13 / 2 + 2 * (i % 3))) > 0);
    }
    assert_int_equal(fclose(file), 0);
    must(sonde_nn_job_parse(job_text, sizeof job_text - 1, "table", &job, &engine_diag));
    must(sonde_nn_job_set(job, "data", path, &engine_diag));
    must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
    must(sonde_nn_trainer_run(trainer, &engine_diag));
    must(sonde_nn_session_loss(sonde_nn_trainer_get_info(trainer).session, &loss,
                               &engine_diag));
    assert_true(loss < 0.2); /* half numbers are rounded down */
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_job_destroy(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_training_rows_set_the_scale),
        cmocka_unit_test(texts_name_classes),
        cmocka_unit_test(locales_change_nothing),
        cmocka_unit_test(a_split_is_drawn),
        cmocka_unit_test(mistakes_have_a_line_and_a_column),
        cmocka_unit_test(a_column_of_names_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_job_learns_a_table),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
