/*
 * options.c - option structs of another version's size.
 */
#include "base/options.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

enum { LARGEST = 4096 };

sonde_err(sonde__given_options)(void *own, size_t size, const void *given,
                                const char *name, sonde_diag *diag)
{
    size_t theirs = 0;

    memset(own, 0, size);
    memcpy(own, &size, sizeof size);
    if (given == NULL) {
        return SONDE_OK;
    }
    memcpy(&theirs, given, sizeof theirs);
    if (theirs <= sizeof theirs || theirs > LARGEST || theirs % sizeof theirs != 0) {
        char expected[sizeof((sonde_diag *)NULL)->expected];

        (void)snprintf(expected, sizeof expected, "sizeof(%s), %zu", name, size);
        return sonde__fail(diag, SONDE_EINVAL, name, expected, "size is %zu", theirs);
    }
    for (size_t i = size; i < theirs; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return sonde__fail(diag, SONDE_EUNSUPPORTED, name, NULL,
                               "byte %zu is set, which this version does not know", i);
        }
    }
    memcpy((unsigned char *)own + sizeof size, (const unsigned char *)given + sizeof size,
           (theirs < size ? theirs : size) - sizeof size);
    return SONDE_OK;
}

void sonde__given_defaults(void *options, size_t size, const void *defaults,
                           size_t own_size)
{
    if (options != NULL) {
        memset(options, 0, size);
        memcpy(options, defaults, size < own_size ? size : own_size);
    }
}
