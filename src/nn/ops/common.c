/*
 * common.c - shared parts of the op families: the list of all kinds, lists of kernels,
 * the checks of shape rules with their messages, layouts, gradient rules and windows.
 *
 * A gradient rule may be called with fewer inputs than its op can have: its arrays have
 * an entry for each possible input, false and 0 for a missing one.
 */
#include "nn/ops/common.h"
#include "base/fail.h"
#include "base/macros.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double sonde__op_decimal(float number)
{
    return round((double)number * 1e7) / 1e7;
}

/* === attrs ========================================================================== */

#define SONDE__PACKED_INT SONDE__PACKED_WORD
#define SONDE__PACKED_BITS SONDE__PACKED_WORD
#define ROW(family, type, member, array)                                                 \
    {#member, offsetof(sonde__op_attrs, family.member), SONDE__PACKED_##type,            \
     sizeof(SONDE__ATTR_##type array) / sizeof(SONDE__ATTR_##type)},
#define TABLE(family, LIST)                                                              \
    static const sonde__packed_field fields_of_##family[] = {LIST(ROW, family)};         \
    const sonde__op_fields sonde__op_fields_##family = {                                 \
        fields_of_##family, SONDE_COUNT_OF(fields_of_##family)};
/* NOLINTBEGIN(bugprone-sizeof-expression): the elements of a field, some of them pointers */
SONDE__ATTRS_FAMILIES(TABLE)
/* NOLINTEND(bugprone-sizeof-expression) */

static const sonde__packed_field common_fields[] = {
    SONDE__PACKED(sonde__op_attrs, p, SONDE__PACKED_REAL, 1),
    SONDE__PACKED(sonde__op_attrs, stream, SONDE__PACKED_LONG, 1),
    SONDE__PACKED(sonde__op_attrs, reduction, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde__op_attrs, training, SONDE__PACKED_BOOL, 1),
    SONDE__PACKED(sonde__op_attrs, half, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde__op_attrs, wide, SONDE__PACKED_BOOL, 1),
};
const sonde__op_fields sonde__op_fields_common = {common_fields,
                                                  SONDE_COUNT_OF(common_fields)};
const sonde__op_fields sonde__op_fields_none = {NULL, 0};

bool sonde__op_fields_have_dims(const sonde__op_fields *table)
{
    return table->count > 1 && table->fields[1].count == SONDE_MAX_DIMS;
}

/* === kinds ========================================================================== */

static bool has_halves(const sonde__op_call *call)
{
    bool any = call->attrs != NULL && sonde__op_is_half(call->attrs->half);

    for (int i = 0; i < call->in_count; i++) {
        any = any || sonde__op_is_half(call->in[i].shape.dtype);
    }
    for (int i = 0; i < call->out_count; i++) {
        any = any || sonde__op_is_half(call->out[i].shape.dtype);
    }
    return any;
}

const sonde__op_kernel *sonde__op_kernel_of(const sonde__op_kind *kind,
                                            const sonde__op_call *call, size_t i)
{
    const sonde__op_kernel *const *listed = call != NULL && has_halves(call)
                                                ? kind->half_kernels
                                            : kind->fast != NULL ? kind->fast()
                                                                 : kind->own;
    size_t count = 0;

    while (listed != NULL && listed[count] != NULL) {
        count++;
    }
    return i < count ? listed[i] : i == count ? &kind->reference : NULL;
}

const sonde__op_kernel *sonde__op_first_kernel(const sonde__op_kind *kind,
                                               const sonde__op_call *call)
{
    for (size_t i = 0;; i++) {
        const sonde__op_kernel *kernel = sonde__op_kernel_of(kind, call, i);

        if (kernel->accepts == NULL || kernel->accepts(call)) {
            return kernel;
        }
    }
}

/* === checks ========================================================================= */

const char *sonde__op_shape_text(const sonde__op_shape *shape,
                                 char buf[SONDE__SHAPE_TEXT])
{
    char dims[SONDE__SHAPE_TEXT - 16];

    (void)snprintf(buf, SONDE__SHAPE_TEXT, "%s %s", sonde_dtype_name(shape->dtype),
                   sonde_shape_text(shape->rank, shape->dim, dims, sizeof dims));
    return buf;
}

sonde_err sonde__op_expect_size(const sonde__op_shape *shape, const char *what,
                                sonde_diag *diag)
{
    /* A panel widens a row by 32 at most, an element has 8 bytes at most. */
    const int64_t most = INT64_MAX / 8 / SONDE__PANEL_WIDTH;
    char text[SONDE__SHAPE_TEXT];
    int64_t count = 1;

    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0 ||
            __builtin_mul_overflow(count, SONDE_MAX(shape->dim[i], 1), &count) ||
            count > most) {
            return sonde__fail(diag, SONDE_ESHAPE, NULL, NULL,
                               "%s of impossible size, %s", what,
                               sonde__op_shape_text(shape, text));
        }
    }
    return SONDE_OK;
}

sonde_err sonde__op_expect_float(const sonde__op_shape *shape, const char *what,
                                 sonde_diag *diag)
{
    if (shape->dtype == SONDE_F32 || shape->dtype == SONDE_F64 ||
        sonde__op_is_half(shape->dtype)) {
        return sonde__op_expect_size(shape, what, diag);
    }
    return sonde__fail(diag, SONDE_EDTYPE, NULL, "float32 or float64", "%s has dtype %s",
                       what, sonde_dtype_name(shape->dtype));
}

sonde_err sonde__op_expect_dtype(const sonde__op_shape *shape, sonde_dtype dtype,
                                 const char *what, sonde_diag *diag)
{
    if (shape->dtype == dtype) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_EDTYPE, NULL, sonde_dtype_name(dtype),
                       "%s has dtype %s", what, sonde_dtype_name(shape->dtype));
}

sonde_err sonde__op_expect_product(const sonde__op_attrs *attrs, const sonde__op_shape *a,
                                   const sonde__op_shape *b, const char *what_b,
                                   sonde_dtype *dtype, sonde_diag *diag)
{
    const sonde_dtype half = attrs != NULL ? attrs->half : 0;
    const sonde__op_shape *const operands[] = {a, b};
    char wanted[48];

    if (!sonde__op_is_half(half)) {
        SONDE__TRY(sonde__op_expect_dtype(b, a->dtype, what_b, diag));
        *dtype = a->dtype;
        return SONDE_OK;
    }
    (void)snprintf(wanted, sizeof wanted, "float32 or %s", sonde_dtype_name(half));
    for (int i = 0; i < 2; i++) {
        if (operands[i]->dtype != SONDE_F32 && operands[i]->dtype != half) {
            return sonde__fail(diag, SONDE_EDTYPE, NULL, wanted, "%s has dtype %s",
                               i == 0 ? "first operand" : what_b,
                               sonde_dtype_name(operands[i]->dtype));
        }
    }
    *dtype = attrs->wide ? SONDE_F32 : half;
    return SONDE_OK;
}

sonde_err sonde__op_expect_rank(const sonde__op_shape *shape, int rank, const char *what,
                                const char *form, sonde_diag *diag)
{
    char text[SONDE__SHAPE_TEXT];

    SONDE__TRY(sonde__op_expect_float(shape, what, diag));
    if (shape->rank == rank) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_ESHAPE, NULL, form, "%s is %s", what,
                       sonde__op_shape_text(shape, text));
}

sonde_err sonde__op_expect_shape(const sonde__op_shape *shape,
                                 const sonde__op_shape *expected, const char *what,
                                 sonde_diag *diag)
{
    char found[SONDE__SHAPE_TEXT], wanted[SONDE__SHAPE_TEXT];
    bool same = shape->rank == expected->rank;

    for (int i = 0; same && i < shape->rank; i++) {
        same = shape->dim[i] == expected->dim[i];
    }
    if (same && shape->dtype == expected->dtype) {
        return SONDE_OK;
    }
    return sonde__fail(diag, same ? SONDE_EDTYPE : SONDE_ESHAPE, NULL,
                       sonde__op_shape_text(expected, wanted), "%s is %s", what,
                       sonde__op_shape_text(shape, found));
}

sonde_err sonde__op_expect_axis(int *axis, int rank, sonde_diag *diag)
{
    if (rank == 0 || *axis < -rank || *axis >= rank) {
        char range[48];

        (void)snprintf(range, sizeof range, "%d to %d", -rank, rank - 1);
        return sonde__fail(diag, SONDE_EINVAL, NULL, rank == 0 ? NULL : range,
                           "axis %d of a tensor of rank %d", *axis, rank);
    }
    *axis += *axis < 0 ? rank : 0;
    return SONDE_OK;
}

sonde_err sonde__op_take_axes(sonde__op_attrs *attrs, int rank, sonde_diag *diag)
{
    for (int i = 0; i < attrs->shape.rank && i < SONDE_MAX_DIMS; i++) {
        int axis = attrs->shape.dims[i] < -SONDE_MAX_DIMS ||
                           attrs->shape.dims[i] >= SONDE_MAX_DIMS
                       ? SONDE_MAX_DIMS
                       : (int)attrs->shape.dims[i];

        SONDE__TRY(sonde__op_expect_axis(&axis, rank, diag));
        attrs->reduce.axes |= 1U << (unsigned)axis;
    }
    attrs->shape.rank = 0;
    return SONDE_OK;
}

sonde_err sonde__op_expect_dims(const sonde__op_attrs *attrs, int rank, sonde_dtype dtype,
                                const char *what, sonde__op_shape *shape,
                                sonde_diag *diag)
{
    sonde__op_shape made = {.dtype = dtype, .rank = attrs->shape.rank};

    if (attrs->shape.rank < 0 || attrs->shape.rank > SONDE_MAX_DIMS ||
        (rank >= 0 && attrs->shape.rank != rank)) {
        char wanted[32];

        (void)snprintf(wanted, sizeof wanted, rank < 0 ? "0 to %d" : "%d",
                       rank < 0 ? SONDE_MAX_DIMS : rank);
        return sonde__fail(diag, SONDE_EINVAL, NULL, wanted, "%s has rank %d", what,
                           attrs->shape.rank);
    }
    for (int i = 0; i < attrs->shape.rank; i++) {
        made.dim[i] = attrs->shape.dims[i];
        if (made.dim[i] < 0) {
            char text[SONDE__SHAPE_TEXT];

            return sonde__fail(
                diag, SONDE_EINVAL, NULL, "no negative dimension", "%s would be %s", what,
                sonde_shape_text(made.rank, attrs->shape.dims, text, sizeof text));
        }
    }
    SONDE__TRY(sonde__op_expect_size(&made, what, diag));
    *shape = made;
    return SONDE_OK;
}

static sonde_err expect_in(int64_t value, int64_t least, const char *what,
                           sonde_diag *diag)
{
    char range[48];

    if (value >= least && value <= SONDE__MAX_EXTENT) {
        return SONDE_OK;
    }
    (void)snprintf(range, sizeof range, "%lld to %d", (long long)least,
                   SONDE__MAX_EXTENT);
    return sonde__fail(diag, SONDE_EINVAL, NULL, range, "%s is %lld", what,
                       (long long)value);
}

void sonde__op_window_strides(sonde__op_attrs *attrs)
{
    for (int i = 0; i < 3; i++) {
        int64_t *stride = &attrs->window.stride[i];

        *stride = *stride == 0 ? attrs->window.kernel[i] : *stride;
    }
}

sonde_err sonde__op_window_count(const sonde__op_attrs *attrs, int d, int64_t extent,
                                 int64_t *count, sonde_diag *diag)
{
    int64_t padded = 0, window = 0;

    SONDE__TRY(expect_in(attrs->window.kernel[d], 1,
                         d == 0 ? "kernel height" : "kernel width", diag));
    SONDE__TRY(expect_in(attrs->window.stride[d], 1, "stride", diag));
    SONDE__TRY(expect_in(attrs->window.padding[d], 0, "padding", diag));
    SONDE__TRY(expect_in(attrs->window.dilation[d], 1, "dilation", diag));
    padded = extent + 2 * attrs->window.padding[d];
    window = attrs->window.dilation[d] * (attrs->window.kernel[d] - 1) + 1;
    if (window > padded) {
        char most[64];

        (void)snprintf(most, sizeof most, "at most the padded input's %lld",
                       (long long)padded);
        return sonde__fail(diag, SONDE_ESHAPE, NULL, most, "kernel spans %lld in %s",
                           (long long)window, d == 0 ? "height" : "width");
    }
    *count = (padded - window) / attrs->window.stride[d] + 1;
    return SONDE_OK;
}

/* === shape rules ==================================================================== */

sonde_err sonde__op_infer_alike(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    (void)attrs;
    call->out[0].shape = call->in[0].shape;
    return sonde__op_expect_float(&call->in[0].shape, "input", diag);
}

sonde_err sonde__op_infer_slope(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[1].shape;

    (void)attrs;
    call->out[0].shape = *x;
    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    return sonde__op_expect_shape(&call->in[0].shape, x, "output gradient", diag);
}

sonde_err sonde__op_infer_shaped(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde__op_rule forward, sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape;
    sonde__op_call op = *call;

    SONDE__TRY(sonde__op_expect_float(dy, "output gradient", diag));
    SONDE__TRY(
        sonde__op_expect_dims(attrs, -1, dy->dtype, "input", &op.in[0].shape, diag));
    call->out[0].shape = op.in[0].shape;
    SONDE__TRY(forward(&op, attrs, diag));
    return sonde__op_expect_shape(dy, &op.out[0].shape, "output gradient", diag);
}

sonde_err sonde__op_infer_after(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde__op_rule forward, int count, int first,
                                sonde_diag *diag)
{
    sonde__op_call op = {.in_count = count};

    for (int i = 0; i < count; i++) {
        op.in[i] = call->in[1 + i];
    }
    SONDE__TRY(forward(&op, attrs, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, &op.out[0].shape,
                                      "output gradient", diag));
    for (int i = 1 + count; i < call->in_count; i++) {
        SONDE__TRY(sonde__op_expect_shape(
            &call->in[i].shape, &op.out[first + i - 1 - count].shape, "output", diag));
    }
    for (int i = 0; i < call->out_count; i++) {
        call->out[i].shape = call->in[1 + i].shape;
    }
    return SONDE_OK;
}

/* === gradient rules ================================================================= */

bool sonde__op_has_gradient(const sonde__op_kind *kind)
{
    return kind->gradient != NULL || kind->backward.kind != NULL;
}

static sonde__op_value operand_of(const sonde__op_gradient_context *context, char letter)
{
    return letter == 'd'  ? context->grad_out[0]
           : letter < 'A' ? context->in[letter - '0']
                          : context->out[letter - 'A'];
}

static void emit_backward(const sonde__op_backward *backward,
                          const sonde__op_gradient_context *context)
{
    sonde__op_value in[SONDE__MAX_OPERANDS] = {0};
    sonde__op_value *const grad_in = context->grad_in + backward->to;
    int count = 0, wanted = 0;

    for (int i = 0; i < backward->kind->out_count; i++) {
        wanted += context->wanted[backward->to + i] ? 1 : 0;
    }
    if (context->grad_out[0] == 0 || wanted == 0) {
        return; /* something reads another output only */
    }
    for (; backward->in[count] != '\0'; count++) {
        in[count] = operand_of(context, backward->in[count]);
    }
    count -= in[count - 1] == 0 ? 1 : 0;
    const sonde__op_value first =
        backward->shaped
            ? sonde__op_emit_shaped(context, backward->kind, context->in[backward->to],
                                    in, count)
            : sonde__op_emit(context->graph, backward->kind, context->attrs, in, count);
    for (int i = 0; i < backward->kind->out_count && first != 0; i++) {
        grad_in[i] = context->wanted[backward->to + i] ? first + (sonde__op_value)i : 0;
    }
}

void sonde__op_differentiate(const sonde__op_kind *kind,
                             const sonde__op_gradient_context *context)
{
    if (kind->gradient != NULL) {
        kind->gradient(context);
    } else {
        emit_backward(&kind->backward, context);
    }
}

sonde__op_value sonde__op_emit_shaped(const sonde__op_gradient_context *context,
                                      const sonde__op_kind *kind, sonde__op_value like,
                                      const sonde__op_value *in, int in_count)
{
    const sonde__op_shape *shape = sonde__op_value_shape(context->graph, like);
    sonde__op_attrs attrs = sonde__op_product_attrs(context, like);

    attrs.shape.rank = shape->rank;
    memcpy(attrs.shape.dims, shape->dim, sizeof attrs.shape.dims);
    return sonde__op_emit(context->graph, kind, &attrs, in, in_count);
}

sonde__op_value sonde__op_emit_sum_to(const sonde__op_gradient_context *context,
                                      sonde__op_value value, sonde__op_value like)
{
    const sonde__op_shape wide = *sonde__op_value_shape(context->graph, value);
    const sonde__op_shape narrow = *sonde__op_value_shape(context->graph, like);
    const int lead = wide.rank - narrow.rank;
    sonde__op_attrs attrs = {.reduce = {.keep_dims = true}};

    for (int i = 0; i < wide.rank; i++) {
        if (i < lead || (narrow.dim[i - lead] == 1 && wide.dim[i] != 1)) {
            attrs.reduce.axes |= 1u << i;
        }
    }
    if (attrs.reduce.axes != 0) {
        value = sonde__op_emit(context->graph, &sonde__op_reduce, &attrs, &value, 1);
    }
    return lead == 0
               ? value
               : sonde__op_emit_shaped(context, &sonde__op_reshape, like, &value, 1);
}

/* === elements ======================================================================= */

double sonde__op_load_half(const sonde__operand *operand, int64_t i)
{
    return sonde_element_get(operand->shape.dtype, (const uint16_t *)operand->data + i);
}

void sonde__op_store_half(const sonde__operand *operand, int64_t i, double value)
{
    sonde_element_set(operand->shape.dtype, (uint16_t *)operand->data + i, value);
}

double sonde__op_rounded(const sonde__op_call *call, double value)
{
    uint16_t rounded = 0;

    if (call->attrs == NULL || !sonde__op_is_half(call->attrs->half)) {
        return value;
    }
    sonde_element_set(call->attrs->half, &rounded, value);
    return sonde_element_get(call->attrs->half, &rounded);
}

double sonde__op_load_rounded(const sonde__op_call *call, int operand, int64_t i)
{
    return sonde__op_rounded(call, sonde__op_load(&call->in[operand], i));
}

void sonde__op_store_all(const sonde__op_call *call, sonde__op_element element)
{
    const sonde__operand *out = &call->out[0];
    const int64_t *dim = out->shape.dim;
    int64_t i = 0;

    for (int64_t a = 0; a < dim[0]; a++) {
        for (int64_t b = 0; b < dim[1]; b++) {
            for (int64_t c = 0; c < dim[2]; c++) {
                for (int64_t d = 0; d < dim[3]; d++) {
                    sonde__op_store(out, i++, element(call, a, b, c, d));
                }
            }
        }
    }
}
