/*
 * graph_packed.c - a model as bytes and back.
 *
 *     u32 blocks, their names
 *     u32 items; each: u32 tag
 *         op       kind, module, block, attrs, u32 inputs, their ids, its outputs' names
 *         leaf     dtype, rank, dims, name, then for a parameter or a buffer its recipe
 *     u32 aliases, u32 prints, u32 inputs, u32 outputs, the loss, u32 modules
 */
#include "nn/graph/graph.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/graph/layer.h"

#include <assert.h>
#include <string.h>

enum { ITEM_OP = 0, TEXT = SONDE__PACKED_TEXT };

static const sonde__packed_field recipe_fields[] = {
    SONDE__PACKED(sonde__graph_param, bound, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde__graph_param, constant, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde__graph_param, spread, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde__graph_param, blank_first, SONDE__PACKED_LONG, 1),
    SONDE__PACKED(sonde__graph_param, blank, SONDE__PACKED_LONG, 1),
    SONDE__PACKED(sonde__graph_param, left_out, SONDE__PACKED_BOOL, 1),
    SONDE__PACKED(sonde__graph_param, given, SONDE__PACKED_BOOL, 1),
};
static const sonde__packed_field print_fields[] = {
    SONDE__PACKED(sonde_print_options, summarize_threshold, SONDE__PACKED_LONG, 1),
    SONDE__PACKED(sonde_print_options, edge_items, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde_print_options, max_line_width, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde_print_options, digits, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde_print_options, float_format, SONDE__PACKED_WORD, 1),
    SONDE__PACKED(sonde_print_options, separator, SONDE__PACKED_LONG, 1),
    SONDE__PACKED(sonde_print_options, open_bracket, SONDE__PACKED_LONG, 1),
    SONDE__PACKED(sonde_print_options, close_bracket, SONDE__PACKED_LONG, 1),
};

const sonde__op_kind *sonde__graph_find_kind(const char *name)
{
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        if (strcmp(sonde__op_kinds[i]->name, name) == 0) {
            return sonde__op_kinds[i];
        }
    }
    return NULL;
}

/* --- writing ------------------------------------------------------------------------ */

static void pack_flag(sonde__packer *out, bool flag)
{
    sonde__pack_u32(out, flag ? 1 : 0);
}

static void pack_value(sonde__packer *out, const sonde__graph_node_value *value)
{
    pack_flag(out, value->name != NULL);
    sonde__pack_text(out, value->name);
    sonde__pack_text(out, value->module);
    sonde__pack_u32(out, (uint32_t)value->role);
    sonde__pack_u32(out, (uint32_t)value->pass);
}

static void pack_tensor(sonde__packer *out, const sonde__graph_param *tensor,
                        sonde_dtype dtype, bool weights)
{
    sonde__graph_param recipe = *tensor;
    const bool held = weights || tensor->given || tensor->borrowed;

    recipe.given = tensor->given || tensor->borrowed;
    sonde__pack_struct(out, &recipe, recipe_fields, SONDE_COUNT_OF(recipe_fields));
    pack_flag(out, held);
    if (held) {
        sonde__pack(out, tensor->data, tensor->count * sonde_dtype_size(dtype));
    }
}

static void pack_leaf(sonde__packer *out, const sonde_nn_model *model, size_t id,
                      bool weights)
{
    const sonde__graph_node_value *value = &model->graph.values[id];
    const size_t i = (size_t)value->index;

    sonde__pack_u32(out, (uint32_t)value->source);
    sonde__pack_u32(out, (uint32_t)value->shape.dtype);
    sonde__pack_u32(out, (uint32_t)value->shape.rank);
    for (int d = 0; d < value->shape.rank; d++) {
        sonde__pack_u64(out, (uint64_t)value->shape.dim[d]);
    }
    pack_value(out, value);
    if (value->source != SONDE__FROM_INPUT) {
        pack_tensor(out,
                    value->source == SONDE__FROM_PARAM ? &model->params[i]
                                                       : &model->buffers[i],
                    value->shape.dtype, weights);
    }
}

void sonde__graph_pack_attrs(sonde__packer *out, const sonde__op_kind *kind,
                             const sonde__op_attrs *attrs)
{
    const sonde__op_fields *const tables[] = {&sonde__op_fields_common, kind->fields};

    for (int i = 0; i < 2; i++) {
        sonde__pack_struct(out, attrs, tables[i]->fields, tables[i]->count);
    }
}

static void unpack_attrs(sonde__unpacker *in, const sonde__op_kind *kind,
                         sonde__op_attrs *attrs)
{
    const sonde__op_fields *const tables[] = {&sonde__op_fields_common, kind->fields};

    for (int i = 0; i < 2; i++) {
        sonde__unpack_struct(in, attrs, tables[i]->fields, tables[i]->count);
    }
    in->bad = in->bad || (sonde__op_fields_have_dims(kind->fields) &&
                          (attrs->shape.rank < 0 || attrs->shape.rank > SONDE_MAX_DIMS));
}

static void pack_op(sonde__packer *out, const sonde__op_graph *graph,
                    const sonde__graph_node_op *op)
{
    sonde__pack_u32(out, ITEM_OP);
    sonde__pack_text(out, op->kind->name);
    sonde__pack_text(out, op->module);
    sonde__pack_u32(out, (uint32_t)op->stage);
    sonde__graph_pack_attrs(out, op->kind, &op->given);
    sonde__pack_u32(out, (uint32_t)op->in_count);
    for (int k = 0; k < op->in_count; k++) {
        sonde__pack_u32(out, op->in[k]);
    }
    for (int k = 0; k < op->out_count; k++) {
        pack_value(out, &graph->values[op->out[k]]);
    }
}

static void pack_ids(sonde__packer *out, const sonde__op_value *ids, size_t count)
{
    sonde__pack_u32(out, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        sonde__pack_u32(out, ids[i]);
    }
}

static void pack_lists(sonde__packer *out, const sonde_nn_model *model)
{
    const sonde__op_graph *graph = &model->graph;

    sonde__pack_u32(out, (uint32_t)graph->alias_count);
    for (size_t i = 0; i < graph->alias_count; i++) {
        sonde__pack_text(out, graph->aliases[i].name);
        sonde__pack_text(out, graph->aliases[i].module);
        sonde__pack_u32(out, graph->aliases[i].value);
        sonde__pack_u32(out, (uint32_t)graph->aliases[i].role);
    }
    sonde__pack_u32(out, (uint32_t)graph->print_count);
    for (size_t i = 0; i < graph->print_count; i++) {
        const sonde__graph_print_request *print = &graph->prints[i];

        sonde__pack_u32(out, print->value);
        pack_flag(out, print->title != NULL);
        sonde__pack_text(out, print->title);
        pack_flag(out, print->gradient);
        sonde__pack_struct(out, &print->options, print_fields,
                           SONDE_COUNT_OF(print_fields));
    }
    pack_ids(out, graph->outputs, graph->output_count);
    sonde__pack_u32(out, graph->loss);
    sonde__pack_u32(out, (uint32_t)model->call_count);
    for (size_t i = 0; i < model->call_count; i++) {
        sonde__pack_text(out, model->calls[i].name);
        sonde__pack_u32(out, (uint32_t)model->calls[i].inputs);
        sonde__pack_u32(out, (uint32_t)model->calls[i].outputs);
    }
}

void sonde__graph_pack(sonde__packer *out, const sonde_nn_model *model, bool weights)
{
    const sonde__op_graph *graph = &model->graph;
    size_t op = 0, items = graph->op_count;

    for (size_t id = 1; id < graph->value_count; id++) {
        items += graph->values[id].source != SONDE__FROM_OP;
    }
    sonde__pack_u32(out, (uint32_t)graph->stage_count);
    for (int i = 0; i < graph->stage_count; i++) {
        sonde__pack_text(out, graph->stages[i]);
    }
    sonde__pack_u32(out, (uint32_t)items);
    for (size_t id = 1; id < graph->value_count;) {
        if (graph->values[id].source != SONDE__FROM_OP) {
            pack_leaf(out, model, id++, weights);
        } else {
            pack_op(out, graph, &graph->ops[op]);
            id += (size_t)graph->ops[op++].out_count;
        }
    }
    pack_lists(out, model);
}

/* --- reading ------------------------------------------------------------------------ */

typedef struct reading {
    sonde__unpacker *in;
    sonde_nn_model *model;
    const char *where;
    uint64_t seed;
    sonde_diag *diag;
} reading;

static sonde_err model_error(const reading *work)
{
    const sonde__op_graph *graph = &work->model->graph;

    if (graph->err != SONDE_OK && work->diag != NULL) {
        *work->diag = graph->diag;
    }
    return graph->err;
}

/* Unless memory ran out before. */
static sonde_err refuse(const reading *work, const char *what)
{
    const sonde_err err = model_error(work);

    return err != SONDE_OK ? err
                           : sonde__fail(work->diag, SONDE_EFORMAT, work->where,
                                         "a model as it is saved", "%s", what);
}

static const char *intern(const reading *work, const char *text)
{
    return sonde__graph_string(&work->model->graph, "%s", text);
}

/* The names and the role of a value. */
typedef struct description {
    const char *name, *module; /* interned */
    sonde_role role;
    sonde_pass pass;
} description;

static description read_description(const reading *work)
{
    char text[TEXT];
    description read = {0};
    const bool named = sonde__unpack_below(work->in, 2) == 1;
    const char *name = intern(work, sonde__unpack_text(work->in, text, sizeof text));

    read.name = named ? name : NULL;
    read.module = intern(work, sonde__unpack_text(work->in, text, sizeof text));
    read.role = (sonde_role)sonde__unpack_below(work->in, SONDE_ROLE_COUNT);
    read.pass = (sonde_pass)sonde__unpack_below(work->in, SONDE_PASS_UPDATE + 1);
    return read;
}

static void describe(const reading *work, sonde__op_value id, const description *read)
{
    sonde__graph_node_value *value = &work->model->graph.values[id];

    value->name = read->name;
    value->module = read->module != NULL ? read->module : value->module;
    value->role = read->role;
    value->pass = read->pass;
}

static bool read_shape(const reading *work, sonde__op_shape *shape)
{
    sonde__unpacker *in = work->in;
    const uint32_t dtype = sonde__unpack_below(in, INT32_MAX);

    shape->dtype = (sonde_dtype)dtype;
    shape->rank = (int)sonde__unpack_below(in, SONDE_MAX_DIMS + 1);
    for (int d = 0; d < shape->rank; d++) {
        shape->dim[d] = (int64_t)sonde__unpack_u64(in);
    }
    return !in->bad && sonde_dtype_size(shape->dtype) > 0;
}

/* Draws a tensor that has no values in the file. */
static void draw(const reading *work, bool buffer)
{
    sonde_nn_model *model = work->model;

    if (buffer) {
        sonde__graph_fill_buffer(model, model->buffer_count - 1);
    } else {
        sonde__graph_param_draw(&model->params[model->param_count - 1], work->seed,
                                model->param_count - 1);
    }
}

/* Values of other dtypes than those that are drawn are always given. */
static bool may_be_tensor(sonde_dtype dtype, bool buffer, bool given)
{
    return dtype == SONDE_F32 || (buffer && (dtype == SONDE_I64 || given));
}

/* A parameter or a buffer. */
static sonde_err read_tensor(const reading *work, const sonde__op_shape *shape,
                             bool buffer)
{
    sonde_nn_model *model = work->model;
    sonde__unpacker *in = work->in;
    const description read = read_description(work);
    sonde__graph_param tensor = {0};
    bool given = false, held = false;

    sonde__unpack_struct(in, &tensor, recipe_fields, SONDE_COUNT_OF(recipe_fields));
    held = sonde__unpack_below(in, 2) == 1;
    if (!sonde__graph_check_size(&model->graph, read.name, shape)) {
        return model_error(work);
    }
    tensor.count = (size_t)sonde__op_shape_count(shape);
    const size_t bytes = tensor.count * sonde_dtype_size(shape->dtype);
    const void *values = held ? sonde__unpack(in, bytes) : NULL;
    if (in->bad || read.name == NULL || buffer != (read.role == SONDE_ROLE_BUFFER) ||
        !may_be_tensor(shape->dtype, buffer, held && tensor.given) ||
        (tensor.blank > 0 && (tensor.blank_first > tensor.count ||
                              tensor.blank > tensor.count - tensor.blank_first))) {
        return refuse(work, "a parameter is cut off, or unlike any that a layer has");
    }
    given = tensor.given;
    tensor.given = true; /* so that it is not drawn yet */
    if (sonde__graph_add_tensor(model, read.name, shape, read.role, tensor) == 0) {
        return model_error(work);
    }
    sonde__graph_param *param = buffer ? &model->buffers[model->buffer_count - 1]
                                       : &model->params[model->param_count - 1];
    param->given = given;
    describe(work, param->value, &read);
    if (!held) {
        draw(work, buffer);
    } else if (bytes > 0) {
        memcpy(param->data, values, bytes);
    }
    return SONDE_OK;
}

static sonde_err read_leaf(const reading *work, sonde__graph_source source)
{
    sonde__op_shape shape = {0};
    description read = {0};

    if (!read_shape(work, &shape)) {
        return refuse(work, "a shape is cut off, or of a dtype that there is not");
    }
    if (source != SONDE__FROM_INPUT) {
        return read_tensor(work, &shape, source == SONDE__FROM_BUFFER);
    }
    const sonde__op_value id =
        sonde_nn_input(work->model, shape.dtype, shape.rank, shape.dim);
    if (id == 0) {
        return model_error(work);
    }
    read = read_description(work);
    describe(work, id, &read);
    return SONDE_OK;
}

/* Ops that a builder emits; gradients, updates and fused ops are the compiler's. */
static bool is_builders(const sonde__op_kind *kind)
{
    const sonde__op_kind *const compilers[] = {
        &sonde__op_reorder,     &sonde__op_conv2d_relu_pool, &sonde__op_conv2d_relu,
        &sonde__op_linear_relu, &sonde__op_batch_norm_relu,  &sonde__op_replica_sum,
        &sonde__op_rank_sum};
    bool ours = strstr(kind->name, "Grad") == NULL;

    for (size_t i = 0; i < SONDE_COUNT_OF(compilers); i++) {
        ours = ours && kind != compilers[i];
    }
    for (int k = 0; k < SONDE__MAX_OPERANDS; k++) {
        ours = ours && kind->alias[k] == 0;
    }
    return ours;
}

/* Values that ops before this one make; 0 where an input may be left out. */
static sonde_err read_operands(const reading *work, const sonde__op_kind *kind,
                               sonde__op_value in[SONDE__MAX_OPERANDS], int *count)
{
    const size_t made = work->model->graph.value_count;

    *count = (int)sonde__unpack_u32(work->in);
    if (*count < kind->in_min || *count > kind->in_max) {
        return sonde__fail(work->diag, SONDE_EFORMAT, work->where, NULL,
                           "an op %s has %d inputs", kind->name, *count);
    }
    for (int k = 0; k < *count; k++) {
        in[k] = sonde__unpack_u32(work->in);
        if (in[k] >= made || (in[k] == 0 && k < kind->in_min)) {
            return sonde__fail(work->diag, SONDE_EFORMAT, work->where,
                               "a value that an op before it makes",
                               "input %d of an op %s (the one that makes value %zu) is "
                               "value %u: a cycle, or an input that dangles",
                               k, kind->name, made, in[k]);
        }
    }
    return SONDE_OK;
}

static sonde_err read_op(const reading *work)
{
    sonde__op_graph *graph = &work->model->graph;
    sonde__op_value in[SONDE__MAX_OPERANDS] = {0};
    sonde__op_attrs attrs;
    char text[TEXT];
    int count = 0;

    sonde__op_attrs_clear(&attrs);
    const sonde__op_kind *kind =
        sonde__graph_find_kind(sonde__unpack_text(work->in, text, sizeof text));
    if (kind == NULL || !is_builders(kind)) {
        return sonde__fail(work->diag, SONDE_ENOTFOUND, work->where,
                           "an op of this version", "unknown op '%.100s'", text);
    }
    graph->module = intern(work, sonde__unpack_text(work->in, text, sizeof text));
    graph->stage = (int)sonde__unpack_below(
        work->in, graph->stage_count > 0 ? (uint32_t)graph->stage_count : 1);
    unpack_attrs(work->in, kind, &attrs);
    if (work->in->bad || graph->module == NULL) {
        return refuse(work, "an op is cut off, or has numbers that cannot be");
    }
    SONDE__TRY(read_operands(work, kind, in, &count));
    const sonde__op_value first = sonde__op_emit(graph, kind, &attrs, in, count);
    if (first == 0) {
        return model_error(work);
    }
    for (int k = 0; k < kind->out_count; k++) {
        const description read = read_description(work);

        describe(work, first + (sonde__op_value)k, &read);
    }
    return SONDE_OK;
}

static sonde_err read_items(const reading *work)
{
    sonde__op_graph *graph = &work->model->graph;
    const uint32_t count = sonde__unpack_u32(work->in);
    sonde_err err = SONDE_OK;

    for (uint32_t i = 0; i < count && err == SONDE_OK; i++) {
        const uint32_t tag = sonde__unpack_below(work->in, SONDE__FROM_BUFFER + 1);

        if (work->in->bad || tag == SONDE__FROM_STATE) {
            return refuse(work, "it is cut off, or an item is of no kind");
        }
        graph->module = intern(work, "");
        err = tag == ITEM_OP ? read_op(work) : read_leaf(work, (sonde__graph_source)tag);
    }
    graph->module = intern(work, "");
    graph->stage = 0;
    return err;
}

static sonde__op_value read_id(const reading *work)
{
    return sonde__unpack_below(work->in, (uint32_t)work->model->graph.value_count);
}

static void read_aliases(const reading *work)
{
    sonde__op_graph *graph = &work->model->graph;
    const uint32_t count = sonde__unpack_u32(work->in);
    char text[TEXT];

    for (uint32_t i = 0; i < count && !work->in->bad && graph->err == SONDE_OK; i++) {
        const char *name = intern(work, sonde__unpack_text(work->in, text, sizeof text));
        sonde__op_value value = 0;

        graph->module = intern(work, sonde__unpack_text(work->in, text, sizeof text));
        value = read_id(work);
        (void)sonde__graph_alias(
            graph, name, value,
            (sonde_role)sonde__unpack_below(work->in, SONDE_ROLE_COUNT));
        work->in->bad = work->in->bad || value == 0;
    }
    graph->module = intern(work, "");
}

static void read_prints(const reading *work)
{
    sonde__op_graph *graph = &work->model->graph;
    const uint32_t count = sonde__unpack_u32(work->in);
    char text[TEXT];

    for (uint32_t i = 0; i < count && !work->in->bad && graph->err == SONDE_OK; i++) {
        sonde__graph_print_request print = {.value = read_id(work),
                                            .options = sonde_print_options_default()};
        const bool titled = sonde__unpack_below(work->in, 2) == 1;
        const char *title = intern(work, sonde__unpack_text(work->in, text, sizeof text));

        print.title = titled ? title : NULL;
        print.gradient = sonde__unpack_below(work->in, 2) == 1;
        sonde__unpack_struct(work->in, &print.options, print_fields,
                             SONDE_COUNT_OF(print_fields));
        if (print.value == 0 || graph->values[print.value].op == NULL ||
            strcmp(graph->values[print.value].op, sonde__op_identity.name) != 0 ||
            sonde_print_options_check(&print.options, NULL) != SONDE_OK) {
            work->in->bad = true;
        } else if (!sonde__reserve(&graph->prints, &graph->print_capacity,
                                   graph->print_count + 1, sizeof *graph->prints)) {
            (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
        } else {
            graph->prints[graph->print_count++] = print;
        }
    }
}

static void read_calls(const reading *work)
{
    sonde_nn_model *model = work->model;
    const uint32_t count = sonde__unpack_u32(work->in);
    char text[TEXT];

    for (uint32_t i = 0; i < count && !work->in->bad && model->graph.err == SONDE_OK;
         i++) {
        sonde__graph_module_calls call = {0};

        call.name = intern(work, sonde__unpack_text(work->in, text, sizeof text));
        call.inputs = (int)sonde__unpack_below(work->in, INT32_MAX);
        call.outputs = (int)sonde__unpack_below(work->in, INT32_MAX);
        if (!sonde__reserve(&model->calls, &model->call_capacity, model->call_count + 1,
                            sizeof *model->calls)) {
            (void)sonde__graph_fail(&model->graph, SONDE_ENOMEM, NULL, NULL,
                                    "out of memory");
            return;
        }
        model->calls[model->call_count++] = call;
    }
}

static void read_ends(const reading *work)
{
    sonde_nn_model *model = work->model;
    const uint32_t count = sonde__unpack_u32(work->in);

    for (uint32_t i = 0; i < count && !work->in->bad; i++) {
        const sonde__op_value value = read_id(work);

        work->in->bad = work->in->bad || value == 0;
        sonde_nn_output(model, value);
    }
    const sonde__op_value loss = read_id(work);
    if (loss != 0) {
        sonde_nn_loss(model, loss);
    }
}

static void read_stages(const reading *work)
{
    sonde__op_graph *graph = &work->model->graph;
    const uint32_t count = sonde__unpack_below(work->in, SONDE__MOST_STAGES + 1);
    char text[TEXT];

    for (uint32_t i = 0; i < count; i++) {
        graph->stages[i] = intern(work, sonde__unpack_text(work->in, text, sizeof text));
    }
    graph->stage_count = graph->err == SONDE_OK ? (int)count : 0;
}

static sonde_err read_model(const reading *work)
{
    read_stages(work);
    SONDE__TRY(read_items(work));
    read_aliases(work);
    read_prints(work);
    read_ends(work);
    read_calls(work);
    SONDE__TRY(model_error(work));
    return work->in->bad ? refuse(work, "it is cut off, or a list has what cannot be")
                         : SONDE_OK;
}

sonde_err sonde__graph_unpack(sonde__unpacker *in, const char *where, uint64_t seed,
                              sonde_nn_model **out, sonde_diag *diag)
{
    reading work = {.in = in, .where = where, .seed = seed, .diag = diag};
    sonde_err err = sonde_nn_model_create(&work.model, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = read_model(&work);
    if (err != SONDE_OK) {
        sonde_nn_model_destroy(work.model);
        return err;
    }
    *out = work.model;
    return SONDE_OK;
}
