/*
 * onnx_fuse.c - what exporters take apart is put together again.
 *
 * torch writes a GroupNorm as
 *
 *     Reshape (N, groups, -1) -> InstanceNormalization of ones and zeros -> Reshape back
 *         -> Mul by the weight (C, 1, 1) -> Add of the bias (C, 1, 1)
 *
 * Its last node is replaced by a GroupNormalization; the others then lead to nothing.
 */
#include "nn/onnx/onnx_fuse.h"
#include "base/memory.h"

#include <string.h>

#define SEVERAL UINT32_MAX

/* A node in the place of others. */
typedef struct sonde__onnx_fused {
    struct sonde__onnx_fused *next;
    SondeOnnx__NodeProto proto;
    char *input[3], *output[1];
    SondeOnnx__AttributeProto attributes[2], *attribute[2];
} fused_node;

typedef struct fuser {
    sonde__onnx_import *import;
    uint32_t *readers; /* of a slot: its only reader's index + 1; 0: none; or SEVERAL */
} fuser;

static uint32_t slot_id(const fuser *f, const char *name)
{
    return sonde__names_find(&f->import->names, name);
}

static bool find_readers(fuser *f)
{
    const SondeOnnx__GraphProto *graph = f->import->file->model->graph;

    f->readers = sonde__calloc(f->import->slot_count, sizeof *f->readers);
    if (f->readers == NULL) {
        return sonde__onnx_no_memory(f->import);
    }
    for (size_t i = 0; i < graph->n_node; i++) {
        for (size_t k = 0; k < graph->node[i]->n_input; k++) {
            const uint32_t id = slot_id(f, graph->node[i]->input[k]);

            if (id != SONDE__NO_NAME) {
                f->readers[id] = f->readers[id] == 0 ? (uint32_t)i + 1 : SEVERAL;
            }
        }
    }
    for (size_t i = 0; i < graph->n_output; i++) {
        const uint32_t id = graph->output[i]->name != NULL
                                ? slot_id(f, graph->output[i]->name)
                                : SONDE__NO_NAME;

        if (id != SONDE__NO_NAME) {
            f->readers[id] = SEVERAL;
        }
    }
    return true;
}

/* The only node that reads a node's output, of this op; NULL: there is none. */
static const SondeOnnx__NodeProto *
next_node(const fuser *f, const SondeOnnx__NodeProto *node, const char *op, size_t *index)
{
    const uint32_t id = node != NULL && node->n_output == 1 ? slot_id(f, node->output[0])
                                                            : SONDE__NO_NAME;
    const uint32_t reader = id != SONDE__NO_NAME ? f->readers[id] : 0;
    const SondeOnnx__NodeProto *next =
        reader != 0 && reader != SEVERAL ? f->import->nodes[reader - 1].proto : NULL;

    if (next == NULL || next->op_type == NULL || strcmp(next->op_type, op) != 0) {
        return NULL;
    }
    *index = reader - 1;
    return next;
}

static const SondeOnnx__NodeProto *producer(const fuser *f, const char *name,
                                            const char *op)
{
    const uint32_t id = slot_id(f, name);
    const size_t index = id != SONDE__NO_NAME ? f->import->slots[id].producer : 0;
    const SondeOnnx__NodeProto *node =
        index > 0 ? f->import->nodes[index - 1].proto : NULL;

    return node != NULL && node->op_type != NULL && strcmp(node->op_type, op) == 0 ? node
                                                                                   : NULL;
}

/* The initialiser among a node's two inputs, of as many elements as its first dimension;
 * NULL: there is none. */
static char *channel_operand(const fuser *f, const SondeOnnx__NodeProto *node)
{
    for (size_t k = 0; node->n_input == 2 && k < 2; k++) {
        const uint32_t id = slot_id(f, node->input[k]);
        const SondeOnnx__TensorProto *tensor =
            id != SONDE__NO_NAME ? f->import->slots[id].initial : NULL;
        bool column = tensor != NULL && tensor->n_dims >= 2 &&
                      tensor->n_dims <= SONDE_MAX_DIMS &&
                      tensor->data_type == SONDE__ONNX_FLOAT;

        for (size_t i = 1; column && i < tensor->n_dims; i++) {
            column = tensor->dims[i] == 1;
        }
        if (column) {
            return node->input[k];
        }
    }
    return NULL;
}

/* The elements of an initialiser, or of a Constant node; NULL: neither. */
static const SondeOnnx__TensorProto *find_tensor(const fuser *f, const char *name)
{
    const uint32_t id = slot_id(f, name);
    const SondeOnnx__NodeProto *node = producer(f, name, "Constant");

    if (id != SONDE__NO_NAME && f->import->slots[id].initial != NULL) {
        return f->import->slots[id].initial;
    }
    return node != NULL && node->n_attribute == 1 ? node->attribute[0]->t : NULL;
}

/* Whether a tensor is this number everywhere; *count: its elements. */
static bool is_all(const fuser *f, const char *name, double number, int64_t *count)
{
    const SondeOnnx__TensorProto *proto = find_tensor(f, name);
    sonde__onnx_tensor tensor;
    bool good =
        proto != NULL && proto->data_location == 0 &&
        sonde__onnx_tensor_open(f->import->file, proto, name, &tensor, NULL) == SONDE_OK;

    if (!good) {
        return false;
    }
    *count = (int64_t)tensor.count;
    for (size_t i = 0; good && i < tensor.count; i++) {
        good = sonde__onnx_tensor_number(&tensor, i) == number;
    }
    sonde__onnx_tensor_close(&tensor);
    return good && *count > 0;
}

static const SondeOnnx__AttributeProto *find_attribute(const SondeOnnx__NodeProto *node,
                                                       const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++) {
        if (node->attribute[i]->name != NULL &&
            strcmp(node->attribute[i]->name, name) == 0) {
            return node->attribute[i];
        }
    }
    return NULL;
}

/* Puts a GroupNormalization in the place of node `index`. */
static bool replace(const fuser *f, size_t index, char *const input[3], int64_t groups,
                    const SondeOnnx__AttributeProto *epsilon)
{
    static char op[] = "GroupNormalization", of_groups[] = "num_groups",
                of_epsilon[] = "epsilon";
    const SondeOnnx__NodeProto *last = f->import->nodes[index].proto;
    fused_node *made = sonde__calloc(1, sizeof *made);

    if (made == NULL) {
        return sonde__onnx_no_memory(f->import);
    }
    made->proto = *last;
    made->proto.op_type = op;
    made->proto.n_input = 3;
    made->proto.input = made->input;
    made->proto.n_attribute = 2;
    made->proto.attribute = made->attribute;
    memcpy(made->input, input, sizeof made->input);
    sonde_onnx__attribute_proto__init(&made->attributes[0]);
    sonde_onnx__attribute_proto__init(&made->attributes[1]);
    made->attributes[0].name = of_groups;
    made->attributes[0].has_i = true;
    made->attributes[0].i = groups;
    made->attributes[1].name = of_epsilon;
    made->attributes[1].has_f = true;
    made->attributes[1].f = epsilon != NULL && epsilon->has_f ? epsilon->f : 1e-5F;
    made->attribute[0] = &made->attributes[0];
    made->attribute[1] = &made->attributes[1];
    made->next = f->import->fused;
    f->import->fused = made;
    f->import->nodes[index].proto = &made->proto;
    return true;
}

/* A group norm around an InstanceNormalization; false only after an error. */
static bool fuse_group_norm(const fuser *f, const SondeOnnx__NodeProto *node)
{
    const SondeOnnx__NodeProto *before = NULL, *back = NULL, *mul = NULL, *add = NULL;
    size_t index = 0;
    int64_t groups = 0, zeros = 0;
    char *input[3];

    if (node->n_input != 3) {
        return true;
    }
    before = producer(f, node->input[0], "Reshape");
    back = next_node(f, node, "Reshape", &index);
    mul = next_node(f, back, "Mul", &index);
    add = next_node(f, mul, "Add", &index);
    if (before == NULL || add == NULL || before->n_input < 1 ||
        !is_all(f, node->input[1], 1.0, &groups) ||
        !is_all(f, node->input[2], 0.0, &zeros) || groups != zeros) {
        return true;
    }
    input[0] = before->input[0];
    input[1] = channel_operand(f, mul);
    input[2] = channel_operand(f, add);
    if (input[1] == NULL || input[2] == NULL) {
        return true;
    }
    return replace(f, index, input, groups, find_attribute(node, "epsilon"));
}

bool sonde__onnx_fuse(sonde__onnx_import *import)
{
    const size_t count = import->file->model->graph->n_node;
    fuser f = {.import = import};
    bool good = find_readers(&f);

    for (size_t i = 0; good && i < count; i++) {
        const SondeOnnx__NodeProto *node = import->nodes[i].proto;

        if (node->op_type != NULL &&
            strcmp(node->op_type, "InstanceNormalization") == 0) {
            good = fuse_group_norm(&f, node);
        }
    }
    sonde__free(f.readers);
    return good;
}

void sonde__onnx_fuse_free(sonde__onnx_import *import)
{
    while (import->fused != NULL) {
        fused_node *next = import->fused->next;

        sonde__free(import->fused);
        import->fused = next;
    }
}
