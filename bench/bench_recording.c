/*
 * bench_recording.c - what recording a training run costs.
 *
 *     bench_recording [--job fashion_cnn] [--seconds 3] [--dir FOLDER] [--ring file|heap]
 *
 * A bare session and one that records take turns in blocks of a few hundredths of a
 * second, in four modes: weights and gradients raw at every step; everything raw at
 * every step; vital signs of everything at every step; weights and gradients raw at
 * every 10th step. Rows, behind the job and the mode:
 *
 *     bytes            a step, of raw values
 *     thread_added     seconds of the training thread's processor time that recording adds
 *                      to a step: what it does itself, waiting for the writer excluded
 *     copy             of a plain memcpy of the same values to a ring of the same size
 *     thread_over_copy the former over the latter
 *     share            of the bare step
 *     wall             of a step, the run closed and all, over 1.1 x the larger of bare step
 *                      and copy, and the bytes over what the disk takes
 *     smdebug_over     what smdebug 1.0.34 added to a PyTorch step for the same work, a figure
 *                      measured once on a machine of this kind and not in this run, over what
 *                      this adds by the wall
 *     cpu              seconds of all threads' processor time a step: training with and
 *                      without recording, the writer, and the beginning and end of the run
 *     lost             records that the recorder says it lost
 *
 * With --ring heap the ring does not outlive the process: to compare, let both take turns.
 *
 * The disk's rate is that of one sequential writer of 4 MB blocks with as many bytes,
 * synced at the end, buffered or past the cache, whichever is faster, in the same
 * folder.
 */
#include "recorded.h"

#include "base/macros.h"
#include "base/memory.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/recorder.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 16384, BLOCK = 4 << 20, MOST_BLOCKS = 4096 };
static const double BLOCK_SECONDS = 0.03, MOST_BYTES = 3e9, ROOM = 4e9;

typedef struct mode {
    const char *name, *selector;
    int64_t interval;
    unsigned how;
    double smdebug_cnn, smdebug_mlp; /* ms added a step; 0: not known */
} mode;

static const mode modes[] = {
    {"parameters_raw", "@gradient,@update", 1, SONDE_HOW_RAW, 6.6, 10.5},
    {"all_raw", "@all", 1, SONDE_HOW_RAW, 13.2, 52.0},
    {"all_vitals", "@all", 1, SONDE_HOW_VITALS, 19.0, 19.0},
    {"parameters_raw_10th", "@gradient,@update", 10, SONDE_HOW_RAW, 0.0, 0.0},
};

typedef struct bench {
    const char *job;
    const char *dir;
    double seconds, cpu;
    bool heap;
    bench_batches batches;
    mode mode;
    char folder[480], run[512];
    bench_records records;
    bench_network bare, recording;
    int64_t steps; /* of each, timed */
    double bare_wall, bare_own, wall, own;
} bench;

static void must(bool done, const char *what)
{
    if (!done) {
        perror(what);
        exit(2);
    }
}

/* --- both sessions --------------------------------------------------------------- */

static void time_block(bench *b, bench_network *net, int64_t first, int64_t count,
                       double *wall, double *own)
{
    const double start = bench_clock(CLOCK_MONOTONIC);
    const double own_start = bench_clock(CLOCK_THREAD_CPUTIME_ID);

    for (int64_t i = 0; i < count; i++) {
        bench_network_step(net, &b->batches, first + i);
    }
    *own += bench_clock(CLOCK_THREAD_CPUTIME_ID) - own_start;
    *wall += bench_clock(CLOCK_MONOTONIC) - start;
}

/* Both sessions in turns, until the seconds or the bytes are used up; then the run is
 * closed, in the recording's time. */
static void measure(bench *b, sonde_recorder_stats *stats)
{
    double ignored = 0.0, step = 0.0;
    int64_t block = 0;

    time_block(b, &b->bare, 0, 20, &ignored, &ignored);
    time_block(b, &b->recording, 0, 20, &ignored, &ignored);
    time_block(b, &b->bare, 0, 20, &step, &ignored);
    block = (int64_t)fmax(10.0, ceil(BLOCK_SECONDS / (step / 20.0) / 10.0) * 10.0);
    must(sonde__recorder_drain(b->records.recorder, 60.0), "drain");
    do {
        time_block(b, &b->bare, b->steps, block, &b->bare_wall, &b->bare_own);
        time_block(b, &b->recording, b->steps, block, &b->wall, &b->own);
        b->steps += block;
        sonde__recorder_get_stats(b->records.recorder, stats);
    } while (b->bare_wall + b->wall < b->seconds && (double)stats->bytes < MOST_BYTES);
    {
        const double start = bench_clock(CLOCK_MONOTONIC);

        (void)sonde__recorder_drain(b->records.recorder, 600.0);
        sonde__recorder_get_stats(b->records.recorder, stats);
        bench_records_close(&b->records);
        b->wall += bench_clock(CLOCK_MONOTONIC) - start;
    }
}

/* --- what it is compared with ----------------------------------------------------- */

/* Seconds to copy bytes in pieces of the mean size of a value, from a source that is in
 * cache as a step's values are, to a ring. */
static double time_copy(double bytes, double piece)
{
    const size_t size = (size_t)fmax(piece, 1.0), source_bytes = (size_t)1 << 19;
    unsigned char *ring = bench_alloc(BENCH_RING),
                  *source = bench_alloc(source_bytes + size);
    double own = 0.0, start = 0.0;
    size_t to = 0, from = 0, count = (size_t)fmax(200e6 / (double)size, 1.0);

    memset(ring, 1, BENCH_RING);
    memset(source, 2, source_bytes + size);
    start = bench_clock(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < count; i++) {
        to = to + size > BENCH_RING ? 0 : to;
        from = from > source_bytes ? 0 : from;
        memcpy(ring + to, source + from, size);
        __asm__ volatile("" : : "r"(ring) : "memory");
        to += size;
        from += size;
    }
    own = bench_clock(CLOCK_THREAD_CPUTIME_ID) - start;
    sonde__free(ring);
    sonde__free(source);
    return own * bytes / ((double)count * (double)size);
}

/* Bytes a second of one sequential writer; flags past the cache or not. */
static double disk_rate(const bench *b, double bytes, int flags)
{
    const size_t blocks = (size_t)fmin(fmax(bytes / BLOCK, 16.0), MOST_BLOCKS);
    unsigned char *block = sonde__malloc_aligned(4096, BLOCK);
    char path[560];
    double start = 0.0, seconds = 0.0;
    int fd = -1;

    (void)snprintf(path, sizeof path, "%s/disk", b->folder);
    must(block != NULL, "memory");
    for (size_t i = 0; i < BLOCK; i++) {
        block[i] = (unsigned char)(i * 2654435761U >> 13);
    }
    fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | flags, 0600);
    if (fd < 0 && flags != 0) {
        sonde__free(block);
        return 0.0; /* no O_DIRECT on this file system */
    }
    must(fd >= 0, path);
    start = bench_clock(CLOCK_MONOTONIC);
    for (size_t i = 0; i < blocks; i++) {
        must(write(fd, block, BLOCK) == BLOCK, path);
    }
    must(fdatasync(fd) == 0, path);
    seconds = bench_clock(CLOCK_MONOTONIC) - start;
    (void)close(fd);
    (void)unlink(path);
    sonde__free(block);
    return (double)blocks * BLOCK / seconds;
}

/* --- results ---------------------------------------------------------------------- */

static void row(const bench *b, const char *what, double value, const char *unit,
                const char *limit)
{
    char name[128];

    (void)snprintf(name, sizeof name, "%s_record_%s_%s", b->job, b->mode.name, what);
    bench_row(name, value, unit, limit);
}

static void report(bench *b, const mode *which, const sonde_recorder_stats *stats)
{
    const double steps = (double)b->steps, all = steps + 20.0;
    const double bytes = (double)stats->bytes / all;
    const double piece = (double)stats->bytes / fmax((double)stats->records, 1.0);
    const double bare = b->bare_own / steps, added = b->own / steps - bare;
    const double wall = b->wall / steps, bare_wall = b->bare_wall / steps;
    const double copy = bytes > 0.0 ? time_copy(bytes, piece) : 0.0;
    const bool cnn = strcmp(b->job, "fashion_cnn") == 0;
    const double smdebug = (cnn ? which->smdebug_cnn : which->smdebug_mlp) * 1e-3;
    const uint64_t lost =
        stats->lost_disk_full + stats->lost_io_error + stats->lost_ring_full;

    row(b, "bytes", bytes, "bytes", "");
    row(b, "step", bare * 1e3, "ms", "");
    row(b, "thread_added", added * 1e3, "ms", "");
    row(b, "share", added / bare, "ratio",
        which->how != SONDE_HOW_VITALS ? ""
        : cnn                          ? "<=0.25"
                                       : "<=0.05");
    if (bytes > 0.0) {
        const double disk = fmax(disk_rate(b, (double)stats->bytes, 0),
                                 disk_rate(b, (double)stats->bytes, O_DIRECT));
        const double least = fmax(bare_wall + copy, bytes / disk);

        row(b, "copy", copy * 1e3, "ms", "");
        row(b, "thread_over_copy", added / copy, "ratio", "<=1.5");
        row(b, "disk", disk * 1e-9, "GB/s", "");
        row(b, "wall", wall / least, "ratio", "<=1.1");
    }
    row(b, "wall_added", (wall - bare_wall) * 1e3, "ms", "");
    if (smdebug > 0.0) {
        row(b, "smdebug_over", smdebug / fmax(wall - bare_wall, 1e-9), "ratio", ">=15");
    }
    row(b, "waited", stats->waited_seconds / all * 1e3, "ms", "");
    row(b, "cpu", b->cpu / (double)b->steps * 1e3, "ms", "");
    row(b, "lost", (double)lost, "records", "<=0");
}

static void run_mode(bench *b, const mode *which)
{
    sonde_recorder_stats stats = {0};

    b->mode = *which;
    b->steps = 0;
    b->bare_wall = b->bare_own = b->wall = b->own = 0.0;
    (void)snprintf(b->run, sizeof b->run, "%s/%s", b->folder, which->name);
    b->records = (bench_records){.run = b->run,
                                 .selector = which->selector,
                                 .how = which->how,
                                 .interval = which->interval,
                                 .heap = b->heap};
    bench_network_make(&b->bare, b->job, 1, NULL);
    bench_network_record(&b->recording, b->job, &b->records);
    b->cpu = -bench_clock(CLOCK_PROCESS_CPUTIME_ID);
    measure(b, &stats);
    b->cpu += bench_clock(CLOCK_PROCESS_CPUTIME_ID);
    bench_network_free(&b->recording);
    bench_network_free(&b->bare);
    bench_remove(b->run); /* before the disk is measured, which takes as much room */
    report(b, which, &stats);
}

int main(int argc, char **argv)
{
    static bench b = {.job = "fashion_cnn", .seconds = 3.0};

    b.dir = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--job") == 0) {
            b.job = argv[i + 1];
        } else if (strcmp(argv[i], "--seconds") == 0) {
            b.seconds = atof(argv[i + 1]);
        } else if (strcmp(argv[i], "--dir") == 0) {
            b.dir = argv[i + 1];
        } else if (strcmp(argv[i], "--ring") == 0) {
            b.heap = strcmp(argv[i + 1], "heap") == 0;
        } else {
            argc = 0;
        }
    }
    if (argc % 2 == 0 || b.seconds <= 0.0) {
        (void)fprintf(stderr,
                      "usage: bench_recording [--job NAME] [--seconds S] [--dir FOLDER] "
                      "[--ring file|heap]\n");
        return 2;
    }
    bench_folder_make(b.dir, ROOM, b.folder, sizeof b.folder);
    bench_batches_make(&b.batches, b.job, SAMPLES, false);
    bench_header();
    for (size_t i = 0; i < SONDE_COUNT_OF(modes); i++) {
        run_mode(&b, &modes[i]);
    }
    bench_batches_free(&b.batches);
    return 0;
}
