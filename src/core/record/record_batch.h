/*
 * record_batch.h - a batch of the writer's thread. Internal.
 *
 * fill_batch takes messages from the ring; commit_batch writes them and releases the
 * ring; rotate closes files between two batches. After a fault all three may be
 * repeated. drop_batch and drop_next lose records instead, and count them.
 */
#ifndef SONDE_RECORD_RECORD_BATCH_H
#define SONDE_RECORD_RECORD_BATCH_H

#include "record/writer.h"

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

#endif
