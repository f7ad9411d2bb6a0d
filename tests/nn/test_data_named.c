/*
 * test_data_named.c - data sets found by name: where they are looked for, and in what
 * order.
 */
#include "nn/data_files.h"

#include <sonde/nn/dataset.h>

#include <math.h>

static void expect_line(const sonde_diag *diag, const char *words)
{
    char line[SONDE_DIAG_LINE];

    if (strstr(sonde_diag_line(diag, line, sizeof line), words) == NULL) {
        fail_msg("'%s' lacks '%s'", line, words);
    }
}

static void write_named(const char *folder)
{
    char path[DATA_PATH];
    const char *const prefixes[2] = {"train", "t10k"};

    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte%s", folder,
                       prefixes[i], i ? "" : ".gz");
        data_write_images(path, 20 - i * 10, i == 0);
        (void)snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte.gz", folder,
                       prefixes[i]);
        data_write_labels(path, 20 - i * 10, 10, true);
    }
}

static void open_named(const char *dir, const char *source)
{
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (sonde_nn_dataset_open(dir,
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-mnist",
                                            .split = SONDE_NN_TEST),
                              &set, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 10);
    assert_non_null(strstr(sonde_nn_dataset_get_traits(set)->source, source));
    assert_string_equal(sonde_nn_dataset_class_name(set, 0), "T-shirt");
    assert_string_equal(sonde_nn_dataset_class_name(set, 9), "Ankle boot");
    sonde_nn_dataset_destroy(set);
}

/* dir before $SONDE_DATA before the cache; in each the folder itself and its sub-folder.
 */
static void names_are_looked_up_in_order(void **state)
{
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(unsetenv("SONDE_DATA"), 0);
    assert_int_equal(setenv("SONDE_CACHE", data_path("cache"), 1), 0);
    assert_int_equal(
        sonde_nn_dataset_open(
            NULL, SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-mnist"), &set, &diag),
        SONDE_ENOTFOUND);
    expect_line(&diag, "cache/data/fashion-mnist; try 'sonde data fetch fashion-mnist'");
    assert_int_equal(mkdir(data_path("cache"), 0777), 0);
    assert_int_equal(mkdir(data_path("cache/data"), 0777), 0);
    assert_int_equal(mkdir(data_path("cache/data/fashion-mnist"), 0777), 0);
    write_named(data_path("cache/data/fashion-mnist"));
    open_named(NULL, "cache/data/fashion-mnist");
    assert_int_equal(mkdir(data_path("env"), 0777), 0);
    assert_int_equal(mkdir(data_path("env/fashion-mnist"), 0777), 0);
    write_named(data_path("env/fashion-mnist"));
    assert_int_equal(setenv("SONDE_DATA", data_path("env"), 1), 0);
    open_named(NULL, "env/fashion-mnist/t10k");
    assert_int_equal(setenv("SONDE_DATA", data_path("env/fashion-mnist"), 1), 0);
    open_named(NULL, "env/fashion-mnist/t10k");
    assert_int_equal(mkdir(data_path("dir"), 0777), 0);
    assert_int_equal(
        sonde_nn_dataset_open(data_path("dir"),
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-mnist"),
                              &set, &diag),
        SONDE_ENOTFOUND); /* an explicit folder is the only one */
    write_named(data_path("dir"));
    open_named(data_path("dir"), "dir/t10k");
    assert_int_equal(unlink(data_path("dir/t10k-labels-idx1-ubyte.gz")), 0);
    assert_int_equal(
        sonde_nn_dataset_open(data_path("dir"),
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-mnist",
                                            .split = SONDE_NN_TEST),
                              &set, &diag),
        SONDE_ENOTFOUND);
    expect_line(&diag, "t10k-images-idx3-ubyte (expected labels beside it)");
    assert_int_equal(
        sonde_nn_dataset_open(NULL,
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "fashon-mnist",
                                            .split = SONDE_NN_TEST),
                              &set, &diag),
        SONDE_ENOTFOUND);
    expect_line(&diag, "'fashon-mnist' (expected fashion-mnist)");
}

static void the_cache_has_three_bases(void **state)
{
    char path[DATA_PATH], small[8];

    (void)state;
    assert_int_equal(unsetenv("SONDE_CACHE"), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", "/x", 1), 0);
    assert_int_equal(setenv("HOME", "/h", 1), 0);
    assert_int_equal(sonde_nn_data_cache("mnist", path, sizeof path, NULL), SONDE_OK);
    assert_string_equal(path, "/x/sonde/data/mnist");
    assert_int_equal(sonde_nn_data_cache("mnist", small, sizeof small, NULL),
                     SONDE_EINVAL);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(sonde_nn_data_cache("mnist", path, sizeof path, NULL), SONDE_OK);
    assert_string_equal(path, "/h/.cache/sonde/data/mnist");
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(sonde_nn_data_cache("mnist", path, sizeof path, NULL),
                     SONDE_ENOTFOUND);
    assert_string_equal(sonde_nn_dataset_name(0), "fashion-mnist");
    assert_string_equal(sonde_nn_dataset_name(2), "fashion-synth");
    assert_null(sonde_nn_dataset_name(3));
}

static sonde_err open_pair(void *user)
{
    sonde_nn_dataset *set = NULL;
    sonde_nn_dataset_info info;
    sonde_err err = sonde_nn_dataset_open(
        user, SONDE_OPTIONS(sonde_nn_dataset, .name = "mnist"), &set, NULL);

    if (err == SONDE_OK) {
        err = sonde_nn_dataset_describe(set, &info, NULL, NULL);
    }
    sonde_nn_dataset_destroy(set);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(mkdir(data_path("named"), 0777), 0);
    write_named(data_path("named"));
    assert_true(data_fail_allocations(open_pair, data_path("named")) > 15);
}

/* The public sets as they are, where somebody has them: $SONDE_DATA at the start. */
static char real_data[DATA_PATH];

static void public_sets_have_their_known_moments(void **state)
{
    static const struct {
        const char *name;
        double mean, std;
    } known[] = {{"fashion-mnist", 0.2860, 0.3530}, {"mnist", 0.1307, 0.3081}};

    (void)state;
    if (real_data[0] == '\0') {
        skip();
    }
    for (size_t i = 0; i < 2; i++) {
        sonde_nn_dataset *set = NULL;
        sonde_nn_dataset_info info;

        assert_int_equal(
            sonde_nn_dataset_open(real_data,
                                  SONDE_OPTIONS(sonde_nn_dataset, .name = known[i].name),
                                  &set, NULL),
            SONDE_OK);
        assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 60000);
        assert_int_equal(sonde_nn_dataset_describe(set, &info, NULL, NULL), SONDE_OK);
        assert_true(fabs(info.mean[0] - known[i].mean) < 5e-5);
        assert_true(fabs(info.std[0] - known[i].std) < 5e-5);
        sonde_nn_dataset_destroy(set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_looked_up_in_order),
        cmocka_unit_test(the_cache_has_three_bases),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(public_sets_have_their_known_moments),
    };
    const char *data = getenv("SONDE_DATA");

    (void)snprintf(real_data, sizeof real_data, "%s", data != NULL ? data : "");
    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
