/*
 * reorder.c - the same tensor in another layout.
 *
 * The layouts are those of the operands of a call, in[0] and out[0], not those that the
 * kernel names: one reference serves every pair. Lanes past N and columns past K are
 * written as zeros.
 *
 * attrs: none.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast_linear.h"

#include <string.h>

static sonde_err reorder_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_size(&call->in[0].shape, "input", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void reorder_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0], *y = &call->out[0];
    const sonde__op_shape *shape = &x->shape;
    const size_t size = sonde_dtype_size(shape->dtype);
    const int64_t samples = shape->rank == 0 ? 1 : shape->dim[0];
    const int64_t inner = sonde__op_dims_product(shape, 1, shape->rank);

    (void)part, (void)parts;
    memset(y->data, 0, (size_t)sonde__op_layout_count(shape, y->layout) * size);
    for (int64_t n = 0; n < samples; n++) {
        for (int64_t k = 0; k < inner; k++) {
            const size_t from =
                (size_t)sonde__op_layout_at(shape, x->layout, n, k) * size;
            const size_t to = (size_t)sonde__op_layout_at(shape, y->layout, n, k) * size;

            memcpy((char *)y->data + to, (const char *)x->data + from, size);
        }
    }
}

SONDE__KERNELS(reorder, sonde__kernel_reorder_fast)

const sonde__op_kind sonde__op_reorder = {
    .name = "Reorder",
    .in_min = 1,
    .in_max = 1,
    .out_count = 1,
    .infer = reorder_infer,
    .kernels = reorder_kernels,
};
