/*
 * fail.h - failing: fill a diagnostic and return the error code. Internal.
 */
#ifndef SONDE_BASE_FAIL_H
#define SONDE_BASE_FAIL_H

#include <sonde/error.h>

#include <stddef.h>

/* Its short name inside the library. For an analyzer, which sees one file, the result
 * too. */
#ifndef __clang_analyzer__
#define sonde__fail sonde_diag_set
#else
#define sonde__fail(diag, err, ...) ((void)sonde_diag_set(diag, err, __VA_ARGS__), (err))
#endif

/* The same with errno's text after found: "cannot open: No such file or directory". The
 * code is SONDE_ENOTFOUND for ENOENT, SONDE_ENOMEM for ENOMEM, SONDE_EEXIST for EEXIST,
 * else SONDE_EIO. */
SONDE_API sonde_err sonde__fail_errno(sonde_diag *diag, const char *where,
                                      const char *found);
/* SONDE_ENOMEM; what: the object that could not be allocated. */
SONDE_API sonde_err sonde__fail_nomem(sonde_diag *diag, const char *what);
#ifdef __clang_analyzer__
#define sonde__fail_errno(diag, where, found)                                            \
    ((void)sonde__fail_errno(diag, where, found), SONDE_EIO)
#define sonde__fail_nomem(diag, what) ((void)sonde__fail_nomem(diag, what), SONDE_ENOMEM)
#endif

/* Returns SONDE_EINVAL from a function that was given NULL for what it needs. */
#define SONDE__NEEDS(diag, given)                                                        \
    do {                                                                                 \
        if (!(given)) {                                                                  \
            return sonde__fail((diag), SONDE_EINVAL, __func__,                           \
                               "no NULL but for options", "an argument is NULL");        \
        }                                                                                \
    } while (0)

/* Edit distance (Levenshtein) of two names, by their first 255 letters. */
SONDE_API size_t sonde__edit_distance(const char *a, const char *b);

#endif
