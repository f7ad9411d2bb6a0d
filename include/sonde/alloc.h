/*
 * alloc.h - the allocator of Sonde.
 *
 * Replace it before any other call; it applies to the whole process. Libraries that Sonde
 * uses (zlib, libpng, cairo, oneDNN ...) keep their own.
 */
#ifndef SONDE_ALLOC_H
#define SONDE_ALLOC_H

#include <stddef.h>

#include <sonde/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_allocator {
    /* size bytes aligned to align (a power of two), or NULL. size is never 0. */
    void *(*alloc)(void *user, size_t align, size_t size);
    /* Frees a block of alloc; ptr is never NULL. */
    void (*free)(void *user, void *ptr);
    void *user; /* borrowed for the life of the process */
} sonde_allocator;

/*
 * NULL restores the default (malloc or posix_memalign, free). Not thread-safe: call it at
 * start-up. The two functions themselves may be called from any thread.
 */
SONDE_API void sonde_set_allocator(const sonde_allocator *allocator);

/* size bytes (at least 1) by that allocator, aligned to align, a power of two; or NULL. Returned
 * new: release it with sonde_release. From any thread. */
SONDE_API void *sonde_allocate(size_t align, size_t size);
/* The same, filled with zeros. A large block of the default allocator costs nothing before it is
 * touched. */
SONDE_API void *sonde_allocate_zeros(size_t align, size_t size);
/* Takes a block of these two; NULL is fine. */
SONDE_API void sonde_release(void *ptr);

#ifdef __cplusplus
}
#endif

#endif
