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

typedef struct watch_slot {
    bool added;
    int64_t step; /* global, of the last value that was due */
    int count;    /* values at that step */
    bool known;   /* vitals are of that step */
    sonde_vitals vitals;
    sonde__watch_update *update; /* NULL: not an update */
} watch_slot;

typedef struct watch_state {
    sonde_watch face; /* first */
    sonde_hook *hook;
    sonde_rules *rules;
    int64_t rules_every, rules_raw_every, every[SONDE_ROLE_COUNT];
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    const sonde_observer_gate *gate;
    watch_slot *slots; /* by id */
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
} watch_state;

static watch_state *self(sonde_watch *face)
{
    return (watch_state *)(void *)face; /* its first member */
}

static const watch_state *self_const(const sonde_watch *face)
{
    return (const watch_state *)(const void *)face;
}

/* --- life ------------------------------------------------------------------------- */

static void destroy(watch_state *watch)
{
    for (size_t i = 0; watch->catalogue != NULL && watch->slots != NULL &&
                       i < sonde_catalogue_count(watch->catalogue) && i < watch->capacity;
         i++) {
        sonde__watch_update_destroy(watch->slots[i].update);
    }
    sonde__free(watch->slots);
    sonde__free(watch->zeros);
    sonde__free(watch->checks);
    sonde_observer_destroy(watch->observer);
    sonde_catalogue_destroy(watch->catalogue);
    sonde__free(watch);
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
    watch_state *watch = sonde__calloc(1, sizeof *watch);

    if (watch == NULL) {
        return sonde__fail_nomem(diag, "a watch");
    }
    watch->shape = (sonde_call_shape){1, 1, 1};
    memcpy(watch->every, options->every, sizeof watch->every);
    watch->rules = options->rules;
    watch->rules_every = options->rules_every;
    watch->rules_raw_every = options->rules_raw_every;
    watch->shape.micro_batches = SONDE_MAX(options->micro_batches, 1);
    watch->shape.replicas = SONDE_MAX(options->replicas, 1);
    SONDE__TRY_GO(sonde_catalogue_create(&watch->catalogue, diag));
    SONDE__TRY_GO(sonde_observer_create(watch->catalogue, &watch->observer, diag));
    watch->hook = options->hook;
    watch->gate = sonde_observer_get_gate(watch->observer);
    *out = &watch->face;
    return SONDE_OK;

error:
    destroy(watch);
    return err;
}

sonde_err sonde_watch_close(sonde_watch *face, sonde_run_end reason, const char *text,
                            sonde_diag *diag)
{
    watch_state *watch = self(face);

    if (watch == NULL) {
        return SONDE_OK;
    }
    sonde_watch_end_step(face);
    if (watch->ruled) {
        sonde_rules_finish(watch->rules);
    }
    sonde_err err = sonde_hook_close(watch->hook, reason, text, diag);
    destroy(watch);
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
static sonde_err declare(watch_state *watch, const sonde_tensor_info *info, uint32_t *id,
                         sonde_diag *diag)
{
    const sonde_err err = sonde_catalogue_declare(watch->catalogue, info, id, diag);
    uint32_t known = 0;

    if (err == SONDE_EEXIST &&
        sonde_catalogue_find(watch->catalogue, info->name, &known, NULL) == SONDE_OK &&
        !watch->slots[known].added) {
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
static void set_checks(watch_state *watch)
{
    watch->face.checks =
        watch->stepping && watch->checking[watch->at.mode] ? watch->checks : watch->zeros;
}

static sonde_err reserve(watch_state *watch, size_t count, sonde_diag *diag)
{
    if (!sonde__reserve(&watch->slots, &watch->capacity, count, sizeof *watch->slots) ||
        !reserve_bytes(&watch->zeros, &watch->zero_capacity, count) ||
        !reserve_bytes(&watch->checks, &watch->check_capacity, count)) {
        return sonde__fail_nomem(diag, "a slot");
    }
    if (!watch->bound) {
        watch->face.wants = watch->zeros;
    }
    set_checks(watch);
    return SONDE_OK;
}

/* Settles which slots from `first` on are checked, once the observer has them. */
static void choose_checks(watch_state *watch, uint32_t first)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        watch->checking[mode] =
            sonde__observer_when_bad_in(watch->observer, (sonde_mode)mode);
    }
    for (uint32_t id = first; id < sonde_catalogue_count(watch->catalogue); id++) {
        const sonde_role role = sonde_catalogue_info(watch->catalogue, id)->role;

        if (watch->rules_every == 0 && watch->every[role] == 0 &&
            role != SONDE_ROLE_UPDATE && sonde_observer_when_bad(watch->observer, id)) {
            watch->checks[id] = 1;
            watch->checked_roles |= 1U << role;
        }
    }
    set_checks(watch);
}

/* Adds a new tensor to the observer, for the current step too. */
static sonde_err extend(watch_state *watch, uint32_t first, sonde_diag *diag)
{
    const sonde_err err = sonde_observer_extend(watch->observer, diag);

    watch->face.wants = watch->gate->wants;
    if (err != SONDE_OK) {
        return err;
    }
    choose_checks(watch, first);
    if (watch->stepping) {
        watch->due = sonde__observer_due_too(watch->observer, &watch->at);
    }
    return SONDE_OK;
}

sonde_err sonde_watch_add(sonde_watch *face, const sonde_tensor_info *info,
                          uint32_t *slot_out, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, info, slot", face, info, slot_out);
    watch_state *watch = self(face);
    sonde_tensor_info own = *info;
    const uint32_t count = sonde_catalogue_count(watch->catalogue);
    uint32_t id = 0;
    SONDE__TRY(reserve(watch, (size_t)count + 1, diag));
    sonde__observe_guess(&own);
    own.same_as = SONDE_NO_TENSOR;
    watch->slots[count] = (watch_slot){.step = -1};
    SONDE__TRY(declare(watch, &own, &id, diag));
    if (watch->bound) {
        SONDE__TRY(extend(watch, id, diag));
    }
    watch->slots[id].added = true;
    watch->roles |= 1U << own.role;
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
static bool is_slot(const watch_state *watch, uint32_t id)
{
    return id < sonde_catalogue_count(watch->catalogue) && watch->slots[id].added;
}

sonde_err sonde_watch_add_alias(sonde_watch *face, uint32_t named, const char *name,
                                sonde_diag *diag)
{
    watch_state *watch = self(face);
    uint32_t id = 0;

    SONDE__NEEDS(diag, face, name);
    if (!is_slot(watch, named)) {
        return sonde__fail(diag, SONDE_ERANGE, name, "a slot", "a name for slot %lu",
                           (unsigned long)named);
    }
    SONDE__TRY(reserve(watch, (size_t)sonde_catalogue_count(watch->catalogue) + 1, diag));
    watch->slots[sonde_catalogue_count(watch->catalogue)] = (watch_slot){.step = -1};
    sonde_tensor_info info = *sonde_catalogue_info(watch->catalogue, named);
    info.name = name;
    info.same_as = named;
    SONDE__TRY(declare(watch, &info, &id, diag));
    if (watch->bound) {
        SONDE__TRY(extend(watch, id, diag));
    }
    watch->slots[id].added = true;
    return SONDE_OK;
}

sonde_err sonde_watch_add_update(sonde_watch *face, uint32_t parameter,
                                 uint32_t *slot_out, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, slot", face, slot_out);
    static const char prefix[] = "update/";
    watch_state *watch = self(face);
    char *name = NULL;
    sonde_err err = SONDE_OK;

    if (!is_slot(watch, parameter)) {
        return sonde__fail(diag, SONDE_ERANGE, "the update of a slot", "a slot",
                           "slot %lu", (unsigned long)parameter);
    }
    sonde_tensor_info info = *sonde_catalogue_info(watch->catalogue, parameter);
    if (!sonde_dtype_is_float(info.dtype)) {
        return sonde__fail(diag, SONDE_EDTYPE, info.name, "a floating dtype",
                           "the update of a tensor of %s", sonde_dtype_name(info.dtype));
    }
    info.role = SONDE_ROLE_UPDATE;
    info.pass = SONDE_PASS_UPDATE;
    info.dtype = info.dtype == SONDE_F64 ? SONDE_F64 : SONDE_F32;
    sonde__watch_update *update = sonde__watch_update_create(&info);
    name = sonde__malloc(sizeof prefix + strlen(info.name));
    if (update == NULL || name == NULL) {
        err = sonde__fail_nomem(diag, "the update of a slot");
        goto error;
    }
    (void)sprintf(name, "%s%s", prefix, info.name);
    info.name = name;
    SONDE__TRY_GO(sonde_watch_add(face, &info, slot_out, diag));
    watch->slots[*slot_out].update = update;
    sonde__free(name);
    return SONDE_OK;

error:
    sonde__free(name);
    sonde__watch_update_destroy(update);
    return err;
}

/* --- the first step --------------------------------------------------------------- */

static sonde_err bind(watch_state *watch, sonde_diag *diag)
{
    SONDE__TRY(sonde_observer_bind(watch->observer, &watch->shape, diag));
    watch->bound = true;
    watch->face.wants = watch->gate->wants;
    choose_checks(watch, 0);
    return SONDE_OK;
}

/* Attaches the hook and the rules, binds the observer and opens the run, each once. After
 * a failure, the next call continues there. */
static sonde_err start(watch_state *watch, sonde_mode mode, sonde_diag *diag)
{
    if (!watch->attached && watch->hook != NULL) {
        SONDE__TRY(sonde__hook_watch(watch->hook, watch->catalogue, mode, watch->every,
                                     watch->observer, diag));
    }
    watch->attached = true;
    if (!watch->ruled && watch->rules != NULL) {
        SONDE__TRY(sonde__rules_attach(watch->rules, watch->catalogue, watch->observer,
                                       watch->rules_every, watch->rules_raw_every,
                                       watch->every, diag));
        watch->ruled = true;
    }
    if (!watch->bound) {
        SONDE__TRY(bind(watch, diag));
    }
    if (watch->hook != NULL) {
        SONDE__TRY(sonde_hook_open(watch->hook, diag));
    }
    watch->open = true;
    return SONDE_OK;
}

/* --- steps ------------------------------------------------------------------------ */

sonde_err sonde_watch_begin_step(sonde_watch *face, sonde_mode mode, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch", face);
    watch_state *watch = self(face);

    sonde_watch_end_step(face);
    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "watch", "a sonde_mode", "mode %d",
                           (int)mode);
    }
    if (!watch->open) {
        SONDE__TRY(start(watch, mode, diag));
    }
    if (watch->hook != NULL) {
        watch->at = (sonde_coordinate){.mode = mode};
        sonde_hook_next_step(watch->hook, 0, &watch->at);
    } else {
        watch->at = sonde__observe_take_step(&watch->steps, mode, 0);
    }
    if (watch->calls) {
        sonde_observer_begin_call(watch->observer);
    }
    watch->stepping = true;
    watch->due = sonde_observer_begin_step(watch->observer, watch->gate, &watch->at);
    set_checks(watch);
    return SONDE_OK;
}

void sonde_watch_end_step(sonde_watch *face)
{
    watch_state *watch = self(face);

    if (face == NULL || !watch->stepping) {
        return;
    }
    if (watch->due) {
        sonde_observer_end_step(watch->observer);
    }
    if (watch->ruled) {
        sonde__rules_end_program(watch->rules, watch->observer, &watch->at);
    }
    if (watch->hook != NULL) {
        sonde_hook_step_done(watch->hook);
    }
    watch->stepping = false;
    watch->due = false;
    set_checks(watch);
}

/* Whether the program can be that of the current step. */
static sonde_err check_program(const watch_state *watch, const sonde_program *program,
                               sonde_diag *diag)
{
    return !watch->stepping ? sonde__fail(diag, SONDE_ESTATE, "watch: a program",
                                          "a call in a step", "no step is on")
           : program->mode != watch->at.mode
               ? sonde__fail(diag, SONDE_EINVAL, "watch: a program",
                             sonde_mode_name(watch->at.mode), "a program of mode %s",
                             sonde_mode_name(program->mode))
               : SONDE_OK;
}

sonde_err sonde__watch_show_program(sonde_watch *face, sonde_program *program,
                                    sonde_text *text, sonde_diag *diag)
{
    watch_state *watch = self(face);
    sonde_err err = SONDE_OK;

    SONDE__TRY_GO(check_program(watch, program, diag));
    if (watch->hook != NULL) {
        SONDE__TRY_GO(sonde__hook_program(watch->hook, &watch->at, program->digest,
                                          text->data, text->length, diag));
    }
    if (watch->ruled) {
        SONDE__TRY_GO(sonde__rules_program(watch->rules, watch->observer, &watch->at,
                                           program, diag));
        program = NULL; /* taken */
    }
error:
    sonde_program_destroy(program);
    sonde_text_fini(text);
    return err;
}

/* --- steps whose values arrive later -------------------------------------------- */

void sonde_watch_leave_step(sonde_watch *face)
{
    watch_state *watch = self(face);

    if (face == NULL || !watch->stepping) {
        return;
    }
    sonde__observer_drop_step(watch->observer);
    sonde__hook_leave_step(watch->hook);
    watch->stepping = false;
    watch->due = false;
    set_checks(watch);
}

void sonde_watch_return_to(sonde_watch *face, const sonde_coordinate *at)
{
    watch_state *watch = self(face);

    if (face == NULL || at == NULL || (unsigned)at->mode >= SONDE_MODE_COUNT ||
        !watch->open) {
        return;
    }
    sonde_watch_leave_step(face);
    watch->at = *at;
    memset(watch->next_look, 0, sizeof watch->next_look);
    sonde__hook_return_to(watch->hook, at);
    if (watch->calls) {
        sonde_observer_begin_call(watch->observer);
    }
    watch->stepping = true;
    watch->due = sonde_observer_begin_due(watch->observer, at);
    set_checks(watch);
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
static int64_t next_judged(const watch_state *watch, sonde_role role, int64_t step)
{
    const sonde_schedule all = sonde__observe_judged(watch->rules_every);

    return watch->rules_every > 0 ? sonde_schedule_next(&all, step)
                                  : next_look(watch->rules, role, watch->at.mode, step);
}

/* Whether a slot of a role that has none yet would be due. A hook with a configuration of
 * its own, and taps of the program, may want it at any step. */
static bool may_be_due(watch_state *watch, sonde_role role)
{
    const sonde__observe_setup *setup = watch->hook != NULL ? &watch->hook->setup : NULL;
    const sonde_mode mode = watch->at.mode;
    const int64_t step = watch->at.mode_step;
    const bool judged = watch->rules != NULL;
    const bool recorded = setup != NULL && !setup->no_vitals;
    int64_t *next = &watch->next_look[role][mode];

    if (watch->calls || (setup != NULL && (setup->configured || !setup->looks))) {
        return true;
    }
    if (*next <= step) { /* one more than it is: 0 is not known */
        int64_t due = SONDE_SCHEDULE_NEVER;

        if (watch->every[role] != 0 && (judged || recorded)) {
            due = next_said(watch->every[role], step);
        } else if (watch->every[role] == 0) {
            due = judged ? next_judged(watch, role, step) : due;
            due = recorded ? SONDE_MIN(due, next_look(NULL, role, mode, step)) : due;
        }
        *next = SONDE_MIN(due, INT64_MAX - 1) + 1;
    }
    return *next == step + 1;
}

unsigned sonde_watch_wants_role(sonde_watch *face, sonde_role role)
{
    watch_state *watch = self(face);

    if (face == NULL || (unsigned)role >= SONDE_ROLE_COUNT || !watch->stepping) {
        return 0;
    }
    if ((watch->roles >> role & 1U) == 0) {
        return may_be_due(watch, role) ? SONDE_HOW_ALL : 0U;
    }
    return watch->due ? sonde__observer_role_wants(watch->observer, role) : 0;
}

bool sonde_watch_is_bad(const sonde_view *view)
{
    return sonde__tensor_view_fault(view, true) == NULL &&
           !sonde__vitals_all_finite(view);
}

bool sonde_watch_checks_role(const sonde_watch *face, sonde_role role)
{
    const watch_state *watch = self_const(face);

    return face != NULL && (unsigned)role < SONDE_ROLE_COUNT && watch->stepping &&
           watch->checking[watch->at.mode] && (watch->checked_roles >> role & 1U) != 0;
}

/* --- seeing ----------------------------------------------------------------------- */

/* Logs, once for a watch, that a value is ignored. */
static void refuse(watch_state *watch, uint32_t id, const char *fault)
{
    if (!watch->complained) {
        watch->complained = true;
        sonde_log(SONDE_LOG_ERROR, "watch", "a value of '%s' is ignored: %s",
                  sonde_catalogue_info(watch->catalogue, id)->name, fault);
    }
}

/* A slot at its first value of a step. */
static void renew(const watch_state *watch, watch_slot *slot)
{
    if (slot->step != watch->at.global_step) {
        slot->step = watch->at.global_step;
        slot->count = 0;
        slot->known = false;
        if (slot->update != NULL) {
            sonde__watch_update_restart(slot->update);
        }
    }
}

/* Observes vital signs with NaN or infinities that were not due. */
static void see_bad(watch_state *watch, uint32_t id, const sonde_view *view,
                    const sonde_vitals *vitals, int micro_batch, int replica)
{
    sonde_coordinate at = watch->at;

    at.micro_batch = micro_batch;
    at.replica = replica;
    watch->slots[id].known = true;
    watch->due = true; /* the step must be ended */
    sonde_observer_observe_bad(watch->observer, &at, id, view, vitals);
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
static void see(watch_state *watch, uint32_t id, const sonde_view *view, int micro_batch,
                int replica)
{
    watch_slot *slot = &watch->slots[id];
    const unsigned wanted = watch->face.wants[id];
    const char *fault = sonde__tensor_view_fault(view, true);
    const sonde_vitals *vitals = NULL;
    bool taken = false;

    if (fault != NULL) {
        refuse(watch, id, fault);
        return;
    }
    renew(watch, slot);
    if (slot->update != NULL) {
        if (!sonde__watch_update_show(
                slot->update, view,
                (wanted & SONDE_HOW_VITALS) != 0 ? &slot->vitals : NULL, &taken)) {
            return;
        }
        view = sonde__watch_update_value(slot->update);
    }
    if (micro_batch < 0) {
        micro_batch = slot->count++;
    }
    if ((wanted & SONDE_HOW_SIGNS) != 0) {
        if (!taken) {
            take_signs(view, (wanted & SONDE_HOW_VITALS) == 0, &slot->vitals);
        }
        slot->known = true;
        vitals = &slot->vitals;
    }
    if ((wanted & SONDE_HOW_VITALS) == 0 && watch->face.checks[id] != 0 &&
        (vitals != NULL ? is_bad(vitals) : !sonde__vitals_all_finite(view))) {
        sonde_vitals_of(view, &slot->vitals);
        see_bad(watch, id, view, &slot->vitals, micro_batch, replica);
    }
    if (wanted != 0) {
        sonde_observer_observe(watch->observer, id, view, vitals, micro_batch, replica);
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
    watch_state *watch = self(face);

    if (face == NULL || !is_slot(watch, id) ||
        (face->wants[id] | face->checks[id]) == 0) {
        return;
    }
    if (micro_batch < 0 || micro_batch >= watch->shape.micro_batches || replica < 0 ||
        replica >= watch->shape.replicas) {
        refuse(watch, id, "its micro-batch or replica is not below that of the options");
        return;
    }
    see(watch, id, view, micro_batch, replica);
}

void sonde_watch_see_vitals(sonde_watch *face, uint32_t id, const sonde_view *view,
                            const sonde_vitals *vitals)
{
    watch_state *watch = self(face);

    if (face == NULL || vitals == NULL || !is_slot(watch, id)) {
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
        refuse(watch, id, fault);
        return;
    }
    renew(watch, &watch->slots[id]);
    watch->slots[id].vitals = *vitals;
    watch->slots[id].known = true;
    if (due) {
        sonde_observer_observe(watch->observer, id, view, vitals,
                               watch->slots[id].count++, 0);
    } else {
        see_bad(watch, id, view, vitals, watch->slots[id].count++, 0);
    }
}

extern inline bool sonde_watch_checks(const sonde_watch *watch, uint32_t slot);
extern inline unsigned sonde_watch_wants(const sonde_watch *watch, uint32_t slot);
extern inline void sonde_watch_see(sonde_watch *watch, uint32_t slot,
                                   const sonde_view *view);

void sonde_watch_see_all(sonde_watch *face, const uint32_t *slots,
                         const sonde_view *views, size_t count)
{
    const watch_state *watch = self(face);

    if (face == NULL || !watch->stepping || slots == NULL || views == NULL ||
        (!watch->due && !watch->checking[watch->at.mode])) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_slot(watch, slots[i])) {
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
    const watch_state *watch = self_const(face);

    if (face == NULL || vitals == NULL || !is_slot(watch, id) ||
        !watch->slots[id].known || watch->slots[id].step != watch->at.global_step) {
        return false;
    }
    *vitals = watch->slots[id].vitals;
    return true;
}
