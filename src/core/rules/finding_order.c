/*
 * finding_order.c - which finding follows from which, and the order in which people
 * should read them: by step, what was wrong in the data or the setup and what broke before
 * the signs that show only later; then what follows, notes, and what is resolved.
 *
 * A finding follows from
 *     NonFinite   that names the source, if it begins while a value is not finite; at the
 *                 very step, if the table calls it a consequence. Rules that judge the
 *                 data or the process judge no such value.
 *     a runaway   an error of a rule that sees values grow without bound, if its rule
 *                 sees what that does (the table: GROWS, OUTGROWN). The first runaway
 *                 counts. A loss that runs away is the cause of what began before it was
 *                 recognized; a huge parameter that of a spike at its step.
 *     a cut       a gradient that is exactly 0 follows from dead units, else from the first
 *                 such gradient that was found; of those of one step, from the one nearest
 *                 to the loss.
 *     a mistake   of the program, a certain error: of its rule, what tensors show of it; what
 *                 a loss that cannot fall as it should looks like; if nothing can be
 *                 learned (STARVES), gradients that vanish; and, if the mistake
 *                 changes the updates (the table: UPDATES), what growing values do.
 *     a neighbor  FrozenParameter: the first parameter that the optimizer lacks stands for
 *                 the others of its step.
 */
#include "rules/engine.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/rules.h>

#include <stdlib.h>
#include <string.h>

/* EVENT: a BREAK if it comes before all causes and breaks, else a CONSEQUENCE. */
enum { CAUSE, BREAK, EVENT, CONSEQUENCE, HARDWARE };

/* APART: it judges the data or the process. GROWS: its errors say that values grow without
 * bound; OUTGROWN: its findings are what that does. UPDATES: its errors say that other updates
 * are made than meant. STARVES: they say that nothing can be learned; STARVED: its findings
 * may be what that does. A rule that is not here breaks. */
enum { APART = 1, GROWS = 2, OUTGROWN = 4, UPDATES = 8, STARVES = 16, STARVED = 32 };
typedef struct standing {
    const char *rule;
    int rank;
    unsigned flags;
} standing;

static const standing standings[] = {
    {"BatchMixing", CAUSE, 0},
    {"CheckInputImages", CAUSE, APART},
    {"ClassImbalance", CAUSE, 0},
    {"ConstantData", CAUSE, APART | STARVES},
    {"DtypeChanged", CAUSE, 0},
    {"DtypeMismatch", CAUSE, 0},
    {"DuplicateBatch", CAUSE, APART},
    {"EvalNondeterminism", CAUSE, 0},
    {"FrozenParameter", CAUSE, OUTGROWN | STARVED},
    {"InputRange", CAUSE, APART},
    {"LossBroadcast", CAUSE, 0},
    {"LossSign", CAUSE, GROWS},
    {"MissingZeroGrad", CAUSE, UPDATES},
    {"ModelStructure", CAUSE, 0},
    {"NLPSequenceRatio", CAUSE, APART},
    {"OptimizerState", CAUSE, 0},
    {"PoorWeightInitialization", CAUSE, GROWS},
    {"ReplicaDivergence", CAUSE, 0},
    {"RoundedWeights", CAUSE, 0},
    {"SoftmaxMisuse", CAUSE, STARVES},
    {"StepOrder", CAUSE, UPDATES},
    {"SymmetricUnits", CAUSE, STARVED},
    {"TargetLeak", CAUSE, 0},
    {"TargetMismatch", CAUSE, 0},
    {"TrainEvalMode", CAUSE, 0},
    {"UnfrozenParameter", CAUSE, 0},
    {"WeightUpdateRatio", CAUSE, GROWS | OUTGROWN},
    {"DeadRelu", BREAK, OUTGROWN | STARVED},
    {"NonFinite", BREAK, OUTGROWN},
    {"SaturatedActivation", BREAK, OUTGROWN},
    {"StalledTraining", BREAK, APART},
    {"VanishingGradient", BREAK, OUTGROWN | STARVED},
    {"WeightJump", BREAK, GROWS | OUTGROWN},
    {"UpdateSpike", HARDWARE, OUTGROWN},
    {"ExplodingTensor", CONSEQUENCE, GROWS | OUTGROWN},
    {"GradientSpike", EVENT, GROWS | OUTGROWN},
    {"LabelNoise", CONSEQUENCE, OUTGROWN},
    {"LossNotDecreasing", CONSEQUENCE, OUTGROWN},
    {"LossSpike", EVENT, GROWS | OUTGROWN},
    {"Overfit", CONSEQUENCE, 0},
    {"Overtraining", CONSEQUENCE, 0},
};

static standing standing_of(const char *rule)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(standings); i++) {
        if (strcmp(rule, standings[i].rule) == 0) {
            return standings[i];
        }
    }
    return (standing){rule, BREAK, 0};
}

/* --- causes ------------------------------------------------------------------------- */

static bool is_source(const sonde_finding *finding)
{
    return strcmp(finding->rule, "NonFinite") == 0;
}

/* The first finding of NonFinite that holds at this step; NULL: there is none. */
static const sonde_finding *source_now(const sonde_rules *rules)
{
    for (size_t i = 0; i < rules->found_count; i++) {
        const sonde_finding *finding = &rules->found[i]->finding;

        if (is_source(finding) && finding->last_step == rules->at.global_step) {
            return finding;
        }
    }
    return NULL;
}

/* A rule that was switched off says so in a finding about itself. */
static bool is_own_failure(const sonde_finding *finding)
{
    return strcmp(finding->statistic, "rule") == 0;
}

static bool follows(const sonde_finding *finding, const sonde_finding *source)
{
    const standing kind = standing_of(finding->rule);

    /* one that has waited may be older than the source */
    return (kind.flags & APART) == 0 && !is_source(finding) && !is_own_failure(finding) &&
           finding->step >= source->step &&
           (finding->step > source->step || kind.rank >= EVENT);
}

/* Puts the new findings without a cause first; leaves the order if memory runs out. */
static void put_causes_first(sonde_rules *rules)
{
    const size_t first = rules->reported, count = rules->found_count - first;
    sonde__rule_found **sorted = sonde__malloc(count * sizeof(void *));
    size_t used = 0;

    if (sorted == NULL) {
        return;
    }
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < count; i++) {
            sonde__rule_found *found = rules->found[first + i];

            if ((found->finding.because_of != 0) == (turn == 1)) {
                sorted[used++] = found;
            }
        }
    }
    memcpy(rules->found + first, sorted, count * sizeof(void *));
    sonde__free(sorted);
}

static bool is_loud_start(const sonde_finding *finding)
{
    return strcmp(finding->rule, "PoorWeightInitialization") == 0 &&
           finding->severity == SONDE_SEVERITY_WARNING;
}

static bool is_loss_sign(const sonde_finding *finding)
{
    return strcmp(finding->rule, "LossSign") == 0;
}

/* A parameter is huge, and finite. */
static bool is_huge(const sonde_finding *finding)
{
    return strcmp(finding->rule, "ExplodingTensor") == 0 &&
           strcmp(finding->statistic, "abs_max") == 0;
}

/* An error that says that values grow without bound, or a warning that they began so. Of
 * rules that see small values too, one above its threshold. */
static bool is_runaway(const sonde_finding *finding)
{
    return (finding->severity == SONDE_SEVERITY_ERROR || is_loud_start(finding)) &&
           finding->because_of == 0 && finding->resolved_step == 0 &&
           (standing_of(finding->rule).flags & GROWS) != 0 &&
           (is_huge(finding) || strcmp(finding->rule, "ExplodingTensor") != 0) &&
           (is_loss_sign(finding) || finding->value > finding->threshold);
}

/* Whether a runaway comes before another one: by step; a loss that runs away is before all
 * others, and a huge parameter before a spike of its step. */
static bool comes_before(const sonde_finding *a, const sonde_finding *b)
{
    return !is_loss_sign(b) &&
           (is_loss_sign(a) || a->step < b->step ||
            (a->step == b->step && is_huge(a) && standing_of(b->rule).rank == EVENT));
}

/* The first one. */
static const sonde_finding *first_runaway(const sonde_rules *rules)
{
    const sonde_finding *first = NULL;

    for (size_t i = 0; i < rules->found_count; i++) {
        const sonde_finding *finding = &rules->found[i]->finding;

        if (is_runaway(finding) && (first == NULL || comes_before(finding, first))) {
            first = finding;
        }
    }
    return first;
}

/* A value of the data was not finite by itself. */
static bool is_of_data(const sonde_rules *rules, const sonde_finding *finding)
{
    uint32_t id = SONDE_NO_TENSOR;

    return is_source(finding) &&
           sonde_catalogue_find(rules->catalogue, finding->tensor, &id, NULL) ==
               SONDE_OK &&
           sonde_catalogue_info(rules->catalogue, id)->role == SONDE_ROLE_INPUT;
}

static bool follows_runaway(const sonde_rules *rules, const sonde_finding *finding,
                            const sonde_finding *runaway)
{
    const bool later = is_source(finding) ? finding->step > runaway->step
                                          : finding->step >= runaway->step;

    return finding != runaway && finding->because_of == 0 &&
           (standing_of(finding->rule).flags & OUTGROWN) != 0 &&
           !is_own_failure(finding) && (later || is_loss_sign(runaway)) &&
           !is_of_data(rules, finding);
}

/* The findings since the last report begin while a value is not finite. */
static void set_source(sonde_rules *rules, const sonde_finding *source)
{
    const uint64_t root = source->because_of != 0 ? source->because_of : source->id;

    for (size_t i = rules->reported; i < rules->found_count; i++) {
        sonde_finding *finding = &rules->found[i]->finding;

        if (finding->because_of == 0 && finding->id != root && follows(finding, source)) {
            finding->because_of = root;
        }
    }
}

/* What followed from a finding that follows itself has the same cause. */
static void set_runaway(sonde_rules *rules, const sonde_finding *runaway)
{
    for (size_t i = 0; i < rules->found_count; i++) {
        sonde_finding *finding = &rules->found[i]->finding;

        if (!follows_runaway(rules, finding, runaway)) {
            continue;
        }
        finding->because_of = runaway->id;
        for (size_t k = 0; is_source(finding) && k < rules->found_count; k++) {
            sonde_finding *next = &rules->found[k]->finding;

            next->because_of =
                next->because_of == finding->id ? runaway->id : next->because_of;
        }
    }
}

/* A gradient is exactly 0. */
static bool is_cut(const sonde_finding *finding)
{
    return strcmp(finding->rule, "VanishingGradient") == 0 && finding->value == 0.0 &&
           finding->severity != SONDE_SEVERITY_NOTE;
}

static bool is_dead(const sonde_finding *finding)
{
    return strcmp(finding->rule, "DeadRelu") == 0 &&
           finding->severity != SONDE_SEVERITY_NOTE && finding->resolved_step == 0;
}

/* Whether a finding was reported, as severe as it is. */
static bool is_told(const sonde_rules *rules, size_t i)
{
    return i < rules->reported && !rules->found[i]->news;
}

/* What cuts gradients off: see the head of this file. NULL: nothing does. */
static const sonde_finding *find_cut(const sonde_rules *rules)
{
    const sonde_finding *cut = NULL;
    bool told = false;

    for (size_t i = 0; i < rules->found_count; i++) {
        const sonde_finding *finding = &rules->found[i]->finding;

        if (finding->because_of != 0) {
            continue;
        }
        if (is_dead(finding)) {
            return finding;
        }
        if (is_cut(finding) && (cut == NULL || (!told && finding->step == cut->step))) {
            cut = finding;
            told = is_told(rules, i);
        }
    }
    return cut;
}

static void set_cut(sonde_rules *rules, const sonde_finding *cut)
{
    for (size_t i = 0; i < rules->found_count; i++) {
        sonde_finding *finding = &rules->found[i]->finding;

        if (!is_told(rules, i) && finding != cut && finding->because_of == 0 &&
            is_cut(finding) && finding->step >= cut->step) {
            finding->because_of = cut->id;
        }
    }
}

/* --- mistakes of the program */

static bool is_mistake(const sonde__rule_found *found)
{
    return found->certain && found->finding.severity == SONDE_SEVERITY_ERROR &&
           found->finding.because_of == 0;
}

/* Whether a finding shows what a mistake does. */
static bool shows_mistake(const sonde__rule_found *found, const sonde_finding *mistake)
{
    const sonde_finding *finding = &found->finding;
    const standing kind = standing_of(finding->rule);
    const bool grows = (kind.flags & GROWS) != 0;
    const bool grown = (kind.flags & (GROWS | OUTGROWN)) != 0;
    const unsigned by = standing_of(mistake->rule).flags;
    const bool same = strcmp(finding->rule, mistake->rule) == 0;

    if (finding->because_of != 0 || finding->step < mistake->step ||
        is_own_failure(finding)) {
        return false;
    }
    if (found->certain) { /* another mistake, or the same one in the next step */
        return same && finding->step > mistake->step && finding->tensor[0] != '\0' &&
               strcmp(finding->tensor, mistake->tensor) == 0;
    }
    return same || (kind.rank >= EVENT && kind.rank != HARDWARE && !grows) ||
           ((kind.flags & STARVED) != 0 && (by & STARVES) != 0) ||
           (grown && (by & UPDATES) != 0);
}

/* The first mistake that a finding shows is its cause. */
static void set_mistakes(sonde_rules *rules)
{
    for (size_t k = 0; k < rules->found_count; k++) {
        const sonde__rule_found *mistake = rules->found[k];

        for (size_t i = 0; i < rules->found_count && is_mistake(mistake); i++) {
            if (!is_told(rules, i) && shows_mistake(rules->found[i], &mistake->finding)) {
                rules->found[i]->finding.because_of = mistake->finding.id;
            }
        }
    }
}

/* An optimizer lacks a parameter. */
static bool is_lacking(const sonde_finding *finding)
{
    return strcmp(finding->rule, "FrozenParameter") == 0 &&
           strcmp(finding->statistic, "steps_unchanged") == 0 &&
           finding->tensor[0] != '\0';
}

static void set_neighbors(sonde_rules *rules)
{
    const sonde_finding *first = NULL;

    for (size_t i = rules->reported; i < rules->found_count; i++) {
        sonde_finding *finding = &rules->found[i]->finding;

        if (!is_lacking(finding) || finding->because_of != 0) {
            continue;
        }
        if (first == NULL || first->severity < finding->severity) {
            first = finding;
        } else if (finding->step == first->step) {
            finding->because_of = first->id;
        }
    }
}

void sonde__rules_set_causes(sonde_rules *rules)
{
    set_mistakes(rules);
    const sonde_finding *runaway = first_runaway(rules), *source = source_now(rules);

    if (runaway != NULL) {
        set_runaway(rules, runaway);
    }
    if (source != NULL) {
        set_source(rules, source);
    }
    const sonde_finding *cut = find_cut(rules);
    if (cut != NULL) {
        set_cut(rules, cut);
    }
    set_neighbors(rules);
    if (rules->found_count > rules->reported + 1) {
        put_causes_first(rules);
    }
}

const sonde_finding *sonde__rules_cause(const sonde_rule_run *run,
                                        const char *const *rules)
{
    for (size_t i = 0; i < run->rules->found_count; i++) {
        const sonde_finding *finding = &run->rules->found[i]->finding;

        for (size_t k = 0; rules[k] != NULL; k++) {
            if (finding->severity != SONDE_SEVERITY_NOTE &&
                finding->step < run->rules->at.global_step &&
                strcmp(finding->rule, rules[k]) == 0) {
                return finding;
            }
        }
    }
    return NULL;
}

void sonde__rules_follows(sonde_rule_run *run, const sonde_rule_tensor *t,
                          const sonde_finding *cause)
{
    sonde__rule_found *found =
        t != NULL ? run->tensor_findings[t - run->tensors] : run->run_finding;

    if (cause != NULL) {
        found->finding.because_of =
            cause->because_of != 0 ? cause->because_of : cause->id;
    }
}

/* --- order -------------------------------------------------------------------------- */

/* A finding with what orders it. */
typedef struct placed {
    sonde_finding finding;
    int rank;
    size_t place; /* in the order found */
} placed;

/* The step of the first cause or break that stands and is no note; INT64_MAX: none. */
static int64_t first_break(const sonde_finding *findings, size_t count)
{
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (findings[i].because_of == 0 && findings[i].severity > SONDE_SEVERITY_NOTE &&
            findings[i].resolved_step == 0 &&
            standing_of(findings[i].rule).rank <= BREAK) {
            first = SONDE_MIN(first, findings[i].step);
        }
    }
    return first;
}

static placed place(const sonde_finding *finding, size_t i, int64_t first)
{
    int rank = standing_of(finding->rule).rank;

    if (rank == EVENT) {
        rank = finding->step < first ? BREAK : CONSEQUENCE;
    }
    return (placed){*finding, rank, i};
}

/* Causes and what broke are of one kind: the earlier one is the cause. So is all that
 * follows. */
static int kind_of(const placed *item)
{
    return item->finding.because_of != 0 ? CONSEQUENCE : SONDE_MAX(item->rank, BREAK);
}

static int compare(const placed *a, const placed *b)
{
    const sonde_finding *x = &a->finding, *y = &b->finding;
    const int64_t keys[][2] = {
        {x->resolved_step > 0, y->resolved_step > 0},
        {x->severity == SONDE_SEVERITY_NOTE, y->severity == SONDE_SEVERITY_NOTE},
        {x->because_of != 0, y->because_of != 0},
        {kind_of(a), kind_of(b)},
        {x->step, y->step},
        {a->rank, b->rank},
        {y->severity, x->severity},
        {(int64_t)a->place, (int64_t)b->place}};

    for (size_t i = 0; i < SONDE_COUNT_OF(keys); i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_items(const void *a, const void *b)
{
    return compare(a, b);
}

bool sonde_findings_sort(sonde_finding *findings, size_t count)
{
    if (findings == NULL || count < 2) {
        return findings != NULL || count == 0;
    }
    const int64_t first = first_break(findings, count);
    placed *items = sonde__calloc(count, sizeof *items);

    if (items == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = place(&findings[i], i, first);
    }
    qsort(items, count, sizeof *items, compare_items);
    for (size_t i = 0; i < count; i++) {
        findings[i] = items[i].finding;
    }
    sonde__free(items);
    return true;
}

size_t sonde_findings_first(const sonde_finding *findings, size_t count)
{
    if (findings == NULL) {
        return 0;
    }
    const int64_t first = first_break(findings, count);
    size_t best = 0;

    for (size_t i = 1; i < count; i++) {
        const placed a = place(&findings[i], i, first);
        const placed b = place(&findings[best], best, first);

        best = compare(&a, &b) < 0 ? i : best;
    }
    return best;
}

const sonde_finding *sonde__rules_headline(const sonde_rules *rules)
{
    const sonde_finding *best = NULL;
    size_t at = 0;
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < rules->found_count; i++) {
        first = SONDE_MIN(first, first_break(&rules->found[i]->finding, 1));
    }
    for (size_t i = 0; i < rules->found_count; i++) {
        const sonde_finding *finding = &rules->found[i]->finding;
        const placed a = place(finding, i, first);
        const placed b = place(best != NULL ? best : finding, at, first);

        if (finding->resolved_step == 0 && (best == NULL || compare(&a, &b) < 0)) {
            best = finding;
            at = i;
        }
    }
    return best;
}
