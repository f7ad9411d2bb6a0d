/*
 * SymmetricUnits and MissingZeroGrad.
 */
#include "rules/stream.h"

#include "base/macros.h"
#include "rules/engine.h"

enum { ROWS = 6, COLUMNS = 10, N = ROWS * COLUMNS, STEPS = 30 };

/* --- units ---------------------------------------------------------------------------- */

enum {
    RANDOM,
    CONSTANT,
    ROWS_ALIKE,
    ZERO_AT_FIRST,
    ZERO_FOR_EVER,
    ONE_PAIR,
    NOT_A_NUMBER,
};

static float start(stream *s, int kind, int i)
{
    return kind == CONSTANT                                 ? 0.1F
           : kind == ROWS_ALIKE                             ? (float)(i % COLUMNS) * 0.1F
           : kind == ZERO_AT_FIRST || kind == ZERO_FOR_EVER ? 0.0F
           : kind == NOT_A_NUMBER                           ? NAN
           : kind == ONE_PAIR && i < 2 * COLUMNS            ? -1.0F
                                                            : stream_normal(s);
}

static void units(stream *s, int kind, int step)
{
    float *w = s->values[0];

    for (int i = 0; i < N; i++) {
        w[i] = step == 0 ? start(s, kind, i) : w[i];
    }
    stream_put(s, 0, w);
    for (int i = 0; i < N; i++) {
        w[i] += kind == ZERO_AT_FIRST && step >= 2 ? 0.01F * stream_normal(s)
                : kind == ROWS_ALIKE               ? 0.01F * (float)(i % COLUMNS)
                                                   : 0.0F;
    }
}

/* A weight of zeros with gradients: of itself, and of the other, which is not 0. */
enum { ITS_GRADIENT, OTHER_ZERO, OTHER_NOT };

static void zeros(stream *s, int kind, int step)
{
    for (uint32_t k = 0; k < 3; k++) {
        const bool zero = k == 0 || (k == 1 && kind == OTHER_ZERO && step == 0);

        stream_put_normal(s, 2 * k, 0.0, zero ? 0.0 : 1.0);
        stream_put_all(s, 2 * k + 1, zero && kind != ITS_GRADIENT ? 0.0F : 0.1F);
    }
}

/* Channels whose matrices are alike, each with an input of its own and biases: these may
 * differ, and be of another number of columns. */
static void channels_with_biases_of_their_own_are_not_alike(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const bool drawn = kind < 2;
        sonde_tensor_info info = {.role = SONDE_ROLE_WEIGHT,
                                  .dtype = SONDE_F32,
                                  .rank = 3,
                                  .shape = {8, 3, 3},
                                  .same_as = SONDE_NO_TENSOR};
        stream s;
        uint32_t id = 0;
        float b[72] = {0};

        stream_open(&s, "SymmetricUnits");
        info.name = "bottleneck.matrices.0";
        assert_int_equal(sonde_catalogue_declare(s.catalogue, &info, &id, NULL),
                         SONDE_OK);
        info.name = "bottleneck.biases.0";
        info.shape[2] = kind % 2 == 0 ? 3 : 1;
        assert_int_equal(sonde_catalogue_declare(s.catalogue, &info, &id, NULL),
                         SONDE_OK);
        (void)stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        stream_walk(&s, b, 72, drawn ? 1.0F : 0.0F);
        for (int i = 0; i < 72; i++) {
            b[i] = drawn ? b[i] : 0.25F;
        }
        for (int step = 0; step < STEPS; step++) {
            stream_put_all(&s, 0, 0.5F + 0.01F * (float)step);
            stream_put(&s, 1, b);
            stream_put_all(&s, 2, 2.0F - 0.02F * (float)step);
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
        (void)stream_declare(&s, name, SONDE_ROLE_WEIGHT, 2, 3);
        (void)snprintf(name, sizeof name, "block.%d.v", i);
        (void)stream_declare(&s, name, SONDE_ROLE_WEIGHT, 2, 3);
    }
    stream_begin(&s);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < modules; i++) {
            stream_put_all(&s, (uint32_t)(3 * i + 1), 1.0F);
            stream_put_normal(&s, (uint32_t)(3 * i + 2), 0.0, 1.0);
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

/* --- gradients ------------------------------------------------------------------------ */

enum { CLEARED, NOT_CLEARED, ALIKE, EXPLODING, GROWING, LEAVING, SUMMED, SWINGING };

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

static void gradients(stream *s, int kind, int step)
{
    /* where gradients are summed over eight batches, weights wait for them */
    stream_put_all(s, 2, (float)(kind == SUMMED ? step / 8 : step));
    for (int k = 0; k < 2; k++) {
        if (kind == SWINGING) {
            swing(s, k, step, s->values[k]);
        } else {
            next(s, kind, step, s->values[k]);
        }
        stream_put(s, (uint32_t)k, s->values[k]);
    }
}

/* Between its looks at large parameters the rule sees small ones alone. Where these are
 * frozen they say nothing; where they are trained they show that updates wait. */
static void small_parameters(stream *s, int waits, int step)
{
    const float moved = (float)(waits ? step / 8 : step);

    next(s, waits ? SUMMED : NOT_CLEARED, step, s->values[0]);
    if (step % 10 == 0) {
        stream_put_all(s, 1, moved);
    }
    stream_put_all(s, 2, waits ? moved : 0.0F);
    stream_put(s, 0, s->values[0]);
}

/* Gradients of which each has one more in it than the one before; or that grow. */
static void equal_gradients(stream *s, int sums, int step)
{
    float *g = s->values[0], *mean = s->values[1];

    if (step == 0) {
        stream_walk(s, mean, 256, 1.0F);
    }
    for (int i = 0; i < 256; i++) {
        g[i] = sums ? g[i] + mean[i] * (1.0F + 0.02F * stream_normal(s))
                    : mean[i] * powf(1.3F, (float)step);
    }
    stream_put(s, 0, g);
}

/* Gradients that no longer change look like sums: after such an error it is a note. */
static void sums_with_a_cause_are_a_note(void **state)
{
    (void)state;
    for (int caused = 0; caused < 2; caused++) {
        const sonde_finding *sums = NULL;
        stream s;
        float g[N] = {0};

        stream_open(&s, "MissingZeroGrad|NonFinite");
        (void)stream_declare(&s, "Gradient___fc.weight", SONDE_ROLE_GRADIENT, ROWS,
                             COLUMNS);
        (void)stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
        (void)stream_declare(&s, "fc_output_0", SONDE_ROLE_OUTPUT, 4, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            next(&s, NOT_CLEARED, step, g);
            stream_put_all(&s, 1, (float)step);
            stream_put_all(&s, 2, caused && step == 1 ? NAN : 1.0F);
            stream_put(&s, 0, g);
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

#define UNITS "weight fc.weight 6 10"
#define THREE "3*weight fc#.weight 6 10 + gradient Gradient___fc#.weight 6 10"
#define GRADIENTS                                                                        \
    "gradient Gradient___fc.weight 6 10, gradient Gradient___head.weight 6 10, "         \
    "weight fc.weight 6 10"
#define LARGE                                                                            \
    "gradient Gradient___fc.weight 6 10, weight fc.weight 4096 2, bias fc.bias 10"

static const stream_case cases[] = {
    {"random units", "SymmetricUnits", UNITS, units, RANDOM, STEPS},
    {"constant units", "SymmetricUnits", UNITS, units, CONSTANT, STEPS, FOUND,
     "fc.weight", 0},
    {"equal rows", "SymmetricUnits", UNITS, units, ROWS_ALIKE, STEPS, FOUND, "fc.weight",
     0},
    {"units that are 0 at first", "SymmetricUnits", UNITS, units, ZERO_AT_FIRST, STEPS},
    {"units that are 0 for ever", "SymmetricUnits", UNITS, units, ZERO_FOR_EVER, STEPS,
     FOUND, "fc.weight", 4},
    {"one pair of equal rows", "SymmetricUnits", UNITS, units, ONE_PAIR, STEPS},
    {"units that are no numbers", "SymmetricUnits", UNITS, units, NOT_A_NUMBER, STEPS},
    {"zeros with a gradient", "SymmetricUnits", THREE, zeros, ITS_GRADIENT, STEPS},
    {"zeros like most weights", "SymmetricUnits", THREE, zeros, OTHER_ZERO, STEPS, FOUND,
     "fc0.weight", 0, .findings = 2},
    {"zeros beside other weights", "SymmetricUnits", THREE, zeros, OTHER_NOT, STEPS,
     FOUND, "fc0.weight", 4},
    {"gradients are cleared", "MissingZeroGrad", GRADIENTS, gradients, CLEARED, STEPS},
    {"gradients add up", "MissingZeroGrad", GRADIENTS, gradients, NOT_CLEARED, STEPS,
     FOUND, "", 4},
    {"gradients are alike", "MissingZeroGrad", GRADIENTS, gradients, ALIKE, STEPS},
    {"gradients explode", "MissingZeroGrad", GRADIENTS, gradients, EXPLODING, STEPS},
    {"gradients grow", "MissingZeroGrad", GRADIENTS, gradients, GROWING, STEPS},
    {"gradients leave a plateau", "MissingZeroGrad", GRADIENTS, gradients, LEAVING,
     STEPS},
    {"gradients are summed over batches", "MissingZeroGrad", GRADIENTS, gradients, SUMMED,
     STEPS},
    {"gradients swing", "MissingZeroGrad", GRADIENTS, gradients, SWINGING, STEPS},
    {"frozen small parameters say nothing", "MissingZeroGrad", LARGE, small_parameters, 0,
     STEPS, FOUND, "", 25},
    {"updates wait in small parameters", "MissingZeroGrad", LARGE, small_parameters, 1,
     STEPS},
    {"gradients that grow are no sums", "MissingZeroGrad",
     "gradient gradient/fc.weight 32 8", equal_gradients, 0, 8, SILENT},
    {"sums of equal gradients", "MissingZeroGrad", "gradient gradient/fc.weight 32 8",
     equal_gradients, 1, 8, FOUND, .findings = 1},
};

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(sums_with_a_cause_are_a_note),
        cmocka_unit_test(channels_with_biases_of_their_own_are_not_alike),
        cmocka_unit_test(the_work_grows_as_the_tensors_do),
    };

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}
