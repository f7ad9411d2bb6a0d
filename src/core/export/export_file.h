/*
 * export_file.h - files that appear whole or not at all, and the checksums of other
 * formats. Internal.
 *
 *     open   PATH must not exist; a temporary file beside it is written
 *     sonde__whole_write, sonde__tensor_write
 *     close  flushes, syncs and renames the file to PATH, or removes it
 */
#ifndef SONDE_EXPORT_EXPORT_FILE_H
#define SONDE_EXPORT_EXPORT_FILE_H

#include "base/whole_file.h"

#include <stddef.h>
#include <stdint.h>

/* SONDE_EEXIST: something is at path. A zeroed file, or one that failed to open, may be
 * closed (sonde__whole_close). */
SONDE_API sonde_err sonde__export_out_open(sonde__whole_file *file, const char *path,
                                           sonde_diag *diag);
SONDE_API void sonde__export_out_text(sonde__whole_file *file, const char *text);
/* Publishes the file, or after a failure removes it. Frees its memory. */
SONDE_API sonde_err sonde__export_out_close(sonde__whole_file *file, sonde_diag *diag);

/* SONDE_EEXIST: anything is at path, even a dangling link. */
sonde_err sonde__export_out_free_place(const char *path, sonde_diag *diag);
/* Removes a temporary folder and its contents. */
void sonde__export_out_remove_folder(const char *temporary);

/* --- checksums -------------------------------------------------------------------- */

#define SONDE__CRC32_ZIP 0xEDB88320U /* reflected polynomials: IEEE 802.3 ... */
#define SONDE__CRC32_C 0x82F63B78U   /* ... and Castagnoli */

/* Tables for eight bytes at a time; 8 KiB, made in some microseconds. */
typedef struct sonde__export_crc {
    uint32_t table[8][256];
} sonde__export_crc;

SONDE_API void sonde__export_crc_init(sonde__export_crc *crc, uint32_t polynomial);
/* before: the result for the preceding bytes; 0 for none. */
SONDE_API uint32_t sonde__export_crc_add(const sonde__export_crc *crc, uint32_t before,
                                         const void *bytes, size_t n);

#endif
