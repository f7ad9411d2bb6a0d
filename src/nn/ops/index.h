/*
 * index.h - the ops of index.c and order.c, of which layers are made.
 */
#ifndef SONDE_NN_OPS_INDEX_H
#define SONDE_NN_OPS_INDEX_H

#include "nn/ops/ops.h"

#endif
