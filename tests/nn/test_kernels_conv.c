/*
 * The fast kernels of convolution, pooling, group norm, softmax and NLL against the
 * scalar references, on every instruction set of this processor and in one to three
 * parts; fused kernels against the kernels they stand for, to the bit.
 */
#include "nn/ops_harness.h"

#include "nn/ops/fast_conv.h"
#include "nn/ops/fast_linear.h"

#include <float.h>

enum { MAX_PARTS = 3, ALL = 0xFF };

/* --- running ---------------------------------------------------------------------- */

static float *random_floats(size_t count, uint64_t seed)
{
    float *data = poisoned_block(count * sizeof *data);

    for (size_t i = 0; i < count; i++) {
        data[i] = 2.0F * sonde__uniform(seed, 3, i) - 1.0F;
    }
    return data;
}

static void add_input(op_run *run, int rank, const int64_t *dim, void *data,
                      sonde_dtype dtype)
{
    sonde__operand *in = &run->in[run->in_count++];

    in->shape = (sonde__shape){.dtype = dtype, .rank = rank};
    memcpy(in->shape.dim, dim, (size_t)rank * sizeof *dim);
    in->data = data;
}

#define DIMS(...)                                                                        \
    (int)SONDE_COUNT_OF(((int64_t[]){__VA_ARGS__})), (int64_t[])                         \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }

static size_t count_of(int rank, const int64_t *dim)
{
    size_t count = 1;

    for (int i = 0; i < rank; i++) {
        count *= (size_t)dim[i];
    }
    return count;
}

/* An input of random numbers, different for each. */
static void add_random(op_run *run, int rank, const int64_t *dim)
{
    add_input(run, rank, dim,
              random_floats(count_of(rank, dim), (uint64_t)(run->in_count + 1)),
              SONDE_F32);
}

static void set_dims(op_run *run, int rank, const int64_t *dim)
{
    memcpy(run->attrs.dims, dim, (size_t)rank * sizeof *dim);
    run->attrs.rank = rank;
}

static void infer(op_run *run)
{
    sonde_diag diag = {0};

    if (infer_run(run, &diag) != SONDE_OK) {
        fail_msg("%s: %s", run->kind->name, diag.found);
    }
}

static void free_inputs(op_run *run)
{
    for (int i = 0; i < run->in_count; i++) {
        free(run->in[i].data);
    }
}

/* Runs a kernel in exactly so many parts, last first, however little there is to do. Of
 * the optional outputs those in `wanted` are given. out[i] is a new plain block or NULL.
 */
static void run_parts(const op_run *run, const sonde__kernel *kernel, int parts,
                      unsigned wanted, void *out[])
{
    const run_options options = {.any = SONDE__LANES};
    sonde__call call = {.attrs = &run->attrs,
                        .in_count = run->in_count,
                        .out_count = run->kind->out_count};

    assert_true(kernel_accepts(run, kernel));
    lay_operands(run, kernel, &options, &call);
    for (int i = 0; i < call.out_count; i++) {
        if ((run->kind->optional_out & ~wanted) >> i & 1u) {
            free(call.out[i].data);
            call.out[i].data = NULL;
        }
    }
    if (kernel->scratch != NULL) {
        call.scratch = poisoned_block(kernel->scratch(&call, parts));
    }
    for (int part = parts - 1; part >= 0; part--) {
        kernel->run(&call, part, parts);
    }
    for (int i = 0; i < call.out_count; i++) {
        out[i] =
            call.out[i].data == NULL ? NULL : poisoned_block(plain_bytes(&run->out[i]));
        if (out[i] != NULL) {
            harness_copy(&run->out[i], call.out[i].layout, call.out[i].data, out[i],
                         true);
        }
        free(call.out[i].data);
    }
    for (int i = 0; i < run->in_count; i++) {
        free(call.in[i].data);
    }
    free(call.scratch);
}

static void free_outputs(void *out[], int count)
{
    for (int i = 0; i < count; i++) {
        free(out[i]);
    }
}

/* --- comparing -------------------------------------------------------------------- */

/* NaN with NaN, infinities and close numbers alike. */
static void assert_close(const op_run *run, int i, const void *got, const void *expected,
                         double tolerance)
{
    const size_t count = plain_bytes(&run->out[i]) / sonde_dtype_size(run->out[i].dtype);

    for (size_t k = 0; k < count; k++) {
        const sonde_dtype dtype = run->out[i].dtype;
        const size_t at = k * sonde_dtype_size(dtype);
        const double a = sonde_element_get(dtype, (const char *)got + at);
        const double b = sonde_element_get(dtype, (const char *)expected + at);

        if (isnan(b) ? !isnan(a) : isinf(b) ? a != b : !(fabs(a - b) <= tolerance)) {
            fail_msg("%s, output %d, element %zu is %.9g, expected %.9g +- %.2g",
                     run->kind->name, i, k, a, b, tolerance);
        }
    }
}

static void assert_same_bytes(const op_run *run, int i, const void *got,
                              const void *expected, const char *what)
{
    if (memcmp(got, expected, plain_bytes(&run->out[i])) != 0) {
        fail_msg("%s, output %d: bits differ %s", run->kind->name, i, what);
    }
}

/* Which kernel of a set. */
typedef const sonde__kernel *(*pick_fn)(const sonde__lane_kernels *set);

#define DEFINE_PICK(name, member)                                                        \
    static const sonde__kernel *name(const sonde__lane_kernels *set)                     \
    {                                                                                    \
        return &set->member;                                                             \
    }

DEFINE_PICK(conv2d_kernel, conv2d->forward)
DEFINE_PICK(conv2d_relu_kernel, conv2d->relu)
DEFINE_PICK(conv2d_relu_pool_kernel, conv2d->relu_pool)
DEFINE_PICK(grad_input_kernel, conv2d_grad->input)
DEFINE_PICK(grad_weight_kernel, conv2d_weight->weight)
DEFINE_PICK(channel_sum_kernel, conv2d_weight->channel_sum)
DEFINE_PICK(pool_relu_conv_grad_kernel, conv2d_weight->pool_relu)
DEFINE_PICK(pool_kernel, pool->forward)
DEFINE_PICK(pool_grad_kernel, pool->grad)
DEFINE_PICK(norm_kernel, group_norm->forward)
DEFINE_PICK(norm_grad_kernel, group_norm->grad)
DEFINE_PICK(softmax_kernel, softmax->softmax)
DEFINE_PICK(log_softmax_kernel, softmax->log_softmax)
DEFINE_PICK(softmax_grad_kernel, softmax->softmax_grad)
DEFINE_PICK(log_softmax_grad_kernel, softmax->log_softmax_grad)
DEFINE_PICK(nll_kernel, nll->forward)
DEFINE_PICK(nll_grad_kernel, nll->grad)

/* Every instruction set's kernel against the reference, and parts against each other.
 * Frees the inputs. */
static void check(op_run *run, pick_fn pick, double tolerance)
{
    void *expected[SONDE__MAX_OPERANDS];

    infer(run);
    run_kernel(run, reference_of(run->kind), &(run_options){.parts = 1}, expected);
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__kernel *kernel = pick(sonde__lane_kernels_of((sonde__isa)isa));
        void *whole[SONDE__MAX_OPERANDS], *got[SONDE__MAX_OPERANDS];

        run_parts(run, kernel, 1, ALL, whole);
        for (int i = 0; i < run->kind->out_count; i++) {
            assert_close(run, i, whole[i], expected[i], tolerance);
        }
        for (int parts = 2; parts <= MAX_PARTS; parts++) {
            run_parts(run, kernel, parts, ALL, got);
            for (int i = 0; i < run->kind->out_count; i++) {
                assert_same_bytes(run, i, got[i], whole[i], "with the number of parts");
            }
            free_outputs(got, run->kind->out_count);
        }
        free_outputs(whole, run->kind->out_count);
    }
    free_outputs(expected, run->kind->out_count);
    free_inputs(run);
}

/* Sums of `depth` products of numbers below 1: each rounding is at most half an epsilon
 * of a partial sum, which is of the order of sqrt(depth). */
static double sum_tolerance(int64_t depth)
{
    return (double)FLT_EPSILON *
           (8.0 + sqrt((double)depth) * (4.0 + sqrt((double)depth) / 8));
}

/* --- convolutions ----------------------------------------------------------------- */

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

static int64_t out_extent(const conv_case *c, int64_t size, int64_t kernel)
{
    return (size + 2 * c->padding - c->dilation * (kernel - 1) - 1) / c->stride + 1;
}

static op_run conv_run(const conv_case *c, const sonde__op_kind *kind)
{
    const op_run run = {.kind = kind,
                        .attrs = {.stride = {c->stride, c->stride},
                                  .padding = {c->padding, c->padding},
                                  .dilation = {c->dilation, c->dilation},
                                  .groups = c->groups}};

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

/* --- fused against separate ------------------------------------------------------- */

/* A member op that reads blocks of others; nothing of it is freed with it. */
static op_run member_run(const sonde__op_kind *kind, const sonde__attrs *attrs,
                         int in_count, const sonde__operand *in)
{
    op_run run = {.kind = kind, .attrs = *attrs, .in_count = in_count};

    memcpy(run.in, in, (size_t)in_count * sizeof *in);
    infer(&run);
    return run;
}

static const sonde__attrs two_by_two = {
    .kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}};

static sonde__operand plain(const sonde__shape *shape, void *data)
{
    return (sonde__operand){*shape, SONDE__PLAIN, data};
}

/* conv, relu, pooled, index: one kernel after the other. */
static void run_forward_chain(const op_run *fused, const sonde__lane_kernels *set,
                              const sonde__kernel *relu_kernel, void *out[4])
{
    op_run conv =
        member_run(&sonde__op_conv2d, &fused->attrs, fused->in_count, fused->in);
    op_run relu, pool;

    run_parts(&conv, &set->conv2d->forward, 1, ALL, out);
    relu = member_run(&sonde__op_relu, &fused->attrs, 1,
                      (sonde__operand[]){plain(&conv.out[0], out[0])});
    run_parts(&relu, relu_kernel, 1, ALL, out + 1);
    pool = member_run(&sonde__op_max_pool2d, &two_by_two, 1,
                      (sonde__operand[]){plain(&conv.out[0], out[1])});
    run_parts(&pool, &set->pool->forward, 1, ALL, out + 2);
}

/* Whatever is observed, what is computed stays: every set of optional outputs gives the
 * bits of the separate kernels. */
static void expect_same_whatever_is_wanted(const op_run *fused,
                                           const sonde__kernel *kernel,
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
        const sonde__lane_kernels *set = sonde__lane_kernels_of((sonde__isa)isa);
        const sonde__kernel *relu =
            sonde__fast_kernels_of((sonde__isa)isa, SONDE__FAST_RELU)[0];
        void *expected[4];

        run_forward_chain(fused, set, relu, expected);
        if (fused->kind == &sonde__op_conv2d_relu) {
            expect_same_whatever_is_wanted(fused, &set->conv2d->relu, expected);
        } else {
            expect_same_whatever_is_wanted(fused, &set->conv2d->relu_pool, expected);
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

/* Numbers that ReLU and max-pool tell apart by their sign or not at all. */
static void put_oddities(op_run *run)
{
    static const float odd[] = {0.0F, -0.0F, NAN, INFINITY, -INFINITY, 1.0F, -1.0F};
    float *x = run->in[0].data;
    const size_t count = plain_bytes(&run->in[0].shape) / sizeof *x;

    for (size_t i = 0; i < count; i++) {
        x[i] = odd[sonde__below(11, 5, i, SONDE_COUNT_OF(odd))];
    }
}

/* A convolution that hands its input on, so that windows hold just those numbers: weight
 * 1 and bias -0 keep even the sign of a zero. */
static void fused_pooling_keeps_signs_ties_and_nan(void **state)
{
    const conv_case c = {33, 1, 8, 9, 1, 1, 1, 1, 0, 1, 1};
    op_run pool = forward_run(&c, &sonde__op_conv2d_relu_pool, true);

    (void)state;
    put_oddities(&pool);
    *(float *)pool.in[1].data = 1.0F;
    *(float *)pool.in[2].data = -0.0F;
    check_fused_forward(&pool);
    check(&pool, conv2d_relu_pool_kernel, 0.0);
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
static void run_backward_chain(const op_run *fused, const sonde__lane_kernels *set,
                               const sonde__kernel *relu_grad, void *out[4])
{
    sonde__attrs pool_attrs = two_by_two, weight_attrs = fused->attrs;
    op_run pool, spread, relu, weight, sum;
    void *relu_y[1];

    memcpy(pool_attrs.dims, fused->out[0].dim, sizeof pool_attrs.dims);
    pool_attrs.rank = 4;
    pool = member_run(&sonde__op_max_pool2d_grad, &pool_attrs, 2, fused->in);
    run_parts(&pool, &set->pool->grad, 1, ALL, out);
    spread = member_run(&sonde__op_max_pool2d_grad, &pool_attrs, 2,
                        (sonde__operand[]){fused->in[2], fused->in[1]});
    run_parts(&spread, &set->pool->grad, 1, ALL, relu_y);
    relu = member_run(
        &sonde__op_relu_grad, &two_by_two, 2,
        (sonde__operand[]){plain(&pool.out[0], out[0]), plain(&pool.out[0], relu_y[0])});
    run_parts(&relu, relu_grad, 1, ALL, out + 1);
    weight = member_run(&sonde__op_conv2d_grad_weight, &weight_attrs, 2,
                        (sonde__operand[]){plain(&pool.out[0], out[1]), fused->in[3]});
    run_parts(&weight, &set->conv2d_weight->weight, 1, ALL, out + 2);
    sum = member_run(&sonde__op_channel_sum, &two_by_two, 1,
                     (sonde__operand[]){plain(&pool.out[0], out[1])});
    run_parts(&sum, &set->conv2d_weight->channel_sum, 1, ALL, out + 3);
    free(relu_y[0]);
}

static void check_fused_backward(op_run *fused)
{
    infer(fused);
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__lane_kernels *set = sonde__lane_kernels_of((sonde__isa)isa);
        const sonde__kernel *relu_grad =
            sonde__fast_kernels_of((sonde__isa)isa, SONDE__FAST_RELU_GRAD)[0];
        void *expected[4];

        run_backward_chain(fused, set, relu_grad, expected);
        expect_same_whatever_is_wanted(fused, &set->conv2d_weight->pool_relu, expected);
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

/* NaN and infinities in the first two float inputs of a run. */
static void spoil(op_run *run)
{
    for (int i = 0; i < 2 && i < run->in_count; i++) {
        float *data = run->in[i].data;
        const size_t count = plain_bytes(&run->in[i].shape) / sizeof *data;

        if (run->in[i].shape.dtype == SONDE_F32) {
            data[count / 2] = i == 0 ? NAN : INFINITY;
            data[count - 1] = -INFINITY;
            data[0] = INFINITY;
        }
    }
}

static void convolutions_propagate_nan_and_inf(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(conv_cases); i++) {
        const conv_case *c = &conv_cases[i];
        op_run runs[] = {forward_run(c, &sonde__op_conv2d, true), backward_run(c, false),
                         backward_run(c, true)};
        static const pick_fn picks[] = {conv2d_kernel, grad_input_kernel,
                                        grad_weight_kernel};

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
                        .attrs = {.kernel = {c->kh, c->kw},
                                  .stride = {c->stride, c->stride},
                                  .padding = {c->padding, c->padding},
                                  .dilation = {c->dilation, c->dilation}}};

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
        put_oddities(&odd);
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

/* --- group norm -----------------------------------------------------------------------
 */

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
    const op_run run = {.kind = kind, .attrs = {.groups = c->groups, .eps = 1e-5F}};

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

/* --- softmax and NLL
 * -------------------------------------------------------------------- */

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
    static const pick_fn picks[] = {softmax_kernel, log_softmax_kernel,
                                    softmax_grad_kernel, log_softmax_grad_kernel};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases) * 4 * 2; i++) {
        const size_t k = i / 2 % 4, at = i / 8;
        op_run run = {.kind = kinds[k], .attrs = {.axis = cases[at].axis}};
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
    op_run run = {.kind = &sonde__op_log_softmax, .attrs = {.axis = 1}};

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
        const sonde__attrs attrs = {.mean = i % 2 == 1};
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
    const sonde__attrs attrs = {.mean = true, .dims = {3, 2}, .rank = 2};
    float dloss = 1.0F, dlogp[2 * 16];
    int64_t target[] = {0, 1, 0};

    (void)state;
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__call call = {.attrs = &attrs,
                                  .in_count = 2,
                                  .out_count = 1,
                                  .in = {{{SONDE_F32, 0, {0}}, SONDE__PLAIN, &dloss},
                                         {{SONDE_I64, 1, {3}}, SONDE__PLAIN, target}},
                                  .out = {{{SONDE_F32, 2, {3, 2}}, SONDE__LANES, dlogp}}};

        memset(dlogp, 0xFF, sizeof dlogp);
        sonde__lane_kernels_of((sonde__isa)isa)->nll->grad.run(&call, 0, 1);
        for (int lane = 3; lane < 16; lane++) {
            assert_true(dlogp[lane] == 0.0F && dlogp[16 + lane] == 0.0F);
        }
    }
}

/* --- exp and log
 * ------------------------------------------------------------------------- */

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

static double worst_of(void (*run)(const float *, float *, size_t),
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
        const sonde__softmax_kernels *k =
            sonde__lane_kernels_of((sonde__isa)isa)->softmax;
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
        const sonde__softmax_kernels *k =
            sonde__lane_kernels_of((sonde__isa)isa)->softmax;

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

/* --- lists, parts, what is declined
 * --------------------------------------------------------- */

static void lists_hold_the_kernels_of_this_processor(void **state)
{
    const sonde__lane_kernels *set = sonde__lane_kernels_of(sonde__cpu_isa());

    (void)state;
    assert_ptr_equal(sonde__conv2d_fast()[0], &set->conv2d->forward);
    assert_null(sonde__conv2d_fast()[1]);
    assert_ptr_equal(sonde__nll_grad_fast()[0], &set->nll->grad);
    assert_ptr_equal(sonde__channel_sum_fast()[1], &set->conv2d_weight->channel_sum);
    assert_null(sonde__channel_sum_fast()[2]);
}

static void little_work_is_not_divided(void **state)
{
    const sonde__conv2d_kernels *k = sonde__lane_kernels_of(sonde__cpu_isa())->conv2d;
    const conv_case small = {16, 1, 28, 28, 5, 3, 3, 1, 0, 1, 1};
    const conv_case large = {64, 5, 13, 13, 12, 5, 5, 1, 0, 1, 1};
    op_run runs[] = {forward_run(&small, &sonde__op_conv2d, true),
                     forward_run(&large, &sonde__op_conv2d, true)};
    sonde__call call = {.attrs = &runs[0].attrs, .in_count = 3, .out_count = 1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        memcpy(call.in, runs[i].in, sizeof call.in);
        assert_int_equal(k->forward.parts(&call, 4), i == 0 ? 1 : 4);
        assert_int_equal(k->forward.parts(&call, 1), 1);
        free_inputs(&runs[i]);
    }
}

static void other_dtypes_and_axis_0_are_declined(void **state)
{
    const sonde__lane_kernels *set = sonde__lane_kernels_of(sonde__cpu_isa());
    op_run run = {.kind = &sonde__op_softmax, .attrs = {.axis = 0}};

    (void)state;
    add_random(&run, DIMS(3, 4));
    infer(&run);
    assert_false(kernel_accepts(&run, &set->softmax->softmax));
    run.attrs.axis = 1;
    assert_true(kernel_accepts(&run, &set->softmax->softmax));
    run.in[0].shape.dtype = SONDE_F64;
    assert_false(kernel_accepts(&run, &set->softmax->softmax));
    free_inputs(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution),
        cmocka_unit_test(convolution_input_gradient),
        cmocka_unit_test(convolution_weight_gradient),
        cmocka_unit_test(sums_of_channels),
        cmocka_unit_test(fused_forward_gives_the_bits_of_the_separate_ops),
        cmocka_unit_test(fused_pooling_keeps_signs_ties_and_nan),
        cmocka_unit_test(fused_backward_gives_the_bits_of_the_separate_ops),
        cmocka_unit_test(convolutions_propagate_nan_and_inf),
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
        cmocka_unit_test(lists_hold_the_kernels_of_this_processor),
        cmocka_unit_test(little_work_is_not_divided),
        cmocka_unit_test(other_dtypes_and_axis_0_are_declined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
