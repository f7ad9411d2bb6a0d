/*
 * bench_composites.c - gradients written by hand beside those that autodiff derives.
 *
 *     bench_composites [--seconds 2]
 *
 * Layers that could be compositions of smaller ones have an op and a gradient of their own.
 * Each is trained here both ways, step by step in turns, on one thread: the network is one
 * parameter, the layer, and the mean squared error to a target. Rows:
 *
 *     composite_<layer>             the composition's step over the op's, fast deciles of
 *                                   the process's CPU time. 1.1 or less: the op does not pay.
 *     composite_<layer>_difference  the largest difference of the parameters after the first
 *                                   step, over the largest change of a parameter
 */
#include "support.h"

#include "base/macros.h"
#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sonde/nn/model.h>

enum { MOST_STEPS = 4096, FEWEST_STEPS = 20 };

typedef struct network {
    sonde_nn_model *model;
    sonde_nn_session *session;
    float *parameter;
    sonde_view target; /* without its memory */
    double steps[MOST_STEPS];
} network;

typedef struct composite {
    const char *name;
    int rank;
    int64_t shape[SONDE_MAX_DIMS];
    sonde_nn_value (*op)(sonde_nn_model *model, sonde_nn_value x);
    sonde_nn_value (*composition)(sonde_nn_model *model, sonde_nn_value x);
    bool drawn; /* weights, in another order: the two train differently */
} composite;

/* --- the layers, both ways ---------------------------------------------------------- */

static const sonde_nn_setting NONE[1];

static sonde_nn_value call(sonde_nn_model *model, const char *kind, sonde_nn_value a,
                           sonde_nn_value b)
{
    return sonde_nn_function(model, "", kind, (const sonde_nn_value[]){a, b},
                             b == 0 ? 1 : 2, NONE, 0);
}

static sonde_nn_value with(sonde_nn_model *model, const char *kind, sonde_nn_value a,
                           const char *key, double value)
{
    const sonde_nn_setting setting = {.key = key, .values = {value}};

    return sonde_nn_function(model, "", kind, &a, 1, &setting, 1);
}

static sonde_nn_value shaped(sonde_nn_model *model, sonde_nn_value a, int rank,
                             const double *shape)
{
    sonde_nn_setting setting = {.key = "shape", .count = rank};

    memcpy(setting.values, shape, (size_t)rank * sizeof *shape);
    return sonde_nn_function(model, "", "reshape", &a, 1, &setting, 1);
}

static sonde_nn_value mean(sonde_nn_model *model, sonde_nn_value a)
{
    const sonde_nn_setting settings[] = {{.key = "dim", .values = {-1}},
                                         {.key = "keepdim", .values = {1}}};

    return sonde_nn_layer(model, "mean", NULL, &a, 1, settings, 2);
}

static sonde_nn_value part(sonde_nn_model *model, sonde_nn_value x, int dim, int from,
                           int to)
{
    const sonde_nn_setting settings[] = {{.key = "dim", .values = {dim}},
                                         {.key = "start", .values = {from}},
                                         {.key = "end", .values = {to}}};

    return sonde_nn_layer(model, "slice", NULL, &x, 1, settings, 3);
}

/* (x - mean) / sqrt(variance + 1e-5) over the last dimension. */
static sonde_nn_value normalized(sonde_nn_model *model, sonde_nn_value x)
{
    const sonde_nn_setting eps[] = {{.key = "value", .values = {1e-5}},
                                    {.key = "shape", .values = {1}, .count = 1}};
    sonde_nn_value centered = call(model, "sub", x, mean(model, x));
    sonde_nn_value variance = mean(model, call(model, "square", centered, 0));

    variance = call(model, "add", variance,
                    sonde_nn_function(model, "", "fill", NULL, 0, eps, 2));
    return call(model, "mul", centered, call(model, "rsqrt", variance, 0));
}

static sonde_nn_value layer_norm(sonde_nn_model *model, sonde_nn_value x)
{
    const sonde_nn_setting settings[] = {{.key = "normalized_shape", .values = {256}},
                                         {.key = "elementwise_affine", .values = {0}}};

    return sonde_nn_layer(model, "layer_norm", NULL, &x, 1, settings, 2);
}

static sonde_nn_value group_norm(sonde_nn_model *model, sonde_nn_value x)
{
    return with(model, "group_norm", x, "num_groups", 4);
}

static sonde_nn_value group_norm_composed(sonde_nn_model *model, sonde_nn_value x)
{
    static const double groups[] = {16, 4, 8 * 14 * 14}, whole[] = {16, 32, 14, 14};

    return shaped(model, normalized(model, shaped(model, x, 3, groups)), 4, whole);
}

static sonde_nn_value attention(sonde_nn_model *model, sonde_nn_value x)
{
    return sonde_nn_layer(model, "scaled_dot_product_attention", NULL,
                          (const sonde_nn_value[]){x, x, x}, 3, NONE, 0);
}

static sonde_nn_value attention_composed(sonde_nn_model *model, sonde_nn_value x)
{
    const sonde_nn_setting last[] = {{.key = "dim0", .values = {-1}},
                                     {.key = "dim1", .values = {-2}}};
    sonde_nn_value turned = sonde_nn_layer(model, "transpose", NULL, &x, 1, last, 2);
    sonde_nn_value scores = call(model, "matmul", x, turned);

    scores =
        with(model, "softmax", with(model, "scale", scores, "value", 0.125), "dim", -1);
    return call(model, "matmul", scores, x);
}

static sonde_nn_value log_softmax(sonde_nn_model *model, sonde_nn_value x)
{
    return with(model, "log_softmax", x, "dim", -1);
}

static sonde_nn_value log_softmax_composed(sonde_nn_model *model, sonde_nn_value x)
{
    const sonde_nn_setting settings[] = {{.key = "dim", .values = {-1}},
                                         {.key = "keepdim", .values = {1}}};

    return call(model, "sub", x,
                sonde_nn_layer(model, "logsumexp", NULL, &x, 1, settings, 2));
}

/* Of (N, T, E) to itself, in four heads, and only to what came before. */
static sonde_nn_value multihead(sonde_nn_model *model, sonde_nn_value x)
{
    const sonde_nn_setting settings[] = {{.key = "num_heads", .values = {4}},
                                         {.key = "is_causal", .values = {1}}};

    return sonde_nn_layer(model, "multihead_attention", "attention", &x, 1, settings, 2);
}

static sonde_nn_value heads_of(sonde_nn_model *model, sonde_nn_value rows, int which)
{
    static const double split[] = {4, 128, 4, 64};
    const sonde_nn_setting swap[] = {{.key = "dim0", .values = {1}},
                                     {.key = "dim1", .values = {2}}};
    sonde_nn_value heads =
        shaped(model, part(model, rows, 2, 256 * which, 256 * (which + 1)), 4, split);

    return sonde_nn_layer(model, "transpose", NULL, &heads, 1, swap, 2);
}

static sonde_nn_value multihead_composed(sonde_nn_model *model, sonde_nn_value x)
{
    static const double rows[] = {4, 128, 256};
    static bool future[128 * 128];
    const sonde_nn_linear_options in = {.size = sizeof in, .out_features = 768};
    const sonde_nn_linear_options out = {.size = sizeof out, .out_features = 256};
    const sonde_nn_setting last[] = {{.key = "dim0", .values = {-1}},
                                     {.key = "dim1", .values = {-2}}},
                           swap[] = {{.key = "dim0", .values = {1}},
                                     {.key = "dim1", .values = {2}}};

    for (int i = 0; i < 128 * 128; i++) {
        future[i] = i % 128 > i / 128;
    }
    const sonde_view mask =
        sonde_view_of(SONDE_BOOL, 2, (const int64_t[]){128, 128}, future);
    sonde_nn_value all = sonde_nn_linear(model, "in", x, &in);
    sonde_nn_value key = heads_of(model, all, 1);
    sonde_nn_value scores =
        call(model, "matmul", heads_of(model, all, 0),
             sonde_nn_layer(model, "transpose", NULL, &key, 1, last, 2));
    const sonde_nn_value masked[] = {
        with(model, "scale", scores, "value", 0.125),
        sonde_nn_tensor(model, "future", SONDE_ROLE_BUFFER, &mask)};
    const sonde_nn_setting never = {.key = "value", .values = {-1e30}};

    scores = sonde_nn_layer(model, "masked_fill", NULL, masked, 2, &never, 1);
    scores = call(model, "matmul", with(model, "softmax", scores, "dim", -1),
                  heads_of(model, all, 2));
    scores = sonde_nn_layer(model, "transpose", NULL, &scores, 1, swap, 2);
    return sonde_nn_linear(model, "out", shaped(model, scores, 3, rows), &out);
}

/* The last state of 64 units after 16 steps of 32 samples. */
static sonde_nn_value lstm(sonde_nn_model *model, sonde_nn_value x)
{
    static const double row[] = {32, 64};
    const sonde_nn_setting setting = {.key = "hidden_size", .values = {64}};

    x = sonde_nn_layer(model, "lstm", "lstm", &x, 1, &setting, 1);
    return shaped(model, part(model, x, 1, 15, 16), 2, row);
}

static sonde_nn_value lstm_step(sonde_nn_model *model, sonde_nn_value gates,
                                sonde_nn_value *cell)
{
    sonde_nn_value in = call(model, "sigmoid", part(model, gates, 1, 0, 64), 0);
    sonde_nn_value forget = call(model, "sigmoid", part(model, gates, 1, 64, 128), 0);
    sonde_nn_value new = call(model, "tanh", part(model, gates, 1, 128, 192), 0);
    sonde_nn_value out = call(model, "sigmoid", part(model, gates, 1, 192, 256), 0);

    new = call(model, "mul", in, new);
    *cell = *cell == 0 ? new : call(model, "add", call(model, "mul", forget, *cell), new);
    return call(model, "mul", out, call(model, "tanh", *cell, 0));
}

static sonde_nn_value lstm_composed(sonde_nn_model *model, sonde_nn_value x)
{
    static const double row[] = {32, 64};
    const sonde_nn_linear_options gates = {.size = sizeof gates, .out_features = 256};
    sonde_nn_value cell = 0, state = 0;

    for (int t = 0; t < 16; t++) {
        sonde_nn_value sum = sonde_nn_linear(
            model, "ih", shaped(model, part(model, x, 1, t, t + 1), 2, row), &gates);

        if (state != 0) {
            sum = call(model, "add", sum, sonde_nn_linear(model, "hh", state, &gates));
        }
        state = lstm_step(model, sum, &cell);
    }
    return state;
}

static const composite COMPOSITES[] = {
    {"layer_norm", 2, {512, 256}, layer_norm, normalized, false},
    {"group_norm", 4, {16, 32, 14, 14}, group_norm, group_norm_composed, false},
    {"log_softmax", 2, {512, 256}, log_softmax, log_softmax_composed, false},
    {"attention", 4, {4, 4, 128, 64}, attention, attention_composed, false},
    {"multihead_attention", 3, {4, 128, 256}, multihead, multihead_composed, true},
    {"lstm", 3, {32, 16, 64}, lstm, lstm_composed, true},
};

/* --- training ----------------------------------------------------------------------- */

static void make(network *out, const composite *layer,
                 sonde_nn_value (*build)(sonde_nn_model *, sonde_nn_value))
{
    sonde_nn_options options;
    sonde_diag diag = {0};
    int64_t count = 1, shape[SONDE_MAX_DIMS];
    int rank = 0;

    for (int i = 0; i < layer->rank; i++) {
        count *= layer->shape[i];
    }
    out->parameter = bench_alloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) { /* the same numbers for both */
        out->parameter[i] = (float)(4e-6 * (double)(i * 2654435761 % 1000003) - 2);
    }
    /* a step of the size of the values, whatever the mean divides by */
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.01F * (float)count, 0);

    bench_check(sonde_nn_model_create(&out->model, &diag), &diag);
    const sonde_view memory =
        sonde_view_of(SONDE_F32, layer->rank, layer->shape, out->parameter);
    sonde_nn_value y =
        build(out->model, sonde_nn_tensor(out->model, "x", SONDE_ROLE_WEIGHT, &memory));

    bench_check(sonde_nn_model_status(out->model, &diag), &diag);
    memcpy(shape, sonde_nn_value_shape(out->model, y, &rank), sizeof shape);
    out->target = sonde_view_of(SONDE_F32, rank, shape, NULL);
    sonde_nn_value target = sonde_nn_input(out->model, SONDE_F32, rank, shape);
    sonde_nn_loss(out->model, call(out->model, "mse_loss", y, target));
    bench_check(sonde_nn_model_status(out->model, &diag), &diag);
    sonde_nn_model_initialize(out->model, 1);
    sonde_nn_options_init(&options);
    options.threads = 1;
    bench_check(sonde_nn_session_create(out->model, &options, &sgd, &out->session, &diag),
                &diag);
    bench_check(sonde_nn_session_compile(out->session, &diag), &diag);
}

static double step(network *net, float *numbers)
{
    sonde_view target = net->target;
    struct timespec from, to;
    sonde_diag diag = {0};

    target.data = numbers;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    bench_check(sonde_nn_session_run(net->session, &target, 1, &diag), &diag);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/* Largest difference of the two, over the largest change by the first step. */
static double differ(const float *a, const float *b, const float *before, int64_t count)
{
    double difference = 0, change = 0;

    for (int64_t i = 0; i < count; i++) {
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
        change = fmax(change, fabs((double)a[i] - (double)before[i]));
    }
    return difference / change;
}

static void row(const char *layer, const char *what, double value, const char *limit)
{
    char name[64];

    (void)snprintf(name, sizeof name, "composite_%s%s", layer, what);
    bench_row(name, value, "ratio", limit);
}

static void run(const composite *layer, double seconds)
{
    static network op, composed;
    double spent = 0;
    int64_t count = 1;
    size_t steps = 0;

    make(&op, layer, layer->op);
    make(&composed, layer, layer->composition);
    for (int i = 0; i < layer->rank; i++) {
        count *= layer->shape[i];
    }
    const size_t bytes = (size_t)count * sizeof(float);
    float *before = bench_alloc(bytes), *numbers = bench_alloc(bytes);

    memcpy(before, op.parameter, bytes);
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = (float)(1e-3 * (double)(i * 7919 % 1013));
    }
    for (; steps < MOST_STEPS && (steps < FEWEST_STEPS || spent < seconds); steps++) {
        op.steps[steps] = step(&op, numbers);
        composed.steps[steps] = step(&composed, numbers);
        spent += op.steps[steps] + composed.steps[steps];
        if (steps == 0 && !layer->drawn) {
            row(layer->name, "_difference",
                differ(op.parameter, composed.parameter, before, count), "<=1e-4");
        }
    }
    row(layer->name, "",
        bench_quantile(composed.steps, steps, 0.1) / bench_quantile(op.steps, steps, 0.1),
        ">=1.1");
    for (int i = 0; i < 2; i++) {
        network *net = i == 0 ? &op : &composed;

        sonde_nn_session_destroy(net->session);
        sonde_nn_model_destroy(net->model);
        sonde__free(net->parameter);
    }
    sonde__free(before);
    sonde__free(numbers);
}

int main(int argc, char **argv)
{
    const double seconds =
        argc == 3 && strcmp(argv[1], "--seconds") == 0 ? atof(argv[2]) : 2;

    if ((argc != 1 && argc != 3) || seconds <= 0) {
        (void)fprintf(stderr, "usage: bench_composites [--seconds 2]\n");
        return 2;
    }
    bench_header();
    for (size_t i = 0; i < SONDE_COUNT_OF(COMPOSITES); i++) {
        run(&COMPOSITES[i], seconds);
    }
    return 0;
}
