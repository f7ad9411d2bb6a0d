/*
 * LossSpike - the loss jumps and does not recover.
 *
 * B is the last `patience` observed training steps and A the 64 before them. Fires when
 *     nine tenths of B are above nine tenths of A, and
 *     the median of B is above `factor` times that of A (above the largest of A while A
 *     has fewer than 16 losses).
 * Losses of small batches can differ by a factor of a hundred, so no large loss of A is
 * left out, and B is compared with the distribution of A, not only with its size. For
 * independent losses of any one distribution, this happens about once in 10^9 steps. A
 * spike that recovers sooner does not fire.
 *
 * A loss that has fallen loses what was gained where weights of another time are loaded, or
 * one step is far too large. Fires when from one step to the next, and at most of the
 * `patience` steps since, a loss that is meant to fall has returned to its first level:
 *     the median of B is above m + LOST (f - m), f the first losses of the run and m the
 *     median of the RECENT steps before B; f - m is above GAINED of f; and nine tenths of B
 *     are above nine tenths of those.
 * A warning if weights moved at the jump as below, or none are seen; else a note: the next
 * task, or other targets.
 *
 * A loss can also rise because its targets move: those of value learning come from the
 * network itself, and the losses of two players rise in turns. The finding is an error if
 * the loss is the only one or the total, was above 0 before, and either
 *     weights moved at the jump, in one step, MOVED times as far as at any step of A; or
 *     the median of B is above FAR times the first losses of the run; or
 *     no weights are seen.
 * and the jump is above SLIGHT of the first losses: a loss near 0 easily doubles. Else it is
 * a note. If the median of B is not above FAR times the first losses, it waits
 * for the next `patience` losses, and is a note as well if their median has come back by
 * BACK of the jump: the next task, harder samples, a part of the network that is drawn
 * anew raise the loss, and training continues from there. By vital signs, weights move at least by the change of their norm or
 * of their mean. Evidence: vital signs of losses and weights.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/suspicion.h"

#include <math.h>
#include <string.h>

enum { BEFORE = 64, FEW = 16, MOST = 256, LOSSES = 0, WEIGHTS = 1, FIRST = 5 };
enum { RECENT = 15 };
#define MOVED 4.0
#define FAR 10.0
#define LOST 0.75
#define GAINED 0.2
#define ONE_STEP 0.3 /* of f - m, at the first step of B */
#define BACK 0.2     /* of the jump */
#define SLIGHT 0.03  /* of the first losses */
/* The rule decides, or the end of the run. */
static const sonde__rule_terms jumped = {.looks = INT64_MAX,
                                         SONDE__TERMS(ERROR, NOTE, ERROR, ERROR, ERROR)};

typedef struct spike {
    double factor;
    int64_t patience, least;
    double move; /* of all weights at this step */
    bool moves;  /* any weight was compared */
} spike;

typedef struct tensor_memory {
    double losses[BEFORE + MOST]; /* the last ones, oldest first */
    double moves[BEFORE + MOST];  /* of weights at these steps; NaN: not seen */
    size_t count;
    double first; /* mean of the first ones */
    int64_t firsts;
    double low, high;    /* medians before and after a jump that waits */
    int64_t waited;      /* losses after it */
    sonde_vitals before; /* of a weight */
    int64_t last;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REAL(spike, factor, "2", 1, 1e300, "multiple of the median before the jump"),
    SONDE__COUNT(spike, patience, "15", 1, MOST,
                 "observed steps for which the loss stays high"),
    SONDE__COUNT(spike, least, "5", 1, BEFORE,
                 "observed steps that are needed before the jump"),
};
static const sonde_rule_need needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP},
    {"weights", SONDE_HOW_VITALS, true, SONDE__WEIGHTS, SONDE__AT_TIMES}};

/* --- ranks -------------------------------------------------------------------------- */

static size_t count_above(const double *values, size_t count, double limit)
{
    size_t above = 0;

    for (size_t i = 0; i < count; i++) {
        above += values[i] > limit;
    }
    return above;
}

/* How many of count values may violate a condition. */
static size_t tenth(size_t count)
{
    return count / 10;
}

/* --- judging ------------------------------------------------------------------------ */

static void take(tensor_memory *memory, double loss, double move, size_t room)
{
    if (memory->count == room) {
        memmove(memory->losses, memory->losses + 1, (room - 1) * sizeof *memory->losses);
        memmove(memory->moves, memory->moves + 1, (room - 1) * sizeof *memory->moves);
        memory->count--;
    }
    memory->losses[memory->count] = loss;
    memory->moves[memory->count++] = move;
    if (memory->firsts < FIRST) {
        memory->firsts++;
        memory->first += (loss - memory->first) / (double)memory->firsts;
    }
}

static double largest(const double *values, size_t count)
{
    double most = NAN;

    for (size_t i = 0; i < count; i++) {
        most = fmax(most, values[i]); /* ignores NaN */
    }
    return most;
}

/* Whether weights moved at the jump as the file header has it, or none are seen. before:
 * steps of A. */
static bool has_moved(const tensor_memory *memory, size_t before)
{
    /* the loss shows a change of the weights one step later */
    const size_t jump = before - 1;
    const double usual = largest(memory->moves, jump);
    const double at = largest(memory->moves + jump, memory->count - jump);

    return isnan(usual) || isnan(at) || at > MOVED * usual;
}

/* Whether the loss comes back after a jump that waits, once `patience` losses tell. */
static void follow(sonde_rule_run *run, size_t i, tensor_memory *memory)
{
    const spike *state = sonde_rule_state(run);
    const size_t patience = (size_t)state->patience;
    double later[MOST], limit = memory->high - BACK * (memory->high - memory->low);

    if (++memory->waited < state->patience) {
        return;
    }
    memcpy(later, memory->losses + memory->count - patience, patience * sizeof *later);
    sonde__builtin_sort(later, patience);
    sonde__rule_confirm(
        run, i, later[patience / 2] < limit ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
}

/* Error or note, by the file header. later: the median of B. */
static sonde_severity grade(sonde_rule_run *run, size_t i, const tensor_memory *memory,
                            size_t before, double median, double later)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    if (sonde__builtin_loss_kind(run, tensors[i].id) == SONDE__LOSS_PART ||
        sonde__rule_loss_is_free(run) || median <= 0.0 ||
        later - median < SLIGHT * fabs(memory->first)) {
        return SONDE_SEVERITY_NOTE;
    }
    return has_moved(memory, before) || later > FAR * memory->first ? SONDE_SEVERITY_ERROR
                                                                    : SONDE_SEVERITY_NOTE;
}

/* Judges whether what was gained is lost. */
static void judge_lost(sonde_rule_run *run, size_t i, const tensor_memory *memory)
{
    const spike *state = sonde_rule_state(run);
    const size_t patience = (size_t)state->patience;
    const size_t before = memory->count - patience;
    const double *after = memory->losses + before, first = memory->first;
    double recent[RECENT], later[MOST], gained = 0.0;

    /* The step of the jump usually decides; sorting takes longer. */
    if (before < RECENT ||
        after[0] - after[-1] < ONE_STEP * fmax(first - after[-1], GAINED * fabs(first))) {
        return;
    }
    memcpy(recent, after - RECENT, sizeof recent);
    sonde__builtin_sort(recent, RECENT);
    memcpy(later, after, patience * sizeof *later);
    sonde__builtin_sort(later, patience);
    gained = first - recent[RECENT / 2];
    if (gained < GAINED * fabs(first) ||
        later[patience / 2] < recent[RECENT / 2] + LOST * gained ||
        count_above(after, patience, recent[RECENT - 1 - tenth(RECENT)]) <
            patience - tenth(patience)) {
        return;
    }
    const bool moved = has_moved(memory, before);
    if (sonde_rule_found(run, i, moved ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE,
                         "mean", later[patience / 2],
                         recent[RECENT / 2] + LOST * gained)) {
        sonde_rule_say(run,
                       "Check whether weights of another checkpoint or run were loaded, "
                       "or the learning rate was raised.",
                       "In one step, %zu observed steps ago, it returned from about %.4g "
                       "to %.4g; the first losses were %.4g.%s",
                       patience - 1, recent[RECENT / 2], later[patience / 2], first,
                       moved ? ""
                             : " Weights moved as before: the data or the targets may "
                               "have changed.");
    }
}

static void judge(sonde_rule_run *run, size_t i, tensor_memory *memory)
{
    const spike *state = sonde_rule_state(run);
    const size_t patience = (size_t)state->patience;
    const size_t before = memory->count - patience;
    const double *after = memory->losses + before;
    const double now = memory->losses[memory->count - 1];
    double sorted[BEFORE], later[MOST], limit = 0.0;
    sonde_severity severity = SONDE_SEVERITY_NOTE;

    /* The last loss usually decides; sorting takes longer. */
    if (count_above(memory->losses, before, now) > tenth(before)) {
        return;
    }
    memcpy(sorted, memory->losses, before * sizeof *sorted);
    sonde__builtin_sort(sorted, before);
    limit = sorted[before - 1 - tenth(before)];
    if (count_above(after, patience, limit) < patience - tenth(patience)) {
        return;
    }
    memcpy(later, after, patience * sizeof *later);
    sonde__builtin_sort(later, patience);
    limit = fmax(limit, state->factor * sorted[before < FEW ? before - 1 : before / 2]);
    if (limit <= 0.0 || later[patience / 2] <= limit) {
        return;
    }
    severity = grade(run, i, memory, before, sorted[before / 2], later[patience / 2]);
    const bool waits =
        severity == SONDE_SEVERITY_ERROR && !(later[patience / 2] > FAR * memory->first);
    if (waits ? sonde__rule_suspect(run, i, &jumped, "mean", now, limit)
              : sonde_rule_found(run, i, severity, "mean", now, limit)) {
        memory->low = sorted[before / 2];
        memory->high = later[patience / 2];
        memory->waited = 0;
        sonde_rule_say(run, NULL,
                       "It jumped from about %.4g to %.4g %zu observed steps ago and has "
                       "not recovered (now %.4g)%s.",
                       sorted[before / 2], later[patience / 2], patience - 1, now,
                       severity == SONDE_SEVERITY_NOTE
                           ? "; it is one of several, or its targets may have changed, "
                             "since weights moved as before"
                           : "");
    }
}

/* Adds the least change of a weight since the step before. */
static void take_weight(sonde_rule_run *run, tensor_memory *memory, const sonde_vitals *v)
{
    spike *state = sonde_rule_state(run);
    const sonde_vitals *before = &memory->before;
    const double steps = (double)sonde__builtin_steps_since(run, &memory->last);
    const double n = (double)sonde__builtin_finite(v);

    if (steps > 0.0) {
        const double by_norm = fabs(sqrt(v->sumsq) - sqrt(before->sumsq));
        const double by_mean = fabs(v->mean - before->mean) * sqrt(n);

        state->move += fmax(by_norm, by_mean) / steps;
        state->moves = true;
    }
    memory->before = *v;
}

static void step(sonde_rule_run *run)
{
    spike *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    state->move = 0.0;
    state->moves = false;
    SONDE__EACH (run, i) {
        if (tensors[i].need == WEIGHTS && tensors[i].vitals != NULL) {
            take_weight(run, tensors[i].memory, tensors[i].vitals);
        }
    }
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].need == LOSSES ? tensors[i].vitals : NULL;
        tensor_memory *memory = tensors[i].memory;

        if (v == NULL || sonde__builtin_finite(v) == 0) {
            continue;
        }
        take(memory, v->mean, state->moves ? state->move : (double)NAN,
             BEFORE + (size_t)state->patience);
        if (sonde__rule_suspects(run, i)) {
            follow(run, i, memory);
        }
        if (memory->count >= (size_t)(state->least + state->patience)) {
            judge(run, i, memory);
            if (sonde__builtin_loss_kind(run, tensors[i].id) != SONDE__LOSS_PART &&
                sonde__rule_loss_falls(run)) {
                judge_lost(run, i, memory);
            }
        }
    }
}

const sonde_rule sonde__builtin_loss_spike = {
    SONDE__RULE("LossSpike", spike),
    .summary = "the loss jumps and does not recover",
    .condition =
        "Over the last `patience` observed steps, the median loss is above "
        "`factor` times the median of the 64 steps before, and nine tenths of "
        "the losses are above nine tenths of those. A note for one of several "
        "losses, and where the loss stays within ten times its first values and the jump is "
        "below 3 % of the first losses, the weights move as before (targets may move, as in value learning), or the next "
        "`patience` losses come back by a fifth of the jump (the next task). Or, "
        "in one step, a loss that is meant to fall loses three quarters of what "
        "it has fallen by, and stays there (a note where the weights move as before).",
    .advice = "Lower the learning rate or clip gradients, and resume from a checkpoint "
              "before the jump.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
};
