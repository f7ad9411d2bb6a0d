/*
 * packed.c - numbers, texts and structs as bytes and back.
 */
#include "base/packed.h"
#include "base/memory.h"

#include <string.h>

/* --- writing ------------------------------------------------------------------------ */

void sonde__pack(sonde__packer *out, const void *bytes, size_t size)
{
    if (out->failed || size == 0) {
        return;
    }
    if (size > SIZE_MAX - out->size ||
        !sonde__reserve(&out->bytes, &out->capacity, out->size + size, 1)) {
        out->failed = true;
        return;
    }
    memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
}

static void pack_number(sonde__packer *out, uint64_t number, size_t size)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(number >> (8 * i) & 0xFF);
    }
    sonde__pack(out, bytes, size);
}

void sonde__pack_u32(sonde__packer *out, uint32_t number)
{
    pack_number(out, number, 4);
}

void sonde__pack_u64(sonde__packer *out, uint64_t number)
{
    pack_number(out, number, 8);
}

static bool is_control(char byte)
{
    return (unsigned char)byte < 0x20 || byte == 0x7F;
}

void sonde__pack_text(sonde__packer *out, const char *text)
{
    const size_t length = text != NULL ? strlen(text) : 0;
    bool readable = length < SONDE__PACKED_TEXT;

    for (size_t i = 0; readable && i < length; i++) {
        readable = !is_control(text[i]);
    }
    out->unreadable = readable ? out->unreadable : text;
    sonde__pack_u32(out, (uint32_t)length);
    sonde__pack(out, text, length);
}

/* --- reading ------------------------------------------------------------------------ */

const void *sonde__unpack(sonde__unpacker *in, size_t size)
{
    const unsigned char *bytes = in->bytes + in->place;

    if (in->bad || size > in->size - in->place) {
        in->bad = true;
        return NULL;
    }
    in->place += size;
    return bytes;
}

static uint64_t unpack_number(sonde__unpacker *in, size_t size)
{
    const unsigned char *bytes = sonde__unpack(in, size);
    uint64_t number = 0;

    for (size_t i = size; bytes != NULL && i-- > 0;) {
        number = number << 8 | bytes[i];
    }
    return number;
}

uint32_t sonde__unpack_u32(sonde__unpacker *in)
{
    return (uint32_t)unpack_number(in, 4);
}

uint64_t sonde__unpack_u64(sonde__unpacker *in)
{
    return unpack_number(in, 8);
}

uint32_t sonde__unpack_below(sonde__unpacker *in, uint32_t limit)
{
    const uint32_t number = sonde__unpack_u32(in);

    if (number < limit) {
        return number;
    }
    in->bad = true;
    return 0;
}

const char *sonde__unpack_text(sonde__unpacker *in, char *buf, size_t size)
{
    const uint32_t length = sonde__unpack_u32(in);
    const char *text = length < size ? sonde__unpack(in, length) : NULL;

    buf[0] = '\0';
    for (uint32_t i = 0; text != NULL && i < length; i++) {
        in->bad = in->bad || is_control(text[i]);
    }
    if (text == NULL || in->bad) {
        in->bad = true;
        return buf;
    }
    memcpy(buf, text, length);
    buf[length] = '\0';
    return buf;
}

/* --- structs ------------------------------------------------------------------------ */

static size_t size_of(const sonde__packed_field *field)
{
    static const size_t sizes[] = {4, 8, sizeof(bool), 4};

    return sizes[field->kind];
}

static bool is_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static void pack_element(sonde__packer *out, const unsigned char *element,
                         sonde__packed_kind kind)
{
    uint32_t word = 0;
    uint64_t whole = 0;

    switch (kind) {
    case SONDE__PACKED_WORD:
    case SONDE__PACKED_REAL:
        memcpy(&word, element, sizeof word);
        sonde__pack_u32(out, word);
        return;
    case SONDE__PACKED_LONG:
        memcpy(&whole, element, sizeof whole);
        sonde__pack_u64(out, whole);
        return;
    case SONDE__PACKED_BOOL:
        sonde__pack(out, element, 1);
        return;
    }
}

void sonde__pack_struct(sonde__packer *out, const void *object,
                        const sonde__packed_field *fields, size_t count)
{
    const unsigned char *base = object;
    uint64_t present = 0;

    for (size_t i = 0; i < count; i++) {
        if (!is_zero(base + fields[i].offset,
                     size_of(&fields[i]) * (size_t)fields[i].count)) {
            present |= (uint64_t)1 << i;
        }
    }
    sonde__pack_u64(out, present);
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; (present >> i & 1) != 0 && k < fields[i].count; k++) {
            pack_element(out, base + fields[i].offset + (size_t)k * size_of(&fields[i]),
                         fields[i].kind);
        }
    }
}

static void unpack_element(sonde__unpacker *in, unsigned char *element,
                           sonde__packed_kind kind)
{
    const unsigned char *byte = NULL;
    uint32_t word = 0;
    uint64_t whole = 0;

    switch (kind) {
    case SONDE__PACKED_WORD:
    case SONDE__PACKED_REAL:
        word = sonde__unpack_u32(in);
        memcpy(element, &word, sizeof word);
        return;
    case SONDE__PACKED_LONG:
        whole = sonde__unpack_u64(in);
        memcpy(element, &whole, sizeof whole);
        return;
    case SONDE__PACKED_BOOL:
        byte = sonde__unpack(in, 1);
        in->bad = in->bad || byte == NULL || *byte > 1;
        *element = !in->bad && byte != NULL && *byte == 1;
        return;
    }
}

void sonde__unpack_struct(sonde__unpacker *in, void *object,
                          const sonde__packed_field *fields, size_t count)
{
    unsigned char *base = object;
    const uint64_t present = sonde__unpack_u64(in);

    if (count < SONDE__MOST_PACKED_FIELDS && present >> count != 0) {
        in->bad = true;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned char *member = base + fields[i].offset;

        memset(member, 0, size_of(&fields[i]) * (size_t)fields[i].count);
        for (int k = 0; !in->bad && (present >> i & 1) != 0 && k < fields[i].count; k++) {
            unpack_element(in, member + (size_t)k * size_of(&fields[i]), fields[i].kind);
        }
    }
}

const char *sonde__packed_difference(const void *a, const void *b,
                                     const sonde__packed_field *fields, size_t count)
{
    const unsigned char *x = a, *y = b;

    for (size_t i = 0; i < count; i++) {
        if (memcmp(x + fields[i].offset, y + fields[i].offset,
                   size_of(&fields[i]) * (size_t)fields[i].count) != 0) {
            return fields[i].name;
        }
    }
    return NULL;
}
