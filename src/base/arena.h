/*
 * arena.h - one block of memory, handed out from front to back and freed at once. Internal.
 */
#ifndef SONDE_BASE_ARENA_H
#define SONDE_BASE_ARENA_H

#include <stddef.h>

#include <sonde/error.h>

/*
 * One block, handed out from front to back, freed at once:
 *
 *     base                          used            size
 *      | object | pad | object | ... |     free      |
 *
 * With base NULL nothing is handed out but the space is counted, so the same code runs once
 * to measure and once to place.
 */
typedef struct sonde__arena {
    unsigned char *base;
    size_t used, size;
} sonde__arena;

SONDE_API sonde_err sonde__arena_init(sonde__arena *arena,
                                      size_t size); /* aligned block */
SONDE_API void sonde__arena_fini(sonde__arena *arena);
/* NULL while measuring and when the block is full (asserted: measuring was wrong). */
SONDE_API void *sonde__arena_take(sonde__arena *arena, size_t align, size_t size);

#endif
