/*
 * alloc_failure.h - an allocator that counts, and fails where a test asks it to.
 *
 *     alloc_probe probe = {.fail_at = 3};
 *     alloc_probe_install(&probe);
 *     ... the third allocation from here gets NULL ...
 *     alloc_probe_remove();
 *     assert_int_equal(probe.live, 0);
 *
 * Threads may allocate while it is installed. Blocks allocated under a probe must be
 * freed under it, or live is wrong; freeing them later is safe.
 */
#ifndef SONDE_TESTS_ALLOC_FAILURE_H
#define SONDE_TESTS_ALLOC_FAILURE_H

#include <stdatomic.h>
#include <stdlib.h>

#include <sonde/alloc.h>

typedef struct alloc_probe {
    atomic_long count; /* allocations asked for */
    atomic_long live;  /* given and not yet freed */
    long fail_at;      /* which of them fails, from 1; 0 for none */
} alloc_probe;

static inline void *alloc_probe_alloc(void *user, size_t align, size_t size)
{
    alloc_probe *probe = user;
    void *ptr = NULL;

    if (atomic_fetch_add(&probe->count, 1) + 1 == probe->fail_at) {
        return NULL;
    }
    if (posix_memalign(&ptr, align < sizeof(void *) ? sizeof(void *) : align, size) !=
        0) {
        return NULL;
    }
    atomic_fetch_add(&probe->live, 1);
    return ptr;
}

static inline void alloc_probe_free(void *user, void *ptr)
{
    alloc_probe *probe = user;

    atomic_fetch_sub(&probe->live, 1);
    free(ptr);
}

/* probe is borrowed until alloc_probe_remove. */
static inline void alloc_probe_install(alloc_probe *probe)
{
    const sonde_allocator allocator = {alloc_probe_alloc, alloc_probe_free, probe};

    sonde_set_allocator(&allocator);
}

static inline void alloc_probe_remove(void)
{
    sonde_set_allocator(NULL);
}

/*
 * Runs attempt(user) with its 1st, 2nd, 3rd ... allocation failing until it succeeds.
 * attempt cleans up after itself and returns the error it got. Returns the number of
 * failures tried, or -1 if an attempt returned anything but SONDE_ENOMEM or leaked.
 */
static inline int alloc_failure_loop(sonde_err (*attempt)(void *user), void *user)
{
    for (int n = 1;; n++) {
        alloc_probe probe = {.fail_at = n};
        sonde_err err = SONDE_OK;

        alloc_probe_install(&probe);
        err = attempt(user);
        alloc_probe_remove();
        if (probe.live != 0 || (err != SONDE_OK && err != SONDE_ENOMEM)) {
            return -1;
        }
        if (err == SONDE_OK && probe.count < n) {
            return n - 1;
        }
        if (err == SONDE_OK) {
            return -1; /* an allocation failed and nobody noticed */
        }
    }
}

#endif
