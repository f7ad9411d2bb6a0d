/*
 * onnx_wire.h - messages of protobuf, written field by field into a buffer that grows.
 *
 * A message begins with its length: an inner one is made in a buffer of its own, which
 * sonde__onnx_wire_message puts into another and empties. After memory is out `failed`
 * stays true and nothing is written.
 */
#ifndef SONDE_NN_ONNX_ONNX_WIRE_H
#define SONDE_NN_ONNX_ONNX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sonde__onnx_wire {
    unsigned char *bytes;
    size_t size, capacity;
    bool failed;
} sonde__onnx_wire;

void sonde__onnx_wire_int(sonde__onnx_wire *wire, unsigned field, int64_t number);
void sonde__onnx_wire_float(sonde__onnx_wire *wire, unsigned field, float number);
void sonde__onnx_wire_bytes(sonde__onnx_wire *wire, unsigned field, const void *bytes,
                            size_t size);
void sonde__onnx_wire_text(sonde__onnx_wire *wire, unsigned field, const char *text);
void sonde__onnx_wire_message(sonde__onnx_wire *wire, unsigned field,
                              sonde__onnx_wire *inner);
void sonde__onnx_wire_free(sonde__onnx_wire *wire);

#endif
