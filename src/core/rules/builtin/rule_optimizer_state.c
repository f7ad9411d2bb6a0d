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
 *               betas, so one of the two is corrupt. Where it is so for most of at
 *               least four parameters, the optimiser may have another definition: one
 *               finding, a note unless training goes badly. Four and more wait `patience`
 *               looks, because the others may follow;
 *     betas     they are swapped: solved, with sums over all elements, from
 *                   m = b1 m' + (1 - b1) g,      v = b2 v' + (1 - b2) g^2
 *               they satisfy 1 - b2 > 4 (1 - b1) at `patience` steps in a row, with equal
 *               results to within a quarter. For the usual betas 1 - b2 is at least ten
 *               times smaller than 1 - b1. If the gradient that is used is not the one
 *               that is seen (clipped later, or of several micro-batches), the results
 *               differ and nothing fires. Steps that do not follow the previously
 *               observed one are ignored.
 *
 *     epsilon   rms(w - w') / rms(m) is about the same for at least four parameters whose
 *               sqrt(mean v) differ by more than APART, at `patience` looks in a row
 *               after the first AFTER steps: the logarithm of the largest over the
 *               smallest is below ALIKE times that of sqrt(mean v). Adam divides m by
 *               sqrt v + epsilon, so epsilon is above all of them: it, or the gradients,
 *               have the wrong scale. Judged on parameters of at most
 *               512 elements, whose raw values are read. A note, since such a step is
 *               that of plain SGD, which may be intended; if in addition no parameter changes
 *               by more than SLIGHT of its size, it waits for training, and is a warning
 *               unless training goes well.
 *
 * Finds tensors by name: Accl1___w, Accl2___w, Step___w, Gradient___w, or PyTorch's
 * w.exp_avg, w.exp_avg_sq, w.step, w.grad. Evidence: vital signs; raw values of small parameters.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/optimizer.h"
#include "rules/builtin/builtin_values.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/suspicion.h"

#include "base/fail.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

static const sonde__rule_terms all_exceed = {
    SONDE__TERMS(NOTE, ERROR, WARNING, NOTE, NOTE)};

static const sonde_rule_param params[] = {
    SONDE__COUNT(sonde__builtin_optimizer, patience, "3", 1, 1e9, "steps in a row"),
};
static const sonde_rule_need needs[] = {
    {"parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__IN_PAIRS},
    {"gradients", SONDE_HOW_VITALS, true, SONDE__GRADIENTS, SONDE__IN_PAIRS},
    {"optimiser values", SONDE_HOW_VITALS, false, SONDE__STATE, SONDE__IN_PAIRS},
    {"small parameters", SONDE_HOW_VITALS | SONDE_HOW_RAW, true, SONDE__PARAMETERS,
     SONDE__IN_PAIRS},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

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
    return tensor->need == SONDE__OPTIMIZER_PARAMETERS ||
           tensor->need == SONDE__OPTIMIZER_SMALL_PARAMETERS;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    if (need == SONDE__OPTIMIZER_STATE && !is_first(info) && !is_second(info) &&
        !is_step(info)) {
        return SONDE_RULE_IGNORE;
    }
    return need == SONDE__OPTIMIZER_PARAMETERS &&
                   sonde__builtin_is_small(info, SONDE__OPTIMIZER_SMALL)
               ? SONDE__OPTIMIZER_SMALL_PARAMETERS
               : need;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *tensor = &sonde__builtin_tensors(run)[i];
    sonde__builtin_optimizer_memory *memory = tensor->memory;

    memory->change = NAN;
    if (tensor->need != SONDE__OPTIMIZER_SMALL_PARAMETERS) {
        return SONDE_OK;
    }
    memory->before = sonde__calloc(SONDE__OPTIMIZER_SMALL, sizeof *memory->before);
    return memory->before != NULL ? SONDE_OK : sonde__fail_nomem(diag, "OptimizerState");
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    sonde__builtin_optimizer_memory *memory = tensor->memory;
    double values[SONDE__OPTIMIZER_SMALL], change = 0.0;

    (void)run;
    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    size_t count = sonde__builtin_sample(seen->view, SONDE__OPTIMIZER_SMALL, values);
    for (size_t i = 0; i < count; i++) {
        const double d = values[i] - (double)memory->before[i];

        change += d * d;
        memory->before[i] = (float)values[i];
    }
    memory->change = memory->before_step == seen->at.mode_step && count > 0
                         ? sqrt(change / (double)count)
                         : (double)NAN;
    memory->before_step = seen->at.mode_step + 1;
}

static void link_all(sonde_rule_run *run, size_t count)
{
    ((sonde__builtin_optimizer *)sonde_rule_state(run))->linked = count;
    for (int i = 0; i < 2; i++) {
        const int need =
            i == 0 ? SONDE__OPTIMIZER_PARAMETERS : SONDE__OPTIMIZER_SMALL_PARAMETERS;

        sonde__builtin_link(run, need, SONDE__OPTIMIZER_GRADIENTS, NULL,
                            offsetof(sonde__builtin_optimizer_memory, g));
        sonde__builtin_link(run, need, SONDE__OPTIMIZER_STATE, is_first,
                            offsetof(sonde__builtin_optimizer_memory, m));
        sonde__builtin_link(run, need, SONDE__OPTIMIZER_STATE, is_second,
                            offsetof(sonde__builtin_optimizer_memory, v));
        sonde__builtin_link(run, need, SONDE__OPTIMIZER_STATE, is_step,
                            offsetof(sonde__builtin_optimizer_memory, t));
    }
}

/* Vital signs of tensor i, or NULL if it was not seen or is not finite. */
static const sonde_vitals *vitals_of(const sonde_rule_tensor *tensors, size_t i)
{
    const sonde_vitals *v = i != SIZE_MAX ? tensors[i].vitals : NULL;

    return v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0 ? v : NULL;
}

/* Judges the bound for all parameters at once: reports if it is exceeded by most. */
static void judge_all(sonde_rule_run *run, const sonde_rule_tensor *tensors, size_t count)
{
    sonde__builtin_optimizer *state = sonde_rule_state(run);
    size_t judged = 0, beyond = 0, first = SIZE_MAX;

    for (size_t i = 0; i < count; i++) {
        sonde__builtin_optimizer_memory *memory = tensors[i].memory;
        const bool is = is_parameter(&tensors[i]);
        const sonde_vitals *m = is ? vitals_of(tensors, memory->m) : NULL;
        const sonde_vitals *v = is ? vitals_of(tensors, memory->v) : NULL;

        judged += m != NULL && v != NULL;
        if (sonde__builtin_optimizer_exceeds(m, v)) {
            first = first == SIZE_MAX ? memory->m : first;
            beyond++;
            memory->beyond++;
        } else if (m != NULL && v != NULL) {
            memory->beyond = 0;
        }
    }
    state->beyond = beyond;
    if (beyond < SONDE__OPTIMIZER_FEW) {
        return;
    }
    state->other = true;
    if (sonde__rule_suspect(run, first, &all_exceed, "parameters", (double)beyond,
                            (double)judged / 2.0)) {
        sonde_rule_say(run, "Check what its state means, and what was restored.",
                       "The first moments of %zu of %zu parameters are above what their "
                       "second moments allow: this Adam has another definition, or its "
                       "state is of another run.",
                       beyond, judged);
    }
}

static void step(sonde_rule_run *run)
{
    const sonde__builtin_optimizer *state = sonde_rule_state(run);
    sonde__builtin_optimizer_scale all = {0};
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->linked != count) {
        link_all(run, count);
    }
    judge_all(run, tensors, count);
    for (size_t i = 0; i < count; i++) {
        sonde__builtin_optimizer_memory *memory = tensors[i].memory;
        const bool is = is_parameter(&tensors[i]);
        const sonde_vitals *m = is ? vitals_of(tensors, memory->m) : NULL;
        const sonde_vitals *v = is ? vitals_of(tensors, memory->v) : NULL;
        const sonde_vitals *t = is ? vitals_of(tensors, memory->t) : NULL;
        const sonde_vitals *g = is ? vitals_of(tensors, memory->g) : NULL;

        if (v != NULL) {
            sonde__builtin_optimizer_judge_values(run, memory, m, v);
        }
        if (m != NULL && t != NULL) {
            sonde__builtin_optimizer_judge_counter(run, memory, m, t);
        }
        if (m != NULL && v != NULL &&
            sonde__builtin_steps_since(run, &memory->last) == 1 && g != NULL) {
            sonde__builtin_optimizer_judge_betas(run, memory, g, m, v);
        }
        if (m != NULL && v != NULL && vitals_of(tensors, i) != NULL &&
            isfinite(memory->change)) {
            sonde__builtin_optimizer_take_scale(&all, i, memory, tensors[i].vitals, m, v);
        }
        memory->change = NAN;
        memory->sum_m = m != NULL ? m->sum : memory->sum_m;
        memory->sum_v = v != NULL ? v->sum : memory->sum_v;
        memory->has_before = is && m != NULL;
    }
    sonde__builtin_optimizer_judge_epsilon(run, &all);
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(sonde__builtin_optimizer_memory, before));
}

const sonde_rule sonde__builtin_optimizer_state = {
    SONDE__RULE("OptimizerState", sonde__builtin_optimizer),
    .summary = "the state of Adam is invalid or used wrongly",
    .condition =
        "A second moment is below 0; or the step counter does not change for "
        "`patience` steps while the moments do; or |m| is far above sqrt v (of most parameters, a note unless training goes badly); or "
        "the moments change as with swapped betas; or parameters change in "
        "proportion to m, whatever their v: epsilon is far above sqrt v. That is "
        "a note where any of them changes by more than 0.0003 of its size, or training goes well.",
    .advice =
        "Check how the optimiser is created and what is restored from a checkpoint.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(sonde__builtin_optimizer_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
