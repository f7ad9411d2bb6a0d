/*
 * builtin.c - what built-in rules share: which tensors a rule wants, and which belong
 * together.
 */
#include "rules/builtin/builtin.h"

#include "base/macros.h"
#include "base/memory.h"
#include "base/point.h"
#include "base/table.h"
#include "observe/tensor_roles.h"
#include "rules/context.h"
#include "rules/outputs.h"
#include "rules/suspicion.h"

#include <stdio.h>
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

void sonde__builtin_link(sonde_rule_run *run, int parameters, int parts,
                         bool (*fits)(const sonde_tensor_info *info), size_t offset)
{
    size_t count = 0, used = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    part *sorted = sonde__calloc(count, sizeof *sorted);

    if (sorted == NULL) {
        sonde_rule_fail(run, "out of memory");
    }
    for (size_t i = 0; sorted != NULL && i < count; i++) {
        const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);

        if (tensors[i].need == parts && (fits == NULL || fits(info))) {
            sorted[used] = (part){sonde__builtin_parameter_of(info->name), i};
            used += sorted[used].parameter.text != NULL;
        }
    }
    if (used > 0) {
        qsort(sorted, used, sizeof *sorted, compare_parts);
    }
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].need == parameters) {
            const char *name = sonde_rule_info(run, tensors[i].id)->name;
            const size_t found = find_part(sorted, used, name);

            memcpy((char *)tensors[i].memory + offset, &found, sizeof found);
        }
    }
    sonde__free(sorted);
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

bool sonde__builtin_is_given(const sonde_tensor_info *info, const sonde_vitals *v,
                             bool started, uint64_t *infinite)
{
    const uint64_t now = v->pos_inf + v->neg_inf;

    if (!started && info->role == SONDE_ROLE_BUFFER) {
        *infinite = now;
    }
    if (v->nan > 0 || now != *infinite) {
        *infinite = 0; /* for good */
    }
    return *infinite > 0;
}

sonde__builtin_skip sonde__builtin_was_skipped(sonde_rule_run *run)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    bool gradients = false, parameters = false;

    SONDE__EACH (run, i) {
        const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
        const sonde_vitals *v = tensors[i].vitals;

        if (v == NULL || (info->role == SONDE_ROLE_BUFFER && v->nan == 0)) {
            continue;
        }
        if (info->role == SONDE_ROLE_GRADIENT ||
            info->role == SONDE_ROLE_ACTIVATION_GRADIENT) {
            gradients = gradients || v->nan + v->pos_inf + v->neg_inf > 0;
        } else if (v->nan + v->pos_inf > 0 ||
                   (v->neg_inf > 0 && !sonde__builtin_may_be_masked(info))) {
            return SONDE__SKIP_NO;
        } else {
            parameters = parameters || sonde__builtin_is_parameter(info);
        }
    }
    return !gradients ? SONDE__SKIP_NO : parameters ? SONDE__SKIP_YES : SONDE__SKIP_MAYBE;
}

bool sonde__builtin_found_bad(sonde_rule_run *run, size_t i, sonde__builtin_skip skip,
                              double bad)
{
    /* An update with such gradients spoils the parameters, and the next loss. */
    static const sonde__rule_terms perhaps = {
        .event = true, SONDE__TERMS(NOTE, ERROR, ERROR, ERROR, ERROR)};

    return skip == SONDE__SKIP_MAYBE
               ? sonde__rule_suspect(run, i, &perhaps, "nonfinite", bad, 0.0)
               : sonde_rule_found(run, i,
                                  skip == SONDE__SKIP_YES ? SONDE_SEVERITY_NOTE
                                                          : SONDE_SEVERITY_ERROR,
                                  "nonfinite", bad, 0.0);
}

static bool has_word(const char *text, const char *const *words, size_t count)
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

    if (has_word(info->name, words, count)) {
        return true;
    }
    for (uint32_t id = sonde__rules_first_output(run, info->name, length);
         id != SONDE__TABLE_NONE; id = sonde__rules_next_output(run, id)) {
        if (has_word(sonde_rule_info(run, id)->op, words, count)) {
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

bool sonde__builtin_is_scale(const sonde_rule_run *run, const sonde_tensor_info *info)
{
    static const char *const words[] = {"norm", "gamma", "scale", "gain"};

    return is_of(run, info, words, SONDE_COUNT_OF(words));
}

bool sonde__builtin_is_statistic(const sonde_tensor_info *info)
{
    static const char *const words[] = {"running_", "moving_", "num_batches",
                                        "batch_mean", "batch_var"};

    return has_word(info->name, words, SONDE_COUNT_OF(words));
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
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        void *block = NULL;

        memcpy(&block, (char *)tensors[i].memory + offset, sizeof(void *));
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

sonde__builtin_loss sonde__builtin_loss_kind(const sonde_rule_run *run, uint32_t id)
{
    return sonde__observe_is_objective(sonde__rule_catalogue(run), id) &&
                   !sonde__rule_is_declared_free(run, id)
               ? SONDE__LOSS_WHOLE
               : SONDE__LOSS_PART;
}

/* --- numbers ------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void sonde__builtin_sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
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

bool sonde__builtin_was_nonzero(const sonde_rule_run *run, uint32_t id)
{
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    bool was = false;

    int64_t begin = 0;
    sonde_trial *trial = sonde__rule_trial(run, &begin);

    if (trial == NULL || begin <= 0 ||
        sonde_trial_vitals_series(trial, id, SONDE_MODE_GLOBAL, -1, 0, begin, &steps,
                                  &vitals, &count, NULL) != SONDE_OK) {
        return false;
    }
    for (size_t i = 0; i < count && !was; i++) {
        was = sonde_vitals_are_norms(&vitals[i]) ? vitals[i].abs_max > 0.0
                                                 : vitals[i].zero < vitals[i].count;
    }
    sonde_release(steps);
    sonde_release(vitals);
    return was;
}

const char *sonde__builtin_bad_text(const sonde_vitals *v, char text[SONDE__BAD_TEXT])
{
    const struct {
        uint64_t count;
        const char *name;
    } kinds[] = {{v->nan, "NaN"}, {v->pos_inf, "+Inf"}, {v->neg_inf, "-Inf"}};
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < SONDE_COUNT_OF(kinds); i++) {
        const char *verb = kinds[i].count == 1 ? "is" : "are";

        if (kinds[i].count == 0) {
            continue;
        }
        if (used == 0) {
            (void)snprintf(text, SONDE__BAD_TEXT, "%llu of %llu values %s %s",
                           (unsigned long long)kinds[i].count,
                           (unsigned long long)v->count, verb, kinds[i].name);
        } else {
            (void)snprintf(text + used, SONDE__BAD_TEXT - used, ", %llu %s %s",
                           (unsigned long long)kinds[i].count, verb, kinds[i].name);
        }
        used = strlen(text);
    }
    return text;
}

void sonde__builtin_say_replicas(sonde_rule_run *run, int a, int b, const char *what)
{
    enum { WORKER = SONDE__RULES_WORKER };

    if (a / WORKER == b / WORKER) {
        sonde_rule_say(run, NULL, "Replicas %d and %d have %s.", a % WORKER, b % WORKER,
                       what);
    } else if (a % WORKER == 0 && b % WORKER == 0) {
        sonde_rule_say(run, NULL, "Workers %d and %d have %s.", a / WORKER, b / WORKER,
                       what);
    } else {
        sonde_rule_say(run, NULL,
                       "Replica %d of worker %d and replica %d of worker %d "
                       "have %s.",
                       a % WORKER, a / WORKER, b % WORKER, b / WORKER, what);
    }
}
