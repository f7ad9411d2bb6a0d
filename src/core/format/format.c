/*
 * format.c - names of files, index lines, rows and sketch records, to the byte.
 *
 * Index lines are read and written by hand: a run has a million of them. The reader takes
 * exactly what the writer makes, so a line is understood or it is damaged.
 */
#include "format/format.h"

#include "base/macros.h"
#include "tensor/convert.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for a hash state that needs no allocation */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* --- names of files --------------------------------------------------------------- */

static const struct {
    const char *stem, *closed;
} kinds[] = {
    [SONDE__FILE_SEGMENT] = {"seg-", ".safetensors"},
    [SONDE__FILE_INDEX] = {"seg-", ".jsonl"},
    [SONDE__FILE_STATS] = {"stats-", ".npy"},
    [SONDE__FILE_SKETCH] = {"sketch-", ".bin"},
    [SONDE__FILE_STEPS] = {"steps-", ".npy"},
};

void sonde__record_worker_folder(char *name, int rank)
{
    (void)snprintf(name, SONDE__FILE_NAME, "w%04d", rank);
}

/* Digits from *at on, at least least of them and no needless zeros in front of more. */
static bool read_number(const char **next, int least, uint64_t *out)
{
    const char *const start = *next;
    uint64_t value = 0;
    int digits = 0;

    for (; **next >= '0' && **next <= '9'; (*next)++, digits++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**next - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return digits == least || (digits > least && *start != '0');
}

int sonde__record_worker_of_folder(const char *name)
{
    const char *next = name + 1;
    uint64_t rank = 0;

    if (name[0] != 'w' || !read_number(&next, 4, &rank) || *next != '\0' ||
        rank > INT32_MAX) {
        return -1;
    }
    return (int)rank;
}

void sonde__record_file_name(char *name, sonde__record_file_kind kind, uint64_t number,
                             bool part)
{
    (void)snprintf(name, SONDE__FILE_NAME, "%s%08llu%s", kinds[kind].stem,
                   (unsigned long long)number, part ? ".part" : kinds[kind].closed);
}

sonde__record_file_kind sonde__record_file_parse(const char *name, uint64_t *number,
                                                 bool *part)
{
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        const size_t stem = strlen(kinds[kind].stem);
        const char *next = name + stem;
        uint64_t value = 0;

        if (strncmp(name, kinds[kind].stem, stem) != 0 ||
            !read_number(&next, 8, &value)) {
            continue;
        }
        if (strcmp(next, kinds[kind].closed) == 0 ||
            (kind != SONDE__FILE_INDEX && strcmp(next, ".part") == 0)) {
            *number = value;
            *part = strcmp(next, ".part") == 0;
            return (sonde__record_file_kind)kind;
        }
    }
    return SONDE__FILE_OTHER;
}

/* --- writing index lines ---------------------------------------------------------- */

static char *print_text(char *out, const char *text)
{
    return stpcpy(out, text); /* its NUL is overwritten, or follows the line */
}

static char *print_unsigned(char *out, uint64_t value)
{
    char digits[20];
    int n = 0;

    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (n > 0) {
        *out++ = digits[--n];
    }
    return out;
}

static char *print_signed(char *out, int64_t value)
{
    if (value < 0) {
        *out++ = '-';
        return print_unsigned(out, 0 - (uint64_t)value);
    }
    return print_unsigned(out, (uint64_t)value);
}

static char *print_hash(char *out, uint64_t hash)
{
    static const char hex[] = "0123456789abcdef";

    for (int shift = 60; shift >= 0; shift -= 4) {
        *out++ = hex[hash >> shift & 15];
    }
    return out;
}

static const char *const packings[] = {"", "zstd", "zstd+shuffle"};

static char *print_value(char *out, const sonde__record_index_line *line)
{
    out = print_unsigned(print_text(out, ",\"t\":"), line->tensor);
    out = print_unsigned(print_text(out, ",\"b\":"), line->micro_batch);
    out = print_unsigned(print_text(out, ",\"r\":"), line->replica);
    out = print_unsigned(print_text(out, ",\"o\":"), line->offset);
    out = print_unsigned(print_text(out, ",\"n\":"), line->bytes);
    out = print_text(print_text(out, ",\"d\":\""), sonde__dtype_short_name(line->dtype));
    out = print_hash(print_text(out, "\",\"h\":\""), line->hash);
    out = print_text(out, "\",\"p\":[");
    for (int d = 0; d < line->rank; d++) {
        out = print_signed(print_text(out, d > 0 ? "," : ""), line->shape[d]);
    }
    *out++ = ']';
    if (line->packing != SONDE__PACKED_NOT) {
        out = print_text(print_text(out, ",\"z\":\""), packings[line->packing]);
        *out++ = '"';
    }
    return out;
}

size_t sonde__record_index_print(const sonde__record_index_line *line, char *text)
{
    char *out = print_signed(print_text(text, "{\"s\":"), line->step);

    out = print_text(print_text(out, ",\"m\":\""), sonde_mode_name(line->mode));
    out = print_signed(print_text(out, "\",\"k\":"), line->mode_step);
    out = print_value(out, line);
    out = print_text(out, "}\n");
    return (size_t)(out - text);
}

/* --- reading index lines ---------------------------------------------------------- */

/* --- checksums of text ------------------------------------------------------------ */

/* The end of an object whose text before it has length bytes, without a newline. */
static void print_seal(const char *text, size_t length, char seal[SONDE__SEAL + 1])
{
    static const char digits[] = "0123456789abcdef";
    const uint32_t hash = (uint32_t)XXH3_64bits(text, length);

    memcpy(seal, ",\"check\":\"00000000\"}", SONDE__SEAL + 1);
    for (int i = 0; i < 8; i++) {
        seal[10 + i] = digits[hash >> (28 - 4 * i) & 15];
    }
}

size_t sonde__record_seal(char *text, size_t length)
{
    char seal[SONDE__SEAL + 1];
    const size_t before = length - 2; /* without brace and newline */

    print_seal(text, before, seal);
    memcpy(text + before, seal, SONDE__SEAL);
    text[before + SONDE__SEAL] = '\n';
    return before + SONDE__SEAL + 1;
}

bool sonde__record_seal_broken(const char *text, size_t length)
{
    static const char key[] = ",\"check\":\"";
    char seal[SONDE__SEAL + 1];
    const size_t n = length > 0 && text[length - 1] == '\n' ? length - 1 : length;
    const char *const found = n < SONDE__SEAL ? NULL : text + n - SONDE__SEAL;

    if (found == NULL) {
        return false;
    }
    print_seal(text, n - SONDE__SEAL, seal);
    if (memcmp(found, key, sizeof key - 1) != 0) { /* no seal, or it is damaged */
        return memcmp(found + sizeof key - 1, seal + sizeof key - 1, 8) == 0 ||
               memmem(text, n, key, sizeof key - 1) != NULL;
    }
    return memcmp(found, seal, SONDE__SEAL) != 0;
}

uint64_t sonde__record_line_number(const char *text, size_t length)
{
    static const char key[] =
        ",\"n\":"; /* a quote in a string has a backslash before it */
    const char *next = memmem(text, length, key, sizeof key - 1);
    uint64_t number = 0;

    if (next == NULL) {
        return 0;
    }
    for (next += sizeof key - 1; next < text + length && *next >= '0' && *next <= '9' &&
                                 number < UINT64_MAX / 100;
         next++) {
        number = number * 10 + (uint64_t)(*next - '0');
    }
    return number;
}

/* The rest of a line. A take_ function advances if it finds its part. */
typedef struct rest {
    const char *next, *end;
} rest;

static bool take_text(rest *input, const char *text)
{
    const size_t n = strlen(text);

    if ((size_t)(input->end - input->next) < n || memcmp(input->next, text, n) != 0) {
        return false;
    }
    input->next += n;
    return true;
}

static bool take_unsigned(rest *input, uint64_t most, uint64_t *out)
{
    const char *const start = input->next;
    uint64_t value = 0;

    for (; input->next < input->end && *input->next >= '0' && *input->next <= '9';
         input->next++) {
        const uint64_t digit = (uint64_t)(*input->next - '0');

        if (digit > most || value > (most - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return input->next > start && (*start != '0' || input->next == start + 1);
}

static bool take_signed(rest *input, int64_t *out)
{
    const bool negative = take_text(input, "-");
    uint64_t size = 0;

    if (!take_unsigned(input, (uint64_t)INT64_MAX, &size) || (negative && size == 0)) {
        return false;
    }
    *out = negative ? -(int64_t)size : (int64_t)size;
    return true;
}

static bool take_u32(rest *input, uint32_t *out)
{
    uint64_t value = 0;

    if (!take_unsigned(input, UINT32_MAX, &value)) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static bool take_mode(rest *input, sonde_mode *mode)
{
    for (int m = 0; m < SONDE_MODE_COUNT; m++) {
        if (take_text(input, sonde_mode_name((sonde_mode)m))) {
            *mode = (sonde_mode)m;
            return true;
        }
    }
    return false;
}

static bool take_dtype(rest *input, sonde_dtype *dtype)
{
    char name[8];
    size_t n = 0;

    while (input->next < input->end && *input->next != '"' && n < sizeof name - 1) {
        name[n++] = *input->next++;
    }
    name[n] = '\0';
    return strlen(name) == n && sonde__dtype_of_short_name(name, dtype);
}

static bool take_hash(rest *input, uint64_t *hash)
{
    uint64_t value = 0;

    if (input->end - input->next < 16) {
        return false;
    }
    for (int i = 0; i < 16; i++) {
        const char c = *input->next++;

        if (c >= '0' && c <= '9') {
            value = value << 4 | (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        } else {
            return false;
        }
    }
    *hash = value;
    return true;
}

/* The dimensions and the bracket that closes them; *count is their product. */
static bool take_shape(rest *input, sonde__record_index_line *line, uint64_t *count)
{
    int64_t product = 1, reach = 1; /* reach: empty dimensions left out */

    line->rank = 0;
    while (!take_text(input, "]")) {
        int64_t *const extent = &line->shape[line->rank];

        if (line->rank == SONDE_MAX_DIMS || (line->rank > 0 && !take_text(input, ",")) ||
            !take_signed(input, extent) || *extent < 0 ||
            __builtin_mul_overflow(reach, SONDE_MAX(*extent, 1), &reach)) {
            return false;
        }
        product *= *extent;
        line->rank++;
    }
    *count = (uint64_t)product;
    return true;
}

static bool take_packing(rest *input, sonde__record_packing *packing)
{
    *packing = SONDE__PACKED_NOT;
    if (take_text(input, ",\"z\":\"zstd\"")) {
        *packing = SONDE__PACKED_ZSTD;
    } else if (take_text(input, ",\"z\":\"zstd+shuffle\"")) {
        *packing = SONDE__PACKED_ZSTD_SHUFFLE;
    }
    return true;
}

/* The part after the step. */
static bool take_value(rest *input, sonde__record_index_line *line)
{
    uint64_t count = 0, bytes = 0;

    return take_text(input, ",\"t\":") && take_u32(input, &line->tensor) &&
           take_text(input, ",\"b\":") && take_u32(input, &line->micro_batch) &&
           take_text(input, ",\"r\":") && take_u32(input, &line->replica) &&
           take_text(input, ",\"o\":") &&
           take_unsigned(input, INT64_MAX, &line->offset) &&
           take_text(input, ",\"n\":") &&
           take_unsigned(input, INT64_MAX - line->offset, &line->bytes) &&
           take_text(input, ",\"d\":\"") && take_dtype(input, &line->dtype) &&
           take_text(input, "\",\"h\":\"") && take_hash(input, &line->hash) &&
           take_text(input, "\",\"p\":[") && take_shape(input, line, &count) &&
           take_packing(input, &line->packing) &&
           !__builtin_mul_overflow(count, (uint64_t)sonde_dtype_size(line->dtype),
                                   &bytes) &&
           (line->packing != SONDE__PACKED_NOT || bytes == line->bytes);
}

/* A seal, if there is one: of the text up to here. */
static bool take_seal(rest *input, const char *text)
{
    char seal[SONDE__SEAL + 1];
    const size_t before = (size_t)(input->next - text);

    if (input->end - input->next < SONDE__SEAL) {
        return true;
    }
    print_seal(text, before, seal);
    seal[SONDE__SEAL - 1] = '\0'; /* without the closing brace */
    return take_text(input, seal);
}

bool sonde__record_index_parse(const char *text, size_t length,
                               sonde__record_index_line *line)
{
    rest input = {text, text + length};

    return take_text(&input, "{\"s\":") && take_signed(&input, &line->step) &&
           take_text(&input, ",\"m\":\"") && take_mode(&input, &line->mode) &&
           take_text(&input, "\",\"k\":") && take_signed(&input, &line->mode_step) &&
           take_value(&input, line) && take_seal(&input, text) &&
           take_text(&input, "}") && input.next == input.end;
}

/* --- generations ------------------------------------------------------------------ */

static const struct {
    const char *key;
    sonde__record_file_kind kind;
} firsts[] = {{",\"segment\":", SONDE__FILE_SEGMENT},
              {",\"stats\":", SONDE__FILE_STATS},
              {",\"sketch\":", SONDE__FILE_SKETCH},
              {",\"steps\":", SONDE__FILE_STEPS}};

size_t sonde__record_generation_print(const sonde__record_generation *line, char *text)
{
    char *out = print_unsigned(print_text(text, "{\"generation\":"), line->number);

    out = print_signed(print_text(out, ",\"step\":"), line->step);
    out = print_signed(print_text(out, ",\"time\":"), line->time);
    for (size_t i = 0; i < SONDE_COUNT_OF(firsts); i++) {
        out = print_unsigned(print_text(out, firsts[i].key), line->first[firsts[i].kind]);
    }
    out = print_text(out, "}\n");
    return (size_t)(out - text);
}

bool sonde__record_generation_parse(const char *text, size_t length,
                                    sonde__record_generation *line)
{
    rest input = {text, text + length};
    bool good = take_text(&input, "{\"generation\":") &&
                take_unsigned(&input, INT64_MAX, &line->number) &&
                take_text(&input, ",\"step\":") && take_signed(&input, &line->step) &&
                take_text(&input, ",\"time\":") && take_signed(&input, &line->time);

    for (size_t i = 0; i < SONDE_COUNT_OF(firsts) && good; i++) {
        good = take_text(&input, firsts[i].key) &&
               take_unsigned(&input, INT64_MAX, &line->first[firsts[i].kind]);
    }
    line->first[SONDE__FILE_INDEX] = line->first[SONDE__FILE_SEGMENT];
    return good && take_seal(&input, text) && take_text(&input, "}") &&
           input.next == input.end && line->step >= 0;
}

int64_t sonde__record_generation_limit(const sonde__record_generation *generations,
                                       size_t count, sonde__record_file_kind kind,
                                       uint64_t number)
{
    int64_t limit = INT64_MAX;

    /* Back from the last generation to the one that wrote the file. */
    for (size_t i = count; i > 0 && generations[i - 1].first[kind] > number; i--) {
        limit = SONDE_MIN(limit, generations[i - 1].step);
    }
    return limit;
}

/* --- the list of files ------------------------------------------------------------ */

size_t sonde__record_listed_print(const sonde__record_listed *line, char *text)
{
    char *out = print_text(print_text(text, "{\"file\":\""), line->name);

    out = print_unsigned(print_text(out, "\",\"size\":"), line->size);
    out = print_unsigned(print_text(out, ",\"covered\":"), line->covered);
    out = print_hash(print_text(out, ",\"hash\":\""), line->hash);
    out = print_text(out, "\"}\n");
    return sonde__record_seal(text, (size_t)(out - text));
}

static bool is_listed_name(const char *name)
{
    uint64_t number = 0;
    bool part = false;

    return strcmp(name, SONDE__CATALOGUE_FILE) == 0 ||
           strcmp(name, SONDE__GENERATIONS_FILE) == 0 ||
           (sonde__record_file_parse(name, &number, &part) != SONDE__FILE_OTHER && !part);
}

static bool take_name(rest *input, char name[SONDE__FILE_NAME])
{
    const size_t left = (size_t)(input->end - input->next);
    const char *const quote = memchr(input->next, '"', left);
    const size_t length = quote != NULL ? (size_t)(quote - input->next) : left;

    if (quote == NULL || length >= SONDE__FILE_NAME) {
        return false;
    }
    memcpy(name, input->next, length);
    name[length] = '\0';
    input->next = quote;
    return is_listed_name(name);
}

bool sonde__record_listed_parse(const char *text, size_t length,
                                sonde__record_listed *line)
{
    rest input = {text, text + length};

    return take_text(&input, "{\"file\":\"") && take_name(&input, line->name) &&
           take_text(&input, "\",\"size\":") &&
           take_unsigned(&input, INT64_MAX, &line->size) &&
           take_text(&input, ",\"covered\":") &&
           take_unsigned(&input, line->size, &line->covered) &&
           take_text(&input, ",\"hash\":\"") && take_hash(&input, &line->hash) &&
           take_text(&input, "\"") && take_seal(&input, text) && take_text(&input, "}") &&
           input.next == input.end;
}

int sonde__record_listed_hash(sonde__record_read_fn *read, void *user, uint64_t covered,
                              void *piece, size_t room, uint64_t *hash)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset(&state);
    for (uint64_t at = 0; at < covered;) {
        const size_t size = (size_t)SONDE_MIN(covered - at, (uint64_t)room);
        size_t got = 0;
        const int failed = read(user, at, piece, size, &got);

        if (failed != 0 || got < size) {
            return failed != 0 ? failed : ENODATA;
        }
        (void)XXH3_64bits_update(&state, piece, size);
        at += size;
    }
    *hash = XXH3_64bits_digest(&state);
    return 0;
}

/* --- heads ------------------------------------------------------------------------ */

/* A NumPy array of one dimension: magic, version 1.0, length, a dictionary, blanks. */
static size_t npy_head(char *head, size_t size, const char *fields, uint64_t rows)
{
    static const char magic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
    const uint16_t length = (uint16_t)(size - 10);

    memcpy(head, magic, sizeof magic);
    memcpy(head + 8, &length, sizeof length);
    const int n = snprintf(head + 10, length,
                           "{'descr': [%s], 'fortran_order': False, 'shape': (%llu,), }",
                           fields, (unsigned long long)rows);
    memset(head + 10 + n, ' ', length - (size_t)n);
    head[size - 1] = '\n';
    return size;
}

static const char stats_fields[] =
    "('step', '<i8'), ('mode_step', '<i8'), ('tensor', '<u4'), ('micro_batch', '<u4'), "
    "('replica', '<u2'), ('mode', '<u1'), ('reserved', '<u1'), ('check', '<u4'), "
    "('count', '<u8'), ('nan', '<u8'), ('pos_inf', '<u8'), ('neg_inf', '<u8'), "
    "('zero', '<u8'), ('min', '<f8'), ('max', '<f8'), ('abs_min', '<f8'), "
    "('abs_max', '<f8'), ('mean', '<f8'), ('m2', '<f8'), ('l1', '<f8'), "
    "('sumsq', '<f8'), ('sum', '<f8')";
static const char steps_fields[] =
    "('step', '<i8'), ('mode_step', '<i8'), ('time', '<i8'), ('mode', '<u4'), "
    "('check', '<u4')";

size_t sonde__record_file_head(sonde__record_file_kind kind, uint64_t items,
                               char head[SONDE__MOST_HEAD])
{
    switch (kind) {
    case SONDE__FILE_STATS:
        return npy_head(head, SONDE__STATS_HEAD, stats_fields, items);
    case SONDE__FILE_STEPS:
        return npy_head(head, SONDE__STEPS_HEAD, steps_fields, items);
    case SONDE__FILE_SKETCH:
        memset(head, 0, SONDE__SKETCH_HEAD);
        memcpy(head, SONDE__SKETCH_MAGIC, sizeof SONDE__SKETCH_MAGIC - 1);
        return SONDE__SKETCH_HEAD;
    case SONDE__FILE_SEGMENT:
    case SONDE__FILE_INDEX:
    case SONDE__FILE_OTHER:
    default:
        return 0;
    }
}

/* --- steps ------------------------------------------------------------------------ */

uint32_t sonde__record_step_check(const sonde__record_step_row *row)
{
    sonde__record_step_row blank = *row;

    blank.check = 0;
    return (uint32_t)XXH3_64bits(&blank, sizeof blank);
}

bool sonde__record_step_valid(const sonde__record_step_row *row)
{
    return sonde__record_step_check(row) == row->check && row->mode < SONDE_MODE_COUNT &&
           row->step >= 0 && row->mode_step >= 0;
}

/* --- vital signs ------------------------------------------------------------------ */

uint32_t sonde__record_stats_check(const sonde__record_stats_row *row)
{
    sonde__record_stats_row blank = *row;

    blank.check = 0;
    return (uint32_t)XXH3_64bits(&blank, sizeof blank);
}

void sonde__record_stats_to_vitals(const sonde__record_stats_row *row,
                                   sonde_vitals *vitals)
{
    *vitals = (sonde_vitals){
        .count = row->count,
        .nan = row->nan,
        .pos_inf = row->pos_inf,
        .neg_inf = row->neg_inf,
        .zero = row->zero,
        .min = row->min,
        .max = row->max,
        .abs_min = row->abs_min,
        .abs_max = row->abs_max,
        .mean = row->mean,
        .m2 = row->m2,
        .l1 = row->l1,
        .sumsq = row->sumsq,
        .sum = row->sum,
    };
}

void sonde__record_stats_of_vitals(sonde__record_stats_row *row,
                                   const sonde_vitals *vitals)
{
    row->count = vitals->count;
    row->nan = vitals->nan;
    row->pos_inf = vitals->pos_inf;
    row->neg_inf = vitals->neg_inf;
    row->zero = vitals->zero;
    row->min = vitals->min;
    row->max = vitals->max;
    row->abs_min = vitals->abs_min;
    row->abs_max = vitals->abs_max;
    row->mean = vitals->mean;
    row->m2 = vitals->m2;
    row->l1 = vitals->l1;
    row->sumsq = vitals->sumsq;
    row->sum = vitals->sum;
}

/* --- sketches --------------------------------------------------------------------- */

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
    unsigned char *out = (unsigned char *)(record + 1);

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

            memcpy(out, &bin, sizeof bin);
            out += sizeof bin;
            left -= bin.count;
            record->bins++;
        }
    }
    record->length = (uint32_t)(out - (unsigned char *)record);
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

/* Entry i of the bins of a record. */
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
