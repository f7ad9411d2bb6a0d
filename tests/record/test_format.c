/*
 * test_format.c - index lines, names of files, rows and sketch records: there and back,
 * and nothing but what the format says.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/random.h"
#include "format/format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- index lines ------------------------------------------------------------------ */

static void the_lines_of_the_page_are_read_and_written(void **state)
{
    static const char value[] =
        "{\"s\":100,\"m\":\"train\",\"k\":100,\"t\":3,\"b\":0,\"r\":0,\"o\":180,"
        "\"n\":6000,\"d\":\"F32\",\"h\":\"0123456789abcdef\",\"p\":[12,5,5,5]}\n";
    char text[SONDE__INDEX_ROOM];
    sonde__record_index_line line;

    (void)state;
    assert_true(sonde__record_index_parse(value, strlen(value) - 1, &line));
    assert_int_equal(line.step, 100);
    assert_int_equal(line.mode, SONDE_MODE_TRAIN);
    assert_int_equal(line.tensor, 3);
    assert_int_equal(line.offset, 180);
    assert_int_equal(line.bytes, 6000);
    assert_int_equal(line.dtype, SONDE_F32);
    assert_int_equal(line.hash, 0x0123456789abcdefULL);
    assert_int_equal(line.rank, 4);
    assert_int_equal(line.shape[0], 12);
    assert_int_equal(sonde__record_index_print(&line, text), strlen(value));
    assert_memory_equal(text, value, strlen(value));
}

/* A line with everything at its limits. */
static sonde__record_index_line drawn(uint64_t seed)
{
    static const int64_t steps[] = {0, 1, -1, INT64_MAX, -INT64_MAX, 1234567};
    sonde__record_index_line line = {
        .mode = (sonde_mode)sonde__below(seed, 0, 0, SONDE_MODE_COUNT),
        .step = steps[sonde__below(seed, 0, 1, SONDE_COUNT_OF(steps))],
        .mode_step = steps[sonde__below(seed, 0, 2, SONDE_COUNT_OF(steps))],
        .tensor = (uint32_t)sonde__below(seed, 0, 3, UINT32_MAX),
        .micro_batch = (uint32_t)sonde__below(seed, 0, 4, 9),
        .replica = (uint32_t)sonde__below(seed, 0, 5, 9),
        .offset = sonde__below(seed, 0, 6, INT64_MAX / 2),
        .hash = sonde__below(seed, 0, 7, UINT64_MAX),
        .dtype = (sonde_dtype)sonde__below(seed, 0, 8, SONDE_DTYPE_COUNT),
        .rank = (int)sonde__below(seed, 0, 9, SONDE_MAX_DIMS + 1),
        .packing = (sonde__record_packing)sonde__below(seed, 0, 10, 3),
    };

    line.bytes = sonde_dtype_size(line.dtype);
    for (int d = 0; d < line.rank; d++) {
        line.shape[d] = (int64_t)sonde__below(seed, 0, 20 + (uint64_t)d, 12);
        line.bytes *= (uint64_t)line.shape[d];
    }
    if (line.packing != SONDE__PACKED_NOT) {
        line.bytes = sonde__below(seed, 0, 11, 1000);
    }
    return line;
}

static void lines_come_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        const sonde__record_index_line line = drawn(seed);
        sonde__record_index_line back;
        char text[SONDE__INDEX_ROOM], again[SONDE__INDEX_ROOM];
        const size_t n = sonde__record_index_print(&line, text);

        assert_true(n < sizeof text && text[n - 1] == '\n');
        assert_true(sonde__record_index_parse(text, n - 1, &back));
        assert_int_equal(sonde__record_index_print(&back, again), n);
        assert_memory_equal(text, again, n);
        assert_int_equal(back.hash, line.hash);
        assert_int_equal(back.packing, line.packing);
    }
}

/* Whatever is changed in a line, it is read as something that prints alike, or refused;
 * and no byte beyond its length is looked at (the sanitizers see to that). */
static void spoilt_lines_are_refused_or_mean_what_they_say(void **state)
{
    size_t refused = 0, taken = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        const sonde__record_index_line line = drawn(seed);
        char text[SONDE__INDEX_ROOM], again[SONDE__INDEX_ROOM];
        size_t n = sonde__record_index_print(&line, text) - 1;
        sonde__record_index_line back;
        char *exact = NULL;

        if (seed % 3 == 0) {
            n = (size_t)sonde__below(seed, 1, 0, n);
        } else {
            text[sonde__below(seed, 1, 1, n)] = (char)sonde__below(seed, 1, 2, 256);
        }
        exact = malloc(n + 1);
        assert_non_null(exact);
        memcpy(exact, text, n);
        if (sonde__record_index_parse(exact, n, &back)) {
            assert_int_equal(sonde__record_index_print(&back, again), n + 1);
            assert_memory_equal(again, exact, n);
            taken++;
        } else {
            refused++;
        }
        free(exact);
    }
    print_message("%zu refused, %zu taken\n", refused, taken);
    assert_true(refused > 5000 && taken > 100);
}

#define LINE(step, mode)                                                                 \
    "{\"s\":" step ",\"m\":\"" mode                                                      \
    "\",\"k\":1,\"t\":3,\"b\":0,\"r\":0,\"o\":0,\"n\":4,"                                \
    "\"d\":\"F32\",\"h\":\"0123456789abcdef\",\"p\":[1]}"

static void lines_that_say_the_impossible_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "{}",
        LINE("100", "train") " ",
        LINE("0100", "train"),
        LINE("9223372036854775808", "train"),
        LINE("100", "test"),
        LINE(" 100", "train"),
        "{\"s\":100,\"m\":\"train\",\"k\":100}",
        /* bytes that are not those of the shape */
        "{\"s\":1,\"m\":\"train\",\"k\":1,\"t\":3,\"b\":0,\"r\":0,\"o\":0,\"n\":5,"
        "\"d\":\"F32\",\"h\":\"0123456789abcdef\",\"p\":[1]}",
        /* beyond what a file can have */
        "{\"s\":1,\"m\":\"train\",\"k\":1,\"t\":3,\"b\":0,\"r\":0,"
        "\"o\":9223372036854775807,\"n\":4,"
        "\"d\":\"F32\",\"h\":\"0123456789abcdef\",\"p\":[1]}",
        /* a shape that no memory holds */
        "{\"s\":1,\"m\":\"train\",\"k\":1,\"t\":3,\"b\":0,\"r\":0,\"o\":0,\"n\":0,"
        "\"d\":\"F32\",\"h\":\"0123456789abcdef\","
        "\"p\":[0,4294967296,4294967296,4294967296]}",
        "{\"s\":1,\"m\":\"train\",\"k\":1,\"t\":3,\"b\":0,\"r\":0,\"o\":0,\"n\":4,"
        "\"d\":\"F32\",\"h\":\"0123456789abcdef\",\"p\":[1,1,1,1,1,1,1,1,1]}",
        "{\"s\":1,\"m\":\"train\",\"k\":1,\"t\":4294967296,\"b\":0,\"r\":0,\"o\":0,"
        "\"n\":4,\"d\":\"F32\",\"h\":\"0123456789abcdef\",\"p\":[1]}",
        "{\"s\":1,\"m\":\"train\",\"k\":1,\"t\":3,\"b\":0,\"r\":0,\"o\":0,\"n\":4,"
        "\"d\":\"F32\",\"h\":\"0123456789ABCDEF\",\"p\":[1]}",
        "{\"s\":1,\"m\":\"train\",\"k\":1,\"t\":3,\"b\":0,\"r\":0,\"o\":0,\"n\":4,"
        "\"d\":\"F8\",\"h\":\"0123456789abcdef\",\"p\":[1]}",
    };
    sonde__record_index_line line;

    (void)state;
    assert_true(sonde__record_index_parse(LINE("100", "train"),
                                          strlen(LINE("100", "train")), &line));
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        if (sonde__record_index_parse(bad[i], strlen(bad[i]), &line)) {
            fail_msg("taken: %s", bad[i]);
        }
    }
}

/* --- generations ------------------------------------------------------------------ */

static void generations_come_back(void **state)
{
    static const char text[] =
        "{\"generation\":2,\"step\":500,\"time\":1769860800000000000,"
        "\"segment\":12,\"stats\":4,\"sketch\":3,\"steps\":2}\n";
    static const char *const bad[] = {
        "",
        "{}",
        "{\"generation\":2,\"step\":500,\"time\":1}",
        "{\"generation\":2,\"step\":-1,\"time\":1,\"segment\":1,\"stats\":1,\"sketch\":1,"
        "\"steps\":1}",
        "{\"generation\":2,\"step\":1,\"time\":1,\"segment\":1,\"stats\":1,\"sketch\":1,"
        "\"steps\":1} ",
    };
    char again[SONDE__GENERATION_ROOM];
    sonde__record_generation line;

    (void)state;
    assert_true(sonde__record_generation_parse(text, strlen(text) - 1, &line));
    assert_int_equal(line.number, 2);
    assert_int_equal(line.step, 500);
    assert_int_equal(line.time, 1769860800000000000);
    assert_int_equal(line.first[SONDE__FILE_INDEX], 12);
    assert_int_equal(line.first[SONDE__FILE_STEPS], 2);
    assert_int_equal(sonde__record_generation_print(&line, again), strlen(text));
    assert_memory_equal(again, text, strlen(text));
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        assert_false(sonde__record_generation_parse(bad[i], strlen(bad[i]), &line));
    }
}

/* Files 0 to 2, then 3 and 4 from step 500 on, nothing from 300 on, then 5 from 400 on.
 */
static void a_later_generation_supersedes(void **state)
{
    static const int64_t wanted[] = {300, 300, 300, 300, 300, INT64_MAX, INT64_MAX};
    const sonde__record_generation all[] = {
        {.number = 1, .step = 500, .first = {[SONDE__FILE_STATS] = 3}},
        {.number = 2, .step = 300, .first = {[SONDE__FILE_STATS] = 5}},
        {.number = 3, .step = 400, .first = {[SONDE__FILE_STATS] = 5}},
    };

    (void)state;
    for (uint64_t n = 0; n < SONDE_COUNT_OF(wanted); n++) {
        assert_int_equal(sonde__record_generation_limit(all, 3, SONDE__FILE_STATS, n),
                         wanted[n]);
    }
    assert_int_equal(sonde__record_generation_limit(all, 1, SONDE__FILE_STATS, 2), 500);
    assert_int_equal(sonde__record_generation_limit(all, 1, SONDE__FILE_STATS, 3),
                     INT64_MAX);
    assert_int_equal(sonde__record_generation_limit(NULL, 0, SONDE__FILE_STATS, 0),
                     INT64_MAX);
}

/* --- names ------------------------------------------------------------------------ */

static void names_of_files_come_back(void **state)
{
    static const uint64_t numbers[] = {0, 7, 99999999, 100000000, UINT64_MAX};
    static const char *const others[] = {"state.json",
                                         "seg-1.part",
                                         "seg-00000001.npy",
                                         "seg-00000001",
                                         "",
                                         "stats-00000001.part~",
                                         "sketch-0000000x.bin",
                                         "seg-000000001.part",
                                         "lock",
                                         "seg-99999999999999999999999.part"};
    char name[SONDE__FILE_NAME];
    uint64_t number = 0;
    bool part = false;

    (void)state;
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
            for (int p = 0; p < (kind == SONDE__FILE_INDEX ? 1 : 2); p++) {
                sonde__record_file_name(name, (sonde__record_file_kind)kind, numbers[i],
                                        p == 1);
                assert_int_equal(sonde__record_file_parse(name, &number, &part), kind);
                assert_int_equal(number, numbers[i]);
                assert_int_equal(part, p == 1);
            }
        }
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(others); i++) {
        assert_int_equal(sonde__record_file_parse(others[i], &number, &part),
                         SONDE__FILE_OTHER);
    }
    sonde__record_file_name(name, SONDE__FILE_SEGMENT, 41, false);
    assert_string_equal(name, "seg-00000041.safetensors");
}

static void names_of_workers_come_back(void **state)
{
    static const char *const others[] = {"w",     "w12",          "w00012", "x0001",
                                         "w000a", "w99999999999", "w0001/", ""};
    char name[SONDE__FILE_NAME];

    (void)state;
    sonde__record_worker_folder(name, 3);
    assert_string_equal(name, "w0003");
    assert_int_equal(sonde__record_worker_of_folder(name), 3);
    sonde__record_worker_folder(name, 123456);
    assert_int_equal(sonde__record_worker_of_folder(name), 123456);
    for (size_t i = 0; i < SONDE_COUNT_OF(others); i++) {
        assert_int_equal(sonde__record_worker_of_folder(others[i]), -1);
    }
}

/* --- rows and sketches ------------------------------------------------------------ */

static void rows_hold_all_vital_signs(void **state)
{
    float x[] = {1.0F, -2.0F, 0.0F, NAN, INFINITY, -INFINITY, 5.0F};
    const int64_t shape = SONDE_COUNT_OF(x);
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    sonde__record_stats_row row = {
        .step = 1, .tensor = 2, .micro_batch = 3, .replica = 4};
    sonde_vitals vitals, back;
    uint32_t check = 0;

    (void)state;
    sonde_vitals_of(&view, &vitals);
    sonde__record_stats_of_vitals(&row, &vitals);
    sonde__record_stats_to_vitals(&row, &back);
    assert_memory_equal(&vitals, &back, sizeof vitals);
    check = sonde__record_stats_check(&row);
    row.check = check;
    assert_int_equal(sonde__record_stats_check(&row), check); /* it is left out */
    row.zero++;
    assert_int_not_equal(sonde__record_stats_check(&row), check);
}

static void rows_of_steps_are_checked(void **state)
{
    sonde__record_step_row row = {
        .step = 7, .mode_step = 5, .time = 1769860800000000000, .mode = SONDE_MODE_EVAL};

    (void)state;
    assert_false(sonde__record_step_valid(&row));
    row.check = sonde__record_step_check(&row);
    assert_true(sonde__record_step_valid(&row));
    row.time++;
    assert_false(sonde__record_step_valid(&row));
    row.mode = SONDE_MODE_COUNT;
    row.check = sonde__record_step_check(&row);
    assert_false(sonde__record_step_valid(&row));
}

static sonde__record_sketch_record *encoded(const sonde_sketch *sketch, size_t *size)
{
    sonde__record_sketch_record *record = NULL;

    *size = sonde__record_sketch_size(sketch);
    record = calloc(1, *size);
    assert_non_null(record);
    sonde__record_sketch_encode(sketch, record);
    assert_int_equal(record->length, *size);
    record->check = sonde__record_sketch_check(record);
    return record;
}

static void sketches_come_back(void **state)
{
    static sonde_sketch sketch, back;
    sonde__record_sketch_record *record = NULL;
    size_t size = 0;

    (void)state;
    sonde_sketch_init(&sketch);
    record = encoded(&sketch, &size);
    assert_int_equal(size, SONDE__SKETCH_FIXED);
    free(record);
    sketch.count = 10;
    sketch.nan = 1;
    sketch.positive[0] = 3;
    sketch.positive[SONDE_SKETCH_BINS - 1] = 1;
    sketch.negative[17] = 5;
    sketch.positive[500] = (uint64_t)UINT32_MAX * 2 + 3; /* three entries */
    record = encoded(&sketch, &size);
    assert_int_equal(record->bins, 6);
    assert_true(sonde__record_sketch_valid(record, size));
    assert_false(sonde__record_sketch_valid(record, size - 1));
    sonde__record_sketch_decode(record, &back);
    assert_memory_equal(&sketch, &back, sizeof sketch);
    record->bins++;
    assert_false(sonde__record_sketch_valid(record, size));
    record->bins--;
    ((sonde__record_sketch_bin *)(void *)(record + 1))[1].bin = -SONDE_SKETCH_BINS - 1;
    assert_false(sonde__record_sketch_valid(record, size));
    free(record);
}

/* A checksum finds every change of a byte; text without one passes. */
static void seals_find_damage(void **state)
{
    char text[SONDE__INDEX_ROOM + SONDE__SEAL] =
        "{\"s\":100,\"m\":\"train\",\"k\":100,\"t\":3,\"b\":0,\"r\":0,\"o\":180,\"n\":24,"
        "\"d\":\"F32\",\"h\":\"0123456789abcdef\",\"p\":[2,3]}\n";
    sonde__record_index_line line;
    size_t n = strlen(text);

    (void)state;
    assert_false(sonde__record_seal_broken(text, n));
    n = sonde__record_seal(text, n);
    assert_false(sonde__record_seal_broken(text, n));
    assert_true(sonde__record_index_parse(text, n - 1, &line));
    for (size_t i = 0; i < n - 1; i++) {
        text[i] ^= 1;
        assert_false(sonde__record_index_parse(text, n - 1, &line));
        assert_true(sonde__record_seal_broken(text, n) || i + 3 > n - 1);
        text[i] ^= 1;
    }
    memcpy(text + n - 5, "\"}\n", 4); /* a shorter checksum, still JSON */
    assert_true(sonde__record_seal_broken(text, n - 2));
}

static void listed_files_come_back(void **state)
{
    static const char *const wrong[] = {"../../etc/passwd", "seg-00000001.part", "", "x"};
    const sonde__record_listed wanted = {
        .name = "seg-00000012.safetensors", .size = 4096, .covered = 512, .hash = 77};
    sonde__record_listed line = {0};
    char text[SONDE__LISTED_ROOM];
    const size_t n = sonde__record_listed_print(&wanted, text);

    (void)state;
    assert_true(n < sizeof text && text[n - 1] == '\n');
    assert_true(sonde__record_listed_parse(text, n - 1, &line));
    assert_string_equal(line.name, wanted.name);
    assert_true(line.size == 4096 && line.covered == 512 && line.hash == 77);
    for (size_t i = 0; i < n - 1; i++) {
        text[i] ^= 1;
        assert_false(sonde__record_listed_parse(text, n - 1, &line));
        text[i] ^= 1;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(wrong); i++) {
        sonde__record_listed other = wanted;

        (void)snprintf(other.name, sizeof other.name, "%s", wrong[i]);
        assert_false(sonde__record_listed_parse(
            text, sonde__record_listed_print(&other, text) - 1, &line));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seals_find_damage),
        cmocka_unit_test(listed_files_come_back),
        cmocka_unit_test(the_lines_of_the_page_are_read_and_written),
        cmocka_unit_test(lines_come_back),
        cmocka_unit_test(spoilt_lines_are_refused_or_mean_what_they_say),
        cmocka_unit_test(lines_that_say_the_impossible_are_refused),
        cmocka_unit_test(generations_come_back),
        cmocka_unit_test(a_later_generation_supersedes),
        cmocka_unit_test(names_of_files_come_back),
        cmocka_unit_test(names_of_workers_come_back),
        cmocka_unit_test(rows_hold_all_vital_signs),
        cmocka_unit_test(rows_of_steps_are_checked),
        cmocka_unit_test(sketches_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
