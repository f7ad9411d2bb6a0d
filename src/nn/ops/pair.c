/*
 * pair.c - functions of two values: a table of arithmetic with broadcasting and of
 * losses.
 *
 * A row is one line: SONDE__PAIRWISE(name, Op, help, y, dy/da, dy/db, loss, keys ...).
 * It makes the op, one gradient of each input, and the layer of that name. y and the
 * slopes are expressions in a and b, and in A and B, the first two numbers of the layer.
 * A loss takes inputs of one shape, and its layer returns their mean, their sum, or all
 * of them.
 *
 * Arithmetic broadcasts as PyTorch does; a gradient is summed over the dimensions in
 * which its input was broadcast. A loss refuses other shapes: a target of shape (N)
 * beside (N, 1) would compare all with all.
 *
 * Values at NaN and infinities, and slopes where there are two of them, are PyTorch's.
 *
 * attrs: function.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

typedef double (*pair_function)(double a, double b, const sonde__op_attrs *attrs);

/* --- shapes --------------------------------------------------------------------------- */

static sonde_err pair_infer(sonde__op_call *call, int first, bool alike, sonde_diag *diag)
{
    const sonde__op_shape *a = &call->in[first].shape, *b = &call->in[first + 1].shape;
    sonde__op_shape y = {.dtype = a->dtype,
                         .rank = a->rank > b->rank ? a->rank : b->rank};

    SONDE__TRY(sonde__op_expect_float(a, "first input", diag));
    SONDE__TRY(sonde__op_expect_dtype(b, a->dtype, "second input", diag));
    if (alike) {
        SONDE__TRY(sonde__op_expect_shape(b, a, "target", diag));
    }
    SONDE__TRY(sonde__op_expect_broadcast(a, b, &y, diag));
    SONDE__TRY(sonde__op_expect_size(&y, "output", diag));
    if (first == 1) {
        SONDE__TRY(
            sonde__op_expect_shape(&call->in[0].shape, &y, "output gradient", diag));
    }
    call->out[0].shape = y;
    return SONDE_OK;
}

static sonde_err forward_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    (void)attrs;
    return pair_infer(call, 0, false, diag);
}

static sonde_err loss_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                            sonde_diag *diag)
{
    (void)attrs;
    return pair_infer(call, 0, true, diag);
}

static sonde_err slope_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                             sonde_diag *diag)
{
    (void)attrs;
    return pair_infer(call, 1, false, diag);
}

/* --- loops ---------------------------------------------------------------------------- */

/* A part has at least so many elements. */
enum { ELEMENTS_A_PART = 8192 };

static int pair_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->out[0].shape) / ELEMENTS_A_PART;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

/* in[first] and in[first + 1] are a and b; with first 1 the result is times in[0]. */
static void pair_map(const sonde__op_call *call, int part, int parts, int first,
                     pair_function value)
{
    const sonde__operand *a = &call->in[first], *b = &call->in[first + 1];
    const sonde__op_shape *shape = &call->out[0].shape;
    const int64_t count = sonde__op_shape_count(shape);
    const bool wide_a = sonde__op_shape_count(&a->shape) == count,
               wide_b = sonde__op_shape_count(&b->shape) == count;

    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
        const double y = value(
            sonde__op_load(a, wide_a ? i : sonde__op_broadcast_at(&a->shape, shape, i)),
            sonde__op_load(b, wide_b ? i : sonde__op_broadcast_at(&b->shape, shape, i)),
            call->attrs);

        sonde__op_store(&call->out[0], i,
                        first == 1 ? sonde__op_load(&call->in[0], i) * y : y);
    }
}

static void pair_gradient(const sonde__op_gradient_context *context,
                          const sonde__op_kind *const slopes[2])
{
    const sonde__op_value in[] = {context->grad_out[0], context->in[0], context->in[1]};

    for (int i = 0; i < 2; i++) {
        if (context->wanted[i]) {
            const sonde__op_value wide =
                sonde__op_emit(context->graph, slopes[i], context->attrs, in, 3);

            context->grad_in[i] = sonde__op_emit_sum_to(context, wide, context->in[i]);
        }
    }
}

#define A ((double)attrs->function.number[0])

#define PAIR_FUNCTION(op, part_of, expression)                                           \
    static double op##_##part_of##_value(double a, double b,                             \
                                         const sonde__op_attrs *attrs)                   \
    {                                                                                    \
        (void)a, (void)b, (void)attrs;                                                   \
        return expression;                                                               \
    }

#define PAIR_SLOPE(op, title, which)                                                     \
    static void op##_##which##_run(const sonde__op_call *call, int part, int parts)      \
    {                                                                                    \
        pair_map(call, part, parts, 1, op##_##which##_value);                            \
    }                                                                                    \
                                                                                         \
    const sonde__op_kind sonde__op_##op##_##which = {                                    \
        .name = title,                                                                   \
        SONDE__OPERANDS(function, 3, 3, 1),                                              \
        .infer = slope_infer,                                                            \
        SONDE__REFERENCE(op##_##which##_run, .parts = pair_parts),                       \
    };

#define SONDE__PAIRWISE(op, title, text, f, slope_a, slope_b, loss, ...)                 \
    PAIR_FUNCTION(op, forward, f)                                                        \
    PAIR_FUNCTION(op, grad_a, slope_a)                                                   \
    PAIR_FUNCTION(op, grad_b, slope_b)                                                   \
    PAIR_SLOPE(op, title "GradA", grad_a)                                                \
    PAIR_SLOPE(op, title "GradB", grad_b)                                                \
                                                                                         \
    static void op##_run(const sonde__op_call *call, int part, int parts)                \
    {                                                                                    \
        pair_map(call, part, parts, 0, op##_forward_value);                              \
    }                                                                                    \
                                                                                         \
    static void op##_gradient(const sonde__op_gradient_context *context)                 \
    {                                                                                    \
        static const sonde__op_kind *const slopes[] = {&sonde__op_##op##_grad_a,         \
                                                       &sonde__op_##op##_grad_b};        \
                                                                                         \
        pair_gradient(context, slopes);                                                  \
    }                                                                                    \
                                                                                         \
    const sonde__op_kind sonde__op_##op = {                                              \
        .name = title,                                                                   \
        SONDE__OPERANDS(function, 2, 2, 1),                                              \
        .infer = (loss) ? loss_infer : forward_infer,                                    \
        .gradient = op##_gradient,                                                       \
        SONDE__REFERENCE(op##_run, .parts = pair_parts),                                 \
    };                                                                                   \
    const sonde__op_layer sonde__layer_##op = {.name = #op,                              \
                                               .kind = &sonde__op_##op,                  \
                                               .inputs = 2,                              \
                                               .help = text,                             \
                                               .reduces = (loss),                        \
                                               .fields = {__VA_ARGS__}};

/* --- parts of rows -------------------------------------------------------------------- */

/* PyTorch keeps logarithms of a BCE above -100. */
static double log_from_minus_100(double x)
{
    const double y = log(x);

    return y < -100.0 ? -100.0 : y;
}

/* Huber's: quadratic within delta, linear outside. */
static double huber(double d, double delta)
{
    return fabs(d) <= delta ? 0.5 * d * d : delta * (fabs(d) - 0.5 * delta);
}

static double huber_slope(double d, double delta)
{
    return d < -delta ? -delta : d > delta ? delta : d;
}

static double smooth_l1(double d, double beta)
{
    return fabs(d) < beta ? 0.5 * d * d / beta : fabs(d) - 0.5 * beta;
}

static double sign_of(double x)
{
    return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0;
}

static double smooth_l1_slope(double d, double beta)
{
    return d <= -beta ? -1.0 : d >= beta ? 1.0 : d / beta;
}

/* The loss of a logit a and a target b, without overflow. */
static double logit_loss(double a, double b)
{
    return (1.0 - b) * a + (a > 0.0 ? log1p(exp(-a)) : log1p(exp(a)) - a);
}

/* Stirling's approximation of log b!, of b above 1. */
static double stirling(double b)
{
    return b > 1.0 ? b * log(b) - b + 0.5 * log(2.0 * pi * b) : 0.0;
}

static double stirling_slope(double b)
{
    return b > 1.0 ? log(b) + 0.5 / b : 0.0;
}

#define WORD (attrs->function.log)
#define FULL (attrs->function.full)

/* clang-format off */

/* --- arithmetic: a and b broadcast ------------------------------------------------------ */

SONDE__PAIRWISE(sub, "Sub", "a - b", a - b, 1.0, -1.0, false, {0})
SONDE__PAIRWISE(div, "Div", "a / b", a / b, 1.0 / b, -a / (b * b), false, {0})
SONDE__PAIRWISE(maximum, "Maximum", "the larger; NaN if one is",
    isnan(a) || a > b ? a : b, a < b ? 0.0 : a == b ? 0.5 : 1.0,
    a > b ? 0.0 : a == b ? 0.5 : 1.0, false, {0})
SONDE__PAIRWISE(minimum, "Minimum", "the smaller; NaN if one is",
    isnan(a) || a < b ? a : b, a > b ? 0.0 : a == b ? 0.5 : 1.0,
    a < b ? 0.0 : a == b ? 0.5 : 1.0, false, {0})

SONDE__PAIRWISE(float_power, "FloatPower", "a to the power of b",
    pow(a, b), b == 0.0 ? 0.0 : b * pow(a, b - 1.0),
    a == 0.0 && b >= 0.0 ? 0.0 : pow(a, b) * log(a), false, {0})
SONDE__PAIRWISE(atan2, "Atan2", "the angle of (b, a)",
    atan2(a, b), b / (a * a + b * b), -a / (a * a + b * b), false, {0})

/* --- losses: a is the prediction, b the target ------------------------------------------ */

#define BETA SONDE__FIELD("beta", SONDE__FIELD_NUMBER, function.number[0], 1.0, 1e-30, (double)INFINITY)
#define DELTA SONDE__FIELD("delta", SONDE__FIELD_NUMBER, function.number[0], 1.0, 1e-30, (double)INFINITY)

SONDE__PAIRWISE(mse_loss, "MseLoss", "(a - b)²",
    (a - b) * (a - b), 2.0 * (a - b), 2.0 * (b - a), true, SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(l1_loss, "L1Loss", "the absolute value of a - b",
    fabs(a - b), sign_of(a - b), sign_of(b - a), true, SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(smooth_l1_loss, "SmoothL1Loss", "(a - b)² / (2 beta) within beta, linear outside",
    smooth_l1(a - b, A), smooth_l1_slope(a - b, A), smooth_l1_slope(b - a, A), true,
    BETA, SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(huber_loss, "HuberLoss", "(a - b)² / 2 within delta, linear outside",
    huber(a - b, A), huber_slope(a - b, A), huber_slope(b - a, A), true,
    DELTA, SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(binary_cross_entropy, "BceLoss", "-b log a - (1 - b) log(1 - a)",
    (b - 1.0) * log_from_minus_100(1.0 - a) - b * log_from_minus_100(a),
    (a - b) / fmax((1.0 - a) * a, 1e-12),
    log_from_minus_100(1.0 - a) - log_from_minus_100(a), true, SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(binary_cross_entropy_with_logits, "BceWithLogitsLoss",
    "the same for sigmoid(a)",
    logit_loss(a, b), 1.0 / (1.0 + exp(-a)) - b, -a, true, SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(soft_margin_loss, "SoftMarginLoss", "log(1 + exp(-b a))",
    log1p(exp(-b * a)), -b / (1.0 + exp(b * a)), -a / (1.0 + exp(b * a)), true,
    SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(kl_div, "KlDiv",
    "b (log b - a), 0 where b is 0; a is a logarithm, with log_target b too",
    WORD ? exp(b) * (b - a) : b == 0.0 ? 0.0 * a : b * (log(b) - a),
    WORD ? -exp(b) : -b, WORD ? exp(b) * (b - a + 1.0) : log(b) + 1.0 - a, true,
    SONDE__FIELD_REDUCTION, SONDE__FIELD("log_target", SONDE__FIELD_FLAG, function.log, 0.0, 0, 1))
SONDE__PAIRWISE(poisson_nll_loss, "PoissonNllLoss",
    "exp(a) - b a, or a - b log(a + eps); with full, Stirling's log b! for b above 1",
    (WORD ? exp(a) - b * a : a - b * log(a + A)) + (FULL ? stirling(b) : 0.0),
    WORD ? exp(a) - b : 1.0 - b / (a + A),
    (WORD ? -a : -log(a + A)) + (FULL ? stirling_slope(b) : 0.0), true,
    SONDE__FIELD("log_input", SONDE__FIELD_FLAG, function.log, 1.0, 0, 1),
    SONDE__FIELD("full", SONDE__FIELD_FLAG, function.full, 0.0, 0, 1),
    SONDE__FIELD("eps", SONDE__FIELD_NUMBER, function.number[0], 1e-8, 0, 1), SONDE__FIELD_REDUCTION)
SONDE__PAIRWISE(hinge_embedding_loss, "HingeEmbeddingLoss",
    "a where b is 1, max(0, margin - a) where b is -1",
    (b != 1.0 ? (A - a < 0.0 ? 0.0 : A - a) : 0.0) + (b != -1.0 ? a : 0.0),
    (b != 1.0 && A - a >= 0.0 ? -1.0 : 0.0) + (b != -1.0 ? 1.0 : 0.0), 0.0, true,
    SONDE__FIELD_ANY("margin", function.number[0], 1.0), SONDE__FIELD_REDUCTION)
