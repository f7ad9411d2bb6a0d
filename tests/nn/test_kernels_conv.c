/*
 * The fast kernels of convolution against the scalar references; fused kernels against
 * the kernels they stand for, to the bit.
 */
#include "nn/kernels_check.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/random.h"

#include "nn/kernels/fast.h"
#include "nn/ops/ops.h"

DEFINE_PICK(conv2d_kernel, CONV2D, 1)
DEFINE_PICK(conv2d_relu_kernel, CONV2D_RELU, 1)
DEFINE_PICK(conv2d_relu_pool_kernel, CONV2D_RELU_POOL, 0)
DEFINE_PICK(grad_input_kernel, CONV2D_GRAD_INPUT, 1)
DEFINE_PICK(wide_kernel, CONV2D, 0)
DEFINE_PICK(wide_relu_kernel, CONV2D_RELU, 0)
DEFINE_PICK(wide_input_kernel, CONV2D_GRAD_INPUT, 0)
DEFINE_PICK(wide_weight_kernel, CONV2D_GRAD_WEIGHT, 0)
DEFINE_PICK(grad_weight_kernel, CONV2D_GRAD_WEIGHT, 1)
DEFINE_PICK(channel_sum_kernel, CHANNEL_SUM, 1)
DEFINE_PICK(pool_relu_conv_grad_kernel, POOL_RELU_CONV_GRAD, 0)

/* --- convolutions ------------------------------------------------------------------- */

typedef struct conv_case {
    int64_t n, c, h, w, o, kh, kw, stride, padding, dilation, groups;
} conv_case;

static const conv_case conv_cases[] = {
    {16, 1, 28, 28, 5, 3, 3, 1, 0, 1, 1}, /* the networks' own */
    {16, 5, 13, 13, 12, 5, 5, 1, 0, 1, 1},
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1}, /* small and odd */
    {15, 2, 5, 7, 3, 3, 3, 1, 0, 1, 1},
    {17, 3, 6, 11, 2, 3, 5, 1, 0, 1, 1},
    {33, 1, 8, 5, 7, 5, 3, 1, 0, 1, 1},
    {3, 7, 4, 31, 13, 1, 5, 1, 0, 1, 1}, /* several stretches; every tile of channels */
    {2, 5, 3, 40, 25, 3, 3, 1, 0, 1, 1},
    {2, 3, 6, 6, 24, 2, 2, 1, 0, 1, 1},
    {5, 2, 4, 4, 11, 4, 4, 1, 0, 1, 1}, /* one pixel */
    {2, 9, 6, 6, 16, 3, 3, 1, 0, 1, 1},
    {18, 2, 6, 6, 4, 3, 3, 1, 1, 1, 1}, /* padding */
    {4, 3, 5, 8, 6, 5, 5, 1, 2, 1, 1},
    {2, 1, 9, 9, 3, 7, 7, 1, 3, 1, 1},
    {3, 2, 2, 2, 2, 3, 3, 1, 2, 1, 1}, /* windows in the padding alone */
    {1, 2, 1, 3, 5, 5, 5, 1, 2, 1, 1},
    {6, 3, 9, 10, 5, 3, 3, 2, 0, 1, 1}, /* stride, and pixels that none reaches */
    {2, 2, 8, 7, 3, 3, 3, 3, 1, 1, 1},
    {2, 2, 7, 7, 3, 1, 1, 2, 0, 1, 1},
    {3, 2, 9, 8, 4, 3, 3, 1, 0, 2, 1}, /* dilation */
    {2, 2, 8, 9, 3, 3, 3, 2, 2, 2, 1},
    {17, 4, 6, 6, 6, 3, 3, 1, 0, 1, 2}, /* groups */
    {2, 6, 5, 5, 6, 3, 3, 1, 1, 1, 6},
    {1, 4, 33, 20, 2, 3, 3, 1, 0, 1, 1}, /* more than one span of pixels */
};

/* Of many channels. */
static const conv_case wide_cases[] = {
    {64, 16, 6, 6, 16, 3, 3, 1, 1, 1, 1}, /* one tile a pixel */
    {17, 37, 5, 7, 19, 3, 3, 1, 1, 1, 1}, /* odd channels, a second block */
    {1, 24, 1, 1, 26, 1, 1, 1, 0, 1, 1},
    {33, 30, 9, 10, 22, 3, 3, 2, 1, 1, 1}, /* stride */
    {16, 40, 8, 7, 30, 1, 1, 2, 0, 1, 1},  /* and pixels that none reaches */
    {5, 17, 8, 7, 17, 3, 3, 3, 1, 1, 1},
    {2, 16, 9, 8, 16, 3, 2, 1, 2, 2, 1}, /* dilation, windows in the padding alone */
    {3, 16, 2, 2, 16, 3, 3, 1, 2, 1, 1},
    {70, 20, 4, 4, 32, 5, 5, 1, 2, 1, 1},
    {2, 16, 3, 150, 17, 3, 3, 1, 1, 1, 1}, /* several segments of a row */
    {64, 16, 2, 40, 16, 3, 3, 2, 1, 1, 1},
};

static int64_t out_extent(const conv_case *c, int64_t size, int64_t kernel)
{
    return (size + 2 * c->padding - c->dilation * (kernel - 1) - 1) / c->stride + 1;
}

static op_run conv_run(const conv_case *c, const sonde__op_kind *kind)
{
    const op_run run = {.kind = kind,
                        .attrs = {.window = {.stride = {c->stride, c->stride},
                                             .padding = {c->padding, c->padding},
                                             .dilation = {c->dilation, c->dilation},
                                             .groups = c->groups}}};

    return run;
}

static op_run forward_run(const conv_case *c, const sonde__op_kind *kind, bool bias)
{
    op_run run = conv_run(c, kind);

    add_random(&run, DIMS(c->n, c->c, c->h, c->w));
    add_random(&run, DIMS(c->o, c->c / c->groups, c->kh, c->kw));
    if (bias) {
        add_random(&run, DIMS(c->o));
    }
    return run;
}

/* dy and w, or dy and x */
static op_run backward_run(const conv_case *c, bool weight)
{
    op_run run = conv_run(c, weight ? &sonde__op_conv2d_grad_weight
                                    : &sonde__op_conv2d_grad_input);

    add_random(&run,
               DIMS(c->n, c->o, out_extent(c, c->h, c->kh), out_extent(c, c->w, c->kw)));
    if (weight) {
        add_random(&run, DIMS(c->n, c->c, c->h, c->w));
        set_dims(&run, DIMS(c->o, c->c / c->groups, c->kh, c->kw));
    } else {
        add_random(&run, DIMS(c->o, c->c / c->groups, c->kh, c->kw));
        set_dims(&run, DIMS(c->n, c->c, c->h, c->w));
    }
    return run;
}

static double conv_tolerance(const conv_case *c)
{
    return sum_tolerance(c->c / c->groups * c->kh * c->kw);
}

static double weight_tolerance(const conv_case *c)
{
    return sum_tolerance(c->n * out_extent(c, c->h, c->kh) * out_extent(c, c->w, c->kw));
}

static void convolution(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(conv_cases); i++) {
        const conv_case *c = &conv_cases[i];
        op_run plain = forward_run(c, &sonde__op_conv2d, i % 2 == 0);
        op_run relu = forward_run(c, &sonde__op_conv2d_relu, i % 3 != 0);

        check(&plain, conv2d_kernel, conv_tolerance(c));
        check(&relu, conv2d_relu_kernel, conv_tolerance(c));
    }
}

static void convolution_input_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(conv_cases); i++) {
        const conv_case *c = &conv_cases[i];
        op_run run = backward_run(c, false);

        check(&run, grad_input_kernel, sum_tolerance(c->o / c->groups * c->kh * c->kw));
    }
}

static void convolution_weight_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(conv_cases); i++) {
        op_run run = backward_run(&conv_cases[i], true);

        check(&run, grad_weight_kernel, weight_tolerance(&conv_cases[i]));
    }
}

static void convolution_of_many_channels(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(wide_cases); i++) {
        const conv_case *c = &wide_cases[i];
        op_run plain = forward_run(c, &sonde__op_conv2d, i % 2 == 0);
        op_run relu = forward_run(c, &sonde__op_conv2d_relu, i % 3 != 0);
        op_run back = backward_run(c, false), weight = backward_run(c, true);

        check(&plain, wide_kernel, conv_tolerance(c));
        check(&relu, wide_relu_kernel, conv_tolerance(c));
        check(&back, wide_input_kernel, sum_tolerance(c->o * c->kh * c->kw));
        check(&weight, wide_weight_kernel, weight_tolerance(c));
    }
}

/* The fuse pass asks: the convolution then has the kernels of many channels. */
static void many_channels_are_not_fused_with_a_pool(void **state)
{
    const conv_case cases[] = {{2, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1},
                               {2, 15, 8, 8, 16, 3, 3, 1, 1, 1, 1},
                               {2, 32, 8, 8, 32, 3, 3, 1, 1, 1, 2}};
    static const bool fused[] = {false, true, true};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        op_run run = forward_run(&cases[i], &sonde__op_conv2d_relu_pool, true);

        infer(&run);
        assert_int_equal(
            kernel_accepts(&run, KERNEL(sonde__cpu_isa(), CONV2D_RELU_POOL, 0)),
            fused[i]);
        free_inputs(&run);
    }
}

static void sums_of_channels(void **state)
{
    static const struct {
        int rank;
        int64_t dim[4];
    } shapes[] = {{4, {17, 12, 9, 9}}, {4, {16, 5, 3, 1}}, {2, {33, 7}},
                  {3, {1, 9, 6}},      {4, {2, 1, 1, 8}},  {3, {15, 2, 1}}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(shapes); i++) {
        const size_t count = count_of(shapes[i].rank, shapes[i].dim);
        op_run run = {.kind = &sonde__op_channel_sum};

        add_random(&run, shapes[i].rank, shapes[i].dim);
        check(&run, channel_sum_kernel, sum_tolerance((int64_t)count / shapes[i].dim[1]));
    }
}

/* --- fused against separate --------------------------------------------------------- */

/* A member op that reads blocks of others; nothing of it is freed with it. */
static op_run member_run(const sonde__op_kind *kind, const sonde__op_attrs *attrs,
                         int in_count, const sonde__operand *in)
{
    op_run run = {.kind = kind, .attrs = *attrs, .in_count = in_count};

    memcpy(run.in, in, (size_t)in_count * sizeof *in);
    infer(&run);
    return run;
}

static const sonde__op_attrs two_by_two = {
    .window = {.kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}}};

/* conv, relu, pooled, index: one kernel after the other. */
static void run_forward_chain(const op_run *fused, sonde__isa isa,
                              const sonde__op_kernel *relu_kernel, void *out[4])
{
    op_run conv =
        member_run(&sonde__op_conv2d, &fused->attrs, fused->in_count, fused->in);
    op_run relu, pool;

    run_parts(&conv, KERNEL(isa, CONV2D, 1), 1, ALL, out);
    relu = member_run(&sonde__op_relu, &fused->attrs, 1,
                      (sonde__operand[]){plain(&conv.out[0], out[0])});
    run_parts(&relu, relu_kernel, 1, ALL, out + 1);
    pool = member_run(&sonde__op_max_pool2d, &two_by_two, 1,
                      (sonde__operand[]){plain(&conv.out[0], out[1])});
    run_parts(&pool, KERNEL(isa, MAX_POOL2D, 0), 1, ALL, out + 2);
}

/* Whatever is observed, what is computed stays: every set of optional outputs gives the
 * bits of the separate kernels. */
static void expect_same_whatever_is_wanted(const op_run *fused,
                                           const sonde__op_kernel *kernel,
                                           void *const expected[])
{
    const int count = fused->kind->out_count;

    for (unsigned wanted = 0; wanted < 1u << count; wanted++) {
        void *got[SONDE__MAX_OPERANDS];

        if ((wanted & ~fused->kind->optional_out) != 0) {
            continue;
        }
        run_parts(fused, kernel, 1 + (int)(wanted % MAX_PARTS), wanted, got);
        for (int i = 0; i < count; i++) {
            if (got[i] != NULL) {
                assert_same_bytes(fused, i, got[i], expected[i],
                                  "from the separate ops'");
            }
        }
        free_outputs(got, count);
    }
}

static void check_fused_forward(op_run *fused)
{
    infer(fused);
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__op_kernel *relu =
            sonde__kernel_fast_kernels_of((sonde__isa)isa, SONDE__FAST_RELU)[0];
        void *expected[4];

        run_forward_chain(fused, (sonde__isa)isa, relu, expected);
        if (fused->kind == &sonde__op_conv2d_relu) {
            expect_same_whatever_is_wanted(fused, KERNEL((sonde__isa)isa, CONV2D_RELU, 1),
                                           expected);
        } else {
            expect_same_whatever_is_wanted(
                fused, KERNEL((sonde__isa)isa, CONV2D_RELU_POOL, 0), expected);
        }
        free_outputs(expected, 4);
    }
}

/* Those that a 2 x 2 pool fits behind. */
static bool can_pool(const conv_case *c)
{
    return out_extent(c, c->h, c->kh) >= 2 && out_extent(c, c->w, c->kw) >= 2;
}

static void fused_forward_gives_the_bits_of_the_separate_ops(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(conv_cases); i++) {
        if (can_pool(&conv_cases[i])) {
            op_run relu = forward_run(&conv_cases[i], &sonde__op_conv2d_relu, true);
            op_run pool =
                forward_run(&conv_cases[i], &sonde__op_conv2d_relu_pool, i % 2 == 1);

            check_fused_forward(&relu);
            check_fused_forward(&pool);
            free_inputs(&relu);
            free_inputs(&pool);
        }
    }
}

/* A convolution that hands its input on, so that windows hold just those numbers: weight
 * 1 and bias -0 keep even the sign of a zero. */
static void fused_pooling_keeps_signs_ties_and_nan(void **state)
{
    const conv_case c = {33, 1, 8, 9, 1, 1, 1, 1, 0, 1, 1};

    (void)state;
    for (int tame = 0; tame <= 1; tame++) { /* windows without NaN go another way */
        op_run pool = forward_run(&c, &sonde__op_conv2d_relu_pool, true);

        put_oddities(&pool, tame == 1);
        *(float *)pool.in[1].data = 1.0F;
        *(float *)pool.in[2].data = -0.0F;
        check_fused_forward(&pool);
        check(&pool, conv2d_relu_pool_kernel, 0.0);
    }
}

static op_run pool_grad_run(const conv_case *c)
{
    const int64_t ph = out_extent(c, c->h, c->kh) / 2,
                  pw = out_extent(c, c->w, c->kw) / 2;
    op_run run = conv_run(c, &sonde__op_pool_relu_conv_grad);
    const size_t count = (size_t)(c->n * c->o * ph * pw);
    uint8_t *index = poisoned_block(count);

    for (size_t i = 0; i < count; i++) {
        index[i] = (uint8_t)sonde__below(5, 1, i, 4);
    }
    add_random(&run, DIMS(c->n, c->o, ph, pw));
    add_input(&run, DIMS(c->n, c->o, ph, pw), index, SONDE_U8);
    add_random(&run, DIMS(c->n, c->o, ph, pw));
    add_random(&run, DIMS(c->n, c->c, c->h, c->w));
    set_dims(&run, DIMS(c->o, c->c / c->groups, c->kh, c->kw));
    return run;
}

/* drelu, dconv, dw, db: one kernel after the other. relu_grad wants ReLU's output, which
 * is the pool's where a gradient flows, and may be anything elsewhere. */
static void run_backward_chain(const op_run *fused, sonde__isa isa,
                               const sonde__op_kernel *relu_grad, void *out[4])
{
    sonde__op_attrs pool_attrs = two_by_two, weight_attrs = fused->attrs;
    op_run pool, spread, relu, weight, sum;
    void *relu_y[1];

    memcpy(pool_attrs.window.dims, fused->out[0].dim, sizeof pool_attrs.window.dims);
    pool_attrs.window.rank = 4;
    pool = member_run(&sonde__op_max_pool2d_grad, &pool_attrs, 2, fused->in);
    run_parts(&pool, KERNEL(isa, MAX_POOL2D_GRAD, 0), 1, ALL, out);
    spread = member_run(&sonde__op_max_pool2d_grad, &pool_attrs, 2,
                        (sonde__operand[]){fused->in[2], fused->in[1]});
    run_parts(&spread, KERNEL(isa, MAX_POOL2D_GRAD, 0), 1, ALL, relu_y);
    relu = member_run(
        &sonde__op_relu_grad, &two_by_two, 2,
        (sonde__operand[]){plain(&pool.out[0], out[0]), plain(&pool.out[0], relu_y[0])});
    run_parts(&relu, relu_grad, 1, ALL, out + 1);
    weight = member_run(&sonde__op_conv2d_grad_weight, &weight_attrs, 2,
                        (sonde__operand[]){plain(&pool.out[0], out[1]), fused->in[3]});
    run_parts(&weight, KERNEL(isa, CONV2D_GRAD_WEIGHT, 1), 1, ALL, out + 2);
    sum = member_run(&sonde__op_channel_sum, &two_by_two, 1,
                     (sonde__operand[]){plain(&pool.out[0], out[1])});
    run_parts(&sum, KERNEL(isa, CHANNEL_SUM, 1), 1, ALL, out + 3);
    free(relu_y[0]);
}

static void check_fused_backward(op_run *fused)
{
    infer(fused);
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__op_kernel *relu_grad =
            sonde__kernel_fast_kernels_of((sonde__isa)isa, SONDE__FAST_RELU_GRAD)[0];
        void *expected[4];

        run_backward_chain(fused, (sonde__isa)isa, relu_grad, expected);
        expect_same_whatever_is_wanted(
            fused, KERNEL((sonde__isa)isa, POOL_RELU_CONV_GRAD, 0), expected);
        free_outputs(expected, 4);
    }
}

static void fused_backward_gives_the_bits_of_the_separate_ops(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(conv_cases); i++) {
        if (can_pool(&conv_cases[i])) {
            op_run run = pool_grad_run(&conv_cases[i]);

            check_fused_backward(&run);
            check(&run, pool_relu_conv_grad_kernel, weight_tolerance(&conv_cases[i]));
        }
    }
}

/* --- numbers that are not finite ---------------------------------------------------- */

static void convolutions_propagate_nan_and_inf(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(conv_cases); i++) {
        const conv_case *c = &conv_cases[i];
        op_run runs[] = {forward_run(c, &sonde__op_conv2d, true), backward_run(c, false),
                         backward_run(c, true)};
        const pick picks[] = {conv2d_kernel, grad_input_kernel, grad_weight_kernel};

        for (size_t k = 0; k < SONDE_COUNT_OF(runs) && i > 1; k++) {
            spoil(&runs[k]);
            check(&runs[k], picks[k], weight_tolerance(c) + conv_tolerance(c));
        }
        for (size_t k = 0; k < SONDE_COUNT_OF(runs) && i <= 1; k++) {
            free_inputs(&runs[k]);
        }
        if (i > 1 && can_pool(c)) {
            op_run pool = forward_run(c, &sonde__op_conv2d_relu_pool, true);
            op_run grad = pool_grad_run(c);

            spoil(&pool);
            spoil(&grad);
            ((float *)grad.in[3].data)[0] =
                INFINITY; /* x: zeros of dy times it are NaN */
            check_fused_forward(&pool);
            check_fused_backward(&grad);
            check(&pool, conv2d_relu_pool_kernel, conv_tolerance(c));
            check(&grad, pool_relu_conv_grad_kernel, weight_tolerance(c));
        }
    }
}

/* The same, and an infinite weight: a tap in the padding makes no NaN of it. */
static void many_channels_propagate_nan_and_inf(void **state)
{
    static const size_t few[] = {1, 3, 5, 6, 7};
    const pick picks[] = {wide_kernel, wide_relu_kernel, wide_input_kernel,
                          wide_weight_kernel};

    (void)state;
    for (size_t i = 0; i < 2 * SONDE_COUNT_OF(few); i++) {
        const conv_case *c = &wide_cases[few[i / 2]];
        op_run runs[] = {forward_run(c, &sonde__op_conv2d, true),
                         forward_run(c, &sonde__op_conv2d_relu, true),
                         backward_run(c, false), backward_run(c, true)};

        for (size_t k = 0; k < SONDE_COUNT_OF(runs); k++) {
            if (i % 2 == 0) {
                spoil(&runs[k]);
            } else { /* of w, or of the last channel of x */
                const sonde__op_shape *shape = &runs[k].in[1].shape;

                ((float *)runs[k].in[1].data)[sonde__op_shape_count(shape) - 1] =
                    -INFINITY;
            }
            check(&runs[k], picks[k], weight_tolerance(c) + conv_tolerance(c));
        }
    }
}

/* --- parts -------------------------------------------------------------------------- */

static void little_work_is_not_divided(void **state)
{
    const sonde__op_kernel *k = KERNEL(sonde__cpu_isa(), CONV2D, 1);
    const conv_case small = {16, 1, 28, 28, 5, 3, 3, 1, 0, 1, 1};
    const conv_case large = {64, 5, 13, 13, 12, 5, 5, 1, 0, 1, 1};
    op_run runs[] = {forward_run(&small, &sonde__op_conv2d, true),
                     forward_run(&large, &sonde__op_conv2d, true)};
    sonde__op_call call = {.attrs = &runs[0].attrs, .in_count = 3, .out_count = 1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        memcpy(call.in, runs[i].in, sizeof call.in);
        assert_int_equal(k->parts(&call, 4), i == 0 ? 1 : 4);
        assert_int_equal(k->parts(&call, 1), 1);
        free_inputs(&runs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution),
        cmocka_unit_test(convolution_input_gradient),
        cmocka_unit_test(convolution_of_many_channels),
        cmocka_unit_test(many_channels_are_not_fused_with_a_pool),
        cmocka_unit_test(convolution_weight_gradient),
        cmocka_unit_test(sums_of_channels),
        cmocka_unit_test(fused_forward_gives_the_bits_of_the_separate_ops),
        cmocka_unit_test(fused_pooling_keeps_signs_ties_and_nan),
        cmocka_unit_test(fused_backward_gives_the_bits_of_the_separate_ops),
        cmocka_unit_test(convolutions_propagate_nan_and_inf),
        cmocka_unit_test(many_channels_propagate_nan_and_inf),
        cmocka_unit_test(little_work_is_not_divided),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
