/*
 * names.h - interned strings: text to dense ids and back. Internal.
 */
#ifndef SONDE_BASE_NAMES_H
#define SONDE_BASE_NAMES_H

#include "base/table.h"

#include <stddef.h>
#include <stdint.h>

#include <sonde/export.h>

/*
 * Strings with dense ids 0, 1, 2 ... in order of arrival, kept until fini. One thread at
 * a time. Interning costs a hash and a comparison; text[id] is the text of an id.
 */
typedef struct sonde__names {
    char **text;
    size_t count, capacity;
    sonde__table table; /* by text */
} sonde__names;

#define SONDE__NO_NAME SONDE__TABLE_NONE

SONDE_API void sonde__names_init(sonde__names *names);
SONDE_API void sonde__names_fini(sonde__names *names);
/* The id of text, which is added if it is new; SONDE__NO_NAME if memory runs out. */
SONDE_API uint32_t sonde__names_intern(sonde__names *names, const char *text);
/* SONDE__NO_NAME if text was never interned. */
SONDE_API uint32_t sonde__names_find(const sonde__names *names, const char *text);

#endif
