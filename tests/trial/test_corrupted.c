/*
 * test_corrupted.c - each file of a run, damaged in each way: verify reports all of it,
 * and readers neither crash nor hang.
 *
 * The run is one by the recorder: resumed once, several files of each kind. Bytes are
 * turned one after another, in small steps; then whole stretches, lines, rows and files
 * are cut, removed, doubled, and replaced by those of another run or worker.
 */
#include "trial/run_folder.h"

#include "base/macros.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/recorder.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <sys/stat.h>

enum { STEPS = 10, MOST_FILES = 64, MOST_BYTES = 1 << 17, STRIDE = 13 };

/* --- runs ------------------------------------------------------------------------------- */

static sonde_catalogue *declared(void)
{
    sonde_catalogue *catalogue = NULL;

    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    for (int t = 0; t < KNOWN_TENSORS; t++) {
        const sonde_tensor_info info = {.name = known_names[t],
                                        .dtype = SONDE_F32,
                                        .rank = t == 2 ? 0 : 2,
                                        .shape = {t == 2 ? 0 : 2, t == 2 ? 0 : 3},
                                        .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    }
    return catalogue;
}

static void record_step(sonde_recorder *recorder, int64_t s)
{
    static sonde_sketch sketch;
    const sonde_coordinate at = known_at(s);

    for (int t = 0; t < KNOWN_TENSORS; t++) {
        float data[KNOWN_COUNT];
        const sonde_view view = known_value(t, s, 0, data);
        sonde_vitals vitals;

        sonde_vitals_of(&view, &vitals);
        sonde__recorder_put_vitals(recorder, (uint32_t)t, &at, &vitals);
        sonde__recorder_put(recorder, (uint32_t)t, &at, &view);
    }
    sonde_sketch_init(&sketch);
    sketch.positive[s] = 2;
    sonde__recorder_put_sketch(recorder, 0, &at, &sketch);
    sonde__recorder_end_step(recorder, &at);
}

/* Steps begin ... end - 1 of a worker, in files of their own. */
static void record(const char *path, int rank, int world, int64_t begin, int64_t end)
{
    sonde_catalogue *const catalogue = declared();
    sonde_recorder *recorder = NULL;

    assert_int_equal(
        sonde__recorder_create(
            SONDE_OPTIONS(sonde_recorder, .path = path, .rank = rank, .world = world,
                          .segment_bytes = 512, .resume = begin > 0 ? "any" : NULL,
                          .resume_step = begin, .resume_mode = SONDE_MODE_GLOBAL),
            catalogue, &recorder, NULL),
        SONDE_OK);
    for (int64_t s = begin; s < end; s++) {
        record_step(recorder, s);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    sonde_catalogue_destroy(catalogue);
}

/* --- files ------------------------------------------------------------------------------ */

typedef struct content {
    char path[256]; /* below the run */
    unsigned char *bytes;
    size_t size;
} content;

static content files[MOST_FILES];
static size_t file_count;

static const char *in(const char *run, const char *path)
{
    static char full[2][1024];
    static int which;

    which ^= 1;
    (void)snprintf(full[which], sizeof full[which], "%.500s/%.500s", run, path);
    return full[which];
}

static void store(const char *run, const char *path, const void *bytes, size_t size)
{
    FILE *const file = writer_file(in(run, path), "w");

    assert_true(size == 0 || fwrite(bytes, size, 1, file) == 1);
    assert_int_equal(fclose(file), 0);
}

static void restore(const content *file)
{
    store(test_run, file->path, file->bytes, file->size);
}

static int keep(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)at;
    if (kind == FTW_F && about->st_size > 0) {
        content *const file = &files[file_count++];
        FILE *const from = writer_file(path, "r");

        assert_true(file_count < MOST_FILES && about->st_size < MOST_BYTES);
        (void)snprintf(file->path, sizeof file->path, "%s", path + strlen(test_run) + 1);
        file->size = (size_t)about->st_size;
        file->bytes = malloc(file->size);
        assert_non_null(file->bytes);
        assert_true(fread(file->bytes, file->size, 1, from) == 1 && fclose(from) == 0);
    }
    return 0;
}

static void keep_files(void)
{
    file_count = 0;
    assert_int_equal(nftw(test_run, keep, 16, FTW_PHYS), 0);
    assert_true(file_count > 10);
}

static void forget_files(void)
{
    for (size_t i = 0; i < file_count; i++) {
        free(files[i].bytes);
    }
    file_count = 0;
}

/* --- looking ---------------------------------------------------------------------------- */

static bool is_reported(void)
{
    sonde_verify_report report = {0};

    return sonde_trial_verify(test_run, &report, NULL, NULL, NULL) != SONDE_OK ||
           report.damaged > 0 || report.torn > 0;
}

static void read_everything(void)
{
    sonde_trial *trial = NULL;

    if (sonde_trial_open(test_run, NULL, &trial, NULL) != SONDE_OK) {
        return;
    }
    for (int64_t s = 0; s < STEPS; s++) {
        const sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, s);

        for (uint32_t t = 0; t < sonde_catalogue_count(sonde_trial_catalogue(trial));
             t++) {
            sonde_view view;

            if (sonde_trial_value(trial, t, &at, &view, NULL) == SONDE_OK) {
                assert_non_null(view.data);
            }
        }
    }
    sonde_trial_close(trial);
}

/* The run is damaged: is it reported? Then the file is whole again. */
static void expect_reported(const content *file, const char *how, size_t at)
{
    if (!is_reported()) {
        fail_msg("%s: %s at %zu of %zu is not reported", file->path, how, at, file->size);
    }
    restore(file);
}

static void with_two_sessions(void)
{
    record(test_run, 0, 1, 0, STEPS / 2);
    record(test_run, 0, 1, STEPS / 2 - 1, STEPS);
    assert_false(is_reported());
    keep_files();
}

/* --- bytes ------------------------------------------------------------------------------ */

static void a_turned_bit_anywhere_is_reported(void **state)
{
    (void)state;
    with_two_sessions();
    for (size_t i = 0; i < file_count; i++) {
        const content *const file = &files[i];

        for (size_t at = i % STRIDE; at < file->size; at += STRIDE) {
            FILE *const damaged = writer_file(in(test_run, file->path), "r+");
            const int byte =
                file->bytes[at] ^ (1 << (int)sonde__below(3, (uint64_t)i, at, 8));

            assert_true(fseek(damaged, (long)at, SEEK_SET) == 0 &&
                        fputc(byte, damaged) == byte && fclose(damaged) == 0);
            if (at % 64 == 0) {
                read_everything();
            }
            expect_reported(file, "a bit", at);
        }
    }
    forget_files();
}

static void a_cut_or_zeroed_stretch_is_reported(void **state)
{
    static unsigned char bytes[MOST_BYTES];

    (void)state;
    with_two_sessions();
    for (size_t i = 0; i < file_count; i++) {
        const content *const file = &files[i];
        const size_t stride = file->size / 40 + 1;

        for (size_t at = 0; at < file->size; at += stride) {
            const size_t size = SONDE_MIN(file->size - at, (size_t)32);

            store(test_run, file->path, file->bytes, at);
            read_everything();
            expect_reported(file, "a cut", at);

            memcpy(bytes, file->bytes, file->size);
            memset(bytes + at, 0, size);
            if (memcmp(bytes, file->bytes, file->size) != 0) {
                store(test_run, file->path, bytes, file->size);
                read_everything();
                expect_reported(file, "zeros", at);
            }
        }
        store(test_run, file->path, file->bytes, file->size - 1);
        expect_reported(file, "a cut", file->size - 1);
    }
    forget_files();
}

/* JSON still, but without its checksum. */
static void a_missing_checksum_is_reported(void **state)
{
    (void)state;
    record(test_run, 0, 1, 0, STEPS);
    assert_false(is_reported());
    keep_files();
    for (size_t i = 0; i < file_count; i++) {
        const content *const file = &files[i];
        const unsigned char *second = NULL;
        char text[512];

        if (strstr(file->path, ".json") == NULL || strstr(file->path, "jsonl") != NULL) {
            continue;
        }
        second = memchr(file->bytes, ',', file->size);
        assert_non_null(second);
        (void)snprintf(text, sizeof text, "%.*s}\n", (int)(second - file->bytes),
                       (const char *)file->bytes);
        store(test_run, file->path, text, strlen(text));
        read_everything();
        expect_reported(file, "all but the first key gone", 0);
    }
    forget_files();
}

/* --- items ------------------------------------------------------------------------------ */

/* Where the item begins that contains or follows a place; the size of the file: none. */
static size_t item_at(const content *file, size_t place)
{
    const bool stats = strstr(file->path, "stats-") != NULL;
    const size_t head = stats ? SONDE__STATS_HEAD : SONDE__STEPS_HEAD;
    const size_t row = stats ? SONDE__STATS_ROW : SONDE__STEPS_ROW;
    const unsigned char *newline = NULL;

    if (stats || strstr(file->path, "steps-") != NULL) {
        return place <= head
                   ? head
                   : SONDE_MIN(head + (place - head + row - 1) / row * row, file->size);
    }
    newline = place > 0 ? memchr(file->bytes + place - 1, '\n', file->size - place + 1)
                        : file->bytes;
    return newline == NULL ? file->size
           : place == 0    ? 0
                           : (size_t)(newline + 1 - file->bytes);
}

static void expect_spliced(const content *file, const char *how, size_t keep_to,
                           size_t again_from, size_t again_to, size_t rest)
{
    static unsigned char bytes[2 * MOST_BYTES];
    size_t size = keep_to;

    memcpy(bytes, file->bytes, keep_to);
    memcpy(bytes + size, file->bytes + again_from, again_to - again_from);
    size += again_to - again_from;
    memcpy(bytes + size, file->bytes + rest, file->size - rest);
    size += file->size - rest;
    if (size == file->size && memcmp(bytes, file->bytes, size) == 0) {
        return;
    }
    store(test_run, file->path, bytes, size);
    read_everything();
    expect_reported(file, how, keep_to);
}

/* Rows and lines have checks of their own, which are right in all of this. */
static void moved_items_are_reported(void **state)
{
    (void)state;
    with_two_sessions();
    for (size_t i = 0; i < file_count; i++) {
        const content *const file = &files[i];
        size_t first = item_at(file, 0), second = item_at(file, first + 1), end = 0;

        expect_spliced(file, "the file twice", file->size, 0, file->size, file->size);
        for (; first < file->size; first = second, second = end) {
            second = item_at(file, first + 1);
            end = second < file->size ? item_at(file, second + 1) : file->size;
            expect_spliced(file, "an item removed", first, 0, 0, second);
            expect_spliced(file, "an item twice", second, first, second, second);
            expect_spliced(file, "an item over the next", second, first, second, end);
            if (second >= file->size) {
                break;
            }
            end = second;
        }
    }
    forget_files();
}

/* --- files ------------------------------------------------------------------------------ */

static void a_removed_file_is_reported(void **state)
{
    (void)state;
    with_two_sessions();
    for (size_t i = 0; i < file_count; i++) {
        assert_int_equal(unlink(in(test_run, files[i].path)), 0);
        read_everything();
        expect_reported(&files[i], "removal", 0);
    }
    forget_files();
}

static void an_additional_file_is_reported(void **state)
{
    static const char *const names[][2] = {
        {"w0000/stats-00000000.npy", "w0000/stats-00000002.npy"},
        {"w0000/stats-00000000.npy", "w0000/stats-00000002.part"},
        {"w0000/steps-00000001.npy", "w0000/steps-00000002.npy"},
        {"w0000/sketch-00000001.bin", "w0000/sketch-00000002.bin"},
        {"w0000/seg-00000001.jsonl", "w0000/seg-00000002.jsonl"},
    };

    (void)state;
    with_two_sessions();
    for (size_t n = 0; n < SONDE_COUNT_OF(names); n++) {
        for (size_t i = 0; i < file_count; i++) {
            if (strcmp(files[i].path, names[n][0]) == 0) {
                store(test_run, names[n][1], files[i].bytes, files[i].size);
            }
        }
        read_everything();
        if (!is_reported()) {
            fail_msg("%s is not reported", names[n][1]);
        }
        assert_int_equal(unlink(in(test_run, names[n][1])), 0);
    }
    forget_files();
}

static void exchange(const char *a, const char *b)
{
    char between[1040];

    (void)snprintf(between, sizeof between, "%s.other", a);
    assert_int_equal(rename(a, between), 0);
    assert_int_equal(rename(b, a), 0);
    assert_int_equal(rename(between, b), 0);
}

static bool is_numbered(const char *path, int number)
{
    char digits[16];

    (void)snprintf(digits, sizeof digits, "-%08d.", number);
    return strstr(path, digits) != NULL;
}

static void exchanged_files_are_reported(void **state)
{
    (void)state;
    with_two_sessions();
    for (size_t i = 0; i < file_count; i++) {
        char other[256];
        char *digit = NULL;

        if (!is_numbered(files[i].path, 0)) {
            continue;
        }
        (void)snprintf(other, sizeof other, "%.255s", files[i].path);
        digit = strchr(strchr(other, '/'), '.') - 1;
        *digit = '1';
        exchange(in(test_run, files[i].path), in(test_run, other));
        read_everything();
        if (!is_reported()) {
            fail_msg("%s and %s exchanged: not reported", files[i].path, other);
        }
        exchange(in(test_run, files[i].path), in(test_run, other));
    }
    assert_false(is_reported());
    forget_files();
}

/* The same steps with the same values, a moment later. */
static void files_of_another_run_are_reported(void **state)
{
    char other[256];

    (void)state;
    with_two_sessions();
    (void)snprintf(other, sizeof other, "%s.other", test_run);
    record(other, 0, 1, 0, STEPS / 2);
    record(other, 0, 1, STEPS / 2 - 1, STEPS);
    for (size_t i = 0; i < file_count; i++) {
        FILE *const file = writer_file(in(other, files[i].path), "r");
        static char bytes[MOST_BYTES];
        const size_t size = fread(bytes, 1, sizeof bytes, file);

        assert_int_equal(fclose(file), 0);
        if (size != files[i].size || memcmp(bytes, files[i].bytes, size) != 0) {
            store(test_run, files[i].path, bytes, size);
            read_everything();
            expect_reported(&files[i], "of another run", 0);
        }
    }
    forget_files();
}

static void files_of_another_worker_are_reported(void **state)
{
    (void)state;
    record(test_run, 1, 2, 0, STEPS);
    record(test_run, 0, 2, 0, STEPS); /* ends the run */
    assert_false(is_reported());
    keep_files();
    exchange(in(test_run, "w0000"), in(test_run, "w0001"));
    assert_true(is_reported());
    exchange(in(test_run, "w0000"), in(test_run, "w0001"));
    for (size_t i = 0; i < file_count; i++) {
        char other[256];

        if (strncmp(files[i].path, "w0000/", 6) != 0) {
            continue;
        }
        (void)snprintf(other, sizeof other, "w0001%.200s", files[i].path + 5);
        for (size_t k = 0; k < file_count; k++) {
            if (strcmp(files[k].path, other) == 0 &&
                (files[i].size != files[k].size ||
                 memcmp(files[i].bytes, files[k].bytes, files[i].size) != 0)) {
                store(test_run, files[i].path, files[k].bytes, files[k].size);
                expect_reported(&files[i], "of another worker", 0);
            }
        }
    }
    forget_files();
}

static void a_damaged_finding_is_reported(void **state)
{
    char text[128] = "{\"id\":\"0123456789abcdef\",\"rule\":\"NonFinite\"}\n";
    const size_t size = sonde__record_seal(text, strlen(text));

    (void)state;
    with_two_sessions();
    assert_int_equal(mkdir(in(test_run, "findings"), 0777), 0);
    store(test_run, "findings/NonFinite.jsonl", text, size);
    assert_false(is_reported());
    for (size_t at = 0; at < size; at++) {
        text[at] ^= 2;
        store(test_run, "findings/NonFinite.jsonl", text, size);
        if (!is_reported()) {
            fail_msg("byte %zu of a finding is not reported", at);
        }
        text[at] ^= 2;
    }
    store(test_run, "findings/NonFinite.jsonl", text, size - 4);
    assert_true(is_reported());
    forget_files();
}

/* Lines of findings have numbers. */
static void a_missing_finding_is_reported(void **state)
{
    enum { LINES = 4 };
    char lines[LINES][128], text[LINES * 128];

    (void)state;
    with_two_sessions();
    assert_int_equal(mkdir(in(test_run, "findings"), 0777), 0);
    for (int i = 0; i < LINES; i++) {
        const int n = snprintf(lines[i], sizeof lines[i],
                               "{\"id\":\"%016x\",\"rule\":\"X\",\"n\":%d}\n", i, i + 1);

        lines[i][sonde__record_seal(lines[i], (size_t)n)] = '\0';
    }
    for (int left_out = 0; left_out <= LINES; left_out++) { /* LINES: none */
        text[0] = '\0';
        for (int i = 0; i < LINES; i++) {
            strncat(text, i != left_out ? lines[i] : "", sizeof lines[i]);
        }
        store(test_run, "findings/X.jsonl", text, strlen(text));
        assert_int_equal(is_reported(),
                         left_out < LINES - 1); /* after the last is nothing */
    }
    (void)snprintf(text, sizeof text, "%s%s%s", lines[0], lines[1], lines[1]);
    store(test_run, "findings/X.jsonl", text, strlen(text));
    assert_true(is_reported());
    (void)snprintf(text, sizeof text, "{\"of\":\"another program\"}\n%s", lines[1]);
    store(test_run, "findings/X.jsonl", text, strlen(text));
    assert_false(is_reported());
    forget_files();
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(a_turned_bit_anywhere_is_reported),
        ON_ITS_OWN(a_cut_or_zeroed_stretch_is_reported),
        ON_ITS_OWN(a_missing_checksum_is_reported),
        ON_ITS_OWN(moved_items_are_reported),
        ON_ITS_OWN(a_removed_file_is_reported),
        ON_ITS_OWN(an_additional_file_is_reported),
        ON_ITS_OWN(exchanged_files_are_reported),
        ON_ITS_OWN(files_of_another_run_are_reported),
        ON_ITS_OWN(files_of_another_worker_are_reported),
        ON_ITS_OWN(a_damaged_finding_is_reported),
        ON_ITS_OWN(a_missing_finding_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
