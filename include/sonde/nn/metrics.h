/*
 * metrics.h - accuracy, confusion matrix and per-class scores of a classifier.
 *
 * A confusion matrix counts the predictions for samples of each class over any number of
 * batches; accuracy and per-class scores follow from it. The prediction of a row of
 * scores (logits or log-probabilities) is its largest entry, the first of equals. A row
 * with a NaN predicts nothing: it counts as wrong, and is also counted separately.
 *
 * One thread at a time for a matrix.
 */
#ifndef SONDE_NN_METRICS_H
#define SONDE_NN_METRICS_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_confusion sonde_nn_confusion;

SONDE_API SONDE_CHECKED sonde_err sonde_nn_confusion_create(int64_t classes,
                                                            sonde_nn_confusion **out,
                                                            sonde_diag *diag);
SONDE_API void sonde_nn_confusion_destroy(sonde_nn_confusion *matrix);
/* Sets all counts to 0. */
SONDE_API void sonde_nn_confusion_reset(sonde_nn_confusion *matrix);
/*
 * Counts a batch: scores (N, classes) of any float dtype, labels (N) of any integer
 * dtype, any strides. After SONDE_ESHAPE, SONDE_EDTYPE or SONDE_ERANGE (a label out of
 * range) no row is counted. Nothing is allocated.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_confusion_update(sonde_nn_confusion *matrix,
                                                            const sonde_view *scores,
                                                            const sonde_view *labels,
                                                            sonde_diag *diag);
enum { SONDE_NN_NAN_ROW = -1 }; /* the prediction of a row with a NaN */
/* The prediction of one row of n scores at stride elements: as above. */
SONDE_API int64_t sonde_nn_argmax(sonde_dtype dtype, const void *row, int64_t n,
                                  int64_t stride);

typedef struct sonde_nn_confusion_info {
    int64_t classes;
    const uint64_t
        *counts; /* (classes, classes): labels, predictions; borrowed until destroy */
    uint64_t total, nan_rows; /* samples */
    double accuracy;          /* correct / total; NaN if nothing is counted */
} sonde_nn_confusion_info;

SONDE_API sonde_nn_confusion_info
sonde_nn_confusion_get_info(const sonde_nn_confusion *matrix);

/* Scores of one class. A quotient with denominator 0 is 0. */
typedef struct sonde_nn_class_scores {
    uint64_t support;  /* samples of this class, NaN rows included */
    uint64_t nan_rows; /* of them */
    double precision;  /* correctly predicted / predicted */
    double recall;     /* correctly predicted / support */
    double f1;         /* harmonic mean of the two */
} sonde_nn_class_scores;

SONDE_API sonde_nn_class_scores sonde_nn_confusion_class(const sonde_nn_confusion *matrix,
                                                         int64_t label);

#ifdef __cplusplus
}
#endif

#endif
