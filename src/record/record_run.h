/*
 * run.h - the files of a run as a whole: made at the start, or found by who goes on with
 * it, and ended. Internal.
 */
#ifndef SONDE_RECORD_RECORD_RUN_H
#define SONDE_RECORD_RECORD_RUN_H

#include "record/writer.h"

#include <sonde/recorder.h>

/* Makes the folders, run.json and the first state.json of a new run, and locks the
 * worker's folder; or, with options->resume, finds them, locks, closes what a dead writer
 * left open, and sets counters and numbers. writer->backend and everything that allocates
 * is there. What a failure leaves behind was there before. */
SONDE_API SONDE_CHECKED sonde_err
sonde__record_run_begin(sonde__record_writer *writer,
                        const sonde_recorder_options *options, sonde_diag *diag);
/* Takes away what sonde__record_run_begin has made, if it made it and nothing was recorded. */
SONDE_API void sonde__record_run_undo(sonde__record_writer *writer);
/* Writes end.json. Returns an errno. */
SONDE_API int sonde__record_run_end(sonde__record_writer *writer, sonde_run_end reason,
                                    const char *text);

/* --- what a dead writer left (recover.c) ------------------------------------------ */

/* Closes every .part of the worker's folder, takes out what nothing points to, and sets
 * the writer's numbers and the counters before it. The catalogue is restored already. where
 * names the run in diagnostics. */
SONDE_API SONDE_CHECKED sonde_err sonde__record_run_recover(sonde__record_writer *writer,
                                                            const char *where,
                                                            sonde_diag *diag);

/* --- where it goes on (resume.c) --------------------------------------------------- */

/* Finds the global step at which the options say that a recovered run goes on and the step
 * that comes next in each mode, and adds a line to generations.jsonl that says so. */
SONDE_API SONDE_CHECKED sonde_err
sonde__record_run_go_on(sonde__record_writer *writer,
                        const sonde_recorder_options *options, sonde_diag *diag);

#endif
