/*
 * hook_taps.c - a hook as taps on a producer's observer.
 *
 * Each collection becomes up to three kinds of taps, all of which end in this file:
 *
 *     save     its tensors, on its schedule, as its reductions say
 *     watch    the tensors that its when_nan selects: vital signs at every step
 *     hold     its tensors, raw, at every step, if it has a when_nan
 *
 * More taps record what is recorded in any case: losses, and what the default rules need
 * (sonde__rules_looks_from), or what vitals_every says. An observer hands a value to its
 * taps in the order in which they were added: save, watch, hold. A hold tap therefore
 * knows which parts of a value are already recorded. When a watch tap sees a NaN or an
 * infinity, it trips the collection: the recorder gets the values held for the
 * collection and its values in the rest of the step.
 *
 * Held copies lie one after another in a block that grows to the largest step and stays.
 */
#include "capture/hook_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include "observe/attach.h"
#include "observe/tensor_names.h"
#include "rules/engine.h"
#include "tensor/evidence.h"

#include <sonde/log.h>
#include <sonde/rules.h>

#include <string.h>

typedef enum tap_kind { SAVE, WATCH, HOLD } tap_kind;

/* Where a tap ends. */
typedef struct end {
    sonde_sink sink; /* first */
    sonde_hook *hook;
    sonde__hook_attachment *attachment;
    tap_kind kind;
    uint64_t set; /* the collection's bit */
    unsigned how;
} end;

enum {
    ENDS_OF_ONE = 2 + SONDE_MODE_COUNT, /* of a collection: save, hold, watch by mode */
    ANY_MODE = -1
};

struct sonde__hook_attachment {
    sonde__hook_attachment *next;
    sonde_hook *hook;
    sonde_observer *observer;
    int mode;                       /* of its steps, or ANY_MODE */
    sonde__observe_map map;         /* to the hook's catalogue */
    sonde_rules *needing;           /* the default rules, which judge nothing here */
    size_t held_values, held_bytes; /* of a step, at most */
    end *ends;
    size_t end_count;
};

void sonde__hook_detach_all(sonde_hook *hook)
{
    while (hook->attachments != NULL) {
        sonde__hook_attachment *first = hook->attachments;

        hook->attachments = first->next;
        sonde_rules_destroy(first->needing);
        sonde__free(first->map.ids);
        sonde__free(first->ends);
        sonde__free(first);
    }
}

/* --- holding ---------------------------------------------------------------------- */

/* Bytes that the held copy of a value of this size takes. */
static size_t held_size(size_t bytes)
{
    return (bytes + SONDE__ALIGN - 1) / SONDE__ALIGN * SONDE__ALIGN;
}

static bool make_room(sonde__hook_holding *holding, size_t values, size_t bytes)
{
    size_t size = SONDE_MAX(holding->size, (size_t)4096);

    if (!sonde__reserve(&holding->items, &holding->capacity, values,
                        sizeof *holding->items)) {
        return false;
    }
    if (bytes <= holding->size) {
        return true;
    }
    while (size < bytes) {
        if (size > SIZE_MAX / 2) {
            return false;
        }
        size *= 2;
    }
    unsigned char *grown = sonde__malloc_aligned(SONDE__ALIGN, size);
    if (grown == NULL) {
        return false;
    }
    if (holding->used > 0) {
        memcpy(grown, holding->bytes, holding->used);
    }
    sonde__free(holding->bytes);
    holding->bytes = grown;
    holding->size = size;
    return true;
}

/* The held copy of this very value, or NULL. */
static sonde__hook_held *find_held(sonde_hook *hook, uint32_t id,
                                   const sonde_coordinate *place)
{
    sonde__hook_holding *holding = &hook->held;
    sonde__hook_held *last =
        holding->count > 0 ? &holding->items[holding->count - 1] : NULL;

    return last != NULL && last->id == id && last->at.micro_batch == place->micro_batch &&
                   last->at.replica == place->replica
               ? last
               : NULL;
}

/* Appends a value whose memory is reserved. The fields are assigned one by one: clearing
 * the item first would cost as much as the rest for a small tensor. */
static void append_held(sonde_hook *hook, uint32_t id,
                        const sonde_observation *observation, size_t bytes)
{
    sonde__hook_holding *holding = &hook->held;
    sonde__hook_held *item = &holding->items[holding->count];
    unsigned char *copy = holding->bytes + holding->used;

    item->id = id;
    item->at = observation->at;
    item->offset = holding->used;
    item->view = *observation->view;
    item->view.data = copy;
    if (sonde_view_is_contiguous(observation->view)) {
        if (bytes > 0) {
            memcpy(copy, observation->view->data, bytes);
        }
    } else {
        item->view = sonde_view_of(observation->view->dtype, observation->view->rank,
                                   observation->view->shape, copy);
        if (sonde_view_copy(&item->view, observation->view, NULL) != SONDE_OK) {
            return;
        }
    }
    holding->count++;
    holding->used += held_size(bytes);
}

/* done: the parts of the value that are recorded already. */
static void hold(sonde_hook *hook, uint32_t id, const sonde_observation *observation,
                 uint64_t set, unsigned done)
{
    sonde__hook_holding *holding = &hook->held;
    sonde__hook_held *item = find_held(hook, id, &observation->at);
    const size_t bytes = (size_t)sonde_view_count(observation->view) *
                         sonde_dtype_size(observation->view->dtype);
    const size_t size = held_size(bytes);

    if (item != NULL) { /* held already, for another collection */
        item->sets |= set;
        return;
    }
    if (size < bytes || !make_room(holding, holding->count + 1, holding->used + size)) {
        if (!holding->failed) {
            sonde_log(SONDE_LOG_ERROR, "hook",
                      "no memory to keep values for when_nan: some steps will lack them");
        }
        holding->failed = true;
        return;
    }
    item = &holding->items[holding->count];
    item->sets = set;
    item->done = done;
    append_held(hook, id, observation, bytes);
}

/* Union of how over a mask of collections. */
static unsigned how_of(const sonde_hook *hook, uint64_t sets)
{
    unsigned how = 0;

    for (; sets != 0; sets &= sets - 1) {
        how |= hook->setup.collections[__builtin_ctzll(sets)].how;
    }
    return how;
}

/* Computes the evidence that seen->how asks for and seen lacks. */
static void complete(sonde_hook *hook, sonde_observation *observation,
                     sonde__evidence *evidence)
{
    evidence->vitals = observation->vitals;
    evidence->sketch = observation->sketch;
    evidence->own_sketch = hook->sketch;
    sonde__evidence_compute(observation->how, observation->view, evidence);
    observation->vitals = evidence->vitals;
    observation->sketch = evidence->sketch;
}

/* Records the held values of these collections, and the rest of their step. */
static void trip(sonde_hook *hook, uint64_t sets)
{
    sonde__hook_holding *holding = &hook->held;

    hook->tripped |= sets;
    for (size_t i = 0; i < holding->count; i++) {
        sonde__hook_held *item = &holding->items[i];
        const unsigned asked = how_of(hook, item->sets & sets);
        const unsigned how = sonde__evidence_to_store(asked, item->done);
        sonde__evidence evidence;
        sonde_observation observation = {
            .id = item->id,
            .info = sonde_catalogue_info(hook->catalogue, item->id),
            .at = item->at,
            .how = how,
            .view = &item->view};

        if (how != 0) {
            item->view.data = holding->bytes + item->offset;
            complete(hook, &observation, &evidence);
            sonde__record_sink_put(hook->sink, &observation, how);
            item->done |= asked;
        }
    }
}

void sonde__hook_drop_held(sonde_hook *hook)
{
    hook->tripped = 0;
    hook->held.count = 0;
    hook->held.used = 0;
}

/* --- the ends of taps ------------------------------------------------------------- */

/* Records parts of a raw value that the observer did not compute. */
static void record_late(sonde_hook *hook, uint32_t id,
                        const sonde_observation *observation, unsigned how)
{
    sonde_observation part = *observation;
    sonde__evidence evidence;

    part.how = how;
    complete(hook, &part, &evidence);
    sonde__record_sink_take(hook->sink, id, &part);
}

static void put_held(const end *tap, uint32_t id, const sonde_observation *observation)
{
    sonde_hook *hook = tap->hook;
    const unsigned done = sonde__record_sink_done(hook->sink, id, &observation->at);

    if ((tap->how & ~done) == 0) {
        return;
    }
    if ((hook->tripped & tap->set) != 0) {
        sonde__hook_held *item = find_held(hook, id, &observation->at);

        record_late(hook, id, observation, tap->how & ~done);
        if (item != NULL) {
            item->done |= tap->how;
        }
    } else {
        hold(hook, id, observation, tap->set, done);
    }
}

static void put(sonde_sink *sink, const sonde_observation *observation)
{
    const end *tap = (const end *)sink;
    sonde_hook *hook = tap->hook;
    const uint32_t id = tap->attachment->map.ids[observation->id];

    switch (tap->kind) {
    case SAVE:
        sonde__record_sink_take(hook->sink, id, observation);
        break;
    case WATCH:
        if ((hook->tripped & tap->set) == 0 && observation->vitals->nan +
                                                       observation->vitals->pos_inf +
                                                       observation->vitals->neg_inf >
                                                   0) {
            trip(hook, tap->set);
        }
        break;
    case HOLD:
        put_held(tap, id, observation);
        break;
    }
}

/* Reserves room for all values that a step may hold. */
static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    const end *tap = (const end *)sink;
    sonde__hook_attachment *attachment = tap->attachment;
    const size_t values = (size_t)shape->micro_batches * (size_t)shape->replicas;
    size_t bytes = sonde_dtype_size(info->dtype);
    bool fits = true;

    (void)id;
    (void)how;
    if (tap->kind != HOLD) {
        return SONDE_OK;
    }
    for (int i = 0; i < info->rank; i++) {
        fits = fits && sonde__mul(bytes, (size_t)info->shape[i], &bytes);
    }
    fits =
        fits && bytes < SIZE_MAX / 4 && sonde__mul(held_size(bytes), values, &bytes) &&
        !__builtin_add_overflow(attachment->held_bytes, bytes, &attachment->held_bytes);
    attachment->held_values += values;
    return fits && make_room(&tap->hook->held, attachment->held_values,
                             attachment->held_bytes)
               ? SONDE_OK
               : sonde__fail_nomem(diag, "the values that a when_nan may want");
}

/* --- attaching -------------------------------------------------------------------- */

/* The tensors of an attachment that are being added. */
typedef struct attaching {
    sonde_hook *hook;
    sonde__hook_attachment *attachment;
    uint32_t first_id, count;       /* ids from ... count - 1 of the catalogue */
    sonde__observe_member *tensors; /* by the catalogue's ids */
    sonde_rules_looks *looks;       /* (count - first_id, modes), of the default rules */
    uint32_t *ids;                  /* scratch */
    size_t next_end;                /* as many taps have been added */
    sonde_diag *diag;
} attaching;

/* A kind of tap: where, when and what. */
typedef struct plan {
    const char *name;
    tap_kind kind;
    uint64_t set;
    unsigned asks; /* the tap's how */
    unsigned how;  /* what is recorded */
    bool when_bad;
    sonde_schedule when[SONDE_MODE_COUNT];
} plan;

/* Whether steps of a mode may come. */
static bool has_mode(const attaching *work, int mode)
{
    return work->attachment->mode == ANY_MODE || work->attachment->mode == mode;
}

/* The end of the next tap: made by attach, found again by extend. */
static end *take_end(attaching *work, const plan *tap)
{
    sonde__hook_attachment *attachment = work->attachment;
    end *tap_end = &attachment->ends[work->next_end++];

    if (work->next_end > attachment->end_count) {
        attachment->end_count++;
        *tap_end = (end){.sink = {.prepare = prepare, .put = put},
                         .hook = work->hook,
                         .attachment = attachment,
                         .kind = tap->kind,
                         .set = tap->set,
                         .how = tap->how};
    }
    return tap_end;
}

/* A tap on the first `count` ids of scratch, unless it is never due. shared: the end of
 * taps that differ in their schedules alone; NULL: one of its own. */
static sonde_err add_tap_to(attaching *work, size_t count, const plan *planned,
                            end *shared)
{
    sonde_tap tap = {.how = planned->asks, .when_bad = planned->when_bad};
    sonde_selector *what = NULL;
    bool ever = false;

    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        if (has_mode(work, mode)) {
            tap.when[mode] = planned->when[mode];
            ever =
                ever || sonde_schedule_next(&tap.when[mode], 0) != SONDE_SCHEDULE_NEVER;
        }
    }
    if (!ever) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__selector_create_exact(planned->name, &what, work->diag));
    tap.what = what;
    tap.where = shared != NULL ? &shared->sink : &take_end(work, planned)->sink;
    sonde_err err = sonde__observer_add_ids(work->attachment->observer, &tap, work->ids,
                                            count, work->diag);
    sonde_selector_destroy(what);
    return err;
}

static sonde_err add_tap(attaching *work, size_t count, const plan *planned)
{
    return add_tap_to(work, count, planned, NULL);
}

/* Lists in scratch the tensors whose masks have a bit; watch: of that mode. */
static size_t list(attaching *work, uint64_t member, uint64_t watch, int mode,
                   unsigned vital)
{
    size_t n = 0;

    for (uint32_t id = work->first_id; id < work->count; id++) {
        const sonde__observe_member *tensor = &work->tensors[id];

        if ((tensor->member & member) != 0 || (tensor->watch[mode] & watch) != 0 ||
            (tensor->vital & vital) != 0) {
            work->ids[n++] = id;
        }
    }
    return n;
}

static sonde_err add_saves(attaching *work)
{
    const sonde__observe_setup *setup = &work->hook->setup;

    for (size_t i = 0; i < setup->collection_count; i++) {
        const sonde__observe_collection *collection = &setup->collections[i];
        plan tap = {.name = collection->name,
                    .kind = SAVE,
                    .set = UINT64_C(1) << i,
                    .asks = collection->how,
                    .how = collection->how};

        memcpy(tap.when, collection->when, sizeof tap.when);
        if (collection->saved) {
            SONDE__TRY(add_tap(work, list(work, tap.set, 0, 0, 0), &tap));
        }
    }
    return SONDE_OK;
}

/* When vital signs are recorded for rules: norms that they need at every step are not
 * worth a row each. */
static sonde_schedule signs_when(const sonde_rules_looks *looks)
{
    const sonde_schedule *const vitals = &looks->when[SONDE_FORM_VITALS];
    const sonde_schedule *const norms = &looks->when[SONDE_FORM_NORMS];

    return norms->every > 1 || vitals->every == 0 ? sonde_schedule_join(vitals, norms)
                                                  : *vitals;
}

/* When the default rules look at a tensor in each mode; rarely in mode predict, which is
 * not recorded for them. Returns false for never. */
static bool rules_look(const attaching *work, uint32_t id, bool raw,
                       sonde_schedule when[SONDE_MODE_COUNT])
{
    const sonde_rules_looks *looks =
        &work->looks[(size_t)(id - work->first_id) * SONDE_MODE_COUNT];
    bool any = false;

    memset(when, 0, SONDE_MODE_COUNT * sizeof *when);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const sonde_schedule values = sonde_schedule_join(
            &looks[mode].when[SONDE_FORM_RAW], &looks[mode].when[SONDE_FORM_HASH]);

        if (mode != SONDE_MODE_PREDICT) {
            when[mode] = raw ? values : signs_when(&looks[mode]);
            any = any || when[mode].every > 0;
        }
    }
    return any;
}

/* Records what the default rules need of the tensors with a bit of vital: a tap for each
 * schedule. */
static sonde_err add_looks(attaching *work, uint8_t vital, plan tap)
{
    const bool raw = tap.how == SONDE_HOW_RAW;
    end *shared = take_end(work, &tap);

    for (uint32_t id = work->first_id; id < work->count; id++) {
        sonde_schedule when[SONDE_MODE_COUNT];
        size_t n = 0;

        if ((work->tensors[id].vital & vital) == 0 ||
            !rules_look(work, id, raw, tap.when)) {
            continue;
        }
        for (uint32_t other = id; other < work->count; other++) {
            if ((work->tensors[other].vital & vital) != 0 &&
                rules_look(work, other, raw, when) &&
                memcmp(when, tap.when, sizeof when) == 0) {
                work->ids[n++] = other;
                work->tensors[other].vital &= (uint8_t)~vital; /* added */
            }
        }
        SONDE__TRY(add_tap_to(work, n, &tap, shared));
    }
    return SONDE_OK;
}

static sonde_err add_vitals(attaching *work)
{
    const int64_t every = work->hook->setup.vitals_every;
    sonde_schedule losses = sonde_schedule_every(1);
    plan tap = {.name = "vital signs of losses",
                .kind = SAVE,
                .asks = SONDE_HOW_VITALS,
                .how = SONDE_HOW_VITALS};

    if (work->hook->role_every != NULL) {
        sonde__observe_thin(&losses, work->hook->role_every[SONDE_ROLE_LOSS], true);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        tap.when[mode] = losses;
    }
    SONDE__TRY(add_tap(work, list(work, 0, 0, 0, SONDE__VITAL_ALWAYS), &tap));
    memset(tap.when, 0, sizeof tap.when);
    tap.name = "vital signs";
    tap.when_bad = every > 1;
    if (work->looks == NULL) {
        tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(every);
        tap.when[SONDE_MODE_GLOBAL] = sonde_schedule_every(every);
        return add_tap(work, list(work, 0, 0, 0, SONDE__VITAL_EVERY), &tap);
    }
    SONDE__TRY(add_looks(work, SONDE__VITAL_LOOKS, tap));
    tap.name = "small raw values";
    tap.when_bad = false;
    tap.asks = SONDE_HOW_RAW;
    tap.how = SONDE_HOW_RAW;
    return add_looks(work, SONDE__VITAL_RAW, tap);
}

static sonde_err add_watches(attaching *work, size_t i)
{
    const sonde__observe_setup *setup = &work->hook->setup;
    const uint64_t set = UINT64_C(1) << i;

    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        plan tap = {.name = setup->collections[i].name,
                    .kind = WATCH,
                    .set = set,
                    .asks = SONDE_HOW_VITALS};

        if ((setup->nan_sets[mode] & set) != 0) {
            tap.when[mode] = sonde_schedule_every(1);
            SONDE__TRY(add_tap(work, list(work, 0, set, mode, 0), &tap));
        }
    }
    return SONDE_OK;
}

static sonde_err add_holds(attaching *work, size_t i)
{
    const sonde__observe_setup *setup = &work->hook->setup;
    plan tap = {.name = setup->collections[i].name,
                .kind = HOLD,
                .set = UINT64_C(1) << i,
                .asks = SONDE_HOW_RAW,
                .how = setup->collections[i].how};

    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        if ((setup->nan_sets[mode] & tap.set) != 0) {
            tap.when[mode] = sonde_schedule_every(1);
        }
    }
    return add_tap(work, list(work, tap.set, 0, 0, 0), &tap);
}

static sonde_err add_taps(attaching *work)
{
    const size_t collections = work->hook->setup.collection_count;
    SONDE__TRY(add_saves(work));
    SONDE__TRY(add_vitals(work));
    for (size_t i = 0; i < collections; i++) {
        SONDE__TRY(add_watches(work, i));
    }
    for (size_t i = 0; i < collections; i++) {
        SONDE__TRY(add_holds(work, i));
    }
    return SONDE_OK;
}

static sonde_err declare_tensor(void *user, const sonde_tensor_info *info, uint32_t id,
                                uint32_t *mapped, sonde_diag *diag)
{
    const attaching *work = user;

    return sonde__hook_add_tensor(work->hook, info, &work->tensors[id], mapped, diag);
}

/* Rules look at a tensor whenever they look at it under any of its names. */
static void join_looks(const attaching *work)
{
    for (uint32_t id = work->first_id; id < work->count; id++) {
        const uint32_t tensor =
            sonde_catalogue_info(work->attachment->map.from, id)->same_as;
        const size_t from = (size_t)(id - work->first_id) * SONDE_MODE_COUNT;

        for (size_t k = 0; k < (size_t)SONDE_MODE_COUNT * SONDE_FORM_COUNT &&
                           tensor != id && tensor >= work->first_id;
             k++) {
            const size_t mode = k / SONDE_FORM_COUNT, form = k % SONDE_FORM_COUNT;
            sonde_schedule *when =
                &work->looks[(size_t)(tensor - work->first_id) * SONDE_MODE_COUNT + mode]
                     .when[form];

            *when = sonde_schedule_join(when, &work->looks[from + mode].when[form]);
        }
    }
}

/* Maps the tensors that may be recorded to ids of the hook. */
static sonde_err map_tensors(attaching *work)
{
    for (uint32_t id = work->first_id; id < work->count; id++) {
        if (work->tensors[id].member != 0 || work->tensors[id].vital != 0) {
            SONDE__TRY(
                sonde__observe_map_add(&work->attachment->map, id, work, work->diag));
        }
    }
    return SONDE_OK;
}

/* When the tensors from first_id on are due, as the default rules need them. */
static sonde_err find_looks(attaching *work)
{
    sonde_rules **rules = &work->attachment->needing;

    if (*rules == NULL) {
        SONDE__TRY(sonde_rules_create(rules, work->diag));
        const sonde_err err = sonde_rules_add_defaults(*rules, work->diag);

        if (err != SONDE_OK) {
            sonde_rules_destroy(*rules);
            *rules = NULL;
            return err;
        }
    }
    return sonde__rules_looks_from(*rules, work->attachment->map.from, work->first_id,
                                   work->hook->role_every, work->looks, work->diag);
}

static sonde_err attach(attaching *work)
{
    sonde_hook *hook = work->hook;
    const sonde_catalogue *catalogue = work->attachment->map.from;
    const bool first = !hook->resolved && work->count > 0;
    SONDE__TRY(sonde__observe_members(&hook->setup, catalogue, work->first_id,
                                      work->count, first, work->tensors, work->diag));
    if (hook->graph[0] == '\0' && work->attachment->mode != ANY_MODE) {
        sonde__observe_digest(catalogue, hook->graph);
    }
    hook->resolved = true;
    SONDE__TRY(map_tensors(work));
    if (work->looks != NULL) {
        SONDE__TRY(find_looks(work));
        join_looks(work);
    }
    return add_taps(work);
}

static sonde_err attach_from(sonde__hook_attachment *attachment, uint32_t first,
                             sonde_diag *diag)
{
    attaching work = {.hook = attachment->hook,
                      .attachment = attachment,
                      .first_id = first,
                      .count = sonde_catalogue_count(attachment->map.from),
                      .diag = diag};
    const bool looks = work.hook->setup.looks && !work.hook->setup.no_vitals;
    sonde_err err = SONDE_OK;

    work.tensors = sonde__calloc(work.count, sizeof *work.tensors);
    work.ids = sonde__calloc(work.count, sizeof *work.ids);
    if (looks) {
        work.looks = sonde__calloc((size_t)(work.count - first) * SONDE_MODE_COUNT,
                                   sizeof *work.looks);
    }
    if (work.tensors == NULL || work.ids == NULL || (looks && work.looks == NULL) ||
        !sonde__observe_map_reserve(&attachment->map)) {
        err = sonde__fail_nomem(diag, "a hook's taps");
        goto error;
    }
    err = attach(&work);
error:
    sonde__free(work.tensors);
    sonde__free(work.looks);
    sonde__free(work.ids);
    return err;
}

static sonde_err extend(void *user, uint32_t first, sonde_diag *diag)
{
    return attach_from(user, first, diag);
}

/* mode: of the steps, or ANY_MODE. */
static sonde_err attach_to(sonde_hook *hook, const sonde_catalogue *catalogue, int mode,
                           sonde_observer *observer, sonde_diag *diag)
{
    SONDE__TRY(sonde__hook_settle(hook, diag));
    sonde__hook_attachment *attachment = sonde__calloc(1, sizeof *attachment);
    if (attachment == NULL) {
        return sonde__fail_nomem(diag, "a hook's taps");
    }
    attachment->next = hook->attachments;
    hook->attachments = attachment; /* stays, for the taps that do */
    attachment->hook = hook;
    attachment->map = (sonde__observe_map){
        .from = catalogue, .to = hook->catalogue, .declare = declare_tensor};
    attachment->observer = observer;
    attachment->mode = mode;
    attachment->ends = sonde__calloc(ENDS_OF_ONE * hook->setup.collection_count + 4,
                                     sizeof *attachment->ends);
    if (attachment->ends == NULL) {
        return sonde__fail_nomem(diag, "a hook's taps");
    }
    SONDE__TRY(attach_from(attachment, 0, diag));
    return sonde__observer_on_extend(observer, extend, attachment, diag);
}

sonde_err sonde_hook_attach(sonde_hook *hook, const sonde_catalogue *catalogue,
                            sonde_mode mode, sonde_observer *observer, sonde_diag *diag)
{
    SONDE__NEEDS(diag, hook, catalogue, observer);
    if ((unsigned)mode >= SONDE_MODE_GLOBAL) {
        return sonde__fail(diag, SONDE_EINVAL, "hook", "train, eval or predict",
                           "mode %d", (int)mode);
    }
    return attach_to(hook, catalogue, (int)mode, observer, diag);
}

sonde_err sonde__hook_watch(sonde_hook *hook, const sonde_catalogue *catalogue,
                            sonde_mode mode, const int64_t *role_every,
                            sonde_observer *observer, sonde_diag *diag)
{
    if (hook->attachments != NULL && !hook->watched) {
        return sonde__fail(diag, SONDE_ESTATE, "hook",
                           "steps of the session it is attached to",
                           "a step of a hook whose steps a session counts");
    }
    hook->watched = true;
    hook->role_every = role_every;
    hook->setup.others = role_every[SONDE_ROLE_OTHER] > 0;
    if (mode != SONDE_MODE_GLOBAL && sonde__observe_says_global(&hook->setup)) {
        sonde_log(SONDE_LOG_WARNING, "hook",
                  "the schedule of mode global holds where the mode is global; steps are "
                  "of mode %s",
                  sonde_mode_name(mode));
    }
    return attach_to(hook, catalogue, ANY_MODE, observer, diag);
}
