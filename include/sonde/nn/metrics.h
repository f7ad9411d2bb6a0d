/*
 * metrics.h - how well a classifier does.
 *
 * A confusion matrix counts, over any number of batches, what was predicted for samples
 * of each class; accuracy and the per-class figures follow from it. The prediction of a
 * row of scores (logits or log-probabilities alike) is its largest entry, the first of
 * equals. A row with a NaN predicts nothing: it counts as wrong, and is counted apart as
 * well.
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
/* Back to nothing counted. */
SONDE_API void sonde_nn_confusion_reset(sonde_nn_confusion *matrix);
/*
 * Counts a batch: scores (N, classes) of any float dtype, labels (N) of any integer
 * dtype, any strides. All or nothing: on SONDE_ESHAPE, SONDE_EDTYPE or SONDE_ERANGE (a
 * label out of range) nothing was counted. Nothing is allocated.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_confusion_update(sonde_nn_confusion *matrix,
                                                            const sonde_view *scores,
                                                            const sonde_view *labels,
                                                            sonde_diag *diag);
/* One prediction; predicted SONDE_NN_NAN_ROW for a row with a NaN. SONDE_ERANGE. */
enum { SONDE_NN_NAN_ROW = -1 };
SONDE_API SONDE_CHECKED sonde_err sonde_nn_confusion_add(sonde_nn_confusion *matrix,
                                                         int64_t label, int64_t predicted,
                                                         sonde_diag *diag);
/* The prediction of one row of n scores at stride elements: as above. */
SONDE_API int64_t sonde_nn_argmax(sonde_dtype dtype, const void *row, int64_t n,
                                  int64_t stride);

SONDE_API int64_t sonde_nn_confusion_classes(const sonde_nn_confusion *matrix);
/* Samples of class label that were predicted so; both in range (asserted). */
SONDE_API uint64_t sonde_nn_confusion_count(const sonde_nn_confusion *matrix,
                                            int64_t label, int64_t predicted);
/* (classes, classes), rows are labels, columns predictions; borrowed until destroy. */
SONDE_API const uint64_t *sonde_nn_confusion_counts(const sonde_nn_confusion *matrix);
SONDE_API uint64_t sonde_nn_confusion_total(const sonde_nn_confusion *matrix);
SONDE_API uint64_t sonde_nn_confusion_nan_rows(const sonde_nn_confusion *matrix);
/* Correct / total; NaN of nothing. */
SONDE_API double sonde_nn_confusion_accuracy(const sonde_nn_confusion *matrix);

/* Of one class. A quotient with nothing below its line is 0. */
typedef struct sonde_nn_class_scores {
    uint64_t support;  /* samples of this class, NaN rows included */
    uint64_t nan_rows; /* of them */
    double precision;  /* predicted rightly / predicted */
    double recall;     /* predicted rightly / support */
    double f1;         /* harmonic mean of the two */
} sonde_nn_class_scores;

SONDE_API sonde_nn_class_scores sonde_nn_confusion_class(const sonde_nn_confusion *matrix,
                                                         int64_t label);

/* A running mean, with Neumaier's compensated sum (1974). {0} is an empty one. */
typedef struct sonde_nn_running_mean {
    double sum, rest; /* their sum is the sum */
    double weight;
    uint64_t nonfinite; /* values left out of the sum: NaN and infinities */
} sonde_nn_running_mean;

/* Adds value with a weight (a mean over n samples counts n times). */
SONDE_API void sonde_nn_running_mean_add(sonde_nn_running_mean *mean, double value,
                                         double weight);
/* NaN if anything non-finite was added, and of nothing. */
SONDE_API double sonde_nn_running_mean_get(const sonde_nn_running_mean *mean);

#ifdef __cplusplus
}
#endif

#endif
