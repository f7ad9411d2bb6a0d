/*
 * arena.c - one block for many objects; see base.h for the drawing.
 */
#include "base/arena.h"
#include "base/memory.h"

#include <stddef.h>
#include <assert.h>

#include <sonde/error.h>

sonde_err sonde__arena_init(sonde__arena *arena, size_t size)
{
    arena->used = 0;
    arena->size = size;
    arena->base = sonde__malloc_aligned(SONDE__ALIGN, size);
    return arena->base != NULL ? SONDE_OK : SONDE_ENOMEM;
}

void sonde__arena_fini(sonde__arena *arena)
{
    sonde__free(arena->base);
    *arena = (sonde__arena){0};
}

void *sonde__arena_take(sonde__arena *arena, size_t align, size_t size)
{
    const size_t start = (arena->used + align - 1) / align * align;

    assert(align > 0 && align <= SONDE__ALIGN);
    arena->used = start + size;
    if (arena->base == NULL) {
        return NULL;
    }
    assert(arena->used <= arena->size);
    return arena->used <= arena->size ? arena->base + start : NULL;
}
