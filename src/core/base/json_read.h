/*
 * json_read.h - reading JSON with jansson, which does not tell all failures of memory: its
 * lexer leaves out characters that it cannot keep, and calls the rest malformed. Internal.
 */
#ifndef SONDE_BASE_JSON_READ_H
#define SONDE_BASE_JSON_READ_H

#include <sonde/error.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* As json_loadb. *no_memory: whether memory ran out, and nothing is returned. error may be
 * NULL. */
SONDE_API json_t *sonde__json_read(const char *text, size_t length, size_t flags,
                                   json_error_t *error, bool *no_memory);
/* The object of a file of at most 64 MiB. NULL: there is none, it is damaged, or memory
 * ran out. */
SONDE_API json_t *sonde__json_read_file(const char *path, bool *no_memory);

#endif
