/*
 * parquet_values.c - see parquet_values.h.
 */
#include "nn/data/parquet_values.h"
#include "base/fail.h"
#include "base/memory.h"
#include "nn/data/thrift.h"

#include <string.h>

enum { BUILT_MAX = 256 * 1024 * 1024 }; /* bytes of texts made from prefixes, of a page */

void sonde__data_parquet_values_fini(sonde__data_parquet_values *values)
{
    sonde__free(values->numbers);
    sonde__free(values->spans);
    sonde__free(values->built);
    sonde__free(values->lengths);
    *values = (sonde__data_parquet_values){0};
}

static bool has_spans(const sonde__data_parquet_column *column)
{
    return column->type == SONDE__PARQUET_BYTES || column->type == SONDE__PARQUET_FIXED;
}

static bool reserve_values(const sonde__data_parquet_column *column, size_t count,
                           sonde__data_parquet_values *values)
{
    values->count = count;
    return has_spans(column) ? sonde__reserve(&values->spans, &values->spans_capacity,
                                              count, sizeof *values->spans)
                             : sonde__reserve(&values->numbers, &values->numbers_capacity,
                                              count, sizeof *values->numbers);
}

static uint64_t get(const unsigned char *p, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = bytes; i-- > 0;) {
        value = value << 8 | p[i];
    }
    return value;
}

/* width bits, at most 64, from a bit on; the caller has checked that they are there. */
static uint64_t get_bits(const unsigned char *bytes, uint64_t bit, unsigned width)
{
    const unsigned char *p = bytes + bit / 8;
    const unsigned shift = (unsigned)(bit % 8), total = shift + width;

    if (width == 0) {
        return 0;
    }
    uint64_t value = get(p, total > 64 ? 8 : (total + 7) / 8) >> shift;
    if (total > 64) {
        value |= (uint64_t)p[8] << (64 - shift);
    }
    return width == 64 ? value : value & ((1ULL << width) - 1);
}

static double whole_number(const sonde__data_parquet_column *column, uint64_t bits)
{
    if (column->type == SONDE__PARQUET_INT32) {
        const uint32_t low = (uint32_t)bits;

        return column->is_unsigned ? (double)low : (double)(int32_t)low;
    }
    return column->is_unsigned ? (double)bits : (double)(int64_t)bits;
}

/* --- runs --------------------------------------------------------------------------- */

/* The head of the next run. */
static bool begin_run(sonde__data_parquet_runs *runs)
{
    sonde__data_thrift in = {.next = runs->next, .end = runs->end};
    const uint64_t head = sonde__data_thrift_varint(&in);
    const size_t bytes = (runs->width + 7) / 8;

    if (in.broken) {
        return false;
    }
    runs->next = in.next;
    runs->packed = (head & 1) != 0;
    runs->left = head >> 1;
    if (runs->packed) {
        /* The last group may be cut behind its last value. */
        const uint64_t held = (uint64_t)(runs->end - runs->next) * 8;

        runs->left = runs->left > UINT64_MAX / 8 ? UINT64_MAX : runs->left * 8;
        if (runs->width > 0 && runs->left > held / runs->width) {
            runs->left = held / runs->width;
        }
        runs->bit = 0;
        return true;
    }
    if ((size_t)(runs->end - runs->next) < bytes) {
        return false;
    }
    runs->value = (uint32_t)get(runs->next, bytes);
    runs->next += bytes;
    return true;
}

bool sonde__data_parquet_runs_next(sonde__data_parquet_runs *runs, uint32_t *value)
{
    while (runs->left == 0) {
        if (runs->packed) {
            runs->next += (runs->bit + 7) / 8;
            runs->packed = false;
        }
        if (runs->next == runs->end || !begin_run(runs)) {
            return false;
        }
    }
    runs->left--;
    if (runs->packed) {
        runs->value = (uint32_t)get_bits(runs->next, runs->bit, runs->width);
        runs->bit += runs->width;
    }
    *value = runs->value;
    return true;
}

/* --- plain -------------------------------------------------------------------------- */

static sonde_err decode_bits(const sonde__data_parquet_span *bytes,
                             sonde__data_parquet_values *values)
{
    if (values->count > bytes->size * 8) {
        return SONDE_EFORMAT;
    }
    for (size_t i = 0; i < values->count; i++) {
        values->numbers[i] = (double)get_bits(bytes->bytes, i, 1);
    }
    return SONDE_OK;
}

static sonde_err decode_texts(const sonde__data_parquet_span *bytes,
                              sonde__data_parquet_values *values)
{
    size_t place = 0;

    for (size_t i = 0; i < values->count; i++) {
        size_t size = 0;

        if (bytes->size - place < 4) {
            return SONDE_EFORMAT;
        }
        size = (size_t)get(bytes->bytes + place, 4);
        place += 4;
        if (size > bytes->size - place) {
            return SONDE_EFORMAT;
        }
        values->spans[i] = (sonde__data_parquet_span){bytes->bytes + place, size};
        place += size;
    }
    return SONDE_OK;
}

static size_t value_size(const sonde__data_parquet_column *column)
{
    if (column->type == SONDE__PARQUET_INT32 || column->type == SONDE__PARQUET_FLOAT) {
        return 4;
    }
    return column->type == SONDE__PARQUET_FIXED ? column->length : 8;
}

static double plain_number(const sonde__data_parquet_column *column,
                           const unsigned char *p)
{
    if (column->type == SONDE__PARQUET_FLOAT) {
        const uint32_t bits = (uint32_t)get(p, 4);
        float number = 0.0F;

        memcpy(&number, &bits, sizeof number);
        return (double)number;
    }
    if (column->type == SONDE__PARQUET_DOUBLE) {
        const uint64_t bits = get(p, 8);
        double number = 0.0;

        memcpy(&number, &bits, sizeof number);
        return number;
    }
    return whole_number(column, get(p, value_size(column)));
}

static sonde_err decode_plain(const sonde__data_parquet_column *column,
                              const sonde__data_parquet_span *bytes, size_t count,
                              sonde__data_parquet_values *values)
{
    const size_t size = value_size(column);
    const size_t least = column->type == SONDE__PARQUET_BOOLEAN ? 1
                         : column->type == SONDE__PARQUET_BYTES ? 4 * 8
                                                                : size * 8;

    if (count > bytes->size * 8 / least) { /* before memory is taken for them */
        return SONDE_EFORMAT;
    }
    if (!reserve_values(column, count, values)) {
        return SONDE_ENOMEM;
    }
    if (column->type == SONDE__PARQUET_BOOLEAN) {
        return decode_bits(bytes, values);
    }
    if (column->type == SONDE__PARQUET_BYTES) {
        return decode_texts(bytes, values);
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned char *p = bytes->bytes + i * size;

        if (column->type == SONDE__PARQUET_FIXED) {
            values->spans[i] = (sonde__data_parquet_span){p, size};
        } else {
            values->numbers[i] = plain_number(column, p);
        }
    }
    return SONDE_OK;
}

/* Byte k of all values, one after the other, for each k. */
static sonde_err decode_split(const sonde__data_parquet_column *column,
                              const sonde__data_parquet_span *bytes, size_t count,
                              sonde__data_parquet_values *values)
{
    const size_t size = value_size(column);
    const sonde__data_parquet_span plain = {NULL, bytes->size};

    if (column->type == SONDE__PARQUET_BOOLEAN || column->type == SONDE__PARQUET_BYTES) {
        return SONDE_EUNSUPPORTED;
    }
    if (count > bytes->size / size) {
        return SONDE_EFORMAT;
    }
    if (!sonde__reserve(&values->built, &values->built_capacity, bytes->size, 1)) {
        return SONDE_ENOMEM;
    }
    for (size_t k = 0; k < size; k++) {
        for (size_t i = 0; i < count; i++) {
            values->built[i * size + k] = bytes->bytes[k * count + i];
        }
    }
    return decode_plain(column, &(sonde__data_parquet_span){values->built, plain.size},
                        count, values);
}

/* --- dictionaries, and runs of booleans --------------------------------------------- */

static sonde_err decode_codes(const sonde__data_parquet_column *column,
                              const sonde__data_parquet_span *bytes,
                              const sonde__data_parquet_values *dictionary, size_t count,
                              sonde__data_parquet_values *values)
{
    sonde__data_parquet_runs runs = {.next = bytes->bytes,
                                     .end = bytes->bytes + bytes->size};

    if (dictionary == NULL || (count > 0 && bytes->size == 0)) {
        return SONDE_EFORMAT;
    }
    if (!reserve_values(column, count, values)) {
        return SONDE_ENOMEM;
    }
    if (count > 0) {
        runs.width = *runs.next++;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t code = 0;

        if (runs.width > 32 || !sonde__data_parquet_runs_next(&runs, &code) ||
            code >= dictionary->count) {
            return SONDE_EFORMAT;
        }
        if (has_spans(column)) {
            values->spans[i] = dictionary->spans[code];
        } else {
            values->numbers[i] = dictionary->numbers[code];
        }
    }
    return SONDE_OK;
}

static sonde_err decode_runs(const sonde__data_parquet_column *column,
                             const sonde__data_parquet_span *bytes, size_t count,
                             sonde__data_parquet_values *values)
{
    sonde__data_parquet_runs runs = {.width = 1};

    if (column->type != SONDE__PARQUET_BOOLEAN) {
        return SONDE_EUNSUPPORTED;
    }
    if (bytes->size < 4 || get(bytes->bytes, 4) > bytes->size - 4) {
        return SONDE_EFORMAT;
    }
    if (!reserve_values(column, count, values)) {
        return SONDE_ENOMEM;
    }
    runs.next = bytes->bytes + 4;
    runs.end = runs.next + get(bytes->bytes, 4);
    for (size_t i = 0; i < count; i++) {
        uint32_t value = 0;

        if (!sonde__data_parquet_runs_next(&runs, &value)) {
            return SONDE_EFORMAT;
        }
        values->numbers[i] = (double)value;
    }
    return SONDE_OK;
}

/* --- differences -------------------------------------------------------------------- */

typedef struct differences {
    sonde__data_thrift in;
    uint64_t block, miniblocks; /* values and miniblocks of a block */
} differences;

/* The values of a block, at most count; false: its bytes are damaged. */
static bool decode_block(differences *d, uint64_t *value, size_t count, int64_t *out)
{
    const uint64_t least =
        (uint64_t)sonde__data_thrift_zigzag(sonde__data_thrift_varint(&d->in));
    const uint64_t each = d->block / d->miniblocks;
    const unsigned char *widths = d->in.next;
    size_t made = 0;

    if (d->in.broken || (uint64_t)(d->in.end - d->in.next) < d->miniblocks) {
        return false;
    }
    d->in.next += d->miniblocks;
    for (uint64_t i = 0; i < d->miniblocks && made < count; i++) {
        const uint64_t bytes = each / 8 * widths[i];

        if (widths[i] > 64 || bytes > (uint64_t)(d->in.end - d->in.next)) {
            return false;
        }
        for (uint64_t k = 0; k < each && made < count; k++) {
            *value += least + get_bits(d->in.next, k * widths[i], widths[i]);
            out[made++] = (int64_t)*value;
        }
        d->in.next += bytes;
    }
    return true;
}

/* count numbers; *rest: the bytes after them. */
static sonde_err decode_differences(const sonde__data_parquet_span *bytes, size_t count,
                                    sonde__data_parquet_values *values,
                                    sonde__data_parquet_span *rest)
{
    enum { MOST = 1 << 20, GROUP = 8 };
    differences d = {.in = {.next = bytes->bytes, .end = bytes->bytes + bytes->size}};
    uint64_t total = 0, value = 0;

    d.block = sonde__data_thrift_varint(&d.in);
    d.miniblocks = sonde__data_thrift_varint(&d.in);
    total = sonde__data_thrift_varint(&d.in);
    value = (uint64_t)sonde__data_thrift_zigzag(sonde__data_thrift_varint(&d.in));
    if (d.in.broken || d.block == 0 || d.block > MOST || d.miniblocks == 0 ||
        d.miniblocks > d.block || d.block % d.miniblocks != 0 ||
        d.block / d.miniblocks % GROUP != 0 || total != count) {
        return SONDE_EFORMAT;
    }
    if (!sonde__reserve(&values->lengths, &values->lengths_capacity, count,
                        sizeof *values->lengths)) {
        return SONDE_ENOMEM;
    }
    if (count > 0) {
        values->lengths[0] = (int64_t)value;
    }
    for (size_t made = 1; made < count;) {
        const size_t now = count - made < d.block ? count - made : (size_t)d.block;

        if (!decode_block(&d, &value, now, values->lengths + made)) {
            return SONDE_EFORMAT;
        }
        made += now;
    }
    *rest = (sonde__data_parquet_span){d.in.next, (size_t)(d.in.end - d.in.next)};
    return SONDE_OK;
}

static sonde_err decode_delta(const sonde__data_parquet_column *column,
                              const sonde__data_parquet_span *bytes, size_t count,
                              sonde__data_parquet_values *values)
{
    sonde__data_parquet_span rest = {NULL, 0};
    sonde_err err = SONDE_OK;

    if (column->type != SONDE__PARQUET_INT32 && column->type != SONDE__PARQUET_INT64) {
        return SONDE_EUNSUPPORTED;
    }
    err = decode_differences(bytes, count, values, &rest);
    if (err == SONDE_OK && !reserve_values(column, count, values)) {
        return SONDE_ENOMEM;
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        values->numbers[i] = whole_number(column, (uint64_t)values->lengths[i]);
    }
    return err;
}

/* All lengths, then all texts. */
static sonde_err decode_lengths(const sonde__data_parquet_column *column,
                                const sonde__data_parquet_span *bytes, size_t count,
                                sonde__data_parquet_values *values)
{
    sonde__data_parquet_span rest = {NULL, 0};
    sonde_err err = SONDE_OK;

    if (column->type != SONDE__PARQUET_BYTES) {
        return SONDE_EUNSUPPORTED;
    }
    err = decode_differences(bytes, count, values, &rest);
    if (err == SONDE_OK && !reserve_values(column, count, values)) {
        return SONDE_ENOMEM;
    }
    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        const int64_t size = values->lengths[i];

        if (size < 0 || (uint64_t)size > rest.size) {
            return SONDE_EFORMAT;
        }
        values->spans[i] = (sonde__data_parquet_span){rest.bytes, (size_t)size};
        rest.bytes += size;
        rest.size -= (size_t)size;
    }
    return err;
}

/* Puts texts together: each begins with prefixes[i] bytes of the one before it, and its
 * end is in values->spans. */
static sonde_err join_texts(const sonde__data_parquet_column *column,
                            const int64_t *prefixes, sonde__data_parquet_values *values)
{
    size_t total = 0, size = 0;

    for (size_t i = 0; i < values->count; i++) {
        if (prefixes[i] < 0 || (uint64_t)prefixes[i] > size) {
            return SONDE_EFORMAT;
        }
        size = (size_t)prefixes[i] + values->spans[i].size;
        total += size;
        if (total > BUILT_MAX ||
            (column->type == SONDE__PARQUET_FIXED && size != column->length)) {
            return SONDE_EFORMAT;
        }
    }
    if (!sonde__reserve(&values->built, &values->built_capacity, total, 1)) {
        return SONDE_ENOMEM;
    }
    total = 0;
    for (size_t i = 0; i < values->count; i++) {
        unsigned char *text = values->built + total;
        const size_t prefix = (size_t)prefixes[i], tail = values->spans[i].size;

        if (prefix > 0) {
            memcpy(text, values->spans[i - 1].bytes, prefix);
        }
        if (tail > 0) {
            memcpy(text + prefix, values->spans[i].bytes, tail);
        }
        values->spans[i] = (sonde__data_parquet_span){text, prefix + tail};
        total += prefix + tail;
    }
    return SONDE_OK;
}

static sonde_err decode_prefixes(const sonde__data_parquet_column *column,
                                 const sonde__data_parquet_span *bytes, size_t count,
                                 sonde__data_parquet_values *values)
{
    const sonde__data_parquet_column texts = {.type = SONDE__PARQUET_BYTES};
    sonde__data_parquet_span rest = {NULL, 0};
    sonde_err err = SONDE_OK;

    if (!has_spans(column)) {
        return SONDE_EUNSUPPORTED;
    }
    SONDE__TRY(decode_differences(bytes, count, values, &rest));
    int64_t *prefixes = values->lengths;
    values->lengths = NULL;
    values->lengths_capacity = 0;
    err = decode_lengths(&texts, &rest, count, values);
    if (err == SONDE_OK) {
        err = join_texts(column, prefixes, values);
    }
    sonde__free(prefixes);
    return err;
}

/* --- all ---------------------------------------------------------------------------- */

sonde_err sonde__data_parquet_decode(const sonde__data_parquet_column *column,
                                     int encoding, const sonde__data_parquet_span *bytes,
                                     const sonde__data_parquet_values *dictionary,
                                     size_t count, sonde__data_parquet_values *values)
{
    switch (encoding) {
    case SONDE__PARQUET_PLAIN:
        return decode_plain(column, bytes, count, values);
    case SONDE__PARQUET_PLAIN_DICTIONARY:
    case SONDE__PARQUET_RLE_DICTIONARY:
        return decode_codes(column, bytes, dictionary, count, values);
    case SONDE__PARQUET_RLE:
        return decode_runs(column, bytes, count, values);
    case SONDE__PARQUET_DELTA_BINARY_PACKED:
        return decode_delta(column, bytes, count, values);
    case SONDE__PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        return decode_lengths(column, bytes, count, values);
    case SONDE__PARQUET_DELTA_BYTE_ARRAY:
        return decode_prefixes(column, bytes, count, values);
    case SONDE__PARQUET_BYTE_STREAM_SPLIT:
        return decode_split(column, bytes, count, values);
    default:
        return SONDE_EUNSUPPORTED;
    }
}
