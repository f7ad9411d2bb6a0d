/*
 * thrift.h - structs of Thrift's compact protocol, as Parquet's metadata has them.
 *
 *     sonde__data_thrift_field field = {0};
 *     while (sonde__data_thrift_next(&in, &field)) {
 *         switch (field.id) { case 1: x = sonde__data_thrift_int(&in, &field); break; ...
 *                             default: sonde__data_thrift_skip(&in, &field); }
 *     }
 *     in.broken: a length beyond the end, another type than asked for, too deep
 *
 * After the first mistake everything reads as zero, and a struct or a list ends. (Apache
 * Thrift, thrift-compact-protocol.md.)
 */
#ifndef SONDE_NN_DATA_THRIFT_H
#define SONDE_NN_DATA_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sonde__data_thrift {
    const unsigned char *next, *end; /* borrowed */
    bool broken;
} sonde__data_thrift;

typedef struct sonde__data_thrift_field {
    int id;
    int type; /* of the protocol */
} sonde__data_thrift_field;

/* The next field of a struct; false: there is none. Begin with {0}. */
bool sonde__data_thrift_next(sonde__data_thrift *in, sonde__data_thrift_field *field);
/* Its value, which is read or skipped exactly once. */
int64_t sonde__data_thrift_int(sonde__data_thrift *in,
                               const sonde__data_thrift_field *field);
bool sonde__data_thrift_bool(sonde__data_thrift *in,
                             const sonde__data_thrift_field *field);
const unsigned char *sonde__data_thrift_bytes(sonde__data_thrift *in,
                                              const sonde__data_thrift_field *field,
                                              size_t *size);
/* A list: its length, at most as many as bytes are left, and its elements as *element, to
 * be read so many times. */
size_t sonde__data_thrift_list(sonde__data_thrift *in,
                               const sonde__data_thrift_field *field,
                               sonde__data_thrift_field *element);
/* Whether the value is a struct, which is then read with next. */
bool sonde__data_thrift_struct(sonde__data_thrift *in,
                               const sonde__data_thrift_field *field);
void sonde__data_thrift_skip(sonde__data_thrift *in,
                             const sonde__data_thrift_field *field);
/* Seven bits a byte, the lowest first. */
uint64_t sonde__data_thrift_varint(sonde__data_thrift *in);
/* 0, -1, 1, -2 ... for 0, 1, 2, 3 ... */
int64_t sonde__data_thrift_zigzag(uint64_t number);

#endif
