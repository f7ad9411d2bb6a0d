/*
 * salvage.h - the records that a dead writer left in its ring's file. Internal.
 *
 *     find       opens the ring; then sonde__record_run_recover closes the files
 *     finish     writes the records of the ring that are in no file, and removes it
 *
 * A message of the ring may be in a file already, because the writer died in a batch.
 * Its kind has been written in the order of the ring, so the records beyond the last
 * checkpoint are the first ones of the ring: that many are skipped. Checkpoints are set
 * here too, so that a salvage that dies is repeated and loses and repeats nothing.
 */
#ifndef SONDE_RECORD_SALVAGE_H
#define SONDE_RECORD_SALVAGE_H

#include "record/writer.h"

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
