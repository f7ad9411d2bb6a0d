/*
 * The rules that look at losses, on curves by hand.
 */
#include "rules/stream.h"
#include "base/macros.h"

static void put_loss(stream *s, uint32_t loss, sonde_mode mode, double value)
{
    s->at.mode = mode;
    stream_put_all(s, loss, (float)value);
    stream_end(s);
}

/* Opened, with its only tensor. */
static uint32_t open_loss(stream *s, const char *rule)
{
    uint32_t loss = 0;

    stream_open(s, rule);
    loss = stream_declare(s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(s);
    return loss;
}

static void the_losses_of_the_old_test_fire_at_12(void **state)
{
    static const double losses[] = {0.3, 0.33, 0.31, 0.30, 0.28};
    stream s;
    uint32_t loss = 0;

    (void)state;
    loss = open_loss(&s, "LossNotDecreasing:window=0");
    for (int i = 0; i < 5; i++) {
        s.at.global_step = 4 * i;
        put_loss(&s, loss, SONDE_MODE_TRAIN, losses[i]);
    }
    (void)stream_expect(&s, "loss_output_0", 12);
    stream_close(&s);
}

/* Saved every 3 steps, 21 is compared with 9, and the next comparison is at 33. */
static void comparisons_are_num_steps_apart(void **state)
{
    stream s;
    uint32_t loss = 0;

    (void)state;
    loss = open_loss(&s, "LossNotDecreasing:window=0");
    for (int step = 0; step <= 60; step += 3) {
        const double value =
            step == 24 || step == 27 || step == 30 ? 9.0 : 1.0 - 0.01 * step;

        s.at.global_step = step;
        put_loss(&s, loss, SONDE_MODE_TRAIN, value);
    }
    sonde_rules_finish(s.rules);
    assert_int_equal(stream_count(&s), 1); /* at 12 + 12: 24 with 12 */
    assert_int_equal(stream_found(&s, "loss_output_0") != NULL, 1);
    stream_close(&s);
}

/* 200 steps at one number; and what smdebug's parameters say of it. */
static void a_flat_loss_is_found(void **state)
{
    static const struct {
        const char *rule;
        int64_t step;
    } cases[] = {{"LossNotDecreasing", 199},
                 {"LossNotDecreasing:num_steps=10,diff_percent=0.1", 10},
                 {"LossNotDecreasing:num_steps=20,window=50", 199},
                 {"LossNotDecreasing:smdebug=true,num_steps=None", 10}};
    stream s;

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        const uint32_t loss = open_loss(&s, cases[i].rule);

        for (int step = 0; step < 200; step++) {
            put_loss(&s, loss, SONDE_MODE_TRAIN, 2.3);
        }
        assert_int_equal(stream_expect(&s, "loss_output_0", cases[i].step).severity,
                         SONDE_SEVERITY_WARNING);
        stream_close(&s);
    }
}

/* The mode is that of the parameter. */
static void losses_of_the_asked_mode_are_compared(void **state)
{
    stream s;
    sonde_rule_account account;

    (void)state;
    for (int i = 0; i < 2; i++) {
        const uint32_t loss =
            open_loss(&s, i == 0 ? "LossNotDecreasing:num_steps=10,mode=modes.EVAL"
                                 : "LossNotDecreasing:num_steps=10,mode=PREDICT");

        for (int step = 0; step < 40; step++) {
            put_loss(&s, loss, step % 2 == 0 ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL,
                     step % 2 == 0 ? 2.0 - 0.02 * step : 1.0);
        }
        sonde_rules_finish(s.rules);
        assert_int_equal(stream_count(&s), i == 0 ? 1 : 0);
        sonde_rules_account(s.rules, 0, &account);
        assert_int_equal(account.judged, i == 0);
        stream_close(&s);
    }
}

/* noise: relative. */
static void run_curve(stream *s, const char *rule, double (*curve)(int step),
                      double noise, int steps)
{
    const uint32_t loss = open_loss(s, rule);

    for (int step = 0; step < steps; step++) {
        const double factor = 1.0 + noise * (double)stream_normal(s);

        put_loss(s, loss, SONDE_MODE_TRAIN, curve(step) * fmax(factor, 0.05));
    }
}

static double healthy(int step)
{
    return 0.3 + 2.0 * exp(-step / 60.0);
}

static double spike_that_recovers(int step)
{
    return step >= 200 && step < 208 ? 12.0 : healthy(step);
}

static double rises(int step)
{
    return step < 200 ? healthy(step) : 0.4 + 0.004 * (step - 200);
}

static double jumps(int step)
{
    return step < 3 ? 12.0 : step < 200 ? healthy(step) : 8.0;
}

static void healthy_curves_are_fine(void **state)
{
    static const char *const rules[] = {"LossNotDecreasing", "LossSpike"};
    double (*const curves[])(int) = {healthy, spike_that_recovers};
    stream s;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        run_curve(&s, rules[i / 2], curves[i % 2], 0.2, 600);
        stream_expect_clean(&s);
        stream_close(&s);
    }
}

static void curves_that_rise_are_found(void **state)
{
    const sonde_finding *found = NULL;
    stream s;

    (void)state;
    run_curve(&s, "LossNotDecreasing", rises, 0.2, 600);
    found = stream_found(&s, "loss_output_0");
    assert_true(found != NULL && found->step > 200 && found->step < 500);
    stream_close(&s);
    run_curve(&s, "LossSpike", jumps, 0.2, 600);
    (void)stream_expect(&s, "loss_output_0", 213); /* 14 of 15 are enough */
    stream_close(&s);
}

/* A loss of a small batch late in training: most are next to nothing, some are not. */
static void losses_that_scatter_are_no_spike(void **state)
{
    stream s;
    const uint32_t loss = open_loss(&s, "LossSpike");

    (void)state;
    for (int step = 0; step < 50000; step++) {
        put_loss(&s, loss, SONDE_MODE_TRAIN, 0.01 * exp(2.0 * (double)stream_normal(&s)));
    }
    stream_expect_clean(&s);
    stream_close(&s);
}

static void scattered_losses_that_jump_are_found(void **state)
{
    const sonde_finding *found = NULL;
    stream s;
    const uint32_t loss = open_loss(&s, "LossSpike");

    (void)state;
    for (int step = 0; step < 1000; step++) {
        put_loss(&s, loss, SONDE_MODE_TRAIN,
                 (step < 900 ? 0.01 : 2.0) * exp((double)stream_normal(&s)));
    }
    found = stream_found(&s, "loss_output_0");
    assert_true(found != NULL && found->step >= 900 && found->step < 920);
    stream_close(&s);
}

/* Rounds of 10 training and 3 evaluation steps. */
static void run_rounds(stream *s, const char *rule, const double *train,
                       const double *eval, int rounds)
{
    const uint32_t loss = open_loss(s, rule);

    for (int i = 0; i < rounds; i++) {
        for (int j = 0; j < 13; j++) {
            put_loss(s, loss, j < 10 ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL,
                     j < 10 ? train[i] + 0.01 * j : eval[i]);
        }
    }
}

static void overfitting_is_found(void **state)
{
    static const double train[] = {2, 1, 0.5, 0.3, 0.2, 0.1, 0.08, 0.06};
    static const double good[] = {2, 1.2, 0.8, 0.7, 0.69, 0.7, 0.68, 0.69};
    static const double bad[] = {2, 1.2, 0.8, 0.9, 1.0, 1.2, 1.3, 1.4};
    sonde_finding found;
    stream s;

    (void)state;
    run_rounds(&s, "Overfit", train, good, 8);
    stream_expect_clean(&s);
    stream_close(&s);
    run_rounds(&s, "Overfit", train, bad, 8);
    found =
        stream_expect(&s, "loss_output_0", 6 * 13); /* when the next training begins */
    assert_non_null(strstr(found.message, "At evaluation 6 the evaluation loss is 1.2 "));
    assert_non_null(strstr(found.message, "at evaluation 4 they were about 0.9 and"));
    stream_close(&s);
    run_rounds(&s, "Overfit:rising=0,patience=2", train, good, 8);
    (void)stream_expect(&s, "loss_output_0", 3 * 13);
    stream_close(&s);
    run_rounds(&s, "Overfit:ratio_threshold=0.1", train, good, 8); /* as smdebug's */
    (void)stream_expect(&s, "loss_output_0", 2 * 13);
    stream_close(&s);
    run_rounds(&s, "Overfit:ratio_threshold=0.1,rising=0.05", train, good, 8);
    stream_expect_clean(&s);
    stream_close(&s);
}

/* Small test sets swing while a network learns: these are of 200 samples. */
static void evaluations_that_swing_are_well(void **state)
{
    static const double train[] = {1.26, 0.52, 0.43, 0.38, 0.35, 0.33,
                                   0.32, 0.29, 0.28, 0.26, 0.24, 0.23};
    static const double evals[][12] = {
        {0.589, 0.436, 0.392, 0.410, 0.419, 0.351, 0.328, 0.343, 0.337, 0.305, 0.342,
         0.299},
        {0.609, 0.459, 0.399, 0.464, 0.356, 0.357, 0.343, 0.329, 0.311, 0.303, 0.322,
         0.328},
        /* one that stands out, and a plateau */
        {0.6, 0.5, 0.45, 0.44, 0.43, 0.43, 0.48, 0.43, 0.42, 0.43, 0.47, 0.42},
        {0.6, 0.5, 0.5, 0.42, 0.5, 0.41, 0.49, 0.5, 0.42, 0.5, 0.49, 0.5}};
    stream s;

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(evals); i++) {
        run_rounds(&s, "Overfit", train, evals[i], 12);
        stream_expect_clean(&s);
        stream_close(&s);
    }
}

/* Both losses rise: what is learnt is lost, not learnt by heart. */
static void training_that_gets_worse_is_no_overfitting(void **state)
{
    static const double train[] = {2, 1, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9};
    static const double eval[] = {2, 1.2, 0.8, 0.9, 1.0, 1.2, 1.3, 1.4};
    stream s;

    (void)state;
    run_rounds(&s, "Overfit", train, eval, 8);
    stream_expect_clean(&s);
    stream_close(&s);
}

static void training_without_gain_is_found(void **state)
{
    double train[20], eval[20];
    stream s;

    (void)state;
    for (int i = 0; i < 20; i++) {
        train[i] = 1.0 / (1 + i);
        eval[i] = 1.2 - 0.02 * i;
    }
    run_rounds(&s, "Overtraining", train, eval, 20);
    stream_expect_clean(&s);
    stream_close(&s);
    for (int i = 0; i < 20; i++) {
        eval[i] = i < 4 ? 1.2 - 0.1 * i : 1.0;
        train[i] = 1.0 - 0.03 * i;
    }
    run_rounds(&s, "Overtraining", train, eval, 20);
    (void)stream_expect(&s, "loss_output_0", 14 * 13);
    stream_close(&s);
}

/* The evaluation's best is that of round 3, training's that of round 0. */
static void patience_is_the_given_one(void **state)
{
    static const struct {
        const char *rule;
        int round; /* that finds it */
    } cases[] = {
        {"Overtraining", 8}, /* both */
        {"Overtraining:patience_train=7", 10},
        {"Overtraining:patience_train=18", 13}, /* the evaluation alone */
        {"Overtraining:patience_train=18,patience_validation=12", 15},
        {"Overtraining:patience_train=18,delta=0.25", 13},
    };
    double train[20], eval[20];

    (void)state;
    for (int i = 0; i < 20; i++) {
        eval[i] = i < 4 ? 1.2 - 0.1 * i : 1.0;
        train[i] = 1.0;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        stream s;

        run_rounds(&s, cases[i].rule, train, eval, 20);
        (void)stream_expect(&s, "loss_output_0", (cases[i].round + 1) * 13);
        stream_close(&s);
    }
}

static void without_evaluation_it_does_not_judge(void **state)
{
    sonde_rule_account account;
    stream s;

    (void)state;
    run_curve(&s, "Overfit", healthy, 0.1, 50);
    sonde_rules_finish(s.rules);
    sonde_rules_account(s.rules, 0, &account);
    assert_false(account.judged);
    assert_string_equal(account.lacked,
                        "no losses of both training and evaluation were recorded");
    stream_close(&s);
}

static void a_few_evaluations_are_not_enough(void **state)
{
    static const char *const rules[] = {"Overfit", "Overtraining"};
    static const double train[] = {2, 1, 0.5, 0.3, 0.2, 0.1};
    static const double eval[] = {2, 1.2, 0.8, 0.7, 0.69, 0.68};
    sonde_rule_account account;

    (void)state;
    for (int i = 0; i < 4; i++) {
        const int least = i / 2 == 0 ? 4 : 6, rounds = least - i % 2;
        stream s;

        run_rounds(&s, rules[i / 2], train, eval, rounds);
        sonde_rules_finish(s.rules);
        sonde_rules_account(s.rules, 0, &account);
        assert_int_equal(account.judged, rounds == least);
        if (rounds < least) {
            assert_string_equal(
                account.lacked,
                least == 4 ? "3 of the 4 evaluations between training that it needs"
                           : "5 of the 6 evaluations between training that it needs");
        }
        stream_close(&s);
    }
}

static void spikes_of_gradients_are_found(void **state)
{
    static const double factors[] = {1.0, 20.0, 5000.0, 5000.0}; /* the last one stays */

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        stream s;
        uint32_t gradient = 0;

        stream_open_losing(&s, "GradientSpike");
        gradient = stream_declare(&s, "Gradient___w", SONDE_ROLE_GRADIENT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < 60; step++) {
            const bool high = step == 40 || (step > 40 && i == 3);
            const double factor = high ? factors[i] : 1.0;

            stream_put_normal(&s, gradient, 0.0, factor * (0.1 + 1.0 / (1 + step)));
            stream_end(&s);
        }
        if (i >= 2) {
            const sonde_finding found =
                stream_expect(&s, "Gradient___w", i == 2 ? 41 : 43);

            assert_int_equal(found.severity,
                             i == 2 ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

static void gradients_that_scatter_are_no_spike(void **state)
{
    stream s;
    uint32_t gradient = 0;

    (void)state;
    stream_open(&s, "GradientSpike");
    gradient = stream_declare(&s, "Gradient___w", SONDE_ROLE_GRADIENT, 8, 8);
    stream_begin(&s);
    for (int step = 0; step < 20000; step++) {
        stream_put_all(&s, gradient, 0.01F * expf(2.0F * stream_normal(&s)));
        stream_end(&s);
    }
    stream_expect_clean(&s);
    stream_put_all(&s, gradient, 1e8F);
    stream_end(&s);
    assert_non_null(stream_found(&s, "Gradient___w"));
    stream_close(&s);
}

static void silence_is_counted(void **state)
{
    stream s;

    (void)state;
    (void)open_loss(&s, "StalledTrainingRule:threshold=60,stop_training_on_fire=True,"
                        "training_job_name_prefix=None");
    sonde_rules_idle(s.rules, 59.0);
    assert_int_equal(stream_count(&s), 0);
    sonde_rules_idle(s.rules, 61.0);
    (void)stream_expect(&s, "", 0);
    stream_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_losses_of_the_old_test_fire_at_12),
        cmocka_unit_test(comparisons_are_num_steps_apart),
        cmocka_unit_test(a_flat_loss_is_found),
        cmocka_unit_test(losses_of_the_asked_mode_are_compared),
        cmocka_unit_test(healthy_curves_are_fine),
        cmocka_unit_test(curves_that_rise_are_found),
        cmocka_unit_test(losses_that_scatter_are_no_spike),
        cmocka_unit_test(scattered_losses_that_jump_are_found),
        cmocka_unit_test(overfitting_is_found),
        cmocka_unit_test(evaluations_that_swing_are_well),
        cmocka_unit_test(training_that_gets_worse_is_no_overfitting),
        cmocka_unit_test(training_without_gain_is_found),
        cmocka_unit_test(patience_is_the_given_one),
        cmocka_unit_test(without_evaluation_it_does_not_judge),
        cmocka_unit_test(a_few_evaluations_are_not_enough),
        cmocka_unit_test(spikes_of_gradients_are_found),
        cmocka_unit_test(gradients_that_scatter_are_no_spike),
        cmocka_unit_test(silence_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
