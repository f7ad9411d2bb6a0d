/*
 * builtin.c - the table of built-in rules, and what their files share.
 */
#include "rules/builtin.h"

#include <sonde/rules.h>

#include "base/base.h"
#include "observe/names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* By name. */
static const sonde_rule *const table[] = {
    &sonde__all_zero,
    &sonde__check_input_images,
    &sonde__class_imbalance,
    &sonde__confusion,
    &sonde__dead_relu,
    &sonde__dtype_changed,
    &sonde__duplicate_batch,
    &sonde__eval_nondeterminism,
    &sonde__exploding_tensor,
    &sonde__feature_importance,
    &sonde__frozen_parameter,
    &sonde__gradient_spike,
    &sonde__input_range,
    &sonde__label_noise,
    &sonde__loss_not_decreasing,
    &sonde__loss_spike,
    &sonde__missing_zero_grad,
    &sonde__nlp_sequence_ratio,
    &sonde__non_finite,
    &sonde__optimizer_state,
    &sonde__overfit,
    &sonde__overtraining,
    &sonde__poor_weight_initialization,
    &sonde__replica_divergence,
    &sonde__saturated_activation,
    &sonde__similar_across_runs,
    &sonde__softmax_misuse,
    &sonde__stalled_training,
    &sonde__symmetric_units,
    &sonde__tensor_variance,
    &sonde__tree_depth,
    &sonde__unchanged_tensor,
    &sonde__unfrozen_parameter,
    &sonde__update_spike,
    &sonde__vanishing_gradient,
    &sonde__weight_update_ratio,
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
    (void)sonde__nearest_names(name, table, rule_name_at, SONDE_COUNT_OF(table), near,
                               sizeof near);
    for (size_t i = 0; i < SONDE_COUNT_OF(table) && near[0] == '\0'; i++) {
        if (strlen(name) > 2 && strcasestr(table[i]->name, name) != NULL) {
            (void)snprintf(near, sizeof near, "%s", table[i]->name);
        }
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL,
                       near[0] != '\0' ? near : "one of 'sonde rules list'",
                       "unknown rule '%s'", name);
}

sonde__span sonde__parameter_of(const char *name)
{
    static const char *const starts[] = {"gradient/", "gradients/", "grad/", "Gradient_"};
    static const char *const ends[] = {
        ".grad",           "_grad", ".exp_avg_sq", ".exp_avg", ".momentum_buffer",
        ".max_exp_avg_sq", ".step"};
    const size_t length = strlen(name);

    for (const char *at = strstr(name, "___"); at != NULL;) {
        const char *next = strstr(at + 3, "___");

        if (next == NULL) {
            return (sonde__span){at + 3, strlen(at + 3)};
        }
        at = next;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(starts); i++) {
        const size_t n = strlen(starts[i]);

        if (strncmp(name, starts[i], n) == 0) {
            return (sonde__span){name + n, length - n};
        }
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(ends); i++) {
        const size_t n = strlen(ends[i]);

        if (length > n && strcmp(name + length - n, ends[i]) == 0) {
            return (sonde__span){name, length - n};
        }
    }
    return (sonde__span){NULL, 0};
}

void sonde__link(sonde_rule_run *run, int from, int to,
                 bool (*fits)(const sonde_tensor_info *info), size_t offset)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const char *name = sonde_rule_info(run, tensors[i].id)->name;
        size_t of = SIZE_MAX;

        for (size_t j = 0; j < count && tensors[i].need == from && of == SIZE_MAX; j++) {
            const sonde_tensor_info *info = sonde_rule_info(run, tensors[j].id);
            const sonde__span span = sonde__parameter_of(info->name);

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

bool sonde__is_input_of(const char *name, const char *activation)
{
    const char *at = strcasestr(name, activation);

    return at != NULL && strcasestr(at, "_input") != NULL;
}

bool sonde__is_gradient(const sonde_tensor_info *info)
{
    return info->role == SONDE_ROLE_GRADIENT;
}

bool sonde__is_bias(const sonde_tensor_info *info)
{
    const char *dot = strrchr(info->name, '.');

    return info->role == SONDE_ROLE_BIAS ||
           strncmp(dot != NULL ? dot + 1 : info->name, "bias", 4) == 0;
}

int sonde__wants_chosen(sonde_rule_run *run, uint32_t id, bool otherwise)
{
    bool given = false;
    const bool selected = sonde_rule_selected(run, id, &given);

    return (given ? selected : otherwise) ? 0 : SONDE_RULE_IGNORE;
}

sonde_err sonde__need_choice(const char *rule, const char *collection_names,
                             const char *tensor_regex, sonde_diag *diag)
{
    if (collection_names == NULL && tensor_regex == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, rule, "collection_names or tensor_regex",
                           "it has to be told which tensors");
    }
    return SONDE_OK;
}

void sonde__reader_init(sonde__reader *reader, const sonde_view *view)
{
    reader->dtype = view->dtype;
    sonde__cursor_init(&reader->cursor, view);
}

size_t sonde__reader_take(sonde__reader *reader, double room[SONDE__CHUNK])
{
    uint64_t elements[SONDE__CHUNK];
    const void *at = NULL;
    const size_t n = sonde__cursor_take(&reader->cursor, SONDE__CHUNK, elements, &at);

    if (n > 0) {
        sonde__load_f64(reader->dtype, at, n, room);
    }
    return n;
}

size_t sonde__sample(const sonde_view *view, size_t most, double *out)
{
    const size_t all = (size_t)sonde_view_count(view),
                 size = sonde_dtype_size(view->dtype);
    const size_t count = SONDE_MIN(all, most);
    const size_t stride = count > 0 ? all / count : 1;
    sonde__reader reader;
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
    sonde__reader_init(&reader, view);
    for (size_t n = 1; at < count && n > 0; at += n) {
        n = SONDE_MIN(sonde__reader_take(&reader, chunk), count - at);
        memcpy(out + at, chunk, n * sizeof *out);
    }
    return at;
}
