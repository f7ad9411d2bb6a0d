/*
 * optimizer_epsilon.c - OptimizerState: epsilon is far above the roots of second moments.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/optimizer.h"
#include "rules/suspicion.h"

#include <math.h>

/* Updates that are tiny, because epsilon is large. */
static const sonde__rule_terms tiny_updates = {
    SONDE__TERMS(NOTE, WARNING, WARNING, NOTE, WARNING)};
enum { AFTER = 10 };
#define ALIKE 0.15
#define APART 2.0
#define SLIGHT 3e-4
#define LEAST_RMS 1e-2 /* a parameter may begin at 0 */

void sonde__builtin_optimizer_take_scale(sonde__builtin_optimizer_scale *all, size_t i,
                                         const sonde__builtin_optimizer_memory *memory,
                                         const sonde_vitals *w, const sonde_vitals *m,
                                         const sonde_vitals *v)
{
    const double root = sqrt(fmax(v->sum, 0.0) / (double)v->count);
    const double by = memory->change / sonde__builtin_rms(m);

    /* Changes near the precision of float32 are not known well enough. */
    if (!(memory->change > 1e-6 * sonde__builtin_rms(w)) || !isfinite(by) ||
        !(root > 0.0)) {
        return;
    }
    all->largest = all->count == 0 || root > all->most_root ? i : all->largest;
    all->least_by = all->count == 0 ? by : fmin(all->least_by, by);
    all->most_by = fmax(all->most_by, by);
    all->least_root = all->count == 0 ? root : fmin(all->least_root, root);
    all->most_root = fmax(all->most_root, root);
    all->most_change =
        fmax(all->most_change, memory->change / fmax(sonde__builtin_rms(w), LEAST_RMS));
    all->count++;
}

/* True the first time. */
static bool report_epsilon(sonde_rule_run *run, const sonde__builtin_optimizer_scale *all)
{
    const double apart = all->most_root / all->least_root;

    return all->most_change < SLIGHT
               ? sonde__rule_suspect(run, all->largest, &tiny_updates,
                                     "root_second_moment", all->most_root, apart)
               : sonde_rule_found(run, all->largest, SONDE_SEVERITY_NOTE,
                                  "root_second_moment", all->most_root, apart);
}

void sonde__builtin_optimizer_judge_epsilon(sonde_rule_run *run,
                                            const sonde__builtin_optimizer_scale *all)
{
    sonde__builtin_optimizer *state = sonde_rule_state(run);

    if (all->count < SONDE__OPTIMIZER_FEW || sonde_rule_at(run)->mode_step < AFTER) {
        return;
    }
    bool drowned =
        all->most_root > APART * all->least_root &&
        log(all->most_by / all->least_by) < ALIKE * log(all->most_root / all->least_root);
    state->drowned = drowned ? state->drowned + 1 : 0;
    if (state->drowned >= state->patience && report_epsilon(run, all)) {
        sonde_rule_say(run, "Lower the optimiser's epsilon; check the scale of the loss.",
                       "Parameters change in proportion to their first moments, though "
                       "the roots of the second moments go from %.2g to %.2g: the "
                       "optimiser's epsilon is far above them.",
                       all->least_root, all->most_root);
    }
}
