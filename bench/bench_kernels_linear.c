/*
 * bench_kernels_linear.c - the kernels of linear layers, updates and reorders against
 * the peak of the machine, measured in the same run, and against oneDNN's matrix
 * product.
 *
 *     bench_kernels_linear [filter]      only lines whose text contains filter
 *
 * Shapes are those of three networks: (a) the dense layers of a small CNN, batch 16; (b)
 * a perceptron 784-320-100-10, batch 1000; (c) 784-256-128-10, batch 32. Times are the
 * second percentile of many runs, with operands as warm as the previous run left them.
 * Whole steps run every kernel of a training step except the loss.
 */
#include "kernels_linear.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

#if BENCH_DNNL
#include <dnnl.h>
#include <omp.h>
#endif

/* --- matrix products -------------------------------------------------------------- */

#if BENCH_DNNL
static double time_dnnl(char ta, char tb, int64_t m, int64_t n, int64_t k, int threads)
{
    float *a = floats(m * k), *b = floats(k * n), *c = floats(m * n);
    timing t;

    omp_set_num_threads(threads);
    timing_begin(&t);
    while (timing_goes_on(&t)) {
        const double start = sonde__now();

        if (dnnl_sgemm(ta, tb, m, n, k, 1.0F, a, ta == 'N' ? k : m, b, tb == 'N' ? n : k,
                       0.0F, c, n) != dnnl_success) {
            abort();
        }
        timing_add(&t, sonde__now() - start);
    }
    sonde__free(a);
    sonde__free(b);
    sonde__free(c);
    return timing_end(&t);
}
#endif

typedef enum direction { FORWARD, GRAD_INPUT, GRAD_WEIGHT } direction;

static job product_job(direction d, sonde__op_layout x_layout, int64_t n, int64_t k,
                       int64_t o)
{
    static const sonde__kernel_fast_op ops[] = {SONDE__FAST_LINEAR,
                                                SONDE__FAST_LINEAR_GRAD_INPUT,
                                                SONDE__FAST_LINEAR_GRAD_WEIGHT};
    const sonde__op_kernel *const *list =
        sonde__kernel_fast_kernels_of(sonde__cpu_isa(), ops[d]);
    const sonde__operand x = matrix(n, k, x_layout), w = matrix(o, k, SONDE__PLAIN);
    const sonde__operand y = matrix(n, o, SONDE__LANES);
    job j = {.flops = 2.0 * (double)n * (double)k * (double)o};

    j.call.in_count = 2;
    j.call.out_count = 1;
    j.call.in[0] = d == FORWARD ? x : y;
    j.call.in[1] = d == GRAD_WEIGHT ? x : w;
    j.call.out[0] = d == FORWARD ? y : d == GRAD_INPUT ? x : w;
    while (d != GRAD_INPUT && (*list)->in[d == FORWARD ? 0 : 1] != x_layout) {
        list++;
    }
    j.kernel = *list;
    add_scratch(&j);
    return j;
}

static void free_job(job *j)
{
    for (int i = 0; i < j->call.in_count; i++) {
        sonde__free(j->call.in[i].data);
    }
    sonde__free(j->call.out[0].data);
    sonde__free(j->call.scratch);
}

static void bench_product(const char *text, direction d, sonde__op_layout layout,
                          int64_t n, int64_t k, int64_t o)
{
    static const char *const names[] = {"forward", "grad_input", "grad_weight"};
    static const char *const layouts[] = {"plain", "lanes", "panels"};
    char line[96];
    double one, two;
    job j;

    (void)snprintf(line, sizeof line, "%s %s x %s", text, names[d], layouts[layout]);
    if (!bench_wanted(line)) {
        return;
    }
    j = product_job(d, layout, n, k, o);
    one = j.flops / time_jobs(&j, 1, 1) / 1e9;
    two = j.flops / time_jobs(&j, 1, 2) / 1e9;
    printf("%-44s %7.2f us %6.1f GF/s %5.1f %%  2 threads %6.1f %5.2fx", line,
           j.flops / one / 1e3, one, 100.0 * one / bench_peak, two, two / one);
#if BENCH_DNNL
    if (d == FORWARD ? layout == SONDE__LANES : true) {
        const double peer = d == FORWARD      ? time_dnnl('N', 'T', n, o, k, 1)
                            : d == GRAD_INPUT ? time_dnnl('N', 'N', n, k, o, 1)
                                              : time_dnnl('T', 'N', o, k, n, 1);

        printf("  oneDNN %6.1f", j.flops / peer / 1e9);
    }
#endif
    printf("\n");
    free_job(&j);
}

static void bench_products(void)
{
    static const struct {
        const char *text;
        int64_t n, k, o;
    } layers[] = {
        {"(a) 972-100 N 16", 16, 972, 100},     {"(a) 100-10 N 16", 16, 100, 10},
        {"(b) 784-320 N 1000", 1000, 784, 320}, {"(b) 320-100 N 1000", 1000, 320, 100},
        {"(b) 100-10 N 1000", 1000, 100, 10},   {"(c) 784-256 N 32", 32, 784, 256},
        {"(c) 256-128 N 32", 32, 256, 128},     {"(c) 128-10 N 32", 32, 128, 10}};

    for (size_t i = 0; i < SONDE_COUNT_OF(layers); i++) {
        const int64_t n = layers[i].n, k = layers[i].k, o = layers[i].o;

        bench_product(layers[i].text, FORWARD, SONDE__LANES, n, k, o);
        bench_product(layers[i].text, FORWARD, SONDE__PLAIN, n, k, o);
        bench_product(layers[i].text, GRAD_INPUT, SONDE__LANES, n, k, o);
        bench_product(layers[i].text, GRAD_WEIGHT, SONDE__PANELS, n, k, o);
        bench_product(layers[i].text, GRAD_WEIGHT, SONDE__LANES, n, k, o);
        bench_product(layers[i].text, GRAD_WEIGHT, SONDE__PLAIN, n, k, o);
    }
}

/* --- streams ---------------------------------------------------------------------- */

static const float live[7] = {0.001F, 0.9F, 0.0F, 0.0F, 0.0F, 1.0F, 0.0F};
static const float adam_live[7] = {0.001F, 0.9F, 0.999F, 1e-8F, 0.0F, 0.0F, 1.0F};

static void bench_stream(const char *text, const job *work)
{
    job j = *work;
    double one, two;

    if (!bench_wanted(text)) {
        return;
    }
    add_scratch(&j);
    one = time_jobs(&j, 1, 1);
    two = j.call.out_vitals[0] == NULL ? time_jobs(&j, 1, 2) : one;
    printf("%-44s %7.2f us %6.1f GB/s           2 threads %6.1f %5.2fx\n", text,
           one * 1e6, j.bytes / one / 1e9, j.bytes / two / 1e9, one / two);
    sonde__free(j.call.scratch);
}

static job stream_job(sonde__kernel_fast_op op, const sonde__operand *operands, int in,
                      int out, int streams)
{
    static const sonde__op_attrs attrs = {.fill = {.value = 1.0F}};
    job j = {.kernel = sonde__kernel_fast_kernels_of(sonde__cpu_isa(), op)[0]};
    const int64_t count = sonde__op_shape_count(&operands[0].shape);

    j.call.attrs = &attrs;
    j.call.live = live;
    j.call.in_count = in;
    j.call.out_count = out;
    for (int i = 0; i < in; i++) {
        j.call.in[i] = operands[i];
    }
    j.bytes = (double)count * streams * (double)sizeof(float);
    return j;
}

static void bench_streams_of(const char *text, int64_t rows, int64_t cols)
{
    const sonde__operand step = {{SONDE_F32, 0, {0}}, SONDE__PLAIN, floats(1)};
    const sonde__operand o[4] = {
        matrix(rows, cols, SONDE__PLAIN), matrix(rows, cols, SONDE__PLAIN),
        matrix(rows, cols, SONDE__PLAIN), matrix(rows, cols, SONDE__PLAIN)};
    sonde_vitals w, g;
    char line[64];
    job j = stream_job(SONDE__FAST_SGD, o, 3, 2, 5);

    j.call.out[0] = o[0];
    j.call.out[1] = o[2];
    (void)snprintf(line, sizeof line, "%s sgd momentum", text);
    bench_stream(line, &j);
    j.call.out_vitals[0] = &w;
    (void)snprintf(line, sizeof line, "%s sgd, vitals of w", text);
    bench_stream(line, &j);
    j.call.in_vitals[1] = &g;
    (void)snprintf(line, sizeof line, "%s sgd, vitals of w and g", text);
    bench_stream(line, &j);
    j = stream_job(SONDE__FAST_ADAM, o, 4, 4, 7);
    j.call.live = adam_live;
    j.call.in[4] = step;
    j.call.in_count = 5;
    j.call.out[0] = o[0];
    j.call.out[1] = o[2];
    j.call.out[2] = o[3];
    j.call.out[3] = step;
    (void)snprintf(line, sizeof line, "%s adam", text);
    bench_stream(line, &j);
    j = stream_job(SONDE__FAST_RELU_GRAD, o, 2, 1, 3);
    j.call.out[0] = o[2];
    (void)snprintf(line, sizeof line, "%s relu_grad", text);
    bench_stream(line, &j);
    for (int i = 0; i < 4; i++) {
        sonde__free(o[i].data);
    }
    sonde__free(step.data);
}

static void bench_reorders(const char *text, int64_t rows, int64_t cols)
{
    static const char *const layouts[] = {"plain", "lanes", "panels"};

    for (int pair = 0; pair < 9; pair++) {
        const sonde__op_layout from = (sonde__op_layout)(pair / 3),
                               to = (sonde__op_layout)(pair % 3);
        const sonde__operand x = matrix(rows, cols, from);
        job j = stream_job(SONDE__FAST_REORDER, &x, 1, 1, 2);
        char line[64];

        j.call.out[0] = matrix(rows, cols, to);
        (void)snprintf(line, sizeof line, "%s %s to %s", text, layouts[from],
                       layouts[to]);
        if (from != to) {
            bench_stream(line, &j);
        }
        sonde__free(x.data);
        sonde__free(j.call.out[0].data);
    }
}

static void bench_channel_sum(const char *text, int64_t rows, int64_t cols)
{
    const sonde__operand dy = matrix(rows, cols, SONDE__LANES);
    job j = stream_job(SONDE__FAST_CHANNEL_SUM, &dy, 1, 1, 1);

    j.call.out[0] = matrix(1, cols, SONDE__PLAIN);
    bench_stream(text, &j);
}

int main(int argc, char **argv)
{
    bench_filter = argc > 1 ? argv[1] : NULL;
    if (!bench_team_begin()) {
        return 1;
    }
    bench_measure_peak();
    printf("%s, peak of one core %.1f GF/s\n", sonde__isa_name(), bench_peak);
    bench_products();
    bench_streams_of("784 x 320", 320, 784);
    bench_streams_of("784 x 256", 256, 784);
    bench_reorders("1000 x 784", 1000, 784);
    bench_reorders("1000 x 320", 1000, 320);
    bench_channel_sum("channel_sum 1000 x 320", 1000, 320);
    bench_nets();
    return bench_team_end() ? 0 : 1;
}
