/*
 * yaml.c - libyaml's events become a tree, and readers of its values.
 */
#include "base/yaml.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/number.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include <sonde/error.h>

enum { MAX_DEPTH = 16 };

typedef struct builder {
    yaml_parser_t parser;
    const char *name;
    sonde_diag *diag;
} builder;

void sonde__yaml_destroy(sonde__yaml *node)
{
    if (node == NULL) {
        return;
    }
    for (size_t i = 0; i < node->count; i++) {
        sonde__yaml_destroy(node->children[i]);
    }
    sonde__free(node->children);
    sonde__free(node->key);
    sonde__free(node->text);
    sonde__free(node);
}

static sonde_err fail_at(const builder *b, size_t line, sonde_err err,
                         const char *expected, const char *found)
{
    char where[256];

    (void)snprintf(where, sizeof where, "%s:%zu", b->name, line + 1);
    return sonde__fail(b->diag, err, where, expected, "%s", found);
}

static sonde_err next_event(builder *b, yaml_event_t *event)
{
    if (yaml_parser_parse(&b->parser, event)) {
        return SONDE_OK;
    }
    if (b->parser.error == YAML_MEMORY_ERROR) {
        return sonde__fail_nomem(b->diag, "YAML");
    }
    return fail_at(b, b->parser.problem_mark.line, SONDE_EFORMAT, "YAML or JSON",
                   b->parser.problem != NULL ? b->parser.problem : "not YAML");
}

static sonde_err build(builder *b, const yaml_event_t *event, int depth,
                       sonde__yaml **out);

static sonde_err add_child(builder *b, sonde__yaml *parent, char *key,
                           const yaml_event_t *event, int depth)
{
    sonde__yaml *child = NULL;
    sonde_err err = build(b, event, depth + 1, &child);

    if (err != SONDE_OK) {
        goto error;
    }
    if (!sonde__reserve(&parent->children, &parent->capacity, parent->count + 1,
                        sizeof(sonde__yaml *))) {
        err = sonde__fail_nomem(b->diag, "YAML");
        goto error;
    }
    child->key = key;
    parent->children[parent->count++] = child;
    return SONDE_OK;

error:
    sonde__yaml_destroy(child);
    sonde__free(key);
    return err;
}

/* The scalar of a map's key, checked: a plain text that the map does not have yet. */
static sonde_err take_key(builder *b, const sonde__yaml *map, const yaml_event_t *event,
                          char **key)
{
    const size_t line = event->start_mark.line;

    if (event->type != YAML_SCALAR_EVENT) {
        return fail_at(b, line, SONDE_EFORMAT, "a word", "a key that is no scalar");
    }
    const char *text = (const char *)event->data.scalar.value;
    if (sonde__yaml_get(map, text) != NULL) {
        return fail_at(b, line, SONDE_EINVAL, "each key once", "a key appears twice");
    }
    *key = sonde__strdup(text);
    return *key != NULL ? SONDE_OK : sonde__fail_nomem(b->diag, "YAML");
}

/* Everything up to the end of a list or a map. */
static sonde_err build_children(builder *b, sonde__yaml *node, int depth)
{
    const yaml_event_type_t end =
        node->kind == SONDE__YAML_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;

    for (;;) {
        yaml_event_t event;
        char *key = NULL;
        size_t line = 0;
        sonde_err err = next_event(b, &event);

        if (err != SONDE_OK) {
            return err;
        }
        line = event.start_mark.line;
        if (event.type == end) {
            yaml_event_delete(&event);
            return SONDE_OK;
        }
        if (node->kind == SONDE__YAML_MAP) {
            err = take_key(b, node, &event, &key);
            yaml_event_delete(&event);
            if (err != SONDE_OK) {
                return err;
            }
            err = next_event(b, &event);
            if (err != SONDE_OK) {
                sonde__free(key);
                return err;
            }
        }
        err = add_child(b, node, key, &event, depth);
        yaml_event_delete(&event);
        if (err != SONDE_OK) {
            return err;
        }
        node->children[node->count - 1]->line = (int)line + 1;
    }
}

static sonde_err build(builder *b, const yaml_event_t *event, int depth,
                       sonde__yaml **out)
{
    sonde__yaml *node = NULL;
    sonde_err err = SONDE_OK;

    if (depth > MAX_DEPTH) {
        return fail_at(b, event->start_mark.line, SONDE_EINVAL, "at most 16 levels",
                       "nested too deep");
    }
    if (event->type == YAML_ALIAS_EVENT) {
        return fail_at(b, event->start_mark.line, SONDE_EINVAL, "values written out",
                       "anchors and aliases are not read");
    }
    node = sonde__calloc(1, sizeof *node);
    if (node == NULL) {
        return sonde__fail_nomem(b->diag, "YAML");
    }
    node->line = (int)event->start_mark.line + 1;
    if (event->type == YAML_SCALAR_EVENT) {
        node->kind = SONDE__YAML_SCALAR;
        node->text = sonde__strdup((const char *)event->data.scalar.value);
        err = node->text != NULL ? SONDE_OK : sonde__fail_nomem(b->diag, "YAML");
    } else {
        node->kind =
            event->type == YAML_MAPPING_START_EVENT ? SONDE__YAML_MAP : SONDE__YAML_LIST;
        err = build_children(b, node, depth);
    }
    if (err != SONDE_OK) {
        sonde__yaml_destroy(node);
        return err;
    }
    *out = node;
    return SONDE_OK;
}

/* The first node of a stream that has exactly one document. */
static sonde_err build_document(builder *b, sonde__yaml **out)
{
    sonde__yaml *root = NULL;
    sonde_err err = SONDE_OK;
    bool done = false;

    while (!done) {
        yaml_event_t event;

        SONDE__TRY_GO(next_event(b, &event));
        if (event.type == YAML_STREAM_END_EVENT) {
            done = true;
        } else if (event.type == YAML_DOCUMENT_START_EVENT && root != NULL) {
            err = fail_at(b, event.start_mark.line, SONDE_EINVAL, "one document",
                          "a second document begins");
        } else if (event.type == YAML_SCALAR_EVENT || event.type == YAML_ALIAS_EVENT ||
                   event.type == YAML_MAPPING_START_EVENT ||
                   event.type == YAML_SEQUENCE_START_EVENT) {
            err = build(b, &event, 0, &root);
        }
        yaml_event_delete(&event);
        if (err != SONDE_OK) {
            goto error;
        }
    }
    if (root == NULL) {
        return fail_at(b, 0, SONDE_EFORMAT, "keys and values", "the file is empty");
    }
    *out = root;
    return SONDE_OK;

error:
    sonde__yaml_destroy(root);
    return err;
}

sonde_err sonde__yaml_parse(const char *text, size_t size, const char *name,
                            sonde__yaml **out, sonde_diag *diag)
{
    builder b = {.name = name, .diag = diag};
    sonde_err err = SONDE_OK;

    if (!yaml_parser_initialize(&b.parser)) {
        return sonde__fail_nomem(diag, "YAML");
    }
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, size);
    err = build_document(&b, out);
    yaml_parser_delete(&b.parser);
    return err;
}

/* --- reading ---------------------------------------------------------------------- */

sonde_err sonde__yaml_fail(const sonde__yaml_reader *reader, const sonde__yaml *node,
                           sonde_err err, const char *expected, const char *found, ...)
{
    char where[256], text[384];
    va_list args;

    va_start(args, found);
    (void)sonde__vsnprintf(text, sizeof text, found, args);
    va_end(args);
    (void)snprintf(where, sizeof where, "%s:%d", reader->name, node->line);
    return sonde__fail(reader->diag, err, where, expected, "%s", text);
}

const sonde__yaml *sonde__yaml_get(const sonde__yaml *map, const char *key)
{
    for (size_t i = 0; map->kind == SONDE__YAML_MAP && i < map->count; i++) {
        if (strcmp(map->children[i]->key, key) == 0) {
            return map->children[i];
        }
    }
    return NULL;
}

/* All keys as "one of a, b, c", for a key that is near to none. */
static const char *list_keys(const char *const *keys, size_t count, char *buf,
                             size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "%s", count > 1 ? "one of " : "");

    for (size_t i = 0; i < count; i++) {
        const bool fits = used + strlen(keys[i]) + sizeof ", , ..." <= size;

        used += (size_t)snprintf(buf + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 fits ? keys[i] : "...");
        if (!fits) {
            break;
        }
    }
    return buf;
}

sonde_err sonde__yaml_check_keys(const sonde__yaml_reader *reader, const sonde__yaml *map,
                                 const char *const *keys, size_t count)
{
    if (map->kind != SONDE__YAML_MAP) {
        const char *what = map->kind == SONDE__YAML_LIST ? "a list"
                           : map->text[0] == '\0'        ? "nothing"
                                                         : map->text;

        return map->key != NULL && map->kind == SONDE__YAML_LIST
                   ? sonde__yaml_fail(reader, map, SONDE_EINVAL, "keys and values",
                                      "'%s' is a list", map->key)
                   : sonde__yaml_fail(reader, map, SONDE_EINVAL, "keys and values", "%s",
                                      what);
    }
    for (size_t i = 0; i < map->count; i++) {
        const char *key = map->children[i]->key;
        const char *nearest = sonde_diag_nearest(key, keys, count);
        bool known = false;

        for (size_t j = 0; j < count && !known; j++) {
            known = strcmp(key, keys[j]) == 0;
        }
        if (!known) {
            char all[256];

            return sonde__yaml_fail(
                reader, map->children[i], SONDE_EINVAL,
                nearest != NULL ? nearest : list_keys(keys, count, all, sizeof all),
                "unknown key '%s'", key);
        }
    }
    return SONDE_OK;
}

static sonde_err read_scalar(const sonde__yaml_reader *reader, const sonde__yaml *node,
                             const char *expected)
{
    if (node->kind == SONDE__YAML_SCALAR) {
        return SONDE_OK;
    }
    return sonde__yaml_fail(reader, node, SONDE_EINVAL, expected, "'%s' is a %s",
                            node->key != NULL ? node->key : "entry",
                            node->kind == SONDE__YAML_LIST ? "list" : "map");
}

static sonde_err read_int(const sonde__yaml_reader *reader, const sonde__yaml *node,
                          int64_t lower, int64_t upper, int64_t *out)
{
    SONDE__TRY(read_scalar(reader, node, "a whole number"));
    char *end = NULL, expected[96];
    long long value = 0;
    errno = 0;
    value = strtoll(node->text, &end, 10);
    if (end == node->text || *end != '\0' || errno != 0 || value < lower ||
        value > upper) {
        (void)snprintf(expected, sizeof expected,
                       "a whole number from %" PRId64 " to %" PRId64, lower, upper);
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, expected, "%s is '%s'",
                                node->key != NULL ? node->key : "entry", node->text);
    }
    *out = value;
    return SONDE_OK;
}

sonde_err sonde__yaml_int(const sonde__yaml_reader *reader, const sonde__yaml *map,
                          const char *key, int64_t lower, int64_t upper, int64_t *out)
{
    const sonde__yaml *node = sonde__yaml_get(map, key);

    return node != NULL ? read_int(reader, node, lower, upper, out) : SONDE_OK;
}

sonde_err sonde__yaml_float(const sonde__yaml_reader *reader, const sonde__yaml *map,
                            const char *key, float *out)
{
    const sonde__yaml *node = sonde__yaml_get(map, key);
    sonde_err err = node != NULL ? read_scalar(reader, node, "a number") : SONDE_OK;
    char *end = NULL;
    float value = 0.0F;

    if (err != SONDE_OK || node == NULL) {
        return err;
    }
    value = sonde__strtof(node->text, &end);
    if (end == node->text || *end != '\0' || !isfinite(value)) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "a finite number",
                                "%s is '%s'", key, node->text);
    }
    *out = value;
    return SONDE_OK;
}

sonde_err sonde__yaml_bool(const sonde__yaml_reader *reader, const sonde__yaml *map,
                           const char *key, bool *out)
{
    const sonde__yaml *node = sonde__yaml_get(map, key);
    sonde_err err = node != NULL ? read_scalar(reader, node, "true or false") : SONDE_OK;

    if (err != SONDE_OK || node == NULL) {
        return err;
    }
    if (sonde__strcasecmp(node->text, "true") != 0 &&
        sonde__strcasecmp(node->text, "false") != 0) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "true or false", "%s is '%s'",
                                key, node->text);
    }
    *out = sonde__strcasecmp(node->text, "true") == 0;
    return SONDE_OK;
}

sonde_err sonde__yaml_text(const sonde__yaml_reader *reader, const sonde__yaml *map,
                           const char *key, const char **out)
{
    const sonde__yaml *node = sonde__yaml_get(map, key);

    if (node == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(read_scalar(reader, node, "a text"));
    *out = node->text;
    return SONDE_OK;
}

sonde_err sonde__yaml_ints(const sonde__yaml_reader *reader, const sonde__yaml *map,
                           const char *key, int64_t *out, size_t most, size_t *count)
{
    const sonde__yaml *node = sonde__yaml_get(map, key);

    *count = 0;
    if (node == NULL) {
        return SONDE_OK;
    }
    if (node->kind == SONDE__YAML_SCALAR) {
        *count = 1;
        return read_int(reader, node, INT32_MIN, INT32_MAX, out);
    }
    if (node->kind != SONDE__YAML_LIST || node->count > most) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "a number or a short list",
                                "%s is too long or no list", key);
    }
    *count = node->count;
    for (size_t i = 0; i < node->count; i++) {
        const sonde_err err =
            read_int(reader, node->children[i], INT32_MIN, INT32_MAX, &out[i]);

        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}
