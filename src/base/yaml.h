/*
 * yaml.h - a YAML document as a tree that knows its lines.
 *
 * JSON is read as the YAML it is. Anchors, tags and several documents are refused; depth is
 * limited. Every node has its line, so that a reader's errors say "name:line".
 */
#ifndef SONDE_BASE_YAML_H
#define SONDE_BASE_YAML_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sonde__yaml_kind {
    SONDE__YAML_SCALAR = 0,
    SONDE__YAML_LIST = 1,
    SONDE__YAML_MAP = 2
} sonde__yaml_kind;

typedef struct sonde__yaml sonde__yaml;
struct sonde__yaml {
    sonde__yaml_kind kind;
    char *key;  /* in a map, else NULL */
    char *text; /* of a scalar */
    int line;   /* from 1 */
    sonde__yaml **children;
    size_t count, capacity;
};

SONDE_API sonde_err sonde__yaml_parse(const char *text, size_t size, const char *name,
                                      sonde__yaml **out, sonde_diag *diag);
SONDE_API void sonde__yaml_destroy(sonde__yaml *node);

/* A document being read: its name, for "name:line". */
typedef struct sonde__yaml_reader {
    const char *name;
    sonde_diag *diag;
} sonde__yaml_reader;

/* Fills the reader's diag with "name:line" and returns err. */
SONDE_API sonde_err sonde__yaml_fail(const sonde__yaml_reader *reader,
                                     const sonde__yaml *node, sonde_err err,
                                     const char *expected, const char *found, ...)
    SONDE_PRINTF(5, 6);

/* NULL if the map has no such key. */
SONDE_API const sonde__yaml *sonde__yaml_get(const sonde__yaml *map, const char *key);
/* SONDE_EINVAL, with the nearest one meant, if the map has a key that is not in keys. */
SONDE_API sonde_err sonde__yaml_check_keys(const sonde__yaml_reader *reader,
                                           const sonde__yaml *map,
                                           const char *const *keys, size_t count);

/* Value of a key; *out stays as it is if the key is missing. Wrong kind or range: error. */
SONDE_API sonde_err sonde__yaml_int(const sonde__yaml_reader *reader,
                                    const sonde__yaml *map, const char *key,
                                    int64_t lower, int64_t upper, int64_t *out);
SONDE_API sonde_err sonde__yaml_float(const sonde__yaml_reader *reader,
                                      const sonde__yaml *map, const char *key,
                                      float *out);
SONDE_API sonde_err sonde__yaml_bool(const sonde__yaml_reader *reader,
                                     const sonde__yaml *map, const char *key, bool *out);
/* Borrowed from the tree. */
SONDE_API sonde_err sonde__yaml_text(const sonde__yaml_reader *reader,
                                     const sonde__yaml *map, const char *key,
                                     const char **out);
/* One number or a list of at most `most`; *count says how many there were (0: no key). */
SONDE_API sonde_err sonde__yaml_ints(const sonde__yaml_reader *reader,
                                     const sonde__yaml *map, const char *key,
                                     int64_t *out, size_t most, size_t *count);

#endif
