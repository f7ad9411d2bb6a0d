/*
 * updates.c - the updates of weights by optimizers, and their equations.
 *
 * Stochastic gradient descent with momentum, as torch.optim.SGD.
 *
 *   d = scale g + decay w                                 (decay w only if decay != 0)
 *   v = first step ? d : momentum v + (1 - dampening) d   (only if momentum != 0)
 *   d = nesterov ? d + momentum v : v                     (likewise)
 *   w = w - lr d
 *
 * The source is the algorithm box of PyTorch's documentation of SGD. Terms whose factor
 * is 0 are left out, not multiplied by 0: they must not turn an Inf into NaN. What v
 * holds before the first step is not read.
 *
 * in: w, g, v? out: w, v, both in place; without v there is no momentum and the second
 * output is empty.
 * live: lr, momentum, dampening, weight decay, nesterov (0, 1), gradient scale, first
 * step (0, 1).
 *
 * Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), as
 * torch.optim.Adam and torch.optim.AdamW without amsgrad.
 *
 *   t = t + 1
 *   d = scale g                        AdamW: w = w - lr decay w; Adam: d = d + decay w
 *   m = m + (1 - beta1) (d - m)        the order of torch.lerp: an infinite m turns NaN
 *   v = beta2 v + (1 - beta2) d^2
 *   w = w - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * The source is the algorithm boxes of PyTorch's documentation. The bias corrections are
 * taken in double, as PyTorch's for one tensor at a time.
 *
 * live is float, and 1 - 0.999f is off by 1.3e-5 of itself; so betas are read as the
 * decimal fraction of seven places that they came from.
 *
 * in: w, g, m, v, step (); out: w, m, v, step, in place. step counts updates as float32,
 * as PyTorch's state does. live: lr, beta1, beta2, eps, weight decay, decoupled (0 Adam,
 * 1 AdamW), gradient scale.
 *
 * LAMB (You et al. 2020), as PopTorch has it.
 *
 *   t = t + 1, d = scale g
 *   m = beta1 m + (1 - beta1) d,  v = beta2 v + (1 - beta2) d^2
 *   x = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay w
 *   trust = min(|w|, max_weight_norm) / |x|, or 1 if one of the three is 0
 *   w = w - lr trust x
 *
 * with the norms of the whole tensor, and without the divisors 1 - beta^t if bias
 * correction is off.
 *
 * in: w, g, m, v, step (); out: w, m, v, step, in place.
 * live: lr, beta1, beta2, eps, weight decay, bias correction (0, 1), gradient scale,
 * max_weight_norm.
 *
 * Adagrad (Duchi et al. 2011), as torch.optim.Adagrad.
 *
 *   t = t + 1
 *   d = scale g + decay w
 *   v = v + d^2, where v begins at the initial accumulator
 *   w = w - lr / (1 + (t - 1) lr_decay) d / (sqrt(v) + eps)
 *
 * in: w, g, v, step (); out: w, v, step, in place.
 * live: lr, lr_decay, eps, weight decay, initial accumulator, gradient scale.
 *
 * RMSprop (Hinton 2012), as torch.optim.RMSprop and as TensorFlow has it.
 *
 *   d = scale g + decay w
 *   v = alpha v + (1 - alpha) d^2
 *   m = alpha m + (1 - alpha) d, centered; otherwise m = 0
 *   x = d / (sqrt(v - m^2) + eps), TensorFlow: d / sqrt(v - m^2 + eps)
 *   b = momentum b + x, w = w - lr b; TensorFlow: b = momentum b + lr x, w = w - b
 *
 * Without momentum b is x, or lr x. v begins at 0, TensorFlow's at 1.
 *
 * in: w, g, v, m?, b?; out: w, v, m, b, in place.
 * live: lr, alpha, eps, weight decay, momentum, gradient scale, first step (0, 1).
 *
 * attrs: update.
 */
#include "nn/ops/common.h"
#include "nn/kernels/fast.h"

#include <math.h>

/* Operands: the weight, its gradient, and the states of an optimizer. */
enum { W = 0, G = 1 };
enum { V = 2, MEAN = 3, BUFFER = 4, COUNT = 3 }; /* of SGD, RMSprop and Adagrad */
enum { MOMENT = 2, SQUARE = 3, STEP = 4 };       /* of Adam and LAMB */

/* States like the weight, and last the count of steps. */
static sonde_err counted_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;
    const sonde__op_shape step = {.dtype = SONDE_F32, .rank = 0};
    const int last = call->in_count - 1;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    for (int i = G; i < last; i++) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[i].shape, w,
                                          i == G ? "gradient" : "state", diag));
        call->out[i - 1].shape = *w;
    }
    call->out[last - 1].shape = step;
    return sonde__op_expect_shape(&call->in[last].shape, &step, "step", diag);
}

/* Element i of the gradient, scaled; *bad is 1 after one that is not finite. */
static double gradient_at(const sonde__op_call *call, int64_t i, float scale,
                          uint8_t *bad)
{
    const double g = sonde__op_load(&call->in[G], i);

    if (bad != NULL && !isfinite(g)) {
        *bad = 1;
    }
    return (double)scale * g;
}

/* === sgd ============================================================================= */

enum {
    SGD_LR,
    SGD_MOMENTUM,
    SGD_DAMPENING,
    SGD_DECAY,
    SGD_NESTEROV,
    SGD_SCALE,
    SGD_FIRST
};

static sonde_err sgd_infer(sonde__op_call *call, sonde__op_attrs *attrs, sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;

    (void)attrs;
    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[G].shape, w, "gradient", diag));
    if (call->in_count > V) {
        SONDE__TRY(
            sonde__op_expect_shape(&call->in[V].shape, w, "momentum buffer", diag));
    }
    call->out[0].shape = *w;
    call->out[1].shape =
        call->in_count > V ? *w
                           : (sonde__op_shape){.dtype = w->dtype, .rank = 1, .dim = {0}};
    return SONDE_OK;
}

static void sgd_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double lr = (double)live[SGD_LR], momentum = (double)live[SGD_MOMENTUM];
    const double damping = 1.0 - (double)live[SGD_DAMPENING],
                 decay = (double)live[SGD_DECAY];
    const bool has_v = sonde__op_has_in(call, V) && live[SGD_MOMENTUM] != 0.0f;
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double w = sonde__op_load(&call->in[W], i);
        double d = gradient_at(call, i, live[SGD_SCALE], bad);

        if (live[SGD_DECAY] != 0.0f) {
            d += decay * w;
        }
        if (has_v) {
            const double v =
                live[SGD_FIRST] != 0.0f
                    ? d
                    : momentum * sonde__op_load(&call->in[V], i) + damping * d;

            sonde__op_store(&call->out[1], i, v);
            d = live[SGD_NESTEROV] != 0.0f ? d + momentum * v : v;
        }
        sonde__op_store(&call->out[0], i, w - lr * d);
    }
}

SONDE__OP(sgd, "Sgd", update, 2, 3, 2, .out_names = {NULL, "Velocity"},
          .infer = sgd_infer, SONDE__REFERENCE(sgd_run), .fast = sonde__kernel_sgd_fast,
          .alias = {W + 1, V + 1});

/* === adam ============================================================================ */

enum {
    ADAM_LR,
    ADAM_BETA1,
    ADAM_BETA2,
    ADAM_EPS,
    ADAM_DECAY,
    ADAM_DECOUPLED,
    ADAM_SCALE
};

/* torch.lerp's two branches: each is exact at its end. */
static double lerp(double source, double target, double weight)
{
    return weight < 0.5 ? source + weight * (target - source)
                        : target - (target - source) * (1.0 - weight);
}

static void adam_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double beta1 = sonde__op_decimal(live[ADAM_BETA1]),
                 beta2 = sonde__op_decimal(live[ADAM_BETA2]);
    const double lr = (double)live[ADAM_LR], decay = (double)live[ADAM_DECAY];
    const double step = sonde__op_load(&call->in[STEP], 0) + 1.0;
    const double rate = lr / (1.0 - pow(beta1, step));
    const double root = sqrt(1.0 - pow(beta2, step));
    const bool decoupled = live[ADAM_DECOUPLED] != 0.0f;
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        double w = sonde__op_load(&call->in[W], i);
        double d = gradient_at(call, i, live[ADAM_SCALE], bad);
        double m = 0.0, v = 0.0;

        if (live[ADAM_DECAY] != 0.0f && decoupled) {
            w *= 1.0 - lr * decay;
        } else if (live[ADAM_DECAY] != 0.0f) {
            d += decay * w;
        }
        m = lerp(sonde__op_load(&call->in[MOMENT], i), d, 1.0 - beta1);
        v = beta2 * sonde__op_load(&call->in[SQUARE], i) + (1.0 - beta2) * d * d;
        sonde__op_store(&call->out[1], i, m);
        sonde__op_store(&call->out[2], i, v);
        sonde__op_store(&call->out[0], i,
                        w - rate * m / (sqrt(v) / root + (double)live[ADAM_EPS]));
    }
    sonde__op_store(&call->out[3], 0, step);
}

SONDE__OP(adam, "Adam", update, 5, 5, 4,
          .out_names = {NULL, "FirstMoment", "SecondMoment", "Step"},
          .infer = counted_infer, SONDE__REFERENCE(adam_run),
          .fast = sonde__kernel_adam_fast,
          .alias = {W + 1, MOMENT + 1, SQUARE + 1, STEP + 1});

/* === lamb ============================================================================ */

enum {
    LAMB_LR,
    LAMB_BETA1,
    LAMB_BETA2,
    LAMB_EPS,
    LAMB_DECAY,
    LAMB_CORRECTS,
    LAMB_SCALE,
    LAMB_MOST
};

/* x of element i, from the moments as they are stored. */
static double direction(const sonde__op_call *call, int64_t i, double first,
                        double second)
{
    const float *live = call->live;

    return sonde__op_load(&call->out[1], i) / first /
               (sqrt(sonde__op_load(&call->out[2], i) / second) +
                (double)live[LAMB_EPS]) +
           (double)live[LAMB_DECAY] * sonde__op_load(&call->in[W], i);
}

static void move_moments(const sonde__op_call *call, uint8_t *bad)
{
    const float *live = call->live;
    const double beta1 = sonde__op_decimal(live[LAMB_BETA1]),
                 beta2 = sonde__op_decimal(live[LAMB_BETA2]);
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);

    for (int64_t i = 0; i < count; i++) {
        const double d = gradient_at(call, i, live[LAMB_SCALE], bad);

        sonde__op_store(&call->out[1], i,
                        beta1 * sonde__op_load(&call->in[MOMENT], i) + (1.0 - beta1) * d);
        sonde__op_store(&call->out[2], i,
                        beta2 * sonde__op_load(&call->in[SQUARE], i) +
                            (1.0 - beta2) * d * d);
    }
}

static void lamb_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double step = sonde__op_load(&call->in[STEP], 0) + 1.0;
    const bool corrects = live[LAMB_CORRECTS] != 0.0F;
    const double first =
        corrects ? 1.0 - pow(sonde__op_decimal(live[LAMB_BETA1]), step) : 1.0;
    const double second =
        corrects ? 1.0 - pow(sonde__op_decimal(live[LAMB_BETA2]), step) : 1.0;
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    double weight = 0.0, size = 0.0, trust = 1.0;

    (void)parts;
    move_moments(call, sonde__op_part_bad(call, part));
    for (int64_t i = 0; i < count; i++) {
        const double w = sonde__op_load(&call->in[W], i);
        const double x = direction(call, i, first, second);

        weight += w * w;
        size += x * x;
    }
    weight = sqrt(weight);
    weight = weight > (double)live[LAMB_MOST] ? (double)live[LAMB_MOST] : weight;
    if (weight != 0.0 && size != 0.0) {
        trust = weight / sqrt(size);
    }
    for (int64_t i = 0; i < count; i++) {
        sonde__op_store(&call->out[0], i,
                        sonde__op_load(&call->in[W], i) -
                            (double)live[LAMB_LR] * trust *
                                direction(call, i, first, second));
    }
    sonde__op_store(&call->out[3], 0, step);
}

SONDE__OP(lamb, "Lamb", update, 5, 5, 4,
          .out_names = {NULL, "FirstMoment", "SecondMoment", "Step"},
          .infer = counted_infer, SONDE__REFERENCE(lamb_run),
          .fast = sonde__kernel_lamb_fast,
          .alias = {W + 1, MOMENT + 1, SQUARE + 1, STEP + 1});

/* === adagrad ========================================================================= */

enum {
    ADAGRAD_LR,
    ADAGRAD_LR_DECAY,
    ADAGRAD_EPS,
    ADAGRAD_DECAY,
    ADAGRAD_INITIAL,
    ADAGRAD_SCALE
};

static void adagrad_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const double before = sonde__op_load(&call->in[COUNT], 0);
    const double rate = (double)live[ADAGRAD_LR] /
                        (1.0 + before * sonde__op_decimal(live[ADAGRAD_LR_DECAY]));
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double w = sonde__op_load(&call->in[W], i);
        double d = gradient_at(call, i, live[ADAGRAD_SCALE], bad), v = 0.0;

        if (live[ADAGRAD_DECAY] != 0.0F) {
            d += (double)live[ADAGRAD_DECAY] * w;
        }
        v = (before == 0.0 ? (double)live[ADAGRAD_INITIAL]
                           : sonde__op_load(&call->in[V], i)) +
            d * d;
        sonde__op_store(&call->out[1], i, v);
        sonde__op_store(&call->out[0], i,
                        w - rate * d / (sqrt(v) + (double)live[ADAGRAD_EPS]));
    }
    sonde__op_store(&call->out[2], 0, before + 1.0);
}

SONDE__OP(adagrad, "Adagrad", update, 4, 4, 3, .out_names = {NULL, "SquareSum", "Step"},
          .infer = counted_infer, SONDE__REFERENCE(adagrad_run),
          .fast = sonde__kernel_adagrad_fast, .alias = {W + 1, V + 1, COUNT + 1});

/* === rmsprop ========================================================================= */

enum { RMS_LR, RMS_ALPHA, RMS_EPS, RMS_DECAY, RMS_MU, RMS_SCALE, RMS_FIRST };
enum { CENTERED = 1, MOMENTUM = 2, TF = 4 };

static sonde_err rmsprop_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    const sonde__op_shape *w = &call->in[W].shape;
    const sonde__op_shape none = {.dtype = w->dtype, .rank = 1, .dim = {0}};
    const bool has[] = {true, true, true, (attrs->update.variant & CENTERED) != 0,
                        (attrs->update.variant & MOMENTUM) != 0};

    SONDE__TRY(sonde__op_expect_float(w, "weight", diag));
    for (int i = G; i <= BUFFER; i++) {
        if (has[i] && i >= call->in_count) {
            return sonde__fail(diag, SONDE_EINVAL, NULL, "a state for each flag",
                               "%d operands", call->in_count);
        }
        if (has[i]) {
            SONDE__TRY(
                sonde__op_expect_shape(&call->in[i].shape, w, "gradient or state", diag));
        }
    }
    call->out[0].shape = call->out[1].shape = *w;
    call->out[2].shape = has[MEAN] ? *w : none;
    call->out[3].shape = has[BUFFER] ? *w : none;
    return SONDE_OK;
}

/* What the momentum buffer takes, of element i. */
static double step_of(const sonde__op_call *call, int64_t i, double d)
{
    const float *live = call->live;
    const int choice = call->attrs->update.variant;
    const double alpha = sonde__op_decimal(live[RMS_ALPHA]), eps = (double)live[RMS_EPS];
    const bool ones = (choice & TF) != 0 && live[RMS_FIRST] != 0.0F;
    const double v =
        alpha * (ones ? 1.0 : sonde__op_load(&call->in[V], i)) + (1.0 - alpha) * d * d;
    double square = v;

    sonde__op_store(&call->out[1], i, v);
    if ((choice & CENTERED) != 0) {
        const double before = sonde__op_load(&call->in[MEAN], i);
        /* the order of torch.lerp: an infinite m turns NaN */
        const double m = alpha > 0.5 ? before + (1.0 - alpha) * (d - before)
                                     : d - (d - before) * alpha;

        sonde__op_store(&call->out[2], i, m);
        square -= m * m;
    }
    return (choice & TF) != 0 ? (double)live[RMS_LR] * d / sqrt(square + eps)
                              : d / (sqrt(square) + eps);
}

static void rmsprop_run(const sonde__op_call *call, int part, int parts)
{
    const float *live = call->live;
    const int choice = call->attrs->update.variant;
    const double rate = (choice & TF) != 0 ? 1.0 : (double)live[RMS_LR];
    const int64_t count = sonde__op_shape_count(&call->in[W].shape);
    uint8_t *const bad = sonde__op_part_bad(call, part);

    (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const double w = sonde__op_load(&call->in[W], i);
        double d = gradient_at(call, i, live[RMS_SCALE], bad), step = 0.0;

        if (live[RMS_DECAY] != 0.0F) {
            d += (double)live[RMS_DECAY] * w;
        }
        step = step_of(call, i, d);
        if ((choice & MOMENTUM) != 0) {
            step += (double)live[RMS_MU] * sonde__op_load(&call->in[BUFFER], i);
            sonde__op_store(&call->out[3], i, step);
        }
        sonde__op_store(&call->out[0], i, w - rate * step);
    }
}

SONDE__OP(rmsprop, "RmsProp", update, 3, 5, 4,
          .out_names = {NULL, "SquareMean", "Mean", "Momentum"}, .infer = rmsprop_infer,
          SONDE__REFERENCE(rmsprop_run), .fast = sonde__kernel_rmsprop_fast,
          .alias = {W + 1, V + 1, MEAN + 1, BUFFER + 1});
