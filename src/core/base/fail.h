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

/* SONDE_EINVAL: of the names of arguments "a, b, c", the one with this index is NULL. */
SONDE_API sonde_err sonde__fail_null(sonde_diag *diag, const char *function,
                                     const char *names, size_t index);
#ifdef __clang_analyzer__
#define sonde__fail_null(diag, function, names, index)                                   \
    ((void)sonde__fail_null(diag, function, names, index), SONDE_EINVAL)
#endif

/* The first lines of a public function: returns SONDE_EINVAL, with the name of the
 * argument, if one of these pointers to objects is NULL. Costs a comparison each. */
#define SONDE__NEEDS(diag, ...) SONDE__NEEDS_AS(diag, #__VA_ARGS__, __VA_ARGS__)

/* The same for arguments that have other names in the header: these. */
#define SONDE__NEEDS_AS(diag, names, ...)                                                \
    do {                                                                                 \
        const void *const needed_[] = {__VA_ARGS__};                                     \
        for (size_t k_ = 0; k_ < sizeof needed_ / sizeof needed_[0]; k_++) {             \
            if (needed_[k_] == NULL) {                                                   \
                return sonde__fail_null((diag), __func__, (names), k_);                  \
            }                                                                            \
        }                                                                                \
    } while (0)

/* The same for one pointer to a function. */
#define SONDE__NEEDS_FUNCTION(diag, pointer)                                             \
    do {                                                                                 \
        if ((pointer) == NULL) {                                                         \
            return sonde__fail_null((diag), __func__, #pointer, 0);                      \
        }                                                                                \
    } while (0)

/* Returns the error of a call that failed; a call that succeeded goes on. Every statement that
 * only hands an error up is one of these. */
#define SONDE__TRY(...)                                                                  \
    do {                                                                                 \
        const sonde_err try_err_ = (__VA_ARGS__);                                        \
        if (try_err_ != SONDE_OK) {                                                      \
            return try_err_;                                                             \
        }                                                                                \
    } while (0)

/* The same in a function that frees what it made: keeps the error in its variable err and
 * goes to its label error, where only failures arrive ... */
#define SONDE__TRY_GO(...) SONDE__TRY_AT(error, __VA_ARGS__)

/* ... or to its label done, where successes arrive too. */
#define SONDE__TRY_DONE(...) SONDE__TRY_AT(done, __VA_ARGS__)

#define SONDE__TRY_AT(label, ...)                                                        \
    do {                                                                                 \
        err = (__VA_ARGS__);                                                             \
        if (err != SONDE_OK) {                                                           \
            goto label;                                                                  \
        }                                                                                \
    } while (0)

/* SONDE__TRY for calls that return 0 or an errno. */
#define SONDE__TRY_ERRNO(...)                                                            \
    do {                                                                                 \
        const int try_errno_ = (__VA_ARGS__);                                            \
        if (try_errno_ != 0) {                                                           \
            return try_errno_;                                                           \
        }                                                                                \
    } while (0)

/* Edit distance (Levenshtein) of two names, by their first 255 letters. */
SONDE_API size_t sonde__edit_distance(const char *a, const char *b);

#endif
