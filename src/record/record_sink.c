/*
 * sink.c - a recorder as the end of taps.
 *
 * An observer shows a value once for each tap that asks for it, one after the other. What
 * was written of it is remembered by id, so that a raw value, its vital signs and its
 * sketch are each recorded once.
 */
#include "record/recorder_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <string.h>

enum { KEPT = SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH };

static sonde_recorder *recorder_of(sonde_sink *sink)
{
    return (sonde_recorder *)(void *)sink; /* its first member */
}

static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    sonde_recorder *const recorder = recorder_of(sink);

    if ((how & KEPT) == 0) {
        return sonde__fail(diag, SONDE_EINVAL, info->name,
                           "raw values, vital signs or a sketch",
                           "a tap that gives a recorder hashes alone");
    }
    if (shape->replicas > UINT16_MAX) {
        return sonde__fail(diag, SONDE_ERANGE, info->name, "at most 65535", "%d replicas",
                           shape->replicas);
    }
    if (!sonde__reserve(&recorder->shown, &recorder->shown_capacity, (size_t)id + 1,
                        sizeof *recorder->shown)) {
        return sonde__fail_nomem(diag, "what a recorder is shown");
    }
    while (recorder->shown_count <= id) {
        recorder->shown[recorder->shown_count++] = (sonde__record_shown){0};
    }
    return sonde__recorder_check_name(info->name, diag) == SONDE_OK
               ? sonde_recorder_expect(recorder, id, diag)
               : SONDE_EINVAL;
}

/* A call that is broken off and made again shows its values again: they are new. */
static void begin_call(sonde_sink *sink)
{
    recorder_of(sink)->round++;
}

/* The parts of an observation that are not written yet. */
static unsigned fresh(sonde_recorder *recorder, const sonde_observation *seen)
{
    const sonde__record_shown now = {.round = recorder->round,
                                     .step = seen->at.global_step,
                                     .micro_batch = seen->at.micro_batch,
                                     .replica = seen->at.replica};
    sonde__record_shown *shown = NULL;
    unsigned how = seen->how & KEPT;

    if (seen->id >= recorder->shown_count) { /* never prepared */
        return how;
    }
    shown = &recorder->shown[seen->id];
    if (shown->round != now.round || shown->step != now.step ||
        shown->micro_batch != now.micro_batch || shown->replica != now.replica) {
        *shown = now;
    }
    how &= ~shown->how;
    shown->how |= how;
    return how;
}

static void put(sonde_sink *sink, const sonde_observation *seen)
{
    sonde_recorder *const recorder = recorder_of(sink);
    const unsigned how = fresh(recorder, seen);

    if (how & SONDE_HOW_RAW) {
        sonde_recorder_put(recorder, seen->id, &seen->at, seen->view);
    }
    if ((how & SONDE_HOW_VITALS) && seen->vitals != NULL) {
        sonde_recorder_put_vitals(recorder, seen->id, &seen->at, seen->vitals);
    }
    if ((how & SONDE_HOW_SKETCH) && seen->sketch != NULL) {
        sonde_recorder_put_sketch(recorder, seen->id, &seen->at, seen->sketch);
    }
}

static void end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    sonde_recorder *const recorder = recorder_of(sink);

    recorder->round++;
    sonde_recorder_end_step(recorder, at);
}

void sonde__record_sink_init(sonde_recorder *recorder)
{
    recorder->round = 1;
    recorder->sink = (sonde_sink){
        .prepare = prepare, .begin_call = begin_call, .put = put, .end_step = end_step};
}

sonde_sink *sonde_recorder_sink(sonde_recorder *recorder)
{
    return &recorder->sink;
}
