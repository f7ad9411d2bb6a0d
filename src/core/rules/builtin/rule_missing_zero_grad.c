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
 * long, so the finding is a suspicion, and a note if training goes well.
 *
 * The program of a step says more, if its backward passes say which optimizers' gradients
 * were left (docs/program.md): an optimizer that has stepped before, with gradients left at
 * each backward pass before its next step, adds gradients up, which is an error at once. If
 * none is left, the rule is silent.
 *
 * Evidence: programs; raw gradients of consecutive steps; vital signs of parameters; losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"
#include "base/fail.h"
#include "base/memory.h"
#include "rules/context.h"

enum { GRADIENTS, PARAMETERS, LARGE_PARAMETERS, LOSSES }; /* needs */
enum { MOST_STEPS = 32, SAMPLE = 512, SMALL = 4096, MOVING = 32, GROWN = 5, FIRST = 3 };
#define SHARE 75.0
#define SINGLE 0.5
#define EQUAL 1.6
#define AGREES 0.3
#define LARGER 3.0

/* Of one step, over all parameters. */
typedef struct norms {
    double fresh, now, before; /* |f|, |g|, |g'|; squares while they are summed */
    double along;              /* f . f'; then their cosine */
} norms;

typedef struct zero_grad {
    int64_t patience, pairs;
    int64_t streak; /* steps in a row that count; the last `patience` of them: */
    norms last[MOST_STEPS];
    norms at; /* this step */
    double fresh_before;
    double largest; /* |g| so far, without the last `patience` steps */
    uint32_t held;  /* bit i: the condition held i steps ago */
    double fresh;   /* the largest |f| / |g'| of the first pairs of the run */
    double single;  /* |f| / |g'| of the first pair */
    double first;   /* |g'| of it */
    int64_t grown;  /* first pairs at which all is one gradient more */
    bool from_start;
    bool paired;
    bool known;       /* the program tells whether gradients are cleared */
    uint32_t stepped; /* bit o: optimizer o, in the program before */
} zero_grad;

typedef struct tensor_memory {
    size_t count;
    int64_t step; /* of its mode */
    bool has;
    double cosine; /* of f and g' at this step; NAN: there is none */
    double last[MOST_STEPS];
    double l1, sum;        /* of a parameter, before */
    int moves;             /* comparisons until it no longer counts as one that changes */
    float *before, *fresh; /* of a gradient: g' and f'; one block */
} tensor_memory;

SONDE__TERMS(adds_up, NOTE, ERROR, ERROR, NOTE, ERROR);

static const sonde_rule_param zero_grad_params[] = {
    SONDE__COUNT(zero_grad, patience, "4", 2, MOST_STEPS,
                 "number of steps to judge together"),
};
static const sonde_rule_need zero_grad_needs[] = {
    {"gradients", SONDE_HOW_RAW, false, SONDE__GRADIENTS, SONDE__IN_ROWS},
    {"parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__IN_ROWS},
    {"large parameters", SONDE_HOW_VITALS, true, SONDE__PARAMETERS, SONDE__CLOSELY},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* --- whether the gradients of the last steps look like sums of fresh ones ---------- */

enum { OFTEN = 8, WINDOW = 16, EARLY = 12 };
#define NOISE 0.02
#define OPPOSED (-0.25)
#define SMOOTH 0.95
#define LIKE 0.7
#define MORE_LIKE 0.85
#define LESS_LIKE 0.45
#define NEARLY_ALL 95.0
#define ABOVE 1.5
#define FRESH 0.3

/* The percentage of gradients, among those with values at all of these steps, whose new
 * part does not oppose the sum. */
static double percent_summed(sonde_rule_run *run, const zero_grad *state)
{
    size_t judged = 0, summed = 0;

    SONDE__EACH_OF (run, t, GRADIENTS) {
        const tensor_memory *memory = t->memory;
        double sum = 0.0;

        for (int64_t k = 0; k < state->patience; k++) {
            sum += memory->last[k];
        }
        if (isfinite(sum)) {
            judged++;
            summed += sum > -NOISE * (double)state->patience;
        }
    }
    return judged > 0 ? 100.0 * (double)summed / (double)judged : 0.0;
}

/* Whether the norms and directions of all together are those of sums of fresh gradients.
 * */
static bool are_sums(const zero_grad *state)
{
    const int64_t n = state->patience;
    const norms *first = &state->last[state->streak % n];
    const norms *last = &state->last[(state->streak - 1) % n];
    double along = 0.0, least = 1.0, mean = 0.0, slope = 0.0, weights = 0.0;

    for (int64_t k = 0; k < n; k++) {
        const norms *at = &state->last[(state->streak + k) % n];
        const double place = (double)k - 0.5 * (double)(n - 1);

        mean += log(at->fresh) / (double)n;
        slope += place * log(at->fresh);
        weights += place * place;
        if (k > 0) { /* the first one uses an f from before the streak */
            along += at->along;
            least = fmin(least, at->along);
        }
    }
    return along > 0.0 && least > OPPOSED && least < SMOOTH &&
           mean < log(4.0 / 3.0 * first->before) &&
           slope / weights < 0.5 * log(last->now / first->before) / (double)n;
}

/* Whether the sums have left the range of gradients. */
static bool is_clear(const zero_grad *state, double percent)
{
    const int64_t n = state->patience;
    const norms *first = &state->last[state->streak % n];
    const norms *last = &state->last[(state->streak - 1) % n];
    const double like = percent > NEARLY_ALL     ? LESS_LIKE
                        : state->streak <= EARLY ? LIKE
                                                 : MORE_LIKE;
    double fresh = 0.0;

    for (int64_t k = 0; k < n; k++) {
        fresh += state->last[k].fresh / (double)n;
    }
    return fresh > like * first->before &&
           last->now > ABOVE * fmax(state->largest, first->before);
}

/* Adds a step to the streak. */
static void take_step(sonde_rule_run *run, zero_grad *state)
{
    const int64_t place = state->streak++ % state->patience;
    norms *at = &state->last[place];

    at->fresh = sqrt(state->at.fresh);
    at->now = sqrt(state->at.now);
    at->before = sqrt(state->at.before);
    at->along = state->at.along / (at->fresh * state->fresh_before);
    SONDE__EACH_OF (run, t, GRADIENTS) {
        tensor_memory *memory = t->memory;

        memory->last[place] = memory->cosine;
        memory->cosine = (double)NAN;
    }
}

/* --- the rule ---------------------------------------------------------------------- */

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    return need == PARAMETERS && !sonde__builtin_is_small(info, SMALL) ? LARGE_PARAMETERS
                                                                       : need;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *tensor = sonde__builtin_at(run, i);
    tensor_memory *memory = tensor->memory;

    if (tensor->need != GRADIENTS) {
        return SONDE_OK;
    }
    memory->before = sonde__calloc(2 * (size_t)SAMPLE, sizeof *memory->before);
    memory->fresh = memory->before != NULL ? memory->before + SAMPLE : NULL;
    return memory->before != NULL ? SONDE_OK : sonde__fail_nomem(diag, "MissingZeroGrad");
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(tensor_memory, before));
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    zero_grad *state = sonde_rule_state(run);
    tensor_memory *memory = tensor->memory;
    const bool paired = memory->has && observation->at.mode_step == memory->step + 1;
    double values[SAMPLE], dot = 0.0;
    norms at = {0};

    const size_t count = sonde__builtin_sample_first(observation, SAMPLE, values);
    if (count == 0 || memory->before == NULL) {
        return;
    }
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
    memory->step = observation->at.mode_step;
    memory->has = true;
}

/* True if a parameter has changed since it was last seen, or if those that usually change
 * are not seen at this step. */
static bool updated(sonde_rule_run *run)
{
    size_t seen = 0, changed = 0, moving = 0, hidden = 0;

    SONDE__EACH (run, t) {
        const bool parameter = t->need == PARAMETERS || t->need == LARGE_PARAMETERS;
        const sonde_vitals *v = parameter ? t->vitals : NULL;
        tensor_memory *memory = t->memory;

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
    const zero_grad *state = sonde_rule_state(run);
    const sonde_finding *cause = sonde__rules_cause(run, others);

    if (state->known) {
        return;
    }
    if (sonde__rule_report(run, NULL, cause != NULL ? SONDE__SURE(NOTE) : &adds_up,
                           "percent_summed", percent, SHARE, sonde__rules_advice(cause),
                           "Each gradient is that of the previous step plus a new one: "
                           "gradients add up (the norm is now %.3g, the new part %.3g).",
                           sqrt(state->at.now), sqrt(state->at.fresh))) {
        sonde__rules_follows(run, NULL, cause);
    }
}

/* Judges the last `patience` steps. */
static void judge(sonde_rule_run *run)
{
    zero_grad *state = sonde_rule_state(run);
    const bool doubled = !state->from_start || state->single > SINGLE;

    state->held <<= 1;
    if (state->streak < state->patience) {
        return;
    }
    const double percent = are_sums(state) ? percent_summed(run, state) : 0.0;
    state->held |= percent >= SHARE;
    const int often = __builtin_popcount(state->held & ((1U << WINDOW) - 1));
    /* the first gradients of the run hardly differed from each other */
    const bool smooth = state->from_start && state->fresh < FRESH;
    if (percent >= SHARE &&
        ((is_clear(state, percent) && doubled) || (often >= OFTEN && !smooth))) {
        report(run, percent);
    }
    state->largest =
        fmax(state->largest, state->last[state->streak % state->patience].before);
}

/* Judges the first pairs of a run: whether each gradient has one more in it. */
static void judge_first(sonde_rule_run *run)
{
    zero_grad *state = sonde_rule_state(run);
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
    zero_grad *state = sonde_rule_state(run);
    const bool changed = updated(run);

    if (!state->paired || !changed) {
        state->streak = 0;
    } else {
        take_step(run, state);
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
    judge(run);
    state->fresh_before = sqrt(state->at.fresh);
    state->at = (norms){0};
    state->paired = false;
}

/* --- the program ---------------------------------------------------------------------- */

/* Event i is a step. Returns the last backward pass before it whose optimizer's gradients
 * were left; NULL: they were cleared, or it is unknown whether; *known: it is not. */
static const sonde_program_event *find_left(const sonde_program *program, size_t i,
                                            bool *known)
{
    const int optimizer = program->events[i].optimizer;
    const sonde_program_event *last = NULL;

    for (size_t k = 0; k < i; k++) {
        const sonde_program_event *event = &program->events[k];
        const double left =
            sonde_attribute_number(event->attributes, "left", (double)NAN);

        if (sonde__builtin_walk_clears(program, event, optimizer, true)) {
            return NULL;
        }
        if (event->kind != SONDE_EVENT_BACKWARD) {
            continue;
        }
        if (!isfinite(left) || optimizer < 0 || optimizer >= 32) {
            *known = false;
            return NULL;
        }
        if (((uint32_t)left >> optimizer & 1U) == 0) {
            return NULL;
        }
        last = event;
    }
    return last;
}

static void report_left(sonde_rule_run *run, const sonde_program *program,
                        const sonde_program_event *step,
                        const sonde_program_event *backward)
{
    sonde__builtin_text stepped, line;

    if (sonde_rule_found_at(run, "", step->place, SONDE_SEVERITY_ERROR, "left", 1.0,
                            0.0)) {
        sonde_rule_say(
            run, "Call the optimizer's zero_grad() before backward, at each step.",
            "Gradients are not cleared after a step of %s%s: backward%s adds the next ones "
            "to them.",
            program->optimizers[step->optimizer].kind,
            sonde__builtin_walk_line(program, step->place, &stepped),
            sonde__builtin_walk_line(program, backward->place, &line));
    }
}

static void judge_program(sonde_rule_run *run, const sonde_program *program)
{
    zero_grad *state = sonde_rule_state(run);
    uint32_t stepped = 0;
    bool known = true;

    if (!sonde__builtin_walk_trains(program) || sonde__builtin_walk_calls_back(program)) {
        return;
    }
    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];
        const uint32_t bit = event->optimizer >= 0 && event->optimizer < 32
                                 ? UINT32_C(1) << event->optimizer
                                 : 0;

        if (event->kind != SONDE_EVENT_STEP) {
            continue;
        }
        const sonde_program_event *backward = find_left(program, i, &known);
        if (backward != NULL && (state->stepped & ~stepped & bit) != 0) {
            report_left(run, program, event, backward);
        }
        stepped |= bit;
    }
    state->known = known && stepped != 0;
    if (state->known) {
        sonde__rule_judged_program(run);
    }
    state->stepped = stepped;
}

static void finish(sonde_rule_run *run)
{
    const zero_grad *state = sonde_rule_state(run);

    if (state->pairs == 0 && !state->known) {
        sonde_rule_lacked(run, "no raw gradients of two consecutive steps were recorded");
    }
}

const sonde_rule sonde__builtin_missing_zero_grad = {
    SONDE__RULE("MissingZeroGrad", zero_grad),
    .summary = "gradients are not cleared between steps",
    .condition =
        "Over `patience` steps, three quarters of all gradients equal the previous gradient plus a new part that has a steady size and does not oppose it. In addition, the gradients leave their range, or the same holds at half of the last steps. "
        "If the program of the steps shows whether gradients are cleared, it alone decides, at the second step. "
        "The rule also fires if each of the first five gradients of a run exceeds the previous one by the size of one gradient. "
        "The finding waits for training: it is a note if training goes well.",
    .advice = "Clear the gradients after each update (zero_grad).",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .finish = finish,
    .destroy = destroy,
    .program = judge_program,
};
