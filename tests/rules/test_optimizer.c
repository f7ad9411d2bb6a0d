/*
 * OptimizerState on an Adam by hand, and UpdateSpike.
 */
#include "rules/stream.h"

enum { N = 60, STEPS = 30, AT = 10 };
enum { RIGHT, SWAPPED, STUCK, NEGATIVE, CORRUPT, CLIPPED, MODES };

typedef struct adam {
    stream s;
    uint32_t w, g, m, v, t;
    float value[N], first[N], second[N], step;
} adam;

static void adam_open(adam *a, bool pytorch)
{
    memset(a, 0, sizeof *a);
    stream_open(&a->s, "OptimizerState");
    a->w = stream_declare(&a->s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
    a->g = stream_declare(&a->s, pytorch ? "fc.weight.grad" : "Gradient___fc.weight",
                          SONDE_ROLE_GRADIENT, 6, 10);
    a->m = stream_declare(&a->s, pytorch ? "fc.weight.exp_avg" : "Accl1___fc.weight",
                          SONDE_ROLE_OPTIMIZER, 6, 10);
    a->v = stream_declare(&a->s, pytorch ? "fc.weight.exp_avg_sq" : "Accl2___fc.weight",
                          SONDE_ROLE_OPTIMIZER, 6, 10);
    a->t = stream_declare(&a->s, pytorch ? "fc.weight.step" : "Step___fc.weight",
                          SONDE_ROLE_OPTIMIZER, 0, 0);
    stream_begin(&a->s);
}

static void adam_step(adam *a, int mode, bool wrong)
{
    const float b1 = wrong && mode == SWAPPED ? 0.999F : 0.9F;
    const float b2 = wrong && mode == SWAPPED ? 0.9F : 0.999F;
    const float clipped =
        mode == CLIPPED ? 0.1F + 0.4F * fabsf(stream_normal(&a->s)) : 1.0F;
    float seen[N];

    a->step += wrong && mode == STUCK ? 0.0F : 1.0F;
    for (int i = 0; i < N; i++) {
        float g = 0.0F;

        seen[i] = 0.05F + 0.1F * stream_normal(&a->s);
        g = clipped * seen[i]; /* what is used is not what is seen */
        a->first[i] = b1 * a->first[i] + (1.0F - b1) * g;
        a->second[i] = b2 * a->second[i] + (1.0F - b2) * g * g;
        a->value[i] -= 0.01F * a->first[i];
    }
    if (wrong && a->s.at.mode_step == AT) {
        a->second[7] = mode == NEGATIVE ? -a->second[7] : a->second[7];
        a->first[7] = mode == CORRUPT ? 1e30F : a->first[7];
    }
    stream_put(&a->s, a->g, seen);
    stream_put(&a->s, a->m, a->first);
    stream_put(&a->s, a->v, a->second);
    stream_put_all(&a->s, a->t, a->step);
    stream_put(&a->s, a->w, a->value);
    stream_end(&a->s);
}

static void what_cannot_be_is_found(void **state)
{
    static const struct {
        const char *tensor, *pytorch;
        int64_t step; /* -1: nothing is found */
    } expected[MODES] = {[RIGHT] = {"", "", -1},
                         [SWAPPED] = {"Accl1___fc.weight", "fc.weight.exp_avg", AT + 2},
                         [STUCK] = {"Step___fc.weight", "fc.weight.step", AT + 2},
                         [NEGATIVE] = {"Accl2___fc.weight", "fc.weight.exp_avg_sq", AT},
                         [CORRUPT] = {"Accl1___fc.weight", "fc.weight.exp_avg", AT},
                         [CLIPPED] = {"", "", -1}};

    (void)state;
    for (int mode = 0; mode < MODES; mode++) {
        for (int pytorch = 0; pytorch < 2; pytorch++) {
            adam a;

            adam_open(&a, pytorch != 0);
            for (int step = 0; step < STEPS; step++) {
                adam_step(&a, mode, step >= AT);
            }
            if (expected[mode].step < 0) {
                stream_expect_clean(&a.s);
            } else {
                (void)stream_expect(
                    &a.s, pytorch ? expected[mode].pytorch : expected[mode].tensor,
                    expected[mode].step);
            }
            stream_close(&a.s);
        }
    }
}

enum { CALM, ONE_JUMPS, ALL_JUMP, ONE_SHRINKS, FROM_ZERO, JUMPS };

static void an_element_that_jumps_is_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < JUMPS; kind++) {
        stream s;
        uint32_t id = 0;
        float w[N];

        stream_open(&s, "UpdateSpike");
        id = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        stream_begin(&s);
        for (int i = 0; i < N; i++) {
            w[i] = kind == FROM_ZERO ? 0.0F : 0.1F * stream_normal(&s);
        }
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < N; i++) {
                w[i] += 0.001F * stream_normal(&s);
                w[i] *= kind == ALL_JUMP && step == AT ? 5.0F : 1.0F;
            }
            w[9] = kind == ONE_JUMPS && step == AT     ? 1.5F
                   : kind == ONE_SHRINKS && step == AT ? 0.0F
                                                       : w[9];
            stream_put(&s, id, w);
            stream_end(&s);
        }
        if (kind == ONE_JUMPS) {
            (void)stream_expect(&s, "fc.weight", AT);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* An element that jumps while the losses go on falling is a note; it is an error once they
 * have risen. */
static void a_jump_waits_for_the_losses(void **state)
{
    (void)state;
    for (int harm = 0; harm < 2; harm++) {
        const sonde_finding *jump = NULL;
        stream s;
        uint32_t id = 0, loss = 0;
        float w[N];

        stream_open(&s, "UpdateSpike");
        id = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int i = 0; i < N; i++) {
            w[i] = 0.1F * stream_normal(&s);
        }
        for (int step = 0; step < AT + 60; step++) {
            const float falls = 2.0F * expf(-0.02F * (float)step);

            for (int i = 0; i < N; i++) {
                w[i] += 0.001F * stream_normal(&s);
            }
            w[9] = step == AT ? 1.5F : w[9];
            stream_put(&s, id, w);
            stream_put_all(&s, loss, harm == 1 && step > AT ? 9.0F : falls);
            stream_end(&s);
        }
        jump = stream_found(&s, "fc.weight");
        assert_non_null(jump);
        assert_int_equal(jump->severity,
                         harm == 1 ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
        assert_int_equal(jump->step, AT);
        stream_close(&s);
    }
}

/* After an error that may explain it a jump is a note, and names that error. */
static void a_jump_with_a_cause_is_a_note(void **state)
{
    (void)state;
    for (int caused = 0; caused < 2; caused++) {
        const sonde_finding *jump = NULL;
        stream s;
        uint32_t weight = 0, output = 0;
        float w[N];

        stream_open(&s, "UpdateSpike");
        assert_int_equal(sonde_rules_add(s.rules, "ExplodingTensor", NULL), SONDE_OK);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        output = stream_declare(&s, "fc_output_0", SONDE_ROLE_OUTPUT, 4, 0);
        stream_begin(&s);
        for (int i = 0; i < N; i++) {
            w[i] = 0.1F * stream_normal(&s);
        }
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < N; i++) {
                w[i] += 0.001F * stream_normal(&s);
            }
            w[9] = step == AT ? 1.5F : w[9];
            stream_put(&s, weight, w);
            stream_put_all(&s, output, caused && step == AT - 1 ? INFINITY : 1.0F);
            stream_end(&s);
        }
        jump = stream_found(&s, "fc.weight");
        assert_non_null(jump);
        assert_int_equal(jump->severity,
                         caused ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
        assert_true(jump->because_of ==
                    (caused ? stream_found(&s, "fc_output_0")->id : 0));
        stream_close(&s);
    }
}

/* Of 20 steps at once a drift is 20 times as large, and no jump; a flipped bit still is.
 */
static void steps_between_count(void **state)
{
    (void)state;
    for (int flipped = 0; flipped < 2; flipped++) {
        stream s;
        uint32_t id = 0;
        float w[N];

        stream_open(&s, "UpdateSpike");
        id = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        stream_begin(&s);
        for (int i = 0; i < N; i++) {
            w[i] = 0.02F * stream_normal(&s);
        }
        for (int step = 0; step < 200; step++) {
            w[3] += step < 20 ? 0.01F : 0.02F;
            w[3] = flipped && step == 155 ? 1e20F : w[3];
            if (step < 20 || step % 20 == 0) {
                stream_put(&s, id, w);
            }
            stream_end(&s);
        }
        if (flipped) {
            (void)stream_expect(&s, "fc.weight", 160);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* With little history, half as large again is no flipped bit; several times as large is. */
static void a_small_jump_needs_history(void **state)
{
    static const struct {
        int at;
        float jump;
        bool found;
    } cases[] = {{11, 0.06F, false}, {11, 1.5F, true}, {40, 0.06F, true}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        stream s;
        uint32_t id = 0;
        float w[N];

        stream_open(&s, "UpdateSpike");
        id = stream_declare(&s, "fc.bias", SONDE_ROLE_WEIGHT, 6, 10);
        stream_begin(&s);
        for (int k = 0; k < N; k++) {
            w[k] = 0.01F * stream_normal(&s);
        }
        for (int step = 0; step < 50; step++) {
            for (int k = 0; k < N; k++) {
                w[k] += 1e-4F * stream_normal(&s);
            }
            w[9] = step == cases[i].at ? cases[i].jump : w[9];
            stream_put(&s, id, w);
            stream_end(&s);
        }
        if (cases[i].found) {
            (void)stream_expect(&s, "fc.bias", cases[i].at);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* Second moments of another definition, at first of most parameters and then of all; or of
 * one parameter only. losses: 1: it falls; -1: it rises. */
static sonde_severity other_moments(int other, int losses, size_t *findings)
{
    enum { LAYERS = 8 };
    uint32_t m[LAYERS], v[LAYERS], loss = 0;
    sonde_severity severity = SONDE_SEVERITY_NOTE;
    size_t count = 0;
    const sonde_finding *found = NULL;
    stream s;

    stream_open(&s, "OptimizerState");
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    for (int i = 0; i < LAYERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "fc%d.weight", i);
        (void)stream_declare(&s, name, SONDE_ROLE_WEIGHT, 60, 60);
        (void)snprintf(name, sizeof name, "fc%d.weight.exp_avg", i);
        m[i] = stream_declare(&s, name, SONDE_ROLE_OPTIMIZER, 6, 10);
        (void)snprintf(name, sizeof name, "fc%d.weight.exp_avg_sq", i);
        v[i] = stream_declare(&s, name, SONDE_ROLE_OPTIMIZER, 6, 10);
    }
    stream_begin(&s);
    for (int step = 0; step < 60; step++) {
        for (int i = 0; i < LAYERS; i++) {
            /* half of them follow one step later */
            const bool beyond = i < other && (step > 0 || i < LAYERS / 2);

            stream_put_all(&s, m[i], 0.1F);
            stream_put_all(&s, v[i], beyond ? 1e-7F : 0.01F);
        }
        stream_put_all(&s, loss, expf(-0.03F * (float)(losses * step)));
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    found = sonde_rules_findings(s.rules, &count);
    *findings = count;
    severity = count > 0 ? found[0].severity : severity;
    stream_close(&s);
    return severity;
}

static void another_adam_is_a_note(void **state)
{
    size_t count = 0;

    (void)state;
    assert_int_equal(other_moments(8, 1, &count), SONDE_SEVERITY_NOTE);
    assert_int_equal(count, 1);
    assert_int_equal(other_moments(8, -1, &count), SONDE_SEVERITY_ERROR);
    assert_int_equal(count, 1);
    assert_int_equal(other_moments(1, 1, &count), SONDE_SEVERITY_ERROR);
    assert_int_equal(count, 1);
    assert_int_equal(other_moments(0, 1, &count), SONDE_SEVERITY_NOTE);
    assert_int_equal(count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_found),
        cmocka_unit_test(an_element_that_jumps_is_found),
        cmocka_unit_test(a_jump_with_a_cause_is_a_note),
        cmocka_unit_test(a_jump_waits_for_the_losses),
        cmocka_unit_test(steps_between_count),
        cmocka_unit_test(a_small_jump_needs_history),
        cmocka_unit_test(another_adam_is_a_note),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
