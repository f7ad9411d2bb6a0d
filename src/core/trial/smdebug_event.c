/*
 * smdebug_event.c - TFRecord framing and the few messages of protobuf inside it.
 *
 *     Event        1 wall_time, 5 summary
 *     Summary      1 value (repeated)
 *     Value        1 tag, 8 tensor
 *     TensorProto  1 dtype, 2 tensor_shape, 4 tensor_content, 8 string_val (repeated)
 *     Shape        2 dim (repeated);  Dim  1 size
 *
 * Other fields are skipped. If a single field is repeated the last one counts, as
 * protobuf requires. A parser of its own, as these 60 lines read views in place:
 * protobuf-c would copy every tensor.
 */
#include "trial/smdebug_event.h"
#include "base/fail.h"
#include "base/macros.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEAD = 12, FOOT = 4, STRINGS = 7 /* TensorFlow's dtype */ };

/* The masked checksum of "0x12345678", which smdebug writes after every payload. */
#define CONSTANT_FOOT 0x062DC0B3U

/* --- framing ---------------------------------------------------------------------- */

uint32_t sonde__smdebug_crc32c(const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;
    uint32_t table[256], crc = UINT32_MAX;

    for (uint32_t i = 0; i < 256; i++) {
        uint32_t entry = i;

        for (int bit = 0; bit < 8; bit++) {
            entry = entry >> 1 ^ ((entry & 1) != 0 ? 0x82F63B78U : 0);
        }
        table[i] = entry;
    }
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 8 ^ table[(crc ^ byte[i]) & 255];
    }
    return ~crc;
}

uint32_t sonde__smdebug_masked_crc32c(const void *bytes, size_t size)
{
    const uint32_t crc = sonde__smdebug_crc32c(bytes, size);

    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

sonde_err sonde__smdebug_event_unwrap(const unsigned char *bytes, size_t size,
                                      const char *title, const unsigned char **payload,
                                      size_t *payload_size, sonde_diag *diag)
{
    uint64_t length = 0;
    uint32_t crc = 0;

    if (size < HEAD + FOOT) {
        return sonde__fail(diag, SONDE_EFORMAT, title, "a TFRecord", "%zu bytes", size);
    }
    memcpy(&length, bytes, sizeof length);
    memcpy(&crc, bytes + sizeof length, sizeof crc);
    if (crc != sonde__smdebug_masked_crc32c(bytes, sizeof length)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the checksum of the record's length is wrong");
    }
    if (length != size - HEAD - FOOT) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "a record of %llu bytes where the index has %zu",
                           (unsigned long long)length, size - HEAD - FOOT);
    }
    memcpy(&crc, bytes + HEAD + length, sizeof crc);
    if (crc != CONSTANT_FOOT &&
        crc != sonde__smdebug_masked_crc32c(bytes + HEAD, (size_t)length)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the checksum after the record is wrong");
    }
    *payload = bytes + HEAD;
    *payload_size = (size_t)length;
    return SONDE_OK;
}

int64_t sonde__smdebug_event_time(const unsigned char head[SONDE__IMPORT_EVENT_HEAD])
{
    enum { WALL_TIME = 1 << 3 | 1 /* a field of 8 bytes */ };
    double seconds = 0.0;

    memcpy(&seconds, head + HEAD + 1, sizeof seconds);
    return head[HEAD] == WALL_TIME && isfinite(seconds) && seconds > 0.0 && seconds < 9e9
               ? (int64_t)(seconds * 1e9)
               : 0;
}

/* --- protobuf --------------------------------------------------------------------- */

typedef struct message {
    const unsigned char *next, *end;
} message;

/* One field. number or, of wire type 2, bytes. */
typedef struct field {
    uint64_t id;
    unsigned wire;
    uint64_t number;
    message bytes;
} field;

static bool take_varint(message *bytes, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned char byte = 0;

        if (bytes->next == bytes->end) {
            return false;
        }
        byte = *bytes->next++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool take_bytes(message *bytes, uint64_t count, message *out)
{
    if (count > (uint64_t)(bytes->end - bytes->next)) {
        return false;
    }
    *out = (message){bytes->next, bytes->next + count};
    bytes->next += count;
    return true;
}

/* The next field; false if there is none that is whole. */
static bool take_field(message *bytes, field *out)
{
    uint64_t key = 0, length = 0;

    if (!take_varint(bytes, &key)) {
        return false;
    }
    *out = (field){.id = key >> 3, .wire = (unsigned)(key & 7)};
    switch (out->wire) {
    case 0:
        return take_varint(bytes, &out->number);
    case 1:
        return take_bytes(bytes, 8, &out->bytes);
    case 2:
        return take_varint(bytes, &length) && take_bytes(bytes, length, &out->bytes);
    case 5:
        return take_bytes(bytes, 4, &out->bytes);
    default: /* groups, which are obsolete */
        return false;
    }
}

static bool is_bytes(const field *one, uint64_t id)
{
    return one->id == id && one->wire == 2;
}

/* --- tensors ---------------------------------------------------------------------- */

/* TensorFlow's numbers of the dtypes that Sonde has. */
static bool find_dtype(uint64_t number, sonde_dtype *dtype)
{
    static const struct {
        uint64_t number;
        sonde_dtype dtype;
    } known[] = {
        {1, SONDE_F32},   {2, SONDE_F64},  {3, SONDE_I32},   {4, SONDE_U8},
        {5, SONDE_I16},   {6, SONDE_I8},   {9, SONDE_I64},   {10, SONDE_BOOL},
        {14, SONDE_BF16}, {17, SONDE_U16}, {19, SONDE_F16},  {22, SONDE_U32},
        {23, SONDE_U64},  {8, SONDE_C64},  {18, SONDE_C128},
    };

    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        if (known[i].number == number) {
            *dtype = known[i].dtype;
            return true;
        }
    }
    return false;
}

typedef struct tensor {
    uint64_t dtype;
    size_t rank; /* as written; only the first SONDE_MAX_DIMS extents are kept */
    int64_t shape[SONDE_MAX_DIMS];
    message content;
} tensor;

static bool read_extent(message bytes, int64_t *extent)
{
    field next;

    *extent = 0; /* as protobuf leaves out zeros */
    while (bytes.next < bytes.end) {
        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (next.id == 1 && next.wire == 0) {
            *extent = (int64_t)next.number;
        }
    }
    return *extent >= 0;
}

static bool read_shape(message bytes, tensor *out)
{
    field next;

    while (bytes.next < bytes.end) {
        int64_t extent = 0;

        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (!is_bytes(&next, 2)) {
            continue;
        }
        if (!read_extent(next.bytes, &extent)) {
            return false;
        }
        if (out->rank < SONDE_MAX_DIMS) {
            out->shape[out->rank] = extent;
        }
        out->rank++;
    }
    return true;
}

static bool read_tensor(message bytes, tensor *out)
{
    field next;

    *out = (tensor){.content = {bytes.end, bytes.end}};
    while (bytes.next < bytes.end) {
        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (next.id == 1 && next.wire == 0) {
            out->dtype = next.number;
        } else if (is_bytes(&next, 2)) {
            out->rank = 0;
            if (!read_shape(next.bytes, out)) {
                return false;
            }
        } else if (is_bytes(&next, 4)) {
            out->content = next.bytes;
        } else if (is_bytes(&next, 8) && out->dtype == 0) {
            out->dtype = STRINGS; /* smdebug leaves it out */
        }
    }
    return true;
}

/* *bytes: what the elements take; false if no memory holds them. */
static bool measure(const tensor *read, sonde_dtype dtype, uint64_t *bytes)
{
    int64_t product = (int64_t)sonde_dtype_size(dtype), reach = product;

    for (size_t d = 0; d < read->rank; d++) {
        if (__builtin_mul_overflow(reach, SONDE_MAX(read->shape[d], 1), &reach)) {
            return false;
        }
        product *= read->shape[d];
    }
    *bytes = (uint64_t)product;
    return true;
}

static sonde_err make_view(const tensor *read, const char *title, sonde_view *view,
                           sonde_diag *diag)
{
    const uint64_t content = (uint64_t)(read->content.end - read->content.next);
    sonde_dtype dtype = SONDE_F32;
    uint64_t bytes = 0;

    if (!find_dtype(read->dtype, &dtype)) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, title, "a dtype of Sonde's",
                           "TensorFlow's dtype %llu%s", (unsigned long long)read->dtype,
                           read->dtype == STRINGS ? ", strings" : "");
    }
    if (read->rank > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, title, "at most 8", "%zu dimensions",
                           read->rank);
    }
    if (!measure(read, dtype, &bytes) || bytes != content) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "%llu bytes of content, which its shape does not make",
                           (unsigned long long)content);
    }
    *view = sonde_view_of(dtype, (int)read->rank, read->shape,
                          (void *)(uintptr_t)read->content.next);
    return SONDE_OK;
}

/* A value of the summary: whether it is whole, and has the tag. */
static bool read_value(message bytes, const char *tag, bool *named, message *found)
{
    const size_t length = strlen(tag);
    field next;

    *named = false;
    *found = (message){bytes.end, bytes.end};
    while (bytes.next < bytes.end) {
        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (is_bytes(&next, 1)) {
            *named = (size_t)(next.bytes.end - next.bytes.next) == length &&
                     memcmp(next.bytes.next, tag, length) == 0;
        } else if (is_bytes(&next, 8)) {
            *found = next.bytes;
        }
    }
    return true;
}

/* The TensorProto of that tag. */
static bool find_tensor(message event, const char *tag, bool *named, message *found)
{
    field next, inner;

    while (event.next < event.end) {
        if (!take_field(&event, &next)) {
            return false;
        }
        while (is_bytes(&next, 5) && next.bytes.next < next.bytes.end) {
            if (!take_field(&next.bytes, &inner)) {
                return false;
            }
            if (is_bytes(&inner, 1) && !*named &&
                !read_value(inner.bytes, tag, named, found)) {
                return false;
            }
        }
    }
    return true;
}

sonde_err sonde__smdebug_event_tensor(const unsigned char *payload, size_t size,
                                      const char *tag, const char *title,
                                      sonde_view *view, sonde_diag *diag)
{
    message found = {NULL, NULL};
    bool named = false;
    tensor read;

    if (!find_tensor((message){payload, payload + size}, tag, &named, &found)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the record is not a protobuf Event");
    }
    if (!named) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the record is of another tensor");
    }
    if (!read_tensor(found, &read)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the record's tensor is damaged");
    }
    return make_view(&read, title, view, diag);
}
