/*
 * inputs.c - the checks of a call's inputs before anything runs.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"

#include <stdio.h>

static sonde_err check_shape(const char *name, const sonde__op_shape *want,
                             const sonde_view *have, sonde_diag *diag)
{
    char expected[96], found[96];
    bool same = want->rank == have->rank;

    for (int i = 0; same && i < want->rank; i++) {
        same = want->dim[i] == have->shape[i];
    }
    if (same) {
        return SONDE_OK;
    }
    (void)sonde_shape_text(want->rank, want->dim, expected, sizeof expected);
    (void)sonde_shape_text(have->rank, have->shape, found, sizeof found);
    return sonde__fail(diag, SONDE_ESHAPE, name, expected, "shape mismatch: got %s",
                       found);
}

static sonde_err check_view(const sonde_nn_session *session, size_t i,
                            const sonde_view *view, sonde_diag *diag)
{
    const char *name = session->input_names[i];
    const sonde__op_shape *want = &session->input_shapes[i];

    if (view->dtype != want->dtype) {
        return sonde__fail(diag, SONDE_EDTYPE, name, sonde_dtype_name(want->dtype),
                           "dtype mismatch: got %s", sonde_dtype_name(view->dtype));
    }
    if (!sonde_view_is_contiguous(view)) {
        return sonde__fail(diag, SONDE_EINVAL, name, "a contiguous tensor",
                           "the view has gaps or another order");
    }
    return check_shape(name, want, view, diag);
}

static sonde_err check_targets(const sonde_nn_session *session,
                               const sonde__plan_target *target, const sonde_view *view,
                               sonde_diag *diag)
{
    const int64_t count = sonde_view_count(view);
    const int64_t *classes = view->data;
    int64_t outside = -1;
    char expected[64];

    for (int64_t i = 0; i < count && outside < 0; i++) {
        if (classes[i] < 0 || classes[i] >= target->classes) {
            outside = i;
        }
    }
    if (outside < 0) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "0 to %lld",
                   (long long)target->classes - 1);
    return sonde__fail(diag, SONDE_ERANGE, session->input_names[target->input], expected,
                       "label %lld is %lld", (long long)outside,
                       (long long)classes[outside]);
}

sonde_err sonde__session_check_inputs(const sonde_nn_session *session,
                                      const sonde_view *inputs, size_t count,
                                      sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (count != session->input_count) {
        return sonde__fail(diag, SONDE_EINVAL, "inputs", NULL,
                           "number of inputs mismatch: expected %zu but got %zu",
                           session->input_count, count);
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = check_view(session, i, &inputs[i], diag);
    }
    for (size_t i = 0; err == SONDE_OK && i < session->plan.target_count; i++) {
        const sonde__plan_target *target = &session->plan.targets[i];

        err = check_targets(session, target, &inputs[target->input], diag);
    }
    return err;
}
