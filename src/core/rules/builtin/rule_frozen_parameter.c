/*
 * FrozenParameter - a parameter that should be trained does not change.
 *
 * Fires when the vital signs of a parameter stay the same to the bit, and
 *     alone     at `patience` comparisons of observed steps in a row, its gradient is not 0
 *               and other parameters change, so the optimizer lacks it; or no parameter
 *               changes although the optimizer's state for this one (moments, step
 *               counter) does, so the optimizer holds stale copies;
 *     idle      no parameter changes: see judge_idle; or
 *     cut off   a weight never had a gradient: frozen_cut_off.c.
 * A parameter whose expected change is below its precision is ignored. L is the median,
 * over the parameters that changed, of |change of sum a step| / |sum of gradient|, which
 * is the learning rate of plain SGD; L max|g| must be above 1e-6 max|w|. A parameter, or a
 * network, that has rested before must rest three times as long: gradients may be
 * accumulated over steps, and players may take turns.
 *
 * A parameter that has changed, and rests while all of its elements have one size, or its
 * largest ones exactly that of another parameter, is one that the program clips. Layers may be frozen on purpose. The finding is a note, not an error, where the rule
 * cannot distinguish this from a mistake: the optimizer's state for the parameter changes
 * (its learning rate is 0); or the parameters without a change are the first layers, at
 * least two or half of them.
 *
 * Evidence: vital signs of parameters, of their gradients and of the optimizer's values;
 * losses, if there are any.
 */
#include "rules/builtin/frozen.h"
#include "rules/builtin/program_walk.h"

#include "base/macros.h"

#include <stdio.h>

enum { MOST_RATES = 64, IDLE_AFTER = 10 /* comparisons */, TURNS = 3 /* times `idle` */ };
#define ENDED 1e-4
#define SUMMED 3.0

static const sonde_rule_param sonde__builtin_frozen_params[] = {
    SONDE__COUNT(
        sonde__builtin_frozen, patience, "2", 1, 1e9,
        "number of comparisons in a row without a change of a parameter whose gradient is not 0"),
    SONDE__COUNT(
        sonde__builtin_frozen, idle, "40", 1, 1e9,
        "number of comparisons in a row without any change, or without a gradient"),
};
static const sonde_rule_need sonde__builtin_frozen_needs[] = {
    {"parameters", SONDE_HOW_VITALS, false, SONDE__PARAMETERS, SONDE__CLOSELY},
    {"gradients", SONDE_HOW_VITALS, false, SONDE__GRADIENTS, SONDE__CLOSELY},
    {"optimizer values", SONDE_HOW_VITALS, true, SONDE__STATE, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* The learning rate of plain SGD by the change of a parameter. A gradient may sum to 0,
 * as that of the last layer of a classifier does: then a lower bound. */
static double rate_of(const sonde_vitals *now, const sonde_vitals *before,
                      const sonde_vitals *g)
{
    return fabs(g->sum) > 1e-3 * g->l1 ? fabs(now->sum - before->sum) / fabs(g->sum)
                                       : fabs(now->l1 - before->l1) / g->l1;
}

static const sonde_vitals *gradient_of(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const sonde__builtin_frozen_memory *memory = t->memory;

    return t->need == SONDE__FROZEN_PARAMETERS
               ? sonde__builtin_seen_at(run, memory->gradient)
               : NULL;
}

static bool is_compared(const sonde_rule_tensor *t)
{
    return t->need != SONDE__FROZEN_GRADIENTS && t->need != SONDE__FROZEN_LOSSES &&
           t->vitals != NULL;
}

/* Compares all tensors but gradients with their last values. Returns L of the file
 * header, 0 if no parameter changed. */
static double compare(sonde_rule_run *run)
{
    double rates[MOST_RATES];
    size_t changed = 0;

    SONDE__EACH (run, t) {
        sonde__builtin_frozen_memory *memory = t->memory;
        const sonde_vitals *now = t->vitals;

        if (!is_compared(t)) {
            continue;
        }
        const double steps = (double)sonde__builtin_steps_since(run, &memory->last);
        const sonde_vitals *g = gradient_of(run, t);
        memory->same =
            memory->has_before && sonde__builtin_same_vitals(now, &memory->before);
        if (memory->has_before && !memory->same && g != NULL && changed < MOST_RATES &&
            g->l1 > 0.0) {
            rates[changed++] = rate_of(now, &memory->before, g) / fmax(steps, 1.0);
        }
    }
    sonde__builtin_sort(rates, changed);
    return changed > 0 ? rates[changed / 2] : 0.0;
}

/* True if the optimizer's state for this parameter has changed. */
static bool state_changes(sonde_rule_run *run, const sonde__builtin_frozen_memory *memory)
{
    if (sonde__builtin_seen_at(run, memory->state) == NULL) {
        return false;
    }
    const sonde__builtin_frozen_memory *state =
        sonde__builtin_at(run, memory->state)->memory;

    return state->has_before && !state->same;
}

/* Fills in what the program says of the learning rates, to end a message: that all are 0, and
 * the line of a scheduler. size: of text. */
static void tell_rate(const sonde_rule_run *run, char *text, size_t size)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const sonde_program_event *scheduler =
        program != NULL ? sonde__builtin_walk_event(program, 0, SONDE_EVENT_SCHEDULER)
                        : NULL;
    double largest = 0.0;
    sonde__builtin_text line;

    text[0] = '\0';
    for (size_t i = 0; program != NULL && i < program->optimizer_count; i++) {
        largest = fmax(largest, sonde_attribute_number(program->optimizers[i].attributes,
                                                       "lr", INFINITY));
    }
    if (program != NULL && program->optimizer_count > 0 && largest <= 0.0) {
        (void)snprintf(text, size, "; the learning rate is 0%s%s",
                       scheduler != NULL ? ", which a scheduler sets" : "",
                       scheduler != NULL
                           ? sonde__builtin_walk_line(program, scheduler->place, &line)
                           : "");
    } else if (scheduler != NULL) {
        (void)snprintf(text, size, "; a scheduler sets the learning rate%s",
                       sonde__builtin_walk_line(program, scheduler->place, &line));
    }
}

/* --- idle --------------------------------------------------------------------------- */

/* Whether the optimizer steps in the program of a training step, and no backward pass comes
 * before. */
static bool steps_without_backward(const sonde_rule_run *run)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);

    return program != NULL &&
           sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP) != NULL &&
           sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD) == NULL;
}

/* Judges a comparison at which nothing changed and no gradient was seen. */
static void judge_bare(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);

    state->bare++;
    if (state->led == 0) {
        if (state->bare >= IDLE_AFTER && steps_without_backward(run)) {
            sonde__rule_report(
                run, NULL, SONDE__SURE(ERROR), "steps_unchanged", (double)state->bare,
                (double)IDLE_AFTER,
                "Call backward on the loss after the gradients are cleared "
                "and before the optimizer's step.",
                "The optimizer has stepped %lld times without a gradient "
                "of any parameter, and no parameter has changed.",
                (long long)state->bare);
        }
        return;
    }
    if (state->bare >= IDLE_AFTER && state->led >= IDLE_AFTER && state->idle_most == 0) {
        sonde__rule_report(run, sonde__builtin_at(run, state->idlest), SONDE__SURE(ERROR),
                           "steps_unchanged", (double)state->bare, (double)IDLE_AFTER,
                           "Check that gradients are not cleared between the backward "
                           "pass and the optimizer's step, and that it is called.",
                           "No parameter changed at the last %lld observed steps, and "
                           "none had a gradient, as all of them had before.",
                           (long long)state->bare);
    }
}

/* What a comparison shows, over all parameters. */
typedef struct glance {
    bool any;                      /* parameters were compared, of those that train */
    bool changed, shown;           /* one changed; a gradient was seen */
    const sonde_rule_tensor *most; /* the parameter with the largest gradient */
    double largest;                /* that gradient */
} glance;

static glance look(sonde_rule_run *run)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    glance now = {.largest = -1.0};

    SONDE__EACH_SEEN (run, t, SONDE__FROZEN_PARAMETERS) {
        const sonde__builtin_frozen_memory *memory = t->memory;
        const sonde_vitals *g = gradient_of(run, t);

        /* weights without a gradient may be seen at more steps than those that train */
        now.any = now.any || (memory->has_before && (memory->pulled || !state->pulls));
        now.shown = now.shown || g != NULL;
        /* a copy that follows the weights, as a teacher does, has no gradient */
        now.changed = now.changed || (memory->has_before && !memory->same &&
                                      (memory->gradient != SIZE_MAX || !state->pulls));
        if (g != NULL && sonde__builtin_nonzero(g) > 0 && sonde__builtin_bad(g) == 0 &&
            g->abs_max > now.largest) {
            now.most = t;
            now.largest = g->abs_max;
        }
    }
    return now;
}

/*
 * Fires when no parameter changes for `idle` comparisons in a row, or IDLE_AFTER if all of
 * the first ones changed something, although gradients are not 0: they are cleared or
 * clipped away before the update, or the optimizer holds other tensors. Gradients below
 * ENDED times the largest so far do not count: training has converged. Where they have
 * grown to SUMMED times those at the beginning of the rest, they are summed for a later
 * update, and the parameters may rest twice as long. Or gradients, which were seen at all
 * of the first IDLE_AFTER comparisons or more, are not seen any more, for as long. Or none
 * was ever seen, and the program shows steps without a backward pass before.
 */
static void judge_idle(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    const glance now = look(run);
    bool ended = false;
    int64_t needed = state->idle;

    state->pulls = state->pulls || now.most != NULL;
    state->compared += now.any;
    state->changed += now.changed;
    state->led += now.any && now.most != NULL && state->led + 1 == state->compared;
    if (now.any && !now.changed && !now.shown) {
        judge_bare(run);
        return;
    }
    state->bare = now.any ? 0 : state->bare;
    if (now.most != NULL) {
        state->idlest =
            state->reported ? state->idlest : sonde__builtin_index(run, now.most);
        state->largest = fmax(state->largest, now.largest);
        state->resting = state->idle_now == 0 ? now.largest : state->resting;
        ended = now.largest < ENDED * state->largest;
    }
    if (!now.any || now.changed || now.most == NULL || ended) {
        if (now.changed) {
            state->idle_most = SONDE_MAX(state->idle_most, state->idle_now);
            state->idle_now = 0;
        }
        return;
    }
    state->idle_now++;
    if (state->idle_most == 0 && state->changed >= IDLE_AFTER) {
        needed = SONDE_MIN(needed, IDLE_AFTER);
    }
    needed *= now.largest > SUMMED * state->resting ? 2 : 1;
    if (state->idle_now >= needed && state->idle_now > 3 * state->idle_most &&
        !state->explained) {
        char rate[160];

        tell_rate(run, rate, sizeof rate);
        state->reported = true;
        sonde__rule_report(
            run, sonde__builtin_at(run, state->idlest), SONDE__SURE(ERROR),
            "steps_unchanged", (double)state->idle_now, (double)needed,
            "Check that the optimizer holds these parameters and is "
            "called, that gradients are not cleared or clipped away before "
            "it is, and that the learning rate is not 0.",
            "No parameter changed at the last %lld observed steps, although "
            "there are gradients, the largest of them here (%.3g)%s.",
            (long long)state->idle_now, now.largest, rate);
    }
}

/* --- alone -------------------------------------------------------------------------- */

/* Whether a parameter may be frozen on purpose. */
static bool may_be_meant(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde__builtin_frozen_memory *memory = t->memory;

    if (state_changes(run, memory)) {
        return true;
    }
    sonde__builtin_frozen_survey(run);
    return !memory->moved && t < state->first_moving &&
           (state->still >= 2 || 2 * state->still >= state->weights);
}

/* Whether a parameter that is not changed, as those before it, is none that was trained before:
 * the weights are as they were drawn, and no optimizer holds it. After may_be_meant. */
static bool is_forgotten(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde__builtin_frozen_memory *memory = t->memory;
    const sonde_program_parameter *known = sonde__builtin_frozen_known(run, t);

    return !memory->moved && 2 * state->fresh > state->still && known != NULL &&
           known->optimizer < 0;
}

/* Whether the largest elements of a parameter are of one size, which is that of the largest
 * elements of other parameters, or of all elements of this one. */
static bool is_at_bound(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const sonde_vitals *now = t->vitals;
    bool shared = now->count > 1 && now->abs_min >= now->abs_max;

    SONDE__EACH_SEEN (run, other, SONDE__FROZEN_PARAMETERS) {
        shared = shared || (other != t && other->vitals->abs_max == now->abs_max &&
                            now->abs_max > 0.0);
    }
    return shared;
}

/* Judges a parameter; rate is L of the file header. */
static void judge_alone(sonde_rule_run *run, const sonde_rule_tensor *t, double rate)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    sonde__builtin_frozen_memory *memory = t->memory;
    const sonde_vitals *now = t->vitals, *g = gradient_of(run, t);
    const bool others = rate > 0.0;
    /* the program clips weights: they rest at the bounds */
    const bool clipped = memory->same && memory->moved && is_at_bound(run, t);
    const bool stuck =
        memory->same && !clipped && g != NULL && sonde__builtin_nonzero(g) > 0 &&
        sonde__builtin_bad(g) == 0 && sonde__builtin_bad(now) == 0 &&
        (others ? rate * g->abs_max > 1e-6 * now->abs_max : state_changes(run, memory));

    memory->steps = stuck ? memory->steps + 1 : 0;
    memory->pulled = memory->pulled || (g != NULL && sonde__builtin_nonzero(g) > 0);
    if (g == NULL || memory->told || memory->steps < state->patience ||
        memory->steps <= 3 * memory->rest_most) {
        return;
    }
    /* also once layers before it are trained */
    memory->meant = memory->meant || (others && may_be_meant(run, t));
    const bool forgotten = memory->meant && is_forgotten(run, t);
    char ending[160] = "";

    if (!others) {
        tell_rate(run, ending, sizeof ending);
    }
    sonde__rule_report(
        run, t,
        forgotten       ? SONDE__SURE(WARNING)
        : memory->meant ? SONDE__SURE(NOTE)
                        : SONDE__SURE(ERROR),
        "steps_unchanged", (double)memory->steps, (double)state->patience,
        forgotten ? "Give the optimizer all parameters of the model." : NULL,
        "It has a gradient (mean %.3g) but does not change, %s%s.",
        g->l1 / (double)g->count,
        others ? "while other parameters do"
               : "and neither does any other parameter, while the optimizer's state does",
        forgotten ? ": no optimizer holds it, and the weights here are as first drawn"
        : memory->meant ? "; if it is frozen on purpose, its gradient is not needed"
                        : ending);
}

/* --- steps -------------------------------------------------------------------------- */

/* Keeps the values of this step, and how long a parameter rests. */
static void keep(sonde_rule_run *run)
{
    SONDE__EACH (run, t) {
        sonde__builtin_frozen_memory *memory = t->memory;

        if (!is_compared(t)) {
            continue;
        }
        if (memory->has_before && !memory->same) {
            memory->rest_most = memory->moved ? SONDE_MAX(memory->rest_most, memory->rest)
                                              : memory->rest_most;
            memory->moved = true;
        }
        memory->rest = memory->same ? memory->rest + 1 : 0;
        memory->before = *t->vitals;
        memory->has_before = true;
    }
}

static const sonde__builtin_link links[] = {
    {SONDE__FROZEN_PARAMETERS, SONDE__FROZEN_GRADIENTS,
     offsetof(sonde__builtin_frozen_memory, gradient), NULL},
    {SONDE__FROZEN_PARAMETERS, SONDE__FROZEN_STATE,
     offsetof(sonde__builtin_frozen_memory, state), NULL}};

static void step(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);

    sonde__builtin_relink(run, &state->linked, links, SONDE_COUNT_OF(links));
    const double rate = compare(run);
    SONDE__EACH_SEEN (run, t, SONDE__FROZEN_PARAMETERS) {
        judge_alone(run, t, rate);
    }
    judge_idle(run);
    keep(run);
    sonde__builtin_frozen_judge_program(run);
    if (state->compared >= (sonde__rule_loss_falls(run) ? 1 : TURNS) * state->idle &&
        !state->looked) {
        sonde__builtin_frozen_judge_cut_off(run);
    } else if (state->looked) {
        sonde__builtin_frozen_resolve(run);
    }
}

static void finish(sonde_rule_run *run)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);

    if (state->compared >= state->idle && !state->looked) {
        sonde__builtin_frozen_judge_cut_off(run);
    }
}

const sonde_rule sonde__builtin_frozen_parameter = {
    SONDE__RULE("FrozenParameter", sonde__builtin_frozen),
    .summary = "a parameter that should be trained does not change",
    .condition =
        "Any of these holds: (1) over `patience` observed steps, no bit of a parameter changes although its gradient is not 0, while other parameters or the optimizer's state change; "
        "(2) over `idle` observed steps (10 after changes at every step), no parameter changes although there are gradients; "
        "(3) over `idle` observed steps, a weight has neither a gradient nor a change, while other weights are trained. If the loss need not fall, (3) fires after three times as many steps, or at the end. "
        "The finding is a note if layers may be frozen on purpose, which those are not that an optimizer was given. These are whole modules, weights whose module has no output while other modules have one, and weights before all trained ones whose gradient is not declared. "
        "It is also a note if training does not go badly and nothing that is trained may use the weight: its module's output has no gradient, or the weight was never meant to be trained. "
        "Where the program of a step is known: (4) backward reaches parameters that no optimizer holds, of layers that the model does not know, or used after some that are held (a note if they are the majority), or of a whole model while there is an optimizer for each, or while it reaches none that an optimizer holds (before a held part, a warning if the weights are as they were drawn); (5) it reaches none of an optimizer's parameters; (6) detach or no_grad cuts a parameter off that an optimizer holds; (7) no operation reads one, or no loss is made of what the user's own operations make of it; (8) a weight never had a gradient, but its layer's bias has one. (6) and (7) are warnings, after 3 and 20 looks without a gradient.",
    .advice = "Check that the optimizer holds this parameter itself and not an old copy, "
              "and that its learning rate is not 0.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(sonde__builtin_frozen_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
    .finish = finish,
    .program = sonde__builtin_frozen_program,
};
