/*
 * copy.h - copies what its producer will not read again past its caches. Internal.
 *
 * A plain copy into a ring that is larger than the caches first reads every line of the ring,
 * and then drives what the next operation needs out of the cache. Stores past the cache do
 * neither. The reader finds the bytes in memory: it works on another core anyway.
 */
#ifndef SONDE_RECORD_COPY_H
#define SONDE_RECORD_COPY_H

#include <stddef.h>

/* As memcpy. What is stored here is seen by whoever sees a later release store. */
void sonde__record_copy_past_cache(void *to, const void *from, size_t bytes);

#endif
