/*
 * Products in bfloat16 and float16 against double sums of rounded operands, by every unit
 * of this processor: shapes around blocks and tiles, all transposes, operands of both
 * dtypes, parts, bias, ReLU, NaN and infinities.
 */
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "cmocka_all.h"
#include "nn/kernels/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {{1, 1, 0},    {1, 1, 1},     {5, 3, 33},   {16, 16, 32},
                               {17, 31, 70}, {33, 47, 7},   {130, 20, 3}, {20, 300, 40},
                               {9, 260, 50}, {37, 20, 2100}};

typedef struct half_case {
    sonde__kernel_half_gemm g;
    float *a, *b, *c; /* dense, A and B as they lie */
    uint16_t *narrow_a, *narrow_b;
    double *sums, *sizes; /* of rounded operands, and of magnitudes */
    void *scratch;
} half_case;

static float rounded(sonde_dtype dtype, float value)
{
    uint16_t bits = 0;

    sonde_element_set(dtype, &bits, (double)value);
    return (float)sonde_element_get(dtype, &bits);
}

static float *draw(int64_t count, uint64_t seed)
{
    float *const made = sonde__malloc((size_t)(count + 1) * sizeof *made);

    for (int64_t i = 0; i < count; i++) {
        made[i] = 2.0F * sonde__uniform(seed, 3, (uint64_t)i) - 1.0F;
    }
    return made;
}

static uint16_t *narrowed(sonde_dtype dtype, const float *data, int64_t count)
{
    uint16_t *const made = sonde__malloc((size_t)(count + 1) * sizeof *made);

    for (int64_t i = 0; i < count; i++) {
        sonde_element_set(dtype, made + i, (double)data[i]);
    }
    return made;
}

static double number(const half_case *x, const sonde__kernel_half_matrix *matrix,
                     const float *data, int64_t i, int64_t j)
{
    return (double)rounded(x->g.dtype, data[i * matrix->row + j * matrix->col]);
}

static void sum_up(half_case *x)
{
    const sonde__kernel_half_gemm *const g = &x->g;

    for (int64_t i = 0; i < g->m * g->n; i++) {
        double sum = 0.0, size = 0.0;

        for (int64_t k = 0; k < g->k; k++) {
            const double term =
                number(x, &g->a, x->a, i / g->n, k) * number(x, &g->b, x->b, k, i % g->n);

            sum += term;
            size += fabs(term);
        }
        x->sums[i] = sum;
        x->sizes[i] = size;
    }
}

/* turned: bit 0 A, bit 1 B. */
static half_case open_case(shape s, sonde_dtype dtype, unsigned turned)
{
    half_case x = {.a = draw(s.m * s.k, 1), .b = draw(s.k * s.n, 2)};

    x.c = sonde__calloc((size_t)(s.m * s.n), sizeof *x.c);
    x.sums = sonde__calloc((size_t)(s.m * s.n), sizeof *x.sums);
    x.sizes = sonde__calloc((size_t)(s.m * s.n), sizeof *x.sizes);
    x.narrow_a = narrowed(dtype, x.a, s.m * s.k);
    x.narrow_b = narrowed(dtype, x.b, s.k * s.n);
    x.scratch = sonde__malloc_aligned(64, sonde__kernel_half_gemm_scratch(s.m, s.k));
    x.g = (sonde__kernel_half_gemm){
        .dtype = dtype,
        .m = s.m,
        .n = s.n,
        .k = s.k,
        .a = {x.a, SONDE_F32, (turned & 1U) != 0 ? 1 : s.k, (turned & 1U) != 0 ? s.m : 1},
        .b = {x.b, SONDE_F32, (turned & 2U) != 0 ? 1 : s.n, (turned & 2U) != 0 ? s.k : 1},
        .c = x.c,
        .c_dtype = SONDE_F32,
        .c_row = s.n};
    sum_up(&x);
    return x;
}

static void close_case(half_case *x)
{
    sonde__free(x->a);
    sonde__free(x->b);
    sonde__free(x->c);
    sonde__free(x->narrow_a);
    sonde__free(x->narrow_b);
    sonde__free(x->sums);
    sonde__free(x->sizes);
    sonde__free(x->scratch);
}

/* A chain of k float32 sums, in whatever order, is off by at most k roundings of the sum
 * of magnitudes: 6e-8 each, and one more for the products of AMX. */
static void expect_sums(const half_case *x)
{
    for (int64_t i = 0; i < x->g.m * x->g.n; i++) {
        const double most = 6e-8 * (double)(x->g.k + 2) * x->sizes[i];

        assert_true(fabs((double)x->c[i] - x->sums[i]) <= most);
    }
}

static void run_parts(const half_case *x, sonde__isa isa, sonde__half unit, int parts)
{
    for (int part = 0; part < parts; part++) {
        sonde__kernel_half_gemm g = x->g;

        sonde__kernel_half_gemm_take_part(&g, part, parts);
        sonde__kernel_half_gemm_run_by(&g, isa, unit, x->scratch);
    }
}

static size_t bytes_of(const half_case *x)
{
    return (size_t)(x->g.m * x->g.n) * sizeof *x->c;
}

/* Whole, in three parts, and of operands that are 16 bits already. */
static void check_unit(half_case *x, sonde__isa isa, sonde__half unit)
{
    float *const whole = sonde__malloc(bytes_of(x) + 1);

    memset(x->c, 0xFF, bytes_of(x));
    run_parts(x, isa, unit, 1);
    expect_sums(x);
    memcpy(whole, x->c, bytes_of(x));
    memset(x->c, 0xFF, bytes_of(x));
    run_parts(x, isa, unit, 3);
    assert_memory_equal(x->c, whole, bytes_of(x));
    x->g.a.data = x->narrow_a;
    x->g.b.data = x->narrow_b;
    x->g.a.dtype = x->g.b.dtype = x->g.dtype;
    run_parts(x, isa, unit, 1);
    assert_memory_equal(x->c, whole, bytes_of(x));
    x->g.a.data = x->a;
    x->g.b.data = x->b;
    x->g.a.dtype = x->g.b.dtype = SONDE_F32;
    sonde__free(whole);
}

static void every_unit_sums_rounded_operands(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(shapes); i++) {
        for (unsigned turned = 0; turned < 4; turned++) {
            half_case x = open_case(shapes[i], SONDE_BF16, turned);
            half_case y = open_case(shapes[i], SONDE_F16, turned);

            for (int isa = 0; isa <= (int)sonde__cpu_isa(); isa++) {
                check_unit(&x, (sonde__isa)isa, SONDE__HALF_BY_FLOAT);
                check_unit(&y, (sonde__isa)isa, SONDE__HALF_BY_FLOAT);
            }
            for (int unit = 1; unit <= (int)sonde__cpu_half(); unit++) {
                check_unit(&x, SONDE__AVX512, (sonde__half)unit);
            }
            close_case(&x);
            close_case(&y);
        }
    }
}

/* The float unit's bits are those of the float32 product of the rounded operands. */
static void the_float_unit_is_the_float_product(void **state)
{
    half_case x = open_case((shape){37, 45, 300}, SONDE_BF16, 2);
    float *const expected = sonde__calloc(37 * 45, sizeof *expected);
    void *const scratch = sonde__malloc_aligned(64, sonde__kernel_gemm_scratch());

    (void)state;
    for (int isa = 0; isa <= (int)sonde__cpu_isa(); isa++) {
        sonde__kernel_gemm g = {.m = 37, .n = 45, .k = 300, .c = expected, .c_row = 45};

        for (int64_t i = 0; i < 37 * 300; i++) {
            x.a[i] = rounded(SONDE_BF16, x.a[i]);
        }
        for (int64_t i = 0; i < 45 * 300; i++) {
            x.b[i] = rounded(SONDE_BF16, x.b[i]);
        }
        g.a = (sonde__kernel_gemm_matrix){x.a, 300, 1};
        g.b = (sonde__kernel_gemm_matrix){x.b, 1, 300};
        sonde__kernel_gemm_run_of((sonde__isa)isa)(&g, scratch);
        run_parts(&x, (sonde__isa)isa, SONDE__HALF_BY_FLOAT, 2);
        assert_memory_equal(x.c, expected, bytes_of(&x));
    }
    sonde__free(expected);
    sonde__free(scratch);
    close_case(&x);
}

/* Bias, one rounding, ReLU of what was rounded; C is left out where only ReLU is wanted. */
static void sums_are_rounded_once(void **state)
{
    enum { M = 19, N = 35 };
    half_case x = open_case((shape){M, N, 40}, SONDE_BF16, 0);
    uint16_t c[M * N], relu[M * N], alone[M * N];
    float bias[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        bias[i] = (float)i / 7.0F - 2.0F;
    }
    for (int unit = 0; unit <= (int)sonde__cpu_half(); unit++) {
        const sonde__half by = (sonde__half)unit;

        x.g.bias = NULL;
        x.g.c = x.c;
        x.g.c_dtype = SONDE_F32;
        x.g.relu = NULL;
        run_parts(&x, sonde__cpu_isa(), by, 1);
        x.g.bias = bias;
        x.g.c_dtype = SONDE_BF16;
        x.g.c = c;
        x.g.relu = relu;
        run_parts(&x, sonde__cpu_isa(), by, 2);
        x.g.c = NULL;
        x.g.relu = alone;
        run_parts(&x, sonde__cpu_isa(), by, 1);
        for (int i = 0; i < M * N; i++) {
            const float sum = rounded(SONDE_BF16, x.c[i] + bias[i % N]);

            assert_true((float)sonde_element_get(SONDE_BF16, c + i) == sum);
            assert_true((float)sonde_element_get(SONDE_BF16, relu + i) ==
                        (sum < 0.0F ? 0.0F : sum));
            assert_int_equal(alone[i], relu[i]);
        }
    }
    close_case(&x);
}

static void nan_and_infinity_reach_their_rows(void **state)
{
    half_case x = open_case((shape){20, 40, 50}, SONDE_BF16, 0);

    (void)state;
    x.a[3 * 50 + 7] = NAN;
    x.a[5 * 50 + 49] = INFINITY;
    for (int unit = 0; unit <= (int)sonde__cpu_half(); unit++) {
        run_parts(&x, sonde__cpu_isa(), (sonde__half)unit, 1);
        for (int64_t i = 0; i < 20 * 40; i++) {
            assert_true(i / 40 == 3   ? isnan(x.c[i]) != 0
                        : i / 40 == 5 ? !isfinite(x.c[i])
                                      : isfinite(x.c[i]) != 0);
        }
    }
    close_case(&x);
}

/* Every kind of number, in vectors and in what is left of them. */
static void rounding_is_to_nearest_even(void **state)
{
    static const float specials[] = {0.0F,           -0.0F,         1.0F,
                                     1.00390625F,    1.01171875F,   -1.00390625F,
                                     65504.0F,       65519.0F,      65520.0F,
                                     3.4e38F,        -3.4e38F,      INFINITY,
                                     -INFINITY,      NAN,           1e-40F,
                                     -1e-40F,        6e-8F,         2.98e-8F,
                                     6.1e-5F,        5.9604645e-8F, 1.17549435e-38F,
                                     0.1F,           -0.3F,         1e-5F,
                                     33554432.0F,    1.0009765625F, 1.00048828125F,
                                     1.00146484375F, 3.0F,          7.7F};
    enum { COUNT = SONDE_COUNT_OF(specials) };
    uint16_t bits[COUNT], expected;
    float wide[COUNT];

    (void)state;
    for (int which = 0; which < 2; which++) {
        const sonde_dtype dtype = which == 0 ? SONDE_BF16 : SONDE_F16;

        sonde__kernel_half_narrow(specials, COUNT, dtype, bits);
        sonde__kernel_half_widen(dtype, bits, COUNT, wide);
        for (int i = 0; i < COUNT; i++) {
            sonde_element_set(dtype, &expected, (double)specials[i]);
            if (isnan(specials[i])) {
                assert_true(isnan(wide[i]));
                continue;
            }
            assert_int_equal(bits[i], expected);
            assert_true((double)wide[i] == sonde_element_get(dtype, &expected));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_unit_sums_rounded_operands),
        cmocka_unit_test(the_float_unit_is_the_float_product),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(nan_and_infinity_reach_their_rows),
        cmocka_unit_test(rounding_is_to_nearest_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
