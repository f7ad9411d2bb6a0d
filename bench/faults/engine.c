/*
 * engine.c - networks of the engine, trained and judged.
 */
#include "faults.h"
#include "record.h"

#include "support.h"

#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sonde/error.h>

/* --- networks --------------------------------------------------------------------- */

/* The network while it is built: what layers of any kind need. */
typedef struct builder {
    const faults_plan *plan;
    sonde_nn_model *model;
    sonde_nn_value target, mask;
} builder;

static sonde_nn_value linear(const builder *b, const char *name, sonde_nn_value x,
                             int64_t out)
{
    return sonde_nn_linear(b->model, name, x, &(sonde_nn_linear_options){.out = out});
}

static sonde_nn_value conv(const builder *b, const char *name, sonde_nn_value x,
                           int64_t out, int64_t padding)
{
    return sonde_nn_conv2d(b->model, name, x,
                           &(sonde_nn_conv2d_options){.out = out,
                                                      .kernel = {3, 3},
                                                      .padding = {padding, padding}});
}

static sonde_nn_value norm(const builder *b, const char *name, sonde_nn_value x)
{
    return sonde_nn_group_norm(b->model, name, x,
                               &(sonde_nn_group_norm_options){.groups = 2});
}

static sonde_nn_value pool(const builder *b, const char *name, sonde_nn_value x)
{
    return sonde_nn_max_pool2d(b->model, name, x,
                               &(sonde_nn_pool2d_options){.kernel = {2, 2}});
}

static sonde_nn_value mlp(const builder *b, sonde_nn_value x)
{
    const int64_t width = b->plan->width;

    x = b->plan->data == DATA_IMAGES ? sonde_nn_flatten(b->model, NULL, x, 1) : x;
    x = sonde_nn_relu(b->model, "relu1", linear(b, "fc1", x, width));
    if (b->mask != 0) {
        x = sonde_nn_mul(b->model, "dropout", x, b->mask);
    }
    x = sonde_nn_relu(b->model, "relu2", linear(b, "fc2", x, width / 2));
    return linear(b, "fc3", x, b->plan->data == DATA_REGRESSION ? 1 : CLASSES);
}

static sonde_nn_value cnn(const builder *b, sonde_nn_value x)
{
    const int64_t width = b->plan->width;

    x = sonde_nn_relu(b->model, "relu1", conv(b, "conv1", x, width, 0));
    x = pool(b, "pool1", x);
    x = sonde_nn_relu(b->model, "relu2", conv(b, "conv2", x, 2 * width, 0));
    x = sonde_nn_flatten(b->model, "flatten", x, 1);
    x = sonde_nn_relu(b->model, "relu3", linear(b, "fc1", x, 8 * width));
    return linear(b, "fc2", x, CLASSES);
}

static sonde_nn_value residual(const builder *b, sonde_nn_value x)
{
    static const int places[2] = {2, 3};
    const int64_t width = b->plan->width;

    x = pool(b, "pool", sonde_nn_relu(b->model, "relu", conv(b, "stem", x, width, 1)));
    for (int i = 1; i <= 3; i++) {
        char name[16];
        sonde_nn_value inner = 0;

        (void)snprintf(name, sizeof name, "block%d", i);
        sonde_nn_scope_push(b->model, name);
        inner = norm(b, "norm1", conv(b, "conv1", x, width, 1));
        inner = sonde_nn_relu(b->model, "relu1", inner);
        inner = norm(b, "norm2", conv(b, "conv2", inner, width, 1));
        x = sonde_nn_relu(b->model, "relu2", sonde_nn_add(b->model, NULL, x, inner));
        sonde_nn_scope_pop(b->model);
    }
    return linear(b, "fc", sonde_nn_mean(b->model, NULL, x, places, 2, false), CLASSES);
}

static sonde_nn_value loss_of(const builder *b, sonde_nn_value x)
{
    if (b->plan->data == DATA_REGRESSION) { /* the target comes negated */
        const sonde_nn_value d = sonde_nn_add(b->model, "difference", x, b->target);

        return sonde_nn_mean(b->model, "loss", sonde_nn_mul(b->model, "square", d, d),
                             NULL, 0, false);
    }
    switch (b->plan->head) {
    case HEAD_NLL:
        x = sonde_nn_log_softmax(b->model, "log_softmax", x, 1);
        return sonde_nn_nll_loss(b->model, "loss", x, b->target);
    case HEAD_TWICE:
        x = sonde_nn_softmax(b->model, "softmax", x, 1);
        break;
    case HEAD_MISSING:
        return sonde_nn_nll_loss(b->model, "loss", x, b->target);
    case HEAD_CROSS_ENTROPY:
        break;
    }
    return sonde_nn_cross_entropy(b->model, "loss", x, b->target);
}

static void build(faults_training *of)
{
    const faults_plan *plan = &of->plan;
    const int64_t flat[2] = {plan->batch, FEATURES};
    const int64_t image[4] = {plan->batch, 1, SIDE, SIDE};
    const int64_t one[2] = {plan->batch, 1}, mask[2] = {plan->batch, plan->width};
    sonde_nn_value (*const nets[])(const builder *, sonde_nn_value) = {mlp, cnn,
                                                                       residual};
    builder b = {.plan = plan};
    sonde_nn_value x = 0;
    sonde_diag diag = {0};

    bench_check(sonde_nn_model_create(&of->model, &diag), &diag);
    b.model = of->model;
    x = plan->data == DATA_IMAGES ? sonde_nn_input(b.model, SONDE_F32, 4, image)
                                  : sonde_nn_input(b.model, SONDE_F32, 2, flat);
    b.target = plan->data == DATA_REGRESSION
                   ? sonde_nn_input(b.model, SONDE_F32, 2, one)
                   : sonde_nn_input(b.model, SONDE_I64, 1, flat);
    b.mask = plan->dropout ? sonde_nn_input(b.model, SONDE_F32, 2, mask) : 0;
    x = nets[plan->net](&b, x);
    sonde_nn_output(b.model, x);
    sonde_nn_loss(b.model, loss_of(&b, x));
    bench_check(sonde_nn_model_status(b.model, &diag), &diag);
    sonde_nn_model_initialise(b.model, plan->seed);
}

/* --- training --------------------------------------------------------------------- */

sonde_rules *faults_default_rules(void)
{
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_rules_create(&rules, &diag), &diag);
    bench_check(sonde_rules_add_defaults(rules, &diag), &diag);
    return rules;
}

static sonde_err attach(void *user, const sonde_catalogue *catalogue,
                        sonde_observer *observer, sonde_diag *diag)
{
    faults_training *of = user;

    if (of->plan.record != NULL) {
        of->recorder = faults_record(of->plan.record, catalogue, observer, of->rules);
    }
    return sonde_rules_attach(of->rules, catalogue, observer,
                              SONDE_MAX(of->plan.every, (int64_t)1), 0, diag);
}

sonde_view faults_parameter(const faults_training *training, const char *name)
{
    for (size_t i = 0; i < sonde_nn_parameter_count(training->model); i++) {
        if (strcmp(sonde_nn_parameter_name(training->model, i), name) == 0) {
            return sonde_nn_parameter_view(training->model, i);
        }
    }
    (void)fprintf(stderr, "error: no parameter %s\n", name);
    exit(2);
}

faults_plan faults_usual(faults_net net, uint64_t seed)
{
    static const int steps[] = {200, 150, 120};
    static const float rates[] = {0.05F, 0.02F, 0.005F};

    return (faults_plan){.net = net,
                         .data = net == NET_MLP ? DATA_BLOBS : DATA_IMAGES,
                         .seed = seed,
                         .batch = 32,
                         .width = net == NET_MLP ? 64 : 8,
                         .steps = steps[net],
                         .optimizer = sonde_nn_optimizer_sgd(rates[net], 0.9F),
                         .accumulate = 1};
}

static void prepare(faults_training *of)
{
    const faults_plan *plan = &of->plan;
    sonde_nn_options options;
    sonde_diag diag = {0};

    build(of);
    of->samples = plan->batch * plan->accumulate;
    of->x =
        bench_alloc((size_t)(of->samples * faults_sample(plan->data)) * sizeof *of->x);
    of->t = bench_alloc((size_t)of->samples * sizeof *of->t);
    of->mask = bench_alloc((size_t)(of->samples * plan->width) * sizeof *of->mask);
    of->y = bench_alloc((size_t)of->samples * sizeof *of->y);
    for (int i = 1; i <= 3 && plan->zero_init; i++) {
        char name[32];
        sonde_view weight;

        (void)snprintf(name, sizeof name, "block%d.norm2.weight", i);
        weight = faults_parameter(of, name);
        memset(weight.data, 0, (size_t)sonde_view_count(&weight) * sizeof(float));
    }
    if (plan->prepare != NULL) {
        plan->prepare(of);
    }
    sonde_nn_options_init(&options);
    sonde_nn_options_set_threads(
        sonde_nn_options_set_gradient_accumulation(&options, plan->accumulate), 1);
    bench_check(sonde_nn_training_session(of->model, &options, &plan->optimizer,
                                          &of->session, &diag),
                &diag);
    of->rules = faults_default_rules();
    bench_check(sonde_nn_session_attach(of->session, attach, of, &diag), &diag);
    bench_check(sonde_nn_session_compile(of->session, &diag), &diag);
}

static void draw(faults_training *of, int64_t step)
{
    const faults_plan *plan = &of->plan;

    faults_batch(plan->data, plan->seed, step, of->samples, of->x, of->y, of->t);
    for (int64_t i = 0; i < of->samples && plan->data == DATA_REGRESSION; i++) {
        of->t[i] = -of->t[i];
    }
    for (int64_t i = 0; i < of->samples * plan->width && plan->dropout; i++) {
        const uint64_t at = (uint64_t)(step * of->samples * plan->width + i);

        of->mask[i] = faults_uniform(plan->seed, 20, at) < 0.5F ? 0.0F : 2.0F;
    }
    if (plan->warmup > 0) {
        sonde_nn_optimizer now = plan->optimizer;
        sonde_diag diag = {0};

        now.learning_rate *= (float)SONDE_MIN(step, plan->warmup) / (float)plan->warmup;
        bench_check(sonde_nn_session_set_optimizer(of->session, &now, &diag), &diag);
    }
}

static void run_step(faults_training *of)
{
    const faults_plan *plan = &of->plan;
    const int64_t flat[2] = {of->samples, FEATURES};
    const int64_t image[4] = {of->samples, 1, SIDE, SIDE};
    const int64_t one[2] = {of->samples, 1}, mask[2] = {of->samples, plan->width};
    const sonde_view inputs[3] = {
        plan->data == DATA_IMAGES ? sonde_view_of(SONDE_F32, 4, image, of->x)
                                  : sonde_view_of(SONDE_F32, 2, flat, of->x),
        plan->data == DATA_REGRESSION ? sonde_view_of(SONDE_F32, 2, one, of->t)
                                      : sonde_view_of(SONDE_I64, 1, flat, of->y),
        sonde_view_of(SONDE_F32, 2, mask, of->mask)};
    sonde_view loss;
    sonde_diag diag = {0};

    bench_check(sonde_nn_session_run(of->session, inputs, plan->dropout ? 3 : 2, &diag),
                &diag);
    bench_check(sonde_nn_session_output(of->session, 1, &loss, &diag), &diag);
    of->last_loss = *(const float *)loss.data;
}

void faults_train(const faults_plan *plan, faults_training *out)
{
    *out = (faults_training){.plan = *plan};
    prepare(out);
    for (int64_t step = 0; step < plan->steps; step++) {
        draw(out, step);
        if (plan->before != NULL) {
            plan->before(out, step);
        }
        run_step(out);
        out->first_loss = step == 0 ? out->last_loss : out->first_loss;
    }
    sonde_rules_finish(out->rules);
    faults_record_end(out->recorder);
}

/* All but the rules, which outlive it. */
void faults_training_free(faults_training *of)
{
    sonde_nn_session_destroy(of->session);
    sonde_nn_model_destroy(of->model);
    sonde__free(of->x);
    sonde__free(of->t);
    sonde__free(of->mask);
    sonde__free(of->y);
    *of = (faults_training){.rules = of->rules};
}
