/*
 * shape_layers.c - layers that move elements: flatten, reshape, permute, transpose,
 * unsqueeze, squeeze, expand and stack, under PyTorch's names, over the ops of shape.c and cat.c.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

#define AXIS(key, member, fallback)                                                      \
    SONDE__FIELD(key, SONDE__FIELD_AXIS, member, fallback, -SONDE_MAX_DIMS,              \
                 SONDE_MAX_DIMS - 1)

static sonde__op_value build_flatten(const sonde__op_builder *builder,
                                     sonde__op_attrs *attrs, const sonde__op_value *in)
{
    sonde__op_attrs dims = {0};

    if (sonde__op_expect_axis(&attrs->shape.axis,
                              sonde__op_value_shape(builder->graph, in[0])->rank,
                              builder->diag) != SONDE_OK) {
        return 0;
    }
    dims.shape.rank = attrs->shape.axis + 1;
    dims.shape.dims[attrs->shape.axis] = -1; /* the dimensions before are 0: copied */
    return builder->emit(builder, &sonde__op_reshape, &dims, in, 1);
}

const sonde__op_layer sonde__layer_flatten = {
    .name = "flatten",
    .kind = &sonde__op_reshape,
    .inputs = 1,
    .fields = {AXIS("start_dim", shape.axis, 1.0)},
    .help = "the dimensions from start_dim on as one",
    .build = build_flatten,
};

const sonde__op_layer sonde__layer_reshape = {
    .name = "reshape",
    .kind = &sonde__op_reshape,
    .inputs = 1,
    .fields = {SONDE__FIELD("shape", SONDE__FIELD_DIMS, shape.dims, (double)NAN, -1,
                            1e15)},
    .help = "the same elements in another shape; -1 is inferred, 0 is copied from x",
};

const sonde__op_layer sonde__layer_permute = {
    .name = "permute",
    .kind = &sonde__op_transpose,
    .inputs = 1,
    .fields = {SONDE__FIELD("dims", SONDE__FIELD_DIMS, shape.dims, (double)NAN,
                            -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1)},
    .help = "the dimensions in another order",
};

static sonde__op_value build_transpose(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const int rank = sonde__op_value_shape(builder->graph, in[0])->rank;
    int first = attrs->shape.axis, second = attrs->shape.other;

    if (sonde__op_expect_axis(&first, rank, builder->diag) != SONDE_OK ||
        sonde__op_expect_axis(&second, rank, builder->diag) != SONDE_OK) {
        return 0;
    }
    attrs->shape.rank = rank;
    for (int i = 0; i < rank; i++) {
        attrs->shape.dims[i] = i == first ? second : i == second ? first : i;
    }
    return builder->emit(builder, &sonde__op_transpose, attrs, in, 1);
}

const sonde__op_layer sonde__layer_transpose = {
    .name = "transpose",
    .kind = &sonde__op_transpose,
    .inputs = 1,
    .fields = {AXIS("dim0", shape.axis, (double)NAN),
               AXIS("dim1", shape.other, (double)NAN)},
    .help = "two dimensions exchanged",
    .build = build_transpose,
};

/* x with a dimension of 1 put in at `axis`, or (axis given as -1 - axis) taken out. The
 * batch stays open: its dim is copied, or the one that is inferred. */
static sonde__op_value emit_dims(const sonde__op_builder *builder, sonde__op_value x,
                                 int axis, bool out)
{
    const sonde__op_shape *shape = sonde__op_value_shape(builder->graph, x);
    sonde__op_attrs attrs = {.shape = {.rank = 0}};

    for (int i = 0; i < shape->rank; i++) {
        if (!out && i == axis) {
            attrs.shape.dims[attrs.shape.rank++] = 1;
        }
        if (!out || i != axis) {
            attrs.shape.dims[attrs.shape.rank++] = i == 0 ? -1 : shape->dim[i];
        }
    }
    if (!out && axis == shape->rank) {
        attrs.shape.dims[attrs.shape.rank++] = 1;
    }
    return builder->emit(builder, &sonde__op_reshape, &attrs, &x, 1);
}

static sonde__op_value build_unsqueeze(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const int rank = sonde__op_value_shape(builder->graph, in[0])->rank;

    if (rank >= SONDE_MAX_DIMS) {
        (void)sonde__fail(builder->diag, SONDE_ESHAPE, NULL, "at most 7 dimensions",
                          "an input of %d dimensions", rank);
        return 0;
    }
    return sonde__op_expect_axis(&attrs->shape.axis, rank + 1, builder->diag) == SONDE_OK
               ? emit_dims(builder, in[0], attrs->shape.axis, false)
               : 0;
}

static sonde__op_value build_squeeze(const sonde__op_builder *builder,
                                     sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_shape *x = sonde__op_value_shape(builder->graph, in[0]);

    if (sonde__op_expect_axis(&attrs->shape.axis, x->rank, builder->diag) != SONDE_OK) {
        return 0;
    }
    if (attrs->shape.axis == 0 || x->dim[attrs->shape.axis] != 1) {
        (void)sonde__fail(builder->diag, SONDE_ESHAPE, NULL,
                          "a dimension of 1, not that of the batch",
                          "dimension %d has %lld elements", attrs->shape.axis,
                          (long long)x->dim[attrs->shape.axis]);
        return 0;
    }
    return emit_dims(builder, in[0], attrs->shape.axis, true);
}

const sonde__op_layer sonde__layer_unsqueeze = {
    .name = "unsqueeze",
    .kind = &sonde__op_reshape,
    .inputs = 1,
    .fields = {AXIS("dim", shape.axis, (double)NAN)},
    .help = "a dimension of 1 put in at dim",
    .build = build_unsqueeze,
};

const sonde__op_layer sonde__layer_squeeze = {
    .name = "squeeze",
    .kind = &sonde__op_reshape,
    .inputs = 1,
    .fields = {AXIS("dim", shape.axis, (double)NAN)},
    .help = "without the dimension dim, which is 1",
    .build = build_squeeze,
};

const sonde__op_layer sonde__layer_expand = {
    .name = "expand",
    .kind = &sonde__op_broadcast,
    .inputs = 1,
    .fields = {SONDE__FIELD("size", SONDE__FIELD_DIMS, shape.dims, (double)NAN, -1, 1e9)},
    .help = "repeated along dimensions of 1 to size; -1 keeps a dimension",
};

static sonde__op_value build_stack(const sonde__op_builder *builder,
                                   sonde__op_attrs *attrs, const sonde__op_value *in)
{
    sonde__op_value parts[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        parts[i] = build_unsqueeze(builder, attrs, &in[i]);
        if (parts[i] == 0) {
            return 0;
        }
    }
    return builder->emit(builder, &sonde__op_cat,
                         &(sonde__op_attrs){.along = {.axis = attrs->shape.axis}}, parts,
                         2);
}

const sonde__op_layer sonde__layer_stack = {
    .name = "stack",
    .kind = &sonde__op_cat,
    .inputs = 2,
    .fields = {AXIS("dim", shape.axis, 0.0)},
    .help = "a and b along a new dimension at dim",
    .build = build_stack,
};
