/*
 * salvage.c - see salvage.h.
 */
#include "record/salvage.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "record/record_batch.h"

#include <sonde/log.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- whether a message is whole ------------------------------------------------------- */

static bool is_value(sonde__record_ring *ring, sonde__record_value_message *message)
{
    sonde__record_index_line *const line = &message->line;
    size_t bytes = sonde_dtype_size(line->dtype);

    if (bytes == 0 || line->rank < 0 || line->rank > SONDE_MAX_DIMS ||
        (unsigned)line->mode >= SONDE_MODE_COUNT || line->packing != SONDE__PACKED_NOT) {
        return false;
    }
    for (int d = 0; d < line->rank; d++) {
        if (line->shape[d] < 0 || !sonde__mul(bytes, (size_t)line->shape[d], &bytes)) {
            return false;
        }
    }
    if (bytes != line->bytes) {
        return false;
    }
    if (message->far == NULL) {
        return bytes <= message->block.size - sizeof *message;
    }
    message->far = sonde__record_ring_find_large(ring, bytes);
    if (message->far == NULL && ring->fault == 0) {
        line->tensor = SONDE_NO_TENSOR; /* is counted as lost */
    }
    return ring->fault == 0;
}

static bool is_tensor(const sonde__record_tensor_message *message)
{
    uint64_t ends = 0;

    if (message->length > message->block.size - sizeof *message || message->rank < 0 ||
        message->rank > SONDE_MAX_DIMS) {
        return false;
    }
    for (uint32_t i = 0; i < message->length; i++) {
        ends += message->text[i] == '\0';
    }
    return ends == (uint64_t)message->collections + 4 &&
           message->text[message->length - 1] == '\0';
}

static bool is_whole(sonde__record_ring *ring, sonde__record_block *block)
{
    static const size_t least[SONDE__MESSAGE_KINDS] = {
        [SONDE__MESSAGE_VALUE] = sizeof(sonde__record_value_message),
        [SONDE__MESSAGE_VITALS] = sizeof(sonde__record_vitals_message),
        [SONDE__MESSAGE_SKETCH] = sizeof(sonde__record_sketch_message),
        [SONDE__MESSAGE_TENSOR] = sizeof(sonde__record_tensor_message),
        [SONDE__MESSAGE_END] = sizeof(sonde__record_end_message)};
    void *const message = block;
    const size_t before = offsetof(sonde__record_sketch_message, record);

    if (block->kind >= SONDE__MESSAGE_KINDS || block->size < least[block->kind]) {
        return false;
    }
    switch ((sonde__record_message_kind)block->kind) {
    case SONDE__MESSAGE_VALUE:
        return is_value(ring, message);
    case SONDE__MESSAGE_SKETCH:
        return sonde__record_sketch_valid(
            &((sonde__record_sketch_message *)message)->record, block->size - before);
    case SONDE__MESSAGE_TENSOR:
        return is_tensor(message);
    case SONDE__MESSAGE_VITALS:
        return ((sonde__record_vitals_message *)message)->row.mode < SONDE_MODE_COUNT;
    case SONDE__MESSAGE_END:
        return ((sonde__record_end_message *)message)->row.mode < SONDE_MODE_COUNT;
    case SONDE__MESSAGE_KINDS:
    default:
        return false;
    }
}

static bool is_never(sonde__record_ring *ring, sonde__record_block *block)
{
    (void)ring;
    (void)block;
    return false;
}

/* --- opening -------------------------------------------------------------------------- */

static sonde_err fail(sonde_diag *diag, const char *where, int failed)
{
    if (failed == ENOMEM) {
        return sonde__fail_nomem(diag, "the ring of a run");
    }
    errno = failed;
    return sonde__fail_errno(diag, where, "the records of its ring cannot be recovered");
}

/* Takes the losses that a ring has counted; what it refused follows in fold: checkpoints
 * of the recovery are read together with it. */
static void take_losses(sonde__record_writer *writer)
{
    sonde__record_ring_head *const head = writer->ring->shared;

    writer->ring_full_before = head->full_before + atomic_load(&head->full);
    writer->put_before = head->put_before + atomic_load(&head->put);
    atomic_init(&writer->before.disk_full, writer->mark.disk_full);
    atomic_init(&writer->before.io_error, writer->mark.io_error);
}

sonde_err sonde__record_salvage_find(sonde__record_writer *writer, const char *where,
                                     sonde_diag *diag)
{
    char name[SONDE__FILE_NAME * 2];
    int failed = 0, attempts = 0;

    writer->has_mark = false;
    (void)snprintf(name, sizeof name, "%s/%s", writer->folder, SONDE__RING_FILE);
    if (writer->backend->ops->place == NULL) {
        return SONDE_OK;
    }
    const char *path = writer->backend->ops->place(writer->backend, name);
    do {
        failed = sonde__record_ring_reopen(writer->ring, path, writer->id,
                                           writer->segment.rank, &writer->mark);
    } while (sonde__record_try_again(&attempts, failed));
    if (failed == ENOENT) {
        return SONDE_OK;
    }
    if (failed == EBADMSG) {
        sonde_log(SONDE_LOG_WARNING, "record",
                  "%s/%s is damaged and not used: it is named %s.damaged", where, name,
                  name);
        sonde__record_ring_put_away(writer->ring);
        return SONDE_OK;
    }
    if (failed != 0) {
        return fail(diag, where, failed);
    }
    if (writer->ring->restarted) {
        sonde_log(SONDE_LOG_WARNING, "record",
                  "%s/%s: the machine was restarted: what it held is lost", where, name);
    }
    writer->has_mark = true;
    writer->cut = sonde__record_ring_cut(writer->ring,
                                         writer->ring->restarted ? is_never : is_whole);
    if (writer->ring->fault != 0) {
        return fail(diag, where, writer->ring->fault);
    }
    take_losses(writer);
    return SONDE_OK;
}

/* --- writing -------------------------------------------------------------------------- */

static void skip_written(sonde__record_writer *writer)
{
    static const sonde__record_message_kind kinds[SONDE__MARKS] = {
        [SONDE__MARK_VALUES] = SONDE__MESSAGE_VALUE,
        [SONDE__MARK_ROWS] = SONDE__MESSAGE_VITALS,
        [SONDE__MARK_SKETCHES] = SONDE__MESSAGE_SKETCH,
        [SONDE__MARK_STEPS] = SONDE__MESSAGE_END};
    const sonde__record_checkpoint *const mark = &writer->mark;

    for (int i = 0; i < SONDE__MARKS; i++) {
        const uint64_t beyond =
            writer->beyond[i] > mark->items[i] ? writer->beyond[i] - mark->items[i] : 0;

        writer->written[kinds[i]] = mark->written[i] + beyond;
    }
}

/* The producer's ids of tensors whose lines the catalogue has. */
static int take_ids(sonde__record_writer *writer)
{
    uint32_t value = 0;

    for (uint32_t id = 0;; id++) {
        int failed = 0, attempts = 0;

        do {
            failed = sonde__record_ring_get_id(writer->ring, id, &value);
        } while (sonde__record_try_again(&attempts, failed));
        if (failed != 0) {
            return failed == ENODATA ? 0 : failed;
        }
        if (value < writer->tensors.names.count &&
            !sonde__record_tensors_map(&writer->tensors, id, value)) {
            return ENOMEM;
        }
    }
}

/* All messages of the ring into files, which are closed. */
static int replay(sonde__record_writer *writer)
{
    int failed = 0, attempts = 0;
    bool any = true;

    do {
        sonde__record_writer_note(writer);
        failed = sonde__record_work(writer, sonde__now(), &any);
        attempts = failed == 0 ? 0 : attempts;
    } while ((failed == 0 && any) || sonde__record_try_again(&attempts, failed));
    if (failed != 0) {
        return failed;
    }
    attempts = 0;
    do {
        failed = sonde__record_rotate(writer, true, sonde__now());
    } while (sonde__record_try_again(&attempts, failed));
    return failed;
}

/* The counters of this process become those of an earlier one. */
static void fold(sonde__record_writer *writer)
{
    sonde__record_counters *const now = &writer->counters, *const before =
                                                               &writer->before;
    _Atomic uint64_t *const from[] = {&now->records,  &now->bytes,     &now->rows,
                                      &now->sketches, &now->disk_full, &now->io_error};
    _Atomic uint64_t *const to[] = {&before->records,   &before->bytes,
                                    &before->rows,      &before->sketches,
                                    &before->disk_full, &before->io_error};

    for (size_t i = 0; i < SONDE_COUNT_OF(from); i++) {
        (void)atomic_fetch_add(to[i], atomic_exchange(from[i], 0));
    }
    (void)atomic_fetch_add(&before->io_error,
                           atomic_load(&writer->ring->shared->refused));
    atomic_store(&before->last_step,
                 SONDE_MAX(atomic_load(&before->last_step), writer->newest));
    atomic_store(&now->last_step, -1);
    writer->newest = -1;
}

static uint64_t found(const sonde__record_counters *counters)
{
    return atomic_load(&counters->records) + atomic_load(&counters->rows) +
           atomic_load(&counters->sketches);
}

void sonde__record_salvage_settle(sonde__record_writer *writer)
{
    const uint64_t known = found(&writer->before) + writer->ring_full_before +
                           atomic_load(&writer->before.disk_full) +
                           atomic_load(&writer->before.io_error);
    const uint64_t open = writer->cut > 0 ? 0 : 1; /* a put that had not returned */

    if (writer->put_before > known + open) {
        (void)atomic_fetch_add(&writer->before.io_error, writer->put_before - known);
    } else {
        writer->put_before = known;
    }
}

sonde_err sonde__record_salvage_finish(sonde__record_writer *writer, const char *where,
                                       uint64_t *records, sonde_diag *diag)
{
    const uint64_t before = found(&writer->before);

    *records = 0;
    if (!writer->has_mark) {
        return SONDE_OK;
    }
    skip_written(writer);
    int failed = take_ids(writer);
    if (failed != 0) {
        return fail(diag, where, failed);
    }
    sonde__record_checkpoint_batch(writer); /* the numbers of the files are new */
    failed = replay(writer);
    if (failed != 0) {
        return fail(diag, where, failed);
    }
    fold(writer);
    sonde__record_salvage_settle(writer);
    memset(writer->written, 0, sizeof writer->written);
    *records = found(&writer->before) - before;
    return SONDE_OK;
}
