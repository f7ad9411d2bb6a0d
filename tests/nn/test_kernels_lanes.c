/*
 * The fast kernels of pooling, group norm, softmax and NLL against the scalar references;
 * the vector exp and log; the lists of kernels over LANES.
 */
#include "nn/kernels_check.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/random.h"
#include "nn/kernels/rows.h"
#include "nn/ops/ops.h"

DEFINE_PICK(pool_kernel, MAX_POOL2D, 0)
DEFINE_PICK(pool_grad_kernel, MAX_POOL2D_GRAD, 0)
DEFINE_PICK(norm_kernel, GROUP_NORM, 0)
DEFINE_PICK(norm_grad_kernel, GROUP_NORM_GRAD, 0)
DEFINE_PICK(softmax_kernel, SOFTMAX, 0)
DEFINE_PICK(log_softmax_kernel, LOG_SOFTMAX, 0)
DEFINE_PICK(softmax_grad_kernel, SOFTMAX_GRAD, 0)
DEFINE_PICK(log_softmax_grad_kernel, LOG_SOFTMAX_GRAD, 0)
DEFINE_PICK(nll_kernel, NLL, 0)
DEFINE_PICK(nll_grad_kernel, NLL_GRAD, 0)

/* --- pooling ------------------------------------------------------------------------ */

typedef struct pool_case {
    int64_t n, c, h, w, kh, kw, stride, padding, dilation;
} pool_case;

static const pool_case pool_cases[] = {
    {16, 5, 26, 26, 2, 2, 2, 0, 1}, {17, 2, 7, 9, 2, 2, 2, 0, 1},
    {1, 3, 6, 6, 3, 3, 2, 1, 1},    {15, 1, 5, 5, 3, 3, 1, 1, 1},
    {2, 2, 8, 7, 3, 2, 1, 1, 2},    {33, 1, 3, 3, 2, 2, 3, 1, 1},
    {2, 2, 9, 9, 2, 3, 4, 0, 1},    {3, 1, 16, 16, 16, 16, 1, 0, 1},
};

static op_run pool_run_of(const pool_case *c, const sonde__op_kind *kind)
{
    const op_run run = {.kind = kind,
                        .attrs = {.window = {.kernel = {c->kh, c->kw},
                                             .stride = {c->stride, c->stride},
                                             .padding = {c->padding, c->padding},
                                             .dilation = {c->dilation, c->dilation}}}};

    return run;
}

static void pooling(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(pool_cases); i++) {
        const pool_case *c = &pool_cases[i];
        op_run run = pool_run_of(c, &sonde__op_max_pool2d);
        op_run odd = pool_run_of(c, &sonde__op_max_pool2d);

        add_random(&run, DIMS(c->n, c->c, c->h, c->w));
        add_random(&odd, DIMS(c->n, c->c, c->h, c->w));
        put_oddities(&odd, i % 2 == 0);
        check(&run, pool_kernel, 0.0);
        check(&odd, pool_kernel, 0.0);
    }
}

static void pooling_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(pool_cases); i++) {
        const pool_case *c = &pool_cases[i];
        op_run forward = pool_run_of(c, &sonde__op_max_pool2d);
        op_run run = pool_run_of(c, &sonde__op_max_pool2d_grad);
        void *out[2];

        add_random(&forward, DIMS(c->n, c->c, c->h, c->w));
        infer(&forward);
        run_kernel(&forward, reference_of(forward.kind), &(run_options){.parts = 1}, out);
        add_random(&run, forward.out[0].rank, forward.out[0].dim);
        add_input(&run, forward.out[1].rank, forward.out[1].dim, out[1], SONDE_U8);
        set_dims(&run, DIMS(c->n, c->c, c->h, c->w));
        spoil(&run);
        /* at most 9 windows meet in a pixel of these cases, or the one window is alone */
        check(&run, pool_grad_kernel, 9 * (double)FLT_EPSILON);
        free(out[0]);
        free_inputs(&forward);
    }
}

/* --- group norm --------------------------------------------------------------------- */

typedef struct norm_case {
    int rank;
    int64_t dim[4], groups;
} norm_case;

static const norm_case norm_cases[] = {
    {4, {16, 12, 9, 9}, 3}, {4, {17, 6, 5, 3}, 2},  {2, {15, 8}, 4},    {3, {1, 4, 7}, 4},
    {4, {33, 4, 2, 2}, 1},  {4, {2, 3, 40, 40}, 1}, {3, {16, 5, 1}, 1},
};

static op_run norm_run_of(const norm_case *c, const sonde__op_kind *kind)
{
    const op_run run = {.kind = kind,
                        .attrs = {.norm = {.groups = c->groups, .eps = 1e-5F}}};

    return run;
}

static void group_norm(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(norm_cases); i++) {
        for (int affine = 0; affine <= 2; affine++) { /* none, gamma, gamma and beta */
            op_run run = norm_run_of(&norm_cases[i], &sonde__op_group_norm);

            add_random(&run, norm_cases[i].rank, norm_cases[i].dim);
            for (int k = 0; k < affine; k++) {
                add_random(&run, DIMS(norm_cases[i].dim[1]));
            }
            if (affine == 1) {
                ((float *)run.in[0].data)[0] = i % 2 == 0 ? NAN : INFINITY;
            }
            /* y is below 10 but for groups of few elements, where rstd is up to 300 */
            check(&run, norm_kernel, 300 * 2 * (double)FLT_EPSILON);
        }
    }
}

/* The statistics as they are, of the same x. */
static void add_statistics(op_run *run, const norm_case *c)
{
    op_run forward = norm_run_of(c, &sonde__op_group_norm);
    void *out[3];

    add_random(&forward, c->rank, c->dim);
    infer(&forward);
    run_kernel(&forward, reference_of(forward.kind), &(run_options){.parts = 1}, out);
    run->in[run->in_count++] = plain(&forward.in[0].shape, forward.in[0].data);
    run->in[run->in_count++] = plain(&forward.out[1], out[1]);
    run->in[run->in_count++] = plain(&forward.out[2], out[2]);
    free(out[0]);
}

static void group_norm_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(norm_cases); i++) {
        const norm_case *c = &norm_cases[i];

        for (int gamma = 0; gamma <= 1; gamma++) {
            const size_t per_channel = count_of(c->rank, c->dim) / (size_t)c->dim[1];
            op_run run = norm_run_of(c, &sonde__op_group_norm_grad);

            add_random(&run, c->rank, c->dim);
            add_statistics(&run, c);
            if (gamma == 1) {
                add_random(&run, DIMS(c->dim[1]));
                ((float *)run.in[0].data)[1] = NAN;
            }
            check(&run, norm_grad_kernel,
                  sum_tolerance((int64_t)per_channel) + 300 * 4 * (double)FLT_EPSILON);
        }
    }
}

/* A mean far from 0 must not eat the variance. */
static void group_norm_of_a_large_mean(void **state)
{
    const norm_case c = {4, {16, 4, 20, 20}, 2};
    op_run run = norm_run_of(&c, &sonde__op_group_norm);

    (void)state;
    add_random(&run, c.rank, c.dim);
    for (size_t i = 0; i < count_of(c.rank, c.dim); i++) {
        ((float *)run.in[0].data)[i] += 1000.0F;
    }
    /* x has an error of half an epsilon of 1000 already, a tenth of which is here */
    check(&run, norm_kernel, 1000 * (double)FLT_EPSILON);
}

/* --- softmax and NLL ---------------------------------------------------------------- */

static void softmax(void **state)
{
    static const struct {
        int rank, axis;
        int64_t dim[4];
    } cases[] = {{2, 1, {16, 10}},     {2, 1, {17, 1}},    {2, 1, {33, 7}},
                 {3, 1, {1, 5, 4}},    {3, 2, {15, 3, 6}}, {4, 2, {2, 3, 4, 2}},
                 {4, 3, {16, 2, 2, 9}}};
    static const sonde__op_kind *const kinds[] = {
        &sonde__op_softmax, &sonde__op_log_softmax, &sonde__op_softmax_grad,
        &sonde__op_log_softmax_grad};
    const pick picks[] = {softmax_kernel, log_softmax_kernel, softmax_grad_kernel,
                          log_softmax_grad_kernel};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases) * 4 * 2; i++) {
        const size_t k = i / 2 % 4, at = i / 8;
        op_run run = {.kind = kinds[k], .attrs = {.along = {.axis = cases[at].axis}}};
        const size_t count = count_of(cases[at].rank, cases[at].dim);

        add_random(&run, cases[at].rank, cases[at].dim);
        for (size_t e = 0; e < count; e++) {
            ((float *)run.in[0].data)[e] *= 20.0F;
        }
        if (k >= 2) {
            add_random(&run, cases[at].rank, cases[at].dim);
        }
        if (i % 2 == 1) {
            ((float *)run.in[0].data)[0] = NAN;
            ((float *)run.in[0].data)[count - 1] = INFINITY;
            ((float *)run.in[0].data)[count / 2] = -INFINITY;
        }
        /* results of up to 40 times nine terms, exp right to 2 units in the last place */
        check(&run, picks[k], 40 * 9 * 2 * (double)FLT_EPSILON);
    }
}

static void a_line_of_minus_infinity_is_nan(void **state)
{
    op_run run = {.kind = &sonde__op_log_softmax, .attrs = {.along = {.axis = 1}}};

    (void)state;
    add_random(&run, DIMS(3, 4));
    for (int i = 4; i < 8; i++) {
        ((float *)run.in[0].data)[i] = -INFINITY;
    }
    check(&run, log_softmax_kernel, 8 * (double)FLT_EPSILON);
}

/* Samples 2 and N - 1 have classes that do not exist if `wrong`. */
static void add_targets(op_run *run, int64_t n, int64_t classes, bool wrong)
{
    int64_t *target = poisoned_block((size_t)n * sizeof *target);

    for (int64_t i = 0; i < n; i++) {
        target[i] = (int64_t)sonde__below(9, 1, (uint64_t)i, (uint64_t)classes);
    }
    if (wrong && n > 2) {
        target[2] = -1;
        target[n - 1] = classes;
    }
    add_input(run, DIMS(n), target, SONDE_I64);
}

static void nll(void **state)
{
    static const int64_t shapes[][2] = {{16, 10}, {1, 3}, {15, 1}, {17, 4}, {33, 10}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(shapes) * 4; i++) {
        const int64_t n = shapes[i / 4][0], classes = shapes[i / 4][1];
        const sonde__op_attrs attrs = {.loss = {.mean = i % 2 == 1}};
        op_run loss = {.kind = &sonde__op_nll, .attrs = attrs};
        op_run grad = {.kind = &sonde__op_nll_grad, .attrs = attrs};

        add_random(&loss, DIMS(n, classes));
        add_targets(&loss, n, classes, i % 4 >= 2);
        add_random(&grad, 0, (int64_t[]){0});
        add_targets(&grad, n, classes, i % 4 >= 2);
        set_dims(&grad, DIMS(n, classes));
        check(&loss, nll_kernel, 0.0);
        check(&grad, nll_grad_kernel, 0.0);
    }
}

/* Lanes that hold no sample get no gradient: what follows may add over lanes. */
static void nll_gradient_of_padding_lanes_is_zero(void **state)
{
    const sonde__op_attrs attrs = {.loss = {.mean = true, .dims = {3, 2}, .rank = 2}};
    float dloss = 1.0F, dlogp[2 * 16];
    int64_t target[] = {0, 1, 0};

    (void)state;
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__op_call call = {
            .attrs = &attrs,
            .in_count = 2,
            .out_count = 1,
            .in = {{{SONDE_F32, 0, {0}}, SONDE__PLAIN, &dloss},
                   {{SONDE_I64, 1, {3}}, SONDE__PLAIN, target}},
            .out = {{{SONDE_F32, 2, {3, 2}}, SONDE__LANES, dlogp}}};

        memset(dlogp, 0xFF, sizeof dlogp);
        KERNEL((sonde__isa)isa, NLL_GRAD, 0)->run(&call, 0, 1);
        for (int lane = 3; lane < 16; lane++) {
            assert_true(dlogp[lane] == 0.0F && dlogp[16 + lane] == 0.0F);
        }
    }
}

/* --- exp and log -------------------------------------------------------------------- */

/* Units in the last place between a float and the true value. */
static double ulps(float got, double expected)
{
    const double size = fabs(expected);
    int exponent = 0;

    if (size > (double)FLT_MAX || isnan(expected)) {
        return isnan(expected) ? (isnan(got) ? 0.0 : HUGE_VAL)
               : (double)got == copysign((double)INFINITY, expected) ? 0.0
                                                                     : HUGE_VAL;
    }
    (void)frexp(fmax(size, (double)FLT_MIN), &exponent);
    return fabs((double)got - expected) / ldexp(1.0, exponent - 24);
}

static double worst_of(void (*run)(const float *, float *, int64_t),
                       double (*exact)(double))
{
    enum { BATCH = 4096, STEP = 2039 }; /* a prime: all patterns of low bits */
    static float from[BATCH], to[BATCH];
    double worst = 0.0;
    uint32_t bits = 0;
    bool over = false;

    while (!over) {
        for (size_t i = 0; i < BATCH; i++) {
            memcpy(&from[i], &bits, sizeof bits);
            over = over || bits > UINT32_MAX - STEP;
            bits += STEP;
        }
        run(from, to, BATCH);
        for (size_t i = 0; i < BATCH; i++) {
            worst = fmax(worst, ulps(to[i], exact((double)from[i])));
        }
    }
    return worst;
}

/* Every 2039th of all floats: both signs, subnormals, infinities and NaN. */
static void exp_and_log_are_right_to_two_ulps(void **state)
{
    (void)state;
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__kernel_row_functions *k = sonde__kernel_rows_of((sonde__isa)isa);
        const double of_exp = worst_of(k->exp, exp), of_log = worst_of(k->log, log);

        assert_true(of_exp <= 2.0);
        assert_true(of_log <= 2.0);
    }
}

static void exp_and_log_of_special_numbers(void **state)
{
    const float from[16] = {0.0F,    -0.0F,     INFINITY, -INFINITY, NAN,   -NAN,
                            1.0F,    88.72284F, -87.4F,   -104.0F,   1e30F, -1e30F,
                            FLT_MIN, 1e-45F,    -1.0F,    FLT_MAX};
    float e[16], l[16];

    (void)state;
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__kernel_row_functions *k = sonde__kernel_rows_of((sonde__isa)isa);

        k->exp(from, e, 16);
        k->log(from, l, 16);
        assert_true(e[0] == 1.0F && e[1] == 1.0F);
        assert_true(e[2] == INFINITY && e[3] == 0.0F && isnan(e[4]) && isnan(e[5]));
        assert_true(e[10] == INFINITY && e[11] == 0.0F && e[9] == 0.0F);
        assert_true(l[0] == -INFINITY && l[1] == -INFINITY && l[2] == INFINITY);
        assert_true(isnan(l[3]) && isnan(l[4]) && isnan(l[5]) && isnan(l[14]));
        assert_true(l[6] == 0.0F);
        for (int i = 0; i < 16; i++) {
            assert_true(ulps(e[i], exp((double)from[i])) <= 2.0);
            assert_true(ulps(l[i], log((double)from[i])) <= 2.0);
        }
    }
}

/* --- lists, and what is declined -- ------------------------------------------------- */

static void lists_end(void **state)
{
    (void)state;
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        for (int op = 0; op < SONDE__FAST_OPS; op++) {
            const sonde__op_kernel *const *list =
                sonde__kernel_fast_kernels_of((sonde__isa)isa, (sonde__kernel_fast_op)op);
            int count = 0;

            for (; list[count] != NULL; count++) {
                assert_non_null(list[count]->run);
            }
            assert_in_range(count, 1, 3);
        }
    }
}

static void other_dtypes_and_axis_0_are_declined(void **state)
{
    op_run run = {.kind = &sonde__op_softmax, .attrs = {.along = {.axis = 0}}};

    (void)state;
    add_random(&run, DIMS(3, 4));
    infer(&run);
    assert_false(kernel_accepts(&run, KERNEL(sonde__cpu_isa(), SOFTMAX, 0)));
    run.attrs.along.axis = 1;
    assert_true(kernel_accepts(&run, KERNEL(sonde__cpu_isa(), SOFTMAX, 0)));
    run.in[0].shape.dtype = SONDE_F64;
    assert_false(kernel_accepts(&run, KERNEL(sonde__cpu_isa(), SOFTMAX, 0)));
    free_inputs(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling),
        cmocka_unit_test(pooling_gradient),
        cmocka_unit_test(group_norm),
        cmocka_unit_test(group_norm_gradient),
        cmocka_unit_test(group_norm_of_a_large_mean),
        cmocka_unit_test(softmax),
        cmocka_unit_test(a_line_of_minus_infinity_is_nan),
        cmocka_unit_test(nll),
        cmocka_unit_test(nll_gradient_of_padding_lanes_is_zero),
        cmocka_unit_test(exp_and_log_are_right_to_two_ulps),
        cmocka_unit_test(exp_and_log_of_special_numbers),
        cmocka_unit_test(lists_end),
        cmocka_unit_test(other_dtypes_and_axis_0_are_declined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
