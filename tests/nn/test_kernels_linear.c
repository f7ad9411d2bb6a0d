/*
 * The fast kernels of the linear layer and its gradients against the scalar references,
 * on every instruction set of this processor, in one to three parts.
 */
#include "kernel_case.h"
#include "base/cpu.h"
#include "base/macros.h"

#include <float.h>

/* N, K, O: full and partial blocks, tiles and panels, and sums in several chunks. */
static const int64_t shapes[][3] = {
    {1, 1, 1},    {16, 32, 12},  {15, 17, 13},  {17, 31, 5},
    {32, 64, 24}, {33, 33, 25},  {47, 50, 10},  {64, 15, 61},
    {100, 16, 7}, {7, 1100, 26}, {40, 1030, 3}, {2070, 37, 14},
    {16, 100, 1}, {3, 5, 1100},  {150, 49, 30}, {2060, 3, 2},
};
/* Products of numbers below 1, `depth` of them: each rounding is at most half an epsilon
 * of a partial sum, of the order of sqrt(depth). */
static double sum_tolerance(int64_t depth)
{
    return (double)FLT_EPSILON * (double)(depth + 8);
}

/* --- matrices ----------------------------------------------------------------------- */

typedef struct matrices {
    int64_t n, k, o;
    float *x, *w, *b, *dy;
} matrices;

static matrices matrices_of(const int64_t shape[3])
{
    const int64_t n = shape[0], k = shape[1], o = shape[2];
    const matrices m = {n,
                        k,
                        o,
                        case_random((size_t)(n * k), 11),
                        case_random((size_t)(o * k), 12),
                        case_random((size_t)o, 13),
                        case_random((size_t)(n * o), 14)};

    return m;
}

static void matrices_free(matrices m)
{
    free(m.x), free(m.w), free(m.b), free(m.dy);
}

/* NaN and infinities somewhere in all of them. */
static void spoil(const matrices *m)
{
    m->x[m->n * m->k / 2] = NAN;
    m->x[m->n * m->k - 1] = INFINITY;
    m->w[m->o * m->k / 3] = INFINITY;
    m->w[m->o * m->k - 1] = -INFINITY;
    m->dy[m->n * m->o / 2] = NAN;
    m->dy[0] = -INFINITY;
}

static void check_forward(const matrices *m, const float *bias)
{
    op_case op = {.kind = &sonde__op_linear,
                  .count = (size_t)(m->n * m->o),
                  .tolerance = sum_tolerance(m->k)};

    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->x, 2, m->n, m->k);
    case_in(&op.base, m->w, 2, m->o, m->k);
    case_in(&op.base, bias, 1, m->o, 0);
    case_out(&op.base, NULL, 2, m->n, m->o);
    each_kernel(SONDE__FAST_LINEAR, check_op, &op);
    op.kind = &sonde__op_linear_relu;
    op.out = 1;
    case_out(&op.base, NULL, 2, m->n, m->o);
    each_kernel(SONDE__FAST_LINEAR_RELU, check_op, &op);
}

static void check_gradients(const matrices *m)
{
    op_case op = {.kind = &sonde__op_linear_grad_input,
                  .count = (size_t)(m->n * m->k),
                  .tolerance = sum_tolerance(m->o)};

    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->dy, 2, m->n, m->o);
    case_in(&op.base, m->w, 2, m->o, m->k);
    case_out(&op.base, NULL, 2, m->n, m->k);
    each_kernel(SONDE__FAST_LINEAR_GRAD_INPUT, check_op, &op);

    op.kind = &sonde__op_linear_grad_weight;
    op.count = (size_t)(m->o * m->k);
    op.tolerance = sum_tolerance(m->n);
    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->dy, 2, m->n, m->o);
    case_in(&op.base, m->x, 2, m->n, m->k);
    case_out(&op.base, NULL, 2, m->o, m->k);
    each_kernel(SONDE__FAST_LINEAR_GRAD_WEIGHT, check_op, &op);

    op.kind = &sonde__op_channel_sum;
    op.count = (size_t)m->o;
    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->dy, 2, m->n, m->o);
    case_out(&op.base, NULL, 1, m->o, 0);
    each_kernel(SONDE__FAST_CHANNEL_SUM, check_op, &op);
}

static void test_products(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(shapes); i++) {
        const matrices m = matrices_of(shapes[i]);

        check_forward(&m, i % 2 == 0 ? m.b : NULL);
        check_gradients(&m);
        matrices_free(m);
    }
}

static void test_nan_and_infinity_propagate(void **state)
{
    static const int64_t few[][3] = {{33, 50, 26}, {5, 1030, 14}, {2070, 9, 3}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(few); i++) {
        const matrices m = matrices_of(few[i]);

        spoil(&m);
        check_forward(&m, m.b);
        check_gradients(&m);
        matrices_free(m);
    }
}

/* --- fused: the bits of the members ------------------------------------------------- */

/* linear_relu gives the bits of linear and relu, whether or not the former is kept. */
static void test_linear_relu_is_its_members(void **state)
{
    (void)state;
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const matrices m = matrices_of((const int64_t[]){37, 1090, 23});
        const size_t count = (size_t)(m.n * m.o);
        float *y = case_random(count, 1), *pre = case_random(count, 2);
        float *fused = case_random(count, 3), *alone = case_random(count, 4);
        kernel_case c;

        case_init(&c, NULL, NULL);
        case_in(&c, m.x, 2, m.n, m.k);
        case_in(&c, m.w, 2, m.o, m.k);
        case_in(&c, m.b, 1, m.o, 0);
        case_out(&c, y, 2, m.n, m.o);
        case_run(
            &c, sonde__kernel_fast_kernels_of((sonde__isa)isa, SONDE__FAST_LINEAR)[0], 1);
        c.out[0] = pre;
        case_out(&c, fused, 2, m.n, m.o);
        case_run(
            &c,
            sonde__kernel_fast_kernels_of((sonde__isa)isa, SONDE__FAST_LINEAR_RELU)[0],
            1);
        c.out[0] = NULL;
        c.out[1] = alone;
        case_run(
            &c,
            sonde__kernel_fast_kernels_of((sonde__isa)isa, SONDE__FAST_LINEAR_RELU)[1],
            2);
        assert_same_bits(pre, y, count);
        for (size_t i = 0; i < count; i++) {
            y[i] = y[i] < 0.0F ? 0.0F : y[i];
        }
        assert_same_bits(fused, y, count);
        assert_same_bits(alone, y, count);
        free(y), free(pre), free(fused), free(alone);
        matrices_free(m);
    }
}

static float *copy_of(const float *data, size_t count)
{
    float *copy = malloc((count + 1) * sizeof *copy);

    assert_non_null(copy);
    memcpy(copy, data, count * sizeof *copy);
    return copy;
}

typedef struct sgd_fused_case {
    const matrices *m;
    const float *live;
    sonde__isa isa;
    sonde_vitals *norms; /* NULL, or where those of w and dw go */
} sgd_fused_case;

/* Sums within 2e-5 of those in double, the rest equal. */
static void assert_norms(const sonde_vitals *got, float *data, size_t count)
{
    const sonde_vitals expected = vitals_of(data, count);

    assert_true(sonde_vitals_are_norms(got));
    assert_int_equal(got->count, count);
    assert_true(got->nan == expected.nan && got->pos_inf == expected.pos_inf &&
                got->neg_inf == expected.neg_inf);
    assert_true(got->abs_max == expected.abs_max);
    assert_true(fabs(got->sum - expected.sum) <= 2e-5 * expected.l1);
    assert_true(fabs(got->sumsq - expected.sumsq) <= 2e-5 * expected.sumsq);
}

static void check_sgd_fused(const sonde__op_kernel *fused, const sgd_fused_case *f,
                            int parts, bool keep_dw, bool vitals)
{
    const matrices *m = f->m;
    const size_t count = (size_t)(m->o * m->k);
    float *dw = case_random(count, 1), *v0 = case_random(count, 2);
    float *w = copy_of(m->w, count), *v = copy_of(v0, count);
    float *fused_dw = case_random(count, 3), *fused_w = case_random(count, 4);
    float *fused_v = case_random(count, 5);
    sonde_vitals signs[3], again;
    uint8_t bad[3] = {0xFF, 0xFF, 0xFF};
    kernel_case c;

    case_init(&c, NULL, NULL);
    case_in(&c, m->dy, 2, m->n, m->o);
    case_in(&c, m->x, 2, m->n, m->k);
    case_out(&c, dw, 2, m->o, m->k);
    case_run(&c, sonde__kernel_fast_kernels_of(f->isa, SONDE__FAST_LINEAR_GRAD_WEIGHT)[0],
             1);
    case_init(&c, NULL, f->live);
    case_in(&c, m->w, 2, m->o, m->k);
    case_in(&c, dw, 2, m->o, m->k);
    case_in(&c, v0, 2, m->o, m->k);
    case_out(&c, w, 2, m->o, m->k);
    case_alias(&c, 0);
    case_out(&c, v, 2, m->o, m->k);
    case_alias(&c, 2);
    case_run(&c, sonde__kernel_fast_kernels_of(f->isa, SONDE__FAST_SGD)[0], 1);

    case_init(&c, NULL, f->live);
    case_in(&c, m->w, 2, m->o, m->k);
    case_in(&c, m->dy, 2, m->n, m->o);
    case_in(&c, m->x, 2, m->n, m->k);
    case_in(&c, v0, 2, m->o, m->k);
    case_out(&c, fused_w, 2, m->o, m->k);
    case_alias(&c, 0);
    case_out(&c, keep_dw ? fused_dw : NULL, 2, m->o, m->k);
    case_out(&c, fused_v, 2, m->o, m->k);
    case_alias(&c, 3);
    for (int i = 0; i < 3; i++) {
        c.call.out_vitals[i] = vitals ? &signs[i] : NULL;
    }
    for (int i = 0; f->norms != NULL && i < 2; i++) {
        c.call.out_vitals[i] = &f->norms[i];
        c.call.norms_out |= 1U << (unsigned)i;
    }
    c.call.bad = bad;
    c.again = &again;
    case_run(&c, fused, parts);
    if (f->norms != NULL) {
        assert_norms(&f->norms[0], w, count);
        assert_norms(&f->norms[1], dw, count);
    }
    assert_int_equal(case_is_bad(bad, parts), case_has_bad(dw, count));
    assert_same_vitals(&again, dw, count);
    assert_same_bits(fused_w, w, count);
    assert_same_bits(fused_v, v, count);
    if (keep_dw) {
        assert_same_bits(fused_dw, dw, count);
    }
    if (vitals) {
        assert_same_vitals(&signs[0], w, count);
        assert_same_vitals(&signs[1], dw, count);
        assert_same_vitals(&signs[2], v, count);
    }
    free(dw), free(v0), free(w), free(v), free(fused_dw), free(fused_w), free(fused_v);
}

static void test_grad_weight_sgd_is_its_members(void **state)
{
    static const int64_t some[][3] = {
        {32, 784, 60}, {16, 100, 10}, {50, 33, 47}, {2060, 70, 75}, {3, 1, 1}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(some); i++) {
        const matrices m = matrices_of(some[i]);

        for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
            const sonde__op_kernel *const *fused = sonde__kernel_fast_kernels_of(
                (sonde__isa)isa, SONDE__FAST_LINEAR_GRAD_WEIGHT_SGD);

            for (int k = 0; fused[k] != NULL; k++) {
                const sgd_fused_case f = {&m, sgd_rules[(i + (size_t)k) % 5],
                                          (sonde__isa)isa, NULL};

                check_sgd_fused(fused[k], &f, 1, k == 0, true);
                check_sgd_fused(fused[k], &f, 1, k != 0, true);
                check_sgd_fused(fused[k], &f, 2, k != 0, true);
                check_sgd_fused(fused[k], &f, 3, k == 0, true);
                check_sgd_fused(fused[k], &f, 3, k == 1, false);
            }
        }
        matrices_free(m);
    }
}

/* One bad element of dy or x, anywhere, is told, and by `again` in full. */
static void test_bad_gradients_are_told(void **state)
{
    static const int64_t some[][3] = {{32, 784, 60}, {50, 33, 47}, {3, 1, 1}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(some); i++) {
        for (int where = 0; where < 4; where++) {
            const matrices m = matrices_of(some[i]);
            const sonde__isa isa = sonde__cpu_isa();
            const sonde__op_kernel *const *fused =
                sonde__kernel_fast_kernels_of(isa, SONDE__FAST_LINEAR_GRAD_WEIGHT_SGD);

            m.dy[0] = where == 0 ? NAN : m.dy[0];
            m.dy[m.n * m.o - 1] = where == 1 ? INFINITY : m.dy[m.n * m.o - 1];
            m.x[m.n * m.k - 1] = where == 2 ? -INFINITY : m.x[m.n * m.k - 1];
            m.x[0] = where == 3 ? 3e38F : m.x[0]; /* overflows */
            m.dy[0] = where == 3 ? 3e38F : m.dy[0];
            for (int k = 0; fused[k] != NULL; k++) {
                const sgd_fused_case f = {&m, sgd_rules[(i + (size_t)k) % 5], isa, NULL};

                check_sgd_fused(fused[k], &f, 1, k == 0, where % 2 == 0);
                check_sgd_fused(fused[k], &f, 3, k != 0, where % 2 != 0);
            }
            matrices_free(m);
        }
    }
}

/* Norms and the update together: the same weights, and norms that do not depend on how the
 * call is divided. */
static void test_norms_of_updates(void **state)
{
    static const int64_t some[][3] = {{32, 784, 60},  {16, 100, 10}, {50, 33, 47},
                                      {2060, 70, 75}, {3, 1, 1},     {16, 1600, 40},
                                      {300, 500, 26}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(some); i++) {
        for (int where = 0; where < 4; where++) {
            const matrices m = matrices_of(some[i]);
            const sonde__isa isa = sonde__cpu_isa();
            const sonde__op_kernel *const *fused =
                sonde__kernel_fast_kernels_of(isa, SONDE__FAST_LINEAR_GRAD_WEIGHT_SGD);

            m.dy[0] = where == 1 ? NAN : where == 2 ? 1e-30F : m.dy[0];
            m.x[m.n * m.k - 1] = where == 3 ? -INFINITY : m.x[m.n * m.k - 1];
            for (int k = 0; fused[k] != NULL; k++) {
                const size_t rules = i == 0 ? SONDE_COUNT_OF(sgd_rules) : 1;

                for (size_t rule = 0; rule < rules; rule++) {
                    sonde_vitals norms[4][2];

                    for (int parts = 1; parts < 4; parts++) {
                        const sgd_fused_case f = {&m, sgd_rules[rule], isa, norms[parts]};

                        check_sgd_fused(fused[k], &f, parts, false, false);
                        assert_memory_equal(norms[parts], norms[1], sizeof norms[1]);
                    }
                }
            }
            matrices_free(m);
        }
    }
}

/* --- how many parts ----------------------------------------------------------------- */

static void test_parts(void **state)
{
    const sonde__op_kernel *linear =
        sonde__kernel_fast_kernels_of(sonde__cpu_isa(), SONDE__FAST_LINEAR)[0];
    kernel_case c;

    (void)state;
    case_init(&c, NULL, NULL);
    case_in(&c, NULL, 2, 32, 128);
    case_in(&c, NULL, 2, 10, 128);
    assert_int_equal(linear->parts(&c.call, 8), 1); /* 82 kFLOP */
    c.call.in[0].shape = case_shape(2, 32, 784);
    c.call.in[1].shape = case_shape(2, 256, 784);
    assert_int_equal(linear->parts(&c.call, 2), 2); /* 13 MFLOP */
    assert_int_equal(linear->parts(&c.call, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_nan_and_infinity_propagate),
        cmocka_unit_test(test_linear_relu_is_its_members),
        cmocka_unit_test(test_grad_weight_sgd_is_its_members),
        cmocka_unit_test(test_bad_gradients_are_told),
        cmocka_unit_test(test_norms_of_updates),
        cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
