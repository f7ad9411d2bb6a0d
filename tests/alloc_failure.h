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
 * Any thread may allocate between begin and end.
 */
#ifndef SONDE_TESTS_ALLOC_FAILURE_H
#define SONDE_TESTS_ALLOC_FAILURE_H

#include <sonde/alloc.h>

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t alloc_failure_lock =
    PTHREAD_MUTEX_INITIALIZER;     /* of the next three */
static size_t alloc_failure_left;  /* requests that still succeed */
static size_t alloc_failure_count; /* requests so far */
static size_t alloc_failure_out;   /* blocks not yet freed */

static void *alloc_failure_alloc(void *user, size_t align, size_t size)
{
    void *ptr = NULL;

    (void)user;
    (void)pthread_mutex_lock(&alloc_failure_lock);
    alloc_failure_count++;
    if (alloc_failure_left > 0) {
        alloc_failure_left--;
        if (posix_memalign(&ptr, align < sizeof(void *) ? sizeof(void *) : align, size) !=
            0) {
            ptr = NULL;
        }
        alloc_failure_out += ptr != NULL ? 1 : 0;
    }
    (void)pthread_mutex_unlock(&alloc_failure_lock);
    return ptr;
}

static void alloc_failure_free(void *user, void *ptr)
{
    (void)user;
    (void)pthread_mutex_lock(&alloc_failure_lock);
    alloc_failure_out--;
    (void)pthread_mutex_unlock(&alloc_failure_lock);
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
