/*
 * labels.c - class numbers from raw values.
 */
#include "rules/builtin/labels.h"

#include "rules/builtin/builtin.h"
#include "rules/context.h"

#include "base/macros.h"
#include "base/memory.h"

#include <string.h>

void sonde__builtin_labels_free(sonde__builtin_labels *labels)
{
    sonde__free(labels->value);
    *labels = (sonde__builtin_labels){0};
}

static int32_t class_of(double value)
{
    return value >= 0.0 && value < 2e9 ? (int32_t)value : -1;
}

/* The class of sample i of a view of rank 2 or more (places beyond dimension 1: the
 * first). */
static int32_t largest(const sonde_view *view, int64_t i)
{
    int64_t index[SONDE_MAX_DIMS] = {i};
    double best = -(double)INFINITY;
    int32_t at = -1;

    for (int64_t c = 0; c < view->shape[1]; c++) {
        index[1] = c;
        const double score = sonde_element_get(view->dtype, sonde_view_at(view, index));
        if (view->shape[1] == 1) {
            return class_of(score);
        }
        if (score > best) {
            best = score;
            at = (int32_t)c;
        }
    }
    return at;
}

/* The element at place i of a view, row-major. */
static double element(const sonde_view *view, int64_t i)
{
    int64_t index[SONDE_MAX_DIMS] = {0};

    for (int k = view->rank - 1; k >= 0; k--) {
        index[k] = i % view->shape[k];
        i /= view->shape[k];
    }
    return sonde_element_get(view->dtype, sonde_view_at(view, index));
}

void sonde__builtin_labels_take(sonde_rule_run *run, sonde__builtin_labels *labels,
                                const sonde_view *view)
{
    const bool numbers = !sonde_dtype_is_float(view->dtype) || view->rank < 2;
    const int64_t samples = numbers ? sonde_view_count(view) : view->shape[0];

    if (sonde_view_count(view) == 0) {
        return;
    }
    if (!sonde__reserve(&labels->value, &labels->capacity,
                        labels->count + (size_t)samples, sizeof *labels->value)) {
        sonde_rule_fail(run, "out of memory");
        return;
    }
    for (int64_t i = 0; i < samples; i++) {
        labels->value[labels->count++] =
            numbers ? class_of(element(view, i)) : largest(view, i);
    }
}

/* Integers that are no labels, by a word of their name. */
static bool says_otherwise(const char *name)
{
    static const char *const words[] = {
        "action",  "token",    "word",   "user",     "item", "index",
        "indices", "ids",      "length", "position", "time", "step",
        "context", "negative", "mask",   "offset",   "edge", "_id"};

    return sonde__builtin_has_word(name, words, SONDE_COUNT_OF(words));
}

static bool is_integer_input(const sonde_tensor_info *info, uint32_t id)
{
    return sonde__builtin_is_input(info, id) && !sonde_dtype_is_float(info->dtype) &&
           info->dtype != SONDE_BOOL;
}

bool sonde__builtin_looks_like_labels(const sonde_tensor_info *info, uint32_t id)
{
    return is_integer_input(info, id) && info->rank == 1 && !says_otherwise(info->name);
}

bool sonde__builtin_looks_like_targets(const sonde_tensor_info *info, uint32_t id)
{
    return is_integer_input(info, id) && info->rank >= 2 &&
           sonde__builtin_is_target(info);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), count = strlen(end);

    return length > count && strcmp(name + length - count, end) == 0;
}

bool sonde__builtin_looks_like_predictions(const sonde_tensor_info *info)
{
    return info->pass != SONDE_PASS_BACKWARD && strstr(info->name, "loss") != NULL &&
           (ends_with(info->name, "_input_0") || ends_with(info->name, "/predictions"));
}

/* Whether the regular expressions select it; the default's do not where the user chose
 * collections. */
static bool selects(const sonde_rule_run *run, size_t need, uint32_t id,
                    const bool *chosen)
{
    return sonde_rule_matches(run, need, id) &&
           (sonde__rule_is_given(run, need) || !chosen[need]);
}

int sonde__builtin_wants_classes(sonde_rule_run *run, const sonde_tensor_info *info,
                                 uint32_t id)
{
    const char *names[] = {"labels_collection", "predictions_collection"};
    /* What only looks so counts where the user selects nothing. */
    bool chosen[2] = {sonde__rule_is_given(run, SONDE__LABELS),
                      sonde__rule_is_given(run, SONDE__PREDICTIONS)};

    for (size_t i = 0; i < sonde_rule_row(run)->param_count; i++) {
        for (int need = 0; need < 2; need++) {
            if (strcmp(sonde_rule_row(run)->params[i].name, names[need]) != 0) {
                continue;
            }
            if (sonde_rule_matches(run, i, id)) {
                return need;
            }
            chosen[need] = chosen[need] || sonde__rule_is_given(run, i);
        }
    }
    if (selects(run, SONDE__LABELS, id, chosen) ||
        (!chosen[SONDE__LABELS] && sonde__builtin_looks_like_labels(info, id))) {
        return SONDE__LABELS;
    }
    return selects(run, SONDE__PREDICTIONS, id, chosen) ||
                   (!chosen[SONDE__PREDICTIONS] &&
                    sonde__builtin_looks_like_predictions(info))
               ? SONDE__PREDICTIONS
               : SONDE_RULE_IGNORE;
}
