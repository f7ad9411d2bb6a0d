/*
 * program_copy.c - see program_parts.h: checks of a program, and copies.
 */
#include "program/program_parts.h"

#include "base/fail.h"
#include "base/memory.h"
#include "base/options.h"

#include <stdio.h>

/* --- checks ------------------------------------------------------------------------- */

/* A check under way: the row that is looked at, and the first thing that is wrong. */
typedef struct check {
    const sonde_program *program;
    sonde_err code, err;
    sonde_diag *diag;
    const char *list;
    size_t row;
} check;

static void complain(check *work, const char *field, const char *expected,
                     long long found)
{
    char where[96];

    if (work->err == SONDE_OK) {
        (void)snprintf(where, sizeof where, "program: %s[%zu].%s", work->list, work->row,
                       field);
        work->err = sonde__fail(work->diag, work->code, where, expected, "%lld", found);
    }
}

/* An index into an array of `count`; -1: none. */
static void check_index(check *work, const char *field, int index, size_t count)
{
    char expected[64];

    if (index < -1 || (index >= 0 && (size_t)index >= count)) {
        (void)snprintf(expected, sizeof expected,
                       count > 0 ? "-1 or an index below %zu" : "-1: there are none",
                       count);
        complain(work, field, expected, index);
    }
}

static void check_indices(check *work, const char *field, const int *indices,
                          size_t count, int least)
{
    char one[48];

    if (count > 0 && indices == NULL) {
        complain(work, field, "an array", 0);
    }
    for (size_t i = 0; i < count && work->err == SONDE_OK; i++) {
        (void)snprintf(one, sizeof one, "%s[%zu]", field, i);
        if (indices[i] < least) {
            complain(work, one, least < 0 ? "-1 or an index" : "an index", indices[i]);
        }
        check_index(work, one, indices[i], work->program->value_count);
    }
}

static void check_place(check *work, sonde_place place)
{
    if (place.line < 0) {
        complain(work, "place.line", "0 or more", place.line);
    }
}

static void check_attributes(check *work, const char *field,
                             sonde_program_attributes attributes)
{
    if (attributes.count > 0 && attributes.rows == NULL) {
        complain(work, field, "an array", 0);
    }
    for (size_t i = 0; i < attributes.count && work->err == SONDE_OK; i++) {
        if (sonde__program_string(attributes.rows[i].name)[0] == '\0') {
            complain(work, field, "a name for each", (long long)i);
        }
    }
}

static void check_value(check *work, size_t i)
{
    const sonde_program_value *value = &work->program->values[i];

    if ((unsigned)value->kind >= SONDE__PROGRAM_KINDS) {
        complain(work, "kind", "a sonde_value_kind", (int)value->kind);
    }
    if (sonde_dtype_size(value->dtype) == 0) {
        complain(work, "dtype", "a sonde_dtype", (int)value->dtype);
    }
    if (value->rank < 0 || value->rank > SONDE_MAX_DIMS) {
        complain(work, "rank", "0 to 8", value->rank);
    }
    for (int d = 0; work->err == SONDE_OK && d < value->rank; d++) {
        if (value->shape[d] < 0) {
            complain(work, "shape", "0 or more", (long long)value->shape[d]);
        }
    }
    if (value->kind == SONDE_VALUE_PARAMETER) {
        check_index(work, "parameter", value->parameter, work->program->parameter_count);
    }
}

static void check_node(check *work, size_t i)
{
    const sonde_program_node *node = &work->program->nodes[i];

    if (sonde__program_string(node->op)[0] == '\0') {
        complain(work, "op", "a name", 0);
    }
    check_indices(work, "inputs", node->inputs, node->input_count, -1);
    check_indices(work, "outputs", node->outputs, node->output_count, 0);
    check_index(work, "module", node->module, work->program->module_count);
    check_attributes(work, "attributes", node->attributes);
    check_place(work, node->place);
}

static void check_module(check *work, size_t i)
{
    check_attributes(work, "attributes", work->program->modules[i].attributes);
    check_place(work, work->program->modules[i].place);
}

static void check_parameter(check *work, size_t i)
{
    const sonde_program_parameter *parameter = &work->program->parameters[i];

    check_index(work, "module", parameter->module, work->program->module_count);
    check_index(work, "optimizer", parameter->optimizer, work->program->optimizer_count);
    if (parameter->count < 0) {
        complain(work, "count", "0 or more", (long long)parameter->count);
    }
}

static void check_optimizer(check *work, size_t i)
{
    check_attributes(work, "attributes", work->program->optimizers[i].attributes);
}

static void check_event(check *work, size_t i)
{
    const sonde_program_event *event = &work->program->events[i];

    if ((unsigned)event->kind >= SONDE_EVENT_COUNT) {
        complain(work, "event", "a sonde_event_kind", (int)event->kind);
    }
    check_index(work, "module", event->module, work->program->module_count);
    check_index(work, "value", event->value, work->program->value_count);
    check_index(work, "node", event->node, work->program->node_count);
    check_index(work, "optimizer", event->optimizer, work->program->optimizer_count);
    check_attributes(work, "attributes", event->attributes);
    check_place(work, event->place);
}

static void check_loss(check *work, size_t i)
{
    const sonde_program *program = work->program;
    const sonde_program_loss *loss = &program->losses[i];

    check_index(work, "node", loss->node, program->node_count);
    check_index(work, "value", loss->value, program->value_count);
    check_index(work, "predictions", loss->predictions, program->value_count);
    check_index(work, "targets", loss->targets, program->value_count);
    check_index(work, "backward", loss->backward, program->event_count);
}

static void check_rows(check *work, const char *list, const void *rows, size_t count,
                       void (*row)(check *work, size_t i))
{
    work->list = list;
    if (count > 0 && rows == NULL && work->err == SONDE_OK) {
        work->err = sonde__fail(work->diag, work->code, list, "an array",
                                "%zu rows at NULL", count);
    }
    if (count >= INT32_MAX && work->err == SONDE_OK) {
        work->err = sonde__fail(work->diag, work->code, list, "fewer than 2^31 rows",
                                "%zu", count);
    }
    for (size_t i = 0; i < count && work->err == SONDE_OK; i++) {
        work->row = i;
        row(work, i);
    }
}

sonde_err sonde__program_check(const sonde_program *program, sonde_err code,
                               sonde_diag *diag)
{
    check work = {.program = program, .code = code, .diag = diag};

    if ((unsigned)program->mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, code, "program: mode", "a sonde_mode", "%d",
                           (int)program->mode);
    }
    check_rows(&work, "values", program->values, program->value_count, check_value);
    check_rows(&work, "nodes", program->nodes, program->node_count, check_node);
    check_rows(&work, "modules", program->modules, program->module_count, check_module);
    check_rows(&work, "parameters", program->parameters, program->parameter_count,
               check_parameter);
    check_rows(&work, "optimizers", program->optimizers, program->optimizer_count,
               check_optimizer);
    check_rows(&work, "events", program->events, program->event_count, check_event);
    check_rows(&work, "losses", program->losses, program->loss_count, check_loss);
    work.list = "facts";
    work.row = 0;
    check_attributes(&work, "name", program->facts);
    return work.err;
}

/* --- copies ------------------------------------------------------------------------- */

sonde_err sonde__program_take(const sonde_program *program, sonde_program **out,
                              sonde_text *text, sonde_diag *diag)
{
    sonde_program own;
    SONDE__TAKE(sonde_program, &own, program, diag);
    SONDE__TRY(sonde__program_check(&own, SONDE_EINVAL, diag));
    SONDE__TRY(sonde__program_write(&own, text, diag));
    const sonde_err err = sonde__program_build(text->data, text->length, out, diag);

    if (err == SONDE_OK) {
        (*out)->digest = sonde__program_digest(text->data, text->length);
    }
    return err == SONDE_EFORMAT ? SONDE_EINVAL : err; /* an attribute stands twice */
}

sonde_err sonde_program_copy(const sonde_program *program, sonde_program **out,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, program, out);
    sonde_text text = {0};
    const sonde_err err = sonde__program_take(program, out, &text, diag);

    sonde_text_fini(&text);
    return err;
}

sonde_err sonde_program_text(const sonde_program *program, char **out, size_t *length,
                             sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "program, text, length", program, out, length);
    sonde_program own;
    sonde_text text = {0};
    SONDE__TAKE(sonde_program, &own, program, diag);
    SONDE__TRY(sonde__program_check(&own, SONDE_EINVAL, diag));
    const sonde_err err = sonde__program_write(&own, &text, diag);

    if (err != SONDE_OK) {
        sonde_text_fini(&text);
        return err;
    }
    *out = text.data;
    *length = text.length;
    return SONDE_OK;
}

void sonde_program_destroy(sonde_program *program)
{
    sonde__free(program);
}
