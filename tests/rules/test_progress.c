/*
 * What decides about findings that wait: which losses count, over how many steps, and what
 * happens where no training is seen.
 */
#include "rules/progress.h"
#include "rules/stream.h"

#include "base/macros.h"
#include "rules/engine.h"

enum { ROWS = 32, COLUMNS = 8 };
enum { NOTHING = -1, NOTE, WARNING, ERROR };

/* The last losses have one weight each, however many there were after the mark. */
static void a_long_wait_is_judged_by_the_last_losses(void **state)
{
    enum { LAST = 16, BEFORE = 240 - LAST };
    sonde__rules_progress progress = {0};
    sonde__rules_progress_mark mark;

    (void)state;
    for (int i = 0; i < SONDE__RULES_FIRST; i++) {
        sonde__rules_progress_take(&progress, 2.0);
    }
    mark = sonde__rules_progress_level(&progress, false);
    for (int i = 0; i < BEFORE + LAST; i++) { /* a mean of 1.85 over KEPT */
        sonde__rules_progress_take(&progress, i < BEFORE ? 2.0 : 1.4);
    }
    assert_int_equal(sonde__rules_progress_since(&progress, &mark, false, false),
                     SONDE__RULES_NONE);
}

/* A suspicion may be older than the first loss. */
static void a_mark_before_any_loss_has_the_level_of_the_first(void **state)
{
    (void)state;
    for (int rises = 0; rises < 2; rises++) {
        sonde__rules_progress progress = {0};
        const sonde__rules_progress_mark mark =
            sonde__rules_progress_level(&progress, false);

        for (int i = 0; i < 40; i++) {
            sonde__rules_progress_take(&progress, exp((rises ? 0.05 : -0.05) * i));
        }
        assert_int_equal(sonde__rules_progress_since(&progress, &mark, false, false),
                         rises ? SONDE__RULES_ILL : SONDE__RULES_WELL);
    }
}

/* A fall by a fifth: it counts where the mean of the first losses shows it, and is neither
 * a fall nor a standstill where it may be noise. */
static void a_fall_among_noise_is_no_standstill(void **state)
{
    static const double noise[] = {0.1, 0.6}; /* as a wave */
    static const sonde__rules_verdict expected[] = {SONDE__RULES_WELL, SONDE__RULES_NONE};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sonde__rules_progress progress = {0};
        const sonde__rules_progress_mark mark =
            sonde__rules_progress_level(&progress, false);

        for (int step = 0; step < 40; step++) {
            const double level = step < 5 ? 1.0 : 0.8;

            sonde__rules_progress_take(&progress, level + noise[i] * sin(2.5133 * step));
        }
        assert_int_equal(sonde__rules_progress_since(&progress, &mark, false, false),
                         expected[i]);
    }
}

/* A loss that began far above that of even predictions and ends at it: nothing was learned. */
static void a_fall_to_the_standard_is_not_well(void **state)
{
    static const double ends[] = {2.3, 1.5};
    static const sonde__rules_verdict expected[] = {SONDE__RULES_NONE, SONDE__RULES_WELL};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sonde__rules_progress progress = {.standard = log(10.0)};
        const sonde__rules_progress_mark mark =
            sonde__rules_progress_level(&progress, false);

        for (int step = 0; step < 40; step++) {
            sonde__rules_progress_take(&progress,
                                       step < 5 ? 40.0 : ends[i] + 0.01 * (step % 2));
        }
        assert_int_equal(sonde__rules_progress_since(&progress, &mark, false, false),
                         expected[i]);
    }
}

/* The severity of a layer that is dead in a run with these losses: the first one rises;
 * unseen is declared, perhaps by a part of the program that comes later, and so is the
 * weight. */
static int dead_beside(const char *rises, const char *falls, const char *unseen,
                       const char *weight)
{
    stream s;
    uint32_t relu = 0, loss = 0, other = 0;
    size_t count = 0;
    const sonde_finding *finding = NULL;
    int severity = NOTHING;

    stream_open(&s, "DeadRelu");
    relu = stream_declare(&s, "relu_output_0", SONDE_ROLE_ACTIVATION, ROWS, COLUMNS);
    if (falls != NULL) {
        other = stream_declare(&s, falls, SONDE_ROLE_LOSS, 0, 0);
    }
    if (rises != NULL) {
        loss = stream_declare(&s, rises, SONDE_ROLE_LOSS, 0, 0);
    }
    if (unseen != NULL) {
        (void)stream_declare(&s, unseen, SONDE_ROLE_LOSS, 0, 0);
    }
    if (weight != NULL) {
        (void)stream_declare(&s, weight, SONDE_ROLE_WEIGHT, COLUMNS, COLUMNS);
    }
    stream_begin(&s);
    for (int step = 0; step < 60; step++) {
        stream_put_all(&s, relu, 0.0F);
        if (falls != NULL) {
            stream_put_all(&s, other, expf(-0.03F * (float)step));
        }
        if (rises != NULL) {
            stream_put_all(&s, loss, 2.0F * expf(0.05F * (float)step));
        }
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    finding = sonde_rules_findings(s.rules, &count);
    assert_int_equal(count, 1);
    severity = (int)finding[0].severity;
    stream_close(&s);
    return severity;
}

static int dead_among(const char *rises, const char *falls, const char *unseen)
{
    return dead_beside(rises, falls, unseen, NULL);
}

static int dead(const char *rises, const char *falls)
{
    return dead_among(rises, falls, NULL);
}

static void names_of_losses_are_read_by_words(void **state)
{
    static const char *const plain[] = {"hard_loss",     "avg_loss",    "scaled_loss",
                                        "imagenet_loss", "factor_loss", "std_error"};
    static const char *const free[] = {"g_loss",     "td_error",  "PolicyLoss",
                                       "loss/actor", "loss_disc", "agent.critic_loss"};

    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        assert_int_equal(dead(plain[i], NULL), ERROR);
    }
    for (size_t i = 0; i < sizeof free / sizeof *free; i++) {
        assert_int_equal(dead(free[i], NULL), NOTE);
    }
}

/* Players, and networks that judge states, learn from targets that move. */
static void names_of_layers_tell_of_losses_that_need_not_fall(void **state)
{
    static const char *const plain[] = {"factor.weight", "generator.weight",
                                        "value_projection.weight"};
    static const char *const free[] = {"mlp_extractor.value_net.0.weight",
                                       "actor.2.weight", "discriminator.conv1.weight"};

    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        assert_int_equal(dead_beside("loss", NULL, NULL, plain[i]), ERROR);
        assert_int_equal(dead_beside(NULL, NULL, NULL, plain[i]), ERROR);
    }
    for (size_t i = 0; i < sizeof free / sizeof *free; i++) {
        assert_int_equal(dead_beside("loss", NULL, NULL, free[i]), NOTE);
        assert_int_equal(dead_beside(NULL, NULL, NULL, free[i]), NOTE);
    }
}

/* A run is judged with all of its tensors, or while they are declared. */
static void losses_that_are_not_seen_decide_nothing(void **state)
{
    (void)state;
    assert_int_equal(dead_among("loss", NULL, "critic_loss"), ERROR);
    assert_int_equal(dead_among("hinge", NULL, "d_loss"), ERROR);
}

static void losses_of_evaluation_decide_nothing(void **state)
{
    (void)state;
    assert_int_equal(dead("val_loss", "loss"), NOTE);
    assert_int_equal(dead("loss", "val_loss"), ERROR);
    assert_int_equal(dead("test/loss", "CrossEntropyLoss_output_0"), NOTE);
}

/* A program that only predicts may never end. */
static void without_training_a_finding_does_not_wait_for_the_end(void **state)
{
    stream s;
    uint32_t relu = 0;
    size_t count = 0;

    (void)state;
    stream_open(&s, "DeadRelu");
    relu = stream_declare(&s, "relu_output_0", SONDE_ROLE_ACTIVATION, ROWS, COLUMNS);
    s.at.mode = SONDE_MODE_PREDICT;
    stream_begin(&s);
    for (int step = 0; step < 20; step++) {
        stream_put_all(&s, relu, 0.0F);
        stream_end(&s);
    }
    assert_int_equal(sonde_rules_findings(s.rules, &count)[0].severity, ERROR);
    assert_int_equal(count, 1);
    stream_close(&s);
}

/* A value of one tensor, of which only the vital signs are seen. */
static void put_vitals(stream *s, uint32_t id, float value)
{
    const sonde_tensor_info *info = sonde_catalogue_info(s->catalogue, id);
    float values[ROWS * COLUMNS];
    const sonde_view view = sonde_view_of(SONDE_F32, info->rank, info->shape, values);
    sonde_vitals vitals;
    const sonde_observation observation = {
        .id = id, .info = info, .at = s->at, .vitals = &vitals};

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        values[i] = value;
    }
    sonde_vitals_of(&view, &vitals);
    sonde__rules_put(s->rules, &observation);
}

static void a_layer_that_wakes_is_cleared_by_vital_signs_alone(void **state)
{
    (void)state;
    for (int rule = 0; rule < 2; rule++) {
        stream s;
        uint32_t id = 0;

        stream_open_losing(&s, rule == 0 ? "DeadRelu" : "SaturatedActivation");
        id = stream_declare(&s, rule == 0 ? "relu_output_0" : "tanh_input",
                            SONDE_ROLE_ACTIVATION, ROWS, COLUMNS);
        stream_begin(&s);
        for (int step = 0; step < 60; step++) {
            const bool well = step >= 6;

            put_vitals(&s, id, rule == 0 ? (well ? 1.0F : 0.0F) : (well ? 0.1F : 50.0F));
            stream_end(&s);
        }
        sonde_rules_finish(s.rules);
        assert_null(stream_found(&s, rule == 0 ? "relu_output_0" : "tanh_input"));
        stream_close(&s);
    }
}

/* A gradient that is tiny before and after it jumps, with others that explode. */
static void wakes(stream *s, int kind, int step)
{
    (void)kind;
    for (uint32_t i = 0; i < 6; i++) {
        const double small = i == 0 ? 1e-12 : 0.1;

        stream_put_normal(s, i, 0.0, step < 20 ? small : (i == 0 ? 1e-3 : 5e3));
    }
}

/* Two tasks in turn: each step has a loss of one of them. */
static void in_turn(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_all(s, 0, 0.0F);
    stream_put_all(s, 1 + (uint32_t)(step % 2),
                   step % 2 == 0 ? 1.0F : 8.0F * expf(0.05F * (float)step));
}

/* A spike waits; the loss breaks two steps later. What broke first has no cause. */
static void a_suspicion_does_not_follow_from_what_came_later(void **state)
{
    stream s;
    uint32_t gradient = 0, loss = 0;
    const sonde_finding *finding = NULL;

    (void)state;
    stream_open(&s, "GradientSpike");
    assert_int_equal(sonde_rules_add(s.rules, "NonFinite", NULL), SONDE_OK);
    gradient =
        stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, ROWS, COLUMNS);
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int step = 0; step < 30; step++) {
        stream_put_all(&s, loss, step < 22 ? 2.0F : NAN);
        stream_put_normal(&s, gradient, 0.0, step == 20 ? 1e6 : 0.1);
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    finding = stream_found(&s, "gradient/fc.weight");
    assert_non_null(finding);
    assert_int_equal(finding->step, 20);
    assert_int_equal(finding->severity, ERROR);
    assert_int_equal(finding->because_of, 0);
    finding = stream_found(&s, "loss");
    assert_non_null(finding);
    assert_int_equal(finding->step, 22);
    stream_close(&s);
}

static const stream_case cases[] = {
    {"losses in turn are parts", "DeadRelu",
     "activation relu_output_0 32 8, loss first_loss, loss second_loss", in_turn, 0, 60,
     NOTED, "relu_output_0", 2},
    {"a gradient that wakes hides no spike", "GradientSpike",
     "6*gradient gradient/fc#.weight 32 8", wakes, 0, 40, FAILED, "gradient/fc2.weight",
     23, .losing = true},
};

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(a_long_wait_is_judged_by_the_last_losses),
        cmocka_unit_test(a_mark_before_any_loss_has_the_level_of_the_first),
        cmocka_unit_test(a_fall_among_noise_is_no_standstill),
        cmocka_unit_test(a_fall_to_the_standard_is_not_well),
        cmocka_unit_test(names_of_losses_are_read_by_words),
        cmocka_unit_test(names_of_layers_tell_of_losses_that_need_not_fall),
        cmocka_unit_test(losses_that_are_not_seen_decide_nothing),
        cmocka_unit_test(losses_of_evaluation_decide_nothing),
        cmocka_unit_test(without_training_a_finding_does_not_wait_for_the_end),
        cmocka_unit_test(a_layer_that_wakes_is_cleared_by_vital_signs_alone),
        cmocka_unit_test(a_suspicion_does_not_follow_from_what_came_later),
    };

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}
