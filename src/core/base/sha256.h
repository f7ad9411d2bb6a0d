/*
 * sha256.h - SHA-256 (FIPS 180-4) and HMAC (RFC 2104): digests of downloads, signatures
 * of requests. Internal.
 *
 * Own code: 100 lines are cheaper than linking OpenSSL for this alone.
 */
#ifndef SONDE_BASE_SHA256_H
#define SONDE_BASE_SHA256_H

#include <sonde/export.h>

#include <stddef.h>
#include <stdint.h>

enum { SONDE__SHA256 = 32, SONDE__SHA256_HEX = 65 };

typedef struct sonde__sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} sonde__sha256;

SONDE_API void sonde__sha256_init(sonde__sha256 *sha);
SONDE_API void sonde__sha256_add(sonde__sha256 *sha, const void *bytes, size_t size);
/* The digest. Ends the computation. */
void sonde__sha256_end(sonde__sha256 *sha, unsigned char digest[SONDE__SHA256]);
/* The same as 64 lower-case hexadecimal digits. */
SONDE_API void sonde__sha256_hex(sonde__sha256 *sha, char hex[SONDE__SHA256_HEX]);
/* A digest as text. */
SONDE_API void sonde__sha256_print(const unsigned char digest[SONDE__SHA256],
                                   char hex[SONDE__SHA256_HEX]);
/* mac may be key. */
SONDE_API void sonde__hmac_sha256(const void *key, size_t key_size, const void *bytes,
                                  size_t size, unsigned char mac[SONDE__SHA256]);

#endif
