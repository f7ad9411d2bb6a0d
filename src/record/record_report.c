/*
 * tell.c - how the writer learns of tensors: once, before the first value of each.
 *
 * Those that are expected are told of together, in the order of their ids: so readers, who know
 * nothing but the order of the catalogue's file, have that of the program.
 */
#include "record/recorder_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <string.h>

sonde_err sonde__recorder_check_name(const char *name, sonde_diag *diag)
{
    const size_t n = strlen(name);

    if (n > SONDE__MOST_NAME) {
        return sonde__fail(diag, SONDE_EINVAL, "a tensor's name", "at most 4096 bytes",
                           "'%.40s...' has %zu", name, n);
    }
    return SONDE_OK;
}

sonde_err sonde_recorder_collections(sonde_recorder *recorder, uint32_t id,
                                     const char *const *names, size_t count,
                                     sonde_diag *diag)
{
    sonde_text text = {0};

    if (id >= sonde_catalogue_count(recorder->catalogue)) {
        return sonde__fail(diag, SONDE_ERANGE, "collections of a tensor",
                           "an id of the catalogue", "tensor %lu", (unsigned long)id);
    }
    if (id < recorder->told_count && recorder->told[id] == SONDE__TOLD) {
        return sonde__fail(diag, SONDE_ESTATE,
                           sonde_catalogue_info(recorder->catalogue, id)->name,
                           "before the first value", "its collections are recorded");
    }
    for (size_t i = 0; i < count; i++) {
        sonde_text_put(&text, names[i], strlen(names[i]) + 1);
    }
    if (text.failed || text.length > SONDE__MOST_LINE ||
        !sonde__reserve(&recorder->collected, &recorder->collected_capacity,
                        (size_t)id + 1, sizeof *recorder->collected)) {
        const bool large = !text.failed && text.length > SONDE__MOST_LINE;

        sonde_text_fini(&text);
        return large ? sonde__fail(diag, SONDE_EINVAL, "collections of a tensor",
                                   "at most 64 KiB", "%zu names", count)
                     : sonde__fail_nomem(diag, "collections of a tensor");
    }
    while (recorder->collected_count <= id) {
        recorder->collected[recorder->collected_count++] = (sonde__record_collected){0};
    }
    sonde__free(recorder->collected[id].text);
    recorder->collected[id] =
        (sonde__record_collected){text.data, (uint32_t)count, (uint32_t)text.length};
    return SONDE_OK;
}

/* Room to remember that the tensor is told. */
static bool remember(sonde_recorder *recorder, uint32_t id)
{
    uint8_t *grown = NULL;
    size_t count = recorder->told_count;

    if (id < count) {
        return true;
    }
    while (count <= id) {
        count *= 2;
    }
    grown = sonde__grow(recorder->told, recorder->told_count, count);
    if (grown == NULL) {
        return false;
    }
    memset(grown + recorder->told_count, 0, count - recorder->told_count);
    recorder->told = grown;
    recorder->told_count = count;
    return true;
}

static char *put_string(char *to, const char *text)
{
    const size_t n = strlen(text) + 1;

    memcpy(to, text, n);
    return to + n;
}

static void fill(sonde__record_tensor_message *message, uint32_t id,
                 const sonde_tensor_info *info, const sonde__record_collected *collected)
{
    char *to = message->text;

    message->id = id;
    message->same_as = info->same_as;
    message->role = info->role;
    message->pass = info->pass;
    message->dtype = info->dtype;
    message->rank = info->rank;
    memcpy(message->shape, info->shape, sizeof message->shape);
    to = put_string(put_string(to, info->name), info->module);
    to = put_string(put_string(to, info->op), info->note);
    message->collections = collected->count;
    if (collected->length > 0) {
        memcpy(to, collected->text, collected->length);
        to += collected->length;
    }
    message->length = (uint32_t)(to - message->text);
}

typedef enum telling { TOLD, TOLD_LATER, TOLD_NEVER } telling;

/* An alias behind its tensor. */
static telling tell(sonde_recorder *recorder, uint32_t id, bool waits)
{
    const sonde_tensor_info *info = sonde_catalogue_info(recorder->catalogue, id);
    const sonde__record_collected none = {0};
    const sonde__record_collected *collected =
        id < recorder->collected_count ? &recorder->collected[id] : &none;
    const size_t size = sizeof(sonde__record_tensor_message) + strlen(info->name) +
                        strlen(info->module) + strlen(info->op) + strlen(info->note) + 4 +
                        collected->length;
    sonde__record_tensor_message *message = NULL;

    if (id < recorder->told_count && recorder->told[id] == SONDE__TOLD) {
        return TOLD;
    }
    if (size > sonde__record_ring_most(&recorder->ring) || !remember(recorder, id)) {
        return TOLD_NEVER;
    }
    if (info->same_as != id && tell(recorder, info->same_as, waits) == TOLD_LATER) {
        return TOLD_LATER;
    }
    message = sonde__recorder_reserve(recorder, SONDE__MESSAGE_TENSOR, size, waits);
    if (message == NULL) {
        return TOLD_LATER;
    }
    fill(message, id, info, collected);
    sonde__record_ring_commit(&recorder->ring);
    recorder->told[id] = SONDE__TOLD;
    return TOLD;
}

/* Of all that are expected; what finds no room is told of when its first value comes. */
static void tell_expected(sonde_recorder *recorder)
{
    const bool waits = sonde__recorder_waits(recorder, true);

    for (uint32_t id = 0; recorder->expected > 0 && id < recorder->told_count; id++) {
        if (recorder->told[id] == SONDE__EXPECTED) {
            recorder->told[id] = SONDE__UNKNOWN;
            recorder->expected--;
            (void)tell(recorder, id, waits);
        }
    }
}

bool sonde__recorder_tell(sonde_recorder *recorder, uint32_t id, bool waits)
{
    telling told = TOLD;

    tell_expected(recorder);
    told = tell(recorder, id, waits);
    if (told == TOLD_NEVER) {
        sonde__recorder_refuse(recorder, "no room for its catalogue line", id);
    } else if (told == TOLD_LATER) {
        sonde__recorder_lose_full(recorder);
    }
    return told == TOLD;
}

sonde_err sonde_recorder_expect(sonde_recorder *recorder, uint32_t id, sonde_diag *diag)
{
    uint32_t also = SONDE_NO_TENSOR; /* the tensor that an alias is one of */

    if (id >= sonde_catalogue_count(recorder->catalogue)) {
        return sonde__fail(diag, SONDE_ERANGE, "a tensor that is expected",
                           "an id of the catalogue", "tensor %lu", (unsigned long)id);
    }
    if (!remember(recorder, id)) {
        return sonde__fail_nomem(diag, "the tensors of a recorder");
    }
    if (recorder->told[id] == SONDE__UNKNOWN) {
        recorder->told[id] = SONDE__EXPECTED;
        recorder->expected++;
    }
    also = sonde_catalogue_info(recorder->catalogue, id)->same_as;
    return also != id ? sonde_recorder_expect(recorder, also, diag) : SONDE_OK;
}
