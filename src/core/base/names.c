/*
 * names.c - interned names and hash tables; see names.h and table.h.
 */
#include "base/memory.h"
#include "base/table.h"
#include "base/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void sonde__names_init(sonde__names *names)
{
    *names = (sonde__names){0};
}

void sonde__names_fini(sonde__names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        sonde__free(names->text[i]);
    }
    sonde__free(names->text);
    sonde__table_fini(&names->table);
    *names = (sonde__names){0};
}

static bool is_name(const void *array, uint32_t index, const void *key)
{
    return strcmp(((char *const *)array)[index], key) == 0;
}

static uint32_t find(const sonde__names *names, const char *text, uint64_t hash)
{
    return sonde__table_find(&names->table, hash, is_name, names->text, text);
}

uint32_t sonde__names_find(const sonde__names *names, const char *text)
{
    return find(names, text, XXH3_64bits(text, strlen(text)));
}

uint32_t sonde__names_intern(sonde__names *names, const char *text)
{
    const uint64_t hash = XXH3_64bits(text, strlen(text));
    const uint32_t known = find(names, text, hash);

    if (known != SONDE__NO_NAME) {
        return known;
    }
    if (names->count + 1 >= SONDE__NO_NAME ||
        !sonde__reserve(&names->text, &names->capacity, names->count + 1,
                        sizeof *names->text) ||
        !sonde__table_reserve(&names->table)) {
        return SONDE__NO_NAME;
    }
    char *copy = sonde__strdup(text);
    if (copy == NULL) {
        return SONDE__NO_NAME;
    }
    sonde__table_add(&names->table, hash, (uint32_t)names->count);
    names->text[names->count] = copy;
    return (uint32_t)names->count++;
}

/* === hash tables =================================================================== */

/*
 * A hash table from keys to indices; see table.h.
 */

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
