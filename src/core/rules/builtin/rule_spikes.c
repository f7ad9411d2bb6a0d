/*
 * rule_spikes.c - rules about gradients, moments and elements of parameters that jump.
 */
#include "rules/builtin/builtin.h"
#include "rules/context.h"

/* --- GradientSpike ----------------------------------------------------------------- */

/*
 * GradientSpike - a gradient, or a moment of the optimizer, is suddenly far larger than
 * before.
 *
 * After `least` observed steps, fires when |g|2 is more than
 *     `factor` times the median m of the last 32,
 *     m (q3 / q1)^SPREAD, with the quartiles of these 32 (about six standard deviations
 *         if their logarithms are normal), and
 *     `factor` / 10 times the largest so far, which decays by half in 512 observed steps.
 * Late in training most batches have small gradients, and a hard sample can have a
 * thousand times the median without being a fault. The finding is an error at once if one
 * element is most of |g|2 (a flipped bit) or |g|2 is FAR above the limit. It is also an
 * error if |g|2 is not finite, or still above a third of the limit, at each of the next
 * LASTING observed steps (a diverging loss). Else it is a note, which is resolved: training
 * has recovered.
 * Values of the optimizer keep a spike for long, so the following steps do not count. They
 * hold squares, which one element easily dominates, so they must be MOMENT times above the
 * limit. If more than AT_ONCE tensors jump at one step, one finding stands for all of them
 * and for those of the next AFTER steps. A gradient that was nearly 0 (a branch that starts
 * at 0) is not a spike while it is below the largest norm of any gradient so far, nor is a
 * moment below that of any moment. Evidence: norms of gradients and optimizer
 * values; losses.
 */

typedef struct gradient_spike {
    double factor;
    int64_t least;
    double level[2]; /* the largest norm of any so far, decaying; by need */
    bool begun;
    int64_t since; /* steps after many tensors jumped at once */
} gradient_spike;

typedef struct gradient_spike_memory {
    sonde__builtin_recent recent;
    double largest;             /* so far, decaying */
    double norm, limit, median; /* of the last spike; limit 0: there is none */
    int64_t since;              /* observed steps after it */
    double over;                /* the limit that is exceeded at this step; 0: none */
} gradient_spike_memory;

#define KEPT 0.99864711 /* 2^(-1/512) */
#define SPREAD 4.45     /* 6 deviations by 1.349 between quartiles */
#define ALONE 0.7       /* share of one element */
#define FAR 1e3
#define MOMENT 10.0
/* A spike that is no chance: of one element, far above the limit, or one that lasts. */
SONDE__TERMS(sure_spike, NOTE, ERROR, ERROR, NOTE, NOTE, .event = true);
enum { GRADIENTS = 0, STATES = 1, LOSSES = 2 };
enum { AT_ONCE = 3, AFTER = 10 };
enum {
    GRADIENT_SPIKE_MANY = 8, /* elements, for one to stand out */
    LASTING = 3
};

static const sonde_rule_param gradient_spike_params[] = {
    SONDE__REAL(
        gradient_spike, factor, "100", 1, 1e300,
        "largest acceptable multiple of the median over the last 32 observed steps"),
    SONDE__COUNT(gradient_spike, least, "5", 1, 32,
                 "number of observed steps before the rule can fire"),
};
static const sonde_rule_need gradient_spike_needs[] = {
    {"gradients", SONDE_HOW_NORMS, false, SONDE__GRADIENTS, SONDE__EACH_STEP},
    {"optimizer values", SONDE_HOW_NORMS, true, SONDE__STATE, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* The first two limits above. */
static double largest_usual(const sonde__builtin_recent *recent, double factor)
{
    const double low = sonde__builtin_recent_quantile(recent, 0.25);
    const double spread =
        sonde__builtin_recent_quantile(recent, 0.75) / fmax(low, 1e-300);

    return sonde__builtin_recent_median(recent) * fmax(factor, pow(spread, SPREAD));
}

/* Ends a spike. sure: it is no chance. */
static void gradient_spike_report(sonde_rule_run *run, const sonde_rule_tensor *t,
                                  bool sure)
{
    gradient_spike_memory *memory = t->memory;

    sonde__rule_report(run, t, sure ? &sure_spike : SONDE__SURE(NOTE), "l2", memory->norm,
                       memory->limit, NULL,
                       "Its norm is %.3g, which is %.3g times the median of the previous "
                       "steps (%.3g)%s.",
                       memory->norm, memory->norm / memory->median, memory->median,
                       sure ? "" : "; it has recovered");
    if (!sure) {
        sonde__rule_resolve(run, t);
    }
    memory->limit = 0.0;
}

/* Judges the last spike by this step. */
static void judge_last(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    gradient_spike_memory *memory = t->memory;
    const bool bad = sonde__builtin_bad(t->vitals) > 0;
    const bool lasts =
        bad || (t->need != STATES && sqrt(t->vitals->sumsq) > memory->limit / 3.0);

    if (memory->limit > 0.0 && (bad || !lasts || ++memory->since >= LASTING)) {
        gradient_spike_report(run, t, lasts);
    }
}

/* Begins a spike. */
static void take_spike(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    gradient_spike_memory *memory = t->memory;
    const sonde_vitals *v = t->vitals;
    const double norm = sqrt(v->sumsq);
    const bool alone = v->count >= GRADIENT_SPIKE_MANY &&
                       v->abs_max * v->abs_max > ALONE * v->sumsq &&
                       (t->need != STATES || norm > MOMENT * memory->over);

    if (memory->limit > 0.0) {
        return;
    }
    memory->norm = norm;
    memory->limit = memory->over;
    memory->median = sonde__builtin_recent_median(&memory->recent);
    memory->since = 0;
    if (alone || norm > FAR * memory->limit) {
        gradient_spike_report(run, t, true);
    }
}

static void finish(sonde_rule_run *run)
{
    SONDE__EACH (run, t) {
        if (((const gradient_spike_memory *)t->memory)->limit > 0.0) {
            gradient_spike_report(run, t, false);
        }
    }
}

/* The limit that the norm of this step exceeds; 0: it exceeds none, or others have been as
 * large. */
static double exceeded(const gradient_spike *state, const gradient_spike_memory *memory,
                       double norm, double level)
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
    gradient_spike *state = sonde_rule_state(run);
    size_t spikes = 0;
    const sonde_rule_tensor *worst = NULL;
    double most = 0.0;

    SONDE__EACH (run, t) {
        const sonde_vitals *v = t->need != LOSSES ? t->vitals : NULL;
        gradient_spike_memory *memory = t->memory;
        const double norm = v != NULL ? sqrt(v->sumsq) : 0.0;

        memory->over = v != NULL && sonde__builtin_bad(v) == 0
                           ? exceeded(state, memory, norm, state->level[t->need])
                           : 0.0;
        if (memory->over > 0.0) {
            const double ratio =
                norm / memory->over * (t->need == GRADIENTS ? 1e100 : 1.0);

            worst = ratio > most || worst == NULL ? t : worst;
            most = fmax(most, ratio);
            spikes++;
        }
    }
    state->since++;
    if (spikes > AT_ONCE) {
        if (state->since > AFTER) {
            take_spike(run, worst);
        }
        state->since = 0;
        return;
    }
    SONDE__EACH (run, t) {
        if (((const gradient_spike_memory *)t->memory)->over > 0.0 &&
            state->since > AFTER) {
            take_spike(run, t);
        }
    }
}

static void gradient_spike_step(sonde_rule_run *run)
{
    gradient_spike *state = sonde_rule_state(run);

    state->level[GRADIENTS] *= KEPT;
    state->level[STATES] *= KEPT;
    if (!state->begun) {
        state->begun = true;
        state->since = AFTER;
    }
    SONDE__EACH (run, t) {
        if (t->need != LOSSES && t->vitals != NULL) {
            judge_last(run, t);
        }
    }
    take_spikes(run);
    SONDE__EACH (run, t) {
        gradient_spike_memory *memory = t->memory;

        if (t->need != LOSSES && t->vitals != NULL &&
            sonde__builtin_bad(t->vitals) == 0) {
            const double norm = sqrt(t->vitals->sumsq);

            sonde__builtin_recent_take(&memory->recent, norm);
            memory->largest = fmax(norm, KEPT * memory->largest);
            state->level[t->need] = fmax(state->level[t->need], norm);
        }
    }
}

const sonde_rule sonde__builtin_gradient_spike = {
    SONDE__RULE("GradientSpike", gradient_spike),
    .summary = "a gradient is suddenly far larger than before",
    .condition =
        "The norm of a gradient or of an optimizer value exceeds three limits: `factor` times the median of the last 32 observed steps; that median by about six standard deviations of the logarithms; and `factor` / 10 times the largest norm so far, which decays by half in 512 steps. "
        "The finding is a note if the norm recovers within three observed steps (it is resolved then), if the loss stays as it was, or if no loss is observed. "
        "The rule is silent for a gradient (or a moment) below the largest norm of any gradient (or moment) so far. If many tensors jump at one step, one is reported.",
    .advice =
        "Clip gradients; inspect the batch of this step, and look for a corrupt value.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(gradient_spike_memory),
    .wants = sonde__builtin_wants_role,
    .step = gradient_spike_step,
    .finish = finish,
};

/* --- UpdateSpike ------------------------------------------------------------------- */

/*
 * UpdateSpike - one element of a parameter jumps.
 *
 * a is the largest magnitude of the parameter, a' that of the previously observed step, k
 * training steps earlier, and q and q' are their sums of squares. After `least`
 * comparisons, fires when
 *     a - a' > a' / 2            the element outgrows all others at once,
 *     a - a' > factor k m        m is the median of |a - a'| / k over the last 32,
 *     a - a' > TWICE k M         M is the largest of them over the whole run: a schedule
 *                                may restart after small steps, and
 *     0.3 a^2 < q - q' < 3 a^2   the others hardly change: the change of the whole tensor
 *                                is mostly that of one element.
 * One of few elements is a large part of its tensor, and a tensor that rested (m is 0) may
 * be a copy that is made again: with fewer than UPDATE_SPIKE_MANY elements, or at rest, a
 * must be above 16 a', and q - q' within a tenth of a^2. Until HISTORY comparisons, and if k
 * is above 1, a - a' must be above 3 a' as well: at first, the usual change of the largest
 * element is no measure of the others, and in several steps an element may outgrow them.
 * A flipped bit of an exponent does this. An update does not: it changes all elements, so
 * q changes by far more than a^2, or not as far. Elements that shrink, bits of a mantissa,
 * and jumps below NEGLIGIBLE times the largest magnitude of all parameters at the step do
 * no harm that can be distinguished from training: a bias whose gradient is 0 but for
 * rounding, as that of the keys of attention, wanders by less.
 *
 * The finding waits for training: it is a note if the losses after it are as before.
 *
 * Evidence: norms of parameters; losses.
 */

#define NEGLIGIBLE 1e-4
#define TWICE 2.0
#define LEAST 0.5 /* of the largest magnitude */

enum {
    UPDATE_SPIKE_MANY = 32,
    ELEMENTS = 8, /* smaller tensors are not judged */
    HISTORY = 32
};

typedef struct update_spike {
    double factor;
    int64_t least;
    double largest; /* magnitude of all parameters at this step */
} update_spike;

typedef struct update_spike_memory {
    sonde__builtin_recent changes; /* of the largest magnitude, per step */
    double largest, sumsq;
    double most; /* the largest change of a whole run, per step */
    int64_t last;
} update_spike_memory;

static const sonde_rule_param update_spike_params[] = {
    SONDE__REAL(
        update_spike, factor, "20", 1, 1e300,
        "largest acceptable multiple of the median change of the largest magnitude"),
    SONDE__COUNT(update_spike, least, "5", 1, 32,
                 "number of comparisons before the rule can fire"),
};
static const sonde_rule_need update_spike_needs[] = {
    {"parameters", SONDE_HOW_NORMS, false, SONDE__PARAMETERS, SONDE__EACH_STEP},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

enum { PARAMETERS };

/* An element that a program sets, or that a sparse gradient reaches, does no harm. */
SONDE__TERMS(jump_terms, NOTE, ERROR, ERROR, ERROR, ERROR, .event = true);

/* Steps that are too large, and what follows from them, move single elements as well. */
static void update_spike_report(sonde_rule_run *run, const sonde_rule_tensor *t,
                                double steps, double median)
{
    static const char *const others[] = {"WeightUpdateRatio", "LossSpike",
                                         "GradientSpike",     "NonFinite",
                                         "ExplodingTensor",   NULL};
    const update_spike *state = sonde_rule_state(run);
    const update_spike_memory *memory = t->memory;
    const double now = t->vitals->abs_max;
    const sonde_finding *cause = sonde__rules_cause(run, others);

    if (sonde__rule_report(
            run, t, cause != NULL ? SONDE__SURE(NOTE) : &jump_terms, "abs_max", now,
            memory->largest + state->factor * median, sonde__rules_advice(cause),
            "One of its elements jumped to %.4g. The largest magnitude was %.4g %.0f "
            "step%s earlier and usually changes by %.2g in that time.%s",
            now, memory->largest, steps, steps > 1.0 ? "s" : "", median,
            cause != NULL ? " Earlier findings may explain it." : "")) {
        sonde__rules_follows(run, t, cause);
    }
}

static void judge(sonde_rule_run *run, const sonde_rule_tensor *t, double steps)
{
    const update_spike *state = sonde_rule_state(run);
    const update_spike_memory *memory = t->memory;
    const sonde_vitals *v = t->vitals;
    const double jump = v->abs_max - memory->largest, square = v->abs_max * v->abs_max;
    const double change = v->sumsq - memory->sumsq;
    const bool long_known = memory->changes.count >= HISTORY && steps <= 1.0;
    double median = 0.0, least = 0.0;

    if (jump <= LEAST * memory->largest) {
        return; /* as most do: the median takes longer */
    }
    median = steps * sonde__builtin_recent_median(&memory->changes);
    const bool many = v->count >= UPDATE_SPIKE_MANY && median > 0.0;
    least = !many ? 15.0 : long_known ? LEAST : 3.0;
    if (jump <= least * memory->largest || memory->largest <= 0.0 ||
        change <= (many ? 0.3 : 0.9) * square || change >= (many ? 3.0 : 1.1) * square ||
        memory->changes.count < state->least) {
        return;
    }
    if (jump > state->factor * median && jump > TWICE * steps * memory->most &&
        jump > NEGLIGIBLE * state->largest) {
        update_spike_report(run, t, steps, median);
    }
}

static void update_spike_step(sonde_rule_run *run)
{
    update_spike *state = sonde_rule_state(run);

    state->largest = 0.0;
    SONDE__EACH_FINITE (run, t, PARAMETERS) {
        /* one that has jumped is the largest itself */
        state->largest =
            fmax(state->largest, ((const update_spike_memory *)t->memory)->largest);
    }
    SONDE__EACH_FINITE (run, t, PARAMETERS) {
        update_spike_memory *memory = t->memory;

        if (t->vitals->count < ELEMENTS) {
            continue;
        }
        const double steps = (double)sonde__builtin_steps_since(run, &memory->last);
        if (steps > 0.0) {
            const double change = fabs(t->vitals->abs_max - memory->largest) / steps;

            judge(run, t, steps);
            sonde__builtin_recent_take(&memory->changes, change);
            memory->most = fmax(memory->most, change);
        }
        memory->largest = t->vitals->abs_max;
        memory->sumsq = t->vitals->sumsq;
    }
}

const sonde_rule sonde__builtin_update_spike = {
    SONDE__RULE("UpdateSpike", update_spike),
    .summary = "one element of a parameter jumps",
    .condition =
        "The largest magnitude of a parameter grows in one step by more than half, by more than `factor` times its usual change, and by more than twice its largest change so far, while no other element changes much. "
        "It must grow to more than four times its size in the first 32 observed steps and between steps that are not neighbors. "
        "The finding waits for training: it is a note if the losses after it are as before, else an error.",
    .advice = "Look for a corrupt value: a flipped bit (memory, a device) or a write out "
              "of bounds; resume from an earlier checkpoint.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(update_spike_memory),
    .wants = sonde__builtin_wants_role,
    .step = update_spike_step,
};
