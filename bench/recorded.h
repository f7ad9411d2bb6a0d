/*
 * recorded.h - what the benchmarks of recording share: a folder that is always removed,
 * and networks that record raw values or vital signs at every n-th step.
 *
 *     bench_folder_make(dir, 1e9, folder, sizeof folder);     first, before any thread
 *     bench_records records = {.run = run, .selector = "@all", .how = SONDE_HOW_RAW,
 *                              .interval = 1};
 *     bench_network_record(&net, "fashion_cnn", &records);
 *     ... steps ...
 *     bench_records_thin(run);                                now and then
 *     bench_network_free(&net);
 *     bench_records_close(&records);
 */
#ifndef SONDE_BENCH_RECORDED_H
#define SONDE_BENCH_RECORDED_H

#include "support.h"
#include "record/record_sink.h"

#include <sonde/recorder.h>

#include <time.h>

enum { BENCH_RING = 64 << 20 }; /* bytes of a recorder's ring */

/* Seconds. */
double bench_clock(clockid_t clock);

/*
 * Makes an empty folder of this process in `dir`, and writes its path. A child process
 * waits for the end of this one and removes the folder then, whichever way it ends: a
 * signal that cannot be caught leaves nothing either. Ends the program with status 2 if
 * the file system has fewer than `bytes` free.
 */
void bench_folder_make(const char *dir, double bytes, char *path, size_t size);
/* Removes a file, or a folder and what it holds, if it is there. */
void bench_remove(const char *path);

typedef struct bench_records {
    const char *run; /* its folder, which does not exist yet */
    const char *selector;
    unsigned how;
    int64_t interval;
    bool heap;                /* the ring is in memory, not in a file */
    sonde_recorder *recorder; /* while it is open */
} bench_records;

/* As bench_network_make, with a tap into a recorder, whose producer waits while its ring
 * is full. */
void bench_network_record(bench_network *out, const char *job, bench_records *records);
/* Removes the closed segments of a run while it is being written, so that a long
 * benchmark keeps only the last ones. */
void bench_records_thin(const char *run);
/* Ends the run; after bench_network_free. */
void bench_records_close(bench_records *records);

#endif
