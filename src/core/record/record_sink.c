/*
 * record_sink.c - a recorder as the end of taps (record_sink.h).
 */
#include "record/record_sink.h"
#include "base/fail.h"
#include "base/memory.h"
#include "record/recorder_state.h"

enum { KEPT = SONDE_HOW_ALL & ~SONDE_HOW_HASH };

static sonde__record_sink *self(sonde_sink *sink)
{
    return (sonde__record_sink *)(void *)sink; /* its first member */
}

static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    sonde__record_sink *own = self(sink);

    if ((how & KEPT) == 0) {
        return sonde__fail(diag, SONDE_EINVAL, info->name,
                           "raw values, vital signs or a sketch",
                           "a tap that gives a recorder hashes alone");
    }
    if (shape->replicas > UINT16_MAX) {
        return sonde__fail(diag, SONDE_ERANGE, info->name, "at most 65535", "%d replicas",
                           shape->replicas);
    }
    if (!sonde__reserve(&own->shown, &own->shown_capacity, (size_t)id + 1,
                        sizeof *own->shown)) {
        return sonde__fail_nomem(diag, "what a recorder is shown");
    }
    while (own->shown_count <= id) {
        own->shown[own->shown_count++] = (sonde__record_shown){0};
    }
    SONDE__TRY(sonde__recorder_check_name(info->name, diag));
    if (own->recorder != NULL) {
        SONDE__TRY(sonde__recorder_expect(own->recorder, id, diag));
    }
    return own->witness != NULL && own->witness->prepare != NULL
               ? own->witness->prepare(own->witness, id, info, how, shape, diag)
               : SONDE_OK;
}

/* A call that is broken off and made again shows its values again: they are new. */
static void begin_call(sonde_sink *sink)
{
    self(sink)->round++;
}

static bool is_shown(const sonde__record_sink *sink, uint32_t id,
                     const sonde_coordinate *where)
{
    const sonde__record_shown *shown = &sink->shown[id];

    return shown->round == sink->round && shown->step == where->global_step &&
           shown->micro_batch == where->micro_batch && shown->replica == where->replica;
}

unsigned sonde__record_sink_done(const sonde__record_sink *sink, uint32_t id,
                                 const sonde_coordinate *where)
{
    return id < sink->shown_count && is_shown(sink, id, where) ? sink->shown[id].how : 0;
}

/* The observation is not copied: its fields were stored a moment ago, one by one, and
 * wide loads of them would wait until all stores before are in the cache, those of the
 * value recorded last included. */
static void give(sonde__record_sink *sink, uint32_t id, const sonde_observation *seen,
                 unsigned how)
{
    sonde_recorder *const recorder = sink->recorder;

    if (how & SONDE_HOW_RAW) {
        sink->values++;
        sink->bytes +=
            (uint64_t)sonde_view_count(seen->view) * sonde_dtype_size(seen->view->dtype);
        if (recorder != NULL) {
            sonde_recorder_put(recorder, id, &seen->at, seen->view);
        }
    }
    if ((how & SONDE_HOW_SIGNS) && seen->vitals != NULL) {
        sink->rows++;
        if (recorder != NULL) {
            sonde_recorder_put_vitals(recorder, id, &seen->at, seen->vitals);
        }
    }
    if ((how & SONDE_HOW_SKETCH) && seen->sketch != NULL) {
        sink->sketches++;
        if (recorder != NULL) {
            sonde_recorder_put_sketch(recorder, id, &seen->at, seen->sketch);
        }
    }
    if (how != 0 && sink->witness != NULL) {
        sonde_observation part = *seen;

        part.id = id;
        part.how = how;
        sink->witness->put(sink->witness, &part);
    }
}

void sonde__record_sink_put(sonde__record_sink *sink, const sonde_observation *seen,
                            unsigned how)
{
    give(sink, seen->id, seen, how);
}

void sonde__record_sink_take(sonde__record_sink *sink, uint32_t id,
                             const sonde_observation *seen)
{
    unsigned how = seen->how & KEPT;

    if (id < sink->shown_count) { /* else it was never prepared */
        sonde__record_shown *shown = &sink->shown[id];

        if (!is_shown(sink, id, &seen->at)) {
            shown->round = sink->round;
            shown->step = seen->at.global_step;
            shown->micro_batch = seen->at.micro_batch;
            shown->replica = seen->at.replica;
            shown->how = 0;
        }
        how &= ~shown->how;
        if ((shown->how & SONDE_HOW_VITALS) != 0) {
            how &= ~(unsigned)SONDE_HOW_NORMS;
        }
        shown->how |= how;
    }
    give(sink, id, seen, how);
}

static void put(sonde_sink *sink, const sonde_observation *seen)
{
    sonde__record_sink_take(self(sink), seen->id, seen);
}

static void end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    sonde__record_sink *own = self(sink);

    own->round++;
    if (own->recorder != NULL) {
        sonde_recorder_end_step(own->recorder, at);
    }
    if (own->witness != NULL && own->witness->end_step != NULL) {
        own->witness->end_step(own->witness, at);
    }
}

void sonde__record_sink_init(sonde__record_sink *sink, sonde_recorder *recorder)
{
    *sink = (sonde__record_sink){.sink = {.prepare = prepare,
                                          .begin_call = begin_call,
                                          .put = put,
                                          .end_step = end_step},
                                 .recorder = recorder,
                                 .round = 1};
}

void sonde__record_sink_fini(sonde__record_sink *sink)
{
    sonde__free(sink->shown);
}

sonde_sink *sonde_recorder_sink(sonde_recorder *recorder)
{
    return &recorder->sink.sink;
}
