/*
 * memory.c - arrays, copies and arenas over the allocation seam.
 */
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/alloc.h>
#include <sonde/error.h>

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void *sonde__malloc_aligned(size_t align, size_t size)
{
    return sonde_allocate(align, size);
}

void *sonde__malloc(size_t size)
{
    return sonde__malloc_aligned(sizeof(void *) * 2, size);
}

void *sonde__calloc(size_t count, size_t size)
{
    size_t total = 0;

    if (!sonde__mul(count, size, &total)) {
        return NULL;
    }
    void *ptr = sonde__malloc(total);
    if (ptr != NULL) {
        memset(ptr, 0, total > 0 ? total : 1);
    }
    return ptr;
}

void *sonde__calloc_aligned(size_t align, size_t size)
{
    return sonde_allocate_zeros(align, size);
}

void *sonde__grow(void *ptr, size_t old_size, size_t new_size)
{
    void *grown = sonde__malloc(new_size);

    if (grown == NULL) {
        return NULL;
    }
    if (ptr != NULL) {
        memcpy(grown, ptr, SONDE_MIN(old_size, new_size));
        sonde__free(ptr);
    }
    return grown;
}

void sonde__free(void *ptr)
{
    sonde_release(ptr);
}

char *sonde__strndup(const char *text, size_t length)
{
    char *copy = sonde__malloc(length + 1);

    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *sonde__strdup(const char *text)
{
    return sonde__strndup(text, strlen(text));
}

bool sonde__reserve(void *array_ptr, size_t *capacity, size_t needed, size_t element_size)
{
    void *old = NULL;
    size_t wanted = *capacity, bytes = 0;

    if (needed <= *capacity) {
        return true;
    }
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2) {
            return false;
        }
        wanted = wanted < 8 ? 8 : wanted * 2;
    }
    if (!sonde__mul(wanted, element_size, &bytes)) {
        return false;
    }
    memcpy(&old, array_ptr, sizeof old);
    void *grown = sonde__grow(old, *capacity * element_size, bytes);
    if (grown == NULL) {
        return false;
    }
    memcpy(array_ptr, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

/* --- arenas ------------------------------------------------------------------------- */

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
