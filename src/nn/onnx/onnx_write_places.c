/*
 * onnx_write_places.c - shapes, parts, places, reductions and choices as nodes of ONNX.
 */
#include "base/memory.h"
#include "nn/onnx/onnx_file.h"
#include "nn/onnx/onnx_write.h"
#include "nn/ops/remap.h"

/* --- shapes ------------------------------------------------------------------------------ */

/* As the caller gave it: 0 copies a dimension and -1 takes the rest, in ONNX too. */
static bool write_reshape(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    (void)a;
    return SONDE__ONNX_END(w, "Reshape", sonde__onnx_operand(w, 0),
                           sonde__onnx_integers(w, w->op->given.dims, w->op->given.rank));
}

static bool write_transpose(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    sonde__onnx_set_ints(w, "perm", a->dims, a->rank);
    return sonde__onnx_end_all(w, "Transpose");
}

static bool write_cat(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    sonde__onnx_set_int(w, "axis", a->axis);
    return sonde__onnx_end_all(w, "Concat");
}

/* A negative place counts from the end, in ONNX too. */
static bool write_slice(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const sonde__op_attrs *given = &w->op->given;

    return SONDE__ONNX_END(
        w, "Slice", sonde__onnx_operand(w, 0), sonde__onnx_single(w, given->kernel[0]),
        sonde__onnx_single(w, given->kernel[1]), sonde__onnx_single(w, a->axis),
        sonde__onnx_single(w, a->stride[0]));
}

/* ONNX keeps a dimension where the shape says 1. */
static bool write_broadcast(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    int64_t dims[SONDE_MAX_DIMS];

    for (int i = 0; i < a->rank; i++) {
        dims[i] = w->op->given.dims[i] == -1 ? 1 : w->op->given.dims[i];
    }
    return SONDE__ONNX_END(w, "Expand", sonde__onnx_operand(w, 0),
                           sonde__onnx_integers(w, dims, a->rank));
}

static bool write_fill(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    return SONDE__ONNX_END(w, "Expand", sonde__onnx_scalar(w, (double)a->scale),
                           sonde__onnx_integers(w, a->dims, a->rank));
}

static bool write_cast(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    (void)a;
    sonde__onnx_set_int(
        w, "to", sonde__onnx_type(w->model->graph.values[w->op->out[0]].shape.dtype));
    return sonde__onnx_end_all(w, "Cast");
}

/* --- reductions -------------------------------------------------------------------------- */

static bool end_reduction(sonde__onnx_writer *w, const sonde__op_attrs *a, const char *op)
{
    int64_t axes[SONDE_MAX_DIMS];
    int count = 0;

    for (int i = 0; i < SONDE_MAX_DIMS; i++) {
        if ((a->axes >> (unsigned)i & 1U) != 0) {
            axes[count++] = i;
        }
    }
    if (count == 0) {
        return SONDE__ONNX_END(w, "Identity", sonde__onnx_operand(w, 0));
    }
    sonde__onnx_set_int(w, "keepdims", a->keep_dims);
    return SONDE__ONNX_END(w, op, sonde__onnx_operand(w, 0),
                           sonde__onnx_integers(w, axes, count));
}

static bool write_reduce(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    return end_reduction(w, a, a->mean ? "ReduceMean" : "ReduceSum");
}

static bool write_extreme(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    return end_reduction(w, a, a->choice == 0 ? "ReduceMax" : "ReduceMin");
}

static bool write_arg_extreme(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    sonde__onnx_set_int(w, "axis", a->axis);
    sonde__onnx_set_int(w, "keepdims", a->keep_dims);
    return sonde__onnx_end_all(w, a->choice == 0 ? "ArgMax" : "ArgMin");
}

/* --- choices ----------------------------------------------------------------------------- */

static bool write_compare(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const char *const names[] = {"Equal",       "",        "Less",
                                        "LessOrEqual", "Greater", "GreaterOrEqual"};
    const char *x = sonde__onnx_operand(w, 0), *y = sonde__onnx_operand(w, 1);

    return a->choice == 1 ? SONDE__ONNX_END(w, "Not", SONDE__ONNX_STEP(w, "Equal", x, y))
                          : SONDE__ONNX_END(w, names[a->choice], x, y);
}

static bool write_where(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const char *condition = sonde__onnx_truth(w, 0);

    (void)a;
    return SONDE__ONNX_END(w, "Where", condition, sonde__onnx_operand(w, 1),
                           sonde__onnx_operand(w, 2));
}

static bool write_masked_fill(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const char *mask = sonde__onnx_truth(w, 1), *x = sonde__onnx_operand(w, 0);
    const char *number = sonde__onnx_scalar(w, (double)a->number[0]);

    return a->choice == 0 ? SONDE__ONNX_END(w, "Where", mask, number, x)
                          : SONDE__ONNX_END(w, "Where", mask, x, number);
}

/* --- places ------------------------------------------------------------------------------ */

/* Places of one dimension stand for all lines: they are rows, or are repeated to the
 * source's shape. */
static bool write_scatter(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const int rank = sonde__onnx_operand_shape(w, 0)->rank;
    const char *x = sonde__onnx_operand(w, 0), *index = sonde__onnx_operand(w, 1);
    const char *source = sonde__onnx_operand(w, 2);
    int64_t dims[SONDE_MAX_DIMS];

    if (sonde__onnx_operand_shape(w, 1)->rank != rank && a->axis == 0) {
        index = SONDE__ONNX_STEP(w, "Unsqueeze", index, sonde__onnx_single(w, -1));
        sonde__onnx_set_text(w, "reduction", a->choice == 1 ? "add" : "none");
        return SONDE__ONNX_END(w, "ScatterND", x, index, source);
    }
    if (sonde__onnx_operand_shape(w, 1)->rank != rank) {
        for (int i = 0; i < rank; i++) {
            dims[i] = i == a->axis ? -1 : 1;
        }
        index = sonde__onnx_reshaped(w, index, dims, rank);
        index =
            SONDE__ONNX_STEP(w, "Expand", index, SONDE__ONNX_STEP(w, "Shape", source));
    }
    sonde__onnx_set_int(w, "axis", a->axis);
    sonde__onnx_set_text(w, "reduction", a->choice == 1 ? "add" : "none");
    return SONDE__ONNX_END(w, "ScatterElements", x, index, source);
}

static bool write_arg_sort(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const char *inputs[] = {sonde__onnx_operand(w, 0), NULL};

    if (a->kernel[0] == 0 && sonde__onnx_varies(w, w->op->in[0], a->axis)) {
        return false; /* the order of the samples */
    }
    inputs[1] = sonde__onnx_single(
        w,
        a->kernel[0] > 0 ? a->kernel[0] : sonde__onnx_operand_shape(w, 0)->dim[a->axis]);
    sonde__onnx_set_int(w, "axis", a->axis);
    sonde__onnx_set_int(w, "largest", a->choice == 1);
    return sonde__onnx_end(w, "TopK", 1, inputs, 2);
}

static bool write_cumsum(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    sonde__onnx_set_int(w, "reverse", a->choice == 1);
    return SONDE__ONNX_END(w, "CumSum", sonde__onnx_operand(w, 0),
                           sonde__onnx_single(w, a->axis));
}

/* --- maps of places ---------------------------------------------------------------------- */

static bool write_pad(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    const int rank = sonde__onnx_operand_shape(w, 0)->rank;
    int64_t pads[2 * SONDE_MAX_DIMS] = {0};
    const char *list = NULL;

    pads[a->axis] = a->padding[0];
    pads[rank + a->axis] = a->padding[1];
    list = sonde__onnx_integers(w, pads, 2 * rank);
    sonde__onnx_set_text(w, "mode", modes[a->choice]);
    return a->choice != SONDE__REMAP_CONSTANT
               ? SONDE__ONNX_END(w, "Pad", sonde__onnx_operand(w, 0), list)
               : SONDE__ONNX_END(w, "Pad", sonde__onnx_operand(w, 0), list,
                                 sonde__onnx_scalar(w, (double)a->number[0]));
}

static bool write_resize(sonde__onnx_writer *w, const sonde__op_attrs *a, int64_t made)
{
    const bool nearest = a->choice <= SONDE__REMAP_NEAREST_EXACT;
    const bool corners = a->choice == SONDE__REMAP_LINEAR_CORNERS ||
                         a->choice == SONDE__REMAP_CUBIC_CORNERS;
    const bool cubic =
        a->choice == SONDE__REMAP_CUBIC || a->choice == SONDE__REMAP_CUBIC_CORNERS;
    const double extent = (double)sonde__onnx_operand_shape(w, 0)->dim[a->axis];
    const double scale = (double)a->number[0];
    const int64_t axis = a->axis;
    const char *x = sonde__onnx_operand(w, 0);
    const bool scaled = !corners && scale > 0.0 && scale * extent != (double)made;

    sonde__onnx_set_text(w, "mode", nearest ? "nearest" : cubic ? "cubic" : "linear");
    sonde__onnx_set_text(w, "coordinate_transformation_mode",
                         nearest   ? "asymmetric"
                         : corners ? "align_corners"
                                   : "half_pixel");
    if (nearest) {
        sonde__onnx_set_text(w, "nearest_mode", "floor");
    }
    if (cubic) {
        sonde__onnx_set_float(w, "cubic_coeff_a", -0.75);
    }
    sonde__onnx_set_ints(w, "axes", &axis, 1);
    return scaled ? SONDE__ONNX_END(w, "Resize", x, "", sonde__onnx_floats(w, &scale, 1))
                  : SONDE__ONNX_END(w, "Resize", x, "", "", sonde__onnx_single(w, made));
}

/* Each place of y is a known place of x. */
static bool write_taken(sonde__onnx_writer *w, const sonde__op_attrs *a, const char *x,
                        int64_t extent)
{
    const int64_t count = w->model->graph.values[w->op->out[0]].shape.dim[a->axis];
    int64_t *places = sonde__calloc((size_t)count, sizeof *places);
    const char *list = NULL;

    if (places == NULL) {
        w->graph.failed = true;
        return true;
    }
    for (int64_t i = 0; i < count; i++) {
        places[i] = sonde__op_remap_place(a, extent, i);
    }
    list = sonde__onnx_integers(w, places, (int)count);
    sonde__free(places);
    sonde__onnx_set_int(w, "axis", a->axis);
    return SONDE__ONNX_END(w, "Gather", x, list);
}

/* The places of a border's zeros are beside those of x. */
static bool write_windows(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const sonde__op_shape *x = sonde__onnx_operand_shape(w, 0);
    const char *padded = sonde__onnx_operand(w, 0);
    const int64_t border = a->padding[0];
    int64_t pads[2 * SONDE_MAX_DIMS] = {0};
    sonde__op_attrs inner = *a;

    if (border > 0) {
        pads[a->axis] = pads[x->rank + a->axis] = border;
        padded = SONDE__ONNX_STEP(w, "Pad", padded,
                                  sonde__onnx_integers(w, pads, 2 * x->rank));
    }
    inner.padding[0] = 0;
    return write_taken(w, &inner, padded, x->dim[a->axis] + 2 * border);
}

static bool write_remap(sonde__onnx_writer *w, const sonde__op_attrs *a)
{
    const int64_t extent = sonde__onnx_operand_shape(w, 0)->dim[a->axis];
    const int64_t made = w->model->graph.values[w->op->out[0]].shape.dim[a->axis];

    if (a->choice <= SONDE__REMAP_CIRCULAR) {
        return write_pad(w, a);
    }
    if (sonde__onnx_varies(w, w->op->in[0], a->axis)) {
        return false; /* places among the samples */
    }
    if (a->choice >= SONDE__REMAP_LINEAR && a->choice <= SONDE__REMAP_CUBIC_CORNERS) {
        return write_resize(w, a, made);
    }
    if (a->choice == SONDE__REMAP_WINDOWS) {
        return write_windows(w, a);
    }
    return a->choice <= SONDE__REMAP_NEAREST_EXACT && made % extent == 0
               ? write_resize(w, a, made)
               : write_taken(w, a, sonde__onnx_operand(w, 0), extent);
}

const sonde__onnx_written sonde__onnx_write_places[] = {
    {"Reshape", write_reshape},
    {"Transpose", write_transpose},
    {"Cat", write_cat},
    {"Slice", write_slice},
    {"Broadcast", write_broadcast},
    {"Fill", write_fill},
    {"Cast", write_cast},
    {"Reduce", write_reduce},
    {"Extreme", write_extreme},
    {"ArgExtreme", write_arg_extreme},
    {"Compare", write_compare},
    {"Where", write_where},
    {"MaskedFill", write_masked_fill},
    {"Scatter", write_scatter},
    {"ArgSort", write_arg_sort},
    {"CumSum", write_cumsum},
    {"Remap", write_remap},
    {NULL, NULL},
};
