/*
 * test_data_parquet.c - tables in Parquet, which Python reads, against the same table in CSV;
 * the files are of pyarrow, fastparquet and polars (tests/python/make_table_golden.py).
 * Skipped without the Python package pyarrow.
 */
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/dataset.h>

static char *golden(const char *name)
{
    static char paths[2][DATA_PATH];
    static int next;
    char *path = paths[next++ % 2];

    (void)snprintf(path, sizeof paths[0], "%s/golden/tables/%s", getenv("SONDE_TEST_DIR"),
                   name);
    return path;
}

/* Whether Python has pyarrow; the cache is the test's folder. */
static bool has_pyarrow(void)
{
    sonde_nn_contents *contents = NULL;
    const sonde_err err = sonde_nn_contents_open(golden("fast.parquet"), SONDE_NN_TRAIN,
                                                 &contents, &engine_diag);

    sonde_nn_contents_destroy(contents);
    return err == SONDE_OK || err != SONDE_ENOTFOUND;
}

/* All rows: of both splits. */
static sonde_nn_dataset *open_rows(const char *path, const char *target,
                                   sonde_nn_split split, bool numbers)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_TABLE,
                                              .target = target,
                                              .numbers = numbers,
                                              .split = split,
                                              .test_share = 0.25,
                                              .seed = 5};
    sonde_nn_dataset *set = NULL;

    must(sonde_nn_dataset_open(path, &options, &set, &engine_diag));
    return set;
}

static void expect_same(const char *path, const char *other, const char *target,
                        bool numbers)
{
    for (int split = 0; split < 2; split++) {
        sonde_nn_dataset *a = open_rows(path, target, (sonde_nn_split)split, numbers);
        sonde_nn_dataset *b = open_rows(other, target, (sonde_nn_split)split, numbers);
        const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(a);
        const size_t bytes = (size_t)traits->shape[0] * sizeof(float);

        assert_int_equal(traits->count, sonde_nn_dataset_get_traits(b)->count);
        assert_int_equal(traits->shape[0], sonde_nn_dataset_get_traits(b)->shape[0]);
        assert_int_equal(traits->classes, sonde_nn_dataset_get_traits(b)->classes);
        for (int64_t i = 0; i < traits->count; i++) {
            sonde_nn_sample one, two;

            must(sonde_nn_dataset_get(a, i, NULL, &one, &engine_diag));
            must(sonde_nn_dataset_get(b, i, NULL, &two, &engine_diag));
            if (memcmp(one.data, two.data, bytes) != 0 || one.label != two.label) {
                fail_msg("%s: row %d differs", path, (int)i);
            }
        }
        sonde_nn_dataset_destroy(a);
        sonde_nn_dataset_destroy(b);
    }
}

static void every_writer_means_the_same_table(void **state)
{
    static const char *const names[] = {"arrow_snappy", "fast", "polars"};
    char name[64], csv[DATA_PATH];

    (void)state;
    (void)snprintf(csv, sizeof csv, "%s", golden("table.csv"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(name, sizeof name, "%s.parquet", names[i]);
        assert_true(sonde_nn_data_kind_at(golden(name)) == SONDE_NN_DATA_TABLE);
        expect_same(golden(name), csv, "storeys", false);
        expect_same(golden(name), csv, "balcony", false);
        expect_same(golden(name), csv, "price", true);
    }
}

/* --- types ---------------------------------------------------------------------------- */

static void expect_column(const char *column, const float wanted[4])
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_TABLE,
                                              .inputs = &column,
                                              .input_count = 1,
                                              .target = "",
                                              .no_standardize = true};
    char path[DATA_PATH];
    sonde_nn_dataset *set = NULL;

    (void)snprintf(path, sizeof path, "%s/types", data_folder);
    must(sonde_nn_dataset_open(path, &options, &set, &engine_diag));
    for (int64_t i = 0; i < 4; i++) {
        sonde_nn_sample sample;
        float have = 0.0F;

        must(sonde_nn_dataset_get(set, i, NULL, &sample, &engine_diag));
        have = ((const float *)sample.data)[0];
        if (have != wanted[i]) {
            fail_msg("%s, row %d: %g instead of %g", column, (int)i, (double)have,
                     (double)wanted[i]);
        }
    }
    sonde_nn_dataset_destroy(set);
}

static void copy_golden(const char *name, const char *to)
{
    size_t size = 0;
    unsigned char *bytes = data_read(golden(name), &size);

    data_write(data_path(to), bytes, size);
    free(bytes);
}

/* In a folder, the rows are not drawn. */
static void logical_types_are_numbers_or_texts(void **state)
{
    const float mean = (float)((1.25 - 3.5 + 12345678901.5) / 3.0);

    (void)state;
    assert_int_equal(mkdir(data_path("types"), 0700), 0);
    copy_golden("types.parquet", "types/train.parquet");
    copy_golden("types.parquet", "types/test.parquet");
    expect_column("decimal", (const float[]){1.25F, -3.5F, mean, 12345678901.5F});
    expect_column("half", (const float[]){0.5F, 1.0F, 2.0F, -3.0F});
    expect_column("unsigned", (const float[]){0.0F, 1.0F, 2.0F, 4294967296.0F});
    expect_column("long", (const float[]){0.0F, 1.0F, 2.0F, 18446744073709551616.0F});
    expect_column("byte", (const float[]){-128.0F, 1.0F, 2.0F, 127.0F});
    expect_column("date", (const float[]){0.0F, 1.0F, 2.0F, 3.0F});
    expect_column("time", (const float[]){0.0F, 1.0F, 2.0F, 3.0F});
    expect_column("binary", (const float[]){1.0F, 0.0F, 0.0F, 1.0F});
    expect_column("nothing", (const float[]){0.0F, 0.0F, 0.0F, 0.0F});
    expect_column("word", (const float[]){1.0F, 0.0F, 1.0F, 0.0F});
}

/* --- mistakes ------------------------------------------------------------------------- */

static void expect_refused(const char *path, const char *input, const char *target,
                           sonde_err wanted, const char *line)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_TABLE,
                                              .inputs = &input,
                                              .input_count = input != NULL ? 1 : 0,
                                              .target = target,
                                              .numbers = true};
    char expected[900];
    sonde_nn_dataset *set = NULL;

    engine_diag = (sonde_diag){0};
    expect_err(wanted, sonde_nn_dataset_open(path, &options, &set, &engine_diag));
    (void)snprintf(expected, sizeof expected, "%s%s", path, line);
    expect_line(expected);
}

static void what_is_not_read_is_refused_with_its_reason(void **state)
{
    (void)state;
    expect_refused(golden("empty.parquet"), "size", "price", SONDE_ERANGE,
                   ": 0 rows for two splits (expected at least 2)");
    expect_refused(golden("mixed.parquet"), "list", "x", SONDE_ENOTFOUND,
                   ": no column 'list' (expected x, inf, y)");
    expect_refused(golden("mixed.parquet"), "inf", "x", SONDE_EFORMAT,
                   ":3: column 2 (inf): 'inf' (expected a finite number)");
    expect_refused(golden("mixed.parquet"), "x", "y", SONDE_EFORMAT,
                   ":3: column 3 (y): the target is missing (expected a value)");
    expect_refused(golden("polars.parquet"), "size", "heat", SONDE_EFORMAT,
                   ":2: column 3 (heat): the target is missing (expected a value)");
}

static void expect_folder_refused(const char *folder, sonde_err wanted)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_TABLE};
    sonde_nn_dataset *set = NULL;

    expect_err(wanted,
               sonde_nn_dataset_open(data_path(folder), &options, &set, &engine_diag));
}

static void folders_hold_a_table_a_split(void **state)
{
    (void)state;
    assert_int_equal(mkdir(data_path("two"), 0700), 0);
    copy_golden("table.csv", "two/test.csv");
    copy_golden("fast.parquet", "two/train.parquet");
    expect_same(data_path("two"), data_path("two"), "storeys", false);
    assert_int_equal(unlink(data_path("two/test.csv")), 0);
    expect_folder_refused("two", SONDE_ENOTFOUND);
    copy_golden("types.parquet", "two/test.parquet");
    expect_folder_refused("two", SONDE_ESHAPE);
}

/* --- contents ------------------------------------------------------------------------- */

static void contents_have_kinds_and_statistics(void **state)
{
    sonde_nn_contents *contents = NULL;
    const sonde_nn_part *part = NULL;

    (void)state;
    must(sonde_nn_contents_open(golden("polars.parquet"), SONDE_NN_TRAIN, &contents,
                                &engine_diag));
    part = &contents->parts[2];
    assert_string_equal(part->name, "heat");
    assert_true(part->kind == SONDE_NN_PART_TEXTS);
    assert_true(part->different == 3 && part->missing == 13 && part->shape[0] == 90);
    part = &contents->parts[3];
    assert_true(part->kind == SONDE_NN_PART_NUMBERS && part->missing == 0);
    assert_true(part->minimum == 0.0 && part->maximum == 1.0);
    assert_int_equal(contents->count, 9);
    sonde_nn_contents_destroy(contents);
    expect_err(SONDE_EFORMAT,
               sonde_nn_contents_open(golden("mixed.parquet"), SONDE_NN_TRAIN, &contents,
                                      &engine_diag));
}

/* A file is converted once; a damaged one never. */
static void the_cache_holds_a_table(void **state)
{
    sonde_nn_contents *contents = NULL;

    (void)state;
    copy_golden("fast.parquet", "kept.parquet");
    must(sonde_nn_contents_open(data_path("kept.parquet"), SONDE_NN_TRAIN, &contents,
                                &engine_diag));
    sonde_nn_contents_destroy(contents);
    assert_int_equal(setenv("SONDE_PYTHON", "/nowhere/python", 1), 0);
    must(sonde_nn_contents_open(data_path("kept.parquet"), SONDE_NN_TRAIN, &contents,
                                &engine_diag));
    sonde_nn_contents_destroy(contents);
    data_write(data_path("kept.parquet"), "PAR1", 4);
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_contents_open(data_path("kept.parquet"), SONDE_NN_TRAIN,
                                      &contents, &engine_diag));
}

/* The tables are converted anew, into the test's folder. */
static int make_cache(void **state)
{
    return data_folder_make(state) == 0 ? setenv("SONDE_CACHE", data_folder, 1) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_writer_means_the_same_table),
        cmocka_unit_test(logical_types_are_numbers_or_texts),
        cmocka_unit_test(what_is_not_read_is_refused_with_its_reason),
        cmocka_unit_test(folders_hold_a_table_a_split),
        cmocka_unit_test(contents_have_kinds_and_statistics),
        cmocka_unit_test(the_cache_holds_a_table),
    };

    void *state = NULL;

    if (make_cache(&state) != 0) {
        return 1;
    }
    if (!has_pyarrow()) {
        (void)data_folder_remove(&state);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, data_folder_remove);
}
