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
    return sonde_nn_linear(b->model, name, x,
                           SONDE_OPTIONS(sonde_nn_linear, .out_features = out));
}

static sonde_nn_value conv(const builder *b, const char *name, sonde_nn_value x,
                           int64_t out, int64_t padding)
{
    return sonde_nn_conv2d(b->model, name, x,
                           SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = out,
                                         .kernel_size = {3, 3},
                                         .padding = {padding, padding}));
}

static sonde_nn_value norm(const builder *b, const char *name, sonde_nn_value x)
{
    return sonde_nn_group_norm(b->model, name, x,
                               SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 2));
}

static sonde_nn_value pool(const builder *b, const char *name, sonde_nn_value x)
{
    return sonde_nn_max_pool2d(b->model, name, x,
                               SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {2, 2}));
}

static sonde_nn_value two(const builder *b, const char *kind, const char *name,
                          sonde_nn_value x, sonde_nn_value y)
{
    return sonde_nn_layer(b->model, kind, name, (sonde_nn_value[]){x, y}, 2, NULL, 0);
}

/* Over `count` dimensions; 0: over all of them. */
static sonde_nn_value mean(const builder *b, const char *name, sonde_nn_value x,
                           const int *dims, int count)
{
    sonde_nn_setting setting = {.key = "dim", .count = count};

    for (int i = 0; i < count; i++) {
        setting.values[i] = dims[i];
    }
    return sonde_nn_layer(b->model, "mean", name, &x, 1, &setting, count > 0 ? 1 : 0);
}

static sonde_nn_value mlp(const builder *b, sonde_nn_value x)
{
    const int64_t width = b->plan->width;

    x = b->plan->data == DATA_IMAGES ? sonde_nn_flatten(b->model, NULL, x, 1) : x;
    x = sonde_nn_relu(b->model, "relu1", linear(b, "fc1", x, width));
    if (b->mask != 0) {
        x = two(b, "mul", "dropout", x, b->mask);
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
    return linear(b, "fc", mean(b, NULL, x, places, 2), CLASSES);
}

static sonde_nn_value add_loss(const builder *b, sonde_nn_value x)
{
    if (b->plan->data == DATA_REGRESSION) { /* the target comes negated */
        const sonde_nn_value d = sonde_nn_add(b->model, "difference", x, b->target);

        return mean(b, "loss", two(b, "mul", "square", d, d), NULL, 0);
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
    return sonde_nn_cross_entropy(b->model, "loss", x, b->target, NULL);
}

static void build(faults_training *training)
{
    const faults_plan *plan = &training->plan;
    const int64_t flat[2] = {plan->batch, FEATURES};
    const int64_t image[4] = {plan->batch, 1, SIDE, SIDE};
    const int64_t one[2] = {plan->batch, 1}, mask[2] = {plan->batch, plan->width};
    sonde_nn_value (*const nets[])(const builder *, sonde_nn_value) = {mlp, cnn,
                                                                       residual};
    builder b = {.plan = plan};
    sonde_nn_value x = 0;
    sonde_diag diag = {0};

    bench_check(sonde_nn_model_create(&training->model, &diag), &diag);
    b.model = training->model;
    x = plan->data == DATA_IMAGES ? sonde_nn_input(b.model, SONDE_F32, 4, image)
                                  : sonde_nn_input(b.model, SONDE_F32, 2, flat);
    b.target = plan->data == DATA_REGRESSION
                   ? sonde_nn_input(b.model, SONDE_F32, 2, one)
                   : sonde_nn_input(b.model, SONDE_I64, 1, flat);
    b.mask = plan->dropout ? sonde_nn_input(b.model, SONDE_F32, 2, mask) : 0;
    x = nets[plan->net](&b, x);
    sonde_nn_output(b.model, x);
    sonde_nn_loss(b.model, add_loss(&b, x));
    bench_check(sonde_nn_model_status(b.model, &diag), &diag);
    sonde_nn_model_initialize(b.model, plan->seed);
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
    faults_training *training = user;

    if (training->plan.record != NULL) {
        training->recorder =
            faults_record(training->plan.record, catalogue, observer, training->rules);
    }
    return sonde_rules_attach(training->rules, catalogue, observer,
                              SONDE_MAX(training->plan.every, (int64_t)1), 0, diag);
}

sonde_view faults_parameter(const faults_training *training, const char *name)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(training->model).parameter_count;
         i++) {
        if (strcmp(sonde_nn_parameter(training->model, i).name, name) == 0) {
            return sonde_nn_parameter(training->model, i).view;
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

/* Zero weights at the end of each residual branch, and the fault. */
static void prepare_model(faults_training *training)
{
    const faults_plan *plan = &training->plan;

    for (int i = 1; i <= 3 && plan->zero_init; i++) {
        char name[32];
        sonde_view weight;

        (void)snprintf(name, sizeof name, "block%d.norm2.weight", i);
        weight = faults_parameter(training, name);
        memset(weight.data, 0, (size_t)sonde_view_count(&weight) * sizeof(float));
    }
    if (plan->prepare != NULL) {
        plan->prepare(training);
    }
}

static void draw(faults_training *training, int64_t step)
{
    const faults_plan *plan = &training->plan;

    faults_batch(plan->data, plan->seed, step, training->samples, training->x,
                 training->y, training->t);
    for (int64_t i = 0; i < training->samples && plan->data == DATA_REGRESSION; i++) {
        training->t[i] = -training->t[i];
    }
    for (int64_t i = 0; i < training->samples * plan->width && plan->dropout; i++) {
        const uint64_t index = (uint64_t)(step * training->samples * plan->width + i);

        training->mask[i] = faults_uniform(plan->seed, 20, index) < 0.5F ? 0.0F : 2.0F;
    }
    if (plan->warmup > 0) {
        sonde_nn_optimizer now = plan->optimizer;
        sonde_diag diag = {0};

        now.learning_rate *= (float)SONDE_MIN(step, plan->warmup) / (float)plan->warmup;
        bench_check(sonde_nn_session_set_optimizer(training->session, NULL, &now, &diag),
                    &diag);
    }
}

/* The feed: draws a batch and spoils it. */
static sonde_err next_batch(void *user, sonde_nn_feed_batch *batch, sonde_diag *diag)
{
    faults_training *training = user;
    const faults_plan *plan = &training->plan;
    const int64_t flat[2] = {training->samples, FEATURES};
    const int64_t image[4] = {training->samples, 1, SIDE, SIDE};
    const int64_t one[2] = {training->samples, 1};
    const int64_t mask[2] = {training->samples, plan->width};
    const int64_t step = sonde_nn_session_step(training->session);

    (void)diag;
    if (step == plan->steps) {
        batch->samples = 0;
        return SONDE_OK;
    }
    draw(training, step);
    if (plan->before != NULL) {
        plan->before(training, step);
    }
    batch->inputs[0] = plan->data == DATA_IMAGES
                           ? sonde_view_of(SONDE_F32, 4, image, training->x)
                           : sonde_view_of(SONDE_F32, 2, flat, training->x);
    batch->inputs[1] = plan->data == DATA_REGRESSION
                           ? sonde_view_of(SONDE_F32, 2, one, training->t)
                           : sonde_view_of(SONDE_I64, 1, flat, training->y);
    batch->inputs[2] = sonde_view_of(SONDE_F32, 2, mask, training->mask);
    batch->count = plan->dropout ? 3 : 2;
    batch->samples = training->samples;
    return SONDE_OK;
}

static sonde_err on_step(void *user, const sonde_nn_step *step, sonde_diag *diag)
{
    faults_training *training = user;

    (void)diag;
    training->last_loss = (float)step->loss;
    training->first_loss = step->step == 1 ? training->last_loss : training->first_loss;
    return SONDE_OK;
}

static void make_buffers(faults_training *training)
{
    const faults_plan *plan = &training->plan;
    const int64_t samples = plan->batch * plan->accumulate;

    training->samples = samples;
    training->x =
        bench_alloc((size_t)(samples * faults_sample(plan->data)) * sizeof *training->x);
    training->t = bench_alloc((size_t)samples * sizeof *training->t);
    training->mask =
        bench_alloc((size_t)(samples * plan->width) * sizeof *training->mask);
    training->y = bench_alloc((size_t)samples * sizeof *training->y);
}

static void make_trainer(faults_training *training)
{
    const faults_plan *plan = &training->plan;
    const sonde_nn_feed feed = {.user = training,
                                .batches = plan->steps,
                                .samples = plan->steps * training->samples,
                                .next = next_batch};
    sonde_nn_options session;
    sonde_nn_trainer_options options = {.size = sizeof options,
                                        .events = {.user = training, .step = on_step},
                                        .model = training->model,
                                        .feed = &feed,
                                        .optimizer = plan->optimizer,
                                        .epochs = 1,
                                        .session = &session};
    sonde_diag diag = {0};

    sonde_nn_options_init(&session);
    session.threads = 1;
    session.gradient_accumulation = plan->accumulate;
    bench_check(sonde_nn_trainer_create(NULL, &options, &training->trainer, &diag),
                &diag);
    training->session = sonde_nn_trainer_get_info(training->trainer).session;
    bench_check(sonde_nn_session_set(
                    training->session,
                    SONDE_OPTIONS(sonde_nn_session, .attach = attach, .user = training),
                    &diag),
                &diag);
}

void faults_train(const faults_plan *plan, faults_training *out)
{
    sonde_diag diag = {0};

    *out = (faults_training){.plan = *plan, .rules = faults_default_rules()};
    build(out);
    make_buffers(out);
    prepare_model(out);
    make_trainer(out);
    bench_check(sonde_nn_trainer_run(out->trainer, &diag), &diag);
    sonde_rules_finish(out->rules);
    faults_record_end(out->recorder);
}

/* All but the rules, which outlive it. */
void faults_training_free(faults_training *training)
{
    sonde_nn_trainer_destroy(training->trainer);
    sonde_nn_model_destroy(training->model);
    sonde__free(training->x);
    sonde__free(training->t);
    sonde__free(training->mask);
    sonde__free(training->y);
    *training = (faults_training){.rules = training->rules};
}
