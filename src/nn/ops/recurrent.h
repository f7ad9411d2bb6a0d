/*
 * recurrent.h - what recurrent.c and recurrent_grad.c share: cells, sizes and steps.
 */
#ifndef SONDE_NN_OPS_RECURRENT_H
#define SONDE_NN_OPS_RECURRENT_H

#include "base/fail.h"
#include "nn/kernels/gemm.h"
#include "nn/ops/common.h"

enum { SONDE__RNN_TANH = 0, SONDE__RNN_RELU = 1, SONDE__LSTM = 2, SONDE__GRU = 3 };

typedef struct sonde__op_recurrent_sizes {
    int64_t samples, steps, inputs, units;
    int64_t gates; /* G H: rows of the weights */
    int64_t width; /* of a step of the gates' output */
} sonde__op_recurrent_sizes;

static inline int64_t sonde__op_recurrent_gates(const sonde__op_attrs *attrs)
{
    return attrs->recurrent.cell == SONDE__LSTM  ? 4
           : attrs->recurrent.cell == SONDE__GRU ? 3
                                                 : 1;
}

static inline sonde__op_recurrent_sizes
sonde__op_recurrent_sizes_of(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    const int64_t units = attrs->recurrent.units;

    return (sonde__op_recurrent_sizes){
        .samples = x->dim[0],
        .steps = x->dim[1],
        .inputs = x->dim[2],
        .units = units,
        .gates = sonde__op_recurrent_gates(attrs) * units,
        .width =
            (attrs->recurrent.cell == SONDE__GRU ? 4 : sonde__op_recurrent_gates(attrs)) *
            units};
}

static inline sonde_err sonde__op_recurrent_expect_cell(const sonde__op_attrs *attrs,
                                                        sonde_diag *diag)
{
    if (attrs->recurrent.cell < SONDE__RNN_TANH || attrs->recurrent.cell > SONDE__GRU ||
        attrs->recurrent.units < 1 || attrs->recurrent.units > SONDE__MAX_EXTENT) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "a cell, and at least one unit",
                           "cell %d of %lld units", attrs->recurrent.cell,
                           (long long)attrs->recurrent.units);
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
    const double work = (double)sonde__op_shape_count(h) *
                        (double)call->attrs->recurrent.units / 100000.0;
    const double parts = work < samples ? work : samples;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

/* The i-th step in the order of the op, and the one before it; -1: none. */
static inline int64_t sonde__op_recurrent_step(const sonde__op_attrs *attrs,
                                               int64_t steps, int64_t i)
{
    return i < 0 ? -1 : attrs->recurrent.reversed ? steps - 1 - i : i;
}

/* Whether the products are of float32, or of attrs.half. */
static inline bool sonde__op_recurrent_is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32 || sonde__op_is_half(call->attrs->half);
}

/* Bytes for a product of m rows over k, of the dtype that attrs says. */
static inline size_t sonde__op_recurrent_scratch(const sonde__op_attrs *attrs, int64_t m,
                                                 int64_t k)
{
    return sonde__op_is_half(attrs->half) ? sonde__kernel_half_gemm_scratch(m, k)
                                          : sonde__kernel_gemm_scratch();
}

/* Element i of an operand of float32 or 16 bits. */
static inline void *sonde__op_recurrent_place(const sonde__operand *operand, int64_t i)
{
    return (char *)operand->data + (size_t)i * sonde_dtype_size(operand->shape.dtype);
}

/* An operand of a product from element `start` on. */
static inline sonde__kernel_half_matrix
sonde__op_recurrent_matrix(const sonde__operand *operand, int64_t start, int64_t row,
                           int64_t col)
{
    return (sonde__kernel_half_matrix){sonde__op_recurrent_place(operand, start),
                                       operand->shape.dtype, row, col};
}

/* `count` numbers from element i on, as float32: where they lie, or in `room`. */
static inline const float *sonde__op_recurrent_floats(const sonde__operand *operand,
                                                      int64_t i, int64_t count,
                                                      float *room)
{
    const void *const place = sonde__op_recurrent_place(operand, i);

    if (!sonde__op_is_half(operand->shape.dtype)) {
        return place;
    }
    sonde__kernel_half_widen(operand->shape.dtype, place, count, room);
    return room;
}

/* Where `count` numbers of an output from element i on are made: there, or in `room`, from
 * which sonde__op_recurrent_keep stores them. */
static inline float *sonde__op_recurrent_room(const sonde__operand *operand, int64_t i,
                                              float *room)
{
    return sonde__op_is_half(operand->shape.dtype)
               ? room
               : (float *)sonde__op_recurrent_place(operand, i);
}

static inline void sonde__op_recurrent_keep(const sonde__operand *operand, int64_t i,
                                            int64_t count, const float *room)
{
    if (sonde__op_is_half(operand->shape.dtype)) {
        sonde__kernel_half_narrow(room, count, operand->shape.dtype,
                                  sonde__op_recurrent_place(operand, i));
    }
}

static inline size_t sonde__op_recurrent_rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
