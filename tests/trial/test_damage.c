/*
 * test_damage.c - runs whose segments, indexes or small files are damaged: each once.
 * What is damaged is named, everything else is read, and verify counts it.
 */
#include "trial/damaged_run.h"
#include "base/macros.h"

static void a_whole_run_is_whole(void **state)
{
    sonde_verify_report report;

    (void)state;
    write_run(true);
    check(36, NULL, 0);
    report = verified();
    assert_int_equal(report_count, 0);
    assert_int_equal(report.bytes, 12 * (24 + 24 + 4));
    assert_int_equal(report.rows, 36);
    assert_int_equal(report.sketches, 12);
    assert_int_equal(report.torn, 0);
    assert_int_equal(report.lost, 1);
    assert_true(report.ended && !report.crashed && !report.resumed);
}

static void a_killed_run_loses_nothing(void **state)
{
    sonde_verify_report report;

    (void)state;
    write_run(false);
    append("w0000/seg-00000002.jsonl", "{\"s\":12,\"m\":");
    append("w0000/stats-00000002.part", "half a row");
    check(36, "torn", 0);
    report = verified();
    assert_int_equal(report.torn, 2);
    assert_int_equal(report_count, 2);
    assert_true(report.crashed && !report.ended);
}

/* --- not a run at all --------------------------------------------------------------------- */

static void refused(const char *path, sonde_err expected, const char *found)
{
    sonde_trial *trial = NULL;
    sonde_verify_report report;
    sonde_diag diag = {0};

    assert_int_equal(sonde_trial_open(path, NULL, &trial, &diag), expected);
    assert_null(trial);
    assert_int_equal(diag.err, expected);
    assert_non_null(strstr(diag.found, found));
    assert_non_null(strstr(diag.where, path));
    assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), expected);
}

static void what_is_no_run_is_refused(void **state)
{
    static char path[5000];

    (void)state;
    refused(test_run, SONDE_ENOTFOUND, "cannot be opened");
    assert_int_equal(mkdir(test_run, 0777), 0);
    refused(test_run, SONDE_EFORMAT, "neither run.json nor a worker's folder");
    writer_text(test_run, "file", "x");
    refused(in_run("file"), SONDE_EFORMAT, "a file");
    writer_text(test_run, "run.json", "{\"sonde_run\":2,\"id\":\"x\"}");
    refused(test_run, SONDE_EUNSUPPORTED, "format version 2");
    memset(path, 'x', sizeof path - 1);
    assert_int_equal(sonde_trial_open(path, NULL, NULL, NULL), SONDE_EINVAL);
    assert_int_equal(sonde_trial_verify(test_run, NULL, NULL, NULL, NULL), SONDE_EINVAL);
}

static void a_damaged_run_file_is_reported(void **state)
{
    static const char *const texts[] = {"", "{", "[]", "{\"sonde_run\":\"one\"}",
                                        "\xFF\xFE"};

    (void)state;
    write_run(true);
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        writer_text(test_run, "run.json", texts[i]);
        check(36, "run.json", 1);
    }
    assert_int_equal(unlink(in_run("run.json")), 0);
    check(36, "run.json: missing", 1);
    writer_begin(test_run, 1);
    writer_text(test_run, "end.json", "{");
    check(36, "end.json", 1);
    writer_text(test_run, "w0000/state.json", "nothing");
    check(36, "state.json", 2);
    assert_int_equal(unlink(in_run("w0000/state.json")), 0);
    writer_end(test_run, "finished", 11);
    check(36, NULL, 0);
}

/* --- segments ----------------------------------------------------------------------------- */

static void a_flipped_byte_is_one_value(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 4);
    sonde_view view;
    sonde_vitals vitals;
    sonde_diag diag = {0};

    (void)state;
    write_run(true);
    flip("w0000/seg-00000001.safetensors", 8 + WRITER_HEAD + 3); /* fc1.weight, step 4 */
    trial = trial_opened(test_run);
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, &diag), SONDE_EFORMAT);
    assert_non_null(strstr(diag.where, "'fc1.weight' at train step 4"));
    assert_non_null(strstr(diag.found, "hash"));
    assert_int_equal(sonde_trial_vitals(trial, 0, &at, &vitals, NULL), SONDE_OK);
    sonde_trial_close(trial);
    check(35, NULL, 1);
    assert_reported("'fc1.weight' at train step 4");
}

static void a_truncated_segment_keeps_what_is_left(void **state)
{
    const char *name = "w0000/seg-00000001.safetensors";

    (void)state;
    write_run(true);
    cut(name, size_of(name) - 60); /* the three values of step 7, and two of step 6 */
    check(36 - 5, "beyond the end of its segment", 5 + 1);
    assert_reported("not a safetensors file");
    cut(name, 4);
    check(24, "segment 00000001: its header", 1 + 12);
    cut(name, 0);
    check(24, "segment 00000001: its header", 1 + 12);
    assert_int_equal(unlink(in_run(name)), 0);
    check(24, "segment 00000001: cannot be opened", 1 + 12);
}

/* The header is for other readers; its length alone is for us. */
static void a_corrupt_header_is_reported_by_verify(void **state)
{
    (void)state;
    write_run(true);
    flip("w0000/seg-00000000.safetensors", 8);
    check(36, NULL, 1);
    assert_reported("w0000/seg-00000000.safetensors: not a safetensors file");
    flip("w0000/seg-00000000.safetensors", 8);
    flip("w0000/seg-00000000.safetensors", 3); /* of the length: beyond the file */
    check(24, "segment 00000000: its header", 1 + 12);
}

/* A header that has another name for a value than the catalogue. */
static void a_header_of_other_names_is_reported_by_verify(void **state)
{
    static char bytes[WRITER_HEAD];
    FILE *file = NULL;
    const char *at = NULL;

    (void)state;
    write_run(true);
    file = writer_file(in_run("w0000/seg-00000001.safetensors"), "r+");
    assert_int_equal(fread(bytes, 1, sizeof bytes - 1, file), sizeof bytes - 1);
    at = strstr(bytes + 8, "0000000005/train/fc1.bias");
    assert_non_null(at);
    assert_int_equal(fseek(file, at - bytes + 19, SEEK_SET), 0);
    assert_true(fputc('2', file) == '2' && fclose(file) == 0);
    check(36, NULL, 1);
    assert_reported("its header lacks 'fc1.bias' of step 5");
}

/* What a reader has read may be taken from the end of an index: by a disk, not by us. */
static void an_index_may_become_shorter(void **state)
{
    const char *name = "w0000/seg-00000002.jsonl";
    sonde_trial *trial = NULL;
    FILE *file = NULL;
    char line[200];

    (void)state;
    write_run(false);
    trial = trial_opened(test_run);
    file = writer_file(in_run(name), "r");
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(fclose(file), 0);
    cut(name, strlen(line));
    assert_true(trial_refreshed(trial));
    assert_damage(trial, "seg-00000002.jsonl");
    assert_damage(trial, "had been read");
    assert_int_equal(count_readable(trial), 36);
    assert_false(trial_refreshed(trial));
    append(name, line);
    assert_true(trial_refreshed(trial));
    assert_int_equal(count_damage(trial), 1);
    sonde_trial_close(trial);
}

/* Cut off under an open trial: an error, not a signal. */
static void a_segment_may_be_cut_while_it_is_open(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_at at = trial_at(SONDE_MODE_TRAIN, 11);
    sonde_vitals vitals, *series = NULL;
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_sketch *sketch = malloc(sizeof *sketch);
    sonde_view view;
    sonde_diag diag = {0};

    (void)state;
    assert_non_null(sketch);
    write_run(true);
    trial = trial_opened(test_run);
    assert_int_equal(count_readable(trial), 36);
    cut("w0000/seg-00000002.safetensors", WRITER_HEAD);
    cut("w0000/stats-00000002.npy", 2000);
    cut("w0000/sketch-00000002.bin", 20);
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, &diag), SONDE_EFORMAT);
    assert_non_null(strstr(diag.found, "cut off"));
    assert_int_equal(sonde_trial_vitals(trial, 0, &at, &vitals, &diag), SONDE_EFORMAT);
    assert_int_equal(sonde_trial_sketch(trial, 0, &at, sketch, &diag), SONDE_EFORMAT);
    assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_TRAIN, -1, 0, 0,
                                               &steps, &series, &count, &diag),
                     SONDE_OK); /* of the other files */
    assert_int_equal(count, 8);
    assert_int_equal(diag.err, SONDE_EFORMAT);
    sonde_release(steps);
    sonde_release(series);
    (void)trial_refreshed(trial);
    at.step = 3;
    assert_int_equal(sonde_trial_value(trial, 0, &at, &view, &diag), SONDE_OK);
    sonde_trial_close(trial);
    free(sketch);
}

/* One value of many: a series has all others and names the missing one. */
static void a_series_leaves_out_what_is_damaged(void **state)
{
    sonde_trial *trial = NULL;
    sonde_vitals *series = NULL;
    int64_t *steps = NULL;
    size_t count = 0;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    for (int64_t s = 0; s < 9; s++) {
        known_put(&w, writer_at(SONDE_MODE_TRAIN, s, s), 0, SONDE__PACKED_NOT);
        if (s == 7) { /* the value of this one is damaged too, but it has vital signs */
            known_put_row(&w, writer_at(SONDE_MODE_TRAIN, s, s), 0);
        }
        writer_end_step(&w, writer_at(SONDE_MODE_TRAIN, s, s));
    }
    writer_state(&w, "ended", 1, "elsewhere", 60, 0);
    writer_close(&w);
    flip("w0000/seg-00000000.safetensors", 8 + WRITER_HEAD + 4 * KNOWN_COUNT * 4 + 2);
    flip("w0000/seg-00000000.safetensors", 8 + WRITER_HEAD + 7 * KNOWN_COUNT * 4 + 2);
    trial = trial_opened(test_run);
    assert_int_equal(count_damage(trial), 0);
    for (int again = 0; again < 2; again++) {
        sonde_diag diag = {0};

        assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_TRAIN, -1, 0, 0,
                                                   &steps, &series, &count, &diag),
                         SONDE_OK);
        assert_int_equal(count, 8);
        for (size_t i = 0; i < count; i++) {
            float data[KNOWN_COUNT];
            const sonde_view view = known_value(0, steps[i], 0, data);
            sonde_vitals wanted;

            assert_int_equal(steps[i], i + (i >= 4));
            sonde_vitals_of(&view, &wanted);
            assert_memory_equal(&series[i], &wanted, sizeof wanted);
        }
        assert_int_equal(diag.err, SONDE_EFORMAT);
        assert_non_null(strstr(diag.where, "'fc1.weight' at train step 4"));
        assert_int_equal(count_damage(trial), 1); /* reported once */
        assert_damage(trial, "'fc1.weight' at train step 4");
        sonde_release(steps);
        sonde_release(series);
    }
    sonde_trial_close(trial);
}

/* A call lists five damaged steps at most, and the same call again none. */
static void a_series_lists_five_steps(void **state)
{
    enum { DAMAGED = 8 };
    sonde_trial *trial = NULL;
    sonde_vitals *series = NULL;
    int64_t *steps = NULL;
    size_t count = 0;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    for (int64_t s = 0; s < STEPS; s++) {
        known_put(&w, writer_at(SONDE_MODE_TRAIN, s, s), 0, SONDE__PACKED_NOT);
        writer_end_step(&w, writer_at(SONDE_MODE_TRAIN, s, s));
    }
    writer_state(&w, "ended", 1, "elsewhere", 60, 0);
    writer_close(&w);
    for (int s = 0; s < DAMAGED; s++) {
        flip("w0000/seg-00000000.safetensors", 8 + WRITER_HEAD + s * KNOWN_COUNT * 4 + 2);
    }
    trial = trial_opened(test_run);
    for (int again = 0; again < 2; again++) {
        sonde_diag diag = {0};

        assert_int_equal(sonde_trial_vitals_series(trial, 0, SONDE_MODE_TRAIN, -1, 0, 0,
                                                   &steps, &series, &count, &diag),
                         SONDE_OK);
        assert_int_equal(count, STEPS - DAMAGED);
        assert_int_equal(steps[0], DAMAGED);
        assert_non_null(strstr(diag.where, "train step 0"));
        assert_int_equal(count_damage(trial), 5);
        sonde_release(steps);
        sonde_release(series);
    }
    sonde_trial_close(trial);
}

/* --- index -------------------------------------------------------------------------------- */

#define LINE_START "{\"s\":12,\"m\":\"train\",\"k\":12,\"t\":0,\"b\":0,\"r\":"
#define HASH "\"h\":\"0123456789abcdef\""

static void bad_lines_are_left_out(void **state)
{
    static const struct {
        const char *text, *damage;
    } lines[] = {
        {"nonsense\n", "not an index line"},
        {"\n", "not an index line"},
        {"{\"e\":-5,\"m\":\"train\",\"k\":1}\n", "not an index line"},
        {"{\"e\":5,\"m\":\"train\",\"k\":1} \n", "not an index line"},
        /* points outside */
        {LINE_START "0,\"o\":999999,\"n\":4,\"d\":\"F32\"," HASH ",\"p\":[1]}\n",
         "beyond the end"},
        {LINE_START "0,\"o\":9223372036854775800,\"n\":4,\"d\":\"F32\"," HASH
                    ",\"p\":[1]}\n",
         "beyond the end"},
        /* a terabyte of float32, as it is and packed */
        {LINE_START "0,\"o\":0,\"n\":1099511627776,\"d\":\"F32\"," HASH
                    ",\"p\":[274877906944]}\n",
         "beyond the end"},
        {LINE_START "0,\"o\":0,\"n\":4,\"d\":\"F32\"," HASH ",\"p\":[274877906944]}\n",
         "not an index line"},
        {LINE_START "0,\"o\":0,\"n\":4,\"d\":\"F32\"," HASH
                    ",\"p\":[274877906944],\"z\":\"zstd\"}\n",
         "larger than what its bytes can hold"},
        {LINE_START "0,\"o\":0,\"n\":4,\"d\":\"F32\"," HASH
                    ",\"p\":[4611686018427387904,4],\"z\":\"zstd\"}\n",
         "not an index line"},
        {LINE_START "70000,\"o\":0,\"n\":4,\"d\":\"F32\"," HASH ",\"p\":[1]}\n",
         "replica"},
        {"{\"s\":12,\"m\":\"train\",\"k\":12,\"t\":4000000000,\"b\":0,\"r\":0,\"o\":0,"
         "\"n\":4,\"d\":\"F32\"," HASH ",\"p\":[1]}\n",
         "no catalogue declares its tensor"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(lines); i++) {
        write_run(true);
        append("w0000/seg-00000001.jsonl", lines[i].text);
        check(36, lines[i].damage, 1);
        assert_reported("w0000/seg-00000001.jsonl: line 13");
        assert_int_equal(folder_remove(NULL), 0);
        assert_int_equal(mkdir(test_folder, 0777), 0);
    }
}

/* A byte of a line in the middle: that line alone is lost. */
static void a_flipped_byte_in_an_index_is_one_line(void **state)
{
    (void)state;
    write_run(true);
    flip("w0000/seg-00000001.jsonl", 30);
    check(35, "w0000/seg-00000001.jsonl: line 1: not an index line", 1);
}

static void a_very_long_line_is_skipped(void **state)
{
    char *line = malloc(3 << 20);

    (void)state;
    assert_non_null(line);
    for (size_t size = 65530; size < 3 << 20; size = size * 5 / 4) {
        write_run(true);
        memset(line, 'x', size);
        (void)snprintf(line + size, 3, "\n");
        append("w0000/seg-00000000.jsonl", line);
        append("w0000/seg-00000000.jsonl", "and what follows\n");
        check(36, size > 65535 ? "longer than 64 KiB" : "not an index line", 2);
        assert_reported("line 14: not an index line");
        assert_int_equal(folder_remove(NULL), 0);
        assert_int_equal(mkdir(test_folder, 0777), 0);
    }
    free(line);
}

/* Thousands of bad lines give a few notes; verify reports every one. */
static void many_bad_lines_give_few_notes(void **state)
{
    enum { MANY = 5000 };
    sonde_trial *trial = NULL;
    FILE *file = NULL;

    (void)state;
    write_run(true);
    file = writer_file(in_run("w0000/seg-00000001.jsonl"), "a");
    for (int i = 0; i < MANY; i++) {
        assert_true(fputs("bad\n", file) >= 0);
    }
    assert_int_equal(fclose(file), 0);
    check(36, "and 4995 more like these", MANY);
    assert_int_equal(report_count, MANY);
    trial = trial_opened(test_run);
    assert_int_equal(count_damage(trial), 6);
    sonde_trial_close(trial);
}

static void missing_files_are_told_of(void **state)
{
    (void)state;
    write_run(true);
    assert_int_equal(unlink(in_run("w0000/seg-00000001.jsonl")), 0);
    check(24, "00000001", 2); /* the index of a segment, and a number that is missing */
    assert_reported("the index of segment 00000001 is missing");
    assert_int_equal(unlink(in_run("w0000/stats-00000000.npy")), 0);
    check(24, "stats-00000000 to 00000000 missing", 3);
}

static void a_part_that_is_a_folder_is_no_trap(void **state)
{
    (void)state;
    write_run(true);
    assert_int_equal(mkdir(in_run("w0000/seg-00000003.jsonl"), 0777), 0);
    assert_int_equal(mkdir(in_run("w0000/stats-00000003.part"), 0777), 0);
    assert_int_equal(mkdir(in_run("w0000/sketch-00000003.part"), 0777), 0);
    check(36, "kind", 3);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(a_whole_run_is_whole),
        ON_ITS_OWN(a_killed_run_loses_nothing),
        ON_ITS_OWN(what_is_no_run_is_refused),
        ON_ITS_OWN(a_damaged_run_file_is_reported),
        ON_ITS_OWN(a_flipped_byte_is_one_value),
        ON_ITS_OWN(a_truncated_segment_keeps_what_is_left),
        ON_ITS_OWN(a_corrupt_header_is_reported_by_verify),
        ON_ITS_OWN(a_header_of_other_names_is_reported_by_verify),
        ON_ITS_OWN(an_index_may_become_shorter),
        ON_ITS_OWN(a_segment_may_be_cut_while_it_is_open),
        ON_ITS_OWN(a_series_leaves_out_what_is_damaged),
        ON_ITS_OWN(a_series_lists_five_steps),
        ON_ITS_OWN(bad_lines_are_left_out),
        ON_ITS_OWN(a_flipped_byte_in_an_index_is_one_line),
        ON_ITS_OWN(a_very_long_line_is_skipped),
        ON_ITS_OWN(many_bad_lines_give_few_notes),
        ON_ITS_OWN(missing_files_are_told_of),
        ON_ITS_OWN(a_part_that_is_a_folder_is_no_trap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
