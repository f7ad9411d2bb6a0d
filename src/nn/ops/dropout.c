/*
 * dropout.c - dropout (Srivastava et al. 2014) and its gradient.
 *
 *   training     y = x / (1 - p), or 0 x with probability p
 *   otherwise    y = x
 *
 * The draw is a pure function of the session's seed, the op, the micro-batch and the
 * element, so forward and gradient draw the same without a mask in memory, threads change
 * nothing, and a resumed run draws what an uninterrupted one draws. 0 x keeps NaN.
 */
#include "base/random.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* Elements that one block of random numbers serves, and a part has at least. */
enum { BLOCK = 4, ELEMENTS_A_PART = 8192 };

static int dropout_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->out[0].shape) / ELEMENTS_A_PART;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

/* The factors of four elements. */
static void draw_factors(const sonde__op_call *call, int64_t block, double factor[BLOCK])
{
    const sonde__op_draw *draw = call->draw;
    const double p = (double)call->attrs->p;
    /* the first bit: not a stream of initial values */
    const uint64_t stream = UINT64_C(1) << 63U | call->attrs->stream << 44U;
    uint32_t numbers[BLOCK];

    if (draw == NULL || !draw->training) {
        for (int i = 0; i < BLOCK; i++) {
            factor[i] = 1.0;
        }
        return;
    }
    sonde__philox(draw->seed, stream | draw->micro_batch, (uint64_t)block, numbers);
    for (int i = 0; i < BLOCK; i++) {
        const bool kept = (double)(numbers[i] >> 8U) * 0x1p-24 >= p;

        factor[i] = kept ? 1.0 / (1.0 - p) : 0.0;
    }
}

double sonde__op_dropout_factor(const sonde__op_call *call, int64_t i)
{
    double factor[BLOCK];

    draw_factors(call, i / BLOCK, factor);
    return factor[i % BLOCK];
}

void sonde__op_dropout_row(const sonde__op_call *call, int64_t first, const float *x,
                           float *y, int64_t count)
{
    for (int64_t i = first / BLOCK * BLOCK; i < first + count; i += BLOCK) {
        double factor[BLOCK];

        draw_factors(call, i / BLOCK, factor);
        for (int64_t k = 0; k < BLOCK; k++) {
            if (i + k >= first && i + k < first + count) {
                y[i + k - first] = (float)((double)x[i + k - first] * factor[k]);
            }
        }
    }
}

static void dropout_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t count = sonde__op_shape_count(&call->out[0].shape);
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;

    for (int64_t b = blocks * part / parts; b < blocks * (part + 1) / parts; b++) {
        double factor[BLOCK];

        draw_factors(call, b, factor);
        for (int64_t i = 0; i < BLOCK && b * BLOCK + i < count; i++) {
            sonde__op_store(&call->out[0], b * BLOCK + i,
                            sonde__op_load(&call->in[0], b * BLOCK + i) * factor[i]);
        }
    }
}

/* The gradient is the same function of dy. */
static void dropout_grad_run(const sonde__op_call *call, int part, int parts)
{
    dropout_run(call, part, parts);
}

SONDE__OP(dropout, "Dropout", none, 1, 1, 1, .infer = sonde__op_infer_alike,
          .backward = {&sonde__op_dropout_grad, "d"},
          SONDE__REFERENCE(dropout_run, .parts = dropout_parts));

SONDE__OP(dropout_grad, "DropoutGrad", none, 1, 1, 1, .infer = sonde__op_infer_alike,
          SONDE__REFERENCE(dropout_grad_run, .parts = dropout_parts));

SONDE__LAYER(dropout, dropout, 1,
             "training: x / (1 - p), or 0 with probability p; otherwise x",
             .fields = {SONDE__FIELD("p", SONDE__FIELD_NUMBER, p, 0.5, 0, 1)});
