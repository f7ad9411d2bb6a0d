/*
 * attach.c - a hook as taps on somebody's observer.
 *
 * Each collection becomes up to three taps, all of which end in this file:
 *
 *     save     its tensors, on its schedule, as its reductions say
 *     watch    what its when_nan looks at: vital signs at every step
 *     hold     its tensors, raw, at every step, to be kept until the step ends, if it has a
 *              when_nan
 *
 * and the vital signs that are recorded anyway become two more, of which those of parameters
 * and gradients come at any step at which they are not finite. An observer hands a value to
 * its taps in the order in which they were added, so save, watch and hold come in this
 * order: whoever holds knows what is recorded already and whether a NaN has been seen. A
 * tensor in several collections that are due comes several times; its bits of `done` see to
 * it that each part of it is recorded once.
 */
#include "hook/hook_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include "observe/tensor_names.h"
#include "observe/observer_state.h"

#include <string.h>

typedef enum tap_kind { SAVE, WATCH, HOLD } tap_kind;

/* Where a tap ends. */
typedef struct end {
    sonde_sink sink; /* first */
    sonde_hook *hook;
    const sonde__attachment *to;
    tap_kind kind;
    uint64_t set; /* the collection's bit */
    unsigned how;
} end;

enum { MOST_ENDS = 3 * SONDE__MOST_COLLECTIONS + 2 };

struct sonde__attachment {
    sonde__attachment *next;
    uint32_t *map; /* ids of the catalogue attached to -> ids of the hook's */
    size_t held_values, held_bytes; /* of a step, at most */
    end ends[MOST_ENDS];
    size_t end_count;
};

void sonde__hook_detach_all(sonde_hook *hook)
{
    while (hook->attachments != NULL) {
        sonde__attachment *first = hook->attachments;

        hook->attachments = first->next;
        sonde__free(first->map);
        sonde__free(first);
    }
}

/* --- while stepping --------------------------------------------------------------- */

/* The tensor, with done that of this very value. */
static sonde__hook_tensor *find(sonde_hook *hook, uint32_t id, const sonde_coordinate *at)
{
    sonde__hook_tensor *of = &hook->tensors[id];

    if (of->count == 0 || of->step != at->global_step ||
        of->micro_batch != at->micro_batch || of->replica != at->replica) {
        of->count = 1;
        of->step = at->global_step;
        of->micro_batch = at->micro_batch;
        of->replica = at->replica;
        of->done = 0;
    }
    return of;
}

static void save(sonde_hook *hook, uint32_t id, const sonde_observation *seen,
                 unsigned how)
{
    sonde__hook_tensor *of = find(hook, id, &seen->at);
    const unsigned missing = how & ~(unsigned)of->done;

    if (missing != 0) {
        of->done |= (uint8_t)missing;
        sonde__hook_emit(hook, id, &seen->at, seen->view, seen->vitals, seen->sketch,
                         missing);
    }
}

static void put(sonde_sink *sink, const sonde_observation *seen)
{
    const end *at = (const end *)sink;
    sonde_hook *hook = at->hook;
    const uint32_t id = at->to->map[seen->id];

    switch (at->kind) {
    case SAVE:
        save(hook, id, seen, at->how);
        break;
    case WATCH:
        if ((hook->tripped & at->set) == 0 &&
            seen->vitals->nan + seen->vitals->pos_inf + seen->vitals->neg_inf > 0) {
            sonde__hook_trip(hook, at->set);
        }
        break;
    case HOLD:
        if ((hook->tripped & at->set) != 0) {
            save(hook, id, seen, at->how);
        } else if ((at->how & ~(unsigned)find(hook, id, &seen->at)->done) != 0) {
            sonde__hook_hold(hook, id, &seen->at, seen->view, at->set,
                             find(hook, id, &seen->at)->done);
        }
        break;
    }
}

/* --- binding ---------------------------------------------------------------------- */

/* Room for all that a step may have to hold. */
static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    const end *at = (const end *)sink;
    sonde__attachment *to = at->hook->attachments; /* the newest is being bound */
    const size_t values = (size_t)shape->micro_batches * (size_t)shape->replicas;
    size_t bytes = sonde_dtype_size(info->dtype);
    bool fits = true;

    (void)id;
    (void)how;
    if (at->kind != HOLD) {
        return SONDE_OK;
    }
    for (int i = 0; i < info->rank; i++) {
        fits = fits && sonde__mul(bytes, (size_t)info->shape[i], &bytes);
    }
    fits = fits && bytes < SIZE_MAX / 4 &&
           sonde__mul(sonde__hook_held_size(bytes), values, &bytes) &&
           !__builtin_add_overflow(to->held_bytes, bytes, &to->held_bytes);
    to->held_values += values;
    return fits ? sonde__hook_reserve(at->hook, to->held_values, to->held_bytes, diag)
                : sonde__fail_nomem(diag, "the values that a when_nan may want");
}

static end *add_end(sonde_hook *hook, sonde__attachment *to, tap_kind kind, uint64_t set,
                    unsigned how)
{
    end *at = &to->ends[to->end_count++];

    *at = (end){.sink = {.prepare = prepare, .put = put},
                .hook = hook,
                .to = to,
                .kind = kind,
                .set = set,
                .how = how};
    return at;
}

/* What an attachment is made from. */
typedef struct attaching {
    sonde_hook *hook;
    sonde__attachment *to;
    const sonde_catalogue *catalogue;
    uint32_t count;
    sonde__hook_tensor *tensors; /* by the catalogue's ids */
    uint32_t *ids;               /* scratch */
    sonde_mode mode;
    sonde_observer *observer;
    sonde_diag *diag;
} attaching;

/* A tap on the ids of scratch, if there are any and it is ever due. */
static sonde_err add_tap(attaching *work, size_t count, const sonde_schedule *when,
                         bool when_bad, unsigned tap_how, const char *name, tap_kind kind,
                         uint64_t set, unsigned how)
{
    sonde_tap tap = {.how = tap_how, .when_bad = when_bad};
    sonde_selector *what = NULL;
    sonde_err err = SONDE_OK;

    if (count == 0 || sonde_schedule_next(when, 0) == SONDE_SCHEDULE_NEVER) {
        return SONDE_OK;
    }
    err = sonde__selector_create_exact(name, &what, work->diag);
    if (err != SONDE_OK) {
        return err;
    }
    tap.what = what;
    tap.when[work->mode] = *when;
    tap.where = &add_end(work->hook, work->to, kind, set, how)->sink;
    err = sonde__observer_add_ids(work->observer, &tap, work->ids, count, work->diag);
    sonde_selector_destroy(what);
    return err;
}

/* Lists in scratch the tensors of which a mask has a bit. */
static size_t list(attaching *work, uint64_t member, uint64_t watch, unsigned vital)
{
    size_t n = 0;

    for (uint32_t id = 0; id < work->count; id++) {
        const sonde__hook_tensor *of = &work->tensors[id];

        if ((of->member & member) != 0 || (of->watch[work->mode] & watch) != 0 ||
            (of->vital & vital) != 0) {
            work->ids[n++] = id;
        }
    }
    return n;
}

static sonde_err add_saves(attaching *work)
{
    sonde_hook *hook = work->hook;
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < hook->collection_count && err == SONDE_OK; i++) {
        const sonde__collection *of = &hook->collections[i];

        if (of->saved) {
            err = add_tap(work, list(work, UINT64_C(1) << i, 0, 0), &of->when[work->mode],
                          false, of->how, of->name, SAVE, UINT64_C(1) << i, of->how);
        }
    }
    return err;
}

static sonde_err add_vitals(attaching *work)
{
    const bool trains = work->mode == SONDE_MODE_TRAIN;
    const sonde_schedule always = sonde_schedule_always();
    const sonde_schedule often = sonde_schedule_every(work->hook->options.vitals_every);
    sonde_err err =
        add_tap(work, list(work, 0, 0, SONDE__VITAL_ALWAYS), &always, false,
                SONDE_HOW_VITALS, "vital signs of losses", SAVE, 0, SONDE_HOW_VITALS);

    if (err == SONDE_OK && trains) {
        err = add_tap(work, list(work, 0, 0, SONDE__VITAL_EVERY), &often,
                      work->hook->options.vitals_every > 1, SONDE_HOW_VITALS,
                      "vital signs", SAVE, 0, SONDE_HOW_VITALS);
    }
    return err;
}

static sonde_err add_when_nans(attaching *work)
{
    const sonde_schedule always = sonde_schedule_always();
    const uint64_t nan_sets = work->hook->nan_sets[work->mode];
    sonde_err err = SONDE_OK;

    for (uint64_t sets = nan_sets; sets != 0 && err == SONDE_OK; sets &= sets - 1) {
        const uint64_t set = sets & (~sets + 1);
        const sonde__collection *of = &work->hook->collections[__builtin_ctzll(set)];

        err = add_tap(work, list(work, 0, set, 0), &always, false, SONDE_HOW_VITALS,
                      of->name, WATCH, set, SONDE_HOW_VITALS);
    }
    for (uint64_t sets = nan_sets; sets != 0 && err == SONDE_OK; sets &= sets - 1) {
        const uint64_t set = sets & (~sets + 1);
        const sonde__collection *of = &work->hook->collections[__builtin_ctzll(set)];

        err = add_tap(work, list(work, set, 0, 0), &always, false, SONDE_HOW_RAW,
                      of->name, HOLD, set, of->how);
    }
    return err;
}

/* The hook's own id of a tensor; of an alias, behind that of its tensor. */
static sonde_err map_tensor(attaching *work, uint32_t id)
{
    sonde_tensor_info info = *sonde_catalogue_info(work->catalogue, id);
    uint32_t known = sonde__hook_tensor_named(work->hook, info.name);
    sonde_err err = SONDE_OK;

    if (known == SONDE_NO_TENSOR && info.same_as != id) {
        err = map_tensor(work, info.same_as);
        if (err == SONDE_OK) {
            sonde__observe_make_alias(&info, work->hook->catalogue,
                                      work->to->map[info.same_as]);
        }
    } else {
        info.same_as = SONDE_NO_TENSOR;
    }
    if (err == SONDE_OK && known == SONDE_NO_TENSOR) {
        err = sonde__hook_add_tensor(work->hook, &info, &work->tensors[id], &known,
                                     work->diag);
    }
    work->to->map[id] = known;
    return err;
}

/* The hook's own ids of the tensors that are ever recorded. */
static sonde_err map_tensors(attaching *work)
{
    sonde_err err = SONDE_OK;

    for (uint32_t id = 0; id < work->count && err == SONDE_OK; id++) {
        if (work->tensors[id].member != 0 || work->tensors[id].vital != 0) {
            err = map_tensor(work, id);
        }
    }
    return err;
}

static sonde_err attach(attaching *work)
{
    sonde_err err = sonde__hook_members(work->hook, work->catalogue, 0,
                                        !work->hook->resolved, work->tensors, work->diag);

    if (err == SONDE_OK) {
        if (work->hook->graph[0] == '\0') {
            sonde__hook_digest(work->catalogue, work->hook->graph);
        }
        work->hook->resolved = true;
        err = map_tensors(work);
    }
    if (err == SONDE_OK) {
        err = add_saves(work);
    }
    if (err == SONDE_OK) {
        err = add_vitals(work);
    }
    return err == SONDE_OK ? add_when_nans(work) : err;
}

sonde_err sonde_hook_attach(sonde_hook *hook, const sonde_catalogue *catalogue,
                            sonde_mode mode, sonde_observer *observer, sonde_diag *diag)
{
    attaching work = {.hook = hook,
                      .catalogue = catalogue,
                      .mode = mode,
                      .observer = observer,
                      .diag = diag};
    sonde_err err = SONDE_OK;

    if ((unsigned)mode >= SONDE_MODE_GLOBAL) {
        return sonde__fail(diag, SONDE_EINVAL, "hook", "train, eval or predict",
                           "mode %d", (int)mode);
    }
    err = sonde__hook_settle(hook, diag);
    if (err != SONDE_OK) {
        return err;
    }
    work.count = sonde_catalogue_count(catalogue);
    work.to = sonde__calloc(1, sizeof *work.to);
    work.tensors = sonde__calloc(work.count, sizeof *work.tensors);
    work.ids = sonde__calloc(work.count, sizeof *work.ids);
    if (work.to != NULL) {
        work.to->map = sonde__calloc(work.count, sizeof *work.to->map);
        work.to->next = hook->attachments;
        hook->attachments = work.to; /* stays, for the taps that do */
    }
    err = work.to != NULL && work.to->map != NULL && work.tensors != NULL &&
                  work.ids != NULL
              ? attach(&work)
              : sonde__fail_nomem(diag, "a hook's taps");
    sonde__free(work.tensors);
    sonde__free(work.ids);
    return err;
}
