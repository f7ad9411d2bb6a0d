/*
 * replica_sum.c - the sum of a value over the replicas of a session, in their order:
 * ((x0 + x1) + x2) + ... An element's sum does not depend on how many threads share the
 * work.
 *
 *   attrs.replicas.count   the number of replicas
 *   call.replicas  where each has the value; NULL: in[0] alone
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "nn/kernels/fast.h"

static sonde_err replica_sum_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_dtype(&call->in[0].shape, SONDE_F32, "gradient", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void replica_sum_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);
    const float *first = call->replicas != NULL ? call->replicas[0] : call->in[0].data;
    float *sum = call->out[0].data;

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        float total = first[i];

        for (int64_t r = 1; call->replicas != NULL && r < call->attrs->replicas.count;
             r++) {
            const float *other = call->replicas[r];

            total += other[i];
        }
        sum[i] = total;
    }
}

const sonde__op_kind sonde__op_replica_sum = {
    .name = "ReplicaSum",
    SONDE__OPERANDS(replicas, 1, 1, 1),
    .infer = replica_sum_infer,
    SONDE__REFERENCE(replica_sum_run),
    .fast = sonde__kernel_replica_sum_fast,
};
