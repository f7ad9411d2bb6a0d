/*
 * bench_bits.c - counts the weights that observation changes: none, with any taps.
 *
 *     bench_bits [--job fashion_cnn] [--steps 500]
 *
 * Each row is the number of weights whose bits differ from those of a run without taps
 * on one thread, for several sets of taps, repeated runs and numbers of threads. The
 * program fails if a sink is never called, because such a run proves nothing.
 */
#include "support.h"

#include "base/macros.h"
#include "base/memory.h"

#include <sonde/nn/model.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 8192 };

typedef struct variant {
    const char *name, *selector;
    int64_t every; /* 0 without a tap */
    unsigned how;
    int threads;
} variant;

static const variant variants[] = {
    {"reference", NULL, 0, 0, 1},
    {"again", NULL, 0, 0, 1},
    {"vitals_of_all", "@all", 1, SONDE_HOW_VITALS, 1},
    {"raw_of_all", "@all", 1, SONDE_HOW_RAW, 1},
    {"everything_of_all", "@all", 1,
     SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH | SONDE_HOW_HASH, 1},
    {"vitals_of_parameters", "@gradient,@update", 1, SONDE_HOW_VITALS, 1},
    {"vitals_every_7th", "@gradient,@update", 7, SONDE_HOW_VITALS, 1},
    {"two_threads", NULL, 0, 0, 2},
    {"two_threads_again", NULL, 0, 0, 2},
    {"two_threads_vitals_of_all", "@all", 1, SONDE_HOW_VITALS, 2},
    {"two_threads_raw_of_all", "@all", 1, SONDE_HOW_RAW, 2},
};

/* All parameters one behind the other; new. */
static uint32_t *bits_of(const sonde_nn_model *model, size_t *count)
{
    uint32_t *bits = NULL;

    *count = 0;
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;

        *count += (size_t)sonde_view_count(&view);
    }
    bits = bench_alloc(*count * sizeof *bits);
    *count = 0;
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;
        const size_t size = (size_t)sonde_view_count(&view);

        memcpy(bits + *count, view.data, size * sizeof *bits);
        *count += size;
    }
    return bits;
}

static uint32_t *train(const char *job, const variant *setup,
                       const bench_batches *batches, int64_t steps, size_t *count)
{
    const bench_tap tap = {.selector = setup->selector,
                           .when = sonde_schedule_every(SONDE_MAX(setup->every, 1)),
                           .how = setup->how};
    bench_network net;
    uint32_t *bits = NULL;

    bench_network_make(&net, job, setup->threads, setup->selector != NULL ? &tap : NULL);
    for (int64_t i = 0; i < steps; i++) {
        bench_network_step(&net, batches, i);
    }
    if ((setup->selector != NULL) != (net.sink.puts > 0)) {
        (void)fprintf(stderr, "error: %s saw %llu values\n", setup->name,
                      (unsigned long long)net.sink.puts);
        exit(2);
    }
    bits = bits_of(net.model, count);
    bench_network_free(&net);
    return bits;
}

int main(int argc, char **argv)
{
    const char *job = "fashion_cnn";
    int64_t steps = 500;
    bench_batches batches;
    uint32_t *reference = NULL;
    size_t count = 0;

    for (int i = 1; i + 1 < argc; i += 2) {
        job = strcmp(argv[i], "--job") == 0 ? argv[i + 1] : job;
        steps = strcmp(argv[i], "--steps") == 0 ? atoll(argv[i + 1]) : steps;
    }
    if (argc % 2 == 0 || steps < 1) {
        (void)fprintf(stderr, "usage: bench_bits [--job NAME] [--steps N]\n");
        return 2;
    }
    bench_batches_make(&batches, job, SAMPLES, false);
    reference = train(job, &variants[0], &batches, steps, &count);
    bench_header();
    for (size_t i = 1; i < SONDE_COUNT_OF(variants); i++) {
        uint32_t *bits = train(job, &variants[i], &batches, steps, &count);
        char name[96];
        double differ = 0.0;

        for (size_t k = 0; k < count; k++) {
            differ += bits[k] != reference[k] ? 1.0 : 0.0;
        }
        (void)snprintf(name, sizeof name, "%s_bits_%s", job, variants[i].name);
        bench_row(name, differ, "weights", "<=0");
        sonde__free(bits);
    }
    sonde__free(reference);
    bench_batches_free(&batches);
    return 0;
}
