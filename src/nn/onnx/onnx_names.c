/*
 * onnx_names.c - names of nodes, modules and values of an ONNX graph.
 */
#include "nn/onnx/onnx_names.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

bool sonde__onnx_name_valid(const char *name)
{
    for (const char *c = name; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || (unsigned char)*c == 0x7F) {
            return false;
        }
    }
    return name[0] != '\0' && sonde__utf8_valid(name);
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool sonde__onnx_name_generated(const char *name)
{
    static const char *const starts[] = {
        "onnx::", "/", "val_", "_val_", "_to_copy", "lifted_tensor", "c_lifted_tensor"};

    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (starts_with(name, starts[i])) {
            return true;
        }
    }
    return name[strspn(name, "0123456789")] == '\0';
}

/* --- modules ---------------------------------------------------------------------------- */

/* Copies a path of size bytes, or nothing if it is no good name. */
static void keep_path(const char *path, size_t length, char *buf, size_t size)
{
    if (length + 1 > size || length > 200) {
        return;
    }
    memcpy(buf, path, length);
    buf[length] = '\0';
    if (length > 0 && (!sonde__onnx_name_valid(buf) || strstr(buf, "___") != NULL)) {
        buf[0] = '\0';
    }
}

/* "['', 'layer1', 'layer1.0', 'conv2d']": the last but one. */
static bool read_scopes(const SondeOnnx__NodeProto *node, char *buf, size_t size)
{
    const char *text = NULL, *begin[2] = {NULL, NULL}, *end[2] = {NULL, NULL};

    for (size_t i = 0; i < node->n_metadata_props; i++) {
        const SondeOnnx__StringStringEntryProto *entry = node->metadata_props[i];

        if (entry->key != NULL && strcmp(entry->key, "pkg.torch.onnx.name_scopes") == 0) {
            text = entry->value;
        }
    }
    while (text != NULL && (text = strchr(text, '\'')) != NULL) {
        const char *close = strchr(text + 1, '\'');

        if (close == NULL) {
            break;
        }
        begin[0] = begin[1];
        end[0] = end[1];
        begin[1] = text + 1;
        end[1] = close;
        text = close + 1;
    }
    if (begin[0] == NULL) {
        return false;
    }
    keep_path(begin[0], (size_t)(end[0] - begin[0]), buf, size);
    return true;
}

/* "/layer1/layer1.0/conv1/Conv": layer1.0.conv1. A part that repeats the one before it and
 * continues with a dot replaces it. */
static void read_scope(const char *name, char *buf, size_t size)
{
    const char *part = name + 1, *slash = NULL;
    char path[256] = "";
    size_t last = 0; /* where the last part begins in path */

    for (; (slash = strchr(part, '/')) != NULL; part = slash + 1) {
        const size_t length = (size_t)(slash - part), kept = strlen(path) - last;

        if (kept > 0 && length > kept && strncmp(part, path + last, kept) == 0 &&
            part[kept] == '.') {
            path[last] = '\0';
        } else if (path[0] != '\0') {
            last = strlen(path) + 1;
            if (last + 1 >= sizeof path) {
                return;
            }
            (void)snprintf(path + last - 1, sizeof path - last, ".");
        }
        if (last + length + 1 > sizeof path) {
            return;
        }
        memcpy(path + last, part, length);
        path[last + length] = '\0';
    }
    keep_path(path, strlen(path), buf, size);
}

void sonde__onnx_module_name(const SondeOnnx__NodeProto *node, const sonde__names *names,
                             const sonde__onnx_slot *slots, char *buf, size_t size)
{
    buf[0] = '\0';
    if (read_scopes(node, buf, size) && buf[0] != '\0') {
        return;
    }
    for (size_t i = 0; i < node->n_input; i++) {
        const uint32_t id = sonde__names_find(names, node->input[i]);
        const char *dot = id != SONDE__NO_NAME && slots[id].initial != NULL
                              ? strrchr(node->input[i], '.')
                              : NULL;

        if (dot != NULL && !sonde__onnx_name_generated(node->input[i])) {
            keep_path(node->input[i], (size_t)(dot - node->input[i]), buf, size);
            return;
        }
    }
    if (node->name != NULL && node->name[0] == '/') {
        read_scope(node->name, buf, size);
    }
}

/* --- values ------------------------------------------------------------------------------ */

const char *sonde__onnx_name_keep(sonde__onnx_import *import, const char *name)
{
    char text[512];
    size_t used = 0, marks = 0;

    for (const char *c = name; *c != '\0' && used + 1 < sizeof text; c++) {
        marks = *c == '_' ? marks + 1 : 0;
        if (marks <= 2) {
            text[used++] = *c;
        }
    }
    text[used] = '\0';
    if (strcmp(text, name) != 0 &&
        sonde__names_find(&import->names, text) != SONDE__NO_NAME) {
        (void)snprintf(text + used, sizeof text - used, "-%u",
                       sonde__names_find(&import->names, name));
    }
    return sonde__graph_string(&import->model->graph, "%s", text);
}

bool sonde__onnx_name_value(sonde__onnx_import *import, sonde_nn_value value,
                            const char *name, sonde_role role)
{
    sonde__graph_node_value *node = sonde__graph_value(&import->model->graph, value);
    const char *kept = sonde__onnx_name_keep(import, name);

    if (kept == NULL) {
        return sonde__onnx_no_memory(import);
    }
    node->name = kept;
    node->role = role;
    return true;
}
