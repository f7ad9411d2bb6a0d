/*
 * Comparing sets of weights: what differs, where, by how much, and whether rounding
 * explains it; names, shards, transposes, bad input.
 */
#include "trial/run_folder.h"

#include "alloc_failure.h"
#include "base/macros.h"

#include <sonde/diff.h>
#include <sonde/safetensors.h>

#include <math.h>
#include <stdint.h>

enum { ROWS = 6, COLUMNS = 4, COUNT = ROWS * COLUMNS, BIG = 3000001 };

static const int64_t shape[2] = {ROWS, COLUMNS};
static float values[COUNT];

static int begin(void **state)
{
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)(i + 1) / 7.0F;
    }
    return folder_make(state);
}

static const char *path_of(const char *name)
{
    static char paths[4][160];
    static int next;
    char *const path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
    return path;
}

static void save(const char *name, const sonde_named_view *tensors, size_t count)
{
    assert_int_equal(
        sonde_safetensors_write(path_of(name), tensors, count, NULL, 0, NULL), SONDE_OK);
}

static void save_one(const char *name, const char *tensor, sonde_view view)
{
    const sonde_named_view one = {tensor, view};

    save(name, &one, 1);
}

/* What was found of the only tensor that differs. */
typedef struct found {
    int count;
    sonde_difference one;
} found;

static bool keep(void *user, const sonde_difference *one)
{
    found *const f = user;

    f->count++;
    f->one = *one;
    return true;
}

static found compare_with(const char *a, const char *b, const sonde_diff_options *options,
                          sonde_diff_report *report)
{
    found f = {0};
    sonde_diff *diff = NULL;
    sonde_diff_report unused;

    assert_int_equal(sonde_diff_open(path_of(a), path_of(b), options, &diff, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_diff_run(diff, keep, &f, NULL), SONDE_OK);
    assert_int_equal(sonde_diff_run(diff, keep, &f, NULL), SONDE_ESTATE);
    sonde_diff_describe(diff, report != NULL ? report : &unused);
    sonde_diff_close(diff);
    return f;
}

static found compare(const char *a, const char *b)
{
    return compare_with(a, b, NULL, NULL);
}

static sonde_view matrix(float data[COUNT])
{
    return sonde_view_of(SONDE_F32, 2, shape, data);
}

/* Saves a.safetensors with values, and b.safetensors with values after one change. */
static void save_pair(int i, float value)
{
    float other[COUNT];

    memcpy(other, values, sizeof other);
    other[i] = value;
    save_one("a.safetensors", "w", matrix(values));
    save_one("b.safetensors", "w", matrix(other));
}

static void same(void **state)
{
    sonde_diff_report report;

    (void)state;
    save_pair(0, values[0]);
    assert_int_equal(compare_with("a.safetensors", "b.safetensors", NULL, &report).count,
                     0);
    assert_int_equal(report.places, 1);
    assert_int_equal(report.counts[SONDE_DIFF_SAME], 1);
    assert_int_equal(report.bytes, 2 * sizeof values);
}

static void one_element(void **state)
{
    (void)state;
    save_pair(9, 100.0F);
    const found f = compare("a.safetensors", "b.safetensors");

    assert_int_equal(f.count, 1);
    assert_int_equal(f.one.kind, SONDE_DIFF_BEYOND);
    assert_int_equal(f.one.differing, 1);
    assert_int_equal(f.one.at, 9);
    assert_true(f.one.a == (double)values[9] && f.one.b == 100.0);
    assert_true(f.one.largest == 100.0 - (double)values[9]);
}

static void last_bit_is_rounding(void **state)
{
    (void)state;
    save_pair(9, nextafterf(values[9], 100.0F));
    const found f = compare("a.safetensors", "b.safetensors");

    assert_int_equal(f.one.kind, SONDE_DIFF_ROUNDING);
    assert_int_equal(f.one.differing, 1);
    assert_true(f.one.relative < f.one.explained);
}

static void nan_is_beyond(void **state)
{
    (void)state;
    save_pair(3, NAN);
    const found f = compare("a.safetensors", "b.safetensors");

    assert_int_equal(f.one.kind, SONDE_DIFF_BEYOND);
    assert_int_equal(f.one.nonfinite, 1);
    assert_int_equal(f.one.differing, 1);
}

static void nan_in_both_is_same(void **state)
{
    float with_nan[COUNT];

    (void)state;
    memcpy(with_nan, values, sizeof with_nan);
    with_nan[5] = NAN;
    save_one("a.safetensors", "w", matrix(with_nan));
    with_nan[6] = nextafterf(with_nan[6], 100.0F);
    save_one("b.safetensors", "w", matrix(with_nan));
    const found f = compare("a.safetensors", "b.safetensors");

    assert_int_equal(f.one.kind, SONDE_DIFF_ROUNDING);
    assert_int_equal(f.one.nonfinite, 0);
}

static void zeros_of_both_signs(void **state)
{
    (void)state;
    values[4] = 0.0F;
    save_pair(4, -0.0F);
    const found f = compare("a.safetensors", "b.safetensors");

    assert_int_equal(f.count, 1); /* the bits differ, the value does not */
    assert_int_equal(f.one.kind, SONDE_DIFF_ROUNDING);
    assert_int_equal(f.one.differing, 0);
}

static void tolerance(void **state)
{
    const sonde_diff_options narrow = {
        .size = sizeof narrow, .tolerance = true, .rtol = 0.1};
    const sonde_diff_options wide = {
        .size = sizeof wide, .tolerance = true, .atol = 1000.0};

    (void)state;
    save_pair(9, 100.0F);
    assert_int_equal(
        compare_with("a.safetensors", "b.safetensors", &narrow, NULL).one.kind,
        SONDE_DIFF_BEYOND);
    assert_int_equal(compare_with("a.safetensors", "b.safetensors", &wide, NULL).one.kind,
                     SONDE_DIFF_ROUNDING);
}

static void short_floats(void **state)
{
    uint16_t half[COUNT];
    const sonde_view view = sonde_view_of(SONDE_BF16, 2, shape, half),
                     from = matrix(values);

    (void)state;
    assert_int_equal(sonde_view_copy(&view, &from, NULL), SONDE_OK);
    save_one("a.safetensors", "w", from);
    save_one("b.safetensors", "w", view);
    const found f = compare("a.safetensors", "b.safetensors");

    assert_int_equal(f.one.kind, SONDE_DIFF_ROUNDING);
    assert_int_equal(f.one.b_form.dtype, SONDE_BF16);
    assert_true(f.one.relative > 1e-4 && f.one.relative < 0.01);
}

static void integers_are_exact(void **state)
{
    int64_t a[2] = {INT64_C(1) << 60, 5}, b[2] = {(INT64_C(1) << 60) + 1, 5};
    const int64_t two = 2;

    (void)state;
    save_one("a.safetensors", "n", sonde_view_of(SONDE_I64, 1, &two, a));
    save_one("b.safetensors", "n", sonde_view_of(SONDE_I64, 1, &two, b));
    const found f = compare("a.safetensors", "b.safetensors");

    assert_int_equal(f.one.kind, SONDE_DIFF_BEYOND);
    assert_int_equal(f.one.differing, 1);
    assert_int_equal(f.one.at, 0);
}

static void other_shape(void **state)
{
    const int64_t flat = COUNT;

    (void)state;
    save_one("a.safetensors", "w", matrix(values));
    save_one("b.safetensors", "w", sonde_view_of(SONDE_F32, 1, &flat, values));
    assert_int_equal(compare("a.safetensors", "b.safetensors").one.kind,
                     SONDE_DIFF_SHAPE);
}

/* values, columns first. */
static sonde_view turned(float data[COUNT])
{
    static const int64_t swapped[2] = {COLUMNS, ROWS};

    for (int i = 0; i < COUNT; i++) {
        data[i % COLUMNS * ROWS + i / COLUMNS] = values[i];
    }
    return sonde_view_of(SONDE_F32, 2, swapped, data);
}

static void transposed(void **state)
{
    float data[COUNT];
    sonde_diff_report report;

    (void)state;
    save_one("a.safetensors", "w", matrix(values));
    save_one("b.safetensors", "w", turned(data));
    assert_int_equal(compare_with("a.safetensors", "b.safetensors", NULL, &report).count,
                     0);
    assert_int_equal(report.counts[SONDE_DIFF_SAME], 1);
    data[1] = 50.0F; /* [1, 0] of A */
    save_one("b.safetensors", "w",
             sonde_view_of(SONDE_F32, 2, (int64_t[]){COLUMNS, ROWS}, data));
    const found f = compare("a.safetensors", "b.safetensors");

    assert_true(f.one.transposed);
    assert_int_equal(f.one.at, COLUMNS);
}

/* Two files of a folder have the first rows and the others. */
static void save_parts(int first)
{
    char folder[200];

    (void)snprintf(folder, sizeof folder, "%s/parts", test_folder);
    (void)mkdir(folder, 0777);
    save_one("parts/0.safetensors", "w",
             sonde_view_of(SONDE_F32, 2, (int64_t[]){first, COLUMNS}, values));
    save_one("parts/1.safetensors", "w",
             sonde_view_of(SONDE_F32, 2, (int64_t[]){ROWS - first, COLUMNS},
                           values + (ptrdiff_t)first * COLUMNS));
}

static void shards(void **state)
{
    sonde_diff_report report;

    (void)state;
    save_parts(2);
    save_one("a.safetensors", "w", matrix(values));
    assert_int_equal(compare_with("a.safetensors", "parts", NULL, &report).count, 0);
    assert_int_equal(report.places, 1);
    assert_int_equal(compare("parts", "a.safetensors").count, 0);
    values[20] += 1.0F;
    save_one("a.safetensors", "w", matrix(values));
    const found f = compare("a.safetensors", "parts");

    assert_int_equal(f.one.kind, SONDE_DIFF_BEYOND);
    assert_int_equal(f.one.shards, 2);
    assert_int_equal(f.one.differing, 1);
}

static void names(void **state)
{
    const sonde_diff_options by_regex = {
        .size = sizeof by_regex, .rename = "^model\\.(.*)_x$", .to = "$1"};
    sonde_diff_options by_table = {.size = sizeof by_table};
    sonde_diff *diff = NULL;
    sonde_diag diag = {0};

    (void)state;
    save_one("a.safetensors", "w", matrix(values));
    save_one("b.safetensors", "model.w_x", matrix(values));
    assert_int_equal(
        compare_with("a.safetensors", "b.safetensors", &by_regex, NULL).count, 0);
    writer_text(test_folder, "table", "# names\n\n  w model.w_x\n");
    by_table.table = path_of("table");
    assert_int_equal(
        compare_with("a.safetensors", "b.safetensors", &by_table, NULL).count, 0);
    assert_int_equal(sonde_diff_open(path_of("a.safetensors"), path_of("b.safetensors"),
                                     NULL, &diff, &diag),
                     SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.found, "'model.w_x'"));
    writer_text(test_folder, "table", "w\n");
    by_table.table = path_of("table");
    assert_int_equal(sonde_diff_open(path_of("a.safetensors"), path_of("b.safetensors"),
                                     &by_table, &diff, &diag),
                     SONDE_EFORMAT);
}

static void only_in_one(void **state)
{
    const sonde_named_view two[2] = {{"w", matrix(values)}, {"v", matrix(values)}};
    sonde_diff_report report;

    (void)state;
    save("a.safetensors", two, 2);
    save_one("b.safetensors", "w", matrix(values));
    (void)compare_with("a.safetensors", "b.safetensors", NULL, &report);
    assert_int_equal(report.tensors, 1);
    assert_int_equal(report.tensors_only_a, 1);
    (void)compare_with("b.safetensors", "a.safetensors", NULL, &report);
    assert_int_equal(report.tensors_only_b, 1);
}

static void threads_change_nothing(void **state)
{
    float *const big = malloc(BIG * sizeof *big);
    const int64_t length = BIG;
    sonde_difference first = {0};

    (void)state;
    assert_non_null(big);
    for (int i = 0; i < BIG; i++) {
        big[i] = (float)(i % 1013) - 500.0F;
    }
    save_one("a.safetensors", "w", sonde_view_of(SONDE_F32, 1, &length, big));
    for (int i = 0; i < BIG; i += 3) {
        big[i] *= 1.0F + (float)(i % 7) * 1e-6F;
    }
    big[BIG - 1] = 7777.0F;
    save_one("b.safetensors", "w", sonde_view_of(SONDE_F32, 1, &length, big));
    free(big);
    for (int threads = 1; threads <= 5; threads += 2) {
        const sonde_diff_options options = {.size = sizeof options, .threads = threads};
        const found f = compare_with("a.safetensors", "b.safetensors", &options, NULL);

        assert_int_equal(f.one.at, BIG - 1);
        assert_true(threads == 1 || (f.one.relative == first.relative &&
                                     f.one.differing == first.differing));
        first = f.one;
    }
}

static void bad_input(void **state)
{
    const sonde_diff_options negative = {
        .size = sizeof negative, .tolerance = true, .rtol = -1.0};
    const sonde_diff_options regex = {.size = sizeof regex, .rename = "(", .to = ""};
    sonde_diff *diff = NULL;

    (void)state;
    save_pair(0, 1.0F);
    assert_int_equal(
        sonde_diff_open(path_of("no"), path_of("b.safetensors"), NULL, &diff, NULL),
        SONDE_ENOTFOUND);
    assert_int_equal(sonde_diff_open(path_of("a.safetensors"), path_of("b.safetensors"),
                                     &negative, &diff, NULL),
                     SONDE_EINVAL);
    assert_int_equal(sonde_diff_open(path_of("a.safetensors"), path_of("b.safetensors"),
                                     &regex, &diff, NULL),
                     SONDE_EINVAL);
    assert_int_equal(sonde_diff_open(NULL, path_of("b.safetensors"), NULL, &diff, NULL),
                     SONDE_EINVAL);
    assert_string_equal(sonde_diff_kind_name((sonde_diff_kind)9), "?");
    assert_false(sonde_diff_tensor_get(NULL, 0, NULL));
    assert_null(sonde_diff_only_b(NULL, 0));
    sonde_diff_close(NULL);
}

static void out_of_memory(void **state)
{
    sonde_diff_options options = {.size = sizeof options, .rename = "x", .to = "y"};

    (void)state;
    save_pair(2, 1.5F);
    writer_text(test_folder, "table", "w w\n");
    options.table = path_of("table");
    for (size_t n = 0;; n++) {
        sonde_diff *diff = NULL;
        char a[160], b[160];

        (void)snprintf(a, sizeof a, "%s/a.safetensors", test_folder);
        (void)snprintf(b, sizeof b, "%s/b.safetensors", test_folder);
        alloc_failure_begin(n);
        sonde_err err = sonde_diff_open(a, b, &options, &diff, NULL);
        err = err == SONDE_OK ? sonde_diff_run(diff, NULL, NULL, NULL) : err;
        sonde_diff_close(diff);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same, begin, folder_remove),
        cmocka_unit_test_setup_teardown(one_element, begin, folder_remove),
        cmocka_unit_test_setup_teardown(last_bit_is_rounding, begin, folder_remove),
        cmocka_unit_test_setup_teardown(nan_is_beyond, begin, folder_remove),
        cmocka_unit_test_setup_teardown(nan_in_both_is_same, begin, folder_remove),
        cmocka_unit_test_setup_teardown(zeros_of_both_signs, begin, folder_remove),
        cmocka_unit_test_setup_teardown(tolerance, begin, folder_remove),
        cmocka_unit_test_setup_teardown(short_floats, begin, folder_remove),
        cmocka_unit_test_setup_teardown(integers_are_exact, begin, folder_remove),
        cmocka_unit_test_setup_teardown(other_shape, begin, folder_remove),
        cmocka_unit_test_setup_teardown(transposed, begin, folder_remove),
        cmocka_unit_test_setup_teardown(shards, begin, folder_remove),
        cmocka_unit_test_setup_teardown(names, begin, folder_remove),
        cmocka_unit_test_setup_teardown(only_in_one, begin, folder_remove),
        cmocka_unit_test_setup_teardown(threads_change_nothing, begin, folder_remove),
        cmocka_unit_test_setup_teardown(bad_input, begin, folder_remove),
        cmocka_unit_test_setup_teardown(out_of_memory, begin, folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
