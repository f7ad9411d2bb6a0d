/*
 * number.c - see number.h. For numbers, the locale is set for the calling thread, for the
 * call; letters are those of ASCII.
 */
#include "base/number.h"

#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t plain; /* 0 if it could not be made: the locale stays as it is */

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Returns the locale to return to. */
static locale_t enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, make_plain);
    return uselocale(plain);
}

double sonde__strtod(const char *text, char **end)
{
    const locale_t before = enter();
    const double value = strtod(text, end);

    (void)uselocale(before);
    return value;
}

float sonde__strtof(const char *text, char **end)
{
    const locale_t before = enter();
    const float value = strtof(text, end);

    (void)uselocale(before);
    return value;
}

int sonde__snprintf(char *buf, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    const int length = sonde__vsnprintf(buf, size, format, args);
    va_end(args);
    return length;
}

int sonde__vsnprintf(char *buf, size_t size, const char *format, va_list args)
{
    const locale_t before = enter();
    const int length = vsnprintf(buf, size, format, args);

    (void)uselocale(before);
    return length;
}

/* --- letters ---------------------------------------------------------------------- */

int sonde__tolower(int letter)
{
    return letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter;
}

int sonde__toupper(int letter)
{
    return letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter;
}

int sonde__strncasecmp(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int x = sonde__tolower((unsigned char)a[i]),
                  y = sonde__tolower((unsigned char)b[i]);

        if (x != y || x == '\0') {
            return x - y;
        }
    }
    return 0;
}

int sonde__strcasecmp(const char *a, const char *b)
{
    return sonde__strncasecmp(a, b, SIZE_MAX);
}

char *sonde__strcasestr(const char *text, const char *part)
{
    const size_t length = strlen(part);

    for (;; text++) {
        if (sonde__strncasecmp(text, part, length) == 0) {
            return (char *)(uintptr_t)text;
        }
        if (*text == '\0') {
            return NULL;
        }
    }
}
