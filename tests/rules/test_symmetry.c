/*
 * SymmetricUnits and MissingZeroGrad.
 */
#include "rules/stream.h"
#include "base/macros.h"
#include "rules/engine.h"

enum { ROWS = 6, COLUMNS = 10, N = ROWS * COLUMNS, STEPS = 30 };
enum {
    RANDOM,
    CONSTANT,
    ROWS_ALIKE,
    ZERO_AT_FIRST,
    ZERO_FOR_EVER,
    ONE_PAIR,
    NOT_A_NUMBER,
    KINDS
};

static float start(stream *s, int kind, int i)
{
    return kind == CONSTANT                                 ? 0.1F
           : kind == ROWS_ALIKE                             ? (float)(i % COLUMNS) * 0.1F
           : kind == ZERO_AT_FIRST || kind == ZERO_FOR_EVER ? 0.0F
           : kind == NOT_A_NUMBER                           ? NAN
           : kind == ONE_PAIR && i >= COLUMNS && i < 2 * COLUMNS ? -1.0F
           : kind == ONE_PAIR && i < COLUMNS                     ? -1.0F
                                                                 : stream_normal(s);
}

static void units_that_are_alike_are_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        stream s;
        uint32_t id = 0;
        float w[N];

        stream_open(&s, "SymmetricUnits");
        id = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
        stream_begin(&s);
        for (int i = 0; i < N; i++) {
            w[i] = start(&s, kind, i);
        }
        for (int step = 0; step < STEPS; step++) {
            stream_put(&s, id, w);
            stream_end(&s);
            for (int i = 0; i < N; i++) {
                w[i] += kind == ZERO_AT_FIRST && step >= 2 ? 0.01F * stream_normal(&s)
                        : kind == ROWS_ALIKE               ? 0.01F * (float)(i % COLUMNS)
                                                           : 0.0F;
            }
        }
        if (kind == RANDOM || kind == ZERO_AT_FIRST || kind == ONE_PAIR ||
            kind == NOT_A_NUMBER) {
            stream_expect_clean(&s);
        } else {
            (void)stream_expect(&s, "fc.weight", kind == ZERO_FOR_EVER ? 4 : 0);
        }
        stream_close(&s);
    }
}

/* A weight of zeros with gradients: of itself, and of the other, which is not 0. */
static void zeros_are_judged_by_their_gradients(void **state)
{
    static const struct {
        float own;
        bool other_zero;
        int64_t step; /* -1: nothing is found */
    } cases[] = {{0.1F, false, -1}, {0.0F, true, 0}, {0.0F, false, 4}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        stream s;
        uint32_t w[3], g[3];

        stream_open(&s, "SymmetricUnits");
        for (int k = 0; k < 3; k++) {
            char name[40];

            (void)snprintf(name, sizeof name, "fc%d.weight", k);
            w[k] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
            (void)snprintf(name, sizeof name, "Gradient___fc%d.weight", k);
            g[k] = stream_declare(&s, name, SONDE_ROLE_GRADIENT, ROWS, COLUMNS);
        }
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int k = 0; k < 3; k++) {
                const bool zero = k == 0 || (k == 1 && cases[i].other_zero && step == 0);

                stream_put_normal(&s, w[k], 0.0, zero ? 0.0 : 1.0);
                stream_put_all(&s, g[k], zero ? cases[i].own : 0.1F);
            }
            stream_end(&s);
        }
        sonde_rules_finish(s.rules);
        if (cases[i].step < 0) {
            stream_expect_clean(&s);
        } else {
            const sonde_finding *found = stream_found(&s, "fc0.weight");

            assert_int_equal(found != NULL ? found->step : -1, cases[i].step);
        }
        stream_close(&s);
    }
}

enum {
    CLEARED,
    NOT_CLEARED,
    ALIKE,
    EXPLODING,
    GROWING,
    LEAVING,
    SUMMED,
    SWINGING,
    GRADIENTS
};

/* The gradients of one step: a common part and noise. */
static void next(stream *s, int kind, int step, float *g)
{
    for (int i = 0; i < N; i++) {
        const float fresh = 0.3F * (float)cos(i) + 0.5F * stream_normal(s);
        const float same = 0.3F * (float)cos(i) + 0.02F * stream_normal(s);
        const float scale = kind == EXPLODING ? (float)pow(1.8, step % 30)
                            : kind == LEAVING ? (float)pow(1.3, step % 30) /* a plateau */
                                              : (float)pow(1.05, step);

        g[i] = kind == CLEARED       ? fresh
               : kind == NOT_CLEARED ? g[i] + fresh
               : kind == SUMMED      ? (step % 8 == 0 ? 0.0F : g[i]) + fresh
               : kind == ALIKE       ? same
                                     : same * scale;
    }
}

/* What momentum does to a healthy gradient: in one layer it swings, and grows for some
 * steps on end; the other's is small and steady. */
static void swing(stream *s, int layer, int step, float *g)
{
    const double mean = layer == 0 ? 1.2 - cos(step * 0.524) : 0.1;

    for (int i = 0; i < N; i++) {
        g[i] = (float)(mean * cos(i)) + (layer == 0 ? 0.3F : 0.1F) * stream_normal(s);
    }
}

static void gradients_that_add_up_are_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < GRADIENTS; kind++) {
        stream s;
        uint32_t ids[2] = {0}, weight = 0;
        float g[2][N] = {{0}};

        stream_open(&s, "MissingZeroGrad");
        ids[0] = stream_declare(&s, "Gradient___fc.weight", SONDE_ROLE_GRADIENT, ROWS,
                                COLUMNS);
        ids[1] = stream_declare(&s, "Gradient___head.weight", SONDE_ROLE_GRADIENT, ROWS,
                                COLUMNS);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            /* where gradients are summed over eight batches, weights wait for them */
            stream_put_all(&s, weight, (float)(kind == SUMMED ? step / 8 : step));
            for (int k = 0; k < 2; k++) {
                if (kind == SWINGING) {
                    swing(&s, k, step, g[k]);
                } else {
                    next(&s, kind, step, g[k]);
                }
                stream_put(&s, ids[k], g[k]);
            }
            stream_end(&s);
        }
        if (kind == NOT_CLEARED) {
            (void)stream_expect(&s, "", 4);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* Between its looks at large parameters the rule sees small ones alone. Where these are
 * frozen they say nothing; where they are trained they show that updates wait. */
static void updates_show_in_small_parameters(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        stream s;
        uint32_t gradient = 0, weight = 0, bias = 0;
        float g[N] = {0};

        stream_open(&s, "MissingZeroGrad");
        gradient = stream_declare(&s, "Gradient___fc.weight", SONDE_ROLE_GRADIENT, ROWS,
                                  COLUMNS);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, STREAM_MOST / 2, 2);
        bias = stream_declare(&s, "fc.bias", SONDE_ROLE_BIAS, COLUMNS, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const float moved = (float)(waits ? step / 8 : step);

            next(&s, waits ? SUMMED : NOT_CLEARED, step, g);
            if (step % 10 == 0) {
                stream_put_all(&s, weight, moved);
            }
            stream_put_all(&s, bias, waits ? moved : 0.0F);
            stream_put(&s, gradient, g);
            stream_end(&s);
        }
        if (waits) {
            stream_expect_clean(&s);
        } else {
            (void)stream_expect(&s, "", 25);
        }
        stream_close(&s);
    }
}

/* Gradients that no longer change look like sums: after such an error it is a note. */
static void sums_with_a_cause_are_a_note(void **state)
{
    (void)state;
    for (int caused = 0; caused < 2; caused++) {
        const sonde_finding *sums = NULL;
        stream s;
        uint32_t gradient = 0, weight = 0, output = 0;
        float g[N] = {0};

        stream_open(&s, "MissingZeroGrad");
        assert_int_equal(sonde_rules_add(s.rules, "NonFinite", NULL), SONDE_OK);
        gradient = stream_declare(&s, "Gradient___fc.weight", SONDE_ROLE_GRADIENT, ROWS,
                                  COLUMNS);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
        output = stream_declare(&s, "fc_output_0", SONDE_ROLE_OUTPUT, 4, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            next(&s, NOT_CLEARED, step, g);
            stream_put_all(&s, weight, (float)step);
            stream_put_all(&s, output, caused && step == 1 ? NAN : 1.0F);
            stream_put(&s, gradient, g);
            stream_end(&s);
        }
        sums = stream_found(&s, "");
        assert_non_null(sums);
        assert_int_equal(sums->severity,
                         caused ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
        assert_true(sums->because_of ==
                    (caused ? stream_found(&s, "fc_output_0")->id : 0));
        stream_close(&s);
    }
}

static uint32_t declare_channels(stream *s, const char *name, int64_t columns)
{
    const sonde_tensor_info info = {.name = name,
                                    .role = SONDE_ROLE_WEIGHT,
                                    .dtype = SONDE_F32,
                                    .rank = 3,
                                    .shape = {8, 3, columns},
                                    .same_as = SONDE_NO_TENSOR};
    uint32_t id = 0;

    assert_int_equal(sonde_catalogue_declare(s->catalogue, &info, &id, NULL), SONDE_OK);
    return id;
}

/* Channels whose matrices are alike, each with an input of its own and biases: these may
 * differ, and be of another number of columns. */
static void channels_with_biases_of_their_own_are_not_alike(void **state)
{
    static const int64_t columns[] = {3, 1};

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const bool drawn = kind < 2;
        stream s;
        uint32_t matrix = 0, bias = 0, loss = 0;
        float b[72];

        stream_open(&s, "SymmetricUnits");
        matrix = declare_channels(&s, "bottleneck.matrices.0", 3);
        bias = declare_channels(&s, "bottleneck.biases.0", columns[kind % 2]);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int i = 0; i < 72; i++) {
            b[i] = drawn ? stream_normal(&s) : 0.25F;
        }
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, matrix, 0.5F + 0.01F * (float)step);
            stream_put(&s, bias, b);
            stream_put_all(&s, loss, 2.0F - 0.02F * (float)step);
            stream_end(&s);
        }
        sonde_rules_finish(s.rules);
        assert_int_equal(stream_found(&s, "bottleneck.matrices.0") != NULL, !drawn);
        stream_close(&s);
    }
}

/* Tensors compared with others in 3 steps of so many modules, each with a constant scale
 * beside a random weight. */
static uint64_t work_of(int modules)
{
    stream s;
    uint32_t scale[400], weight[400];
    uint64_t work = 0;

    stream_open(&s, "SymmetricUnits");
    for (int i = 0; i < modules; i++) {
        char module[32], name[48];

        (void)snprintf(module, sizeof module, "block.%d", i);
        s.module = module;
        s.op = "linear";
        (void)snprintf(name, sizeof name, "block.%d_output", i);
        (void)stream_declare(&s, name, SONDE_ROLE_OUTPUT, 2, 3);
        (void)snprintf(name, sizeof name, "block.%d.g", i);
        scale[i] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 2, 3);
        (void)snprintf(name, sizeof name, "block.%d.v", i);
        weight[i] = stream_declare(&s, name, SONDE_ROLE_WEIGHT, 2, 3);
    }
    stream_begin(&s);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < modules; i++) {
            stream_put_all(&s, scale[i], 1.0F);
            stream_put_normal(&s, weight[i], 0.0, 1.0);
        }
        stream_end(&s);
    }
    work = s.rules->compared;
    stream_expect_clean(&s);
    stream_close(&s);
    return work;
}

static void the_work_grows_as_the_tensors_do(void **state)
{
    const uint64_t few = work_of(100), many = work_of(400);

    (void)state;
    assert_true(few >= 100);
    assert_in_range(many, few, 5 * few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_that_are_alike_are_found),
        cmocka_unit_test(zeros_are_judged_by_their_gradients),
        cmocka_unit_test(gradients_that_add_up_are_found),
        cmocka_unit_test(updates_show_in_small_parameters),
        cmocka_unit_test(sums_with_a_cause_are_a_note),
        cmocka_unit_test(channels_with_biases_of_their_own_are_not_alike),
        cmocka_unit_test(the_work_grows_as_the_tensors_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
