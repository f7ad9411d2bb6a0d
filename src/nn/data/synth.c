/*
 * synth.c - draws one sample, and writes a set of them.
 *
 * A sample has a label (ten consecutive samples are the ten classes, shuffled), a cloth, the
 * garment in a pose, light from one side, and grain. All random numbers of a sample come
 * from its own stream.
 */
#include "nn/data/garments.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/given.h"
#include "nn/data/idx.h"
#include "nn/data/input.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 4096, TRAIN_COUNT = 60000, TEST_COUNT = 10000, REPORT_EVERY = 500 };

/* --- one sample --------------------------------------------------------------------- */

/* Light cloth is more common than dark. */
static float draw_brightness(sonde__data_dice *dice)
{
    const float a = sonde__data_dice_between(dice, 0.22f, 1.0f);
    const float b = sonde__data_dice_between(dice, 0.22f, 1.0f);

    return sonde__data_dice_between(dice, 0.0f, 1.0f) < 0.4f ? fmaxf(a, b) : a;
}

/* Stripes, checks, folds: a factor for every pixel. Leather shows less of them. */
static void weave(sonde__data_picture *picture, sonde__data_dice *dice, bool leather)
{
    const int kind =
        (int)sonde__data_dice_between(dice, 0.0f, 7.0f); /* 3 and more: plain */
    const float most = leather ? 0.3f : 0.6f;
    const float depth = kind < 3 ? sonde__data_dice_between(dice, 0.12f, most) : 0.0f;
    const float pitch = sonde__data_dice_between(dice, 0.7f, 2.2f);
    const float fold = sonde__data_dice_between(dice, 0.0f, 0.14f);
    const float along = sonde__data_dice_between(dice, 0.1f, 0.45f);
    const float across = sonde__data_dice_between(dice, -0.3f, 0.3f);
    const float phase = sonde__data_dice_between(dice, 0.0f, 6.28f);
    const float side_light = sonde__data_dice_between(dice, -0.012f, 0.012f);
    const float top_light = sonde__data_dice_between(dice, -0.010f, 0.006f);

    for (int y = 0; y < SONDE__SIDE; y++) {
        for (int x = 0; x < SONDE__SIDE; x++) {
            const float fx = (float)x, fy = (float)y;
            float factor = 1.0f + side_light * (fx - 13.5f) + top_light * (fy - 13.5f);

            factor += fold * sinf(along * fx + across * fy + phase);
            if (kind == 0 || kind == 2) {
                factor -= depth * (sinf(pitch * fy + phase) > 0.2f ? 1.0f : 0.0f);
            }
            if (kind == 1 || kind == 2) {
                factor -= depth * (sinf(pitch * fx + phase) > 0.2f ? 0.7f : 0.0f);
            }
            picture->cloth[y * SONDE__SIDE + x] = fmaxf(factor, 0.05f);
        }
    }
}

/* To bytes, with grain on the garment only. */
static void develop(const sonde__data_picture *picture, sonde__data_dice *dice,
                    uint8_t *pixels)
{
    const float grain = sonde__data_dice_between(dice, 0.01f, 0.08f);

    for (int i = 0; i < SONDE__PIXELS; i++) {
        float value = picture->light[i];

        if (picture->drawn[i] > 0.02f) {
            value +=
                grain * picture->drawn[i] * sonde__data_dice_between(dice, -1.0f, 1.0f);
        }
        pixels[i] = (uint8_t)(fminf(fmaxf(value, 0.0f), 1.0f) * 255.0f + 0.5f);
    }
}

/* Streams of one split: one for each block of ten labels, one for each sample. */
static uint64_t stream_of(sonde_nn_split split, bool labels)
{
    return (uint64_t)1 << 62 | (uint64_t)(split == SONDE_NN_TEST) << 61 |
           (uint64_t)labels << 60;
}

int sonde_nn_synth_draw(uint64_t seed, sonde_nn_split split, int64_t index,
                        uint8_t *pixels)
{
    if (pixels == NULL || index < 0 || (unsigned)split > SONDE_NN_TEST) {
        return 0;
    }
    const uint64_t block = (uint64_t)index / SONDE_NN_SYNTH_CLASSES;
    sonde__data_dice dice = {.seed = seed,
                             .stream = stream_of(split, false) | (uint64_t)index};
    uint32_t order[SONDE_NN_SYNTH_CLASSES];
    sonde__data_picture picture = {.light = {0.0f}};

    sonde__permute(seed, stream_of(split, true) | block, SONDE_NN_SYNTH_CLASSES, order);
    const int label = (int)order[index % SONDE_NN_SYNTH_CLASSES];
    weave(&picture, &dice, label == 5 || label >= 7);
    sonde__data_garment_draw(&picture, &dice, label, draw_brightness(&dice));
    develop(&picture, &dice, pixels);
    return label;
}

/* --- a set -------------------------------------------------------------------------- */

/* The files being written, and the progress. */
typedef struct synth_work {
    const sonde_nn_synth_options *options;
    const char *dir;
    int64_t done, total;
    sonde_diag *diag;
} synth_work;

static sonde_err draw_samples(synth_work *work, sonde_nn_split split, int64_t count,
                              uint8_t *pixels, uint8_t *labels)
{
    const sonde_nn_synth_options *options = work->options;

    for (int64_t i = 0; i < count; i++) {
        labels[i] = (uint8_t)sonde_nn_synth_draw(options->seed, split, i,
                                                 pixels + i * SONDE__PIXELS);
        work->done++;
        if (options->progress != NULL &&
            (work->done % REPORT_EVERY == 0 || work->done == work->total) &&
            !options->progress(options->user, work->done, work->total)) {
            return sonde__fail(work->diag, SONDE_EINTERRUPTED, work->dir, NULL,
                               "stopped");
        }
    }
    return SONDE_OK;
}

static sonde_err write_array(const synth_work *work, const char *prefix, const char *kind,
                             const sonde_view *view)
{
    char path[PATH_SIZE];
    const int length =
        snprintf(path, sizeof path, "%s/%s-%s.gz", work->dir, prefix, kind);

    if ((size_t)length >= sizeof path) {
        return sonde__fail(work->diag, SONDE_EINVAL, work->dir, "a shorter one",
                           "the path is too long");
    }
    return sonde__data_idx_write(path, view, true, work->diag);
}

static sonde_err write_split(synth_work *work, sonde_nn_split split, int64_t count)
{
    const char *prefix = split == SONDE_NN_TRAIN ? "train" : "t10k";
    const int64_t shape[3] = {count, SONDE__SIDE, SONDE__SIDE};
    uint8_t *pixels = sonde__calloc((size_t)count, SONDE__PIXELS);
    uint8_t *labels = sonde__calloc((size_t)count, 1);
    const sonde_view images = sonde_view_of(SONDE_U8, 3, shape, pixels);
    const sonde_view classes = sonde_view_of(SONDE_U8, 1, shape, labels);
    sonde_err err = pixels != NULL && labels != NULL
                        ? draw_samples(work, split, count, pixels, labels)
                        : sonde__fail_nomem(work->diag, "drawn samples");

    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(write_array(work, prefix, "images-idx3-ubyte", &images));
    err = write_array(work, prefix, "labels-idx1-ubyte", &classes);

done:
    sonde__free(pixels);
    sonde__free(labels);
    return err;
}

sonde_err sonde_nn_synth(const char *dir, const sonde_nn_synth_options *given,
                         sonde_diag *diag)
{
    sonde_nn_synth_options taken;
    const sonde_nn_synth_options *const options = &taken;
    SONDE__TAKE(sonde_nn_synth_options, &taken, given, diag);
    synth_work work = {.options = options, .dir = dir, .diag = diag};
    const int64_t train = work.options->train != 0 ? work.options->train : TRAIN_COUNT;
    const int64_t test = work.options->test != 0 ? work.options->test : TEST_COUNT;
    char cache[PATH_SIZE];
    sonde_err err = SONDE_OK;

    if (train < 0 || test < 0 || train > UINT32_MAX || test > UINT32_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, "synth", "1 to 4294967295 samples",
                           "%lld and %lld samples", (long long)train, (long long)test);
    }
    if (dir == NULL) {
        err = sonde_nn_data_cache("fashion-synth", cache, sizeof cache, diag);
        work.dir = cache;
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__data_make_folders(work.dir, diag));
    work.total = train + test;
    SONDE__TRY(write_split(&work, SONDE_NN_TRAIN, train));
    return write_split(&work, SONDE_NN_TEST, test);
}
