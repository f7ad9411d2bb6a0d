/*
 * options.h - option structs as a caller gives them, of this or another version's size.
 * Internal.
 */
#ifndef SONDE_BASE_OPTIONS_H
#define SONDE_BASE_OPTIONS_H

#include <sonde/error.h>

#include <stddef.h>

/*
 * Copies the options that a caller gives (<sonde/options.h>) to own, which has size
 * bytes: what given lacks is zero, and own's size field is size. given NULL: all zero.
 * name: of the struct. SONDE_EINVAL: an impossible size; SONDE_EUNSUPPORTED: given is
 * larger, and not zero beyond size. Writes own in any case.
 */
SONDE_API sonde_err sonde__given_options(void *own, size_t size, const void *given,
                                         const char *name, sonde_diag *diag);
#ifdef __clang_analyzer__
#define sonde__given_options(own, size, given, name, diag)                               \
    (sonde__given_options((own), (size), (given), (name), (diag)) == SONDE_OK            \
         ? SONDE_OK                                                                      \
         : SONDE_EINVAL)
#endif

/* Writes the defaults of options, own_size bytes of them, to the size bytes of a caller's
 * struct; what defaults lack is zero. options NULL: nothing. */
SONDE_API void sonde__given_defaults(void *options, size_t size, const void *defaults,
                                     size_t own_size);

/* The same, SONDE__TAKE(sonde_watch_options, &own, given, diag); returns an error from
 * the function that it stands in. */
#define SONDE__TAKE(type, own, given, diag)                                              \
    do {                                                                                 \
        const sonde_err taken_ =                                                         \
            sonde__given_options((own), sizeof(type), (given), #type, (diag));           \
        if (taken_ != SONDE_OK) {                                                        \
            return taken_;                                                               \
        }                                                                                \
    } while (0)

#endif
