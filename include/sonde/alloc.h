/*
 * alloc.h - the one seam through which Sonde asks for memory.
 *
 * Replace it before the first other call; it holds for the whole process. Libraries that
 * Sonde uses (zlib, libpng, cairo, oneDNN ...) keep their own.
 */
#ifndef SONDE_ALLOC_H
#define SONDE_ALLOC_H

#include <stddef.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_allocator {
    /* size bytes aligned to align (a power of two), or NULL. size is never 0. */
    void *(*alloc)(void *user, size_t align, size_t size);
    /* Takes back what alloc returned; ptr is never NULL. */
    void (*free)(void *user, void *ptr);
    void *user; /* borrowed for the life of the process */
} sonde_allocator;

/*
 * NULL puts the default (aligned_alloc, free) back. Not thread-safe: call it at start-up.
 * Both functions may be called from any thread.
 */
SONDE_API void sonde_set_allocator(const sonde_allocator *allocator);

#ifdef __cplusplus
}
#endif

#endif
