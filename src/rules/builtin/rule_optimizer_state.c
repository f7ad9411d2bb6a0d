/*
 * OptimizerState - the state of Adam is invalid or used wrongly.
 *
 * For a parameter with first moment m, second moment v, step counter t and gradient g
 * (m', v', t' are those of the previous step), fires when
 *     sign      an element of v is below 0, although v is a mean of squares;
 *     counter   t does not change although m does, at `patience` steps in a row: the bias
 *               correction uses the wrong step;
 *     bound     |m|^2 > LARGEST sum v. With betas b1 and b2 no element of m is above
 *               sqrt(v (1 - b1)^2 / ((1 - b2) (1 - b1^2 / b2))), 7.3 sqrt v for the usual
 *               betas, so one of the two is corrupt;
 *     betas     they are swapped: solved, with sums over all elements, from
 *                   m = b1 m' + (1 - b1) g,      v = b2 v' + (1 - b2) g^2
 *               they satisfy 1 - b2 > 4 (1 - b1) at `patience` steps in a row, with equal
 *               results to within a quarter. For the usual betas 1 - b2 is at least ten
 *               times smaller than 1 - b1. If the gradient that is used is not the one
 *               that is seen (clipped later, or of several micro-batches), the results
 *               differ and nothing fires. Steps that do not follow the previously
 *               observed one are ignored.
 *
 * Finds tensors by name: Accl1___w, Accl2___w, Step___w, Gradient___w, or PyTorch's
 * w.exp_avg, w.exp_avg_sq, w.step, w.grad. Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include <math.h>
#include <string.h>

enum { PARAMETERS = 0, GRADIENTS = 1, STATE = 2 };
#define LARGEST 1e4

typedef struct optimizer_state {
    int64_t patience;
    size_t linked;
} optimizer_state;

typedef struct tensor_memory {
    size_t g, m, v, t; /* of a parameter: indices */
    double sum_m, sum_v, step;
    int64_t last;
    bool has_before;
    int64_t stuck, swapped; /* steps in a row */
    double beta1, beta2;    /* as solved at the last of these */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__COUNT(optimizer_state, patience, "3", 1, 1e9, "steps in a row"),
};
static const sonde_rule_need needs[] = {
    {"parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__IN_PAIRS},
    {"gradients", SONDE_HOW_VITALS, true, SONDE__GRADIENTS, SONDE__IN_PAIRS},
    {"optimiser values", SONDE_HOW_VITALS, false, SONDE__STATE, SONDE__IN_PAIRS}};

static bool ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), n = strlen(end);

    return length > n && strcmp(name + length - n, end) == 0;
}

static bool is_first(const sonde_tensor_info *info)
{
    return strncmp(info->name, "Accl1___", 8) == 0 || ends_in(info->name, ".exp_avg");
}

static bool is_second(const sonde_tensor_info *info)
{
    return strncmp(info->name, "Accl2___", 8) == 0 || ends_in(info->name, ".exp_avg_sq");
}

static bool is_step(const sonde_tensor_info *info)
{
    return strncmp(info->name, "Step___", 7) == 0 || ends_in(info->name, ".step");
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return sonde__builtin_is_parameter(info)                    ? PARAMETERS
           : sonde__builtin_is_gradient(info)                   ? GRADIENTS
           : is_first(info) || is_second(info) || is_step(info) ? STATE
                                                                : SONDE_RULE_IGNORE;
}

static void link_all(sonde_rule_run *run, size_t count)
{
    ((optimizer_state *)sonde_rule_state(run))->linked = count;
    sonde__builtin_link(run, PARAMETERS, GRADIENTS, NULL, offsetof(tensor_memory, g));
    sonde__builtin_link(run, PARAMETERS, STATE, is_first, offsetof(tensor_memory, m));
    sonde__builtin_link(run, PARAMETERS, STATE, is_second, offsetof(tensor_memory, v));
    sonde__builtin_link(run, PARAMETERS, STATE, is_step, offsetof(tensor_memory, t));
}

/* Vital signs of tensor i, or NULL if it was not seen or is not finite. */
static const sonde_vitals *vitals_of(const sonde_rule_tensor *tensors, size_t i)
{
    const sonde_vitals *v = i != SIZE_MAX ? tensors[i].vitals : NULL;

    return v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0 ? v : NULL;
}

static void judge_values(sonde_rule_run *run, const tensor_memory *memory,
                         const sonde_vitals *m, const sonde_vitals *v)
{
    if (v->min < 0.0 &&
        sonde_rule_found(run, memory->v, SONDE_SEVERITY_ERROR, "min", v->min, 0.0)) {
        sonde_rule_say(run, "Check what writes to it, and look for a corrupt checkpoint.",
                       "A second moment is a mean of squares and cannot be negative, but "
                       "one element is %.4g.",
                       v->min);
    }
    if (m != NULL && v->min >= 0.0 && m->sumsq > 1e-30 * (double)m->count &&
        m->sumsq > LARGEST * v->sum &&
        sonde_rule_found(run, memory->m, SONDE_SEVERITY_ERROR, "l2", sqrt(m->sumsq),
                         sqrt(LARGEST * v->sum))) {
        sonde_rule_say(run, "Check what writes to it, and look for a corrupt checkpoint.",
                       "Its norm is %.3g, but the second moments limit it to %.3g.",
                       sqrt(m->sumsq), sqrt(LARGEST * v->sum));
    }
}

static void judge_counter(sonde_rule_run *run, tensor_memory *memory,
                          const sonde_vitals *m, const sonde_vitals *t)
{
    const optimizer_state *state = sonde_rule_state(run);
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

static void judge_betas(sonde_rule_run *run, tensor_memory *memory, const sonde_vitals *g,
                        const sonde_vitals *m, const sonde_vitals *v)
{
    const optimizer_state *state = sonde_rule_state(run);
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

static void step(sonde_rule_run *run)
{
    const optimizer_state *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->linked != count) {
        link_all(run, count);
    }
    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const bool is = tensors[i].need == PARAMETERS;
        const sonde_vitals *m = is ? vitals_of(tensors, memory->m) : NULL;
        const sonde_vitals *v = is ? vitals_of(tensors, memory->v) : NULL;
        const sonde_vitals *t = is ? vitals_of(tensors, memory->t) : NULL;
        const sonde_vitals *g = is ? vitals_of(tensors, memory->g) : NULL;

        if (v != NULL) {
            judge_values(run, memory, m, v);
        }
        if (m != NULL && t != NULL) {
            judge_counter(run, memory, m, t);
        }
        if (m != NULL && v != NULL &&
            sonde__builtin_steps_since(run, &memory->last) == 1 && g != NULL) {
            judge_betas(run, memory, g, m, v);
        }
        memory->sum_m = m != NULL ? m->sum : memory->sum_m;
        memory->sum_v = v != NULL ? v->sum : memory->sum_v;
        memory->has_before = is && m != NULL;
    }
}

const sonde_rule sonde__builtin_optimizer_state = {
    SONDE__RULE("OptimizerState", optimizer_state),
    .summary = "the state of Adam is invalid or used wrongly",
    .condition = "A second moment is below 0; or the step counter does not change for "
                 "`patience` steps while the moments do; or |m| is far above sqrt v; or "
                 "the moments change as with swapped betas.",
    .advice =
        "Check how the optimiser is created and what is restored from a checkpoint.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = step,
};
