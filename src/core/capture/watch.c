/*
 * watch.c - slots seen once a step.
 *
 * A slot is a tensor of the watch's own catalogue, and its number is the tensor's id.
 * Nothing is bound until the first step: `wants` points to zeros that the watch owns, so
 * that a slot may be shown at any time. From then on it points to the observer's.
 */
#include <sonde/watch.h>

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "capture/hook_state.h"
#include "rules/engine.h"
#include "tensor/convert.h"
#include "tensor/vitals.h"

#include <sonde/log.h>
#include "observe/attach.h"
#include "observe/tensor_roles.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

typedef struct slot {
    bool added;
    int64_t step; /* global, of the last value that was due */
    int count;    /* values at that step */
    bool known;   /* vitals are of that step */
    sonde_vitals vitals;
    sonde__watch_update *update; /* NULL: not an update */
} slot;

typedef struct watch {
    sonde_watch face; /* first */
    sonde_hook *hook;
    sonde_rules *rules;
    int64_t rules_every, rules_raw_every, every[SONDE_ROLE_COUNT];
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    const sonde_observer_gate *gate;
    slot *slots; /* by id */
    size_t capacity;
    uint8_t *zeros;
    uint8_t *checks; /* by id: 1 if it is checked at a step where it is not due */
    size_t zero_capacity, check_capacity;
    bool checking[SONDE_MODE_COUNT];   /* the mode has steps at which it matters */
    unsigned checked_roles;            /* bit r: slots of role r are checked */
    bool attached, ruled, bound, open; /* completed parts of the first step */
    sonde_call_shape shape;
    bool complained; /* of an invalid value */
    bool calls;      /* the program's own taps expect begin_call */
    bool stepping, due;
    sonde__observe_steps steps; /* without a hook, which counts them else */
    sonde_coordinate at;
    unsigned roles; /* bit r: there are slots of role r */
    /* The next step of a mode, plus 1, at which the rules' own schedule for a role is due;
     * 0: not known. */
    int64_t next_look[SONDE_ROLE_COUNT][SONDE_MODE_COUNT];
} watch;

static watch *self(sonde_watch *face)
{
    return (watch *)(void *)face; /* its first member */
}

static const watch *self_const(const sonde_watch *face)
{
    return (const watch *)(const void *)face;
}

/* --- life ------------------------------------------------------------------------- */

static void destroy(watch *made)
{
    for (size_t i = 0; made->catalogue != NULL && made->slots != NULL &&
                       i < sonde_catalogue_count(made->catalogue) && i < made->capacity;
         i++) {
        sonde__watch_update_destroy(made->slots[i].update);
    }
    sonde__free(made->slots);
    sonde__free(made->zeros);
    sonde__free(made->checks);
    sonde_observer_destroy(made->observer);
    sonde_catalogue_destroy(made->catalogue);
    sonde__free(made);
}

sonde_err sonde_watch_create(const sonde_watch_options *given, sonde_watch **out,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_watch_options taken;
    const sonde_watch_options *const options = &taken;
    SONDE__TAKE(sonde_watch_options, &taken, given, diag);
    const int64_t least =
        SONDE_MIN(SONDE_MIN(options->rules_every, options->rules_raw_every),
                  SONDE_MIN(options->micro_batches, options->replicas));
    sonde_err err = SONDE_OK;

    if (least < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "watch", "counts of 0 or more", "%lld",
                           (long long)least);
    }
    watch *made = sonde__calloc(1, sizeof *made);

    if (made == NULL) {
        return sonde__fail_nomem(diag, "a watch");
    }
    made->shape = (sonde_call_shape){1, 1, 1};
    memcpy(made->every, options->every, sizeof made->every);
    made->rules = options->rules;
    made->rules_every = options->rules_every;
    made->rules_raw_every = options->rules_raw_every;
    made->shape.micro_batches = SONDE_MAX(options->micro_batches, 1);
    made->shape.replicas = SONDE_MAX(options->replicas, 1);
    SONDE__TRY_GO(sonde_catalogue_create(&made->catalogue, diag));
    SONDE__TRY_GO(sonde_observer_create(made->catalogue, &made->observer, diag));
    made->hook = options->hook;
    made->gate = sonde_observer_get_gate(made->observer);
    *out = &made->face;
    return SONDE_OK;

error:
    destroy(made);
    return err;
}

sonde_err sonde_watch_close(sonde_watch *face, sonde_run_end reason, const char *text,
                            sonde_diag *diag)
{
    watch *closed = self(face);

    if (closed == NULL) {
        return SONDE_OK;
    }
    sonde_watch_end_step(face);
    if (closed->ruled) {
        sonde_rules_finish(closed->rules);
    }
    sonde_err err = sonde_hook_close(closed->hook, reason, text, diag);
    destroy(closed);
    return err;
}

const sonde_catalogue *sonde_watch_catalogue(const sonde_watch *face)
{
    return face != NULL ? self_const(face)->catalogue : NULL;
}

sonde_observer *sonde_watch_observer(sonde_watch *face)
{
    if (face == NULL) {
        return NULL;
    }
    self(face)->calls = true;
    return self(face)->observer;
}

/* --- slots ------------------------------------------------------------------------ */

/* Declares a tensor, or finds it if an add of it failed later on. */
static sonde_err declare(watch *on, const sonde_tensor_info *info, uint32_t *id,
                         sonde_diag *diag)
{
    const sonde_err err = sonde_catalogue_declare(on->catalogue, info, id, diag);
    uint32_t known = 0;

    if (err == SONDE_EEXIST &&
        sonde_catalogue_find(on->catalogue, info->name, &known, NULL) == SONDE_OK &&
        !on->slots[known].added) {
        *id = known;
        return SONDE_OK;
    }
    return err;
}

/* Room for bytes by slot, the new ones 0. */
static bool reserve_bytes(uint8_t **bytes, size_t *capacity, size_t count)
{
    const size_t before = *capacity;

    if (!sonde__reserve(bytes, capacity, count, sizeof **bytes)) {
        return false;
    }
    memset(*bytes + before, 0, *capacity - before);
    return true;
}

/* Sets where see looks up what is checked at this step. */
static void set_checks(watch *on)
{
    on->face.checks = on->stepping && on->checking[on->at.mode] ? on->checks : on->zeros;
}

static sonde_err reserve(watch *on, size_t count, sonde_diag *diag)
{
    if (!sonde__reserve(&on->slots, &on->capacity, count, sizeof *on->slots) ||
        !reserve_bytes(&on->zeros, &on->zero_capacity, count) ||
        !reserve_bytes(&on->checks, &on->check_capacity, count)) {
        return sonde__fail_nomem(diag, "a slot");
    }
    if (!on->bound) {
        on->face.wants = on->zeros;
    }
    set_checks(on);
    return SONDE_OK;
}

/* Settles which slots from `first` on are checked, once the observer has them. */
static void choose_checks(watch *on, uint32_t first)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        on->checking[mode] = sonde__observer_when_bad_in(on->observer, (sonde_mode)mode);
    }
    for (uint32_t id = first; id < sonde_catalogue_count(on->catalogue); id++) {
        const sonde_role role = sonde_catalogue_info(on->catalogue, id)->role;

        if (on->rules_every == 0 && on->every[role] == 0 && role != SONDE_ROLE_UPDATE &&
            sonde_observer_when_bad(on->observer, id)) {
            on->checks[id] = 1;
            on->checked_roles |= 1U << role;
        }
    }
    set_checks(on);
}

/* Adds a new tensor to the observer, for the current step too. */
static sonde_err extend(watch *on, uint32_t first, sonde_diag *diag)
{
    const sonde_err err = sonde_observer_extend(on->observer, diag);

    on->face.wants = on->gate->wants;
    if (err != SONDE_OK) {
        return err;
    }
    choose_checks(on, first);
    if (on->stepping) {
        on->due = sonde_observer_begin_due(on->observer, &on->at);
    }
    return SONDE_OK;
}

sonde_err sonde_watch_add(sonde_watch *face, const sonde_tensor_info *info,
                          uint32_t *slot_out, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, info, slot", face, info, slot_out);
    watch *on = self(face);
    sonde_tensor_info own = *info;
    const uint32_t count = sonde_catalogue_count(on->catalogue);
    uint32_t id = 0;
    SONDE__TRY(reserve(on, (size_t)count + 1, diag));
    sonde__observe_guess(&own);
    own.same_as = SONDE_NO_TENSOR;
    on->slots[count] = (slot){.step = -1};
    SONDE__TRY(declare(on, &own, &id, diag));
    if (on->bound) {
        SONDE__TRY(extend(on, id, diag));
    }
    on->slots[id].added = true;
    on->roles |= 1U << own.role;
    *slot_out = id;
    return SONDE_OK;
}

sonde_err sonde_watch_add_view(sonde_watch *face, const char *name,
                               const sonde_view *view, uint32_t *slot_out,
                               sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, name, view, slot", face, name, view, slot_out);
    sonde_tensor_info info = {
        .name = name, .role = SONDE_ROLE_OTHER, .dtype = view->dtype, .rank = view->rank};

    memcpy(info.shape, view->shape, sizeof info.shape);
    return sonde_watch_add(face, &info, slot_out, diag);
}

/* Whether a slot was added. */
static bool is_slot(const watch *on, uint32_t id)
{
    return id < sonde_catalogue_count(on->catalogue) && on->slots[id].added;
}

sonde_err sonde_watch_add_alias(sonde_watch *face, uint32_t named, const char *name,
                                sonde_diag *diag)
{
    watch *on = self(face);
    uint32_t id = 0;

    SONDE__NEEDS(diag, face, name);
    if (!is_slot(on, named)) {
        return sonde__fail(diag, SONDE_ERANGE, name, "a slot", "a name for slot %lu",
                           (unsigned long)named);
    }
    SONDE__TRY(reserve(on, (size_t)sonde_catalogue_count(on->catalogue) + 1, diag));
    on->slots[sonde_catalogue_count(on->catalogue)] = (slot){.step = -1};
    sonde_tensor_info info = *sonde_catalogue_info(on->catalogue, named);
    info.name = name;
    info.same_as = named;
    SONDE__TRY(declare(on, &info, &id, diag));
    if (on->bound) {
        SONDE__TRY(extend(on, id, diag));
    }
    on->slots[id].added = true;
    return SONDE_OK;
}

sonde_err sonde_watch_add_update(sonde_watch *face, uint32_t parameter,
                                 uint32_t *slot_out, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, slot", face, slot_out);
    static const char prefix[] = "update/";
    watch *on = self(face);
    char *name = NULL;
    sonde_err err = SONDE_OK;

    if (!is_slot(on, parameter)) {
        return sonde__fail(diag, SONDE_ERANGE, "the update of a slot", "a slot",
                           "slot %lu", (unsigned long)parameter);
    }
    sonde_tensor_info info = *sonde_catalogue_info(on->catalogue, parameter);
    if (!sonde_dtype_is_float(info.dtype)) {
        return sonde__fail(diag, SONDE_EDTYPE, info.name, "a floating dtype",
                           "the update of a tensor of %s", sonde_dtype_name(info.dtype));
    }
    info.role = SONDE_ROLE_UPDATE;
    info.pass = SONDE_PASS_UPDATE;
    info.dtype = info.dtype == SONDE_F64 ? SONDE_F64 : SONDE_F32;
    sonde__watch_update *made = sonde__watch_update_create(&info);
    name = sonde__malloc(sizeof prefix + strlen(info.name));
    if (made == NULL || name == NULL) {
        err = sonde__fail_nomem(diag, "the update of a slot");
        goto error;
    }
    (void)sprintf(name, "%s%s", prefix, info.name);
    info.name = name;
    SONDE__TRY_GO(sonde_watch_add(face, &info, slot_out, diag));
    on->slots[*slot_out].update = made;
    sonde__free(name);
    return SONDE_OK;

error:
    sonde__free(name);
    sonde__watch_update_destroy(made);
    return err;
}

/* --- the first step --------------------------------------------------------------- */

static sonde_err bind(watch *started, sonde_diag *diag)
{
    SONDE__TRY(sonde_observer_bind(started->observer, &started->shape, diag));
    started->bound = true;
    started->face.wants = started->gate->wants;
    choose_checks(started, 0);
    return SONDE_OK;
}

/* Attaches the hook and the rules, binds the observer and opens the run, each once. After
 * a failure, the next call continues there. */
static sonde_err start(watch *started, sonde_mode mode, sonde_diag *diag)
{
    if (!started->attached && started->hook != NULL) {
        SONDE__TRY(sonde__hook_watch(started->hook, started->catalogue, mode,
                                     started->every, started->observer, diag));
    }
    started->attached = true;
    if (!started->ruled && started->rules != NULL) {
        SONDE__TRY(sonde__rules_attach(started->rules, started->catalogue,
                                       started->observer, started->rules_every,
                                       started->rules_raw_every, started->every, diag));
        started->ruled = true;
    }
    if (!started->bound) {
        SONDE__TRY(bind(started, diag));
    }
    if (started->hook != NULL) {
        SONDE__TRY(sonde_hook_open(started->hook, diag));
    }
    started->open = true;
    return SONDE_OK;
}

/* --- steps ------------------------------------------------------------------------ */

sonde_err sonde_watch_begin_step(sonde_watch *face, sonde_mode mode, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch", face);
    watch *on = self(face);

    sonde_watch_end_step(face);
    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "watch", "a sonde_mode", "mode %d",
                           (int)mode);
    }
    if (!on->open) {
        SONDE__TRY(start(on, mode, diag));
    }
    if (on->hook != NULL) {
        on->at = (sonde_coordinate){.mode = mode};
        sonde_hook_next_step(on->hook, 0, &on->at);
    } else {
        on->at = sonde__observe_take_step(&on->steps, mode, 0);
    }
    if (on->calls) {
        sonde_observer_begin_call(on->observer);
    }
    on->stepping = true;
    on->due = sonde_observer_begin_step(on->observer, on->gate, &on->at);
    set_checks(on);
    return SONDE_OK;
}

void sonde_watch_end_step(sonde_watch *face)
{
    watch *on = self(face);

    if (face == NULL || !on->stepping) {
        return;
    }
    if (on->due) {
        sonde_observer_end_step(on->observer);
    }
    if (on->hook != NULL) {
        sonde_hook_step_done(on->hook);
    }
    on->stepping = false;
    on->due = false;
    set_checks(on);
}

/* --- steps whose values arrive later -------------------------------------------- */

void sonde_watch_leave_step(sonde_watch *face)
{
    watch *on = self(face);

    if (face == NULL || !on->stepping) {
        return;
    }
    sonde__observer_drop_step(on->observer);
    sonde__hook_leave_step(on->hook);
    on->stepping = false;
    on->due = false;
    set_checks(on);
}

void sonde_watch_return_to(sonde_watch *face, const sonde_coordinate *at)
{
    watch *on = self(face);

    if (face == NULL || at == NULL || (unsigned)at->mode >= SONDE_MODE_COUNT ||
        !on->open) {
        return;
    }
    sonde_watch_leave_step(face);
    on->at = *at;
    memset(on->next_look, 0, sizeof on->next_look);
    sonde__hook_return_to(on->hook, at);
    if (on->calls) {
        sonde_observer_begin_call(on->observer);
    }
    on->stepping = true;
    on->due = sonde_observer_begin_due(on->observer, at);
    set_checks(on);
}

/* --- what is due ------------------------------------------------------------------ */

/* The first step >= step at which rules look at a role. */
static int64_t next_look(const sonde_rules *rules, sonde_role role, sonde_mode mode,
                         int64_t step)
{
    const sonde_rules_looks looks = sonde_rules_looks_of_role(rules, role, mode);
    int64_t next = SONDE_SCHEDULE_NEVER;

    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        next = SONDE_MIN(next, sonde_schedule_next(&looks.when[form], step));
    }
    return next;
}

/* The same if the program says how often to look at the role, ... */
static int64_t next_said(int64_t every, int64_t step)
{
    sonde_schedule when = {0};

    sonde__observe_thin(&when, every, true);
    return sonde_schedule_next(&when, step);
}

/* ... and for the rules of the watch. */
static int64_t next_judged(const watch *on, sonde_role role, int64_t step)
{
    const sonde_schedule all = sonde__observe_judged(on->rules_every);

    return on->rules_every > 0 ? sonde_schedule_next(&all, step)
                               : next_look(on->rules, role, on->at.mode, step);
}

/* Whether a slot of a role that has none yet would be due. A hook with a configuration of
 * its own, and taps of the program, may want it at any step. */
static bool may_be_due(watch *on, sonde_role role)
{
    const sonde__observe_setup *setup = on->hook != NULL ? &on->hook->setup : NULL;
    const sonde_mode mode = on->at.mode;
    const int64_t step = on->at.mode_step;
    const bool judged = on->rules != NULL;
    const bool recorded = setup != NULL && !setup->no_vitals;
    int64_t *next = &on->next_look[role][mode];

    if (on->calls || (setup != NULL && (setup->configured || !setup->looks))) {
        return true;
    }
    if (*next <= step) { /* one more than it is: 0 is not known */
        int64_t due = SONDE_SCHEDULE_NEVER;

        if (on->every[role] != 0 && (judged || recorded)) {
            due = next_said(on->every[role], step);
        } else if (on->every[role] == 0) {
            due = judged ? next_judged(on, role, step) : due;
            due = recorded ? SONDE_MIN(due, next_look(NULL, role, mode, step)) : due;
        }
        *next = SONDE_MIN(due, INT64_MAX - 1) + 1;
    }
    return *next == step + 1;
}

unsigned sonde_watch_wants_role(sonde_watch *face, sonde_role role)
{
    watch *on = self(face);

    if (face == NULL || (unsigned)role >= SONDE_ROLE_COUNT || !on->stepping) {
        return 0;
    }
    if ((on->roles >> role & 1U) == 0) {
        return may_be_due(on, role) ? SONDE_HOW_ALL : 0U;
    }
    return on->due ? sonde__observer_role_wants(on->observer, role) : 0;
}

bool sonde_watch_is_bad(const sonde_view *view)
{
    return sonde__tensor_view_fault(view, true) == NULL &&
           !sonde__vitals_all_finite(view);
}

bool sonde_watch_checks_role(const sonde_watch *face, sonde_role role)
{
    const watch *on = self_const(face);

    return face != NULL && (unsigned)role < SONDE_ROLE_COUNT && on->stepping &&
           on->checking[on->at.mode] && (on->checked_roles >> role & 1U) != 0;
}

/* --- seeing ----------------------------------------------------------------------- */

/* Logs, once for a watch, that a value is ignored. */
static void refuse(watch *on, uint32_t id, const char *fault)
{
    if (!on->complained) {
        on->complained = true;
        sonde_log(SONDE_LOG_ERROR, "watch", "a value of '%s' is ignored: %s",
                  sonde_catalogue_info(on->catalogue, id)->name, fault);
    }
}

/* A slot at its first value of a step. */
static void renew(const watch *on, slot *seen)
{
    if (seen->step != on->at.global_step) {
        seen->step = on->at.global_step;
        seen->count = 0;
        seen->known = false;
        if (seen->update != NULL) {
            sonde__watch_update_restart(seen->update);
        }
    }
}

/* Observes vital signs with NaN or infinities that were not due. */
static void see_bad(watch *on, uint32_t id, const sonde_view *view,
                    const sonde_vitals *vitals, int micro_batch, int replica)
{
    sonde_coordinate at = on->at;

    at.micro_batch = micro_batch;
    at.replica = replica;
    on->slots[id].known = true;
    on->due = true; /* the step must be ended */
    sonde_observer_observe_bad(on->observer, &at, id, view, vitals);
}

static void take_signs(const sonde_view *view, bool norms, sonde_vitals *vitals)
{
    if (norms) {
        sonde_norms_of(view, vitals);
    } else {
        sonde_vitals_of(view, vitals);
    }
}

static bool is_bad(const sonde_vitals *vitals)
{
    return vitals->nan + vitals->pos_inf + vitals->neg_inf > 0;
}

/* Observes a value; micro_batch -1: the next one. */
static void see(watch *on, uint32_t id, const sonde_view *view, int micro_batch,
                int replica)
{
    slot *seen = &on->slots[id];
    const unsigned wanted = on->face.wants[id];
    const char *fault = sonde__tensor_view_fault(view, true);
    const sonde_vitals *vitals = NULL;
    bool taken = false;

    if (fault != NULL) {
        refuse(on, id, fault);
        return;
    }
    renew(on, seen);
    if (seen->update != NULL) {
        if (!sonde__watch_update_show(
                seen->update, view,
                (wanted & SONDE_HOW_VITALS) != 0 ? &seen->vitals : NULL, &taken)) {
            return;
        }
        view = sonde__watch_update_value(seen->update);
    }
    if (micro_batch < 0) {
        micro_batch = seen->count++;
    }
    if ((wanted & SONDE_HOW_SIGNS) != 0) {
        if (!taken) {
            take_signs(view, (wanted & SONDE_HOW_VITALS) == 0, &seen->vitals);
        }
        seen->known = true;
        vitals = &seen->vitals;
    }
    if ((wanted & SONDE_HOW_VITALS) == 0 && on->face.checks[id] != 0 &&
        (vitals != NULL ? is_bad(vitals) : !sonde__vitals_all_finite(view))) {
        sonde_vitals_of(view, &seen->vitals);
        see_bad(on, id, view, &seen->vitals, micro_batch, replica);
    }
    if (wanted != 0) {
        sonde_observer_observe(on->observer, id, view, vitals, micro_batch, replica);
    }
}

void sonde_watch_see_due(sonde_watch *face, uint32_t id, const sonde_view *view)
{
    if (face != NULL && is_slot(self(face), id)) {
        see(self(face), id, view, -1, 0);
    }
}

void sonde_watch_see_replica(sonde_watch *face, uint32_t id, const sonde_view *view,
                             int micro_batch, int replica)
{
    watch *on = self(face);

    if (face == NULL || !is_slot(on, id) || (face->wants[id] | face->checks[id]) == 0) {
        return;
    }
    if (micro_batch < 0 || micro_batch >= on->shape.micro_batches || replica < 0 ||
        replica >= on->shape.replicas) {
        refuse(on, id, "its micro-batch or replica is not below that of the options");
        return;
    }
    see(on, id, view, micro_batch, replica);
}

void sonde_watch_see_vitals(sonde_watch *face, uint32_t id, const sonde_view *view,
                            const sonde_vitals *vitals)
{
    watch *on = self(face);

    if (face == NULL || vitals == NULL || !is_slot(on, id)) {
        return;
    }
    const bool due = (face->wants[id] & SONDE_HOW_SIGNS) != 0 &&
                     (face->wants[id] & ~(unsigned)SONDE_HOW_SIGNS) == 0;
    if ((due && (face->wants[id] & SONDE_HOW_VITALS) && sonde_vitals_are_norms(vitals)) ||
        (!due && (face->wants[id] != 0 || face->checks[id] == 0 || !is_bad(vitals)))) {
        return;
    }
    const char *fault = sonde__tensor_view_fault(view, false);
    if (fault != NULL) {
        refuse(on, id, fault);
        return;
    }
    renew(on, &on->slots[id]);
    on->slots[id].vitals = *vitals;
    on->slots[id].known = true;
    if (due) {
        sonde_observer_observe(on->observer, id, view, vitals, on->slots[id].count++, 0);
    } else {
        see_bad(on, id, view, vitals, on->slots[id].count++, 0);
    }
}

extern inline bool sonde_watch_checks(const sonde_watch *watch, uint32_t slot);
extern inline unsigned sonde_watch_wants(const sonde_watch *watch, uint32_t slot);
extern inline void sonde_watch_see(sonde_watch *watch, uint32_t slot,
                                   const sonde_view *view);

void sonde_watch_see_all(sonde_watch *face, const uint32_t *slots,
                         const sonde_view *views, size_t count)
{
    const watch *on = self(face);

    if (face == NULL || !on->stepping || slots == NULL || views == NULL ||
        (!on->due && !on->checking[on->at.mode])) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_slot(on, slots[i])) {
            sonde_watch_see(face, slots[i], &views[i]);
        }
    }
}

sonde_err sonde_watch_scalar(sonde_watch *face, const char *name, double value,
                             sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, name", face, name);
    if (name[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "scalar", "a name", "an empty name");
    }
    sonde_hook *hook = self(face)->hook;

    return hook != NULL ? sonde_hook_scalar(hook, name, value, diag) : SONDE_OK;
}

sonde_coordinate sonde_watch_where(const sonde_watch *face)
{
    return face != NULL ? self_const(face)->at : (sonde_coordinate){0};
}

bool sonde_watch_vitals(const sonde_watch *face, uint32_t id, sonde_vitals *vitals)
{
    const watch *on = self_const(face);

    if (face == NULL || vitals == NULL || !is_slot(on, id) || !on->slots[id].known ||
        on->slots[id].step != on->at.global_step) {
        return false;
    }
    *vitals = on->slots[id].vitals;
    return true;
}
