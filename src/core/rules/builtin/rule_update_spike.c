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
 * One of few elements is a large part of its tensor, and a tensor that rested (m is 0)
 * may be a copy that is taken anew: below MANY, or at rest, a has to be above 16 a', and
 * q - q' within a tenth of a^2.
 * Until HISTORY comparisons, and where k is above 1, a - a' has to be above 3 a' as well: at
 * first, the usual change of the largest element says little about that of the others, and
 * within several steps an element may outgrow them.
 * A flipped bit of an exponent does this. An update does not: it changes all elements, so
 * q changes by far more than a^2, or not as far. Elements that shrink, bits of a mantissa,
 * and jumps below NEGLIGIBLE times the largest magnitude of all parameters at the step do
 * no harm that can be distinguished from training: a bias whose gradient is 0 but for
 * rounding, as that of the keys of attention, wanders by less.
 *
 * It waits for training: a note where the losses after it are as before.
 *
 * Evidence: norms of parameters; losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/context.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/series.h"
#include "rules/suspicion.h"

#include <math.h>

#define NEGLIGIBLE 1e-4
#define TWICE 2.0
#define LEAST 0.5 /* of the largest magnitude */

enum { MANY = 32, ELEMENTS = 8, HISTORY = 32 }; /* smaller tensors are not judged */

typedef struct spike {
    double factor;
    int64_t least;
    double largest; /* magnitude of all parameters at this step */
} spike;

typedef struct tensor_memory {
    sonde__builtin_recent changes; /* of the largest magnitude, per step */
    double largest, sumsq;
    double most; /* the largest change of a whole run, per step */
    int64_t last;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REAL(spike, factor, "20", 1, 1e300,
                "multiple of the median change of the largest magnitude"),
    SONDE__COUNT(spike, least, "5", 1, 32, "comparisons before the rule can fire"),
};
static const sonde_rule_need needs[] = {
    {"parameters", SONDE_HOW_NORMS, false, SONDE__PARAMETERS, SONDE__EACH_STEP},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

enum { PARAMETERS, LOSSES };

/* An element that a program sets, or that a sparse gradient reaches, does no harm. */
static const sonde__rule_terms jump_terms = {
    .event = true, SONDE__TERMS(NOTE, ERROR, ERROR, ERROR, ERROR)};

/* Steps that are too large, and what follows from them, move single elements as well. */
static void report(sonde_rule_run *run, size_t i, const tensor_memory *memory,
                   const sonde_vitals *v, double steps, double median)
{
    static const char *const others[] = {"WeightUpdateRatio", "LossSpike",
                                         "GradientSpike",     "NonFinite",
                                         "ExplodingTensor",   NULL};
    const spike *state = sonde_rule_state(run);
    const sonde_finding *cause = sonde__rules_cause(run, others);
    const bool explained = cause != NULL;
    const double limit = memory->largest + state->factor * median;

    if (explained
            ? sonde_rule_found(run, i, SONDE_SEVERITY_NOTE, "abs_max", v->abs_max, limit)
            : sonde__rule_suspect(run, i, &jump_terms, "abs_max", v->abs_max, limit)) {
        sonde__rules_follows(run, cause);
        sonde_rule_say(
            run, explained ? "Fix the earlier findings first." : NULL,
            "One of its elements jumped to %.4g. The largest magnitude was %.4g %.0f "
            "step%s earlier and usually changes by %.2g in that time.%s",
            v->abs_max, memory->largest, steps, steps > 1.0 ? "s" : "", median,
            explained ? " Earlier findings may explain it." : "");
    }
}

static void judge(sonde_rule_run *run, size_t i, const tensor_memory *memory,
                  const sonde_vitals *v, double steps)
{
    const spike *state = sonde_rule_state(run);
    const double jump = v->abs_max - memory->largest, square = v->abs_max * v->abs_max;
    const double change = v->sumsq - memory->sumsq;
    const bool long_known = memory->changes.count >= HISTORY && steps <= 1.0;
    double median = 0.0, least = 0.0;

    if (jump <= LEAST * memory->largest) {
        return; /* as most do: the median takes longer */
    }
    median = steps * sonde__builtin_recent_median(&memory->changes);
    const bool many = v->count >= MANY && median > 0.0;
    least = !many ? 15.0 : long_known ? LEAST : 3.0;
    if (jump <= least * memory->largest || memory->largest <= 0.0 ||
        change <= (many ? 0.3 : 0.9) * square || change >= (many ? 3.0 : 1.1) * square ||
        memory->changes.count < state->least) {
        return;
    }
    if (jump > state->factor * median && jump > TWICE * steps * memory->most &&
        jump > NEGLIGIBLE * state->largest) {
        report(run, i, memory, v, steps, median);
    }
}

static void step(sonde_rule_run *run)
{
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    spike *state = sonde_rule_state(run);

    state->largest = 0.0;
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == PARAMETERS && v != NULL && v->count > 0 &&
            sonde__builtin_bad(v) == 0) {
            /* one that has jumped is the largest itself */
            state->largest =
                fmax(state->largest, ((const tensor_memory *)tensors[i].memory)->largest);
        }
    }
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;

        if (tensors[i].need != PARAMETERS || v == NULL || v->count < ELEMENTS ||
            sonde__builtin_bad(v) > 0) {
            continue;
        }
        const double steps = (double)sonde__builtin_steps_since(run, &memory->last);
        if (steps > 0.0) {
            const double change = fabs(v->abs_max - memory->largest) / steps;

            judge(run, i, memory, v, steps);
            sonde__builtin_recent_take(&memory->changes, change);
            memory->most = fmax(memory->most, change);
        }
        memory->largest = v->abs_max;
        memory->sumsq = v->sumsq;
    }
}

const sonde_rule sonde__builtin_update_spike = {
    SONDE__RULE("UpdateSpike", spike),
    .summary = "one element of a parameter jumps",
    .condition =
        "In one step the largest magnitude of a parameter grows by more than half and by "
        "more than `factor` times its usual change, and more than twice its largest change "
        "so far, while no other element changes much. In the first 32 observed steps, and "
        "between steps that are not neighbours, it has to grow to more than four times its "
        "size. It waits for training: an error, or a note where the losses after it are "
        "as before.",
    .advice = "Look for a corrupt value: a flipped bit (memory, a device) or a write out "
              "of bounds; resume from an earlier checkpoint.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
};
