/*
 * WeightJump, LossSign and TrainEvalMode; batches that are not shuffled or come twice; targets
 * of a regression that inputs say nothing about.
 */
#include "rules/stream.h"
#include "base/macros.h"

enum { STEPS = 80 };

static void weights_of_another_time_are_found(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t weight[3];
        float w = 1.0F;

        stream_open(&s, "WeightJump");
        for (int i = 0; i < 3; i++) {
            char name[64];

            (void)snprintf(name, sizeof name, "fc%d.weight", i);
            weight[i] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 4, 4);
        }
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            /* a rate that restarts at step 40 */
            w -= 0.01F * (1.0F - (float)(step % 40) / 40.0F);
            if (bad && step == 60) {
                w = 1.0F;
            }
            for (int i = 0; i < 3; i++) {
                stream_put_all(&s, weight[i], w * (float)(i + 1));
            }
            stream_end(&s);
        }
        if (bad) {
            assert_int_equal(stream_count(&s), 1);
            assert_int_equal(sonde_rules_findings(s.rules, &(size_t){0})->step, 60);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* --- the sign of the loss ------------------------------------------------------------- */

static void run_losses(stream *s, float (*curve)(int step))
{
    uint32_t loss = 0;

    stream_open(s, "LossSign");
    loss = stream_declare(s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_all(s, loss, curve(step));
        stream_end(s);
    }
}

static float runaway(int step)
{
    return -expf(0.08F * (float)step);
}

static float likelihood(int step)
{
    return 2.0F - 6.0F * (1.0F - expf(-0.05F * (float)step));
}

static float density(int step)
{
    return -1.0F - 4.0F * (1.0F - expf(-0.05F * (float)step));
}

static void a_loss_of_the_wrong_sign_is_found(void **state)
{
    stream s;

    (void)state;
    run_losses(&s, runaway);
    assert_int_equal(stream_expect(&s, "loss", 39).severity, SONDE_SEVERITY_ERROR);
    stream_close(&s);
    run_losses(&s, likelihood);
    stream_expect_clean(&s);
    stream_close(&s);
    run_losses(&s, density);
    sonde_rules_finish(s.rules);
    assert_int_equal(stream_found(&s, "loss")->severity, SONDE_SEVERITY_NOTE);
    stream_close(&s);
}

/* --- training and evaluation mode ----------------------------------------------------- */

/* Ten steps of training, four of evaluation, ten of training. */
static void run_modes(stream *s, bool on_in_evaluation, bool off_afterwards)
{
    uint32_t input = 0, output = 0, mean = 0;

    stream_open(s, "TrainEvalMode");
    s->op = "Dropout";
    output = stream_declare(s, "drop_output_0", SONDE_ROLE_OUTPUT, 2, 2);
    s->op = NULL;
    input = stream_declare(s, "drop_input_0", SONDE_ROLE_INPUT, 2, 2);
    mean = stream_declare(s, "bn.running_mean", SONDE_ROLE_BUFFER, 2, 0);
    stream_begin(s);
    for (int step = 0; step < 24; step++) {
        const bool evaluates = step >= 10 && step < 14;
        const bool on = evaluates ? on_in_evaluation : step < 10 || !off_afterwards;
        const float in[4] = {1.0F, 2.0F, 3.0F, 4.0F + (float)step};
        const float dropped[4] = {2.0F, 0.0F, 6.0F, 0.0F};

        s->at.mode = evaluates ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;
        s->at.mode_step = evaluates ? step - 10 : step < 10 ? step : step - 4;
        stream_put(s, input, in);
        stream_put(s, output, on ? dropped : in);
        stream_put_all(s, mean, on && !evaluates ? 0.1F * (float)step : 0.9F);
        stream_end(s);
    }
}

static void modes_that_are_mixed_up_are_found(void **state)
{
    stream s;

    (void)state;
    run_modes(&s, false, false);
    stream_expect_clean(&s);
    stream_close(&s);
    run_modes(&s, true, false);
    assert_int_equal(stream_expect(&s, "drop_output_0", 12).severity,
                     SONDE_SEVERITY_ERROR);
    stream_close(&s);
    run_modes(&s, false, true);
    assert_int_equal(stream_count(&s), 2); /* dropout, and the buffer */
    assert_non_null(stream_found(&s, "bn.running_mean"));
    stream_close(&s);
}

/* --- data --------------------------------------------------------------------------------- */

static void batches_of_one_class_are_found(void **state)
{
    (void)state;
    for (int sorted = 0; sorted < 2; sorted++) {
        stream s;
        uint32_t labels = 0;

        stream_open(&s, "ClassImbalance");
        labels = stream_declare(&s, "labels", SONDE_ROLE_INPUT, 16, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            float y[16];

            for (int i = 0; i < 16; i++) {
                y[i] = (float)(sorted ? step / 5 % 4 : i % 4);
            }
            stream_put(&s, labels, y);
            stream_end(&s);
        }
        if (sorted) {
            assert_string_equal(stream_expect(&s, "", 29).statistic, "entropy");
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* The squared error of a network that has learnt the mean, or that still learns. */
static void shuffled_targets_of_a_regression_are_found(void **state)
{
    (void)state;
    for (int learns = 0; learns < 2; learns++) {
        stream s;
        uint32_t loss = 0, targets = 0;

        stream_open(&s, "LabelNoise");
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        targets = stream_declare(&s, "targets", SONDE_ROLE_INPUT, 64, 0);
        stream_begin(&s);
        for (int step = 0; step < 300; step++) {
            const float fall = learns ? 0.5F * (float)step / 300.0F : 0.0F;

            stream_put_normal(&s, targets, 3.0, 2.0);
            stream_put_all(&s, loss, 4.0F - 4.0F * fall + 0.4F * stream_normal(&s));
            stream_end(&s);
        }
        if (learns) {
            stream_expect_clean(&s);
        } else {
            assert_int_equal(stream_count(&s), 1);
        }
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_another_time_are_found),
        cmocka_unit_test(a_loss_of_the_wrong_sign_is_found),
        cmocka_unit_test(modes_that_are_mixed_up_are_found),
        cmocka_unit_test(batches_of_one_class_are_found),
        cmocka_unit_test(shuffled_targets_of_a_regression_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
