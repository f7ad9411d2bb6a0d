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
 * A loss that has fallen returns to its first level if weights of another time are loaded or
 * one step is far too large. Fires when a loss that is meant to fall returns to its first
 * level from one step to the next, and stays there at most of the `patience` steps since:
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
 * a note, and nothing if the program shows or declares that losses need not fall, up to FAR
 * times the first losses or 1. If the median of B is not above FAR times the first losses, the finding waits for
 * the next `patience` losses. It is a note as well if their median has come back by BACK of
 * the jump: the next task, harder samples or a part of the network that is drawn again raise
 * the loss, and training continues from there. Vital signs bound the movement of weights from
 * below by the change of their norm or mean. Evidence: vital signs of losses and weights.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include <string.h>

enum {
    BEFORE = 64,
    FEW = 16,
    MOST = 256,
    LOSSES = 0,
    WEIGHTS = 1,
    FIRST = 5,
    RECENT = 15
};
#define MOVED 4.0
#define FAR 10.0
#define LOST 0.75
#define GAINED 0.2
#define ONE_STEP 0.3 /* of f - m, at the first step of B */
#define BACK 0.2     /* of the jump */
#define SLIGHT 0.03  /* of the first losses */
/* Below this, a loss that need not fall is near 0: differences of scores begin there. */
#define NEAR_ZERO 1.0
/* The rule decides, or the end of the run. */
SONDE__TERMS(jumped, ERROR, NOTE, ERROR, ERROR, ERROR, .looks = INT64_MAX);

typedef struct spike {
    double factor;
    int64_t patience, least;
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

static const sonde_rule_param spike_params[] = {
    SONDE__REAL(spike, factor, "2", 1, 1e300,
                "smallest multiple of the median before the jump that is a spike"),
    SONDE__COUNT(spike, patience, "15", 1, MOST,
                 "number of observed steps for which the loss must stay high"),
    SONDE__COUNT(spike, least, "5", 1, BEFORE,
                 "number of observed steps that are needed before the jump"),
};
static const sonde_rule_need spike_needs[] = {
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

/* Whether nine tenths of the values are above a limit. */
static bool are_above(const double *values, size_t count, double limit)
{
    return count_above(values, count, limit) >= count - tenth(count);
}

/* The values in ascending order. Returns their median. */
static double sort_copy(double *sorted, const double *values, size_t count)
{
    memcpy(sorted, values, count * sizeof *sorted);
    sonde__builtin_sort(sorted, count);
    return sorted[count / 2];
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
static void follow(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const spike *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const size_t patience = (size_t)state->patience;
    const double limit = memory->high - BACK * (memory->high - memory->low);
    double later[MOST];

    if (++memory->waited >= state->patience) {
        const double median =
            sort_copy(later, memory->losses + memory->count - patience, patience);

        sonde__rule_confirm(run, t,
                            median < limit ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
    }
}

/* Whether a jump is a note, by the file header. later: the median of B. */
static bool is_note(sonde_rule_run *run, const sonde_rule_tensor *t, size_t before,
                    double median, double later)
{
    const tensor_memory *memory = t->memory;

    return !sonde__builtin_is_whole_loss(run, t->id) || sonde__rule_loss_is_free(run) ||
           median <= 0.0 || later - median < SLIGHT * fabs(memory->first) ||
           (!has_moved(memory, before) && later <= FAR * memory->first);
}

/* Judges whether what was gained is lost. */
static void judge_lost(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const spike *state = sonde_rule_state(run);
    const tensor_memory *memory = t->memory;
    const size_t patience = (size_t)state->patience, before = memory->count - patience;
    const double *after = memory->losses + before, first = memory->first;
    double recent[RECENT], later[MOST];

    /* The step of the jump usually decides; sorting takes longer. */
    if (before < RECENT ||
        after[0] - after[-1] < ONE_STEP * fmax(first - after[-1], GAINED * fabs(first))) {
        return;
    }
    const double was = sort_copy(recent, after - RECENT, RECENT);
    const double is = sort_copy(later, after, patience);
    const double limit = was + LOST * (first - was);
    if (first - was < GAINED * fabs(first) || is < limit ||
        !are_above(after, patience, recent[RECENT - 1 - tenth(RECENT)])) {
        return;
    }
    const bool moved = has_moved(memory, before);
    sonde__rule_report(run, t, moved ? SONDE__SURE(WARNING) : SONDE__SURE(NOTE), "mean",
                       is, limit,
                       "Check whether weights of another checkpoint or run were loaded, "
                       "or the learning rate was raised.",
                       "In one step, %zu observed steps ago, it returned from about %.4g "
                       "to %.4g; the first losses were %.4g.%s",
                       patience - 1, was, is, first,
                       moved ? ""
                             : " Weights moved as before: the data or the targets may "
                               "have changed.");
}

static void judge(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const spike *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const size_t patience = (size_t)state->patience, before = memory->count - patience;
    const double *after = memory->losses + before;
    const double now = memory->losses[memory->count - 1];
    double sorted[BEFORE], later[MOST];

    /* The last loss usually decides; sorting takes longer. */
    if (count_above(memory->losses, before, now) > tenth(before)) {
        return;
    }
    const double was = sort_copy(sorted, memory->losses, before);
    double limit = sorted[before - 1 - tenth(before)];
    if (!are_above(after, patience, limit)) {
        return;
    }
    const double is = sort_copy(later, after, patience);
    limit = fmax(limit, state->factor * (before < FEW ? sorted[before - 1] : was));
    if (limit <= 0.0 || is <= limit) {
        return;
    }
    if (sonde__rule_loss_may_rise(run) && is <= FAR * fmax(memory->first, NEAR_ZERO)) {
        return;
    }
    const bool note = is_note(run, t, before, was, is);
    if (sonde__rule_report(run, t,
                           note                       ? SONDE__SURE(NOTE)
                           : is > FAR * memory->first ? SONDE__SURE(ERROR)
                                                      : &jumped,
                           "mean", now, limit, NULL,
                           "It jumped from about %.4g to %.4g %zu observed steps ago and "
                           "has not recovered (now %.4g)%s.",
                           was, is, patience - 1, now,
                           note ? "; it is one of several, or its targets may have "
                                  "changed, since weights moved as before"
                                : "")) {
        memory->low = was;
        memory->high = is;
        memory->waited = 0;
    }
}

static void step(sonde_rule_run *run)
{
    const spike *state = sonde_rule_state(run);
    const size_t room = BEFORE + (size_t)state->patience;
    double move = 0.0; /* the least change of all weights since the step before */
    bool moves = false;

    SONDE__EACH_SEEN (run, t, WEIGHTS) {
        tensor_memory *memory = t->memory;
        const double steps = (double)sonde__builtin_steps_since(run, &memory->last);

        if (steps > 0.0) {
            move += sonde__builtin_least_change(t->vitals, &memory->before) / steps;
            moves = true;
        }
        memory->before = *t->vitals;
    }
    SONDE__EACH_SEEN (run, t, LOSSES) {
        tensor_memory *memory = t->memory;

        if (sonde__builtin_finite(t->vitals) == 0) {
            continue;
        }
        take(memory, t->vitals->mean, moves ? move : (double)NAN, room);
        if (sonde__rule_suspects(run, t)) {
            follow(run, t);
        }
        if (memory->count >= (size_t)(state->least + state->patience)) {
            judge(run, t);
            if (sonde__builtin_is_whole_loss(run, t->id) && sonde__rule_loss_falls(run)) {
                judge_lost(run, t);
            }
        }
    }
}

const sonde_rule sonde__builtin_loss_spike = {
    SONDE__RULE("LossSpike", spike),
    .summary = "the loss jumps and does not recover",
    .condition =
        "Either of these holds: (1) over the last `patience` observed steps, the median loss is above `factor` times the median of the 64 steps before, and nine tenths of the losses are above nine tenths of those; "
        "(2) in one step, a loss that is meant to fall loses three quarters of what it has fallen by, and stays there. "
        "(1) is a note for one of several losses. It is also a note if the loss stays within ten times its first values and the jump is below 3 % of the first losses, the weights move as before (targets may move, as in value learning), or the next `patience` losses come back by a fifth of the jump (the next task). "
        "(2) is a note if the weights move as before.",
    .advice = "Lower the learning rate or clip gradients, and resume from a checkpoint "
              "before the jump.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .program = sonde__builtin_free_losses,
    .step = step,
};
