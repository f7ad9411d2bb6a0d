/*
 * names.h - interned strings: text to dense ids and back. Internal.
 */
#ifndef SONDE_BASE_NAMES_H
#define SONDE_BASE_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

/*
 * A set of strings that get dense ids 0, 1, 2 ... in order of arrival. Text lives until
 * fini. One thread at a time. Interning costs a hash; looking a text up by id is an index.
 */
typedef struct sonde__names {
    char **text;
    size_t count, capacity;
    uint32_t *slots; /* open addressing; id + 1, 0 is empty */
    size_t slot_count;
} sonde__names;

#define SONDE__NO_NAME UINT32_MAX

SONDE_API void sonde__names_init(sonde__names *names);
SONDE_API void sonde__names_fini(sonde__names *names);
/* The id of text, new if need be; SONDE__NO_NAME if memory is out. */
SONDE_API uint32_t sonde__names_intern(sonde__names *names, const char *text);
/* SONDE__NO_NAME if text was never interned. */
SONDE_API uint32_t sonde__names_find(const sonde__names *names, const char *text);

#endif
