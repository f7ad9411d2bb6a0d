/*
 * rules_sink.c - rules inside the process that they judge: sinks for the observer's taps.
 *
 * Each tensor has a schedule for each form of evidence (looks.c), or the one that the
 * program gives. Tensors and forms with the same schedule share a tap; each combination of
 * forms has a sink of its own, which passes what its taps asked for. Losses come at every
 * step, which also counts the steps. All sinks have the values of a step before the first
 * one gets its end, at which the rules are evaluated.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include "observe/tensor_names.h"
#include "observe/attach.h"

#include <sonde/log.h>

#include <assert.h>
#include <string.h>

enum { HOWS = 1 << SONDE_FORM_COUNT, SLOWER = 10 };
typedef struct rules_sink {
    sonde_sink sink; /* first */
    sonde__rule_attached *attached;
    unsigned how;
} rules_sink;

struct sonde__rule_attached {
    sonde__rule_attached *next;
    sonde_rules *rules;
    sonde_observer *observer;
    int64_t every, raw_every;         /* 0: as the rules need */
    const int64_t *role_every;        /* by role, as in sonde_watch_options; or NULL */
    sonde__observe_map map;           /* to the rules' catalogue */
    int64_t offset[SONDE_MODE_COUNT]; /* is added to its steps */
    int64_t step;     /* its own step that the offsets belong to; -1: none yet */
    uint64_t program; /* digest of the last one that a sink was shown; 0: none */
    rules_sink sinks[HOWS];
};

/* --- while stepping ----------------------------------------------------------------- */

/* The coordinate of the step over all attachments: after the steps of the others, also
 * within its mode. */
static sonde_coordinate place(sonde__rule_attached *attached, const sonde_coordinate *at)
{
    const int64_t *const next = attached->rules->next.next;
    int64_t *const global = &attached->offset[SONDE_MODE_GLOBAL];
    int64_t *const in_mode = &attached->offset[at->mode];
    sonde_coordinate placed = {.mode = at->mode,
                               .global_step = at->global_step,
                               .mode_step = at->mode_step,
                               .iteration = at->iteration,
                               .micro_batch = at->micro_batch,
                               .replica = at->replica};

    if (attached->step != at->global_step) {
        attached->step = at->global_step;
        *global = SONDE_MAX(*global, next[SONDE_MODE_GLOBAL] - at->global_step);
        *in_mode = SONDE_MAX(*in_mode, next[at->mode] - at->mode_step);
    }
    placed.global_step += *global;
    placed.mode_step += *in_mode;
    return placed;
}

static void sink_put(sonde_sink *sink, const sonde_observation *observation)
{
    const rules_sink *self = (rules_sink *)sink;
    /* field by field: a copy of what was stored a moment ago would wait for the stores */
    const sonde_observation part = {
        .id = self->attached->map.ids[observation->id],
        .info = sonde_catalogue_info(self->attached->rules->catalogue,
                                     self->attached->map.ids[observation->id]),
        .at = place(self->attached, &observation->at),
        .how = observation->how,
        .view = (observation->how & SONDE_HOW_RAW) ? observation->view : NULL,
        .vitals = (observation->how & SONDE_HOW_SIGNS) ? observation->vitals : NULL,
        .sketch = observation->sketch,
        .hash = observation->hash};

    if (self->attached->every > 0) {
        sonde__rules_put(self->attached->rules, &part);
    } else {
        sonde__rules_put_due(self->attached->rules, &part, observation->at.mode_step);
    }
}

static void sink_end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    const rules_sink *self = (rules_sink *)sink;
    sonde_rules *rules = self->attached->rules;
    const sonde_coordinate placed = place(self->attached, at);

    if (rules->any || sonde__rules_has_program(rules, placed.global_step)) {
        /* no other sink has ended the step */
        sonde__rules_end_step(rules, &placed);
    }
    rules->next.next[placed.mode] = placed.mode_step + 1;
    rules->next.next[SONDE_MODE_GLOBAL] = placed.global_step + 1;
}

/* All sinks of an attachment are shown it; the first one takes it. */
static void sink_program(sonde_sink *sink, const sonde_coordinate *at,
                         const sonde_program *program)
{
    sonde__rule_attached *attached = ((rules_sink *)sink)->attached;
    char line[SONDE_DIAG_LINE];
    sonde_program *copy = NULL;
    sonde_diag diag = {0};

    if (attached->program == program->digest) {
        return;
    }
    attached->program = program->digest;
    sonde_err err = sonde_program_copy(program, &copy, &diag);
    if (err == SONDE_OK) {
        err = sonde__rules_take_program(attached->rules, place(attached, at).global_step,
                                        copy, &diag);
    }
    if (err != SONDE_OK) {
        sonde_program_destroy(copy);
        sonde_log(SONDE_LOG_WARNING, "rules", "a program is not read: %s",
                  sonde_diag_line(&diag, line, sizeof line));
    }
}

/* NULL: the rules are not attached to it. */
static sonde__rule_attached *attached_to(const sonde_rules *rules,
                                         const sonde_observer *observer)
{
    sonde__rule_attached *attached = rules->attached;

    while (attached != NULL && attached->observer != observer) {
        attached = attached->next;
    }
    return attached;
}

sonde_err sonde__rules_program(sonde_rules *rules, const sonde_observer *observer,
                               const sonde_coordinate *at, sonde_program *program,
                               sonde_diag *diag)
{
    sonde__rule_attached *attached = attached_to(rules, observer);

    assert(attached != NULL);
    return sonde__rules_take_program(rules, place(attached, at).global_step, program,
                                     diag);
}

void sonde__rules_end_program(sonde_rules *rules, const sonde_observer *observer,
                              const sonde_coordinate *at)
{
    if (rules->waiting_programs != NULL) {
        sink_end_step(&attached_to(rules, observer)->sinks[0].sink, at);
    }
}

static void free_attached(sonde_rules *rules)
{
    while (rules->attached != NULL) {
        sonde__rule_attached *first = rules->attached;

        rules->attached = first->next;
        sonde__free(first->map.ids);
        sonde__free(first);
    }
    sonde_catalogue_destroy(rules->own);
}

/* --- attaching ---------------------------------------------------------------------- */

/* An attachment in the making. */
typedef struct attaching {
    sonde_rules *rules;
    sonde__rule_attached *attached;
    const sonde_catalogue *catalogue;
    uint32_t first, count;    /* of its tensors: from ... count - 1 */
    sonde_rules_looks *looks; /* by tensor from first on: of one mode */
    uint32_t *ids;            /* scratch */
    sonde_diag *diag;
} attaching;

static sonde_err declare(void *user, const sonde_tensor_info *info, uint32_t id,
                         uint32_t *mapped, sonde_diag *diag)
{
    const sonde__rule_attached *attached = user;

    (void)id;
    return sonde_catalogue_declare(attached->rules->own, info, mapped, diag);
}

/* Maps the tensors of the catalogue to those of the rules' catalogue. */
static sonde_err map_tensors(attaching *work)
{
    for (uint32_t id = work->first; id < work->count; id++) {
        SONDE__TRY(
            sonde__observe_map_add(&work->attached->map, id, work->attached, work->diag));
    }
    return SONDE_OK;
}

/* The schedule for a need if the program says how often. A rule that compares
 * neighboring steps gets raw values as often as vital signs. */
static sonde_schedule said_when(const sonde__rule_attached *attached,
                                const sonde_schedule *own, int bit)
{
    const bool often =
        (1U << bit & SONDE_HOW_SIGNS) != 0 || own->every == 1 || own->row > 1;

    return often ? sonde__observe_judged(attached->every)
                 : sonde_schedule_every(attached->raw_every);
}

/* Replaces the schedules of rules by those of the program. */
static void apply_said(const attaching *work, uint32_t id, sonde_rules_looks *looks)
{
    const sonde__rule_attached *attached = work->attached;
    const sonde_role role = sonde_catalogue_info(work->catalogue, id)->role;

    for (int bit = 0; bit < SONDE_FORM_COUNT; bit++) {
        sonde_schedule *when = &looks->when[bit];

        if (when->every > 0 && attached->every > 0) {
            *when = said_when(attached, when, bit);
        } else if (attached->role_every != NULL) {
            sonde__observe_thin(when, attached->role_every[role],
                                (1U << bit & SONDE_HOW_SIGNS) != 0);
        }
    }
}

/* Collects when rules look at the tensors in a mode. */
static void collect(const attaching *work, int mode)
{
    const sonde_rules *rules = work->rules;

    for (uint32_t id = work->first; id < work->count; id++) {
        const sonde__rule_slot *slot = &rules->slots[work->attached->map.ids[id]];
        const sonde_tensor_info *info = sonde_catalogue_info(work->catalogue, id);
        sonde_rules_looks *looks = &work->looks[id - work->first];

        *looks = (sonde_rules_looks){0};
        sonde__rules_add_looks(rules, slot, (sonde_mode)mode, looks);
        if (info->role == SONDE_ROLE_LOSS && info->rank == 0) {
            if (looks->when[SONDE_FORM_VITALS].every > 0 || info->same_as == id) {
                looks->when[SONDE_FORM_VITALS] =
                    sonde_schedule_every(1); /* to count every step, too */
            }
            if (work->attached->role_every != NULL) {
                sonde__observe_thin(&looks->when[SONDE_FORM_VITALS],
                                    work->attached->role_every[SONDE_ROLE_LOSS], true);
            }
        } else {
            apply_said(work, id, looks);
        }
    }
}

/* The forms of evidence with the schedule *when, as bits. If when->every is 0, *when
 * becomes the first schedule that is left. */
static unsigned find_forms(sonde_rules_looks *looks, sonde_schedule *when)
{
    unsigned how = 0;

    for (int bit = 0; bit < SONDE_FORM_COUNT; bit++) {
        sonde_schedule *look = &looks->when[bit];

        if (look->every > 0 && when->every == 0) {
            *when = *look;
        }
        if (look->every > 0 && sonde__rules_same_when(look, when)) {
            how |= 1U << bit;
        }
    }
    return how;
}

static void drop_forms(sonde_rules_looks *looks, unsigned how)
{
    for (int bit = 0; bit < SONDE_FORM_COUNT; bit++) {
        if ((how >> bit & 1U) != 0) {
            looks->when[bit] = (sonde_schedule){0};
        }
    }
}

/* Adds a tap for all tensors from `first` on that have these forms at this schedule. */
static sonde_err add_tap(attaching *work, const sonde_selector *what, uint32_t first,
                         int mode, unsigned how, sonde_schedule when)
{
    sonde_tap tap = {.what = what,
                     .how = how,
                     .where = &work->attached->sinks[how].sink,
                     .when_bad = (how & SONDE_HOW_SIGNS) != 0 && when.every > 1};
    size_t n = 0;

    for (uint32_t id = first; id < work->count; id++) {
        sonde_rules_looks *looks = &work->looks[id - work->first];

        if (find_forms(looks, &when) == how) {
            work->ids[n++] = id;
            drop_forms(looks, how);
        }
    }
    tap.when[mode] = when;
    return sonde__observer_add_ids(work->attached->observer, &tap, work->ids, n,
                                   work->diag);
}

static sonde_err add_taps(attaching *work, const sonde_selector *what, int mode)
{
    for (uint32_t id = work->first; id < work->count; id++) {
        for (;;) {
            sonde_schedule when = {0};
            const unsigned how = find_forms(&work->looks[id - work->first], &when);

            if (how == 0) {
                break;
            }
            SONDE__TRY(add_tap(work, what, id, mode, how, when));
        }
    }
    return SONDE_OK;
}

static sonde_err add_all_taps(attaching *work)
{
    sonde_selector *what = NULL;
    sonde_err err = sonde__selector_create_exact("what rules want", &what, work->diag);

    if (err != SONDE_OK) {
        return err;
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        collect(work, mode);
        err = add_taps(work, what, mode);
        if (err != SONDE_OK) {
            break;
        }
    }
    sonde_selector_destroy(what);
    return err;
}

/* Adds the tensors of an attachment, from an id on, to the rules' catalogue and as taps.
 * */
static sonde_err attach_from(sonde__rule_attached *attached, uint32_t first,
                             sonde_diag *diag)
{
    sonde_rules *rules = attached->rules;
    attaching work = {.rules = rules,
                      .attached = attached,
                      .catalogue = attached->map.from,
                      .first = first,
                      .count = sonde_catalogue_count(attached->map.from),
                      .diag = diag};
    sonde_err err = SONDE_ENOMEM;

    work.looks = sonde__calloc(work.count - first, sizeof *work.looks);
    work.ids = sonde__calloc(work.count - first, sizeof *work.ids);
    if (work.looks == NULL || work.ids == NULL ||
        !sonde__observe_map_reserve(&attached->map)) {
        err = sonde__fail_nomem(diag, "the taps of rules");
        goto done;
    }
    SONDE__TRY_DONE(map_tensors(&work));
    SONDE__TRY_DONE(rules->catalogue == NULL
                        ? sonde__rules_begin(rules, rules->own, NULL, NULL, diag)
                        : sonde__rules_refresh(rules, diag));
    err = add_all_taps(&work);
done:
    sonde__free(work.looks);
    sonde__free(work.ids);
    return err;
}

static sonde_err extend(void *user, uint32_t first, sonde_diag *diag)
{
    return attach_from(user, first, diag);
}

sonde_err sonde__rules_attach(sonde_rules *rules, const sonde_catalogue *catalogue,
                              sonde_observer *observer, int64_t every, int64_t raw_every,
                              const int64_t *role_every, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, observer, catalogue);
    if (every < 0 || raw_every < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "rules: steps between looks", "0 or more",
                           "%lld and %lld", (long long)every, (long long)raw_every);
    }
    sonde__rule_attached *attached = NULL;

    if (rules->catalogue != rules->own) {
        return sonde__fail(diag, SONDE_ESTATE, "rules", "a new sonde_rules for each run",
                           "rules that are already at work");
    }
    rules->free_attached = free_attached;
    if (rules->own == NULL) {
        SONDE__TRY(sonde_catalogue_create(&rules->own, diag));
    }
    attached = sonde__calloc(1, sizeof *attached);
    if (attached == NULL) {
        return sonde__fail_nomem(diag, "the taps of rules");
    }
    *attached = (sonde__rule_attached){
        .next = rules->attached,
        .rules = rules,
        .map = {.from = catalogue, .to = rules->own, .declare = declare},
        .observer = observer,
        .every = SONDE_MAX(every, 0),
        .raw_every = raw_every > 0 ? raw_every : SLOWER * every,
        .role_every = role_every,
        .step = -1};
    for (unsigned how = 0; how < HOWS; how++) {
        attached->sinks[how] = (rules_sink){
            {.put = sink_put, .end_step = sink_end_step, .program = sink_program},
            attached,
            how};
    }
    rules->attached = attached; /* stays, since the taps do */
    const sonde_err err = attach_from(attached, 0, diag);
    return err != SONDE_OK ? err
                           : sonde__observer_on_extend(observer, extend, attached, diag);
}

sonde_err sonde_rules_attach(sonde_rules *rules, const sonde_catalogue *catalogue,
                             sonde_observer *observer, int64_t every, int64_t raw_every,
                             sonde_diag *diag)
{
    return sonde__rules_attach(rules, catalogue, observer, every, raw_every, NULL, diag);
}
