/*
 * graph.c - values, ops and their names, in order of creation.
 */
#include "nn/graph/graph.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/number.h"

#include "nn/ops/common.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sonde__graph_fini(sonde__op_graph *graph)
{
    sonde__free(graph->values);
    sonde__free(graph->ops);
    sonde__free(graph->aliases);
    sonde__free(graph->prints);
    sonde__free(graph->inputs);
    sonde__free(graph->outputs);
    sonde__names_fini(&graph->strings);
    *graph = (sonde__op_graph){0};
}

sonde__op_value sonde__graph_fail_diag(sonde__op_graph *graph, sonde_err err,
                                       const sonde_diag *diag)
{
    if (graph->err != SONDE_OK) { /* the first failure stays */
        return 0;
    }
    graph->err = err;
    graph->diag = *diag;
    graph->diag.err = err;
    return 0;
}

sonde__op_value sonde__graph_fail(sonde__op_graph *graph, sonde_err err,
                                  const char *where, const char *expected,
                                  const char *found, ...)
{
    sonde_diag diag = {0};
    char text[sizeof diag.found];
    va_list args;

    va_start(args, found);
    (void)sonde__vsnprintf(text, sizeof text, found, args);
    va_end(args);
    (void)sonde__fail(&diag, err, where, expected, "%s", text);
    return sonde__graph_fail_diag(graph, err, &diag);
}

const char *sonde__graph_string(sonde__op_graph *graph, const char *fmt, ...)
{
    char text[512];
    uint32_t id = SONDE__NO_NAME;
    va_list args;

    va_start(args, fmt);
    const int length = sonde__vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof text) {
        (void)sonde__graph_fail(graph, SONDE_EINVAL, text, "at most 511 bytes",
                                "name too long");
        return NULL;
    }
    id = sonde__names_intern(&graph->strings, text);
    if (id == SONDE__NO_NAME) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL,
                                "out of memory for names");
        return NULL;
    }
    return graph->strings.text[id];
}

bool sonde__graph_push(sonde__op_graph *graph, sonde__op_value **array, size_t *count,
                       size_t *capacity, sonde__op_value value)
{
    if (!sonde__reserve(array, capacity, *count + 1, sizeof **array)) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory");
        return false;
    }
    (*array)[(*count)++] = value;
    return true;
}

static const sonde__op_shape *shape_of(const sonde__op_graph *graph,
                                       sonde__op_value value)
{
    /* A caller's value may be of another model; layers refuse it, by its id, when they
     * emit. */
    return &graph->values[value < graph->value_count ? value : 0].shape;
}

bool sonde__graph_has_value(sonde__op_graph *graph, const char *where,
                            sonde__op_value value)
{
    if (value < graph->value_count) {
        return true;
    }
    (void)sonde__graph_fail(graph, SONDE_EINVAL, where, "a value of this model",
                            "value %u", value);
    return false;
}

bool sonde__graph_check_size(sonde__op_graph *graph, const char *where,
                             const sonde__op_shape *shape)
{
    sonde_diag diag = {0};
    const sonde_err err = sonde__op_expect_size(shape, "a tensor", &diag);

    if (err != SONDE_OK) {
        (void)sonde__graph_fail(graph, err, where, NULL, "%s", diag.found);
    }
    return err == SONDE_OK;
}

/* Appends a value; 0 on failure. */
static sonde__op_value append_value(sonde__op_graph *graph,
                                    const sonde__graph_node_value *value)
{
    if (!sonde__reserve(&graph->values, &graph->value_capacity, graph->value_count + 1,
                        sizeof *graph->values)) {
        return sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL,
                                 "out of memory for values");
    }
    graph->values[graph->value_count] = *value;
    return (sonde__op_value)graph->value_count++;
}

sonde__op_value sonde__graph_leaf(sonde__op_graph *graph, const sonde__op_shape *shape,
                                  sonde__graph_source source, int index, const char *name,
                                  sonde_role role)
{
    const sonde__graph_node_value value = {.shape = *shape,
                                           .name = name,
                                           .module = graph->module,
                                           .role = role,
                                           .pass = SONDE_PASS_NONE,
                                           .source = source,
                                           .index = index};

    if (graph->err != SONDE_OK || !sonde__graph_check_size(graph, name, shape)) {
        return 0;
    }
    return append_value(graph, &value);
}

bool sonde__graph_alias(sonde__op_graph *graph, const char *name, sonde__op_value value,
                        sonde_role role)
{
    if (graph->err != SONDE_OK || name == NULL) {
        return false;
    }
    if (!sonde__reserve(&graph->aliases, &graph->alias_capacity, graph->alias_count + 1,
                        sizeof *graph->aliases)) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL,
                                "out of memory for names");
        return false;
    }
    graph->aliases[graph->alias_count++] =
        (sonde__graph_alias_entry){name, graph->module, value, role};
    return true;
}

/* An op that takes no bfloat16 or float16 says so, whatever its shape rule reads. */
static sonde_err refuse_halves(const sonde__graph_node_op *op, const sonde__op_call *call,
                               sonde_diag *diag)
{
    for (int i = 0; i < op->in_count && op->kind->halves == SONDE__HALVES_REFUSED; i++) {
        const sonde_dtype dtype = call->in[i].shape.dtype;

        if (op->in[i] != 0 && sonde__op_is_half(dtype)) {
            return sonde__fail(diag, SONDE_EDTYPE, NULL, "float32",
                               "input %d has dtype %s", i, sonde_dtype_name(dtype));
        }
    }
    return SONDE_OK;
}

/* Runs the shape rule; false with the graph's error set. */
static bool infer_shapes(sonde__op_graph *graph, sonde__graph_node_op *op,
                         sonde__op_call *call)
{
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    call->attrs = &op->attrs;
    call->in_count = op->in_count;
    call->out_count = op->kind->out_count;
    for (int i = 0; i < op->in_count; i++) {
        call->in[i].shape = *sonde__op_value_shape(graph, op->in[i]);
    }
    err = refuse_halves(op, call, &diag);
    if (err == SONDE_OK) {
        err = op->kind->infer(call, &op->attrs, &diag);
    }
    if (err != SONDE_OK) {
        (void)snprintf(diag.where, sizeof diag.where, "%s%s%s", op->module,
                       op->module[0] != '\0' ? "/" : "", op->kind->name);
        (void)sonde__graph_fail_diag(graph, err, &diag);
        return false;
    }
    return true;
}

static sonde__op_value emit(sonde__op_graph *graph, const sonde__op_kind *kind,
                            const sonde__op_attrs *attrs, const sonde__op_value *in,
                            int in_count)
{
    static const sonde__op_attrs no_attrs = {0};
    sonde__graph_node_op op = {
        .kind = kind, .in_count = in_count, .out_count = kind->out_count};
    sonde__op_call call = {0};

    if (graph->err != SONDE_OK) {
        return 0;
    }
    op.given = attrs != NULL ? *attrs : no_attrs;
    op.attrs = op.given;
    op.given.half = graph->half != 0 ? graph->half : op.given.half;
    op.attrs.training = graph->training;
    op.module = graph->module;
    op.pass = graph->pass;
    op.stage = graph->stage;
    op.late = graph->late;
    for (int i = 0; i < in_count; i++) {
        op.in[i] = in[i];
    }
    if (!infer_shapes(graph, &op, &call)) {
        return 0;
    }
    for (int i = 0; i < kind->out_count; i++) {
        const sonde__graph_node_value value = {.shape = call.out[i].shape,
                                               .module = graph->module,
                                               .op = kind->name,
                                               .role = SONDE_ROLE_OTHER,
                                               .pass = graph->pass,
                                               .source = SONDE__FROM_OP};

        op.out[i] = append_value(graph, &value);
    }
    if (!sonde__reserve(&graph->ops, &graph->op_capacity, graph->op_count + 1,
                        sizeof *graph->ops)) {
        return sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL,
                                 "out of memory for ops");
    }
    if (graph->err != SONDE_OK) {
        return 0;
    }
    graph->ops[graph->op_count++] = op;
    return op.out[0];
}

static const sonde__op_graph_calls calls = {.emit = emit, .shape = shape_of};

sonde_err sonde__graph_init(sonde__op_graph *graph)
{
    *graph = (sonde__op_graph){.calls = &calls};
    sonde__names_init(&graph->strings);
    graph->pass = SONDE_PASS_FORWARD;
    if (!sonde__reserve(&graph->values, &graph->value_capacity, 1,
                        sizeof *graph->values)) {
        return SONDE_ENOMEM;
    }
    graph->values[0] = (sonde__graph_node_value){0};
    graph->value_count = 1;
    graph->module = sonde__graph_string(graph, "%s", "");
    return graph->module != NULL ? SONDE_OK : SONDE_ENOMEM;
}

bool sonde__graph_append(sonde__op_graph *graph, const sonde__graph_node_op *op)
{
    sonde__graph_node_op added = *op;
    sonde__op_call call = {0};

    if (graph->err != SONDE_OK || !infer_shapes(graph, &added, &call)) {
        return false;
    }
    if (!sonde__reserve(&graph->ops, &graph->op_capacity, graph->op_count + 1,
                        sizeof *graph->ops)) {
        (void)sonde__graph_fail(graph, SONDE_ENOMEM, NULL, NULL, "out of memory for ops");
        return false;
    }
    for (int i = 0; i < added.out_count; i++) {
        graph->values[added.out[i]].shape = call.out[i].shape;
    }
    graph->ops[graph->op_count++] = added;
    return true;
}

/* --- instantiating ------------------------------------------------------------------ */

/* Names and metadata of a value of source, with its strings interned in copy. */
static void copy_metadata(const sonde__op_graph *source, sonde__op_graph *copy,
                          sonde__op_value id)
{
    const sonde__graph_node_value *original = &source->values[id];
    sonde__graph_node_value *copied = &copy->values[id];

    copied->name =
        original->name != NULL ? sonde__graph_string(copy, "%s", original->name) : NULL;
    copied->module = sonde__graph_string(copy, "%s", original->module);
    copied->note = original->note;
    copied->role = original->role;
    copied->pass = original->pass;
}

static void copy_leaf(const sonde__op_graph *source, sonde__op_graph *copy,
                      sonde__op_value id, int64_t batch_size)
{
    const sonde__graph_node_value *original = &source->values[id];
    sonde__op_shape shape = original->shape;

    if (original->source == SONDE__FROM_INPUT && batch_size > 0 && shape.rank > 0) {
        shape.dim[0] = batch_size;
    }
    (void)sonde__graph_leaf(copy, &shape, original->source, original->index, NULL,
                            original->role);
}

static void copy_lists(const sonde__op_graph *source, sonde__op_graph *copy)
{
    for (size_t i = 0; i < source->input_count; i++) {
        (void)sonde__graph_push(copy, &copy->inputs, &copy->input_count,
                                &copy->input_capacity, source->inputs[i]);
    }
    for (size_t i = 0; i < source->output_count; i++) {
        (void)sonde__graph_push(copy, &copy->outputs, &copy->output_count,
                                &copy->output_capacity, source->outputs[i]);
    }
    for (size_t i = 0; i < source->alias_count; i++) {
        const sonde__graph_alias_entry *alias = &source->aliases[i];

        copy->module = sonde__graph_string(copy, "%s", alias->module);
        (void)sonde__graph_alias(copy, sonde__graph_string(copy, "%s", alias->name),
                                 alias->value, alias->role);
    }
    if (source->print_count > 0 &&
        !sonde__reserve(&copy->prints, &copy->print_capacity, source->print_count,
                        sizeof *copy->prints)) {
        (void)sonde__graph_fail(copy, SONDE_ENOMEM, NULL, NULL, "out of memory");
        return;
    }
    for (size_t i = 0; i < source->print_count; i++) {
        copy->prints[i] = source->prints[i];
        if (source->prints[i].title != NULL) {
            copy->prints[i].title =
                sonde__graph_string(copy, "%s", source->prints[i].title);
        }
    }
    copy->print_count = source->print_count;
    copy->loss = source->loss;
}

sonde_err sonde__graph_instantiate(const sonde__op_graph *source, int64_t batch_size,
                                   bool training, sonde__op_graph *copy, sonde_diag *diag)
{
    size_t next_op = 0;

    if (sonde__graph_init(copy) != SONDE_OK) {
        return sonde__fail_nomem(diag, "a graph");
    }
    copy->training = training;
    for (int i = 0; i < source->stage_count; i++) {
        copy->stages[i] = sonde__graph_string(copy, "%s", source->stages[i]);
    }
    copy->stage_count = source->stage_count;
    for (sonde__op_value id = 1; id < source->value_count && copy->err == SONDE_OK;) {
        const sonde__op_value first = id;

        if (source->values[id].source != SONDE__FROM_OP) {
            copy_leaf(source, copy, id++, batch_size);
        } else {
            const sonde__graph_node_op *op = &source->ops[next_op++];
            sonde__op_attrs attrs = op->given;

            copy->half = attrs.half; /* for autocast.c: shapes are still of float32 */
            attrs.half = 0;
            copy->module = sonde__graph_string(copy, "%s", op->module);
            copy->pass = op->pass;
            copy->stage = op->stage;
            (void)sonde__op_emit(copy, op->kind, &attrs, op->in, op->in_count);
            id += (sonde__op_value)op->out_count;
        }
        for (sonde__op_value value = first; value < id && copy->err == SONDE_OK;
             value++) {
            copy_metadata(source, copy, value);
        }
    }
    copy->half = 0;
    if (copy->err == SONDE_OK) {
        copy_lists(source, copy);
        copy->module = sonde__graph_string(copy, "%s", "");
    }
    if (copy->err != SONDE_OK && diag != NULL) {
        *diag = copy->diag;
    }
    return copy->err;
}
