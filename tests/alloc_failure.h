/*
 * alloc_failure.h - an allocator that fails the n-th request, and counts what is still
 * out.
 *
 *     for (size_t n = 0;; n++) {
 *         alloc_failure_begin(n);
 *         err = sonde_thing_open(path, &thing, NULL);
 *         if (err == SONDE_OK) { sonde_thing_destroy(thing); }
 *         assert_int_equal(alloc_failure_end(), 0);         nothing leaked
 *         if (err == SONDE_OK) { break; }
 *         assert_int_equal(err, SONDE_ENOMEM);
 *     }
 *
 * One thread at a time.
 */
#ifndef SONDE_TESTS_ALLOC_FAILURE_H
#define SONDE_TESTS_ALLOC_FAILURE_H

#include <sonde/alloc.h>

#include <stdlib.h>

static size_t alloc_failure_left;  /* requests that still succeed */
static size_t alloc_failure_count; /* requests so far */
static size_t alloc_failure_out;   /* blocks not yet freed */

static void *alloc_failure_alloc(void *user, size_t align, size_t size)
{
    void *ptr = NULL;

    (void)user;
    alloc_failure_count++;
    if (alloc_failure_left == 0) {
        return NULL;
    }
    alloc_failure_left--;
    if (posix_memalign(&ptr, align < sizeof(void *) ? sizeof(void *) : align, size) !=
        0) {
        return NULL;
    }
    alloc_failure_out++;
    return ptr;
}

static void alloc_failure_free(void *user, void *ptr)
{
    (void)user;
    alloc_failure_out--;
    free(ptr);
}

/* From now on the request number succeed (counted from 0) and all after it fail. */
static inline void alloc_failure_begin(size_t succeed)
{
    static const sonde_allocator failing = {alloc_failure_alloc, alloc_failure_free,
                                            NULL};

    alloc_failure_left = succeed;
    alloc_failure_count = 0;
    alloc_failure_out = 0;
    sonde_set_allocator(&failing);
}

/* Puts the default back. Returns how many blocks were not freed. */
static inline size_t alloc_failure_end(void)
{
    sonde_set_allocator(NULL);
    return alloc_failure_out;
}

#endif
