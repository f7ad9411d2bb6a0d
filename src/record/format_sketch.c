/*
 * format_sketch.c - sketches as records of a file: bins that are not empty, ascending, the
 * negative ones first.
 */
#include "record/format.h"

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for a hash state that needs no allocation */
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BINS = SONDE_SKETCH_BINS };

/* Entries that a bin's count takes: one for every 2^32 - 1 begun. */
static size_t entries_of(uint64_t count)
{
    return (size_t)(count / UINT32_MAX + (count % UINT32_MAX != 0));
}

/* Bin i, from -BINS to BINS - 1. */
static uint64_t count_of(const sonde_sketch *sketch, int i)
{
    return i >= 0 ? sketch->positive[i] : sketch->negative[-1 - i];
}

static size_t all_entries(const sonde_sketch *sketch)
{
    size_t entries = 0;

    for (int i = -BINS; i < BINS; i++) {
        entries += entries_of(count_of(sketch, i));
    }
    return entries;
}

size_t sonde__record_sketch_size(const sonde_sketch *sketch)
{
    return SONDE__SKETCH_FIXED + all_entries(sketch) * sizeof(sonde__record_sketch_bin);
}

void sonde__record_sketch_encode(const sonde_sketch *sketch,
                                 sonde__record_sketch_record *record)
{
    unsigned char *to = (unsigned char *)(record + 1);

    record->count = sketch->count;
    record->nan = sketch->nan;
    record->pos_inf = sketch->pos_inf;
    record->neg_inf = sketch->neg_inf;
    record->zero = sketch->zero;
    record->bins = 0;
    for (int i = -BINS; i < BINS; i++) {
        for (uint64_t left = count_of(sketch, i); left > 0;) {
            const sonde__record_sketch_bin bin = {i,
                                                  (uint32_t)SONDE_MIN(left, UINT32_MAX)};

            memcpy(to, &bin, sizeof bin);
            to += sizeof bin;
            left -= bin.count;
            record->bins++;
        }
    }
    record->length = (uint32_t)(to - (unsigned char *)record);
}

uint32_t sonde__record_sketch_check(const sonde__record_sketch_record *record)
{
    sonde__record_sketch_record head = *record;
    XXH3_state_t state;

    head.check = 0;
    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset(&state);
    (void)XXH3_64bits_update(&state, &head, sizeof head);
    (void)XXH3_64bits_update(&state, record + 1, record->length - sizeof head);
    return (uint32_t)XXH3_64bits_digest(&state);
}

/* Entry i of the bins behind a record. */
static sonde__record_sketch_bin bin_at(const sonde__record_sketch_record *record,
                                       size_t i)
{
    sonde__record_sketch_bin bin;

    memcpy(&bin, (const unsigned char *)(record + 1) + i * sizeof bin, sizeof bin);
    return bin;
}

bool sonde__record_sketch_valid(const sonde__record_sketch_record *record,
                                size_t available)
{
    const size_t bins = available >= SONDE__SKETCH_FIXED ? record->bins : 0;

    if (available < SONDE__SKETCH_FIXED || record->length > available ||
        record->length < SONDE__SKETCH_FIXED || record->length % 8 != 0 ||
        (record->length - SONDE__SKETCH_FIXED) / sizeof(sonde__record_sketch_bin) <
            bins ||
        record->mode >= SONDE_MODE_COUNT) {
        return false;
    }
    for (size_t i = 0; i < bins; i++) {
        const sonde__record_sketch_bin bin = bin_at(record, i);

        if (bin.bin < -BINS || bin.bin >= BINS ||
            (i > 0 && bin_at(record, i - 1).bin > bin.bin)) {
            return false;
        }
    }
    return true;
}

void sonde__record_sketch_decode(const sonde__record_sketch_record *record,
                                 sonde_sketch *sketch)
{
    sonde_sketch_init(sketch);
    sketch->count = record->count;
    sketch->nan = record->nan;
    sketch->pos_inf = record->pos_inf;
    sketch->neg_inf = record->neg_inf;
    sketch->zero = record->zero;
    for (size_t i = 0; i < record->bins; i++) {
        const sonde__record_sketch_bin bin = bin_at(record, i);

        if (bin.bin >= 0) {
            sketch->positive[bin.bin] += bin.count;
        } else {
            sketch->negative[-1 - bin.bin] += bin.count;
        }
    }
}
