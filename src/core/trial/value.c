/*
 * value.c - see trial_state.h.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "trial/smdebug.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

/* "conv1.weight at train step 100, worker w0000", for diagnostics. */
static const char *item_title(const sonde_trial *trial, const sonde__trial_worker *worker,
                              const sonde__trial_item *item, char *text, size_t size)
{
    const sonde__trial_step *step = &trial->steps.items[item->step];

    (void)snprintf(text, size, "%s: '%.128s' at %s step %lld", worker->name,
                   sonde_catalogue_info(trial->catalogue, item->tensor)->name,
                   sonde_mode_name((sonde_mode)step->mode), (long long)step->mode_step);
    return text;
}

/* --- unpacking -------------------------------------------------------------------- */

/* Makes elements of planes: all first bytes, then all second bytes, and so on. */
static void unshuffle(const unsigned char *planes, size_t count, size_t size,
                      unsigned char *elements)
{
    for (size_t b = 0; b < size; b++) {
        const unsigned char *plane = planes + b * count;

        for (size_t i = 0; i < count; i++) {
            elements[i * size + b] = plane[i];
        }
    }
}

/* Unpacks a zstd frame of exactly bytes to trial->value. */
static sonde_err unpack(sonde_trial *trial, const sonde__trial_raw_item *item,
                        const sonde__trial_layout *layout, const unsigned char *stored,
                        size_t bytes, const char *title, sonde_diag *diag)
{
    const size_t element = sonde_dtype_size((sonde_dtype)layout->dtype);
    const bool shuffled = layout->packing == SONDE__PACKED_ZSTD_SHUFFLE && element > 1;
    const unsigned long long inside = ZSTD_getFrameContentSize(stored, item->bytes);
    sonde__trial_scratch *unpacked = shuffled ? &trial->packed : &trial->value;

    if (inside == ZSTD_CONTENTSIZE_ERROR ||
        (inside != ZSTD_CONTENTSIZE_UNKNOWN && inside != bytes)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "no zstd frame of %zu bytes where one is said to be", bytes);
    }
    if (!sonde__trial_scratch_reserve(&trial->value, bytes) ||
        !sonde__trial_scratch_reserve(unpacked, bytes)) {
        return sonde__fail_nomem(diag, title);
    }
    const size_t got = ZSTD_decompress(unpacked->bytes, bytes, stored, item->bytes);
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

sonde_err sonde__trial_load_value(sonde_trial *trial, sonde__trial_worker *worker,
                                  const sonde__trial_raw_item *item, sonde_view *view,
                                  sonde_diag *diag)
{
    const sonde__trial_layout *layout = NULL;
    sonde__trial_file *segment = NULL;
    const unsigned char *bytes = NULL;
    char title[256];
    sonde_view value;

    if (item->layout == SONDE__FOREIGN) {
        return sonde__smdebug_value(trial, worker, item, view, diag);
    }
    (void)item_title(trial, worker, &item->item, title, sizeof title);
    layout = &trial->layouts.items[item->layout];
    segment = &worker->files[SONDE__FILE_SEGMENT].items[item->segment];
    value = sonde_view_of((sonde_dtype)layout->dtype, layout->rank, layout->shape, NULL);
    const size_t size = (size_t)sonde_view_count(&value) * sonde_dtype_size(value.dtype);
    SONDE__TRY(sonde__trial_file_map(&worker->files[SONDE__FILE_SEGMENT], segment,
                                     trial->question, segment->head + item->offset,
                                     item->bytes, &bytes, diag));
    if (layout->packing != SONDE__PACKED_NOT) {
        SONDE__TRY(unpack(trial, item, layout, bytes, size, title, diag));
        bytes = trial->value.bytes;
    }
    SONDE__TRY(check_hash(bytes, size, item->hash, title, diag));
    value.data = (void *)(uintptr_t)bytes; /* views have no const layout */
    *view = value;
    return SONDE_OK;
}

/* --- rows and sketches ------------------------------------------------------------ */

/* The statistics file that holds a row. */
static sonde__trial_file *file_of_row(const sonde__trial_worker *worker, uint32_t row)
{
    const sonde__trial_file_list *files = &worker->files[SONDE__FILE_STATS];
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
    const sonde__trial_file_list *files = &worker->files[SONDE__FILE_STATS];
    const size_t index = (size_t)(file - files->items);
    const uint32_t end =
        index + 1 < files->count ? files->items[index + 1].first : worker->stats_rows;
    const unsigned char *bytes = NULL;
    SONDE__TRY(sonde__trial_file_map(files, file, trial->question, SONDE__STATS_HEAD,
                                     (uint64_t)(end - file->first) * SONDE__STATS_ROW,
                                     &bytes, diag));
    *rows = (sonde__trial_rows){(const void *)bytes, file->first, end};
    return SONDE_OK;
}

sonde_err sonde__trial_load_row(sonde_trial *trial, sonde__trial_worker *worker,
                                uint32_t row, sonde__trial_rows *rows,
                                const sonde__record_stats_row **out, sonde_diag *diag)
{
    if (trial->smdebug != NULL) {
        return sonde__smdebug_row(trial, worker, row, out, diag);
    }
    if (row < rows->first || row >= rows->end) {
        SONDE__TRY(map_rows(trial, worker, file_of_row(worker, row), rows, diag));
    }
    *out = rows->rows + (row - rows->first);
    return SONDE_OK;
}

sonde_err sonde__trial_load_sketch(const sonde_trial *trial, sonde__trial_worker *worker,
                                   const sonde__trial_sketch_item *item,
                                   sonde_sketch *sketch, sonde_diag *diag)
{
    const sonde__trial_file_list *files = &worker->files[SONDE__FILE_SKETCH];
    const unsigned char *bytes = NULL;
    char title[256];
    SONDE__TRY(sonde__trial_file_map(files, &files->items[item->file], trial->question,
                                     item->offset, item->length, &bytes, diag));
    const sonde__record_sketch_record *record = (const void *)bytes;
    if (record->length != item->length ||
        !sonde__record_sketch_valid(record, item->length) ||
        sonde__record_sketch_check(record) != record->check) {
        return sonde__fail(diag, SONDE_EFORMAT,
                           item_title(trial, worker, &item->item, title, sizeof title),
                           NULL, "its sketch is damaged");
    }
    sonde__record_sketch_decode(record, sketch);
    return SONDE_OK;
}
