/*
 * bench_losses.c - writes a run of a few steps so that another program can repeat it.
 *
 *     bench_losses JOB FILE [steps [threads]]
 *
 * FILE becomes a safetensors file: the initial parameters under their names; "samples"
 * (batches, batch, 1, 28, 28) and "labels" (batches, batch), drawn garments, of which
 * step i uses batch i mod batches; "losses" (steps); and the final parameters with the
 * prefix "after.". Metadata: learning_rate, momentum.
 */
#include "support.h"

#include "base/macros.h"
#include "base/memory.h"

#include <sonde/error.h>
#include <sonde/safetensors.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 10000, MOST_PARAMETERS = 64, NAME = 128 };

typedef struct record {
    sonde_named_view views[2 * MOST_PARAMETERS + 3];
    char names[2 * MOST_PARAMETERS][NAME];
    size_t count;
} record;

/* A copy of every parameter, under its name behind a prefix. */
static void keep_parameters(record *out, const sonde_nn_model *model, const char *prefix)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        sonde_view view = sonde_nn_parameter(model, i).view;
        const size_t bytes = (size_t)sonde_view_count(&view) * sizeof(float);
        void *copy = bench_alloc(bytes);
        char *name = out->names[out->count];

        memcpy(copy, view.data, bytes);
        view.data = copy;
        (void)snprintf(name, NAME, "%s%s", prefix, sonde_nn_parameter(model, i).name);
        out->views[out->count++] = (sonde_named_view){name, view};
    }
}

static void keep(record *out, const char *name, sonde_view view)
{
    out->views[out->count++] = (sonde_named_view){name, view};
}

static void keep_batches(record *out, const bench_batches *batches)
{
    int64_t shape[SONDE_MAX_DIMS] = {batches->count};

    memcpy(shape + 1, batches->shape, (size_t)batches->rank * sizeof *shape);
    keep(out, "samples",
         sonde_view_of(SONDE_F32, batches->rank + 1, shape, batches->samples));
    keep(out, "labels", sonde_view_of(SONDE_I64, 2, shape, batches->labels));
}

static void write_record(const record *out, const bench_network *net, const char *path)
{
    const sonde_nn_optimizer *optimizer = &sonde_nn_job_get_info(net->job)->optimizer;
    char rate[32], momentum[32];
    const sonde_metadata metadata[] = {{"learning_rate", rate}, {"momentum", momentum}};
    sonde_diag diag = {0};

    (void)snprintf(rate, sizeof rate, "%.9g", (double)optimizer->learning_rate);
    (void)snprintf(momentum, sizeof momentum, "%.9g", (double)optimizer->momentum);
    bench_check(sonde_safetensors_write(path, out->views, out->count, metadata, 2, &diag),
                &diag);
}

int main(int argc, char **argv)
{
    const int64_t steps = argc > 3 ? atoll(argv[3]) : 100;
    const int threads = argc > 4 ? atoi(argv[4]) : 1;
    static record out;
    bench_batches batches;
    bench_network net;
    float *losses = NULL;
    size_t parameters = 0;

    if (argc < 3 || steps < 1 || threads < 1) {
        (void)fprintf(stderr, "usage: bench_losses JOB FILE [steps [threads]]\n");
        return 2;
    }
    bench_network_make(&net, argv[1], threads, NULL);
    parameters = sonde_nn_model_get_info(net.model).parameter_count;
    bench_batches_make(
        &batches, argv[1],
        SONDE_MIN((int64_t)SAMPLES,
                  steps * sonde_nn_job_get_info(net.job)->options.batch_size),
        true);
    losses = bench_alloc((size_t)steps * sizeof *losses);
    keep_parameters(&out, net.model, "");
    for (int64_t i = 0; i < steps; i++) {
        bench_network_step(&net, &batches, i);
        losses[i] = bench_network_loss(&net);
    }
    keep_parameters(&out, net.model, "after.");
    keep_batches(&out, &batches);
    keep(&out, "losses", sonde_view_of(SONDE_F32, 1, &steps, losses));
    write_record(&out, &net, argv[2]);
    for (size_t i = 0; i < 2 * parameters; i++) {
        sonde__free(out.views[i].view.data);
    }
    sonde__free(losses);
    bench_batches_free(&batches);
    bench_network_free(&net);
    return 0;
}
