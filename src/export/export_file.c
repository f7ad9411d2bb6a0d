/*
 * export_file.c - see export_file.h. Checksums take eight bytes at a time (Kounavis and
 * Berry 2005).
 */
#include "export/export_file.h"
#include "base/fail.h"
#include "base/memory.h"

#include "tensor/convert.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { BUFFER = 23 };
#else
enum { BUFFER = 256 * 1024 };
#endif

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

sonde_err sonde__export_out_open(sonde__export_out_file *file, const char *path,
                                 sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *file = (sonde__export_out_file){.file = {.fd = -1}};
    err = sonde__export_out_free_place(path, diag);
    if (err != SONDE_OK) {
        return err;
    }
    file->buffer = sonde__malloc(BUFFER);
    err = file->buffer != NULL ? sonde__whole_open(&file->file, path, diag)
                               : sonde__fail_nomem(diag, "a write buffer");
    if (err != SONDE_OK) {
        sonde__export_out_abandon(file);
    }
    return err;
}

static void write_all(sonde__export_out_file *file, const void *bytes, size_t n)
{
    if (file->error == 0 && !sonde__whole_write(&file->file, bytes, n)) {
        file->error = errno;
    }
}

static void flush(sonde__export_out_file *file)
{
    write_all(file, file->buffer, file->used);
    file->used = 0;
}

void sonde__export_out_put(sonde__export_out_file *file, const void *bytes, size_t n)
{
    file->written += n;
    if (n > BUFFER - file->used) {
        flush(file);
    }
    if (n >= BUFFER) {
        write_all(file, bytes, n);
    } else if (n > 0) {
        memcpy(file->buffer + file->used, bytes, n);
        file->used += n;
    }
}

void sonde__export_out_text(sonde__export_out_file *file, const char *text)
{
    sonde__export_out_put(file, text, strlen(text));
}

void sonde__export_out_view(sonde__export_out_file *file, const sonde_view *view)
{
    _Alignas(8) unsigned char gathered[8192];
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    if (sonde_view_is_contiguous(view)) { /* also where it is not aligned */
        sonde__export_out_put(file, view->data, (size_t)sonde_view_count(view) * size);
        return;
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, sizeof gathered / size, gathered,
                                          &elements)) > 0) {
        sonde__export_out_put(file, elements, n * size);
    }
}

sonde_err sonde__export_out_status(const sonde__export_out_file *file, sonde_diag *diag)
{
    if (file->error == 0) {
        return SONDE_OK;
    }
    errno = file->error;
    return sonde__fail_errno(diag, file->file.path, "cannot be written");
}

void sonde__export_out_abandon(sonde__export_out_file *file)
{
    sonde__whole_close(&file->file);
    sonde__free(file->buffer);
    file->buffer = NULL;
}

sonde_err sonde__export_out_close(sonde__export_out_file *file, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    flush(file);
    err = sonde__export_out_status(file, diag);
    if (err == SONDE_OK) {
        err = sonde__whole_commit(&file->file, SONDE__KEEP, diag);
    }
    sonde__export_out_abandon(file);
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
