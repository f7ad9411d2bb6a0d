/*
 * rows.h - functions of one row of adjacent floats: softmax, norms, activations. Kernels
 * over PLAIN operands call them, attention and recurrent layers too.
 *
 * A sum is that of VF_WIDTH chains, added up at the end: its bits depend on the row and
 * the instruction set. NaN and infinities take part as any number. Targets may be the
 * sources, not overlap them otherwise.
 */
#ifndef SONDE_NN_KERNELS_ROWS_H
#define SONDE_NN_KERNELS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include <sonde/export.h>

#include "base/cpu.h"
#include "nn/kernels/call.h"

/* One step of an LSTM back, of one sample: rows of `units`, y and da of four gates each.
 * last NULL: zeros, before the first step. */
typedef struct sonde__kernel_lstm_step {
    const float *y, *cell, *last, *dy, *dh;
    float *dc;      /* of the step after; becomes that of the step before */
    float *da, *dr; /* alike */
} sonde__kernel_lstm_step;

typedef struct sonde__kernel_row_functions {
    void (*scale)(float *x, float factor, int64_t count); /* x *= factor */
    /* y = softmax(x); a row of nothing but -Inf: 0 if `empty`, else NaN. */
    void (*softmax)(const float *x, float *y, int64_t count, bool empty);
    /* dx = y (dy - sum of dy y) */
    void (*softmax_grad)(const float *dy, const float *y, float *dx, int64_t count);
    void (*log_softmax)(const float *x, float *y, int64_t count);
    /* dx = dy - exp(y) sum of dy */
    void (*log_softmax_grad)(const float *dy, const float *y, float *dx, int64_t count);
    /* y = (x - mean) rstd weight + bias; weight and bias may be NULL. Stores mean and rstd,
     * which may be NULL. */
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float eps,
                       float *y, float *mean, float *rstd, int64_t count);
    /* dx of a row, see row_norm.c; weight may be NULL. */
    void (*layer_norm_grad)(const float *dy, const float *x, const float *weight,
                            float mean, float rstd, float *dx, int64_t count);
    /* dweight += dy (x - mean) rstd, dbias += dy */
    void (*layer_norm_sums)(const float *dy, const float *x, float mean, float rstd,
                            float *dweight, float *dbias, int64_t count);
    /* GELU by erf, or by tanh; and dx = dy times its slope at x. */
    void (*gelu)(const float *x, float *y, bool by_tanh, int64_t count);
    void (*gelu_grad)(const float *dy, const float *x, float *dx, bool by_tanh,
                      int64_t count);
    void (*exp)(const float *x, float *y, int64_t count);
    void (*log)(const float *x, float *y, int64_t count);
    void (*sigmoid)(const float *x, float *y, int64_t count);
    void (*tanh)(const float *x, float *y, int64_t count);
    /* See recurrent.c: gates before their functions become those after; c and h. last NULL:
     * zeros. */
    void (*lstm)(float *gates, const float *last, float *cell, float *h, int64_t units);
    void (*lstm_grad)(const sonde__kernel_lstm_step *step, int64_t units);
} sonde__kernel_row_functions;

extern const sonde__kernel_row_functions sonde__kernel_rows_generic,
    sonde__kernel_rows_avx2, sonde__kernel_rows_avx512;

/* Those of this processor; of an instruction set that it has, for tests. */
const sonde__kernel_row_functions *sonde__kernel_rows(void);
SONDE_API const sonde__kernel_row_functions *sonde__kernel_rows_of(sonde__isa isa);

/* Kernels of ops over PLAIN rows: softmax along the last axis, GELU; and lists,
 * NULL-terminated. */
extern const sonde__op_kernel sonde__kernel_softmax_rows, sonde__kernel_log_softmax_rows,
    sonde__kernel_softmax_grad_rows, sonde__kernel_log_softmax_grad_rows,
    sonde__kernel_gelu_rows, sonde__kernel_gelu_grad_rows;
const sonde__op_kernel *const *sonde__kernel_layer_norm_rows(void);
const sonde__op_kernel *const *sonde__kernel_layer_norm_grad_rows(void);

#endif
