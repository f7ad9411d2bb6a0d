/*
 * stats_file.c - rows of vital signs to items.
 *
 * Every row is read once here and its check looked at; later a row is one address in the
 * mapped file.
 */
#include "trial/stream_file.h"
#include "base/fail.h"

static void bad_row(const sonde__trial_stream_reading *of, const char *found)
{
    sonde__trial_stream_bad(
        of, "row", (of->progress->offset - SONDE__STATS_HEAD) / SONDE__STATS_ROW, found);
}

static sonde_err take_row(const sonde__trial_stream_reading *of,
                          const sonde__record_stats_row *row)
{
    sonde__trial_row_item item = {
        .item = {.micro_batch = row->micro_batch, .replica = row->replica},
        .row = of->worker->stats_rows,
    };
    sonde_err err = SONDE_OK;

    if (sonde__record_stats_check(row) != row->check || row->mode >= SONDE_MODE_COUNT ||
        row->step < 0 || row->mode_step < 0 || row->micro_batch > INT32_MAX) {
        bad_row(of, "its check is wrong");
        return SONDE_OK;
    }
    if (!sonde__trial_counts(of->trial, of->worker, row->step)) {
        return SONDE_OK;
    }
    err = sonde__trial_worker_tensor(of->trial, of->worker, row->tensor, NULL, NULL,
                                     &item.item.tensor, of->diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (item.item.tensor == SONDE__NONE) {
        bad_row(of, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    item.item.step = sonde__trial_steps_intern(&of->trial->steps, row->step,
                                               (sonde_mode)row->mode, row->mode_step);
    if (item.item.step == SONDE__NONE) {
        return sonde__fail_nomem(of->diag, "the steps of a run");
    }
    return sonde__trial_worker_add(of->trial, of->worker, SONDE__VITALS, &item.item,
                                   of->diag);
}

static sonde_err take_rows(sonde__trial_stream_reading *of, const unsigned char *bytes,
                           size_t count, bool at_end)
{
    (void)at_end;
    for (size_t at = 0; at + SONDE__STATS_ROW <= count; at += SONDE__STATS_ROW) {
        sonde_err err = SONDE_OK;

        if (of->worker->stats_rows >= SONDE__NONE - 1) {
            return sonde__fail_nomem(of->diag, "more rows than can be counted");
        }
        err = take_row(of, (const void *)(bytes + at));
        if (err != SONDE_OK) {
            return err;
        }
        of->progress->offset += SONDE__STATS_ROW;
        of->worker->stats_rows++;
    }
    return SONDE_OK;
}

sonde_err sonde__trial_stats_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag)
{
    return sonde__trial_stream_read(trial, worker, SONDE__FILE_STATS, &worker->stats,
                                    take_rows, diag);
}
