/*
 * bench_watch.c - cost of watching a step of training: weights and gradients of a network
 * of 100,000 parameters, and the fixed cost of a slot.
 *
 *     read         a sum over the same bytes: what memory (or the cache) gives
 *     seen         vital signs of all slots, which go to a sink that only counts
 *     recorded     by a hook into a run in the folder given (the working directory)
 *     judged       by all default rules as well
 *     slot, ...    the same of scalars: the fixed cost of a slot
 *     not due      of a slot at a step at which nothing is due
 *
 * Ratios are to the read, of medians of bursts in one run; fixed costs in nanoseconds.
 */
#include "base/clock.h"
#include "base/random.h"
#include "support.h"

#include <sonde/error.h>
#include <sonde/watch.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SLOTS = 20, NUMBERS = 10000, BURSTS = 41, STEPS = 20 };

static float *values; /* (SLOTS, NUMBERS) */
static sonde_view views[SLOTS];
static uint32_t slots[SLOTS];
static sonde_diag diag;

typedef enum kind { SEEN, RECORDED, JUDGED, IDLE } kind;

typedef struct counter {
    sonde_sink sink; /* first */
    double sum;
} counter;

static void count(sonde_sink *sink, const sonde_observation *observation)
{
    ((counter *)sink)->sum += observation->vitals->mean;
}

/* Every second slot is a weight, the others are their gradients. */
static void add_slots(sonde_watch *watch, bool scalars)
{
    const int64_t shape[1] = {NUMBERS};

    for (int i = 0; i < SLOTS; i++) {
        char name[40];

        (void)snprintf(name, sizeof name, "%sfc%d.weight", i % 2 == 1 ? "gradient/" : "",
                       i / 2);
        views[i] = sonde_view_of(SONDE_F32, scalars ? 0 : 1, shape,
                                 values + (ptrdiff_t)i * NUMBERS);
        bench_check(sonde_watch_add_view(watch, name, &views[i], &slots[i], &diag),
                    &diag);
    }
}

static void tap_all(sonde_watch *watch, counter *into, kind load)
{
    sonde_tap tap = {.how = SONDE_HOW_VITALS, .where = &into->sink};
    sonde_selector *what = NULL;

    *into = (counter){.sink = {.put = count}};
    bench_check(sonde_selector_create("*", &what, &diag), &diag);
    tap.what = what;
    tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(load == IDLE ? 1 << 30 : 1);
    bench_check(sonde_observer_add(sonde_watch_observer(watch), &tap, NULL, &diag),
                &diag);
    sonde_selector_destroy(what);
}

static void step(sonde_watch *watch)
{
    bench_check(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag), &diag);
    for (int i = 0; i < SLOTS; i++) {
        __asm__ __volatile__("" ::: "memory");
        sonde_watch_see(watch, slots[i], &views[i]);
    }
    sonde_watch_end_step(watch);
}

/* Nanoseconds of a step. */
static double measure(const char *folder, kind load, bool scalars)
{
    char path[512], command[600];
    const sonde_hook_options options = {.size = sizeof options,
                                        .record =
                                            SONDE_OPTIONS(sonde_recorder, .path = path),
                                        .vitals_every = 1};
    sonde_watch_options watched = {.size = sizeof watched};
    sonde_watch *watch = NULL;
    double ns[BURSTS];
    counter seen;

    (void)snprintf(path, sizeof path, "%s/bench-watch-%ld", folder, (long)getpid());
    if (load == RECORDED || load == JUDGED) {
        bench_check(sonde_hook_create(&options, &watched.hook, &diag), &diag);
        bench_check(sonde_hook_configure(watched.hook, "end_step: 0", &diag), &diag);
    }
    if (load == JUDGED) {
        bench_check(sonde_rules_create(&watched.rules, &diag), &diag);
        bench_check(sonde_rules_add_defaults(watched.rules, &diag), &diag);
    }
    bench_check(sonde_watch_create(&watched, &watch, &diag), &diag);
    add_slots(watch, scalars);
    if (load == SEEN || load == IDLE) {
        tap_all(watch, &seen, load);
    }
    for (int i = -2; i < BURSTS; i++) {
        const double start = sonde__now();

        for (int k = 0; k < STEPS; k++) {
            step(watch);
        }
        ns[i < 0 ? 0 : i] = (sonde__now() - start) * 1e9 / STEPS;
    }
    bench_check(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    sonde_rules_destroy(watched.rules);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) {
        exit(2);
    }
    return bench_quantile(ns, BURSTS, 0.5);
}

/* Nanoseconds of reading all numbers once. */
static double measure_read(void)
{
    double ns[BURSTS];
    float sums[16] = {0};

    for (int i = 0; i < BURSTS; i++) {
        const double start = sonde__now();

        for (int k = 0; k < STEPS; k++) {
            __asm__ __volatile__("" ::: "memory");
            for (size_t n = 0; n < (size_t)SLOTS * NUMBERS; n += 16) {
                for (size_t j = 0; j < 16; j++) {
                    sums[j] += values[n + j];
                }
            }
            __asm__ __volatile__("" : : "r"(sums) : "memory");
        }
        ns[i] = (sonde__now() - start) * 1e9 / STEPS;
    }
    return bench_quantile(ns, BURSTS, 0.5);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    double read = 0.0;

    values = bench_alloc((size_t)SLOTS * NUMBERS * sizeof *values);
    for (size_t i = 0; i < (size_t)SLOTS * NUMBERS; i++) {
        values[i] = sonde__normal(1, 0, i);
    }
    read = measure_read();
    bench_header();
    bench_row("watch_read_800k", read / 1e3, "us", "");
    bench_row("watch_seen_ratio", measure(folder, SEEN, false) / read, "x", "<=2");
    bench_row("watch_recorded_ratio", measure(folder, RECORDED, false) / read, "x",
              "<=2");
    bench_row("watch_judged_ratio", measure(folder, JUDGED, false) / read, "x", "<=3");
    bench_row("watch_slot_seen", measure(folder, SEEN, true) / SLOTS, "ns", "");
    bench_row("watch_slot_recorded", measure(folder, RECORDED, true) / SLOTS, "ns", "");
    bench_row("watch_slot_judged", measure(folder, JUDGED, true) / SLOTS, "ns", "");
    bench_row("watch_slot_not_due", measure(folder, IDLE, true) / SLOTS, "ns", "<=5");
    free(values);
    return 0;
}
