/*
 * rank_sum.c - the sum of a value over the ranks of a training, in their order:
 * ((x0 + x1) + x2) + ..., the same bits in every rank.
 *
 * The executor adds the values of all such ops of a step at once, because a message costs
 * more than its bytes; the op takes its part.
 *
 *   call.summed   the sum; NULL: in[0] alone
 */
#include "nn/ops/common.h"

#include <string.h>

static sonde_err rank_sum_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_dtype(&call->in[0].shape, SONDE_F32, "gradient", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void rank_sum_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);

    (void)part, (void)parts;
    memcpy(call->out[0].data, call->summed != NULL ? call->summed : call->in[0].data,
           (size_t)count * sizeof(float));
}

const sonde__op_kind sonde__op_rank_sum = {
    .name = "RankSum",
    SONDE__OPERANDS(none, 1, 1, 1),
    .infer = rank_sum_infer,
    SONDE__REFERENCE(rank_sum_run),
};
