/*
 * text.h - a text that grows, and JSON in it. Internal.
 *
 * Nothing has to be checked until the end: when memory is out, the text is marked as failed
 * and takes no more.
 */
#ifndef SONDE_RECORD_RECORD_TEXT_H
#define SONDE_RECORD_RECORD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

typedef struct sonde__record_text {
    char *start; /* not NUL-terminated */
    size_t used, capacity;
    bool failed;
} sonde__record_text;

SONDE_API void sonde__record_text_fini(sonde__record_text *text);
/* Room for n more bytes, to be filled and then counted in used; NULL if memory is out. */
SONDE_API char *sonde__record_text_room(sonde__record_text *text, size_t n);
SONDE_API void sonde__record_text_put(sonde__record_text *text, const void *bytes,
                                      size_t n);
SONDE_API void sonde__record_text_add(sonde__record_text *text, const char *plain);
SONDE_API void sonde__record_text_format(sonde__record_text *text, const char *format,
                                         ...) SONDE_PRINTF(2, 3);
/* What stands within quotes in JSON; bytes that are not UTF-8 become U+FFFD. */
SONDE_API void sonde__record_text_escape(sonde__record_text *text, const char *plain);
/* The same with the quotes. */
SONDE_API void sonde__record_text_quote(sonde__record_text *text, const char *plain);
/* ,"key":"value" unless value is NULL. */
SONDE_API void sonde__record_text_member(sonde__record_text *text, const char *key,
                                         const char *value);
/* Seconds since 1970 as "2026-01-31T12:00:00.000000Z", without quotes. */
SONDE_API void sonde__record_text_moment(sonde__record_text *text);

#endif
