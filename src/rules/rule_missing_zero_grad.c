/*
 * MissingZeroGrad - gradients are not cleared: each is the one before plus a fresh one.
 *
 * With g' the gradient of the step before, g this one, f = g - g' and all parameters taken
 * together, fires when at `patience` steps on end
 *     f . g' > 0          of independent gradients it is about -|g'|^2, whatever the noise
 *     |f| > |g| / 8       g grows by a fresh gradient, not by a little; once, |f| > |g| / 4
 *     |f| < 2 |f'| and |f'| < 2 |f|     of a steady size
 *     f . f' < 0.95 |f| |f'|      at one of them: fresh gradients of other batches differ, while one
 *                         that swings, of the same batch at each step, grows smoothly
 * where f' is the f before, and over these steps f has grown by less than the square root of what
 * g has: sums grow by equal parts, |g| as 2, 3, 4 and |f| not at all; a gradient that grows by
 * a factor, as on leaving a plateau, has an f that grows by the same. Nor does it count while no
 * parameter changes: gradients that are summed over several batches before an update are meant to.
 * Of each gradient SAMPLE elements are looked at, evenly spread.
 *
 * Evidence: raw gradients of steps that follow each other; vital signs of parameters.
 */
#include "rules/builtin.h"

#include "base/base.h"

enum { SAMPLE = 512, GRADIENTS = 0, PARAMETERS = 1 };

typedef struct zero_grad {
    int64_t patience, bad, pairs;
    double dot, fresh, now;        /* of this step: f . g', |f|^2, |g|^2 */
    double fresh_before;           /* |f'|; 0: none */
    double along;                  /* of this step: f . f' */
    double now_before;             /* |g'| */
    double fresh_first, now_first; /* where the streak began: |f'| and |g'| */
    bool paired, clearly, rough;
} zero_grad;

typedef struct memory {
    float *before, *fresh; /* g' and f' */
    size_t count;
    int64_t step; /* of its mode */
    bool has;
    double l1, sum; /* of a parameter, before */
} memory;

static const sonde_rule_param params[] = {
    {"patience", SONDE_RULE_COUNT, "3", 1, 1e9, "steps on end",
     offsetof(zero_grad, patience), false},
};
static const sonde_rule_need needs[] = {
    {"gradients", SONDE_HOW_RAW, false, true},
    {"vital signs of parameters", SONDE_HOW_VITALS, true, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return sonde__is_gradient(info) ? GRADIENTS
           : info->role == SONDE_ROLE_WEIGHT || info->role == SONDE_ROLE_BIAS
               ? PARAMETERS
               : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    size_t count = 0;
    memory *of = sonde_rule_tensors(run, &count)[i].memory;

    if (sonde_rule_tensors(run, &count)[i].need == PARAMETERS) {
        return SONDE_OK;
    }
    of->before = sonde__calloc(2 * (size_t)SAMPLE, sizeof *of->before);
    of->fresh = of->before != NULL ? of->before + SAMPLE : NULL;
    return of->before != NULL ? SONDE_OK : sonde__fail_nomem(diag, "MissingZeroGrad");
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    zero_grad *state = sonde_rule_state(run);
    memory *of = tensor->memory;
    const bool paired = of->has && seen->at.mode_step == of->step + 1;
    double values[SAMPLE];
    size_t count = 0;

    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    count = sonde__sample(seen->view, SAMPLE, values);
    for (size_t i = 0; i < count; i++) {
        const double before = (double)of->before[i], fresh = values[i] - before;

        if (paired && i < of->count) {
            state->dot += fresh * before;
            state->fresh += fresh * fresh;
            state->now += values[i] * values[i];
            state->along += fresh * (double)of->fresh[i];
            of->fresh[i] = (float)fresh;
        }
        of->before[i] = (float)values[i];
    }
    state->paired = state->paired || paired;
    of->count = count;
    of->step = seen->at.mode_step;
    of->has = true;
}

/* Whether any parameter has changed, or none can be seen. */
static bool updated(sonde_rule_run *run)
{
    size_t count = 0, seen = 0, changed = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].need == PARAMETERS ? tensors[i].vitals : NULL;
        memory *of = tensors[i].memory;

        if (v != NULL) {
            seen++;
            changed += !of->has || v->l1 != of->l1 || v->sum != of->sum;
            of->l1 = v->l1;
            of->sum = v->sum;
            of->has = true;
        }
    }
    return changed > 0 || seen == 0;
}

/* One more step that looks like it; what the streak began with. */
static void take_streak(zero_grad *state, bool looks, bool clearly, bool rough)
{
    if (looks && state->bad == 0) {
        state->fresh_first = state->fresh_before;
        state->now_first = state->now_before;
    }
    state->bad = looks ? state->bad + 1 : 0;
    state->clearly = looks && (clearly || (state->bad > 1 && state->clearly));
    state->rough = looks && (rough || (state->bad > 1 && state->rough));
}

static void step(sonde_rule_run *run)
{
    zero_grad *state = sonde_rule_state(run);
    const double fresh = sqrt(state->fresh), before = state->fresh_before;
    const double now = sqrt(state->now);
    const bool steady = before > 0.0 && fresh < 2.0 * before && before < 2.0 * fresh;
    const bool grows = state->dot > 0.0 && 8.0 * fresh > now;
    const bool changed = updated(run);

    if (state->paired) {
        bool sums = false;

        state->pairs++;
        take_streak(state, steady && grows && changed, 4.0 * fresh > now,
                    state->along < 0.95 * fresh * before);
        sums = state->clearly && state->rough && state->now_first > 0.0 &&
               log(fresh / state->fresh_first) < 0.5 * log(now / state->now_first);
        state->fresh_before = fresh;
        state->now_before = now;
        if (state->bad >= state->patience && sums &&
            sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, SONDE_SEVERITY_ERROR, "steps",
                             (double)state->bad, (double)state->patience)) {
            sonde_rule_say(
                run, NULL,
                "Each gradient is the one of the step before plus a fresh one: "
                "they add up (now a norm of %.3g, the fresh part %.3g).",
                now, fresh);
        }
    }
    state->dot = state->fresh = state->now = state->along = 0.0;
    state->paired = false;
}

static void finish(sonde_rule_run *run)
{
    const zero_grad *state = sonde_rule_state(run);

    if (state->pairs == 0) {
        sonde_rule_lacked(run, "no raw gradients of two steps in a row were recorded");
    }
}

static void destroy(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        sonde__free(((memory *)tensors[i].memory)->before);
    }
}

const sonde_rule sonde__missing_zero_grad = {
    .abi = SONDE_RULE_ABI,
    .name = "MissingZeroGrad",
    .summary = "gradients are not cleared between steps",
    .condition = "At `patience` steps on end gradients equal those of the step before "
                 "plus a fresh "
                 "part of steady size.",
    .advice = "Clear gradients after each update (zero_grad).",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(zero_grad),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .finish = finish,
    .destroy = destroy,
};
