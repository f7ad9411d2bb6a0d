/*
 * watch_update.c - updates of parameters.
 */
#include "capture/hook_state.h"

#include "base/macros.h"
#include "base/memory.h"
#include "tensor/convert.h"
#include "tensor/vitals.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sonde__watch_update {
    sonde_view
        value; /* contiguous, of the slot's dtype: before the step, then the update */
    sonde_view rows; /* room for some rows of dimension 0 */
    bool kept;       /* value is that before this step */
};

enum { ROOM = 4096 }; /* elements, about */

void sonde__watch_update_destroy(sonde__watch_update *update)
{
    if (update != NULL) {
        sonde__free(update->value.data);
        sonde__free(update->rows.data);
        sonde__free(update);
    }
}

sonde__watch_update *sonde__watch_update_create(const sonde_tensor_info *info)
{
    sonde__watch_update *made = sonde__calloc(1, sizeof *made);
    size_t bytes = sonde_dtype_size(info->dtype);
    int64_t row = 1;
    bool fits = true;

    for (int i = 0; i < info->rank; i++) {
        fits = fits && sonde__mul(bytes, (size_t)info->shape[i], &bytes);
        row *= fits && i > 0 ? info->shape[i] : 1;
    }
    if (made == NULL || !fits) {
        sonde__free(made);
        return NULL;
    }
    made->value = sonde_view_of(info->dtype, info->rank, info->shape,
                                sonde__malloc_aligned(SONDE__ALIGN, bytes));
    made->rows = made->value;
    if (info->rank > 0) {
        made->rows.shape[0] =
            SONDE_MIN(info->shape[0], SONDE_MAX(1, ROOM / SONDE_MAX(row, 1)));
        bytes = (size_t)(made->rows.shape[0] * row) * sonde_dtype_size(info->dtype);
    }
    made->rows.data = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    if (made->value.data == NULL || made->rows.data == NULL) {
        sonde__watch_update_destroy(made);
        return NULL;
    }
    return made;
}

void sonde__watch_update_restart(sonde__watch_update *update)
{
    update->kept = false;
}

const sonde_view *sonde__watch_update_value(const sonde__watch_update *update)
{
    return &update->value;
}

/* value = after - value, n elements. */
static void subtract(sonde_dtype dtype, void *value, const void *after, int64_t n)
{
    if (dtype == SONDE_F64) {
        double *difference = value;
        const double *minuend = after;

        for (int64_t i = 0; i < n; i++) {
            difference[i] = minuend[i] - difference[i];
        }
    } else {
        float *difference = value;
        const float *minuend = after;

        for (int64_t i = 0; i < n; i++) {
            difference[i] = minuend[i] - difference[i];
        }
    }
}

/* The same for a value with other strides or of another dtype, a few rows at a time. */
static bool subtract_rows(sonde__watch_update *shown, const sonde_view *view)
{
    const int64_t count = view->rank > 0 ? view->shape[0] : 1;
    const size_t size = sonde_dtype_size(shown->value.dtype);
    const size_t step = sonde_dtype_size(view->dtype);
    sonde_view from = *view, rows = shown->rows;

    for (int64_t i = 0, n = 0; i < count; i += n) {
        n = count;
        if (view->rank > 0) {
            n = SONDE_MIN(shown->rows.shape[0], count - i);
            from.shape[0] = rows.shape[0] = n;
            from.data = (char *)view->data + i * view->stride[0] * (int64_t)step;
        }
        if (sonde_view_copy(&rows, &from, NULL) != SONDE_OK) {
            return false;
        }
        subtract(rows.dtype,
                 (char *)shown->value.data +
                     (view->rank > 0 ? i * shown->value.stride[0] * (int64_t)size : 0),
                 rows.data, sonde_view_count(&rows));
    }
    return true;
}

static bool same_shape(const sonde_view *a, const sonde_view *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

/* The same of float32, block by block, with the vital signs of the difference. */
static void subtract_seen(float *value, const float *after, int64_t count,
                          sonde_vitals *vitals)
{
    enum { BLOCKS = 2 * SONDE__VITALS_BLOCK };

    sonde_vitals_init(vitals);
    for (int64_t i = 0; i < count; i += BLOCKS) {
        const int64_t n = SONDE_MIN(count - i, (int64_t)BLOCKS);

        subtract(SONDE_F32, value + i, after + i, n);
        sonde__vitals_add_f32(vitals, value + i, (size_t)n);
    }
}

bool sonde__watch_update_show(sonde__watch_update *shown, const sonde_view *view,
                              sonde_vitals *vitals, bool *taken)
{
    *taken = false;
    if (!same_shape(&shown->value, view)) {
        return false;
    }
    if (!shown->kept) {
        shown->kept = sonde_view_copy(&shown->value, view, NULL) == SONDE_OK;
        return false;
    }
    shown->kept = false;
    if (view->dtype != shown->value.dtype || !sonde_view_is_contiguous(view)) {
        return subtract_rows(shown, view);
    }
    if (vitals != NULL && view->dtype == SONDE_F32) {
        subtract_seen(shown->value.data, view->data, sonde_view_count(view), vitals);
        *taken = true;
        return true;
    }
    subtract(view->dtype, shown->value.data, view->data, sonde_view_count(view));
    return true;
}
