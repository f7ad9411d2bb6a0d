/*
 * suspicions.c - see suspicion.h. A suspicion stays in rules->waiting until it is freed; when
 * it is decided, it is a finding as well.
 */
#include "rules/suspicion.h"

#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "observe/tensor_roles.h"
#include "rules/engine.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- the losses of the run ---------------------------------------------------------- */

/* Whether a word begins at name + i: after no letter, or at a capital after a small one. */
static bool is_bound(const char *name, size_t i)
{
    return i == 0 || !isalpha((unsigned char)name[i - 1]) ||
           !isalpha((unsigned char)name[i]) ||
           (islower((unsigned char)name[i - 1]) && isupper((unsigned char)name[i]));
}

/* Whether a word of the name begins with one of these; the shortest ones must be whole. */
static bool has_any(const char *name, const char *const *words, size_t count)
{
    enum { SHORTEST = 5 };

    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(words[i]);

        for (const char *next = sonde__strcasestr(name, words[i]); next != NULL;
             next = sonde__strcasestr(next + 1, words[i])) {
            const size_t start = (size_t)(next - name);

            if (is_bound(name, start) &&
                (length > SHORTEST || is_bound(name, start + length))) {
                return true;
            }
        }
    }
    return false;
}

/* Whether only programs whose losses need not fall have such an input, or layer. */
static bool is_of_free_loss(const sonde_tensor_info *info)
{
    static const char *const inputs[] = {"reward", "return",   "advantage", "done",
                                         "dones",  "terminal", "next_obs",  "next_state"};
    static const char *const layers[] = {"policy",    "actor", "critic",
                                         "value_net", "q_net", "discriminator"};

    return info->role == SONDE_ROLE_INPUT
               ? has_any(info->name, inputs, SONDE_COUNT_OF(inputs))
               : info->role == SONDE_ROLE_WEIGHT &&
                     has_any(info->name, layers, SONDE_COUNT_OF(layers));
}

/* Whether the name of a loss says that it need not fall. */
static bool is_named_free(const sonde_tensor_info *info)
{
    static const char *const words[] = {
        "policy", "actor",  "critic", "td",  "gen",    "generator", "disc",  "discrim",
        "adv",    "advers", "player", "ppo", "surrog", "g_loss",    "d_loss"};

    return has_any(info->name, words, SONDE_COUNT_OF(words));
}

static bool is_declared_free(const sonde_rules *rules, uint32_t id)
{
    const char *note = sonde_catalogue_info(rules->catalogue, id)->note;

    return strncmp(note, SONDE_NOTE_FREE, sizeof SONDE_NOTE_FREE - 1) == 0 ||
           (rules->in_collection != NULL &&
            rules->in_collection(rules->collection_user, id, "free_losses"));
}

bool sonde__rule_is_declared_free(const sonde_rule_run *run, uint32_t id)
{
    return is_declared_free(run->rules, id);
}

/* Adds an input or a layer that only programs have whose losses need not fall. */
static bool add_sign(sonde__rules_progress *progress, uint32_t id)
{
    if (!sonde__reserve(&progress->signs, &progress->sign_capacity,
                        progress->sign_count + 1, sizeof *progress->signs)) {
        return false;
    }
    progress->signs[progress->sign_count++] = id;
    return true;
}

bool sonde__rules_add_losses(sonde_rules *rules, size_t first, size_t end)
{
    sonde__rules_progress *progress = &rules->progress;
    const size_t before = progress->loss_count;

    for (size_t id = first; id < end; id++) {
        const sonde_tensor_info *info =
            sonde_catalogue_info(rules->catalogue, (uint32_t)id);

        if (is_of_free_loss(info) && !add_sign(progress, (uint32_t)id)) {
            return false;
        }
        if (info->role != SONDE_ROLE_LOSS || info->same_as != id ||
            sonde__observe_is_of_evaluation(info->name)) {
            continue;
        }
        if (!sonde__reserve(&progress->losses, &progress->loss_capacity,
                            progress->loss_count + 1, sizeof *progress->losses)) {
            return false;
        }
        progress->losses[progress->loss_count++] =
            (sonde__rules_loss){.id = (uint32_t)id,
                                .free = is_named_free(info),
                                .declared = is_declared_free(rules, (uint32_t)id)};
    }
    /* a new one may make parts of the others */
    for (size_t i = 0; progress->loss_count > before && i < progress->loss_count; i++) {
        progress->losses[i].whole =
            sonde__observe_is_objective(rules->catalogue, progress->losses[i].id);
    }
    return true;
}

/* Losses need not fall, for a reason; NULL: that is not said. The first one counts. */
static void free_losses(sonde_rules *rules, const char *why)
{
    sonde__rules_progress *progress = &rules->progress;

    if (why != NULL && !progress->free) {
        progress->free = true;
        progress->why = why;
    }
}

/* Whether any of the signs has a value at this step; one whose vital signs no rule needs
 * counts once it is declared. */
static bool sees_sign(const sonde_rules *rules)
{
    for (size_t i = 0; i < rules->progress.sign_count; i++) {
        const sonde__rule_slot *slot = &rules->slots[rules->progress.signs[i]];

        if (slot->stamp == rules->stamp || (slot->how & SONDE_HOW_VITALS) == 0) {
            return true;
        }
    }
    return false;
}

void sonde__rules_take_losses(sonde_rules *rules)
{
    sonde__rules_progress *progress = &rules->progress;
    double sum = 0.0, whole = 0.0;
    size_t losses = 0, seen = 0;
    bool has_whole = false;

    free_losses(rules, sees_sign(rules)
                           ? "the program has inputs or layers of such losses"
                           : NULL);
    for (size_t i = 0; i < progress->loss_count; i++) {
        sonde__rules_loss *loss = &progress->losses[i];
        const sonde__rule_slot *slot = &rules->slots[loss->id];
        const sonde_vitals *v = &slot->vitals;
        const bool bad = v->nan + v->pos_inf + v->neg_inf > 0;

        seen += loss->seen;
        if (slot->vitals_stamp != rules->stamp || v->count == 0) {
            continue;
        }
        seen += !loss->seen;
        loss->seen = true;
        progress->named = progress->named || loss->free;
        free_losses(rules, loss->declared ? "it is declared so" : NULL);
        losses++;
        sum += bad ? (double)NAN : v->mean;
        if (loss->whole) {
            whole = bad ? (double)NAN : v->mean;
            has_whole = true;
        }
    }
    if (losses > 0 && (has_whole || !progress->whole)) {
        progress->whole = has_whole;
        progress->parts = !has_whole && seen > 1; /* perhaps at different steps */
        sonde__rules_progress_take(progress, has_whole ? whole : sum);
    }
}

enum { RECOVERED = 3 }; /* looks in a row at which the condition does not hold */

/* --- suspicions --------------------------------------------------------------------- */

const sonde__rule_terms sonde__rule_sure[] = {
    {.sure = true, .well = SONDE_SEVERITY_NOTE},
    {.sure = true, .well = SONDE_SEVERITY_WARNING},
    {.sure = true, .well = SONDE_SEVERITY_ERROR}};

/* The index of one of the rule's tensors; NULL: SONDE_RULE_WHOLE_RUN. */
static size_t index_of(const sonde_rule_run *run, const sonde_rule_tensor *t)
{
    return t != NULL ? (size_t)(t - run->tensors) : SONDE_RULE_WHOLE_RUN;
}

static sonde__rule_found **place_of(sonde_rule_run *run, size_t i)
{
    return i == SONDE_RULE_WHOLE_RUN ? &run->run_finding : &run->tensor_findings[i];
}

static bool waits(const sonde__rule_found *found)
{
    return found != NULL && !found->kept;
}

bool sonde__rule_suspects(const sonde_rule_run *run, const sonde_rule_tensor *t)
{
    return waits(t != NULL ? run->tensor_findings[index_of(run, t)] : run->run_finding);
}

static void take_out(sonde_rules *rules, size_t k)
{
    rules->waiting[k]->open = false;
    memmove(rules->waiting + k, rules->waiting + k + 1,
            (--rules->waiting_count - k) * sizeof(void *));
}

static void drop(sonde_rules *rules, size_t k)
{
    sonde__rule_found *found = rules->waiting[k];

    take_out(rules, k);
    *place_of(found->run, found->index) = NULL;
    sonde__free(found->tensor);
    sonde__free(found);
}

/* Makes a finding of a suspicion, or drops it if memory runs out; or raises the finding. A
 * state stays open. */
static void keep(sonde_rules *rules, size_t k, sonde_severity severity)
{
    sonde__rule_found *found = rules->waiting[k];

    found->again = false;
    if (found->kept) {
        sonde__rule_raise(rules, found, severity);
    } else if (sonde__rule_keep_found(rules, found)) {
        found->finding.severity = severity;
        found->kept = true;
        found->well = 0;
    } else {
        drop(rules, k);
    }
}

/* The place of an open state in waiting; waiting_count: it is not there. */
static size_t find_waiting(const sonde_rules *rules, const sonde__rule_found *found)
{
    size_t k = found != NULL && found->open ? 0 : rules->waiting_count;

    while (k < rules->waiting_count && rules->waiting[k] != found) {
        k++;
    }
    return k;
}

static void withdraw(sonde_rules *rules, const sonde__rule_found *found)
{
    if (waits(found)) {
        drop(rules, find_waiting(rules, found));
    }
}

void sonde__rule_withdraw(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    withdraw(run->rules, *place_of(run, index_of(run, t)));
}

static void confirm(sonde_rules *rules, const sonde__rule_found *found,
                    sonde_severity severity)
{
    if (waits(found)) {
        keep(rules, find_waiting(rules, found), severity);
    }
}

void sonde__rule_confirm(sonde_rule_run *run, const sonde_rule_tensor *t,
                         sonde_severity severity)
{
    confirm(run->rules, *place_of(run, index_of(run, t)), severity);
}

static void resolve(const sonde_rules *rules, sonde__rule_found *found)
{
    if (found->finding.resolved_step == 0) {
        found->finding.resolved_step = rules->at.global_step;
    }
}

void sonde__rule_resolve(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    sonde__rule_found *found = *place_of(run, index_of(run, t));

    if (found != NULL && found->kept) {
        resolve(run->rules, found);
    }
}

void sonde__rule_clear(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    sonde__rule_found *found = *place_of(run, index_of(run, t));

    if (found == NULL || found->terms == NULL || ++found->missed < RECOVERED) {
        return;
    }
    if (!found->kept) {
        withdraw(run->rules, found);
    } else if (!found->terms->event) {
        resolve(run->rules, found);
    }
}

/* The condition of a state that is known holds at this step, too. */
static void hold(sonde_rule_run *run, sonde__rule_found *found,
                 const sonde__rule_terms *terms)
{
    sonde_rules *rules = run->rules;

    found->held++;
    found->missed = 0;
    sonde__rules_hold_again(rules, found);
    if (found->kept && found->terms != NULL && terms->event && !found->again &&
        (int)found->finding.severity < terms->ill) {
        found->again = true;
        found->mark = sonde__rules_progress_level(&rules->progress, true);
        found->mark.slight = terms->slight;
    }
}

/* As sonde_rule_found: true the first time. */
static bool suspect(sonde_rule_run *run, size_t i, const sonde__rule_terms *terms,
                    const char *statistic, double value, double threshold)
{
    sonde__rule_found **place = place_of(run, i);

    if (waits(*place) && terms->ill > (*place)->terms->ill) {
        withdraw(run->rules, *place); /* what is worse replaces it */
    }
    if (*place != NULL) {
        hold(run, *place, terms);
        return false;
    }
    if (!sonde__rule_make_found(run, i, SONDE_SEVERITY_NOTE, statistic, value, threshold,
                                true)) {
        return false;
    }
    sonde__rule_found *found = *place;
    found->open = true;
    found->terms = terms;
    found->held = 1;
    found->index = i;
    found->mark = sonde__rules_progress_level(&run->rules->progress, terms->event);
    found->mark.slight = terms->slight;
    return true;
}

bool sonde__rule_holds(sonde_rule_run *run, const sonde_rule_tensor *t,
                       const sonde__rule_terms *terms, const char *statistic,
                       double value, double threshold)
{
    const size_t i = index_of(run, t);

    return terms->sure ? sonde_rule_found(run, i, (sonde_severity)terms->well, statistic,
                                          value, threshold)
                       : suspect(run, i, terms, statistic, value, threshold);
}

bool sonde__rule_report(sonde_rule_run *run, const sonde_rule_tensor *t,
                        const sonde__rule_terms *terms, const char *statistic,
                        double value, double threshold, const char *advice,
                        const char *fmt, ...)
{
    const bool first = sonde__rule_holds(run, t, terms, statistic, value, threshold);
    va_list args;

    va_start(args, fmt);
    if (first) {
        sonde__rule_vsay(run, advice, fmt, args);
    }
    va_end(args);
    return first;
}

/* The severity that the suspicion has now; WITHDRAWN - 1: it is not decided yet. A note
 * about what does no harm, since training goes well, is resolved at once. */
enum { UNDECIDED = SONDE__WITHDRAWN - 1 };
enum { UNTRAINED = 10 }; /* looks until it is one, if no step of training was seen */

static int decide(const sonde_rules *rules, sonde__rule_found *found, bool ended)
{
    const sonde__rule_terms *terms = found->terms;
    const bool lasts = found->held >= terms->looks;

    if (!rules->trains && !ended && found->held < UNTRAINED) {
        return UNDECIDED;
    }
    if (rules->progress.count + rules->progress.bad == 0) {
        const int alone = rules->progress.free ? terms->untold : terms->alone;

        return lasts || alone == SONDE_SEVERITY_NOTE ? alone
               : ended                               ? SONDE_SEVERITY_NOTE
                                                     : UNDECIDED;
    }
    if (!lasts && !ended) {
        return UNDECIDED;
    }
    switch (sonde__rules_progress_since(&rules->progress, &found->mark, terms->event,
                                        ended)) {
    case SONDE__RULES_OPEN:
        break;
    case SONDE__RULES_WELL:
        if (terms->well == SONDE_SEVERITY_NOTE && !found->kept) {
            resolve(rules, found);
        }
        return terms->well;
    case SONDE__RULES_ILL:
        return lasts ? terms->ill : terms->untold;
    case SONDE__RULES_STILL:
        return lasts ? terms->still : terms->untold;
    case SONDE__RULES_NONE:
        return terms->untold;
    }
    return UNDECIDED;
}

/* A finding is resolved by WELL verdicts in a row that training goes well, unless that does
 * not excuse it. */
static void watch_recovery(const sonde_rules *rules, sonde__rule_found *found)
{
    enum { WELL = 2 };
    const uint64_t since = rules->progress.count - found->mark.count;

    if (found->terms->event || found->terms->well > SONDE_SEVERITY_NOTE || since == 0 ||
        since % SONDE__RULES_SHORT != 0 || rules->progress.count == 0) {
        return;
    }
    found->well = sonde__rules_progress_since(&rules->progress, &found->mark, false,
                                              false) == SONDE__RULES_WELL
                      ? found->well + 1
                      : 0;
    if (found->well >= WELL) {
        resolve(rules, found);
    }
}

enum { RECENT = 100 }; /* steps since the condition of a state was last seen to hold */

/* What becomes of a finding that came of a suspicion: the severity that it rises to, or
 * UNDECIDED. */
static int decide_kept(const sonde_rules *rules, sonde__rule_found *found)
{
    const sonde__rule_terms *terms = found->terms;
    const sonde_finding *finding = &found->finding;
    const bool holds = found->missed == 0 && found->held >= terms->looks &&
                       rules->at.global_step - finding->last_step <= RECENT;
    int severity = UNDECIDED;

    watch_recovery(rules, found);
    if (terms->event && found->again) {
        severity = decide(rules, found, false);
        found->again = severity == UNDECIDED;
    } else if (!terms->event && holds && rules->at.global_step > finding->step &&
               sonde__rules_progress_is_relapsed(&rules->progress)) {
        severity = terms->ill;
    }
    return severity > (int)finding->severity ? severity : UNDECIDED;
}

void sonde__rules_decide(sonde_rules *rules, bool ended)
{
    size_t k = 0;

    while (k < rules->waiting_count) {
        sonde__rule_found *found = rules->waiting[k];
        const size_t count = rules->waiting_count;
        const int severity = found->kept        ? decide_kept(rules, found)
                             : found->dismissed ? UNDECIDED
                                                : decide(rules, found, ended);

        if (severity == SONDE__WITHDRAWN) {
            found->dismissed = true; /* the rule may still see it at each step */
        } else if (severity != UNDECIDED) {
            keep(rules, k, (sonde_severity)severity);
        }
        k += rules->waiting_count == count; /* unless it was dropped */
    }
}

bool sonde__rule_loss_is_free(const sonde_rule_run *run)
{
    const sonde__rules_progress *progress = &run->rules->progress;

    return progress->free || progress->parts;
}

void sonde__rule_free_losses(sonde_rule_run *run, const char *why)
{
    free_losses(run->rules, why);
    run->programs -= run->programs > 0;
}

bool sonde__rule_loss_may_rise(const sonde_rule_run *run)
{
    return run->rules->progress.free;
}

bool sonde__rule_loss_falls(const sonde_rule_run *run)
{
    return !sonde__rule_loss_is_free(run) && !run->rules->progress.named;
}

/* A finding that came of a suspicion is sure now. */
static void settle(sonde_rules *rules, sonde__rule_found *found)
{
    if (found->open) {
        take_out(rules, find_waiting(rules, found));
    }
    found->terms = NULL;
}

/* --- what is sure ------------------------------------------------------------------- */

bool sonde_rule_found(sonde_rule_run *run, size_t i, sonde_severity severity,
                      const char *statistic, double value, double threshold)
{
    if (run == NULL || statistic == NULL ||
        (i >= run->count && i != SONDE_RULE_WHOLE_RUN)) {
        return false;
    }
    sonde__rule_found *const *place = place_of(run, i);

    if (severity != SONDE_SEVERITY_NOTE) {
        confirm(run->rules, *place, severity);
    }
    if (*place == NULL) {
        return sonde__rule_make_found(run, i, severity, statistic, value, threshold,
                                      false);
    }
    sonde__rules_hold_again(run->rules, *place);
    (*place)->finding.resolved_step = 0;
    if (!(*place)->kept || severity <= (*place)->finding.severity) {
        return false;
    }
    settle(run->rules, *place);
    sonde__rule_raise(run->rules, *place, severity);
    (*place)->finding.statistic = statistic;
    (*place)->finding.value = value;
    (*place)->finding.threshold = threshold;
    run->speaking = *place;
    return true;
}

void sonde_rule_fail(sonde_rule_run *run, const char *fmt, ...)
{
    if (run == NULL || fmt == NULL) {
        return;
    }
    char text[SONDE__MESSAGE - 64];
    va_list args;

    va_start(args, fmt);
    (void)sonde__vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (run->failed) {
        return;
    }
    run->failed = true;
    (void)snprintf(run->lacked, sizeof run->lacked, "%s", text);
    withdraw(run->rules, run->run_finding);
    run->run_finding = NULL;
    if (sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, SONDE_SEVERITY_WARNING, "rule", 1.0,
                         0.0)) {
        sonde_rule_say(run, "Fix the rule, or do not use it.",
                       "The rule was switched off because of an error: %s.", text);
    }
}
