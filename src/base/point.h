/*
 * point.h - numbers as text with a point, in every locale of the program. Internal.
 *
 * These are the functions of C without the two underscores, in the locale "C". All of
 * src/ uses them where a number has a fraction; tools/check-names looks for others.
 */
#ifndef SONDE_BASE_POINT_H
#define SONDE_BASE_POINT_H

#include <sonde/error.h>

#include <stdarg.h>
#include <stddef.h>

SONDE_API double sonde__strtod(const char *text, char **end);
SONDE_API float sonde__strtof(const char *text, char **end);
SONDE_API int sonde__snprintf(char *buf, size_t size, const char *format, ...)
    SONDE_PRINTF(3, 4);
SONDE_API int sonde__vsnprintf(char *buf, size_t size, const char *format, va_list args)
    SONDE_PRINTF(3, 0);

#endif
