/*
 * sgd_kernels.c - the SGD op, with vital signs of gradient, weight and momentum buffer in
 * the same pass. The loop itself is in sgd_update.h.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/sgd_update.h"
#include "nn/kernels/stream_kernels.h"

/* Vital signs: of in[1] (g), out[0] (w) and out[1] (v). */
static sgd_vitals sgd_wanted(const sonde__op_call *call)
{
    const bool full = call->in_vitals[1] != NULL && (call->norms_in >> 1U & 1U) == 0;
    const sgd_vitals wanted = {call->out_vitals[0], call->in_vitals[1],
                               call->out_vitals[1],
                               !full && sonde__op_wants_norms(call, 1U << 0 | 1U << 1)};

    return wanted;
}

static size_t sgd_scratch(const sonde__op_call *call, int parts)
{
    (void)parts;
    return sgd_signs_bytes(sonde__op_shape_count(&call->in[0].shape));
}

static void sgd_finish(const sonde__op_call *call, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const sgd_vitals wanted = sgd_wanted(call);
    const sgd_vitals signs = sgd_signs(&wanted, call->scratch, count);

    (void)parts;
    sgd_signs_merge(&wanted, &signs, count);
}

/* Parts are whole blocks of vital signs. */
static void sgd_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->in[0].shape);
    const int64_t blocks = (count + SONDE__VITALS_BLOCK - 1) / SONDE__VITALS_BLOCK;
    const int64_t begin = blocks * part / parts * SONDE__VITALS_BLOCK;
    const int64_t end =
        SONDE_MIN(blocks * (part + 1) / parts * SONDE__VITALS_BLOCK, count);
    const sgd_arrays all = {call->in[0].data,
                            call->in[1].data,
                            call->in_count > 2 ? call->in[2].data : NULL,
                            call->out[0].data,
                            call->out[1].data,
                            sonde__op_part_bad(call, part)};
    const sgd_arrays mine = sgd_advanced(&all, begin);
    const sgd_rule rule = sgd_rule_of(call->live, all.v != NULL);
    const sgd_vitals wanted = sgd_wanted(call);
    const sgd_vitals signs = sgd_signs(&wanted, call->scratch, count);

    if (!sgd_any_wanted(&wanted)) {
        sgd_update(&rule, &mine, end - begin);
        return;
    }
    if (parts == 1 && blocks == 1) { /* nothing to merge */
        sgd_block(&rule, &all, count, &wanted);
        return;
    }
    for (int64_t i = begin; i < end; i += SONDE__VITALS_BLOCK) {
        const sgd_arrays block = sgd_advanced(&all, i);
        const sgd_vitals into = sgd_signs_of_block(&signs, i / SONDE__VITALS_BLOCK);

        sgd_block(&rule, &block, SONDE_MIN(end - i, SONDE__VITALS_BLOCK), &into);
    }
    if (parts == 1) {
        sgd_finish(call, 1);
    }
}

const sonde__op_kernel ISA(sonde__kernel_sgd) = {
    .name = "flat",
    .accepts = stream_f32,
    .scratch = sgd_scratch,
    .parts = stream_parts,
    .vitals_in = 1U << 1,
    .vitals_out = 1U << 0 | 1U << 1,
    .run = sgd_run,
    .finish = sgd_finish,
};
