/*
 * finding_order.c - which finding follows from which, and the order in which people
 * should read them: what was wrong from the outside or in the setup, what broke first,
 * what followed from it, and doubts about the hardware; notes last.
 *
 * While a value is not finite, everything that begins follows from the finding of
 * NonFinite that names its source; at the very step, that is what the table calls a
 * consequence. Rules that judge the data or the process judge no such value.
 */
#include "rules/engine.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/rules.h>

#include <stdlib.h>
#include <string.h>

/* EVENT: a BREAK if it comes before all causes and breaks, else a CONSEQUENCE. */
enum { CAUSE, BREAK, EVENT, CONSEQUENCE, HARDWARE };

/* apart: it judges the data or the process. A rule that is not here breaks. */
typedef struct standing {
    const char *rule;
    int rank;
    bool apart;
} standing;

static const standing standings[] = {
    {"CheckInputImages", CAUSE, true},
    {"ClassImbalance", CAUSE, false},
    {"DtypeChanged", CAUSE, false},
    {"DuplicateBatch", CAUSE, true},
    {"EvalNondeterminism", CAUSE, false},
    {"FrozenParameter", CAUSE, false},
    {"InputRange", CAUSE, true},
    {"LossBroadcast", CAUSE, false},
    {"LossSign", CAUSE, false},
    {"MissingZeroGrad", CAUSE, false},
    {"NLPSequenceRatio", CAUSE, true},
    {"OptimizerState", CAUSE, false},
    {"PoorWeightInitialization", CAUSE, false},
    {"ReplicaDivergence", CAUSE, false},
    {"SoftmaxMisuse", CAUSE, false},
    {"StalledTraining", BREAK, true},
    {"SymmetricUnits", CAUSE, false},
    {"TrainEvalMode", CAUSE, false},
    {"UnfrozenParameter", CAUSE, false},
    {"WeightUpdateRatio", CAUSE, false},
    {"UpdateSpike", HARDWARE, false},
    {"ExplodingTensor", CONSEQUENCE, false},
    {"GradientSpike", EVENT, false},
    {"LabelNoise", CONSEQUENCE, false},
    {"LossNotDecreasing", CONSEQUENCE, false},
    {"LossSpike", EVENT, false},
    {"Overfit", CONSEQUENCE, false},
    {"Overtraining", CONSEQUENCE, false},
};

static standing standing_of(const char *rule)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(standings); i++) {
        if (strcmp(rule, standings[i].rule) == 0) {
            return standings[i];
        }
    }
    return (standing){rule, BREAK, false};
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
    return !kind.apart && !is_source(finding) && !is_own_failure(finding) &&
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

void sonde__rules_set_causes(sonde_rules *rules)
{
    const sonde_finding *source = source_now(rules);

    for (size_t i = rules->reported; source != NULL && i < rules->found_count; i++) {
        sonde_finding *finding = &rules->found[i]->finding;

        if (finding->because_of == 0 && follows(finding, source)) {
            finding->because_of = source->id;
        }
    }
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

/* The step of the first cause or break that is no note; INT64_MAX: there is none. */
static int64_t first_break(const sonde_finding *findings, size_t count)
{
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (findings[i].because_of == 0 && findings[i].severity > SONDE_SEVERITY_NOTE &&
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
    return (placed){*finding,
                    finding->because_of != 0 ? SONDE_MAX(rank, CONSEQUENCE) : rank, i};
}

static int compare(const placed *a, const placed *b)
{
    const sonde_finding *x = &a->finding, *y = &b->finding;
    const int64_t keys[][2] = {
        {x->severity == SONDE_SEVERITY_NOTE, y->severity == SONDE_SEVERITY_NOTE},
        {a->rank, b->rank},
        {y->severity, x->severity},
        {x->step, y->step},
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
