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
 * sonde__record_block; where one does not fit before the end of the memory, a block of
 * kind SONDE__BLOCK_PAD fills what is left.
 *
 * The producer: reserve, fill, commit; if reserve returns NULL, wait or drop. The
 * reader: next ... until NULL, then release; sleep when there is nothing. The reader
 * looks every SONDE__RING_NAP at the latest, so commit wakes it only when much is
 * waiting: no system call for a block.
 *
 * commit's release of head pairs with next's acquire; release's store of tail with the
 * loads in reserve. Nothing allocates after init.
 *
 * keep moves an empty ring into a file that is mapped (ring_file.c, docs/format.md):
 * blocks that are published then outlive the process, and a later one takes them from
 * the file.
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
    SONDE__RING_PAGE = 4096,        /* bytes of the head of a ring's file */
    SONDE__RING_LINE = 64,          /* bytes; granularity of blocks */
    SONDE__RING_WAKE = 1024 * 1024, /* bytes that wake a sleeping reader */
    SONDE__BLOCK_PAD = 0            /* kind of blocks that are to be skipped */
};
#define SONDE__RING_NAP 0.02 /* seconds */

/* How every block begins. */
typedef struct sonde__record_block {
    uint64_t size; /* of the block, this head included */
    uint32_t kind;
    uint32_t
        line; /* low half of position / SONDE__RING_LINE: blocks of other laps differ */
} sonde__record_block;

/* What the files hold of each kind of record (docs/format.md). */
enum {
    SONDE__MARK_VALUES = 0,
    SONDE__MARK_ROWS = 1,
    SONDE__MARK_SKETCHES = 2,
    SONDE__MARK_STEPS = 3,
    SONDE__MARKS = 4
};

/* How far the files have come; written by the reader. Laid out as in files. */
typedef struct sonde__record_checkpoint {
    uint64_t sequence; /* the larger of two valid ones counts */
    uint64_t tail;     /* what was published before it is in the files, or lost */
    uint64_t number[SONDE__MARKS];  /* of the open or next file */
    uint64_t items[SONDE__MARKS];   /* in that file */
    uint64_t written[SONDE__MARKS]; /* of the next messages, in older files (recovery) */
    uint64_t disk_full, io_error;   /* lost */
    uint64_t reserved[7];
    uint64_t check; /* XXH3 of what is before it */
} sonde__record_checkpoint;
_Static_assert(sizeof(sonde__record_checkpoint) == 192, "as in files");

/* The first page of a ring's file, or its like in memory. Laid out as in files. */
typedef struct sonde__record_ring_head {
    char magic[8];
    uint32_t version, worker;
    uint64_t size, offset; /* of the blocks */
    char run[32];
    /* At 64, written by the producer: */
    _Atomic uint64_t head;
    _Atomic uint64_t put;           /* values, rows and sketches handed over */
    _Atomic uint64_t full, refused; /* of those: found no room; were invalid */
    uint64_t unused[4];
    /* At 128, written by the reader: */
    _Atomic uint64_t tail;
    _Atomic uint32_t closing, reason; /* close was called */
    uint64_t unused_too[6];
    /* At 192: */
    sonde__record_checkpoint marks[2];
    /* At 576: */
    char boot[64];       /* the machine's boot id: memory was lost if it is another */
    uint64_t put_before; /* by earlier writers */
    uint64_t full_before;
} sonde__record_ring_head;
_Static_assert(offsetof(sonde__record_ring_head, head) == 64, "as in files");
_Static_assert(offsetof(sonde__record_ring_head, marks) == 192, "as in files");
_Static_assert(offsetof(sonde__record_ring_head, boot) == 576, "as in files");

typedef struct sonde__record_ring {
    sonde__record_ring_head *shared; /* own, or that of the file */
    uint64_t reserved;               /* the producer's alone: these three */
    uint64_t tail_seen, wake_at;
    unsigned char *base;
    size_t size; /* a power of two */

    _Alignas(SONDE__RING_LINE) uint64_t read; /* the reader's alone: these */
    uint64_t end;                             /* of what may be read (recovery) */
    uint64_t sequence;                        /* of the last checkpoint */
    bool left;                                /* no more checkpoints */
    size_t populated;                         /* bytes whose pages are made */

    int file; /* -1: none */
    char *path;
    unsigned char *large; /* beside the ring, for one large value; mapped too */
    size_t large_size;
    int fault;      /* errno of the disk while the ring was examined; 0: none */
    bool restarted; /* the machine, since the ring was made: its blocks are not whole */
    _Alignas(SONDE__RING_LINE) sonde__record_ring_head own;
    pthread_mutex_t lock;         /* of the two conditions */
    pthread_cond_t filled, freed; /* on the monotonic clock */
    bool woken;                   /* under lock: the reader is not to sleep */
    atomic_bool reader_sleeps, producer_waits;
} sonde__record_ring;

/* size is rounded up to a power of two, at least 64 KiB. */
SONDE_API sonde_err sonde__record_ring_init(sonde__record_ring *ring, size_t size);
SONDE_API void sonde__record_ring_fini(sonde__record_ring *ring);
/* In a forked child: the ring may be freed. The threads that held its lock and waited for
 * it are the parent's. */
void sonde__record_ring_renew(sonde__record_ring *ring);

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
    return atomic_load_explicit(&ring->shared->tail, memory_order_acquire);
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

/* --- the file (ring_file.c) ---------------------------------------------------------- */

/* What a ring's file says of earlier writers, and of their files. */
typedef struct sonde__record_ring_past {
    sonde__record_checkpoint mark;
    uint64_t put, full;
} sonde__record_ring_past;

/* Moves an empty ring into a new file; run is its id, of 32 characters. Returns an
 * errno: then the ring stays as it is, in memory. path is copied. */
SONDE_API int sonde__record_ring_keep(sonde__record_ring *ring, const char *path,
                                      const char *run, int worker,
                                      const sonde__record_ring_past *past);
/* Opens the ring that a process left in a file, instead of the memory of an empty one,
 * with its blocks from the last checkpoint on; sets ring->restarted, also for a ring of
 * another machine. ENOENT: there is none. EBADMSG: damaged, or not of this run. After any
 * other error the file is as it was. */
int sonde__record_ring_reopen(sonde__record_ring *ring, const char *path, const char *run,
                              int worker, sonde__record_checkpoint *mark);
/* Ends the ring before the first block that is damaged: not of its place, or not valid.
 * Returns the bytes cut off, which stay in the file: the next recovery finds the same.
 * With ring->fault, set by valid, nothing is cut. */
uint64_t sonde__record_ring_cut(sonde__record_ring *ring,
                                bool (*valid)(sonde__record_ring *ring,
                                              sonde__record_block *block));
static inline bool sonde__record_ring_is_kept(const sonde__record_ring *ring)
{
    return ring->file >= 0 && !ring->left;
}
/* Notes how far the files have come with all blocks that next has returned. */
void sonde__record_ring_mark(sonde__record_ring *ring, sonde__record_checkpoint *mark);
/* The file keeps the blocks after the last checkpoint, whatever is released. */
static inline void sonde__record_ring_leave(sonde__record_ring *ring)
{
    ring->left = true;
}
/* Notes in the file that the run was closed. */
void sonde__record_ring_close(sonde__record_ring *ring, uint32_t reason);
/* Removes the file; the ring stays usable until fini. */
SONDE_API void sonde__record_ring_remove(sonde__record_ring *ring);
/* The file's table of ids: 4 bytes for each id of the producer. Return an errno. */
int sonde__record_ring_set_id(sonde__record_ring *ring, uint32_t id, uint32_t value);
/* *value: SONDE_NO_TENSOR if none is noted. ENODATA: the table ends before id. */
int sonde__record_ring_get_id(const sonde__record_ring *ring, uint32_t id,
                              uint32_t *value);
/* Memory for a value that is larger than the ring takes; one at a time. It is kept in a
 * file beside the ring's, if there is one. NULL: no memory. */
void *sonde__record_ring_large(sonde__record_ring *ring, size_t size);
/* The large value that a process left beside its ring; NULL if there is none of so many
 * bytes, or the disk fails (ring->fault). */
void *sonde__record_ring_find_large(sonde__record_ring *ring, size_t size);
/* Renames the file of a ring that is damaged: what it holds may be of use. */
void sonde__record_ring_put_away(sonde__record_ring *ring);
/* Frees memory or mapping. */
void sonde__record_ring_unmap(sonde__record_ring *ring);
/* Makes the pages that the producer comes to next, in the first lap. */
SONDE_API void sonde__record_ring_populate(sonde__record_ring *ring);

#endif
