/*
 * support.c - see support.h.
 */
#include "support.h"

#include "base/macros.h"
#include "base/memory.h"

#include <sonde/error.h>
#include <sonde/nn/dataset.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void bench_check(sonde_err err, const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_OK) {
        (void)fprintf(stderr, "error: %s\n", sonde_diag_line(diag, line, sizeof line));
        exit(2);
    }
}

void *bench_alloc(size_t size)
{
    const size_t page = (size_t)2 << 20;
    void *block = sonde__malloc_aligned(size < page ? SONDE__ALIGN : page, size);

    if (block == NULL) {
        (void)fprintf(stderr, "error: out of memory for %zu bytes\n", size);
        exit(2);
    }
    if (size >= page) {
        (void)madvise(block, size / page * page, MADV_HUGEPAGE);
    }
    return block;
}

/* --- data ------------------------------------------------------------------------- */

/* Sample i of the set, or drawn, as bytes; returns its label. */
static int64_t pixels_of(const sonde_nn_dataset *set, int64_t i, int64_t count,
                         uint8_t *pixels)
{
    sonde_nn_sample sample;
    sonde_diag diag = {0};

    if (set == NULL) {
        return sonde_nn_synth_draw(0, SONDE_NN_TRAIN, i, pixels);
    }
    bench_check(sonde_nn_dataset_get(set, i, NULL, &sample, &diag), &diag);
    memcpy(pixels, sample.data, (size_t)count);
    return sample.label;
}

static void fill(bench_batches *out, const sonde_nn_job_info *info,
                 const sonde_nn_dataset *set)
{
    const int64_t all = out->count * out->batch;
    uint8_t pixels[SONDE_NN_SYNTH_SIDE * SONDE_NN_SYNTH_SIDE];

    for (int64_t i = 0; i < all; i++) {
        float *sample = out->samples + i * out->sample;

        out->labels[i] = pixels_of(set, i, out->sample, pixels);
        for (int64_t j = 0; j < out->sample; j++) {
            sample[j] = ((float)pixels[j] / 255.0F - info->mean) / info->std;
        }
    }
}

/* The job's training set, or NULL if there is none here. */
static sonde_nn_dataset *open_set(const sonde_nn_job_info *info)
{
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};
    const sonde_err err = sonde_nn_dataset_open(
        NULL, SONDE_OPTIONS(sonde_nn_dataset, .name = info->data_name), &set, &diag);

    if (err != SONDE_OK && err != SONDE_ENOTFOUND) {
        bench_check(err, &diag);
    }
    return err == SONDE_OK ? set : NULL;
}

void bench_batches_make(bench_batches *out, const char *name, int64_t samples, bool drawn)
{
    sonde_nn_job *job = NULL;
    sonde_nn_dataset *set = NULL;
    const sonde_nn_job_info *info = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_nn_job_builtin(name, &job, &diag), &diag);
    info = sonde_nn_job_get_info(job);
    *out = (bench_batches){.batch = info->options.batch_size,
                           .sample = SONDE_NN_SYNTH_SIDE * SONDE_NN_SYNTH_SIDE,
                           .rank = info->sample_rank + 1};
    out->shape[0] = info->options.batch_size;
    for (int i = 0; i < info->sample_rank; i++) {
        out->shape[i + 1] = info->sample_shape[i];
    }
    set = drawn ? NULL : open_set(info);
    out->drawn = set == NULL;
    out->count = SONDE_MAX(samples / out->batch, (int64_t)1);
    out->samples = bench_alloc((size_t)(out->count * out->batch * out->sample) *
                               sizeof *out->samples);
    out->labels = bench_alloc((size_t)(out->count * out->batch) * sizeof *out->labels);
    fill(out, info, set);
    sonde_nn_dataset_destroy(set);
    sonde_nn_job_destroy(job);
}

void bench_batches_views(const bench_batches *batches, int64_t i, sonde_view inputs[2])
{
    const int64_t k = i % batches->count * batches->batch;

    inputs[0] = sonde_view_of(SONDE_F32, batches->rank, batches->shape,
                              batches->samples + k * batches->sample);
    inputs[1] = sonde_view_of(SONDE_I64, 1, &batches->batch, batches->labels + k);
}

void bench_batches_free(bench_batches *batches)
{
    sonde__free(batches->samples);
    sonde__free(batches->labels);
    *batches = (bench_batches){0};
}

/* --- networks --------------------------------------------------------------------- */

static void count_put(sonde_sink *sink, const sonde_observation *observation)
{
    (void)observation;
    ((bench_sink *)sink)->puts++;
}

static void make_session(bench_network *out, const char *name, int threads)
{
    sonde_nn_job_info *info = NULL;
    sonde_diag diag = {0};

    *out = (bench_network){.sink = {.sink = {.put = count_put}}};
    bench_check(sonde_nn_job_builtin(name, &out->job, &diag), &diag);
    info = sonde_nn_job_get_info(out->job);
    info->options.threads = threads;
    bench_check(sonde_nn_job_build(out->job, &out->model, &diag), &diag);
    bench_check(sonde_nn_session_create(out->model, &info->options, &info->optimizer,
                                        &out->session, &diag),
                &diag);
}

typedef struct tapping {
    const bench_tap *tap;
    sonde_sink *sink;
} tapping;

static sonde_err add_tap(void *user, const sonde_catalogue *catalogue,
                         sonde_observer *observer, sonde_diag *diag)
{
    const tapping *request = user;
    sonde_selector *what = NULL;
    sonde_tap tap = {.how = request->tap->how,
                     .where = request->sink,
                     .when_bad = request->tap->when_bad};
    sonde_err err = sonde_selector_create(request->tap->selector, &what, diag);

    (void)catalogue;
    if (err == SONDE_OK) {
        tap.what = what;
        tap.when[SONDE_MODE_TRAIN] = request->tap->when;
        err = sonde_observer_add(observer, &tap, NULL, diag);
    }
    sonde_selector_destroy(what);
    return err;
}

void bench_network_make(bench_network *out, const char *name, int threads,
                        const bench_tap *tap)
{
    tapping with = {tap, &out->sink.sink};
    sonde_diag diag = {0};

    make_session(out, name, threads);
    if (tap != NULL) {
        bench_check(sonde_nn_session_set(
                        out->session,
                        SONDE_OPTIONS(sonde_nn_session, .attach = add_tap, .user = &with),
                        &diag),
                    &diag);
    }
    bench_check(sonde_nn_session_compile(out->session, &diag), &diag);
}

void bench_network_attach(bench_network *out, const char *name, int threads,
                          sonde_nn_attach attach, void *user)
{
    sonde_diag diag = {0};

    make_session(out, name, threads);
    bench_check(sonde_nn_session_set(
                    out->session,
                    SONDE_OPTIONS(sonde_nn_session, .attach = attach, .user = user),
                    &diag),
                &diag);
    bench_check(sonde_nn_session_compile(out->session, &diag), &diag);
}

void bench_network_hook(bench_network *out, const char *name, int threads,
                        sonde_hook *hook)
{
    sonde_diag diag = {0};

    make_session(out, name, threads);
    bench_check(sonde_nn_session_set(
                    out->session, SONDE_OPTIONS(sonde_nn_session, .hook = hook), &diag),
                &diag);
    bench_check(sonde_nn_session_compile(out->session, &diag), &diag);
}

void bench_network_step(bench_network *network, const bench_batches *batches, int64_t i)
{
    sonde_view inputs[2];
    sonde_diag diag = {0};

    bench_batches_views(batches, i, inputs);
    bench_check(sonde_nn_session_run(network->session, inputs, 2, &diag), &diag);
}

float bench_network_loss(const bench_network *network)
{
    sonde_nn_session_info info;
    sonde_view loss;
    sonde_diag diag = {0};

    bench_check(sonde_nn_session_describe(network->session, &info, &diag), &diag);
    bench_check(
        sonde_nn_session_output(network->session, info.output_count - 1, &loss, &diag),
        &diag);
    return *(const float *)loss.data;
}

void bench_network_free(bench_network *network)
{
    sonde_nn_session_destroy(network->session);
    sonde_nn_model_destroy(network->model);
    sonde_nn_job_destroy(network->job);
    *network = (bench_network){0};
}

/* --- results ---------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_quantile(double *values, size_t count, double q)
{
    const double at = q * (double)(count - 1);
    const size_t below = (size_t)at;
    const double above = below + 1 < count ? at - (double)below : 0.0;

    qsort(values, count, sizeof *values, ascending);
    return above > 0.0 ? values[below] + above * (values[below + 1] - values[below])
                       : values[below];
}

void bench_header(void)
{
    (void)printf("name,value,unit,limit,verdict\n");
}

void bench_row(const char *name, double value, const char *unit, const char *limit)
{
    const char *verdict = "context";

    if (limit[0] != '\0') {
        const double bound = strtod(limit + 2, NULL);
        const bool met = limit[0] == '<' ? value <= bound : value >= bound;

        verdict = met ? "met" : "missed";
    }
    (void)printf("%s,%.4g,%s,%s,%s\n", name, value, unit, limit, verdict);
    (void)fflush(stdout);
}
