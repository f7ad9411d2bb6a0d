/*
 * dataset_info.c - a look at every sample: balance, mean, deviation.
 *
 * uint8 pixels are counted by value, so their moments come from 256 exact counts a
 * channel; float32 samples go through vital signs, channel by channel, merged in order.
 */
#include "nn/data/dataset.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/stats.h>

#include <math.h>
#include <string.h>

enum { CHANNELS_MAX = 4, LEVELS = 256 };

typedef struct set_survey {
    const sonde_nn_dataset *set;
    int64_t channels;
    uint64_t levels[CHANNELS_MAX][LEVELS];
    sonde_vitals vitals[CHANNELS_MAX];
    uint64_t bytes;
} set_survey;

/* How many channels are told apart in a sample of this shape. */
static int64_t channels_of(const sonde_nn_dataset_traits *traits, const int64_t *shape)
{
    return traits->rank == 3 && shape[0] <= CHANNELS_MAX ? shape[0] : 1;
}

static void add_sample(set_survey *survey, const sonde_nn_sample *sample)
{
    const sonde_nn_dataset_traits *traits = &survey->set->traits;
    const int64_t channels = channels_of(traits, sample->shape);
    int64_t count = 1;

    for (int i = 0; i < traits->rank; i++) {
        count *= sample->shape[i];
    }
    survey->bytes += (uint64_t)count * sonde_dtype_size(traits->dtype);
    for (int64_t c = 0; c < channels; c++) {
        const int64_t plane = count / channels;

        if (traits->dtype == SONDE_U8) {
            const uint8_t *pixels = (const uint8_t *)sample->data + c * plane;

            for (int64_t i = 0; i < plane; i++) {
                survey->levels[c][pixels[i]]++;
            }
        } else {
            float copy[1024]; /* a view's data is not const: never write through it */
            const float *values = (const float *)sample->data + c * plane;

            for (int64_t at = 0; at < plane; at += 1024) {
                const int64_t n = SONDE_MIN(plane - at, (int64_t)1024);
                const sonde_view view = sonde_view_of(SONDE_F32, 1, &n, copy);
                sonde_vitals part;

                memcpy(copy, values + at, (size_t)n * sizeof *copy);
                sonde_vitals_of(&view, &part);
                sonde_vitals_merge(&survey->vitals[c], &part);
            }
        }
    }
}

static void sum_levels(const uint64_t *levels, int64_t c, sonde_nn_dataset_info *info)
{
    double count = 0.0, sum = 0.0, square = 0.0;

    for (int i = 0; i < LEVELS; i++) {
        const double n = (double)levels[i], x = (double)i / 255.0;

        count += n;
        sum += n * x;
        square += n * x * x;
        if (levels[i] > 0) {
            info->min = fmin(info->min, x);
            info->max = fmax(info->max, x);
        }
    }
    if (count > 0.0) {
        info->mean[c] = sum / count;
        info->std[c] = sqrt(fmax(0.0, square / count - info->mean[c] * info->mean[c]));
    }
}

static void conclude(const set_survey *survey, sonde_nn_dataset_info *info)
{
    info->channels = survey->channels;
    info->bytes = survey->bytes;
    info->min = (double)INFINITY;
    info->max = -(double)INFINITY;
    for (int64_t c = 0; c < survey->channels; c++) {
        const sonde_vitals *vitals = &survey->vitals[c];

        if (survey->set->traits.dtype == SONDE_U8) {
            sum_levels(survey->levels[c], c, info);
        } else {
            info->mean[c] = sonde_vitals_get(vitals, SONDE_STAT_MEAN);
            info->std[c] = sonde_vitals_get(vitals, SONDE_STAT_STD);
            info->min = fmin(info->min, vitals->min);
            info->max = fmax(info->max, vitals->max);
        }
    }
}

static void count_classes(const sonde_nn_dataset *set, int64_t *counts,
                          sonde_nn_dataset_info *info)
{
    info->smallest = set->traits.count;
    for (int64_t c = 0; c < set->traits.classes; c++) {
        counts[c] = 0;
    }
    for (int64_t i = 0; set->traits.has_labels && i < set->traits.count; i++) {
        counts[sonde_nn_dataset_label(set, i)]++;
    }
    for (int64_t c = 0; c < set->traits.classes; c++) {
        info->smallest = SONDE_MIN(info->smallest, counts[c]);
        info->largest = SONDE_MAX(info->largest, counts[c]);
    }
    info->smallest = set->traits.classes > 0 ? info->smallest : 0;
}

static sonde_err look_at_all(set_survey *survey, sonde_diag *diag)
{
    const sonde_nn_dataset *set = survey->set;
    const size_t size = sonde_nn_dataset_scratch(set);
    void *scratch = sonde__malloc(size);
    sonde_err err = SONDE_OK;

    if (scratch == NULL) {
        return sonde__fail_nomem(diag, "a sample");
    }
    for (int64_t i = 0; err == SONDE_OK && i < set->traits.count; i++) {
        sonde_nn_sample sample;

        err = sonde_nn_dataset_get(set, i, scratch, &sample, diag);
        if (err == SONDE_OK) {
            add_sample(survey, &sample);
        }
    }
    sonde__free(scratch);
    return err;
}

sonde_err sonde_nn_dataset_describe(const sonde_nn_dataset *set,
                                    sonde_nn_dataset_info *info, int64_t *class_counts,
                                    sonde_diag *diag)
{
    sonde_nn_dataset_info result = {0};
    set_survey *survey = sonde__calloc(1, sizeof *survey);
    int64_t *counts = sonde__calloc((size_t)set->traits.classes, sizeof *counts);
    sonde_err err = SONDE_OK;

    if (survey == NULL || counts == NULL) {
        err = sonde__fail_nomem(diag, "a description");
        goto done;
    }
    survey->set = set;
    survey->channels = channels_of(&set->traits, set->traits.shape);
    for (int c = 0; c < CHANNELS_MAX; c++) {
        sonde_vitals_init(&survey->vitals[c]);
    }
    err = look_at_all(survey, diag);
    if (err != SONDE_OK) {
        goto done;
    }
    conclude(survey, &result);
    count_classes(set, counts, &result);
    if (class_counts != NULL) {
        memcpy(class_counts, counts, (size_t)set->traits.classes * sizeof *counts);
    }
    *info = result;
done:
    sonde__free(counts);
    sonde__free(survey);
    return err;
}
