/*
 * safetensors_write.c - writing safetensors files whole.
 *
 * Wider elements come first, so that every tensor is aligned for its dtype, as some
 * readers require. At any moment there is the old file or the new one.
 */
#include "base/whole_file.h"
#include "base/fail.h"
#include "base/names.h"
#include "base/utf8.h"
#include "tensor/convert.h"

#include <sonde/json.h>
#include <sonde/safetensors.h>

#include <stdio.h>
#include <string.h>

#define METADATA "__metadata__"

enum { LENGTH_SIZE = 8, MOST_HEADER = 100 * 1000 * 1000, ROUNDS = 5 };

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
static sonde_err check_name(const request *r, sonde__names *seen, const char *what,
                            const char *name)
{
    const size_t before = seen->count;
    SONDE__TRY(check_text(r, what, name));
    if (sonde__names_intern(seen, name) == SONDE__NO_NAME) {
        return sonde__fail_nomem(r->diag, "names");
    }
    if (seen->count == before) {
        return sonde__fail(r->diag, SONDE_EINVAL, r->path, "distinct names",
                           "%s '%s' appears twice", what, name);
    }
    return SONDE_OK;
}

static sonde_err check_tensor(const request *r, sonde__names *seen,
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
    return check_name(r, seen, "tensor", t->name);
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
