/*
 * session_ranks.c - a session that trains together with those of other ranks.
 */
#include "nn/ranks/ranks.h"
#include "base/fail.h"
#include "nn/run/session_state.h"

#include <sonde/tensor.h>

#include <string.h>

sonde_err sonde_nn_session_attach_ranks(sonde_nn_session *session, sonde_nn_ranks *ranks,
                                        sonde_diag *diag)
{
    const sonde_err err = sonde__graph_expect(session, "session", diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (session->compiled) {
        return sonde__fail(diag, SONDE_ESTATE, "ranks", "before compile",
                           "the session is compiled");
    }
    if (!session->training) {
        return sonde__fail(diag, SONDE_EINVAL, "ranks", "a session for training",
                           "a session for inference");
    }
    session->ranks = ranks;
    return SONDE_OK;
}

/* --- the same state in all ranks ---------------------------------------------------- */

/* FNV-1a, 64 bits, over what was mixed before. */
static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ byte[i]) * 0x100000001b3U;
    }
    return hash;
}

/* Of what must not differ: the plan's steps and shapes, and the numbers of the session. */
static uint64_t digest(const sonde_nn_session *session)
{
    const sonde_nn_options *options = &session->options;
    const int64_t numbers[] = {
        options->device_iterations,      options->gradient_accumulation,
        options->replication_factor,     (int64_t)options->reduction,
        (int64_t)options->random_seed,   session->program.batch_size,
        (int64_t)session->optimizer.kind};
    uint64_t hash = mix(0xcbf29ce484222325U, numbers, sizeof numbers);

    for (size_t i = 0; i < session->plan.step_count; i++) {
        const sonde__plan_step *step = &session->plan.steps[i];

        hash = mix(hash, step->kind->name, strlen(step->kind->name));
        for (int k = 0; k < step->call.out_count; k++) {
            const sonde__op_shape *shape = &step->call.out[k].shape;

            hash = mix(hash, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
        }
    }
    return hash;
}

static void share_tensors(const sonde_nn_session *session,
                          const sonde__graph_param *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const sonde_dtype dtype =
            session->model->graph.values[tensors[i].value].shape.dtype;

        sonde__ranks_broadcast(session->ranks, tensors[i].data,
                               tensors[i].count * sonde_dtype_size(dtype));
    }
}

void sonde__session_share_buffers(const sonde_nn_session *session)
{
    if (session->plan.summed > 0) {
        share_tensors(session, session->model->buffers, session->model->buffer_count);
    }
}

sonde_err sonde_nn_session_share(sonde_nn_session *session, sonde_diag *diag)
{
    sonde_err err = sonde__session_ready(session, diag);

    if (err != SONDE_OK || session->ranks == NULL) {
        return err;
    }
    err = sonde__ranks_agree(session->ranks, digest(session),
                             "the network or its options", diag);
    if (err != SONDE_OK) {
        return err;
    }
    sonde__ranks_broadcast(session->ranks, &session->step, sizeof session->step);
    share_tensors(session, session->model->params, session->model->param_count);
    share_tensors(session, session->model->buffers, session->model->buffer_count);
    for (size_t i = 0; i < session->plan.state_count; i++) {
        const sonde__plan_state *state = &session->plan.states[i];

        sonde__ranks_broadcast(session->ranks, state->data,
                               (size_t)sonde__op_shape_count(&state->shape) *
                                   sizeof *state->data);
    }
    return sonde__ranks_fault(session->ranks, diag);
}

/* --- gradients ---------------------------------------------------------------------- */

bool sonde__session_sum_ranks(const sonde_nn_session *session)
{
    const sonde__plan *plan = &session->plan;
    float *at = plan->rank_block;

    for (size_t i = plan->ranked; i < plan->summed; i++) {
        const sonde__operand *gradient = &plan->steps[i].call.in[0];
        const int64_t count = sonde__op_shape_count(&gradient->shape);

        memcpy(at, gradient->data, (size_t)count * sizeof *at);
        at += count;
    }
    sonde__ranks_sum_floats(session->ranks, plan->rank_block, plan->rank_count, at);
    return sonde__ranks_fault(session->ranks, NULL) == SONDE_OK;
}
