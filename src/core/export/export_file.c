/*
 * export_file.c - see export_file.h. Checksums take eight bytes at a time (Kounavis and
 * Berry 2005).
 */
#include "export/export_file.h"
#include "base/fail.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* --- places ----------------------------------------------------------------------- */

sonde_err sonde__export_out_free_place(const char *path, sonde_diag *diag)
{
    struct stat status;

    if (path[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "output", "a path", "an empty name");
    }
    if (lstat(path, &status) == 0) {
        return sonde__fail(diag, SONDE_EEXIST, path, "a path where nothing is",
                           "exists already");
    }
    if (errno != ENOENT) {
        return sonde__fail_errno(diag, path, "cannot be written");
    }
    return SONDE_OK;
}

static int remove_one(const char *path, const struct stat *status, int kind,
                      struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void sonde__export_out_remove_folder(const char *temporary)
{
    (void)nftw(temporary, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- one file --------------------------------------------------------------------- */

sonde_err sonde__export_out_open(sonde__whole_file *file, const char *path,
                                 sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *file = (sonde__whole_file){.fd = -1};
    err = sonde__export_out_free_place(path, diag);
    return err != SONDE_OK ? err : sonde__whole_open(file, path, diag);
}

void sonde__export_out_text(sonde__whole_file *file, const char *text)
{
    (void)sonde__whole_write(file, text, strlen(text));
}

sonde_err sonde__export_out_close(sonde__whole_file *file, sonde_diag *diag)
{
    const sonde_err err = sonde__whole_commit(file, SONDE__KEEP, diag);

    sonde__whole_close(file);
    return err;
}

/* --- checksums -------------------------------------------------------------------- */

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
    const unsigned char *byte = bytes;
    uint32_t value = ~before;

    for (; n >= 8; n -= 8, byte += 8) {
        uint64_t word = 0;

        memcpy(&word, byte, sizeof word);
        word ^= value;
        value = 0;
        for (int k = 0; k < 8; k++) {
            value ^= crc->table[7 - k][word >> (8 * k) & 0xFFU];
        }
    }
    for (; n > 0; n--, byte++) {
        value = value >> 8 ^ crc->table[0][(value ^ *byte) & 0xFFU];
    }
    return ~value;
}
