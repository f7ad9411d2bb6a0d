/*
 * test_observer.c - the observer against a naive interpreter of the same taps, and each
 * of its promises by itself.
 */
#include "cmocka_all.h"

#include "base/base.h"
#include "observe/hash.h"
#include "observe/network.h"

#include <sonde/log.h>
#include <sonde/observer.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* --- a sink that remembers --------------------------------------------------------- */

enum { MOST = 40000 };

typedef struct record {
    int kind; /* 'p' put, 'b' begin_call, 'e' end_step */
    uint32_t id;
    int sink;
    bool vitals, sketch;
    uint64_t hash;
    sonde_coordinate at;
    double value; /* of the first element */
} record;

typedef struct journal {
    record *records;
    size_t count;
    int prepared[3][NET_COUNT]; /* by sink */
} journal;

typedef struct memory_sink {
    sonde_sink sink; /* first */
    journal *journal;
    int number;
    int fail_prepare_at; /* 0: never */
} memory_sink;

static void note(memory_sink *to, record entry)
{
    entry.sink = to->number;
    assert_true(to->journal->count < MOST);
    to->journal->records[to->journal->count++] = entry;
}

static sonde_err memory_prepare(sonde_sink *sink, uint32_t id,
                                const sonde_tensor_info *info, unsigned how,
                                const sonde_call_shape *shape, sonde_diag *diag)
{
    memory_sink *to = (memory_sink *)sink;

    assert_string_equal(info->name, net_tensors[id].name);
    assert_true(how != 0 && shape->iterations > 0);
    to->journal->prepared[to->number][id]++;
    if (to->fail_prepare_at == to->journal->prepared[to->number][id]) {
        return sonde__fail(diag, SONDE_EDTYPE, "sink", NULL, "not this one");
    }
    return SONDE_OK;
}

static void memory_begin_call(sonde_sink *sink)
{
    note((memory_sink *)sink, (record){.kind = 'b'});
}

static void memory_put(sonde_sink *sink, const sonde_observation *seen)
{
    const double value = seen->view->rank == 0 || sonde_view_count(seen->view) > 0
                             ? sonde_element_get(seen->view->dtype, seen->view->data)
                             : 0.0;

    assert_string_equal(seen->info->name, net_tensors[seen->id].name);
    note((memory_sink *)sink, (record){.kind = 'p',
                                       .id = seen->id,
                                       .vitals = seen->vitals != NULL,
                                       .sketch = seen->sketch != NULL,
                                       .hash = seen->hash,
                                       .at = seen->at,
                                       .value = value});
    if (seen->vitals != NULL) {
        assert_int_equal(seen->vitals->count, (uint64_t)sonde_view_count(seen->view));
    }
    if (seen->sketch != NULL) {
        assert_int_equal(seen->sketch->count, (uint64_t)sonde_view_count(seen->view));
    }
}

static void memory_end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    note((memory_sink *)sink, (record){.kind = 'e', .at = *at});
}

static memory_sink memory_sink_of(journal *to, int number)
{
    return (memory_sink){.sink = {.prepare = memory_prepare,
                                  .begin_call = memory_begin_call,
                                  .put = memory_put,
                                  .end_step = memory_end_step},
                         .journal = to,
                         .number = number};
}

/* --- one observer with one tap ----------------------------------------------------- */

static sonde_err add_tap(sonde_observer *observer, const char *what,
                         const sonde_schedule *when, sonde_mode mode, unsigned how,
                         sonde_sink *sink, sonde_diag *diag)
{
    sonde_tap tap = {.how = how, .where = sink};
    sonde_selector *selector = NULL;
    sonde_err err = sonde_selector_create(what, &selector, diag);

    if (err == SONDE_OK) {
        tap.what = selector;
        tap.when[mode] = *when;
        err = sonde_observer_add(observer, &tap, NULL, diag);
    }
    sonde_selector_destroy(selector);
    return err;
}

static const sonde_call_shape one = {1, 1, 1};

/* --- the model --------------------------------------------------------------------- */

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
        *when = (sonde_schedule){.interval = 1 + (int64_t)draw(m, 3),
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
static bool model_due(const model_tap *of, const sonde_coordinate *at)
{
    return sonde_schedule_due(&of->when[at->mode], at->mode_step) ||
           sonde_schedule_due(&of->when[SONDE_MODE_GLOBAL], at->global_step);
}

static bool selects_any(const model_tap *of)
{
    for (int id = 0; id < NET_COUNT; id++) {
        if (of->selected[id]) {
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
        const model_tap *of = &m->taps[t];

        for (uint32_t id = 0; id < NET_COUNT && model_due(of, at); id++) {
            const uint32_t real = id == NET_FC_IN ? NET_RELU_OUT : id;

            if (of->selected[id] && real == tensor) {
                wanted |= of->how;
                expect_record(m, (record){.kind = 'p',
                                          .id = id,
                                          .sink = of->sink,
                                          .vitals = (of->how & SONDE_HOW_VITALS) != 0,
                                          .sketch = (of->how & SONDE_HOW_SKETCH) != 0,
                                          .hash = (of->how & SONDE_HOW_HASH) ? hash : 0,
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
            const model_tap *of = &m->taps[t];

            if (of->sink == order[i] && selects_any(of) && model_due(of, &at)) {
                expect_record(m, (record){.kind = 'e', .sink = of->sink, .at = at});
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

/* --- gates ------------------------------------------------------------------------- */

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

/* --- what is computed -------------------------------------------------------------- */

static const sonde_vitals *seen_vitals;
static const sonde_sketch *seen_sketch;
static double seen_mean;
static int seen_count;

static void look_put(sonde_sink *sink, const sonde_observation *seen)
{
    (void)sink;
    assert_true(seen_count == 0 || seen_vitals == seen->vitals);
    assert_true(seen_count == 0 || seen_sketch == seen->sketch);
    seen_vitals = seen->vitals;
    seen_sketch = seen->sketch;
    seen_mean = seen->vitals->mean;
    seen_count++;
}

/* Two taps and two sinks are shown the same vitals and sketch: they were made once.
 * Vitals that the producer brings are shown as they are. */
static void reductions_are_made_once(void **state)
{
    sonde_sink first = {.put = look_put}, second = {.put = look_put};
    const sonde_schedule always = sonde_schedule_always();
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

/* --- configuration errors ---------------------------------------------------------- */

static void bad_taps_are_refused(void **state)
{
    static const int64_t unsorted[] = {3, 1};
    record records[8];
    journal j = {.records = records};
    memory_sink sink = memory_sink_of(&j, 0);
    sonde_sink deaf = {0};
    const sonde_schedule always = sonde_schedule_always();
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
        add_tap(observer, "loss", &always, SONDE_MODE_TRAIN, 16, &sink.sink, &diag),
        SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "loss: how 0x10 (expected one or more SONDE_HOW_ bits)");
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
    const sonde_schedule always = sonde_schedule_always();
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
    const sonde_schedule always = sonde_schedule_always();
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
    const sonde_schedule always = sonde_schedule_always();
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

static int set_up(void **state)
{
    *state = net_create();
    return *state == NULL;
}

static int tear_down(void **state)
{
    sonde_catalogue_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(observer_does_what_the_naive_interpreter_does),
        cmocka_unit_test(the_gate_is_exact),
        cmocka_unit_test(global_schedules_hold_across_modes),
        cmocka_unit_test(a_jump_in_steps_is_not_missed),
        cmocka_unit_test(a_broken_off_step_is_forgotten),
        cmocka_unit_test(reductions_are_made_once),
        cmocka_unit_test(hashes_do_not_depend_on_strides),
        cmocka_unit_test(bad_taps_are_refused),
        cmocka_unit_test(bind_ends_configuration),
        cmocka_unit_test(a_sink_may_refuse_its_tensors),
        cmocka_unit_test(a_pattern_that_matches_nothing_is_a_warning),
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
