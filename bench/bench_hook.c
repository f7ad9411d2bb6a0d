/*
 * bench_hook.c - the cost of a hook in a program with its own loop.
 *
 *     record, not due        a tensor at a step at which nothing is due, and at one at which
 *                            others are
 *     step, nothing due      begin_step and end_step, including the recorder's end of step
 *     record, due, 4 KiB     into a recorder that writes to the given folder (default: the working
 *                            directory): raw, and vital signs, in bursts that fit its ring
 *     step, when_nan         64 tensors of 4 KiB, none of which is saved in the end
 *
 * in nanoseconds, next to a memcpy of 4 KiB between the same blocks in the same run.
 * Medians of bursts; a burst of due values starts when the recorder has drained the
 * previous one.
 */
#include "base/clock.h"
#include "base/random.h"
#include "support.h"
#include "record/record_sink.h"
#include "capture/hook_state.h"

#include <sonde/error.h>
#include <sonde/watch.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS = 64, NUMBERS = 1024, BURSTS = 31, ROUNDS = 64 };
enum { RECORDS = ROUNDS * TENSORS / 2 }; /* of a burst */

static float values[TENSORS][NUMBERS];
static sonde_view views[TENSORS];
static sonde_diag diag;

typedef struct bench {
    sonde_hook *hook;
    sonde_watch *watch;
    char path[512];
} bench;

/* What a value is must not be known to the compiler from one turn of a loop to the next.
 */
static void forget(void)
{
    __asm__ __volatile__("" ::: "memory");
}

/* Every second tensor is a weight, saved every `every` steps; the others are nothing. */
static void make(bench *out, const char *folder, const char *name, int64_t every,
                 const char *when_nan, uint32_t stats)
{
    const sonde_hook_options options = {
        .size = sizeof options,
        .record = SONDE_OPTIONS(sonde_recorder, .path = out->path),
        .no_vitals = true};
    char said[128];

    (void)snprintf(out->path, sizeof out->path, "%s/bench-hook-%ld-%s", folder,
                   (long)getpid(), name);
    (void)snprintf(said, sizeof said, "{every: %lld, when_nan: '%s'%s}", (long long)every,
                   when_nan != NULL ? when_nan : "", stats ? ", reductions: mean" : "");
    bench_check(sonde_hook_create(&options, &out->hook, &diag), &diag);
    bench_check(sonde_hook_configure(out->hook, said, &diag), &diag);
    bench_check(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = out->hook),
                                   &out->watch, &diag),
                &diag);
    for (int i = 0; i < TENSORS; i++) {
        char text[32];
        sonde_tensor_info info = {.name = text,
                                  .role = SONDE_ROLE_OTHER,
                                  .dtype = SONDE_F32,
                                  .rank = 1,
                                  .shape = {NUMBERS},
                                  .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        (void)snprintf(text, sizeof text, "%d.%s", i, i % 2 == 0 ? "weight" : "what");
        bench_check(sonde_watch_add(out->watch, &info, &id, &diag), &diag);
    }
}

static void finish(bench *rig)
{
    char command[600];

    bench_check(sonde_watch_close(rig->watch, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    (void)snprintf(command, sizeof command, "rm -r '%s'", rig->path);
    if (system(command) != 0) {
        (void)fprintf(stderr, "bench_hook: cannot remove %s\n", rig->path);
        exit(2);
    }
}

static void begin(bench *rig)
{
    bench_check(sonde_watch_begin_step(rig->watch, SONDE_MODE_TRAIN, &diag), &diag);
}

static void drain(bench *rig)
{
    if (!sonde__recorder_drain(sonde__hook_recorder(rig->hook), 60.0)) {
        (void)fprintf(stderr, "bench_hook: the recorder does not drain\n");
        exit(2);
    }
}

/* Nanoseconds of a record of tensors first, first + 2 ... at the step that is on. */
static double record_ns(bench *rig, uint32_t first)
{
    const double start = sonde__now();

    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t id = first; id < TENSORS; id += 2) {
            forget();
            sonde_watch_see(rig->watch, id, &views[id]);
        }
    }
    return (sonde__now() - start) * 1e9 / RECORDS;
}

static double measure_records(const char *folder, const char *name, bool due,
                              uint32_t first, uint32_t stats)
{
    double ns[BURSTS];
    bench rig;

    make(&rig, folder, name, due ? 1 : 1 << 30, NULL, stats);
    begin(&rig); /* step 0 is due in any case */
    sonde_watch_end_step(rig.watch);
    for (int i = -2; i < BURSTS; i++) { /* the first ones touch the ring */
        begin(&rig);
        drain(&rig);
        ns[i < 0 ? 0 : i] = record_ns(&rig, first);
        sonde_watch_end_step(rig.watch);
    }
    finish(&rig);
    return bench_quantile(ns, BURSTS, 0.5);
}

static double measure_steps(const char *folder)
{
    double ns[BURSTS];
    bench rig;

    make(&rig, folder, "steps", 1 << 30, NULL, 0);
    begin(&rig);
    for (int i = 0; i < BURSTS; i++) {
        double start = 0.0;

        drain(&rig);
        start = sonde__now();
        for (int k = 0; k < 1000; k++) {
            begin(&rig);
            sonde_watch_end_step(rig.watch);
        }
        ns[i] = (sonde__now() - start) * 1e6; /* of one step */
    }
    finish(&rig);
    return bench_quantile(ns, BURSTS, 0.5);
}

static double measure_when_nan(const char *folder)
{
    double ns[BURSTS];
    bench rig;

    make(&rig, folder, "nan", 1 << 30, "0.weight", 0);
    begin(&rig);
    for (int i = 0; i < BURSTS; i++) {
        double start = 0.0;

        drain(&rig);
        start = sonde__now();
        for (int k = 0; k < 10; k++) {
            begin(&rig);
            for (uint32_t id = 0; id < TENSORS; id++) {
                sonde_watch_see(rig.watch, id, &views[id]);
            }
            sonde_watch_end_step(rig.watch);
        }
        ns[i] = (sonde__now() - start) * 1e8;
    }
    finish(&rig);
    return bench_quantile(ns, BURSTS, 0.5);
}

static double measure_copies(void)
{
    unsigned char *to = bench_alloc((size_t)ROUNDS * TENSORS / 2 * sizeof values[0]);
    double ns[BURSTS];

    for (int i = -2; i < BURSTS; i++) {
        const double start = sonde__now();
        unsigned char *at = to;

        for (int round = 0; round < ROUNDS; round++) {
            for (int id = 0; id < TENSORS; id += 2) {
                memcpy(at, values[id], sizeof values[0]);
                forget();
                at += sizeof values[0];
            }
        }
        ns[i < 0 ? 0 : i] = (sonde__now() - start) * 1e9 / RECORDS;
    }
    free(to);
    return bench_quantile(ns, BURSTS, 0.5);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const int64_t shape[1] = {NUMBERS};

    for (int i = 0; i < TENSORS; i++) {
        views[i] = sonde_view_of(SONDE_F32, 1, shape, values[i]);
        for (int k = 0; k < NUMBERS; k++) {
            values[i][k] = sonde__normal(1, (uint64_t)i, (uint64_t)k);
        }
    }
    bench_header();
    bench_row("hook_record_not_due_step", measure_records(folder, "idle", false, 0, 0),
              "ns", "<=5");
    bench_row("hook_record_not_due_tensor", measure_records(folder, "other", true, 1, 0),
              "ns", "<=5");
    bench_row("hook_step_nothing_due", measure_steps(folder), "ns", "");
    bench_row("hook_copy_4k", measure_copies(), "ns", "");
    bench_row("hook_record_due_4k", measure_records(folder, "raw", true, 0, 0), "ns",
              "<=1000");
    bench_row("hook_record_vitals_4k",
              measure_records(folder, "vitals", true, 0, 1U << SONDE_STAT_MEAN), "ns",
              "");
    bench_row("hook_step_when_nan_32x4k", measure_when_nan(folder), "ns", "");
    return 0;
}
