/*
 * sonde_observer_extend: tensors that are declared after bind.
 */
#include "cmocka_all.h"

#include "alloc_failure.h"
#include "base/fail.h"
#include "observe/observer_state.h"

#include <sonde/observer.h>

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

/* Notes what it is prepared for and what it is given. */
typedef struct notes {
    sonde_sink sink; /* first */
    int prepared[MOST], put[MOST];
    uint32_t refused;
} notes;

static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    notes *to = (notes *)sink;

    (void)how;
    assert_int_equal(shape->micro_batches, 2);
    if (id == to->refused) {
        return sonde__fail(diag, SONDE_EDTYPE, info->name, NULL, "not this one");
    }
    to->prepared[id]++;
    return SONDE_OK;
}

static void put(sonde_sink *sink, const sonde_observation *observation)
{
    ((notes *)sink)->put[observation->id]++;
}

typedef struct loop {
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    notes notes;
} loop;

static sonde_err declare(loop *producer, const char *name, uint32_t same_as, uint32_t *id)
{
    const sonde_tensor_info info = {.name = name,
                                    .module = "fc",
                                    .role = SONDE_ROLE_WEIGHT,
                                    .dtype = SONDE_F32,
                                    .same_as = same_as};

    return sonde_catalogue_declare(producer->catalogue, &info, id, NULL);
}

static uint32_t add(loop *producer, const char *name)
{
    uint32_t id = 0;

    assert_int_equal(declare(producer, name, SONDE_NO_TENSOR, &id), SONDE_OK);
    return id;
}

static sonde_err tap(loop *producer, const char *what, sonde_schedule when)
{
    sonde_tap made = {.how = SONDE_HOW_VITALS, .where = &producer->notes.sink};
    sonde_selector *selector = NULL;
    sonde_err err = sonde_selector_create(what, &selector, NULL);

    if (err == SONDE_OK) {
        made.what = selector;
        made.when[SONDE_MODE_TRAIN] = when;
        err = sonde_observer_add(producer->observer, &made, NULL, NULL);
    }
    sonde_selector_destroy(selector); /* the observer has its own */
    return err;
}

static sonde_err make(loop *out)
{
    sonde_err err = SONDE_OK;

    *out = (loop){
        .notes = {.sink = {.prepare = prepare, .put = put}, .refused = SONDE_NO_TENSOR}};
    err = sonde_catalogue_create(&out->catalogue, NULL);
    return err == SONDE_OK ? sonde_observer_create(out->catalogue, &out->observer, NULL)
                           : err;
}

static sonde_err bind(loop *producer)
{
    return sonde_observer_bind(producer->observer, &(sonde_call_shape){1, 2, 1}, NULL);
}

static void drop(loop *producer)
{
    sonde_observer_destroy(producer->observer);
    sonde_catalogue_destroy(producer->catalogue);
}

/* Shows those of the first `count` tensors that are wanted; whether the step is due. */
static bool step_with(loop *producer, int64_t number, uint32_t count)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(producer->observer);
    const sonde_coordinate at = {.global_step = number, .mode_step = number};
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    const bool due = sonde_observer_begin_step(producer->observer, gate, &at);

    for (uint32_t id = 0; due && id < count; id++) {
        if (sonde_observer_wants(gate, id) != 0) {
            sonde_observer_observe(producer->observer, id, &view, NULL, 0, 0);
        }
    }
    sonde_observer_end_step(producer->observer);
    return due;
}

static bool step(loop *producer, int64_t number)
{
    return step_with(producer, number, sonde_catalogue_count(producer->catalogue));
}

static void patterns_take_up_new_tensors(void **state)
{
    loop producer;
    uint32_t alias = 0, w = 0, b = 0;

    (void)state;
    assert_int_equal(make(&producer), SONDE_OK);
    (void)add(&producer, "a.weight");
    assert_int_equal(tap(&producer, "*.weight", sonde_schedule_every(2)), SONDE_OK);
    assert_int_equal(tap(&producer, "a.weight", sonde_schedule_every(1)), SONDE_OK);
    assert_int_equal(sonde_observer_extend(producer.observer, NULL), SONDE_ESTATE);
    assert_int_equal(bind(&producer), SONDE_OK);
    assert_int_equal(sonde_observer_extend(producer.observer, NULL),
                     SONDE_OK); /* nothing */
    assert_true(step(&producer, 0));
    w = add(&producer, "b.weight");
    b = add(&producer, "b.bias");
    assert_int_equal(declare(&producer, "c.weight", 0, &alias),
                     SONDE_OK); /* of a.weight */
    assert_int_equal(sonde_observer_extend(producer.observer, NULL), SONDE_OK);
    assert_int_equal(producer.notes.prepared[0], 2); /* once a tap */
    assert_int_equal(producer.notes.prepared[w], 1);
    assert_int_equal(producer.notes.prepared[alias], 1);
    assert_int_equal(producer.notes.prepared[b], 0);
    assert_int_equal(sonde_observer_ever_wants(producer.observer, w), SONDE_HOW_VITALS);
    assert_true(step(&producer, 1));
    assert_int_equal(producer.notes.put[w], 0);
    assert_true(step(&producer, 2));
    assert_int_equal(producer.notes.put[w], 1);
    assert_int_equal(producer.notes.put[b], 0);
    assert_int_equal(producer.notes.put[0], 2 + 1 + 2);
    assert_int_equal(producer.notes.put[alias], 1);
    drop(&producer);
}

/* An observer that had nothing to observe, and a step that is on. */
static void the_step_that_is_on(void **state)
{
    const sonde_coordinate at = {.global_step = 3, .mode_step = 3};
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    const sonde_observer_gate *gate = NULL;
    loop producer;
    uint32_t w = 0, v = 0;

    (void)state;
    assert_int_equal(make(&producer), SONDE_OK);
    assert_int_equal(tap(&producer, "@weights", sonde_schedule_every(1)), SONDE_OK);
    assert_int_equal(bind(&producer), SONDE_OK);
    gate = sonde_observer_get_gate(producer.observer);
    assert_false(sonde_observer_begin_step(producer.observer, gate, &at));
    w = add(&producer, "w");
    assert_int_equal(sonde_observer_extend(producer.observer, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_wants(gate, w), 0);
    assert_true(sonde_observer_begin_step(producer.observer, gate, &at));
    sonde_observer_observe(producer.observer, w, &view, NULL, 0, 0);
    v = add(&producer, "v");
    assert_int_equal(sonde_observer_extend(producer.observer, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_wants(gate, w), SONDE_HOW_VITALS); /* still due */
    assert_true(sonde_observer_begin_step(producer.observer, gate, &at));
    sonde_observer_observe(producer.observer, v, &view, NULL, 0, 0);
    sonde_observer_end_step(producer.observer);
    assert_int_equal(producer.notes.put[w], 1);
    assert_int_equal(producer.notes.put[v], 1);
    assert_int_equal(sonde_observer_wants(gate, v), 0);
    drop(&producer);
}

/* Many, one at a time. */
static void one_at_a_time(void **state)
{
    loop producer;
    char name[16];

    (void)state;
    assert_int_equal(make(&producer), SONDE_OK);
    assert_int_equal(tap(&producer, "*", sonde_schedule_every(1)), SONDE_OK);
    assert_int_equal(bind(&producer), SONDE_OK);
    for (int i = 0; i < MOST; i++) {
        (void)snprintf(name, sizeof name, "t%d", i);
        (void)add(&producer, name);
        assert_int_equal(sonde_observer_extend(producer.observer, NULL), SONDE_OK);
        assert_true(step(&producer, i));
    }
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(producer.notes.prepared[i], 1);
        assert_int_equal(producer.notes.put[i], MOST - i);
    }
    drop(&producer);
}

/* A sink that refuses a tensor: the observer works as before, and may be extended later.
 */
static void a_refusal(void **state)
{
    loop producer;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(make(&producer), SONDE_OK);
    (void)add(&producer, "a");
    assert_int_equal(tap(&producer, "*", sonde_schedule_every(1)), SONDE_OK);
    assert_int_equal(bind(&producer), SONDE_OK);
    producer.notes.refused = add(&producer, "b");
    assert_int_equal(sonde_observer_extend(producer.observer, &diag), SONDE_EDTYPE);
    assert_string_equal(diag.where, "b");
    producer.notes.refused = SONDE_NO_TENSOR;
    assert_int_equal(sonde_observer_extend(producer.observer, NULL), SONDE_OK);
    assert_true(step(&producer, 0));
    assert_int_equal(producer.notes.put[0], 1);
    assert_int_equal(producer.notes.put[1], 1);
    drop(&producer);
}

/* Steps of a program that does not distinguish modes. */
static void steps_of_mode_global(void **state)
{
    sonde_coordinate at = {.mode = SONDE_MODE_GLOBAL};
    const sonde_observer_gate *gate = NULL;
    sonde_tap tap = {.how = SONDE_HOW_VITALS};
    sonde_selector *what = NULL;
    uint32_t id = 0;
    loop producer;

    (void)state;
    assert_int_equal(make(&producer), SONDE_OK);
    id = add(&producer, "a");
    tap.where = &producer.notes.sink;
    tap.when[SONDE_MODE_GLOBAL] = sonde_schedule_every(3);
    assert_int_equal(sonde_selector_create("a", &what, NULL), SONDE_OK);
    tap.what = what;
    assert_int_equal(sonde__observer_add_ids(producer.observer, &tap, &id, 1, NULL),
                     SONDE_OK);
    sonde_selector_destroy(what);
    assert_int_equal(bind(&producer), SONDE_OK);
    gate = sonde_observer_get_gate(producer.observer);
    for (int64_t i = 0; i < 12; i++) {
        at.mode = i < 6 ? SONDE_MODE_GLOBAL : SONDE_MODE_TRAIN;
        at.global_step = i;
        at.mode_step = i < 6 ? i : i - 6;
        assert_int_equal(sonde_observer_begin_step(producer.observer, gate, &at),
                         i == 0 || i == 3); /* none of training */
        sonde_observer_end_step(producer.observer);
    }
    drop(&producer);
}

static sonde_err make_and_extend(void)
{
    loop producer;
    uint32_t id = 0;
    sonde_err err = make(&producer);

    if (err == SONDE_OK) {
        err = declare(&producer, "a", SONDE_NO_TENSOR, &id);
    }
    if (err == SONDE_OK) {
        err = tap(&producer, "re:^., @weights", sonde_schedule_every(2));
    }
    if (err == SONDE_OK) {
        err = bind(&producer);
    }
    if (err == SONDE_OK) {
        err = declare(&producer, "b", SONDE_NO_TENSOR, &id);
    }
    if (err == SONDE_OK) {
        err = sonde_observer_extend(producer.observer, NULL);
        /* the observer knows the second tensor only if that succeeded */
        assert_true(step_with(&producer, 0, err == SONDE_OK ? 2 : 1));
        assert_int_equal(producer.notes.put[0], 1);
        assert_int_equal(producer.notes.put[1], err == SONDE_OK);
    }
    drop(&producer);
    return err;
}

static void memory_runs_out(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = make_and_extend();
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 20);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_take_up_new_tensors),
        cmocka_unit_test(the_step_that_is_on),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(a_refusal),
        cmocka_unit_test(steps_of_mode_global),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
