/*
 * yaml.h - a YAML (or JSON) document as a tree with line numbers. Internal.
 *
 * libyaml parses; this tree adds the line of every node, so that errors say "name:line".
 * Not libcyaml: it reads into fixed schemas, without lines and without near misses of
 * keys. Anchors, tags and several documents are refused; depth is limited.
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
    int line;   /* from 1; in a map that of its key */
    sonde__yaml **children;
    size_t count, capacity;
};

SONDE_API sonde_err sonde__yaml_parse(const char *text, size_t size, const char *name,
                                      sonde__yaml **out, sonde_diag *diag);
SONDE_API void sonde__yaml_destroy(sonde__yaml *node);

/* The document's name, for "name:line", and where errors go. */
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
/* SONDE_EINVAL, with the nearest of keys, if the map has a key that is not among them. */
SONDE_API sonde_err sonde__yaml_check_keys(const sonde__yaml_reader *reader,
                                           const sonde__yaml *map,
                                           const char *const *keys, size_t count);

/* The value of a key; *out is unchanged if the key is missing. SONDE_EINVAL: wrong kind
 * or out of range. */
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
/* One number or a list of at most `most` numbers; *count: how many (0: no key). */
SONDE_API sonde_err sonde__yaml_ints(const sonde__yaml_reader *reader,
                                     const sonde__yaml *map, const char *key,
                                     int64_t *out, size_t most, size_t *count);

#endif
