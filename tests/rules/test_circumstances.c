/*
 * What healthy programs do, and the faults that look like it: each rule is silent, or says
 * a note, about the one, and speaks about the other.
 */
#include "rules/stream.h"

enum { N = 16, STEPS = 60 };

/* The highest severity of all findings, at the end; -1: there is none. */
static int loudest(stream *s)
{
    size_t count = 0;
    const sonde_finding *all = NULL;
    int most = -1;

    sonde_rules_finish(s->rules);
    all = sonde_rules_findings(s->rules, &count);
    for (size_t i = 0; i < count; i++) {
        most = (int)all[i].severity > most ? (int)all[i].severity : most;
    }
    stream_close(s);
    return most;
}

/* A rollout is used for four updates; or a batch is repeated once, later. */
static void batches_may_be_used_again(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t input = 0;

        stream_open(&s, "DuplicateBatch");
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const int batch = fault ? step - (step == 20) : step / 4;

            stream_put_all(&s, input, 1.0F + (float)batch);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

/* With labels: counts, whose likelihood falls below 0, or a cross-entropy of wrong sign. */
static void losses_may_fall_below_zero(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t loss = 0;

        stream_open(&s, "LossSign");
        (void)stream_declare(&s, "labels", SONDE_ROLE_INPUT, 8, 0);
        s.op = fault ? "CrossEntropyLoss" : NULL;
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, loss,
                           fault ? -2.3F : -0.7F + 1.7F * expf(-0.2F * (float)step));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : -1);
    }
}

static void scales_begin_at_one(void **state)
{
    static const char *const names[] = {"norm1.weight", "layer.gamma", "fc.weight"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        stream s;
        uint32_t weight = 0;

        stream_open_losing(&s, "SymmetricUnits");
        weight = stream_declare(&s, names[i], SONDE_ROLE_WEIGHT, 8, 16);
        stream_begin(&s);
        for (int step = 0; step < 10; step++) {
            stream_put_normal(&s, weight, 1.0, 1e-3 * step);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), i == 2 ? SONDE_SEVERITY_ERROR : -1);
    }
}

/* Rows that rise from 0 by the sign of a gradient meet, and part; or stay together. */
static void rows_that_meet_by_chance_part(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t weight = 0;
        float w[32 * N] = {0};

        stream_open_losing(&s, "SymmetricUnits");
        weight = stream_declare(&s, "head.weight", SONDE_ROLE_WEIGHT, 32, N);
        stream_begin(&s);
        for (int step = 0; step < 10; step++) {
            for (int i = 0; i < 32 * N; i++) {
                const bool parts = !fault && step > 1;

                w[i] += 1e-3F * (parts                ? stream_normal(&s)
                                 : i / N % 2 == i % 2 ? 1.0F
                                                      : -1.0F);
            }
            stream_put(&s, weight, w);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : -1);
    }
}

enum { RISEN_RATE, PRUNED, LOADED, JUMPS };

static void jumps_are_judged_by_the_loss(void **state)
{
    static const int expected[JUMPS] = {SONDE_SEVERITY_NOTE, -1, SONDE_SEVERITY_ERROR};

    (void)state;
    for (int kind = 0; kind < JUMPS; kind++) {
        stream s;
        uint32_t weight = 0, loss = 0;
        float w[N * N], pruned[N * N];

        stream_open(&s, "WeightJump");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, N, N);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int i = 0; i < N * N; i++) {
            w[i] = stream_normal(&s);
        }
        for (int step = 0; step < STEPS; step++) {
            const float by = kind != PRUNED && step >= 30 ? 0.3F : 1e-3F;

            for (int i = 0; i < N * N; i++) {
                w[i] += by * stream_normal(&s);
                pruned[i] = kind == PRUNED && step >= 30 && i % 2 ? 0.001F : w[i];
            }
            stream_put(&s, weight, pruned);
            stream_put_all(&s, loss,
                           kind != RISEN_RATE && step > 30
                               ? 4.0F
                               : 2.0F * expf(-0.01F * (float)step));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), expected[kind]);
    }
}

/* The weights of a run's beginning, a tenth as large, are loaded over trained ones. */
static void small_weights_of_another_time_are_no_pruning(void **state)
{
    stream s;
    uint32_t weight = 0, loss = 0;
    float w[N * N];

    (void)state;
    stream_open(&s, "WeightJump");
    weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, N, N);
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int i = 0; i < N * N; i++) {
        w[i] = stream_normal(&s);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N * N; i++) {
            w[i] =
                step == 30 ? 0.1F * stream_normal(&s) : w[i] + 1e-3F * stream_normal(&s);
        }
        stream_put(&s, weight, w);
        stream_put_all(&s, loss, step > 29 ? 4.0F : 2.0F * expf(-0.01F * (float)step));
        stream_end(&s);
    }
    assert_int_equal(loudest(&s), SONDE_SEVERITY_ERROR);
}

/* The change of one element, whose tensor has a norm of 1. */
static double change_at(int kind, int step)
{
    return kind == 0 ? pow(0.5, step) : step < 20 ? 1e-2 : 1e-9;
}

static void training_may_end(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t weight = 0;
        float w[N] = {1.0F};
        int sign = 1;

        stream_open(&s, "WeightUpdateRatio");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 1, N);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            w[1] = (float)(sign * change_at(fault, step));
            sign = -sign;
            stream_put(&s, weight, w);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s),
                         fault ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE);
    }
}

/* A small weight whose first updates are as large as it is, and then fall. */
static int first_updates(const char *state, double slope)
{
    stream s;
    uint32_t weight = 0, loss = 0;
    float w[N * N];

    stream_open(&s, "WeightUpdateRatio");
    weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, N, N);
    (void)stream_declare(&s, state, SONDE_ROLE_OPTIMIZER, N, N);
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int i = 0; i < N * N; i++) {
        w[i] = 0.1F * stream_normal(&s);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N * N; i++) {
            w[i] += (float)(0.08 * pow(0.8, step)) * (w[i] > 0.0F ? 1.0F : -1.0F);
        }
        stream_put(&s, weight, w);
        stream_put_all(&s, loss, (float)(2.0 * exp(slope * step)));
        stream_end(&s);
    }
    return loudest(&s);
}

static void the_optimiser_explains_its_first_updates(void **state)
{
    (void)state;
    assert_int_equal(first_updates("fc.weight.exp_avg_sq", -0.005), -1);
    assert_int_equal(first_updates("fc.weight.sum", -0.005), -1);
    assert_int_equal(first_updates("fc.weight.momentum_buffer", -0.005),
                     SONDE_SEVERITY_NOTE);
    assert_int_equal(first_updates("fc.weight.momentum_buffer", 0.0),
                     SONDE_SEVERITY_ERROR);
    assert_int_equal(first_updates("fc.weight.exp_avg_sq", 0.2), SONDE_SEVERITY_ERROR);
}

static void a_network_may_normalise_its_input(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t input = 0, output = 0;

        stream_open_losing(&s, "InputRange");
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        output = stream_declare(&s, "first_output_0", SONDE_ROLE_OUTPUT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < 10; step++) {
            stream_put_normal(&s, input, 200.0, 80.0);
            stream_put_normal(&s, output, 0.0, fault ? 90.0 : 1.0);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s),
                         fault ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE);
    }
}

static void the_last_sigmoid_may_be_sure(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t output = 0, loss = 0;

        stream_open(&s, "SaturatedActivation");
        s.op = "Sigmoid";
        output = stream_declare(&s, "last_output_0", SONDE_ROLE_OUTPUT, N, 1);
        s.op = NULL;
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const float off = fault ? 1e-4F : 0.5F * expf(-0.3F * (float)step);
            float a[N];

            for (int i = 0; i < N; i++) {
                a[i] = i % 2 ? off : 1.0F - off;
            }
            stream_put(&s, output, a);
            stream_put_all(&s, loss, fault ? 2.0F : -logf(1.0F - off));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

/* A temperature that is lowered until the evaluation, or statistics. */
static void buffers_that_are_no_statistics_are_a_note(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t buffer = 0;

        stream_open(&s, "TrainEvalMode");
        buffer = stream_declare(&s, fault ? "bn.running_var" : "temperature",
                                SONDE_ROLE_BUFFER, 2, 0);
        stream_begin(&s);
        for (int step = 0; step < 30; step++) {
            s.at.mode = step == 10 ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;
            stream_put_all(&s, buffer, 2.0F - 0.1F * (float)(step < 10 ? step : 10));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

/* An average of a trained part, or a frozen layer that changes. */
static void copies_of_a_part_follow(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t trained[2], other = 0;

        stream_open(&s, "UnfrozenParameter");
        trained[0] = stream_declare(&s, "net.fc1.weight", SONDE_ROLE_WEIGHT, 4, 4);
        trained[1] = stream_declare(&s, "head.weight", SONDE_ROLE_WEIGHT, 4, 4);
        (void)stream_declare(&s, "gradient/net.fc1.weight", SONDE_ROLE_GRADIENT, 4, 4);
        (void)stream_declare(&s, "gradient/head.weight", SONDE_ROLE_GRADIENT, 4, 4);
        other = stream_declare(&s, fault ? "stem.conv.weight" : "target.fc1.weight",
                               SONDE_ROLE_WEIGHT, 4, 4);
        stream_begin(&s);
        for (int step = 0; step < 10; step++) {
            stream_put_normal(&s, trained[0], 0.0, 1.0);
            stream_put_normal(&s, trained[1], 0.0, 1.0);
            stream_put_normal(&s, other, 0.0, 1.0);
            stream_end(&s);
        }
        /* no optimiser does this without a gradient: the program does */
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_NOTE : -1);
    }
}

/* Parameters rest because training has converged, or though gradients are as before. */
static void converged_parameters_rest(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t weight = 0, gradient = 0;

        stream_open(&s, "FrozenParameter");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 4);
        gradient = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, 4, 4);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const bool rests = step >= 20;

            stream_put_all(&s, weight, 1.0F + 0.01F * (float)(rests ? 20 : step));
            stream_put_normal(&s, gradient, 0.0, rests && !fault ? 1e-6 : 1.0);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : -1);
    }
}

/* A scaler skips an update whose gradients overflow; or the update is not skipped. */
static void an_update_may_be_skipped(void **state)
{
    static const char *const rules[] = {"NonFinite", "ExplodingTensor"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool fault = i >= 2;
        stream s;
        uint32_t weight = 0, gradient = 0;

        stream_open(&s, rules[i % 2]);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 4);
        gradient = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, 4, 4);
        stream_begin(&s);
        for (int step = 0; step < 6; step++) {
            stream_put_all(&s, gradient, step == 3 ? INFINITY : 1.0F);
            stream_put_all(&s, weight, fault && step >= 3 ? NAN : 1.0F);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

/* A divergence whose weight grows, while the total falls; or the only loss rises. */
static void a_part_of_the_loss_may_rise(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t part = 0, total = 0;

        stream_open(&s, "LossNotDecreasing:window=10");
        part = stream_declare(&s, fault ? "loss" : "kl_loss", SONDE_ROLE_LOSS, 0, 0);
        total = fault ? part : stream_declare(&s, "total_loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, part, 1.0F + 0.02F * (float)step);
            if (!fault) {
                stream_put_all(&s, total, 9.0F - 0.05F * (float)step);
            }
            stream_end(&s);
        }
        assert_int_equal(loudest(&s),
                         fault ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE);
    }
}

/* The scale of random weights is one value beside their mean; or the only weight is. */
static void scales_of_random_weights_are_constant(void **state)
{
    static const char *const rules[] = {"SymmetricUnits", "PoorWeightInitialization"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool fault = i / 2 == 1, units = i % 2 == 0;
        stream s;
        uint32_t mean = 0, scale = 0;

        stream_open_losing(&s, rules[i % 2]);
        mean = stream_declare(&s, "fc.weight_mu", SONDE_ROLE_WEIGHT, 32, N);
        scale = stream_declare(&s, "fc.weight_rho", SONDE_ROLE_WEIGHT, 32, N);
        stream_begin(&s);
        for (int step = 0; step < 10; step++) {
            if (units && fault) {
                stream_put_all(&s, mean, -5.0F);
            } else {
                stream_put_normal(&s, mean, 0.0, fault ? 3.0 : 0.1);
            }
            stream_put_all(&s, scale, -5.0F);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), !fault  ? -1
                                      : units ? SONDE_SEVERITY_ERROR
                                              : SONDE_SEVERITY_WARNING);
    }
}

/* A branch that begins at 0 wakes below the other gradients; or a gradient leaves them. */
static void branches_wake(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t branch = 0, other = 0;

        stream_open_losing(&s, "GradientSpike");
        branch = stream_declare(&s, "gradient/branch.weight", SONDE_ROLE_GRADIENT, N, N);
        other = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, N, N);
        stream_begin(&s);
        for (int step = 0; step < 30; step++) {
            stream_put_normal(&s, branch, 0.0, step < 10 ? 1e-10 : fault ? 10.0 : 0.01);
            stream_put_normal(&s, other, 0.0, 0.05);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_may_be_used_again),
        cmocka_unit_test(losses_may_fall_below_zero),
        cmocka_unit_test(scales_begin_at_one),
        cmocka_unit_test(rows_that_meet_by_chance_part),
        cmocka_unit_test(jumps_are_judged_by_the_loss),
        cmocka_unit_test(small_weights_of_another_time_are_no_pruning),
        cmocka_unit_test(training_may_end),
        cmocka_unit_test(the_optimiser_explains_its_first_updates),
        cmocka_unit_test(a_network_may_normalise_its_input),
        cmocka_unit_test(the_last_sigmoid_may_be_sure),
        cmocka_unit_test(buffers_that_are_no_statistics_are_a_note),
        cmocka_unit_test(copies_of_a_part_follow),
        cmocka_unit_test(converged_parameters_rest),
        cmocka_unit_test(an_update_may_be_skipped),
        cmocka_unit_test(a_part_of_the_loss_may_rise),
        cmocka_unit_test(scales_of_random_weights_are_constant),
        cmocka_unit_test(branches_wake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
