/*
 * text.c - a text that grows, and JSON in it.
 */
#include "record/record_text.h"

#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void sonde__record_text_fini(sonde__record_text *text)
{
    sonde__free(text->start);
    *text = (sonde__record_text){0};
}

char *sonde__record_text_room(sonde__record_text *text, size_t n)
{
    if (text->failed ||
        !sonde__reserve(&text->start, &text->capacity, text->used + n, 1)) {
        text->failed = true;
        return NULL;
    }
    return text->start + text->used;
}

void sonde__record_text_put(sonde__record_text *text, const void *bytes, size_t n)
{
    char *const to = sonde__record_text_room(text, n);

    if (to != NULL && n > 0) {
        memcpy(to, bytes, n);
        text->used += n;
    }
}

void sonde__record_text_add(sonde__record_text *text, const char *plain)
{
    sonde__record_text_put(text, plain, strlen(plain));
}

void sonde__record_text_format(sonde__record_text *text, const char *format, ...)
{
    enum { MOST = 256 };
    char *const to = sonde__record_text_room(text, MOST);
    va_list args;
    int n = 0;

    if (to == NULL) {
        return;
    }
    va_start(args, format);
    n = vsnprintf(to, MOST, format, args);
    va_end(args);
    text->used += (size_t)SONDE_MIN(SONDE_MAX(n, 0), MOST - 1);
}

/* How many bytes the UTF-8 character at s takes; 0 if it is none (RFC 3629: no overlong
 * forms, no surrogates, nothing above U+10FFFF). */
static size_t utf8_length(const unsigned char *s)
{
    const unsigned char least = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    const unsigned char most = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    const size_t n = s[0] < 0x80                   ? 1
                     : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                     : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                     : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                   : 0;

    for (size_t i = 1; i < n; i++) {
        if (s[i] < (i == 1 ? least : 0x80) || s[i] > (i == 1 ? most : 0xBF)) {
            return 0;
        }
    }
    return n;
}

void sonde__record_text_escape(sonde__record_text *text, const char *plain)
{
    const unsigned char *at = (const unsigned char *)plain;

    while (*at != '\0') {
        const size_t n = utf8_length(at);

        if (n == 0) {
            sonde__record_text_add(text, "\xEF\xBF\xBD");
        } else if (*at == '"' || *at == '\\') {
            const char escaped[2] = {'\\', (char)*at};

            sonde__record_text_put(text, escaped, sizeof escaped);
        } else if (*at < 0x20) {
            sonde__record_text_format(text, "\\u%04x", (unsigned)*at);
        } else {
            sonde__record_text_put(text, at, n);
        }
        at += SONDE_MAX(n, 1);
    }
}

void sonde__record_text_quote(sonde__record_text *text, const char *plain)
{
    sonde__record_text_add(text, "\"");
    sonde__record_text_escape(text, plain);
    sonde__record_text_add(text, "\"");
}

void sonde__record_text_member(sonde__record_text *text, const char *key,
                               const char *value)
{
    if (value != NULL) {
        sonde__record_text_format(text, ",\"%s\":", key);
        sonde__record_text_quote(text, value);
    }
}

void sonde__record_text_moment(sonde__record_text *text)
{
    struct timespec now;
    struct tm utc;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    sonde__record_text_format(text, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ",
                              utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                              utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000);
}
