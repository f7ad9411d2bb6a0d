/*
 * snappy.c - see snappy.h. The bytes are a varint, the size of the content, and elements:
 *
 *     xxxxxx00  a literal of x + 1 bytes; x 60 to 63: x - 59 bytes hold that number
 *     ooolll01  a copy of l + 4 bytes; the offset is o * 256 + the next byte
 *     llllll10  a copy of l + 1 bytes; the offset is in two bytes
 *     llllll11  the same; it is in four bytes
 */
#include "nn/data/snappy.h"

#include "nn/data/thrift.h"

#include <stdint.h>
#include <string.h>

typedef struct unpacking {
    const unsigned char *next, *end;
    unsigned char *out;
    size_t made, size; /* of out */
} unpacking;

/* A number of 1 to 4 bytes; false: there are fewer. */
static bool take_number(unpacking *u, size_t bytes, size_t *number)
{
    *number = 0;
    if ((size_t)(u->end - u->next) < bytes) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        *number |= (size_t)u->next[i] << (8 * i);
    }
    u->next += bytes;
    return true;
}

static bool put_literal(unpacking *u, size_t tag)
{
    size_t length = tag >> 2;

    if (length >= 60 && !take_number(u, length - 59, &length)) {
        return false;
    }
    length++;
    if (length > (size_t)(u->end - u->next) || length > u->size - u->made) {
        return false;
    }
    memcpy(u->out + u->made, u->next, length);
    u->next += length;
    u->made += length;
    return true;
}

static bool put_copy(unpacking *u, size_t tag)
{
    static const size_t offset_bytes[] = {0, 1, 2, 4};
    size_t offset = 0, length = (tag >> 2) + 1;

    if (!take_number(u, offset_bytes[tag & 3], &offset)) {
        return false;
    }
    if ((tag & 3) == 1) {
        length = (tag >> 2 & 7) + 4;
        offset |= (tag >> 5) << 8;
    }
    if (offset == 0 || offset > u->made || length > u->size - u->made) {
        return false;
    }
    for (size_t i = 0; i < length; i++) { /* what is copied may be made by the copy */
        u->out[u->made + i] = u->out[u->made + i - offset];
    }
    u->made += length;
    return true;
}

bool sonde__data_snappy_unpack(const unsigned char *packed, size_t size,
                               unsigned char *out, size_t out_size)
{
    sonde__data_thrift head = {.next = packed, .end = packed + size};
    const uint64_t content = sonde__data_thrift_varint(&head);
    unpacking u = {.next = head.next, .end = head.end, .out = out, .size = out_size};
    bool right = !head.broken && content == out_size;

    while (right && u.next < u.end) {
        const size_t tag = *u.next++;

        right = (tag & 3) == 0 ? put_literal(&u, tag) : put_copy(&u, tag);
    }
    return right && u.made == out_size;
}
