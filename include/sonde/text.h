/*
 * text.h - text that grows.
 *
 *     sonde_text line = {0};
 *     sonde_text_add(&line, "step ");
 *     sonde_text_format(&line, "%d", step);
 *     if (!line.failed) { puts(line.data); }
 *     sonde_text_fini(&line);
 *
 * Appending needs no check: the first append that runs out of memory sets failed, and
 * every later one does nothing until the flag is cleared. Setting length to 0 empties
 * the text and keeps its memory.
 *
 * One thread at a time for a text.
 */
#ifndef SONDE_TEXT_H
#define SONDE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Start with a zeroed one. */
typedef struct sonde_text {
    char *data;      /* NUL-terminated after every append; NULL before the first */
    size_t length;   /* without the NUL */
    size_t capacity; /* bytes of data */
    bool failed;     /* an append ran out of memory */
} sonde_text;

/* Frees the data and zeroes the text. Accepts NULL. */
SONDE_API void sonde_text_fini(sonde_text *text);
/* Makes room for length bytes in all and a NUL: appending up to there does not allocate.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_text_reserve(sonde_text *text, size_t length);

/* Append n bytes, a string, and what printf prints in the locale "C". */
SONDE_API void sonde_text_put(sonde_text *text, const void *bytes, size_t n);
SONDE_API void sonde_text_add(sonde_text *text, const char *string);
SONDE_API void sonde_text_format(sonde_text *text, const char *format, ...)
    SONDE_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
