/*
 * sha256.c - SHA-256 (FIPS 180-4). The constants are the first 32 bits of the
 * fractional parts of the square and cube roots of the first primes.
 */
#include "base/sha256.h"
#include "base/macros.h"

#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
};

void sonde__sha256_init(sonde__sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(sha->state, start, sizeof start);
    sha->bytes = 0;
}

static uint32_t turn(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static void take_block(sonde__sha256 *sha, const unsigned char *block)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++) {
        const unsigned char *b = block + i * 4;

        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t low = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t high = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    memcpy(s, sha->state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t e = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25);
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t t1 = s[7] + e + choice + constants[i] + w[i];
        const uint32_t a = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
        const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);

        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + a + majority;
    }
    for (int i = 0; i < 8; i++) {
        sha->state[i] += s[i];
    }
}

void sonde__sha256_add(sonde__sha256 *sha, const void *bytes, size_t size)
{
    const unsigned char *next = bytes;

    while (size > 0) {
        const size_t used = (size_t)(sha->bytes % 64);
        const size_t n = SONDE_MIN(size, 64 - used);

        memcpy(sha->block + used, next, n);
        sha->bytes += n;
        next += n;
        size -= n;
        if (used + n == 64) {
            take_block(sha, sha->block);
        }
    }
}

void sonde__sha256_end(sonde__sha256 *sha, unsigned char digest[SONDE__SHA256])
{
    const uint64_t bits = sha->bytes * 8;
    unsigned char end[72] = {0x80};
    const size_t pad = (sha->bytes % 64 < 56 ? 56 : 120) - (size_t)(sha->bytes % 64);

    for (int i = 0; i < 8; i++) {
        end[pad + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    }
    sonde__sha256_add(sha, end, pad + 8);
    for (int i = 0; i < SONDE__SHA256; i++) {
        digest[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void sonde__sha256_print(const unsigned char digest[SONDE__SHA256],
                         char hex[SONDE__SHA256_HEX])
{
    for (int i = 0; i < SONDE__SHA256; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    hex[SONDE__SHA256_HEX - 1] = '\0';
}

void sonde__sha256_hex(sonde__sha256 *sha, char hex[SONDE__SHA256_HEX])
{
    unsigned char digest[SONDE__SHA256];

    sonde__sha256_end(sha, digest);
    sonde__sha256_print(digest, hex);
}

void sonde__hmac_sha256(const void *key, size_t key_size, const void *bytes, size_t size,
                        unsigned char mac[SONDE__SHA256])
{
    unsigned char inner[64] = {0}, outer[64];
    sonde__sha256 sha;

    if (key_size > sizeof inner) {
        sonde__sha256_init(&sha);
        sonde__sha256_add(&sha, key, key_size);
        sonde__sha256_end(&sha, inner);
    } else if (key_size > 0) {
        memcpy(inner, key, key_size);
    }
    for (size_t i = 0; i < sizeof inner; i++) {
        outer[i] = (unsigned char)(inner[i] ^ 0x5c);
        inner[i] = (unsigned char)(inner[i] ^ 0x36);
    }
    sonde__sha256_init(&sha);
    sonde__sha256_add(&sha, inner, sizeof inner);
    sonde__sha256_add(&sha, bytes, size);
    sonde__sha256_end(&sha, mac);
    sonde__sha256_init(&sha);
    sonde__sha256_add(&sha, outer, sizeof outer);
    sonde__sha256_add(&sha, mac, SONDE__SHA256);
    sonde__sha256_end(&sha, mac);
}
