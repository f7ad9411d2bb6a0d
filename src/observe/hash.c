/*
 * hash.c - hashing a view: at once where it is contiguous, else through a small buffer.
 */
#include "observe/hash.h"

#include "base/base.h"
#include "tensor/convert.h"

#define XXH_STATIC_LINKING_ONLY /* for a hash state that needs no allocation */
#include <xxhash.h>

enum { CHUNK = 256 /* elements */ };

uint64_t sonde__hash_view(const sonde_view *view)
{
    const size_t size = sonde_dtype_size(view->dtype);
    const void *elements = NULL;
    XXH3_state_t state;
    sonde__cursor cursor;
    uint64_t room[CHUNK];

    if (sonde_view_is_contiguous(view)) {
        return XXH3_64bits(view->data, (size_t)sonde_view_count(view) * size);
    }
    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset(&state);
    sonde__cursor_init(&cursor, view);
    for (size_t n = sonde__cursor_take(&cursor, CHUNK, room, &elements); n > 0;
         n = sonde__cursor_take(&cursor, CHUNK, room, &elements)) {
        (void)XXH3_64bits_update(&state, elements, n * size);
    }
    return XXH3_64bits_digest(&state);
}
