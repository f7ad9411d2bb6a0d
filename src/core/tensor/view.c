/*
 * view.c - strided views, and walking through one in row-major order; convert.h has the
 * contract of the cursor.
 */
#include "tensor/convert.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"
#include <stdio.h>
#include <string.h>
#include <sonde/tensor.h>
#include <assert.h>

sonde_view sonde_view_of(sonde_dtype dtype, int rank, const int64_t *shape, void *data)
{
    sonde_view view = {.dtype = dtype, .rank = rank, .data = data};
    int64_t stride = 1;

    if (rank > SONDE_MAX_DIMS || (rank > 0 && shape == NULL)) {
        view.rank = SONDE_MAX_DIMS + 1; /* which nothing accepts */
        return view;
    }
    for (int d = rank - 1; d >= 0; d--) {
        view.shape[d] = shape[d];
        view.stride[d] = stride;
        stride = (int64_t)((uint64_t)stride * (uint64_t)shape[d]); /* any shape */
    }
    return view;
}

const char *sonde__tensor_view_fault(const sonde_view *view, bool data)
{
    int64_t bytes = (int64_t)sizeof(double) * 2, count = 1;

    if (view == NULL) {
        return "no view";
    }
    if ((unsigned)view->dtype >= SONDE_DTYPE_COUNT) {
        return "an unknown dtype";
    }
    if (view->rank < 0 || view->rank > SONDE_MAX_DIMS) {
        return "a rank that is not 0 to 8";
    }
    for (int d = 0; d < view->rank; d++) {
        count = view->shape[d] == 0 ? 0 : count;
        if (view->shape[d] < 0 ||
            __builtin_mul_overflow(bytes, SONDE_MAX(view->shape[d], 1), &bytes)) {
            return "a dimension that is negative, or a shape that no memory holds";
        }
    }
    return data && count > 0 && view->data == NULL ? "no data" : NULL;
}

int64_t sonde_view_count(const sonde_view *view)
{
    uint64_t count = 1; /* of any shape */

    if (view == NULL || view->rank < 0 || view->rank > SONDE_MAX_DIMS) {
        return 0;
    }
    for (int d = 0; d < view->rank; d++) {
        count *= (uint64_t)view->shape[d];
    }
    return (int64_t)count;
}

bool sonde_view_is_contiguous(const sonde_view *view)
{
    int64_t stride = 1;

    if (view == NULL || view->rank < 0 || view->rank > SONDE_MAX_DIMS) {
        return false;
    }
    if (sonde_view_count(view) == 0) {
        return true;
    }
    for (int d = view->rank - 1; d >= 0; d--) {
        if (view->shape[d] != 1 && view->stride[d] != stride) {
            return false;
        }
        stride = (int64_t)((uint64_t)stride * (uint64_t)view->shape[d]);
    }
    return true;
}

bool sonde_view_same_shape(const sonde_view *a, const sonde_view *b)
{
    if (a == NULL || b == NULL) {
        return false;
    }
    return a->rank == b->rank && a->rank >= 0 && a->rank <= SONDE_MAX_DIMS &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

void *sonde_view_at(const sonde_view *view, const int64_t *index)
{
    int64_t offset = 0;

    if (view == NULL || view->rank < 0 || view->rank > SONDE_MAX_DIMS ||
        (index == NULL && view->rank > 0)) {
        return NULL;
    }
    for (int d = 0; d < view->rank; d++) {
        if (index[d] < 0 || index[d] >= view->shape[d]) {
            return NULL;
        }
        offset += index[d] * view->stride[d];
    }
    return (unsigned char *)view->data + offset * (int64_t)sonde_dtype_size(view->dtype);
}

const char *sonde_shape_text(int rank, const int64_t *shape, char *buf, size_t size)
{
    if (buf == NULL || size == 0) {
        return buf;
    }
    (void)snprintf(buf, size, "(");
    rank = shape != NULL ? rank : 0;
    size_t used = strlen(buf);
    for (int d = 0; d < rank; d++) {
        (void)snprintf(buf + used, size - used, d > 0 ? ", %lld" : "%lld",
                       (long long)shape[d]);
        used += strlen(buf + used);
    }
    (void)snprintf(buf + used, size - used, ")");
    return buf;
}

static sonde_err check_copy(const sonde_view *dst, const sonde_view *src,
                            sonde_diag *diag)
{
    char expected[128], found[128];
    const char *const fault = sonde__tensor_view_fault(dst, true);

    if (sonde_dtype_size(dst->dtype) == 0 || sonde_dtype_size(src->dtype) == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, "copy", NULL, "a view without a dtype");
    }
    if (fault != NULL || sonde__tensor_view_fault(src, true) != NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "copy", "two tensors", "%s",
                           fault != NULL ? fault : sonde__tensor_view_fault(src, true));
    }
    if (!sonde_view_same_shape(dst, src)) {
        return sonde__fail(
            diag, SONDE_ESHAPE, "copy",
            sonde_shape_text(dst->rank, dst->shape, expected, sizeof expected),
            "source of shape %s",
            sonde_shape_text(src->rank, src->shape, found, sizeof found));
    }
    return SONDE_OK;
}

sonde_err sonde_view_copy(const sonde_view *dst, const sonde_view *src, sonde_diag *diag)
{
    SONDE__NEEDS(diag, dst, src);
    enum { RUN = 512 };
    _Alignas(SONDE__ELEMENT) unsigned char gathered[RUN * SONDE__ELEMENT];
    _Alignas(SONDE__ELEMENT) unsigned char converted[RUN * SONDE__ELEMENT];
    SONDE__TRY(check_copy(dst, src, diag));
    sonde__tensor_cursor source, target;
    const void *elements = NULL;
    size_t n = 0;
    sonde__tensor_cursor_init(&source, src);
    sonde__tensor_cursor_init(&target, dst);
    if (source.direct && dst->dtype == src->dtype) { /* one run of all */
        sonde__tensor_cursor_put(&target, source.at, source.left);
        return SONDE_OK;
    }
    while ((n = sonde__tensor_cursor_take(&source, RUN, gathered, &elements)) > 0) {
        if (dst->dtype != src->dtype) {
            sonde__tensor_convert(src->dtype, elements, n, dst->dtype, converted);
            elements = converted;
        }
        sonde__tensor_cursor_put(&target, elements, n);
    }
    return SONDE_OK;
}

/* --- walking ---------------------------------------------------------------------- */

void sonde__tensor_cursor_init(sonde__tensor_cursor *cursor, const sonde_view *view)
{
    const size_t size = sonde_dtype_size(view->dtype);
    int rank = 0;

    memset(cursor, 0, sizeof *cursor);
    cursor->at = view->data;
    cursor->size = size;
    cursor->left = (size_t)sonde_view_count(view);
    cursor->extent[0] = 1;
    cursor->stride[0] = (int64_t)size;
    for (int d = 0; cursor->left > 0 && d < view->rank; d++) {
        const int64_t stride = view->stride[d] * (int64_t)size;

        if (view->shape[d] == 1) {
            continue;
        }
        /* One step of the dimension before is the whole of this one: the two are one. */
        if (rank > 0 && cursor->stride[rank - 1] == stride * view->shape[d]) {
            cursor->extent[rank - 1] *= view->shape[d];
            cursor->stride[rank - 1] = stride;
            continue;
        }
        cursor->extent[rank] = view->shape[d];
        cursor->stride[rank] = stride;
        rank++;
    }
    cursor->rank = rank > 0 ? rank : 1;
    cursor->direct = cursor->rank == 1 && cursor->stride[0] == (int64_t)size &&
                     (uintptr_t)view->data % size == 0;
}

/* Elements of size bytes, each memcpy of a constant size. */
#define MOVE_RUN(bytes)                                                                  \
    for (size_t i = 0; i < n; i++) {                                                     \
        memcpy(target, source, bytes);                                                   \
        target += to_step;                                                               \
        source += from_step;                                                             \
    }                                                                                    \
    break

static void move_run(unsigned char *target, int64_t to_step, const unsigned char *source,
                     int64_t from_step, size_t size, size_t n)
{
    if (to_step == (int64_t)size && from_step == (int64_t)size) {
        memcpy(target, source, n * size);
        return;
    }
    switch (size) {
    case 1:
        MOVE_RUN(1);
    case 2:
        MOVE_RUN(2);
    case 4:
        MOVE_RUN(4);
    case 8:
        MOVE_RUN(8);
    default:
        MOVE_RUN(16);
    }
}

/* How many of n lie in one row from here. */
static size_t row_left(const sonde__tensor_cursor *cursor, size_t n)
{
    const int inner = cursor->rank - 1;
    const size_t left = (size_t)(cursor->extent[inner] - cursor->index[inner]);

    return SONDE_MIN(left, n);
}

/* n elements on, within a row; at its end to the start of the next. */
static void advance(sonde__tensor_cursor *cursor, size_t n)
{
    int d = cursor->rank - 1;

    cursor->left -= n;
    cursor->at += (int64_t)n * cursor->stride[d];
    cursor->index[d] += (int64_t)n;
    while (d > 0 && cursor->index[d] == cursor->extent[d]) {
        cursor->at -= cursor->extent[d] * cursor->stride[d];
        cursor->index[d] = 0;
        d--;
        cursor->at += cursor->stride[d];
        cursor->index[d]++;
    }
}

size_t sonde__tensor_cursor_take(sonde__tensor_cursor *cursor, size_t most, void *room,
                                 const void **out)
{
    const size_t n = SONDE_MIN(most, cursor->left);
    unsigned char *target = room;

    if (n == 0) {
        return 0;
    }
    if (cursor->direct) {
        *out = cursor->at;
        advance(cursor, n);
        return n;
    }
    for (size_t done = 0; done < n;) {
        const size_t run = row_left(cursor, n - done);

        move_run(target, (int64_t)cursor->size, cursor->at,
                 cursor->stride[cursor->rank - 1], cursor->size, run);
        target += run * cursor->size;
        done += run;
        advance(cursor, run);
    }
    *out = room;
    return n;
}

void sonde__tensor_cursor_put(sonde__tensor_cursor *cursor, const void *elements,
                              size_t n)
{
    const unsigned char *source = elements;

    for (size_t done = 0; done < n;) {
        const size_t run = row_left(cursor, n - done);

        move_run(cursor->at, cursor->stride[cursor->rank - 1], source,
                 (int64_t)cursor->size, cursor->size, run);
        source += run * cursor->size;
        done += run;
        advance(cursor, run);
    }
}
