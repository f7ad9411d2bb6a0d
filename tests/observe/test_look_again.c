/*
 * test_look_again.c - a producer repeats a step: only taps that were not due see the
 * repetition.
 */
#include "cmocka_all.h"

#include <sonde/observer.h>

typedef struct counter {
    sonde_sink sink;
    int puts, ends;
} counter;

static void put(sonde_sink *sink, const sonde_observation *observation)
{
    (void)observation;
    ((counter *)sink)->puts++;
}

static void end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    (void)at;
    ((counter *)sink)->ends++;
}

static void add_in(sonde_observer *observer, counter *to, sonde_mode mode, unsigned how,
                   int64_t interval, bool when_bad)
{
    sonde_tap tap = {.how = how, .where = &to->sink, .when_bad = when_bad};
    sonde_selector *what = NULL;

    *to = (counter){.sink = {.put = put, .end_step = end_step}};
    assert_int_equal(sonde_selector_create("x", &what, NULL), SONDE_OK);
    tap.what = what;
    tap.when[mode] = sonde_schedule_every(interval);
    assert_int_equal(sonde_observer_add(observer, &tap, NULL, NULL), SONDE_OK);
    sonde_selector_destroy(what);
}

static void add(sonde_observer *observer, counter *to, int64_t interval, bool when_bad)
{
    add_in(observer, to, SONDE_MODE_TRAIN, SONDE_HOW_RAW, interval, when_bad);
}

static void who_saw_it_does_not_see_it_again(void **state)
{
    const sonde_tensor_info info = {
        .name = "x", .dtype = SONDE_F32, .same_as = SONDE_NO_TENSOR};
    const sonde_call_shape shape = {1, 1, 1};
    const sonde_coordinate at = {.global_step = 1, .mode_step = 1};
    sonde_catalogue *catalogue = NULL;
    sonde_observer *observer = NULL;
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    counter always, seldom, bad;
    uint32_t id = 0;

    (void)state;
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_create(catalogue, &observer, NULL), SONDE_OK);
    add(observer, &always, 1, true);
    add(observer, &seldom, 10, false);
    add(observer, &bad, 10, true);
    assert_int_equal(sonde_observer_bind(observer, &shape, NULL), SONDE_OK);
    assert_true(sonde_observer_get_gate(observer)->looks_again);
    assert_true(sonde_observer_begin_due(observer, &at));
    sonde_observer_observe(observer, id, &view, NULL, 0, 0);
    assert_true(sonde_observer_look_again(observer, &at));
    sonde_observer_observe(observer, id, &view, NULL, 0, 0);
    assert_int_equal(always.puts, 1);
    assert_int_equal(bad.puts, 1);
    assert_false(sonde_observer_look_again(observer, &at)); /* all have it now */
    sonde_observer_look_on(observer);
    sonde_observer_observe(observer, id, &view, NULL, 0, 0);
    sonde_observer_end_step(observer);
    assert_int_equal(always.puts, 2);
    assert_int_equal(bad.puts, 2);
    assert_int_equal(seldom.puts, 0);
    assert_int_equal(always.ends, 1);
    assert_int_equal(bad.ends, 1);
    sonde_observer_destroy(observer);
    sonde_catalogue_destroy(catalogue);
}

/* A value that is bad is shown to those who look at bad steps of that mode. */
static void what_is_bad_is_shown_in_its_mode(void **state)
{
    const sonde_tensor_info info = {
        .name = "x", .dtype = SONDE_F32, .same_as = SONDE_NO_TENSOR};
    const sonde_call_shape shape = {1, 1, 1};
    const sonde_coordinate at = {
        .mode = SONDE_MODE_EVAL, .global_step = 1, .mode_step = 1};
    sonde_catalogue *catalogue = NULL;
    sonde_observer *observer = NULL;
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    sonde_vitals vitals;
    counter trains, evaluates, predicts;
    uint32_t id = 0;

    (void)state;
    sonde_vitals_of(&view, &vitals);
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_create(catalogue, &observer, NULL), SONDE_OK);
    add_in(observer, &trains, SONDE_MODE_TRAIN, SONDE_HOW_VITALS, 10, true);
    add_in(observer, &evaluates, SONDE_MODE_EVAL, SONDE_HOW_VITALS, 10, true);
    add_in(observer, &predicts, SONDE_MODE_PREDICT, SONDE_HOW_VITALS, 10, true);
    assert_int_equal(sonde_observer_bind(observer, &shape, NULL), SONDE_OK);
    sonde_observer_observe_bad(observer, &at, id, &view, &vitals);
    assert_int_equal(trains.puts, 0);
    assert_int_equal(evaluates.puts, 1);
    assert_int_equal(predicts.puts, 0);
    sonde_observer_end_step(observer);
    assert_int_equal(trains.ends, 0);
    assert_int_equal(evaluates.ends, 1);
    sonde_observer_destroy(observer);
    sonde_catalogue_destroy(catalogue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_saw_it_does_not_see_it_again),
        cmocka_unit_test(what_is_bad_is_shown_in_its_mode),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
