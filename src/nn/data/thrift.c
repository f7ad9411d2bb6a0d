/*
 * thrift.c - see thrift.h.
 */
#include "nn/data/thrift.h"

enum { DEPTH = 16 }; /* of skipped structs and lists */

/* Types of fields; elements of lists that are booleans have the type YES and a byte. */
enum { STOP, YES, NO, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT };

static void break_off(sonde__data_thrift *in)
{
    in->broken = true;
    in->next = in->end;
}

static const unsigned char *take(sonde__data_thrift *in, uint64_t size)
{
    const unsigned char *bytes = in->next;

    if (size > (uint64_t)(in->end - in->next)) {
        break_off(in);
        return in->end;
    }
    in->next += size;
    return bytes;
}

static int take_byte(sonde__data_thrift *in)
{
    const unsigned char *byte = take(in, 1);

    return in->broken ? 0 : *byte;
}

uint64_t sonde__data_thrift_varint(sonde__data_thrift *in)
{
    uint64_t number = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        const int byte = take_byte(in);

        if (shift == 63 && byte > 1) { /* bits beyond 64 */
            break;
        }
        number |= (uint64_t)(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) {
            return in->broken ? 0 : number;
        }
    }
    break_off(in);
    return 0;
}

int64_t sonde__data_thrift_zigzag(uint64_t number)
{
    const int64_t half = (int64_t)(number >> 1);

    return (number & 1) != 0 ? -half - 1 : half;
}

bool sonde__data_thrift_next(sonde__data_thrift *in, sonde__data_thrift_field *field)
{
    const int byte = in->broken ? STOP : take_byte(in);
    const int step = byte >> 4;
    int64_t id = (int64_t)field->id + step;

    field->type = byte & 0x0F;
    if (field->type == STOP) {
        return false;
    }
    if (step == 0) {
        id = sonde__data_thrift_zigzag(sonde__data_thrift_varint(in));
    }
    if (id < INT16_MIN || id > INT16_MAX || field->type > STRUCT) {
        break_off(in);
        return false;
    }
    field->id = (int)id;
    return !in->broken;
}

int64_t sonde__data_thrift_int(sonde__data_thrift *in,
                               const sonde__data_thrift_field *field)
{
    switch (field->type) {
    case BYTE:
        return (int8_t)take_byte(in);
    case I16:
    case I32:
    case I64:
        return sonde__data_thrift_zigzag(sonde__data_thrift_varint(in));
    default:
        break_off(in);
        return 0;
    }
}

bool sonde__data_thrift_bool(sonde__data_thrift *in,
                             const sonde__data_thrift_field *field)
{
    if (field->type != YES && field->type != NO) {
        break_off(in);
    }
    return field->type == YES;
}

const unsigned char *sonde__data_thrift_bytes(sonde__data_thrift *in,
                                              const sonde__data_thrift_field *field,
                                              size_t *size)
{
    *size = 0;
    if (field->type != BINARY) {
        break_off(in);
        return in->end;
    }
    const uint64_t length = sonde__data_thrift_varint(in);
    const unsigned char *bytes = take(in, length);
    *size = in->broken ? 0 : (size_t)length;
    return bytes;
}

size_t sonde__data_thrift_list(sonde__data_thrift *in,
                               const sonde__data_thrift_field *field,
                               sonde__data_thrift_field *element)
{
    const int head = field->type == LIST || field->type == SET ? take_byte(in) : 0;
    uint64_t length = (uint64_t)(head >> 4);

    *element = (sonde__data_thrift_field){.type = head & 0x0F};
    if (length == 15) {
        length = sonde__data_thrift_varint(in);
    }
    if (in->broken || (length > 0 && element->type == STOP) || element->type > STRUCT ||
        length > (uint64_t)(in->end - in->next)) {
        break_off(in);
        return 0;
    }
    return (size_t)length;
}

bool sonde__data_thrift_struct(sonde__data_thrift *in,
                               const sonde__data_thrift_field *field)
{
    if (field->type != STRUCT) {
        break_off(in);
    }
    return !in->broken;
}

/* --- skipping ------------------------------------------------------------------------- */

static void skip(sonde__data_thrift *in, int type, bool element, int depth);

static void skip_list(sonde__data_thrift *in, int type, int depth)
{
    sonde__data_thrift_field list = {.type = type}, element = {0};
    const size_t length = sonde__data_thrift_list(in, &list, &element);

    for (size_t i = 0; i < length && !in->broken; i++) {
        skip(in, element.type, true, depth);
    }
}

static void skip_map(sonde__data_thrift *in, int depth)
{
    const uint64_t length = sonde__data_thrift_varint(in);
    const int types = length > 0 ? take_byte(in) : 0;

    for (uint64_t i = 0; i < length && !in->broken; i++) {
        skip(in, types >> 4, true, depth);
        skip(in, types & 0x0F, true, depth);
    }
}

/* NOLINTNEXTLINE(misc-no-recursion): DEPTH bounds it */
static void skip(sonde__data_thrift *in, int type, bool element, int depth)
{
    sonde__data_thrift_field field = {.type = type};
    size_t size = 0;

    if (depth == DEPTH) {
        break_off(in);
        return;
    }
    switch (type) {
    case YES:
    case NO:
        (void)(element ? take_byte(in) : 0);
        return;
    case BYTE:
    case I16:
    case I32:
    case I64:
        (void)sonde__data_thrift_int(in, &field);
        return;
    case DOUBLE:
        (void)take(in, 8);
        return;
    case BINARY:
        (void)sonde__data_thrift_bytes(in, &field, &size);
        return;
    case LIST:
    case SET:
        skip_list(in, type, depth + 1);
        return;
    case MAP:
        skip_map(in, depth + 1);
        return;
    case STRUCT:
        field = (sonde__data_thrift_field){0};
        while (sonde__data_thrift_next(in, &field)) {
            skip(in, field.type, false, depth + 1);
        }
        return;
    default:
        break_off(in);
    }
}

void sonde__data_thrift_skip(sonde__data_thrift *in,
                             const sonde__data_thrift_field *field)
{
    skip(in, field->type, false, 0);
}
