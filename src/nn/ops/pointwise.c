/*
 * pointwise.c - functions of one value: a table of activations and of arithmetic.
 *
 * A row is one line: SONDE__POINTWISE(name, Op, help, y, dy/dx, keys ...). It makes the
 * op, its gradient (dx = dy dy/dx, from x), and the layer of that name. Both are
 * expressions in x; A and B are the first two numbers of the layer, in the order of its
 * keys, and WORD is its choice.
 *
 * Values at NaN and infinities, and slopes where there are two of them, are PyTorch's: a
 * comparison that is false for NaN decides which branch NaN takes.
 *
 * attrs: function.
 */
#include "base/macros.h"
#include "nn/kernels/rows.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

typedef double (*pointwise_function)(double x, const sonde__op_attrs *attrs);

/* Elements below which a second thread costs more than it saves. */
enum { ELEMENTS_A_PART = 8192 };

static int pointwise_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->out[0].shape) / ELEMENTS_A_PART;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

static void pointwise_map(const sonde__op_call *call, int part, int parts,
                          pointwise_function value)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);

    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
        sonde__op_store(&call->out[0], i,
                        value(sonde__op_load(&call->in[0], i), call->attrs));
    }
}

static void pointwise_map_grad(const sonde__op_call *call, int part, int parts,
                               pointwise_function slope)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);

    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
        sonde__op_store(&call->out[0], i,
                        sonde__op_load(&call->in[0], i) *
                            slope(sonde__op_load(&call->in[1], i), call->attrs));
    }
}

#define A ((double)attrs->function.number[0])
#define B ((double)attrs->function.number[1])
#define WORD (attrs->function.variant)

static const sonde__op_kernel *const gelu_rows[] = {&sonde__kernel_gelu_rows, NULL};
static const sonde__op_kernel *const gelu_grad_rows[] = {&sonde__kernel_gelu_grad_rows,
                                                         NULL};

/* own, own_grad: kernels before the references, or NULL. */
#define SONDE__POINTWISE(op, title, text, f, slope, ...)                                 \
    SONDE__POINTWISE_WITH(op, NULL, NULL, title, text, f, slope, __VA_ARGS__)
#define SONDE__POINTWISE_WITH(op, own_, own_grad, title, text, f, slope, ...)            \
    static double op##_value(double x, const sonde__op_attrs *attrs)                     \
    {                                                                                    \
        (void)x, (void)attrs;                                                            \
        return f;                                                                        \
    }                                                                                    \
                                                                                         \
    static double op##_slope(double x, const sonde__op_attrs *attrs)                     \
    {                                                                                    \
        (void)x, (void)attrs;                                                            \
        return slope;                                                                    \
    }                                                                                    \
                                                                                         \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        pointwise_map(call, part, parts, op##_value);                                    \
    }                                                                                    \
                                                                                         \
    static void op##_grad_run(const sonde__op_call *call, int part, int parts)           \
    {                                                                                    \
        pointwise_map_grad(call, part, parts, op##_slope);                               \
    }                                                                                    \
                                                                                         \
    const sonde__op_kind sonde__op_##op = {                                              \
        .name = title,                                                                   \
        SONDE__OPERANDS(function, 1, 1, 1),                                              \
        .infer = sonde__op_infer_alike,                                                  \
        .backward = {&sonde__op_##op##_grad, "d0"},                                      \
        SONDE__REFERENCE(op##_run, .parts = pointwise_parts),                            \
        .own = (own_),                                                                   \
    };                                                                                   \
    const sonde__op_kind sonde__op_##op##_grad = {                                       \
        .name = title "Grad",                                                            \
        SONDE__OPERANDS(function, 2, 2, 1),                                              \
        .infer = sonde__op_infer_slope,                                                  \
        SONDE__REFERENCE(op##_grad_run, .parts = pointwise_parts),                       \
        .own = (own_grad),                                                               \
    };                                                                                   \
    const sonde__op_layer sonde__layer_##op = {.name = #op,                              \
                                               .kind = &sonde__op_##op,                  \
                                               .inputs = 1,                              \
                                               .help = text,                             \
                                               .fields = {__VA_ARGS__}};

/* A number under a key, with its default; and one that is not negative, or positive. */
#define FIRST(key, fallback) SONDE__FIELD_ANY(key, function.number[0], fallback)
#define SECOND(key, fallback) SONDE__FIELD_ANY(key, function.number[1], fallback)
#define FIRST_UP(key, fallback)                                                          \
    SONDE__FIELD(key, SONDE__FIELD_NUMBER, function.number[0], fallback, 0,              \
                 (double)INFINITY)

/* --- parts of rows ---------------------------------------------------------------------- */

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* log(1 + exp(x)) without overflow. */
static double soft_plus(double x)
{
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double normal_share(double x) /* of what lies below x */
{
    return 0.5 * (1.0 + erf(x * sqrt(0.5)));
}

static double gelu_tanh(double x)
{
    return tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x));
}

static double gelu(double x, bool by_tanh)
{
    return by_tanh ? 0.5 * x * (1.0 + gelu_tanh(x)) : x * normal_share(x);
}

static double gelu_slope_of(double x, bool by_tanh)
{
    const double t = by_tanh ? gelu_tanh(x) : 0.0;

    return by_tanh ? 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * sqrt(2.0 / pi) *
                                           (1.0 + 3.0 * 0.044715 * x * x)
                   : normal_share(x) + x * exp(-0.5 * x * x) / sqrt(2.0 * pi);
}

static double mish_slope_of(double x)
{
    const double t = tanh(soft_plus(x));

    return t + x * (1.0 - t * t) * logistic(x);
}

/* PyTorch's constants of SELU (Klambauer et al. 2017). */
#define SELU_ALPHA 1.6732632423543772848170429916717
#define SELU_SCALE 1.0507009873554804934193349852946

/* clang-format off */

/* --- activations ------------------------------------------------------------------------ */

SONDE__POINTWISE_WITH(gelu, gelu_rows, gelu_grad_rows, "Gelu", "x Φ(x), or its approximation by tanh",
    gelu(x, WORD == 1), gelu_slope_of(x, WORD == 1),
    SONDE__FIELD_CHOICE("approximate", function.variant, "none", "tanh"))
SONDE__POINTWISE(silu, "Silu", "x / (1 + exp(-x))",
    x * logistic(x), logistic(x) * (1.0 + x * (1.0 - logistic(x))), {0})
SONDE__POINTWISE(mish, "Mish", "x tanh(softplus(x))",
    x * tanh(soft_plus(x)), mish_slope_of(x), {0})
SONDE__POINTWISE(leaky_relu, "LeakyRelu", "x, or negative_slope x below 0",
    x > 0.0 ? x : A * x, x > 0.0 ? 1.0 : A, FIRST("negative_slope", 0.01))
SONDE__POINTWISE(elu, "Elu", "x, or alpha (exp(x) - 1) below 0",
    x < 0.0 ? A * expm1(x) : x, x <= 0.0 ? A * exp(x) : 1.0, FIRST("alpha", 1.0))
SONDE__POINTWISE(celu, "Celu", "x, or alpha (exp(x / alpha) - 1) below 0",
    x < 0.0 ? A * expm1(x / A) : x, x <= 0.0 ? exp(x / A) : 1.0, FIRST("alpha", 1.0))
SONDE__POINTWISE(selu, "Selu", "1.0507 x, or 1.7581 (exp(x) - 1) below 0",
    x < 0.0 ? SELU_SCALE * SELU_ALPHA * expm1(x) : SELU_SCALE * x,
    x <= 0.0 ? SELU_SCALE * SELU_ALPHA * exp(x) : SELU_SCALE, {0})
SONDE__POINTWISE(relu6, "Relu6", "between 0 and 6",
    x < 0.0 ? 0.0 : x > 6.0 ? 6.0 : x, x > 0.0 && x < 6.0 ? 1.0 : 0.0, {0})
SONDE__POINTWISE(hardtanh, "Hardtanh", "between min_val and max_val",
    x < A ? A : x > B ? B : x, x > A && x < B ? 1.0 : 0.0,
    FIRST("min_val", -1.0), SECOND("max_val", 1.0))
SONDE__POINTWISE(hardsigmoid, "Hardsigmoid", "x / 6 + 1/2 between 0 and 1",
    x < -3.0 ? 0.0 : x > 3.0 ? 1.0 : (x + 3.0) / 6.0, x > -3.0 && x < 3.0 ? 1.0 / 6.0 : 0.0, {0})
SONDE__POINTWISE(hardswish, "Hardswish", "x hardsigmoid(x)",
    x * (x < -3.0 ? 0.0 : x > 3.0 ? 1.0 : (x + 3.0) / 6.0),
    x <= -3.0 ? 0.0 : x < 3.0 ? x / 3.0 + 0.5 : 1.0, {0})
SONDE__POINTWISE(hardshrink, "Hardshrink", "x, or 0 within lambd of 0",
    x >= -A && x <= A ? 0.0 : x, x > A || x < -A ? 1.0 : 0.0, FIRST("lambd", 0.5))
SONDE__POINTWISE(softshrink, "Softshrink", "x nearer to 0 by lambd, or 0",
    x > A ? x - A : x < -A ? x + A : x * 0.0, x > A || x < -A ? 1.0 : 0.0,
    FIRST_UP("lambd", 0.5))
SONDE__POINTWISE(tanhshrink, "Tanhshrink", "x - tanh(x)",
    x - tanh(x), tanh(x) * tanh(x), {0})
SONDE__POINTWISE(softplus, "Softplus", "log(1 + exp(beta x)) / beta; x where beta x > threshold",
    A * x > B ? x : soft_plus(A * x) / A, A * x > B ? 1.0 : logistic(A * x),
    FIRST("beta", 1.0), SECOND("threshold", 20.0))
SONDE__POINTWISE(softsign, "Softsign", "x / (1 + abs(x))",
    x / (1.0 + fabs(x)), 1.0 / ((1.0 + fabs(x)) * (1.0 + fabs(x))), {0})
SONDE__POINTWISE(logsigmoid, "LogSigmoid", "-log(1 + exp(-x))",
    -soft_plus(-x), logistic(-x), {0})
SONDE__POINTWISE(threshold, "Threshold", "x, or value where x is at most threshold",
    x <= A ? B : x, x <= A ? 0.0 : 1.0,
    FIRST("threshold", (double)NAN), SECOND("value", (double)NAN))

/* --- arithmetic ------------------------------------------------------------------------- */

SONDE__POINTWISE(neg, "Neg", "-x", -x, -1.0, {0})
SONDE__POINTWISE(abs, "Abs", "the absolute value", fabs(x), x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0, {0})
SONDE__POINTWISE(exp, "Exp", "exp(x)", exp(x), exp(x), {0})
SONDE__POINTWISE(expm1, "Expm1", "exp(x) - 1", expm1(x), exp(x), {0})
SONDE__POINTWISE(log, "Log", "log(x)", log(x), 1.0 / x, {0})
SONDE__POINTWISE(log1p, "Log1p", "log(1 + x)", log1p(x), 1.0 / (1.0 + x), {0})
SONDE__POINTWISE(sqrt, "Sqrt", "the square root", sqrt(x), 0.5 / sqrt(x), {0})
SONDE__POINTWISE(rsqrt, "Rsqrt", "1 / the square root",
    1.0 / sqrt(x), -0.5 / (sqrt(x) * sqrt(x) * sqrt(x)), {0})
SONDE__POINTWISE(square, "Square", "x x", x * x, 2.0 * x, {0})
SONDE__POINTWISE(reciprocal, "Reciprocal", "1 / x", 1.0 / x, -1.0 / (x * x), {0})
SONDE__POINTWISE(sin, "Sin", "sin(x)", sin(x), cos(x), {0})
SONDE__POINTWISE(cos, "Cos", "cos(x)", cos(x), -sin(x), {0})
SONDE__POINTWISE(erf, "Erf", "the error function",
    erf(x), 2.0 / sqrt(pi) * exp(-x * x), {0})
SONDE__POINTWISE(erfc, "Erfc", "1 - the error function",
    erfc(x), -2.0 / sqrt(pi) * exp(-x * x), {0})
SONDE__POINTWISE(tan, "Tan", "tan(x)", tan(x), 1.0 + tan(x) * tan(x), {0})
SONDE__POINTWISE(asin, "Asin", "the arc sine", asin(x), 1.0 / sqrt(1.0 - x * x), {0})
SONDE__POINTWISE(acos, "Acos", "the arc cosine", acos(x), -1.0 / sqrt(1.0 - x * x), {0})
SONDE__POINTWISE(atan, "Atan", "the arc tangent", atan(x), 1.0 / (1.0 + x * x), {0})
SONDE__POINTWISE(sinh, "Sinh", "the hyperbolic sine", sinh(x), cosh(x), {0})
SONDE__POINTWISE(cosh, "Cosh", "the hyperbolic cosine", cosh(x), sinh(x), {0})
SONDE__POINTWISE(asinh, "Asinh", "the inverse of sinh", asinh(x), 1.0 / sqrt(x * x + 1.0), {0})
SONDE__POINTWISE(atanh, "Atanh", "the inverse of tanh", atanh(x), 1.0 / (1.0 - x * x), {0})
SONDE__POINTWISE(log2, "Log2", "the logarithm to base 2", log2(x), 1.0 / (x * log(2.0)), {0})
SONDE__POINTWISE(log10, "Log10", "the logarithm to base 10", log10(x), 1.0 / (x * log(10.0)), {0})
SONDE__POINTWISE(exp2, "Exp2", "2 to the power of x", exp2(x), exp2(x) * log(2.0), {0})
SONDE__POINTWISE(sign, "Sign", "-1, 0 or 1; NaN of NaN", /* PyTorch: 0 of NaN */
    x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x, 0.0, {0})
SONDE__POINTWISE(floor, "Floor", "the next whole number below", floor(x), 0.0, {0})
SONDE__POINTWISE(ceil, "Ceil", "the next whole number above", ceil(x), 0.0, {0})
SONDE__POINTWISE(round, "Round", "the nearest whole number; of two the even one",
    nearbyint(x), 0.0, {0})
SONDE__POINTWISE(trunc, "Trunc", "the next whole number towards 0", trunc(x), 0.0, {0})
SONDE__POINTWISE(pow, "Pow", "x to the power of exponent",
    pow(x, A), A == 0.0 ? 0.0 : A * pow(x, A - 1.0), FIRST("exponent", (double)NAN))
SONDE__POINTWISE(clamp, "Clamp", "between min and max",
    x < A ? A : x > B ? B : x, x >= A && x <= B ? 1.0 : 0.0,
    FIRST("min", -(double)INFINITY), SECOND("max", (double)INFINITY))
