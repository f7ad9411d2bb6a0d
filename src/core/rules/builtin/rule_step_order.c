/*
 * StepOrder - what a training step does stands in an order in which it has no effect, or
 * another one.
 *
 * Judged are the events of the program of a training step. It begins after the step of the
 * optimizers before it: what stands at its start, before the first backward pass, follows
 * that step. Fires when
 *     cleared      an optimizer's gradients are cleared between backward and its step, and
 *                  no gradient is seen at the step (a program may set them by hand)
 *     backward     an optimizer steps after a forward pass, without a backward pass, and no
 *                  gradient is seen at two steps
 *     never        gradients are computed several times by the same line, and no optimizer
 *                  steps, then or before, although there is one
 *     unused       gradients are clipped where no step follows before the next backward
 *                  pass: after the step, or before backward
 *     scaled       gradients are clipped while a gradient scaler's scale is in them
 *     scheduled    a scheduler steps between backward and the optimizer's step: the step
 *                  has the learning rate of the next one (a warning)
 *     twice        backward is called twice on one loss
 *     again        an optimizer steps twice, by two lines, on the gradients of one backward
 *                  pass
 *     discarded    gradients are cleared between backward passes of one line, and a step
 *                  follows only the last of them
 *     undivided    the losses of several batches are added up, each a mean, and plain SGD
 *                  makes a step that many times as large (a warning)
 * Optimizers that call the program themselves, LBFGS and SAM, are not judged. Where several
 * optimizers step, clearing by a model counts for none of them: it may be another model.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include <string.h>

enum { GRADIENTS, LOSSES };
enum { LOOKED = 20, TERMS = 16 }; /* steps at whose start gradients are seen */

typedef struct order {
    bool shown;  /* a program was */
    int cleared; /* the event of this program, from 1, that may clear gradients; 0: none */
    int stepped; /* the first step of this program, from 1, if it has no backward; else 0 */
    bool steps;  /* an optimizer has stepped in any program */
    bool handed; /* gradients were seen at a step since the last backward pass */
    int line,
        optimizer; /* of the last step of an optimizer after a backward pass; 0: none */
} order;

static const sonde_rule_need order_needs[] = {
    {"gradients", SONDE_HOW_NORMS, true, SONDE__GRADIENTS, SONDE__OFTEN},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* The index of the nearest backward pass or step before event i, or after it; -1: there
 * is none. */
static int find_near(const sonde_program *program, size_t i, int by)
{
    for (int at = (int)i + by; at >= 0 && (size_t)at < program->event_count; at += by) {
        if (program->events[at].kind == SONDE_EVENT_BACKWARD ||
            program->events[at].kind == SONDE_EVENT_STEP) {
            return at;
        }
    }
    return -1;
}

static bool is_kind(const sonde_program *program, int i, sonde_event_kind kind)
{
    return i >= 0 && program->events[i].kind == kind;
}

static bool found(sonde_rule_run *run, const sonde_program_event *event,
                  sonde_severity severity, const char *statistic)
{
    return sonde_rule_found_at(run, "", event->place, severity, statistic, 1.0, 0.0);
}

/* --- cleared -------------------------------------------------------------------------- */

/* Event i is a step. Returns the event, from 1, that clears gradients after their backward
 * pass; 0: there is none. */
static size_t find_cleared(const sonde_program *program, size_t i)
{
    const int optimizer = program->events[i].optimizer;
    size_t k = i;

    while (
        k > 0 &&
        !sonde__builtin_walk_clears(program, &program->events[k - 1], optimizer, false) &&
        program->events[k - 1].kind != SONDE_EVENT_BACKWARD) {
        k--;
    }
    const size_t cleared = k;
    for (; k > 0 && program->events[cleared - 1].kind != SONDE_EVENT_BACKWARD; k--) {
        if (program->events[k - 1].kind == SONDE_EVENT_STEP) {
            return 0; /* its gradients were cleared before the next backward pass */
        }
        if (program->events[k - 1].kind == SONDE_EVENT_BACKWARD) {
            return cleared;
        }
    }
    return 0;
}

static bool has_gradients(sonde_rule_run *run)
{
    SONDE__EACH_SEEN (run, t, GRADIENTS) {
        if (t->vitals->sumsq > 0.0) {
            return true;
        }
    }
    return false;
}

static void report_cleared(sonde_rule_run *run, const sonde_program *program, int cleared)
{
    sonde__builtin_text clears_at, stepped;
    const sonde_program_event *clear = &program->events[cleared - 1];
    const sonde_program_event *step =
        sonde__builtin_walk_event(program, (size_t)cleared, SONDE_EVENT_STEP);
    if (step != NULL && found(run, clear, SONDE_SEVERITY_ERROR, "cleared")) {
        sonde_rule_say(run, "Clear the gradients before backward, or after the step.",
                       "Gradients are cleared%s between backward and the step%s: the "
                       "optimizer has nothing to go by.",
                       sonde__builtin_walk_line(program, clear->place, &clears_at),
                       sonde__builtin_walk_line(program, step->place, &stepped));
    }
}

/* --- without backward ----------------------------------------------------------------- */

/* Whether a program has a forward pass that can be trained, and no backward pass. */
static bool lacks_backward(const sonde_program *program)
{
    bool forward = false;

    for (size_t i = 0; i < program->event_count; i++) {
        if (program->events[i].kind == SONDE_EVENT_BACKWARD) {
            return false;
        }
        forward = forward || (program->events[i].kind == SONDE_EVENT_FORWARD &&
                              program->events[i].grad);
    }
    return forward;
}

static void report_stepped(sonde_rule_run *run, const sonde_program *program, int stepped)
{
    const sonde_program_event *step = &program->events[stepped - 1];
    const sonde_program_event *pass =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_FORWARD);
    sonde__builtin_text forward, line;

    if (pass != NULL && found(run, step, SONDE_SEVERITY_ERROR, "backward")) {
        sonde_rule_say(run, "Call the loss's backward() before the optimizer's step.",
                       "No backward pass stands between the forward pass%s and the "
                       "step%s: no parameter has a gradient.",
                       sonde__builtin_walk_line(program, pass->place, &forward),
                       sonde__builtin_walk_line(program, step->place, &line));
    }
}

/* Judges a program whose optimizer steps without backward, once steps have shown whether
 * gradients are set by hand. */
static void judge_stepped(sonde_rule_run *run)
{
    const order *state = sonde_rule_state(run);
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);

    if (state->stepped > 0 && !state->handed && program != NULL) {
        report_stepped(run, program, state->stepped);
    }
}

/* Confirms by the gradients of this step. */
static void confirm(sonde_rule_run *run)
{
    order *state = sonde_rule_state(run);
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const int cleared = state->cleared;
    const bool early = sonde_rule_at(run)->mode_step < LOOKED;

    state->cleared = 0;
    if (has_gradients(run)) {
        state->handed = true;
    } else if (cleared > 0 && program != NULL && early) {
        report_cleared(run, program, cleared);
    }
}

/* --- without a step --------------------------------------------------------------------- */

/* The line of the last backward pass, if there were several by it, and no step of an
 * optimizer. NULL: it is not so. */
static const sonde_program_event *find_unused(const sonde_program *program, size_t *count)
{
    const sonde_program_event *last = NULL;
    bool held = false;

    *count = 0;
    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_STEP) {
            return NULL;
        }
        if (event->kind == SONDE_EVENT_BACKWARD) {
            *count =
                last != NULL && last->place.line == event->place.line ? *count + 1 : 1;
            last = event;
        }
    }
    for (size_t i = 0; i < program->parameter_count; i++) {
        held = held ||
               (program->parameters[i].optimizer >= 0 && program->parameters[i].reached);
    }
    return held && *count >= 2 ? last : NULL;
}

static void judge_never(sonde_rule_run *run, const sonde_program *program)
{
    const order *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_program_event *backward = find_unused(program, &count);
    sonde__builtin_text line;

    if (backward != NULL && !state->steps &&
        found(run, backward, SONDE_SEVERITY_ERROR, "never")) {
        sonde_rule_say(run, "Call the optimizer's step() after backward.",
                       "%zu backward passes%s compute gradients, and %s never steps: "
                       "nothing is learned.",
                       count, sonde__builtin_walk_line(program, backward->place, &line),
                       program->optimizer_count == 1 ? program->optimizers[0].kind
                                                     : "no optimizer");
    }
}

/* --- clipping ------------------------------------------------------------------------- */

/* Whether the gradients at event i have a scaler's scale. */
static bool are_scaled(const sonde_program *program, size_t i)
{
    for (; i > 0; i--) {
        const sonde_program_event *event = &program->events[i - 1];

        if (event->kind == SONDE_EVENT_UNSCALE || event->kind == SONDE_EVENT_STEP) {
            return false;
        }
        if (event->kind == SONDE_EVENT_BACKWARD) {
            return sonde_attribute_number(event->attributes, "scale", 1.0) > 1.0;
        }
    }
    return false;
}

static void judge_clip(sonde_rule_run *run, const sonde_program *program, size_t i)
{
    const sonde_program_event *clip = &program->events[i];
    const int before = find_near(program, i, -1), after = find_near(program, i, 1);
    sonde__builtin_text line, other;

    if (!is_kind(program, before, SONDE_EVENT_BACKWARD) &&
        is_kind(program, after, SONDE_EVENT_BACKWARD)) {
        if (found(run, clip, SONDE_SEVERITY_ERROR, "clipped")) {
            sonde_rule_say(
                run, "Clip between backward and the optimizer's step.",
                "Gradients are clipped%s, after the step and before the next "
                "backward%s: no step uses what is clipped.",
                sonde__builtin_walk_line(program, clip->place, &line),
                sonde__builtin_walk_line(program, program->events[after].place, &other));
        }
    } else if (are_scaled(program, i) &&
               found(run, clip, SONDE_SEVERITY_ERROR, "clipped")) {
        const sonde_program_event *backward = &program->events[before];

        sonde_rule_say(
            run, "Call the scaler's unscale_(optimizer) before clipping.",
            "Gradients are clipped%s while they are multiplied by %.6g, the scale of the "
            "gradient scaler%s: the limit holds for other numbers than it is meant for.",
            sonde__builtin_walk_line(program, clip->place, &line),
            sonde_attribute_number(backward->attributes, "scale", 1.0),
            sonde__builtin_walk_line(program, backward->place, &other));
    }
}

static void judge_scheduler(sonde_rule_run *run, const sonde_program *program, size_t i)
{
    const sonde_program_event *event = &program->events[i];
    const int after = find_near(program, i, 1);
    sonde__builtin_text line, stepped;

    if (is_kind(program, find_near(program, i, -1), SONDE_EVENT_BACKWARD) &&
        is_kind(program, after, SONDE_EVENT_STEP) &&
        found(run, event, SONDE_SEVERITY_WARNING, "scheduled")) {
        sonde_rule_say(
            run, "Call the scheduler's step after the optimizer's.",
            "The scheduler steps%s before the optimizer does%s: the first value "
            "of its schedule is skipped.",
            sonde__builtin_walk_line(program, event->place, &line),
            sonde__builtin_walk_line(program, program->events[after].place, &stepped));
    }
}

/* --- repeated ------------------------------------------------------------------------- */

/* Whether events of a kind lie between two events. */
static bool has_between(const sonde_program *program, size_t from, size_t to,
                        sonde_event_kind kind)
{
    for (size_t i = from + 1; i < to; i++) {
        if (program->events[i].kind == kind) {
            return true;
        }
    }
    return false;
}

/* The last backward pass before event i with the same loss, by another line; -1: there is
 * none. */
static int find_same(const sonde_program *program, size_t i)
{
    for (size_t k = i; k-- > 0;) {
        if (program->events[k].kind == SONDE_EVENT_BACKWARD &&
            program->events[k].value == program->events[i].value &&
            program->events[k].place.line != program->events[i].place.line) {
            return (int)k;
        }
    }
    return -1;
}

static void judge_twice(sonde_rule_run *run, const sonde_program *program, size_t i)
{
    const sonde_program_event *event = &program->events[i];
    const int first = event->value >= 0 ? find_same(program, i) : -1;
    sonde__builtin_text line, other;

    if (first >= 0 && !has_between(program, (size_t)first, i, SONDE_EVENT_ZERO_GRAD) &&
        !has_between(program, (size_t)first, i, SONDE_EVENT_STEP) &&
        sonde__builtin_walk_event(program, i, SONDE_EVENT_STEP) != NULL &&
        found(run, event, SONDE_SEVERITY_ERROR, "twice")) {
        sonde_rule_say(
            run, "Call backward once for each loss.",
            "backward is called%s on the loss of the backward pass%s: its "
            "gradient is counted twice.",
            sonde__builtin_walk_line(program, event->place, &line),
            sonde__builtin_walk_line(program, program->events[first].place, &other));
    }
}

/* Judges a program that is one step of an optimizer and nothing else. */
static void judge_again(sonde_rule_run *run, const sonde_program *program)
{
    order *state = sonde_rule_state(run);
    const sonde_program_event *step = NULL;
    bool alone = program->complete;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        step = event->kind == SONDE_EVENT_STEP && step == NULL ? event : step;
        alone = alone && event->kind == SONDE_EVENT_STEP;
    }
    if (alone && step != NULL && state->line > 0 && step->optimizer == state->optimizer &&
        step->place.line > 0 && step->place.line != state->line &&
        found(run, step, SONDE_SEVERITY_ERROR, "again")) {
        sonde_rule_say(
            run, "Call the optimizer's step once after each backward pass.",
            "The optimizer steps again%s, on the gradients of the step before.",
            sonde__builtin_walk_line(program, step->place, &line));
    }
    if (!alone && step != NULL &&
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD) != NULL) {
        state->line = step->place.line;
        state->optimizer = step->optimizer;
    }
}

/* Event i clears gradients: of a backward pass whose line comes again before the step. */
static bool discards(const sonde_program *program, size_t i)
{
    const int before = find_near(program, i, -1), after = find_near(program, i, 1);

    if (!is_kind(program, before, SONDE_EVENT_BACKWARD) ||
        !is_kind(program, after, SONDE_EVENT_BACKWARD) ||
        program->events[before].place.line != program->events[after].place.line ||
        has_between(program, (size_t)before, (size_t)after, SONDE_EVENT_CLIP)) {
        return false;
    }
    const sonde_program_event *step =
        sonde__builtin_walk_event(program, (size_t)after, SONDE_EVENT_STEP);
    return step != NULL && program->events[i].optimizer >= 0 &&
           program->events[i].optimizer == step->optimizer;
}

static void judge_discarded(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_event *first = NULL;
    size_t count = 0, all = 0;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->event_count; i++) {
        all += program->events[i].kind == SONDE_EVENT_BACKWARD;
        if (program->events[i].kind == SONDE_EVENT_ZERO_GRAD && discards(program, i)) {
            first = first != NULL ? first : &program->events[i];
            count++;
        }
    }
    if (first != NULL && found(run, first, SONDE_SEVERITY_ERROR, "discarded")) {
        sonde_rule_say(run, "Clear the gradients once, after the optimizer's step.",
                       "Gradients are cleared%s before each of several backward passes: "
                       "the step uses the last one, and %zu of %zu are lost.",
                       sonde__builtin_walk_line(program, first->place, &line), count,
                       all);
    }
}

/* --- accumulation --------------------------------------------------------------------- */

/* Whether a loss, or a term of it, is divided by a number after it was computed. */
static bool is_divided(const sonde_program *program, int value)
{
    const sonde_program_node *maker = sonde__builtin_walk_maker(program, value);

    for (int term = 0; maker != NULL && term < TERMS &&
                       sonde__builtin_walk_is(maker->op, "add sub mean") &&
                       sonde__builtin_walk_first(maker) >= 0;
         term++) {
        const sonde_program_node *other =
            sonde__builtin_walk_maker(program, sonde__builtin_walk_operand(maker, 1));

        if (other != NULL && sonde__builtin_walk_is(other->op, "div mul")) {
            return true;
        }
        maker = sonde__builtin_walk_maker(program, sonde__builtin_walk_first(maker));
    }
    return maker == NULL || sonde__builtin_walk_is(maker->op, "div mul sum") ||
           strcmp(sonde_attribute_text(maker->attributes, "reduction"), "sum") == 0;
}

static void judge_accumulation(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_event *first =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD);
    size_t count = 0;
    sonde__builtin_text line;

    if (first == NULL || program->optimizer_count != 1 || !program->complete ||
        !sonde__builtin_walk_is(program->optimizers[0].kind, "SGD") ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_CLIP) != NULL ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP) == NULL) {
        return;
    }
    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_ZERO_GRAD && count > 0) {
            return; /* by an optimizer that the watch does not know */
        }
        if (event->kind != SONDE_EVENT_BACKWARD) {
            continue;
        }
        if (event->place.line != first->place.line || is_divided(program, event->value)) {
            return; /* several losses of one batch */
        }
        count++;
    }
    if (count >= 2 && sonde_rule_found_at(run, "", first->place, SONDE_SEVERITY_WARNING,
                                          "accumulation", (double)count, 1.0)) {
        sonde_rule_say(
            run, "Divide each loss by the number of batches, or lower the rate.",
            "%zu backward passes%s add up gradients before a step, and no loss is "
            "divided by %zu: SGD makes steps %zu times as large.",
            count, sonde__builtin_walk_line(program, first->place, &line), count, count);
    }
}

/* --- the rule ------------------------------------------------------------------------- */

static void judge(sonde_rule_run *run, const sonde_program *program)
{
    order *state = sonde_rule_state(run);

    if (!sonde__builtin_walk_trains(program)) {
        return;
    }
    state->shown = true;
    if (sonde__builtin_walk_calls_back(program)) {
        state->stepped = 0;
        return;
    }
    const bool before = state->stepped > 0;
    state->cleared = state->stepped = 0;
    for (size_t i = 0; i < program->event_count; i++) {
        switch (program->events[i].kind) {
        case SONDE_EVENT_STEP:
            state->cleared =
                state->cleared > 0 ? state->cleared : (int)find_cleared(program, i);
            state->stepped = state->stepped == 0 && lacks_backward(program)
                                 ? (int)i + 1
                                 : state->stepped;
            break;
        case SONDE_EVENT_CLIP:
            judge_clip(run, program, i);
            break;
        case SONDE_EVENT_SCHEDULER:
            judge_scheduler(run, program, i);
            break;
        case SONDE_EVENT_BACKWARD:
            judge_twice(run, program, i);
            break;
        case SONDE_EVENT_BATCH:
        case SONDE_EVENT_FORWARD:
        case SONDE_EVENT_LOSS:
        case SONDE_EVENT_UNSCALE:
        case SONDE_EVENT_ZERO_GRAD:
        case SONDE_EVENT_MODE:
        case SONDE_EVENT_EVALUATION:
            break;
        }
    }
    state->steps =
        state->steps || sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP) != NULL;
    judge_never(run, program);
    judge_again(run, program);
    judge_discarded(run, program);
    judge_accumulation(run, program);
    state->handed = state->handed && state->stepped > 0;
    if (before) {
        judge_stepped(run);
    }
}

static void finish(sonde_rule_run *run)
{
    const order *state = sonde_rule_state(run);

    judge_stepped(run);
    if (!state->shown) {
        sonde_rule_lacked(run, "the run has no program of a training step");
    }
}

const sonde_rule sonde__builtin_step_order = {
    .abi = SONDE_RULE_ABI,
    .name = "StepOrder",
    .summary = "a training step does things in an order in which they have no effect",
    .condition =
        "In the program of a training step, one of these holds: (1) gradients are cleared between backward and the optimizer's step, or backward is not called before it, or the step is never called; "
        "(2) gradients are clipped after the step or before backward; (3) gradients are clipped while a gradient scaler's scale is in them; "
        "(4) a scheduler steps between backward and the optimizer's step; "
        "(5) backward is called twice on one loss, an optimizer steps twice on the gradients of one backward pass, or gradients are cleared between several backward passes before one step; (6) the mean losses of several batches are added up for one step of SGD without being divided. (4) and (6) are warnings.",
    .advice =
        "The order is: clear gradients, forward, backward, unscale, clip, step of the "
        "optimizer, step of the scheduler.",
    .modes = SONDE__TRAIN,
    .state_size = sizeof(order),
    SONDE_RULE_NEEDS(order_needs),
    .wants = sonde__builtin_wants_role,
    .step = confirm,
    .finish = finish,
    .program = judge,
};
