/*
 * program_read.c - see program_parts.h: a program from JSON.
 *
 * The tree of the JSON is walked twice by the same code: first to measure the block, then
 * to fill it (sonde__arena).
 */
#include "program/program_parts.h"

#include "base/fail.h"
#include "base/json_read.h"
#include "base/memory.h"

#include <sonde/json.h>

#include <limits.h>
#include <stdio.h>
#include <stdalign.h>
#include <string.h>

typedef struct reader {
    sonde__arena arena; /* base NULL: measures */
    sonde_err err;
    sonde_diag *diag;
    const char **files;
    size_t file_count;
    const char *list; /* of the row that is read; NULL: the program itself */
    size_t row;
    sonde_text scratch;
} reader;

/* --- fields ------------------------------------------------------------------------- */

static void complain(reader *in, const char *key, const char *expected,
                     const json_t *found)
{
    static const char *const kinds[] = {"an object", "a list", "a string", "an integer",
                                        "a number",  "true",   "false",    "null"};
    char where[96], number[32];

    if (in->err != SONDE_OK) {
        return;
    }
    if (in->list != NULL) {
        (void)snprintf(where, sizeof where, "program: %s[%zu].%s", in->list, in->row,
                       key);
    } else {
        (void)snprintf(where, sizeof where, "program: %s", key);
    }
    (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(found));
    in->err = sonde__fail(in->diag, SONDE_EFORMAT, where, expected, "%s%.60s%s",
                          json_is_string(found) ? "'" : "",
                          found == NULL            ? "nothing"
                          : json_is_string(found)  ? json_string_value(found)
                          : json_is_integer(found) ? number
                                                   : kinds[json_typeof(found)],
                          json_is_string(found) ? "'" : "");
}

static void *take(reader *in, size_t align, size_t size)
{
    return sonde__arena_take(&in->arena, align, size);
}

/* A copy in the block; while measuring, the text itself. */
static const char *keep(reader *in, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = size > 1 ? take(in, 1, size) : NULL;

    if (copy == NULL) {
        return size > 1 ? text : "";
    }
    memcpy(copy, text, size);
    return copy;
}

static const char *text_of(reader *in, const json_t *object, const char *key)
{
    const json_t *field = json_object_get(object, key);

    if (field != NULL && !json_is_string(field)) {
        complain(in, key, "a string", field);
    }
    return json_is_string(field) ? keep(in, json_string_value(field)) : "";
}

static bool bool_of(reader *in, const json_t *object, const char *key)
{
    const json_t *field = json_object_get(object, key);

    if (field != NULL && !json_is_boolean(field)) {
        complain(in, key, "true or false", field);
    }
    return json_is_true(field);
}

static int64_t integer_of(reader *in, const char *key, const json_t *field, int64_t most)
{
    if (!json_is_integer(field) || json_integer_value(field) < -1 ||
        json_integer_value(field) > most) {
        complain(in, key, "an integer of -1 or more", field);
        return -1;
    }
    return json_integer_value(field);
}

static int index_of(reader *in, const json_t *object, const char *key)
{
    const json_t *field = json_object_get(object, key);

    return field != NULL ? (int)integer_of(in, key, field, INT_MAX) : -1;
}

static const json_t *list_of(reader *in, const json_t *object, const char *key)
{
    const json_t *field = json_object_get(object, key);

    if (field != NULL && !json_is_array(field)) {
        complain(in, key, "a list", field);
    }
    return json_is_array(field) ? field : NULL;
}

static const int *indices_of(reader *in, const json_t *object, const char *key,
                             size_t *count)
{
    const json_t *list = list_of(in, object, key);
    int *indices = NULL;

    *count = json_array_size(list);
    indices = take(in, alignof(int), *count * sizeof *indices);
    for (size_t i = 0; i < *count && in->err == SONDE_OK; i++) {
        const int64_t index = integer_of(in, key, json_array_get(list, i), INT_MAX);

        if (indices != NULL) {
            indices[i] = (int)index;
        }
    }
    return indices;
}

/* The position of a word among several; a word that is not there is an error. */
static int word_of(reader *in, const json_t *object, const char *key,
                   const char *(*word)(int i), int count, int otherwise)
{
    const json_t *field = json_object_get(object, key);
    const char *text = json_string_value(field);
    char expected[160] = "one of";

    if (field == NULL && otherwise >= 0) {
        return otherwise;
    }
    for (int i = 0; text != NULL && i < count; i++) {
        if (strcmp(text, word(i)) == 0) {
            return i;
        }
    }
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(expected);

        (void)snprintf(expected + used, sizeof expected - used, " %s", word(i));
    }
    complain(in, key, expected, field);
    return 0;
}

static sonde_place place_of(reader *in, const json_t *object)
{
    const json_t *list = list_of(in, object, "place");
    sonde_place place = {"", 0};

    if (list == NULL) {
        return place;
    }
    const int64_t file = integer_of(in, "place", json_array_get(list, 0), INT_MAX);
    const int64_t line = integer_of(in, "place", json_array_get(list, 1), INT_MAX);

    if (json_array_size(list) != 2 || line < 0 ||
        (file >= 0 && (size_t)file >= in->file_count)) {
        complain(in, "place", "an index of files and a line", list);
        return place;
    }
    if (file >= 0 && in->files != NULL) {
        place = (sonde_place){in->files[file], (int)line};
    }
    return place;
}

/* --- attributes --------------------------------------------------------------------- */

enum { DEEPEST = 8 };

/* What an attribute that is no string says: 3, 0.1, true, [2, 3]. False: it is an object,
 * or too deep. */
static bool print(sonde_json *json, const json_t *value, int depth)
{
    bool good = depth < DEEPEST && !json_is_object(value);

    if (json_is_array(value) && good) {
        sonde_json_list(json, NULL);
        for (size_t i = 0; i < json_array_size(value) && good; i++) {
            good = print(json, json_array_get(value, i), depth + 1);
        }
        sonde_json_end(json);
    } else if (json_is_integer(value)) {
        sonde_json_int(json, NULL, json_integer_value(value));
    } else if (json_is_real(value)) {
        sonde_json_real(json, NULL, json_real_value(value));
    } else if (json_is_boolean(value)) {
        sonde_json_bool(json, NULL, json_is_true(value));
    } else if (good) {
        sonde_json_string(json, NULL, json_string_value(value));
    }
    return good;
}

static sonde_program_attribute attribute_of(reader *in, const char *name,
                                            const json_t *value)
{
    sonde_json json = {.text = &in->scratch, .spaced = true};
    sonde_program_attribute attribute = {.name = keep(in, name)};
    const char *text = json_string_value(value);
    bool is_integer = false;
    int64_t integer = 0;

    if (name[0] == '\0') {
        complain(in, "attributes", "a name for each", value);
    }
    if (text == NULL) {
        in->scratch.length = 0;
        if (!print(&json, value, 0)) {
            complain(in, name, "a string, a number, true, false or a list", value);
        }
        if (in->scratch.failed && in->err == SONDE_OK) {
            in->err = sonde__fail_nomem(in->diag, "a program");
        }
        text = in->err == SONDE_OK ? in->scratch.data : "";
    }
    attribute.number = sonde__program_number(text, &is_integer, &integer);
    attribute.text = keep(in, text);
    return attribute;
}

static sonde_program_attributes attributes_of(reader *in, const json_t *object,
                                              const char *key)
{
    json_t *field = json_object_get(object, key), *value = NULL;
    const char *name = NULL;
    size_t count = 0;

    if (field != NULL && !json_is_object(field)) {
        complain(in, key, "an object", field);
    }
    sonde_program_attribute *rows = take(in, alignof(sonde_program_attribute),
                                         json_object_size(field) * sizeof *rows);
    json_object_foreach(field, name, value)
    {
        const sonde_program_attribute row = attribute_of(in, name, value);

        if (rows != NULL) {
            rows[count] = row;
        }
        count++;
    }
    return (sonde_program_attributes){rows, count};
}

/* --- rows --------------------------------------------------------------------------- */

static const char *kind_word(int i)
{
    return sonde__program_kinds[i];
}

static const char *mode_word(int i)
{
    return sonde_mode_name((sonde_mode)i);
}

static const char *event_word(int i)
{
    return sonde_event_name((sonde_event_kind)i);
}

static const char *dtype_word(int i)
{
    return sonde_dtype_name((sonde_dtype)i);
}

static void read_value(reader *in, const json_t *object, void *out)
{
    sonde_program_value *value = out;
    const json_t *shape = list_of(in, object, "shape");

    value->kind = (sonde_value_kind)word_of(in, object, "kind", kind_word,
                                            SONDE__PROGRAM_KINDS, SONDE_VALUE_COMPUTED);
    value->dtype =
        (sonde_dtype)word_of(in, object, "dtype", dtype_word, SONDE_DTYPE_COUNT, -1);
    if (json_array_size(shape) > SONDE_MAX_DIMS) {
        complain(in, "shape", "at most 8 dimensions", shape);
        return;
    }
    value->rank = (int)json_array_size(shape);
    for (int d = 0; d < value->rank; d++) {
        value->shape[d] =
            integer_of(in, "shape", json_array_get(shape, (size_t)d), INT64_MAX);
    }
    value->tensor = text_of(in, object, "tensor");
    value->node = -1;
    value->parameter = index_of(in, object, "parameter");
    value->requires_grad = bool_of(in, object, "requires_grad");
    if (value->kind != SONDE_VALUE_PARAMETER) {
        value->parameter = -1;
    }
}

static void read_node(reader *in, const json_t *object, void *out)
{
    sonde_program_node *node = out;

    node->op = text_of(in, object, "op");
    node->attributes = attributes_of(in, object, "attributes");
    node->inputs = indices_of(in, object, "inputs", &node->input_count);
    node->outputs = indices_of(in, object, "outputs", &node->output_count);
    node->module = index_of(in, object, "module");
    node->place = place_of(in, object);
}

static void read_module(reader *in, const json_t *object, void *out)
{
    sonde_program_module *module = out;

    module->name = text_of(in, object, "name");
    module->kind = text_of(in, object, "kind");
    module->attributes = attributes_of(in, object, "attributes");
    module->registered = bool_of(in, object, "registered");
    module->called = bool_of(in, object, "called");
    module->training = bool_of(in, object, "training");
    module->place = place_of(in, object);
}

static void read_parameter(reader *in, const json_t *object, void *out)
{
    sonde_program_parameter *parameter = out;
    const json_t *count = json_object_get(object, "count");

    parameter->name = text_of(in, object, "name");
    parameter->module = index_of(in, object, "module");
    parameter->count = count != NULL ? integer_of(in, "count", count, INT64_MAX) : 0;
    parameter->requires_grad = bool_of(in, object, "requires_grad");
    parameter->optimizer = index_of(in, object, "optimizer");
    parameter->used = bool_of(in, object, "used");
    parameter->reached = bool_of(in, object, "reached");
}

static void read_optimizer(reader *in, const json_t *object, void *out)
{
    sonde_program_optimizer *optimizer = out;

    optimizer->name = text_of(in, object, "name");
    optimizer->kind = text_of(in, object, "kind");
    optimizer->attributes = attributes_of(in, object, "attributes");
}

static void read_event(reader *in, const json_t *object, void *out)
{
    sonde_program_event *event = out;

    event->kind =
        (sonde_event_kind)word_of(in, object, "event", event_word, SONDE_EVENT_COUNT, -1);
    event->module = index_of(in, object, "module");
    event->value = index_of(in, object, "value");
    event->node = index_of(in, object, "node");
    event->optimizer = index_of(in, object, "optimizer");
    event->training = bool_of(in, object, "training");
    event->grad = bool_of(in, object, "grad");
    event->autocast = bool_of(in, object, "autocast");
    event->attributes = attributes_of(in, object, "attributes");
    event->place = place_of(in, object);
}

static void read_loss(reader *in, const json_t *object, void *out)
{
    sonde_program_loss *loss = out;

    loss->node = index_of(in, object, "node");
    loss->value = index_of(in, object, "value");
    loss->predictions = index_of(in, object, "predictions");
    loss->targets = index_of(in, object, "targets");
    loss->backward = index_of(in, object, "backward");
}

typedef union any_row {
    sonde_program_value value;
    sonde_program_node node;
    sonde_program_module module;
    sonde_program_parameter parameter;
    sonde_program_optimizer optimizer;
    sonde_program_event event;
    sonde_program_loss loss;
} any_row;

/* The rows of a list; NULL while measuring. */
static void *rows_of(reader *in, const json_t *root, const char *key, size_t size,
                     void (*read)(reader *in, const json_t *object, void *out),
                     size_t *count)
{
    const json_t *list = list_of(in, root, key);
    unsigned char *rows = NULL;

    *count = json_array_size(list);
    rows = take(in, alignof(any_row), *count * size);
    in->list = key;
    for (size_t i = 0; i < *count && in->err == SONDE_OK; i++) {
        const json_t *object = json_array_get(list, i);
        any_row row;

        memset(&row, 0, sizeof row);
        in->row = i;
        if (!json_is_object(object)) {
            complain(in, "row", "an object", object);
            break;
        }
        read(in, object, &row);
        if (rows != NULL) {
            memcpy(rows + i * size, &row, size);
        }
    }
    in->list = NULL;
    return rows;
}

/* --- the program -------------------------------------------------------------------- */

static void read_files(reader *in, const json_t *root)
{
    const json_t *list = list_of(in, root, "files");

    in->file_count = json_array_size(list);
    in->files = take(in, alignof(const char *), in->file_count * sizeof(const char *));
    for (size_t i = 0; i < in->file_count; i++) {
        const char *file = json_string_value(json_array_get(list, i));

        if (file == NULL) {
            complain(in, "files", "strings", json_array_get(list, i));
            return;
        }
        file = keep(in, file);
        if (in->files != NULL) {
            in->files[i] = file;
        }
    }
}

/* The first node that has a value as its output makes it. */
static void set_nodes(sonde_program_value *values, const sonde_program_node *nodes,
                      size_t count)
{
    for (size_t i = count; i-- > 0;) {
        for (size_t k = 0; k < nodes[i].output_count; k++) {
            values[nodes[i].outputs[k]].node = (int)i;
        }
    }
}

/* The program in the block; while measuring, NULL, and what is wrong is found. */
static sonde_program *read_program(reader *in, const json_t *root,
                                   sonde_program_value **values)
{
    sonde_program *block = take(in, SONDE__ALIGN, sizeof *block);
    sonde_program program = {.size = sizeof program};

    read_files(in, root);
    program.producer = text_of(in, root, "producer");
    program.mode = (sonde_mode)word_of(in, root, "mode", mode_word, SONDE_MODE_COUNT,
                                       SONDE_MODE_TRAIN);
    program.root = text_of(in, root, "root");
    program.complete = bool_of(in, root, "complete");
    program.gap = text_of(in, root, "gap");
    *values =
        rows_of(in, root, "values", sizeof **values, read_value, &program.value_count);
    program.values = *values;
    program.nodes =
        rows_of(in, root, "nodes", sizeof *program.nodes, read_node, &program.node_count);
    program.modules = rows_of(in, root, "modules", sizeof *program.modules, read_module,
                              &program.module_count);
    program.parameters = rows_of(in, root, "parameters", sizeof *program.parameters,
                                 read_parameter, &program.parameter_count);
    program.optimizers = rows_of(in, root, "optimizers", sizeof *program.optimizers,
                                 read_optimizer, &program.optimizer_count);
    program.events = rows_of(in, root, "events", sizeof *program.events, read_event,
                             &program.event_count);
    program.losses = rows_of(in, root, "losses", sizeof *program.losses, read_loss,
                             &program.loss_count);
    program.facts = attributes_of(in, root, "facts");
    if (block != NULL) {
        *block = program;
    }
    return block;
}

static sonde_err check_version(const json_t *root, sonde_diag *diag)
{
    const json_t *version = json_object_get(root, "program");

    if (!json_is_integer(version) || json_integer_value(version) < 1) {
        return sonde__fail(diag, SONDE_EFORMAT, "program",
                           "an object with \"program\": 1", "text that is no program");
    }
    return json_integer_value(version) > SONDE__PROGRAM_VERSION
               ? sonde__fail(diag, SONDE_EUNSUPPORTED, "program", "version 1",
                             "version %lld", (long long)json_integer_value(version))
               : SONDE_OK;
}

static sonde_err build_from(const json_t *root, sonde_program **out, sonde_diag *diag)
{
    reader in = {.diag = diag};
    sonde_program_value *values = NULL;
    sonde_program *program = NULL;
    SONDE__TRY(check_version(root, diag));
    (void)read_program(&in, root, &values);
    if (in.err == SONDE_OK && sonde__arena_init(&in.arena, in.arena.used) != SONDE_OK) {
        in.err = sonde__fail_nomem(diag, "a program");
    }
    if (in.err == SONDE_OK) {
        program = read_program(&in, root, &values);
    }
    if (in.err == SONDE_OK) {
        in.err = sonde__program_check(program, SONDE_EFORMAT, diag);
    }
    sonde_text_fini(&in.scratch);
    if (in.err != SONDE_OK || program == NULL) {
        sonde__arena_fini(&in.arena);
        return in.err;
    }
    set_nodes(values, program->nodes, program->node_count);
    *out = program; /* the beginning of the block */
    return SONDE_OK;
}

sonde_err sonde__program_build(const char *text, size_t length, sonde_program **out,
                               sonde_diag *diag)
{
    json_error_t error = {.line = 0};
    bool no_memory = false;
    json_t *root =
        sonde__json_read(text, length, JSON_REJECT_DUPLICATES, &error, &no_memory);

    if (root == NULL) {
        return no_memory ? sonde__fail_nomem(diag, "a program")
                         : sonde__fail(diag, SONDE_EFORMAT, "program", "JSON",
                                       "line %d, column %d: %.100s", error.line,
                                       error.column, error.text);
    }
    const sonde_err err = build_from(root, out, diag);
    json_decref(root);
    return err;
}

sonde_err sonde__program_read(const char *text, size_t length, sonde_program **out,
                              sonde_text *own, sonde_diag *diag)
{
    sonde_program *program = NULL;
    SONDE__TRY(sonde__program_build(text, length, &program, diag));
    const sonde_err err = sonde__program_write(program, own, diag);

    if (err != SONDE_OK) {
        sonde_program_destroy(program);
        sonde_text_fini(own);
        return err;
    }
    program->digest = sonde__program_digest(own->data, own->length);
    *out = program;
    return SONDE_OK;
}

sonde_err sonde_program_read(const char *text, size_t length, sonde_program **out,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, out);
    sonde_text own = {0};
    const sonde_err err = sonde__program_read(text, length, out, &own, diag);

    sonde_text_fini(&own);
    return err;
}
