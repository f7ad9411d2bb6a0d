/*
 * onnx_file.c - reads an ONNX file into its messages.
 *
 * Before protobuf-c unpacks anything, the fields of the model and of its graph are walked:
 * a file that was cut short is refused with the place where it ends.
 */
#include "nn/onnx/onnx_file.h"
#include "base/fail.h"
#include "base/memory.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* --- text ----------------------------------------------------------------------------- */

const char *sonde__onnx_text(const char *text, char *buf, size_t size)
{
    size_t used = 0;

    if (text == NULL) {
        text = "";
    }
    while (*text != '\0') {
        const size_t length = sonde__utf8_length(text);
        const unsigned char byte = (unsigned char)*text;
        const bool plain = length > 0 && byte >= 0x20 && byte != 0x7F && byte != '\'';
        const size_t needed = plain ? length : 4;

        if (used + needed + 4 > size) {
            (void)snprintf(buf + used, size - used, "...");
            return buf;
        }
        if (plain) {
            memcpy(buf + used, text, length);
        } else {
            (void)snprintf(buf + used, size - used, "\\x%02X", byte);
        }
        used += needed;
        text += plain ? length : 1;
    }
    buf[used] = '\0';
    return buf;
}

const char *sonde__onnx_node_name(const SondeOnnx__NodeProto *node, char *buf,
                                  size_t size)
{
    const char *name = node->name != NULL && node->name[0] != '\0' ? node->name
                       : node->n_output > 0                        ? node->output[0]
                                                                   : "";

    return sonde__onnx_text(name, buf, size);
}

/* --- memory --------------------------------------------------------------------------- */

static void *take(void *user, size_t size)
{
    sonde__onnx_budget *budget = user;
    void *block = NULL;

    if (size > budget->left) {
        budget->spent = true;
        return NULL;
    }
    block = sonde__malloc(size);
    if (block == NULL) {
        budget->failed = true;
        return NULL;
    }
    budget->left -= size;
    return block;
}

static void give_back(void *user, void *block)
{
    (void)user;
    sonde__free(block);
}

/* --- the wire ------------------------------------------------------------------------- */

typedef struct wire {
    const unsigned char *bytes;
    size_t size, place;
} wire;

/* A base-128 number; false: the bytes end in it, or it has more than 64 bits. */
static bool read_number(wire *w, uint64_t *number)
{
    uint64_t made = 0;

    for (unsigned shift = 0; shift < 64 && w->place < w->size; shift += 7) {
        const unsigned char byte = w->bytes[w->place++];

        made |= (uint64_t)(byte & 0x7FU) << shift;
        if ((byte & 0x80U) == 0) {
            *number = made;
            return true;
        }
    }
    return false;
}

/* Steps over a field; the last one that has bytes of its own and number `wanted` is left
 * in *inner. */
static bool step(wire *w, uint64_t wanted, wire *inner, size_t *lacking)
{
    uint64_t tag = 0, length = 0;

    *lacking = 0;
    if (!read_number(w, &tag) || tag >> 3U == 0) {
        return false;
    }
    switch (tag & 7U) {
    case 0:
        return read_number(w, &length);
    case 1:
        length = 8;
        break;
    case 5:
        length = 4;
        break;
    case 2:
        if (!read_number(w, &length)) {
            return false;
        }
        break;
    default:
        return false;
    }
    if (length > w->size - w->place) {
        *lacking = (size_t)length - (w->size - w->place);
        return false;
    }
    if ((tag & 7U) == 2 && tag >> 3U == wanted) {
        *inner = (wire){w->bytes + w->place, (size_t)length, 0};
    }
    w->place += (size_t)length;
    return true;
}

/* Walks the fields of a message that begins at byte `begin` of the file. */
static sonde_err walk(wire w, size_t begin, uint64_t wanted, wire *inner,
                      const char *name, sonde_diag *diag)
{
    while (w.place < w.size) {
        const size_t field = begin + w.place;
        size_t lacking = 0;

        if (step(&w, wanted, inner, &lacking)) {
            continue;
        }
        if (lacking > 0) {
            return sonde__fail(diag, SONDE_EFORMAT, name, "an ONNX model",
                               "cut short: the field at byte %zu has %zu bytes more than "
                               "there are",
                               field, lacking);
        }
        return sonde__fail(diag, SONDE_EFORMAT, name, "an ONNX model",
                           "not a field at byte %zu", field);
    }
    return SONDE_OK;
}

static sonde_err check_wire(const void *bytes, size_t size, const char *name,
                            sonde_diag *diag)
{
    enum { GRAPH = 7 };
    const wire all = {bytes, size, 0};
    wire graph = {NULL, 0, 0}, none = {NULL, 0, 0};
    sonde_err err = walk(all, 0, GRAPH, &graph, name, diag);

    if (err != SONDE_OK || graph.bytes == NULL) {
        return err;
    }
    return walk(graph, (size_t)(graph.bytes - all.bytes), 0, &none, name, diag);
}

/* --- the model ------------------------------------------------------------------------ */

void sonde__onnx_close(sonde__onnx_file *file)
{
    if (file == NULL) {
        return;
    }
    if (file->model != NULL) {
        sonde_onnx__model_proto__free_unpacked(file->model, &file->allocator);
    }
    sonde__free(file->path);
    sonde__free(file->folder);
    sonde__free(file);
}

/* What of the messages must be there for anything else. */
static sonde_err check_model(const sonde__onnx_file *file, sonde_diag *diag)
{
    const SondeOnnx__ModelProto *model = file->model;

    if (model->graph == NULL || model->graph->n_node == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, file->path, "an ONNX model",
                           model->graph == NULL ? "there is no graph in it"
                                                : "its graph has no nodes");
    }
    if (model->n_opset_import == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, file->path, "an ONNX model",
                           "there is no opset_import in it");
    }
    if (model->graph->n_sparse_initializer > 0) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, file->path, "dense tensors",
                           "the graph has sparse initializers");
    }
    return SONDE_OK;
}

static sonde_err unpack(sonde__onnx_file *file, const void *bytes, size_t size,
                        sonde_diag *diag)
{
    enum { TIMES = 24, FREE = 1 << 22 };

    file->budget.left = size > (SIZE_MAX - FREE) / TIMES ? SIZE_MAX : size * TIMES + FREE;
    file->allocator = (ProtobufCAllocator){
        .alloc = take, .free = give_back, .allocator_data = &file->budget};
    file->model = sonde_onnx__model_proto__unpack(&file->allocator, size, bytes);
    if (file->model != NULL) {
        return check_model(file, diag);
    }
    if (file->budget.failed) {
        return sonde__fail_nomem(diag, "an ONNX model");
    }
    return sonde__fail(diag, SONDE_EFORMAT, file->path, "an ONNX model",
                       file->budget.spent ? "it has more parts than its bytes can hold"
                                          : "a part of it is cut short or damaged");
}

sonde_err sonde__onnx_parse(const void *bytes, size_t size, const char *name,
                            const char *folder, sonde__onnx_file **out, sonde_diag *diag)
{
    sonde__onnx_file *file = NULL;
    sonde_err err =
        size == 0 ? sonde__fail(diag, SONDE_EFORMAT, name, "an ONNX model", "it is empty")
                  : check_wire(bytes, size, name, diag);

    if (err != SONDE_OK) {
        return err;
    }
    file = sonde__calloc(1, sizeof *file);
    if (file == NULL) {
        return sonde__fail_nomem(diag, "an ONNX model");
    }
    file->path = sonde__strdup(name);
    file->folder = folder != NULL ? sonde__strdup(folder) : NULL;
    if (file->path == NULL || (folder != NULL && file->folder == NULL)) {
        err = sonde__fail_nomem(diag, "an ONNX model");
        goto error;
    }
    SONDE__TRY_GO(unpack(file, bytes, size, diag));
    *out = file;
    return SONDE_OK;

error:
    sonde__onnx_close(file);
    return err;
}

/* The whole of a file; free *bytes in any case. */
static sonde_err read_file(const char *path, unsigned char **bytes, size_t *size,
                           sonde_diag *diag)
{
    FILE *stream = fopen(path, "rb");
    struct stat info;
    sonde_err err = SONDE_OK;

    if (stream == NULL) {
        return sonde__fail_errno(diag, path, "cannot open");
    }
    if (fstat(fileno(stream), &info) != 0) {
        err = sonde__fail_errno(diag, path, "cannot read");
        goto done;
    }
    if (!S_ISREG(info.st_mode) || info.st_size > INT32_MAX) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, "an ONNX model of at most 2 GiB",
                          S_ISREG(info.st_mode) ? "larger than a model can be"
                                                : "not a file");
        goto done;
    }
    *size = (size_t)info.st_size;
    *bytes = sonde__malloc(*size);
    if (*bytes == NULL) {
        err = sonde__fail_nomem(diag, "an ONNX model");
        goto done;
    }
    errno = 0;
    if (fread(*bytes, 1, *size, stream) != *size) {
        err = errno != 0 ? sonde__fail_errno(diag, path, "cannot read")
                         : sonde__fail(diag, SONDE_EIO, path, NULL,
                                       "it became shorter while it was read");
    }

done:
    (void)fclose(stream);
    return err;
}

sonde_err sonde__onnx_load(const char *path, sonde__onnx_file **out, sonde_diag *diag)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash != NULL ? sonde__strndup(path, (size_t)(slash - path) + 1)
                                 : sonde__strdup(".");
    unsigned char *bytes = NULL;
    size_t size = 0;
    sonde_err err = folder != NULL ? read_file(path, &bytes, &size, diag)
                                   : sonde__fail_nomem(diag, "an ONNX model");

    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde__onnx_parse(bytes, size, path, folder, out, diag);

done:
    sonde__free(bytes);
    sonde__free(folder);
    return err;
}
