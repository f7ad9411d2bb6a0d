/*
 * labels.h - what ClassImbalance, Confusion and LabelNoise share: the labels of a step and what
 * the network took the samples for.
 */
#ifndef SONDE_RULES_LABELS_H
#define SONDE_RULES_LABELS_H

#include <sonde/rule.h>

enum { SONDE__CLASSES = 1024 }; /* those beyond are not counted */

typedef struct sonde__labels {
    int32_t *value;
    size_t count, capacity;
} sonde__labels;

void sonde__labels_free(sonde__labels *labels);
/* Appends class numbers: those of a view of rank 1; of rank 2 and more, the index of the largest
 * score along dimension 1 (N, classes), or the only one there is (N, 1). false: out of memory. */
bool sonde__labels_take(sonde__labels *labels, const sonde_view *view);
/* An integer input of the session, which will be the target; what goes into the loss. */
bool sonde__looks_like_labels(const sonde_tensor_info *info, uint32_t id);
bool sonde__looks_like_predictions(const sonde_tensor_info *info);

/* For rules whose first two needs and parameters are labels and predictions: sonde_rule.wants. */
enum { SONDE__LABELS = 0, SONDE__PREDICTIONS = 1 };
int sonde__wants_classes(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id);

#endif
