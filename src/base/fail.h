/*
 * fail.h - how a function fails: it fills a diagnostic and returns its error code. Internal.
 */
#ifndef SONDE_BASE_FAIL_H
#define SONDE_BASE_FAIL_H

#include <sonde/error.h>

#include <stddef.h>

/* Fills diag (may be NULL) and returns err, so that a failure is one return statement.
 * where and expected may be NULL. */
SONDE_API sonde_err sonde__fail(sonde_diag *diag, sonde_err err, const char *where,
                                const char *expected, const char *found, ...)
    SONDE_PRINTF(5, 6);
/* The same with errno's text behind found: "cannot open: No such file or directory". The
 * code is SONDE_ENOTFOUND for ENOENT, SONDE_ENOMEM for ENOMEM, SONDE_EEXIST for EEXIST,
 * else SONDE_EIO. */
SONDE_API sonde_err sonde__fail_errno(sonde_diag *diag, const char *where,
                                      const char *found);
/* SONDE_ENOMEM, with what could not be allocated. */
SONDE_API sonde_err sonde__fail_nomem(sonde_diag *diag, const char *what);

/* Edit distance of two names, and the candidate nearest to name: NULL if none is near
 * enough to be meant (more than a third of the letters differ). */
SONDE_API const char *sonde__nearest(const char *name, const char *const *candidates,
                                     size_t count);
SONDE_API size_t sonde__edit_distance(const char *a, const char *b);

#endif
