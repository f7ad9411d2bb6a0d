/*
 * bulk.h - a long run of bytes to a file, past the page cache, with several writes in
 * flight. Internal.
 *
 *     begin at a block's start; put any number of times; end
 *
 * What is put is copied to one of a few buffers and written when that is full, while the
 * next one is filled. The kernel's asynchronous writes are used if there are any, else
 * every write is waited for. Only whole blocks are written: end hands back what is left.
 */
#ifndef SONDE_RECORD_BULK_H
#define SONDE_RECORD_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

enum {
    SONDE__BULK_BLOCK = 4096, /* alignment of places, lengths and memory */
#if defined(SONDE_STRESS)
    SONDE__BULK_BUFFER = 2 * SONDE__BULK_BLOCK,
    SONDE__BULK_BUFFERS = 2,
#else
    SONDE__BULK_BUFFER = 1024 * 1024,
    SONDE__BULK_BUFFERS = 6,
#endif
    SONDE__BULK_PAGE = 2 * 1024 * 1024 /* a huge one: few pieces for the disk's driver */
};

typedef struct sonde__record_bulk sonde__record_bulk;

/* NULL if memory is out. */
SONDE_API sonde__record_bulk *sonde__record_bulk_create(void);
SONDE_API void sonde__record_bulk_destroy(sonde__record_bulk *bulk);

/* fd is open with O_DIRECT and borrowed until end; at is a multiple of a block. */
SONDE_API void sonde__record_bulk_begin(sonde__record_bulk *bulk, int fd,
                                        uint64_t offset);
/* Copies. An error shows in end. */
SONDE_API void sonde__record_bulk_put(sonde__record_bulk *bulk, const void *bytes,
                                      size_t size);
/* Waits for everything. *good is the end of what is in the file without a hole; *rest and
 * *left (less than a block) what was put behind that and is not, valid until the next
 * begin. Returns an errno; then there is no rest. */
SONDE_API int sonde__record_bulk_end(sonde__record_bulk *bulk, uint64_t *good,
                                     const void **rest, size_t *left);

#endif
