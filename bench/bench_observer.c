/*
 * bench_observer.c - the cost of an idle observer, and of passing a tensor to a tap.
 *
 *     not-due step       begin_step at a step where nothing is due
 *     unwanted tensor    wants() of a tensor without a tap, within a due step
 *     due tap            observe() of one tensor by one tap, raw, into a sink that does nothing
 *     due step           begin_step and end_step around nothing, with 1 and with 64 taps
 *
 * in nanoseconds, and as a ratio to one call through a function pointer in the same run.
 * Each figure is the smallest of several repetitions.
 */
#include "base/clock.h"
#include "base/macros.h"

#include <sonde/error.h>
#include <sonde/observer.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TENSORS = 256, REPETITIONS = 15, MOST_TAPS = 64 };

/* What a value is must not be known to the compiler from one turn of a loop to the next.
 */
static void forget(void)
{
    __asm__ __volatile__("" ::: "memory");
}

static void put_nothing(sonde_sink *sink, const sonde_observation *observation)
{
    (void)sink;
    (void)observation;
    forget();
}

static sonde_sink sink = {.put = put_nothing};

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_observer: %s failed\n", what);
    exit(1);
}

static sonde_catalogue *make_catalogue(void)
{
    sonde_catalogue *catalogue = NULL;

    if (sonde_catalogue_create(&catalogue, NULL) != SONDE_OK) {
        fail("catalogue");
    }
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        uint32_t id = 0;

        (void)snprintf(name, sizeof name, "tensor%d", i);
        if (sonde_catalogue_declare(catalogue,
                                    &(sonde_tensor_info){.name = name,
                                                         .dtype = SONDE_F32,
                                                         .rank = 1,
                                                         .shape = {4},
                                                         .same_as = SONDE_NO_TENSOR},
                                    &id, NULL) != SONDE_OK) {
            fail("declare");
        }
    }
    return catalogue;
}

/* Taps on the first tensors, one each, all with that interval. */
static sonde_observer *make_observer(const sonde_catalogue *catalogue, int taps,
                                     int64_t interval)
{
    const sonde_call_shape one = {1, 1, 1};
    sonde_observer *observer = NULL;
    sonde_err err = sonde_observer_create(catalogue, &observer, NULL);

    for (int i = 0; i < taps && err == SONDE_OK; i++) {
        char name[32];
        sonde_selector *selector = NULL;
        sonde_tap tap = {.how = SONDE_HOW_RAW, .where = &sink};

        (void)snprintf(name, sizeof name, "tensor%d", i);
        err = sonde_selector_create(name, &selector, NULL);
        tap.what = selector;
        tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(interval);
        if (err == SONDE_OK) {
            err = sonde_observer_add(observer, &tap, NULL, NULL);
        }
        sonde_selector_destroy(selector);
    }
    if (err != SONDE_OK || sonde_observer_bind(observer, &one, NULL) != SONDE_OK) {
        fail("observer");
    }
    return observer;
}

/* --- loops ------------------------------------------------------------------------ */

/* One measured loop over n turns; returns seconds. */
typedef double loop(sonde_observer *observer, int64_t n);

static double loop_call(sonde_observer *observer, int64_t n)
{
    void (*put)(sonde_sink *, const sonde_observation *) = put_nothing;
    const double start = sonde__now();

    (void)observer;
    for (int64_t i = 0; i < n; i++) {
        __asm__ __volatile__("" : "+r"(put));
        put(&sink, NULL);
    }
    return sonde__now() - start;
}

static double loop_not_due(sonde_observer *observer, int64_t n)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(observer);
    sonde_coordinate at = {.mode_step = 1, .global_step = 1};
    int64_t due = 0;
    const double start = sonde__now();

    for (int64_t i = 0; i < n; i++) {
        forget();
        at.mode_step++;
        at.global_step++;
        due += sonde_observer_begin_step(observer, gate, &at);
    }
    if (due != 0) {
        fail("a step that is not due");
    }
    return sonde__now() - start;
}

static double loop_unwanted(sonde_observer *observer, int64_t n)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(observer);
    const sonde_coordinate at = {0};
    unsigned wanted = 0;
    double start = 0.0, seconds = 0.0;

    if (!sonde_observer_begin_step(observer, gate, &at)) {
        fail("a due step");
    }
    start = sonde__now();
    for (int64_t i = 0; i < n; i++) {
        forget();
        wanted |= sonde_observer_wants(gate, (uint32_t)(MOST_TAPS + (i & 127)));
    }
    seconds = sonde__now() - start;
    sonde_observer_end_step(observer);
    if (wanted != 0) {
        fail("an unwanted tensor");
    }
    return seconds;
}

static double loop_due_tap(sonde_observer *observer, int64_t n)
{
    static float values[4];
    const int64_t shape[1] = {4};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);
    const sonde_observer_gate *gate = sonde_observer_get_gate(observer);
    const sonde_coordinate at = {0};
    double start = 0.0, seconds = 0.0;

    if (!sonde_observer_begin_step(observer, gate, &at)) {
        fail("a due step");
    }
    start = sonde__now();
    for (int64_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)(i % MOST_TAPS);

        if (sonde_observer_wants(gate, id)) {
            sonde_observer_observe(observer, id, &view, NULL, 0, 0);
        }
    }
    seconds = sonde__now() - start;
    sonde_observer_end_step(observer);
    return seconds;
}

static double loop_due_step(sonde_observer *observer, int64_t n)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(observer);
    sonde_coordinate at = {0};
    const double start = sonde__now();

    for (int64_t i = 0; i < n; i++) {
        if (sonde_observer_begin_step(observer, gate, &at)) {
            sonde_observer_end_step(observer);
        }
        at.mode_step++;
        at.global_step++;
    }
    return sonde__now() - start;
}

/* Nanoseconds a turn. taps 0 makes no observer. */
static double measure(loop *run, const sonde_catalogue *catalogue, int taps,
                      int64_t interval, int64_t n)
{
    double best = 1e30;

    for (int i = 0; i < REPETITIONS; i++) {
        sonde_observer *observer = make_observer(catalogue, taps, interval);

        const double ns = run(observer, n) * 1e9 / (double)n;

        best = SONDE_MIN(best, ns);
        sonde_observer_destroy(observer);
    }
    return best;
}

int main(void)
{
    sonde_catalogue *catalogue = make_catalogue();
    const double call = measure(loop_call, catalogue, 0, 1, 2000000);
    const struct {
        const char *what;
        double ns;
    } rows[] = {
        {"not-due step", measure(loop_not_due, catalogue, MOST_TAPS, 1 << 30, 2000000)},
        {"unwanted tensor", measure(loop_unwanted, catalogue, MOST_TAPS, 1, 2000000)},
        {"due tap", measure(loop_due_tap, catalogue, MOST_TAPS, 1, 500000)},
        {"due step, 1 tap", measure(loop_due_step, catalogue, 1, 1, 200000)},
        {"due step, 64 taps", measure(loop_due_step, catalogue, MOST_TAPS, 1, 20000)},
    };

    printf("%-20s %10s %10s\n", "what", "ns", "x call");
    printf("%-20s %10.2f %10.2f\n", "indirect call", call, 1.0);
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        printf("%-20s %10.2f %10.2f\n", rows[i].what, rows[i].ns, rows[i].ns / call);
    }
    sonde_catalogue_destroy(catalogue);
    return 0;
}
