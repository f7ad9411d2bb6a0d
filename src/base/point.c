/*
 * point.c - see point.h. The locale is set for the calling thread, for the call.
 */
#include "base/point.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t plain; /* 0 if it could not be made: the locale stays as it is */

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Returns the locale to return to. */
static locale_t enter(void)
{
    static pthread_once_t made = PTHREAD_ONCE_INIT;

    (void)pthread_once(&made, make_plain);
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
    int length = 0;

    va_start(args, format);
    length = sonde__vsnprintf(buf, size, format, args);
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
