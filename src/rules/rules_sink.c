/*
 * rules_sink.c - rules inside the process that they judge: sinks for the observer's taps.
 *
 * Tensors with the same needs share a tap, and each tap has a sink of its own, which
 * passes what its tap asked for. Losses come at every step, which also counts the steps.
 * The other evidence comes at each step that `every` divides, at the first steps, which
 * show errors of the setup, and at steps with a loss that is not finite; raw values and
 * other costly evidence come at each step that raw_every divides. All sinks have the
 * values of a step before the first one gets its end, at which the rules are evaluated.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include "observe/tensor_names.h"
#include "observe/observer_state.h"

#include <string.h>

enum { HOWS = 16, SLOWER = 10 };
enum { CLOSELY = 50 }; /* steps at the beginning at which all evidence is observed */

typedef struct rules_sink {
    sonde_sink sink; /* first */
    sonde__rule_attached *attached;
    unsigned how;
} rules_sink;

struct sonde__rule_attached {
    sonde__rule_attached *next;
    sonde_rules *rules;
    const sonde_catalogue *catalogue;
    sonde_observer *observer;
    int64_t every, raw_every;
    uint32_t *map;  /* ids of the attached catalogue -> ids of the rules' catalogue */
    int64_t offset; /* is added to its global steps */
    int64_t mode_offset[SONDE_MODE_COUNT];
    int64_t step; /* its own step that the offsets belong to; -1: none yet */
    rules_sink sinks[HOWS];
};

/* --- while stepping ----------------------------------------------------------------- */

/* The coordinate of the step over all attachments: after the steps of the others, also
 * within its mode. */
static sonde_coordinate place(sonde__rule_attached *attached, const sonde_coordinate *at)
{
    const sonde_rules *rules = attached->rules;
    int64_t *mode_offset = &attached->mode_offset[at->mode];
    sonde_coordinate placed = *at;

    if (attached->step != at->global_step) {
        attached->step = at->global_step;
        attached->offset =
            SONDE_MAX(attached->offset, rules->next_global - at->global_step);
        *mode_offset =
            SONDE_MAX(*mode_offset, rules->next_of_mode[at->mode] - at->mode_step);
    }
    placed.global_step += attached->offset;
    placed.mode_step += *mode_offset;
    return placed;
}

static void sink_put(sonde_sink *sink, const sonde_observation *seen)
{
    const rules_sink *self = (rules_sink *)sink;
    sonde_observation part = *seen;

    part.id = self->attached->map[seen->id];
    part.at = place(self->attached, &seen->at);
    part.info = sonde_catalogue_info(self->attached->rules->catalogue, part.id);
    part.view = (seen->how & SONDE_HOW_RAW) ? seen->view : NULL;
    part.vitals = (seen->how & SONDE_HOW_VITALS) ? seen->vitals : NULL;
    sonde_rules_put(self->attached->rules, &part);
}

static void sink_end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    const rules_sink *self = (rules_sink *)sink;
    sonde_rules *rules = self->attached->rules;
    const sonde_coordinate placed = place(self->attached, at);

    if (rules->any) { /* no other sink has ended the step */
        sonde_rules_end_step(rules, &placed);
    }
    rules->next_global = placed.global_step + 1;
    rules->next_of_mode[placed.mode] = placed.mode_step + 1;
}

static void free_attached(sonde_rules *rules)
{
    while (rules->attached != NULL) {
        sonde__rule_attached *first = rules->attached;

        rules->attached = first->next;
        sonde__free(first->map);
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
    uint32_t first, count; /* of its tensors: from ... count - 1 */
    uint8_t *hows; /* (3, count): at every step, where `every` divides, at others */
    uint32_t *ids; /* scratch */
    sonde_diag *diag;
} attaching;

/* Maps the tensors of the catalogue to those of the rules' catalogue. */
static sonde_err map_tensors(attaching *work)
{
    for (uint32_t id = work->first; id < work->count; id++) {
        sonde_err err = SONDE_OK;
        sonde_tensor_info info = *sonde_catalogue_info(work->catalogue, id);

        if (info.same_as == id) {
            info.same_as = SONDE_NO_TENSOR;
        } else {
            sonde__observe_make_alias(&info, work->rules->own,
                                      work->attached->map[info.same_as]);
        }
        err = sonde_catalogue_declare(work->rules->own, &info, &work->attached->map[id],
                                      work->diag);
        if (err == SONDE_EEXIST) {
            err = sonde_catalogue_find(work->rules->own, info.name,
                                       &work->attached->map[id], work->diag);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

/* Collects what rules need in a mode, by the ids of the catalogue. */
static void collect(const attaching *work, int mode)
{
    const sonde_rules *rules = work->rules;
    uint8_t *always = work->hows, *each = always + work->count,
            *rest = each + work->count;

    memset(work->hows, 0, 3 * (size_t)work->count);
    for (uint32_t id = work->first; id < work->count; id++) {
        const sonde__rule_slot *slot = &rules->slots[work->attached->map[id]];
        const sonde_tensor_info *info = sonde_catalogue_info(work->catalogue, id);
        const bool cheap = info->role == SONDE_ROLE_LOSS && info->rank == 0;

        for (size_t i = 0; i < slot->watch_count; i++) {
            const sonde_rule *rule = slot->watch[i].run->rule;
            const sonde_rule_need *need = &rule->needs[slot->watch[i].need];
            const unsigned now =
                need->how & (need->each_step ? ~0U : (unsigned)SONDE_HOW_VITALS);

            if (sonde__rules_judges(rules, rule, (sonde_mode)mode)) {
                *(cheap ? &always[id] : &each[id]) |= (uint8_t)now;
                rest[id] |= (uint8_t)(need->how & ~now);
            }
        }
        if (cheap && info->same_as == id) {
            always[id] |= SONDE_HOW_VITALS; /* at least to count every step */
        }
        rest[id] &= (uint8_t) ~(each[id] | always[id]);
    }
}

/* Adds taps for the tensors whose hows are not 0. */
static sonde_err add_taps(attaching *work, const uint8_t *hows, int mode, int64_t every,
                          bool when_bad)
{
    sonde_selector *what = NULL;
    sonde_err err = sonde__selector_create_exact("what rules want", &what, work->diag);

    if (err != SONDE_OK) {
        return err;
    }
    for (unsigned how = 1; how < HOWS; how++) {
        sonde_tap tap = {.what = what,
                         .how = how,
                         .where = &work->attached->sinks[how].sink,
                         .when_bad = when_bad};
        size_t n = 0;

        for (uint32_t id = work->first; id < work->count; id++) {
            if (hows[id] == how) {
                work->ids[n++] = id;
            }
        }
        if (n > 0) {
            tap.when[mode] = sonde_schedule_every(every);
            tap.when[mode].first = when_bad ? CLOSELY : 0;
            err = sonde__observer_add_ids(work->attached->observer, &tap, work->ids, n,
                                          work->diag);
            if (err != SONDE_OK) {
                break;
            }
        }
    }
    sonde_selector_destroy(what);
    return err;
}

static sonde_err add_all_taps(attaching *work)
{
    const sonde__rule_attached *attached = work->attached;
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde_err err = SONDE_OK;

        collect(work, mode);
        err = add_taps(work, work->hows, mode, 1, false);
        if (err != SONDE_OK) {
            return err;
        }
        err = add_taps(work, work->hows + work->count, mode, attached->every, true);
        if (err != SONDE_OK) {
            return err;
        }
        err = add_taps(work, work->hows + 2 * (size_t)work->count, mode,
                       attached->raw_every, false);
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

/* Adds the tensors of an attachment, from an id on, to the rules' catalogue and as taps.
 * */
static sonde_err attach_from(sonde__rule_attached *attached, uint32_t first,
                             sonde_diag *diag)
{
    sonde_rules *rules = attached->rules;
    attaching work = {.rules = rules,
                      .attached = attached,
                      .catalogue = attached->catalogue,
                      .first = first,
                      .count = sonde_catalogue_count(attached->catalogue),
                      .diag = diag};
    size_t capacity = first;
    sonde_err err = SONDE_ENOMEM;

    work.hows = sonde__calloc(work.count, 3);
    work.ids = sonde__calloc(work.count, sizeof *work.ids);
    if (work.hows == NULL || work.ids == NULL ||
        !sonde__reserve(&attached->map, &capacity, work.count, sizeof *attached->map)) {
        err = sonde__fail_nomem(diag, "the taps of rules");
        goto done;
    }
    err = map_tensors(&work);
    if (err != SONDE_OK) {
        goto done;
    }
    err = rules->catalogue == NULL
              ? sonde_rules_begin(rules, rules->own, NULL, NULL, diag)
              : sonde_rules_refresh(rules, diag);
    if (err != SONDE_OK) {
        goto done;
    }
    err = add_all_taps(&work);
done:
    sonde__free(work.hows);
    sonde__free(work.ids);
    return err;
}

static sonde_err extend(void *user, uint32_t first, sonde_diag *diag)
{
    return attach_from(user, first, diag);
}

sonde_err sonde_rules_attach(sonde_rules *rules, const sonde_catalogue *catalogue,
                             sonde_observer *observer, int64_t every, int64_t raw_every,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, observer, catalogue);
    if (every < 0 || raw_every < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "rules: steps between looks", "0 or more",
                           "%lld and %lld", (long long)every, (long long)raw_every);
    }
    const int64_t often = every > 0 ? every : 1;
    sonde__rule_attached *attached = NULL;
    sonde_err err = SONDE_OK;

    if (rules->catalogue != rules->own) {
        return sonde__fail(diag, SONDE_ESTATE, "rules", "a new sonde_rules for each run",
                           "rules that are already at work");
    }
    rules->free_attached = free_attached;
    if (rules->own == NULL) {
        err = sonde_catalogue_create(&rules->own, diag);
        if (err != SONDE_OK) {
            return err;
        }
    }
    attached = sonde__calloc(1, sizeof *attached);
    if (attached == NULL) {
        return sonde__fail_nomem(diag, "the taps of rules");
    }
    *attached =
        (sonde__rule_attached){.next = rules->attached,
                               .rules = rules,
                               .catalogue = catalogue,
                               .observer = observer,
                               .every = often,
                               .raw_every = raw_every > 0 ? raw_every : SLOWER * often,
                               .step = -1};
    for (unsigned how = 0; how < HOWS; how++) {
        attached->sinks[how] =
            (rules_sink){{.put = sink_put, .end_step = sink_end_step}, attached, how};
    }
    rules->attached = attached; /* stays, since the taps do */
    err = attach_from(attached, 0, diag);
    return err != SONDE_OK ? err
                           : sonde__observer_on_extend(observer, extend, attached, diag);
}
