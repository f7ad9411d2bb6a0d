/*
 * job_loss.c - the loss of a job's model, and what it compares the output with.
 *
 *     loss: cross_entropy
 *     loss: {cross_entropy: {label_smoothing: 0.1, ignore_index: 3, weight: [1, 2, 1]}}
 *     loss: {huber_loss: {delta: 0.5, target: label}}
 *
 * nll and cross_entropy compare with classes. Every other loss is a row of src/nn/ops
 * (layer_row.h) and has a target: input, the sample; label, the label as a number;
 * one_hot; or values, the numbers of the data's target.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "nn/graph/layer.h"
#include "nn/job/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The section's loss: its name, and the map of its keys. */
typedef struct loss_entry {
    const char *name;
    const sonde__yaml *body;
    const sonde__op_layer *row; /* NULL: of classes */
} loss_entry;

enum { MAX_LOSSES = 64, MAX_KEYS = SONDE__MAX_FIELDS + 2 };

static const char *const class_losses[] = {"cross_entropy", "nll"};

/* Whether a row compares an output with a target; others compare more values. */
static bool is_loss(const sonde__op_layer *row)
{
    return row->reduces && row->inputs == 2;
}

/* The names of all losses; returns their count. */
static size_t list_losses(const char *names[MAX_LOSSES])
{
    size_t count = SONDE_COUNT_OF(class_losses);

    memcpy(names, class_losses, sizeof class_losses);
    for (size_t i = 0; sonde__op_layers[i] != NULL && count < MAX_LOSSES; i++) {
        if (is_loss(sonde__op_layers[i])) {
            names[count++] = sonde__op_layers[i]->name;
        }
    }
    return count;
}

static sonde_err refuse_loss(const sonde__yaml_reader *reader, const sonde__yaml *section,
                             const char *asked)
{
    const char *names[MAX_LOSSES];
    const size_t count = list_losses(names);
    const char *nearest = sonde_diag_nearest(asked, names, count);
    char all[256] = "";

    for (size_t i = 0; i < count; i++) {
        const size_t used = strlen(all);

        (void)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "",
                       names[i]);
    }
    return sonde__yaml_fail(reader, section, SONDE_EINVAL,
                            nearest != NULL ? nearest : all, "unknown loss '%s'", asked);
}

static const sonde__yaml nothing = {.kind = SONDE__YAML_MAP};

static sonde_err read_entry(const sonde__yaml_reader *reader, const sonde__yaml *section,
                            loss_entry *entry)
{
    const bool scalar = section->kind == SONDE__YAML_SCALAR;

    if (!scalar && (section->kind != SONDE__YAML_MAP || section->count != 1)) {
        return sonde__yaml_fail(reader, section, SONDE_EINVAL, "one loss", "%zu losses",
                                section->count);
    }
    *entry = (loss_entry){.name = scalar ? section->text : section->children[0]->key,
                          .body = scalar ? &nothing : section->children[0]};
    for (size_t i = 0; i < SONDE_COUNT_OF(class_losses); i++) {
        if (strcmp(entry->name, class_losses[i]) == 0) {
            return SONDE_OK;
        }
    }
    entry->row = sonde__op_find_layer(entry->name);
    return entry->row != NULL && is_loss(entry->row)
               ? SONDE_OK
               : refuse_loss(reader, section, entry->name);
}

/* --- the target ----------------------------------------------------------------------- */

sonde_err sonde__job_read_target(const sonde__yaml_reader *reader,
                                 const sonde__yaml *section, sonde_nn_job_target *target)
{
    static const char *const words[] = {[SONDE_NN_TARGET_INPUT] = "input",
                                        [SONDE_NN_TARGET_NUMBER] = "label",
                                        [SONDE_NN_TARGET_ONE_HOT] = "one_hot",
                                        [SONDE_NN_TARGET_TOKENS] = "",
                                        [SONDE_NN_TARGET_VALUES] = "values"};
    const char *word = words[SONDE_NN_TARGET_INPUT];
    loss_entry entry = {.name = "", .body = &nothing};
    SONDE__TRY(read_entry(reader, section, &entry));
    *target = SONDE_NN_TARGET_CLASS;
    if (entry.row == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__yaml_text(reader, entry.body, "target", &word));
    for (int i = SONDE_NN_TARGET_INPUT; i <= SONDE_NN_TARGET_VALUES; i++) {
        if (strcmp(word, words[i]) == 0 && word[0] != '\0') {
            *target = (sonde_nn_job_target)i;
            return SONDE_OK;
        }
    }
    return sonde__yaml_fail(reader, sonde__yaml_get(entry.body, "target"), SONDE_EINVAL,
                            "input, label, one_hot or values", "target '%s'", word);
}

/* The sample in the shape of the output; labels as numbers or rows. */
static sonde_nn_value make_target(sonde_nn_model *model,
                                  const sonde__job_compared *compared)
{
    int64_t shape[SONDE_MAX_DIMS] = {0};
    int rank = 0;
    const int64_t *dims = sonde_nn_value_shape(model, compared->output, &rank);
    sonde__op_attrs classes = {.labels.classes = rank == 2 ? dims[1] : 0};

    if (dims == NULL) {
        return 0;
    }
    if (compared->target == SONDE_NN_TARGET_VALUES) {
        return compared->labels;
    }
    if (compared->target != SONDE_NN_TARGET_INPUT) {
        return sonde__graph_function(model,
                                     compared->target == SONDE_NN_TARGET_NUMBER
                                         ? &sonde__op_number
                                         : &sonde__op_one_hot,
                                     &classes, compared->labels);
    }
    for (int i = 1; i < rank; i++) { /* the first dimension is copied */
        shape[i] = dims[i];
    }
    return sonde_nn_reshape(model, NULL, compared->sample, rank, shape);
}

/* --- losses of classes ---------------------------------------------------------------- */

static bool read_number(const sonde__yaml *node, float *number)
{
    char *end = NULL;

    if (node->kind != SONDE__YAML_SCALAR || node->text[0] == '\0') {
        return false;
    }
    *number = sonde__strtof(node->text, &end);
    return *end == '\0' && isfinite(*number) && *number >= 0.0F;
}

static bool is_balanced(const sonde__yaml *weight)
{
    return weight != NULL && weight->kind == SONDE__YAML_SCALAR &&
           strcmp(weight->text, "balanced") == 0;
}

bool sonde__job_loss_is_balanced(const sonde__yaml *section)
{
    return section != NULL && section->kind == SONDE__YAML_MAP && section->count == 1 &&
           is_balanced(sonde__yaml_get(section->children[0], "weight"));
}

/* Weights of the job, or equal ones before it has any; classes: of the output. */
static sonde_err balance(const sonde__yaml_reader *reader,
                         const sonde__job_compared *compared, size_t classes,
                         float **weights, int64_t *count)
{
    *weights = sonde__calloc(classes, sizeof **weights);
    if (*weights == NULL) {
        return sonde__fail_nomem(reader->diag, "weights of classes");
    }
    for (size_t i = 0; i < classes; i++) {
        (*weights)[i] = compared->balanced == NULL     ? 1.0F
                        : i < compared->balanced_count ? compared->balanced[i]
                                                       : 0.0F;
    }
    *count = (int64_t)classes;
    return SONDE_OK;
}

/* A new block of the weights of classes; NULL without the key. */
static sonde_err read_weights(const sonde__yaml_reader *reader, const sonde__yaml *body,
                              const sonde__job_compared *compared, size_t classes,
                              float **weights, int64_t *count)
{
    const sonde__yaml *list = sonde__yaml_get(body, "weight");

    if (list == NULL) {
        return SONDE_OK;
    }
    if (is_balanced(list)) {
        return balance(reader, compared, classes, weights, count);
    }
    if (list->kind != SONDE__YAML_LIST || list->count == 0) {
        return sonde__yaml_fail(reader, list, SONDE_EINVAL,
                                "weight: [1, 2 ...], or balanced", "weight is no list");
    }
    *weights = sonde__calloc(list->count, sizeof **weights);
    if (*weights == NULL) {
        return sonde__fail_nomem(reader->diag, "weights of classes");
    }
    *count = (int64_t)list->count;
    for (size_t i = 0; i < list->count; i++) {
        const sonde__yaml *item = list->children[i];

        if (!read_number(item, &(*weights)[i])) {
            return sonde__yaml_fail(reader, item, SONDE_EINVAL, "a finite number >= 0",
                                    "weight '%s'",
                                    item->kind == SONDE__YAML_SCALAR ? item->text : "");
        }
    }
    return SONDE_OK;
}

static sonde_err read_reduction(const sonde__yaml_reader *reader, const sonde__yaml *body,
                                bool *sum)
{
    const char *word = "mean";
    SONDE__TRY(sonde__yaml_text(reader, body, "reduction", &word));
    *sum = strcmp(word, "sum") == 0;
    return *sum || strcmp(word, "mean") == 0
               ? SONDE_OK
               : sonde__yaml_fail(reader, sonde__yaml_get(body, "reduction"),
                                  SONDE_EINVAL, "mean or sum", "reduction '%s'", word);
}

static sonde_err read_class_keys(const sonde__yaml_reader *reader,
                                 const sonde__yaml *body,
                                 sonde_nn_cross_entropy_options *options)
{
    int64_t axis = options->axis;
    sonde_err err = sonde__yaml_int(reader, body, "ignore_index", INT32_MIN, INT32_MAX,
                                    &options->ignore_index);

    if (err != SONDE_OK) {
        return err;
    }
    options->ignores = sonde__yaml_get(body, "ignore_index") != NULL;
    err =
        sonde__yaml_int(reader, body, "dim", -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1, &axis);
    options->axis = (int)axis;
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(
        sonde__yaml_float(reader, body, "label_smoothing", &options->label_smoothing));
    SONDE__TRY(read_reduction(reader, body, &options->sum));
    return SONDE_OK;
}

/* Classes of the output; 0: the axis is none of its dimensions. */
static size_t count_classes(const sonde_nn_model *model, sonde_nn_value output, int axis)
{
    int rank = 0;
    const int64_t *shape = sonde_nn_value_shape(model, output, &rank);

    axis = axis < 0 ? axis + rank : axis;
    return shape != NULL && axis >= 0 && axis < rank ? (size_t)shape[axis] : 0;
}

/* The classes cannot be the batch, and the axis must be one of the output. */
static sonde_err check_axis(const sonde__yaml_reader *reader, const loss_entry *entry,
                            const sonde_nn_model *model,
                            const sonde__job_compared *compared,
                            const sonde_nn_cross_entropy_options *options)
{
    int rank = 0;
    const int64_t *shape = sonde_nn_value_shape(model, compared->output, &rank);
    const int axis = options->axis < 0 ? options->axis + rank : options->axis;

    if (shape == NULL || (axis >= 1 && axis < rank)) {
        return SONDE_OK;
    }
    return sonde__yaml_fail(reader, sonde__yaml_get(entry->body, "dim"), SONDE_EINVAL,
                            "a dimension of the output after that of the batch",
                            "dim %d of an output of %d dimensions", options->axis, rank);
}

static sonde_err build_class_loss(const sonde__yaml_reader *reader,
                                  const loss_entry *entry, const char *name,
                                  sonde_nn_model *model,
                                  const sonde__job_compared *compared, int *class_axis)
{
    static const char *const keys[] = {"name",      "weight", "ignore_index",
                                       "reduction", "dim",    "label_smoothing"};
    const bool nll = strcmp(entry->name, "nll") == 0;
    const sonde__yaml *body = entry->body;
    const bool plain =
        compared->target == SONDE_NN_TARGET_CLASS &&
        (body->count == 0 || (body->count == 1 && sonde__yaml_get(body, "name") != NULL));
    sonde_nn_cross_entropy_options options = {
        .size = sizeof options, .of_log_probabilities = nll, .axis = 1};
    float *weights = NULL;
    sonde_err err =
        sonde__yaml_check_keys(reader, body, keys, SONDE_COUNT_OF(keys) - (nll ? 1 : 0));

    if (err != SONDE_OK) {
        return err;
    }
    if (plain) {
        sonde_nn_loss(model, nll ? sonde_nn_nll_loss(model, name, compared->output,
                                                     compared->labels)
                                 : sonde_nn_cross_entropy(model, name, compared->output,
                                                          compared->labels, NULL));
        return SONDE_OK;
    }
    SONDE__TRY_GO(read_class_keys(reader, body, &options));
    SONDE__TRY_GO(read_weights(reader, body, compared,
                               count_classes(model, compared->output, options.axis),
                               &weights, &options.weights));
    SONDE__TRY_GO(check_axis(reader, entry, model, compared, &options));
    *class_axis = options.axis;
    options.weight = weights;
    sonde_nn_loss(model, sonde_nn_cross_entropy(model, name, compared->output,
                                                compared->labels, &options));
error:
    sonde__free(weights);
    return err;
}

/* --- the others ----------------------------------------------------------------------- */

static sonde_err build_row_loss(const sonde__yaml_reader *reader, const loss_entry *entry,
                                const char *name, sonde_nn_model *model,
                                const sonde__job_compared *compared)
{
    const char *keys[MAX_KEYS] = {"name", "target"};
    const int fields = sonde__op_field_count(entry->row);
    sonde_nn_setting settings[SONDE__MAX_FIELDS];
    sonde_nn_value in[2] = {compared->output, 0};
    size_t count = 0;

    for (int i = 0; i < fields; i++) {
        keys[2 + i] = entry->row->fields[i].key;
    }
    SONDE__TRY(sonde__yaml_check_keys(reader, entry->body, keys, (size_t)fields + 2));
    SONDE__TRY(
        sonde__job_read_settings(reader, entry->body, entry->row, settings, &count));
    in[1] = make_target(model, compared);
    sonde_nn_loss(model,
                  sonde_nn_layer(model, entry->row->name, name, in, 2, settings, count));
    return SONDE_OK;
}

sonde_err sonde__job_build_loss(const sonde__yaml_reader *reader,
                                const sonde__yaml *section, sonde_nn_model *model,
                                const sonde__job_compared *compared, int *class_axis)
{
    const char *name = "loss";
    loss_entry entry = {.name = "", .body = &nothing};
    SONDE__TRY(read_entry(reader, section, &entry));
    SONDE__TRY(sonde__yaml_text(reader, entry.body, "name", &name));
    return entry.row != NULL
               ? build_row_loss(reader, &entry, name, model, compared)
               : build_class_loss(reader, &entry, name, model, compared, class_axis);
}
