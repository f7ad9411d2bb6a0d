/*
 * elementwise_kernels.c - ops that do one thing to every element, whatever the layout:
 * the padding of a layout is computed like the rest; its content is unspecified. And the op
 * that brings a value from one layout into another.
 *
 * The values equal those of the references, except the last bit of accumulate with a
 * scale.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/lanes.h"
#include "nn/kernels/stream_kernels.h"
#include "nn/kernels/vec.h"

static inline stream_span my_elements(const sonde__op_call *call, int part, int parts)
{
    return stream_part(sonde__op_layout_count(&call->in[0].shape, call->in[0].layout),
                       part, parts);
}

/* Defines run_<op>: out = expression of vectors a and b, from operands 0 and b_index, and
 * of s = attrs.fill.value if scaled. */
#define STREAM_OP(op, b_index, scaled, expression)                                       \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        const stream_span mine = my_elements(call, part, parts);                         \
        const float *const source = call->in[0].data, *const second =                    \
                                                          call->in[b_index].data;        \
        float *const target = call->out[0].data;                                         \
        const v16 s = v16_set1((scaled) ? call->attrs->fill.value : 1.0F);               \
        int64_t i = mine.begin;                                                          \
                                                                                         \
        (void)s;                                                                         \
        for (; i + 16 <= mine.end; i += 16) {                                            \
            const v16 a = v16_load(source + i), b = v16_load(second + i);                \
                                                                                         \
            (void)b;                                                                     \
            v16_store(target + i, expression);                                           \
        }                                                                                \
        if (i < mine.end) {                                                              \
            const int n = (int)(mine.end - i);                                           \
            const v16 a = v16_load_n(source + i, n), b = v16_load_n(second + i, n);      \
                                                                                         \
            (void)b;                                                                     \
            v16_store_n(target + i, expression, n);                                      \
        }                                                                                \
    }

STREAM_OP(relu, 0, false, v16_relu(a))
STREAM_OP(relu_grad, 1, false, v16_gate(b, a))
STREAM_OP(add, 1, false, v16_add(a, b))
STREAM_OP(scale, 0, true, v16_mul(s, a))
STREAM_OP(accumulate, 1, true, v16_fma(s, b, a))

/* Replica by replica, a few lines at a time, so that the sum stays in cache. */
static void replica_sum_run(const sonde__op_call *call, int part, int parts)
{
    enum { BLOCK = 1024 };
    const stream_span mine = my_elements(call, part, parts);
    const int64_t replicas = call->replicas != NULL ? call->attrs->replicas.count : 1;
    float *const target = call->out[0].data;

    for (int64_t begin = mine.begin; begin < mine.end; begin += BLOCK) {
        const int64_t end = begin + BLOCK < mine.end ? begin + BLOCK : mine.end;

        for (int64_t r = 0; r < replicas; r++) {
            const float *const source =
                call->replicas != NULL ? call->replicas[r] : call->in[0].data;

            int64_t i = begin;

            for (; i + 16 <= end; i += 16) {
                const v16 more = v16_load(source + i);

                v16_store(target + i,
                          r == 0 ? more : v16_add(v16_load(target + i), more));
            }
            for (; i < end; i++) {
                target[i] = r == 0 ? source[i] : target[i] + source[i];
            }
        }
    }
}

static bool accepts_same_shapes(const sonde__op_call *call)
{
    const sonde__op_shape *a = &call->in[0].shape, *b = &call->in[1].shape;

    if (!stream_f32(call) || a->rank != b->rank) {
        return false;
    }
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) {
            return false;
        }
    }
    return true;
}

#define STREAM_KERNEL(op, accepts_fn)                                                    \
    SONDE__ISA_KERNEL(op, "flat", accepts_fn, (SONDE__ANY, SONDE__ANY), (SONDE__ANY),    \
                      op##_run, .parts = stream_parts)
STREAM_KERNEL(relu, stream_f32)
STREAM_KERNEL(relu_grad, stream_f32)
STREAM_KERNEL(add, accepts_same_shapes)
STREAM_KERNEL(scale, stream_f32)
STREAM_KERNEL(accumulate, stream_f32)
STREAM_KERNEL(replica_sum, stream_f32)

/* --- reorder ------------------------------------------------------------------------ */

/*
 * Any layout into any other, by tiles of 16 x 16 transposed in registers. Like the reference it
 * goes by the layouts of the call's operands, not by those in its row. Lanes past N and columns
 * of panels past K become zeros.
 */
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

SONDE__ISA_KERNEL(reorder, "tiles", stream_f32, (SONDE__PLAIN), (SONDE__PLAIN),
                  reorder_run, .parts = stream_parts)
