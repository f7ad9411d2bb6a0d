/*
 * taps.c - the half of an observer that comes before the first step: adding taps,
 * binding.
 */
#include "observe/observer_state.h"

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/error.h>
#include <sonde/log.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

sonde_err sonde_observer_create(const sonde_catalogue *catalogue, sonde_observer **out,
                                sonde_diag *diag)
{
    sonde_observer *observer = sonde__calloc(1, sizeof *observer);

    if (observer == NULL) {
        return sonde__fail_nomem(diag, "an observer");
    }
    observer->catalogue = catalogue;
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        observer->gate.next_due[mode] = SONDE_SCHEDULE_NEVER;
    }
    *out = observer;
    return SONDE_OK;
}

static void drop_tap(sonde__observe_tap *dropped)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde__free(dropped->steps[mode]);
    }
    sonde_selector_free_ids(dropped->ids);
    sonde__free(dropped->tensors);
}

void sonde_observer_destroy(sonde_observer *observer)
{
    if (observer == NULL) {
        return;
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        drop_tap(&observer->taps[i]);
    }
    sonde__free(observer->taps);
    sonde__free(observer->sinks);
    sonde__free(observer->wants);
    sonde__free(observer->ever);
    sonde__free(observer->first);
    sonde__free(observer->entries);
    sonde__free(observer->sink_due);
    sonde__free(observer->sketch);
    sonde__free(observer);
}

/* --- adding a tap ----------------------------------------------------------------- */

/* Puts the tap and the mode in front of where a schedule's check found something. */
static sonde_err fail_schedule(const char *what, int mode, const sonde_diag *found,
                               sonde_diag *diag)
{
    char where[sizeof found->where];

    (void)snprintf(where, sizeof where, "tap '%.128s': %s.%.64s", what,
                   sonde_mode_name((sonde_mode)mode), found->where);
    return sonde__fail(diag, found->err, where, found->expected, "%s", found->found);
}

static sonde_err check_tap(const sonde_tap *checked, sonde_diag *diag)
{
    const unsigned all =
        SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH | SONDE_HOW_HASH;
    const char *what = sonde_selector_text(checked->what);

    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde_diag found = {0};

        if (sonde_schedule_check(&checked->when[mode], &found) != SONDE_OK) {
            return fail_schedule(what, mode, &found, diag);
        }
    }
    if (checked->how == 0 || (checked->how & ~all) != 0) {
        return sonde__fail(diag, SONDE_EINVAL, what, "one or more SONDE_HOW_ bits",
                           "how 0x%x", checked->how);
    }
    if (checked->where == NULL || checked->where->put == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, what, "a sink with a put function",
                           "a tap that leads nowhere");
    }
    return SONDE_OK;
}

/* The tensors that the ids of a tap stand for. */
static sonde_err find_tensors(const sonde_observer *observer, sonde__observe_tap *to,
                              sonde_diag *diag)
{
    to->tensors = sonde__calloc(to->count, sizeof *to->tensors);
    if (to->tensors == NULL) {
        return sonde__fail_nomem(diag, "a tap");
    }
    for (size_t i = 0; i < to->count; i++) {
        to->tensors[i] = sonde_catalogue_info(observer->catalogue, to->ids[i])->same_as;
    }
    return SONDE_OK;
}

static sonde_err copy_schedules(sonde__observe_tap *to, const sonde_tap *from,
                                sonde_diag *diag)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const sonde_schedule *when = &from->when[mode];

        to->when[mode] = *when;
        if (when->step_count == 0) {
            continue;
        }
        to->steps[mode] = sonde__calloc(when->step_count, sizeof(int64_t));
        if (to->steps[mode] == NULL) {
            return sonde__fail_nomem(diag, "a schedule");
        }
        memcpy(to->steps[mode], when->steps, when->step_count * sizeof(int64_t));
        to->when[mode].steps = to->steps[mode];
    }
    return SONDE_OK;
}

static sonde_err add_sink(sonde_observer *observer, sonde_sink *sink, uint32_t *index,
                          sonde_diag *diag)
{
    for (size_t i = 0; i < observer->sink_count; i++) {
        if (observer->sinks[i] == sink) {
            *index = (uint32_t)i;
            return SONDE_OK;
        }
    }
    if (!sonde__reserve(&observer->sinks, &observer->sink_capacity,
                        observer->sink_count + 1, sizeof(sonde_sink *))) {
        return sonde__fail_nomem(diag, "a tap");
    }
    *index = (uint32_t)observer->sink_count;
    observer->sinks[observer->sink_count++] = sink;
    return SONDE_OK;
}

/* Adds a tap whose ids are found; takes them, whatever it returns. */
static sonde_err add_found(sonde_observer *observer, const sonde_tap *added,
                           uint32_t *ids, size_t count, sonde_diag *diag)
{
    sonde__observe_tap copy = {
        .ids = ids, .count = count, .how = added->how, .when_bad = added->when_bad};
    sonde_err err = find_tensors(observer, &copy, diag);

    if (err == SONDE_OK) {
        err = copy_schedules(&copy, added, diag);
    }
    if (err == SONDE_OK &&
        !sonde__reserve(&observer->taps, &observer->tap_capacity, observer->tap_count + 1,
                        sizeof(sonde__observe_tap))) {
        err = sonde__fail_nomem(diag, "a tap");
    }
    if (err == SONDE_OK) {
        err = add_sink(observer, added->where, &copy.sink, diag);
    }
    if (err != SONDE_OK) {
        drop_tap(&copy);
        return err;
    }
    observer->taps[observer->tap_count++] = copy;
    observer->gate.looks_again |= copy.when_bad && count > 0;
    return SONDE_OK;
}

static sonde_err check_open(const sonde_observer *observer, const sonde_tap *added,
                            sonde_diag *diag)
{
    return observer->bound
               ? sonde__fail(diag, SONDE_ESTATE, sonde_selector_text(added->what),
                             "taps before bind", "a tap added after bind")
               : check_tap(added, diag);
}

sonde_err sonde_observer_add(sonde_observer *observer, const sonde_tap *added,
                             size_t *matched, sonde_diag *diag)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_err err = check_open(observer, added, diag);

    if (err == SONDE_OK) {
        err =
            sonde_selector_resolve(added->what, observer->catalogue, &ids, &count, diag);
    }
    if (err == SONDE_OK) {
        err = add_found(observer, added, ids, count, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (count == 0) {
        sonde_log(SONDE_LOG_WARNING, "observe", "'%s' matches no tensor",
                  sonde_selector_text(added->what));
    }
    if (matched != NULL) {
        *matched = count;
    }
    return SONDE_OK;
}

sonde_err sonde__observer_add_ids(sonde_observer *observer, const sonde_tap *added,
                                  const uint32_t *ids, size_t count, sonde_diag *diag)
{
    const sonde_err err = check_open(observer, added, diag);
    uint32_t *copy = NULL;

    if (err != SONDE_OK) {
        return err;
    }
    copy = sonde__calloc(count, sizeof *copy);
    if (copy == NULL) {
        return sonde__fail_nomem(diag, "a tap");
    }
    if (count > 0) {
        memcpy(copy, ids, count * sizeof *copy);
    }
    return add_found(observer, added, copy, count, diag);
}

/* --- binding ---------------------------------------------------------------------- */

static sonde_err check_call_shape(const sonde_call_shape *shape, sonde_diag *diag)
{
    const struct {
        const char *name;
        int value;
    } counts[] = {{"iterations", shape->iterations},
                  {"micro_batches", shape->micro_batches},
                  {"replicas", shape->replicas}};
    int64_t values = 1;

    for (size_t i = 0; i < SONDE_COUNT_OF(counts); i++) {
        if (counts[i].value < 1) {
            return sonde__fail(diag, SONDE_EINVAL, counts[i].name, "1 or more", "%d",
                               counts[i].value);
        }
        if (__builtin_mul_overflow(values, counts[i].value, &values)) {
            return sonde__fail(diag, SONDE_EINVAL, counts[i].name, "fewer micro-batches",
                               "more than 2^63 micro-batches a call");
        }
    }
    return SONDE_OK;
}

static sonde_err allocate_lists(sonde_observer *observer, sonde_diag *diag)
{
    size_t entries = 0;
    unsigned how = 0;

    observer->declared = sonde_catalogue_count(observer->catalogue);
    for (size_t i = 0; i < observer->tap_count; i++) {
        entries += observer->taps[i].count;
        how |= observer->taps[i].how;
    }
    observer->wants = sonde__calloc(observer->declared, 1);
    observer->ever = sonde__calloc(observer->declared, 1);
    observer->first = sonde__calloc((size_t)observer->declared + 2, sizeof(size_t));
    observer->entries = sonde__calloc(entries, sizeof(sonde__observe_entry));
    observer->sink_due = sonde__calloc(observer->sink_count, 1);
    if (how & SONDE_HOW_SKETCH) {
        observer->sketch = sonde__malloc(sizeof *observer->sketch);
    }
    if (observer->wants == NULL || observer->ever == NULL || observer->first == NULL ||
        observer->entries == NULL || observer->sink_due == NULL ||
        ((how & SONDE_HOW_SKETCH) && observer->sketch == NULL)) {
        return sonde__fail_nomem(diag, "an observer's lists");
    }
    return SONDE_OK;
}

/* A counting sort by tensor, which keeps the order of taps. first is one longer than it
 * needs to be: the counts go to first[t + 2], so that after placing, first[t] is a start.
 */
static void fill_lists(sonde_observer *observer)
{
    size_t *first = observer->first;

    for (size_t i = 0; i < observer->tap_count; i++) {
        const sonde__observe_tap *from = &observer->taps[i];

        for (size_t j = 0; j < from->count; j++) {
            first[from->tensors[j] + 2]++;
        }
    }
    for (size_t t = 2; t <= observer->declared; t++) {
        first[t] += first[t - 1];
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        const sonde__observe_tap *from = &observer->taps[i];

        for (size_t j = 0; j < from->count; j++) {
            const uint32_t tensor = from->tensors[j];

            observer->entries[first[tensor + 1]++] =
                (sonde__observe_entry){(uint32_t)i, from->ids[j]};
            observer->ever[tensor] |= (uint8_t)from->how;
        }
    }
}

static sonde_err prepare_sinks(sonde_observer *observer, const sonde_call_shape *shape,
                               sonde_diag *diag)
{
    for (size_t i = 0; i < observer->tap_count; i++) {
        const sonde__observe_tap *of = &observer->taps[i];
        sonde_sink *sink = observer->sinks[of->sink];

        for (size_t j = 0; j < of->count && sink->prepare != NULL; j++) {
            const sonde_tensor_info *info =
                sonde_catalogue_info(observer->catalogue, of->ids[j]);
            const sonde_err err =
                sink->prepare(sink, of->ids[j], info, of->how, shape, diag);

            if (err != SONDE_OK) {
                return err;
            }
        }
    }
    return SONDE_OK;
}

sonde_err sonde_observer_bind(sonde_observer *observer, const sonde_call_shape *shape,
                              sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (observer->bound) {
        return sonde__fail(diag, SONDE_ESTATE, "observer", "one bind", "bound already");
    }
    err = check_call_shape(shape, diag);
    if (err != SONDE_OK) {
        return err;
    }
    observer->bound = true; /* also where the rest fails: half-bound is of no more use */
    err = allocate_lists(observer, diag);
    if (err != SONDE_OK) {
        return err;
    }
    fill_lists(observer);
    err = prepare_sinks(observer, shape, diag);
    if (err != SONDE_OK) {
        return err;
    }
    sonde__observer_open(observer);
    return SONDE_OK;
}
