/*
 * value.c - the bytes of one item: mapped, unpacked if need be, and checked.
 */
#include "trial/trial_state.h"
#include "base/fail.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

/* "conv1.weight at train step 100, worker w0000", for diagnostics. */
static const char *title_of(const sonde_trial *trial, const sonde__trial_worker *worker,
                            const sonde__trial_item *item, char *text, size_t size)
{
    const sonde__trial_step *step = &trial->steps.items[item->step];

    (void)snprintf(text, size, "%s: '%.128s' at %s step %lld", worker->name,
                   sonde_catalogue_info(trial->catalogue, item->tensor)->name,
                   sonde_mode_name((sonde_mode)step->mode), (long long)step->mode_step);
    return text;
}

/* --- unpacking -------------------------------------------------------------------- */

/* First bytes of all elements, then all second bytes ..., to elements. */
static void unshuffle(const unsigned char *from, size_t count, size_t size,
                      unsigned char *to)
{
    for (size_t b = 0; b < size; b++) {
        const unsigned char *plane = from + b * count;

        for (size_t i = 0; i < count; i++) {
            to[i * size + b] = plane[i];
        }
    }
}

/* One frame of exactly bytes, to trial->value. */
static sonde_err unpack(sonde_trial *trial, const sonde__trial_raw_item *item,
                        const sonde__trial_form *form, const unsigned char *stored,
                        size_t bytes, const char *title, sonde_diag *diag)
{
    const size_t element = sonde_dtype_size((sonde_dtype)form->dtype);
    const bool shuffled = form->packing == SONDE__PACKED_ZSTD_SHUFFLE && element > 1;
    const unsigned long long inside = ZSTD_getFrameContentSize(stored, item->bytes);
    sonde__trial_scratch *to = shuffled ? &trial->packed : &trial->value;
    size_t got = 0;

    if (inside == ZSTD_CONTENTSIZE_ERROR ||
        (inside != ZSTD_CONTENTSIZE_UNKNOWN && inside != bytes)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "no zstd frame of %zu bytes where one is said to be", bytes);
    }
    if (!sonde__trial_scratch_reserve(&trial->value, bytes) ||
        !sonde__trial_scratch_reserve(to, bytes)) {
        return sonde__fail_nomem(diag, title);
    }
    got = ZSTD_decompress(to->bytes, bytes, stored, item->bytes);
    if (got != bytes) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL, "cannot be decompressed: %s",
                           ZSTD_isError(got) ? ZSTD_getErrorName(got) : "too short");
    }
    if (shuffled) {
        unshuffle(trial->packed.bytes, bytes / element, element, trial->value.bytes);
    }
    return SONDE_OK;
}

/* --- values ----------------------------------------------------------------------- */

static sonde_err check_hash(const unsigned char *bytes, size_t size, uint64_t wanted,
                            const char *title, sonde_diag *diag)
{
    const uint64_t hash = XXH3_64bits(bytes, size);
    char expected[32];

    if (hash == wanted) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "%016llx", (unsigned long long)wanted);
    return sonde__fail(diag, SONDE_EFORMAT, title, expected,
                       "its bytes have the hash %016llx", (unsigned long long)hash);
}

sonde_err sonde__trial_value_of(sonde_trial *trial, sonde__trial_worker *worker,
                                const sonde__trial_raw_item *item, sonde_view *view,
                                sonde_diag *diag)
{
    const sonde__trial_form *form = NULL;
    sonde__trial_file *segment = NULL;
    const unsigned char *bytes = NULL;
    char title[256];
    sonde_view value;
    size_t size = 0;
    sonde_err err = SONDE_OK;

    if (item->form == SONDE__FOREIGN) {
        return sonde__trial_smdebug_value(trial, worker, item, view, diag);
    }
    (void)title_of(trial, worker, &item->item, title, sizeof title);
    form = &trial->forms.items[item->form];
    segment = &worker->files[SONDE__RAW].items[item->segment];
    value = sonde_view_of((sonde_dtype)form->dtype, form->rank, form->shape, NULL);
    size = (size_t)sonde_view_count(&value) * sonde_dtype_size(value.dtype);
    err = sonde__trial_file_map(trial, worker, SONDE__FILE_SEGMENT, segment,
                                segment->head + item->offset, item->bytes, &bytes, diag);
    if (err == SONDE_OK && form->packing != SONDE__PACKED_NOT) {
        err = unpack(trial, item, form, bytes, size, title, diag);
        bytes = trial->value.bytes;
    }
    if (err == SONDE_OK) {
        err = check_hash(bytes, size, item->hash, title, diag);
    }
    if (err == SONDE_OK) {
        value.data = (void *)(uintptr_t)bytes; /* views have no const form */
        *view = value;
    }
    return err;
}

/* --- rows and sketches -------------------------------------------------------------- */

/* The statistics file that holds a row. */
static sonde__trial_file *file_of_row(const sonde__trial_worker *worker, uint32_t row)
{
    const sonde__trial_file_list *files = &worker->files[SONDE__VITALS];
    size_t low = 0, high = files->count;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (files->items[middle].first <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &files->items[low];
}

/* Rows of the file from its first on, all that were read of it. */
static sonde_err map_rows(const sonde_trial *trial, sonde__trial_worker *worker,
                          sonde__trial_file *file, sonde__trial_rows *rows,
                          sonde_diag *diag)
{
    const sonde__trial_file_list *files = &worker->files[SONDE__VITALS];
    const size_t at = (size_t)(file - files->items);
    const uint32_t end =
        at + 1 < files->count ? files->items[at + 1].first : worker->stats_rows;
    const unsigned char *bytes = NULL;
    const sonde_err err = sonde__trial_file_map(
        trial, worker, SONDE__FILE_STATS, file, SONDE__STATS_HEAD,
        (uint64_t)(end - file->first) * SONDE__STATS_ROW, &bytes, diag);

    if (err == SONDE_OK) {
        *rows = (sonde__trial_rows){(const void *)bytes, file->first, end};
    }
    return err;
}

sonde_err sonde__trial_row_of(const sonde_trial *trial, sonde__trial_worker *worker,
                              uint32_t row, sonde__trial_rows *rows,
                              const sonde__record_stats_row **out, sonde_diag *diag)
{
    if (row < rows->first || row >= rows->end) {
        const sonde_err err =
            map_rows(trial, worker, file_of_row(worker, row), rows, diag);

        if (err != SONDE_OK) {
            return err;
        }
    }
    *out = rows->rows + (row - rows->first);
    return SONDE_OK;
}

sonde_err sonde__trial_sketch_of(const sonde_trial *trial, sonde__trial_worker *worker,
                                 const sonde__trial_sketch_item *item,
                                 sonde_sketch *sketch, sonde_diag *diag)
{
    const unsigned char *bytes = NULL;
    const sonde__record_sketch_record *record = NULL;
    char title[256];
    const sonde_err err =
        sonde__trial_file_map(trial, worker, SONDE__FILE_SKETCH,
                              &worker->files[SONDE__SKETCH].items[item->file],
                              item->offset, item->length, &bytes, diag);

    if (err != SONDE_OK) {
        return err;
    }
    record = (const void *)bytes;
    if (record->length != item->length ||
        !sonde__record_sketch_valid(record, item->length) ||
        sonde__record_sketch_check(record) != record->check) {
        return sonde__fail(diag, SONDE_EFORMAT,
                           title_of(trial, worker, &item->item, title, sizeof title),
                           NULL, "its sketch is damaged");
    }
    sonde__record_sketch_decode(record, sketch);
    return SONDE_OK;
}
