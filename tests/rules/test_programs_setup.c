/*
 * How a program is set up: the shapes of a loss, initial weights, the epsilon of an
 * optimizer, a rate that suits or not, what is frozen on purpose; LossBroadcast,
 * PoorWeightInitialization, OptimizerState, WeightUpdateRatio, UpdateSpike, Overfit,
 * LossNotDecreasing, FrozenParameter.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { BATCH = 24, STEPS = 60 };

/* --- the shapes of a loss ------------------------------------------------------------- */

enum { PAIRED, ALL_PAIRS, OTHER, LOSS_KINDS };
enum { SQUARES = 0, MAGNITUDES = LOSS_KINDS, SMOOTH = 2 * LOSS_KINDS };

static double distance(int kind, double d)
{
    const double size = fabs(d);

    return kind == SQUARES      ? d * d
           : kind == MAGNITUDES ? size
           : size < 1.0         ? 0.5 * d * d
                                : size - 0.5;
}

/* kind: the distance plus what it is of. */
static void loss_of_pairs(stream *s, int kind, int step)
{
    float p[BATCH], y[BATCH];
    const int over = kind % LOSS_KINDS;
    double sum = 0.0, pairs = 0.0;

    (void)step;
    for (int i = 0; i < BATCH; i++) {
        p[i] = stream_normal(s);
        y[i] = 2.0F * stream_normal(s);
    }
    for (int i = 0; i < BATCH * BATCH; i++) {
        if (over == ALL_PAIRS || i / BATCH == i % BATCH) {
            sum += distance(kind - over, (double)p[i / BATCH] - (double)y[i % BATCH]);
            pairs += 1.0;
        }
    }
    stream_put(s, 0, p);
    stream_put(s, 1, y);
    stream_put_all(s, 2, (float)(sum / pairs * (over == OTHER ? 1.7 : 1.0)));
}

/* --- initial weights ------------------------------------------------------------------ */

enum { DEFAULT, LOUD, EMBEDDINGS, RESUMED };

static void first_weights(stream *s, int kind, int step)
{
    const double deviation = kind == DEFAULT ? 0.05 : kind == EMBEDDINGS ? 1.0 : 1.6;

    for (uint32_t i = 0; i < 3 && (kind != RESUMED || step > 0); i++) {
        stream_put_normal(s, i, 0.0, i == 2 ? 0.05 : deviation);
    }
}

/* Weights are too large when they are first seen, after an update, and the losses are so large:
 * one before the update, others after it, which rise. */
static void weights_and_loss(stream *s, int before, int step)
{
    first_weights(s, LOUD, step);
    stream_put_all(s, 3, step == 0 ? (float)before : 20000.0F + 200.0F * (float)step);
}

/* A first layer whose outputs are far larger than the inputs of the network. */
static void first_layer(stream *s, int loud, int step)
{
    (void)step;
    stream_put_normal(s, 0, 0.0, loud ? 1.5 : 20.0);
    stream_put_normal(s, 1, 0.0, 30.0);
}

/* --- the optimizer -------------------------------------------------------------------- */

enum { LAYERS = 5, N = 12 };

/* The weights, first and second moments of LAYERS layers. */
static void adam(stream *s, int large, int step)
{
    for (int i = 0; i < LAYERS; i++) {
        float *w = s->values[0] + (ptrdiff_t)i * N, *m = s->values[1] + (ptrdiff_t)i * N,
              *v = s->values[2] + (ptrdiff_t)i * N;
        const float scale = 0.02F * powf(1.8F, (float)i);

        for (int k = 0; k < N; k++) {
            const float g = scale * (0.3F + stream_normal(s));

            m[k] = 0.9F * m[k] + 0.1F * g;
            v[k] = 0.999F * v[k] + 0.001F * g * g;
            w[k] -= (float)(0.01 * (double)m[k] /
                            (sqrt((double)v[k] / (1.0 - pow(0.999, step + 1.0))) +
                             (large ? 10.0 : 1e-8)));
        }
        stream_put(s, (uint32_t)(LAYERS + i), m);
        stream_put(s, (uint32_t)(2 * LAYERS + i), v);
        stream_put(s, (uint32_t)i, w);
    }
}

/* Weights that grow by large parts at first. */
static void small_weights(stream *s, int rises, int step)
{
    float *w = s->values[0];

    *w = step == 0 ? 0.05F : *w;
    stream_put_all(s, 0, *w);
    stream_put_all(s, 1, 4.0F * expf((rises ? 0.2F : -0.08F) * (float)step));
    *w *= step >= 12 ? 1.01F : 1.22F;
}

enum { PAID, OVERSHOT };

static void searches(stream *s, int kind, int step)
{
    static const float losses[2][6] = {{0.99F, 0.95F, 0.93F, 0.3F, 0.2F, 0.1F},
                                       {1.9F, 1.84F, 1.7F, 1.4F, 6.3F, 1.2F}};
    float *w = s->values[0];

    if (step == 0) {
        stream_walk(s, w, 64, 0.3F);
    }
    stream_put(s, 0, w);
    stream_put_all(s, 1, step < 6 ? losses[kind][step] : 0.1F);
    for (int k = 0; k < 64; k++) {
        w[k] *= 1.0F + (step < 5 + kind ? 0.25F : 0.001F) * stream_normal(s);
    }
}

enum { DECAY_ALONE, DECAY, NO_DECAY };

static void decays(stream *s, int kind, int step)
{
    float *w = s->values[0];

    if (step == 0) {
        stream_walk(s, w, 64, 0.3F);
    }
    stream_put(s, 0, w);
    stream_put_all(s, 1, 4.0F - 0.03F * (float)step);
    for (int k = 0; k < 64; k++) {
        w[k] *= kind == NO_DECAY ? 1.0F : 1.0F - 4e-4F;
    }
    stream_walk(s, w, 64, kind == DECAY_ALONE ? 1e-6F : 1e-4F);
}

static void grows(stream *s, int all, int step)
{
    float *w = s->values[0];

    if (step == 0) {
        stream_walk(s, w, 10, 0.3F);
    }
    stream_walk(s, w, 10, 0.001F);
    for (int i = 0; i < 10 && step == 12; i++) {
        w[i] *= all || i == 4 ? 4096.0F : 1.0F;
    }
    stream_put(s, 0, w);
}

/* --- evaluation ----------------------------------------------------------------------- */

/* The training loss falls; evaluations of four batches rise a little, with or without
 * one batch that has a large loss. */
static void evaluations(stream *s, int rises, int step)
{
    const int round = step / 14, batch = step % 14 - 10;
    const float more = round < 4 ? 0.0F : 0.03F * (float)(round - 3);

    s->at.mode = batch < 0 ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
    stream_put_all(s, 0,
                   batch < 0    ? 0.1F / (float)(round + 1)
                   : rises      ? 0.02F + more
                   : batch == 2 ? 0.02F + 4.0F * more
                                : 0.02F);
}

/* --- what is meant -------------------------------------------------------------------- */

/* A loss that rises and stays: that of a policy, of any sign; one that is never below 0. */
static void rises(stream *s, int any, int step)
{
    stream_put_all(s, 0,
                   (any ? -0.02F : 0.1F) + (step < 50 ? 0.0F : 0.05F) +
                       0.005F * stream_normal(s));
}

/* Frozen layers, each with an adapter that is trained; or one of them alone. */
static void adapters(stream *s, int alone, int step)
{
    for (uint32_t i = 0; i < 4; i++) {
        if (!alone || i == 2) {
            stream_put_all(s, 5 * i, 0.5F);
        }
        for (uint32_t k = 1; k < 5; k += 2) {
            stream_put_normal(s, 5 * i + k + 1, 0.1, 0.1);
            stream_put_all(s, 5 * i + k, 1.0F + 0.01F * (float)step);
        }
    }
}

/* A frozen layer is seen at each step. The layer that is trained is seen at every 20th from
 * step 20 on; or, if it rests, at each, without a gradient. */
static void base_and_trained(stream *s, int rests, int step)
{
    const bool early = step < 20;

    stream_put_all(s, 0, 0.5F);
    if (early || rests || step % 20 == 0) {
        stream_put_all(s, 1, 1.0F + 0.01F * (float)(early || !rests ? step : 20));
    }
    if (early || (!rests && step % 20 == 0)) {
        stream_put_normal(s, 2, 0.1, 0.1);
    }
}

#define PAIRS "output loss_input_0 24 1, input targets 24, loss loss"
#define WEIGHTS "3*weight fc#.weight 16 128"
#define FIRST "input input 32 8, activation relu_input_0 32 16"
#define ADAM                                                                             \
    "5*weight fc#.weight 3 4, 5*optimizer fc#.weight.exp_avg 3 4, "                      \
    "5*optimizer fc#.weight.exp_avg_sq 3 4"
#define SMALL "weight fc.weight 4 4, loss loss"
#define LARGE "weight fc.weight 4 16, loss loss"
#define BASE                                                                             \
    "weight base.weight 4 4, weight fc.weight 4 4, gradient gradient/fc.weight 4 4"
#define ADAPTERS                                                                         \
    "4*weight fc#.base.weight 4 4 + weight fc#.lora0.weight 4 4 + "                      \
    "gradient gradient/fc#.lora0.weight 4 4 + weight fc#.lora1.weight 4 4 + "            \
    "gradient gradient/fc#.lora1.weight 4 4"

static const stream_case cases[] = {
    {"squares", "LossBroadcast", PAIRS, loss_of_pairs, SQUARES + PAIRED, 4},
    {"squares of all pairs", "LossBroadcast", PAIRS, loss_of_pairs, SQUARES + ALL_PAIRS,
     4, FAILED, "loss_input_0", 1},
    {"of squares, something else", "LossBroadcast", PAIRS, loss_of_pairs, SQUARES + OTHER,
     4},
    {"magnitudes", "LossBroadcast", PAIRS, loss_of_pairs, MAGNITUDES + PAIRED, 4},
    {"magnitudes of all pairs", "LossBroadcast", PAIRS, loss_of_pairs,
     MAGNITUDES + ALL_PAIRS, 4, FAILED, "loss_input_0", 1},
    {"of magnitudes, something else", "LossBroadcast", PAIRS, loss_of_pairs,
     MAGNITUDES + OTHER, 4},
    {"smooth magnitudes", "LossBroadcast", PAIRS, loss_of_pairs, SMOOTH + PAIRED, 4},
    {"smooth magnitudes of all pairs", "LossBroadcast", PAIRS, loss_of_pairs,
     SMOOTH + ALL_PAIRS, 4, FAILED, "loss_input_0", 1},
    {"of smooth magnitudes, something else", "LossBroadcast", PAIRS, loss_of_pairs,
     SMOOTH + OTHER, 4},
    {"weights as libraries draw them", "PoorWeightInitialization", WEIGHTS, first_weights,
     DEFAULT, 3, SILENT},
    {"weights are too large at first", "PoorWeightInitialization", WEIGHTS, first_weights,
     LOUD, 3, FOUND, "fc0.weight", 0},
    {"... and the loss was always large", "PoorWeightInitialization",
     WEIGHTS ", loss loss", weights_and_loss, 20000, 60, WARNED, "fc0.weight", 0},
    {"an update makes weights too large", "PoorWeightInitialization",
     WEIGHTS ", loss loss", weights_and_loss, 2, 60, SILENT},
    {"embeddings may be large", "PoorWeightInitialization", WEIGHTS, first_weights,
     EMBEDDINGS, 3, SILENT},
    {"weights that are resumed may be large", "PoorWeightInitialization", WEIGHTS,
     first_weights, RESUMED, 3, SILENT},
    {"inputs are large already", "PoorWeightInitialization", FIRST, first_layer, 0, 12},
    {"a first layer is too large", "PoorWeightInitialization", FIRST, first_layer, 1, 12,
     FOUND, "relu_input_0", 1, "variance_ratio"},
    {"a usual epsilon", "OptimizerState", ADAM, adam, 0, STEPS},
    {"an epsilon above all gradients", "OptimizerState", ADAM, adam, 1, STEPS, FOUND,
     "fc4.weight", 12, "root_second_moment"},
    {"weights of a small model grow", "WeightUpdateRatio", SMALL, small_weights, 0,
     STEPS},
    {"small weights grow", "WeightUpdateRatio", LARGE, small_weights, 0, STEPS},
    {"weights of a small model grow, and the loss rises", "WeightUpdateRatio", SMALL,
     small_weights, 1, STEPS, FOUND, "fc.weight", 16},
    {"small weights grow, and the loss rises", "WeightUpdateRatio", LARGE, small_weights,
     1, STEPS, FOUND, "fc.weight", 4},
    {"a loss that falls after two steps pays", "WeightUpdateRatio", LARGE, searches, PAID,
     STEPS},
    {"a line search goes too far once", "WeightUpdateRatio", LARGE, searches, OVERSHOT,
     STEPS},
    {"decay alone learns nothing", "WeightUpdateRatio", LARGE, decays, DECAY_ALONE, 60,
     FOUND, "fc.weight", 40},
    {"gradients do something beside decay", "WeightUpdateRatio", LARGE, decays, DECAY,
     60},
    {"an optimizer has no decay", "WeightUpdateRatio", LARGE, decays, NO_DECAY, 60},
    {"a bit flips in a small tensor", "UpdateSpike", "weight out.weight 1 10", grows, 0,
     20, FOUND, "out.weight", 12},
    {"a small tensor grows", "UpdateSpike", "weight out.weight 1 10", grows, 1, 20},
    {"one batch of an evaluation rises", "Overfit", "loss loss", evaluations, 0, 98},
    {"all batches of an evaluation rise", "Overfit", "loss loss", evaluations, 1, 98,
     FOUND},
    {"a loss that is never below 0 rises", "LossNotDecreasing", "loss policy_loss", rises,
     0, 200, WARNED, "policy_loss", 149},
    {"a loss of any sign rises", "LossNotDecreasing", "loss policy_loss", rises, 1, 200,
     NOTED, "policy_loss", 149},
    {"layers with adapters are frozen on purpose", "FrozenParameter", ADAPTERS, adapters,
     0, STEPS, NOTED, "fc0.base.weight", 40},
    {"one layer with an adapter is frozen alone", "FrozenParameter", ADAPTERS, adapters,
     1, STEPS, WARNED, "fc2.base.weight", 40},
    {"the only layer that is trained is seen at times", "FrozenParameter", BASE,
     base_and_trained, 0, 2 * STEPS},
    {"the only layer that is trained has no gradient any more", "FrozenParameter", BASE,
     base_and_trained, 1, STEPS, FAILED},
};

/* --- what optimizers hold --------------------------------------------------------------- */

/* Two weights of a generator, whose gradients are declared and never come or, from `come` on,
 * do; and two that are trained. All are held; the generator by the optimizer of that note. */
static void run_held(stream *s, const char *note, int come)
{
    static const char *const names[] = {"G.0", "G.1", "D.0", "D.1"};
    uint32_t weights[4], gradients[4];
    char name[64];

    stream_open(s, "FrozenParameter");
    for (int i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof name, "%s.weight", names[i]);
        weights[i] = stream_declare(s, name, SONDE_ROLE_WEIGHT, 4, 4);
        (void)snprintf(name, sizeof name, "gradient/%s.weight", names[i]);
        s->note = i < 2 ? note : "for optimizer 2";
        gradients[i] = stream_declare(s, name, SONDE_ROLE_GRADIENT, 4, 4);
        s->note = NULL;
    }
    stream_begin(s);
    for (int step = 0; step < 60; step++) {
        for (int i = 0; i < 4; i++) {
            const bool moves = i > 1 || step >= come;

            stream_put_all(s, weights[i], moves ? 1.0F + 0.01F * (float)step : 0.5F);
            if (moves) {
                stream_put_normal(s, gradients[i], 0.1, 0.1);
            }
        }
        stream_end(s);
    }
}

static void an_optimizer_that_trains_nothing_is_an_error(void **state)
{
    stream s;

    (void)state;
    run_held(&s, "for optimizer 1", 1000);
    const sonde_finding found = stream_expect(&s, "G.0.weight", 40);
    assert_int_equal(found.severity, SONDE_SEVERITY_ERROR);
    assert_non_null(strstr(found.message, "It and 1 other weight never had a gradient"));
    stream_close(&s);
}

static void unused_weights_of_an_optimizer_are_a_warning(void **state)
{
    stream s;

    (void)state;
    run_held(&s, "for optimizer 2", 1000);
    assert_int_equal(stream_expect(&s, "G.0.weight", 40).severity,
                     SONDE_SEVERITY_WARNING);
    stream_close(&s);
}

static void weights_that_nothing_holds_are_a_note(void **state)
{
    stream s;

    (void)state;
    run_held(&s, NULL, 1000);
    assert_int_equal(stream_expect(&s, "G.1.weight", 40).severity, SONDE_SEVERITY_NOTE);
    stream_close(&s);
}

static void weights_that_are_trained_later_are_resolved(void **state)
{
    stream s;

    (void)state;
    run_held(&s, "for optimizer 1", 50);
    assert_true(stream_expect(&s, "G.0.weight", 40).resolved_step >= 50);
    stream_close(&s);
}

static void weights_that_are_trained_at_once_are_clean(void **state)
{
    stream s;

    (void)state;
    run_held(&s, "for optimizer 1", 0);
    stream_expect_clean(&s);
    stream_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_optimizer_that_trains_nothing_is_an_error),
        cmocka_unit_test(unused_weights_of_an_optimizer_are_a_warning),
        cmocka_unit_test(weights_that_nothing_holds_are_a_note),
        cmocka_unit_test(weights_that_are_trained_later_are_resolved),
        cmocka_unit_test(weights_that_are_trained_at_once_are_clean),
    };

    return stream_main(cases, SONDE_COUNT_OF(cases), tests, SONDE_COUNT_OF(tests));
}
