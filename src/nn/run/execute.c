/*
 * execute.c - the device loop: D steps of G micro-batches over the plan's list, on R
 * replicas.
 *
 * Threads of a team form lanes of `width` members. A lane runs every lanes-th replica:
 * its members walk the same list; a step of one part is member 0's; members meet where a
 * step of several parts begins or ends. Member 0 of the lane also observes, before any
 * member starts a step that might overwrite the value. With one thread there is no
 * barrier, and with nothing due no observer: the loop runs kernels and nothing else. Which
 * of team or one thread alone is faster is found by trying (team.h); bits do not differ.
 *
 * Replicas run a step's micro-batches without waiting for each other, unless something is
 * observed: then they take turns, so that a value of replica 0 is always observed before
 * the same value of replica 1, and after the one before it. A lane of several replicas
 * runs them one after the other, or, if something is observed, step by step side by side.
 * Then all threads share the updates, in the plan of replica 0.
 */
#include "nn/run/session_state.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>

static int count_replicas(const device_call *call)
{
    return call->session->options.replicas;
}

static execution *replica(const device_call *call, int r)
{
    return sonde__session_run(call->session, r);
}

static int lane_of(const device_call *call, int member)
{
    return member / call->width;
}

/* The member's number within its lane. */
static int rank_of(const device_call *call, int member)
{
    return member % call->width;
}

static void meet_all(const device_call *call)
{
    if (call->all != NULL) {
        sonde__session_meet(call->all);
    }
}

/* --- running ------------------------------------------------------------------------ */

/* A step's kernel among the team, or by member 0 alone. Members have met if it has
 * several parts. Returns the parts. */
static int run_parts(execution *run, sonde__plan_step *step, int member)
{
    sonde__session_meeting *team = run->team;
    const bool alone = team == NULL || (step->fuses && step->kernel->finish == NULL);
    const int parts = alone ? 1 : step->parts; /* vital signs have a fixed order */

    if (step->fuses && member == 0) {
        sonde__session_ask_vitals(run, step, true);
    }
    if (step->fuses && parts > 1) { /* ask before the work */
        sonde__session_meet(team);
    }
    if (member < parts) {
        step->kernel->run(&step->call, member, parts);
    }
    if (parts > 1) {
        sonde__session_meet(team);
    }
    if (step->fuses && parts > 1 && member == 0) {
        step->kernel->finish(&step->call, parts);
    }
    return parts;
}

/* Step i of a list with something due. Member 0 shows what it ran alone without a barrier;
 * what several members ran is shown before any of them continues. */
static void run_observed(execution *run, size_t i, size_t end, int member)
{
    sonde__plan *plan = run->plan;
    sonde__plan_step *step = &plan->steps[i];
    const int parts = run_parts(run, step, member);
    const bool several = i + 1 < end && plan->steps[i + 1].parts > 1;
    const bool bad = sonde__session_is_bad(step, parts, member);

    if (member == 0 && step->showing_count > 0) {
        sonde__session_show(run, step->first_showing, step->showing_count);
    }
    if (member == 0 && step->fuses) {
        sonde__session_ask_vitals(run, step, false);
    }
    if (member == 0 && bad) {
        sonde__session_tell_bad(run, step);
    }
    if (run->team != NULL &&
        (several || i + 1 == end || (parts > 1 && (step->showing_count > 0 || bad)))) {
        sonde__session_meet(run->team);
    }
}

static void run_alone(execution *run, size_t first, size_t end)
{
    sonde__plan *plan = run->plan;

    for (size_t i = first; i < end; i++) {
        plan->steps[i].kernel->run(&plan->steps[i].call, 0, 1);
        if (sonde__session_is_bad(&plan->steps[i], 1, 0)) {
            sonde__session_tell_bad(run, &plan->steps[i]);
        }
    }
}

static void run_together(execution *run, size_t first, size_t end, int member)
{
    sonde__plan *plan = run->plan;

    for (size_t i = first; i < end; i++) {
        sonde__plan_step *step = &plan->steps[i];
        bool bad = false;

        if (member < step->parts) {
            step->kernel->run(&step->call, member, step->parts);
        }
        if (step->parts > 1) {
            sonde__session_meet(run->team);
        }
        bad = sonde__session_is_bad(step, step->parts, member);
        if (bad && member == 0) {
            sonde__session_tell_bad(run, step);
        }
        if (step->parts > 1 ? bad : i + 1 == end || plan->steps[i + 1].parts > 1) {
            sonde__session_meet(run->team);
        }
    }
}

/* One thread runs it and looks at what every op makes; nothing runs after a finding. */
static void run_trapping(execution *run, size_t first, size_t end)
{
    for (size_t i = first; i < end && !run->call->trapped; i++) {
        if (run->call->due) {
            run_observed(run, i, end, 0);
        } else {
            run_alone(run, i, i + 1);
        }
        sonde__session_check_step(run, i);
    }
}

static void run_list(execution *run, size_t first, size_t end, int member)
{
    if (run->call->traps) {
        run_trapping(run, first, end);
        return;
    }
    for (size_t i = first; i < end && run->call->due; i++) {
        run_observed(run, i, end, member);
    }
    if (!run->call->due && run->team == NULL) {
        run_alone(run, first, end);
    } else if (!run->call->due) {
        run_together(run, first, end, member);
    }
}

/* A list in the replicas of the member's lane. */
static void run_replicas(const device_call *call, size_t first, size_t end, int member)
{
    const int count = count_replicas(call), lane = lane_of(call, member);
    const int rank = rank_of(call, member);

    if (!call->due || lane + call->lanes >= count) {
        for (int r = lane; r < count; r += call->lanes) {
            run_list(replica(call, r), first, end, rank);
        }
        return;
    }
    for (size_t i = first; i < end && !call->trapped; i++) {
        for (int r = lane; r < count; r += call->lanes) {
            run_observed(replica(call, r), i, end, rank);
            if (call->traps && !call->trapped) {
                sonde__session_check_step(replica(call, r), i);
            }
        }
    }
}

/* --- the start of a step ------------------------------------------------------------ */

/* Points the plan at the micro-batch's share of the caller's inputs. */
static void point_inputs(const execution *run)
{
    sonde__plan *plan = run->plan;
    const size_t k = sonde__session_flat(run->call->session, &run->at);

    for (size_t i = 0; i < plan->patch_count; i++) {
        const sonde__plan_patch *patch = &plan->patches[i];
        sonde__plan_step *step = &plan->steps[patch->step];
        const size_t bytes = plan->buffers[step->in_buffer[patch->operand]].bytes;

        step->call.in[patch->operand].data =
            (unsigned char *)run->call->inputs[patch->input].data + k * bytes;
    }
}

/* Every replica begins a step with the buffers of replica 0. */
static void place_replicas(const device_call *call, const sonde_coordinate *at)
{
    for (int i = 0; i < call->session->replica_count; i++) {
        execution *run = &call->session->replicas[i].run;

        run->at = *at;
        run->at.replica = run->plan->replica;
        run->ticket = sonde__session_turn_now(&call->session->replicas[0].turns) +
                      (unsigned)run->at.replica;
        sonde__plan_take_buffers(run->plan, call->session->model);
    }
    call->session->updating.at = *at;
    call->session->updating.at.micro_batch =
        call->session->options.gradient_accumulation - 1;
}

static void set_watched(const device_call *call)
{
    for (int i = 0; i < call->session->replica_count; i++) {
        sonde__session_set_watched(&call->session->replicas[i].run);
    }
}

static void clear_accumulators(const sonde__plan *plan)
{
    for (size_t i = 0; i < plan->state_count; i++) {
        if (plan->states[i].accumulator) {
            memset(plan->states[i].data, 0,
                   (size_t)sonde__op_shape_count(&plan->states[i].shape) * sizeof(float));
        }
    }
}

static void begin_stages(device_call *call)
{
    const sonde_nn_session *session = call->session;
    const int count = count_replicas(call);

    call->stage_base = sonde__session_turn_now(&session->stage[0].forward);
    for (int r = 0; r < count; r++) {
        clear_accumulators(replica(call, r)->plan);
    }
    for (int i = 0; i < count * session->stages; i++) {
        session->stage[i].bad_loss = false;
    }
}

static void begin_step(device_call *call)
{
    sonde_nn_session *session = call->session;
    sonde_coordinate at = {.mode = session->mode,
                           .iteration = call->iteration,
                           .mode_step = session->step,
                           .global_step = session->step};

    call->bad = call->again = call->skips = false;
    if (session->stage != NULL) {
        begin_stages(call);
    }
    if (session->hook != NULL) {
        sonde_hook_next_step(session->hook, session->step, &at);
    }
    if (session->training) {
        sonde__session_set_live(session);
    }
    place_replicas(call, &at);
    sonde__session_outputs_begin_step(session, &at);
#ifndef SONDE_UNOBSERVED /* defined only where the cost of these calls is measured */
    call->due = session->observer != NULL &&
                sonde_observer_begin_step(session->observer, session->gate, &at);
    if (call->due || session->plan.watching) {
        set_watched(call);
    }
    if (call->due && !session->described) {
        sonde__session_describe(session, &at);
    }
#endif
}

/* Random numbers depend on the step, so a resumed run draws those of an uninterrupted
 * one, and on the place of the micro-batch within it, so replicas and ranks draw what the
 * same micro-batches draw one after the other. */
static void set_draw(const execution *run)
{
    const sonde_nn_session *session = run->call->session;
    const uint64_t here = (uint64_t)session->options.replicas;
    const uint64_t replicas = here * (uint64_t)sonde_nn_ranks_count(session->ranks);
    const uint64_t before = here * (uint64_t)sonde_nn_ranks_rank(session->ranks);
    const uint64_t micro_batches =
        (uint64_t)session->options.gradient_accumulation * replicas;

    run->plan->draw =
        (sonde__op_draw){.seed = session->options.random_seed,
                         .micro_batch = (uint64_t)session->step * micro_batches +
                                        (uint64_t)run->at.micro_batch * replicas +
                                        before + (uint64_t)run->at.replica,
                         .training = session->training};
}

/* --- looking again ------------------------------------------------------------------ */

static bool is_bad_loss(const execution *run)
{
    const sonde__plan *plan = run->plan;
    const sonde__plan_returned *loss = &plan->outputs[plan->output_count - 1];
    const float *value = sonde__session_buffer_data(run, &plan->buffers[loss->buffer]);

    return loss->shape.dtype == SONDE_F32 && !isfinite(*value);
}

/* The steps up to the loss, if a loss that is not finite is to be looked into; else 0. */
static size_t count_to_loss(const sonde_nn_session *session)
{
    const sonde__plan *plan = &session->plan;

    return session->training && session->gate != NULL && session->gate->looks_again
               ? (size_t)plan->buffers[plan->outputs[plan->output_count - 1].buffer]
                         .first +
                     1
               : 0;
}

static bool decide_to_look(device_call *call)
{
    bool bad = false;

    for (int r = 0; r < count_replicas(call); r++) {
        bad = bad || is_bad_loss(replica(call, r));
    }
    if (!bad ||
        !sonde_observer_look_again(call->session->observer, &replica(call, 0)->at)) {
        return false;
    }
    call->due = true;
    set_watched(call);
    for (int r = 0; r < count_replicas(call); r++) {
        const execution *run = replica(call, r);

        sonde__session_show(replica(call, r), run->plan->first_start,
                            run->plan->start_count);
    }
    return true;
}

/*
 * The loss has been computed and no state has changed yet. If it is not finite in any
 * replica and a tap has when_bad, the steps up to it run once more in all of them, with
 * the same bits, observed.
 */
static void look_again(device_call *call, size_t end, int member)
{
    const bool several = count_replicas(call) > 1;

    if (several) {
        meet_all(call);
    }
    if (member == 0) {
        call->again = decide_to_look(call);
    }
    meet_all(call);
    if (!call->again) {
        return;
    }
    run_replicas(call, 0, end, member);
    if (several) {
        meet_all(call);
    }
    if (member == 0) {
        sonde_observer_look_on(call->session->observer);
        set_watched(call);
    }
    meet_all(call);
}

/* --- the loops ---------------------------------------------------------------------- */

static void start_micro_batch(const device_call *call, int g, int member)
{
    for (int r = lane_of(call, member); r < count_replicas(call); r += call->lanes) {
        execution *run = replica(call, r);

        if (rank_of(call, member) == 0) {
            run->at.micro_batch = g;
            if (g == 0) {
                clear_accumulators(run->plan);
            }
            set_draw(run);
            point_inputs(run);
            if (call->due) {
                sonde__session_show(run, run->plan->first_start, run->plan->start_count);
            }
        }
        if (run->team != NULL) {
            sonde__session_meet(run->team);
        }
    }
}

static void end_micro_batch(const device_call *call, int member)
{
    for (int r = lane_of(call, member);
         rank_of(call, member) == 0 && r < count_replicas(call); r += call->lanes) {
        execution *run = replica(call, r);

        if (call->due) {
            sonde__session_show(run, run->plan->first_end, run->plan->end_count);
        }
        sonde__session_outputs_put(run);
    }
}

static void run_micro_batch(device_call *call, int g, int member)
{
    const sonde__plan *plan = &call->session->plan;
    const size_t to_loss = count_to_loss(call->session);

    start_micro_batch(call, g, member);
    run_replicas(call, 0, to_loss, member);
    if (to_loss > 0) {
        look_again(call, to_loss, member);
    }
    run_replicas(call, to_loss, plan->micro_steps, member);
    end_micro_batch(call, member);
}

/* --- stages ------------------------------------------------------------------------- */

/* A stage of a replica, and what its thread works with. */
typedef struct stage_place {
    int replica, stage;
    sonde__session_stage *stages; /* of the replica */
} stage_place;

/* A micro-batch's run: those in the pipeline at a time are in different ones. If something
 * is observed, there is one at a time, always in the first, which knows the turns. */
static execution *slot_of(const device_call *call, int r, int g)
{
    const sonde_nn_session *session = call->session;
    const int slot = call->due ? 0 : g % session->slots;

    return &session->replicas[r * session->slots + slot].run;
}

static void run_segment(execution *run, int segment)
{
    const size_t *segments = run->plan->segments;

    run_list(run, segments[segment], segments[segment + 1], 0);
}

static void place_micro_batch(execution *run, int g)
{
    run->at.micro_batch = g;
    set_draw(run);
    point_inputs(run);
}

static void run_forward(const device_call *call, const stage_place *place, int g)
{
    sonde__session_stage *own = &place->stages[place->stage];
    execution *run = slot_of(call, place->replica, g);

    if (place->stage == 0) {
        place_micro_batch(run, g);
        if (call->due) {
            sonde__session_show(run, run->plan->first_start, run->plan->start_count);
        }
    } else {
        sonde__session_count_await(&place->stages[place->stage - 1].forward,
                                   call->stage_base + (unsigned)g + 1);
    }
    run_segment(run, place->stage);
    if (place->stage + 1 == call->session->stages && count_to_loss(call->session) > 0 &&
        is_bad_loss(run)) {
        own->bad_loss = true;
    }
    sonde__session_turn_pass(&own->forward);
}

static void run_backward(const device_call *call, const stage_place *place, int g)
{
    const int stages = call->session->stages;
    execution *run = slot_of(call, place->replica, g);

    if (place->stage + 1 < stages) {
        sonde__session_count_await(&place->stages[place->stage + 1].backward,
                                   call->stage_base + (unsigned)g + 1);
    }
    run_segment(run, 2 * stages - 1 - place->stage);
    if (place->stage == 0 && call->due) {
        sonde__session_show(run, run->plan->first_end, run->plan->end_count);
    }
    if (place->stage == 0) {
        sonde__session_outputs_put(run);
    }
    sonde__session_turn_pass(&place->stages[place->stage].backward);
}

/*
 * The micro-batches of a step in one stage: one forward, one backward, after as many
 * forwards as there are stages from this one on (1F1B). Every stage takes micro-batches in
 * their order, so sums have the order they have without stages. If something is observed,
 * there is one micro-batch at a time, and values come in the order they have without.
 */
static void run_stage(const device_call *call, const stage_place *place)
{
    const sonde_nn_options *options = &call->session->options;
    const int most = call->due || options->execution == SONDE_NN_SHARDED
                         ? 1
                         : call->session->stages - place->stage;
    int forward = 0, backward = 0;

    while (backward < options->gradient_accumulation) {
        if (forward < options->gradient_accumulation && forward - backward < most) {
            run_forward(call, place, forward++);
        } else {
            run_backward(call, place, backward++);
        }
    }
}

static bool has_bad_loss(const device_call *call)
{
    const sonde_nn_session *session = call->session;
    bool bad = false;

    for (int i = 0; i < count_replicas(call) * session->stages; i++) {
        bad = bad || session->stage[i].bad_loss;
    }
    return bad;
}

/* Losses that are not finite, once all micro-batches are through: their forward passes
 * run once more, observed. One thread does it. */
static void look_into_losses(device_call *call)
{
    const size_t end = count_to_loss(call->session);
    const int count = count_replicas(call);
    const device_call before = *call;

    call->lanes = 1;
    for (int g = 0; g < call->session->options.gradient_accumulation; g++) {
        call->due = false;
        for (int r = 0; r < count; r++) {
            place_micro_batch(replica(call, r), g);
            run_alone(replica(call, r), 0, end);
        }
        if (decide_to_look(call)) {
            run_replicas(call, 0, end, 0);
            sonde_observer_look_on(call->session->observer);
            call->again = true;
        }
    }
    call->lanes = before.lanes;
    call->due = before.due || call->again;
    set_watched(call);
}

static void run_stages(device_call *call, int member)
{
    sonde_nn_session *session = call->session;
    const int r = member / session->stages;
    const stage_place place = {.replica = r,
                               .stage = member % session->stages,
                               .stages =
                                   session->stage + (size_t)r * (size_t)session->stages};

    run_stage(call, &place);
    meet_all(call);
    if (member == 0 && has_bad_loss(call)) {
        look_into_losses(call);
    }
}

/* --- updates ------------------------------------------------------------------------ */

/* The updates of a step with a gradient that is not finite: parameters and the optimizer's
 * state keep their values, and are shown. */
static void skip_updates(execution *run, size_t first, size_t end)
{
    sonde__plan *plan = run->plan;

    run->call->skips = true;
    for (size_t i = first; i < end; i++) {
        sonde__plan_step *step = &plan->steps[i];

        if (run->call->due && step->showing_count > 0) {
            sonde__session_show(run, step->first_showing, step->showing_count);
        }
        if (step->call.bad != NULL && !sonde__session_is_finite(&step->call.in[1])) {
            sonde__session_tell_bad(run, step);
        }
    }
    run->call->skips = false;
}

/* The sums over ranks, which lie before all updates. */
static void sum_ranks(device_call *call, int member)
{
    execution *run = &call->session->updating;

    run_list(run, run->plan->micro_steps, run->plan->ranked, member);
    meet_all(call);
    if (member == 0) {
        call->alone = !sonde__session_sum_ranks(call->session);
    }
    meet_all(call);
    if (!call->alone) {
        run_list(run, run->plan->ranked, run->plan->summed, member);
        meet_all(call);
    }
}

static void run_updates(const device_call *call, int member)
{
    execution *run = &call->session->updating;
    const sonde__plan *plan = run->plan;
    const sonde__plan_scaler *scaler = &plan->scaler;
    const size_t first = plan->summed > 0 ? plan->summed : plan->micro_steps;

    if (scaler->scale == NULL) {
        run_list(run, first, plan->step_count, member);
        return;
    }
    run_list(run, first, scaler->gate, member);
    meet_all(call);
    if (*scaler->found == 0.0F) {
        run_list(run, scaler->gate, scaler->last, member);
    } else if (member == 0) {
        skip_updates(run, scaler->gate, scaler->last);
    }
    meet_all(call);
    run_list(run, scaler->last, plan->step_count, member);
}

/* One step of the device loop, of iteration call->iteration. */
static void run_step(void *user, int member)
{
    device_call *call = user;
    sonde_nn_session *session = call->session;

    if (member == 0) {
        begin_step(call);
    }
    if (count_replicas(call) > 1 || session->stage != NULL) {
        meet_all(call);
    }
    if (call->all != NULL && session->stage != NULL) {
        run_stages(call, member);
    } else {
        for (int g = 0; g < session->options.gradient_accumulation && !call->trapped;
             g++) {
            run_micro_batch(call, g, member);
        }
    }
    if (session->plan.step_count > session->plan.micro_steps && !call->trapped) {
        meet_all(call);
        if (session->plan.summed > 0) {
            sum_ranks(call, member);
        }
        if (!call->alone && !call->trapped) {
            run_updates(call, member);
        }
    }
}

static void end_step(const device_call *call)
{
    sonde_nn_session *session = call->session;

    if (call->due || call->bad) {
        sonde_observer_end_step(session->observer);
    }
    sonde__session_share_buffers(session);
    sonde__session_outputs_end_step(session);
    if (session->hook != NULL) {
        sonde_hook_step_done(session->hook);
    }
    /* a step that is cut short is not done */
    session->step += call->trapped || call->alone ? 0 : 1;
}

/* Who runs the coming step: the team, or the caller alone. */
static void assign(device_call *call, bool together)
{
    sonde_nn_session *session = call->session;
    const int count = count_replicas(call);

    call->all = together ? sonde__session_team_meeting(session->team) : NULL;
    call->lanes = together ? session->lanes : 1;
    call->width = together ? session->width : 1;
    session->updating.call = call;
    session->updating.team = call->all;
    for (int i = 0; i < session->replica_count; i++) {
        execution *run = &session->replicas[i].run;

        run->call = call;
        run->team = call->width == 1 ? NULL
                    : count == 1     ? call->all
                                     : &session->replicas[i].meeting;
    }
}

/* By the team or by the caller alone, whichever is faster at present. */
static void run_paced(device_call *call)
{
    sonde_nn_session *session = call->session;
    const double started = sonde__now();
    const bool together = sonde__session_pace_together(&session->pace);

    assign(call, together);
    if (together) {
        sonde__session_team_run(session->team, run_step, call);
    } else {
        run_step(call, 0);
    }
    sonde__session_pace_took(&session->pace, sonde__now() - started);
}

void sonde__session_execute(sonde_nn_session *session, const sonde_view *inputs)
{
    device_call call = {.session = session,
                        .inputs = inputs,
                        .traps = session->options.floating_point_exceptions};

    session->trap.found = false;

    if (session->observer != NULL) {
        sonde_observer_begin_call(session->observer);
    }
    sonde__session_outputs_begin_call(session);
    assign(&call, false);
    for (int d = 0; d < session->options.device_iterations; d++) {
        call.iteration = d;
        if (session->team != NULL) {
            run_paced(&call);
        } else {
            run_step(&call, 0);
        }
        end_step(&call);
        if (call.trapped || call.alone) {
            break;
        }
    }
    sonde__session_outputs_end_call(session);
}
