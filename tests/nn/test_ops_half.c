/*
 * Kernels of ops in bfloat16 and float16 against their references, whose products round
 * operands alike and sum in double: windows, groups, several samples in a block, rows of
 * large images, operands of both dtypes, one part and three.
 */
#include "nn/ops_harness.h"

#include "base/macros.h"
#include "base/random.h"

static const sonde__op_kind *kind_named(const char *name)
{
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        if (strcmp(sonde__op_kinds[i]->name, name) == 0) {
            return sonde__op_kinds[i];
        }
    }
    fail_msg("no op %s", name);
    return NULL;
}

static sonde__operand draw(sonde_dtype dtype, int rank, const int64_t *dim, uint64_t seed)
{
    sonde__operand operand = {.shape = {dtype, rank, {0}}};
    int64_t count = 1;

    for (int i = 0; i < rank; i++) {
        operand.shape.dim[i] = dim[i];
        count *= dim[i];
    }
    operand.data = poisoned_block(plain_bytes(&operand.shape));
    for (int64_t i = 0; i < count; i++) {
        const double value = 2.0 * (double)sonde__uniform(seed, 5, (uint64_t)i) - 1.0;

        sonde_element_set(
            dtype, (char *)operand.data + (size_t)i * sonde_dtype_size(dtype), value);
    }
    return operand;
}

static double element(const sonde__op_shape *shape, const void *data, int64_t i)
{
    return sonde_element_get(
        shape->dtype, (const char *)data + (size_t)i * sonde_dtype_size(shape->dtype));
}

/* Outputs in 16 bits are one rounding apart where sums differ in their last bits; sums of
 * some hundred products of numbers below 1 in float32 are off by 1e-5. */
static void expect_near(const sonde__op_shape *shape, const void *found,
                        const void *expected, double apart)
{
    const double bits = shape->dtype == SONDE_BF16  ? 0.0079
                        : shape->dtype == SONDE_F16 ? 0.00098
                                                    : 0.0;

    for (int64_t i = 0; i < sonde__op_shape_count(shape); i++) {
        const double a = element(shape, found, i), b = element(shape, expected, i);

        if (!(fabs(a - b) <= bits * fabs(b) + apart)) {
            fail_msg("element %lld is %.9g, the reference says %.9g", (long long)i, a, b);
        }
    }
}

/* A kernel against the values of the reference; the same bits in three parts. */
static void check_kernel(const op_run *run, const sonde__op_kernel *kernel,
                         void *const *expected, double apart)
{
    void *found[SONDE__MAX_OPERANDS], *again[SONDE__MAX_OPERANDS];
    const run_options one = {.parts = 1}, three = {.parts = 3};

    run_kernel(run, kernel, &one, found);
    run_kernel(run, kernel, &three, again);
    for (int k = 0; k < run->kind->out_count; k++) {
        expect_near(&run->out[k], found[k], expected[k], apart);
        assert_memory_equal(found[k], again[k], plain_bytes(&run->out[k]));
        sonde__free(found[k]);
        sonde__free(again[k]);
    }
}

/* All kernels for halves that take the call, the one of any shape among them. */
static void check_within(op_run *run, double apart)
{
    const sonde__op_kernel *kernel = NULL;
    void *expected[SONDE__MAX_OPERANDS];
    const run_options one = {.parts = 1};
    sonde__op_call call = {0};
    sonde_diag diag = {0};
    bool any = false;

    assert_int_equal(infer_run(run, &diag), SONDE_OK);
    call.attrs = &run->attrs;
    call.in_count = run->in_count;
    for (int i = 0; i < run->in_count; i++) {
        call.in[i].shape = run->in[i].shape;
    }
    run_kernel(run, reference_of(run->kind), &one, expected);
    for (size_t i = 0;
         (kernel = sonde__op_kernel_of(run->kind, &call, i)) != &run->kind->reference;
         i++) {
        if (kernel_accepts(run, kernel)) {
            check_kernel(run, kernel, expected, apart);
            any = any || strcmp(kernel->name, "half") == 0;
        }
    }
    assert_true(any);
    for (int k = 0; k < run->kind->out_count; k++) {
        sonde__free(expected[k]);
    }
    for (int i = 0; i < run->in_count; i++) {
        sonde__free(run->in[i].data);
    }
}

static void check(op_run *run)
{
    check_within(run, 3e-5);
}

/* --- convolution -------------------------------------------------------------------- */

typedef struct conv_case {
    int64_t x[4], w[4], y[4];
    int64_t stride[2], padding[2], dilation[2], groups;
} conv_case;

static const conv_case convs[] = {
    {{3, 2, 6, 7}, {5, 2, 3, 3}, {3, 5, 6, 7}, {1, 1}, {1, 1}, {1, 1}, 1},
    {{70, 3, 4, 4}, {4, 3, 3, 3}, {70, 4, 4, 4}, {1, 1}, {1, 1}, {1, 1}, 1},
    {{2, 4, 9, 8}, {6, 2, 3, 2}, {2, 6, 5, 4}, {2, 2}, {1, 0}, {1, 1}, 2},
    {{1, 1, 40, 41}, {2, 1, 5, 3}, {1, 2, 36, 39}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{2, 3, 11, 10}, {4, 3, 3, 3}, {2, 4, 7, 6}, {1, 1}, {0, 0}, {2, 2}, 1},
    {{5, 8, 5, 5}, {8, 1, 3, 3}, {5, 8, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 8},
    {{4, 20, 3, 3}, {33, 20, 1, 1}, {4, 33, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{3, 40, 3, 4}, {17, 40, 3, 3}, {3, 17, 3, 4}, {1, 1}, {1, 1}, {1, 1}, 1},
    {{2, 16, 3, 17}, {33, 16, 1, 5}, {2, 33, 3, 17}, {1, 1}, {0, 2}, {1, 1}, 1},
    {{2, 18, 7, 6}, {16, 18, 3, 3}, {2, 16, 4, 3}, {2, 2}, {1, 1}, {1, 1}, 1},
    {{2, 16, 8, 9}, {17, 16, 1, 2}, {2, 17, 4, 3}, {2, 3}, {0, 0}, {1, 1}, 1},
    {{2, 16, 9, 8}, {16, 16, 3, 3}, {2, 16, 5, 8}, {1, 1}, {0, 2}, {2, 2}, 1},
    {{42, 16, 7, 7}, {16, 16, 1, 1}, {42, 16, 7, 7}, {1, 1}, {0, 0}, {1, 1}, 1},
};

static op_run conv_run(const sonde__op_kind *kind, const conv_case *c, sonde_dtype half,
                       bool wide)
{
    op_run run = {.kind = kind, .in_count = 2};

    for (int d = 0; d < 2; d++) {
        run.attrs.window.stride[d] = c->stride[d];
        run.attrs.window.padding[d] = c->padding[d];
        run.attrs.window.dilation[d] = c->dilation[d];
    }
    run.attrs.window.groups = c->groups;
    run.attrs.half = half;
    run.attrs.wide = wide;
    return run;
}

static void give_dims(op_run *run, const int64_t *dims)
{
    run->attrs.window.rank = 4;
    memcpy(run->attrs.window.dims, dims, 4 * sizeof *dims);
}

static void check_conv(const conv_case *c, sonde_dtype half, bool wide, sonde_dtype dtype)
{
    op_run run = conv_run(&sonde__op_conv2d, c, half, wide);

    run.in_count = 3;
    run.in[0] = draw(dtype, 4, c->x, 1);
    run.in[1] = draw(SONDE_F32, 4, c->w, 2);
    run.in[2] = draw(SONDE_F32, 1, c->w, 3);
    check(&run);
    run = conv_run(&sonde__op_conv2d_relu, c, half, wide);
    run.in[0] = draw(dtype, 4, c->x, 1);
    run.in[1] = draw(SONDE_F32, 4, c->w, 2);
    check(&run);
    run = conv_run(&sonde__op_conv2d_grad_input, c, half, wide);
    give_dims(&run, c->x);
    run.in[0] = draw(dtype, 4, c->y, 4);
    run.in[1] = draw(SONDE_F32, 4, c->w, 2);
    check(&run);
    run = conv_run(&sonde__op_conv2d_grad_weight, c, half, true);
    give_dims(&run, c->w);
    run.in[0] = draw(dtype, 4, c->y, 4);
    run.in[1] = draw(half, 4, c->x, 1);
    check_within(&run, 3e-4); /* sums over all pixels */
    run = conv_run(kind_named("ConvTranspose2d"), c, half, wide);
    for (int d = 0; d < 2; d++) { /* rows and columns that the stride leaves over */
        run.attrs.window.dims[d] =
            (c->x[2 + d] + 2 * c->padding[d] - c->dilation[d] * (c->w[2 + d] - 1) - 1) %
            c->stride[d];
    }
    run.in[0] = draw(dtype, 4, c->y, 4);
    run.in[1] = draw(SONDE_F32, 4, c->w, 2);
    check(&run);
}

static void convolutions_are_their_references(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(convs); i++) {
        check_conv(&convs[i], SONDE_BF16, true, SONDE_F32);
        check_conv(&convs[i], SONDE_BF16, false, SONDE_BF16);
        check_conv(&convs[i], SONDE_F16, i % 2 == 0, i % 2 == 0 ? SONDE_F16 : SONDE_F32);
    }
}

/* --- linear layers, matmul and the rest ----------------------------------------------- */

static void check_linear(sonde_dtype half, bool wide, sonde_dtype dtype)
{
    static const int64_t x[] = {37, 50}, w[] = {20, 50}, y[] = {37, 20};
    op_run run = {.kind = &sonde__op_linear, .in_count = 3};

    run.attrs.half = half;
    run.attrs.wide = wide;
    run.in[0] = draw(dtype, 2, x, 1);
    run.in[1] = draw(SONDE_F32, 2, w, 2);
    run.in[2] = draw(SONDE_F32, 1, w, 3);
    check(&run);
    run.kind = &sonde__op_linear_relu;
    run.in_count = 2;
    run.in[0] = draw(dtype, 2, x, 1);
    run.in[1] = draw(SONDE_F32, 2, w, 2);
    check(&run);
    run.kind = &sonde__op_linear_grad_input;
    run.in[0] = draw(dtype, 2, y, 4);
    run.in[1] = draw(SONDE_F32, 2, w, 2);
    check(&run);
    run.kind = &sonde__op_linear_grad_weight;
    run.in[0] = draw(dtype, 2, y, 4);
    run.in[1] = draw(half, 2, x, 1);
    check(&run);
}

static void linear_layers_are_their_references(void **state)
{
    (void)state;
    check_linear(SONDE_BF16, true, SONDE_F32);
    check_linear(SONDE_BF16, false, SONDE_BF16);
    check_linear(SONDE_F16, true, SONDE_F16);
    check_linear(SONDE_F16, false, SONDE_F32);
}

/* Matrices that broadcast, either of them transposed. */
static void products_of_matrices_are_their_references(void **state)
{
    static const int64_t a[] = {3, 7, 12}, a_turned[] = {3, 12, 7};
    static const int64_t b[] = {2, 1, 12, 9}, b_turned[] = {2, 1, 9, 12};

    (void)state;
    for (int turned = 0; turned < 4; turned++) {
        op_run run = {.kind = &sonde__op_matmul, .in_count = 2};

        run.attrs.matmul.transposed = turned;
        run.attrs.half = turned == 3 ? SONDE_F16 : SONDE_BF16;
        run.attrs.wide = turned % 2 == 0;
        run.in[0] = draw(SONDE_F32, 3, (turned & 1) != 0 ? a_turned : a, 1);
        run.in[1] = draw(run.attrs.half, 4, (turned & 2) != 0 ? b_turned : b, 2);
        check(&run);
    }
}

static void element_wise_ops_are_their_references(void **state)
{
    static const int64_t dim[] = {3, 5, 171};
    static const sonde__op_kind *const kinds[] = {&sonde__op_relu, &sonde__op_relu_grad,
                                                  &sonde__op_add, &sonde__op_cast,
                                                  &sonde__op_channel_sum};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(kinds); i++) {
        for (int which = 0; which < 2; which++) {
            const sonde_dtype dtype = which == 0 ? SONDE_BF16 : SONDE_F16;
            op_run run = {.kind = kinds[i], .in_count = kinds[i]->in_max};

            for (int k = 0; k < run.in_count; k++) {
                run.in[k] = draw(dtype, 3, dim, (uint64_t)k + 1);
            }
            check(&run);
        }
    }
}

/* Two samples' worth of every cell, both ways. A state that rounds otherwise changes what
 * follows it by a rounding times a weight, in each of five steps. */
static void recurrent_layers_are_their_references(void **state)
{
    static const int64_t x[] = {5, 5, 7};
    static const int gates[] = {1, 1, 4, 3};

    (void)state;
    for (int i = 0; i < 16; i++) {
        const int cell = i % 4;
        const int64_t units = 9, rows = gates[cell] * units;
        const sonde_dtype half = i < 8 ? SONDE_BF16 : SONDE_F16;
        const sonde_dtype dtype = i / 4 % 2 == 0 ? half : SONDE_F32;
        const double apart = half == SONDE_BF16 ? 0.05 : 0.006;
        op_run run = {.kind = kind_named("Recurrent"), .in_count = 5};

        run.attrs.recurrent.cell = cell;
        run.attrs.recurrent.units = units;
        run.attrs.recurrent.reversed = i % 3 == 0;
        run.attrs.half = half;
        run.attrs.wide = dtype == SONDE_F32;
        run.in[0] = draw(dtype, 3, x, 1);
        run.in[1] = draw(SONDE_F32, 2, (int64_t[]){rows, 7}, 2);
        run.in[2] = draw(SONDE_F32, 2, (int64_t[]){rows, units}, 3);
        run.in[3] = draw(SONDE_F32, 1, (int64_t[]){rows}, 4);
        run.in[4] = draw(SONDE_F32, 1, (int64_t[]){rows}, 5);
        check_within(&run, apart);
        run.kind = kind_named("RecurrentGrad");
        run.in[0] = draw(dtype, 3, (int64_t[]){5, 5, units}, 6);
        run.in[1] = draw(dtype, 3, (int64_t[]){5, 5, units}, 7);
        run.in[2] =
            draw(SONDE_F32, 3, (int64_t[]){5, 5, cell == 3 ? 4 * units : rows}, 8);
        run.in[3] = draw(SONDE_F32, 3, (int64_t[]){5, 5, units}, 9);
        run.in[4] = draw(SONDE_F32, 2, (int64_t[]){rows, units}, 3);
        check_within(&run, 4.0 * apart);
    }
}

/* Images whose rows are not whole vectors, and numbers far from zero: batch statistics,
 * running ones, the ReLU beside them, and the gradient. */
static void batch_norms_are_their_references(void **state)
{
    static const int64_t dim[] = {6, 5, 7, 5}, channels[] = {5};

    (void)state;
    for (int i = 0; i < 8; i++) {
        const sonde_dtype half = i % 2 == 0 ? SONDE_BF16 : SONDE_F16;
        op_run run = {.kind = kind_named(i / 2 % 2 == 0 ? "BatchNorm" : "BatchNormRelu"),
                      .in_count = 6};

        run.attrs.norm.eps = 1e-3F;
        run.attrs.norm.affine = run.attrs.norm.track = true;
        run.attrs.training = i < 4;
        run.in[0] = draw(half, 4, dim, 1);
        for (int k = 1; k < 5; k++) {
            run.in[k] = draw(SONDE_F32, 1, channels, (uint64_t)k + 1);
        }
        for (int c = 0; c < 5; c++) {
            float *const var = (float *)run.in[4].data + c;

            *var = *var * *var + 0.1F;
        }
        run.in[5] = (sonde__operand){.shape = {SONDE_I64, 0, {0}},
                                     .data = sonde__calloc(1, sizeof(int64_t))};
        check(&run);
        run.kind = kind_named("BatchNormGrad");
        run.in_count = 5;
        run.in[0] = draw(half, 4, dim, 1);
        run.in[1] = draw(half, 4, dim, 2);
        for (int k = 2; k < 5; k++) {
            run.in[k] = draw(SONDE_F32, 1, channels, (uint64_t)k);
        }
        for (int c = 0; c < 5; c++) {
            ((float *)run.in[3].data)[c] = 0.4F;
        }
        check_within(&run, 1e-4);
        run = (op_run){.kind = kind_named("ChannelAdd"), .in_count = 2};
        run.in[0] = draw(half, 4, dim, 1);
        run.in[1] = draw(SONDE_F32, 1, channels, 2);
        check(&run);
    }
}

/* Windows that overlap, that lie partly in the padding, and that are spread. */
static void max_pools_are_their_references(void **state)
{
    static const int64_t x[] = {3, 2, 7, 8};
    static const struct {
        int64_t kernel, stride, padding, dilation;
        int64_t y[4];
    } cases[] = {{2, 2, 0, 1, {3, 2, 3, 4}},
                 {3, 2, 1, 1, {3, 2, 4, 4}},
                 {2, 1, 1, 3, {3, 2, 6, 7}}};

    (void)state;
    for (size_t i = 0; i < 2 * SONDE_COUNT_OF(cases); i++) {
        const sonde_dtype half = i % 2 == 0 ? SONDE_BF16 : SONDE_F16;
        op_run run = {.kind = &sonde__op_max_pool2d, .in_count = 1};
        int64_t taps = 0;

        for (int d = 0; d < 2; d++) {
            run.attrs.window.kernel[d] = cases[i / 2].kernel;
            run.attrs.window.stride[d] = cases[i / 2].stride;
            run.attrs.window.padding[d] = cases[i / 2].padding;
            run.attrs.window.dilation[d] = cases[i / 2].dilation;
        }
        taps = run.attrs.window.kernel[0] * run.attrs.window.kernel[1];
        run.in[0] = draw(half, 4, x, 1);
        check(&run);
        run.kind = &sonde__op_max_pool2d_grad;
        run.in_count = 2;
        give_dims(&run, x);
        run.in[0] = draw(half, 4, cases[i / 2].y, 2);
        run.in[1] = draw(SONDE_F32, 4, cases[i / 2].y, 3);
        run.in[1].shape.dtype = SONDE_U8;
        for (int64_t k = 0; k < sonde__op_shape_count(&run.in[1].shape); k++) {
            ((uint8_t *)run.in[1].data)[k] = (uint8_t)(k * 7 % taps);
        }
        check(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_their_references),
        cmocka_unit_test(linear_layers_are_their_references),
        cmocka_unit_test(products_of_matrices_are_their_references),
        cmocka_unit_test(recurrent_layers_are_their_references),
        cmocka_unit_test(batch_norms_are_their_references),
        cmocka_unit_test(max_pools_are_their_references),
        cmocka_unit_test(element_wise_ops_are_their_references),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
