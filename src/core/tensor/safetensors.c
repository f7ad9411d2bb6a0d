/*
 * safetensors.c - opening and writing safetensors files.
 *
 *     +--------+---------------------+------------------------+
 *     | length | JSON header         | data                   |
 *     +--------+---------------------+------------------------+
 *      8 bytes  length bytes          offsets count from here
 *
 *     {"__metadata__": {"key": "value", ...},
 *      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *
 * Everything is checked once, here. The tensors must cover the data without a gap or an
 * overlap, as the format requires. jansson allocates by itself.
 *
 * Deliberately left out: dtypes that Sonde does not have (other float8, float4) and ranks
 * above SONDE_MAX_DIMS, both SONDE_EUNSUPPORTED; big-endian machines.
 */
#include "tensor/convert.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/number.h"
#include "base/whole_file.h"
#include "base/utf8.h"
#include <sonde/safetensors.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sonde/json.h>

#define METADATA "__metadata__"

enum { LENGTH_SIZE = 8, MOST_HEADER = 100 * 1000 * 1000 };

typedef struct entry {
    const char *name;  /* the JSON header's, then that in names */
    size_t begin, end; /* in the data */
    size_t arrival;    /* place in the header */
    sonde_view view;
} entry;

struct sonde_safetensors {
    char *title;  /* for diagnostics */
    void *mapped; /* NULL if the bytes are the caller's */
    size_t mapped_size;
    entry *entries; /* in data order */
    size_t count;
    sonde__names names; /* id i is entry i */
    json_t *metadata;   /* NULL if there is none */
};

/* The place in the file, for diagnostics. tensor is NULL outside a tensor. */
typedef struct place {
    const char *title;
    const char *tensor;
    sonde_diag *diag;
} place;

static sonde_err SONDE_PRINTF(4, 5)
    fail(const place *spot, sonde_err err, const char *expected, const char *found, ...)
{
    char where[256], what[384];
    va_list args;

    (void)snprintf(where, sizeof where, "%s%s%s%s", spot->title,
                   spot->tensor != NULL ? ": tensor '" : "",
                   spot->tensor != NULL ? spot->tensor : "",
                   spot->tensor != NULL ? "'" : "");
    va_start(args, found);
    (void)sonde__vsnprintf(what, sizeof what, found, args);
    va_end(args);
    return sonde__fail(spot->diag, err, where, expected, "%s", what);
}

/* --- one tensor of the header ----------------------------------------------------- */

/* A whole number from 0 on. */
static bool get_size(const json_t *value, int64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *out = json_integer_value(value);
    return true;
}

static sonde_err read_dtype(const place *spot, const json_t *value, sonde_dtype *dtype)
{
    if (!json_is_string(value)) {
        return fail(spot, SONDE_EFORMAT, "a string", "no usable \"dtype\"");
    }
    if (!sonde__dtype_of_short_name(json_string_value(value), dtype)) {
        return fail(
            spot, SONDE_EUNSUPPORTED,
            "BOOL, U8 ... U64, I8 ... I64, F16, BF16, F32, F64, F8_E4M3, F8_E5M2, C64 or "
            "C128",
            "dtype '%s'", json_string_value(value));
    }
    return SONDE_OK;
}

/* Fills rank and shape, and bytes with what the tensor takes. Dimensions of 0 count as 1
 * in the test for overflow: strides are products of the others. */
static sonde_err read_shape(const place *spot, const json_t *value, sonde_dtype dtype,
                            sonde_view *view, size_t *bytes)
{
    const size_t rank = json_array_size(value);
    int64_t shape[SONDE_MAX_DIMS], reach = (int64_t)sonde_dtype_size(dtype);

    if (!json_is_array(value)) {
        return fail(spot, SONDE_EFORMAT, "a list of numbers", "no usable \"shape\"");
    }
    if (rank > SONDE_MAX_DIMS) {
        return fail(spot, SONDE_EUNSUPPORTED, "at most 8", "%zu dimensions", rank);
    }
    for (size_t d = 0; d < rank; d++) {
        if (!get_size(json_array_get(value, d), &shape[d])) {
            return fail(spot, SONDE_EFORMAT, "a whole number >= 0",
                        "dimension %zu of shape", d);
        }
        if (__builtin_mul_overflow(reach, SONDE_MAX(shape[d], 1), &reach)) {
            return fail(spot, SONDE_EFORMAT, NULL, "a shape too large for any memory");
        }
    }
    *view = sonde_view_of(dtype, (int)rank, shape, NULL);
    *bytes = (size_t)sonde_view_count(view) * sonde_dtype_size(dtype);
    return SONDE_OK;
}

static sonde_err read_extent(const place *spot, const json_t *value, size_t bytes,
                             size_t data_size, entry *e)
{
    int64_t begin = 0, end = 0;

    if (json_array_size(value) != 2 || !get_size(json_array_get(value, 0), &begin) ||
        !get_size(json_array_get(value, 1), &end)) {
        return fail(spot, SONDE_EFORMAT, "two whole numbers >= 0",
                    "no usable \"data_offsets\"");
    }
    if (begin > end || (uint64_t)end > data_size) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "an extent within %zu bytes of data",
                       data_size);
        return fail(spot, SONDE_EFORMAT, expected, "offsets %lld to %lld",
                    (long long)begin, (long long)end);
    }
    e->begin = (size_t)begin;
    e->end = (size_t)end;
    if (e->end - e->begin != bytes) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "%zu for its shape and dtype", bytes);
        return fail(spot, SONDE_EFORMAT, expected, "%zu bytes of data",
                    e->end - e->begin);
    }
    return SONDE_OK;
}

static sonde_err read_entry(const place *spot, const json_t *value, unsigned char *data,
                            size_t data_size, entry *e)
{
    sonde_dtype dtype = SONDE_F32;
    size_t bytes = 0;

    if (!json_is_object(value)) {
        return fail(spot, SONDE_EFORMAT, "an object", "a description of another kind");
    }
    SONDE__TRY(read_dtype(spot, json_object_get(value, "dtype"), &dtype));
    SONDE__TRY(
        read_shape(spot, json_object_get(value, "shape"), dtype, &e->view, &bytes));
    SONDE__TRY(
        read_extent(spot, json_object_get(value, "data_offsets"), bytes, data_size, e));
    e->view.data = data + e->begin;
    return SONDE_OK;
}

/* --- the header ------------------------------------------------------------------- */

static sonde_err read_metadata(const place *spot, json_t *value, json_t **out)
{
    const char *key = NULL;
    json_t *text = NULL;

    if (!json_is_object(value)) {
        return fail(spot, SONDE_EFORMAT, "an object", METADATA " of another kind");
    }
    json_object_foreach(value, key, text)
    {
        if (!json_is_string(text)) {
            return fail(spot, SONDE_EFORMAT, "a string", "metadata '%s'", key);
        }
    }
    *out = json_incref(value);
    return SONDE_OK;
}

static int in_data_order(const void *left, const void *right)
{
    const entry *a = left, *b = right;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end < b->end ? -1 : 1;
    }
    return a->arrival < b->arrival ? -1 : a->arrival > b->arrival;
}

static sonde_err read_entries(sonde_safetensors *file, place *spot, json_t *header,
                              unsigned char *data, size_t data_size)
{
    const char *name = NULL;
    json_t *value = NULL;

    file->entries = sonde__calloc(json_object_size(header), sizeof *file->entries);
    if (file->entries == NULL) {
        return sonde__fail_nomem(spot->diag, "the table of tensors");
    }
    json_object_foreach(header, name, value)
    {
        entry *e = &file->entries[file->count];
        sonde_err err = SONDE_OK;

        spot->tensor = NULL;
        if (strcmp(name, METADATA) == 0) {
            err = read_metadata(spot, value, &file->metadata);
        } else {
            spot->tensor = name;
            e->name = name;
            e->arrival = file->count++;
            err = read_entry(spot, value, data, data_size, e);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    spot->tensor = NULL;
    return SONDE_OK;
}

/* No gap, no overlap, nothing left over. */
static sonde_err check_cover(const sonde_safetensors *file, place *spot, size_t data_size)
{
    size_t reached = 0;

    for (size_t i = 0; i < file->count; i++) {
        const entry *e = &file->entries[i];

        if (e->begin != reached) {
            char expected[64];

            spot->tensor = e->name;
            (void)snprintf(expected, sizeof expected, "%zu, where the one before ends",
                           reached);
            return fail(spot, SONDE_EFORMAT, expected, "data begins at %zu", e->begin);
        }
        reached = e->end;
    }
    if (reached != data_size) {
        return fail(spot, SONDE_EFORMAT, NULL, "%zu bytes of data belong to no tensor",
                    data_size - reached);
    }
    return SONDE_OK;
}

/* Names of our own, in data order, so that the JSON can go. */
static sonde_err keep_names(sonde_safetensors *file, sonde_diag *diag)
{
    for (size_t i = 0; i < file->count; i++) {
        const uint32_t id = sonde__names_intern(&file->names, file->entries[i].name);

        if (id == SONDE__NO_NAME) {
            return sonde__fail_nomem(diag, "the names of tensors");
        }
        file->entries[i].name = file->names.text[id];
    }
    return SONDE_OK;
}

static sonde_err load_json(const place *spot, const char *text, size_t length,
                           json_t **out)
{
    json_error_t error;
    bool no_memory = false;
    json_t *header =
        sonde__json_read(text, length, JSON_REJECT_DUPLICATES, &error, &no_memory);

    if (no_memory) {
        return sonde__fail_nomem(spot->diag, spot->title);
    }
    if (header == NULL) {
        return fail(spot, SONDE_EFORMAT, "JSON", "header byte %d: %s", error.position,
                    error.text);
    }
    if (!json_is_object(header)) {
        json_decref(header);
        return fail(spot, SONDE_EFORMAT, "an object", "a header of another kind");
    }
    *out = header;
    return SONDE_OK;
}

/* How files of other formats begin. */
static const struct {
    const char *bytes;
    size_t size;
    const char *what;
} others[] = {
    {"\x89PNG", 4, "a PNG picture"},   {"\xFF\xD8\xFF", 3, "a JPEG picture"},
    {"GIF8", 4, "a GIF picture"},      {"PK\3\4", 4, "a ZIP archive"},
    {"\x1F\x8B", 2, "a gzip file"},    {"\x28\xB5\x2F\xFD", 4, "a zstd file"},
    {"\x89HDF", 4, "an HDF5 file"},    {"GGUF", 4, "a GGUF file"},
    {"\x93NUMPY", 6, "a NumPy array"},
};

/* torch.save writes a ZIP archive of pickles, whose first is data.pkl, or, before version
 * 1.6, a pickle. */
static bool is_pickle(const unsigned char *bytes, size_t size)
{
    enum { FIRST_NAME = 512 };

    return memcmp(bytes, "PK\3\4", 4) == 0
               ? memmem(bytes, SONDE_MIN(size, (size_t)FIRST_NAME), "data.pkl", 8) != NULL
               : bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
}

/* Fails for a file of another format that is known, or for text. None of them has a
 * header's { after eight bytes. */
static sonde_err check_format(const place *spot, const unsigned char *bytes, size_t size)
{
    size_t letters = 0;

    if (size > LENGTH_SIZE && bytes[LENGTH_SIZE] == '{') {
        return SONDE_OK;
    }
    if (is_pickle(bytes, size)) {
        return fail(spot, SONDE_EFORMAT,
                    "safetensors; in Python: safetensors.torch.save_file("
                    "torch.load(\"x.pth\", weights_only=True), \"x.safetensors\")",
                    "a pickle of PyTorch, which may run code when it is loaded");
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(others); i++) {
        if (memcmp(bytes, others[i].bytes, others[i].size) == 0) {
            return fail(spot, SONDE_EFORMAT, "a safetensors file", "%s", others[i].what);
        }
    }
    while (letters < LENGTH_SIZE &&
           ((bytes[letters] >= ' ' && bytes[letters] <= '~') ||
            (bytes[letters] >= '\t' && bytes[letters] <= '\r'))) {
        letters++;
    }
    return letters == LENGTH_SIZE
               ? fail(spot, SONDE_EFORMAT, "a safetensors file", "a text file")
               : SONDE_OK;
}

static sonde_err read_header(sonde_safetensors *file, unsigned char *bytes, size_t size,
                             sonde_diag *diag)
{
    place spot = {.title = file->title, .diag = diag};
    uint64_t length = 0;
    json_t *header = NULL;
    sonde_err err = SONDE_OK;

    if (size < LENGTH_SIZE) {
        return fail(&spot, SONDE_EFORMAT, "a safetensors header", "a file of %zu bytes",
                    size);
    }
    SONDE__TRY(check_format(&spot, bytes, size));
    memcpy(&length, bytes, sizeof length);
    if (length > MOST_HEADER || length > size - LENGTH_SIZE) {
        return fail(&spot, SONDE_EFORMAT, "at most 100 MB, and within the file",
                    "a header of %llu bytes", (unsigned long long)length);
    }
    size_t data_size = size - LENGTH_SIZE - (size_t)length;
    SONDE__TRY(
        load_json(&spot, (const char *)bytes + LENGTH_SIZE, (size_t)length, &header));
    SONDE__TRY_GO(
        read_entries(file, &spot, header, bytes + LENGTH_SIZE + length, data_size));
    qsort(file->entries, file->count, sizeof *file->entries, in_data_order);
    SONDE__TRY_GO(check_cover(file, &spot, data_size));
    err = keep_names(file, diag);

error:
    json_decref(header);
    return err;
}

/* --- opening and closing ---------------------------------------------------------- */

static sonde_safetensors *create(const char *title)
{
    sonde_safetensors *file = sonde__calloc(1, sizeof *file);

    if (file == NULL) {
        return NULL;
    }
    sonde__names_init(&file->names);
    file->title = sonde__strdup(title);
    if (file->title == NULL) {
        sonde_safetensors_destroy(file);
        return NULL;
    }
    return file;
}

sonde_err sonde__safetensors_parse(const void *bytes, size_t size, const char *name,
                                   sonde_safetensors **out, sonde_diag *diag)
{
    sonde_safetensors *file = create(name);
    /* Views have no const form; nothing is written through this one. */
    unsigned char *start = (unsigned char *)(uintptr_t)bytes;

    if (file == NULL) {
        return sonde__fail_nomem(diag, "a safetensors file");
    }
    sonde_err err = read_header(file, start, size, diag);
    if (err != SONDE_OK) {
        sonde_safetensors_destroy(file);
        return err;
    }
    *out = file;
    return SONDE_OK;
}

static sonde_err map_file(sonde_safetensors *file, int fd, sonde_diag *diag)
{
    struct stat about;

    if (fstat(fd, &about) != 0) {
        return sonde__fail_errno(diag, file->title, "cannot be examined");
    }
    if (!S_ISREG(about.st_mode)) {
        return sonde__fail(diag, SONDE_EFORMAT, file->title, "a regular file", "is %s",
                           S_ISDIR(about.st_mode) ? "a folder" : "a pipe or device");
    }
    if (about.st_size == 0) { /* nothing to map; the header will be missed */
        return SONDE_OK;
    }
    void *mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
        return sonde__fail_errno(diag, file->title, "cannot be mapped");
    }
    file->mapped = mapped;
    file->mapped_size = (size_t)about.st_size;
    return SONDE_OK;
}

sonde_err sonde_safetensors_open(const char *path, sonde_safetensors **out,
                                 sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    sonde_safetensors *file = create(path);
    sonde_err err = file != NULL ? map_file(file, fd, diag)
                                 : sonde__fail_nomem(diag, "a safetensors file");
    (void)close(fd); /* the mapping stays */
    if (err != SONDE_OK) {
        goto error;
    }
    SONDE__TRY_GO(read_header(file, file->mapped, file->mapped_size, diag));
    *out = file;
    return SONDE_OK;

error:
    sonde_safetensors_destroy(file);
    return err;
}

void sonde_safetensors_destroy(sonde_safetensors *file)
{
    if (file == NULL) {
        return;
    }
    if (file->mapped != NULL) {
        (void)munmap(file->mapped, file->mapped_size);
    }
    json_decref(file->metadata);
    sonde__names_fini(&file->names);
    sonde__free(file->entries);
    sonde__free(file->title);
    sonde__free(file);
}

/* --- asking ----------------------------------------------------------------------- */

size_t sonde_safetensors_count(const sonde_safetensors *file)
{
    if (file == NULL) {
        return 0;
    }
    return file->count;
}

const char *sonde_safetensors_name(const sonde_safetensors *file, size_t i)
{
    if (file == NULL) {
        return NULL;
    }
    return i < file->count ? file->entries[i].name : NULL;
}

const sonde_view *sonde_safetensors_view(const sonde_safetensors *file, size_t i)
{
    if (file == NULL) {
        return NULL;
    }
    return i < file->count ? &file->entries[i].view : NULL;
}

const sonde_view *sonde_safetensors_find(const sonde_safetensors *file, const char *name)
{
    if (file == NULL || name == NULL) {
        return NULL;
    }
    const uint32_t id = sonde__names_find(&file->names, name);

    return id != SONDE__NO_NAME ? &file->entries[id].view : NULL;
}

const char *sonde_safetensors_metadata(const sonde_safetensors *file, const char *key)
{
    if (file == NULL) {
        return NULL;
    }
    return json_string_value(json_object_get(file->metadata, key));
}

/* --- safetensors write ------------------------------------------------------------- */

/* Writing safetensors files whole.
 *
 * Wider elements come first, so that every tensor is aligned for its dtype, as some
 * readers require. At any moment there is the old file or the new one. */

enum { ROUNDS = 5 };

typedef struct request {
    const char *path;
    const sonde_named_view *tensors;
    size_t count;
    const sonde_metadata *metadata;
    size_t metadata_count;
    sonde_diag *diag;
} request;

/* Data comes in five rounds: elements of 16 bytes, of 8, 4, 2 and 1; in each as given. */
static bool in_round(const sonde_view *view, int round)
{
    return sonde_dtype_size(view->dtype) == (size_t)16 >> round;
}

/* --- checking what is asked for --------------------------------------------------- */

static sonde_err check_text(const request *r, const char *what, const char *text)
{
    if (text == NULL) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "a text", "a %s is NULL",
                           what);
    }
    return sonde__utf8_valid(text) ? SONDE_OK
                                   : sonde__fail(r->diag, SONDE_EINVAL, r->path, "UTF-8",
                                                 "%s '%s'", what, text);
}

/* Checks that name is UTF-8 and not in seen yet. */
static sonde_err check_name(const request *r, sonde__names *names, const char *what,
                            const char *name)
{
    const size_t before = names->count;
    SONDE__TRY(check_text(r, what, name));
    if (sonde__names_intern(names, name) == SONDE__NO_NAME) {
        return sonde__fail_nomem(r->diag, "names");
    }
    if (names->count == before) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "distinct names",
                           "%s '%s' appears twice", what, name);
    }
    return SONDE_OK;
}

static sonde_err check_tensor(const request *r, sonde__names *names,
                              const sonde_named_view *t)
{
    const sonde_view *view = &t->view;
    bool usable = t->name != NULL && sonde_dtype_size(view->dtype) > 0 &&
                  view->rank >= 0 && view->rank <= SONDE_MAX_DIMS;

    for (int d = 0; usable && d < view->rank; d++) {
        usable = view->shape[d] >= 0;
    }
    if (!usable) {
        return sonde__fail(
            r->diag, SONDE_EINVAL, r->path, "a dtype, and a shape from 0 on",
            "tensor '%s' is not a usable view", t->name != NULL ? t->name : "NULL");
    }
    if (strcmp(t->name, METADATA) == 0) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "another name",
                           "a tensor called '" METADATA "'");
    }
    return check_name(r, names, "tensor", t->name);
}

static sonde_err check_request(const request *r)
{
    sonde__names tensors, keys;
    sonde_err err = SONDE_OK;

    sonde__names_init(&tensors);
    sonde__names_init(&keys);
    for (size_t i = 0; i < r->count; i++) {
        SONDE__TRY_GO(check_tensor(r, &tensors, &r->tensors[i]));
    }
    for (size_t i = 0; i < r->metadata_count; i++) {
        SONDE__TRY_GO(check_name(r, &keys, "metadata", r->metadata[i].key));
        SONDE__TRY_GO(check_text(r, "metadata value", r->metadata[i].value));
    }
error:
    sonde__names_fini(&tensors);
    sonde__names_fini(&keys);
    return err;
}

/* --- the header ------------------------------------------------------------------- */

static size_t view_bytes(const sonde_view *view)
{
    return (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
}

static void put_tensor(sonde_json *json, const sonde_named_view *tensor, size_t begin)
{
    sonde_json_object(json, tensor->name);
    sonde_json_string(json, "dtype", sonde__dtype_short_name(tensor->view.dtype));
    sonde_json_list(json, "shape");
    for (int d = 0; d < tensor->view.rank; d++) {
        sonde_json_int(json, NULL, tensor->view.shape[d]);
    }
    sonde_json_end(json);
    sonde_json_list(json, "data_offsets");
    sonde_json_uint(json, NULL, begin);
    sonde_json_uint(json, NULL, begin + view_bytes(&tensor->view));
    sonde_json_end(json);
    sonde_json_end(json);
}

static void put_metadata(sonde_json *json, const request *r)
{
    sonde_json_object(json, METADATA);
    for (size_t i = 0; i < r->metadata_count; i++) {
        sonde_json_string(json, r->metadata[i].key, r->metadata[i].value);
    }
    sonde_json_end(json);
}

/* The length and the JSON, padded with spaces so that data begins at a multiple of 8. */
static sonde_err put_header(sonde_text *text, const request *r)
{
    static const char room[LENGTH_SIZE] = {0};
    sonde_json json = {.text = text};
    size_t begin = 0;
    uint64_t length = 0;

    sonde_text_put(text, room, LENGTH_SIZE);
    sonde_json_object(&json, NULL);
    if (r->metadata_count > 0) {
        put_metadata(&json, r);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t t = 0; t < r->count; t++) {
            if (in_round(&r->tensors[t].view, round)) {
                put_tensor(&json, &r->tensors[t], begin);
                begin += view_bytes(&r->tensors[t].view);
            }
        }
    }
    sonde_json_end(&json);
    sonde_text_put(text, "       ", (8 - text->length % 8) % 8);
    if (text->failed) {
        return sonde__fail_nomem(r->diag, "a safetensors header");
    }
    length = text->length - LENGTH_SIZE;
    if (length > MOST_HEADER) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "at most 100 MB",
                           "a header of %llu bytes", (unsigned long long)length);
    }
    memcpy(text->data, &length, sizeof length);
    return SONDE_OK;
}

/* --- the file --------------------------------------------------------------------- */

void sonde__tensor_write(sonde__whole_file *file, const sonde_view *view)
{
    _Alignas(8) unsigned char gathered[8192];
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    if (sonde_view_is_contiguous(view)) { /* also where it is not aligned */
        (void)sonde__whole_write(file, view->data, view_bytes(view));
        return;
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, sizeof gathered / size, gathered,
                                          &elements)) > 0) {
        (void)sonde__whole_write(file, elements, n * size);
    }
}

static sonde_err publish(const request *r, const sonde_text *header)
{
    sonde__whole_file file;
    SONDE__TRY(sonde__whole_open(&file, r->path, r->diag));
    (void)sonde__whole_write(&file, header->data, header->length);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t t = 0; t < r->count; t++) {
            if (in_round(&r->tensors[t].view, round)) {
                sonde__tensor_write(&file, &r->tensors[t].view);
            }
        }
    }
    sonde_err err = sonde__whole_commit(&file, SONDE__REPLACE, r->diag);
    sonde__whole_close(&file);
    return err;
}

sonde_err sonde_safetensors_write(const char *path, const sonde_named_view *tensors,
                                  size_t count, const sonde_metadata *metadata,
                                  size_t metadata_count, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path);
    if (count > 0) {
        SONDE__NEEDS(diag, tensors);
    }
    if (metadata_count > 0) {
        SONDE__NEEDS(diag, metadata);
    }
    const request r = {path, tensors, count, metadata, metadata_count, diag};
    sonde_text header = {0};
    SONDE__TRY(check_request(&r));
    sonde_err err = SONDE_OK;
    SONDE__TRY_GO(put_header(&header, &r));
    err = publish(&r, &header);
error:
    sonde_text_fini(&header);
    return err;
}
