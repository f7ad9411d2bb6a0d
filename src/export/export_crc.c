/*
 * export_crc.c - CRC-32 of zip files and CRC-32C of TensorBoard's, eight bytes at a time
 * (Kounavis and Berry 2005).
 */
#include "export/export_file.h"

#include <string.h>

void sonde__export_crc_init(sonde__export_crc *crc, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;

        for (int bit = 0; bit < 8; bit++) {
            value = value >> 1 ^ (value & 1U ? polynomial : 0U);
        }
        crc->table[0][byte] = value;
    }
    for (size_t k = 1; k < 8; k++) {
        for (size_t byte = 0; byte < 256; byte++) {
            const uint32_t before = crc->table[k - 1][byte];

            crc->table[k][byte] = before >> 8 ^ crc->table[0][before & 0xFFU];
        }
    }
}

uint32_t sonde__export_crc_add(const sonde__export_crc *crc, uint32_t before,
                               const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint32_t value = ~before;

    for (; n >= 8; n -= 8, at += 8) {
        uint64_t word = 0;

        memcpy(&word, at, sizeof word);
        word ^= value;
        value = 0;
        for (int k = 0; k < 8; k++) {
            value ^= crc->table[7 - k][word >> (8 * k) & 0xFFU];
        }
    }
    for (; n > 0; n--, at++) {
        value = value >> 8 ^ crc->table[0][(value ^ *at) & 0xFFU];
    }
    return ~value;
}
