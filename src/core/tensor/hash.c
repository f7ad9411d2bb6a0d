/*
 * hash.c - hashes a view: directly if it is contiguous, else through a small buffer.
 */
#include "tensor/hash.h"

#include "tensor/convert.h"

#include <stddef.h>
#include <stdint.h>

enum { ROOM = 2048 /* bytes */ };

void sonde__hash_init(sonde__hash *hash)
{
    XXH3_INITSTATE(&hash->state);
    (void)XXH3_64bits_reset(&hash->state);
}

void sonde__hash_add(sonde__hash *hash, const sonde_view *view)
{
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    _Alignas(SONDE__ELEMENT) unsigned char room[ROOM];
    size_t n = 0;

    if (sonde_view_is_contiguous(view)) {
        (void)XXH3_64bits_update(&hash->state, view->data,
                                 (size_t)sonde_view_count(view) * size);
        return;
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, ROOM / size, room, &elements)) > 0) {
        (void)XXH3_64bits_update(&hash->state, elements, n * size);
    }
}

uint64_t sonde__hash_of(const sonde__hash *hash)
{
    return XXH3_64bits_digest(&hash->state);
}

uint64_t sonde__hash_view(const sonde_view *view)
{
    sonde__hash hash;

    if (sonde_view_is_contiguous(view)) {
        return XXH3_64bits(view->data, (size_t)sonde_view_count(view) *
                                           sonde_dtype_size(view->dtype));
    }
    sonde__hash_init(&hash);
    sonde__hash_add(&hash, view);
    return sonde__hash_of(&hash);
}
