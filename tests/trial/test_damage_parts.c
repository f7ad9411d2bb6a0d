/*
 * test_damage_parts.c - the same of catalogues, vital signs, sketches and compressed
 * values.
 */
#include "trial/damaged_run.h"
#include "base/macros.h"

#include "alloc_failure.h"

/* --- catalogue ----------------------------------------------------------------------------- */

/* The headers of closed segments know the names too. */
static void a_missing_catalogue_is_made_up_for(void **state)
{
    (void)state;
    write_run(true);
    assert_int_equal(unlink(in_run("w0000/catalogue.jsonl")), 0);
    check(36, "declares tensor 1: it is called 'fc1.bias' here", 4);
    assert_reported("w0000: catalogue.jsonl is missing");
}

/* Without those either, numbers stand for names. */
static void a_missing_catalogue_leaves_numbers_for_names(void **state)
{
    static const char *const segments[] = {"w0000/seg-00000000.safetensors",
                                           "w0000/seg-00000001.safetensors",
                                           "w0000/seg-00000002.safetensors"};
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 5);
    const sonde_tensor_info *info = NULL;
    sonde_view view;
    sonde_verify_report report;

    (void)state;
    write_run(true);
    for (size_t i = 0; i < SONDE_COUNT_OF(segments); i++) {
        flip(segments[i], 8);
    }
    assert_int_equal(unlink(in_run("w0000/catalogue.jsonl")), 0);
    trial = trial_opened(test_run);
    assert_damage(trial, "w0000: catalogue.jsonl is missing");
    assert_damage(trial, "it is called 'w0000/tensor_1'");
    info = sonde_catalogue_info(sonde_trial_catalogue(trial),
                                trial_id(trial, "w0000/tensor_1"));
    assert_int_equal(info->rank, 2);
    assert_int_equal(info->shape[1], 3);
    assert_int_equal(
        sonde_trial_value(trial, trial_id(trial, "w0000/tensor_1"), &at, &view, NULL),
        SONDE_OK);
    assert_true(*(const float *)view.data == known_element(1, 5, 0, 0));
    sonde_trial_close(trial);
    report = verified();
    assert_int_equal(report.records, 36);
    assert_int_equal(report.rows, 36);
    assert_int_equal(report.damaged, 4 + 3);
}

static void bad_catalogue_lines_are_left_out(void **state)
{
    static const char *const lines[] = {
        "{\"id\":3}\n",
        "{\"id\":3,\"name\":\"\",\"dtype\":\"float32\",\"shape\":[]}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float31\",\"shape\":[]}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":3}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[-1]}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[1,1,1,1,1,1,1,1,1]}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float32\","
        "\"shape\":[4611686018427387904,4611686018427387904]}\n",
        "{\"id\":-1,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[]}\n",
        "{\"id\":4294967295,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[]}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[],\"same_as\":-1}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[],\"same_as\":3}\n",
        "{\"id\":3,\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[],\"same_as\":"
        "\"loss\"}\n",
        "{\"id\":3,\"id\":4}\n",
        "[3]\n",
        "\xC3\n",
    };

    (void)state;
    write_run(true);
    for (size_t i = 0; i < SONDE_COUNT_OF(lines); i++) {
        append("w0000/catalogue.jsonl", lines[i]);
    }
    check(36, "catalogue.jsonl: line 4 declares no tensor", SONDE_COUNT_OF(lines));
    append("w0000/catalogue.jsonl", "{\"id\":3,\"name\":\"x\",\"dtype\":\"bfloat16\","
                                    "\"shape\":[2],\"new\":{}}\n");
    {
        sonde_trial *trial = trial_opened(test_run);

        assert_int_equal(
            sonde_catalogue_info(sonde_trial_catalogue(trial), trial_id(trial, "x"))
                ->dtype,
            SONDE_BF16);
        sonde_trial_close(trial);
    }
}

/* --- vital signs and sketches --------------------------------------------------------------- */

static void damaged_rows_are_left_out(void **state)
{
    sonde_verify_report report;
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 4);

    (void)state;
    write_run(true);
    flip("w0000/stats-00000001.npy", SONDE__STATS_HEAD + 40); /* step 4, fc1.weight */
    flip("w0000/stats-00000000.npy", 30);                     /* of the head */
    cut("w0000/stats-00000002.npy", size_of("w0000/stats-00000002.npy") - 150);
    trial = trial_opened(test_run);
    assert_damage(trial, "stats-00000001.npy: row 0: its check is wrong");
    assert_damage(trial, "stats-00000000.npy: its head is not that of vital signs");
    assert_damage(trial, "stats-00000002.npy: 10 rows, where its head says 12");
    assert_damage(trial, "torn");
    assert_int_equal(sonde_trial_has(trial, 0, &at), SONDE_HOW_RAW | SONDE_HOW_SKETCH);
    assert_int_equal(sonde_trial_has(trial, 1, &at), SONDE_HOW_RAW | SONDE_HOW_VITALS);
    at.step = 0; /* after the damaged head */
    assert_int_equal(sonde_trial_has(trial, 1, &at), SONDE_HOW_RAW | SONDE_HOW_VITALS);
    sonde_trial_close(trial);
    report = verified();
    assert_int_equal(report.rows, 36 - 3);
    assert_int_equal(report.damaged, 3);
    assert_int_equal(report.torn, 1);
}

static void damaged_sketches_are_left_out(void **state)
{
    static const long at[] = {16 + 0, 16 + 1, 16 + 3, 16 + 4, 16 + 40, 16 + 84, 3};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(at); i++) {
        sonde_verify_report report;

        write_run(true);
        flip("w0000/sketch-00000001.bin", at[i]);
        report = verified();
        /* One record, however its length is damaged; of the head none. */
        assert_int_equal(report.sketches, at[i] < 16 ? 12 : 11);
        assert_int_equal(report.damaged, 1);
        assert_reported("sketch-00000001.bin");
        assert_int_equal(folder_remove(NULL), 0);
        assert_int_equal(mkdir(test_folder, 0777), 0);
    }
}

static void damaged_frames_are_values_that_cannot_be_read(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 0);
    sonde_view view;
    sonde_diag diag = {0};
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    known_put(&w, writer_at(SONDE_MODE_TRAIN, 0, 0), 0, SONDE__PACKED_ZSTD_SHUFFLE);
    known_put(&w, writer_at(SONDE_MODE_TRAIN, 1, 1), 0, SONDE__PACKED_ZSTD);
    writer_close(&w);
    for (long i = 0; i < 12; i++) { /* every byte of the frame's head and first block */
        sonde_err err = SONDE_OK;

        flip("w0000/seg-00000000.safetensors", 8 + WRITER_HEAD + i);
        trial = trial_opened(test_run);
        at.step = 0;
        err = sonde_trial_value(trial, 0, &at, &view, &diag);
        if (i == 4) { /* a bit that zstd does not use */
            assert_int_equal(err, SONDE_OK);
            assert_known(trial, 0, 0, -1);
        } else {
            assert_int_equal(err, SONDE_EFORMAT);
        }
        at.step = 1;
        assert_int_equal(sonde_trial_value(trial, 0, &at, &view, &diag), SONDE_OK);
        sonde_trial_close(trial);
        flip("w0000/seg-00000000.safetensors", 8 + WRITER_HEAD + i);
    }
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

/* It is not said to be without findings. */
static void findings_that_cannot_be_listed_are_an_error(void **state)
{
    sonde_verify_report report = {0};
    sonde_diag diag = {0};

    (void)state;
    write_run(true);
    assert_int_equal(symlink("findings", in_run("findings")), 0); /* leads to itself */
    assert_int_equal(sonde_trial_verify(test_run, &report, NULL, NULL, &diag), SONDE_EIO);
    assert_non_null(strstr(diag.found, "cannot be listed"));
}

/* All requests for memory from the n-th on fail. */
static void no_memory_is_no_damage(void **state)
{
    sonde_err err = SONDE_ENOMEM;
    size_t n = 0;

    (void)state;
    write_run(true);
    for (; err != SONDE_OK; n++) {
        sonde_verify_report report = {0};

        alloc_failure_begin(n);
        err = sonde_trial_verify(test_run, &report, NULL, NULL, NULL);
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
        assert_int_equal(report.damaged, 0);
    }
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(a_missing_catalogue_is_made_up_for),
        ON_ITS_OWN(a_missing_catalogue_leaves_numbers_for_names),
        ON_ITS_OWN(bad_catalogue_lines_are_left_out),
        ON_ITS_OWN(damaged_rows_are_left_out),
        ON_ITS_OWN(damaged_sketches_are_left_out),
        ON_ITS_OWN(damaged_frames_are_values_that_cannot_be_read),
        ON_ITS_OWN(findings_that_cannot_be_listed_are_an_error),
        ON_ITS_OWN(no_memory_is_no_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
