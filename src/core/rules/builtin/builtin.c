/*
 * builtin.c - what built-in rules share: which tensors a rule wants, and which belong
 * together.
 */
#include "rules/builtin/builtin.h"

#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/table.h"
#include "observe/tensor_roles.h"
#include "rules/context.h"

#include <stdlib.h>
#include <string.h>

/* --- tensors that belong together --------------------------------------------------- */

sonde__builtin_span sonde__builtin_parameter_of(const char *name)
{
    static const char *const starts[] = {"gradient/", "gradients/", "grad/", "Gradient_"};
    static const char *const ends[] = {
        ".grad",           "_grad", ".exp_avg_sq", ".exp_avg", ".momentum_buffer",
        ".max_exp_avg_sq", ".step"};
    const size_t length = strlen(name);

    for (const char *bar = strstr(name, "___"); bar != NULL;) {
        const char *next = strstr(bar + 3, "___");

        if (next == NULL) {
            return (sonde__builtin_span){bar + 3, strlen(bar + 3)};
        }
        bar = next;
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

/* A tensor that belongs to a parameter. */
typedef struct part {
    sonde__builtin_span parameter;
    size_t index;
} part;

static int compare_names(const sonde__builtin_span *a, const sonde__builtin_span *b)
{
    return a->length != b->length ? (a->length < b->length ? -1 : 1)
                                  : memcmp(a->text, b->text, a->length);
}

/* By parameter, then in the order of the tensors. */
static int compare_parts(const void *a, const void *b)
{
    const part *first = a, *second = b;
    const int order = compare_names(&first->parameter, &second->parameter);

    return order != 0                     ? order
           : first->index < second->index ? -1
                                          : first->index > second->index;
}

/* The first of the sorted parts that belongs to the parameter of that name, or SIZE_MAX. */
static size_t find_part(const part *parts, size_t count, const char *parameter)
{
    const sonde__builtin_span name = {parameter, strlen(parameter)};
    size_t low = 0, high = count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (compare_names(&parts[middle].parameter, &name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && compare_names(&parts[low].parameter, &name) == 0
               ? parts[low].index
               : SIZE_MAX;
}

static void link_parts(sonde_rule_run *run, const sonde__builtin_link *link, part *sorted)
{
    size_t used = 0;

    SONDE__EACH_OF (run, t, link->part) {
        const sonde_tensor_info *info = sonde_rule_info(run, t->id);

        if (sorted != NULL && (link->fits == NULL || link->fits(info))) {
            sorted[used] = (part){sonde__builtin_parameter_of(info->name),
                                  sonde__builtin_index(run, t)};
            used += sorted[used].parameter.text != NULL;
        }
    }
    if (used > 0) {
        qsort(sorted, used, sizeof *sorted, compare_parts);
    }
    SONDE__EACH_OF (run, t, link->whole) {
        const size_t found = find_part(sorted, used, sonde_rule_info(run, t->id)->name);

        memcpy((char *)t->memory + link->offset, &found, sizeof found);
    }
}

bool sonde__builtin_relink(sonde_rule_run *run, size_t *linked,
                           const sonde__builtin_link *links, size_t count)
{
    const size_t tensors = sonde__builtin_count(run);
    part *sorted = NULL;

    if (*linked == tensors) {
        return false;
    }
    *linked = tensors;
    sorted = sonde__calloc(tensors, sizeof *sorted);
    if (sorted == NULL) {
        sonde_rule_fail(run, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        link_parts(run, &links[i], sorted);
    }
    sonde__free(sorted);
    return true;
}

static bool is_input_of(const char *name, const char *activation)
{
    const char *found = sonde__strcasestr(name, activation);

    return found != NULL && sonde__strcasestr(found, "_input") != NULL;
}

const char *sonde__builtin_goes_into(const sonde_rule_run *run,
                                     const sonde_tensor_info *info)
{
    static const char *const names[] = {"relu", "gelu",    "selu", "elu",
                                        "tanh", "sigmoid", "silu", "softplus"};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        if (is_input_of(info->name, names[i])) {
            return names[i];
        }
    }
    if (info->module[0] == '\0' ||
        (info->role != SONDE_ROLE_INPUT && (info->role != SONDE_ROLE_ACTIVATION ||
                                            strstr(info->name, "_input_") == NULL))) {
        return NULL;
    }
    for (uint32_t id = sonde__rules_first_output(run, info->module, strlen(info->module));
         id != SONDE__TABLE_NONE; id = sonde__rules_next_output(run, id)) {
        const sonde_tensor_info *output = sonde_rule_info(run, id);

        for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
            if (sonde__strcasecmp(output->op, names[i]) == 0) {
                return names[i];
            }
        }
    }
    return NULL;
}

bool sonde__builtin_has_word(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (sonde__strcasestr(text, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Whether a word is in a weight's name, or in the op of an output of its module. */
static bool is_of(const sonde_rule_run *run, const sonde_tensor_info *info,
                  const char *const *words, size_t count)
{
    const char *end = strrchr(info->name, '.');
    const size_t length = end != NULL ? (size_t)(end - info->name) : 0;

    if (sonde__builtin_has_word(info->name, words, count)) {
        return true;
    }
    for (uint32_t id = sonde__rules_first_output(run, info->name, length);
         id != SONDE__TABLE_NONE; id = sonde__rules_next_output(run, id)) {
        if (sonde__builtin_has_word(sonde_rule_info(run, id)->op, words, count)) {
            return true;
        }
    }
    return false;
}

bool sonde__builtin_is_table(const sonde_rule_run *run, const sonde_tensor_info *info)
{
    static const char *const words[] = {"embed", "positional", "wpe", "wte"};

    return is_of(run, info, words, SONDE_COUNT_OF(words));
}

bool sonde__builtin_is_reverse_recurrence(const char *name)
{
    static const char end[] = "_reverse";
    const char *recurrent = strstr(name, "weight_hh_l"),
               *reverse = recurrent != NULL ? strstr(recurrent, end) : NULL;

    return reverse != NULL && (reverse[sizeof end - 1] == '\0' ||
                               reverse[sizeof end - 1] == '.'); /* w.grad */
}

bool sonde__builtin_is_scale(const sonde_rule_run *run, const sonde_tensor_info *info)
{
    static const char *const words[] = {"norm", "gamma", "scale", "gain"};

    return is_of(run, info, words, SONDE_COUNT_OF(words));
}

bool sonde__builtin_is_target(const sonde_tensor_info *info)
{
    static const char *const words[] = {"target", "label"};

    return sonde__builtin_has_word(info->name, words, SONDE_COUNT_OF(words));
}

bool sonde__builtin_same_shape(const sonde_tensor_info *a, const sonde_tensor_info *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

bool sonde__builtin_is_small(const sonde_tensor_info *info, int64_t most)
{
    int64_t count = 1;

    for (int i = 0; i < info->rank && count <= most; i++) {
        count *= info->shape[i];
    }
    return count <= most;
}

void sonde__builtin_free_each(sonde_rule_run *run, size_t offset)
{
    SONDE__EACH (run, t) {
        void *block = NULL;

        memcpy(&block, (char *)t->memory + offset, sizeof(void *));
        sonde__free(block);
    }
}

/* --- tensors that a rule wants ------------------------------------------------------ */

static int first_need(bool wanted)
{
    return wanted ? 0 : SONDE_RULE_IGNORE;
}

int sonde__builtin_wants_role(sonde_rule_run *run, const sonde_tensor_info *info,
                              uint32_t id)
{
    const sonde_rule *rule = sonde_rule_row(run);

    for (size_t i = 0; i < rule->need_count && sonde__builtin_is_own(info, id); i++) {
        if (rule->needs[i].roles == SONDE__ANY ||
            (rule->needs[i].roles >> info->role & 1U) != 0) {
            return (int)i;
        }
    }
    return SONDE_RULE_IGNORE;
}

int sonde__builtin_wants_matched(sonde_rule_run *run, const sonde_tensor_info *info,
                                 uint32_t id)
{
    (void)info;
    return first_need(sonde_rule_matches(run, 0, id));
}

int sonde__builtin_wants_chosen(sonde_rule_run *run, uint32_t id, bool otherwise)
{
    bool given = false;
    const bool selected = sonde_rule_selected(run, id, &given);

    return first_need(given ? selected : otherwise);
}

int sonde__builtin_wants_any(sonde_rule_run *run, const sonde_tensor_info *info,
                             uint32_t id)
{
    return sonde__builtin_wants_chosen(run, id, sonde__builtin_is_own(info, id));
}

int sonde__builtin_wants_weight(sonde_rule_run *run, const sonde_tensor_info *info,
                                uint32_t id)
{
    return sonde__builtin_wants_chosen(
        run, id, info->role == SONDE_ROLE_WEIGHT && sonde__builtin_is_own(info, id));
}

/* --- losses ------------------------------------------------------------------------- */

bool sonde__builtin_is_whole_loss(const sonde_rule_run *run, uint32_t id)
{
    return sonde__observe_is_objective(sonde__rule_catalogue(run), id) &&
           !sonde__rule_is_declared_free(run, id);
}

const sonde_vitals *sonde__builtin_loss_of(sonde_rule_run *run, int need, bool finite)
{
    const sonde_vitals *loss = NULL;

    SONDE__EACH_SEEN (run, t, need) {
        if ((finite ? sonde__builtin_finite(t->vitals) : t->vitals->count) > 0 &&
            (loss == NULL || sonde__builtin_is_whole_loss(run, t->id))) {
            loss = t->vitals;
        }
    }
    return loss;
}

/* --- rules of smdebug --------------------------------------------------------------- */

/* True if the user has set a parameter of this comma-separated list. */
static bool any_given(const sonde_rule_run *run, const char *names)
{
    while (*names != '\0') {
        const size_t length = strcspn(names, ",");

        for (size_t i = 0; i < sonde_rule_row(run)->param_count; i++) {
            const char *name = sonde_rule_row(run)->params[i].name;

            if (sonde__rule_is_given(run, i) && strlen(name) == length &&
                strncmp(name, names, length) == 0) {
                return true;
            }
        }
        names += length + (names[length] == ',');
    }
    return false;
}

bool sonde__builtin_as_smdebug(sonde_rule_run *run, const char *theirs, const char *ours)
{
    for (size_t i = 0; i < sonde_rule_row(run)->param_count; i++) {
        const sonde_rule_param *param = &sonde_rule_row(run)->params[i];

        if (sonde__rule_is_given(run, i) && strcmp(param->name, "smdebug") == 0) {
            return *((const bool *)sonde_rule_state(run) + param->offset);
        }
    }
    return any_given(run, theirs) && !any_given(run, ours);
}
