/*
 * OptimizerState - the state of Adam is invalid or used wrongly.
 *
 * For a parameter with first moment m, second moment v, step counter t and gradient g
 * (m', v', t' are those of the previous step), fires when
 *     sign      an element of v is below 0, although v is a mean of squares;
 *     counter   t does not change although m does, at `patience` steps in a row: the bias
 *               correction uses the wrong step;
 *     bound     |m|^2 > 1e4 sum v. With betas b1 and b2 no element of m is above
 *               sqrt(v (1 - b1)^2 / ((1 - b2) (1 - b1^2 / b2))), 7.3 sqrt v for the usual
 *               betas, so one of the two is corrupt. If most of at least four parameters
 *               are beyond the bound, the optimizer may be defined otherwise: there is one
 *               finding, a note unless training goes badly. Four or more parameters wait
 *               `patience` looks, because others may follow;
 *     betas     they are swapped: solved, with sums over all elements, from
 *                   m = b1 m' + (1 - b1) g,      v = b2 v' + (1 - b2) g^2
 *               they satisfy 1 - b2 > 4 (1 - b1) at `patience` steps in a row, with equal
 *               results to within a quarter. For the usual betas 1 - b2 is at least ten
 *               times smaller than 1 - b1. If the gradient that is used is not the one
 *               that is seen (clipped later, or of several micro-batches), the results
 *               differ and nothing fires. Steps that do not follow the previously
 *               observed one are ignored;
 *     epsilon   rms(w - w') / rms(m) is about the same for at least four parameters whose
 *               sqrt(mean v) differ by more than APART, at `patience` looks in a row
 *               after the first AFTER steps: the logarithm of the largest over the
 *               smallest is below ALIKE times that of sqrt(mean v). Adam divides m by
 *               sqrt v + epsilon, so epsilon is above all of them: it, or the gradients,
 *               have the wrong scale. The rule reads raw values of parameters of at most
 *               512 elements. The finding is a note, since such a step is that of plain
 *               SGD, which may be intended. If no parameter changes by more than SLIGHT of
 *               its size either, it waits for training, and is a warning unless training
 *               goes well.
 *
 * Finds tensors by name: Accl1___w, Accl2___w, Step___w, Gradient___w, or PyTorch's
 * w.exp_avg, w.exp_avg_sq, w.step, w.grad. Evidence: vital signs; raw values of small parameters.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"
#include "base/fail.h"
#include "base/memory.h"

#include "base/macros.h"

#include <sonde/rule.h>

#include <string.h>

enum { PARAMETERS, GRADIENTS, STATE, SMALL_PARAMETERS, LOSSES }; /* needs */
enum { SMALL = 512, FEW = 4, AFTER = 10 };
#define LARGEST 1e4
#define ALIKE 0.15
#define APART 2.0
#define SLIGHT 3e-4
#define LEAST_RMS 1e-2 /* a parameter may begin at 0 */

typedef struct optimizer {
    int64_t patience;
    size_t linked;
    int64_t drowned; /* looks in a row at which epsilon is above all gradients */
    size_t beyond;   /* parameters beyond the bound at this step */
    bool other;      /* most of them have been */
} optimizer;

typedef struct tensor_memory {
    size_t g, m, v, t; /* of a parameter: indices */
    double sum_m, sum_v, step;
    int64_t last;
    bool has_before;
    int64_t stuck, swapped, beyond; /* steps in a row */
    double beta1, beta2;            /* as solved at the last of these */
    int64_t before_step;            /* mode_step + 1 of these; 0: none */
    double change;                  /* rms(w - w') of this step; 0: not known */
    float *before;                  /* of a small parameter: its elements */
} tensor_memory;

/* What the small parameters of a step have in common. */
typedef struct scale {
    size_t count, largest;        /* of them; the one with the largest gradient */
    double least_by, most_by;     /* rms(w - w') / rms(m) */
    double least_root, most_root; /* sqrt(mean v) */
    double most_change;           /* rms(w - w') / rms(w) */
} scale;

SONDE__TERMS(all_exceed, NOTE, ERROR, WARNING, NOTE, NOTE);

static const sonde_rule_param optimizer_params[] = {
    SONDE__COUNT(optimizer, patience, "3", 1, 1e9,
                 "number of steps in a row at which the condition must hold"),
};
static const sonde_rule_need optimizer_needs[] = {
    {"parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__IN_PAIRS},
    {"gradients", SONDE_HOW_VITALS, true, SONDE__GRADIENTS, SONDE__IN_PAIRS},
    {"optimizer values", SONDE_HOW_VITALS, false, SONDE__STATE, SONDE__IN_PAIRS},
    {"small parameters", SONDE_HOW_VITALS | SONDE_HOW_RAW, true, SONDE__PARAMETERS,
     SONDE__IN_PAIRS},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* --- the moments and the step counter of one parameter ----------------------------- */

/* Whether m is beyond the bound of the file header. */
static bool exceeds(const sonde_vitals *m, const sonde_vitals *v)
{
    return v->min >= 0.0 && m->sumsq > 1e-30 * (double)m->count &&
           m->sumsq > LARGEST * v->sum;
}

static void judge_values(sonde_rule_run *run, const tensor_memory *memory,
                         const sonde_vitals *m, const sonde_vitals *v)
{
    const optimizer *state = sonde_rule_state(run);

    if (v->min < 0.0) {
        sonde__rule_report(
            run, sonde__builtin_at(run, memory->v), SONDE__SURE(ERROR), "min", v->min,
            0.0, "Check what writes to it, and look for a corrupt checkpoint.",
            "A second moment is a mean of squares and cannot be negative, but "
            "one element is %.4g.",
            v->min);
    }
    if (!state->other && memory->beyond >= (state->beyond < FEW ? 1 : state->patience) &&
        m != NULL && exceeds(m, v)) {
        sonde__rule_report(run, sonde__builtin_at(run, memory->m), SONDE__SURE(ERROR),
                           "l2", sqrt(m->sumsq), sqrt(LARGEST * v->sum),
                           "Check what writes to it, and look for a corrupt checkpoint.",
                           "Its norm is %.3g, but the second moments limit it to %.3g.",
                           sqrt(m->sumsq), sqrt(LARGEST * v->sum));
    }
}

static void judge_counter(sonde_rule_run *run, tensor_memory *memory,
                          const sonde_vitals *m, const sonde_vitals *t)
{
    const optimizer *state = sonde_rule_state(run);
    const bool stays =
        memory->has_before && t->sum == memory->step && m->sum != memory->sum_m;

    memory->stuck = stays ? memory->stuck + 1 : 0;
    memory->step = t->sum;
    if (memory->stuck >= state->patience) {
        sonde__rule_report(
            run, sonde__builtin_at(run, memory->t), SONDE__SURE(ERROR), "steps_unchanged",
            (double)memory->stuck, (double)state->patience,
            "Increment the step counter at every update, and save it with the "
            "rest of the state.",
            "It stays at %.6g while the moments change: their bias correction "
            "uses the wrong step.",
            t->sum);
    }
}

/* b of `now = b before + (1 - b) fresh`; NaN if the numbers do not determine it. */
static double solve(double now, double before, double fresh, double size)
{
    const double by = before - fresh;

    return fabs(by) > 1e-2 * size ? (now - fresh) / by : (double)NAN;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 0.25 * fmax(fabs(a), fabs(b));
}

static void judge_betas(sonde_rule_run *run, tensor_memory *memory, const sonde_vitals *g,
                        const sonde_vitals *m, const sonde_vitals *v)
{
    const optimizer *state = sonde_rule_state(run);
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
        !sonde__builtin_optimizer_is_swapped(
            sonde_rule_program(run, (sonde_mode)sonde_rule_at(run)->mode))) {
        sonde__rule_report(
            run, sonde__builtin_at(run, memory->m), SONDE__SURE(ERROR), "beta1", b1, b2,
            "Swap them: beta1 belongs to the mean of gradients.",
            "The moments change as with beta1 = %.4g and beta2 = %.4g, which "
            "look swapped.",
            b1, b2);
    }
}

/* --- epsilon: of all small parameters ---------------------------------------------- */

/* Updates that are tiny, because epsilon is large. */
SONDE__TERMS(tiny_updates, NOTE, WARNING, WARNING, NOTE, WARNING);

static void take_scale(scale *all, size_t i, const tensor_memory *memory,
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

static void judge_epsilon(sonde_rule_run *run, const scale *all)
{
    optimizer *state = sonde_rule_state(run);

    if (all->count < FEW || sonde_rule_at(run)->mode_step < AFTER) {
        return;
    }
    const double apart = all->most_root / all->least_root;
    const bool drowned =
        apart > APART && log(all->most_by / all->least_by) < ALIKE * log(apart);
    state->drowned = drowned ? state->drowned + 1 : 0;
    if (state->drowned >= state->patience) {
        sonde__rule_report(
            run, sonde__builtin_at(run, all->largest),
            all->most_change < SLIGHT ? &tiny_updates : SONDE__SURE(NOTE),
            "root_second_moment", all->most_root, apart,
            "Lower the optimizer's epsilon; check the scale of the loss.",
            "Parameters change in proportion to their first moments, though the roots of "
            "the second moments go from %.2g to %.2g: the optimizer's epsilon is far "
            "above them.",
            all->least_root, all->most_root);
    }
}

/* --- the rule ---------------------------------------------------------------------- */

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

static bool is_parameter(const sonde_rule_tensor *tensor)
{
    return tensor->need == PARAMETERS || tensor->need == SMALL_PARAMETERS;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    if (need == STATE && !is_first(info) && !is_second(info) && !is_step(info)) {
        return SONDE_RULE_IGNORE;
    }
    return need == PARAMETERS && sonde__builtin_is_small(info, SMALL) ? SMALL_PARAMETERS
                                                                      : need;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *tensor = sonde__builtin_at(run, i);
    tensor_memory *memory = tensor->memory;

    if (tensor->need != SMALL_PARAMETERS) {
        return SONDE_OK;
    }
    memory->before = sonde__calloc(SMALL, sizeof *memory->before);
    return memory->before != NULL ? SONDE_OK : sonde__fail_nomem(diag, "OptimizerState");
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(tensor_memory, before));
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    tensor_memory *memory = tensor->memory;
    double values[SMALL], change = 0.0;
    const size_t count = sonde__builtin_sample_first(observation, SMALL, values);

    (void)run;
    if (count == 0 || memory->before == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const double d = values[i] - (double)memory->before[i];

        change += d * d;
        memory->before[i] = (float)values[i];
    }
    memory->change = memory->before_step == observation->at.mode_step
                         ? sqrt(change / (double)count)
                         : 0.0;
    memory->before_step = observation->at.mode_step + 1;
}

static const sonde__builtin_link links[] = {
    {PARAMETERS, GRADIENTS, offsetof(tensor_memory, g), NULL},
    {PARAMETERS, STATE, offsetof(tensor_memory, m), is_first},
    {PARAMETERS, STATE, offsetof(tensor_memory, v), is_second},
    {PARAMETERS, STATE, offsetof(tensor_memory, t), is_step},
    {SMALL_PARAMETERS, GRADIENTS, offsetof(tensor_memory, g), NULL},
    {SMALL_PARAMETERS, STATE, offsetof(tensor_memory, m), is_first},
    {SMALL_PARAMETERS, STATE, offsetof(tensor_memory, v), is_second},
    {SMALL_PARAMETERS, STATE, offsetof(tensor_memory, t), is_step}};

/* Vital signs of a part of a parameter; NULL if it was not seen or is not finite. */
static const sonde_vitals *part_of(sonde_rule_run *run, const sonde_rule_tensor *t,
                                   size_t part)
{
    const sonde_vitals *v = is_parameter(t) ? sonde__builtin_seen_at(run, part) : NULL;

    return sonde__builtin_is_finite(v) ? v : NULL;
}

/* Judges the bound for all parameters at once: reports if it is exceeded by most. */
static void judge_all(sonde_rule_run *run)
{
    optimizer *state = sonde_rule_state(run);
    size_t judged = 0, first = SIZE_MAX;

    state->beyond = 0;
    SONDE__EACH (run, t) {
        tensor_memory *memory = t->memory;
        const sonde_vitals *m = part_of(run, t, memory->m),
                           *v = part_of(run, t, memory->v);

        if (m == NULL || v == NULL) {
            continue;
        }
        judged++;
        memory->beyond = exceeds(m, v) ? memory->beyond + 1 : 0;
        if (memory->beyond > 0) {
            first = first == SIZE_MAX ? memory->m : first;
            state->beyond++;
        }
    }
    if (state->beyond < FEW) {
        return;
    }
    state->other = true;
    sonde__rule_report(run, sonde__builtin_at(run, first), &all_exceed, "parameters",
                       (double)state->beyond, (double)judged / 2.0,
                       "Check what its state means, and what was restored.",
                       "The first moments of %zu of %zu parameters are above what their "
                       "second moments allow: this Adam has another definition, or its "
                       "state is of another run.",
                       state->beyond, judged);
}

static void step(sonde_rule_run *run)
{
    optimizer *state = sonde_rule_state(run);
    scale all = {0};

    sonde__builtin_relink(run, &state->linked, links, SONDE_COUNT_OF(links));
    judge_all(run);
    SONDE__EACH (run, p) {
        tensor_memory *memory = p->memory;
        const sonde_vitals *m = part_of(run, p, memory->m),
                           *v = part_of(run, p, memory->v);
        const sonde_vitals *t = part_of(run, p, memory->t),
                           *g = part_of(run, p, memory->g);

        if (v != NULL) {
            judge_values(run, memory, m, v);
        }
        if (m != NULL && t != NULL) {
            judge_counter(run, memory, m, t);
        }
        if (m != NULL && v != NULL) {
            if (sonde__builtin_steps_since(run, &memory->last) == 1 && g != NULL) {
                judge_betas(run, memory, g, m, v);
            }
            if (sonde__builtin_is_finite(p->vitals)) {
                take_scale(&all, sonde__builtin_index(run, p), memory, p->vitals, m, v);
            }
        }
        memory->change = 0.0;
        memory->sum_m = m != NULL ? m->sum : memory->sum_m;
        memory->sum_v = v != NULL ? v->sum : memory->sum_v;
        memory->has_before = m != NULL;
    }
    judge_epsilon(run, &all);
}

const sonde_rule sonde__builtin_optimizer_state = {
    SONDE__RULE("OptimizerState", optimizer),
    .summary =
        "the state of Adam is invalid or used wrongly, or an optimizer's settings are",
    .condition =
        "Any of these holds for the first moment m and the second moment v: (1) an element of v is below 0; (2) the step counter does not change for `patience` steps while the moments do; "
        "(3) |m| is far above sqrt v; (4) the moments change as with swapped betas; (5) parameters change in proportion to m, whatever their v, so epsilon is far above sqrt v. "
        "Where the program of a step is known, of any optimizer: (6) its momentum is 1 or more, or above 0.995 while the learning rate is not as small (a warning), or gradients are clipped to a norm below 1e-6; (7) its beta1 is above its beta2; (8) it maximizes a loss that compares predictions with targets; (9) its weight decay takes more than 1.5 % of each weight at a step or, beside gradients that it divides by their size, is above 0.3 (a warning). "
        "(3) is a note if it holds for most parameters and training does not go badly. (5) is a note if any of the parameters changes by more than 0.0003 of its size, or if training goes well.",
    .advice =
        "Check how the optimizer is created and what is restored from a checkpoint.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .program = sonde__builtin_optimizer_program,
    .step = step,
    .destroy = destroy,
};
