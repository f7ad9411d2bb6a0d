/*
 * writer.h - the thread that moves messages from the ring into files. Internal.
 *
 * Before start everything here belongs to the thread that sets it up, afterwards to the
 * writer's thread; any thread may read the counters and set closing.
 *
 * The thread first opens the run (begin): start returns once that is done, or has made no
 * progress for wait_seconds and what one call of the store may take.
 *
 * The thread works in batches: it takes messages until the ring is empty or a batch is
 * full; then it writes catalogue, statistics, sketches, values and their index lines,
 * and completed steps, in this order; then it releases the ring. If a file cannot be
 * written, the messages stay in the ring and writing is retried after 1, 2, 4 ... 128
 * ms. After wait_seconds the oldest messages are lost and counted, as whole batches, until
 * half of the ring is free; a batch is at most an eighth of the ring. When closing, all
 * messages are lost.
 *
 * A system call that hangs holds the thread. start and stop wait for it as long as for a
 * fault; then they leave the thread alone, which frees what it uses when the call returns.
 */
#ifndef SONDE_RECORD_WRITER_H
#define SONDE_RECORD_WRITER_H

#include "base/clock.h"
#include "record/compress.h"
#include "record/file_list.h"
#include "record/segment.h"

#include <sonde/recorder.h>

#include <stdatomic.h>

/* Seconds beyond wait_seconds after which a thread that has done nothing is taken to hang
 * in a system call: more than a busy machine keeps a thread waiting for a processor. */
#define SONDE__RECORD_STANDSTILL 1.0
#define SONDE__RECORD_WAIT 30.0 /* wait_seconds unless it is given */

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
    char *run; /* the text of run.json, in case it is lost */
    size_t run_size;
    char id[40];    /* of the run */
    char host[256]; /* these three of the process that state.json names */
    int64_t pid;
    char heartbeat[SONDE__DATE_TEXT];            /* "": now */
    bool made_run_folder, made_run, made_worker; /* by this process */
    bool resumes;                                /* resumes files of another process */

    sonde__record_tensors tensors;
    sonde__record_segment segment;
    sonde__record_stream stats, sketches, steps;
    sonde__record_file_list files;
    int64_t newest; /* the newest step in the stream; -1: none */
    sonde__record_scratch scratch;
    sonde__record_compressor compressor;
    void *far;            /* the bytes of a large value until it is in the file */
    atomic_bool far_away; /* set by the producer that sent one, cleared here */
    /* By kind of message: how many of the next ones are in the files already (recovery).
     */
    uint64_t written[SONDE__MESSAGE_KINDS];
    bool pending;  /* a batch is not in the files yet */
    bool rotating; /* close the segment before the next batch */
    bool lost_files;

    int fault; /* errno; 0: none */
    double fault_since, retry_at, retry_wait;
    uint64_t lost_before;  /* the fault */
    atomic_bool gave_up;   /* the fault lasts longer than wait_seconds */
    double wait_seconds;   /* for a fault to pass */
    _Atomic uint64_t done; /* system calls and batches: progress for stop to see */
    double beat_at, look_at;
    bool changed; /* since the last state.json */

    sonde__record_counters counters; /* of this process */
    sonde__record_counters before;   /* of earlier writers */
    uint64_t ring_full_before, put_before;
    /* Of a ring that a dead writer left (salvage.h): */
    bool has_mark;
    sonde__record_checkpoint mark;
    uint64_t beyond[SONDE__MARKS];  /* items in files from the mark's numbers on */
    uint64_t cut;                   /* bytes that are damaged */
    uint64_t salvaged;              /* records that were in no file */
    uint64_t generation;            /* 0: the first writer */
    int64_t next[SONDE_MODE_COUNT]; /* the first step of each mode */

    pthread_t thread;
    bool started;
    atomic_bool closing;
    /* Set before closing: what end.json says; ends: it is written by this worker. */
    bool ends;
    sonde_run_end reason;
    char *text;               /* NULL: none */
    int end_fault;            /* errno of the last files; 0: all are written */
    atomic_int leaving;       /* SONDE__STAYS ... */
    void (*left)(void *user); /* frees the writer that was left alone */
    sonde_err (*begin)(void *user, sonde_diag *diag); /* opens the run */
    void (*undo)(void *user); /* removes what begin made; NULL: nothing */
    bool only_begins;         /* and ends */
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t has_begun; /* on the monotonic clock */
    bool begun, abandoned;    /* under lock: begin has returned; start has not waited */
    sonde_err begin_err;      /* these two once begun */
    sonde_diag begin_diag;
} sonde__record_writer;

/* Whether the thread has ended (1) or was left alone (2); the second to set it frees. */
enum { SONDE__STAYS = 0, SONDE__ENDED = 1, SONDE__LEFT = 2 };

sonde_err sonde__record_writer_init(sonde__record_writer *writer);
/* Also if never started; open files stay .part. */
void sonde__record_writer_fini(sonde__record_writer *writer);
/* Starts the thread, with all signals blocked, and waits for begin; returns its error.
 * *is_left: a system call hangs; the thread uses the writer and calls left at its end.
 * where names the run in diagnostics. */
sonde_err sonde__record_writer_start(sonde__record_writer *writer, const char *where,
                                     bool *is_left, sonde_diag *diag);
/* The work of the thread goes on: what waits for it waits longer. */
static inline void sonde__record_writer_note(sonde__record_writer *writer)
{
    (void)atomic_fetch_add_explicit(&writer->done, 1, memory_order_relaxed);
}
/* Drains the ring, closes the files and ends the thread. False if a system call hangs
 * for longer than wait_seconds: the thread still uses the writer and calls left at its
 * end. */
bool sonde__record_writer_stop(sonde__record_writer *writer);

#endif
