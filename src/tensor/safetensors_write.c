/*
 * safetensors_write.c - writing safetensors files whole.
 *
 * Wider elements come first, so that every tensor lies aligned for its dtype: some
 * readers ask for that. At any moment there is the old file or the new one.
 */
#include "base/whole_file.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"
#include "tensor/convert.h"

#include <sonde/safetensors.h>

#include <stdio.h>
#include <string.h>

#define METADATA "__metadata__"

enum {
    BUFFER = 256 * 1024,
    LENGTH_SIZE = 8,
    MOST_HEADER = 100 * 1000 * 1000,
    ROUNDS = 5
};

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

/* How many bytes the UTF-8 character at s takes; 0 if it is none (RFC 3629: no overlong
 * forms, no surrogates, nothing above U+10FFFF). */
static size_t character_length(const unsigned char *s)
{
    const size_t n = s[0] < 0x80   ? 1
                     : s[0] < 0xC2 ? 0
                     : s[0] < 0xE0 ? 2
                     : s[0] < 0xF0 ? 3
                                   : 4;

    if (s[0] > 0xF4) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) {
        return 0;
    }
    return n;
}

static sonde_err check_text(const request *r, const char *what, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s != '\0') {
        const size_t n = character_length(s);

        if (n == 0) {
            return sonde__fail(r->diag, SONDE_EINVAL, r->path, "UTF-8", "%s '%s'", what,
                               text);
        }
        s += n;
    }
    return SONDE_OK;
}

/* Text that is UTF-8 and was not in seen. */
static sonde_err check_name(const request *r, sonde__names *seen, const char *what,
                            const char *name)
{
    const size_t before = seen->count;
    const sonde_err err = check_text(r, what, name);

    if (err != SONDE_OK) {
        return err;
    }
    if (sonde__names_intern(seen, name) == SONDE__NO_NAME) {
        return sonde__fail_nomem(r->diag, "names");
    }
    if (seen->count == before) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "distinct names",
                           "%s '%s' stands twice", what, name);
    }
    return SONDE_OK;
}

static sonde_err check_tensor(const request *r, sonde__names *seen,
                              const sonde_named_view *t)
{
    const sonde_view *view = &t->view;
    bool usable = sonde_dtype_size(view->dtype) > 0 && view->rank >= 0 &&
                  view->rank <= SONDE_MAX_DIMS;

    for (int d = 0; usable && d < view->rank; d++) {
        usable = view->shape[d] >= 0;
    }
    if (!usable) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path,
                           "a dtype, and a shape from 0 on",
                           "tensor '%s' is not a usable view", t->name);
    }
    if (strcmp(t->name, METADATA) == 0) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "another name",
                           "a tensor called '" METADATA "'");
    }
    return check_name(r, seen, "tensor", t->name);
}

static sonde_err check_request(const request *r)
{
    sonde__names tensors, keys;
    sonde_err err = SONDE_OK;

    sonde__names_init(&tensors);
    sonde__names_init(&keys);
    for (size_t i = 0; err == SONDE_OK && i < r->count; i++) {
        err = check_tensor(r, &tensors, &r->tensors[i]);
    }
    for (size_t i = 0; err == SONDE_OK && i < r->metadata_count; i++) {
        err = check_name(r, &keys, "metadata", r->metadata[i].key);
        if (err == SONDE_OK) {
            err = check_text(r, "metadata value", r->metadata[i].value);
        }
    }
    sonde__names_fini(&tensors);
    sonde__names_fini(&keys);
    return err;
}

/* --- the header ------------------------------------------------------------------- */

/* Text that grows. Once memory was out it stays as it is, and failed. */
typedef struct text {
    char *start;
    size_t used, capacity;
    bool failed;
} text;

static void put(text *to, const char *from, size_t n)
{
    to->failed =
        to->failed || !sonde__reserve(&to->start, &to->capacity, to->used + n, 1);
    if (!to->failed) {
        memcpy(to->start + to->used, from, n);
        to->used += n;
    }
}

static void put_plain(text *to, const char *from)
{
    put(to, from, strlen(from));
}

static void put_number(text *to, uint64_t number)
{
    char digits[24];

    (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    put_plain(to, digits);
}

/* A JSON string. */
static void put_quoted(text *to, const char *from)
{
    put_plain(to, "\"");
    for (; *from != '\0'; from++) {
        char escape[8] = {*from};

        if (*from == '"' || *from == '\\') {
            (void)snprintf(escape, sizeof escape, "\\%c", *from);
        } else if ((unsigned char)*from < 0x20) {
            (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*from);
        }
        put_plain(to, escape);
    }
    put_plain(to, "\"");
}

static size_t view_bytes(const sonde_view *view)
{
    return (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
}

static void put_tensor(text *to, const sonde_named_view *tensor, size_t begin)
{
    put_quoted(to, tensor->name);
    put_plain(to, ":{\"dtype\":");
    put_quoted(to, sonde__dtype_short_name(tensor->view.dtype));
    put_plain(to, ",\"shape\":[");
    for (int d = 0; d < tensor->view.rank; d++) {
        put_plain(to, d > 0 ? "," : "");
        put_number(to, (uint64_t)tensor->view.shape[d]);
    }
    put_plain(to, "],\"data_offsets\":[");
    put_number(to, begin);
    put_plain(to, ",");
    put_number(to, begin + view_bytes(&tensor->view));
    put_plain(to, "]}");
}

static void put_metadata(text *to, const request *r)
{
    put_quoted(to, METADATA);
    put_plain(to, ":{");
    for (size_t i = 0; i < r->metadata_count; i++) {
        put_plain(to, i > 0 ? "," : "");
        put_quoted(to, r->metadata[i].key);
        put_plain(to, ":");
        put_quoted(to, r->metadata[i].value);
    }
    put_plain(to, "}");
}

/* The length and the JSON, padded with spaces so that data begins at a multiple of 8. */
static sonde_err put_header(text *to, const request *r)
{
    static const char room[LENGTH_SIZE] = {0};
    const char *comma = "";
    size_t begin = 0;
    uint64_t length = 0;

    put(to, room, LENGTH_SIZE);
    put_plain(to, "{");
    if (r->metadata_count > 0) {
        put_metadata(to, r);
        comma = ",";
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t t = 0; t < r->count; t++) {
            if (in_round(&r->tensors[t].view, round)) {
                put_plain(to, comma);
                put_tensor(to, &r->tensors[t], begin);
                begin += view_bytes(&r->tensors[t].view);
                comma = ",";
            }
        }
    }
    put_plain(to, "}");
    put(to, "       ", (8 - to->used % 8) % 8);
    if (to->failed) {
        return sonde__fail_nomem(r->diag, "a safetensors header");
    }
    if (to->used - LENGTH_SIZE > MOST_HEADER) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "at most 100 MB",
                           "a header of %zu bytes", to->used - LENGTH_SIZE);
    }
    length = to->used - LENGTH_SIZE;
    memcpy(to->start, &length, sizeof length);
    return SONDE_OK;
}

/* --- the file --------------------------------------------------------------------- */

/* Small pieces are collected, large ones go straight out. */
typedef struct output {
    int fd;
    unsigned char *buffer; /* BUFFER bytes */
    size_t used;
} output;

static bool flush(output *out)
{
    const size_t n = out->used;

    out->used = 0;
    return sonde__write_all(out->fd, out->buffer, n);
}

static bool emit(output *out, const void *bytes, size_t n)
{
    if (n > BUFFER - out->used && !flush(out)) {
        return false;
    }
    if (n >= BUFFER) {
        return sonde__write_all(out->fd, bytes, n);
    }
    if (n > 0) {
        memcpy(out->buffer + out->used, bytes, n);
        out->used += n;
    }
    return true;
}

static bool emit_view(output *out, const sonde_view *view)
{
    _Alignas(8) unsigned char gathered[8192];
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(
                &cursor, cursor.direct ? cursor.left : sizeof gathered / size, gathered,
                &elements)) > 0) {
        if (!emit(out, elements, n * size)) {
            return false;
        }
    }
    return true;
}

static sonde_err write_file(const request *r, const text *header, int fd)
{
    output out = {.fd = fd, .buffer = sonde__malloc(BUFFER)};
    sonde_err err = SONDE_OK;
    bool good = true;

    if (out.buffer == NULL) {
        return sonde__fail_nomem(r->diag, "a write buffer");
    }
    good = emit(&out, header->start, header->used);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t t = 0; good && t < r->count; t++) {
            if (in_round(&r->tensors[t].view, round)) {
                good = emit_view(&out, &r->tensors[t].view);
            }
        }
    }
    good = good && flush(&out);
    if (!good) {
        err = sonde__fail_errno(r->diag, r->path, "cannot be written");
    }
    sonde__free(out.buffer);
    return err;
}

static sonde_err publish(const request *r, const text *header)
{
    sonde__whole_file file;
    sonde_err err = sonde__whole_open(&file, r->path, r->diag);

    if (err == SONDE_OK) {
        err = write_file(r, header, file.fd);
    }
    if (err == SONDE_OK) {
        err = sonde__whole_commit(&file, SONDE__REPLACE, r->diag);
    }
    sonde__whole_close(&file);
    return err;
}

sonde_err sonde_safetensors_write(const char *path, const sonde_named_view *tensors,
                                  size_t count, const sonde_metadata *metadata,
                                  size_t metadata_count, sonde_diag *diag)
{
    const request r = {path, tensors, count, metadata, metadata_count, diag};
    text header = {0};
    sonde_err err = check_request(&r);

    if (err == SONDE_OK) {
        err = put_header(&header, &r);
    }
    if (err == SONDE_OK) {
        err = publish(&r, &header);
    }
    sonde__free(header.start);
    return err;
}
