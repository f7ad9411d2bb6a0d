/*
 * shape.c - ops that move no element but to another place, and layers of them.
 *
 * Ops that move elements and compute nothing: identity, reshape, transpose,
 * broadcast, reorder. They take every dtype.
 *
 *   identity   y = x: a place to print.
 *   reshape    the same elements, in row-major order, under other dims. attrs.shape.dims, of
 *              attrs.shape.rank entries: 0 copies the input's dim at that place, one -1 takes
 *              the rest (ONNX's Reshape).
 *   transpose  dim i of y is dim attrs.shape.dims[i] of x (torch.permute); negative ones count
 *              from the end.
 *   broadcast  x repeated to the shape attrs.shape.dims, by torch's rules: dims are aligned at
 *              the end, and a dim of 1, or none, repeats; -1 keeps x's dim.
 *   reorder    the same tensor in another layout: from that of in[0] to that of out[0],
 *              whatever the kernel names, so one reference serves every pair. Lanes past N
 *              and columns past K are written as zeros.
 *
 * Layers that move elements: flatten, reshape, permute, transpose,
 * unsqueeze, squeeze, expand and stack, under PyTorch's names, over these ops and Cat.
 */
#include "base/fail.h"
#include "nn/kernels/fast.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <string.h>
#include <math.h>

/* === shape ========================================================================== */

/* Copies element `from` of x to element `to` of y. */
static void move(const sonde__operand *y, int64_t target, const sonde__operand *x,
                 int64_t source)
{
    const size_t size = sonde_dtype_size(x->shape.dtype);

    memcpy((char *)y->data + (size_t)target * size,
           (const char *)x->data + (size_t)source * size, size);
}

static void copy(const sonde__op_call *call)
{
    const sonde__operand *x = &call->in[0];
    const size_t bytes =
        (size_t)sonde__op_shape_count(&x->shape) * sonde_dtype_size(x->shape.dtype);

    if (bytes > 0 && call->out[0].data != NULL) {
        memmove(call->out[0].data, x->data, bytes);
    }
}

/* --- identity ----------------------------------------------------------------------- */

static sonde_err identity_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_size(&call->in[0].shape, "input", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void identity_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    copy(call);
}

static void identity_gradient(const sonde__op_gradient_context *context)
{
    context->grad_in[0] = context->grad_out[0];
}

SONDE__OP(identity, "Identity", none, 1, 1, 1, .infer = identity_infer,
          .gradient = identity_gradient, SONDE__REFERENCE(identity_run),
          .halves = SONDE__HALVES_KEPT);

/* --- reshape ------------------------------------------------------------------------ */

/* Replaces 0 and -1 in dims. */
static sonde_err resolve_dims(const sonde__op_shape *x, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    const int64_t count = sonde__op_shape_count(x);
    int64_t known = 1;
    int open = -1;

    for (int i = 0; i < attrs->shape.rank; i++) {
        if (attrs->shape.dims[i] == 0) {
            if (i >= x->rank) {
                return sonde__fail(
                    diag, SONDE_EINVAL, NULL, NULL,
                    "target dim %d copies a dim that an input of rank %d lacks", i,
                    x->rank);
            }
            attrs->shape.dims[i] = x->dim[i];
        }
        if (attrs->shape.dims[i] == -1 && open < 0) {
            open = i;
        } else if (attrs->shape.dims[i] < 0) {
            return sonde__fail(diag, SONDE_EINVAL, NULL, "at most one -1, else positive",
                               "target dim %d is %lld", i,
                               (long long)attrs->shape.dims[i]);
        } else if (__builtin_mul_overflow(known, attrs->shape.dims[i], &known)) {
            known = INT64_MAX; /* differs from every count */
        }
    }
    if (open >= 0 && known > 0 && count % known == 0) {
        attrs->shape.dims[open] = count / known;
    }
    return SONDE_OK;
}

static sonde_err reshape_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const sonde__op_attrs asked = *attrs;
    char found[SONDE__SHAPE_TEXT], wanted[SONDE__SHAPE_TEXT];
    sonde__op_shape y;

    SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    if (attrs->shape.rank < 0 || attrs->shape.rank > SONDE_MAX_DIMS) {
        return sonde__op_expect_dims(attrs, -1, x->dtype, "target", &y, diag);
    }
    SONDE__TRY(resolve_dims(x, attrs, diag));
    y = (sonde__op_shape){.dtype = x->dtype, .rank = attrs->shape.rank};
    memcpy(y.dim, attrs->shape.dims, sizeof y.dim);
    if (sonde__op_expect_size(&y, "target", NULL) != SONDE_OK ||
        sonde__op_shape_count(&y) != sonde__op_shape_count(x)) {
        return sonde__fail(
            diag, SONDE_ESHAPE, NULL, "as many elements before as after", "%s as %s",
            sonde__op_shape_text(x, found),
            sonde_shape_text(asked.shape.rank, asked.shape.dims, wanted, sizeof wanted));
    }
    call->out[0].shape = y;
    return SONDE_OK;
}

static void reshape_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    copy(call);
}

SONDE__OP(reshape, "Reshape", shape, 1, 1, 1, .infer = reshape_infer,
          .backward = {&sonde__op_reshape, "d", 0, true}, SONDE__REFERENCE(reshape_run),
          .halves = SONDE__HALVES_KEPT);

/* --- transpose ---------------------------------------------------------------------- */

static sonde_err transpose_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    sonde__op_shape y = {.dtype = x->dtype, .rank = x->rank};
    unsigned seen = 0;

    SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    if (attrs->shape.rank != x->rank) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, NULL,
                           "a permutation of %d dims for a tensor of rank %d",
                           attrs->shape.rank, x->rank);
    }
    for (int i = 0; i < x->rank; i++) {
        const int64_t source =
            attrs->shape.dims[i] + (attrs->shape.dims[i] < 0 ? x->rank : 0);

        if (source < 0 || source >= x->rank || (seen & 1u << source) != 0) {
            char text[SONDE__SHAPE_TEXT];

            return sonde__fail(diag, SONDE_EINVAL, NULL, "each dim once",
                               "permutation %s",
                               sonde_shape_text(attrs->shape.rank, attrs->shape.dims,
                                                text, sizeof text));
        }
        seen |= 1u << source;
        attrs->shape.dims[i] = source;
        y.dim[i] = x->dim[source];
    }
    call->out[0].shape = y;
    return SONDE_OK;
}

/* y in rows along its last dimension: the step in x is the same for all of a row. */
typedef struct rows {
    int64_t length, step;                  /* of a row; between its elements in x */
    int64_t count, stride[SONDE_MAX_DIMS]; /* of rows; of y's other dims, in x */
} rows;

static rows rows_of(const sonde__op_call *call)
{
    const sonde__op_shape *x = &call->in[0].shape, *y = &call->out[0].shape;
    const int last = y->rank - 1;
    rows r = {.length = last < 0 ? 1 : y->dim[last], .step = 1, .count = 1};

    for (int i = 0; i <= last; i++) {
        const int dim = (int)call->attrs->shape.dims[i];
        const int64_t stride = sonde__op_dims_product(x, dim + 1, x->rank);

        r.stride[i] = stride;
        r.count *= i == last ? 1 : y->dim[i];
        r.step = stride;
    }
    return r;
}

/* Four bytes at a time, or whole rows. */
static void copy_row(const rows *r, const char *x, char *y, size_t size)
{
    if (r->step == 1) {
        memcpy(y, x, (size_t)r->length * size);
        return;
    }
    for (int64_t k = 0; k < r->length; k++) {
        memcpy(y + (size_t)k * 4, x + (size_t)(k * r->step) * 4, 4);
    }
}

static void transpose_rows(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *y = &call->out[0].shape;
    const size_t size = sonde_dtype_size(y->dtype);
    const rows r = rows_of(call);

    for (int64_t row = r.count * part / parts; row < r.count * (part + 1) / parts;
         row++) {
        int64_t rest = row, source = 0;

        for (int i = y->rank - 2; i >= 0; i--) {
            source += rest % y->dim[i] * r.stride[i];
            rest /= y->dim[i];
        }
        copy_row(&r, (const char *)call->in[0].data + (size_t)source * size,
                 (char *)call->out[0].data + (size_t)(row * r.length) * size, size);
    }
}

static bool transposes_rows(const sonde__op_call *call)
{
    return sonde_dtype_size(call->in[0].shape.dtype) == 4;
}

static int transpose_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->in[0].shape) / 65536;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

static const sonde__op_kernel *const *transpose_fast(void)
{
    static const sonde__op_kernel by_rows = {.name = "rows",
                                             .accepts = transposes_rows,
                                             .parts = transpose_parts,
                                             .run = transpose_rows};
    static const sonde__op_kernel *const kernels[] = {&by_rows, NULL};

    return kernels;
}

static void transpose_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *x = &call->in[0].shape, *y = &call->out[0].shape;
    const int64_t count = sonde__op_shape_count(y);

    (void)part, (void)parts;
    for (int64_t target = 0; target < count && call->out[0].data != NULL; target++) {
        int64_t rest = target, source = 0;

        for (int i = y->rank - 1; i >= 0; i--) {
            const int dim = (int)call->attrs->shape.dims[i];

            source += rest % y->dim[i] * sonde__op_dims_product(x, dim + 1, x->rank);
            rest /= y->dim[i];
        }
        move(&call->out[0], target, &call->in[0], source);
    }
}

static void transpose_gradient(const sonde__op_gradient_context *context)
{
    sonde__op_attrs inverse = {.shape = {.rank = context->attrs->shape.rank}};

    for (int i = 0; i < inverse.shape.rank; i++) {
        inverse.shape.dims[context->attrs->shape.dims[i]] = i;
    }
    context->grad_in[0] = sonde__op_emit(context->graph, &sonde__op_transpose, &inverse,
                                         &context->grad_out[0], 1);
}

SONDE__OP(transpose, "Transpose", shape, 1, 1, 1, .infer = transpose_infer,
          .gradient = transpose_gradient, SONDE__REFERENCE(transpose_run),
          .fast = transpose_fast, .halves = SONDE__HALVES_KEPT);

/* --- broadcast ---------------------------------------------------------------------- */

static sonde_err broadcast_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[0].shape;
    char found[SONDE__SHAPE_TEXT], wanted[SONDE__SHAPE_TEXT];
    sonde__op_shape y;

    for (int i = 1;
         i <= attrs->shape.rank && i <= x->rank && attrs->shape.rank <= SONDE_MAX_DIMS;
         i++) {
        int64_t *dim = &attrs->shape.dims[attrs->shape.rank - i];

        *dim = *dim == -1 ? x->dim[x->rank - i] : *dim;
    }
    SONDE__TRY(sonde__op_expect_dims(attrs, -1, x->dtype, "target", &y, diag));
    if (!sonde__op_broadcasts_to(x, &y)) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL,
                           "dims of 1 or alike, aligned at the end", "%s broadcast to %s",
                           sonde__op_shape_text(x, found),
                           sonde_shape_text(y.rank, y.dim, wanted, sizeof wanted));
    }
    call->out[0].shape = y;
    return SONDE_OK;
}

static void broadcast_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *x = &call->in[0].shape, *y = &call->out[0].shape;
    const int64_t count = sonde__op_shape_count(y);

    (void)part, (void)parts;
    for (int64_t target = 0; target < count && call->out[0].data != NULL; target++) {
        move(&call->out[0], target, &call->in[0], sonde__op_broadcast_at(x, y, target));
    }
}

static void broadcast_gradient(const sonde__op_gradient_context *context)
{
    context->grad_in[0] =
        sonde__op_emit_sum_to(context, context->grad_out[0], context->in[0]);
}

SONDE__OP(broadcast, "Broadcast", shape, 1, 1, 1, .infer = broadcast_infer,
          .gradient = broadcast_gradient, SONDE__REFERENCE(broadcast_run));

static sonde_err reorder_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    (void)attrs;
    SONDE__TRY(sonde__op_expect_size(&call->in[0].shape, "input", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

static void reorder_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0], *y = &call->out[0];
    const sonde__op_shape *shape = &x->shape;
    const size_t size = sonde_dtype_size(shape->dtype);
    const int64_t samples = shape->rank == 0 ? 1 : shape->dim[0];
    const int64_t inner = sonde__op_dims_product(shape, 1, shape->rank);

    (void)part, (void)parts;
    memset(y->data, 0, (size_t)sonde__op_layout_count(shape, y->layout) * size);
    for (int64_t n = 0; n < samples; n++) {
        for (int64_t k = 0; k < inner; k++) {
            const size_t source =
                (size_t)sonde__op_layout_at(shape, x->layout, n, k) * size;
            const size_t target =
                (size_t)sonde__op_layout_at(shape, y->layout, n, k) * size;

            memcpy((char *)y->data + target, (const char *)x->data + source, size);
        }
    }
}

SONDE__OP(reorder, "Reorder", none, 1, 1, 1, .infer = reorder_infer,
          SONDE__REFERENCE(reorder_run), .fast = sonde__kernel_reorder_fast);

/* === shape layers =================================================================== */

#define AXIS(key, member, fallback)                                                      \
    SONDE__FIELD(key, SONDE__FIELD_AXIS, member, fallback, -SONDE_MAX_DIMS,              \
                 SONDE_MAX_DIMS - 1)

static sonde__op_value build_flatten(const sonde__op_builder *builder,
                                     sonde__op_attrs *attrs, const sonde__op_value *in)
{
    sonde__op_attrs dims;

    sonde__op_attrs_clear(&dims);
    if (sonde__op_expect_axis(&attrs->shape.axis,
                              sonde__op_value_shape(builder->graph, in[0])->rank,
                              builder->diag) != SONDE_OK) {
        return 0;
    }
    dims.shape.rank = attrs->shape.axis + 1;
    dims.shape.dims[attrs->shape.axis] = -1; /* the dimensions before are 0: copied */
    return builder->emit(builder, &sonde__op_reshape, &dims, in, 1);
}

SONDE__LAYER(flatten, reshape, 1, "the dimensions from start_dim on as one",
             .fields = {AXIS("start_dim", shape.axis, 1.0)}, .build = build_flatten);

SONDE__LAYER(reshape, reshape, 1,
             "the same elements in another shape; -1 is inferred, 0 is copied from x",
             .fields = {SONDE__FIELD("shape", SONDE__FIELD_DIMS, shape.dims, (double)NAN,
                                     -1, 1e15)});

SONDE__LAYER(permute, transpose, 1, "the dimensions in another order",
             .fields = {SONDE__FIELD("dims", SONDE__FIELD_DIMS, shape.dims, (double)NAN,
                                     -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1)});

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

SONDE__LAYER(transpose, transpose, 1, "two dimensions exchanged",
             .fields = {AXIS("dim0", shape.axis, (double)NAN),
                        AXIS("dim1", shape.other, (double)NAN)},
             .build = build_transpose);

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

SONDE__LAYER(unsqueeze, reshape, 1, "a dimension of 1 put in at dim",
             .fields = {AXIS("dim", shape.axis, (double)NAN)}, .build = build_unsqueeze);

SONDE__LAYER(squeeze, reshape, 1, "without the dimension dim, which is 1",
             .fields = {AXIS("dim", shape.axis, (double)NAN)}, .build = build_squeeze);

SONDE__LAYER(expand, broadcast, 1,
             "repeated along dimensions of 1 to size; -1 keeps a dimension",
             .fields = {SONDE__FIELD("size", SONDE__FIELD_DIMS, shape.dims, (double)NAN,
                                     -1, 1e9)});

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

SONDE__LAYER(stack, cat, 2, "a and b along a new dimension at dim",
             .fields = {AXIS("dim", shape.axis, 0.0)}, .build = build_stack);
