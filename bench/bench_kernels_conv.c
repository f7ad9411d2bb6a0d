/*
 * bench_kernels_conv.c - the kernels over LANES of convolution, pooling, group norm,
 * softmax and NLL against the peak of the processor, measured in the same run.
 *
 *     bench_kernels_conv [filter]        only lines whose name contains filter
 *
 * One thread, warm operands, on every instruction set that the processor has and
 * SONDE_ISA allows. The first lines are the training step of a small CNN of batch 16: 1
 * -> 5 channels 3 x 3, ReLU, 2 x 2 max-pool, 5 -> 12 channels 5 x 5, ReLU, group norm,
 * ten classes; then layers of other shapes. A time is the second percentile of many
 * runs; peak is multiply-adds in registers, run between them. Operations are those of
 * the definition, 2 per multiply-add; lines without them are bound by memory.
 */
#include "kernels_conv_peak.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "nn/kernels/fast.h"
#include "nn/kernels/vec.h"
#include "nn/ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *filter;

#define KERNEL(isa, op, place) sonde__kernel_fast_kernels_of(isa, SONDE__FAST_##op)[place]

static const sonde__op_kernel *first(sonde__isa isa, sonde__kernel_fast_op op)
{
    return sonde__kernel_fast_kernels_of(isa, op)[0];
}

/* --- operands --------------------------------------------------------------------- */

typedef enum content { NUMBERS, WINNERS, CLASSES } content;

static void *filled(const sonde__operand *operand, content what)
{
    const int64_t count = sonde__op_layout_count(&operand->shape, operand->layout);
    void *data = sonde__malloc_aligned(
        SONDE__ALIGN, (size_t)(count + 1) * sonde_dtype_size(operand->shape.dtype));

    if (data == NULL) {
        abort();
    }
    for (int64_t i = 0; i < count; i++) {
        const float u = sonde__uniform(1, what, (uint64_t)i);

        if (what == NUMBERS) {
            ((float *)data)[i] = u - 0.5F;
        } else if (what == WINNERS) {
            ((uint8_t *)data)[i] = (uint8_t)(4.0F * u);
        } else {
            ((int64_t *)data)[i] = (int64_t)(10.0F * u);
        }
    }
    return data;
}

typedef struct bench {
    sonde__op_call call;
    sonde__op_attrs attrs;
    const sonde__op_kernel *kernel;
    double operations;
} bench;

static void add_input(bench *b, int rank, const int64_t *dim, content what)
{
    static const sonde_dtype dtypes[] = {SONDE_F32, SONDE_U8, SONDE_I64};
    sonde__operand *in = &b->call.in[b->call.in_count];

    in->shape = (sonde__op_shape){.dtype = dtypes[what], .rank = rank};
    memcpy(in->shape.dim, dim, (size_t)rank * sizeof *dim);
    in->layout = b->kernel->in[b->call.in_count++];
    in->data = filled(in, what);
}

#define INPUT(b, what, ...)                                                              \
    add_input(b, (int)SONDE_COUNT_OF(((int64_t[]){__VA_ARGS__})),                        \
              (int64_t[]){__VA_ARGS__}, what)

static void set_dims(bench *b, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const int64_t dims[4] = {d0, d1, d2, d3};

    memcpy(b->attrs.shape.dims, dims, sizeof dims);
    b->attrs.shape.rank = d2 == 0 ? 2 : 4;
}

/* Everything but the inputs. Optional outputs in `wanted` are given. */
static void complete(bench *b, const sonde__op_kind *kind, unsigned wanted)
{
    sonde_diag diag = {0};

    b->call.attrs = &b->attrs;
    b->call.out_count = kind->out_count;
    if (kind->infer(&b->call, &b->attrs, &diag) != SONDE_OK) {
        (void)fprintf(stderr, "%s: %s\n", kind->name, diag.found);
        exit(1);
    }
    for (int i = 0; i < kind->out_count; i++) {
        b->call.out[i].layout = b->kernel->out[i];
        if (((kind->optional_out & ~wanted) >> i & 1u) == 0) {
            b->call.out[i].data =
                filled(&b->call.out[i],
                       b->call.out[i].shape.dtype == SONDE_U8 ? WINNERS : NUMBERS);
        }
    }
    if (b->kernel->scratch != NULL) {
        b->call.scratch =
            sonde__malloc_aligned(SONDE__ALIGN, b->kernel->scratch(&b->call, 1) + 1);
    }
}

static void discard(bench *b)
{
    for (int i = 0; i < b->call.in_count; i++) {
        sonde__free(b->call.in[i].data);
    }
    for (int i = 0; i < b->call.out_count; i++) {
        sonde__free(b->call.out[i].data);
    }
    sonde__free(b->call.scratch);
}

/* --- timing ----------------------------------------------------------------------- */

static double measure_peak(sonde__isa isa)
{
#if defined(__x86_64__)
    if (isa == SONDE__AVX512) {
        return peak_avx512();
    }
    if (isa == SONDE__AVX2) {
        return peak_avx2();
    }
#endif
    (void)isa;
    return peak_generic();
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Seconds: the second percentile; *peak in GF/s: the best between the runs. */
static double time_kernel(const bench *b, sonde__isa isa, double *peak)
{
    enum { RUNS = 4000, EVERY = 20 };
    static double times[RUNS];
    const double begun = sonde__now();
    size_t runs = 0;

    *peak = 0.0;
    for (; runs < RUNS && (runs < EVERY || sonde__now() - begun < 0.3); runs++) {
        double start;

        if (runs % EVERY == 0) {
            const double now = measure_peak(isa);

            *peak = now > *peak ? now : *peak;
            b->kernel->run(&b->call, 0, 1);
        }
        start = sonde__now();
        b->kernel->run(&b->call, 0, 1);
        times[runs] = sonde__now() - start;
    }
    qsort(times, runs, sizeof *times, compare);
    return times[runs / 50];
}

/* Prints a line; gives the seconds. Frees b's operands. */
static double report(const char *name, bench *b, sonde__isa isa)
{
    double seconds = 0.0, peak = 0.0;

    if (filter == NULL || strstr(name, filter) != NULL) {
        seconds = time_kernel(b, isa, &peak);
        if (b->operations > 0.0) {
            const double rate = b->operations / seconds * 1e-9;

            printf("%-44s %9.2f us %7.1f GF/s %5.1f %% of %.0f\n", name, seconds * 1e6,
                   rate, 100.0 * rate / peak, peak);
        } else {
            printf("%-44s %9.2f us\n", name, seconds * 1e6);
        }
    }
    discard(b);
    return seconds;
}

/* --- convolutions ----------------------------------------------------------------- */

typedef struct layer {
    int64_t n, c, h, w, o, k, stride, padding, groups;
} layer;

static int64_t extent(const layer *l, int64_t size)
{
    return (size + 2 * l->padding - l->k) / l->stride + 1;
}

static bench start(const layer *l, const sonde__op_kernel *kernel, double images)
{
    const int64_t oh = extent(l, l->h), ow = extent(l, l->w);
    bench b = {.kernel = kernel,
               .attrs = {.window = {.stride = {l->stride, l->stride},
                                    .padding = {l->padding, l->padding},
                                    .dilation = {1, 1},
                                    .groups = l->groups}}};

    b.operations =
        2.0 * images * (double)(l->o * oh * ow * l->c * l->k * l->k) / (double)l->groups;
    return b;
}

enum { PLAIN_CONV, WITH_RELU, WITH_POOL };

static double forward(const char *name, const layer *l, int kind, unsigned wanted,
                      sonde__isa isa)
{
    static const sonde__op_kind *const kinds[] = {
        &sonde__op_conv2d, &sonde__op_conv2d_relu, &sonde__op_conv2d_relu_pool};
    const sonde__op_kernel *const kernels[] = {KERNEL(isa, CONV2D, 1),
                                               KERNEL(isa, CONV2D_RELU, 1),
                                               KERNEL(isa, CONV2D_RELU_POOL, 0)};
    bench b = start(l, kernels[kind], (double)l->n);

    INPUT(&b, NUMBERS, l->n, l->c, l->h, l->w);
    INPUT(&b, NUMBERS, l->o, l->c / l->groups, l->k, l->k);
    INPUT(&b, NUMBERS, l->o);
    complete(&b, kinds[kind], wanted);
    return report(name, &b, isa);
}

static double input_gradient(const char *name, const layer *l, sonde__isa isa)
{
    bench b = start(l, KERNEL(isa, CONV2D_GRAD_INPUT, 1), (double)l->n);

    INPUT(&b, NUMBERS, l->n, l->o, extent(l, l->h), extent(l, l->w));
    INPUT(&b, NUMBERS, l->o, l->c / l->groups, l->k, l->k);
    set_dims(&b, l->n, l->c, l->h, l->w);
    complete(&b, &sonde__op_conv2d_grad_input, 0);
    return report(name, &b, isa);
}

static double weight_gradient(const char *name, const layer *l, sonde__isa isa)
{
    bench b = start(l, KERNEL(isa, CONV2D_GRAD_WEIGHT, 1), (double)l->n);

    INPUT(&b, NUMBERS, l->n, l->o, extent(l, l->h), extent(l, l->w));
    INPUT(&b, NUMBERS, l->n, l->c, l->h, l->w);
    set_dims(&b, l->o, l->c / l->groups, l->k, l->k);
    complete(&b, &sonde__op_conv2d_grad_weight, 0);
    return report(name, &b, isa);
}

static double bias_gradient(const char *name, const layer *l, sonde__isa isa)
{
    bench b = {.kernel = KERNEL(isa, CHANNEL_SUM, 1)};

    INPUT(&b, NUMBERS, l->n, l->o, extent(l, l->h), extent(l, l->w));
    complete(&b, &sonde__op_channel_sum, 0);
    return report(name, &b, isa);
}

static double fused_gradient(const char *name, const layer *l, unsigned wanted,
                             sonde__isa isa)
{
    bench b = start(l, KERNEL(isa, POOL_RELU_CONV_GRAD, 0), (double)l->n);
    const int64_t ph = extent(l, l->h) / 2, pw = extent(l, l->w) / 2;

    INPUT(&b, NUMBERS, l->n, l->o, ph, pw);
    INPUT(&b, WINNERS, l->n, l->o, ph, pw);
    INPUT(&b, NUMBERS, l->n, l->o, ph, pw);
    INPUT(&b, NUMBERS, l->n, l->c, l->h, l->w);
    set_dims(&b, l->o, l->c / l->groups, l->k, l->k);
    complete(&b, &sonde__op_pool_relu_conv_grad, wanted);
    return report(name, &b, isa);
}

/* --- the others ------------------------------------------------------------------- */

static double pool(const char *name, bool grad, sonde__isa isa)
{
    bench b = {
        .kernel = first(isa, grad ? SONDE__FAST_MAX_POOL2D_GRAD : SONDE__FAST_MAX_POOL2D),
        .attrs = {.window = {.kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}}}};

    if (grad) {
        INPUT(&b, NUMBERS, 16, 5, 13, 13);
        INPUT(&b, WINNERS, 16, 5, 13, 13);
        set_dims(&b, 16, 5, 26, 26);
    } else {
        INPUT(&b, NUMBERS, 16, 5, 26, 26);
    }
    complete(&b, grad ? &sonde__op_max_pool2d_grad : &sonde__op_max_pool2d, 0);
    return report(name, &b, isa);
}

static double norm(const char *name, bool grad, sonde__isa isa)
{
    bench b = {
        .kernel = first(isa, grad ? SONDE__FAST_GROUP_NORM_GRAD : SONDE__FAST_GROUP_NORM),
        .attrs = {.norm = {.groups = 3, .eps = 1e-5F}}};

    INPUT(&b, NUMBERS, 16, 12, 9, 9);
    if (grad) {
        INPUT(&b, NUMBERS, 16, 12, 9, 9);
        INPUT(&b, NUMBERS, 16, 3);
        INPUT(&b, NUMBERS, 16, 3);
    }
    INPUT(&b, NUMBERS, 12);
    if (!grad) {
        INPUT(&b, NUMBERS, 12);
    }
    complete(&b, grad ? &sonde__op_group_norm_grad : &sonde__op_group_norm, 6);
    return report(name, &b, isa);
}

static double log_softmax(const char *name, bool grad, sonde__isa isa)
{
    bench b = {.kernel = first(isa, grad ? SONDE__FAST_LOG_SOFTMAX_GRAD
                                         : SONDE__FAST_LOG_SOFTMAX),
               .attrs = {.along = {.axis = 1}}};

    INPUT(&b, NUMBERS, 16, 10);
    if (grad) {
        INPUT(&b, NUMBERS, 16, 10);
    }
    complete(&b, grad ? &sonde__op_log_softmax_grad : &sonde__op_log_softmax, 0);
    return report(name, &b, isa);
}

static double nll(const char *name, bool grad, sonde__isa isa)
{
    bench b = {.kernel = first(isa, grad ? SONDE__FAST_NLL_GRAD : SONDE__FAST_NLL),
               .attrs = {.loss = {.mean = true}}};

    if (grad) {
        add_input(&b, 0, (int64_t[]){0}, NUMBERS);
        set_dims(&b, 16, 10, 0, 0);
    } else {
        INPUT(&b, NUMBERS, 16, 10);
    }
    INPUT(&b, CLASSES, 16);
    complete(&b, grad ? &sonde__op_nll_grad : &sonde__op_nll, 0);
    return report(name, &b, isa);
}

/* --- programs --------------------------------------------------------------------- */

static void small_cnn(sonde__isa isa)
{
    static const layer one = {16, 1, 28, 28, 5, 3, 1, 0, 1},
                       two = {16, 5, 13, 13, 12, 5, 1, 0, 1};
    double sum = 0.0;

    sum += forward("cnn conv1 + relu + pool", &one, WITH_POOL, 0, isa);
    sum += forward("cnn conv2 + relu", &two, WITH_RELU, 0, isa);
    sum += norm("cnn group norm", false, isa);
    sum += log_softmax("cnn log-softmax", false, isa);
    sum += nll("cnn nll", false, isa);
    sum += nll("cnn nll gradient", true, isa);
    sum += log_softmax("cnn log-softmax gradient", true, isa);
    sum += norm("cnn group norm gradient", true, isa);
    sum += weight_gradient("cnn conv2 weight gradient", &two, isa);
    sum += bias_gradient("cnn conv2 bias gradient", &two, isa);
    sum += input_gradient("cnn conv2 input gradient", &two, isa);
    sum += fused_gradient("cnn conv1 pool + relu + weight gradient", &one, 8, isa);
    printf("%-44s %9.2f us\n", "sum", sum * 1e6);
    (void)forward("cnn conv1", &one, PLAIN_CONV, 0, isa);
    (void)forward("cnn conv1 + relu + pool, all observed", &one, WITH_POOL, 3, isa);
    (void)forward("cnn conv2 + relu, all observed", &two, WITH_RELU, 1, isa);
    (void)weight_gradient("cnn conv1 weight gradient", &one, isa);
    (void)fused_gradient("cnn conv1 pool ... gradient, all observed", &one, 15, isa);
    (void)pool("cnn pool1", false, isa);
    (void)pool("cnn pool1 gradient", true, isa);
}

static void other_layers(sonde__isa isa)
{
    static const struct {
        const char *name;
        layer l;
    } layers[] = {
        {"64 x 1 x 28 x 28, 5 of 3 x 3", {64, 1, 28, 28, 5, 3, 1, 0, 1}},
        {"64 x 5 x 13 x 13, 12 of 5 x 5", {64, 5, 13, 13, 12, 5, 1, 0, 1}},
        {"16 x 16 x 28 x 28, 16 of 3 x 3, padded", {16, 16, 28, 28, 16, 3, 1, 1, 1}},
        {"16 x 32 x 14 x 14, 64 of 3 x 3, padded, /2", {16, 32, 14, 14, 64, 3, 2, 1, 1}},
        {"16 x 32 x 14 x 14, 32 of 1 x 1", {16, 32, 14, 14, 32, 1, 1, 0, 1}},
        {"16 x 3 x 32 x 32, 7 of 7 x 7, padded", {16, 3, 32, 32, 7, 7, 1, 3, 1}},
        {"16 x 32 x 14 x 14, depthwise 3 x 3, padded", {16, 32, 14, 14, 32, 3, 1, 1, 32}},
    };

    for (size_t i = 0; i < SONDE_COUNT_OF(layers); i++) {
        printf("%s\n", layers[i].name);
        (void)forward("  forward", &layers[i].l, PLAIN_CONV, 0, isa);
        (void)forward("  forward + relu + pool", &layers[i].l, WITH_POOL, 0, isa);
        (void)input_gradient("  input gradient", &layers[i].l, isa);
        (void)weight_gradient("  weight gradient", &layers[i].l, isa);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"generic", "avx2", "avx512"};

    filter = argc > 1 ? argv[1] : NULL;
    for (int isa = (int)sonde__cpu_isa(); isa >= 0; isa--) {
        printf("--- %s\n", names[isa]);
        small_cnn((sonde__isa)isa);
        other_layers((sonde__isa)isa);
    }
    return 0;
}
