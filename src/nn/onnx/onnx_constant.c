/*
 * onnx_constant.c - what folding makes constants with: copies, lists, broadcasting.
 */
#include "nn/onnx/onnx_constant.h"
#include "base/macros.h"

#include <string.h>

typedef sonde__onnx_number number;
typedef sonde__onnx_constant constant;

constant *sonde__onnx_no_constant(const sonde__onnx_node *node, const char *found)
{
    (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, NULL, "%s", found);
    return NULL;
}

void sonde__onnx_dims(const constant *c, int64_t dim[SONDE_MAX_DIMS])
{
    for (int i = 0; i < c->rank; i++) {
        dim[i] = sonde__onnx_dim(c, i);
    }
}

constant *sonde__onnx_list(const sonde__onnx_node *node, int type, size_t count)
{
    return sonde__onnx_constant_make(node, type, 1, (int64_t[]){(int64_t)count});
}

/* A whole constant of a uniform one whose dims are fixed; c itself, copied, otherwise. */
constant *sonde__onnx_copy(const sonde__onnx_node *node, const constant *c)
{
    int64_t dim[SONDE_MAX_DIMS];
    constant *made = NULL;

    sonde__onnx_dims(c, dim);
    made = sonde__onnx_constant_make(node, c->type, c->uniform ? 0 : c->rank, dim);
    if (made == NULL) {
        return NULL;
    }
    memcpy(made->items, c->items, made->count * sizeof made->items[0]);
    made->rank = c->rank;
    memcpy(made->dim, c->dim, sizeof made->dim);
    made->uniform = c->uniform;
    return made;
}

/* The tensor of an attribute. */
constant *sonde__onnx_read(const sonde__onnx_node *node,
                           const SondeOnnx__TensorProto *proto)
{
    sonde__onnx_tensor tensor;
    sonde_diag diag = {0};
    constant *made = NULL;
    const sonde_err err = sonde__onnx_tensor_open(node->import->file, proto,
                                                  "its constant", &tensor, &diag);

    if (err != SONDE_OK) {
        (void)sonde__onnx_refuse(node, err, diag.expected, "%s: %s", diag.where,
                                 diag.found);
        return NULL;
    }
    made = sonde__onnx_constant_make(node, tensor.type, tensor.rank, tensor.dim);
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        made->items[i].base = sonde__onnx_tensor_number(&tensor, i);
    }
    sonde__onnx_tensor_close(&tensor);
    return made;
}

/* The dims that two shapes broadcast to; false: they do not, or depend on the batch. */
bool sonde__onnx_broadcast(const constant *a, const constant *b, int *rank,
                           int64_t dim[SONDE_MAX_DIMS])
{
    *rank = SONDE_MAX(a->rank, b->rank);
    for (int i = 0; i < *rank; i++) {
        const int at_a = i - (*rank - a->rank), at_b = i - (*rank - b->rank);
        const number one = {1.0, 0.0};
        const number x = at_a >= 0 ? a->dim[at_a] : one;
        const number y = at_b >= 0 ? b->dim[at_b] : one;

        if (!sonde__onnx_fixed(x) || !sonde__onnx_fixed(y) ||
            (x.base != y.base && x.base != 1.0 && y.base != 1.0)) {
            return false;
        }
        dim[i] = (int64_t)(x.base == 1.0 ? y.base : x.base);
    }
    return true;
}

/* The place in c of element i of a shape that c broadcasts to. */
size_t sonde__onnx_place(const constant *c, int rank, const int64_t *dim, size_t i)
{
    size_t place = 0, stride = 1;

    for (int d = rank; d-- > 0;) {
        const size_t along = i % (size_t)dim[d];
        const int own = d - (rank - c->rank);

        i /= (size_t)dim[d];
        if (own >= 0) {
            const size_t size = (size_t)c->dim[own].base;

            place += size == 1 ? 0 : along * stride;
            stride *= size;
        }
    }
    return place;
}
