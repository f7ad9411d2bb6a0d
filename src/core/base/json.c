/*
 * json.c - writing and reading JSON; see <sonde/json.h> and json_read.h.
 */
#include "base/number.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <sonde/json.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* The code of a control character of n bytes that JSON allows and a terminal obeys (DEL,
 * U+0080 to U+009F) or that JSON forbids; -1: another character. */
static int control_code(const char *next, size_t n)
{
    const unsigned char c = (unsigned char)*next;

    if (n == 1 && (c < 0x20 || c == 0x7F)) {
        return c;
    }
    return n == 2 && c == 0xC2 && (unsigned char)next[1] < 0xA0 ? (unsigned char)next[1]
                                                                : -1;
}

void sonde_json_escape(sonde_text *text, const char *string)
{
    if (text == NULL || string == NULL) {
        return;
    }
    const char *plain = string, *next = string; /* plain: not yet copied */

    while (*next != '\0') {
        const unsigned char c = (unsigned char)*next;
        const size_t n = c < 0x80 ? 1 : sonde__utf8_length(next);
        const int code = control_code(next, n);

        if (n > 0 && c != '"' && c != '\\' && code < 0) {
            next += n;
            continue;
        }
        sonde_text_put(text, plain, (size_t)(next - plain));
        if (n == 0) {
            sonde_text_add(text, SONDE__REPLACEMENT);
        } else if (code >= 0) {
            sonde_text_format(text, "\\u%04x", (unsigned)code);
        } else {
            const char escaped[2] = {'\\', *next};

            sonde_text_put(text, escaped, sizeof escaped);
        }
        next += n > 0 ? n : 1;
        plain = next;
    }
    sonde_text_put(text, plain, (size_t)(next - plain));
}

static void quote(sonde_text *text, const char *string)
{
    sonde_text_add(text, "\"");
    sonde_json_escape(text, string);
    sonde_text_add(text, "\"");
}

static bool has_text(const sonde_json *json)
{
    return json != NULL && json->text != NULL;
}

/* The comma, the blanks and the key that precede a value. */
static void begin(sonde_json *json, const char *key)
{
    const uint32_t level = json->depth > 0 && json->depth <= SONDE_JSON_DEPTH
                               ? UINT32_C(1) << (json->depth - 1)
                               : 0;

    if ((json->begun & level) != 0) {
        sonde_text_add(json->text, json->spaced && json->lead == NULL ? ", " : ",");
    }
    json->begun |= level;
    if (json->lead != NULL) {
        sonde_text_add(json->text, json->lead);
        json->lead = NULL;
    }
    if (key != NULL) {
        quote(json->text, key);
        sonde_text_add(json->text, json->spaced ? ": " : ":");
    }
}

static void open_level(sonde_json *json, const char *key, bool list)
{
    begin(json, key);
    if (json->depth >= SONDE_JSON_DEPTH) {
        json->text->failed = true;
        json->depth++;
        return;
    }
    const uint32_t level = UINT32_C(1) << json->depth++;
    json->begun &= ~level;
    json->lists = list ? json->lists | level : json->lists & ~level;
    sonde_text_add(json->text, list ? "[" : "{");
}

void sonde_json_object(sonde_json *json, const char *key)
{
    if (!has_text(json)) {
        return;
    }
    open_level(json, key, false);
}

void sonde_json_list(sonde_json *json, const char *key)
{
    if (!has_text(json)) {
        return;
    }
    open_level(json, key, true);
}

void sonde_json_end(sonde_json *json)
{
    if (!has_text(json)) {
        return;
    }
    if (json->depth == 0) {
        json->text->failed = true;
        return;
    }
    json->depth--;
    if (json->depth >= SONDE_JSON_DEPTH) {
        return;
    }
    sonde_text_add(json->text, (json->lists >> json->depth & 1) != 0 ? "]" : "}");
}

void sonde_json_lead(sonde_json *json, const char *blanks)
{
    if (!has_text(json)) {
        return;
    }
    json->lead = blanks;
}

/* --- values ----------------------------------------------------------------------- */

void sonde_json_raw(sonde_json *json, const char *key, const char *value)
{
    if (!has_text(json) || value == NULL) {
        return;
    }
    begin(json, key);
    sonde_text_add(json->text, value);
}

void sonde_json_string(sonde_json *json, const char *key, const char *value)
{
    if (!has_text(json)) {
        return;
    }
    if (value == NULL) {
        sonde_json_raw(json, key, "null");
        return;
    }
    begin(json, key);
    quote(json->text, value);
}

static const char nan_text[] = "\"NaN\"", infinity_text[] = "\"Infinity\"",
                  minus_infinity_text[] = "\"-Infinity\"";

/* What printf makes of a double, as JSON: it has no NaN and no infinities. */
static const char *json_number(const char *printed)
{
    return strcmp(printed, "nan") == 0 || strcmp(printed, "-nan") == 0 ? nan_text
           : strcmp(printed, "inf") == 0                               ? infinity_text
           : strcmp(printed, "-inf") == 0 ? minus_infinity_text
                                          : printed;
}

void sonde_json_format(sonde_json *json, const char *key, const char *format, ...)
{
    if (!has_text(json)) {
        return;
    }
    char value[400]; /* "%f" of the largest double has 317 */
    va_list args;

    va_start(args, format);
    (void)sonde__vsnprintf(value, sizeof value, format, args);
    va_end(args);
    sonde_json_raw(json, key, json_number(value));
}

/* By hand: printf takes four times as long, and headers have a dozen integers a tensor.
 */
static void put_integer(sonde_json *json, const char *key, bool negative, uint64_t value)
{
    char digits[24];
    size_t first = sizeof digits;

    begin(json, key);
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    if (negative) {
        digits[--first] = '-';
    }
    sonde_text_put(json->text, digits + first, sizeof digits - first);
}

void sonde_json_int(sonde_json *json, const char *key, int64_t value)
{
    if (!has_text(json)) {
        return;
    }
    put_integer(json, key, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void sonde_json_uint(sonde_json *json, const char *key, uint64_t value)
{
    if (!has_text(json)) {
        return;
    }
    put_integer(json, key, false, value);
}

void sonde_json_bool(sonde_json *json, const char *key, bool value)
{
    if (!has_text(json)) {
        return;
    }
    sonde_json_raw(json, key, value ? "true" : "false");
}

void sonde_json_real(sonde_json *json, const char *key, double value)
{
    if (!has_text(json)) {
        return;
    }
    char digits[32];

    if (!isfinite(value)) {
        sonde_json_raw(json, key,
                       isnan(value)  ? nan_text
                       : value > 0.0 ? infinity_text
                                     : minus_infinity_text);
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        (void)sonde__snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (sonde__strtod(digits, NULL) == value) {
            break;
        }
    }
    sonde_json_raw(json, key, digits);
}

/* === reading ======================================================================= */

/* Set aside: for a buffer that doubles to hold the whole text, and small tables. */
enum { SPARE = 8192, SPARE_FOR_BYTE = 4 };
enum { MOST_FILE = 64 * 1024 * 1024 };

static json_malloc_t allocate;
static json_free_t release;
static _Thread_local bool failed;
static _Thread_local char *spare;
static _Thread_local size_t spare_size, spare_used;

static void *allocate_noting(size_t size)
{
    const bool power = size >= 16 && (size & (size - 1)) == 0;
    void *const block = failed && spare != NULL ? NULL : allocate(size);

    failed = failed || block == NULL;
    if (block == NULL && power && spare != NULL && size <= spare_size - spare_used) {
        spare_used += size;
        return spare + spare_used - size;
    }
    return block;
}

static void release_noting(void *block)
{
    if (spare == NULL || (char *)block < spare || (char *)block >= spare + spare_size) {
        release(block);
    }
}

static void wrap(void)
{
    json_get_alloc_funcs(&allocate, &release);
    json_set_alloc_funcs(allocate_noting, release_noting);
}

json_t *sonde__json_read(const char *text, size_t length, size_t flags,
                         json_error_t *error, bool *no_memory)
{
    static pthread_once_t wrapped = PTHREAD_ONCE_INIT;
    json_t *object = NULL;

    (void)pthread_once(&wrapped, wrap);
    spare_size = SPARE + SPARE_FOR_BYTE * length;
    spare_used = 0;
    spare = sonde__malloc(spare_size);
    failed = spare == NULL;
    if (!failed) {
        object = json_loadb(text, length, flags, error);
    }
    *no_memory = failed;
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    sonde__free(spare);
    spare = NULL;
    return object;
}

/* Up to size bytes; returns how many there are. */
static size_t read_all(int fd, char *text, size_t size)
{
    size_t got = 0;
    ssize_t n = 1;

    while (got < size && n > 0) {
        n = read(fd, text + got, size - got);
        got += n > 0 ? (size_t)n : 0;
    }
    return got;
}

json_t *sonde__json_read_file(const char *path, bool *no_memory)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    char *text = NULL;
    json_t *object = NULL;
    size_t size = 0;

    *no_memory = false;
    if (fd < 0) {
        return NULL;
    }
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= MOST_FILE) {
        size = (size_t)about.st_size;
        text = sonde__malloc(size + 1);
        *no_memory = text == NULL;
    }
    if (text != NULL) {
        object = sonde__json_read(text, read_all(fd, text, size), 0, NULL, no_memory);
        sonde__free(text);
    }
    (void)close(fd);
    return object;
}
