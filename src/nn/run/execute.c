/*
 * execute.c - the device loop: D steps of G micro-batches over the plan's list.
 *
 * Members of the team walk the same list. A step of one part is member 0's; members meet
 * where a step of several parts begins or ends. Observing is member 0's too, between two
 * barriers, so nobody overwrites what is being shown. With one thread there is no barrier,
 * and without anything due there is no observer: the loop is the kernels and nothing else.
 * Which of team or member 0 alone is faster is found by trying (pace.h); bits do not differ.
 */
#include "nn/run/run.h"

#include <string.h>

typedef struct execution {
    sonde_nn_session *session;
    const sonde_view *inputs;
    sonde__team *team; /* NULL: member 0 runs everything alone */
    sonde_coordinate at;
    bool due; /* something is observed at this step */
} execution;

void *sonde__buffer_data(const sonde_nn_session *session, const sonde__buffer *buffer,
                         const sonde_coordinate *at, const sonde_view *inputs)
{
    const size_t k =
        (size_t)(at->iteration * session->options.gradient_accumulation + at->micro_batch);

    return buffer->place == SONDE__IN_INPUT
               ? (unsigned char *)inputs[buffer->index].data + k * buffer->bytes
               : buffer->data;
}

/* --- showing ---------------------------------------------------------------------------- */

/* A PLAIN view of what is shown; values in another layout are reordered into scratch. */
static sonde_view view_of(const execution *run, const sonde__showing *showing)
{
    sonde__plan *plan = &run->session->plan;
    const sonde__shape *shape = &showing->shape;
    sonde_view view = sonde_view_of(shape->dtype, shape->rank, shape->dim, NULL);
    const sonde__buffer *buffer =
        showing->buffer >= 0 ? &plan->buffers[showing->buffer] : NULL;
    const sonde__kernel *const *kernels = sonde__op_reorder.kernels();
    sonde__call call = {.in_count = 1, .out_count = 1};

    if (buffer == NULL) {
        return view;
    }
    if (buffer->layout == SONDE__PLAIN) {
        view.data = sonde__buffer_data(run->session, buffer, &run->at, run->inputs);
        return view;
    }
    call.in[0] = (sonde__operand){*shape, buffer->layout, buffer->data};
    call.out[0] = (sonde__operand){*shape, SONDE__PLAIN, plan->show_scratch};
    while (kernels[0]->accepts != NULL && !kernels[0]->accepts(&call)) {
        kernels++;
    }
    kernels[0]->run(&call, 0, 1);
    view.data = plan->show_scratch;
    return view;
}

static void show(const execution *run, int first, int count)
{
    const sonde_nn_session *session = run->session;
    const sonde__plan *plan = &session->plan;

    for (int i = first; i < first + count; i++) {
        const sonde__showing *showing = &plan->showings[i];
        const bool has_vitals = showing->vitals_in >= 0 || showing->vitals_out >= 0;

        if (sonde_observer_wants(session->gate, showing->id) != 0) {
            const sonde_view view = view_of(run, showing);

            sonde_observer_observe(session->observer, showing->id, &view,
                                   has_vitals ? &plan->vitals[showing->slot] : NULL,
                                   run->at.micro_batch, run->at.replica);
        }
    }
}

/* Asks a kernel for the vital signs that are wanted of what it handles anyway. */
static void ask_vitals(const execution *run, sonde__step *step, bool ask)
{
    sonde__plan *plan = &run->session->plan;

    for (int i = step->first_showing; i < step->first_showing + step->showing_count; i++) {
        const sonde__showing *showing = &plan->showings[i];
        sonde_vitals *vitals = &plan->vitals[showing->slot];
        const bool wanted =
            ask &&
            (sonde_observer_wants(run->session->gate, showing->id) & SONDE_HOW_VITALS) != 0;

        if (showing->vitals_in >= 0) {
            step->call.in_vitals[showing->vitals_in] = wanted ? vitals : NULL;
        }
        if (showing->vitals_out >= 0 && (wanted || !ask)) {
            step->call.out_vitals[showing->vitals_out] = wanted ? vitals : NULL;
        }
    }
}

/* --- running ---------------------------------------------------------------------------- */

/* A due step: kernel, meeting, showing, meeting. */
static void run_observed(execution *run, sonde__step *step, int member)
{
    sonde__team *team = run->team;
    const int parts = team != NULL ? step->parts : 1;

    if (member == 0 || parts > 1) {
        if (step->kernel->fuses_vitals && step->showing_count > 0) {
            if (member == 0) { /* vital signs are one part's: their order is fixed */
                ask_vitals(run, step, true);
                step->kernel->run(&step->call, 0, 1);
            }
        } else if (member < parts) {
            step->kernel->run(&step->call, member, parts);
        }
    }
    if (team != NULL) {
        sonde__team_barrier(team);
    }
    if (member == 0) {
        show(run, step->first_showing, step->showing_count);
        if (step->kernel->fuses_vitals && step->showing_count > 0) {
            ask_vitals(run, step, false);
        }
    }
    if (team != NULL) {
        sonde__team_barrier(team);
    }
}

static void run_list(execution *run, size_t from, size_t to, int member)
{
    sonde__plan *plan = &run->session->plan;
    sonde__team *team = run->team;

    if (run->due) {
        for (size_t i = from; i < to; i++) {
            run_observed(run, &plan->steps[i], member);
        }
        return;
    }
    if (team == NULL) {
        for (size_t i = from; i < to; i++) {
            plan->steps[i].kernel->run(&plan->steps[i].call, 0, 1);
        }
        return;
    }
    for (size_t i = from; i < to; i++) {
        const sonde__step *step = &plan->steps[i];

        if (member < step->parts) {
            step->kernel->run(&step->call, member, step->parts);
        }
        if (step->parts > 1 || i + 1 == to || plan->steps[i + 1].parts > 1) {
            sonde__team_barrier(team);
        }
    }
}

/* Points the plan at the micro-batch's share of the caller's inputs. */
static void point_inputs(const execution *run)
{
    sonde__plan *plan = &run->session->plan;
    const size_t k = (size_t)(run->at.iteration * run->session->options.gradient_accumulation +
                              run->at.micro_batch);

    for (size_t i = 0; i < plan->patch_count; i++) {
        const sonde__patch *patch = &plan->patches[i];
        sonde__step *step = &plan->steps[patch->step];
        const size_t bytes =
            plan->buffers[step->in_buffer[patch->operand]].bytes;

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

    run->at.mode_step = session->step;
    run->at.global_step = session->step;
    if (session->training) {
        sonde__optimizer_live(&session->optimizer, scale, session->step == 0, plan->live);
    }
    for (size_t i = 0; i < plan->state_count; i++) {
        if (plan->states[i].accumulator) {
            memset(plan->states[i].data, 0,
                   (size_t)sonde__shape_count(&plan->states[i].shape) * sizeof(float));
        }
    }
    sonde__outputs_begin_step(session, &run->at);
#if SONDE_OBSERVE
    run->due = session->observer != NULL &&
               sonde_observer_begin_step(session->observer, session->gate, &run->at);
#endif
}

static void run_micro_batch(execution *run, int member)
{
    const sonde__plan *plan = &run->session->plan;
    const size_t end = run->at.micro_batch + 1 == run->session->options.gradient_accumulation
                           ? plan->step_count
                           : plan->micro_steps;
    sonde__team *team = run->team;

    if (member == 0) {
        point_inputs(run);
        if (run->due) {
            show(run, plan->first_start, plan->start_count);
        }
    }
    if (team != NULL) {
        sonde__team_barrier(team);
    }
    run_list(run, 0, plan->micro_steps, member);
    if (member == 0) {
        if (run->due) {
            show(run, plan->first_end, plan->end_count);
        }
        sonde__outputs_put(run->session, &run->at, run->inputs);
    }
    if (end > plan->micro_steps) {
        if (team != NULL) {
            sonde__team_barrier(team);
        }
        run_list(run, plan->micro_steps, end, member);
    }
}

static void run_call(void *user, int member)
{
    execution *run = user;
    sonde_nn_session *session = run->session;

    for (int d = 0; d < session->options.device_iterations; d++) {
        if (member == 0) {
            run->at.iteration = d;
            run->at.micro_batch = 0;
            begin_step(run);
        }
        for (int g = 0; g < session->options.gradient_accumulation; g++) {
            if (member == 0) {
                run->at.micro_batch = g;
            }
            if (run->team != NULL) {
                sonde__team_barrier(run->team);
            }
            run_micro_batch(run, member);
        }
        if (run->team != NULL) {
            sonde__team_barrier(run->team);
        }
        if (member == 0) {
            if (run->due) {
                sonde_observer_end_step(session->observer);
            }
            sonde__outputs_end_step(session);
            session->step++;
        }
    }
}

void sonde__execute(sonde_nn_session *session, const sonde_view *inputs)
{
    execution run = {.session = session, .inputs = inputs, .at = {.mode = session->mode}};
    const double started = session->team != NULL ? sonde__now() : 0.0;

    if (session->observer != NULL) {
        sonde_observer_begin_call(session->observer);
    }
    sonde__outputs_begin_call(session);
    run.team = session->team != NULL && sonde__pace_together(&session->pace) ? session->team
                                                                             : NULL;
    if (run.team != NULL) {
        sonde__team_run(run.team, run_call, &run);
    } else {
        run_call(&run, 0);
    }
    if (session->team != NULL) {
        sonde__pace_took(&session->pace, sonde__now() - started);
    }
}
