/*
 * bench_kernels_linear.c - the kernels of linear layers, updates and reorders against the
 * machine's peak, measured in the same run, and against oneDNN's matrix product.
 *
 *     bench_kernels_linear [filter]      lines whose text holds filter; all without
 *
 * Shapes are those of the networks that the project is measured by: (a) the dense layers
 * of a small CNN, batch 16; (b) a perceptron 784-320-100-10, batch 1000; (c)
 * 784-256-128-10, batch 32. Times are the second percentile of many runs, with operands
 * as warm as the run before left them. Whole steps run every kernel of a training step
 * but the loss.
 */
#include "nn/ops/fast_linear.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if BENCH_DNNL
#include <dnnl.h>
#endif

static const char *filter;
static double peak; /* GF/s of one core */

/* --- peak
 * ---------------------------------------------------------------------------------- */

#define PEAK_ROUNDS 200000

#define DEFINE_PEAK(name, bytes, attribute)                                              \
    attribute static double name(void)                                                   \
    {                                                                                    \
        typedef float v __attribute__((vector_size(bytes)));                             \
        v sum[12];                                                                       \
        v x = {0}, y = {0};                                                              \
        const double start = sonde__now();                                               \
                                                                                         \
        for (int j = 0; j < 12; j++) { /* unknown, and each another */                   \
            sum[j] = y;                                                                  \
            __asm__ volatile("" : "+x"(sum[j]));                                         \
        }                                                                                \
        for (int i = 0; i < PEAK_ROUNDS; i++) {                                          \
            _Pragma("GCC unroll 12") for (int j = 0; j < 12; j++)                        \
            {                                                                            \
                sum[j] = sum[j] * x + y;                                                 \
            }                                                                            \
            __asm__ volatile("" : "+x"(x), "+x"(y));                                     \
        }                                                                                \
        for (int j = 1; j < 12; j++) {                                                   \
            sum[0] += sum[j];                                                            \
        }                                                                                \
        __asm__ volatile("" : : "x"(sum[0]));                                            \
        return 2.0 * 12 * PEAK_ROUNDS * (bytes / 4) / (sonde__now() - start) / 1e9;      \
    }

#if defined(__x86_64__)
#define TARGET(isa) __attribute__((noinline, target(isa), optimize("fp-contract=fast")))
DEFINE_PEAK(peak_avx512, 64, TARGET("avx512f,avx512vl"))
DEFINE_PEAK(peak_avx2, 32, TARGET("avx2,fma"))
#endif
DEFINE_PEAK(peak_generic, 16, __attribute__((noinline)))

static double measure_peak(void)
{
    double best = 0.0;

    for (int i = 0; i < 20; i++) {
        double now = 0.0;

        switch (sonde__cpu_isa()) {
#if defined(__x86_64__)
        case SONDE__AVX512:
            now = peak_avx512();
            break;
        case SONDE__AVX2:
            now = peak_avx2();
            break;
#else
        case SONDE__AVX512:
        case SONDE__AVX2:
#endif
        case SONDE__GENERIC:
            now = peak_generic();
            break;
        }
        best = now > best ? now : best;
    }
    return best;
}

/* --- a second thread that spins for work
 * ---------------------------------------------------- */

static struct {
    atomic_uint ordered, done; /* counts of calls */
    atomic_bool stop;
    const sonde__kernel *kernel;
    const sonde__call *call;
} team;

static void *team_main(void *unused)
{
    unsigned seen = 0;

    (void)unused;
    while (!atomic_load_explicit(&team.stop, memory_order_relaxed)) {
        if (atomic_load_explicit(&team.ordered, memory_order_acquire) !=
            seen) { /* order */
            seen++;
            team.kernel->run(team.call, 1, 2);
            atomic_store_explicit(&team.done, seen, memory_order_release); /* run_call */
        }
    }
    return NULL;
}

static void run_call(const sonde__kernel *kernel, const sonde__call *call, int threads)
{
    if (threads == 1 || kernel->parts == NULL || kernel->parts(call, 2) == 1) {
        kernel->run(call, 0, 1);
        return;
    }
    team.kernel = kernel;
    team.call = call;
    const unsigned turn =
        atomic_fetch_add_explicit(&team.ordered, 1, memory_order_release) + 1;

    kernel->run(call, 0, 2);
    while (atomic_load_explicit(&team.done, memory_order_acquire) != turn) {
    }
}

/* --- timing: the second percentile of many runs
 * ------------------------------------------------- */

enum { MOST_RUNS = 1000 };

typedef struct timing {
    double begun, times[MOST_RUNS];
    size_t count;
} timing;

static void timing_begin(timing *t)
{
    t->begun = sonde__now();
    t->count = 0;
}

static bool timing_goes_on(const timing *t)
{
    return t->count < 50 || (t->count < MOST_RUNS && sonde__now() - t->begun < 0.6);
}

static void timing_add(timing *t, double seconds)
{
    t->times[t->count++] = seconds;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double timing_end(timing *t)
{
    qsort(t->times, t->count, sizeof *t->times, compare);
    return t->times[t->count / 50];
}

/* --- calls
 * ----------------------------------------------------------------------------------- */

static float *floats(int64_t count)
{
    float *data = sonde__malloc_aligned(64, (size_t)(count + 16) * sizeof *data);

    if (data == NULL) {
        abort();
    }
    for (int64_t i = 0; i < count; i++) {
        data[i] = sonde__uniform(1, 2, (uint64_t)i) - 0.5F;
    }
    return data;
}

static sonde__operand matrix(int64_t rows, int64_t cols, sonde__layout layout)
{
    sonde__operand o = {{SONDE_F32, 2, {rows, cols}}, layout, NULL};

    o.data = floats(sonde__layout_count(&o.shape, layout));
    return o;
}

typedef struct job {
    const sonde__kernel *kernel;
    sonde__call call;
    double flops, bytes;
} job;

static void add_scratch(job *j)
{
    const size_t bytes = j->kernel->scratch == NULL ? 0 : j->kernel->scratch(&j->call, 2);

    j->call.scratch = bytes == 0 ? NULL : floats((int64_t)(bytes / sizeof(float)));
}

/* Seconds of a run of all jobs, one after the other. */
static double time_jobs(const job *jobs, int count, int threads)
{
    timing t;

    timing_begin(&t);
    while (timing_goes_on(&t)) {
        const double start = sonde__now();

        for (int i = 0; i < count; i++) {
            run_call(jobs[i].kernel, &jobs[i].call, threads);
        }
        timing_add(&t, sonde__now() - start);
    }
    return timing_end(&t);
}

/* --- matrix products
 * -------------------------------------------------------------------------- */

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

static job product_job(direction d, sonde__layout x_layout, int64_t n, int64_t k,
                       int64_t o)
{
    static const sonde__fast_op ops[] = {SONDE__FAST_LINEAR,
                                         SONDE__FAST_LINEAR_GRAD_INPUT,
                                         SONDE__FAST_LINEAR_GRAD_WEIGHT};
    const sonde__kernel *const *list = sonde__fast_kernels_of(sonde__cpu_isa(), ops[d]);
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

static void bench_product(const char *text, direction d, sonde__layout layout, int64_t n,
                          int64_t k, int64_t o)
{
    static const char *const names[] = {"forward", "grad_input", "grad_weight"};
    static const char *const layouts[] = {"plain", "lanes", "panels"};
    char line[96];
    double one, two;
    job j;

    (void)snprintf(line, sizeof line, "%s %s x %s", text, names[d], layouts[layout]);
    if (filter != NULL && strstr(line, filter) == NULL) {
        return;
    }
    j = product_job(d, layout, n, k, o);
    one = j.flops / time_jobs(&j, 1, 1) / 1e9;
    two = j.flops / time_jobs(&j, 1, 2) / 1e9;
    printf("%-44s %7.2f us %6.1f GF/s %5.1f %%  2 threads %6.1f %5.2fx", line,
           j.flops / one / 1e3, one, 100.0 * one / peak, two, two / one);
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

/* --- streams
 * ---------------------------------------------------------------------------------- */

static const float live[7] = {0.001F, 0.9F, 0.0F, 0.0F, 0.0F, 1.0F, 0.0F};
static const float adam_live[7] = {0.001F, 0.9F, 0.999F, 1e-8F, 0.0F, 0.0F, 1.0F};

static void bench_stream(const char *text, const job *j)
{
    double one, two;

    if (filter != NULL && strstr(text, filter) == NULL) {
        return;
    }
    one = time_jobs(j, 1, 1);
    two = j->call.out_vitals[0] == NULL ? time_jobs(j, 1, 2) : one;
    printf("%-44s %7.2f us %6.1f GB/s           2 threads %6.1f %5.2fx\n", text,
           one * 1e6, j->bytes / one / 1e9, j->bytes / two / 1e9, one / two);
}

static job stream_job(sonde__fast_op op, const sonde__operand *operands, int in, int out,
                      int streams)
{
    static const sonde__attrs attrs = {.scale = 1.0F};
    job j = {.kernel = sonde__fast_kernels_of(sonde__cpu_isa(), op)[0]};
    const int64_t count = sonde__shape_count(&operands[0].shape);

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
        const sonde__layout from = (sonde__layout)(pair / 3),
                            to = (sonde__layout)(pair % 3);
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
    job j = stream_job(SONDE__FAST_LINEAR_CHANNEL_SUM, &dy, 1, 1, 1);

    j.call.out[0] = matrix(1, cols, SONDE__PLAIN);
    bench_stream(text, &j);
}

/* --- whole steps
 * ------------------------------------------------------------------------------ */

enum { LAYERS = 3, MOST_JOBS = 32 };

typedef struct net {
    sonde__operand x[LAYERS + 1], dx[LAYERS + 1], w[LAYERS], b[LAYERS], db[LAYERS];
    sonde__operand v[LAYERS], vb[LAYERS];
    job jobs[MOST_JOBS];
    int count;
    double flops;
} net;

static job *add_job(net *n, sonde__fast_op op, sonde__layout x_layout, int x_operand)
{
    const sonde__kernel *const *list = sonde__fast_kernels_of(sonde__cpu_isa(), op);
    job *j = &n->jobs[n->count++];

    memset(j, 0, sizeof *j);
    while ((*list)->in[x_operand] != x_layout && (*list)->in[x_operand] != SONDE__ANY) {
        list++;
    }
    j->kernel = *list;
    j->call.live = live;
    return j;
}

static void set_call(job *j, int in_count, const sonde__operand *const in[],
                     int out_count, const sonde__operand *const out[])
{
    j->call.in_count = in_count;
    j->call.out_count = out_count;
    for (int i = 0; i < in_count; i++) {
        j->call.in[i] = *in[i];
    }
    for (int i = 0; i < out_count; i++) {
        if (out[i] != NULL) {
            j->call.out[i] = *out[i];
        }
    }
    add_scratch(j);
}

static void add_forward(net *n, int i, double flops)
{
    const bool relu = i + 1 < LAYERS;
    job *j = add_job(n, relu ? SONDE__FAST_LINEAR_RELU : SONDE__FAST_LINEAR,
                     n->x[i].layout, 0);
    sonde__operand none = n->x[i + 1];

    none.data = NULL;
    set_call(j, 3, (const sonde__operand *const[]){&n->x[i], &n->w[i], &n->b[i]},
             relu ? 2 : 1,
             (const sonde__operand *const[]){relu ? &none : &n->x[i + 1], &n->x[i + 1]});
    n->flops += flops;
}

static void add_backward(net *n, int i, double flops)
{
    sonde__operand none = n->w[i];
    job *j;

    none.data = NULL;
    if (i > 0) {
        j = add_job(n, SONDE__FAST_LINEAR_GRAD_INPUT, SONDE__LANES, 0);
        set_call(j, 2, (const sonde__operand *const[]){&n->dx[i + 1], &n->w[i]}, 1,
                 (const sonde__operand *const[]){&n->dx[i]});
        n->flops += flops;
    }
    j = add_job(n, SONDE__FAST_LINEAR_CHANNEL_SUM, SONDE__LANES, 0);
    set_call(j, 1, (const sonde__operand *const[]){&n->dx[i + 1]}, 1,
             (const sonde__operand *const[]){&n->db[i]});
    j = add_job(n, SONDE__FAST_LINEAR_GRAD_WEIGHT_SGD, n->x[i].layout, 2);
    set_call(j, 4,
             (const sonde__operand *const[]){&n->w[i], &n->dx[i + 1], &n->x[i], &n->v[i]},
             3, (const sonde__operand *const[]){&n->w[i], &none, &n->v[i]});
    n->flops += flops;
    j = add_job(n, SONDE__FAST_SGD, SONDE__PLAIN, 0);
    set_call(j, 3, (const sonde__operand *const[]){&n->b[i], &n->db[i], &n->vb[i]}, 2,
             (const sonde__operand *const[]){&n->b[i], &n->vb[i]});
    if (i > 0) {
        j = add_job(n, SONDE__FAST_RELU_GRAD, SONDE__ANY, 0);
        set_call(j, 2, (const sonde__operand *const[]){&n->dx[i], &n->x[i]}, 1,
                 (const sonde__operand *const[]){&n->dx[i]});
    }
}

static void bench_net(const char *text, int64_t batch, const int64_t sizes[LAYERS + 1])
{
    static net n;
    double one, two;

    if (filter != NULL && strstr(text, filter) == NULL) {
        return;
    }
    memset(&n, 0, sizeof n);
    for (int i = 0; i <= LAYERS; i++) {
        n.x[i] = matrix(batch, sizes[i], i == 0 ? SONDE__PLAIN : SONDE__LANES);
        n.dx[i] = matrix(batch, sizes[i], SONDE__LANES);
    }
    for (int i = 0; i < LAYERS; i++) {
        n.w[i] = matrix(sizes[i + 1], sizes[i], SONDE__PLAIN);
        n.v[i] = matrix(sizes[i + 1], sizes[i], SONDE__PLAIN);
        n.b[i] = matrix(sizes[i + 1], 1, SONDE__PLAIN);
        n.db[i] = matrix(sizes[i + 1], 1, SONDE__PLAIN);
        n.vb[i] = matrix(sizes[i + 1], 1, SONDE__PLAIN);
    }
    for (int i = 0; i < LAYERS; i++) {
        add_forward(&n, i, 2.0 * (double)(batch * sizes[i] * sizes[i + 1]));
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        add_backward(&n, i, 2.0 * (double)(batch * sizes[i] * sizes[i + 1]));
    }
    one = time_jobs(n.jobs, n.count, 1);
    two = time_jobs(n.jobs, n.count, 2);
    printf("%-44s 1 thread %8.1f us (floor %8.1f, %4.2fx)  2 threads %8.1f us (%4.2fx)\n",
           text, one * 1e6, n.flops / peak / 1e3, one * 1e9 * peak / n.flops, two * 1e6,
           two * 2e9 * peak / n.flops);
    if (getenv("BENCH_EACH") != NULL) {
        for (int i = 0; i < n.count; i++) {
            printf("    %-20s %d %8.2f us\n", n.jobs[i].kernel->name, i,
                   time_jobs(&n.jobs[i], 1, 1) * 1e6);
        }
    }
}

int main(int argc, char **argv)
{
    pthread_t second;

    filter = argc > 1 ? argv[1] : NULL;
    if (pthread_create(&second, NULL, team_main, NULL) != 0) {
        return 1;
    }
    peak = measure_peak();
    printf("%s, peak of one core %.1f GF/s\n", sonde_isa_name(), peak);
    bench_products();
    bench_streams_of("784 x 320", 320, 784);
    bench_streams_of("784 x 256", 256, 784);
    bench_reorders("1000 x 784", 1000, 784);
    bench_reorders("1000 x 320", 1000, 320);
    bench_channel_sum("channel_sum 1000 x 320", 1000, 320);
    bench_net("step (b) 784-320-100-10 N 1000", 1000,
              (const int64_t[]){784, 320, 100, 10});
    bench_net("step (c) 784-256-128-10 N 32", 32, (const int64_t[]){784, 256, 128, 10});
    atomic_store_explicit(&team.stop, true, memory_order_relaxed);
    return pthread_join(second, NULL) == 0 ? 0 : 1;
}
