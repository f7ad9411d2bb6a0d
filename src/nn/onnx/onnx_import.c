/*
 * onnx_import.c - a model from the messages of an ONNX file.
 *
 * Names come first: every value of the graph is a slot. Then one pass from the outputs back
 * finds the nodes that count, all of whose ops must be known; and one pass forward
 * translates them, in the order of the file, which ONNX says is one of execution.
 */
#include "nn/onnx/onnx_state.h"
#include "base/fail.h"
#include "base/given.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "nn/onnx/onnx_fuse.h"
#include "nn/onnx/onnx_names.h"
#include "nn/onnx/onnx_ops.h"

#include <sonde/nn/onnx.h>

#include <stdio.h>
#include <string.h>

enum { OLDEST = 13, NEWEST = 21, LONGEST_NAME = 400, MOST_NODES = 1 << 20 };

/* --- slots ------------------------------------------------------------------------------ */

/* The slot of a name, which is added if it is new; NULL after an error. */
static sonde__onnx_slot *name_slot(sonde__onnx_import *import, const char *name)
{
    const size_t count = import->names.count;
    uint32_t id = 0;
    char text[SONDE__ONNX_TEXT];

    if (strlen(name) > LONGEST_NAME || !sonde__onnx_name_valid(name)) {
        (void)sonde__onnx_refuse_file(
            import, SONDE_EFORMAT, "UTF-8 without control characters, at most 400 bytes",
            "the name of a value is '%s'", sonde__onnx_text(name, text, sizeof text));
        return NULL;
    }
    id = sonde__names_intern(&import->names, name);
    if (id == SONDE__NO_NAME || id >= import->slot_count) {
        (void)sonde__onnx_no_memory(import);
        return NULL;
    }
    if (import->names.count > count) {
        import->slots[id].name = import->names.text[id];
    }
    return &import->slots[id];
}

/* How many names there can be. */
static size_t count_names(const SondeOnnx__GraphProto *graph)
{
    size_t count = graph->n_initializer + graph->n_input + graph->n_output;

    for (size_t i = 0; i < graph->n_node; i++) {
        count += graph->node[i]->n_input + graph->node[i]->n_output;
    }
    return count;
}

static bool name_initializers(sonde__onnx_import *import)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;
    char text[SONDE__ONNX_TEXT];

    for (size_t i = 0; i < graph->n_initializer; i++) {
        const SondeOnnx__TensorProto *tensor = graph->initializer[i];
        sonde__onnx_slot *slot = NULL;

        if (tensor->name == NULL || tensor->name[0] == '\0') {
            return sonde__onnx_refuse_file(import, SONDE_EFORMAT, "a name",
                                           "initializer %zu has no name", i);
        }
        slot = name_slot(import, tensor->name);
        if (slot == NULL) {
            return false;
        }
        if (slot->initial != NULL) {
            return sonde__onnx_refuse_file(
                import, SONDE_EFORMAT, "one of them", "two initializers '%s'",
                sonde__onnx_text(tensor->name, text, sizeof text));
        }
        slot->initial = tensor;
        slot->ready = true;
    }
    return true;
}

static bool name_outputs(sonde__onnx_import *import, size_t index)
{
    const SondeOnnx__NodeProto *node = import->nodes[index].proto;
    char text[SONDE__ONNX_TEXT];

    for (size_t k = 0; k < node->n_output; k++) {
        sonde__onnx_slot *slot = NULL;

        if (node->output[k][0] == '\0') {
            continue; /* not wanted */
        }
        slot = name_slot(import, node->output[k]);
        if (slot == NULL) {
            return false;
        }
        if (slot->producer != 0 || slot->ready) {
            return sonde__onnx_refuse_file(
                import, SONDE_EFORMAT, "one of them",
                slot->producer != 0
                    ? "two nodes make the value '%s'"
                    : "a node makes '%s', which is an input or an initializer",
                sonde__onnx_text(slot->name, text, sizeof text));
        }
        slot->producer = index + 1;
    }
    return true;
}

static bool name_all(sonde__onnx_import *import)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;

    import->slot_count = count_names(graph);
    import->slots = sonde__calloc(import->slot_count, sizeof *import->slots);
    import->nodes = sonde__calloc(graph->n_node, sizeof *import->nodes);
    if (import->slots == NULL || import->nodes == NULL) {
        return sonde__onnx_no_memory(import);
    }
    for (size_t i = 0; i < graph->n_node; i++) {
        import->nodes[i].proto = graph->node[i];
    }
    if (!name_initializers(import)) {
        return false;
    }
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;
        sonde__onnx_slot *slot = name != NULL ? name_slot(import, name) : NULL;

        if (slot == NULL) {
            return sonde__onnx_refuse_file(import, SONDE_EFORMAT, "a name",
                                           "input %zu has no name", i);
        }
        if (slot->ready && slot->initial == NULL) {
            return sonde__onnx_refuse_file(import, SONDE_EFORMAT, "one of them",
                                           "two inputs '%s'", name);
        }
        slot->ready = true;
    }
    for (size_t i = 0; i < graph->n_node; i++) {
        if (!name_outputs(import, i)) {
            return false;
        }
    }
    return true;
}

/* --- which nodes count ------------------------------------------------------------------ */

/* A node's input must be made by an earlier node, or be there. */
static bool check_input(sonde__onnx_import *import, size_t index, const char *name)
{
    const uint32_t id = sonde__names_find(&import->names, name);
    const sonde__onnx_slot *slot = id != SONDE__NO_NAME ? &import->slots[id] : NULL;
    char text[SONDE__ONNX_TEXT], node[SONDE__ONNX_TEXT];

    if (slot != NULL &&
        (slot->ready || (slot->producer > 0 && slot->producer <= index))) {
        return true;
    }
    (void)sonde__onnx_text(name, text, sizeof text);
    (void)sonde__onnx_node_name(import->nodes[index].proto, node, sizeof node);
    return slot == NULL || slot->producer == 0
               ? sonde__onnx_refuse_file(import, SONDE_EFORMAT, NULL,
                                         "node '%s' reads '%s', which nothing makes",
                                         node, text)
               : sonde__onnx_refuse_file(
                     import, SONDE_EFORMAT, "nodes in an order of execution",
                     "node '%s' reads '%s', which %s", node, text,
                     slot->producer == index + 1
                         ? "it makes itself: a cycle"
                         : "a later node makes: a cycle, or nodes out of order");
}

/* Marks the nodes that lead to an output, whose inputs must exist. */
static bool find_live(sonde__onnx_import *import, bool *live)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;
    char text[SONDE__ONNX_TEXT];

    if (graph->n_output == 0) {
        return sonde__onnx_refuse_file(import, SONDE_EFORMAT, "an output",
                                       "the graph has no outputs");
    }
    for (size_t i = 0; i < (import->one_output ? 1 : graph->n_output); i++) {
        const char *name = graph->output[i]->name != NULL ? graph->output[i]->name : "";
        const uint32_t id = sonde__names_find(&import->names, name);

        if (id == SONDE__NO_NAME) {
            return sonde__onnx_refuse_file(import, SONDE_EFORMAT, NULL,
                                           "nothing makes the output '%s'",
                                           sonde__onnx_text(name, text, sizeof text));
        }
        import->slots[id].leaves = true;
        if (import->slots[id].producer > 0) {
            live[import->slots[id].producer - 1] = true;
        }
    }
    for (size_t i = graph->n_node; i-- > 0;) {
        const SondeOnnx__NodeProto *node = import->nodes[i].proto;

        for (size_t k = 0; live[i] && k < node->n_input; k++) {
            const char *name = node->input[k];
            uint32_t id = 0;

            if (name[0] == '\0') {
                continue; /* left out */
            }
            if (!check_input(import, i, name)) {
                return false;
            }
            id = sonde__names_find(&import->names, name);
            if (import->slots[id].producer > 0) {
                live[import->slots[id].producer - 1] = true;
            }
        }
    }
    return true;
}

static bool is_onnx_domain(const char *domain)
{
    return domain == NULL || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

static bool is_known(const SondeOnnx__NodeProto *node)
{
    return is_onnx_domain(node->domain) && node->op_type != NULL &&
           sonde__onnx_find_op(node->op_type) != NULL;
}

/* All ops that there are none of here, each with the names of its nodes. */
static bool check_ops(sonde__onnx_import *import, const bool *live)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;
    char list[320] = "", node[SONDE__ONNX_TEXT], op[SONDE__ONNX_TEXT], item[160];
    size_t count = 0;

    for (size_t i = 0; i < graph->n_node; i++) {
        const SondeOnnx__NodeProto *proto = import->nodes[i].proto;
        const size_t used = strlen(list);

        if (!live[i] || is_known(proto)) {
            continue;
        }
        (void)snprintf(item, sizeof item, "%s%s (%.60s)", count > 0 ? ", " : "",
                       sonde__onnx_text(proto->op_type, op, 40),
                       sonde__onnx_node_name(proto, node, sizeof node));
        if (used + strlen(item) + 8 < sizeof list) {
            (void)snprintf(list + used, sizeof list - used, "%s", item);
        } else if (used >= 5 && strcmp(list + used - 5, ", ...") != 0) {
            (void)snprintf(list + used, sizeof list - used, ", ...");
        }
        count++;
    }
    return count == 0 ||
           sonde__onnx_refuse_file(import, SONDE_EUNSUPPORTED, "the ops of docs/onnx.md",
                                   "%zu node%s of ops that there are none of: %s", count,
                                   count == 1 ? "" : "s", list);
}

static bool check_opset(sonde__onnx_import *import)
{
    const SondeOnnx__ModelProto *model = import->file->model;

    for (size_t i = 0; i < model->n_opset_import; i++) {
        if (is_onnx_domain(model->opset_import[i]->domain)) {
            import->opset = model->opset_import[i]->version;
        }
    }
    return (import->opset >= OLDEST && import->opset <= NEWEST) ||
           sonde__onnx_refuse_file(import, SONDE_EUNSUPPORTED, "opset 13 to 21",
                                   "opset %lld", (long long)import->opset);
}

/* --- modules ---------------------------------------------------------------------------- */

/* Each node's module, and which values another module reads. */
static bool find_modules(sonde__onnx_import *import)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;
    char path[256];

    for (size_t i = 0; i < graph->n_node; i++) {
        sonde__onnx_module_name(import->nodes[i].proto, &import->names, import->slots,
                                path, sizeof path);
        import->nodes[i].module = sonde__graph_string(&import->model->graph, "%s", path);
        if (import->nodes[i].module == NULL) {
            return sonde__onnx_no_memory(import);
        }
    }
    for (size_t i = 0; i < graph->n_node; i++) {
        for (size_t k = 0; k < import->nodes[i].proto->n_input; k++) {
            const uint32_t id =
                sonde__names_find(&import->names, import->nodes[i].proto->input[k]);
            sonde__onnx_slot *slot = id != SONDE__NO_NAME ? &import->slots[id] : NULL;

            if (slot != NULL && slot->producer > 0 &&
                import->nodes[slot->producer - 1].module != import->nodes[i].module) {
                slot->leaves = true;
            }
        }
    }
    return true;
}

/* --- inputs and outputs ------------------------------------------------------------------ */

/* A dim of an input besides the batch. */
static bool read_dim(sonde__onnx_import *import, const char *name, int place,
                     const SondeOnnx__TensorShapeProto__Dimension *from,
                     const sonde_nn_onnx_options *asked, int64_t *dim)
{
    char text[SONDE__ONNX_TEXT];
    const bool given = asked->rank > 0 && place - 1 < asked->rank;

    if (from->has_dim_value && from->dim_value < 1) {
        return sonde__onnx_refuse_file(import, SONDE_ESHAPE, "at least 1",
                                       "dimension %d of the input '%s' is %lld", place,
                                       name, (long long)from->dim_value);
    }
    if (from->has_dim_value) {
        *dim = from->dim_value;
    } else if (given) {
        *dim = asked->shape[place - 1];
    } else {
        return sonde__onnx_refuse_file(
            import, SONDE_EINVAL, "its shape, as input: [3, 224, 224] of a job",
            "the input '%s' has an open dimension %d, '%s'", name, place,
            sonde__onnx_text(from->dim_param, text, sizeof text));
    }
    return !given || *dim == asked->shape[place - 1] ||
           sonde__onnx_refuse_file(import, SONDE_ESHAPE, "the shape of the job",
                                   "dimension %d of the input '%s' is %lld", place, name,
                                   (long long)*dim);
}

/* The shape of an input; the batch is left out. */
static bool read_shape(sonde__onnx_import *import, const SondeOnnx__ValueInfoProto *input,
                       const sonde_nn_onnx_options *asked, int *rank, int64_t *dim)
{
    const SondeOnnx__TypeProto__Tensor *type =
        input->type != NULL ? input->type->tensor_type : NULL;
    const SondeOnnx__TensorShapeProto *shape = type != NULL ? type->shape : NULL;
    const SondeOnnx__TensorShapeProto__Dimension *first = NULL;

    if (shape == NULL || shape->n_dim < 1 || shape->n_dim > SONDE_MAX_DIMS) {
        return sonde__onnx_refuse_file(import, SONDE_ESHAPE,
                                       "a tensor of 1 to 8 dimensions",
                                       "the input '%s' is none", input->name);
    }
    if (asked->rank > 0 && (size_t)asked->rank + 1 != shape->n_dim) {
        return sonde__onnx_refuse_file(import, SONDE_ESHAPE, "as many as the job says",
                                       "the input '%s' has %zu dimensions", input->name,
                                       shape->n_dim);
    }
    first = shape->dim[0];
    *rank = (int)shape->n_dim;
    if (first->has_dim_value && (first->dim_value < 1 || first->dim_value > INT32_MAX)) {
        return sonde__onnx_refuse_file(import, SONDE_ESHAPE, "at least 1",
                                       "the batch of the input '%s' is %lld", input->name,
                                       (long long)first->dim_value);
    }
    if (import->batch == 0.0) { /* the first input */
        import->open_batch = !first->has_dim_value;
        import->batch = first->has_dim_value ? (double)first->dim_value : 2.0;
    }
    dim[0] = (int64_t)import->batch;
    for (int i = 1; i < *rank; i++) {
        if (!read_dim(import, input->name, i, shape->dim[i], asked, &dim[i])) {
            return false;
        }
    }
    return true;
}

static sonde_dtype input_dtype(const SondeOnnx__ValueInfoProto *input)
{
    switch (input->type->tensor_type->elem_type) {
    case SONDE__ONNX_FLOAT:
    case SONDE__ONNX_DOUBLE:
    case SONDE__ONNX_FLOAT16:
    case SONDE__ONNX_BFLOAT16:
        return SONDE_F32;
    case SONDE__ONNX_INT64:
    case SONDE__ONNX_INT32:
        return SONDE_I64;
    case SONDE__ONNX_BOOL:
        return SONDE_BOOL;
    default:
        return (sonde_dtype)-1;
    }
}

static bool make_input(sonde__onnx_import *import, const SondeOnnx__ValueInfoProto *input,
                       const sonde_nn_onnx_options *asked)
{
    const uint32_t id = sonde__names_find(&import->names, input->name);
    sonde__onnx_slot *slot = &import->slots[id];
    int64_t dim[SONDE_MAX_DIMS];
    int rank = 0;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (!read_shape(import, input, asked, &rank, dim)) {
        return false;
    }
    if (input_dtype(input) == (sonde_dtype)-1) {
        return sonde__onnx_refuse_file(
            import, SONDE_EDTYPE, "float32, int64 or bool", "the input '%s' is of %s",
            input->name, sonde__onnx_type_name(input->type->tensor_type->elem_type));
    }
    slot->value.model = sonde_nn_input(import->model, input_dtype(input), rank, dim);
    dim[0]++;
    slot->value.shadow = sonde_nn_input(import->shadow, input_dtype(input), rank, dim);
    err = sonde_nn_model_status(import->model, &diag);
    if (err == SONDE_OK) {
        err = sonde_nn_model_status(import->shadow, &diag);
    }
    if (err != SONDE_OK) {
        return sonde__onnx_refuse_file(import, err, diag.expected, "the input '%s': %s",
                                       input->name, diag.found);
    }
    return sonde__onnx_name_value(import, slot->value.model, slot->name,
                                  SONDE_ROLE_INPUT);
}

static bool make_inputs(sonde__onnx_import *import, const sonde_nn_onnx_options *asked)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;
    const sonde_nn_onnx_options nothing = {.size = sizeof nothing};
    bool first = true;

    for (size_t i = 0; i < graph->n_input; i++) {
        const uint32_t id = sonde__names_find(&import->names, graph->input[i]->name);

        if (import->slots[id].initial != NULL) {
            continue; /* a default that a caller may replace: not here */
        }
        if (!make_input(import, graph->input[i], first ? asked : &nothing)) {
            return false;
        }
        first = false;
    }
    return !first || sonde__onnx_refuse_file(import, SONDE_EFORMAT, "an input",
                                             "the graph has no inputs");
}

static bool mark_outputs(sonde__onnx_import *import)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;
    const size_t count = import->one_output ? 1 : graph->n_output;

    for (size_t i = 0; i < count; i++) {
        const sonde__onnx_slot *slot =
            &import->slots[sonde__names_find(&import->names, graph->output[i]->name)];

        if (slot->value.model == 0) {
            return sonde__onnx_refuse_file(import, SONDE_EUNSUPPORTED,
                                           "a value that nodes compute",
                                           "the output '%s' is a constant", slot->name);
        }
        sonde_nn_output(import->model, slot->value.model);
    }
    return count > 0 || sonde__onnx_refuse_file(import, SONDE_EFORMAT, "an output",
                                                "the graph has no outputs");
}

/* --- nodes ------------------------------------------------------------------------------ */

static bool all_given(const sonde__onnx_node *node)
{
    for (size_t k = 0; k < node->proto->n_output; k++) {
        const char *name = node->proto->output[k];
        const sonde__onnx_slot *slot =
            name[0] != '\0'
                ? &node->import->slots[sonde__names_find(&node->import->names, name)]
                : NULL;

        if (slot != NULL && !slot->ready && slot->leaves) {
            return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, NULL,
                                      "its output %zu is not computed here", k);
        }
    }
    return true;
}

static bool translate(sonde__onnx_import *import, size_t index)
{
    const SondeOnnx__NodeProto *proto = import->nodes[index].proto;
    const sonde__onnx_op *op = sonde__onnx_find_op(proto->op_type);
    sonde__onnx_node node = {.import = import,
                             .proto = proto,
                             .module = import->nodes[index].module,
                             .first = import->model->graph.value_count};
    const int folded =
        op->build == NULL || proto->n_output == 1 ? sonde__onnx_fold(&node) : 0;

    if (folded != 0) {
        return folded > 0;
    }
    if (proto->n_output == 0 || op->build == NULL) {
        return sonde__onnx_refuse(&node, SONDE_EUNSUPPORTED,
                                  "inputs that are known before the network runs",
                                  "it is computed from values");
    }
    if (!op->build(&node, op)) {
        return import->err == SONDE_OK
                   ? sonde__onnx_refuse(&node, SONDE_EUNSUPPORTED, NULL,
                                        "it cannot be translated")
                   : false;
    }
    return all_given(&node);
}

static bool translate_all(sonde__onnx_import *import)
{
    const size_t count = import->file->model->graph->n_node;
    bool *live = sonde__calloc(count, sizeof *live);
    bool good = live != NULL;

    if (live == NULL) {
        return sonde__onnx_no_memory(import);
    }
    good = find_live(import, live) && check_ops(import, live) && find_modules(import);
    for (size_t i = 0; good && i < count; i++) {
        good = !live[i] || translate(import, i);
    }
    sonde__free(live);
    return good;
}

static void describe(const sonde__onnx_import *import, sonde_nn_onnx_info *info)
{
    const SondeOnnx__GraphProto *graph = import->file->model->graph;
    const sonde__onnx_slot *slot =
        &import->slots[sonde__names_find(&import->names, graph->output[0]->name)];

    if (info == NULL) {
        return;
    }
    *info =
        (sonde_nn_onnx_info){.batch = import->shadow == NULL ? (int64_t)import->batch : 0,
                             .opset = import->opset};
    if (slot->producer > 0) {
        (void)snprintf(info->last_op, sizeof info->last_op, "%s",
                       import->nodes[slot->producer - 1].proto->op_type);
    }
}

/* Takes the file. */
static sonde_err import_file(sonde__onnx_file *file, const sonde_nn_onnx_options *options,
                             sonde_nn_model **out, sonde_nn_onnx_info *info,
                             sonde_diag *diag)
{
    sonde_diag own = {0};
    sonde__onnx_import import = {.file = file,
                                 .one_output = options->one_output,
                                 .diag = diag != NULL ? diag : &own};

    sonde__names_init(&import.names);
    import.err = sonde_nn_model_create(&import.model, diag);
    if (import.err != SONDE_OK) {
        goto done;
    }
    import.err = sonde_nn_model_create(&import.shadow, diag);
    if (import.err != SONDE_OK) {
        goto done;
    }
    if (!check_opset(&import) || !name_all(&import) || !sonde__onnx_fuse(&import) ||
        !make_inputs(&import, options) || !translate_all(&import) ||
        !mark_outputs(&import)) {
        goto done;
    }
    import.err = sonde_nn_model_status(import.model, diag);
    if (import.err != SONDE_OK) {
        goto done;
    }
    describe(&import, info);
    *out = import.model;
    import.model = NULL;

done:
    if (import.err != SONDE_OK &&
        (sonde_nn_model_status(import.model, NULL) == SONDE_ENOMEM ||
         sonde_nn_model_status(import.shadow, NULL) == SONDE_ENOMEM)) {
        import.err = sonde__fail_nomem(diag, "an ONNX model");
    }
    for (size_t i = 0; import.slots != NULL && i < import.slot_count; i++) {
        sonde__free(import.slots[i].constant);
    }
    sonde__free(import.slots);
    sonde__free(import.nodes);
    sonde__onnx_fuse_free(&import);
    sonde__names_fini(&import.names);
    sonde_nn_model_destroy(import.shadow);
    sonde_nn_model_destroy(import.model);
    sonde__onnx_close(file);
    return import.err;
}

sonde_err sonde_nn_onnx_load(const char *path, const sonde_nn_onnx_options *options,
                             sonde_nn_model **out, sonde_nn_onnx_info *info,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    sonde__onnx_file *file = NULL;
    sonde_nn_onnx_options own;

    SONDE__TAKE(sonde_nn_onnx_options, &own, options, diag);
    SONDE__TRY(sonde__onnx_load(path, &file, diag));
    return import_file(file, &own, out, info, diag);
}

sonde_err sonde_nn_onnx_parse(const void *bytes, size_t size, const char *name,
                              const sonde_nn_onnx_options *options, sonde_nn_model **out,
                              sonde_nn_onnx_info *info, sonde_diag *diag)
{
    SONDE__NEEDS(diag, bytes, name, out);
    sonde__onnx_file *file = NULL;
    sonde_nn_onnx_options own;

    SONDE__TAKE(sonde_nn_onnx_options, &own, options, diag);
    SONDE__TRY(sonde__onnx_parse(bytes, size, name, NULL, &file, diag));
    return import_file(file, &own, out, info, diag);
}
