/*
 * sgd_kernels.h - the SGD op, with vital signs of gradient, weight and momentum buffer in
 * the same pass. Included by sgd_generic.c, _avx2.c and _avx512.c, which define
 * ISA(name). The loop itself is in sgd_update.h.
 */
#ifndef SONDE_NN_OPS_SGD_KERNELS_H
#define SONDE_NN_OPS_SGD_KERNELS_H

#include "nn/ops/fast_linear.h"
#include "nn/ops/sgd_update.h"
#include "nn/ops/stream_kernels.h"

/* Vital signs: of in[1] (g), out[0] (w) and out[1] (v). */
static void sgd_run(const sonde__call *call, int part, int parts)
{
    const stream_span mine =
        stream_part(sonde__shape_count(&call->in[0].shape), part, parts);
    const sgd_arrays all = {call->in[0].data, call->in[1].data,
                            call->in_count > 2 ? call->in[2].data : NULL,
                            call->out[0].data, call->out[1].data};
    const sgd_arrays at = sgd_advanced(&all, mine.begin);
    const sgd_rule rule = sgd_rule_of(call->live, all.v != NULL);
    const sgd_vitals vitals = {call->out_vitals[0], call->in_vitals[1],
                               call->out_vitals[1]};

    sgd_vitals_init(&vitals);
    sgd_update_observed(&rule, &at, mine.end - mine.begin, &vitals);
}

static const sonde__kernel sgd_flat = {
    .name = "flat",
    .accepts = stream_f32,
    .parts = stream_parts,
    .fuses_vitals = true,
    .run = sgd_run,
};

const sonde__kernel *const *const ISA(sonde__sgd_lists)[] = {
    (const sonde__kernel *const[]){&sgd_flat, NULL},
};

#endif
