/*
 * export_safetensors.c - raw values as one safetensors file.
 *
 * The header comes first, so the run is walked twice: for keys, dtypes and shapes, then
 * for the data, which are never all in memory.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "export/export.h"
#include "tensor/convert.h"

#include <sonde/json.h>

#include <stdlib.h>
#include <string.h>

enum {
    OFTEN = 64 /* values between two calls of progress */,
    MOST_HEADER = 100 * 1000 * 1000
};

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
    unsigned char *seen; /* by id: whether there is a value of the tensor */
    size_t tensors;      /* with values */
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
    all->tensors += all->seen[record->id] == 0;
    all->seen[record->id] = 1;
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

/* limited: other readers of safetensors take no longer header. */
static sonde_err put_header(sonde__whole_file *file, const sonde__export *work,
                            const items *all, bool limited, sonde_diag *diag)
{
    sonde_text header = {0};
    uint64_t length = 0;
    sonde_err err = SONDE_OK;

    make_header(work, all, &header);
    length = header.length;
    if (header.failed) {
        err = sonde__fail_nomem(diag, "a header");
    } else if (limited && length > MOST_HEADER) {
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
                                   bool aligned, sonde_diag *diag)
{
    sonde__whole_file file;
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde__export_open(&file, path, diag));
    if (aligned && all->count > 1) {
        qsort(all->list, all->count, sizeof all->list[0], compare);
    }
    SONDE__TRY_GO(put_header(&file, work, all, aligned, diag));
    SONDE__TRY_GO(put_data(&file, work, all, diag));
    return sonde__export_close(&file, diag);

error:
    sonde__whole_close(&file);
    return err;
}

sonde_err sonde__export_safetensors(sonde__export *work, const char *path, bool aligned,
                                    sonde_diag *diag)
{
    items all = {.seen = sonde__calloc(
                     sonde_catalogue_count(sonde_trial_catalogue(work->trial)) + 1, 1)};
    sonde_err err = SONDE_OK;

    if (all.seen == NULL) {
        return sonde__fail_nomem(diag, "an export");
    }
    SONDE__TRY_GO(sonde__export_values(work, add_item, &all, diag));
    if (all.count == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                          "no raw value of these tensors and steps can be read");
        goto error;
    }
    work->report->values = all.count;
    work->report->tensors = all.tensors;
    err = write_safetensors(work, path, &all, aligned, diag);
error:
    for (size_t i = 0; i < all.count; i++) {
        sonde__free(all.list[i].key);
    }
    sonde__free(all.list);
    sonde__free(all.seen);
    return err;
}
