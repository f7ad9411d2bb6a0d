/*
 * test_rotation.c - files are closed when they are full, when they are old, and when
 * their header is full; whatever the order, everything is in one of them.
 */
#include "record/run_dir.h"
#include "base/clock.h"
#include "record/record_sink.h"

#include <math.h>
#include <time.h>

static void put(sonde_recorder *recorder, uint32_t id, int64_t step, size_t n)
{
    static float x[1 << 17];
    const int64_t shape = (int64_t)n;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(step);

    for (size_t i = 0; i < n; i++) {
        x[i] = (float)((int64_t)i + step);
    }
    sonde__recorder_put(recorder, id, &at, &view);
}

static void close_well(sonde_recorder *recorder)
{
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
}

static uint64_t size_of(const char *run, sonde__record_file_kind kind, uint64_t number)
{
    char path[RUN_PATH], name[SONDE__FILE_NAME], folder[SONDE__FILE_NAME * 2];
    struct stat about;

    sonde__record_file_name(name, kind, number, false);
    (void)snprintf(folder, sizeof folder, "w0000/%s", name);
    assert_int_equal(stat(run_file(path, run, folder), &about), 0);
    return (uint64_t)about.st_size;
}

static void full_segments_are_closed(void **state)
{
    enum { STEPS = 1000, FLOATS = 250, SEGMENT = 100000 };
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(3, FLOATS);
    sonde_recorder *recorder =
        run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "full"),
                                 .segment_bytes = SEGMENT),
                   catalogue);
    run_content content = {0};

    (void)state;
    for (int64_t step = 0; step < STEPS; step++) {
        const sonde_coordinate at = run_at(step);

        for (uint32_t id = 0; id < 3; id++) {
            put(recorder, id, step, FLOATS);
        }
        sonde__recorder_end_step(recorder, &at);
        if (step == STEPS / 2) {
            assert_true(sonde__recorder_drain(recorder, 60));
            run_read(path, 0, &content);
            assert_int_equal(content.values, (step + 1) * 3);
            assert_int_equal(content.parts, 2); /* the segment, and the steps */
        }
    }
    put(recorder, 0, STEPS, SEGMENT); /* larger than a segment: one of its own */
    put(recorder, 0, STEPS + 1, FLOATS);
    close_well(recorder);
    run_read(path, 0, &content);
    assert_int_equal(content.values, STEPS * 3 + 2);
    assert_int_equal(content.ends, STEPS);
    assert_int_equal(content.parts, 0);
    assert_in_range(content.closed, STEPS * 3 * FLOATS * 4 / SEGMENT + 2, 40);
    for (uint64_t i = 0; i + 2 < content.closed; i++) {
        assert_true(size_of(path, SONDE__FILE_SEGMENT, i) < SEGMENT + 1024 * 1024);
    }
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* Values so small that their header would be larger than they: the first segments are
 * closed early, then their headers get the room they need. */
static void full_headers_close_segments(void **state)
{
    enum { STEPS = 40000 };
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 1);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "headers")), catalogue);
    run_content content = {0};

    (void)state;
    for (int64_t step = 0; step < STEPS; step++) {
        put(recorder, 0, step, 1);
    }
    close_well(recorder);
    run_read(path, 0, &content);
    assert_int_equal(content.values, STEPS);
    assert_in_range(content.closed, 3, 12);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void old_files_are_closed(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 4);
    sonde_recorder *recorder =
        run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "old"),
                                 .segment_seconds = 0.2),
                   catalogue);
    static sonde_sketch sketch;
    sonde_vitals vitals;
    run_content content = {0};
    const sonde_coordinate at = run_at(0);
    const double until = sonde__now() + 60.0;

    (void)state;
    sonde_vitals_init(&vitals);
    sonde_sketch_init(&sketch);
    put(recorder, 0, 0, 4);
    sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
    sonde__recorder_put_sketch(recorder, 0, &at, &sketch);
    assert_true(sonde__recorder_drain(recorder, 60));
    do { /* nothing more is put */
        const struct timespec nap = {.tv_nsec = 20000000};

        (void)nanosleep(&nap, NULL);
    } while (!(run_has(path, "w0000/seg-00000000.safetensors") &&
               run_has(path, "w0000/stats-00000000.npy") &&
               run_has(path, "w0000/sketch-00000000.bin")) &&
             sonde__now() < until);
    run_read(path, 0, &content);
    assert_int_equal(content.closed, 3);
    assert_int_equal(content.parts, 0);
    put(recorder, 0, 1, 4);
    sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
    close_well(recorder);
    run_read(path, 0, &content);
    assert_int_equal(content.closed, 5);
    assert_int_equal(content.values, 2);
    assert_int_equal(content.rows, 2);
    assert_int_equal(content.sketches, 1);
    assert_int_equal(run_number(path, "w0000/state.json", "segment"), 2);
    assert_int_equal(run_number(path, "w0000/state.json", "stats"), 2);
    assert_int_equal(run_number(path, "w0000/state.json", "sketch"), 1);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void full_streams_are_closed(void **state)
{
    enum { ROWS = 20000, SEGMENT = 200000 };
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 4);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "streams"),
                      .segment_bytes = SEGMENT, .when_full = SONDE_WHEN_FULL_WAIT),
        catalogue);
    sonde_vitals vitals;
    static sonde_sketch sketch;
    run_content content = {0};

    (void)state;
    sonde_vitals_init(&vitals);
    sonde_sketch_init(&sketch);
    sketch.positive[3] = 1;
    for (int64_t i = 0; i < ROWS; i++) {
        const sonde_coordinate at = run_at(i);

        sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
        sonde__recorder_put_sketch(recorder, 0, &at, &sketch);
        if (i % 512 == 0) {
            assert_true(sonde__recorder_drain(recorder, 60));
        }
    }
    close_well(recorder);
    run_read(path, 0, &content);
    assert_int_equal(content.rows, ROWS);
    assert_int_equal(content.sketches, ROWS);
    assert_in_range(content.closed, 15, 30);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* Another process sees a step soon after its end, though nobody waits for the writer. */
static void a_step_is_seen_at_once(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 1000);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "seen")), catalogue);
    double best = INFINITY, worst = 0.0;

    (void)state;
    put(recorder, 0, 0, 1000);
    assert_true(sonde__recorder_drain(recorder, 60)); /* the catalogue is there */
    for (int64_t step = 1; step <= 20; step++) {
        const sonde_coordinate at = run_at(step);
        run_content content = {0};
        double began = 0.0, took = 0.0;

        put(recorder, 0, step, 1000);
        sonde__recorder_end_step(recorder, &at);
        began = sonde__now();
        do {
            run_read(path, 0, &content);
            took = sonde__now() - began;
        } while (content.last_step < step && took < 60.0);
        assert_int_equal(content.values, step + 1);
        best = took < best ? took : best;
        worst = took > worst ? took : worst;
    }
    print_message("seen after %.1f to %.1f ms\n", best * 1e3, worst * 1e3);
    assert_true(best < 0.1); /* most steps may wait for a busy machine */
    close_well(recorder);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_segments_are_closed),
        cmocka_unit_test(full_headers_close_segments),
        cmocka_unit_test(old_files_are_closed),
        cmocka_unit_test(full_streams_are_closed),
        cmocka_unit_test(a_step_is_seen_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
