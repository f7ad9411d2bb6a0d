/*
 * program_places.c - see program_parts.h: attributes by name, and the lines of tensors.
 */
#include "program/program_parts.h"

#include "base/macros.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const sonde_place nowhere = {"", 0};

/* --- attributes --------------------------------------------------------------------- */

static const sonde_program_attribute *find(sonde_program_attributes attributes,
                                           const char *name)
{
    for (size_t i = 0; attributes.rows != NULL && name != NULL && i < attributes.count;
         i++) {
        if (strcmp(sonde__program_string(attributes.rows[i].name), name) == 0) {
            return &attributes.rows[i];
        }
    }
    return NULL;
}

const char *sonde_attribute_text(sonde_program_attributes attributes, const char *name)
{
    const sonde_program_attribute *found = find(attributes, name);

    return found != NULL ? sonde__program_string(found->text) : "";
}

double sonde_attribute_number(sonde_program_attributes attributes, const char *name,
                              double otherwise)
{
    const sonde_program_attribute *found = find(attributes, name);

    return found != NULL && !isnan(found->number) ? found->number : otherwise;
}

/* --- tensors ------------------------------------------------------------------------ */

int sonde_program_find(const sonde_program *program, const char *tensor)
{
    if (program == NULL || tensor == NULL || tensor[0] == '\0') {
        return -1;
    }
    for (size_t i = 0; i < program->value_count; i++) {
        if (strcmp(sonde__program_string(program->values[i].tensor), tensor) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* The line of the first operation that reads a value. */
static sonde_place first_reader(const sonde_program *program, int value)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        for (size_t k = 0; k < node->input_count; k++) {
            if (node->inputs[k] == value) {
                return node->place;
            }
        }
    }
    return nowhere;
}

static sonde_place place_of_value(const sonde_program *program, int value)
{
    const int node = program->values[value].node;

    return node >= 0 && (size_t)node < program->node_count ? program->nodes[node].place
                                                           : first_reader(program, value);
}

static sonde_place place_of_parameter(const sonde_program *program, const char *name)
{
    for (size_t i = 0; i < program->value_count; i++) {
        const sonde_program_value *value = &program->values[i];

        if (value->kind == SONDE_VALUE_PARAMETER && value->parameter >= 0 &&
            strcmp(program->parameters[value->parameter].name, name) == 0) {
            return first_reader(program, (int)i);
        }
    }
    return nowhere;
}

/* Whether a module is `name` or stands inside it. */
static bool is_in(const char *module, const char *name, size_t length)
{
    return strncmp(module, name, length) == 0 &&
           (module[length] == '\0' || module[length] == '.' || length == 0);
}

/* The line of the last operation in a module, or of its first call. */
static sonde_place place_of_module(const sonde_program *program, const char *name,
                                   size_t length, bool first)
{
    const sonde_program_node *found = NULL;

    for (size_t i = 0; i < program->node_count && !(first && found != NULL); i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->module >= 0 &&
            is_in(program->modules[node->module].name, name, length)) {
            found = node;
        }
    }
    if (found != NULL && found->place.file[0] != '\0') {
        return found->place;
    }
    for (size_t i = 0; i < program->module_count; i++) {
        if (strncmp(program->modules[i].name, name, length) == 0 &&
            program->modules[i].name[length] == '\0') {
            return program->modules[i].place;
        }
    }
    return nowhere;
}

/* "fc1_output_0", "fc1_input_0": a value of a module; digits may be missing. */
static bool is_module_value(const char *tensor, const char *word, size_t *length)
{
    const char *found = NULL;

    for (const char *next = strstr(tensor, word); next != NULL;
         next = strstr(next + 1, word)) {
        found = next;
    }
    if (found == NULL) {
        return false;
    }
    const char *rest = found + strlen(word);
    *length = (size_t)(found - tensor);
    return *rest == '\0' ||
           (*rest == '_' && rest[1 + strspn(rest + 1, "0123456789")] == '\0');
}

/* "loss", "loss/predictions", "loss_1/labels": the line of that loss. */
static sonde_place place_of_loss(const sonde_program *program, const char *tensor)
{
    static const char word[] = "loss";
    size_t number = 0;

    if (strncmp(tensor, word, sizeof word - 1) != 0) {
        return nowhere;
    }
    const char *rest = tensor + sizeof word - 1;
    while (*rest == '_' || (*rest >= '0' && *rest <= '9')) {
        number = *rest == '_' ? 0
                              : SONDE_MIN(10 * number + (size_t)(*rest - '0'),
                                          program->loss_count);
        rest++;
    }
    if ((*rest != '\0' && *rest != '/') || number >= program->loss_count ||
        program->losses[number].node < 0) {
        return nowhere;
    }
    return program->nodes[program->losses[number].node].place;
}

static sonde_place place_of(const sonde_program *program, const char *tensor)
{
    const int value = sonde_program_find(program, tensor);
    sonde_place place = value >= 0 ? place_of_value(program, value) : nowhere;
    size_t length = 0;

    if (place.file[0] == '\0') {
        place = place_of_parameter(program, tensor);
    }
    if (place.file[0] == '\0' && is_module_value(tensor, "_output", &length)) {
        place = place_of_module(program, tensor, length, false);
    }
    if (place.file[0] == '\0' && is_module_value(tensor, "_input", &length)) {
        place = place_of_module(program, tensor, length, true);
    }
    return place.file[0] == '\0' ? place_of_loss(program, tensor) : place;
}

sonde_place sonde_program_place_of(const sonde_program *program, const char *tensor)
{
    static const char *const prefixes[] = {"gradient/",     "update/",  "Gradient___",
                                           "UpdatedVar___", "Accum___", "Accl1___",
                                           "Accl2___",      "Accl3___", "Step___"};

    if (program == NULL || tensor == NULL) {
        return nowhere;
    }
    sonde_place place = place_of(program, tensor);
    for (size_t i = 0; i < SONDE_COUNT_OF(prefixes) && place.file[0] == '\0'; i++) {
        const size_t length = strlen(prefixes[i]);

        if (strncmp(tensor, prefixes[i], length) == 0) {
            place = place_of(program, tensor + length);
        }
    }
    return place;
}

/* --- lines -------------------------------------------------------------------------- */

const char *sonde_program_place_text(const sonde_program *program, sonde_place place,
                                     char *buf, size_t size)
{
    if (buf == NULL || size == 0) {
        return "";
    }
    const char *file = sonde__program_string(place.file);
    const char *root = program != NULL ? sonde__program_string(program->root) : "";
    const size_t length = strlen(root);

    if (length > 0 && strncmp(file, root, length) == 0 &&
        (file[length] == '/' || root[length - 1] == '/')) {
        file += length + (file[length] == '/');
    }
    if (file[0] != '\0' && place.line > 0) {
        (void)sonde__snprintf(buf, size, "%s:%d", file, place.line);
    } else {
        (void)sonde__snprintf(buf, size, "%s", file);
    }
    return buf;
}
