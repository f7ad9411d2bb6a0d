/*
 * test_observer.c - each promise of the observer by itself.
 */
#include "cmocka_all.h"
#include "base/random.h"

#include "observe/memory_sink.h"
#include "tensor/reduction.h"

#include <sonde/log.h>

#include <string.h>

static const sonde_call_shape one = {1, 1, 1};

/* --- gates ------------------------------------------------------------------------ */

static void the_gate_is_exact(void **state)
{
    record records[64];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule tenth = sonde_schedule_every(10);
    const sonde_observer_gate *gate = NULL;
    sonde_observer *observer = NULL;

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    gate = sonde_observer_get_gate(observer);
    assert_true(gate->next_due[SONDE_MODE_TRAIN] == SONDE_SCHEDULE_NEVER);
    assert_int_equal(add_tap(observer, "loss", &tenth, SONDE_MODE_TRAIN, SONDE_HOW_RAW,
                             &sink.sink, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    assert_int_equal(gate->next_due[SONDE_MODE_TRAIN], 0);
    assert_true(gate->next_due[SONDE_MODE_EVAL] == SONDE_SCHEDULE_NEVER);
    for (int64_t step = 0; step < 35; step++) {
        const sonde_coordinate at = {.mode_step = step, .global_step = step};
        const bool due = step >= gate->next_due[SONDE_MODE_TRAIN];

        assert_int_equal(due, step % 10 == 0);
        assert_int_equal(sonde_observer_begin_step(observer, gate, &at), due);
        if (due) {
            sonde_observer_end_step(observer);
            assert_int_equal(gate->next_due[SONDE_MODE_TRAIN], step + 10);
        }
    }
    sonde_observer_destroy(observer);
}

/* Train 0 ... 4, eval 0 ... 9, train 5 ...: global step 12 falls into eval, 24 into
 * train. */
static void global_schedules_hold_across_modes(void **state)
{
    record records[64];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule twelfth = sonde_schedule_every(12);
    const sonde_observer_gate *gate = NULL;
    sonde_observer *observer = NULL;
    int64_t mode_step[2] = {0, 0};
    int slow = 0;

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "loss", &twelfth, SONDE_MODE_GLOBAL, SONDE_HOW_RAW,
                             &sink.sink, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    gate = sonde_observer_get_gate(observer);
    for (int64_t step = 0; step < 40; step++) {
        const sonde_mode mode =
            step >= 5 && step < 15 ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;
        const sonde_coordinate at = {
            .mode = mode, .mode_step = mode_step[mode]++, .global_step = step};

        slow += at.mode_step >= gate->next_due[mode];
        if (sonde_observer_begin_step(observer, gate, &at)) {
            assert_int_equal(step % 12, 0);
            sonde_observer_end_step(observer);
        } else {
            assert_int_not_equal(step % 12, 0);
        }
    }
    assert_int_equal(slow, 4 + 2); /* due ones, and one look after each change of mode */
    sonde_observer_destroy(observer);
}

/* Vital signs of what is not finite come to the taps that ask for them, in steps that
 * are due and in others, and not twice to one that is. */
static void what_is_bad_is_told_at_any_step(void **state)
{
    record records[64];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule tenth = sonde_schedule_every(10);
    const sonde_observer_gate *gate = NULL;
    sonde_observer *observer = NULL;
    sonde_selector *what = NULL;
    sonde_tap tap = {.how = SONDE_HOW_VITALS, .where = &sink.sink, .when_bad = true};
    float x[2] = {1.0F, 2.0F};
    const int64_t shape = 2;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    sonde_vitals vitals;
    uint32_t id = 0;

    sonde_vitals_of(&view, &vitals);
    assert_int_equal(sonde_catalogue_find(*state, "loss", &id, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_selector_create("loss", &what, NULL), SONDE_OK);
    tap.what = what;
    tap.when[SONDE_MODE_TRAIN] = tenth;
    assert_int_equal(sonde_observer_add(observer, &tap, NULL, NULL), SONDE_OK);
    sonde_selector_destroy(what);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    assert_true(sonde_observer_when_bad(observer, id));
    assert_false(sonde_observer_when_bad(observer, id + 1));
    gate = sonde_observer_get_gate(observer);
    for (int64_t step = 0; step < 15; step++) {
        const sonde_coordinate at = {.mode_step = step, .global_step = step};
        const bool due = sonde_observer_begin_step(observer, gate, &at);

        if (due) {
            sonde_observer_observe(observer, id, &view, &vitals, 0, 0);
        }
        if (step == 0 || step == 7) {
            sonde_observer_observe_bad(observer, &at, id, &view, &vitals);
        }
        if (due || step == 7) {
            sonde_observer_end_step(observer);
        }
    }
    assert_int_equal(j.count, 6); /* values and ends of steps 0, 7 and 10 */
    assert_true(j.records[2].at.mode_step == 7 && j.records[2].vitals);
    assert_true(j.records[3].kind == 'e' && j.records[4].at.mode_step == 10);
    sonde_observer_destroy(observer);
}

static void a_jump_in_steps_is_not_missed(void **state)
{
    record records[8];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule hundredth = sonde_schedule_every(100);
    const sonde_coordinate resumed = {.mode_step = 5000, .global_step = 9000};
    sonde_observer *observer = NULL;

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "loss", &hundredth, SONDE_MODE_TRAIN,
                             SONDE_HOW_RAW, &sink.sink, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    assert_true(
        sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &resumed));
    sonde_observer_end_step(observer);
    sonde_observer_destroy(observer);
}

/* A call that was broken off within a step leaves nothing wanted and nothing due behind;
 * an end_step too many is no harm. */
static void a_broken_off_step_is_forgotten(void **state)
{
    record records[16];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule third = sonde_schedule_every(3);
    sonde_coordinate at = {0};
    const sonde_observer_gate *gate = NULL;
    sonde_observer *observer = NULL;

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "loss", &third, SONDE_MODE_TRAIN, SONDE_HOW_RAW,
                             &sink.sink, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    gate = sonde_observer_get_gate(observer);
    assert_true(sonde_observer_begin_step(observer, gate, &at));
    assert_int_equal(gate->wants[NET_LOSS], SONDE_HOW_RAW);
    sonde_observer_begin_call(observer);
    assert_int_equal(gate->wants[NET_LOSS], 0);
    sonde_observer_end_step(observer);
    assert_true(sonde_observer_begin_step(observer, gate, &at));
    at.mode_step = at.global_step = 1;
    assert_false(sonde_observer_begin_step(observer, gate, &at));
    assert_int_equal(gate->wants[NET_LOSS], 0);
    assert_int_equal(gate->next_due[SONDE_MODE_TRAIN], 3);
    assert_int_equal(j.count, 1); /* the begin_call: no step was ended */
    sonde_observer_destroy(observer);
}

/* --- what is computed ------------------------------------------------------------- */

static const sonde_vitals *seen_vitals;
static const sonde_sketch *seen_sketch;
static double seen_mean;
static int seen_count;

static void look_put(sonde_sink *sink, const sonde_observation *observation)
{
    (void)sink;
    assert_true(seen_count == 0 || seen_vitals == observation->vitals);
    assert_true(seen_count == 0 || seen_sketch == observation->sketch);
    seen_vitals = observation->vitals;
    seen_sketch = observation->sketch;
    seen_mean = observation->vitals->mean;
    seen_count++;
}

/* Two taps and two sinks are shown the same vitals and sketch: they were made once.
 * Vitals that the producer brings are shown as they are. */
static void reductions_are_made_once(void **state)
{
    sonde_sink first = {.put = look_put}, second = {.put = look_put};
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_coordinate at = {0};
    const unsigned how = SONDE_HOW_VITALS | SONDE_HOW_SKETCH;
    float values[2] = {1.0f, 3.0f};
    const int64_t shape[1] = {2};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);
    sonde_vitals own = {.mean = 77.0, .count = 2};
    sonde_observer *observer = NULL;

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "relu_output_0,fc1_input_0", &always,
                             SONDE_MODE_TRAIN, how, &first, NULL),
                     SONDE_OK);
    assert_int_equal(
        add_tap(observer, "relu_output_0", &always, SONDE_MODE_TRAIN, how, &second, NULL),
        SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    assert_true(
        sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &at));
    seen_count = 0;
    sonde_observer_observe(observer, NET_RELU_OUT, &view, NULL, 0, 0);
    assert_int_equal(seen_count, 3);
    assert_true(seen_mean == 2.0);
    seen_count = 0;
    sonde_observer_observe(observer, NET_RELU_OUT, &view, &own, 0, 0);
    assert_int_equal(seen_count, 3);
    assert_ptr_equal(seen_vitals, &own);
    seen_count = 0;
    sonde_observer_observe(observer, NET_LOSS, &view, NULL, 0, 0); /* nobody wants it */
    assert_int_equal(seen_count, 0);
    sonde_observer_end_step(observer);
    sonde_observer_destroy(observer);
}

/* The hash is XXH3 of the row-major bytes, whatever strides they come in. */
static void hashes_do_not_depend_on_strides(void **state)
{
    (void)state;
    for (int size = 1; size <= 40; size++) {
        static uint16_t rows[40][70], columns[70][40];
        const int64_t shape[2] = {size, 70 - size};
        sonde_view straight = sonde_view_of(SONDE_U16, 2, shape, rows);
        sonde_view turned = straight;
        uint16_t packed[40 * 70];
        size_t n = 0;

        straight.stride[0] = 70;
        turned.data = columns;
        turned.stride[0] = 1;
        turned.stride[1] = 40;
        for (int i = 0; i < shape[0]; i++) {
            for (int j = 0; j < shape[1]; j++) {
                rows[i][j] = columns[j][i] = packed[n++] =
                    (uint16_t)sonde__below(9, (uint64_t)i, (uint64_t)j, 65536);
            }
        }
        const uint64_t expected = XXH3_64bits(packed, n * sizeof packed[0]);
        const sonde_view flat = sonde_view_of(SONDE_U16, 2, shape, packed);

        assert_int_equal(sonde__hash_view(&straight), expected);
        assert_int_equal(sonde__hash_view(&turned), expected);
        assert_int_equal(sonde__hash_view(&flat), expected);
    }
}

/* The steps of a tap are copied. */
static void steps_of_taps_are_copied(void **state)
{
    record records[8];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    int64_t steps[] = {2, 5};
    const sonde_schedule listed = {.steps = steps, .step_count = 2};
    sonde_observer *observer = NULL;

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "loss", &listed, SONDE_MODE_TRAIN, SONDE_HOW_RAW,
                             &sink.sink, NULL),
                     SONDE_OK);
    steps[0] = steps[1] = 0;
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    for (int64_t step = 0; step < 8; step++) {
        const sonde_coordinate at = {.mode_step = step, .global_step = step};

        assert_int_equal(
            sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &at),
            step == 2 || step == 5);
        sonde_observer_end_step(observer);
    }
    sonde_observer_destroy(observer);
}

/* --- configuration errors --------------------------------------------------------- */

static void bad_taps_are_refused(void **state)
{
    static const int64_t unsorted[] = {3, 1};
    record records[8];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    sonde_sink deaf = {0};
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_schedule bad = {.steps = unsorted, .step_count = 2};
    sonde_observer *observer = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "los", &always, SONDE_MODE_TRAIN, SONDE_HOW_RAW,
                             &sink.sink, &diag),
                     SONDE_ENOTFOUND);
    assert_int_equal(add_tap(observer, "loss", &bad, SONDE_MODE_EVAL, SONDE_HOW_RAW,
                             &sink.sink, &diag),
                     SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "tap 'loss': eval.steps: 1 follows 3 (expected ascending steps)");
    assert_int_equal(
        add_tap(observer, "loss", &always, SONDE_MODE_TRAIN, 0, &sink.sink, &diag),
        SONDE_EINVAL);
    assert_int_equal(
        add_tap(observer, "loss", &always, SONDE_MODE_TRAIN, 32, &sink.sink, &diag),
        SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "loss: how 0x20 (expected one or more SONDE_HOW_ bits)");
    assert_int_equal(
        add_tap(observer, "loss", &always, SONDE_MODE_TRAIN, SONDE_HOW_RAW, &deaf, &diag),
        SONDE_EINVAL);
    assert_int_equal(
        add_tap(observer, "loss", &always, SONDE_MODE_TRAIN, SONDE_HOW_RAW, NULL, &diag),
        SONDE_EINVAL);
    sonde_observer_destroy(observer);
    sonde_observer_destroy(NULL);
}

static void bind_ends_configuration(void **state)
{
    record records[8];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_call_shape bad[] = {{0, 1, 1}, {1, -1, 1}, {1, 1, 0}};
    sonde_observer *observer = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sonde_observer_bind(observer, &bad[i], &diag), SONDE_EINVAL);
    }
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "replicas: 0 (expected 1 or more)");
    assert_int_equal(sonde_observer_ever_wants(observer, NET_LOSS), 0);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, &diag), SONDE_ESTATE);
    assert_int_equal(add_tap(observer, "loss", &always, SONDE_MODE_TRAIN, SONDE_HOW_RAW,
                             &sink.sink, &diag),
                     SONDE_ESTATE);
    sonde_observer_destroy(observer);
}

static void a_sink_may_refuse_its_tensors(void **state)
{
    record records[8];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_coordinate at = {0};
    sonde_observer *observer = NULL;
    sonde_diag diag = {0};

    sink.fail_prepare_at = 1;
    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "loss", &always, SONDE_MODE_TRAIN, SONDE_HOW_RAW,
                             &sink.sink, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, &diag), SONDE_EDTYPE);
    assert_string_equal(diag.found, "not this one");
    assert_false(
        sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &at));
    sonde_observer_destroy(observer);
}

static int warnings;

static void count_warning(void *user, sonde_log_level level, const char *room,
                          const char *message)
{
    (void)user;
    warnings++;
    assert_int_equal(level, SONDE_LOG_WARNING);
    assert_string_equal(room, "observe");
    assert_string_equal(message, "'re:nothing' matches no tensor");
}

static void a_pattern_that_matches_nothing_is_a_warning(void **state)
{
    record records[8];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    const sonde_schedule always = sonde_schedule_every(1);
    const sonde_coordinate at = {0};
    sonde_observer *observer = NULL;

    sonde_log_set_level(SONDE_LOG_INFO);
    sonde_log_set_sink(count_warning, NULL);
    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(add_tap(observer, "re:nothing", &always, SONDE_MODE_TRAIN,
                             SONDE_HOW_RAW, &sink.sink, NULL),
                     SONDE_OK);
    sonde_log_set_sink(NULL, NULL);
    assert_int_equal(warnings, 1);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    assert_false(
        sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &at));
    sonde_observer_destroy(observer);
}

static void modes_have_names(void **state)
{
    (void)state;
    assert_string_equal(sonde_mode_name(SONDE_MODE_TRAIN), "train");
    assert_string_equal(sonde_mode_name(SONDE_MODE_GLOBAL), "global");
    assert_string_equal(sonde_mode_name((sonde_mode)4), "?");
}

static sonde_err build_observer(void *user)
{
    static const int64_t steps[] = {1, 2, 3};
    const sonde_schedule listed = {.steps = steps, .step_count = 3};
    sonde_sink sinks[2] = {{.put = look_put}, {.put = look_put}};
    sonde_observer *observer = NULL;
    sonde_err err = sonde_observer_create(user, &observer, NULL);

    for (int i = 0; i < 10 && err == SONDE_OK; i++) {
        err = add_tap(observer, "loss,*.weight", &listed, SONDE_MODE_TRAIN,
                      SONDE_HOW_SKETCH | SONDE_HOW_RAW, &sinks[i % 2], NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_observer_bind(observer, &one, NULL);
    }
    sonde_observer_destroy(observer);
    return err;
}

static void no_allocation_failure_is_lost(void **state)
{
    assert_true(net_alloc_failures(build_observer, *state) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gate_is_exact),
        cmocka_unit_test(global_schedules_hold_across_modes),
        cmocka_unit_test(what_is_bad_is_told_at_any_step),
        cmocka_unit_test(a_jump_in_steps_is_not_missed),
        cmocka_unit_test(a_broken_off_step_is_forgotten),
        cmocka_unit_test(reductions_are_made_once),
        cmocka_unit_test(hashes_do_not_depend_on_strides),
        cmocka_unit_test(steps_of_taps_are_copied),
        cmocka_unit_test(bad_taps_are_refused),
        cmocka_unit_test(bind_ends_configuration),
        cmocka_unit_test(a_sink_may_refuse_its_tensors),
        cmocka_unit_test(a_pattern_that_matches_nothing_is_a_warning),
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, net_set_up, net_tear_down);
}
