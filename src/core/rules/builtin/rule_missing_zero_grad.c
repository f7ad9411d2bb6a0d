/*
 * MissingZeroGrad - gradients are not cleared: each is the previous one plus a new one.
 *
 * g' is the gradient of the previous step, g that of this one, and f = g - g' the new
 * part. Fires when, over the last `patience` steps,
 *     f . g'   in three quarters of all gradients the mean cosine of f and g' is not
 *              below -NOISE. If gradients are cleared, f is a difference of two
 *              gradients, and the cosine is near -0.7 for any noise, as long as they do
 *              not grow;
 * and, over all parameters together,
 *     f . f'   has a mean cosine above 0 that is nowhere below OPPOSED: the new parts of
 *              two steps agree as far as there is anything to learn, while consecutive
 *              differences share a gradient with opposite signs (about -0.5); and the
 *              cosine is below SMOOTH somewhere: new gradients of different batches
 *              differ, while the gradient of one batch that is repeated changes smoothly;
 *     |f|      is on average below 4/3 of the first g', which is a new gradient or a sum
 *              of some (a difference of two has sqrt(2) times the noise of one), and
 *              grows by less than half as much as |g|: sums grow by equal parts, while a
 *              gradient that grows by a factor, as when it leaves a plateau, has an f
 *              that grows by the same factor.
 * Gradients of smooth losses do all this for some steps. So the rule fires at once only
 * if |f| is on average above LIKE of the first g' and |g| is above ABOVE times the
 * largest before: sums leave the range of gradients quickly. After the first EARLY steps
 * it is MORE_LIKE, because momentum makes gradients swing, and LESS_LIKE if nearly all
 * gradients are summed. Else it has to hold at OFTEN of the last WINDOW steps, and in a
 * run that is observed from its start, |f| of the first pairs must have been above FRESH
 * |g'|: there g' is a single gradient or a sum of few, and f another one, while gradients
 * that are cleared and smooth (the same batch, a large one) change by little.
 *
 * In a run that is observed from its start, the first pair must differ by more than SINGLE
 * |g'| for the rule to fire at once, since both are single gradients there. And sums of
 * gradients that agree grow by one gradient at each step: the rule also fires if, at each
 * of the first GROWN pairs, |f| / |g'| is 1 / k of pair k to within a factor of EQUAL and
 * f agrees with f', and |g| has grown to LARGER times the first g'.
 *
 * A single tensor, or a single step, in which a healthy gradient grows proves nothing:
 * gradients that oscillate through momentum do so for some steps, but not in most layers,
 * or not from so low. A step at which no parameter changes does not count: gradients that
 * are summed over several batches before an update are intended. At consecutive steps,
 * parameters of at most SMALL elements are enough to see an update. SAMPLE elements of
 * each gradient are used, evenly spread. Gradients of a smooth loss can look like sums for
 * long; so it is a suspicion, and a note where training goes well.
 *
 * Evidence: raw gradients of consecutive steps; vital signs of parameters; losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/zero_grad.h"
#include "rules/context.h"
#include "rules/builtin/builtin_values.h"
#include "rules/suspicion.h"

#include "base/fail.h"
#include "base/memory.h"

#include <math.h>

enum { SAMPLE = 512, SMALL = 4096, MOVING = 32 };
#define SHARE 75.0
#define SINGLE 0.5
#define EQUAL 1.6
#define AGREES 0.3
#define LARGER 3.0
enum { GROWN = 5 };
enum { FIRST = 3 };

static const sonde__rule_terms adds_up = {SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, ERROR)};

static const sonde_rule_param params[] = {
    SONDE__COUNT(sonde__builtin_zero_grad, patience, "4", 2, SONDE__ZERO_GRAD_MOST_STEPS,
                 "steps that are judged together"),
};
static const sonde_rule_need needs[] = {
    {"gradients", SONDE_HOW_RAW, false, SONDE__GRADIENTS, SONDE__IN_ROWS},
    {"parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__IN_ROWS},
    {"large parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__CLOSELY},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    return need == SONDE__ZERO_GRAD_PARAMETERS && !sonde__builtin_is_small(info, SMALL)
               ? SONDE__ZERO_GRAD_LARGE_PARAMETERS
               : need;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    sonde__builtin_zero_grad_memory *memory = sonde__builtin_tensors(run)[i].memory;

    if (sonde__builtin_tensors(run)[i].need != SONDE__ZERO_GRAD_GRADIENTS) {
        return SONDE_OK;
    }
    memory->before = sonde__calloc(2 * (size_t)SAMPLE, sizeof *memory->before);
    memory->fresh = memory->before != NULL ? memory->before + SAMPLE : NULL;
    return memory->before != NULL ? SONDE_OK : sonde__fail_nomem(diag, "MissingZeroGrad");
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    sonde__builtin_zero_grad *state = sonde_rule_state(run);
    sonde__builtin_zero_grad_memory *memory = tensor->memory;
    const bool paired = memory->has && seen->at.mode_step == memory->step + 1;
    double values[SAMPLE], dot = 0.0;
    sonde__builtin_zero_grad_norms at = {0};

    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    size_t count = sonde__builtin_sample(seen->view, SAMPLE, values);
    for (size_t i = 0; i < count; i++) {
        const double before = (double)memory->before[i], fresh = values[i] - before;

        if (paired && i < memory->count) {
            dot += fresh * before;
            at.fresh += fresh * fresh;
            at.now += values[i] * values[i];
            at.before += before * before;
            at.along += fresh * (double)memory->fresh[i];
            memory->fresh[i] = (float)fresh;
        }
        memory->before[i] = (float)values[i];
    }
    if (paired) {
        memory->cosine = at.before > 0.0 && at.fresh > 0.0
                             ? dot / sqrt(at.fresh * at.before)
                             : (double)NAN;
        state->at.fresh += at.fresh;
        state->at.now += at.now;
        state->at.before += at.before;
        state->at.along += at.along;
        state->paired = true;
    }
    memory->count = count;
    memory->step = seen->at.mode_step;
    memory->has = true;
}

/* True if a parameter has changed since it was last seen, or if those that usually change
 * are not seen at this step. */
static bool updated(sonde_rule_run *run)
{
    size_t seen = 0, changed = 0, moving = 0, hidden = 0;
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const bool parameter = tensors[i].need == SONDE__ZERO_GRAD_PARAMETERS ||
                               tensors[i].need == SONDE__ZERO_GRAD_LARGE_PARAMETERS;
        const sonde_vitals *v = parameter ? tensors[i].vitals : NULL;
        sonde__builtin_zero_grad_memory *memory = tensors[i].memory;

        if (v != NULL) {
            const bool other = v->l1 != memory->l1 || v->sum != memory->sum;

            seen++;
            changed += !memory->has || other;
            moving += memory->moves > 0;
            memory->moves =
                memory->has && other ? MOVING : memory->moves - (memory->moves > 0);
            memory->l1 = v->l1;
            memory->sum = v->sum;
            memory->has = true;
        } else {
            hidden += parameter && memory->moves > 0;
        }
    }
    return changed > 0 || seen == 0 || (moving == 0 && hidden > 0);
}

static void report(sonde_rule_run *run, double percent)
{
    /* gradients that no longer change look like sums of themselves */
    static const char *const others[] = {"WeightUpdateRatio", "VanishingGradient",
                                         "DuplicateBatch", "NonFinite", NULL};
    const sonde__builtin_zero_grad *state = sonde_rule_state(run);
    const sonde_finding *cause = sonde__rules_cause(run, others);

    if (cause != NULL ? sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, SONDE_SEVERITY_NOTE,
                                         "percent_summed", percent, SHARE)
                      : sonde__rule_suspect(run, SONDE_RULE_WHOLE_RUN, &adds_up,
                                            "percent_summed", percent, SHARE)) {
        sonde__rules_follows(run, cause);
        sonde_rule_say(run, cause != NULL ? "Fix the earlier findings first." : NULL,
                       "Each gradient is that of the previous step plus a new one: "
                       "gradients add up (the norm is now %.3g, the new part %.3g).",
                       sqrt(state->at.now), sqrt(state->at.fresh));
    }
}

/* Judges the last `patience` steps. */
static void judge(sonde_rule_run *run, const sonde_rule_tensor *tensors, size_t count)
{
    sonde__builtin_zero_grad *state = sonde_rule_state(run);
    const bool doubled = !state->from_start || state->single > SINGLE;

    state->held <<= 1;
    if (state->streak < state->patience) {
        return;
    }
    const double percent =
        sonde__builtin_zero_grad_are_sums(state)
            ? sonde__builtin_zero_grad_percent_summed(state, tensors, count)
            : 0.0;
    state->held |= percent >= SHARE;
    if (percent >= SHARE &&
        ((sonde__builtin_zero_grad_is_clear(state, percent) && doubled) ||
         (sonde__builtin_zero_grad_holds_often(state->held) &&
          !sonde__builtin_zero_grad_is_smooth(state)))) {
        report(run, percent);
    }
    state->largest =
        fmax(state->largest, state->last[state->streak % state->patience].before);
}

/* Judges the first pairs of a run: whether each gradient has one more in it. */
static void judge_first(sonde_rule_run *run)
{
    sonde__builtin_zero_grad *state = sonde_rule_state(run);
    const double pair = (double)state->pairs; /* from 1 */
    const double by = sqrt(state->at.fresh / state->at.before) * pair;
    const bool agrees =
        state->pairs == 1 ||
        state->at.along > AGREES * sqrt(state->at.fresh) * state->fresh_before;

    if (!state->from_start || state->pairs > GROWN || state->grown + 1 != state->pairs) {
        return;
    }
    state->grown += by > 1.0 / EQUAL && by < EQUAL && agrees;
    if (state->grown == GROWN && sqrt(state->at.now) > LARGER * state->first) {
        report(run, 100.0);
    }
}

static void step(sonde_rule_run *run)
{
    sonde__builtin_zero_grad *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const bool changed = updated(run);

    if (!state->paired || !changed) {
        state->streak = 0;
    } else {
        sonde__builtin_zero_grad_take_step(state, tensors, count);
    }
    state->from_start =
        state->pairs == 0 ? sonde_rule_at(run)->mode_step <= 1 : state->from_start;
    if (state->paired && state->pairs < FIRST && state->at.before > 0.0) {
        const double ratio = sqrt(state->at.fresh / state->at.before);

        state->single = state->pairs == 0 ? ratio : state->single;
        state->first = state->pairs == 0 ? sqrt(state->at.before) : state->first;
        state->fresh = fmax(state->fresh, ratio);
    }
    state->pairs += state->paired;
    if (state->paired && changed) {
        judge_first(run);
    }
    judge(run, tensors, count);
    state->fresh_before = sqrt(state->at.fresh);
    state->at = (sonde__builtin_zero_grad_norms){0};
    state->paired = false;
}

static void finish(sonde_rule_run *run)
{
    const sonde__builtin_zero_grad *state = sonde_rule_state(run);

    if (state->pairs == 0) {
        sonde_rule_lacked(run, "no raw gradients of two consecutive steps were recorded");
    }
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(sonde__builtin_zero_grad_memory, before));
}

const sonde_rule sonde__builtin_missing_zero_grad = {
    SONDE__RULE("MissingZeroGrad", sonde__builtin_zero_grad),
    .summary = "gradients are not cleared between steps",
    .condition =
        "Over `patience` steps, three quarters of all gradients equal the previous "
        "gradient plus a new part that has a steady size and does not oppose it; and "
        "gradients leave their range, or this holds at half of the last steps. Or each of "
        "the first five gradients of a run is larger by one more. It waits for training: a "
        "note where training goes well.",
    .advice = "Clear the gradients after each update (zero_grad).",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(sonde__builtin_zero_grad_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .finish = finish,
    .destroy = destroy,
};
