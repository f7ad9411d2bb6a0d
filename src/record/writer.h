/*
 * writer.h - the thread that takes messages out of the ring and puts them into files.
 * Internal.
 *
 * Before start everything here belongs to the thread that sets it up; from then on to the
 * writer's thread, but for the counters, which anybody may read, and closing.
 *
 * The thread works in batches: messages are taken until there are no more or a batch is
 * full; then catalogue, statistics, sketches, values and index lines, and the steps that are
 * over go to the files, in this order; then the ring is released. Where a file cannot be written, what waits stays
 * in the ring and is tried again four times a second; what would not fit into half of the
 * ring is lost and counted.
 */
#ifndef SONDE_RECORD_WRITER_H
#define SONDE_RECORD_WRITER_H

#include "record/compress.h"
#include "record/segment.h"

#include <stdatomic.h>

typedef struct sonde__record_counters {
    _Atomic uint64_t records, bytes, rows, sketches;
    _Atomic uint64_t disk_full, io_error; /* lost */
    _Atomic int64_t last_step;
} sonde__record_counters;

typedef struct sonde__record_writer {
    sonde__record_backend *backend; /* taken */
    sonde__record_ring *ring;       /* borrowed */
    char folder[SONDE__FILE_NAME];
    uint64_t segment_bytes;
    double segment_seconds;
    char *run; /* what run.json says, should it get lost */
    size_t run_size;
    char host[256];
    bool made_run_folder, made_run, made_worker; /* by this process */
    bool goes_on;                                /* with files of another */

    sonde__record_tensors tensors;
    sonde__record_segment segment;
    sonde__record_stream stats, sketches, steps;
    int64_t newest; /* of the steps that were put into the stream; -1: none */
    sonde__record_scratch scratch;
    sonde__record_compressor compressor;
    void *far;            /* the bytes of a large value, freed when it is in the file */
    atomic_bool far_away; /* set by the producer who sent one, cleared here */
    bool pending;         /* a batch is not in the files yet */
    bool rotating;        /* the segment is to be closed before the next batch */
    bool lost_files;

    int fault;          /* errno; 0: none */
    atomic_bool faulty; /* the same for the producer */
    double fault_since, retry_at;
    uint64_t lost_before; /* the fault */
    double beat_at, look_at;
    bool changed; /* since the last state.json */

    sonde__record_counters counters; /* of this process */
    sonde__record_counters before;   /* of those that wrote before it */
    _Atomic uint64_t ring_full;      /* lost, counted by the producer */
    _Atomic uint64_t refused;        /* likewise; told as io_error */
    uint64_t ring_full_before;
    uint64_t generation;            /* 0: who wrote first */
    int64_t next[SONDE_MODE_COUNT]; /* with what each mode begins */

    pthread_t thread;
    bool started;
    atomic_bool closing;
} sonde__record_writer;

SONDE_API void sonde__record_writer_init(sonde__record_writer *writer);
/* Also when it was never started; what is still open stays a .part. */
SONDE_API void sonde__record_writer_fini(sonde__record_writer *writer);
/* Starts the thread; no signal is ever delivered to it. */
SONDE_API sonde_err sonde__record_writer_start(sonde__record_writer *writer,
                                               sonde_diag *diag);
/* Drains the ring, closes the files and ends the thread. */
SONDE_API void sonde__record_writer_stop(sonde__record_writer *writer);
/* Replaces state.json (state.c). Returns an errno. */
SONDE_API int sonde__record_writer_beat(sonde__record_writer *writer, bool running);

#endif
