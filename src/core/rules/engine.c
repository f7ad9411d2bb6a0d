/*
 * engine.c - rules at work: adding them, the tensors that each one wants, the evidence of
 * each step, and what each one judged.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* --- creating ----------------------------------------------------------------------- */

sonde_err sonde_rules_create(sonde_rules **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_rules *rules = sonde__calloc(1, sizeof *rules);

    if (rules == NULL) {
        return sonde__fail_nomem(diag, "rules");
    }
    rules->stamp = 1;
    *out = rules;
    return SONDE_OK;
}

void sonde__rule_run_destroy(sonde_rule_run *run)
{
    if (run == NULL) {
        return;
    }
    if (run->rule->destroy != NULL && run->state != NULL) {
        run->rule->destroy(run);
    }
    for (size_t i = 0; i < run->rule->param_count && run->values != NULL; i++) {
        sonde__free(run->values[i].text);
        sonde_selector_destroy(run->values[i].selector);
        sonde__free(run->values[i].marks);
    }
    for (size_t i = 0; i < run->count; i++) {
        sonde__free(run->tensors[i].memory);
    }
    sonde__free(run->values);
    sonde__free(run->tensors);
    sonde__free(run->tensor_findings);
    sonde__free(run->placed);
    sonde__free(run->seen);
    sonde__free(run->state);
    sonde__free(run);
}

void sonde_rules_destroy(sonde_rules *rules)
{
    if (rules == NULL) {
        return;
    }
    for (size_t i = 0; i < rules->count; i++) {
        sonde__rule_run_destroy(rules->runs[i]);
    }
    for (size_t i = 0; i < rules->slot_count; i++) {
        sonde__free(rules->slots[i].users);
        sonde__free(rules->slots[i].watch);
    }
    if (rules->free_attached != NULL) {
        rules->free_attached(rules);
    }
    sonde__rules_free_found(rules);
    sonde__rules_free_programs(rules);
    sonde__rules_progress_fini(&rules->progress);
    sonde__free(rules->runs);
    sonde__free(rules->slots);
    sonde__free(rules->now);
    sonde__free(rules->before);
    sonde__free(rules->copies);
    sonde__free(rules->folder);
    sonde__rule_finding_files_fini(&rules->finding_files);
    sonde__table_fini(&rules->outputs);
    for (size_t i = 0; i < rules->file_count; i++) {
        sonde_rule_file_close(rules->files[i]);
    }
    sonde__free(rules->files);
    sonde__free(rules);
}

static sonde_err make_run(sonde_rules *rules, const sonde_rule *rule, const char *params,
                          sonde_rule_run *run, sonde_diag *diag)
{
    run->rules = rules;
    run->rule = rule;
    run->values = sonde__calloc(rule->param_count, sizeof *run->values);
    run->seen = sonde__calloc(rule->need_count, sizeof *run->seen);
    if (run->values != NULL && run->seen != NULL) { /* a run with a state is destroyed */
        run->state = sonde__calloc(1, rule->state_size);
    }
    if (run->state == NULL) {
        return sonde__fail_nomem(diag, rule->name);
    }
    SONDE__TRY(sonde__rule_read_params(run, params, diag));
    SONDE__TRY(sonde__rule_make_selectors(run, diag));
    return rule->init != NULL ? rule->init(run, diag) : SONDE_OK;
}

sonde_err sonde_rules_add_rule(sonde_rules *rules, const sonde_rule *rule,
                               const char *params, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, rule);
    sonde_rule_run *run = NULL;

    if (rule->abi != SONDE_RULE_ABI) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, rule->name,
                           "a rule built for this interface", "rule interface %u, not %d",
                           rule->abi, SONDE_RULE_ABI);
    }
    if (rules->catalogue != NULL) {
        return sonde__fail(diag, SONDE_ESTATE, rule->name, "rules before the first step",
                           "a rule added while rules are at work");
    }
    if (!sonde__reserve(&rules->runs, &rules->capacity, rules->count + 1,
                        sizeof(sonde_rule_run *))) {
        return sonde__fail_nomem(diag, rule->name);
    }
    run = sonde__calloc(1, sizeof *run);
    const sonde_err err = run != NULL ? make_run(rules, rule, params, run, diag)
                                      : sonde__fail_nomem(diag, rule->name);
    if (err != SONDE_OK) {
        sonde__rule_run_destroy(run);
        return err;
    }
    rules->runs[rules->count++] = run;
    rules->at_every_step =
        rules->at_every_step || (rule->need_count == 0 && rule->program == NULL);
    return SONDE_OK;
}

size_t sonde_rules_count(const sonde_rules *rules)
{
    return rules != NULL ? rules->count : 0;
}

uint64_t sonde_rules_steps(const sonde_rules *rules)
{
    return rules != NULL ? rules->steps : 0;
}

bool sonde_rules_window(const sonde_rules *rules, int64_t *first, int64_t *last)
{
    if (rules == NULL || first == NULL || last == NULL || rules->ended == 0) {
        return false;
    }
    *first = rules->first_step;
    *last = rules->last_step;
    return true;
}

/* --- vital signs that rules see ----------------------------------------------------- */

/* Shows the vital signs or the norms of a slot to the rules that watch it, or, NULL,
 * hides them. */
static void show(sonde__rule_slot *slot, const sonde_vitals *signs)
{
    slot->shown = signs;
    for (size_t i = 0; i < slot->watch_count; i++) {
        const sonde__rule_watch *watch = &slot->watch[i];
        const unsigned how = watch->run->rule->needs[watch->need].how;
        const sonde_vitals **vitals = &watch->run->tensors[watch->tensor].vitals;
        const sonde_vitals *now =
            (how & (signs == &slot->norms ? SONDE_HOW_NORMS : SONDE_HOW_SIGNS)) != 0
                ? signs
                : NULL;

        if ((now != NULL) != (*vitals != NULL)) {
            const size_t more = now != NULL ? 1 : (size_t)-1;

            watch->run->shown += more;
            watch->run->losses +=
                watch->run->rule->needs[watch->need].roles == 1U << SONDE_ROLE_LOSS ? more
                                                                                    : 0;
        }
        watch->run->seen[watch->need] |= now != NULL;
        *vitals = now;
    }
}

/* Hides all vital signs, before slots move. */
static void hide_all(sonde_rules *rules)
{
    for (size_t i = 0; i < rules->before_count; i++) {
        show(&rules->slots[rules->before[i]], NULL);
    }
    rules->before_count = 0;
}

/* --- tensors ------------------------------------------------------------------------ */

const sonde_schedule *sonde__rules_need_when(const sonde_rule_need *need)
{
    static const sonde_schedule usual = SONDE_RULE_LOOKS;

    return need->when.every > 0 ? &need->when : &usual;
}

static sonde_err add_user(sonde__rule_slot *slot, sonde_rule_run *run, size_t tensor,
                          int need, sonde_diag *diag)
{
    const unsigned how = run->rule->needs[need].how;

    slot->how |= how;
    slot->modes |= run->rule->modes != 0 ? run->rule->modes : ~0U;
    if (!sonde__reserve(&slot->watch, &slot->watch_capacity, slot->watch_count + 1,
                        sizeof *slot->watch)) {
        return sonde__fail_nomem(diag, run->rule->name);
    }
    slot->watch[slot->watch_count++] = (sonde__rule_watch){run, tensor, need};
    if ((how & ~(unsigned)SONDE_HOW_SIGNS) == 0) {
        return SONDE_OK;
    }
    if (!sonde__reserve(&slot->users, &slot->user_capacity, slot->user_count + 1,
                        sizeof *slot->users)) {
        return sonde__fail_nomem(diag, run->rule->name);
    }
    slot->users[slot->user_count++] = (sonde__rule_user){
        run, tensor, how, sonde__rules_need_when(&run->rule->needs[need])};
    return SONDE_OK;
}

static sonde_err watch(sonde_rule_run *run, uint32_t id, int need, sonde_diag *diag)
{
    sonde_rule_tensor tensor = {.id = id, .need = need};
    const size_t i = run->count;

    if (need < 0 || (size_t)need >= run->rule->need_count) {
        sonde_rule_fail(run, "wants returned %d for '%s', which is no index of a need",
                        need, sonde_rule_info(run, id)->name);
        return SONDE_OK;
    }
    if (!sonde__reserve(&run->tensors, &run->capacity, i + 1, sizeof *run->tensors) ||
        !sonde__reserve(&run->tensor_findings, &run->finding_capacity, i + 1,
                        sizeof(void *))) {
        return sonde__fail_nomem(diag, run->rule->name);
    }
    tensor.memory = sonde__calloc(1, run->rule->tensor_size);
    if (tensor.memory == NULL) {
        return sonde__fail_nomem(diag, run->rule->name);
    }
    run->tensors[i] = tensor;
    run->tensor_findings[i] = NULL;
    run->count++;
    if (add_user(&run->rules->slots[id], run, i, need, diag) != SONDE_OK) {
        return SONDE_ENOMEM;
    }
    return run->rule->bind != NULL ? run->rule->bind(run, i, diag) : SONDE_OK;
}

int sonde__rule_wants(sonde_rule_run *run, uint32_t id)
{
    const sonde_tensor_info *info = sonde_catalogue_info(run->rules->catalogue, id);

    return run->rule->wants != NULL && info->role != SONDE_ROLE_PROGRAM
               ? run->rule->wants(run, info, id)
               : SONDE_RULE_IGNORE;
}

static sonde_err watch_all(sonde_rule_run *run, size_t first, size_t end,
                           sonde_diag *diag)
{
    SONDE__TRY(sonde__rule_mark(run, first, end, diag));
    for (size_t id = first; id < end && !run->failed; id++) {
        const int need = sonde__rule_wants(run, (uint32_t)id);

        if (need != SONDE_RULE_IGNORE) {
            SONDE__TRY(watch(run, (uint32_t)id, need, diag));
        }
    }
    return SONDE_OK;
}

sonde_err sonde__rules_begin(sonde_rules *rules, const sonde_catalogue *catalogue,
                             bool (*in_collection)(const void *user, uint32_t id,
                                                   const char *collection),
                             const void *user, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, catalogue);
    if (rules->catalogue != NULL) {
        return sonde__fail(diag, SONDE_ESTATE, "rules", "a new sonde_rules for each run",
                           "rules that are already at work");
    }
    rules->catalogue = catalogue;
    rules->in_collection = in_collection;
    rules->collection_user = user;
    return sonde__rules_refresh(rules, diag);
}

static bool reserve_slots(sonde_rules *rules, size_t count)
{
    size_t before = rules->slot_capacity, now = rules->slot_capacity;

    return sonde__reserve(&rules->before, &before, count, sizeof *rules->before) &&
           sonde__reserve(&rules->now, &now, count, sizeof *rules->now) &&
           sonde__reserve(&rules->slots, &rules->slot_capacity, count,
                          sizeof *rules->slots);
}

sonde_err sonde__rules_refresh(sonde_rules *rules, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules);
    const size_t first = rules->slot_count;
    const size_t end = sonde_catalogue_count(rules->catalogue);

    if (end == first) {
        return SONDE_OK;
    }
    hide_all(rules);
    if (!reserve_slots(rules, end)) {
        return sonde__fail_nomem(diag, "the tensors of rules");
    }
    memset(rules->slots + first, 0, (end - first) * sizeof *rules->slots);
    rules->slot_count = end;
    if (!sonde__rules_add_losses(rules, first, end) ||
        !sonde__rules_add_outputs(rules, first, end)) {
        return sonde__fail_nomem(diag, "the losses and outputs of rules");
    }
    for (size_t id = first; id < end; id++) {
        rules->slots[id].late = rules->ended > 0;
    }
    for (size_t i = 0; i < rules->count; i++) {
        SONDE__TRY(watch_all(rules->runs[i], first, end, diag));
    }
    sonde__rules_report_new(rules);
    return SONDE_OK;
}

unsigned sonde__rules_wants(const sonde_rules *rules, uint32_t id)
{
    if (rules == NULL) {
        return 0;
    }
    return id < rules->slot_count ? rules->slots[id].how : 0;
}

/* --- what a rule asks --------------------------------------------------------------- */

void *sonde_rule_state(sonde_rule_run *run)
{
    return run != NULL ? run->state : NULL;
}

const sonde_rule *sonde_rule_row(const sonde_rule_run *run)
{
    return run != NULL ? run->rule : NULL;
}

sonde_rule_tensor *sonde_rule_tensors(sonde_rule_run *run, size_t *count)
{
    if (run == NULL || count == NULL) {
        return NULL;
    }
    *count = run->count;
    return run->tensors;
}

const sonde_coordinate *sonde_rule_at(const sonde_rule_run *run)
{
    return run != NULL ? &run->rules->at : NULL;
}

bool sonde_rule_any_bad(const sonde_rule_run *run)
{
    return run != NULL && run->rules->bad > 0;
}

size_t sonde_rule_find(sonde_rule_run *run, const char *prefix, const char *name)
{
    if (run == NULL || prefix == NULL || name == NULL) {
        return SIZE_MAX;
    }
    const size_t length = strlen(prefix);

    for (size_t i = 0; i < run->count; i++) {
        const char *other = sonde_rule_info(run, run->tensors[i].id)->name;

        if (strncmp(other, prefix, length) == 0 && strcmp(other + length, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* --- evidence ----------------------------------------------------------------------- */

sonde_mode sonde__rules_judged_mode(const sonde_rules *rules, sonde_mode mode)
{
    return mode == SONDE_MODE_GLOBAL && !rules->has_training ? SONDE_MODE_TRAIN : mode;
}

/* Whether steps of a mode are judged, of the modes with a bit. */
static bool has_mode(const sonde_rules *rules, unsigned modes, sonde_mode mode)
{
    const unsigned judged = (unsigned)sonde__rules_judged_mode(rules, mode);

    return ((modes >> judged | modes >> mode) & 1U) != 0;
}

bool sonde__rules_judges(const sonde_rules *rules, const sonde_rule *rule,
                         sonde_mode mode)
{
    return rule->modes == 0 || has_mode(rules, rule->modes, mode);
}

static bool judges(const sonde_rule_run *run, sonde_mode mode)
{
    return !run->failed && sonde__rules_judges(run->rules, run->rule, mode);
}

/* Takes the place of a step, in the mode that it counts as. */
static void set_place(sonde_rules *rules, const sonde_coordinate *at)
{
    rules->mode = at->mode;
    rules->has_training = rules->has_training || at->mode == SONDE_MODE_TRAIN;
    rules->at = *at;
    rules->at.mode = sonde__rules_judged_mode(rules, at->mode);
}

static void put_vitals(sonde_rules *rules, uint32_t id, const sonde_vitals *vitals)
{
    sonde__rule_slot *slot = &rules->slots[id];
    const bool norms = sonde_vitals_are_norms(vitals);
    sonde_vitals *into = norms ? &slot->norms : &slot->vitals;
    uint64_t *stamp = norms ? &slot->norms_stamp : &slot->vitals_stamp;

    rules->bad += vitals->nan + vitals->pos_inf + vitals->neg_inf;
    if (*stamp == rules->stamp) {
        sonde_vitals_merge(into, vitals);
    } else {
        *into = *vitals;
        *stamp = rules->stamp;
    }
    if (slot->stamp != rules->stamp) {
        slot->stamp = rules->stamp;
        slot->place = (uint32_t)rules->now_count;
        rules->now[rules->now_count++] = id;
    }
}

static void pass(sonde_rule_run *run, sonde_rule_tensor *tensor,
                 const sonde_observation *observation)
{
    sonde_observation judged = *observation;

    judged.at.mode = run->rules->at.mode;
    run->any = true;
    run->seen[tensor->need] = true;
    run->rule->observe(run, tensor, &judged);
}

/* mode_step: of the step for schedules; -1: every rule gets everything. */
static void put(sonde_rules *rules, const sonde_observation *observation,
                int64_t mode_step)
{
    if (rules == NULL || observation == NULL) {
        return;
    }

    if (observation->id >= rules->slot_count || rules->slots[observation->id].how == 0) {
        return;
    }
    sonde__rule_slot *slot = &rules->slots[observation->id];
    if (!has_mode(rules, slot->modes, observation->at.mode)) {
        return; /* in the training process there is no tap for such modes */
    }
    set_place(rules, &observation->at);
    rules->any = true;
    if (observation->vitals != NULL &&
        (slot->how & (sonde_vitals_are_norms(observation->vitals) ? SONDE_HOW_NORMS
                                                                  : SONDE_HOW_SIGNS)) !=
            0) {
        put_vitals(rules, observation->id, observation->vitals);
    }
    if (observation->view == NULL && observation->sketch == NULL &&
        observation->hash == 0) {
        return;
    }
    for (size_t i = 0; i < slot->user_count; i++) {
        const sonde__rule_user *user = &slot->users[i];
        const bool has =
            ((user->how & SONDE_HOW_RAW) && observation->view != NULL) ||
            ((user->how & SONDE_HOW_SKETCH) && observation->sketch != NULL) ||
            ((user->how & SONDE_HOW_HASH) && observation->hash != 0);

        if (has && judges(user->run, observation->at.mode) &&
            (mode_step < 0 || sonde_schedule_due(user->when, mode_step))) {
            pass(user->run, &user->run->tensors[user->tensor], observation);
        }
    }
}

void sonde__rules_put(sonde_rules *rules, const sonde_observation *observation)
{
    put(rules, observation, -1);
}

void sonde__rules_put_due(sonde_rules *rules, const sonde_observation *observation,
                          int64_t mode_step)
{
    put(rules, observation, mode_step);
}

/* --- evaluating --------------------------------------------------------------------- */

/* Shows the slots that have vital signs at this step, and hides the others. */
static void show_step(sonde_rules *rules)
{
    uint32_t *shown = rules->before;

    for (size_t i = 0; i < rules->before_count; i++) {
        sonde__rule_slot *slot = &rules->slots[rules->before[i]];

        if (slot->stamp != rules->stamp) {
            show(slot, NULL);
        }
    }
    for (size_t i = 0; i < rules->now_count; i++) {
        sonde__rule_slot *slot = &rules->slots[rules->now[i]];
        const sonde_vitals *signs =
            slot->vitals_stamp == rules->stamp ? &slot->vitals : &slot->norms;

        if (slot->shown != signs) {
            show(slot, signs);
        }
    }
    rules->before = rules->now;
    rules->before_count = rules->now_count;
    rules->now = shown;
    rules->now_count = 0;
}

/* A rule without needs has it at every step, or, if it reads programs, at those with a
 * new one. */
static bool has_evidence(const sonde_rule_run *run)
{
    return run->any || run->shown > 0 ||
           (run->rule->need_count == 0 && run->rule->program == NULL);
}

/* Calls the rules that have evidence at this step; whether there is one. */
static bool call_rules(sonde_rules *rules, sonde_mode mode)
{
    bool judged = false;

    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        const bool evidence = has_evidence(run) && judges(run, mode);

        if (evidence || run->reads) {
            run->steps++;
            judged = true;
        }
        if (evidence && run->rule->step != NULL) {
            run->rule->step(run);
        }
        run->any = run->reads = false;
    }
    return judged;
}

/* A step of which no tensor was seen. */
static void end_empty_step(sonde_rules *rules, sonde_mode mode)
{
    const bool program = sonde__rules_has_program(rules, rules->at.global_step);

    if (rules->at_every_step || program) {
        show_step(rules);
        rules->stamp++;
        sonde__rules_show_programs(rules, rules->at.global_step);
        rules->steps += call_rules(rules, mode);
    }
    sonde__rules_report_new(rules);
}

/* Since the last step, the program's own data have taken the place of the rules' in the
 * caches. Fetched all at once, they cost little more than one miss after another. */
static void fetch(const sonde_rules *rules)
{
    enum { LINE = 64, CODE = 8 }; /* CODE: lines of a rule's code */

    for (size_t i = 0; i < rules->count; i++) {
        __builtin_prefetch(rules->runs[i]);
        __builtin_prefetch((const char *)rules->runs[i] + LINE);
    }
    for (size_t i = 0; i < rules->count; i++) {
        const sonde_rule_run *run = rules->runs[i];

        if (has_evidence(run)) {
            __builtin_prefetch(run->rule);
            __builtin_prefetch(run->state);
            for (size_t k = 0; k < CODE; k++) {
                __builtin_prefetch((void *)((uintptr_t)run->rule->step + k * LINE));
            }
            if (run->count > 0) {
                __builtin_prefetch(run->tensors);
                __builtin_prefetch((const char *)run->tensors + LINE);
            }
        }
    }
    for (size_t i = 0; i < rules->count; i++) {
        const sonde_rule_run *run = rules->runs[i];

        for (size_t k = 0; has_evidence(run) && k < run->count; k++) {
            if (run->tensors[k].vitals != NULL) {
                __builtin_prefetch(run->tensors[k].memory);
            }
        }
    }
}

void sonde__rules_end_step(sonde_rules *rules, const sonde_coordinate *at)
{
    if (rules == NULL || at == NULL) {
        return;
    }

    rules->first_step = rules->ended > 0 ? rules->first_step : at->global_step;
    rules->last_step = at->global_step;
    rules->ended++;
    set_place(rules, at);
    rules->at.micro_batch = 0;
    rules->at.replica = 0;
    if (!rules->any) {
        end_empty_step(rules, at->mode);
        return;
    }
    if (rules->at.mode == SONDE_MODE_TRAIN) {
        rules->trains = true;
        sonde__rules_take_losses(rules);
    }
    show_step(rules);
    sonde__rules_show_programs(rules, at->global_step);
    fetch(rules);
    const bool judged = call_rules(rules, at->mode);
    if (rules->at.mode == SONDE_MODE_TRAIN || !rules->trains) {
        sonde__rules_decide(rules, false);
    }
    rules->steps += judged;
    rules->any = false;
    rules->bad = 0;
    rules->stamp++;
    sonde__rules_report_new(rules);
}

void sonde__rules_idle(sonde_rules *rules, double seconds)
{
    if (rules == NULL) {
        return;
    }
    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        if (!run->failed && run->rule->idle != NULL) {
            run->rule->idle(run, seconds);
        }
    }
    sonde__rules_report_new(rules);
}

void sonde_rules_finish(sonde_rules *rules)
{
    if (rules == NULL || rules->finished) {
        return;
    }
    rules->finished = true;
    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        if (!run->failed && run->rule->finish != NULL && rules->catalogue != NULL) {
            run->rule->finish(run);
        }
    }
    sonde__rules_decide(rules, true);
    sonde__rules_report_new(rules);
    sonde__rules_report_again(rules);
}

/* --- accounts ----------------------------------------------------------------------- */

/* Lists in text the data that the rule needs and the run does not have; true if there is
 * none. */
static bool check_needs(const sonde_rule_run *run, char *text, size_t size)
{
    bool judged = true;

    text[0] = '\0';
    for (size_t i = 0; i < run->rule->need_count; i++) {
        const sonde_rule_need *need = &run->rule->needs[i];
        const size_t used = strlen(text);
        const char *kind = (need->how & SONDE_HOW_VITALS)   ? "vital signs"
                           : (need->how & SONDE_HOW_NORMS)  ? "norms"
                           : (need->how & SONDE_HOW_SKETCH) ? "sketches"
                                                            : "raw values";
        size_t tensors = 0;

        for (size_t j = 0; j < run->count; j++) {
            tensors += run->tensors[j].need == (int)i;
        }
        if (run->seen[i] || need->optional) {
            continue;
        }
        judged = false;
        if (tensors == 0) {
            (void)snprintf(text + used, size - used, "%sthe run has no %s",
                           used > 0 ? "; " : "", need->what);
        } else {
            (void)snprintf(text + used, size - used, "%sno %s of %s were recorded",
                           used > 0 ? "; " : "", kind, need->what);
        }
    }
    return judged;
}

/* Whether a program was shown that the rule can judge by: it needs nothing else, or says so. */
static bool read_program(const sonde_rule_run *run)
{
    bool needs = false;

    for (size_t i = 0; i < run->rule->need_count; i++) {
        needs = needs || !run->rule->needs[i].optional;
    }
    return run->by_program || (run->programs > 0 && !needs);
}

/* Whether the rule saw no step and no program, but judges them. */
static bool saw_nothing(const sonde_rule_run *run)
{
    return run->steps == 0 && run->programs == 0 &&
           (run->rule->step != NULL || run->rule->program != NULL);
}

/* "no train step was seen", with the modes that the rule judges; "no step was seen" if it
 * judges all. */
static void say_no_step(const sonde_rule_run *run, char *text, size_t size)
{
    char modes[64] = "";

    for (int mode = 0; mode < SONDE_MODE_GLOBAL; mode++) {
        if (run->rule->modes >> mode & 1U) {
            const size_t used = strlen(modes);

            (void)snprintf(modes + used, sizeof modes - used, "%s%s",
                           used > 0 ? " or " : "", sonde_mode_name((sonde_mode)mode));
        }
    }
    (void)snprintf(text, size, "no step%s%s had the data it needs",
                   modes[0] != '\0' ? " of mode " : "", modes);
}

void sonde_rules_account(const sonde_rules *rules, size_t i, sonde_rule_account *account)
{
    if (account == NULL) {
        return;
    }
    *account = (sonde_rule_account){0};
    if (rules == NULL || i >= rules->count) {
        return;
    }
    const sonde_rule_run *run = rules->runs[i];

    *account = (sonde_rule_account){.rule = run->rule,
                                    .tensors = run->count,
                                    .steps = run->steps,
                                    .findings = run->findings};
    account->judged = check_needs(run, account->lacked, sizeof account->lacked);
    if (read_program(run)) {
        account->judged = true;
        account->lacked[0] = '\0';
    } else if (account->judged && saw_nothing(run) && run->rule->program != NULL) {
        account->judged = false;
        (void)snprintf(account->lacked, sizeof account->lacked,
                       "the run has no program of its steps");
    } else if (account->judged && saw_nothing(run)) {
        account->judged = false;
        say_no_step(run, account->lacked, sizeof account->lacked);
    }
    account->judged = (account->judged || run->findings > 0) && !run->failed;
    if (run->lacked[0] != '\0') {
        account->judged = account->judged && (run->findings > 0 || run->by_program);
        (void)snprintf(account->lacked, sizeof account->lacked, "%s", run->lacked);
    }
}
