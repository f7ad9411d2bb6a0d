/*
 * bench_record.c - what recording costs the producing thread, and the speed of the
 * writer next to a plain writer on the same disk.
 *
 *     bench_record [FOLDER [MEGABYTES]]       files are created in FOLDER (.) and removed
 *
 * put over memcpy: bursts that fit the ring, against a memcpy of the same source into
 * memory that is traversed in the same way, in turns; medians of the thread's own time.
 * writer over plain: from the first put until the recorder is closed and everything is
 * synced, against the better of a buffered and a direct writer of 4 MiB blocks with one
 * fdatasync at the end, in turns; medians.
 */
#include "support.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/recorder.h>

#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    RING = 64 << 20,
    BURST = 8 << 20, /* bytes of one timed stretch of puts */
    ROUNDS = 41,
    SOURCE = 4 << 20,
    BLOCK = 4 << 20,
    TURNS = 5
};

static char folder[512], run[600], plain[600];

static int remove_one(const char *path, const struct stat *about, int kind,
                      struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_run(void)
{
    (void)nftw(run, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- a recorder of values of one size --------------------------------------------- */

typedef struct bench_recorder {
    sonde_catalogue *catalogue;
    sonde_recorder *recorder;
    sonde_view view;
    size_t bytes;
    int64_t step;
} bench_recorder;

static void make(bench_recorder *b, size_t bytes, size_t ring)
{
    const sonde_recorder_options options = {
        .size = sizeof options, .path = run, .ring_bytes = ring};
    sonde_tensor_info info = {.name = "layer1.weight",
                              .dtype = SONDE_F32,
                              .rank = 1,
                              .shape = {(int64_t)(bytes / 4)},
                              .same_as = SONDE_NO_TENSOR};
    sonde_diag diag = {0};
    uint32_t id = 0;

    remove_run();
    b->bytes = bytes;
    b->step = 0;
    b->view = sonde_view_of(SONDE_F32, 1, info.shape, NULL);
    bench_check(sonde_catalogue_create(&b->catalogue, &diag), &diag);
    bench_check(sonde_catalogue_declare(b->catalogue, &info, &id, &diag), &diag);
    bench_check(sonde__recorder_create(&options, b->catalogue, &b->recorder, &diag),
                &diag);
}

static void put(bench_recorder *b, unsigned char *source, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const sonde_coordinate at = {.global_step = b->step, .mode_step = b->step};

        b->view.data = source + i * b->bytes % SOURCE;
        sonde__recorder_put(b->recorder, 0, &at, &b->view);
        b->step++;
    }
}

static void end(bench_recorder *b)
{
    sonde_diag diag = {0};

    bench_check(sonde__recorder_close(b->recorder, SONDE_RUN_FINISHED, NULL, &diag),
                &diag);
    sonde_catalogue_destroy(b->catalogue);
    remove_run();
}

/* Of this thread's own processor time: others that want the processor do not count. */
static double own_time(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- the producer ----------------------------------------------------------------- */

static void copy(unsigned char *to, size_t *at, const unsigned char *source, size_t bytes,
                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(to + *at, source + i * bytes % SOURCE, bytes);
        *at = (*at + bytes) % RING;
    }
}

static void of_producer(size_t bytes, const char *size, unsigned char *source,
                        unsigned char *room, const char *limit)
{
    const size_t count = BURST / bytes;
    double puts[ROUNDS], copies[ROUNDS], ratios[ROUNDS];
    char name[64];
    bench_recorder b;
    size_t at = 0;

    make(&b, bytes, RING);
    for (int warm = 0; warm < 10; warm++) { /* the ring's pages are there */
        put(&b, source, count);
        (void)sonde__recorder_drain(b.recorder, 60);
        copy(room, &at, source, bytes, count);
    }
    for (int i = 0; i < ROUNDS; i++) {
        double began = own_time();

        put(&b, source, count);
        puts[i] = (own_time() - began) / (double)count * 1e9;
        (void)sonde__recorder_drain(b.recorder, 60);
        began = own_time();
        copy(room, &at, source, bytes, count);
        copies[i] = (own_time() - began) / (double)count * 1e9;
        ratios[i] = puts[i] / copies[i];
    }
    end(&b);
    (void)snprintf(name, sizeof name, "record_put_%s", size);
    bench_row(name, bench_quantile(puts, ROUNDS, 0.5), "ns", limit);
    (void)snprintf(name, sizeof name, "record_memcpy_%s", size);
    bench_row(name, bench_quantile(copies, ROUNDS, 0.5), "ns", "");
    (void)snprintf(name, sizeof name, "record_put_over_memcpy_%s", size);
    bench_row(name, bench_quantile(ratios, ROUNDS, 0.5), "ratio", "<=1.5");
}

static void of_small_things(void)
{
    enum { COUNT = 20000 };
    double rows[ROUNDS], ends[ROUNDS], empty[ROUNDS];
    sonde_vitals vitals;
    bench_recorder b;

    sonde_vitals_init(&vitals);
    make(&b, 4096, RING);
    for (int i = 0; i < ROUNDS; i++) {
        const sonde_coordinate at = {.global_step = i, .mode_step = i};
        double began = own_time();

        if (i == 0) { /* told of the tensor */
            sonde__recorder_put_vitals(b.recorder, 0, &at, &vitals);
        }
        for (int k = 0; k < COUNT; k++) {
            sonde__recorder_put_vitals(b.recorder, 0, &at, &vitals);
        }
        rows[i] = (own_time() - began) / COUNT * 1e9;
        (void)sonde__recorder_drain(b.recorder, 60);
        began = own_time();
        for (int k = 0; k < COUNT; k++) { /* a step is written if it has data */
            sonde__recorder_put_vitals(b.recorder, 0, &at, &vitals);
            sonde__recorder_end_step(b.recorder, &at);
        }
        ends[i] = (own_time() - began) / COUNT * 1e9 - rows[i];
        (void)sonde__recorder_drain(b.recorder, 60);
        began = own_time();
        for (int k = 0; k < COUNT; k++) {
            sonde__recorder_end_step(b.recorder, &at);
        }
        empty[i] = (own_time() - began) / COUNT * 1e9;
    }
    end(&b);
    bench_row("record_put_vitals", bench_quantile(rows, ROUNDS, 0.5), "ns", "");
    bench_row("record_end_step", bench_quantile(ends, ROUNDS, 0.5), "ns", "");
    bench_row("record_end_empty_step", bench_quantile(empty, ROUNDS, 0.5), "ns", "");
}

/* --- the writer ------------------------------------------------------------------- */

static void die(const char *what)
{
    (void)fprintf(stderr, "bench_record: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* Seconds that a plain writer takes for so many bytes; infinite if it cannot be. */
static double write_plain(const unsigned char *source, size_t total, int flags)
{
    const int fd = open(plain, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0666);
    double began = 0.0;

    if (fd < 0) {
        return 1e30;
    }
    began = sonde__now();
    for (size_t at = 0; at < total; at += BLOCK) {
        if (pwrite(fd, source, BLOCK, (off_t)at) != BLOCK) {
            die(plain);
        }
    }
    if (fdatasync(fd) != 0 || close(fd) != 0) {
        die(plain);
    }
    began = sonde__now() - began;
    (void)unlink(plain);
    return began;
}

static double write_recorded(unsigned char *source, size_t bytes, size_t total)
{
    bench_recorder b;
    double began = 0.0;

    make(&b, bytes, RING);
    began = sonde__now();
    put(&b, source, total / bytes);
    sonde_diag diag = {0};
    bench_check(sonde__recorder_close(b.recorder, SONDE_RUN_FINISHED, NULL, &diag),
                &diag);
    began = sonde__now() - began;
    sonde_catalogue_destroy(b.catalogue);
    remove_run();
    return began;
}

static void of_writer(unsigned char *source, size_t total)
{
    static const struct {
        size_t bytes;
        const char *name, *limit;
    } kinds[] = {{256 << 10, "256KB", ">=0.8"}, {4 << 10, "4KB", ">=0.3"}};
    const double megabytes = (double)total * 1e-6;
    double direct[2 * TURNS], buffered[2 * TURNS];

    for (int k = 0; k < 2; k++) {
        double took[TURNS], ratios[TURNS];
        char name[64];

        for (int turn = 0; turn < TURNS; turn++) {
            double *const of_direct = &direct[k * TURNS + turn];
            double *const of_buffered = &buffered[k * TURNS + turn];

            *of_direct = write_plain(source, total, O_DIRECT);
            took[turn] = write_recorded(source, kinds[k].bytes, total);
            *of_buffered = write_plain(source, total, 0);
            ratios[turn] = SONDE_MIN(*of_direct, *of_buffered) / took[turn];
        }
        (void)snprintf(name, sizeof name, "record_writer_%s", kinds[k].name);
        bench_row(name, megabytes / bench_quantile(took, TURNS, 0.5), "MB/s", "");
        (void)snprintf(name, sizeof name, "record_writer_over_plain_%s", kinds[k].name);
        bench_row(name, bench_quantile(ratios, TURNS, 0.5), "ratio", kinds[k].limit);
    }
    bench_row("record_plain_direct", megabytes / bench_quantile(direct, 2 * TURNS, 0.5),
              "MB/s", "");
    bench_row("record_plain_buffered",
              megabytes / bench_quantile(buffered, 2 * TURNS, 0.5), "MB/s", "");
}

int main(int argc, char **argv)
{
    const size_t total = (size_t)(argc > 2 ? atoi(argv[2]) : 1024) << 20;
    unsigned char *const source = bench_alloc(SOURCE), *const room = bench_alloc(RING);

    (void)snprintf(folder, sizeof folder, "%s", argc > 1 ? argv[1] : ".");
    (void)snprintf(run, sizeof run, "%s/bench-record-%ld", folder, (long)getpid());
    (void)snprintf(plain, sizeof plain, "%s/bench-plain-%ld", folder, (long)getpid());
    for (size_t i = 0; i < SOURCE; i += 4) {
        const float x = sonde__normal(1, 0, i);

        memcpy(source + i, &x, sizeof x);
    }
    memset(room, 0, RING);
    bench_header();
    of_producer(4 << 10, "4KB", source, room, "<=1000");
    of_producer(64 << 10, "64KB", source, room, "");
    of_producer(256 << 10, "256KB", source, room, "");
    of_small_things();
    of_writer(source, total);
    sonde__free(source);
    sonde__free(room);
    return 0;
}
