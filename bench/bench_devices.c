/*
 * bench_devices.c - what several devices gain: replicas, and the stages of a pipeline, on
 * as many threads, against the same on one thread.
 *
 *     bench_devices [seconds]     of each measurement; 4 if not given
 *
 * The CNN of Fashion-MNIST, two replicas of 256 samples; eight linear layers of 512 in two
 * stages, 16 micro-batches of 64. Turns of one and of two threads alternate; a row is the
 * ratio of the fastest steps of each, and the median ratio of neighboring turns.
 */
#include "support.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 20, BATCH = 256, REPLICAS = 2 };
enum { STAGES = 2, LAYERS = 8, WIDTH = 512, CLASSES = 16, ROWS = 64, MICRO_BATCHES = 16 };

typedef struct device_network {
    sonde_nn_model *model;
    sonde_nn_session *session;
    sonde_view inputs[2];
    float *samples;
    int64_t *labels;
} device_network;

/* --- inputs ------------------------------------------------------------------------- */

/* The batches of a job one after the other, as one call of so many samples. */
static void make_inputs(device_network *net, const bench_batches *batches, int64_t count)
{
    int64_t shape[SONDE_MAX_DIMS];
    const size_t numbers = (size_t)(count * batches->sample);

    memcpy(shape, batches->shape, sizeof shape);
    shape[0] = count;
    net->samples = bench_alloc(numbers * sizeof *net->samples);
    net->labels = bench_alloc((size_t)count * sizeof *net->labels);
    memcpy(net->samples, batches->samples, numbers * sizeof *net->samples);
    memcpy(net->labels, batches->labels, (size_t)count * sizeof *net->labels);
    net->inputs[0] = sonde_view_of(SONDE_F32, batches->rank, shape, net->samples);
    net->inputs[1] = sonde_view_of(SONDE_I64, 1, shape, net->labels);
}

static void make(device_network *net, sonde_nn_job *job, const bench_batches *batches,
                 const sonde_nn_options *options)
{
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    sonde_nn_session_info made;
    sonde_diag diag = {0};

    bench_check(sonde_nn_job_build(job, &net->model, &diag), &diag);
    bench_check(sonde_nn_session_create(net->model, options, &info->optimizer,
                                        &net->session, &diag),
                &diag);
    bench_check(sonde_nn_session_compile(net->session, &diag), &diag);
    bench_check(sonde_nn_session_describe(net->session, &made, &diag), &diag);
    make_inputs(net, batches, made.combined_batch);
}

static void release(device_network *net)
{
    sonde_nn_session_destroy(net->session);
    sonde_nn_model_destroy(net->model);
    sonde__free(net->samples);
    sonde__free(net->labels);
}

/* --- measuring ---------------------------------------------------------------------- */

typedef struct pace {
    double fastest, mean; /* seconds a step */
} pace;

static pace measure(device_network *net, double seconds)
{
    const double started = sonde__now();
    pace found = {.fastest = INFINITY};
    sonde_diag diag = {0};
    int steps = 0;

    do {
        const double begun = sonde__now();

        bench_check(sonde_nn_session_run(net->session, net->inputs, 2, &diag), &diag);
        found.fastest = fmin(found.fastest, sonde__now() - begun);
        steps++;
    } while (sonde__now() - started < seconds);
    found.mean = (sonde__now() - started) / steps;
    return found;
}

/* Turns of `one` and of `several` alternate. */
static void compare(const char *name, device_network *one, device_network *several,
                    double seconds, const char *limit)
{
    double ratios[TURNS], alone = INFINITY, together = INFINITY;
    char row[96];

    (void)measure(several, seconds / 4); /* finds its pace */
    for (int i = 0; i < TURNS; i++) {
        const pace a = measure(one, seconds / TURNS);
        const pace b = measure(several, seconds / TURNS);

        alone = fmin(alone, a.fastest);
        together = fmin(together, b.fastest);
        ratios[i] = a.mean / b.mean;
    }
    bench_row(name, alone / together, "ratio", limit);
    (void)snprintf(row, sizeof row, "%s_median", name);
    bench_row(row, bench_quantile(ratios, TURNS, 0.5), "ratio", "");
    (void)snprintf(row, sizeof row, "%s_step", name);
    bench_row(row, 1e3 * together, "ms", "");
}

static void measure_replicas(sonde_nn_job *job, const bench_batches *batches,
                             double seconds)
{
    sonde_nn_options options = sonde_nn_job_get_info(job)->options;
    device_network one, several;

    options.batch_size = BATCH;
    options.replicas = REPLICAS;
    options.threads = 1;
    make(&one, job, batches, &options);
    options.threads = REPLICAS;
    make(&several, job, batches, &options);
    compare("devices_replicas_2_over_1", &one, &several, seconds, ">=1.85");
    release(&one);
    release(&several);
}

/* --- a pipeline --------------------------------------------------------------------- */

static sonde_nn_model *make_layers(void)
{
    sonde_nn_model *model = NULL;
    sonde_diag diag = {0};
    sonde_nn_value x = 0, target = 0;

    bench_check(sonde_nn_model_create(&model, &diag), &diag);
    x = sonde_nn_input(model, SONDE_F32, 2, (int64_t[]){ROWS, WIDTH});
    target = sonde_nn_input(model, SONDE_I64, 1, (int64_t[]){ROWS});
    for (int i = 0; i < LAYERS; i++) {
        char name[16];

        if (i % (LAYERS / STAGES) == 0) {
            sonde_nn_begin_block(model, i == 0 ? "first" : "second");
        }
        (void)snprintf(name, sizeof name, "fc%d", i);
        x = sonde_nn_linear(model, name, x,
                            SONDE_OPTIONS(sonde_nn_linear, .out_features = WIDTH));
        x = sonde_nn_relu(model, NULL, x);
    }
    x = sonde_nn_linear(model, "out", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = CLASSES));
    sonde_nn_loss(model, sonde_nn_cross_entropy(model, "loss", x, target, NULL));
    sonde_nn_model_initialize(model, 1);
    return model;
}

static void make_stages(device_network *net, int threads)
{
    const int64_t rows = (int64_t)ROWS * MICRO_BATCHES;
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(1e-3F, 0.9F);
    sonde_nn_options options;
    sonde_diag diag = {0};

    sonde_nn_options_init(&options);
    options.gradient_accumulation = MICRO_BATCHES;
    options.threads = threads;
    net->model = make_layers();
    bench_check(sonde_nn_session_create(net->model, &options, &sgd, &net->session, &diag),
                &diag);
    bench_check(sonde_nn_session_compile(net->session, &diag), &diag);
    net->samples = bench_alloc((size_t)(rows * WIDTH) * sizeof *net->samples);
    net->labels = bench_alloc((size_t)rows * sizeof *net->labels);
    for (int64_t i = 0; i < rows * WIDTH; i++) {
        net->samples[i] = sinf((float)i);
    }
    for (int64_t i = 0; i < rows; i++) {
        net->labels[i] = i % CLASSES;
    }
    net->inputs[0] = sonde_view_of(SONDE_F32, 2, (int64_t[]){rows, WIDTH}, net->samples);
    net->inputs[1] = sonde_view_of(SONDE_I64, 1, &rows, net->labels);
}

static void measure_pipeline(double seconds)
{
    device_network one, several;

    make_stages(&one, 1);
    make_stages(&several, STAGES);
    compare("devices_pipeline_2_over_1", &one, &several, seconds, ">=1.6");
    release(&one);
    release(&several);
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? atof(argv[1]) : 4.0;
    bench_batches batches;
    sonde_nn_job *job = NULL;
    sonde_diag diag = {0};

    if (!(seconds > 0.0)) {
        (void)fprintf(stderr, "usage: bench_devices [seconds]\n");
        return 2;
    }
    if (sonde__cpu_count() < REPLICAS) {
        (void)fprintf(stderr, "bench_devices: it takes two processors\n");
        return 2;
    }
    bench_header();
    bench_batches_make(&batches, "fashion_cnn", 4096, true);
    bench_check(sonde_nn_job_builtin("fashion_cnn", &job, &diag), &diag);
    measure_replicas(job, &batches, seconds);
    measure_pipeline(seconds);
    sonde_nn_job_destroy(job);
    bench_batches_free(&batches);
    return 0;
}
