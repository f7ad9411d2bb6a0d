/*
 * memory.h - allocation, by the allocator of <sonde/alloc.h>. Internal.
 */
#ifndef SONDE_BASE_MEMORY_H
#define SONDE_BASE_MEMORY_H

#include <sonde/error.h>
#include <sonde/export.h>

#include <stdbool.h>
#include <stddef.h>

enum { SONDE__ALIGN = 64 }; /* a cache line, and the widest vector */

/* All by the allocator of <sonde/alloc.h>. size 0 gives a block of one byte. */
SONDE_API void *sonde__malloc(size_t size);
SONDE_API void *sonde__calloc(size_t count, size_t size); /* NULL also on overflow */
SONDE_API void *sonde__malloc_aligned(size_t align, size_t size);
/* Zeros. A large block of the default allocator costs nothing before it is touched. */
SONDE_API void *sonde__calloc_aligned(size_t align, size_t size);
SONDE_API void *sonde__grow(void *ptr, size_t old_size,
                            size_t new_size); /* ptr kept on NULL */
SONDE_API void sonde__free(void *ptr);        /* NULL is fine */
SONDE_API char *sonde__strdup(const char *text);
SONDE_API char *sonde__strndup(const char *text, size_t length);

/* false on overflow; *out is written only on success. */
static inline bool sonde__mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Grows an array to at least needed elements of element_size bytes; *capacity counts
 * elements. false if memory runs out; then nothing has changed. */
SONDE_API bool sonde__reserve(void *array_ptr, size_t *capacity, size_t needed,
                              size_t element_size);

/* --- arenas ----------------------------------------------------------------------- */

/*
 * One block of memory, handed out from front to back and freed as a whole:
 *
 *     base                          used            size
 *      | object | pad | object | ... |     free      |
 *
 * With base NULL the space is only counted: the same code runs once to measure and once
 * to place.
 */
typedef struct sonde__arena {
    unsigned char *base;
    size_t used, size;
} sonde__arena;

SONDE_API sonde_err sonde__arena_init(sonde__arena *arena,
                                      size_t size); /* aligned block */
SONDE_API void sonde__arena_fini(sonde__arena *arena);
/* NULL while measuring, and if the block is full (asserted: the measured size was
 * wrong). */
SONDE_API void *sonde__arena_take(sonde__arena *arena, size_t align, size_t size);

#endif
