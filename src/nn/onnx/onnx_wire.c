/*
 * onnx_wire.c - messages of protobuf, written field by field.
 */
#include "nn/onnx/onnx_wire.h"
#include "base/memory.h"

#include <string.h>

static void put(sonde__onnx_wire *wire, const void *bytes, size_t size)
{
    if (size == 0 || wire->failed) {
        return;
    }
    if (!sonde__reserve(&wire->bytes, &wire->capacity, wire->size + size, 1)) {
        wire->failed = true;
        return;
    }
    memcpy(wire->bytes + wire->size, bytes, size);
    wire->size += size;
}

static void put_number(sonde__onnx_wire *wire, uint64_t number)
{
    unsigned char bytes[10];
    size_t count = 0;

    do {
        const unsigned char low = (unsigned char)(number & 0x7FU);

        number >>= 7U;
        bytes[count++] = (unsigned char)(low | (number != 0 ? 0x80U : 0U));
    } while (number != 0);
    put(wire, bytes, count);
}

void sonde__onnx_wire_int(sonde__onnx_wire *wire, unsigned field, int64_t number)
{
    put_number(wire, (uint64_t)field << 3U);
    put_number(wire, (uint64_t)number);
}

/* Little-endian, as this machine is. */
void sonde__onnx_wire_float(sonde__onnx_wire *wire, unsigned field, float number)
{
    put_number(wire, ((uint64_t)field << 3U) | 5U);
    put(wire, &number, sizeof number);
}

void sonde__onnx_wire_bytes(sonde__onnx_wire *wire, unsigned field, const void *bytes,
                            size_t size)
{
    put_number(wire, ((uint64_t)field << 3U) | 2U);
    put_number(wire, size);
    put(wire, bytes, size);
}

void sonde__onnx_wire_text(sonde__onnx_wire *wire, unsigned field, const char *text)
{
    sonde__onnx_wire_bytes(wire, field, text, strlen(text));
}

void sonde__onnx_wire_message(sonde__onnx_wire *wire, unsigned field,
                              sonde__onnx_wire *inner)
{
    wire->failed = wire->failed || inner->failed;
    sonde__onnx_wire_bytes(wire, field, inner->bytes, inner->size);
    inner->size = 0;
}

void sonde__onnx_wire_free(sonde__onnx_wire *wire)
{
    sonde__free(wire->bytes);
    *wire = (sonde__onnx_wire){0};
}
