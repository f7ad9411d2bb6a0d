/*
 * npy.c - see files.h. The header is scanned for its three keys, in any order.
 */
#include "nn/data/files.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The rest of the header, and what was found in it. */
typedef struct npy_header {
    const char *name;
    const char *next, *end;
    char descr[16];
    bool fortran, has_descr, has_order, has_shape;
    int rank;
    int64_t shape[SONDE_MAX_DIMS];
    sonde_diag *diag;
} npy_header;

static sonde_err fail_header(const npy_header *h, const char *what)
{
    return sonde__fail(h->diag, SONDE_EFORMAT, h->name,
                       "{'descr': ..., 'fortran_order': ..., 'shape': ...}",
                       "the header of the array has %s", what);
}

static void skip_blanks(npy_header *h)
{
    while (h->next < h->end &&
           (*h->next == ' ' || *h->next == '\n' || *h->next == '\t')) {
        h->next++;
    }
}

/* Takes a character if it is next. */
static bool take(npy_header *h, char wanted)
{
    skip_blanks(h);
    if (h->next == h->end || *h->next != wanted) {
        return false;
    }
    h->next++;
    return true;
}

static bool take_word(npy_header *h, const char *word)
{
    const size_t length = strlen(word);

    skip_blanks(h);
    if ((size_t)(h->end - h->next) < length || memcmp(h->next, word, length) != 0) {
        return false;
    }
    h->next += length;
    return true;
}

/* A text between quotes, without escapes. */
static bool take_text(npy_header *h, char *out, size_t size)
{
    const char quote = take(h, '\'') ? '\'' : take(h, '"') ? '"' : '\0';
    size_t length = 0;

    while (quote != '\0' && h->next < h->end && *h->next != quote && length + 1 < size) {
        out[length++] = *h->next++;
    }
    out[length] = '\0';
    return quote != '\0' && take(h, quote);
}

static bool take_size(npy_header *h, int64_t *out)
{
    int64_t size = 0;

    skip_blanks(h);
    const char *first = h->next;
    while (h->next < h->end && *h->next >= '0' && *h->next <= '9') {
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, *h->next - '0', &size)) {
            return false;
        }
        h->next++;
    }
    *out = size;
    return h->next > first;
}

/* (), (3,), (3, 4) */
static sonde_err take_shape(npy_header *h)
{
    if (!take(h, '(')) {
        return fail_header(h, "no tuple as shape");
    }
    h->rank = 0;
    while (!take(h, ')')) {
        if (h->rank == SONDE_MAX_DIMS) {
            return sonde__fail(h->diag, SONDE_EUNSUPPORTED, h->name, "at most 8",
                               "an array of more dimensions");
        }
        if (!take_size(h, &h->shape[h->rank])) {
            return fail_header(h, "no whole number in its shape");
        }
        h->rank++;
        if (!take(h, ',') && (h->next == h->end || *h->next != ')')) {
            return fail_header(h, "a shape without an end");
        }
    }
    h->has_shape = true;
    return SONDE_OK;
}

static sonde_err take_entry(npy_header *h)
{
    char key[24];

    if (!take_text(h, key, sizeof key) || !take(h, ':')) {
        return fail_header(h, "no key where one begins");
    }
    if (strcmp(key, "descr") == 0) {
        if (take_text(h, h->descr, sizeof h->descr)) {
            h->has_descr = true;
            return SONDE_OK;
        }
        return sonde__fail(h->diag, SONDE_EUNSUPPORTED, h->name, "an array of numbers",
                           "its elements are records");
    }
    if (strcmp(key, "shape") == 0) {
        return take_shape(h);
    }
    if (strcmp(key, "fortran_order") != 0) {
        return fail_header(h, "an unknown key");
    }
    h->fortran = take_word(h, "True");
    h->has_order = h->fortran || take_word(h, "False");
    return h->has_order ? SONDE_OK : fail_header(h, "no True or False");
}

static sonde_err read_header(npy_header *h)
{
    if (!take(h, '{')) {
        return fail_header(h, "no dictionary");
    }
    while (!take(h, '}')) {
        SONDE__TRY(take_entry(h));
        if (!take(h, ',') && (h->next == h->end || *h->next != '}')) {
            return fail_header(h, "no end");
        }
    }
    return h->has_descr && h->has_order && h->has_shape
               ? SONDE_OK
               : fail_header(h, "not all three keys");
}

static sonde_err find_dtype(const npy_header *h, sonde_dtype *out)
{
    static const struct {
        const char *descr;
        sonde_dtype dtype;
    } known[] = {{"b1", SONDE_BOOL}, {"i1", SONDE_I8},  {"u1", SONDE_U8},
                 {"i2", SONDE_I16},  {"u2", SONDE_U16}, {"i4", SONDE_I32},
                 {"u4", SONDE_U32},  {"i8", SONDE_I64}, {"u8", SONDE_U64},
                 {"f2", SONDE_F16},  {"f4", SONDE_F32}, {"f8", SONDE_F64}};
    const char order = h->descr[0];

    if (order == '>') {
        return sonde__fail(h->diag, SONDE_EUNSUPPORTED, h->name,
                           "the machine's: array.astype(array.dtype.newbyteorder('='))",
                           "elements '%s' have another byte order", h->descr);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        if ((order == '<' || order == '|' || order == '=') &&
            strcmp(h->descr + 1, known[i].descr) == 0) {
            *out = known[i].dtype;
            return SONDE_OK;
        }
    }
    return sonde__fail(h->diag, SONDE_EUNSUPPORTED, h->name, "an array of numbers",
                       "elements of dtype '%s'", h->descr);
}

/* Bytes before the header, and of it; 0: they are not those of an array. */
static size_t find_header(const unsigned char *bytes, size_t size, size_t *length)
{
    const bool wide = size > 6 && bytes[6] >= 2;
    const size_t start = wide ? 12 : 10;

    if (size < start || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 ||
        bytes[6] > 3 || bytes[7] != 0) {
        return 0;
    }
    *length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (wide) {
        *length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    }
    return *length <= size - start ? start : 0;
}

static sonde_err check_size(const npy_header *h, sonde_dtype dtype, size_t left)
{
    size_t bytes = sonde_dtype_size(dtype);

    for (int i = 0; i < h->rank; i++) {
        if (!sonde__mul(bytes, (size_t)h->shape[i], &bytes)) {
            return fail_header(h, "a shape of too many elements");
        }
    }
    if (bytes != left) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "%zu bytes of elements", bytes);
        return sonde__fail(h->diag, SONDE_EFORMAT, h->name, expected, "%zu bytes%s", left,
                           left < bytes ? ": the file is cut short" : "");
    }
    return SONDE_OK;
}

sonde_err sonde__data_npy_parse(const void *bytes, size_t size, const char *name,
                                sonde_view *out, sonde_diag *diag)
{
    const unsigned char *all = bytes;
    size_t length = 0, start = 0;
    npy_header h = {.name = name, .diag = diag};
    sonde_dtype dtype = SONDE_F32;
    void *data = NULL;

    start = find_header(all, size, &length);
    if (start == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, name, "\\x93NUMPY, version 1 to 3",
                           "no NumPy array");
    }
    h.next = (const char *)all + start;
    h.end = h.next + length;
    SONDE__TRY(read_header(&h));
    SONDE__TRY(find_dtype(&h, &dtype));
    SONDE__TRY(check_size(&h, dtype, size - start - length));
    all += start + length;
    memcpy(&data, &all, sizeof data); /* a view's data is not const */
    *out = sonde_view_of(dtype, h.rank, h.shape, data);
    if (h.fortran) {
        uint64_t step = 1; /* wraps only where there are no elements */

        for (int i = 0; i < h.rank; i++) {
            out->stride[i] = (int64_t)step;
            step *= (uint64_t)h.shape[i];
        }
    }
    return SONDE_OK;
}
