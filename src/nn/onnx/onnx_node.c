/*
 * onnx_node.c - what a node of an ONNX graph says: inputs and attributes; its constants.
 */
#include "nn/onnx/onnx_node.h"
#include "base/memory.h"
#include "nn/onnx/onnx_names.h"

#include <math.h>
#include <string.h>

/* --- inputs and attributes ----------------------------------------------------------------- */

bool sonde__onnx_has_input(const sonde__onnx_node *node, size_t i)
{
    return i < node->proto->n_input && node->proto->input[i][0] != '\0';
}

sonde__onnx_slot *sonde__onnx_input(const sonde__onnx_node *node, size_t i)
{
    const uint32_t id =
        sonde__onnx_has_input(node, i)
            ? sonde__names_find(&node->import->names, node->proto->input[i])
            : SONDE__NO_NAME;

    return id != SONDE__NO_NAME ? &node->import->slots[id] : NULL;
}

const SondeOnnx__AttributeProto *sonde__onnx_attribute(const sonde__onnx_node *node,
                                                       const char *name)
{
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const SondeOnnx__AttributeProto *attribute = node->proto->attribute[i];

        if (attribute->name != NULL && strcmp(attribute->name, name) == 0) {
            return attribute;
        }
    }
    return NULL;
}

int64_t sonde__onnx_int(const sonde__onnx_node *node, const char *name, int64_t fallback)
{
    const SondeOnnx__AttributeProto *attribute = sonde__onnx_attribute(node, name);

    return attribute != NULL && attribute->has_i ? attribute->i : fallback;
}

double sonde__onnx_float(const sonde__onnx_node *node, const char *name, double fallback)
{
    const SondeOnnx__AttributeProto *attribute = sonde__onnx_attribute(node, name);

    return attribute != NULL && attribute->has_f ? (double)attribute->f : fallback;
}

bool sonde__onnx_says(const sonde__onnx_node *node, const char *name,
                      const char *fallback, const char *text)
{
    const SondeOnnx__AttributeProto *attribute = sonde__onnx_attribute(node, name);
    const size_t length = strlen(text);

    if (attribute == NULL || !attribute->has_s) {
        return strcmp(fallback, text) == 0;
    }
    return attribute->s.len == length && memcmp(attribute->s.data, text, length) == 0;
}

bool sonde__onnx_ints(const sonde__onnx_node *node, const char *name, int64_t *out,
                      size_t most, size_t *count)
{
    const SondeOnnx__AttributeProto *attribute = sonde__onnx_attribute(node, name);

    *count = attribute != NULL ? attribute->n_ints : 0;
    if (*count > most) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL, "%s has %zu numbers", name,
                                  *count);
    }
    for (size_t i = 0; i < *count; i++) {
        out[i] = attribute->ints[i];
    }
    return true;
}

/* --- constants ------------------------------------------------------------------------------ */

bool sonde__onnx_is_whole_type(int type)
{
    return type != SONDE__ONNX_FLOAT && type != SONDE__ONNX_DOUBLE &&
           type != SONDE__ONNX_FLOAT16 && type != SONDE__ONNX_BFLOAT16;
}

int64_t sonde__onnx_integer(double number)
{
    return isnan(number)                      ? 0
           : number >= 9.2233720368547748e18  ? INT64_MAX
           : number <= -9.2233720368547748e18 ? INT64_MIN
                                              : (int64_t)number;
}

sonde__onnx_constant *sonde__onnx_constant_make(const sonde__onnx_node *node, int type,
                                                int rank, const int64_t *dim)
{
    sonde__onnx_constant *made = NULL;
    size_t count = 1;

    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || !sonde__mul(count, (size_t)dim[i], &count) ||
            count > SONDE__ONNX_MOST_FOLDED) {
            (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "at most 65,536 elements",
                                     "a constant of more elements");
            return NULL;
        }
    }
    made = sonde__calloc(1, sizeof *made + count * sizeof made->items[0]);
    if (made == NULL) {
        (void)sonde__onnx_no_memory(node->import);
        return NULL;
    }
    made->type = type;
    made->rank = rank;
    made->count = count;
    for (int i = 0; i < rank; i++) {
        made->dim[i].base = (double)dim[i];
    }
    return made;
}

/* Whether an initialiser is a number that the network is built with, not a parameter. */
static bool is_constant(const sonde__onnx_slot *slot)
{
    const SondeOnnx__TensorProto *tensor = slot->initial;
    bool one = true;

    if (sonde__onnx_is_whole_type(tensor->data_type)) {
        return true;
    }
    for (size_t i = 0; i < tensor->n_dims; i++) {
        one = one && tensor->dims[i] == 1;
    }
    return sonde__onnx_name_generated(slot->name) ||
           (one && strchr(slot->name, '.') == NULL) || strcmp(slot->name, "") == 0;
}

/* The constant of an initialiser; NULL: too large, or after an error. */
static sonde__onnx_constant *read_constant(const sonde__onnx_node *node,
                                           const sonde__onnx_slot *slot)
{
    sonde__onnx_import *import = node->import;
    sonde__onnx_tensor tensor;
    sonde__onnx_constant *made = NULL;
    sonde_diag diag = {0};
    const sonde_err err =
        sonde__onnx_tensor_open(import->file, slot->initial, slot->name, &tensor, &diag);

    if (err != SONDE_OK) {
        (void)sonde__onnx_refuse(node, err, diag.expected, "'%s': %s", slot->name,
                                 diag.found);
        return NULL;
    }
    if (tensor.count <= SONDE__ONNX_MOST_FOLDED) {
        made = sonde__onnx_constant_make(node, tensor.type, tensor.rank, tensor.dim);
    }
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        made->items[i].base = sonde__onnx_tensor_number(&tensor, i);
    }
    sonde__onnx_tensor_close(&tensor);
    return made;
}

const sonde__onnx_constant *sonde__onnx_known(const sonde__onnx_node *node, size_t i)
{
    sonde__onnx_slot *slot = sonde__onnx_input(node, i);

    if (slot == NULL) {
        return NULL;
    }
    if (slot->constant == NULL && slot->initial != NULL && slot->value.model == 0 &&
        is_constant(slot)) {
        slot->constant = read_constant(node, slot);
    }
    return slot->constant;
}

bool sonde__onnx_whole(const sonde__onnx_node *node, size_t i, const char *what,
                       int64_t *out, size_t most, size_t *count)
{
    const sonde__onnx_constant *known = sonde__onnx_known(node, i);

    if (known == NULL || (known->uniform && known->rank > 0)) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                  "a number that is known before the network runs",
                                  "%s is computed from values", what);
    }
    if (known->count > most) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL, "%s has %zu numbers", what,
                                  known->count);
    }
    for (size_t k = 0; k < known->count; k++) {
        if (known->items[k].slope != 0.0 && node->import->shadow != NULL) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "another number",
                                      "%s depends on the batch", what);
        }
        out[k] = sonde__onnx_integer(known->items[k].base +
                                     known->items[k].slope * node->import->batch);
    }
    *count = known->count;
    return true;
}

bool sonde__onnx_give_constant(sonde__onnx_node *node, size_t output,
                               sonde__onnx_constant *constant)
{
    sonde__onnx_import *import = node->import;
    sonde__onnx_slot *slot = NULL;

    if (constant == NULL) {
        return false;
    }
    if (output >= node->proto->n_output || node->proto->output[output][0] == '\0') {
        sonde__free(constant);
        return true;
    }
    slot = &import->slots[sonde__names_find(&import->names, node->proto->output[output])];
    slot->constant = constant;
    slot->ready = true;
    return true;
}
