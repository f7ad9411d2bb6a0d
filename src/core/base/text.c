/*
 * text.c - text that grows, and UTF-8; see <sonde/text.h> and utf8.h.
 */
#include "base/memory.h"
#include "base/utf8.h"
#include "base/fail.h"
#include "base/number.h"

#include <sonde/text.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void sonde_text_fini(sonde_text *text)
{
    if (text != NULL) {
        sonde__free(text->data);
        *text = (sonde_text){0};
    }
}

sonde_err sonde_text_reserve(sonde_text *text, size_t length)
{
    SONDE__NEEDS(NULL, text);
    return length < SIZE_MAX &&
                   sonde__reserve(&text->data, &text->capacity, length + 1, 1)
               ? SONDE_OK
               : SONDE_ENOMEM;
}

/* Room for n more bytes and a NUL. */
static bool make_room(sonde_text *text, size_t n)
{
    text->failed = text->failed || n > SIZE_MAX - text->length ||
                   sonde_text_reserve(text, text->length + n) != SONDE_OK;
    return !text->failed;
}

void sonde_text_put(sonde_text *text, const void *bytes, size_t n)
{
    if (text == NULL || (bytes == NULL && n > 0)) {
        return;
    }
    if (make_room(text, n)) {
        if (n > 0) {
            memcpy(text->data + text->length, bytes, n);
        }
        text->length += n;
        text->data[text->length] = '\0';
    }
}

void sonde_text_add(sonde_text *text, const char *string)
{
    if (text == NULL || string == NULL) {
        return;
    }
    sonde_text_put(text, string, strlen(string));
}

void sonde_text_format(sonde_text *text, const char *format, ...)
{
    if (text == NULL) {
        return;
    }
    enum { FIRST = 127 }; /* most fit at the first attempt */
    va_list args;

    if (!make_room(text, FIRST)) {
        return;
    }
    const size_t room = text->capacity - text->length;
    va_start(args, format);
    const int n = sonde__vsnprintf(text->data + text->length, room, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n >= room) {
        text->data[text->length] = '\0';
        if (!make_room(text, (size_t)n)) {
            return;
        }
        va_start(args, format);
        (void)sonde__vsnprintf(text->data + text->length, (size_t)n + 1, format, args);
        va_end(args);
    }
    text->length += n > 0 ? (size_t)n : 0;
}

/* === UTF-8 ========================================================================= */

/*
 * Well-formed UTF-8; see utf8.h.
 */

size_t sonde__utf8_length(const char *text)
{
    const unsigned char *const s = (const unsigned char *)text;
    /* bounds of the second byte: they exclude overlong forms and surrogates */
    const unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    const size_t n = s[0] < 0x80                   ? 1
                     : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                     : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                     : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                   : 0;

    for (size_t i = 1; i < n; i++) {
        if (s[i] < (i == 1 ? low : 0x80) || s[i] > (i == 1 ? high : 0xBF)) {
            return 0;
        }
    }
    return n;
}

bool sonde__utf8_valid(const char *text)
{
    size_t n = 1;

    while (*text != '\0' && n > 0) {
        n = sonde__utf8_length(text);
        text += n;
    }
    return n > 0;
}
