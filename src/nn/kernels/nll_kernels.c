/*
 * nll_kernels.c - negative log-likelihood over LANES, and its gradient.
 *
 *   loss = - sum over n of logp[n, target[n]]       (divided by N if attrs.loss.mean)
 *   dlogp[n, c] = c == target[n] ? - dloss : 0      (likewise)
 *
 * Summed over samples in order, in double, as the reference does it. A target outside
 * 0 ... C - 1 reads nothing: the loss is NaN, and so is its sample's gradient. Lanes that
 * hold no sample get no gradient.
 */
#include "base/isa.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/lanes.h"

/* logp (N, C) LANES, target i64 PLAIN */
static bool accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->in[0].shape, 2);
}

static void loss_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t samples = call->in[0].shape.dim[0], classes = call->in[0].shape.dim[1];
    const int64_t *const target = call->in[1].data;
    const float *const logp = call->in[0].data;
    double loss = 0.0;

    (void)parts;
    if (part > 0) {
        return;
    }
    for (int64_t n = 0; n < samples; n++) {
        const bool in_range = target[n] >= 0 && target[n] < classes;
        const int64_t block = n / LANES, lane = n % LANES;

        loss -= in_range ? (double)logp[(block * classes + target[n]) * LANES + lane]
                         : __builtin_nan("");
    }
    *(float *)call->out[0].data =
        (float)(call->attrs->loss.mean ? loss / (double)samples : loss);
}

/* dloss f32 PLAIN, target i64 PLAIN, dlogp (N, C) LANES */
static bool grad_accepts(const sonde__op_call *call)
{
    return lanes_is_f32(&call->out[0].shape, 2);
}

static void grad_run(const sonde__op_call *call, int part, int parts)
{
    const int64_t samples = call->out[0].shape.dim[0],
                  classes = call->out[0].shape.dim[1];
    const int64_t *const target = call->in[1].data;
    const double dloss = (double)*(const float *)call->in[0].data;
    const float step =
        (float)(call->attrs->loss.mean ? -dloss / (double)samples : -dloss);
    float *const dlogp = call->out[0].data;

    (void)parts;
    if (part > 0) {
        return;
    }
    memset(dlogp, 0, (size_t)(lanes_blocks(samples) * classes) * LANES * sizeof(float));
    for (int64_t n = 0; n < samples; n++) {
        float *const result = dlogp + n / LANES * classes * LANES + n % LANES;

        if (target[n] >= 0 && target[n] < classes) {
            result[target[n] * LANES] = step;
            continue;
        }
        for (int64_t c = 0; c < classes; c++) {
            result[c * LANES] = __builtin_nanf("");
        }
    }
}

const sonde__op_kernel ISA(sonde__kernel_nll) = {.name = "lanes",
                                                 .accepts = accepts,
                                                 .in = {SONDE__LANES, SONDE__PLAIN},
                                                 .run = loss_run};

const sonde__op_kernel ISA(sonde__kernel_nll_grad) = {.name = "lanes",
                                                      .accepts = grad_accepts,
                                                      .in = {SONDE__PLAIN, SONDE__PLAIN},
                                                      .out = {SONDE__LANES},
                                                      .run = grad_run};
