/*
 * looks.c - when rules look: what they need, joined into one schedule for each tensor or
 * role, mode and form of evidence.
 *
 * Everything that observes for rules takes its schedule here: rules in the process that
 * they judge (rules_sink.c), the defaults of a hook and of a watch, and the table in the
 * documentation.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/macros.h"
#include "observe/attach.h"

#include <string.h>

static void join(sonde_rules_looks *looks, const sonde_rule_need *need)
{
    for (int bit = 0; bit < SONDE_FORM_COUNT; bit++) {
        sonde_schedule *when = &looks->when[bit];

        if ((need->how >> bit & 1U) != 0) {
            *when = sonde_schedule_join(when, sonde__rules_need_when(need));
        }
    }
}

void sonde__rules_add_looks(const sonde_rules *rules, const sonde__rule_slot *slot,
                            sonde_mode mode, sonde_rules_looks *looks)
{
    for (size_t i = 0; i < slot->watch_count; i++) {
        const sonde_rule *rule = slot->watch[i].run->rule;

        if (sonde__rules_judges(rules, rule, mode)) {
            join(looks, &rule->needs[slot->watch[i].need]);
        }
    }
}

bool sonde__rules_same_when(const sonde_schedule *a, const sonde_schedule *b)
{
    return a->every == b->every && a->first == b->first && a->row == b->row &&
           a->row_every == b->row_every;
}

/* --- roles -------------------------------------------------------------------------- */

static void join_role(sonde_rules_looks *looks, const sonde_rule *rule, sonde_role role,
                      sonde_mode mode)
{
    const sonde_mode judged = mode == SONDE_MODE_GLOBAL ? SONDE_MODE_TRAIN : mode;

    if (rule->modes != 0 && (rule->modes >> judged & 1U) == 0) {
        return;
    }
    for (size_t i = 0; i < rule->need_count; i++) {
        if (rule->needs[i].roles == 0 || (rule->needs[i].roles >> role & 1U) != 0) {
            join(looks, &rule->needs[i]);
        }
    }
}

sonde_rules_looks sonde_rules_looks_of_role(const sonde_rules *rules, sonde_role role,
                                            sonde_mode mode)
{
    sonde_rules_looks looks = {0};

    if ((unsigned)role >= SONDE_ROLE_COUNT || role == SONDE_ROLE_PROGRAM ||
        (unsigned)mode >= SONDE_MODE_COUNT) {
        return looks;
    }
    for (size_t i = 0; rules != NULL && i < rules->count; i++) {
        join_role(&looks, rules->runs[i]->rule, role, mode);
    }
    for (size_t i = 0; rules == NULL && sonde__rule_builtins[i] != NULL; i++) {
        if (!sonde__rule_builtins[i]->by_name_only) {
            join_role(&looks, sonde__rule_builtins[i], role, mode);
        }
    }
    return looks;
}

/* --- tensors ------------------------------------------------------------------------ */

/* Adds what a rule needs of a tensor, if it wants it. */
static void add_wanted(sonde_rule_run *run, uint32_t id, sonde_rules_looks *looks)
{
    const int need = sonde__rule_wants(run, id);

    if (need < 0 || (size_t)need >= run->rule->need_count) {
        return;
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        if (sonde__rules_judges(run->rules, run->rule, (sonde_mode)mode)) {
            join(&looks[mode], &run->rule->needs[need]);
        }
    }
}

static void thin_all(sonde_rules_looks *looks, int64_t every)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        for (int bit = 0; bit < SONDE_FORM_COUNT; bit++) {
            sonde__observe_thin(&looks[mode].when[bit], every,
                                (1U << bit & SONDE_HOW_SIGNS) != 0);
        }
    }
}

/* Makes the looks of the tensors from `first` on from the rules' wants. */
static sonde_err fill(sonde_rules *rules, uint32_t first, sonde_rules_looks *looks,
                      sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(rules->catalogue);

    for (size_t i = 0; i < rules->count; i++) {
        SONDE__TRY(sonde__rule_mark(rules->runs[i], first, count, diag));
        for (uint32_t id = first; id < count; id++) {
            add_wanted(rules->runs[i], id,
                       &looks[(size_t)(id - first) * SONDE_MODE_COUNT]);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__rules_looks_from(sonde_rules *rules, const sonde_catalogue *catalogue,
                                  uint32_t first, const int64_t *every,
                                  sonde_rules_looks *looks, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(catalogue);

    rules->catalogue = catalogue;
    for (uint32_t id = first; id < count; id++) {
        memset(&looks[(size_t)(id - first) * SONDE_MODE_COUNT], 0,
               SONDE_MODE_COUNT * sizeof *looks);
    }
    const sonde_err err = fill(rules, first, looks, diag);
    for (uint32_t id = first; every != NULL && id < count; id++) {
        thin_all(&looks[(size_t)(id - first) * SONDE_MODE_COUNT],
                 every[sonde_catalogue_info(catalogue, id)->role]);
    }
    return err;
}

sonde_err sonde_rules_default_looks(const sonde_catalogue *catalogue, uint32_t first,
                                    const int64_t *every, sonde_rules_looks *looks,
                                    sonde_diag *diag)
{
    SONDE__NEEDS(diag, catalogue, looks);
    sonde_rules *rules = NULL;
    sonde_err err = sonde_rules_create(&rules, diag);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY_GO(sonde_rules_add_defaults(rules, diag));
    err = sonde__rules_looks_from(rules, catalogue, first, every, looks, diag);
error:
    sonde_rules_destroy(rules);
    return err;
}
