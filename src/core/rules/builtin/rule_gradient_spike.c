/*
 * GradientSpike - a gradient, or a moment of the optimiser, is suddenly far larger than
 * before.
 *
 * After `least` observed steps, fires when |g|2 is more than
 *     `factor` times the median m of the last 32,
 *     m (q3 / q1)^SPREAD, with the quartiles of these 32 (about six standard deviations
 *         if their logarithms are normal), and
 *     `factor` / 10 times the largest so far, which decays by half in 512 observed steps.
 * Late in training most batches have small gradients, and a hard sample can have a
 * thousand times the median without being a fault. It is an error at once if one element
 * is most of |g|2 (a flipped bit) or |g|2 is FAR above the limit, and if it is not finite,
 * or still above a third of the limit, at each of the next LASTING observed steps (a
 * diverging loss). If not, it is a note: training has recovered. Values of the optimiser
 * remember a spike for long and are not judged by what follows; they hold squares, of
 * which one element is easily the most, and so have to be MOMENT times above the limit.
 * Where more than AT_ONCE tensors jump at one step, one finding stands for all, and for
 * those of the next AFTER steps. A gradient that was nearly 0 and wakes (a branch that
 * begins at 0) is not a spike while it is below the largest norm of any gradient so far,
 * nor is a moment below that of any moment. Evidence: norms of gradients and optimiser
 * values; losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/series.h"
#include "rules/suspicion.h"

#include <math.h>

typedef struct spike {
    double factor;
    int64_t least;
    double level[2]; /* the largest norm of any so far, decaying; by need */
    bool begun;
    int64_t since; /* steps after many tensors jumped at once */
} spike;

typedef struct tensor_memory {
    sonde__builtin_recent recent;
    double largest;             /* so far, decaying */
    double norm, limit, median; /* of the last spike; limit 0: there is none */
    int64_t since;              /* observed steps after it */
    double over;                /* the limit that is exceeded at this step; 0: none */
} tensor_memory;

#define KEPT 0.99864711 /* 2^(-1/512) */
#define SPREAD 4.45     /* 6 deviations by 1.349 between quartiles */
#define ALONE 0.7       /* share of one element */
#define FAR 1e3
#define MOMENT 10.0
/* A spike that is no chance: of one element, far above the limit, or one that lasts. */
static const sonde__rule_terms sure_spike = {
    .event = true, SONDE__TERMS(NOTE, ERROR, ERROR, NOTE, NOTE)};
enum { GRADIENTS = 0, STATES = 1, LOSSES = 2 };
enum { AT_ONCE = 3, AFTER = 10 };
enum { MANY = 8, LASTING = 3 }; /* MANY: elements, for one to stand out */

static const sonde_rule_param params[] = {
    SONDE__REAL(spike, factor, "100", 1, 1e300,
                "multiple of the median over the last 32 observed steps"),
    SONDE__COUNT(spike, least, "5", 1, 32, "observed steps before the rule can fire"),
};
static const sonde_rule_need needs[] = {
    {"gradients", SONDE_HOW_NORMS, false, SONDE__GRADIENTS, SONDE__EACH_STEP},
    {"optimiser values", SONDE_HOW_NORMS, true, SONDE__STATE, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* The first two limits of the file header. */
static double largest_usual(const sonde__builtin_recent *recent, double factor)
{
    const double low = sonde__builtin_recent_quantile(recent, 0.25);
    const double spread =
        sonde__builtin_recent_quantile(recent, 0.75) / fmax(low, 1e-300);

    return sonde__builtin_recent_median(recent) * fmax(factor, pow(spread, SPREAD));
}

static void report(sonde_rule_run *run, size_t i, const tensor_memory *memory,
                   sonde_severity severity)
{
    if (severity != SONDE_SEVERITY_NOTE
            ? sonde__rule_suspect(run, i, &sure_spike, "l2", memory->norm, memory->limit)
            : sonde_rule_found(run, i, severity, "l2", memory->norm, memory->limit)) {
        sonde_rule_say(run, NULL,
                       "Its norm is %.3g, which is %.3g times the median of the "
                       "previous steps (%.3g)%s.",
                       memory->norm, memory->norm / memory->median, memory->median,
                       severity == SONDE_SEVERITY_NOTE ? "; it has recovered" : "");
    }
}

/* Judges the last spike by this step. */
static void judge_last(sonde_rule_run *run, size_t i, tensor_memory *memory,
                       const sonde_vitals *v)
{
    const bool bad = sonde__builtin_bad(v) > 0;
    const bool moment = sonde__builtin_tensors(run)[i].need == STATES;
    const bool lasts = bad || (!moment && sqrt(v->sumsq) > memory->limit / 3.0);

    if (memory->limit > 0.0 && (bad || !lasts || ++memory->since >= LASTING)) {
        report(run, i, memory, lasts ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
        memory->limit = 0.0;
    }
}

/* Begins a spike. */
static void take_spike(sonde_rule_run *run, size_t i, tensor_memory *memory,
                       const sonde_vitals *v, double limit)
{
    const double norm = sqrt(v->sumsq);
    const bool moment = sonde__builtin_tensors(run)[i].need == STATES;
    const bool alone = v->count >= MANY && v->abs_max * v->abs_max > ALONE * v->sumsq &&
                       (!moment || norm > MOMENT * limit);

    if (memory->limit > 0.0) {
        return;
    }
    memory->norm = norm;
    memory->limit = limit;
    memory->median = sonde__builtin_recent_median(&memory->recent);
    memory->since = 0;
    if (alone || memory->norm > FAR * limit) {
        report(run, i, memory, SONDE_SEVERITY_ERROR);
        memory->limit = 0.0;
    }
}

static void finish(sonde_rule_run *run)
{
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const tensor_memory *memory = tensors[i].memory;

        if (memory->limit > 0.0) {
            report(run, i, memory, SONDE_SEVERITY_NOTE);
        }
    }
}

/* The limit that the norm of this step exceeds; 0: it exceeds none, or others have been as
 * large. */
static double exceeded(const spike *state, const tensor_memory *memory, double norm,
                       double level)
{
    const sonde__builtin_recent *recent = &memory->recent;

    if (recent->count < state->least || memory->largest <= 0.0 || norm < level ||
        norm <= state->factor / 10.0 * memory->largest ||
        !sonde__builtin_recent_exceeds(recent, state->factor, norm)) {
        return 0.0;
    }
    const double limit = largest_usual(recent, state->factor);
    return norm > limit && sonde__builtin_recent_median(recent) > 0.0 ? limit : 0.0;
}

/* Takes the spikes of a step. Where many tensors jump at once, the batch or the weights did
 * it: one stands for all, a gradient if there is one, and for those of the next steps. */
static void take_spikes(sonde_rule_run *run)
{
    spike *state = sonde_rule_state(run);
    size_t count = 0, spikes = 0, worst = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    double most = 0.0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].need != LOSSES ? tensors[i].vitals : NULL;
        tensor_memory *memory = tensors[i].memory;

        memory->over =
            v != NULL && sonde__builtin_bad(v) == 0
                ? exceeded(state, memory, sqrt(v->sumsq), state->level[tensors[i].need])
                : 0.0;
        if (v != NULL && memory->over > 0.0) {
            const double ratio = sqrt(v->sumsq) / memory->over *
                                 (tensors[i].need == GRADIENTS ? 1e100 : 1.0);

            worst = ratio > most ? i : worst;
            most = fmax(most, ratio);
            spikes++;
        }
    }
    state->since++;
    if (spikes > AT_ONCE) {
        if (state->since > AFTER && tensors[worst].vitals != NULL) {
            take_spike(run, worst, tensors[worst].memory, tensors[worst].vitals,
                       ((tensor_memory *)tensors[worst].memory)->over);
        }
        state->since = 0;
        return;
    }
    for (size_t i = 0; i < count && state->since > AFTER; i++) {
        tensor_memory *memory = tensors[i].memory;

        if (memory->over > 0.0 && tensors[i].vitals != NULL) {
            take_spike(run, i, memory, tensors[i].vitals, memory->over);
        }
    }
}

static void step(sonde_rule_run *run)
{
    spike *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    state->level[GRADIENTS] *= KEPT;
    state->level[STATES] *= KEPT;
    if (!state->begun) {
        state->begun = true;
        state->since = AFTER;
    }
    SONDE__EACH (run, i) {
        if (tensors[i].need != LOSSES && tensors[i].vitals != NULL) {
            judge_last(run, i, tensors[i].memory, tensors[i].vitals);
        }
    }
    take_spikes(run);
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].need != LOSSES ? tensors[i].vitals : NULL;
        tensor_memory *memory = tensors[i].memory;

        if (v != NULL && sonde__builtin_bad(v) == 0) {
            const double norm = sqrt(v->sumsq);

            sonde__builtin_recent_take(&memory->recent, norm);
            memory->largest = fmax(norm, KEPT * memory->largest);
            state->level[tensors[i].need] = fmax(state->level[tensors[i].need], norm);
        }
    }
}

const sonde_rule sonde__builtin_gradient_spike = {
    SONDE__RULE("GradientSpike", spike),
    .summary = "a gradient is suddenly far larger than before",
    .condition =
        "The norm of a gradient or of an optimiser value is above `factor` times the median of the last 32 observed steps, more than about six standard deviations of their logarithms above it, and above `factor` / 10 times the largest so far (which decays by half in 512 steps). A note where it has recovered within three observed steps, where the loss stays as it was, or where no loss is seen. Silent where a gradient (a moment) stays below the largest of any so far. Of many at one step, one is reported.",
    .advice =
        "Clip gradients; inspect the batch of this step, and look for a corrupt value.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
    .finish = finish,
};
