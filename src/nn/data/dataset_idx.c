/*
 * dataset_idx.c - data sets from IDX files and from a single image.
 */
#include "nn/data/dataset.h"
#include "base/fail.h"
#include "base/memory.h"
#include "nn/data/idx.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* uint8 is taken over as it is, the rest is converted to a new float32 array. */
static sonde_err take_samples(sonde_nn_dataset *set, sonde_nn_idx *array,
                              const char *path, sonde_diag *diag)
{
    sonde_view view = array->view;
    sonde_err err = SONDE_OK;
    size_t bytes = 0;

    if (view.dtype == SONDE_U8 || view.dtype == SONDE_F32) {
        set->owned_data = sonde__data_idx_take(array);
        return sonde__dataset_set_data(set, &view, path, diag);
    }
    if (sonde__mul((size_t)sonde_view_count(&view), sizeof(float), &bytes)) {
        set->owned_data = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    }
    if (set->owned_data == NULL) {
        return sonde__fail_nomem(diag, "float32 samples");
    }
    view = sonde_view_of(SONDE_F32, view.rank, view.shape, set->owned_data);
    err = sonde_view_copy(&view, &array->view, diag);
    return err == SONDE_OK ? sonde__dataset_set_data(set, &view, path, diag) : err;
}

static sonde_err take_labels(sonde_nn_dataset *set, const sonde_nn_idx *array,
                             const char *path, sonde_diag *diag)
{
    const sonde_view *found = &array->view;
    sonde_view labels;
    char text[96];

    if (found->rank != 1 || sonde_dtype_is_float(found->dtype)) {
        return sonde__fail(diag, SONDE_ESHAPE, path, "one integer a sample",
                           "labels have shape %s, dtype %s",
                           sonde_shape_text(found->rank, found->shape, text, sizeof text),
                           sonde_dtype_name(found->dtype));
    }
    if (found->shape[0] != set->traits.count) {
        (void)snprintf(text, sizeof text, "%" PRId64 ", as many as there are samples",
                       set->traits.count);
        return sonde__fail(diag, SONDE_ESHAPE, path, text, "%" PRId64 " labels",
                           found->shape[0]);
    }
    set->owned_labels =
        sonde__calloc((size_t)set->traits.count, sizeof *set->owned_labels);
    if (set->owned_labels == NULL) {
        return sonde__fail_nomem(diag, "labels");
    }
    labels = sonde_view_of(SONDE_I64, 1, found->shape, set->owned_labels);
    set->labels = set->owned_labels;
    return sonde_view_copy(&labels, found, diag);
}

static sonde_err read_images(sonde_nn_dataset *set, const char *path, sonde_diag *diag)
{
    sonde_nn_idx *array = NULL;
    sonde_err err = sonde_nn_idx_load(path, &array, diag);

    if (err == SONDE_OK) {
        err = take_samples(set, array, path, diag);
    }
    sonde_nn_idx_destroy(array);
    return err;
}

static sonde_err read_labels(sonde_nn_dataset *set, const char *path, sonde_diag *diag)
{
    sonde_nn_idx *array = NULL;
    sonde_err err = sonde_nn_idx_load(path, &array, diag);

    if (err == SONDE_OK) {
        err = take_labels(set, array, path, diag);
    }
    sonde_nn_idx_destroy(array);
    return err;
}

sonde_err sonde_nn_dataset_open_idx(const char *images, const char *labels,
                                    const sonde_nn_dataset_options *options,
                                    sonde_nn_dataset **out, sonde_diag *diag)
{
    sonde_nn_dataset *set = sonde__calloc(1, sizeof *set);
    sonde_err err = SONDE_OK;

    if (set == NULL) {
        return sonde__fail_nomem(diag, "a data set");
    }
    err = sonde__dataset_set_source(set, images, diag);
    if (err == SONDE_OK) {
        err = read_images(set, images, diag);
    }
    if (err == SONDE_OK && labels != NULL) {
        err = read_labels(set, labels, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__dataset_set_classes(set, options, labels, diag);
    }
    if (err != SONDE_OK) {
        sonde_nn_dataset_destroy(set);
        return err;
    }
    *out = set;
    return SONDE_OK;
}

sonde_err sonde_nn_dataset_open_image(const char *path, sonde_nn_dataset **out,
                                      sonde_diag *diag)
{
    sonde_nn_image image = {0};
    sonde_nn_dataset *set = NULL;
    sonde_err err = sonde_nn_image_load(path, &image, diag);

    if (err != SONDE_OK) {
        return err;
    }
    set = sonde__calloc(1, sizeof *set);
    if (set == NULL) {
        sonde_nn_image_fini(&image);
        return sonde__fail_nomem(diag, "a data set");
    }
    set->owned_data = image.pixels;
    set->data = image.pixels;
    set->traits.count = 1;
    set->traits.dtype = SONDE_U8;
    set->traits.rank = 3;
    set->traits.shape[0] = image.channels;
    set->traits.shape[1] = image.height;
    set->traits.shape[2] = image.width;
    set->sample_bytes =
        (size_t)image.channels * (size_t)image.height * (size_t)image.width;
    err = sonde__dataset_set_source(set, path, diag);
    if (err != SONDE_OK) {
        sonde_nn_dataset_destroy(set);
        return err;
    }
    *out = set;
    return SONDE_OK;
}
