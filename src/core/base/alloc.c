/*
 * alloc.c - the allocation seam, which all libraries share: its state is in libsonde alone.
 *
 * Everything Sonde allocates comes through sonde_allocate, so one test can fail the n-th
 * allocation and another can count them.
 */
#include <sonde/alloc.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *default_alloc(void *user, size_t align, size_t size)
{
    void *ptr = NULL;

    (void)user;
    if (align <= sizeof(void *) * 2) {
        return malloc(size);
    }
    return posix_memalign(&ptr, align, size) == 0 ? ptr : NULL;
}

static void default_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

static const sonde_allocator default_allocator = {default_alloc, default_free, NULL};
static sonde_allocator allocator = {default_alloc, default_free, NULL};

void sonde_set_allocator(const sonde_allocator *replacement)
{
    allocator = replacement != NULL ? *replacement : default_allocator;
}

void *sonde_allocate(size_t align, size_t size)
{
    return allocator.alloc(allocator.user, align, size > 0 ? size : 1);
}

void *sonde_allocate_zeros(size_t align, size_t size)
{
    enum { LARGE = 2 << 20 };
    unsigned char *block = sonde_allocate(align, size);
    size_t fresh = 0;

    if (block == NULL) {
        return NULL;
    }
    /* Memory of malloc is private and anonymous: pages that are given back read as zeros.
     * That of another allocator may not be. */
    if (allocator.alloc == default_alloc && align >= LARGE &&
        madvise(block, size / LARGE * LARGE, MADV_DONTNEED) == 0) {
        fresh = size / LARGE * LARGE;
    }
    memset(block + fresh, 0, (size > 0 ? size : 1) - fresh);
    return block;
}

void sonde_release(void *ptr)
{
    if (ptr != NULL) {
        allocator.free(allocator.user, ptr);
    }
}
