/*
 * finding_order.c - findings in the order in which people should read them: what was
 * wrong from the outside or in the setup, what broke first, what followed from it, and
 * doubts about the hardware; notes last.
 *
 * After the first value that is not finite, everything that begins is a consequence.
 */
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/rules.h>

#include <stdlib.h>
#include <string.h>

enum { CAUSE, BREAK, CONSEQUENCE, HARDWARE };

static const struct {
    const char *rule;
    int rank;
} ranks[] = {
    {"CheckInputImages", CAUSE},
    {"ClassImbalance", CAUSE},
    {"DtypeChanged", CAUSE},
    {"DuplicateBatch", CAUSE},
    {"EvalNondeterminism", CAUSE},
    {"FrozenParameter", CAUSE},
    {"InputRange", CAUSE},
    {"LossBroadcast", CAUSE},
    {"LossSign", CAUSE},
    {"MissingZeroGrad", CAUSE},
    {"NLPSequenceRatio", CAUSE},
    {"OptimizerState", CAUSE},
    {"PoorWeightInitialization", CAUSE},
    {"ReplicaDivergence", CAUSE},
    {"SoftmaxMisuse", CAUSE},
    {"SymmetricUnits", CAUSE},
    {"TrainEvalMode", CAUSE},
    {"UnfrozenParameter", CAUSE},
    {"WeightUpdateRatio", CAUSE},
    {"UpdateSpike", HARDWARE},
    {"ExplodingTensor", CONSEQUENCE},
    {"GradientSpike", CONSEQUENCE},
    {"LabelNoise", CONSEQUENCE},
    {"LossNotDecreasing", CONSEQUENCE},
    {"LossSpike", CONSEQUENCE},
    {"Overfit", CONSEQUENCE},
    {"Overtraining", CONSEQUENCE},
};

/* A finding with what orders it. */
typedef struct placed {
    sonde_finding finding;
    int rank;
    size_t place; /* in the order found */
} placed;

/* The global step of the first NonFinite; INT64_MAX: there is none. */
static int64_t first_break(const sonde_finding *findings, size_t count)
{
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(findings[i].rule, "NonFinite") == 0) {
            first = SONDE_MIN(first, findings[i].step);
        }
    }
    return first;
}

static int rank_of(const sonde_finding *finding, int64_t broken)
{
    int rank = BREAK;

    for (size_t i = 0; i < SONDE_COUNT_OF(ranks); i++) {
        if (strcmp(finding->rule, ranks[i].rule) == 0) {
            rank = ranks[i].rank;
        }
    }
    return rank < CONSEQUENCE && finding->step > broken ? CONSEQUENCE : rank;
}

static int compare(const placed *a, const placed *b)
{
    const bool a_note = a->finding.severity == SONDE_SEVERITY_NOTE;
    const bool b_note = b->finding.severity == SONDE_SEVERITY_NOTE;

    if (a_note != b_note) {
        return a_note ? 1 : -1;
    }
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->finding.severity != b->finding.severity) {
        return a->finding.severity > b->finding.severity ? -1 : 1;
    }
    if (a->finding.step != b->finding.step) {
        return a->finding.step < b->finding.step ? -1 : 1;
    }
    return a->place < b->place ? -1 : a->place > b->place;
}

static int compare_items(const void *a, const void *b)
{
    return compare(a, b);
}

bool sonde_findings_sort(sonde_finding *findings, size_t count)
{
    const int64_t broken = first_break(findings, count);
    placed *items = NULL;

    if (count < 2) {
        return true;
    }
    items = sonde__calloc(count, sizeof *items);
    if (items == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = (placed){findings[i], rank_of(&findings[i], broken), i};
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
    const int64_t broken = first_break(findings, count);
    size_t best = 0;

    for (size_t i = 1; i < count; i++) {
        const placed a = {findings[i], rank_of(&findings[i], broken), i};
        const placed b = {findings[best], rank_of(&findings[best], broken), best};

        best = compare(&a, &b) < 0 ? i : best;
    }
    return best;
}
