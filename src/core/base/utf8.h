/*
 * utf8.h - well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above
 * U+10FFFF). Internal.
 */
#ifndef SONDE_BASE_UTF8_H
#define SONDE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include <sonde/export.h>

#define SONDE__REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD, for a byte that is not UTF-8 */

/* Bytes of the character at text, 1 to 4; 0 if it is malformed. text ends with a NUL. */
SONDE_API size_t sonde__utf8_length(const char *text);
/* True if all of text is well formed. */
SONDE_API bool sonde__utf8_valid(const char *text);

#endif
