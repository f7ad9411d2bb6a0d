/*
 * session_show.c - hands the values of a running step to the observer.
 */
#include "nn/run/session_state.h"

#include "nn/kernels/call.h"

#include <string.h>

size_t sonde__session_flat(const sonde_nn_session *session, const sonde_coordinate *place)
{
    const int k =
        place->iteration * session->options.gradient_accumulation + place->micro_batch;

    return (size_t)k * (size_t)session->options.replicas + (size_t)place->replica;
}

void *sonde__session_buffer_data(const execution *run, const sonde__plan_buffer *buffer)
{
    const device_call *call = run->call;

    return buffer->place == SONDE__IN_INPUT
               ? (unsigned char *)call->inputs[buffer->index].data +
                     sonde__session_flat(call->session, &run->at) * buffer->bytes
               : buffer->data;
}

/* Where the value lies PLAIN, if that is known only while running: in the caller's input,
 * or reordered into scratch. NULL where only its vital signs exist. */
static void *find_data(const execution *run, const sonde__plan_showing *showing)
{
    sonde__plan *plan = run->plan;
    sonde__op_call call = {.in_count = 1, .out_count = 1};
    const sonde__plan_buffer *buffer = NULL;

    if (showing->buffer < 0) {
        return NULL;
    }
    buffer = &plan->buffers[showing->buffer];
    if (buffer->layout == SONDE__PLAIN) {
        return sonde__session_buffer_data(run, buffer);
    }
    call.in[0].shape.dtype = showing->view.dtype;
    call.in[0].shape.rank = showing->view.rank;
    memcpy(call.in[0].shape.dim, showing->view.shape, sizeof showing->view.shape);
    call.out[0].shape = call.in[0].shape;
    call.in[0].layout = buffer->layout;
    call.in[0].data = buffer->data;
    call.out[0].data = plan->show_scratch;
    sonde__op_first_kernel(&sonde__op_reorder, &call)->run(&call, 0, 1);
    return plan->show_scratch;
}

/* Vital signs, or norms alone, of a value that no kernel provides, taken without reordering it. */
static void take_vitals(const execution *run, const sonde__plan_showing *showing,
                        bool norms, sonde_vitals *vitals)
{
    const sonde__plan_buffer *buffer = &run->plan->buffers[showing->buffer];
    const sonde__operand operand = {buffer->shape, buffer->layout,
                                    sonde__session_buffer_data(run, buffer)};

    if (sonde__kernel_has_operand_vitals(operand.shape.dtype, operand.layout)) {
        sonde__kernel_operand_vitals(&operand, norms, vitals);
    } else {
        sonde_view view = showing->view;

        view.data = find_data(run, showing);
        if (norms) {
            sonde_norms_of(&view, vitals);
        } else {
            sonde_vitals_of(&view, vitals);
        }
    }
}

/* Whether the kernel that ran has filled the vital signs. */
static bool is_fused(const execution *run, const sonde__plan_showing *showing)
{
    return !run->call->skips && (showing->vitals_in >= 0 || showing->vitals_out >= 0);
}

/* The vital signs that are wanted and that no kernel provides: before the replica's turn,
 * so that replicas take theirs at once. */
static void take_all_vitals(const execution *run, int first, int count)
{
    const sonde__plan *plan = run->plan;
    int taken = -1; /* the slot that was filled last */

    for (int i = first; i < first + count; i++) {
        const sonde__plan_showing *showing = &plan->showings[i];
        const unsigned wants =
            sonde_observer_wants(run->call->session->gate, showing->id);
        sonde_vitals *vitals = &plan->vitals[showing->slot];
        const bool norms = (wants & SONDE_HOW_VITALS) == 0;

        if ((wants & SONDE_HOW_SIGNS) != 0 && !is_fused(run, showing) &&
            (taken != showing->slot || (!norms && sonde_vitals_are_norms(vitals)))) {
            take_vitals(run, showing, norms, vitals);
            taken = showing->slot;
        }
    }
}

void sonde__session_show(execution *run, int first, int count)
{
    const sonde_nn_session *session = run->call->session;
    const sonde__plan *plan = run->plan;

    take_all_vitals(run, first, count);
    if (run->turns != NULL) {
        sonde__session_turn_await(run->turns, run->ticket);
    }
    for (int i = first; i < first + count; i++) {
        const sonde__plan_showing *showing = &plan->showings[i];
        const unsigned wants = sonde_observer_wants(session->gate, showing->id);
        sonde_view found;
        const sonde_view *view = &showing->view;

        if (wants == 0) {
            continue;
        }
        if (view->data == NULL && (wants & ~(unsigned)SONDE_HOW_SIGNS) != 0) {
            found = *view;
            found.data = find_data(run, showing);
            view = &found;
        }
        sonde_observer_observe(session->observer, showing->id, view,
                               is_fused(run, showing) || (wants & SONDE_HOW_SIGNS) != 0
                                   ? &plan->vitals[showing->slot]
                                   : NULL,
                               run->at.micro_batch, run->at.replica);
    }
    if (run->turns != NULL) {
        run->ticket += (unsigned)session->options.replicas;
        sonde__session_turn_pass(run->turns);
    }
}

/* signs: what is wanted; several names of an operand may want different ones. */
static void ask_one(sonde_vitals **place, unsigned *norms, unsigned bit, unsigned signs,
                    sonde_vitals *vitals)
{
    const bool full = (signs & SONDE_HOW_VITALS) != 0 ||
                      (signs != 0 && *place != NULL && (*norms & bit) == 0);

    *norms = signs != 0 && !full ? *norms | bit : *norms & ~bit;
    *place = signs != 0 ? vitals : NULL;
}

void sonde__session_ask_vitals(const execution *run, sonde__plan_step *step, bool ask)
{
    sonde__plan *plan = run->plan;

    for (int i = step->first_showing; i < step->first_showing + step->showing_count;
         i++) {
        const sonde__plan_showing *showing = &plan->showings[i];
        sonde_vitals *vitals = &plan->vitals[showing->slot];
        const unsigned signs =
            ask ? sonde_observer_wants(run->call->session->gate, showing->id) &
                      SONDE_HOW_SIGNS
                : 0;

        if (showing->vitals_in >= 0) {
            ask_one(&step->call.in_vitals[showing->vitals_in], &step->call.norms_in,
                    1U << (unsigned)showing->vitals_in, signs, vitals);
        }
        if (showing->vitals_out >= 0 && (signs != 0 || !ask)) {
            ask_one(&step->call.out_vitals[showing->vitals_out], &step->call.norms_out,
                    1U << (unsigned)showing->vitals_out, signs, vitals);
        }
    }
}

/* --- gradients that are not finite -------------------------------------------------- */

bool sonde__session_is_bad(const sonde__plan_step *step, int parts, int member)
{
    bool bad = false;

    for (int i = 0; step->call.bad != NULL && (parts > 1 || member == 0) && i < parts;
         i++) {
        bad = bad || step->call.bad[i] != 0;
    }
    return bad;
}

bool sonde__session_is_finite(const sonde__operand *operand)
{
    const sonde__op_shape *shape = &operand->shape;
    const sonde_view view =
        sonde_view_of(shape->dtype, shape->rank, shape->dim, operand->data);
    sonde_vitals vitals;

    sonde_vitals_of(&view, &vitals);
    return vitals.nan == 0 && vitals.pos_inf == 0 && vitals.neg_inf == 0;
}

void sonde__session_tell_bad(const execution *run, sonde__plan_step *step)
{
    const int operand = step->kernel->again != NULL ? -1 : 1;
    const sonde__op_shape *shape =
        operand < 0 ? &step->call.out[1].shape : &step->call.in[operand].shape;
    sonde_view view = sonde_view_of(shape->dtype, shape->rank, shape->dim, NULL);
    sonde_vitals vitals;

    if (operand < 0) {
        step->call.out_vitals[1] = &vitals;
        step->kernel->again(&step->call);
        step->call.out_vitals[1] = NULL;
    } else {
        view.data = step->call.in[operand].data;
        sonde_vitals_of(&view, &vitals);
    }
    sonde_observer_observe_bad(run->call->session->observer, &run->at, step->gradient,
                               &view, &vitals);
    run->call->bad = true;
}

/* --- outputs that exist only to be shown -------------------------------------------- */

/* Whether a tap wants, at this step, more of an output than the kernel provides without
 * keeping it. */
static bool is_wanted(const execution *run, const sonde__plan_step *step, int operand)
{
    const int buffer = step->out_buffer[operand];
    const bool kept = (step->kernel->vitals_kept >> (unsigned)operand & 1U) != 0;

    for (int i = step->first_showing; i < step->first_showing + step->showing_count;
         i++) {
        const sonde__plan_showing *showing = &run->plan->showings[i];
        const bool fused = showing->vitals_in >= 0 || showing->vitals_out >= 0;
        const unsigned wants =
            sonde_observer_wants(run->call->session->gate, showing->id);

        if (showing->buffer == buffer &&
            (wants & (fused && !kept ? ~(unsigned)SONDE_HOW_SIGNS : ~0U)) != 0) {
            return true;
        }
    }
    return false;
}

void sonde__session_set_watched(const execution *run)
{
    sonde__plan *plan = run->plan;

    for (size_t i = 0; i < plan->watched_count; i++) {
        sonde__plan_step *step = &plan->steps[plan->watched[i].step];
        const int operand = plan->watched[i].operand;
        const int buffer = step->out_buffer[operand];

        step->call.out[operand].data = run->call->due && is_wanted(run, step, operand)
                                           ? plan->buffers[buffer].data
                                           : NULL;
    }
    plan->watching = run->call->due;
}
