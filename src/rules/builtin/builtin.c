/*
 * builtin.c - the table of built-in rules, and what their files share.
 */
#include "rules/builtin/builtin.h"

#include <sonde/error.h>
#include <sonde/rules.h>

#include "base/fail.h"
#include "base/macros.h"
#include "observe/tensor_names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* By name. */
static const sonde_rule *const table[] = {
    &sonde__builtin_all_zero,
    &sonde__builtin_check_input_images,
    &sonde__builtin_class_imbalance,
    &sonde__builtin_confusion,
    &sonde__builtin_dead_relu,
    &sonde__builtin_dtype_changed,
    &sonde__builtin_duplicate_batch,
    &sonde__builtin_eval_nondeterminism,
    &sonde__builtin_exploding_tensor,
    &sonde__builtin_feature_importance,
    &sonde__builtin_frozen_parameter,
    &sonde__builtin_gradient_spike,
    &sonde__builtin_input_range,
    &sonde__builtin_label_noise,
    &sonde__builtin_loss_not_decreasing,
    &sonde__builtin_loss_spike,
    &sonde__builtin_missing_zero_grad,
    &sonde__builtin_nlp_sequence_ratio,
    &sonde__builtin_non_finite,
    &sonde__builtin_optimizer_state,
    &sonde__builtin_overfit,
    &sonde__builtin_overtraining,
    &sonde__builtin_poor_weight_initialization,
    &sonde__builtin_replica_divergence,
    &sonde__builtin_saturated_activation,
    &sonde__builtin_similar_across_runs,
    &sonde__builtin_softmax_misuse,
    &sonde__builtin_stalled_training,
    &sonde__builtin_symmetric_units,
    &sonde__builtin_tensor_variance,
    &sonde__builtin_tree_depth,
    &sonde__builtin_unchanged_tensor,
    &sonde__builtin_unfrozen_parameter,
    &sonde__builtin_update_spike,
    &sonde__builtin_vanishing_gradient,
    &sonde__builtin_weight_update_ratio,
};

const sonde_rule *sonde_rule_at_index(size_t i)
{
    return i < SONDE_COUNT_OF(table) ? table[i] : NULL;
}

static const char *rule_name_at(const void *list, size_t i)
{
    return ((const sonde_rule *const *)list)[i]->name;
}

sonde_err sonde_rule_by_name(const char *name, const sonde_rule **rule, sonde_diag *diag)
{
    char near[SONDE__NEAREST_TEXT] = "";

    for (size_t i = 0; i < SONDE_COUNT_OF(table); i++) {
        if (strcasecmp(table[i]->name, name) == 0) {
            *rule = table[i];
            return SONDE_OK;
        }
    }
    (void)sonde__observe_nearest_names(name, table, rule_name_at, SONDE_COUNT_OF(table),
                                       near, sizeof near);
    for (size_t i = 0; i < SONDE_COUNT_OF(table) && near[0] == '\0'; i++) {
        if (strlen(name) > 2 && strcasestr(table[i]->name, name) != NULL) {
            (void)snprintf(near, sizeof near, "%s", table[i]->name);
        }
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL,
                       near[0] != '\0' ? near : "one of 'sonde rules list'",
                       "unknown rule '%s'", name);
}

sonde__builtin_span sonde__builtin_parameter_of(const char *name)
{
    static const char *const starts[] = {"gradient/", "gradients/", "grad/", "Gradient_"};
    static const char *const ends[] = {
        ".grad",           "_grad", ".exp_avg_sq", ".exp_avg", ".momentum_buffer",
        ".max_exp_avg_sq", ".step"};
    const size_t length = strlen(name);

    for (const char *at = strstr(name, "___"); at != NULL;) {
        const char *next = strstr(at + 3, "___");

        if (next == NULL) {
            return (sonde__builtin_span){at + 3, strlen(at + 3)};
        }
        at = next;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(starts); i++) {
        const size_t n = strlen(starts[i]);

        if (strncmp(name, starts[i], n) == 0) {
            return (sonde__builtin_span){name + n, length - n};
        }
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(ends); i++) {
        const size_t n = strlen(ends[i]);

        if (length > n && strcmp(name + length - n, ends[i]) == 0) {
            return (sonde__builtin_span){name, length - n};
        }
    }
    return (sonde__builtin_span){NULL, 0};
}

void sonde__builtin_link(sonde_rule_run *run, int from, int to,
                         bool (*fits)(const sonde_tensor_info *info), size_t offset)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const char *name = sonde_rule_info(run, tensors[i].id)->name;
        size_t of = SIZE_MAX;

        for (size_t j = 0; j < count && tensors[i].need == from && of == SIZE_MAX; j++) {
            const sonde_tensor_info *info = sonde_rule_info(run, tensors[j].id);
            const sonde__builtin_span span = sonde__builtin_parameter_of(info->name);

            if (tensors[j].need == to && span.text != NULL &&
                strlen(name) == span.length &&
                strncmp(span.text, name, span.length) == 0 &&
                (fits == NULL || fits(info))) {
                of = j;
            }
        }
        if (tensors[i].need == from) {
            memcpy((char *)tensors[i].memory + offset, &of, sizeof of);
        }
    }
}

bool sonde__builtin_is_input_of(const char *name, const char *activation)
{
    const char *at = strcasestr(name, activation);

    return at != NULL && strcasestr(at, "_input") != NULL;
}

bool sonde__builtin_is_gradient(const sonde_tensor_info *info)
{
    return info->role == SONDE_ROLE_GRADIENT;
}

bool sonde__builtin_is_bias(const sonde_tensor_info *info)
{
    const char *dot = strrchr(info->name, '.');

    return info->role == SONDE_ROLE_BIAS ||
           strncmp(dot != NULL ? dot + 1 : info->name, "bias", 4) == 0;
}

int sonde__builtin_wants_chosen(sonde_rule_run *run, uint32_t id, bool otherwise)
{
    bool given = false;
    const bool selected = sonde_rule_selected(run, id, &given);

    return (given ? selected : otherwise) ? 0 : SONDE_RULE_IGNORE;
}

sonde_err sonde__builtin_need_choice(const char *rule, const char *collection_names,
                                     const char *tensor_regex, sonde_diag *diag)
{
    if (collection_names == NULL && tensor_regex == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, rule, "collection_names or tensor_regex",
                           "it has to be told which tensors");
    }
    return SONDE_OK;
}

void sonde__builtin_reader_init(sonde__builtin_reader *reader, const sonde_view *view)
{
    reader->dtype = view->dtype;
    sonde__tensor_cursor_init(&reader->cursor, view);
}

size_t sonde__builtin_reader_take(sonde__builtin_reader *reader,
                                  double room[SONDE__CHUNK])
{
    uint64_t elements[SONDE__CHUNK];
    const void *at = NULL;
    const size_t n =
        sonde__tensor_cursor_take(&reader->cursor, SONDE__CHUNK, elements, &at);

    if (n > 0) {
        sonde__tensor_load_f64(reader->dtype, at, n, room);
    }
    return n;
}

size_t sonde__builtin_sample(const sonde_view *view, size_t most, double *out)
{
    const size_t all = (size_t)sonde_view_count(view),
                 size = sonde_dtype_size(view->dtype);
    const size_t count = SONDE_MIN(all, most);
    const size_t stride = count > 0 ? all / count : 1;
    sonde__builtin_reader reader;
    double chunk[SONDE__CHUNK];
    size_t at = 0;

    if (sonde_view_is_contiguous(view)) {
        for (size_t i = 0; i < count; i++) {
            const void *element = (const char *)view->data + i * stride * size;

            if (view->dtype == SONDE_F32) { /* may be unaligned */
                float value = 0.0F;

                memcpy(&value, element, sizeof value);
                out[i] = (double)value;
            } else {
                out[i] = sonde_element_get(view->dtype, element);
            }
        }
        return count;
    }
    sonde__builtin_reader_init(&reader, view);
    for (size_t n = 1; at < count && n > 0; at += n) {
        n = SONDE_MIN(sonde__builtin_reader_take(&reader, chunk), count - at);
        memcpy(out + at, chunk, n * sizeof *out);
    }
    return at;
}
