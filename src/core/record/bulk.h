/*
 * bulk.h - writes a long run of bytes to a file with direct writes, several in flight.
 * Internal.
 *
 *     begin (at a block's start), put any number of times, end
 *
 * put copies into one of a few buffers; a full buffer is written while the next one
 * fills, by the kernel's asynchronous writes if it has them, otherwise one after the
 * other. Only whole blocks are written: end returns the rest.
 */
#ifndef SONDE_RECORD_BULK_H
#define SONDE_RECORD_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

enum {
    SONDE__BULK_BLOCK = 4096, /* alignment of offsets, lengths and memory */
#if defined(SONDE_STRESS)
    SONDE__BULK_BUFFER = 2 * SONDE__BULK_BLOCK,
    SONDE__BULK_BUFFERS = 2,
#else
    SONDE__BULK_BUFFER = 1024 * 1024,
    SONDE__BULK_BUFFERS = 6,
#endif
    SONDE__BULK_PAGE =
        2 * 1024 * 1024 /* a huge page: few segments for the disk's driver */
};

typedef struct sonde__record_bulk sonde__record_bulk;

/* NULL if memory runs out. */
sonde__record_bulk *sonde__record_bulk_create(void);
void sonde__record_bulk_destroy(sonde__record_bulk *bulk);

/* fd is open with O_DIRECT and borrowed until end; at is a multiple of a block. */
void sonde__record_bulk_begin(sonde__record_bulk *bulk, int fd, uint64_t offset);
/* Copies. Errors are returned by end. */
void sonde__record_bulk_put(sonde__record_bulk *bulk, const void *bytes, size_t size);
/* Waits for all writes. *good: the end of the data in the file without a hole. *rest,
 * *left: the last bytes (less than a block), not yet in the file, valid until the next
 * begin. Returns an errno; then there is no rest. */
int sonde__record_bulk_end(sonde__record_bulk *bulk, uint64_t *good, const void **rest,
                           size_t *left);

#endif
