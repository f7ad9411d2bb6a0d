/*
 * index.h - the ops of index.c and order.c, of which layers are made.
 */
#ifndef SONDE_NN_OPS_INDEX_H
#define SONDE_NN_OPS_INDEX_H

#include "nn/ops/ops.h"

extern const sonde__op_kind sonde__op_gather, sonde__op_gather_grad, sonde__op_scatter,
    sonde__op_scatter_grad, sonde__op_arg_sort, sonde__op_cumsum, sonde__op_arg_window;

#endif
