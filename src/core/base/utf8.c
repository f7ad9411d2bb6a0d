/*
 * utf8.c - well-formed UTF-8; see utf8.h.
 */
#include "base/utf8.h"

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
