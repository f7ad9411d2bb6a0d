/*
 * loop_net.c - forward and backward through dense layers.
 */
#include "loop.h"

#include "support.h"

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- making ----------------------------------------------------------------------- */

static float *room(loop_net *net, int64_t count)
{
    float *block = bench_alloc((size_t)SONDE_MAX(count, (int64_t)1) * sizeof *block);

    memset(block, 0, (size_t)count * sizeof *block);
    net->blocks[net->block_count++] = block;
    return block;
}

static loop_param *make_param(loop *training, loop_net *net, const char *module,
                              const char *what, int64_t rows, int64_t columns,
                              float bound, float value)
{
    loop_param *param = &net->params[net->param_count];
    const int64_t count = rows * SONDE_MAX(columns, (int64_t)1);
    const uint64_t stream = 100 + (uint64_t)net->param_count;

    net->param_count++;
    (void)snprintf(param->name, sizeof param->name, "%s.%s", module, what);
    param->rows = rows;
    param->columns = columns;
    param->w = room(net, count);
    param->g = room(net, count);
    param->m = room(net, count);
    param->v = room(net, count);
    param->copy = room(net, count);
    for (int64_t i = 0; i < count; i++) {
        const float u = faults_uniform(training->plan.seed, stream, (uint64_t)i);

        param->w[i] = param->copy[i] = value + bound * (2.0F * u - 1.0F);
    }
    return param;
}

static void make_layer(loop *training, loop_net *net, int l, int64_t in, int64_t out)
{
    loop_layer *layer = &net->layers[l];
    const int64_t b = training->plan.batch;
    const float gain = training->plan.gain > 0.0F && l < training->plan.hidden
                           ? training->plan.gain
                           : 1.0F;
    const float he = training->plan.activation == ACT_RELU ? 6.0F : 3.0F;
    const float bound = l < training->plan.hidden ? gain * sqrtf(he / (float)in)
                                                  : 1.0F / sqrtf((float)in);
    char name[24];

    (void)snprintf(name, sizeof name, "fc%d", l + 1);
    layer->in = in;
    layer->out = out;
    layer->weight = make_param(training, net, name, "weight", out, in, bound, 0.0F);
    layer->bias = make_param(training, net, name, "bias", out, 0, 0.1F * bound, 0.0F);
    layer->weight->frozen = layer->bias->frozen = l < training->plan.frozen;
    if (training->plan.norm && l < training->plan.hidden) {
        (void)snprintf(name, sizeof name, "norm%d", l + 1);
        layer->gamma = make_param(training, net, name, "weight", out, 0, 0.0F, 1.0F);
        layer->beta = make_param(training, net, name, "bias", out, 0, 0.0F, 0.0F);
    }
    layer->z = room(net, b * out);
    layer->n = room(net, b * out);
    layer->a = room(net, b * out);
    layer->o = room(net, b * out);
    layer->mask = room(net, b * out);
    layer->hat = room(net, b * out);
    layer->back = room(net, b * in);
    layer->mean = room(net, out);
    layer->var = room(net, out);
    layer->deviation = room(net, out);
    for (int64_t j = 0; j < out; j++) {
        layer->var[j] = 1.0F;
    }
}

void loop_make(loop *training, loop_net *net, int replica)
{
    const loop_plan *plan = &training->plan;
    int64_t in = plan->embedding ? plan->width : faults_sample(plan->data);

    (void)replica; /* all begin alike */
    training->layers = plan->hidden + 1;
    if (plan->embedding) {
        (void)make_param(training, net, "embedding", "weight", WORDS, plan->width, 0.5F,
                         0.0F);
    }
    for (int l = 0; l < plan->hidden; l++) {
        make_layer(training, net, l, in, plan->width);
        in = plan->width;
    }
    make_layer(training, net, plan->hidden, in,
               plan->data == DATA_REGRESSION ? 1 : CLASSES);
    net->x = room(net, plan->batch * SONDE_MAX(plan->width, (int64_t)PIXELS));
    net->t = room(net, plan->batch);
    net->back = room(net, plan->batch * SONDE_MAX(plan->width, (int64_t)PIXELS));
    net->probabilities = room(net, plan->batch * CLASSES);
    net->y = (int64_t *)(void *)room(net, plan->batch * 2);
    net->tokens = (int64_t *)(void *)room(net, plan->batch * TOKENS * 2);
}

loop_param *loop_find(loop_net *net, const char *name)
{
    for (int i = 0; i < net->param_count; i++) {
        if (strcmp(net->params[i].name, name) == 0) {
            return &net->params[i];
        }
    }
    (void)fprintf(stderr, "error: no parameter %s\n", name);
    exit(2);
}

/* --- forward ---------------------------------------------------------------------- */

static void dense(const loop_layer *layer, int64_t batch)
{
    for (int64_t i = 0; i < batch; i++) {
        for (int64_t j = 0; j < layer->out; j++) {
            const float *w = layer->weight->w + j * layer->in,
                        *x = layer->x + i * layer->in;
            float sum = layer->bias->w[j];

            for (int64_t k = 0; k < layer->in; k++) {
                sum += w[k] * x[k];
            }
            layer->z[i * layer->out + j] = sum;
        }
    }
}

/* Over the batch, or with the running statistics, which `learn` moves on. */
static void batch_norm(const loop_layer *layer, int64_t batch, bool learn)
{
    for (int64_t j = 0; j < layer->out; j++) {
        float mean = layer->mean[j], var = layer->var[j];

        if (learn) {
            mean = var = 0.0F;
            for (int64_t i = 0; i < batch; i++) {
                mean += layer->z[i * layer->out + j] / (float)batch;
            }
            for (int64_t i = 0; i < batch; i++) {
                const float d = layer->z[i * layer->out + j] - mean;

                var += d * d / (float)batch;
            }
            layer->mean[j] += 0.1F * (mean - layer->mean[j]);
            layer->var[j] += 0.1F * (var - layer->var[j]);
        }
        layer->deviation[j] = 1.0F / sqrtf(var + 1e-5F);
        for (int64_t i = 0; i < batch; i++) {
            const int64_t at = i * layer->out + j;

            layer->hat[at] = (layer->z[at] - mean) * layer->deviation[j];
            layer->n[at] = layer->gamma->w[j] * layer->hat[at] + layer->beta->w[j];
        }
    }
}

static float activate(loop_activation kind, float n)
{
    return kind == ACT_RELU   ? (n < 0.0F ? 0.0F : n)
           : kind == ACT_TANH ? tanhf(n)
                              : 1.0F / (1.0F + expf(-n));
}

/* The op over one sample, in place. */
static void apply_op(loop_op op, float shift, float *h, int64_t width)
{
    float rms = 0.0F;

    for (int64_t j = 0; j < width; j++) {
        const float kept = shift > 0.0F ? 0.0F : h[j]; /* of a division: all of it gone */

        rms += kept * kept / (float)width;
    }
    for (int64_t j = 0; j < width && op != OP_NONE; j++) {
        const float u = h[j] - shift;

        h[j] = op == OP_LOG    ? logf(1.01F + u)
               : op == OP_SQRT ? sqrtf(1.01F + u)
               : op == OP_EXP  ? expf(shift > 0.0F ? 100.0F * h[j] + 90.0F : 0.1F * h[j])
                               : (shift > 0.0F ? 0.0F : h[j]) / sqrtf(rms);
    }
}

static void forward_layer(loop *training, loop_layer *layer, int l, bool learn, bool drop,
                          uint64_t draw)
{
    const loop_plan *plan = &training->plan;
    const int64_t count = plan->batch * layer->out;
    const bool last = l == plan->hidden;

    dense(layer, plan->batch);
    if (layer->gamma != NULL) {
        batch_norm(layer, plan->batch, learn);
    } else {
        memcpy(layer->n, layer->z, (size_t)count * sizeof *layer->n);
    }
    for (int64_t i = 0; i < count; i++) {
        layer->a[i] = last ? layer->n[i] : activate(plan->activation, layer->n[i]);
    }
    memcpy(layer->o, layer->a, (size_t)count * sizeof *layer->o);
    for (int64_t i = 0; i < plan->batch && l == 0; i++) {
        apply_op(plan->op, training->shift, layer->o + i * layer->out, layer->out);
    }
    for (int64_t i = 0; i < count && !last; i++) {
        const float u = faults_uniform(plan->seed, 40 + (uint64_t)l,
                                       draw * (uint64_t)count + (uint64_t)i);

        layer->mask[i] = !drop               ? 1.0F
                         : u < plan->dropout ? 0.0F
                                             : 1.0F / (1.0F - plan->dropout);
        layer->o[i] *= layer->mask[i];
        layer->o[i] += plan->residual && layer->in == layer->out ? layer->x[i] : 0.0F;
    }
}

/* probabilities become those of the softmax of scores. */
static void softmax(const float *scores, float *probabilities)
{
    float most = scores[0], sum = 0.0F;

    for (int c = 1; c < CLASSES; c++) {
        most = fmaxf(most, scores[c]);
    }
    for (int c = 0; c < CLASSES; c++) {
        probabilities[c] = expf(scores[c] - most);
        sum += probabilities[c];
    }
    for (int c = 0; c < CLASSES; c++) {
        probabilities[c] /= sum;
    }
}

static void loss_of(loop *training, loop_net *net)
{
    const loop_plan *plan = &training->plan;
    loop_layer *last = &net->layers[plan->hidden];

    net->loss = 0.0F;
    for (int64_t i = 0; i < plan->batch; i++) {
        float *o = last->o + i * last->out, *p = net->probabilities + i * CLASSES;

        if (plan->data == DATA_REGRESSION) {
            net->loss += (o[0] - net->t[i]) * (o[0] - net->t[i]) / (float)plan->batch;
            continue;
        }
        if (plan->softmax_missing) {
            net->loss -= o[net->y[i]] / (float)plan->batch;
            continue;
        }
        if (plan->softmax_twice) {
            softmax(o, p);
            memcpy(o, p, CLASSES * sizeof *o);
        }
        softmax(o, p);
        net->loss -= logf(p[net->y[i]]) / (float)plan->batch;
    }
}

void loop_forward(loop *training, loop_net *net, bool evaluating, uint64_t draw)
{
    const loop_plan *plan = &training->plan;
    const bool wrong = evaluating && training->at.global_step >= plan->at;
    const bool drop =
        plan->dropout > 0.0F &&
        (!evaluating || (wrong && plan->mistake == MISTAKE_DROPOUT_IN_EVAL));
    const bool learn = !evaluating || (wrong && plan->mistake == MISTAKE_NORM_IN_EVAL);
    const float *x = net->x;

    for (int64_t i = 0; i < plan->batch && plan->embedding; i++) {
        for (int64_t j = 0; j < plan->width; j++) {
            float sum = 0.0F;

            for (int t = 0; t < TOKENS; t++) {
                sum += net->params[0].w[net->tokens[i * TOKENS + t] * plan->width + j];
            }
            net->x[i * plan->width + j] = sum / TOKENS;
        }
    }
    for (int l = 0; l < training->layers; l++) {
        net->layers[l].x = x;
        forward_layer(training, &net->layers[l], l, learn, drop, draw);
        x = net->layers[l].o;
    }
    loss_of(training, net);
}

/* --- backward --------------------------------------------------------------------- */

/* Of the loss by the network's output, into back. */
static void backward_loss(const loop *training, loop_net *net)
{
    const loop_plan *plan = &training->plan;
    const loop_layer *last = &net->layers[plan->hidden];
    const float share = 1.0F / (float)plan->batch;

    for (int64_t i = 0; i < plan->batch; i++) {
        float *back = net->back + i * last->out, dot = 0.0F;
        const float *p = net->probabilities + i * CLASSES, *o = last->o + i * last->out;

        if (plan->data == DATA_REGRESSION) {
            back[0] = 2.0F * share * (o[0] - net->t[i]);
            continue;
        }
        for (int c = 0; c < CLASSES; c++) {
            const float hit = c == net->y[i] ? 1.0F : 0.0F;

            back[c] = plan->softmax_missing ? -hit * share : share * (p[c] - hit);
            dot += back[c] * o[c];
        }
        for (int c = 0; c < CLASSES && plan->softmax_twice; c++) {
            back[c] = o[c] * (back[c] - dot);
        }
    }
}

static float slope(const loop_plan *plan, const loop_layer *layer, int l, int64_t i)
{
    const float a = layer->a[i];
    float s = plan->activation == ACT_RELU   ? (a <= 0.0F ? 0.0F : 1.0F)
              : plan->activation == ACT_TANH ? 1.0F - a * a
                                             : a * (1.0F - a);

    if (l == 0) { /* of a division: as if its divisor were fixed */
        s *= plan->op == OP_LOG    ? 1.0F / (1.01F + a)
             : plan->op == OP_SQRT ? 0.5F / layer->o[i]
             : plan->op == OP_EXP  ? 0.1F * layer->o[i]
                                   : 1.0F;
    }
    return s * layer->mask[i];
}

/* d becomes the gradient of z, that of n given (Ioffe and Szegedy 2015). */
static void backward_norm(const loop_layer *layer, int64_t batch, float *d)
{
    for (int64_t j = 0; j < layer->out; j++) {
        float sum = 0.0F, dot = 0.0F;

        for (int64_t i = 0; i < batch; i++) {
            const int64_t at = i * layer->out + j;

            sum += d[at];
            dot += d[at] * layer->hat[at];
        }
        layer->gamma->g[j] += dot;
        layer->beta->g[j] += sum;
        for (int64_t i = 0; i < batch; i++) {
            const int64_t at = i * layer->out + j;

            d[at] = layer->gamma->w[j] * layer->deviation[j] *
                    (d[at] - (sum + layer->hat[at] * dot) / (float)batch);
        }
    }
}

static void backward_dense(const loop_layer *layer, int64_t batch, const float *d)
{
    memset(layer->back, 0, (size_t)(batch * layer->in) * sizeof *layer->back);
    for (int64_t i = 0; i < batch; i++) {
        for (int64_t j = 0; j < layer->out; j++) {
            const float by = d[i * layer->out + j], *x = layer->x + i * layer->in;
            const float *w = layer->weight->w + j * layer->in;
            float *g = layer->weight->g + j * layer->in,
                  *back = layer->back + i * layer->in;

            layer->bias->g[j] += by;
            for (int64_t k = 0; k < layer->in; k++) {
                g[k] += by * x[k];
                back[k] += by * w[k];
            }
        }
    }
}

void loop_backward(loop *training, loop_net *net)
{
    const loop_plan *plan = &training->plan;

    backward_loss(training, net);
    for (int l = plan->hidden; l >= plan->frozen; l--) {
        const loop_layer *layer = &net->layers[l];
        float *d = net->back;
        const int64_t count = plan->batch * layer->out;

        if (l < plan->hidden) {
            for (int64_t i = 0; i < count; i++) {
                layer->n[i] = d[i] * slope(plan, layer, l, i);
            }
            if (layer->gamma != NULL) {
                backward_norm(layer, plan->batch, layer->n);
            }
        }
        backward_dense(layer, plan->batch, l < plan->hidden ? layer->n : d);
        for (int64_t i = 0; i < plan->batch * layer->in; i++) {
            const bool around =
                plan->residual && l < plan->hidden && layer->in == layer->out;

            d[i] = layer->back[i] + (around ? d[i] : 0.0F);
        }
    }
    for (int64_t i = 0; i < plan->batch * TOKENS && plan->embedding; i++) {
        float *g = net->params[0].g + net->tokens[i] * plan->width;

        for (int64_t j = 0; j < plan->width; j++) {
            g[j] += net->back[i / TOKENS * plan->width + j] / TOKENS;
        }
    }
}
