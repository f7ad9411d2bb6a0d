/*
 * bind.c - which tensors are shown to the observer, and after which step.
 *
 * A value is shown when the step that makes it is done. Exceptions:
 *   - the gradient of a parameter, with G = 1 and R = 1, is shown at its update, where it
 *     streams through registers and its vital signs cost next to nothing;
 *   - a parameter is shown once it has its new value: at its update with G = 1 and R = 1,
 *     else, and if it has no update, at the end of every micro-batch (where it still has the
 *     value the micro-batch used), by the first replica;
 *   - a buffer of the model is shown at the end of every micro-batch;
 *   - a view is shown when the buffer that it looks at is written, by a reorder perhaps;
 *   - inputs are shown when a micro-batch starts, hyper-parameters with the first update.
 *
 * In addition an update reports whether the gradient it consumes is finite, if a tap asks
 * for it: the only observation at a step at which nothing is due.
 */
#include "nn/compile/compile.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <string.h>

typedef struct bind_work {
    const sonde__plan_program *program;
    const uint32_t *id_of;
    const sonde_observer *observer;
    sonde__plan *plan;
    size_t first;   /* showing of the step at hand */
    size_t scratch; /* bytes of the largest value that is shown from another layout */
    bool out_of_memory;
} bind_work;

/* Names of the same elements, shown after the same step, have their vital signs in one
 * place: a parameter and its UpdatedVar, a value and its views. */
static int vitals_slot(const bind_work *work, const sonde__plan_showing *showing)
{
    const sonde__plan *plan = work->plan;
    const size_t own = plan->showing_count;
    const sonde__plan_showing *before =
        own > work->first ? &plan->showings[own - 1] : NULL;
    const bool shared = before != NULL && before->buffer == showing->buffer &&
                        before->vitals_in == showing->vitals_in &&
                        before->vitals_out == showing->vitals_out;

    return shared ? before->slot : (int)own;
}

static void show(bind_work *work, sonde__op_value value, int buffer, int vitals_in,
                 int vitals_out)
{
    sonde__plan *plan = work->plan;
    const uint32_t id = work->id_of[value];
    const sonde__op_shape *shape = sonde__op_value_shape(&work->program->graph, value);
    const bool plain = buffer >= 0 && plan->buffers[buffer].layout == SONDE__PLAIN;
    sonde__plan_showing showing = {
        .id = id,
        .buffer = buffer,
        .view = sonde_view_of(shape->dtype, shape->rank, shape->dim,
                              plain ? plan->buffers[buffer].data : NULL),
        .vitals_in = vitals_in,
        .vitals_out = vitals_out};

    if (id == SONDE_NO_TENSOR || sonde_observer_ever_wants(work->observer, id) == 0) {
        return;
    }
    if (!sonde__reserve(&plan->showings, &plan->showing_capacity, plan->showing_count + 1,
                        sizeof *plan->showings)) {
        work->out_of_memory = true;
        return;
    }
    if (buffer >= 0 && plan->buffers[buffer].layout != SONDE__PLAIN) {
        work->scratch = SONDE_MAX(work->scratch, (size_t)sonde_view_count(&showing.view) *
                                                     sonde_dtype_size(shape->dtype));
    }
    showing.slot = vitals_slot(work, &showing);
    plan->showings[plan->showing_count++] = showing;
}

/* Whether parameter i has an update that shows it. */
static bool is_updated(const sonde__plan_program *program, size_t i)
{
    return program->optimizer != NULL && program->trained[i].gradient != 0 &&
           !program->model->params[i].left_out;
}

/* The parameter whose update consumes its micro-batch gradient; SIZE_MAX if none. */
static size_t trained_by(const sonde__plan_program *program, sonde__op_value gradient)
{
    for (size_t i = 0; i < program->model->param_count; i++) {
        if (gradient != 0 && is_updated(program, i) &&
            program->trained[i].gradient == gradient &&
            program->trained[i].summed == gradient) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* k if the kernel provides the vital signs of its output (input) k, else -1. */
static int shown_out(const sonde__plan_step *step, int k)
{
    return sonde__op_tells_out(step->kernel, &step->call, k) ? k : -1;
}

static int shown_in(const sonde__plan_step *step, int k)
{
    return sonde__op_tells_in(step->kernel, k) ? k : -1;
}

static bool computes_gradient(const sonde__plan_step *step)
{
    return step->kind == &sonde__op_linear_grad_weight_sgd;
}

/* The gradient an update consumes: an input, or an output of a fused op. */
static sonde__op_value gradient_of(const sonde__plan_step *step)
{
    return computes_gradient(step) ? step->out_value[1] : step->in_value[1];
}

/* The numbers that the updates of a step share. */
static void show_hyper(bind_work *work)
{
    const sonde__plan *plan = work->plan;

    for (size_t i = 0; i < plan->buffer_count; i++) {
        if (plan->buffers[i].place == SONDE__IN_HYPER) {
            show(work, plan->buffers[i].value, (int)i, -1, -1);
        }
    }
}

static void show_update(bind_work *work, const sonde__plan_step *step)
{
    const bool fused = computes_gradient(step);
    const sonde__op_value gradient = gradient_of(step);

    if (trained_by(work->program, gradient) != SIZE_MAX) {
        show(work, gradient, fused ? step->out_buffer[1] : step->in_buffer[1],
             fused ? -1 : shown_in(step, 1), fused ? shown_out(step, 1) : -1);
    }
    if (!sonde__plan_splits(work->program)) {
        show(work, step->in_value[0], step->in_buffer[0], -1, shown_out(step, 0));
    }
    show(work, step->out_value[0], step->out_buffer[0], -1, shown_out(step, 0));
    for (int k = 1; k < step->call.out_count; k++) {
        if (step->out_buffer[k] >= 0 && step->out_value[k] != gradient) {
            show(work, step->out_value[k], step->out_buffer[k], -1, shown_out(step, k));
        }
    }
}

/* The views of a buffer: values with its elements and another shape. */
static void show_views(bind_work *work, int buffer, int vitals_out)
{
    const sonde__plan *plan = work->plan;

    for (size_t i = 0; i < plan->view_count; i++) {
        if (plan->views[i].buffer == buffer &&
            trained_by(work->program, plan->views[i].value) == SIZE_MAX) {
            show(work, plan->views[i].value, buffer, -1, vitals_out);
        }
    }
}

/* A value, and every view of it. vitals_out: as of a showing. */
static void show_with_views(bind_work *work, sonde__op_value value, int buffer,
                            int vitals_out)
{
    if (value == 0 || (buffer < 0 && vitals_out < 0)) {
        return;
    }
    if (trained_by(work->program, value) == SIZE_MAX) {
        show(work, value, buffer, -1, vitals_out);
    }
    if (buffer >= 0) {
        show_views(work, buffer, vitals_out);
    }
}

static void show_inputs(bind_work *work)
{
    sonde__plan *plan = work->plan;

    plan->first_start = (int)plan->showing_count;
    for (size_t i = 0; i < plan->buffer_count; i++) {
        if (plan->buffers[i].place == SONDE__IN_INPUT) {
            show_with_views(work, plan->buffers[i].value, (int)i, -1);
        }
    }
    plan->start_count = (int)plan->showing_count - plan->first_start;
}

/* Whether a parameter is shown at the end of a micro-batch, and not at an update. */
static bool waits(const sonde__plan_program *program, sonde__op_value param)
{
    bool updated = false;

    for (size_t i = 0; i < program->model->param_count; i++) {
        updated =
            updated || (program->trained[i].param == param && is_updated(program, i));
    }
    return !updated || sonde__plan_splits(program);
}

/* And buffers, which have their new values then. */
static void show_waiting_parameters(bind_work *work)
{
    sonde__plan *plan = work->plan;

    plan->first_end = (int)plan->showing_count;
    for (size_t i = 0; i < plan->buffer_count; i++) {
        if (plan->buffers[i].place == SONDE__IN_BUFFER ||
            (plan->buffers[i].place == SONDE__IN_PARAM && plan->replica == 0 &&
             waits(work->program, plan->buffers[i].value))) {
            show(work, plan->buffers[i].value, (int)i, -1, -1);
        }
    }
    plan->end_count = (int)plan->showing_count - plan->first_end;
}

/* Lists the outputs that exist only to be shown; they are left out until an observer
 * wants them. */
static bool list_watched(sonde__plan *plan)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        for (int k = 0; k < plan->steps[i].call.out_count; k++) {
            if ((plan->steps[i].watched >> (unsigned)k & 1U) == 0) {
                continue;
            }
            if (!sonde__reserve(&plan->watched, &plan->watched_capacity,
                                plan->watched_count + 1, sizeof *plan->watched)) {
                return false;
            }
            plan->watched[plan->watched_count++] = (sonde__plan_watched){(int)i, k};
            plan->steps[i].call.out[k].data = NULL;
        }
    }
    return true;
}

/* Makes updates check their gradients where a tap has when_bad. */
static bool watch_gradients(const bind_work *work)
{
    sonde__plan *plan = work->plan;
    const size_t parts = (size_t)plan->most_parts;

    plan->bad = sonde__calloc(plan->step_count, parts);
    for (size_t i = 0; plan->bad != NULL && i < plan->step_count; i++) {
        sonde__plan_step *step = &plan->steps[i];

        step->gradient = step->update ? work->id_of[gradient_of(step)] : SONDE_NO_TENSOR;
        if (step->gradient != SONDE_NO_TENSOR &&
            sonde_observer_when_bad(work->observer, step->gradient)) {
            step->call.bad = plan->bad + i * parts;
        }
    }
    return plan->bad != NULL;
}

sonde_err sonde__plan_bind_taps(const sonde__plan_program *program, const uint32_t *id_of,
                                const sonde_observer *observer, sonde__plan *plan,
                                sonde_diag *diag)
{
    bind_work work = {program, id_of, observer, plan, 0, 0, false};
    bool updates = false;

    show_inputs(&work);
    for (size_t i = 0; i < plan->step_count; i++) {
        sonde__plan_step *step = &plan->steps[i];

        work.first = plan->showing_count;
        step->first_showing = (int)work.first;
        if (step->update && !updates) {
            updates = true;
            show_hyper(&work);
        }
        if (step->update) {
            show_update(&work, step);
        } else if (step->kind == &sonde__op_reorder) {
            show_views(&work, step->out_buffer[0], -1);
        } else {
            for (int k = 0; k < step->call.out_count; k++) {
                show_with_views(&work, step->out_value[k], step->out_buffer[k],
                                shown_out(step, k));
            }
        }
        step->showing_count = (int)plan->showing_count - step->first_showing;
        for (size_t k = work.first; k < plan->showing_count; k++) {
            step->fuses = step->fuses || plan->showings[k].vitals_in >= 0 ||
                          plan->showings[k].vitals_out >= 0;
        }
    }
    work.first = plan->showing_count;
    show_waiting_parameters(&work);
    plan->vitals = sonde__calloc(plan->showing_count, sizeof *plan->vitals);
    plan->show_scratch = sonde__malloc_aligned(SONDE__ALIGN, work.scratch);
    if (work.out_of_memory || !list_watched(plan) || plan->vitals == NULL ||
        plan->show_scratch == NULL || !watch_gradients(&work)) {
        return sonde__fail_nomem(diag, "the list of what is observed");
    }
    return SONDE_OK;
}
