/*
 * program_text.c - see program_parts.h: a program as JSON. Keys at their default are left
 * out. Numbers have one spelling, so that a program that is read and written again has the
 * same text.
 */
#include "program/program_parts.h"

#include "base/fail.h"
#include "base/macros.h"
#include "base/names.h"
#include "base/number.h"

#include <sonde/json.h>

#include <xxhash.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const sonde__program_kinds[] = {"computed", "input", "parameter", "buffer",
                                            "constant"};

const char *sonde_event_name(sonde_event_kind kind)
{
    static const char *const names[SONDE_EVENT_COUNT] = {
        "batch", "forward",   "loss",      "backward", "unscale",   "clip",
        "step",  "zero_grad", "scheduler", "mode",     "evaluation"};
    const size_t i = (size_t)kind;

    return i < SONDE_COUNT_OF(names) ? names[i] : "?";
}

uint64_t sonde__program_digest(const char *text, size_t length)
{
    return XXH3_64bits(text, length);
}

double sonde__program_number(const char *text, bool *is_integer, int64_t *integer)
{
    char *end = NULL;

    *is_integer = false;
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        return text[0] == 't' ? 1.0 : 0.0;
    }
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') {
        return NAN;
    }
    errno = 0;
    *integer = strtoll(text, &end, 10);
    if (*end == '\0' && errno == 0) {
        *is_integer = true;
        return (double)*integer;
    }
    const double number = sonde__strtod(text, &end);
    return *end == '\0' && isfinite(number) ? number : (double)NAN;
}

/* --- writing ------------------------------------------------------------------------ */

typedef struct writer {
    sonde_json json;
    sonde__names files;
} writer;

/* An attribute that only has a number is written as that. */
static void put_attribute(sonde_json *json, const sonde_program_attribute *attribute)
{
    const char *text = sonde__program_string(attribute->text);
    const char *name = sonde__program_string(attribute->name);
    bool is_integer = false;
    int64_t integer = 0;
    const double number = sonde__program_number(text, &is_integer, &integer);

    if (text[0] == '\0' && !isnan(attribute->number)) {
        sonde_json_real(json, name, attribute->number);
    } else if (text[0] == 't' && number == 1.0) {
        sonde_json_bool(json, name, true);
    } else if (text[0] == 'f' && number == 0.0) {
        sonde_json_bool(json, name, false);
    } else if (is_integer) {
        sonde_json_int(json, name, integer);
    } else if (!isnan(number)) {
        sonde_json_real(json, name, number);
    } else {
        sonde_json_string(json, name, text);
    }
}

static void put_attributes(sonde_json *json, const char *key,
                           sonde_program_attributes attributes)
{
    if (attributes.count == 0) {
        return;
    }
    sonde_json_object(json, key);
    for (size_t i = 0; i < attributes.count; i++) {
        put_attribute(json, &attributes.rows[i]);
    }
    sonde_json_end(json);
}

static void put_text(sonde_json *json, const char *key, const char *text)
{
    if (sonde__program_string(text)[0] != '\0') {
        sonde_json_string(json, key, text);
    }
}

static void put_true(sonde_json *json, const char *key, bool value)
{
    if (value) {
        sonde_json_bool(json, key, true);
    }
}

static void put_index(sonde_json *json, const char *key, int index)
{
    if (index >= 0) {
        sonde_json_int(json, key, index);
    }
}

static void put_indices(sonde_json *json, const char *key, const int *indices,
                        size_t count)
{
    if (count == 0) {
        return;
    }
    sonde_json_list(json, key);
    for (size_t i = 0; i < count; i++) {
        sonde_json_int(json, NULL, indices[i]);
    }
    sonde_json_end(json);
}

static void put_place(writer *work, sonde_place place)
{
    const char *file = sonde__program_string(place.file);

    if (file[0] == '\0') {
        return;
    }
    sonde_json_list(&work->json, "place");
    sonde_json_uint(&work->json, NULL, sonde__names_find(&work->files, file));
    sonde_json_int(&work->json, NULL, place.line);
    sonde_json_end(&work->json);
}

static void put_value(writer *work, const sonde_program_value *value)
{
    sonde_json *json = &work->json;

    if (value->kind != SONDE_VALUE_COMPUTED) {
        sonde_json_string(json, "kind", sonde__program_kinds[value->kind]);
    }
    sonde_json_string(json, "dtype", sonde_dtype_name(value->dtype));
    if (value->rank > 0) {
        sonde_json_list(json, "shape");
        for (int d = 0; d < value->rank; d++) {
            sonde_json_int(json, NULL, value->shape[d]);
        }
        sonde_json_end(json);
    }
    put_text(json, "tensor", value->tensor);
    put_index(json, "parameter",
              value->kind == SONDE_VALUE_PARAMETER ? value->parameter : -1);
    put_true(json, "requires_grad", value->requires_grad);
}

static void put_node(writer *work, const sonde_program_node *node)
{
    sonde_json_string(&work->json, "op", node->op);
    put_attributes(&work->json, "attributes", node->attributes);
    put_indices(&work->json, "inputs", node->inputs, node->input_count);
    put_indices(&work->json, "outputs", node->outputs, node->output_count);
    put_index(&work->json, "module", node->module);
    put_place(work, node->place);
}

static void put_module(writer *work, const sonde_program_module *module)
{
    put_text(&work->json, "name", module->name);
    put_text(&work->json, "kind", module->kind);
    put_attributes(&work->json, "attributes", module->attributes);
    put_true(&work->json, "registered", module->registered);
    put_true(&work->json, "called", module->called);
    put_true(&work->json, "training", module->training);
    put_place(work, module->place);
}

static void put_parameter(writer *work, const sonde_program_parameter *parameter)
{
    put_text(&work->json, "name", parameter->name);
    put_index(&work->json, "module", parameter->module);
    if (parameter->count != 0) {
        sonde_json_int(&work->json, "count", parameter->count);
    }
    put_true(&work->json, "requires_grad", parameter->requires_grad);
    put_index(&work->json, "optimizer", parameter->optimizer);
    put_true(&work->json, "used", parameter->used);
    put_true(&work->json, "reached", parameter->reached);
}

static void put_optimizer(writer *work, const sonde_program_optimizer *optimizer)
{
    put_text(&work->json, "name", optimizer->name);
    put_text(&work->json, "kind", optimizer->kind);
    put_attributes(&work->json, "attributes", optimizer->attributes);
}

static void put_event(writer *work, const sonde_program_event *event)
{
    sonde_json *json = &work->json;

    sonde_json_string(json, "event", sonde_event_name(event->kind));
    put_index(json, "module", event->module);
    put_index(json, "value", event->value);
    put_index(json, "node", event->node);
    put_index(json, "optimizer", event->optimizer);
    put_true(json, "training", event->training);
    put_true(json, "grad", event->grad);
    put_true(json, "autocast", event->autocast);
    put_attributes(json, "attributes", event->attributes);
    put_place(work, event->place);
}

static void put_loss(writer *work, const sonde_program_loss *loss)
{
    put_index(&work->json, "node", loss->node);
    put_index(&work->json, "value", loss->value);
    put_index(&work->json, "predictions", loss->predictions);
    put_index(&work->json, "targets", loss->targets);
    put_index(&work->json, "backward", loss->backward);
}

/* A list of the rows of a program, if there are any. */
#define PUT_ROWS(work, key, rows, count, put)                                            \
    do {                                                                                 \
        if ((count) > 0) {                                                               \
            sonde_json_list(&(work)->json, (key));                                       \
            for (size_t row_ = 0; row_ < (count); row_++) {                              \
                sonde_json_object(&(work)->json, NULL);                                  \
                put((work), &(rows)[row_]);                                              \
                sonde_json_end(&(work)->json);                                           \
            }                                                                            \
            sonde_json_end(&(work)->json);                                               \
        }                                                                                \
    } while (0)

static bool intern(writer *work, sonde_place place)
{
    const char *file = sonde__program_string(place.file);

    return file[0] == '\0' || sonde__names_intern(&work->files, file) != SONDE__NO_NAME;
}

/* The files of all places, each once. */
static bool list_files(writer *work, const sonde_program *program)
{
    bool good = true;

    for (size_t i = 0; i < program->node_count; i++) {
        good = good && intern(work, program->nodes[i].place);
    }
    for (size_t i = 0; i < program->module_count; i++) {
        good = good && intern(work, program->modules[i].place);
    }
    for (size_t i = 0; i < program->event_count; i++) {
        good = good && intern(work, program->events[i].place);
    }
    return good;
}

static void put_head(writer *work, const sonde_program *program)
{
    sonde_json *json = &work->json;

    sonde_json_int(json, "program", SONDE__PROGRAM_VERSION);
    put_text(json, "producer", program->producer);
    sonde_json_string(json, "mode", sonde_mode_name(program->mode));
    put_text(json, "root", program->root);
    put_true(json, "complete", program->complete);
    put_text(json, "gap", program->gap);
    if (work->files.count > 0) {
        sonde_json_list(json, "files");
        for (size_t i = 0; i < work->files.count; i++) {
            sonde_json_string(json, NULL, work->files.text[i]);
        }
        sonde_json_end(json);
    }
}

sonde_err sonde__program_write(const sonde_program *program, sonde_text *text,
                               sonde_diag *diag)
{
    writer work = {.json = {.text = text}};

    sonde__names_init(&work.files);
    if (list_files(&work, program)) {
        sonde_json_object(&work.json, NULL);
        put_head(&work, program);
        PUT_ROWS(&work, "values", program->values, program->value_count, put_value);
        PUT_ROWS(&work, "nodes", program->nodes, program->node_count, put_node);
        PUT_ROWS(&work, "modules", program->modules, program->module_count, put_module);
        PUT_ROWS(&work, "parameters", program->parameters, program->parameter_count,
                 put_parameter);
        PUT_ROWS(&work, "optimizers", program->optimizers, program->optimizer_count,
                 put_optimizer);
        PUT_ROWS(&work, "events", program->events, program->event_count, put_event);
        PUT_ROWS(&work, "losses", program->losses, program->loss_count, put_loss);
        put_attributes(&work.json, "facts", program->facts);
        sonde_json_end(&work.json);
    } else {
        text->failed = true;
    }
    sonde__names_fini(&work.files);
    return text->failed ? sonde__fail_nomem(diag, "the text of a program") : SONDE_OK;
}
