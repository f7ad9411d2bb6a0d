/*
 * taps.c - the half of an observer that comes before the first step: adding taps,
 * binding, and attaching a sink to a program.
 */
#include "observe/observer_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "observe/tensor_names.h"
#include "observe/attach.h"
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
    SONDE__NEEDS(diag, catalogue, out);
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
    sonde_release(dropped->ids);
    sonde__free(dropped->tensors);
    sonde_selector_destroy(dropped->what);
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
    sonde__free(observer->owners);
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
    const char *what = sonde__selector_text(checked->what);

    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde_diag found = {0};

        if (sonde_schedule_check(&checked->when[mode], &found) != SONDE_OK) {
            return fail_schedule(what, mode, &found, diag);
        }
    }
    if (checked->how == 0 || (checked->how & ~(unsigned)SONDE_HOW_ALL) != 0) {
        return sonde__fail(diag, SONDE_EINVAL, what, "one or more SONDE_HOW_ bits",
                           "how 0x%x", checked->how);
    }
    if (checked->where == NULL || checked->where->put == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, what, "a sink with a put function",
                           "a tap that leads nowhere");
    }
    return SONDE_OK;
}

static sonde_err copy_schedules(sonde__observe_tap *tap, const sonde_tap *added,
                                sonde_diag *diag)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const sonde_schedule *when = &added->when[mode];

        tap->when[mode] = *when;
        tap->from[mode] = 1;
        tap->next[mode] = 0;
        if (when->step_count == 0) {
            continue;
        }
        tap->steps[mode] = sonde__calloc(when->step_count, sizeof(int64_t));
        if (tap->steps[mode] == NULL) {
            return sonde__fail_nomem(diag, "a schedule");
        }
        memcpy(tap->steps[mode], when->steps, when->step_count * sizeof(int64_t));
        tap->when[mode].steps = tap->steps[mode];
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

/* Whether two taps differ only in their tensors. */
static bool is_same_tap(const sonde_observer *observer, const sonde__observe_tap *tap,
                        const sonde_tap *added)
{
    bool same = observer->sinks[tap->sink] == added->where && tap->how == added->how &&
                tap->when_bad == added->when_bad && tap->apart;

    for (int mode = 0; mode < SONDE_MODE_COUNT && same; mode++) {
        const sonde_schedule *a = &tap->when[mode], *b = &added->when[mode];

        same = a->every == b->every && a->start == b->start && a->end == b->end &&
               a->first == b->first && a->row == b->row && a->row_every == b->row_every &&
               a->step_count == b->step_count &&
               (a->step_count == 0 ||
                memcmp(a->steps, b->steps, a->step_count * sizeof *a->steps) == 0);
    }
    return same;
}

/* Appends ids to those of a tap. */
static sonde_err append_ids(const sonde_observer *observer, sonde__observe_tap *tap,
                            const uint32_t *ids, size_t count, sonde_diag *diag)
{
    size_t capacity = tap->capacity;

    if (!sonde__reserve(&tap->ids, &capacity, tap->count + count, sizeof *tap->ids) ||
        !sonde__reserve(&tap->tensors, &tap->capacity, tap->count + count,
                        sizeof *tap->tensors)) {
        return sonde__fail_nomem(diag, "a tap");
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t tensor =
            sonde_catalogue_info(observer->catalogue, ids[i])->same_as;

        tap->ids[tap->count] = ids[i];
        tap->tensors[tap->count] = tensor;
        tap->roles |= 1U << sonde_catalogue_info(observer->catalogue, tensor)->role;
        tap->count++;
    }
    return SONDE_OK;
}

/* Adds a tap on these ids. */
static sonde_err add_tap(sonde_observer *observer, const sonde_tap *added, bool resolves,
                         const uint32_t *ids, size_t count, sonde_diag *diag)
{
    sonde__observe_tap copy = {
        .how = added->how, .when_bad = added->when_bad, .apart = !resolves};
    sonde_err err = append_ids(observer, &copy, ids, count, diag);

    if (err != SONDE_OK) {
        goto error;
    }
    if (resolves) {
        SONDE__TRY_GO(sonde__selector_copy(added->what, &copy.what, diag));
    }
    SONDE__TRY_GO(copy_schedules(&copy, added, diag));
    if (!sonde__reserve(&observer->taps, &observer->tap_capacity, observer->tap_count + 1,
                        sizeof(sonde__observe_tap))) {
        err = sonde__fail_nomem(diag, "a tap");
        goto error;
    }
    SONDE__TRY_GO(add_sink(observer, added->where, &copy.sink, diag));
    observer->taps[observer->tap_count++] = copy;
    observer->gate.looks_again |= copy.when_bad && count > 0;
    return SONDE_OK;

error:
    drop_tap(&copy);
    return err;
}

static sonde_err check_open(const sonde_observer *observer, const sonde_tap *added,
                            sonde_diag *diag)
{
    return observer->bound && !observer->extending
               ? sonde__fail(diag, SONDE_ESTATE, sonde__selector_text(added->what),
                             "taps before bind", "a tap added after bind")
               : check_tap(added, diag);
}

sonde_err sonde_observer_add(sonde_observer *observer, const sonde_tap *added,
                             size_t *matched, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "observer, tap", observer, added);
    SONDE__NEEDS(diag, observer, added);
    SONDE__NEEDS(diag, added->what);
    uint32_t *ids = NULL;
    size_t count = 0;
    SONDE__TRY(check_open(observer, added, diag));
    SONDE__TRY(
        sonde_selector_resolve(added->what, observer->catalogue, &ids, &count, diag));
    sonde_err err = add_tap(observer, added, true, ids, count, diag);
    sonde_release(ids);
    if (err != SONDE_OK) {
        return err;
    }
    if (count == 0) {
        sonde_log(SONDE_LOG_WARNING, "observe", "'%s' matches no tensor",
                  sonde__selector_text(added->what));
    }
    if (matched != NULL) {
        *matched = count;
    }
    return SONDE_OK;
}

sonde_err sonde__observer_add_ids(sonde_observer *observer, const sonde_tap *added,
                                  const uint32_t *ids, size_t count, sonde_diag *diag)
{
    SONDE__TRY(check_open(observer, added, diag));
    for (size_t i = 0; i < observer->tap_count && observer->extending; i++) {
        if (is_same_tap(observer, &observer->taps[i], added)) {
            observer->gate.looks_again |= added->when_bad && count > 0;
            return append_ids(observer, &observer->taps[i], ids, count, diag);
        }
    }
    return add_tap(observer, added, false, ids, count, diag);
}

sonde_err sonde__observer_on_extend(sonde_observer *observer,
                                    sonde_err (*extend)(void *user, uint32_t first_id,
                                                        sonde_diag *diag),
                                    void *user, sonde_diag *diag)
{
    if (!sonde__reserve(&observer->owners, &observer->owner_capacity,
                        observer->owner_count + 1, sizeof *observer->owners)) {
        return sonde__fail_nomem(diag, "an observer");
    }
    observer->owners[observer->owner_count++] = (sonde__observe_owner){extend, user};
    return SONDE_OK;
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

/* Makes room in the lists for all tensors of the catalogue. */
static sonde_err reserve_lists(sonde_observer *observer, sonde_diag *diag)
{
    const size_t declared = sonde_catalogue_count(observer->catalogue);
    const size_t room = declared + 2;
    size_t entries = 0, wants = observer->list_capacity, ever = observer->list_capacity;
    unsigned how = 0;

    for (size_t i = 0; i < observer->tap_count; i++) {
        entries += observer->taps[i].count;
        how |= observer->taps[i].how;
    }
    bool good = sonde__reserve(&observer->wants, &wants, room, 1);

    observer->gate.wants = observer->wants;
    good = good && sonde__reserve(&observer->ever, &ever, room, 1) &&
           sonde__reserve(&observer->first, &observer->list_capacity, room,
                          sizeof *observer->first) &&
           sonde__reserve(&observer->entries, &observer->entry_capacity, entries + 1,
                          sizeof *observer->entries) &&
           sonde__reserve(&observer->sink_due, &observer->due_capacity,
                          observer->sink_count + 1, 1);
    if (good && (how & SONDE_HOW_SKETCH) != 0 && observer->sketch == NULL) {
        observer->sketch = sonde__malloc(sizeof *observer->sketch);
        good = observer->sketch != NULL;
    }
    return good ? SONDE_OK : sonde__fail_nomem(diag, "an observer's lists");
}

/* The first tensor whose entries change: a new one, unless another name was added to one
 * that the lists have. */
static uint32_t first_changed(const sonde_observer *observer)
{
    for (size_t i = 0; i < observer->tap_count; i++) {
        const sonde__observe_tap *tap = &observer->taps[i];

        for (size_t j = tap->listed; j < tap->count; j++) {
            if (tap->tensors[j] < observer->declared) {
                return 0;
            }
        }
    }
    return observer->declared;
}

/* A counting sort by tensor, which keeps the order of taps, from a tensor on. first is one
 * longer than it needs to be: the counts go to first[t + 2], so that after placing, first[t]
 * is a start. */
static void fill_lists(sonde_observer *observer, uint32_t from)
{
    const size_t declared = sonde_catalogue_count(observer->catalogue);
    size_t *first = observer->first;

    if (from == 0) {
        first[0] = 0;
    }
    memset(first + from + 1, 0, (declared + 1 - from) * sizeof *first);
    for (size_t i = 0; i < observer->tap_count; i++) {
        const sonde__observe_tap *tap = &observer->taps[i];

        for (size_t j = from == 0 ? 0 : tap->listed; j < tap->count; j++) {
            first[tap->tensors[j] + 2]++;
        }
    }
    first[from + 1] = first[from];
    for (size_t t = (size_t)from + 2; t <= declared; t++) {
        first[t] += first[t - 1];
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        const sonde__observe_tap *tap = &observer->taps[i];

        for (size_t j = from == 0 ? 0 : tap->listed; j < tap->count; j++) {
            const uint32_t tensor = tap->tensors[j];

            observer->entries[first[tensor + 1]++] =
                (sonde__observe_entry){(uint32_t)i, tap->ids[j]};
            observer->ever[tensor] |= (uint8_t)tap->how;
        }
    }
}

/* Prepares the sinks for tensors that the lists do not have yet. */
static sonde_err prepare_sinks(const sonde_observer *observer, sonde_diag *diag)
{
    for (size_t i = 0; i < observer->tap_count; i++) {
        const sonde__observe_tap *tap = &observer->taps[i];
        sonde_sink *sink = observer->sinks[tap->sink];

        for (size_t j = tap->listed; j < tap->count && sink->prepare != NULL; j++) {
            const sonde_tensor_info *info =
                sonde_catalogue_info(observer->catalogue, tap->ids[j]);
            SONDE__TRY(
                sink->prepare(sink, tap->ids[j], info, tap->how, &observer->shape, diag));
        }
    }
    return SONDE_OK;
}

/* Lists what the taps have and the lists have not; a step that is on keeps what it wants. */
static sonde_err extend_lists(sonde_observer *observer, sonde_diag *diag)
{
    const uint32_t before = observer->declared,
                   declared = sonde_catalogue_count(observer->catalogue);

    SONDE__TRY(reserve_lists(observer, diag));
    SONDE__TRY(prepare_sinks(observer, diag));
    memset(observer->wants + before, 0, declared - before);
    memset(observer->ever + before, 0, declared - before);
    memset(observer->sink_due, 0, observer->sink_count);
    fill_lists(observer, first_changed(observer));
    observer->declared = declared;
    for (size_t i = 0; i < observer->tap_count; i++) {
        sonde__observe_tap *tap = &observer->taps[i];

        tap->listed = tap->count;
        observer->sink_due[tap->sink] |= tap->due;
    }
    sonde__observer_open(observer);
    return SONDE_OK;
}

sonde_err sonde_observer_bind(sonde_observer *observer, const sonde_call_shape *shape,
                              sonde_diag *diag)
{
    SONDE__NEEDS(diag, observer, shape);

    if (observer->bound) {
        return sonde__fail(diag, SONDE_ESTATE, "observer", "one bind", "bound already");
    }
    SONDE__TRY(check_call_shape(shape, diag));
    observer->bound =
        true; /* if the rest fails, too: a half-bound observer is unusable */
    observer->shape = *shape;
    return extend_lists(observer, diag);
}

/* --- extending -------------------------------------------------------------------- */

/* Appends the new tensors that the tap's selector selects. */
static sonde_err select_new(const sonde_observer *observer, sonde__observe_tap *tap,
                            uint8_t *marks, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(observer->catalogue);

    memset(marks + observer->declared, 0, count - observer->declared);
    SONDE__TRY(sonde__selector_mark(tap->what, observer->catalogue, observer->declared,
                                    true, marks, diag));
    for (uint32_t id = observer->declared; id < count; id++) {
        if (marks[id] != 0) {
            SONDE__TRY(append_ids(observer, tap, &id, 1, diag));
        }
    }
    return SONDE_OK;
}

/* Appends the new tensors to the taps that the observer resolves itself. */
static sonde_err extend_own(sonde_observer *observer, sonde_diag *diag)
{
    uint8_t *marks = sonde__calloc(sonde_catalogue_count(observer->catalogue), 1);
    sonde_err err = SONDE_OK;

    if (marks == NULL) {
        return sonde__fail_nomem(diag, "a selection");
    }
    for (size_t i = 0; i < observer->tap_count; i++) {
        if (observer->taps[i].what != NULL) {
            SONDE__TRY_GO(select_new(observer, &observer->taps[i], marks, diag));
        }
    }
error:
    sonde__free(marks);
    return err;
}

static sonde_err extend_owners(sonde_observer *observer, sonde_diag *diag)
{
    for (size_t i = 0; i < observer->owner_count; i++) {
        const sonde__observe_owner *owner = &observer->owners[i];
        SONDE__TRY(owner->extend(owner->user, observer->declared, diag));
    }
    return SONDE_OK;
}

static sonde_err extend_taps(sonde_observer *observer, sonde_diag *diag)
{
    SONDE__TRY(extend_own(observer, diag));
    observer->extending = true;
    sonde_err err = extend_owners(observer, diag);
    observer->extending = false;
    return err != SONDE_OK ? err : extend_lists(observer, diag);
}

sonde_err sonde_observer_extend(sonde_observer *observer, sonde_diag *diag)
{
    SONDE__NEEDS(diag, observer);
    const size_t taps = observer->tap_count, sinks = observer->sink_count;

    if (observer->entries == NULL) {
        return sonde__fail(diag, SONDE_ESTATE, "observer", "extend after bind",
                           "an observer that is not bound");
    }
    if (sonde_catalogue_count(observer->catalogue) == observer->declared) {
        return SONDE_OK;
    }
    sonde_err err = extend_taps(observer, diag);
    if (err != SONDE_OK) { /* as if nothing had been added */
        while (observer->tap_count > taps) {
            drop_tap(&observer->taps[--observer->tap_count]);
        }
        for (size_t i = 0; i < taps; i++) {
            observer->taps[i].count = observer->taps[i].listed;
        }
        observer->sink_count = sinks;
    }
    return err;
}

/* --- attach ------------------------------------------------------------------------ */

/* Steps and ids of those who observe a producer (attach.h). */

sonde_coordinate sonde__observe_take_step(sonde__observe_steps *steps, sonde_mode mode,
                                          int64_t at_least)
{
    int64_t *const global = &steps->next[SONDE_MODE_GLOBAL];
    int64_t *const next = &steps->next[mode];

    if (mode != SONDE_MODE_GLOBAL) {
        *next = SONDE_MAX(*next, at_least);
    }
    const sonde_coordinate at = {
        .mode = mode, .global_step = *global, .mode_step = *next};
    *next = at.mode_step + 1;
    *global = at.global_step + 1;
    return at;
}

uint32_t sonde__catalogue_named(const sonde_catalogue *catalogue, const char *name)
{
    uint32_t id = 0;
    const bool found = sonde_catalogue_find(catalogue, name, &id, NULL) == SONDE_OK;

    return found && strcmp(sonde_catalogue_info(catalogue, id)->name, name) == 0
               ? id
               : SONDE_NO_TENSOR;
}

bool sonde__observe_map_reserve(sonde__observe_map *map)
{
    return sonde__reserve(&map->ids, &map->capacity, sonde_catalogue_count(map->from),
                          sizeof *map->ids);
}

sonde_err sonde__observe_map_add(sonde__observe_map *map, uint32_t id, void *user,
                                 sonde_diag *diag)
{
    sonde_tensor_info info = *sonde_catalogue_info(map->from, id);
    const uint32_t known = sonde__catalogue_named(map->to, info.name);

    if (known != SONDE_NO_TENSOR) {
        map->ids[id] = known;
        return SONDE_OK;
    }
    if (info.same_as == id) {
        info.same_as = SONDE_NO_TENSOR;
    } else {
        SONDE__TRY(sonde__observe_map_add(map, info.same_as, user, diag));
        const uint32_t tensor = map->ids[info.same_as];
        const sonde_tensor_info *named = sonde_catalogue_info(map->to, tensor);

        info.same_as = tensor;
        info.dtype = named->dtype;
        info.rank = named->rank;
        memcpy(info.shape, named->shape, sizeof info.shape);
    }
    return map->declare(user, &info, id, &map->ids[id], diag);
}
