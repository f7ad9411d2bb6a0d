/*
 * onnx_shapes.c - ONNX ops that move elements: reshape, transpose, slice, concat, split,
 * expand, gather.
 */
#include "base/macros.h"
#include "nn/onnx/onnx_ops.h"

#include <string.h>

static const sonde__onnx_pair none = {0, 0};

/* The value of input 0, of which *rank and dims are read; false after an error. */
static bool take_shaped(sonde__onnx_node *node, sonde__onnx_pair *x, int *rank,
                        sonde__onnx_number dims[SONDE_MAX_DIMS])
{
    *x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    *rank = x->model != 0 ? sonde__onnx_shape(node, *x, dims) : 0;
    return x->model != 0;
}

/* An axis of a value; false: there is none. */
static bool check_axis(sonde__onnx_node *node, int64_t *axis, int rank)
{
    if (*axis < -rank || *axis >= rank) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL,
                                  "axis %lld of a value of %d dimensions",
                                  (long long)*axis, rank);
    }
    *axis += *axis < 0 ? rank : 0;
    return true;
}

/* --- reshape ----------------------------------------------------------------------------- */

static bool build_reshape(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_constant *target = sonde__onnx_known(node, 1);
    sonde__onnx_number have[SONDE_MAX_DIMS] = {{0}}, want[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair x = none;
    int rank = 0;

    (void)op;
    if (!take_shaped(node, &x, &rank, have)) {
        return false;
    }
    if (target == NULL || target->rank != 1 || target->count > SONDE_MAX_DIMS ||
        (target->uniform && target->dim[0].base != 1.0)) {
        return sonde__onnx_refuse(
            node, SONDE_EUNSUPPORTED,
            "up to 8 numbers that are known before the network runs",
            "its shape is computed from values");
    }
    for (size_t i = 0; i < target->count; i++) {
        want[i] = target->items[i];
        if (want[i].base == 0.0 && want[i].slope == 0.0) {
            if ((int)i >= rank || sonde__onnx_int(node, "allowzero", 0) != 0) {
                return sonde__onnx_refuse(node, SONDE_ESHAPE, NULL,
                                          "dimension %zu of its shape is 0", i);
            }
            want[i] = have[i];
        }
        if (want[i].slope == 0.0 && want[i].base < -1.0) {
            return sonde__onnx_refuse(node, SONDE_ESHAPE, "-1 or more",
                                      "dimension %zu of its shape is %.0f", i,
                                      want[i].base);
        }
    }
    return sonde__onnx_give(node, 0,
                            sonde__onnx_reshape(node, x, (int)target->count, want));
}

static bool build_flatten(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number have[SONDE_MAX_DIMS] = {{0}}, want[2] = {{1.0, 0.0}, {1.0, 0.0}};
    int64_t axis = sonde__onnx_int(node, "axis", 1);
    sonde__onnx_pair x = none;
    int rank = 0;

    (void)op;
    if (!take_shaped(node, &x, &rank, have) ||
        (axis != rank && !check_axis(node, &axis, rank))) {
        return false;
    }
    for (int i = 0; i < rank; i++) {
        sonde__onnx_number *part = &want[i < axis ? 0 : 1];

        if (have[i].slope != 0.0 && axis == 1 && i == 0) {
            *part = have[i];
        } else if (have[i].slope != 0.0 || part->base == -1.0) {
            *part = (sonde__onnx_number){-1.0, 0.0};
        } else {
            part->base *= have[i].base;
        }
    }
    return sonde__onnx_give(node, 0, sonde__onnx_reshape(node, x, 2, want));
}

/* The axes of Squeeze and Unsqueeze as a mask. */
static bool read_axes(sonde__onnx_node *node, int rank, unsigned *mask)
{
    int64_t axes[SONDE_MAX_DIMS];
    size_t count = 0;

    *mask = 0;
    if (!sonde__onnx_whole(node, 1, "axes", axes, SONDE_MAX_DIMS, &count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!check_axis(node, &axes[i], rank)) {
            return false;
        }
        *mask |= 1U << (unsigned)axes[i];
    }
    return true;
}

static bool build_squeeze(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number have[SONDE_MAX_DIMS] = {{0}}, want[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair x = none;
    unsigned mask = 0;
    int rank = 0, count = 0;

    (void)op;
    if (!take_shaped(node, &x, &rank, have) ||
        (sonde__onnx_has_input(node, 1) && !read_axes(node, rank, &mask))) {
        return false;
    }
    for (int i = 0; i < rank; i++) {
        const bool one = have[i].base == 1.0 && have[i].slope == 0.0;
        const bool gone =
            sonde__onnx_has_input(node, 1) ? (mask >> (unsigned)i & 1U) != 0 : one;

        if (gone && !one) {
            return sonde__onnx_refuse(node, SONDE_ESHAPE, "1", "dimension %d is not 1",
                                      i);
        }
        if (!gone) {
            want[count++] = have[i];
        }
    }
    return sonde__onnx_give(node, 0, sonde__onnx_reshape(node, x, count, want));
}

static bool build_unsqueeze(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_constant *axes = sonde__onnx_known(node, 1);
    sonde__onnx_number have[SONDE_MAX_DIMS] = {{0}}, want[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair x = none;
    unsigned mask = 0;
    int rank = 0, more = axes != NULL ? (int)axes->count : 0, next = 0;

    (void)op;
    if (!take_shaped(node, &x, &rank, have)) {
        return false;
    }
    if (more < 0 || rank + more > SONDE_MAX_DIMS) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE, "at most 8", "%d dimensions",
                                  rank + more);
    }
    if (!read_axes(node, rank + more, &mask)) {
        return false;
    }
    for (int i = 0; i < rank + more; i++) {
        const bool one = (mask >> (unsigned)i & 1U) != 0 || next >= rank;

        want[i] = one ? (sonde__onnx_number){1.0, 0.0} : have[next++];
    }
    return sonde__onnx_give(node, 0, sonde__onnx_reshape(node, x, rank + more, want));
}

static bool build_transpose(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t perm[SONDE_MAX_DIMS];
    sonde__onnx_pair x = none;
    size_t count = 0;
    int rank = 0;

    (void)op;
    if (!take_shaped(node, &x, &rank, dims) ||
        !sonde__onnx_ints(node, "perm", perm, SONDE_MAX_DIMS, &count)) {
        return false;
    }
    for (int i = 0; count == 0 && i < rank; i++) {
        perm[i] = rank - 1 - i;
    }
    if (count != 0 && count != (size_t)rank) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE, NULL,
                                  "perm of %zu numbers for %d dimensions", count, rank);
    }
    return sonde__onnx_give(node, 0, sonde__onnx_permute(node, x, rank, perm));
}

/* --- parts -------------------------------------------------------------------------------- */

/* Places begin, begin + step ... before end of a dimension; all of it is x. */
static sonde__onnx_pair cut(sonde__onnx_node *node, sonde__onnx_pair x, int64_t axis,
                            int64_t begin, int64_t end, int64_t step)
{
    enum { FAR = 1000000000 };
    const int64_t limited[] = {SONDE_MIN(SONDE_MAX(begin, -FAR), FAR),
                               SONDE_MIN(SONDE_MAX(end, -FAR), FAR)};
    sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("dim", axis), SONDE__ONNX_SET("start", limited[0]),
        SONDE__ONNX_SET("step", step), SONDE__ONNX_SET("end", limited[1])};

    if (begin == 0 && limited[1] == FAR && step == 1) {
        return x;
    }
    return sonde__onnx_emit(node, "slice", &x, 1, settings, limited[1] == FAR ? 3 : 4);
}

/* The ends of a slice; one that is the whole dimension is INT64_MAX, the batch's too. */
static bool read_ends(sonde__onnx_node *node, int rank, const sonde__onnx_number *dims,
                      const int64_t *axis, int64_t *end, size_t *count)
{
    const sonde__onnx_constant *known = sonde__onnx_known(node, 2);
    bool open = false;

    if (known == NULL || known->uniform || known->count > SONDE_MAX_DIMS) {
        return sonde__onnx_whole(node, 2, "ends", end, SONDE_MAX_DIMS, count);
    }
    *count = known->count;
    for (size_t i = 0; i < known->count; i++) {
        const int64_t d = axis[i] + (axis[i] < 0 ? rank : 0);
        const sonde__onnx_number number = known->items[i];
        const bool whole = d >= 0 && d < rank && number.base == dims[d].base &&
                           number.slope == dims[d].slope;

        open = open || (!whole && number.slope != 0.0);
        end[i] = whole ? INT64_MAX : sonde__onnx_integer(number.base);
    }
    return !open || sonde__onnx_whole(node, 2, "ends", end, SONDE_MAX_DIMS, count);
}

static bool build_slice(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t begin[SONDE_MAX_DIMS], end[SONDE_MAX_DIMS], axis[SONDE_MAX_DIMS],
        step[SONDE_MAX_DIMS];
    size_t count[4] = {0};
    sonde__onnx_pair x = none;
    int rank = 0;

    (void)op;
    for (int i = 0; i < SONDE_MAX_DIMS; i++) {
        axis[i] = i;
        step[i] = 1;
    }
    if (!take_shaped(node, &x, &rank, dims) ||
        !sonde__onnx_whole(node, 1, "starts", begin, SONDE_MAX_DIMS, &count[0])) {
        return false;
    }
    count[2] = count[3] = count[0];
    if ((sonde__onnx_has_input(node, 3) &&
         !sonde__onnx_whole(node, 3, "axes", axis, SONDE_MAX_DIMS, &count[2])) ||
        (sonde__onnx_has_input(node, 4) &&
         !sonde__onnx_whole(node, 4, "steps", step, SONDE_MAX_DIMS, &count[3])) ||
        !read_ends(node, rank, dims, axis, end, &count[1])) {
        return false;
    }
    if (count[1] != count[0] || count[2] != count[0] || count[3] != count[0]) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL,
                                  "%zu starts, %zu ends, %zu axes, %zu steps", count[0],
                                  count[1], count[2], count[3]);
    }
    for (size_t i = 0; i < count[0]; i++) {
        if (!check_axis(node, &axis[i], rank)) {
            return false;
        }
        if (step[i] < 1) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "1 or more",
                                      "a step of %lld", (long long)step[i]);
        }
        if (dims[axis[i]].slope == 0.0 && end[i] >= (int64_t)dims[axis[i]].base) {
            end[i] = INT64_MAX; /* all, whatever the size */
        }
        x = cut(node, x, axis[i], begin[i], end[i], step[i]);
    }
    return sonde__onnx_give(node, 0, x);
}

static bool build_concat(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde_nn_setting axis =
        SONDE__ONNX_SET("dim", sonde__onnx_int(node, "axis", 0));
    sonde__onnx_pair in[2] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION)};

    for (size_t i = 1; i < node->proto->n_input; i++) {
        in[1] = sonde__onnx_take(node, i, SONDE_ROLE_ACTIVATION);
        in[0] = sonde__onnx_emit(node, op->kind, in, 2, &axis, 1);
        if (in[0].model == 0) {
            return false;
        }
    }
    return sonde__onnx_give(node, 0, in[0]);
}

static bool build_split(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t axis = sonde__onnx_int(node, "axis", 0), sizes[64], begin = 0;
    size_t count = 0;
    sonde__onnx_pair x = none;
    int rank = 0;

    (void)op;
    if (!take_shaped(node, &x, &rank, dims) || !check_axis(node, &axis, rank)) {
        return false;
    }
    if (sonde__onnx_has_input(node, 1)) {
        if (!sonde__onnx_whole(node, 1, "split", sizes, SONDE_COUNT_OF(sizes), &count)) {
            return false;
        }
    } else {
        const int64_t all = (int64_t)dims[axis].base;
        const size_t parts = node->proto->n_output;
        const int64_t each = parts > 0 ? (all + (int64_t)parts - 1) / (int64_t)parts : 0;

        for (; count < parts && count < SONDE_COUNT_OF(sizes); count++) {
            sizes[count] = SONDE_MIN(each, all - each * (int64_t)count);
        }
    }
    if (count != node->proto->n_output || dims[axis].slope != 0.0) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "one part for each output",
                                  "%zu parts for %zu outputs", count,
                                  node->proto->n_output);
    }
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] < 1 || sizes[i] > (int64_t)dims[axis].base) {
            return sonde__onnx_refuse(node, SONDE_ESHAPE, "1 or more", "a part of %lld",
                                      (long long)sizes[i]);
        }
        if (!sonde__onnx_give(node, i, cut(node, x, axis, begin, begin + sizes[i], 1))) {
            return false;
        }
        begin += sizes[i];
    }
    return true;
}

/* --- expand ------------------------------------------------------------------------------ */

static bool build_expand(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_constant *target = sonde__onnx_known(node, 1);
    sonde__onnx_number have[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair x = none;
    sonde_nn_setting size = {.key = "size"};
    sonde_dtype dtype = SONDE_F32;
    int rank = 0, wanted = 0, batch = -1;

    if (!take_shaped(node, &x, &rank, have)) {
        return false;
    }
    if (target == NULL || target->rank != 1 || target->count > SONDE_MAX_DIMS ||
        (target->uniform && target->dim[0].base != 1.0)) {
        return sonde__onnx_refuse(
            node, SONDE_EUNSUPPORTED,
            "up to 8 numbers that are known before the network runs",
            "its shape is computed from values");
    }
    wanted = SONDE_MAX(rank, (int)target->count);
    size.count = wanted;
    for (int i = 0; i < wanted; i++) {
        const int own = i - (wanted - rank), asked = i - (wanted - (int)target->count);
        const sonde__onnx_number to =
            asked >= 0 ? target->items[asked] : (sonde__onnx_number){1.0, 0.0};
        const bool one = own < 0 || (have[own].base == 1.0 && have[own].slope == 0.0);

        size.values[i] = one ? to.base : -1.0;
        if (one && to.slope != 0.0 && node->import->shadow != NULL) {
            batch = batch < 0 ? i : wanted;
            size.values[i] = 1.0;
        } else if (one) {
            size.values[i] = to.base + to.slope * node->import->batch;
        }
    }
    if (wanted == 0) {
        return sonde__onnx_give(node, 0, x);
    }
    dtype = sonde__onnx_dtype(node, x);
    x = dtype == SONDE_F32 ? x : sonde__onnx_to(node, x, SONDE_F32);
    x = sonde__onnx_emit(node, op->kind, &x, 1, &size, 1);
    if (batch >= 0) {
        x = sonde__onnx_repeat(node, x, wanted, batch);
    }
    x = dtype == SONDE_F32 ? x : sonde__onnx_to(node, x, dtype);
    return sonde__onnx_give(node, 0, x);
}

/* --- gather ------------------------------------------------------------------------------ */

/* Places of a dimension that are computed, or many: rows of a parameter are an embedding. */
static bool build_places(sonde__onnx_node *node, int64_t axis)
{
    const sonde__onnx_slot *slot = sonde__onnx_input(node, 0);
    const bool table = slot != NULL && slot->initial != NULL &&
                       slot->initial->n_dims == 2 && (axis == 0 || axis == -2);
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, at[SONDE_MAX_DIMS] = {{0}},
                       want[SONDE_MAX_DIMS] = {{0}};
    const sonde__onnx_number flat = {-1.0, 0.0};
    sonde__onnx_pair in[2] = {
        sonde__onnx_take(node, 0, table ? SONDE_ROLE_WEIGHT : SONDE_ROLE_ACTIVATION),
        sonde__onnx_take(node, 1, SONDE_ROLE_ACTIVATION)};
    sonde_nn_setting settings[2] = {SONDE__ONNX_SET("num_embeddings", 0)};
    int rank = 0, places = 0, made = 0;

    if (in[0].model == 0 || in[1].model == 0) {
        return false;
    }
    rank = sonde__onnx_shape(node, in[0], dims);
    places = sonde__onnx_shape(node, in[1], at);
    if (!check_axis(node, &axis, rank) ||
        !sonde__onnx_check_places(node, 1, dims[axis].base)) {
        return false;
    }
    if (table) {
        const sonde__onnx_pair swapped[2] = {in[1], in[0]};

        settings[0].values[0] = dims[0].base;
        settings[1] = (sonde_nn_setting)SONDE__ONNX_SET("embedding_dim", dims[1].base);
        return sonde__onnx_give(
            node, 0, sonde__onnx_emit(node, "embedding", swapped, 2, settings, 2));
    }
    if (dims[axis].slope != 0.0 || rank + places - 1 > SONDE_MAX_DIMS ||
        (places > 0 && at[0].slope != 0.0 && axis != 0)) {
        return sonde__onnx_refuse(
            node, SONDE_EUNSUPPORTED, "places of a dimension that is not the batch",
            "places of dimension %lld that are computed", (long long)axis);
    }
    for (int i = 0; i < rank; i++) {
        for (int k = 0; i == axis && k < places; k++) {
            want[made++] = at[k];
        }
        if (i != axis) {
            want[made++] = dims[i];
        }
    }
    in[1] = sonde__onnx_reshape(node, in[1], 1, &flat);
    settings[0] = (sonde_nn_setting)SONDE__ONNX_SET("dim", axis);
    in[0] = sonde__onnx_emit(node, "index_select", in, 2, settings, 1);
    return in[0].model != 0 &&
           sonde__onnx_give(node, 0, sonde__onnx_reshape(node, in[0], made, want));
}

/* Known places of a dimension: a range of them, or a few. */
static sonde__onnx_pair pick(sonde__onnx_node *node, sonde__onnx_pair x, int64_t axis,
                             int64_t size, const int64_t *places, size_t count)
{
    const sonde_nn_setting dim = SONDE__ONNX_SET("dim", axis);
    const int64_t first = places[0], step = count > 1 ? places[1] - places[0] : 1;
    bool even = step >= 1;
    sonde__onnx_pair made = none;

    for (size_t i = 0; i < count; i++) {
        if (places[i] < 0 || places[i] >= size) {
            (void)sonde__onnx_refuse(node, SONDE_ERANGE, NULL, "place %lld of %lld",
                                     (long long)places[i], (long long)size);
            return none;
        }
        even = even && places[i] == first + (int64_t)i * step;
    }
    if (even) {
        return cut(node, x, axis, first, first + (int64_t)(count - 1) * step + 1, step);
    }
    for (size_t i = 0; i < count; i++) {
        const sonde__onnx_pair in[2] = {made,
                                        cut(node, x, axis, places[i], places[i] + 1, 1)};

        made = i == 0 ? in[1] : sonde__onnx_emit(node, "cat", in, 2, &dim, 1);
        if (made.model == 0) {
            return none;
        }
    }
    return made;
}

static bool build_gather(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_constant *known = sonde__onnx_known(node, 1);
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, want[SONDE_MAX_DIMS] = {{0}};
    int64_t axis = sonde__onnx_int(node, "axis", 0), places[64];
    size_t count = 0;
    sonde__onnx_pair x = none;
    int rank = 0, made = 0;

    (void)op;
    if (known == NULL || known->count > SONDE_COUNT_OF(places) || known->rank > 1) {
        return build_places(node, axis);
    }
    if (!take_shaped(node, &x, &rank, dims) || !check_axis(node, &axis, rank) ||
        !sonde__onnx_whole(node, 1, "indices", places, SONDE_COUNT_OF(places), &count)) {
        return false;
    }
    if (count == 0 || dims[axis].slope != 0.0) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "some, of another dimension",
                                  "%zu places of dimension %lld", count, (long long)axis);
    }
    for (size_t i = 0; i < count; i++) {
        places[i] += places[i] < 0 ? (int64_t)dims[axis].base : 0;
    }
    x = pick(node, x, axis, (int64_t)dims[axis].base, places, count);
    for (int i = 0; x.model != 0 && i < rank; i++) {
        if (i != axis || known->rank == 1) {
            want[made] = dims[i];
            want[made++].base = i == axis ? (double)count : dims[i].base;
        }
    }
    return x.model != 0 &&
           sonde__onnx_give(node, 0, sonde__onnx_reshape(node, x, made, want));
}

const sonde__onnx_op sonde__onnx_shape_ops[] = {
    {"Reshape", build_reshape, NULL, {{0}}},
    {"Flatten", build_flatten, NULL, {{0}}},
    {"Squeeze", build_squeeze, NULL, {{0}}},
    {"Unsqueeze", build_unsqueeze, NULL, {{0}}},
    {"Transpose", build_transpose, NULL, {{0}}},
    {"Slice", build_slice, NULL, {{0}}},
    {"Concat", build_concat, "cat", {{0}}},
    {"Split", build_split, NULL, {{0}}},
    {"Expand", build_expand, "expand", {{0}}},
    {"Gather", build_gather, NULL, {{0}}},
    {NULL, NULL, NULL, {{0}}},
};
