/*
 * export_arrays.c - raw values as npz and as one safetensors file; see export_arrays.h.
 *
 * Npz is written in one pass. Safetensors has its header first, so the run is walked
 * twice: for keys, dtypes and shapes, then for the data, which are never all in memory.
 *
 * Zip fields are those of PKWARE's APPNOTE 6.3.9, sections 4.3 to 4.5; .npy of NumPy's
 * NEP 1. No libzip: it writes in zip_close, from sources that must all be readable until
 * then, and the values of a run are read one at a time.
 */
#include "export/export_arrays.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "tensor/convert.h"

#include <sonde/json.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OFTEN = 64, /* values between two calls of progress */
    MOST_HEADER = 100 * 1000 * 1000,
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

typedef struct zip_record {
    unsigned char bytes[96];
    size_t size;
} zip_record;

static void put(zip_record *record, uint64_t value, size_t bytes)
{
    memcpy(record->bytes + record->size, &value, bytes);
    record->size += bytes;
}

/* The value, or all ones where the zip64 field has it. */
static void put_or_ones(zip_record *record, uint64_t value, bool wide)
{
    put(record, wide ? MOST_OLD : value, 4);
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
        /* numpy has no float8 without ml_dtypes: the codes as they are */
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
    uint16_t length = (uint16_t)(size - 10);
    memcpy(head, "\x93NUMPY\x01", 8); /* 1, and the 0 that ends the text */
    memcpy(head + 8, &length, sizeof length);
    return size;
}

/* --- elements --------------------------------------------------------------------- */

/* Called with the bytes of an array, for the checksum and then for the file. */
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
    (void)sonde__whole_write(&npz->file, bytes, n);
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

typedef struct zip_entry {
    const char *name;
    size_t name_length; /* with ".npy" */
    uint64_t offset, size;
    uint32_t crc;
    uint16_t flags;
} zip_entry;

/* The fields common to local and central records: version needed to length of extra. */
static void put_common(zip_record *record, const zip_entry *entry, bool wide,
                       bool wide_size, size_t extra)
{
    put(record, wide ? VERSION64 : VERSION, 2);
    put(record, entry->flags, 2);
    put(record, 0, 2); /* stored */
    put(record, 0, 2); /* midnight */
    put(record, DAY_ONE, 2);
    put(record, entry->crc, 4);
    put_or_ones(record, entry->size, wide_size);
    put_or_ones(record, entry->size, wide_size);
    put(record, entry->name_length, 2);
    put(record, extra, 2);
}

static void write_local(sonde__export_npz_file *npz, const zip_entry *entry)
{
    const bool wide = entry->size >= npz->limit;
    zip_record head = {.size = 0}, extra = {.size = 0};

    if (wide) {
        put(&extra, ZIP64_FIELD, 2);
        put(&extra, 16, 2);
        put(&extra, entry->size, 8);
        put(&extra, entry->size, 8);
    }
    put(&head, LOCAL_HEAD, 4);
    put_common(&head, entry, wide, wide, extra.size);
    (void)sonde__whole_write(&npz->file, head.bytes, head.size);
    sonde__export_out_text(&npz->file, entry->name);
    sonde__export_out_text(&npz->file, ".npy");
    (void)sonde__whole_write(&npz->file, extra.bytes, extra.size);
}

static sonde_err add_central(sonde__export_npz_file *npz, const zip_entry *entry,
                             sonde_diag *diag)
{
    const bool wide_size = entry->size >= npz->limit;
    const bool wide_offset = entry->offset >= npz->limit;
    static const char ending[4] = {'.', 'n', 'p', 'y'};
    zip_record head = {.size = 0}, extra = {.size = 0};
    size_t size = 0;

    if (wide_size || wide_offset) {
        put(&extra, ZIP64_FIELD, 2);
        put(&extra, (wide_size ? 16U : 0U) + (wide_offset ? 8U : 0U), 2);
    }
    if (wide_size) {
        put(&extra, entry->size, 8);
        put(&extra, entry->size, 8);
    }
    if (wide_offset) {
        put(&extra, entry->offset, 8);
    }
    put(&head, CENTRAL_HEAD, 4);
    put(&head, MADE_BY, 2);
    put_common(&head, entry, wide_size || wide_offset, wide_size, extra.size);
    put(&head, 0, 2);                    /* no comment */
    put(&head, 0, 2);                    /* first disk */
    put(&head, 0, 2);                    /* binary */
    put(&head, (uint64_t)0644 << 16, 4); /* as a file of Unix */
    put_or_ones(&head, entry->offset, wide_offset);
    size = head.size + entry->name_length + extra.size;
    if (!sonde__reserve(&npz->central, &npz->central_capacity, npz->central_size + size,
                        1)) {
        return sonde__fail_nomem(diag, "a zip directory");
    }
    unsigned char *record = npz->central + npz->central_size;
    memcpy(record, head.bytes, head.size);
    memcpy(record + head.size, entry->name, entry->name_length - 4);
    memcpy(record + head.size + entry->name_length - 4, ending, sizeof ending);
    memcpy(record + head.size + entry->name_length, extra.bytes, extra.size);
    npz->central_size += size;
    npz->count++;
    return SONDE_OK;
}

static void write_end64(sonde__export_npz_file *npz, uint64_t start)
{
    const uint64_t end = npz->file.written;
    zip_record head = {.size = 0};

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
    (void)sonde__whole_write(&npz->file, head.bytes, head.size);
}

static void write_directory(sonde__export_npz_file *npz)
{
    const uint64_t start = npz->file.written;
    const bool wide_start = start >= npz->limit;
    const bool wide_size = npz->central_size >= npz->limit;
    const bool wide_count = npz->count >= SONDE_MIN(npz->limit, MOST_OLD_COUNT);
    const uint64_t count = wide_count ? MOST_OLD_COUNT : npz->count;
    zip_record head = {.size = 0};

    (void)sonde__whole_write(&npz->file, npz->central, npz->central_size);
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
    (void)sonde__whole_write(&npz->file, head.bytes, head.size);
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
    zip_entry entry = {.name = name,
                       .name_length = strlen(name) + 4,
                       .offset = npz->file.written,
                       .size = head_size + (uint64_t)sonde_view_count(view) * element,
                       .flags = is_ascii(name) ? 0 : UTF8_NAME};
    sonde_err err = SONDE_OK;

    if (entry.name_length > UINT16_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, npz->file.path, "at most 65531",
                           "a name of %zu bytes", entry.name_length - 4);
    }
    entry.crc = sonde__export_crc_add(&npz->crc, 0, head, head_size);
    for_bytes(npz, view, add_to_crc, &entry.crc);
    write_local(npz, &entry);
    (void)sonde__whole_write(&npz->file, head, head_size);
    for_bytes(npz, view, add_to_file, NULL);
    err = sonde__whole_status(&npz->file, diag);
    return err != SONDE_OK ? err : add_central(npz, &entry, diag);
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
    sonde__whole_close(&npz->file);
    sonde__free(npz->central);
    npz->central = NULL;
}

/* --- what was exported ------------------------------------------------------------ */

static sonde_err fail_nothing(const char *path, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                       "no raw value of these tensors and steps can be read");
}

/* Counts how many tensors values were of. */
typedef struct seen {
    unsigned char *flags; /* by id */
    size_t count;
} seen;

static bool see_init(seen *tensors, const sonde_trial *trial)
{
    *tensors = (seen){.flags = sonde__calloc(
                          sonde_catalogue_count(sonde_trial_catalogue(trial)) + 1, 1)};
    return tensors->flags != NULL;
}

static void see(seen *tensors, uint32_t id)
{
    tensors->count += tensors->flags[id] == 0;
    tensors->flags[id] = 1;
}

/* --- npz -------------------------------------------------------------------------- */

typedef struct npz_writer {
    sonde__export_npz_file npz;
    seen tensors;
} npz_writer;

static sonde_err add_to_npz(void *user, const char *key, const sonde_trial_record *record,
                            sonde_diag *diag)
{
    npz_writer *writer = user;

    see(&writer->tensors, record->id);
    return sonde__export_npz_add(&writer->npz, key, &record->view, diag);
}

sonde_err sonde__export_npz(sonde__export *work, const char *path, sonde_diag *diag)
{
    npz_writer writer = {0};
    sonde_err err = sonde__export_npz_open(&writer.npz, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (!see_init(&writer.tensors, work->trial)) {
        err = sonde__fail_nomem(diag, "an export");
        goto error;
    }
    SONDE__TRY_GO(sonde__export_values(work, add_to_npz, &writer, diag));
    if (writer.npz.count == 0) {
        err = fail_nothing(path, diag);
        goto error;
    }
    work->report->values = writer.npz.count;
    work->report->tensors = writer.tensors.count;
    err = sonde__export_npz_close(&writer.npz, diag);
error:
    sonde__export_npz_abandon(&writer.npz);
    sonde__free(writer.tensors.flags);
    return err;
}

/* --- safetensors ------------------------------------------------------------------ */

typedef struct item {
    char *key; /* owned */
    uint32_t id;
    sonde_trial_at at;
    sonde_view view; /* without data */
    size_t number;   /* in order of the run */
} item;

typedef struct items {
    item *list;
    size_t count, capacity;
    seen tensors;
} items;

static sonde_err add_item(void *user, const char *key, const sonde_trial_record *record,
                          sonde_diag *diag)
{
    items *all = user;
    item one = {.key = sonde__strdup(key),
                .id = record->id,
                .at = {.mode = SONDE_MODE_GLOBAL,
                       .step = record->at.global_step,
                       .worker = record->worker,
                       .micro_batch = record->at.micro_batch,
                       .replica = record->at.replica},
                .view = record->view,
                .number = all->count};

    one.view.data = NULL;
    if (one.key == NULL ||
        !sonde__reserve(&all->list, &all->capacity, all->count + 1, sizeof one)) {
        sonde__free(one.key);
        return sonde__fail_nomem(diag, "an export");
    }
    see(&all->tensors, record->id);
    all->list[all->count++] = one;
    return SONDE_OK;
}

/* Wider elements first, so that all lie aligned; else in order of the run. */
static int compare(const void *a, const void *b)
{
    const item *x = a, *y = b;
    const size_t wide_x = sonde_dtype_size(x->view.dtype);
    const size_t wide_y = sonde_dtype_size(y->view.dtype);

    return wide_x != wide_y ? (wide_x < wide_y) - (wide_x > wide_y)
                            : (x->number > y->number) - (x->number < y->number);
}

static uint64_t bytes_of(const sonde_view *view)
{
    return (uint64_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
}

static void put_entry(sonde_json *json, const item *one, uint64_t begin)
{
    sonde_json_object(json, one->key);
    sonde_json_string(json, "dtype", sonde__dtype_short_name(one->view.dtype));
    sonde_json_list(json, "shape");
    for (int d = 0; d < one->view.rank; d++) {
        sonde_json_int(json, NULL, one->view.shape[d]);
    }
    sonde_json_end(json);
    sonde_json_list(json, "data_offsets");
    sonde_json_uint(json, NULL, begin);
    sonde_json_uint(json, NULL, begin + bytes_of(&one->view));
    sonde_json_end(json);
    sonde_json_end(json);
}

/* The JSON of the header, padded so that data begin at a multiple of 8. */
static void make_header(const sonde__export *work, const items *all, sonde_text *header)
{
    sonde_json json = {.text = header};
    sonde_run_info info;
    uint64_t begin = 0;

    sonde_trial_describe(work->trial, &info);
    sonde_json_object(&json, NULL);
    sonde_json_object(&json, "__metadata__");
    sonde_json_string(&json, "sonde_run", "1");
    sonde_json_string(&json, "id", info.id);
    sonde_json_string(&json, "model", info.model);
    sonde_json_end(&json);
    for (size_t i = 0; i < all->count; i++) {
        put_entry(&json, &all->list[i], begin);
        begin += bytes_of(&all->list[i].view);
    }
    sonde_json_end(&json);
    while (header->length % 8 != 0 && !header->failed) {
        sonde_text_add(header, " ");
    }
}

static sonde_err put_header(sonde__whole_file *file, const sonde__export *work,
                            const items *all, sonde_diag *diag)
{
    sonde_text header = {0};
    uint64_t length = 0;
    sonde_err err = SONDE_OK;

    make_header(work, all, &header);
    length = header.length;
    if (header.failed) {
        err = sonde__fail_nomem(diag, "a header");
    } else if (length > MOST_HEADER) {
        err = sonde__fail(diag, SONDE_EINVAL, file->path,
                          "fewer tensors or steps: at most 100 MB",
                          "a header of %llu bytes", (unsigned long long)length);
    } else {
        (void)sonde__whole_write(file, &length, sizeof length);
        (void)sonde__whole_write(file, header.data, header.length);
        err = sonde__whole_status(file, diag);
    }
    sonde_text_fini(&header);
    return err;
}

static sonde_err put_data(sonde__whole_file *file, sonde__export *work, const items *all,
                          sonde_diag *diag)
{
    for (size_t i = 0; i < all->count; i++) {
        const item *one = &all->list[i];
        sonde_view view;
        SONDE__TRY(sonde_trial_value(work->trial, one->id, &one->at, &view, diag));
        if (view.dtype != one->view.dtype || !sonde_view_same_shape(&view, &one->view)) {
            return sonde__fail(diag, SONDE_EFORMAT, one->key, NULL,
                               "has changed while it was exported");
        }
        sonde__tensor_write(file, &view);
        SONDE__TRY(sonde__whole_status(file, diag));
        if (i % OFTEN == 0) {
            SONDE__TRY(sonde__export_progress(work->options, i, all->count, diag));
        }
    }
    return SONDE_OK;
}

static sonde_err write_safetensors(sonde__export *work, const char *path, items *all,
                                   sonde_diag *diag)
{
    sonde__whole_file file;
    sonde_err err = sonde__export_out_open(&file, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (all->count > 1) {
        qsort(all->list, all->count, sizeof all->list[0], compare);
    }
    SONDE__TRY_GO(put_header(&file, work, all, diag));
    SONDE__TRY_GO(put_data(&file, work, all, diag));
    return sonde__export_out_close(&file, diag);

error:
    sonde__whole_close(&file);
    return err;
}

sonde_err sonde__export_safetensors(sonde__export *work, const char *path,
                                    sonde_diag *diag)
{
    items all = {0};
    sonde_err err = SONDE_OK;

    if (!see_init(&all.tensors, work->trial)) {
        return sonde__fail_nomem(diag, "an export");
    }
    SONDE__TRY_GO(sonde__export_values(work, add_item, &all, diag));
    if (all.count == 0) {
        err = fail_nothing(path, diag);
        goto error;
    }
    work->report->values = all.count;
    work->report->tensors = all.tensors.count;
    err = write_safetensors(work, path, &all, diag);
error:
    for (size_t i = 0; i < all.count; i++) {
        sonde__free(all.list[i].key);
    }
    sonde__free(all.list);
    sonde__free(all.tensors.flags);
    return err;
}
