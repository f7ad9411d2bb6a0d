/*
 * stream_kernels.h - dividing flat arrays among threads, and taking vital signs on the
 * way: what element-wise ops and updates share. For the kernel files that are compiled
 * once per instruction set.
 */
#ifndef SONDE_NN_KERNELS_STREAM_KERNELS_H
#define SONDE_NN_KERNELS_STREAM_KERNELS_H

#include "nn/kernels/call.h"
#include "tensor/vitals.h"

enum { STREAM_GRAIN = 64 * 1024 /* elements that are worth a part: 256 KB an operand */ };

typedef struct stream_span {
    int64_t begin, end;
} stream_span;

/* Part `part` of `parts` of count things. */
static inline stream_span stream_share(int64_t count, int part, int parts)
{
    return (stream_span){count * part / parts, count * (part + 1) / parts};
}

/* Part `part` of `parts` of count elements: whole cache lines but for the last. */
static inline stream_span stream_part(int64_t count, int part, int parts)
{
    const stream_span lines = stream_share((count + 15) / 16, part, parts);

    return (stream_span){lines.begin * 16,
                         lines.end * 16 < count ? lines.end * 16 : count};
}

static inline int stream_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->in[0].shape) / STREAM_GRAIN;

    return parts < 1 ? 1 : parts < max ? (int)parts : max;
}

static inline bool stream_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

/* Of an empty tensor; NULL: nothing. norms: the norms alone. */
static inline void init_signs(sonde_vitals *vitals, bool norms)
{
    if (vitals != NULL && norms) {
        sonde__norms_init(vitals);
    } else if (vitals != NULL) {
        sonde_vitals_init(vitals);
    }
}

/* into := into + the block; NULL: nothing. norms: the norms alone. */
static inline void take_block(sonde_vitals *into, const float *block, int64_t n,
                              bool norms)
{
    sonde__norms_sums small;
    sonde__vitals_sums sums;

    if (into != NULL && block != NULL && norms) {
        sonde__norms_sums_of(block, (size_t)n, &small);
        sonde__norms_take(into, &small, block, (size_t)n);
    } else if (into != NULL && block != NULL) {
        sonde__vitals_sums_of(block, (size_t)n, &sums);
        sonde__vitals_take(into, &sums, block, (size_t)n);
    }
}

#endif
