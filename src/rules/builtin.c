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
    &sonde__overfit,
    &sonde__overtraining,
    &sonde__poor_weight_initialization,
    &sonde__replica_divergence,
    &sonde__saturated_activation,
    &sonde__similar_across_runs,
    &sonde__stalled_training,
    &sonde__symmetric_units,
    &sonde__tensor_variance,
    &sonde__tree_depth,
    &sonde__unchanged_tensor,
    &sonde__unfrozen_parameter,
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

const char *sonde__parameter_of(const char *name)
{
    const char *behind = strstr(name, "___");

    return behind != NULL ? behind + 3 : NULL;
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
