/*
 * onnx_moves.c - nodes over constants that move elements: reshape, transpose, slice, concat,
 * gather, expand, triangles.
 */
#include "nn/onnx/onnx_constant.h"
#include "base/macros.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

typedef sonde__onnx_number number;
typedef sonde__onnx_constant constant;

static constant *fold_fill(const sonde__onnx_node *node, const constant *shape)
{
    const SondeOnnx__AttributeProto *value = sonde__onnx_attribute(node, "value");
    constant *made = NULL;

    if (shape->rank != 1 || shape->count > SONDE_MAX_DIMS || shape->uniform) {
        return sonde__onnx_no_constant(node, "a shape of more than 8 dimensions");
    }
    made = sonde__onnx_constant_make(node, SONDE__ONNX_FLOAT, 0, NULL);
    if (made != NULL && value != NULL && value->t != NULL) {
        sonde__free(made);
        made = sonde__onnx_read(node, value->t);
    }
    if (made == NULL || made->count != 1) {
        sonde__free(made);
        return sonde__onnx_no_constant(node, "a value of several numbers");
    }
    made->uniform = true;
    made->rank = (int)shape->count;
    memset(made->dim, 0, sizeof made->dim);
    for (size_t i = 0; i < shape->count; i++) {
        made->dim[i] = shape->items[i];
    }
    return made;
}

/* The constant in other dims, whose product is the same unless it is uniform. */
static constant *with_dims(const sonde__onnx_node *node, const constant *c, int rank,
                           const number *dim)
{
    constant *made = sonde__onnx_copy(node, c);

    if (made == NULL) {
        return NULL;
    }
    memset(made->dim, 0, sizeof made->dim);
    memcpy(made->dim, dim, (size_t)rank * sizeof *dim);
    made->rank = rank;
    return made;
}

static constant *fold_reshape(const sonde__onnx_node *node, const constant *c,
                              const constant *shape)
{
    number dim[SONDE_MAX_DIMS] = {{0}};
    double known = 1.0;
    int open = -1;

    if (shape->count > SONDE_MAX_DIMS || shape->uniform || c->uniform) {
        return sonde__onnx_no_constant(node, "a reshaped constant of one number");
    }
    for (size_t i = 0; i < shape->count; i++) {
        dim[i] = shape->items[i];
        if (dim[i].base == 0.0 && (int)i < c->rank && sonde__onnx_fixed(dim[i])) {
            dim[i] = c->dim[i];
        }
        if (dim[i].base == -1.0 && sonde__onnx_fixed(dim[i]) && open < 0) {
            open = (int)i;
        } else {
            known *= dim[i].base;
        }
        if (!sonde__onnx_fixed(dim[i])) {
            return sonde__onnx_no_constant(node, "a shape that depends on the batch");
        }
    }
    if (open >= 0 && known > 0.0) {
        dim[open].base = (double)c->count / known;
        known *= dim[open].base;
    }
    return known == (double)c->count &&
                   (open < 0 || dim[open].base == floor(dim[open].base))
               ? with_dims(node, c, (int)shape->count, dim)
               : sonde__onnx_no_constant(node, "another number of elements");
}

static constant *fold_axes(const sonde__onnx_node *node, const constant *c,
                           const constant *axes, bool insert)
{
    number dim[SONDE_MAX_DIMS] = {{0}};
    const int more =
        axes != NULL ? (int)SONDE_MIN(axes->count, (size_t)SONDE_MAX_DIMS) : 0;
    const int total = insert ? c->rank + more : c->rank;
    unsigned mask = 0;
    int rank = 0, next = 0;

    if (total > SONDE_MAX_DIMS) {
        return sonde__onnx_no_constant(node, "more than 8 dimensions");
    }
    for (int i = 0; i < more; i++) {
        const double axis = axes->items[i].base + (axes->items[i].base < 0.0 ? total : 0);

        if (!(axis >= 0.0 && axis < (double)total)) {
            return sonde__onnx_no_constant(node, "an axis that there is not");
        }
        mask |= 1U << (unsigned)axis;
    }
    for (int i = 0; i < total; i++) {
        const bool marked =
            axes != NULL ? (mask >> (unsigned)i & 1U) != 0 : c->dim[i].base == 1.0;

        if (insert) {
            dim[rank++] = marked || next >= c->rank ? (number){1.0, 0.0} : c->dim[next++];
        } else if (!marked) {
            dim[rank++] = c->dim[i];
        } else if (c->dim[i].base != 1.0) {
            return sonde__onnx_no_constant(node, "a dimension that is not 1");
        }
    }
    return with_dims(node, c, rank, dim);
}

constant *sonde__onnx_fold_concat(const sonde__onnx_node *node, const constant *const *in,
                                  size_t count)
{
    size_t total = 0, next = 0;
    constant *made = NULL;

    for (size_t i = 0; i < count; i++) {
        if (in[i] == NULL || in[i]->rank != 1 || !sonde__onnx_fixed(in[i]->dim[0]) ||
            !(in[i]->dim[0].base >= 0.0 &&
              in[i]->dim[0].base <= (double)SONDE__ONNX_MOST_FOLDED)) {
            return sonde__onnx_no_constant(node, "a constant that is no list");
        }
        total += (size_t)in[i]->dim[0].base;
    }
    made = sonde__onnx_list(node, in[0]->type, total);
    for (size_t i = 0; made != NULL && i < count; i++) {
        for (size_t k = 0; k < (size_t)in[i]->dim[0].base; k++) {
            made->items[next++] = sonde__onnx_item(in[i], k);
        }
    }
    return made;
}

/* Places of the first dimension: a row, or several. */
static constant *fold_gather(const sonde__onnx_node *node, const constant *c,
                             const constant *places)
{
    const size_t rows = c->rank > 0 ? (size_t)c->dim[0].base : 0;
    const size_t width = rows > 0 ? c->count / rows : 0;
    int64_t dim[SONDE_MAX_DIMS];
    constant *made = NULL;

    if (c->uniform && places->rank == 0 && sonde__onnx_int(node, "axis", 0) == 0 &&
        c->rank > 0) { /* one place of many equal ones */
        return with_dims(node, c, c->rank - 1, c->dim + 1);
    }
    if (c->uniform || rows == 0 || places->uniform ||
        places->rank + c->rank - 1 > SONDE_MAX_DIMS ||
        sonde__onnx_int(node, "axis", 0) != 0) {
        return sonde__onnx_no_constant(node,
                                       "places of another dimension than the first");
    }
    for (int i = 0; i < places->rank; i++) {
        dim[i] = sonde__onnx_dim(places, i);
    }
    for (int i = 1; i < c->rank; i++) {
        dim[places->rank + i - 1] = sonde__onnx_dim(c, i);
    }
    made = sonde__onnx_constant_make(node, c->type, places->rank + c->rank - 1, dim);
    for (size_t i = 0; made != NULL && i < places->count; i++) {
        const double at = places->items[i].base;
        const double row = at < 0.0 ? at + (double)rows : at;

        if (!(row >= 0.0 && row < (double)rows) || !sonde__onnx_fixed(places->items[i])) {
            sonde__free(made);
            return sonde__onnx_no_constant(node, "a place that there is not");
        }
        memcpy(made->items + i * width, c->items + (size_t)row * width,
               width * sizeof made->items[0]);
    }
    return made;
}

/* A slice of one number's tensor along one dimension: other dims. */
static constant *slice_uniform(const sonde__onnx_node *node, const constant *const *in)
{
    const constant *c = in[0];
    number dim[SONDE_MAX_DIMS];
    double axis = 0.0, begin = 0.0, end = 0.0;

    if (in[1]->count != 1 || in[2]->count != 1 || in[3] == NULL || in[3]->count != 1) {
        return sonde__onnx_no_constant(node, "a slice along several dimensions");
    }
    axis = in[3]->items[0].base + (in[3]->items[0].base < 0.0 ? c->rank : 0);
    if (!(axis >= 0.0 && axis < (double)c->rank)) {
        return sonde__onnx_no_constant(node, "an axis that there is not");
    }
    memcpy(dim, c->dim, sizeof dim);
    begin = in[1]->items[0].base;
    end = in[2]->items[0].base;
    if (!sonde__onnx_fixed(dim[(int)axis]) || begin < 0.0 || end < begin) {
        return sonde__onnx_no_constant(node, "a slice of the batch");
    }
    dim[(int)axis].base = fmin(end, dim[(int)axis].base) - begin;
    return with_dims(node, c, c->rank, dim);
}

/* Places begin, begin + step ..., `kept` of them, of a dimension. */
static constant *take_places(const sonde__onnx_node *node, const constant *c, int axis,
                             double begin, double step, size_t kept)
{
    int64_t dim[SONDE_MAX_DIMS];
    size_t outer = 1, inner = 1, extent = 0;
    constant *made = NULL;

    sonde__onnx_dims(c, dim);
    extent = (size_t)dim[axis];
    for (int i = 0; i < c->rank; i++) {
        outer *= i < axis ? (size_t)dim[i] : 1;
        inner *= i > axis ? (size_t)dim[i] : 1;
    }
    dim[axis] = (int64_t)SONDE_MIN(kept, extent);
    made = sonde__onnx_constant_make(node, c->type, c->rank, dim);
    for (size_t i = 0; made != NULL && i < outer * (size_t)dim[axis]; i++) {
        const size_t row = i / (size_t)dim[axis];
        const double place = begin + step * (double)(i % (size_t)dim[axis]);

        memcpy(made->items + i * inner, c->items + (row * extent + (size_t)place) * inner,
               inner * sizeof made->items[0]);
    }
    return made;
}

/* The dimension of which a slice is, if it is one alone, with numbers that are fixed; -1. */
static int sliced_axis(const constant *const *in, size_t count)
{
    const constant *axes = count > 3 ? in[3] : NULL;
    double axis = 0.0;

    if (in[0]->rank < 1 || in[0]->uniform || in[1]->count != 1 || in[2]->count != 1 ||
        !sonde__onnx_fixed(in[1]->items[0]) || !sonde__onnx_fixed(in[2]->items[0]) ||
        (axes != NULL && axes->count != 1)) {
        return -1;
    }
    axis = axes == NULL ? 0.0 : axes->items[0].base;
    axis += axis < 0.0 ? (double)in[0]->rank : 0.0;
    return axis >= 0.0 && axis < (double)in[0]->rank ? (int)axis : -1;
}

/* A slice along one dimension. */
constant *sonde__onnx_fold_slice(const sonde__onnx_node *node, const constant *const *in,
                                 size_t count)
{
    const constant *c = in[0];
    double length = 0.0, begin = 0.0, end = 0.0, step = 1.0;
    int axis = 0;

    if (count < 3 || in[1] == NULL || in[2] == NULL) {
        return sonde__onnx_no_constant(node, "it lacks its starts or ends");
    }
    if (c->uniform && count > 3) {
        return slice_uniform(node, in);
    }
    axis = sliced_axis(in, count);
    if (axis < 0) {
        return sonde__onnx_no_constant(node, "a slice along several dimensions");
    }
    length = c->dim[axis].base;
    step = count > 4 && in[4] != NULL && in[4]->count == 1 ? in[4]->items[0].base : 1.0;
    begin = in[1]->items[0].base;
    end = in[2]->items[0].base;
    begin += begin < 0.0 ? length : 0.0;
    end += end < 0.0 ? length : 0.0;
    if (step == 0.0 || isnan(step)) {
        return sonde__onnx_no_constant(node, "a step of 0");
    }
    begin = fmin(fmax(begin, 0.0), step > 0.0 ? length : length - 1.0);
    end = fmin(fmax(end, step > 0.0 ? 0.0 : -1.0), length);
    return take_places(node, c, axis, begin, step,
                       (size_t)fmax(ceil((end - begin) / step), 0.0));
}

/* Whether a constant of these dims can be kept whole. */
static bool is_small(const constant *c)
{
    double count = 1.0;

    for (int i = 0; i < c->rank; i++) {
        count *= sonde__onnx_fixed(c->dim[i]) ? c->dim[i].base : (double)INFINITY;
    }
    return count <= (double)SONDE__ONNX_MOST_FOLDED;
}

static constant *fold_expand(const sonde__onnx_node *node, const constant *c,
                             const constant *shape)
{
    constant target = {.rank = (int)shape->count};
    int64_t dim[SONDE_MAX_DIMS];
    constant *made = NULL;
    int rank = 0;

    if (shape->count > SONDE_MAX_DIMS || shape->uniform) {
        return sonde__onnx_no_constant(node, "a shape of more than 8 dimensions");
    }
    memcpy(target.dim, shape->items, shape->count * sizeof *target.dim);
    if (c->count == 1 && c->rank <= target.rank && !is_small(&target)) {
        made = with_dims(node, c, target.rank, target.dim);
        if (made != NULL) {
            made->uniform = true;
        }
        return made;
    }
    if (!sonde__onnx_broadcast(c, &target, &rank, dim)) {
        return sonde__onnx_no_constant(node,
                                       "a shape that the constant does not broadcast to");
    }
    made = sonde__onnx_constant_make(node, c->type, rank, dim);
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        made->items[i] = sonde__onnx_item(c, sonde__onnx_place(c, rank, dim, i));
    }
    return made;
}

static constant *fold_transpose(const sonde__onnx_node *node, const constant *c)
{
    int64_t perm[SONDE_MAX_DIMS], dim[SONDE_MAX_DIMS], stride[SONDE_MAX_DIMS];
    size_t count = 0;
    constant *made = NULL;
    int64_t step = 1;

    if (!sonde__onnx_ints(node, "perm", perm, SONDE_MAX_DIMS, &count)) {
        return NULL;
    }
    for (int i = 0; count == 0 && i < c->rank; i++) {
        perm[i] = c->rank - 1 - i;
    }
    if (c->uniform || (count != 0 && count != (size_t)c->rank)) {
        return sonde__onnx_no_constant(node, "perm of another rank");
    }
    for (int i = c->rank; i-- > 0; step *= sonde__onnx_dim(c, i)) {
        stride[i] = step;
    }
    for (int i = 0; i < c->rank; i++) {
        if (perm[i] < 0 || perm[i] >= c->rank) {
            return sonde__onnx_no_constant(node, "perm of a dimension that there is not");
        }
        dim[i] = sonde__onnx_dim(c, (int)perm[i]);
    }
    made = sonde__onnx_constant_make(node, c->type, c->rank, dim);
    for (size_t i = 0; made != NULL && i < made->count && made->count == c->count; i++) {
        size_t rest = i, place = 0;

        for (int d = c->rank; d-- > 0;) {
            place += rest % (size_t)dim[d] * (size_t)stride[perm[d]];
            rest /= (size_t)dim[d];
        }
        made->items[i] = c->items[SONDE_MIN(place, c->count - 1)];
    }
    return made;
}

/* Above or below a diagonal of a matrix. */
constant *sonde__onnx_fold_triangle(const sonde__onnx_node *node,
                                    const constant *const *in, size_t count)
{
    const bool upper = sonde__onnx_int(node, "upper", 1) != 0;
    const double k =
        count > 1 && in[1] != NULL && in[1]->count == 1 ? in[1]->items[0].base : 0.0;
    const constant *c = in[0];
    int64_t dim[SONDE_MAX_DIMS];
    constant *made = NULL;
    size_t width = 0, height = 0;

    sonde__onnx_dims(c, dim);
    if (c->rank < 2) {
        return sonde__onnx_no_constant(node, "a constant that is no matrix");
    }
    made = sonde__onnx_constant_make(node, c->type, c->rank, dim);
    width = (size_t)dim[c->rank - 1];
    height = (size_t)dim[c->rank - 2];
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        const double row = (double)(i / width % height), column = (double)(i % width);

        if (upper ? column - row >= k : column - row <= k) {
            made->items[i] = sonde__onnx_item(c, i);
        }
    }
    return made;
}

constant *sonde__onnx_fold_moved(const sonde__onnx_node *node, const constant *const *in,
                                 size_t count)
{
    const char *op = node->proto->op_type;
    const bool two = count > 1 && in[1] != NULL;

    if (strcmp(op, "ConstantOfShape") == 0) {
        return fold_fill(node, in[0]);
    }
    if (strcmp(op, "Squeeze") == 0) {
        return fold_axes(node, in[0], two ? in[1] : NULL, false);
    }
    if (strcmp(op, "Transpose") == 0) {
        return fold_transpose(node, in[0]);
    }
    if (strcmp(op, "Identity") == 0) {
        return sonde__onnx_copy(node, in[0]);
    }
    if (!two) {
        return sonde__onnx_no_constant(node, "it lacks its second input");
    }
    return strcmp(op, "Reshape") == 0     ? fold_reshape(node, in[0], in[1])
           : strcmp(op, "Unsqueeze") == 0 ? fold_axes(node, in[0], in[1], true)
           : strcmp(op, "Gather") == 0    ? fold_gather(node, in[0], in[1])
                                          : fold_expand(node, in[0], in[1]);
}
