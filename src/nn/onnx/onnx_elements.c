/*
 * onnx_elements.c - ONNX ops that take elements by their places, or put them there, and
 * that repeat or rearrange blocks of them.
 *
 *   GatherND   of data (B ..., D1 ... Dk, R ...) and indices (B ..., m ..., k): the first
 *              dimensions that indices name become one, of D1 ... Dk places, and the k
 *              numbers of an index one place in it; B are batch_dims.
 *   ScatterND  puts updates (m ..., R ...) there.
 */
#include "base/macros.h"
#include "nn/onnx/onnx_ops.h"

#include <math.h>
#include <string.h>

static const sonde__onnx_pair none = {0, 0};

/* Whole numbers that a float32 holds. */
static const double most_places = 16777216.0;

bool sonde__onnx_check_places(sonde__onnx_node *node, size_t i, double size)
{
    const sonde__onnx_constant *known = sonde__onnx_known(node, i);

    for (size_t k = 0; known != NULL && k < known->count; k++) {
        if (!(known->items[k].base >= 0.0 && known->items[k].base < size)) {
            return sonde__onnx_refuse(node, SONDE_ERANGE, "places of the dimension",
                                      "place %.0f of %.0f", known->items[k].base, size);
        }
    }
    return true;
}

/* GatherElements: data, indices. ScatterElements: data, indices, updates. */
static bool build_elements(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    static const sonde__onnx_word reductions[] = {{"none", "scatter"},
                                                  {"add", "scatter_add"}};
    const bool puts = op->kind == NULL;
    const char *kind =
        puts ? sonde__onnx_read_word(node, "reduction", "none", reductions,
                                     SONDE_COUNT_OF(reductions), "none or add")
             : op->kind;
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, own[SONDE_MAX_DIMS] = {{0}};
    int64_t axis = sonde__onnx_int(node, "axis", 0);
    sonde__onnx_pair in[3] = {none, none, none};
    int rank = 0;

    if (kind == NULL || !sonde__onnx_take_data(node, &in[0], &rank, dims) ||
        !sonde__onnx_check_axis(node, &axis, rank, dims) ||
        !sonde__onnx_check_places(node, 1, dims[axis].base)) {
        return false;
    }
    in[1] = sonde__onnx_take(node, 1, SONDE_ROLE_ACTIVATION);
    in[2] = puts ? sonde__onnx_take(node, 2, SONDE_ROLE_ACTIVATION) : none;
    if (node->import->err != SONDE_OK) {
        return false;
    }
    if (sonde__onnx_shape(node, in[1], own) != rank) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE, "as many dimensions as the data",
                                  "indices of %d dimensions for data of %d",
                                  sonde__onnx_shape(node, in[1], own), rank);
    }
    const sonde_nn_setting dim = SONDE__ONNX_SET("dim", axis);

    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, kind, in, puts ? 3 : 2, &dim, 1));
}

/* --- places of several dimensions --------------------------------------------------------- */

/* data, and the dimensions that indices name. */
typedef struct blocks {
    sonde__onnx_pair data, index;
    sonde__onnx_number dims[SONDE_MAX_DIMS], own[SONDE_MAX_DIMS]; /* of the two */
    int rank, index_rank;
    int batch, named; /* batch_dims, k */
} blocks;

static sonde__onnx_number times(sonde__onnx_number a, sonde__onnx_number b)
{
    return a.slope == 0.0 ? (sonde__onnx_number){a.base * b.base, a.base * b.slope}
                          : (sonde__onnx_number){a.base * b.base, a.slope * b.base};
}

/* The product of dims first ... last - 1. */
static sonde__onnx_number product(const sonde__onnx_number *dims, int first, int last)
{
    sonde__onnx_number made = {1.0, 0.0};

    for (int i = first; i < last; i++) {
        made = times(made, dims[i]);
    }
    return made;
}

static bool take_blocks(sonde__onnx_node *node, blocks *b)
{
    b->batch = (int)sonde__onnx_int(node, "batch_dims", 0);
    if (!sonde__onnx_take_data(node, &b->data, &b->rank, b->dims)) {
        return false;
    }
    b->index = sonde__onnx_take(node, 1, SONDE_ROLE_ACTIVATION);
    if (b->index.model == 0) {
        return false;
    }
    b->index_rank = sonde__onnx_shape(node, b->index, b->own);
    b->named = b->index_rank > 0 ? (int)b->own[b->index_rank - 1].base : 0;
    if (b->batch < 0 || b->batch > 1 || b->index_rank < b->batch + 1 || b->named < 1 ||
        b->named > b->rank - b->batch || b->own[b->index_rank - 1].slope != 0.0) {
        return sonde__onnx_refuse(
            node, SONDE_ESHAPE,
            "indices that name dimensions of the data, batch_dims "
            "0 or 1",
            "indices of %d numbers for %d dimensions, batch_dims %d", b->named, b->rank,
            b->batch);
    }
    for (int i = b->batch + 1; i < b->batch + b->named; i++) {
        if (b->dims[i].slope != 0.0) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "the first",
                                      "dimension %d of those that indices name is the "
                                      "batch",
                                      i);
        }
    }
    return true;
}

/* The k numbers of each index as one place, int64 of shape (B, m) or (m). A negative one
 * is refused where it is known. */
static sonde__onnx_pair one_place(sonde__onnx_node *node, const blocks *b)
{
    const sonde__onnx_number flat[2] = {
        b->batch > 0 ? b->own[0] : product(b->own, 0, b->index_rank - 1),
        product(b->own, 1, b->index_rank - 1)};
    sonde__onnx_pair sum = none, all = sonde__onnx_to(node, b->index, SONDE_F32);

    for (int k = 0; k < b->named && all.model != 0; k++) {
        const double stride =
            product(b->dims, b->batch + k + 1, b->batch + b->named).base;
        const sonde_nn_setting part[] = {SONDE__ONNX_SET("dim", b->index_rank - 1),
                                         SONDE__ONNX_SET("start", k),
                                         SONDE__ONNX_SET("end", k + 1)};
        const sonde_nn_setting factor = SONDE__ONNX_SET("value", stride);
        sonde__onnx_pair in[2] = {sum, sonde__onnx_emit(node, "slice", &all, 1, part, 3)};

        in[1] = stride == 1.0 ? in[1]
                              : sonde__onnx_emit(node, "scale", &in[1], 1, &factor, 1);
        sum = k == 0 ? in[1] : sonde__onnx_emit(node, "add", in, 2, NULL, 0);
        if (sum.model == 0) {
            return none;
        }
    }
    sum = sum.model != 0 ? sonde__onnx_reshape(node, sum, 1 + b->batch, flat) : none;
    return sonde__onnx_to(node, sum, SONDE_I64);
}

/* data as (B, D1 ... Dk, R) or (D1 ... Dk, R). */
static sonde__onnx_pair in_blocks(sonde__onnx_node *node, const blocks *b)
{
    const int last = b->batch + b->named;
    const sonde__onnx_number places = product(b->dims, b->batch, last);
    sonde__onnx_number flat[3] = {b->dims[0]};

    if (places.base + places.slope * node->import->batch > most_places) {
        (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "at most 16,777,216",
                                 "indices of %.0f places",
                                 places.base + places.slope * node->import->batch);
        return none;
    }
    flat[b->batch] = places;
    flat[b->batch + 1] = product(b->dims, last, b->rank);
    return sonde__onnx_reshape(node, b->data, 2 + b->batch, flat);
}

/* Places (B, m) for each of R elements: (B, m, R). */
static sonde__onnx_pair for_all(sonde__onnx_node *node, sonde__onnx_pair places,
                                const blocks *b)
{
    const sonde__onnx_number rest = product(b->dims, b->batch + b->named, b->rank);
    const sonde_nn_setting size = {
        .key = "size", .values = {-1.0, -1.0, rest.base}, .count = 3};
    const sonde__onnx_number wide[3] = {
        b->own[0], product(b->own, 1, b->index_rank - 1), {1.0, 0.0}};

    places = places.model != 0 ? sonde__onnx_to(node, places, SONDE_F32) : none;
    places = places.model != 0 ? sonde__onnx_reshape(node, places, 3, wide) : none;
    places =
        places.model != 0 ? sonde__onnx_emit(node, "expand", &places, 1, &size, 1) : none;
    return places.model != 0 ? sonde__onnx_to(node, places, SONDE_I64) : none;
}

static bool build_gather_nd(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    blocks b = {.rank = 0};
    sonde__onnx_number want[SONDE_MAX_DIMS];
    sonde__onnx_pair in[2] = {none, none};
    int made = 0;

    (void)op;
    if (!take_blocks(node, &b)) {
        return false;
    }
    in[0] = in_blocks(node, &b);
    in[1] = in[0].model != 0 ? one_place(node, &b) : none;
    in[1] = b.batch > 0 && in[1].model != 0 ? for_all(node, in[1], &b) : in[1];
    if (in[1].model == 0) {
        return false;
    }
    const sonde_nn_setting dim = SONDE__ONNX_SET("dim", b.batch);

    in[0] =
        sonde__onnx_emit(node, b.batch > 0 ? "gather" : "index_select", in, 2, &dim, 1);
    for (int i = 0; i < b.index_rank - 1; i++) {
        want[made++] = b.own[i];
    }
    for (int i = b.batch + b.named; i < b.rank && made < SONDE_MAX_DIMS; i++) {
        want[made++] = b.dims[i];
    }
    return in[0].model != 0 &&
           sonde__onnx_give(node, 0, sonde__onnx_reshape(node, in[0], made, want));
}

static bool build_scatter_nd(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    static const sonde__onnx_word reductions[] = {{"none", "scatter"},
                                                  {"add", "index_add"}};
    const char *kind = sonde__onnx_read_word(node, "reduction", "none", reductions,
                                             SONDE_COUNT_OF(reductions), "none or add");
    const sonde_nn_setting dim = SONDE__ONNX_SET("dim", 0);
    blocks b = {.rank = 0};
    sonde__onnx_pair in[3] = {none, none, none};

    (void)op;
    if (kind == NULL || !take_blocks(node, &b)) {
        return false;
    }
    in[0] = in_blocks(node, &b);
    in[1] = in[0].model != 0 ? one_place(node, &b) : none;
    in[2] = in[1].model != 0 ? sonde__onnx_take(node, 2, SONDE_ROLE_ACTIVATION) : none;
    if (in[2].model == 0) {
        return false;
    }
    const sonde__onnx_number flat[2] = {product(b.own, 0, b.index_rank - 1),
                                        product(b.dims, b.named, b.rank)};

    in[2] = sonde__onnx_reshape(node, in[2], 2, flat);
    in[0] = sonde__onnx_emit(node, kind, in, 3, &dim, 1);
    return in[0].model != 0 &&
           sonde__onnx_give(node, 0, sonde__onnx_reshape(node, in[0], b.rank, b.dims));
}

/* --- classes, tiles, blocks ---------------------------------------------------------------- */

static bool build_one_hot(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_constant *values = sonde__onnx_known(node, 2);
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t axis = sonde__onnx_int(node, "axis", -1), depth = 0;
    sonde__onnx_pair x = none;
    size_t count = 0;
    int rank = 0;

    if (!sonde__onnx_whole(node, 1, "depth", &depth, 1, &count) ||
        !sonde__onnx_take_data(node, &x, &rank, dims)) {
        return false;
    }
    const sonde_nn_setting classes = SONDE__ONNX_SET("num_classes", depth);

    if ((axis != -1 && axis != rank) || count != 1 || values == NULL ||
        values->count != 2 || values->items[0].base != 0.0 ||
        values->items[1].base != 1.0) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                  "values 0 and 1, along a new last dimension",
                                  "other values, or axis %lld", (long long)axis);
    }
    x = sonde__onnx_to(node, x, SONDE_I64);
    x = sonde__onnx_emit(node, op->kind, &x, 1, &classes, 1);
    return sonde__onnx_give(
        node, 0,
        sonde__onnx_is_whole_type(values->type) ? sonde__onnx_to(node, x, SONDE_I64) : x);
}

static bool build_tile(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t repeats[SONDE_MAX_DIMS];
    sonde__onnx_pair x = none;
    size_t count = 0;
    int rank = 0;

    if (!sonde__onnx_take_data(node, &x, &rank, dims) ||
        !sonde__onnx_whole(node, 1, "repeats", repeats, SONDE_MAX_DIMS, &count)) {
        return false;
    }
    const sonde_nn_setting setting = sonde__onnx_setting("repeats", repeats, count);

    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, &setting, 1));
}

/* (N, C, H, W): blocks of b x b as channels, or back. PyTorch's pixel_shuffle has a
 * channel's block side by side, the mode CRD; in DCR, and SpaceToDepth, blocks come first. */
static bool build_depth(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const bool out = strcmp(op->name, "DepthToSpace") == 0;
    const bool blocks_first = !out || sonde__onnx_says(node, "mode", "DCR", "DCR");
    const int64_t b = sonde__onnx_int(node, "blocksize", 1);
    static const int64_t swapped[] = {0, 2, 1, 3, 4};
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, wide[5], back[4];
    sonde__onnx_pair x = none;
    int rank = 0;
    const sonde_nn_setting factor =
        SONDE__ONNX_SET(out ? "upscale_factor" : "downscale_factor", b);

    if (!sonde__onnx_take_data(node, &x, &rank, dims)) {
        return false;
    }
    if (rank != 4 || b < 1 || b > 4096 ||
        (out && fmod(dims[1].base, (double)(b * b)) != 0)) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE,
                                  "(N, C, H, W), and a block that fits",
                                  "%d dimensions, blocks of %lld", rank, (long long)b);
    }
    x = out ? x : sonde__onnx_emit(node, op->kind, &x, 1, &factor, 1);
    if (x.model == 0) {
        return false;
    }
    if (blocks_first) { /* (N, b b, C, ...) and (N, C, b b, ...) */
        (void)sonde__onnx_shape(node, x, dims);
        const double square = (double)(b * b), channels = dims[1].base / square;

        wide[0] = dims[0];
        wide[1].base = out ? square : channels;
        wide[2].base = out ? channels : square;
        wide[1].slope = wide[2].slope = 0.0;
        wide[3] = dims[2];
        wide[4] = dims[3];
        memcpy(back, dims, sizeof back);
        x = sonde__onnx_reshape(node, x, 5, wide);
        x = x.model != 0 ? sonde__onnx_permute(node, x, 5, swapped) : none;
        x = x.model != 0 ? sonde__onnx_reshape(node, x, 4, back) : none;
    }
    x = out && x.model != 0 ? sonde__onnx_emit(node, op->kind, &x, 1, &factor, 1) : x;
    return sonde__onnx_give(node, 0, x);
}

const sonde__onnx_op sonde__onnx_element_ops[] = {
    {"GatherElements", build_elements, "gather", {{0}}},
    {"ScatterElements", build_elements, NULL, {{0}}},
    {"GatherND", build_gather_nd, NULL, {{0}}},
    {"ScatterND", build_scatter_nd, NULL, {{0}}},
    {"OneHot", build_one_hot, "one_hot", {{0}}},
    {"Tile", build_tile, "repeat", {{0}}},
    {"DepthToSpace", build_depth, "pixel_shuffle", {{0}}},
    {"SpaceToDepth", build_depth, "pixel_unshuffle", {{0}}},
    {NULL, NULL, NULL, {{0}}},
};
