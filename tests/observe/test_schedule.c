/*
 * test_schedule.c - due and next due, against the definition spelt out step by step.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/random.h"

#include <sonde/error.h>
#include <sonde/schedule.h>
#include <sonde/tap.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The definition in the header, word by word. */
static bool due_by_definition(const sonde_schedule *s, int64_t step)
{
    if (step < 0) {
        return false;
    }
    if (s->step_count > 0) {
        for (size_t i = 0; i < s->step_count; i++) {
            if (s->steps[i] == step) {
                return true;
            }
        }
        return false;
    }
    return s->every >= 1 &&
           (step < s->first ||
            (s->start <= step && (step < s->end || (s->start == 0 && s->end == 0)) &&
             (step % s->every == 0 || (s->row > 0 && step % s->row_every < s->row))));
}

static void compare_with_definition(const sonde_schedule *s)
{
    int64_t next = SONDE_SCHEDULE_NEVER;

    for (int64_t step = 60; step >= -3; step--) {
        const bool due = due_by_definition(s, step);

        next = due ? step : next;
        assert_int_equal(sonde_schedule_due(s, step), due);
        if (next != SONDE_SCHEDULE_NEVER) {
            assert_int_equal(sonde_schedule_next(s, step), next);
        }
    }
}

static void random_schedules_follow_the_definition(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 3000; n++) {
        int64_t steps[5];
        sonde_schedule s = {.every = (int64_t)sonde__below(1, 0, n, 12)};

        s.start = (int64_t)sonde__below(1, 1, n, 20);
        s.first =
            sonde__below(1, 20, n, 3) == 0 ? (int64_t)sonde__below(1, 21, n, 30) : 0;
        s.row = (int64_t)sonde__below(1, 22, n, 4);
        s.row_every = 1 + (int64_t)sonde__below(1, 23, n, 20);
        s.end = sonde__below(1, 2, n, 2) ? (int64_t)sonde__below(1, 3, n, 50) : 0;
        s.step_count =
            sonde__below(1, 4, n, 3) == 0 ? (size_t)sonde__below(1, 5, n, 6) : 0;
        for (size_t i = 0; i < s.step_count; i++) {
            const int64_t before = i > 0 ? steps[i - 1] : 0;

            steps[i] = before + (int64_t)sonde__below(1, 6 + i, n, 12);
        }
        s.steps = steps;
        compare_with_definition(&s);
    }
}

static int count_due(sonde_schedule s, int64_t steps)
{
    int count = 0;

    for (int64_t step = 0; step < steps; step++) {
        count += sonde_schedule_due(&s, step);
    }
    return count;
}

static void worked_cases_come_out(void **state)
{
    (void)state;
    assert_int_equal(count_due((sonde_schedule){.every = 2}, 10), 5);
    assert_int_equal(count_due((sonde_schedule){.every = 2, .start = 8}, 20), 0);
    assert_int_equal(
        count_due((sonde_schedule){.every = 2, .start = 8, .end = SONDE_SCHEDULE_NEVER},
                  20),
        6);
    assert_int_equal(count_due((sonde_schedule){.every = 2, .start = 8, .end = 14}, 20),
                     3);
    /* The interval is anchored at step 0, not at start. */
    const sonde_schedule late = {.every = 100, .start = 50, .end = SONDE_SCHEDULE_NEVER};

    assert_int_equal(sonde_schedule_next(&late, 0), 100);
    assert_int_equal(count_due(sonde_schedule_every(1), 7), 7);
    assert_int_equal(count_due(sonde_schedule_every(3), 7), 3);
    assert_int_equal(count_due((sonde_schedule){0}, 100), 0);
}

/* What two schedules of rules need together: as many first steps, looks as close, rows as
 * long and as close; "never" adds nothing. */
static void joined_schedules_serve_both(void **state)
{
    const sonde_schedule never = {0}, often = {.every = 10, .first = 20},
                         pairs = {.every = 50, .row = 2, .row_every = 50},
                         rows = {.every = 30, .first = 3, .row = 5, .row_every = 60};
    sonde_schedule both = sonde_schedule_join(&often, &pairs);

    (void)state;
    assert_true(both.first == 20 && both.every == 10 && both.row == 2 &&
                both.row_every == 50);
    for (int64_t step = 0; step < 200; step++) {
        assert_int_equal(sonde_schedule_due(&both, step),
                         sonde_schedule_due(&often, step) ||
                             sonde_schedule_due(&pairs, step));
    }
    both = sonde_schedule_join(&pairs, &rows);
    assert_true(both.first == 3 && both.every == 30 && both.row == 5 &&
                both.row_every == 50);
    both = sonde_schedule_join(&never, &rows);
    assert_memory_equal(&both, &rows, sizeof both);
    both = sonde_schedule_join(&rows, &never);
    assert_memory_equal(&both, &rows, sizeof both);
}

static void the_far_end_does_not_overflow(void **state)
{
    const sonde_schedule huge = {.every = INT64_MAX - 1};
    const sonde_schedule always = sonde_schedule_every(1);

    (void)state;
    assert_int_equal(sonde_schedule_next(&huge, 1), INT64_MAX - 1);
    assert_int_equal(sonde_schedule_next(&huge, INT64_MAX), SONDE_SCHEDULE_NEVER);
    assert_int_equal(sonde_schedule_next(&always, INT64_MAX - 1), INT64_MAX - 1);
    assert_int_equal(sonde_schedule_next(&always, INT64_MAX), SONDE_SCHEDULE_NEVER);
    assert_false(sonde_schedule_due(&always, INT64_MAX));
    assert_int_equal(sonde_schedule_next(&always, INT64_MIN), 0);
}

static void expect_refused(sonde_schedule s, const char *line)
{
    sonde_diag diag = {0};
    char text[SONDE_DIAG_LINE];

    assert_int_equal(sonde_schedule_check(&s, &diag), SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, text, sizeof text), line);
}

static void bad_schedules_name_the_key(void **state)
{
    static const int64_t unsorted[] = {1, 5, 3}, negative[] = {-1, 2}, good[] = {1, 1, 4};
    const sonde_schedule fine[] = {
        {0},
        sonde_schedule_every(7),
        {.every = 1, .start = 3, .end = 4},
        {.steps = good, .step_count = 3},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(fine); i++) {
        assert_int_equal(sonde_schedule_check(&fine[i], NULL), SONDE_OK);
    }
    expect_refused((sonde_schedule){.every = -1}, "every: -1 (expected 1 or more)");
    expect_refused((sonde_schedule){.every = 0, .start = 1, .end = 9},
                   "every: 0 (expected 1 or more)");
    expect_refused((sonde_schedule){.every = 1, .start = -2, .end = 9},
                   "start: -2 (expected 0 or more)");
    expect_refused((sonde_schedule){.every = 1, .start = 5, .end = 5},
                   "end: 5 with start 5 (expected a step after start)");
    expect_refused((sonde_schedule){.every = 1, .start = 5},
                   "end: 0 with start 5 (expected a step after start)");
    expect_refused((sonde_schedule){.every = 5, .first = -1},
                   "first: -1 (expected 0 or more)");
    expect_refused((sonde_schedule){.every = 5, .row = -2},
                   "row: -2 (expected 0 or more)");
    expect_refused((sonde_schedule){.every = 5, .row = 2},
                   "row_every: 0 (expected 1 or more, with row)");
    expect_refused((sonde_schedule){.steps = unsorted, .step_count = 3},
                   "steps: 3 follows 5 (expected ascending steps)");
    expect_refused((sonde_schedule){.steps = negative, .step_count = 2},
                   "steps: step -1 (expected 0 or more)");
    expect_refused((sonde_schedule){.step_count = 2},
                   "steps: 2 steps at NULL (expected a list)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_follow_the_definition),
        cmocka_unit_test(worked_cases_come_out),
        cmocka_unit_test(joined_schedules_serve_both),
        cmocka_unit_test(the_far_end_does_not_overflow),
        cmocka_unit_test(bad_schedules_name_the_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
