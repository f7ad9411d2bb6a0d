/*
 * metrics.c - confusion matrix, scores, and running means.
 */
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/error.h>
#include <sonde/nn/evaluator.h>

#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct sonde_nn_confusion {
    int64_t classes;
    uint64_t total, correct, nan_rows;
    uint64_t *counts;     /* (classes, classes): label, predicted */
    uint64_t *nan_counts; /* (classes): NaN rows by label; after counts in one block */
};

sonde_err sonde_nn_confusion_create(int64_t classes, sonde_nn_confusion **out,
                                    sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_nn_confusion *matrix = NULL;
    size_t entries = 0;

    if (classes < 1) {
        return sonde__fail(diag, SONDE_EINVAL, "confusion matrix", "1 or more",
                           "%" PRId64 " classes", classes);
    }
    if (classes > INT32_MAX ||
        !sonde__mul((size_t)classes, (size_t)classes + 1, &entries)) {
        return sonde__fail_nomem(diag, "a confusion matrix");
    }
    matrix = sonde__calloc(1, sizeof *matrix);
    if (matrix == NULL) {
        return sonde__fail_nomem(diag, "a confusion matrix");
    }
    matrix->counts = sonde__calloc(entries, sizeof *matrix->counts);
    if (matrix->counts == NULL) {
        sonde__free(matrix);
        return sonde__fail_nomem(diag, "a confusion matrix");
    }
    matrix->classes = classes;
    matrix->nan_counts = matrix->counts + classes * classes;
    *out = matrix;
    return SONDE_OK;
}

void sonde_nn_confusion_destroy(sonde_nn_confusion *matrix)
{
    if (matrix != NULL) {
        sonde__free(matrix->counts);
        sonde__free(matrix);
    }
}

void sonde_nn_confusion_reset(sonde_nn_confusion *matrix)
{
    if (matrix == NULL) {
        return;
    }
    const size_t entries = (size_t)matrix->classes * ((size_t)matrix->classes + 1);

    memset(matrix->counts, 0, entries * sizeof *matrix->counts);
    matrix->total = 0;
    matrix->correct = 0;
    matrix->nan_rows = 0;
}

int64_t sonde_nn_argmax(sonde_dtype dtype, const void *row, int64_t n, int64_t stride)
{
    if (row == NULL || sonde_dtype_size(dtype) == 0) {
        return SONDE_NN_NAN_ROW;
    }
    const char *at = row;
    const int64_t step = stride * (int64_t)sonde_dtype_size(dtype);
    int64_t best = SONDE_NN_NAN_ROW;
    double most = -(double)INFINITY;

    for (int64_t i = 0; i < n; i++) {
        const double value = sonde_element_get(dtype, at + i * step);

        if (isnan(value)) {
            return SONDE_NN_NAN_ROW;
        }
        if (best < 0 || value > most) {
            best = i;
            most = value;
        }
    }
    return best;
}

static void count(sonde_nn_confusion *matrix, int64_t label, int64_t predicted)
{
    matrix->total++;
    if (predicted == SONDE_NN_NAN_ROW) {
        matrix->nan_rows++;
        matrix->nan_counts[label]++;
        return;
    }
    matrix->correct += label == predicted ? 1 : 0;
    matrix->counts[label * matrix->classes + predicted]++;
}

static sonde_err check_range(const sonde_nn_confusion *matrix, const char *what,
                             int64_t value, int64_t row, sonde_diag *diag)
{
    char expected[64];

    if (value >= 0 && value < matrix->classes) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "0 to %" PRId64, matrix->classes - 1);
    return sonde__fail(diag, SONDE_ERANGE, "confusion matrix", expected,
                       "%s %" PRId64 " of sample %" PRId64, what, value, row);
}

/* Elements of a view along its first dimension. */
static const void *row_of(const sonde_view *view, int64_t row)
{
    return (const char *)view->data +
           row * view->stride[0] * (int64_t)sonde_dtype_size(view->dtype);
}

static int64_t label_of(const sonde_view *labels, int64_t row)
{
    const void *element = row_of(labels, row);
    int64_t value = 0;

    if (labels->dtype == SONDE_I64) {
        memcpy(&value, element, sizeof value);
        return value;
    }
    return (int64_t)sonde_element_get(labels->dtype, element);
}

static sonde_err check_batch(const sonde_nn_confusion *matrix, const sonde_view *scores,
                             const sonde_view *labels, sonde_diag *diag)
{
    char found[96], expected[96];

    if (scores->rank != 2 || scores->shape[1] != matrix->classes) {
        (void)snprintf(expected, sizeof expected, "(N, %" PRId64 ")", matrix->classes);
        return sonde__fail(
            diag, SONDE_ESHAPE, "scores", expected, "shape is %s",
            sonde_shape_text(scores->rank, scores->shape, found, sizeof found));
    }
    if (labels->rank != 1 || labels->shape[0] != scores->shape[0]) {
        (void)snprintf(expected, sizeof expected, "(%" PRId64 ")", scores->shape[0]);
        return sonde__fail(
            diag, SONDE_ESHAPE, "labels", expected, "shape is %s",
            sonde_shape_text(labels->rank, labels->shape, found, sizeof found));
    }
    if (!sonde_dtype_is_float(scores->dtype) || sonde_dtype_is_float(labels->dtype) ||
        labels->dtype == SONDE_BOOL) {
        return sonde__fail(diag, SONDE_EDTYPE, "scores and labels", "floats and integers",
                           "dtypes are %s and %s", sonde_dtype_name(scores->dtype),
                           sonde_dtype_name(labels->dtype));
    }
    for (int64_t i = 0; i < labels->shape[0]; i++) {
        SONDE__TRY(check_range(matrix, "label", label_of(labels, i), i, diag));
    }
    return SONDE_OK;
}

sonde_err sonde_nn_confusion_update(sonde_nn_confusion *matrix, const sonde_view *scores,
                                    const sonde_view *labels, sonde_diag *diag)
{
    SONDE__NEEDS(diag, matrix, scores, labels);
    SONDE__TRY(check_batch(matrix, scores, labels, diag));
    for (int64_t i = 0; i < scores->shape[0]; i++) {
        count(matrix, label_of(labels, i),
              sonde_nn_argmax(scores->dtype, row_of(scores, i), matrix->classes,
                              scores->stride[1]));
    }
    return SONDE_OK;
}

sonde_nn_confusion_info sonde_nn_confusion_get_info(const sonde_nn_confusion *matrix)
{
    if (matrix == NULL) {
        return (sonde_nn_confusion_info){.accuracy = (double)NAN};
    }
    return (sonde_nn_confusion_info){
        .classes = matrix->classes,
        .counts = matrix->counts,
        .total = matrix->total,
        .nan_rows = matrix->nan_rows,
        .accuracy = matrix->total > 0 ? (double)matrix->correct / (double)matrix->total
                                      : (double)NAN};
}

sonde_nn_class_scores sonde_nn_confusion_class(const sonde_nn_confusion *matrix,
                                               int64_t label)
{
    if (matrix == NULL || label < 0 || label >= matrix->classes) {
        return (sonde_nn_class_scores){0};
    }
    sonde_nn_class_scores scores = {0};
    uint64_t predicted = 0;

    for (int64_t i = 0; i < matrix->classes; i++) {
        scores.support += matrix->counts[label * matrix->classes + i];
        predicted += matrix->counts[i * matrix->classes + label];
    }
    scores.nan_rows = matrix->nan_counts[label];
    scores.support += scores.nan_rows;
    const double right = (double)matrix->counts[label * matrix->classes + label];
    scores.precision = predicted > 0 ? right / (double)predicted : 0.0;
    scores.recall = scores.support > 0 ? right / (double)scores.support : 0.0;
    if (right > 0.0) {
        scores.f1 = 2.0 * right / ((double)predicted + (double)scores.support);
    }
    return scores;
}
