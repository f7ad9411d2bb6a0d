/*
 * export_npz.c - see export_npz.h; the fields are those of PKWARE's APPNOTE 6.3.9, sections
 * 4.3 to 4.5, and of NumPy's NEP 1.
 */
#include "export/export_npz.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include "tensor/convert.h"

#include <stdio.h>
#include <string.h>

enum {
    LOCAL_HEAD = 0x04034b50,
    CENTRAL_HEAD = 0x02014b50,
    END_HEAD = 0x06054b50,
    END64_HEAD = 0x06064b50,
    LOCATOR_HEAD = 0x07064b50,
    VERSION = 20,
    VERSION64 = 45,
    MADE_BY = 3 << 8 | VERSION64, /* Unix */
    UTF8_NAME = 1 << 11,
    DAY_ONE = 1 << 5 | 1, /* 1980-01-01 */
    ZIP64_FIELD = 1,
    MOST_OLD_COUNT = 0xFFFF,
    NPY_HEAD = 256, /* more than any shape takes */
    RUN = 1024
};
#define MOST_OLD 0xFFFFFFFFU

/* --- little-endian records -------------------------------------------------------- */

typedef struct record {
    unsigned char bytes[96];
    size_t size;
} record;

static void put(record *to, uint64_t value, size_t bytes)
{
    memcpy(to->bytes + to->size, &value, bytes);
    to->size += bytes;
}

/* The value, or all ones where the zip64 field has it. */
static void put_or_ones(record *to, uint64_t value, bool wide)
{
    put(to, wide ? MOST_OLD : value, 4);
}

/* --- .npy ------------------------------------------------------------------------- */

static const char *npy_type(sonde_dtype dtype)
{
    static const char *const types[SONDE_DTYPE_COUNT] = {
        [SONDE_BOOL] = "|b1",
        [SONDE_U8] = "|u1",
        [SONDE_I8] = "|i1",
        [SONDE_U16] = "<u2",
        [SONDE_I16] = "<i2",
        [SONDE_U32] = "<u4",
        [SONDE_I32] = "<i4",
        [SONDE_U64] = "<u8",
        [SONDE_I64] = "<i8",
        [SONDE_F16] = "<f2",
        [SONDE_BF16] = "<f4",
        [SONDE_F32] = "<f4",
        [SONDE_F64] = "<f8",
        /* numpy has no float8 and ml_dtypes is not everybody's: the codes as they are */
        [SONDE_F8_E4M3] = "|u1",
        [SONDE_F8_E5M2] = "|u1",
        [SONDE_C64] = "<c8",
        [SONDE_C128] = "<c16",
    };

    return types[dtype];
}

/* Magic, version 1.0, length, and a dictionary padded to a multiple of 64 bytes. */
static size_t npy_head(const sonde_view *view, char head[NPY_HEAD])
{
    char shape[SONDE_MAX_DIMS * 24] = "";
    size_t used = 0, size = 0;
    uint16_t length = 0;

    for (int d = 0; d < view->rank; d++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld%s",
                                 d > 0 ? " " : "", (long long)view->shape[d],
                                 d + 1 < view->rank || d == 0 ? "," : "");
    }
    memset(head, ' ', NPY_HEAD);
    used =
        10 + (size_t)snprintf(head + 10, NPY_HEAD - 10,
                              "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                              npy_type(view->dtype), shape);
    head[used] = ' ';
    size = (used + 1 + 63) / 64 * 64;
    head[size - 1] = '\n';
    length = (uint16_t)(size - 10);
    memcpy(head, "\x93NUMPY\x01", 8); /* 1, and the 0 that ends the text */
    memcpy(head + 8, &length, sizeof length);
    return size;
}

/* --- elements --------------------------------------------------------------------- */

/* What is done with the bytes of an array, twice: checksum, then file. */
typedef void bytes_fn(sonde__export_npz_file *npz, const void *bytes, size_t n,
                      uint32_t *crc);

static void add_to_crc(sonde__export_npz_file *npz, const void *bytes, size_t n,
                       uint32_t *crc)
{
    *crc = sonde__export_crc_add(&npz->crc, *crc, bytes, n);
}

static void add_to_file(sonde__export_npz_file *npz, const void *bytes, size_t n,
                        uint32_t *crc)
{
    (void)crc;
    sonde__export_out_put(&npz->file, bytes, n);
}

static void for_bytes(sonde__export_npz_file *npz, const sonde_view *view, bytes_fn *fn,
                      uint32_t *crc)
{
    _Alignas(SONDE__ELEMENT) unsigned char gathered[RUN * SONDE__ELEMENT];
    float widened[RUN];
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    if (view->dtype != SONDE_BF16 && sonde_view_is_contiguous(view)) {
        fn(npz, view->data, (size_t)sonde_view_count(view) * size, crc);
        return;
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, RUN, gathered, &elements)) > 0) {
        if (view->dtype == SONDE_BF16) {
            sonde__tensor_load_f32(view->dtype, elements, n, widened);
            fn(npz, widened, n * sizeof widened[0], crc);
        } else {
            fn(npz, elements, n * size, crc);
        }
    }
}

/* --- zip -------------------------------------------------------------------------- */

typedef struct entry {
    const char *name;
    size_t name_length; /* with ".npy" */
    uint64_t offset, size;
    uint32_t crc;
    uint16_t flags;
} entry;

/* What local and central records share, from the version needed to the extra's length. */
static void put_common(record *to, const entry *e, bool wide, bool wide_size,
                       size_t extra)
{
    put(to, wide ? VERSION64 : VERSION, 2);
    put(to, e->flags, 2);
    put(to, 0, 2); /* stored */
    put(to, 0, 2); /* midnight */
    put(to, DAY_ONE, 2);
    put(to, e->crc, 4);
    put_or_ones(to, e->size, wide_size);
    put_or_ones(to, e->size, wide_size);
    put(to, e->name_length, 2);
    put(to, extra, 2);
}

static void write_local(sonde__export_npz_file *npz, const entry *e)
{
    const bool wide = e->size >= npz->limit;
    record head = {.size = 0}, extra = {.size = 0};

    if (wide) {
        put(&extra, ZIP64_FIELD, 2);
        put(&extra, 16, 2);
        put(&extra, e->size, 8);
        put(&extra, e->size, 8);
    }
    put(&head, LOCAL_HEAD, 4);
    put_common(&head, e, wide, wide, extra.size);
    sonde__export_out_put(&npz->file, head.bytes, head.size);
    sonde__export_out_text(&npz->file, e->name);
    sonde__export_out_text(&npz->file, ".npy");
    sonde__export_out_put(&npz->file, extra.bytes, extra.size);
}

static sonde_err add_central(sonde__export_npz_file *npz, const entry *e,
                             sonde_diag *diag)
{
    const bool wide_size = e->size >= npz->limit;
    const bool wide_offset = e->offset >= npz->limit;
    static const char ending[4] = {'.', 'n', 'p', 'y'};
    record head = {.size = 0}, extra = {.size = 0};
    unsigned char *at = NULL;
    size_t size = 0;

    if (wide_size || wide_offset) {
        put(&extra, ZIP64_FIELD, 2);
        put(&extra, (wide_size ? 16U : 0U) + (wide_offset ? 8U : 0U), 2);
    }
    if (wide_size) {
        put(&extra, e->size, 8);
        put(&extra, e->size, 8);
    }
    if (wide_offset) {
        put(&extra, e->offset, 8);
    }
    put(&head, CENTRAL_HEAD, 4);
    put(&head, MADE_BY, 2);
    put_common(&head, e, wide_size || wide_offset, wide_size, extra.size);
    put(&head, 0, 2);                    /* no comment */
    put(&head, 0, 2);                    /* first disk */
    put(&head, 0, 2);                    /* binary */
    put(&head, (uint64_t)0644 << 16, 4); /* as a file of Unix */
    put_or_ones(&head, e->offset, wide_offset);
    size = head.size + e->name_length + extra.size;
    if (!sonde__reserve(&npz->central, &npz->central_capacity, npz->central_size + size,
                        1)) {
        return sonde__fail_nomem(diag, "a zip directory");
    }
    at = npz->central + npz->central_size;
    memcpy(at, head.bytes, head.size);
    memcpy(at + head.size, e->name, e->name_length - 4);
    memcpy(at + head.size + e->name_length - 4, ending, sizeof ending);
    memcpy(at + head.size + e->name_length, extra.bytes, extra.size);
    npz->central_size += size;
    npz->count++;
    return SONDE_OK;
}

static void write_end64(sonde__export_npz_file *npz, uint64_t start)
{
    const uint64_t end = npz->file.written;
    record head = {.size = 0};

    put(&head, END64_HEAD, 4);
    put(&head, 44, 8); /* bytes that follow */
    put(&head, MADE_BY, 2);
    put(&head, VERSION64, 2);
    put(&head, 0, 4); /* this disk */
    put(&head, 0, 4); /* the directory's */
    put(&head, npz->count, 8);
    put(&head, npz->count, 8);
    put(&head, npz->central_size, 8);
    put(&head, start, 8);
    put(&head, LOCATOR_HEAD, 4);
    put(&head, 0, 4);
    put(&head, end, 8);
    put(&head, 1, 4); /* disks */
    sonde__export_out_put(&npz->file, head.bytes, head.size);
}

static void write_directory(sonde__export_npz_file *npz)
{
    const uint64_t start = npz->file.written;
    const bool wide_start = start >= npz->limit;
    const bool wide_size = npz->central_size >= npz->limit;
    const bool wide_count = npz->count >= SONDE_MIN(npz->limit, MOST_OLD_COUNT);
    const uint64_t count = wide_count ? MOST_OLD_COUNT : npz->count;
    record head = {.size = 0};

    sonde__export_out_put(&npz->file, npz->central, npz->central_size);
    if (wide_start || wide_size || wide_count) {
        write_end64(npz, start);
    }
    put(&head, END_HEAD, 4);
    put(&head, 0, 2);
    put(&head, 0, 2);
    put(&head, count, 2);
    put(&head, count, 2);
    put_or_ones(&head, npz->central_size, wide_size);
    put_or_ones(&head, start, wide_start);
    put(&head, 0, 2); /* no comment */
    sonde__export_out_put(&npz->file, head.bytes, head.size);
}

sonde_err sonde__export_npz_open(sonde__export_npz_file *npz, const char *path,
                                 sonde_diag *diag)
{
    *npz = (sonde__export_npz_file){.limit = MOST_OLD};
    sonde__export_crc_init(&npz->crc, SONDE__CRC32_ZIP);
    return sonde__export_out_open(&npz->file, path, diag);
}

static bool is_ascii(const char *text)
{
    while (*text != '\0' && (unsigned char)*text < 0x80) {
        text++;
    }
    return *text == '\0';
}

sonde_err sonde__export_npz_add(sonde__export_npz_file *npz, const char *name,
                                const sonde_view *view, sonde_diag *diag)
{
    const size_t element = view->dtype == SONDE_BF16 ? 4 : sonde_dtype_size(view->dtype);
    char head[NPY_HEAD];
    const size_t head_size = npy_head(view, head);
    entry e = {.name = name,
               .name_length = strlen(name) + 4,
               .offset = npz->file.written,
               .size = head_size + (uint64_t)sonde_view_count(view) * element,
               .flags = is_ascii(name) ? 0 : UTF8_NAME};
    sonde_err err = SONDE_OK;

    if (e.name_length > UINT16_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, npz->file.file.path, "at most 65531",
                           "a name of %zu bytes", e.name_length - 4);
    }
    e.crc = sonde__export_crc_add(&npz->crc, 0, head, head_size);
    for_bytes(npz, view, add_to_crc, &e.crc);
    write_local(npz, &e);
    sonde__export_out_put(&npz->file, head, head_size);
    for_bytes(npz, view, add_to_file, NULL);
    err = sonde__export_out_status(&npz->file, diag);
    return err == SONDE_OK ? add_central(npz, &e, diag) : err;
}

sonde_err sonde__export_npz_close(sonde__export_npz_file *npz, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    write_directory(npz);
    err = sonde__export_out_close(&npz->file, diag);
    sonde__export_npz_abandon(npz);
    return err;
}

void sonde__export_npz_abandon(sonde__export_npz_file *npz)
{
    sonde__export_out_abandon(&npz->file);
    sonde__free(npz->central);
    npz->central = NULL;
}
