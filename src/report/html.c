/*
 * html.c - see html.h.
 */
#include "report/html.h"
#include "base/macros.h"

#include "plot/ticks.h"

#include <stddef.h>
#include <stdint.h>
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sonde__report_html(sonde__plot_bytes *page, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    int length = 0;

    va_start(args, fmt);
    length = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert(length >= 0 && (size_t)length < sizeof text);
    sonde__plot_bytes_add(page, text, (size_t)length);
}

/* Bytes of the letter that text begins with; 0 if it is no letter of UTF-8 (RFC 3629). */
static size_t letter(const unsigned char *text)
{
    const unsigned char c = text[0];
    const size_t size = c < 0x80        ? 1
                        : c >> 5U == 6  ? 2
                        : c >> 4U == 14 ? 3
                        : c >> 3U == 30 ? 4
                                        : 0;
    uint32_t code = size == 1 ? c : c & (0x7fU >> size);

    for (size_t i = 1; i < size; i++) {
        if (text[i] >> 6U != 2) {
            return 0;
        }
        code = code << 6U | (text[i] & 0x3fU);
    }
    if ((size == 2 && code < 0x80) || (size == 3 && code < 0x800) ||
        (size == 4 && (code < 0x10000 || code > 0x10ffff)) ||
        (code >= 0xd800 && code < 0xe000) || code < 0x20 ||
        (code >= 0x7f && code < 0xa0)) {
        return 0;
    }
    return size;
}

void sonde__report_html_text(sonde__plot_bytes *page, const char *text)
{
    static const struct {
        char letter;
        const char *text;
    } escapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

    for (const char *p = text; *p != '\0';) {
        const size_t size = letter((const unsigned char *)p);
        const char *escape = size == 0 ? "\xEF\xBF\xBD" : NULL;

        for (size_t i = 0; i < SONDE_COUNT_OF(escapes); i++) {
            escape = *p == escapes[i].letter ? escapes[i].text : escape;
        }
        if (escape != NULL) {
            sonde__plot_bytes_add_text(page, escape);
        } else {
            sonde__plot_bytes_add(page, p, size);
        }
        p += size > 0 ? size : 1;
    }
}

void sonde__report_html_number(sonde__plot_bytes *page, double value, int digits)
{
    char text[64];

    if (isnan(value)) {
        sonde__plot_bytes_add_text(page, "NaN");
    } else if (isinf(value)) {
        sonde__plot_bytes_add_text(page, value > 0.0 ? "∞" : "−∞");
    } else {
        const char *shown = sonde__plot_short_number(value, digits, text, sizeof text);
        const char *exponent = strchr(shown, 'e');

        if (exponent != NULL) { /* 1e-7, not 1e-07; 1e9, not 1e+09 */
            sonde__plot_bytes_add(page, shown, (size_t)(exponent - shown));
            sonde__report_html(page, "e%ld", strtol(exponent + 1, NULL, 10));
        } else {
            sonde__plot_bytes_add_text(page, shown);
        }
    }
}

void sonde__report_html_count(sonde__plot_bytes *page, uint64_t value)
{
    char text[64];

    sonde__plot_bytes_add_text(page, sonde__plot_grouped(value, text, sizeof text));
}
