/*
 * observer.c - the half of an observer that works within steps.
 *
 * A due step sets wants for the taps that are due and clears it at its end, so its cost
 * is proportional to what is observed. next_due is recomputed there, from all taps.
 *
 * Global schedules count the steps of all modes, of which a mode's gate sees only its
 * own. While steps of one mode follow each other, both counts rise together, so the gate
 * of that mode is exact; the gates of the other modes then stand at LOOK, which makes the
 * first step after a change of mode (or the first of a call) take the slow half.
 */
#include "observe/observer_state.h"

#include "base/macros.h"
#include "tensor/convert.h"

#include <sonde/log.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <assert.h>
#include <string.h>

#define LOOK INT64_MIN

const char *sonde_mode_name(sonde_mode mode)
{
    static const char *const names[SONDE_MODE_COUNT] = {"train", "eval", "predict",
                                                        "global"};
    const size_t i = (size_t)mode;

    return i < SONDE_COUNT_OF(names) ? names[i] : "?";
}

unsigned sonde_observer_ever_wants(const sonde_observer *observer, uint32_t id)
{
    if (observer == NULL) {
        return 0;
    }
    return id < observer->declared && observer->ever != NULL ? observer->ever[id] : 0;
}

const sonde_observer_gate *sonde_observer_get_gate(const sonde_observer *observer)
{
    return &observer->gate;
}

/* The first step >= step of a mode at which the tap is due. */
static int64_t next_of(sonde__observe_tap *tap, int mode, int64_t step)
{
    if (step < tap->from[mode] || step > tap->next[mode]) {
        tap->next[mode] = sonde_schedule_next(&tap->when[mode], step);
        tap->from[mode] = step;
    }
    return tap->next[mode];
}

/* As sonde_schedule_due. */
static bool is_due(sonde__observe_tap *tap, int mode, int64_t step)
{
    return step != SONDE_SCHEDULE_NEVER && next_of(tap, mode, step) == step;
}

/* The first step >= step of a mode at which a tap is due; shared: only of the taps whose
 * global schedules hold at the steps of all modes. */
static int64_t first_due(const sonde_observer *observer, int mode, int64_t step,
                         bool shared)
{
    int64_t next = SONDE_SCHEDULE_NEVER;

    for (size_t i = 0; i < observer->tap_count && next > step; i++) {
        sonde__observe_tap *tap = &observer->taps[i];

        if (tap->count > 0 && !(shared && tap->apart)) {
            const int64_t due = next_of(tap, mode, step);

            next = SONDE_MIN(next, due);
        }
    }
    return next;
}

/* All gates at LOOK, if there are global schedules, else nothing. */
static void look_again(sonde_observer *observer)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT && observer->global; mode++) {
        observer->gate.next_due[mode] = LOOK;
    }
}

void sonde__observer_open(sonde_observer *observer)
{
    observer->gate.wants = observer->wants;
    observer->global =
        first_due(observer, SONDE_MODE_GLOBAL, 0, true) != SONDE_SCHEDULE_NEVER;
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        observer->gate.next_due[mode] = first_due(observer, mode, 0, false);
    }
    look_again(observer);
}

/* --- stepping --------------------------------------------------------------------- */

/* Nothing is wanted any more. */
static void close_step(sonde_observer *observer)
{
    for (size_t i = 0; i < observer->tap_count && observer->stepping; i++) {
        sonde__observe_tap *tap = &observer->taps[i];

        for (size_t j = 0; j < tap->count && tap->due; j++) {
            observer->wants[tap->tensors[j]] = 0;
        }
        tap->due = false;
    }
    memset(observer->role_wants, 0, sizeof observer->role_wants);
    for (size_t i = 0; i < observer->sink_count && observer->stepping; i++) {
        observer->sink_due[i] = 0;
    }
    observer->stepping = false;
}

void sonde__observer_drop_step(sonde_observer *observer)
{
    close_step(observer);
}

void sonde_observer_program(sonde_observer *observer, const sonde_coordinate *at,
                            const struct sonde_program *program)
{
    if (observer == NULL || at == NULL || program == NULL) {
        return;
    }
    for (size_t i = 0; i < observer->sink_count; i++) {
        sonde_sink *sink = observer->sinks[i];

        if (sink->program != NULL) {
            sink->program(sink, at, program);
        }
    }
}

bool sonde_observer_reads_programs(const sonde_observer *observer)
{
    for (size_t i = 0; observer != NULL && i < observer->sink_count; i++) {
        if (observer->sinks[i]->program != NULL) {
            return true;
        }
    }
    return false;
}

void sonde_observer_begin_call(sonde_observer *observer)
{
    if (observer == NULL) {
        return;
    }
    close_step(observer); /* of a call that was broken off */
    look_again(observer);
    for (size_t i = 0; i < observer->sink_count; i++) {
        if (observer->sinks[i]->begin_call != NULL) {
            observer->sinks[i]->begin_call(observer->sinks[i]);
        }
    }
}

/* The next step of this mode at which anything is due, as far as it can be known now. */
static void set_next(sonde_observer *observer, const sonde_coordinate *place)
{
    int64_t next = first_due(observer, (int)place->mode, place->mode_step + 1, false);

    if (observer->global) {
        const int64_t global =
            first_due(observer, SONDE_MODE_GLOBAL, place->global_step + 1, true);
        int64_t same = 0; /* the step of this mode that this is, if no other runs */

        if (global != SONDE_SCHEDULE_NEVER &&
            !__builtin_add_overflow(place->mode_step, global - place->global_step,
                                    &same)) {
            next = SONDE_MIN(next, same);
        }
    }
    look_again(observer);
    observer->gate.next_due[place->mode] = next;
}

/* Wants what a tap has from an index on, if the tap is due at the step that is on. */
static void want(sonde_observer *observer, sonde__observe_tap *tap, size_t from)
{
    const sonde_coordinate *place = &observer->at;

    tap->due = tap->count > 0 &&
               (is_due(tap, (int)place->mode, place->mode_step) ||
                (!tap->apart && is_due(tap, SONDE_MODE_GLOBAL, place->global_step)));
    tap->wanted = tap->count;
    if (!tap->due) {
        return;
    }
    observer->stepping = true;
    observer->sink_due[tap->sink] = 1;
    for (size_t j = from; j < tap->count; j++) {
        observer->wants[tap->tensors[j]] |= (uint8_t)tap->how;
    }
    for (unsigned roles = tap->roles; roles != 0; roles &= roles - 1) {
        observer->role_wants[__builtin_ctz(roles)] |= (uint8_t)tap->how;
    }
}

bool sonde_observer_begin_due(sonde_observer *observer, const sonde_coordinate *place)
{
    if (observer == NULL || place == NULL || (unsigned)place->mode >= SONDE_MODE_COUNT) {
        return false;
    }
    close_step(observer);
    observer->at = *place;
    for (size_t i = 0; i < observer->tap_count; i++) {
        want(observer, &observer->taps[i], 0);
    }
    if (!observer->stepping) {
        set_next(observer, place);
    }
    return observer->stepping;
}

bool sonde__observer_due_too(sonde_observer *observer, const sonde_coordinate *place)
{
    if (!observer->stepping) {
        return sonde_observer_begin_due(observer, place);
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        sonde__observe_tap *tap = &observer->taps[i];

        if (tap->wanted < tap->count && !tap->waits) {
            want(observer, tap, tap->wanted);
        }
    }
    return true;
}

unsigned sonde__observer_role_wants(const sonde_observer *observer, sonde_role role)
{
    return observer->role_wants[role];
}

/* Due from now on, or no longer. */
static void set_due(sonde_observer *observer, sonde__observe_tap *tap, bool due)
{
    tap->due = due;
    for (size_t j = 0; j < tap->count; j++) {
        uint8_t *wants = &observer->wants[tap->tensors[j]];

        *wants = due ? (uint8_t)(*wants | tap->how) : 0;
    }
}

/* A tap that looks at bad steps of this mode. */
static bool looks_in(const sonde__observe_tap *tap, sonde_mode mode)
{
    return tap->when_bad && tap->count > 0 &&
           (sonde_schedule_next(&tap->when[mode], 0) != SONDE_SCHEDULE_NEVER ||
            (!tap->apart && sonde_schedule_next(&tap->when[SONDE_MODE_GLOBAL], 0) !=
                                SONDE_SCHEDULE_NEVER));
}

/* The same, if it would not have seen this one. */
static bool looks_again(const sonde__observe_tap *tap, const sonde_coordinate *place)
{
    return !tap->due && !tap->waits && looks_in(tap, place->mode);
}

bool sonde__observer_when_bad_in(const sonde_observer *observer, sonde_mode mode)
{
    for (size_t i = 0; i < observer->tap_count; i++) {
        if ((observer->taps[i].how & SONDE_HOW_SIGNS) != 0 &&
            looks_in(&observer->taps[i], mode)) {
            return true;
        }
    }
    return false;
}

bool sonde_observer_look_again(sonde_observer *observer, const sonde_coordinate *place)
{
    if (observer == NULL) {
        return false;
    }
    bool any = false;

    for (size_t i = 0; i < observer->tap_count; i++) {
        any = any || looks_again(&observer->taps[i], place);
    }
    if (!any) {
        return false;
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        sonde__observe_tap *tap = &observer->taps[i];

        tap->waits = tap->due;
        if (tap->due) {
            set_due(observer, tap, false);
        }
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        sonde__observe_tap *tap = &observer->taps[i];

        if (looks_again(tap, place)) {
            set_due(observer, tap, true);
            observer->sink_due[tap->sink] = 1;
        }
    }
    observer->at = *place;
    observer->stepping = true;
    return true;
}

void sonde_observer_look_on(sonde_observer *observer)
{
    if (observer == NULL) {
        return;
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        if (observer->taps[i].waits) {
            observer->taps[i].waits = false;
            set_due(observer, &observer->taps[i], true);
        }
    }
}

/* Logs, once for an observer, that a value is ignored. */
static void refuse(sonde_observer *observer, uint32_t id, const char *fault)
{
    if (!observer->complained) {
        observer->complained = true;
        sonde_log(SONDE_LOG_ERROR, "observe", "a value of '%s' is ignored: %s",
                  sonde_catalogue_info(observer->catalogue, id)->name, fault);
    }
}

void sonde_observer_observe(sonde_observer *observer, uint32_t id, const sonde_view *view,
                            const sonde_vitals *vitals, int micro_batch, int replica)
{
    if (observer == NULL) {
        return;
    }
    const uint8_t *wants = observer->gate.wants; /* NULL if never bound */
    const unsigned wanted = wants != NULL && id < observer->declared ? wants[id] : 0;
    sonde_observation observation; /* set field by field: clearing it first costs more */
    sonde__evidence evidence;
    sonde_vitals norms;

    if (wanted == 0) {
        return;
    }
    if (vitals != NULL && (wanted & SONDE_HOW_VITALS) && sonde_vitals_are_norms(vitals)) {
        vitals = NULL;
    }
    const char *fault = sonde__tensor_view_fault(
        view, vitals == NULL || (wanted & ~(unsigned)SONDE_HOW_SIGNS) != 0);
    if (fault != NULL) {
        refuse(observer, id, fault);
        return;
    }
    observation.at = observer->at;
    observation.view = view;
    observation.at.micro_batch = micro_batch;
    observation.at.replica = replica;
    evidence.vitals = vitals;
    evidence.sketch = NULL;
    evidence.hash = 0;
    evidence.own_sketch = observer->sketch;
    sonde__evidence_compute(wanted, view, &evidence);
    vitals = evidence.vitals;
    if (wanted & SONDE_HOW_NORMS) {
        assert(vitals != NULL); /* norms need vital signs, or are kept instead of them */
        norms = *vitals;
        sonde_norms_keep(&norms);
    }
    for (size_t i = observer->first[id]; i < observer->first[id + 1] && wanted != 0;
         i++) {
        const sonde__observe_entry *entry = &observer->entries[i];
        const sonde__observe_tap *tap = &observer->taps[entry->tap];

        if (tap->due) {
            observation.id = entry->id;
            observation.how = tap->how;
            observation.info = sonde_catalogue_info(observer->catalogue, entry->id);
            observation.vitals = (tap->how & SONDE_HOW_VITALS)  ? vitals
                                 : (tap->how & SONDE_HOW_NORMS) ? &norms
                                                                : NULL;
            observation.sketch = (tap->how & SONDE_HOW_SKETCH) ? evidence.sketch : NULL;
            observation.hash = (tap->how & SONDE_HOW_HASH) ? evidence.hash : 0;
            observer->sinks[tap->sink]->put(observer->sinks[tap->sink], &observation);
        }
    }
}

bool sonde_observer_when_bad(const sonde_observer *observer, uint32_t id)
{
    if (observer == NULL) {
        return false;
    }
    if (id >= observer->declared || observer->ever == NULL) {
        return false;
    }
    for (size_t i = observer->first[id]; i < observer->first[id + 1]; i++) {
        const sonde__observe_tap *tap = &observer->taps[observer->entries[i].tap];

        if (tap->when_bad && (tap->how & SONDE_HOW_SIGNS) != 0) {
            return true;
        }
    }
    return false;
}

void sonde_observer_observe_bad(sonde_observer *observer, const sonde_coordinate *place,
                                uint32_t id, const sonde_view *view,
                                const sonde_vitals *vitals)
{
    if (observer == NULL || place == NULL || vitals == NULL) {
        return;
    }
    sonde_observation observation = {.at = *place, .view = view};
    sonde_vitals norms = *vitals;

    if (!sonde_observer_when_bad(observer, id)) {
        return;
    }
    sonde_norms_keep(&norms);
    observer->at = *place;
    observer->stepping = true;
    for (size_t i = observer->first[id]; i < observer->first[id + 1]; i++) {
        const sonde__observe_entry *entry = &observer->entries[i];
        const sonde__observe_tap *tap = &observer->taps[entry->tap];

        if (looks_again(tap, place) && (tap->how & SONDE_HOW_SIGNS) != 0) {
            observation.id = entry->id;
            observation.how = tap->how & SONDE_HOW_SIGNS;
            observation.vitals = (tap->how & SONDE_HOW_VITALS) ? vitals : &norms;
            observation.info = sonde_catalogue_info(observer->catalogue, entry->id);
            observer->sink_due[tap->sink] = 1;
            observer->sinks[tap->sink]->put(observer->sinks[tap->sink], &observation);
        }
    }
}

void sonde_observer_end_step(sonde_observer *observer)
{
    if (observer == NULL) {
        return;
    }
    if (!observer->stepping) {
        return;
    }
    for (size_t i = 0; i < observer->sink_count; i++) {
        sonde_sink *sink = observer->sinks[i];

        if (observer->sink_due[i] && sink->end_step != NULL) {
            sink->end_step(sink, &observer->at);
        }
    }
    close_step(observer);
    set_next(observer, &observer->at);
}

extern inline bool sonde_observer_begin_step(sonde_observer *observer,
                                             const sonde_observer_gate *gate,
                                             const sonde_coordinate *at);
extern inline unsigned sonde_observer_wants(const sonde_observer_gate *gate, uint32_t id);
