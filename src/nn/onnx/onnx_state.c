/*
 * onnx_state.c - errors of translating an ONNX graph.
 */
#include "nn/onnx/onnx_state.h"
#include "base/fail.h"
#include "base/point.h"

#include <stdarg.h>
#include <stdio.h>

bool(sonde__onnx_refuse_file)(sonde__onnx_import *import, sonde_err err,
                              const char *expected, const char *found, ...)
{
    char text[sizeof import->diag->found];
    va_list args;

    va_start(args, found);
    (void)sonde__vsnprintf(text, sizeof text, found, args);
    va_end(args);
    if (import->err == SONDE_OK) {
        import->err =
            sonde__fail(import->diag, err, import->file->path, expected, "%s", text);
    }
    return false;
}

bool(sonde__onnx_no_memory)(sonde__onnx_import *import)
{
    if (import->err == SONDE_OK) {
        import->err = sonde__fail_nomem(import->diag, "an ONNX model");
    }
    return false;
}

bool(sonde__onnx_refuse)(const sonde__onnx_node *node, sonde_err err,
                         const char *expected, const char *found, ...)
{
    const SondeOnnx__NodeProto *proto = node->proto;
    char text[sizeof node->import->diag->found - 96], name[SONDE__ONNX_TEXT],
        op[SONDE__ONNX_TEXT];
    va_list args;

    va_start(args, found);
    (void)sonde__vsnprintf(text, sizeof text, found, args);
    va_end(args);
    return sonde__onnx_refuse_file(node->import, err, expected,
                                   "node '%.60s' (%.30s): %s",
                                   sonde__onnx_node_name(proto, name, sizeof name),
                                   sonde__onnx_text(proto->op_type, op, sizeof op), text);
}
