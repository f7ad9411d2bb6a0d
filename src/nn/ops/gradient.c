/*
 * gradient.c - what gradient rules have in common.
 *
 * A rule may be called with fewer inputs than its op can have: its arrays have an entry
 * for each that it can, false and 0 where there is none.
 */
#include "nn/ops/common.h"

#include <string.h>

sonde__op_value sonde__op_emit_shaped(const sonde__op_gradient_context *context,
                                      const sonde__op_kind *kind, sonde__op_value like,
                                      const sonde__op_value *in, int in_count)
{
    const sonde__op_shape *shape = sonde__op_value_shape(context->graph, like);
    sonde__op_attrs attrs = *context->attrs;

    attrs.rank = shape->rank;
    memcpy(attrs.dims, shape->dim, sizeof attrs.dims);
    return sonde__op_emit(context->graph, kind, &attrs, in, in_count);
}

sonde__op_value sonde__op_emit_sum_to(const sonde__op_gradient_context *context,
                                      sonde__op_value from, sonde__op_value like)
{
    const sonde__op_shape wide = *sonde__op_value_shape(context->graph, from);
    const sonde__op_shape narrow = *sonde__op_value_shape(context->graph, like);
    const int lead = wide.rank - narrow.rank;
    sonde__op_attrs attrs = {.keep_dims = true};

    for (int i = 0; i < wide.rank; i++) {
        if (i < lead || (narrow.dim[i - lead] == 1 && wide.dim[i] != 1)) {
            attrs.axes |= 1u << i;
        }
    }
    if (attrs.axes != 0) {
        from = sonde__op_emit(context->graph, &sonde__op_reduce, &attrs, &from, 1);
    }
    return lead == 0 ? from
                     : sonde__op_emit_shaped(context, &sonde__op_reshape, like, &from, 1);
}
