/*
 * loop_update.c - optimizers, right and wrong, and the all-reduce between replicas.
 */
#include "loop.h"

#include "base/macros.h"

#include <stdbool.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

static int64_t count_of(const loop_param *param)
{
    return param->rows * SONDE_MAX(param->columns, (int64_t)1);
}

static bool goes_wrong(const loop *training, loop_mistake mistake, int64_t step)
{
    return training->plan.mistake == mistake && step >= training->plan.at;
}

static float flipped(float value, unsigned bit)
{
    uint32_t bits = 0;

    memcpy(&bits, &value, sizeof bits);
    bits ^= UINT32_C(1) << bit;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Flips a bit of an element that stands out by it; the sign bit: of any that is above
 * the mean. */
static void flip(const loop *training, float *values, int64_t count, unsigned bit)
{
    float mean = 0.0F, most = 0.0F;

    for (int64_t i = 0; i < count; i++) {
        mean += fabsf(values[i]) / (float)count;
        most = fmaxf(most, fabsf(values[i]));
    }
    for (uint64_t i = 0; i < 100000; i++) {
        const float u = faults_uniform(training->plan.seed, 60, i);
        float *at = values + (int64_t)(u * (float)count) % count;

        if (bit == 31 ? fabsf(*at) > mean : fabsf(flipped(*at, bit)) > 2.0F * most) {
            *at = flipped(*at, bit);
            return;
        }
    }
}

static void flip_one(loop *training, loop_net *net, int64_t step)
{
    loop_param *param = loop_find(net, "fc2.weight");
    const int64_t count = count_of(param);
    const unsigned bit = (unsigned)training->plan.severity;

    if (step != training->plan.at) {
        return;
    }
    if (training->plan.mistake == MISTAKE_FLIP_WEIGHT) {
        flip(training, param->w, count, bit);
    } else if (training->plan.mistake == MISTAKE_FLIP_GRADIENT) {
        flip(training, param->g, count, bit);
    } else if (training->plan.mistake == MISTAKE_FLIP_MOMENT) {
        flip(training, param->m, count, bit);
    }
}

/* Mean over replicas. */
void loop_reduce(loop *training)
{
    loop_net *a = &training->nets[0], *b = &training->nets[1];

    if (training->plan.replicas < 2 ||
        goes_wrong(training, MISTAKE_NO_ALL_REDUCE, training->at.global_step)) {
        return;
    }
    for (int i = 0; i < a->param_count; i++) {
        for (int64_t k = 0; k < count_of(&a->params[i]); k++) {
            a->params[i].g[k] = b->params[i].g[k] =
                0.5F * (a->params[i].g[k] + b->params[i].g[k]);
        }
    }
}

static void clip(const loop *training, loop_net *net)
{
    float sum = 0.0F;

    for (int i = 0; i < net->param_count; i++) {
        for (int64_t k = 0; k < count_of(&net->params[i]); k++) {
            sum += net->params[i].g[k] * net->params[i].g[k];
        }
    }
    for (int i = 0; i < net->param_count && sqrtf(sum) > training->plan.clip; i++) {
        for (int64_t k = 0; k < count_of(&net->params[i]); k++) {
            net->params[i].g[k] *= training->plan.clip / sqrtf(sum);
        }
    }
}

static void sgd(const sonde_nn_optimizer *with, loop_param *param, float *w)
{
    for (int64_t k = 0; k < count_of(param); k++) {
        const float d = param->g[k] + with->weight_decay * w[k];

        param->m[k] = with->momentum * param->m[k] + d;
        w[k] -= with->learning_rate * param->m[k];
    }
}

static void adam(const sonde_nn_optimizer *with, loop_param *param, float *w)
{
    const float b1 = with->beta1, b2 = with->beta2;
    const float c1 = 1.0F - powf(b1, param->step), c2 = 1.0F - powf(b2, param->step);

    for (int64_t k = 0; k < count_of(param); k++) {
        const float g = param->g[k];

        param->m[k] = b1 * param->m[k] + (1.0F - b1) * g;
        param->v[k] = b2 * param->v[k] + (1.0F - b2) * g * g;
        w[k] -= with->learning_rate *
                (with->weight_decay * w[k] +
                 param->m[k] / c1 / (sqrtf(param->v[k] / c2) + with->eps));
    }
}

static void update_one(loop *training, loop_param *param, float *w, int64_t step)
{
    sonde_nn_optimizer with = training->plan.optimizer;

    if (goes_wrong(training, MISTAKE_SWAPPED_BETAS, step)) {
        with.beta1 = training->plan.optimizer.beta2;
        with.beta2 = training->plan.optimizer.beta1;
    }
    if (!goes_wrong(training, MISTAKE_STUCK_STEP, step)) {
        param->step += 1.0F;
    }
    if (goes_wrong(training, MISTAKE_FLIP_SECOND, step) &&
        strcmp(param->name, "fc2.weight") == 0) {
        flip(training, param->v, count_of(param), 31);
    }
    if (with.kind == SONDE_NN_SGD) {
        sgd(&with, param, w);
    } else {
        adam(&with, param, w);
    }
}

void loop_update(loop *training, loop_net *net, int64_t step)
{
    const float decay = training->plan.optimizer.learning_rate * 0.1F;

    flip_one(training, net, step);
    if (training->plan.clip > 0.0F) {
        clip(training, net);
    }
    for (int i = 0; i < net->param_count; i++) {
        loop_param *param = &net->params[i];

        if (param->frozen) {
            for (int64_t k = 0; k < count_of(param) &&
                                goes_wrong(training, MISTAKE_FROZEN_CHANGES, step);
                 k++) {
                param->w[k] -= decay * param->w[k];
            }
            continue;
        }
        if (goes_wrong(training, MISTAKE_FROZEN_LAYER, step) &&
            strncmp(param->name, "fc2.", 4) == 0) {
            continue;
        }
        update_one(training, param,
                   goes_wrong(training, MISTAKE_STALE_COPIES, step) ? param->copy
                                                                    : param->w,
                   step);
    }
}
