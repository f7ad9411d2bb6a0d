/*
 * carry.c - the optimiser's state from one session of a model to the next, in memory.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"

#include <string.h>

/* The state with a name that outlives a step; NULL: there is none. */
static const sonde__plan_state *find_state(const sonde_nn_session *session,
                                           const char *name)
{
    const sonde__plan *plan = &session->plan;

    for (size_t i = 0; i < plan->state_count; i++) {
        if (!plan->states[i].accumulator && strcmp(plan->states[i].name, name) == 0) {
            return &plan->states[i];
        }
    }
    return NULL;
}

/* Whether every state of `next` is one of `last`, and the other way round. */
static sonde_err check_states(const sonde_nn_session *next, const sonde_nn_session *last,
                              sonde_diag *diag)
{
    for (size_t i = 0; i < next->plan.state_count; i++) {
        const sonde__plan_state *state = &next->plan.states[i];

        if (!state->accumulator && find_state(last, state->name) == NULL) {
            return sonde__fail(
                diag, SONDE_EINVAL, "session",
                "the same optimizer, with the same numbers fixed by compile",
                "the other session has no '%s'", state->name);
        }
    }
    return SONDE_OK;
}

static sonde_err check_pair(const sonde_nn_session *session, const sonde_nn_session *last,
                            sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (!session->training || !last->training) {
        return sonde__fail(diag, SONDE_EINVAL, "session", "two sessions for training",
                           "a session for inference");
    }
    if (!last->compiled) {
        return sonde__fail(diag, SONDE_ESTATE, "session",
                           "a call of compile or run before",
                           "the other session has not been compiled");
    }
    if (session->model != last->model || session == last) {
        return sonde__fail(diag, SONDE_EINVAL, "session", "two sessions of one model",
                           session == last ? "one session" : "two models");
    }
    if (session->optimizer.kind != last->optimizer.kind) {
        return sonde__fail(diag, SONDE_EINVAL, "session",
                           sonde_nn_optimizer_name(last->optimizer.kind), "optimizer %s",
                           sonde_nn_optimizer_name(session->optimizer.kind));
    }
    err = check_states(session, last, diag);
    return err == SONDE_OK ? check_states(last, session, diag) : err;
}

sonde_err sonde_nn_session_carry(sonde_nn_session *session, const sonde_nn_session *last,
                                 sonde_diag *diag)
{
    SONDE__NEEDS(diag, session, last);
    SONDE__TRY(sonde__session_ready(session, diag));
    SONDE__TRY(check_pair(session, last, diag));
    for (size_t i = 0; i < session->plan.state_count; i++) {
        const sonde__plan_state *state = &session->plan.states[i];
        const sonde__plan_state *found =
            state->accumulator ? NULL : find_state(last, state->name);

        if (found != NULL) {
            memcpy(state->data, found->data,
                   (size_t)sonde__op_shape_count(&state->shape) * sizeof *state->data);
        }
    }
    session->step = last->step;
    return SONDE_OK;
}
