/*
 * bench_loader.c - the speed of making and passing batches.
 *
 *     bench_loader [batch] [epochs]
 *
 * 60,000 samples of 28 x 28 uint8 with labels, shuffled, to_float and normalize, as
 * float32 batches. The limit is a memcpy of the output bytes, from a buffer of one batch
 * to a ring as large as the loader's, on one thread. Rows:
 *
 *     made       one thread, no workers: making alone
 *     handed     workers make batches, the consumer reads one number of each
 *     read       the same, and the consumer sums all pixels
 */
#include "base/clock.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/error.h>
#include <sonde/nn/loader.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COUNT = 60000,
    SIDE = 28,
    PIXELS = SIDE * SIDE,
    ROUNDS = 5,
    RING = 2 * 1024 * 1024
};

static double sink; /* keeps what is read from being left out */

static void die(const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    (void)fprintf(stderr, "error: %s\n", sonde_diag_line(diag, line, sizeof line));
    exit(2);
}

static sonde_nn_dataset *make_set(uint8_t *pixels, int64_t *labels)
{
    const int64_t shape[3] = {COUNT, SIDE, SIDE};
    const sonde_view data = sonde_view_of(SONDE_U8, 3, shape, pixels);
    const sonde_view classes = sonde_view_of(SONDE_I64, 1, shape, labels);
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};

    for (size_t i = 0; i < (size_t)COUNT * PIXELS; i++) {
        pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    for (int64_t i = 0; i < COUNT; i++) {
        labels[i] = i % 10;
    }
    if (sonde_nn_dataset_open(
            NULL, SONDE_OPTIONS(sonde_nn_dataset, .data = &data, .labels = &classes),
            &set, &diag) != SONDE_OK) {
        die(&diag);
    }
    return set;
}

/* Sixteen sums, so that adding does not wait for adding. */
static float sum_up(const float *values, int64_t count)
{
    float sums[16] = {0}, sum = 0.0f;

    for (int64_t i = 0; i + 16 <= count; i += 16) {
        for (int j = 0; j < 16; j++) {
            sums[j] += values[i + j];
        }
    }
    for (int j = 0; j < 16; j++) {
        sum += sums[j];
    }
    return sum;
}

/* Samples a second of the best round; epochs each. */
static double run(const sonde_nn_dataset *set, int64_t batch, int workers, int epochs,
                  bool read, sonde_nn_loader_stats *stats)
{
    const float half = 0.5f;
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {half}, .std = {half}}};
    const sonde_nn_loader_options options = {.size = sizeof options,
                                             .batch = batch,
                                             .shuffle = true,
                                             .workers = workers,
                                             .transforms = list,
                                             .transform_count = 2};
    sonde_nn_loader *loader = NULL;
    sonde_diag diag = {0};
    double best = 0.0;
    uint64_t epoch = 0;

    if (sonde_nn_loader_create(set, &options, &loader, &diag) != SONDE_OK) {
        die(&diag);
    }
    for (int round = 0; round < ROUNDS; round++) {
        const double start = sonde__now();
        double rate = 0.0;

        for (int e = 0; e < epochs; e++) {
            sonde_nn_batch b = {0};

            sonde_nn_loader_start_epoch(loader, epoch++);
            do {
                if (sonde_nn_loader_next(loader, &b, &diag) != SONDE_OK) {
                    die(&diag);
                }
                if (b.count > 0) {
                    const float *values = b.data;

                    sink += (double)(read ? sum_up(values, b.count * PIXELS) : values[0]);
                }
            } while (b.count > 0);
        }
        rate = (double)(sonde_nn_loader_get_info(loader).samples * epochs) /
               (sonde__now() - start);
        best = SONDE_MAX(best, rate);
    }
    *stats = sonde_nn_loader_get_stats(loader);
    sonde_nn_loader_destroy(loader);
    return best;
}

/* The limit: samples a second of memcpy alone. */
static double copy(int64_t batch, int epochs)
{
    const size_t bytes = (size_t)batch * PIXELS * sizeof(float);
    const size_t slots = SONDE_MAX(RING / bytes, (size_t)2);
    unsigned char *from = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    unsigned char *ring = sonde__malloc_aligned(SONDE__ALIGN, bytes * slots);
    double best = 0.0;

    if (from == NULL || ring == NULL) {
        exit(2);
    }
    memset(from, 1, bytes);
    memset(ring, 1, bytes * slots);
    for (int round = 0; round < ROUNDS; round++) {
        const double start = sonde__now();
        const int64_t batches = COUNT / batch * epochs;

        for (int64_t i = 0; i < batches; i++) {
            unsigned char *to = ring + (size_t)i % slots * bytes;

            memcpy(to, from, bytes);
            sink += (double)to[(size_t)i % bytes];
        }
        best = SONDE_MAX(best, (double)(batches * batch) / (sonde__now() - start));
    }
    sonde__free(from);
    sonde__free(ring);
    return best;
}

static void print(const char *what, int workers, double rate, double limit,
                  const sonde_nn_loader_stats *stats)
{
    (void)printf("%-8s %d workers  %10.0f samples/s  %5.2f GB/s  %.2f of memcpy  "
                 "%llu waits, %llu idle\n",
                 what, workers, rate, rate * PIXELS * (double)sizeof(float) * 1e-9,
                 rate / limit, (unsigned long long)stats->waits,
                 (unsigned long long)stats->idle);
}

int main(int argc, char **argv)
{
    const int64_t batch = argc > 1 ? atoll(argv[1]) : 16;
    const int epochs = argc > 2 ? atoi(argv[2]) : 3;
    static uint8_t pixels[(size_t)COUNT * PIXELS];
    static int64_t labels[COUNT];
    sonde_nn_dataset *set = NULL;
    sonde_nn_loader_stats stats = {0};
    double limit = 0.0, rate = 0.0;

    if (batch < 1 || batch > COUNT || epochs < 1) {
        (void)fprintf(stderr, "usage: bench_loader [batch] [epochs]\n");
        return 2;
    }
    set = make_set(pixels, labels);
    limit = copy(batch, epochs);
    (void)printf("memcpy              %10.0f samples/s  %5.2f GB/s\n", limit,
                 limit * PIXELS * (double)sizeof(float) * 1e-9);
    rate = run(set, batch, 0, epochs, false, &stats);
    print("made", 0, rate, limit, &stats);
    for (int workers = 1; workers <= 2; workers++) {
        rate = run(set, batch, workers, epochs, false, &stats);
        print("handed", workers, rate, limit, &stats);
        rate = run(set, batch, workers, epochs, true, &stats);
        print("read", workers, rate, limit, &stats);
    }
    (void)printf("(%g)\n", sink);
    sonde_nn_dataset_destroy(set);
    return 0;
}
