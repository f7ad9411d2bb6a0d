/*
 * The rules that look at losses, on curves by hand.
 */
#include "rules/stream.h"

#include "base/macros.h"
#include "rules/engine.h"

/* --- one loss ------------------------------------------------------------------------- */

static void old_test(stream *s, int kind, int step)
{
    static const float losses[] = {0.3F, 0.33F, 0.31F, 0.30F, 0.28F};

    (void)kind;
    s->at.global_step = 4 * step;
    stream_put_all(s, 0, losses[step]);
}

/* Saved every 3 steps, 21 is compared with 9, and the next comparison is at 33. */
static void third_steps(stream *s, int kind, int step)
{
    (void)kind;
    s->at.global_step = 3 * step;
    stream_put_all(s, 0, step >= 8 && step <= 10 ? 9.0F : 1.0F - 0.03F * (float)step);
}

static void flat(stream *s, int kind, int step)
{
    (void)kind;
    (void)step;
    stream_put_all(s, 0, 2.3F);
}

static void two_modes(stream *s, int kind, int step)
{
    (void)kind;
    s->at.mode = step % 2 == 0 ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
    stream_put_all(s, 0, step % 2 == 0 ? 2.0F - 0.02F * (float)step : 1.0F);
}

enum { HEALTHY, RECOVERS, RISES, JUMPS };

/* With a noise of a fifth. */
static void curve(stream *s, int kind, int step)
{
    const double healthy = 0.3 + 2.0 * exp(-step / 60.0);
    const double value = kind == RECOVERS && step >= 200 && step < 208 ? 12.0
                         : kind == RISES && step >= 200 ? 0.4 + 0.004 * (step - 200)
                         : kind == JUMPS && step < 3    ? 12.0
                         : kind == JUMPS && step >= 200 ? 8.0
                                                        : healthy;
    const double factor = 1.0 + 0.2 * (double)stream_normal(s);

    stream_put_all(s, 0, (float)(value * fmax(factor, 0.05)));
}

/* A loss of a small batch late in training: most are next to nothing, some are not. */
static void scatters(stream *s, int kind, int step)
{
    (void)kind;
    (void)step;
    stream_put_all(s, 0, 0.01F * expf(2.0F * stream_normal(s)));
}

static void scatters_and_jumps(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_all(s, 0, (step < 900 ? 0.01F : 2.0F) * expf(stream_normal(s)));
}

/* --- training and evaluation ---------------------------------------------------------- */

enum { ROUND = 13, ROUNDS = 12 };

enum {
    WELL,
    OVERFITS,
    SWINGS,
    SWINGS_MORE,
    STANDS_OUT,
    PLATEAU,
    GETS_WORSE,
    /* by formulas */
    GAINS,
    NO_GAIN,
    STANDS_STILL /* the evaluation's best is that of round 3, training's that of round 0 */
};

/* Evaluations of SWINGS and the next three: small test sets swing while a network learns,
 * these are of 200 samples. */
static const double trained[][ROUNDS] = {
    [WELL] = {2, 1, 0.5, 0.3, 0.2, 0.1, 0.08, 0.06},
    [SWINGS] = {1.26, 0.52, 0.43, 0.38, 0.35, 0.33, 0.32, 0.29, 0.28, 0.26, 0.24, 0.23},
    [GETS_WORSE] = {2, 1, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9}};

static const double evaluated[][ROUNDS] = {
    [WELL] = {2, 1.2, 0.8, 0.7, 0.69, 0.7, 0.68, 0.69},
    [OVERFITS] = {2, 1.2, 0.8, 0.9, 1.0, 1.2, 1.3, 1.4},
    [SWINGS] = {0.589, 0.436, 0.392, 0.410, 0.419, 0.351, 0.328, 0.343, 0.337, 0.305,
                0.342, 0.299},
    [SWINGS_MORE] = {0.609, 0.459, 0.399, 0.464, 0.356, 0.357, 0.343, 0.329, 0.311, 0.303,
                     0.322, 0.328},
    [STANDS_OUT] = {0.6, 0.5, 0.45, 0.44, 0.43, 0.43, 0.48, 0.43, 0.42, 0.43, 0.47, 0.42},
    [PLATEAU] = {0.6, 0.5, 0.5, 0.42, 0.5, 0.41, 0.49, 0.5, 0.42, 0.5, 0.49, 0.5},
    [GETS_WORSE] = {2, 1.2, 0.8, 0.9, 1.0, 1.2, 1.3, 1.4}};

/* Rounds of 10 training and 3 evaluation steps. */
static void rounds(stream *s, int kind, int step)
{
    const int i = step / ROUND, j = step % ROUND;
    double train = 0.0, eval = 0.0;

    if (kind < GAINS) {
        train = trained[kind == OVERFITS                    ? WELL
                        : kind >= SWINGS && kind <= PLATEAU ? SWINGS
                                                            : kind][i];
        eval = evaluated[kind][i];
    } else {
        train = kind == GAINS ? 1.0 / (1 + i) : kind == NO_GAIN ? 1.0 - 0.03 * i : 1.0;
        eval = kind == GAINS ? 1.2 - 0.02 * i : i < 4 ? 1.2 - 0.1 * i : 1.0;
    }
    s->at.mode = j < 10 ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
    stream_put_all(s, 0, (float)(j < 10 ? train + 0.01 * j : eval));
}

/* Both sentences of a finding. */
static void overfitting_is_told_in_full(void **state)
{
    stream s;
    sonde_finding found;

    (void)state;
    stream_open(&s, "Overfit");
    (void)stream_declare(&s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int step = 0; step < 8 * ROUND; step++) {
        rounds(&s, OVERFITS, step);
        stream_end(&s);
    }
    found = stream_expect(&s, "loss_output_0", 6 * ROUND); /* as training begins again */
    assert_non_null(strstr(found.message, "At evaluation 6 the evaluation loss is 1.2 "));
    assert_non_null(strstr(found.message, "at evaluation 4 they were about 0.9 and"));
    stream_close(&s);
}

static void enough_evaluations_are_judged(void **state)
{
    static const char *const rules[] = {"Overfit", "Overtraining"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sonde_rule_account account;
        stream s;

        stream_open(&s, rules[i]);
        (void)stream_declare(&s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < (4 + 2 * i) * ROUND; step++) {
            rounds(&s, WELL, step);
            stream_end(&s);
        }
        sonde_rules_finish(s.rules);
        sonde_rules_account(s.rules, 0, &account);
        assert_true(account.judged);
        stream_close(&s);
    }
}

/* --- gradients ------------------------------------------------------------------------ */

enum { NO_SPIKE, LOW, HIGH, STAYS };

static void spikes(stream *s, int kind, int step)
{
    static const double factors[] = {1.0, 20.0, 5000.0, 5000.0};
    const bool high = step == 40 || (step > 40 && kind == STAYS);
    const double factor = high ? factors[kind] : 1.0;

    stream_put_normal(s, 0, 0.0, factor * (0.1 + 1.0 / (1 + step)));
}

static void scattered_gradients(stream *s, int jump_at, int step)
{
    stream_put_all(s, 0, step == jump_at ? 1e8F : 0.01F * expf(2.0F * stream_normal(s)));
}

/* --- silence -------------------------------------------------------------------------- */

static void silence_is_counted(void **state)
{
    stream s;

    (void)state;
    stream_open(&s, "StalledTrainingRule:threshold=60,stop_training_on_fire=True,"
                    "training_job_name_prefix=None");
    (void)stream_declare(&s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    sonde__rules_idle(s.rules, 59.0);
    assert_int_equal(stream_count(&s), 0);
    sonde__rules_idle(s.rules, 61.0);
    (void)stream_expect(&s, "", 0);
    stream_close(&s);
}

#define LOSS "loss loss_output_0"
#define FOUND_AT(step) FOUND, "loss_output_0", step
#define IN_ROUND(round) 20 * ROUND, FOUND_AT(((round) + 1) * ROUND)
#define FLAT(rule, step) rule, LOSS, flat, 0, 200, WARNED, "loss_output_0", step
#define GRADIENT "gradient Gradient___w 8 8"

static const stream_case cases[] = {
    {"the losses of the old test", "LossNotDecreasing:window=0", LOSS, old_test, 0, 5,
     FOUND_AT(12)},
    /* at 12 + 12: 24 with 12 */
    {"comparisons are num_steps apart", "LossNotDecreasing:window=0", LOSS, third_steps,
     0, 21, FOUND_AT(24)},
    {"a flat loss", FLAT("LossNotDecreasing", 199)},
    {"a flat loss, compared",
     FLAT("LossNotDecreasing:num_steps=10,diff_percent=0.1", 10)},
    {"a flat loss, averaged", FLAT("LossNotDecreasing:num_steps=20,window=50", 199)},
    {"a flat loss, as smdebug's",
     FLAT("LossNotDecreasing:smdebug=true,num_steps=None", 10)},
    {"losses of evaluation", "LossNotDecreasing:num_steps=10,mode=modes.EVAL", LOSS,
     two_modes, 0, 40, FOUND, .findings = 1},
    {"losses of prediction", "LossNotDecreasing:num_steps=10,mode=PREDICT", LOSS,
     two_modes, 0, 40, SILENT, .lacks = ""},
    {"a healthy curve falls", "LossNotDecreasing", LOSS, curve, HEALTHY, 600},
    {"a curve recovers and falls", "LossNotDecreasing", LOSS, curve, RECOVERS, 600},
    {"a healthy curve has no spike", "LossSpike", LOSS, curve, HEALTHY, 600},
    {"a curve recovers from a spike", "LossSpike", LOSS, curve, RECOVERS, 600},
    {"a curve rises", "LossNotDecreasing", LOSS, curve, RISES, 600, FOUND_AT(449)},
    /* 14 of 15 are enough */
    {"a curve jumps", "LossSpike", LOSS, curve, JUMPS, 600, FOUND_AT(213)},
    {"losses scatter", "LossSpike", LOSS, scatters, 0, 50000},
    {"scattered losses jump", "LossSpike", LOSS, scatters_and_jumps, 0, 1000,
     FOUND_AT(913)},
    {"evaluations are well", "Overfit", LOSS, rounds, WELL, 8 * ROUND},
    {"evaluations are well, but do not fall", "Overfit:rising=0,patience=2", LOSS, rounds,
     WELL, 8 * ROUND, FOUND_AT(3 * ROUND)},
    {"overfitting, as smdebug's", "Overfit:ratio_threshold=0.1", LOSS, rounds, WELL,
     8 * ROUND, FOUND_AT(2 * ROUND)},
    {"overfitting has to rise", "Overfit:ratio_threshold=0.1,rising=0.05", LOSS, rounds,
     WELL, 8 * ROUND},
    {"evaluations swing", "Overfit", LOSS, rounds, SWINGS, 12 * ROUND},
    {"evaluations swing more", "Overfit", LOSS, rounds, SWINGS_MORE, 12 * ROUND},
    {"one evaluation stands out", "Overfit", LOSS, rounds, STANDS_OUT, 12 * ROUND},
    {"evaluations reach a plateau", "Overfit", LOSS, rounds, PLATEAU, 12 * ROUND},
    /* what is learnt is lost, not learnt by heart */
    {"training gets worse", "Overfit", LOSS, rounds, GETS_WORSE, 8 * ROUND},
    {"training gains", "Overtraining", LOSS, rounds, GAINS, 20 * ROUND},
    {"training without gain", "Overtraining", LOSS, rounds, NO_GAIN, 20 * ROUND,
     FOUND_AT(14 * ROUND)},
    {"patience: both", "Overtraining", LOSS, rounds, STANDS_STILL, IN_ROUND(8)},
    {"patience: training", "Overtraining:patience_train=7", LOSS, rounds, STANDS_STILL,
     IN_ROUND(10)},
    {"patience: the evaluation alone", "Overtraining:patience_train=18", LOSS, rounds,
     STANDS_STILL, IN_ROUND(13)},
    {"patience: of the evaluation",
     "Overtraining:patience_train=18,patience_validation=12", LOSS, rounds, STANDS_STILL,
     IN_ROUND(15)},
    {"patience: with delta", "Overtraining:patience_train=18,delta=0.25", LOSS, rounds,
     STANDS_STILL, IN_ROUND(13)},
    {"without evaluation it does not judge", "Overfit", LOSS, curve, HEALTHY, 50, SILENT,
     .lacks = "no losses of both training and evaluation were recorded"},
    {"three evaluations are not enough", "Overfit", LOSS, rounds, WELL, 3 * ROUND, SILENT,
     .lacks = "3 of the 4 evaluations between training that it needs"},
    {"five evaluations are not enough", "Overtraining", LOSS, rounds, WELL, 5 * ROUND,
     SILENT, .lacks = "5 of the 6 evaluations between training that it needs"},
    {"no spike of gradients", "GradientSpike", GRADIENT, spikes, NO_SPIKE, 60,
     .losing = true},
    {"a low spike", "GradientSpike", GRADIENT, spikes, LOW, 60, .losing = true},
    {"a high spike", "GradientSpike", GRADIENT, spikes, HIGH, 60, NOTED, "Gradient___w",
     41, .losing = true},
    {"a spike that stays", "GradientSpike", GRADIENT, spikes, STAYS, 60, FAILED,
     "Gradient___w", 43, .losing = true},
    {"gradients scatter", "GradientSpike", GRADIENT, scattered_gradients, -1, 20000},
    {"scattered gradients jump", "GradientSpike", GRADIENT, scattered_gradients, 20000,
     20001, FOUND},
};

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(overfitting_is_told_in_full),
        cmocka_unit_test(enough_evaluations_are_judged),
        cmocka_unit_test(silence_is_counted),
    };

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}
