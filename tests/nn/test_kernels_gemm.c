/*
 * The product of matrices against double sums, on every instruction set of this
 * processor: shapes around every block and tile, all transposes, parts, NaN.
 */
#include "kernel_case.h"
#include "base/macros.h"
#include "nn/kernels/gemm.h"

#include <stdio.h>

typedef struct gemm_case {
    int64_t m, n, k;
} gemm_case;

static const gemm_case cases[] = {
    {1, 1, 1},   {1, 1, 0},   {6, 64, 16},   {7, 65, 3},      {5, 17, 257},
    {13, 48, 9}, {1, 128, 7}, {97, 130, 40}, {200, 800, 300}, {12, 31, 513},
};

enum { PAD = 3 }; /* numbers between rows, which must stay as they are */

typedef struct matrices {
    const gemm_case *shape;
    float *a, *b, *c, *out;
    bool a_transposed, b_transposed, accumulate;
    double *expected, *size; /* the sum, and the sum of magnitudes */
    void *scratch;
} matrices;

static sonde__kernel_gemm_matrix matrix(const float *data, int64_t rows, int64_t cols,
                                        bool transposed)
{
    return transposed ? (sonde__kernel_gemm_matrix){data, 1, rows + PAD}
                      : (sonde__kernel_gemm_matrix){data, cols + PAD, 1};
}

static sonde__kernel_gemm product_of(const matrices *x)
{
    const gemm_case *s = x->shape;

    return (sonde__kernel_gemm){.m = s->m,
                                .n = s->n,
                                .k = s->k,
                                .a = matrix(x->a, s->m, s->k, x->a_transposed),
                                .b = matrix(x->b, s->k, s->n, x->b_transposed),
                                .c = x->out,
                                .c_row = s->n + PAD,
                                .accumulate = x->accumulate};
}

static size_t count_of(int64_t rows, int64_t cols)
{
    return (size_t)((rows + PAD) * (cols + PAD));
}

static void expect(matrices *x)
{
    const sonde__kernel_gemm g = product_of(x);

    for (int64_t i = 0; i < g.m; i++) {
        for (int64_t j = 0; j < g.n; j++) {
            double sum = x->accumulate ? (double)x->c[i * g.c_row + j] : 0.0;
            double size = fabs(sum);

            for (int64_t p = 0; p < g.k; p++) {
                const double term = (double)g.a.data[i * g.a.row + p * g.a.col] *
                                    (double)g.b.data[p * g.b.row + j * g.b.col];

                sum += term;
                size += fabs(term);
            }
            x->expected[i * g.n + j] = sum;
            x->size[i * g.n + j] = size;
        }
    }
}

/* A chain of k rounded sums errs by at most k halves of an ulp of its largest sum. */
static void check_numbers(const matrices *x)
{
    const gemm_case *s = x->shape;
    const double unit = (double)(s->k + 1) * 6e-8;

    for (int64_t i = 0; i < s->m; i++) {
        for (int64_t j = 0; j < s->n + PAD; j++) {
            const double got = (double)x->out[i * (s->n + PAD) + j];
            const double wanted =
                j < s->n ? x->expected[i * s->n + j] : (double)x->c[i * (s->n + PAD) + j];
            const double limit = j < s->n ? unit * x->size[i * s->n + j] : 0.0;

            if (!(fabs(got - wanted) <= limit)) {
                fail_msg("(%d, %d) of %d x %d x %d is %.9g, expected %.9g", (int)i,
                         (int)j, (int)s->m, (int)s->n, (int)s->k, got, wanted);
            }
        }
    }
}

static void check_parts(matrices *x, sonde__kernel_gemm_fn *run, const float *whole)
{
    const size_t count = count_of(x->shape->m, x->shape->n);

    for (int parts = 2; parts <= 3; parts++) {
        memcpy(x->out, x->c, count * sizeof(float));
        for (int part = parts - 1; part >= 0; part--) {
            sonde__kernel_gemm share = product_of(x);

            sonde__kernel_gemm_take_part(&share, part, parts);
            run(&share, x->scratch);
        }
        assert_same_bits(x->out, whole, count);
    }
}

static void check_case(matrices *x, sonde__kernel_gemm_fn *run)
{
    const size_t count = count_of(x->shape->m, x->shape->n);
    float *const whole = malloc(count * sizeof *whole);
    const sonde__kernel_gemm g = product_of(x);

    assert_non_null(whole);
    memcpy(x->out, x->c, count * sizeof(float));
    run(&g, x->scratch);
    check_numbers(x);
    memcpy(whole, x->out, count * sizeof(float));
    check_parts(x, run, whole);
    free(whole);
}

static matrices make(const gemm_case *s)
{
    matrices x = {.shape = s};

    x.a = case_random(count_of(s->m, s->k), 1);
    x.b = case_random(count_of(s->k, s->n), 2);
    x.c = case_random(count_of(s->m, s->n), 3);
    x.out = case_random(count_of(s->m, s->n), 4);
    x.expected = malloc((size_t)(s->m * s->n) * sizeof *x.expected);
    x.size = malloc((size_t)(s->m * s->n) * sizeof *x.size);
    x.scratch = aligned_alloc(64, sonde__kernel_gemm_scratch());
    assert_true(x.expected != NULL && x.size != NULL && x.scratch != NULL);
    memset(x.scratch, 0xFF, sonde__kernel_gemm_scratch()); /* NaN */
    return x;
}

static void destroy(matrices *x)
{
    free(x->a);
    free(x->b);
    free(x->c);
    free(x->out);
    free(x->expected);
    free(x->size);
    free(x->scratch);
}

static void product(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        matrices x = make(&cases[i]);

        for (unsigned kind = 0; kind < 8; kind++) {
            x.a_transposed = (kind & 1U) != 0;
            x.b_transposed = (kind & 2U) != 0;
            x.accumulate = (kind & 4U) != 0;
            expect(&x);
            for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
                check_case(&x, sonde__kernel_gemm_run_of((sonde__isa)isa));
            }
        }
        destroy(&x);
    }
}

/* A number of C is NaN where its row of A or column of B has one, and nowhere else. */
static void not_a_number(void **state)
{
    static const gemm_case shape = {7, 70, 300};
    matrices x = make(&shape);

    (void)state;
    x.a[2 * (shape.k + PAD) + 290] = NAN;
    x.b[5 * (shape.n + PAD) + 69] = INFINITY;
    x.a[3 * (shape.k + PAD) + 5] = 0.0F; /* 0 times infinity */
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__kernel_gemm g = product_of(&x);

        sonde__kernel_gemm_run_of((sonde__isa)isa)(&g, x.scratch);
        for (int64_t i = 0; i < shape.m; i++) {
            for (int64_t j = 0; j < shape.n; j++) {
                const float got = x.out[i * g.c_row + j];

                assert_int_equal(isnan(got) != 0, i == 2 || (i == 3 && j == 69));
                assert_true(isfinite(got) || i == 2 || j == 69);
            }
        }
    }
    destroy(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product),
        cmocka_unit_test(not_a_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
