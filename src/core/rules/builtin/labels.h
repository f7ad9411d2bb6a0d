/*
 * labels.h - the labels and the predicted classes of a step, for ClassImbalance,
 * Confusion, LabelNoise and SoftmaxMisuse.
 */
#ifndef SONDE_RULES_BUILTIN_LABELS_H
#define SONDE_RULES_BUILTIN_LABELS_H

#include <sonde/rule.h>

enum { SONDE__CLASSES = 1024 }; /* higher class numbers are not counted */

typedef struct sonde__builtin_labels {
    int32_t *value;
    size_t count, capacity;
} sonde__builtin_labels;

void sonde__builtin_labels_free(sonde__builtin_labels *labels);
/* Appends class numbers: the elements of a view of rank 1 or of integers; else for rank
 * 2 and more, the index of the largest score along dimension 1 (N, classes), or the only
 * element (N, 1). Fails the rule if memory runs out. */
void sonde__builtin_labels_take(sonde_rule_run *run, sonde__builtin_labels *labels,
                                const sonde_view *view);
/* An integer input of the session, which is probably the target: its name does not say
 * that it is something else (actions, tokens, ids of users ...). The input of a loss. */
bool sonde__builtin_looks_like_labels(const sonde_tensor_info *info, uint32_t id);
/* Labels of tokens or pixels: integers of rank 2 or more, by their name. */
bool sonde__builtin_looks_like_targets(const sonde_tensor_info *info, uint32_t id);
bool sonde__builtin_looks_like_predictions(const sonde_tensor_info *info);

/* For rules whose first two needs and parameters are labels and predictions:
 * sonde_rule.wants. */
enum { SONDE__LABELS = 0, SONDE__PREDICTIONS = 1 };
int sonde__builtin_wants_classes(sonde_rule_run *run, const sonde_tensor_info *info,
                                 uint32_t id);

#endif
