/*
 * optimizer_moments.c - OptimizerState: the moments and the step counter of one parameter.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/optimizer.h"

#include <math.h>

bool sonde__builtin_optimizer_exceeds(const sonde_vitals *m, const sonde_vitals *v)
{
    return m != NULL && v != NULL && v->min >= 0.0 &&
           m->sumsq > 1e-30 * (double)m->count &&
           m->sumsq > SONDE__OPTIMIZER_LARGEST * v->sum;
}

void sonde__builtin_optimizer_judge_values(sonde_rule_run *run,
                                           const sonde__builtin_optimizer_memory *memory,
                                           const sonde_vitals *m, const sonde_vitals *v)
{
    const sonde__builtin_optimizer *state = sonde_rule_state(run);

    if (v->min < 0.0 &&
        sonde_rule_found(run, memory->v, SONDE_SEVERITY_ERROR, "min", v->min, 0.0)) {
        sonde_rule_say(run, "Check what writes to it, and look for a corrupt checkpoint.",
                       "A second moment is a mean of squares and cannot be negative, but "
                       "one element is %.4g.",
                       v->min);
    }
    if (!state->other &&
        memory->beyond >= (state->beyond < SONDE__OPTIMIZER_FEW ? 1 : state->patience) &&
        sonde__builtin_optimizer_exceeds(m, v) &&
        sonde_rule_found(run, memory->m, SONDE_SEVERITY_ERROR, "l2", sqrt(m->sumsq),
                         sqrt(SONDE__OPTIMIZER_LARGEST * v->sum))) {
        sonde_rule_say(run, "Check what writes to it, and look for a corrupt checkpoint.",
                       "Its norm is %.3g, but the second moments limit it to %.3g.",
                       sqrt(m->sumsq), sqrt(SONDE__OPTIMIZER_LARGEST * v->sum));
    }
}

void sonde__builtin_optimizer_judge_counter(sonde_rule_run *run,
                                            sonde__builtin_optimizer_memory *memory,
                                            const sonde_vitals *m, const sonde_vitals *t)
{
    const sonde__builtin_optimizer *state = sonde_rule_state(run);
    const bool stays =
        memory->has_before && t->sum == memory->step && m->sum != memory->sum_m;

    memory->stuck = stays ? memory->stuck + 1 : 0;
    memory->step = t->sum;
    if (memory->stuck >= state->patience &&
        sonde_rule_found(run, memory->t, SONDE_SEVERITY_ERROR, "steps_unchanged",
                         (double)memory->stuck, (double)state->patience)) {
        sonde_rule_say(run,
                       "Increment the step counter at every update, and save it with the "
                       "rest of the state.",
                       "It stays at %.6g while the moments change: their bias correction "
                       "uses the wrong step.",
                       t->sum);
    }
}

/* b of `now = b before + (1 - b) fresh`; NaN if the numbers do not determine it. */
static double solve(double now, double before, double fresh, double scale)
{
    const double by = before - fresh;

    return fabs(by) > 1e-2 * scale ? (now - fresh) / by : (double)NAN;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 0.25 * fmax(fabs(a), fabs(b));
}

void sonde__builtin_optimizer_judge_betas(sonde_rule_run *run,
                                          sonde__builtin_optimizer_memory *memory,
                                          const sonde_vitals *g, const sonde_vitals *m,
                                          const sonde_vitals *v)
{
    const sonde__builtin_optimizer *state = sonde_rule_state(run);
    const double b1 = solve(m->sum, memory->sum_m, g->sum, g->l1);
    const double b2 = solve(v->sum, memory->sum_v, g->sumsq, g->sumsq);
    const bool may_be = b1 > 0.0 && b1 < 1.0 && b2 > 0.0 && b2 < 0.98;
    const bool swapped = memory->has_before && may_be && 1.0 - b2 > 4.0 * (1.0 - b1);
    const bool same = memory->swapped == 0 || (near(1.0 - b1, 1.0 - memory->beta1) &&
                                               near(1.0 - b2, 1.0 - memory->beta2));

    if (memory->has_before && isfinite(b1) &&
        isfinite(b2)) { /* else the step is ignored */
        memory->swapped = swapped ? (same ? memory->swapped + 1 : 1) : 0;
        memory->beta1 = b1;
        memory->beta2 = b2;
    }
    if (memory->swapped >= state->patience &&
        sonde_rule_found(run, memory->m, SONDE_SEVERITY_ERROR, "beta1", b1, b2)) {
        sonde_rule_say(run, "Swap them: beta1 belongs to the mean of gradients.",
                       "The moments change as with beta1 = %.4g and beta2 = %.4g, which "
                       "look swapped.",
                       b1, b2);
    }
}
