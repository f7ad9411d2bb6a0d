/*
 * onnx_places.c - ONNX ops that move places of a dimension: Pad, Resize, TopK, CumSum.
 */
#include "base/macros.h"
#include "nn/onnx/onnx_ops.h"

#include <math.h>
#include <stdio.h>

static const sonde__onnx_pair none = {0, 0};

bool sonde__onnx_take_data(sonde__onnx_node *node, sonde__onnx_pair *x, int *rank,
                           sonde__onnx_number dims[SONDE_MAX_DIMS])
{
    *x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    *rank = x->model != 0 ? sonde__onnx_shape(node, *x, dims) : 0;
    return x->model != 0;
}

bool sonde__onnx_check_axis(sonde__onnx_node *node, int64_t *axis, int rank,
                            const sonde__onnx_number *dims)
{
    if (*axis < -rank || *axis >= rank) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL,
                                  "axis %lld of a value of %d dimensions",
                                  (long long)*axis, rank);
    }
    *axis += *axis < 0 ? rank : 0;
    return dims[*axis].slope == 0.0 ||
           sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "another dimension",
                              "axis %lld, which is the batch", (long long)*axis);
}

/* The attribute must be 0, or absent. */
static bool expect_zero(const sonde__onnx_node *node, const char *name)
{
    const int64_t value = sonde__onnx_int(node, name, 0);

    return value == 0 || sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "0", "%s is %lld",
                                            name, (long long)value);
}

typedef sonde__onnx_word word;

const char *sonde__onnx_read_word(const sonde__onnx_node *node, const char *name,
                                  const char *fallback, const sonde__onnx_word *words,
                                  size_t count, const char *expected)
{
    const SondeOnnx__AttributeProto *attribute = sonde__onnx_attribute(node, name);

    for (size_t i = 0; i < count; i++) {
        if (sonde__onnx_says(node, name, fallback, words[i].onnx)) {
            return words[i].ours;
        }
    }
    (void)sonde__onnx_refuse(
        node, SONDE_EUNSUPPORTED, expected, "%s is '%.*s'", name,
        attribute != NULL ? (int)SONDE_MIN(attribute->s.len, (size_t)40) : 0,
        attribute != NULL && attribute->s.data != NULL ? (const char *)attribute->s.data
                                                       : "");
    return NULL;
}

/* --- Pad --------------------------------------------------------------------------------- */

/* x with a border: before and after each of the last four dimensions, begin[i] and end[i]
 * of all. */
static sonde__onnx_pair pad(sonde__onnx_node *node, sonde__onnx_pair x, int rank,
                            const int64_t *begin, const int64_t *end, const char *mode,
                            double value)
{
    enum { MOST = SONDE_MAX_DIMS / 2 };
    sonde_nn_setting settings[] = {
        {.key = "pad"}, {.key = "mode", .word = mode}, SONDE__ONNX_SET("value", value)};

    for (int i = rank; i-- > 0;) {
        if (settings[0].count < 2 * MOST) {
            settings[0].values[settings[0].count++] = (double)begin[i];
            settings[0].values[settings[0].count++] = (double)end[i];
        } else if (begin[i] != 0 || end[i] != 0) {
            (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "one of the last four",
                                     "padding of dimension %d of %d", i, rank);
            return none;
        }
    }
    return sonde__onnx_emit(node, "pad", &x, 1, settings, SONDE_COUNT_OF(settings));
}

/* pads, and the axes that they are of, as numbers of every dimension. */
static bool read_pads(sonde__onnx_node *node, int rank, const sonde__onnx_number *dims,
                      int64_t *begin, int64_t *end)
{
    int64_t pads[2 * SONDE_MAX_DIMS] = {0}, axes[SONDE_MAX_DIMS];
    size_t count = 0, axis_count = (size_t)rank;

    for (int i = 0; i < rank; i++) {
        axes[i] = i;
    }
    if (!sonde__onnx_whole(node, 1, "pads", pads, SONDE_COUNT_OF(pads), &count) ||
        (sonde__onnx_has_input(node, 3) &&
         !sonde__onnx_whole(node, 3, "axes", axes, SONDE_MAX_DIMS, &axis_count))) {
        return false;
    }
    if (count != 2 * axis_count) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, "two for each dimension",
                                  "%zu pads for %zu dimensions", count, axis_count);
    }
    for (size_t i = 0; i < axis_count; i++) {
        const int64_t before = pads[i], after = pads[axis_count + i];

        if (before == 0 && after == 0) {
            continue;
        }
        if (!sonde__onnx_check_axis(node, &axes[i], rank, dims)) {
            return false;
        }
        begin[axes[i]] = before;
        end[axes[i]] = after;
    }
    return true;
}

static bool build_pad(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    static const word modes[] = {{"constant", "constant"},
                                 {"reflect", "reflect"},
                                 {"edge", "replicate"},
                                 {"wrap", "circular"}};
    const sonde__onnx_constant *value =
        sonde__onnx_has_input(node, 2) ? sonde__onnx_known(node, 2) : NULL;
    const char *mode =
        sonde__onnx_read_word(node, "mode", "constant", modes, SONDE_COUNT_OF(modes),
                              "constant, reflect, edge or wrap");
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t begin[SONDE_MAX_DIMS] = {0}, end[SONDE_MAX_DIMS] = {0};
    sonde__onnx_pair x = none;
    int rank = 0;

    (void)op;
    if (mode == NULL || !sonde__onnx_take_data(node, &x, &rank, dims) ||
        !read_pads(node, rank, dims, begin, end)) {
        return false;
    }
    if (sonde__onnx_has_input(node, 2) &&
        (value == NULL || value->count != 1 || value->items[0].slope != 0.0)) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                  "a number that is known before the network runs",
                                  "constant_value is computed from values");
    }
    return sonde__onnx_give(
        node, 0,
        pad(node, x, rank, begin, end, mode, value != NULL ? value->items[0].base : 0.0));
}

/* --- Resize ------------------------------------------------------------------------------ */

/* What a Resize does to the dimensions after (N, C). */
typedef struct resize {
    int rank;
    sonde__onnx_number have[SONDE_MAX_DIMS];
    double want[SONDE_MAX_DIMS];  /* sizes */
    double scale[SONDE_MAX_DIMS]; /* of places: want / have, or as given */
    bool exact;                   /* every scale is want / have */
} resize;

static const sonde__onnx_number whole_size = {1.0, 0.0}; /* as a scale */

/* What is asked of dimension i; `kept` if the node has axes and i is none of them. */
static sonde__onnx_number asked_size(const sonde__onnx_constant *given,
                                     const int64_t *axes, size_t count, int rank, int i,
                                     sonde__onnx_number kept)
{
    if (count == 0) {
        return given->items[i];
    }
    for (size_t k = 0; k < count; k++) {
        if (axes[k] == i || axes[k] + rank == i) {
            return given->items[k];
        }
    }
    return kept;
}

/* scales or sizes of all dimensions; false after an error. */
static bool read_sizes(sonde__onnx_node *node, resize *r)
{
    const sonde__onnx_constant *scales = sonde__onnx_known(node, 2);
    const bool sized = sonde__onnx_has_input(node, 3);
    const sonde__onnx_constant *given = sized ? sonde__onnx_known(node, 3) : scales;
    int64_t axes[SONDE_MAX_DIMS];
    size_t count = 0;

    if (!sonde__onnx_ints(node, "axes", axes, SONDE_MAX_DIMS, &count)) {
        return false;
    }
    if (given == NULL || given->rank != 1 ||
        given->count != (count > 0 ? count : (size_t)r->rank) ||
        (given->uniform && given->count > 1)) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                  "one for each dimension, known before the network runs",
                                  "%s", sized ? "sizes" : "scales");
    }
    r->exact = true;
    for (int i = 0; i < r->rank; i++) {
        const sonde__onnx_number have = r->have[i];
        const sonde__onnx_number number =
            asked_size(given, axes, count, r->rank, i, sized ? have : whole_size);
        const bool same = sized ? number.base == have.base && number.slope == have.slope
                                : number.base == 1.0 && number.slope == 0.0;

        if (!same && (i < 2 || number.slope != 0.0 || have.slope != 0.0)) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                      "a new size of the dimensions after (N, C)",
                                      "a new size of dimension %d", i);
        }
        r->want[i] = same    ? have.base
                     : sized ? number.base
                             : floor(have.base * number.base);
        r->scale[i] = same ? 1.0 : sized ? r->want[i] / have.base : number.base;
        r->exact = r->exact && (sized || r->scale[i] * have.base == r->want[i]);
        if (!same && !(r->want[i] >= 1.0 && r->want[i] <= (double)(1 << 24))) {
            return sonde__onnx_refuse(node, SONDE_ESHAPE, "1 or more", "a size of %.17g",
                                      r->want[i]);
        }
    }
    return true;
}

/* Whether a place lies just between two of the input, where round_prefer_floor and
 * nearest-exact differ: (i + 1/2) have / want is whole. */
static bool has_ties(const resize *r)
{
    for (int d = 2; d < r->rank; d++) {
        const int64_t have = (int64_t)r->have[d].base, want = (int64_t)r->want[d];

        for (int64_t i = 0; have != want && i < want; i++) {
            if ((2 * i + 1) * have % (2 * want) == 0) {
                return true;
            }
        }
    }
    return false;
}

static const char *nearest(sonde__onnx_node *node, const resize *r)
{
    const bool half = sonde__onnx_says(node, "coordinate_transformation_mode",
                                       "half_pixel", "half_pixel") ||
                      sonde__onnx_says(node, "coordinate_transformation_mode",
                                       "half_pixel", "pytorch_half_pixel");
    const bool below = sonde__onnx_says(node, "nearest_mode", "round_prefer_floor",
                                        "round_prefer_floor");

    if (sonde__onnx_says(node, "coordinate_transformation_mode", "half_pixel",
                         "asymmetric") &&
        sonde__onnx_says(node, "nearest_mode", "round_prefer_floor", "floor")) {
        return "nearest";
    }
    if (half && r->exact &&
        ((below && !has_ties(r)) ||
         sonde__onnx_says(node, "nearest_mode", "round_prefer_floor",
                          "round_prefer_ceil"))) {
        return "nearest-exact";
    }
    (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                             "asymmetric with floor, or half_pixel with "
                             "round_prefer_ceil",
                             "its coordinate_transformation_mode and nearest_mode");
    return NULL;
}

/* Linear and cubic: whether the corners stay; -1 after an error. */
static int aligned(sonde__onnx_node *node, const resize *r)
{
    static const word places[] = {{"align_corners", "corners"},
                                  {"half_pixel", "half"},
                                  {"pytorch_half_pixel", "half"}};
    const char *found = sonde__onnx_read_word(
        node, "coordinate_transformation_mode", "half_pixel", places,
        SONDE_COUNT_OF(places), "half_pixel, pytorch_half_pixel or align_corners");
    bool alone = false; /* one place of several */

    for (int i = 2; i < r->rank; i++) {
        alone = alone || (r->want[i] == 1.0 && r->have[i].base != 1.0);
    }
    if (found != NULL && alone &&
        sonde__onnx_says(node, "coordinate_transformation_mode", "half_pixel",
                         "pytorch_half_pixel")) {
        (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "half_pixel",
                                 "pytorch_half_pixel to a size of 1");
        return -1;
    }
    return found == NULL ? -1 : found == places[0].ours;
}

/* The word of our mode; corners: align_corners. NULL after an error. */
static const char *read_mode(sonde__onnx_node *node, const resize *r, bool *corners)
{
    static const word modes[] = {
        {"nearest", "nearest"}, {"linear", "linear"}, {"cubic", "bicubic"}};
    const char *mode =
        sonde__onnx_read_word(node, "mode", "nearest", modes, SONDE_COUNT_OF(modes),
                              "nearest, linear or cubic");
    int corner = 0;

    *corners = false;
    if (mode == NULL || mode == modes[0].ours) {
        return mode == NULL ? NULL : nearest(node, r);
    }
    if (mode == modes[2].ours &&
        (sonde__onnx_float(node, "cubic_coeff_a", -0.75) != -0.75 ||
         !expect_zero(node, "exclude_outside"))) {
        (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "-0.75", "cubic_coeff_a");
        return NULL;
    }
    corner = aligned(node, r);
    *corners = corner == 1;
    return corner < 0 ? NULL : mode;
}

static bool build_resize(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair x = none;
    resize r = {.rank = 0};
    bool corners = false;
    const char *mode = NULL;
    sonde_nn_setting settings[3] = {{.key = "size"}};

    if (!sonde__onnx_take_data(node, &x, &r.rank, r.have) ||
        !expect_zero(node, "antialias")) {
        return false;
    }
    if (!sonde__onnx_says(node, "keep_aspect_ratio_policy", "stretch", "stretch")) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "stretch",
                                  "another keep_aspect_ratio_policy");
    }
    if (r.rank < 3) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE, "(N, C, ...)",
                                  "an input of %d dimensions", r.rank);
    }
    mode = read_sizes(node, &r) ? read_mode(node, &r, &corners) : NULL;
    if (mode == NULL) {
        return false;
    }
    for (int i = 2; i < r.rank; i++) {
        settings[0].values[settings[0].count++] = r.want[i];
    }
    if (!r.exact && !corners) {
        for (int i = 3; i < r.rank; i++) {
            if (r.scale[i] != r.scale[2]) {
                return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                          "one scale, or whole sizes",
                                          "scales that differ");
            }
        }
        settings[0] = (sonde_nn_setting)SONDE__ONNX_SET("scale_factor", r.scale[2]);
    }
    settings[1] = (sonde_nn_setting){.key = "mode", .word = mode};
    settings[2] = (sonde_nn_setting)SONDE__ONNX_SET("align_corners", corners);
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, settings, 3));
}

/* --- TopK, CumSum ------------------------------------------------------------------------ */

static bool build_top(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t axis = sonde__onnx_int(node, "axis", -1), k = 0;
    sonde__onnx_pair in[2] = {none, none};
    char expected[40];
    size_t count = 0;
    int rank = 0;

    if (!sonde__onnx_take_data(node, &in[0], &rank, dims) ||
        !sonde__onnx_check_axis(node, &axis, rank, dims) ||
        !sonde__onnx_whole(node, 1, "K", &k, 1, &count)) {
        return false;
    }
    if (count != 1 || k < 1 || (double)k > dims[axis].base) {
        (void)snprintf(expected, sizeof expected, "1 to %lld",
                       (long long)dims[axis].base);
        return sonde__onnx_refuse(node, SONDE_EINVAL, expected, "K is %lld of %.0f",
                                  (long long)k, dims[axis].base);
    }
    const sonde_nn_setting dim = SONDE__ONNX_SET("dim", axis);
    const sonde_nn_setting settings[] = {
        dim, SONDE__ONNX_SET("k", k), SONDE__ONNX_SET("indices", 1),
        SONDE__ONNX_SET("largest", sonde__onnx_int(node, "largest", 1) != 0)};

    in[1] = sonde__onnx_emit(node, op->kind, in, 1, settings, SONDE_COUNT_OF(settings));
    return sonde__onnx_give(node, 1, in[1]) &&
           sonde__onnx_give(node, 0, sonde__onnx_emit(node, "gather", in, 2, &dim, 1));
}

static bool build_running_sum(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const bool reverse = sonde__onnx_int(node, "reverse", 0) != 0;
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    int64_t axis = 0, begin[SONDE_MAX_DIMS] = {0}, end[SONDE_MAX_DIMS] = {0};
    sonde__onnx_pair x = none;
    size_t count = 0;
    int rank = 0;

    if (!sonde__onnx_take_data(node, &x, &rank, dims) ||
        !sonde__onnx_whole(node, 1, "axis", &axis, 1, &count) ||
        !sonde__onnx_check_axis(node, &axis, rank, dims)) {
        return false;
    }
    const sonde_nn_setting dim = SONDE__ONNX_SET("dim", axis);
    const sonde_nn_setting turned = SONDE__ONNX_SET("dims", axis);

    x = reverse ? sonde__onnx_emit(node, "flip", &x, 1, &turned, 1) : x;
    x = sonde__onnx_emit(node, op->kind, &x, 1, &dim, 1);
    if (sonde__onnx_int(node, "exclusive", 0) != 0) { /* a place later, 0 first */
        begin[axis] = 1;
        end[axis] = -1;
        x = pad(node, x, rank, begin, end, "constant", 0.0);
    }
    x = reverse ? sonde__onnx_emit(node, "flip", &x, 1, &turned, 1) : x;
    return sonde__onnx_give(node, 0, x);
}

const sonde__onnx_op sonde__onnx_place_ops[] = {
    {"Pad", build_pad, "pad", {{0}}},   {"Resize", build_resize, "interpolate", {{0}}},
    {"TopK", build_top, "topk", {{0}}}, {"CumSum", build_running_sum, "cumsum", {{0}}},
    {NULL, NULL, NULL, {{0}}},
};
