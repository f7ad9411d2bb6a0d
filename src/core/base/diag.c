/*
 * diag.c - error names, filling diagnostics, and finding the name that was meant.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <sonde/error.h>

#undef sonde__fail_errno /* for an analyzer only, see fail.h */
#undef sonde__fail_nomem
#undef sonde__fail_null

const char *sonde_err_name(sonde_err err)
{
    static const char *const names[] = {
        "SONDE_OK",           "SONDE_ENOMEM",    "SONDE_EINVAL", "SONDE_EIO",
        "SONDE_EFORMAT",      "SONDE_ENOTFOUND", "SONDE_EEXIST", "SONDE_ESHAPE",
        "SONDE_EDTYPE",       "SONDE_ERANGE",    "SONDE_ESTATE", "SONDE_EUNSUPPORTED",
        "SONDE_EINTERRUPTED", "SONDE_EBUSY",     "SONDE_EEND",   "SONDE_ETIMEOUT",
        "SONDE_ERESUMED",
    };
    const size_t i = (size_t)err;

    return i < SONDE_COUNT_OF(names) ? names[i] : "SONDE_E?";
}

const char *sonde_diag_line(const sonde_diag *diag, char *buf, size_t size)
{
    if (buf == NULL || size == 0) {
        return buf;
    }
    buf[0] = '\0';
    if (diag == NULL) {
        return buf;
    }
    (void)snprintf(buf, size, "%s%s%s%s%s%s", diag->where, diag->where[0] ? ": " : "",
                   diag->found[0] ? diag->found : sonde_err_name(diag->err),
                   diag->expected[0] ? " (expected " : "", diag->expected,
                   diag->expected[0] ? ")" : "");
    return buf;
}

sonde_err sonde_diag_set(sonde_diag *diag, sonde_err err, const char *where,
                         const char *expected, const char *found, ...)
{
    if (diag != NULL) {
        va_list args;

        diag->err = err;
        (void)snprintf(diag->where, sizeof diag->where, "%s", where ? where : "");
        (void)snprintf(diag->expected, sizeof diag->expected, "%s",
                       expected ? expected : "");
        va_start(args, found);
        diag->found[0] = '\0';
        if (found != NULL) {
            (void)sonde__vsnprintf(diag->found, sizeof diag->found, found, args);
        }
        va_end(args);
    }
    return err;
}

sonde_err sonde__fail_errno(sonde_diag *diag, const char *where, const char *found)
{
    const int code = errno;
    const sonde_err err = code == ENOENT   ? SONDE_ENOTFOUND
                          : code == ENOMEM ? SONDE_ENOMEM
                          : code == EEXIST ? SONDE_EEXIST
                                           : SONDE_EIO;

    return sonde__fail(diag, err, where, NULL, "%s: %s", found, strerror(code));
}

sonde_err sonde__fail_nomem(sonde_diag *diag, const char *what)
{
    return sonde__fail(diag, SONDE_ENOMEM, NULL, NULL, "out of memory for %s", what);
}

sonde_err sonde__fail_null(sonde_diag *diag, const char *function, const char *names,
                           size_t index)
{
    const char *name = names;

    for (size_t i = 0; i < index; i++) {
        name += strcspn(name, ",") + 1;
    }
    name += strspn(name, " ");
    return sonde__fail(diag, SONDE_EINVAL, function, "a pointer", "%.*s is NULL",
                       (int)strcspn(name, ","), name);
}

/* Over one row of the table of distances. */
size_t sonde__edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 255 };
    const size_t na = strnlen(a, LONGEST), nb = strnlen(b, LONGEST);
    size_t row[LONGEST + 1];

    for (size_t j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            const size_t shorter = SONDE_MIN(row[j], row[j - 1]) + 1;

            diagonal = row[j];
            row[j] = SONDE_MIN(replaced, shorter);
        }
    }
    return row[nb];
}

/* Whether name is the first letters of the words of candidate: lr of learning_rate. */
static bool is_initials(const char *name, const char *candidate)
{
    size_t words = 0;

    for (const char *c = candidate; *c != '\0'; c++) {
        if (c == candidate || c[-1] == '_' || c[-1] == '-') {
            if (name[words] == '\0' || name[words] != *c) {
                return false;
            }
            words++;
        }
    }
    return words > 1 && name[words] == '\0';
}

const char *sonde_diag_nearest(const char *name, const char *const *candidates,
                               size_t count)
{
    if (name == NULL || candidates == NULL) {
        return NULL;
    }
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;

    for (size_t i = 0; i < count && candidates[i] != NULL; i++) {
        const size_t distance = sonde__edit_distance(name, candidates[i]);

        if (is_initials(name, candidates[i])) {
            return candidates[i];
        }
        if (distance < best_distance) {
            best_distance = distance;
            best = candidates[i];
        }
    }
    if (best == NULL || best_distance * 3 > SONDE_MAX(strlen(name), strlen(best)) + 2) {
        return NULL;
    }
    return best;
}
