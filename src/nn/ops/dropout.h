/*
 * dropout.h - the factors that dropout multiplies by, for ops that drop something inside.
 */
#ifndef SONDE_NN_OPS_DROPOUT_H
#define SONDE_NN_OPS_DROPOUT_H

#include "nn/ops/ops.h"

/* Whether a call drops anything: attrs.p is the probability, and it is training. */
static inline bool sonde__op_drops(const sonde__op_call *call)
{
    return call->attrs->p > 0.0F && call->draw != NULL && call->draw->training;
}

/* The factor of element i: 0 or 1 / (1 - p), drawn from attrs.stream; 1 if nothing is
 * dropped. */
double sonde__op_dropout_factor(const sonde__op_call *call, int64_t i);
/* y[k] = x[k] times the factor of element first + k; y may be x. */
void sonde__op_dropout_row(const sonde__op_call *call, int64_t first, const float *x,
                           float *y, int64_t count);

#endif
