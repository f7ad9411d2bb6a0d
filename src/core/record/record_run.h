/*
 * record_run.h - the files of a run as a whole: created or resumed, recovered and ended.
 * Internal.
 */
#ifndef SONDE_RECORD_RECORD_RUN_H
#define SONDE_RECORD_RECORD_RUN_H

#include "record/writer.h"

#include <sonde/recorder.h>

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

#endif
