/*
 * ring.h - a byte ring between one producing thread and one reading thread. Internal.
 *
 *     released      read           published    reserved
 *        |  read, in use  |  waiting   |  being filled |
 *     ---+----------------+------------+---------------+---  positions only ever grow
 *      tail           (reader's)      head           (producer's)
 *
 * A position is a count of bytes since the start; position modulo size is the place. A
 * block is contiguous, a multiple of 64 bytes long, aligned to 64, and begins with a
 * sonde__record_block; where one does not fit before the end of the memory, a block of kind
 * SONDE__BLOCK_PAD fills what is left.
 *
 * The producer: reserve, fill, commit; if reserve returns NULL, wait or drop.
 * The reader: next ... until NULL, then release; sleep when there is nothing. The reader looks every SONDE__RING_NAP at the latest, so commit wakes it only
 * when much is waiting: no system call for a block.
 *
 * commit's release of head pairs with next's acquire; release's store of tail with the
 * loads in reserve. Nothing allocates after init.
 */
#ifndef SONDE_RECORD_RING_H
#define SONDE_RECORD_RING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

enum {
    SONDE__RING_LINE = 64,          /* bytes; granularity of blocks */
    SONDE__RING_WAKE = 1024 * 1024, /* bytes that wake a sleeping reader */
    SONDE__BLOCK_PAD = 0            /* kind of blocks that are to be skipped */
};
#define SONDE__RING_NAP 0.02 /* seconds */

/* How every block begins. */
typedef struct sonde__record_block {
    uint64_t size; /* of the block, this head included */
    uint32_t kind;
    uint32_t unused;
} sonde__record_block;

typedef struct sonde__record_ring {
    _Alignas(SONDE__RING_LINE) _Atomic uint64_t head; /* written by the producer */
    uint64_t reserved; /* the producer's alone: these three */
    uint64_t tail_seen, wake_at;
    unsigned char *base;
    size_t size; /* a power of two */

    _Alignas(SONDE__RING_LINE) _Atomic uint64_t tail; /* written by the reader */
    uint64_t read;                                    /* the reader's alone */
    pthread_mutex_t lock;                             /* of the two conditions */
    pthread_cond_t filled, freed;                     /* on the monotonic clock */
    bool woken; /* under lock: the reader is not to sleep */
    atomic_bool reader_sleeps, producer_waits;
} sonde__record_ring;

/* size is rounded up to a power of two, at least 64 KiB. */
SONDE_API sonde_err sonde__record_ring_init(sonde__record_ring *ring, size_t size);
SONDE_API void sonde__record_ring_fini(sonde__record_ring *ring);

/* --- the producer ----------------------------------------------------------------- */

/* The largest block that there may be: it finds room in any ring that is half empty. */
static inline size_t sonde__record_ring_most(const sonde__record_ring *ring)
{
    return ring->size / 4;
}
/* Room for a block of size bytes (rounded up to lines), its head filled in; NULL if there
 * is none now. */
SONDE_API void *sonde__record_ring_reserve(sonde__record_ring *ring, uint32_t kind,
                                           size_t size);
/* Publishes the block reserved last. */
SONDE_API void sonde__record_ring_commit(sonde__record_ring *ring);
/* Sleeps until the reader has released something beyond tail, or a while. */
SONDE_API void sonde__record_ring_wait(sonde__record_ring *ring, uint64_t tail);
/* The released position. From either thread. */
static inline uint64_t sonde__record_ring_tail(sonde__record_ring *ring)
{
    return atomic_load_explicit(&ring->tail, memory_order_acquire);
}
/* Bytes published and not released. From either thread. */
SONDE_API size_t sonde__record_ring_fill(sonde__record_ring *ring);

/* --- the reader ------------------------------------------------------------------- */

/* The next block, or NULL if there is none. It stays until its end is released. */
SONDE_API sonde__record_block *sonde__record_ring_next(sonde__record_ring *ring);
/* The block that next returned last is to be returned again. */
static inline void sonde__record_ring_back(sonde__record_ring *ring,
                                           const sonde__record_block *block)
{
    ring->read -= block->size;
}
/* Everything that next has returned so far may be overwritten. */
SONDE_API void sonde__record_ring_release(sonde__record_ring *ring);
/* Sleeps until there is much to read, a wake, or the time is over. */
SONDE_API void sonde__record_ring_sleep(sonde__record_ring *ring, double seconds);
/* From any thread: ends the present sleep, or the next one at once. */
SONDE_API void sonde__record_ring_wake(sonde__record_ring *ring);

#endif
