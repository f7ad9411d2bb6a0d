/*
 * operand_vitals.h - vital signs of the values that ops make, and the order of their
 * sums.
 *
 * A value is taken as it lies in memory: those of sonde_vitals_of of its elements in that
 * order, lanes past N left out. PLAIN values, all parameters among them, thus have the
 * very bits of sonde_vitals_of; values in LANES those of the elements in the order [N /
 * 16][inner] [16]. A value that a fused kernel does not keep is derived from one it
 * keeps: the gradient that a max-pool spreads is the pool's gradient, and zeros.
 *
 * None of this depends on threads, on the instruction set or on other taps.
 */
#ifndef SONDE_NN_KERNELS_OPERAND_VITALS_H
#define SONDE_NN_KERNELS_OPERAND_VITALS_H

#include "nn/kernels/call.h"

/* Whether sonde__kernel_operand_vitals takes such a value: anything PLAIN, float32 and
 * uint8 in LANES. */
bool sonde__kernel_has_operand_vitals(sonde_dtype dtype, sonde__op_layout layout);
/* norms: the norms alone. */
void sonde__kernel_operand_vitals(const sonde__operand *operand, bool norms,
                                  sonde_vitals *vitals);

/* to[i] = gate[i] <= 0 ? 0 : x[i] of n elements, n a multiple of 16. */
typedef void sonde__kernel_gate_fn(const float *x, const float *gate, size_t n,
                                   float *target);
/* Of a float32 in LANES, gated by a value in LANES. */
void sonde__kernel_gated_vitals(const sonde__operand *x, const float *gate,
                                sonde__kernel_gate_fn *apply, bool norms,
                                sonde_vitals *vitals);

/* Of a value of `count` elements that consists of the elements vitals describe, and
 * zeros. */
void sonde__kernel_pad_vitals(sonde_vitals *vitals, int64_t count);

#endif
