/*
 * trap.c - floating-point exceptions: a call ends at the first op that makes a NaN or an
 * infinity.
 *
 * One thread runs a session with this option, and no ops are fused, so the op and the
 * tensor are exactly those. Every output is read after its op: a step takes some two times
 * as long. A number that was not finite before an op read it, of an input or a parameter,
 * is reported as that tensor's.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "nn/ops/common.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* The first element that is not finite, row-major; -1: there is none. */
static int64_t find_bad(const sonde__operand *operand, double *value)
{
    const sonde__op_shape *shape = &operand->shape;
    const int64_t count = sonde__op_shape_count(shape);
    const int64_t samples = shape->rank > 0 ? shape->dim[0] : 1;
    const int64_t each = samples > 0 && count > samples ? count / samples : 1;

    if (operand->data == NULL ||
        (shape->dtype != SONDE_F32 && shape->dtype != SONDE_F64 &&
         !sonde__op_is_half(shape->dtype))) {
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t at =
            operand->layout == SONDE__PLAIN
                ? i
                : sonde__op_layout_at(shape, operand->layout, i / each, i % each);

        *value = sonde__op_load(operand, at);
        if (!isfinite(*value)) {
            return i;
        }
    }
    return -1;
}

/* Whether an operand holds the value before and after the op. */
static bool is_in_place(const sonde__plan_step *step, int operand)
{
    for (int k = 0; k < step->call.out_count; k++) {
        if (step->call.out[k].data == step->call.in[operand].data) {
            return true;
        }
    }
    return false;
}

static void note(const execution *run, const sonde__plan_step *step,
                 sonde__op_value value, sonde__session_trap trap)
{
    const char *name = run->call->session->program.graph.values[value].name;

    trap.found = true;
    trap.op = step->kind->name;
    trap.module = step->module;
    trap.tensor = name != NULL ? name : "a value without a name";
    trap.step = run->call->session->step;
    trap.micro_batch = run->at.micro_batch;
    trap.replica = run->at.replica;
    run->call->session->trap = trap;
    run->call->trapped = true;
}

void sonde__session_check_step(const execution *run, size_t i)
{
    const sonde__plan_step *step = &run->plan->steps[i];
    sonde__session_trap trap = {.element = -1};
    sonde__op_value value = 0;

    for (int k = 0; k < step->call.out_count && trap.element < 0; k++) {
        trap.element = find_bad(&step->call.out[k], &trap.value);
        trap.count = sonde__op_shape_count(&step->call.out[k].shape);
        value = step->out_value[k] != 0 ? step->out_value[k] : step->in_value[0];
    }
    if (trap.element < 0) {
        return;
    }
    for (int k = 0; k < step->call.in_count && !trap.given; k++) {
        sonde__session_trap before = trap;

        if (is_in_place(step, k)) {
            continue;
        }
        before.element = find_bad(&step->call.in[k], &before.value);
        if (before.element >= 0) {
            before.given = true;
            before.count = sonde__op_shape_count(&step->call.in[k].shape);
            value = step->in_value[k];
            trap = before;
        }
    }
    note(run, step, value, trap);
}

sonde_err sonde__session_trap_error(const sonde_nn_session *session, sonde_diag *diag)
{
    const sonde__session_trap *trap = &session->trap;
    char number[16];

    (void)snprintf(number, sizeof number, "%s",
                   isnan(trap->value) ? "nan"
                   : trap->value > 0  ? "inf"
                                      : "-inf");
    return sonde__fail(diag, SONDE_ERANGE, trap->tensor, "finite numbers",
                       "%s%s%s %s %s at element %" PRId64 " of %" PRId64 ", step %" PRId64
                       ", micro-batch %d, replica %d",
                       trap->op, trap->module[0] != '\0' ? " in " : "", trap->module,
                       trap->given ? "reads" : "makes", number, trap->element,
                       trap->count, trap->step, trap->micro_batch, trap->replica);
}
