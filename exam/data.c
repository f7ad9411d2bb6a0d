/*
 * data.c - what the networks learn.
 */
#include "faults.h"

#include "support.h"

#include "base/random.h"

#include <sonde/error.h>
#include <sonde/nn/dataset.h>

#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

enum { IMAGES = 4096, TINY = 64 };

static float (*images)[PIXELS];
static int64_t labels[IMAGES];

float faults_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return sonde__uniform(seed, stream, index);
}

float faults_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    return sonde__normal(seed, stream, index);
}

int64_t faults_sample(faults_data_kind kind)
{
    return kind == DATA_IMAGES ? PIXELS : FEATURES;
}

/* A gray image of 28 x 28 at half the size, -1 ... 1. */
static void halve(const uint8_t *pixels, float *out)
{
    for (int i = 0; i < PIXELS; i++) {
        const uint8_t *at = pixels + i / SIDE * 2 * 28 + i % SIDE * 2;

        out[i] = (float)(at[0] + at[1] + at[28] + at[29]) / 510.0F - 1.0F;
    }
}

/* Fashion-MNIST if it is here, else garments. */
static void make_images(void)
{
    uint8_t pixels[28 * 28];
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};

    images = bench_alloc(IMAGES * sizeof *images);
    if (sonde_nn_dataset_open(NULL,
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-mnist"),
                              &set, &diag) != SONDE_OK) {
        set = NULL;
    }
    for (int64_t i = 0; i < IMAGES; i++) {
        if (set != NULL) {
            sonde_nn_sample sample;

            bench_check(sonde_nn_dataset_get(set, i, NULL, &sample, &diag), &diag);
            memcpy(pixels, sample.data, sizeof pixels);
            labels[i] = sample.label;
        } else {
            labels[i] = sonde_nn_synth_draw(0, SONDE_NN_TRAIN, i, pixels);
        }
        halve(pixels, images[i]);
    }
    sonde_nn_dataset_destroy(set);
}

/* Sample `number` of the clouds, of that class. */
static void draw_blob(uint64_t seed, uint64_t number, int64_t of_class, float *x,
                      int64_t *y)
{
    *y = of_class;
    for (uint64_t i = 0; i < FEATURES; i++) {
        x[i] = 0.6F * faults_normal(seed, 12, (uint64_t)*y * FEATURES + i) +
               0.9F * faults_normal(seed, 13, number * FEATURES + i);
    }
}

static void draw_curve(uint64_t seed, uint64_t number, float *x, float *t)
{
    float sum = 0.0F;

    for (uint64_t i = 0; i < FEATURES; i++) {
        x[i] = faults_normal(seed, 13, number * FEATURES + i);
        sum += i < 8 ? x[i] * faults_normal(seed, 14, i) : 0.0F;
    }
    *t = sinf(sum / 2.0F) + 0.1F * faults_normal(seed, 15, number);
}

void faults_batch(faults_data_kind kind, uint64_t seed, int64_t step, int64_t batch,
                  float *x, int64_t *y, float *t)
{
    const int64_t sample = faults_sample(kind);

    if (kind == DATA_IMAGES && images == NULL) {
        make_images();
    }
    for (int64_t i = 0; i < batch; i++) {
        const uint64_t number = (uint64_t)(step * batch + i);
        const float which = faults_uniform(seed, 10, number);
        uint64_t tiny = 0;

        switch (kind) {
        case DATA_IMAGES: {
            const int64_t k = (int64_t)(which * IMAGES) % IMAGES;

            memcpy(x + i * sample, images[k], sizeof *images);
            y[i] = labels[k];
            break;
        }
        case DATA_BLOBS:
            draw_blob(seed, number, (int64_t)(which * CLASSES) % CLASSES, x + i * sample,
                      &y[i]);
            break;
        case DATA_TINY:
            tiny = (uint64_t)(which * TINY) % TINY; /* as many of each class */
            draw_blob(seed, tiny, (int64_t)(tiny % CLASSES), x + i * sample, &y[i]);
            break;
        case DATA_REGRESSION:
            draw_curve(seed, number, x + i * sample, &t[i]);
            break;
        }
    }
}
