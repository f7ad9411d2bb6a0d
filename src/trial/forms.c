/*
 * forms.c - the few combinations of dtype, shape and packing that values come in.
 */
#include "trial/store.h"
#include "base/memory.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FIRST_SLOTS = 64 };

void sonde__trial_forms_fini(sonde__trial_forms *forms)
{
    sonde__free(forms->items);
    sonde__free(forms->slots);
    *forms = (sonde__trial_forms){0};
}

static bool same(const sonde__trial_form *a, const sonde__trial_form *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static size_t find_slot(const sonde__trial_forms *forms, const sonde__trial_form *form)
{
    const size_t mask = forms->slot_count - 1;
    size_t slot = (size_t)XXH3_64bits(form, sizeof *form) & mask;

    while (forms->slots[slot] != 0 &&
           !same(&forms->items[forms->slots[slot] - 1], form)) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static bool rehash(sonde__trial_forms *forms)
{
    const size_t slot_count =
        forms->slot_count > 0 ? forms->slot_count * 2 : (size_t)FIRST_SLOTS;
    uint32_t *slots = sonde__calloc(slot_count, sizeof *slots);

    if (slots == NULL) {
        return false;
    }
    sonde__free(forms->slots);
    forms->slots = slots;
    forms->slot_count = slot_count;
    for (size_t i = 0; i < forms->count; i++) {
        slots[find_slot(forms, &forms->items[i])] = (uint32_t)i + 1;
    }
    return true;
}

uint32_t sonde__trial_forms_intern(sonde__trial_forms *forms,
                                   const sonde__trial_form *form, uint32_t guess)
{
    size_t slot = 0;

    if (guess < forms->count && same(&forms->items[guess], form)) {
        return guess;
    }
    if (forms->slot_count > 0) {
        slot = find_slot(forms, form);
        if (forms->slots[slot] != 0) {
            return forms->slots[slot] - 1;
        }
    }
    if (forms->count >= SONDE__NONE - 1 ||
        !sonde__reserve(&forms->items, &forms->capacity, forms->count + 1,
                        sizeof *forms->items) ||
        ((forms->count + 1) * 2 > forms->slot_count && !rehash(forms))) {
        return SONDE__NONE;
    }
    forms->items[forms->count] = *form;
    forms->slots[find_slot(forms, form)] = (uint32_t)forms->count + 1;
    return (uint32_t)forms->count++;
}
