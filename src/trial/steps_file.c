/*
 * steps_file.c - the steps that are complete, and when they were.
 */
#include "trial/stream_file.h"
#include "base/fail.h"
#include "base/macros.h"

static sonde_err take_row(const sonde__trial_stream_reading *of,
                          const sonde__record_step_row *row)
{
    sonde__trial_worker *worker = of->worker;
    uint32_t step = 0;

    if (!sonde__record_step_valid(row)) {
        sonde__trial_stream_bad(
            of, "row", (of->progress->offset - SONDE__STEPS_HEAD) / SONDE__STEPS_ROW,
            "its check is wrong");
        return SONDE_OK;
    }
    if (row->step >= worker->limit) {
        worker->superseded_steps++;
        return SONDE_OK;
    }
    worker->last_ended = SONDE_MAX(worker->last_ended, row->step);
    of->trial->changed = true;
    if (!sonde__trial_in_range(of->trial, row->step)) {
        return SONDE_OK;
    }
    step = sonde__trial_steps_intern(&of->trial->steps, row->step, (sonde_mode)row->mode,
                                     row->mode_step);
    return step != SONDE__NONE &&
                   sonde__trial_worker_ended(of->trial, worker, step, row->time)
               ? SONDE_OK
               : sonde__fail_nomem(of->diag, "the steps of a run");
}

static sonde_err take_rows(sonde__trial_stream_reading *of, const unsigned char *bytes,
                           size_t count, bool at_end)
{
    (void)at_end;
    for (size_t at = 0; at + SONDE__STEPS_ROW <= count; at += SONDE__STEPS_ROW) {
        const sonde_err err = take_row(of, (const void *)(bytes + at));

        if (err != SONDE_OK) {
            return err;
        }
        of->progress->offset += SONDE__STEPS_ROW;
    }
    return SONDE_OK;
}

sonde_err sonde__trial_step_rows_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag)
{
    return sonde__trial_stream_read(trial, worker, SONDE__FILE_STEPS, &worker->steps,
                                    take_rows, diag);
}
