/*
 * json.h - writing JSON (RFC 8259) into a text that grows.
 *
 *     sonde_text text = {0};
 *     sonde_json json = {.text = &text};
 *     sonde_json_object(&json, NULL);
 *     sonde_json_string(&json, "name", "conv1.weight");
 *     sonde_json_list(&json, "shape");
 *     sonde_json_int(&json, NULL, 6);
 *     sonde_json_end(&json);
 *     sonde_json_end(&json);           {"name":"conv1.weight","shape":[6]}
 *
 * The writer places commas. Every call takes a key, which is NULL for elements of a list
 * and at the top. A call whose memory runs out sets text->failed, as in text.h. Parts of
 * one document may be taken out of the text, printed, and cleared, while the writer
 * continues.
 *
 * One thread at a time for a writer.
 */
#ifndef SONDE_JSON_H
#define SONDE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <sonde/text.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SONDE_JSON_DEPTH = 32 };

/* Start with {.text = ...}. */
typedef struct sonde_json {
    sonde_text *text; /* borrowed */
    bool spaced;      /* a blank after ':' and ',' */
    /* The writer's own: open objects and lists, which of them are lists, which have
     * members. */
    unsigned depth;
    uint32_t lists, begun;
    const char *lead; /* goes before the next member, in place of the blank */
} sonde_json;

/* Open an object or a list, at most SONDE_JSON_DEPTH deep; close the innermost one. One
 * that is deeper, and an end without one that is open, set text->failed. */
SONDE_API void sonde_json_object(sonde_json *json, const char *key);
SONDE_API void sonde_json_list(sonde_json *json, const char *key);
SONDE_API void sonde_json_end(sonde_json *json);
/* The next member or element follows these blanks ("\n  "). Borrowed until then. */
SONDE_API void sonde_json_lead(sonde_json *json, const char *blanks);

/* A string, escaped, with all control characters; each byte that is not UTF-8 becomes
 * U+FFFD. value NULL writes null. */
SONDE_API void sonde_json_string(sonde_json *json, const char *key, const char *value);
SONDE_API void sonde_json_int(sonde_json *json, const char *key, int64_t value);
SONDE_API void sonde_json_uint(sonde_json *json, const char *key, uint64_t value);
SONDE_API void sonde_json_bool(sonde_json *json, const char *key, bool value);
/* The fewest digits, from 15 on, that read back as the same double; "NaN", "Infinity" and
 * "-Infinity" as strings. */
SONDE_API void sonde_json_real(sonde_json *json, const char *key, double value);
/* JSON as printf prints it: "%.6f", "null". NaN and infinities as sonde_json_real does.
 */
SONDE_API void sonde_json_format(sonde_json *json, const char *key, const char *format,
                                 ...) SONDE_PRINTF(3, 4);
/* JSON of any length, copied as it is. */
SONDE_API void sonde_json_raw(sonde_json *json, const char *key, const char *value);

/* Appends string as it stands between the quotes of a string of JSON. */
SONDE_API void sonde_json_escape(sonde_text *text, const char *string);

#ifdef __cplusplus
}
#endif

#endif
