/*
 * index_layers.c - layers over index.c and order.c: gather, index_select, scatter,
 * scatter_add, index_add, argsort, sort, topk, cumsum and adaptive_max_pool2d, with
 * PyTorch's names and parameters.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/index.h"
#include "nn/ops/layer_row.h"

#include <math.h>

extern const sonde__op_layer sonde__layer_gather, sonde__layer_index_select,
    sonde__layer_scatter, sonde__layer_scatter_add, sonde__layer_index_add,
    sonde__layer_argsort, sonde__layer_sort, sonde__layer_topk, sonde__layer_cumsum,
    sonde__layer_adaptive_max_pool2d;

static const sonde__op_attrs adds = {.choice = 1};

#define DIM(fallback)                                                                    \
    SONDE__FIELD("dim", SONDE__FIELD_AXIS, axis, fallback, -SONDE_MAX_DIMS,              \
                 SONDE_MAX_DIMS - 1)

const sonde__op_layer sonde__layer_gather = {
    .name = "gather",
    .kind = &sonde__op_gather,
    .inputs = 2,
    .fields = {DIM((double)NAN)},
    .help = "the elements of a at the places b (int64) along dim",
};

const sonde__op_layer sonde__layer_index_select = {
    .name = "index_select",
    .kind = &sonde__op_gather,
    .inputs = 2,
    .fields = {DIM((double)NAN)},
    .help = "the places b (int64, of one dimension) of the dimension dim of a",
};

const sonde__op_layer sonde__layer_scatter = {
    .name = "scatter",
    .kind = &sonde__op_scatter,
    .inputs = 3,
    .fields = {DIM((double)NAN)},
    .help = "a with the elements of c at the places b (int64) along dim; of several for "
            "a place the last",
};

const sonde__op_layer sonde__layer_scatter_add = {
    .name = "scatter_add",
    .kind = &sonde__op_scatter,
    .inputs = 3,
    .preset = &adds,
    .fields = {DIM((double)NAN)},
    .help = "a plus the elements of c at the places b (int64) along dim",
};

const sonde__op_layer sonde__layer_index_add = {
    .name = "index_add",
    .kind = &sonde__op_scatter,
    .inputs = 3,
    .preset = &adds,
    .fields = {DIM((double)NAN)},
    .help = "a plus c at the places b (int64, of one dimension) of the dimension dim",
};

/* --- order ---------------------------------------------------------------------------- */

#define DESCENDING SONDE__FIELD("descending", SONDE__FIELD_FLAG, mean, 0.0, 0, 1)

/* The places; keep_dims: and not the elements there. */
static sonde__op_value emit_sorted(const sonde__op_builder *builder,
                                   const sonde__op_attrs *attrs, sonde__op_value x)
{
    const sonde__op_attrs order = {
        .axis = attrs->axis, .kernel = {attrs->kernel[0]}, .choice = attrs->mean ? 1 : 0};
    const sonde__op_attrs axis = {.axis = attrs->axis};
    const sonde__op_value places =
        builder->emit(builder, &sonde__op_arg_sort, &order, &x, 1);

    return places == 0 || attrs->keep_dims
               ? places
               : builder->emit(builder, &sonde__op_gather, &axis,
                               (const sonde__op_value[]){x, places}, 2);
}

static sonde__op_value build_sorted(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    return emit_sorted(builder, attrs, in[0]);
}

static const sonde__op_attrs places_alone = {.keep_dims = true};

const sonde__op_layer sonde__layer_argsort = {
    .name = "argsort",
    .kind = &sonde__op_arg_sort,
    .inputs = 1,
    .preset = &places_alone,
    .fields = {DIM(-1.0), DESCENDING},
    .help = "the places (int64) of the elements along dim, in order; NaN is the largest",
    .build = build_sorted,
};

const sonde__op_layer sonde__layer_sort = {
    .name = "sort",
    .kind = &sonde__op_gather,
    .inputs = 1,
    .fields = {DIM(-1.0), DESCENDING},
    .help = "the elements along dim, in order; NaN is the largest",
    .build = build_sorted,
};

const sonde__op_layer sonde__layer_topk = {
    .name = "topk",
    .kind = &sonde__op_gather,
    .inputs = 1,
    .fields = {SONDE__FIELD("k", SONDE__FIELD_WHOLE, kernel[0], (double)NAN, 1, 1 << 24),
               DIM(-1.0), SONDE__FIELD("largest", SONDE__FIELD_FLAG, mean, 1.0, 0, 1),
               SONDE__FIELD("indices", SONDE__FIELD_FLAG, keep_dims, 0.0, 0, 1)},
    .help = "the k largest (or smallest) elements along dim, in order; or, as indices, "
            "their places (int64)",
    .build = build_sorted,
};

const sonde__op_layer sonde__layer_cumsum = {
    .name = "cumsum",
    .kind = &sonde__op_cumsum,
    .inputs = 1,
    .fields = {DIM((double)NAN)},
    .help = "the sum of the elements up to each along dim",
};

/* --- adaptive_max_pool2d -------------------------------------------------------------- */

static sonde__op_value build_adaptive_max(const sonde__op_builder *builder,
                                          sonde__op_attrs *attrs,
                                          const sonde__op_value *in)
{
    const sonde__op_shape x = *sonde__op_value_shape(builder->graph, in[0]);
    const sonde__op_attrs flat = {.rank = 3, .dims = {-1, x.dim[1], x.dim[2] * x.dim[3]}};
    const sonde__op_attrs back = {
        .rank = 4, .dims = {-1, x.dim[1], attrs->kernel[0], attrs->kernel[1]}};
    const sonde__op_attrs last = {.axis = 2};
    sonde__op_value parts[2] = {0, 0}, y = 0;

    parts[1] = builder->emit(builder, &sonde__op_arg_window, attrs, in, 1);
    parts[0] =
        parts[1] == 0 ? 0 : builder->emit(builder, &sonde__op_reshape, &flat, in, 1);
    y = parts[0] == 0 ? 0 : builder->emit(builder, &sonde__op_gather, &last, parts, 2);
    return y == 0 ? 0 : builder->emit(builder, &sonde__op_reshape, &back, &y, 1);
}

const sonde__op_layer sonde__layer_adaptive_max_pool2d = {
    .name = "adaptive_max_pool2d",
    .kind = &sonde__op_arg_window,
    .inputs = 1,
    .fields = {SONDE__FIELD("output_size", SONDE__FIELD_PAIR, kernel, (double)NAN, 1,
                            1 << 24)},
    .help = "the largest of each of output_size windows",
    .build = build_adaptive_max,
};
