/*
 * session_ranks.c - a session that trains together with those of other ranks.
 */
#include "nn/ranks/ranks.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/packed.h"
#include "nn/run/plan_object.h"
#include "nn/run/session_state.h"

#include <sonde/tensor.h>

#include <string.h>

/* --- the same state in all ranks ---------------------------------------------------- */

/* Of the optimizer and its groups: ranks of other numbers make other updates. */
static sonde_err mix_optimizers(const sonde_nn_session *session, uint64_t *hash,
                                sonde_diag *diag)
{
    sonde__packer packed = {0};
    sonde_err err = SONDE_OK;

    sonde__session_plan_pack_optimizer(&packed, &session->optimizer);
    for (size_t i = 0; i < session->group_count; i++) {
        sonde__pack_text(&packed, session->groups[i].params);
        sonde__session_plan_pack_optimizer(&packed, &session->groups[i].optimizer);
    }
    err = packed.failed ? sonde__fail_nomem(diag, "the ranks") : SONDE_OK;
    for (size_t i = 0; i < packed.size; i++) {
        *hash = sonde__ranks_mix(*hash, packed.bytes[i]);
    }
    sonde__free(packed.bytes);
    return err;
}

/* Of what must not differ: the plan's steps and shapes, and the numbers of the session. */
static uint64_t digest(const sonde_nn_session *session)
{
    const sonde_nn_options *options = &session->options;
    uint64_t hash = sonde__ranks_mix(SONDE__RANKS_SEED, options->device_iterations);

    hash = sonde__ranks_mix(hash, options->gradient_accumulation);
    hash = sonde__ranks_mix(hash, options->replicas);
    hash = sonde__ranks_mix(hash, (int64_t)options->reduction);
    hash = sonde__ranks_mix(hash, (int64_t)options->random_seed);
    hash = sonde__ranks_mix(hash, session->program.batch_size);
    hash = sonde__ranks_mix(hash, (int64_t)session->optimizer.kind);
    for (size_t i = 0; i < session->plan.step_count; i++) {
        const sonde__plan_step *step = &session->plan.steps[i];

        for (const char *letter = step->kind->name; *letter != '\0'; letter++) {
            hash = sonde__ranks_mix(hash, *letter);
        }
        for (int k = 0; k < step->call.out_count; k++) {
            const sonde__op_shape *shape = &step->call.out[k].shape;

            for (int dim = 0; dim < shape->rank; dim++) {
                hash = sonde__ranks_mix(hash, shape->dim[dim]);
            }
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
    SONDE__TRY(sonde__session_ready(session, diag));
    if (session->ranks == NULL) {
        return SONDE_OK;
    }
    uint64_t hash = digest(session);
    SONDE__TRY(mix_optimizers(session, &hash, diag));
    SONDE__TRY(
        sonde__ranks_agree(session->ranks, hash, "the network or its options", diag));
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
