/*
 * step.c - evidence in, rules evaluated.
 */
#include "rules/engine.h"

/* --- evidence --------------------------------------------------------------------- */

static bool judges(const sonde_rule_run *run, sonde_mode mode)
{
    return !run->failed &&
           (run->rule->modes == 0 || (run->rule->modes >> (unsigned)mode & 1U) != 0);
}

static void put_vitals(sonde_rules *rules, uint32_t id, const sonde_vitals *vitals)
{
    sonde__rule_slot *slot = &rules->slots[id];

    rules->bad += vitals->nan + vitals->pos_inf + vitals->neg_inf;
    if (slot->stamp == rules->stamp) {
        sonde_vitals_merge(&slot->vitals, vitals);
    } else {
        slot->vitals = *vitals;
        slot->stamp = rules->stamp;
        rules->now[rules->now_count++] = id;
    }
}

void sonde_rules_put(sonde_rules *rules, const sonde_observation *seen)
{
    sonde__rule_slot *slot = NULL;

    if (seen->id >= rules->slot_count || rules->slots[seen->id].how == 0) {
        return;
    }
    slot = &rules->slots[seen->id];
    if ((slot->modes >> (unsigned)seen->at.mode & 1U) == 0) {
        return; /* as in the process, where it is not tapped in that mode */
    }
    rules->at = seen->at;
    rules->any = true;
    if (seen->vitals != NULL && (slot->how & SONDE_HOW_VITALS)) {
        put_vitals(rules, seen->id, seen->vitals);
    }
    for (size_t i = 0; i < slot->user_count; i++) {
        const sonde__rule_user *user = &slot->users[i];
        const bool has = ((user->how & SONDE_HOW_RAW) && seen->view != NULL) ||
                         ((user->how & SONDE_HOW_SKETCH) && seen->sketch != NULL) ||
                         ((user->how & SONDE_HOW_HASH) && seen->hash != 0);

        if (has && judges(user->run, seen->at.mode)) {
            sonde_rule_tensor *tensor = &user->run->tensors[user->tensor];

            user->run->any = true;
            user->run->seen[tensor->need] = true;
            user->run->rule->observe(user->run, tensor, seen);
        }
    }
}

/* --- evaluating ------------------------------------------------------------------- */

/* Makes rules see the vital signs of a slot, or sees to it that they no longer do. */
static void show(sonde__rule_slot *slot, bool now)
{
    slot->shown = now;
    for (size_t i = 0; i < slot->watch_count; i++) {
        const sonde__rule_watch *to = &slot->watch[i];

        if (to->run->rule->needs[to->need].how & SONDE_HOW_VITALS) {
            to->run->tensors[to->tensor].vitals = now ? &slot->vitals : NULL;
            to->run->seen[to->need] = true;
            to->run->shown += now ? 1 : (size_t)-1;
        }
    }
}

void sonde__rules_hide_all(sonde_rules *rules)
{
    for (size_t i = 0; i < rules->before_count; i++) {
        show(&rules->slots[rules->before[i]], false);
    }
    rules->before_count = 0;
}

/* Rules see what has vital signs at this step, and nothing else. */
static void show_step(sonde_rules *rules)
{
    uint32_t *shown = rules->before;

    for (size_t i = 0; i < rules->before_count; i++) {
        sonde__rule_slot *slot = &rules->slots[rules->before[i]];

        if (slot->stamp != rules->stamp) {
            show(slot, false);
        }
    }
    for (size_t i = 0; i < rules->now_count; i++) {
        sonde__rule_slot *slot = &rules->slots[rules->now[i]];

        if (!slot->shown) {
            show(slot, true);
        }
    }
    rules->before = rules->now;
    rules->before_count = rules->now_count;
    rules->now = shown;
    rules->now_count = 0;
}

void sonde_rules_end_step(sonde_rules *rules, const sonde_coordinate *at)
{
    bool judged = false;

    rules->at = *at;
    rules->at.micro_batch = 0;
    rules->at.replica = 0;
    if (!rules->any) {
        return;
    }
    show_step(rules);
    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        if ((run->any || run->shown > 0) && judges(run, at->mode)) {
            run->steps++;
            judged = true;
            if (run->rule->step != NULL) {
                run->rule->step(run);
            }
        }
        run->any = false;
    }
    rules->steps += judged;
    rules->any = false;
    rules->bad = 0;
    rules->stamp++;
}

void sonde_rules_idle(sonde_rules *rules, double seconds)
{
    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        if (!run->failed && run->rule->idle != NULL) {
            run->rule->idle(run, seconds);
        }
    }
}

void sonde_rules_finish(sonde_rules *rules)
{
    if (rules->finished) {
        return;
    }
    rules->finished = true;
    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        if (!run->failed && run->rule->finish != NULL && rules->catalogue != NULL) {
            run->rule->finish(run);
        }
    }
    for (size_t i = 0; i < rules->found_count; i++) {
        if (rules->found[i]->finding.steps > 1) {
            sonde__rules_tell(rules, rules->found[i], true);
        }
    }
}
