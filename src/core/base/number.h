/*
 * number.h - text in the locale "C", whatever the locale of the program. Internal.
 *
 * These are the functions of C without the two underscores: fractions have a point, and I
 * is the capital of i (in Turkish it is not). tools/check-names looks for others.
 */
#ifndef SONDE_BASE_NUMBER_H
#define SONDE_BASE_NUMBER_H

#include <sonde/error.h>

#include <stdarg.h>
#include <stddef.h>

SONDE_API double sonde__strtod(const char *text, char **end);
SONDE_API float sonde__strtof(const char *text, char **end);
SONDE_API int sonde__snprintf(char *buf, size_t size, const char *format, ...)
    SONDE_PRINTF(3, 4);
SONDE_API int sonde__vsnprintf(char *buf, size_t size, const char *format, va_list args)
    SONDE_PRINTF(3, 0);

SONDE_API int sonde__strcasecmp(const char *a, const char *b);
SONDE_API int sonde__strncasecmp(const char *a, const char *b, size_t n);
SONDE_API char *sonde__strcasestr(const char *text, const char *part);
SONDE_API int sonde__tolower(int letter);
SONDE_API int sonde__toupper(int letter);

#endif
