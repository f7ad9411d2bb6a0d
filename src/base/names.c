/*
 * names.c - interned names: a hash table of dense ids, linear probing, never more than
 * half full. Deliberately no removal.
 */
#include "base/memory.h"
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
    sonde__free(names->slots);
    *names = (sonde__names){0};
}

/* The slot that holds text, or the empty one where it would go. slot_count is not 0. */
static size_t find_slot(const sonde__names *names, const char *text)
{
    const size_t mask = names->slot_count - 1;
    size_t slot = (size_t)XXH3_64bits(text, strlen(text)) & mask;

    while (names->slots[slot] != 0 &&
           strcmp(names->text[names->slots[slot] - 1], text) != 0) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static bool rehash(sonde__names *names, size_t slot_count)
{
    uint32_t *slots = sonde__calloc(slot_count, sizeof *slots);

    if (slots == NULL) {
        return false;
    }
    sonde__free(names->slots);
    names->slots = slots;
    names->slot_count = slot_count;
    for (size_t i = 0; i < names->count; i++) {
        slots[find_slot(names, names->text[i])] = (uint32_t)i + 1;
    }
    return true;
}

uint32_t sonde__names_find(const sonde__names *names, const char *text)
{
    uint32_t held = 0;

    if (names->slot_count == 0) {
        return SONDE__NO_NAME;
    }
    held = names->slots[find_slot(names, text)];
    return held != 0 ? held - 1 : SONDE__NO_NAME;
}

uint32_t sonde__names_intern(sonde__names *names, const char *text)
{
    const uint32_t known = sonde__names_find(names, text);
    char *copy = NULL;

    if (known != SONDE__NO_NAME) {
        return known;
    }
    if (names->count + 1 >= SONDE__NO_NAME ||
        !sonde__reserve(&names->text, &names->capacity, names->count + 1,
                        sizeof *names->text)) {
        return SONDE__NO_NAME;
    }
    if ((names->count + 1) * 2 > names->slot_count &&
        !rehash(names, names->slot_count > 0 ? names->slot_count * 2 : 32)) {
        return SONDE__NO_NAME;
    }
    copy = sonde__strdup(text);
    if (copy == NULL) {
        return SONDE__NO_NAME;
    }
    names->slots[find_slot(names, text)] = (uint32_t)names->count + 1;
    names->text[names->count] = copy;
    return (uint32_t)names->count++;
}
