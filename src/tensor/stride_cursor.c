/*
 * cursor.c - walking through a view in row-major order; convert.h has the contract.
 */
#include "tensor/convert.h"
#include "base/macros.h"

#include <string.h>

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
