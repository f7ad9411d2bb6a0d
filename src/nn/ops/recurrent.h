/*
 * recurrent.h - what recurrent.c and recurrent_grad.c share: cells, sizes and steps.
 */
#ifndef SONDE_NN_OPS_RECURRENT_H
#define SONDE_NN_OPS_RECURRENT_H

#include "base/fail.h"
#include "nn/ops/common.h"

extern const sonde__op_kind sonde__op_recurrent, sonde__op_recurrent_grad;

enum { SONDE__RNN_TANH = 0, SONDE__RNN_RELU = 1, SONDE__LSTM = 2, SONDE__GRU = 3 };

typedef struct sonde__op_recurrent_sizes {
    int64_t samples, steps, inputs, units;
    int64_t gates; /* G H: rows of the weights */
    int64_t width; /* of a step of the gates' output */
} sonde__op_recurrent_sizes;

static inline int64_t sonde__op_recurrent_gates(const sonde__op_attrs *attrs)
{
    return attrs->choice == SONDE__LSTM ? 4 : attrs->choice == SONDE__GRU ? 3 : 1;
}

static inline sonde__op_recurrent_sizes
sonde__op_recurrent_sizes_of(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    const int64_t units = attrs->groups;

    return (sonde__op_recurrent_sizes){
        .samples = x->dim[0],
        .steps = x->dim[1],
        .inputs = x->dim[2],
        .units = units,
        .gates = sonde__op_recurrent_gates(attrs) * units,
        .width =
            (attrs->choice == SONDE__GRU ? 4 : sonde__op_recurrent_gates(attrs)) * units};
}

static inline sonde_err sonde__op_recurrent_expect_cell(const sonde__op_attrs *attrs,
                                                        sonde_diag *diag)
{
    if (attrs->choice < SONDE__RNN_TANH || attrs->choice > SONDE__GRU ||
        attrs->groups < 1 || attrs->groups > SONDE__MAX_EXTENT) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "a cell, and at least one unit",
                           "cell %d of %lld units", attrs->choice,
                           (long long)attrs->groups);
    }
    return SONDE_OK;
}

static inline sonde__op_shape sonde__op_recurrent_sequence(const sonde__op_shape *x,
                                                           int64_t width)
{
    sonde__op_shape shape = *x;

    shape.dim[2] = width;
    return shape;
}

/* A part has at least 100000 multiplications; in double, which no shape overflows. */
static inline int sonde__op_recurrent_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *h = &call->out[0].shape;
    const double samples = (double)h->dim[0];
    const double work =
        (double)sonde__op_shape_count(h) * (double)call->attrs->groups / 100000.0;
    const double parts = work < samples ? work : samples;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

/* The i-th step in the order of the op, and the one before it; -1: none. */
static inline int64_t sonde__op_recurrent_step(const sonde__op_attrs *attrs,
                                               int64_t steps, int64_t i)
{
    return i < 0 ? -1 : attrs->affine ? steps - 1 - i : i;
}

static inline bool sonde__op_recurrent_is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

static inline size_t sonde__op_recurrent_rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
