/*
 * html.c - see html.h.
 */
#include "report/html.h"
#include "base/macros.h"
#include "base/utf8.h"

#include "plot/ticks.h"

#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character at text; 0 if it is malformed or a control character. */
static size_t letter(const char *text)
{
    const unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    const bool control =
        first < 0x20 || first == 0x7f || (first == 0xc2 && second < 0xa0);

    return control ? 0 : sonde__utf8_length(text);
}

void sonde__report_html_text(sonde_text *page, const char *text)
{
    static const struct {
        char letter;
        const char *text;
    } escapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

    for (const char *p = text; *p != '\0';) {
        const size_t size = letter(p);
        const char *escape = size == 0 ? SONDE__REPLACEMENT : NULL;

        for (size_t i = 0; i < SONDE_COUNT_OF(escapes); i++) {
            escape = *p == escapes[i].letter ? escapes[i].text : escape;
        }
        if (escape != NULL) {
            sonde_text_add(page, escape);
        } else {
            sonde_text_put(page, p, size);
        }
        p += size > 0 ? size : 1;
    }
}

void sonde__report_html_number(sonde_text *page, double value, int digits)
{
    char text[64];

    if (isnan(value)) {
        sonde_text_add(page, "NaN");
    } else if (isinf(value)) {
        sonde_text_add(page, value > 0.0 ? "∞" : "−∞");
    } else {
        const char *shown = sonde__plot_short_number(value, digits, text, sizeof text);
        const char *exponent = strchr(shown, 'e');

        if (exponent != NULL) { /* 1e-7, not 1e-07; 1e9, not 1e+09 */
            sonde_text_put(page, shown, (size_t)(exponent - shown));
            sonde_text_format(page, "e%ld", strtol(exponent + 1, NULL, 10));
        } else {
            sonde_text_add(page, shown);
        }
    }
}

void sonde__report_html_count(sonde_text *page, uint64_t value)
{
    char text[64];

    sonde_text_add(page, sonde__plot_grouped(value, text, sizeof text));
}
