/*
 * Findings that wait for training: what is unusual is an error where the loss rises or
 * stands still, a note where the loss cannot tell, and less where training goes well or
 * the tensor recovers.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { ROWS = 32, COLUMNS = 8, N = ROWS * COLUMNS, STEPS = 60 };
enum { NOTHING = -1, NOTE, WARNING, ERROR };

/* What the losses do. */
/* LEAPS: it jumps at first, returns to its first value, and stands there. */
enum { FALLS, STANDS, RISES, PARTS, REWARDS, BREAKS, LEAPS, COURSES };

static const char *loss_name(int course)
{
    return course == PARTS ? "first_loss" : "loss";
}

/* The losses of a run; of PARTS there are two, and rewards with those of REWARDS. */
typedef struct losses {
    int course;
    uint32_t id[2];
} losses;

static losses declare_losses(stream *s, int course)
{
    losses made = {course, {0, 0}};

    made.id[0] = stream_declare(s, loss_name(course), SONDE_ROLE_LOSS, 0, 0);
    if (course == PARTS) {
        made.id[1] = stream_declare(s, "second_loss", SONDE_ROLE_LOSS, 0, 0);
    } else if (course == REWARDS) {
        made.id[1] = stream_declare(s, "rewards", SONDE_ROLE_INPUT, ROWS, 0);
    }
    return made;
}

static void put_losses(stream *s, const losses *made, int step)
{
    const double noise = 0.02 * (double)stream_normal(s);
    const double value = made->course == FALLS   ? 2.0 * exp(-0.03 * step)
                         : made->course == RISES ? 2.0 * exp(0.05 * step)
                         : made->course == LEAPS && step > 0 && step < 5 ? 5.0
                                                                         : 2.0;
    const bool broken = made->course == BREAKS && step > 20;

    stream_put_all(s, made->id[0], broken ? NAN : (float)(value + noise));
    if (made->course == PARTS || made->course == REWARDS) {
        stream_put_all(s, made->id[1], 1.0F);
    }
}

/* The severity of the one finding, or NOTHING. */
static int severity(stream *s)
{
    size_t count = 0;
    const sonde_finding *all = NULL;

    sonde_rules_finish(s->rules);
    all = sonde_rules_findings(s->rules, &count);
    assert_true(count <= 1);
    return count == 0 ? NOTHING : (int)all[0].severity;
}

/* A layer all of whose units are dead, or nearly all; from step 30 on they are awake again
 * if it recovers. */
static int dead(int course, int units, bool recovers)
{
    stream s;
    uint32_t id = 0;
    losses made;
    int found = NOTHING;

    stream_open(&s, "DeadRelu");
    id = stream_declare(&s, "relu_output_0", SONDE_ROLE_ACTIVATION, ROWS, COLUMNS);
    made = declare_losses(&s, course);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        float values[N];

        for (int i = 0; i < N; i++) {
            const bool rests = i % COLUMNS < units && !(recovers && step >= 8);

            values[i] = rests ? 0.0F : 1.0F;
        }
        stream_put(&s, id, values);
        put_losses(&s, &made, step);
        stream_end(&s);
    }
    found = severity(&s);
    stream_close(&s);
    return found;
}

static void dead_units_count_if_training_does_not_go_well(void **state)
{
    static const int all[COURSES] = {
        [FALLS] = NOTE,   [STANDS] = ERROR, [RISES] = ERROR, [PARTS] = NOTE,
        [REWARDS] = NOTE, [BREAKS] = ERROR, [LEAPS] = ERROR};

    (void)state;
    for (int course = 0; course < COURSES; course++) {
        assert_int_equal(dead(course, COLUMNS, false), all[course]);
        assert_int_equal(dead(course, COLUMNS, true), NOTHING);
    }
    assert_int_equal(dead(FALLS, 6, false), NOTE);
    assert_int_equal(dead(STANDS, 6, false), NOTE);
}

/* Weights that multiply the variance of their inputs by 320. */
static int loud(int course)
{
    stream s;
    uint32_t id = 0;
    losses made;
    int found = NOTHING;

    stream_open(&s, "PoorWeightInitialization");
    id = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, COLUMNS, ROWS);
    made = declare_losses(&s, course);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_normal(&s, id, 0.0, 3.2);
        put_losses(&s, &made, step);
        stream_end(&s);
    }
    found = severity(&s);
    stream_close(&s);
    return found;
}

static void large_initial_weights_are_judged_by_the_loss(void **state)
{
    static const int kinds[COURSES] = {
        [FALLS] = NOTE,   [STANDS] = WARNING, [RISES] = WARNING, [PARTS] = NOTE,
        [REWARDS] = NOTE, [BREAKS] = WARNING, [LEAPS] = WARNING};

    (void)state;
    for (int course = 0; course < COURSES; course++) {
        assert_int_equal(loud(course), kinds[course]);
    }
}

/* A constant scale beside nothing, whose rows part, or move as one. */
static int constant(int course, bool part)
{
    stream s;
    uint32_t id = 0;
    losses made;
    float w[N];
    int found = NOTHING;

    stream_open(&s, "SymmetricUnits");
    id = stream_declare(&s, "spread.weight", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
    made = declare_losses(&s, course);
    stream_begin(&s);
    for (int i = 0; i < N; i++) {
        w[i] = -3.0F;
    }
    for (int step = 0; step < STEPS; step++) {
        stream_put(&s, id, w);
        put_losses(&s, &made, step);
        stream_end(&s);
        for (int i = 0; i < N; i++) {
            w[i] += part ? 0.05F * stream_normal(&s) : 0.001F * (float)(i % COLUMNS);
        }
    }
    found = severity(&s);
    stream_close(&s);
    return found;
}

static void units_that_part_were_never_alike(void **state)
{
    (void)state;
    assert_int_equal(constant(STANDS, true), NOTHING);
    assert_int_equal(constant(FALLS, true), NOTHING);
    assert_int_equal(constant(FALLS, false), ERROR);
    assert_int_equal(constant(STANDS, false), ERROR);
}

/* Gradients that overflow at a step at which no parameter is seen. */
static void an_overflow_is_judged_by_the_next_losses(void **state)
{
    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        for (int rule = 0; rule < 2; rule++) {
            stream s;
            uint32_t weight = 0, gradient = 0;
            losses made;
            size_t count = 0;
            const sonde_finding *found = NULL;

            stream_open(&s, rule == 0 ? "NonFinite" : "ExplodingTensor");
            weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
            gradient = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, ROWS,
                                      COLUMNS);
            made = declare_losses(&s, broken ? BREAKS : STANDS);
            stream_begin(&s);
            for (int step = 0; step < STEPS; step++) {
                put_losses(&s, &made, step);
                stream_put_all(&s, gradient, step == 20 ? INFINITY : 0.1F);
                if (step % 8 == 0) {
                    stream_put_normal(&s, weight, 0.0, 0.1);
                }
                stream_end(&s);
            }
            sonde_rules_finish(s.rules);
            found = sonde_rules_findings(s.rules, &count);
            assert_true(count >= 1);
            for (size_t i = 0; i < count; i++) {
                if (strcmp(found[i].tensor, "gradient/fc.weight") == 0) {
                    assert_int_equal(found[i].severity, broken ? ERROR : NOTE);
                    assert_int_equal(found[i].step, 20);
                }
            }
            stream_close(&s);
        }
    }
}

/* A loss over 120 steps that falls by that share of its value. */
static int fallen(double share, const char *name, double noise)
{
    stream s;
    uint32_t loss = 0;
    int found = NOTHING;

    stream_open(&s, "LossNotDecreasing");
    loss = stream_declare(&s, name, SONDE_ROLE_LOSS, 0, 0);
    (void)stream_declare(&s, "other_loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int step = 0; step < 120; step++) {
        stream_put_all(&s, loss,
                       (float)(2.0 - 2.0 * share * fmin(step / 50.0, 1.0) +
                               noise * (double)stream_normal(&s)));
        stream_end(&s);
    }
    found = severity(&s);
    stream_close(&s);
    return found;
}

static void a_loss_that_hardly_moves_is_a_note(void **state)
{
    (void)state;
    assert_int_equal(fallen(0.0, "loss", 0.05), NOTE);
    assert_int_equal(fallen(0.03, "loss", 0.02), NOTE);
    assert_int_equal(fallen(0.2, "loss", 0.05), NOTHING);
    assert_int_equal(fallen(0.0, "loss", 1.5), NOTHING);
    assert_int_equal(fallen(0.0, "part_loss", 0.05), NOTHING);
}

/* Few samples: labels of four classes, and a cross-entropy a little above their entropy. */
static void a_loss_near_the_entropy_is_a_note(void **state)
{
    (void)state;
    for (int learns = 0; learns < 2; learns++) {
        stream s;
        uint32_t loss = 0, labels = 0;

        stream_open(&s, "LabelNoise");
        labels = stream_declare(&s, "labels", SONDE_ROLE_INPUT, 32, 0);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < 110; step++) {
            float classes[32];

            for (int i = 0; i < 32; i++) {
                const float drawn = stream_normal(&s);

                classes[i] = drawn < -0.6745F  ? 0.0F
                             : drawn < 0.0F    ? 1.0F
                             : drawn < 0.6745F ? 2.0F
                                               : 3.0F;
            }
            stream_put(&s, labels, classes);
            stream_put_all(&s, loss,
                           (float)(log(4.0) * (learns ? exp(-0.01 * step) : 1.015) +
                                   0.05 * (double)stream_normal(&s)));
            stream_end(&s);
        }
        assert_int_equal(severity(&s), learns ? NOTHING : NOTE);
        stream_close(&s);
    }
}

/* --- what other programs have by construction ------------------------------------------ */

/* A bound that is infinite from the first step on; or one that becomes so. */
static void bounds_may_be_infinite(void **state)
{
    static const char *const rules[] = {"NonFinite", "ExplodingTensor"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool becomes = i / 2 == 1;
        stream s;
        uint32_t bound = 0, weight = 0;

        stream_open(&s, rules[i % 2]);
        bound = stream_declare(&s, "noise.upper_bound", SONDE_ROLE_BUFFER, 0, 0);
        weight = stream_declare(&s, "noise.raw", SONDE_ROLE_WEIGHT, 1, 1);
        stream_begin(&s);
        for (int step = 0; step < 20; step++) {
            stream_put_all(&s, bound, becomes && step < 10 ? 1.0F : INFINITY);
            stream_put_all(&s, weight, 0.1F * (float)step);
            stream_end(&s);
        }
        assert_int_equal(severity(&s), becomes ? ERROR : NOTHING);
        stream_close(&s);
    }
}

/* A grid of knots beside weights that are trained: it is no layer of units. */
static void what_is_not_trained_may_be_alike(void **state)
{
    (void)state;
    for (int trained = 0; trained < 2; trained++) {
        stream s;
        uint32_t grid = 0, weight = 0, own = 0, other = 0;
        float w[N];

        stream_open_losing(&s, "SymmetricUnits");
        grid = stream_declare(&s, "act.grid", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
        weight = stream_declare(&s, "act.coef", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
        other =
            stream_declare(&s, "gradient/act.coef", SONDE_ROLE_GRADIENT, ROWS, COLUMNS);
        own = stream_declare(&s, "gradient/act.grid", SONDE_ROLE_GRADIENT, ROWS, COLUMNS);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < N; i++) {
                w[i] = 0.3F * ((float)(i % COLUMNS) - 3.0F) +
                       (trained ? 0.01F * (float)step : 0.0F);
            }
            stream_put(&s, grid, w);
            stream_put_normal(&s, weight, 0.0, 1.0);
            stream_put_normal(&s, other, 0.0, 1.0);
            if (trained) {
                stream_put_all(&s, own, 0.1F);
            }
            stream_end(&s);
        }
        assert_int_equal(severity(&s), trained ? ERROR : NOTHING);
        stream_close(&s);
    }
}

/* The input of a sigmoid, declared with the op of its module, is not its output. */
static void the_input_of_a_sigmoid_has_no_slope(void **state)
{
    stream s;
    uint32_t input = 0;

    (void)state;
    stream_open_losing(&s, "SaturatedActivation");
    s.op = "Sigmoid";
    input = stream_declare(&s, "scale_input_0", SONDE_ROLE_ACTIVATION, ROWS, COLUMNS);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_normal(&s, input, 0.5, 2.0);
        stream_end(&s);
    }
    assert_int_equal(severity(&s), NOTHING);
    stream_close(&s);
}

/* Many gradients that jump at one step are one finding. */
static void a_spike_of_all_is_one_finding(void **state)
{
    stream s;
    uint32_t ids[6];

    (void)state;
    stream_open_losing(&s, "GradientSpike");
    for (int i = 0; i < 6; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "gradient/fc%d.weight", i);
        ids[i] = stream_declare(&s, name, SONDE_ROLE_GRADIENT, ROWS, COLUMNS);
    }
    stream_begin(&s);
    for (int step = 0; step < 40; step++) {
        for (int i = 0; i < 6; i++) {
            stream_put_normal(&s, ids[i], 0.0, step < 20 ? 0.1 : 5e3 * (i + 1));
        }
        stream_end(&s);
    }
    assert_int_equal(severity(&s), ERROR);
    stream_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_units_count_if_training_does_not_go_well),
        cmocka_unit_test(large_initial_weights_are_judged_by_the_loss),
        cmocka_unit_test(units_that_part_were_never_alike),
        cmocka_unit_test(an_overflow_is_judged_by_the_next_losses),
        cmocka_unit_test(a_loss_that_hardly_moves_is_a_note),
        cmocka_unit_test(a_loss_near_the_entropy_is_a_note),
        cmocka_unit_test(bounds_may_be_infinite),
        cmocka_unit_test(what_is_not_trained_may_be_alike),
        cmocka_unit_test(the_input_of_a_sigmoid_has_no_slope),
        cmocka_unit_test(a_spike_of_all_is_one_finding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
