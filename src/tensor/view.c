/*
 * view.c - strided views: making, asking and copying them.
 */
#include "tensor/convert.h"
#include "base/fail.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

sonde_view sonde_view_of(sonde_dtype dtype, int rank, const int64_t *shape, void *data)
{
    sonde_view view = {.dtype = dtype, .rank = rank, .data = data};
    int64_t stride = 1;

    assert(rank >= 0 && rank <= SONDE_MAX_DIMS);
    for (int d = rank - 1; d >= 0; d--) {
        view.shape[d] = shape[d];
        view.stride[d] = stride;
        stride *= shape[d];
    }
    return view;
}

int64_t sonde_view_count(const sonde_view *view)
{
    int64_t count = 1;

    for (int d = 0; d < view->rank; d++) {
        count *= view->shape[d];
    }
    return count;
}

bool sonde_view_is_contiguous(const sonde_view *view)
{
    int64_t stride = 1;

    if (sonde_view_count(view) == 0) {
        return true;
    }
    for (int d = view->rank - 1; d >= 0; d--) {
        if (view->shape[d] != 1 && view->stride[d] != stride) {
            return false;
        }
        stride *= view->shape[d];
    }
    return true;
}

bool sonde_view_same_shape(const sonde_view *a, const sonde_view *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

void *sonde_view_at(const sonde_view *view, const int64_t *index)
{
    int64_t offset = 0;

    for (int d = 0; d < view->rank; d++) {
        assert(index[d] >= 0 && index[d] < view->shape[d]);
        offset += index[d] * view->stride[d];
    }
    return (unsigned char *)view->data + offset * (int64_t)sonde_dtype_size(view->dtype);
}

const char *sonde_shape_text(int rank, const int64_t *shape, char *buf, size_t size)
{
    size_t used = 0;

    if (size == 0) {
        return buf;
    }
    (void)snprintf(buf, size, "(");
    used = strlen(buf);
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

    if (sonde_dtype_size(dst->dtype) == 0 || sonde_dtype_size(src->dtype) == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, "copy", NULL, "a view without a dtype");
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
    enum { RUN = 512 };
    _Alignas(SONDE__ELEMENT) unsigned char gathered[RUN * SONDE__ELEMENT];
    _Alignas(SONDE__ELEMENT) unsigned char converted[RUN * SONDE__ELEMENT];
    const sonde_err err = check_copy(dst, src, diag);
    sonde__tensor_cursor source, target;
    const void *elements = NULL;
    size_t n = 0;

    if (err != SONDE_OK) {
        return err;
    }
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
