/*
 * test_data_parquet.c - tables in Parquet against the same table in CSV; the files are of
 * pyarrow, fastparquet and polars (tests/python/make_table_golden.py).
 */
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/dataset.h>

#include "nn/data/parquet.h"
#include "nn/data/snappy.h"

static char *golden(const char *name)
{
    static char paths[2][DATA_PATH];
    static int next;
    char *path = paths[next++ % 2];

    (void)snprintf(path, sizeof paths[0], "%s/golden/tables/%s", getenv("SONDE_TEST_DIR"),
                   name);
    return path;
}

/* All rows: of both splits. */
static sonde_nn_dataset *open_rows(const char *path, const char *target,
                                   sonde_nn_split split, bool numbers)
{
    const sonde_nn_table_options options = {.size = sizeof options,
                                            .target = target,
                                            .numbers = numbers,
                                            .split = split,
                                            .test_share = 0.25,
                                            .seed = 5};
    sonde_nn_dataset *set = NULL;

    must(sonde_nn_dataset_open_table(path, &options, &set, &engine_diag));
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
    static const char *const names[] = {
        "arrow_snappy", "arrow_pages", "arrow_gzip",  "arrow_zstd", "arrow_delta",
        "arrow_prefix", "fast",        "fast_groups", "polars",     "polars_snappy"};
    char name[64], csv[DATA_PATH];

    (void)state;
    (void)snprintf(csv, sizeof csv, "%s", golden("table.csv"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(name, sizeof name, "%s.parquet", names[i]);
        assert_true(sonde_nn_dataset_is_table(golden(name)));
        expect_same(golden(name), csv, "storeys", false);
        expect_same(golden(name), csv, "balcony", false);
        expect_same(golden(name), csv, "price", true);
    }
}

/* --- types ---------------------------------------------------------------------------- */

static void expect_column(const char *column, const float wanted[4])
{
    const sonde_nn_table_options options = {.size = sizeof options,
                                            .inputs = &column,
                                            .input_count = 1,
                                            .target = "",
                                            .no_standardise = true};
    char path[DATA_PATH];
    sonde_nn_dataset *set = NULL;

    (void)snprintf(path, sizeof path, "%s/types", data_folder);
    must(sonde_nn_dataset_open_table(path, &options, &set, &engine_diag));
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
    const sonde_nn_table_options options = {.size = sizeof options,
                                            .inputs = &input,
                                            .input_count = input != NULL ? 1 : 0,
                                            .target = target,
                                            .numbers = true};
    char expected[900];
    sonde_nn_dataset *set = NULL;

    engine_diag = (sonde_diag){0};
    expect_err(wanted, sonde_nn_dataset_open_table(path, &options, &set, &engine_diag));
    (void)snprintf(expected, sizeof expected, "%s%s", path, line);
    expect_line(expected);
}

static void what_is_not_read_is_refused_with_its_reason(void **state)
{
    (void)state;
    expect_refused(golden("empty.parquet"), "size", "price", SONDE_ERANGE,
                   ": 0 rows for two splits (expected at least 2)");
    expect_refused(
        golden("lz4.parquet"), "size", "price", SONDE_EUNSUPPORTED,
        ": column 'size', row group 0: packed by codec 7 (LZ4) (expected none, "
        "Snappy, gzip or Zstandard)");
    expect_refused(
        golden("encrypted.parquet"), NULL, "price", SONDE_EUNSUPPORTED,
        ": the Parquet file is encrypted (expected a file without encryption)");
    expect_refused(golden("encrypted_column.parquet"), "size", "", SONDE_EUNSUPPORTED,
                   ": column 'size' is encrypted (expected numbers or texts: name the "
                   "inputs without this column)");
    expect_refused(
        golden("int96.parquet"), NULL, "y", SONDE_EUNSUPPORTED,
        ": column 't' is of 96-bit timestamps (expected numbers or texts: name "
        "the inputs without this column)");
    expect_refused(
        golden("mixed.parquet"), "list", "x", SONDE_EUNSUPPORTED,
        ": column 'list' is nested (expected numbers or texts: name the inputs "
        "without this column)");
    expect_refused(golden("mixed.parquet"), "record", "x", SONDE_EUNSUPPORTED,
                   ": column 'record' is nested (expected numbers or texts: name the "
                   "inputs without this column)");
    expect_refused(
        golden("mixed.parquet"), "id", "x", SONDE_EUNSUPPORTED,
        ": column 'id' is of binary values (expected numbers or texts: name the "
        "inputs without this column)");
    expect_refused(golden("mixed.parquet"), "inf", "x", SONDE_EFORMAT,
                   ": row 1, column 'inf': inf (expected a finite number)");
    expect_refused(
        golden("mixed.parquet"), "bytes", "x", SONDE_EFORMAT,
        ": column 'bytes', row group 0: row 1 holds other bytes (expected texts "
        "in UTF-8)");
    expect_refused(golden("mixed.parquet"), "x", "y", SONDE_EFORMAT,
                   ": row 1, column 'y': the target is missing (expected a value)");
    expect_refused(golden("table.csv"), "size", "none", SONDE_ENOTFOUND,
                   ": no column 'none' (expected size, area, heat, balcony, storeys, "
                   "price, rooms, lift, all)");
    expect_refused(golden("polars.parquet"), "size", "heat", SONDE_EDTYPE,
                   ": target 'heat' is text (expected a column of numbers, or a loss of "
                   "classes)");
}

static void expect_folder_refused(const char *folder, sonde_err wanted)
{
    const sonde_nn_table_options options = {.size = sizeof options};
    sonde_nn_dataset *set = NULL;

    expect_err(wanted, sonde_nn_dataset_open_table(data_path(folder), &options, &set,
                                                   &engine_diag));
}

static void both_tables_have_one_form(void **state)
{
    (void)state;
    assert_int_equal(mkdir(data_path("two"), 0700), 0);
    copy_golden("table.csv", "two/test.csv");
    copy_golden("fast.parquet", "two/train.parquet");
    expect_folder_refused("two", SONDE_EUNSUPPORTED);
    assert_int_equal(unlink(data_path("two/test.csv")), 0);
    copy_golden("polars.parquet", "two/test.parquet");
    expect_same(data_path("two"), data_path("two"), "storeys", false);
    copy_golden("types.parquet", "two/test.parquet");
    expect_folder_refused("two", SONDE_ESHAPE);
}

static sonde_err ignore_value(void *user, int64_t row,
                              const sonde__data_parquet_value *value, sonde_diag *diag)
{
    (void)user;
    (void)row;
    (void)value;
    (void)diag;
    return SONDE_OK;
}

static sonde_err read_all(const unsigned char *bytes, size_t size)
{
    sonde__data_parquet file;
    sonde_err err = SONDE_OK;

    engine_diag = (sonde_diag){0};
    err = sonde__data_parquet_open(&file, bytes, size, "damaged", &engine_diag);
    for (size_t i = 0; i < file.count && err == SONDE_OK; i++) {
        err = sonde__data_parquet_read(&file, i, ignore_value, NULL, &engine_diag);
    }
    sonde__data_parquet_close(&file);
    assert_true(err == SONDE_OK || engine_diag.found[0] != '\0');
    return err;
}

/* A file that is cut anywhere is refused, and one with another byte refused or read; the
 * sanitizers' builds see harm. */
static void damaged_files_do_no_harm(void **state)
{
    static const char *const names[] = {"arrow_pages.parquet", "polars.parquet",
                                        "arrow_prefix.parquet"};

    (void)state;
    for (size_t n = 0; n < 3; n++) {
        size_t size = 0;
        unsigned char *bytes = data_read(golden(names[n]), &size);

        expect_err(SONDE_OK, read_all(bytes, size));
        for (size_t cut = 0; cut < size; cut += 13) {
            unsigned char *part = malloc(cut > 0 ? cut : 1); /* nothing after its end */

            assert_non_null(part);
            memcpy(part, bytes, cut);
            expect_err(SONDE_EFORMAT, read_all(part, cut));
            free(part);
        }
        for (size_t place = 0; place < size; place += 3) {
            const unsigned char old = bytes[place];

            bytes[place] = (unsigned char)(old + 1 + place % 250);
            (void)read_all(bytes, size);
            bytes[place] = old;
        }
        free(bytes);
    }
}

static void snappy_copies_what_it_makes(void **state)
{
    /* 10 bytes: a, 8 more of it, b */
    const unsigned char packed[] = {10, 0, 'a', (4 << 2) | 1, 1, 0, 'b'};
    const unsigned char before[] = {10, 0, 'a', (4 << 2) | 1, 2, 0, 'b'};
    unsigned char out[11] = "";

    (void)state;
    assert_true(sonde__data_snappy_unpack(packed, sizeof packed, out, 10));
    assert_string_equal((const char *)out, "aaaaaaaaab");
    assert_false(sonde__data_snappy_unpack(packed, sizeof packed, out, 9));
    assert_false(sonde__data_snappy_unpack(packed, sizeof packed - 1, out, 10));
    assert_false(sonde__data_snappy_unpack(before, sizeof before, out, 10));
}

/* --- contents ------------------------------------------------------------------------- */

static void contents_have_kinds_and_statistics(void **state)
{
    sonde_nn_contents *contents = NULL;
    const sonde_nn_part *part = NULL;

    (void)state;
    must(sonde_nn_contents_open(golden("polars.parquet"), SONDE_NN_TRAIN, &contents,
                                &engine_diag));
    part = sonde_nn_contents_at(contents, 2);
    assert_string_equal(part->name, "heat");
    assert_true(part->kind == SONDE_NN_PART_TEXTS);
    assert_true(part->different == 3 && part->missing == 13 && part->shape[0] == 90);
    part = sonde_nn_contents_at(contents, 3);
    assert_true(part->kind == SONDE_NN_PART_NUMBERS && part->missing == 0);
    assert_true(part->minimum == 0.0 && part->maximum == 1.0);
    assert_null(sonde_nn_contents_at(contents, 9));
    sonde_nn_contents_destroy(contents);
    must(sonde_nn_contents_open(golden("int96.parquet"), SONDE_NN_TEST, &contents,
                                &engine_diag));
    part = sonde_nn_contents_at(contents, 0);
    assert_true(part->kind == SONDE_NN_PART_REFUSED);
    assert_string_equal(part->refusal, "is of 96-bit timestamps");
    part = sonde_nn_contents_at(contents, 1);
    assert_true(part->mean == 2.0 && part->shape[0] == 3);
    sonde_nn_contents_destroy(contents);
    expect_err(SONDE_EFORMAT,
               sonde_nn_contents_open(golden("mixed.parquet"), SONDE_NN_TRAIN, &contents,
                                      &engine_diag));
}

static sonde_err list_golden(void *user)
{
    sonde_nn_contents *contents = NULL;
    const sonde_err err = sonde_nn_contents_open(user, SONDE_NN_TRAIN, &contents, NULL);

    if (err == SONDE_OK) {
        sonde_nn_contents_destroy(contents);
    }
    return err;
}

static sonde_err open_golden(void *user)
{
    static const char *const inputs[] = {"size", "heat"};
    const sonde_nn_table_options options = {
        .size = sizeof options, .inputs = inputs, .input_count = 2, .target = "storeys"};
    sonde_nn_dataset *set = NULL;
    const sonde_err err = sonde_nn_dataset_open_table(user, &options, &set, NULL);

    sonde_nn_dataset_destroy(set);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(data_fail_allocations(open_golden, golden("arrow_snappy.parquet")) > 20);
    assert_true(data_fail_allocations(open_golden, golden("arrow_delta.parquet")) > 20);
    assert_true(data_fail_allocations(list_golden, golden("table.csv")) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_writer_means_the_same_table),
        cmocka_unit_test(logical_types_are_numbers_or_texts),
        cmocka_unit_test(what_is_not_read_is_refused_with_its_reason),
        cmocka_unit_test(both_tables_have_one_form),
        cmocka_unit_test(damaged_files_do_no_harm),
        cmocka_unit_test(snappy_copies_what_it_makes),
        cmocka_unit_test(contents_have_kinds_and_statistics),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
