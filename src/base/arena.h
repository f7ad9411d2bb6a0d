/*
 * arena.h - one block of memory, handed out from front to back and freed as a whole. Internal.
 */
#ifndef SONDE_BASE_ARENA_H
#define SONDE_BASE_ARENA_H

#include <stddef.h>

#include <sonde/error.h>

/*
 *     base                          used            size
 *      | object | pad | object | ... |     free      |
 *
 * With base NULL the space is only counted: the same code runs once to measure and once to
 * place.
 */
typedef struct sonde__arena {
    unsigned char *base;
    size_t used, size;
} sonde__arena;

SONDE_API sonde_err sonde__arena_init(sonde__arena *arena,
                                      size_t size); /* aligned block */
SONDE_API void sonde__arena_fini(sonde__arena *arena);
/* NULL while measuring, and if the block is full (asserted: the measured size was wrong). */
SONDE_API void *sonde__arena_take(sonde__arena *arena, size_t align, size_t size);

#endif
