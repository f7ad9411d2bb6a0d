/*
 * ring.c - the byte ring; ring.h has the drawing.
 *
 * A lost wake-up costs a nap, never more: both waits have a limit. So the producer needs
 * no fence for a commit.
 */
#include "record/ring.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <assert.h>
#include <sys/mman.h>
#include <time.h>

#include <sonde/error.h>

enum { LEAST = 64 * 1024, HUGE_PAGE = 2 * 1024 * 1024 };
#define ROOM_NAP 0.005 /* seconds a producer waits before it looks again */

static bool init_conditions(sonde__record_ring *ring)
{
    return pthread_mutex_init(&ring->lock, NULL) == 0 &&
           sonde__clock_condition(&ring->filled) && sonde__clock_condition(&ring->freed);
}

sonde_err sonde__record_ring_init(sonde__record_ring *ring, size_t size)
{
    size_t rounded = LEAST;

    *ring = (sonde__record_ring){.file = -1, .end = UINT64_MAX};
    while (rounded < size) {
        if (!sonde__mul(rounded, 2, &rounded)) {
            return SONDE_ENOMEM;
        }
    }
    ring->base = sonde__malloc_aligned(SONDE_MIN(rounded, HUGE_PAGE), rounded);
    if (ring->base == NULL) {
        return SONDE_ENOMEM;
    }
    if (rounded >= HUGE_PAGE) {
        (void)madvise(ring->base, rounded,
                      MADV_HUGEPAGE); /* fewer faults, if it can be */
    }
    ring->size = rounded;
    ring->wake_at = SONDE_MIN(SONDE__RING_WAKE, rounded / 4);
    ring->shared = &ring->own;
    atomic_init(&ring->reader_sleeps, false);
    atomic_init(&ring->producer_waits, false);
    if (!init_conditions(ring)) {
        sonde__free(ring->base);
        ring->base = NULL;
        return SONDE_ENOMEM;
    }
    return SONDE_OK;
}

void sonde__record_ring_renew(sonde__record_ring *ring)
{
    (void)init_conditions(ring);
}

void sonde__record_ring_fini(sonde__record_ring *ring)
{
    if (ring->base == NULL) {
        return;
    }
    sonde__record_ring_unmap(ring);
    sonde__free(ring->path);
    ring->base = NULL;
    (void)pthread_mutex_destroy(&ring->lock);
    (void)pthread_cond_destroy(&ring->filled);
    (void)pthread_cond_destroy(&ring->freed);
}

size_t sonde__record_ring_fill(sonde__record_ring *ring)
{
    /* tail first: it never passes a head that is read later */
    const uint64_t tail = atomic_load_explicit(&ring->shared->tail, memory_order_acquire);

    return (size_t)(atomic_load_explicit(&ring->shared->head, memory_order_acquire) -
                    tail);
}

/* --- the producer ----------------------------------------------------------------- */

static sonde__record_block *block_at(const sonde__record_ring *ring, uint64_t position)
{
    return (sonde__record_block *)(void *)(ring->base + (position & (ring->size - 1)));
}

static uint32_t line_of(uint64_t position)
{
    return (uint32_t)(position / SONDE__RING_LINE);
}

/* True if the bytes up to end are free. */
static bool is_free(sonde__record_ring *ring, uint64_t end)
{
    if (end - ring->tail_seen <= ring->size) {
        return true;
    }
    ring->tail_seen = atomic_load_explicit(&ring->shared->tail, memory_order_acquire);
    return end - ring->tail_seen <= ring->size;
}

void *sonde__record_ring_reserve(sonde__record_ring *ring, uint32_t kind, size_t size)
{
    const uint64_t head = atomic_load_explicit(&ring->shared->head, memory_order_relaxed);
    const size_t lines = (size + SONDE__RING_LINE - 1) & ~(size_t)(SONDE__RING_LINE - 1);
    const size_t before_end = ring->size - (size_t)(head & (ring->size - 1));
    const size_t pad = lines > before_end ? before_end : 0;

    if (lines > ring->size || !is_free(ring, head + pad + lines)) {
        return NULL;
    }
    if (pad > 0) {
        *block_at(ring, head) = (sonde__record_block){
            .size = pad, .kind = SONDE__BLOCK_PAD, .line = line_of(head)};
    }
    sonde__record_block *block = block_at(ring, head + pad);
    *block =
        (sonde__record_block){.size = lines, .kind = kind, .line = line_of(head + pad)};
    ring->reserved = head + pad + lines;
    return block;
}

void sonde__record_ring_commit(sonde__record_ring *ring)
{
    const uint64_t head = ring->reserved;

    atomic_store_explicit(&ring->shared->head, head, memory_order_release);
    if (head >= ring->wake_at) {
        ring->wake_at = head + SONDE_MIN(SONDE__RING_WAKE, ring->size / 4);
        if (atomic_load_explicit(&ring->reader_sleeps, memory_order_relaxed)) {
            sonde__record_ring_wake(ring);
        }
    }
}

void sonde__record_ring_wait(sonde__record_ring *ring, uint64_t tail)
{
    const struct timespec end = sonde__clock_after(ROOM_NAP);

    (void)pthread_mutex_lock(&ring->lock);
    ring->woken = true;
    (void)pthread_cond_signal(&ring->filled);
    atomic_store(&ring->producer_waits, true); /* before the load: with release's pair */
    if (atomic_load(&ring->shared->tail) == tail) {
        (void)pthread_cond_timedwait(&ring->freed, &ring->lock, &end);
    }
    atomic_store(&ring->producer_waits, false);
    (void)pthread_mutex_unlock(&ring->lock);
}

/* --- the reader ------------------------------------------------------------------- */

sonde__record_block *sonde__record_ring_next(sonde__record_ring *ring)
{
    const uint64_t head = SONDE_MIN(
        atomic_load_explicit(&ring->shared->head, memory_order_acquire), ring->end);

    while (ring->read != head) {
        sonde__record_block *const block = block_at(ring, ring->read);

        ring->read += block->size;
        if (block->kind != SONDE__BLOCK_PAD) {
            return block;
        }
    }
    return NULL;
}

void sonde__record_ring_release(sonde__record_ring *ring)
{
    atomic_store(&ring->shared->tail, ring->read);
    if (atomic_load(&ring->producer_waits)) {
        (void)pthread_mutex_lock(&ring->lock);
        (void)pthread_cond_signal(&ring->freed);
        (void)pthread_mutex_unlock(&ring->lock);
    }
}

void sonde__record_ring_sleep(sonde__record_ring *ring, double seconds)
{
    const struct timespec end = sonde__clock_after(seconds);
    int waited = 0;

    (void)pthread_mutex_lock(&ring->lock);
    atomic_store_explicit(&ring->reader_sleeps, true, memory_order_relaxed);
    while (!ring->woken && waited == 0) {
        waited = pthread_cond_timedwait(&ring->filled, &ring->lock, &end);
    }
    atomic_store_explicit(&ring->reader_sleeps, false, memory_order_relaxed);
    ring->woken = false;
    (void)pthread_mutex_unlock(&ring->lock);
}

void sonde__record_ring_wake(sonde__record_ring *ring)
{
    (void)pthread_mutex_lock(&ring->lock);
    ring->woken = true;
    (void)pthread_cond_signal(&ring->filled);
    (void)pthread_mutex_unlock(&ring->lock);
}
