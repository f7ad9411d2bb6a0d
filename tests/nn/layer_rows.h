/*
 * layer_rows.h - every layer of the table as a small model.
 */
#ifndef SONDE_TESTS_NN_LAYER_ROWS_H
#define SONDE_TESTS_NN_LAYER_ROWS_H

#include "nn/ops/layer_row.h"

#include <sonde/nn/model.h>

/* Adds the layer's inputs, of a batch of 4, and the layer with defaults: a number where one
 * is required, and for its first key the numbers that fit its inputs. */
sonde_nn_value layer_row_build(sonde_nn_model *model, const sonde__op_layer *row);

#endif
