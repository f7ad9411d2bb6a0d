/*
 * xml.c - see http.h.
 */
#include "store/s3/http.h"
#include "base/macros.h"

#include <stdio.h>
#include <string.h>

static void decode(const char *text, size_t length, char *value, size_t size)
{
    static const struct {
        const char *entity;
        char letter;
    } entities[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                    {"&quot;", '"'}, {"&apos;", '\''}, {"&#34;", '"'}};
    size_t used = 0;

    for (size_t i = 0; i < length && used + 1 < size;) {
        char letter = text[i];
        size_t step = 1;

        for (size_t e = 0; letter == '&' && e < SONDE_COUNT_OF(entities); e++) {
            const size_t n = strlen(entities[e].entity);

            if (n <= length - i && strncmp(text + i, entities[e].entity, n) == 0) {
                letter = entities[e].letter;
                step = n;
            }
        }
        value[used++] = letter;
        i += step;
    }
    value[used] = '\0';
}

bool sonde__s3_xml(const char **place, const char *tag, char *value, size_t size)
{
    char open[64], close[64];
    const char *begin = NULL, *end = NULL;

    (void)snprintf(open, sizeof open, "<%s>", tag);
    (void)snprintf(close, sizeof close, "</%s>", tag);
    begin = strstr(*place, open);
    end = begin != NULL ? strstr(begin, close) : NULL;
    if (end == NULL) {
        return false;
    }
    begin += strlen(open);
    decode(begin, (size_t)(end - begin), value, size);
    *place = end + strlen(close);
    return true;
}

bool sonde__s3_xml_first(const sonde_text *body, const char *tag, char *value,
                         size_t size)
{
    const char *place = body->data;

    return body->length > 0 && sonde__s3_xml(&place, tag, value, size);
}
