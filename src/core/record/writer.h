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
#include "record/record_tensors.h"
#include "record/stream.h"
#include "record/segment.h"
#include <sonde/recorder.h>
#include <stdatomic.h>

/* Seconds beyond wait_seconds after which a thread that has done nothing is taken to hang
 * in a system call: more than a busy machine keeps a thread waiting for a processor. */
#define SONDE__RECORD_STANDSTILL 1.0
#define SONDE__RECORD_WAIT 30.0 /* wait_seconds unless it is given */

/* Stream i has files of kind SONDE__FILE_STATS + i, and the mark SONDE__MARK_ROWS + i. */
enum {
    SONDE__STREAM_ROWS = 0,
    SONDE__STREAM_SKETCHES = 1,
    SONDE__STREAM_STEPS = 2,
    SONDE__STREAMS = 3
};

typedef struct sonde__record_counters {
    _Atomic uint64_t records, bytes;
    _Atomic uint64_t items[SONDE__STREAMS]; /* rows, sketches, ends of steps */
    _Atomic uint64_t disk_full, io_error;   /* lost */
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
    sonde__record_stream streams[SONDE__STREAMS];
    sonde__record_file_list files;
    int64_t newest; /* the newest step in the stream; -1: none */
    sonde__record_scratch scratch;
    sonde__record_compressor compressor;
    void *far;            /* the bytes of a large value until it is in the file */
    atomic_bool far_away; /* set by the producer that sent one, cleared here */
    /* By mark: how many of the next records are in the files already (recovery). */
    uint64_t written[SONDE__MARKS];
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
    /* Of a ring that a dead writer left (below): */
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

/* The number of the open or next file of a kind. */
static inline uint64_t sonde__record_number(const sonde__record_writer *writer,
                                            sonde__record_file_kind kind)
{
    return kind < SONDE__FILE_STATS ? writer->segment.number
                                    : writer->streams[kind - SONDE__FILE_STATS].number;
}

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

/* --- record run -------------------------------------------------------------------- */

/* The files of a run as a whole: created or resumed, recovered and ended.
 * Internal. */

/* Creates the folders, run.json and the first state.json of a new run, and locks the
 * worker's folder. With options->resume: finds and locks them, closes the files that a
 * dead writer left open, and sets counters and numbers. writer has its backend and all
 * its memory. A failure leaves only what existed before. */
SONDE_CHECKED sonde_err sonde__record_run_begin(sonde__record_writer *writer,
                                                const sonde_recorder_options *options,
                                                sonde_diag *diag);
/* Finds where a recovered run continues, and adds the line of its generation
 * (record_resume.c). */
SONDE_CHECKED sonde_err sonde__record_run_resume(sonde__record_writer *writer,
                                                 const sonde_recorder_options *options,
                                                 sonde_diag *diag);
/* Writes what a dead writer left in its ring, without resuming the run. options: path,
 * rank, and world -1 for any. SONDE_EBUSY: a writer is alive. */
SONDE_CHECKED sonde_err sonde__record_run_salvage(sonde__record_writer *writer,
                                                  const sonde_recorder_options *options,
                                                  sonde_diag *diag);
/* Removes what sonde__record_run_begin created, if nothing was recorded. */
void sonde__record_run_undo(sonde__record_writer *writer);
/* Replaces state.json. Returns an errno. */
int sonde__record_writer_beat(sonde__record_writer *writer, bool running);
/* Writes end.json, with the reason and text of the writer. Returns an errno. */
int sonde__record_run_end(sonde__record_writer *writer);

/* Closes every .part of the worker's folder, cuts off bytes without an index line, and
 * sets the writer's numbers and the counters before it (recover.c). The catalogue is
 * restored. where names the run in diagnostics. */
SONDE_CHECKED sonde_err sonde__record_run_recover(sonde__record_writer *writer,
                                                  const char *where, sonde_diag *diag);

/* --- record batch ------------------------------------------------------------------ */

/* A batch of the writer's thread. Internal.
 *
 * fill_batch takes messages from the ring; commit_batch writes them and releases the
 * ring; rotate closes files between two batches. After a fault all three may be
 * repeated. drop_batch and drop_next lose records instead, and count them. */

/* Why no more messages were taken. */
typedef enum sonde__record_filled {
    SONDE__FILLED_ALL,    /* the ring is empty */
    SONDE__FILLED_BATCH,  /* the batch is full */
    SONDE__FILLED_ROTATE, /* the next value goes to the next segment */
    SONDE__FILLED_FAULT   /* errno in *fault */
} sonde__record_filled;

/* Takes messages; *any: true if there were any. */
sonde__record_filled sonde__record_fill_batch(sonde__record_writer *writer, bool *any,
                                              int *fault);
/* Writes the batch. Returns an errno. */
int sonde__record_commit_batch(sonde__record_writer *writer);
/* Takes and writes one batch, and closes old files. *any: true if there was work.
 * Returns an errno. */
int sonde__record_work(sonde__record_writer *writer, double now, bool *any);
/* Loses the batch, as far as it is not in the files. */
void sonde__record_drop_batch(sonde__record_writer *writer);
/* Loses the next message; false if there is none. No batch may be pending. */
bool sonde__record_drop_next(sonde__record_writer *writer);
/* Closes every file if all, else old and full ones, and lists them. Returns an errno. */
int sonde__record_rotate(sonde__record_writer *writer, bool all, double now);
/* How far the files have come, and what is lost. */
sonde__record_checkpoint
sonde__record_take_checkpoint(const sonde__record_writer *writer);
/* Notes in the ring's file how far the files have come; before each release of the ring.
 */
void sonde__record_checkpoint_batch(sonde__record_writer *writer);
/* Counts n lost records, by the cause fault. */
void sonde__record_lose(sonde__record_writer *writer, uint64_t n, int fault);
/* How many the disk has lost. */
uint64_t sonde__record_lost(const sonde__record_writer *writer);

/* --- salvage ----------------------------------------------------------------------- */

/* The records that a dead writer left in its ring's file. Internal.
 *
 *     find       opens the ring; then sonde__record_run_recover closes the files
 *     finish     writes the records of the ring that are in no file, and removes it
 *
 * A message of the ring may be in a file already, because the writer died in a batch.
 * Its kind has been written in the order of the ring, so the records beyond the last
 * checkpoint are the first ones of the ring: that many are skipped. Checkpoints are set
 * here too, so that a salvage that dies is repeated and loses and repeats nothing. */

/* Opens the ring's file of the worker in writer->ring, which is empty, and sets
 * writer->mark. Without a file: SONDE_OK, and the ring stays in memory. */
SONDE_CHECKED sonde_err sonde__record_salvage_find(sonde__record_writer *writer,
                                                   const char *where, sonde_diag *diag);
/* Leaves ring, counters and numbers as for a writer that continues; before->... count all
 * of the worker's files. *records: those that were only in the ring. */
SONDE_CHECKED sonde_err sonde__record_salvage_finish(sonde__record_writer *writer,
                                                     const char *where, uint64_t *records,
                                                     sonde_diag *diag);
/* Counts as lost what the last writer handed over (put_before) and what is neither in the
 * files nor counted; the last one may be a put that had not returned, and is no loss. */
void sonde__record_salvage_settle(sonde__record_writer *writer);

#endif
