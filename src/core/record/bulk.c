/*
 * bulk.c - direct writes with several in flight, by Linux's own asynchronous ones
 * (io_submit), called without a library.
 */
#include "record/bulk.h"

#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct piece {
    struct iocb request;
    unsigned char *bytes; /* SONDE__BULK_BUFFER */
    uint64_t offset;      /* in the file */
    size_t size;
    bool in_flight;
} piece;

struct sonde__record_bulk {
    piece pieces[SONDE__BULK_BUFFERS];
    unsigned char *memory;
    aio_context_t context; /* 0: none */
    bool waits;            /* for every write: the kernel refused one to be in flight */
    int fd;
    int current;     /* the piece that is being filled */
    uint64_t offset; /* where it goes */
    size_t used;     /* of it */
    int failed;
    uint64_t bad; /* the first place that was not written; UINT64_MAX */
};

/* One context is kept for the next recorder: the kernel takes some 40 ms to free one. */
static _Atomic aio_context_t spare;

static aio_context_t take_context(void)
{
    aio_context_t context = atomic_exchange(&spare, 0);

    if (context == 0 && syscall(SYS_io_setup, SONDE__BULK_BUFFERS, &context) != 0) {
        return 0;
    }
    return context;
}

static void give_context(aio_context_t context)
{
    aio_context_t none = 0;

    if (context != 0 && !atomic_compare_exchange_strong(&spare, &none, context)) {
        (void)syscall(SYS_io_destroy, context);
    }
}

sonde__record_bulk *sonde__record_bulk_create(void)
{
    const size_t size = (size_t)SONDE__BULK_BUFFERS * SONDE__BULK_BUFFER;
    sonde__record_bulk *bulk = sonde__calloc(1, sizeof *bulk);

    if (bulk == NULL) {
        return NULL;
    }
    bulk->memory = sonde__malloc_aligned(SONDE__BULK_PAGE, size);
    if (bulk->memory == NULL) {
        sonde__free(bulk);
        return NULL;
    }
    (void)madvise(bulk->memory, size, MADV_HUGEPAGE);
    for (int i = 0; i < SONDE__BULK_BUFFERS; i++) {
        bulk->pieces[i].bytes = bulk->memory + (size_t)i * SONDE__BULK_BUFFER;
    }
    bulk->context = take_context();
    return bulk;
}

void sonde__record_bulk_destroy(sonde__record_bulk *bulk)
{
    if (bulk == NULL) {
        return;
    }
    give_context(bulk->waits ? 0 : bulk->context); /* nothing is in flight after an end */
    sonde__free(bulk->memory);
    sonde__free(bulk);
}

/* --- one piece -------------------------------------------------------------------- */

static void note_bad(sonde__record_bulk *bulk, int failed, uint64_t offset)
{
    if (bulk->failed == 0 || offset < bulk->bad) {
        bulk->failed = failed;
    }
    bulk->bad = SONDE_MIN(bulk->bad, offset);
}

/* So many bytes of a piece are written; the rest, if any, is written here and now. */
static void finish_piece(sonde__record_bulk *bulk, piece *p, int64_t result)
{
    size_t done = result > 0 ? (size_t)result : 0;
    int failed = result < 0 ? (int)-result : 0;

    while (done < p->size && failed == 0) {
        const ssize_t n =
            pwrite(bulk->fd, p->bytes + done, p->size - done, (off_t)(p->offset + done));

        if (n <= 0) {
            failed = n == 0 ? EIO : errno == EINTR ? 0 : errno;
            continue;
        }
        done += (size_t)n;
    }
    if (failed != 0) {
        note_bad(bulk, failed, p->offset + done / SONDE__BULK_BLOCK * SONDE__BULK_BLOCK);
    }
}

/* Waits until at least one of those in flight is done. */
static void reap(sonde__record_bulk *bulk)
{
    struct io_event events[SONDE__BULK_BUFFERS];
    const long n = syscall(SYS_io_getevents, bulk->context, 1L, (long)SONDE__BULK_BUFFERS,
                           events, NULL);

    for (long i = 0; i < n; i++) {
        piece *const p = &bulk->pieces[events[i].data];

        p->in_flight = false;
        finish_piece(bulk, p, events[i].res);
    }
}

static void submit(sonde__record_bulk *bulk, piece *p)
{
    struct iocb *requests[1] = {&p->request};

    memset(&p->request, 0, sizeof p->request);
    p->request.aio_data = (uint64_t)(p - bulk->pieces);
    p->request.aio_lio_opcode = IOCB_CMD_PWRITE;
    p->request.aio_fildes = (uint32_t)bulk->fd;
    p->request.aio_buf = (uint64_t)(uintptr_t)p->bytes;
    p->request.aio_nbytes = p->size;
    p->request.aio_offset = (int64_t)p->offset;
    if (bulk->context != 0 && syscall(SYS_io_submit, bulk->context, 1L, requests) == 1) {
        p->in_flight = true;
    } else { /* no context, or that of the process that forked this one */
        bulk->waits = true;
        finish_piece(bulk, p, 0);
    }
}

/* The first size bytes of the current piece are on their way; then the next is current.
 */
static void send(sonde__record_bulk *bulk, size_t size)
{
    piece *const p = &bulk->pieces[bulk->current];

    p->offset = bulk->offset;
    p->size = size;
    submit(bulk, p);
    bulk->offset += size;
    bulk->used -= size;
    bulk->current = (bulk->current + 1) % SONDE__BULK_BUFFERS;
    while (bulk->pieces[bulk->current].in_flight) {
        reap(bulk);
    }
}

/* --- a run of bytes --------------------------------------------------------------- */

void sonde__record_bulk_begin(sonde__record_bulk *bulk, int fd, uint64_t offset)
{
    bulk->fd = fd;
    bulk->offset = offset;
    bulk->used = 0;
    bulk->failed = 0;
    bulk->bad = UINT64_MAX;
}

void sonde__record_bulk_put(sonde__record_bulk *bulk, const void *bytes, size_t size)
{
    const unsigned char *next = bytes;

    while (size > 0) {
        const size_t n = SONDE_MIN(size, (size_t)SONDE__BULK_BUFFER - bulk->used);

        memcpy(bulk->pieces[bulk->current].bytes + bulk->used, next, n);
        bulk->used += n;
        next += n;
        size -= n;
        if (bulk->used == SONDE__BULK_BUFFER) {
            send(bulk, SONDE__BULK_BUFFER);
        }
    }
}

int sonde__record_bulk_end(sonde__record_bulk *bulk, uint64_t *good, const void **rest,
                           size_t *left)
{
    const unsigned char *const last = bulk->pieces[bulk->current].bytes;
    const size_t whole = bulk->used / SONDE__BULK_BLOCK * SONDE__BULK_BLOCK;

    if (whole > 0) {
        send(bulk, whole); /* its memory stays as it is until the next run */
    }
    for (int i = 0; i < SONDE__BULK_BUFFERS; i++) {
        while (bulk->pieces[i].in_flight) {
            reap(bulk);
        }
    }
    *rest = last + whole;
    *left = bulk->failed == 0 ? bulk->used : 0;
    *good = SONDE_MIN(bulk->offset, bulk->bad);
    return bulk->failed;
}
