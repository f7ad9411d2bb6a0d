/*
 * segment.c - the open segment and its header; segment.h has the order of calls.
 *
 *     .part    | length, blanks | value | value | value |        <- bytes first
 *     .jsonl   line line line                                    <- then their lines
 */
#include "base/fail.h"
#include "record/segment.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/memory.h"
#include "record/stream.h"
#include "tensor/convert.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <sonde/error.h>

enum {
    TYPICAL_ENTRY = 112, /* bytes in the header for a value, before anything is known */
    LEAST_TYPICAL = 64 * 1024,
    MOST_TYPICAL = 1024 * 1024,
    NAME_ROOM = 1024 /* beside a first value's name */
};

enum {
    LEAST_ENTRY = 48, /* bytes of the shortest entry there can be */
    ENTRY_ROOM = 384, /* for all of an entry but the name */
    TRAILER = 8       /* the last brace, and some */
};

/* === the header ===================================================================== */

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

static char *put_text(char *out, const char *text)
{
    return stpcpy(out, text); /* its NUL is overwritten: there is a trailer */
}

/* At least width digits. */
static char *put_number(char *out, uint64_t value, int width)
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
        *out++ = digits[--n];
    }
    return out;
}

/* The key without quotes. */
static char *put_key(char *out, const sonde__record_index_line *line, const char *name)
{
    if (line->step < 0) {
        *out++ = '-';
    }
    out = put_number(
        out, line->step < 0 ? 0 - (uint64_t)line->step : (uint64_t)line->step, 10);
    out = put_text(put_text(put_text(out, "/"), sonde_mode_name(line->mode)), "/");
    out = put_text(out, name);
    if (line->micro_batch != 0 || line->replica != 0) {
        out = put_number(put_text(out, "@"), line->micro_batch, 1);
        out = put_number(put_text(out, "."), line->replica, 1);
    }
    return out;
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

static char *put_extent(char *out, uint64_t begin, uint64_t end)
{
    out = put_number(put_text(out, "],\"data_offsets\":["), begin, 1);
    out = put_number(put_text(out, ","), end, 1);
    return put_text(out, "]}");
}

static bool has_room(const sonde__record_header *header, size_t name)
{
    return header->room - header->used >= name + ENTRY_ROOM + TRAILER &&
           header->added < header->most_added;
}

bool sonde__record_header_add(sonde__record_header *header,
                              const sonde__record_index_line *line, const char *name)
{
    char *out = header->text + header->used, *key = NULL;

    if (!has_room(header, strlen(name))) {
        return false;
    }
    key = put_text(out, ",\"");
    out = claim_key(header, key, put_key(key, line, name));
    out = put_text(out, "\":{\"dtype\":\"");
    if (line->packing != SONDE__PACKED_NOT) {
        out = put_number(put_text(out, "U8\",\"shape\":["), line->bytes, 1);
    } else {
        out = put_text(out, sonde__dtype_short_name(line->dtype));
        out = put_text(out, "\",\"shape\":[");
        for (int d = 0; d < line->rank; d++) {
            out =
                put_number(put_text(out, d > 0 ? "," : ""), (uint64_t)line->shape[d], 1);
        }
    }
    out = put_extent(out, line->offset, line->offset + line->bytes);
    header->used = (size_t)(out - header->text);
    return true;
}

bool sonde__record_header_add_gap(sonde__record_header *header, uint64_t offset,
                                  uint64_t bytes)
{
    char *out = header->text + header->used, *key = NULL;

    if (!has_room(header, 0)) {
        return false;
    }
    key = put_text(out, ",\"");
    out = claim_key(header, key, put_number(put_text(key, "damaged/"), offset, 1));
    out = put_number(put_text(out, "\":{\"dtype\":\"U8\",\"shape\":["), bytes, 1);
    out = put_extent(out, offset, offset + bytes);
    header->used = (size_t)(out - header->text);
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

/* === the segment ==================================================================== */

sonde_err sonde__record_segment_init(sonde__record_segment *segment,
                                     sonde__record_backend *backend, const char *folder,
                                     int rank)
{
    *segment = (sonde__record_segment){.backend = backend, .rank = rank};
    (void)snprintf(segment->folder, sizeof segment->folder, "%s", folder);
    segment->entry_bytes = TYPICAL_ENTRY;
    segment->batch = sonde__calloc(SONDE__SEGMENT_LINES, sizeof *segment->batch);
    if (segment->batch == NULL) {
        return SONDE_ENOMEM;
    }
    return sonde__record_header_init(&segment->header, SONDE__SEGMENT_LINES);
}

static void close_files(sonde__record_segment *segment)
{
    if (segment->data != NULL) {
        segment->data->ops->close(segment->data);
    }
    if (segment->index != NULL) {
        segment->index->ops->close(segment->index);
    }
    segment->data = NULL;
    segment->index = NULL;
}

void sonde__record_segment_fini(sonde__record_segment *segment)
{
    close_files(segment);
    sonde__record_header_fini(&segment->header);
    sonde_text_fini(&segment->lines);
    sonde__free(segment->batch);
    segment->batch = NULL;
}

/* Nothing is waiting any more. */
static void clear_batch(sonde__record_segment *segment)
{
    segment->count = segment->appended = segment->committed = 0;
    segment->broken = false;
    segment->lines.length = 0;
}

/* --- opening ---------------------------------------------------------------------- */

/* The name of a file of this segment within the run. */
static const char *file_name(const sonde__record_segment *segment,
                             sonde__record_file_kind kind, bool part, char *path,
                             size_t size)
{
    char name[SONDE__FILE_NAME];

    sonde__record_file_name(name, kind, segment->number, part);
    (void)snprintf(path, size, "%s/%s", segment->folder, name);
    return path;
}

/* Room for the header: what as many values need as fill size, but not many more than the
 * segment before had, which may have been closed by time. */
static size_t header_room(const sonde__record_segment *segment, uint64_t size,
                          uint64_t value, size_t name)
{
    const uint64_t typical =
        segment->value_bytes > 0
            ? segment->value_bytes
            : SONDE_MIN(SONDE_MAX(value, LEAST_TYPICAL), MOST_TYPICAL);
    uint64_t values = value > 0 || segment->last_values > 0 ? size / typical + 1 : 0;

    values += values / 4;
    if (segment->last_values > 0) {
        values = SONDE_MIN(values, 2 * segment->last_values + 256);
    }
    return SONDE_MAX(sonde__record_header_room((size_t)SONDE_MIN(values, UINT32_MAX),
                                               segment->entry_bytes),
                     sonde__record_header_room(1, name + NAME_ROOM));
}

static int write_blank_head(sonde__record_segment *segment)
{
    const size_t room = segment->header.room;
    char *const blank = sonde__malloc(room);
    int failed = blank == NULL ? ENOMEM : 0;

    if (failed == 0) {
        sonde__record_header_blank(&segment->header, blank);
        failed = segment->data->ops->append(segment->data, blank, room);
    }
    if (failed == 0) {
        failed = segment->data->ops->settle(segment->data);
    }
    sonde__free(blank);
    return failed;
}

int sonde__record_segment_open(sonde__record_segment *segment, uint64_t size,
                               uint64_t value, size_t name)
{
    const sonde__record_backend_ops *ops = segment->backend->ops;
    char data[SONDE__FILE_NAME * 2], index[SONDE__FILE_NAME * 2];

    if (sonde__record_header_begin(&segment->header,
                                   header_room(segment, size, value, name),
                                   segment->rank) != SONDE_OK) {
        return ENOMEM;
    }
    (void)file_name(segment, SONDE__FILE_SEGMENT, true, data, sizeof data);
    (void)file_name(segment, SONDE__FILE_INDEX, false, index, sizeof index);
    SONDE__TRY_ERRNO(sonde__record_claim(segment->backend, data, &segment->data));
    int failed = sonde__record_claim(segment->backend, index, &segment->index);
    if (failed != 0) {
        goto error;
    }
    failed = write_blank_head(segment);
    if (failed != 0) {
        goto error;
    }
    segment->end = segment->staged = segment->values = segment->payload = 0;
    segment->index_end = 0;
    segment->data_longer = segment->index_longer = false;
    clear_batch(segment);
    segment->opened = sonde__now();
    return 0;

error:
    if (segment->index != NULL) {
        (void)ops->remove(segment->backend, index);
    }
    (void)ops->remove(segment->backend, data);
    close_files(segment);
    return failed;
}

/* --- adding ----------------------------------------------------------------------- */

sonde__record_segment_added sonde__record_segment_add(sonde__record_segment *segment,
                                                      sonde__record_index_line *line,
                                                      const void *bytes, uint64_t payload,
                                                      const char *name)
{
    const size_t used = segment->header.used, added = segment->header.added;

    if (segment->count == SONDE__SEGMENT_LINES) {
        return SONDE__BATCH_FULL;
    }
    line->offset = segment->staged;
    if (!sonde__record_header_add(&segment->header, line, name)) {
        return SONDE__HEADER_FULL;
    }
    if (sonde_text_reserve(&segment->lines, segment->lines.length + SONDE__INDEX_ROOM +
                                                SONDE__SEAL) != SONDE_OK) {
        sonde__record_header_drop(&segment->header, added, used);
        return SONDE__NO_MEMORY;
    }
    char *text = segment->lines.data + segment->lines.length;
    segment->lines.length +=
        sonde__record_seal(text, sonde__record_index_print(line, text));
    segment->staged += line->bytes;
    segment->batch[segment->count++] = (sonde__record_segment_line){
        .bytes = bytes,
        .size = line->bytes,
        .end = segment->staged,
        .payload = payload,
        .text_end = segment->lines.length,
        .header_used = segment->header.used,
    };
    /* At once, while the bytes are in cache; a failure shows again in commit. */
    if (segment->appended + 1 == segment->count) {
        segment->broken =
            segment->data->ops->append(segment->data, bytes, line->bytes) != 0;
        segment->appended += !segment->broken;
    }
    return SONDE__ADDED;
}

/* --- committing ------------------------------------------------------------------- */

static size_t text_begin(const sonde__record_segment *segment, size_t line)
{
    return line > 0 ? segment->batch[line - 1].text_end : 0;
}

/* After a failure: appended is the number of lines whose bytes are in the data file, and
 * the next ones follow. */
static void rewind_data(sonde__record_segment *segment)
{
    sonde__record_file *data = segment->data;
    uint64_t end = segment->header.room + segment->end;

    segment->appended = segment->committed;
    while (segment->appended < segment->count) {
        const uint64_t next =
            segment->header.room + segment->batch[segment->appended].end;

        if (next > data->end) {
            break;
        }
        end = next;
        segment->appended++;
    }
    (void)sonde__record_trim(data, end, &segment->data_longer); /* half a value is none */
    segment->broken = false;
}

/* The batch's bytes into the data file, or as many as can be. */
static int put_data(sonde__record_segment *segment)
{
    sonde__record_file *data = segment->data;
    int failed = 0;

    if (segment->broken) {
        (void)data->ops->settle(data);
        rewind_data(segment);
    }
    while (segment->appended < segment->count && failed == 0) {
        const sonde__record_segment_line *line = &segment->batch[segment->appended++];

        if (line->size > 0) {
            failed = data->ops->append(data, line->bytes, line->size);
        }
    }
    if (failed == 0) {
        failed = data->ops->settle(data);
    } else {
        (void)data->ops->settle(data);
    }
    if (failed != 0) {
        rewind_data(segment);
    }
    return failed;
}

/* An index without half a line at its end. */
static int trim_index(sonde__record_segment *segment)
{
    return segment->index_longer ? sonde__record_trim(segment->index, segment->index_end,
                                                      &segment->index_longer)
                                 : 0;
}

/* The lines up to the ready-th into the index. If not all: whole lines only. */
static int put_lines(sonde__record_segment *segment, size_t ready)
{
    sonde__record_file *index = segment->index;
    const size_t begin = text_begin(segment, segment->committed);
    const size_t end = text_begin(segment, ready);
    SONDE__TRY_ERRNO(trim_index(segment));
    int failed = index->ops->append(index, segment->lines.data + begin, end - begin);
    if (failed == 0) {
        failed = index->ops->settle(index);
    }
    const uint64_t got = index->end - segment->index_end;
    while (segment->committed < ready &&
           text_begin(segment, segment->committed + 1) - begin <= got) {
        segment->committed++;
    }
    segment->index_end += text_begin(segment, segment->committed) - begin;
    if (failed != 0) {
        (void)sonde__record_trim(index, segment->index_end, &segment->index_longer);
    }
    return failed;
}

/* Counts the lines from the first-th to the last committed one. */
static void count_gain(sonde__record_segment *segment, size_t first,
                       sonde__record_segment_gain *gain)
{
    for (size_t i = first; i < segment->committed; i++) {
        gain->values++;
        gain->payload += segment->batch[i].payload;
        segment->end = segment->batch[i].end;
    }
    segment->values += gain->values;
    segment->payload += gain->payload;
}

int sonde__record_segment_commit(sonde__record_segment *segment,
                                 sonde__record_segment_gain *gain)
{
    const size_t first = segment->committed;
    int failed = 0, lines_failed = 0;

    *gain = (sonde__record_segment_gain){0};
    if (segment->count == 0) {
        return 0;
    }
    failed = put_data(segment);
    if (segment->appended > segment->committed) {
        lines_failed = put_lines(segment, segment->appended);
    }
    count_gain(segment, first, gain);
    if (failed != 0 || lines_failed != 0) {
        return failed != 0 ? failed : lines_failed;
    }
    clear_batch(segment);
    sonde__record_header_keep(&segment->header);
    return 0;
}

uint64_t sonde__record_segment_drop(sonde__record_segment *segment)
{
    const size_t kept = segment->committed;
    const uint64_t dropped = segment->count - kept;

    if (segment->count == 0) {
        return 0;
    }
    (void)segment->data->ops->settle(segment->data); /* nothing is borrowed any more */
    sonde__record_header_drop(&segment->header, kept,
                              kept > 0 ? segment->batch[kept - 1].header_used
                                       : segment->header.kept);
    sonde__record_header_keep(&segment->header);
    segment->staged = segment->end;
    (void)sonde__record_trim(segment->data, segment->header.room + segment->end,
                             &segment->data_longer);
    clear_batch(segment);
    return dropped;
}

/* --- closing ---------------------------------------------------------------------- */

/* Sizes for the next segment's header. */
static void learn(sonde__record_segment *segment)
{
    segment->last_values = segment->values;
    if (segment->values > 0) {
        segment->entry_bytes = (size_t)(segment->header.used / segment->values) + 1;
        segment->value_bytes = (size_t)(segment->end / segment->values) + 1;
    }
}

int sonde__record_segment_close(sonde__record_segment *segment,
                                sonde__record_listed *data_line,
                                sonde__record_listed *index_line)
{
    sonde__record_file *data = segment->data;
    const sonde__record_backend_ops *ops = data->ops;
    char part[SONDE__FILE_NAME * 2], closed[SONDE__FILE_NAME * 2];
    int failed = trim_index(segment);

    if (failed == 0 && segment->data_longer) {
        failed = sonde__record_trim(data, segment->header.room + segment->end,
                                    &segment->data_longer);
    }
    if (failed != 0) {
        return failed;
    }
    sonde__record_header_finish(&segment->header);
    SONDE__TRY_ERRNO(ops->write_at(data, 0, segment->header.text, segment->header.room));
    ops->begin_sync(segment->index);
    SONDE__TRY_ERRNO(ops->sync(data));
    SONDE__TRY_ERRNO(ops->sync(segment->index));
    SONDE__TRY_ERRNO(
        sonde__record_measure(data, SONDE__FILE_SEGMENT, segment->number, data_line));
    SONDE__TRY_ERRNO(sonde__record_measure(segment->index, SONDE__FILE_INDEX,
                                           segment->number, index_line));
    SONDE__TRY_ERRNO(ops->publish(
        data, file_name(segment, SONDE__FILE_SEGMENT, true, part, sizeof part),
        file_name(segment, SONDE__FILE_SEGMENT, false, closed, sizeof closed)));
    learn(segment);
    close_files(segment);
    segment->number++;
    return 0;
}

void sonde__record_segment_abandon(sonde__record_segment *segment)
{
    close_files(segment);
    clear_batch(segment);
}
