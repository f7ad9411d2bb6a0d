/*
 * index_layers.c - layers over index.c and order.c: gather, index_select, scatter,
 * scatter_add, index_add, argsort, sort, topk and cumsum, with
 * PyTorch's names and parameters.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/index.h"
#include "nn/ops/layer_row.h"

#include <math.h>

static const sonde__op_attrs adds = {.index = {.adds = true}};

const sonde__op_layer sonde__layer_gather = {
    .name = "gather",
    .kind = &sonde__op_gather,
    .inputs = 2,
    .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)},
    .help = "the elements of a at the places b (int64) along dim",
};

const sonde__op_layer sonde__layer_index_select = {
    .name = "index_select",
    .kind = &sonde__op_gather,
    .inputs = 2,
    .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)},
    .help = "the places b (int64, of one dimension) of the dimension dim of a",
};

const sonde__op_layer sonde__layer_scatter = {
    .name = "scatter",
    .kind = &sonde__op_scatter,
    .inputs = 3,
    .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)},
    .help = "a with the elements of c at the places b (int64) along dim; of several for "
            "a place the last",
};

const sonde__op_layer sonde__layer_scatter_add = {
    .name = "scatter_add",
    .kind = &sonde__op_scatter,
    .inputs = 3,
    .preset = &adds,
    .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)},
    .help = "a plus the elements of c at the places b (int64) along dim",
};

const sonde__op_layer sonde__layer_index_add = {
    .name = "index_add",
    .kind = &sonde__op_scatter,
    .inputs = 3,
    .preset = &adds,
    .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)},
    .help = "a plus c at the places b (int64, of one dimension) of the dimension dim",
};

/* --- order ---------------------------------------------------------------------------- */

#define DESCENDING                                                                       \
    SONDE__FIELD("descending", SONDE__FIELD_FLAG, order.descending, 0.0, 0, 1)

/* The places; keep_dims: and not the elements there. */
static sonde__op_value emit_sorted(const sonde__op_builder *builder,
                                   const sonde__op_attrs *attrs, sonde__op_value x)
{
    const sonde__op_attrs order = {.order = {.axis = attrs->order.axis,
                                             .k = attrs->order.k,
                                             .descending = attrs->order.descending}};
    const sonde__op_attrs axis = {.index = {.axis = attrs->order.axis}};
    const sonde__op_value places =
        builder->emit(builder, &sonde__op_arg_sort, &order, &x, 1);

    return places == 0 || attrs->order.indices
               ? places
               : builder->emit(builder, &sonde__op_gather, &axis,
                               (const sonde__op_value[]){x, places}, 2);
}

static sonde__op_value build_sorted(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return emit_sorted(builder, attrs, in[0]);
}

static const sonde__op_attrs places_alone = {.order = {.indices = true}};

const sonde__op_layer sonde__layer_argsort = {
    .name = "argsort",
    .kind = &sonde__op_arg_sort,
    .inputs = 1,
    .preset = &places_alone,
    .fields = {SONDE__FIELD_DIM("dim", order.axis, -1.0), DESCENDING},
    .help = "the places (int64) of the elements along dim, in order; NaN is the largest",
    .build = build_sorted,
};

const sonde__op_layer sonde__layer_sort = {
    .name = "sort",
    .kind = &sonde__op_gather,
    .inputs = 1,
    .fields = {SONDE__FIELD_DIM("dim", order.axis, -1.0), DESCENDING},
    .help = "the elements along dim, in order; NaN is the largest",
    .build = build_sorted,
};

const sonde__op_layer sonde__layer_topk = {
    .name = "topk",
    .kind = &sonde__op_gather,
    .inputs = 1,
    .fields = {SONDE__FIELD("k", SONDE__FIELD_WHOLE, order.k, (double)NAN, 1, 1 << 24),
               SONDE__FIELD_DIM("dim", order.axis, -1.0),
               SONDE__FIELD("largest", SONDE__FIELD_FLAG, order.descending, 1.0, 0, 1),
               SONDE__FIELD("indices", SONDE__FIELD_FLAG, order.indices, 0.0, 0, 1)},
    .help = "the k largest (or smallest) elements along dim, in order; or, as indices, "
            "their places (int64)",
    .build = build_sorted,
};

const sonde__op_layer sonde__layer_cumsum = {
    .name = "cumsum",
    .kind = &sonde__op_cumsum,
    .inputs = 1,
    .fields = {SONDE__FIELD_DIM("dim", order.axis, (double)NAN)},
    .help = "the sum of the elements up to each along dim",
};
