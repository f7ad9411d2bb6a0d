/*
 * sketch_file.c - sketch records to items.
 *
 * Records have lengths of their own. If one is damaged so that the next cannot be found, the
 * next that has a right check is looked for, eight bytes by eight.
 */
#include "trial/stream_file.h"
#include "base/fail.h"

#include <string.h>

enum { MOST_RECORD = 1 << 22 };

static void bad_record(const sonde__trial_stream_reading *of, const char *found)
{
    sonde__trial_stream_bad(of, "record at", of->progress->offset, found);
}

static sonde_err take_record(const sonde__trial_stream_reading *of,
                             const sonde__record_sketch_record *record)
{
    sonde__trial_sketch_item item = {
        .item = {.micro_batch = record->micro_batch, .replica = record->replica},
        .offset = of->progress->offset,
        .file = (uint32_t)(of->file - of->worker->files[SONDE__SKETCH].items),
        .length = record->length,
    };
    sonde_err err = SONDE_OK;

    if (!sonde__trial_counts(of->trial, of->worker, record->step)) {
        return SONDE_OK;
    }
    err = sonde__trial_worker_tensor(of->trial, of->worker, record->tensor, NULL, NULL,
                                     &item.item.tensor, of->diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (item.item.tensor == SONDE__NONE) {
        bad_record(of, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    item.item.step = sonde__trial_steps_intern(
        &of->trial->steps, record->step, (sonde_mode)record->mode, record->mode_step);
    if (item.item.step == SONDE__NONE) {
        return sonde__fail_nomem(of->diag, "the steps of a run");
    }
    return sonde__trial_worker_add(of->trial, of->worker, SONDE__SKETCH, &item.item,
                                   of->diag);
}

/* Whether these bytes are a whole and right record. Their place is aligned to 8. */
static bool is_record(const unsigned char *bytes, size_t available)
{
    const sonde__record_sketch_record *record = (const void *)bytes;

    return sonde__record_sketch_valid(record, available) &&
           record->length <= MOST_RECORD && record->step >= 0 && record->mode_step >= 0 &&
           record->micro_batch <= INT32_MAX &&
           sonde__record_sketch_check(record) == record->check;
}

/* Whether a record may have begun here whose end has not come yet. */
static bool is_begun(const unsigned char *bytes, size_t available)
{
    uint32_t length = 0;

    if (available < SONDE__SKETCH_FIXED) {
        return true;
    }
    memcpy(&length, bytes, sizeof length);
    return length >= SONDE__SKETCH_FIXED && length % 8 == 0 && length <= MOST_RECORD &&
           length > available;
}

/* Whether there is a whole record behind the beginning of these bytes. */
static bool has_record(const unsigned char *bytes, size_t count)
{
    for (size_t at = 8; at + SONDE__SKETCH_FIXED <= count; at += 8) {
        if (is_record(bytes + at, count - at)) {
            return true;
        }
    }
    return false;
}

/* Whether to stop before these bytes: more of them will come, or would have. at_end: these
 * are the last of a file that nobody writes any more. */
static bool is_incomplete(const sonde__trial_stream_reading *of,
                          const unsigned char *bytes, size_t count, bool at_end)
{
    return is_begun(bytes, count) && !(at_end && (of->lost || has_record(bytes, count)));
}

static sonde_err take_records(sonde__trial_stream_reading *of, const unsigned char *bytes,
                              size_t count, bool at_end)
{
    size_t at = 0;

    while (at + 8 <= count) {
        size_t step = 8;

        if (is_record(bytes + at, count - at)) {
            const sonde__record_sketch_record *record = (const void *)(bytes + at);
            const sonde_err err = take_record(of, record);

            if (err != SONDE_OK) {
                return err;
            }
            step = record->length;
            of->lost = false;
        } else if (is_incomplete(of, bytes + at, count - at, at_end)) {
            break;
        } else if (!of->lost) {
            bad_record(of, "its check is wrong");
            of->lost = true;
        }
        at += step;
        of->progress->offset += step;
    }
    return SONDE_OK;
}

sonde_err sonde__trial_sketches_read(sonde_trial *trial, sonde__trial_worker *worker,
                                     sonde_diag *diag)
{
    return sonde__trial_stream_read(trial, worker, SONDE__FILE_SKETCH, &worker->sketch,
                                    take_records, diag);
}
