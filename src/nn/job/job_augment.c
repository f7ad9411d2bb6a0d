/*
 * job_augment.c - the list `augment` of a job's data: random changes of training samples,
 * by the names and the parameters of torchvision.
 *
 *     augment:
 *       - random_horizontal_flip                     # p: 0.5
 *       - random_crop: {size: 32, padding: 4}
 *       - normalize: {mean: [0.49, 0.48, 0.45], std: [0.25, 0.24, 0.26]}
 *
 * normalize is no change at random: it stands for the data's mean and std, by channel, and
 * holds in evaluations too.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"
#include "nn/job/job.h"

#include <math.h>
#include <string.h>

typedef sonde_err (*augment_reader)(const sonde__yaml_reader *reader,
                                    const sonde__yaml *entry, const sonde__yaml *body,
                                    sonde_nn_job_info *info);

static sonde_err add(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                     sonde_nn_transform transform, sonde_nn_job_info *info)
{
    if (info->augment_count == SONDE_NN_JOB_AUGMENT) {
        return sonde__yaml_fail(reader, entry, SONDE_EINVAL, "at most 8",
                                "too many entries of augment");
    }
    info->augment[info->augment_count++] = transform;
    return SONDE_OK;
}

/* The keys p of both flips. */
static sonde_err read_p(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                        const sonde__yaml *body, float *p)
{
    static const char *const keys[] = {"p"};
    sonde_err err = sonde__yaml_check_keys(reader, body, keys, 1);

    *p = 0.5F;
    if (err == SONDE_OK) {
        err = sonde__yaml_float(reader, body, "p", p);
    }
    if (err == SONDE_OK && !(*p >= 0.0F && *p <= 1.0F)) {
        return sonde__yaml_fail(reader, entry, SONDE_EINVAL, "0 to 1", "p is %g",
                                (double)*p);
    }
    return err;
}

static sonde_err read_flip(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                           const sonde__yaml *body, sonde_nn_job_info *info)
{
    float p = 0.0F;
    const sonde_err err = read_p(reader, entry, body, &p);

    return err != SONDE_OK
               ? err
               : add(reader, entry,
                     (sonde_nn_transform){.kind = SONDE_NN_FLIP, .probability = p}, info);
}

static sonde_err read_vertical_flip(const sonde__yaml_reader *reader,
                                    const sonde__yaml *entry, const sonde__yaml *body,
                                    sonde_nn_job_info *info)
{
    float p = 0.0F;
    const sonde_err err = read_p(reader, entry, body, &p);

    return err != SONDE_OK ? err
                           : add(reader, entry,
                                 (sonde_nn_transform){.kind = SONDE_NN_FLIP_VERTICAL,
                                                      .probability = p},
                                 info);
}

static sonde_err read_crop(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                           const sonde__yaml *body, sonde_nn_job_info *info)
{
    enum { LARGEST = 16384 };
    static const char *const keys[] = {"size", "padding"};
    int64_t size[2] = {0}, padding = 0;
    size_t count = 0;
    sonde_err err = sonde__yaml_check_keys(reader, body, keys, SONDE_COUNT_OF(keys));

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__yaml_ints(reader, body, "size", size, 2, &count));
    size[1] = count == 1 ? size[0] : size[1];
    if (count == 0 || size[0] < 1 || size[1] < 1 || size[0] > LARGEST ||
        size[1] > LARGEST) {
        return sonde__yaml_fail(reader, entry, SONDE_EINVAL,
                                "size: 32, or size: [height, width], up to 16384",
                                "random_crop has no such size");
    }
    err = sonde__yaml_int(reader, body, "padding", 0, LARGEST, &padding);
    return err != SONDE_OK ? err
                           : add(reader, entry,
                                 (sonde_nn_transform){.kind = SONDE_NN_RANDOM_CROP,
                                                      .height = (int)size[0],
                                                      .width = (int)size[1],
                                                      .padding = (int)padding},
                                 info);
}

/* One number or a list of numbers, one a channel. */
static sonde_err read_channels(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                               const sonde__yaml *node,
                               float out[SONDE_NN_TRANSFORM_CHANNELS], int *count)
{
    const bool list = node != NULL && node->kind == SONDE__YAML_LIST;
    const size_t numbers = list ? node->count : 1;

    if (node == NULL || node->kind == SONDE__YAML_MAP || numbers < 1 ||
        numbers > SONDE_NN_TRANSFORM_CHANNELS) {
        return sonde__yaml_fail(reader, entry, SONDE_EINVAL,
                                "mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]",
                                "normalize needs a mean and a std, one a channel");
    }
    for (size_t i = 0; i < numbers; i++) {
        const sonde__yaml *item = list ? node->children[i] : node;
        char *end = NULL;

        out[i] = item->kind == SONDE__YAML_SCALAR ? sonde__strtof(item->text, &end)
                                                  : (float)NAN;
        if (end == NULL || end == item->text || *end != '\0' || !isfinite(out[i])) {
            return sonde__yaml_fail(reader, item, SONDE_EINVAL, "a finite number",
                                    "%s is '%s'", node->key,
                                    item->kind == SONDE__YAML_SCALAR ? item->text : "");
        }
    }
    *count = (int)numbers;
    return SONDE_OK;
}

static sonde_err read_normalize(const sonde__yaml_reader *reader,
                                const sonde__yaml *entry, const sonde__yaml *body,
                                sonde_nn_job_info *info)
{
    static const char *const keys[] = {"mean", "std"};
    float mean[SONDE_NN_TRANSFORM_CHANNELS], std[SONDE_NN_TRANSFORM_CHANNELS];
    int means = 0, stds = 0;
    SONDE__TRY(sonde__yaml_check_keys(reader, body, keys, SONDE_COUNT_OF(keys)));
    SONDE__TRY(read_channels(reader, entry, sonde__yaml_get(body, "mean"), mean, &means));
    SONDE__TRY(read_channels(reader, entry, sonde__yaml_get(body, "std"), std, &stds));
    for (int i = 0; i < stds; i++) {
        if (!(std[i] > 0.0F)) {
            return sonde__yaml_fail(reader, entry, SONDE_EINVAL, "above 0", "std is %g",
                                    (double)std[i]);
        }
    }
    if (means != stds) {
        return sonde__yaml_fail(reader, entry, SONDE_EINVAL, "as many",
                                "%d means and %d stds", means, stds);
    }
    info->normalize = (sonde_nn_transform){.kind = SONDE_NN_NORMALIZE, .channels = means};
    memcpy(info->normalize.mean, mean, (size_t)means * sizeof *mean);
    memcpy(info->normalize.std, std, (size_t)means * sizeof *std);
    return SONDE_OK;
}

static const struct {
    const char *name;
    augment_reader read;
} kinds[] = {{"random_horizontal_flip", read_flip},
             {"random_vertical_flip", read_vertical_flip},
             {"random_crop", read_crop},
             {"normalize", read_normalize}};

static sonde_err read_entry(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                            sonde_nn_job_info *info)
{
    static const sonde__yaml nothing = {.kind = SONDE__YAML_MAP};
    const bool plain = entry->kind == SONDE__YAML_SCALAR;
    const sonde__yaml *body = plain ? &nothing : NULL;
    const char *name = plain ? entry->text : NULL;

    if (entry->kind == SONDE__YAML_MAP && entry->count == 1) {
        name = entry->children[0]->key;
        body = entry->children[0];
    }
    for (size_t i = 0; name != NULL && i < SONDE_COUNT_OF(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0 && body->kind == SONDE__YAML_MAP) {
            return kinds[i].read(reader, entry, body, info);
        }
    }
    return sonde__yaml_fail(
        reader, entry, SONDE_EINVAL,
        "random_horizontal_flip, random_vertical_flip, random_crop or "
        "normalize, with a map of keys",
        "augment by '%s'", name != NULL ? name : "");
}

sonde_err sonde__job_read_augment(const sonde__yaml_reader *reader,
                                  const sonde__yaml *section, sonde_nn_job_info *info)
{
    const sonde__yaml *list = sonde__yaml_get(section, "augment");
    sonde_err err = SONDE_OK;

    if (list == NULL) {
        return SONDE_OK;
    }
    info->augment_count = 0;
    info->normalize.channels = 0;
    if (list->kind != SONDE__YAML_LIST) {
        return sonde__yaml_fail(reader, list, SONDE_EINVAL, "a list",
                                "augment is not a list");
    }
    for (size_t i = 0; i < list->count && err == SONDE_OK; i++) {
        err = read_entry(reader, list->children[i], info);
    }
    return err;
}
