/*
 * bench_trial.c - the cost of reading a run: opening a million records, one value at one
 * step, the vital signs of one tensor over 100,000 steps, a cursor over everything, a
 * live refresh.
 *
 *     trial [FOLDER]     where the runs are written and removed again; default TMPDIR or /tmp
 *
 * Prints name,value,unit,limit,verdict per line. The recorder writes the runs, and they
 * are read from the page cache; each figure is the best of several.
 */
#include "support.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/alloc.h>
#include <sonde/recorder.h>
#include <sonde/trial.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS = 12, RECORDS = 1000000, STEPS = 100000, SMALL = 16, LARGE = 16384 };
enum { RUNS = 5, LOOKUPS = 2000 };

static char folder[256];

static const char *run_path(const char *name)
{
    static char path[300];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* --- memory that a trial takes ------------------------------------------------------- */

static size_t in_use, most_in_use;

static void *counting_alloc(void *user, size_t align, size_t size)
{
    void *block = NULL;

    (void)user;
    if (posix_memalign(&block, align < sizeof(size_t) * 2 ? sizeof(size_t) * 2 : align,
                       size + SONDE__ALIGN) != 0) {
        return NULL;
    }
    *(size_t *)block = size;
    in_use += size;
    most_in_use = SONDE_MAX(most_in_use, in_use);
    return (char *)block + SONDE__ALIGN;
}

static void counting_free(void *user, void *ptr)
{
    (void)user;
    in_use -= *(size_t *)(void *)((char *)ptr - SONDE__ALIGN);
    free((char *)ptr - SONDE__ALIGN);
}

/* --- writing -------------------------------------------------------------------------- */

static sonde_catalogue *make_catalogue(int64_t count)
{
    sonde_catalogue *catalogue = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_catalogue_create(&catalogue, &diag), &diag);
    for (int t = 0; t < TENSORS; t++) {
        char name[32];
        sonde_tensor_info info = {.name = name,
                                  .role = SONDE_ROLE_WEIGHT,
                                  .dtype = SONDE_F32,
                                  .rank = 1,
                                  .shape = {count},
                                  .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        (void)snprintf(name, sizeof name, "layer%d.weight", t);
        bench_check(sonde_catalogue_declare(catalogue, &info, &id, &diag), &diag);
    }
    return catalogue;
}

/* Steps of TENSORS raw values of count elements each, or of their vital signs. */
static void write_run(const char *name, int64_t steps, int64_t count, bool raw)
{
    sonde_recorder_options options = {.size = sizeof options,
                                      .path = run_path(name),
                                      .when_full = SONDE_WHEN_FULL_WAIT};
    sonde_catalogue *catalogue = make_catalogue(count);
    sonde_recorder *recorder = NULL;
    float *data = bench_alloc((size_t)count * sizeof *data);
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &count, data);
    sonde_vitals vitals;
    sonde_diag diag = {0};

    bench_check(sonde__recorder_create(&options, catalogue, &recorder, &diag), &diag);
    for (int64_t i = 0; i < count; i++) {
        data[i] = (float)i;
    }
    for (int64_t s = 0; s < steps; s++) {
        const sonde_coordinate at = {.global_step = s, .mode_step = s};

        data[0] = (float)s;
        sonde_vitals_of(&view, &vitals);
        for (uint32_t t = 0; t < TENSORS; t++) {
            if (raw) {
                sonde__recorder_put(recorder, t, &at, &view);
            } else {
                sonde__recorder_put_vitals(recorder, t, &at, &vitals);
            }
        }
        sonde__recorder_end_step(recorder, &at);
    }
    bench_check(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    sonde_catalogue_destroy(catalogue);
    sonde__free(data);
}

/* --- reading -------------------------------------------------------------------------- */

static sonde_trial *opened(const char *name)
{
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_trial_open(run_path(name), NULL, &trial, &diag), &diag);
    if (sonde_trial_damage(trial, 0) != NULL) {
        (void)fprintf(stderr, "error: %s\n", sonde_trial_damage(trial, 0));
        exit(2);
    }
    return trial;
}

/* Opening, and the memory that an open trial holds for a record of that kind. */
static void of_opening(const char *name, const char *what, double records)
{
    static const sonde_allocator counting = {counting_alloc, counting_free, NULL};
    double best = 1e9;
    char row[64];
    sonde_trial *trial = NULL;

    for (int run = 0; run < RUNS; run++) {
        double seconds = -sonde__now();

        trial = opened(name);
        best = SONDE_MIN(best, seconds + sonde__now());
        sonde_trial_close(trial);
    }
    (void)snprintf(row, sizeof row, "open_1M_%s", what);
    bench_row(row, best * 1e6 / records, "s", "<=1");
    in_use = most_in_use = 0;
    sonde_set_allocator(&counting);
    trial = opened(name);
    (void)snprintf(row, sizeof row, "memory_a_%s", what);
    bench_row(row, (double)in_use / records, "B", "<=200");
    (void)snprintf(row, sizeof row, "memory_a_%s_at_most", what);
    bench_row(row, (double)most_in_use / records, "B", "<=200");
    sonde_trial_close(trial);
    sonde_set_allocator(NULL);
}

static void of_one_value(sonde_trial *trial, const char *what, int64_t steps)
{
    static double seconds[LOOKUPS];
    char row[64];
    sonde_diag diag = {0};

    for (int run = 0; run < 2; run++) { /* the first one warms up */
        for (int i = 0; i < LOOKUPS; i++) {
            const sonde_trial_at at = {
                .mode = SONDE_MODE_TRAIN,
                .step = (int64_t)sonde__below(5, 0, (uint64_t)i, (uint64_t)steps),
                .worker = -1};
            sonde_view view;

            seconds[i] = -sonde__now();
            bench_check(
                sonde_trial_value(trial, (uint32_t)i % TENSORS, &at, &view, &diag),
                &diag);
            seconds[i] += sonde__now();
        }
    }
    (void)snprintf(row, sizeof row, "value_%s", what);
    bench_row(row, bench_quantile(seconds, LOOKUPS, 0.5) * 1e6, "us", "<=100");
    (void)snprintf(row, sizeof row, "value_%s_p99", what);
    bench_row(row, bench_quantile(seconds, LOOKUPS, 0.99) * 1e6, "us", "<=100");
}

static void of_series(sonde_trial *trial)
{
    double best = 1e9, first = 0.0;
    sonde_diag diag = {0};

    for (int run = 0; run < RUNS; run++) {
        sonde_vitals *vitals = NULL;
        int64_t *steps = NULL;
        size_t count = 0;
        double seconds = -sonde__now();

        bench_check(sonde_trial_vitals_series(trial, 3, SONDE_MODE_TRAIN, -1, 0, 0,
                                              &steps, &vitals, &count, &diag),
                    &diag);
        seconds += sonde__now();
        first = run == 0 ? seconds : first;
        best = SONDE_MIN(best, seconds);
        if (count != STEPS || vitals[STEPS - 1].max != (double)(STEPS - 1)) {
            (void)fprintf(stderr, "error: a series of %zu\n", count);
            exit(2);
        }
        sonde_release(steps);
        sonde_release(vitals);
    }
    bench_row("series_100k_steps", best * 1e3, "ms", "<=20");
    bench_row("series_100k_steps_first", first * 1e3, "ms", "");
}

static void of_walking(sonde_trial *trial, unsigned how, const char *what, double records)
{
    double best = 1e9;
    char row[64];
    sonde_diag diag = {0};

    for (int run = 0; run < 3; run++) {
        const sonde_trial_cursor_options options = {
            .size = sizeof options, .how = how, .mode = SONDE_MODE_GLOBAL};
        sonde_trial_cursor *cursor = NULL;
        sonde_trial_record record;
        double seconds = -sonde__now(), count = 0.0;

        bench_check(sonde_trial_cursor_create(trial, &options, &cursor, &diag), &diag);
        while (sonde_trial_next(cursor, &record, &diag) == SONDE_OK) {
            count += 1.0;
        }
        best = SONDE_MIN(best, seconds + sonde__now());
        sonde_trial_cursor_destroy(cursor);
        if (count != records || diag.err != SONDE_EEND) {
            bench_check(SONDE_EFORMAT, &diag);
        }
    }
    (void)snprintf(row, sizeof row, "walk_a_%s", what);
    bench_row(row, best / records * 1e9, "ns", "");
}

static int evict_entry(const char *path, const struct stat *about, int type,
                       struct FTW *walk)
{
    const int fd = type == FTW_F ? open(path, O_RDONLY) : -1;

    (void)about;
    (void)walk;
    if (fd >= 0) {
        (void)fdatasync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
    return 0;
}

/* From the disk: with what comes next fetched ahead, and without. */
static void of_cold_walk(const char *name, size_t tensors, size_t ahead, const char *what)
{
    static const uint32_t one[] = {3};
    const sonde_trial_cursor_options options = {.size = sizeof options,
                                                .mode = SONDE_MODE_GLOBAL,
                                                .ids = tensors == 1 ? one : NULL,
                                                .id_count = tensors,
                                                .ahead = ahead};
    double best = 1e9, bytes = 0.0;
    char row[64];
    sonde_diag diag = {0};

    for (int run = 0; run < 3; run++) {
        sonde_trial *trial = opened(name);
        sonde_trial_cursor *cursor = NULL;
        sonde_trial_record record;
        double seconds = 0.0;

        (void)nftw(run_path(name), evict_entry, 16, FTW_PHYS);
        bytes = 0.0;
        seconds = -sonde__now();
        bench_check(sonde_trial_cursor_create(trial, &options, &cursor, &diag), &diag);
        while (sonde_trial_next(cursor, &record, &diag) == SONDE_OK) {
            bytes += (double)sonde_view_count(&record.view) * 4.0;
        }
        best = SONDE_MIN(best, seconds + sonde__now());
        sonde_trial_cursor_destroy(cursor);
        sonde_trial_close(trial);
    }
    (void)snprintf(row, sizeof row, "walk_cold_%s", what);
    bench_row(row, bytes / best * 1e-9, "GB/s", "");
}

static void of_refresh(sonde_trial *trial)
{
    enum { TIMES = 1000 };
    sonde_diag diag = {0};
    double seconds = -sonde__now();

    for (int i = 0; i < TIMES; i++) {
        bench_check(sonde_trial_refresh(trial, NULL, &diag), &diag);
    }
    bench_row("refresh_nothing_new", (seconds + sonde__now()) / TIMES * 1e6, "us", "");
}

static int remove_entry(const char *path, const struct stat *about, int type,
                        struct FTW *walk)
{
    (void)about;
    (void)type;
    (void)walk;
    return remove(path);
}

int main(int argc, char **argv)
{
    const int64_t steps = RECORDS / TENSORS;
    const char *where = argc > 1 ? argv[1] : getenv("TMPDIR");
    sonde_trial *trial = NULL;

    (void)snprintf(folder, sizeof folder, "%.200s/sonde-bench-XXXXXX",
                   where != NULL ? where : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 2;
    }
    bench_header();
    write_run("raw", steps, SMALL, true);
    of_opening("raw", "value", (double)(steps * TENSORS));
    trial = opened("raw");
    of_one_value(trial, "64B", steps);
    of_walking(trial, SONDE_HOW_RAW, "value", (double)(steps * TENSORS));
    of_refresh(trial);
    sonde_trial_close(trial);
    write_run("large", 500, LARGE, true);
    trial = opened("large");
    of_one_value(trial, "64KB", 500);
    sonde_trial_close(trial);
    of_cold_walk("large", TENSORS, 0, "ahead");
    of_cold_walk("large", TENSORS, SIZE_MAX, "not_ahead");
    of_cold_walk("large", 1, 0, "of_one_ahead");
    of_cold_walk("large", 1, SIZE_MAX, "of_one_not_ahead");
    write_run("rows", STEPS, SMALL, false);
    of_opening("rows", "row", (double)STEPS * TENSORS);
    trial = opened("rows");
    of_series(trial);
    of_walking(trial, SONDE_HOW_VITALS, "row", (double)STEPS * TENSORS);
    sonde_trial_close(trial);
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : 2;
}
