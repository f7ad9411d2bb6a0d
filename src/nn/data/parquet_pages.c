/*
 * parquet_pages.c - the pages of a column; see parquet.h.
 *
 *     | header (Thrift) | levels | values |     version 1: both packed together
 *                                               version 2: the levels are not packed
 *
 * A level of a flat column is 1 where there is a value, 0 where it is missing.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/point.h"
#include "base/utf8.h"
#include "nn/data/parquet.h"
#include "nn/data/parquet_values.h"
#include "nn/data/thrift.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <libdeflate.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "nn/data/snappy.h"

enum { DATA = 0, INDEX = 1, DICTIONARY = 2, DATA_2 = 3 };      /* pages */
enum { PLAIN_CODEC = 0, SNAPPY = 1, GZIP = 2, ZSTANDARD = 6 }; /* codecs */

typedef struct page_header {
    int64_t kind, unpacked, packed, crc, values, encoding, level_encoding;
    int64_t level_bytes, repetition_bytes, nulls; /* of version 2 */
    bool has_crc, not_packed;
} page_header;

typedef struct column_reading {
    const sonde__data_parquet *file;
    const sonde__data_parquet_column *column;
    const sonde__data_parquet_chunk *chunk;
    size_t group;
    sonde__data_thrift in;                 /* the rest of the chunk */
    int64_t row, left;                     /* values of the chunk that are not passed */
    unsigned char *page, *dictionary_page; /* unpacked */
    size_t page_capacity;
    sonde__data_parquet_values values, dictionary;
    bool has_dictionary;
    char *text; /* of one value, with a NUL */
    size_t text_capacity;
    sonde__data_parquet_take *take;
    void *user;
    sonde_diag *diag;
} column_reading;

static sonde_err SONDE_PRINTF(4, 5)
    fail_pages(const column_reading *r, sonde_err err, const char *expected,
               const char *found, ...)
{
    char where[200], text[160];
    va_list args;

    (void)snprintf(where, sizeof where, "%.100s: column '%.60s', row group %zu",
                   r->file->name, r->column->name, r->group);
    va_start(args, found);
    (void)sonde__vsnprintf(text, sizeof text, found, args);
    va_end(args);
    return sonde__fail(r->diag, err, where, expected, "%s", text);
}

static sonde_err fail_damaged(const column_reading *r, const char *what)
{
    return fail_pages(r, SONDE_EFORMAT, "whole pages", "%s", what);
}

/* --- headers ------------------------------------------------------------------------ */

/* Of a page of data, or of a dictionary: fields 1 and 2 are the same in both; of version
 * 2: see the format. */
static void read_kind(sonde__data_thrift *in, int version, page_header *header)
{
    sonde__data_thrift_field field = {0};
    int64_t number = 0;

    while (sonde__data_thrift_next(in, &field)) {
        if (version == 2 && field.id == 7) {
            header->not_packed = !sonde__data_thrift_bool(in, &field);
            continue;
        }
        if (field.id > (version == 2 ? 6 : 3) ||
            (version == 0 && field.id > 2)) { /* sorted, statistics */
            sonde__data_thrift_skip(in, &field);
            continue;
        }
        number = sonde__data_thrift_int(in, &field);
        if (field.id == 1) {
            header->values = number;
        } else if (field.id == (version == 2 ? 4 : 2)) {
            header->encoding = number;
        } else if (version == 1) {
            header->level_encoding = number;
        } else if (field.id == 2) {
            header->nulls = number;
        } else if (field.id == 5) {
            header->level_bytes = number;
        } else if (field.id == 6) {
            header->repetition_bytes = number;
        }
    }
}

static sonde_err read_header(column_reading *r, page_header *header)
{
    sonde__data_thrift *in = &r->in;
    sonde__data_thrift_field field = {0};

    *header =
        (page_header){.kind = -1, .values = -1, .level_encoding = SONDE__PARQUET_RLE};
    while (sonde__data_thrift_next(in, &field)) {
        if (field.id >= 1 && field.id <= 4) {
            const int64_t number = sonde__data_thrift_int(in, &field);

            header->kind = field.id == 1 ? number : header->kind;
            header->unpacked = field.id == 2 ? number : header->unpacked;
            header->packed = field.id == 3 ? number : header->packed;
            header->crc = field.id == 4 ? number : header->crc;
            header->has_crc = header->has_crc || field.id == 4;
        } else if ((field.id == 5 || field.id == 7 || field.id == 8) &&
                   sonde__data_thrift_struct(in, &field)) {
            read_kind(in, field.id == 5 ? 1 : field.id == 8 ? 2 : 0, header);
        } else {
            sonde__data_thrift_skip(in, &field);
        }
    }
    if (in->broken || header->packed < 0 || header->unpacked < 0 ||
        header->packed > (int64_t)(in->end - in->next) || header->unpacked > INT32_MAX ||
        header->level_bytes < 0 || header->repetition_bytes < 0 ||
        header->level_bytes > header->packed ||
        header->repetition_bytes > header->packed - header->level_bytes ||
        header->repetition_bytes + header->level_bytes > header->unpacked) {
        return fail_damaged(r, "a damaged page header");
    }
    return SONDE_OK;
}

/* --- codecs ------------------------------------------------------------------------- */

static const char *codec_name(int codec)
{
    static const char *const names[] = {"none",   "Snappy", "gzip",      "LZO",
                                        "Brotli", "LZ4",    "Zstandard", "LZ4"};

    return codec >= 0 && codec < (int)SONDE_COUNT_OF(names) ? names[codec] : "unknown";
}

static bool unpack_gzip(const sonde__data_parquet_span *packed, unsigned char *out,
                        size_t size)
{
    struct libdeflate_decompressor *gzip = libdeflate_alloc_decompressor();
    size_t made = 0;
    const bool right =
        gzip != NULL && libdeflate_gzip_decompress(gzip, packed->bytes, packed->size, out,
                                                   size, &made) == LIBDEFLATE_SUCCESS;

    libdeflate_free_decompressor(gzip);
    return right && made == size;
}

/* Whether the codec can make so many bytes, so that no header makes memory be taken. */
static bool is_plausible(int codec, size_t packed, size_t size)
{
    enum { SNAPPY_RATIO = 24, GZIP_RATIO = 1040, ZSTANDARD_RATIO = 1 << 16 };
    const size_t ratio = codec == SNAPPY ? SNAPPY_RATIO
                         : codec == GZIP ? GZIP_RATIO
                                         : ZSTANDARD_RATIO;

    return size / ratio <= packed;
}

/* Unpacks into out, of size bytes. */
static sonde_err unpack(const column_reading *r, const sonde__data_parquet_span *packed,
                        unsigned char *out, size_t size)
{
    const int codec = r->chunk->codec;
    bool right = false;

    if (codec == SNAPPY) {
        right = sonde__data_snappy_unpack(packed->bytes, packed->size, out, size);
    } else if (codec == GZIP) {
        right = unpack_gzip(packed, out, size);
    } else {
        right = ZSTD_decompress(out, size, packed->bytes, packed->size) == size;
    }
    return right ? SONDE_OK
                 : fail_pages(r, SONDE_EFORMAT, "whole pages",
                              "a damaged page, packed by %s", codec_name(codec));
}

/* The content of a page: in the file, or unpacked into *page. Levels of version 2 are not
 * packed. */
static sonde_err open_page(column_reading *r, const page_header *header,
                           unsigned char **page, size_t *capacity,
                           sonde__data_parquet_span *content)
{
    const int codec = r->chunk->codec;
    const unsigned char *bytes = r->in.next;
    const size_t size = (size_t)header->unpacked, packed = (size_t)header->packed;
    const size_t levels = (size_t)header->level_bytes + (size_t)header->repetition_bytes;
    const sonde__data_parquet_span rest = {bytes + levels, packed - levels};

    r->in.next += packed;
    if (header->has_crc &&
        crc32(0, bytes, (uInt)packed) != (uLong)(uint32_t)header->crc) {
        return fail_damaged(r, "a page with another checksum");
    }
    if (codec == PLAIN_CODEC || header->not_packed) {
        *content = (sonde__data_parquet_span){bytes, packed};
        return packed == size ? SONDE_OK : fail_damaged(r, "a page of another size");
    }
    if (!is_plausible(codec, packed, size)) {
        return fail_damaged(r, "a page that unpacks to too much");
    }
    if (!sonde__reserve(page, capacity, size, 1)) {
        return sonde__fail_nomem(r->diag, "a page of a table");
    }
    if (levels > 0) {
        memcpy(*page, bytes, levels);
    }
    *content = (sonde__data_parquet_span){*page, size};
    return size > levels ? unpack(r, &rest, *page + levels, size - levels) : SONDE_OK;
}

/* --- values ------------------------------------------------------------------------- */

/* A decimal's digits, most significant byte first, in two's complement. */
static double decimal_number(const sonde__data_parquet_span *span)
{
    double number = 0.0;

    for (size_t i = 0; i < span->size; i++) {
        const double byte =
            i == 0 ? (double)(int8_t)span->bytes[0] : (double)span->bytes[i];

        number = number * 256.0 + byte;
    }
    return number;
}

static sonde_err make_text(column_reading *r, const sonde__data_parquet_span *span,
                           sonde__data_parquet_value *value)
{
    if (!sonde__reserve(&r->text, &r->text_capacity, span->size + 1, 1)) {
        return sonde__fail_nomem(r->diag, "a text of a table");
    }
    if (span->size > 0) {
        memcpy(r->text, span->bytes, span->size);
    }
    r->text[span->size] = '\0';
    if (strlen(r->text) != span->size || !sonde__utf8_valid(r->text)) {
        return fail_pages(r, SONDE_EFORMAT, "texts in UTF-8",
                          "row %" PRId64 " holds other bytes", r->row);
    }
    value->text = r->text;
    return SONDE_OK;
}

static sonde_err make_value(column_reading *r, size_t index,
                            sonde__data_parquet_value *value)
{
    const sonde__data_parquet_column *column = r->column;
    const sonde__data_parquet_values *values = &r->values;

    if (column->text) {
        return make_text(r, &values->spans[index], value);
    }
    if (column->half) {
        const unsigned char *p = values->spans[index].bytes;

        value->number =
            (double)sonde__dtype_f16_to_f32((uint16_t)(p[0] | (unsigned)p[1] << 8));
        return SONDE_OK;
    }
    value->number =
        column->type == SONDE__PARQUET_BYTES || column->type == SONDE__PARQUET_FIXED
            ? decimal_number(&values->spans[index])
            : values->numbers[index];
    if (column->scale > 0) {
        value->number /= pow(10.0, column->scale);
    }
    return SONDE_OK;
}

/* Passes the values of a page. runs: the levels; NULL: all values are there. */
static sonde_err pass_values(column_reading *r, int64_t count,
                             sonde__data_parquet_runs *runs)
{
    size_t index = 0;
    sonde_err err = SONDE_OK;

    for (int64_t i = 0; i < count && err == SONDE_OK; i++) {
        sonde__data_parquet_value value = {0};
        uint32_t level = 1;

        value.missing =
            runs != NULL && (!sonde__data_parquet_runs_next(runs, &level) || level == 0);
        if (!value.missing) {
            err = make_value(r, index++, &value);
        }
        if (err == SONDE_OK) {
            err = r->take(r->user, r->row, &value, r->diag);
        }
        r->row++;
    }
    return err;
}

/* --- levels ------------------------------------------------------------------------- */

/* Takes the levels from the front of content, and counts the values that are there. */
static sonde_err read_levels(const column_reading *r, const page_header *header,
                             sonde__data_parquet_span *content,
                             sonde__data_parquet_runs *runs, size_t *there)
{
    const bool second = header->kind == DATA_2;
    size_t skipped = second ? (size_t)header->repetition_bytes : 0;
    size_t size = (size_t)header->level_bytes;
    sonde__data_parquet_runs counted;

    if (!second) {
        if (header->level_encoding != SONDE__PARQUET_RLE) {
            return fail_pages(r, SONDE_EUNSUPPORTED, "RLE", "levels in encoding %" PRId64,
                              header->level_encoding);
        }
        if (content->size < 4) {
            return fail_damaged(r, "a page without levels");
        }
        size = (size_t)content->bytes[0] | (size_t)content->bytes[1] << 8 |
               (size_t)content->bytes[2] << 16 | (size_t)content->bytes[3] << 24;
        skipped = 4;
    }
    if (skipped > content->size || size > content->size - skipped) {
        return fail_damaged(r, "levels longer than their page");
    }
    content->bytes += skipped;
    *runs = (sonde__data_parquet_runs){
        .next = content->bytes, .end = content->bytes + size, .width = 1};
    content->bytes += size;
    content->size -= skipped + size;
    counted = *runs;
    *there = 0;
    for (int64_t i = 0; i < header->values; i++) {
        uint32_t level = 0;

        if (!sonde__data_parquet_runs_next(&counted, &level)) {
            return fail_damaged(r, "fewer levels than values");
        }
        *there += level != 0 ? 1 : 0;
    }
    return SONDE_OK;
}

/* --- pages -------------------------------------------------------------------------- */

static sonde_err fail_decoding(const column_reading *r, sonde_err err, int64_t encoding)
{
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(r->diag, "values of a table");
    }
    if (err == SONDE_EUNSUPPORTED) {
        return fail_pages(r, err, "PLAIN or a dictionary", "values in encoding %" PRId64,
                          encoding);
    }
    return fail_damaged(r, "fewer values than the page says");
}

static sonde_err read_dictionary(column_reading *r, const page_header *header)
{
    sonde__data_parquet_span content = {NULL, 0};
    size_t capacity = 0;
    sonde_err err = SONDE_OK;

    if (r->has_dictionary || header->values < 0 ||
        (header->encoding != SONDE__PARQUET_PLAIN &&
         header->encoding != SONDE__PARQUET_PLAIN_DICTIONARY)) {
        return fail_damaged(r, "a damaged dictionary");
    }
    r->has_dictionary = true;
    SONDE__TRY(open_page(r, header, &r->dictionary_page, &capacity, &content));
    err = sonde__data_parquet_decode(r->column, SONDE__PARQUET_PLAIN, &content, NULL,
                                     (size_t)header->values, &r->dictionary);
    return err == SONDE_OK ? err : fail_decoding(r, err, header->encoding);
}

static sonde_err read_data(column_reading *r, const page_header *header)
{
    const bool optional = r->column->optional;
    sonde__data_parquet_span content = {NULL, 0};
    sonde__data_parquet_runs runs = {0};
    size_t there = header->values > 0 ? (size_t)header->values : 0;
    sonde_err err = SONDE_OK;

    if (header->values < 0 || header->values > r->left) {
        return fail_damaged(r, "more values than rows");
    }
    SONDE__TRY(open_page(r, header, &r->page, &r->page_capacity, &content));
    if (optional || header->kind == DATA_2) {
        const size_t all = there;

        err = optional ? read_levels(r, header, &content, &runs, &there) : SONDE_OK;
        if (!optional) {
            const size_t levels =
                (size_t)header->level_bytes + (size_t)header->repetition_bytes;

            content.bytes += levels;
            content.size -= levels;
        } else if (err == SONDE_OK && header->kind == DATA_2 &&
                   (uint64_t)(all - there) != (uint64_t)header->nulls) {
            return fail_damaged(r, "another number of missing values");
        }
    }
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__data_parquet_decode(r->column, (int)(uint8_t)header->encoding, &content,
                                     r->has_dictionary ? &r->dictionary : NULL, there,
                                     &r->values);
    if (err != SONDE_OK) {
        return fail_decoding(r, err, header->encoding);
    }
    r->left -= header->values;
    return pass_values(r, header->values, optional ? &runs : NULL);
}

static sonde_err read_page(column_reading *r)
{
    page_header header;
    SONDE__TRY(read_header(r, &header));
    switch (header.kind) {
    case DATA:
    case DATA_2:
        return read_data(r, &header);
    case DICTIONARY:
        return read_dictionary(r, &header);
    default: /* INDEX, and what later versions add */
        r->in.next += header.packed;
        return SONDE_OK;
    }
}

static sonde_err check_chunk(const column_reading *r, int64_t rows)
{
    const int codec = r->chunk->codec;

    if (r->chunk->type != r->column->type || r->chunk->values != rows) {
        return fail_damaged(r, "another type or number of values than the table's");
    }
    if (codec != PLAIN_CODEC && codec != SNAPPY && codec != GZIP && codec != ZSTANDARD) {
        return fail_pages(r, SONDE_EUNSUPPORTED, "none, Snappy, gzip or Zstandard",
                          "packed by codec %d (%s)", codec, codec_name(codec));
    }
    return SONDE_OK;
}

static void forget_dictionary(column_reading *r)
{
    sonde__free(r->dictionary_page);
    r->dictionary_page = NULL;
    r->has_dictionary = false;
}

static sonde_err read_group(column_reading *r)
{
    const sonde__data_parquet *file = r->file;
    const int64_t rows = file->group_rows[r->group];
    sonde_err err = SONDE_OK;

    if (rows == 0) {
        return SONDE_OK;
    }
    r->chunk = &file->chunks[r->group * file->leaves + r->column->leaf];
    r->in = (sonde__data_thrift){.next = file->bytes + r->chunk->start,
                                 .end = file->bytes + r->chunk->start + r->chunk->size};
    r->left = rows;
    err = check_chunk(r, rows);
    while (err == SONDE_OK && r->left > 0) {
        err = r->in.next < r->in.end ? read_page(r)
                                     : fail_damaged(r, "fewer values than rows");
    }
    forget_dictionary(r);
    return err;
}

sonde_err sonde__data_parquet_read(const sonde__data_parquet *file, size_t column,
                                   sonde__data_parquet_take *take, void *user,
                                   sonde_diag *diag)
{
    column_reading r = {.file = file,
                        .column = &file->columns[column],
                        .take = take,
                        .user = user,
                        .diag = diag};
    sonde_err err = SONDE_OK;

    if (r.column->refusal != NULL) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, file->name,
                           "numbers or texts: name the inputs without this column",
                           "column '%.80s' %s", r.column->name, r.column->refusal);
    }
    for (r.group = 0; r.group < file->groups && err == SONDE_OK; r.group++) {
        err = read_group(&r);
    }
    sonde__data_parquet_values_fini(&r.values);
    sonde__data_parquet_values_fini(&r.dictionary);
    sonde__free(r.page);
    sonde__free(r.text);
    return err;
}
