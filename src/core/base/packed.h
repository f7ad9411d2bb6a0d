/*
 * packed.h - numbers, texts and structs as bytes, little-endian, and back. Internal.
 *
 *     text     u32 length, bytes, no NUL
 *     struct   u64 with a bit for each field of its table that is not zero, those fields
 *
 * Reading checks every length against what is left; after the first mistake everything
 * reads as zero, and `bad` says so.
 */
#ifndef SONDE_BASE_PACKED_H
#define SONDE_BASE_PACKED_H

#include <sonde/export.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__PACKED_TEXT = 512 }; /* a buffer for the longest text that is read */

typedef struct sonde__packer {
    unsigned char *bytes; /* sonde__free it */
    size_t size, capacity;
    bool failed;            /* memory ran out */
    const char *unreadable; /* the last text that is not read: too long, or with control
                               characters; borrowed. NULL: none */
} sonde__packer;

SONDE_API void sonde__pack(sonde__packer *out, const void *bytes, size_t size);
SONDE_API void sonde__pack_u32(sonde__packer *out, uint32_t number);
SONDE_API void sonde__pack_u64(sonde__packer *out, uint64_t number);
SONDE_API void sonde__pack_text(sonde__packer *out, const char *text); /* NULL: as "" */

typedef struct sonde__unpacker {
    const unsigned char *bytes; /* borrowed */
    size_t size, place;
    bool bad;
} sonde__unpacker;

/* So many bytes, borrowed; NULL: there are fewer. */
SONDE_API const void *sonde__unpack(sonde__unpacker *in, size_t size);
SONDE_API uint32_t sonde__unpack_u32(sonde__unpacker *in);
SONDE_API uint64_t sonde__unpack_u64(sonde__unpacker *in);
/* A number below limit, else bad. */
SONDE_API uint32_t sonde__unpack_below(sonde__unpacker *in, uint32_t limit);
/* A text without control characters, shorter than size, into buf; returns buf, "" if
 * bad. */
SONDE_API const char *sonde__unpack_text(sonde__unpacker *in, char *buf, size_t size);

/* --- structs ------------------------------------------------------------------------ */

typedef enum sonde__packed_kind {
    SONDE__PACKED_WORD = 0, /* 4 bytes: int, uint32_t, an enum, a float */
    SONDE__PACKED_LONG = 1, /* 8 bytes: int64_t, uint64_t */
    SONDE__PACKED_BOOL = 2,
    SONDE__PACKED_REAL = 3 /* a word that is a float */
} sonde__packed_kind;

typedef struct sonde__packed_field {
    const char *name;
    size_t offset;
    sonde__packed_kind kind;
    int count; /* of elements */
} sonde__packed_field;

enum { SONDE__MOST_PACKED_FIELDS = 64 };

/* One member of a struct, an array perhaps. */
#define SONDE__PACKED(type, member, kind_, count_)                                       \
    {                                                                                    \
        .name = #member, .offset = offsetof(type, member), .kind = (kind_),              \
        .count = (count_)                                                                \
    }

SONDE_API void sonde__pack_struct(sonde__packer *out, const void *object,
                                  const sonde__packed_field *fields, size_t count);
/* Fields that are not there become zero; members without a field stay. */
SONDE_API void sonde__unpack_struct(sonde__unpacker *in, void *object,
                                    const sonde__packed_field *fields, size_t count);
/* The name of the first field in which two objects differ; NULL: in none. */
SONDE_API const char *sonde__packed_difference(const void *a, const void *b,
                                               const sonde__packed_field *fields,
                                               size_t count);

#endif
