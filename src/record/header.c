/*
 * header.c - a safetensors header in room set aside; header.h has the order of calls.
 */
#include "record/header.h"

#include "base/memory.h"
#include "tensor/convert.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <sonde/error.h>

enum {
    LEAST_ENTRY = 48, /* bytes of the shortest entry there can be */
    ENTRY_ROOM = 384, /* for all of an entry but the name */
    TRAILER = 8       /* the last brace, and some */
};

sonde_err sonde__record_header_init(sonde__record_header *header, size_t most_added)
{
    *header = (sonde__record_header){.most_added = most_added};
    header->order = sonde__calloc(most_added, sizeof *header->order);
    return header->order != NULL ? SONDE_OK : SONDE_ENOMEM;
}

void sonde__record_header_fini(sonde__record_header *header)
{
    sonde__free(header->text);
    sonde__free(header->set);
    sonde__free(header->order);
    *header = (sonde__record_header){0};
}

size_t sonde__record_header_room(size_t values, size_t entry)
{
    size_t bytes = 0;

    if (!sonde__mul(values, entry, &bytes) || bytes > SONDE__HEADER_MOST - ENTRY_ROOM) {
        return SONDE__HEADER_MOST;
    }
    bytes += ENTRY_ROOM; /* metadata */
    return (bytes + SONDE__HEADER_PAGE - 1) / SONDE__HEADER_PAGE * SONDE__HEADER_PAGE;
}

sonde_err sonde__record_header_begin(sonde__record_header *header, size_t room, int rank)
{
    size_t slots = 64;

    while (slots < room / LEAST_ENTRY * 2) {
        slots *= 2;
    }
    if (room != header->room) {
        char *const text = sonde__malloc(room);
        uint64_t *const set = sonde__calloc(slots, sizeof *set);

        if (text == NULL || set == NULL) {
            sonde__free(text);
            sonde__free(set);
            return SONDE_ENOMEM;
        }
        sonde__free(header->text);
        sonde__free(header->set);
        header->text = text;
        header->set = set;
        header->room = room;
        header->slots = slots;
    }
    memset(header->set, 0, slots * sizeof *header->set);
    header->added = 0;
    header->used = SONDE__HEADER_LENGTH;
    header->used +=
        (size_t)snprintf(header->text + header->used, room - header->used,
                         "{\"__metadata__\":{\"sonde_run\":\"%d\",\"worker\":\"%d\"}",
                         SONDE__FORMAT_VERSION, rank);
    header->kept = header->used;
    return SONDE_OK;
}

/* --- entries ---------------------------------------------------------------------- */

static char *put_text(char *to, const char *text)
{
    return stpcpy(to, text); /* its NUL is overwritten: there is a trailer */
}

/* At least width digits. */
static char *put_number(char *to, uint64_t value, int width)
{
    char digits[20];
    int n = 0;

    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (n < width) {
        digits[n++] = '0';
    }
    while (n > 0) {
        *to++ = digits[--n];
    }
    return to;
}

/* The key without quotes. */
static char *put_key(char *to, const sonde__record_index_line *line, const char *name)
{
    if (line->step < 0) {
        *to++ = '-';
    }
    to = put_number(to, line->step < 0 ? 0 - (uint64_t)line->step : (uint64_t)line->step,
                    10);
    to = put_text(put_text(put_text(to, "/"), sonde_mode_name(line->mode)), "/");
    to = put_text(to, name);
    if (line->micro_batch != 0 || line->replica != 0) {
        to = put_number(put_text(to, "@"), line->micro_batch, 1);
        to = put_number(put_text(to, "."), line->replica, 1);
    }
    return to;
}

/* The slot of a hash: where it is, or where it would go. */
static size_t slot_of(const sonde__record_header *header, uint64_t hash)
{
    size_t slot = (size_t)hash & (header->slots - 1);

    while (header->set[slot] != 0 && header->set[slot] != hash) {
        slot = (slot + 1) & (header->slots - 1);
    }
    return slot;
}

/* Makes the key from start to end one that is new, and remembers it. */
static char *claim_key(sonde__record_header *header, char *start, char *end)
{
    char *last = end;

    for (uint64_t again = 1;; again++) {
        const uint64_t hash = XXH3_64bits(start, (size_t)(last - start)) | 1;
        const size_t slot = slot_of(header, hash);

        if (header->set[slot] == 0) {
            header->set[slot] = hash;
            header->order[header->added++] = slot;
            return last;
        }
        last = put_number(put_text(end, "#"), again, 1);
    }
}

static char *put_extent(char *to, uint64_t begin, uint64_t end)
{
    to = put_number(put_text(to, "],\"data_offsets\":["), begin, 1);
    to = put_number(put_text(to, ","), end, 1);
    return put_text(to, "]}");
}

static bool has_room(const sonde__record_header *header, size_t name)
{
    return header->room - header->used >= name + ENTRY_ROOM + TRAILER &&
           header->added < header->most_added;
}

bool sonde__record_header_add(sonde__record_header *header,
                              const sonde__record_index_line *line, const char *name)
{
    char *to = header->text + header->used, *key = NULL;

    if (!has_room(header, strlen(name))) {
        return false;
    }
    key = put_text(to, ",\"");
    to = claim_key(header, key, put_key(key, line, name));
    to = put_text(to, "\":{\"dtype\":\"");
    if (line->packing != SONDE__PACKED_NOT) {
        to = put_number(put_text(to, "U8\",\"shape\":["), line->bytes, 1);
    } else {
        to = put_text(to, sonde__dtype_short_name(line->dtype));
        to = put_text(to, "\",\"shape\":[");
        for (int d = 0; d < line->rank; d++) {
            to = put_number(put_text(to, d > 0 ? "," : ""), (uint64_t)line->shape[d], 1);
        }
    }
    to = put_extent(to, line->offset, line->offset + line->bytes);
    header->used = (size_t)(to - header->text);
    return true;
}

bool sonde__record_header_add_gap(sonde__record_header *header, uint64_t offset,
                                  uint64_t bytes)
{
    char *to = header->text + header->used, *key = NULL;

    if (!has_room(header, 0)) {
        return false;
    }
    key = put_text(to, ",\"");
    to = claim_key(header, key, put_number(put_text(key, "damaged/"), offset, 1));
    to = put_number(put_text(to, "\":{\"dtype\":\"U8\",\"shape\":["), bytes, 1);
    to = put_extent(to, offset, offset + bytes);
    header->used = (size_t)(to - header->text);
    return true;
}

void sonde__record_header_keep(sonde__record_header *header)
{
    header->added = 0;
    header->kept = header->used;
}

void sonde__record_header_drop(sonde__record_header *header, size_t count, size_t used)
{
    /* Last in, first out: nothing was placed with an eye on a slot that is cleared. */
    while (header->added > count) {
        header->set[header->order[--header->added]] = 0;
    }
    header->used = used;
}

/* --- the bytes -------------------------------------------------------------------- */

static void put_length(const sonde__record_header *header, char *bytes)
{
    const uint64_t length = header->room - SONDE__HEADER_LENGTH;

    memcpy(bytes, &length, sizeof length);
}

void sonde__record_header_finish(sonde__record_header *header)
{
    put_length(header, header->text);
    header->text[header->used] = '}';
    memset(header->text + header->used + 1, ' ', header->room - header->used - 1);
}

void sonde__record_header_blank(const sonde__record_header *header, char *bytes)
{
    put_length(header, bytes);
    memset(bytes + SONDE__HEADER_LENGTH, ' ', header->room - SONDE__HEADER_LENGTH);
}
