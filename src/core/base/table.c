/*
 * table.c - a hash table from keys to indices; see table.h.
 */
#include "base/table.h"
#include "base/memory.h"

enum { FIRST_SIZE = 32 };

void sonde__table_fini(sonde__table *table)
{
    sonde__free(table->slots);
    *table = (sonde__table){0};
}

static void place(sonde__table *table, sonde__table_slot key)
{
    const size_t mask = table->size - 1;
    size_t slot = key.hash & mask;

    while (table->slots[slot].entry != 0) {
        slot = (slot + 1) & mask;
    }
    table->slots[slot] = key;
}

bool sonde__table_reserve(sonde__table *table)
{
    sonde__table grown = {.size = table->size > 0 ? table->size * 2 : (size_t)FIRST_SIZE,
                          .count = table->count};

    if ((table->count + 1) * 2 <= table->size) {
        return true;
    }
    grown.slots = sonde__calloc(grown.size, sizeof *grown.slots);
    if (grown.slots == NULL) {
        return false;
    }
    for (size_t slot = 0; slot < table->size; slot++) {
        if (table->slots[slot].entry != 0) {
            place(&grown, table->slots[slot]);
        }
    }
    sonde__free(table->slots);
    *table = grown;
    return true;
}

void sonde__table_add(sonde__table *table, uint64_t hash, uint32_t index)
{
    place(table, (sonde__table_slot){(uint32_t)hash, index + 1});
    table->count++;
}
