/*
 * onnx_write.c - nodes, attributes and constants of an ONNX file.
 */
#include "nn/onnx/onnx_write.h"
#include "base/macros.h"
#include "nn/onnx/onnx_file.h"

#include <stdio.h>

/* --- values ----------------------------------------------------------------------------- */

/* The next place for a name. An op that needs more than there are is not written. */
static char *next_name(sonde__onnx_writer *writer)
{
    if (writer->named >= SONDE__ONNX_MADE_NAMES) {
        writer->graph.failed = true;
        writer->named = 0;
    }
    return writer->names[writer->named++];
}

/* A name that no value of the model has. */
static const char *new_name(sonde__onnx_writer *writer, const char *what)
{
    char *name = next_name(writer);

    (void)snprintf(name, SONDE__ONNX_MADE_NAME, "%s%s-%zu", writer->prefix, what,
                   writer->made++);
    return name;
}

const char *sonde__onnx_value_name(sonde__onnx_writer *writer, sonde__op_value value)
{
    char *name = NULL;

    if (writer->model->graph.values[value].name != NULL) {
        return writer->model->graph.values[value].name;
    }
    name = next_name(writer);
    (void)snprintf(name, SONDE__ONNX_MADE_NAME, "%svalue-%u", writer->prefix, value);
    return name;
}

bool sonde__onnx_has_operand(const sonde__onnx_writer *writer, int i)
{
    return i < writer->op->in_count && writer->op->in[i] != 0;
}

const char *sonde__onnx_operand(sonde__onnx_writer *writer, int i)
{
    return sonde__onnx_has_operand(writer, i)
               ? sonde__onnx_value_name(writer, writer->op->in[i])
               : "";
}

const sonde__op_shape *sonde__onnx_operand_shape(const sonde__onnx_writer *writer, int i)
{
    return &writer->model->graph.values[writer->op->in[i]].shape;
}

bool sonde__onnx_varies(const sonde__onnx_writer *writer, sonde__op_value value, int dim)
{
    return writer->other != NULL && writer->model->graph.values[value].shape.dim[dim] !=
                                        writer->other->values[value].shape.dim[dim];
}

int sonde__onnx_type(sonde_dtype dtype)
{
    static const int types[][2] = {
        {SONDE_F32, SONDE__ONNX_FLOAT},   {SONDE_F64, SONDE__ONNX_DOUBLE},
        {SONDE_F16, SONDE__ONNX_FLOAT16}, {SONDE_BF16, SONDE__ONNX_BFLOAT16},
        {SONDE_I64, SONDE__ONNX_INT64},   {SONDE_I32, SONDE__ONNX_INT32},
        {SONDE_BOOL, SONDE__ONNX_BOOL},   {SONDE_U8, SONDE__ONNX_UINT8},
    };

    for (size_t i = 0; i < SONDE_COUNT_OF(types); i++) {
        if (types[i][0] == (int)dtype) {
            return types[i][1];
        }
    }
    return 0;
}

/* --- constants --------------------------------------------------------------------------- */

/* count -1: a scalar. */
static const char *add_constant(sonde__onnx_writer *writer, int type, const void *data,
                                size_t size, int64_t count)
{
    const char *name = new_name(writer, "constant");
    sonde__onnx_wire tensor = {0};

    if (count >= 0) {
        sonde__onnx_wire_int(&tensor, 1, count);
    }
    sonde__onnx_wire_int(&tensor, 2, type);
    sonde__onnx_wire_text(&tensor, 8, name);
    sonde__onnx_wire_bytes(&tensor, 9, data, size);
    sonde__onnx_wire_message(&writer->graph, 5, &tensor);
    sonde__onnx_wire_free(&tensor);
    return name;
}

const char *sonde__onnx_scalar(sonde__onnx_writer *writer, double number)
{
    const float single = (float)number;

    return add_constant(writer, SONDE__ONNX_FLOAT, &single, sizeof single, -1);
}

const char *sonde__onnx_floats(sonde__onnx_writer *writer, const double *numbers,
                               int count)
{
    enum { MOST = 8 };
    float singles[MOST] = {0};

    for (int i = 0; i < count && i < MOST; i++) {
        singles[i] = (float)numbers[i];
    }
    return add_constant(writer, SONDE__ONNX_FLOAT, singles,
                        (size_t)count * sizeof *singles, count);
}

const char *sonde__onnx_integers(sonde__onnx_writer *writer, const int64_t *numbers,
                                 int count)
{
    return add_constant(writer, SONDE__ONNX_INT64, numbers,
                        (size_t)count * sizeof *numbers, count);
}

const char *sonde__onnx_single(sonde__onnx_writer *writer, int64_t number)
{
    return sonde__onnx_integers(writer, &number, 1);
}

/* --- attributes -------------------------------------------------------------------------- */

static void begin(sonde__onnx_writer *writer, const char *name, int type)
{
    sonde__onnx_wire_text(&writer->part, 1, name);
    sonde__onnx_wire_int(&writer->part, 20, type);
}

void sonde__onnx_set_int(sonde__onnx_writer *writer, const char *name, int64_t number)
{
    begin(writer, name, SONDE__ONNX_A_INT);
    sonde__onnx_wire_int(&writer->part, 3, number);
    sonde__onnx_wire_message(&writer->node, 5, &writer->part);
}

void sonde__onnx_set_float(sonde__onnx_writer *writer, const char *name, double number)
{
    begin(writer, name, SONDE__ONNX_A_FLOAT);
    sonde__onnx_wire_float(&writer->part, 2, (float)number);
    sonde__onnx_wire_message(&writer->node, 5, &writer->part);
}

void sonde__onnx_set_ints(sonde__onnx_writer *writer, const char *name,
                          const int64_t *numbers, int count)
{
    begin(writer, name, SONDE__ONNX_A_INTS);
    for (int i = 0; i < count; i++) {
        sonde__onnx_wire_int(&writer->part, 8, numbers[i]);
    }
    sonde__onnx_wire_message(&writer->node, 5, &writer->part);
}

void sonde__onnx_set_text(sonde__onnx_writer *writer, const char *name, const char *text)
{
    begin(writer, name, SONDE__ONNX_A_STRING);
    sonde__onnx_wire_text(&writer->part, 4, text);
    sonde__onnx_wire_message(&writer->node, 5, &writer->part);
}

void sonde__onnx_set_list(sonde__onnx_writer *writer, const char *name, const char *text)
{
    enum { STRINGS = 8 };

    begin(writer, name, STRINGS);
    sonde__onnx_wire_text(&writer->part, 9, text);
    sonde__onnx_wire_message(&writer->node, 5, &writer->part);
}

/* --- nodes ------------------------------------------------------------------------------- */

/* made: the name of the output that is meant. */
static void put_node(sonde__onnx_writer *writer, const char *op, int output,
                     const char *const *inputs, size_t count, const char *made)
{
    while (count > 0 && inputs[count - 1][0] == '\0') { /* left out at the end */
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        sonde__onnx_wire_text(&writer->node, 1, inputs[i]);
    }
    for (int k = 0; k < output; k++) {
        sonde__onnx_wire_text(&writer->node, 2, new_name(writer, "unread"));
    }
    sonde__onnx_wire_text(&writer->node, 2, made);
    sonde__onnx_wire_text(&writer->node, 3, made);
    sonde__onnx_wire_text(&writer->node, 4, op);
    sonde__onnx_wire_message(&writer->graph, 1, &writer->node);
}

const char *sonde__onnx_step(sonde__onnx_writer *writer, const char *op, int output,
                             const char *const *inputs, size_t count)
{
    const char *made = new_name(writer, "between");

    put_node(writer, op, output, inputs, count, made);
    return made;
}

bool sonde__onnx_end(sonde__onnx_writer *writer, const char *op, int output,
                     const char *const *inputs, size_t count)
{
    put_node(writer, op, output, inputs, count,
             sonde__onnx_value_name(writer, writer->op->out[0]));
    return true;
}

bool sonde__onnx_end_all(sonde__onnx_writer *writer, const char *op)
{
    const char *inputs[SONDE__MAX_OPERANDS];

    for (int i = 0; i < writer->op->in_count; i++) {
        inputs[i] = sonde__onnx_operand(writer, i);
    }
    return sonde__onnx_end(writer, op, 0, inputs, (size_t)writer->op->in_count);
}

const char *sonde__onnx_cut(sonde__onnx_writer *writer, const char *x, int64_t axis,
                            int64_t begin, int64_t end)
{
    return SONDE__ONNX_STEP(writer, "Slice", x, sonde__onnx_single(writer, begin),
                            sonde__onnx_single(writer, end),
                            sonde__onnx_single(writer, axis));
}

const char *sonde__onnx_reshaped(sonde__onnx_writer *writer, const char *x,
                                 const int64_t *dims, int count)
{
    return SONDE__ONNX_STEP(writer, "Reshape", x,
                            sonde__onnx_integers(writer, dims, count));
}

const char *sonde__onnx_turned(sonde__onnx_writer *writer, const char *x,
                               const int64_t *order, int count)
{
    sonde__onnx_set_ints(writer, "perm", order, count);
    return SONDE__ONNX_STEP(writer, "Transpose", x);
}

const char *sonde__onnx_truth(sonde__onnx_writer *writer, int i)
{
    if (sonde__onnx_operand_shape(writer, i)->dtype == SONDE_BOOL) {
        return sonde__onnx_operand(writer, i);
    }
    sonde__onnx_set_int(writer, "to", SONDE__ONNX_BOOL);
    return SONDE__ONNX_STEP(writer, "Cast", sonde__onnx_operand(writer, i));
}
