/*
 * test_observer_model.c - the observer against a naive interpreter of random taps,
 * schedules, modes and calls.
 */
#include "cmocka_all.h"
#include "base/random.h"

#include "observe/memory_sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* --- the model -------------------------------------------------------------------- */

enum { TAPS = 5, SINKS = 3, CALLS = 12 };

typedef struct model_tap {
    bool selected[NET_COUNT];
    sonde_schedule when[SONDE_MODE_COUNT];
    int64_t steps[SONDE_MODE_COUNT][3];
    unsigned how;
    int sink;
} model_tap;

typedef struct model {
    uint64_t seed, drawn;
    model_tap taps[TAPS];
    int tap_count;
    sonde_call_shape shape;
    int64_t global, mode_step[SONDE_MODE_COUNT];
    journal expected, got;
    float values[20];
} model;

static uint64_t draw(model *m, uint64_t bound)
{
    return sonde__below(m->seed, 0, m->drawn++, bound);
}

static void draw_schedule(model *m, model_tap *to, int mode)
{
    sonde_schedule *when = &to->when[mode];
    const uint64_t kind = draw(m, mode == SONDE_MODE_GLOBAL ? 12 : 6);

    *when = (sonde_schedule){0};
    if (kind == 0) {
        *when = sonde_schedule_every(1 + (int64_t)draw(m, 7));
    } else if (kind == 1) {
        *when = (sonde_schedule){.every = 1 + (int64_t)draw(m, 3),
                                 .start = (int64_t)draw(m, 10)};
        when->end = when->start + 1 + (int64_t)draw(m, 10);
    } else if (kind == 2) {
        for (int i = 0; i < 3; i++) {
            to->steps[mode][i] =
                (i > 0 ? to->steps[mode][i - 1] : 0) + (int64_t)draw(m, 8);
        }
        *when = (sonde_schedule){.steps = to->steps[mode], .step_count = 3};
    }
}

/* Draws a tap and adds it to the observer. Its steps are spoilt afterwards: they are
 * copied. */
static void draw_tap(model *m, sonde_observer *observer, sonde_selector **selectors,
                     memory_sink *sinks)
{
    model_tap *to = &m->taps[m->tap_count++];
    char text[1024] = "glob:nothing";
    int64_t spoilt[SONDE_MODE_COUNT][3];
    sonde_tap tap = {0};
    size_t matched = 99, selected = 0;

    for (int id = 0; id < NET_COUNT; id++) {
        to->selected[id] = draw(m, 4) == 0;
        if (to->selected[id]) {
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), ",%s",
                           net_tensors[id].name);
            selected++;
        }
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        draw_schedule(m, to, mode);
        tap.when[mode] = to->when[mode];
        memcpy(spoilt[mode], to->steps[mode], sizeof spoilt[mode]);
        if (tap.when[mode].step_count > 0) {
            tap.when[mode].steps = spoilt[mode];
        }
    }
    to->how = 1 + (unsigned)draw(m, 15);
    to->sink = (int)draw(m, SINKS);
    assert_int_equal(sonde_selector_create(text, selectors, NULL), SONDE_OK);
    tap.what = *selectors;
    tap.how = to->how;
    tap.where = &sinks[to->sink].sink;
    assert_int_equal(sonde_observer_add(observer, &tap, &matched, NULL), SONDE_OK);
    assert_int_equal(matched, selected);
    memset(spoilt, 1, sizeof spoilt);
    sonde_selector_destroy(*selectors);
    *selectors = NULL;
}

/* Due by the definition: in the step's mode, or by the global count. */
static bool model_due(const model_tap *tap, const sonde_coordinate *at)
{
    return sonde_schedule_due(&tap->when[at->mode], at->mode_step) ||
           sonde_schedule_due(&tap->when[SONDE_MODE_GLOBAL], at->global_step);
}

static bool selects_any(const model_tap *tap)
{
    for (int id = 0; id < NET_COUNT; id++) {
        if (tap->selected[id]) {
            return true;
        }
    }
    return false;
}

/* Sinks in the order of their first taps. */
static int sink_order(const model *m, int order[SINKS])
{
    int count = 0;

    for (int t = 0; t < m->tap_count; t++) {
        bool known = false;

        for (int i = 0; i < count; i++) {
            known = known || order[i] == m->taps[t].sink;
        }
        if (!known) {
            order[count++] = m->taps[t].sink;
        }
    }
    return count;
}

static void expect_record(model *m, record entry)
{
    m->expected.records[m->expected.count++] = entry;
}

/* What one value of a tensor leads to. */
static unsigned expect_puts(model *m, const sonde_coordinate *at, uint32_t tensor,
                            double value, uint64_t hash)
{
    unsigned wanted = 0;

    for (int t = 0; t < m->tap_count; t++) {
        const model_tap *tap = &m->taps[t];

        for (uint32_t id = 0; id < NET_COUNT && model_due(tap, at); id++) {
            const uint32_t real = id == NET_FC_IN ? NET_RELU_OUT : id;

            if (tap->selected[id] && real == tensor) {
                wanted |= tap->how;
                expect_record(m, (record){.kind = 'p',
                                          .id = id,
                                          .sink = tap->sink,
                                          .vitals = (tap->how & SONDE_HOW_VITALS) != 0,
                                          .sketch = (tap->how & SONDE_HOW_SKETCH) != 0,
                                          .hash = (tap->how & SONDE_HOW_HASH) ? hash : 0,
                                          .at = *at,
                                          .value = value});
            }
        }
    }
    return wanted;
}

static void model_values(model *m, sonde_observer *observer, bool stepping,
                         const sonde_coordinate *step)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(observer);
    const int64_t flat[1] = {20};

    for (int k = 0; k < m->shape.micro_batches * m->shape.replicas; k++) {
        for (uint32_t id = 0; id < NET_COUNT; id++) {
            sonde_view view = sonde_view_of(SONDE_F32, 1, flat, m->values);
            sonde_coordinate at = *step;
            unsigned wanted = 0;

            at.micro_batch = k / m->shape.replicas;
            at.replica = k % m->shape.replicas;
            if (id == NET_FC_IN) {
                continue; /* an alias: the producer does not know it */
            }
            m->values[0] = (float)draw(m, 1000000);
            wanted = expect_puts(m, &at, id, (double)m->values[0],
                                 XXH3_64bits(m->values, sizeof m->values));
            if (!stepping) {
                assert_int_equal(wanted, 0);
                continue;
            }
            assert_int_equal(sonde_observer_wants(gate, id), wanted);
            if (wanted != 0) {
                sonde_vitals vitals;

                sonde_vitals_of(&view, &vitals);
                sonde_observer_observe(observer, id, &view, draw(m, 2) ? &vitals : NULL,
                                       at.micro_batch, at.replica);
            }
        }
    }
}

static void model_step(model *m, sonde_observer *observer, sonde_mode mode, int iteration)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(observer);
    const sonde_coordinate at = {.mode = mode,
                                 .global_step = m->global++,
                                 .mode_step = m->mode_step[mode]++,
                                 .iteration = iteration};
    int order[SINKS];
    bool due = false;
    const int sinks = sink_order(m, order);
    const bool stepping = sonde_observer_begin_step(observer, gate, &at);

    for (int t = 0; t < m->tap_count; t++) {
        due = due || (selects_any(&m->taps[t]) && model_due(&m->taps[t], &at));
    }
    assert_int_equal(stepping, due);
    model_values(m, observer, stepping, &at);
    if (!stepping) {
        return;
    }
    sonde_observer_end_step(observer);
    for (int i = 0; i < sinks; i++) {
        for (int t = 0; t < m->tap_count; t++) {
            const model_tap *tap = &m->taps[t];

            if (tap->sink == order[i] && selects_any(tap) && model_due(tap, &at)) {
                expect_record(m, (record){.kind = 'e', .sink = tap->sink, .at = at});
                break;
            }
        }
    }
    for (uint32_t id = 0; id < NET_COUNT; id++) {
        assert_int_equal(gate->wants[id], 0);
    }
}

static void model_call(model *m, sonde_observer *observer)
{
    const sonde_mode mode = (sonde_mode)draw(m, 3);
    int order[SINKS];
    const int sinks = sink_order(m, order);

    sonde_observer_begin_call(observer);
    for (int i = 0; i < sinks; i++) {
        expect_record(m, (record){.kind = 'b', .sink = order[i]});
    }
    for (int i = 0; i < m->shape.iterations; i++) {
        /* Modes change between calls, but an observer does not rely on it. */
        model_step(m, observer, draw(m, 10) == 0 ? (sonde_mode)draw(m, 3) : mode, i);
    }
}

static void check_prepared(const model *m)
{
    int expected[SINKS][NET_COUNT] = {{0}};

    for (int t = 0; t < m->tap_count; t++) {
        for (int id = 0; id < NET_COUNT; id++) {
            expected[m->taps[t].sink][id] += m->taps[t].selected[id];
        }
    }
    assert_memory_equal(expected, m->got.prepared, sizeof expected);
}

static void check_ever(const model *m, const sonde_observer *observer)
{
    for (uint32_t tensor = 0; tensor < NET_COUNT; tensor++) {
        unsigned expected = 0;

        for (int t = 0; t < m->tap_count; t++) {
            for (uint32_t id = 0; id < NET_COUNT; id++) {
                if (m->taps[t].selected[id] && net_tensors[id].same_as == UINT32_MAX &&
                    id == tensor) {
                    expected |= m->taps[t].how;
                }
                if (m->taps[t].selected[id] && net_tensors[id].same_as == tensor) {
                    expected |= m->taps[t].how;
                }
            }
        }
        assert_int_equal(sonde_observer_ever_wants(observer, tensor), expected);
    }
}

static void expect_same_place(const sonde_coordinate *a, const sonde_coordinate *b)
{
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->global_step, b->global_step);
    assert_int_equal(a->mode_step, b->mode_step);
    assert_int_equal(a->iteration, b->iteration);
    assert_int_equal(a->micro_batch, b->micro_batch);
    assert_int_equal(a->replica, b->replica);
}

/* Returns how many values were observed. */
static size_t run_model(model *m, const sonde_catalogue *catalogue)
{
    sonde_observer *observer = NULL;
    sonde_selector *selector = NULL;
    memory_sink sinks[SINKS];
    const uint64_t taps = draw(m, TAPS + 1);
    size_t puts = 0;

    for (int i = 0; i < SINKS; i++) {
        sinks[i] = memory_sink_of(&m->got, i);
    }
    m->shape =
        (sonde_call_shape){1 + (int)draw(m, 4), 1 + (int)draw(m, 3), 1 + (int)draw(m, 2)};
    assert_int_equal(sonde_observer_create(catalogue, &observer, NULL), SONDE_OK);
    for (uint64_t t = 0; t < taps; t++) {
        draw_tap(m, observer, &selector, sinks);
    }
    assert_int_equal(sonde_observer_bind(observer, &m->shape, NULL), SONDE_OK);
    check_prepared(m);
    check_ever(m, observer);
    alloc_failure_begin(
        0); /* from here on, whoever allocates gets nothing, and is counted */
    for (int i = 0; i < CALLS; i++) {
        model_call(m, observer);
    }
    assert_int_equal(alloc_failure_count, 0);
    (void)alloc_failure_end();
    sonde_observer_destroy(observer);
    assert_int_equal(m->got.count, m->expected.count);
    for (size_t i = 0; i < m->got.count; i++) {
        const record *a = &m->got.records[i], *b = &m->expected.records[i];

        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->sink, b->sink);
        assert_int_equal(a->id, b->id);
        assert_int_equal(a->vitals, b->vitals);
        assert_int_equal(a->sketch, b->sketch);
        assert_int_equal(a->hash, b->hash);
        expect_same_place(&a->at, &b->at);
        assert_true(a->value == b->value);
        puts += a->kind == 'p';
    }
    return puts;
}

static void observer_does_what_the_naive_interpreter_does(void **state)
{
    record *room = malloc(2 * MOST * sizeof *room);
    size_t puts = 0;

    assert_non_null(room);
    for (uint64_t seed = 0; seed < 1000; seed++) {
        model m = {.seed = seed};

        m.got.records = room;
        m.expected.records = room + MOST;
        puts += run_model(&m, *state);
    }
    assert_true(puts > 100000);
    free(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(observer_does_what_the_naive_interpreter_does),
    };

    return cmocka_run_group_tests(tests, net_set_up, net_tear_down);
}
