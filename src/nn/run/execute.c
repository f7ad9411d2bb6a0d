/*
 * execute.c - the device loop: D steps of G micro-batches over the plan's list.
 *
 * Members of the team walk the same list. A step of one part is member 0's; members meet
 * where a step of several parts begins or ends. Member 0 also observes, before any member
 * starts a step that might overwrite the value. With one thread there is no barrier, and
 * with nothing due no observer: the loop runs kernels and nothing else. Which of team or
 * member 0 alone is faster is found by trying (team.h); bits do not differ.
 */
#include "nn/run/session_state.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>

/* --- running ------------------------------------------------------------------------ */

/* A step's kernel among the team, or by member 0 alone. Members have met if it has
 * several parts. Returns the parts. */
static int run_parts(execution *run, sonde__plan_step *step, int member)
{
    sonde__session_team *team = run->team;
    const bool alone = team == NULL || (step->fuses && step->kernel->finish == NULL);
    const int parts = alone ? 1 : step->parts; /* vital signs have a fixed order */

    if (step->fuses && member == 0) {
        sonde__session_ask_vitals(run, step, true);
    }
    if (step->fuses && parts > 1) { /* ask before the work */
        sonde__session_team_barrier(team);
    }
    if (member < parts) {
        step->kernel->run(&step->call, member, parts);
    }
    if (parts > 1) {
        sonde__session_team_barrier(team);
    }
    if (step->fuses && parts > 1 && member == 0) {
        step->kernel->finish(&step->call, parts);
    }
    return parts;
}

/* A list with something due. Member 0 shows what it ran alone without a barrier; what
 * several members ran is shown before any of them continues. */
static void run_observed(execution *run, size_t first, size_t end, int member)
{
    sonde__plan *plan = &run->session->plan;

    for (size_t i = first; i < end; i++) {
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
        if (run->team != NULL && (several || i + 1 == end ||
                                  (parts > 1 && (step->showing_count > 0 || bad)))) {
            sonde__session_team_barrier(run->team);
        }
    }
}

static void run_list(execution *run, size_t first, size_t end, int member)
{
    sonde__plan *plan = &run->session->plan;
    sonde__session_team *team = run->team;

    if (run->due) {
        run_observed(run, first, end, member);
        return;
    }
    if (team == NULL) {
        for (size_t i = first; i < end; i++) {
            plan->steps[i].kernel->run(&plan->steps[i].call, 0, 1);
            if (sonde__session_is_bad(&plan->steps[i], 1, 0)) {
                sonde__session_tell_bad(run, &plan->steps[i]);
            }
        }
        return;
    }
    for (size_t i = first; i < end; i++) {
        sonde__plan_step *step = &plan->steps[i];
        bool bad = false;

        if (member < step->parts) {
            step->kernel->run(&step->call, member, step->parts);
        }
        if (step->parts > 1) {
            sonde__session_team_barrier(team);
        }
        bad = sonde__session_is_bad(step, step->parts, member);
        if (bad && member == 0) {
            sonde__session_tell_bad(run, step);
        }
        if (step->parts > 1 ? bad : i + 1 == end || plan->steps[i + 1].parts > 1) {
            sonde__session_team_barrier(team);
        }
    }
}

/* Points the plan at the micro-batch's share of the caller's inputs. */
static void point_inputs(const execution *run)
{
    sonde__plan *plan = &run->session->plan;
    const size_t k =
        (size_t)(run->at.iteration * run->session->options.gradient_accumulation +
                 run->at.micro_batch);

    for (size_t i = 0; i < plan->patch_count; i++) {
        const sonde__plan_patch *patch = &plan->patches[i];
        sonde__plan_step *step = &plan->steps[patch->step];
        const size_t bytes = plan->buffers[step->in_buffer[patch->operand]].bytes;

        step->call.in[patch->operand].data =
            (unsigned char *)run->inputs[patch->input].data + k * bytes;
    }
}

static void begin_step(execution *run)
{
    sonde_nn_session *session = run->session;
    sonde__plan *plan = &session->plan;
    const int micro_batches = session->options.gradient_accumulation;
    const float scale = session->options.reduction == SONDE_NN_REDUCTION_MEAN
                            ? 1.0F / (float)micro_batches
                            : 1.0F;

    run->bad = false;
    run->at.mode_step = session->step;
    run->at.global_step = session->step;
    if (session->hook != NULL) {
        sonde_hook_next_step(session->hook, session->step, &run->at);
    }
    if (session->training) {
        sonde__session_optimizer_live(&session->optimizer, scale, session->step == 0,
                                      plan->live);
        if (session->optimizer.no_bias_decay) {
            sonde_nn_optimizer bare = session->optimizer;

            bare.weight_decay = 0.0F;
            sonde__session_optimizer_live(&bare, scale, session->step == 0, plan->bare);
        }
    }
    for (size_t i = 0; i < plan->state_count; i++) {
        if (plan->states[i].accumulator) {
            memset(plan->states[i].data, 0,
                   (size_t)sonde__op_shape_count(&plan->states[i].shape) * sizeof(float));
        }
    }
    sonde__session_outputs_begin_step(session, &run->at);
#ifndef SONDE_UNOBSERVED /* defined only where the cost of these calls is measured */
    run->due = session->observer != NULL &&
               sonde_observer_begin_step(session->observer, session->gate, &run->at);
    if (run->due || plan->watching) {
        sonde__session_set_watched(run);
    }
#endif
}

/* --- looking again ------------------------------------------------------------------ */

static bool is_bad_loss(const execution *run)
{
    const sonde__plan *plan = &run->session->plan;
    const sonde__plan_returned *loss = &plan->outputs[plan->output_count - 1];
    const float *value = sonde__session_buffer_data(
        run->session, &plan->buffers[loss->buffer], &run->at, run->inputs);

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

/*
 * The loss has been computed and no state has changed yet. If it is not finite and a tap
 * has when_bad, the steps up to it run once more, with the same bits, observed.
 */
static void look_again(execution *run, size_t end, int member)
{
    const sonde__plan *plan = &run->session->plan;
    sonde_observer *observer = run->session->observer;

    if (member == 0) {
        run->again = is_bad_loss(run) && sonde_observer_look_again(observer, &run->at);
        if (run->again) {
            run->due = true;
            sonde__session_set_watched(run);
            sonde__session_show(run, plan->first_start, plan->start_count);
        }
    }
    if (run->team != NULL) {
        sonde__session_team_barrier(run->team);
    }
    if (!run->again) {
        return;
    }
    run_list(run, 0, end, member);
    if (member == 0) {
        sonde_observer_look_on(observer);
        sonde__session_set_watched(run);
    }
    if (run->team != NULL) {
        sonde__session_team_barrier(run->team);
    }
}

/* --- the loops ---------------------------------------------------------------------- */

static void run_micro_batch(execution *run, int member)
{
    const size_t to_loss = count_to_loss(run->session);

    const sonde__plan *plan = &run->session->plan;
    const size_t end =
        run->at.micro_batch + 1 == run->session->options.gradient_accumulation
            ? plan->step_count
            : plan->micro_steps;
    sonde__session_team *team = run->team;

    if (member == 0) {
        point_inputs(run);
        if (run->due) {
            sonde__session_show(run, plan->first_start, plan->start_count);
        }
    }
    if (team != NULL) {
        sonde__session_team_barrier(team);
    }
    run_list(run, 0, to_loss, member);
    if (to_loss > 0) {
        look_again(run, to_loss, member);
    }
    run_list(run, to_loss, plan->micro_steps, member);
    if (member == 0) {
        if (run->due) {
            sonde__session_show(run, plan->first_end, plan->end_count);
        }
        sonde__session_outputs_put(run->session, &run->at, run->inputs);
    }
    if (end > plan->micro_steps) {
        if (team != NULL) {
            sonde__session_team_barrier(team);
        }
        run_list(run, plan->micro_steps, end, member);
    }
}

/* Random numbers depend on the step, so a resumed run draws those of an uninterrupted
 * one. */
static void set_draw(const execution *run)
{
    sonde_nn_session *session = run->session;

    session->plan.draw = (sonde__op_draw){
        .seed = session->options.random_seed,
        .micro_batch =
            (uint64_t)session->step * (uint64_t)session->options.gradient_accumulation +
            (uint64_t)run->at.micro_batch,
        .training = session->training};
}

/* One step of the device loop, of iteration run->at.iteration. */
static void run_step(void *user, int member)
{
    execution *run = user;
    const sonde_nn_session *session = run->session;

    if (member == 0) {
        run->at.micro_batch = 0;
        begin_step(run);
    }
    for (int g = 0; g < session->options.gradient_accumulation; g++) {
        if (member == 0) {
            run->at.micro_batch = g;
            set_draw(run);
        }
        if (run->team != NULL) {
            sonde__session_team_barrier(run->team);
        }
        run_micro_batch(run, member);
    }
}

static void end_step(const execution *run)
{
    sonde_nn_session *session = run->session;

    if (run->due || run->bad) {
        sonde_observer_end_step(session->observer);
    }
    sonde__session_outputs_end_step(session);
    if (session->hook != NULL) {
        sonde_hook_step_done(session->hook);
    }
    session->step++;
}

/* By the team or by the caller alone, whichever is faster at present. */
static void run_paced(execution *run)
{
    sonde_nn_session *session = run->session;
    const double started = sonde__now();

    run->team = sonde__session_pace_together(&session->pace) ? session->team : NULL;
    if (run->team != NULL) {
        sonde__session_team_run(run->team, run_step, run);
    } else {
        run_step(run, 0);
    }
    sonde__session_pace_took(&session->pace, sonde__now() - started);
}

void sonde__session_execute(sonde_nn_session *session, const sonde_view *inputs)
{
    execution run = {.session = session, .inputs = inputs, .at = {.mode = session->mode}};

    if (session->observer != NULL) {
        sonde_observer_begin_call(session->observer);
    }
    sonde__session_outputs_begin_call(session);
    for (int d = 0; d < session->options.device_iterations; d++) {
        run.at.iteration = d;
        if (session->team != NULL) {
            run_paced(&run);
        } else {
            run_step(&run, 0);
        }
        end_step(&run);
    }
}
