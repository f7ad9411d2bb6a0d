/*
 * How a program is set up: the shapes of a loss, initial weights, the epsilon of an
 * optimizer, a rate that suits or not, what is frozen on purpose; LossBroadcast,
 * PoorWeightInitialization, OptimizerState, WeightUpdateRatio, UpdateSpike, Overfit,
 * LossNotDecreasing, FrozenParameter.
 */
#include "rules/stream.h"

enum { BATCH = 24, STEPS = 60 };

/* --- the shapes of a loss ------------------------------------------------------------- */

enum { PAIRED, ALL_PAIRS, OTHER, LOSS_KINDS };

static double distance(int kind, double d)
{
    const double size = fabs(d);

    return kind == 0 ? d * d : kind == 1 ? size : size < 1.0 ? 0.5 * d * d : size - 0.5;
}

/* kind: squares, magnitudes or smooth magnitudes of differences. */
static void put_loss(stream *s, uint32_t loss, const float *p, const float *y, int kind,
                     int over)
{
    double sum = 0.0, pairs = 0.0;

    for (int i = 0; i < BATCH; i++) {
        for (int k = over == ALL_PAIRS ? 0 : i; k < (over == ALL_PAIRS ? BATCH : i + 1);
             k++) {
            sum += distance(kind, (double)p[i] - (double)y[k]);
            pairs += 1.0;
        }
    }
    stream_put_all(s, loss, (float)(sum / pairs * (over == OTHER ? 1.7 : 1.0)));
}

static void a_loss_over_all_pairs_is_found(void **state)
{
    (void)state;
    for (int run = 0; run < 3 * LOSS_KINDS; run++) {
        stream s;
        uint32_t prediction = 0, target = 0, loss = 0;

        stream_open(&s, "LossBroadcast");
        prediction = stream_declare(&s, "loss_input_0", SONDE_ROLE_OUTPUT, BATCH, 1);
        target = stream_declare(&s, "targets", SONDE_ROLE_INPUT, BATCH, 0);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < 4; step++) {
            float p[BATCH], y[BATCH];

            for (int i = 0; i < BATCH; i++) {
                p[i] = stream_normal(&s);
                y[i] = 2.0F * stream_normal(&s);
            }
            stream_put(&s, prediction, p);
            stream_put(&s, target, y);
            put_loss(&s, loss, p, y, run / LOSS_KINDS, run % LOSS_KINDS);
            stream_end(&s);
        }
        if (run % LOSS_KINDS == ALL_PAIRS) {
            assert_int_equal(stream_expect(&s, "loss_input_0", 1).severity,
                             SONDE_SEVERITY_ERROR);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* --- initial weights ------------------------------------------------------------------ */

enum { DEFAULT, LOUD, EMBEDDINGS, RESUMED, WEIGHT_KINDS };

static void weights_that_are_too_large_at_first_are_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < WEIGHT_KINDS; kind++) {
        stream s;
        uint32_t weight[3];

        stream_open(&s, "PoorWeightInitialization");
        for (int i = 0; i < 3; i++) {
            char name[32];

            (void)snprintf(name, sizeof name, "fc%d.weight", i);
            weight[i] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 16, 128);
        }
        stream_begin(&s);
        for (int step = 0; step < 3; step++) {
            const double deviation = kind == DEFAULT      ? 0.05
                                     : kind == EMBEDDINGS ? 1.0
                                                          : 1.6;

            for (int i = 0; i < 3 && (kind != RESUMED || step > 0); i++) {
                stream_put_normal(&s, weight[i], 0.0, i == 2 ? 0.05 : deviation);
            }
            stream_end(&s);
        }
        assert_int_equal(stream_count(&s), kind == LOUD);
        stream_close(&s);
    }
}

/* A first layer whose outputs are far larger than the inputs of the network. */
static void a_first_layer_that_is_too_large_is_found(void **state)
{
    (void)state;
    for (int loud = 0; loud < 2; loud++) {
        stream s;
        uint32_t input = 0, hidden = 0;

        stream_open(&s, "PoorWeightInitialization");
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 32, 8);
        hidden = stream_declare(&s, "relu_input_0", SONDE_ROLE_ACTIVATION, 32, 16);
        stream_begin(&s);
        for (int step = 0; step < 12; step++) {
            stream_put_normal(&s, input, 0.0, loud ? 1.5 : 20.0);
            stream_put_normal(&s, hidden, 0.0, 30.0);
            stream_end(&s);
        }
        if (loud) {
            assert_string_equal(stream_expect(&s, "relu_input_0", 1).statistic,
                                "variance_ratio");
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* --- the optimizer -------------------------------------------------------------------- */

enum { LAYERS = 5, N = 12 };

typedef struct layer {
    uint32_t w, m, v;
    float value[N], first[N], second[N];
} layer;

static void layer_step(stream *s, layer *at, float scale, double epsilon, int step)
{
    for (int i = 0; i < N; i++) {
        const float g = scale * (0.3F + stream_normal(s));

        at->first[i] = 0.9F * at->first[i] + 0.1F * g;
        at->second[i] = 0.999F * at->second[i] + 0.001F * g * g;
        at->value[i] -= (float)(0.01 * (double)at->first[i] /
                                (sqrt((double)at->second[i] /
                                      (1.0 - pow(0.999, (double)step + 1.0))) +
                                 epsilon));
    }
    stream_put(s, at->m, at->first);
    stream_put(s, at->v, at->second);
    stream_put(s, at->w, at->value);
}

static void an_epsilon_above_all_gradients_is_found(void **state)
{
    static const double epsilons[] = {1e-8, 10.0};

    (void)state;
    for (int large = 0; large < 2; large++) {
        stream s;
        layer layers[LAYERS];

        memset(layers, 0, sizeof layers);
        stream_open(&s, "OptimizerState");
        for (int i = 0; i < LAYERS; i++) {
            char name[3][48];

            (void)snprintf(name[0], sizeof name[0], "fc%d.weight", i);
            (void)snprintf(name[1], sizeof name[1], "fc%d.weight.exp_avg", i);
            (void)snprintf(name[2], sizeof name[2], "fc%d.weight.exp_avg_sq", i);
            layers[i].w = stream_declare(&s, name[0], SONDE_ROLE_WEIGHT, 3, N / 3);
            layers[i].m = stream_declare(&s, name[1], SONDE_ROLE_OPTIMIZER, 3, N / 3);
            layers[i].v = stream_declare(&s, name[2], SONDE_ROLE_OPTIMIZER, 3, N / 3);
        }
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < LAYERS; i++) {
                layer_step(&s, &layers[i], 0.02F * powf(1.8F, (float)i), epsilons[large],
                           step);
            }
            stream_end(&s);
        }
        if (large) {
            assert_string_equal(stream_expect(&s, "fc4.weight", 12).statistic,
                                "root_second_moment");
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* The weights of a small linear model change by a fifth of their size a step before they
 * have grown; those of a network do not. */
/* Weights of a small model, and small weights of any model, grow by large parts at first:
 * that is a fault if the loss rises. */
static void small_weights_may_grow(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool large = i % 2 == 1, rises = i >= 2;
        stream s;
        uint32_t weight = 0, loss = 0;
        float w = 0.05F;

        stream_open(&s, "WeightUpdateRatio");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, large ? 16 : 4);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, weight, w);
            stream_put_all(&s, loss, 4.0F * expf((rises ? 0.2F : -0.08F) * (float)step));
            w *= step >= 12 ? 1.01F : 1.22F;
            stream_end(&s);
        }
        if (rises) {
            (void)stream_expect(&s, "fc.weight", large ? 4 : 16);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* A loss that begins to fall after two steps pays for large updates; a line search that
 * goes too far once does no harm. */
static void first_steps_may_search(void **state)
{
    static const float losses[2][6] = {{0.99F, 0.95F, 0.93F, 0.3F, 0.2F, 0.1F},
                                       {1.9F, 1.84F, 1.7F, 1.4F, 6.3F, 1.2F}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        stream s;
        uint32_t weight = 0, loss = 0;
        float w[64];

        stream_open(&s, "WeightUpdateRatio");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 16);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int k = 0; k < 64; k++) {
            w[k] = 0.3F * stream_normal(&s);
        }
        for (int step = 0; step < STEPS; step++) {
            stream_put(&s, weight, w);
            stream_put_all(&s, loss, step < 6 ? losses[i][step] : 0.1F);
            for (int k = 0; k < 64; k++) {
                w[k] *= 1.0F + (step < 5 + i ? 0.25F : 0.001F) * stream_normal(&s);
            }
            stream_end(&s);
        }
        stream_expect_clean(&s);
        stream_close(&s);
    }
}

/* Weights that shrink by decay while gradients do nothing; or do something; or where the
 * optimiser has no decay. */
static void decay_alone_learns_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        stream s;
        uint32_t weight = 0, loss = 0;
        float w[64];

        stream_open(&s, "WeightUpdateRatio");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 16);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int k = 0; k < 64; k++) {
            w[k] = 0.3F * stream_normal(&s);
        }
        for (int step = 0; step < 60; step++) {
            stream_put(&s, weight, w);
            stream_put_all(&s, loss, 4.0F - 0.03F * (float)step);
            for (int k = 0; k < 64; k++) {
                w[k] *= kind == 2 ? 1.0F : 1.0F - 4e-4F;
                w[k] += (kind == 0 ? 1e-6F : 1e-4F) * stream_normal(&s);
            }
            stream_end(&s);
        }
        if (kind == 0) {
            (void)stream_expect(&s, "fc.weight", 40);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* One of ten elements grows 4096-fold, or all do. */
static void a_flipped_bit_in_a_small_tensor_is_found(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        stream s;
        uint32_t id = 0;
        float w[10];

        stream_open(&s, "UpdateSpike");
        id = stream_declare(&s, "out.weight", SONDE_ROLE_WEIGHT, 1, 10);
        stream_begin(&s);
        for (int i = 0; i < 10; i++) {
            w[i] = 0.3F * stream_normal(&s);
        }
        for (int step = 0; step < 20; step++) {
            for (int i = 0; i < 10; i++) {
                w[i] += 0.001F * stream_normal(&s);
                w[i] *= step == 12 && (all || i == 4) ? 4096.0F : 1.0F;
            }
            stream_put(&s, id, w);
            stream_end(&s);
        }
        if (all) {
            stream_expect_clean(&s);
        } else {
            (void)stream_expect(&s, "out.weight", 12);
        }
        stream_close(&s);
    }
}

/* --- evaluation ----------------------------------------------------------------------- */

/* The training loss falls; evaluations of four batches rise a little, with or without
 * one batch that has a large loss. */
static void a_batch_of_an_evaluation_is_no_overfitting(void **state)
{
    (void)state;
    for (int rises = 0; rises < 2; rises++) {
        stream s;
        uint32_t loss = 0;

        stream_open(&s, "Overfit");
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int round = 0; round < 7; round++) {
            for (int step = 0; step < 10; step++) {
                s.at.mode = SONDE_MODE_TRAIN;
                stream_put_all(&s, loss, 0.1F / (float)(round + 1));
                stream_end(&s);
            }
            for (int batch = 0; batch < 4; batch++) {
                const float more = round < 4 ? 0.0F : 0.03F * (float)(round - 3);

                s.at.mode = SONDE_MODE_EVAL;
                stream_put_all(&s, loss,
                               0.02F + (rises        ? more
                                        : batch == 2 ? 4.0F * more
                                                     : 0.0F));
                stream_end(&s);
            }
        }
        if (rises) {
            assert_int_equal(stream_count(&s), 1);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* --- what is meant -------------------------------------------------------------------- */

/* A loss of any sign that rises and stays: that of a policy; one that is never below 0. */
static void a_loss_of_any_sign_may_rise(void **state)
{
    (void)state;
    for (int any = 0; any < 2; any++) {
        stream s;
        uint32_t loss = 0;

        stream_open(&s, "LossNotDecreasing");
        loss = stream_declare(&s, "policy_loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < 200; step++) {
            stream_put_all(&s, loss,
                           (any ? -0.02F : 0.1F) + (step < 50 ? 0.0F : 0.05F) +
                               0.005F * stream_normal(&s));
            stream_end(&s);
        }
        assert_int_equal(stream_expect(&s, "policy_loss", 149).severity,
                         any ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_WARNING);
        stream_close(&s);
    }
}

/* Frozen layers, each with an adapter that is trained; or one of them alone. */
static void layers_with_adapters_are_frozen_on_purpose(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        stream s;
        uint32_t base[4], adapter[4][2], gradient[4][2];

        stream_open(&s, "FrozenParameter");
        for (int i = 0; i < 4; i++) {
            char name[64];

            (void)snprintf(name, sizeof name, "fc%d.base.weight", i);
            base[i] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 4, 4);
            for (int k = 0; k < 2; k++) {
                (void)snprintf(name, sizeof name, "fc%d.lora%d.weight", i, k);
                adapter[i][k] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 4, 4);
                (void)snprintf(name, sizeof name, "gradient/fc%d.lora%d.weight", i, k);
                gradient[i][k] = stream_declare(&s, name, SONDE_ROLE_GRADIENT, 4, 4);
            }
        }
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < 4; i++) {
                if (!alone || i == 2) {
                    stream_put_all(&s, base[i], 0.5F);
                }
                for (int k = 0; k < 2; k++) {
                    stream_put_normal(&s, gradient[i][k], 0.1, 0.1);
                    stream_put_all(&s, adapter[i][k], 1.0F + 0.01F * (float)step);
                }
            }
            stream_end(&s);
        }
        assert_int_equal(stream_count(&s), 1);
        assert_int_equal(sonde_rules_findings(s.rules, &(size_t){0})->severity,
                         alone ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE);
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_over_all_pairs_is_found),
        cmocka_unit_test(weights_that_are_too_large_at_first_are_found),
        cmocka_unit_test(a_first_layer_that_is_too_large_is_found),
        cmocka_unit_test(an_epsilon_above_all_gradients_is_found),
        cmocka_unit_test(small_weights_may_grow),
        cmocka_unit_test(first_steps_may_search),
        cmocka_unit_test(decay_alone_learns_nothing),
        cmocka_unit_test(a_flipped_bit_in_a_small_tensor_is_found),
        cmocka_unit_test(a_batch_of_an_evaluation_is_no_overfitting),
        cmocka_unit_test(a_loss_of_any_sign_may_rise),
        cmocka_unit_test(layers_with_adapters_are_frozen_on_purpose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
