/*
 * sha256.h - the digest that downloads are checked against (FIPS 180-4).
 *
 * Own code: 100 lines are cheaper than linking OpenSSL into libsonde_nn for this alone.
 */
#ifndef SONDE_NN_DATA_SHA256_H
#define SONDE_NN_DATA_SHA256_H

#include <sonde/export.h>

#include <stddef.h>
#include <stdint.h>

enum { SONDE__SHA256_HEX = 65 };

typedef struct sonde__data_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} sonde__data_sha256;

SONDE_API void sonde__data_sha256_init(sonde__data_sha256 *sha);
SONDE_API void sonde__data_sha256_add(sonde__data_sha256 *sha, const void *bytes,
                                      size_t size);
/* 64 lower-case hexadecimal digits. Ends the computation. */
SONDE_API void sonde__data_sha256_hex(sonde__data_sha256 *sha,
                                      char hex[SONDE__SHA256_HEX]);

#endif
