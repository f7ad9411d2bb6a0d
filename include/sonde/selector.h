/*
 * selector.h - which tensors a user means.
 *
 * Written as
 *     conv1.weight            exactly that name (as sonde_catalogue_find reads it)
 *     *.weight  fc[12].*      a glob: any of * ? [ in the text, or a prefix "glob:"
 *     re:^Gradient___.*bias   a Perl-compatible regular expression, found anywhere
 *     @weight @gradient @all  a collection: every tensor of a role, or all
 *     module:fc1              everything that belongs to a module or to modules inside it
 * or several of these with commas between; blanks around each are dropped. "\," is a
 * comma within an item (in a regular expression too: re:a{1\,2}); any other backslash
 * belongs to the item. Collections are the roles of <sonde/catalogue.h>, singular or
 * plural.
 *
 * An unknown exact name or module is an error. A pattern or a collection that matches
 * nothing succeeds with zero matches, which the observer logs as a warning. A leading
 * "model." that no module has is ignored in exact names, globs and modules.
 *
 * A selector never changes, so any number of threads may use it.
 */
#ifndef SONDE_SELECTOR_H
#define SONDE_SELECTOR_H

#include <sonde/alloc.h>
#include <sonde/catalogue.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_selector sonde_selector;

/* A malformed expression or an unknown collection: SONDE_EINVAL with the position. */
SONDE_API SONDE_CHECKED sonde_err sonde_selector_create(const char *text,
                                                        sonde_selector **out,
                                                        sonde_diag *diag);
SONDE_API void sonde_selector_destroy(sonde_selector *selector);

/*
 * The ids selected, ascending, each once; *ids is new and freed with
 * sonde_release. An exact name or a module that is unknown: SONDE_ENOTFOUND
 * with the nearest ones. A regular expression that takes too many steps on some name:
 * SONDE_EINVAL, after milliseconds. Aliases are selected only when their own name, role
 * or module is; @all leaves them out.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_selector_resolve(const sonde_selector *selector,
                                                         const sonde_catalogue *catalogue,
                                                         uint32_t **ids, size_t *count,
                                                         sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
