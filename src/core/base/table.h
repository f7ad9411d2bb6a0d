/*
 * table.h - a hash table from keys to indices of an array. Internal.
 *
 *     array   | key 0 | key 1 | key 2 |          the caller's, in order of arrival
 *     slots   | . | 2 | . | 0 | . | . | 1 | . |  indices, at their keys' hashes
 *
 * The table holds no keys: it finds the index of a key among the caller's. Linear
 * probing, at most half full, eight bytes a slot, no removal. One thread at a time.
 *
 * Not uthash: it links elements by pointers, and ours lie in arrays that move as they
 * grow.
 */
#ifndef SONDE_BASE_TABLE_H
#define SONDE_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

#define SONDE__TABLE_NONE UINT32_MAX

typedef struct sonde__table_slot {
    uint32_t hash;  /* the lower half of the key's */
    uint32_t entry; /* index + 1; 0: empty */
} sonde__table_slot;

/* Start with a zeroed one. */
typedef struct sonde__table {
    sonde__table_slot *slots;
    size_t size;  /* a power of two, or 0 */
    size_t count; /* of keys */
} sonde__table;

/* True if the array's element at index has this key. */
typedef bool (*sonde__table_match)(const void *array, uint32_t index, const void *key);

SONDE_API void sonde__table_fini(sonde__table *table);
/* Makes room for one more key; false if memory runs out. */
SONDE_API bool sonde__table_reserve(sonde__table *table);
/* Adds a key that is not in the table; its room is reserved. */
SONDE_API void sonde__table_add(sonde__table *table, uint64_t hash, uint32_t index);

/* The index of a key; SONDE__TABLE_NONE if it is not in the table. Inline, so that the
 * compiler inlines match. */
static inline uint32_t sonde__table_find(const sonde__table *table, uint64_t hash,
                                         sonde__table_match match, const void *array,
                                         const void *key)
{
    const size_t mask = table->size - 1;
    const uint32_t low = (uint32_t)hash;

    if (table->size == 0) {
        return SONDE__TABLE_NONE;
    }
    for (size_t slot = low & mask; table->slots[slot].entry != 0;
         slot = (slot + 1) & mask) {
        const uint32_t index = table->slots[slot].entry - 1;

        if (table->slots[slot].hash == low && match(array, index, key)) {
            return index;
        }
    }
    return SONDE__TABLE_NONE;
}

#endif
