/*
 * test_cursor.c - walking over a run: everything once and in order, of the tensors,
 * modes and kinds asked for, while it grows, and with data read ahead.
 */
#include "trial/run_folder.h"

#include "base/macros.h"
#include "trial/trial_state.h"

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static void write_steps(writer *w, int64_t first, int64_t end, int rotate)
{
    for (int64_t s = first; s < end; s++) {
        known_step(w, known_at(s));
        if (rotate > 0 && s % rotate == rotate - 1) {
            writer_rotate(w);
        }
    }
}

static void begin(writer *w)
{
    writer_begin(test_run, 1);
    writer_open(w, test_run, 0);
    writer_alive(w);
    known_declare(w);
}

static sonde_trial_cursor *cursor_over(sonde_trial *trial,
                                       const sonde_trial_cursor_options *options)
{
    sonde_trial_cursor *cursor = NULL;

    assert_int_equal(sonde_trial_cursor_create(trial, options, &cursor, NULL), SONDE_OK);
    return cursor;
}

/* What a record must hold, by what the known run is. */
static void check_record(const sonde_trial_record *record)
{
    static sonde_sketch sketch;
    float data[KNOWN_COUNT];
    sonde_vitals vitals;
    const sonde_coordinate at = known_at(record->at.global_step);
    const sonde_view view = known_value((int)record->id, at.global_step, 0, data);

    assert_int_equal(record->at.mode, at.mode);
    assert_int_equal(record->at.mode_step, at.mode_step);
    assert_int_equal(record->at.micro_batch, 0);
    switch (record->how) {
    case SONDE_HOW_RAW:
        assert_true(sonde_view_same_shape(&record->view, &view));
        assert_memory_equal(record->view.data, data, (size_t)sonde_view_count(&view) * 4);
        break;
    case SONDE_HOW_VITALS:
        sonde_vitals_of(&view, &vitals);
        assert_memory_equal(record->vitals, &vitals, sizeof vitals);
        break;
    case SONDE_HOW_SKETCH:
        sonde_sketch_init(&sketch);
        sonde_sketch_add(&sketch, &view);
        assert_memory_equal(record->sketch, &sketch, sizeof sketch);
        break;
    default:
        fail();
    }
}

/* Records until the end, in ascending order of steps. */
static int walk(sonde_trial_cursor *cursor, int64_t *first, int64_t *last)
{
    sonde_trial_record record;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;
    int count = 0;

    *first = *last = -1;
    while ((err = sonde_trial_next(cursor, &record, &diag)) == SONDE_OK) {
        check_record(&record);
        assert_true(record.at.global_step >= *last);
        *last = record.at.global_step;
        *first = count == 0 ? *last : *first;
        count++;
    }
    assert_int_equal(err, SONDE_EEND);
    return count;
}

static void all_of_it_comes_in_order(void **state)
{
    const sonde_trial_cursor_options all = {.size = sizeof all,
                                            .how = SONDE_HOW_RAW | SONDE_HOW_VITALS |
                                                   SONDE_HOW_SKETCH,
                                            .mode = SONDE_MODE_GLOBAL};
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursors[2];
    int64_t first = 0, end = 0;
    writer w;

    (void)state;
    begin(&w);
    write_steps(&w, 0, 30, 7);
    writer_close(&w);
    writer_end(test_run, "finished", 29);
    trial = trial_opened(test_run);
    cursors[0] = cursor_over(trial, NULL);
    cursors[1] = cursor_over(trial, &all);
    assert_int_equal(walk(cursors[0], &first, &end), 90);
    assert_int_equal(first, 0);
    assert_int_equal(end, 29);
    assert_int_equal(walk(cursors[1], &first, &end), 30 * 7);
    assert_int_equal(walk(cursors[1], &first, &end), 0); /* and no more */
    sonde_trial_cursor_destroy(cursors[0]);
    sonde_trial_cursor_destroy(cursors[1]);
    sonde_trial_close(trial);
}

static void a_part_of_it_is_asked_for(void **state)
{
    static const uint32_t loss[] = {2, 2};
    const sonde_trial_cursor_options options = {.size = sizeof options,
                                                .ids = loss,
                                                .id_count = 2,
                                                .how = SONDE_HOW_RAW | SONDE_HOW_VITALS,
                                                .mode = SONDE_MODE_EVAL,
                                                .begin = 4,
                                                .end = 20};
    sonde_trial_cursor_options wrong = options;
    const uint32_t unknown = 3;
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    int64_t first = 0, end = 0;
    writer w;

    (void)state;
    begin(&w);
    write_steps(&w, 0, 30, 7);
    writer_close(&w);
    trial = trial_opened(test_run);
    cursor = cursor_over(trial, &options);
    assert_int_equal(walk(cursor, &first, &end), 8); /* steps 7, 11, 15, 19, twice */
    assert_int_equal(first, 7);
    assert_int_equal(end, 19);
    sonde_trial_cursor_destroy(cursor);
    wrong.ids = &unknown;
    wrong.id_count = 1;
    assert_int_equal(sonde_trial_cursor_create(trial, &wrong, &cursor, NULL),
                     SONDE_ERANGE);
    wrong = options;
    wrong.how = SONDE_HOW_HASH;
    assert_int_equal(sonde_trial_cursor_create(trial, &wrong, &cursor, NULL),
                     SONDE_EINVAL);
    wrong = options;
    wrong.end = 4;
    assert_int_equal(sonde_trial_cursor_create(trial, &wrong, &cursor, NULL),
                     SONDE_EINVAL);
    sonde_trial_cursor_destroy(NULL);
    sonde_trial_close(trial);
}

/* Step 6 has no end: it is not walked before it has, but where that is asked for. */
static void it_follows_a_live_run(void **state)
{
    const sonde_trial_cursor_options eager = {
        .size = sizeof eager, .mode = SONDE_MODE_GLOBAL, .incomplete = true};
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL, *other = NULL;
    int64_t first = 0, end = 0;
    writer w;

    (void)state;
    begin(&w);
    write_steps(&w, 0, 6, 4);
    known_put(&w, known_at(6), 0, SONDE__PACKED_NOT);
    trial = trial_opened(test_run);
    cursor = cursor_over(trial, NULL);
    other = cursor_over(trial, &eager);
    assert_int_equal(walk(cursor, &first, &end), 18);
    assert_int_equal(walk(other, &first, &end), 19);
    known_put(&w, known_at(6), 1, SONDE__PACKED_NOT);
    writer_end_step(&w, known_at(6));
    (void)trial_refreshed(trial);
    assert_int_equal(walk(cursor, &first, &end), 2);
    write_steps(&w, 7, 50, 4);
    assert_int_equal(walk(cursor, &first, &end), 0);
    (void)trial_refreshed(trial);
    assert_int_equal(walk(cursor, &first, &end), 43 * 3);
    assert_int_equal(first, 7);
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_cursor_destroy(other);
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* A refresh in the middle of a step changes nothing of it. */
static void a_refresh_may_come_in_between(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    sonde_trial_record record;
    int count = 0;
    writer w;

    (void)state;
    begin(&w);
    write_steps(&w, 0, 5, 2);
    trial = trial_opened(test_run);
    cursor = cursor_over(trial, NULL);
    while (sonde_trial_next(cursor, &record, NULL) == SONDE_OK) {
        check_record(&record);
        if (++count < 100) {
            write_steps(&w, 4 + count, 5 + count, 3);
            (void)trial_refreshed(trial);
        }
    }
    assert_int_equal(count, 3 * (5 + 99));
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* Of a value that was recorded twice the later one, once: in one step, and by a resume.
 */
static void what_was_overruled_is_not_met(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    int64_t first = 0, end = 0;
    float data[KNOWN_COUNT];
    const sonde_view wrong = known_value(0, 99, 0, data);
    writer w;

    (void)state;
    begin(&w);
    writer_put(&w, known_at(0), 0, &wrong, SONDE__PACKED_NOT);
    write_steps(&w, 0, 2, 0);
    for (int64_t s = 2; s < 6; s++) {
        writer_put(&w, known_at(s), 0, &wrong, SONDE__PACKED_NOT);
        writer_end_step(&w, known_at(s));
    }
    write_steps(&w, 2, 8, 3);
    trial = trial_opened(test_run);
    cursor = cursor_over(trial, NULL);
    assert_int_equal(walk(cursor, &first, &end), 24);
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* When the run is resumed from a step that a follower has passed, it gets one
 * SONDE_ERESUMED and then that step and the later ones again. */
static void going_back_is_reported(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL, *early = NULL;
    sonde_trial_record record;
    sonde_diag diag = {0};
    int64_t first = 0, end = 0;
    writer w;

    (void)state;
    begin(&w);
    write_steps(&w, 0, 9, 0);
    trial = trial_opened(test_run);
    cursor = cursor_over(trial, NULL);
    assert_int_equal(walk(cursor, &first, &end), 27);
    early = cursor_over(trial, NULL);
    assert_int_equal(sonde_trial_next(early, &record, NULL), SONDE_OK); /* of step 0 */
    writer_resume(&w, 5);
    (void)trial_refreshed(trial);
    assert_int_equal(sonde_trial_next(cursor, &record, &diag), SONDE_ERESUMED);
    assert_non_null(strstr(diag.found, "from step 5:"));
    assert_int_equal(sonde_trial_next(cursor, &record, NULL), SONDE_EEND);
    write_steps(&w, 5, 7, 0);
    (void)trial_refreshed(trial);
    assert_int_equal(walk(cursor, &first, &end), 6);
    assert_int_equal(first, 5);
    assert_int_equal(end, 6);
    assert_int_equal(walk(early, &first, &end),
                     20); /* before the step it was resumed from */
    assert_int_equal(end, 6);
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_cursor_destroy(early);
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* An unreadable record is an error once, and the walk continues. */
static void damage_does_not_end_the_walk(void **state)
{
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    sonde_trial_record record;
    sonde_diag diag = {0};
    int good = 0, bad = 0;
    writer w;

    (void)state;
    begin(&w);
    write_steps(&w, 0, 4, 0);
    assert_int_equal(fseek(w.segment, 8 + WRITER_HEAD + 60, SEEK_SET), 0);
    assert_true(fputc(77, w.segment) == 77 && fflush(w.segment) == 0);
    writer_end(test_run, "finished", 3);
    trial = trial_opened(test_run);
    cursor = cursor_over(trial, NULL);
    for (;;) {
        const sonde_err err = sonde_trial_next(cursor, &record, &diag);

        if (err == SONDE_EEND) {
            break;
        }
        good += err == SONDE_OK;
        bad += err == SONDE_EFORMAT;
    }
    assert_int_equal(good, 11);
    assert_int_equal(bad, 1);
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* So many bytes are asked for ahead, of what is wanted, and never twice. */
static void data_are_read_ahead(void **state)
{
    enum { COUNT = 1024, STEPS = 100, BYTES = COUNT * 4 };
    static const uint32_t one[] = {1};
    static float data[COUNT];
    const int64_t shape = COUNT;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, data);
    sonde_trial_cursor_options options = {.size = sizeof options,
                                          .mode = SONDE_MODE_GLOBAL,
                                          .ahead = (size_t)40 * BYTES,
                                          .incomplete = true};
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    sonde_trial_record record;
    uint64_t most = 0;
    writer w;

    (void)state;
    begin(&w);
    for (int64_t s = 0; s < STEPS; s++) {
        writer_put(&w, known_at(s), 0, &view, SONDE__PACKED_NOT);
        writer_put(&w, known_at(s), 1, &view, SONDE__PACKED_NOT);
        if (s == 50) {
            writer_rotate(&w);
        }
    }
    trial = trial_opened(test_run);
    cursor = cursor_over(trial, &options);
    for (uint64_t reached = 1; sonde_trial_next(cursor, &record, NULL) == SONDE_OK;
         reached++) {
        const uint64_t told = sonde__trial_cursor_fetched(cursor);

        most = told;
        /* At least half of it ahead of the step being read, and no more than all of it.
         */
        assert_true(told + (reached + 1) / 2 * 2 * BYTES >=
                    SONDE_MIN((reached + 20) * BYTES, (uint64_t)STEPS * 2 * BYTES));
        assert_true(told <= (reached + 41) * BYTES);
    }
    assert_int_equal(most, (STEPS - 1) * 2 * BYTES); /* all but the first step */
    sonde_trial_cursor_destroy(cursor);
    options.ids = one;
    options.id_count = 1;
    cursor = cursor_over(trial, &options);
    while (sonde_trial_next(cursor, &record, NULL) == SONDE_OK) {
        most = sonde__trial_cursor_fetched(cursor);
    }
    /* The gaps between its values are small: they come along. */
    assert_in_range(most, (STEPS - 1) * BYTES, (STEPS - 1) * 2 * BYTES);
    sonde_trial_cursor_destroy(cursor);
    options.ahead = SIZE_MAX;
    cursor = cursor_over(trial, &options);
    while (sonde_trial_next(cursor, &record, NULL) == SONDE_OK) {
        assert_int_equal(sonde__trial_cursor_fetched(cursor), 0);
    }
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_close(trial);
    writer_drop(&w);
}

/* A walk over everything announces only the beginning of each segment. */
static void a_dense_walk_is_left_to_the_kernel(void **state)
{
    enum { COUNT = 65536, STEPS = 24, BYTES = COUNT * 4 };
    static float data[COUNT];
    static const uint32_t both[] = {0, 1};
    const int64_t shape = COUNT;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, data);
    sonde_trial *trial = NULL;
    writer w;

    (void)state;
    begin(&w);
    for (int64_t s = 0; s < STEPS; s++) {
        writer_put(&w, known_at(s), (uint32_t)(s % 2), &view, SONDE__PACKED_NOT);
    }
    trial = trial_opened(test_run);
    for (int some = 0; some < 2; some++) {
        const sonde_trial_cursor_options options = {.size = sizeof options,
                                                    .mode = SONDE_MODE_GLOBAL,
                                                    .ids = some != 0 ? both : NULL,
                                                    .id_count = 2,
                                                    .incomplete = true};
        sonde_trial_cursor *cursor = cursor_over(trial, &options);
        sonde_trial_record record;
        uint64_t told = 0;

        while (sonde_trial_next(cursor, &record, NULL) == SONDE_OK) {
            told = sonde__trial_cursor_fetched(cursor);
        }
        assert_int_equal(told, some != 0 ? (STEPS - 1) * BYTES : 3 * BYTES);
        sonde_trial_cursor_destroy(cursor);
    }
    sonde_trial_close(trial);
    writer_drop(&w);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(all_of_it_comes_in_order),
        ON_ITS_OWN(a_part_of_it_is_asked_for),
        ON_ITS_OWN(it_follows_a_live_run),
        ON_ITS_OWN(a_refresh_may_come_in_between),
        ON_ITS_OWN(what_was_overruled_is_not_met),
        ON_ITS_OWN(going_back_is_reported),
        ON_ITS_OWN(damage_does_not_end_the_walk),
        ON_ITS_OWN(data_are_read_ahead),
        ON_ITS_OWN(a_dense_walk_is_left_to_the_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
