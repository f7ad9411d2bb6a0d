/*
 * MissingZeroGrad - gradients are not cleared: each is the one before plus a fresh one.
 *
 * With g' the gradient of the step before, g this one, f = g - g' and all parameters taken
 * together, fires when at `patience` steps on end
 *     f . g' > 0          of independent gradients it is about -|g'|^2, whatever the noise
 *     |f| > |g| / 6       g grows by a fresh gradient, not by a little
 *     |f| < 1.5 |f'| and |f'| < 1.5 |f|     of a steady size: no explosion
 * where f' is the f before. Of each gradient the first 2048 elements are looked at.
 *
 * Evidence: raw gradients of steps that follow each other.
 */
#include "rules/builtin.h"

#include "base/base.h"

enum { SAMPLE = 2048 };

typedef struct zero_grad {
    int64_t patience, bad, pairs;
    double dot, fresh, now; /* of this step: f . g', |f|^2, |g|^2 */
    double fresh_before;    /* |f'|; 0: none */
    bool paired;
} zero_grad;

typedef struct memory {
    float *before;
    size_t count;
    int64_t step; /* of its mode */
    bool has;
} memory;

static const sonde_rule_param params[] = {
    {"patience", SONDE_RULE_COUNT, "3", 1, 1e9, "steps on end",
     offsetof(zero_grad, patience), false},
};
static const sonde_rule_need needs[] = {{"gradients", SONDE_HOW_RAW, false, true}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return sonde__is_gradient(info) && sonde__is_own(info, id) ? 0 : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    size_t count = 0;
    memory *of = sonde_rule_tensors(run, &count)[i].memory;

    of->before = sonde__calloc(SAMPLE, sizeof *of->before);
    return of->before != NULL ? SONDE_OK : sonde__fail_nomem(diag, "MissingZeroGrad");
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    zero_grad *state = sonde_rule_state(run);
    memory *of = tensor->memory;
    const bool paired = of->has && seen->at.mode_step == of->step + 1;
    sonde__reader reader;
    double values[SONDE__CHUNK];
    size_t at = 0;

    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    sonde__reader_init(&reader, seen->view);
    for (size_t n = 0; at < SAMPLE && (n = sonde__reader_take(&reader, values)) > 0;) {
        for (size_t i = 0; i < n && at < SAMPLE; i++, at++) {
            const double before = (double)of->before[at], fresh = values[i] - before;

            if (paired && at < of->count) {
                state->dot += fresh * before;
                state->fresh += fresh * fresh;
                state->now += values[i] * values[i];
            }
            of->before[at] = (float)values[i];
        }
    }
    state->paired = state->paired || paired;
    of->count = at;
    of->step = seen->at.mode_step;
    of->has = true;
}

static void step(sonde_rule_run *run)
{
    zero_grad *state = sonde_rule_state(run);
    const double fresh = sqrt(state->fresh), before = state->fresh_before;
    const bool steady = before > 0.0 && fresh < 1.5 * before && before < 1.5 * fresh;
    const bool grows = state->dot > 0.0 && 6.0 * fresh > sqrt(state->now);

    if (state->paired) {
        state->pairs++;
        state->bad = steady && grows ? state->bad + 1 : 0;
        state->fresh_before = fresh;
        if (state->bad >= state->patience &&
            sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, SONDE_SEVERITY_ERROR, "steps",
                             (double)state->bad, (double)state->patience)) {
            sonde_rule_say(
                run, NULL,
                "Each gradient is the one of the step before plus a fresh one: "
                "they add up (now a norm of %.3g, the fresh part %.3g).",
                sqrt(state->now), fresh);
        }
    }
    state->dot = state->fresh = state->now = 0.0;
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
