/*
 * onnx_ops.c - finds an op in the tables.
 */
#include "nn/onnx/onnx_ops.h"
#include "base/macros.h"

#include <string.h>

const sonde__onnx_op *sonde__onnx_find_op(const char *name)
{
    const sonde__onnx_op *const tables[] = {
        sonde__onnx_plain_ops, sonde__onnx_layer_ops,   sonde__onnx_shape_ops,
        sonde__onnx_place_ops, sonde__onnx_element_ops, sonde__onnx_recurrent_ops,
        sonde__onnx_fold_ops};

    for (size_t t = 0; t < SONDE_COUNT_OF(tables); t++) {
        for (size_t i = 0; tables[t][i].name != NULL; i++) {
            if (strcmp(tables[t][i].name, name) == 0) {
                return &tables[t][i];
            }
        }
    }
    return NULL;
}
