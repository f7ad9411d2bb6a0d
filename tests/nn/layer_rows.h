/*
 * layer_rows.h - every layer of the table as a small model.
 */
#ifndef SONDE_TESTS_NN_LAYER_ROWS_H
#define SONDE_TESTS_NN_LAYER_ROWS_H

#include "nn/ops/layer_row.h"

#include <sonde/nn/model.h>

enum { LAYER_ROW_INPUTS = 4 };

/* The shape of input i of a layer, for a batch of 4. */
const sonde__op_shape *layer_row_input(const sonde__op_layer *row, int i);
/* Adds those inputs to a model. */
void layer_row_inputs(sonde_nn_model *model, const sonde__op_layer *row,
                      sonde_nn_value in[LAYER_ROW_INPUTS]);
/* The layer over these inputs, with defaults: a number where one is required, and for its
 * first key the numbers that fit its inputs. */
sonde_nn_value layer_row_build_on(sonde_nn_model *model, const sonde__op_layer *row,
                                  const sonde_nn_value in[LAYER_ROW_INPUTS]);
/* The same over inputs of its own. */
sonde_nn_value layer_row_build(sonde_nn_model *model, const sonde__op_layer *row);

#endif
