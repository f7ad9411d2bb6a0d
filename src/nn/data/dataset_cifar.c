/*
 * dataset_cifar.c - CIFAR-10 in its binary form (Krizhevsky 2009).
 *
 * A file is records of 3073 bytes: the label, then 32 x 32 pixels of red, of green and of
 * blue. data_batch_1.bin ... data_batch_5.bin are the training set, of which those that
 * are there are read; test_batch.bin is the test set.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "nn/data/dataset.h"
#include "nn/data/input.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, RECORD = 1 + PIXELS, CLASSES = 10 };
enum { BATCHES = 5, PATH_SIZE = 4096 };

static const char *const class_names[CLASSES] = {
    "airplane", "automobile", "bird",  "cat",  "deer",
    "dog",      "frog",       "horse", "ship", "truck"};

/* The file of batch i from 1, or of the test set for 0; false: there is none. */
static bool find_batch(const char *folder, int i, char path[PATH_SIZE])
{
    const int length = i == 0
                           ? snprintf(path, PATH_SIZE, "%s/test_batch.bin", folder)
                           : snprintf(path, PATH_SIZE, "%s/data_batch_%d.bin", folder, i);

    return length > 0 && length < PATH_SIZE && access(path, F_OK) == 0;
}

bool sonde_nn_dataset_is_cifar10(const char *folder, sonde_nn_split split)
{
    char path[PATH_SIZE];

    if (folder == NULL || (unsigned)split > SONDE_NN_TEST) {
        return false;
    }
    if (split == SONDE_NN_TEST) {
        return find_batch(folder, 0, path);
    }
    for (int i = 1; i <= BATCHES; i++) {
        if (find_batch(folder, i, path)) {
            return true;
        }
    }
    return false;
}

/* Records as they are read: pixels and labels. */
typedef struct records {
    unsigned char *pixels;
    int64_t *labels;
    size_t count, pixel_room, label_room;
} records;

static sonde_err add_records(records *all, const sonde__data_input *input,
                             sonde_diag *diag)
{
    const size_t count = input->size / RECORD, rest = input->size % RECORD;

    if (rest > 0) {
        return sonde__fail(diag, SONDE_EFORMAT, input->name, "records of 3073 bytes",
                           "record %zu ends after %zu bytes", count, rest);
    }
    if (!sonde__reserve(&all->pixels, &all->pixel_room, (all->count + count) * PIXELS,
                        1) ||
        !sonde__reserve(&all->labels, &all->label_room, all->count + count,
                        sizeof *all->labels)) {
        return sonde__fail_nomem(diag, "a data set");
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned char *record = input->bytes + i * RECORD;

        if (record[0] >= CLASSES) {
            return sonde__fail(diag, SONDE_ERANGE, input->name, "0 to 9",
                               "label %d of record %zu", (int)record[0], i);
        }
        memcpy(all->pixels + all->count * PIXELS, record + 1, PIXELS);
        all->labels[all->count++] = record[0];
    }
    return SONDE_OK;
}

static sonde_err read_batch(const char *path, records *all, sonde_diag *diag)
{
    sonde__data_input input;
    SONDE__TRY(sonde__data_input_read(&input, path, false, diag));
    const sonde_err err = add_records(all, &input, diag);

    sonde__data_input_fini(&input);
    return err;
}

static sonde_err read_split(const char *folder, sonde_nn_split split, records *all,
                            sonde_diag *diag)
{
    const int first = split == SONDE_NN_TEST ? 0 : 1;
    const int last = split == SONDE_NN_TEST ? 0 : BATCHES;
    char path[PATH_SIZE];

    for (int i = first; i <= last; i++) {
        if (find_batch(folder, i, path)) {
            SONDE__TRY(read_batch(path, all, diag));
        }
    }
    return all->count > 0
               ? SONDE_OK
               : sonde__fail(diag, SONDE_ENOTFOUND, folder,
                             split == SONDE_NN_TEST ? "test_batch.bin"
                                                    : "data_batch_1.bin ... _5.bin",
                             "no records of CIFAR-10");
}

/* Takes the records. */
static sonde_err fill_set(sonde_nn_dataset *set, records *all, const char *folder,
                          sonde_diag *diag)
{
    const sonde_nn_dataset_options classes = {
        .size = sizeof classes, .classes = CLASSES, .class_names = class_names};
    const int64_t shape[4] = {(int64_t)all->count, 3, SIDE, SIDE};
    const sonde_view data = sonde_view_of(SONDE_U8, 4, shape, all->pixels);

    set->owned_data = all->pixels;
    set->labels = set->owned_labels = all->labels;
    *all = (records){.count = 0};
    SONDE__TRY(sonde__dataset_set_source(set, folder, diag));
    SONDE__TRY(sonde__dataset_set_data(set, &data, folder, diag));
    return sonde__dataset_set_classes(set, &classes, folder, diag);
}

sonde_err sonde_nn_dataset_open_cifar10(const char *folder, sonde_nn_split split,
                                        sonde_nn_dataset **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, folder, out);
    records all = {.count = 0};
    sonde_nn_dataset *set = NULL;
    sonde_err err = SONDE_OK;

    if ((unsigned)split > SONDE_NN_TEST) {
        return sonde__fail(diag, SONDE_EINVAL, folder, "a sonde_nn_split", "split %d",
                           (int)split);
    }
    SONDE__TRY_GO(read_split(folder, split, &all, diag));
    set = sonde__calloc(1, sizeof *set);
    if (set == NULL) {
        err = sonde__fail_nomem(diag, "a data set");
        goto error;
    }
    SONDE__TRY_GO(fill_set(set, &all, folder, diag));
    *out = set;
    return SONDE_OK;

error:
    sonde__free(all.pixels);
    sonde__free(all.labels);
    sonde_nn_dataset_destroy(set);
    return err;
}
