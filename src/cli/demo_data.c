/*
 * demo_data.c - the samples of a demo, in memory: drawn or from a folder, with their
 * faults.
 */
#include "cli/demo.h"
#include "base/fail.h"

#include <sonde/nn/synth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = SONDE_NN_SYNTH_SIDE,
    PIXELS = SIDE * SIDE,
    CLASSES = SONDE_NN_SYNTH_CLASSES,
    DRAWN_SEED = 0 /* the garments of every demo */
};

/* Where the samples come from. */
typedef struct source {
    sonde_nn_dataset *folder; /* NULL: drawn */
    sonde_nn_split split;
    int64_t count; /* of samples */
} source;

static sonde_err fail_source(sonde_diag *diag, const char *folder, const char *found,
                             const char *expected)
{
    return sonde_diag_set(diag, SONDE_ESHAPE, folder, expected, "%s", found);
}

static sonde_err open_source(const char *folder, sonde_nn_split split, source *where,
                             sonde_diag *diag)
{
    sonde_err err = SONDE_ENOTFOUND;

    *where = (source){.split = split, .count = INT64_MAX};
    if (folder == NULL) {
        return SONDE_OK;
    }
    for (size_t i = 0; err == SONDE_ENOTFOUND && sonde_nn_dataset_name(i) != NULL; i++) {
        err = sonde_nn_dataset_open(folder,
                                    SONDE_OPTIONS(sonde_nn_dataset,
                                                  .name = sonde_nn_dataset_name(i),
                                                  .split = split),
                                    &where->folder, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(where->folder);
    where->count = traits->count;
    if (traits->dtype != SONDE_U8 || traits->rank != 3 || traits->shape[0] != 1 ||
        traits->shape[1] != SIDE || traits->shape[2] != SIDE ||
        traits->classes > CLASSES) {
        return fail_source(diag, folder, "a data set of another kind",
                           "grey images of 28 x 28 in at most 10 classes");
    }
    return SONDE_OK;
}

/* Sample i into pixels in 0 ... 1; its label. */
static sonde_err take(const source *where, int64_t i, float *pixels, int64_t *label,
                      sonde_diag *diag)
{
    uint8_t drawn[PIXELS];
    const uint8_t *bytes = drawn;

    if (where->folder == NULL) {
        *label = sonde_nn_synth_draw(DRAWN_SEED, where->split, i, drawn);
    } else {
        sonde_nn_sample sample;
        SONDE__TRY(sonde_nn_dataset_get(where->folder, i, NULL, &sample, diag));
        bytes = sample.data;
        *label = sample.label;
    }
    for (int k = 0; k < PIXELS; k++) {
        pixels[k] = (float)bytes[k] / 255.0F;
    }
    return SONDE_OK;
}

/* Fills out->pixels and out->labels with samples, in the order of the source. */
static sonde_err fill(const sonde_nn_demo *demo, const source *where, const char *folder,
                      int64_t count, cli_demo_set *out, sonde_diag *diag)
{
    int64_t of_class_0 = 0, taken = 0;

    for (int64_t i = 0; taken < count; i++) {
        if (i >= where->count) {
            return fail_source(diag, folder, "too few samples", "a whole data set");
        }
        SONDE__TRY(
            take(where, i, out->pixels + taken * PIXELS, &out->labels[taken], diag));
        if (demo->scarce > 0 && out->labels[taken] == 0 &&
            of_class_0++ % demo->scarce != 0) {
            continue;
        }
        taken++;
    }
    return SONDE_OK;
}

/* A fixed permutation: each label goes to a sample elsewhere. */
static void shuffle_labels(int64_t *labels, int64_t count, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;

    for (int64_t i = count - 1; i > 0; i--) {
        int64_t k = 0, kept = labels[i];

        /* Knuth's MMIX: the upper bits are good enough to mix labels */
        state = state * 6364136223846793005U + 1442695040888963407U;
        k = (int64_t)((state >> 33U) % (uint64_t)(i + 1));
        labels[i] = labels[k];
        labels[k] = kept;
    }
}

sonde_err cli_demo_data(const sonde_nn_demo *demo, const char *folder,
                        sonde_nn_split split, uint64_t seed, cli_demo_set *out,
                        sonde_diag *diag)
{
    const int64_t count = split == SONDE_NN_TRAIN ? demo->train : demo->test;
    const int64_t shape[4] = {count, 1, SIDE, SIDE};
    sonde_view pixels, labels;
    const sonde_nn_dataset_options options = {
        .size = sizeof options,
        .classes = CLASSES,
        .data = &pixels,
        .labels = &labels,
        .class_names = sonde_nn_dataset_class_names("fashion-synth")};
    source place;
    sonde_err err = open_source(folder, split, &place, diag);

    out->pixels = malloc((size_t)count * PIXELS * sizeof *out->pixels);
    out->labels = malloc((size_t)count * sizeof *out->labels);
    if (err != SONDE_OK) {
        goto done;
    }
    if (out->pixels == NULL || out->labels == NULL) {
        *diag = (sonde_diag){.err = SONDE_ENOMEM, .found = "out of memory"};
        err = SONDE_ENOMEM;
    }
    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(fill(demo, &place, folder, count, out, diag));
    if (demo->shuffled && split == SONDE_NN_TRAIN) {
        shuffle_labels(out->labels, count, seed);
    }
    if (demo->hole && split == SONDE_NN_TRAIN) {
        out->pixels[(count / 2) * PIXELS + PIXELS / 2] = NAN;
    }
    pixels = sonde_view_of(SONDE_F32, 4, shape, out->pixels);
    labels = sonde_view_of(SONDE_I64, 1, shape, out->labels);
    err = sonde_nn_dataset_open(NULL, &options, &out->set, diag);

done:
    sonde_nn_dataset_destroy(place.folder);
    return err;
}

void cli_demo_data_free(cli_demo_set *set)
{
    sonde_nn_dataset_destroy(set->set);
    free(set->pixels);
    free(set->labels);
    *set = (cli_demo_set){0};
}
