/*
 * error.h - error codes and diagnostics.
 *
 * Every fallible function of Sonde returns a sonde_err; 0 is success. Results come
 * through out-parameters, which are written only on success. A function that reads
 * something a user wrote (a file, a name, an option) also takes an optional sonde_diag,
 * which it fills on failure with three facts: where, what was found, what was expected.
 *
 *     sonde_diag diag = {0};
 *     if (sonde_trial_open(path, NULL, &trial, &diag) != SONDE_OK) {
 *         char line[SONDE_DIAG_LINE];
 *         fprintf(stderr, "error: %s\n", sonde_diag_line(&diag, line, sizeof line));
 *     }
 *
 * NULL for a pointer that a function needs is SONDE_EINVAL; diag names the function and
 * the argument. Options, diag and what a header says may be NULL are not needed. Functions
 * that destroy, close, free or end an object accept NULL. Functions that cannot fail then
 * do nothing, or return 0, false, NULL, NaN or a struct of zeros if the header names no
 * other value. Values that cannot be (an enum or an index out of its range, a view without
 * data or of 12 dimensions) are treated likewise. Inline functions stand in hot loops and
 * check nothing.
 *
 * The library never prints and never exits.
 *
 * Threads: calls share nothing; a sonde_diag is one thread's.
 */
#ifndef SONDE_ERROR_H
#define SONDE_ERROR_H

#include <stddef.h>

#include <sonde/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values never change; new ones are added at the end. */
typedef enum sonde_err {
    SONDE_OK = 0,
    SONDE_ENOMEM = 1,        /* out of memory */
    SONDE_EINVAL = 2,        /* an argument or an option has an invalid value */
    SONDE_EIO = 3,           /* the operating system refused to read or write */
    SONDE_EFORMAT = 4,       /* a file is truncated, corrupt or of another kind */
    SONDE_ENOTFOUND = 5,     /* a file, name or tensor does not exist */
    SONDE_EEXIST = 6,        /* something exists already */
    SONDE_ESHAPE = 7,        /* a tensor has the wrong shape */
    SONDE_EDTYPE = 8,        /* a tensor has the wrong dtype */
    SONDE_ERANGE = 9,        /* an index or a label lies outside its range */
    SONDE_ESTATE = 10,       /* a call out of order, or on a frozen object */
    SONDE_EUNSUPPORTED = 11, /* valid, but not supported by this version */
    SONDE_EINTERRUPTED = 12, /* stopped by request */
    SONDE_EBUSY = 13,        /* another process or thread uses it */
    SONDE_EEND = 14,         /* the end was reached */
    SONDE_ETIMEOUT = 15,     /* the time allowed is over */
    SONDE_ERESUMED = 16      /* the run was resumed from an earlier step */
} sonde_err;

/* "SONDE_EINVAL" and the like; a static string, "SONDE_E?" for an unknown value. */
SONDE_API const char *sonde_err_name(sonde_err err);

/* What went wrong. All strings are NUL-terminated and may be empty. */
typedef struct sonde_diag {
    sonde_err err;
    char where[256];    /* the file, option, tensor or line: "train.yaml:12" */
    char found[384];    /* what is wrong: "unknown key 'learing_rate'" */
    char expected[256]; /* what is accepted: "learning_rate" */
} sonde_diag;

enum { SONDE_DIAG_LINE = 1024 };

/*
 * Fills diag, which may be NULL, and returns err: a failure is one return statement.
 * where and expected may be NULL; found is a printf format. Text that does not fit is
 * cut off.
 */
SONDE_API sonde_err sonde_diag_set(sonde_diag *diag, sonde_err err, const char *where,
                                   const char *expected, const char *found, ...)
    SONDE_PRINTF(5, 6);

/* The candidate that a misspelt name, or its initials (lr), probably stands for; NULL if
 * more than about a third of the letters differ from every candidate. */
SONDE_API const char *sonde_diag_nearest(const char *name, const char *const *candidates,
                                         size_t count);

/*
 * One line: "<where>: <found> (expected <expected>)", without the parts that are empty.
 * Returns buf. No allocation.
 */
SONDE_API const char *sonde_diag_line(const sonde_diag *diag, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
