/*
 * error.h - error codes and diagnostics.
 *
 * Every fallible function of Sonde returns a sonde_err; 0 is success. Results come through
 * out-parameters, which are written only on success. A function that reads something a user
 * wrote (a file, a name, an option) also takes an optional sonde_diag, which it fills on
 * failure with three sentences' worth of facts: where, what was found, what was expected.
 *
 *     sonde_diag diag = {0};
 *     if (sonde_idx_open(path, &set, &diag) != SONDE_OK) {
 *         char line[SONDE_DIAG_LINE];
 *         fprintf(stderr, "error: %s\n", sonde_diag_line(&diag, line, sizeof line));
 *     }
 *
 * The library never prints and never exits.
 */
#ifndef SONDE_ERROR_H
#define SONDE_ERROR_H

#include <stddef.h>

#include <sonde/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values are fixed for ever; new ones are added at the end. */
typedef enum sonde_err {
    SONDE_OK = 0,
    SONDE_ENOMEM = 1,        /* memory could not be had */
    SONDE_EINVAL = 2,        /* an argument or an option has a value it cannot have */
    SONDE_EIO = 3,           /* the operating system refused to read or write */
    SONDE_EFORMAT = 4,       /* a file is truncated, corrupt or of another kind */
    SONDE_ENOTFOUND = 5,     /* a file, name or tensor does not exist */
    SONDE_EEXIST = 6,        /* something exists that must not */
    SONDE_ESHAPE = 7,        /* a tensor has the wrong shape */
    SONDE_EDTYPE = 8,        /* a tensor has the wrong dtype */
    SONDE_ERANGE = 9,        /* an index or a label lies outside its range */
    SONDE_ESTATE = 10,       /* a call out of order, or on something frozen */
    SONDE_EUNSUPPORTED = 11, /* understood, but not done by this version */
    SONDE_EINTERRUPTED = 12, /* stopped by request */
    SONDE_EBUSY = 13,        /* somebody else has it */
    SONDE_EEND = 14,         /* there will be no more */
    SONDE_ETIMEOUT = 15,     /* it did not come in time */
    SONDE_ERESUMED = 16      /* a run was gone on with from a step that had passed */
} sonde_err;

/* "SONDE_EINVAL" and the like; a static string, "SONDE_E?" for an unknown value. */
SONDE_API const char *sonde_err_name(sonde_err err);

/* What went wrong. All strings are NUL-terminated and may be empty. */
typedef struct sonde_diag {
    sonde_err err;
    char where[256];    /* the file, option, tensor or line: "train.yaml:12" */
    char found[384];    /* what is wrong: "unknown key 'learing_rate'" */
    char expected[256]; /* what would have been right: "learning_rate" */
} sonde_diag;

enum { SONDE_DIAG_LINE = 1024 };

/*
 * One line: "<where>: <found> (expected <expected>)", without the parts that are empty.
 * Returns buf. No allocation.
 */
SONDE_API const char *sonde_diag_line(const sonde_diag *diag, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
