/*
 * common.h - what the op families share: checks for shape rules, element access for
 * reference kernels, and lists of kernels.
 *
 * Reference kernels compute in double and round once, on store, to the dtype of the
 * output: one simple loop serves float32 and float64, sums do not lose digits, and a
 * single operation (add, mul, max) has the very bits of float32 arithmetic, since double
 * holds more than twice its digits.
 */
#ifndef SONDE_NN_OPS_COMMON_H
#define SONDE_NN_OPS_COMMON_H

#include "base/fail.h"
#include "nn/ops/ops.h"

/* The family of a kind's attrs; the inputs that it takes, from the first count to the
 * second, and its outputs. */
#define SONDE__OPERANDS(family, least, most, outputs)                                    \
    .fields = &sonde__op_fields_##family, .in_min = (least), .in_max = (most),           \
    .out_count = (outputs)

/* A row of the op table, which the build finds: the kind sonde__op_<op>, its title, the
 * family of its attrs, and as SONDE__OPERANDS; then its other fields. */
#define SONDE__OP(op, title, family, least, most, outputs, ...)                          \
    const sonde__op_kind sonde__op_##op = {                                              \
        .name = (title), SONDE__OPERANDS(family, least, most, outputs), __VA_ARGS__}

/* --- checks for shape rules; all fill diag with found and expected ------------------ */

enum { SONDE__SHAPE_TEXT = 192, SONDE__MAX_EXTENT = 1 << 24 };

/* "float32 (16, 5, 26, 26)". Returns buf. */
const char *sonde__op_shape_text(const sonde__op_shape *shape,
                                 char buf[SONDE__SHAPE_TEXT]);

/* float32 or float64, or a half, which sonde__graph_infer refuses where an op takes none;
 * of a size that sonde__op_expect_size takes. */
sonde_err sonde__op_expect_float(const sonde__op_shape *shape, const char *what,
                                 sonde_diag *diag);
/* The dtype of a product's output. Without attrs->half its operands have the same dtype;
 * with it each is float32 or that dtype. */
sonde_err sonde__op_expect_product(const sonde__op_attrs *attrs, const sonde__op_shape *a,
                                   const sonde__op_shape *b, const char *what_b,
                                   sonde_dtype *dtype, sonde_diag *diag);
/* A float tensor of that rank; form names its dims: "(N, C, H, W)". */
sonde_err sonde__op_expect_rank(const sonde__op_shape *shape, int rank, const char *what,
                                const char *form, sonde_diag *diag);
/* The dtype and shape of expected. */
sonde_err sonde__op_expect_shape(const sonde__op_shape *shape,
                                 const sonde__op_shape *expected, const char *what,
                                 sonde_diag *diag);
/* Of that dtype, whatever the shape. */
sonde_err sonde__op_expect_dtype(const sonde__op_shape *shape, sonde_dtype dtype,
                                 const char *what, sonde_diag *diag);
/* No negative dim, and few enough elements that bytes and offsets of every layout fit in
 * int64_t. */
sonde_err sonde__op_expect_size(const sonde__op_shape *shape, const char *what,
                                sonde_diag *diag);
/* axis, counted from the end if negative, as 0 ... rank - 1 in *axis. */
sonde_err sonde__op_expect_axis(int *axis, int rank, sonde_diag *diag);
/* Axes that a layer lists in attrs->window.dims, negative ones counted from the end, as bits of
 * attrs->reduce.axes; attrs->window.rank becomes 0. */
sonde_err sonde__op_take_axes(sonde__op_attrs *attrs, int rank, sonde_diag *diag);
/* The shape in attrs->window.dims, each >= 0; rank < 0: any. */
sonde_err sonde__op_expect_dims(const sonde__op_attrs *attrs, int rank, sonde_dtype dtype,
                                const char *what, sonde__op_shape *shape,
                                sonde_diag *diag);
/* Shape rules: one value to one like it; dy and a value that it is the gradient of to one
 * like that. */
sonde_err sonde__op_infer_alike(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag);
sonde_err sonde__op_infer_slope(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag);
typedef sonde_err (*sonde__op_rule)(sonde__op_call *call, sonde__op_attrs *attrs,
                                    sonde_diag *diag);
/* The rule of a shaped gradient (see sonde__op_backward), given that of its op, over dy and
 * the op's inputs after the first. */
sonde_err sonde__op_infer_shaped(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde__op_rule forward, sonde_diag *diag);
/* The rule of a gradient over dy, then all `count` inputs of its op, then outputs of it from
 * number `first` on. */
sonde_err sonde__op_infer_after(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde__op_rule forward, int count, int first,
                                sonde_diag *diag);
/* A stride of 0 is the kernel. */
void sonde__op_window_strides(sonde__op_attrs *attrs);
/* How many windows of attrs (kernel, stride, padding, dilation) fit along dimension d
 * (0: height, 1: width) of extent elements: floor((extent + 2 padding - dilation (kernel
 * - 1) - 1) / stride) + 1, as PyTorch. */
sonde_err sonde__op_window_count(const sonde__op_attrs *attrs, int d, int64_t extent,
                                 int64_t *count, sonde_diag *diag);

/* --- windows of conv2d and max_pool2d ----------------------------------------------- */

/* Position in the input, along dimension d of extent elements, of tap k of window i; -1
 * in the padding. */
static inline int64_t sonde__op_tap_position(const sonde__op_attrs *attrs, int d,
                                             int64_t i, int64_t k, int64_t extent)
{
    const int64_t position = i * attrs->window.stride[d] - attrs->window.padding[d] +
                             k * attrs->window.dilation[d];

    return position >= 0 && position < extent ? position : -1;
}

/* The window, of `windows` along dimension d, whose tap k is at a position; -1: none. */
static inline int64_t sonde__op_window_at(const sonde__op_attrs *attrs, int d,
                                          int64_t position, int64_t k, int64_t windows)
{
    const int64_t start =
        position + attrs->window.padding[d] - k * attrs->window.dilation[d];

    return start >= 0 && start % attrs->window.stride[d] == 0 &&
                   start / attrs->window.stride[d] < windows
               ? start / attrs->window.stride[d]
               : -1;
}

/* A number of `live` as the decimal fraction of seven places that it came from: 1 - 0.999f
 * is off by 1.3e-5 of itself. */
double sonde__op_decimal(float number);

/* --- element access ----------------------------------------------------------------- */

/* Whether an optional input was given. */
static inline bool sonde__op_has_in(const sonde__op_call *call, int i)
{
    return i < call->in_count && call->in[i].data != NULL;
}

/* Of bfloat16 or float16. */
__attribute__((pure)) double sonde__op_load_half(const sonde__operand *operand,
                                                 int64_t i);
void sonde__op_store_half(const sonde__operand *operand, int64_t i, double value);

/* Element i, row-major, of a float operand. */
static inline double sonde__op_load(const sonde__operand *operand, int64_t i)
{
    if (sonde__op_is_half(operand->shape.dtype)) {
        return sonde__op_load_half(operand, i);
    }
    return operand->shape.dtype == SONDE_F64 ? ((const double *)operand->data)[i]
                                             : (double)((const float *)operand->data)[i];
}

/* A number that a product reads, rounded to attrs.half; and that of an operand. */
double sonde__op_rounded(const sonde__op_call *call, double value);
double sonde__op_load_rounded(const sonde__op_call *call, int operand, int64_t i);

/* Does nothing for an output that is not computed (data NULL). */
static inline void sonde__op_store(const sonde__operand *operand, int64_t i, double value)
{
    if (operand->data == NULL) {
        return;
    }
    if (sonde__op_is_half(operand->shape.dtype)) {
        sonde__op_store_half(operand, i, value);
    } else if (operand->shape.dtype == SONDE_F64) {
        ((double *)operand->data)[i] = value;
    } else {
        ((float *)operand->data)[i] = (float)value;
    }
}

/* Row-major position of (a, b, c, d) in a tensor of four dimensions. */
static inline int64_t sonde__op_at4(const sonde__op_shape *shape, int64_t a, int64_t b,
                                    int64_t c, int64_t d)
{
    return ((a * shape->dim[1] + b) * shape->dim[2] + c) * shape->dim[3] + d;
}

/* Element (a, b, c, d) of an output of four dimensions. */
typedef double (*sonde__op_element)(const sonde__op_call *call, int64_t a, int64_t b,
                                    int64_t c, int64_t d);
/* Stores every element of out[0], of four dimensions, in row-major order. */
void sonde__op_store_all(const sonde__op_call *call, sonde__op_element element);

/* Whether `from` can be broadcast to `to`, dtypes aside; and the position in `from` of
 * to's row-major element i (elementwise.c). */
bool sonde__op_broadcasts_to(const sonde__op_shape *source,
                             const sonde__op_shape *target);
/* Fills in the dims of *y, whose rank is the larger of the two: those of a and b, aligned at
 * the end, where 1 goes with any. SONDE_ESHAPE. */
sonde_err sonde__op_expect_broadcast(const sonde__op_shape *a, const sonde__op_shape *b,
                                     sonde__op_shape *y, sonde_diag *diag);
int64_t sonde__op_broadcast_at(const sonde__op_shape *source,
                               const sonde__op_shape *target, int64_t i);

/* Spells i in the dims of x that attrs.reduce.axes reduces (or in those that it does not) and
 * gives the position in x of those coordinates (reduce.c). */
int64_t sonde__op_reduced_at(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                             bool reduced, int64_t i);

/* --- gradient rules ----------------------------------------------------------------- */

/* Emits an op with the attrs of the forward op, and the dims of the value `like`.
 */
sonde__op_value sonde__op_emit_shaped(const sonde__op_gradient_context *context,
                                      const sonde__op_kind *kind, sonde__op_value like,
                                      const sonde__op_value *in, int in_count);
/* Sums `value` over the dims in which `like` was broadcast to it, into like's shape: the
 * gradient of broadcasting. */
sonde__op_value sonde__op_emit_sum_to(const sonde__op_gradient_context *context,
                                      sonde__op_value value, sonde__op_value like);

/* attrs of the gradient of a product with respect to `like`, which gets its dtype. */
static inline sonde__op_attrs
sonde__op_product_attrs(const sonde__op_gradient_context *context, sonde__op_value like)
{
    sonde__op_attrs attrs = *context->attrs;

    attrs.wide = attrs.half != 0 &&
                 !sonde__op_is_half(sonde__op_value_shape(context->graph, like)->dtype);
    return attrs;
}

/* --- kernels ------------------------------------------------------------------------ */

/* The reference of a kind; further fields of the kernel follow. */
#define SONDE__REFERENCE(...) .reference = {.name = "reference", .run = __VA_ARGS__}
/* A list of one kernel, likewise. */
#define SONDE__KERNEL(name_, ...)                                                        \
    (const sonde__op_kernel *const[])                                                    \
    {                                                                                    \
        &(const sonde__op_kernel){.name = (name_), .run = __VA_ARGS__}, NULL             \
    }

/* --- dropout.c: for ops that drop something inside -------------------------------------- */

/* Whether a call drops anything: attrs.p is the probability, and it is training. */
static inline bool sonde__op_drops(const sonde__op_call *call)
{
    return call->attrs->p > 0.0F && call->draw != NULL && call->draw->training;
}

/* The factor of element i: 0 or 1 / (1 - p), drawn from attrs.stream; 1 if nothing is
 * dropped. */
double sonde__op_dropout_factor(const sonde__op_call *call, int64_t i);
/* y[k] = x[k] times the factor of element first + k; y may be x. */
void sonde__op_dropout_row(const sonde__op_call *call, int64_t first, const float *x,
                           float *y, int64_t count);

#endif
