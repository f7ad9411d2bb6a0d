/*
 * reorder_kernels.c - any layout into any other, by tiles of 16 x 16 transposed in
 * registers.
 *
 * Like the
 * reference it goes by the layouts of the call's operands, not by those in its row. Lanes
 * past N and columns of panels past K become zeros.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/reorder_tile.h"
#include "nn/kernels/stream_kernels.h"

static layout_view view_of(const sonde__operand *operand)
{
    const sonde__op_shape *shape = &operand->shape;
    const int64_t samples = shape->rank == 0 ? 1 : shape->dim[0];
    int64_t columns = 1;

    for (int i = 1; i < shape->rank; i++) {
        columns *= shape->dim[i];
    }
    return (layout_view){operand->data, samples, columns, operand->layout};
}

static void reorder_run(const sonde__op_call *call, int part, int parts)
{
    const layout_view source = view_of(&call->in[0]), target = view_of(&call->out[0]);
    const int64_t unit =
        target.layout == SONDE__PANELS ? 32 : 16; /* columns written at once */
    const int64_t blocks = (source.samples + 15) / 16;
    const int64_t groups = (source.columns + unit - 1) / unit;
    const bool by_block = target.layout != SONDE__PANELS && blocks >= 2 * parts;
    const int64_t block_begin = by_block ? blocks * part / parts : 0;
    const int64_t block_end = by_block ? blocks * (part + 1) / parts : blocks;
    const int64_t begin = by_block ? 0 : groups * part / parts;
    const int64_t end = by_block ? groups : groups * (part + 1) / parts;

    if (target.layout != SONDE__PANELS) { /* along the destination's memory */
        for (int64_t block = block_begin; block < block_end; block++) {
            for (int64_t group = begin; group < end; group++) {
                reorder_tile(&source, &target, block * 16, group * 16);
            }
        }
        return;
    }
    for (int64_t group = begin; group < end; group++) {
        for (int64_t block = block_begin; block < block_end; block++) {
            reorder_tile(&source, &target, block * 16, group * 32);
            reorder_tile(&source, &target, block * 16, group * 32 + 16);
        }
    }
}

const sonde__op_kernel ISA(sonde__kernel_reorder) = {
    .name = "tiles",
    .accepts = stream_f32,
    .parts = stream_parts,
    .run = reorder_run,
};
